/* mil/join.c: copies the ops of stages behind each other, with every variable renumbered.
 *
 * Invariant: a stage's variables are a range of the joined table, in their old order, so the new number of one is base
 * + old, but for inputs that another stage gives: those are that stage's variable, or the result of the cast between.
 * Parts stay alive and lend their names, constants and weight files. A function that two joints use is copied twice. */
#include "mil/join.h"

#include "base/check.h"
#include "mil/impl.h"

struct joiner {
    struct teg_mil_program *program;
    struct teg_error *err;
    const struct teg_mil_joint *joint;
    struct teg_mil_function *function; /* being made */
    struct teg_mil_interface *interface;
    teg_mil_var_id *inputs;
    struct teg_mil_op *ops;
    struct teg_mil_feature *features; /* of its inputs, then of its states */
    struct teg_mil_feature *states;
    teg_mil_var_id **maps; /* by stage: old variable to new */
};

static enum teg_status no_memory(const struct joiner *j)
{
    return teg_base_fail_memory(j->err, "joining of programs", sizeof *j);
}

static const struct teg_mil_program *part_of(const struct joiner *j, const struct teg_mil_stage *s)
{
    return j->program->parts[s->program];
}

static const struct teg_mil_function *function_of(const struct joiner *j, const struct teg_mil_stage *s)
{
    return &part_of(j, s)->functions[s->function];
}

/* ---- sizes ---- */

/* The most that stands on a wire: clip, round, reverse and cast, with their parameters. */
enum { MOST_OPS_BETWEEN = 4, MOST_VARS_BETWEEN = 8 };

/* Room for all variables: those of each stage, and of each wire. */
static bool count_vars(const struct teg_mil_program *p, const struct teg_mil_joint *joints, size_t n, size_t *n_vars)
{
    *n_vars = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t s = 0; s < joints[i].n_stages; s++) {
            const struct teg_mil_program *const part = p->parts[joints[i].stages[s].program];
            const size_t n_inputs = part->functions[joints[i].stages[s].function].block.n_inputs;
            if (!teg_add(*n_vars, part->n_vars + MOST_VARS_BETWEEN * n_inputs, n_vars) || *n_vars >= UINT32_MAX / 2)
                return false;
        }
    return true;
}

/* ---- variables ---- */

static teg_mil_var_id add_var(struct joiner *j, const struct teg_mil_var *v)
{
    j->program->vars[j->program->n_vars] = *v;
    return (teg_mil_var_id)j->program->n_vars++;
}

static bool copy_vars(struct joiner *j, size_t stage)
{
    const struct teg_mil_program *const part = part_of(j, &j->joint->stages[stage]);
    teg_mil_var_id *const map = teg_arena_array(&j->program->arena, part->n_vars, sizeof *map);
    if (!map)
        return false;
    for (size_t i = 0; i < part->n_vars; i++)
        map[i] = add_var(j, &part->vars[i]);
    j->maps[stage] = map;
    return true;
}

/* ---- ops ---- */

static const teg_mil_var_id *map_ids(const struct joiner *j, const teg_mil_var_id *map, const teg_mil_var_id *ids,
                                     size_t n)
{
    teg_mil_var_id *const out = teg_arena_array(&j->program->arena, n, sizeof *out);
    for (size_t i = 0; out && i < n; i++)
        out[i] = map[ids[i]];
    return out;
}

static bool copy_block(const struct joiner *j, const teg_mil_var_id *map, const struct teg_mil_block *from,
                       struct teg_mil_block *to);

static bool copy_op(const struct joiner *j, const teg_mil_var_id *map, uint32_t opset, const struct teg_mil_op *from,
                    struct teg_mil_op *to)
{
    struct teg_arena *const arena = &j->program->arena;
    struct teg_mil_arg *const args = teg_arena_array(arena, from->n_args, sizeof *args);
    struct teg_mil_block *const blocks = teg_arena_array(arena, from->n_blocks, sizeof *blocks);
    *to = *from;
    to->opset = from->opset ? from->opset : opset;
    to->outputs = map_ids(j, map, from->outputs, from->n_outputs);
    bool ok = args && blocks && to->outputs;
    for (size_t a = 0; ok && a < from->n_args; a++) {
        args[a] = from->args[a];
        args[a].vars = map_ids(j, map, from->args[a].vars, from->args[a].n_vars);
        ok = args[a].vars != NULL;
    }
    for (size_t b = 0; ok && b < from->n_blocks; b++)
        ok = copy_block(j, map, &from->blocks[b], &blocks[b]);
    to->args = args;
    to->blocks = blocks;
    return ok;
}

static bool copy_ops(const struct joiner *j, const teg_mil_var_id *map, uint32_t opset,
                     const struct teg_mil_block *from, struct teg_mil_op *ops, size_t first)
{
    bool ok = true;
    for (size_t i = 0; ok && i < from->n_ops; i++) {
        ok = copy_op(j, map, opset, &from->ops[i], &ops[first + i]);
        for (size_t o = 0; ok && o < ops[first + i].n_outputs; o++)
            j->program->vars[ops[first + i].outputs[o]].op = (uint32_t)(first + i);
    }
    return ok;
}

/* Nested as deep as a reader allows. */
static bool copy_block(const struct joiner *j, const teg_mil_var_id *map, const struct teg_mil_block *from,
                       struct teg_mil_block *to)
{
    struct teg_mil_op *const ops = teg_arena_array(&j->program->arena, from->n_ops, sizeof *ops);
    *to = (struct teg_mil_block){.n_inputs = from->n_inputs, .n_outputs = from->n_outputs, .n_ops = from->n_ops};
    to->inputs = map_ids(j, map, from->inputs, from->n_inputs);
    to->outputs = map_ids(j, map, from->outputs, from->n_outputs);
    to->ops = ops;
    return ops && to->inputs && to->outputs && copy_ops(j, map, 0, from, ops, 0);
}

/* ---- what stands between two stages ---- */

/* A parameter of an op that is made here. */
struct parameter {
    const char *name; /* before "x" in the alphabet */
    struct teg_mil_const value;
};

/* Op `type` of x, whose result is `to`. False: memory. */
static bool add_op(struct joiner *j, const char *type, const struct parameter *parameters, size_t n, teg_mil_var_id x,
                   teg_mil_var_id to)
{
    struct teg_arena *const arena = &j->program->arena;
    struct teg_mil_const *const values = teg_arena_array(arena, n, sizeof *values);
    struct teg_mil_arg *const args = teg_arena_array(arena, n + 1, sizeof *args);
    teg_mil_var_id *const ids = teg_arena_array(arena, n + 2, sizeof *ids);
    if (!values || !args || !ids)
        return false;
    for (size_t i = 0; i < n; i++) {
        values[i] = parameters[i].value;
        ids[i] = add_var(j, &(struct teg_mil_var){"", values[i].type, &values[i], UINT32_MAX});
        args[i] = (struct teg_mil_arg){parameters[i].name, &ids[i], 1};
    }
    ids[n] = x;
    ids[n + 1] = to;
    args[n] = (struct teg_mil_arg){"x", &ids[n], 1};
    struct teg_mil_block *const b = &j->function->block;
    j->program->vars[to].op = (uint32_t)b->n_ops;
    j->ops[b->n_ops++] = (struct teg_mil_op){
        .type = type, .name = "", .args = args, .n_args = n + 1, .outputs = &ids[n + 1], .n_outputs = 1, .opset = 7};
    return true;
}

/* x as `type`. False: memory. */
static bool add_cast(struct joiner *j, teg_mil_var_id x, const struct teg_mil_type *type, teg_mil_var_id to)
{
    const char *const dtype = teg_mil_dtype_info(type->dtype)->name;
    struct teg_string *const text = teg_arena_array(&j->program->arena, 1, sizeof *text);
    if (!text)
        return false;
    *text = (struct teg_string){dtype, strlen(dtype)};
    const struct parameter as = {"dtype", {.type = {.kind = TEG_MIL_TENSOR, .dtype = TEG_MIL_STRING}, .strings = text}};
    return add_op(j, "cast", &as, 1, x, to);
}

/* Values as an image keeps them: 0 to 255, whole, perhaps with the channels in the other order. *x becomes the result.
 * False: memory. */
static bool add_pixels(struct joiner *j, enum teg_mil_pixels pixels, teg_mil_var_id *x)
{
    static const uint8_t zero[4] = {0}, most_f32[] = {0, 0, 0x7f, 0x43}, most_f16[] = {0xf8, 0x5b}; /* 255 */
    static const uint8_t channels[] = {0xfd, 0xff, 0xff, 0xff}; /* axis -3 of [1, C, H, W] and [C, H, W] */
    const struct teg_mil_type type = j->program->vars[*x].type;
    const bool is_half = type.dtype == TEG_MIL_FP16;
    const struct teg_mil_type one = {.kind = TEG_MIL_TENSOR, .dtype = type.dtype};
    const size_t n_bytes = is_half ? sizeof most_f16 : sizeof most_f32;
    const struct parameter bounds[] = {
        {"alpha", {.type = one, .bytes = zero, .n_bytes = n_bytes}},
        {"beta", {.type = one, .bytes = is_half ? most_f16 : most_f32, .n_bytes = n_bytes}}};
    const struct parameter axes = {"axes",
                                   {.type = {.kind = TEG_MIL_TENSOR, .dtype = TEG_MIL_INT32, .rank = 1, .dims = {1}},
                                    .bytes = channels,
                                    .n_bytes = sizeof channels}};
    const struct {
        const char *type;
        const struct parameter *parameters;
        size_t n;
        bool wanted;
    } chain[] = {{"clip", bounds, 2, is_half || type.dtype == TEG_MIL_FP32},
                 {"round", NULL, 0, is_half || type.dtype == TEG_MIL_FP32},
                 {"reverse", &axes, 1, pixels == TEG_MIL_PIXELS_TURNED}};
    for (size_t i = 0; i < sizeof chain / sizeof *chain; i++) {
        if (!chain[i].wanted)
            continue;
        const teg_mil_var_id to = add_var(j, &(struct teg_mil_var){"", type, NULL, UINT32_MAX});
        if (!add_op(j, chain[i].type, chain[i].parameters, chain[i].n, *x, to))
            return false;
        *x = to;
    }
    return true;
}

/* ---- inputs ---- */

static const struct teg_mil_feature *feature_of(const struct teg_mil_feature *features, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(features[i].name, name) == 0)
            return &features[i];
    return NULL;
}

static enum teg_status wire_inside(struct joiner *j, size_t stage, teg_mil_var_id old, const struct teg_mil_wire *wire)
{
    const struct teg_mil_stage *const s = &j->joint->stages[stage], *const from = &j->joint->stages[wire->stage];
    const struct teg_mil_var *const input = &part_of(j, s)->vars[old];
    teg_mil_var_id given = j->maps[wire->stage][function_of(j, from)->block.outputs[wire->output]];
    const struct teg_mil_type *const type = &j->program->vars[given].type;
    const bool is_tensor = type->kind == TEG_MIL_TENSOR && input->type.kind == TEG_MIL_TENSOR;
    const bool is_string = is_tensor && (type->dtype == TEG_MIL_STRING) != (input->type.dtype == TEG_MIL_STRING);
    bool fits = is_tensor && !is_string && (type->rank < 0 || input->type.rank < 0 || type->rank == input->type.rank);
    for (int32_t d = 0; fits && type->rank == input->type.rank && d < type->rank; d++)
        fits = type->dims[d] == input->type.dims[d] || type->dims[d] == TEG_MIL_UNKNOWN ||
               input->type.dims[d] == TEG_MIL_UNKNOWN;
    if (!fits)
        FAIL(j->err, TEG_ERR_UNSUPPORTED,
             "cannot join models: %.80s, function %.60s: expected input '%.60s' to have the type and shape of output "
             "'%.60s' of %.80s, found another; give parts that belong together",
             part_of(j, s)->path, function_of(j, s)->name, input->name, j->program->vars[given].name,
             part_of(j, from)->path);
    if (wire->pixels != TEG_MIL_NO_PIXELS && !add_pixels(j, wire->pixels, &given))
        return no_memory(j);
    if (type->dtype == input->type.dtype)
        j->maps[stage][old] = given;
    else if (!add_cast(j, given, &input->type, j->maps[stage][old]))
        return no_memory(j);
    return TEG_OK;
}

static enum teg_status wire_outside(struct joiner *j, size_t stage, teg_mil_var_id old)
{
    const struct teg_mil_stage *const s = &j->joint->stages[stage];
    const struct teg_mil_interface *const i = &part_of(j, s)->interfaces[s->function];
    const struct teg_mil_var *const input = &part_of(j, s)->vars[old];
    const struct teg_mil_feature *const f = feature_of(i->inputs, i->n_inputs, input->name);
    struct teg_mil_block *const b = &j->function->block;
    for (size_t k = 0; k < b->n_inputs; k++) {
        const struct teg_mil_var *const other = &j->program->vars[j->inputs[k]];
        if (other->type.kind == TEG_MIL_STATE || strcmp(other->name, input->name) != 0)
            continue;
        if (!teg_mil_same_type(&other->type, &input->type))
            FAIL(j->err, TEG_ERR_UNSUPPORTED,
                 "cannot join models: %.80s, function %.60s: expected input '%.60s' to have one type and shape in all "
                 "models, found another; give parts that belong together",
                 part_of(j, s)->path, function_of(j, s)->name, input->name);
        j->maps[stage][old] = j->inputs[k];
        return TEG_OK;
    }
    if (f)
        j->features[j->interface->n_inputs++] = *f;
    j->inputs[b->n_inputs++] = j->maps[stage][old];
    return TEG_OK;
}

/* A state is its program's own: one of the same name in an earlier program is another. */
static const char *state_name(const struct joiner *j, size_t program, const char *name)
{
    for (size_t p = 0; p < program; p++)
        for (size_t f = 0; f < j->program->parts[p]->n_functions; f++) {
            const struct teg_mil_interface *const i = &j->program->parts[p]->interfaces[f];
            if (feature_of(i->states, i->n_states, name))
                return teg_arena_printf(&j->program->arena, "%s.%zu", name, program + 1);
        }
    return name;
}

static enum teg_status wire_state(struct joiner *j, size_t stage, teg_mil_var_id old)
{
    const struct teg_mil_stage *const s = &j->joint->stages[stage];
    const struct teg_mil_interface *const i = &part_of(j, s)->interfaces[s->function];
    const char *const own = part_of(j, s)->vars[old].name, *const name = state_name(j, s->program, own);
    const struct teg_mil_feature *const f = feature_of(i->states, i->n_states, own);
    struct teg_mil_block *const b = &j->function->block;
    if (!name)
        return no_memory(j);
    for (size_t k = 0; k < b->n_inputs; k++)
        if (strcmp(j->program->vars[j->inputs[k]].name, name) == 0) { /* the same program twice in a function */
            j->maps[stage][old] = j->inputs[k];
            return TEG_OK;
        }
    j->program->vars[j->maps[stage][old]].name = name;
    if (f) {
        j->states[j->interface->n_states] = *f;
        j->states[j->interface->n_states++].name = name;
    }
    j->inputs[b->n_inputs++] = j->maps[stage][old];
    return TEG_OK;
}

static enum teg_status wire_stage(struct joiner *j, size_t stage, bool states)
{
    const struct teg_mil_stage *const s = &j->joint->stages[stage];
    const struct teg_mil_block *const b = &function_of(j, s)->block;
    for (size_t i = 0, k = 0; i < b->n_inputs; i++) {
        const bool is_state = part_of(j, s)->vars[b->inputs[i]].type.kind == TEG_MIL_STATE;
        const struct teg_mil_wire *const wire = is_state ? NULL : &s->wires[k++];
        if (is_state && states)
            TRY(wire_state(j, stage, b->inputs[i]));
        else if (!is_state && !states && wire->stage == TEG_MIL_OUTSIDE)
            TRY(wire_outside(j, stage, b->inputs[i]));
        else if (!is_state && !states)
            TRY(wire_inside(j, stage, b->inputs[i], wire));
    }
    return TEG_OK;
}

/* ---- a function ---- */

static enum teg_status allocate(struct joiner *j)
{
    struct teg_arena *const arena = &j->program->arena;
    size_t n_inputs = 0, n_ops = 0;
    for (size_t s = 0; s < j->joint->n_stages; s++) {
        const struct teg_mil_block *const b = &function_of(j, &j->joint->stages[s])->block;
        n_inputs += b->n_inputs;
        n_ops += b->n_ops + MOST_OPS_BETWEEN * b->n_inputs;
    }
    j->inputs = teg_arena_array(arena, n_inputs, sizeof *j->inputs);
    j->features = teg_arena_array(arena, n_inputs, sizeof *j->features);
    j->states = teg_arena_array(arena, n_inputs, sizeof *j->states);
    j->ops = teg_arena_array(arena, n_ops, sizeof *j->ops);
    j->maps = teg_arena_array(arena, j->joint->n_stages, sizeof *j->maps);
    return j->inputs && j->features && j->states && j->ops && j->maps && n_ops < UINT32_MAX ? TEG_OK : no_memory(j);
}

static enum teg_status add_stage(struct joiner *j, size_t stage)
{
    const struct teg_mil_function *const f = function_of(j, &j->joint->stages[stage]);
    struct teg_mil_block *const b = &j->function->block;
    if (!copy_vars(j, stage))
        return no_memory(j);
    TRY(wire_stage(j, stage, false));
    TRY(wire_stage(j, stage, true));
    if (!copy_ops(j, j->maps[stage], f->opset, &f->block, j->ops, b->n_ops))
        return no_memory(j);
    b->n_ops += f->block.n_ops;
    if (f->opset > j->function->opset) {
        j->function->opset = f->opset;
        j->function->opset_name = f->opset_name;
    }
    return TEG_OK;
}

static enum teg_status add_results(struct joiner *j)
{
    const size_t n = j->joint->n_results;
    teg_mil_var_id *const ids = teg_arena_array(&j->program->arena, n, sizeof *ids);
    struct teg_mil_feature *const features = teg_arena_array(&j->program->arena, n, sizeof *features);
    if (!ids || !features)
        return no_memory(j);
    for (size_t k = 0; k < n; k++) {
        const struct teg_mil_result *const r = &j->joint->results[k];
        const struct teg_mil_stage *const s = &j->joint->stages[r->stage];
        const struct teg_mil_interface *const i = &part_of(j, s)->interfaces[s->function];
        ids[k] = j->maps[r->stage][function_of(j, s)->block.outputs[r->output]];
        struct teg_mil_var *const v = &j->program->vars[ids[k]];
        const struct teg_mil_feature *const f = feature_of(i->outputs, i->n_outputs, v->name);
        v->name = r->name ? r->name : v->name;
        if (f) {
            features[j->interface->n_outputs] = *f;
            features[j->interface->n_outputs++].name = v->name;
        }
    }
    j->function->block.outputs = ids;
    j->function->block.n_outputs = n;
    j->interface->outputs = features;
    return TEG_OK;
}

/* Inputs first, then states, as readers leave them. */
static enum teg_status sort_inputs(struct joiner *j)
{
    struct teg_mil_block *const b = &j->function->block;
    teg_mil_var_id *const sorted = teg_arena_array(&j->program->arena, b->n_inputs, sizeof *sorted);
    size_t n = 0;
    for (int states = 0; sorted && states < 2; states++)
        for (size_t i = 0; i < b->n_inputs; i++)
            if ((j->program->vars[j->inputs[i]].type.kind == TEG_MIL_STATE) == states)
                sorted[n++] = j->inputs[i];
    b->inputs = sorted;
    return sorted ? TEG_OK : no_memory(j);
}

static enum teg_status join_function(struct joiner *j)
{
    j->function->name = teg_arena_string(&j->program->arena, j->joint->name, strlen(j->joint->name));
    if (!j->function->name)
        return no_memory(j);
    *j->interface = (struct teg_mil_interface){
        .function = j->function->name, .predicted_feature = "", .predicted_probabilities = ""};
    TRY(allocate(j));
    for (size_t s = 0; s < j->joint->n_stages; s++)
        TRY(add_stage(j, s));
    TRY(add_results(j));
    TRY(sort_inputs(j));
    j->function->block.ops = j->ops;
    j->interface->inputs = j->features;
    j->interface->states = j->states;
    return TEG_OK;
}

/* ---- the whole ---- */

enum teg_status teg_mil_join_new(const char *path, const struct teg_allocator *allocator,
                                 struct teg_mil_program **program, struct teg_error *err)
{
    return teg_mil_program_new(path, "mlpackage", allocator, program, err);
}

bool teg_mil_join_parts(struct teg_mil_program *program, struct teg_mil_program *const *parts, size_t n_parts)
{
    struct teg_mil_program **const copy = teg_arena_array(&program->arena, n_parts, sizeof(struct teg_mil_program *));
    if (!copy)
        return false;
    memcpy(copy, parts, n_parts * sizeof(struct teg_mil_program *));
    program->parts = copy;
    program->n_parts = n_parts;
    return true;
}

enum teg_status teg_mil_join(struct teg_mil_program *p, const struct teg_mil_joint *joints, size_t n_joints,
                             struct teg_error *err)
{
    size_t n_vars = 0;
    struct joiner j = {.program = p, .err = err};
    if (!count_vars(p, joints, n_joints, &n_vars))
        return no_memory(&j);
    p->vars = teg_arena_array(&p->arena, n_vars, sizeof *p->vars);
    p->functions = teg_arena_array(&p->arena, n_joints, sizeof *p->functions);
    p->interfaces = teg_arena_array(&p->arena, n_joints, sizeof *p->interfaces);
    if (!p->vars || !p->functions || !p->interfaces)
        return no_memory(&j);
    for (size_t i = 0; i < n_joints; i++) {
        j = (struct joiner){.program = p,
                            .err = err,
                            .joint = &joints[i],
                            .function = &p->functions[i],
                            .interface = &p->interfaces[i]};
        TRY(join_function(&j));
        p->n_functions++;
    }
    for (size_t i = 0; i < p->n_parts; i++)
        p->spec_version = (uint32_t)teg_max(p->spec_version, p->parts[i]->spec_version);
    p->default_function = p->functions[0].name;
    return TEG_OK;
}
