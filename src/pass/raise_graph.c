/* pass/raise_graph.c: rows of the program become values of the graph.
 *
 * What a program computes twice (a slice of one product, the same norm) is one op here: an op like one that is there is
 * not added again. A product waits until somebody needs it, so that the head can still be several of them. */
#include "pass/raise_int.h"

enum { NEAR = 512 };

static bool same_op(const struct teg_op *a, const struct teg_op *b)
{
    if (a->kind != b->kind || a->n_inputs != b->n_inputs ||
        memcmp(a->inputs, b->inputs, a->n_inputs * sizeof *a->inputs) != 0)
        return false;
    return memcmp(&a->attr, &b->attr, sizeof a->attr) == 0;
}

teg_value_id teg_raise_emit(struct raiser *r, const struct teg_op *op)
{
    teg_value_id v = TEG_NO_VALUE;
    if (r->status != TEG_OK)
        return TEG_NO_VALUE;
    const uint32_t n = r->graph->n_ops; /* what is the same stands near: a bound on the search, not on the model */
    for (uint32_t i = n > NEAR ? n - NEAR : 0; i < n; i++)
        if (op->kind != TEG_OP_KV_APPEND && same_op(&r->graph->ops[i], op))
            return r->graph->ops[i].result;
    teg_raise_keep(r, teg_graph_op(r->graph, op, &v, r->err));
    return r->status == TEG_OK ? v : TEG_NO_VALUE;
}

void teg_raise_rows(struct meaning *m, teg_value_id value, int64_t columns, const struct view *view)
{
    m->kind = ROWS;
    m->value = value;
    m->columns = columns;
    m->scale = 1;
    m->view = *view;
    m->view.offset = 0;
}

/* The product that m stands for. */
static teg_value_id linear(struct raiser *r, const struct meaning *m, const char **why)
{
    const teg_value_id x = teg_raise_value(r, m->a, why);
    const teg_value_id w = x == TEG_NO_VALUE ? x : teg_raise_matrix(r, m->weight, m->weight_transposed, why);
    if (w == TEG_NO_VALUE)
        return w;
    struct teg_op op = {.kind = TEG_OP_LINEAR, .n_inputs = 2, .inputs = {x, w}};
    if (m->bias != TEG_MIL_NO_VAR) {
        const teg_value_id bias = teg_raise_vector(r, m->bias, why);
        if (bias == TEG_NO_VALUE)
            return bias;
        op.inputs[op.n_inputs++] = bias;
    }
    return teg_raise_emit(r, &op);
}

teg_value_id teg_raise_value(struct raiser *r, const struct meaning *m, const char **why)
{
    const int64_t width = teg_view_width(&m->view);
    if (!teg_view_whole(&m->view) || m->view.offset < 0 || m->view.offset + width > m->columns) {
        *why = "expected columns that lie together, found a view with gaps or repeats";
        return TEG_NO_VALUE;
    }
    teg_value_id x = m->is_linear ? linear(r, m, why) : m->value;
    if (x == TEG_NO_VALUE || r->status != TEG_OK)
        return TEG_NO_VALUE;
    if (m->view.offset || width != m->columns)
        x = teg_raise_emit(r, &(struct teg_op){.kind = TEG_OP_SLICE,
                                               .n_inputs = 1,
                                               .inputs = {x},
                                               .attr.slice = {(uint32_t)m->view.offset, (uint32_t)width}});
    if (m->scale != 1 && r->status == TEG_OK)
        x = teg_raise_emit(
            r, &(struct teg_op){.kind = TEG_OP_SCALE, .n_inputs = 1, .inputs = {x}, .attr.scale.scale = m->scale});
    return x;
}
