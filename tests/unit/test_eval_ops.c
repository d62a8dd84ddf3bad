/* Ops by value: what numpy would say, what differs by opset, and every message. Each case is a body of MIL text whose
 * variable y is compared as text. */
#include "unit/eval_test.h"

struct op_case {
    int ios;
    const char *body, *expected;
};

static void check_cases(const struct op_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++)
        check_body(cases[i].ios, cases[i].body, "y", cases[i].expected);
}
#define CHECK(cases) check_cases(cases, sizeof(cases) / sizeof *(cases))

#define NAME "[name = string(\"o\")];\n"
#define F1 "tensor<fp32, [?]>"
#define F2 "tensor<fp32, [?, ?]>"
#define I1 "tensor<int32, [?]>"
#define B1 "tensor<bool, [?]>"
#define V123 "tensor<fp32, [3]>([1, 2, 3])"
#define M23 "tensor<fp32, [2, 3]>([[1, 2, 3], [4, 5, 6]])"
#define II(n, values) "tensor<int32, [" #n "]>([" values "])"
#define II0 "tensor<int32, [0]>([])"

static void test_unary(void **state)
{
    (void)state;
    static const struct op_case cases[] = {
        {15, F1 " y = abs(x = tensor<fp32, [3]>([-1, 0, 2]))" NAME, "3: 1 0 2"},
        {15, I1 " y = abs(x = " II(2, "-7, -2147483648") ")" NAME, "2: 7 -2147483648"},
        {15, I1 " y = sign(x = " II(3, "-7, 0, 3") ")" NAME, "3: -1 0 1"},
        {15, I1 " y = square(x = " II(2, "65536, 3") ")" NAME, "2: 0 9"},
        {15, F1 " y = round(x = tensor<fp32, [4]>([0.5, 1.5, 2.5, -0.5]))" NAME, "4: 0 2 2 -0"},
        {15, F1 " y = relu(x = tensor<fp32, [3]>([-1, nan, 2]))" NAME, "3: 0 nan 2"},
        {15, F1 " y = clip(x = " V123 ", alpha = fp32(1.5), beta = fp32(2.5))" NAME, "3: 1.5 2 2.5"},
        {15, F1 " y = inverse(x = " V123 ", epsilon = fp32(0))" NAME, "3: 1 0.5 0.333333"},
        {15, F1 " y = gelu(x = " V123 ")" NAME, "3: 0.841345 1.9545 2.99595"},
        {15, F1 " y = gelu(x = " V123 ", mode = string(\"TANH_APPROXIMATION\"))" NAME, "3: 0.841192 1.9546 2.99636"},
        {15, F1 " y = gelu(x = " V123 ", mode = string(\"SIGMOID_APPROXIMATION\"))" NAME,
         "3: 0.845796 1.93566 2.98193"},
        {15, F1 " y = gelu(x = " V123 ", mode = string(\"FAST\"))" NAME,
         "cannot run op: o (gelu, iOS15): parameter mode: expected EXACT, TANH_APPROXIMATION or SIGMOID_APPROXIMATION, "
         "found FAST"},
        {15, I1 " y = threshold(x = " II(2, "1, 5") ", alpha = int32(3))" NAME, "2: 3 5"},
        {15, F1 " y = softplus(x = tensor<fp32, [2]>([-100, 100]))" NAME, "2: 3.78351e-44 100"},
        {15, B1 " y = logical_not(x = tensor<bool, [2]>([true, false]))" NAME, "2: false true"},
        {15,
         "tensor<fp32, [1, 2, 1]> y = prelu(x = tensor<fp32, [1, 2, 1]>([[[-1], [-1]]]), alpha = tensor<fp32, "
         "[2]>([2, 3]))" NAME,
         "1x2x1: -2 -3"},
        {15,
         "tensor<fp32, [1, 2, 1]> y = prelu(x = tensor<fp32, [1, 2, 1]>([[[-1], [-1]]]), alpha = tensor<fp32, "
         "[1]>([2]))" NAME,
         "cannot run op: o (prelu, iOS15): parameter alpha: expected one value a channel of shape 1x2x1, found 1"},
        {15, F1 " y = relu(x = " II(1, "1") ")" NAME,
         "cannot run op: o (relu, iOS15): parameter x: expected floats, found integers"},
        {15, F1 " y = relu(z = " V123 ")" NAME,
         "cannot run op: o (relu, iOS15): parameter x: expected a value, found none"},
        {15, F1 " y = clip(x = " V123 ", alpha = " V123 ", beta = fp32(1))" NAME,
         "cannot run op: o (clip, iOS15): parameter alpha: expected one value, found 3"},
    };
    CHECK(cases);
}

static void test_cast(void **state)
{
    (void)state;
    static const struct op_case cases[] = {
        {15, I1 " y = cast(x = tensor<fp32, [5]>([1.9, -1.9, 3e9, -3e9, nan]), dtype = string(\"int32\"))" NAME,
         "5: 1 -1 2147483647 -2147483648 0"},
        {15, B1 " y = cast(x = tensor<fp32, [2]>([0.1, 0]), dtype = string(\"bool\"))" NAME, "2: true false"},
        {15, F1 " y = cast(x = tensor<bool, [2]>([true, false]), dtype = string(\"fp32\"))" NAME, "2: 1 0"},
        {15, I1 " y = cast(x = " V123 ", dtype = string(\"fp32\"))" NAME,
         "cannot run op: o (cast, iOS15): parameter dtype: expected the output's type int32, found fp32"},
    };
    CHECK(cases);
}

static void test_binary(void **state)
{
    (void)state;
    static const struct op_case cases[] = {
        {15, F2 " y = add(x = " M23 ", y = " V123 ")" NAME, "2x3: 2 4 6 5 7 9"},
        {15, F2 " y = sub(x = tensor<fp32, [2, 1]>([[1], [2]]), y = " V123 ")" NAME, "2x3: 0 -1 -2 1 0 -1"},
        {15, F1 " y = mul(x = fp32(2), y = " V123 ")" NAME, "3: 2 4 6"},
        {15, F1 " y = mul(x = tensor<fp32, [0]>([]), y = tensor<fp32, [1]>([3]))" NAME, "0:"},
        {15, F1 " y = maximum(x = tensor<fp32, [2]>([nan, 1]), y = tensor<fp32, [2]>([1, nan]))" NAME, "2: nan nan"},
        {15, I1 " y = real_div(x = " II(3, "10, -7, 5") ", y = " II(3, "11, 2, 0") ")" NAME, "3: 0 -3 0"},
        {15, I1 " y = floor_div(x = " II(4, "-7, 7, 5, -2147483648") ", y = " II(4, "2, -2, 0, -1") ")" NAME,
         "4: -4 -4 0 -2147483648"},
        {15, I1 " y = mod(x = " II(4, "-7, 7, 5, -2147483648") ", y = " II(4, "3, -3, 0, -1") ")" NAME, "4: 2 -2 0 0"},
        {15, F1 " y = mod(x = tensor<fp32, [2]>([-7, 7]), y = tensor<fp32, [2]>([3, -3]))" NAME, "2: 2 -2"},
        {15, F1 " y = floor_div(x = tensor<fp32, [2]>([-7, 1]), y = tensor<fp32, [2]>([2, 0]))" NAME, "2: -4 inf"},
        {15, I1 " y = pow(x = " II(4, "2, -1, 3, 0") ", y = " II(4, "10, -3, -1, 0") ")" NAME, "4: 1024 -1 0 1"},
        {15, I1 " y = add(x = " II(1, "2147483647") ", y = int32(1))" NAME, "1: -2147483648"},
        {15, B1 " y = less_equal(x = " V123 ", y = fp32(2))" NAME, "3: true true false"},
        {15, B1 " y = not_equal(x = tensor<fp32, [1]>([nan]), y = tensor<fp32, [1]>([nan]))" NAME, "1: true"},
        {15, B1 " y = logical_xor(x = tensor<bool, [2]>([true, false]), y = bool(true))" NAME, "2: false true"},
        {15, F2 " y = select(cond = tensor<bool, [2, 1]>([[true], [false]]), a = " V123 ", b = fp32(0))" NAME,
         "2x3: 1 2 3 0 0 0"},
        {15, F1 " y = add(x = " V123 ", y = tensor<fp32, [2]>([1, 2]))" NAME,
         "cannot run op: o (add, iOS15): operands: expected shapes that broadcast, found 3 and 2"},
        {15, F1 " y = add(x = " V123 ", y = int32(1))" NAME,
         "cannot run op: o (add, iOS15): operands: expected one type, found fp32 and int32"},
        {15, B1 " y = logical_and(x = " V123 ", y = " V123 ")" NAME,
         "cannot run op: o (logical_and, iOS15): parameter x: expected bools, found another type"},
        {15, F1 " y = select(cond = bool(true), a = string(\"a\"), b = string(\"b\"))" NAME,
         "cannot run op: o (select, iOS15): parameter a: expected numbers or bools, found strings or a list"},
    };
    CHECK(cases);
}

static void test_reduce(void **state)
{
    (void)state;
    static const struct op_case cases[] = {
        {15, "fp32 y = reduce_sum(x = " M23 ")" NAME, "scalar: 21"},
        {15, F1 " y = reduce_mean(x = " M23 ", axes = " II(1, "0") ")" NAME, "3: 2.5 3.5 4.5"},
        {15, F2 " y = reduce_max(x = " M23 ", axes = " II(1, "-1") ", keep_dims = bool(true))" NAME, "2x1: 3 6"},
        {15, F1 " y = reduce_log_sum_exp(x = " M23 ", axes = " II(1, "1") ")" NAME, "2: 3.40761 6.40761"},
        {15, F1 " y = reduce_l2_norm(x = " M23 ", axes = " II(1, "1") ")" NAME, "2: 3.74166 8.77496"},
        {15, "fp32 y = reduce_max(x = tensor<fp32, [3]>([1, nan, 2]))" NAME, "scalar: nan"},
        {15, "int32 y = reduce_prod(x = " II(3, "65536, 65536, 3") ")" NAME, "scalar: 0"},
        {15, "int32 y = reduce_mean(x = " II(2, "1, 2") ")" NAME, "scalar: 1"},
        {15, "int32 y = reduce_log_sum_exp(x = " II(2, "10, 10") ")" NAME, "scalar: 10"},
        {15, "fp32 y = reduce_sum(x = tensor<fp32, [0]>([]))" NAME, "scalar: 0"},
        {15, I1 " y = reduce_argmax(x = " M23 ")" NAME, "2: 2 2"},
        {15, I1 " y = reduce_argmin(x = tensor<fp32, [2, 2]>([[1, 1], [2, 0]]), axis = int32(0))" NAME, "2: 0 1"},
        {15, F1 " y = cumsum(x = " V123 ")" NAME, "3: 1 3 6"},
        {15, F1 " y = cumsum(x = " V123 ", exclusive = bool(true))" NAME, "3: 0 1 3"},
        {15, F1 " y = cumsum(x = " V123 ", reverse = bool(true))" NAME, "3: 6 5 3"},
        {15, F1 " y = cumsum(x = " V123 ", reverse = bool(true), exclusive = bool(true))" NAME, "3: 5 3 0"},
        {15, F1 " y = reduce_sum(x = " M23 ", axes = " II(1, "2") ")" NAME,
         "cannot run op: o (reduce_sum, iOS15): parameter axes: expected an axis of rank 2, found 2"},
        {15, F1 " y = reduce_sum(x = " M23 ", axes = " II(2, "1, -1") ")" NAME,
         "cannot run op: o (reduce_sum, iOS15): parameter axes: expected each axis once, found -1 twice"},
        {15, I1 " y = reduce_argmax(x = tensor<fp32, [2, 0]>([[], []]))" NAME,
         "cannot run op: o (reduce_argmax, iOS15): parameter x: expected numbers along the axis, found shape 2x0"},
        {15, "bool y = reduce_sum(x = tensor<bool, [1]>([true]))" NAME,
         "cannot run op: o (reduce_sum, iOS15): parameter x: expected numbers, found another type"},
    };
    CHECK(cases);
}

/* Sums of a middle axis, of several, wide enough for several blocks; every element against the plain definition. */
static void test_reduce_groups(void **state)
{
    (void)state;
    char body[400];
    for (uint32_t mask = 1; mask < 16; mask++) {
        size_t at = 0;
        char axes[64] = "", expected[64];
        for (uint32_t d = 0; d < 4; d++)
            if (mask >> d & 1)
                at += (size_t)snprintf(axes + at, sizeof axes - at, "%s%u", at ? ", " : "", d);
        const int n_axes = __builtin_popcount(mask);
        const size_t dims[] = {3, 2, 5, 70}, all = 3 * 2 * 5 * 70;
        snprintf(body, sizeof body,
                 "tensor<fp32, [3, 2, 5, 70]> x = fill(shape = tensor<int32, [4]>([3, 2, 5, 70]), value = fp32(1));\n"
                 "tensor<fp32, [3, 2, 5, 70]> s = cumsum(x = x, axis = int32(2));\n"
                 "tensor<fp32, [?, ?, ?, ?]> r = reduce_sum(x = s, axes = tensor<int32, [%d]>([%s]), keep_dims = "
                 "bool(true));\nfp32 y = reduce_max(x = r);\n",
                 n_axes, axes);
        size_t count = 1;
        for (uint32_t d = 0; d < 4; d++)
            count *= mask >> d & 1 ? dims[d] : 1;
        /* s is 1 … 5 along axis 2: the sum of it is 3 times the count, or 5 times where axis 2 stays. */
        snprintf(expected, sizeof expected, "scalar: %zu", count * (mask >> 2 & 1 ? 3 : 5));
        assert_true(count <= all);
        check_body(15, body, "y", expected);
    }
}

static void test_reshape(void **state)
{
    (void)state;
    static const struct op_case cases[] = {
        {15, F2 " y = reshape(x = " M23 ", shape = " II(2, "3, -1") ")" NAME, "3x2: 1 2 3 4 5 6"},
        {15, F2 " y = reshape(x = " M23 ", shape = " II(2, "0, -1") ")" NAME, "2x3: 1 2 3 4 5 6"},
        {17, "tensor<fp32, [?, ?, ?, ?]> y = reshape(x = " M23 ", shape = " II(4, "1, 0, -1, 0") ")" NAME,
         "1x1x2x3: 1 2 3 4 5 6"},
        {16, "tensor<fp32, [?, ?, ?, ?]> y = reshape(x = " M23 ", shape = " II(4, "1, 0, -1, 0") ")" NAME,
         "cannot run op: o (reshape, iOS16): parameter shape: expected as many sizes as x has dimensions (2) where one "
         "is 0, "
         "found 4"},
        {15, F1 " y = reshape(x = " M23 ", shape = " II(1, "7") ")" NAME,
         "cannot run op: o (reshape, iOS15): parameter shape: expected 6 elements as x of shape 2x3 has, found 7"},
        {15, F2 " y = reshape(x = " M23 ", shape = " II(2, "-1, -1") ")" NAME,
         "cannot run op: o (reshape, iOS15): parameter shape: expected sizes and at most one -1, found -1 at dimension "
         "1"},
        {15, F2 " y = reshape(x = " M23 ", shape = " II(2, "-1, 4") ")" NAME,
         "cannot run op: o (reshape, iOS15): parameter shape: expected 6 elements as x of shape 2x3 has, found 1x4"},
        {15, F2 " y = reshape(x = " M23 ")" NAME,
         "cannot run op: o (reshape, iOS15): parameter shape: expected a value, found none"},
        {15, F1 " y = reshape(x = " M23 ", shape = " II(9, "1, 1, 1, 1, 1, 1, 1, 1, 6") ")" NAME,
         "cannot run op: o (reshape, iOS15): parameter shape: expected a list of at most 8 integers, found shape 9"},
        {15, F1 " y = reshape(x = " M23 ", shape = " II(4, "2147483647, 2147483647, 2147483647, 2147483647") ")" NAME,
         "cannot run op: o (reshape, iOS15): parameter shape: expected sizes and at most one -1, found 2147483647 at "
         "dimension 2"},
        {16,
         F2 " y = reshape_like(x = " V123 ", ref_tensors = (" M23 ", " V123 "), begins = (int32(0), int32(0)), ends = "
            "(int32(0), int32(1)), end_masks = (bool(false), bool(true)))" NAME,
         "cannot run op: o (reshape_like, iOS16): output y: expected the declared shape ?x?, found 3"},
        {16,
         F1 " y = reshape_like(x = " V123 ", ref_tensors = (" M23 "), begins = (int32(1)), ends = (int32(2)), "
            "end_masks = (bool(false)))" NAME,
         "3: 1 2 3"},
        {15, "tensor<fp32, [?, ?, ?]> y = expand_dims(x = " V123 ", axes = " II(2, "0, -1") ")" NAME, "1x3x1: 1 2 3"},
        {15, F1 " y = squeeze(x = tensor<fp32, [1, 3, 1]>([[[1], [2], [3]]]))" NAME, "3: 1 2 3"},
        {15, F2 " y = squeeze(x = tensor<fp32, [1, 3, 1]>([[[1], [2], [3]]]), axes = " II(2, "0, 1") ")" NAME,
         "3x1: 1 2 3"},
        {15, F2 " y = flatten2d(x = " V123 ", axis = int32(-1))" NAME, "1x3: 1 2 3"},
        {15, F2 " y = flatten2d(x = " V123 ")" NAME, "3x1: 1 2 3"},
        {15, I1 " y = shape(x = " M23 ")" NAME, "2: 2 3"},
    };
    CHECK(cases);
}

static void test_slices(void **state)
{
    (void)state;
#define SLICE(begin, end, more)                                                                                        \
    "y = slice_by_index(x = " V123 ", begin = " II(1, begin) ", end = " II(1, end) more ")" NAME
#define MASK(name, value) ", " name " = tensor<bool, [1]>([" value "])"
    static const struct op_case cases[] = {
        {15, F1 SLICE("1", "3", ""), "2: 2 3"},
        {15, F1 SLICE("-2", "-1", ""), "1: 2"},
        {15, F1 SLICE("-9", "9", ""), "3: 1 2 3"},
        {15, F1 SLICE("2", "1", ""), "0:"},
        {15, F1 SLICE("0", "0", MASK("begin_mask", "true") MASK("end_mask", "true") ", stride = " II(1, "-2")),
         "2: 3 1"},
        {15, F1 SLICE("2", "-4", ", stride = " II(1, "-1")), "3: 3 2 1"},
        {15, "fp32 " SLICE("-1", "0", MASK("squeeze_mask", "true")), "scalar: 3"},
        {15, F1 "y = slice_by_index(x = tensor<fp32, [1]>([7]), begin = " II(1, "4") ", end = " II(1, "5") ")" NAME,
         "1: 7"},
        {15, F1 SLICE("0", "1", ", stride = " II(1, "0")),
         "cannot run op: o (slice_by_index, iOS15): parameter stride: expected strides other than 0, found 0 at "
         "dimension 0"},
        {15, "fp32 " SLICE("3", "0", MASK("squeeze_mask", "true")),
         "cannot run op: o (slice_by_index, iOS15): parameter begin: expected an index into 3 elements, found 3 at "
         "dimension "
         "0"},
        {15, F1 "y = slice_by_index(x = " V123 ", begin = " II(2, "0, 0") ", end = " II(1, "1") ")" NAME,
         "cannot run op: o (slice_by_index, iOS15): parameter begin: expected 1 integers, one a dimension of x, found "
         "2"},
        {15, F1 SLICE("0", "1", ", end_mask = tensor<bool, [2]>([true, true])"),
         "cannot run op: o (slice_by_index, iOS15): parameter end_mask: expected 1 bools, found 2"},
        {15, F1 "y = slice_by_size(x = " V123 ", begin = " II(1, "-2") ", size = " II(1, "-1") ")" NAME, "2: 2 3"},
        {15, F1 "y = slice_by_size(x = " V123 ", begin = " II(1, "2") ", size = " II(1, "2") ")" NAME,
         "cannot run op: o (slice_by_size, iOS15): parameter size: expected a part of 3 elements, found begin 2 and "
         "size 2 at "
         "dimension 0"},
        {18,
         F2 "y = slice_update(x = " M23 ", update = tensor<fp32, [1, 2]>([[8, 9]]), begin = " II(
             2, "1, 0") ", end = " II(2, "2, 3") ", stride = " II(2, "1, 2") ")" NAME,
         "2x3: 1 2 3 8 5 9"},
        {18,
         F2 "y = slice_update(x = " M23 ", update = " V123 ", begin = " II(2, "1, 0") ", end = " II(2, "2, 3") ")" NAME,
         "cannot run op: o (slice_update, iOS18): parameter update: expected the slice's shape 1x3, found 3"},
        {15, F2 "y = sliding_windows(x = " V123 ", axis = int32(0), size = int32(2))" NAME, "2x2: 1 2 2 3"},
        {15, F2 "y = sliding_windows(x = " V123 ", axis = int32(0), size = int32(4))" NAME,
         "cannot run op: o (sliding_windows, iOS15): parameter size: expected a window inside 3 elements, found size 4 "
         "and "
         "stride 1"},
    };
    CHECK(cases);
}

static void test_joins(void **state)
{
    (void)state;
    static const struct op_case cases[] = {
        {15, F1 "y = concat(values = (" V123 ", tensor<fp32, [1]>([9])), axis = int32(0))" NAME, "4: 1 2 3 9"},
        {15, F1 "y = concat(values = (fp32(1), fp32(2)), axis = int32(0))" NAME, "2: 1 2"},
        {15, F2 "y = concat(values = (" M23 ", " M23 "), axis = int32(1), interleave = bool(true))" NAME,
         "2x6: 1 1 2 2 3 3 4 4 5 5 6 6"},
        {15, F2 "y = concat(values = (" M23 ", " V123 "), axis = int32(1))" NAME,
         "cannot run op: o (concat, iOS15): parameter values: expected shapes that agree with 2x3, found 3"},
        {15, F2 "y = concat(axis = int32(1))" NAME,
         "cannot run op: o (concat, iOS15): parameter values: expected at least one tensor, found none"},
        {15, F2 "y = stack(values = (" V123 ", " V123 "), axis = int32(-1))" NAME, "3x2: 1 1 2 2 3 3"},
        {15, F2 "y = stack(axis = int32(1))" NAME,
         "cannot run op: o (stack, iOS15): parameter values: expected tensors of at most 7 dimensions, found none or "
         "more"},
        {15, F2 "z, " F2 "y = split(x = " M23 ", axis = int32(1), split_sizes = " II(2, "1, 2") ")" NAME,
         "2x2: 2 3 5 6"},
        {15, F2 "y, " F2 "z = split(x = " M23 ", axis = int32(0), num_splits = int32(2))" NAME, "1x3: 1 2 3"},
        {15, F2 "y, " F2 "z = split(x = " M23 ", axis = int32(1), num_splits = int32(2))" NAME,
         "cannot run op: o (split, iOS15): parameter num_splits: expected the 2 outputs' number that divides 3, found "
         "2"},
        {15, F2 "z, " F2 "y = split(x = " M23 ", axis = int32(1), split_sizes = " II(2, "2, 2") ")" NAME,
         "cannot run op: o (split, iOS15): parameter split_sizes: expected 2 sizes with the sum 3, found 2 with 4"},
    };
    CHECK(cases);
}

#define SPACE "tensor<fp32, [1, 1, 2, 4]>([[[[0, 1, 2, 3], [4, 5, 6, 7]]]])"
#define DEPTH "tensor<fp32, [1, 4, 1, 2]>([[[[0, 1]], [[2, 3]], [[4, 5]], [[6, 7]]]])"
#define F4 "tensor<fp32, [?, ?, ?, ?]>"

static void test_layout(void **state)
{
    (void)state;
    static const struct op_case cases[] = {
        {15, F2 "y = transpose(x = " M23 ", perm = " II(2, "-1, 0") ")" NAME, "3x2: 1 4 2 5 3 6"},
        {15, F2 "y = transpose(x = " M23 ", perm = " II(1, "0") ")" NAME,
         "cannot run op: o (transpose, iOS15): parameter perm: expected all 2 axes of x, found 1"},
        {15, F2 "y = tile(x = " M23 ", reps = " II(2, "1, 2") ")" NAME, "2x6: 1 2 3 1 2 3 4 5 6 4 5 6"},
        {15, F2 "y = tile(x = " M23 ", reps = " II(2, "1, -2") ")" NAME,
         "cannot run op: o (tile, iOS15): parameter reps: expected numbers from 1, found -2 at dimension 1"},
        {15, F2 "y = tile(x = " M23 ", reps = " II(1, "2") ")" NAME,
         "cannot run op: o (tile, iOS15): parameter reps: expected one a dimension of x (2), found 1"},
        {15, F2 "y = reverse(x = " M23 ")" NAME, "2x3: 6 5 4 3 2 1"},
        {15, F2 "y = reverse(x = " M23 ", axes = " II(1, "0") ")" NAME, "2x3: 4 5 6 1 2 3"},
        {15, F2 "y = reverse_sequence(x = " M23 ", lengths = " II(2, "2, 3") ", seq_axis = int32(1))" NAME,
         "2x3: 2 1 3 6 5 4"},
        {15, F2 "y = reverse_sequence(x = " M23 ", lengths = " II(2, "2, 4") ", seq_axis = int32(1))" NAME,
         "cannot run op: o (reverse_sequence, iOS15): parameter lengths: expected 0 to 3, found 4"},
        {15, F2 "y = reverse_sequence(x = " M23 ", lengths = " II(1, "2") ", seq_axis = int32(1))" NAME,
         "cannot run op: o (reverse_sequence, iOS15): parameter lengths: expected 2, one a batch, found 1"},
        {15, F4 "y = space_to_depth(x = " SPACE ", block_size = int32(2))" NAME, "1x4x1x2: 0 2 1 3 4 6 5 7"},
        {15, F4 "y = depth_to_space(x = " DEPTH ", block_size = int32(2))" NAME, "1x1x2x4: 0 2 1 3 4 6 5 7"},
        {15, F4 "y = pixel_shuffle(x = " DEPTH ", upscale_factor = int32(2))" NAME, "1x1x2x4: 0 2 1 3 4 6 5 7"},
        {16, F4 "y = pixel_unshuffle(x = " SPACE ", downscale_factor = uint32(2))" NAME, "1x4x1x2: 0 2 1 3 4 6 5 7"},
        {15, F4 "y = depth_to_space(x = " SPACE ", block_size = int32(2))" NAME,
         "cannot run op: o (depth_to_space, iOS15): parameter x: expected a multiple of 4 channels, found 1"},
        {15, F4 "y = space_to_depth(x = " SPACE ", block_size = int32(3))" NAME,
         "cannot run op: o (space_to_depth, iOS15): parameter x: expected a multiple of 3 rows and columns, found 2 "
         "and 4"},
        {15, F4 "y = space_to_depth(x = " SPACE ", block_size = int32(0))" NAME,
         "cannot run op: o (space_to_depth, iOS15): parameter block_size: expected a block size from 1 to 32768, found "
         "0"},
        {15, F4 "y = space_to_depth(x = " V123 ", block_size = int32(1))" NAME,
         "cannot run op: o (space_to_depth, iOS15): parameter x: expected four dimensions, found shape 3"},
        {15,
         F4 "y = space_to_batch(x = " SPACE
            ", block_shape = " II(2, "1, 2") ", paddings = tensor<int32, [2, 2]>([[0, 0], [1, 1]]))" NAME,
         "2x1x2x3: 0 1 3 0 5 7 0 2 0 4 6 0"},
        {15,
         F4 "y = space_to_batch(x = " SPACE
            ", block_shape = " II(2, "1, 2") ", paddings = tensor<int32, [2, 2]>([[0, 0], [1, 0]]))" NAME,
         "cannot run op: o (space_to_batch, iOS15): parameter paddings: expected a padded space of whole blocks, found "
         "2x5"},
        {15,
         F4 "y = batch_to_space(x = tensor<fp32, [2, 1, 1, 2]>([[[[0, 1]]], [[[2, 3]]]]), block_shape = " II(
             2, "1, 2") ", crops = tensor<int32, [2, 2]>([[0, 0], [0, 1]]))" NAME,
         "1x1x1x3: 0 2 1"},
        {15,
         F4 "y = batch_to_space(x = " SPACE
            ", block_shape = " II(2, "1, 2") ", crops = tensor<int32, [2, 2]>([[0, 0], [0, 1]]))" NAME,
         "cannot run op: o (batch_to_space, iOS15): parameter crops: expected whole blocks and crops inside 2x8, found "
         "others"},
        {15,
         F4 "y = batch_to_space(x = " SPACE
            ", block_shape = " II(2, "1, -2") ", crops = tensor<int32, [2, 2]>([[0, 0], [0, 1]]))" NAME,
         "cannot run op: o (batch_to_space, iOS15): parameter block_shape: expected four dimensions, two block sizes "
         "and four "
         "crops that are not negative, found others"},
    };
    CHECK(cases);
}

static void test_fill(void **state)
{
    (void)state;
    static const struct op_case cases[] = {
        {15, F2 "y = fill(shape = " II(2, "1, 2") ", value = fp32(7))" NAME, "1x2: 7 7"},
        {15, "fp32 y = fill(shape = " II0 ", value = fp32(7))" NAME, "scalar: 7"},
        {15, F1 "y = fill(shape = " II(1, "-1") ", value = fp32(7))" NAME,
         "cannot run op: o (fill, iOS15): parameter shape: expected sizes, found -1 at dimension 0"},
        {15, F1 "y = fill(value = fp32(7))" NAME,
         "cannot run op: o (fill, iOS15): parameter shape: expected a value, found none"},
        {16, B1 "y = fill_like(ref_tensor = " V123 ", value = bool(true))" NAME, "3: true true true"},
        {15, F1 "y = range_1d(start = fp32(0), end = fp32(1), step = fp32(0.4))" NAME, "3: 0 0.4 0.8"},
        {15, I1 "y = range_1d(start = int32(5), end = int32(0), step = int32(-2))" NAME, "3: 5 3 1"},
        {15, I1 "y = range_1d(start = int32(5), end = int32(0), step = int32(2))" NAME, "0:"},
        {15, I1 "y = range_1d(start = int32(0), end = int32(1), step = int32(0))" NAME,
         "cannot run op: o (range_1d, iOS15): range: expected a finite number of steps, found 0 to 1 by 0"},
        {15, F1 "y = range_1d(start = fp32(0), end = fp32(inf), step = fp32(1))" NAME,
         "cannot run op: o (range_1d, iOS15): range: expected a finite number of steps, found 0 to inf by 1"},
        {15, "tensor<int32, [?, ?]> y = one_hot(indices = " II(2, "1, 3") ", one_hot_vector_size = int32(3))" NAME,
         "2x3: 0 1 0 0 0 0"},
        {15,
         F2 "y = one_hot(indices = " II(
             2, "1, 0") ", one_hot_vector_size = int32(2), axis = int32(0), on_value = fp32(5), "
                        "off_value = fp32(1))" NAME,
         "2x2: 1 5 5 1"},
        {15, F2 "y = one_hot(indices = " II(2, "1, 0") ", one_hot_vector_size = int32(-2))" NAME,
         "cannot run op: o (one_hot, iOS15): parameter one_hot_vector_size: expected a size, found -2"},
        {15, "tensor<int32, [?, ?]> y = non_zero(x = tensor<fp32, [2, 2]>([[0, 1], [2, 0]]))" NAME, "2x2: 0 1 1 0"},
        {15, F2 "y = band_part(x = " M23 ", lower = int32(0), upper = int32(1))" NAME, "2x3: 1 2 0 0 5 6"},
        {15, F1 "y = band_part(x = " V123 ")" NAME,
         "cannot run op: o (band_part, iOS15): parameter x: expected matrices, found shape 3"},
        {15, F1 "y = pad(x = " V123 ", pad = " II(2, "1, 2") ", constant_val = fp32(9))" NAME, "6: 9 1 2 3 9 9"},
        {15, F1 "y = pad(x = " V123 ", pad = " II(2, "2, 2") ", mode = string(\"reflect\"))" NAME, "7: 3 2 1 2 3 2 1"},
        {15, F1 "y = pad(x = " V123 ", pad = " II(2, "2, 1") ", mode = string(\"replicate\"))" NAME, "6: 1 1 1 2 3 3"},
        {15, F2 "y = pad(x = " M23 ", pad = " II(4, "1, 0, 0, 1") ")" NAME, "3x4: 0 0 0 0 1 2 3 0 4 5 6 0"},
        {15,
         "tensor<fp32, [?, ?, ?]> y = pad(x = tensor<fp32, [2, 2, 1]>([[[1], [2]], [[3], [4]]]), pad = " II(
             6, "1, 0, 0, 1, 0, 0") ")" NAME,
         "3x3x1: 0 0 0 1 2 0 3 4 0"},
        {15,
         "tensor<fp32, [?, ?, ?]> y = pad(x = tensor<fp32, [1, 3, 1]>([[[1], [2], [3]]]), pad = " II(
             6, "1, 0, 1, 1, 0, 1") ", mode = string(\"replicate\"))" NAME,
         "2x5x2: 1 1 1 1 2 2 3 3 3 3 1 1 1 1 2 2 3 3 3 3"},
        {15, F1 "y = pad(x = " V123 ", pad = " II(2, "2, -1") ")" NAME,
         "cannot run op: o (pad, iOS15): parameter pad: expected numbers from 0, found 2 and -1 at dimension 0"},
        {15, F1 "y = pad(x = " V123 ", pad = " II(1, "2") ")" NAME,
         "cannot run op: o (pad, iOS15): parameter pad: expected two a dimension of at most 1, found 1"},
        {15, F1 "y = pad(x = " V123 ", pad = " II(2, "2, 1") ", mode = string(\"wrap\"))" NAME,
         "cannot run op: o (pad, iOS15): parameter mode: expected constant, reflect or replicate, found wrap"},
    };
    CHECK(cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unary),  cmocka_unit_test(test_cast),          cmocka_unit_test(test_binary),
        cmocka_unit_test(test_reduce), cmocka_unit_test(test_reduce_groups), cmocka_unit_test(test_reshape),
        cmocka_unit_test(test_slices), cmocka_unit_test(test_joins),         cmocka_unit_test(test_layout),
        cmocka_unit_test(test_fill),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
