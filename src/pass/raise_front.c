/* pass/raise_front.c: a function that makes another one's inputs from token ids and positions.
 *
 * Programs for the Neural Engine keep what needs integers (the embedding, masks, tables of RoPE) apart, in a function
 * whose outputs a caller hands on by name. Read one after the other, with the number of tokens that the second has, the
 * two are a language model; alone, neither is. */
#include "pass/raise_int.h"

static bool is_number(const struct teg_mil_type *type, enum teg_mil_class class_)
{
    return type->kind == TEG_MIL_TENSOR && teg_mil_dtype_info(type->dtype)->class_ == class_;
}

static teg_mil_var_id find_output(const struct teg_mil_program *p, const struct teg_mil_function *f, const char *name)
{
    for (size_t i = 0; i < f->block.n_outputs; i++)
        if (strcmp(p->vars[f->block.outputs[i]].name, name) == 0)
            return f->block.outputs[i];
    return TEG_MIL_NO_VAR;
}

/* All inputs of `f` that are no whole numbers and no states come from `front`, which has whole numbers only. */
static bool makes_inputs(const struct teg_mil_program *p, const struct teg_mil_function *front,
                         const struct teg_mil_function *f)
{
    size_t n = 0;
    for (size_t i = 0; i < front->block.n_inputs; i++)
        if (!is_number(&p->vars[front->block.inputs[i]].type, TEG_MIL_CLASS_INT))
            return false;
    for (size_t i = 0; i < f->block.n_inputs; i++) {
        const struct teg_mil_var *const v = &p->vars[f->block.inputs[i]];
        if (!is_number(&v->type, TEG_MIL_CLASS_FLOAT))
            continue;
        const teg_mil_var_id from = find_output(p, front, v->name);
        if (from == TEG_MIL_NO_VAR || p->vars[from].type.rank != v->type.rank)
            return false;
        n++;
    }
    return n > 0;
}

/* T: what an output leaves open is a number in the input of that name. */
static struct amount count_tokens(const struct raiser *r, const struct teg_mil_function *front)
{
    for (size_t i = 0; i < r->function->block.n_inputs; i++) {
        const struct teg_mil_var *const v = &r->program->vars[r->function->block.inputs[i]];
        const teg_mil_var_id from =
            v->type.kind == TEG_MIL_TENSOR ? find_output(r->program, front, v->name) : TEG_MIL_NO_VAR;
        if (from == TEG_MIL_NO_VAR)
            continue;
        const struct teg_mil_type *const made = &r->program->vars[from].type;
        for (int32_t d = 0; d < made->rank && d < v->type.rank; d++)
            if (made->dims[d] == TEG_MIL_UNKNOWN && v->type.dims[d] > 0)
                return teg_amount(v->type.dims[d]);
    }
    return teg_amount(0);
}

/* Ids and positions [1, T]. */
static bool read_ints(struct raiser *r)
{
    for (size_t i = 0; i < r->front->block.n_inputs; i++) {
        const teg_mil_var_id id = r->front->block.inputs[i];
        const struct teg_mil_type *const type = &r->program->vars[id].type;
        const bool is_position = strstr(r->program->vars[id].name, "pos") != NULL;
        struct meaning m = {.kind = is_position ? POSITIONS : TOKENS, .weight = TEG_MIL_NO_VAR, .bias = TEG_MIL_NO_VAR};
        const struct factor tokens = {AXIS_TOKENS, r->tokens, 0};
        uint32_t n_open = 0;
        for (int32_t d = 0; d < type->rank; d++) {
            const bool open = type->dims[d] == TEG_MIL_UNKNOWN;
            if (!teg_view_add_dim(&m.view, &tokens, open) || (!open && type->dims[d] != 1))
                return false;
            n_open += open;
        }
        if (n_open != 1 || (!is_position && r->tokens_var != TEG_MIL_NO_VAR))
            return false;
        if (!is_position)
            r->tokens_var = id;
        teg_raise_define(r, id, &m);
    }
    return r->tokens_var != TEG_MIL_NO_VAR;
}

void teg_raise_read_front(struct raiser *r)
{
    const struct teg_mil_function *const function = r->function;
    for (size_t i = 0; i < r->program->n_functions && !r->front; i++)
        if (&r->program->functions[i] != function && makes_inputs(r->program, &r->program->functions[i], function))
            r->front = &r->program->functions[i];
    if (!r->front)
        return;
    r->tokens = count_tokens(r, r->front);
    if (r->tokens.n < 1 || r->tokens.n > INT32_MAX || !read_ints(r)) {
        r->front = NULL;
        r->tokens_var = TEG_MIL_NO_VAR;
        return;
    }
    r->function = r->front;
    for (size_t i = 0; i < r->front->block.n_ops && r->status == TEG_OK; i++)
        teg_raise_read_op(r, &r->front->block.ops[i]);
    r->function = function;
    for (size_t i = 0; i < function->block.n_inputs && r->status == TEG_OK; i++) {
        const struct teg_mil_var *const v = &r->program->vars[function->block.inputs[i]];
        const teg_mil_var_id from =
            is_number(&v->type, TEG_MIL_CLASS_FLOAT) ? find_output(r->program, r->front, v->name) : TEG_MIL_NO_VAR;
        if (from != TEG_MIL_NO_VAR)
            teg_raise_define(r, function->block.inputs[i], teg_raise_var(r, from));
    }
}
