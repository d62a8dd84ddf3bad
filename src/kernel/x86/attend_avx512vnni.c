/* kernel/x86/attend_avx512vnni.c: attention over pages of integers with VPDPWSSD on 512 bits.
 *
 * Tile of 4 rows x 64 keys or columns: 16 accumulators, 4 vectors of keys or values, broadcasts in the rest. A pair is
 * loaded once for its four products (8 loads for 16 products), so v_pair_of keeps the compiler from folding it into
 * each of them as a memory operand. */
#include "kernel/x86/vec_avx512.h"

#define ATTEND_NV 4
#define ATTEND_ROW teg_attend_avx512vnni
#define ATTEND_ISA TEG_ISA_AVX512VNNI
#define ATTEND_SUFFIX "avx512vnni"

static inline vi v_pairs(vi s, vi a, vi b)
{
    return (vi)_mm512_dpwssd_epi32((__m512i)s, (__m512i)a, (__m512i)b);
}

static inline vi v_pair_of(const void *p)
{
    int32_t pair;
    memcpy(&pair, p, sizeof pair);
    __m512i v = _mm512_set1_epi32(pair);
    __asm__("" : "+v"(v));
    return (vi)v;
}

static inline void v_store16(int16_t *p, vi v)
{
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16((__m512i)v));
}

static inline vi v_round(vf x)
{
    return (vi)_mm512_cvtps_epi32(x);
}

#include "kernel/ref/attend_tmpl.h"
