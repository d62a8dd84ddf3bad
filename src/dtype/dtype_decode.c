/* dtype/dtype_decode.c: decoding of every element type and block encoding, in its portable definition.
 *
 * One function per type, each decoding one block; the table at the end runs it over a row. Multi-byte fields are
 * little-endian and read byte by byte: src needs no alignment.
 *
 * Exactness: scales are f16 (11 significant bits), sub-scales at most 7 bits, codes at most 7 bits, so d*sc*q and
 * dmin*m are exact in float and each value is rounded at most once, by the final addition of a minimum. Therefore a
 * vector kernel may associate or fuse as it likes and must still agree bit for bit; it must only keep the sign of a
 * zero, i.e. subtract the zero point from the code, not from the product.
 *
 * Below, `d` scales, `m` minimum, `q` codes; byte layouts are comments of the form [offset] field. */
#include "dtype/dtype.h"

#include <string.h>

static uint32_t load_u16(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t load_u32(const uint8_t *p)
{
    return load_u16(p) | load_u16(p + 2) << 16;
}

static uint64_t load_u64(const uint8_t *p)
{
    return (uint64_t)load_u32(p) | (uint64_t)load_u32(p + 4) << 32;
}

static float load_f16(const uint8_t *p)
{
    return teg_f16_to_f32((uint16_t)load_u16(p));
}

static float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* ---- plain types ---- */

static void decode_f32(const uint8_t *b, float *y)
{
    *y = float_of_bits(load_u32(b));
}

static void decode_f16(const uint8_t *b, float *y)
{
    *y = load_f16(b);
}

static void decode_bf16(const uint8_t *b, float *y)
{
    *y = teg_bf16_to_f32((uint16_t)load_u16(b));
}

static void decode_f64(const uint8_t *b, float *y)
{
    const uint64_t bits = load_u64(b);
    double value;
    memcpy(&value, &bits, sizeof value);
    *y = (float)value;
}

static void decode_i8(const uint8_t *b, float *y)
{
    *y = (float)(int8_t)b[0];
}

static void decode_u8(const uint8_t *b, float *y)
{
    *y = (float)b[0];
}

static void decode_i16(const uint8_t *b, float *y)
{
    *y = (float)(int16_t)load_u16(b);
}

static void decode_i32(const uint8_t *b, float *y)
{
    *y = (float)(int32_t)load_u32(b);
}

static void decode_i64(const uint8_t *b, float *y)
{
    *y = (float)(int64_t)load_u64(b);
}

/* ---- blocks of 32: nibble i of 0 … 15 is the low half of byte i, nibble i + 16 its high half ---- */

/* [0] d f16 [2] q 16 bytes; d * (q - 8) */
static void decode_q4_0(const uint8_t *b, float *y)
{
    const float d = load_f16(b);
    for (size_t i = 0; i < 16; i++) {
        y[i] = d * (float)((b[2 + i] & 15) - 8);
        y[i + 16] = d * (float)((b[2 + i] >> 4) - 8);
    }
}

/* [0] d f16 [2] m f16 [4] q 16 bytes; d * q + m */
static void decode_q4_1(const uint8_t *b, float *y)
{
    const float d = load_f16(b), m = load_f16(b + 2);
    for (size_t i = 0; i < 16; i++) {
        y[i] = d * (float)(b[4 + i] & 15) + m;
        y[i + 16] = d * (float)(b[4 + i] >> 4) + m;
    }
}

/* Code of five bits: a nibble of q and bit i of the 32-bit word of fifth bits. */
static int five_bits(const uint8_t *q, uint32_t fifth, size_t i)
{
    const int low = i < 16 ? q[i] & 15 : q[i - 16] >> 4;
    return low | (int)((fifth >> i) & 1) << 4;
}

/* [0] d f16 [2] fifth bits u32 [6] q 16 bytes; d * (q - 16) */
static void decode_q5_0(const uint8_t *b, float *y)
{
    const float d = load_f16(b);
    const uint32_t fifth = load_u32(b + 2);
    for (size_t i = 0; i < 32; i++)
        y[i] = d * (float)(five_bits(b + 6, fifth, i) - 16);
}

/* [0] d f16 [2] m f16 [4] fifth bits u32 [8] q 16 bytes; d * q + m */
static void decode_q5_1(const uint8_t *b, float *y)
{
    const float d = load_f16(b), m = load_f16(b + 2);
    const uint32_t fifth = load_u32(b + 4);
    for (size_t i = 0; i < 32; i++)
        y[i] = d * (float)five_bits(b + 8, fifth, i) + m;
}

/* [0] d f16 [2] q 32 signed bytes; d * q */
static void decode_q8_0(const uint8_t *b, float *y)
{
    const float d = load_f16(b);
    for (size_t i = 0; i < 32; i++)
        y[i] = d * (float)(int8_t)b[2 + i];
}

static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/* [0] d f16 [2] q 16 bytes; d * iq4_values[q] */
static void decode_iq4_nl(const uint8_t *b, float *y)
{
    const float d = load_f16(b);
    for (size_t i = 0; i < 16; i++) {
        y[i] = d * (float)iq4_values[b[2 + i] & 15];
        y[i + 16] = d * (float)iq4_values[b[2 + i] >> 4];
    }
}

/* Twice the values of a 4-bit float (1 sign, 2 exponent, 1 mantissa bit); code 8 is a plain zero. */
static const int8_t fp4_doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* [0] e u8 [1] q 16 bytes; 2^(e - 127) * fp4(q), computed as 2^(e - 128) * fp4_doubled[q] */
static void decode_mxfp4(const uint8_t *b, float *y)
{
    const uint32_t e = b[0];
    const float d = float_of_bits(e < 2 ? 0x200000u << e : (e - 1) << 23); /* subnormal at e = 0 and 1 */
    for (size_t i = 0; i < 16; i++) {
        y[i] = d * (float)fp4_doubled[b[1 + i] & 15];
        y[i + 16] = d * (float)fp4_doubled[b[1 + i] >> 4];
    }
}

/* ---- blocks of 256 ---- */

/* [0] scale (low nibble) and minimum (high) of 16 groups of 16 [16] q 64 bytes [80] d f16 [82] dmin f16.
 * 2-bit codes: in each half of 128 elements, 32 bytes hold four runs of 32 at bits 0, 2, 4, 6. */
static void decode_q2_k(const uint8_t *b, float *y)
{
    const float d = load_f16(b + 80), dmin = load_f16(b + 82);
    for (size_t i = 0; i < 256; i++) {
        const uint8_t scale = b[i / 16];
        const int q = b[16 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
        y[i] = d * (float)(scale & 15) * (float)q - dmin * (float)(scale >> 4);
    }
}

/* [0] third bits 32 bytes [32] q 64 bytes as Q2_K [96] scales 12 bytes [108] d f16.
 * Bit i/32 of third[i % 32], when clear, takes 4 from the code. Scale j of 16 has 6 bits, less 32: low nibbles from
 * bytes 0-7 (low halves are j < 8), upper two bits from bytes 8-11 at bit 2·(j / 4). */
static void decode_q3_k(const uint8_t *b, float *y)
{
    const float d = load_f16(b + 108);
    const uint8_t *const s = b + 96;
    for (size_t i = 0; i < 256; i++) {
        const size_t j = i / 16;
        const int low = j < 8 ? s[j] & 15 : s[j - 8] >> 4;
        const int scale = (low | (s[8 + j % 4] >> (j / 4 * 2) & 3) << 4) - 32;
        const int q = b[32 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
        const int third = b[i % 32] >> (i / 32) & 1;
        y[i] = d * (float)scale * (float)(q - (third ? 0 : 4));
    }
}

/* Scale and minimum of group j (0 … 7), six bits each in 12 bytes: groups 0-3 lie in the low six bits of bytes j and
 * j + 4; groups 4-7 have low nibbles in byte j + 4 and their upper two bits on top of bytes j - 4 and j. */
static void scale_min_6bit(const uint8_t *s, size_t j, int *scale, int *min)
{
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
        *min = (s[j + 4] >> 4) | (s[j] >> 6) << 4;
    }
}

/* [0] d f16 [2] dmin f16 [4] scales and minimums of 8 groups of 32, 12 bytes [16] q 128 bytes: 32 bytes hold group 2j
 * in their low nibbles and 2j + 1 in the high ones. */
static void decode_q4_k(const uint8_t *b, float *y)
{
    const float d = load_f16(b), dmin = load_f16(b + 2);
    for (size_t j = 0; j < 8; j++) {
        int scale, min;
        scale_min_6bit(b + 4, j, &scale, &min);
        const uint8_t *const q = b + 16 + j / 2 * 32;
        for (size_t i = 0; i < 32; i++)
            y[j * 32 + i] = d * (float)scale * (float)(q[i] >> (j % 2 * 4) & 15) - dmin * (float)min;
    }
}

/* As Q4_K with [16] fifth bits 32 bytes (bit j of byte i: group j, element i) before [48] q 128 bytes. */
static void decode_q5_k(const uint8_t *b, float *y)
{
    const float d = load_f16(b), dmin = load_f16(b + 2);
    for (size_t j = 0; j < 8; j++) {
        int scale, min;
        scale_min_6bit(b + 4, j, &scale, &min);
        const uint8_t *const q = b + 48 + j / 2 * 32;
        for (size_t i = 0; i < 32; i++) {
            const int code = (q[i] >> (j % 2 * 4) & 15) | (b[16 + i] >> j & 1) << 4;
            y[j * 32 + i] = d * (float)scale * (float)code - dmin * (float)min;
        }
    }
}

/* [0] low nibbles 128 bytes [128] upper two bits 64 bytes [192] signed scales of 16 groups of 16 [208] d f16.
 * Each half of 128 elements has 64 bytes of nibbles (two runs of 32 in the low halves, then two in the high) and 32
 * bytes whose bits 0, 2, 4, 6 complete the four runs. */
static void decode_q6_k(const uint8_t *b, float *y)
{
    const float d = load_f16(b + 208);
    for (size_t i = 0; i < 256; i++) {
        const size_t half = i / 128, run = i % 128 / 32;
        const int low = b[half * 64 + run % 2 * 32 + i % 32] >> (run / 2 * 4) & 15;
        const int high = b[128 + half * 32 + i % 32] >> (run * 2) & 3;
        const float scale = d * (float)(int8_t)b[192 + i / 16];
        y[i] = scale * (float)((low | high << 4) - 32);
    }
}

/* [0] d f16 [2] upper two bits of 8 scales, u16 [4] low nibbles of the scales, 4 bytes [8] q 128 bytes.
 * Groups of 32 as IQ4_NL blocks of 16 bytes, scale less 32. */
static void decode_iq4_xs(const uint8_t *b, float *y)
{
    const float d = load_f16(b);
    const uint32_t high = load_u16(b + 2);
    for (size_t j = 0; j < 8; j++) {
        const int low = b[4 + j / 2] >> (j % 2 * 4) & 15;
        const float scale = d * (float)((low | (int)(high >> (2 * j) & 3) << 4) - 32);
        const uint8_t *const q = b + 8 + j * 16;
        for (size_t i = 0; i < 16; i++) {
            y[j * 32 + i] = scale * (float)iq4_values[q[i] & 15];
            y[j * 32 + i + 16] = scale * (float)iq4_values[q[i] >> 4];
        }
    }
}

static void (*const decoders[TEG_DTYPE_COUNT])(const uint8_t *block, float *values) = {
    [TEG_DTYPE_F32] = decode_f32,       [TEG_DTYPE_F16] = decode_f16,       [TEG_DTYPE_BF16] = decode_bf16,
    [TEG_DTYPE_F64] = decode_f64,       [TEG_DTYPE_I8] = decode_i8,         [TEG_DTYPE_I16] = decode_i16,
    [TEG_DTYPE_I32] = decode_i32,       [TEG_DTYPE_I64] = decode_i64,       [TEG_DTYPE_Q4_0] = decode_q4_0,
    [TEG_DTYPE_Q4_1] = decode_q4_1,     [TEG_DTYPE_Q5_0] = decode_q5_0,     [TEG_DTYPE_Q5_1] = decode_q5_1,
    [TEG_DTYPE_Q8_0] = decode_q8_0,     [TEG_DTYPE_Q2_K] = decode_q2_k,     [TEG_DTYPE_Q3_K] = decode_q3_k,
    [TEG_DTYPE_Q4_K] = decode_q4_k,     [TEG_DTYPE_Q5_K] = decode_q5_k,     [TEG_DTYPE_Q6_K] = decode_q6_k,
    [TEG_DTYPE_IQ4_NL] = decode_iq4_nl, [TEG_DTYPE_IQ4_XS] = decode_iq4_xs, [TEG_DTYPE_MXFP4] = decode_mxfp4,
    [TEG_DTYPE_U8] = decode_u8,
};

void teg_dtype_decode(enum teg_dtype dtype, const void *src, float *dst, size_t n_elements)
{
    const struct teg_dtype_info *const info = teg_dtype_info(dtype);
    const uint8_t *block = src;
    for (size_t i = 0; i < n_elements; i += info->block_elements, block += info->block_bytes)
        decoders[dtype](block, dst + i);
}
