/* kernel/x86/attend_avx2.c: attention over pages of integers with VPMADDWD. */
#include "kernel/x86/attend_ymm.h"

#define ATTEND_ROW teg_attend_avx2
#define ATTEND_ISA TEG_ISA_AVX2
#define ATTEND_SUFFIX "avx2"

static inline vi v_pairs(vi s, vi a, vi b)
{
    return s + (vi)_mm256_madd_epi16((__m256i)a, (__m256i)b);
}

#include "kernel/ref/attend_tmpl.h"
