/* eval/call.c: an op's view of the frame: its parameters, its outputs, its scratch memory, its error messages.
 *
 * Invariant: what an op gets from here fits its declaration: an output has the declared form, rank and known
 * dimensions, a scalar is a scalar, an axis is inside the rank. So ops check only relations between their operands. */
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "eval/frame.h"

/* Below this many rough operations a job is not worth waking threads for; a slice is at least a quarter of it. */
#define PARALLEL_OPERATIONS ((size_t)1 << 17)
#define LONGEST_SLICE ((size_t)1 << 28) /* operations */

static const char *const form_names[] = {"floats", "integers", "bools", "strings", "a list"};

const struct teg_array *teg_arg_at(const struct teg_eval_call *c, const char *name, size_t index)
{
    const struct teg_mil_arg *const arg = teg_mil_find_arg(c->op, name);
    return arg && index < arg->n_vars ? teg_frame_value(c->frame, arg->vars[index]) : NULL;
}

const struct teg_array *teg_arg(const struct teg_eval_call *c, const char *name)
{
    return teg_arg_at(c, name, 0);
}

size_t teg_arg_count(const struct teg_eval_call *c, const char *name)
{
    const struct teg_mil_arg *const arg = teg_mil_find_arg(c->op, name);
    return arg ? arg->n_vars : 0;
}

enum teg_status teg_arg_any(const struct teg_eval_call *c, const char *name, const struct teg_array **array)
{
    const struct teg_array *const a = teg_arg(c, name);
    if (!a)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter %s: expected a value, found none", name);
    *array = a;
    return TEG_OK;
}

enum teg_status teg_arg_form(const struct teg_eval_call *c, const char *name, enum teg_form form,
                             const struct teg_array **array)
{
    const struct teg_array *a;
    TRY(teg_arg_any(c, name, &a));
    if (a->form != form)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter %s: expected %s, found %s", name, form_names[form], form_names[a->form]);
    *array = a;
    return TEG_OK;
}

/* *array stays NULL where the parameter is absent. */
static enum teg_status scalar(const struct teg_eval_call *c, const char *name, enum teg_form form,
                              const struct teg_array **array)
{
    *array = NULL;
    if (!teg_arg(c, name))
        return TEG_OK;
    TRY(teg_arg_form(c, name, form, array));
    if ((*array)->n != 1)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter %s: expected one value, found %zu", name, (*array)->n);
    return TEG_OK;
}

enum teg_status teg_arg_int(const struct teg_eval_call *c, const char *name, int32_t otherwise, int32_t *out)
{
    const struct teg_array *a;
    TRY(scalar(c, name, TEG_FORM_I32, &a));
    *out = a ? a->i32[0] : otherwise;
    return TEG_OK;
}

enum teg_status teg_arg_float(const struct teg_eval_call *c, const char *name, float otherwise, float *out)
{
    const struct teg_array *a;
    TRY(scalar(c, name, TEG_FORM_F32, &a));
    *out = a ? a->f32[0] : otherwise;
    return TEG_OK;
}

enum teg_status teg_arg_bool(const struct teg_eval_call *c, const char *name, bool otherwise, bool *out)
{
    const struct teg_array *a;
    TRY(scalar(c, name, TEG_FORM_BOOL, &a));
    *out = a ? a->b[0] != 0 : otherwise;
    return TEG_OK;
}

enum teg_status teg_arg_string(const struct teg_eval_call *c, const char *name, const char *otherwise,
                               struct teg_string *out)
{
    const struct teg_array *a;
    TRY(scalar(c, name, TEG_FORM_STRING, &a));
    *out = a ? a->strings[0] : (struct teg_string){otherwise, strlen(otherwise)};
    return TEG_OK;
}

bool teg_string_is(struct teg_string string, const char *text)
{
    return string.n_bytes == strlen(text) && (!string.n_bytes || memcmp(string.bytes, text, string.n_bytes) == 0);
}

enum teg_status teg_arg_ints(const struct teg_eval_call *c, const char *name, int32_t *out, size_t capacity, size_t *n)
{
    const struct teg_array *a;
    *n = SIZE_MAX;
    if (!teg_arg(c, name))
        return TEG_OK;
    TRY(teg_arg_form(c, name, TEG_FORM_I32, &a));
    if (a->n > capacity || a->rank > 1)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter %s: expected a list of at most %zu integers, found shape %s", name,
                capacity, teg_shape_text(a->rank, a->dims).text);
    if (a->n)
        memcpy(out, a->i32, a->n * sizeof *out);
    *n = a->n;
    return TEG_OK;
}

static enum teg_status settle_axis(const struct teg_eval_call *c, const char *name, int32_t axis, uint32_t rank,
                                   uint32_t *out)
{
    const int64_t settled = axis < 0 ? (int64_t)axis + rank : axis;
    if (settled < 0 || settled >= rank)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter %s: expected an axis of rank %u, found %d", name, rank, axis);
    *out = (uint32_t)settled;
    return TEG_OK;
}

enum teg_status teg_arg_axis(const struct teg_eval_call *c, const char *name, int32_t otherwise, uint32_t rank,
                             uint32_t *out)
{
    int32_t axis;
    TRY(teg_arg_int(c, name, otherwise, &axis));
    return settle_axis(c, name, axis, rank, out);
}

enum teg_status teg_arg_axes(const struct teg_eval_call *c, const char *name, uint32_t rank, uint32_t otherwise,
                             uint32_t *mask)
{
    int32_t axes[TEG_MIL_MAX_RANK];
    size_t n;
    TRY(teg_arg_ints(c, name, axes, TEG_MIL_MAX_RANK, &n));
    *mask = n == SIZE_MAX ? otherwise : 0;
    for (size_t i = 0; n != SIZE_MAX && i < n; i++) {
        uint32_t d;
        TRY(settle_axis(c, name, axes[i], rank, &d));
        if (*mask >> d & 1)
            OP_FAIL(c, TEG_ERR_FORMAT, "parameter %s: expected each axis once, found %d twice", name, axes[i]);
        *mask |= 1u << d;
    }
    return TEG_OK;
}

enum teg_mil_dtype teg_output_dtype(const struct teg_eval_call *c, size_t index)
{
    if (index >= c->op->n_outputs)
        return TEG_MIL_FP32;
    const struct teg_mil_type *const t = &c->frame->eval->program->vars[c->op->outputs[index]].type;
    const struct teg_mil_type *const of = t->kind == TEG_MIL_LIST && t->element ? t->element : t;
    return of->dtype;
}

bool teg_output_declared(const struct teg_eval_call *c, size_t index, uint32_t *rank, size_t *dims)
{
    const struct teg_mil_type *const t = &c->frame->eval->program->vars[c->op->outputs[index]].type;
    bool known = t->kind == TEG_MIL_TENSOR && t->rank >= 0;
    for (int32_t d = 0; known && d < t->rank; d++) {
        known = t->dims[d] >= 0;
        dims[d] = (size_t)t->dims[d];
    }
    *rank = known ? (uint32_t)t->rank : 0;
    return known;
}

struct teg_shape_text teg_shape_text(uint32_t rank, const size_t *dims)
{
    struct teg_shape_text s = {"scalar"};
    size_t at = 0;
    for (uint32_t d = 0; d < rank && d < TEG_MIL_MAX_RANK; d++)
        at += (size_t)snprintf(s.text + at, sizeof s.text - at, "%s%zu", d ? "x" : "", dims[d]);
    return s;
}

/* ---- outputs ---- */

static enum teg_status check_declared(const struct teg_eval_call *c, teg_mil_var_id var, uint32_t rank,
                                      const size_t *dims)
{
    const struct teg_mil_var *const v = &c->frame->eval->program->vars[var];
    bool fits = (v->type.kind == TEG_MIL_TENSOR || v->type.kind == TEG_MIL_STATE) && rank <= TEG_MIL_MAX_RANK;
    if (fits && v->type.rank >= 0) {
        fits = (uint32_t)v->type.rank == rank;
        for (uint32_t d = 0; fits && d < rank; d++)
            fits = v->type.dims[d] == TEG_MIL_UNKNOWN || (uint64_t)v->type.dims[d] == dims[d];
    }
    if (fits)
        return TEG_OK;
    char declared[24 * TEG_MIL_MAX_RANK] = "scalar";
    size_t at = 0;
    for (int32_t d = 0; v->type.kind != TEG_MIL_LIST && d < v->type.rank; d++)
        at += (size_t)snprintf(declared + at, sizeof declared - at, v->type.dims[d] < 0 ? "%s?" : "%s%lld",
                               d ? "x" : "", (long long)v->type.dims[d]);
    OP_FAIL(c, TEG_ERR_FORMAT, "output %s: expected the declared shape %s, found %s", v->name, declared,
            teg_shape_text(rank < TEG_MIL_MAX_RANK ? rank : TEG_MIL_MAX_RANK, dims).text);
}

static enum teg_status check_form(const struct teg_eval_call *c, const struct teg_mil_var *v, enum teg_form form)
{
    const enum teg_form declared = teg_form_of(v->type.dtype);
    if (form != declared)
        OP_FAIL(c, TEG_ERR_FORMAT, "output %s: expected %s as declared, found %s", v->name, form_names[declared],
                form_names[form]);
    return TEG_OK;
}

enum teg_status teg_frame_bind(struct teg_eval_call *c, teg_mil_var_id var, struct teg_array *array)
{
    struct teg_eval_frame *const f = c->frame;
    const struct teg_mil_var *const v = &f->eval->program->vars[var];
    enum teg_status s = TEG_OK;
    const bool is_list = v->type.kind == TEG_MIL_LIST || v->type.kind == TEG_MIL_DICT;
    if (is_list != (array->form == TEG_FORM_LIST))
        s = teg_op_fail(c, TEG_ERR_FORMAT, "output %s: expected a value of the declared kind, found another", v->name);
    else if (!is_list)
        s = check_form(c, v, array->form);
    if (s == TEG_OK && !is_list)
        s = check_declared(c, var, array->rank, array->dims);
    if (s != TEG_OK) {
        teg_array_drop(c->allocator, array);
        return s;
    }
    struct teg_array *const before = f->values[var];
    f->values[var] = array;
    teg_array_drop(c->allocator, before);
    return TEG_OK;
}

static enum teg_status find_output(const struct teg_eval_call *c, size_t index, teg_mil_var_id *var)
{
    if (index >= c->op->n_outputs)
        OP_FAIL(c, TEG_ERR_FORMAT, "outputs: expected at least %zu, found %zu", index + 1, c->op->n_outputs);
    *var = c->op->outputs[index];
    return TEG_OK;
}

static enum teg_status fail_memory(const struct teg_eval_call *c, const char *what, uint32_t rank, const size_t *dims)
{
    OP_FAIL(c, TEG_ERR_MEMORY,
            "%s of shape %s: expected it to fit into memory beside %llu bytes of values (limit "
            "%llu), found no room",
            what, teg_shape_text(rank, dims).text, (unsigned long long)c->frame->live_bytes,
            (unsigned long long)c->frame->eval->options.max_bytes);
}

enum teg_status teg_output(struct teg_eval_call *c, size_t index, enum teg_form form, uint32_t rank, const size_t *dims,
                           struct teg_array **array)
{
    teg_mil_var_id var;
    TRY(find_output(c, index, &var));
    TRY(check_declared(c, var, rank, dims));
    TRY(check_form(c, &c->frame->eval->program->vars[var], form));
    struct teg_array *const made = teg_array_new(c->allocator, teg_output_dtype(c, index), rank, dims);
    if (!made)
        return fail_memory(c, "output", rank, dims);
    TRY(teg_frame_bind(c, var, made));
    *array = made;
    return TEG_OK;
}

enum teg_status teg_output_share(struct teg_eval_call *c, size_t index, const struct teg_array *array, uint32_t rank,
                                 const size_t *dims)
{
    teg_mil_var_id var;
    TRY(find_output(c, index, &var));
    if (array->form == TEG_FORM_LIST)
        return teg_frame_bind(c, var, teg_array_ref((struct teg_array *)array));
    size_t n = 1;
    for (uint32_t d = 0; d < rank; d++)
        if (!teg_mul(n, dims[d], &n))
            n = SIZE_MAX;
    if (n != array->n)
        OP_FAIL(c, TEG_ERR_FORMAT, "output: expected a shape of %zu elements, found %s", array->n,
                teg_shape_text(rank, dims).text);
    TRY(check_declared(c, var, rank, dims));
    const enum teg_mil_dtype dtype = teg_output_dtype(c, index);
    if (dtype != array->dtype &&
        teg_form_of(dtype) == array->form) { /* it may have to be rounded: not the same values */
        struct teg_array *copy;
        TRY(teg_output(c, index, array->form, rank, dims, &copy));
        memcpy(copy->data, array->data, copy->n_bytes);
        return TEG_OK;
    }
    struct teg_array *const view = c->allocator->alloc(c->allocator->ctx, sizeof *view, _Alignof(struct teg_array));
    if (!view)
        return fail_memory(c, "output", rank, dims);
    struct teg_array *const owner = array->owner ? array->owner : (struct teg_array *)array;
    *view = (struct teg_array){.owner = teg_array_ref(owner),
                               .dtype = array->dtype,
                               .form = array->form,
                               .rank = rank,
                               .n = array->n,
                               .data = array->data};
    atomic_init(&view->n_refs, 1);
    for (uint32_t d = 0; d < rank; d++)
        view->dims[d] = dims[d];
    return teg_frame_bind(c, var, view);
}

enum teg_status teg_output_list(struct teg_eval_call *c, size_t index, enum teg_mil_dtype dtype, size_t n,
                                struct teg_array **list)
{
    teg_mil_var_id var;
    TRY(find_output(c, index, &var));
    struct teg_array *const made = teg_array_list_new(c->allocator, dtype, n);
    if (!made)
        return fail_memory(c, "list", 1, &n);
    TRY(teg_frame_bind(c, var, made));
    *list = made;
    return TEG_OK;
}

/* ---- scratch, errors, threads ---- */

enum teg_status teg_op_scratch(struct teg_eval_call *c, size_t n, size_t item_bytes, void **memory)
{
    size_t size;
    struct teg_eval_scratch *block = NULL;
    if (teg_mul(n, item_bytes, &size) && teg_add(size, TEG_ALIGN, &size))
        block = c->allocator->alloc(c->allocator->ctx, size, TEG_ALIGN);
    if (!block)
        return fail_memory(c, "scratch memory", 1, &n);
    *block = (struct teg_eval_scratch){c->frame->scratch, size};
    c->frame->scratch = block;
    *memory = (char *)block + TEG_ALIGN;
    return TEG_OK;
}

enum teg_status teg_op_fail(const struct teg_eval_call *c, enum teg_status status, const char *format, ...)
{
    static const char *const opsets[] = {"iOS15", "iOS16", "iOS17", "iOS18", "iOS26"};
    const struct teg_mil_op *const op = c->op;
    const char *name = op->name && *op->name ? op->name : "?";
    if (*name == '?' && op->n_outputs)
        name = c->frame->eval->program->vars[op->outputs[0]].name;
    char what[320];
    va_list args;
    va_start(args, format);
    if (vsnprintf(what, sizeof what, format, args) < 0)
        what[0] = '\0';
    va_end(args);
    return teg_base_fail(c->err, status, op->file_offset, "cannot run op: %.80s (%.40s, %s): %s", name, op->type,
                         c->opset >= 6 && c->opset <= 10 ? opsets[c->opset - 6] : "?", what);
}

struct stoppable {
    teg_pool_fn fn;
    void *ctx;
    const volatile bool *stop;
};

static void run_unless_stopped(void *ctx, size_t slice, size_t worker)
{
    const struct stoppable *const s = ctx;
    if (!*s->stop)
        s->fn(s->ctx, slice, worker);
}

void teg_op_run(const struct teg_eval_call *c, teg_pool_fn fn, void *ctx, size_t n_slices)
{
    struct stoppable s = {fn, ctx, c->frame->stop};
    if (s.stop)
        teg_pool_run(c->pool, run_unless_stopped, &s, n_slices);
    else
        teg_pool_run(c->pool, fn, ctx, n_slices);
}

bool teg_op_stopped(const struct teg_eval_call *c)
{
    return c->frame->stop && *c->frame->stop;
}

struct slices {
    void (*fn)(void *ctx, size_t begin, size_t end);
    void *ctx;
    size_t n, n_slices;
};

static void run_slice(void *ctx, size_t slice, size_t worker)
{
    const struct slices *const s = ctx;
    (void)worker;
    const size_t each = s->n / s->n_slices, more = s->n % s->n_slices;
    const size_t begin = slice * each + teg_min(slice, more);
    s->fn(s->ctx, begin, begin + each + (slice < more));
}

void teg_op_parallel(const struct teg_eval_call *c, size_t n, size_t cost,
                     void (*fn)(void *ctx, size_t begin, size_t end), void *ctx)
{
    const size_t threads = teg_pool_threads(c->pool);
    size_t work;
    if (!teg_mul(n, cost ? cost : 1, &work))
        work = SIZE_MAX;
    if (n < 2 || work < PARALLEL_OPERATIONS) {
        if (n)
            fn(ctx, 0, n);
        return;
    }
    /* Several slices a thread, so that one that is held up does not hold up all; none so long that a user waits for it.
     */
    const size_t most = teg_min(n, teg_max(4 * threads, work / LONGEST_SLICE));
    struct slices s = {fn, ctx, n, teg_max(1, teg_min(most, work / (PARALLEL_OPERATIONS / 4)))};
    teg_op_run(c, run_slice, &s, s.n_slices);
}
