/* plan/plan.c: ops -> steps.
 *
 * One walk over the ops. A slice becomes a view: its users read columns of the other buffer. RoPE, scale and softcap
 * work in place when nobody else needs what they overwrite, else on a copy. An add whose other operand is the linear
 * just before it becomes that linear's residual. Then lifetimes are known, buffers are placed (place.c) and steps are
 * gathered into stages (stage.c). Kernels are chosen once for the whole plan, by CPU.
 *
 * In fast mode a product whose weights the integer kernels accept reads quantized activations. They are made by a step
 * of their own, once for all products of one value (q, k and v; gate and up), which joins the row stage of the norm or
 * the activation before it. The head's activations get a second row for what 8 bits leave over: it runs for one token
 * of a prompt, and a quarter of the divergence from exact mode came from it alone. */
#include "plan/plan.h"

#include <string.h>

#include "base/check.h"

/* How the planner sees a value: columns of a buffer. */
struct view {
    uint32_t buffer;
    uint32_t column;
    bool logits;
};

struct planner {
    const struct teg_graph *graph;
    struct teg_arena *arena;
    struct teg_plan *plan;
    struct teg_error *err;
    struct view *views;           /* [n_values] */
    uint32_t *n_uses;             /* [n_values] */
    struct teg_lifetime *buffers; /* widths are also the strides until placement */
    uint32_t *strides;            /* of each buffer */
    uint32_t n_buffers;
    const float *ones;
    size_t n_ones;
    bool rounds_floats;
    uint32_t *quantized; /* [n_values]: 1 + number of the step that quantizes it, 0: none yet */
};

static const struct teg_value *value_of(const struct planner *p, teg_value_id id)
{
    return &p->graph->values[id];
}

/* offset holds the buffer's number until placement. */
static struct teg_operand operand(const struct planner *p, teg_value_id id)
{
    const struct view v = p->views[id];
    return (struct teg_operand){.used = true,
                                .logits = v.logits,
                                .offset = v.buffer,
                                .stride = v.logits ? p->plan->vocab : p->strides[v.buffer],
                                .column = v.column,
                                .width = (uint32_t)teg_value_width(value_of(p, id))};
}

/* Rows a multiple of 1 KiB apart would share few sets of a cache, and a product reads six and writes hundreds at a
 * time: one line more takes them apart (2 to 4 % of a product whose rows are 2,048 or 8,192 values). */
static uint32_t row_stride(size_t width)
{
    return (uint32_t)(width % 256 ? width : width + 16);
}

static uint32_t add_buffer(struct planner *p, uint32_t stride)
{
    p->buffers[p->n_buffers] = (struct teg_lifetime){.width = stride};
    p->strides[p->n_buffers] = stride;
    return p->n_buffers++;
}

static void new_buffer(struct planner *p, teg_value_id id)
{
    p->views[id] = (struct view){.buffer = add_buffer(p, row_stride(teg_value_width(value_of(p, id))))};
}

static struct teg_step *new_step(struct planner *p, enum teg_step_kind kind, uint32_t op)
{
    struct teg_step *const s = &p->plan->steps[p->plan->n_steps++];
    *s = (struct teg_step){.kind = kind, .op = op};
    return s;
}

static void set_weight(const struct planner *p, struct teg_step *s, teg_value_id id)
{
    const struct teg_value *const w = value_of(p, id);
    s->weight = w->data;
    s->weight_dtype = w->dtype;
    s->encoding = w->encoding;
    (void)teg_dtype_row_bytes(w->dtype, teg_value_width(w), &s->weight_row_bytes); /* checked when it was made */
}

static void set_output(struct planner *p, struct teg_step *s, const struct teg_op *op)
{
    s->out = operand(p, op->result);
    s->name = value_of(p, op->result)->name;
}

/* x's buffer may be overwritten: x is used only here, and so is, column for column, whatever it is a view of. */
static bool may_overwrite(const struct planner *p, teg_value_id x)
{
    const struct teg_value *const v = value_of(p, x);
    if (p->n_uses[x] != 1 || v->name)
        return false;
    const struct teg_op *const def = &p->graph->ops[v->op];
    if (def->kind != TEG_OP_SLICE)
        return true;
    const teg_value_id parent = def->inputs[0];
    const struct teg_value *const pv = value_of(p, parent);
    if (pv->kind == TEG_VALUE_RESULT && p->graph->ops[pv->op].kind == TEG_OP_SLICE)
        return false; /* whoever else has columns of the whole is not looked for */
    uint32_t n_slices = 0;
    for (uint32_t i = 0; i < p->graph->n_ops; i++) {
        const struct teg_op *const op = &p->graph->ops[i];
        if (op->kind != TEG_OP_SLICE || op->inputs[0] != parent)
            continue;
        n_slices++;
        if (op != def && op->attr.slice.begin < def->attr.slice.begin + def->attr.slice.width &&
            def->attr.slice.begin < op->attr.slice.begin + op->attr.slice.width)
            return false;
    }
    return n_slices == p->n_uses[parent];
}

/* The result takes the place of x, copied first where x is still needed. */
static void in_place(struct planner *p, uint32_t op_index, teg_value_id x)
{
    const struct teg_op *const op = &p->graph->ops[op_index];
    if (p->views[x].logits || may_overwrite(p, x)) {
        p->views[op->result] = p->views[x];
        return;
    }
    new_buffer(p, op->result);
    struct teg_step *const copy = new_step(p, TEG_STEP_COPY, op_index);
    copy->a = operand(p, x);
    copy->out = operand(p, op->result);
}

static bool same_rope(const struct teg_rope_table *a, const struct teg_rope_table *b)
{
    return a->frequencies == b->frequencies && a->long_frequencies == b->long_frequencies && a->cos == b->cos &&
           a->sin == b->sin && a->magnitude == b->magnitude && a->original_context == b->original_context;
}

static uint32_t rope_table(struct planner *p, const struct teg_op *op)
{
    struct teg_plan *const plan = p->plan;
    const struct teg_value *const f = value_of(p, op->inputs[1]);
    const struct teg_value *const second = op->n_inputs > 2 ? value_of(p, op->inputs[2]) : NULL;
    struct teg_rope_table table = {.n_pairs = (uint32_t)teg_value_width(f),
                                   .original_context = op->attr.rope.original_context,
                                   .magnitude = op->attr.rope.magnitude};
    if (f->shape.rank == 1) {
        table.frequencies = f->data;
        table.long_frequencies = second ? second->data : NULL;
    } else {
        table.cos = f->data;
        table.sin = second->data;
        table.row_dtype = f->dtype;
        table.n_rows = (size_t)f->shape.dims[0];
        table.row_bytes = f->n_bytes / table.n_rows;
        plan->max_positions = teg_min(plan->max_positions, table.n_rows);
    }
    for (uint32_t i = 0; i < plan->n_rope_tables; i++)
        if (same_rope(&plan->rope_tables[i], &table))
            return i;
    plan->rope_tables[plan->n_rope_tables] = table;
    return plan->n_rope_tables++;
}

/* Layers are numbered in the order in which they append. */
static uint32_t kv_layer(struct planner *p, const struct teg_op *op, teg_value_id state, teg_value_id *states)
{
    struct teg_plan *const plan = p->plan;
    for (uint32_t i = 0; i < plan->n_kv_layers; i++)
        if (states[i] == state)
            return i;
    const uint32_t n_heads = op->attr.attention.n_kv_heads, width = op->attr.attention.head_width;
    struct teg_kv_layer *const layer = &plan->kv_layers[plan->n_kv_layers];
    states[plan->n_kv_layers] = state;
    *layer = (struct teg_kv_layer){.n_kv_heads = n_heads, .head_width = width};
    for (int type = TEG_KV_F32; type < TEG_KV_TYPES; type++) {
        layer->offset_bytes[type] = plan->kv_block_bytes[type];
        plan->kv_block_bytes[type] += n_heads * teg_kv_page_bytes((enum teg_kv_type)type, width);
    }
    plan->kv_block_elements += (size_t)2 * TEG_TILE_TOKENS * width * n_heads;
    return plan->n_kv_layers++;
}

/* The operand that the add after this linear adds, or TEG_NO_VALUE where the two cannot be one step. The kernel reads
 * the residual with the output's stride, so columns of a wider buffer fit only when the output takes their place. */
static teg_value_id residual_of(const struct planner *p, uint32_t i)
{
    const struct teg_op *const op = &p->graph->ops[i], *const next = i + 1 < p->graph->n_ops ? op + 1 : NULL;
    if (op->kind != TEG_OP_LINEAR || !next || next->kind != TEG_OP_ADD || p->n_uses[op->result] != 1 ||
        value_of(p, op->result)->name || (next->inputs[0] != op->result && next->inputs[1] != op->result))
        return TEG_NO_VALUE;
    const teg_value_id x = next->inputs[next->inputs[0] == op->result];
    const struct teg_operand place = operand(p, x);
    return !place.logits && (place.stride == row_stride(place.width) || may_overwrite(p, x)) ? x : TEG_NO_VALUE;
}

static bool is_product(const struct teg_op *op)
{
    return op->kind == TEG_OP_LINEAR || op->kind == TEG_OP_LM_HEAD;
}

/* Values that two kinds of product read are quantized for the first, which is the more exact one or the only one. */
static void quantized_input(struct planner *p, struct teg_step *linear, teg_value_id x, uint32_t terms)
{
    const uint32_t made = p->quantized[x];
    if (made) {
        const struct teg_step *const q = &p->plan->steps[made - 1];
        linear->a = q->out;
        linear->terms = q->terms;
        return;
    }
    const size_t k = teg_value_width(value_of(p, x)), width = terms * teg_qgemm_row_bytes(k) / sizeof(float);
    const uint32_t stride = terms == 1 ? row_stride(width) : (uint32_t)width; /* two terms: no gap between tokens */
    const struct teg_step l = *linear;
    *linear = (struct teg_step){.kind = TEG_STEP_QUANTIZE, .op = l.op, .gemm = l.gemm, .k = k, .terms = terms};
    linear->a = operand(p, x);
    linear->out =
        (struct teg_operand){.used = true, .offset = add_buffer(p, stride), .stride = stride, .width = (uint32_t)width};
    p->quantized[x] = p->plan->n_steps;
    struct teg_step *const s = &p->plan->steps[p->plan->n_steps++];
    *s = l;
    s->a = linear->out;
    s->terms = terms;
}

/* The integer kernels take this weight; how, goes to *form where it has an encoding of its own. */
static bool is_accepted(const struct teg_value *w, struct teg_qgemm_form *form)
{
    return w->encoding ? teg_qgemm_form_of(w->encoding, form) : teg_qgemm_accepts(w->dtype, teg_value_width(w));
}

/* This plan has the product with w made by them. */
static bool is_integer(const struct planner *p, const struct teg_value *w, struct teg_qgemm_form *form)
{
    return p->plan->gemm && (is_accepted(w, form) ||
                             (p->rounds_floats && !w->encoding && teg_qgemm_rounds(w->dtype, teg_value_width(w))));
}

static struct teg_step *product_step(struct planner *p, uint32_t i)
{
    const struct teg_op *const op = &p->graph->ops[i];
    struct teg_step *const s = new_step(p, TEG_STEP_LINEAR, i);
    s->k = teg_value_width(value_of(p, op->inputs[0]));
    s->a = operand(p, op->inputs[0]);
    set_weight(p, s, op->inputs[1]);
    if (!is_integer(p, value_of(p, op->inputs[1]), &s->form))
        return s;
    s->gemm = p->plan->gemm;
    quantized_input(p, s, op->inputs[0], op->kind == TEG_OP_LM_HEAD ? 2 : 1);
    return &p->plan->steps[p->plan->n_steps - 1];
}

bool teg_plan_gains(const struct teg_graph *g)
{
    struct teg_qgemm_form form;
    for (uint32_t i = 0; i < g->n_ops; i++)
        if (is_product(&g->ops[i]) && is_accepted(&g->values[g->ops[i].inputs[1]], &form))
            return true;
    return false;
}

static void plan_linear(struct planner *p, uint32_t i, uint32_t *skip)
{
    const struct teg_op *const op = &p->graph->ops[i], *const next = op + 1;
    const teg_value_id x = residual_of(p, i);
    const bool fused = x != TEG_NO_VALUE;
    const struct teg_op *const last = fused ? next : op;
    struct teg_step *const s = product_step(p, i);
    s->bias = op->n_inputs > 2 ? value_of(p, op->inputs[2])->data : NULL;
    if (op->kind == TEG_OP_LM_HEAD)
        p->views[op->result] = (struct view){.logits = true};
    else if (!fused)
        new_buffer(p, op->result);
    if (fused) {
        s->residual = operand(p, x);
        if (may_overwrite(p, x))
            p->views[next->result] = p->views[x];
        else
            new_buffer(p, next->result);
        *skip = i + 1;
    }
    set_output(p, s, last);
}

static void plan_norm(struct planner *p, uint32_t i)
{
    const struct teg_op *const op = &p->graph->ops[i];
    new_buffer(p, op->result);
    const bool centred = op->kind == TEG_OP_LAYER_NORM;
    struct teg_step *const s = new_step(p, centred ? TEG_STEP_LAYER_NORM : TEG_STEP_RMS_NORM, i);
    s->a = operand(p, op->inputs[0]);
    set_weight(p, s, op->inputs[1]);
    s->head_width = (uint32_t)teg_value_width(value_of(p, op->inputs[1]));
    s->bias = op->n_inputs > 2 ? value_of(p, op->inputs[2])->data : NULL;
    s->eps = op->attr.norm.eps;
    s->weight_offset = op->attr.norm.weight_offset;
    s->by_max = op->attr.norm.by_max;
    s->least_max = op->attr.norm.least_max;
    set_output(p, s, op);
}

static void plan_position(struct planner *p, uint32_t i)
{
    const struct teg_op *const op = &p->graph->ops[i];
    const size_t rows = (size_t)value_of(p, op->inputs[0])->shape.dims[0] - op->attr.first;
    new_buffer(p, op->result);
    struct teg_step *const s = new_step(p, TEG_STEP_POSITION, i);
    set_weight(p, s, op->inputs[0]);
    s->scale = 1;
    s->first_row = op->attr.first;
    p->plan->max_positions = teg_min(p->plan->max_positions, rows);
    set_output(p, s, op);
}

/* act(x) · 1: the ones are a row for the widest of them. */
static enum teg_status plan_activation(struct planner *p, uint32_t i)
{
    const struct teg_op *const op = &p->graph->ops[i];
    const size_t n = teg_value_width(value_of(p, op->result));
    if (p->n_ones < n) {
        float *const ones = teg_arena_array(p->arena, n, sizeof *ones);
        if (!ones)
            return teg_base_fail_memory(p->err, "plan", n * sizeof *ones);
        for (size_t k = 0; k < n; k++)
            ones[k] = 1;
        p->ones = ones;
        p->n_ones = n;
    }
    in_place(p, i, op->inputs[0]);
    struct teg_step *const s = new_step(p, TEG_STEP_ACTIVATION, i);
    set_output(p, s, op);
    s->a = s->out;
    s->weight = p->ones;
    s->activation = op->attr.activation;
    return TEG_OK;
}

static void plan_rope(struct planner *p, uint32_t i)
{
    const struct teg_op *const op = &p->graph->ops[i];
    in_place(p, i, op->inputs[0]);
    struct teg_step *const s = new_step(p, TEG_STEP_ROPE, i);
    s->head_width = op->attr.rope.head_width;
    s->interleaved = op->attr.rope.interleaved;
    set_output(p, s, op);
    s->a = s->out;
    s->rope_table = rope_table(p, op);
}

static void plan_attention(struct planner *p, uint32_t i, teg_value_id *states)
{
    const struct teg_op *const op = &p->graph->ops[i];
    const bool append = op->kind == TEG_OP_KV_APPEND;
    if (!append)
        new_buffer(p, op->result);
    struct teg_step *const s = new_step(p, append ? TEG_STEP_KV_APPEND : TEG_STEP_ATTENTION, i);
    s->a = operand(p, op->inputs[0]);
    s->n_heads = op->attr.attention.n_heads;
    s->n_kv_heads = op->attr.attention.n_kv_heads;
    s->head_width = op->attr.attention.head_width;
    s->window = op->attr.attention.window;
    s->scale = op->attr.attention.scale;
    s->softcap = op->attr.attention.softcap;
    s->layer = kv_layer(p, op, op->inputs[append ? 2 : 1], states);
    if (append) {
        s->b = operand(p, op->inputs[1]);
        return;
    }
    if (op->n_inputs > 2)
        s->weight = value_of(p, op->inputs[2])->data; /* sinks */
    set_output(p, s, op);
    const size_t scratch = teg_attend_scratch_floats(s->head_width);
    p->plan->worker_floats = teg_max(p->plan->worker_floats, scratch);
    p->plan->state_floats = teg_max(p->plan->state_floats, s->n_heads * teg_attend_state_floats(s->head_width));
}

/* Ops whose step only names operands. */
static void plan_simple(struct planner *p, uint32_t i, enum teg_step_kind kind)
{
    const struct teg_op *const op = &p->graph->ops[i];
    if (kind == TEG_STEP_SCALE || kind == TEG_STEP_SOFTCAP)
        in_place(p, i, op->inputs[0]);
    else
        new_buffer(p, op->result);
    struct teg_step *const s = new_step(p, kind, i);
    set_output(p, s, op);
    s->scale = kind == TEG_STEP_SOFTCAP ? op->attr.cap : op->attr.scale.scale;
    if (kind == TEG_STEP_EMBEDDING) {
        set_weight(p, s, op->inputs[1]);
        return;
    }
    s->a = kind == TEG_STEP_SCALE || kind == TEG_STEP_SOFTCAP ? s->out : operand(p, op->inputs[0]);
    if (kind == TEG_STEP_GLU || kind == TEG_STEP_ADD)
        s->b = operand(p, op->inputs[1]);
    if (kind == TEG_STEP_GLU)
        s->activation = op->attr.activation;
}

/* A linear that made `id` as a whole, for this one use. */
static bool makes_alone(const struct planner *p, const struct teg_step *s, teg_value_id id)
{
    const struct teg_value *const v = value_of(p, id);
    return s->kind == TEG_STEP_LINEAR && s->gemm && s->terms == 1 && !s->bias && !s->residual.used && !v->name &&
           p->n_uses[id] == 1 && v->kind == TEG_VALUE_RESULT && v->op == s->op;
}

/* All users are products on integers that take one row. */
static bool quantized_for_all(const struct planner *p, uint32_t glu)
{
    const struct teg_graph *const g = p->graph;
    const teg_value_id x = g->ops[glu].result;
    uint32_t n = 0;
    for (uint32_t i = glu + 1; i < g->n_ops && n < p->n_uses[x]; i++)
        for (uint32_t k = 0; k < g->ops[i].n_inputs; k++) {
            if (g->ops[i].inputs[k] != x)
                continue;
            struct teg_qgemm_form form;
            if (g->ops[i].kind != TEG_OP_LINEAR || k != 0 || !is_integer(p, value_of(p, g->ops[i].inputs[1]), &form))
                return false;
            n++;
        }
    return n > 0 && n == p->n_uses[x];
}

/* gate and up become one step that writes groups, where they are the last two and nobody wants the floats. */
static bool plan_glu(struct planner *p, uint32_t i)
{
    struct teg_plan *const plan = p->plan;
    const struct teg_op *const op = &p->graph->ops[i];
    const size_t width = teg_value_width(value_of(p, op->result));
    if (!plan->gemm || plan->n_steps < 2 || value_of(p, op->result)->name || width % TEG_QGEMM_COLUMNS)
        return false;
    struct teg_step *const gate = &plan->steps[plan->n_steps - 2], *const up = gate + 1;
    if (!makes_alone(p, gate, op->inputs[0]) || !makes_alone(p, up, op->inputs[1]) || gate->a.offset != up->a.offset ||
        gate->k != up->k || !quantized_for_all(p, i))
        return false;
    const uint32_t stride = row_stride(teg_qgemm_row_bytes(width) / sizeof(float));
    up->out =
        (struct teg_operand){.used = true, .offset = add_buffer(p, stride), .stride = stride, .width = (uint32_t)width};
    up->glu = gate->is_gate = true;
    up->activation = op->attr.activation;
    gate->a.used = gate->out.used = false;
    p->quantized[op->result] = plan->n_steps;
    return true;
}

static enum teg_status plan_op(struct planner *p, uint32_t i, uint32_t *skip, teg_value_id *states)
{
    const struct teg_op *const op = &p->graph->ops[i];
    switch (op->kind) {
    case TEG_OP_EMBEDDING:
        plan_simple(p, i, TEG_STEP_EMBEDDING);
        return TEG_OK;
    case TEG_OP_POSITION:
        plan_position(p, i);
        return TEG_OK;
    case TEG_OP_RMS_NORM:
    case TEG_OP_LAYER_NORM:
        plan_norm(p, i);
        return TEG_OK;
    case TEG_OP_ACTIVATION:
        return plan_activation(p, i);
    case TEG_OP_LINEAR:
    case TEG_OP_LM_HEAD:
        plan_linear(p, i, skip);
        return TEG_OK;
    case TEG_OP_ROPE:
        plan_rope(p, i);
        return TEG_OK;
    case TEG_OP_KV_APPEND:
    case TEG_OP_ATTENTION:
        plan_attention(p, i, states);
        return TEG_OK;
    case TEG_OP_GLU:
        if (!plan_glu(p, i))
            plan_simple(p, i, TEG_STEP_GLU);
        return TEG_OK;
    case TEG_OP_ADD:
        plan_simple(p, i, TEG_STEP_ADD);
        return TEG_OK;
    case TEG_OP_SCALE:
        plan_simple(p, i, TEG_STEP_SCALE);
        return TEG_OK;
    case TEG_OP_SOFTCAP:
        plan_simple(p, i, TEG_STEP_SOFTCAP);
        return TEG_OK;
    case TEG_OP_SLICE: {
        const struct view parent = p->views[op->inputs[0]];
        p->views[op->result] = parent;
        p->views[op->result].column = parent.column + op->attr.slice.begin;
        return TEG_OK;
    }
    default:
        FAIL(p->err, TEG_ERR_UNSUPPORTED,
             "cannot plan: %s: expected an op with a kernel, found none; report this as a "
             "fault",
             teg_op_name(op->kind));
    }
}

/* Products of one value follow it at once (q, k and v of a package, which has their rotations between them): they share
 * a stage, and a barrier costs more than the steps do. */
static enum teg_status plan_siblings(struct planner *p, uint32_t i, bool *planned, teg_value_id *states)
{
    enum { WITHIN = 16 };
    const struct teg_graph *const g = p->graph;
    for (uint32_t j = i + 1; j < g->n_ops && j <= i + WITHIN; j++) {
        uint32_t skip = j;
        if (planned[j] || g->ops[j].kind != TEG_OP_LINEAR || g->ops[j].inputs[0] != g->ops[i].inputs[0] ||
            residual_of(p, j) != TEG_NO_VALUE)
            continue;
        TRY(plan_op(p, j, &skip, states));
        planned[j] = true;
    }
    return TEG_OK;
}

/* The first step that is needed only for logits: the norm before the head, or the head. */
static void find_head(struct teg_plan *plan, const struct teg_graph *g)
{
    uint32_t head = plan->n_steps;
    for (uint32_t i = 0; i < plan->n_steps; i++)
        if (g->ops[plan->steps[i].op].kind == TEG_OP_LM_HEAD && head == plan->n_steps)
            head = i;
    const enum teg_step_kind before = head > 0 && head < plan->n_steps ? plan->steps[head - 1].kind : TEG_STEP_LINEAR;
    if (before == TEG_STEP_RMS_NORM || before == TEG_STEP_LAYER_NORM)
        head--;
    plan->first_head_step = head;
}

static void touch(struct planner *p, const struct teg_operand *x, uint32_t step)
{
    if (x->used && !x->logits)
        p->buffers[x->offset].last = step;
}

static enum teg_status place(struct planner *p)
{
    struct teg_plan *const plan = p->plan;
    for (uint32_t b = 0; b < p->n_buffers; b++)
        p->buffers[b].first = UINT32_MAX;
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        struct teg_step *const s = &plan->steps[i];
        if (s->out.used && !s->out.logits && p->buffers[s->out.offset].first == UINT32_MAX)
            p->buffers[s->out.offset].first = i;
        touch(p, &s->a, i);
        touch(p, &s->b, i);
        touch(p, &s->residual, i);
        touch(p, &s->out, i);
    }
    /* cos and sin live through the whole pass. */
    const uint32_t first_rope = p->n_buffers;
    for (uint32_t i = 0; i < plan->n_rope_tables; i++)
        for (int k = 0; k < 2; k++)
            p->buffers[p->n_buffers++] =
                (struct teg_lifetime){.width = plan->rope_tables[i].n_pairs, .first = 0, .last = plan->n_steps};
    TRY(teg_plan_place(p->buffers, p->n_buffers, p->arena, &plan->row_floats, p->err));
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        struct teg_operand *const operands[] = {&plan->steps[i].a, &plan->steps[i].b, &plan->steps[i].residual,
                                                &plan->steps[i].out};
        for (size_t k = 0; k < 4; k++)
            if (operands[k]->used && !operands[k]->logits)
                operands[k]->offset = p->buffers[operands[k]->offset].offset;
    }
    for (uint32_t i = 0; i < plan->n_rope_tables; i++) {
        plan->rope_tables[i].cos_offset = p->buffers[first_rope + 2 * i].offset;
        plan->rope_tables[i].sin_offset = p->buffers[first_rope + 2 * i + 1].offset;
    }
    return TEG_OK;
}

/* Rows of logits made at a time: about 8 MiB of them. */
static uint32_t head_rows(uint32_t vocab)
{
    const uint32_t rows = ((uint32_t)2 << 20) / vocab;
    return rows < 1 ? 1 : rows > 32 ? 32 : rows;
}

/* Scratch of one worker. */
static size_t linear_floats(const struct teg_plan *plan)
{
    size_t most = 0;
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        const struct teg_step *const s = &plan->steps[i];
        if (s->kind == TEG_STEP_LINEAR)
            most = teg_max(most, s->gemm ? teg_qgemm_scratch_floats() : teg_linear_scratch_floats(s->k));
    }
    return most;
}

enum teg_status teg_plan_new(const struct teg_graph *g, const struct teg_cpu *cpu,
                             const struct teg_plan_options *options, struct teg_arena *arena, struct teg_plan **out,
                             struct teg_error *err)
{
    struct teg_plan *const plan = teg_arena_array(arena, 1, sizeof *plan);
    struct planner p = {.graph = g, .arena = arena, .plan = plan, .err = err};
    const size_t n_steps = (size_t)g->n_ops * 2 + 1, n_buffers = n_steps + 2 * (size_t)g->n_ops;
    p.views = teg_arena_array(arena, g->n_values, sizeof *p.views);
    p.n_uses = teg_arena_array(arena, g->n_values, sizeof *p.n_uses);
    p.buffers = teg_arena_array(arena, n_buffers, sizeof *p.buffers);
    p.strides = teg_arena_array(arena, n_buffers, sizeof *p.strides);
    p.quantized = teg_arena_array(arena, g->n_values, sizeof *p.quantized);
    teg_value_id *const states = teg_arena_array(arena, g->n_ops + 1, sizeof *states);
    bool *const planned = teg_arena_array(arena, g->n_ops + 1, sizeof *planned);
    if (!plan || !p.views || !p.n_uses || !p.buffers || !p.strides || !p.quantized || !states || !planned)
        return teg_base_fail_memory(err, "plan", n_steps * sizeof *plan->steps);
    plan->steps = teg_arena_array(arena, n_steps, sizeof *plan->steps);
    plan->rope_tables = teg_arena_array(arena, g->n_ops + 1, sizeof *plan->rope_tables);
    plan->kv_layers = teg_arena_array(arena, g->n_ops + 1, sizeof *plan->kv_layers);
    if (!plan->steps || !plan->rope_tables || !plan->kv_layers)
        return teg_base_fail_memory(err, "plan", n_steps * sizeof *plan->steps);
    plan->max_positions = g->max_positions ? g->max_positions : SIZE_MAX;
    teg_kernels_select(cpu, &plan->kernels);
    teg_attend_select(cpu, &plan->kernels, &plan->attend);
    plan->gemm = options && options->fast ? teg_qgemm_select(cpu) : NULL;
    p.rounds_floats = options && options->rounds_floats;
    plan->vocab = (uint32_t)teg_value_width(&g->values[g->logits]);
    plan->head_rows = head_rows(plan->vocab);
    for (uint32_t i = 0; i < g->n_ops; i++)
        for (uint32_t k = 0; k < g->ops[i].n_inputs; k++)
            p.n_uses[g->ops[i].inputs[k]]++;
    for (uint32_t i = 0; i < g->n_ops; i++) {
        uint32_t skip = i;
        if (planned[i])
            continue;
        TRY(plan_op(&p, i, &skip, states));
        if (skip == i && g->ops[i].kind == TEG_OP_LINEAR)
            TRY(plan_siblings(&p, i, planned, states));
        i = skip;
    }
    plan->worker_floats = teg_max(plan->worker_floats, linear_floats(plan));
    find_head(plan, g);
    TRY(place(&p));
    TRY(teg_plan_stages(plan, arena, err));
    *out = plan;
    return TEG_OK;
}
