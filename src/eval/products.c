/* eval/products.c: batches of matrix products, cut into jobs for the pool.
 *
 * Three roads, chosen by shape alone:
 *   rows    B is [N, K]: linear_f32, a slice of columns a job.
 *   columns B is [K, N]: gemm_f32, a block of columns a job, K in blocks whose panel of B stays in the second-level
 *           cache. A panel is copied (or made) into the worker's memory, since rows of B that lie a page apart miss the
 *           TLB; where few rows of A would use the copy, B is read in place.
 *   narrow  B is [K, N] with few columns: lanes over N would idle, so B is turned and A's rows stand in for weights.
 * Not taken: packing A. Its rows are read in order, eight at a time, which the prefetchers follow. */
#include <string.h>

#include "base/check.h"
#include "eval/products.h"

#define K_BLOCK 512 /* rows of a panel: 512 x 192 floats are 384 KiB */
#define MAX_COLUMNS 192
#define MIN_ROWS 32                 /* of a job, or copying its panel costs too much beside using it */
#define NARROW 16                   /* columns below which lanes over them do not pay */
#define TILE 16                     /* side of a square that is turned at once */
#define LONGEST ((uint64_t)1 << 31) /* multiplications of a job of rows: what a user who stops the run waits for */
#define SERIAL 32768                /* multiplications below which the pool costs more than it gives */

void teg_transpose(const float *src, size_t src_stride, size_t rows, size_t columns, float *dst, size_t dst_stride)
{
    for (size_t r0 = 0; r0 < rows; r0 += TILE)
        for (size_t c0 = 0; c0 < columns; c0 += TILE) {
            const size_t r1 = teg_min(rows, r0 + TILE), c1 = teg_min(columns, c0 + TILE);
            for (size_t col = c0; col < c1; col++)
                for (size_t r = r0; r < r1; r++)
                    dst[col * dst_stride + r] = src[r * src_stride + col];
        }
}

struct plan {
    const struct teg_products *g;
    const struct teg_eval_call *call;
    const struct teg_kernels *kernels;
    const struct teg_grid_kernels *grid;
    size_t m_block, n_block, m_jobs, n_jobs; /* jobs are (batch, m block, n block), n fastest */
    float *scratch;                          /* scratch_floats a worker */
    size_t scratch_floats;
    bool in_place;       /* B is read where it lies */
    const float *turned; /* narrow: B^T of the batch at hand */
};

struct job {
    struct teg_product_at at;
    size_t batch, m0, m, n0, n;
};

static struct job job_of(const struct plan *p, size_t slice)
{
    const struct teg_products *const g = p->g;
    const size_t m_index = slice / p->n_jobs % p->m_jobs, n_index = slice % p->n_jobs;
    struct job j = {.batch = slice / p->n_jobs / p->m_jobs, .m0 = m_index * p->m_block, .n0 = n_index * p->n_block};
    j.at = g->batches[j.batch];
    j.m = teg_min(p->m_block, g->m - j.m0);
    j.n = teg_min(p->n_block, g->n - j.n0);
    return j;
}

static void fill_bias(const struct teg_products *g, const struct job *j)
{
    for (size_t m = j->m0; m < j->m0 + j->m; m++) {
        float *const row = g->y + j->at.y + m * g->y_stride + j->n0;
        const float bias = g->bias ? g->bias[j->at.bias + m] : 0.0f;
        for (size_t n = 0; n < j->n; n++)
            row[n] = bias;
    }
}

/* ---- B as [N, K] rows ---- */

static void rows_slice(void *ctx, size_t slice, size_t worker)
{
    const struct plan *const p = ctx;
    const struct teg_products *const g = p->g;
    const struct job j = job_of(p, slice);
    if (g->bias)
        fill_bias(g, &j);
    float *const y = g->y + j.at.y + j.m0 * g->y_stride;
    const struct teg_linear_args args = {.x = g->a + j.at.a + j.m0 * g->a_stride,
                                         .x_stride = g->a_stride,
                                         .w = g->b + j.at.b,
                                         .w_dtype = TEG_DTYPE_F32,
                                         .w_row_bytes = g->b_stride * sizeof(float),
                                         .bias = g->column_bias,
                                         .residual = g->bias ? y : NULL,
                                         .y = y,
                                         .y_stride = g->y_stride,
                                         .n_tokens = j.m,
                                         .k = g->k,
                                         .n0 = j.n0,
                                         .n1 = j.n0 + j.n,
                                         .scratch = p->scratch + worker * p->scratch_floats};
    p->kernels->linear_f32(&args);
}

/* ---- B as [K, N] ---- */

static void copy_panel(const struct teg_products *g, const struct job *j, size_t k0, size_t nk, float *dst,
                       size_t stride)
{
    if (g->pack) {
        g->pack(g->pack_ctx, j->batch, k0, nk, j->n0, j->n, dst, stride);
        return;
    }
    for (size_t k = 0; k < nk; k++)
        memcpy(dst + k * stride, g->b + j->at.b + (k0 + k) * g->b_stride + j->n0, j->n * sizeof(float));
}

static void columns_slice(void *ctx, size_t slice, size_t worker)
{
    const struct plan *const p = ctx;
    const struct teg_products *const g = p->g;
    const struct job j = job_of(p, slice);
    float *const panel = p->scratch + worker * p->scratch_floats;
    fill_bias(g, &j);
    for (size_t k0 = 0; k0 < g->k && !teg_op_stopped(p->call); k0 += K_BLOCK) {
        const size_t nk = teg_min(K_BLOCK, g->k - k0);
        struct teg_grid_gemm_args args = {.a = g->a + j.at.a + j.m0 * g->a_stride + k0,
                                          .a_stride = g->a_stride,
                                          .b = panel,
                                          .b_stride = p->n_block,
                                          .y = g->y + j.at.y + j.m0 * g->y_stride + j.n0,
                                          .y_stride = g->y_stride,
                                          .m = j.m,
                                          .n = j.n,
                                          .k = nk};
        if (p->in_place) {
            args.b = g->b + j.at.b + k0 * g->b_stride + j.n0;
            args.b_stride = g->b_stride;
        } else {
            copy_panel(g, &j, k0, nk, panel, p->n_block);
        }
        p->grid->gemm_f32(&args);
    }
}

/* ---- B as [K, N], N small ---- */

/* Columns of Y become tokens: T[n, m] = B^T[n, k] · A[m, k]^T, then T is turned into Y. */
static void narrow_slice(void *ctx, size_t slice, size_t worker)
{
    const struct plan *const p = ctx;
    const struct teg_products *const g = p->g;
    const struct job j = job_of(p, slice);
    float *const t = p->scratch + worker * p->scratch_floats; /* [n, m_block] */
    const struct teg_linear_args args = {.x = p->turned,
                                         .x_stride = g->k,
                                         .w = g->a + j.at.a + j.m0 * g->a_stride,
                                         .w_dtype = TEG_DTYPE_F32,
                                         .w_row_bytes = g->a_stride * sizeof(float),
                                         .bias = g->bias ? g->bias + j.at.bias + j.m0 : NULL,
                                         .y = t,
                                         .y_stride = p->m_block,
                                         .n_tokens = j.n,
                                         .k = g->k,
                                         .n0 = 0,
                                         .n1 = j.m,
                                         .scratch = t + NARROW * p->m_block};
    p->kernels->linear_f32(&args);
    teg_transpose(t, p->m_block, j.n, j.m, g->y + j.at.y + j.m0 * g->y_stride, g->y_stride);
}

static enum teg_status run_narrow(struct teg_eval_call *c, struct plan *p)
{
    const struct teg_products *const g = p->g;
    float *turned, *panel;
    TRY(teg_op_scratch(c, teg_max(1, g->n * g->k), sizeof *turned, (void **)&turned));
    TRY(teg_op_scratch(c, teg_max(1, g->n * g->k), sizeof *panel, (void **)&panel));
    struct teg_products one = *g;
    p->g = &one;
    p->turned = turned;
    for (size_t batch = 0; batch < g->n_batches; batch++) {
        const struct job whole = {.at = g->batches[batch], .batch = batch, .m = g->m, .n = g->n};
        if (g->pack || g->n != 1 || g->b_stride != 1) {
            copy_panel(g, &whole, 0, g->k, panel, g->n);
            teg_transpose(panel, g->n, g->k, g->n, turned, g->k);
        } else { /* one column */
            memcpy(turned, g->b + whole.at.b, g->k * sizeof *turned);
        }
        one.batches = &g->batches[batch];
        one.n_batches = 1;
        if (g->m * g->n * g->k < SERIAL)
            for (size_t slice = 0; slice < p->m_jobs; slice++)
                narrow_slice(p, slice, 0);
        else
            teg_op_run(c, narrow_slice, p, p->m_jobs);
    }
    return TEG_OK;
}

/* ---- cutting ---- */

static size_t ceil_div(size_t a, size_t b)
{
    return a / b + (a % b != 0);
}

/* A block of `total` so that about `jobs` come out, a multiple of `unit`, between unit and `most`. */
static size_t block_of(size_t total, size_t jobs, size_t unit, size_t most)
{
    const size_t even = ceil_div(ceil_div(total, jobs), unit) * unit;
    return even > most ? most : even;
}

/* Columns first go into one block as wide as a panel may be, since each block of columns reads all of A again; then
 * rows are split until there are jobs for everybody, and columns again where rows do not suffice. Jobs that differ in
 * rows copy the same panel, so there are no more of them than workers. */
static void cut_columns(struct plan *p, size_t workers)
{
    const struct teg_products *const g = p->g;
    const size_t unit = p->grid->gemm_columns, widest = MAX_COLUMNS / unit * unit;
    p->n_block = block_of(g->n, ceil_div(g->n, widest), unit, widest);
    size_t have = ceil_div(g->n, p->n_block) * g->n_batches;
    if (have < workers && g->m > MIN_ROWS) {
        p->m_block = block_of(g->m, ceil_div(workers, have), p->grid->gemm_rows, SIZE_MAX / 2);
        p->m_block = teg_max(p->m_block, MIN_ROWS);
        have *= ceil_div(g->m, p->m_block);
    }
    if (have < workers)
        p->n_block = block_of(g->n, ceil_div(g->n, p->n_block) * ceil_div(workers, have), unit, widest);
}

static void cut(struct plan *p, size_t workers, bool rows, bool narrow)
{
    const struct teg_products *const g = p->g;
    const size_t shared = workers == 1 ? 1 : ceil_div(4 * workers, teg_min(g->n_batches, 4 * workers));
    const uint64_t longest = (uint64_t)g->m * g->n / LONGEST * g->k + (uint64_t)g->m * g->n % LONGEST * g->k / LONGEST;
    const size_t wanted = teg_max(shared, (size_t)teg_min((size_t)longest, g->n));
    p->m_block = g->m;
    p->n_block = g->n;
    if (narrow) {
        p->m_block = block_of(g->m, 4 * workers, 16, 4096);
    } else if (rows) {
        p->n_block = block_of(g->n, wanted, 16, SIZE_MAX / 2);
        if (g->n < 16 * wanted)
            p->m_block = block_of(g->m, wanted, 16, SIZE_MAX / 2);
    } else {
        cut_columns(p, workers);
    }
    p->m_jobs = ceil_div(g->m, p->m_block);
    p->n_jobs = ceil_div(g->n, p->n_block);
}

static bool is_serial(const struct teg_products *g)
{
    size_t work;
    return teg_mul(g->m, g->n, &work) && teg_mul(work, g->k, &work) && teg_mul(work, g->n_batches, &work) &&
           work < SERIAL;
}

enum teg_status teg_products_run(struct teg_eval_call *c, const struct teg_products *g)
{
    if (!g->n_batches || !g->m || !g->n)
        return TEG_OK;
    const size_t workers = teg_pool_threads(c->pool);
    const bool narrow = !g->b_rows && g->n < NARROW && g->m > g->n;
    struct plan p = {.g = g, .call = c, .kernels = c->kernels, .grid = teg_grid_kernels(c->kernels)};
    cut(&p, is_serial(g) ? 1 : workers, g->b_rows, narrow);
    p.in_place = !g->pack && !g->b_rows && g->m <= 2 * p.grid->gemm_rows;
    p.scratch_floats = K_BLOCK * p.n_block;
    if (narrow)
        p.scratch_floats = NARROW * p.m_block + teg_linear_scratch_floats(g->k);
    else if (g->b_rows)
        p.scratch_floats = teg_linear_scratch_floats(g->k);
    else if (p.in_place)
        p.scratch_floats = 1;
    p.scratch_floats = (p.scratch_floats + 15) / 16 * 16;
    TRY(teg_op_scratch(c, workers * p.scratch_floats, sizeof *p.scratch, (void **)&p.scratch));
    if (narrow)
        return run_narrow(c, &p);
    const teg_pool_fn fn = g->b_rows ? rows_slice : columns_slice;
    const size_t n_slices = g->n_batches * p.m_jobs * p.n_jobs;
    if (is_serial(g))
        for (size_t slice = 0; slice < n_slices; slice++)
            fn(&p, slice, 0);
    else
        teg_op_run(c, fn, &p, n_slices);
    return TEG_OK;
}
