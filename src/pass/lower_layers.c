/* pass/lower_layers.c: where a graph's layers begin and end, and which products must change the order of their columns.
 *
 * A layer begins at the last place before its keys are appended where one value alone goes on: what a part of a model
 * hands to the next. Nothing is taken from names, so graphs from files and from packages are cut alike. */
#include "pass/lower_int.h"

static bool is_head_op(enum teg_op_kind kind)
{
    return kind == TEG_OP_RMS_NORM || kind == TEG_OP_LAYER_NORM || kind == TEG_OP_LM_HEAD || kind == TEG_OP_SOFTCAP ||
           kind == TEG_OP_SCALE;
}

/* only[i]: the one value that is made up to op i and used after it, or TEG_NO_VALUE. */
static void find_cuts(const struct teg_graph *g, uint32_t *last_use, teg_value_id *only)
{
    for (uint32_t i = 0; i < g->n_ops; i++)
        for (uint32_t k = 0; k < g->ops[i].n_inputs; k++)
            last_use[g->ops[i].inputs[k]] = i;
    for (uint32_t i = 0; i < g->n_ops; i++) {
        uint32_t n = 0;
        only[i] = TEG_NO_VALUE;
        for (uint32_t v = 0; v < g->n_values && n < 2; v++) {
            const bool lives = g->values[v].kind == TEG_VALUE_RESULT && g->values[v].op <= i && last_use[v] > i;
            if (lives)
                only[i] = v;
            n += lives;
        }
        if (n != 1)
            only[i] = TEG_NO_VALUE;
    }
}

static uint32_t count_layers(const struct teg_graph *g)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_ops; i++)
        n += g->ops[i].kind == TEG_OP_KV_APPEND;
    return n;
}

uint32_t teg_lower_n_layers(const struct teg_graph *graph)
{
    return count_layers(graph);
}

enum teg_status teg_lower_find_layers(const struct teg_graph *g, struct teg_arena *arena, struct layers *out,
                                      struct teg_error *err)
{
    uint32_t *const last_use = teg_arena_array(arena, g->n_values + 1, sizeof *last_use);
    teg_value_id *const only = teg_arena_array(arena, g->n_ops + 1, sizeof *only);
    *out = (struct layers){.n = count_layers(g), .embedded = TEG_NO_VALUE, .last = TEG_NO_VALUE};
    out->at = teg_arena_array(arena, out->n + 1, sizeof *out->at);
    if (!last_use || !only || !out->at)
        return teg_base_fail_memory(err, "layers of a graph", g->n_values);
    find_cuts(g, last_use, only);
    for (out->head = g->n_ops; out->head > 0 && is_head_op(g->ops[out->head - 1].kind); out->head--)
        ;
    uint32_t l = 0, cut = UINT32_MAX;
    for (uint32_t i = 0; i < g->n_ops; i++) {
        const struct teg_op *const op = &g->ops[i];
        if (op->kind == TEG_OP_KV_APPEND) {
            if (cut == UINT32_MAX || (l && cut < out->at[l - 1].begin))
                FAIL(err, TEG_ERR_UNSUPPORTED,
                     "cannot write a package: layer %u: expected one value to go from layer to layer, found more; the "
                     "graph is no stack of layers",
                     l);
            out->at[l] = (struct layer_range){.begin = cut + 1, .input = only[cut], .state = op->inputs[2]};
            if (l)
                out->at[l - 1].end = cut + 1;
            else
                out->embedded = only[cut];
            l++;
        }
        if (only[i] != TEG_NO_VALUE)
            cut = i;
    }
    if (!l || out->head == 0 || out->head <= out->at[l - 1].begin || only[out->head - 1] == TEG_NO_VALUE)
        FAIL(err, TEG_ERR_UNSUPPORTED,
             "cannot write a package: graph: expected layers with a KV cache and a head after them, found none; only "
             "language models can be written");
    out->at[l - 1].end = out->head;
    out->last = only[out->head - 1];
    return TEG_OK;
}

/* ---- orders ---- */

uint32_t teg_lower_source_column(const struct order *o, uint32_t column)
{
    const uint32_t head = column / o->head_width * o->head_width, j = column % o->head_width;
    const uint32_t half = o->head_width / 2, i = j % half, n = o->n_pairs;
    const bool second = j >= half;
    if (i >= n) /* does not turn */
        return head + 2 * n + (second ? half - n : 0) + i - n;
    if (o->interleaved)
        return head + 2 * i + second;
    return head + (second ? i + n : i);
}
