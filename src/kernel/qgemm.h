/* kernel/qgemm.h: matrix products on integers: quantized weights, packed once, against activations in 8 bits.
 *
 * Activations are quantized row by row in groups of 32 with a scale and a zero point each:
 *
 *     x ≈ s·(u - z)      u in -128 … 127, z in -128 … 127, s = (max(x,0) - min(x,0)) / 255
 *
 * A symmetric scale would save one multiply-add in twelve, but on SmolLM2 its divergence from exact results is 2.6
 * times larger: a group with one outlier wastes half of its range (docs/PERFORMANCE.md). Scales per 256 or per row are
 * 7 and 15 times worse. For each group of 32 (or 16) weights w = d·(q - zero) + m the product is
 *
 *     Σ w·x = d·s·[Σ q·u - z·Σq - zero·(Σu - n·z)] + m·s·(Σu - n·z)
 *
 * The bracket is exact in int32 (codes q are unsigned, so it is what VPDPBUSD computes, plus one dot product of int16
 * pairs (Σq, zero)·(-z, -(Σu - n·z)) as starting value). Groups are added in order of k, by fused multiply-add where
 * the instruction set has one. That order is the same for every T, slice and tile, so results never depend on them, and
 * the rows of all instruction sets with fused multiply-add agree bit for bit.
 *
 * Error against double-precision sums of the same integers: |error| <= (6·n_groups + 4)·eps·Σ|group|.
 * NaN or infinity in x makes NaN of every output of that row. Groups whose step s is below 2^-110 count as zeros. */
#ifndef TEG_KERNEL_QGEMM_H
#define TEG_KERNEL_QGEMM_H

#include <stddef.h>
#include <stdint.h>

#include "cpu/cpu.h"
#include "dtype/encoding.h"

#define TEG_QGEMM_GROUP 32   /* activations that share a scale */
#define TEG_QGEMM_COLUMNS 32 /* columns of a weight panel: slices begin at multiples of it */

/* How a matrix that is no blocks of a dtype is packed. */
enum teg_qgemm_kind {
    TEG_QGEMM_BLOCKS, /* it is: the dtype says how */
    TEG_QGEMM_AFFINE_4,
    TEG_QGEMM_AFFINE_8,
    TEG_QGEMM_MINIMUM_4, /* scale · code + minimum: float offsets */
    TEG_QGEMM_PALETTE_1,
    TEG_QGEMM_PALETTE_2,
    TEG_QGEMM_PALETTE_3,
    TEG_QGEMM_PALETTE_4,
    TEG_QGEMM_PALETTE_6,
    TEG_QGEMM_PALETTE_8,
    TEG_QGEMM_KIND_COUNT
};
struct teg_qgemm_form {
    enum teg_qgemm_kind kind;
    /* affine: */
    bool wide_scales;      /* floats, not f16 */
    uint32_t block_groups; /* groups of 32 k that share a scale */
};

/* Y[T, N] = X[T, K] · W[N, K]^T (+ bias) (+ residual); columns n0 … n1 - 1. */
struct teg_qgemm_args {
    const void *x;         /* [T] tokens of `terms` quantized rows each, as quantize() wrote them */
    size_t x_stride_bytes; /* from token to token */
    uint32_t terms;        /* 1, or 2: a second row holds what the first left over, for outputs that need 16 bits */
    const void *w;         /* packed, all N columns; 64-byte aligned */
    enum teg_dtype w_dtype;
    const struct teg_qgemm_form *w_form; /* NULL: blocks of w_dtype */
    const float *bias;                   /* [N] or NULL */
    const float *residual;               /* [T, y_stride] or NULL; may be y itself */
    float *y;                            /* [T, y_stride] */
    size_t y_stride;
    /* Not NULL: instead of y, act(x · gate^T) · (x · w^T) is made by this kernel (kernels.h) and written quantized, as
     * quantize() would. N is a multiple of 32, terms 1; bias and residual are not looked at. */
    void (*glu)(const float *gate, size_t gate_stride, const float *up, size_t up_stride, float *y, size_t y_stride,
                size_t n_rows, size_t n);
    const void *gate; /* packed, as w */
    enum teg_dtype gate_dtype;
    const struct teg_qgemm_form *gate_form; /* as w_form */
    void *y_groups;                         /* [T] rows of teg_qgemm_row_bytes(N) */
    size_t y_groups_stride_bytes;
    size_t n_tokens, k;
    size_t n0, n1;  /* n0 a multiple of TEG_QGEMM_COLUMNS; n1 too, or N */
    float *scratch; /* teg_qgemm_scratch_floats() floats, 64-byte aligned */
};

struct teg_qgemm {
    const char *name;
    enum teg_isa isa;
    /* n_rows rows of k floats at x (stride in floats) to dst; terms rows of teg_qgemm_row_bytes(k) for each. */
    void (*quantize)(const float *x, size_t x_stride, void *dst, size_t dst_stride_bytes, uint32_t terms, size_t n_rows,
                     size_t k);
    void (*run)(const struct teg_qgemm_args *args);
};

/* Whether weights of this type and row length can be packed as they are. */
bool teg_qgemm_accepts(enum teg_dtype dtype, size_t k);
/* Whether packing rounds them: f32, f16 and bf16 become what Q8_0 would hold. A group of 32 with NaN or infinity in it
 * makes its column NaN, as does one with a value beyond 127 · 65504. */
bool teg_qgemm_rounds(enum teg_dtype dtype, size_t k);
/* The best record for this CPU; always one. */
const struct teg_qgemm *teg_qgemm_select(const struct teg_cpu *cpu);
/* The record of one instruction set (tests); NULL where this CPU or build cannot run it. */
const struct teg_qgemm *teg_qgemm_select_isa(const struct teg_cpu *cpu, enum teg_isa isa);

/* Bytes of one quantized row of k values (a multiple of 32). */
size_t teg_qgemm_row_bytes(size_t k);
size_t teg_qgemm_scratch_floats(void);

/* Weights: one layout for all instruction sets and every T (qgemm_pack.c). */
size_t teg_qgemm_packed_bytes(enum teg_dtype dtype, size_t n, size_t k);
/* Packs columns n0 … n1 - 1 of [N, K] rows of w_row_bytes at w into dst, the place of column 0; columns past N are
 * filled with zeros. n0 is a multiple of TEG_QGEMM_COLUMNS; n1 too, or N. */
void teg_qgemm_pack(enum teg_dtype dtype, const void *w, size_t w_row_bytes, size_t n0, size_t n1, size_t k, void *dst);

/* Matrices of dtype/encoding.h (qgemm_encoding.c). How one can be packed; false: it cannot (K is not whole groups, a
 * scale serves fewer than 32 values, offsets of 8-bit codes are floats, a table serves fewer than 4 rows). Affine codes
 * are kept and mean what they mean there, less the rounding to fp16 and of float scales to 22 bits. Palettes keep their
 * codes too; a table's entries are put in 16 bits, which is 1/65535 of their range, and each product is made twice, for
 * both halves of an entry. */
bool teg_qgemm_form_of(const struct teg_encoding *e, struct teg_qgemm_form *form);
size_t teg_qgemm_form_bytes(const struct teg_qgemm_form *form, size_t n, size_t k);
/* As teg_qgemm_pack, for rows n0 … n1 - 1 of the matrix. */
void teg_qgemm_pack_form(const struct teg_qgemm_form *form, const struct teg_encoding *e, size_t n0, size_t n1,
                         void *dst);

#endif
