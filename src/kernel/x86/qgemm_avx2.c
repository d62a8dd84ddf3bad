/* kernel/x86/qgemm_avx2.c: the integer GEMM with 256-bit multiply-add of words.
 *
 * VPMADDUBSW adds two products of u8 and s8 in 16 bits and saturates: 255 · 127 · 2 does not fit, and a saturated sum
 * is a wrong sum. So bytes are split into even and odd words, and VPMADDWD is exact for both. Tile of 3 rows x 16
 * columns. Not taken yet: VPMADDUBSW for codes below 128, where it cannot saturate. */
#include "kernel/x86/vec_avx2.h"

#define GEMM_MR 3
#define GEMM_NAME "qgemm_avx2"
#define GEMM_RECORD teg_qgemm_avx2
#define GEMM_ISA TEG_ISA_AVX2

static inline vi v_dot(vi s, vi w, vi a)
{
    const __m256i low = _mm256_set1_epi16(0xff), weights = (__m256i)w, x = (__m256i)a;
    const __m256i even =
        _mm256_madd_epi16(_mm256_and_si256(weights, low), _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8));
    const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(weights, 8), _mm256_srai_epi16(x, 8));
    return (vi)_mm256_add_epi32((__m256i)s, _mm256_add_epi32(even, odd));
}

static inline vi v_dot7(vi s, vi w, vi a)
{
    const __m256i pairs = _mm256_maddubs_epi16((__m256i)w, (__m256i)a);
    return (vi)_mm256_add_epi32((__m256i)s, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

static inline vi v_dot_pair(vi s, vi w, vi a)
{
    return (vi)_mm256_add_epi32((__m256i)s, _mm256_madd_epi16((__m256i)w, (__m256i)a));
}

#include "kernel/x86/qgemm_ymm.h"

#include "kernel/ref/qgemm_tmpl.h"
