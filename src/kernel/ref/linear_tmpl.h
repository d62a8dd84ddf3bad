/* kernel/ref/linear_tmpl.h: linear_f32 for the vector type of the file that includes it (parameters: vec_base.h).
 *
 * Y[T, N] = X[T, K] · W[N, K]^T. An output is the sum of VL partial sums: lane j adds x[i]·w[i] for i = j, j + VL, …
 * in order by v_fma, v_sum4 adds the lanes in a fixed tree, then come bias and residual. A last partial vector is
 * filled with zeros on both sides. That is the whole order of operations; tiles only interleave independent outputs:
 *
 *   many tokens  TEG_LINEAR_ROWS rows of W are decoded once; each LINEAR_MR tokens x 4 rows make a tile in registers.
 *   few tokens   4 rows are decoded CHUNK columns at a time, so the decoded weights never leave the first-level cache.
 *
 * A short group of rows repeats its last row and stores less. Alternative not taken: lanes over N (no sum over lanes at
 * the end), which needs the decoded rows transposed and so costs too much for one token. */
#include "kernel/ref/vec_types.h"
#include "kernel/sizes.h"

#define LINEAR_NR 4
#define CHUNK 1024 /* columns; whole blocks and whole vectors */

/* Decoded rows of W: row j at rows[j]. */
struct linear_rows {
    const float *row[LINEAR_NR];
};

/* acc[m][j] += x row m · w row j over k columns. `mr` must be a constant. */
TEG_INLINE void linear_tile(const size_t mr, const float *x, size_t x_stride, const struct linear_rows *w, size_t k,
                            vf acc[LINEAR_MR][LINEAR_NR])
{
    const float *const w0 = w->row[0], *const w1 = w->row[1], *const w2 = w->row[2], *const w3 = w->row[3];
    vf s[LINEAR_MR][LINEAR_NR];
    memcpy(s, acc, mr * sizeof s[0]);
    size_t i = 0;
    for (; i + VL <= k; i += VL) {
        const vf a = v_load(w0 + i), b = v_load(w1 + i), c = v_load(w2 + i), d = v_load(w3 + i);
#pragma GCC unroll 8
        for (size_t m = 0; m < mr; m++) {
            const vf xv = v_load(x + m * x_stride + i);
            s[m][0] = v_fma(xv, a, s[m][0]);
            s[m][1] = v_fma(xv, b, s[m][1]);
            s[m][2] = v_fma(xv, c, s[m][2]);
            s[m][3] = v_fma(xv, d, s[m][3]);
        }
    }
    if (i < k) {
        const size_t n = k - i;
        const vf a = v_load_part(w0 + i, n), b = v_load_part(w1 + i, n);
        const vf c = v_load_part(w2 + i, n), d = v_load_part(w3 + i, n);
#pragma GCC unroll 8
        for (size_t m = 0; m < mr; m++) {
            const vf xv = v_load_part(x + m * x_stride + i, n);
            s[m][0] = v_fma(xv, a, s[m][0]);
            s[m][1] = v_fma(xv, b, s[m][1]);
            s[m][2] = v_fma(xv, c, s[m][2]);
            s[m][3] = v_fma(xv, d, s[m][3]);
        }
    }
    memcpy(acc, s, mr * sizeof s[0]);
}

static void linear_tile_n(size_t mr, const float *x, size_t x_stride, const struct linear_rows *w, size_t k,
                          vf acc[LINEAR_MR][LINEAR_NR])
{
    switch (mr) {
    case 1:
        linear_tile(1, x, x_stride, w, k, acc);
        break;
#if LINEAR_MR > 2
    case 2:
        linear_tile(2, x, x_stride, w, k, acc);
        break;
#endif
#if LINEAR_MR > 3
    case 3:
        linear_tile(3, x, x_stride, w, k, acc);
        break;
#endif
    default:
        linear_tile(LINEAR_MR, x, x_stride, w, k, acc);
        break;
    }
}

/* Finishes a tile: outputs of mr tokens from t, nr columns from n. */
static void linear_store(const struct teg_linear_args *a, size_t t, size_t mr, size_t n, size_t nr,
                         vf acc[LINEAR_MR][LINEAR_NR])
{
    for (size_t m = 0; m < mr; m++) {
        float sums[LINEAR_NR];
        v_sum4(sums, acc[m][0], acc[m][1], acc[m][2], acc[m][3]);
        const size_t at = (t + m) * a->y_stride + n;
        for (size_t j = 0; j < nr; j++) {
            float y = sums[j];
            if (a->bias)
                y += a->bias[n + j];
            if (a->residual)
                y += a->residual[at + j];
            a->y[at + j] = y;
        }
    }
}

/* Float rows that can be read where they are. */
static bool linear_in_place(const struct teg_linear_args *a)
{
    return !a->w_encoding && a->w_dtype == TEG_DTYPE_F32 && ((uintptr_t)a->w | a->w_row_bytes) % sizeof(float) == 0;
}

static const void *linear_row(const struct teg_linear_args *a, size_t n)
{
    return (const char *)a->w + n * a->w_row_bytes;
}

/* Columns k … k + n - 1 of a row, k a multiple of CHUNK. */
static void linear_decode(const struct teg_linear_args *a, size_t row, size_t k, size_t n, float *dst)
{
    const struct teg_dtype_info *const info = teg_dtype_info(a->w_dtype);
    if (a->w_encoding)
        teg_encoding_decode(a->w_encoding, row, k, n, dst);
    else
        decode_row(a->w_dtype, (const char *)linear_row(a, row) + k / info->block_elements * info->block_bytes, dst, n);
}

static void linear_many(const struct teg_linear_args *a)
{
    const bool in_place = linear_in_place(a);
    const size_t stride = teg_linear_stride(a->k);
    for (size_t n = a->n0; n < a->n1; n += TEG_LINEAR_ROWS) {
        const size_t rows = a->n1 - n < TEG_LINEAR_ROWS ? a->n1 - n : TEG_LINEAR_ROWS;
        const float *row[TEG_LINEAR_ROWS];
        for (size_t j = 0; j < TEG_LINEAR_ROWS; j++) {
            const size_t source = j < rows ? j : rows - 1;
            row[j] = in_place ? (const float *)linear_row(a, n + source) : a->scratch + source * stride;
            if (!in_place && j < rows)
                linear_decode(a, n + j, 0, a->k, a->scratch + j * stride);
        }
        for (size_t t = 0; t < a->n_tokens; t += LINEAR_MR) {
            const size_t mr = a->n_tokens - t < LINEAR_MR ? a->n_tokens - t : LINEAR_MR;
            for (size_t j = 0; j < rows; j += LINEAR_NR) {
                const struct linear_rows w = {{row[j], row[j + 1], row[j + 2], row[j + 3]}};
                const size_t nr = rows - j < LINEAR_NR ? rows - j : LINEAR_NR;
                vf acc[LINEAR_MR][LINEAR_NR] = {{{0}}};
                linear_tile_n(mr, a->x + t * a->x_stride, a->x_stride, &w, a->k, acc);
                linear_store(a, t, mr, n + j, nr, acc);
            }
        }
    }
}

/* At most LINEAR_MR tokens. */
static void linear_few(const struct teg_linear_args *a)
{
    const bool in_place = linear_in_place(a);
    for (size_t n = a->n0; n < a->n1; n += LINEAR_NR) {
        const size_t nr = a->n1 - n < LINEAR_NR ? a->n1 - n : LINEAR_NR;
        vf acc[LINEAR_MR][LINEAR_NR] = {{{0}}};
        for (size_t k = 0; k < a->k; k += CHUNK) {
            const size_t columns = a->k - k < CHUNK ? a->k - k : CHUNK;
            struct linear_rows w;
            for (size_t j = 0; j < LINEAR_NR; j++) {
                const size_t row = n + (j < nr ? j : nr - 1);
                w.row[j] = in_place ? (const float *)linear_row(a, row) + k : a->scratch + j * CHUNK;
                if (!in_place && j < nr)
                    linear_decode(a, row, k, columns, a->scratch + j * CHUNK);
                else if (!in_place)
                    w.row[j] = w.row[nr - 1];
            }
            linear_tile_n(a->n_tokens, a->x + k, a->x_stride, &w, columns, acc);
        }
        linear_store(a, 0, a->n_tokens, n, nr, acc);
    }
}

static void linear_f32(const struct teg_linear_args *a)
{
    if (a->n_tokens > LINEAR_MR)
        linear_many(a);
    else if (a->n_tokens > 0)
        linear_few(a);
}
