/* kernel/arm/qgemm_i8mm.c: the integer GEMM with USDOT, the dot product of u8 and s8 that comes with FEAT_I8MM.
 *
 * Tile of 6 rows x 8 columns: 12 integer and 12 float accumulators, 2 vectors of weights, one broadcast: 27 of the 32
 * registers. USMMLA multiplies twice as much per instruction, but makes 2 x 2 blocks that must be taken apart for every
 * group of 32; it is worth a try on hardware, which an emulator is not. */
#include "kernel/ref/vec_base.h"

#define GEMM_MR 6
#define GEMM_NAME "qgemm_i8mm"
#define GEMM_RECORD teg_qgemm_i8mm
#define GEMM_ISA TEG_ISA_I8MM

static inline vi v_dot(vi s, vi w, vi a)
{
    return (vi)vusdotq_s32((int32x4_t)s, (uint8x16_t)w, (int8x16_t)a);
}

#define v_dot7 v_dot

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
