/* eval/ops_gather.c: gather, gather_along_axis, gather_nd.
 *
 * gather and gather_nd see x as [batch, pre, n, inner] and copy runs of `inner`; gather_along_axis moves single
 * elements. Indices are settled first (index.c). */
#include <string.h>

#include "eval/index.h"
#include "eval/strided.h"

struct gather {
    const char *x;
    char *y;
    const size_t *indices; /* gather: [batch, m]; gather_nd: [batch, m] offsets; along axis: one an output */
    size_t pre, m, n, inner, item;
};

static size_t product(const size_t *dims, uint32_t begin, uint32_t end)
{
    size_t n = 1;
    for (uint32_t d = begin; d < end; d++)
        n *= dims[d];
    return n;
}

/* One item a row of the output: [batch, pre, m] of `inner` elements. */
static void gather_rows(void *ctx, size_t begin, size_t end)
{
    const struct gather *const g = ctx;
    const size_t bytes = g->inner * g->item;
    for (size_t row = begin; row < end; row++) {
        const size_t block = row / g->m, batch = block / g->pre, at = g->indices[batch * g->m + row % g->m];
        if (at == TEG_INDEX_OUTSIDE)
            memset(g->y + row * bytes, 0, bytes);
        else
            memcpy(g->y + row * bytes, g->x + (block * g->n + at) * bytes, bytes);
    }
}

static enum teg_status batch_dims_of(struct teg_eval_call *c, const struct teg_array *x,
                                     const struct teg_array *indices, uint32_t most, uint32_t *out)
{
    int32_t batch_dims;
    TRY(teg_arg_int(c, "batch_dims", 0, &batch_dims));
    bool fits = batch_dims >= 0 && (uint32_t)batch_dims <= most && (uint32_t)batch_dims <= indices->rank;
    for (uint32_t d = 0; fits && d < (uint32_t)batch_dims; d++)
        fits = x->dims[d] == indices->dims[d];
    if (!fits)
        OP_FAIL(c, TEG_ERR_FORMAT,
                "parameter batch_dims: expected leading dimensions that x of shape %s and indices of "
                "shape %s share, found %d",
                teg_shape_text(x->rank, x->dims).text, teg_shape_text(indices->rank, indices->dims).text, batch_dims);
    *out = (uint32_t)batch_dims;
    return TEG_OK;
}

/* Appends dims[begin … end) to a shape; false where that makes too many. */
static bool append(size_t *shape, uint32_t *rank, const size_t *dims, uint32_t begin, uint32_t end)
{
    for (uint32_t d = begin; d < end; d++) {
        if (*rank == TEG_MIL_MAX_RANK)
            return false;
        shape[(*rank)++] = dims[d];
    }
    return true;
}

static enum teg_status operands(struct teg_eval_call *c, const struct teg_array **x, const struct teg_array **indices)
{
    TRY(teg_arg_any(c, "x", x));
    TRY(teg_arg_form(c, "indices", TEG_FORM_I32, indices));
    if ((*x)->form > TEG_FORM_BOOL)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter x: expected numbers or bools, found strings or a list");
    return TEG_OK;
}

static enum teg_status run_rows(struct teg_eval_call *c, struct gather *g, const struct teg_array *x,
                                struct teg_array *y)
{
    g->x = x->data;
    g->y = y->data;
    g->item = teg_item_bytes(x);
    if (y->n)
        teg_op_parallel(c, y->n / g->inner, g->inner, gather_rows, g);
    return TEG_OK;
}

static enum teg_status op_gather(struct teg_eval_call *c)
{
    const struct teg_array *x, *indices;
    struct teg_array *y;
    uint32_t axis, batch_dims, rank = 0;
    size_t shape[TEG_MIL_MAX_RANK], *settled;
    TRY(operands(c, &x, &indices));
    TRY(teg_arg_axis(c, "axis", 0, x->rank, &axis));
    TRY(batch_dims_of(c, x, indices, axis, &batch_dims));
    if (!append(shape, &rank, x->dims, 0, axis) || !append(shape, &rank, indices->dims, batch_dims, indices->rank) ||
        !append(shape, &rank, x->dims, axis + 1, x->rank))
        OP_FAIL(c, TEG_ERR_UNSUPPORTED, "output: expected at most %d dimensions, found more", TEG_MIL_MAX_RANK);
    TRY(teg_settle_indices(c, indices, &x->dims[axis], 1, &settled));
    TRY(teg_output(c, 0, x->form, rank, shape, &y));
    struct gather g = {.indices = settled,
                       .pre = product(x->dims, batch_dims, axis),
                       .m = product(indices->dims, batch_dims, indices->rank),
                       .n = x->dims[axis],
                       .inner = product(x->dims, axis + 1, x->rank)};
    return run_rows(c, &g, x, y);
}

static enum teg_status op_gather_nd(struct teg_eval_call *c)
{
    const struct teg_array *x, *indices;
    struct teg_array *y;
    uint32_t batch_dims, rank = 0;
    size_t shape[TEG_MIL_MAX_RANK], *settled;
    TRY(operands(c, &x, &indices));
    if (!indices->rank || !indices->dims[indices->rank - 1])
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter indices: expected tuples of indices, found shape %s",
                teg_shape_text(indices->rank, indices->dims).text);
    const size_t k = indices->dims[indices->rank - 1];
    TRY(batch_dims_of(c, x, indices, indices->rank - 1, &batch_dims));
    if (k > x->rank || batch_dims + k > x->rank)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter indices: expected tuples of at most %u indices, found %zu",
                x->rank - (batch_dims < x->rank ? batch_dims : x->rank), k);
    const uint32_t first_inner = batch_dims + (uint32_t)k;
    if (!append(shape, &rank, indices->dims, 0, indices->rank - 1) ||
        !append(shape, &rank, x->dims, first_inner, x->rank))
        OP_FAIL(c, TEG_ERR_UNSUPPORTED, "output: expected at most %d dimensions, found more", TEG_MIL_MAX_RANK);
    TRY(teg_settle_indices(c, indices, x->dims + batch_dims, k, &settled));
    TRY(teg_output(c, 0, x->form, rank, shape, &y));
    for (size_t i = 0; i < indices->n / k; i++) { /* tuples become offsets, in place */
        size_t at = 0;
        for (size_t d = 0; d < k; d++) {
            const size_t index = settled[i * k + d];
            at = at == TEG_INDEX_OUTSIDE || index == TEG_INDEX_OUTSIDE ? TEG_INDEX_OUTSIDE
                                                                       : at * x->dims[batch_dims + d] + index;
        }
        settled[i] = at;
    }
    struct gather g = {.indices = settled,
                       .pre = 1,
                       .m = product(indices->dims, batch_dims, indices->rank - 1),
                       .n = product(x->dims, batch_dims, first_inner),
                       .inner = product(x->dims, first_inner, x->rank)};
    return run_rows(c, &g, x, y);
}

static void gather_elements(void *ctx, size_t begin, size_t end)
{
    const struct gather *const g = ctx;
    for (size_t i = begin; i < end; i++) {
        const size_t outer = i / (g->m * g->inner), from = g->indices[i];
        const size_t at = (outer * g->n + (from == TEG_INDEX_OUTSIDE ? 0 : from)) * g->inner + i % g->inner;
        if (from == TEG_INDEX_OUTSIDE)
            memset(g->y + i * g->item, 0, g->item);
        else
            memcpy(g->y + i * g->item, g->x + at * g->item, g->item);
    }
}

static enum teg_status op_gather_along_axis(struct teg_eval_call *c)
{
    const struct teg_array *x, *indices;
    struct teg_array *y;
    uint32_t axis;
    size_t *settled;
    TRY(operands(c, &x, &indices));
    TRY(teg_arg_axis(c, "axis", 0, x->rank, &axis));
    bool fits = x->rank == indices->rank;
    for (uint32_t d = 0; fits && d < x->rank; d++)
        fits = d == axis || x->dims[d] == indices->dims[d];
    if (!fits)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter indices: expected the shape of x but along the axis, found %s and %s",
                teg_shape_text(indices->rank, indices->dims).text, teg_shape_text(x->rank, x->dims).text);
    TRY(teg_settle_indices(c, indices, &x->dims[axis], 1, &settled));
    TRY(teg_output(c, 0, x->form, indices->rank, indices->dims, &y));
    struct gather g = {.x = x->data,
                       .y = y->data,
                       .indices = settled,
                       .m = indices->dims[axis],
                       .n = x->dims[axis],
                       .inner = product(x->dims, axis + 1, x->rank),
                       .item = teg_item_bytes(x)};
    teg_op_parallel(c, y->n, 4, gather_elements, &g);
    return TEG_OK;
}

const struct teg_eval_row teg_eval_rows_gather[] = {
    {"gather", 6, op_gather},
    {"gather_nd", 6, op_gather_nd},
    {"gather_along_axis", 6, op_gather_along_axis},
    {NULL, 0, NULL},
};
