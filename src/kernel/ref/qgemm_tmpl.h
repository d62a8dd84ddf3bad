/* kernel/ref/qgemm_tmpl.h: the integer GEMM of kernel/qgemm.h for the vectors of the file that includes it.
 *
 * Parameters: a vec_*.h, and
 *   GEMM_MR        rows of the register tile; it is two vectors wide
 *   GEMM_NAME, GEMM_RECORD, GEMM_ISA
 *   v_dot(s, w, a)       s + Σ of the 4 products u8 · s8 in each 32-bit lane, exact
 *   v_dot7(s, w, a)      the same for w below 128
 *   v_dot_pair(s, w, a)  s + Σ of the 2 products s16 · s16
 *   v_copy(p)            the 32 bits at p in every lane
 *   v_table(p)           the 16 bytes at p in every lane of 16
 *   v_lut(t, i)          byte i of the lane's 16 bytes of t for each byte of i (0 … 15)
 *   v_codes(p, v, zero)  may be given: see below
 *   v_ranges(x, &b, &a)  may be given: how far VL groups of 32 values at x reach below and above 0, a lane each
 *
 * For each panel of 32 columns: unpack 16 groups of k to bytes and float scales in the first-level cache, run all rows
 * of activations over them, six at a time, go on with the next 16 groups. Sums wait in scratch between, which changes
 * no bit of them. A single row takes the same road: unpacking costs as much again as its products, and both together
 * are faster than memory delivers the packed bytes. Not taken: products straight from nibbles in the inner loop, whose
 * shifts and masks compete with the dot products for the same ports in every tile of rows. */
#include "kernel/qgemm_layout.h"
#include "kernel/ref/vec_types.h"
#include "kernel/rows.h"

typedef uint8_t vq __attribute__((vector_size(sizeof(vf))));
typedef uint16_t vw __attribute__((vector_size(sizeof(vf))));

#define GEMM_LINE 64 /* bytes that memory moves at a time */
#define PANEL_VECTORS (COLUMNS / VL)
#define NV 2

/* ---- unpacking ---- */

TEG_INLINE vq q_load(const uint8_t *p)
{
    vq v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Bits that cross into the neighbouring byte are masked by the callers. */
TEG_INLINE vq q_right(vq v, const size_t n)
{
    return (vq)((vw)v >> (uint16_t)n);
}

TEG_INLINE vq q_left(vq v, const size_t n)
{
    return (vq)((vw)v << (uint16_t)n);
}

/* Bit i of each byte of v to bit `to`. */
TEG_INLINE vq q_bit(vq v, const size_t i, const size_t to)
{
    return (i < to ? q_left(v, to - i) : q_right(v, i - to)) & (uint8_t)(1u << to);
}

static const uint8_t iq4_table[16] = IQ4_TABLE, fp4_table[16] = FP4_TABLE;

/* The codes of quad `quad` at vector `v` of the panel; src: the group's planes. */
TEG_INLINE vq unpack_quad(const enum gemm_codes codes, const uint8_t *src, const size_t v, const size_t quad)
{
    const uint8_t *const at = src + v * sizeof(vq);
    if (codes == CODES_8)
        return q_load(at + quad * QUAD_BYTES);
    if (codes == CODES_1)
        return q_bit(q_load(at), quad, 0);
    if (codes == CODES_2 || codes == CODES_3) {
        const vq q = q_right(q_load(at + quad / 4 * QUAD_BYTES), quad % 4 * 2) & 3;
        return codes == CODES_2 ? q : q | q_bit(q_load(at + 2 * QUAD_BYTES), quad, 2);
    }
    const vq both = q_load(at + quad / 2 * QUAD_BYTES);
    const vq q = (quad % 2 ? q_right(both, 4) : both) & 15;
    if (codes == CODES_IQ4)
        return (vq)v_lut(v_table(iq4_table), (vi)q);
    if (codes == CODES_FP4)
        return (vq)v_lut(v_table(fp4_table), (vi)q);
    if (codes == CODES_5)
        return q | q_bit(q_load(at + 4 * QUAD_BYTES), quad, 4);
    if (codes == CODES_6) {
        const vq upper = q_load(at + (4 + quad / 4) * QUAD_BYTES);
        return q | ((quad % 4 < 2 ? q_left(upper, 4 - quad % 4 * 2) : q_right(upper, quad % 4 * 2 - 4)) & 48);
    }
    return q;
}

TEG_INLINE void unpack_codes(const enum gemm_codes codes, const bool halves, const int zero, const uint8_t *src,
                             struct gemm_unit *u)
{
    const vi ones = (vi){0} + 0x01010101, upper = (vi){0} + zero * 65536;
    for (size_t v = 0; v < PANEL_VECTORS; v++) {
        vi sum = upper;
#pragma GCC unroll 8
        for (size_t quad = 0; quad < 8; quad++) {
            const vq q = unpack_quad(codes, src, v, quad);
            memcpy(u->codes[quad] + v * sizeof q, &q, sizeof q);
            sum = v_dot(sum, (vi)q, ones);
            if (halves && quad == 3) {
                memcpy(u->part[0].pair + v * VL, &sum, sizeof sum);
                sum = upper;
            }
        }
        memcpy(u->part[halves].pair + v * VL, &sum, sizeof sum);
    }
}

TEG_INLINE vf f_load(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}

TEG_INLINE void f_store(float *p, vf v)
{
    memcpy(p, &v, sizeof v);
}

TEG_INLINE vf from_integers(vi v)
{
    return __builtin_convertvector(v, vf);
}

TEG_INLINE vf from_signed(const uint8_t *p)
{
    return from_integers((v_load_u8(p) ^ 128) - 128);
}

/* Scales (and minimums) of group g of a block. Every product is exact: f16 times at most 8 bits. */
TEG_INLINE void unpack_scales(const enum gemm_header header, const uint8_t *h, size_t g, struct gemm_unit *u)
{
    for (size_t c = 0; c < COLUMNS; c += VL) {
        float *const scale = u->part[0].scale + c, *const minimum = u->part[0].minimum + c;
        if (header == HEADER_E) {
            /* 2^(e - 128); below e = 2 a denormal */
            const vi e = v_load_u8(h + c);
            const vi small = e < 2;
            f_store(scale, (vf)((small & (0x200000 + e * 0x200000)) | (~small & (e - 1) << 23)));
            continue;
        }
        const vf d = v_load_f16(h + 2 * c), second = v_load_f16(h + 2 * COLUMNS + 2 * c);
        if (header == HEADER_D || header == HEADER_DM) {
            f_store(scale, d);
            if (header == HEADER_DM)
                f_store(minimum, second);
        } else if (header == HEADER_K) {
            f_store(scale, d * from_signed(h + (4 + g) * COLUMNS + c));
            f_store(minimum, -second * from_signed(h + (12 + g) * COLUMNS + c));
        } else if (header == HEADER_S8) {
            f_store(scale, d * from_signed(h + (2 + g) * COLUMNS + c));
        } else {
            for (size_t i = 0; i < 2; i++) {
                if (header == HEADER_S16) {
                    f_store(u->part[i].scale + c, d * from_signed(h + (2 + 2 * g + i) * COLUMNS + c));
                    continue;
                }
                const vi both = v_load_u8(h + (4 + 2 * g + i) * COLUMNS + c);
                f_store(u->part[i].scale + c, d * from_integers(both & 15));
                f_store(u->part[i].minimum + c, -second * from_integers(both >> 4));
            }
        }
    }
}

#define HALVES(header) ((header) == HEADER_S16 || (header) == HEADER_2K)
#define WIDE(codes) ((codes) == CODES_8 || (codes) == CODES_IQ4)
#define MINIMUMS(header) ((header) == HEADER_DM || (header) == HEADER_K || (header) == HEADER_2K)

/* Groups g0 … g0 + n - 1 of a panel to units. */
#define X(dtype, header, codes, groups, zero)                                                                          \
    static void unpack_##dtype(const struct teg_qgemm_form *form, size_t pass, const uint8_t *panel, size_t g0,        \
                               size_t n, struct gemm_unit *u)                                                          \
    {                                                                                                                  \
        (void)form, (void)pass;                                                                                        \
        const size_t block_bytes = HEADER_BYTES(header) + (groups)*CODE_BYTES(codes);                                  \
        for (size_t g = g0; g < g0 + n; g++, u++) {                                                                    \
            const uint8_t *const block = panel + g / (groups)*block_bytes;                                             \
            unpack_scales(header, block, g % (groups), u);                                                             \
            unpack_codes(codes, HALVES(header), zero, block + HEADER_BYTES(header) + g % (groups)*CODE_BYTES(codes),   \
                         u);                                                                                           \
        }                                                                                                              \
    }
GEMM_TYPES(X)
#undef X

/* ---- unpacking matrices of dtype/encoding.h ---- */

/* tables: 0, or how many of 16 entries; at: where this vector's begin. */
TEG_INLINE vq unpack_entry(const size_t tables, const uint8_t *at, vq q)
{
    vq y = (vq)v_lut((vi)q_load(at), (vi)(q & 15));
    for (size_t i = 1; i < tables; i++) {
        const vq here = (vq)((q >> 4) == (uint8_t)i), entry = (vq)v_lut((vi)q_load(at + i * QUAD_BYTES), (vi)(q & 15));
        y = (y & ~here) | (entry & here);
    }
    return y;
}

TEG_INLINE void unpack_form_group(const enum gemm_codes codes, const size_t tables, const uint8_t *table,
                                  const uint8_t *zeros, const uint8_t *src, struct gemm_unit *u)
{
    const vi ones = (vi){0} + 0x01010101;
    for (size_t v = 0; v < PANEL_VECTORS; v++) {
        vi sum = v_load_u8(zeros + v * VL) << 16;
#pragma GCC unroll 8
        for (size_t quad = 0; quad < 8; quad++) {
            vq q = unpack_quad(codes, src, v, quad);
            if (tables)
                q = unpack_entry(tables, table + v * sizeof q, q);
            memcpy(u->codes[quad] + v * sizeof q, &q, sizeof q);
            sum = v_dot(sum, (vi)q, ones);
        }
        memcpy(u->part[0].pair + v * VL, &sum, sizeof sum);
    }
}

TEG_INLINE void unpack_affine(const enum gemm_codes codes, const bool minimums, const struct teg_qgemm_form *form,
                              const uint8_t *panel, size_t g0, size_t n, struct gemm_unit *u)
{
    const size_t header_bytes = AFFINE_HEADER_BYTES(form), block_groups = form->block_groups;
    const uint8_t *header = panel + g0 / block_groups * (header_bytes + block_groups * CODE_BYTES(codes));
    for (size_t g = g0 % block_groups; n > 0; n--, u++) {
        const uint8_t *const src = header + header_bytes + g * CODE_BYTES(codes);
        if (form->wide_scales)
            memcpy(u->part[0].scale, header, sizeof u->part[0].scale);
        else
            for (size_t c = 0; c < COLUMNS; c += VL)
                f_store(u->part[0].scale + c, v_load_f16(header + 2 * c));
        if (minimums)
            memcpy(u->part[0].minimum, header + header_bytes - 4 * COLUMNS, sizeof u->part[0].minimum);
        unpack_form_group(codes, 0, NULL, header + AFFINE_SCALE_BYTES(form), src, u);
        if (++g == block_groups) {
            header = src + CODE_BYTES(codes);
            g = 0;
        }
    }
}

/* Entries are 16 bits: their low halves in the first pass, their high halves, times 256, in the second. */
TEG_INLINE void unpack_palette(const enum gemm_codes codes, const size_t tables, size_t pass, const uint8_t *panel,
                               size_t g0, size_t n, struct gemm_unit *u)
{
    const uint8_t *const zeros = panel + 4 * COLUMNS + pass * COLUMNS;
    const uint8_t *const table = panel + 6 * COLUMNS + pass * tables * QUAD_BYTES;
    const uint8_t *src = panel + PALETTE_HEADER_BYTES(tables) + g0 * CODE_BYTES(codes);
    float scale[COLUMNS];
    memcpy(scale, panel, sizeof scale);
    for (size_t c = 0; pass && c < COLUMNS; c++)
        scale[c] *= 256;
    for (; n > 0; n--, u++, src += CODE_BYTES(codes)) {
        memcpy(u->part[0].scale, scale, sizeof scale);
        unpack_form_group(codes, tables, table, zeros, src, u);
    }
}

#define X(kind, codes)                                                                                                 \
    static void unpack_##kind(const struct teg_qgemm_form *form, size_t pass, const uint8_t *panel, size_t g0,         \
                              size_t n, struct gemm_unit *u)                                                           \
    {                                                                                                                  \
        (void)pass;                                                                                                    \
        unpack_affine(codes, TEG_QGEMM_##kind == TEG_QGEMM_MINIMUM_4, form, panel, g0, n, u);                          \
    }
GEMM_AFFINE(X)
#undef X

#define X(kind, codes, tables)                                                                                         \
    static void unpack_##kind(const struct teg_qgemm_form *form, size_t pass, const uint8_t *panel, size_t g0,         \
                              size_t n, struct gemm_unit *u)                                                           \
    {                                                                                                                  \
        (void)form;                                                                                                    \
        unpack_palette(codes, tables, pass, panel, g0, n, u);                                                          \
    }
GEMM_PALETTES(X)
#undef X

/* ---- the tile ---- */

struct gemm_rows {
    const struct gemm_group *x; /* row 0, group 0 */
    size_t stride_bytes;
    const uint8_t *next; /* what will be unpacked after these rows: each tile asks memory for next_lines of it */
    size_t next_lines;
    bool fresh; /* sums begin at zero, whatever is there */
};

TEG_INLINE const struct gemm_group *group_of(const struct gemm_rows *rows, size_t m, size_t g)
{
    return (const struct gemm_group *)(const void *)((const char *)rows->x + m * rows->stride_bytes) + g;
}

/* A half group has its own Σu: the second is the whole less the first. */
TEG_INLINE vi pair_of(const struct gemm_group *x, const bool halves, const size_t part)
{
    if (!halves)
        return v_copy(&x->pair);
    if (part == 0)
        return v_copy(&x->pair_low);
    const uint32_t high = x->pair - (x->pair_low & 0xffff0000);
    return v_copy(&high);
}

/* Sums begin at the bits of the float 1.5 · 2^23, where a step of one is a step of the last bit: as floats they are
 * FAR + sum, and one multiply-add gives sum · d without a conversion. FAR · d is exact (a scale has at most 22 bits),
 * so that is sum · d rounded once, as a conversion and a product are: tiles of few rows take those, for the constants
 * of a column are not worth making there. No sum of 32 products reaches 2^22. */
#define FAR 12582912.0f
#define FAR_BITS 0x4b400000

TEG_INLINE vf scaled(const bool far, vi sum, vf d, vf back)
{
    if (far)
        return v_fma((vf)sum, d, back);
    return from_integers(sum) * d;
}

/* sums[m][32], columns c … c + 2 VL - 1, += products over n groups. `mr` and the flags are constants. */
TEG_INLINE void gemm_tile(const size_t mr, const bool wide, const bool halves, const bool minimums,
                          const struct gemm_unit *u, size_t n, const struct gemm_rows *rows, size_t c, float *sums)
{
    const bool far = V_FUSED && mr > 2;
    vf acc[GEMM_MR][NV];
#pragma GCC unroll 8
    for (size_t m = 0; m < mr; m++)
        for (size_t j = 0; j < NV; j++)
            acc[m][j] = rows->fresh ? v_set(0) : f_load(sums + m * COLUMNS + c + j * VL);
    for (size_t g = 0; g < n; g++, u++) {
        for (size_t part = 0; part < (halves ? 2 : 1); part++) {
            const struct gemm_part *const p = &u->part[part];
            vi s[GEMM_MR][NV];
            const vi start = (vi){0} + (far ? FAR_BITS : 0);
#pragma GCC unroll 8
            for (size_t m = 0; m < mr; m++) {
                const vi a = pair_of(group_of(rows, m, g), halves, part);
                s[m][0] = v_dot_pair(start, (vi)f_load((const float *)(const void *)(p->pair + c)), a);
                s[m][1] = v_dot_pair(start, (vi)f_load((const float *)(const void *)(p->pair + c + VL)), a);
            }
            const size_t quads = halves ? 4 : 8;
#pragma GCC unroll 8
            for (size_t quad = part * quads; quad < (part + 1) * quads; quad++) {
                const vi w0 = (vi)q_load(u->codes[quad] + 4 * c), w1 = (vi)q_load(u->codes[quad] + 4 * (c + VL));
#pragma GCC unroll 8
                for (size_t m = 0; m < mr; m++) {
                    const vi a = v_copy(group_of(rows, m, g)->u + 4 * quad);
                    s[m][0] = wide ? v_dot(s[m][0], w0, a) : v_dot7(s[m][0], w0, a);
                    s[m][1] = wide ? v_dot(s[m][1], w1, a) : v_dot7(s[m][1], w1, a);
                }
            }
            const vf d0 = f_load(p->scale + c), d1 = f_load(p->scale + c + VL);
            const vf back0 = d0 * -FAR, back1 = d1 * -FAR;
#pragma GCC unroll 8
            for (size_t m = 0; m < mr; m++) {
                const vf scale = v_set(group_of(rows, m, g)->scale);
                acc[m][0] = v_fma(scaled(far, s[m][0], d0, back0), scale, acc[m][0]);
                acc[m][1] = v_fma(scaled(far, s[m][1], d1, back1), scale, acc[m][1]);
            }
            if (!minimums)
                continue;
            const vf m0 = f_load(p->minimum + c), m1 = f_load(p->minimum + c + VL);
#pragma GCC unroll 8
            for (size_t m = 0; m < mr; m++) {
                const struct gemm_group *const x = group_of(rows, m, g);
                vf sum = v_set(x->sum);
                if (halves) /* -s·(low half of the negated sum) */
                    sum = from_integers(-(pair_of(x, halves, part) >> 16)) * v_set(x->scale);
                acc[m][0] = v_fma(m0, sum, acc[m][0]);
                acc[m][1] = v_fma(m1, sum, acc[m][1]);
            }
        }
    }
#pragma GCC unroll 8
    for (size_t m = 0; m < mr; m++)
        for (size_t j = 0; j < NV; j++)
            f_store(sums + m * COLUMNS + c + j * VL, acc[m][j]);
}

/* A tile of few rows waits for its own sums: the last rows go half and half rather than six and two. */
TEG_INLINE size_t tile_rows(size_t left)
{
    if (left <= GEMM_MR)
        return left;
    return left < GEMM_MR + GEMM_MR / 2 ? (left + 1) / 2 : GEMM_MR;
}

/* All rows of a block over the units, for one kind of group. */
TEG_INLINE void gemm_rows_over(const bool wide, const bool halves, const bool minimums, const struct gemm_unit *u,
                               size_t n, struct gemm_rows rows, size_t n_rows, float *sums)
{
    size_t mr;
    for (size_t left = n_rows; left > 0; left -= mr, sums += mr * COLUMNS) {
        mr = tile_rows(left);
        for (size_t i = 0; i < rows.next_lines; i++, rows.next += GEMM_LINE)
            __builtin_prefetch(rows.next, 0, 2);
        for (size_t c = 0; c < COLUMNS; c += NV * VL) {
            switch (mr) {
            case 1:
                gemm_tile(1, wide, halves, minimums, u, n, &rows, c, sums);
                break;
            case 2:
                gemm_tile(2, wide, halves, minimums, u, n, &rows, c, sums);
                break;
#if GEMM_MR > 3
            case 3:
                gemm_tile(3, wide, halves, minimums, u, n, &rows, c, sums);
                break;
            case 4:
                gemm_tile(4, wide, halves, minimums, u, n, &rows, c, sums);
                break;
#endif
#if GEMM_MR > 5
            case 5:
                gemm_tile(5, wide, halves, minimums, u, n, &rows, c, sums);
                break;
#endif
            default:
                gemm_tile(GEMM_MR, wide, halves, minimums, u, n, &rows, c, sums);
                break;
            }
        }
        rows.x = (const struct gemm_group *)(const void *)((const char *)rows.x + mr * rows.stride_bytes);
    }
}

static void rows_plain(const struct gemm_unit *u, size_t n, struct gemm_rows rows, size_t n_rows, float *sums)
{
    gemm_rows_over(false, false, false, u, n, rows, n_rows, sums);
}

/* Codes up to 255. */
static void rows_wide(const struct gemm_unit *u, size_t n, struct gemm_rows rows, size_t n_rows, float *sums)
{
    gemm_rows_over(true, false, false, u, n, rows, n_rows, sums);
}

static void rows_minimums(const struct gemm_unit *u, size_t n, struct gemm_rows rows, size_t n_rows, float *sums)
{
    gemm_rows_over(false, false, true, u, n, rows, n_rows, sums);
}

static void rows_halves(const struct gemm_unit *u, size_t n, struct gemm_rows rows, size_t n_rows, float *sums)
{
    gemm_rows_over(false, true, false, u, n, rows, n_rows, sums);
}

static void rows_halves_minimums(const struct gemm_unit *u, size_t n, struct gemm_rows rows, size_t n_rows, float *sums)
{
    gemm_rows_over(false, true, true, u, n, rows, n_rows, sums);
}

struct gemm_kind {
    void (*unpack)(const struct teg_qgemm_form *form, size_t pass, const uint8_t *panel, size_t g0, size_t n,
                   struct gemm_unit *u);
    void (*rows)(const struct gemm_unit *u, size_t n, struct gemm_rows rows, size_t n_rows, float *sums);
    size_t passes; /* over all of k, one after the other */
};

static const struct gemm_kind kinds[TEG_DTYPE_COUNT] = {
#define ROWS(header, codes)                                                                                            \
    (HALVES(header)     ? (MINIMUMS(header) ? rows_halves_minimums : rows_halves)                                      \
     : MINIMUMS(header) ? rows_minimums                                                                                \
     : WIDE(codes)      ? rows_wide                                                                                    \
                        : rows_plain)
#define X(dtype, header, codes, groups, zero) [TEG_DTYPE_##dtype] = {unpack_##dtype, ROWS(header, codes), 1},
    GEMM_TYPES(X)
#undef X
};

static const struct gemm_kind form_kinds[TEG_QGEMM_KIND_COUNT] = {
#define X(kind, codes)                                                                                                 \
    [TEG_QGEMM_##kind] = {unpack_##kind,                                                                               \
                          TEG_QGEMM_##kind == TEG_QGEMM_MINIMUM_4 ? rows_minimums                                      \
                          : WIDE(codes)                           ? rows_wide                                          \
                                                                  : rows_plain,                                                                  \
                          1},
    GEMM_AFFINE(X)
#undef X
#define X(kind, codes, tables) [TEG_QGEMM_##kind] = {unpack_##kind, rows_wide, 2},
        GEMM_PALETTES(X)
#undef X
};

/* ---- activations ---- */

#define GEMM_SMALLEST 0x1p-110f

/* Not zero where any of the n floats is not finite; n is a multiple of a group. */
static float probe_of(const float *x, size_t n)
{
    vf probe[2] = {{0}};
    for (size_t i = 0; i < n; i += 2 * VL)
        for (size_t j = 0; j < 2; j++)
            probe[j] += f_load(x + i + j * VL) * 0.0f;
    return v_sum(probe[0] + probe[1]);
}

/* Nearest integer, ties to even, of |v| < 2^22. */
TEG_INLINE vf nearest(vf v)
{
    return (v + 12582912.0f) - 12582912.0f;
}

TEG_INLINE vf clamp_byte(vf v)
{
    const vf low = v_set(-128), high = v_set(127);
    return v_min(v_max(v, low), high);
}

#ifndef v_codes
/* dst[VL] = nearest(v) + zero in -128 … 127; returns their sum. */
TEG_INLINE int32_t v_codes(int8_t *dst, vf v, float zero)
{
    const vf u = clamp_byte(nearest(v) + v_set(zero));
    v_store_s8(dst, __builtin_convertvector(u, vi));
    return (int32_t)v_sum(u); /* exact in any order */
}
#endif

/* The codes of one group of finite values; what they leave over goes to rest[32] where that is not NULL (a constant).
 */
TEG_INLINE void put_codes(const float *x, struct gemm_group *dst, float step, float inverse, float zero, float *rest)
{
    if (!(step >= GEMM_SMALLEST)) {
        memset(dst, 0, sizeof *dst);
        if (rest)
            memcpy(rest, x, TEG_QGEMM_GROUP * sizeof *x);
        return;
    }
    int32_t sums[2] = {0}; /* of u, in halves */
    for (size_t i = 0; i < TEG_QGEMM_GROUP; i += VL) {
        sums[i / 16] += v_codes(dst->u + i, f_load(x + i) * inverse, zero);
        if (rest) {
            const vf u = from_signed((const uint8_t *)dst->u + i);
            f_store(rest + i, f_load(x + i) - (u - zero) * step);
        }
    }
    const int32_t z = (int32_t)zero, half = sums[0] - 16 * z, all = half + sums[1] - 16 * z;
    dst->scale = step;
    dst->sum = step * (float)all;
    dst->pair = ((uint32_t)-z & 0xffff) | (uint32_t)-all << 16;
    dst->pair_low = ((uint32_t)-z & 0xffff) | (uint32_t)-half << 16;
}

TEG_INLINE vf zeros_of(vf below, vf inverse)
{
    return clamp_byte(nearest(below * inverse - 128));
}

TEG_INLINE void quantize_group(const float *x, struct gemm_group *dst, float *rest)
{
    vf least = {0}, greatest = {0};
    for (size_t i = 0; i < TEG_QGEMM_GROUP; i += VL) {
        least = v_max(-f_load(x + i), least);
        greatest = v_max(f_load(x + i), greatest);
    }
    const float below = v_hmax(least), above = v_hmax(greatest);
    const float step = above * (1.0f / 255) + below * (1.0f / 255), inverse = 1.0f / step;
    put_codes(x, dst, step, inverse, zeros_of(v_set(below), v_set(inverse))[0], rest);
}

/* n groups of finite values that lie side by side, to places `stride_bytes` apart. */
TEG_INLINE void quantize_groups(const float *x, size_t n, char *dst, size_t stride_bytes)
{
#ifdef v_ranges
    /* One after the other, each would wait for the reduction and the division of its own. */
    for (; n >= VL; n -= VL) {
        vf below, above;
        float steps[VL], inverses[VL], zeros[VL];
        v_ranges(x, &below, &above);
        const vf step = above * (1.0f / 255) + below * (1.0f / 255), inverse = 1.0f / step;
        f_store(steps, step);
        f_store(inverses, inverse);
        f_store(zeros, zeros_of(below, inverse));
        for (size_t i = 0; i < VL; i++, x += TEG_QGEMM_GROUP, dst += stride_bytes)
            put_codes(x, (struct gemm_group *)(void *)dst, steps[i], inverses[i], zeros[i], NULL);
    }
#endif
    for (; n > 0; n--, x += TEG_QGEMM_GROUP, dst += stride_bytes)
        quantize_group(x, (struct gemm_group *)(void *)dst, NULL);
}

/* A row with NaN or infinity in it: every output becomes NaN. */
static void poison_row(struct gemm_group *dst, size_t n_groups)
{
    memset(dst, 0, n_groups * sizeof *dst);
    for (size_t g = 0; g < n_groups; g++)
        dst[g].scale = dst[g].sum = NAN;
}

static void gemm_quantize(const float *x, size_t x_stride, void *dst, size_t dst_stride_bytes, uint32_t terms,
                          size_t n_rows, size_t k)
{
    const size_t n_groups = k / TEG_QGEMM_GROUP;
    for (size_t r = 0; r < n_rows; r++, x += x_stride, dst = (char *)dst + dst_stride_bytes) {
        struct gemm_group *const first = dst;
        float rest[TEG_QGEMM_GROUP];
        if (probe_of(x, k) != 0)
            poison_row(first, n_groups * terms);
        else if (terms == 1)
            quantize_groups(x, n_groups, (char *)first, sizeof *first);
        else
            for (size_t g = 0; g < n_groups; g++) {
                quantize_group(x + g * TEG_QGEMM_GROUP, &first[g], rest);
                quantize_group(rest, &first[n_groups + g], NULL);
            }
    }
}

/* ---- run ---- */

/* sums (and those of the second row) + bias + residual, in this order, for whole vectors and for single columns. */
static void gemm_store_row(const struct teg_qgemm_args *a, size_t at, size_t n, size_t columns, const float *sums)
{
    size_t c = 0;
    for (; c + VL <= columns; c += VL) {
        vf y = f_load(sums + c);
        if (a->terms == 2)
            y += f_load(sums + COLUMNS + c);
        if (a->bias)
            y += f_load(a->bias + n + c);
        if (a->residual)
            y += f_load(a->residual + at + c);
        f_store(a->y + at + c, y);
    }
    for (; c < columns; c++) {
        float y = sums[c];
        if (a->terms == 2)
            y += sums[COLUMNS + c];
        if (a->bias)
            y += a->bias[n + c];
        if (a->residual)
            y += a->residual[at + c];
        a->y[at + c] = y;
    }
}

/* Sums of n_tokens tokens (`terms` rows each) to columns n … n + columns - 1 of y. */
static void gemm_store(const struct teg_qgemm_args *a, size_t token, size_t n_tokens, size_t n, size_t columns,
                       const float *sums)
{
    for (size_t t = 0; t < n_tokens; t++, sums += a->terms * COLUMNS)
        gemm_store_row(a, (token + t) * a->y_stride + n, n, columns, sums);
}

/* What the loops over one product share. */
struct gemm_weight {
    const struct gemm_kind *kind;
    const struct teg_qgemm_form *form; /* NULL: a dtype */
    const uint8_t *panels;
    size_t panel_bytes, group_bytes; /* of a group: headers counted as if they were spread over them */
};
struct gemm_shape {
    struct gemm_weight w, gate;
    size_t n_groups;
    size_t row_stride; /* bytes from one quantized row to the next, within a run of tokens */
    size_t n_rows;     /* of the current run */
    struct gemm_unit *units;
    float *sums, *gate_sums;
};

static size_t gemm_columns(const struct teg_qgemm_args *a, size_t n)
{
    return a->n1 - n < COLUMNS ? a->n1 - n : COLUMNS;
}

/* act(gate) · up of a panel is one group of activations: quantized here, it is never written as floats. */
static void gemm_store_glu(const struct teg_qgemm_args *a, size_t token, size_t n_tokens, size_t n, float *gate,
                           const float *up)
{
    char *dst =
        (char *)a->y_groups + token * a->y_groups_stride_bytes + n / TEG_QGEMM_GROUP * sizeof(struct gemm_group);
    a->glu(gate, COLUMNS, up, COLUMNS, gate, COLUMNS, n_tokens, COLUMNS);
    if (probe_of(gate, n_tokens * COLUMNS) == 0) {
        quantize_groups(gate, n_tokens, dst, a->y_groups_stride_bytes);
        return;
    }
    for (size_t t = 0; t < n_tokens; t++, gate += COLUMNS, dst += a->y_groups_stride_bytes) {
        struct gemm_group *const group = (struct gemm_group *)(void *)dst;
        if (probe_of(gate, COLUMNS) != 0)
            poison_row(group, 1);
        else
            quantize_group(gate, group, NULL);
    }
}

/* n panels from column `column` on. */
static void gemm_finish(const struct teg_qgemm_args *a, const struct gemm_shape *s, size_t token, size_t tokens,
                        size_t column, size_t n)
{
    for (size_t i = 0; i < n; i++, column += COLUMNS) {
        const size_t at = i * s->n_rows * COLUMNS;
        if (a->glu)
            gemm_store_glu(a, token, tokens, column, s->gate_sums + at, s->sums + at);
        else
            gemm_store(a, token, tokens, column, gemm_columns(a, column), s->sums + at);
    }
}

static void gemm_step(const struct gemm_shape *s, const struct gemm_weight *w, size_t pass, size_t panel, const char *x,
                      size_t g, size_t most, float *sums)
{
    const size_t n = s->n_groups - g < most ? s->n_groups - g : most;
    const size_t bytes = w->group_bytes * most, tiles = (s->n_rows + GEMM_MR - 1) / GEMM_MR;
    const uint8_t *const panels = w->panels + panel * w->panel_bytes;
    const struct gemm_rows rows = {(const struct gemm_group *)(const void *)x + g, s->row_stride,
                                   panels + w->group_bytes * (g + most),
                                   tiles > 1 ? (bytes / GEMM_LINE + tiles - 1) / tiles : 0, pass == 0 && g == 0};
    w->kind->unpack(w->form, pass, panels, g, n, s->units);
    w->kind->rows(s->units, n, rows, s->n_rows, sums);
}

/* Many rows: one panel after the other, 16 groups at a time, or all where they are few more. */
static void gemm_many(const struct gemm_shape *s, const struct gemm_weight *w, size_t panel, const char *x, float *sums)
{
    const size_t most = s->n_groups <= GEMM_MOST_UNITS ? GEMM_MOST_UNITS : GEMM_UNITS;
    for (size_t pass = 0; pass < w->kind->passes; pass++)
        for (size_t g = 0; g < s->n_groups; g += most)
            gemm_step(s, w, pass, panel, x, g, most, sums);
}

/* Few rows: memory binds. Four panels go side by side, because four streams are read faster than one, a group at a
 * time, and what a panel needs three groups later is asked for before: its products are so few that memory would wait
 * for them otherwise. */
enum { GEMM_STREAMS = 4, GEMM_AHEAD = 3 };
static void gemm_few(const struct gemm_shape *s, const struct gemm_weight *w, size_t panel, size_t n, const char *x,
                     float *sums)
{
    const uint8_t *const ahead = w->panels + panel * w->panel_bytes + GEMM_AHEAD * w->group_bytes;
    for (size_t pass = 0; pass < w->kind->passes; pass++)
        for (size_t g = 0; g < s->n_groups; g++)
            for (size_t i = 0; i < n; i++) {
                const uint8_t *const next = ahead + i * w->panel_bytes + g * w->group_bytes;
                for (size_t at = 0; at < w->group_bytes; at += GEMM_LINE)
                    __builtin_prefetch(next + at);
                gemm_step(s, w, pass, panel + i, x, g, 1, sums + i * s->n_rows * COLUMNS);
            }
}

static void gemm_tokens(const struct teg_qgemm_args *a, const struct gemm_shape *s, size_t token, size_t tokens)
{
    const char *const x = (const char *)a->x + token * a->x_stride_bytes;
    const bool few = s->n_rows <= GEMM_MR;
    for (size_t n = a->n0; n < a->n1; n += (few ? (size_t)GEMM_STREAMS : 1) * COLUMNS) {
        const size_t left = (a->n1 - n + COLUMNS - 1) / COLUMNS, panel = n / COLUMNS;
        const size_t panels = !few ? 1 : left < GEMM_STREAMS ? left : GEMM_STREAMS;
        for (size_t i = 0; i < (a->glu ? 2 : 1); i++) {
            const struct gemm_weight *const w = i ? &s->gate : &s->w;
            float *const sums = i ? s->gate_sums : s->sums;
            if (few)
                gemm_few(s, w, panel, panels, x, sums);
            else
                gemm_many(s, w, panel, x, sums);
        }
        gemm_finish(a, s, token, tokens, n, panels);
    }
}

static struct gemm_weight gemm_weight_of(const void *panels, enum teg_dtype dtype, const struct teg_qgemm_form *form,
                                         size_t k)
{
    const size_t bytes = form ? teg_qgemm_form_bytes(form, COLUMNS, k) : teg_qgemm_packed_bytes(dtype, COLUMNS, k);
    const bool rounded = !form && !kinds[dtype].unpack; /* floats that were packed as Q8_0 */
    return (struct gemm_weight){.kind = form ? &form_kinds[form->kind] : &kinds[rounded ? TEG_DTYPE_Q8_0 : dtype],
                                .form = form,
                                .panels = panels,
                                .panel_bytes = bytes,
                                .group_bytes = bytes / (k / TEG_QGEMM_GROUP)};
}

static void gemm_run(const struct teg_qgemm_args *a)
{
    const size_t n_groups = a->k / TEG_QGEMM_GROUP, row_bytes = n_groups * sizeof(struct gemm_group);
    float *const sums = a->scratch + GEMM_MOST_UNITS * sizeof(struct gemm_unit) / sizeof(float);
    struct gemm_shape s = {.w = gemm_weight_of(a->w, a->w_dtype, a->w_form, a->k),
                           .n_groups = n_groups,
                           .row_stride = a->terms == 1 ? a->x_stride_bytes : row_bytes,
                           .units = (struct gemm_unit *)(void *)a->scratch,
                           .sums = sums,
                           .gate_sums = sums + GEMM_ROWS * COLUMNS};
    if (a->glu)
        s.gate = gemm_weight_of(a->gate, a->gate_dtype, a->gate_form, a->k);
    /* The two rows of a token lie side by side; so do tokens, unless something else is between them. */
    const size_t run = a->terms == 1 || a->x_stride_bytes == a->terms * row_bytes ? GEMM_ROWS / a->terms : 1;
    for (size_t t = 0; t < a->n_tokens; t += run) {
        const size_t tokens = a->n_tokens - t < run ? a->n_tokens - t : run;
        s.n_rows = tokens * a->terms;
        gemm_tokens(a, &s, t, tokens);
    }
}

const struct teg_qgemm GEMM_RECORD = {.name = GEMM_NAME, .isa = GEMM_ISA, .quantize = gemm_quantize, .run = gemm_run};
