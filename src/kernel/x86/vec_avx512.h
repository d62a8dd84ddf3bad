/* kernel/x86/vec_avx512.h: vectors of sixteen floats. The names are explained in ref/vec_base.h. */
#ifndef TEG_KERNEL_VEC_AVX512_H
#define TEG_KERNEL_VEC_AVX512_H

#include <immintrin.h>

#include "kernel/ref/vec_types.h"

#define VL 16
#define V_FUSED true
#define LINEAR_MR 4
#define ATTENTION_NV 4

typedef __m512 vf;
typedef int32_t vi __attribute__((vector_size(64)));

static inline vf v_set(float x)
{
    return _mm512_set1_ps(x);
}

static inline vf v_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static inline vf v_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}

static inline vf v_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}

static inline vf v_load_f16(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}

static inline void v_store_f16(void *p, vf v)
{
    _mm256_storeu_si256(p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

static inline float v_f16(const uint8_t *p)
{
    return _cvtsh_ss((uint16_t)(p[0] | p[1] << 8));
}

static inline vi v_load_u8(const uint8_t *p)
{
    return (vi)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}

static inline void v_store_s8(int8_t *p, vi v)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8((__m512i)v));
}

static inline vf v_load_part(const float *p, size_t n)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}

static inline void v_store_part(float *p, vf v, size_t n)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), v);
}

static inline void v_put16(float *dst, vb q, float d, float add)
{
    const vf values = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32((__m128i)q));
    _mm512_storeu_ps(dst, _mm512_fmadd_ps(values, _mm512_set1_ps(d), _mm512_set1_ps(add)));
}

static inline vb v_lut16(vb table, vb index)
{
    return (vb)_mm_shuffle_epi8((__m128i)table, (__m128i)(index & 15));
}

static inline vf v_scale2(vf p, vf n)
{
    return _mm512_scalef_ps(p, n);
}

static inline __m128 v_fold(vf v)
{
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

/* out[i] = sum of the lanes of the i-th vector: halves, halves, then (0 + 2) + (1 + 3). */
static inline void v_sum4(float *out, vf va, vf vb_, vf vc, vf vd)
{
    const __m128 a = v_fold(va), b = v_fold(vb_), c = v_fold(vc), d = v_fold(vd);
    const __m128 ab = _mm_add_ps(_mm_unpacklo_ps(a, b), _mm_unpackhi_ps(a, b));
    const __m128 cd = _mm_add_ps(_mm_unpacklo_ps(c, d), _mm_unpackhi_ps(c, d));
    _mm_storeu_ps(out, _mm_add_ps(_mm_movelh_ps(ab, cd), _mm_movehl_ps(cd, ab)));
}

static inline float v_hmax(vf v)
{
    return _mm512_reduce_max_ps(v);
}

#include "kernel/ref/vec_math.h"

#endif
