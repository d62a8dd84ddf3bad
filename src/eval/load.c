/* eval/load.c: makes a function ready to run: the row of every op, the decoded constants, the lifetimes.
 *
 * Three passes over the blocks. fold: constexpr_* ops of constants are run once and become constants, so that a
 * prediction never decodes a weight. build: a step for every other op, and for every variable the last step of its own
 * block that uses it or whose nested blocks do. constants: what the steps use is decoded, the rest dropped.
 *
 * Not taken: folding every op of constants. Exporters have done that; what they left is small. */
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "eval/frame.h"

#define DEFAULT_LOOP_ITERATIONS ((uint64_t)100000000)
#define NEVER UINT32_MAX

struct loader {
    struct teg_eval *eval;
    struct teg_error *err;
    struct teg_arena arena;                /* of the loader itself */
    uint32_t *last_use;                    /* by variable: step of its own block */
    uint8_t *depth;                        /* by variable: of the block that defines it */
    uint8_t *used;                         /* by variable: by a step or as an output */
    struct teg_array **values;             /* by variable: for folding */
    uint32_t path[TEG_EVAL_MAX_DEPTH + 1]; /* step that is being built, by depth */
};

static enum teg_status find_row(struct loader *l, const struct teg_mil_op *op, const struct teg_eval_row **row)
{
    const struct teg_eval *const e = l->eval;
    *row = teg_eval_find_row(op->type, op->opset ? op->opset : e->function->opset);
    if (*row)
        return TEG_OK;
    const struct teg_eval_row *const later = teg_eval_find_row(op->type, UINT32_MAX);
    const char *const name = op->name && *op->name ? op->name : "?";
    if (later)
        FAIL_AT(l->err, TEG_ERR_UNSUPPORTED, op->file_offset,
                "cannot load program: op %.80s (%.60s) at byte %llu: expected opset CoreML%u or later, found %s", name,
                op->type, (unsigned long long)op->file_offset, later->opset - 1, e->function->opset_name);
    FAIL_AT(l->err, TEG_ERR_UNSUPPORTED, op->file_offset,
            "cannot load program: op %.80s (%.60s) at byte %llu: expected an op of opset %s, found an unknown one",
            name, op->type, (unsigned long long)op->file_offset, e->function->opset_name);
}

static bool is_folded(const struct loader *l, const struct teg_mil_op *op)
{
    return op->n_outputs && l->eval->constants[op->outputs[0]] && !l->eval->program->vars[op->outputs[0]].constant;
}

/* ---- fold ---- */

static bool same_type(const struct teg_mil_type *a, const struct teg_mil_type *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->rank == b->rank && a->rank >= 0 &&
           memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) == 0;
}

/* Of one place in one weight file. */
static bool same_bytes(const struct teg_mil_var *a, const struct teg_mil_var *b)
{
    return a->constant && b->constant && a->constant->bytes && a->constant->bytes == b->constant->bytes &&
           a->constant->n_bytes == b->constant->n_bytes && same_type(&a->constant->type, &b->constant->type);
}

static bool same_small(const struct teg_mil_var *a, const struct teg_mil_var *b)
{
    const struct teg_mil_const *const x = a->constant, *const y = b->constant;
    return x && y && x->type.kind == TEG_MIL_TENSOR && x->type.dtype != TEG_MIL_STRING && x->n_bytes == y->n_bytes &&
           x->n_bytes <= 64 && same_type(&x->type, &y->type) && memcmp(x->bytes, y->bytes, x->n_bytes) == 0;
}

/* The same decoding of the same codes. */
static bool same_fold(const struct teg_mil_program *p, const struct teg_mil_op *a, const struct teg_mil_op *b)
{
    if (strcmp(a->type, b->type) != 0 || a->n_args != b->n_args || a->n_outputs != 1 || b->n_outputs != 1)
        return false;
    for (size_t i = 0; i < a->n_args; i++) {
        const struct teg_mil_arg *const x = &a->args[i], *const y = &b->args[i];
        if (strcmp(x->name, y->name) != 0 || x->n_vars != 1 || y->n_vars != 1)
            return false;
        const struct teg_mil_var *const v = &p->vars[x->vars[0]], *const w = &p->vars[y->vars[0]];
        if (!same_bytes(v, w) && !same_small(v, w))
            return false;
    }
    return true;
}

/* What another function has decoded already; `op` makes the variable, NULL: it is a constant. */
static struct teg_array *find_shared(const struct loader *l, teg_mil_var_id var, const struct teg_mil_op *op)
{
    const struct teg_mil_program *const p = l->eval->program;
    const struct teg_eval_options *const o = &l->eval->options;
    for (size_t s = 0; s < o->n_siblings; s++) {
        const struct teg_eval *const other = o->siblings[s];
        const struct teg_mil_block *const b = other ? &other->function->block : NULL;
        for (size_t i = 0; b && op && i < b->n_ops; i++)
            if (b->ops[i].n_outputs == 1 && other->constants[b->ops[i].outputs[0]] && same_fold(p, op, &b->ops[i]))
                return teg_array_ref(other->constants[b->ops[i].outputs[0]]);
        for (teg_mil_var_id v = 0; b && !op && v < p->n_vars; v++)
            if (other->constants[v] && same_bytes(&p->vars[v], &p->vars[var]))
                return teg_array_ref(other->constants[v]);
    }
    return NULL;
}

static enum teg_status decode(struct loader *l, teg_mil_var_id var)
{
    enum { WORTH_SHARING = 4096 }; /* bytes in the file */
    struct teg_eval *const e = l->eval;
    const struct teg_mil_var *const v = &e->program->vars[var];
    if (e->constants[var] || !v->constant)
        return TEG_OK;
    if (v->constant->n_bytes >= WORTH_SHARING && (e->constants[var] = find_shared(l, var, NULL)) != NULL)
        return TEG_OK;
    return teg_array_from_const(e->options.allocator, v->constant, v->name, &e->constants[var], l->err);
}

static bool has_constant_args(const struct loader *l, const struct teg_mil_op *op)
{
    for (size_t a = 0; a < op->n_args; a++)
        for (size_t i = 0; i < op->args[a].n_vars; i++) {
            const teg_mil_var_id var = op->args[a].vars[i];
            if (!l->eval->constants[var] && !l->eval->program->vars[var].constant)
                return false;
        }
    return true;
}

static enum teg_status fold_op(struct loader *l, const struct teg_mil_op *op)
{
    struct teg_eval *const e = l->eval;
    struct teg_eval_step step = {.op = op};
    TRY(find_row(l, op, &step.row));
    struct teg_array *const shared = op->n_outputs == 1 ? find_shared(l, op->outputs[0], op) : NULL;
    if (shared) {
        e->constants[op->outputs[0]] = shared;
        return TEG_OK;
    }
    for (size_t a = 0; a < op->n_args; a++)
        for (size_t i = 0; i < op->args[a].n_vars; i++)
            TRY(decode(l, op->args[a].vars[i]));
    struct teg_eval_frame frame;
    teg_frame_init(&frame, e, l->values, l->err);
    TRY(teg_frame_step(&frame, &step));
    /* A constant has its declared type in every mode: a decoded fp16 weight is an fp16 weight. */
    for (size_t i = 0; i < op->n_outputs; i++) {
        const teg_mil_var_id var = op->outputs[i];
        struct teg_array *const value = l->values[var];
        l->values[var] = NULL;
        e->constants[var] = teg_array_as(e->options.allocator, value, e->program->vars[var].type.dtype);
        teg_array_drop(e->options.allocator, value);
        if (!e->constants[var])
            return teg_base_fail_memory(l->err, "a weight", sizeof *value);
    }
    for (size_t a = 0; a < op->n_args; a++)
        for (size_t i = 0; i < op->args[a].n_vars; i++) {
            const teg_mil_var_id var = op->args[a].vars[i];
            if (!e->program->vars[var].constant)
                continue; /* a folded op's output: another op may want it */
            teg_array_drop(e->options.allocator, e->constants[var]);
            e->constants[var] = NULL;
        }
    return TEG_OK;
}

static enum teg_status fold_block(struct loader *l, const struct teg_mil_block *block, uint32_t depth)
{
    if (depth > TEG_EVAL_MAX_DEPTH)
        FAIL(l->err, TEG_ERR_UNSUPPORTED,
             "cannot load program: function %s: expected blocks nested at most %d deep, "
             "found more",
             l->eval->function->name, TEG_EVAL_MAX_DEPTH);
    for (size_t i = 0; i < block->n_ops; i++) {
        const struct teg_mil_op *const op = &block->ops[i];
        if (strncmp(op->type, "constexpr_", 10) == 0 && has_constant_args(l, op))
            TRY(fold_op(l, op));
        for (size_t b = 0; b < op->n_blocks; b++)
            TRY(fold_block(l, &op->blocks[b], depth + 1));
    }
    return TEG_OK;
}

/* ---- build ---- */

static void define(struct loader *l, teg_mil_var_id var, uint32_t depth, uint32_t last_use)
{
    l->depth[var] = (uint8_t)depth;
    l->last_use[var] = last_use;
}

static void use(struct loader *l, teg_mil_var_id var)
{
    l->used[var] = 1;
    if (l->last_use[var] != NEVER)
        l->last_use[var] = l->path[l->depth[var]];
}

static bool is_dead_list_var(const struct loader *l, teg_mil_var_id var, uint32_t depth)
{
    return l->depth[var] == depth && l->last_use[var] != NEVER;
}

/* Gives each step of the block the list of variables that die with it. One pool, filled by counting. */
static enum teg_status list_dead(struct loader *l, const struct teg_mil_block *block, struct teg_eval_step *steps,
                                 size_t n_steps, uint32_t depth)
{
    size_t n = block->n_inputs;
    for (size_t s = 0; s < n_steps; s++)
        n += steps[s].op->n_outputs;
    teg_mil_var_id *const pool = teg_arena_array(&l->eval->arena, n, sizeof *pool);
    teg_mil_var_id *const vars = teg_arena_array(&l->arena, n, sizeof *vars);
    size_t *const counts = teg_arena_array(&l->arena, n_steps + 1, sizeof *counts);
    if (!pool || !vars || !counts)
        return teg_base_fail_memory(l->err, "lifetimes of a program", n * sizeof *pool);
    size_t n_vars = 0;
    for (size_t i = 0; i < block->n_inputs; i++)
        vars[n_vars++] = block->inputs[i];
    for (size_t s = 0; s < n_steps; s++)
        for (size_t i = 0; i < steps[s].op->n_outputs; i++)
            vars[n_vars++] = steps[s].op->outputs[i];
    for (size_t i = 0; i < n_vars; i++)
        if (is_dead_list_var(l, vars[i], depth) && l->last_use[vars[i]] < n_steps)
            counts[l->last_use[vars[i]]]++;
    size_t at = 0;
    for (size_t s = 0; s < n_steps; s++) {
        steps[s].dead = pool + at;
        at += counts[s];
    }
    for (size_t i = 0; i < n_vars; i++) {
        const uint32_t s = l->last_use[vars[i]];
        if (is_dead_list_var(l, vars[i], depth) && s < n_steps)
            pool[(size_t)(steps[s].dead - pool) + steps[s].n_dead++] = vars[i];
    }
    return TEG_OK;
}

static enum teg_status build_block(struct loader *l, const struct teg_mil_block *block, uint32_t depth,
                                   struct teg_eval_block *out);

static enum teg_status build_step(struct loader *l, const struct teg_mil_op *op, uint32_t depth,
                                  struct teg_eval_step *step)
{
    *step = (struct teg_eval_step){.op = op};
    TRY(find_row(l, op, &step->row));
    for (size_t a = 0; a < op->n_args; a++)
        for (size_t i = 0; i < op->args[a].n_vars; i++)
            use(l, op->args[a].vars[i]);
    if (!op->n_blocks)
        return TEG_OK;
    struct teg_eval_block *const blocks = teg_arena_array(&l->eval->arena, op->n_blocks, sizeof *blocks);
    if (!blocks)
        return teg_base_fail_memory(l->err, "a program's blocks", op->n_blocks * sizeof *blocks);
    for (size_t b = 0; b < op->n_blocks; b++)
        TRY(build_block(l, &op->blocks[b], depth + 1, &blocks[b]));
    step->blocks = blocks;
    return TEG_OK;
}

static enum teg_status build_block(struct loader *l, const struct teg_mil_block *block, uint32_t depth,
                                   struct teg_eval_block *out)
{
    struct teg_eval_step *const steps = teg_arena_array(&l->eval->arena, block->n_ops, sizeof *steps);
    if (!steps)
        return teg_base_fail_memory(l->err, "a program's steps", block->n_ops * sizeof *steps);
    size_t n_steps = 0;
    for (size_t i = 0; i < block->n_inputs; i++) {
        const bool is_state = l->eval->program->vars[block->inputs[i]].type.kind == TEG_MIL_STATE;
        define(l, block->inputs[i], depth, is_state ? NEVER : NEVER - 1);
    }
    for (size_t i = 0; i < block->n_ops; i++) {
        const struct teg_mil_op *const op = &block->ops[i];
        if (is_folded(l, op))
            continue;
        l->path[depth] = (uint32_t)n_steps;
        for (size_t o = 0; o < op->n_outputs; o++)
            define(l, op->outputs[o], depth, (uint32_t)n_steps);
        TRY(build_step(l, op, depth, &steps[n_steps++]));
    }
    for (size_t i = 0; i < block->n_outputs; i++) {
        const teg_mil_var_id var = block->outputs[i];
        use(l, var); /* an outer variable lives until the op that holds this block is done */
        if (l->depth[var] == depth)
            l->last_use[var] = NEVER;
    }
    TRY(list_dead(l, block, steps, n_steps, depth));
    *out = (struct teg_eval_block){block, steps, n_steps};
    return TEG_OK;
}

/* ---- the whole ---- */

/* Before iOS16 an output cannot be fp16, so exporters end an fp16 program with casts; its outputs are fp16 values all
 * the same, as those of a later target are. */
static enum teg_status find_half_outputs(struct loader *l)
{
    struct teg_eval *const e = l->eval;
    const struct teg_mil_var *const vars = e->program->vars;
    const struct teg_mil_block *const b = &e->function->block;
    bool *const half = teg_arena_array(&e->arena, b->n_outputs, sizeof *half);
    bool *const widened = teg_arena_array(&l->arena, e->program->n_vars, sizeof *widened);
    if (!half || !widened)
        return teg_base_fail_memory(l->err, "a program's outputs", b->n_outputs * sizeof *half);
    for (size_t i = 0; i < b->n_ops; i++) {
        const struct teg_mil_op *const op = &b->ops[i];
        const struct teg_mil_arg *const x = strcmp(op->type, "cast") == 0 ? teg_mil_find_arg(op, "x") : NULL;
        if (x && x->n_vars == 1 && op->n_outputs == 1 && vars[x->vars[0]].type.dtype == TEG_MIL_FP16)
            widened[op->outputs[0]] = vars[op->outputs[0]].type.dtype == TEG_MIL_FP32;
    }
    for (size_t i = 0; i < b->n_outputs; i++)
        half[i] = widened[b->outputs[i]];
    e->half_outputs = half;
    return TEG_OK;
}

static enum teg_status decode_used(struct loader *l)
{
    struct teg_eval *const e = l->eval;
    for (teg_mil_var_id var = 0; var < e->program->n_vars; var++) {
        if (l->used[var]) {
            TRY(decode(l, var));
        } else {
            teg_array_drop(e->options.allocator, e->constants[var]);
            e->constants[var] = NULL;
        }
    }
    return TEG_OK;
}

static enum teg_status load(struct loader *l)
{
    struct teg_eval *const e = l->eval;
    const size_t n = e->program->n_vars;
    e->constants = teg_arena_array(&e->arena, n, sizeof *e->constants);
    l->last_use = teg_arena_array(&l->arena, n, sizeof *l->last_use);
    l->depth = teg_arena_array(&l->arena, n, sizeof *l->depth);
    l->used = teg_arena_array(&l->arena, n, sizeof *l->used);
    l->values = teg_arena_array(&l->arena, n, sizeof *l->values);
    if (!e->constants || !l->last_use || !l->depth || !l->used || !l->values)
        return teg_base_fail_memory(l->err, "a program's variables", n * sizeof *e->constants);
    struct teg_cpu cpu;
    teg_cpu_detect(&cpu);
    teg_kernels_select(&cpu, &e->kernels);
    uint32_t threads = e->options.n_threads ? e->options.n_threads : cpu.n_cpus;
    threads = threads < 1 ? 1 : threads > TEG_POOL_MAX_THREADS ? TEG_POOL_MAX_THREADS : threads;
    TRY(teg_pool_new(threads, e->options.allocator, &e->pool, l->err));
    TRY(fold_block(l, &e->function->block, 0));
    TRY(build_block(l, &e->function->block, 0, &e->block));
    TRY(find_half_outputs(l));
    return decode_used(l);
}

static uint64_t machine_bytes(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : (uint64_t)4 << 30;
}

enum teg_status teg_eval_new(const struct teg_mil_program *program, const char *function,
                             const struct teg_eval_options *options, struct teg_eval **eval, struct teg_error *err)
{
    struct teg_eval_options o = options ? *options : (struct teg_eval_options){0};
    o.allocator = teg_allocator_or_default(o.allocator);
    o.max_loop_iterations = o.max_loop_iterations ? o.max_loop_iterations : DEFAULT_LOOP_ITERATIONS;
    o.max_bytes = o.max_bytes ? o.max_bytes : machine_bytes();
    const struct teg_mil_function *const f =
        teg_mil_find_function(program, function && *function ? function : program->default_function);
    if (!f)
        FAIL(err, TEG_ERR_ARGUMENT,
             "cannot load program: function %.100s: expected one of the program's %zu functions, "
             "found none of that name",
             function ? function : "", program->n_functions);
    struct teg_eval *const e = o.allocator->alloc(o.allocator->ctx, sizeof *e, TEG_ALIGN);
    if (!e)
        return teg_base_fail_memory(err, "a function", sizeof *e);
    *e = (struct teg_eval){.program = program, .function = f, .options = o};
    teg_arena_init(&e->arena, o.allocator);
    struct loader l = {.eval = e, .err = err};
    teg_arena_init(&l.arena, o.allocator);
    const enum teg_status s = load(&l);
    if (s != TEG_OK && l.values)
        for (size_t i = 0; i < program->n_vars; i++)
            teg_array_drop(o.allocator, l.values[i]);
    teg_arena_free(&l.arena);
    if (s != TEG_OK) {
        teg_eval_free(e);
        return s;
    }
    *eval = e;
    return TEG_OK;
}

void teg_eval_free(struct teg_eval *eval)
{
    if (!eval)
        return;
    const struct teg_allocator *const a = eval->options.allocator;
    for (size_t i = 0; eval->constants && i < eval->program->n_vars; i++)
        teg_array_drop(a, eval->constants[i]);
    teg_pool_free(eval->pool);
    teg_arena_free(&eval->arena);
    a->free(a->ctx, eval, sizeof *eval);
}
