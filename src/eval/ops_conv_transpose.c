/* eval/ops_conv_transpose.c: conv_transpose for one to three spatial dims.
 *
 * Every input position spreads over the outputs its kernel reaches: output = input · stride - before + tap · dilation.
 * A job owns a few output channels of one image and group: for a block of input positions it computes
 * spread[(channel, tap), positions] = W^T · x by gemm_f32 and adds each row of it to its place. So there are no
 * products with zeros, and no two jobs write the same output.
 *
 * Not taken: a convolution of the input with zeros in between (stride^rank times the work). */
#include <string.h>

#include "base/check.h"
#include "eval/products.h"
#include "eval/window.h"

#define SPREAD_FLOATS ((size_t)1 << 16) /* of a worker, 256 KiB; more only where one row of taps needs it */

struct spread {
    struct teg_window w;
    const struct teg_grid_kernels *grid;
    const float *x, *weight, *bias; /* weight turned: [groups, c_out_group · taps, c_in_group] */
    float *y;
    size_t n, c_in_group, c_out, c_out_group, groups, taps, in_plane, out_plane;
    size_t channels, positions, n_channel_jobs; /* of a job; of a block */
    float *scratch;
    size_t scratch_floats;
};

/* Adds positions p0 … p0+n-1 of one tap to one output plane. */
static void add_row(const struct spread *s, const float *row, size_t tap, size_t p0, size_t n, float *plane)
{
    const struct teg_window *const w = &s->w;
    const size_t kx = (size_t)w->kernel[2], ky = (size_t)w->kernel[1], in_x = (size_t)w->in[2];
    const int64_t shift_x = (int64_t)(tap % kx) * w->dilation[2] - w->before[2];
    const int64_t shift_y = (int64_t)(tap / kx % ky) * w->dilation[1] - w->before[1];
    const int64_t shift_z = (int64_t)(tap / kx / ky) * w->dilation[0] - w->before[0];
    /* columns whose output exists: lead <= column < end */
    const int64_t stride = w->stride[2];
    const int64_t lead = shift_x < 0 ? (-shift_x + stride - 1) / stride : 0;
    const int64_t end = shift_x < w->out[2] ? (w->out[2] - 1 - shift_x) / stride + 1 : 0;
    for (size_t done = 0; done < n;) {
        const size_t p = p0 + done, line = p / in_x, run = teg_min(in_x - p % in_x, n - done);
        const int64_t x0 = (int64_t)(p % in_x), x1 = x0 + (int64_t)run;
        const int64_t oy = (int64_t)(line % (size_t)w->in[1]) * w->stride[1] + shift_y;
        const int64_t oz = (int64_t)(line / (size_t)w->in[1]) * w->stride[0] + shift_z;
        const int64_t a = x0 > lead ? x0 : lead, b = x1 < end ? x1 : end;
        if (oy >= 0 && oy < w->out[1] && oz >= 0 && oz < w->out[0] && a < b)
            s->grid->row_scatter_f32(plane + (oz * w->out[1] + oy) * w->out[2] + a * stride + shift_x, (size_t)stride,
                                     row + (int64_t)done + a - x0, (size_t)(b - a));
        done += run;
    }
}

static void spread_slice(void *ctx, size_t slice, size_t worker)
{
    const struct spread *const s = ctx;
    const size_t batch = slice / s->n_channel_jobs, group = batch % s->groups; /* batch: (image, group) */
    const size_t c0 = slice % s->n_channel_jobs * s->channels, n_channels = teg_min(s->channels, s->c_out_group - c0);
    const size_t rows = n_channels * s->taps;
    float *const spread = s->scratch + worker * s->scratch_floats;
    float *const y = s->y + (batch * s->c_out_group + c0) * s->out_plane;
    for (size_t i = 0; i < n_channels * s->out_plane; i++)
        y[i] = s->bias ? s->bias[group * s->c_out_group + c0 + i / s->out_plane] : 0.0f;
    for (size_t p0 = 0; p0 < s->in_plane; p0 += s->positions) {
        const size_t n = teg_min(s->positions, s->in_plane - p0);
        memset(spread, 0, rows * s->positions * sizeof *spread);
        const struct teg_grid_gemm_args g = {.a = s->weight + ((group * s->c_out_group + c0) * s->taps) * s->c_in_group,
                                             .a_stride = s->c_in_group,
                                             .b = s->x + batch * s->c_in_group * s->in_plane + p0,
                                             .b_stride = s->in_plane,
                                             .y = spread,
                                             .y_stride = s->positions,
                                             .m = rows,
                                             .n = n,
                                             .k = s->c_in_group};
        s->grid->gemm_f32(&g);
        for (size_t r = 0; r < rows; r++)
            add_row(s, spread + r * s->positions, r % s->taps, p0, n, y + r / s->taps * s->out_plane);
    }
}

/* How many channels a job owns and how many positions it takes at once. */
static void cut(struct spread *s, size_t workers)
{
    const size_t unit = s->grid->gemm_columns;
    const size_t jobs = (2 * workers + s->n * s->groups - 1) / (s->n * s->groups);
    s->channels = (s->c_out_group + jobs - 1) / jobs;
    s->positions = (s->in_plane + unit - 1) / unit * unit;
    s->positions = teg_min(s->positions, 4 * unit);
    const size_t fitting = SPREAD_FLOATS / s->positions / s->taps;
    s->channels = teg_min(s->channels, fitting ? fitting : 1);
    s->n_channel_jobs = (s->c_out_group + s->channels - 1) / s->channels;
    s->scratch_floats = (s->channels * s->taps * s->positions + 15) / 16 * 16;
}

static enum teg_status read_spread(struct teg_eval_call *c, struct spread *s, const struct teg_array **weight)
{
    const struct teg_array *x, *bias = NULL;
    int32_t groups;
    TRY(teg_arg_form(c, "x", TEG_FORM_F32, &x));
    TRY(teg_arg_form(c, "weight", TEG_FORM_F32, weight));
    TRY(teg_arg_int(c, "groups", 1, &groups));
    const struct teg_array *const w = *weight;
    if (x->rank < 3 || w->rank != x->rank || w->dims[0] != x->dims[1])
        OP_FAIL(c, TEG_ERR_FORMAT,
                "parameter weight: expected [channels of x, out / groups, kernel…], found shapes %s and %s",
                teg_shape_text(w->rank, w->dims).text, teg_shape_text(x->rank, x->dims).text);
    if (groups < 1 || x->dims[1] % (size_t)groups || !teg_mul(w->dims[1], (size_t)groups, &s->c_out))
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter groups: expected a divisor of %zu channels, found %d", x->dims[1],
                groups);
    s->x = x->f32;
    s->n = x->dims[0];
    s->groups = (size_t)groups;
    s->c_in_group = x->dims[1] / s->groups;
    s->c_out_group = w->dims[1];
    if (teg_arg(c, "bias"))
        TRY(teg_arg_form(c, "bias", TEG_FORM_F32, &bias));
    if (bias && (bias->rank != 1 || bias->dims[0] != s->c_out))
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter bias: expected shape %zu, found %s", s->c_out,
                teg_shape_text(bias->rank, bias->dims).text);
    s->bias = bias ? bias->f32 : NULL;
    return teg_window_read_transposed(c, x, w->dims + 2, &s->w);
}

/* [c_in, c_out_group · taps] of each group becomes [c_out_group · taps, c_in_group]. */
static enum teg_status turn_weights(struct teg_eval_call *c, struct spread *s, const struct teg_array *weight)
{
    float *turned;
    TRY(teg_op_scratch(c, weight->n, sizeof *turned, (void **)&turned));
    const size_t columns = s->c_out_group * s->taps, n = s->c_in_group * columns;
    for (size_t g = 0; g < s->groups; g++)
        teg_transpose(weight->f32 + g * n, columns, s->c_in_group, columns, turned + g * n, s->c_in_group);
    s->weight = turned;
    return TEG_OK;
}

static enum teg_status op_conv_transpose(struct teg_eval_call *c)
{
    struct spread s = {.grid = teg_grid_kernels(c->kernels)};
    const struct teg_array *weight;
    TRY(read_spread(c, &s, &weight));
    size_t dims[TEG_MIL_MAX_RANK] = {s.n, s.c_out};
    for (uint32_t d = 0; d < s.w.rank; d++)
        dims[2 + d] = (size_t)s.w.out[3 - s.w.rank + d];
    struct teg_array *y;
    TRY(teg_output(c, 0, TEG_FORM_F32, 2 + s.w.rank, dims, &y));
    if (!y->n)
        return TEG_OK;
    s.y = y->f32;
    teg_window_flatten(&s.w);
    s.in_plane = teg_window_volume(s.w.in);
    s.out_plane = teg_window_volume(s.w.out);
    s.taps = teg_window_volume(s.w.kernel);
    if (!weight->n || !s.in_plane) {
        for (size_t i = 0; i < y->n; i++)
            y->f32[i] = s.bias ? s.bias[i / s.out_plane % s.c_out] : 0.0f;
        return TEG_OK;
    }
    TRY(turn_weights(c, &s, weight));
    cut(&s, teg_pool_threads(c->pool));
    TRY(teg_op_scratch(c, teg_pool_threads(c->pool) * s.scratch_floats, sizeof *s.scratch, (void **)&s.scratch));
    teg_op_run(c, spread_slice, &s, s.n * s.groups * s.n_channel_jobs);
    return TEG_OK;
}

const struct teg_eval_row teg_eval_rows_conv_transpose[] = {
    {"conv_transpose", 6, op_conv_transpose},
    {NULL, 0, NULL},
};
