/* Windows: the arithmetic of padding as published, convolutions of random geometry against plain loops in double, and
 * every message. */
#include "unit/eval_test.h"

#include <math.h>

#include "eval/window.h"

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
#define F3 "tensor<fp32, [?, ?, ?]>"
#define X5 "tensor<fp32, [1, 1, 5]>([[[1, 2, 3, 4, 5]]])"
#define X6 "tensor<fp32, [1, 1, 6]>([[[1, 2, 3, 4, 5, 6]]])"
#define W3 "tensor<fp32, [1, 1, 3]>([[[1, 1, 1]]])"
#define W2 "tensor<fp32, [1, 1, 2]>([[[1, 10]]])"
#define ONE(v) "tensor<int32, [1]>([" v "])"
#define TWO(v) "tensor<int32, [2]>([" v "])"
#define SAME "pad_type = string(\"same\")"
#define LOWER "pad_type = string(\"same_lower\")"
#define CUSTOM "pad_type = string(\"custom\")"

static void test_conv_padding(void **state)
{
    (void)state;
    static const struct op_case cases[] = {
        {15, F3 " y = conv(x = " X5 ", weight = " W3 ")" NAME, "1x1x3: 6 9 12"},
        {15, F3 " y = conv(x = " X5 ", weight = " W3 ", " SAME ")" NAME, "1x1x5: 3 6 9 12 9"},
        /* an odd amount: behind with same, in front with same_lower */
        {15, F3 " y = conv(x = " X5 ", weight = " W2 ", " SAME ")" NAME, "1x1x5: 21 32 43 54 5"},
        {16, F3 " y = conv(x = " X5 ", weight = " W2 ", " LOWER ")" NAME, "1x1x5: 10 21 32 43 54"},
        {15, F3 " y = conv(x = " X5 ", weight = " W2 ", " SAME ", strides = " ONE("2") ")" NAME, "1x1x3: 21 43 5"},
        {15, F3 " y = conv(x = " X5 ", weight = " W3 ", " CUSTOM ", pad = " TWO("2, 0") ")" NAME, "1x1x5: 1 3 6 9 12"},
        {15, F3 " y = conv(x = " X5 ", weight = " W2 ", dilations = " ONE("3") ")" NAME, "1x1x2: 41 52"},
        {15, F3 " y = conv(x = " X5 ", weight = " W2 ", bias = tensor<fp32, [1]>([0.5]))" NAME,
         "1x1x4: 21.5 32.5 43.5 54.5"},
    };
    CHECK(cases);
}

static void test_conv_messages(void **state)
{
    (void)state;
    static const struct op_case cases[] = {
        {15, F3 " y = conv(x = " X5 ", weight = " W3 ", groups = int32(2))" NAME,
         "cannot run op: o (conv, iOS15): parameter groups: expected a divisor of 1 output channels with 1 channels of "
         "weights times groups in x, found 2 groups for 1 channels"},
        {15, F3 " y = conv(x = " X5 ", weight = tensor<fp32, [1]>([1]))" NAME,
         "cannot run op: o (conv, iOS15): parameter weight: expected the rank of x, from 3 to 5, found shapes 1 and "
         "1x1x5"},
        {15, F3 " y = conv(x = " X5 ", weight = " W3 ", bias = tensor<fp32, [2]>([1, 2]))" NAME,
         "cannot run op: o (conv, iOS15): parameter bias: expected shape 1, found 2"},
        {15, F3 " y = conv(x = " X5 ", weight = " W3 ", pad_type = string(\"full\"))" NAME,
         "cannot run op: o (conv, iOS15): parameter pad_type: expected valid, custom, same or same_lower, found "
         "\"full\""},
        {15, F3 " y = conv(x = " X5 ", weight = " W3 ", " CUSTOM ", pad = " ONE("2") ")" NAME,
         "cannot run op: o (conv, iOS15): parameter pad: expected 2 values, two a spatial dimension, found 1"},
        {15, F3 " y = conv(x = " X5 ", weight = " W3 ", " CUSTOM ", pad = " TWO("2, -1") ")" NAME,
         "cannot run op: o (conv, iOS15): parameter pad: expected values from 0 on, found -1"},
        {15, F3 " y = conv(x = " X5 ", weight = " W3 ", strides = " ONE("0") ")" NAME,
         "cannot run op: o (conv, iOS15): parameter strides: expected values from 1 on, found 0"},
        {15, F3 " y = conv(x = " X5 ", weight = " W3 ", strides = " TWO("1, 1") ")" NAME,
         "cannot run op: o (conv, iOS15): parameter strides: expected 1 values, one a spatial dimension, found 2"},
        {15, F3 " y = conv(x = " X5 ", weight = " W3 ", dilations = " ONE("3") ")" NAME,
         "cannot run op: o (conv, iOS15): kernel: expected at most the padded input of 5 elements, found 7"},
        {15, F3 " y = conv(x = " X5 ", weight = tensor<fp32, [1, 1, 0]>([[[]]]))" NAME,
         "cannot run op: o (conv, iOS15): kernel: expected sizes from 1 to 2147483647 over space of as much, found 0 "
         "over "
         "5"},
        {15, F3 " y = conv(x = " X5 ", weight = " W3 ", dilations = " ONE("2147483647") ")" NAME,
         "cannot run op: o (conv, iOS15): kernel: expected at most the padded input of 5 elements, found 4294967295"},
        {15,
         "tensor<fp32, [?, ?]> y = conv(x = tensor<fp32, [1, 2]>([[1, 2]]), weight = tensor<fp32, [1, 2]>([[1, "
         "2]]))" NAME,
         "cannot run op: o (conv, iOS15): parameter weight: expected the rank of x, from 3 to 5, found shapes 1x2 and "
         "1x2"},
    };
    CHECK(cases);
}

static void test_conv_transpose(void **state)
{
    (void)state;
#define X2 "tensor<fp32, [1, 1, 2]>([[[1, 2]]])"
#define OUT(v) "output_shape = tensor<int32, [3]>([" v "])"
    static const struct op_case cases[] = {
        {15, F3 " y = conv_transpose(x = " X2 ", weight = " W2 ")" NAME, "1x1x3: 1 12 20"},
        {15, F3 " y = conv_transpose(x = " X2 ", weight = " W2 ", strides = " ONE("3") ")" NAME, "1x1x5: 1 10 0 2 20"},
        {15, F3 " y = conv_transpose(x = " X2 ", weight = " W2 ", dilations = " ONE("2") ")" NAME, "1x1x4: 1 2 10 20"},
        {15, F3 " y = conv_transpose(x = " X2 ", weight = " W2 ", " CUSTOM ", pad = " TWO("1, 0") ")" NAME,
         "1x1x2: 12 20"},
        {15, F3 " y = conv_transpose(x = " X2 ", weight = " W3 ", " SAME ", strides = " ONE("2") ")" NAME,
         "1x1x4: 1 1 3 2"},
        {15, F3 " y = conv_transpose(x = " X2 ", weight = " W3 ", " LOWER ", strides = " ONE("2") ")" NAME,
         "1x1x4: 1 3 2 2"},
        {15, F3 " y = conv_transpose(x = " X2 ", weight = " W2 ", " OUT("1, 1, 5") ")" NAME, "1x1x5: 1 12 20 0 0"},
        {15,
         F3 " y = conv_transpose(x = " X2 ", weight = " W2
            ", " OUT("1, 1, 2") ", bias = tensor<fp32, [1]>([100]))" NAME,
         "1x1x2: 101 112"},
        {15, F3 " y = conv_transpose(x = " X2 ", weight = " W2 ", " OUT("1, 1, -2") ")" NAME,
         "cannot run op: o (conv_transpose, iOS15): parameter output_shape: expected sizes from 0 on, found -2"},
        {15, F3 " y = conv_transpose(x = " X2 ", weight = " W2 ", output_shape = " TWO("1, 1") ")" NAME,
         "cannot run op: o (conv_transpose, iOS15): parameter output_shape: expected 3 values, found 2"},
        {15, F3 " y = conv_transpose(x = " X2 ", weight = " W2 ", " CUSTOM ", pad = " TWO("2, 2") ")" NAME,
         "cannot run op: o (conv_transpose, iOS15): parameter pad: expected at most the output of 3 elements, found 4"},
        {15, F3 " y = conv_transpose(x = " X2 ", weight = " W2 ", groups = int32(3))" NAME,
         "cannot run op: o (conv_transpose, iOS15): parameter groups: expected a divisor of 1 channels, found 3"},
        {15, F3 " y = conv_transpose(x = " X2 ", weight = tensor<fp32, [2, 1, 1]>([[[1]], [[1]]]))" NAME,
         "cannot run op: o (conv_transpose, iOS15): parameter weight: expected [channels of x, out / groups, kernel…], "
         "found shapes 2x1x1 and 1x1x2"},
        {15, F3 " y = conv_transpose(x = " X2 ", weight = " W2 ", bias = tensor<fp32, [2]>([1, 2]))" NAME,
         "cannot run op: o (conv_transpose, iOS15): parameter bias: expected shape 1, found 2"},
    };
    CHECK(cases);
}

static void test_pool(void **state)
{
    (void)state;
#define K(v) "kernel_sizes = " ONE(v)
#define VALID "pad_type = string(\"valid\")"
#define CEIL "ceil_mode = bool(true)"
#define EXCLUDE "exclude_padding_from_average = bool(true)"
    static const struct op_case cases[] = {
        {15, F3 " y = max_pool(x = " X6 ", " K("3") ", strides = " ONE("2") ", " VALID ")" NAME, "1x1x2: 3 5"},
        {15, F3 " y = max_pool(x = " X6 ", " K("3") ", strides = " ONE("2") ", " VALID ", " CEIL ")" NAME,
         "1x1x3: 3 5 6"},
        {15, F3 " y = avg_pool(x = " X6 ", " K("3") ", strides = " ONE("2") ", " VALID ", " CEIL ")" NAME,
         "1x1x3: 2 4 5.5"},
        /* a window that would start in the trailing padding is left out */
        {15,
         F3 " y = max_pool(x = " X6 ", " K("2") ", strides = " ONE("3") ", " CUSTOM ", pad = " TWO("1, 1") ", " CEIL
                                                                                                           ")" NAME,
         "1x1x3: 1 4 6"},
        {15, F3 " y = avg_pool(x = " X5 ", " K("3") ", " SAME ")" NAME, "1x1x5: 1 2 3 4 3"},
        {15, F3 " y = avg_pool(x = " X5 ", " K("3") ", " SAME ", " EXCLUDE ")" NAME, "1x1x5: 1.5 2 3 4 4.5"},
        {15, F3 " y = avg_pool(x = " X5 ", " K("2") ", " SAME ")" NAME, "1x1x5: 1.5 2.5 3.5 4.5 2.5"},
        {16, F3 " y = avg_pool(x = " X5 ", " K("2") ", " LOWER ")" NAME, "1x1x5: 0.5 1.5 2.5 3.5 4.5"},
        {15, F3 " y = l2_pool(x = tensor<fp32, [1, 1, 3]>([[[3, 4, 0]]]), " K("2") ", " VALID ")" NAME, "1x1x2: 5 4"},
        {15, F3 " y = max_pool(x = tensor<fp32, [1, 1, 3]>([[[1, nan, 0]]]), " K("2") ", " VALID ")" NAME,
         "1x1x2: nan nan"},
        {15, F3 " y = max_pool(x = " X5 ", " K("1") ", " CUSTOM ", pad = " TWO("1, 0") ")" NAME,
         "1x1x6: -inf 1 2 3 4 5"},
        /* a kernel far beyond the input costs nothing */
        {15,
         F3 " y = max_pool(x = " X5 ", " K("1000000005") ", " CUSTOM ", pad = " TWO("500000000, 500000001") ")" NAME,
         "1x1x2: 5 5"},
        {15, F3 " y = max_pool(x = " X5 ", " K("0") ", " VALID ")" NAME,
         "cannot run op: o (max_pool, iOS15): parameter kernel_sizes: expected values from 1 on, found 0"},
        {15, F3 " y = max_pool(x = " X5 ", kernel_sizes = " TWO("1, 1") ", " VALID ")" NAME,
         "cannot run op: o (max_pool, iOS15): parameter kernel_sizes: expected one value for each spatial dimension of "
         "x "
         "(1x1x5), found 2"},
    };
    CHECK(cases);
}

/* [H, 1] and [1, H] give the same: windows are laid along the longer run. */
static void test_flatten(void **state)
{
    (void)state;
    struct teg_window w = {.rank = 2,
                           .in = {1, 7, 1},
                           .out = {1, 4, 1},
                           .kernel = {1, 2, 1},
                           .stride = {1, 2, 5},
                           .dilation = {1, 1, 1},
                           .before = {0, 1, 0}};
    teg_window_flatten(&w);
    assert_int_equal(w.in[2], 7);
    assert_int_equal(w.in[1], 1);
    assert_int_equal(w.stride[2], 2);
    assert_int_equal(w.before[2], 1);
    w.in[2] = 1;
    teg_window_flatten(&w); /* out is not 1: stays */
    assert_int_equal(w.out[2], 4);
}

/* ---- random geometry against plain loops ---- */

static uint32_t seed = 1;

static uint32_t draw(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

struct geometry {
    uint32_t rank;
    size_t n, c_in, c_out, groups, in[3], kernel[3], stride[3], dilation[3], before[3], after[3], out[3];
};

/* Padding for missing dims is written as ones: loops are always three deep. */
static struct geometry random_geometry(bool transposed)
{
    struct geometry g = {.rank = 1 + draw(3), .n = 1 + draw(2), .groups = 1 + draw(3)};
    const size_t in_group = 1 + draw(3) * draw(6), out_group = 1 + draw(3) * draw(6);
    g.c_in = in_group * g.groups;
    g.c_out = out_group * g.groups;
    for (uint32_t d = 0; d < 3; d++) {
        const bool used = d + g.rank >= 3;
        g.kernel[d] = used ? 1 + draw(4) : 1;
        g.stride[d] = used ? 1 + draw(3) : 1;
        g.dilation[d] = used ? 1 + draw(2) : 1;
        const size_t extent = (g.kernel[d] - 1) * g.dilation[d] + 1;
        g.in[d] = used ? extent + draw(g.rank == 1 ? 90 : 9) : 1;
        g.before[d] = used ? draw((uint32_t)extent) : 0;
        g.after[d] = used ? draw((uint32_t)extent) : 0;
        if (!transposed)
            g.out[d] = (g.in[d] + g.before[d] + g.after[d] - extent) / g.stride[d] + 1;
        else
            g.out[d] = (g.in[d] - 1) * g.stride[d] + extent - g.before[d] - g.after[d];
    }
    return g;
}

static size_t at3(const size_t dims[3], const size_t i[3])
{
    return (i[0] * dims[1] + i[1]) * dims[2] + i[2];
}

static void spread(size_t flat, const size_t dims[3], size_t i[3])
{
    i[2] = flat % dims[2];
    i[1] = flat / dims[2] % dims[1];
    i[0] = flat / dims[2] / dims[1];
}

/* Sum of x · w over every (output, tap) pair, into y; which of the two is the input depends on `transposed`. */
static void naive(const struct geometry *g, bool transposed, const float *x, const float *w, double *y)
{
    const size_t in_n = g->in[0] * g->in[1] * g->in[2], out_n = g->out[0] * g->out[1] * g->out[2];
    const size_t taps = g->kernel[0] * g->kernel[1] * g->kernel[2];
    const size_t in_group = g->c_in / g->groups, out_group = g->c_out / g->groups;
    const size_t *const steps = transposed ? g->in : g->out, *const reached = transposed ? g->out : g->in;
    for (size_t image = 0; image < g->n; image++)
        for (size_t co = 0; co < g->c_out; co++)
            for (size_t k = 0; k < in_group; k++)
                for (size_t step = 0; step < (transposed ? in_n : out_n); step++)
                    for (size_t tap = 0; tap < taps; tap++) {
                        size_t s[3], t[3], r[3];
                        bool inside = true;
                        spread(step, steps, s);
                        spread(tap, g->kernel, t);
                        for (uint32_t d = 0; d < 3; d++) {
                            r[d] = s[d] * g->stride[d] + t[d] * g->dilation[d] - g->before[d];
                            inside = inside && r[d] < reached[d]; /* below zero wraps to large */
                        }
                        if (!inside)
                            continue;
                        const size_t group = co / out_group, ci = group * in_group + k;
                        const size_t other = at3(reached, r), from = transposed ? step : other,
                                     to = transposed ? other : step;
                        const size_t wi = transposed ? (ci * out_group + co % out_group) * taps + tap
                                                     : (co * in_group + k) * taps + tap;
                        y[(image * g->c_out + co) * out_n + to] +=
                            (double)x[(image * g->c_in + ci) * in_n + from] * (double)w[wi];
                    }
}

static void put_list(struct teg_buf *b, const char *name, const size_t *values, const size_t *second, uint32_t rank)
{
    teg_buf_printf(b, ", %s = tensor<int32, [%u]>([", name, second ? 2 * rank : rank);
    for (uint32_t d = 3 - rank; d < 3; d++) {
        teg_buf_printf(b, "%s%zu", d + rank > 3 ? ", " : "", values[d]);
        if (second)
            teg_buf_printf(b, ", %zu", second[d]);
    }
    teg_buf_puts(b, "])");
}

static void check_geometry(bool transposed, uint32_t threads)
{
    const struct geometry g = random_geometry(transposed);
    static const char *const any[] = {"[?, ?, ?]", "[?, ?, ?, ?]", "[?, ?, ?, ?, ?]"};
    struct teg_buf body = {0}, inputs = {0};
    teg_buf_printf(&inputs, "tensor<fp32, %s> x, tensor<fp32, %s> w, tensor<fp32, [?]> b", any[g.rank - 1],
                   any[g.rank - 1]);
    teg_buf_printf(&body, "tensor<fp32, %s> y = %s(x = x, weight = w, bias = b, groups = int32(%zu), " CUSTOM,
                   any[g.rank - 1], transposed ? "conv_transpose" : "conv", g.groups);
    put_list(&body, "pad", g.before, g.after, g.rank);
    put_list(&body, "strides", g.stride, NULL, g.rank);
    put_list(&body, "dilations", g.dilation, NULL, g.rank);
    teg_buf_puts(&body, ")" NAME);
    const struct teg_eval_options options = {.n_threads = threads};
    struct program p = load_good(17, inputs.bytes, body.bytes, "y", &options);
    size_t x_dims[5] = {g.n, g.c_in}, w_dims[5] = {g.c_out, g.c_in / g.groups};
    if (transposed) {
        w_dims[0] = g.c_in;
        w_dims[1] = g.c_out / g.groups;
    }
    memcpy(x_dims + 2, g.in + 3 - g.rank, g.rank * sizeof *x_dims);
    memcpy(w_dims + 2, g.kernel + 3 - g.rank, g.rank * sizeof *w_dims);
    struct teg_array *in[3] = {teg_array_new(NULL, TEG_MIL_FP32, g.rank + 2, x_dims),
                               teg_array_new(NULL, TEG_MIL_FP32, g.rank + 2, w_dims),
                               teg_array_new(NULL, TEG_MIL_FP32, 1, &g.c_out)};
    for (size_t i = 0; i < 3; i++)
        for (size_t k = 0; k < in[i]->n; k++)
            in[i]->f32[k] = (float)draw(2001) / 1000.0f - 1.0f;
    const size_t out_n = g.out[0] * g.out[1] * g.out[2], n = g.n * g.c_out * out_n;
    double *const want = calloc(n, sizeof *want);
    assert_non_null(want);
    naive(&g, transposed, in[0]->f32, in[1]->f32, want);
    struct teg_array *y = NULL;
    struct teg_error err = {0};
    if (teg_eval_run(p.eval, in, NULL, NULL, &y, NULL, &err) != TEG_OK)
        fail_msg("%s", err.message);
    assert_int_equal(y->n, n);
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)y->f32[i] - want[i] - (double)in[2]->f32[i / out_n % g.c_out]) < 1e-4))
            fail_msg("%s: element %zu of %zu: %g, expected %g", body.bytes, i, n, (double)y->f32[i], want[i]);
    free(want);
    teg_array_drop(NULL, y);
    for (size_t i = 0; i < 3; i++)
        teg_array_drop(NULL, in[i]);
    program_free(&p);
    teg_buf_free(&body);
    teg_buf_free(&inputs);
}

static void test_random_conv(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 150; i++)
        check_geometry(false, 1 + i % 3);
}

/* A padding larger than the output would leave nothing: such draws are skipped. */
static void test_random_conv_transpose(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 150; i++) {
        const uint32_t before = seed;
        const struct geometry g = random_geometry(true);
        bool some = true;
        for (uint32_t d = 0; d < 3; d++)
            some = some && g.out[d] >= 1 && g.out[d] < 1000;
        seed = before;
        if (some)
            check_geometry(true, 1 + i % 3);
        else
            draw(2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conv_padding),
        cmocka_unit_test(test_conv_messages),
        cmocka_unit_test(test_conv_transpose),
        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_flatten),
        cmocka_unit_test(test_random_conv),
        cmocka_unit_test(test_random_conv_transpose),
    };
    return cmocka_run_group_tests_name("ops_conv", tests, NULL, NULL);
}
