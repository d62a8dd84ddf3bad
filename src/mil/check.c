/* mil/check.c: what the description promises is what the functions take and give, and state ops fit their states.
 *
 * Names must match exactly, since a caller binds by name. Types must match where both sides say something: a dimension
 * that either leaves open is not compared, an image is a tensor of rank 4 with the channels of its colours, a scalar
 * output is described as one of shape [1]. */
#include "mil/impl.h"

/* ---- features against variables ---- */

static const struct teg_mil_var *find_var(const struct teg_mil_program *p, const teg_mil_var_id *ids, size_t n,
                                          const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (p->vars[ids[i]].name == name) /* both interned */
            return &p->vars[ids[i]];
    return NULL;
}

static bool shape_fits(const struct teg_mil_feature *f, const struct teg_mil_type *type)
{
    if (!f->has_shape || type->rank < 0)
        return true;
    if (type->rank == 0)
        return f->rank == 1 && f->shape[0] == 1;
    if (f->rank != (uint32_t)type->rank)
        return false;
    for (uint32_t d = 0; d < f->rank; d++)
        if (type->dims[d] != TEG_MIL_UNKNOWN && type->dims[d] != f->shape[d])
            return false;
    return true;
}

/* Rank 4, [1, channels, height, width]. */
static bool image_fits(const struct teg_mil_feature *f, const struct teg_mil_type *type)
{
    const int64_t channels = f->colour == TEG_MIL_RGB || f->colour == TEG_MIL_BGR ? 3 : 1;
    const int64_t expected[] = {1, channels, f->height, f->width};
    if (type->rank < 0)
        return true;
    for (int32_t d = 0; d < type->rank && d < 4; d++)
        if (type->dims[d] != TEG_MIL_UNKNOWN && type->dims[d] != expected[d])
            return false;
    return type->rank == 4;
}

static bool feature_fits(const struct teg_mil_feature *f, const struct teg_mil_type *type)
{
    const bool is_number = teg_mil_dtype_info(type->dtype)->class_ != TEG_MIL_CLASS_STRING;
    switch (f->kind) {
    case TEG_MIL_FEATURE_ARRAY:
    case TEG_MIL_FEATURE_STATE:
        return type->kind == (f->kind == TEG_MIL_FEATURE_STATE ? TEG_MIL_STATE : TEG_MIL_TENSOR) &&
               f->dtype == type->dtype && shape_fits(f, type);
    case TEG_MIL_FEATURE_IMAGE:
        return type->kind == TEG_MIL_TENSOR && is_number && image_fits(f, type);
    case TEG_MIL_FEATURE_STRING:
        return type->kind == TEG_MIL_TENSOR && !is_number;
    case TEG_MIL_FEATURE_INT64:
    case TEG_MIL_FEATURE_DOUBLE:
        return type->kind == TEG_MIL_TENSOR && is_number;
    case TEG_MIL_FEATURE_DICT_INT64:
    case TEG_MIL_FEATURE_DICT_STRING:
        return type->kind == TEG_MIL_DICT;
    case TEG_MIL_FEATURE_OTHER:
        break;
    }
    return type->kind != TEG_MIL_STATE;
}

/* One of the three lists of an interface. */
struct features {
    const struct teg_mil_feature *at;
    size_t n;
    const char *what;
    bool unique; /* one value may go out twice */
    bool states;
};

static enum teg_status check_features(struct teg_mil_reader *r, const struct teg_mil_function *function,
                                      const struct features *features, const teg_mil_var_id *ids, size_t n_ids,
                                      const uint8_t *at)
{
    for (size_t i = 0; i < features->n; i++) {
        const struct teg_mil_feature *const f = &features->at[i];
        const struct teg_mil_var *const var = find_var(r->program, ids, n_ids, f->name);
        if (!var)
            MIL_FAIL(
                r, TEG_ERR_FORMAT, at,
                "expected function '%.60s' to have the %s '%.60s' of its description, found none; export the model "
                "again",
                function->name, features->what, f->name);
        if ((f->kind == TEG_MIL_FEATURE_STATE) != features->states || !feature_fits(f, &var->type))
            MIL_FAIL(r, TEG_ERR_FORMAT, at,
                     "expected %s '%.60s' of function '%.60s' to have the type and shape of its description, found "
                     "another; export the model again",
                     features->what, f->name, function->name);
        for (size_t j = 0; features->unique && j < i; j++)
            if (features->at[j].name == f->name)
                MIL_FAIL(r, TEG_ERR_FORMAT, at,
                         "expected one description of %s '%.60s', found two; export the model "
                         "again",
                         features->what, f->name);
    }
    return TEG_OK;
}

/* Every input of the function is described; outputs may be left out. */
static enum teg_status check_described(struct teg_mil_reader *r, const struct teg_mil_function *function,
                                       const struct teg_mil_interface *interface, const uint8_t *at)
{
    const struct teg_mil_block *const block = &function->block;
    /* Each described one was found, once in its list, and none fits both lists. */
    if (block->n_inputs == interface->n_inputs + interface->n_states)
        return TEG_OK;
    for (size_t i = 0; i < block->n_inputs; i++) {
        const char *const name = r->program->vars[block->inputs[i]].name;
        bool found = false;
        for (size_t j = 0; j < interface->n_inputs; j++)
            found = found || interface->inputs[j].name == name;
        for (size_t j = 0; j < interface->n_states; j++)
            found = found || interface->states[j].name == name;
        if (!found)
            MIL_FAIL(r, TEG_ERR_FORMAT, at,
                     "expected a description of input '%.60s' of function '%.60s', found none; export the model again",
                     name, function->name);
    }
    return TEG_OK;
}

/* ---- state ops ---- */

static enum teg_status check_state_op(struct teg_mil_reader *r, const struct teg_mil_op *op, const uint8_t *at)
{
    const bool is_write = strcmp(op->type, "write_state") == 0;
    if (!is_write && strcmp(op->type, "read_state") != 0)
        return TEG_OK;
    const struct teg_mil_program *const p = r->program;
    const struct teg_mil_var *const state = teg_mil_arg_var(p, op, "input");
    const struct teg_mil_var *const value = is_write             ? teg_mil_arg_var(p, op, "data")
                                            : op->n_outputs == 1 ? &p->vars[op->outputs[0]]
                                                                 : NULL;
    if (!state || state->type.kind != TEG_MIL_STATE || !value || op->n_outputs != !is_write)
        MIL_FAIL(r, TEG_ERR_FORMAT, at,
                 "expected op '%.60s' (%s) to have a state as input and one value, found something else; export the "
                 "model again",
                 op->name, op->type);
    struct teg_mil_type inner = state->type;
    inner.kind = TEG_MIL_TENSOR;
    if (!teg_mil_same_type(&inner, &value->type))
        MIL_FAIL(r, TEG_ERR_FORMAT, at,
                 "expected op '%.60s' (%s) to move exactly the type of state '%.60s', found another; export the model "
                 "again",
                 op->name, op->type, state->name);
    return TEG_OK;
}

/* ---- control flow ---- */

/* cond: two blocks without inputs that give what the op gives. while_loop: a test with one output and a body, both of
 * which take what loop_vars binds; the body gives it back, and so does the op. */
static enum teg_status check_flow(struct teg_mil_reader *r, const struct teg_mil_op *op, const uint8_t *at)
{
    const bool is_cond = strcmp(op->type, "cond") == 0, is_loop = strcmp(op->type, "while_loop") == 0;
    const struct teg_mil_arg *const loop_vars = teg_mil_find_arg(op, "loop_vars");
    const size_t n_in = is_loop && loop_vars ? loop_vars->n_vars : 0;
    if (!is_cond && !is_loop)
        return TEG_OK;
    bool fits = op->n_blocks == 2 && (is_cond || (loop_vars && n_in == op->n_outputs));
    for (size_t i = 0; fits && i < 2; i++) {
        const size_t n_out = is_loop && i == 0 ? 1 : op->n_outputs;
        fits = op->blocks[i].n_inputs == n_in && op->blocks[i].n_outputs == n_out;
    }
    if (!fits)
        MIL_FAIL(r, TEG_ERR_FORMAT, at,
                 "expected op '%.60s' (%s) to have two blocks with its inputs and outputs, found others; export the "
                 "model again",
                 op->name, op->type);
    return TEG_OK;
}

/* Blocks nest TEG_MIL_MAX_BLOCK_DEPTH deep at most. */
static enum teg_status check_block(struct teg_mil_reader *r, const struct teg_mil_block *block, const uint8_t *at)
{
    for (size_t i = 0; i < block->n_ops; i++) {
        TRY(check_state_op(r, &block->ops[i], at));
        TRY(check_flow(r, &block->ops[i], at));
        for (size_t j = 0; j < block->ops[i].n_blocks; j++)
            TRY(check_block(r, &block->ops[i].blocks[j], at));
    }
    return TEG_OK;
}

static enum teg_status check_states(struct teg_mil_reader *r, const struct teg_mil_function *function,
                                    const uint8_t *at)
{
    for (size_t i = 0; i < function->block.n_inputs; i++) {
        const struct teg_mil_var *const var = &r->program->vars[function->block.inputs[i]];
        size_t n;
        bool is_open = var->type.rank < 0;
        for (int32_t d = 0; d < var->type.rank; d++)
            is_open = is_open || var->type.dims[d] < 0;
        if (var->type.kind == TEG_MIL_STATE && !teg_mil_count(&var->type, &n))
            MIL_FAIL(
                r, TEG_ERR_FORMAT, at,
                "expected state '%.60s' to have a constant shape that can be addressed, found %s; export the model "
                "again",
                var->name, is_open ? "an open one" : "a larger one");
    }
    return TEG_OK;
}

/* ---- order ---- */

/* Protobuf's and MIL text's inputs have no order that means anything; the description's is the one people see. */
static enum teg_status order_inputs(struct teg_mil_reader *r, struct teg_mil_block *block,
                                    const struct teg_mil_interface *interface)
{
    const size_t n = interface->n_inputs + interface->n_states;
    teg_mil_var_id *const ids = teg_arena_array(r->arena, n, sizeof *ids);
    if (!ids)
        return teg_mil_no_memory(r, n * sizeof *ids);
    for (size_t i = 0; i < n; i++) {
        const bool is_state = i >= interface->n_inputs;
        const char *const name = is_state ? interface->states[i - interface->n_inputs].name : interface->inputs[i].name;
        ids[i] = (teg_mil_var_id)(find_var(r->program, block->inputs, block->n_inputs, name) - r->program->vars);
    }
    block->inputs = ids;
    return TEG_OK;
}

/* ---- all ---- */

/* A hostile interface would make the searches quadratic; real ones have tens of features. */
enum { MOST_FEATURES = 4096 };

enum teg_status teg_mil_check(struct teg_mil_reader *r, const uint8_t *at)
{
    struct teg_mil_program *const p = r->program;
    for (size_t i = 0; i < p->n_functions; i++) {
        struct teg_mil_function *const function = &p->functions[i];
        const struct teg_mil_block *const block = &function->block;
        const struct teg_mil_interface *const in = &p->interfaces[i];
        const struct features inputs = {in->inputs, in->n_inputs, "input", true, false};
        const struct features states = {in->states, in->n_states, "state", true, true};
        const struct features outputs = {in->outputs, in->n_outputs, "output", false, false};
        if (in->n_inputs > MOST_FEATURES || in->n_outputs > MOST_FEATURES || in->n_states > MOST_FEATURES ||
            block->n_inputs > MOST_FEATURES || block->n_outputs > MOST_FEATURES)
            MIL_FAIL(r, TEG_ERR_UNSUPPORTED, at, "expected at most %d inputs and outputs, found more; split the model",
                     MOST_FEATURES);
        TRY(check_features(r, function, &inputs, block->inputs, block->n_inputs, at));
        TRY(check_features(r, function, &states, block->inputs, block->n_inputs, at));
        TRY(check_features(r, function, &outputs, block->outputs, block->n_outputs, at));
        TRY(check_described(r, function, in, at));
        TRY(order_inputs(r, &function->block, in));
        TRY(check_states(r, function, at));
        TRY(check_block(r, block, at));
    }
    return TEG_OK;
}
