/* eval/window.c: the arithmetic of sliding windows; see window.h.
 *
 *   extent of a kernel  e = (k - 1) · dilation + 1
 *   valid, custom       out = floor((in + before + after - e) / stride) + 1      (ceil_mode: see solve_ceil)
 *   same, same_lower    out = ceil(in / stride); pad = max(0, (out - 1) · stride + e - in), halved; an odd one goes
 *                       behind with same, in front with same_lower
 *   transposed          out = (in - 1) · stride + e - before - after; with same, out = in · stride */
#include <string.h>

#include "eval/window.h"

struct pads {
    bool same, lower, custom;
    int32_t pad[2 * TEG_WINDOW_DIMS];
};

/* `count` positive integers, absent: ones, into the last places of out. */
static enum teg_status read_positive(const struct teg_eval_call *c, const char *name, uint32_t count,
                                     int64_t out[TEG_WINDOW_DIMS])
{
    int32_t values[TEG_WINDOW_DIMS];
    size_t n;
    for (uint32_t d = 0; d < TEG_WINDOW_DIMS; d++)
        out[d] = 1;
    TRY(teg_arg_ints(c, name, values, TEG_WINDOW_DIMS, &n));
    if (n == SIZE_MAX)
        return TEG_OK;
    if (n != count)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter %s: expected %u values, one a spatial dimension, found %zu", name, count,
                n);
    for (uint32_t d = 0; d < count; d++) {
        if (values[d] < 1)
            OP_FAIL(c, TEG_ERR_FORMAT, "parameter %s: expected values from 1 on, found %d", name, values[d]);
        out[TEG_WINDOW_DIMS - count + d] = values[d];
    }
    return TEG_OK;
}

static enum teg_status read_pads(const struct teg_eval_call *c, const char *otherwise, uint32_t rank, struct pads *p)
{
    struct teg_string type;
    size_t n;
    memset(p, 0, sizeof *p);
    TRY(teg_arg_string(c, "pad_type", otherwise, &type));
    p->lower = teg_string_is(type, "same_lower");
    p->same = p->lower || teg_string_is(type, "same");
    p->custom = teg_string_is(type, "custom");
    if (!p->same && !p->custom && !teg_string_is(type, "valid"))
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter pad_type: expected valid, custom, same or same_lower, found \"%.*s\"",
                (int)(type.n_bytes < 60 ? type.n_bytes : 60), type.bytes);
    if (!p->custom)
        return TEG_OK;
    int32_t values[2 * TEG_WINDOW_DIMS];
    TRY(teg_arg_ints(c, "pad", values, 2 * TEG_WINDOW_DIMS, &n));
    if (n == SIZE_MAX)
        return TEG_OK;
    if (n != 2 * rank)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter pad: expected %u values, two a spatial dimension, found %zu", 2 * rank,
                n);
    for (size_t i = 0; i < n; i++) {
        if (values[i] < 0)
            OP_FAIL(c, TEG_ERR_FORMAT, "parameter pad: expected values from 0 on, found %d", values[i]);
        p->pad[2 * TEG_WINDOW_DIMS - n + i] = values[i];
    }
    return TEG_OK;
}

static enum teg_status read_common(const struct teg_eval_call *c, const struct teg_array *x, const size_t *kernel,
                                   struct teg_window *w)
{
    memset(w, 0, sizeof *w);
    if (x->rank < 3 || x->rank > 2 + TEG_WINDOW_DIMS)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter x: expected rank 3 to 5 (batch, channels, space), found shape %s",
                teg_shape_text(x->rank, x->dims).text);
    w->rank = x->rank - 2;
    TRY(read_positive(c, "strides", w->rank, w->stride));
    TRY(read_positive(c, "dilations", w->rank, w->dilation));
    for (uint32_t d = 0; d < TEG_WINDOW_DIMS; d++) {
        const bool used = d + w->rank >= TEG_WINDOW_DIMS;
        const uint32_t own = used ? d + w->rank - TEG_WINDOW_DIMS : 0;
        if (used && (kernel[own] < 1 || kernel[own] > INT32_MAX || x->dims[2 + own] > (size_t)INT32_MAX))
            OP_FAIL(c, TEG_ERR_FORMAT,
                    "kernel: expected sizes from 1 to 2147483647 over space of as much, found %zu over %zu",
                    kernel[own], x->dims[2 + own]);
        w->in[d] = used ? (int64_t)x->dims[2 + own] : 1;
        w->kernel[d] = used ? (int64_t)kernel[own] : 1;
        if ((w->kernel[d] - 1) * w->dilation[d] > TEG_WINDOW_MAX || w->in[d] * w->stride[d] > TEG_WINDOW_MAX)
            OP_FAIL(c, TEG_ERR_FORMAT,
                    "parameter dilations or strides: expected windows below 2^40 elements, found more");
    }
    return TEG_OK;
}

static int64_t extent(const struct teg_window *w, uint32_t d)
{
    return (w->kernel[d] - 1) * w->dilation[d] + 1;
}

static void split(const struct pads *p, int64_t total, int64_t *before, int64_t *after)
{
    const int64_t all = total > 0 ? total : 0;
    *before = p->lower ? all - all / 2 : all / 2;
    *after = all - *before;
}

/* A window that starts behind the data and its leading padding is left out, where there is padding at all. */
static int64_t solve_ceil(const struct teg_window *w, uint32_t d, int64_t room)
{
    int64_t out = (room + w->stride[d] - 1) / w->stride[d] + 1;
    const int64_t pad = w->before[d] + w->after[d];
    if (pad > 0 && 2 * (out - 1) * w->stride[d] >= 2 * w->in[d] + pad)
        out--;
    return out;
}

enum teg_status teg_window_read(const struct teg_eval_call *c, const struct teg_array *x, const size_t *kernel,
                                const char *pad_type_otherwise, bool ceil, struct teg_window *w)
{
    struct pads p;
    TRY(read_common(c, x, kernel, w));
    TRY(read_pads(c, pad_type_otherwise, w->rank, &p));
    for (uint32_t d = 0; d < TEG_WINDOW_DIMS; d++) {
        if (p.same) {
            w->out[d] = (w->in[d] + w->stride[d] - 1) / w->stride[d];
            split(&p, (w->out[d] - 1) * w->stride[d] + extent(w, d) - w->in[d], &w->before[d], &w->after[d]);
            continue;
        }
        w->before[d] = p.pad[2 * d];
        w->after[d] = p.pad[2 * d + 1];
        const int64_t room = w->in[d] + w->before[d] + w->after[d] - extent(w, d);
        if (room < 0)
            OP_FAIL(c, TEG_ERR_FORMAT, "kernel: expected at most the padded input of %lld elements, found %lld",
                    (long long)(room + extent(w, d)), (long long)extent(w, d));
        w->out[d] = ceil ? solve_ceil(w, d, room) : room / w->stride[d] + 1;
    }
    return TEG_OK;
}

/* The spatial part of output_shape, or out[2] = -1 where it is not given. */
static enum teg_status read_output_shape(const struct teg_eval_call *c, uint32_t rank, int64_t out[TEG_WINDOW_DIMS])
{
    int32_t shape[2 + TEG_WINDOW_DIMS];
    size_t n;
    TRY(teg_arg_ints(c, "output_shape", shape, 2 + TEG_WINDOW_DIMS, &n));
    out[TEG_WINDOW_DIMS - 1] = -1;
    if (n == SIZE_MAX)
        return TEG_OK;
    if (n != rank + 2)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter output_shape: expected %u values, found %zu", rank + 2, n);
    for (uint32_t d = 0; d < TEG_WINDOW_DIMS; d++) {
        const bool used = d + rank >= TEG_WINDOW_DIMS;
        out[d] = used ? shape[2 + d + rank - TEG_WINDOW_DIMS] : 1;
        if (out[d] < 0)
            OP_FAIL(c, TEG_ERR_FORMAT, "parameter output_shape: expected sizes from 0 on, found %lld",
                    (long long)out[d]);
    }
    return TEG_OK;
}

enum teg_status teg_window_read_transposed(const struct teg_eval_call *c, const struct teg_array *x,
                                           const size_t *kernel, struct teg_window *w)
{
    struct pads p;
    int64_t given[TEG_WINDOW_DIMS];
    TRY(read_common(c, x, kernel, w));
    TRY(read_pads(c, "valid", w->rank, &p));
    TRY(read_output_shape(c, w->rank, given));
    const bool is_given = given[TEG_WINDOW_DIMS - 1] >= 0;
    for (uint32_t d = 0; d < TEG_WINDOW_DIMS; d++) {
        const int64_t full = w->in[d] ? (w->in[d] - 1) * w->stride[d] + extent(w, d) : 0;
        w->before[d] = p.pad[2 * d];
        w->after[d] = p.pad[2 * d + 1];
        w->out[d] = is_given ? given[d] : p.same ? w->in[d] * w->stride[d] : full - w->before[d] - w->after[d];
        if (w->out[d] < 0)
            OP_FAIL(c, TEG_ERR_FORMAT, "parameter pad: expected at most the output of %lld elements, found %lld",
                    (long long)full, (long long)(w->before[d] + w->after[d]));
        if (p.same)
            split(&p, full - w->out[d], &w->before[d], &w->after[d]);
    }
    return TEG_OK;
}

static void shift_dims(int64_t dims[TEG_WINDOW_DIMS], int64_t first)
{
    dims[2] = dims[1];
    dims[1] = dims[0];
    dims[0] = first;
}

void teg_window_flatten(struct teg_window *w)
{
    for (uint32_t i = 0; i < TEG_WINDOW_DIMS - 1; i++) {
        if (w->in[2] != 1 || w->out[2] != 1 || w->kernel[2] != 1 || w->before[2] || w->after[2])
            return;
        shift_dims(w->in, 1);
        shift_dims(w->out, 1);
        shift_dims(w->kernel, 1);
        shift_dims(w->stride, 1);
        shift_dims(w->dilation, 1);
        shift_dims(w->before, 0);
        shift_dims(w->after, 0);
    }
}

void teg_window_inside(const struct teg_window *w, uint32_t d, int64_t offset, int64_t *first, int64_t *last)
{
    const int64_t shift = offset - w->before[d]; /* input index = out · stride + shift */
    int64_t lead = shift < 0 ? -shift : 0, end = shift < w->in[d] ? w->in[d] - 1 - shift : -1;
    if (w->stride[d] > 1) { /* a division costs more than all the rest */
        lead = (lead + w->stride[d] - 1) / w->stride[d];
        end = end < 0 ? -1 : end / w->stride[d];
    }
    end++;
    *first = lead < w->out[d] ? lead : w->out[d];
    *last = end < w->out[d] ? end : w->out[d];
    if (*last < *first)
        *last = *first;
}
