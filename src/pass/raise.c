/* pass/raise.c: the walk over a function: meanings of its inputs, a rule for each op, what the outputs turn out to be.
 *
 * Nothing here fails because an op is unknown: it and what depends on it have no meaning, and only when an output or a
 * state needs one is the function refused, with the reason of the first op that had none. So ops that nobody needs, and
 * new ones in places that do not matter, are no obstacle. */
#include "pass/raise.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>

#include "pass/raise_int.h"

/* ---- what the rules use ---- */

void teg_raise_keep(struct raiser *r, enum teg_status status)
{
    if (r->status == TEG_OK)
        r->status = status;
}

void *teg_raise_alloc(struct raiser *r, size_t n, size_t item_bytes)
{
    void *const p = teg_arena_array(&r->scratch, n, item_bytes);
    if (!p)
        teg_raise_keep(r, teg_base_fail_memory(r->err, "recognising a program", n));
    return p;
}

bool teg_raise_grow(struct raiser *r, void *items, uint32_t n, uint32_t *capacity, size_t item_bytes)
{
    void *old;
    memcpy(&old, items, sizeof old);
    if (n < *capacity)
        return true;
    const uint32_t bigger = *capacity ? *capacity * 2 : 16;
    void *const moved = teg_raise_alloc(r, bigger, item_bytes);
    if (!moved)
        return false;
    if (n)
        memcpy(moved, old, n * item_bytes);
    memcpy(items, &moved, sizeof moved);
    *capacity = bigger;
    return true;
}

void teg_raise_no(struct raiser *r, struct meaning *m, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const char *const name = r->op && r->op->n_outputs ? r->program->vars[r->op->outputs[0]].name : "?";
    const char *const why = r->op ? teg_arena_printf(&r->scratch, "op %.80s (%.60s): %s", name, r->op->type, text)
                                  : teg_arena_printf(&r->scratch, "%s", text);
    *m = (struct meaning){.kind = NOTHING, .why = why ? why : "out of memory"};
    if (r->why && why)
        teg_buf_printf(r->why, "%s\n", why);
}

const struct meaning *teg_raise_var(struct raiser *r, teg_mil_var_id var)
{
    static const struct meaning undefined = {.why = "a value from outside of the function"};
    if (!r->meanings[var] && r->program->vars[var].constant) {
        struct meaning *const m = teg_raise_alloc(r, 1, sizeof *m);
        if (!m)
            return &undefined;
        *m = (struct meaning){.kind = CONSTANT, .var = var};
        r->meanings[var] = m;
    }
    return r->meanings[var] ? r->meanings[var] : &undefined;
}

teg_mil_var_id teg_raise_arg_id(struct raiser *r, const char *name)
{
    const struct teg_mil_arg *const arg = teg_mil_find_arg(r->op, name);
    return arg && arg->n_vars == 1 ? arg->vars[0] : TEG_MIL_NO_VAR;
}

/* A required parameter that is absent reads as a value without meaning; rules ask for optional ones by name first. */
const struct meaning *teg_raise_arg(struct raiser *r, const char *name)
{
    const teg_mil_var_id id = teg_raise_arg_id(r, name);
    return id == TEG_MIL_NO_VAR ? NULL : teg_raise_var(r, id);
}

static const struct teg_mil_op *maker_in(const struct teg_mil_function *f, const struct teg_mil_var *v,
                                         teg_mil_var_id var)
{
    const struct teg_mil_op *const op = f && v->op < f->block.n_ops ? &f->block.ops[v->op] : NULL;
    for (size_t i = 0; op && i < op->n_outputs; i++)
        if (op->outputs[i] == var)
            return op;
    return NULL;
}

const struct teg_mil_op *teg_raise_maker(const struct raiser *r, teg_mil_var_id var)
{
    const struct teg_mil_var *const v = &r->program->vars[var];
    const struct teg_mil_op *const op = maker_in(r->function, v, var);
    return op ? op : maker_in(r->front, v, var);
}

/* ---- inputs ---- */

bool teg_raise_name_has(const char *name, const char *word)
{
    for (; *name; name++) {
        size_t i = 0;
        while (word[i] && tolower((unsigned char)name[i]) == word[i])
            i++;
        if (!word[i])
            return true;
    }
    return false;
}

static bool is_integers(const struct teg_mil_type *type)
{
    const enum teg_mil_class class_ = teg_mil_dtype_info(type->dtype)->class_;
    return type->kind == TEG_MIL_TENSOR && (class_ == TEG_MIL_CLASS_INT || class_ == TEG_MIL_CLASS_UINT);
}

/* The token dimension of an input: the one that is not 1. False: several. */
static bool find_tokens(const struct teg_mil_type *type, struct amount *tokens)
{
    *tokens = teg_amount(1);
    if (type->rank < 1)
        return false;
    for (int32_t d = 0; d < type->rank; d++) {
        if (type->dims[d] == 1)
            continue;
        if (!teg_amount_is(*tokens, 1))
            return false;
        *tokens = type->dims[d] == TEG_MIL_UNKNOWN ? (struct amount){0, 1, 0} : teg_amount(type->dims[d]);
    }
    return true;
}

static void counted_input(struct raiser *r, struct meaning *m, enum kind kind, const struct teg_mil_type *type)
{
    struct amount tokens;
    m->kind = kind;
    if (!find_tokens(type, &tokens) || (!teg_amount_is(tokens, 1) && !teg_amount_same(tokens, r->tokens)))
        teg_raise_no(r, m, "expected ids and positions of shape [1, T], found another shape");
    else
        for (int32_t d = 0; d < type->rank; d++)
            (void)teg_view_add_dim(&m->view, &(struct factor){AXIS_TOKENS, tokens, 0}, type->dims[d] != 1);
}

/* [..., T, slots]; its values are the caller's, and by contract causal. */
static void mask_input(struct raiser *r, struct meaning *m, const struct teg_mil_type *type)
{
    *m = (struct meaning){0};
    const bool any_slots = type->rank >= 2 && type->dims[type->rank - 1] == TEG_MIL_UNKNOWN;
    m->kind = MASK;
    m->causal = true;
    for (int32_t d = 0; d < type->rank; d++) {
        const struct factor time = {AXIS_TOKENS, r->tokens, 0};
        const struct factor slots = {AXIS_SLOTS, any_slots ? teg_raise_used(r) : teg_amount(type->dims[d]), 0};
        if (d == type->rank - 1)
            (void)teg_view_add_dim(&m->view, &slots, 1);
        else
            (void)teg_view_add_dim(&m->view, &time, d == type->rank - 2 && !teg_amount_is(r->tokens, 1));
        const bool fits = d >= type->rank - 2 || type->dims[d] == 1;
        if (type->rank < 2 || !fits) {
            teg_raise_no(r, m, "expected a mask [1, 1, T, slots], found another shape");
            return;
        }
    }
}

void teg_raise_define(struct raiser *r, teg_mil_var_id var, const struct meaning *meaning)
{
    struct meaning *const m = teg_raise_alloc(r, 1, sizeof *m);
    if (!m)
        return;
    *m = *meaning;
    r->meanings[var] = m;
}

/* Whole numbers, 1 for each token there is: [1, slots]. */
static bool is_keep_input(const struct raiser *r, const struct teg_mil_var *v)
{
    const enum teg_raise_role role = teg_raise_role_of(r, v->name);
    const bool by_name = role == TEG_RAISE_BY_NAME && teg_raise_name_has(v->name, "mask");
    return is_integers(&v->type) && v->type.rank >= 1 && v->type.rank <= 2 && (by_name || role == TEG_RAISE_KEEP);
}

/* A caller here has no padding: all of them are seen. */
static void keep_input(struct raiser *r, struct meaning *m, const struct teg_mil_type *type)
{
    const int64_t n = type->dims[type->rank - 1];
    const struct factor slots = {AXIS_SLOTS, n == TEG_MIL_UNKNOWN ? teg_raise_used(r) : teg_amount(n), 0};
    *m = (struct meaning){.kind = VISIBLE};
    if ((type->rank == 2 && (type->dims[0] != 1 || !teg_view_add_dim(&m->view, NULL, 0))) ||
        !teg_view_add_dim(&m->view, &slots, 1))
        teg_raise_no(r, m, "expected a mask [1, slots] of ones, found another shape");
}

/* Ids come first: all other shapes are understood by their T. */
static const char *find_ids(struct raiser *r)
{
    const struct teg_mil_block *const block = &r->function->block;
    for (size_t i = 0; i < block->n_inputs; i++) {
        const struct teg_mil_var *const v = &r->program->vars[block->inputs[i]];
        const enum teg_raise_role role = teg_raise_role_of(r, v->name);
        if (!is_integers(&v->type) || (role == TEG_RAISE_BY_NAME && teg_raise_name_has(v->name, "pos")) ||
            (role != TEG_RAISE_BY_NAME && role != TEG_RAISE_TOKENS) || is_keep_input(r, v))
            continue;
        if (r->tokens_var != TEG_MIL_NO_VAR)
            return "inputs: expected one integer input for token ids (positions have \"pos\" in their names), found "
                   "two; name their roles in tegula.json";
        if (!find_tokens(&v->type, &r->tokens))
            return "inputs: expected token ids of shape [1, T], found another shape";
        r->tokens_var = block->inputs[i];
    }
    return r->tokens_var == TEG_MIL_NO_VAR ? "inputs: expected an integer input for token ids, found none" : NULL;
}

/* Of known size, and small enough that its rows can be counted. */
static bool is_sound_state(const struct teg_mil_type *type)
{
    size_t n = 1;
    for (int32_t d = 0; d < type->rank; d++)
        if (type->dims[d] < 1 || type->dims[d] > INT32_MAX || !teg_mul(n, (size_t)type->dims[d], &n))
            return false;
    return type->rank >= 1 && n < INT64_MAX;
}

static bool is_writes_input(const struct raiser *r, const struct teg_mil_var *v)
{
    const enum teg_raise_role role = teg_raise_role_of(r, v->name);
    return role == TEG_RAISE_BY_NAME ? teg_raise_name_has(v->name, "update") : role == TEG_RAISE_WRITES;
}

static bool is_mask_input(const struct raiser *r, const struct teg_mil_var *v)
{
    const enum teg_raise_role role = teg_raise_role_of(r, v->name);
    if (v->type.kind != TEG_MIL_TENSOR)
        return false;
    return role == TEG_RAISE_BY_NAME ? teg_raise_name_has(v->name, "mask")
                                     : role == TEG_RAISE_MASK || role == TEG_RAISE_WRITES;
}

static const char *read_inputs(struct raiser *r)
{
    const struct teg_mil_block *const block = &r->function->block;
    const char *const why = r->front ? NULL : find_ids(r);
    r->states = why ? NULL : teg_raise_alloc(r, block->n_inputs + 1, sizeof *r->states);
    if (!r->states)
        return why ? why : "out of memory";
    r->is_whole = !teg_amount_is(r->tokens, 1);
    for (size_t i = 0; i < block->n_inputs; i++)
        r->is_whole = r->is_whole && r->program->vars[block->inputs[i]].type.kind != TEG_MIL_STATE &&
                      !teg_raise_is_cache_input(r, &r->program->vars[block->inputs[i]]);
    for (size_t i = 0; i < block->n_inputs; i++) {
        const teg_mil_var_id id = block->inputs[i];
        const struct teg_mil_var *const v = &r->program->vars[id];
        struct meaning m = {0};
        if (v->type.kind == TEG_MIL_STATE) {
            if (is_sound_state(&v->type))
                r->states[r->n_states++].var = id;
            continue;
        }
        if (r->meanings[id]) /* an output of the function before this one */
            continue;
        if (id == r->tokens_var)
            counted_input(r, &m, TOKENS, &v->type);
        else if (is_keep_input(r, v)) {
            keep_input(r, &m, &v->type);
        } else if (is_integers(&v->type)) {
            counted_input(r, &m, POSITIONS, &v->type);
        } else if (teg_raise_is_cache_input(r, v)) {
            teg_raise_cache_input(r, &m, id);
        } else if (is_mask_input(r, v)) {
            if (!is_writes_input(r, v) || !teg_raise_written_input(r, &m, &v->type))
                mask_input(r, &m, &v->type);
        } else if (v->type.kind == TEG_MIL_TENSOR &&
                   (teg_raise_name_has(v->name, "cos") || teg_raise_name_has(v->name, "sin"))) {
            teg_raise_wave_input(r, &m, &v->type, teg_raise_name_has(v->name, "cos"));
        } else {
            teg_raise_no(r, &m, "input %.80s: expected ids, positions or a mask, found another input", v->name);
        }
        teg_raise_define(r, id, &m);
    }
    return NULL;
}

/* ---- ops ---- */

static const struct teg_raise_row *const tables[] = {
    teg_raise_layout_rows, teg_raise_slice_rows,  teg_raise_math_rows,  teg_raise_norm_rows, teg_raise_rope_rows,
    teg_raise_mask_rows,   teg_raise_attend_rows, teg_raise_state_rows, teg_raise_tile_rows, teg_raise_fixed_rows};

static teg_raise_rule find_rule(const char *type)
{
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        for (const struct teg_raise_row *row = tables[i]; row->type; row++)
            if (strcmp(row->type, type) == 0)
                return row->rule;
    return NULL;
}

/* Parameters that a rule reads without asking whether they are there. */
static const char *const required[][4] = {
    {"linear", "x", "weight"},
    {"conv", "x", "weight"},
    {"matmul", "x", "y"},
    {"gather", "x", "indices"},
    {"gather_nd", "x", "indices"},
    {"select", "cond", "a", "b"},
    {"write_state", "input", "data"},
    {"read_state", "input"},
    {"slice_update", "x", "update"},
    {"scatter_nd", "data", "indices", "updates"},
    {"scatter", "data", "indices", "updates"},
    {"scatter_along_axis", "data", "indices", "updates"},
    {"scaled_dot_product_attention", "query", "key", "value"},
    {"range_1d", "start", "end", "step"},
    {"concat", "values"},
    {"stack", "values"},
    {"einsum", "values"},
    {"slice_by_size", "x", "begin", "size"},
    {"fill", "shape", "value"},
};
static const char *const binary[] = {"add",   "sub",       "mul",         "real_div", "floor_div",
                                     "pow",   "less",      "less_equal",  "greater",  "greater_equal",
                                     "equal", "not_equal", "logical_and", "maximum",  "minimum"};

static bool has(const struct teg_mil_op *op, const char *name)
{
    const struct teg_mil_arg *const arg = teg_mil_find_arg(op, name);
    return arg && arg->n_vars > 0;
}

static bool has_required(const struct teg_mil_op *op)
{
    for (size_t i = 0; i < sizeof required / sizeof *required; i++)
        if (strcmp(required[i][0], op->type) == 0) {
            for (size_t k = 1; k < 4; k++)
                if (required[i][k] && !has(op, required[i][k]))
                    return false;
            return true;
        }
    for (size_t i = 0; i < sizeof binary / sizeof *binary; i++)
        if (strcmp(binary[i], op->type) == 0)
            return has(op, "x") && has(op, "y");
    return has(op, "x");
}

/* An operand without meaning leaves the op without one; its reason is passed on. A write is told apart by its rule. */
static const char *missing_operand(struct raiser *r)
{
    for (size_t a = 0; a < r->op->n_args; a++)
        for (size_t i = 0; i < r->op->args[a].n_vars; i++) {
            const teg_mil_var_id var = r->op->args[a].vars[i];
            if (r->program->vars[var].type.kind == TEG_MIL_STATE)
                continue;
            const struct meaning *const m = teg_raise_var(r, var);
            if (m->kind == NOTHING)
                return m->why;
        }
    return NULL;
}

void teg_raise_read_op(struct raiser *r, const struct teg_mil_op *op)
{
    struct meaning m = {.weight = TEG_MIL_NO_VAR, .bias = TEG_MIL_NO_VAR};
    const teg_raise_rule rule = find_rule(op->type);
    r->op = op;
    const bool is_write = strcmp(op->type, "write_state") == 0, is_split = strcmp(op->type, "split") == 0;
    const char *const why = is_write ? NULL : missing_operand(r);
    if (strncmp(op->type, "constexpr_", 10) == 0 && op->n_outputs == 1)
        m = (struct meaning){.kind = CONSTANT, .var = op->outputs[0]};
    else if (why)
        m.why = why;
    else if (!rule || op->n_blocks || (op->n_outputs != 1 && !is_write && !is_split) || !has_required(op))
        teg_raise_no(r, &m, "expected an op that language models are made of, found this one");
    else
        rule(r, &m);
    if (m.kind == NOTHING && !m.why)
        m.why = "out of memory";
    for (size_t i = 0; i < op->n_outputs; i++) {
        teg_raise_define(r, op->outputs[i], &m);
        if (!is_split || m.kind == NOTHING || i + 1 == op->n_outputs)
            continue;
        r->output = i + 1;
        m = (struct meaning){.weight = TEG_MIL_NO_VAR, .bias = TEG_MIL_NO_VAR};
        rule(r, &m);
    }
    r->output = 0;
    r->op = NULL;
}

/* ---- outputs ---- */

/* Makes the product that the logits come from the head: only rows that are asked for are computed. */
static bool make_head(struct raiser *r, teg_value_id logits)
{
    struct teg_graph *const g = r->graph;
    while (g->values[logits].kind == TEG_VALUE_RESULT) {
        struct teg_op *const op = &g->ops[g->values[logits].op];
        if (op->kind == TEG_OP_LINEAR) {
            op->kind = TEG_OP_LM_HEAD;
            return true;
        }
        if (op->kind != TEG_OP_SOFTCAP && op->kind != TEG_OP_SCALE)
            return false;
        logits = op->inputs[0];
    }
    return false;
}

/* A caller's ids are checked against the logits: each must have its row. */
static const char too_few[] = "outputs: expected an embedding for each logit, found fewer rows";
static bool has_embeddings(const struct raiser *r, teg_value_id logits)
{
    return r->table_ids >= (int64_t)teg_value_width(&r->graph->values[logits]);
}

static teg_value_id emit_cap(struct raiser *r, teg_value_id x, float cap)
{
    return teg_raise_emit(r, &(struct teg_op){.kind = TEG_OP_SOFTCAP, .n_inputs = 1, .inputs = {x}, .attr.cap = cap});
}

static const char *several_heads(struct raiser *r, const struct meaning *const *outputs, size_t n)
{
    const char *why = NULL;
    teg_mil_var_id *const weights = teg_raise_alloc(r, n, sizeof *weights);
    const float cap = outputs[0]->cap;
    const struct meaning *const first = outputs[0]->kind == CAPPED ? outputs[0]->a : outputs[0];
    for (size_t i = 0; weights && i < n; i++) {
        const struct meaning *const o = outputs[i]->kind == CAPPED ? outputs[i]->a : outputs[i];
        const bool fits = o->kind == ROWS && o->is_linear && outputs[i]->cap == cap && o->a == first->a &&
                          o->bias == TEG_MIL_NO_VAR && o->scale == 1 &&
                          o->weight_transposed == first->weight_transposed && teg_view_width(&o->view) == o->columns;
        if (!fits)
            return o->kind == NOTHING ? o->why
                                      : "outputs: expected the parts of one head's logits, found another value";
        weights[i] = o->weight;
    }
    const teg_value_id x = weights ? teg_raise_value(r, first->a, &why) : TEG_NO_VALUE;
    const teg_value_id w =
        x == TEG_NO_VALUE ? x : teg_raise_stack(r, weights, (uint32_t)n, first->weight_transposed, &why);
    if (w == TEG_NO_VALUE)
        return why ? why : "out of memory";
    r->graph->logits = teg_raise_emit(r, &(struct teg_op){.kind = TEG_OP_LM_HEAD, .n_inputs = 2, .inputs = {x, w}});
    if (cap > 0 && r->status == TEG_OK)
        r->graph->logits = emit_cap(r, r->graph->logits, cap);
    return r->status == TEG_OK && !has_embeddings(r, r->graph->logits) ? too_few : NULL;
}

/* Where some are named logits, the others are for somebody else. */
bool teg_raise_is_logits(const struct raiser *r, const char *name)
{
    const enum teg_raise_role role = teg_raise_role_of(r, name);
    if (role != TEG_RAISE_BY_NAME)
        return role == TEG_RAISE_LOGITS;
    return !r->logits_named || teg_raise_name_has(name, "logit");
}

/* Outputs that are no caches; each cache that came in must go out. */
static const char *sort_outputs(struct raiser *r, const struct meaning **outputs, size_t *n)
{
    const struct teg_mil_block *const block = &r->function->block;
    bool *const given = teg_raise_alloc(r, r->n_states + 1, sizeof *given);
    uint32_t state;
    if (!given)
        return "out of memory";
    for (size_t i = 0; i < block->n_outputs; i++) {
        const char *const name = r->program->vars[block->outputs[i]].name;
        r->logits_named =
            r->logits_named || teg_raise_name_has(name, "logit") || teg_raise_role_of(r, name) == TEG_RAISE_LOGITS;
    }
    for (size_t i = 0; i < block->n_outputs; i++) {
        const struct meaning *const m = teg_raise_var(r, block->outputs[i]);
        const bool is_present = teg_raise_is_present(r, m, &state);
        const bool wanted = teg_raise_is_logits(r, r->program->vars[block->outputs[i]].name);
        if (m->kind == NOTHING && wanted)
            return m->why;
        if (!is_present && !wanted)
            continue;
        if (is_present && given[state])
            return "outputs: expected each cache once, found it twice";
        if (is_present)
            given[state] = true;
        else
            outputs[(*n)++] = m;
    }
    for (uint32_t i = 0; i < r->n_states; i++)
        if (r->states[i].is_input && !given[i])
            return "outputs: expected every cache that is an input with this call's rows in all layers, found one that "
                   "is not";
    return *n ? NULL : "outputs: expected logits, found none";
}

static const char *read_outputs(struct raiser *r)
{
    const struct teg_mil_block *const block = &r->function->block;
    const char *why = NULL;
    const struct meaning **const outputs = teg_raise_alloc(r, block->n_outputs + 1, sizeof *outputs);
    if (!outputs)
        return "out of memory";
    if (block->n_outputs == 0)
        return "outputs: expected logits, found none";
    size_t n = 0;
    why = sort_outputs(r, outputs, &n);
    if (why || n != 1)
        return why ? why : several_heads(r, outputs, n);
    const struct meaning *const o = outputs[0];
    if (o->kind == NOTHING)
        return o->why;
    const struct factor *const f = o->view.rank ? teg_view_single(&o->view, o->view.rank - 1) : NULL;
    if ((o->kind != ROWS && o->kind != CAPPED) || !f || f->axis != AXIS_COLUMNS || f->size.n != o->columns)
        return "outputs: expected logits [1, T, V], found another value";
    teg_value_id logits = teg_raise_value(r, o->kind == CAPPED ? o->a : o, &why);
    if (o->kind == CAPPED && logits != TEG_NO_VALUE)
        logits = emit_cap(r, logits, o->cap);
    if (logits == TEG_NO_VALUE)
        return why ? why : "out of memory";
    r->graph->logits = logits;
    if (!make_head(r, logits))
        return "outputs: expected logits from a product with the head, found hidden states";
    return has_embeddings(r, logits) ? NULL : too_few;
}

static const char *check_states(const struct raiser *r)
{
    for (uint32_t i = 0; i < r->n_states; i++)
        if (!r->states[i].is_input && r->states[i].n_writes != r->states[i].n_written)
            return "states: expected every update to be written back, found one that is not";
    return r->n_layers == 0 ? "expected attention over a state, found none" : NULL;
}

/* ---- what comes of it ---- */

static enum teg_status fill(struct raiser *r, struct teg_raised *raised)
{
    struct teg_buf text = {0};
    teg_raise_contract(r, &text);
    const struct teg_graph *const g = r->graph;
    const int64_t context = r->context > 0 ? r->context : 4096;
    *raised = (struct teg_raised){
        .graph = r->graph,
        .function = r->function->name,
        .n_layers = r->n_layers,
        .n_heads = r->n_heads,
        .n_kv_heads = r->n_kv_heads,
        .head_width = r->head_width,
        .ffn_width = r->ffn_width,
        .context = (uint32_t)(r->table_rows ? teg_min((size_t)context, r->table_rows) : (size_t)context),
        .n_parameters = r->n_parameters,
        .weights_bytes = r->weights_bytes,
        .n_ops = (uint32_t)r->function->block.n_ops};
    for (uint32_t i = 0; i < g->n_ops; i++)
        if (g->ops[i].kind == TEG_OP_EMBEDDING)
            raised->width = (uint32_t)teg_value_width(&g->values[g->ops[i].result]);
    raised->contract = text.failed ? NULL : teg_arena_string(r->arena, text.bytes, text.n_bytes);
    teg_buf_free(&text);
    return raised->contract ? TEG_OK : teg_base_fail_memory(r->err, "contract", 64);
}

/* ---- all of it ---- */

enum teg_status teg_raise_function(struct raiser *r, const char **reason)
{
    TRY(teg_graph_new(r->arena, &r->graph, r->err));
    r->tokens_var = TEG_MIL_NO_VAR;
    r->meanings = teg_raise_alloc(r, r->program->n_vars + 1, sizeof *r->meanings);
    TRY(r->status);
    teg_raise_read_front(r);
    *reason = read_inputs(r);
    for (size_t i = 0; i < r->function->block.n_ops && !*reason && r->status == TEG_OK; i++)
        teg_raise_read_op(r, &r->function->block.ops[i]);
    TRY(r->status);
    if (!*reason)
        *reason = r->bad_write; /* comes before what it leads to */
    if (!*reason)
        *reason = read_outputs(r);
    if (!*reason)
        *reason = check_states(r);
    TRY(r->status);
    if (*reason)
        return TEG_OK;
    TRY(teg_raise_prune(r));
    return teg_graph_verify(r->graph, r->err);
}

enum teg_raise_role teg_raise_role_of(const struct raiser *r, const char *name)
{
    for (size_t i = 0; i < r->n_names; i++)
        if (strcmp(r->names[i].name, name) == 0)
            return r->names[i].role;
    return TEG_RAISE_BY_NAME;
}

void teg_raise_start(struct raiser *r, const struct teg_mil_program *program, const struct teg_mil_function *function,
                     const struct teg_raise_options *options, struct teg_arena *arena, struct teg_error *err)
{
    *r = (struct raiser){.program = program,
                         .function = function,
                         .names = options ? options->names : NULL,
                         .n_names = options ? options->n_names : 0,
                         .arena = arena,
                         .err = err};
    teg_arena_init(&r->scratch, arena->allocator);
}

static enum teg_status try_function(const struct teg_mil_program *program, const struct teg_mil_function *function,
                                    const struct teg_raise_options *options, struct teg_arena *arena,
                                    struct teg_raised *raised, struct teg_error *err)
{
    struct raiser r;
    const char *reason = NULL;
    teg_raise_start(&r, program, function, options, arena, err);
    enum teg_status status = teg_raise_function(&r, &reason);
    if (status == TEG_OK && reason)
        status = teg_base_fail(err, TEG_ERR_UNSUPPORTED, 0,
                               "cannot run package as a language model: %s, function %.60s: %s; `tegula predict` runs "
                               "it op by op",
                               program->path, function->name, reason);
    if (status == TEG_OK)
        status = fill(&r, raised);
    teg_arena_free(&r.scratch);
    return status;
}

enum teg_status teg_raise(const struct teg_mil_program *program, const struct teg_raise_options *options,
                          struct teg_arena *arena, struct teg_raised *raised, struct teg_error *err)
{
    const struct teg_raise_options o = options ? *options : (struct teg_raise_options){0};
    const char *const first = o.function ? o.function : program->default_function;
    const struct teg_mil_function *const wanted =
        first ? teg_mil_find_function(program, first) : &program->functions[0];
    if (!wanted)
        FAIL(err, TEG_ERR_ARGUMENT,
             "cannot run package: %s: function: expected one of the package's, found %.60s; see `tegula inspect`",
             program->path, first);
    const enum teg_status status = try_function(program, wanted, &o, arena, raised, err);
    if (status != TEG_ERR_UNSUPPORTED || o.function)
        return status;
    for (size_t i = 0; i < program->n_functions; i++) /* the reason of the default function stands */
        if (&program->functions[i] != wanted &&
            try_function(program, &program->functions[i], &o, arena, raised, NULL) == TEG_OK)
            return TEG_OK;
    return status;
}
