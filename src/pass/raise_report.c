/* pass/raise_report.c: what raise has to say: the contract of a function that it understood, how much it understood of
 * one, and why not the rest.
 *
 * Everything here is read off the meanings after the walk; nothing is looked up by name, so the contract is what the
 * program does and not what its author called things. */
#include <stdio.h>

#include "pass/raise_int.h"

/* ---- the contract ---- */

/* What a caller of the package gives as this input. */
static const char *input_text(const struct raiser *r, teg_mil_var_id id)
{
    const struct meaning *const m = r->meanings[id];
    if (!m)
        return NULL; /* a state */
    for (size_t i = 0; r->front && i < r->front->block.n_outputs; i++)
        if (strcmp(r->program->vars[r->front->block.outputs[i]].name, r->program->vars[id].name) == 0)
            return "the output of that name of the function that takes ids";
    if (m->kind == TOKENS)
        return "token ids";
    if (m->kind == POSITIONS)
        return teg_view_has(&m->view, AXIS_TOKENS) ? "positions P … P + T - 1" : "P, the tokens before this call";
    if (m->kind == STATE || m->kind == PAST)
        return "keys or values, the output of the call before; kept here";
    if (m->kind == VISIBLE)
        return "1 for each token there is";
    if (m->kind == WRITTEN)
        return "1 where the call writes";
    if (m->kind == COSINES || m->kind == SINES)
        return m->kind == COSINES ? "cos(p · f), f = base^(-i/n)" : "sin(p · f), f = base^(-i/n)";
    return m->kind == MASK ? "causal: 0 where slot <= position, else -inf" : "not used";
}

static const struct teg_mil_feature *find_input(const struct raiser *r, const char *name)
{
    const struct teg_mil_program *const p = r->program;
    for (size_t i = 0; i < p->n_functions && p->interfaces; i++)
        for (size_t k = 0; &p->functions[i] == r->function && k < p->interfaces[i].n_inputs; k++)
            if (strcmp(p->interfaces[i].inputs[k].name, name) == 0)
                return &p->interfaces[i].inputs[k];
    return NULL;
}

/* How many tokens a call of the package takes; here it is any number. */
static void tokens_line(const struct raiser *r, struct teg_buf *out)
{
    const struct teg_mil_feature *const f = find_input(r, r->program->vars[r->tokens_var].name);
    if (teg_amount_fixed(r->tokens)) {
        teg_buf_printf(out, "tokens     T = %lld a call in the package; any number here\n", (long long)r->tokens.n);
        return;
    }
    teg_buf_puts(out, "tokens     any number T a call");
    for (uint32_t d = 0; f && f->has_shape && d < f->rank; d++) {
        if (f->n_enumerated) {
            for (size_t i = 0; d + 1 == f->rank && i < f->n_enumerated; i++)
                teg_buf_printf(out, i ? ", %lld" : "; of the package: %lld", (long long)f->enumerated[i][d]);
        } else if (f->lower[d] != f->upper[d] && f->upper[d] > 0) {
            teg_buf_printf(out, "; of the package: %lld to %lld", (long long)f->lower[d], (long long)f->upper[d]);
        }
    }
    teg_buf_puts(out, "\n");
}

static void print_dims(const struct teg_mil_type *type, struct teg_buf *out)
{
    teg_buf_puts(out, " [");
    for (int32_t d = 0; d < type->rank; d++)
        if (type->dims[d] == TEG_MIL_UNKNOWN)
            teg_buf_puts(out, d ? ", ?" : "?");
        else
            teg_buf_printf(out, d ? ", %lld" : "%lld", (long long)type->dims[d]);
    teg_buf_puts(out, "]");
}

/* From which input the place of this call's rows in the caches is known. */
static void write_line(const struct raiser *r, struct teg_buf *out)
{
    const struct teg_mil_block *const block = &r->function->block;
    const char *positions = NULL, *mask = NULL;
    for (size_t i = 0; i < block->n_inputs; i++) {
        const struct meaning *const m = r->meanings[block->inputs[i]];
        const char *const name = r->program->vars[block->inputs[i]].name;
        if (m && m->kind == POSITIONS && (!positions || !teg_view_has(&m->view, AXIS_TOKENS)))
            positions = name;
        if (m && m->kind == MASK)
            mask = name;
    }
    if (r->n_states == 0)
        return;
    teg_buf_puts(out, "writes     slots P … P + T - 1 of every cache");
    if (positions)
        teg_buf_printf(out, "; P is the first of %s\n", positions);
    else if (mask)
        teg_buf_printf(out, "; P is the last dimension of %s, less T\n", mask);
    else
        teg_buf_puts(out, "\n");
}

void teg_raise_contract(const struct raiser *r, struct teg_buf *out)
{
    const struct teg_mil_var *const vars = r->program->vars;
    const struct teg_mil_block *const block = &r->function->block;
    size_t n_logits = 0;
    for (size_t i = 0; i < block->n_outputs; i++) {
        const struct meaning *const m = r->meanings[block->outputs[i]];
        uint32_t state;
        n_logits += !(m && teg_raise_is_present(r, m, &state)) && teg_raise_is_logits(r, vars[block->outputs[i]].name);
    }
    teg_buf_printf(out, "function   %s\n", r->function->name);
    tokens_line(r, out);
    for (size_t i = 0; i < block->n_inputs; i++) {
        const struct teg_mil_var *const v = &vars[block->inputs[i]];
        if (!input_text(r, block->inputs[i]))
            continue;
        teg_buf_printf(out, "input      %s: %s", v->name, input_text(r, block->inputs[i]));
        print_dims(&v->type, out);
        teg_buf_puts(out, "\n");
    }
    write_line(r, out);
    for (uint32_t i = 0; i < r->n_states; i++)
        if (!r->states[i].is_input)
            teg_buf_printf(out, "state      %s: %u caches of keys or values, %lld slots\n", vars[r->states[i].var].name,
                           r->states[i].n_writes, (long long)r->context);
    for (size_t i = 0; i < block->n_outputs; i++) {
        const char *const name = vars[block->outputs[i]].name;
        const struct meaning *const m = r->meanings[block->outputs[i]];
        uint32_t state;
        if (m && teg_raise_is_present(r, m, &state))
            teg_buf_printf(out, "output     %s: the next call's %s\n", name, vars[r->states[state].var].name);
        else if (!teg_raise_is_logits(r, name))
            teg_buf_printf(out, "output     %s: not used\n", name);
        else
            teg_buf_printf(out, "output     %s: logits of %s%s\n", name,
                           m && m->last ? "the last token" : "every token",
                           n_logits > 1 ? ", a part of the vocabulary" : "");
    }
    teg_buf_printf(out, "weights    %u matrices encoded, %u dense\n", r->n_encoded, r->n_dense);
    if (r->table_rows)
        teg_buf_printf(out, "positions  tables %s, %zu rows\n", r->is_learned ? "of learned rows" : "of cos and sin",
                       r->table_rows);
    if (r->rope_base > 0)
        teg_buf_printf(out, "positions  cos and sin are inputs, of base %g\n", (double)r->rope_base);
}

/* ---- how much ---- */

/* Marks what outputs and states need; what nobody needs is not counted. */
static bool *find_live(struct raiser *r)
{
    const struct teg_mil_block *const block = &r->function->block;
    bool *const live = teg_raise_alloc(r, r->program->n_vars + 1, sizeof *live);
    for (size_t i = 0; live && i < block->n_outputs; i++)
        live[block->outputs[i]] = true;
    for (size_t i = block->n_ops; live && i-- > 0;) {
        const struct teg_mil_op *const op = &block->ops[i];
        bool needed = strcmp(op->type, "write_state") == 0 || op->n_blocks > 0;
        for (size_t k = 0; k < op->n_outputs; k++)
            needed = needed || live[op->outputs[k]];
        for (size_t a = 0; a < op->n_args && needed; a++)
            for (size_t k = 0; k < op->args[a].n_vars; k++)
                live[op->args[a].vars[k]] = true;
    }
    return live;
}

static bool is_understood(struct raiser *r, const struct teg_mil_op *op, const bool *live)
{
    if (strcmp(op->type, "write_state") == 0) {
        r->op = op;
        const struct meaning *const data = teg_raise_arg(r, "data");
        r->op = NULL;
        return data && data->kind == UPDATED;
    }
    for (size_t k = 0; k < op->n_outputs; k++)
        if (live[op->outputs[k]] && teg_raise_var(r, op->outputs[k])->kind == NOTHING)
            return false;
    return op->n_blocks == 0;
}

/* Weights are not counted: they are read, not raised. */
static void count_ops(struct raiser *r, struct teg_raise_survey *s)
{
    const struct teg_mil_block *const block = &r->function->block;
    const bool *const live = find_live(r);
    for (size_t i = 0; live && i < block->n_ops; i++) {
        const struct teg_mil_op *const op = &block->ops[i];
        bool needed = strcmp(op->type, "write_state") == 0;
        for (size_t k = 0; k < op->n_outputs; k++)
            needed = needed || live[op->outputs[k]];
        if (!needed || strncmp(op->type, "constexpr_", 10) == 0)
            continue;
        s->n_ops++;
        s->n_understood += is_understood(r, op, live);
    }
}

static void count_composites(const struct teg_graph *g, struct teg_buf *out)
{
    bool first = true;
    for (int kind = 0; kind < TEG_OP_COUNT; kind++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < g->n_ops; i++)
            n += g->ops[i].kind == (enum teg_op_kind)kind;
        if (n)
            teg_buf_printf(out, "%s%u %s", first ? "" : ", ", n, teg_op_name((enum teg_op_kind)kind));
        first = first && n == 0;
    }
}

static enum teg_status find_function(const struct teg_mil_program *program, const char *function,
                                     const struct teg_mil_function **f, struct teg_error *err)
{
    const char *const name = function ? function : program->default_function;
    *f = name ? teg_mil_find_function(program, name) : &program->functions[0];
    if (!*f)
        FAIL(err, TEG_ERR_ARGUMENT,
             "cannot explain: %s: function: expected one of the package's, found %.60s; see `tegula inspect`",
             program->path, name);
    return TEG_OK;
}

enum teg_status teg_raise_look(const struct teg_mil_program *program, const struct teg_raise_options *options,
                               struct teg_raise_survey *survey, struct teg_error *err)
{
    struct raiser r;
    struct teg_arena arena;
    const struct teg_mil_function *f;
    const char *reason = NULL;
    *survey = (struct teg_raise_survey){0};
    TRY(find_function(program, options ? options->function : NULL, &f, err));
    teg_arena_init(&arena, program->arena.allocator);
    teg_raise_start(&r, program, f, options, &arena, err);
    enum teg_status status = teg_raise_function(&r, &reason);
    if (status == TEG_OK)
        count_ops(&r, survey);
    if (status == TEG_OK && reason) {
        teg_buf_puts(&survey->reason, reason);
    } else if (status == TEG_OK) {
        survey->is_model = true;
        teg_raise_contract(&r, &survey->contract);
        count_composites(r.graph, &survey->composites);
        teg_graph_dump(r.graph, &survey->ops);
    }
    status = status == TEG_OK ? r.status : status;
    if (status == TEG_OK && (survey->reason.failed || survey->contract.failed || survey->ops.failed))
        status = teg_base_fail_memory(err, "explanation", 0);
    teg_arena_free(&r.scratch);
    teg_arena_free(&arena);
    if (status != TEG_OK)
        teg_raise_survey_free(survey);
    return status;
}

void teg_raise_survey_free(struct teg_raise_survey *survey)
{
    teg_buf_free(&survey->contract);
    teg_buf_free(&survey->composites);
    teg_buf_free(&survey->ops);
    teg_buf_free(&survey->reason);
}

/* ---- why not ---- */

/* An op that was asked for and has no meaning because an operand has none: whose fault that is. True: it was asked for.
 */
static bool waiting_line(struct raiser *r, const struct teg_mil_op *op, const char *wanted, struct teg_buf *out)
{
    const char *const name = op->n_outputs ? r->program->vars[op->outputs[0]].name : op->type;
    const struct meaning *const m = op->n_outputs ? teg_raise_var(r, op->outputs[0]) : NULL;
    char own[200];
    (void)snprintf(own, sizeof own, "op %.80s (%.60s)", name, op->type);
    if (!strstr(own, wanted))
        return false;
    if (m && m->kind == NOTHING && strncmp(m->why, own, strlen(own)) != 0)
        teg_buf_printf(out, "%s: expected operands with a meaning, found one without: %s\n", own, m->why);
    return true;
}

enum teg_status teg_raise_why_not(const struct teg_mil_program *program, const struct teg_raise_options *options,
                                  const char *op, struct teg_buf *out, struct teg_error *err)
{
    struct raiser r;
    struct teg_arena arena;
    struct teg_buf lines = {0};
    const struct teg_mil_function *f;
    const char *reason = NULL;
    TRY(find_function(program, options ? options->function : NULL, &f, err));
    teg_arena_init(&arena, program->arena.allocator);
    teg_raise_start(&r, program, f, options, &arena, err);
    r.why = &lines;
    const enum teg_status status = teg_raise_function(&r, &reason);
    for (char *line = lines.bytes; line && *line && !lines.failed;) {
        char *const end = strchr(line, '\n');
        *end = '\0';
        if (!op || strstr(line, op))
            teg_buf_printf(out, "%s\n", line);
        line = end + 1;
    }
    bool is_there = !op;
    for (size_t i = 0; op && status == TEG_OK && i < f->block.n_ops; i++)
        is_there = waiting_line(&r, &f->block.ops[i], op, out) || is_there;
    if (status == TEG_OK && !is_there && !out->n_bytes)
        teg_buf_printf(out, "no op has '%.60s' in its name or type\n", op);
    if (status == TEG_OK && reason && !op && (!lines.bytes || !strstr(lines.bytes, reason)))
        teg_buf_printf(out, "%s\n", reason);
    teg_buf_free(&lines);
    teg_arena_free(&r.scratch);
    teg_arena_free(&arena);
    return status;
}
