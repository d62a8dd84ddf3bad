/* kernel/x86/qgemm_avx512vnni.c: the integer GEMM with VPDPBUSD on 512 bits.
 *
 * Tile of 6 rows x 32 columns: 12 integer and 12 float accumulators, 2 vectors of weights, broadcasts in the rest of
 * the 32 registers. Where two dot products issue per cycle, loads bind first: a broadcast is loaded once and used twice
 * (8 loads for 12 products), so v_copy keeps the compiler from folding it into both products as a memory operand. */
#include "kernel/x86/vec_avx512.h"

#define GEMM_MR 6
#define GEMM_NAME "qgemm_avx512vnni"
#define GEMM_RECORD teg_qgemm_avx512vnni
#define GEMM_ISA TEG_ISA_AVX512VNNI

static inline vi v_dot(vi s, vi w, vi a)
{
    return (vi)_mm512_dpbusd_epi32((__m512i)s, (__m512i)w, (__m512i)a);
}

#define v_dot7 v_dot

static inline vi v_dot_pair(vi s, vi w, vi a)
{
    return (vi)_mm512_dpwssd_epi32((__m512i)s, (__m512i)w, (__m512i)a);
}

static inline vi v_copy(const void *p)
{
    int32_t word;
    memcpy(&word, p, sizeof word);
    __m512i v = _mm512_set1_epi32(word);
    __asm__("" : "+v"(v));
    return (vi)v;
}

static inline vi v_table(const uint8_t *p)
{
    return (vi)_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)p));
}

static inline vi v_lut(vi table, vi index)
{
    return (vi)_mm512_shuffle_epi8((__m512i)table, (__m512i)index);
}

/* Conversions round to nearest even and saturate by themselves; a dot product with ones adds. */
static inline int32_t v_codes(int8_t *dst, vf v, float zero)
{
    const __m512i u = _mm512_add_epi32(_mm512_cvtps_epi32((__m512)v), _mm512_set1_epi32((int)zero));
    const __m128i codes = _mm512_cvtsepi32_epi8(u);
    _mm_storeu_si128((__m128i *)(void *)dst, codes);
    __m128i s = _mm_dpbusd_epi32(_mm_setzero_si128(), _mm_set1_epi8(1), codes);
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}
#define v_codes v_codes

/* Lane i: the largest of lane group i, of 16 vectors: neighbours are joined, then pairs, then quarters. */
static inline __m512 largest_of_each(const __m512 v[16])
{
    __m512 a[8], b[4], c[2];
    for (int i = 0; i < 8; i++)
        a[i] = _mm512_max_ps(_mm512_unpacklo_ps(v[2 * i], v[2 * i + 1]), _mm512_unpackhi_ps(v[2 * i], v[2 * i + 1]));
    for (int i = 0; i < 4; i++) {
        const __m512d x = _mm512_castps_pd(a[2 * i]), y = _mm512_castps_pd(a[2 * i + 1]);
        b[i] = _mm512_max_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
    }
    for (int i = 0; i < 2; i++)
        c[i] = _mm512_max_ps(_mm512_shuffle_f32x4(b[2 * i], b[2 * i + 1], 0x88),
                             _mm512_shuffle_f32x4(b[2 * i], b[2 * i + 1], 0xdd));
    return _mm512_max_ps(_mm512_shuffle_f32x4(c[0], c[1], 0x88), _mm512_shuffle_f32x4(c[0], c[1], 0xdd));
}

/* Of 16 groups of 32 values, a lane each: how far they reach below and above 0. */
static inline void v_ranges(const float *x, vf *below, vf *above)
{
    const __m512 none = _mm512_setzero_ps();
    __m512 least[16], greatest[16];
    for (int i = 0; i < 16; i++, x += 32) {
        const __m512 a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);
        greatest[i] = _mm512_max_ps(_mm512_max_ps(a, b), none);
        least[i] = _mm512_max_ps(_mm512_sub_ps(none, _mm512_min_ps(a, b)), none);
    }
    *below = (vf)largest_of_each(least);
    *above = (vf)largest_of_each(greatest);
}
#define v_ranges v_ranges

#include "kernel/ref/qgemm_tmpl.h"
