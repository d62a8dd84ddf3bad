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

static inline void v_store16(int16_t *p, vi v)
{
    const __m256i packed = _mm256_packs_epi32((__m256i)v, (__m256i)v);
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 8)));
}

static inline vi v_round(vf x)
{
    return (vi)_mm256_cvtps_epi32(x);
}
