/* kernel/ref/attend_tmpl.h: attention over pages of integers: products of 16-bit pairs in 32 bits, softmax in floats;
 * pages of bytes take steps of their own (attend_bytes_tmpl.h).
 *
 * Parameters: a vec_*.h included before, and
 *   ATTEND_ROW, ATTEND_ISA, ATTEND_SUFFIX   the record to define, its instruction set, and the end of its names
 *   ATTEND_FAST                             the fastest KV type within the bounds of fast mode
 *   ATTEND_NV                               vectors of a register tile, which is ROWS rows high
 *   v_pairs(s, a, b)   s + a0 · b0 + a1 · b1 for pairs of int16 in each 32-bit lane
 *   v_quads(s, u, a)   s + Σ u · a for four u8 and four s8 in each 32-bit lane; with ATTEND_SIGNED, u are s8 too
 *   v_pair_of(p)       the 32 bits at p in every lane, kept in a register
 *   v_store16(p, a, b) two vectors of int32 as int16
 *   v_codes(p)         VL bytes as int32; v_code_pairs(p): 2 · VL bytes as pairs of int16
 *   v_round(x)         to the nearest int32
 *
 * For each tile of 64 keys: scores of all rows (integers, exact), ROWS at a time; the greatest of each row; weights
 * relative to it and their integers; sums of values (integers, exact), which join the row's float sums with one fused
 * multiply-add. All rows take one step before the next: K, then the scores, then V stay in the first-level cache, and
 * latencies of one row hide behind the others. The floats of a row know nothing of the rows beside it, of the register
 * tile or of the vector width: sums of weights have 16 partial sums everywhere, all else is lane by lane.
 *
 * Keys that a row does not see are replaced after each step that could carry them (score, weight, integer weight);
 * integers of memory that was never written cannot do harm once their weight is zero. */
#include <float.h>

#include "kernel/ref/attend_pages_tmpl.h"
#include "kernel/rows.h"

#define ROWS 4
#define NV ATTEND_NV
#define LOG2E 0x1.715476p0f

_Static_assert(TEG_TILE_TOKENS % (NV * VL) == 0, "a tile of keys is whole register tiles");

#define MOST_ROWS (TEG_ATTENTION_ROWS + 1)
#define ROW_SLOTS (TEG_ATTENTION_ROWS + LANES) /* MOST_ROWS in whole vectors */

/* Query rows of a call. Row n_rows is spare: it fills up the last register tile, and takes what a register tile
 * computes for a row that sees nothing of a page. */
struct attend {
    const struct teg_attention_args *a;
    struct attend_layout layout;
    size_t n_rows, n_pairs, stride;  /* of q and k; columns of v and out, in elements */
    int16_t *q;                      /* [MOST_ROWS, 2 · n_pairs]; i8: bytes [MOST_ROWS, W4] */
    float *sum;                      /* [MOST_ROWS, 16] sums of weights */
    float *out;                      /* [MOST_ROWS, stride] weighted sums of values */
    float *scores;                   /* [MOST_ROWS, 64] */
    int16_t *weights;                /* [MOST_ROWS, 64]; i8: bytes */
    int16_t *k, *v;                  /* expanded page */
    float *unit, *top;               /* [ROW_SLOTS] scale of q; greatest score so far, in powers of two */
    float *here_top, *before, *here; /* [ROW_SLOTS] of a tile: greatest score; factors of earlier sums and the tile's */
    /* i8 only: */
    float *q_float;           /* [MOST_ROWS, W16] queries times the score's factor */
    float *shift, *reference; /* [ROW_SLOTS] of a tile: greatest score less that of the reference; the latter */
    int32_t *start;           /* [ROW_SLOTS] what sums of a score start with, because keys are stored plus 128 */
    int32_t *v_sums;          /* [W16] with ATTEND_SIGNED: what sums of a value start with */
    float *zeros;             /* [64] */
    bool whole;               /* lo and hi are 0 and 64 for all rows */
    uint8_t lo[ROW_SLOTS], hi[ROW_SLOTS]; /* keys of a tile that each row sees; of n_rows: none */
};

struct page_view {
    const int16_t *k, *v;           /* [n_pairs][64][2], [32][stride][2] */
    const float *k_scale, *v_scale; /* [64] */
    float score[TEG_TILE_TOKENS];   /* to a score, but for the query's scale */
    float weight[TEG_TILE_TOKENS];  /* v_scale in integers up to ATTEND_P_MAX */
    float weight_unit;              /* one such integer */
    /* i8: */
    const uint8_t *k_bytes;         /* [W4/4][64][4] */
    const int8_t *v_bytes;          /* [16][W16][4] */
    const int32_t *v_sums;          /* [W16] */
    const float *first, *add;       /* the reference key; [64] what scores get before their greatest is taken */
    float inverse[TEG_TILE_TOKENS]; /* 1 / (255 · value scale) */
    const char *next;               /* the page after this one, or NULL: fetched while this one is worked on */
    size_t next_bytes;
};

/* 2^x for x <= 0, relative error below 2^-18; 2^-126 for anything smaller. |f| <= 1/2, minimax of degree 4. */
static inline vf v_exp2(vf x)
{
    const vf magic = v_set(0x1.8p23f);
    const vf c = v_max(x, v_set(-126.0f)), n = c + magic, f = c - (n - magic);
    vf p = v_set(0x1.3997d6p-7f);
    p = v_fma(p, f, v_set(0x1.ca1442p-5f));
    p = v_fma(p, f, v_set(0x1.ec06dap-3f));
    p = v_fma(p, f, v_set(0x1.62e0dcp-1f));
    p = v_fma(p, f, v_set(0x1.ffffe8p-1f));
    typedef uint32_t bits __attribute__((vector_size(sizeof(vf))));
    return (vf)((bits)p + ((bits)n << 23)); /* modulo 2^32: the bits above the exponent shift out */
}

static inline vi seen(size_t key, size_t lo, size_t hi)
{
    const vi i = v_count((int32_t)key);
    return (i >= (int32_t)lo) & (i < (int32_t)hi);
}

/* ---- a tile ---- */

/* Scores of mr rows for all keys, and the greatest that each row sees. */
TEG_INLINE void score_rows(const size_t mr, const bool partial, const struct attend *s, const struct page_view *t,
                           size_t row)
{
    const size_t n_pairs = s->n_pairs;
    const int16_t *const q = s->q + row * 2 * n_pairs;
    vf greatest[ROWS];
    for (size_t m = 0; m < mr; m++)
        greatest[m] = v_set(-INFINITY);
    for (size_t key = 0; key < TOKENS; key += NV * VL) {
        vi d[ROWS][NV];
#pragma GCC unroll 4
        for (size_t m = 0; m < mr; m++)
#pragma GCC unroll 4
            for (size_t j = 0; j < NV; j++)
                d[m][j] = (vi){0};
#pragma GCC unroll 2
        for (size_t i = 0; i < n_pairs; i++) {
            vi k[NV];
#pragma GCC unroll 4
            for (size_t j = 0; j < NV; j++)
                memcpy(&k[j], t->k + 2 * (i * TOKENS + key + j * VL), sizeof k[j]);
#pragma GCC unroll 4
            for (size_t m = 0; m < mr; m++) {
                const vi pair = v_pair_of(q + 2 * (m * n_pairs + i));
#pragma GCC unroll 4
                for (size_t j = 0; j < NV; j++)
                    d[m][j] = v_pairs(d[m][j], pair, k[j]);
            }
        }
#pragma GCC unroll 4
        for (size_t m = 0; m < mr; m++)
#pragma GCC unroll 4
            for (size_t j = 0; j < NV; j++) {
                const size_t at = key + j * VL;
                const vf x = v_float(d[m][j]) * v_load(t->score + at);
                v_store(s->scores + (row + m) * TOKENS + at, x);
                const vf counted =
                    partial ? v_select(seen(at, s->lo[row + m], s->hi[row + m]), x, v_set(-INFINITY)) : x;
                greatest[m] = v_max(counted, greatest[m]);
            }
    }
    for (size_t m = 0; m < mr; m++)
        s->here_top[row + m] = v_hmax(greatest[m]) * s->unit[row + m];
}

/* Softcap: scores become powers of two on their own. */
static void cap_scores(const struct attend *s, size_t row)
{
    const float cap = s->a->softcap * LOG2E;
    float *const scores = s->scores + row * TOKENS;
    vf greatest = v_set(-INFINITY);
    for (size_t i = 0; i < TOKENS; i += VL) {
        const vf x = v_tanh(v_load(scores + i) * s->unit[row]) * cap;
        greatest = v_max(v_select(seen(i, s->lo[row], s->hi[row]), x, v_set(-INFINITY)), greatest);
        v_store(scores + i, x);
    }
    s->here_top[row] = v_hmax(greatest);
}

/* Factors of the rows' earlier sums and of this tile's: one of the two is 1. A score that is not finite makes both NaN,
 * but for rows that see nothing. */
static void move_tops(const struct attend *s)
{
    for (size_t i = 0; i < s->n_rows; i += VL) {
        const vf old = v_load(s->top + i), here = v_load(s->here_top + i), one = v_set(1.0f), bad = here * 0.0f;
        const vi rises = here > old;
        const vf top = v_select(rises, here, old);
        v_store(s->top + i, top);
        v_store(s->before + i, v_select(rises, v_exp2(old - top), one) + bad);
        v_store(s->here + i, v_select(rises, one, v_exp2(here - top)) + bad);
    }
}

/* Weights relative to the tile's greatest score: their sum joins the row's, their integers are kept. */
TEG_INLINE void weigh_row(const bool partial, const struct attend *s, const float *to_integer, float weight_unit,
                          size_t row)
{
    const float *const scores = s->scores + row * TOKENS;
    int16_t *const weights = s->weights + row * TOKENS;
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
        float *const sum = s->sum + row * LANES + j * VL;
        v_store(sum, v_fma(sums[j], v_set(here), v_load(sum) * s->before[row]));
    }
    s->here[row] = here * weight_unit;
}

/* out = out · before + here · d; rows that see no key go to a place behind the rows. */
TEG_INLINE void value_add(const size_t mr, const size_t nv, const bool partial, const struct attend *s, size_t row,
                          size_t c, const vi (*d)[NV])
{
#pragma GCC unroll 4
    for (size_t m = 0; m < mr; m++) {
        const bool sees = !partial || s->lo[row + m] < s->hi[row + m];
        float *const out = s->out + (sees ? row + m : s->n_rows) * s->stride + c;
        const vf here = v_set(s->here[row + m]), before = v_set(s->before[row + m]);
#pragma GCC unroll 4
        for (size_t j = 0; j < nv; j++)
            v_store(out + j * VL, v_fma(v_float(d[m][j]), here, v_load(out + j * VL) * before));
    }
}

/* out = out · before + here · Σ weight · v over pairs first … last - 1 of keys, nv vectors of columns from c on. */
TEG_INLINE void value_columns(const size_t mr, const size_t nv, const bool partial, const struct attend *s,
                              const struct page_view *t, size_t row, size_t c, size_t first, size_t last)
{
    const size_t stride = s->stride;
    const int16_t *const weights = s->weights + row * TOKENS;
    vi d[ROWS][NV];
#pragma GCC unroll 4
    for (size_t m = 0; m < mr; m++)
#pragma GCC unroll 4
        for (size_t j = 0; j < nv; j++)
            d[m][j] = (vi){0};
#pragma GCC unroll 2
    for (size_t i = first; i < last; i++) {
        vi v[NV];
#pragma GCC unroll 4
        for (size_t j = 0; j < nv; j++)
            memcpy(&v[j], t->v + 2 * (i * stride + c + j * VL), sizeof v[j]);
#pragma GCC unroll 4
        for (size_t m = 0; m < mr; m++) {
            const vi w = v_pair_of(weights + m * TOKENS + 2 * i);
#pragma GCC unroll 4
            for (size_t j = 0; j < nv; j++)
                d[m][j] = v_pairs(d[m][j], w, v[j]);
        }
    }
    value_add(mr, nv, partial, s, row, c, (const vi(*)[NV])d);
}

/* All columns, in register tiles of nearly equal width: a narrow one alone would wait for its own sums. */
TEG_INLINE void value_rows(const size_t mr, const bool partial, const struct attend *s, const struct page_view *t,
                           size_t row, size_t first, size_t last)
{
    for (size_t c = 0; c < s->stride;) {
        const size_t left = (s->stride - c) / VL, n_tiles = (left + NV - 1) / NV, n = (left + n_tiles - 1) / n_tiles;
        if (n == NV)
            value_columns(mr, NV, partial, s, t, row, c, first, last);
        else if (n == 3)
            value_columns(mr, NV > 3 ? 3 : 1, partial, s, t, row, c, first, last);
        else if (n == 2)
            value_columns(mr, NV > 2 ? 2 : 1, partial, s, t, row, c, first, last);
        else
            value_columns(mr, 1, partial, s, t, row, c, first, last);
        c += n * VL;
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

/* A tile that all rows see whole. */
static void attend_whole(const struct attend *s, const struct page_view *t)
{
#define SCORES(mr)                                                                                                     \
    do {                                                                                                               \
        fetch_next(s, t, row);                                                                                         \
        score_rows(mr, false, s, t, row);                                                                              \
    } while (0)
#define VALUES(mr) value_rows(mr, false, s, t, row, 0, TOKENS / 2)
    FOR_ROWS(s, SCORES)
    for (size_t row = 0; row < s->n_rows && s->a->softcap > 0; row++)
        cap_scores(s, row);
    move_tops(s);
    for (size_t row = 0; row < s->n_rows; row++)
        weigh_row(false, s, t->weight, t->weight_unit, row);
    FOR_ROWS(s, VALUES)
#undef SCORES
#undef VALUES
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

/* A tile at the edge of what some rows see. Register tiles of which no row sees a key are left out. */
static void attend_edge(const struct attend *s, const struct page_view *t)
{
    float to_integer[TEG_TILE_TOKENS] __attribute__((aligned(64)));
    size_t first, last;
#define SCORES(mr)                                                                                                     \
    do {                                                                                                               \
        seen_pairs(s, row, &first, &last);                                                                             \
        if (first < last)                                                                                              \
            score_rows(mr, true, s, t, row);                                                                           \
    } while (0)
#define VALUES(mr)                                                                                                     \
    do {                                                                                                               \
        seen_pairs(s, row, &first, &last);                                                                             \
        if (first < last)                                                                                              \
            value_rows(mr, true, s, t, row, first, last);                                                              \
    } while (0)
    FOR_ROWS(s, SCORES)
    for (size_t row = 0; row < s->n_rows; row++) {
        if (s->lo[row] >= s->hi[row])
            s->here_top[row] = -FLT_MAX; /* the row stays as it is */
        else if (s->a->softcap > 0)
            cap_scores(s, row);
    }
    move_tops(s);
    for (size_t row = 0; row < s->n_rows; row++) {
        if (s->lo[row] < s->hi[row])
            weigh_row(true, s, to_integer, weight_integers(t, s->lo[row], s->hi[row], to_integer), row);
        else
            memset(s->weights + row * TOKENS, 0, TOKENS * sizeof *s->weights);
    }
    FOR_ROWS(s, VALUES)
#undef SCORES
#undef VALUES
}

#include "kernel/ref/attend_bytes_tmpl.h"

/* ---- a call ---- */

static size_t first_key(const struct teg_attention_args *a, size_t position)
{
    return a->window && position >= a->window ? position + 1 - a->window : 0;
}

static size_t within_tile(size_t key, size_t tile)
{
    const size_t base = tile * TOKENS;
    return key <= base ? 0 : key - base < TOKENS ? key - base : TOKENS;
}

/* Keys of the tile that each row sees; true where every row sees all. */
static bool look(struct attend *s, size_t tile)
{
    const struct teg_attention_args *const a = s->a;
    const size_t last = a->first_position + a->n_tokens - 1;
    const bool whole = first_key(a, last) <= tile * TOKENS && a->first_position + 1 >= (tile + 1) * TOKENS;
    for (size_t t = 0; t < a->n_tokens && !(whole && s->whole); t++) {
        const size_t lo = within_tile(first_key(a, a->first_position + t), tile);
        const size_t hi = within_tile(a->first_position + t + 1, tile);
        memset(s->lo + t * a->group, (int)lo, a->group);
        memset(s->hi + t * a->group, (int)hi, a->group);
    }
    return s->whole = whole;
}

/* Of q · k, to a score in powers of two, or to what softcap takes the tanh of. */
static float score_factor(const struct teg_attention_args *a)
{
    return a->softcap > 0 ? a->scale / a->softcap : a->scale * LOG2E;
}

TEG_INLINE void view_page(const enum teg_kv_type type, const struct attend *s, size_t tile, struct page_view *t)
{
    const struct teg_attention_args *const a = s->a;
    const char *const page = (const char *)a->pages[tile] + a->page_offset_bytes;
    const float scale = score_factor(a);
    const size_t last = (a->first_position + a->n_tokens - 1) / TOKENS;
    t->next = tile < last ? (const char *)a->pages[tile + 1] + a->page_offset_bytes : NULL;
    t->next_bytes = s->layout.n_bytes;
    t->k = (const int16_t *)(const void *)page;
    t->v = (const int16_t *)(const void *)(page + s->layout.v);
    t->k_scale = (const float *)(const void *)(page + s->layout.k_scale);
    t->v_scale = (const float *)(const void *)(page + s->layout.v_scale);
    for (size_t i = 0; i < TOKENS; i += VL)
        v_store(t->score + i, v_load(t->k_scale + i) * scale);
    if (type == TEG_KV_I8) {
        view_bytes(s, page, t);
        return;
    }
    if (type != TEG_KV_I16) {
        expand_k(type, &s->layout, page, s->k);
        expand_v(type, &s->layout, page, s->v);
        t->k = s->k;
        t->v = s->v;
    }
    t->weight_unit = weight_integers(t, 0, TOKENS, t->weight);
}

static void start_row(enum teg_kv_type type, struct attend *s, size_t row)
{
    const struct teg_attention_args *const a = s->a;
    const float *const q = a->q + row / a->group * a->q_stride + row % a->group * a->head_width;
    const float scale = type == TEG_KV_I8 ? byte_query(s, q, row, score_factor(a))
                                          : round_query(q, a->head_width, 2 * s->n_pairs,
                                                        query_unit(type, a->head_width), s->q + row * 2 * s->n_pairs);
    const bool bad = isnan(scale);
    s->unit[row] = bad ? 1.0f : scale;
    s->top[row] = a->sinks ? a->sinks[row % a->group] * LOG2E : -INFINITY;
    s->sum[row * LANES] = bad ? NAN : a->sinks ? 1.0f : 0.0f;
}

/* Cuts the scratch (teg_attend_scratch_floats) into parts, each a multiple of 16 floats. */
static void cut_scratch(enum teg_kv_type type, struct attend *s)
{
    const struct attend_layout l = s->layout;
    float *at = s->a->scratch;
    if (type == TEG_KV_I8) {
        s->q_float = at, at += MOST_ROWS * l.w16;
        s->shift = at, at += ROW_SLOTS;
        s->reference = at, at += ROW_SLOTS;
        s->start = (int32_t *)(void *)at, at += ROW_SLOTS;
        s->v_sums = (int32_t *)(void *)at, at += l.w16;
        s->zeros = at, at += TOKENS;
    } else {
        s->k = (int16_t *)(void *)at, at += l.w32 * TOKENS / 2;
        s->v = (int16_t *)(void *)at, at += l.w32 * TOKENS / 2;
    }
    s->scores = at, at += MOST_ROWS * TOKENS;
    s->weights = (int16_t *)(void *)at, at += MOST_ROWS * TOKENS / 2;
    s->out = at, at += MOST_ROWS * l.w32;
    s->sum = at, at += MOST_ROWS * LANES;
    s->q = (int16_t *)(void *)at, at += MOST_ROWS * l.w32 / 2;
    s->unit = at, at += ROW_SLOTS;
    s->top = at, at += ROW_SLOTS;
    s->here_top = at, at += ROW_SLOTS;
    s->before = at, at += ROW_SLOTS;
    s->here = at;
}

/* Starts every row: nothing seen, or only its sink. */
static void attend_start(enum teg_kv_type type, const struct teg_attention_args *a, struct attend *s)
{
    const struct attend_layout l = attend_layout(type, a->head_width);
    const bool i8 = type == TEG_KV_I8, whole_vectors = i8 || type == TEG_KV_I16;
    *s = (struct attend){.a = a, .layout = l, .n_rows = a->n_tokens * a->group};
    s->n_pairs = (type == TEG_KV_I16 ? l.w2 : l.w32) / 2;
    s->stride = whole_vectors ? l.w16 : l.w32;
    cut_scratch(type, s);
    memset(s->out, 0, (s->n_rows + 1) * s->stride * sizeof *s->out);
    memset(s->sum, 0, (s->n_rows + 1) * LANES * sizeof *s->sum);
    if (i8) {
        start_bytes(s);
    } else {
        memset(s->q + s->n_rows * 2 * s->n_pairs, 0, 2 * s->n_pairs * sizeof *s->q);
        memset(s->weights + s->n_rows * TOKENS, 0, TOKENS * sizeof *s->weights);
    }
    for (float *p = s->unit; p < s->here + ROW_SLOTS; p++)
        *p = 0;
    for (size_t row = 0; row < s->n_rows; row++)
        start_row(type, s, row);
}

static void attend_finish(enum teg_kv_type type, const struct attend *s)
{
    const struct teg_attention_args *const a = s->a;
    for (size_t row = 0; row < s->n_rows; row++) {
        float *const from = s->out + row * s->stride;
        if (type == TEG_KV_I8)
            turn(from, s->stride, turn_block(a->head_width));
        const float sum = sum_lanes(s->sum + row * LANES);
        float *const out = a->out + row / a->group * a->out_stride + row % a->group * a->head_width;
        for (size_t c = 0; c < a->head_width; c += VL)
            v_store_n(out + c, v_load(from + c) / sum, a->head_width - c);
    }
}

TEG_INLINE void attend(const enum teg_kv_type type, const struct teg_attention_args *a)
{
    struct attend s;
    struct page_view t;
    if (a->n_tokens == 0)
        return;
    attend_start(type, a, &s);
    const size_t last = a->first_position + a->n_tokens - 1;
    for (size_t tile = first_key(a, a->first_position) / TOKENS; tile <= last / TOKENS; tile++) {
        view_page(type, &s, tile, &t);
        const bool whole = look(&s, tile);
        if (type == TEG_KV_I8)
            (whole ? attend_bytes_whole : attend_bytes_edge)(&s, &t);
        else
            (whole ? attend_whole : attend_edge)(&s, &t);
    }
    attend_finish(type, &s);
}

static void attend_i16(const struct teg_attention_args *a)
{
    attend(TEG_KV_I16, a);
}

static void attend_q8(const struct teg_attention_args *a)
{
    attend(TEG_KV_Q8, a);
}

static void attend_q4(const struct teg_attention_args *a)
{
    attend(TEG_KV_Q4, a);
}

static void attend_i8(const struct teg_attention_args *a)
{
    attend(TEG_KV_I8, a);
}

const struct teg_attend_row ATTEND_ROW = {.isa = ATTEND_ISA,
                                          .fast = ATTEND_FAST,
                                          .of = {
                                              [TEG_KV_I16] = {"attend_i16_" ATTEND_SUFFIX, append_i16, attend_i16},
                                              [TEG_KV_I8] = {"attend_i8_" ATTEND_SUFFIX, append_i8, attend_i8},
                                              [TEG_KV_Q8] = {"attend_q8_" ATTEND_SUFFIX, append_q8, attend_q8},
                                              [TEG_KV_Q4] = {"attend_q4_" ATTEND_SUFFIX, append_q4, attend_q4},
                                          }};
