/* kernel/ref/attend_vec_base.h: what attention over integers asks of vectors of four, portable, or by what every 64-bit
 * Arm and x86 has; v_quads is the file's that includes this. */
#ifndef TEG_KERNEL_ATTEND_VEC_BASE_H
#define TEG_KERNEL_ATTEND_VEC_BASE_H

#include "kernel/ref/vec_base.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define ATTEND_NV ATTENTION_NV

static inline vi v_pairs(vi s, vi a, vi b)
{
#if defined(__SSE2__)
    return s + (vi)_mm_madd_epi16((__m128i)a, (__m128i)b);
#elif defined(__aarch64__)
    const int16x8_t x = (int16x8_t)a, y = (int16x8_t)b;
    const int32x4_t low = vmull_s16(vget_low_s16(x), vget_low_s16(y)), high = vmull_high_s16(x, y);
    return s + (vi)vpaddq_s32(low, high);
#else
    typedef uint32_t vu __attribute__((vector_size(sizeof(vi))));
    const vi low = ((a << 16) >> 16) * ((b << 16) >> 16), high = (a >> 16) * (b >> 16);
    return (vi)((vu)s + (vu)low + (vu)high);
#endif
}

static inline vi v_pair_of(const void *p)
{
    int32_t pair;
    memcpy(&pair, p, sizeof pair);
    return (vi){pair, pair, pair, pair};
}

static inline void v_store16(int16_t *p, vi a, vi b)
{
    for (int i = 0; i < VL; i++) {
        p[i] = (int16_t)a[i];
        p[VL + i] = (int16_t)b[i];
    }
}

static inline vi v_codes(const uint8_t *p)
{
    return (vi){p[0], p[1], p[2], p[3]};
}

static inline vi v_code_pairs(const uint8_t *p)
{
    return (vi){p[0] | p[1] << 16, p[2] | p[3] << 16, p[4] | p[5] << 16, p[6] | p[7] << 16};
}

/* Halves to even, for |x| < 2^22. */
static inline vi v_round(vf x)
{
    const vf magic = v_set(0x1.8p23f);
    return (vi)(x + magic) - (vi)magic;
}

#endif
