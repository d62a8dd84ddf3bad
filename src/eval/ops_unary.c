/* eval/ops_unary.c: ops of one operand, element by element: arithmetic, activations, cast.
 *
 * Each is one line of a list below: its name and its formula of v (and of the parameters a and b). The lists make the
 * loops, the op functions and the rows of the table. */
#include <limits.h>
#include <math.h>

#include "eval/eval.h"
#include "eval/vmath.h"

struct job {
    const void *x;
    void *y;
    float a, b;
    const float *alpha, *beta; /* of channels */
    size_t n_channels, channel_elements;
};

static float signum(float v)
{
    return v > 0 ? 1.0f : v < 0 ? -1.0f : v; /* zero stays, NaN stays */
}

static inline float sigmoid(float v)
{
    return 1.0f / (1.0f + teg_vexp(-v));
}

static float softplus(float v)
{
    return log1pf(teg_vexp(-fabsf(v))) + fmaxf(v, 0.0f);
}

/* Like maximum of numpy: NaN wins. */
static inline float at_least(float v, float low)
{
    return v < low ? low : v;
}

static inline float at_most(float v, float high)
{
    return v > high ? high : v;
}

/*    name, rough cost, result */
#define PLAIN(X)                                                                                                       \
    X(acos, 16, acosf(v))                                                                                              \
    X(asin, 16, asinf(v))                                                                                              \
    X(atan, 16, atanf(v))                                                                                              \
    X(atanh, 16, atanhf(v))                                                                                            \
    X(ceil, 1, -teg_vfloor(-v))                                                                                        \
    X(cos, 16, cosf(v))                                                                                                \
    X(cosh, 16, coshf(v))                                                                                              \
    X(erf, 8, teg_verf(v))                                                                                             \
    X(exp, 4, teg_vexp(v))                                                                                             \
    X(floor, 1, teg_vfloor(v))                                                                                         \
    X(round, 1, rintf(v))                                                                                              \
    X(sin, 16, sinf(v))                                                                                                \
    X(sinh, 16, sinhf(v))                                                                                              \
    X(sqrt, 4, sqrtf(v))                                                                                               \
    X(tan, 16, tanf(v))                                                                                                \
    X(tanh, 6, teg_vtanh(v))                                                                                           \
    X(relu, 1, at_least(v, 0.0f))                                                                                      \
    X(relu6, 1, at_most(at_least(v, 0.0f), 6.0f))                                                                      \
    X(sigmoid, 10, sigmoid(v))                                                                                         \
    X(silu, 10, v *sigmoid(v))                                                                                         \
    X(softplus, 20, softplus(v))                                                                                       \
    X(softsign, 4, v / (1.0f + fabsf(v)))

/*    name, rough cost, default of epsilon (a), result */
#define EPSILON(X)                                                                                                     \
    X(log, 10, 1e-45f, logf(v + a))                                                                                    \
    X(rsqrt, 6, 1e-12f, 1.0f / sqrtf(v + a))                                                                           \
    X(inverse, 4, 1e-4f, 1.0f / (v + a))

/*    name, rough cost, parameters: alpha is a, beta is b; result */
#define ALPHA_BETA(X)                                                                                                  \
    X(clip, 1, 2, at_most(at_least(v, a), b))                                                                          \
    X(clamped_relu, 2, 2, at_most(v >= 0 ? v : a * v, b))                                                              \
    X(elu, 8, 1, v < 0 ? a * expm1f(v) : v)                                                                            \
    X(leaky_relu, 1, 1, v < 0 ? a * v : v)                                                                             \
    X(linear_activation, 1, 2, a *v + b)                                                                               \
    X(scaled_tanh, 6, 2, a *teg_vtanh(v *b))                                                                           \
    X(sigmoid_hard, 2, 2, at_most(at_least(a *v + b, 0.0f), 1.0f))                                                     \
    X(thresholded_relu, 1, 1, v < a ? 0.0f : v)

/*    name, rough cost, float result, integer result (of int32_t i, wrapping) */
#define WITH_INT(X)                                                                                                    \
    X(abs, 1, fabsf(v), i < 0 ? (int32_t)(0u - (uint32_t)i) : i)                                                       \
    X(exp2, 8, exp2f(v), i < 0 ? 0 : i < 31 ? (int32_t)1 << i : 0)                                                     \
    X(sign, 1, signum(v), (i > 0) - (i < 0))                                                                           \
    X(square, 1, v *v, (int32_t)((uint32_t)i * (uint32_t)i))

#define FLOAT_LOOP(name, result)                                                                                       \
    static void name##_floats(void *ctx, size_t begin, size_t end)                                                     \
    {                                                                                                                  \
        const struct job *const j = ctx;                                                                               \
        const float *const x = j->x, a = j->a, b = j->b;                                                               \
        float *const y = j->y;                                                                                         \
        (void)a, (void)b;                                                                                              \
        for (size_t k = begin; k < end; k++) {                                                                         \
            const float v = x[k];                                                                                      \
            y[k] = result;                                                                                             \
        }                                                                                                              \
    }
#define INT_LOOP(name, result)                                                                                         \
    static void name##_ints(void *ctx, size_t begin, size_t end)                                                       \
    {                                                                                                                  \
        const struct job *const j = ctx;                                                                               \
        const int32_t *const x = j->x;                                                                                 \
        int32_t *const y = j->y;                                                                                       \
        for (size_t k = begin; k < end; k++) {                                                                         \
            const int32_t i = x[k];                                                                                    \
            y[k] = result;                                                                                             \
        }                                                                                                              \
    }

typedef void (*loop_fn)(void *ctx, size_t begin, size_t end);

/* x in, output 0 of its shape and form out, through the loop of its form. */
static enum teg_status run(struct teg_eval_call *c, struct job *job, loop_fn floats, loop_fn ints, size_t cost)
{
    const struct teg_array *x;
    struct teg_array *y;
    if (ints && teg_arg(c, "x") && teg_arg(c, "x")->form == TEG_FORM_I32)
        TRY(teg_arg_form(c, "x", TEG_FORM_I32, &x));
    else
        TRY(teg_arg_form(c, "x", TEG_FORM_F32, &x));
    TRY(teg_output(c, 0, x->form, x->rank, x->dims, &y));
    job->x = x->data;
    job->y = y->data;
    teg_op_parallel(c, x->n, cost, x->form == TEG_FORM_I32 ? ints : floats, job);
    return TEG_OK;
}

#define X(name, cost, result)                                                                                          \
    FLOAT_LOOP(name, result)                                                                                           \
    static enum teg_status op_##name(struct teg_eval_call *c)                                                          \
    {                                                                                                                  \
        return run(c, &(struct job){0}, name##_floats, NULL, cost);                                                    \
    }
PLAIN(X)
#undef X

#define X(name, cost, otherwise, result)                                                                               \
    FLOAT_LOOP(name, result)                                                                                           \
    static enum teg_status op_##name(struct teg_eval_call *c)                                                          \
    {                                                                                                                  \
        struct job job = {0};                                                                                          \
        TRY(teg_arg_float(c, "epsilon", otherwise, &job.a));                                                           \
        return run(c, &job, name##_floats, NULL, cost);                                                                \
    }
EPSILON(X)
#undef X

static enum teg_status required_float(struct teg_eval_call *c, const char *name, float *out)
{
    const struct teg_array *a;
    TRY(teg_arg_form(c, name, TEG_FORM_F32, &a));
    return teg_arg_float(c, name, 0, out);
}

#define X(name, cost, n_parameters, result)                                                                            \
    FLOAT_LOOP(name, result)                                                                                           \
    static enum teg_status op_##name(struct teg_eval_call *c)                                                          \
    {                                                                                                                  \
        struct job job = {0};                                                                                          \
        TRY(required_float(c, "alpha", &job.a));                                                                       \
        if (n_parameters > 1)                                                                                          \
            TRY(required_float(c, "beta", &job.b));                                                                    \
        return run(c, &job, name##_floats, NULL, cost);                                                                \
    }
ALPHA_BETA(X)
#undef X

#define X(name, cost, result, int_result)                                                                              \
    FLOAT_LOOP(name, result)                                                                                           \
    INT_LOOP(name, int_result)                                                                                         \
    static enum teg_status op_##name(struct teg_eval_call *c)                                                          \
    {                                                                                                                  \
        return run(c, &(struct job){0}, name##_floats, name##_ints, cost);                                             \
    }
WITH_INT(X)
#undef X

/* ---- those that fit no list ---- */

static void threshold_floats(void *ctx, size_t begin, size_t end)
{
    const struct job *const j = ctx;
    for (size_t k = begin; k < end; k++)
        ((float *)j->y)[k] = at_least(((const float *)j->x)[k], j->a);
}

static void threshold_ints(void *ctx, size_t begin, size_t end)
{
    const struct job *const j = ctx;
    const int32_t *const x = j->x, low = *(const int32_t *)(const void *)j->alpha;
    for (size_t k = begin; k < end; k++)
        ((int32_t *)j->y)[k] = x[k] < low ? low : x[k];
}

static enum teg_status op_threshold(struct teg_eval_call *c)
{
    const struct teg_array *x;
    struct job job = {0};
    int32_t low = 0;
    TRY(teg_arg_any(c, "x", &x));
    if (x->form == TEG_FORM_I32)
        TRY(teg_arg_int(c, "alpha", 0, &low));
    else
        TRY(required_float(c, "alpha", &job.a));
    job.alpha = (const float *)(const void *)&low;
    return run(c, &job, threshold_floats, threshold_ints, 1);
}

FLOAT_LOOP(gelu_exact, 0.5f * v * (1.0f + teg_verf(v * 0.70710678118654752f)))
FLOAT_LOOP(gelu_tanh, 0.5f * v * (1.0f + teg_vtanh(0.79788456080286536f * (v + 0.044715f * v * v * v))))
FLOAT_LOOP(gelu_sigmoid, v *sigmoid(1.702f * v))

static enum teg_status op_gelu(struct teg_eval_call *c)
{
    static const struct {
        const char *mode;
        loop_fn loop;
    } modes[] = {{"EXACT", gelu_exact_floats},
                 {"TANH_APPROXIMATION", gelu_tanh_floats},
                 {"SIGMOID_APPROXIMATION", gelu_sigmoid_floats}};
    struct teg_string mode;
    TRY(teg_arg_string(c, "mode", "EXACT", &mode));
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (teg_string_is(mode, modes[i].mode))
            return run(c, &(struct job){0}, modes[i].loop, NULL, 20);
    OP_FAIL(c, TEG_ERR_FORMAT,
            "parameter mode: expected EXACT, TANH_APPROXIMATION or SIGMOID_APPROXIMATION, found %.*s",
            (int)(mode.n_bytes < 60 ? mode.n_bytes : 60), mode.bytes);
}

static void logical_not_bools(void *ctx, size_t begin, size_t end)
{
    const struct job *const j = ctx;
    for (size_t k = begin; k < end; k++)
        ((uint8_t *)j->y)[k] = !((const uint8_t *)j->x)[k];
}

static enum teg_status op_logical_not(struct teg_eval_call *c)
{
    const struct teg_array *x;
    struct teg_array *y;
    TRY(teg_arg_form(c, "x", TEG_FORM_BOOL, &x));
    TRY(teg_output(c, 0, TEG_FORM_BOOL, x->rank, x->dims, &y));
    struct job job = {.x = x->b, .y = y->b};
    teg_op_parallel(c, x->n, 1, logical_not_bools, &job);
    return TEG_OK;
}

/* ---- activations with one parameter a channel (dimension 1) ---- */

/* begin, end count rows of (batch, channel). */
static void prelu_rows(void *ctx, size_t begin, size_t end)
{
    const struct job *const j = ctx;
    const size_t n = j->channel_elements;
    for (size_t r = begin; r < end; r++) {
        const float a = j->alpha[r % j->n_channels], *const x = (const float *)j->x + r * n;
        float *const y = (float *)j->y + r * n;
        for (size_t k = 0; k < n; k++)
            y[k] = x[k] < 0 ? a * x[k] : x[k];
    }
}

static void softplus_rows(void *ctx, size_t begin, size_t end)
{
    const struct job *const j = ctx;
    const size_t n = j->channel_elements;
    for (size_t r = begin; r < end; r++) {
        const float a = j->alpha[r % j->n_channels], b = j->beta[r % j->n_channels];
        const float *const x = (const float *)j->x + r * n;
        float *const y = (float *)j->y + r * n;
        for (size_t k = 0; k < n; k++)
            y[k] = a * softplus(b * x[k]);
    }
}

static enum teg_status channel_parameter(struct teg_eval_call *c, const char *name, const struct teg_array *x,
                                         const float **out)
{
    const struct teg_array *p;
    TRY(teg_arg_form(c, name, TEG_FORM_F32, &p));
    if (x->rank < 2 || p->n != x->dims[1])
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter %s: expected one value a channel of shape %s, found %zu", name,
                teg_shape_text(x->rank, x->dims).text, p->n);
    *out = p->f32;
    return TEG_OK;
}

static enum teg_status by_channel(struct teg_eval_call *c, bool has_beta, loop_fn rows, size_t cost)
{
    const struct teg_array *x;
    struct teg_array *y;
    struct job job = {0};
    TRY(teg_arg_form(c, "x", TEG_FORM_F32, &x));
    TRY(channel_parameter(c, "alpha", x, &job.alpha));
    if (has_beta)
        TRY(channel_parameter(c, "beta", x, &job.beta));
    TRY(teg_output(c, 0, TEG_FORM_F32, x->rank, x->dims, &y));
    if (!x->n)
        return TEG_OK;
    job.x = x->f32;
    job.y = y->f32;
    job.n_channels = x->dims[1];
    job.channel_elements = x->n / x->dims[0] / x->dims[1];
    teg_op_parallel(c, x->dims[0] * x->dims[1], cost * job.channel_elements, rows, &job);
    return TEG_OK;
}

static enum teg_status op_prelu(struct teg_eval_call *c)
{
    return by_channel(c, false, prelu_rows, 1);
}

static enum teg_status op_softplus_parametric(struct teg_eval_call *c)
{
    return by_channel(c, true, softplus_rows, 20);
}

/* ---- cast ---- */

/* Truncates toward zero; what an int32 cannot hold becomes its nearest end, NaN becomes 0. */
static int32_t to_int(float v)
{
    return v >= 2147483648.0f ? INT32_MAX : v <= -2147483648.0f ? INT32_MIN : v != v ? 0 : (int32_t)v;
}

#define CAST_LOOP(name, from, to, result)                                                                              \
    static void name(void *ctx, size_t begin, size_t end)                                                              \
    {                                                                                                                  \
        const struct job *const j = ctx;                                                                               \
        const from *const x = j->x;                                                                                    \
        to *const y = j->y;                                                                                            \
        for (size_t k = begin; k < end; k++) {                                                                         \
            const from v = x[k];                                                                                       \
            y[k] = result;                                                                                             \
        }                                                                                                              \
    }
CAST_LOOP(float_to_int, float, int32_t, to_int(v))
CAST_LOOP(float_to_bool, float, uint8_t, v != 0)
CAST_LOOP(int_to_float, int32_t, float, (float)v)
CAST_LOOP(int_to_bool, int32_t, uint8_t, v != 0)
CAST_LOOP(bool_to_float, uint8_t, float, v)
CAST_LOOP(bool_to_int, uint8_t, int32_t, v)

static enum teg_status op_cast(struct teg_eval_call *c)
{
    static const loop_fn loops[3][3] = {[TEG_FORM_F32] = {NULL, float_to_int, float_to_bool},
                                        [TEG_FORM_I32] = {int_to_float, NULL, int_to_bool},
                                        [TEG_FORM_BOOL] = {bool_to_float, bool_to_int, NULL}};
    const struct teg_array *x;
    struct teg_array *y;
    struct teg_string dtype;
    TRY(teg_arg_any(c, "x", &x));
    TRY(teg_arg_string(c, "dtype", "", &dtype));
    const enum teg_mil_dtype declared = teg_output_dtype(c, 0);
    if (!teg_string_is(dtype, teg_mil_dtype_info(declared)->name))
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter dtype: expected the output's type %s, found %.*s",
                teg_mil_dtype_info(declared)->name, (int)(dtype.n_bytes < 60 ? dtype.n_bytes : 60), dtype.bytes);
    const enum teg_form form = teg_form_of(declared);
    if (x->form > TEG_FORM_BOOL || form > TEG_FORM_BOOL)
        OP_FAIL(c, TEG_ERR_UNSUPPORTED, "parameter x: expected numbers or bools, found strings or a list");
    if (form == x->form)
        return teg_output_share(c, 0, x, x->rank, x->dims);
    TRY(teg_output(c, 0, form, x->rank, x->dims, &y));
    struct job job = {.x = x->data, .y = y->data};
    teg_op_parallel(c, x->n, 1, loops[x->form][form], &job);
    return TEG_OK;
}

const struct teg_eval_row teg_eval_rows_unary[] = {
#define X(name, ...) {#name, 6, op_##name},
    PLAIN(X) EPSILON(X) ALPHA_BETA(X) WITH_INT(X)
#undef X
        {"threshold", 6, op_threshold},
    {"gelu", 6, op_gelu},
    {"logical_not", 6, op_logical_not},
    {"prelu", 6, op_prelu},
    {"softplus_parametric", 6, op_softplus_parametric},
    {"cast", 6, op_cast},
    {NULL, 0, NULL},
};
