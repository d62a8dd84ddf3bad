/* dtype/dtype.h: element types and block encodings: their names, sizes and meaning.
 *
 * One row per type. A block type stores `block_elements` values in `block_bytes` bytes; a plain type is a block of one.
 * Rows of a tensor are whole blocks. The numbers are our own; format readers map theirs to these. */
#ifndef TEG_DTYPE_DTYPE_H
#define TEG_DTYPE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*      name     elements bytes   GGUF type number (-1: none) */
#define TEG_DTYPES(X)                                                                                                  \
    X(F32, 1, 4, 0)                                                                                                    \
    X(F16, 1, 2, 1)                                                                                                    \
    X(BF16, 1, 2, 30)                                                                                                  \
    X(F64, 1, 8, 28)                                                                                                   \
    X(I8, 1, 1, 24)                                                                                                    \
    X(I16, 1, 2, 25)                                                                                                   \
    X(I32, 1, 4, 26)                                                                                                   \
    X(I64, 1, 8, 27)                                                                                                   \
    X(Q4_0, 32, 18, 2)                                                                                                 \
    X(Q4_1, 32, 20, 3)                                                                                                 \
    X(Q5_0, 32, 22, 6)                                                                                                 \
    X(Q5_1, 32, 24, 7)                                                                                                 \
    X(Q8_0, 32, 34, 8)                                                                                                 \
    X(Q2_K, 256, 84, 10)                                                                                               \
    X(Q3_K, 256, 110, 11)                                                                                              \
    X(Q4_K, 256, 144, 12)                                                                                              \
    X(Q5_K, 256, 176, 13)                                                                                              \
    X(Q6_K, 256, 210, 14)                                                                                              \
    X(IQ4_NL, 32, 18, 20)                                                                                              \
    X(IQ4_XS, 256, 136, 23)                                                                                            \
    X(MXFP4, 32, 17, 39)                                                                                               \
    X(U8, 1, 1, -1)

enum teg_dtype {
#define X(name, elements, bytes, gguf) TEG_DTYPE_##name,
    TEG_DTYPES(X)
#undef X
        TEG_DTYPE_COUNT
};

struct teg_dtype_info {
    const char *name;
    uint32_t block_elements;
    uint32_t block_bytes;
    int32_t gguf_type;
};

const struct teg_dtype_info *teg_dtype_info(enum teg_dtype dtype);

/* The dtype with that GGUF number; false when Tegula has none. */
bool teg_dtype_from_gguf(uint32_t gguf_type, enum teg_dtype *dtype);
/* A GGUF type number's name even where Tegula cannot read it ("IQ2_XXS"), or NULL for an unknown number. */
const char *teg_dtype_gguf_name(uint32_t gguf_type);

/* Bytes of a row of n elements; false when n is not whole blocks or the size overflows. */
bool teg_dtype_row_bytes(enum teg_dtype dtype, uint64_t n_elements, size_t *n_bytes);

/* Decodes n_elements (whole blocks) at `src` to float, in the portable definition of each type: the exact product
 * d * q (+ m) in float32. Integer types convert. This is the truth that every kernel is tested against.
 * src needs no alignment. */
void teg_dtype_decode(enum teg_dtype dtype, const void *src, float *dst, size_t n_elements);

/* Single values. */
float teg_f16_to_f32(uint16_t bits);
uint16_t teg_f32_to_f16(float value); /* round to nearest even; overflow to infinity; NaN stays NaN */
float teg_bf16_to_f32(uint16_t bits);
uint16_t teg_f32_to_bf16(float value); /* round to nearest even; NaN stays NaN */

#endif
