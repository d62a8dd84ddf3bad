/* eval/broadcast.c: numpy broadcasting as strides.
 *
 * Dimensions that all operands walk alike are merged, so that equal shapes become one long row and a bias becomes rows
 * of its length; the caller's loop then sees nothing but rows with constant strides.
 * Invariant: which thread makes an element never changes it: rows are cut, not reordered. */
#include "eval/broadcast.h"

#include "base/check.h"

struct walk {
    size_t n_in, rank, dims[TEG_MIL_MAX_RANK];
    size_t stride[TEG_BROADCAST_MAX][TEG_MIL_MAX_RANK];
    size_t item_bytes[TEG_BROADCAST_MAX], out_bytes;
    const struct teg_array *in[TEG_BROADCAST_MAX];
    char *out;
    teg_row_fn row;
};

static size_t item_bytes(enum teg_form form)
{
    return form == TEG_FORM_BOOL ? 1 : form == TEG_FORM_STRING ? sizeof(struct teg_string) : 4;
}

/* The size of dimension d counted from the right of the result, 1 where the array has no such dimension. */
static size_t dim_from(const struct teg_array *a, uint32_t rank, uint32_t d)
{
    return d + a->rank >= rank ? a->dims[d + a->rank - rank] : 1;
}

static enum teg_status result_shape(struct teg_eval_call *c, const struct teg_array *const *in, size_t n_in,
                                    uint32_t *rank, size_t *dims)
{
    *rank = 0;
    for (size_t k = 0; k < n_in; k++)
        *rank = in[k]->rank > *rank ? in[k]->rank : *rank;
    for (uint32_t d = 0; d < *rank; d++) {
        dims[d] = 1;
        for (size_t k = 0; k < n_in; k++) {
            const size_t size = dim_from(in[k], *rank, d);
            if (size != 1 && dims[d] != 1 && size != dims[d])
                OP_FAIL(c, TEG_ERR_FORMAT, "operands: expected shapes that broadcast, found %s and %s",
                        teg_shape_text(in[0]->rank, in[0]->dims).text, teg_shape_text(in[k]->rank, in[k]->dims).text);
            dims[d] = size != 1 ? size : dims[d];
        }
    }
    return TEG_OK;
}

/* Adds a dimension (inner to those before), merged into the last one where every operand goes on evenly. */
static void push_dim(struct walk *w, size_t size, const size_t *stride)
{
    bool merges = w->rank > 0;
    for (size_t k = 0; merges && k < w->n_in; k++)
        merges = w->stride[k][w->rank - 1] == stride[k] * size;
    if (merges)
        w->dims[w->rank - 1] *= size;
    else
        w->dims[w->rank++] = size;
    for (size_t k = 0; k < w->n_in; k++)
        w->stride[k][w->rank - 1] = stride[k];
}

static void plan_walk(struct walk *w, uint32_t rank, const size_t *dims)
{
    size_t stride[TEG_BROADCAST_MAX][TEG_MIL_MAX_RANK], step[TEG_BROADCAST_MAX] = {1, 1, 1};
    for (uint32_t d = rank; d-- > 0;)
        for (size_t k = 0; k < w->n_in; k++) {
            const size_t size = dim_from(w->in[k], rank, d);
            stride[k][d] = size == 1 ? 0 : step[k];
            step[k] *= size;
        }
    for (uint32_t d = 0; d < rank; d++) {
        size_t of_dim[TEG_BROADCAST_MAX];
        for (size_t k = 0; k < w->n_in; k++)
            of_dim[k] = stride[k][d];
        if (dims[d] != 1)
            push_dim(w, dims[d], of_dim);
    }
    if (!w->rank)
        push_dim(w, 1, (const size_t[TEG_BROADCAST_MAX]){0});
}

static void walk_range(void *ctx, size_t begin, size_t end)
{
    const struct walk *const w = ctx;
    const size_t last = w->rank - 1, inner = w->dims[last];
    size_t stride[TEG_BROADCAST_MAX];
    for (size_t k = 0; k < w->n_in; k++)
        stride[k] = w->stride[k][last];
    for (size_t at = begin; at < end;) {
        const size_t column = at % inner, n = teg_min(inner - column, end - at);
        const void *in[TEG_BROADCAST_MAX];
        for (size_t k = 0; k < w->n_in; k++) {
            size_t offset = column * stride[k], rest = at / inner;
            for (size_t d = last; d-- > 0; rest /= w->dims[d])
                offset += rest % w->dims[d] * w->stride[k][d];
            in[k] = (const char *)w->in[k]->data + offset * w->item_bytes[k];
        }
        w->row(w->out + at * w->out_bytes, in, stride, n);
        at += n;
    }
}

enum teg_status teg_broadcast(struct teg_eval_call *c, const struct teg_array *const *in, size_t n_in,
                              enum teg_form form, teg_row_fn row, size_t cost)
{
    uint32_t rank;
    size_t dims[TEG_MIL_MAX_RANK];
    struct teg_array *out;
    TRY(result_shape(c, in, n_in, &rank, dims));
    TRY(teg_output(c, 0, form, rank, dims, &out));
    struct walk w = {.n_in = n_in, .out = out->data, .out_bytes = item_bytes(out->form), .row = row};
    for (size_t k = 0; k < n_in; k++) {
        w.in[k] = in[k];
        w.item_bytes[k] = item_bytes(in[k]->form);
    }
    if (!out->n)
        return TEG_OK;
    plan_walk(&w, rank, dims);
    teg_op_parallel(c, out->n, cost, walk_range, &w);
    return TEG_OK;
}
