/* eval/vmath.h: exp, tanh, erf and floor without branches or calls, so that a loop over them vectorises with any
 * instruction set. Each is within 8 units in the last place of the true value (exp: 4), NaN passes through.
 *
 * Not taken: libm. Its functions are exact to half a unit and ten times as slow, because they are called one by one. */
#ifndef TEG_EVAL_VMATH_H
#define TEG_EVAL_VMATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float teg_float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t teg_bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* e^x = 2^n e^r with |r| <= ln 2 / 2: the Taylor series of e^r to r^7 (the next term is below 2^-27), and 2^n in two
 * factors, so that results may be subnormal or infinite. Adding 1.5 * 2^23 rounds to an integer, which is then in the
 * lowest bits. */
static inline float teg_vexp(float x)
{
    const float magic = 12582912.0f;
    const float low = x < -105.0f ? -105.0f : x, c = low > 89.0f ? 89.0f : low;
    const float t = c * 1.44269504f + magic, n = t - magic;
    const float r = (c - n * 0.693145752f) - n * 1.42860677e-6f; /* ln 2, high and low part */
    float p = 1.98412698e-4f;
    p = p * r + 1.38888889e-3f;
    p = p * r + 8.33333333e-3f;
    p = p * r + 4.16666667e-2f;
    p = p * r + 1.66666667e-1f;
    p = p * r + 0.5f;
    p = p * r * r + r + 1.0f;
    const int32_t e = (int32_t)teg_bits_of(t) - (int32_t)0x4b400000, half = e >> 1;
    const float a = teg_float_of((uint32_t)(half + 127) << 23), b = teg_float_of((uint32_t)(e - half + 127) << 23);
    const float y = p * a * b;
    return x != x ? x : y;
}

/* Near zero the Taylor series to x^11, else (1 - e^-2x) / (1 + e^-2x). */
static inline float teg_vtanh(float x)
{
    const float a = fabsf(x), s = x * x, e = teg_vexp(-2.0f * a);
    float p = -8.86323553e-3f;
    p = p * s + 2.18694885e-2f;
    p = p * s - 5.39682540e-2f;
    p = p * s + 1.33333333e-1f;
    p = p * s - 3.33333333e-1f;
    const float near = p * s * a + a, far = (1.0f - e) / (1.0f + e);
    return copysignf(a < 0.3f ? near : far, x);
}

/* Below 1 the Taylor series to x^21, else Abramowitz and Stegun 7.1.26 (absolute error 1.5e-7). */
static inline float teg_verf(float x)
{
    const float a = fabsf(x), s = a * a, t = 1.0f / (1.0f + 0.3275911f * a), e = teg_vexp(-s);
    float p = 1.31225329e-8f;
    p = p * s - 1.45038522e-7f;
    p = p * s + 1.45891690e-6f;
    p = p * s - 1.32275132e-5f;
    p = p * s + 1.06837607e-4f;
    p = p * s - 7.57575758e-4f;
    p = p * s + 4.62962963e-3f;
    p = p * s - 2.38095238e-2f;
    p = p * s + 1.0e-1f;
    p = p * s - 3.33333333e-1f;
    const float near = 1.12837917f * (p * s * a + a);
    float q = 1.061405429f;
    q = q * t - 1.453152027f;
    q = q * t + 1.421413741f;
    q = q * t - 0.284496736f;
    q = q * t + 0.254829592f;
    const float far = 1.0f - q * t * e;
    return copysignf(a < 1.0f ? near : far, x);
}

static inline float teg_vfloor(float x)
{
    const float inside = fabsf(x) < 8388608.0f ? x : 0.0f; /* from 2^23 on floats are integers */
    const float whole = (float)(int32_t)inside, down = whole - (whole > inside ? 1.0f : 0.0f);
    return fabsf(x) < 8388608.0f ? copysignf(down, x) : x;
}

#endif
