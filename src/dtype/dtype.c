/* dtype/dtype.c: the table of element types, and single-value conversions.
 *
 * The conversions work on bit patterns, so they give the same result with every compiler flag and never depend on a
 * half-precision unit. Round to nearest even everywhere. Alternative not taken: _Float16, which gcc 12 lacks on some
 * of our targets and which calls into libgcc on others. */
#include "dtype/dtype.h"

#include <string.h>

#define GGUF_TYPES 40

static const struct teg_dtype_info infos[TEG_DTYPE_COUNT] = {
#define X(name, elements, bytes, gguf) {#name, elements, bytes, gguf},
    TEG_DTYPES(X)
#undef X
};

/* Every type number that GGUF files may carry; those that infos[] lacks are named for error messages only. The empty
 * numbers were taken back by the format. */
static const char *const gguf_names[GGUF_TYPES] = {
    [0] = "F32",     [1] = "F16",    [2] = "Q4_0",     [3] = "Q4_1",    [6] = "Q5_0",     [7] = "Q5_1",
    [8] = "Q8_0",    [9] = "Q8_1",   [10] = "Q2_K",    [11] = "Q3_K",   [12] = "Q4_K",    [13] = "Q5_K",
    [14] = "Q6_K",   [15] = "Q8_K",  [16] = "IQ2_XXS", [17] = "IQ2_XS", [18] = "IQ3_XXS", [19] = "IQ1_S",
    [20] = "IQ4_NL", [21] = "IQ3_S", [22] = "IQ2_S",   [23] = "IQ4_XS", [24] = "I8",      [25] = "I16",
    [26] = "I32",    [27] = "I64",   [28] = "F64",     [29] = "IQ1_M",  [30] = "BF16",    [34] = "TQ1_0",
    [35] = "TQ2_0",  [39] = "MXFP4",
};

const struct teg_dtype_info *teg_dtype_info(enum teg_dtype dtype)
{
    return &infos[dtype];
}

bool teg_dtype_from_gguf(uint32_t gguf_type, enum teg_dtype *dtype)
{
    for (int i = 0; i < TEG_DTYPE_COUNT; i++) {
        if (infos[i].gguf_type >= 0 && (uint32_t)infos[i].gguf_type == gguf_type) {
            *dtype = (enum teg_dtype)i;
            return true;
        }
    }
    return false;
}

const char *teg_dtype_gguf_name(uint32_t gguf_type)
{
    return gguf_type < GGUF_TYPES ? gguf_names[gguf_type] : NULL;
}

bool teg_dtype_row_bytes(enum teg_dtype dtype, uint64_t n_elements, size_t *n_bytes)
{
    const struct teg_dtype_info *const info = &infos[dtype];
    if (n_elements % info->block_elements != 0)
        return false;
    const uint64_t n_blocks = n_elements / info->block_elements;
    if (n_blocks > SIZE_MAX / info->block_bytes)
        return false;
    *n_bytes = (size_t)n_blocks * info->block_bytes;
    return true;
}

static float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

float teg_f16_to_f32(uint16_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
    const uint32_t exponent = (bits >> 10) & 31;
    const uint32_t mantissa = bits & 0x3ff;
    if (exponent == 31) /* infinity, or NaN made quiet as the conversion instructions do */
        return float_of_bits(sign | 0x7f800000 | mantissa << 13 | (mantissa ? 0x400000 : 0));
    if (exponent != 0)
        return float_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
    const float magnitude = (float)mantissa * 0x1p-24f; /* zero or subnormal: exact */
    return float_of_bits(sign | bits_of_float(magnitude));
}

uint16_t teg_f32_to_f16(float value)
{
    const uint32_t bits = bits_of_float(value);
    const uint32_t sign = (bits >> 16) & 0x8000;
    const uint32_t magnitude = bits & 0x7fffffff;
    uint32_t half;
    if (magnitude > 0x7f800000) {
        half = 0x7e00 | ((magnitude >> 13) & 0x3ff);
    } else if (magnitude >= 0x47800000) { /* 65536 and up; the carry below takes care of 65520 */
        half = 0x7c00;
    } else if (magnitude >= 0x38800000) { /* normal halves: rebias, then round at bit 13; a carry moves the exponent */
        const uint32_t rebiased = magnitude - (112u << 23);
        half = (rebiased + 0xfff + ((rebiased >> 13) & 1)) >> 13;
    } else if (magnitude <= 0x33000000) { /* up to 2^-25, a tie with zero: zero */
        half = 0;
    } else {                                            /* subnormal halves: count units of 2^-24 */
        const uint32_t shift = 126 - (magnitude >> 23); /* 14 … 24 */
        const uint32_t mantissa = (magnitude & 0x7fffff) | 0x800000;
        const uint32_t kept = mantissa >> shift;
        const uint32_t rest = mantissa & ((1u << shift) - 1);
        const uint32_t tie = 1u << (shift - 1);
        half = kept + (rest > tie || (rest == tie && (kept & 1)));
    }
    return (uint16_t)(sign | half);
}

float teg_bf16_to_f32(uint16_t bits)
{
    return float_of_bits((uint32_t)bits << 16);
}

uint16_t teg_f32_to_bf16(float value)
{
    const uint32_t bits = bits_of_float(value);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
