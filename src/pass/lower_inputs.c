/* pass/lower_inputs.c: the functions of each profile: what comes in, what goes out, what is made once for all layers.
 *
 * In the fixed profile everything that needs integers (the embedding, tables of RoPE, masks) is one function of its
 * own, `prepare`, whose outputs are the inputs of the others by name. So the functions for the device compute in half
 * floats only, and a caller may fill these inputs in its own way. */
#include "pass/lower_int.h"

#include <stdio.h>

static const float hidden_score = -40000; /* plus any score it is still finite */

/* ---- masks ---- */

uint32_t teg_lower_mask_index(struct lowerer *l, uint32_t window)
{
    uint32_t i = 0;
    while (i < l->n_masks && l->masks[i].window != window)
        i++;
    if (i < l->n_masks)
        return i;
    if (i == MOST_WINDOWS) {
        teg_lower_keep(l, teg_base_fail(l->err, TEG_ERR_UNSUPPORTED, 0,
                                        "cannot write a package: attention: expected at most %d lengths of windows, "
                                        "found more",
                                        MOST_WINDOWS));
        return 0;
    }
    l->masks[l->n_masks++].window = window;
    return i;
}

/* slot RELATION position, for the slots of one tile. */
static var compare(struct lowerer *l, const char *relation, var slots, var positions)
{
    return teg_lower_op(l, relation, relation,
                        (const struct teg_mil_bind[]){{"x", slots}, {"y", positions}, {NULL, 0}});
}

/* 0 where a key is seen, else far below. positions [T, 1] (or [1, T, 1]). */
static var make_mask(struct lowerer *l, uint32_t window, uint32_t tile, var positions, bool batched)
{
    const uint32_t from = tile * l->tile, to = (uint32_t)teg_min((size_t)from + l->tile, l->o->context);
    const int64_t dims[3] = {1, batched ? 1 : to - from, to - from};
    int32_t *const slots = teg_arena_array(&l->scratch, to - from, sizeof *slots);
    if (!slots) {
        teg_lower_keep(l, teg_base_fail_memory(l->err, "slots", to - from));
        return TEG_MIL_NO_VAR;
    }
    for (uint32_t i = from; i < to; i++)
        slots[i - from] = (int32_t)i;
    const var s = teg_mil_make_const(l->m, "slots", TEG_MIL_INT32, batched ? 3 : 2, dims, slots);
    var seen = compare(l, "less_equal", s, positions);
    if (window) {
        const var first =
            OP(l, "sub", "before_window", {"x", positions}, {"y", teg_mil_make_int(l->m, (int32_t)window)});
        seen = OP(l, "logical_and", "in_window", {"x", seen}, {"y", compare(l, "greater", s, first)});
    }
    const var ones = OP(l, "cast", "seen", {"x", seen}, {"dtype", teg_mil_make_string(l->m, "fp16")});
    const var hidden = OP(l, "sub", "hidden_keys", {"x", teg_lower_half(l, 1)}, {"y", ones});
    return OP(l, "mul", "far_below", {"x", hidden}, {"y", teg_lower_half(l, hidden_score)});
}

void teg_lower_make_masks(struct lowerer *l, struct mask_set *set, var positions, bool batched)
{
    for (uint32_t i = 0; i < l->n_tiles; i++)
        set->tiles[i] = make_mask(l, set->window, i, positions, batched);
}

/* ---- rope ---- */

uint32_t teg_lower_rope_index(struct lowerer *l, const struct teg_op *op)
{
    const struct rope_tables want = {.a = teg_lower_frequencies(l, op),
                                     .b = teg_lower_has_tables(l, op) ? op->inputs[2] : TEG_NO_VALUE,
                                     .magnitude = op->attr.rope.magnitude,
                                     .head_width = op->attr.rope.head_width,
                                     .op = op};
    for (uint32_t i = 0; i < l->n_ropes; i++)
        if (l->ropes[i].a == want.a && l->ropes[i].b == want.b && l->ropes[i].magnitude == want.magnitude &&
            l->ropes[i].head_width == want.head_width)
            return i;
    if (l->n_ropes == MOST_ROPES) {
        teg_lower_keep(l, teg_base_fail(l->err, TEG_ERR_UNSUPPORTED, 0,
                                        "cannot write a package: rope: expected at most %d kinds of rotation, found "
                                        "more",
                                        MOST_ROPES));
        return 0;
    }
    l->ropes[l->n_ropes] = want;
    return l->n_ropes++;
}

/* The masks and tables of all layers, numbered alike in every part, and which of them this part reads. */
static void find_shared(struct lowerer *l)
{
    for (uint32_t layer = 0; layer < l->layers.n; layer++)
        for (uint32_t i = l->layers.at[layer].begin; i < l->layers.at[layer].end; i++) {
            const struct teg_op *const op = &l->g->ops[i];
            const bool here = layer >= l->first_layer && layer < l->end_layer;
            if (op->kind == TEG_OP_ROPE)
                l->ropes[teg_lower_rope_index(l, op)].is_used |= here;
            if (op->kind == TEG_OP_ATTENTION)
                l->masks[teg_lower_mask_index(l, op->attr.attention.window)].is_used |= here;
        }
}

static const char *numbered(char out[32], uint32_t i)
{
    if (i == 0)
        return "";
    (void)snprintf(out, 32, "_%u", i);
    return out;
}

/* [1, T, K] of the positions. */
static void gather_tables(struct lowerer *l, uint32_t i, var positions, var *cosines, var *sines)
{
    char suffix[32];
    var c, s;
    teg_lower_tables(l, l->ropes[i].op, numbered(suffix, i), &c, &s);
    *cosines = OP(l, "gather", "cos_rows", {"x", c}, {"indices", positions}, {"axis", teg_mil_make_int(l->m, 0)});
    *sines = OP(l, "gather", "sin_rows", {"x", s}, {"indices", positions}, {"axis", teg_mil_make_int(l->m, 0)});
}

/* ---- common ---- */

static const struct teg_op *embedding_op(struct lowerer *l)
{
    for (uint32_t i = 0; i < l->layers.at[0].begin; i++)
        if (l->g->ops[i].kind == TEG_OP_EMBEDDING)
            return &l->g->ops[i];
    teg_lower_keep(l, teg_base_fail(l->err, TEG_ERR_UNSUPPORTED, 0,
                                    "cannot write a package: graph: expected an embedding of the tokens, found none"));
    return NULL;
}

/* The learned row of each position. */
static var position_rows(struct lowerer *l, const struct teg_op *op, var positions)
{
    const var table =
        teg_lower_weight(l, &(struct weight_use){.value = op->inputs[0], .op = UINT32_MAX, .embedding = true});
    if (op->attr.first)
        positions =
            OP(l, "add", "position_rows", {"x", positions}, {"y", teg_mil_make_int(l->m, (int32_t)op->attr.first)});
    return OP(l, "gather", "position_embedded", {"x", table}, {"indices", positions},
              {"axis", teg_mil_make_int(l->m, 0)});
}

/* Rows of the embedding, and what is done with them before the first layer: learned positions are added, all is
 * scaled. */
static var embed(struct lowerer *l, var ids, var positions)
{
    const struct teg_op *const op = embedding_op(l);
    if (!op)
        return TEG_MIL_NO_VAR;
    const var table =
        teg_lower_weight(l, &(struct weight_use){.value = op->inputs[1], .op = UINT32_MAX, .embedding = true});
    var x = OP(l, "gather", "embedded", {"x", table}, {"indices", ids}, {"axis", teg_mil_make_int(l->m, 0)});
    var learned = TEG_MIL_NO_VAR;
    x = teg_lower_multiply(l, "embedded_scaled", x, op->attr.scale.scale);
    for (uint32_t i = 0; i < l->layers.at[0].begin; i++) {
        const struct teg_op *const next = &l->g->ops[i];
        if (next == op)
            continue;
        if (next->kind == TEG_OP_POSITION && learned == TEG_MIL_NO_VAR)
            learned = position_rows(l, next, positions);
        else if (next->kind == TEG_OP_ADD && learned != TEG_MIL_NO_VAR)
            x = OP(l, "add", "embedded_placed", {"x", x}, {"y", learned});
        else if (next->kind == TEG_OP_SCALE)
            x = teg_lower_multiply(l, "embedded_scaled", x, next->attr.scale.scale);
        else
            teg_lower_keep(l, teg_base_fail(l->err, TEG_ERR_UNSUPPORTED, 0,
                                            "cannot write a package: %s: expected only a factor and learned positions "
                                            "between embedding and first layer, found this op",
                                            teg_op_name(next->kind)));
    }
    return x;
}

static void forget(struct lowerer *l)
{
    for (uint32_t i = 0; i < l->g->n_values; i++)
        l->seen[i] = (struct seen){TEG_MIL_NO_VAR, TEG_MIL_NO_VAR, 0};
}

static void begin_function(struct lowerer *l, const char *name, uint32_t n_rows, uint32_t context)
{
    l->prefix = "";
    l->n_rows = n_rows;
    l->context = context;
    l->n_tiles = (context + l->tile - 1) / l->tile;
    l->guarded = false;
    forget(l);
    teg_mil_make_function(l->m, name, l->o->spec_version ? l->o->spec_version : 9);
}

static void write_layers(struct lowerer *l)
{
    char prefix[32];
    for (l->layer = l->first_layer; l->layer < l->end_layer && teg_lower_ok(l); l->layer++) {
        const struct layer_range r = l->layers.at[l->layer];
        (void)snprintf(prefix, sizeof prefix, "layer%u_", l->layer);
        l->prefix = prefix;
        for (uint32_t i = r.begin; i < r.end; i++)
            teg_lower_graph_op(l, i);
    }
    l->prefix = "";
}

static void state(struct lowerer *l, uint32_t i, const char *name, uint32_t rows)
{
    const struct teg_value *const s = &l->g->values[l->layers.at[l->first_layer].state];
    for (uint32_t k = l->first_layer; k < l->end_layer; k++) {
        const struct teg_value *const other = &l->g->values[l->layers.at[k].state];
        if (other->shape.dims[0] != s->shape.dims[0] || other->shape.dims[1] != s->shape.dims[1])
            teg_lower_keep(l, teg_base_fail(l->err, TEG_ERR_UNSUPPORTED, 0,
                                            "cannot write a package: kv_append: expected caches of one shape in all "
                                            "layers (they are one state), found another in layer %u",
                                            k));
    }
    const int64_t dims[4] = {rows, s->shape.dims[0], l->o->context, s->shape.dims[1]};
    l->states[i] = teg_mil_make_state(l->m, name, TEG_MIL_FP16, 4, dims);
    l->content[i] = OP(l, "read_state", "cache", {"input", l->states[i]});
}

static var input(struct lowerer *l, const char *name, enum teg_mil_dtype dtype, uint32_t rank, const int64_t *dims,
                 uint32_t most)
{
    struct teg_mil_feature f = {.name = name,
                                .description = "",
                                .kind = TEG_MIL_FEATURE_ARRAY,
                                .dtype = dtype,
                                .rank = rank,
                                .has_shape = true};
    int64_t shapes[40][TEG_MIL_MAX_RANK];
    for (uint32_t d = 0; d < rank; d++) {
        f.shape[d] = f.lower[d] = f.upper[d] = dims[d];
        if (most > 1 && d == 1)
            f.upper[d] = most;
    }
    for (uint64_t t = 1; l->o->enumerated && !l->c->fixed && most > 1 && t < 2 * (uint64_t)most; t *= 2) {
        memcpy(shapes[f.n_enumerated], f.shape, sizeof f.shape);
        shapes[f.n_enumerated++][1] = (int64_t)teg_min((size_t)t, most); /* the chunk is the last */
        f.enumerated = (const int64_t(*)[TEG_MIL_MAX_RANK])shapes;
    }
    return teg_mil_make_input(l->m, &f);
}

/* ---- portable ---- */

void teg_lower_portable(struct lowerer *l)
{
    const int64_t ids_dims[2] = {1, 1};
    const uint32_t n = l->layers.n;
    find_shared(l);
    begin_function(l, "main", l->o->chunk == 1 ? 1 : 0, l->o->context);
    const var ids = input(l, "input_ids", TEG_MIL_INT32, 2, ids_dims, l->o->chunk);
    const var positions = input(l, "position_ids", TEG_MIL_INT32, 2, ids_dims, l->o->chunk);
    state(l, 0, "k_cache", n);
    state(l, 1, "v_cache", n);
    const uint8_t drop_first[2] = {1, 0};
    const int64_t two = 2;
    l->begin =
        OP(l, "slice_by_index", "first_position", {"x", positions}, {"begin", INTS(l, 0, 0)}, {"end", INTS(l, 1, 1)},
           {"squeeze_mask", teg_mil_make_const(l->m, NULL, TEG_MIL_BOOL, 1, &two, drop_first)});
    const var shape = OP(l, "shape", "ids_shape", {"x", ids});
    const var count = OP(l, "slice_by_index", "n_tokens", {"x", shape}, {"begin", INTS(l, 1)}, {"end", INTS(l, 2)});
    l->end = OP(l, "add", "end_position", {"x", l->begin}, {"y", count});
    const var column = teg_lower_transpose(l, "positions", positions, 2, (const int32_t[]){1, 0});
    for (uint32_t i = 0; i < l->n_masks; i++)
        teg_lower_make_masks(l, &l->masks[i], column, false);
    for (uint32_t i = 0; i < l->n_ropes; i++) {
        var c, s;
        gather_tables(l, i, positions, &c, &s);
        l->ropes[i].cos = OP(l, "expand_dims", "cos", {"x", c}, {"axes", INTS(l, 1)});
        l->ropes[i].sin = OP(l, "expand_dims", "sin", {"x", s}, {"axes", INTS(l, 1)});
    }
    l->seen[l->layers.embedded].flat = embed(l, ids, positions);
    write_layers(l);
    const var rows = teg_lower_flat(l, l->layers.last);
    const int64_t three = 3;
    const uint8_t all[3] = {1, 1, 1}, not_rows[3] = {1, 0, 1};
    l->seen[l->layers.last] =
        (struct seen){.heads = TEG_MIL_NO_VAR,
                      .flat = OP(l, "slice_by_index", "last_row", {"x", rows}, {"begin", INTS(l, 0, -1, 0)},
                                 {"end", INTS(l, 0, 0, 0)},
                                 {"begin_mask", teg_mil_make_const(l->m, NULL, TEG_MIL_BOOL, 1, &three, not_rows)},
                                 {"end_mask", teg_mil_make_const(l->m, NULL, TEG_MIL_BOOL, 1, &three, all)})};
    teg_lower_head(l);
}

/* ---- fixed: prepare, and what the device runs ---- */

static const char *mask_name(const struct lowerer *l, uint32_t set, uint32_t tile, char out[48])
{
    if (l->masks[set].window)
        (void)snprintf(out, 48, "mask_w%u_%u", l->masks[set].window, tile);
    else
        (void)snprintf(out, 48, "mask_%u", tile);
    return out;
}

static void prepare_function(struct lowerer *l)
{
    const int64_t ids_dims[2] = {1, 1};
    char name[48], number[32];
    begin_function(l, "prepare", 0, l->o->context);
    const var ids = input(l, "input_ids", TEG_MIL_INT32, 2, ids_dims, l->o->chunk);
    const var given = input(l, "position_ids", TEG_MIL_INT32, 2, ids_dims, l->o->chunk);
    const var zero = teg_mil_make_int(l->m, 0);
    const var positions = OP(l, "maximum", "positions", {"x", given}, {"y", zero}); /* padding: rows of any table */
    teg_mil_make_output(l->m, "hidden", embed(l, ids, positions));
    for (uint32_t i = 0; i < l->n_ropes; i++) {
        var c, s;
        gather_tables(l, i, positions, &c, &s);
        (void)snprintf(name, sizeof name, "cos%s", numbered(number, i));
        teg_mil_make_output(l->m, name, c);
        (void)snprintf(name, sizeof name, "sin%s", numbered(number, i));
        teg_mil_make_output(l->m, name, s);
    }
    const var column = OP(l, "expand_dims", "position_column", {"x", given}, {"axes", INTS(l, 2)});
    for (uint32_t i = 0; i < l->n_masks; i++) {
        teg_lower_make_masks(l, &l->masks[i], column, true);
        for (uint32_t k = 0; k < l->n_tiles; k++)
            teg_mil_make_output(l->m, mask_name(l, i, k, name), l->masks[i].tiles[k]);
    }
    const var real = OP(l, "greater_equal", "is_real", {"x", given}, {"y", zero});
    teg_mil_make_output(l->m, "valid",
                        OP(l, "cast", "valid_rows", {"x", real}, {"dtype", teg_mil_make_string(l->m, "fp16")}));
}

/* [1, T, n] -> [1, n, 1, T] */
static var to_channels(struct lowerer *l, const char *name, var x)
{
    const var turned = teg_lower_transpose(l, name, x, 3, (const int32_t[]){0, 2, 1});
    return OP(l, "expand_dims", name, {"x", turned}, {"axes", INTS(l, 2)});
}

static var row_input(struct lowerer *l, const char *name, uint32_t n)
{
    char inner[64];
    const int64_t dims[3] = {1, l->n_rows, n};
    (void)snprintf(inner, sizeof inner, "%.48s_channels", name);
    return to_channels(l, inner, input(l, name, TEG_MIL_FP16, 3, dims, 0));
}

static void fixed_inputs(struct lowerer *l)
{
    char name[48], number[32];
    const uint32_t width = (uint32_t)teg_value_width(&l->g->values[l->layers.embedded]);
    l->seen[l->layers.at[l->first_layer].input].flat = row_input(l, "hidden", width);
    for (uint32_t i = 0; i < l->n_ropes; i++) {
        if (!l->ropes[i].is_used)
            continue;
        (void)snprintf(name, sizeof name, "cos%s", numbered(number, i));
        l->ropes[i].cos = row_input(l, name, l->ropes[i].head_width);
        (void)snprintf(name, sizeof name, "sin%s", numbered(number, i));
        l->ropes[i].sin = row_input(l, name, l->ropes[i].head_width);
    }
    for (uint32_t i = 0; i < l->n_masks; i++)
        for (uint32_t k = 0; k < l->n_tiles && l->masks[i].is_used; k++) {
            const uint32_t from = k * l->tile;
            const uint32_t to = (uint32_t)teg_min((size_t)from + l->tile, l->o->context);
            const var whole = row_input(l, mask_name(l, i, k, name), to - from);
            const bool cut = to > l->context; /* a bucket ends within a tile */
            l->masks[i].tiles[k] = cut ? teg_lower_slice(l, "mask_cut", whole, 4, 1, 0, l->context - from) : whole;
        }
}

static void fixed_function(struct lowerer *l, const char *name, uint32_t n_rows, uint32_t context)
{
    const int64_t one = 1, rows[2] = {1, n_rows};
    begin_function(l, name, n_rows, context);
    fixed_inputs(l);
    l->begin = input(l, "position", TEG_MIL_INT32, 1, &one, 0);
    l->guarded = n_rows > 1;
    if (l->guarded) {
        const var given = input(l, "valid", TEG_MIL_FP16, 2, rows, 0);
        l->valid = teg_lower_reshape(l, "valid_column", given, 4, (const int32_t[]){1, 1, (int32_t)n_rows, 1});
        l->invalid = OP(l, "sub", "padding", {"x", teg_lower_half(l, 1)}, {"y", l->valid});
    }
    l->end = OP(l, "add", "end_position", {"x", l->begin}, {"y", INTS(l, (int32_t)n_rows)});
    state(l, 0, "kv", 2 * (l->end_layer - l->first_layer));
    write_layers(l);
    const bool ends = l->end_layer == l->layers.n;
    if (ends && n_rows == 1) {
        teg_lower_head(l);
        return;
    }
    const teg_value_id last = ends ? l->layers.last : l->layers.at[l->end_layer].input;
    const var flat = OP(l, "squeeze", "hidden_rows", {"x", teg_lower_flat(l, last)}, {"axes", INTS(l, 2)});
    teg_mil_make_output(l->m, "hidden_out",
                        teg_lower_transpose(l, "hidden_by_row", flat, 3, (const int32_t[]){0, 2, 1}));
}

void teg_lower_fixed(struct lowerer *l)
{
    char name[32];
    find_shared(l);
    fixed_function(l, "decode", 1, l->o->context);
    fixed_function(l, "prefill", l->o->chunk, l->o->context);
    for (uint32_t i = 0; i < l->o->n_buckets && teg_lower_ok(l); i++) {
        (void)snprintf(name, sizeof name, "decode_%u", l->o->buckets[i]);
        fixed_function(l, name, 1, l->o->buckets[i]);
        (void)snprintf(name, sizeof name, "prefill_%u", l->o->buckets[i]);
        fixed_function(l, name, l->o->chunk, l->o->buckets[i]);
    }
    if (l->first_layer == 0)
        prepare_function(l);
}
