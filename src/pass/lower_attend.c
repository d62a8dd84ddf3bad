/* pass/lower_attend.c: the cache and attention, tile by tile.
 *
 * Scores exist only for one tile of keys at a time, in one of three forms that give the same numbers:
 *
 *   two-pass  one maximum over all tiles, then exp, sum and product of each; rows are divided before the product
 *   online    a running maximum, sum and product, rescaled where a tile raises the maximum
 *   split     each tile its own softmax, joined by the tiles' log-sum-exp
 *
 * In the first and the last the weights of a product sum to at most 1, so a half float holds it whatever the context.
 * Rows that see nothing of a tile are no special case: what is hidden is -40000, and its weight is 0 or, where a row
 * sees nothing at all, an average that nobody reads. The factor on scores is applied to the query, which is smaller. */
#include "pass/lower_int.h"

/* ---- the cache ---- */

/* Rows of the state that hold this layer's keys and values. */
static uint32_t cache_row(const struct lowerer *l, uint32_t which)
{
    const uint32_t layer = l->layer - l->first_layer;
    return l->c->one_state && which ? layer + l->end_layer - l->first_layer : layer;
}

static uint32_t cache_state(const struct lowerer *l, uint32_t which)
{
    return l->c->one_state ? 0 : which;
}

/* Padding rows keep what is there. */
static var guard(struct lowerer *l, var content, var rows, var begin, uint32_t n_heads, uint32_t width)
{
    const var size = INTS(l, 1, (int32_t)n_heads, (int32_t)l->n_rows, (int32_t)width);
    const var old = OP(l, "slice_by_size", "old_rows", {"x", content}, {"begin", begin}, {"size", size});
    const var kept = OP(l, "mul", "kept_rows", {"x", old}, {"y", l->invalid});
    return OP(l, "add", "rows", {"x", OP(l, "mul", "valid_rows", {"x", rows}, {"y", l->valid})}, {"y", kept});
}

static void append_one(struct lowerer *l, teg_value_id v, const struct teg_op *op, uint32_t which)
{
    const uint32_t n = op->attr.attention.n_kv_heads, width = op->attr.attention.head_width;
    const uint32_t s = cache_state(l, which);
    const int32_t row = (int32_t)cache_row(l, which);
    var rows = teg_lower_heads(l, v, width);
    if (l->c->channels) /* [G, K, 1, T] -> [1, G, T, K] */
        rows = teg_lower_transpose(l, which ? "v_rows" : "k_rows", rows, 4, (const int32_t[]){2, 0, 3, 1});
    const var begin = teg_lower_bounds(l, "begin", (const int32_t[]){row, 0}, 2, l->begin, 0);
    const var end = teg_lower_bounds(l, "end", (const int32_t[]){row + 1, (int32_t)n}, 2, l->end, (int32_t)width);
    if (l->guarded)
        rows = guard(l, l->content[s], rows, begin, n, width);
    const var updated = OP(l, "slice_update", which ? "v_updated" : "k_updated", {"x", l->content[s]}, {"update", rows},
                           {"begin", begin}, {"end", end});
    (void)OP(l, "write_state", which ? "v_write" : "k_write", {"input", l->states[s]}, {"data", updated});
    l->content[s] = OP(l, "read_state", which ? "v_cache_now" : "k_cache_now", {"input", l->states[s]});
}

void teg_lower_append(struct lowerer *l, const struct teg_op *op)
{
    append_one(l, op->inputs[0], op, 0);
    append_one(l, op->inputs[1], op, 1);
}

/* ---- tiles ---- */

/* The heads that are computed at once: all (rows), or one query head. */
struct unit {
    const struct teg_op *op;
    const struct mask_set *masks;
    var q;
    const var *keys, *values; /* of each tile */
    uint32_t axis;            /* of keys in the scores */
};

/* Slots of tile i, heads begin … begin + n - 1. */
static var read_tile(struct lowerer *l, const struct teg_op *op, uint32_t which, uint32_t i, uint32_t begin, uint32_t n)
{
    const int32_t row = (int32_t)cache_row(l, which), width = (int32_t)op->attr.attention.head_width;
    const int32_t from = (int32_t)(i * l->tile), to = (int32_t)teg_min((size_t)(i + 1) * l->tile, l->context);
    const var tile = OP(l, "slice_by_index", which ? "v_tile" : "k_tile", {"x", l->content[cache_state(l, which)]},
                        {"begin", INTS(l, row, (int32_t)begin, from, 0)},
                        {"end", INTS(l, row + 1, (int32_t)(begin + n), to, width)});
    if (!l->c->per_head) /* [1, G, tile, K] -> [G, 1, tile, K] */
        return teg_lower_reshape(l, which ? "v_by_head" : "k_by_head", tile, 4,
                                 (const int32_t[]){(int32_t)n, 1, to - from, width});
    if (which) /* [1, 1, tile, K] -> [1, K, 1, tile] */
        return teg_lower_transpose(l, "v_channels", tile, 4, (const int32_t[]){0, 3, 1, 2});
    return teg_lower_reshape(l, "k_channels", tile, 4, (const int32_t[]){1, to - from, 1, width});
}

static var einsum(struct lowerer *l, const char *name, var x, var y)
{
    return OP(l, "einsum", name, {"values", x}, {"values", y},
              {"equation", teg_mil_make_string(l->m, "nchw,nwhu->nchu")});
}

static var score(struct lowerer *l, const struct unit *u, uint32_t i)
{
    const float cap = u->op->attr.attention.softcap;
    var s = l->c->per_head ? einsum(l, "scores", u->keys[i], u->q)
                           : OP(l, "matmul", "scores", {"x", u->q}, {"y", u->keys[i]},
                                {"transpose_y", teg_mil_make_bool(l->m, true)});
    if (cap > 0) /* the query has been divided by it */
        s = teg_lower_multiply(l, "capped", OP(l, "tanh", "bent", {"x", s}), cap);
    return OP(l, "add", "masked", {"x", s}, {"y", u->masks->tiles[i]});
}

static var weigh(struct lowerer *l, const struct unit *u, var weights, uint32_t i)
{
    return l->c->per_head ? einsum(l, "weighed", u->values[i], weights)
                          : OP(l, "matmul", "weighed", {"x", weights}, {"y", u->values[i]});
}

static var reduce(struct lowerer *l, const char *type, const struct unit *u, var x)
{
    return teg_lower_op(
        l, type, type,
        (const struct teg_mil_bind[]){
            {"x", x}, {"axes", INTS(l, (int32_t)u->axis)}, {"keep_dims", teg_mil_make_bool(l->m, true)}, {NULL, 0}});
}

static var both(struct lowerer *l, const char *type, const char *name, var x, var y)
{
    return x == TEG_MIL_NO_VAR ? y : OP(l, type, name, {"x", x}, {"y", y});
}

static var raised(struct lowerer *l, const char *name, var x, var maximum)
{
    return OP(l, "exp", name, {"x", OP(l, "sub", "below", {"x", x}, {"y", maximum})});
}

static var two_pass(struct lowerer *l, const struct unit *u)
{
    var s[MOST_TILES], maximum = TEG_MIL_NO_VAR, sum = TEG_MIL_NO_VAR, out = TEG_MIL_NO_VAR;
    for (uint32_t i = 0; i < l->n_tiles; i++) {
        s[i] = score(l, u, i);
        maximum = both(l, "maximum", "maximum", maximum, reduce(l, "reduce_max", u, s[i]));
    }
    for (uint32_t i = 0; i < l->n_tiles; i++) {
        s[i] = raised(l, "raised", s[i], maximum);
        sum = both(l, "add", "total", sum, reduce(l, "reduce_sum", u, s[i]));
    }
    for (uint32_t i = 0; i < l->n_tiles; i++) {
        const var weights = OP(l, "real_div", "weights", {"x", s[i]}, {"y", sum});
        out = both(l, "add", "attended", out, weigh(l, u, weights, i));
    }
    return out;
}

static var online(struct lowerer *l, const struct unit *u)
{
    var maximum = TEG_MIL_NO_VAR, sum = TEG_MIL_NO_VAR, out = TEG_MIL_NO_VAR;
    for (uint32_t i = 0; i < l->n_tiles; i++) {
        const var s = score(l, u, i);
        const var higher = both(l, "maximum", "maximum", maximum, reduce(l, "reduce_max", u, s));
        if (i) {
            const var factor = raised(l, "rescale", maximum, higher);
            sum = OP(l, "mul", "rescaled_total", {"x", sum}, {"y", factor});
            out = OP(l, "mul", "rescaled", {"x", out}, {"y", factor});
        }
        const var weights = raised(l, "raised", s, higher);
        sum = both(l, "add", "total", sum, reduce(l, "reduce_sum", u, weights));
        out = both(l, "add", "attended", out, weigh(l, u, weights, i));
        maximum = higher;
    }
    return OP(l, "real_div", "divided", {"x", out}, {"y", sum});
}

static var softmax(struct lowerer *l, const struct unit *u, var s)
{
    return OP(l, "softmax", "weights", {"x", s}, {"axis", teg_mil_make_int(l->m, (int32_t)u->axis)});
}

static var split(struct lowerer *l, const struct unit *u)
{
    var part[MOST_TILES], share[MOST_TILES];
    var maximum = TEG_MIL_NO_VAR, sum = TEG_MIL_NO_VAR, out = TEG_MIL_NO_VAR;
    for (uint32_t i = 0; i < l->n_tiles; i++) {
        const var s = score(l, u, i);
        share[i] = reduce(l, "reduce_log_sum_exp", u, s);
        part[i] = weigh(l, u, softmax(l, u, s), i);
        maximum = both(l, "maximum", "maximum", maximum, share[i]);
    }
    for (uint32_t i = 0; i < l->n_tiles; i++) {
        const var weight = raised(l, "share", share[i], maximum);
        sum = both(l, "add", "total", sum, weight);
        out = both(l, "add", "attended", out, OP(l, "mul", "shared", {"x", part[i]}, {"y", weight}));
    }
    return OP(l, "real_div", "divided", {"x", out}, {"y", sum});
}

static var attend(struct lowerer *l, const struct unit *u)
{
    static var (*const forms[])(struct lowerer * l, const struct unit *u) = {
        [TEG_SOFTMAX_TWO_PASS] = two_pass, [TEG_SOFTMAX_ONLINE] = online, [TEG_SOFTMAX_SPLIT] = split};
    if (l->n_tiles == 1)
        return weigh(l, u, softmax(l, u, score(l, u, 0)), 0);
    return forms[l->o->softmax](l, u);
}

/* ---- the op ---- */

static void read_tiles(struct lowerer *l, const struct teg_op *op, uint32_t begin, uint32_t n, var *keys, var *values)
{
    for (uint32_t i = 0; i < l->n_tiles; i++) {
        keys[i] = read_tile(l, op, 0, i, begin, n);
        values[i] = read_tile(l, op, 1, i, begin, n);
    }
}

/* All heads at once: query [G, H/G, T, K] against keys [G, 1, tile, K]. */
static var attend_groups(struct lowerer *l, struct unit *u, var q)
{
    const int32_t heads = (int32_t)u->op->attr.attention.n_heads, groups = (int32_t)u->op->attr.attention.n_kv_heads;
    const int32_t width = (int32_t)u->op->attr.attention.head_width, rows = l->n_rows ? (int32_t)l->n_rows : -1;
    var keys[MOST_TILES], values[MOST_TILES];
    read_tiles(l, u->op, 0, (uint32_t)groups, keys, values);
    u->q = teg_lower_reshape(l, "q_groups", q, 4, (const int32_t[]){groups, heads / groups, rows, width});
    u->keys = keys;
    u->values = values;
    u->axis = 3;
    return teg_lower_reshape(l, "attended_heads", attend(l, u), 4, (const int32_t[]){1, heads, rows, width});
}

/* Each query head alone, [1, K, 1, T]; keys along the channels. */
static var attend_heads(struct lowerer *l, struct unit *u, var q)
{
    const uint32_t heads = u->op->attr.attention.n_heads, repeats = heads / u->op->attr.attention.n_kv_heads;
    var keys[MOST_TILES], values[MOST_TILES];
    var *const out = teg_arena_array(&l->scratch, heads, sizeof *out);
    if (!out) {
        teg_lower_keep(l, teg_base_fail_memory(l->err, "heads", heads));
        return TEG_MIL_NO_VAR;
    }
    u->keys = keys;
    u->values = values;
    u->axis = 1;
    for (uint32_t h = 0; h < heads && teg_lower_ok(l); h++) {
        if (h % repeats == 0)
            read_tiles(l, u->op, h / repeats, 1, keys, values);
        u->q = heads == 1 ? q : teg_lower_slice(l, "q_head", q, 4, 0, h, h + 1);
        out[h] = attend(l, u);
    }
    return teg_lower_concat(l, "attended_heads", out, heads, 1);
}

void teg_lower_attention(struct lowerer *l, const struct teg_op *op)
{
    const float cap = op->attr.attention.softcap, scale = op->attr.attention.scale;
    struct unit u = {.op = op, .masks = &l->masks[teg_lower_mask_index(l, op->attr.attention.window)]};
    const var heads = teg_lower_heads(l, op->inputs[0], op->attr.attention.head_width);
    const var q = teg_lower_multiply(l, "q_scaled", heads, cap > 0 ? scale / cap : scale);
    struct seen *const out = &l->seen[op->result];
    *out = (struct seen){.flat = TEG_MIL_NO_VAR, .heads = TEG_MIL_NO_VAR};
    if (l->c->per_head) {
        out->flat = attend_heads(l, &u, q);
    } else {
        out->heads = attend_groups(l, &u, q);
        out->head_width = op->attr.attention.head_width;
    }
}
