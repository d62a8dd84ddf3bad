/* kernel/x86/attend_avx2.c: attention over pages of integers with VPMADDWD. */
#include "kernel/x86/attend_ymm.h"

#define ATTEND_ROW teg_attend_avx2
#define ATTEND_ISA TEG_ISA_AVX2
#define ATTEND_FAST TEG_KV_I16
#define ATTEND_SUFFIX "avx2"

static inline vi v_pairs(vi s, vi a, vi b)
{
    return s + (vi)_mm256_madd_epi16((__m256i)a, (__m256i)b);
}

/* VPMADDUBSW would saturate: even and odd bytes apart, as words. */
static inline vi v_quads(vi s, vi u, vi a)
{
    const __m256i low = _mm256_set1_epi16(0xff), bytes = (__m256i)u, x = (__m256i)a;
    const __m256i even = _mm256_madd_epi16(_mm256_and_si256(bytes, low), _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8));
    const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(bytes, 8), _mm256_srai_epi16(x, 8));
    return (vi)_mm256_add_epi32((__m256i)s, _mm256_add_epi32(even, odd));
}

#include "kernel/ref/attend_tmpl.h"
