/* kernel/x86/attend_avxvnni.c: attention over pages of integers with VPDPWSSD on 256 bits. */
#include "kernel/x86/attend_ymm.h"

#define ATTEND_ROW teg_attend_avxvnni
#define ATTEND_ISA TEG_ISA_AVXVNNI
#define ATTEND_FAST TEG_KV_K16V8
#define ATTEND_SUFFIX "avxvnni"

static inline vi v_pairs(vi s, vi a, vi b)
{
    return (vi)_mm256_dpwssd_avx_epi32((__m256i)s, (__m256i)a, (__m256i)b);
}

static inline vi v_quads(vi s, vi u, vi a)
{
    return (vi)_mm256_dpbusd_avx_epi32((__m256i)s, (__m256i)u, (__m256i)a);
}

#include "kernel/ref/attend_tmpl.h"
