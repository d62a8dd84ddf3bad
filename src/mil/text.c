/* mil/text.c: MIL text, as in the model.mil of an .mlmodelc, into a program.
 *
 *   program(1.0) [attributes] { function … }
 *   function    func name<ios16>(type name, …) [attributes] { statement … } -> (name, …);
 *   statement   type name, … = op(arg, …) [name = …, …] block … ;       (no "type name, … =" where there are no
 * outputs) arg         name = variable | literal | (variable or literal, …) block       name(type name, …) { statement
 * … } -> (name, …)         (name, inputs and commas between are optional)
 *
 * How Apple's compiler writes nested blocks is not known from a file; the form above is a guess that takes every
 * variation it can. Attributes of program and functions (build information, flexible shapes) say nothing that the model
 * description does not, so they are skipped. */
#include "mil/text.h"

#include "base/check.h"

/* ---- args ---- */

static enum teg_status read_binding(struct teg_mil_text *t, teg_mil_var_id *id)
{
    const uint8_t *const begin = (teg_mil_text_peek(t), t->at);
    struct teg_span word;
    TRY(teg_mil_text_word(t, "a variable or a value", &word));
    const uint8_t next = teg_mil_text_peek(t);
    if (next != '<' && next != '(')
        return teg_mil_use(t->r, word, id);
    t->at = begin;
    struct teg_mil_const *const value = teg_arena_array(t->r->arena, 1, sizeof *value);
    if (!value)
        return teg_mil_no_memory(t->r, sizeof *value);
    TRY(teg_mil_text_literal(t, 1, value));
    return teg_mil_inline(t->r, value, id);
}

static enum teg_status read_bindings(struct teg_mil_text *t, size_t *n)
{
    const bool is_tuple = teg_mil_text_accept(t, '(');
    *n = 0;
    if (is_tuple && teg_mil_text_accept(t, ')'))
        return TEG_OK;
    do {
        void *vars = t->vars;
        if (!teg_mil_grow(t->r->arena, &vars, *n, &t->vars_capacity, sizeof *t->vars))
            return teg_mil_no_memory(t->r, *n * sizeof *t->vars);
        t->vars = vars;
        TRY(read_binding(t, &t->vars[(*n)++]));
    } while (is_tuple && teg_mil_text_accept(t, ','));
    return is_tuple ? teg_mil_text_expect(t, ")") : TEG_OK;
}

static void *copy(struct teg_mil_text *t, const void *items, size_t n, size_t item_bytes)
{
    void *const to = teg_arena_array(t->r->arena, n, item_bytes);
    if (to && n)
        memcpy(to, items, n * item_bytes);
    return to;
}

static enum teg_status append_arg(struct teg_mil_text *t, struct teg_span name, size_t n_vars, struct teg_mil_op *op)
{
    void *args = t->args;
    if (!teg_mil_grow(t->r->arena, &args, op->n_args, &t->args_capacity, sizeof *t->args))
        return teg_mil_no_memory(t->r, op->n_args * sizeof *t->args);
    t->args = args;
    struct teg_mil_arg *const arg = &t->args[op->n_args++];
    TRY(teg_mil_intern(t->r, name, "the name of a parameter", &arg->name));
    arg->vars = copy(t, t->vars, n_vars, sizeof *t->vars);
    arg->n_vars = n_vars;
    return arg->vars ? TEG_OK : teg_mil_no_memory(t->r, n_vars * sizeof *t->vars);
}

/* The name attribute becomes the op's name. */
static bool take_name(struct teg_mil_text *t, struct teg_span word, size_t n_vars, struct teg_mil_op *op,
                      enum teg_status *status)
{
    if (word.n_bytes != 4 || memcmp(word.bytes, "name", 4) != 0 || n_vars != 1)
        return false;
    const struct teg_mil_const *const value = t->r->program->vars[t->vars[0]].constant;
    if (!value || !value->strings || value->type.rank)
        return false;
    const struct teg_span name = {(const uint8_t *)value->strings->bytes, value->strings->n_bytes};
    *status = name.n_bytes ? teg_mil_intern(t->r, name, "the name of an op", &op->name) : TEG_OK;
    t->r->program->n_vars--; /* the literal's, the newest: nobody else has it */
    return true;
}

/* name = value, … up to `closer`. Args and attributes differ in their brackets only. */
static enum teg_status read_args(struct teg_mil_text *t, char closer, struct teg_mil_op *op)
{
    if (teg_mil_text_accept(t, closer))
        return TEG_OK;
    do {
        struct teg_span name;
        size_t n = 0;
        enum teg_status status = TEG_OK;
        TRY(teg_mil_text_word(t, "the name of a parameter", &name));
        TRY(teg_mil_text_expect(t, "="));
        TRY(read_bindings(t, &n));
        if (closer != ']' || !take_name(t, name, n, op, &status))
            status = append_arg(t, name, n, op);
        TRY(status);
    } while (teg_mil_text_accept(t, ','));
    return teg_mil_text_accept(t, closer) ? TEG_OK : teg_mil_text_wrong(t, "',' or the end of the parameters");
}

/* ---- statements ---- */

struct output {
    struct teg_span name;
    struct teg_mil_type type;
};
struct outputs {
    struct output *at;
    size_t n, capacity;
};

/* type name, … : outputs of an op, inputs of a function or block. */
static enum teg_status read_typed_names(struct teg_mil_text *t, struct outputs *outputs)
{
    do {
        void *at = outputs->at;
        if (!teg_mil_grow(t->r->arena, &at, outputs->n, &outputs->capacity, sizeof *outputs->at))
            return teg_mil_no_memory(t->r, outputs->n * sizeof *outputs->at);
        outputs->at = at;
        struct output *const o = &outputs->at[outputs->n++];
        TRY(teg_mil_text_type(t, 1, &o->type));
        TRY(teg_mil_text_word(t, "the name of a variable", &o->name));
    } while (teg_mil_text_accept(t, ','));
    return TEG_OK;
}

static enum teg_status define_all(struct teg_mil_text *t, const struct outputs *outputs, uint32_t op,
                                  const teg_mil_var_id **out)
{
    teg_mil_var_id *const ids = teg_arena_array(t->r->arena, outputs->n, sizeof *ids);
    if (!ids)
        return teg_mil_no_memory(t->r, outputs->n * sizeof *ids);
    for (size_t i = 0; i < outputs->n; i++)
        TRY(teg_mil_define(t->r, outputs->at[i].name, &outputs->at[i].type, op, &ids[i]));
    *out = ids;
    return TEG_OK;
}

static enum teg_status value_of_const(struct teg_mil_text *t, const struct outputs *outputs,
                                      const struct teg_mil_op *op, const uint8_t *at, const struct teg_mil_const **out)
{
    const struct teg_mil_const *value = NULL;
    for (size_t i = 0; i < op->n_args; i++)
        if (strcmp(t->args[i].name, "val") == 0 && t->args[i].n_vars == 1)
            value = t->r->program->vars[t->args[i].vars[0]].constant;
    if (!value || outputs->n != 1)
        MIL_FAIL(t->r, TEG_ERR_FORMAT, at,
                 "expected a const to have a val and one output, found %s and %zu; export the model again",
                 value ? "one" : "none", outputs->n);
    *out = value;
    return TEG_OK;
}

static enum teg_status read_block(struct teg_mil_text *t, int depth, struct teg_mil_block *block);

/* Where an op without semicolon goes on: name ( or ( or {. */
static bool begins_block(struct teg_mil_text *t)
{
    const uint8_t c = teg_mil_text_peek(t);
    return c == '{' || c == '(' || (c && c != ';' && c != '[');
}

static enum teg_status read_blocks(struct teg_mil_text *t, int depth, struct teg_mil_op *op)
{
    struct teg_mil_block *blocks = NULL;
    size_t capacity = 0;
    while (begins_block(t)) {
        struct teg_span ignored;
        struct outputs inputs = {0};
        void *grown = blocks;
        if (!teg_mil_grow(t->r->arena, &grown, op->n_blocks, &capacity, sizeof *blocks))
            return teg_mil_no_memory(t->r, op->n_blocks * sizeof *blocks);
        blocks = grown;
        struct teg_mil_block *const block = &blocks[op->n_blocks];
        const uint8_t c = teg_mil_text_peek(t);
        if (c != '(' && c != '{')
            TRY(teg_mil_text_word(t, "';' or a nested block", &ignored));
        if (teg_mil_text_accept(t, '(') && !teg_mil_text_accept(t, ')')) {
            TRY(read_typed_names(t, &inputs));
            TRY(teg_mil_text_expect(t, ")"));
        }
        if (teg_mil_text_peek(t) == '[')
            TRY(teg_mil_text_skip(t));
        const size_t mark = teg_mil_names_enter(&t->r->names);
        block->n_inputs = inputs.n;
        TRY(define_all(t, &inputs, UINT32_MAX, &block->inputs));
        TRY(read_block(t, depth + 1, block));
        teg_mil_names_leave(&t->r->names, mark);
        op->n_blocks++;
        (void)teg_mil_text_accept(t, ',');
    }
    op->blocks = blocks;
    return TEG_OK;
}

static enum teg_status append_op(struct teg_mil_text *t, const struct teg_mil_op *op, struct teg_mil_block *block,
                                 size_t *capacity)
{
    void *ops = (void *)(uintptr_t)block->ops;
    if (block->n_ops >= UINT32_MAX - 1 || !teg_mil_grow(t->r->arena, &ops, block->n_ops, capacity, sizeof *op))
        return teg_mil_no_memory(t->r, block->n_ops * sizeof *op);
    ((struct teg_mil_op *)ops)[block->n_ops++] = *op;
    block->ops = ops;
    return TEG_OK;
}

/* op ( args ) [ attributes ] blocks [ attributes ] ; */
static enum teg_status read_call(struct teg_mil_text *t, int depth, const struct outputs *outputs,
                                 struct teg_mil_block *block, size_t *capacity)
{
    struct teg_mil_op op = {.name = ""};
    struct teg_span type;
    const uint8_t *const at = t->at;
    const size_t n_vars = t->r->program->n_vars;
    TRY(teg_mil_text_word(t, "an op", &type));
    TRY(teg_mil_intern(t->r, type, "an op type", &op.type));
    TRY(teg_mil_text_expect(t, "("));
    TRY(read_args(t, ')', &op));
    if (teg_mil_text_accept(t, '['))
        TRY(read_args(t, ']', &op));
    if (strcmp(op.type, "const") == 0) {
        const struct teg_mil_const *value = NULL;
        TRY(value_of_const(t, outputs, &op, at, &value));
        t->r->program->n_vars = n_vars; /* those of its literals */
        TRY(teg_mil_define_const(t->r, outputs->at[0].name, &outputs->at[0].type, value));
        return teg_mil_text_expect(t, ";");
    }
    struct teg_mil_arg *const args = copy(t, t->args, op.n_args, sizeof *args);
    if (!args)
        return teg_mil_no_memory(t->r, op.n_args * sizeof *args);
    TRY(read_blocks(t, depth, &op));
    if (teg_mil_text_peek(t) == '[') /* a name after the blocks */
        TRY(teg_mil_text_skip(t));
    TRY(teg_mil_text_expect(t, ";"));
    TRY(teg_mil_seal_op(t->r, &op, args, at));
    op.n_outputs = outputs->n;
    TRY(define_all(t, outputs, (uint32_t)block->n_ops, &op.outputs));
    return append_op(t, &op, block, capacity);
}

static enum teg_status read_statement(struct teg_mil_text *t, int depth, struct teg_mil_block *block, size_t *capacity)
{
    const uint8_t *const begin = (teg_mil_text_peek(t), t->at);
    struct outputs outputs = {0};
    struct teg_span word;
    TRY(teg_mil_text_word(t, "a statement or '}'", &word));
    const bool has_outputs = teg_mil_text_peek(t) != '(';
    t->at = begin;
    if (has_outputs) {
        TRY(read_typed_names(t, &outputs));
        TRY(teg_mil_text_expect(t, "="));
        (void)teg_mil_text_peek(t); /* the op's position is that of its type */
    }
    return read_call(t, depth, &outputs, block, capacity);
}

/* { statement … } -> ( name, … ), in a scope that the caller opened */
static enum teg_status read_block(struct teg_mil_text *t, int depth, struct teg_mil_block *block)
{
    size_t ops_capacity = 0, n = 0;
    if (depth > TEG_MIL_MAX_BLOCK_DEPTH)
        return teg_mil_text_wrong(t, "blocks at most 32 deep");
    TRY(teg_mil_text_expect(t, "{"));
    while (!teg_mil_text_accept(t, '}'))
        TRY(read_statement(t, depth, block, &ops_capacity));
    TRY(teg_mil_text_expect(t, "->"));
    if (teg_mil_text_peek(t) != '(')
        return teg_mil_text_wrong(t, "'('");
    TRY(read_bindings(t, &n));
    block->outputs = copy(t, t->vars, n, sizeof *t->vars);
    block->n_outputs = n;
    return block->outputs ? TEG_OK : teg_mil_no_memory(t->r, n * sizeof *t->vars);
}

/* ---- functions and program ---- */

static enum teg_status read_function(struct teg_mil_text *t, struct teg_mil_function *function)
{
    struct teg_span name, tag;
    struct outputs inputs = {0};
    TRY(teg_mil_text_word(t, "the name of a function", &name));
    TRY(teg_mil_intern(t->r, name, "the name of a function", &function->name));
    TRY(teg_mil_text_expect(t, "<"));
    TRY(teg_mil_text_word(t, "an opset", &tag));
    TRY(teg_mil_opset(t->r, tag, true, &function->opset, &function->opset_name));
    TRY(teg_mil_text_expect(t, ">"));
    TRY(teg_mil_text_expect(t, "("));
    if (!teg_mil_text_accept(t, ')')) {
        TRY(read_typed_names(t, &inputs));
        TRY(teg_mil_text_expect(t, ")"));
    }
    if (teg_mil_text_peek(t) == '[')
        TRY(teg_mil_text_skip(t));
    const size_t mark = teg_mil_names_enter(&t->r->names);
    function->block.n_inputs = inputs.n;
    TRY(define_all(t, &inputs, UINT32_MAX, &function->block.inputs));
    TRY(read_block(t, 0, &function->block));
    teg_mil_names_leave(&t->r->names, mark);
    return teg_mil_text_expect(t, ";");
}

static enum teg_status read_functions(struct teg_mil_text *t)
{
    struct teg_mil_program *const p = t->r->program;
    size_t capacity = 0;
    while (!teg_mil_text_accept(t, '}')) {
        void *functions = p->functions;
        TRY(teg_mil_text_expect(t, "func"));
        if (!teg_mil_grow(t->r->arena, &functions, p->n_functions, &capacity, sizeof *p->functions))
            return teg_mil_no_memory(t->r, p->n_functions * sizeof *p->functions);
        p->functions = functions;
        TRY(read_function(t, &p->functions[p->n_functions]));
        p->n_functions++;
    }
    return TEG_OK;
}

enum teg_status teg_mil_read_text(struct teg_mil_reader *r, struct teg_span text)
{
    if (!text.n_bytes)
        MIL_FAIL(r, TEG_ERR_FORMAT, text.bytes, "expected MIL text, found an empty file; compile the model again");
    struct teg_mil_text t = {.r = r, .at = text.bytes, .end = text.bytes + text.n_bytes};
    TRY(teg_mil_text_expect(&t, "program"));
    TRY(teg_mil_text_expect(&t, "("));
    if (teg_mil_text_peek(&t) != '1')
        MIL_FAIL(r, TEG_ERR_UNSUPPORTED, t.at, "expected MIL text version 1.x, found another; update tegula");
    while (t.at < t.end && (*t.at == '.' || (*t.at >= '0' && *t.at <= '9')))
        t.at++;
    TRY(teg_mil_text_expect(&t, ")"));
    if (teg_mil_text_peek(&t) == '[')
        TRY(teg_mil_text_skip(&t));
    TRY(teg_mil_text_expect(&t, "{"));
    TRY(read_functions(&t));
    if (teg_mil_text_peek(&t) || t.at < t.end)
        return teg_mil_text_wrong(&t, "the end of the program");
    return teg_mil_seal_functions(r, text.bytes);
}
