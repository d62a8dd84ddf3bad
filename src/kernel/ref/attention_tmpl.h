/* kernel/ref/attention_tmpl.h: attention over the pages of one KV head, for the vector type of the file that includes
 * it (parameters: vec_base.h).
 *
 * Tiles of 64 keys at absolute multiples of 64 are visited in order. A query row keeps its greatest score so far, the
 * sum of its weights and the weighted sum of V; a tile with a greater score first scales the two sums down (online
 * softmax). Rows are token-major (row = t · group + g) and go through a tile ROWS at a time.
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

struct attention {
    const struct teg_attention_args *a;
    size_t n_rows, stride;
    float *acc;       /* [n_rows, stride] weighted sums of V */
    float *max, *sum; /* [n_rows] */
    float *weights;   /* [ROWS, 64] */
    float *k, *v;     /* the tile in float: [K, 64], [64, K] */
};

/* Rows that go through a tile together, and the keys lo … hi-1 of it that each sees. */
struct row_group {
    size_t first, n;
    const float *q[ROWS];
    float *acc[ROWS];
    size_t lo[ROWS], hi[ROWS];
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
TEG_INLINE void score_tile(const size_t mr, const enum teg_dtype dtype, const struct row_group *g, const void *k_tile,
                           size_t width, float *weights)
{
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
                const vf q = v_set(g->q[m][c]);
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

/* acc[m][c …] += Σ weight · V over keys lo … hi-1, for mr rows from row m0 and nv vectors of columns (part > 0: one
 * vector, of which `part` columns exist). */
TEG_INLINE void value_columns(const size_t mr, const size_t nv, const enum teg_dtype dtype, const struct row_group *g,
                              size_t m0, const float *weights, const void *v_tile, size_t width, size_t c, size_t part,
                              size_t lo, size_t hi)
{
    vf s[ROWS][NV];
#pragma GCC unroll 8
    for (size_t m = 0; m < mr; m++)
#pragma GCC unroll 8
        for (size_t j = 0; j < nv; j++)
            s[m][j] = v_load(g->acc[m0 + m] + c + j * VL); /* acc rows are padded */
    for (size_t key = lo; key < hi; key++) {
        vf v[NV];
#pragma GCC unroll 8
        for (size_t j = 0; j < nv; j++)
            v[j] = part ? load_part_as(dtype, v_tile, key * width + c, part)
                        : load_as(dtype, v_tile, key * width + c + j * VL);
#pragma GCC unroll 8
        for (size_t m = 0; m < mr; m++) {
            const vf w = v_set(weights[(m0 + m) * TOKENS + key]);
#pragma GCC unroll 8
            for (size_t j = 0; j < nv; j++)
                s[m][j] = v_fma(w, v[j], s[m][j]);
        }
    }
#pragma GCC unroll 8
    for (size_t m = 0; m < mr; m++)
#pragma GCC unroll 8
        for (size_t j = 0; j < nv; j++)
            v_store(g->acc[m0 + m] + c + j * VL, s[m][j]);
}

TEG_INLINE void value_tile(const size_t mr, const enum teg_dtype dtype, const struct row_group *g, size_t m0,
                           const float *weights, const void *v_tile, size_t width, size_t lo, size_t hi)
{
    size_t c = 0;
    if (lo >= hi)
        return;
    for (; c + NV * VL <= width; c += NV * VL)
        value_columns(mr, NV, dtype, g, m0, weights, v_tile, width, c, 0, lo, hi);
    for (; c + VL <= width; c += VL)
        value_columns(mr, 1, dtype, g, m0, weights, v_tile, width, c, 0, lo, hi);
    if (c < width)
        value_columns(mr, 1, dtype, g, m0, weights, v_tile, width, c, width - c, lo, hi);
}

/* Scores of one row to weights e^(score - max), after scaling what the row has so far. */
static void softmax_row(const struct attention *s, size_t row, float *weights, float *acc, size_t lo, size_t hi)
{
    const struct teg_attention_args *const a = s->a;
    const vf never = v_set(-INFINITY);
    vf greatest = never;
    for (size_t i = 0; i < TOKENS; i += VL) {
        vf x = v_load(weights + i) * a->scale;
        if (a->softcap > 0)
            x = v_tanh(x / a->softcap) * a->softcap;
        if (i < lo || i + VL > hi) {
            const vi key = v_count((int32_t)i);
            x = v_select((key >= (int32_t)lo) & (key < (int32_t)hi), x, never);
        }
        greatest = v_max(x, greatest);
        v_store(weights + i, x);
    }
    const float before = s->max[row], here = v_hmax(greatest);
    const float max = here > before ? here : before;
    const float shift = max == -INFINITY ? 0.0f : max; /* all scores -inf: weights 0, not e^(-inf + inf) */
    vf sum = v_set(0.0f);
    for (size_t i = 0; i < TOKENS; i += VL) {
        const vf w = v_exp(v_load(weights + i) - shift);
        sum += w;
        v_store(weights + i, w);
    }
    const float rescale = v_exp(v_set(before - shift))[0];
    if (rescale != 1.0f)
        for (size_t c = 0; c < s->stride; c += VL)
            v_store(acc + c, v_load(acc + c) * rescale);
    s->max[row] = max;
    s->sum[row] = s->sum[row] * rescale + v_sum(sum);
}

TEG_INLINE void group_tile(const size_t mr, const enum teg_dtype dtype, const struct attention *s,
                           const struct row_group *g, const void *k_tile, const void *v_tile)
{
    const size_t width = s->a->head_width;
    size_t lo = 0, hi = TOKENS; /* the keys that all rows see */
    score_tile(mr, dtype, g, k_tile, width, s->weights);
    for (size_t m = 0; m < mr; m++) {
        lo = g->lo[m] > lo ? g->lo[m] : lo;
        hi = g->hi[m] < hi ? g->hi[m] : hi;
        if (g->lo[m] < g->hi[m])
            softmax_row(s, g->first + m, s->weights + m * TOKENS, g->acc[m], g->lo[m], g->hi[m]);
    }
    if (lo > hi)
        lo = hi = TOKENS; /* none: each row does all of its keys before them */
    for (size_t m = 0; m < mr; m++) {
        const size_t end = g->hi[m] < lo ? g->hi[m] : lo;
        value_tile(1, dtype, g, m, s->weights, v_tile, width, g->lo[m], end);
    }
    value_tile(mr, dtype, g, 0, s->weights, v_tile, width, lo, hi);
    for (size_t m = 0; m < mr; m++)
        value_tile(1, dtype, g, m, s->weights, v_tile, width, hi > g->lo[m] ? hi : g->lo[m], g->hi[m]);
}

TEG_INLINE void group_tile_n(const enum teg_dtype dtype, const struct attention *s, const struct row_group *g,
                             const void *k_tile, const void *v_tile)
{
    switch (g->n) {
    case 1:
        group_tile(1, dtype, s, g, k_tile, v_tile);
        break;
    case 2:
        group_tile(2, dtype, s, g, k_tile, v_tile);
        break;
    case 3:
        group_tile(3, dtype, s, g, k_tile, v_tile);
        break;
    default:
        group_tile(ROWS, dtype, s, g, k_tile, v_tile);
        break;
    }
}

static void group_tile_float(const struct attention *s, const struct row_group *g, const void *k_tile,
                             const void *v_tile)
{
    group_tile_n(TEG_DTYPE_F32, s, g, k_tile, v_tile);
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

/* Fills the group of rows from `first`; false where none of them sees a key of the tile. */
static bool make_group(const struct attention *s, size_t first, size_t tile, struct row_group *g)
{
    const struct teg_attention_args *const a = s->a;
    bool any = false;
    g->first = first;
    g->n = s->n_rows - first < ROWS ? s->n_rows - first : ROWS;
    for (size_t m = 0; m < g->n; m++) {
        const size_t t = (first + m) / a->group, member = (first + m) % a->group;
        const size_t position = a->first_position + t;
        g->q[m] = a->q + t * a->q_stride + member * a->head_width;
        g->acc[m] = s->acc + (first + m) * s->stride;
        g->lo[m] = within_tile(first_key(a, position), tile);
        g->hi[m] = within_tile(position + 1, tile);
        any |= g->lo[m] < g->hi[m];
    }
    return any;
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

TEG_INLINE void attend_tile(const enum teg_dtype dtype, const struct attention *s, size_t tile)
{
    const struct teg_attention_args *const a = s->a;
    const size_t element_bytes = dtype == TEG_DTYPE_F32 ? 4 : 2;
    const void *k_tile = (const char *)a->pages[tile] + a->page_offset_bytes;
    const void *v_tile = (const char *)k_tile + a->head_width * TOKENS * element_bytes;
    const bool convert = dtype != TEG_DTYPE_F32 && s->n_rows > ROWS;
    if (convert) {
        const size_t last = a->first_position + a->n_tokens - 1;
        convert_tile(dtype, s, k_tile, v_tile, within_tile(first_key(a, a->first_position), tile),
                     within_tile(last + 1, tile));
        k_tile = s->k;
        v_tile = s->v;
    }
    for (size_t row = 0; row < s->n_rows; row += ROWS) {
        struct row_group g;
        if (!make_group(s, row, tile, &g))
            continue;
        if (convert || dtype == TEG_DTYPE_F32)
            group_tile_float(s, &g, k_tile, v_tile);
        else
            group_tile_n(dtype, s, &g, k_tile, v_tile);
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
    s->max = s->weights + ROWS * TOKENS;
    s->sum = s->max + TEG_ATTENTION_ROWS;
    s->acc = s->sum + TEG_ATTENTION_ROWS;
    memset(s->acc, 0, s->n_rows * s->stride * sizeof *s->acc);
    for (size_t row = 0; row < s->n_rows; row++) {
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
