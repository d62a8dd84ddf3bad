/* kernel/ref/vec_math.h: what follows from a vec_*.h for every width: loads, reductions, exp, tanh.
 *
 * exp and tanh are ours, not the C library's: they must not depend on the system, must vectorise, and must send -inf to
 * 0 and NaN to NaN. Coefficients are weighted minimax fits, rounded to float. */
#ifndef TEG_KERNEL_VEC_MATH_H
#define TEG_KERNEL_VEC_MATH_H

typedef uint16_t vh __attribute__((vector_size(2 * VL)));

static inline vf v_load(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void v_store(float *p, vf v)
{
    memcpy(p, &v, sizeof v);
}

/* The first min(n, VL) floats; zeros behind them. */
static inline vf v_load_n(const float *p, size_t n)
{
    return n >= VL ? v_load(p) : v_load_part(p, n);
}

static inline void v_store_n(float *p, vf v, size_t n)
{
    if (n >= VL)
        v_store(p, v);
    else
        v_store_part(p, v, n);
}

static inline vf v_select(vi mask, vf a, vf b)
{
    return (vf)((mask & (vi)a) | (~mask & (vi)b));
}

static inline vf v_abs(vf x)
{
    return (vf)((vi)x & 0x7fffffff);
}

static inline vf v_copysign(vf magnitude, vf sign)
{
    return (vf)(((vi)magnitude & 0x7fffffff) | ((vi)sign & (int32_t)0x80000000));
}

/* first, first + 1, … */
static inline vi v_count(int32_t first)
{
    vi v;
    for (int32_t i = 0; i < VL; i++)
        v[i] = first + i;
    return v;
}

static inline float v_sum(vf v)
{
    const vf zero = {0};
    float out[4];
    v_sum4(out, v, zero, zero, zero);
    return out[0];
}

static inline vf v_load_bf16(const void *p)
{
    vh h;
    memcpy(&h, p, sizeof h);
    return (vf)(__builtin_convertvector(h, vi) << 16);
}

static inline void v_store_bf16(void *p, vf v)
{
    const vi bits = (vi)v;
    const vi rounded = bits + 0x7fff + ((bits >> 16) & 1);
    const vi nan = v != v;
    const vi kept = (nan & (bits | 0x400000)) | (~nan & rounded);
    const vh h = __builtin_convertvector((kept >> 16) & 0xffff, vh);
    memcpy(p, &h, sizeof h);
}

/* Byte lanes moved down by n bits; bits of the upper neighbour come in and must be masked off. */
static inline vb v_shift(vb v, int n)
{
    typedef uint16_t pairs __attribute__((vector_size(16)));
    return (vb)((pairs)v >> n);
}

/* e^x within 2 units in the last place, subnormal results included. x = n·ln2 + r, |r| <= ln2/2; the sum with 1.5·2^23
 * rounds to an integer. ln2 is split so that n·LN2_HIGH is exact without FMA. */
static inline vf v_exp(vf x)
{
    const float LN2_HIGH = 0x1.63p-1f, LN2_LOW = -0x1.bd0106p-13f;
    const vf magic = v_set(0x1.8p23f);
    const vf c = v_min(v_set(89.0f), v_max(v_set(-104.0f), x)); /* this operand order keeps a NaN */
    const vf n = v_fma(c, v_set(0x1.715476p0f), magic) - magic;
    const vf r = v_fma(n, v_set(-LN2_LOW), v_fma(n, v_set(-LN2_HIGH), c));
    vf q = v_set(0x1.6a2352p-10f);
    q = v_fma(q, r, v_set(0x1.123a6cp-7f));
    q = v_fma(q, r, v_set(0x1.5558f4p-5f));
    q = v_fma(q, r, v_set(0x1.555490p-3f));
    q = v_fma(q, r, v_set(0x1.fffffcp-2f));
    return v_scale2(v_fma(q, r * r, r) + 1.0f, n);
}

/* tanh x within 4 units in the last place: an odd polynomial below 0.625, where 1 - e^-2x would cancel. */
static inline vf v_tanh(vf x)
{
    const vf a = v_abs(x), z = a * a;
    vf q = v_set(-0x1.75e1c0p-8f);
    q = v_fma(q, z, v_set(0x1.522698p-6f));
    q = v_fma(q, z, v_set(-0x1.b83c5ap-5f));
    q = v_fma(q, z, v_set(0x1.110726p-3f));
    q = v_fma(q, z, v_set(-0x1.555532p-2f));
    const vf small = v_fma(q * z, a, a);
    const vf e = v_exp(a * -2.0f);
    const vf large = (1.0f - e) / (1.0f + e);
    return v_copysign(v_select(a < 0.625f, small, large), x);
}

#endif
