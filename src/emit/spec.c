/* emit/spec.c: the Model message and the program in it, as mil/spec.c reads them.
 *
 *   Model      1 specificationVersion   2 description   502 mlProgram
 *   Program    1 version   2 functions {1 key, 2 Function}
 *   Function   1 inputs   2 opset   3 block_specializations {1 key, 2 Block}
 *   Block      1 inputs   2 outputs   3 operations
 *   Operation  1 type   2 inputs {1 key, 2 Argument}   3 outputs   4 blocks   5 attributes {1 key, 2 Value}
 *   Argument   1 arguments {1 name | 2 value}           NamedValueType  1 name, 2 type
 *
 * Maps are written in one order: functions and parameters by name, so that equal programs are equal files. Opsets up to
 * CoreML7 have the parameters of constexpr ops as attributes. */
#include "emit/emit_int.h"

/* A function that is being written: which constants come next. */
struct cursor {
    const struct teg_mil_function *function;
    const struct teg_emit_function *places;
    size_t at;           /* of places: all of blocks before `block` are behind it */
    uint32_t next_block; /* number of the block that begins next */
};

static enum teg_status put_named_type(struct teg_emitter *e, struct teg_wire_out *w, uint32_t field,
                                      const struct teg_mil_var *var)
{
    teg_wire_out_begin(w, field);
    teg_wire_out_text(w, 1, var->name);
    TRY(teg_emit_type(e, w, 2, &var->type));
    teg_wire_out_end(w);
    return TEG_OK;
}

static void put_name_attribute(struct teg_wire_out *w, const char *name)
{
    if (!name[0])
        return;
    teg_wire_out_begin(w, 5);
    teg_wire_out_text(w, 1, "name");
    teg_emit_string_value(w, 2, name);
    teg_wire_out_end(w);
}

/* ---- operations ---- */

static enum teg_status put_const(struct teg_emitter *e, struct teg_wire_out *w, teg_mil_var_id id)
{
    const struct teg_mil_var *const var = &e->program->vars[id];
    teg_wire_out_begin(w, 3);
    teg_wire_out_text(w, 1, "const");
    TRY(put_named_type(e, w, 3, var));
    put_name_attribute(w, var->name);
    teg_wire_out_begin(w, 5);
    teg_wire_out_text(w, 1, "val");
    TRY(teg_emit_value(e, w, 2, var->constant, e->records[id]));
    teg_wire_out_end(w);
    teg_wire_out_end(w);
    return TEG_OK;
}

static enum teg_status put_input(struct teg_emitter *e, struct teg_wire_out *w, const struct teg_mil_arg *arg)
{
    teg_wire_out_begin(w, 2);
    teg_wire_out_text(w, 1, arg->name);
    teg_wire_out_begin(w, 2);
    for (size_t i = 0; i < arg->n_vars; i++) {
        const struct teg_mil_var *const var = &e->program->vars[arg->vars[i]];
        teg_wire_out_begin(w, 1);
        if (var->constant && !var->name[0])
            TRY(teg_emit_value(e, w, 2, var->constant, e->records[arg->vars[i]]));
        else
            teg_wire_out_text(w, 1, var->name);
        teg_wire_out_end(w);
    }
    teg_wire_out_end(w);
    teg_wire_out_end(w);
    return TEG_OK;
}

static enum teg_status put_attribute(struct teg_emitter *e, struct teg_wire_out *w, const struct teg_mil_op *op,
                                     const struct teg_mil_arg *arg)
{
    const struct teg_mil_const *const value = arg->n_vars == 1 ? e->program->vars[arg->vars[0]].constant : NULL;
    if (!value)
        EMIT_FAIL(e, TEG_ERR_UNSUPPORTED,
                  "expected parameter '%.40s' of op '%.60s' to be a constant up to opset 8, found another; choose "
                  "--target iOS18",
                  arg->name, op->name);
    teg_wire_out_begin(w, 5);
    teg_wire_out_text(w, 1, arg->name);
    TRY(teg_emit_value(e, w, 2, value, e->records[arg->vars[0]]));
    teg_wire_out_end(w);
    return TEG_OK;
}

static enum teg_status put_block(struct teg_emitter *e, struct teg_wire_out *w, uint32_t field, struct cursor *c,
                                 const struct teg_mil_block *block);

static enum teg_status put_op(struct teg_emitter *e, struct teg_wire_out *w, struct cursor *c,
                              const struct teg_mil_op *op)
{
    const bool in_attributes = c->function->opset < 9 && strncmp(op->type, "constexpr_", 10) == 0;
    teg_wire_out_begin(w, 3);
    teg_wire_out_text(w, 1, op->type);
    for (size_t i = 0; i < op->n_args && !in_attributes; i++)
        TRY(put_input(e, w, &op->args[i]));
    for (size_t i = 0; i < op->n_outputs; i++)
        TRY(put_named_type(e, w, 3, &e->program->vars[op->outputs[i]]));
    for (size_t i = 0; i < op->n_blocks; i++)
        TRY(put_block(e, w, 4, c, &op->blocks[i]));
    put_name_attribute(w, op->name);
    for (size_t i = 0; i < op->n_args && in_attributes; i++)
        TRY(put_attribute(e, w, op, &op->args[i]));
    teg_wire_out_end(w);
    return TEG_OK;
}

/* ---- blocks and functions ---- */

/* First place of a block, by halving: blocks nest, so their constants are not behind each other while writing. */
static size_t first_place(const struct teg_emit_function *f, uint32_t block)
{
    size_t begin = 0, end = f->n_places;
    while (begin < end) {
        const size_t middle = begin + (end - begin) / 2;
        if (f->places[middle].block < block)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

static enum teg_status put_constants(struct teg_emitter *e, struct teg_wire_out *w, const struct cursor *c,
                                     uint32_t block, size_t *at, size_t op)
{
    const struct teg_emit_function *const f = c->places;
    for (; *at < f->n_places && f->places[*at].block == block && f->places[*at].op == op; ++*at)
        if (f->places[*at].needs_op)
            TRY(put_const(e, w, f->places[*at].var));
    return TEG_OK;
}

static enum teg_status put_block(struct teg_emitter *e, struct teg_wire_out *w, uint32_t field, struct cursor *c,
                                 const struct teg_mil_block *block)
{
    const uint32_t number = c->next_block++;
    size_t at = first_place(c->places, number);
    teg_wire_out_begin(w, field);
    for (size_t i = 0; number && i < block->n_inputs; i++) /* a function's stand in the function */
        TRY(put_named_type(e, w, 1, &e->program->vars[block->inputs[i]]));
    for (size_t i = 0; i < block->n_outputs; i++)
        teg_wire_out_text(w, 2, e->program->vars[block->outputs[i]].name);
    for (size_t i = 0; i < block->n_ops; i++) {
        TRY(put_constants(e, w, c, number, &at, i));
        TRY(put_op(e, w, c, &block->ops[i]));
    }
    TRY(put_constants(e, w, c, number, &at, block->n_ops));
    teg_wire_out_end(w);
    return TEG_OK;
}

static enum teg_status put_function(struct teg_emitter *e, struct teg_wire_out *w, size_t index)
{
    const struct teg_mil_function *const f = &e->program->functions[index];
    struct cursor c = {.function = f, .places = &e->functions[index]};
    teg_wire_out_begin(w, 2);
    teg_wire_out_text(w, 1, f->name);
    teg_wire_out_begin(w, 2);
    for (size_t i = 0; i < f->block.n_inputs; i++)
        TRY(put_named_type(e, w, 1, &e->program->vars[f->block.inputs[i]]));
    teg_wire_out_text(w, 2, f->opset_name);
    teg_wire_out_begin(w, 3);
    teg_wire_out_text(w, 1, f->opset_name);
    TRY(put_block(e, w, 2, &c, &f->block));
    for (int i = 0; i < 3; i++)
        teg_wire_out_end(w);
    return TEG_OK;
}

enum teg_status teg_emit_model(struct teg_emitter *e, struct teg_wire_out *w)
{
    teg_wire_out_uint(w, 1, e->program->spec_version);
    teg_emit_description(e, w, 2);
    teg_wire_out_begin(w, 502);
    teg_wire_out_uint(w, 1, 1);
    for (size_t i = 0; i < e->program->n_functions; i++)
        TRY(put_function(e, w, i));
    teg_wire_out_end(w);
    return TEG_OK;
}
