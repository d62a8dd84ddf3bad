/* kernel/ref/decode_tmpl.h: decode_row for the vector type of the file that includes it (parameters: vec_base.h).
 *
 * Codes are unpacked sixteen at a time in byte lanes, zero point subtracted, and widened by v_put16, which adds the
 * minimum (-0 where there is none: adding it changes nothing, not even the sign of a zero). The layouts stand in
 * dtype/dtype_decode.c; every product is exact there, so FMA and any association give the same bits. */
#include "kernel/ref/vec_types.h"

#define NO_MINIMUM (-0.0f)

static inline vb load_bytes(const uint8_t *p)
{
    vb v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Bit i of `word` to byte i (0 or 255), for bits 0 … 15. */
static inline vb spread_bits(uint32_t word)
{
    const uint64_t every = 0x0101010101010101u;
    const uint64_t halves[2] = {(word & 255) * every, (word >> 8 & 255) * every};
    const vb bits = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    vb v;
    memcpy(&v, halves, sizeof v);
    return (vb)((v & bits) == bits);
}

static inline uint32_t load_word(const uint8_t *p)
{
    uint32_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

static inline void decode_q4_0(const uint8_t *b, float *y)
{
    const float d = v_f16(b);
    const vb q = load_bytes(b + 2);
    v_put16(y, (q & 15) - 8, d, NO_MINIMUM);
    v_put16(y + 16, (v_shift(q, 4) & 15) - 8, d, NO_MINIMUM);
}

static inline void decode_q4_1(const uint8_t *b, float *y)
{
    const float d = v_f16(b), m = v_f16(b + 2);
    const vb q = load_bytes(b + 4);
    v_put16(y, q & 15, d, m);
    v_put16(y + 16, v_shift(q, 4) & 15, d, m);
}

static inline void decode_q5_0(const uint8_t *b, float *y)
{
    const float d = v_f16(b);
    const uint32_t fifth = load_word(b + 2);
    const vb q = load_bytes(b + 6);
    v_put16(y, ((q & 15) | (spread_bits(fifth) & 16)) - 16, d, NO_MINIMUM);
    v_put16(y + 16, ((v_shift(q, 4) & 15) | (spread_bits(fifth >> 16) & 16)) - 16, d, NO_MINIMUM);
}

static inline void decode_q5_1(const uint8_t *b, float *y)
{
    const float d = v_f16(b), m = v_f16(b + 2);
    const uint32_t fifth = load_word(b + 4);
    const vb q = load_bytes(b + 8);
    v_put16(y, (q & 15) | (spread_bits(fifth) & 16), d, m);
    v_put16(y + 16, (v_shift(q, 4) & 15) | (spread_bits(fifth >> 16) & 16), d, m);
}

static inline void decode_q8_0(const uint8_t *b, float *y)
{
    const float d = v_f16(b);
    v_put16(y, load_bytes(b + 2), d, NO_MINIMUM);
    v_put16(y + 16, load_bytes(b + 18), d, NO_MINIMUM);
}

static inline void put_lut32(float *y, const uint8_t *q, const int8_t *values, float d)
{
    const vb table = load_bytes((const uint8_t *)values), codes = load_bytes(q);
    v_put16(y, v_lut16(table, codes), d, NO_MINIMUM);
    v_put16(y + 16, v_lut16(table, v_shift(codes, 4)), d, NO_MINIMUM);
}

static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
static const int8_t fp4_doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static inline void decode_iq4_nl(const uint8_t *b, float *y)
{
    put_lut32(y, b + 2, iq4_values, v_f16(b));
}

static inline void decode_mxfp4(const uint8_t *b, float *y)
{
    const uint32_t e = b[0], bits = e < 2 ? 0x200000u << e : (e - 1) << 23;
    float d;
    memcpy(&d, &bits, sizeof d);
    put_lut32(y, b + 1, fp4_doubled, d);
}

static inline void decode_q2_k(const uint8_t *b, float *y)
{
    const float d = v_f16(b + 80), dmin = v_f16(b + 82);
    const vb nibbles = load_bytes(b);
    float scale[16], minimum[16];
    v_put16(scale, nibbles & 15, d, NO_MINIMUM);
    v_put16(minimum, v_shift(nibbles, 4) & 15, -dmin, NO_MINIMUM);
    for (size_t half = 0; half < 2; half++) {
        for (size_t piece = 0; piece < 2; piece++) {
            const vb q = load_bytes(b + 16 + half * 32 + piece * 16);
            for (size_t run = 0; run < 4; run++) {
                const size_t j = half * 8 + run * 2 + piece;
                v_put16(y + 16 * j, v_shift(q, (int)run * 2) & 3, scale[j], minimum[j]);
            }
        }
    }
}

/* Sixteen 6-bit scales, less 32, from their 12 bytes: nibbles, and pairs of upper bits. */
static inline vb q3_k_scales(const uint8_t *s)
{
    uint64_t low;
    memcpy(&low, s, sizeof low);
    const uint64_t upper = load_word(s + 8), nibbles = 0x0f0f0f0f0f0f0f0fu, pairs = 0x30303030u;
    const uint64_t first = (upper << 4 & pairs) | (upper << 2 & pairs) << 32;
    const uint64_t second = (upper & pairs) | (upper >> 2 & pairs) << 32;
    const uint64_t both[2] = {(low & nibbles) | first, (low >> 4 & nibbles) | second};
    vb v;
    memcpy(&v, both, sizeof v);
    return v - 32;
}

static inline void decode_q3_k(const uint8_t *b, float *y)
{
    float scale[16];
    v_put16(scale, q3_k_scales(b + 96), v_f16(b + 108), NO_MINIMUM);
    for (size_t piece = 0; piece < 2; piece++) {
        const vb third = load_bytes(b + piece * 16);
        for (size_t half = 0; half < 2; half++) {
            const vb q = load_bytes(b + 32 + half * 32 + piece * 16);
            for (size_t run = 0; run < 4; run++) {
                const size_t j = half * 8 + run * 2 + piece;
                const vb has_third = v_shift(third, (int)(half * 4 + run)) & 1;
                v_put16(y + 16 * j, (v_shift(q, (int)run * 2) & 3) + has_third * 4 - 4, scale[j], NO_MINIMUM);
            }
        }
    }
}

/* Eight scales times d, eight minimums times -dmin. */
static inline void k_scales(const uint8_t *b, float scale[16], float minimum[16])
{
    const uint32_t s0 = load_word(b + 4), s1 = load_word(b + 8), s2 = load_word(b + 12);
    const uint32_t words[4] = {
        s0 & 0x3f3f3f3f,
        (s2 & 0x0f0f0f0f) | (s0 >> 2 & 0x30303030),
        s1 & 0x3f3f3f3f,
        (s2 >> 4 & 0x0f0f0f0f) | (s1 >> 2 & 0x30303030),
    };
    const vb codes = load_bytes((const uint8_t *)words);
    v_put16(scale, codes, v_f16(b), NO_MINIMUM);
    v_put16(minimum, codes, -v_f16(b + 2), NO_MINIMUM); /* the upper half counts */
}

static inline void decode_q4_k(const uint8_t *b, float *y)
{
    float scale[16], minimum[16];
    k_scales(b, scale, minimum);
    for (size_t j = 0; j < 8; j += 2) {
        for (size_t piece = 0; piece < 2; piece++) {
            const vb q = load_bytes(b + 16 + j * 16 + piece * 16);
            v_put16(y + j * 32 + piece * 16, q & 15, scale[j], minimum[8 + j]);
            v_put16(y + j * 32 + 32 + piece * 16, v_shift(q, 4) & 15, scale[j + 1], minimum[9 + j]);
        }
    }
}

static inline void decode_q5_k(const uint8_t *b, float *y)
{
    float scale[16], minimum[16];
    k_scales(b, scale, minimum);
    for (size_t piece = 0; piece < 2; piece++) {
        const vb fifth = load_bytes(b + 16 + piece * 16);
        for (size_t j = 0; j < 8; j += 2) {
            const vb q = load_bytes(b + 48 + j * 16 + piece * 16);
            const vb low = (q & 15) | (v_shift(fifth, (int)j) & 1) * 16;
            const vb high = (v_shift(q, 4) & 15) | (v_shift(fifth, (int)j + 1) & 1) * 16;
            v_put16(y + j * 32 + piece * 16, low, scale[j], minimum[8 + j]);
            v_put16(y + j * 32 + 32 + piece * 16, high, scale[j + 1], minimum[9 + j]);
        }
    }
}

static inline void decode_q6_k(const uint8_t *b, float *y)
{
    float scale[16];
    v_put16(scale, load_bytes(b + 192), v_f16(b + 208), NO_MINIMUM);
    for (size_t half = 0; half < 2; half++) {
        for (size_t piece = 0; piece < 2; piece++) {
            const vb upper = load_bytes(b + 128 + half * 32 + piece * 16);
            for (size_t run = 0; run < 4; run++) {
                const size_t j = half * 8 + run * 2 + piece;
                const vb nibbles = load_bytes(b + half * 64 + run % 2 * 32 + piece * 16);
                const vb low = v_shift(nibbles, (int)(run / 2 * 4)) & 15;
                const vb high = (v_shift(upper, (int)run * 2) & 3) * 16;
                v_put16(y + 16 * j, (low | high) - 32, scale[j], NO_MINIMUM);
            }
        }
    }
}

static inline void decode_iq4_xs(const uint8_t *b, float *y)
{
    const float d = v_f16(b);
    const uint32_t upper = (uint32_t)b[2] | (uint32_t)b[3] << 8;
    for (size_t j = 0; j < 8; j++) {
        const int low = b[4 + j / 2] >> (j % 2 * 4) & 15;
        const int high = (int)(upper >> (2 * j) & 3) << 4;
        put_lut32(y + j * 32, b + 8 + j * 16, iq4_values, d * (float)((low | high) - 32));
    }
}

static void decode_row_f16(const uint8_t *b, float *y, size_t n)
{
    size_t i = 0;
    for (; i + VL <= n; i += VL)
        v_store(y + i, v_load_f16(b + 2 * i));
    for (; i < n; i++)
        y[i] = teg_f16_to_f32((uint16_t)(b[2 * i] | b[2 * i + 1] << 8));
}

static void decode_row_bf16(const uint8_t *b, float *y, size_t n)
{
    size_t i = 0;
    for (; i + VL <= n; i += VL)
        v_store(y + i, v_load_bf16(b + 2 * i));
    for (; i < n; i++)
        y[i] = teg_bf16_to_f32((uint16_t)(b[2 * i] | b[2 * i + 1] << 8));
}

static void decode_row_f32(const uint8_t *b, float *y, size_t n)
{
    memcpy(y, b, n * sizeof *y);
}

#define BLOCK_TYPES(X)                                                                                                 \
    X(Q4_0, q4_0)                                                                                                      \
    X(Q4_1, q4_1)                                                                                                      \
    X(Q5_0, q5_0)                                                                                                      \
    X(Q5_1, q5_1)                                                                                                      \
    X(Q8_0, q8_0)                                                                                                      \
    X(Q2_K, q2_k)                                                                                                      \
    X(Q3_K, q3_k)                                                                                                      \
    X(Q4_K, q4_k)                                                                                                      \
    X(Q5_K, q5_k)                                                                                                      \
    X(Q6_K, q6_k)                                                                                                      \
    X(IQ4_NL, iq4_nl)                                                                                                  \
    X(IQ4_XS, iq4_xs)                                                                                                  \
    X(MXFP4, mxfp4)

enum block_size {
#define X(NAME, elements, bytes, gguf) NAME##_ELEMENTS = elements, NAME##_BYTES = bytes,
    TEG_DTYPES(X)
#undef X
};

#define X(NAME, name)                                                                                                  \
    static void decode_row_##name(const uint8_t *b, float *y, size_t n)                                                \
    {                                                                                                                  \
        for (size_t i = 0; i < n; i += NAME##_ELEMENTS, b += NAME##_BYTES)                                             \
            decode_##name(b, y + i);                                                                                   \
    }
BLOCK_TYPES(X)
#undef X

/* NULL: as in dtype/ (wide integers and doubles are too rare to hurry). */
static void (*const row_decoders[TEG_DTYPE_COUNT])(const uint8_t *b, float *y,
                                                   size_t n) = {[TEG_DTYPE_F32] = decode_row_f32,
                                                                [TEG_DTYPE_F16] = decode_row_f16,
                                                                [TEG_DTYPE_BF16] = decode_row_bf16,
#define X(NAME, name) [TEG_DTYPE_##NAME] = decode_row_##name,
                                                                BLOCK_TYPES(X)
#undef X
};

static void decode_row(enum teg_dtype dtype, const void *src, float *dst, size_t n)
{
    if (row_decoders[dtype])
        row_decoders[dtype](src, dst, n);
    else
        teg_dtype_decode(dtype, src, dst, n);
}
