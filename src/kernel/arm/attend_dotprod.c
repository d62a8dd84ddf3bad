/* kernel/arm/attend_dotprod.c: attention over pages of bytes with SDOT, for 64-bit Arm with dot products.
 *
 * Tile of 4 rows x 16 keys or columns: 16 accumulators, 4 vectors of keys or values, a broadcast in the rest: 16
 * products of four bytes an instruction, where fp32 does 4. SDOT takes signed bytes, so weights are stored less 128
 * (ATTEND_SIGNED). i16 has no product of its own on Arm and stays what the baseline makes of it. */
#include "kernel/ref/attend_vec_base.h"

#define ATTEND_ROW teg_attend_dotprod
#define ATTEND_ISA TEG_ISA_DOTPROD
#define ATTEND_SUFFIX "dotprod"
#define ATTEND_FAST TEG_KV_F16
#define ATTEND_SIGNED

static inline vi v_quads(vi s, vi u, vi a)
{
    return (vi)vdotq_s32((int32x4_t)s, (int8x16_t)u, (int8x16_t)a);
}

#include "kernel/ref/attend_tmpl.h"
