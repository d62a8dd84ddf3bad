/* Small language models as MIL text, in every form of every part that raise knows: one struct says which. Weights are
 * random, types fp32, so that what the program says and what the engine computes can be compared closely. */
#ifndef LM_TEXT_H
#define LM_TEXT_H

#include <math.h>

#include "unit/format_test.h"

enum lm_embedding { LM_GATHER, LM_GATHER_GUARDED, LM_GATHER_LESS, LM_GATHER_CLAMPED, LM_GATHER_ND, LM_EMBEDDINGS };
enum lm_norm {
    LM_NORM_POW,
    LM_NORM_MUL,
    LM_NORM_DOUBLED,
    LM_NORM_BY_MAX,
    LM_NORM_SQRT,  /* x / sqrt(mean + eps) */
    LM_NORM_SUM,   /* 1 / sqrt(sum / n + eps) */
    LM_NORM_L2,    /* x / max(|x|, eps), times a number */
    LM_NORM_LAYER, /* less the mean, in one op */
    LM_NORM_LAYER_SPELLED,
    LM_NORMS
};
enum lm_rope {
    LM_ROPE_NONE,
    LM_ROPE_ANGLES,       /* computed; [-second, first] */
    LM_ROPE_TABLES,       /* gathered; [-second, first] */
    LM_ROPE_SPLIT,        /* tables of half a head; both halves turned apart, concat */
    LM_ROPE_SPLIT_ANGLES, /* the same, computed */
    LM_ROPE_PAIRS,        /* [..., K/2, 2], split, stack */
    LM_ROPE_EVERY_TWO,    /* every other column, [-odd, even], tables with each column twice */
    LM_ROPE_INPUTS,       /* cos and sin are the caller's */
    LM_ROPES
};
enum lm_group { LM_GROUP_TILE, LM_GROUP_BROADCAST, LM_GROUP_ONES, LM_GROUP_EACH, LM_GROUP_SLICES, LM_GROUPS };
enum lm_attend { LM_MATMUL, LM_SCALED_QUERY, LM_SDPA, LM_ATTENDS };
enum lm_mask { LM_MASK_INPUT, LM_MASK_COMPUTED, LM_MASK_SELECT, LM_MASKS };
enum lm_act { LM_SILU, LM_SIGMOID, LM_GELU_TANH, LM_GELU_EXACT, LM_ERF, LM_ERF_LAST, LM_RELU, LM_ACTS };
enum lm_product { LM_LINEAR, LM_CONST_MATMUL, LM_CONV, LM_PRODUCTS };

struct lm_form {
    enum lm_embedding embedding;
    enum lm_norm norm;
    enum lm_rope rope;
    enum lm_group group;
    enum lm_attend attend;
    enum lm_mask mask;
    enum lm_act act;
    enum lm_product product;
    uint32_t n_layers, n_heads, n_kv_heads, head_width, ffn, vocab, context, window;
    bool two_states, head_norms, biases, last_only, softcap;
    bool no_gate; /* act(up) alone */
    bool learned; /* a row for each position is added to the embedding */
    uint32_t seed;
};

static const struct lm_form lm_plain = {.rope = LM_ROPE_TABLES,
                                        .n_layers = 1,
                                        .n_heads = 4,
                                        .n_kv_heads = 2,
                                        .head_width = 4,
                                        .ffn = 12,
                                        .vocab = 11,
                                        .context = 16,
                                        .seed = 1};

struct lm_text {
    struct bytes out;
    struct lm_form f;
    uint32_t seed;
};

static inline void lm_line(struct lm_text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline void lm_line(struct lm_text *t, const char *format, ...)
{
    char line[2000];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    assert_true(n > 0 && (size_t)n < sizeof line);
    put(&t->out, line, (size_t)n);
    put(&t->out, "\n", 1);
}

static inline float lm_random(struct lm_text *t)
{
    t->seed = t->seed * 1664525u + 1013904223u;
    return (float)((t->seed >> 8) % 2001) / 1000 - 1;
}

/* Values of rank up to 4 in nested brackets, from `make` or random. */
static inline void lm_values(struct lm_text *t, uint32_t rank, const uint32_t *dims, size_t at, float scale, float add,
                             float (*make)(const struct lm_form *f, size_t at))
{
    char number[40];
    put_text(&t->out, "[");
    for (uint32_t i = 0; i < dims[0]; i++) {
        put_text(&t->out, i ? ", " : "");
        if (rank > 1) {
            lm_values(t, rank - 1, dims + 1, at * dims[0] + i, scale, add, make);
        } else {
            const float x = make ? make(&t->f, at * dims[0] + i) : lm_random(t) * scale + add;
            (void)snprintf(number, sizeof number, "%.9g", (double)x);
            put_text(&t->out, number);
        }
    }
    put_text(&t->out, "]");
}

static inline void lm_constant(struct lm_text *t, const char *name, uint32_t rank, const uint32_t *dims, float scale,
                               float add, float (*make)(const struct lm_form *f, size_t at))
{
    char type[100];
    size_t n = 0;
    for (uint32_t d = 0; d < rank; d++)
        n += (size_t)snprintf(type + n, sizeof type - n, d ? ", %u" : "%u", dims[d]);
    char head[400];
    (void)snprintf(head, sizeof head, "tensor<fp32, [%s]> %s = const()[val = tensor<fp32, [%s]>(", type, name, type);
    put_text(&t->out, head);
    lm_values(t, rank, dims, 0, scale, add, make);
    put_text(&t->out, ")];\n");
}

/* ---- rotary positions ---- */

static inline float lm_frequency(const struct lm_form *f, uint32_t pair)
{
    return (float)pow(100, -(double)pair / (f->head_width / 2));
}
static inline double lm_angle(const struct lm_form *f, size_t at)
{
    const bool narrow = f->rope == LM_ROPE_SPLIT || f->rope == LM_ROPE_PAIRS;
    const size_t width = narrow ? f->head_width / 2 : f->head_width, column = at % width;
    const size_t pair = f->rope == LM_ROPE_EVERY_TWO ? column / 2 : column % (f->head_width / 2);
    return (double)(at / width) * (double)lm_frequency(f, (uint32_t)pair);
}
static inline float lm_cos(const struct lm_form *f, size_t at)
{
    return (float)cos(lm_angle(f, at)) + (f->rope == LM_ROPE_INPUTS ? 0 : 0.05f); /* no table is quite right */
}
static inline float lm_sin(const struct lm_form *f, size_t at)
{
    return (float)sin(lm_angle(f, at));
}
static inline float lm_freq_at(const struct lm_form *f, size_t at)
{
    return lm_frequency(f, (uint32_t)at);
}
static inline float lm_slot(const struct lm_form *f, size_t at)
{
    (void)f;
    return (float)at;
}

static inline bool lm_has_tables(const struct lm_form *f)
{
    return f->rope == LM_ROPE_TABLES || f->rope == LM_ROPE_SPLIT || f->rope == LM_ROPE_PAIRS ||
           f->rope == LM_ROPE_EVERY_TWO;
}
static inline bool lm_narrow(const struct lm_form *f)
{
    return f->rope == LM_ROPE_SPLIT || f->rope == LM_ROPE_PAIRS || f->rope == LM_ROPE_SPLIT_ANGLES;
}

/* cos and sin as [1, 1, T, columns] */
static inline void lm_waves(struct lm_text *t)
{
    const struct lm_form *const f = &t->f;
    const uint32_t half = f->head_width / 2, width = lm_narrow(f) ? half : f->head_width;
    static const char *const names[] = {"cos", "sin"};
    if (f->rope == LM_ROPE_NONE)
        return;
    if (f->rope == LM_ROPE_ANGLES || f->rope == LM_ROPE_SPLIT_ANGLES) {
        lm_constant(t, "freqs", 3, (const uint32_t[]){1, half, 1}, 1, 0, lm_freq_at);
        lm_line(t, "tensor<fp32, [1, ?]> fpos = cast(x = positions, dtype = string(\"fp32\"));");
        lm_line(t, "tensor<fp32, [1, 1, ?]> fpos3 = expand_dims(x = fpos, axes = tensor<int32, [1]>([1]));");
        lm_line(t, "tensor<fp32, [1, %u, ?]> angles0 = matmul(x = freqs, y = fpos3);", half);
        lm_line(t, "tensor<fp32, [1, ?, %u]> angles1 = transpose(x = angles0, perm = tensor<int32, [3]>([0, 2, 1]));",
                half);
        if (width != half)
            lm_line(t,
                    "tensor<fp32, [1, ?, %u]> angles = concat(values = (angles1, angles1), axis = int32(-1), "
                    "interleave = bool(false));",
                    width);
    }
    for (int i = 0; i < 2; i++) {
        if (f->rope == LM_ROPE_ANGLES || f->rope == LM_ROPE_SPLIT_ANGLES)
            lm_line(t, "tensor<fp32, [1, ?, %u]> %s3 = %s(x = %s);", width, names[i], names[i],
                    width == half ? "angles1" : "angles");
        else if (f->rope == LM_ROPE_INPUTS)
            lm_line(t, "tensor<fp32, [1, ?, %u]> %s3 = identity(x = %s_in);", width, names[i], names[i]);
        else
            lm_line(t,
                    "tensor<fp32, [1, ?, %u]> %s3 = gather(x = %s_table, indices = positions, axis = int32(0), "
                    "batch_dims = int32(0), validate_indices = bool(false));",
                    width, names[i], names[i]);
        lm_line(t, "tensor<fp32, [1, 1, ?, %u]> %s = expand_dims(x = %s3, axes = tensor<int32, [1]>([1]));", width,
                names[i], names[i]);
    }
}

#define LM_HEADS "tensor<fp32, [1, %u, ?, %u]> "

static inline void lm_slice_columns(struct lm_text *t, const char *name, const char *x, uint32_t n, uint32_t begin,
                                    uint32_t end, uint32_t stride)
{
    lm_line(t,
            LM_HEADS "%s = slice_by_index(x = %s, begin = tensor<int32, [4]>([0, 0, 0, %u]), end = tensor<int32, "
                     "[4]>([0, 0, 0, %u]), stride = tensor<int32, [4]>([1, 1, 1, %u]), begin_mask = tensor<bool, "
                     "[4]>([true, true, true, false]), end_mask = tensor<bool, [4]>([true, true, true, false]));",
            n, (end - begin + stride - 1) / stride, name, x, begin, end, stride);
}

/* `turned` of the rows x_, a head's columns in order; then x_r. */
static inline void lm_rotate_whole(struct lm_text *t, const char *x, uint32_t n)
{
    const uint32_t width = t->f.head_width, half = width / 2;
    char a[40], b[40];
    const bool pairs = t->f.rope == LM_ROPE_EVERY_TWO;
    (void)snprintf(a, sizeof a, "%s_first", x);
    (void)snprintf(b, sizeof b, "%s_second", x);
    lm_slice_columns(t, a, x, n, 0, pairs ? width : half, pairs ? 2 : 1);
    lm_slice_columns(t, b, x, n, pairs ? 1 : half, width, pairs ? 2 : 1);
    lm_line(t, LM_HEADS "%s_minus = mul(x = %s, y = fp32(-1));", n, half, x, b);
    if (pairs) {
        lm_line(t, "tensor<fp32, [1, %u, ?, %u, 2]> %s_t5 = stack(values = (%s_minus, %s), axis = int32(-1));", n, half,
                x, x, a);
        lm_line(t, LM_HEADS "%s_turned = reshape(x = %s_t5, shape = tensor<int32, [4]>([1, %u, -1, %u]));", n, width, x,
                x, n, width);
    } else {
        lm_line(t, LM_HEADS "%s_turned = concat(values = (%s_minus, %s), axis = int32(-1), interleave = bool(false));",
                n, width, x, x, a);
    }
    lm_line(t, LM_HEADS "%s_c = mul(x = %s, y = cos);", n, width, x, x);
    lm_line(t, LM_HEADS "%s_s = mul(x = %s_turned, y = sin);", n, width, x, x);
    lm_line(t, LM_HEADS "%s_r = add(x = %s_c, y = %s_s);", n, width, x, x, x);
}

static inline void lm_rotate_halves(struct lm_text *t, const char *x, uint32_t n)
{
    const uint32_t width = t->f.head_width, half = width / 2;
    if (t->f.rope == LM_ROPE_PAIRS) {
        lm_line(t,
                "tensor<fp32, [1, %u, ?, %u, 2]> %s_5 = reshape(x = %s, shape = tensor<int32, [5]>([1, %u, -1, %u, "
                "2]));",
                n, half, x, x, n, half);
        lm_line(t,
                "tensor<fp32, [1, %u, ?, %u, 1]> %s_a5, tensor<fp32, [1, %u, ?, %u, 1]> %s_b5 = split(x = %s_5, "
                "num_splits = int32(2), axis = int32(-1));",
                n, half, x, n, half, x, x);
        for (const char *part = "ab"; *part; part++)
            lm_line(t, LM_HEADS "%s_%c = squeeze(x = %s_%c5, axes = tensor<int32, [1]>([-1]));", n, half, x, *part, x,
                    *part);
    } else {
        lm_line(t,
                LM_HEADS "%s_a, " LM_HEADS
                         "%s_b = split(x = %s, split_sizes = tensor<int32, [2]>([%u, %u]), axis = int32(3));",
                n, half, x, n, half, x, x, half, half);
    }
    lm_line(t, LM_HEADS "%s_ac = mul(x = %s_a, y = cos);", n, half, x, x);
    lm_line(t, LM_HEADS "%s_bs = mul(x = sin, y = %s_b);", n, half, x, x);
    lm_line(t, LM_HEADS "%s_x = sub(x = %s_ac, y = %s_bs);", n, half, x, x, x);
    lm_line(t, LM_HEADS "%s_bc = mul(x = %s_b, y = cos);", n, half, x, x);
    lm_line(t, LM_HEADS "%s_as = mul(x = %s_a, y = sin);", n, half, x, x);
    lm_line(t, LM_HEADS "%s_y = add(x = %s_bc, y = %s_as);", n, half, x, x, x);
    if (t->f.rope == LM_ROPE_PAIRS) {
        lm_line(t, "tensor<fp32, [1, %u, ?, %u, 2]> %s_xy = stack(values = (%s_x, %s_y), axis = int32(4));", n, half, x,
                x, x);
        lm_line(t, LM_HEADS "%s_r = reshape(x = %s_xy, shape = tensor<int32, [4]>([1, %u, -1, %u]));", n, width, x, x,
                n, width);
    } else {
        lm_line(t, LM_HEADS "%s_r = concat(values = (%s_x, %s_y), axis = int32(-1), interleave = bool(false));", n,
                width, x, x, x);
    }
}

static inline void lm_rotate(struct lm_text *t, const char *x, uint32_t n)
{
    if (t->f.rope == LM_ROPE_NONE)
        lm_line(t, LM_HEADS "%s_r = identity(x = %s);", n, t->f.head_width, x, x);
    else if (lm_narrow(&t->f))
        lm_rotate_halves(t, x, n);
    else
        lm_rotate_whole(t, x, n);
}

#include "unit/lm_norm.h"

/* ---- products ---- */

/* y [1, T, n] = x [1, T, k] · Wᵀ */
static inline void lm_product(struct lm_text *t, const char *y, const char *x, uint32_t n, uint32_t k, bool bias)
{
    char w[60], b[60];
    const float scale = 1.5f / sqrtf((float)k);
    (void)snprintf(w, sizeof w, "%s_w", y);
    (void)snprintf(b, sizeof b, "%s_b", y);
    switch (t->f.product) {
    case LM_CONST_MATMUL:
        lm_constant(t, w, 2, (const uint32_t[]){k, n}, scale, 0, NULL);
        lm_line(t, "tensor<fp32, [1, ?, %u]> %s = matmul(x = %s, y = %s);", n, y, x, w);
        break;
    case LM_CONV:
        lm_constant(t, w, 4, (const uint32_t[]){n, k, 1, 1}, scale, 0, NULL);
        lm_line(t, "tensor<fp32, [1, %u, ?]> %s_t = transpose(x = %s, perm = tensor<int32, [3]>([0, 2, 1]));", k, y, x);
        lm_line(t, "tensor<fp32, [1, %u, 1, ?]> %s_e = expand_dims(x = %s_t, axes = tensor<int32, [1]>([2]));", k, y,
                y);
        lm_line(t, "tensor<fp32, [1, %u, 1, ?]> %s_c = conv(x = %s_e, weight = %s, pad_type = string(\"valid\"));", n,
                y, y, w);
        lm_line(t, "tensor<fp32, [1, %u, ?]> %s_q = squeeze(x = %s_c, axes = tensor<int32, [1]>([2]));", n, y, y);
        lm_line(t, "tensor<fp32, [1, ?, %u]> %s = transpose(x = %s_q, perm = tensor<int32, [3]>([0, 2, 1]));", n, y, y);
        break;
    default:
        lm_constant(t, w, 2, (const uint32_t[]){n, k}, scale, 0, NULL);
        if (bias)
            lm_constant(t, b, 1, &n, 0.3f, 0, NULL);
        lm_line(t, "tensor<fp32, [1, ?, %u]> %s = linear(x = %s, weight = %s%s%s);", n, y, x, w,
                bias ? ", bias = " : "", bias ? b : "");
        break;
    }
}

/* ---- inputs, masks ---- */

static inline void lm_inputs(struct lm_text *t)
{
    const struct lm_form *const f = &t->f;
    const uint32_t rows = f->two_states ? f->n_layers : 2 * f->n_layers;
    char states[300], more[300] = "";
    (void)snprintf(states, sizeof states, "state<tensor<fp32, [%u, %u, %u, %u]>> kv", rows, f->n_kv_heads, f->context,
                   f->head_width);
    if (f->two_states)
        (void)snprintf(more, sizeof more, ", state<tensor<fp32, [%u, %u, %u, %u]>> kv2", rows, f->n_kv_heads,
                       f->context, f->head_width);
    char waves[200] = "";
    if (f->rope == LM_ROPE_INPUTS)
        (void)snprintf(waves, sizeof waves, "tensor<fp32, [1, ?, %u]> cos_in, tensor<fp32, [1, ?, %u]> sin_in, ",
                       f->head_width, f->head_width);
    lm_line(t, "func main<ios18>(tensor<int32, [1, ?]> ids, %s%s%s%s) {",
            f->mask == LM_MASK_INPUT ? "tensor<fp32, [1, 1, ?, ?]> mask, " : "tensor<int32, [1, ?]> pos, ", waves,
            states, more);
}

/* begin, end, positions [1, T], and mask [1, 1, T, slots] where it is not an input */
static inline void lm_positions(struct lm_text *t)
{
    const struct lm_form *const f = &t->f;
    lm_line(t, "tensor<int32, [2]> ids_shape = shape(x = ids);");
    lm_line(t, "int32 n = gather(x = ids_shape, indices = int32(1), axis = int32(0));");
    if (f->mask == LM_MASK_INPUT) {
        lm_line(t, "tensor<int32, [4]> mask_shape = shape(x = mask);");
        lm_line(t, "int32 end = gather(x = mask_shape, indices = int32(3), axis = int32(0));");
        lm_line(t, "int32 begin = sub(x = end, y = n);");
        lm_line(t, "tensor<int32, [?]> range = range_1d(start = begin, end = end, step = int32(1));");
        lm_line(t, "tensor<int32, [1, ?]> positions = expand_dims(x = range, axes = tensor<int32, [1]>([0]));");
        lm_line(t, "tensor<fp32, [1, 1, ?, ?]> seen = identity(x = mask);");
        return;
    }
    lm_line(t, "int32 begin = slice_by_index(x = pos, begin = tensor<int32, [2]>([0, 0]), end = tensor<int32, [2]>([1, "
               "1]), squeeze_mask = tensor<bool, [2]>([true, true]));");
    lm_line(t, "int32 end = add(x = begin, y = n);");
    lm_line(t, "tensor<int32, [1, ?]> positions = identity(x = pos);");
    lm_constant(t, "fslots", 2, (const uint32_t[]){1, f->context}, 1, 0, lm_slot);
    lm_line(t, "tensor<int32, [1, %u]> slots = cast(x = fslots, dtype = string(\"int32\"));", f->context);
    lm_line(t, "tensor<int32, [?, 1]> rows = transpose(x = positions, perm = tensor<int32, [2]>([1, 0]));");
    lm_line(t, "tensor<bool, [?, %u]> causal = less_equal(x = slots, y = rows);", f->context);
    if (f->window) {
        lm_line(t, "tensor<int32, [?, 1]> first = sub(x = rows, y = int32(%u));", f->window);
        lm_line(t, "tensor<bool, [?, %u]> late = greater(x = slots, y = first);", f->context);
        lm_line(t, "tensor<bool, [?, %u]> visible = logical_and(x = causal, y = late);", f->context);
    } else {
        lm_line(t, "tensor<bool, [?, %u]> visible = identity(x = causal);", f->context);
    }
    if (f->mask == LM_MASK_COMPUTED) {
        lm_line(t, "tensor<fp32, [?, %u]> one = cast(x = visible, dtype = string(\"fp32\"));", f->context);
        lm_line(t, "tensor<fp32, [?, %u]> hidden = sub(x = fp32(1), y = one);", f->context);
        lm_line(t, "tensor<fp32, [?, %u]> far = mul(x = hidden, y = fp32(-65504));", f->context);
    } else {
        lm_line(t, "tensor<fp32, [?, %u]> far = select(cond = visible, a = fp32(0), b = fp32(-65504));", f->context);
    }
    lm_line(t, "tensor<fp32, [1, 1, ?, %u]> seen = expand_dims(x = far, axes = tensor<int32, [2]>([0, 1]));",
            f->context);
}

static inline void lm_embed(struct lm_text *t)
{
    const struct lm_form *const f = &t->f;
    const uint32_t width = f->n_heads * f->head_width;
    const char *ids = "ids", *const x0 = f->learned ? "token" : "x0";
    lm_constant(t, "table", 2, (const uint32_t[]){f->vocab, width}, 1, 0, NULL);
    if (f->embedding == LM_GATHER_GUARDED || f->embedding == LM_GATHER_LESS) {
        const bool less = f->embedding == LM_GATHER_LESS;
        lm_line(t, "tensor<bool, [1, ?]> good = %s(x = ids, y = int32(0));", less ? "less" : "greater_equal");
        lm_line(t, "tensor<int32, [1, ?]> wrapped = add(x = ids, y = int32(%u));", f->vocab);
        lm_line(t, "tensor<int32, [1, ?]> safe = select(cond = good, a = %s, b = %s);", less ? "wrapped" : "ids",
                less ? "ids" : "wrapped");
        ids = "safe";
    } else if (f->embedding == LM_GATHER_CLAMPED) {
        lm_line(t, "tensor<int32, [1, ?]> low = maximum(x = ids, y = int32(0));");
        lm_line(t, "tensor<int32, [1, ?]> safe = minimum(x = low, y = int32(%u));", f->vocab - 1);
        ids = "safe";
    } else if (f->embedding == LM_GATHER_ND) {
        lm_line(t, "tensor<int32, [1, ?, 1]> ids3 = expand_dims(x = ids, axes = tensor<int32, [1]>([-1]));");
        lm_line(t, "tensor<fp32, [1, ?, %u]> %s = gather_nd(x = table, indices = ids3, batch_dims = int32(0));", width,
                x0);
        return;
    }
    lm_line(t,
            "tensor<fp32, [1, ?, %u]> %s = gather(x = table, indices = %s, axis = int32(0), batch_dims = int32(0), "
            "validate_indices = bool(false));",
            width, x0, ids);
}

/* Learned positions, from row 2 of their table on. */
static inline void lm_learn(struct lm_text *t)
{
    const uint32_t width = t->f.n_heads * t->f.head_width;
    lm_constant(t, "places", 2, (const uint32_t[]){t->f.context + 2, width}, 1, 0, NULL);
    lm_line(t, "tensor<int32, [1, ?]> later = add(x = positions, y = int32(2));");
    lm_line(t, "tensor<fp32, [1, ?, %u]> place = gather(x = places, indices = later, axis = int32(0));", width);
    lm_line(t, "tensor<fp32, [1, ?, %u]> x0 = add(x = token, y = place);", width);
}

/* ---- a layer ---- */

static inline void lm_heads(struct lm_text *t, const char *y, const char *x, uint32_t n)
{
    const uint32_t width = t->f.head_width;
    lm_line(t, "tensor<fp32, [1, ?, %u, %u]> %s_4 = reshape(x = %s, shape = tensor<int32, [4]>([1, -1, %u, %u]));", n,
            width, y, x, n, width);
    lm_line(t, LM_HEADS "%s = transpose(x = %s_4, perm = tensor<int32, [4]>([0, 2, 1, 3]));", n, width, y, y);
}

/* Row `row` of state `state` gets x at begin … end - 1; then `layer` [KV, slots or end, K] of it. */
static inline void lm_store(struct lm_text *t, const char *layer, const char *state, uint32_t n_rows, uint32_t row,
                            const char *x)
{
    const struct lm_form *const f = &t->f;
    char type[80];
    (void)snprintf(type, sizeof type, "tensor<fp32, [%u, %u, %u, %u]>", n_rows, f->n_kv_heads, f->context,
                   f->head_width);
    lm_line(t, "%s %s_old = read_state(input = %s);", type, layer, state);
    for (int i = 0; i < 2; i++)
        lm_line(t,
                "tensor<int32, [4]> %s_%s = concat(values = (tensor<int32, [1]>([%u]), tensor<int32, [1]>([%u]), %s1, "
                "tensor<int32, [1]>([%u])), axis = int32(0), interleave = bool(false));",
                layer, i ? "to" : "from", row + (uint32_t)i, i ? f->n_kv_heads : 0, i ? "end" : "begin",
                i ? f->head_width : 0);
    lm_line(t, "%s %s_new = slice_update(x = %s_old, update = %s, begin = %s_from, end = %s_to);", type, layer, layer,
            x, layer, layer);
    lm_line(t, "write_state(data = %s_new, input = %s);", layer, state);
}

static inline void lm_load(struct lm_text *t, const char *layer, const char *state, uint32_t n_rows, uint32_t row)
{
    const struct lm_form *const f = &t->f;
    lm_line(t, "tensor<fp32, [%u, %u, %u, %u]> %s_all = read_state(input = %s);", n_rows, f->n_kv_heads, f->context,
            f->head_width, layer, state);
    lm_line(t,
            "tensor<fp32, [1, %u, %u, %u]> %s_whole = slice_by_index(x = %s_all, begin = tensor<int32, [4]>([%u, 0, 0, "
            "0]), end = tensor<int32, [4]>([%u, %u, %u, %u]));",
            f->n_kv_heads, f->context, f->head_width, layer, layer, row, row + 1, f->n_kv_heads, f->context,
            f->head_width);
    if (f->mask != LM_MASK_INPUT) {
        lm_line(t, LM_HEADS "%s = identity(x = %s_whole);", f->n_kv_heads, f->head_width, layer, layer);
        return;
    }
    lm_line(t,
            "tensor<int32, [4]> %s_used = concat(values = (tensor<int32, [1]>([1]), tensor<int32, [1]>([%u]), end1, "
            "tensor<int32, [1]>([%u])), axis = int32(0), interleave = bool(false));",
            layer, f->n_kv_heads, f->head_width);
    lm_line(t, LM_HEADS "%s = slice_by_index(x = %s_whole, begin = tensor<int32, [4]>([0, 0, 0, 0]), end = %s_used);",
            f->n_kv_heads, f->head_width, layer, layer, layer);
}

/* [1, KV, S, K] to [1, H, S, K] */
static inline void lm_repeat(struct lm_text *t, const char *y, const char *x)
{
    const struct lm_form *const f = &t->f;
    const uint32_t n = f->n_kv_heads, group = f->n_heads / n, width = f->head_width;
    lm_line(t, "tensor<fp32, [1, %u, 1, ?, %u]> %s_5 = expand_dims(x = %s, axes = tensor<int32, [1]>([2]));", n, width,
            y, x);
    if (f->group == LM_GROUP_ONES) {
        char ones[80];
        (void)snprintf(ones, sizeof ones, "%s_ones", y);
        lm_constant(t, ones, 5, (const uint32_t[]){1, 1, group, 1, 1}, 0, 1, NULL);
        lm_line(t, "tensor<fp32, [1, %u, %u, ?, %u]> %s_t = mul(x = %s_5, y = %s_ones);", n, group, width, y, y, y);
    } else {
        lm_line(t,
                "tensor<fp32, [1, %u, %u, ?, %u]> %s_t = tile(x = %s_5, reps = tensor<int32, [5]>([1, 1, %u, 1, "
                "1]));",
                n, group, width, y, y, group);
    }
    lm_line(t, LM_HEADS "%s = reshape(x = %s_t, shape = tensor<int32, [4]>([1, %u, -1, %u]));", f->n_heads, width, y, y,
            f->n_heads, width);
}

/* out = attention of q over k and v, shaped [dims, T, K] with keys [kdims, S, K] */
static inline void lm_attend(struct lm_text *t, const char *out, const char *dims, const char *q, const char *k,
                             const char *v)
{
    const uint32_t width = t->f.head_width;
    const double scale = 1 / sqrt((double)width);
    if (t->f.attend == LM_SDPA) {
        lm_line(t,
                "tensor<fp32, [%s, ?, %u]> %s = scaled_dot_product_attention(query = %s, key = %s, value = %s, "
                "attn_mask = seen);",
                dims, width, out, q, k, v);
        return;
    }
    if (t->f.attend == LM_SCALED_QUERY)
        lm_line(t, "tensor<fp32, [%s, ?, %u]> %s_q = mul(x = %s, y = fp32(%.9g));", dims, width, out, q, scale);
    lm_line(t, "tensor<fp32, [%s, ?, ?]> %s_0 = matmul(x = %s%s, y = %s, transpose_y = bool(true));", dims, out,
            t->f.attend == LM_SCALED_QUERY ? out : q, t->f.attend == LM_SCALED_QUERY ? "_q" : "", k);
    if (t->f.attend != LM_SCALED_QUERY)
        lm_line(t, "tensor<fp32, [%s, ?, ?]> %s_1 = mul(x = %s_0, y = fp32(%.9g));", dims, out, out, scale);
    lm_line(t, "tensor<fp32, [%s, ?, ?]> %s_2 = add(x = %s_%s, y = seen);", dims, out, out,
            t->f.attend == LM_SCALED_QUERY ? "0" : "1");
    lm_line(t, "tensor<fp32, [%s, ?, ?]> %s_p = softmax(x = %s_2, axis = int32(-1));", dims, out, out);
    lm_line(t, "tensor<fp32, [%s, ?, %u]> %s = matmul(x = %s_p, y = %s);", dims, width, out, out, v);
}

/* `step` heads at a time, which read one head of keys and values. */
static inline void lm_attend_each(struct lm_text *t, const char *out, const char *q, const char *k, const char *v,
                                  uint32_t step)
{
    const struct lm_form *const f = &t->f;
    char parts[400] = "", dims[40];
    (void)snprintf(dims, sizeof dims, "1, %u", step);
    for (uint32_t h = 0; h < f->n_heads; h += step) {
        const char *const names[] = {q, k, v};
        char part[3][60], name[60];
        for (int i = 0; i < 3; i++) {
            const uint32_t at = i ? h / (f->n_heads / f->n_kv_heads) : h, n = i ? 1 : step;
            (void)snprintf(part[i], sizeof part[i], "%s_h%u", names[i], h);
            lm_line(t,
                    "tensor<fp32, [1, %u, ?, %u]> %s = slice_by_index(x = %s, begin = tensor<int32, [4]>([0, %u, 0, "
                    "0]), end = tensor<int32, [4]>([0, %u, 0, 0]), begin_mask = tensor<bool, [4]>([true, false, true, "
                    "true]), end_mask = tensor<bool, [4]>([true, false, true, true]));",
                    n, f->head_width, part[i], names[i], at, at + n);
        }
        (void)snprintf(name, sizeof name, "%s_h%u", out, h);
        lm_attend(t, name, dims, part[0], part[1], part[2]);
        (void)snprintf(parts + strlen(parts), sizeof parts - strlen(parts), "%s%s", h ? ", " : "", name);
    }
    if (f->n_heads > step)
        lm_line(t, LM_HEADS "%s = concat(values = (%s), axis = int32(1), interleave = bool(false));", f->n_heads,
                f->head_width, out, parts);
    else
        lm_line(t, LM_HEADS "%s = identity(x = %s);", step, f->head_width, out, parts);
}

static inline void lm_attend_all(struct lm_text *t, const char *out, const char *q, const char *k, const char *v)
{
    const struct lm_form *const f = &t->f;
    const uint32_t group = f->n_heads / f->n_kv_heads, width = f->head_width;
    char dims[40], k5[60], v5[60], q5[60], o5[60];
    if (f->group == LM_GROUP_EACH || f->group == LM_GROUP_SLICES) {
        lm_attend_each(t, out, q, k, v, f->group == LM_GROUP_EACH || f->attend == LM_SDPA ? 1 : group);
        return;
    }
    (void)snprintf(k5, sizeof k5, "%s_k", out);
    (void)snprintf(v5, sizeof v5, "%s_v", out);
    if (f->group != LM_GROUP_BROADCAST || f->attend == LM_SDPA) {
        (void)snprintf(dims, sizeof dims, "1, %u", f->n_heads);
        lm_repeat(t, k5, k);
        lm_repeat(t, v5, v);
        lm_attend(t, out, dims, q, k5, v5);
        return;
    }
    (void)snprintf(q5, sizeof q5, "%s_q5", out);
    (void)snprintf(o5, sizeof o5, "%s_o5", out);
    (void)snprintf(dims, sizeof dims, "1, %u, %u", f->n_kv_heads, group);
    lm_line(t, "tensor<fp32, [%s, ?, %u]> %s = reshape(x = %s, shape = tensor<int32, [5]>([1, %u, %u, -1, %u]));", dims,
            width, q5, q, f->n_kv_heads, group, width);
    lm_line(t, "tensor<fp32, [1, %u, 1, ?, %u]> %s = expand_dims(x = %s, axes = tensor<int32, [1]>([2]));",
            f->n_kv_heads, width, k5, k);
    lm_line(t, "tensor<fp32, [1, %u, 1, ?, %u]> %s = expand_dims(x = %s, axes = tensor<int32, [1]>([2]));",
            f->n_kv_heads, width, v5, v);
    lm_attend(t, o5, dims, q5, k5, v5);
    lm_line(t, LM_HEADS "%s = reshape(x = %s, shape = tensor<int32, [4]>([1, %u, -1, %u]));", f->n_heads, width, out,
            o5, f->n_heads, width);
}

static inline void lm_gate(struct lm_text *t, const char *y, const char *x)
{
    const uint32_t n = t->f.ffn;
    switch (t->f.act) {
    case LM_SIGMOID:
        lm_line(t, "tensor<fp32, [1, ?, %u]> %s_s = sigmoid(x = %s);", n, y, x);
        lm_line(t, "tensor<fp32, [1, ?, %u]> %s = mul(x = %s, y = %s_s);", n, y, x, y);
        break;
    case LM_GELU_TANH:
    case LM_GELU_EXACT:
        lm_line(t, "tensor<fp32, [1, ?, %u]> %s = gelu(x = %s, mode = string(\"%s\"));", n, y, x,
                t->f.act == LM_GELU_TANH ? "TANH_APPROXIMATION" : "EXACT");
        break;
    case LM_ERF:
    case LM_ERF_LAST:
        lm_line(t, "tensor<fp32, [1, ?, %u]> %s_d = real_div(x = %s, y = fp32(1.41421356));", n, y, x);
        lm_line(t, "tensor<fp32, [1, ?, %u]> %s_e = erf(x = %s_d);", n, y, y);
        lm_line(t, "tensor<fp32, [1, ?, %u]> %s_1 = add(x = %s_e, y = fp32(1));", n, y, y);
        if (t->f.act == LM_ERF) {
            lm_line(t, "tensor<fp32, [1, ?, %u]> %s_h = mul(x = %s, y = fp32(0.5));", n, y, x);
            lm_line(t, "tensor<fp32, [1, ?, %u]> %s = mul(x = %s_h, y = %s_1);", n, y, y, y);
        } else {
            lm_line(t, "tensor<fp32, [1, ?, %u]> %s_m = mul(x = %s, y = %s_1);", n, y, x, y);
            lm_line(t, "tensor<fp32, [1, ?, %u]> %s = mul(x = %s_m, y = fp32(0.5));", n, y, y);
        }
        break;
    default:
        lm_line(t, "tensor<fp32, [1, ?, %u]> %s = %s(x = %s);", n, y, t->f.act == LM_RELU ? "relu" : "silu", x);
        break;
    }
}

static inline void lm_row_norm(struct lm_text *t, const char *y, const char *x)
{
    const uint32_t width = t->f.n_heads * t->f.head_width;
    char w[60];
    (void)snprintf(w, sizeof w, "%s_g", y);
    lm_constant(t, w, 1, &width, 0.2f, 1, NULL);
    lm_norm(t, y, x, "1, ?", "1, ?", width, w);
}

/* q or k of a layer: heads, their norm, turned: NAME_r */
static inline void lm_query(struct lm_text *t, const char *name, const char *rows, uint32_t n)
{
    char bare[60], type[40], w[60];
    (void)snprintf(bare, sizeof bare, "%s_bare", name);
    lm_heads(t, t->f.head_norms ? bare : name, rows, n);
    if (t->f.head_norms) {
        (void)snprintf(type, sizeof type, "1, %u, ?", n);
        (void)snprintf(w, sizeof w, "%s_g", name);
        lm_constant(t, w, 1, &t->f.head_width, 0.2f, 1, NULL);
        lm_norm(t, name, bare, type, type, t->f.head_width, w);
    }
    lm_rotate(t, name, n);
}

static inline void lm_layer(struct lm_text *t, uint32_t l)
{
    const struct lm_form *const f = &t->f;
    const uint32_t width = f->n_heads * f->head_width, kv = f->n_kv_heads * f->head_width, n = f->n_layers;
    const char *const second = f->two_states ? "kv2" : "kv";
    const uint32_t n_rows = f->two_states ? n : 2 * n, v_row = f->two_states ? l : n + l;
    char x[30], h[30], q[30], k[30], v[30], qr[40], kr[40], K[30], V[30], a[30], name[40];
#define LM_NAME(buffer, format) (void)snprintf(buffer, sizeof buffer, format, l)
    LM_NAME(x, "x%u");
    LM_NAME(h, "h%u");
    LM_NAME(q, "q%u");
    LM_NAME(k, "k%u");
    LM_NAME(v, "v%u");
    LM_NAME(qr, "q%u_r");
    LM_NAME(kr, "k%u_r");
    LM_NAME(K, "K%u");
    LM_NAME(V, "V%u");
    LM_NAME(a, "a%u");
    lm_row_norm(t, h, x);
    LM_NAME(name, "qrows%u");
    lm_product(t, name, h, width, width, f->biases);
    lm_query(t, q, name, f->n_heads);
    LM_NAME(name, "krows%u");
    lm_product(t, name, h, kv, width, f->biases);
    lm_query(t, k, name, f->n_kv_heads);
    LM_NAME(name, "vrows%u");
    lm_product(t, name, h, kv, width, false);
    lm_heads(t, v, name, f->n_kv_heads);
    lm_store(t, K, "kv", n_rows, l, kr);
    lm_store(t, V, second, n_rows, v_row, v);
    lm_load(t, K, "kv", n_rows, l);
    lm_load(t, V, second, n_rows, v_row);
    lm_attend_all(t, a, qr, K, V);
    lm_line(t, "tensor<fp32, [1, ?, %u, %u]> a%u_t = transpose(x = a%u, perm = tensor<int32, [4]>([0, 2, 1, 3]));",
            f->n_heads, f->head_width, l, l);
    lm_line(t, "tensor<fp32, [1, ?, %u]> a%u_f = reshape(x = a%u_t, shape = tensor<int32, [3]>([1, -1, %u]));", width,
            l, l, width);
    LM_NAME(a, "a%u_f");
    LM_NAME(name, "o%u");
    lm_product(t, name, a, width, width, false);
    lm_line(t, "tensor<fp32, [1, ?, %u]> y%u = add(x = x%u, y = o%u);", width, l, l, l);
    LM_NAME(x, "y%u");
    LM_NAME(h, "f%u");
    lm_row_norm(t, h, x);
    LM_NAME(name, "gate%u");
    lm_product(t, name, h, f->ffn, width, f->biases);
    LM_NAME(a, "act%u");
    lm_gate(t, a, name);
    if (!f->no_gate) {
        LM_NAME(name, "up%u");
        lm_product(t, name, h, f->ffn, width, false);
        lm_line(t, "tensor<fp32, [1, ?, %u]> glu%u = mul(x = act%u, y = up%u);", f->ffn, l, l, l);
        LM_NAME(a, "glu%u");
    }
    LM_NAME(name, "down%u");
    lm_product(t, name, a, width, f->ffn, false);
    lm_line(t, "tensor<fp32, [1, ?, %u]> x%u = add(x = y%u, y = down%u);", width, l + 1, l, l);
#undef LM_NAME
}

/* The program; the caller frees the bytes. */
static inline struct bytes lm_program(const struct lm_form *form)
{
    struct lm_text t = {.f = *form, .seed = form->seed * 7919 + 12345};
    const struct lm_form *const f = &t.f;
    const uint32_t width = f->n_heads * f->head_width, columns = lm_narrow(f) ? f->head_width / 2 : f->head_width;
    char last[20];
    lm_line(&t, "program(1.3)");
    lm_line(&t, "{");
    lm_inputs(&t);
    if (lm_has_tables(f)) {
        lm_constant(&t, "cos_table", 2, (const uint32_t[]){f->context, columns}, 0, 0, lm_cos);
        lm_constant(&t, "sin_table", 2, (const uint32_t[]){f->context, columns}, 0, 0, lm_sin);
    }
    lm_positions(&t);
    lm_line(&t, "tensor<int32, [1]> begin1 = expand_dims(x = begin, axes = tensor<int32, [1]>([0]));");
    lm_line(&t, "tensor<int32, [1]> end1 = expand_dims(x = end, axes = tensor<int32, [1]>([0]));");
    lm_waves(&t);
    lm_embed(&t);
    if (f->learned)
        lm_learn(&t);
    for (uint32_t l = 0; l < f->n_layers; l++)
        lm_layer(&t, l);
    (void)snprintf(last, sizeof last, "x%u", f->n_layers);
    if (f->last_only) {
        lm_line(&t,
                "tensor<fp32, [1, 1, %u]> x_last = slice_by_index(x = %s, begin = tensor<int32, [3]>([0, -1, 0]), end "
                "= tensor<int32, [3]>([1, 0, %u]), end_mask = tensor<bool, [3]>([true, true, true]));",
                width, last, width);
        (void)snprintf(last, sizeof last, "x_last");
    }
    lm_row_norm(&t, "final", last);
    lm_product(&t, "logits0", "final", f->vocab, width, false);
    if (f->softcap) {
        lm_line(&t, "tensor<fp32, [1, ?, %u]> logits1 = mul(x = logits0, y = fp32(0.25));", f->vocab);
        lm_line(&t, "tensor<fp32, [1, ?, %u]> logits2 = tanh(x = logits1);", f->vocab);
        lm_line(&t, "tensor<fp32, [1, ?, %u]> logits = mul(x = logits2, y = fp32(4));", f->vocab);
    } else {
        lm_line(&t, "tensor<fp32, [1, ?, %u]> logits = identity(x = logits0);", f->vocab);
    }
    lm_line(&t, "} -> (logits);\n}");
    return t.out;
}

#endif
