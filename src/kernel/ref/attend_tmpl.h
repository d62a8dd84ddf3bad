/* kernel/ref/attend_tmpl.h: attention over pages of integers: products of 16-bit pairs in 32 bits, softmax in floats.
 *
 * Parameters: a vec_*.h included before, and
 *   ATTEND_ROW, ATTEND_ISA, ATTEND_SUFFIX   the record to define, its instruction set, and the end of its names
 *   ATTEND_NV                               vectors of a register tile, which is ROWS rows high
 *   v_pairs(s, a, b)   s + a0 · b0 + a1 · b1 for pairs of int16 in each 32-bit lane
 *   v_pair_of(p)       the pair at p in every lane, kept in a register
 *   v_store16(p, v)    VL int32 as int16
 *   v_round(x)         to the nearest int32
 *
 * For each tile of 64 keys and ROWS query rows: scores (integers, exact), the greatest of each row, weights relative to
 * it, their integers, and the sum of values (integers, exact), which joins the row's float sum with one fused
 * multiply-add. So the floats of a row know nothing of the rows beside it, of the register tile or of the vector width:
 * sums of weights have 16 partial sums everywhere, everything else is lane by lane.
 *
 * Keys that a row does not see are replaced after each step that could carry them (score, weight, integer weight);
 * integers of memory that was never written cannot do harm once their weight is zero. */
#include "kernel/ref/attend_pages_tmpl.h"
#include "kernel/rows.h"

#define ROWS 4
#define NV ATTEND_NV
#define LOG2E 0x1.715476p0f

_Static_assert(TEG_TILE_TOKENS % (NV * VL) == 0, "a tile of keys is whole register tiles");

/* Query rows of a call. Row n_rows is where rows that see nothing of a tile, or do not exist, put what they compute. */
struct attend {
    const struct teg_attention_args *a;
    enum teg_kv_type type;
    struct attend_layout layout;
    size_t n_rows, n_pairs, stride; /* of q and k; columns of v and out, in elements */
    int16_t *q;                     /* [n_rows, 2 · n_pairs] */
    float *unit;                    /* [n_rows] scale of q */
    float *top;                     /* [n_rows + 1] greatest score so far, in powers of two */
    float *sum;                     /* [n_rows + 1, 16] sums of weights */
    float *out;                     /* [n_rows + 1, stride] weighted sums of values */
    int16_t *k, *v;                 /* expanded page */
};

struct page_view {
    const int16_t *k, *v;           /* [n_pairs][64][2], [32][stride][2] */
    const float *k_scale, *v_scale; /* [64] */
    float score[TEG_TILE_TOKENS];   /* to a score, but for the query's scale */
    float weight[TEG_TILE_TOKENS];  /* v_scale in integers up to ATTEND_P_MAX */
    float weight_unit;              /* one such integer */
    float bad;                      /* 0, or NaN where a scale is */
};

/* Rows that go through a tile together. */
struct row_group {
    const int16_t *q[ROWS];
    size_t row[ROWS], lo[ROWS], hi[ROWS];
    float unit[ROWS];
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
    return (vf)((vi)p + ((vi)n << 23));
}

static inline vi seen(size_t key, size_t lo, size_t hi)
{
    const vi i = v_count((int32_t)key);
    return (i >= (int32_t)lo) & (i < (int32_t)hi);
}

/* ---- a tile ---- */

/* Scores of mr rows for all keys, and the greatest that each row sees. */
TEG_INLINE void score_rows(const size_t mr, const bool partial, const struct attend *s, const struct page_view *t,
                           const struct row_group *g, float *scores, float *top)
{
    const float cap = s->a->softcap * LOG2E;
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
        for (size_t i = 0; i < s->n_pairs; i++) {
            vi k[NV];
#pragma GCC unroll 4
            for (size_t j = 0; j < NV; j++)
                memcpy(&k[j], t->k + 2 * (i * TOKENS + key + j * VL), sizeof k[j]);
#pragma GCC unroll 4
            for (size_t m = 0; m < mr; m++) {
                const vi q = v_pair_of(g->q[m] + 2 * i);
#pragma GCC unroll 4
                for (size_t j = 0; j < NV; j++)
                    d[m][j] = v_pairs(d[m][j], q, k[j]);
            }
        }
#pragma GCC unroll 4
        for (size_t m = 0; m < mr; m++)
#pragma GCC unroll 4
            for (size_t j = 0; j < NV; j++) {
                vf x = v_float(d[m][j]) * v_load(t->score + key + j * VL);
                if (cap > 0)
                    x = v_tanh(x * g->unit[m]) * cap;
                if (partial)
                    x = v_select(seen(key + j * VL, g->lo[m], g->hi[m]), x, v_set(-INFINITY));
                greatest[m] = v_max(x, greatest[m]);
                v_store(scores + m * TOKENS + key + j * VL, x);
            }
    }
    for (size_t m = 0; m < mr; m++)
        top[m] = v_hmax(greatest[m]) * (cap > 0 ? 1.0f : g->unit[m]);
}

/* What a row's earlier sums and this tile's are multiplied by: factors[m], factors[ROWS + m]. */
static void move_tops(size_t mr, const struct attend *s, const struct row_group *g, const float *top, float *factors)
{
    float moves[LANES] = {0};
    _Static_assert(2 * ROWS <= LANES, "all factors in one go");
    for (size_t m = 0; m < mr; m++) {
        float *const before = &s->top[g->row[m]];
        const float after = top[m] > *before ? top[m] : *before;
        moves[m] = *before - after;
        moves[ROWS + m] = top[m] - after;
        *before = after;
    }
    for (size_t i = 0; i < LANES; i += VL)
        v_store(moves + i, v_exp2(v_load(moves + i)));
    memcpy(factors, moves, 2 * ROWS * sizeof *factors);
}

/* Weights relative to the tile's greatest score: their sum joins the row's, their integers go to `weights`. */
TEG_INLINE void weigh_row(const bool partial, const struct attend *s, const float *scores, float top, float unit,
                          const float *to_integer, size_t row, size_t lo, size_t hi, float before, float here,
                          int16_t *weights)
{
    vf sums[LANES / VL];
    for (size_t i = 0; i < TOKENS; i += VL) {
        vf w = v_exp2(v_fma(v_load(scores + i), v_set(unit), v_set(-top)));
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
        v_store16(weights + i, integer);
    }
    for (size_t j = 0; j < LANES / VL; j++) {
        float *const sum = s->sum + row * LANES + j * VL;
        v_store(sum, v_fma(sums[j], v_set(here), v_load(sum) * before));
    }
}

/* out = out · before + here · Σ weight · v over pairs first … last - 1 of keys, nv vectors of columns from c on. */
TEG_INLINE void value_columns(const size_t mr, const size_t nv, const struct attend *s, const struct page_view *t,
                              const struct row_group *g, const int16_t *weights, size_t c, size_t first, size_t last,
                              const float *before, const float *here)
{
    vi d[ROWS][NV];
#pragma GCC unroll 4
    for (size_t m = 0; m < mr; m++)
#pragma GCC unroll 4
        for (size_t j = 0; j < nv; j++)
            d[m][j] = (vi){0};
    for (size_t i = first; i < last; i++) {
        vi v[NV];
#pragma GCC unroll 4
        for (size_t j = 0; j < nv; j++)
            memcpy(&v[j], t->v + 2 * (i * s->stride + c + j * VL), sizeof v[j]);
#pragma GCC unroll 4
        for (size_t m = 0; m < mr; m++) {
            const vi w = v_pair_of(weights + m * TOKENS + 2 * i);
#pragma GCC unroll 4
            for (size_t j = 0; j < nv; j++)
                d[m][j] = v_pairs(d[m][j], w, v[j]);
        }
    }
#pragma GCC unroll 4
    for (size_t m = 0; m < mr; m++) {
        float *const out = s->out + g->row[m] * s->stride + c;
#pragma GCC unroll 4
        for (size_t j = 0; j < nv; j++)
            v_store(out + j * VL, v_fma(v_float(d[m][j]), v_set(here[m]), v_load(out + j * VL) * before[m]));
    }
}

TEG_INLINE void value_rows(const size_t mr, const struct attend *s, const struct page_view *t,
                           const struct row_group *g, const int16_t *weights, size_t first, size_t last,
                           const float *before, const float *here)
{
    size_t c = 0;
    for (; c + NV * VL <= s->stride; c += NV * VL)
        value_columns(mr, NV, s, t, g, weights, c, first, last, before, here);
    for (; c < s->stride; c += VL)
        value_columns(mr, 1, s, t, g, weights, c, first, last, before, here);
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

TEG_INLINE void attend_group(const size_t mr, const bool partial, const struct attend *s, const struct page_view *t,
                             const struct row_group *g)
{
    float scores[ROWS * TEG_TILE_TOKENS] __attribute__((aligned(64)));
    int16_t weights[ROWS * TEG_TILE_TOKENS] __attribute__((aligned(64)));
    float integers_of[TEG_TILE_TOKENS] __attribute__((aligned(64)));
    float top[ROWS], factors[2 * ROWS];
    size_t first = TOKENS, last = 0;
    score_rows(mr, partial, s, t, g, scores, top);
    move_tops(mr, s, g, top, factors);
    for (size_t m = 0; m < mr; m++) {
        const float *to_integer = t->weight;
        float *const here = &factors[ROWS + m], unit = t->weight_unit;
        if (partial && g->lo[m] < g->hi[m]) {
            unit = weight_integers(t, g->lo[m], g->hi[m], integers_of);
            to_integer = integers_of;
            first = g->lo[m] / 2 < first ? g->lo[m] / 2 : first;
            last = (g->hi[m] + 1) / 2 > last ? (g->hi[m] + 1) / 2 : last;
        }
        const float scale = s->a->softcap > 0 ? 1.0f : g->unit[m];
        weigh_row(partial, s, scores + m * TOKENS, top[m], scale, to_integer, g->row[m], g->lo[m], g->hi[m], factors[m],
                  *here, weights + m * TOKENS);
        *here *= unit;
        /* A score that is not finite, or a scale that is NaN, makes NaN of the row. */
        s->sum[g->row[m] * LANES] += top[m] * 0.0f + unit * 0.0f;
    }
    value_rows(mr, s, t, g, weights, partial ? first : 0, partial ? last : TOKENS / 2, factors, factors + ROWS);
}

/* Rows of a group that does not fill a register tile are made up by the spare row. */
static void attend_any(const struct attend *s, const struct page_view *t, const struct row_group *g, size_t n,
                       bool partial)
{
    if (partial) {
        n == 1   ? attend_group(1, true, s, t, g)
        : n == 2 ? attend_group(2, true, s, t, g)
                 : attend_group(ROWS, true, s, t, g);
        return;
    }
    n == 1   ? attend_group(1, false, s, t, g)
    : n == 2 ? attend_group(2, false, s, t, g)
             : attend_group(ROWS, false, s, t, g);
}

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

/* Fills the group of rows from `first`; false where none of them sees a key of the tile. */
static bool make_group(const struct attend *s, size_t first, size_t tile, struct row_group *g, bool *partial)
{
    const struct teg_attention_args *const a = s->a;
    bool any = false;
    *partial = false;
    for (size_t m = 0; m < ROWS; m++) {
        const size_t row = first + m < s->n_rows ? first + m : s->n_rows - 1;
        const size_t position = a->first_position + row / a->group;
        g->q[m] = s->q + row * 2 * s->n_pairs;
        g->unit[m] = s->unit[row];
        g->lo[m] = within_tile(first_key(a, position), tile);
        g->hi[m] = within_tile(position + 1, tile);
        const bool sees = g->lo[m] < g->hi[m] && first + m < s->n_rows;
        g->row[m] = sees ? row : s->n_rows;
        *partial |= g->hi[m] - g->lo[m] < TOKENS || g->lo[m] > g->hi[m];
        any |= sees;
    }
    return any;
}

TEG_INLINE void view_page(const enum teg_kv_type type, const struct attend *s, size_t tile, struct page_view *t)
{
    const struct teg_attention_args *const a = s->a;
    const char *const page = (const char *)a->pages[tile] + a->page_offset_bytes;
    const float scale = a->softcap > 0 ? a->scale / a->softcap : a->scale * LOG2E;
    t->k = (const int16_t *)(const void *)page;
    t->v = (const int16_t *)(const void *)(page + s->layout.v);
    t->k_scale = (const float *)(const void *)(page + s->layout.k_scale);
    t->v_scale = (const float *)(const void *)(page + s->layout.v_scale);
    if (type != TEG_KV_I16) {
        expand_k(type, &s->layout, page, s->k);
        expand_v(type, &s->layout, page, s->v);
        t->k = s->k;
        t->v = s->v;
    }
    for (size_t i = 0; i < TOKENS; i += VL)
        v_store(t->score + i, v_load(t->k_scale + i) * scale);
    t->weight_unit = weight_integers(t, 0, TOKENS, t->weight);
}

/* Cuts the scratch (teg_attend_scratch_floats) and starts every row: nothing seen, or only its sink. */
static void attend_start(enum teg_kv_type type, const struct teg_attention_args *a, struct attend *s)
{
    const struct attend_layout l = attend_layout(type, a->head_width);
    const bool i16 = type == TEG_KV_I16;
    s->a = a;
    s->type = type;
    s->layout = l;
    s->n_rows = a->n_tokens * a->group;
    s->n_pairs = (i16 ? l.w2 : l.w32) / 2;
    s->stride = i16 ? l.w16 : l.w32;
    float *at = a->scratch; /* parts that vectors touch first: each is a multiple of 16 floats */
    s->out = at, at += (TEG_ATTENTION_ROWS + 1) * l.w32;
    s->sum = at, at += (TEG_ATTENTION_ROWS + 1) * LANES;
    s->k = (int16_t *)(void *)at, at += l.w32 * TOKENS / 2;
    s->v = (int16_t *)(void *)at, at += l.w32 * TOKENS / 2;
    s->q = (int16_t *)(void *)at, at += TEG_ATTENTION_ROWS * l.w32 / 2;
    s->unit = at, at += TEG_ATTENTION_ROWS;
    s->top = at;
    memset(s->out, 0, (s->n_rows + 1) * s->stride * sizeof *s->out);
    memset(s->sum, 0, (s->n_rows + 1) * LANES * sizeof *s->sum);
    s->top[s->n_rows] = 0;
    const float unit = query_unit(type, a->head_width);
    for (size_t row = 0; row < s->n_rows; row++) {
        const float *const q = a->q + row / a->group * a->q_stride + row % a->group * a->head_width;
        const float scale = round_query(q, a->head_width, 2 * s->n_pairs, unit, s->q + row * 2 * s->n_pairs);
        const bool bad = isnan(scale);
        s->unit[row] = bad ? 1.0f : scale;
        s->top[row] = a->sinks ? a->sinks[row % a->group] * LOG2E : -INFINITY;
        s->sum[row * LANES] = bad ? NAN : a->sinks ? 1.0f : 0.0f;
    }
}

static void attend_finish(const struct attend *s)
{
    const struct teg_attention_args *const a = s->a;
    for (size_t row = 0; row < s->n_rows; row++) {
        const float *const from = s->out + row * s->stride;
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
        for (size_t row = 0; row < s.n_rows; row += ROWS) {
            struct row_group g;
            bool partial;
            if (make_group(&s, row, tile, &g, &partial))
                attend_any(&s, &t, &g, s.n_rows - row, partial);
        }
    }
    attend_finish(&s);
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

const struct teg_attend_row ATTEND_ROW = {.isa = ATTEND_ISA,
                                          .of = {
                                              [TEG_KV_I16] = {"attend_i16_" ATTEND_SUFFIX, append_i16, attend_i16},
                                              [TEG_KV_Q8] = {"attend_q8_" ATTEND_SUFFIX, append_q8, attend_q8},
                                              [TEG_KV_Q4] = {"attend_q4_" ATTEND_SUFFIX, append_q4, attend_q4},
                                          }};
