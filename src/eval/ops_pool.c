/* eval/ops_pool.c: max_pool, avg_pool, l2_pool for one to three spatial dims.
 *
 * A plane (one channel of one image) is a job; a row of outputs is started with the pool's neutral value and every tap
 * of the window is folded into the whole row by a row kernel, so that lanes run along the row and padding is a matter
 * of where a run begins and ends. Padding counts as nothing for max (windows that see only padding give -inf), as zeros
 * for the others; avg_pool divides by what the window covers of the padded input, or of the input alone.
 *
 * Not taken: running sums, which cost accuracy that a mean over a large window has to spare nowhere. */
#include <math.h>

#include "eval/window.h"
#include "kernel/grid.h"

enum pool_kind { POOL_MAX, POOL_AVERAGE, POOL_L2 };

struct pool {
    struct teg_window w;
    enum pool_kind kind;
    bool exclude_padding;
    void (*fold)(float *y, const float *x, size_t step, size_t n);
    const float *x;
    float *y;
    size_t in_plane, out_plane;
};

/* How many elements the window of output `at` covers along d: of the input, or of the padded input. */
static int64_t covered(const struct teg_window *w, uint32_t d, int64_t at, bool inside)
{
    const int64_t low = inside ? 0 : -w->before[d], high = inside ? w->in[d] : w->in[d] + w->after[d];
    const int64_t begin = at * w->stride[d] - w->before[d], end = begin + w->kernel[d];
    const int64_t a = begin > low ? begin : low, b = end < high ? end : high;
    return b > a ? b - a : 0;
}

static void finish_row(const struct pool *p, int64_t oz, int64_t oy, float *row)
{
    const struct teg_window *const w = &p->w;
    if (p->kind == POOL_L2)
        for (int64_t i = 0; i < w->out[2]; i++)
            row[i] = sqrtf(row[i]);
    if (p->kind != POOL_AVERAGE)
        return;
    const int64_t others = covered(w, 0, oz, p->exclude_padding) * covered(w, 1, oy, p->exclude_padding);
    for (int64_t i = 0; i < w->out[2]; i++)
        row[i] /= (float)(others * covered(w, 2, i, p->exclude_padding));
}

/* Taps first … last-1 along d that meet the input for outputs a … b: a kernel may be far larger than the input. */
static void reach(const struct teg_window *w, uint32_t d, int64_t a, int64_t b, int64_t *first, int64_t *last)
{
    const int64_t low = w->before[d] - b * w->stride[d], high = w->in[d] + w->before[d] - a * w->stride[d];
    *first = low > 0 ? low : 0;
    *last = high < w->kernel[d] ? high : w->kernel[d];
}

/* Folds one row of the input into a row of outputs, tap by tap. */
static void fold_line(const struct pool *p, const float *line, float *row)
{
    const struct teg_window *const w = &p->w;
    int64_t kx, end, first, last;
    for (reach(w, 2, 0, w->out[2] - 1, &kx, &end); kx < end; kx++) {
        teg_window_inside(w, 2, kx, &first, &last);
        if (first < last)
            p->fold(row + first, line + first * w->stride[2] + kx - w->before[2], (size_t)w->stride[2],
                    (size_t)(last - first));
    }
}

static void pool_row(const struct pool *p, const float *plane, int64_t oz, int64_t oy, float *row)
{
    const struct teg_window *const w = &p->w;
    const float neutral = p->kind == POOL_MAX ? -INFINITY : 0.0f;
    const int64_t z0 = oz * w->stride[0] - w->before[0], y0 = oy * w->stride[1] - w->before[1];
    int64_t kz, z_end, ky, y_end;
    for (int64_t i = 0; i < w->out[2]; i++)
        row[i] = neutral;
    for (reach(w, 0, oz, oz, &kz, &z_end); kz < z_end; kz++)
        for (reach(w, 1, oy, oy, &ky, &y_end); ky < y_end; ky++)
            fold_line(p, plane + ((z0 + kz) * w->in[1] + y0 + ky) * w->in[2], row);
    finish_row(p, oz, oy, row);
}

static void pool_planes(void *ctx, size_t begin, size_t end)
{
    const struct pool *const p = ctx;
    for (size_t i = begin; i < end; i++)
        for (int64_t line = 0; line < p->w.out[0] * p->w.out[1]; line++)
            pool_row(p, p->x + i * p->in_plane, line / p->w.out[1], line % p->w.out[1],
                     p->y + i * p->out_plane + line * p->w.out[2]);
}

static enum teg_status read_kernel(struct teg_eval_call *c, const struct teg_array *x, size_t kernel[TEG_WINDOW_DIMS])
{
    int32_t sizes[TEG_WINDOW_DIMS];
    size_t n;
    TRY(teg_arg_ints(c, "kernel_sizes", sizes, TEG_WINDOW_DIMS, &n));
    if (n == SIZE_MAX || x->rank < 3 || n != x->rank - 2)
        OP_FAIL(c, TEG_ERR_FORMAT,
                "parameter kernel_sizes: expected one value for each spatial dimension of x (%s), found %zu",
                teg_shape_text(x->rank, x->dims).text, n == SIZE_MAX ? 0 : n);
    for (size_t i = 0; i < n; i++) {
        if (sizes[i] < 1)
            OP_FAIL(c, TEG_ERR_FORMAT, "parameter kernel_sizes: expected values from 1 on, found %d", sizes[i]);
        kernel[i] = (size_t)sizes[i];
    }
    return TEG_OK;
}

static enum teg_status pool_of(struct teg_eval_call *c, enum pool_kind kind)
{
    const struct teg_grid_kernels *const grid = teg_grid_kernels(c->kernels);
    struct pool p = {.kind = kind};
    const struct teg_array *x;
    struct teg_array *y;
    size_t kernel[TEG_WINDOW_DIMS];
    bool ceil;
    TRY(teg_arg_form(c, "x", TEG_FORM_F32, &x));
    TRY(read_kernel(c, x, kernel));
    TRY(teg_arg_bool(c, "ceil_mode", false, &ceil));
    TRY(teg_arg_bool(c, "exclude_padding_from_average", false, &p.exclude_padding));
    TRY(teg_window_read(c, x, kernel, "valid", ceil, &p.w));
    size_t dims[TEG_MIL_MAX_RANK] = {x->dims[0], x->dims[1]};
    for (uint32_t d = 0; d < p.w.rank; d++)
        dims[2 + d] = (size_t)p.w.out[3 - p.w.rank + d];
    TRY(teg_output(c, 0, TEG_FORM_F32, x->rank, dims, &y));
    if (!y->n)
        return TEG_OK;
    p.fold = kind == POOL_MAX ? grid->row_max_f32 : kind == POOL_L2 ? grid->row_add_square_f32 : grid->row_add_f32;
    p.x = x->f32;
    p.y = y->f32;
    teg_window_flatten(&p.w);
    p.in_plane = teg_window_volume(p.w.in);
    p.out_plane = teg_window_volume(p.w.out);
    const size_t taps = teg_window_volume(p.w.kernel);
    const size_t cost = taps < SIZE_MAX / p.out_plane ? taps * p.out_plane : SIZE_MAX / 2;
    teg_op_parallel(c, x->dims[0] * x->dims[1], cost, pool_planes, &p);
    return TEG_OK;
}

static enum teg_status op_max_pool(struct teg_eval_call *c)
{
    return pool_of(c, POOL_MAX);
}

static enum teg_status op_avg_pool(struct teg_eval_call *c)
{
    return pool_of(c, POOL_AVERAGE);
}

static enum teg_status op_l2_pool(struct teg_eval_call *c)
{
    return pool_of(c, POOL_L2);
}

const struct teg_eval_row teg_eval_rows_pool[] = {
    {"max_pool", 6, op_max_pool},
    {"avg_pool", 6, op_avg_pool},
    {"l2_pool", 6, op_l2_pool},
    {NULL, 0, NULL},
};
