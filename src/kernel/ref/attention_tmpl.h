/* kernel/ref/attention_tmpl.h: attention over the pages of one KV head, for the vector type of the file that includes
 * it (parameters: vec_base.h).
 *
 * Tiles of 64 keys at absolute multiples of 64 are visited in order. A query row keeps its greatest score so far, the
 * sum of its weights and the weighted sum of V; a tile with a greater score first scales the two sums down (online
 * softmax). Rows are token-major (row = t · group + g). All rows take one step (scores, weights, values) before the
 * next, ROWS at a time: so the latencies of one row hide behind the others.
 *
 * Invariant: a row's bits depend on the keys it sees and on nothing else.
 *  - Its operations have one order: over components for a score, over lanes for a sum of weights, over keys for V.
 *  - A key it does not see contributes no operation at all, because the memory there may hold anything: scores outside
 *    [lo, hi) are replaced, and V rows outside are not multiplied, not even by zero. Where the rows of a group see
 *    different keys, the common ones are done together and the rest row by row, in order.
 *  - Conversion of pages to float is exact, so it may happen once per tile (many rows) or on the way (one group).
 *
 * Alternative not taken: scores of the whole row first (two passes), which needs memory that grows with the prompt. */
#include "kernel/ref/vec_types.h"
#include "kernel/sizes.h"

#define ROWS 4
#define TOKENS ((size_t)TEG_TILE_TOKENS)
#define NV ATTENTION_NV

_Static_assert(TEG_TILE_TOKENS % (NV * VL) == 0, "a tile of keys is whole register tiles");

#define ROW_SLOTS (TEG_ATTENTION_ROWS / 16 * 16 + 16) /* rows in whole vectors of any width */

struct attention {
    const struct teg_attention_args *a;
    size_t n_rows, stride;
    float *acc;            /* [n_rows, stride] weighted sums of V */
    float *max, *sum;      /* [ROW_SLOTS] */
    float *here, *rescale; /* [ROW_SLOTS] of a tile: greatest score; factor of what a row has so far */
    float *weights;        /* [n_rows, 64] */
    float *k, *v;          /* the tile in float: [K, 64], [64, K] */
    const float *q[ROW_SLOTS];
    const char *next; /* the page after this one, or NULL: fetched while this one is worked on */
    size_t next_bytes;
    bool whole;                           /* every row sees every key of the tile */
    uint8_t lo[ROW_SLOTS], hi[ROW_SLOTS]; /* keys of the tile that each row sees */
};

TEG_INLINE vf load_as(const enum teg_dtype dtype, const void *base, size_t i)
{
    if (dtype == TEG_DTYPE_F32)
        return v_load((const float *)base + i);
    const uint16_t *const half = (const uint16_t *)base + i;
    return dtype == TEG_DTYPE_F16 ? v_load_f16(half) : v_load_bf16(half);
}

TEG_INLINE vf load_part_as(const enum teg_dtype dtype, const void *base, size_t i, size_t n)
{
    if (dtype == TEG_DTYPE_F32)
        return v_load_part((const float *)base + i, n);
    uint16_t halves[VL] = {0};
    memcpy(halves, (const uint16_t *)base + i, n * sizeof halves[0]);
    return load_as(dtype, halves, 0);
}

/* weights[m][key] = q row m · key, for all 64 keys of the tile. */
TEG_INLINE void score_tile(const size_t mr, const enum teg_dtype dtype, const struct attention *a, size_t row,
                           const void *k_tile)
{
    const size_t width = a->a->head_width;
    float *const weights = a->weights + row * TOKENS;
    for (size_t key = 0; key < TOKENS; key += NV * VL) {
        vf s[ROWS][NV];
#pragma GCC unroll 8
        for (size_t m = 0; m < mr; m++)
#pragma GCC unroll 8
            for (size_t j = 0; j < NV; j++)
                s[m][j] = v_set(0.0f);
        for (size_t c = 0; c < width; c++) {
            vf k[NV];
#pragma GCC unroll 8
            for (size_t j = 0; j < NV; j++)
                k[j] = load_as(dtype, k_tile, c * TOKENS + key + j * VL);
#pragma GCC unroll 8
            for (size_t m = 0; m < mr; m++) {
                const vf q = v_set(a->q[row + m][c]);
#pragma GCC unroll 8
                for (size_t j = 0; j < NV; j++)
                    s[m][j] = v_fma(q, k[j], s[m][j]);
            }
        }
#pragma GCC unroll 8
        for (size_t m = 0; m < mr; m++)
#pragma GCC unroll 8
            for (size_t j = 0; j < NV; j++)
                v_store(weights + m * TOKENS + key + j * VL, s[m][j]);
    }
}

/* acc[row][c …] += Σ weight · V over keys lo … hi-1, for mr rows and nv vectors of columns (part > 0: one
 * vector, of which `part` columns exist). */
TEG_INLINE void value_columns(const size_t mr, const size_t nv, const enum teg_dtype dtype, const struct attention *a,
                              size_t row, const void *v_tile, size_t c, size_t part, size_t lo, size_t hi)
{
    const size_t width = a->a->head_width, stride = a->stride;
    float *const acc = a->acc + row * stride + c;
    const float *const weights = a->weights + row * TOKENS;
    vf s[ROWS][NV];
#pragma GCC unroll 8
    for (size_t m = 0; m < mr; m++)
#pragma GCC unroll 8
        for (size_t j = 0; j < nv; j++)
            s[m][j] = v_load(acc + m * stride + j * VL); /* acc rows are padded */
    for (size_t key = lo; key < hi; key++) {
        vf v[NV];
#pragma GCC unroll 8
        for (size_t j = 0; j < nv; j++)
            v[j] = part ? load_part_as(dtype, v_tile, key * width + c, part)
                        : load_as(dtype, v_tile, key * width + c + j * VL);
#pragma GCC unroll 8
        for (size_t m = 0; m < mr; m++) {
            const vf w = v_set(weights[m * TOKENS + key]);
#pragma GCC unroll 8
            for (size_t j = 0; j < nv; j++)
                s[m][j] = v_fma(w, v[j], s[m][j]);
        }
    }
#pragma GCC unroll 8
    for (size_t m = 0; m < mr; m++)
#pragma GCC unroll 8
        for (size_t j = 0; j < nv; j++)
            v_store(acc + m * stride + j * VL, s[m][j]);
}

TEG_INLINE void value_tile(const size_t mr, const enum teg_dtype dtype, const struct attention *a, size_t row,
                           const void *v_tile, size_t lo, size_t hi)
{
    const size_t width = a->a->head_width;
    size_t c = 0;
    if (lo >= hi)
        return;
    for (; c + NV * VL <= width; c += NV * VL)
        value_columns(mr, NV, dtype, a, row, v_tile, c, 0, lo, hi);
    for (; c + VL <= width; c += VL)
        value_columns(mr, 1, dtype, a, row, v_tile, c, 0, lo, hi);
    if (c < width)
        value_columns(mr, 1, dtype, a, row, v_tile, c, width - c, lo, hi);
}

/* Values of mr rows: the keys that all of them see together, the rest row by row, each row in the order of keys. */
TEG_INLINE void value_rows(const size_t mr, const enum teg_dtype dtype, const struct attention *a, size_t row,
                           const void *v_tile)
{
    size_t lo = 0, hi = TOKENS;
    if (!a->whole) {
        for (size_t m = row; m < row + mr; m++) {
            lo = a->lo[m] > lo ? a->lo[m] : lo;
            hi = a->hi[m] < hi ? a->hi[m] : hi;
        }
        if (lo > hi)
            lo = hi = TOKENS; /* none: each row does all of its keys before them */
        for (size_t m = row; m < row + mr; m++)
            value_tile(1, dtype, a, m, v_tile, a->lo[m], a->hi[m] < lo ? a->hi[m] : lo);
    }
    value_tile(mr, dtype, a, row, v_tile, lo, hi);
    for (size_t m = row; m < row + mr && !a->whole; m++)
        value_tile(1, dtype, a, m, v_tile, hi > a->lo[m] ? hi : a->lo[m], a->hi[m]);
}

/* Raw scores of a row to scores, and their greatest. Those that the row does not see become -inf. */
static void finish_scores(const struct attention *s, size_t row)
{
    const struct teg_attention_args *const a = s->a;
    float *const scores = s->weights + row * TOKENS;
    const size_t lo = s->lo[row], hi = s->hi[row];
    const vf never = v_set(-INFINITY);
    vf greatest = never;
    for (size_t i = 0; i < TOKENS; i += VL) {
        vf x = v_load(scores + i) * a->scale;
        if (a->softcap > 0)
            x = v_tanh(x / a->softcap) * a->softcap;
        if (i < lo || i + VL > hi) {
            const vi key = v_count((int32_t)i);
            x = v_select((key >= (int32_t)lo) & (key < (int32_t)hi), x, never);
        }
        greatest = v_max(x, greatest);
        v_store(scores + i, x);
    }
    s->here[row] = lo < hi ? v_hmax(greatest) : -INFINITY;
}

/* New greatest scores; `here` becomes what is subtracted from scores, and `rescale` the factor of earlier sums. */
static void move_maxima(const struct attention *s)
{
    for (size_t i = 0; i < s->n_rows; i += VL) {
        const vf before = v_load(s->max + i), here = v_load(s->here + i), none = v_set(-INFINITY);
        const vf max = v_select(here > before, here, before);
        const vf shift = v_select(max == none, v_set(0.0f), max); /* all -inf: weights 0, not e^(-inf + inf) */
        v_store(s->max + i, max);
        v_store(s->here + i, shift);
        v_store(s->rescale + i, v_exp(before - shift));
    }
}

/* Weights e^(score - max) of ROWS rows, which join the rows' sums; what a row has so far is scaled down. */
static void weigh_rows(const struct attention *s, size_t row)
{
    const size_t n = s->n_rows - row < ROWS ? s->n_rows - row : ROWS;
    vf sums[ROWS];
    float totals[ROWS];
    for (size_t m = 0; m < ROWS; m++)
        sums[m] = v_set(0.0f);
    for (size_t m = 0; m < n; m++) {
        float *const weights = s->weights + (row + m) * TOKENS;
        const float shift = s->here[row + m], rescale = s->rescale[row + m];
        float *const acc = s->acc + (row + m) * s->stride;
        if (s->lo[row + m] >= s->hi[row + m])
            continue;
        for (size_t i = 0; i < TOKENS; i += VL) {
            const vf w = v_exp(v_load(weights + i) - shift);
            sums[m] += w;
            v_store(weights + i, w);
        }
        if (rescale != 1.0f)
            for (size_t c = 0; c < s->stride; c += VL)
                v_store(acc + c, v_load(acc + c) * rescale);
    }
    v_sum4(totals, sums[0], sums[1], sums[2], sums[3]);
    for (size_t m = 0; m < n; m++)
        if (s->lo[row + m] < s->hi[row + m])
            s->sum[row + m] = s->sum[row + m] * s->rescale[row + m] + totals[m];
}

/* step(mr, first row) for all register tiles of which a row sees a key. */
#define FOR_ROWS(s, step)                                                                                              \
    for (size_t row = 0; row < (s)->n_rows; row += ROWS) {                                                             \
        const size_t left = (s)->n_rows - row;                                                                         \
        if (!sees_any(s, row))                                                                                         \
            continue;                                                                                                  \
        if (left >= ROWS)                                                                                              \
            step(ROWS, row);                                                                                           \
        else if (left == 3)                                                                                            \
            step(3, row);                                                                                              \
        else if (left == 2)                                                                                            \
            step(2, row);                                                                                              \
        else                                                                                                           \
            step(1, row);                                                                                              \
    }

static bool sees_any(const struct attention *s, size_t row)
{
    bool any = s->whole;
    for (size_t m = row; m < row + ROWS && m < s->n_rows && !any; m++)
        any = s->lo[m] < s->hi[m];
    return any;
}

/* A part of the next page, one for each register tile: it is not waited for, and streams hide behind products. */
static void fetch_next(const struct attention *s, size_t row)
{
    const size_t part = (s->next_bytes * ROWS / s->n_rows + 63) / 64 * 64, from = row / ROWS * part;
    for (size_t i = from; s->next && i < from + part && i < s->next_bytes; i += 64)
        __builtin_prefetch(s->next + i, 0, 2);
}

TEG_INLINE void rows_tile(const enum teg_dtype dtype, const struct attention *s, const void *k_tile, const void *v_tile)
{
#define SCORES(mr, row)                                                                                                \
    do {                                                                                                               \
        fetch_next(s, row);                                                                                            \
        score_tile(mr, dtype, s, row, k_tile);                                                                         \
    } while (0)
#define VALUES(mr, row) value_rows(mr, dtype, s, row, v_tile)
    FOR_ROWS(s, SCORES)
    for (size_t row = 0; row < s->n_rows; row++)
        finish_scores(s, row);
    move_maxima(s);
    for (size_t row = 0; row < s->n_rows; row += ROWS)
        weigh_rows(s, row);
    FOR_ROWS(s, VALUES)
#undef SCORES
#undef VALUES
}

static void rows_tile_float(const struct attention *s, const void *k_tile, const void *v_tile)
{
    rows_tile(TEG_DTYPE_F32, s, k_tile, v_tile);
}

static size_t first_key(const struct teg_attention_args *a, size_t position)
{
    return a->window && position >= a->window ? position + 1 - a->window : 0;
}

static size_t within_tile(size_t key, size_t tile)
{
    const size_t base = tile * TOKENS;
    return key <= base ? 0 : key - base < TOKENS ? key - base : TOKENS;
}

/* Keys of the tile that each row sees. */
static void look(struct attention *s, size_t tile)
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
    s->whole = whole;
}

/* The tile in float. K is converted whole, unseen keys included; V only where the call sees it. */
TEG_INLINE void convert_tile(const enum teg_dtype dtype, const struct attention *s, const void *k_tile,
                             const void *v_tile, size_t lo, size_t hi)
{
    const size_t width = s->a->head_width, end = hi * width;
    for (size_t i = 0; i < width * TOKENS; i += VL)
        v_store(s->k + i, load_as(dtype, k_tile, i));
    size_t i = lo * width;
    for (; i + VL <= end; i += VL)
        v_store(s->v + i, load_as(dtype, v_tile, i));
    if (i < end)
        v_store_part(s->v + i, load_part_as(dtype, v_tile, i, end - i), end - i);
}

TEG_INLINE void attend_tile(const enum teg_dtype dtype, struct attention *s, size_t tile)
{
    const struct teg_attention_args *const a = s->a;
    const size_t element_bytes = dtype == TEG_DTYPE_F32 ? 4 : 2;
    const void *const k_tile = (const char *)a->pages[tile] + a->page_offset_bytes;
    const void *const v_tile = (const char *)k_tile + a->head_width * TOKENS * element_bytes;
    const size_t last = a->first_position + a->n_tokens - 1;
    s->next = tile < last / TOKENS ? (const char *)a->pages[tile + 1] + a->page_offset_bytes : NULL;
    s->next_bytes = 2 * a->head_width * TOKENS * element_bytes;
    look(s, tile);
    if (dtype == TEG_DTYPE_F32) {
        rows_tile_float(s, k_tile, v_tile);
    } else if (s->n_rows > ROWS) {
        convert_tile(dtype, s, k_tile, v_tile, within_tile(first_key(a, a->first_position), tile),
                     within_tile(last + 1, tile));
        rows_tile_float(s, s->k, s->v);
    } else {
        rows_tile(dtype, s, k_tile, v_tile);
    }
}

/* Cuts the scratch (teg_attention_scratch_floats) and starts every row: nothing seen, or only its sink. */
static void attention_start(const struct teg_attention_args *a, struct attention *s)
{
    s->a = a;
    s->n_rows = a->n_tokens * a->group;
    s->stride = teg_attention_stride(a->head_width);
    s->k = a->scratch;
    s->v = s->k + a->head_width * TOKENS;
    s->weights = s->v + a->head_width * TOKENS;
    s->max = s->weights + TEG_ATTENTION_ROWS * TOKENS;
    s->sum = s->max + ROW_SLOTS;
    s->here = s->sum + ROW_SLOTS;
    s->rescale = s->here + ROW_SLOTS;
    s->acc = s->rescale + ROW_SLOTS;
    s->whole = false;
    for (float *p = s->max; p < s->acc; p++)
        *p = 0;
    memset(s->acc, 0, s->n_rows * s->stride * sizeof *s->acc);
    for (size_t row = 0; row < s->n_rows; row++) {
        s->q[row] = a->q + row / a->group * a->q_stride + row % a->group * a->head_width;
        s->max[row] = a->sinks ? a->sinks[row % a->group] : -INFINITY;
        s->sum[row] = a->sinks ? 1.0f : 0.0f;
    }
}

static void attention_finish(const struct attention *s)
{
    const struct teg_attention_args *const a = s->a;
    for (size_t row = 0; row < s->n_rows; row++) {
        const float *const acc = s->acc + row * s->stride;
        float *const out = a->out + row / a->group * a->out_stride + row % a->group * a->head_width;
        for (size_t c = 0; c < a->head_width; c += VL)
            v_store_n(out + c, v_load(acc + c) / s->sum[row], a->head_width - c);
    }
}

TEG_INLINE void attention(const enum teg_dtype dtype, const struct teg_attention_args *a)
{
    struct attention s;
    if (a->n_tokens == 0)
        return;
    attention_start(a, &s);
    const size_t last = a->first_position + a->n_tokens - 1;
    for (size_t tile = first_key(a, a->first_position) / TOKENS; tile <= last / TOKENS; tile++)
        attend_tile(dtype, &s, tile);
    attention_finish(&s);
}

static void attention_f32(const struct teg_attention_args *a)
{
    attention(TEG_DTYPE_F32, a);
}

static void attention_f16(const struct teg_attention_args *a)
{
    attention(TEG_DTYPE_F16, a);
}

static void attention_bf16(const struct teg_attention_args *a)
{
    attention(TEG_DTYPE_BF16, a);
}
