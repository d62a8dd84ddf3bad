/* eval/ops_shape.c: ops that give the same values another shape, and shape itself. None of them copies. */
#include <string.h>

#include "base/check.h"
#include "eval/eval.h"

/* Settles a -1 in `shape` and checks the volume. */
static enum teg_status reshape_to(struct teg_eval_call *c, const struct teg_array *x, const int64_t *shape, size_t rank)
{
    size_t dims[TEG_MIL_MAX_RANK] = {0}, known = 1, inferred = SIZE_MAX;
    for (size_t d = 0; d < rank; d++) {
        if (shape[d] == -1 && inferred == SIZE_MAX) {
            inferred = d;
            continue;
        }
        if (shape[d] < 0 || !teg_mul(known, (size_t)shape[d], &known))
            OP_FAIL(c, TEG_ERR_FORMAT,
                    "parameter shape: expected sizes and at most one -1, found %lld at dimension %zu",
                    (long long)shape[d], d);
        dims[d] = (size_t)shape[d];
    }
    if (inferred != SIZE_MAX)
        dims[inferred] = known ? x->n / known : 0;
    if (inferred == SIZE_MAX ? known != x->n : dims[inferred] * known != x->n)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter shape: expected %zu elements as x of shape %s has, found %s", x->n,
                teg_shape_text(x->rank, x->dims).text, teg_shape_text((uint32_t)rank, dims).text);
    return teg_output_share(c, 0, x, (uint32_t)rank, dims);
}

/* What a 0 in `shape` stands for: up to iOS16 the size of the same dimension, ranks being equal; from iOS17 that of the
 * dimension as far from the right, or 1 where x has none. */
static enum teg_status settle_zero(struct teg_eval_call *c, const struct teg_array *x, size_t d, size_t rank,
                                   int64_t *out)
{
    if (c->opset >= 8) {
        *out = d + x->rank >= rank ? (int64_t)x->dims[d + x->rank - rank] : 1;
        return TEG_OK;
    }
    if (x->rank != rank)
        OP_FAIL(c, TEG_ERR_FORMAT,
                "parameter shape: expected as many sizes as x has dimensions (%u) where one is 0, "
                "found %zu",
                x->rank, rank);
    *out = (int64_t)x->dims[d];
    return TEG_OK;
}

static enum teg_status op_reshape(struct teg_eval_call *c)
{
    const struct teg_array *x;
    int32_t given[TEG_MIL_MAX_RANK];
    int64_t shape[TEG_MIL_MAX_RANK];
    size_t rank;
    TRY(teg_arg_any(c, "x", &x));
    TRY(teg_arg_ints(c, "shape", given, TEG_MIL_MAX_RANK, &rank));
    if (rank == SIZE_MAX)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter shape: expected a value, found none");
    for (size_t d = 0; d < rank; d++) {
        shape[d] = given[d];
        if (!given[d])
            TRY(settle_zero(c, x, d, rank, &shape[d]));
    }
    return reshape_to(c, x, shape, rank);
}

/* The i-th of a tuple parameter: its variables may be one each or one list. */
static enum teg_status tuple_item(const struct teg_eval_call *c, const char *name, size_t i, int32_t *out)
{
    const struct teg_array *a = teg_arg_at(c, name, teg_arg_count(c, name) == 1 ? 0 : i);
    const size_t at = teg_arg_count(c, name) == 1 ? i : 0;
    if (!a || at >= a->n || (a->form != TEG_FORM_I32 && a->form != TEG_FORM_BOOL))
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter %s: expected a value for each of ref_tensors, found none for number %zu",
                name, i);
    *out = a->form == TEG_FORM_BOOL ? a->b[at] : a->i32[at];
    return TEG_OK;
}

static enum teg_status op_reshape_like(struct teg_eval_call *c)
{
    const struct teg_array *x;
    int64_t shape[TEG_MIL_MAX_RANK];
    size_t rank = 0;
    TRY(teg_arg_any(c, "x", &x));
    for (size_t i = 0; i < teg_arg_count(c, "ref_tensors"); i++) {
        const struct teg_array *const ref = teg_arg_at(c, "ref_tensors", i);
        int32_t begin, end, end_mask;
        TRY(tuple_item(c, "begins", i, &begin));
        TRY(tuple_item(c, "ends", i, &end));
        TRY(tuple_item(c, "end_masks", i, &end_mask));
        if (!ref)
            OP_FAIL(c, TEG_ERR_FORMAT, "parameter ref_tensors: expected a value for number %zu, found none", i);
        const int64_t n = ref->rank;
        int64_t from = begin < 0 ? begin + n : begin, to = end_mask ? n : end < 0 ? end + n : end;
        from = from < 0 ? 0 : from;
        to = to > n ? n : to;
        for (; from < to; from++) {
            if (rank == TEG_MIL_MAX_RANK)
                OP_FAIL(c, TEG_ERR_UNSUPPORTED, "output: expected at most %d dimensions, found more", TEG_MIL_MAX_RANK);
            shape[rank++] = (int64_t)ref->dims[from];
        }
    }
    return reshape_to(c, x, shape, rank);
}

static enum teg_status op_expand_dims(struct teg_eval_call *c)
{
    const struct teg_array *x;
    int32_t axes[TEG_MIL_MAX_RANK];
    size_t n, dims[TEG_MIL_MAX_RANK];
    uint32_t mask, at = 0;
    TRY(teg_arg_any(c, "x", &x));
    TRY(teg_arg_ints(c, "axes", axes, TEG_MIL_MAX_RANK, &n));
    if (n == SIZE_MAX || n + x->rank > TEG_MIL_MAX_RANK)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter axes: expected axes of at most %d dimensions, found none or too many",
                TEG_MIL_MAX_RANK);
    const uint32_t rank = x->rank + (uint32_t)n;
    TRY(teg_arg_axes(c, "axes", rank, 0, &mask));
    for (uint32_t d = 0; d < rank; d++)
        dims[d] = mask >> d & 1 ? 1 : x->dims[at++];
    return teg_output_share(c, 0, x, rank, dims);
}

/* Listed dimensions that are not 1 are kept. */
static enum teg_status op_squeeze(struct teg_eval_call *c)
{
    const struct teg_array *x;
    size_t dims[TEG_MIL_MAX_RANK];
    uint32_t mask, rank = 0;
    TRY(teg_arg_any(c, "x", &x));
    TRY(teg_arg_axes(c, "axes", x->rank, UINT32_MAX, &mask));
    for (uint32_t d = 0; d < x->rank; d++)
        if (x->dims[d] != 1 || !(mask >> d & 1))
            dims[rank++] = x->dims[d];
    return teg_output_share(c, 0, x, rank, dims);
}

static enum teg_status op_flatten2d(struct teg_eval_call *c)
{
    const struct teg_array *x;
    int32_t axis;
    size_t dims[2] = {1, 1};
    TRY(teg_arg_any(c, "x", &x));
    TRY(teg_arg_int(c, "axis", 1, &axis));
    const int64_t at = axis < 0 ? (int64_t)axis + x->rank : axis;
    for (uint32_t d = 0; d < x->rank; d++)
        dims[d >= at] *= x->dims[d];
    return teg_output_share(c, 0, x, 2, dims);
}

static enum teg_status op_identity(struct teg_eval_call *c)
{
    const struct teg_array *x;
    TRY(teg_arg_any(c, "x", &x));
    return teg_output_share(c, 0, x, x->rank, x->dims);
}

static enum teg_status op_shape(struct teg_eval_call *c)
{
    const struct teg_array *x;
    struct teg_array *y;
    TRY(teg_arg_any(c, "x", &x));
    const size_t dims[1] = {x->rank};
    TRY(teg_output(c, 0, TEG_FORM_I32, 1, dims, &y));
    for (uint32_t d = 0; d < x->rank; d++)
        y->i32[d] = x->dims[d] > INT32_MAX ? INT32_MAX : (int32_t)x->dims[d];
    return TEG_OK;
}

const struct teg_eval_row teg_eval_rows_shape[] = {
    {"reshape", 6, op_reshape},
    {"reshape_like", 7, op_reshape_like},
    {"expand_dims", 6, op_expand_dims},
    {"squeeze", 6, op_squeeze},
    {"flatten2d", 6, op_flatten2d},
    {"identity", 6, op_identity},
    {"shape", 6, op_shape},
    {NULL, 0, NULL},
};
