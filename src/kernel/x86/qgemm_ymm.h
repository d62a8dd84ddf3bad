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

static inline vi v_table(const uint8_t *p)
{
    return (vi)_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)p));
}

static inline vi v_lut(vi table, vi index)
{
    return (vi)_mm256_shuffle_epi8((__m256i)table, (__m256i)index);
}

#endif
