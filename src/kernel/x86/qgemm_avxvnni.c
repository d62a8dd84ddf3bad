/* kernel/x86/qgemm_avxvnni.c: the integer GEMM with VPDPBUSD on 256 bits (CPUs with AVX-VNNI and no AVX-512).
 *
 * Tile of 3 rows x 16 columns: 6 integer and 6 float accumulators, 2 vectors of weights, one broadcast: 15 of the 16
 * registers. A panel of 32 columns takes two tiles. */
#include "kernel/x86/vec_avx2.h"

#define GEMM_MR 3
#define GEMM_NAME "qgemm_avxvnni"
#define GEMM_RECORD teg_qgemm_avxvnni
#define GEMM_ISA TEG_ISA_AVXVNNI

static inline vi v_dot(vi s, vi w, vi a)
{
    return (vi)_mm256_dpbusd_avx_epi32((__m256i)s, (__m256i)w, (__m256i)a);
}

#define v_dot7 v_dot

static inline vi v_dot_pair(vi s, vi w, vi a)
{
    return (vi)_mm256_dpwssd_avx_epi32((__m256i)s, (__m256i)w, (__m256i)a);
}

#include "kernel/x86/qgemm_ymm.h"

#include "kernel/ref/qgemm_tmpl.h"
