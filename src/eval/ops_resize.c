/* eval/ops_resize.c: resize, resize_bilinear, resize_nearest_neighbor, upsample_bilinear, upsample_nearest_neighbor.
 *
 * Interpolation is separable, so every one of them is a list of axes, each resized by a table: output i is a mixture of
 * two inputs. Axes behind the one being resized make a row that is mixed as a whole. Between two axes there is one
 * intermediate tensor. Nearest neighbour is the same table with weight 0.
 *
 * Nearest neighbour, by recorded results: upsample_* takes floor(i · in / out); resize_* takes the pixel that holds the
 * centre of the output pixel, floor((i + 1/2) · in / out). */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "eval/sampling.h"

struct tap { /* output = low · (1 - weight) + high · weight */
    size_t low, high;
    float weight;
};

struct axis { /* [outer, n_in, inner] -> [outer, n_out, inner] */
    const float *x;
    float *y;
    const struct tap *taps;
    size_t n_in, n_out, inner;
};

static void resize_lines(void *ctx, size_t begin, size_t end)
{
    const struct axis *const a = ctx;
    for (size_t i = begin; i < end; i++) {
        const struct tap t = a->taps[i % a->n_out];
        const float *const plane = a->x + i / a->n_out * a->n_in * a->inner;
        const float *const low = plane + t.low * a->inner, *const high = plane + t.high * a->inner;
        float *const y = a->y + i * a->inner;
        if (t.weight == 0.0f)
            memcpy(y, low, a->inner * sizeof *y);
        else
            for (size_t k = 0; k < a->inner; k++)
                y[k] = low[k] + (high[k] - low[k]) * t.weight;
    }
}

/* The last axis: a line is a plane of one row. */
static void resize_columns(void *ctx, size_t begin, size_t end)
{
    const struct axis *const a = ctx;
    for (size_t i = begin; i < end; i++) {
        const float *const x = a->x + i * a->n_in;
        float *const y = a->y + i * a->n_out;
        for (size_t k = 0; k < a->n_out; k++) {
            const struct tap t = a->taps[k];
            y[k] = t.weight == 0.0f ? x[t.low] : x[t.low] + (x[t.high] - x[t.low]) * t.weight;
        }
    }
}

enum nearest { LINEAR, NEAREST_FLOOR, NEAREST_CENTRE };

/* What an op asks for: the last n_axes dims become `to`. */
struct resize {
    const struct teg_array *x;
    uint32_t n_axes;
    size_t to[TEG_MIL_MAX_RANK];
    enum teg_sampling mode;
    enum nearest nearest;
};

static struct tap tap_of(const struct resize *r, size_t n_in, size_t n_out, size_t i)
{
    size_t low;
    if (r->nearest == LINEAR || (r->mode != TEG_SAMPLE_DEFAULT && r->mode != TEG_SAMPLE_UNALIGN)) {
        const double at = teg_sampling_axis(r->mode, n_in, n_out, i);
        if (r->nearest == LINEAR) {
            low = (size_t)at;
            return (struct tap){low, low + 1 < n_in ? low + 1 : low, (float)(at - (double)low)};
        }
        low = (size_t)(at + 0.5);
    } else if (r->nearest == NEAREST_FLOOR) {
        low = (size_t)((double)i * (double)n_in / (double)n_out);
    } else {
        low = (size_t)(((double)i + 0.5) * (double)n_in / (double)n_out);
    }
    low = teg_min(low, n_in - 1);
    return (struct tap){low, low, 0.0f};
}

static enum teg_status resize_axis(struct teg_eval_call *c, const struct resize *r, struct axis *a, size_t outer)
{
    struct tap *taps;
    TRY(teg_op_scratch(c, a->n_out, sizeof *taps, (void **)&taps));
    for (size_t i = 0; i < a->n_out; i++)
        taps[i] = tap_of(r, a->n_in, a->n_out, i);
    a->taps = taps;
    if (a->inner == 1)
        teg_op_parallel(c, outer, 4 * a->n_out, resize_columns, a);
    else
        teg_op_parallel(c, outer * a->n_out, a->inner, resize_lines, a);
    return TEG_OK;
}

/* Integers (resize of opset 17 takes them) are resized as floats and rounded. */
static enum teg_status as_floats(struct teg_eval_call *c, const struct teg_array *x, const float **out)
{
    float *copy;
    *out = x->f32;
    if (x->form == TEG_FORM_F32)
        return TEG_OK;
    if (x->form != TEG_FORM_I32)
        OP_FAIL(c, TEG_ERR_UNSUPPORTED, "parameter x: expected numbers, found another type");
    TRY(teg_op_scratch(c, x->n ? x->n : 1, sizeof *copy, (void **)&copy));
    for (size_t i = 0; i < x->n; i++)
        copy[i] = (float)x->i32[i];
    *out = copy;
    return TEG_OK;
}

static void from_floats(const float *from, struct teg_array *y)
{
    for (size_t i = 0; i < y->n; i++) {
        const float v = rintf(from[i]);
        y->i32[i] = v >= 0x1p31f ? INT32_MAX : v < -0x1p31f ? INT32_MIN : (int32_t)v;
    }
}

/* Points of OFFSET_CORNERS lie between pixels even where the size stays. */
static bool changes(const struct resize *r, size_t n_in, size_t n_out)
{
    return n_in != n_out || r->mode == TEG_SAMPLE_OFFSET;
}

/* Resizes axis after axis, the last one first. */
static enum teg_status resize_into(struct teg_eval_call *c, const struct resize *r, const float *x, float *y)
{
    const uint32_t rank = r->x->rank, first = rank - r->n_axes;
    size_t dims[TEG_MIL_MAX_RANK];
    memcpy(dims, r->x->dims, rank * sizeof *dims);
    uint32_t left = 0;
    for (uint32_t d = first; d < rank; d++)
        left += changes(r, dims[d], r->to[d - first]);
    if (!left)
        memcpy(y, x, r->x->n * sizeof *y);
    for (uint32_t d = rank; d-- > first;) {
        if (!changes(r, dims[d], r->to[d - first]))
            continue;
        struct axis a = {.x = x, .y = y, .n_in = dims[d], .n_out = r->to[d - first], .inner = 1};
        size_t outer = 1, n;
        for (uint32_t i = 0; i < d; i++)
            outer *= dims[i];
        for (uint32_t i = d + 1; i < rank; i++)
            a.inner *= dims[i];
        if (!teg_mul(outer, a.n_out, &n) || !teg_mul(n, a.inner, &n))
            OP_FAIL(c, TEG_ERR_FORMAT, "output: expected a size that can be addressed, found an overflow");
        if (--left)
            TRY(teg_op_scratch(c, n, sizeof *y, (void **)&a.y));
        TRY(resize_axis(c, r, &a, outer));
        dims[d] = a.n_out;
        x = a.y;
    }
    return TEG_OK;
}

static enum teg_status run_resize(struct teg_eval_call *c, struct resize *r)
{
    const struct teg_array *const x = r->x;
    size_t dims[TEG_MIL_MAX_RANK];
    memcpy(dims, x->dims, x->rank * sizeof *dims);
    for (uint32_t k = 0; k < r->n_axes; k++)
        dims[x->rank - r->n_axes + k] = r->to[k];
    struct teg_array *y;
    const float *from;
    TRY(teg_output(c, 0, x->form, x->rank, dims, &y));
    if (!y->n)
        return TEG_OK;
    if (!x->n)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter x: expected elements to resize, found shape %s",
                teg_shape_text(x->rank, x->dims).text);
    TRY(as_floats(c, x, &from));
    if (y->form == TEG_FORM_F32)
        return resize_into(c, r, from, y->f32);
    float *to;
    TRY(teg_op_scratch(c, y->n, sizeof *to, (void **)&to));
    TRY(resize_into(c, r, from, to));
    from_floats(to, y);
    return TEG_OK;
}

static enum teg_status read_picture(struct teg_eval_call *c, struct resize *r)
{
    TRY(teg_arg_any(c, "x", &r->x));
    if (r->x->rank < 3)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter x: expected rank 3 or more, found shape %s",
                teg_shape_text(r->x->rank, r->x->dims).text);
    r->n_axes = 2;
    return TEG_OK;
}

/* ---- by size ---- */

static enum teg_status read_target(struct teg_eval_call *c, const char *name, size_t *out)
{
    int32_t size;
    TRY(teg_arg_int(c, name, 1, &size));
    if (size < 1)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter %s: expected a size from 1 on, found %d", name, size);
    *out = (size_t)size;
    return TEG_OK;
}

static enum teg_status resize_to(struct teg_eval_call *c, enum nearest nearest)
{
    struct resize r = {.nearest = nearest};
    TRY(read_picture(c, &r));
    TRY(read_target(c, "target_size_height", &r.to[0]));
    TRY(read_target(c, "target_size_width", &r.to[1]));
    if (nearest == LINEAR)
        TRY(teg_sampling_read(c, "sampling_mode", &r.mode));
    return run_resize(c, &r);
}

static enum teg_status op_resize_bilinear(struct teg_eval_call *c)
{
    return resize_to(c, LINEAR);
}

static enum teg_status op_resize_nearest_neighbor(struct teg_eval_call *c)
{
    return resize_to(c, NEAREST_CENTRE);
}

static enum teg_status read_interpolation(struct teg_eval_call *c, struct resize *r)
{
    struct teg_string text;
    TRY(teg_arg_string(c, "interpolation_mode", "LINEAR", &text));
    r->nearest = teg_string_is(text, "LINEAR") ? LINEAR : NEAREST_CENTRE;
    if (r->nearest != LINEAR && !teg_string_is(text, "NEAREST_NEIGHBOR"))
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter interpolation_mode: expected LINEAR or NEAREST_NEIGHBOR, found \"%.*s\"",
                (int)teg_min(text.n_bytes, 60), text.bytes);
    return teg_sampling_read(c, "sampling_mode", &r->mode);
}

static enum teg_status op_resize(struct teg_eval_call *c)
{
    struct resize r = {0};
    int32_t shape[TEG_MIL_MAX_RANK], n_resized;
    size_t n;
    TRY(teg_arg_any(c, "x", &r.x));
    TRY(teg_arg_ints(c, "shape", shape, TEG_MIL_MAX_RANK, &n));
    TRY(teg_arg_int(c, "resized_dims", 0, &n_resized));
    if (n == SIZE_MAX || n > r.x->rank || n_resized < 0 || (size_t)n_resized > n)
        OP_FAIL(c, TEG_ERR_FORMAT,
                "parameter resized_dims: expected at most the %zu values of shape, which has at most the "
                "rank of x (%u), found %d",
                n == SIZE_MAX ? 0 : n, r.x->rank, n_resized);
    r.n_axes = (uint32_t)n_resized;
    for (uint32_t k = 0; k < r.n_axes; k++) {
        const int32_t size = shape[n - r.n_axes + k]; /* 0: as x has it */
        if (size < 0)
            OP_FAIL(c, TEG_ERR_FORMAT, "parameter shape: expected sizes from 0 on, found %d", size);
        r.to[k] = size ? (size_t)size : r.x->dims[r.x->rank - r.n_axes + k];
    }
    TRY(read_interpolation(c, &r));
    return run_resize(c, &r);
}

/* ---- by factor ---- */

/* The factor is a float or an integer. */
static enum teg_status read_factor(struct teg_eval_call *c, const char *name, size_t n_in, size_t *out)
{
    const struct teg_array *const a = teg_arg(c, name);
    float factor = 1;
    int32_t whole = 1;
    if (a && a->form == TEG_FORM_I32)
        TRY(teg_arg_int(c, name, 1, &whole));
    else
        TRY(teg_arg_float(c, name, 1.0f, &factor));
    const double size = floor((double)factor * (double)whole * (double)n_in);
    if (!(size >= 1 && size <= 0x1p31))
        OP_FAIL(c, TEG_ERR_FORMAT,
                "parameter %s: expected a factor that gives a size from 1 to 2^31, found %g times %zu", name,
                (double)factor * whole, n_in);
    *out = (size_t)size;
    return TEG_OK;
}

static enum teg_status upsample(struct teg_eval_call *c, struct resize *r)
{
    TRY(read_picture(c, r));
    TRY(read_factor(c, "scale_factor_height", r->x->dims[r->x->rank - 2], &r->to[0]));
    TRY(read_factor(c, "scale_factor_width", r->x->dims[r->x->rank - 1], &r->to[1]));
    return run_resize(c, r);
}

static enum teg_status op_upsample_bilinear(struct teg_eval_call *c)
{
    struct resize r = {.nearest = LINEAR};
    bool align, half;
    TRY(teg_arg_bool(c, "align_corners", true, &align));
    TRY(teg_arg_bool(c, "half_pixel_centers", !align, &half));
    r.mode = align ? TEG_SAMPLE_STRICT : half ? TEG_SAMPLE_UNALIGN : TEG_SAMPLE_DEFAULT;
    return upsample(c, &r);
}

static enum teg_status op_upsample_nearest_neighbor(struct teg_eval_call *c)
{
    struct resize r = {.nearest = NEAREST_FLOOR};
    return upsample(c, &r);
}

const struct teg_eval_row teg_eval_rows_resize[] = {
    {"resize_bilinear", 6, op_resize_bilinear},
    {"resize_nearest_neighbor", 6, op_resize_nearest_neighbor},
    {"upsample_bilinear", 6, op_upsample_bilinear},
    {"upsample_nearest_neighbor", 6, op_upsample_nearest_neighbor},
    {"resize", 8, op_resize},
    {NULL, 0, NULL},
};
