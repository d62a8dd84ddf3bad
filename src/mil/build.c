/* mil/build.c: the program table as it grows: variables, names, args; the same for both readers.
 *
 * Invariant: a variable id in the table is smaller than n_vars, has a type, and its name meant nothing else in its
 * scope. An inner block may give an outer name a new meaning, as in C. */
#include "mil/impl.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"

/* ---- failing ---- */

enum teg_status teg_mil_fail(const struct teg_mil_reader *r, enum teg_status status, const uint8_t *at,
                             const char *message, ...)
{
    enum { LONGEST_PATH = 160 };
    char text[sizeof r->err->message];
    va_list args;
    va_start(args, message);
    if (vsnprintf(text, sizeof text, message, args) < 0)
        text[0] = '\0';
    va_end(args);
    const uint64_t offset = at ? (uint64_t)(at - r->base) : 0;
    const size_t n = strlen(r->path);
    const bool is_long = n > LONGEST_PATH;
    return teg_base_fail(r->err, status, offset, "cannot read ML program: %s%s at byte %llu: %s", is_long ? "..." : "",
                         r->path + (is_long ? n - LONGEST_PATH : 0), (unsigned long long)offset, text);
}

enum teg_status teg_mil_no_memory(const struct teg_mil_reader *r, size_t n_bytes)
{
    return teg_base_fail_memory(r->err, "ML program", n_bytes);
}

enum teg_status teg_mil_wire_fail(const struct teg_mil_reader *r, struct teg_span message, size_t bad, const char *what)
{
    return teg_mil_fail(r, TEG_ERR_FORMAT, message.bytes ? message.bytes + bad : NULL,
                        "expected whole protobuf fields in %s, found damaged or missing bytes; copy the model again",
                        what);
}

/* ---- programs ---- */

enum teg_status teg_mil_program_new(const char *path, const char *format, const struct teg_allocator *allocator,
                                    struct teg_mil_program **out, struct teg_error *err)
{
    struct teg_arena arena;
    teg_arena_init(&arena, allocator);
    struct teg_mil_program *const program = teg_arena_alloc(&arena, sizeof *program);
    struct teg_mil_files *const files = teg_arena_alloc(&arena, sizeof *files);
    char *const copy = teg_arena_string(&arena, path, strlen(path));
    if (!program || !files || !copy) {
        teg_arena_free(&arena);
        return teg_base_fail_memory(err, "ML program", sizeof *program + sizeof *files);
    }
    *program = (struct teg_mil_program){.path = copy,
                                        .format = format,
                                        .default_function = "",
                                        .author = "",
                                        .license = "",
                                        .version = "",
                                        .description = "",
                                        .files = files};
    program->arena = arena; /* it lies in its own arena */
    *out = program;
    return TEG_OK;
}

void teg_mil_free(struct teg_mil_program *program)
{
    if (!program)
        return;
    for (size_t i = 0; i < program->n_parts; i++)
        teg_mil_free(program->parts[i]);
    if (program->files)
        teg_mlpackage_close(&program->files->package);
    struct teg_arena arena = program->arena;
    teg_arena_free(&arena);
}

/* ---- names and variables ---- */

static enum teg_status symbol_of(struct teg_mil_reader *r, struct teg_span name, const char *what,
                                 struct teg_mil_symbol **symbol)
{
    if (!name.n_bytes)
        MIL_FAIL(r, TEG_ERR_FORMAT, name.bytes, "expected %s, found an empty name; export the model again", what);
    if (memchr(name.bytes, 0, name.n_bytes))
        MIL_FAIL(r, TEG_ERR_FORMAT, name.bytes, "expected %s without a zero byte, found one; export the model again",
                 what);
    *symbol = teg_mil_names_get(&r->names, name);
    return *symbol ? TEG_OK : teg_mil_no_memory(r, name.n_bytes);
}

enum teg_status teg_mil_intern(struct teg_mil_reader *r, struct teg_span name, const char *what, const char **out)
{
    struct teg_mil_symbol *symbol = NULL;
    TRY(symbol_of(r, name, what, &symbol));
    *out = symbol->name;
    return TEG_OK;
}

static enum teg_status new_var(struct teg_mil_reader *r, const char *name, const struct teg_mil_type *type, uint32_t op,
                               const struct teg_mil_const *constant, teg_mil_var_id *id)
{
    struct teg_mil_program *const p = r->program;
    void *vars = p->vars;
    if (p->n_vars >= UINT32_MAX / 2 || !teg_mil_grow(r->arena, &vars, p->n_vars, &r->var_capacity, sizeof *p->vars))
        return teg_mil_no_memory(r, p->n_vars * sizeof *p->vars);
    p->vars = vars;
    p->vars[p->n_vars] = (struct teg_mil_var){name, *type, constant, op};
    *id = (teg_mil_var_id)p->n_vars++;
    return TEG_OK;
}

static enum teg_status define(struct teg_mil_reader *r, struct teg_span name, const struct teg_mil_type *type,
                              uint32_t op, const struct teg_mil_const *constant, teg_mil_var_id *id)
{
    struct teg_mil_symbol *symbol = NULL;
    TRY(symbol_of(r, name, "a variable's name", &symbol));
    if (teg_mil_names_is_taken(&r->names, symbol))
        MIL_FAIL(r, TEG_ERR_FORMAT, name.bytes,
                 "expected one definition of a name, found a second one of '%.*s'; export the model again",
                 MIL_NAME(name));
    TRY(new_var(r, symbol->name, type, op, constant, id));
    return teg_mil_names_define(&r->names, symbol, *id) ? TEG_OK : teg_mil_no_memory(r, sizeof *symbol);
}

enum teg_status teg_mil_define(struct teg_mil_reader *r, struct teg_span name, const struct teg_mil_type *type,
                               uint32_t op, teg_mil_var_id *id)
{
    return define(r, name, type, op, NULL, id);
}

enum teg_status teg_mil_use(struct teg_mil_reader *r, struct teg_span name, teg_mil_var_id *id)
{
    struct teg_mil_symbol *symbol = NULL;
    TRY(symbol_of(r, name, "a variable's name", &symbol));
    if (symbol->var == TEG_MIL_NO_VAR)
        MIL_FAIL(r, TEG_ERR_FORMAT, name.bytes,
                 "expected names that are defined before their use, found '%.*s'; export the model again",
                 MIL_NAME(name));
    *id = symbol->var;
    return TEG_OK;
}

enum teg_status teg_mil_inline(struct teg_mil_reader *r, const struct teg_mil_const *value, teg_mil_var_id *id)
{
    return new_var(r, "", &value->type, UINT32_MAX, value, id);
}

enum teg_status teg_mil_define_const(struct teg_mil_reader *r, struct teg_span name, const struct teg_mil_type *type,
                                     const struct teg_mil_const *value)
{
    teg_mil_var_id id;
    if (!teg_mil_same_type(type, &value->type))
        MIL_FAIL(r, TEG_ERR_FORMAT, name.bytes,
                 "expected constant '%.*s' to have the type that it declares, found a value of another; export the "
                 "model again",
                 MIL_NAME(name));
    return define(r, name, &value->type, UINT32_MAX, value, &id);
}

/* ---- ops ---- */

/* Insertion sort would be quadratic in a hostile op, so heap sort: no memory, n log n always. */
static void sift(struct teg_mil_arg *args, size_t root, size_t n)
{
    for (size_t child; (child = 2 * root + 1) < n; root = child) {
        if (child + 1 < n && strcmp(args[child].name, args[child + 1].name) < 0)
            child++;
        if (strcmp(args[root].name, args[child].name) >= 0)
            return;
        const struct teg_mil_arg swap = args[root];
        args[root] = args[child];
        args[child] = swap;
    }
}

static void sort_args(struct teg_mil_arg *args, size_t n)
{
    for (size_t i = n / 2; i-- > 0;)
        sift(args, i, n);
    for (size_t end = n; end-- > 1;) {
        const struct teg_mil_arg swap = args[0];
        args[0] = args[end];
        args[end] = swap;
        sift(args, 0, end);
    }
}

enum teg_status teg_mil_seal_op(struct teg_mil_reader *r, struct teg_mil_op *op, struct teg_mil_arg *args,
                                const uint8_t *at)
{
    sort_args(args, op->n_args);
    for (size_t i = 1; i < op->n_args; i++)
        if (args[i].name == args[i - 1].name) /* interned */
            MIL_FAIL(r, TEG_ERR_FORMAT, at,
                     "expected each parameter of op '%.60s' (%.40s) once, found '%.40s' twice; export the model again",
                     op->name, op->type, args[i].name);
    op->args = args;
    op->file_offset = (uint64_t)(at - r->base);
    return TEG_OK;
}

/* ---- functions ---- */

static int compare_functions(const void *a, const void *b)
{
    return strcmp(((const struct teg_mil_function *)a)->name, ((const struct teg_mil_function *)b)->name);
}

enum teg_status teg_mil_seal_functions(struct teg_mil_reader *r, const uint8_t *at)
{
    enum { MOST_FUNCTIONS = 1024 }; /* keeps qsort's worst case harmless; real models have a dozen */
    struct teg_mil_program *const p = r->program;
    if (!p->n_functions || p->n_functions > MOST_FUNCTIONS)
        MIL_FAIL(r, TEG_ERR_FORMAT, at, "expected 1 to %d functions, found %zu; export the model again", MOST_FUNCTIONS,
                 p->n_functions);
    qsort(p->functions, p->n_functions, sizeof *p->functions, compare_functions);
    for (size_t i = 1; i < p->n_functions; i++)
        if (compare_functions(&p->functions[i - 1], &p->functions[i]) == 0)
            MIL_FAIL(r, TEG_ERR_FORMAT, at,
                     "expected one function of each name, found '%.80s' twice; export the model "
                     "again",
                     p->functions[i].name);
    return TEG_OK;
}

/* ---- opsets ---- */

static const struct {
    const char *name, *tag;
    uint32_t opset;
} opsets[] = {{"CoreML5", "ios15", 6}, {"CoreML6", "ios16", 7},  {"CoreML7", "ios17", 8},
              {"CoreML8", "ios18", 9}, {"CoreML9", "ios26", 10}, {"CoreML9", "ios19", 10}};

enum teg_status teg_mil_opset(const struct teg_mil_reader *r, struct teg_span name, bool is_tag, uint32_t *opset,
                              const char **canonical)
{
    for (size_t i = 0; i < sizeof opsets / sizeof *opsets; i++) {
        const char *const known = is_tag ? opsets[i].tag : opsets[i].name;
        if (strlen(known) == name.n_bytes && memcmp(known, name.bytes, name.n_bytes) == 0) {
            *opset = opsets[i].opset;
            *canonical = opsets[i].name;
            return TEG_OK;
        }
    }
    MIL_FAIL(r, TEG_ERR_UNSUPPORTED, name.bytes, "expected an opset from %s to %s, found '%.*s'; update tegula",
             is_tag ? "ios15" : "CoreML5", is_tag ? "ios26" : "CoreML9", MIL_NAME(name));
}

/* ---- look-up ---- */

const struct teg_mil_function *teg_mil_find_function(const struct teg_mil_program *program, const char *name)
{
    for (size_t i = 0; i < program->n_functions; i++)
        if (strcmp(program->functions[i].name, name) == 0)
            return &program->functions[i];
    return NULL;
}

const struct teg_mil_arg *teg_mil_find_arg(const struct teg_mil_op *op, const char *name)
{
    size_t begin = 0, end = op->n_args;
    while (begin < end) {
        const size_t middle = begin + (end - begin) / 2;
        const int order = strcmp(name, op->args[middle].name);
        if (order == 0)
            return &op->args[middle];
        if (order < 0)
            end = middle;
        else
            begin = middle + 1;
    }
    return NULL;
}

const struct teg_mil_var *teg_mil_arg_var(const struct teg_mil_program *program, const struct teg_mil_op *op,
                                          const char *name)
{
    const struct teg_mil_arg *const arg = teg_mil_find_arg(op, name);
    return arg && arg->n_vars == 1 ? &program->vars[arg->vars[0]] : NULL;
}
