/* kernel/ref/attend_tile_tmpl.h: one tile of 64 keys for all query rows of a call: scores, weights, sums of values.
 *
 * Included by attend_tmpl.h. Keys and values are each multiplied as words (pairs of int16) or as bytes (fours of them),
 * told apart by constants, which vanish: either way an operand is 4 bytes a lane, and only the product differs.
 *
 * All rows take one step before the next, ROWS at a time: K, then the scores, then V stay in the first-level cache, and
 * latencies of one row hide behind the others. Keys that a row does not see are replaced after each step that could
 * carry them (score, weight, integer weight); integers of memory that was never written cannot do harm once their
 * weight is zero.
 *
 * Weights of words are rounded in units of the tile's greatest value scale. Weights of bytes have fewer bits: their
 * unit is 1/255 of the greatest product of weight and value scale in the tile, so scores get the logarithm of the
 * value's scale before their greatest is taken. A key that draws much weight and has a small value (the first token of
 * most models) would take all the bits otherwise: ten times the error, measured. Sums of weights are of weights before
 * rounding, since a tile's weights have no common unit. */

static inline vi seen(size_t key, size_t lo, size_t hi)
{
    const vi i = v_count((int32_t)key);
    return (i >= (int32_t)lo) & (i < (int32_t)hi);
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

static inline vi load_words(const void *p)
{
    vi v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* ---- scores ---- */

/* Byte keys: scores of mr rows with the page's reference; q_float has the score's factor. */
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

/* Scores of mr rows for all keys, and the greatest that each row sees; with byte values in their logarithm's terms, and
 * without the reference's. */
TEG_INLINE void score_rows(const size_t mr, const bool partial, const bool byte_keys, const bool byte_values,
                           const struct attend *s, const struct page_view *t, size_t row)
{
    const size_t q_bytes = 4 * s->q_words;
    const char *const q = (const char *)s->q + row * q_bytes, *const keys = t->k;
    vf greatest[ROWS];
    for (size_t m = 0; m < mr; m++)
        greatest[m] = v_set(-INFINITY);
    for (size_t key = 0; key < TOKENS; key += NV * VL) {
        vi d[ROWS][NV];
#pragma GCC unroll 4
        for (size_t m = 0; m < mr; m++)
#pragma GCC unroll 4
            for (size_t j = 0; j < NV; j++)
                d[m][j] = byte_keys ? (vi){0} + s->start[row + m] : (vi){0};
#pragma GCC unroll 2
        for (size_t i = 0; i < q_bytes / 4; i++) {
            vi k[NV];
#pragma GCC unroll 4
            for (size_t j = 0; j < NV; j++) {
                k[j] = load_words(keys + 4 * (i * TOKENS + key + j * VL));
                if (byte_keys)
                    k[j] ^= ATTEND_FLIP;
            }
#pragma GCC unroll 4
            for (size_t m = 0; m < mr; m++) {
                const vi word = v_pair_of(q + m * q_bytes + 4 * i);
#pragma GCC unroll 4
                for (size_t j = 0; j < NV; j++)
                    d[m][j] = byte_keys ? v_quads(d[m][j], k[j], word) : v_pairs(d[m][j], word, k[j]);
            }
        }
#pragma GCC unroll 4
        for (size_t m = 0; m < mr; m++) {
            const vf unit = v_set(s->unit[row + m]);
#pragma GCC unroll 4
            for (size_t j = 0; j < NV; j++) {
                const size_t at = key + j * VL;
                vf x = v_float(d[m][j]) * v_load(t->score + at);
                if (byte_values)
                    x = v_fma(x, unit, v_load(t->add + at));
                v_store(s->scores + (row + m) * TOKENS + at, x);
                const vf counted =
                    partial ? v_select(seen(at, s->lo[row + m], s->hi[row + m]), x, v_set(-INFINITY)) : x;
                greatest[m] = v_max(counted, greatest[m]);
            }
        }
    }
    float reference[ROWS] = {0};
    if (byte_keys)
        reference_scores(mr, s, t->first, row, reference);
    for (size_t m = 0; m < mr; m++) {
        const float most = v_hmax(greatest[m]), unit = s->unit[row + m];
        s->shift[row + m] = most;
        s->here_top[row + m] = byte_values ? most + reference[m] + unit * 0.0f : most * unit;
        s->reference[row + m] = reference[m];
    }
}

/* Softcap: scores become powers of two on their own, reference included; the value's scale comes after it. */
static void cap_scores(bool byte_values, const struct attend *s, const struct page_view *t, size_t row)
{
    const vf cap = v_set(s->a->softcap * LOG2E);
    float *const scores = s->scores + row * TOKENS;
    vf greatest = v_set(-INFINITY);
    for (size_t i = 0; i < TOKENS; i += VL) {
        const vf x = v_load(scores + i), y = byte_values ? x + s->reference[row] : x * s->unit[row];
        const vf bent = v_tanh(y);
        vf capped = bent * cap;
        if (byte_values)
            capped = v_fma(bent, cap, v_load(t->v_scale + i));
        greatest = v_max(v_select(seen(i, s->lo[row], s->hi[row]), capped, v_set(-INFINITY)), greatest);
        v_store(scores + i, capped);
    }
    s->shift[row] = v_hmax(greatest);
    s->here_top[row] = s->shift[row] + (s->reference[row] + s->unit[row]) * 0.0f;
}

/* ---- weights ---- */

/* Bytes of the weights of a row. */
TEG_INLINE size_t weight_row_bytes(const bool bytes)
{
    return bytes ? TOKENS : 2 * TOKENS;
}

/* Factors of the rows' earlier sums and of this tile's: one of the two is 1. A score that is not finite makes both NaN,
 * but for rows that see nothing. */
static void move_tops(const struct attend *s)
{
    for (size_t i = 0; i < s->n_rows; i += VL) {
        const vf old = v_load(s->here_range.top + i), here = v_load(s->here_top + i), one = v_set(1.0f),
                 bad = here * 0.0f;
        const vi rises = here > old;
        const vf top = v_select(rises, here, old);
        v_store(s->here_range.top + i, top);
        v_store(s->before + i, v_select(rises, v_exp2(old - top), one) + bad);
        v_store(s->here + i, v_select(rises, one, v_exp2(here - top)) + bad);
    }
}

/* v_scale of the keys lo … hi - 1 in integers, and their unit (NaN where a scale of k or v is not finite). */
static float weight_integers(const struct page_view *t, size_t lo, size_t hi, float *weight)
{
    vf most = v_set(0.0f), bad = v_set(0.0f);
    for (size_t i = lo / VL * VL; i < hi; i += VL) {
        const vf zero = v_set(0.0f);
        const vi mask = seen(i, lo, hi);
        const vf v = v_select(mask, v_load(t->v_scale + i), zero), k = v_select(mask, v_load(t->score + i), zero);
        most = v_max(v, most);
        bad = bad + (v * 0.0f + k * 0.0f);
    }
    const float greatest = v_hmax(most), factor = ATTEND_P_MAX / greatest;
    for (size_t i = 0; i < TOKENS; i += VL)
        v_store(weight + i, v_load(t->v_scale + i) * factor);
    return greatest * (1.0f / ATTEND_P_MAX) + v_sum(bad);
}

/* Weights relative to the tile's greatest score: their sum joins the row's, their integers are kept. */
TEG_INLINE void word_weights(const bool partial, const struct attend *s, const float *to_integer, float weight_unit,
                             size_t row)
{
    const float *const scores = s->scores + row * TOKENS;
    int16_t *const weights = (int16_t *)s->weights + row * TOKENS;
    const vf unit = v_set(s->a->softcap > 0 ? 1.0f : s->unit[row]), top = v_set(-s->here_top[row]);
    const size_t lo = s->lo[row], hi = s->hi[row];
    vf sums[LANES / VL];
    vi integers[2];
#pragma GCC unroll 16
    for (size_t i = 0; i < TOKENS; i += VL) {
        vf w = v_exp2(v_fma(v_load(scores + i), unit, top));
        if (partial)
            w = v_select(seen(i, lo, hi), w, v_set(0.0f));
        const size_t j = i % LANES / VL;
        if (i < LANES)
            sums[j] = w;
        else
            sums[j] = sums[j] + w;
        vi integer = v_round(w * v_load(to_integer + i));
        if (partial)
            integer &= seen(i, lo, hi);
        integers[i / VL % 2] = integer;
        if (i / VL % 2)
            v_store16(weights + i - VL, integers[0], integers[1]);
    }
    const float here = s->here[row] + weight_unit * 0.0f;
#pragma GCC unroll 4
    for (size_t j = 0; j < LANES / VL; j++) {
        float *const sum = s->here_range.sum + row * LANES + j * VL;
        v_store(sum, v_fma(sums[j], v_set(here), v_load(sum) * s->before[row]));
    }
    s->here[row] = here * weight_unit;
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
        float *const sum = s->here_range.sum + row * LANES + j * VL;
        v_store(sum, v_fma(sums[j], v_set(here), v_load(sum) * s->before[row]));
    }
    s->here[row] = here * (1.0f / ATTEND_BYTE_P_MAX);
}

/* ---- values ---- */

/* What sums of a value start with. */
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

/* out = out · before + here · d; rows that see no key go to a place behind the rows. */
TEG_INLINE void value_add(const size_t mr, const size_t nv, const bool partial, const struct attend *s, size_t row,
                          size_t c, const vi (*d)[NV])
{
#pragma GCC unroll 4
    for (size_t m = 0; m < mr; m++) {
        const bool sees = !partial || s->lo[row + m] < s->hi[row + m];
        float *const out = s->here_range.out + (sees ? row + m : s->n_rows) * s->stride + c;
        const vf here = v_set(s->here[row + m]), before = v_set(s->before[row + m]);
#pragma GCC unroll 4
        for (size_t j = 0; j < nv; j++)
            v_store(out + j * VL, v_fma(v_float(d[m][j]), here, v_load(out + j * VL) * before));
    }
}

/* out = out · before + here · Σ weight · v over pairs (bytes: fours) first … last - 1 of keys, nv vectors of columns
 * from c on. */
TEG_INLINE void value_columns(const size_t mr, const size_t nv, const bool partial, const bool bytes,
                              const struct attend *s, const struct page_view *t, size_t row, size_t c, size_t first,
                              size_t last)
{
    const size_t stride = s->stride, row_bytes = weight_row_bytes(bytes);
    const char *const weights = (const char *)s->weights + row * row_bytes, *const values = t->v;
    vi d[ROWS][NV];
#pragma GCC unroll 4
    for (size_t m = 0; m < mr; m++)
#pragma GCC unroll 4
        for (size_t j = 0; j < nv; j++)
            d[m][j] = bytes ? value_start(t, c + j * VL) : (vi){0};
#pragma GCC unroll 2
    for (size_t i = first; i < last; i++) {
        vi v[NV];
#pragma GCC unroll 4
        for (size_t j = 0; j < nv; j++)
            v[j] = load_words(values + 4 * (i * stride + c + j * VL));
#pragma GCC unroll 4
        for (size_t m = 0; m < mr; m++) {
            const vi w = v_pair_of(weights + m * row_bytes + 4 * i);
#pragma GCC unroll 4
            for (size_t j = 0; j < nv; j++)
                d[m][j] = bytes ? v_quads(d[m][j], w, v[j]) : v_pairs(d[m][j], w, v[j]);
        }
    }
    value_add(mr, nv, partial, s, row, c, (const vi(*)[NV])d);
}

/* All columns, in register tiles of nearly equal width: a narrow one alone would wait for its own sums. */
TEG_INLINE void value_rows(const size_t mr, const bool partial, const bool bytes, const struct attend *s,
                           const struct page_view *t, size_t row, size_t first, size_t last)
{
    for (size_t c = 0; c < s->stride;) {
        const size_t left = (s->stride - c) / VL, n_tiles = (left + NV - 1) / NV, n = (left + n_tiles - 1) / n_tiles;
        if (n == NV)
            value_columns(mr, NV, partial, bytes, s, t, row, c, first, last);
        else if (n == 3)
            value_columns(mr, NV > 3 ? 3 : 1, partial, bytes, s, t, row, c, first, last);
        else if (n == 2)
            value_columns(mr, NV > 2 ? 2 : 1, partial, bytes, s, t, row, c, first, last);
        else
            value_columns(mr, 1, partial, bytes, s, t, row, c, first, last);
        c += n * VL;
    }
}

/* ---- all steps ---- */

/* Calls step(rows of a register tile, first row) for all of them; a last one of three has the spare row. */
#define FOR_ROWS(s, step)                                                                                              \
    for (size_t row = 0; row < (s)->n_rows; row += ROWS) {                                                             \
        const size_t left = (s)->n_rows - row;                                                                         \
        if (left > 2)                                                                                                  \
            step(ROWS);                                                                                                \
        else if (left == 2)                                                                                            \
            step(2);                                                                                                   \
        else                                                                                                           \
            step(1);                                                                                                   \
    }

/* A part of the next page, one for each register tile: it is not waited for, and streams hide behind products. */
static void fetch_next(const struct attend *s, const struct page_view *t, size_t row)
{
    const size_t part = (t->next_bytes * ROWS / s->n_rows + 63) / 64 * 64, from = row / ROWS * part;
    for (size_t i = from; t->next && i < from + part && i < t->next_bytes; i += 64)
        __builtin_prefetch(t->next + i, 0, 2);
}

/* Pairs of keys that any of the rows of a register tile sees; none: first >= last. */
static void seen_pairs(const struct attend *s, size_t row, size_t *first, size_t *last)
{
    *first = TOKENS / 2;
    *last = 0;
    for (size_t m = row; m < row + ROWS && m < s->n_rows; m++) {
        if (s->lo[m] >= s->hi[m])
            continue;
        *first = s->lo[m] / 2u < *first ? s->lo[m] / 2u : *first;
        *last = (s->hi[m] + 1u) / 2 > *last ? (s->hi[m] + 1u) / 2 : *last;
    }
}

/* The weights of a row, and their sum; rows of an edge that see nothing have weights of zero. */
TEG_INLINE void weigh_row(const bool partial, const bool bytes, const struct attend *s, const struct page_view *t,
                          size_t row)
{
    const size_t lo = s->lo[row], hi = s->hi[row];
    if (partial && lo >= hi) {
        memset((char *)s->weights + row * weight_row_bytes(bytes), bytes ? ATTEND_FLIP & 0xff : 0,
               weight_row_bytes(bytes));
    } else if (bytes) {
        byte_weights(partial, s, t, partial ? byte_bad(t, lo, hi) : t->bad, row);
    } else if (partial) {
        float to_integer[TEG_TILE_TOKENS] __attribute__((aligned(64)));
        const float unit = weight_integers(t, lo, hi, to_integer);
        word_weights(true, s, to_integer, unit, row);
    } else {
        word_weights(false, s, t->weight, t->weight_unit, row);
    }
}

/* A tile. Where it is partial (at the edge of what some rows see), register tiles of which no row sees a key are left
 * out. */
TEG_INLINE void attend_tile(const bool partial, const bool byte_keys, const bool byte_values, const struct attend *s,
                            const struct page_view *t)
{
    size_t first = 0, last = TOKENS / 2;
#define SCORES(mr)                                                                                                     \
    do {                                                                                                               \
        if (partial)                                                                                                   \
            seen_pairs(s, row, &first, &last);                                                                         \
        else                                                                                                           \
            fetch_next(s, t, row);                                                                                     \
        if (first < last)                                                                                              \
            score_rows(mr, partial, byte_keys, byte_values, s, t, row);                                                \
    } while (0)
#define VALUES(mr)                                                                                                     \
    do {                                                                                                               \
        if (partial)                                                                                                   \
            seen_pairs(s, row, &first, &last);                                                                         \
        if (first < last)                                                                                              \
            value_rows(mr, partial, byte_values, s, t, row, byte_values ? 0 : first, byte_values ? TOKENS / 4 : last); \
    } while (0)
    FOR_ROWS(s, SCORES)
    for (size_t row = 0; row < s->n_rows; row++) {
        if (partial && s->lo[row] >= s->hi[row])
            s->here_top[row] = -FLT_MAX; /* the row stays as it is */
        else if (s->a->softcap > 0)
            cap_scores(byte_values, s, t, row);
    }
    move_tops(s);
    for (size_t row = 0; row < s->n_rows; row++)
        weigh_row(partial, byte_values, s, t, row);
    FOR_ROWS(s, VALUES)
#undef SCORES
#undef VALUES
}

static void view_byte_values(const struct attend *s, struct page_view *t)
{
    t->add = s->a->softcap > 0 ? s->zeros : t->v_scale;
    for (size_t i = 0; i < TOKENS; i += VL)
        v_store(t->inverse + i, v_exp2(v_load(t->v_scale + i) * -1.0f) * (1.0f / ATTEND_BYTE_P_MAX));
    t->v_sums = s->v_sums;
    sum_values(s, t->v);
    t->bad = byte_bad(t, 0, TOKENS);
}
