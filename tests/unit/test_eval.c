/* The evaluator around the ops: loading, inputs, control flow, states, limits, modes, failing allocations. */
#include <math.h>

#include <time.h>

#include "unit/eval_test.h"

#include "dtype/round.h"

/* ---- loading ---- */

static void check_load_error(int ios, const char *body, const char *outputs, const char *expected)
{
    struct program p;
    struct teg_error err = {0};
    assert_int_not_equal(load_program(&p, ios, "tensor<fp32, [2]> x", body, outputs, NULL, &err), TEG_OK);
    assert_string_equal(err.message, expected);
    program_free(&p);
}

static void test_unknown_ops(void **state)
{
    (void)state;
    check_load_error(17, "tensor<fp32, [2]> y = frobnicate(x = x)[name = string(\"f\")];\n", "y",
                     "cannot load program: op f (frobnicate) at byte 77: expected an op of opset CoreML7, found an "
                     "unknown one");
    check_load_error(
        15, "tensor<fp32, [2]> y = fill_like(ref_tensor = x)[name = string(\"f\")];\n", "y",
        "cannot load program: op f (fill_like) at byte 77: expected opset CoreML6 or later, found CoreML5");
}

static void test_missing_function(void **state)
{
    (void)state;
    struct program p = load_good(15, "tensor<fp32, [2]> x", "tensor<fp32, [2]> y = relu(x = x);\n", "y", NULL);
    struct teg_eval *eval = NULL;
    struct teg_error err = {0};
    assert_int_equal(teg_eval_new(p.mil, "other", NULL, &eval, &err), TEG_ERR_ARGUMENT);
    assert_string_equal(err.message, "cannot load program: function other: expected one of the program's 1 functions, "
                                     "found none of that name");
    assert_null(eval);
    program_free(&p);
}

/* ---- inputs and outputs ---- */

static void test_inputs(void **state)
{
    (void)state;
    struct program p = load_good(15, "tensor<fp32, [2, ?]> x", "tensor<fp32, [2, ?]> y = relu(x = x);\n", "y", NULL);
    const size_t good[] = {2, 2}, bad[] = {3, 2};
    const float values[] = {1, -1, -2, 2, 0, 0};
    struct teg_array *x = floats(2, good, values);
    check_run(&p, &x, NULL, "2x2: 1 0 0 2");
    check_run(&p, &x, NULL, "2x2: 1 0 0 2"); /* a run changes nothing */
    assert_int_equal(x->n_refs, 1);
    teg_array_drop(NULL, x);
    x = floats(2, bad, values);
    check_run(&p, &x, NULL,
              "cannot predict: input x: expected fp32 as the function declares it, found fp32 of shape 3x2");
    teg_array_drop(NULL, x);
    x = teg_array_new(NULL, TEG_MIL_INT32, 2, good);
    memset(x->data, 0, x->n_bytes);
    check_run(&p, &x, NULL,
              "cannot predict: input x: expected fp32 as the function declares it, found int32 of shape 2x2");
    teg_array_drop(NULL, x);
    x = NULL;
    check_run(&p, &x, NULL, "cannot predict: input x: expected a value, found none");
    program_free(&p);
}

/* An input, a constant and the same value twice as outputs. */
static void test_outputs_that_no_op_makes(void **state)
{
    (void)state;
    struct program p = load_good(15, "tensor<fp32, []> x",
                                 "fp32 k = const()[name = string(\"k\"), val = fp32(3)];\n"
                                 "fp32 y = square(x = x);\n",
                                 "x, k, y, y", NULL);
    struct teg_array *x = scalar_float(4);
    check_run(&p, &x, NULL, "scalar: 4; scalar: 3; scalar: 16; scalar: 16");
    teg_array_drop(NULL, x);
    program_free(&p);
}

static void test_declared_types_bind(void **state)
{
    (void)state;
    struct program p =
        load_good(15, "tensor<fp32, []> x", "tensor<fp32, [2]> y = square(x = x)[name = string(\"s\")];\n", "y", NULL);
    struct teg_array *x = scalar_float(4);
    check_run(&p, &x, NULL, "cannot run op: s (square, iOS15): output y: expected the declared shape 2, found scalar");
    program_free(&p);
    p = load_good(15, "tensor<fp32, []> x", "bool y = identity(x = x)[name = string(\"s\")];\n", "y", NULL);
    check_run(&p, &x, NULL, "cannot run op: s (identity, iOS15): output y: expected bools as declared, found floats");
    program_free(&p);
    teg_array_drop(NULL, x);
}

/* fp16 outputs are rounded in both modes. */
static void test_output_rounding(void **state)
{
    (void)state;
    struct program p =
        load_good(16, "tensor<fp32, []> x", "fp16 y = cast(x = x, dtype = string(\"fp16\"));\n", "y", NULL);
    struct teg_array *x = scalar_float(1.0001f);
    check_run(&p, &x, NULL, "scalar: 1");
    teg_array_drop(NULL, x);
    x = scalar_float(1e6f);
    check_run(&p, &x, NULL, "scalar: inf");
    teg_array_drop(NULL, x);
    program_free(&p);
    /* So is what leaves through a cast from fp16; inside a program exact mode does not round. */
    p = load_good(15, "tensor<fp32, []> x",
                  "fp16 h = cast(x = x, dtype = string(\"fp16\"));\n"
                  "fp32 w = cast(x = h, dtype = string(\"fp32\"));\n"
                  "fp32 a = mul(x = w, y = fp32(1000));\n"
                  "fp32 b = sub(x = a, y = fp32(1000));\n",
                  "w, b", NULL);
    x = scalar_float(1.0001f);
    check_run(&p, &x, NULL, "scalar: 1; scalar: 0.100037");
    teg_array_drop(NULL, x);
    program_free(&p);
}

/* ---- modes ---- */

/* Every fp16 value, the middles between neighbours and the floats beside them, in both signs. */
static void test_rounding(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7c00; h++) {
        const float here = teg_f16_to_f32((uint16_t)h), next = teg_f16_to_f32((uint16_t)(h + 1));
        const float middle = h == 0x7bff ? 65520.0f : here + (next - here) / 2;
        const float x[] = {here, middle, nextafterf(middle, 0), nextafterf(middle, INFINITY), -here, -middle, -next};
        float y[7];
        teg_round_f16(y, x, 7);
        for (size_t i = 0; i < 7; i++) {
            const float expected = teg_f16_to_f32(teg_f32_to_f16(x[i]));
            assert_memory_equal(&y[i], &expected, sizeof expected);
            assert_int_equal(teg_is_f16(&x[i], 1), y[i] == x[i]);
        }
    }
    float special[] = {NAN, INFINITY, -INFINITY, 1e-45f, -1e-30f};
    assert_false(teg_round_f16(special, special, 5));
    assert_true(isnan(special[0]) && special[1] == INFINITY && special[2] == -INFINITY && special[3] == 0);
    float large[] = {1, 65519.0f, 1e30f};
    assert_true(teg_round_f16(large, large, 3));
    assert_false(teg_round_f16(large, large, 3));
}

#define FP16_BODY                                                                                                      \
    "fp16 h = cast(x = x, dtype = string(\"fp16\"))[name = string(\"down\")];\n"                                       \
    "fp16 s = mul(x = h, y = h)[name = string(\"big\")];\n"                                                            \
    "fp16 t = sub(x = s, y = s)[name = string(\"difference\")];\n"                                                     \
    "fp32 y = cast(x = t, dtype = string(\"fp32\"));\n"

static void test_emulation(void **state)
{
    (void)state;
    const struct teg_eval_options emulate = {.emulate_fp16 = true};
    struct teg_eval_report report;
    struct teg_array *x = scalar_float(1000.0f);
    struct program p = load_good(16, "tensor<fp32, []> x", FP16_BODY, "y", NULL);
    char *text = run_to_text(&p, &x, NULL, &report);
    assert_string_equal(text, "scalar: 0");
    assert_null(report.overflow_op);
    assert_int_equal(report.n_ops, 4);
    assert_true(report.peak_bytes > 0);
    free(text);
    program_free(&p);
    p = load_good(16, "tensor<fp32, []> x", FP16_BODY, "y", &emulate);
    text = run_to_text(&p, &x, NULL, &report);
    assert_true(strstr(text, "nan") != NULL);
    assert_string_equal(report.overflow_op, "big");
    free(text);
    program_free(&p);
    teg_array_drop(NULL, x);
}

/* An infinity that comes in is nobody's overflow; one that float arithmetic makes itself is. */
static void test_whose_overflow(void **state)
{
    (void)state;
    const struct teg_eval_options emulate = {.emulate_fp16 = true};
    struct teg_eval_report report;
    struct program p =
        load_good(16, "tensor<fp16, []> x", "fp16 y = exp(x = x)[name = string(\"e\")];\n", "y", &emulate);
    struct teg_array *x = teg_array_new(NULL, TEG_MIL_FP16, 0, NULL);
    x->f32[0] = INFINITY;
    char *text = run_to_text(&p, &x, NULL, &report);
    assert_string_equal(text, "scalar: inf");
    assert_null(report.overflow_op);
    free(text);
    x->f32[0] = 1000;
    text = run_to_text(&p, &x, NULL, &report);
    assert_string_equal(text, "scalar: inf");
    assert_string_equal(report.overflow_op, "e");
    free(text);
    teg_array_drop(NULL, x);
    program_free(&p);
}

static void test_narrow_integers_wrap(void **state)
{
    (void)state;
    check_body(17, "tensor<uint8, [2]> y = cast(x = tensor<int32, [2]>([257, -1]), dtype = string(\"uint8\"));\n", "y",
               "2: 1 255");
    check_body(17, "int8 y = cast(x = int32(200), dtype = string(\"int8\"));\n", "y", "scalar: -56");
}

/* ---- control flow ---- */

#define COND                                                                                                           \
    "fp32 zero = const()[name = string(\"zero\"), val = fp32(0)];\n"                                                   \
    "bool p = greater(x = x, y = zero);\n"                                                                             \
    "fp32 w = square(x = x);\n"                                                                                        \
    "fp32 y = cond(pred = p)[name = string(\"c\")]\n"                                                                  \
    "then() { fp32 a = add(x = w, y = w); } -> (a)\n"                                                                  \
    "else() { } -> (w);\n"

static void test_cond(void **state)
{
    (void)state;
    struct program p = load_good(15, "tensor<fp32, []> x", COND, "y", NULL);
    struct teg_array *x = scalar_float(3);
    check_run(&p, &x, NULL, "scalar: 18");
    teg_array_drop(NULL, x);
    x = scalar_float(-3);
    check_run(&p, &x, NULL, "scalar: 9");
    teg_array_drop(NULL, x);
    program_free(&p);
}

static void test_cond_errors(void **state)
{
    (void)state;
    check_body(15,
               "fp32 k = const()[val = fp32(1)];\nfp32 y = cond(pred = k)[name = string(\"c\")] a() {} -> (k) b() {} "
               "-> (k);\n",
               "y", "cannot run op: c (cond, iOS15): parameter pred: expected bools, found floats");
    check_body(15,
               "tensor<bool, [?]> p = logical_not(x = tensor<bool, [2]>([true, true]));\n"
               "fp32 y = cond(pred = p)[name = string(\"c\")] a() {} -> (p) b() {} -> (p);\n",
               "y", "cannot run op: c (cond, iOS15): parameter pred: expected one bool, found 2");
}

/* n = x; while (n > 0) { n -= 1; s = s + s; }; the constant `one` comes from outside the loop. */
#define LOOP                                                                                                           \
    "fp32 one = const()[name = string(\"one\"), val = fp32(1)];\n"                                                     \
    "fp32 zero = const()[name = string(\"zero\"), val = fp32(0)];\n"                                                   \
    "fp32 n, fp32 s = while_loop(loop_vars = (x, one))[name = string(\"w\")]\n"                                        \
    "condition(fp32 a, fp32 b) { bool go = greater(x = a, y = zero); } -> (go)\n"                                      \
    "body(fp32 i, fp32 j) { fp32 k = sub(x = i, y = one); fp32 m = add(x = j, y = j); } -> (k, m);\n"

static void test_while_loop(void **state)
{
    (void)state;
    struct program p = load_good(15, "tensor<fp32, []> x", LOOP, "n, s", NULL);
    struct teg_array *x = scalar_float(10);
    check_run(&p, &x, NULL, "scalar: 0; scalar: 1024");
    teg_array_drop(NULL, x);
    x = scalar_float(-1); /* no iteration */
    check_run(&p, &x, NULL, "scalar: -1; scalar: 1");
    teg_array_drop(NULL, x);
    program_free(&p);
}

static void test_loop_limit(void **state)
{
    (void)state;
    const struct teg_eval_options options = {.max_loop_iterations = 9};
    struct program p = load_good(15, "tensor<fp32, []> x", LOOP, "n, s", &options);
    struct teg_array *x = scalar_float(9);
    check_run(&p, &x, NULL, "scalar: 0; scalar: 512");
    teg_array_drop(NULL, x);
    x = scalar_float(10);
    check_run(&p, &x, NULL,
              "cannot run op: w (while_loop, iOS15): loop: expected an end within 9 iterations, found none; raise the "
              "limit if the program is meant to run that long");
    teg_array_drop(NULL, x);
    program_free(&p);
}

static void test_loop_errors(void **state)
{
    (void)state;
    check_body(15,
               "fp32 y = while_loop(loop_vars = (fp32(1)))[name = string(\"w\")]\n"
               "c(fp32 a) {} -> (a) b(fp32 d) {} -> (d);\n",
               "y", "cannot run op: w (while_loop, iOS15): condition: expected one bool, found another value");
    /* A loop variable that changes its shape against its declaration. */
    check_body(
        15,
        "tensor<fp32, [1]> y = while_loop(loop_vars = (tensor<fp32, [1]>([1])))[name = string(\"w\")]\n"
        "c(tensor<fp32, [1]> a) { bool t = const()[name = string(\"t\"), val = bool(true)]; } -> (t)\n"
        "b(tensor<fp32, [1]> d) { tensor<fp32, [2]> e = tile(x = d, reps = tensor<int32, [1]>([2])); } -> (e);\n",
        "y", "cannot run op: w (while_loop, iOS15): output a: expected the declared shape 1, found 2");
}

/* An allocator that asks the run to stop at its n-th block. */
struct stopping {
    volatile bool stop;
    size_t n;
};

static void *stopping_alloc(void *ctx, size_t n_bytes, size_t align)
{
    struct stopping *const s = ctx;
    if (s->n && --s->n == 0)
        s->stop = true;
    const struct teg_allocator *const plain = teg_allocator_or_default(NULL);
    return plain->alloc(plain->ctx, n_bytes, align);
}

static void stopping_free(void *ctx, void *memory, size_t n_bytes)
{
    (void)ctx;
    const struct teg_allocator *const plain = teg_allocator_or_default(NULL);
    plain->free(plain->ctx, memory, n_bytes);
}

/* In the middle of an op: what it has not begun is left out. Processor time, which others do not change. */
static void test_stop_within(void **state)
{
    (void)state;
    enum { N = 768 };
    struct stopping s = {0};
    const struct teg_allocator allocator = {stopping_alloc, stopping_free, &s};
    struct teg_eval_options options = {.allocator = &allocator};
    struct program p =
        load_good(15, "tensor<fp32, [768, 768]> x",
                  "tensor<fp32, [768, 768]> y = matmul(x = x, y = x)[name = string(\"y\")];\n", "y", &options);
    struct teg_array *x = teg_array_new(NULL, TEG_MIL_FP32, 2, (const size_t[]){N, N}), *outputs[1];
    assert_non_null(x);
    for (size_t i = 0; i < x->n; i++)
        x->f32[i] = (float)(i % 7);
    clock_t took[2];
    for (int i = 0; i < 2; i++) {
        struct teg_error err = {0};
        const clock_t began = clock();
        s.stop = false;
        s.n = i ? 3 : 0; /* tables of the run and the output come first, then the op's scratch memory */
        const enum teg_status status = teg_eval_run(p.eval, &x, NULL, &s.stop, outputs, NULL, &err);
        took[i] = clock() - began;
        assert_int_equal(status, i ? TEG_ERR_INTERRUPTED : TEG_OK);
        if (i)
            assert_string_equal(err.message, "cannot finish prediction: function main: stopped on request in op y");
        else
            teg_array_drop(&allocator, outputs[0]);
    }
    assert_true(took[1] < took[0] / 4);
    teg_array_drop(NULL, x);
    program_free(&p);
}

static void test_stop(void **state)
{
    (void)state;
    const volatile bool stop = true;
    struct program p = load_good(15, "tensor<fp32, []> x", LOOP, "n, s", NULL);
    struct teg_array *x = scalar_float(10), *outputs[2];
    struct teg_error err = {0};
    assert_int_equal(teg_eval_run(p.eval, &x, NULL, &stop, outputs, NULL, &err), TEG_ERR_INTERRUPTED);
    assert_string_equal(err.message, "cannot finish prediction: function main: stopped on request before op w");
    assert_null(outputs[0]);
    teg_array_drop(NULL, x);
    program_free(&p);
}

/* ---- states ---- */

#define STATE_INPUTS "state<tensor<fp16, [2]>> s, tensor<fp16, [2]> x, tensor<int32, [1]> i"
#define STATE_BODY                                                                                                     \
    "tensor<fp16, [2]> r = read_state(input = s);\n"                                                                   \
    "tensor<fp16, [2]> a = add(x = r, y = x);\n"                                                                       \
    "write_state(input = s, data = a)[name = string(\"w\")];\n"                                                        \
    "tensor<fp16, [2]> b = read_state(input = s);\n"                                                                   \
    "tensor<fp16, [1]> y = gather(x = b, indices = i, validate_indices = bool(true))[name = string(\"g\")];\n"

static struct teg_array *index_array(int32_t value)
{
    const size_t one = 1;
    struct teg_array *const i = teg_array_new(NULL, TEG_MIL_INT32, 1, &one);
    i->i32[0] = value;
    return i;
}

static void check_state(const struct teg_eval_state *s, float a, float b)
{
    const struct teg_array *const value = teg_eval_state_array(s, "s");
    assert_non_null(value);
    assert_true(value->f32[0] == a && value->f32[1] == b);
}

static void test_states(void **state)
{
    (void)state;
    const size_t two = 2;
    const float values[] = {1, 2.5f}, large[] = {0.0001f, 70000.0f};
    struct teg_error err = {0};
    struct teg_eval_state *s = NULL;
    struct program p = load_good(18, STATE_INPUTS, STATE_BODY, "y", NULL);
    assert_int_equal(teg_eval_state_new(p.mil, NULL, &s, &err), TEG_OK);
    assert_int_equal(teg_eval_state_count(s), 1);
    assert_string_equal(teg_eval_state_name(s, 0), "s");
    assert_null(teg_eval_state_name(s, 1));
    assert_null(teg_eval_state_array(s, "t"));
    check_state(s, 0, 0);
    struct teg_array *in[2] = {floats(1, &two, values), index_array(1)};
    check_run(&p, in, s, "1: 2.5");
    check_state(s, 1, 2.5f);
    check_run(&p, in, s, "1: 5");
    check_state(s, 2, 5);
    /* The write comes before the op that fails: nothing may be left of it. */
    teg_array_drop(NULL, in[1]);
    in[1] = index_array(2);
    check_run(&p, in, s,
              "cannot run op: g (gather, iOS18): parameter indices: expected indices into 2 elements, found 2");
    check_state(s, 2, 5);
    check_run(
        &p, in, NULL,
        "cannot predict: state s: expected a state object that holds it, found none; make one with make_state and "
        "pass it");
    /* Values that are set are rounded to the declared type. */
    struct teg_array *const a = floats(1, &two, large);
    assert_int_equal(teg_eval_state_set(s, "s", a, &err), TEG_OK);
    assert_true(isinf(teg_eval_state_array(s, "s")->f32[1]));
    assert_int_equal(a->n_refs, 1);
    teg_array_drop(NULL, a);
    teg_array_drop(NULL, in[0]);
    teg_array_drop(NULL, in[1]);
    teg_eval_state_free(s);
    program_free(&p);
}

static void test_state_errors(void **state)
{
    (void)state;
    const size_t three = 3;
    const float values[3] = {0};
    struct teg_error err = {0};
    struct teg_eval_state *s = NULL;
    struct program p = load_good(18, STATE_INPUTS, STATE_BODY, "y", NULL);
    assert_int_equal(teg_eval_state_new(p.mil, NULL, &s, &err), TEG_OK);
    struct teg_array *const a = floats(1, &three, values);
    assert_int_equal(teg_eval_state_set(s, "t", a, &err), TEG_ERR_ARGUMENT);
    assert_string_equal(err.message, "cannot write state: t: expected one of the model's 1 states, found no such name");
    assert_int_equal(teg_eval_state_set(s, "s", a, &err), TEG_ERR_ARGUMENT);
    assert_string_equal(err.message, "cannot write state: s: expected fp16 of shape 2, found fp32 of shape 3");
    teg_array_drop(NULL, a);
    teg_eval_state_free(s);
    program_free(&p);
}

/* ---- limits ---- */

static void test_memory_limit(void **state)
{
    (void)state;
    const struct teg_eval_options options = {.max_bytes = 1000000};
    struct program p = load_good(15, "",
                                 "tensor<fp32, [?, ?]> y = fill(shape = tensor<int32, [2]>([1000, 1000]), value = "
                                 "fp32(1))[name = string(\"f\")];\n",
                                 "y", &options);
    check_run(
        &p, NULL, NULL,
        "cannot run op: f (fill, iOS15): output of shape 1000x1000: expected it to fit into memory beside 0 bytes of "
        "values (limit 1000000), found no room");
    program_free(&p);
}

/* Sizes whose product passes 64 bits: no number wraps around to one that fits. */
static void test_overflowing_shapes(void **state)
{
    (void)state;
#define HUGE_3 "tensor<int32, [3]>([2147483647, 2147483647, 2147483647])"
#define NO_ROOM(op, shape)                                                                                             \
    "cannot run op: f (" op ", iOS15): output of shape " shape                                                         \
    ": expected it to fit into memory beside 0 bytes of values (limit 1000), found no room"
    static const char *const cases[][2] = {
        {"fill(shape = " HUGE_3 ", value = fp32(1))", NO_ROOM("fill", "2147483647x2147483647x2147483647")},
        {"tile(x = tensor<fp32, [1, 1, 2]>([[[1, 2]]]), reps = " HUGE_3 ")",
         NO_ROOM("tile", "2147483647x2147483647x4294967294")},
        {"reshape(x = tensor<fp32, [2]>([1, 2]), shape = " HUGE_3 ")",
         "cannot run op: f (reshape, iOS15): parameter shape: expected sizes and at most one -1, found 2147483647 at "
         "dimension 2"},
        {"pad(x = tensor<fp32, [1, 1, 1]>([[[1]]]), pad = tensor<int32, [6]>([2147483647, 2147483647, 2147483647, "
         "2147483647, 2147483647, 2147483647]), mode = string(\"constant\"), constant_val = fp32(0))",
         NO_ROOM("pad", "4294967295x4294967295x4294967295")},
        {"upsample_nearest_neighbor(x = tensor<fp32, [1, 1, 1]>([[[1]]]), scale_factor_height = int32(2147483647), "
         "scale_factor_width = int32(2147483647))",
         NO_ROOM("upsample_nearest_neighbor", "1x2147483647x2147483647")},
    };
    const struct teg_eval_options options = {.max_bytes = 1000};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[500];
        (void)snprintf(body, sizeof body, "tensor<fp32, [?, ?, ?]> y = %s[name = string(\"f\")];\n", cases[i][0]);
        struct program p = load_good(15, "", body, "y", &options);
        check_run(&p, NULL, NULL, cases[i][1]);
        program_free(&p);
    }
}

static void test_values_die(void **state)
{
    (void)state;
    /* Ten steps of a megabyte each: only two are ever alive. */
    char body[2000] = "tensor<fp32, [?]> v0 = fill(shape = tensor<int32, [1]>([250000]), value = fp32(1));\n";
    size_t at = strlen(body);
    for (int i = 1; i <= 10; i++)
        at += (size_t)snprintf(body + at, sizeof body - at, "tensor<fp32, [?]> v%d = square(x = v%d);\n", i, i - 1);
    snprintf(body + at, sizeof body - at, "fp32 y = reduce_sum(x = v10);\n");
    struct program p = load_good(15, "", body, "y", NULL);
    struct teg_eval_report report;
    char *const text = run_to_text(&p, NULL, NULL, &report);
    assert_string_equal(text, "scalar: 250000");
    assert_true(report.peak_bytes < 2100000);
    free(text);
    program_free(&p);
}

/* Loads and runs a program with every allocation failing in turn; nothing may leak. */
static void test_failing_allocations(void **state)
{
    (void)state;
    char *const text = program_text(18, STATE_INPUTS ", tensor<fp32, []> x0",
                                    STATE_BODY "fp32 half = const()[name = string(\"half\"), val = fp32(0.5)];\n"
                                               "fp32 z = mul(x = x0, y = half);\n"
                                               "tensor<fp16, [2]> k = reverse(x = b);\n"
                                               "tensor<int32, [2]> o = argsort(x = k);\n",
                                    "y, z, o");
    struct teg_error err = {0};
    struct teg_mil_program *const mil = parse_program(text, &err);
    const size_t two = 2;
    const float values[] = {1, 2};
    enum teg_status status = TEG_ERR_MEMORY;
    size_t n_failures = 0;
    for (size_t fail_at = 1; status != TEG_OK; fail_at++, n_failures++) {
        struct counting c;
        const struct teg_eval_options options = {.allocator = counting_init(&c, fail_at), .n_threads = 1};
        struct teg_eval *eval = NULL;
        struct teg_eval_state *s = NULL;
        struct teg_array *in[3] = {floats(1, &two, values), index_array(0), scalar_float(1)}, *out[3];
        status = teg_eval_new(mil, NULL, &options, &eval, &err);
        if (status == TEG_OK)
            status = teg_eval_state_new(mil, options.allocator, &s, &err);
        if (status == TEG_OK) {
            status = teg_eval_run(eval, in, s, NULL, out, NULL, &err);
            check_state(s, status == TEG_OK ? 1 : 0, status == TEG_OK ? 2 : 0);
            for (size_t i = 0; i < 3; i++)
                teg_array_drop(options.allocator, out[i]);
        }
        assert_true(status == TEG_OK || status == TEG_ERR_MEMORY);
        teg_eval_state_free(s);
        teg_eval_free(eval);
        for (size_t i = 0; i < 3; i++)
            teg_array_drop(NULL, in[i]);
        assert_int_equal(c.n_live, 0);
    }
    assert_true(n_failures > 15);
    teg_mil_free(mil);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unknown_ops),
        cmocka_unit_test(test_missing_function),
        cmocka_unit_test(test_inputs),
        cmocka_unit_test(test_outputs_that_no_op_makes),
        cmocka_unit_test(test_declared_types_bind),
        cmocka_unit_test(test_output_rounding),
        cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_emulation),
        cmocka_unit_test(test_whose_overflow),
        cmocka_unit_test(test_narrow_integers_wrap),
        cmocka_unit_test(test_cond),
        cmocka_unit_test(test_cond_errors),
        cmocka_unit_test(test_while_loop),
        cmocka_unit_test(test_loop_limit),
        cmocka_unit_test(test_loop_errors),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_stop_within),
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_state_errors),
        cmocka_unit_test(test_memory_limit),
        cmocka_unit_test(test_overflowing_shapes),
        cmocka_unit_test(test_values_die),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
