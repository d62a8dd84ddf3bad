/* kernel/x86/vec_avx2.h: vectors of eight floats with FMA and F16C. The names are explained in ref/vec_base.h. */
#ifndef TEG_KERNEL_VEC_AVX2_H
#define TEG_KERNEL_VEC_AVX2_H

#include <immintrin.h>

#include "kernel/ref/vec_types.h"

#define VL 8
#define V_FUSED true
#define LINEAR_MR 3
#define ATTENTION_NV 2

typedef __m256 vf;
typedef int32_t vi __attribute__((vector_size(32)));

static inline vf v_set(float x)
{
    return _mm256_set1_ps(x);
}

static inline vf v_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}

static inline vf v_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}

static inline vf v_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}

static inline vf v_load_f16(const void *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128(p));
}

static inline void v_store_f16(void *p, vf v)
{
    _mm_storeu_si128(p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

static inline float v_f16(const uint8_t *p)
{
    return _cvtsh_ss((uint16_t)(p[0] | p[1] << 8));
}

static inline vi v_load_u8(const uint8_t *p)
{
    return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}

static inline void v_store_s8(int8_t *p, vi v)
{
    const __m256i pairs = _mm256_packs_epi32((__m256i)v, (__m256i)v);
    const __m128i words = _mm_unpacklo_epi64(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
    _mm_storel_epi64((__m128i *)(void *)p, _mm_packs_epi16(words, words));
}

/* Lane mask of the first n. */
static inline __m256i v_first(size_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline vf v_load_part(const float *p, size_t n)
{
    return _mm256_maskload_ps(p, v_first(n));
}

static inline void v_store_part(float *p, vf v, size_t n)
{
    _mm256_maskstore_ps(p, v_first(n), v);
}

static inline void v_put16(float *dst, vb q, float d, float add)
{
    const __m128i bytes = (__m128i)q;
    const vf low = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
    const vf high = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)));
    const vf scale = _mm256_set1_ps(d), offset = _mm256_set1_ps(add);
    _mm256_storeu_ps(dst, _mm256_fmadd_ps(low, scale, offset));
    _mm256_storeu_ps(dst + 8, _mm256_fmadd_ps(high, scale, offset));
}

static inline vb v_lut16(vb table, vb index)
{
    return (vb)_mm_shuffle_epi8((__m128i)table, (__m128i)(index & 15));
}

/* In two factors, so that neither under- nor overflows before the product does. */
static inline vf v_scale2(vf p, vf n)
{
    const __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
    const __m256i bias = _mm256_set1_epi32(127);
    const __m256i a = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
    const __m256i b = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(whole, half), bias), 23);
    return p * (vf)a * (vf)b;
}

static inline __m128 v_fold(vf v)
{
    return _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
}

/* out[i] = sum of the lanes of the i-th vector: halves, then (0 + 2) + (1 + 3). */
static inline void v_sum4(float *out, vf va, vf vb_, vf vc, vf vd)
{
    const __m128 a = v_fold(va), b = v_fold(vb_), c = v_fold(vc), d = v_fold(vd);
    const __m128 ab = _mm_add_ps(_mm_unpacklo_ps(a, b), _mm_unpackhi_ps(a, b));
    const __m128 cd = _mm_add_ps(_mm_unpacklo_ps(c, d), _mm_unpackhi_ps(c, d));
    _mm_storeu_ps(out, _mm_add_ps(_mm_movelh_ps(ab, cd), _mm_movehl_ps(cd, ab)));
}

static inline float v_hmax(vf v)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_shuffle_ps(m, m, 1)));
}

#include "kernel/ref/vec_math.h"

#endif
