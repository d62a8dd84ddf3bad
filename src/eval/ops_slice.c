/* eval/ops_slice.c: parts of tensors and tensors of parts: slices, slice_update, concat, stack, split,
 * sliding_windows.
 *
 * Every one settles where a part lies (start, size and stride a dimension, checked against the array) and leaves the
 * copying to strided.c. */
#include <string.h>

#include "base/check.h"
#include "eval/strided.h"

struct slice {
    uint32_t rank; /* of x */
    int64_t start[TEG_MIL_MAX_RANK], stride[TEG_MIL_MAX_RANK];
    size_t size[TEG_MIL_MAX_RANK];
    bool squeeze[TEG_MIL_MAX_RANK];
};

/* ---- slice_by_index ---- */

static enum teg_status bool_list(struct teg_eval_call *c, const char *name, uint32_t rank, bool *out)
{
    const struct teg_array *a;
    memset(out, 0, rank * sizeof *out);
    if (!teg_arg(c, name))
        return TEG_OK;
    TRY(teg_arg_form(c, name, TEG_FORM_BOOL, &a));
    if (a->n != rank)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter %s: expected %u bools, found %zu", name, rank, a->n);
    for (uint32_t d = 0; d < rank; d++)
        out[d] = a->b[d] != 0;
    return TEG_OK;
}

static enum teg_status int_list(struct teg_eval_call *c, const char *name, uint32_t rank, bool is_optional,
                                int32_t otherwise, int32_t *out)
{
    size_t n;
    TRY(teg_arg_ints(c, name, out, TEG_MIL_MAX_RANK, &n));
    if (n == SIZE_MAX && is_optional) {
        for (uint32_t d = 0; d < rank; d++)
            out[d] = otherwise;
        return TEG_OK;
    }
    if (n != rank)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter %s: expected %u integers, one a dimension of x, found %zu", name, rank,
                n == SIZE_MAX ? 0 : n);
    return TEG_OK;
}

static int64_t clamp(int64_t v, int64_t low, int64_t high)
{
    return v < low ? low : v > high ? high : v;
}

/* numpy's begin:end:stride over n elements: start and count. */
static size_t python_slice(int64_t n, int64_t begin, bool has_begin, int64_t end, bool has_end, int64_t stride,
                           int64_t *start)
{
    const int64_t low = stride > 0 ? 0 : -1, high = stride > 0 ? n : n - 1;
    begin = has_begin ? clamp(begin < 0 ? begin + n : begin, low, high) : stride > 0 ? 0 : n - 1;
    end = has_end ? clamp(end < 0 ? end + n : end, low, high) : stride > 0 ? n : -1;
    *start = begin;
    if (stride > 0)
        return end > begin ? (size_t)((end - begin + stride - 1) / stride) : 0;
    return begin > end ? (size_t)((begin - end - stride - 1) / -stride) : 0;
}

static enum teg_status settle_slice(struct teg_eval_call *c, const struct teg_array *x, struct slice *s)
{
    int32_t begin[TEG_MIL_MAX_RANK], end[TEG_MIL_MAX_RANK], stride[TEG_MIL_MAX_RANK];
    bool begin_mask[TEG_MIL_MAX_RANK], end_mask[TEG_MIL_MAX_RANK];
    TRY(int_list(c, "begin", x->rank, false, 0, begin));
    TRY(int_list(c, "end", x->rank, false, 0, end));
    TRY(int_list(c, "stride", x->rank, true, 1, stride));
    TRY(bool_list(c, "begin_mask", x->rank, begin_mask));
    TRY(bool_list(c, "end_mask", x->rank, end_mask));
    TRY(bool_list(c, "squeeze_mask", x->rank, s->squeeze));
    s->rank = x->rank;
    for (uint32_t d = 0; d < x->rank; d++) {
        const int64_t n = (int64_t)x->dims[d];
        s->stride[d] = stride[d];
        if (!stride[d])
            OP_FAIL(c, TEG_ERR_FORMAT, "parameter stride: expected strides other than 0, found 0 at dimension %u", d);
        if (s->squeeze[d]) {
            s->start[d] = begin_mask[d] ? 0 : begin[d] < 0 ? begin[d] + n : begin[d];
            s->size[d] = 1;
            if (s->start[d] < 0 || s->start[d] >= n)
                OP_FAIL(c, TEG_ERR_FORMAT,
                        "parameter begin: expected an index into %lld elements, found %d at dimension "
                        "%u",
                        (long long)n, begin[d], d);
            continue;
        }
        s->size[d] = python_slice(n, begin[d], !begin_mask[d], end[d], !end_mask[d], stride[d], &s->start[d]);
        /* A dimension of size 1 stays 1 whatever is asked of it, but for an empty range. */
        if (n == 1 && !s->size[d] && (begin_mask[d] || end_mask[d] || begin[d] != end[d])) {
            s->size[d] = 1;
            s->start[d] = 0;
        }
    }
    return TEG_OK;
}

static uint32_t slice_shape(const struct slice *s, size_t *dims)
{
    uint32_t rank = 0;
    for (uint32_t d = 0; d < s->rank; d++)
        if (!s->squeeze[d])
            dims[rank++] = s->size[d];
    return rank;
}

static enum teg_status copy_slice(struct teg_eval_call *c, const struct teg_array *x, const struct slice *s)
{
    size_t dims[TEG_MIL_MAX_RANK];
    ptrdiff_t from[TEG_MIL_MAX_RANK], to[TEG_MIL_MAX_RANK];
    struct teg_array *y;
    TRY(teg_output(c, 0, x->form, slice_shape(s, dims), dims, &y));
    if (!y->n)
        return TEG_OK;
    struct teg_strided copy = teg_strided_between(y, x);
    teg_strides_of(x->rank, x->dims, from);
    teg_strides_of(x->rank, s->size, to);
    for (uint32_t d = 0; d < x->rank; d++) {
        copy.src += (ptrdiff_t)copy.item_bytes * s->start[d] * from[d];
        teg_strided_dim(&copy, s->size[d], to[d], from[d] * s->stride[d]);
    }
    teg_strided_copy(c, &copy);
    return TEG_OK;
}

static enum teg_status op_slice_by_index(struct teg_eval_call *c)
{
    const struct teg_array *x;
    struct slice s;
    TRY(teg_arg_any(c, "x", &x));
    TRY(settle_slice(c, x, &s));
    return copy_slice(c, x, &s);
}

static enum teg_status op_slice_by_size(struct teg_eval_call *c)
{
    const struct teg_array *x;
    int32_t begin[TEG_MIL_MAX_RANK], size[TEG_MIL_MAX_RANK];
    struct slice s = {0};
    TRY(teg_arg_any(c, "x", &x));
    TRY(int_list(c, "begin", x->rank, false, 0, begin));
    TRY(int_list(c, "size", x->rank, false, 0, size));
    s.rank = x->rank;
    for (uint32_t d = 0; d < x->rank; d++) {
        const int64_t n = (int64_t)x->dims[d];
        s.stride[d] = 1;
        s.start[d] = begin[d] < 0 ? begin[d] + n : begin[d];
        const int64_t count = size[d] == -1 ? n - s.start[d] : size[d];
        if (s.start[d] < 0 || count < 0 || s.start[d] + count > n)
            OP_FAIL(c, TEG_ERR_FORMAT,
                    "parameter size: expected a part of %lld elements, found begin %d and size %d at "
                    "dimension %u",
                    (long long)n, begin[d], size[d], d);
        s.size[d] = (size_t)count;
    }
    return copy_slice(c, x, &s);
}

static enum teg_status op_slice_update(struct teg_eval_call *c)
{
    const struct teg_array *x, *update;
    struct slice s;
    size_t dims[TEG_MIL_MAX_RANK];
    ptrdiff_t from[TEG_MIL_MAX_RANK], to[TEG_MIL_MAX_RANK];
    struct teg_array *y;
    TRY(teg_arg_any(c, "x", &x));
    TRY(teg_arg_form(c, "update", x->form, &update));
    TRY(settle_slice(c, x, &s));
    const uint32_t rank = slice_shape(&s, dims);
    bool fits = rank == update->rank;
    for (uint32_t d = 0; fits && d < rank; d++)
        fits = dims[d] == update->dims[d];
    if (!fits)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter update: expected the slice's shape %s, found %s",
                teg_shape_text(rank, dims).text, teg_shape_text(update->rank, update->dims).text);
    TRY(teg_output(c, 0, x->form, x->rank, x->dims, &y));
    memcpy(y->data, x->data, x->n * teg_item_bytes(x));
    if (!update->n)
        return TEG_OK;
    struct teg_strided copy = teg_strided_between(y, update);
    teg_strides_of(x->rank, x->dims, to);
    teg_strides_of(x->rank, s.size, from);
    for (uint32_t d = 0; d < x->rank; d++) {
        copy.dst += (ptrdiff_t)copy.item_bytes * s.start[d] * to[d];
        teg_strided_dim(&copy, s.size[d], to[d] * s.stride[d], from[d]);
    }
    teg_strided_copy(c, &copy);
    return TEG_OK;
}

static enum teg_status op_sliding_windows(struct teg_eval_call *c)
{
    const struct teg_array *x;
    uint32_t axis;
    int32_t size, stride;
    size_t dims[TEG_MIL_MAX_RANK + 1];
    ptrdiff_t from[TEG_MIL_MAX_RANK], to[TEG_MIL_MAX_RANK + 1];
    struct teg_array *y;
    TRY(teg_arg_any(c, "x", &x));
    TRY(teg_arg_axis(c, "axis", 0, x->rank, &axis));
    TRY(teg_arg_int(c, "size", 0, &size));
    TRY(teg_arg_int(c, "stride", 1, &stride));
    if (size < 1 || stride < 1 || (size_t)size > x->dims[axis] || x->rank == TEG_MIL_MAX_RANK)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter size: expected a window inside %zu elements, found size %d and stride %d",
                x->dims[axis], size, stride);
    for (uint32_t d = 0; d < x->rank; d++)
        dims[d + (d > axis)] = x->dims[d];
    dims[axis] = (x->dims[axis] - (size_t)size) / (size_t)stride + 1;
    dims[axis + 1] = (size_t)size;
    TRY(teg_output(c, 0, x->form, x->rank + 1, dims, &y));
    struct teg_strided copy = teg_strided_between(y, x);
    teg_strides_of(x->rank, x->dims, from);
    teg_strides_of(x->rank + 1, dims, to);
    for (uint32_t d = 0; d <= x->rank; d++)
        teg_strided_dim(&copy, dims[d], to[d], d == axis ? from[d] * stride : from[d - (d > axis)]);
    if (y->n)
        teg_strided_copy(c, &copy);
    return TEG_OK;
}

/* ---- concat, stack, split: an axis of arrays seen as [outer, n, inner] ---- */

static size_t product(const size_t *dims, uint32_t begin, uint32_t end)
{
    size_t n = 1;
    for (uint32_t d = begin; d < end; d++)
        n *= dims[d];
    return n;
}

static enum teg_status check_values(struct teg_eval_call *c, size_t n, uint32_t axis, bool same_axis)
{
    const struct teg_array *const first = teg_arg_at(c, "values", 0);
    for (size_t i = 0; i < n; i++) {
        const struct teg_array *const v = teg_arg_at(c, "values", i);
        bool fits = v && v->form == first->form && v->rank == first->rank && v->form != TEG_FORM_LIST;
        for (uint32_t d = 0; fits && d < v->rank; d++)
            fits = v->dims[d] == first->dims[d] || (d == axis && !same_axis);
        if (!fits)
            OP_FAIL(c, TEG_ERR_FORMAT, "parameter values: expected shapes that agree with %s, found %s",
                    teg_shape_text(first->rank, first->dims).text,
                    v ? teg_shape_text(v->rank, v->dims).text : "nothing");
    }
    return TEG_OK;
}

static enum teg_status op_concat(struct teg_eval_call *c)
{
    const size_t n = teg_arg_count(c, "values");
    const struct teg_array *const first = teg_arg_at(c, "values", 0);
    bool interleave;
    uint32_t axis;
    size_t dims[TEG_MIL_MAX_RANK], total = 0;
    struct teg_array *y;
    if (!n || !first)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter values: expected at least one tensor, found none");
    const uint32_t rank = first->rank ? first->rank : 1; /* scalars make a vector */
    TRY(teg_arg_axis(c, "axis", 0, rank, &axis));
    TRY(teg_arg_bool(c, "interleave", false, &interleave));
    TRY(check_values(c, n, axis, interleave));
    dims[0] = 1;
    for (uint32_t d = 0; d < first->rank; d++)
        dims[d] = first->dims[d];
    const size_t outer = product(dims, 0, axis), inner = product(dims, axis + 1, rank);
    for (size_t i = 0; i < n; i++)
        total += first->rank ? teg_arg_at(c, "values", i)->dims[axis] : 1;
    dims[axis] = total;
    TRY(teg_output(c, 0, first->form, rank, dims, &y));
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        const struct teg_array *const v = teg_arg_at(c, "values", i);
        const size_t size = v->rank ? v->dims[axis] : 1;
        struct teg_strided copy = teg_strided_between(y, v);
        copy.dst += at * inner * copy.item_bytes;
        teg_strided_dim(&copy, outer, (ptrdiff_t)(total * inner), (ptrdiff_t)(size * inner));
        teg_strided_dim(&copy, size, (ptrdiff_t)((interleave ? n : 1) * inner), (ptrdiff_t)inner);
        teg_strided_dim(&copy, inner, 1, 1);
        if (v->n)
            teg_strided_copy(c, &copy);
        at += interleave ? 1 : size;
    }
    return TEG_OK;
}

static enum teg_status op_stack(struct teg_eval_call *c)
{
    const size_t n = teg_arg_count(c, "values");
    const struct teg_array *const first = teg_arg_at(c, "values", 0);
    uint32_t axis;
    size_t dims[TEG_MIL_MAX_RANK];
    struct teg_array *y;
    if (!n || !first || first->rank == TEG_MIL_MAX_RANK)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter values: expected tensors of at most %d dimensions, found none or more",
                TEG_MIL_MAX_RANK - 1);
    TRY(teg_arg_axis(c, "axis", 0, first->rank + 1, &axis));
    TRY(check_values(c, n, axis, true));
    for (uint32_t d = 0; d < first->rank; d++)
        dims[d + (d >= axis)] = first->dims[d];
    dims[axis] = n;
    const size_t outer = product(first->dims, 0, axis), inner = product(first->dims, axis, first->rank);
    TRY(teg_output(c, 0, first->form, first->rank + 1, dims, &y));
    for (size_t i = 0; i < n && first->n; i++) {
        struct teg_strided copy = teg_strided_between(y, teg_arg_at(c, "values", i));
        copy.dst += i * inner * copy.item_bytes;
        teg_strided_dim(&copy, outer, (ptrdiff_t)(n * inner), (ptrdiff_t)inner);
        teg_strided_dim(&copy, inner, 1, 1);
        teg_strided_copy(c, &copy);
    }
    return TEG_OK;
}

/* The size of each part: split_sizes, or num_splits equal ones. */
static enum teg_status split_sizes(struct teg_eval_call *c, size_t along, const int32_t **sizes, int32_t *even)
{
    const struct teg_array *given;
    const size_t n = c->op->n_outputs;
    *sizes = NULL;
    *even = 0;
    if (!teg_arg(c, "split_sizes")) {
        int32_t num;
        TRY(teg_arg_int(c, "num_splits", 0, &num));
        if (num < 1 || (size_t)num != n || along % n)
            OP_FAIL(c, TEG_ERR_FORMAT,
                    "parameter num_splits: expected the %zu outputs' number that divides %zu, found %d", n, along, num);
        *even = (int32_t)(along / n);
        return TEG_OK;
    }
    TRY(teg_arg_form(c, "split_sizes", TEG_FORM_I32, &given));
    size_t total = 0;
    bool fits = given->n == n;
    for (size_t i = 0; fits && i < n; i++) {
        fits = given->i32[i] >= 0;
        total += (size_t)(fits ? given->i32[i] : 0);
    }
    if (!fits || total != along)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter split_sizes: expected %zu sizes with the sum %zu, found %zu with %zu", n,
                along, given->n, total);
    *sizes = given->i32;
    return TEG_OK;
}

static enum teg_status op_split(struct teg_eval_call *c)
{
    const struct teg_array *x;
    const int32_t *sizes;
    int32_t even;
    uint32_t axis;
    size_t dims[TEG_MIL_MAX_RANK], at = 0;
    TRY(teg_arg_any(c, "x", &x));
    TRY(teg_arg_axis(c, "axis", 0, x->rank, &axis));
    TRY(split_sizes(c, x->dims[axis], &sizes, &even));
    memcpy(dims, x->dims, sizeof dims);
    const size_t outer = product(dims, 0, axis), inner = product(dims, axis + 1, x->rank);
    for (size_t i = 0; i < c->op->n_outputs; i++) {
        struct teg_array *y;
        dims[axis] = (size_t)(sizes ? sizes[i] : even);
        TRY(teg_output(c, i, x->form, x->rank, dims, &y));
        struct teg_strided copy = teg_strided_between(y, x);
        copy.src += at * inner * copy.item_bytes;
        teg_strided_dim(&copy, outer, (ptrdiff_t)(dims[axis] * inner), (ptrdiff_t)(x->dims[axis] * inner));
        teg_strided_dim(&copy, dims[axis] * inner, 1, 1);
        if (y->n)
            teg_strided_copy(c, &copy);
        at += dims[axis];
    }
    return TEG_OK;
}

const struct teg_eval_row teg_eval_rows_slice[] = {
    {"slice_by_index", 6, op_slice_by_index},
    {"slice_by_size", 6, op_slice_by_size},
    {"slice_update", 9, op_slice_update},
    {"sliding_windows", 6, op_sliding_windows},
    {"concat", 6, op_concat},
    {"stack", 6, op_stack},
    {"split", 6, op_split},
    {NULL, 0, NULL},
};
