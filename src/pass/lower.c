/* pass/lower.c: the entry of lowering: options checked, products that change their order found, the walk, the verbs.
 *
 * RoPE is written as two halves of a head, because that is two slices; a GGUF's llama has pairs side by side. The
 * columns of its q and k products are put in the other order, which changes no score: both sides of the dot product
 * move alike. The same trick serves heads that turn in part only. Not taken: interleaved pairs in the program. They are
 * strided slices on the device's worst axis. */
#include "pass/lower.h"

#include <stdio.h>
#include <stdlib.h>

#include "pass/lower_int.h"

enum { IOS18 = 9 };

static const struct choices profiles[] = {
    [TEG_PROFILE_PORTABLE] = {.name = "portable", .kv_tile = 1024},
    [TEG_PROFILE_ANE] = {.name = "ane",
                         .channels = true,
                         .per_head = true,
                         .fixed = true,
                         .one_state = true,
                         .kv_tile = 4096,
                         .head_rows = 16384,
                         .alignment = 32,
                         .most_axis = 65536},
};

const struct choices *teg_lower_choices(enum teg_profile profile)
{
    return &profiles[profile];
}

void teg_lower_keep(struct lowerer *l, enum teg_status status)
{
    if (l->status == TEG_OK)
        l->status = status;
}

bool teg_lower_ok(const struct lowerer *l)
{
    return l->status == TEG_OK;
}

/* ---- verbs ---- */

var teg_lower_op(struct lowerer *l, const char *type, const char *name, const struct teg_mil_bind *args)
{
    char full[224];
    if (!teg_lower_ok(l))
        return TEG_MIL_NO_VAR;
    (void)snprintf(full, sizeof full, "%s%s", l->prefix, name);
    return teg_mil_make_op(l->m, type, full, args);
}

var teg_lower_reshape(struct lowerer *l, const char *name, var x, uint32_t rank, const int32_t *dims)
{
    return OP(l, "reshape", name, {"x", x}, {"shape", teg_mil_make_ints(l->m, rank, dims)});
}

var teg_lower_transpose(struct lowerer *l, const char *name, var x, uint32_t rank, const int32_t *perm)
{
    return OP(l, "transpose", name, {"x", x}, {"perm", teg_mil_make_ints(l->m, rank, perm)});
}

var teg_lower_slice(struct lowerer *l, const char *name, var x, uint32_t rank, uint32_t axis, uint32_t begin,
                    uint32_t end)
{
    int32_t from[TEG_MIL_MAX_RANK] = {0}, to[TEG_MIL_MAX_RANK] = {0};
    uint8_t mask[TEG_MIL_MAX_RANK];
    const int64_t n = rank;
    memset(mask, 1, sizeof mask);
    from[axis] = (int32_t)begin;
    to[axis] = (int32_t)end;
    mask[axis] = 0;
    const var all = teg_mil_make_const(l->m, NULL, TEG_MIL_BOOL, 1, &n, mask);
    return OP(l, "slice_by_index", name, {"x", x}, {"begin", teg_mil_make_ints(l->m, rank, from)},
              {"end", teg_mil_make_ints(l->m, rank, to)}, {"begin_mask", all}, {"end_mask", all});
}

var teg_lower_concat(struct lowerer *l, const char *name, const var *values, uint32_t n, int32_t axis)
{
    if (n == 1)
        return values[0];
    struct teg_mil_bind *const args = teg_arena_array(&l->scratch, (size_t)n + 2, sizeof *args);
    if (!args) {
        teg_lower_keep(l, teg_base_fail_memory(l->err, name, n));
        return TEG_MIL_NO_VAR;
    }
    for (uint32_t i = 0; i < n; i++)
        args[i] = (struct teg_mil_bind){"values", values[i]};
    args[n] = (struct teg_mil_bind){"axis", teg_mil_make_int(l->m, axis)};
    return teg_lower_op(l, "concat", name, args);
}

var teg_lower_multiply(struct lowerer *l, const char *name, var x, float factor)
{
    return factor == 1 ? x : OP(l, "mul", name, {"x", x}, {"y", teg_lower_half(l, factor)});
}

var teg_lower_bounds(struct lowerer *l, const char *name, const int32_t *before, uint32_t n_before, var middle,
                     int32_t after)
{
    const var parts[3] = {teg_mil_make_ints(l->m, n_before, before), middle, teg_mil_make_ints(l->m, 1, &after)};
    return teg_lower_concat(l, name, parts, 3, 0);
}

var teg_lower_flat(struct lowerer *l, teg_value_id v)
{
    struct seen *const s = &l->seen[v];
    const int32_t width = (int32_t)teg_value_width(&l->g->values[v]), rows = l->n_rows ? (int32_t)l->n_rows : -1;
    if (s->flat != TEG_MIL_NO_VAR || s->heads == TEG_MIL_NO_VAR)
        return s->flat;
    if (l->c->channels)
        s->flat = teg_lower_reshape(l, "flat", s->heads, 4, (const int32_t[]){1, width, 1, rows});
    else
        s->flat =
            teg_lower_reshape(l, "flat", teg_lower_transpose(l, "by_row", s->heads, 4, (const int32_t[]){0, 2, 1, 3}),
                              3, (const int32_t[]){1, rows, width});
    return s->flat;
}

var teg_lower_heads(struct lowerer *l, teg_value_id v, uint32_t head_width)
{
    struct seen *const s = &l->seen[v];
    if (s->heads != TEG_MIL_NO_VAR && s->head_width == head_width)
        return s->heads;
    const var flat = teg_lower_flat(l, v);
    const int32_t n = (int32_t)(teg_value_width(&l->g->values[v]) / head_width), k = (int32_t)head_width;
    const int32_t rows = l->n_rows ? (int32_t)l->n_rows : -1;
    if (l->c->channels)
        s->heads = teg_lower_reshape(l, "heads", flat, 4, (const int32_t[]){n, k, 1, rows});
    else
        s->heads =
            teg_lower_transpose(l, "by_head", teg_lower_reshape(l, "heads", flat, 4, (const int32_t[]){1, rows, n, k}),
                                4, (const int32_t[]){0, 2, 1, 3});
    s->head_width = head_width;
    return s->heads;
}

/* ---- operands of rope ---- */

bool teg_lower_has_tables(const struct lowerer *l, const struct teg_op *op)
{
    return op->n_inputs == 3 && l->g->values[op->inputs[1]].shape.rank == 2;
}

teg_value_id teg_lower_frequencies(const struct lowerer *l, const struct teg_op *op)
{
    const bool is_long = op->n_inputs == 3 && !teg_lower_has_tables(l, op) && op->attr.rope.original_context &&
                         l->o->context > op->attr.rope.original_context;
    return op->inputs[is_long ? 2 : 1];
}

/* ---- orders ---- */

static enum teg_status no_order(struct lowerer *l, const char *what)
{
    FAIL(l->err, TEG_ERR_UNSUPPORTED,
         "cannot write a package: rope: expected q and k that come from one product each, so that its rows can be put "
         "in the order of halves, found %s; only the models that Tegula builds are known to fit",
         what);
}

/* 0: columns as the graph has them. */
static uint32_t kind_of(const struct order *o)
{
    return (o->n_pairs << 1 | o->interleaved) + 1;
}

const struct order *teg_lower_orders_of(const struct lowerer *l, uint32_t op, uint32_t *n)
{
    uint32_t first = 0;
    *n = 0;
    while (first < l->n_orders && l->orders[first].op != op)
        first++;
    while (first + *n < l->n_orders && l->orders[first + *n].op == op)
        (*n)++;
    return *n ? &l->orders[first] : NULL;
}

/* The product that x comes from, through norms of heads and slices. */
static enum teg_status find_product(struct lowerer *l, const struct teg_op *rope, struct order *o)
{
    const struct teg_graph *const g = l->g;
    teg_value_id v = rope->inputs[0];
    o->begin = 0;
    o->width = (uint32_t)teg_value_width(&g->values[v]);
    bool sliced = false;
    for (;;) {
        if (g->values[v].kind != TEG_VALUE_RESULT)
            return no_order(l, "an input");
        if (l->uses[v] != 1 && !sliced)
            return no_order(l, "a value that is used elsewhere too");
        if (!sliced)
            l->moved[v] = kind_of(o);
        const struct teg_op *const op = &g->ops[g->values[v].op];
        if (op->kind == TEG_OP_LINEAR) {
            o->op = g->values[v].op;
            return TEG_OK;
        }
        if (op->kind == TEG_OP_SLICE) {
            o->begin += op->attr.slice.begin;
            sliced = true;
        } else if (op->kind != TEG_OP_RMS_NORM || sliced ||
                   teg_value_width(&g->values[op->inputs[1]]) != o->head_width) {
            return no_order(l, teg_op_name(op->kind));
        }
        v = op->inputs[0];
    }
}

static int compare_orders(const void *a, const void *b)
{
    const struct order *const x = a, *const y = b;
    return x->op != y->op ? (x->op < y->op ? -1 : 1) : x->begin < y->begin ? -1 : x->begin > y->begin;
}

static enum teg_status find_orders(struct lowerer *l)
{
    for (uint32_t i = 0; i < l->g->n_ops; i++)
        for (uint32_t k = 0; k < l->g->ops[i].n_inputs; k++)
            l->uses[l->g->ops[i].inputs[k]]++;
    for (uint32_t i = 0; i < l->g->n_ops; i++) {
        const struct teg_op *const op = &l->g->ops[i];
        if (op->kind != TEG_OP_ROPE)
            continue;
        struct order o = {.head_width = op->attr.rope.head_width,
                          .n_pairs = (uint32_t)teg_value_width(&l->g->values[op->inputs[1]]),
                          .interleaved = op->attr.rope.interleaved};
        if (o.head_width % 2)
            FAIL(l->err, TEG_ERR_UNSUPPORTED,
                 "cannot write a package: rope: expected heads of an even number of columns, found %u", o.head_width);
        if (!o.interleaved && 2 * o.n_pairs == o.head_width)
            continue;
        TRY(find_product(l, op, &o));
        l->moved[op->result] = kind_of(&o);
        l->orders[l->n_orders++] = o;
    }
    qsort(l->orders, l->n_orders, sizeof *l->orders, compare_orders);
    return TEG_OK;
}

/* Queries meet keys whose columns stand as theirs do. */
static enum teg_status check_orders(struct lowerer *l)
{
    for (uint32_t i = 0; i < l->g->n_ops; i++) {
        const struct teg_op *const op = &l->g->ops[i];
        if (op->kind == TEG_OP_KV_APPEND)
            l->moved[op->inputs[2]] = l->moved[op->inputs[0]];
        const bool reads = op->kind == TEG_OP_ATTENTION;
        if (reads && l->moved[op->inputs[0]] != l->moved[op->inputs[1]])
            return no_order(l, "queries and keys that turn differently");
    }
    return TEG_OK;
}

/* ---- options ---- */

static enum teg_status bad_option(struct lowerer *l, const char *name, const char *expected, uint32_t found)
{
    FAIL(l->err, TEG_ERR_ARGUMENT, "cannot write a package: profile %s: %s: expected %s, found %u; choose another",
         l->c->name, name, expected, found);
}

static enum teg_status check_sizes(struct lowerer *l)
{
    const struct teg_lower_options *const o = l->o;
    if (o->context < 1 || o->context > INT32_MAX / 2)
        return bad_option(l, "context", "at least 1 slot", o->context);
    if (o->chunk < 1 || o->chunk > o->context)
        return bad_option(l, "chunk", "1 to the context", o->chunk);
    if (l->c->fixed && o->chunk == 1) /* nothing would tell prefill from decode */
        return bad_option(l, "chunk", "2 to the context", o->chunk);
    const uint32_t version = o->spec_version ? o->spec_version : IOS18;
    if (version < IOS18)
        return bad_option(l, "specification version", "9 (iOS 18) or later, which have states", version);
    for (uint32_t i = 0; i < o->n_buckets; i++)
        if (o->buckets[i] < 1 || o->buckets[i] >= o->context || (i && o->buckets[i] <= o->buckets[i - 1]))
            return bad_option(l, "buckets", "ascending contexts below the largest", o->buckets[i]);
    if (o->n_buckets && !l->c->fixed)
        return bad_option(l, "buckets", "none in this profile", o->n_buckets);
    l->tile = o->kv_tile ? o->kv_tile : l->c->kv_tile;
    while (l->tile < o->context && (l->tile == 1 || o->context % l->tile == 1)) /* a tile of one key is no vector */
        l->tile++;
    if ((o->context + l->tile - 1) / l->tile > MOST_TILES)
        return bad_option(l, "KV tile", "tiles of which at most 256 make the context", l->tile);
    const uint32_t n = l->layers.n;
    if (o->first_layer >= n || (o->n_layers && o->n_layers > n - o->first_layer))
        return bad_option(l, "layers", "a range of the model's", o->first_layer);
    l->first_layer = o->first_layer;
    l->end_layer = o->n_layers ? o->first_layer + o->n_layers : n;
    if (!l->c->fixed && (l->first_layer || l->end_layer != n))
        return bad_option(l, "layers", "all of them in this profile", o->n_layers);
    return TEG_OK;
}

static void ask(bool kept, const char *rule, const char *what, uint64_t found, teg_lower_broken_fn tell, void *ctx)
{
    if (!kept)
        tell(ctx, rule, what, found);
}

void teg_lower_broken_rules(const struct lowerer *l, teg_lower_broken_fn tell, void *ctx)
{
    const uint32_t align = l->c->alignment;
    if (!align)
        return;
    ask(l->o->context % align == 0, "SH09", "a context in multiples of 32", l->o->context, tell, ctx);
    ask(l->o->chunk % align == 0, "SH03", "a chunk in multiples of 32", l->o->chunk, tell, ctx);
    ask(l->tile % align == 0, "SH03", "a KV tile in multiples of 32", l->tile, tell, ctx);
    ask(l->tile <= 16384, "SH07", "a KV tile of at most 16384 keys", l->tile, tell, ctx);
    for (uint32_t i = 0; i < l->o->n_buckets; i++)
        ask(l->o->buckets[i] % align == 0, "SH09", "buckets in multiples of 32", l->o->buckets[i], tell, ctx);
    uint32_t odd_width = 0, too_wide = 0;
    for (uint32_t i = 0; i < l->g->n_ops; i++) {
        const struct teg_op *const op = &l->g->ops[i];
        if (op->kind == TEG_OP_ATTENTION && op->attr.attention.head_width % align)
            odd_width = op->attr.attention.head_width;
        if (op->kind == TEG_OP_LINEAR && teg_value_width(&l->g->values[op->result]) > l->c->most_axis)
            too_wide = (uint32_t)teg_value_width(&l->g->values[op->result]);
    }
    ask(!odd_width, "SH09", "heads whose width is a multiple of 32", odd_width, tell, ctx);
    ask(!too_wide, "SH05", "products of at most 65536 columns", too_wide, tell, ctx);
}

static void refuse(void *ctx, const char *rule, const char *what, uint64_t found)
{
    struct lowerer *const l = ctx;
    if (l->status == TEG_OK && !l->o->force)
        l->status =
            teg_base_fail(l->err, TEG_ERR_UNSUPPORTED, 0,
                          "cannot write a package: profile %s: rule %s: expected %s, found %llu; choose another "
                          "size or profile, or force it",
                          l->c->name, rule, what, (unsigned long long)found);
}

static enum teg_status check_rules(struct lowerer *l)
{
    teg_lower_broken_rules(l, refuse, l);
    return l->status;
}

/* What no profile has a form for. */
static enum teg_status check_ops(struct lowerer *l)
{
    for (uint32_t i = 0; i < l->g->n_ops; i++) {
        const struct teg_op *const op = &l->g->ops[i];
        if (op->kind == TEG_OP_ATTENTION && op->n_inputs == 3)
            FAIL(l->err, TEG_ERR_UNSUPPORTED,
                 "cannot write a package: attention: expected no sinks, found %u; programs with sinks are not written",
                 op->attr.attention.n_heads);
    }
    return TEG_OK;
}

/* ---- all of it ---- */

struct lowerer teg_lower_of(const struct teg_graph *graph, const struct teg_lower_options *options,
                            const struct teg_allocator *allocator, struct teg_error *err)
{
    struct lowerer l = {.g = graph, .o = options, .c = teg_lower_choices(options->profile), .err = err, .prefix = ""};
    teg_arena_init(&l.scratch, allocator);
    return l;
}

/* What is known before anything is written. */
enum teg_status teg_lower_start(struct lowerer *l, struct teg_arena *keep)
{
    const size_t n = (size_t)l->g->n_values + 1;
    l->uses = teg_arena_array(&l->scratch, n, sizeof *l->uses);
    l->moved = teg_arena_array(&l->scratch, n, sizeof *l->moved);
    l->seen = teg_arena_array(&l->scratch, n, sizeof *l->seen);
    l->orders = teg_arena_array(keep, (size_t)l->g->n_ops + 1, sizeof *l->orders);
    if (!l->uses || !l->moved || !l->seen || !l->orders)
        return teg_base_fail_memory(l->err, "lowering", n);
    TRY(teg_lower_find_layers(l->g, &l->scratch, &l->layers, l->err));
    return check_sizes(l);
}

static enum teg_status prepare(struct lowerer *l)
{
    TRY(teg_lower_start(l, &l->lowered->arena));
    TRY(check_rules(l));
    TRY(check_ops(l));
    TRY(find_orders(l));
    return check_orders(l);
}

static enum teg_status write_program(struct lowerer *l)
{
    TRY(prepare(l));
    TRY(teg_mil_make_new(l->o->spec_version ? l->o->spec_version : IOS18, l->scratch.allocator, &l->m, l->err));
    if (l->c->fixed)
        teg_lower_fixed(l);
    else
        teg_lower_portable(l);
    if (!teg_lower_ok(l)) {
        (void)teg_mil_make_end(l->m, NULL, NULL);
        return l->status;
    }
    return teg_mil_make_end(l->m, &l->lowered->program, l->err);
}

enum teg_status teg_lower(const struct teg_graph *graph, const struct teg_lower_options *options,
                          const struct teg_allocator *allocator, struct teg_lowered **lowered, struct teg_error *err)
{
    struct teg_arena arena;
    teg_arena_init(&arena, allocator);
    struct teg_lowered *const made = teg_arena_alloc(&arena, sizeof *made);
    if (!made)
        return teg_base_fail_memory(err, "lowering", sizeof *made);
    *made = (struct teg_lowered){.arena = arena};
    struct lowerer l = teg_lower_of(graph, options, allocator, err);
    l.lowered = made;
    const enum teg_status status = write_program(&l);
    teg_arena_free(&l.scratch);
    if (status != TEG_OK) {
        teg_lowered_free(made);
        return status;
    }
    *lowered = made;
    return TEG_OK;
}

struct teg_mil_program *teg_lowered_program(struct teg_lowered *lowered)
{
    return lowered->program;
}

void teg_lowered_free(struct teg_lowered *lowered)
{
    if (!lowered)
        return;
    if (lowered->program)
        teg_mil_free(lowered->program);
    struct teg_arena arena = lowered->arena; /* it lies in its own arena */
    teg_arena_free(&arena);
}

size_t teg_lowered_n_weights(const struct teg_lowered *lowered)
{
    return lowered->n_weights;
}

/* The list has the newest first. */
const struct teg_lowered_weight *teg_lowered_weight(const struct teg_lowered *lowered, size_t index)
{
    const struct weight *w = lowered->weights;
    for (size_t i = lowered->n_weights; w && i-- > index + 1;)
        w = w->next;
    return w && index < lowered->n_weights ? w->report : NULL;
}
