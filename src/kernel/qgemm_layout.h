/* kernel/qgemm_layout.h: bytes of packed weights and of quantized activations. Private to kernel/.
 *
 * Packed weights are panels of 32 columns, one after the other; a panel is a run of blocks along k (32 or 256 values,
 * as in the file), so both a product of many rows and one of a single row read one stream:
 *
 *     block = header (scales of the 32 columns), then the codes of each group of 32 k
 *
 * Codes are unsigned and stand in planes, column by column in quads: 4 consecutive k of one column make the 32-bit lane
 * of a dot product. r = k % 4, quad = k / 4 % 8:
 *
 *     nibbles   [4][32 columns][4]  byte (p, c, r): low quad 2p, high quad 2p + 1          512 bytes
 *     pairs     [2][32][4]          byte (h, c, r): bits 2i, 2i + 1 of quad 4h + i         256
 *     bits      [32][4]             byte (c, r): bit i of quad i                           128
 *     bytes     [8][32][4]                                                                1024
 *
 * 5 bits are nibbles + bits, 6 are nibbles + pairs, 3 are pairs + bits. So a packed type is within 11 % (MXFP4: none)
 * of its size in the file, mostly within 3 %. Scales keep their stored form: f16, 6-bit factors as bytes. Alternative
 * not taken: float scales, which cost half a bit a weight. */
#ifndef TEG_KERNEL_QGEMM_LAYOUT_H
#define TEG_KERNEL_QGEMM_LAYOUT_H

#include "kernel/qgemm.h"

#define COLUMNS TEG_QGEMM_COLUMNS
#define QUAD_BYTES 128u /* 4 k of 32 columns */

enum gemm_codes { CODES_4, CODES_IQ4, CODES_FP4, CODES_5, CODES_6, CODES_8, CODES_1, CODES_2, CODES_3 };

/* Headers; numbers of items are per column.
 *   D    f16 scale                      DM   f16 scale, f16 minimum       E    e8m0 scale
 *   K    f16 d, f16 dmin, 8 u8 factors of d, 8 u8 factors of dmin
 *   S8   f16 d, 8 s8 factors            S16  f16 d, 16 s8 factors (groups of 16)
 *   2K   f16 d, f16 dmin, 16 bytes: factor of d, factor of dmin << 4 (groups of 16) */
enum gemm_header { HEADER_D, HEADER_DM, HEADER_E, HEADER_K, HEADER_S8, HEADER_S16, HEADER_2K };

#define HEADER_BYTES(h)                                                                                                \
    ((h) == HEADER_D    ? 64u                                                                                          \
     : (h) == HEADER_DM ? 128u                                                                                         \
     : (h) == HEADER_E  ? 32u                                                                                          \
     : (h) == HEADER_K  ? 640u                                                                                         \
     : (h) == HEADER_S8 ? 320u                                                                                         \
     : (h) == HEADER_2K ? 640u                                                                                         \
                        : 576u)
#define CODE_BYTES(c)                                                                                                  \
    ((c) == CODES_5   ? 640u                                                                                           \
     : (c) == CODES_6 ? 768u                                                                                           \
     : (c) == CODES_8 ? 1024u                                                                                          \
     : (c) == CODES_1 ? 128u                                                                                           \
     : (c) == CODES_2 ? 256u                                                                                           \
     : (c) == CODES_3 ? 384u                                                                                           \
                      : 512u)

/*    dtype   header      codes      groups in a block, zero */
#define GEMM_TYPES(X)                                                                                                  \
    X(Q4_0, HEADER_D, CODES_4, 1, 8)                                                                                   \
    X(Q4_1, HEADER_DM, CODES_4, 1, 0)                                                                                  \
    X(Q5_0, HEADER_D, CODES_5, 1, 16)                                                                                  \
    X(Q5_1, HEADER_DM, CODES_5, 1, 0)                                                                                  \
    X(Q8_0, HEADER_D, CODES_8, 1, 128)                                                                                 \
    X(Q2_K, HEADER_2K, CODES_2, 8, 0)                                                                                  \
    X(Q3_K, HEADER_S16, CODES_3, 8, 4)                                                                                 \
    X(Q4_K, HEADER_K, CODES_4, 8, 0)                                                                                   \
    X(Q5_K, HEADER_K, CODES_5, 8, 0)                                                                                   \
    X(Q6_K, HEADER_S16, CODES_6, 8, 32)                                                                                \
    X(IQ4_NL, HEADER_D, CODES_IQ4, 1, 127)                                                                             \
    X(IQ4_XS, HEADER_S8, CODES_IQ4, 8, 127)                                                                            \
    X(MXFP4, HEADER_E, CODES_FP4, 1, 12)

/* Matrices of dtype/encoding.h. Affine ones stand in blocks of form->block_groups groups, under
 *     scales [32] f16 or float, zeros [32] u8; MINIMUM_4: then minimums [32] float
 * A panel of a palette has one header for all of its k, whose table entries are 16 bits, in two halves:
 *     scales [32] float, zeros [2 halves][32] u8, tables [2][entries / 16][8][16] u8
 * One table serves 4 columns, which is what a lookup by 16-byte lanes wants: its entries 16i … stand together. */
/*    kind      codes */
#define GEMM_AFFINE(X)                                                                                                 \
    X(AFFINE_4, CODES_4)                                                                                               \
    X(AFFINE_8, CODES_8)                                                                                               \
    X(MINIMUM_4, CODES_4)
/*    kind       codes    tables of 16 entries */
#define GEMM_PALETTES(X)                                                                                               \
    X(PALETTE_1, CODES_1, 1)                                                                                           \
    X(PALETTE_2, CODES_2, 1)                                                                                           \
    X(PALETTE_3, CODES_3, 1)                                                                                           \
    X(PALETTE_4, CODES_4, 1)                                                                                           \
    X(PALETTE_6, CODES_6, 4)                                                                                           \
    X(PALETTE_8, CODES_8, 16)

/* Float scales have 22 bits, the last two are 0: three halves of a scale are exact then (qgemm_tmpl.h, FAR). */
#define AFFINE_SCALE_BYTES(form) ((form)->wide_scales ? 4u * COLUMNS : 2u * COLUMNS)
#define AFFINE_HEADER_BYTES(form) (AFFINE_SCALE_BYTES(form) + ((form)->kind == TEG_QGEMM_MINIMUM_4 ? 5u : 1u) * COLUMNS)
#define PALETTE_HEADER_BYTES(tables) (6u * COLUMNS + 2u * (tables)*QUAD_BYTES)

/* Signed table entries plus `zero`: what a nibble of IQ4 and of FP4 (doubled) stands for. */
#define IQ4_TABLE                                                                                                      \
    {                                                                                                                  \
        0, 23, 44, 62, 78, 92, 105, 117, 128, 140, 152, 165, 180, 196, 216, 240                                        \
    }
#define FP4_TABLE                                                                                                      \
    {                                                                                                                  \
        12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0                                                      \
    }

/* A group of 32 activations. */
struct gemm_group {
    int8_t u[32];
    float scale;       /* s */
    float sum;         /* s·(Σu - 32 z) */
    uint32_t pair;     /* low half -z, high half -(Σu - 32 z) */
    uint32_t pair_low; /* the same for the first 16 */
};
_Static_assert(sizeof(struct gemm_group) == 48, "three quarters of a cache line");

/* A group of 32 k of one panel, unpacked: what the inner loop reads. Groups of 16 use both parts. */
struct gemm_unit {
    uint8_t codes[8][QUAD_BYTES];
    struct gemm_part {
        float scale[COLUMNS];
        int32_t pair[COLUMNS]; /* low half Σq, high half zero */
        float minimum[COLUMNS];
    } part[2];
};

/* qgemm_pack.c: the codes of column c in one group (q[32], in order of k) to their places in the planes at dst. */
void teg_qgemm_place(enum gemm_codes codes, uint8_t *dst, size_t c, const uint8_t *q);

#define GEMM_UNITS 16      /* groups unpacked at a time: 28 KiB, most of a first-level cache */
#define GEMM_MOST_UNITS 20 /* where that is all there are */
#define GEMM_ROWS 258      /* rows between unpackings, a chunk in tiles of six: their sums stay in the second level */

#endif
