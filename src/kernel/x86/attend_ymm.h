/* kernel/x86/attend_ymm.h: what the 256-bit rows of attention over integers share; v_pairs is theirs. Sixteen
 * registers: 4 rows of 2 vectors, 2 of keys or values, a query pair and, without VNNI, the products. */
#include "kernel/x86/vec_avx2.h"

#define ATTEND_NV 2

static inline vi v_pair_of(const void *p)
{
    int32_t pair;
    memcpy(&pair, p, sizeof pair);
    return (vi)_mm256_set1_epi32(pair);
}

static inline void v_store16(int16_t *p, vi a, vi b)
{
    const __m256i packed = _mm256_packs_epi32((__m256i)a, (__m256i)b); /* a, b, a, b by four */
    _mm256_storeu_si256((__m256i *)(void *)p, _mm256_permute4x64_epi64(packed, 0xd8));
}

static inline vi v_codes(const uint8_t *p)
{
    return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}

static inline vi v_code_pairs(const uint8_t *p)
{
    return (vi)_mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
}

static inline vi v_round(vf x)
{
    return (vi)_mm256_cvtps_epi32(x);
}
