/* pass/compress.c: puts constexpr ops before the ops of each function and lets them define the variables that were
 * constants.
 *
 * The variable keeps its number, name and type, so not one use has to be touched; the parts are new constants. The ops
 * stand at the front of the function's block, where every block within sees them. */
#include "pass/compress_int.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "mil/type.h"

enum { MOST_OPS = 3 };

void *teg_compress_take(struct compressor *c, size_t n, size_t item_bytes)
{
    void *const p = teg_arena_array(&c->p->arena, n, item_bytes);
    if (!p)
        (void)teg_base_fail_memory(c->err, "a program", n * item_bytes);
    return p;
}

/* ---- which weights ---- */

/* A weight of another function with the same numbers, form and rule. */
static struct weight *find_same(const struct compressor *c, const struct weight *like)
{
    for (struct weight *w = c->made->first; w; w = w->next)
        if (w->opset == like->opset && w->is_wide == like->is_wide && w->g.axis == like->g.axis &&
            w->g.along == like->g.along && w->g.rank == like->g.rank &&
            memcmp(w->g.dims, like->g.dims, sizeof w->g.dims) == 0 && w->pub.why == like->pub.why &&
            memcmp(&w->pub.rule, &like->pub.rule, sizeof w->pub.rule) == 0 &&
            teg_source_same(&w->source, &like->source))
            return w;
    return NULL;
}

static enum teg_status unique_bits(const struct compressor *c, const struct weight *w, struct teg_quant_rule *rule)
{
    struct teg_arena arena;
    float *values;
    teg_arena_init(&arena, c->p->arena.allocator);
    enum teg_status status = teg_compress_values(w, &arena, &values, c->err);
    if (status == TEG_OK)
        status = teg_quant_unique_bits(rule, values, w->g.rows, w->g.columns, w->pub.name, &rule->bits, c->err);
    teg_arena_free(&arena);
    return status;
}

static enum teg_status settle_rule(struct compressor *c, struct weight *w, const struct teg_quant_rule *wanted)
{
    struct teg_quant_rule rule = *wanted;
    if (rule.method == TEG_QUANT_PALETTE && rule.table == TEG_QUANT_UNIQUE)
        TRY(unique_bits(c, w, &rule));
    TRY(teg_compress_check_form(c, w->pub.name, &rule));
    TRY(teg_compress_layout(w, &rule, c->err));
    w->pub.rule = w->form.rule;
    if (c->o->importance) {
        w->importance = c->o->importance(c->o->importance_ctx, w->pub.name, w->g.columns);
        w->pub.calibrated = w->importance != NULL;
    }
    w->deferred = (struct teg_mil_deferred){
        .make = teg_compress_make, .ctx = w, .cost = w->g.rows * w->g.columns * 13 + ((size_t)1 << 21)};
    return TEG_OK;
}

/* What happens to a constant: *out NULL: it is no weight at all (a scalar, a vector, a bias). */
static enum teg_status decide(struct compressor *c, const struct teg_mil_block *block, teg_mil_var_id id,
                              const struct usage *u, struct weight **out)
{
    const struct teg_mil_var *const v = &c->p->vars[id];
    size_t n;
    *out = NULL;
    if (u->role == ROLE_NONE || !teg_mil_count(&v->type, &n) ||
        (u->role != ROLE_WEIGHT && n <= c->o->policy->threshold))
        return TEG_OK;
    struct weight like = {.source = {c->before, block, id}, .opset = c->opset};
    like.is_wide = c->opset < TEG_COMPRESS_IOS18 && v->type.dtype == TEG_MIL_FP32;
    like.pub = (struct teg_compressed_weight){
        .name = v->name, .op = u->op ? u->op->type : "", .embedding = u->embedding, .head = u->head, .why = u->why};
    const struct teg_quant_rule *rule = NULL;
    if (!like.pub.why && !teg_compress_geometry(&v->type, u->axis, u->along, &like.g))
        like.pub.why = "a batch of matrices";
    if (!like.pub.why) {
        const struct teg_quant_subject subject = {v->name, u->op->type, u->embedding, u->head, n};
        rule = teg_quant_choose(c->o->policy, &subject, &like.pub.why);
    }
    like.pub.rows = like.g.rows ? like.g.rows : (uint64_t)v->type.dims[0];
    like.pub.columns = n / like.pub.rows;
    const bool is_dense = rule && rule->method == TEG_QUANT_F16 && !(rule->sparsity > 0) && !rule->keep_of;
    if (is_dense && v->constant && v->type.dtype == TEG_MIL_FP16) {
        like.pub.why = "stays fp16";
        rule = NULL;
    }
    if (rule && rule->keep) {
        like.pub.why = "kept";
        rule = NULL;
    }
    if (rule)
        TRY(settle_rule(c, &like, rule));
    struct weight *w = find_same(c, &like);
    if (!w) {
        if (!(w = teg_compress_take(c, 1, sizeof *w)))
            return TEG_ERR_MEMORY;
        *w = like;
        w->deferred.ctx = w;
        *c->made->last = w;
        c->made->last = &w->next;
        c->made->n++;
    }
    *out = w;
    return TEG_OK;
}

/* ---- functions ---- */

/* iOS 15 has no ops for encoded weights, iOS 16 has; its other ops mean the same. */
static void raise_opset(struct compressor *c, struct teg_mil_function *f)
{
    if (f->opset < TEG_COMPRESS_IOS16) {
        f->opset = TEG_COMPRESS_IOS16;
        f->opset_name = "CoreML6";
    }
    if (c->p->spec_version < TEG_COMPRESS_IOS16)
        c->p->spec_version = TEG_COMPRESS_IOS16;
    c->opset = f->opset;
}

static void mark_uses(bool *is_used, const struct teg_mil_block *block)
{
    for (size_t i = 0; i < block->n_outputs; i++)
        is_used[block->outputs[i]] = true;
    for (size_t i = 0; i < block->n_ops; i++) {
        const struct teg_mil_op *const op = &block->ops[i];
        for (size_t a = 0; a < op->n_args; a++)
            for (size_t k = 0; k < op->args[a].n_vars; k++)
                is_used[op->args[a].vars[k]] = true;
        for (size_t b = 0; b < op->n_blocks; b++)
            mark_uses(is_used, &op->blocks[b]);
    }
}

/* Whether an old op stays: a constexpr op goes when its results are made anew, or nobody takes them any more. */
static bool stays(const struct compressor *c, const struct teg_mil_op *op, const bool *is_used)
{
    bool is_wanted = false;
    for (size_t i = 0; i < op->n_outputs; i++)
        is_wanted |= is_used[op->outputs[i]] && !c->is_replaced[op->outputs[i]];
    return is_wanted || strncmp(op->type, "constexpr_", 10) != 0;
}

/* New ops before the old ones that stay; all get their places. Old ones are looked at from the last on, so that a chain
 * goes whole. */
static enum teg_status join_ops(struct compressor *c, struct teg_mil_function *f)
{
    const size_t most = c->n_ops + f->block.n_ops;
    struct teg_mil_op *const all = teg_compress_take(c, most, sizeof *all);
    bool *const is_used = teg_arena_array(&c->scratch, c->p->n_vars, sizeof *is_used);
    if (!all || !is_used)
        return teg_base_fail_memory(c->err, "a program", most * sizeof *all);
    const struct teg_mil_block outputs = {.outputs = f->block.outputs, .n_outputs = f->block.n_outputs};
    mark_uses(is_used, &outputs);
    size_t at = most;
    for (size_t i = f->block.n_ops; i-- > 0;) {
        const struct teg_mil_block one = {.ops = &f->block.ops[i], .n_ops = 1};
        if (!stays(c, one.ops, is_used))
            continue;
        mark_uses(is_used, &one);
        all[--at] = *one.ops;
    }
    const size_t n_old = most - at;
    memmove(all + c->n_ops, all + at, n_old * sizeof *all);
    memcpy(all, c->ops, c->n_ops * sizeof *all);
    f->block.ops = all;
    f->block.n_ops = c->n_ops + n_old;
    for (size_t i = 0; i < f->block.n_ops; i++)
        for (size_t k = 0; k < all[i].n_outputs; k++)
            c->p->vars[all[i].outputs[k]].op = (uint32_t)i;
    return TEG_OK;
}

static enum teg_status compress_function(struct compressor *c, struct teg_mil_function *f)
{
    const size_t n_vars = c->before->n_vars;
    struct teg_mil_block *const block = teg_compress_take(c, 1, sizeof *block);
    struct usage *const usage = teg_arena_array(&c->scratch, n_vars, sizeof *usage);
    if (!usage || !block)
        return teg_base_fail_memory(c->err, "a program", n_vars * sizeof *usage);
    *block = f->block;
    raise_opset(c, f);
    TRY(teg_compress_find(c->before, f, c->o->again, usage, c->err));
    size_t n_weights = 0;
    for (size_t i = 0; i < n_vars; i++)
        n_weights += usage[i].role == ROLE_WEIGHT;
    c->n_ops = 0;
    c->ops = teg_arena_array(&c->scratch, n_weights * MOST_OPS, sizeof *c->ops);
    if (!c->ops)
        return teg_base_fail_memory(c->err, "a program", n_weights * MOST_OPS * sizeof *c->ops);
    for (size_t i = 0; i < n_vars; i++) {
        struct weight *w;
        TRY(decide(c, block, (teg_mil_var_id)i, &usage[i], &w));
        if (!w || w->pub.why)
            continue;
        c->is_replaced[i] = !c->before->vars[i].constant;
        TRY(teg_compress_write(c, w, (teg_mil_var_id)i));
    }
    return join_ops(c, f);
}

/* The program as it is now, for weights that are read when it is another. */
static enum teg_status keep_before(struct compressor *c)
{
    struct teg_mil_program *const before = teg_compress_take(c, 1, sizeof *before);
    struct teg_mil_var *const vars = teg_compress_take(c, c->p->n_vars, sizeof *vars);
    c->is_replaced = teg_compress_take(c, c->p->n_vars + 1, sizeof *c->is_replaced);
    if (!before || !vars || !c->is_replaced)
        return TEG_ERR_MEMORY;
    if (c->p->n_vars)
        memcpy(vars, c->p->vars, c->p->n_vars * sizeof *vars);
    *before = *c->p;
    before->vars = vars;
    c->before = before;
    return TEG_OK;
}

enum teg_status teg_compress(struct teg_mil_program *program, const struct teg_compress_options *options,
                             struct teg_compressed **compressed, struct teg_error *err)
{
    struct compressor c = {.p = program, .o = options, .var_capacity = program->n_vars, .err = err};
    c.made = teg_compress_take(&c, 1, sizeof *c.made);
    if (!c.made)
        return TEG_ERR_MEMORY;
    TRY(keep_before(&c));
    c.made->last = &c.made->first;
    teg_arena_init(&c.scratch, program->arena.allocator);
    enum teg_status status = TEG_OK;
    for (size_t i = 0; status == TEG_OK && i < program->n_functions; i++)
        status = compress_function(&c, &program->functions[i]);
    teg_arena_free(&c.scratch);
    TRY(status);
    size_t n_encoded = 0, n_before = 0;
    for (const struct weight *w = c.made->first; w; w = w->next) {
        n_encoded += !w->pub.why;
        n_before += teg_source_maker(&w->source) != NULL;
    }
    if (!n_encoded && n_before && !options->again && !options->may_leave_alone)
        FAIL(err, TEG_ERR_ARGUMENT,
             "cannot quantize: %.160s: expected a dense weight that a rule applies to, found %zu that are encoded "
             "already; encode them anew (--again), from what they are now",
             program->path ? program->path : "the program", n_before);
    if (!n_encoded && !options->may_leave_alone)
        FAIL(err, TEG_ERR_ARGUMENT,
             "cannot quantize: %.160s: expected a weight that a rule applies to and changes, found none; see 'inspect "
             "--weights', and what --skip and --threshold leave alone",
             program->path ? program->path : "the program");
    *compressed = c.made;
    return TEG_OK;
}

size_t teg_compressed_count(const struct teg_compressed *compressed)
{
    return compressed->n;
}

const struct teg_compressed_weight *teg_compressed_weight(const struct teg_compressed *compressed, size_t index)
{
    const struct weight *w = compressed->first;
    for (size_t i = 0; w && i < index; i++)
        w = w->next;
    return w ? &w->pub : NULL;
}
