/* eval/eval.c: one run of a function: steps in order, control flow, states.
 *
 * Invariant: a state variable's array in the frame is what a read sees now; the state object itself is touched only
 * after the last op has succeeded, by exchanging pointers, so a failed run changes nothing. Writing costs no copy: the
 * written value becomes the state.
 * Not taken: writing states in place. It would save the copy that slice_update makes of a cache; programs whose caches
 * are that large are recognised and run by the planner instead. */
#include <math.h>
#include <string.h>

#include "dtype/round.h"
#include "eval/frame.h"

/* ---- memory of a run ---- */

static void *frame_alloc(void *ctx, size_t size_bytes, size_t align_bytes)
{
    struct teg_eval_frame *const f = ctx;
    const struct teg_allocator *const a = f->eval->options.allocator;
    if (size_bytes > f->eval->options.max_bytes || f->live_bytes > f->eval->options.max_bytes - size_bytes)
        return NULL;
    void *const p = a->alloc(a->ctx, size_bytes, align_bytes);
    if (p) {
        f->live_bytes += size_bytes;
        if (f->live_bytes > f->report.peak_bytes)
            f->report.peak_bytes = f->live_bytes;
    }
    return p;
}

/* A run may free what it did not allocate (the last reference to an input), so the count stops at zero. */
static void frame_free(void *ctx, void *ptr, size_t size_bytes)
{
    struct teg_eval_frame *const f = ctx;
    const struct teg_allocator *const a = f->eval->options.allocator;
    if (ptr)
        f->live_bytes -= size_bytes < f->live_bytes ? size_bytes : f->live_bytes;
    a->free(a->ctx, ptr, size_bytes);
}

void teg_frame_init(struct teg_eval_frame *f, const struct teg_eval *eval, struct teg_array **values,
                    struct teg_error *err)
{
    *f = (struct teg_eval_frame){.eval = eval, .values = values, .random = eval->options.seed, .err = err};
    f->allocator = (struct teg_allocator){frame_alloc, frame_free, f};
}

/* ---- one op ---- */

static void free_scratch(struct teg_eval_frame *f)
{
    while (f->scratch) {
        struct teg_eval_scratch *const block = f->scratch;
        f->scratch = block->next;
        f->allocator.free(f->allocator.ctx, block, block->size_bytes);
    }
}

struct rounding {
    float *x;
    atomic_bool overflowed;
};

static void round_f16(void *ctx, size_t begin, size_t end)
{
    struct rounding *const r = ctx;
    if (teg_round_f16(r->x + begin, r->x + begin, end - begin))
        atomic_store(&r->overflowed, true);
}

static void wrap_ints(int32_t *x, size_t n, const struct teg_mil_dtype_info *info)
{
    const uint32_t mask = (1u << info->bits) - 1;
    const uint32_t sign = info->class_ == TEG_MIL_CLASS_INT ? 1u << (info->bits - 1) : 0;
    for (size_t i = 0; i < n; i++)
        x[i] = (int32_t)((((uint32_t)x[i] & mask) ^ sign) - sign);
}

static bool any_infinite(const struct teg_array *a)
{
    bool any = false;
    if (a && a->form == TEG_FORM_F32)
        for (size_t i = 0; i < a->n && !any; i++)
            any = isinf(a->f32[i]);
    return any;
}

/* An infinity that came in through an operand is not this op's overflow. */
static bool made_infinity(const struct teg_eval_call *c)
{
    for (size_t a = 0; a < c->op->n_args; a++)
        for (size_t i = 0; i < c->op->args[a].n_vars; i++)
            if (any_infinite(teg_frame_value(c->frame, c->op->args[a].vars[i])))
                return false;
    return true;
}

/* Gives a fresh output the values its declared type can hold. */
static void settle(struct teg_eval_call *c, struct teg_array *array)
{
    struct teg_eval_frame *const f = c->frame;
    const struct teg_mil_dtype_info *const info = teg_mil_dtype_info(array->dtype);
    if (array->owner || atomic_load(&array->n_refs) != 1)
        return;
    if (array->form == TEG_FORM_I32 && info->bits < 32)
        wrap_ints(array->i32, array->n, info);
    if (array->form != TEG_FORM_F32 || array->dtype != TEG_MIL_FP16 || !f->eval->options.emulate_fp16)
        return;
    struct rounding r = {.x = array->f32};
    teg_op_parallel(c, array->n, 4, round_f16, &r);
    bool overflowed = atomic_load(&r.overflowed);
    if (!f->report.overflow_op && !overflowed)
        overflowed = any_infinite(array) && made_infinity(c);
    if (overflowed && !f->report.overflow_op)
        f->report.overflow_op = *c->op->name ? c->op->name : f->eval->program->vars[c->op->outputs[0]].name;
}

enum teg_status teg_frame_step(struct teg_eval_frame *f, const struct teg_eval_step *step)
{
    struct teg_eval_call call = {.op = step->op,
                                 .opset = step->op->opset ? step->op->opset : f->eval->function->opset,
                                 .kernels = &f->eval->kernels,
                                 .pool = f->eval->pool,
                                 .allocator = &f->allocator,
                                 .err = f->err,
                                 .random = &f->random,
                                 .frame = f};
    struct teg_eval_scratch *const outer = f->scratch;
    f->scratch = NULL;
    f->step = step;
    f->report.n_ops++;
    const enum teg_status s = step->row->fn(&call);
    free_scratch(f);
    f->scratch = outer;
    if (s != TEG_OK)
        return s;
    if (f->stop && *f->stop) /* perhaps in the middle of it */
        FAIL(f->err, TEG_ERR_INTERRUPTED, "cannot finish prediction: function %s: stopped on request in op %s",
             f->eval->function->name, step->op->name);
    for (size_t i = 0; i < step->op->n_outputs; i++) {
        struct teg_array *const array = f->values[step->op->outputs[i]];
        if (!array)
            return teg_op_fail(&call, TEG_ERR_FORMAT, "outputs: expected as many as the op has, found %zu declared",
                               step->op->n_outputs);
        settle(&call, array);
        if (f->watch)
            f->watch->on_value(f->watch->ctx, f->eval->program->vars[step->op->outputs[i]].name, array);
    }
    for (size_t i = 0; i < step->n_dead; i++) {
        teg_array_drop(&f->allocator, f->values[step->dead[i]]);
        f->values[step->dead[i]] = NULL;
    }
    return TEG_OK;
}

/* ---- blocks and control flow: the reader has compared the numbers of inputs and outputs ---- */

static enum teg_status run_block(struct teg_eval_frame *f, const struct teg_eval_block *b)
{
    for (size_t i = 0; i < b->n_steps; i++) {
        if (f->stop && *f->stop)
            FAIL(f->err, TEG_ERR_INTERRUPTED, "cannot finish prediction: function %s: stopped on request before op %s",
                 f->eval->function->name, b->steps[i].op->name);
        TRY(teg_frame_step(f, &b->steps[i]));
    }
    return TEG_OK;
}

static void drop_var(struct teg_eval_frame *f, teg_mil_var_id var)
{
    teg_array_drop(&f->allocator, f->values[var]);
    f->values[var] = NULL;
}

/* Drops everything that the block defined. */
static void leave_block(struct teg_eval_frame *f, const struct teg_eval_block *b)
{
    for (size_t i = 0; i < b->block->n_inputs; i++)
        drop_var(f, b->block->inputs[i]);
    for (size_t i = 0; i < b->n_steps; i++)
        for (size_t o = 0; o < b->steps[i].op->n_outputs; o++)
            drop_var(f, b->steps[i].op->outputs[o]);
}

/* A new reference to each of the block's outputs. */
static enum teg_status take_outputs(struct teg_eval_call *c, const struct teg_eval_block *b, struct teg_array **out)
{
    for (size_t i = 0; i < b->block->n_outputs; i++) {
        const struct teg_array *const a = teg_frame_value(c->frame, b->block->outputs[i]);
        if (!a) {
            while (i)
                teg_array_drop(c->allocator, out[--i]);
            OP_FAIL(c, TEG_ERR_FORMAT, "block: expected a value for each output, found none");
        }
        out[i] = teg_array_ref((struct teg_array *)a);
    }
    return TEG_OK;
}

/* Gives away the references of `arrays` to variables; those that are left after a failure are dropped. */
static enum teg_status bind_all(struct teg_eval_call *c, const teg_mil_var_id *vars, size_t n,
                                struct teg_array **arrays)
{
    enum teg_status s = TEG_OK;
    for (size_t i = 0; i < n; i++) {
        if (s == TEG_OK)
            s = teg_frame_bind(c, vars[i], arrays[i]);
        else
            teg_array_drop(c->allocator, arrays[i]);
        arrays[i] = NULL;
    }
    return s;
}

static enum teg_status op_cond(struct teg_eval_call *c)
{
    const struct teg_eval_step *const step = c->frame->step;
    const struct teg_array *pred;
    TRY(teg_arg_form(c, "pred", TEG_FORM_BOOL, &pred));
    if (pred->n != 1)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter pred: expected one bool, found %zu", pred->n);
    const struct teg_eval_block *const b = &step->blocks[pred->b[0] ? 0 : 1];
    void *arrays;
    TRY(teg_op_scratch(c, c->op->n_outputs, sizeof(struct teg_array *), &arrays));
    TRY(run_block(c->frame, b));
    TRY(take_outputs(c, b, arrays));
    leave_block(c->frame, b);
    return bind_all(c, c->op->outputs, c->op->n_outputs, arrays);
}

/* Binds a reference to each loop variable to the block's inputs and runs it. */
static enum teg_status run_with(struct teg_eval_call *c, const struct teg_eval_block *b, struct teg_array **vars)
{
    for (size_t i = 0; i < b->block->n_inputs; i++)
        TRY(teg_frame_bind(c, b->block->inputs[i], teg_array_ref(vars[i])));
    return run_block(c->frame, b);
}

static enum teg_status test_condition(struct teg_eval_call *c, const struct teg_eval_block *b, struct teg_array **vars,
                                      bool *go_on)
{
    TRY(run_with(c, b, vars));
    const struct teg_array *const a = teg_frame_value(c->frame, b->block->outputs[0]);
    if (!a || a->form != TEG_FORM_BOOL || a->n != 1)
        OP_FAIL(c, TEG_ERR_FORMAT, "condition: expected one bool, found another value");
    *go_on = a->b[0] != 0;
    leave_block(c->frame, b);
    return TEG_OK;
}

static enum teg_status loop(struct teg_eval_call *c, const struct teg_eval_step *step, struct teg_array **vars,
                            struct teg_array **next, size_t n)
{
    const uint64_t limit = c->frame->eval->options.max_loop_iterations;
    const struct teg_eval_block *const body = &step->blocks[1];
    for (uint64_t iteration = 0;; iteration++) {
        bool go_on;
        TRY(test_condition(c, &step->blocks[0], vars, &go_on));
        if (!go_on)
            return TEG_OK;
        if (iteration == limit)
            OP_FAIL(c, TEG_ERR_UNSUPPORTED,
                    "loop: expected an end within %llu iterations, found none; raise the limit "
                    "if the program is meant to run that long",
                    (unsigned long long)limit);
        if (c->frame->stop && *c->frame->stop)
            OP_FAIL(c, TEG_ERR_INTERRUPTED, "loop: stopped on request in iteration %llu",
                    (unsigned long long)iteration);
        TRY(run_with(c, body, vars));
        TRY(take_outputs(c, body, next));
        leave_block(c->frame, body);
        for (size_t i = 0; i < n; i++) {
            teg_array_drop(c->allocator, vars[i]);
            vars[i] = next[i];
        }
    }
}

static enum teg_status op_while_loop(struct teg_eval_call *c)
{
    const struct teg_mil_op *const op = c->op;
    const struct teg_eval_step *const step = c->frame->step;
    const size_t n = teg_arg_count(c, "loop_vars");
    void *memory;
    TRY(teg_op_scratch(c, 2 * n, sizeof(struct teg_array *), &memory));
    struct teg_array **const vars = memory, **const next = vars + n;
    memset(vars, 0, 2 * n * sizeof *vars);
    for (size_t i = 0; i < n; i++)
        if (!teg_arg_at(c, "loop_vars", i))
            OP_FAIL(c, TEG_ERR_FORMAT, "loop_vars: expected a value for each, found none for number %zu", i);
    for (size_t i = 0; i < n; i++)
        vars[i] = teg_array_ref((struct teg_array *)teg_arg_at(c, "loop_vars", i));
    const enum teg_status s = loop(c, step, vars, next, n);
    if (s == TEG_OK)
        return bind_all(c, op->outputs, n, vars);
    for (size_t i = 0; i < n; i++)
        teg_array_drop(c->allocator, vars[i]);
    return s;
}

/* ---- states ---- */

/* The reader has checked that it is one. */
static teg_mil_var_id state_var(const struct teg_eval_call *c)
{
    return teg_mil_find_arg(c->op, "input")->vars[0];
}

static enum teg_status op_read_state(struct teg_eval_call *c)
{
    const struct teg_array *const value = c->frame->values[state_var(c)];
    return teg_output_share(c, 0, value, value->rank, value->dims);
}

static enum teg_status op_write_state(struct teg_eval_call *c)
{
    const teg_mil_var_id var = state_var(c);
    const struct teg_array *data;
    TRY(teg_arg_any(c, "data", &data));
    struct teg_array *const rounded =
        teg_array_as(c->allocator, (struct teg_array *)data, c->frame->eval->program->vars[var].type.dtype);
    if (!rounded)
        OP_FAIL(c, TEG_ERR_MEMORY, "state: expected memory for its new value, found none");
    return teg_frame_bind(c, var, rounded);
}

/* ---- a run ---- */

static enum teg_status fail_input(struct teg_eval_frame *f, const struct teg_mil_var *v, const struct teg_array *a)
{
    FAIL(f->err, TEG_ERR_ARGUMENT,
         "cannot predict: input %.100s: expected %s as the function declares it, found %s of "
         "shape %s",
         v->name, teg_mil_dtype_info(v->type.dtype)->name, teg_mil_dtype_info(a->dtype)->name,
         teg_shape_text(a->rank, a->dims).text);
}

static enum teg_status set_input(struct teg_eval_frame *f, teg_mil_var_id var, struct teg_array *array)
{
    const struct teg_mil_var *const v = &f->eval->program->vars[var];
    if (!array)
        FAIL(f->err, TEG_ERR_ARGUMENT, "cannot predict: input %.100s: expected a value, found none", v->name);
    bool fits = array->form == teg_form_of(v->type.dtype) && v->type.kind == TEG_MIL_TENSOR &&
                (v->type.rank < 0 || (uint32_t)v->type.rank == array->rank);
    for (int32_t d = 0; fits && d < v->type.rank; d++)
        fits = v->type.dims[d] == TEG_MIL_UNKNOWN || (uint64_t)v->type.dims[d] == array->dims[d];
    if (!fits)
        return fail_input(f, v, array);
    f->values[var] = teg_array_as(&f->allocator, array, v->type.dtype);
    return f->values[var] ? TEG_OK : teg_base_fail_memory(f->err, "an input", array->n * sizeof(float));
}

static enum teg_status set_inputs(struct teg_eval_frame *f, struct teg_array *const *inputs,
                                  const struct teg_eval_state *state)
{
    const struct teg_mil_block *const b = &f->eval->function->block;
    for (size_t i = 0, given = 0; i < b->n_inputs; i++) {
        const teg_mil_var_id var = b->inputs[i];
        const struct teg_mil_var *const v = &f->eval->program->vars[var];
        if (v->type.kind != TEG_MIL_STATE) {
            TRY(set_input(f, var, inputs[given++]));
            continue;
        }
        const struct teg_array *const value = state ? teg_eval_state_array(state, v->name) : NULL;
        if (!value)
            FAIL(f->err, TEG_ERR_ARGUMENT,
                 "cannot predict: state %.100s: expected a state object that holds it, found "
                 "none; make one with make_state and pass it",
                 v->name);
        f->values[var] = teg_array_ref((struct teg_array *)value);
    }
    return TEG_OK;
}

/* A reference to the array, or to a rounded copy; NULL: no memory. */
static struct teg_array *get_output(const struct teg_eval_frame *f, size_t index, struct teg_array *array,
                                    enum teg_mil_dtype dtype)
{
    if (array->form == TEG_FORM_LIST)
        return teg_array_ref(array);
    const bool is_half = f->eval->half_outputs[index];
    struct teg_array *const out = teg_array_as(&f->allocator, array, is_half ? TEG_MIL_FP16 : dtype);
    if (is_half && out && out != array)
        out->dtype = dtype;
    return out;
}

static enum teg_status get_outputs(struct teg_eval_frame *f, struct teg_array **outputs)
{
    const struct teg_mil_block *const b = &f->eval->function->block;
    for (size_t i = 0; i < b->n_outputs; i++) {
        const struct teg_mil_var *const v = &f->eval->program->vars[b->outputs[i]];
        const struct teg_array *const a = teg_frame_value(f, b->outputs[i]);
        if (!a)
            FAIL(f->err, TEG_ERR_FORMAT, "cannot predict: output %.100s: expected a value, found none", v->name);
        outputs[i] = get_output(f, i, (struct teg_array *)a, v->type.dtype);
        if (!outputs[i])
            return teg_base_fail_memory(f->err, "an output", a->n * sizeof(float));
    }
    return TEG_OK;
}

/* Cannot fail: names and types were settled when the values came in. */
static void commit_states(struct teg_eval_frame *f, struct teg_eval_state *state)
{
    const struct teg_mil_block *const b = &f->eval->function->block;
    for (size_t i = 0; i < b->n_inputs; i++) {
        const struct teg_mil_var *const v = &f->eval->program->vars[b->inputs[i]];
        if (v->type.kind == TEG_MIL_STATE)
            f->values[b->inputs[i]] = teg_frame_swap_state(state, v->name, f->values[b->inputs[i]]);
    }
}

static enum teg_status run(struct teg_eval_frame *f, struct teg_array *const *inputs, struct teg_eval_state *state,
                           struct teg_array **outputs)
{
    TRY(set_inputs(f, inputs, state));
    TRY(run_block(f, &f->eval->block));
    TRY(get_outputs(f, outputs));
    commit_states(f, state);
    return TEG_OK;
}

enum teg_status teg_eval_run(const struct teg_eval *eval, struct teg_array *const *inputs, struct teg_eval_state *state,
                             const volatile bool *stop, struct teg_array **outputs, struct teg_eval_report *report,
                             struct teg_error *err)
{
    return teg_eval_run_watched(eval, inputs, state, stop, NULL, outputs, report, err);
}

enum teg_status teg_eval_run_watched(const struct teg_eval *eval, struct teg_array *const *inputs,
                                     struct teg_eval_state *state, const volatile bool *stop,
                                     const struct teg_eval_watch *watch, struct teg_array **outputs,
                                     struct teg_eval_report *report, struct teg_error *err)
{
    const struct teg_allocator *const a = eval->options.allocator;
    const size_t n_outputs = eval->function->block.n_outputs, n_bytes = (eval->program->n_vars + 1) * sizeof(void *);
    for (size_t i = 0; i < n_outputs; i++)
        outputs[i] = NULL;
    struct teg_array **const values = a->alloc(a->ctx, n_bytes, TEG_ALIGN);
    if (!values)
        return teg_base_fail_memory(err, "a run's variables", n_bytes);
    memset(values, 0, n_bytes);
    struct teg_eval_frame f;
    teg_frame_init(&f, eval, values, err);
    f.stop = stop;
    f.watch = watch;
    const enum teg_status s = run(&f, inputs, state, outputs);
    for (size_t i = 0; s != TEG_OK && i < n_outputs; i++) {
        teg_array_drop(a, outputs[i]);
        outputs[i] = NULL;
    }
    for (size_t i = 0; i < eval->program->n_vars; i++)
        teg_array_drop(a, values[i]);
    a->free(a->ctx, values, n_bytes);
    if (report)
        *report = f.report;
    return s;
}

const struct teg_eval_row teg_eval_rows_control[] = {
    {"cond", 6, op_cond},
    {"while_loop", 6, op_while_loop},
    {"read_state", 9, op_read_state},
    {"write_state", 9, op_write_state},
    {NULL, 0, NULL},
};
