/* eval/ops_conv.c: conv for one to three spatial dims.
 *
 *   general    Y[Cout/g, P] = W[Cout/g, K] · patches[K, P], K = Cin/g · kernel, P output positions: eval/products.h
 * asks for the patches block by block, so they never exist as a whole. A row of patches is a shifted copy of image
 * rows, which is why [K, P] and not [P, K]. pointwise  kernel 1, stride 1, no padding: the image is the patches;
 * nothing is copied. depthwise  one input channel a group: each channel in turn, a padded plane of it in the worker's
 * memory; a kernel row is a product whose "matrix" rows overlap (shifted by the dilation), so taps cost no copies.
 *
 * Not taken: Winograd and FFT, which change the rounding for the sake of kernels of 3x3 and above on large images. */
#include <string.h>

#include "base/check.h"
#include "eval/products.h"
#include "eval/window.h"

struct conv {
    struct teg_window w;
    const float *x;
    size_t n, c_in, c_out, groups, c_in_group, c_out_group;
    size_t in_plane, out_plane, taps; /* products of in, out, kernel */
};

/* ---- patches ---- */

struct taps { /* of one output line: position x takes input x · stride + shift where first <= x < last, else zero */
    int64_t stride, shift, first, last;
};

/* Positions x0 … x0+run-1 of a line. */
static void patch_line(const struct taps *t, const float *from, int64_t x0, int64_t run, float *to)
{
    int64_t a = t->first - x0, b = t->last - x0; /* inside: a <= i < b of the run */
    a = a < 0 ? 0 : a > run ? run : a;
    b = b < a ? a : b > run ? run : b;
    if (a > 0)
        memset(to, 0, (size_t)a * sizeof *to);
    if (a < b && t->stride == 1)
        memcpy(to + a, from + (x0 + a + t->shift), (size_t)(b - a) * sizeof *to);
    else
        for (int64_t i = a; i < b; i++)
            to[i] = from[(x0 + i) * t->stride + t->shift];
    if (b < run)
        memset(to + b, 0, (size_t)(run - b) * sizeof *to);
}

/* One row of patches: tap (z, y, x) of one channel, output positions p0 … p0+n-1, as runs along the last dim. */
static void patch_row(const struct conv *v, const float *plane, const int64_t tap[3], size_t p0, size_t n, float *dst)
{
    const struct teg_window *const w = &v->w;
    const size_t out_x = (size_t)w->out[2], p_line = p0 / out_x;
    const int64_t shift_y = tap[1] * w->dilation[1] - w->before[1], shift_z = tap[0] * w->dilation[0] - w->before[0];
    struct taps t = {.stride = w->stride[2], .shift = tap[2] * w->dilation[2] - w->before[2]};
    teg_window_inside(w, 2, tap[2] * w->dilation[2], &t.first, &t.last);
    int64_t y = (int64_t)p_line, z = 0, x0 = (int64_t)(p0 % out_x);
    if (w->out[0] > 1) {
        z = y / w->out[1];
        y %= w->out[1];
    }
    for (size_t done = 0; done < n; x0 = 0) {
        const size_t run = teg_min(out_x - (size_t)x0, n - done);
        const int64_t iy = y * w->stride[1] + shift_y, iz = z * w->stride[0] + shift_z;
        if (iy < 0 || iy >= w->in[1] || iz < 0 || iz >= w->in[0])
            memset(dst + done, 0, run * sizeof *dst);
        else
            patch_line(&t, plane + (iz * w->in[1] + iy) * w->in[2], x0, (int64_t)run, dst + done);
        done += run;
        if (++y == w->out[1]) {
            y = 0;
            z++;
        }
    }
}

static void pack_patches(const void *ctx, size_t batch, size_t k0, size_t nk, size_t n0, size_t nn, float *dst,
                         size_t dst_stride)
{
    const struct conv *const v = ctx;
    const float *plane = v->x + (batch * v->c_in_group + k0 / v->taps) * v->in_plane; /* batches are (image, group) */
    const int64_t *const kernel = v->w.kernel, tap = (int64_t)(k0 % v->taps);
    int64_t at[3] = {tap / kernel[2] / kernel[1], tap / kernel[2] % kernel[1], tap % kernel[2]};
    for (size_t k = 0; k < nk; k++) {
        patch_row(v, plane, at, n0, nn, dst + k * dst_stride);
        if (++at[2] < kernel[2])
            continue;
        at[2] = 0;
        if (++at[1] < kernel[1])
            continue;
        at[1] = 0;
        if (++at[0] < kernel[0])
            continue;
        at[0] = 0;
        plane += v->in_plane;
    }
}

static bool is_pointwise(const struct conv *v)
{
    for (uint32_t d = 0; d < 3; d++)
        if (v->w.kernel[d] != 1 || v->w.stride[d] != 1 || v->w.before[d] || v->w.after[d])
            return false;
    return true;
}

static enum teg_status conv_general(struct teg_eval_call *c, const struct conv *v, const float *weight,
                                    const float *bias, float *y)
{
    const size_t k = v->c_in_group * v->taps, n_batches = v->n * v->groups;
    struct teg_product_at *batches;
    TRY(teg_op_scratch(c, n_batches, sizeof *batches, (void **)&batches));
    for (size_t i = 0; i < n_batches; i++) {
        const size_t group = i % v->groups;
        batches[i] = (struct teg_product_at){.a = group * v->c_out_group * k,
                                             .b = i * v->c_in_group * v->in_plane,
                                             .y = i * v->c_out_group * v->out_plane,
                                             .bias = group * v->c_out_group};
    }
    const struct teg_products g = {.batches = batches,
                                   .n_batches = n_batches,
                                   .m = v->c_out_group,
                                   .n = v->out_plane,
                                   .k = k,
                                   .a = weight,
                                   .a_stride = k,
                                   .b = v->x,
                                   .b_stride = v->in_plane,
                                   .bias = bias,
                                   .y = y,
                                   .y_stride = v->out_plane,
                                   .pack = is_pointwise(v) ? NULL : pack_patches,
                                   .pack_ctx = v};
    return teg_products_run(c, &g);
}

/* ---- depthwise ---- */

struct depthwise {
    const struct conv *v;
    const struct teg_grid_kernels *grid;
    const float *weight, *bias;
    float *y;
    size_t padded[3], padded_plane; /* extents of a padded plane */
    float *scratch;
};

/* The part of a channel's padded plane that windows reach, phases of the last stride one after another: column
 * q · stride + r lies at (r, q), so that a window's step is 1 in memory. */
static void pad_plane(const struct depthwise *d, const float *plane, float *dst)
{
    const struct teg_window *const w = &d->v->w;
    const size_t stride = (size_t)w->stride[2], columns = d->padded[2], quotient = columns / stride;
    memset(dst, 0, d->padded_plane * sizeof *dst);
    for (int64_t z = 0; z < w->in[0]; z++)
        for (int64_t y = 0; y < w->in[1]; y++) {
            const size_t pz = (size_t)(z + w->before[0]), py = (size_t)(y + w->before[1]), px = (size_t)w->before[2];
            if (pz >= d->padded[0] || py >= d->padded[1] || px >= columns)
                continue;
            float *const to = dst + (pz * d->padded[1] + py) * columns;
            const float *const from = plane + (z * w->in[1] + y) * w->in[2];
            const size_t n = teg_min((size_t)w->in[2], columns - px);
            if (stride == 1)
                memcpy(to + px, from, n * sizeof *to);
            else
                for (size_t i = 0; i < n; i++)
                    to[(px + i) % stride * quotient + (px + i) / stride] = from[i];
        }
}

/* One kernel row applied to one output row. */
static void apply_row(const struct depthwise *d, const float *line, const float *taps, float *out)
{
    const struct teg_window *const w = &d->v->w;
    const size_t stride = (size_t)w->stride[2], quotient = d->padded[2] / stride, dilation = (size_t)w->dilation[2];
    struct teg_grid_gemm_args g = {.a = taps,
                                   .b = line,
                                   .b_stride = dilation,
                                   .y = out,
                                   .m = 1,
                                   .n = (size_t)w->out[2],
                                   .k = (size_t)w->kernel[2]};
    if (stride == 1) {
        d->grid->gemm_f32(&g);
        return;
    }
    g.k = 1;
    for (size_t i = 0; i < (size_t)w->kernel[2]; i++) {
        const size_t column = i * dilation;
        g.a = taps + i;
        g.b = line + column % stride * quotient + column / stride;
        d->grid->gemm_f32(&g);
    }
}

static void depthwise_slice(void *ctx, size_t slice, size_t worker)
{
    const struct depthwise *const d = ctx;
    const struct conv *const v = d->v;
    const struct teg_window *const w = &v->w;
    float *const padded = d->scratch + worker * d->padded_plane;
    const size_t image = slice / v->c_in, channel = slice % v->c_in;
    pad_plane(d, v->x + slice * v->in_plane, padded);
    for (size_t m = 0; m < v->c_out_group; m++) {
        const size_t to = channel * v->c_out_group + m;
        const float *const taps = d->weight + to * v->taps;
        float *const y = d->y + (image * v->c_out + to) * v->out_plane;
        const float bias = d->bias ? d->bias[to] : 0.0f;
        for (size_t i = 0; i < v->out_plane; i++)
            y[i] = bias;
        for (int64_t line = 0; line < w->out[0] * w->out[1]; line++)
            for (int64_t k = 0; k < w->kernel[0] * w->kernel[1]; k++) {
                const int64_t z = line / w->out[1] * w->stride[0] + k / w->kernel[1] * w->dilation[0];
                const int64_t row = line % w->out[1] * w->stride[1] + k % w->kernel[1] * w->dilation[1];
                apply_row(d, padded + ((size_t)z * d->padded[1] + (size_t)row) * d->padded[2], taps + k * w->kernel[2],
                          y + line * w->out[2]);
            }
    }
}

static enum teg_status conv_depthwise(struct teg_eval_call *c, const struct conv *v, const float *weight,
                                      const float *bias, float *y)
{
    struct depthwise d = {.v = v, .grid = teg_grid_kernels(c->kernels), .weight = weight, .bias = bias, .y = y};
    d.padded_plane = 1;
    for (uint32_t i = 0; i < 3; i++) {
        const int64_t reach = (v->w.out[i] - 1) * v->w.stride[i] + (v->w.kernel[i] - 1) * v->w.dilation[i] + 1;
        d.padded[i] = (size_t)reach;
        if (i == 2) /* whole periods */
            d.padded[i] = (size_t)((reach + v->w.stride[i] - 1) / v->w.stride[i] * v->w.stride[i]);
        if (!teg_mul(d.padded_plane, d.padded[i], &d.padded_plane))
            OP_FAIL(c, TEG_ERR_FORMAT,
                    "parameter pad: expected a padded image that can be addressed, found an overflow");
    }
    const size_t workers = teg_pool_threads(c->pool);
    size_t n_floats;
    if (!teg_mul(d.padded_plane, workers, &n_floats))
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter pad: expected a padded image that can be addressed, found an overflow");
    TRY(teg_op_scratch(c, n_floats, sizeof *d.scratch, (void **)&d.scratch));
    teg_op_run(c, depthwise_slice, &d, v->n * v->c_in);
    return TEG_OK;
}

/* ---- the op ---- */

static enum teg_status read_conv(struct teg_eval_call *c, struct conv *v, const struct teg_array **weight,
                                 const struct teg_array **bias)
{
    const struct teg_array *x;
    int32_t groups;
    TRY(teg_arg_form(c, "x", TEG_FORM_F32, &x));
    TRY(teg_arg_form(c, "weight", TEG_FORM_F32, weight));
    TRY(teg_arg_int(c, "groups", 1, &groups));
    const struct teg_array *const w = *weight;
    if (x->rank < 3 || w->rank != x->rank)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter weight: expected the rank of x, from 3 to 5, found shapes %s and %s",
                teg_shape_text(w->rank, w->dims).text, teg_shape_text(x->rank, x->dims).text);
    v->x = x->f32;
    v->n = x->dims[0];
    v->c_in = x->dims[1];
    v->c_out = w->dims[0];
    v->c_in_group = w->dims[1];
    v->groups = groups < 1 ? 0 : (size_t)groups;
    size_t expected;
    if (!v->groups || !teg_mul(v->groups, v->c_in_group, &expected) || expected != v->c_in || v->c_out % v->groups)
        OP_FAIL(c, TEG_ERR_FORMAT,
                "parameter groups: expected a divisor of %zu output channels with %zu channels of weights "
                "times groups in x, found %d groups for %zu channels",
                v->c_out, v->c_in_group, groups, v->c_in);
    v->c_out_group = v->c_out / v->groups;
    *bias = NULL;
    if (teg_arg(c, "bias"))
        TRY(teg_arg_form(c, "bias", TEG_FORM_F32, bias));
    if (*bias && ((*bias)->rank != 1 || (*bias)->dims[0] != v->c_out))
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter bias: expected shape %zu, found %s", v->c_out,
                teg_shape_text((*bias)->rank, (*bias)->dims).text);
    return teg_window_read(c, x, w->dims + 2, "valid", false, &v->w);
}

static enum teg_status op_conv(struct teg_eval_call *c)
{
    struct conv v;
    const struct teg_array *weight, *bias;
    TRY(read_conv(c, &v, &weight, &bias));
    size_t dims[TEG_MIL_MAX_RANK] = {v.n, v.c_out};
    for (uint32_t d = 0; d < v.w.rank; d++)
        dims[2 + d] = (size_t)v.w.out[3 - v.w.rank + d];
    struct teg_array *y;
    TRY(teg_output(c, 0, TEG_FORM_F32, 2 + v.w.rank, dims, &y));
    if (!y->n)
        return TEG_OK;
    teg_window_flatten(&v.w);
    v.in_plane = teg_window_volume(v.w.in);
    v.out_plane = teg_window_volume(v.w.out);
    v.taps = teg_window_volume(v.w.kernel);
    const float *const b = bias ? bias->f32 : NULL;
    if (v.c_in_group == 1 && v.groups > 1)
        return conv_depthwise(c, &v, weight->f32, b, y->f32);
    return conv_general(c, &v, weight->f32, b, y->f32);
}

const struct teg_eval_row teg_eval_rows_conv[] = {
    {"conv", 6, op_conv},
    {NULL, 0, NULL},
};
