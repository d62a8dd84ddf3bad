/* kernel/ref/attend_bytes_tmpl.h: pages of bytes (i8), and the steps of attention over them: products of four bytes.
 *
 * Included by attend_tmpl.h, whose rows, tiles and softmax these steps share; `v_quads` is the product (see there).
 *
 * Keys. What all keys of a page have in common takes most of their range and says nothing: softmax compares keys. So a
 * page stores keys less its first key, and the product of the query with that one, in floats, is added to the page's
 * scores as a whole: 1 of 64 products.
 * Weights. They are rounded in units of 1/255 of the greatest product of weight and value scale in the tile: scores get
 * the logarithm of the value's scale before their greatest is taken. A key that draws much weight and has a small value
 * (the first token of most models) would take all the bits otherwise: ten times the error, measured. Sums of weights
 * are of weights before rounding, since a tile's weights have no common unit. Range. Value scales lie in 2^-60 … 2^40,
 * so that no factor between two tiles that matters leaves the floats; a value beyond 2^46 counts as not finite. */
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

static inline vi load_key_bytes(const uint8_t *p)
{
    vi v;
    memcpy(&v, p, sizeof v);
    return v ^ ATTEND_FLIP;
}

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

/* 2^logarithm for what scale_logarithm returns. */
static float scale_of_logarithm(float logarithm)
{
    float out[VL];
    v_store(out, v_exp2(v_set(logarithm)));
    return out[0];
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

static void append_k_i8(const struct attend_layout *l, const float *k, size_t n, char *page, size_t slot)
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

static void append_v_i8(const struct attend_layout *l, const float *v, size_t n, char *page, size_t slot)
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
    const float inverse = bad ? 0.0f : 1.0f / scale_of_logarithm(logarithm);
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

static void append_i8(const struct teg_kv_append_args *a)
{
    const struct attend_layout l = attend_layout(TEG_KV_I8, a->head_width);
    for (size_t t = 0; t < a->n_tokens; t++) {
        const size_t position = a->first_position + t, slot = position % TOKENS;
        char *const page = (char *)a->pages[position / TOKENS] + a->page_offset_bytes;
        append_k_i8(&l, a->k + t * a->k_stride, a->head_width, page, slot);
        append_v_i8(&l, a->v + t * a->v_stride, a->head_width, page, slot);
    }
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

/* The spare row. */
static void start_bytes(const struct attend *s)
{
    const size_t w4 = s->layout.w4, w16 = s->layout.w16;
    memset((int8_t *)s->q + s->n_rows * w4, 0, w4);
    memset(s->q_float + s->n_rows * w16, 0, w16 * sizeof *s->q_float);
    memset((uint8_t *)s->weights + s->n_rows * TOKENS, ATTEND_FLIP & 0xff, TOKENS);
    memset(s->start, 0, ROW_SLOTS * sizeof *s->start);
    memset(s->shift, 0, ROW_SLOTS * sizeof *s->shift);
    memset(s->reference, 0, ROW_SLOTS * sizeof *s->reference);
    memset(s->zeros, 0, TOKENS * sizeof *s->zeros);
}

/* ---- a tile ---- */

/* Scores of mr rows with the page's reference, for a row whose score factor is in q_float. */
TEG_INLINE void reference_scores(const size_t mr, const struct attend *s, const float *first, size_t row, float *out)
{
    const size_t w16 = s->layout.w16;
    vf sums[ROWS][LANES / VL];
    for (size_t m = 0; m < ROWS; m++)
        for (size_t j = 0; j < LANES / VL; j++)
            sums[m][j] = v_set(0.0f);
    for (size_t c = 0; c < w16; c += LANES)
#pragma GCC unroll 4
        for (size_t m = 0; m < mr; m++)
#pragma GCC unroll 4
            for (size_t j = 0; j < LANES / VL; j++)
                sums[m][j] =
                    v_fma(v_load(s->q_float + (row + m) * w16 + c + j * VL), v_load(first + c + j * VL), sums[m][j]);
#pragma GCC unroll 4
    for (size_t m = 0; m < mr; m++)
        for (size_t n = LANES / VL / 2; n > 0; n /= 2)
            for (size_t j = 0; j < n; j++)
                sums[m][j] = sums[m][j] + sums[m][j + n];
    v_sum4(out, sums[0][0], sums[1][0], sums[2][0], sums[3][0]);
}

/* Scores of mr rows for all keys, without the reference's, with the logarithm of the value's scale; the greatest that
 * each row sees. */
TEG_INLINE void byte_scores(const size_t mr, const bool partial, const struct attend *s, const struct page_view *t,
                            size_t row)
{
    const size_t w4 = s->layout.w4;
    const int8_t *const q = (const int8_t *)s->q + row * w4;
    vf greatest[ROWS];
    for (size_t m = 0; m < mr; m++)
        greatest[m] = v_set(-INFINITY);
    for (size_t key = 0; key < TOKENS; key += NV * VL) {
        vi d[ROWS][NV];
#pragma GCC unroll 4
        for (size_t m = 0; m < mr; m++)
#pragma GCC unroll 4
            for (size_t j = 0; j < NV; j++)
                d[m][j] = (vi){0} + s->start[row + m];
#pragma GCC unroll 2
        for (size_t i = 0; i < w4 / 4; i++) {
            vi k[NV];
#pragma GCC unroll 4
            for (size_t j = 0; j < NV; j++)
                k[j] = load_key_bytes(t->k_bytes + 4 * (i * TOKENS + key + j * VL));
#pragma GCC unroll 4
            for (size_t m = 0; m < mr; m++) {
                const vi quad = v_pair_of(q + m * w4 + 4 * i);
#pragma GCC unroll 4
                for (size_t j = 0; j < NV; j++)
                    d[m][j] = v_quads(d[m][j], k[j], quad);
            }
        }
#pragma GCC unroll 4
        for (size_t m = 0; m < mr; m++) {
            const vf unit = v_set(s->unit[row + m]);
#pragma GCC unroll 4
            for (size_t j = 0; j < NV; j++) {
                const size_t at = key + j * VL;
                const vf x = v_fma(v_float(d[m][j]) * v_load(t->score + at), unit, v_load(t->add + at));
                v_store(s->scores + (row + m) * TOKENS + at, x);
                const vf counted =
                    partial ? v_select(seen(at, s->lo[row + m], s->hi[row + m]), x, v_set(-INFINITY)) : x;
                greatest[m] = v_max(counted, greatest[m]);
            }
        }
    }
    float reference[ROWS];
    reference_scores(mr, s, t->first, row, reference);
    for (size_t m = 0; m < mr; m++) {
        s->shift[row + m] = v_hmax(greatest[m]);
        s->here_top[row + m] = s->shift[row + m] + reference[m];
        s->reference[row + m] = reference[m];
    }
}

/* Softcap: scores become powers of two on their own, reference included; the value's scale comes after it. */
static void cap_byte_scores(const struct attend *s, const struct page_view *t, size_t row)
{
    const float cap = s->a->softcap * LOG2E;
    float *const scores = s->scores + row * TOKENS;
    vf greatest = v_set(-INFINITY);
    for (size_t i = 0; i < TOKENS; i += VL) {
        const vf x = v_fma(v_tanh(v_load(scores + i) + s->reference[row]), v_set(cap), v_load(t->v_scale + i));
        greatest = v_max(v_select(seen(i, s->lo[row], s->hi[row]), x, v_set(-INFINITY)), greatest);
        v_store(scores + i, x);
    }
    s->shift[row] = v_hmax(greatest);
    s->here_top[row] = s->shift[row] + s->reference[row] * 0.0f;
}

/* 255 · 2^x for x <= 0, relative error below 2^-13: an eighth of what rounding to bytes costs. */
static inline vf v_exp2_byte(vf x)
{
    const vf magic = v_set(0x1.8p23f);
    const vf c = v_max(x, v_set(-126.0f)), n = c + magic, f = c - (n - magic);
    vf p = v_set(0x1.c23368p+3f);
    p = v_fma(p, f, v_set(0x1.eeed3cp+5f));
    p = v_fma(p, f, v_set(0x1.619028p+7f));
    p = v_fma(p, f, v_set(0x1.fdf69cp+7f));
    typedef uint32_t bits __attribute__((vector_size(sizeof(vf))));
    return (vf)((bits)p + ((bits)n << 23));
}

/* Weights times value scales, relative to the tile's greatest, as bytes: key i in byte i / 16 of word i % 16. The sum
 * of weights joins the row's. `bad` is NaN where a scale that the row sees is. */
TEG_INLINE void byte_weights(const bool partial, const struct attend *s, const struct page_view *t, float bad,
                             size_t row)
{
    const float *const scores = s->scores + row * TOKENS;
    const vf top = v_set(s->shift[row]);
    const size_t lo = s->lo[row], hi = s->hi[row];
    vf sums[LANES / VL];
    vi words[LANES / VL];
#pragma GCC unroll 16
    for (size_t i = 0; i < TOKENS; i += VL) {
        const size_t j = i % LANES / VL;
        vf w = v_exp2_byte(v_load(scores + i) - top), inverse = v_load(t->inverse + i);
        if (partial) {
            w = v_select(seen(i, lo, hi), w, v_set(0.0f));
            inverse = v_select(seen(i, lo, hi), inverse, v_set(0.0f));
        }
        const vi byte = (vi)(w + 0x1p23f); /* the integer is in the low bits, and 8 of zeros above */
        if (i < LANES) {
            sums[j] = w * inverse;
            words[j] = byte & 0xff;
        } else {
            sums[j] = v_fma(w, inverse, sums[j]);
            words[j] |= byte << (int)(i / LANES * 8);
        }
    }
    for (size_t j = 0; j < LANES / VL; j++)
        words[j] ^= ATTEND_FLIP;
    memcpy((uint8_t *)s->weights + row * TOKENS, words, sizeof words);
    const float here = s->here[row] + bad;
#pragma GCC unroll 4
    for (size_t j = 0; j < LANES / VL; j++) {
        float *const sum = s->sum + row * LANES + j * VL;
        v_store(sum, v_fma(sums[j], v_set(here), v_load(sum) * s->before[row]));
    }
    s->here[row] = here * (1.0f / ATTEND_BYTE_P_MAX);
}

static inline vi value_start(const struct page_view *t, size_t c)
{
    vi v = {0};
#ifdef ATTEND_SIGNED
    memcpy(&v, t->v_sums + c, sizeof v);
#else
    (void)t, (void)c;
#endif
    return v;
}

/* 128 · Σ v over the page, modulo 2^32: slots that nothing was written to cancel out again. */
static void sum_values(const struct attend *s, const int8_t *values)
{
#ifdef ATTEND_SIGNED
    const vi ones = (vi){0} + 0x40404040;
    for (size_t c = 0; c < s->stride; c += VL) {
        vi sum = {0};
        for (size_t i = 0; i < TOKENS / 4; i++) {
            vi v;
            memcpy(&v, values + 4 * (i * s->stride + c), sizeof v);
            sum = v_quads(v_quads(sum, ones, v), ones, v);
        }
        memcpy(s->v_sums + c, &sum, sizeof sum);
    }
#else
    (void)s, (void)values;
#endif
}

/* out = out · before + here · Σ weight · v, nv vectors of columns from c on. */
TEG_INLINE void byte_columns(const size_t mr, const size_t nv, const bool partial, const struct attend *s,
                             const struct page_view *t, size_t row, size_t c)
{
    const size_t stride = s->stride;
    const uint8_t *const weights = (const uint8_t *)s->weights + row * TOKENS;
    vi d[ROWS][NV];
#pragma GCC unroll 4
    for (size_t m = 0; m < mr; m++)
#pragma GCC unroll 4
        for (size_t j = 0; j < nv; j++)
            d[m][j] = value_start(t, c + j * VL);
#pragma GCC unroll 2
    for (size_t i = 0; i < TOKENS / 4; i++) {
        vi v[NV];
#pragma GCC unroll 4
        for (size_t j = 0; j < nv; j++)
            memcpy(&v[j], t->v_bytes + 4 * (i * stride + c + j * VL), sizeof v[j]);
#pragma GCC unroll 4
        for (size_t m = 0; m < mr; m++) {
            const vi w = v_pair_of(weights + m * TOKENS + 4 * i);
#pragma GCC unroll 4
            for (size_t j = 0; j < nv; j++)
                d[m][j] = v_quads(d[m][j], w, v[j]);
        }
    }
    value_add(mr, nv, partial, s, row, c, (const vi(*)[NV])d);
}

TEG_INLINE void byte_values(const size_t mr, const bool partial, const struct attend *s, const struct page_view *t,
                            size_t row)
{
    for (size_t c = 0; c < s->stride;) {
        const size_t left = (s->stride - c) / VL, n_tiles = (left + NV - 1) / NV, n = (left + n_tiles - 1) / n_tiles;
        if (n == NV)
            byte_columns(mr, NV, partial, s, t, row, c);
        else if (n == 3)
            byte_columns(mr, NV > 3 ? 3 : 1, partial, s, t, row, c);
        else if (n == 2)
            byte_columns(mr, NV > 2 ? 2 : 1, partial, s, t, row, c);
        else
            byte_columns(mr, 1, partial, s, t, row, c);
        c += n * VL;
    }
}

/* 0, or NaN where a scale of the keys lo … hi - 1 is not finite. */
static float byte_bad(const struct page_view *t, size_t lo, size_t hi)
{
    vf bad = v_set(0.0f);
    for (size_t i = lo / VL * VL; i < hi; i += VL) {
        const vf x = v_load(t->v_scale + i) * 0.0f + v_load(t->score + i) * 0.0f;
        bad = bad + v_select(seen(i, lo, hi), x, v_set(0.0f));
    }
    return v_sum(bad);
}

static void attend_bytes_whole(const struct attend *s, const struct page_view *t)
{
    const float bad = byte_bad(t, 0, TOKENS);
#define SCORES(mr)                                                                                                     \
    do {                                                                                                               \
        fetch_next(s, t, row);                                                                                         \
        byte_scores(mr, false, s, t, row);                                                                             \
    } while (0)
#define VALUES(mr) byte_values(mr, false, s, t, row)
    FOR_ROWS(s, SCORES)
    for (size_t row = 0; row < s->n_rows && s->a->softcap > 0; row++)
        cap_byte_scores(s, t, row);
    move_tops(s);
    for (size_t row = 0; row < s->n_rows; row++)
        byte_weights(false, s, t, bad, row);
    FOR_ROWS(s, VALUES)
#undef SCORES
#undef VALUES
}

/* A tile at the edge of what some rows see. Register tiles of which no row sees a key are left out. */
static void attend_bytes_edge(const struct attend *s, const struct page_view *t)
{
    size_t first, last;
#define SCORES(mr)                                                                                                     \
    do {                                                                                                               \
        seen_pairs(s, row, &first, &last);                                                                             \
        if (first < last)                                                                                              \
            byte_scores(mr, true, s, t, row);                                                                          \
    } while (0)
#define VALUES(mr)                                                                                                     \
    do {                                                                                                               \
        seen_pairs(s, row, &first, &last);                                                                             \
        if (first < last)                                                                                              \
            byte_values(mr, true, s, t, row);                                                                          \
    } while (0)
    FOR_ROWS(s, SCORES)
    for (size_t row = 0; row < s->n_rows; row++) {
        if (s->lo[row] >= s->hi[row])
            s->here_top[row] = -FLT_MAX; /* the row stays as it is */
        else if (s->a->softcap > 0)
            cap_byte_scores(s, t, row);
    }
    move_tops(s);
    for (size_t row = 0; row < s->n_rows; row++) {
        if (s->lo[row] < s->hi[row])
            byte_weights(true, s, t, byte_bad(t, s->lo[row], s->hi[row]), row);
        else
            memset((uint8_t *)s->weights + row * TOKENS, ATTEND_FLIP & 0xff, TOKENS);
    }
    FOR_ROWS(s, VALUES)
#undef SCORES
#undef VALUES
}

static void view_bytes(const struct attend *s, const char *page, struct page_view *t)
{
    t->k_bytes = (const uint8_t *)page;
    t->v_bytes = (const int8_t *)(page + s->layout.v);
    t->first = (const float *)(const void *)(page + s->layout.k_first);
    t->add = s->a->softcap > 0 ? s->zeros : t->v_scale;
    for (size_t i = 0; i < TOKENS; i += VL)
        v_store(t->inverse + i, v_exp2(v_load(t->v_scale + i) * -1.0f) * (1.0f / ATTEND_BYTE_P_MAX));
    t->v_sums = s->v_sums;
    sum_values(s, t->v_bytes);
}
