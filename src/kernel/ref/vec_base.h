/* kernel/ref/vec_base.h: the vector type of the baseline kernels: four floats, in SSE2, NEON or plain C.
 *
 * Parameters that every vec_*.h gives to the templates:
 *   VL            floats per vector
 *   LINEAR_MR     token rows of a linear tile (4 weight rows wide): LINEAR_MR * 4 accumulators stay in registers
 *   ATTENTION_NV  vectors of an attention tile (4 query rows high)
 *   vf, vi        a vector of VL floats, of VL int32_t; GCC's operators work on both
 *   v_set(x)      x in every lane
 *   V_FUSED       whether v_fma rounds once
 *   v_fma(a,b,c)  a * b + c, fused where this instruction set can. The templates call it wherever two code paths must
 *                 agree bit for bit, and never leave the choice to the compiler there.
 *   v_max, v_min  a > b ? a : b and a < b ? a : b: the second operand where either is NaN
 *   v_load_part, v_store_part   n < VL floats; the other lanes are zero, memory past them is not touched
 *   v_load_f16, v_store_f16     VL half floats at any address
 *   v_f16         one half float
 *   v_load_u8     VL unsigned bytes as integers
 *   v_store_s8    VL integers in -128 … 127 as bytes
 *   v_put16       16 signed bytes q to floats q * d + add
 *   v_lut16       16 bytes table[index & 15]
 *   v_sum4        sums of the lanes of four vectors, each in the same fixed tree
 *   v_hmax        greatest lane (NaN lanes may or may not count)
 *   v_scale2(p,n) p * 2^n for integral n in -150 … 128, once rounded
 * and vec_math.h builds the rest of them. */
#ifndef TEG_KERNEL_VEC_BASE_H
#define TEG_KERNEL_VEC_BASE_H

#include "kernel/ref/vec_types.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

#define VL 4
#if defined(__aarch64__) /* 32 vector registers */
#define V_FUSED true
#define LINEAR_MR 4
#define ATTENTION_NV 4
#else /* 16 */
#define V_FUSED false
#define LINEAR_MR 2
#define ATTENTION_NV 2
#endif

typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));
typedef uint16_t vh16 __attribute__((vector_size(16)));

static inline vf v_set(float x)
{
    return (vf){x, x, x, x};
}

#if defined(__aarch64__)

static inline vf v_fma(vf a, vf b, vf c)
{
    return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}

static inline vf v_max(vf a, vf b)
{
    return (vf)vbslq_f32(vcgtq_f32((float32x4_t)a, (float32x4_t)b), (float32x4_t)a, (float32x4_t)b);
}

static inline vf v_min(vf a, vf b)
{
    return (vf)vbslq_f32(vcltq_f32((float32x4_t)a, (float32x4_t)b), (float32x4_t)a, (float32x4_t)b);
}

static inline vf v_load_f16(const void *p)
{
    uint16x4_t h;
    memcpy(&h, p, sizeof h);
    return (vf)vcvt_f32_f16(vreinterpret_f16_u16(h));
}

static inline void v_store_f16(void *p, vf v)
{
    const uint16x4_t h = vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)v));
    memcpy(p, &h, sizeof h);
}

static inline vb v_lut16(vb table, vb index)
{
    return (vb)vqtbl1q_u8((uint8x16_t)table, (uint8x16_t)(index & 15));
}

#else

static inline vf v_fma(vf a, vf b, vf c)
{
    return a * b + c;
}

static inline vf v_max(vf a, vf b)
{
    const vi greater = a > b;
    return (vf)((greater & (vi)a) | (~greater & (vi)b));
}

static inline vf v_min(vf a, vf b)
{
    const vi less = a < b;
    return (vf)((less & (vi)a) | (~less & (vi)b));
}

/* Shifted into place, a half is a float with its exponent too small by 112, subnormals included; infinity and NaN need
 * the highest exponent. */
static inline vf v_load_f16(const void *p)
{
    uint16_t h[4];
    memcpy(h, p, sizeof h);
    const vi bits = {h[0], h[1], h[2], h[3]};
    const vi magnitude = bits & 0x7fff;
    const vf value = (vf)(magnitude << 13) * 0x1p112f;
    return (vf)((vi)value | ((magnitude > 0x7bff) & 0x7f800000) | (bits & 0x8000) << 16);
}

static inline void v_store_f16(void *p, vf v)
{
    uint16_t h[4];
    for (int i = 0; i < 4; i++)
        h[i] = teg_f32_to_f16(v[i]);
    memcpy(p, h, sizeof h);
}

static inline vb v_lut16(vb table, vb index)
{
    uint8_t values[16], codes[16];
    memcpy(values, &table, sizeof values);
    memcpy(codes, &index, sizeof codes);
    for (int i = 0; i < 16; i++)
        codes[i] = values[codes[i] & 15];
    memcpy(&index, codes, sizeof index);
    return index;
}

#endif

static inline float v_f16(const uint8_t *p)
{
    return teg_f16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

static inline vi v_load_u8(const uint8_t *p)
{
    return (vi){p[0], p[1], p[2], p[3]};
}

static inline void v_store_s8(int8_t *p, vi v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (int8_t)v[i];
}

static inline vf v_load_part(const float *p, size_t n)
{
    vf v = {0};
    memcpy(&v, p, n * sizeof *p);
    return v;
}

static inline void v_store_part(float *p, vf v, size_t n)
{
    memcpy(p, &v, n * sizeof *p);
}

/* Bytes are widened by interleaving zeros below them and shifting the sign down. */
static inline void v_put16(float *dst, vb q, float d, float add)
{
    const vb zb = {0};
    const vh16 zh = {0};
    const vh16 half[2] = {
        (vh16)__builtin_shufflevector(zb, q, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23),
        (vh16)__builtin_shufflevector(zb, q, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31),
    };
    const vf scale = {d, d, d, d}, offset = {add, add, add, add};
    for (int i = 0; i < 2; i++) {
        const vi low = (vi)__builtin_shufflevector(zh, half[i], 0, 8, 1, 9, 2, 10, 3, 11) >> 24;
        const vi high = (vi)__builtin_shufflevector(zh, half[i], 4, 12, 5, 13, 6, 14, 7, 15) >> 24;
        const vf a = v_fma(__builtin_convertvector(low, vf), scale, offset);
        const vf b = v_fma(__builtin_convertvector(high, vf), scale, offset);
        memcpy(dst + 8 * i, &a, sizeof a);
        memcpy(dst + 8 * i + 4, &b, sizeof b);
    }
}

/* In two factors, so that neither under- nor overflows before the product does. */
static inline vf v_scale2(vf p, vf n)
{
    const vi whole = __builtin_convertvector(n, vi), half = whole >> 1;
    return p * (vf)((half + 127) << 23) * (vf)((whole - half + 127) << 23);
}

/* out[i] = sum of the lanes of the i-th vector: (0 + 2) + (1 + 3). */
static inline void v_sum4(float *out, vf a, vf b, vf c, vf d)
{
    const vf ab = __builtin_shufflevector(a, b, 0, 4, 1, 5) + __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const vf cd = __builtin_shufflevector(c, d, 0, 4, 1, 5) + __builtin_shufflevector(c, d, 2, 6, 3, 7);
    const vf sum = __builtin_shufflevector(ab, cd, 0, 1, 4, 5) + __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    memcpy(out, &sum, sizeof sum);
}

static inline float v_hmax(vf v)
{
    const float a = v[0] > v[1] ? v[0] : v[1], b = v[2] > v[3] ? v[2] : v[3];
    return a > b ? a : b;
}

#include "kernel/ref/vec_math.h"

#endif
