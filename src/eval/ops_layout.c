/* eval/ops_layout.c: the same elements elsewhere: transpose, tile, reverse, reverse_sequence, and the exchanges between
 * depth, space and batch.
 *
 * All but two are one strided copy; what differs is the list of dimensions. */
#include <string.h>

#include "base/check.h"
#include "eval/strided.h"

static enum teg_status op_transpose(struct teg_eval_call *c)
{
    const struct teg_array *x;
    int32_t perm[TEG_MIL_MAX_RANK];
    uint32_t all;
    size_t n, dims[TEG_MIL_MAX_RANK];
    ptrdiff_t from[TEG_MIL_MAX_RANK], to[TEG_MIL_MAX_RANK];
    struct teg_array *y;
    TRY(teg_arg_any(c, "x", &x));
    TRY(teg_arg_axes(c, "perm", x->rank, 0, &all));
    TRY(teg_arg_ints(c, "perm", perm, TEG_MIL_MAX_RANK, &n));
    if (n != x->rank)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter perm: expected all %u axes of x, found %zu", x->rank,
                n == SIZE_MAX ? 0 : n);
    for (uint32_t d = 0; d < x->rank; d++) {
        perm[d] += perm[d] < 0 ? (int32_t)x->rank : 0;
        dims[d] = x->dims[perm[d]];
    }
    TRY(teg_output(c, 0, x->form, x->rank, dims, &y));
    struct teg_strided copy = teg_strided_between(y, x);
    teg_strides_of(x->rank, x->dims, from);
    teg_strides_of(x->rank, dims, to);
    for (uint32_t d = 0; d < x->rank; d++)
        teg_strided_dim(&copy, dims[d], to[d], from[perm[d]]);
    if (y->n)
        teg_strided_copy(c, &copy);
    return TEG_OK;
}

static enum teg_status op_tile(struct teg_eval_call *c)
{
    const struct teg_array *x;
    int32_t reps[TEG_MIL_MAX_RANK];
    size_t n, dims[TEG_MIL_MAX_RANK];
    ptrdiff_t from[TEG_MIL_MAX_RANK], to[TEG_MIL_MAX_RANK];
    struct teg_array *y;
    TRY(teg_arg_any(c, "x", &x));
    TRY(teg_arg_ints(c, "reps", reps, TEG_MIL_MAX_RANK, &n));
    if (n != x->rank)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter reps: expected one a dimension of x (%u), found %zu", x->rank,
                n == SIZE_MAX ? 0 : n);
    for (uint32_t d = 0; d < x->rank; d++)
        if (reps[d] < 0 || !teg_mul(x->dims[d], (size_t)reps[d], &dims[d]))
            OP_FAIL(c, TEG_ERR_FORMAT, "parameter reps: expected numbers from 1, found %d at dimension %u", reps[d], d);
    TRY(teg_output(c, 0, x->form, x->rank, dims, &y));
    struct teg_strided copy = teg_strided_between(y, x);
    teg_strides_of(x->rank, x->dims, from);
    teg_strides_of(x->rank, dims, to);
    for (uint32_t d = 0; d < x->rank; d++) {
        teg_strided_dim(&copy, (size_t)reps[d], to[d] * (ptrdiff_t)x->dims[d], 0);
        teg_strided_dim(&copy, x->dims[d], to[d], from[d]);
    }
    if (y->n)
        teg_strided_copy(c, &copy);
    return TEG_OK;
}

static enum teg_status op_reverse(struct teg_eval_call *c)
{
    const struct teg_array *x;
    uint32_t mask;
    ptrdiff_t stride[TEG_MIL_MAX_RANK];
    struct teg_array *y;
    TRY(teg_arg_any(c, "x", &x));
    TRY(teg_arg_axes(c, "axes", x->rank, UINT32_MAX, &mask));
    TRY(teg_output(c, 0, x->form, x->rank, x->dims, &y));
    if (!x->n)
        return TEG_OK;
    struct teg_strided copy = teg_strided_between(y, x);
    teg_strides_of(x->rank, x->dims, stride);
    for (uint32_t d = 0; d < x->rank; d++) {
        const bool turns = mask >> d & 1;
        if (turns)
            copy.src += (ptrdiff_t)copy.item_bytes * stride[d] * (ptrdiff_t)(x->dims[d] - 1);
        teg_strided_dim(&copy, x->dims[d], stride[d], turns ? -stride[d] : stride[d]);
    }
    teg_strided_copy(c, &copy);
    return TEG_OK;
}

static enum teg_status op_reverse_sequence(struct teg_eval_call *c)
{
    const struct teg_array *x, *lengths;
    uint32_t seq, batch;
    ptrdiff_t stride[TEG_MIL_MAX_RANK];
    struct teg_array *y;
    TRY(teg_arg_any(c, "x", &x));
    TRY(teg_arg_form(c, "lengths", TEG_FORM_I32, &lengths));
    TRY(teg_arg_axis(c, "seq_axis", 0, x->rank, &seq));
    TRY(teg_arg_axis(c, "batch_axis", 0, x->rank, &batch));
    if (lengths->n != x->dims[batch] || x->form == TEG_FORM_LIST)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter lengths: expected %zu, one a batch, found %zu", x->dims[batch],
                lengths->n);
    for (size_t i = 0; i < lengths->n; i++)
        if (lengths->i32[i] < 0 || (size_t)lengths->i32[i] > x->dims[seq])
            OP_FAIL(c, TEG_ERR_FORMAT, "parameter lengths: expected 0 to %zu, found %d", x->dims[seq], lengths->i32[i]);
    TRY(teg_output(c, 0, x->form, x->rank, x->dims, &y));
    teg_strides_of(x->rank, x->dims, stride);
    const size_t item = teg_item_bytes(x), row = (size_t)stride[seq > batch ? seq : batch];
    for (size_t at = 0; at < x->n; at += row) { /* rows inside of both axes move whole */
        const size_t s = at / (size_t)stride[seq] % x->dims[seq], b = at / (size_t)stride[batch] % x->dims[batch];
        const size_t length = (size_t)lengths->i32[b], from = s < length ? length - 1 - s : s;
        memcpy((char *)y->data + at * item,
               (const char *)x->data + (at - s * (size_t)stride[seq] + from * (size_t)stride[seq]) * item, row * item);
    }
    return TEG_OK;
}

/* ---- depth and space: x as [n, C, H, W] ---- */

/* A dimension of an exchange: its size and its strides on both sides. */
struct leg {
    size_t size, dst, src;
};

static enum teg_status image(struct teg_eval_call *c, const char *parameter, const struct teg_array **x, size_t *block)
{
    int32_t b;
    TRY(teg_arg_any(c, "x", x));
    TRY(teg_arg_int(c, parameter, 0, &b));
    if ((*x)->rank != 4 || (*x)->form == TEG_FORM_LIST)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter x: expected four dimensions, found shape %s",
                teg_shape_text((*x)->rank, (*x)->dims).text);
    if (b < 1 || b > 1 << 15)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter %s: expected a block size from 1 to 32768, found %d", parameter, b);
    *block = (size_t)b;
    return TEG_OK;
}

static enum teg_status exchange(struct teg_eval_call *c, const struct teg_array *x, const size_t *dims,
                                const struct leg *legs, size_t n_legs)
{
    struct teg_array *y;
    TRY(teg_output(c, 0, x->form, 4, dims, &y));
    struct teg_strided copy = teg_strided_between(y, x);
    for (size_t i = 0; i < n_legs; i++)
        teg_strided_dim(&copy, legs[i].size, (ptrdiff_t)legs[i].dst, (ptrdiff_t)legs[i].src);
    if (y->n)
        teg_strided_copy(c, &copy);
    return TEG_OK;
}

/* From depth to space. The block's rows and columns are the outer part of the channel (depth_to_space) or its inner
 * part (pixel_shuffle): they differ in the strides of the three. */
static enum teg_status to_space(struct teg_eval_call *c, const char *parameter, bool block_is_inner)
{
    const struct teg_array *x;
    size_t b;
    TRY(image(c, parameter, &x, &b));
    const size_t n = x->dims[0], ch = x->dims[1] / (b * b), h = x->dims[2], w = x->dims[3], p = h * w;
    if (x->dims[1] % (b * b))
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter x: expected a multiple of %zu channels, found %zu", b * b, x->dims[1]);
    const size_t of_channel = block_is_inner ? b * b * p : p;
    const size_t of_row = block_is_inner ? b * p : b * ch * p, of_column = block_is_inner ? p : ch * p;
    const size_t dims[4] = {n, ch, h * b, w * b};
    const struct leg legs[] = {{n, ch * b * b * p, x->dims[1] * p},
                               {ch, b * b * p, of_channel},
                               {h, b * w * b, w},
                               {b, w * b, of_row},
                               {w, b, 1},
                               {b, 1, of_column}};
    return exchange(c, x, dims, legs, sizeof legs / sizeof *legs);
}

static enum teg_status to_depth(struct teg_eval_call *c, const char *parameter, bool block_is_inner)
{
    const struct teg_array *x;
    size_t b;
    TRY(image(c, parameter, &x, &b));
    const size_t n = x->dims[0], ch = x->dims[1], h = x->dims[2] / b, w = x->dims[3] / b, p = h * w;
    if (x->dims[2] % b || x->dims[3] % b)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter x: expected a multiple of %zu rows and columns, found %zu and %zu", b,
                x->dims[2], x->dims[3]);
    const size_t of_channel = block_is_inner ? b * b * p : p;
    const size_t of_row = block_is_inner ? b * p : b * ch * p, of_column = block_is_inner ? p : ch * p;
    const size_t dims[4] = {n, ch * b * b, h, w};
    const struct leg legs[] = {{n, ch * b * b * p, ch * b * b * p},
                               {ch, of_channel, b * b * p},
                               {h, w, b * w * b},
                               {b, of_row, w * b},
                               {w, 1, b},
                               {b, of_column, 1}};
    return exchange(c, x, dims, legs, sizeof legs / sizeof *legs);
}

static enum teg_status op_depth_to_space(struct teg_eval_call *c)
{
    return to_space(c, "block_size", false);
}

static enum teg_status op_pixel_shuffle(struct teg_eval_call *c)
{
    return to_space(c, "upscale_factor", true);
}

static enum teg_status op_space_to_depth(struct teg_eval_call *c)
{
    return to_depth(c, "block_size", false);
}

static enum teg_status op_pixel_unshuffle(struct teg_eval_call *c)
{
    return to_depth(c, "downscale_factor", true);
}

/* ---- batch and space ---- */

struct blocks {
    size_t h, w;                     /* of a block */
    size_t top, bottom, left, right; /* padding or crops of the space */
};

static enum teg_status block_arguments(struct teg_eval_call *c, const char *edges_name, const struct teg_array **x,
                                       struct blocks *b)
{
    const struct teg_array *shape, *edges;
    TRY(teg_arg_any(c, "x", x));
    TRY(teg_arg_form(c, "block_shape", TEG_FORM_I32, &shape));
    TRY(teg_arg_form(c, edges_name, TEG_FORM_I32, &edges));
    bool fits = (*x)->rank == 4 && (*x)->form <= TEG_FORM_BOOL && shape->n == 2 && edges->n == 4;
    for (size_t i = 0; fits && i < 4; i++)
        fits = edges->i32[i] >= 0 && shape->i32[i / 2] > 0 && shape->i32[i / 2] <= 1 << 15;
    if (!fits)
        OP_FAIL(c, TEG_ERR_FORMAT,
                "parameter block_shape: expected four dimensions, two block sizes and four %s that are "
                "not negative, found others",
                edges_name);
    *b = (struct blocks){(size_t)shape->i32[0], (size_t)shape->i32[1], (size_t)edges->i32[0],
                         (size_t)edges->i32[1], (size_t)edges->i32[2], (size_t)edges->i32[3]};
    return TEG_OK;
}

/* Walks the space of the batch side: for every element of `batched` [h·w·n, C, H, W] the element of `space`
 * [n, C, …, …] that it stands for, where it is inside. */
static void exchange_batch(const struct teg_array *space, const struct teg_array *batched, const struct blocks *b,
                           char *dst, const char *src, bool to_batch)
{
    const size_t item = teg_item_bytes(space), n = space->dims[0];
    size_t at = 0;
    for (size_t batch = 0; batch < batched->dims[0]; batch++)
        for (size_t ch = 0; ch < batched->dims[1]; ch++)
            for (size_t i = 0; i < batched->dims[2]; i++)
                for (size_t k = 0; k < batched->dims[3]; k++, at++) {
                    const size_t y = i * b->h + batch / n / b->w, x = k * b->w + batch / n % b->w;
                    if (y < b->top || x < b->left || y - b->top >= space->dims[2] || x - b->left >= space->dims[3])
                        continue;
                    const size_t row = (batch % n * space->dims[1] + ch) * space->dims[2] + y - b->top;
                    const size_t of_space = row * space->dims[3] + x - b->left;
                    memcpy(dst + (to_batch ? at : of_space) * item, src + (to_batch ? of_space : at) * item, item);
                }
}

static enum teg_status op_space_to_batch(struct teg_eval_call *c)
{
    const struct teg_array *x;
    struct blocks b;
    struct teg_array *y;
    TRY(block_arguments(c, "paddings", &x, &b));
    const size_t h = x->dims[2] + b.top + b.bottom, w = x->dims[3] + b.left + b.right;
    if (h % b.h || w % b.w)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter paddings: expected a padded space of whole blocks, found %zux%zu", h, w);
    const size_t dims[4] = {x->dims[0] * b.h * b.w, x->dims[1], h / b.h, w / b.w};
    TRY(teg_output(c, 0, x->form, 4, dims, &y));
    memset(y->data, 0, y->n_bytes);
    if (x->n)
        exchange_batch(x, y, &b, y->data, x->data, true);
    return TEG_OK;
}

static enum teg_status op_batch_to_space(struct teg_eval_call *c)
{
    const struct teg_array *x;
    struct blocks b;
    struct teg_array *y;
    TRY(block_arguments(c, "crops", &x, &b));
    const size_t h = x->dims[2] * b.h, w = x->dims[3] * b.w;
    if (x->dims[0] % (b.h * b.w) || h < b.top + b.bottom || w < b.left + b.right)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter crops: expected whole blocks and crops inside %zux%zu, found others", h,
                w);
    const size_t dims[4] = {x->dims[0] / (b.h * b.w), x->dims[1], h - b.top - b.bottom, w - b.left - b.right};
    TRY(teg_output(c, 0, x->form, 4, dims, &y));
    if (y->n)
        exchange_batch(y, x, &b, y->data, x->data, false);
    return TEG_OK;
}

const struct teg_eval_row teg_eval_rows_layout[] = {
    {"transpose", 6, op_transpose},
    {"tile", 6, op_tile},
    {"reverse", 6, op_reverse},
    {"reverse_sequence", 6, op_reverse_sequence},
    {"depth_to_space", 6, op_depth_to_space},
    {"space_to_depth", 6, op_space_to_depth},
    {"pixel_shuffle", 6, op_pixel_shuffle},
    {"pixel_unshuffle", 7, op_pixel_unshuffle},
    {"space_to_batch", 6, op_space_to_batch},
    {"batch_to_space", 6, op_batch_to_space},
    {NULL, 0, NULL},
};
