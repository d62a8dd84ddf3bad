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

/* Columns in runs of equal length and distance, in ascending order; the view with the gaps closed. */
static bool find_runs(const struct view *v, struct teg_row_runs *runs, struct view *closed)
{
    const uint32_t total = teg_view_total(v);
    int64_t covered = 1, apart = 0;
    *closed = *v;
    closed->offset = 0;
    for (int64_t width = teg_view_width(v), done = 1; done < width;) {
        uint32_t next = total; /* the columns with the smallest stride that is left */
        for (uint32_t i = 0; i < total; i++) {
            const struct factor *const f = &v->factors[i];
            if (f->axis == AXIS_COLUMNS && f->size.n > 1 && f->stride >= covered &&
                (next == total || f->stride < v->factors[next].stride))
                next = i;
        }
        if (next == total)
            return false;
        const struct factor *const f = &v->factors[next];
        if (!apart && f->stride != covered) { /* the gap */
            apart = f->stride;
            runs->rows = (size_t)done;
        } else if (f->stride != covered)
            return false;
        closed->factors[next].stride = done;
        done *= f->size.n;
        covered = f->stride * f->size.n;
    }
    if (!apart || v->offset < 0)
        return false;
    runs->first = (size_t)v->offset;
    runs->apart = (size_t)apart;
    runs->n = (size_t)teg_view_width(v) / runs->rows;
    return true;
}

bool teg_raise_pick(struct raiser *r, struct meaning *m)
{
    struct teg_row_runs runs;
    struct view closed;
    const char *why = NULL;
    if (m->kind != ROWS || !m->is_linear || teg_view_whole(&m->view) || !find_runs(&m->view, &runs, &closed))
        return false;
    const teg_value_id x = teg_raise_value(r, m->a, &why);
    const teg_value_id w =
        x == TEG_NO_VALUE ? x : teg_raise_matrix_rows(r, m->weight, m->weight_transposed, &runs, &why);
    struct teg_op op = {.kind = TEG_OP_LINEAR, .n_inputs = 2, .inputs = {x, w}};
    if (w != TEG_NO_VALUE && m->bias != TEG_MIL_NO_VAR)
        op.inputs[op.n_inputs++] = teg_raise_vector_rows(r, m->bias, &runs, &why);
    if (w == TEG_NO_VALUE || op.inputs[op.n_inputs - 1] == TEG_NO_VALUE) {
        teg_raise_no(r, m, "%s", why ? why : "out of memory");
        return true;
    }
    const bool last = m->last;
    const float scale = m->scale;
    *m = (struct meaning){.weight = TEG_MIL_NO_VAR, .bias = TEG_MIL_NO_VAR, .last = last};
    teg_raise_rows(m, teg_raise_emit(r, &op), teg_view_width(&closed), &closed);
    m->scale = scale;
    return true;
}

struct meaning *teg_raise_position_rows(struct raiser *r, struct meaning *m, const struct meaning *table, uint32_t rank)
{
    const char *why = NULL;
    struct meaning *const rows = teg_raise_alloc(r, 1, sizeof *rows);
    const int64_t n = teg_view_width(&table->view);
    if (!rows)
        return NULL;
    struct view view = table->view;
    while (view.rank < rank && teg_view_insert(&view, 0))
        ;
    const struct factor *const f = view.rank ? teg_view_single(&view, view.rank - 1) : NULL;
    uint64_t dims[2];
    uint32_t n_dims;
    if (!f || f->axis != AXIS_COLUMNS || f->stride != 1 || view.offset || n != table->columns || table->scale != 1 ||
        !teg_raise_dims(r, table->var, dims, &n_dims) || n_dims != 2 || (int64_t)dims[1] != n) {
        teg_raise_no(r, m, "expected whole rows of a table [positions, D], found a part");
        return NULL;
    }
    const teg_value_id v = teg_raise_matrix(r, table->var, false, &why);
    if (v == TEG_NO_VALUE || table->add < 0 || table->add >= (int64_t)dims[0]) {
        teg_raise_no(r, m, "%s", why ? why : "expected a table with a row for each position, found a shorter one");
        return NULL;
    }
    const size_t n_rows = (size_t)dims[0] - (size_t)table->add;
    r->table_rows = r->table_rows && r->table_rows < n_rows ? r->table_rows : n_rows;
    r->is_learned = true;
    struct teg_op op = {.kind = TEG_OP_POSITION, .n_inputs = 1, .inputs = {v}};
    op.attr.first = (uint32_t)table->add;
    *rows = (struct meaning){.weight = TEG_MIL_NO_VAR, .bias = TEG_MIL_NO_VAR};
    teg_raise_rows(rows, teg_raise_emit(r, &op), n, &view);
    return rows;
}

/* ---- pruning ---- */

static void mark(const struct teg_graph *g, bool *used)
{
    used[g->logits] = true;
    for (uint32_t i = g->n_ops; i-- > 0;) {
        const struct teg_op *const op = &g->ops[i];
        if (op->kind != TEG_OP_KV_APPEND && !used[op->result])
            continue;
        for (uint32_t k = 0; k < op->n_inputs; k++)
            used[op->inputs[k]] = true;
    }
}

enum teg_status teg_raise_prune(struct raiser *r)
{
    struct teg_graph *const g = r->graph;
    bool *const used = teg_raise_alloc(r, g->n_values, sizeof *used);
    if (!used)
        return r->status;
    mark(g, used);
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_ops; i++) {
        const struct teg_op op = g->ops[i];
        if (op.kind != TEG_OP_KV_APPEND && !used[op.result])
            continue;
        if (op.result != TEG_NO_VALUE)
            g->values[op.result].op = n;
        g->ops[n++] = op;
    }
    g->n_ops = n;
    return TEG_OK;
}
