/* mil/make.c: the program that grows: functions, inputs, states, outputs, constants, metadata. Ops: make_op.c.
 *
 * Invariant: the program is as if a file had been read. Names are interned and taken once in a function, a function's
 * interface has the order of its inputs and states, and the checks of check.c run at the end over all of it.
 *
 * A constant without a name belongs to who uses it first and is named after that use; equal small ones are one. */
#include "mil/make_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"

/* ---- failing ---- */

static const char *function_name(const struct teg_mil_maker *m)
{
    return m->in_function ? ((const struct teg_mil_function *)m->functions.at)[m->functions.n - 1].name : "";
}

void teg_mil_make_fail(struct teg_mil_maker *m, enum teg_status status, const char *format, ...)
{
    char text[sizeof m->error.message];
    va_list args;
    if (m->status != TEG_OK)
        return;
    va_start(args, format);
    if (vsnprintf(text, sizeof text, format, args) < 0)
        text[0] = '\0';
    va_end(args);
    m->status =
        teg_base_fail(&m->error, status, 0, "cannot make ML program: function '%.60s': %s", function_name(m), text);
}

void teg_mil_make_no_memory(struct teg_mil_maker *m, size_t n_bytes)
{
    if (m->status == TEG_OK)
        m->status = teg_base_fail_memory(&m->error, "ML program", n_bytes);
}

void *teg_mil_make_push(struct teg_mil_maker *m, struct teg_mil_list *list, size_t item_bytes)
{
    if (!teg_mil_grow(m->reader.arena, &list->at, list->n, &list->capacity, item_bytes)) {
        teg_mil_make_no_memory(m, list->n * item_bytes);
        return NULL;
    }
    return (char *)list->at + list->n++ * item_bytes;
}

/* False: nothing more is done. */
static bool is_open(struct teg_mil_maker *m)
{
    if (m->status == TEG_OK && !m->in_function)
        teg_mil_make_fail(m, TEG_ERR_ARGUMENT, "expected a function first, found none; call teg_mil_make_function");
    return m->status == TEG_OK;
}

/* ---- beginning and end ---- */

enum teg_status teg_mil_make_new(uint32_t spec_version, const struct teg_allocator *allocator,
                                 struct teg_mil_maker **maker, struct teg_error *err)
{
    struct teg_mil_program *program = NULL;
    if (spec_version < TEG_MIL_OLDEST || spec_version > TEG_MIL_NEWEST)
        FAIL(err, TEG_ERR_ARGUMENT,
             "cannot make ML program: specification version: expected %d to %d, found %u; choose a target from iOS15 "
             "to iOS26",
             TEG_MIL_OLDEST, TEG_MIL_NEWEST, spec_version);
    TRY(teg_mil_program_new("(made)", "mlpackage", allocator, &program, err));
    struct teg_mil_maker *const m = teg_arena_alloc(&program->arena, sizeof *m);
    if (!m) {
        teg_mil_free(program);
        return teg_base_fail_memory(err, "ML program", sizeof *m);
    }
    program->spec_version = spec_version;
    program->files->in_memory = true;
    m->program = program;
    m->reader = (struct teg_mil_reader){.program = program,
                                        .arena = &program->arena,
                                        .err = &m->error,
                                        .path = program->path,
                                        .names.arena = &program->arena};
    *maker = m;
    return TEG_OK;
}

/* Inputs, then states, as a function's block has them. */
static void join_inputs(struct teg_mil_maker *m, struct teg_mil_function *f)
{
    const size_t n = m->inputs.n + m->states.n;
    teg_mil_var_id *const ids = teg_arena_array(m->reader.arena, n, sizeof *ids);
    if (!ids) {
        teg_mil_make_no_memory(m, n * sizeof *ids);
        return;
    }
    if (m->inputs.n)
        memcpy(ids, m->inputs.at, m->inputs.n * sizeof *ids);
    if (m->states.n)
        memcpy(ids + m->inputs.n, m->states.at, m->states.n * sizeof *ids);
    f->block.inputs = ids;
    f->block.n_inputs = n;
}

static void end_function(struct teg_mil_maker *m)
{
    struct teg_mil_function *const f = &((struct teg_mil_function *)m->functions.at)[m->functions.n - 1];
    if (!m->outputs.n)
        teg_mil_make_fail(m, TEG_ERR_ARGUMENT, "expected an output, found none; call teg_mil_make_output");
    if (m->status != TEG_OK)
        return;
    join_inputs(m, f);
    f->block.outputs = m->outputs.at;
    f->block.n_outputs = m->outputs.n;
    f->block.ops = m->ops.at;
    f->block.n_ops = m->ops.n;
    struct teg_mil_interface *const in = &((struct teg_mil_interface *)m->interfaces.at)[m->interfaces.n - 1];
    *in = (struct teg_mil_interface){.function = f->name,
                                     .inputs = m->input_features.at,
                                     .n_inputs = m->input_features.n,
                                     .outputs = m->output_features.at,
                                     .n_outputs = m->output_features.n,
                                     .states = m->state_features.at,
                                     .n_states = m->state_features.n,
                                     .predicted_feature = "",
                                     .predicted_probabilities = ""};
    teg_mil_names_leave(&m->reader.names, m->names_mark);
    m->in_function = false;
    m->ops = m->inputs = m->states = m->outputs = (struct teg_mil_list){0};
    m->input_features = m->state_features = m->output_features = (struct teg_mil_list){0};
    memset(m->small, 0, sizeof m->small);
}

static int compare_interfaces(const void *a, const void *b)
{
    return strcmp(((const struct teg_mil_interface *)a)->function, ((const struct teg_mil_interface *)b)->function);
}

/* Functions by name, as the readers have them. */
static enum teg_status finish(struct teg_mil_maker *m)
{
    struct teg_mil_program *const p = m->program;
    if (m->in_function)
        end_function(m);
    if (m->status == TEG_OK && !m->functions.n)
        teg_mil_make_fail(m, TEG_ERR_ARGUMENT, "expected at least one function, found none; make one");
    TRY(m->status);
    for (size_t i = 0; i < p->n_vars; i++)
        if (!p->vars[i].name) /* a constant that nothing used */
            p->vars[i].name = "";
    p->default_function = ((const struct teg_mil_function *)m->functions.at)[0].name;
    p->functions = m->functions.at;
    p->n_functions = m->functions.n;
    p->interfaces = m->interfaces.at;
    p->user_metadata = (const struct teg_string(*)[2])m->metadata.at;
    p->n_user_metadata = m->metadata.n;
    TRY(teg_mil_seal_functions(&m->reader, NULL));
    qsort(p->interfaces, p->n_functions, sizeof *p->interfaces, compare_interfaces);
    return teg_mil_check(&m->reader, NULL);
}

enum teg_status teg_mil_make_end(struct teg_mil_maker *m, struct teg_mil_program **program, struct teg_error *err)
{
    if (!m)
        return TEG_OK;
    const enum teg_status status = program ? finish(m) : TEG_OK;
    if (status != TEG_OK && err)
        *err = m->error;
    if (program && status == TEG_OK)
        *program = m->program;
    else
        teg_mil_free(m->program); /* the maker lies in it */
    return status;
}

void teg_mil_make_function(struct teg_mil_maker *m, const char *name, uint32_t opset)
{
    static const char *const names[] = {"CoreML5", "CoreML6", "CoreML7", "CoreML8", "CoreML9"};
    const char *own = NULL;
    if (m->status == TEG_OK && m->in_function)
        end_function(m);
    if (m->status != TEG_OK)
        return;
    if (opset < TEG_MIL_OLDEST || opset > m->program->spec_version) {
        teg_mil_make_fail(m, TEG_ERR_ARGUMENT, "expected an opset of %d to %u (the program's version), found %u",
                          TEG_MIL_OLDEST, m->program->spec_version, opset);
        return;
    }
    m->status = teg_mil_intern(&m->reader, teg_mil_span(name), "the name of a function", &own);
    if (m->status != TEG_OK)
        return;
    struct teg_mil_function *const f = teg_mil_make_push(m, &m->functions, sizeof *f);
    struct teg_mil_interface *const in = teg_mil_make_push(m, &m->interfaces, sizeof *in);
    if (!f || !in)
        return;
    *f = (struct teg_mil_function){.name = own, .opset_name = names[opset - TEG_MIL_OLDEST], .opset = opset};
    m->names_mark = teg_mil_names_enter(&m->reader.names);
    m->first_var = m->program->n_vars;
    m->in_function = true;
}

/* ---- names and variables ---- */

/* MIL's identifiers: [A-Za-z_][A-Za-z0-9_@]*. */
static void clean(char *name)
{
    for (char *p = name; *p; p++) {
        const bool is_letter = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || *p == '_';
        const bool is_digit = (*p >= '0' && *p <= '9') || *p == '@';
        if (!is_letter && !(is_digit && p > name))
            *p = '_';
    }
}

const char *teg_mil_make_name(struct teg_mil_maker *m, const char *wanted, teg_mil_var_id var)
{
    const size_t n = wanted ? strlen(wanted) : 0;
    const size_t room = n + 12;
    char *const text = teg_arena_array(m->reader.arena, room, 1);
    if (!text) {
        teg_mil_make_no_memory(m, room);
        return NULL;
    }
    memcpy(text, n ? wanted : "var", n ? n : sizeof "var");
    clean(text);
    const size_t stem = strlen(text);
    for (uint32_t i = 1;; i++) {
        struct teg_mil_symbol *const symbol = teg_mil_names_get(&m->reader.names, teg_mil_span(text));
        const bool is_free = symbol && !teg_mil_names_is_taken(&m->reader.names, symbol);
        if (!symbol || (is_free && !teg_mil_names_define(&m->reader.names, symbol, var))) {
            teg_mil_make_no_memory(m, room);
            return NULL;
        }
        if (is_free)
            return symbol->name;
        (void)snprintf(text + stem, room - stem, "_%u", i);
    }
}

teg_mil_var_id teg_mil_make_var(struct teg_mil_maker *m, const char *name, const struct teg_mil_type *type, uint32_t op,
                                const struct teg_mil_const *constant)
{
    struct teg_mil_program *const p = m->program;
    void *vars = p->vars, *known = (void *)m->known;
    if (p->n_vars >= UINT32_MAX / 2 ||
        !teg_mil_grow(m->reader.arena, &vars, p->n_vars, &m->var_capacity, sizeof *p->vars) ||
        !teg_mil_grow(m->reader.arena, &known, p->n_vars, &m->known_capacity, sizeof *m->known)) {
        teg_mil_make_no_memory(m, p->n_vars * sizeof *p->vars);
        return TEG_MIL_NO_VAR;
    }
    p->vars = vars;
    m->known = known;
    p->vars[p->n_vars] = (struct teg_mil_var){name, *type, constant, op};
    m->known[p->n_vars] = NULL;
    return (teg_mil_var_id)p->n_vars++;
}

bool teg_mil_make_is_var(struct teg_mil_maker *m, teg_mil_var_id var)
{
    return var != TEG_MIL_NO_VAR && var >= m->first_var && var < m->program->n_vars;
}

const struct teg_mil_type *teg_mil_make_type(const struct teg_mil_maker *m, teg_mil_var_id var)
{
    return var < m->program->n_vars ? &m->program->vars[var].type : NULL;
}

/* ---- inputs, states, outputs ---- */

static const char *copy_text(struct teg_mil_maker *m, const char *text)
{
    const char *const copy = teg_arena_string(m->reader.arena, text ? text : "", text ? strlen(text) : 0);
    if (!copy)
        teg_mil_make_no_memory(m, 0);
    return copy;
}

/* A name that callers bind by: exactly it, or a failure. */
static const char *contract_name(struct teg_mil_maker *m, const char *name, teg_mil_var_id var)
{
    const char *const own = teg_mil_make_name(m, name, var);
    if (!own)
        return NULL;
    if (strcmp(own, name) != 0) {
        teg_mil_make_fail(m, TEG_ERR_ARGUMENT,
                          "expected '%.60s' to be a free identifier, found it taken or with other characters than "
                          "letters, digits and _; choose another name",
                          name);
        return NULL;
    }
    return own;
}

/* Enumerated shapes into the arena, and the bounds that they span. */
static bool own_enumerated(struct teg_mil_maker *m, struct teg_mil_feature *f)
{
    int64_t(*const shapes)[TEG_MIL_MAX_RANK] = teg_arena_array(m->reader.arena, f->n_enumerated, sizeof *shapes);
    if (!shapes) {
        teg_mil_make_no_memory(m, f->n_enumerated * sizeof *shapes);
        return false;
    }
    memcpy(shapes, f->enumerated, f->n_enumerated * sizeof *shapes);
    f->enumerated = (const int64_t(*)[TEG_MIL_MAX_RANK])shapes;
    for (uint32_t d = 0; d < f->rank; d++)
        for (size_t i = 0; i < f->n_enumerated; i++) {
            f->lower[d] = i && f->lower[d] < shapes[i][d] ? f->lower[d] : shapes[i][d];
            f->upper[d] = i && f->upper[d] > shapes[i][d] ? f->upper[d] : shapes[i][d];
        }
    return true;
}

teg_mil_var_id teg_mil_make_input(struct teg_mil_maker *m, const struct teg_mil_feature *feature)
{
    struct teg_mil_feature own = *feature;
    struct teg_mil_type type = {.kind = TEG_MIL_TENSOR, .dtype = feature->dtype, .rank = (int32_t)feature->rank};
    if (!is_open(m))
        return TEG_MIL_NO_VAR;
    if (feature->kind != TEG_MIL_FEATURE_ARRAY || feature->rank > TEG_MIL_MAX_RANK || !feature->rank) {
        teg_mil_make_fail(m, TEG_ERR_ARGUMENT, "expected input '%.60s' to be an array of rank 1 to %d, found another",
                          feature->name, TEG_MIL_MAX_RANK);
        return TEG_MIL_NO_VAR;
    }
    own.has_shape = true;
    if (own.n_enumerated && !own_enumerated(m, &own))
        return TEG_MIL_NO_VAR;
    for (uint32_t d = 0; d < own.rank; d++) {
        if (!own.lower[d] && !own.upper[d])
            own.lower[d] = own.upper[d] = own.shape[d]; /* not given: fixed */
        type.dims[d] = own.lower[d] == own.upper[d] ? own.shape[d] : TEG_MIL_UNKNOWN;
    }
    own.name = contract_name(m, feature->name, (teg_mil_var_id)m->program->n_vars);
    own.description = copy_text(m, feature->description);
    struct teg_mil_feature *const f = teg_mil_make_push(m, &m->input_features, sizeof *f);
    teg_mil_var_id *const id = teg_mil_make_push(m, &m->inputs, sizeof *id);
    if (!own.name || !own.description || !f || !id)
        return TEG_MIL_NO_VAR;
    *f = own;
    return *id = teg_mil_make_var(m, own.name, &type, UINT32_MAX, NULL);
}

static struct teg_mil_feature feature_of(const char *name, const struct teg_mil_type *type)
{
    struct teg_mil_feature f = {.name = name, .description = "", .dtype = type->dtype};
    bool is_fixed = type->rank >= 0;
    f.kind = type->kind == TEG_MIL_STATE ? TEG_MIL_FEATURE_STATE : TEG_MIL_FEATURE_ARRAY;
    for (int32_t d = 0; d < type->rank; d++)
        is_fixed = is_fixed && type->dims[d] != TEG_MIL_UNKNOWN;
    if (!is_fixed)
        return f; /* an output that varies has no shape in the description */
    f.has_shape = true;
    f.rank = type->rank ? (uint32_t)type->rank : 1;
    for (uint32_t d = 0; d < f.rank; d++)
        f.shape[d] = f.lower[d] = f.upper[d] = type->rank ? type->dims[d] : 1;
    return f;
}

teg_mil_var_id teg_mil_make_state(struct teg_mil_maker *m, const char *name, enum teg_mil_dtype dtype, uint32_t rank,
                                  const int64_t *dims)
{
    struct teg_mil_type type = {.kind = TEG_MIL_STATE, .dtype = dtype, .rank = (int32_t)rank};
    if (!is_open(m))
        return TEG_MIL_NO_VAR;
    const struct teg_mil_function *const functions = m->functions.at;
    if (rank > TEG_MIL_MAX_RANK || !rank || functions[m->functions.n - 1].opset < 9) {
        teg_mil_make_fail(m, TEG_ERR_ARGUMENT,
                          "expected a state of rank 1 to %d and target iOS18 or later, found rank %u and opset %u; "
                          "choose --target iOS18",
                          TEG_MIL_MAX_RANK, rank, functions[m->functions.n - 1].opset);
        return TEG_MIL_NO_VAR;
    }
    memcpy(type.dims, dims, rank * sizeof *dims);
    const char *const own = contract_name(m, name, (teg_mil_var_id)m->program->n_vars);
    struct teg_mil_feature *const f = teg_mil_make_push(m, &m->state_features, sizeof *f);
    teg_mil_var_id *const id = teg_mil_make_push(m, &m->states, sizeof *id);
    if (!own || !f || !id)
        return TEG_MIL_NO_VAR;
    *f = feature_of(own, &type);
    return *id = teg_mil_make_var(m, own, &type, UINT32_MAX, NULL);
}

static bool is_in(const struct teg_mil_list *list, teg_mil_var_id var)
{
    const teg_mil_var_id *const ids = list->at;
    for (size_t i = 0; i < list->n; i++)
        if (ids[i] == var)
            return true;
    return false;
}

/* The name is a contract, that of an intermediate value is not: who has it without need gives it up. */
static void free_name(struct teg_mil_maker *m, const char *name)
{
    struct teg_mil_symbol *const symbol = teg_mil_names_get(&m->reader.names, teg_mil_span(name));
    if (!symbol || !teg_mil_names_is_taken(&m->reader.names, symbol))
        return;
    const teg_mil_var_id owner = symbol->var;
    if (is_in(&m->inputs, owner) || is_in(&m->states, owner) || is_in(&m->outputs, owner))
        return;
    const char *const other = teg_mil_make_name(m, name, owner);
    if (!other)
        return;
    m->program->vars[owner].name = other;
    symbol->var = UINT32_MAX;
}

void teg_mil_make_output(struct teg_mil_maker *m, const char *name, teg_mil_var_id var)
{
    if (!is_open(m))
        return;
    if (!teg_mil_make_is_var(m, var) || m->program->vars[var].type.kind != TEG_MIL_TENSOR) {
        teg_mil_make_fail(m, TEG_ERR_ARGUMENT, "expected output '%.60s' to be a tensor of this function, found another",
                          name);
        return;
    }
    if (strcmp(m->program->vars[var].name ? m->program->vars[var].name : "", name) != 0 ||
        m->program->vars[var].op == UINT32_MAX) {
        if (m->program->vars[var].op == UINT32_MAX || is_in(&m->outputs, var))
            var = teg_mil_make_op(m, "identity", name, (const struct teg_mil_bind[]){{"x", var}, {NULL, 0}});
        if (m->status != TEG_OK)
            return;
        free_name(m, name);
        /* an identity has the name already, unless it was taken */
        const char *const own =
            strcmp(m->program->vars[var].name, name) ? contract_name(m, name, var) : m->program->vars[var].name;
        if (!own)
            return;
        m->program->vars[var].name = own;
    }
    teg_mil_var_id *const id = teg_mil_make_push(m, &m->outputs, sizeof *id);
    struct teg_mil_feature *const f = teg_mil_make_push(m, &m->output_features, sizeof *f);
    if (!id || !f)
        return;
    *id = var;
    *f = feature_of(m->program->vars[var].name, &m->program->vars[var].type);
}

/* ---- constants ---- */

static struct teg_mil_const *new_const(struct teg_mil_maker *m, enum teg_mil_dtype dtype, uint32_t rank,
                                       const int64_t *dims, size_t *n)
{
    struct teg_mil_const *const value = teg_arena_array(m->reader.arena, 1, sizeof *value);
    if (!value) {
        teg_mil_make_no_memory(m, sizeof *value);
        return NULL;
    }
    value->type = (struct teg_mil_type){.kind = TEG_MIL_TENSOR, .dtype = dtype, .rank = (int32_t)rank};
    bool fits = rank <= TEG_MIL_MAX_RANK;
    if (fits && rank)
        memcpy(value->type.dims, dims, rank * sizeof *dims);
    fits = fits && teg_mil_count(&value->type, n) &&
           (dtype == TEG_MIL_STRING || teg_mil_bytes(dtype, *n, &value->n_bytes));
    if (!fits) {
        teg_mil_make_fail(m, TEG_ERR_ARGUMENT, "expected a constant of rank 0 to %d that fits in memory, found another",
                          TEG_MIL_MAX_RANK);
        return NULL;
    }
    return value;
}

static teg_mil_var_id add_const(struct teg_mil_maker *m, const char *name, const struct teg_mil_const *value)
{
    const char *own = NULL;
    if (name && name[0] && !(own = teg_mil_make_name(m, name, (teg_mil_var_id)m->program->n_vars)))
        return TEG_MIL_NO_VAR;
    return teg_mil_make_var(m, own, &value->type, UINT32_MAX, value);
}

teg_mil_var_id teg_mil_make_weight(struct teg_mil_maker *m, const char *name, enum teg_mil_dtype dtype, uint32_t rank,
                                   const int64_t *dims, const struct teg_mil_deferred *deferred, uint32_t part)
{
    size_t n = 0;
    if (!is_open(m))
        return TEG_MIL_NO_VAR;
    struct teg_mil_deferred *const own = teg_arena_array(m->reader.arena, 1, sizeof *own);
    struct teg_mil_const *const value = new_const(m, dtype, rank, dims, &n);
    if (!value || !own) {
        teg_mil_make_no_memory(m, sizeof *own);
        return TEG_MIL_NO_VAR;
    }
    if (part >= TEG_MIL_DEFERRED_PARTS || dtype == TEG_MIL_STRING) {
        teg_mil_make_fail(m, TEG_ERR_ARGUMENT, "expected weight '%.60s' to be numbers of part 0 to %d, found part %u",
                          name, TEG_MIL_DEFERRED_PARTS - 1, part);
        return TEG_MIL_NO_VAR;
    }
    *own = *deferred;
    value->deferred = own;
    value->deferred_part = part;
    return add_const(m, name, value);
}

/* ---- small constants ---- */

struct teg_mil_small {
    struct teg_mil_small *next;
    teg_mil_var_id var;
};

static size_t bucket_of(const struct teg_mil_type *type, const uint8_t *bytes, size_t n)
{
    uint64_t h = 14695981039346656037u ^ (uint64_t)type->dtype * 31 ^ (uint64_t)(uint32_t)type->rank;
    for (size_t i = 0; i < n; i++)
        h = (h ^ bytes[i]) * 1099511628211u;
    return (size_t)(h >> 32) % TEG_MIL_SMALL_BUCKETS;
}

/* The variable of an equal one of this function, else a new one. */
static teg_mil_var_id share(struct teg_mil_maker *m, const struct teg_mil_const *value)
{
    const bool is_text = value->type.dtype == TEG_MIL_STRING;
    const uint8_t *const bytes = is_text ? (const uint8_t *)value->strings->bytes : value->bytes;
    const size_t n = is_text ? value->strings->n_bytes : value->n_bytes;
    const size_t bucket = bucket_of(&value->type, bytes, n);
    for (const struct teg_mil_small *s = m->small[bucket]; s; s = s->next) {
        const struct teg_mil_const *const other = m->program->vars[s->var].constant;
        const uint8_t *const theirs = is_text ? (const uint8_t *)other->strings : other->bytes;
        if (!teg_mil_same_type(&other->type, &value->type))
            continue;
        if (is_text ? other->strings->n_bytes == n && memcmp(other->strings->bytes, bytes, n) == 0
                    : memcmp(theirs, bytes, n) == 0)
            return s->var;
    }
    struct teg_mil_small *const s = teg_arena_array(m->reader.arena, 1, sizeof *s);
    if (!s) {
        teg_mil_make_no_memory(m, sizeof *s);
        return TEG_MIL_NO_VAR;
    }
    s->var = add_const(m, NULL, value);
    s->next = m->small[bucket];
    if (s->var != TEG_MIL_NO_VAR)
        m->small[bucket] = s;
    return s->var;
}

teg_mil_var_id teg_mil_make_const(struct teg_mil_maker *m, const char *name, enum teg_mil_dtype dtype, uint32_t rank,
                                  const int64_t *dims, const void *bytes)
{
    enum { LARGEST_SHARED = 1024 };
    size_t n = 0;
    if (!is_open(m))
        return TEG_MIL_NO_VAR;
    struct teg_mil_const *const value = new_const(m, dtype, rank, dims, &n);
    if (!value)
        return TEG_MIL_NO_VAR;
    uint8_t *const copy = teg_arena_array(m->reader.arena, value->n_bytes, 1);
    if (!copy || dtype == TEG_MIL_STRING) {
        teg_mil_make_no_memory(m, value->n_bytes);
        return TEG_MIL_NO_VAR;
    }
    if (value->n_bytes)
        memcpy(copy, bytes, value->n_bytes);
    value->bytes = copy;
    return (name && name[0]) || value->n_bytes > LARGEST_SHARED ? add_const(m, name, value) : share(m, value);
}

teg_mil_var_id teg_mil_make_ints(struct teg_mil_maker *m, uint32_t n, const int32_t *values)
{
    return teg_mil_make_const(m, NULL, TEG_MIL_INT32, 1, (const int64_t[]){n}, values);
}

teg_mil_var_id teg_mil_make_int(struct teg_mil_maker *m, int32_t value)
{
    return teg_mil_make_const(m, NULL, TEG_MIL_INT32, 0, NULL, &value);
}

teg_mil_var_id teg_mil_make_bool(struct teg_mil_maker *m, bool value)
{
    const uint8_t byte = value;
    return teg_mil_make_const(m, NULL, TEG_MIL_BOOL, 0, NULL, &byte);
}

teg_mil_var_id teg_mil_make_float(struct teg_mil_maker *m, enum teg_mil_dtype dtype, float value)
{
    const uint16_t half = teg_f32_to_f16(value);
    if (dtype != TEG_MIL_FP16 && dtype != TEG_MIL_FP32)
        teg_mil_make_fail(m, TEG_ERR_ARGUMENT, "expected a float constant of fp16 or fp32, found %s",
                          teg_mil_dtype_info(dtype)->name);
    return teg_mil_make_const(m, NULL, dtype, 0, NULL, dtype == TEG_MIL_FP16 ? (const void *)&half : &value);
}

teg_mil_var_id teg_mil_make_string(struct teg_mil_maker *m, const char *text)
{
    size_t n = 0;
    if (!is_open(m))
        return TEG_MIL_NO_VAR;
    struct teg_mil_const *const value = new_const(m, TEG_MIL_STRING, 0, NULL, &n);
    struct teg_string *const string = teg_arena_array(m->reader.arena, 1, sizeof *string);
    const char *const copy = copy_text(m, text);
    if (!value || !string || !copy) {
        teg_mil_make_no_memory(m, sizeof *string);
        return TEG_MIL_NO_VAR;
    }
    *string = (struct teg_string){copy, strlen(copy)};
    value->strings = string;
    return share(m, value);
}

/* ---- description ---- */

void teg_mil_make_card(struct teg_mil_maker *m, const char *description, const char *author, const char *license,
                       const char *version)
{
    struct teg_mil_program *const p = m->program;
    const char *const texts[] = {copy_text(m, description), copy_text(m, author), copy_text(m, license),
                                 copy_text(m, version)};
    if (m->status != TEG_OK)
        return;
    p->description = texts[0];
    p->author = texts[1];
    p->license = texts[2];
    p->version = texts[3];
}

void teg_mil_make_metadata(struct teg_mil_maker *m, const char *key, const char *value, size_t n_bytes)
{
    if (m->status != TEG_OK)
        return;
    struct teg_string(*const pair)[2] = teg_mil_make_push(m, &m->metadata, sizeof *pair);
    const char *const own_key = copy_text(m, key);
    const char *const own_value = teg_arena_string(m->reader.arena, value, n_bytes);
    if (!pair || !own_key || !own_value) {
        teg_mil_make_no_memory(m, n_bytes);
        return;
    }
    (*pair)[0] = (struct teg_string){own_key, strlen(own_key)};
    (*pair)[1] = (struct teg_string){own_value, n_bytes};
}
