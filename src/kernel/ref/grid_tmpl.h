/* kernel/ref/grid_tmpl.h: kernel/grid.h for the vector type of the file that includes it (parameters: vec_base.h, and
 * GRID_ROW, the name of the row to define).
 *
 * A tile of GEMM_MR rows and GEMM_NV vectors of Y stays in registers for all of K: each step loads GEMM_NV vectors of B
 * and broadcasts GEMM_MR elements of A. Rows that are left over go in tiles of 4, 2 and 1, columns one vector at a
 * time, the last of them masked: all of it the same order of operations per element. */
#include "kernel/grid.h"
#include "kernel/ref/vec_types.h"

#if VL == 16 || defined(__aarch64__) /* 32 registers */
#define GEMM_MR 8
#define GEMM_NV 3
#elif VL == 8
#define GEMM_MR 4
#define GEMM_NV 3
#else
#define GEMM_MR 4
#define GEMM_NV 2
#endif

/* Y tile (mr x nv vectors at y) += A rows · B columns; the last vector has `tail` lanes. mr, nv, partial: constants. */
TEG_INLINE void gemm_tile(const size_t mr, const size_t nv, const bool partial, const struct teg_grid_gemm_args *g,
                          const float *a, const float *b, float *y, size_t tail)
{
    vf acc[GEMM_MR][GEMM_NV];
#pragma GCC unroll 8
    for (size_t m = 0; m < mr; m++)
#pragma GCC unroll 4
        for (size_t v = 0; v < nv; v++) {
            const float *const at = y + m * g->y_stride + v * VL;
            acc[m][v] = partial ? v_load_part(at, tail) : v_load(at);
        }
    for (size_t k = 0; k < g->k; k++) {
        vf row[GEMM_NV];
#pragma GCC unroll 4
        for (size_t v = 0; v < nv; v++)
            row[v] = partial ? v_load_part(b + k * g->b_stride + v * VL, tail) : v_load(b + k * g->b_stride + v * VL);
#pragma GCC unroll 8
        for (size_t m = 0; m < mr; m++) {
            const vf x = v_set(a[m * g->a_stride + k]);
#pragma GCC unroll 4
            for (size_t v = 0; v < nv; v++)
                acc[m][v] = v_fma(x, row[v], acc[m][v]);
        }
    }
#pragma GCC unroll 8
    for (size_t m = 0; m < mr; m++)
#pragma GCC unroll 4
        for (size_t v = 0; v < nv; v++) {
            float *const at = y + m * g->y_stride + v * VL;
            if (partial)
                v_store_part(at, acc[m][v], tail);
            else
                v_store(at, acc[m][v]);
        }
}

/* All rows of one strip of columns. */
TEG_INLINE void gemm_strip(const size_t nv, const bool partial, const struct teg_grid_gemm_args *g, size_t n,
                           size_t tail)
{
    size_t m = 0;
    for (; m + GEMM_MR <= g->m; m += GEMM_MR)
        gemm_tile(GEMM_MR, nv, partial, g, g->a + m * g->a_stride, g->b + n, g->y + m * g->y_stride + n, tail);
#if GEMM_MR > 4
    if (m + 4 <= g->m) {
        gemm_tile(4, nv, partial, g, g->a + m * g->a_stride, g->b + n, g->y + m * g->y_stride + n, tail);
        m += 4;
    }
#endif
    if (m + 2 <= g->m) {
        gemm_tile(2, nv, partial, g, g->a + m * g->a_stride, g->b + n, g->y + m * g->y_stride + n, tail);
        m += 2;
    }
    if (m < g->m)
        gemm_tile(1, nv, partial, g, g->a + m * g->a_stride, g->b + n, g->y + m * g->y_stride + n, tail);
}

static void gemm_f32(const struct teg_grid_gemm_args *g)
{
    size_t n = 0;
    for (; n + GEMM_NV * VL <= g->n; n += GEMM_NV * VL)
        gemm_strip(GEMM_NV, false, g, n, VL);
#if GEMM_NV > 2
    if (n + 2 * VL <= g->n) {
        gemm_strip(2, false, g, n, VL);
        n += 2 * VL;
    }
#endif
    for (; n + VL <= g->n; n += VL)
        gemm_strip(1, false, g, n, VL);
    if (n < g->n)
        gemm_strip(1, true, g, n, g->n - n);
}

static void row_add_f32(float *y, const float *x, size_t step, size_t n)
{
    if (step == 1)
        for (size_t i = 0; i < n; i++)
            y[i] += x[i];
    else
        for (size_t i = 0; i < n; i++)
            y[i] += x[i * step];
}

static void row_add_square_f32(float *y, const float *x, size_t step, size_t n)
{
    if (step == 1)
        for (size_t i = 0; i < n; i++)
            y[i] += x[i] * x[i];
    else
        for (size_t i = 0; i < n; i++)
            y[i] += x[i * step] * x[i * step];
}

static inline float max_or_nan(float y, float x)
{
    return x > y || x != x ? x : y;
}

static void row_max_f32(float *y, const float *x, size_t step, size_t n)
{
    if (step == 1)
        for (size_t i = 0; i < n; i++)
            y[i] = max_or_nan(y[i], x[i]);
    else
        for (size_t i = 0; i < n; i++)
            y[i] = max_or_nan(y[i], x[i * step]);
}

static void row_scatter_f32(float *y, size_t step, const float *x, size_t n)
{
    if (step == 1)
        for (size_t i = 0; i < n; i++)
            y[i] += x[i];
    else
        for (size_t i = 0; i < n; i++)
            y[i * step] += x[i];
}

static float row_exp_f32(float *x, float shift, size_t n)
{
    const vf by = v_set(shift);
    vf sum = {0};
    size_t i = 0;
    for (; i + VL <= n; i += VL) {
        const vf e = v_exp(v_load(x + i) - by);
        v_store(x + i, e);
        sum += e;
    }
    if (i < n) {
        v_store_part(x + i, v_exp(v_load_part(x + i, n - i) - by), n - i);
        sum += v_load_part(x + i, n - i);
    }
    return v_sum(sum);
}

static void row_sigmoid_f32(float *x, size_t n)
{
    for (size_t i = 0; i < n; i += VL) {
        const vf v = v_load_n(x + i, n - i);
        v_store_n(x + i, v_set(1.0f) / (v_exp(-v) + 1.0f), n - i);
    }
}

static void row_tanh_f32(float *x, size_t n)
{
    for (size_t i = 0; i < n; i += VL)
        v_store_n(x + i, v_tanh(v_load_n(x + i, n - i)), n - i);
}

const struct teg_grid_kernels GRID_ROW = {
    .gemm_f32 = gemm_f32,
    .row_add_f32 = row_add_f32,
    .row_add_square_f32 = row_add_square_f32,
    .row_max_f32 = row_max_f32,
    .row_scatter_f32 = row_scatter_f32,
    .row_exp_f32 = row_exp_f32,
    .row_sigmoid_f32 = row_sigmoid_f32,
    .row_tanh_f32 = row_tanh_f32,
    .gemm_rows = GEMM_MR,
    .gemm_columns = (size_t)GEMM_NV * VL,
};
