/* kernel/x86/attend_avx512vnni.c: attention over pages of integers with VPDPWSSD on 512 bits.
 *
 * Tile of 4 rows x 64 keys or columns: 16 accumulators, 4 vectors of keys or values, broadcasts in the rest. A pair is
 * loaded once for its four products (8 loads for 16 products), so v_pair_of keeps the compiler from folding it into
 * each of them as a memory operand. */
#include "kernel/x86/vec_avx512.h"

#define ATTEND_NV 4
#define ATTEND_ROW teg_attend_avx512vnni
#define ATTEND_ISA TEG_ISA_AVX512VNNI
#define ATTEND_FAST TEG_KV_K16V8
#define ATTEND_SUFFIX "avx512vnni"

static inline vi v_pairs(vi s, vi a, vi b)
{
    return (vi)_mm512_dpwssd_epi32((__m512i)s, (__m512i)a, (__m512i)b);
}

static inline vi v_quads(vi s, vi u, vi a)
{
    return (vi)_mm512_dpbusd_epi32((__m512i)s, (__m512i)u, (__m512i)a);
}

static inline vi v_pair_of(const void *p)
{
    int32_t pair;
    memcpy(&pair, p, sizeof pair);
    __m512i v = _mm512_set1_epi32(pair);
    __asm__("" : "+v"(v));
    return (vi)v;
}

static inline void v_store16(int16_t *p, vi a, vi b)
{
    const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    const __m512i packed = _mm512_packs_epi32((__m512i)a, (__m512i)b); /* a, b, a, b … by four */
    _mm512_storeu_si512(p, _mm512_permutexvar_epi64(order, packed));
}

static inline vi v_codes(const uint8_t *p)
{
    return (vi)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}

static inline vi v_code_pairs(const uint8_t *p)
{
    return (vi)_mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

static inline vi v_round(vf x)
{
    return (vi)_mm512_cvtps_epi32(x);
}

#include "kernel/ref/attend_tmpl.h"
