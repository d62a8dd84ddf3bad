/* kernel/qgemm_pack.c: weights from the rows of a file into panels (qgemm_layout.h).
 *
 * Two steps for each block: its codes become one byte each, in order of k; its scales go into the header as they are
 * stored. Then a table says how bytes are gathered into planes. Nothing is rounded, so packed weights mean exactly what
 * dtype/ decodes; only rows of floats, for whom it asks, are made blocks of Q8_0 first. One portable implementation:
 * packing is done once a model and is bound by memory, not by arithmetic. Columns past N are zero codes under zero
 * scales; their sums are computed and not stored. */
#include <math.h>
#include <string.h>

#include "kernel/qgemm_layout.h"

struct gemm_type {
    enum gemm_header header;
    enum gemm_codes codes;
    uint32_t groups; /* of 32, in a block */
};

static const struct gemm_type types[TEG_DTYPE_COUNT] = {
#define X(dtype, header, codes, groups, zero) [TEG_DTYPE_##dtype] = {header, codes, groups},
    GEMM_TYPES(X)
#undef X
};

/* What rows of this type are packed as. */
static enum teg_dtype packed_type(enum teg_dtype dtype)
{
    const bool is_float = dtype == TEG_DTYPE_F32 || dtype == TEG_DTYPE_F16 || dtype == TEG_DTYPE_BF16;
    return is_float ? TEG_DTYPE_Q8_0 : dtype;
}

static size_t block_bytes(const struct gemm_type *type)
{
    return HEADER_BYTES(type->header) + type->groups * CODE_BYTES(type->codes);
}

bool teg_qgemm_accepts(enum teg_dtype dtype, size_t k)
{
    const size_t groups = types[dtype].groups;
    return groups > 0 && k > 0 && k % (groups * TEG_QGEMM_GROUP) == 0;
}

bool teg_qgemm_rounds(enum teg_dtype dtype, size_t k)
{
    return packed_type(dtype) != dtype && k > 0 && k % TEG_QGEMM_GROUP == 0;
}

size_t teg_qgemm_packed_bytes(enum teg_dtype dtype, size_t n, size_t k)
{
    const struct gemm_type *const type = &types[packed_type(dtype)];
    const size_t panels = (n + COLUMNS - 1) / COLUMNS, blocks = k / TEG_QGEMM_GROUP / type->groups;
    return panels * blocks * block_bytes(type);
}

/* ---- codes of one block in order of k, a byte each ----
 *
 * Every loop has constant bounds and shifts, which is what a compiler makes vectors of: reading codes is most of the
 * time from start to first token. */

static void nibbles(const uint8_t *src, uint8_t *q)
{
    for (size_t i = 0; i < 16; i++) {
        q[i] = src[i] & 15;
        q[i + 16] = src[i] >> 4;
    }
}

/* Bit i of the word is the fifth bit of code i. */
static void add_fifth(const uint8_t *src, uint8_t *q)
{
    static const uint8_t masks[8] = {1, 2, 4, 8, 16, 32, 64, 128};
    for (size_t byte = 0; byte < 4; byte++)
        for (size_t i = 0; i < 8; i++)
            q[8 * byte + i] = (uint8_t)(q[8 * byte + i] | ((src[byte] & masks[i]) != 0) << 4);
}

static void codes_q4_0(const uint8_t *b, uint8_t *q)
{
    nibbles(b + 2, q);
}

static void codes_q4_1(const uint8_t *b, uint8_t *q)
{
    nibbles(b + 4, q);
}

static void codes_q5_0(const uint8_t *b, uint8_t *q)
{
    nibbles(b + 6, q);
    add_fifth(b + 2, q);
}

static void codes_q5_1(const uint8_t *b, uint8_t *q)
{
    nibbles(b + 8, q);
    add_fifth(b + 4, q);
}

static void codes_q8_0(const uint8_t *b, uint8_t *q)
{
    for (size_t i = 0; i < 32; i++)
        q[i] = b[2 + i] ^ 0x80;
}

static void codes_mxfp4(const uint8_t *b, uint8_t *q)
{
    nibbles(b + 1, q);
}

static void codes_iq4_xs(const uint8_t *b, uint8_t *q)
{
    for (size_t j = 0; j < 8; j++)
        nibbles(b + 8 + 16 * j, q + 32 * j);
}

/* Two runs of 32 in each 32 bytes. */
static void nibbles_k(const uint8_t *src, uint8_t *q)
{
    for (size_t j = 0; j < 4; j++, src += 32, q += 64)
        for (size_t i = 0; i < 32; i++) {
            q[i] = src[i] & 15;
            q[i + 32] = src[i] >> 4;
        }
}

/* Bit `shift` of 32 bytes to bit `to` of 32 codes; the same for the two bits from `shift` on. */
static inline void add_bit(const uint8_t *src, uint8_t *q, const int shift, const int to)
{
    for (size_t i = 0; i < 32; i++)
        q[i] = (uint8_t)(q[i] | (src[i] >> shift & 1) << to);
}

static inline void add_pair(const uint8_t *src, uint8_t *q, const int shift, const int to)
{
    for (size_t i = 0; i < 32; i++)
        q[i] = (uint8_t)(q[i] | (src[i] >> shift & 3) << to);
}

/* Bit j of each byte is of code 32 j + its place. */
static void add_bits_k(const uint8_t *src, uint8_t *q, const int to)
{
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++)
        add_bit(src, q + 32 * j, j, to);
}

static void codes_q4_k(const uint8_t *b, uint8_t *q)
{
    nibbles_k(b + 16, q);
}

static void codes_q5_k(const uint8_t *b, uint8_t *q)
{
    nibbles_k(b + 48, q);
    add_bits_k(b + 16, q, 4);
}

/* In each half of a block: four runs of 32, two in the low and two in the high nibbles of 64 bytes; the upper two bits
 * of all four in 32 bytes. */
static void codes_q6_k(const uint8_t *b, uint8_t *q)
{
    for (size_t half = 0; half < 2; half++, q += 128) {
        const uint8_t *const low = b + 64 * half, *const high = b + 128 + 32 * half;
        for (size_t i = 0; i < 64; i++) {
            q[i] = low[i] & 15;
            q[i + 64] = low[i] >> 4;
        }
#pragma GCC unroll 4
        for (int run = 0; run < 4; run++)
            add_pair(high, q + 32 * run, 2 * run, 4);
    }
}

/* Four runs of 32 in each 32 bytes. */
static void pairs_k(const uint8_t *src, uint8_t *q)
{
    memset(q, 0, 256);
    for (size_t half = 0; half < 2; half++, src += 32, q += 128)
#pragma GCC unroll 4
        for (int run = 0; run < 4; run++)
            add_pair(src, q + 32 * run, 2 * run, 0);
}

static void codes_q2_k(const uint8_t *b, uint8_t *q)
{
    pairs_k(b + 16, q);
}

static void codes_q3_k(const uint8_t *b, uint8_t *q)
{
    pairs_k(b + 32, q);
    add_bits_k(b, q, 2);
}

static void (*const read_codes[TEG_DTYPE_COUNT])(const uint8_t *block, uint8_t *q) = {
    [TEG_DTYPE_Q4_0] = codes_q4_0,   [TEG_DTYPE_Q4_1] = codes_q4_1,   [TEG_DTYPE_Q5_0] = codes_q5_0,
    [TEG_DTYPE_Q5_1] = codes_q5_1,   [TEG_DTYPE_Q8_0] = codes_q8_0,   [TEG_DTYPE_Q2_K] = codes_q2_k,
    [TEG_DTYPE_Q3_K] = codes_q3_k,   [TEG_DTYPE_Q4_K] = codes_q4_k,   [TEG_DTYPE_Q5_K] = codes_q5_k,
    [TEG_DTYPE_Q6_K] = codes_q6_k,   [TEG_DTYPE_IQ4_NL] = codes_q4_0, [TEG_DTYPE_IQ4_XS] = codes_iq4_xs,
    [TEG_DTYPE_MXFP4] = codes_mxfp4,
};

/* ---- headers: column c's share of a block's scales ---- */

static void put_half(uint8_t *header, size_t item, size_t c, const uint8_t *src)
{
    memcpy(header + item * 2 * COLUMNS + 2 * c, src, 2);
}

/* The eight 6-bit factors and the eight of the minimum in the 12 bytes of Q4_K and Q5_K. */
static void put_k(uint8_t *header, size_t c, const uint8_t *b)
{
    uint8_t *const factors = header + 4 * COLUMNS, *const minimums = factors + 8 * COLUMNS;
    const uint8_t *const s = b + 4;
    put_half(header, 0, c, b);
    put_half(header, 1, c, b + 2);
    for (size_t j = 0; j < 4; j++) {
        factors[j * COLUMNS + c] = s[j] & 63;
        minimums[j * COLUMNS + c] = s[j + 4] & 63;
        factors[(j + 4) * COLUMNS + c] = (uint8_t)((s[j + 8] & 15) | s[j] >> 6 << 4);
        minimums[(j + 4) * COLUMNS + c] = (uint8_t)(s[j + 8] >> 4 | s[j + 4] >> 6 << 4);
    }
}

static void put_q2_k(uint8_t *header, size_t c, const uint8_t *b)
{
    put_half(header, 0, c, b + 80);
    put_half(header, 1, c, b + 82);
    for (size_t j = 0; j < 16; j++)
        header[4 * COLUMNS + j * COLUMNS + c] = b[j];
}

static void put_q3_k(uint8_t *header, size_t c, const uint8_t *b)
{
    const uint8_t *const s = b + 96;
    put_half(header, 0, c, b + 108);
    for (size_t j = 0; j < 16; j++) {
        const int low = j < 8 ? s[j] & 15 : s[j - 8] >> 4, high = s[8 + j % 4] >> (j / 4 * 2) & 3;
        header[2 * COLUMNS + j * COLUMNS + c] = (uint8_t)((low | high << 4) - 32);
    }
}

static void put_q6_k(uint8_t *header, size_t c, const uint8_t *b)
{
    put_half(header, 0, c, b + 208);
    for (size_t j = 0; j < 16; j++)
        header[2 * COLUMNS + j * COLUMNS + c] = b[192 + j];
}

static void put_iq4_xs(uint8_t *header, size_t c, const uint8_t *b)
{
    const uint32_t upper = (uint32_t)b[2] | (uint32_t)b[3] << 8;
    put_half(header, 0, c, b);
    for (size_t j = 0; j < 8; j++) {
        const int low = b[4 + j / 2] >> (j % 2 * 4) & 15;
        header[2 * COLUMNS + j * COLUMNS + c] = (uint8_t)((low | (int)(upper >> (2 * j) & 3) << 4) - 32);
    }
}

static void put_d(uint8_t *header, size_t c, const uint8_t *b)
{
    put_half(header, 0, c, b);
}

static void put_dm(uint8_t *header, size_t c, const uint8_t *b)
{
    put_half(header, 0, c, b);
    put_half(header, 1, c, b + 2);
}

static void put_e(uint8_t *header, size_t c, const uint8_t *b)
{
    header[c] = b[0];
}

static void (*const put_header[TEG_DTYPE_COUNT])(uint8_t *header, size_t c, const uint8_t *block) = {
    [TEG_DTYPE_Q4_0] = put_d,    [TEG_DTYPE_Q4_1] = put_dm,  [TEG_DTYPE_Q5_0] = put_d,
    [TEG_DTYPE_Q5_1] = put_dm,   [TEG_DTYPE_Q8_0] = put_d,   [TEG_DTYPE_Q2_K] = put_q2_k,
    [TEG_DTYPE_Q3_K] = put_q3_k, [TEG_DTYPE_Q4_K] = put_k,   [TEG_DTYPE_Q5_K] = put_k,
    [TEG_DTYPE_Q6_K] = put_q6_k, [TEG_DTYPE_IQ4_NL] = put_d, [TEG_DTYPE_IQ4_XS] = put_iq4_xs,
    [TEG_DTYPE_MXFP4] = put_e,
};

/* ---- planes: codes of one column and group (32 k) to their places; every byte is written ---- */

static void place_nibbles(uint8_t *plane, size_t c, const uint8_t *q)
{
    for (size_t p = 0; p < 4; p++)
        for (size_t r = 0; r < 4; r++)
            plane[p * QUAD_BYTES + 4 * c + r] = (uint8_t)((q[8 * p + r] & 15) | (q[8 * p + 4 + r] & 15) << 4);
}

static void place_pairs(uint8_t *plane, size_t c, const uint8_t *q, int shift)
{
    for (size_t h = 0; h < 2; h++)
        for (size_t r = 0; r < 4; r++) {
            int byte = 0;
            for (size_t i = 0; i < 4; i++)
                byte |= (q[16 * h + 4 * i + r] >> shift & 3) << (2 * i);
            plane[h * QUAD_BYTES + 4 * c + r] = (uint8_t)byte;
        }
}

static void place_bits(uint8_t *plane, size_t c, const uint8_t *q, int shift)
{
    for (size_t r = 0; r < 4; r++) {
        int byte = 0;
        for (size_t i = 0; i < 8; i++)
            byte |= (q[4 * i + r] >> shift & 1) << i;
        plane[4 * c + r] = (uint8_t)byte;
    }
}

void teg_qgemm_place(enum gemm_codes codes, uint8_t *dst, size_t c, const uint8_t *q)
{
    switch (codes) {
    case CODES_8:
        for (size_t i = 0; i < 8; i++)
            memcpy(dst + i * QUAD_BYTES + 4 * c, q + 4 * i, 4);
        return;
    case CODES_1:
        place_bits(dst, c, q, 0);
        return;
    case CODES_2:
        place_pairs(dst, c, q, 0);
        return;
    case CODES_3:
        place_pairs(dst, c, q, 0);
        place_bits(dst + 2 * QUAD_BYTES, c, q, 2);
        return;
    case CODES_5:
        place_bits(dst + 4 * QUAD_BYTES, c, q, 4);
        break;
    case CODES_6:
        place_pairs(dst + 4 * QUAD_BYTES, c, q, 4);
        break;
    default:
        break;
    }
    place_nibbles(dst, c, q);
}

/* Floats of one row, a group at a time: the scale is rounded to f16 first, codes are those that suit it. */
static void round_row(enum teg_dtype dtype, const uint8_t *row, size_t k, size_t c, uint8_t *panel)
{
    const size_t bytes = block_bytes(&types[TEG_DTYPE_Q8_0]);
    const size_t source_bytes = TEG_QGEMM_GROUP * teg_dtype_info(dtype)->block_bytes;
    for (size_t i = 0; i < k; i += TEG_QGEMM_GROUP, row += source_bytes, panel += bytes) {
        float x[TEG_QGEMM_GROUP], largest = 0, probe = 0;
        uint8_t q[TEG_QGEMM_GROUP];
        teg_dtype_decode(dtype, row, x, TEG_QGEMM_GROUP);
        for (size_t j = 0; j < TEG_QGEMM_GROUP; j++) {
            largest = fabsf(x[j]) > largest ? fabsf(x[j]) : largest;
            probe += x[j] * 0;
        }
        const uint16_t half = teg_f32_to_f16(probe == 0 ? largest / 127 : NAN);
        const float step = teg_f16_to_f32(half), inverse = step > 0 && step - step == 0 ? 1 / step : 0;
        for (size_t j = 0; j < TEG_QGEMM_GROUP; j++) { /* to nearest, ties to even */
            const float y = (probe == 0 ? x[j] * inverse : 0) + 12582912.0f - 12582912.0f;
            q[j] = (uint8_t)(128 + (int)(y < -127 ? -127 : y > 127 ? 127 : y));
        }
        memcpy(panel + 2 * c, &half, sizeof half);
        teg_qgemm_place(CODES_8, panel + HEADER_BYTES(HEADER_D), c, q);
    }
}

/* Row by row within a panel: the file is read in order. */
static void pack_row(enum teg_dtype dtype, const uint8_t *row, size_t k, size_t c, uint8_t *panel)
{
    const struct gemm_type *const type = &types[dtype];
    const size_t source_bytes = teg_dtype_info(dtype)->block_bytes, bytes = block_bytes(type);
    uint8_t q[256];
    for (size_t i = 0; i < k; i += type->groups * TEG_QGEMM_GROUP, row += source_bytes, panel += bytes) {
        put_header[dtype](panel, c, row);
        read_codes[dtype](row, q);
        for (size_t g = 0; g < type->groups; g++)
            teg_qgemm_place(type->codes, panel + HEADER_BYTES(type->header) + g * CODE_BYTES(type->codes), c,
                            q + g * TEG_QGEMM_GROUP);
    }
}

void teg_qgemm_pack(enum teg_dtype dtype, const void *w, size_t w_row_bytes, size_t n0, size_t n1, size_t k, void *dst)
{
    const size_t panel_bytes = teg_qgemm_packed_bytes(dtype, COLUMNS, k);
    for (size_t n = n0; n < n1; n += COLUMNS) {
        uint8_t *const panel = (uint8_t *)dst + n / COLUMNS * panel_bytes;
        const size_t columns = n1 - n < COLUMNS ? n1 - n : COLUMNS;
        if (columns < COLUMNS)
            memset(panel, 0, panel_bytes);
        for (size_t c = 0; c < columns; c++)
            (packed_type(dtype) == dtype ? pack_row : round_row)(dtype, (const uint8_t *)w + (n + c) * w_row_bytes, k,
                                                                 c, panel);
    }
}
