/* pass/rescale.c: the residual stream divided by a power of two, so that a program in half floats can hold it.
 *
 * Gemma's stream passes 65504, the largest half float: 103,795 in Gemma 3 270M, several hundred thousand in its largest
 * relatives. All that enters the stream there is a scaled embedding and the results of norms, and all that reads it are
 * norms; so the embedding's scale and those norms' weights are divided by 32, the readers' eps by 32², and every other
 * value of the program stays the same bit for bit (a power of two changes exponents only).
 * Not taken: a divisor found by running the model, which would make a package depend on a text; the same for models
 * whose stream is fed by products (their weights would have to be divided before they are quantized), since what
 * overflows there is known of none that is converted here. */
#include "pass/rescale.h"

#include <math.h>
#include <string.h>

#include "pass/lower_int.h"

#define DIVISOR 32.0f
#define LEAST_HALF 0x1p-24f /* a smaller eps would be 0, and a row of zeros not a number */

enum part { OUTSIDE, STREAM, POST_NORM };

/* Marks each value that is of the stream, and each norm's result that is added to it. False: something else touches it.
 */
static bool find_stream(const struct teg_graph *g, uint8_t *parts)
{
    for (uint32_t i = 0; i < g->n_ops; i++) {
        const struct teg_op *const op = &g->ops[i];
        const teg_value_id a = op->inputs[0], b = op->n_inputs > 1 ? op->inputs[1] : a;
        if (op->kind == TEG_OP_EMBEDDING) {
            const double root = sqrt((double)teg_value_width(&g->values[op->inputs[1]]));
            if (fabs((double)op->attr.scale.scale - root) > 0.01 * root)
                return false;
            parts[op->result] = STREAM;
        } else if (op->kind == TEG_OP_ADD && (parts[a] == STREAM || parts[b] == STREAM)) {
            const teg_value_id other = parts[a] == STREAM ? b : a;
            const struct teg_value *const v = &g->values[other];
            if (v->kind != TEG_VALUE_RESULT || g->ops[v->op].kind != TEG_OP_RMS_NORM || parts[other] != OUTSIDE)
                return false;
            parts[other] = POST_NORM;
            parts[op->result] = STREAM;
        } else {
            for (uint32_t k = 0; k < op->n_inputs; k++)
                if (parts[op->inputs[k]] == POST_NORM ||
                    (parts[op->inputs[k]] == STREAM && op->kind != TEG_OP_RMS_NORM))
                    return false;
        }
    }
    return true;
}

static void divide_eps(struct teg_op *op)
{
    if (op->attr.norm.by_max) { /* of a quotient, which stays */
        op->attr.norm.least_max /= DIVISOR;
        return;
    }
    const float eps = op->attr.norm.eps / (DIVISOR * DIVISOR);
    op->attr.norm.eps = eps > LEAST_HALF ? eps : LEAST_HALF;
}

static enum teg_status divide_weight(struct teg_graph *g, uint32_t index, struct teg_error *err)
{
    const struct teg_value weight = g->values[g->ops[index].inputs[1]];
    const uint64_t n = teg_value_width(&weight);
    float *const w = teg_arena_array(g->arena, n, sizeof *w);
    if (!w)
        return teg_base_fail_memory(err, weight.name, n * sizeof *w);
    TRY(teg_lower_decode(&weight, 0, w, err));
    for (uint64_t i = 0; i < n; i++)
        w[i] = (w[i] + g->ops[index].attr.norm.weight_offset) / DIVISOR;
    g->ops[index].attr.norm.weight_offset = 0;
    return teg_graph_const(g, weight.name, TEG_DTYPE_F32, 1, &n, w, n * sizeof *w, &g->ops[index].inputs[1], err);
}

enum teg_status teg_rescale(struct teg_graph *g, bool *done, struct teg_error *err)
{
    *done = false;
    uint8_t *const parts = teg_arena_alloc(g->arena, g->n_values);
    if (!parts)
        return teg_base_fail_memory(err, "the graph", g->n_values);
    memset(parts, OUTSIDE, g->n_values);
    if (!find_stream(g, parts))
        return TEG_OK;
    for (uint32_t i = 0; i < g->n_ops; i++) {
        struct teg_op *const op = &g->ops[i];
        if (op->kind == TEG_OP_EMBEDDING) {
            op->attr.scale.scale /= DIVISOR;
            *done = true;
        } else if (op->kind == TEG_OP_RMS_NORM) {
            if (parts[op->inputs[0]] == STREAM)
                divide_eps(op);
            if (parts[op->result] == POST_NORM)
                TRY(divide_weight(g, i, err));
        }
    }
    return TEG_OK;
}
