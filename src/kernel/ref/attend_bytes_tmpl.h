/* kernel/ref/attend_bytes_tmpl.h: keys, values and queries as bytes: how they are rounded and packed.
 *
 * Included by attend_tmpl.h; `v_quads` is the product of four bytes (see there).
 *
 * Keys. What all keys of a page have in common takes most of their range and says nothing: softmax compares keys. So a
 * page stores keys less its first key, and the product of the query with that one, in floats, is added to the page's
 * scores as a whole: 1 of 64 products.
 * Values. Their scales lie in 2^-60 … 2^40, so that no factor between two tiles that matters leaves the floats; a value
 * beyond 2^46 counts as not finite. Not taken: bytes without turning (attend_turn_tmpl.h), ten times the error. */
#include "kernel/ref/attend_turn_tmpl.h"

#define SCALE_STEPS 16 /* steps of a value's scale in an octave: at most 4 % of its bits are lost */
#define SCALE_LOW -60
#define SCALE_HIGH 40

/* The product that there is decides on which side an offset of 128 is: u8 · s8 takes keys plus 128 and weights as they
 * are, and a score's sum starts with -128 · Σ q; s8 · s8 takes keys as they are and weights less 128, and a value's sum
 * starts with 128 · Σ v over the page. */
#ifdef ATTEND_SIGNED
#define ATTEND_START 0
#define ATTEND_FLIP INT32_C(-0x7f7f7f80) /* the highest bit of each byte */
#else
#define ATTEND_START ATTEND_BYTE_OFFSET
#define ATTEND_FLIP 0
#endif

/* ---- pages ---- */

/* The least k / SCALE_STEPS with |x| <= 127 · 2^(k / SCALE_STEPS), at least SCALE_LOW; NaN above SCALE_HIGH. */
static float scale_logarithm(float greatest)
{
    static const float steps[SCALE_STEPS] = {0x1p+0f,        0x1.0b5586p+0f, 0x1.172b84p+0f, 0x1.2387a6p+0f,
                                             0x1.306fep+0f,  0x1.3dea64p+0f, 0x1.4bfdaep+0f, 0x1.5ab07ep+0f,
                                             0x1.6a09e6p+0f, 0x1.7a1148p+0f, 0x1.8ace54p+0f, 0x1.9c4918p+0f,
                                             0x1.ae89fap+0f, 0x1.c199bep+0f, 0x1.d5818ep+0f, 0x1.ea4afap+0f};
    int octave, step = 0;
    if (!(greatest <= ATTEND_BYTE * 0x1p40f))
        return NAN;
    const float m = 2 * frexpf(greatest / ATTEND_BYTE, &octave);
    while (step < SCALE_STEPS && m > steps[step])
        step++;
    const float logarithm = (float)(octave - 1) + (float)step * (1.0f / SCALE_STEPS);
    return logarithm > SCALE_LOW ? logarithm : SCALE_LOW;
}

/* LANES components over the scale whose inverse is `factor`, as bytes; their sum joins *sum. |x · factor| < 127.5. */
static inline void round_bytes(const float *x, float factor, int8_t *out, vi *sum)
{
    typedef int8_t bytes __attribute__((vector_size(VL)));
    const vf magic = v_set(0x1.8p23f), f = v_set(factor);
    for (size_t i = 0; i < LANES; i += VL) {
        const vi q = (vi)(v_load(x + i) * f + magic) - (vi)magic;
        const bytes narrow = __builtin_convertvector(q, bytes);
        memcpy(out + i, &narrow, sizeof narrow);
        *sum = *sum + q;
    }
}

/* The key of slot 0 is the page's reference; one that is not finite, or near the end of floats, is none. */
static void write_first(const struct attend_layout *l, const float *k, size_t n, size_t block, float *first)
{
    float part[ATTEND_TURN] __attribute__((aligned(64)));
    const bool usable = greatest_of(k, n) < 0x1p120f;
    for (size_t c = 0; c < n; c += ATTEND_TURN) {
        const size_t here = turn_part(k, n, c, block, part);
        memcpy(first + c, part, here * sizeof *part);
    }
    if (!usable)
        memset(first, 0, l->w16 * sizeof *first);
}

static void append_byte_key(const struct attend_layout *l, const float *k, size_t n, char *page, size_t slot)
{
    float part[ATTEND_TURN] __attribute__((aligned(64)));
    uint8_t *const quads = (uint8_t *)page;
    float *const first = (float *)(void *)(page + l->k_first), greatest = 0, scale;
    const size_t block = turn_block(n);
    vi unused = {0};
    if (slot == 0)
        write_first(l, k, n, block, first);
    for (size_t c = 0; c < n; c += ATTEND_TURN) {
        const size_t here = turn_part(k, n, c, block, part);
        for (size_t i = 0; i < here; i += VL)
            v_store(part + i, v_load(part + i) - v_load(first + c + i));
        const float most = greatest_of(part, here);
        greatest = most > greatest || isnan(most) ? most : greatest;
    }
    const bool bad = isnan(greatest);
    scale = bad ? NAN : greatest / ATTEND_BYTE;
    for (size_t c = 0; c < n; c += ATTEND_TURN) {
        const size_t here = n <= ATTEND_TURN ? l->w16 : turn_part(k, n, c, block, part);
        for (size_t i = 0; i < here && n > ATTEND_TURN; i += VL)
            v_store(part + i, v_load(part + i) - v_load(first + c + i));
        for (size_t i = 0; i < here; i += LANES) {
            int8_t q[LANES] = {0};
            if (!bad)
                round_bytes(part + i, ATTEND_BYTE / greatest, q, &unused);
            for (size_t j = 0; j < LANES && c + i + j < l->w4; j += 4) {
                uint32_t quad;
                memcpy(&quad, q + j, sizeof quad);
                quad ^= 0x80808080u; /* plus 128 */
                memcpy(quads + ((c + i + j) / 4 * TOKENS + slot) * 4, &quad, sizeof quad);
            }
        }
    }
    memcpy(page + l->k_scale + slot * sizeof scale, &scale, sizeof scale);
}

static void append_byte_value(const struct attend_layout *l, const float *v, size_t n, char *page, size_t slot)
{
    float part[ATTEND_TURN] __attribute__((aligned(64))), greatest = 0;
    int8_t *const rows = (int8_t *)(page + l->v) + slot % 16 * l->w16 * 4 + slot / 16;
    const size_t block = turn_block(n);
    for (size_t c = 0; c < n; c += ATTEND_TURN) {
        const float most = greatest_of(part, turn_part(v, n, c, block, part));
        greatest = most > greatest || isnan(most) ? most : greatest;
    }
    const float logarithm = scale_logarithm(greatest);
    const bool bad = isnan(logarithm);
    const float inverse = bad ? 0.0f : 1.0f / exp2_of(logarithm);
    vi unused = {0};
    for (size_t c = 0; c < n; c += ATTEND_TURN) {
        const size_t here = n <= ATTEND_TURN ? l->w16 : turn_part(v, n, c, block, part);
        for (size_t i = 0; i < here; i += LANES) {
            int8_t q[LANES] = {0};
            if (!bad)
                round_bytes(part + i, inverse, q, &unused);
            for (size_t j = 0; j < LANES; j++)
                rows[(c + i + j) * 4] = q[j];
        }
    }
    memcpy(page + l->v_scale + slot * sizeof logarithm, &logarithm, sizeof logarithm);
}

/* ---- queries and outputs ---- */

/* A query row: turned, in bytes, and in floats for the page's reference. Returns the scale of the bytes. */
static float byte_query(const struct attend *s, const float *x, size_t row, float factor)
{
    const size_t n = s->a->head_width, w16 = s->layout.w16, w4 = s->layout.w4;
    float *const turned = s->q_float + row * w16;
    int8_t *const bytes = (int8_t *)s->q + row * w4;
    memset(turned, 0, w16 * sizeof *turned);
    memcpy(turned, x, n * sizeof *x);
    turn(turned, w16, turn_block(n));
    const float greatest = greatest_of(turned, w16);
    vi sum = {0};
    int32_t total = 0;
    memset(bytes, 0, w4);
    for (size_t c = 0; c < w16 && !isnan(greatest); c += LANES) {
        int8_t q[LANES];
        round_bytes(turned + c, ATTEND_BYTE / greatest, q, &sum);
        memcpy(bytes + c, q, c + LANES <= w4 ? LANES : w4 - c);
    }
    for (size_t i = 0; i < VL; i++)
        total += sum[i];
    s->start[row] = -ATTEND_START * total;
    for (size_t c = 0; c < w16; c += VL)
        v_store(turned + c, v_load(turned + c) * factor);
    return greatest / ATTEND_BYTE;
}
