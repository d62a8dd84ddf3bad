/* kernel/arm/qgemm_dotprod.c: the integer GEMM with SDOT, for 64-bit Arm with dot products and no FEAT_I8MM.
 *
 * SDOT takes signed bytes: codes below 128 are that already; from the others 128 is taken (the sign bit flips) and put
 * back by two more products, 64 each. Tile of 6 rows x 8 columns: 27 of the 32 registers. */
#include "kernel/ref/vec_base.h"

#define GEMM_MR 6
#define GEMM_NAME "qgemm_dotprod"
#define GEMM_RECORD teg_qgemm_dotprod
#define GEMM_ISA TEG_ISA_DOTPROD

static inline vi v_dot7(vi s, vi w, vi a)
{
    return (vi)vdotq_s32((int32x4_t)s, (int8x16_t)w, (int8x16_t)a);
}

static inline vi v_dot(vi s, vi w, vi a)
{
    const int8x16_t half = vdupq_n_s8(64);
    int32x4_t sum = vdotq_s32((int32x4_t)s, veorq_s8((int8x16_t)w, vdupq_n_s8(-128)), (int8x16_t)a);
    sum = vdotq_s32(sum, half, (int8x16_t)a);
    return (vi)vdotq_s32(sum, half, (int8x16_t)a);
}

static inline vi v_dot_pair(vi s, vi w, vi a)
{
    return s + (w << 16 >> 16) * (a << 16 >> 16) + (w >> 16) * (a >> 16);
}

static inline vi v_copy(const void *p)
{
    int32_t word;
    memcpy(&word, p, sizeof word);
    return (vi)vdupq_n_s32(word);
}

static inline vi v_table(const uint8_t *p)
{
    return (vi)vld1q_u8(p);
}

static inline vi v_lut(vi table, vi index)
{
    return (vi)vqtbl1q_u8((uint8x16_t)table, (uint8x16_t)index);
}

#include "kernel/ref/qgemm_tmpl.h"
