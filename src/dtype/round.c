/* dtype/round.c: rounding to fp16 without leaving float32, so that it vectorises everywhere.
 *
 * Normal values: add half of the last place that stays (13 bits go) plus the tie's parity, and clear what goes; a carry
 * into the exponent is right. Below 2^-14 fp16 has the constant step 2^-24, which is the last place of floats in
 * [0.5, 1): adding and subtracting 0.75 rounds to it. The result equals teg_f16_to_f32(teg_f32_to_f16(x)) for every
 * float, NaN payloads aside. */
#include "dtype/round.h"

#include <stdint.h>
#include <string.h>

#define SIGN 0x80000000u
#define INFINITE 0x7f800000u
#define FIRST_NORMAL 0x38800000u /* 2^-14 */
#define FIRST_OVER 0x47800000u   /* 2^16: 65520 and up round to it */

static inline uint32_t round_bits(uint32_t u)
{
    const uint32_t sign = u & SIGN, a = u & ~SIGN;
    float magnitude;
    uint32_t small;
    memcpy(&magnitude, &a, sizeof magnitude);
    magnitude = (magnitude + 0.75f) - 0.75f;
    memcpy(&small, &magnitude, sizeof small);
    const uint32_t normal = (a + 0xfff + (a >> 13 & 1)) & ~0x1fffu;
    const uint32_t finite = a < FIRST_NORMAL ? small : normal >= FIRST_OVER ? INFINITE : normal;
    return sign | (a > INFINITE ? a : finite);
}

bool teg_round_f16(float *dst, const float *src, size_t n)
{
    uint32_t overflowed = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, src + i, sizeof u);
        const uint32_t r = round_bits(u);
        overflowed |= (uint32_t)((r & ~SIGN) == INFINITE) & (uint32_t)((u & ~SIGN) != INFINITE);
        memcpy(dst + i, &r, sizeof r);
    }
    return overflowed != 0;
}

bool teg_is_f16(const float *x, size_t n)
{
    enum { BLOCK = 1024 }; /* looked at whole before giving up */
    for (size_t at = 0; at < n; at += BLOCK) {
        const size_t end = n - at < BLOCK ? n : at + BLOCK;
        uint32_t differs = 0;
        for (size_t i = at; i < end; i++) {
            uint32_t u;
            memcpy(&u, x + i, sizeof u);
            differs |= round_bits(u) ^ u;
        }
        if (differs)
            return false;
    }
    return true;
}
