/* kernel/arm/attend_i8mm.c: attention over pages of bytes with USDOT, the dot product of u8 and s8 of FEAT_I8MM: the
 * tile of attend_dotprod.c, and no sums of values beforehand. */
#include "kernel/ref/attend_vec_base.h"

#define ATTEND_ROW teg_attend_i8mm
#define ATTEND_ISA TEG_ISA_I8MM
#define ATTEND_SUFFIX "i8mm"
#define ATTEND_FAST TEG_KV_F16

static inline vi v_quads(vi s, vi u, vi a)
{
    return (vi)vusdotq_s32((int32x4_t)s, (uint8x16_t)u, (int8x16_t)a);
}

#include "kernel/ref/attend_tmpl.h"
