/* eval/ops_image.c: crop, crop_resize, affine, resample: pictures sampled at computed points.
 *
 * The last three are one loop: each output pixel has a point in the input; bilinear takes the four pixels around it,
 * nearest the one. What differs is where the point comes from and what lies outside of the picture:
 *   constant    a pixel outside has the padding value (each of the four on its own)
 *   border      the point is clamped
 *   reflection  the point is mirrored at the centres of the border pixels
 *   symmetric   the point is mirrored at the outer edges of the border pixels
 *   box         the whole output pixel has the padding value when its point is outside (crop_resize)
 * Not taken: tables per axis for boxes, since a box's grid is rarely large enough to matter. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "eval/sampling.h"

enum outside { OUTSIDE_CONSTANT, OUTSIDE_BORDER, OUTSIDE_REFLECTION, OUTSIDE_SYMMETRIC, OUTSIDE_BOX };

struct picture {
    const float *x; /* one channel */
    size_t h, w;
    enum outside outside;
    bool nearest;
    float padding;
};

static double mirror(double at, double low, double high)
{
    const double span = high - low;
    if (span <= 0)
        return low;
    double from = fmod(fabs(at - low), 2 * span);
    return low + (from > span ? 2 * span - from : from);
}

/* A coordinate brought into the picture where the mode does that. NaN is outside, or the first pixel. */
static double settle(const struct picture *p, double at, size_t n)
{
    const double last = (double)n - 1;
    if (isnan(at))
        return p->outside == OUTSIDE_CONSTANT || p->outside == OUTSIDE_BOX ? -1e9 : 0;
    if (p->outside == OUTSIDE_REFLECTION && isfinite(at))
        at = mirror(at, 0, last);
    if (p->outside == OUTSIDE_SYMMETRIC && isfinite(at))
        at = mirror(at, -0.5, last + 0.5);
    if (p->outside == OUTSIDE_CONSTANT || p->outside == OUTSIDE_BOX)
        return at < -1e9 ? -1e9 : at > 1e12 ? 1e12 : at; /* still outside, and safe to convert */
    return at < 0 ? 0 : at > last ? last : at;
}

static float pixel(const struct picture *p, int64_t y, int64_t x)
{
    const bool inside = y >= 0 && x >= 0 && y < (int64_t)p->h && x < (int64_t)p->w;
    return inside ? p->x[(size_t)y * p->w + (size_t)x] : p->padding;
}

static float sample(const struct picture *p, double y, double x)
{
    y = settle(p, y, p->h);
    x = settle(p, x, p->w);
    if (p->outside == OUTSIDE_BOX && (y < 0 || x < 0 || y > (double)p->h - 1 || x > (double)p->w - 1))
        return p->padding;
    if (p->nearest)
        return pixel(p, (int64_t)nearbyint(y), (int64_t)nearbyint(x));
    const double y0 = floor(y), x0 = floor(x);
    const float fy = (float)(y - y0), fx = (float)(x - x0);
    const int64_t iy = (int64_t)y0, ix = (int64_t)x0;
    /* A neighbour of weight 0 is not looked at: outside of a box it would drag in the padding. */
    const float a = pixel(p, iy, ix), b = fx > 0 ? pixel(p, iy, ix + 1) : a;
    const float top = a + (b - a) * fx;
    if (!(fy > 0))
        return top;
    const float c = pixel(p, iy + 1, ix), d = fx > 0 ? pixel(p, iy + 1, ix + 1) : c;
    return top + (c + (d - c) * fx - top) * fy;
}

/* ---- crop ---- */

static enum teg_status read_crop(struct teg_eval_call *c, const char *name, size_t n_in, size_t *before, size_t *n_out)
{
    int32_t amounts[2];
    size_t n;
    TRY(teg_arg_ints(c, name, amounts, 2, &n));
    if (n != 2 || amounts[0] < 0 || amounts[1] < 0 || (size_t)amounts[0] + (size_t)amounts[1] > n_in)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter %s: expected two amounts from 0 on within %zu elements, found others",
                name, n_in);
    *before = (size_t)amounts[0];
    *n_out = n_in - (size_t)amounts[0] - (size_t)amounts[1];
    return TEG_OK;
}

static enum teg_status op_crop(struct teg_eval_call *c)
{
    const struct teg_array *x;
    struct teg_array *y;
    size_t dims[TEG_MIL_MAX_RANK], top, left;
    TRY(teg_arg_any(c, "x", &x));
    if (x->rank < 3 || (x->form != TEG_FORM_F32 && x->form != TEG_FORM_I32))
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter x: expected numbers of rank 3 or more, found shape %s",
                teg_shape_text(x->rank, x->dims).text);
    const size_t h = x->dims[x->rank - 2], w = x->dims[x->rank - 1];
    memcpy(dims, x->dims, x->rank * sizeof *dims);
    TRY(read_crop(c, "crop_height", h, &top, &dims[x->rank - 2]));
    TRY(read_crop(c, "crop_width", w, &left, &dims[x->rank - 1]));
    TRY(teg_output(c, 0, x->form, x->rank, dims, &y));
    const size_t h_out = dims[x->rank - 2], w_out = dims[x->rank - 1], n_lines = w_out ? y->n / w_out : 0;
    for (size_t line = 0; line < n_lines; line++) /* both forms have elements of four bytes */
        memcpy(y->f32 + line * w_out, x->f32 + (line / h_out * h + top + line % h_out) * w + left,
               w_out * sizeof *y->f32);
    return TEG_OK;
}

/* ---- crop_resize ---- */

struct boxes {
    struct picture p;
    const struct teg_array *x; /* [B, C, H, W] */
    float *y;                  /* [crops, C, h, w]; crop i: box i / per_box of image image_of(i) */
    const struct teg_array *corners, *indices;
    size_t n, columns; /* boxes; values a box */
    size_t per_box;    /* images a box is applied to */
    bool with_index;   /* the first of five columns is the image */
    bool normalized, width_first, by_centre;
    float scale;
    enum teg_sampling mode;
    size_t h, w;
};

static float number(const struct teg_array *a, size_t i)
{
    return a->form == TEG_FORM_F32 ? a->f32[i] : (float)a->i32[i];
}

static size_t image_of(const struct boxes *b, size_t crop)
{
    if (b->indices)
        return (size_t)b->indices->i32[crop];
    if (b->with_index)
        return (size_t)number(b->corners, crop / b->per_box * b->columns);
    return b->per_box > 1 ? crop % b->per_box : b->corners->rank == 2 ? crop : 0;
}

struct stretch {
    double start, end;
};

/* The box's stretch along height (0) or width (1). */
static struct stretch stretch_of(const struct boxes *b, size_t box, uint32_t along)
{
    const size_t at = box * b->columns + b->with_index + (b->width_first ? !along : along);
    double first = (double)number(b->corners, at) * (double)b->scale;
    double second = (double)number(b->corners, at + 2) * (double)b->scale;
    const double n = (double)(along ? b->p.w : b->p.h);
    if (b->normalized) {
        first *= n - 1;
        second *= n - 1;
    }
    if (b->by_centre) {
        const double half = second / 2;
        second = first + half;
        first -= half;
    }
    if (b->mode == TEG_SAMPLE_UNALIGN && first > second) /* by recorded results: an inverted box is the whole picture */
        return (struct stretch){0, n};
    return (struct stretch){first, second};
}

static void crop_slices(void *ctx, size_t begin, size_t end)
{
    const struct boxes *const b = ctx;
    const size_t channels = b->x->dims[1];
    for (size_t i = begin; i < end; i++) { /* (crop, channel) */
        const size_t crop = i / channels, box = crop / b->per_box;
        const struct stretch v = stretch_of(b, box, 0), u = stretch_of(b, box, 1);
        struct picture p = b->p;
        p.x = b->x->f32 + (image_of(b, crop) * channels + i % channels) * p.h * p.w;
        float *const y = b->y + i * b->h * b->w;
        for (size_t k = 0; k < b->h * b->w; k++)
            y[k] = sample(&p, teg_sampling_point(b->mode, v.start, v.end, b->h, k / b->w),
                          teg_sampling_point(b->mode, u.start, u.end, b->w, k % b->w));
    }
}

static enum teg_status read_box_mode(struct teg_eval_call *c, struct boxes *b)
{
    struct teg_string mode;
    TRY(teg_arg_string(c, "box_coordinate_mode", "CORNERS_HEIGHT_FIRST", &mode));
    b->by_centre = teg_string_is(mode, "CENTER_SIZE_HEIGHT_FIRST") || teg_string_is(mode, "CENTER_SIZE_WIDTH_FIRST");
    b->width_first = teg_string_is(mode, "CORNERS_WIDTH_FIRST") || teg_string_is(mode, "CENTER_SIZE_WIDTH_FIRST");
    if (!b->by_centre && !b->width_first && !teg_string_is(mode, "CORNERS_HEIGHT_FIRST"))
        OP_FAIL(c, TEG_ERR_FORMAT,
                "parameter box_coordinate_mode: expected CORNERS_ or CENTER_SIZE_ with HEIGHT_FIRST or "
                "WIDTH_FIRST, found \"%.*s\"",
                (int)teg_min(mode.n_bytes, 60), mode.bytes);
    return TEG_OK;
}

static enum teg_status read_box_options(struct teg_eval_call *c, struct boxes *b)
{
    int32_t h, w;
    TRY(teg_arg_form(c, "x", TEG_FORM_F32, &b->x));
    if (b->x->rank != 4)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter x: expected rank 4, found shape %s",
                teg_shape_text(b->x->rank, b->x->dims).text);
    TRY(teg_arg_int(c, "target_height", 1, &h));
    TRY(teg_arg_int(c, "target_width", 1, &w));
    if (h < 1 || w < 1)
        OP_FAIL(c, TEG_ERR_FORMAT,
                "parameters target_height and target_width: expected sizes from 1 on, found %d and %d", h, w);
    TRY(teg_arg_bool(c, "normalized_coordinates", false, &b->normalized));
    TRY(teg_arg_float(c, "spatial_scale", 1.0f, &b->scale));
    TRY(teg_arg_float(c, "pad_value", 0.0f, &b->p.padding));
    TRY(teg_sampling_read(c, "sampling_mode", &b->mode));
    TRY(read_box_mode(c, b));
    b->h = (size_t)h;
    b->w = (size_t)w;
    b->p.h = b->x->dims[2];
    b->p.w = b->x->dims[3];
    b->p.outside = c->opset == 6 ? OUTSIDE_BORDER : OUTSIDE_BOX; /* the first version had no padding */
    return TEG_OK;
}

static enum teg_status run_boxes(struct teg_eval_call *c, struct boxes *b, uint32_t rank, const size_t *dims)
{
    struct teg_array *y;
    const size_t n_images = b->x->dims[0];
    size_t n_crops;
    if (!teg_mul(b->n, b->per_box, &n_crops))
        OP_FAIL(c, TEG_ERR_FORMAT, "output: expected a size that can be addressed, found an overflow");
    for (size_t i = 0; i < n_crops; i++) {
        const bool is_index = b->indices || b->with_index;
        const double at = b->indices      ? (double)b->indices->i32[i]
                          : b->with_index ? (double)number(b->corners, i * b->columns)
                                          : (double)image_of(b, i);
        if (!(at >= 0 && at < (double)n_images))
            OP_FAIL(c, TEG_ERR_FORMAT, "parameter %s: expected an image from 0 to %zu, found %g in box %zu",
                    is_index ? "box_indices" : "boxes", n_images ? n_images - 1 : 0, at, i);
    }
    TRY(teg_output(c, 0, TEG_FORM_F32, rank, dims, &y));
    if (!y->n)
        return TEG_OK;
    if (!b->x->n)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter x: expected pixels, found shape %s", teg_shape_text(4, b->x->dims).text);
    b->y = y->f32;
    teg_op_parallel(c, n_crops * b->x->dims[1], 30 * b->h * b->w, crop_slices, b);
    return TEG_OK;
}

/* roi [N, 1, 4 or 5, 1, 1] -> [N, B or 1, C, h, w] */
static enum teg_status op_crop_resize(struct teg_eval_call *c)
{
    struct boxes b = {0};
    TRY(read_box_options(c, &b));
    TRY(teg_arg_any(c, "roi", &b.corners));
    const size_t *const d = b.corners->dims;
    if (b.corners->rank != 5 || (d[2] != 4 && d[2] != 5) || d[1] != 1 || d[3] != 1 || d[4] != 1 ||
        (b.corners->form != TEG_FORM_F32 && b.corners->form != TEG_FORM_I32))
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter roi: expected shape [N, 1, 4 or 5, 1, 1], found %s",
                teg_shape_text(b.corners->rank, d).text);
    b.n = d[0];
    b.columns = d[2];
    b.with_index = d[2] == 5;
    b.per_box = b.with_index ? 1 : b.x->dims[0];
    const size_t dims[5] = {b.n, b.with_index ? 1 : b.x->dims[0], b.x->dims[1], b.h, b.w};
    if (!b.per_box)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter x: expected pixels, found shape %s", teg_shape_text(4, b.x->dims).text);
    return run_boxes(c, &b, 5, dims);
}

/* boxes [N, 4], box_indices [N] -> [N, C, h, w] */
static enum teg_status op_crop_resize_17(struct teg_eval_call *c)
{
    struct boxes b = {.per_box = 1, .columns = 4};
    TRY(read_box_options(c, &b));
    TRY(teg_arg_any(c, "boxes", &b.corners));
    if (b.corners->rank != 2 || b.corners->dims[1] != 4 ||
        (b.corners->form != TEG_FORM_F32 && b.corners->form != TEG_FORM_I32))
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter boxes: expected shape [N, 4], found %s",
                teg_shape_text(b.corners->rank, b.corners->dims).text);
    b.n = b.corners->dims[0];
    if (teg_arg(c, "box_indices"))
        TRY(teg_arg_form(c, "box_indices", TEG_FORM_I32, &b.indices));
    if (b.indices && (b.indices->rank != 1 || b.indices->n != b.n))
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter box_indices: expected shape %zu, found %s", b.n,
                teg_shape_text(b.indices->rank, b.indices->dims).text);
    const size_t dims[4] = {b.n, b.x->dims[1], b.h, b.w};
    return run_boxes(c, &b, 4, dims);
}

/* ---- affine, resample ---- */

enum coordinates { MINUS_ONE_TO_ONE, ZERO_TO_ONE, PIXELS };

struct warp {
    struct picture p;
    const struct teg_array *x;
    float *y;
    size_t h, w;
    const float *matrix; /* affine: six values an image, or for all */
    size_t matrix_step;
    const struct teg_array *points; /* resample: [B, h, w, 2] */
    enum coordinates coordinates;
    bool align;
};

static double to_pixels(const struct warp *w, double at, size_t n)
{
    if (w->coordinates == PIXELS)
        return at;
    const double unit = w->coordinates == ZERO_TO_ONE ? at : (at + 1) / 2; /* 0 … 1 over the picture */
    return w->align ? unit * ((double)n - 1) : unit * (double)n - 0.5;
}

/* Position i of n as affine counts: -1 … 1 from the first to the last, the middle where there is one only. */
static double position(size_t i, size_t n)
{
    return n > 1 ? -1 + 2 * (double)i / ((double)n - 1) : 0;
}

static void warp_planes(void *ctx, size_t begin, size_t end)
{
    const struct warp *const w = ctx;
    for (size_t i = begin; i < end; i++) {
        const size_t image = i / w->x->dims[1];
        struct picture p = w->p;
        p.x = w->x->f32 + i * p.h * p.w;
        for (size_t k = 0; k < w->h * w->w; k++) {
            double u, v;
            if (w->matrix) {
                const float *const m = w->matrix + image * w->matrix_step;
                const double ox = position(k % w->w, w->w), oy = position(k / w->w, w->h);
                u = (double)m[0] * ox + (double)m[1] * oy + (double)m[2];
                v = (double)m[3] * ox + (double)m[4] * oy + (double)m[5];
            } else {
                const size_t at = (image * w->h * w->w + k) * 2;
                u = (double)number(w->points, at);
                v = (double)number(w->points, at + 1);
            }
            w->y[i * w->h * w->w + k] = sample(&p, to_pixels(w, v, p.h), to_pixels(w, u, p.w));
        }
    }
}

/* Compares as these ops do, without regard to case. */
static bool is_word(struct teg_string s, const char *word)
{
    if (s.n_bytes != strlen(word))
        return false;
    for (size_t i = 0; i < s.n_bytes; i++)
        if ((s.bytes[i] >= 'A' && s.bytes[i] <= 'Z' ? s.bytes[i] + 'a' - 'A' : s.bytes[i]) != word[i])
            return false;
    return true;
}

/* The place of a string parameter among `words`. */
static enum teg_status read_word(struct teg_eval_call *c, const char *name, const char *const *words, size_t n,
                                 const char *expected, size_t *out)
{
    struct teg_string s;
    TRY(teg_arg_string(c, name, words[0], &s));
    for (*out = 0; *out < n; ++*out)
        if (is_word(s, words[*out]))
            return TEG_OK;
    OP_FAIL(c, TEG_ERR_FORMAT, "parameter %s: expected %s, found \"%.*s\"", name, expected, (int)teg_min(s.n_bytes, 60),
            s.bytes);
}

static enum teg_status read_warp(struct teg_eval_call *c, struct warp *w)
{
    static const char *const samplings[] = {"bilinear", "nearest"};
    static const char *const paddings[] = {"constant", "border", "reflection", "symmetric"}; /* as enum outside */
    static const char *const forms[] = {"normalized_minus_one_to_one", "normalized_zero_to_one", "unnormalized"};
    size_t sampling, padding, form;
    TRY(teg_arg_form(c, "x", TEG_FORM_F32, &w->x));
    if (w->x->rank != 4 || !w->x->n)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter x: expected pixels of rank 4, found shape %s",
                teg_shape_text(w->x->rank, w->x->dims).text);
    TRY(read_word(c, "sampling_mode", samplings, 2, "bilinear or nearest", &sampling));
    TRY(read_word(c, "padding_mode", paddings, 4, "constant, border, reflection or symmetric", &padding));
    TRY(read_word(c, "coordinates_mode", forms, 3,
                  "normalized_minus_one_to_one, normalized_zero_to_one or unnormalized", &form));
    TRY(teg_arg_float(c, "padding_value", 0.0f, &w->p.padding));
    TRY(teg_arg_bool(c, "align_corners", false, &w->align));
    w->p.nearest = sampling == 1;
    w->p.outside = (enum outside)padding;
    w->coordinates = (enum coordinates)form;
    w->p.h = w->x->dims[2];
    w->p.w = w->x->dims[3];
    return TEG_OK;
}

static enum teg_status run_warp(struct teg_eval_call *c, struct warp *w)
{
    const size_t dims[4] = {w->x->dims[0], w->x->dims[1], w->h, w->w};
    struct teg_array *y;
    TRY(teg_output(c, 0, TEG_FORM_F32, 4, dims, &y));
    w->y = y->f32;
    if (y->n)
        teg_op_parallel(c, dims[0] * dims[1], 40 * w->h * w->w, warp_planes, w);
    return TEG_OK;
}

static enum teg_status op_affine(struct teg_eval_call *c)
{
    struct warp w = {0};
    const struct teg_array *m;
    int32_t height, width;
    TRY(read_warp(c, &w));
    TRY(teg_arg_form(c, "transform_matrix", TEG_FORM_F32, &m));
    TRY(teg_arg_int(c, "output_height", 0, &height));
    TRY(teg_arg_int(c, "output_width", 0, &width));
    if (m->rank != 2 || m->dims[1] != 6 || (m->dims[0] != 1 && m->dims[0] != w.x->dims[0]))
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter transform_matrix: expected shape [%zu or 1, 6], found %s", w.x->dims[0],
                teg_shape_text(m->rank, m->dims).text);
    if (height < 1 || width < 1)
        OP_FAIL(c, TEG_ERR_FORMAT,
                "parameters output_height and output_width: expected sizes from 1 on, found %d and %d", height, width);
    w.matrix = m->f32;
    w.matrix_step = m->dims[0] == 1 ? 0 : 6;
    w.h = (size_t)height;
    w.w = (size_t)width;
    return run_warp(c, &w);
}

static enum teg_status op_resample(struct teg_eval_call *c)
{
    struct warp w = {0};
    TRY(read_warp(c, &w));
    TRY(teg_arg_any(c, "coordinates", &w.points));
    const size_t *const d = w.points->dims;
    if (w.points->rank != 4 || d[3] != 2 || d[0] != w.x->dims[0] ||
        (w.points->form != TEG_FORM_F32 && w.points->form != TEG_FORM_I32))
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter coordinates: expected shape [%zu, height, width, 2], found %s",
                w.x->dims[0], teg_shape_text(w.points->rank, d).text);
    w.h = d[1];
    w.w = d[2];
    return run_warp(c, &w);
}

const struct teg_eval_row teg_eval_rows_image[] = {
    {"crop", 6, op_crop},     {"crop_resize", 6, op_crop_resize}, {"crop_resize", 8, op_crop_resize_17},
    {"affine", 6, op_affine}, {"resample", 6, op_resample},       {NULL, 0, NULL},
};
