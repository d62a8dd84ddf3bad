/* pass/lower_parts.c: whole layers in parts under a size limit, and the account of what a profile chose and why. */
#include "pass/lower_int.h"

#include <stdlib.h>

/* ---- parts ---- */

/* Bytes of what ops begin … end - 1 read; a constant that two of them read counts twice only in two parts. */
static uint64_t bytes_of(struct lowerer *l, uint32_t begin, uint32_t end)
{
    uint64_t total = 0;
    for (uint32_t i = begin; i < end; i++) {
        const struct teg_op *const op = &l->g->ops[i];
        for (uint32_t k = 0; k < op->n_inputs && op->kind != TEG_OP_ROPE; k++)
            if (l->g->values[op->inputs[k]].kind == TEG_VALUE_CONST)
                total +=
                    teg_lower_weight_bytes(l, op->inputs[k], op->kind == TEG_OP_EMBEDDING, op->kind == TEG_OP_LM_HEAD);
    }
    return total;
}

/* Cuts into n parts of about one size; the largest of them. */
static uint64_t balance(const uint64_t *sums, uint32_t n_layers, uint32_t n, uint32_t *first)
{
    uint64_t largest = 0;
    const uint64_t total = sums[n_layers];
    for (uint32_t p = 0, layer = 0; p < n; p++) {
        const uint32_t most = n_layers - (n - p - 1); /* one is left for each part to come */
        const uint64_t goal = p + 1 == n ? total : total / n * (p + 1);
        const uint32_t begin = layer;
        first[p] = begin;
        layer++;
        while (layer < most && sums[layer] < goal && sums[layer + 1] - goal <= goal - sums[layer])
            layer++;
        if (p + 1 == n)
            layer = n_layers;
        if (sums[layer] - sums[begin] > largest)
            largest = sums[layer] - sums[begin];
    }
    return largest;
}

static enum teg_status cut(struct lowerer *l, uint64_t max_bytes, uint32_t n_parts, uint32_t *first, uint32_t capacity,
                           uint32_t *n)
{
    const uint32_t n_layers = l->layers.n;
    uint64_t *const sums = teg_arena_array(&l->scratch, (size_t)n_layers + 1, sizeof *sums);
    if (!sums)
        return teg_base_fail_memory(l->err, "sizes of layers", n_layers);
    for (uint32_t i = 0; i < n_layers; i++)
        sums[i + 1] =
            sums[i] + bytes_of(l, i ? l->layers.at[i].begin : 0, i + 1 < n_layers ? l->layers.at[i].end : l->g->n_ops);
    TRY(l->status);
    if (n_parts > n_layers || n_parts > capacity)
        FAIL(l->err, TEG_ERR_ARGUMENT,
             "cannot write a package: parts: expected at most %u (whole layers), found %u; choose fewer",
             n_layers < capacity ? n_layers : capacity, n_parts);
    uint64_t largest = UINT64_MAX;
    for (uint32_t p = n_parts ? n_parts : 1; p <= n_layers && p <= capacity; p++) {
        *n = p;
        largest = balance(sums, n_layers, p, first);
        if (!max_bytes || largest <= max_bytes)
            return TEG_OK;
    }
    FAIL(l->err, TEG_ERR_UNSUPPORTED,
         "cannot write a package: parts: rule WT01: expected layers that fit into %llu bytes, found %llu in one part; "
         "choose a larger limit or a smaller encoding",
         (unsigned long long)max_bytes, (unsigned long long)largest);
}

enum teg_status teg_lower_parts(const struct teg_graph *graph, const struct teg_lower_options *options,
                                uint64_t max_bytes, uint32_t n_parts, uint32_t *first_layers, uint32_t capacity,
                                uint32_t *n, struct teg_error *err)
{
    struct lowerer l = teg_lower_of(graph, options, NULL, err);
    enum teg_status status = teg_lower_start(&l, &l.scratch);
    if (status == TEG_OK)
        status = cut(&l, max_bytes, n_parts, first_layers, capacity, n);
    teg_arena_free(&l.scratch);
    return status;
}

/* ---- why ---- */

static const char *softmax_name(enum teg_softmax softmax)
{
    static const char *const names[] = {"two-pass", "online", "split"};
    return names[softmax];
}

static void explain_all(const struct lowerer *l, struct teg_buf *out)
{
    const struct teg_lower_options *const o = l->o;
    const uint32_t n_tiles = (o->context + l->tile - 1) / l->tile;
    if (n_tiles > 1)
        teg_buf_printf(out,
                       "attention in %u tiles of %u keys, %s softmax: AT02, SH07: scores of a whole context are slow, "
                       "and beyond 16384 keys they do not compile; AT06: tiles are rescaled before they are added\n",
                       n_tiles, l->tile, softmax_name(o->softmax));
    else
        teg_buf_printf(out, "attention in one tile of %u keys: below the tile of %u keys (AT03) one softmax is best\n",
                       o->context, l->tile);
    teg_buf_puts(out, "the factor on scores is applied to the query: passes over scores cost most\n"
                      "hidden keys are -40000: DT06: -inf is not safe in half floats\n"
                      "RMSNorm is the layer norm of [x, -x]: NU01: mean(x²) overflows in half floats\n"
                      "all activations are fp16: DT01: an fp32 op leaves the Neural Engine\n"
                      "cos and sin are tables: OP06: sin and cos are not native on every chip\n");
}

static void explain_portable(const struct lowerer *l, struct teg_buf *out)
{
    teg_buf_printf(out,
                   "one function for %s%u tokens a call, ids and positions in, logits of the last row out: what "
                   "sample loops expect\n"
                   "states k_cache and v_cache: ST01: at most two a program\n",
                   l->o->enumerated ? "1, 2, 4, … " : "1 to ", l->o->chunk);
}

static void explain_fixed(const struct lowerer *l, struct teg_buf *out)
{
    const struct teg_lower_options *const o = l->o;
    uint64_t vocab = 0;
    for (uint32_t i = l->layers.head; i < l->g->n_ops; i++)
        if (l->g->ops[i].kind == TEG_OP_LM_HEAD)
            vocab = (uint64_t)l->g->values[l->g->ops[i].inputs[1]].shape.dims[0];
    teg_buf_printf(out,
                   "functions of fixed size, prefill of %u rows and decode of 1: SH11, SH13: flexible shapes are "
                   "not run on the Neural Engine\n",
                   o->chunk);
    teg_buf_puts(out,
                 "embedding, masks and tables of positions in a function of their own, prepare: OP02, DT02: gathers "
                 "and integers run on the CPU\n"
                 "one state for keys and values: ST01, ST02, ST05: more states fail on some devices\n"
                 "products are 1x1 convolutions over [1, C, 1, T]: OP01\n"
                 "attention of each head alone, keys along the channels: AT01, AT04; keys and values are not "
                 "repeated: OP08\n"
                 "inputs and outputs are [1, T, n]: SH03: the last axis is aligned, never 1\n"
                 "no fused attention op: OP09, OP10\n"
                 "prefill has no head, padding rows keep what the cache has: rows that nobody asks for are neither "
                 "computed nor stored\n");
    if (vocab > l->c->head_rows)
        teg_buf_printf(out, "head of %llu rows in %llu products: OP15, SH04: at most %u on an axis\n",
                       (unsigned long long)vocab, (unsigned long long)((vocab + l->c->head_rows - 1) / l->c->head_rows),
                       l->c->head_rows);
    for (uint32_t i = 0; i < o->n_buckets; i++)
        teg_buf_printf(out, "functions for contexts up to %u: ST07: time grows with the slots that are read\n",
                       o->buckets[i]);
}

static void explain_broken(void *ctx, const char *rule, const char *what, uint64_t found)
{
    teg_buf_printf(ctx, "broken %s: expected %s, found %llu\n", rule, what, (unsigned long long)found);
}

void teg_lower_explain(const struct teg_graph *graph, const struct teg_lower_options *options, struct teg_buf *out)
{
    struct teg_error err = {0};
    struct lowerer l = teg_lower_of(graph, options, NULL, &err);
    if (teg_lower_start(&l, &l.scratch) != TEG_OK) {
        teg_buf_printf(out, "%s\n", err.message);
    } else {
        teg_buf_printf(out, "profile %s\n", l.c->name);
        if (l.c->fixed)
            explain_fixed(&l, out);
        else
            explain_portable(&l, out);
        explain_all(&l, out);
        teg_lower_broken_rules(&l, explain_broken, out);
    }
    teg_arena_free(&l.scratch);
}
