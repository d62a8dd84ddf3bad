/* Messages that need a program which lies about its types or asks for what cannot be. */
#include "unit/eval_test.h"

struct op_case {
    int ios;
    const char *body, *expected;
};

#define NAME "[name = string(\"o\")];\n"
#define F1 "tensor<fp32, [?]> "
#define I1 "tensor<int32, [?]> "
#define V12 "tensor<fp32, [2]>([1, 2])"
#define I01 "tensor<int32, [2]>([0, 1])"
#define B1 "tensor<bool, [1]>([true])"
#define R5 "tensor<fp32, [1, 1, 1, 1, 1]>([[[[[1]]]]])"
#define J5 "tensor<int32, [1, 1, 1, 1, 1]>([[[[[0]]]]])"

static void test_declared_types(void **state)
{
    (void)state;
    static const struct op_case cases[] = {
        {15, F1 "y = reduce_argmax(x = " V12 ", keep_dims = bool(true))" NAME,
         "cannot run op: o (reduce_argmax, iOS15): output y: expected floats as declared, found integers"},
        {15, F1 "y = shape(x = " V12 ")" NAME,
         "cannot run op: o (shape, iOS15): output y: expected floats as declared, found integers"},
        {15, F1 "y = argsort(x = " V12 ")" NAME,
         "cannot run op: o (argsort, iOS15): output y: expected floats as declared, found integers"},
        {15, I1 "y, " I1 "z = topk(x = " V12 ")" NAME,
         "cannot run op: o (topk, iOS15): output y: expected integers as declared, found floats"},
        {15, I1 "y = random_normal(shape = " I01 ")" NAME,
         "cannot run op: o (random_normal, iOS15): output y: expected the declared shape ?, found 0x1"},
        {15, "tensor<int32, [?, ?]> y = random_normal(shape = " I01 ")" NAME,
         "cannot run op: o (random_normal, iOS15): output y: expected integers as declared, found floats"},
        {15, "tensor<bool, [?]> y = random_categorical(x = " V12 ")" NAME,
         "cannot run op: o (random_categorical, iOS15): output: expected it declared as numbers, found another type"},
        {15, "list<" F1 ", ?> a = make_list();\nfp32 y = list_length(ls = a)" NAME,
         "cannot run op: o (list_length, iOS15): output y: expected floats as declared, found integers"},
        {15, "string y = fill(shape = " I01 ")" NAME,
         "cannot run op: o (fill, iOS15): output y: expected the declared shape scalar, found 0x1"},
        {15, "tensor<string, [?, ?]> y = fill(shape = " I01 ")" NAME,
         "cannot run op: o (fill, iOS15): output: expected numbers or bools, found strings or a list"},
        {15, "list<" F1 ", ?> y = abs(x = " V12 ")" NAME,
         "cannot run op: o (abs, iOS15): output y: expected the declared shape scalar, found 2"},
        {15, F1 "y = make_list()" NAME,
         "cannot run op: o (make_list, iOS15): output y: expected a value of the declared kind, found another"},
        {15, "int32 y = classify(probabilities = " V12 ", classes = list<string, 2>((\"a\", \"b\")))" NAME,
         "cannot run op: o (classify, iOS15): output y: expected integers as declared, found strings"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_body(cases[i].ios, cases[i].body, "y", cases[i].expected);
}

/* An op that writes floats into an output declared as bools would write past its end: every way of making an output. */
static void test_outputs_of_another_form(void **state)
{
    (void)state;
#define M23 "tensor<fp32, [2, 3]>([[0, 1, 2], [3, 4, 5]])"
#define X24 "tensor<fp32, [1, 1, 2, 4]>([[[[0, 1, 2, 3], [4, 5, 6, 7]]]])"
#define J2 "tensor<int32, [2]>([0, 1])"
    static const struct {
        int rank;
        const char *op, *found;
    } cases[] = {
        {2, "relu(x = " M23 ")", "floats"},
        {2, "add(x = " M23 ", y = " M23 ")", "floats"},
        {2, "select(cond = bool(true), a = " M23 ", b = " M23 ")", "floats"},
        {2, "softmax(x = " M23 ")", "floats"},
        {2, "cumsum(x = " M23 ")", "floats"},
        {2, "reduce_sum(x = " M23 ", keep_dims = bool(true))", "floats"},
        {2, "transpose(x = " M23 ", perm = tensor<int32, [2]>([1, 0]))", "floats"},
        {2, "tile(x = " M23 ", reps = tensor<int32, [2]>([1, 2]))", "floats"},
        {2, "reverse(x = " M23 ")", "floats"},
        {2, "band_part(x = " M23 ")", "floats"},
        {2, "pad(x = " M23 ", pad = " J2 ")", "floats"},
        {2, "gather(x = " M23 ", indices = " J2 ")", "floats"},
        {2, "gather_nd(x = " M23 ", indices = tensor<int32, [2, 1]>([[0], [1]]))", "floats"},
        {2, "gather_along_axis(x = " M23 ", indices = tensor<int32, [1, 3]>([[0, 0, 0]]))", "floats"},
        {2, "scatter(data = " M23 ", indices = " J2 ", updates = " M23 ")", "floats"},
        {2, "slice_by_index(x = " M23 ", begin = tensor<int32, [2]>([0, 0]), end = tensor<int32, [2]>([2, 3]))",
         "floats"},
        {2, "concat(values = (" M23 ", " M23 "), axis = int32(0), interleave = bool(false))", "floats"},
        {3, "stack(values = (" M23 ", " M23 "), axis = int32(0))", "floats"},
        {3, "sliding_windows(x = " M23 ", axis = int32(1), size = int32(2))", "floats"},
        {2, "reshape(x = " M23 ", shape = tensor<int32, [2]>([3, 2]))", "floats"},
        {2, "topk(x = " M23 ")", "floats"},
        {1, "range_1d(start = int32(0), end = int32(50), step = int32(1))", "integers"},
        {2, "non_zero(x = " M23 ")", "integers"},
        {4, "depth_to_space(x = " X24 ", block_size = int32(1))", "floats"},
        {4,
         "space_to_batch(x = " X24
         ", block_shape = tensor<int32, [2]>([1, 1]), paddings = tensor<int32, [2, 2]>([[0, 0], [0, 0]]))",
         "floats"},
        {4, "conv(x = " X24 ", weight = tensor<fp32, [1, 1, 1, 1]>([[[[1]]]]))", "floats"},
        {4, "max_pool(x = " X24 ", kernel_sizes = tensor<int32, [2]>([1, 1]), pad_type = string(\"valid\"))", "floats"},
        {4, "instance_norm(x = " X24 ")", "floats"},
        {4, "upsample_nearest_neighbor(x = " X24 ")", "floats"},
    };
    static const char *const declared[] = {"", "?", "?, ?", "?, ?, ?", "?, ?, ?, ?"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[600], expected[200];
        const int n = (int)strcspn(cases[i].op, "(");
        (void)snprintf(body, sizeof body, "tensor<bool, [%s]> y = %s" NAME, declared[cases[i].rank], cases[i].op);
        (void)snprintf(expected, sizeof expected,
                       "cannot run op: o (%.*s, iOS15): output y: expected bools as declared, found %s", n, cases[i].op,
                       cases[i].found);
        check_body(15, body, "y", expected);
    }
}

static void test_operands(void **state)
{
    (void)state;
    static const struct op_case cases[] = {
        {15, I1 "y = argsort(x = " B1 ")" NAME,
         "cannot run op: o (argsort, iOS15): parameter x: expected numbers, at most 2^31 along the axis, found shape "
         "1"},
        {15, "tensor<bool, [?]> y = cumsum(x = " B1 ")" NAME,
         "cannot run op: o (cumsum, iOS15): parameter x: expected numbers, found another type"},
        {15, "fp32 y = cast(x = string(\"1\"), dtype = string(\"fp32\"))" NAME,
         "cannot run op: o (cast, iOS15): parameter x: expected numbers or bools, found strings or a list"},
        {15, "tensor<int32, [?, ?]> y = non_zero(x = string(\"1\"))" NAME,
         "cannot run op: o (non_zero, iOS15): parameter x: expected numbers or bools, found strings or a list"},
        {15, F1 "y = pad(x = " V12 ", pad = " I01 ", constant_val = " V12 ")" NAME,
         "cannot run op: o (pad, iOS15): parameter constant_val: expected one value, found 2"},
        {15, F1 "y = expand_dims(x = " V12 ")" NAME,
         "cannot run op: o (expand_dims, iOS15): parameter axes: expected axes of at most 8 dimensions, found none or "
         "too many"},
        {15, F1 "y = gather(x = " R5 ", indices = " J5 ")" NAME,
         "cannot run op: o (gather, iOS15): output: expected at most 8 dimensions, found more"},
        {15, F1 "y = gather_nd(x = " R5 ", indices = tensor<int32, [1, 1, 1, 1, 1, 1]>([[[[[[0]]]]]]))" NAME,
         "cannot run op: o (gather_nd, iOS15): output: expected at most 8 dimensions, found more"},
        {16, F1 "y = reshape_like(x = " V12 ", ref_tensors = (" V12 "))" NAME,
         "cannot run op: o (reshape_like, iOS16): parameter begins: expected a value for each of ref_tensors, found "
         "none for "
         "number 0"},
        {16,
         F1 "y = reshape_like(x = " V12 ", ref_tensors = (" R5 ", " R5
            "), begins = (int32(0), int32(0)), ends = (int32(0), "
            "int32(0)), end_masks = (bool(true), bool(true)))" NAME,
         "cannot run op: o (reshape_like, iOS16): output: expected at most 8 dimensions, found more"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_body(cases[i].ios, cases[i].body, "y", cases[i].expected);
}

static void check_state_error(const char *text, const char *expected)
{
    struct teg_error err = {0};
    struct teg_eval_state *s = NULL;
    struct teg_mil_program *const p = parse_program(text, &err);
    assert_int_equal(teg_eval_state_new(p, NULL, &s, &err), TEG_ERR_FORMAT);
    assert_string_equal(err.message, expected);
    teg_mil_free(p);
}

#define WITH_STATE(name, type) "func " name "<ios18>(state<" type "> s, fp32 x) { fp32 y = abs(x = x); } -> (y);\n"

static void test_states(void **state)
{
    (void)state;
    check_state_error("program(1.3)\n{\n" WITH_STATE("main", "tensor<fp16, [2]>")
                          WITH_STATE("b", "tensor<fp16, [3]>") "}\n",
                      "cannot make state: s: expected one type in all functions, found two");
    check_state_error("program(1.3)\n{\n" WITH_STATE("main", "tensor<string, [2]>") "}\n",
                      "cannot make state: s: expected numbers of a known rank");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_declared_types),
        cmocka_unit_test(test_outputs_of_another_form),
        cmocka_unit_test(test_operands),
        cmocka_unit_test(test_states),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
