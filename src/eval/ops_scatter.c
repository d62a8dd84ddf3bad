/* eval/ops_scatter.c: scatter, scatter_along_axis, scatter_nd, in all modes.
 *
 * The output starts as a copy of data; updates are then applied in their order, by one thread, so that indices that
 * occur twice have one result. Modes are rows of a table: what is done to n neighbouring elements. */
#include <string.h>

#include "base/check.h"
#include "eval/index.h"
#include "eval/strided.h"

typedef void (*apply_fn)(void *dst, const void *src, size_t n);

#define U(v) ((uint32_t)(v))
#define MODES(X)                                                                                                       \
    X(update, b, b)                                                                                                    \
    X(add, a + b, (int32_t)(U(a) + U(b)))                                                                              \
    X(sub, a - b, (int32_t)(U(a) - U(b)))                                                                              \
    X(mul, a *b, (int32_t)(U(a) * U(b)))                                                                               \
    X(div, a / b, b ? (int32_t)(uint32_t)(uint64_t)((int64_t)a / b) : 0)                                               \
    X(max, a >= b || a != a ? a : b, a > b ? a : b)                                                                    \
    X(min, a <= b || a != a ? a : b, a < b ? a : b)

#define APPLY(name, type, result)                                                                                      \
    static void name(void *dst, const void *src, size_t n)                                                             \
    {                                                                                                                  \
        type *const restrict d = dst;                                                                                  \
        const type *const restrict s = src;                                                                            \
        for (size_t i = 0; i < n; i++) {                                                                               \
            const type a = d[i], b = s[i];                                                                             \
            (void)a;                                                                                                   \
            d[i] = result;                                                                                             \
        }                                                                                                              \
    }
#define X(name, float_result, int_result)                                                                              \
    APPLY(name##_floats, float, float_result) APPLY(name##_ints, int32_t, int_result)
MODES(X)
#undef X
APPLY(update_bools, uint8_t, b)

static const struct {
    const char *name;
    apply_fn apply[3]; /* by form */
} modes[] = {
#define X(name, ...) {#name, {name##_floats, name##_ints, NULL}},
    MODES(X)
#undef X
};

struct scatter {
    const struct teg_array *data, *indices, *updates;
    struct teg_array *y;
    apply_fn apply;
    size_t item;
};

static enum teg_status find_mode(struct teg_eval_call *c, struct scatter *s)
{
    struct teg_string mode;
    TRY(teg_arg_string(c, "mode", "add", &mode));
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (teg_string_is(mode, modes[i].name))
            s->apply = s->data->form == TEG_FORM_BOOL ? (i == 0 ? update_bools : NULL) : modes[i].apply[s->data->form];
    if (!s->apply)
        OP_FAIL(c, TEG_ERR_FORMAT,
                "parameter mode: expected update, add, sub, mul, div, max or min of numbers, found %.*s",
                (int)teg_min(mode.n_bytes, 60), mode.bytes);
    return TEG_OK;
}

static enum teg_status operands(struct teg_eval_call *c, struct scatter *s)
{
    *s = (struct scatter){0};
    TRY(teg_arg_any(c, "data", &s->data));
    TRY(teg_arg_form(c, "indices", TEG_FORM_I32, &s->indices));
    TRY(teg_arg_form(c, "updates", s->data->form, &s->updates));
    if (s->data->form > TEG_FORM_BOOL)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter data: expected numbers or bools, found strings or a list");
    s->item = teg_item_bytes(s->data);
    return find_mode(c, s);
}

static enum teg_status start(struct teg_eval_call *c, struct scatter *s)
{
    TRY(teg_output(c, 0, s->data->form, s->data->rank, s->data->dims, &s->y));
    memcpy(s->y->data, s->data->data, s->data->n * s->item);
    return TEG_OK;
}

static void apply_at(const struct scatter *s, size_t to, size_t from, size_t n)
{
    s->apply((char *)s->y->data + to * s->item, (const char *)s->updates->data + from * s->item, n);
}

/* updates must have the shape head ++ tail. */
static enum teg_status check_updates(struct teg_eval_call *c, const struct scatter *s, const size_t *shape,
                                     uint32_t rank)
{
    bool fits = s->updates->rank == rank;
    for (uint32_t d = 0; fits && d < rank; d++)
        fits = s->updates->dims[d] == shape[d];
    if (!fits)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter updates: expected shape %s, found %s",
                teg_shape_text(rank < TEG_MIL_MAX_RANK ? rank : TEG_MIL_MAX_RANK, shape).text,
                teg_shape_text(s->updates->rank, s->updates->dims).text);
    return TEG_OK;
}

static uint32_t append(size_t *shape, uint32_t rank, const size_t *dims, uint32_t begin, uint32_t end)
{
    for (uint32_t d = begin; d < end; d++)
        shape[rank++] = dims[d];
    return rank;
}

static size_t product(const size_t *dims, uint32_t begin, uint32_t end)
{
    size_t n = 1;
    for (uint32_t d = begin; d < end; d++)
        n *= dims[d];
    return n;
}

static enum teg_status op_scatter(struct teg_eval_call *c)
{
    struct scatter s;
    uint32_t axis, rank;
    size_t shape[2 * TEG_MIL_MAX_RANK], *settled;
    TRY(operands(c, &s));
    TRY(teg_arg_axis(c, "axis", 0, s.data->rank, &axis));
    rank = append(shape, 0, s.data->dims, 0, axis);
    rank = append(shape, rank, s.indices->dims, 0, s.indices->rank);
    rank = append(shape, rank, s.data->dims, axis + 1, s.data->rank);
    TRY(check_updates(c, &s, shape, rank));
    TRY(teg_settle_indices(c, s.indices, &s.data->dims[axis], 1, &settled));
    TRY(start(c, &s));
    const size_t outer = product(s.data->dims, 0, axis), n = s.data->dims[axis], m = s.indices->n;
    const size_t inner = product(s.data->dims, axis + 1, s.data->rank);
    for (size_t o = 0; o < outer; o++)
        for (size_t i = 0; i < m; i++)
            if (settled[i] != TEG_INDEX_OUTSIDE)
                apply_at(&s, (o * n + settled[i]) * inner, (o * m + i) * inner, inner);
    return TEG_OK;
}

static enum teg_status op_scatter_along_axis(struct teg_eval_call *c)
{
    struct scatter s;
    uint32_t axis;
    size_t *settled;
    TRY(operands(c, &s));
    TRY(teg_arg_axis(c, "axis", 0, s.data->rank, &axis));
    TRY(check_updates(c, &s, s.indices->dims, s.indices->rank));
    bool fits = s.data->rank == s.indices->rank;
    for (uint32_t d = 0; fits && d < s.data->rank; d++)
        fits = d == axis || s.data->dims[d] == s.indices->dims[d];
    if (!fits)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter indices: expected the shape of data but along the axis, found %s and %s",
                teg_shape_text(s.indices->rank, s.indices->dims).text, teg_shape_text(s.data->rank, s.data->dims).text);
    TRY(teg_settle_indices(c, s.indices, &s.data->dims[axis], 1, &settled));
    TRY(start(c, &s));
    const size_t n = s.data->dims[axis], m = s.indices->dims[axis];
    const size_t inner = product(s.data->dims, axis + 1, s.data->rank);
    for (size_t i = 0; i < s.indices->n; i++)
        if (settled[i] != TEG_INDEX_OUTSIDE)
            apply_at(&s, (i / (m * inner) * n + settled[i]) * inner + i % inner, i, 1);
    return TEG_OK;
}

static enum teg_status op_scatter_nd(struct teg_eval_call *c)
{
    struct scatter s;
    size_t shape[2 * TEG_MIL_MAX_RANK], *settled;
    TRY(operands(c, &s));
    const size_t k = s.indices->rank ? s.indices->dims[s.indices->rank - 1] : 0;
    if (!k || k > s.data->rank)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter indices: expected tuples of 1 to %u indices, found shape %s",
                s.data->rank, teg_shape_text(s.indices->rank, s.indices->dims).text);
    uint32_t rank = append(shape, 0, s.indices->dims, 0, s.indices->rank - 1);
    rank = append(shape, rank, s.data->dims, (uint32_t)k, s.data->rank);
    TRY(check_updates(c, &s, shape, rank));
    TRY(teg_settle_indices(c, s.indices, s.data->dims, k, &settled));
    TRY(start(c, &s));
    const size_t inner = product(s.data->dims, (uint32_t)k, s.data->rank);
    for (size_t i = 0; i < s.indices->n / k; i++) {
        size_t at = 0;
        for (size_t d = 0; d < k && at != TEG_INDEX_OUTSIDE; d++) {
            const size_t index = settled[i * k + d];
            at = index == TEG_INDEX_OUTSIDE ? TEG_INDEX_OUTSIDE : at * s.data->dims[d] + index;
        }
        if (at != TEG_INDEX_OUTSIDE)
            apply_at(&s, at * inner, i * inner, inner);
    }
    return TEG_OK;
}

const struct teg_eval_row teg_eval_rows_scatter[] = {
    {"scatter", 6, op_scatter},
    {"scatter_along_axis", 6, op_scatter_along_axis},
    {"scatter_nd", 6, op_scatter_nd},
    {NULL, 0, NULL},
};
