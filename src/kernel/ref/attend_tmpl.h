/* kernel/ref/attend_tmpl.h: attention over pages of integers: products of pairs of int16 or of four bytes, summed
 * exactly in 32 bits; softmax in floats.
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
 * Tiles of 64 keys (attend_tile_tmpl.h) join the sums of their range of TEG_RANGE_TOKENS keys, relative to its greatest
 * score so far; ranges, which know nothing of one another, join the result in order. So ranges may be computed by
 * different threads, and the bits are those of one thread that computes all. The floats of a row know nothing of the
 * rows beside it, of the register tile or of the vector width: sums of weights have 16 partial sums everywhere, all
 * else is lane by lane. Not taken: one running sum over all tiles, which no two threads can share. */
#include <float.h>

#include "kernel/ref/attend_pages_tmpl.h"
#include "kernel/rows.h"

#define ROWS 4
#define NV ATTEND_NV
#define LOG2E 0x1.715476p0f
#define RANGE_TILES ((size_t)TEG_RANGE_TOKENS / TOKENS)

_Static_assert(TEG_TILE_TOKENS % (NV * VL) == 0, "a tile of keys is whole register tiles");

#define MOST_ROWS (TEG_ATTENTION_ROWS + 1)
#define ROW_SLOTS (TEG_ATTENTION_ROWS + LANES) /* MOST_ROWS in whole vectors */

/* What a row has seen: sums relative to 2^top. */
struct seen_sums {
    float *top; /* [ROW_SLOTS] greatest score, in powers of two */
    float *sum; /* [MOST_ROWS, 16] sums of weights */
    float *out; /* [MOST_ROWS, stride] weighted sums of values */
};

/* Query rows of a call. Row n_rows is spare: it fills up the last register tile, and takes what a register tile
 * computes for a row that sees nothing of a page. Parts that only some types use are NULL for others. */
struct attend {
    const struct teg_attention_args *a;
    struct attend_layout layout;
    size_t n_rows, q_words, stride; /* q_words: 4 bytes of query and key; stride: columns of v and out */
    void *q;                        /* [MOST_ROWS, q_words] pairs of int16, or fours of int8 */
    struct seen_sums here_range, all;
    float *scores;                   /* [MOST_ROWS, 64] */
    void *weights;                   /* [MOST_ROWS, 64] int16 or uint8 */
    float *unit;                     /* [ROW_SLOTS] scale of q; NaN where q is not finite */
    float *here_top, *before, *here; /* [ROW_SLOTS] of a tile: greatest score; factors of earlier sums and the tile's */
    float *shift, *reference;        /* [ROW_SLOTS] of a tile: greatest score less that of the reference; the latter */
    int16_t *k, *v;                  /* q8, q4: the expanded page */
    /* byte keys: */
    float *q_float; /* [MOST_ROWS, W16] queries times the score's factor */
    int32_t *start; /* [ROW_SLOTS] what sums of a score start with, because keys are stored plus 128 */
    /* byte values: */
    int32_t *v_sums;                      /* [W16] with ATTEND_SIGNED: what sums of a value start with */
    float *zeros;                         /* [64] */
    bool whole;                           /* lo and hi are 0 and 64 for all rows */
    uint8_t lo[ROW_SLOTS], hi[ROW_SLOTS]; /* keys of a tile that each row sees; of n_rows: none */
};

struct page_view {
    const void *k, *v;              /* words [q_words][64], [keys / 2 or / 4][stride] */
    const float *k_scale, *v_scale; /* [64] */
    float score[TEG_TILE_TOKENS];   /* to a score, but for the query's scale */
    const float *first;             /* byte keys: the reference key */
    /* word values: */
    float weight[TEG_TILE_TOKENS]; /* v_scale in integers up to ATTEND_P_MAX */
    float weight_unit;             /* one such integer */
    /* byte values: */
    const int32_t *v_sums;          /* [W16] */
    const float *add;               /* [64] what scores get before their greatest is taken */
    float inverse[TEG_TILE_TOKENS]; /* 1 / (255 · value scale) */
    float bad;                      /* 0, or NaN where a scale is not finite */
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

static float exp2_of(float x)
{
    float out[VL];
    v_store(out, v_exp2(v_set(x)));
    return out[0];
}

#include "kernel/ref/attend_bytes_tmpl.h"
#include "kernel/ref/attend_tile_tmpl.h"

/* ---- a page ---- */

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
    t->k = page;
    t->v = page + s->layout.v;
    t->k_scale = (const float *)(const void *)(page + s->layout.k_scale);
    t->v_scale = (const float *)(const void *)(page + s->layout.v_scale);
    t->first = (const float *)(const void *)(page + s->layout.k_first);
    for (size_t i = 0; i < TOKENS; i += VL)
        v_store(t->score + i, v_load(t->k_scale + i) * scale);
    if (attend_byte_values(type)) {
        view_byte_values(s, t);
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

/* ---- ranges ---- */

/* A part of the scratch, in whole vectors. */
static void *take(float **at, size_t n_floats)
{
    float *const p = *at;
    *at += attend_round(n_floats, LANES);
    return p;
}

static void take_sums(float **at, size_t stride, struct seen_sums *sums)
{
    sums->top = take(at, ROW_SLOTS);
    sums->sum = take(at, MOST_ROWS * LANES);
    sums->out = take(at, MOST_ROWS * stride);
}

/* Nothing seen. */
static void start_sums(const struct attend *s, const struct seen_sums *sums)
{
    for (size_t i = 0; i < ROW_SLOTS; i += VL)
        v_store(sums->top + i, v_set(-INFINITY));
    memset(sums->sum, 0, (s->n_rows + 1) * LANES * sizeof *sums->sum);
    memset(sums->out, 0, (s->n_rows + 1) * s->stride * sizeof *sums->out);
}

/* Nothing seen but the sinks. Without sinks a row starts with its first range. */
static void start_all(const struct attend *s)
{
    if (!s->a->sinks)
        return;
    start_sums(s, &s->all);
    for (size_t row = 0; row < s->n_rows; row++) {
        s->all.top[row] = s->a->sinks[row % s->a->group] * LOG2E;
        s->all.sum[row * LANES] = 1.0f;
    }
}

/* Sums of the next range join those of a row. What a row gets must not hang on ranges that only others see. */
static void join_row(const struct attend *s, size_t range, size_t row, float here, const float *sum, const float *out)
{
    const struct teg_attention_args *const a = s->a;
    const size_t position = a->first_position + row / a->group, seen_from = first_key(a, position);
    float *const all_sum = s->all.sum + row * LANES, *const all_out = s->all.out + row * s->stride;
    const float old = s->all.top[row];
    if (position < range * TEG_RANGE_TOKENS || seen_from >= (range + 1) * TEG_RANGE_TOKENS)
        return;
    if (!a->sinks && seen_from >= range * TEG_RANGE_TOKENS) {
        s->all.top[row] = here;
        memcpy(all_sum, sum, LANES * sizeof *sum);
        memcpy(all_out, out, s->stride * sizeof *out);
        return;
    }
    const vf one = v_set(1.0f);
    const vf before = here > old ? v_exp2(v_set(old - here)) : one, ours = here > old ? one : v_exp2(v_set(here - old));
    s->all.top[row] = here > old ? here : old;
    for (size_t j = 0; j < LANES; j += VL)
        v_store(all_sum + j, v_fma(v_load(sum + j), ours, v_load(all_sum + j) * before));
    for (size_t c = 0; c < s->stride; c += VL)
        v_store(all_out + c, v_fma(v_load(out + c), ours, v_load(all_out + c) * before));
}

/* All rows; the range is in s->here_range. The first one is all there is. */
static void join_range(struct attend *s, size_t range)
{
    if (!s->a->sinks && range == first_key(s->a, s->a->first_position) / TEG_RANGE_TOKENS) {
        const struct seen_sums all = s->here_range;
        s->here_range = s->all;
        s->all = all;
        return;
    }
    for (size_t row = 0; row < s->n_rows; row++)
        join_row(s, range, row, s->here_range.top[row], s->here_range.sum + row * LANES,
                 s->here_range.out + row * s->stride);
}

/* Where the state of a row lies (teg_attend_state_floats): out, sums, top. */
static size_t state_at(const struct attend *s, size_t row)
{
    const struct teg_attention_args *const a = s->a;
    return row / a->group * a->state_stride + row % a->group * teg_attend_state_floats(a->head_width);
}

static void write_state(const struct attend *s, const struct seen_sums *sums)
{
    for (size_t row = 0; row < s->n_rows; row++) {
        float *const state = s->a->state + state_at(s, row);
        memcpy(state, sums->out + row * s->stride, s->stride * sizeof *state);
        memcpy(state + s->stride, sums->sum + row * LANES, LANES * sizeof *state);
        state[s->stride + LANES] = sums->top[row];
    }
}

static void read_state(const struct attend *s, const struct seen_sums *sums)
{
    for (size_t row = 0; row < s->n_rows; row++) {
        const float *const state = s->a->state + state_at(s, row);
        memcpy(sums->out + row * s->stride, state, s->stride * sizeof *state);
        memcpy(sums->sum + row * LANES, state + s->stride, LANES * sizeof *state);
        sums->top[row] = state[s->stride + LANES];
    }
}

/* ---- a call ---- */

static void start_row(enum teg_kv_type type, const struct attend *s, size_t row)
{
    const struct teg_attention_args *const a = s->a;
    const float *const q = a->q + row / a->group * a->q_stride + row % a->group * a->head_width;
    s->unit[row] = attend_byte_keys(type)
                       ? byte_query(s, q, row, score_factor(a))
                       : round_query(q, a->head_width, 2 * s->q_words, query_unit(type, a->head_width),
                                     (int16_t *)s->q + row * 2 * s->q_words);
}

/* Cuts the scratch (teg_attend_scratch_floats) into parts. */
static void cut_scratch(enum teg_kv_type type, struct attend *s)
{
    const struct attend_layout l = s->layout;
    float *at = s->a->scratch;
    s->scores = take(&at, MOST_ROWS * TOKENS);
    s->weights = take(&at, MOST_ROWS * TOKENS / 2);
    take_sums(&at, s->stride, &s->here_range);
    s->q = take(&at, MOST_ROWS * s->q_words);
    float **const slots[] = {&s->unit, &s->here_top, &s->before, &s->here, &s->shift, &s->reference};
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++)
        *slots[i] = take(&at, ROW_SLOTS);
    s->start = take(&at, ROW_SLOTS);
    s->zeros = take(&at, TOKENS);
    s->v_sums = take(&at, l.w16);
    if (attend_byte_keys(type)) {
        s->q_float = take(&at, MOST_ROWS * l.w16);
    } else {
        s->k = take(&at, l.w32 * TOKENS / 2);
        s->v = take(&at, l.w32 * TOKENS / 2);
    }
    take_sums(&at, s->stride, &s->all);
}

static struct attend open_call(enum teg_kv_type type, const struct teg_attention_args *a)
{
    const struct attend_layout l = attend_layout(type, a->head_width);
    const bool expanded = type == TEG_KV_Q8 || type == TEG_KV_Q4;
    struct attend s = {.a = a, .layout = l, .n_rows = a->n_tokens * a->group};
    s.q_words = attend_byte_keys(type) ? l.w4 / 4 : (expanded ? l.w32 : l.w2) / 2;
    s.stride = expanded ? l.w32 : l.w16;
    cut_scratch(type, &s);
    return s;
}

/* Rounds the queries; zeros elsewhere, spare row included. */
static void start_queries(enum teg_kv_type type, const struct attend *s)
{
    const size_t w16 = s->layout.w16;
    memset((char *)s->q + s->n_rows * 4 * s->q_words, 0, 4 * s->q_words);
    memset((char *)s->weights + s->n_rows * weight_row_bytes(attend_byte_values(type)), 0, 2 * TOKENS);
    memset(s->unit, 0, (size_t)((char *)(s->zeros + TOKENS) - (char *)s->unit));
    if (attend_byte_keys(type))
        memset(s->q_float + s->n_rows * w16, 0, w16 * sizeof *s->q_float);
    for (size_t row = 0; row < s->n_rows; row++)
        start_row(type, s, row);
}

static void attend_finish(enum teg_kv_type type, const struct attend *s)
{
    const struct teg_attention_args *const a = s->a;
    for (size_t row = 0; row < s->n_rows; row++) {
        float *const from = s->all.out + row * s->stride;
        if (attend_byte_values(type))
            turn(from, s->stride, turn_block(a->head_width));
        const float sum = sum_lanes(s->all.sum + row * LANES);
        float *const out = a->out + row / a->group * a->out_stride + row % a->group * a->head_width;
        for (size_t c = 0; c < a->head_width; c += VL)
            v_store_n(out + c, v_load(from + c) / sum, a->head_width - c);
    }
}

/* A copy of attend_tile for each pair of products, and for tiles that all rows see whole. */
#define TILE(name, byte_keys, byte_values)                                                                             \
    static void name(bool whole, const struct attend *s, const struct page_view *t)                                    \
    {                                                                                                                  \
        if (whole)                                                                                                     \
            attend_tile(false, byte_keys, byte_values, s, t);                                                          \
        else                                                                                                           \
            attend_tile(true, byte_keys, byte_values, s, t);                                                           \
    }
TILE(word_tile, false, false)
TILE(mixed_tile, false, true)
TILE(byte_tile, true, true)
#undef TILE

/* Tiles `tile` … end - 1, of one range, into s->here_range. */
TEG_INLINE void attend_range(const enum teg_kv_type type, struct attend *s, size_t tile, size_t end)
{
    struct page_view t;
    start_sums(s, &s->here_range);
    for (; tile < end; tile++) {
        view_page(type, s, tile, &t);
        const bool whole = look(s, tile);
        (attend_byte_keys(type) ? byte_tile : attend_byte_values(type) ? mixed_tile : word_tile)(whole, s, &t);
    }
}

TEG_INLINE void attend(const enum teg_kv_type type, const struct teg_attention_args *a)
{
    if (a->n_tokens == 0)
        return;
    struct attend s = open_call(type, a);
    const size_t end = (a->first_position + a->n_tokens - 1) / TOKENS + 1;
    size_t tile = first_key(a, a->first_position) / TOKENS;
    start_queries(type, &s);
    if (a->state) {
        const size_t first = a->range * RANGE_TILES, stop = first + RANGE_TILES;
        attend_range(type, &s, tile > first ? tile : first, stop < end ? stop : end);
        write_state(&s, &s.here_range);
        return;
    }
    start_all(&s);
    while (tile < end) {
        const size_t range = tile / RANGE_TILES, next = (range + 1) * RANGE_TILES, stop = next < end ? next : end;
        attend_range(type, &s, tile, stop);
        join_range(&s, range);
        tile = stop;
    }
    attend_finish(type, &s);
}

static void join(enum teg_kv_type type, const struct teg_attention_args *a, const float *states, size_t n_ranges,
                 size_t range_stride)
{
    const size_t last = (a->first_position + a->n_tokens - 1) / TEG_RANGE_TOKENS;
    if (a->range > last)
        return;
    struct attend s = open_call(type, a);
    if (a->range <= first_key(a, a->first_position) / TEG_RANGE_TOKENS)
        start_all(&s);
    else
        read_state(&s, &s.all);
    for (size_t i = 0; i < n_ranges; i++)
        for (size_t row = 0; row < s.n_rows; row++) {
            const float *const state = states + i * range_stride + state_at(&s, row);
            join_row(&s, a->range + i, row, state[s.stride + LANES], state + s.stride, state);
        }
    if (a->range + n_ranges > last)
        attend_finish(type, &s);
    else
        write_state(&s, &s.all);
}

TEG_INLINE void append(const enum teg_kv_type type, const struct teg_kv_append_args *a)
{
    const struct attend_layout l = attend_layout(type, a->head_width);
    for (size_t t = 0; t < a->n_tokens; t++) {
        const size_t position = a->first_position + t, slot = position % TOKENS;
        char *const page = (char *)a->pages[position / TOKENS] + a->page_offset_bytes;
        const float *const k = a->k + t * a->k_stride, *const v = a->v + t * a->v_stride;
        (attend_byte_keys(type) ? append_byte_key : append_word_key)(&l, k, a->head_width, page, slot);
        (attend_byte_values(type) ? append_byte_value : append_word_value)(&l, v, a->head_width, page, slot);
    }
}

/* ---- the record ---- */

#define ENTRIES(name, type, pack)                                                                                      \
    static void append_##name(const struct teg_kv_append_args *a)                                                      \
    {                                                                                                                  \
        pack(type, a);                                                                                                 \
    }                                                                                                                  \
    static void attend_##name(const struct teg_attention_args *a)                                                      \
    {                                                                                                                  \
        attend(type, a);                                                                                               \
    }                                                                                                                  \
    static void join_##name(const struct teg_attention_args *a, const float *states, size_t n, size_t stride)          \
    {                                                                                                                  \
        join(type, a, states, n, stride);                                                                              \
    }
ENTRIES(i16, TEG_KV_I16, append)
ENTRIES(k16v8, TEG_KV_K16V8, append)
ENTRIES(i8, TEG_KV_I8, append)
ENTRIES(q8, TEG_KV_Q8, append_quantized)
ENTRIES(q4, TEG_KV_Q4, append_quantized)

#define ENTRY(name)                                                                                                    \
    {                                                                                                                  \
        "attend_" #name "_" ATTEND_SUFFIX, append_##name, attend_##name, join_##name                                   \
    }
const struct teg_attend_row ATTEND_ROW = {.isa = ATTEND_ISA,
                                          .fast = ATTEND_FAST,
                                          .of = {
                                              [TEG_KV_I16] = ENTRY(i16),
                                              [TEG_KV_K16V8] = ENTRY(k16v8),
                                              [TEG_KV_I8] = ENTRY(i8),
                                              [TEG_KV_Q8] = ENTRY(q8),
                                              [TEG_KV_Q4] = ENTRY(q4),
                                          }};
