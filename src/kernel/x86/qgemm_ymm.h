/* kernel/x86/qgemm_ymm.h: what the two 256-bit integer GEMMs share. */
#ifndef TEG_KERNEL_QGEMM_YMM_H
#define TEG_KERNEL_QGEMM_YMM_H

#include "kernel/x86/vec_avx2.h"

static inline vi v_copy(const void *p)
{
    int32_t word;
    memcpy(&word, p, sizeof word);
    return (vi)_mm256_set1_epi32(word);
}

static inline vi v_lut(const uint8_t table[16], vi index)
{
    const __m128i t = _mm_loadu_si128((const __m128i *)(const void *)table);
    return (vi)_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(t), (__m256i)index);
}

#endif
