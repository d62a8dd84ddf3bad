/* eval/ops_binary.c: ops of two operands, element by element with broadcasting, and select.
 *
 * Integer arithmetic wraps; a division or remainder by zero gives 0, as numpy does. Float maximum and minimum give NaN
 * where an operand is NaN. One line of a list each; the lists make loops, op functions and rows. */
#include <math.h>

#include "eval/broadcast.h"

/* Quotient rounded down and remainder with the divisor's sign: q * b + r == a as nearly as floats allow. */
static float mod_float(float a, float b)
{
    const float r = fmodf(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static float floor_div_float(float a, float b)
{
    if (b == 0)
        return a / b;
    const float q = (a - mod_float(a, b)) / b, down = floorf(q);
    return q - down > 0.5f ? down + 1.0f : down;
}

static int32_t floor_div_int(int32_t a, int32_t b)
{
    if (b == 0)
        return 0;
    const int64_t q = (int64_t)a / b;
    return (int32_t)(uint32_t)(uint64_t)(q - ((int64_t)a % b != 0 && (a < 0) != (b < 0)));
}

static int32_t mod_int(int32_t a, int32_t b)
{
    if (b == 0)
        return 0;
    const int64_t r = (int64_t)a % b;
    return (int32_t)(r && (r < 0) != (b < 0) ? r + b : r);
}

static int32_t div_int(int32_t a, int32_t b)
{
    return b ? (int32_t)(uint32_t)(uint64_t)((int64_t)a / b) : 0;
}

static int32_t pow_int(int32_t a, int32_t b)
{
    if (b < 0)
        return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
    uint32_t result = 1, base = (uint32_t)a;
    for (uint32_t e = (uint32_t)b; e; e >>= 1) {
        result *= e & 1 ? base : 1u;
        base *= base;
    }
    return (int32_t)result;
}

#define U(v) ((uint32_t)(v))
/*    name, rough cost, float result, integer result */
#define ARITHMETIC(X)                                                                                                  \
    X(add, 1, a + b, (int32_t)(U(a) + U(b)))                                                                           \
    X(sub, 1, a - b, (int32_t)(U(a) - U(b)))                                                                           \
    X(mul, 1, a *b, (int32_t)(U(a) * U(b)))                                                                            \
    X(real_div, 2, a / b, div_int(a, b))                                                                               \
    X(floor_div, 16, floor_div_float(a, b), floor_div_int(a, b))                                                       \
    X(mod, 16, mod_float(a, b), mod_int(a, b))                                                                         \
    X(pow, 20, powf(a, b), pow_int(a, b))                                                                              \
    X(maximum, 1, a >= b || a != a ? a : b, a > b ? a : b)                                                             \
    X(minimum, 1, a <= b || a != a ? a : b, a < b ? a : b)
#define COMPARE(X)                                                                                                     \
    X(equal, a == b)                                                                                                   \
    X(not_equal, a != b)                                                                                               \
    X(greater, a > b)                                                                                                  \
    X(greater_equal, a >= b)                                                                                           \
    X(less, a < b)                                                                                                     \
    X(less_equal, a <= b)
#define LOGICAL(X)                                                                                                     \
    X(logical_and, a &b)                                                                                               \
    X(logical_or, a | b)                                                                                               \
    X(logical_xor, a ^ b)

/* The three loops that occur, each with constant strides, so that they vectorise. */
#define ROW(name, type, to, result)                                                                                    \
    static void name(void *out, const void *const *in, const size_t *stride, size_t n)                                 \
    {                                                                                                                  \
        const type *const x = in[0], *const y = in[1];                                                                 \
        to *const restrict z = out;                                                                                    \
        const size_t sx = stride[0], sy = stride[1];                                                                   \
        if (sx == 1 && sy == 1) {                                                                                      \
            for (size_t i = 0; i < n; i++) {                                                                           \
                const type a = x[i], b = y[i];                                                                         \
                z[i] = (to)(result);                                                                                   \
            }                                                                                                          \
        } else if (sx == 1 && sy == 0) {                                                                               \
            const type b = *y;                                                                                         \
            for (size_t i = 0; i < n; i++) {                                                                           \
                const type a = x[i];                                                                                   \
                z[i] = (to)(result);                                                                                   \
            }                                                                                                          \
        } else {                                                                                                       \
            for (size_t i = 0; i < n; i++) {                                                                           \
                const type a = x[i * sx], b = y[i * sy];                                                               \
                z[i] = (to)(result);                                                                                   \
            }                                                                                                          \
        }                                                                                                              \
    }

#define X(name, cost, float_result, int_result)                                                                        \
    ROW(name##_floats, float, float, float_result) ROW(name##_ints, int32_t, int32_t, int_result)
ARITHMETIC(X)
#undef X
#define X(name, result)                                                                                                \
    ROW(name##_floats, float, uint8_t, result)                                                                         \
    ROW(name##_ints, int32_t, uint8_t, result)                                                                         \
    ROW(name##_bools, uint8_t, uint8_t, result)
COMPARE(X)
#undef X
#define X(name, result) ROW(name##_bools, uint8_t, uint8_t, result)
LOGICAL(X)
#undef X

/* rows: by form; NULL where the op has none. They give values of the operands' form, or truths. */
static enum teg_status run(struct teg_eval_call *c, const teg_row_fn rows[3], bool gives_truths, size_t cost)
{
    const struct teg_array *in[2];
    TRY(teg_arg_any(c, "x", &in[0]));
    TRY(teg_arg_any(c, "y", &in[1]));
    if (in[0]->form > TEG_FORM_BOOL || !rows[in[0]->form])
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter x: expected %s, found another type",
                rows[TEG_FORM_F32] ? "numbers" : "bools");
    if (in[0]->form != in[1]->form)
        OP_FAIL(c, TEG_ERR_FORMAT, "operands: expected one type, found %s and %s",
                teg_mil_dtype_info(in[0]->dtype)->name, teg_mil_dtype_info(in[1]->dtype)->name);
    return teg_broadcast(c, in, 2, gives_truths ? TEG_FORM_BOOL : in[0]->form, rows[in[0]->form], cost);
}

#define X(name, cost, float_result, int_result)                                                                        \
    static enum teg_status op_##name(struct teg_eval_call *c)                                                          \
    {                                                                                                                  \
        return run(c, (const teg_row_fn[3]){name##_floats, name##_ints, NULL}, false, cost);                           \
    }
ARITHMETIC(X)
#undef X
#define X(name, result)                                                                                                \
    static enum teg_status op_##name(struct teg_eval_call *c)                                                          \
    {                                                                                                                  \
        return run(c, (const teg_row_fn[3]){name##_floats, name##_ints, name##_bools}, true, 1);                       \
    }
COMPARE(X)
#undef X
#define X(name, result)                                                                                                \
    static enum teg_status op_##name(struct teg_eval_call *c)                                                          \
    {                                                                                                                  \
        return run(c, (const teg_row_fn[3]){NULL, NULL, name##_bools}, true, 1);                                       \
    }
LOGICAL(X)
#undef X

/* ---- select ---- */

#define SELECT_ROW(name, type)                                                                                         \
    static void name(void *out, const void *const *in, const size_t *stride, size_t n)                                 \
    {                                                                                                                  \
        const uint8_t *const cond = in[0];                                                                             \
        const type *const a = in[1], *const b = in[2];                                                                 \
        type *const z = out;                                                                                           \
        for (size_t i = 0; i < n; i++)                                                                                 \
            z[i] = cond[i * stride[0]] ? a[i * stride[1]] : b[i * stride[2]];                                          \
    }
SELECT_ROW(select_words, uint32_t)
SELECT_ROW(select_bytes, uint8_t)

static enum teg_status op_select(struct teg_eval_call *c)
{
    const struct teg_array *in[3];
    TRY(teg_arg_form(c, "cond", TEG_FORM_BOOL, &in[0]));
    TRY(teg_arg_any(c, "a", &in[1]));
    TRY(teg_arg_form(c, "b", in[1]->form, &in[2]));
    if (in[1]->form > TEG_FORM_BOOL)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter a: expected numbers or bools, found strings or a list");
    return teg_broadcast(c, in, 3, in[1]->form, in[1]->form == TEG_FORM_BOOL ? select_bytes : select_words, 1);
}

const struct teg_eval_row teg_eval_rows_binary[] = {
#define X(name, ...) {#name, 6, op_##name},
    ARITHMETIC(X) COMPARE(X) LOGICAL(X)
#undef X
        {"select", 6, op_select},
    {NULL, 0, NULL},
};
