/* kernel/ref/attend_base.c: attention over pages of integers, portable: the definition of its four KV types. */
#include "kernel/ref/attend_vec_base.h"

#define ATTEND_ROW teg_attend_base
#define ATTEND_ISA TEG_ISA_BASE
#define ATTEND_SUFFIX "base"
#define ATTEND_FAST TEG_KV_F16

/* s + Σ u8 · s8 of four bytes. */
static inline vi v_quads(vi s, vi u, vi a)
{
    const vi even = v_pairs(s, u & 0x00ff00ff, (((a << 8) >> 24) << 16) | ((a << 24) >> 24 & 0xffff));
    return v_pairs(even, (u >> 8) & 0x00ff00ff, (a >> 24 << 16) | ((a << 16) >> 24 & 0xffff));
}

#include "kernel/ref/attend_tmpl.h"
