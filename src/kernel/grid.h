/* kernel/grid.h: kernels for tensors whose innermost axis is space: convolutions, poolings and products of matrices
 * that lie as they come.
 *
 * linear_f32 wants both operands with K innermost. A picture [C, H, W] has K = channels outermost, and turning it costs
 * as much as a small convolution; here lanes run over the columns of B, so B is read as it lies and no sum over lanes
 * is needed at the end. Stateless like every kernel (kernels.h): no allocation, no threads, no read outside operands.
 *
 * Invariance: an output element is one chain of fused multiply-adds in the order of k, starting from what y holds;
 * neither tiles nor blocks of k nor the instruction set change it (base without FMA rounds twice; so it is its own). */
#ifndef TEG_KERNEL_GRID_H
#define TEG_KERNEL_GRID_H

#include "kernel/kernels.h"

/* Y[M, N] += A[M, K] · B[K, N]. |error| <= 2·(k + 1)·eps·(Σ|a||b| + |y|). */
struct teg_grid_gemm_args {
    const float *a; /* [M, a_stride] */
    size_t a_stride;
    const float *b; /* [K, b_stride]; rows may overlap (b_stride < n) */
    size_t b_stride;
    float *y; /* [M, y_stride] */
    size_t y_stride;
    size_t m, n, k;
};

struct teg_grid_kernels {
    void (*gemm_f32)(const struct teg_grid_gemm_args *a);
    /* y[i] += x[i·step] */
    void (*row_add_f32)(float *y, const float *x, size_t step, size_t n);
    /* y[i] += x[i·step]² */
    void (*row_add_square_f32)(float *y, const float *x, size_t step, size_t n);
    /* y[i] = max(y[i], x[i·step]); a NaN stays. */
    void (*row_max_f32)(float *y, const float *x, size_t step, size_t n);
    /* y[i·step] += x[i] */
    void (*row_scatter_f32)(float *y, size_t step, const float *x, size_t n);
    /* x[i] = e^(x[i] - shift), 6 eps relative to the exponential of the rounded difference; returns
     * their sum. A shift of -inf gives NaN, as the formula does. */
    float (*row_exp_f32)(float *x, float shift, size_t n);
    void (*row_sigmoid_f32)(float *x, size_t n); /* 1/(1 + e^-x), 8 eps relative, or 2^-126 */
    void (*row_tanh_f32)(float *x, size_t n);    /* 8 eps relative */
    size_t gemm_rows, gemm_columns;              /* of a tile: blocks that are multiples of it waste nothing */
};

/* The row that fits the instruction set which fills linear_f32 of `kernels`. Never NULL. */
const struct teg_grid_kernels *teg_grid_kernels(const struct teg_kernels *kernels);

/* Private to kernel/: one row an instruction set. */
extern const struct teg_grid_kernels teg_grid_row_base, teg_grid_row_avx2, teg_grid_row_avx512;

#endif
