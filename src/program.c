/* program.c: ML programs opened and looked into. A program is what the reader made, tables of what a caller may ask
 * for, and an evaluator for each function that was used. Functions are made ready at their first use, not all at
 * opening: a package with a dozen context sizes would decode the same weights a dozen times for nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/options.h"
#include "base/text.h"
#include "package.h"
#include "parts.h"
#include "program.h"

void teg_program_options_default(struct teg_program_options *options)
{
    *options = (struct teg_program_options){.size = sizeof *options};
}

/* ---- tables made at opening ---- */

static size_t count_ops(const struct teg_mil_block *block)
{
    size_t n = block->n_ops;
    for (size_t i = 0; i < block->n_ops; i++)
        for (size_t b = 0; b < block->ops[i].n_blocks; b++)
            n += count_ops(&block->ops[i].blocks[b]);
    return n;
}

static int by_place(const void *a, const void *b)
{
    const struct teg_mil_const *const *const x = a, *const *const y = b;
    const uintptr_t p = (uintptr_t)(*x)->bytes, q = (uintptr_t)(*y)->bytes; /* parts may have files of one name */
    return (p > q) - (p < q);
}

static uint64_t count_elements(const struct teg_mil_type *type)
{
    uint64_t n = 1;
    for (int32_t d = 0; d < type->rank; d++)
        n *= (uint64_t)type->dims[d];
    return n;
}

/* Bytes and elements of the records, each once: functions of one program share their weights. */
static void sum_records(struct teg_program *p, const struct teg_mil_const **records, size_t n)
{
    if (n)
        qsort(records, n, sizeof *records, by_place);
    for (size_t i = 0; i < n; i++) {
        p->n_decoded += count_elements(&records[i]->type);
        if (i && by_place(&records[i - 1], &records[i]) == 0)
            continue;
        p->info.weights_bytes += records[i]->n_bytes;
        p->n_parameters += count_elements(&records[i]->type);
    }
}

/* Values that stand in an op itself have no name; "OP.PARAMETER" is theirs. The reader limits how deep blocks nest. */
static bool name_weights(struct teg_program *p, const struct teg_mil_block *block, const char **names)
{
    bool ok = true;
    for (size_t i = 0; ok && i < block->n_ops; i++) {
        const struct teg_mil_op *const op = &block->ops[i];
        const char *const made = op->n_outputs ? p->mil->vars[op->outputs[0]].name : op->type;
        for (size_t a = 0; ok && a < op->n_args; a++)
            for (size_t k = 0; ok && k < op->args[a].n_vars; k++) {
                const teg_mil_var_id id = op->args[a].vars[k];
                const struct teg_mil_var *const v = &p->mil->vars[id];
                if (names[id] || !v->constant || !v->constant->file)
                    continue;
                names[id] = *v->name
                                ? v->name
                                : teg_arena_printf(&p->arena, "%s.%s", *op->name ? op->name : made, op->args[a].name);
                ok = names[id] != NULL;
            }
        for (size_t b = 0; ok && b < op->n_blocks; b++)
            ok = name_weights(p, &op->blocks[b], names);
    }
    return ok;
}

static enum teg_status list_weights(struct teg_program *p, struct teg_error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < p->mil->n_vars; i++)
        n += p->mil->vars[i].constant && p->mil->vars[i].constant->file;
    teg_mil_var_id *const ids = teg_arena_array(&p->arena, n, sizeof *ids);
    const struct teg_mil_const **const records = teg_arena_array(&p->arena, n, sizeof *records);
    p->names = teg_arena_array(&p->arena, p->mil->n_vars, sizeof *p->names);
    bool named = p->names != NULL;
    for (size_t f = 0; named && f < p->mil->n_functions; f++)
        named = name_weights(p, &p->mil->functions[f].block, p->names);
    if (!ids || !records || !named)
        return teg_base_fail_memory(err, "list of weights", n * sizeof *records);
    for (size_t i = 0, k = 0; i < p->mil->n_vars; i++) {
        const struct teg_mil_const *const c = p->mil->vars[i].constant;
        if (!c || !c->file)
            continue;
        records[k] = c;
        ids[k++] = (teg_mil_var_id)i;
    }
    p->weights = ids;
    p->info.n_weights = n;
    sum_records(p, records, n);
    return TEG_OK;
}

static enum teg_status copy_metadata(struct teg_program *p, struct teg_error *err)
{
    const size_t n = p->mil->n_user_metadata;
    p->metadata = teg_arena_array(&p->arena, n, sizeof *p->metadata);
    if (!p->metadata)
        return teg_base_fail_memory(err, "metadata", n * sizeof *p->metadata);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < 2; k++) {
            const struct teg_string *const s = &p->mil->user_metadata[i][k];
            p->metadata[i][k] = teg_arena_string(&p->arena, s->n_bytes ? s->bytes : "", s->n_bytes);
            if (!p->metadata[i][k])
                return teg_base_fail_memory(err, "metadata", s->n_bytes);
        }
    p->info.n_metadata = n;
    return TEG_OK;
}

static enum teg_status fill_tables(struct teg_program *p, struct teg_error *err)
{
    const struct teg_mil_program *const mil = p->mil;
    p->info = (struct teg_program_info){.format = mil->format,
                                        .spec_version = mil->spec_version,
                                        .default_function = mil->default_function,
                                        .author = mil->author,
                                        .license = mil->license,
                                        .version = mil->version,
                                        .description = mil->description,
                                        .n_functions = mil->n_functions};
    TRY(list_weights(p, err));
    TRY(copy_metadata(p, err));
    TRY(teg_program_find_requirements(p, err));
    p->evals = teg_arena_array(&p->arena, mil->n_functions, sizeof(struct teg_eval *));
    if (!p->evals)
        return teg_base_fail_memory(err, "functions", mil->n_functions * sizeof(struct teg_eval *));
    return p->options.target ? teg_program_check_target(p, p->options.target, err) : TEG_OK;
}

/* ---- opening ---- */

void teg_program_free(struct teg_program *program)
{
    if (!program)
        return;
    for (size_t i = 0; program->evals && i < program->mil->n_functions; i++)
        teg_eval_free(program->evals[i]);
    teg_mil_free(program->mil);
    (void)pthread_mutex_destroy(&program->lock);
    struct teg_arena arena = program->arena; /* the program lies in it */
    teg_arena_free(&arena);
}

/* The handle, with its lock and nothing else. */
static enum teg_status make_handle(const struct teg_program_options *options, struct teg_program **program,
                                   struct teg_error *err)
{
    struct teg_arena arena;
    teg_arena_init(&arena, options->allocator);
    struct teg_program *const p = teg_arena_alloc(&arena, sizeof *p);
    if (!p)
        return teg_base_fail_memory(err, "program", sizeof *p);
    *p = (struct teg_program){.allocator = options->allocator, .options = *options};
    p->arena = arena;
    if (pthread_mutex_init(&p->lock, NULL) != 0) {
        teg_arena_free(&arena);
        return teg_base_fail_memory(err, "lock", sizeof p->lock);
    }
    *program = p;
    return TEG_OK;
}

enum teg_status teg_program_of(struct teg_mil_program *mil, const struct teg_program_options *options,
                               struct teg_program **program, struct teg_error *err)
{
    struct teg_program *p = NULL;
    enum teg_status status = make_handle(options, &p, err);
    if (status != TEG_OK) {
        teg_mil_free(mil);
        return status;
    }
    p->mil = mil;
    status = fill_tables(p, err);
    if (status == TEG_OK)
        *program = p;
    else
        teg_program_free(p);
    return status;
}

/* A folder with a tegula.json is the program of its parts. */
static enum teg_status read_parts(const char *path, const struct teg_allocator *allocator, struct teg_mil_program **mil,
                                  struct teg_error *err)
{
    struct teg_manifest manifest;
    struct teg_arena arena;
    teg_arena_init(&arena, allocator);
    enum teg_status status = teg_package_manifest(path, &arena, &manifest, err);
    if (status == TEG_OK)
        status = teg_parts_open(path, &manifest, allocator, mil, err);
    teg_arena_free(&arena);
    return status;
}

enum teg_status teg_program_open(const char *path, const struct teg_program_options *options,
                                 struct teg_program **program, struct teg_error *err)
{
    struct teg_program_options o;
    struct teg_mil_program *mil = NULL;
    teg_program_options_default(&o);
    TRY(teg_options_read(&o, sizeof o, options, err));
    o.allocator = teg_allocator_or_default(o.allocator);
    TRY((teg_package_has_parts(path) ? read_parts : teg_mil_open)(path, o.allocator, &mil, err));
    return teg_program_of(mil, &o, program, err);
}

/* ---- functions ---- */

size_t teg_program_find_function(const struct teg_program *program, const char *name)
{
    const char *const wanted = name ? name : program->mil->default_function;
    for (size_t i = 0; i < program->mil->n_functions; i++)
        if (strcmp(program->mil->functions[i].name, wanted) == 0)
            return i;
    return SIZE_MAX;
}

enum teg_status teg_program_need_function(const struct teg_program *program, const char *name, size_t *index,
                                          struct teg_error *err)
{
    *index = teg_program_find_function(program, name);
    if (*index != SIZE_MAX)
        return TEG_OK;
    char names[160] = "";
    for (size_t i = 0, used = 0; i < program->mil->n_functions && used < sizeof names - 1; i++) {
        const int n =
            snprintf(names + used, sizeof names - used, "%s%.60s", i ? ", " : "", program->mil->functions[i].name);
        used = n < 0 ? sizeof names : used + (size_t)n;
    }
    FAIL(err, TEG_ERR_ARGUMENT, "no such function: %.100s: expected one of %s, found '%.80s'; name one of them",
         program->mil->path, names, name ? name : program->mil->default_function);
}

void teg_program_want_threads(struct teg_program *program, uint32_t n_threads)
{
    (void)pthread_mutex_lock(&program->lock);
    program->wanted_threads = n_threads;
    (void)pthread_mutex_unlock(&program->lock);
}

enum teg_status teg_program_eval(struct teg_program *program, size_t function, const struct teg_eval **eval,
                                 struct teg_error *err)
{
    const struct teg_program_options *const o = &program->options;
    enum teg_status status = TEG_OK;
    (void)pthread_mutex_lock(&program->lock);
    const struct teg_eval_options options = {.allocator = program->allocator,
                                             .emulate_fp16 = o->mode == TEG_PROGRAM_EMULATE_FP16,
                                             .n_threads = o->n_threads ? o->n_threads : program->wanted_threads,
                                             .max_loop_iterations = o->max_loop_iterations,
                                             .max_bytes = o->max_bytes,
                                             .seed = o->seed,
                                             .siblings = program->evals,
                                             .n_siblings = program->mil->n_functions};
    if (!program->evals[function])
        status = teg_eval_new(program->mil, program->mil->functions[function].name, &options, &program->evals[function],
                              err);
    *eval = program->evals[function];
    (void)pthread_mutex_unlock(&program->lock);
    return status;
}

enum teg_status teg_program_prepare(struct teg_program *program, const char *function, struct teg_error *err)
{
    size_t index = 0;
    const struct teg_eval *eval = NULL;
    TRY(teg_program_need_function(program, function, &index, err));
    return teg_program_eval(program, index, &eval, err);
}

enum teg_status teg_program_function(const struct teg_program *program, size_t index, struct teg_function *function)
{
    if (index >= program->mil->n_functions)
        return TEG_ERR_ARGUMENT;
    const struct teg_mil_function *const f = &program->mil->functions[index];
    const struct teg_mil_interface *const i = &program->mil->interfaces[index];
    *function = (struct teg_function){.name = f->name,
                                      .opset = f->opset_name,
                                      .spec_version = f->opset,
                                      .n_inputs = i->n_inputs,
                                      .n_outputs = i->n_outputs,
                                      .n_states = i->n_states,
                                      .n_ops = count_ops(&f->block),
                                      .predicted_feature = i->predicted_feature,
                                      .predicted_probabilities = i->predicted_probabilities};
    return TEG_OK;
}

enum teg_status teg_program_dump(const struct teg_program *program, const char *function, struct teg_text *text,
                                 struct teg_error *err)
{
    size_t index = 0;
    TRY(teg_program_need_function(program, function, &index, err));
    struct teg_buf out = {0};
    teg_mil_dump(program->mil, &program->mil->functions[index], &out);
    return teg_buf_take(&out, text, "dump", err);
}

/* ---- facts ---- */

const struct teg_program_info *teg_program_info(const struct teg_program *program)
{
    return &program->info;
}

enum teg_status teg_program_metadata(const struct teg_program *program, size_t index, const char **key,
                                     const char **value)
{
    if (index >= program->info.n_metadata)
        return TEG_ERR_ARGUMENT;
    *key = program->metadata[index][0];
    *value = program->metadata[index][1];
    return TEG_OK;
}

enum teg_status teg_program_weight(const struct teg_program *program, size_t index, struct teg_weight *weight)
{
    if (index >= program->info.n_weights)
        return TEG_ERR_ARGUMENT;
    const struct teg_mil_var *const v = &program->mil->vars[program->weights[index]];
    const struct teg_mil_type *const t = &v->constant->type;
    const char *const name = program->names[program->weights[index]];
    *weight = (struct teg_weight){.name = name ? name : v->name,
                                  .dtype = teg_mil_dtype_info(t->dtype)->name,
                                  .rank = t->rank > 0 ? (uint32_t)t->rank : 0,
                                  .n_bytes = v->constant->n_bytes,
                                  .file_offset = v->constant->file_offset};
    for (uint32_t d = 0; d < weight->rank; d++)
        weight->dims[d] = (uint64_t)t->dims[d];
    return TEG_OK;
}

/* ---- features ---- */

static const struct {
    const char *name;
    size_t n_bytes;
} elements[TEG_ELEMENT_COUNT] = {
    [TEG_ELEMENT_F16] = {"float16", 2}, [TEG_ELEMENT_F32] = {"float32", 4}, [TEG_ELEMENT_F64] = {"float64", 8},
    [TEG_ELEMENT_I8] = {"int8", 1},     [TEG_ELEMENT_U8] = {"uint8", 1},    [TEG_ELEMENT_I16] = {"int16", 2},
    [TEG_ELEMENT_U16] = {"uint16", 2},  [TEG_ELEMENT_I32] = {"int32", 4},   [TEG_ELEMENT_U32] = {"uint32", 4},
    [TEG_ELEMENT_I64] = {"int64", 8},   [TEG_ELEMENT_U64] = {"uint64", 8},  [TEG_ELEMENT_BOOL] = {"bool", 1},
};

const char *teg_element_name(enum teg_element element)
{
    return (size_t)element < TEG_ELEMENT_COUNT ? elements[element].name : "unknown";
}

size_t teg_element_bytes(enum teg_element element)
{
    return (size_t)element < TEG_ELEMENT_COUNT ? elements[element].n_bytes : 0;
}

bool teg_program_element(enum teg_mil_dtype dtype, enum teg_element *element)
{
    static const struct {
        enum teg_mil_dtype dtype;
        enum teg_element element;
    } rows[] = {
        {TEG_MIL_FP16, TEG_ELEMENT_F16},   {TEG_MIL_FP32, TEG_ELEMENT_F32},      {TEG_MIL_FP64, TEG_ELEMENT_F64},
        {TEG_MIL_INT8, TEG_ELEMENT_I8},    {TEG_MIL_UINT8, TEG_ELEMENT_U8},      {TEG_MIL_INT16, TEG_ELEMENT_I16},
        {TEG_MIL_UINT16, TEG_ELEMENT_U16}, {TEG_MIL_INT32, TEG_ELEMENT_I32},     {TEG_MIL_UINT32, TEG_ELEMENT_U32},
        {TEG_MIL_INT64, TEG_ELEMENT_I64},  {TEG_MIL_UINT64, TEG_ELEMENT_U64},    {TEG_MIL_BOOL, TEG_ELEMENT_BOOL},
        {TEG_MIL_BF16, TEG_ELEMENT_F32},   {TEG_MIL_FP8E4M3FN, TEG_ELEMENT_F32}, {TEG_MIL_FP8E5M2, TEG_ELEMENT_F32},
        {TEG_MIL_INT4, TEG_ELEMENT_I8},    {TEG_MIL_UINT4, TEG_ELEMENT_U8},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].dtype == dtype) {
            *element = rows[i].element;
            return true;
        }
    return false;
}

enum teg_feature_kind teg_program_kind(const struct teg_mil_feature *feature)
{
    static const enum teg_feature_kind kinds[] = {
        [TEG_MIL_FEATURE_ARRAY] = TEG_FEATURE_ARRAY,           [TEG_MIL_FEATURE_IMAGE] = TEG_FEATURE_IMAGE,
        [TEG_MIL_FEATURE_STATE] = TEG_FEATURE_STATE,           [TEG_MIL_FEATURE_INT64] = TEG_FEATURE_INT64,
        [TEG_MIL_FEATURE_DOUBLE] = TEG_FEATURE_DOUBLE,         [TEG_MIL_FEATURE_STRING] = TEG_FEATURE_STRING,
        [TEG_MIL_FEATURE_DICT_INT64] = TEG_FEATURE_DICT_INT64, [TEG_MIL_FEATURE_DICT_STRING] = TEG_FEATURE_DICT_STRING,
        [TEG_MIL_FEATURE_OTHER] = TEG_FEATURE_OTHER,
    };
    return kinds[feature->kind];
}

static void describe_image(const struct teg_mil_feature *f, struct teg_feature *out)
{
    static const enum teg_colour colours[] = {[TEG_MIL_RGB] = TEG_COLOUR_RGB,
                                              [TEG_MIL_BGR] = TEG_COLOUR_BGR,
                                              [TEG_MIL_GRAY] = TEG_COLOUR_GRAY,
                                              [TEG_MIL_GRAY_FP16] = TEG_COLOUR_GRAY_F16};
    const bool is_colour = f->colour == TEG_MIL_RGB || f->colour == TEG_MIL_BGR;
    out->colour = colours[f->colour];
    out->element = f->colour == TEG_MIL_GRAY_FP16 ? TEG_ELEMENT_F32 : TEG_ELEMENT_U8;
    out->has_shape = true;
    out->rank = is_colour ? 3 : 2;
    const int64_t shape[3] = {f->height, f->width, 3}, lower[3] = {f->min_height, f->min_width, 3},
                  upper[3] = {f->max_height, f->max_width, 3};
    memcpy(out->shape, shape, out->rank * sizeof *shape);
    memcpy(out->lower, lower, out->rank * sizeof *lower);
    memcpy(out->upper, upper, out->rank * sizeof *upper);
}

enum teg_status teg_program_feature(const struct teg_program *program, size_t function, enum teg_feature_role role,
                                    size_t index, struct teg_feature *feature)
{
    if (function >= program->mil->n_functions)
        return TEG_ERR_ARGUMENT;
    const struct teg_mil_interface *const i = &program->mil->interfaces[function];
    const struct {
        const struct teg_mil_feature *items;
        size_t n;
    } lists[] = {[TEG_ROLE_INPUT] = {i->inputs, i->n_inputs},
                 [TEG_ROLE_OUTPUT] = {i->outputs, i->n_outputs},
                 [TEG_ROLE_STATE] = {i->states, i->n_states}};
    if ((size_t)role >= sizeof lists / sizeof *lists || index >= lists[role].n)
        return TEG_ERR_ARGUMENT;
    const struct teg_mil_feature *const f = &lists[role].items[index];
    struct teg_feature out = {.name = f->name,
                              .description = f->description,
                              .kind = teg_program_kind(f),
                              .optional = f->optional,
                              .has_default = f->has_default,
                              .default_value = f->default_value,
                              .has_shape = f->has_shape,
                              .rank = f->rank,
                              .enumerated = f->enumerated,
                              .n_enumerated = f->n_enumerated};
    memcpy(out.shape, f->shape, sizeof out.shape);
    memcpy(out.lower, f->lower, sizeof out.lower);
    memcpy(out.upper, f->upper, sizeof out.upper);
    if (f->kind == TEG_MIL_FEATURE_IMAGE)
        describe_image(f, &out);
    else
        (void)teg_program_element(f->dtype, &out.element);
    *feature = out;
    return TEG_OK;
}
