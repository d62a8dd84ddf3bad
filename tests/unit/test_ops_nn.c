/* Products, attention, norms, softmax, recurrent nets: small values by hand, larger ones against plain loops, masks,
 * threads, and every message. */
#include "unit/eval_test.h"

#include <math.h>

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
#define F0 "fp32"
#define F1 "tensor<fp32, [?]>"
#define F2 "tensor<fp32, [?, ?]>"
#define F3 "tensor<fp32, [?, ?, ?]>"
#define I2 "tensor<int32, [?, ?]>"
#define V(n, v) "tensor<fp32, [" #n "]>([" v "])"
#define M(r, c, v) "tensor<fp32, [" #r ", " #c "]>([" v "])"
#define A23 M(2, 3, "[1, 2, 3], [4, 5, 6]")

static void test_linear(void **state)
{
    (void)state;
    static const struct op_case cases[] = {
        {15, F2 " y = linear(x = " A23 ", weight = " M(1, 3, "[1, 0, 2]") ", bias = " V(1, "10") ")" NAME,
         "2x1: 17 26"},
        {15, F1 " y = linear(x = " V(3, "1, 2, 3") ", weight = " A23 ")" NAME, "2: 14 32"},
        {17,
         F1 " y = linear(x = " V(2, "1.5, 2") ", weight = tensor<int32, [1, 2]>([[2, 3]]), bias = tensor<int32, "
                                              "[1]>([1]))" NAME,
         "1: 10"},
        {15,
         I2 " y = linear(x = tensor<int32, [1, 2]>([[2, 3]]), weight = tensor<int32, [2, 2]>([[1, 0], [5, 7]]), bias = "
            "tensor<int32, [2]>([1, -1]))" NAME,
         "1x2: 3 30"},
        {15, F1 " y = linear(x = " V(2, "1, 2") ", weight = " A23 ")" NAME,
         "cannot run op: o (linear, iOS15): parameter weight: expected shape [out, in] with in the last dimension of x "
         "(2), "
         "found 2x3"},
        {15, F1 " y = linear(x = " V(3, "1, 2, 3") ", weight = " A23 ", bias = " V(3, "1, 2, 3") ")" NAME,
         "cannot run op: o (linear, iOS15): parameter bias: expected shape 2, found 3"},
        {15, F1 " y = linear(x = " V(1, "1") ", weight = tensor<bool, [1, 1]>([[true]]))" NAME,
         "cannot run op: o (linear, iOS15): parameter weight: expected numbers, found another type"},
    };
    CHECK(cases);
}

static void test_matmul(void **state)
{
    (void)state;
#define TX ", transpose_x = bool(true)"
#define TY ", transpose_y = bool(true)"
    static const struct op_case cases[] = {
        {15, F2 " y = matmul(x = " A23 ", y = " A23 TY ")" NAME, "2x2: 14 32 32 77"},
        {15, F2 " y = matmul(x = " A23 ", y = " A23 TX ")" NAME, "3x3: 17 22 27 22 29 36 27 36 45"},
        {15, F2 " y = matmul(x = " A23 ", y = " M(3, 2, "[1, 0], [0, 1], [1, 1]") ")" NAME, "2x2: 4 5 10 11"},
        {15, F2 " y = matmul(x = " A23 ", y = " M(1, 2, "[1, 10]") TX TY ")" NAME, "3x1: 41 52 63"},
        {15, F2 " y = matmul(x = " A23 ", y = " M(2, 2, "[1, 10], [2, 20]") TX TY ")" NAME, "3x2: 41 82 52 104 63 126"},
        {15, F0 " y = matmul(x = " V(3, "1, 2, 3") ", y = " V(3, "4, 5, 6") ")" NAME, "scalar: 32"},
        {15, F1 " y = matmul(x = " A23 ", y = " V(3, "1, 1, 1") ")" NAME, "2: 6 15"},
        {15, F1 " y = matmul(x = " V(2, "1, 1") ", y = " A23 ")" NAME, "3: 5 7 9"},
        {15,
         F3 " y = matmul(x = tensor<fp32, [2, 1, 2]>([[[1, 2]], [[3, 4]]]), y = " M(2, 2, "[1, 2], [3, 4]") ")" NAME,
         "2x1x2: 7 10 15 22"},
        {15, F3 " y = matmul(x = " M(1, 2, "[1, 2]") ", y = tensor<fp32, [2, 2, 1]>([[[1], [2]], [[3], [4]]]))" NAME,
         "2x1x1: 5 11"},
        {15, I2 " y = matmul(x = tensor<int32, [1, 2]>([[65536, 3]]), y = tensor<int32, [2, 1]>([[65536], [4]]))" NAME,
         "1x1: 12"},
        {15, F2 " y = matmul(x = " A23 ", y = " A23 ")" NAME,
         "cannot run op: o (matmul, iOS15): parameters x and y: expected equal inner dimensions, found 3 of 2x3 and 2 "
         "of "
         "2x3"},
        {15,
         F3 " y = matmul(x = tensor<fp32, [2, 1, 1]>([[[1]], [[2]]]), y = tensor<fp32, [3, 1, 1]>([[[1]], [[2]], "
            "[[3]]]))" NAME,
         "cannot run op: o (matmul, iOS15): parameters x and y: expected batch dimensions that broadcast, found 2x1x1 "
         "and "
         "3x1x1"},
        {15, F0 " y = matmul(x = fp32(1), y = " V(1, "1") ")" NAME,
         "cannot run op: o (matmul, iOS15): parameters x and y: expected at least one dimension, found a scalar"},
        {15, F2 " y = matmul(x = tensor<fp32, [2, 0]>([[], []]), y = tensor<fp32, [0, 1]>([]))" NAME, "2x1: 0 0"},
    };
    CHECK(cases);
}

static void test_einsum(void **state)
{
    (void)state;
#define E(equation, x, y) F3 " y = einsum(values = (" x ", " y "), equation = string(\"" equation "\"))" NAME
#define X121 "tensor<fp32, [1, 2, 2]>([[[1, 2], [3, 4]]])"
#define Y221 "tensor<fp32, [2, 2, 1]>([[[1], [2]], [[3], [4]]])"
    static const struct op_case cases[] = {
        {15, E("chw,whr->chr", X121, Y221), "1x2x1: 7 22"},
        {15, E("abc, cbz -> abz", X121, "tensor<fp32, [2, 1, 1]>([[[1]], [[10]]])"), "1x2x1: 21 43"},
        {15, E("chw,hwr->chr", X121, Y221),
         "cannot run op: o (einsum, iOS15): parameter equation: expected \"nchw,nwhu->nchu\" or \"chw,whr->chr\", "
         "found "
         "\"chw,hwr->chr\""},
        {15, E("chw,whr->chr", X121, X121),
         "cannot run op: o (einsum, iOS15): parameter values: expected shapes that agree or are 1 along each letter, "
         "found "
         "1x2x2 and 1x2x2"},
        {15, E("nchw,nwhu->nchu", X121, X121),
         "cannot run op: o (einsum, iOS15): parameter values: expected two float tensors of rank 4, found ranks 3 and "
         "3"},
        {15, F3 " y = einsum(values = " X121 ", equation = string(\"chw,whr->chr\"))" NAME,
         "cannot run op: o (einsum, iOS15): parameter values: expected 2 tensors, found 1"},
    };
    CHECK(cases);
}

static void test_norms(void **state)
{
    (void)state;
#define X122 "tensor<fp32, [1, 2, 2]>([[[1, 3], [10, 30]]])"
    static const struct op_case cases[] = {
        {15,
         F3 " y = batch_norm(x = " X122 ", mean = " V(2, "1, 10") ", variance = " V(2, "4, 100") ", gamma = " V(
             2, "2, 1") ", beta = " V(2, "0, 5") ", epsilon = fp32(0))" NAME,
         "1x2x2: 0 2 5 7"},
        {15, F3 " y = batch_norm(x = " X122 ", mean = " V(1, "1") ", variance = " V(2, "4, 100") ")" NAME,
         "cannot run op: o (batch_norm, iOS15): parameter mean: expected 2 values, found shape 1"},
        {15, F3 " y = instance_norm(x = " X122 ", epsilon = fp32(0))" NAME, "1x2x2: -1 1 -1 1"},
        {15,
         F3 " y = layer_norm(x = " X122 ", axes = tensor<int32, [1]>([-1]), epsilon = fp32(0), gamma = " V(
             2, "2, 3") ", beta = " V(2, "0, 1") ")" NAME,
         "1x2x2: -2 4 -2 4"},
        {15,
         F3 " y = layer_norm(x = " X122
            ", axes = tensor<int32, [1]>([1]), epsilon = fp32(0), gamma = " V(2, "2, 3") ")" NAME,
         "1x2x2: -2 -2 3 3"},
        {15, F3 " y = layer_norm(x = " X122 ", axes = tensor<int32, [1]>([1]), gamma = " V(3, "2, 3, 4") ")" NAME,
         "cannot run op: o (layer_norm, iOS15): parameter gamma: expected 2 values, found shape 3"},
        {15, F3 " y = l2_norm(x = tensor<fp32, [1, 1, 2]>([[[3, 4]]]), epsilon = fp32(0))" NAME, "1x1x2: 0.6 0.8"},
        {15, F1 " y = l2_norm(x = " V(1, "1") ")" NAME,
         "cannot run op: o (l2_norm, iOS15): parameter x: expected rank 3 or more, found shape 1"},
#define LRN ", size = int32(2), alpha = fp32(2), beta = fp32(1), k = fp32(0))" NAME
        {15,
         "tensor<fp32, [?, ?, ?, ?]> y = local_response_norm(x = tensor<fp32, [1, 3, 1, 1]>([[[[1]], [[2]], "
         "[[3]]]])" LRN,
         "1x3x1x1: 1 0.4 0.230769"},
        {15, F3 " y = local_response_norm(x = tensor<fp32, [3, 1, 1]>([[[1]], [[2]], [[3]]])" LRN,
         "3x1x1: 1 0.4 0.230769"},
        {15, F3 " y = local_response_norm(x = tensor<fp32, [1, 3, 1]>([[[1], [2], [4]]])" LRN, "1x3x1: 1 0.5 0.25"},
        {15, F3 " y = local_response_norm(x = " X122 ", size = int32(0))" NAME,
         "cannot run op: o (local_response_norm, iOS15): parameter size: expected a number of channels from 1 on, "
         "found 0"},
        {15, F1 " y = softmax(x = " V(3, "1000, 1000, -inf") ")" NAME, "3: 0.5 0.5 0"},
        {15, F2 " y = softmax(x = " M(2, 2, "[0, 100], [0, -100]") ", axis = int32(0))" NAME, "2x2: 0.5 1 0.5 0"},
        {15, F1 " s = softmax(x = " V(2, "-inf, -inf") ")" NAME "tensor<bool, [?]> y = not_equal(x = s, y = s)" NAME,
         "2: true true"},
        {15, F1 " y = softmax(x = " V(2, "1, 2") ", axis = int32(1))" NAME,
         "cannot run op: o (softmax, iOS15): parameter axis: expected an axis of rank 1, found 1"},
    };
    CHECK(cases);
}

static void test_recurrent(void **state)
{
    (void)state;
#define X3 "x = tensor<fp32, [3, 1, 1]>([[[1]], [[2]], [[3]]])"
#define H0 ", initial_h = " M(1, 1, "[0]")
#define RNN(more)                                                                                                      \
    F3 " y, " F2 " h = rnn(" X3 H0 ", weight_ih = " M(1, 1, "[1]") ", weight_hh = " M(1, 1, "[10]") more ")" NAME
#define LINEAR ", activation = string(\"linear\")"
#define ALL ", output_sequence = bool(true)"
#define LSTM(way, more)                                                                                                \
    F3 " y, " F2 " h, " F2 " k = lstm(" X3 H0                                                                          \
       ", initial_c = " M(1, 1, "[0]") ", weight_ih = " M(4, 1, "[0], [0], [0], [1]") ", weight_hh = " M(              \
           4, 1, "[0], [0], [0], [0]") ", direction = string(\"" way "\"), recurrent_activation = "                    \
                                       "string(\"hard_sigmoid\"), cell_activation = string(\"linear\")" LINEAR more    \
                                       ")" NAME
    static const struct op_case cases[] = {
        {15, RNN(LINEAR), "1x1x1: 123"},
#define STATES(h)                                                                                                      \
    F3 " y, " F2 " h = rnn(" X3 ", initial_h = " h ", weight_ih = " M(1, 1, "[1]") ", weight_hh = " M(1, 1, "[10]")    \
        LINEAR ")" NAME
        {15, STATES(M(2, 1, "[7], [8]")), "1x1x1: 7123"}, /* more states than sequences: the first ones */
        {15, STATES(M(1, 2, "[7, 8]")),
         "cannot run op: o (rnn, iOS15): parameter initial_h: expected shape 1x1, found 1x2"},
        {15, RNN(LINEAR ALL), "3x1x1: 1 12 123"},
        {15, RNN(LINEAR ALL ", bias = " V(1, "5")), "3x1x1: 6 67 678"},
        {15, RNN(LINEAR ALL ", direction = string(\"reverse\")"), "3x1x1: 3 32 321"}, /* in the order it is taken */
        {15, RNN(", activation = string(\"softmax\")"),
         "cannot run op: o (rnn, iOS15): parameter activation: expected tanh, scaled_tanh, sigmoid, hard_sigmoid, relu "
         "or "
         "linear, found \"softmax\""},
        {15, RNN(", direction = string(\"bidirectional\")"),
         "cannot run op: o (rnn, iOS15): parameter direction: expected forward or reverse, found \"bidirectional\""},
        {15, RNN(", bias = " V(2, "1, 2")), "cannot run op: o (rnn, iOS15): parameter bias: expected shape 1, found 2"},
        /* gates are 0.5: c' = c/2 + x/2, h = c'/2 */
        {15, LSTM("forward", ALL), "3x1x1: 0.25 0.625 1.0625"},
        {15, LSTM("forward", ", clip = fp32(0.5)"), "1x1x1: 0.25"},
        {15, LSTM("forward", ", peephole = " V(3, "0, 0, -100") ALL), "3x1x1: 0 0 0"},
        {15, LSTM("sideways", ""),
         "cannot run op: o (lstm, iOS15): parameter direction: expected forward, bidirectional or reverse, found "
         "\"sideways\""},
        {15,
         F3 " y, " F2 " h = rnn(x = " A23 H0 ", weight_ih = " M(1, 1, "[1]") ", weight_hh = " M(1, 1, "[1]") ")" NAME,
         "cannot run op: o (rnn, iOS15): parameter x: expected shape [steps, batch, inputs], found 2x3"},
        {15, F3 " y, " F2 " h = gru(" X3 H0 ", weight_ih = " M(1, 1, "[1]") ", weight_hh = " M(1, 1, "[1]") ")" NAME,
         "cannot run op: o (gru, iOS15): parameter weight_hh: expected shape [3 times H, H], found 1x1"},
    };
    CHECK(cases);
}

/* Both directions over two steps: the backward half stands where its input stood. */
static void test_bidirectional(void **state)
{
    (void)state;
    check_body(
        15,
        F3
        " y, " F2 " h, " F2
        " k = lstm(x = tensor<fp32, [2, 1, 1]>([[[1]], [[2]]]), initial_h = " M(1, 2, "[0, 0]") ", initial_c = " M(1, 2, "[0, 0]") ", weight_ih = " M(
            4, 1,
            "[0], [0], [0], [1]") ", weight_hh = " M(4, 1,
                                                     "[0], [0], [0], [0]") ", weight_ih_back = " M(4, 1,
                                                                                                   "[0], [0], [0], "
                                                                                                   "[10]") ", "
                                                                                                           "weight_"
                                                                                                           "hh_back "
                                                                                                           "= " M(
                                                                                                               4, 1,
                                                                                                               "["
                                                                                                               "0"
                                                                                                               "]"
                                                                                                               ","
                                                                                                               " "
                                                                                                               "["
                                                                                                               "0"
                                                                                                               "]"
                                                                                                               ","
                                                                                                               " "
                                                                                                               "["
                                                                                                               "0"
                                                                                                               "]"
                                                                                                               ","
                                                                                                               " "
                                                                                                               "["
                                                                                                               "0"
                                                                                                               "]") ", "
                                                                                                                    "di"
                                                                                                                    "re"
                                                                                                                    "ct"
                                                                                                                    "io"
                                                                                                                    "n "
                                                                                                                    "= "
                                                                                                                    "st"
                                                                                                                    "ri"
                                                                                                                    "ng"
                                                                                                                    "("
                                                                                                                    "\""
                                                                                                                    "bi"
                                                                                                                    "di"
                                                                                                                    "re"
                                                                                                                    "ct"
                                                                                                                    "io"
                                                                                                                    "na"
                                                                                                                    "l"
                                                                                                                    "\""
                                                                                                                    "),"
                                                                                                                    " o"
                                                                                                                    "ut"
                                                                                                                    "pu"
                                                                                                                    "t_"
                                                                                                                    "se"
                                                                                                                    "qu"
                                                                                                                    "en"
                                                                                                                    "ce"
                                                                                                                    " ="
                                                                                                                    " b"
                                                                                                                    "oo"
                                                                                                                    "l("
                                                                                                                    "tr"
                                                                                                                    "ue"
                                                                                                                    "),"
                                                                                                                    " "
                                                                                                                    "re"
                                                                                                                    "cu"
                                                                                                                    "rr"
                                                                                                                    "en"
                                                                                                                    "t_"
                                                                                                                    "ac"
                                                                                                                    "ti"
                                                                                                                    "va"
                                                                                                                    "ti"
                                                                                                                    "on"
                                                                                                                    " ="
                                                                                                                    " s"
                                                                                                                    "tr"
                                                                                                                    "in"
                                                                                                                    "g("
                                                                                                                    "\""
                                                                                                                    "ha"
                                                                                                                    "rd"
                                                                                                                    "_s"
                                                                                                                    "ig"
                                                                                                                    "mo"
                                                                                                                    "id"
                                                                                                                    "\""
                                                                                                                    "),"
                                                                                                                    " c"
                                                                                                                    "el"
                                                                                                                    "l_"
                                                                                                                    "ac"
                                                                                                                    "ti"
                                                                                                                    "va"
                                                                                                                    "ti"
                                                                                                                    "on"
                                                                                                                    " ="
                                                                                                                    " s"
                                                                                                                    "tr"
                                                                                                                    "in"
                                                                                                                    "g("
                                                                                                                    "\""
                                                                                                                    "li"
                                                                                                                    "ne"
                                                                                                                    "ar"
                                                                                                                    "\""
                                                                                                                    ")" LINEAR
                                                                                                                    ")" NAME,
        "y, h, k", "2x1x2: 0.25 5 0.625 5; 1x2: 0.625 5; 1x2: 1.25 10");
}

/* r = 1, z = 0: h' = W x + (R h or its reset form) + bias. With z's weights -inf the update gate closes. */
static void test_gru(void **state)
{
    (void)state;
#define GRU(ios, more, expected)                                                                                       \
    {                                                                                                                  \
        ios,                                                                                                           \
            F3 " y, " F2 " h = gru(x = tensor<fp32, [1, 1, 1]>([[[2]]]), initial_h = " M(                              \
                1, 1, "[3]") ", weight_ih = " M(3, 1, "[0], [1], [-100]") ", weight_hh = " M(3, 1, "[0], [10], [0]")   \
                LINEAR more ")" NAME,                                                                                  \
            expected                                                                                                   \
    }
    static const struct op_case cases[] = {
        GRU(15, ", recurrent_activation = string(\"hard_sigmoid\")", "1x1x1: 17"), /* 2 + 10 · (0.5 · 3) */
        GRU(18,
            ", recurrent_activation = string(\"hard_sigmoid\"), bias = " V(3, "0, 4, 0") ", reset_after = bool(true)",
            "1x1x1: 19"), /* 2 + 0.5 · (30 + 4) */
        GRU(18,
            ", recurrent_activation = string(\"hard_sigmoid\"), bias = " V(3, "0, 4, 0") ", input_bias = " V(3,
                                                                                                             "0, 1, 0"),
            "1x1x1: 22"),
    };
    CHECK(cases);
}

/* ---- attention ---- */

static uint32_t seed = 7;

static float draw(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (float)(seed >> 8) / 8388608.0f - 1.0f;
}

static struct teg_array *random_floats(uint32_t rank, const size_t *dims)
{
    struct teg_array *const a = teg_array_new(NULL, TEG_MIL_FP32, rank, dims);
    assert_non_null(a);
    for (size_t i = 0; i < a->n; i++)
        a->f32[i] = draw();
    return a;
}

/* One row of attention in double. mask: L x S or NULL. */
static double attend(const float *q, const float *k, const float *v, const float *mask, size_t s, size_t e, size_t ev,
                     size_t column)
{
    double max = -INFINITY, sum = 0, out = 0;
    for (uint32_t pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < s; i++) {
            double score = 0;
            for (size_t c = 0; c < e; c++)
                score += (double)q[c] * (double)k[i * e + c];
            score = score / sqrt((double)e) + (mask ? (double)mask[i] : 0);
            if (pass == 0) {
                max = score > max ? score : max;
                continue;
            }
            sum += exp(score - max);
            out += exp(score - max) * (double)v[i * ev + column];
        }
    return out / sum;
}

static void check_attention(size_t l, size_t s, bool masked, uint32_t threads)
{
    const size_t h = 3, e = 20, ev = 33;
    const struct teg_eval_options options = {.n_threads = threads};
    struct program p =
        load_good(18,
                  "tensor<fp32, [?, ?, ?, ?]> q, tensor<fp32, [?, ?, ?, ?]> k, tensor<fp32, [?, ?, ?, ?]> "
                  "v, tensor<fp32, [?, ?]> m",
                  masked ? "tensor<fp32, [?, ?, ?, ?]> y = scaled_dot_product_attention(query = q, key = k, "
                           "value = v, attn_mask = m)" NAME
                         : "tensor<fp32, [?, ?, ?, ?]> y = scaled_dot_product_attention(query = q, key = k, "
                           "value = v)" NAME,
                  "y", &options);
    const size_t q_dims[4] = {1, h, l, e}, k_dims[4] = {1, h, s, e}, v_dims[4] = {1, h, s, ev}, m_dims[2] = {l, s};
    struct teg_array *in[4] = {random_floats(4, q_dims), random_floats(4, k_dims), random_floats(4, v_dims),
                               random_floats(2, m_dims)};
    for (size_t i = 0; i < in[3]->n; i++) /* the first tiles of keys are hidden from every row */
        in[3]->f32[i] = i % s < s / 2 || draw() > 0.5f ? -INFINITY : draw();
    for (size_t r = 0; r < l; r++)
        in[3]->f32[r * s + s - 1] = 0;
    struct teg_array *y;
    struct teg_error err = {0};
    if (teg_eval_run(p.eval, in, NULL, NULL, &y, NULL, &err) != TEG_OK)
        fail_msg("%s", err.message);
    for (size_t i = 0; i < y->n; i += 7) {
        const size_t head = i / ev / l, row = i / ev % l;
        const double want = attend(in[0]->f32 + (head * l + row) * e, in[1]->f32 + head * s * e,
                                   in[2]->f32 + head * s * ev, masked ? in[3]->f32 + row * s : NULL, s, e, ev, i % ev);
        if (!(fabs((double)y->f32[i] - want) < 1e-5))
            fail_msg("L %zu S %zu: element %zu: %g, expected %g", l, s, i, (double)y->f32[i], want);
    }
    teg_array_drop(NULL, y);
    for (size_t i = 0; i < 4; i++)
        teg_array_drop(NULL, in[i]);
    program_free(&p);
}

static void test_attention(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 63, 64, 65, 129, 300};
    for (uint32_t i = 0; i < 6; i++) {
        check_attention(sizes[i], sizes[5 - i], false, 1 + i % 3);
        check_attention(sizes[i], sizes[i], true, 1 + i % 3);
    }
#define Q "tensor<fp32, [1, 1, 1]>([[[1]]])"
#define KV "tensor<fp32, [1, 2, 1]>([[[0], [0]]])"
#define SDPA(more)                                                                                                     \
    F3 " y = scaled_dot_product_attention(query = " Q ", key = " KV                                                    \
       ", value = tensor<fp32, [1, 2, 1]>([[[2], [4]]])" more ")" NAME
    static const struct op_case cases[] = {
        {18, SDPA(""), "1x1x1: 3"},
        {18, SDPA(", attn_mask = tensor<bool, [2]>([false, true])"), "1x1x1: 4"},
        {18,
         F3 " s = scaled_dot_product_attention(query = " Q ", key = " KV ", value = " KV
            ", attn_mask = tensor<bool, [1, 2]>([[false, false]]))" NAME
            "tensor<bool, [?, ?, ?]> y = not_equal(x = s, y = s)" NAME,
         "1x1x1: true"},
        {18, SDPA(", attn_mask = tensor<fp32, [3]>([0, 0, 0])"),
         "cannot run op: o (scaled_dot_product_attention, iOS18): parameter attn_mask: expected bools or floats that "
         "broadcast to [batch, 1, 2], found shape 3"},
        {18, F3 " y = scaled_dot_product_attention(query = " Q ", key = " KV ", value = " Q ")" NAME,
         "cannot run op: o (scaled_dot_product_attention, iOS18): parameters query, key, value: expected [batch, L, "
         "E], "
         "[batch, S, E], [batch, S, EV] of one rank from 3 on, found 1x1x1, 1x2x1, 1x1x1"},
    };
    CHECK(cases);
}

/* Products large enough for every road of eval/products.c, one and three threads alike to the bit. */
static void test_product_roads(void **state)
{
    (void)state;
    static const size_t shapes[][3] = {{1, 300, 500}, {40, 700, 600}, {300, 900, 5},
                                       {300, 900, 1}, {70, 33, 400},  {9, 1, 9}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const size_t m = shapes[i][0], k = shapes[i][1], n = shapes[i][2];
        const size_t x_dims[2] = {m, k}, y_dims[2] = {k, n};
        struct teg_array *in[2] = {random_floats(2, x_dims), random_floats(2, y_dims)}, *out[2];
        for (uint32_t t = 0; t < 2; t++) {
            const struct teg_eval_options options = {.n_threads = 1 + 2 * t};
            struct program p = load_good(15, F2 " x, " F2 " w", F2 " y = matmul(x = x, y = w)" NAME, "y", &options);
            struct teg_error err = {0};
            if (teg_eval_run(p.eval, in, NULL, NULL, &out[t], NULL, &err) != TEG_OK)
                fail_msg("%s", err.message);
            program_free(&p);
        }
        assert_memory_equal(out[0]->f32, out[1]->f32, out[0]->n * sizeof(float));
        for (size_t at = 0; at < m * n; at += 13) {
            double want = 0;
            for (size_t q = 0; q < k; q++)
                want += (double)in[0]->f32[at / n * k + q] * (double)in[1]->f32[q * n + at % n];
            assert_true(fabs((double)out[0]->f32[at] - want) < 1e-3);
        }
        for (size_t a = 0; a < 2; a++) {
            teg_array_drop(NULL, in[a]);
            teg_array_drop(NULL, out[a]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear), cmocka_unit_test(test_matmul),    cmocka_unit_test(test_einsum),
        cmocka_unit_test(test_norms),  cmocka_unit_test(test_recurrent), cmocka_unit_test(test_bidirectional),
        cmocka_unit_test(test_gru),    cmocka_unit_test(test_attention), cmocka_unit_test(test_product_roads),
    };
    return cmocka_run_group_tests_name("ops_nn", tests, NULL, NULL);
}
