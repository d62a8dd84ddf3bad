/* eval/products.h: batches of matrix products over the pool, for linear, matmul, attention, convolutions and recurrent
 * nets.
 *
 * Y[m, n] = bias[m] + A[m, k] · B[k, n] for each batch. B lies as [K, N] or as [N, K] rows, or is produced block by
 * block (an image's patches), so that it never exists as a whole: memory beyond the operands is a few hundred KiB a
 * worker. Every element is one sum in the order of k whatever the number of threads. */
#ifndef TEG_EVAL_PRODUCTS_H
#define TEG_EVAL_PRODUCTS_H

#include "eval/eval.h"
#include "kernel/grid.h"

/* Where a batch's operands start, in elements. */
struct teg_product_at {
    size_t a, b, y, bias;
};

struct teg_products {
    const struct teg_product_at *batches;
    size_t n_batches, m, n, k;
    const float *a; /* [m, a_stride] */
    size_t a_stride;
    const float *b; /* [k, b_stride]; with b_rows: [n, b_stride] */
    size_t b_stride;
    bool b_rows;
    const float *bias;        /* [m] or NULL */
    const float *column_bias; /* [n] or NULL; with b_rows only */
    float *y;                 /* [m, y_stride] */
    size_t y_stride;
    /* B's rows k0 … k0+nk-1, columns n0 … n0+nn-1 into dst [nk, dst_stride]; NULL: b is read. Called by any worker. */
    void (*pack)(const void *ctx, size_t batch, size_t k0, size_t nk, size_t n0, size_t nn, float *dst,
                 size_t dst_stride);
    const void *pack_ctx;
};

enum teg_status teg_products_run(struct teg_eval_call *c, const struct teg_products *g);

/* dst[columns, rows] = src[rows, src_stride] turned. */
void teg_transpose(const float *src, size_t src_stride, size_t rows, size_t columns, float *dst, size_t dst_stride);

#endif
