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

enum { NEEDED_OPSET = 9, MOST_OPS = 3 };

struct compressor {
    struct teg_mil_program *p;
    const struct teg_compress_options *o;
    struct teg_compressed *made;
    struct teg_arena scratch;
    size_t var_capacity;
    struct teg_mil_op *ops; /* new ops of this function */
    size_t n_ops;
    struct teg_error *err;
};

static void *take(struct compressor *c, size_t n, size_t item_bytes)
{
    void *const p = teg_arena_array(&c->p->arena, n, item_bytes);
    if (!p)
        (void)teg_base_fail_memory(c->err, "a program", n * item_bytes);
    return p;
}

/* ---- which weights ---- */

/* A constant of another function with the same bytes, form and rule. */
static struct weight *find_same(const struct compressor *c, const struct weight *like)
{
    for (struct weight *w = c->made->first; w; w = w->next) {
        const bool same_source = w->source->bytes == like->source->bytes && w->source->n_bytes == like->source->n_bytes;
        if (same_source && w->g.axis == like->g.axis && w->g.along == like->g.along && w->g.rank == like->g.rank &&
            memcmp(w->g.dims, like->g.dims, sizeof w->g.dims) == 0 && w->pub.why == like->pub.why &&
            memcmp(&w->pub.rule, &like->pub.rule, sizeof w->pub.rule) == 0)
            return w;
    }
    return NULL;
}

static enum teg_status settle_rule(struct compressor *c, struct weight *w, const struct teg_quant_rule *wanted)
{
    struct teg_quant_rule rule = *wanted;
    if (rule.method == TEG_QUANT_PALETTE && rule.table == TEG_QUANT_UNIQUE) {
        struct teg_arena values_arena;
        teg_arena_init(&values_arena, c->p->arena.allocator);
        float *const values = teg_arena_array(&values_arena, w->g.rows * w->g.columns, sizeof *values);
        enum teg_status status = TEG_OK;
        if (values) {
            teg_compress_values(w->source, &w->g, values);
            status = teg_quant_unique_bits(&rule, values, w->g.rows, w->g.columns, w->pub.name, &rule.bits, c->err);
        } else {
            status = teg_base_fail_memory(c->err, w->pub.name, w->g.rows * w->g.columns * sizeof *values);
        }
        teg_arena_free(&values_arena);
        TRY(status);
    }
    TRY(teg_compress_layout(w, &rule, c->err));
    w->pub.rule = w->form.rule;
    if (c->o->importance) {
        w->importance = c->o->importance(c->o->importance_ctx, w->pub.name, w->g.columns);
        w->pub.calibrated = w->importance != NULL;
    }
    w->deferred = (struct teg_mil_deferred){
        .make = teg_compress_make, .ctx = w, .cost = w->g.rows * w->g.columns * 9 + ((size_t)1 << 21)};
    return TEG_OK;
}

/* What happens to a constant: *out NULL: it is no weight at all (a scalar, a vector, a bias). */
static enum teg_status decide(struct compressor *c, teg_mil_var_id id, const struct usage *u, struct weight **out)
{
    const struct teg_mil_var *const v = &c->p->vars[id];
    size_t n;
    *out = NULL;
    if (u->role == ROLE_NONE || !teg_mil_count(&v->type, &n) ||
        (u->role != ROLE_WEIGHT && n <= c->o->policy->threshold))
        return TEG_OK;
    struct weight like = {.source = v->constant};
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
    if (rule && rule->method == TEG_QUANT_F16 && !(rule->sparsity > 0) && !rule->keep_of) {
        like.pub.why = "stays fp16";
        rule = NULL;
    }
    if (rule)
        TRY(settle_rule(c, &like, rule));
    struct weight *w = find_same(c, &like);
    if (!w) {
        if (!(w = take(c, 1, sizeof *w)))
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

/* ---- variables and ops ---- */

static enum teg_status new_var(struct compressor *c, const char *base, const char *suffix,
                               const struct teg_mil_type *type, teg_mil_var_id *id)
{
    struct teg_mil_program *const p = c->p;
    if (p->n_vars == c->var_capacity) {
        const size_t more = 2 * p->n_vars + 64;
        struct teg_mil_var *const moved = take(c, more, sizeof *moved);
        if (!moved)
            return TEG_ERR_MEMORY;
        memcpy(moved, p->vars, p->n_vars * sizeof *moved);
        p->vars = moved;
        c->var_capacity = more;
    }
    char *const name = teg_arena_printf(&p->arena, "%s_%s", base, suffix);
    if (!name)
        return teg_base_fail_memory(c->err, "a name", strlen(base));
    *id = (teg_mil_var_id)p->n_vars;
    p->vars[p->n_vars++] = (struct teg_mil_var){.name = name, .type = *type, .op = UINT32_MAX};
    return TEG_OK;
}

static struct teg_mil_type tensor(enum teg_mil_dtype dtype, uint32_t rank, const int64_t *dims)
{
    struct teg_mil_type t = {.kind = TEG_MIL_TENSOR, .dtype = dtype, .rank = (int32_t)rank};
    for (uint32_t d = 0; d < rank; d++)
        t.dims[d] = dims[d];
    return t;
}

static enum teg_status new_part(struct compressor *c, const struct weight *w, const char *base,
                                enum teg_quant_part which, enum teg_mil_dtype dtype, uint32_t rank, const int64_t *dims,
                                teg_mil_var_id *id)
{
    static const char *const suffixes[] = {"data", "scale", "offset", "lut", "mask"};
    const struct teg_mil_type type = tensor(dtype, rank, dims);
    struct teg_mil_const *const value = take(c, 1, sizeof *value);
    if (!value)
        return TEG_ERR_MEMORY;
    TRY(new_var(c, base, suffixes[which], &type, id));
    *value = (struct teg_mil_const){.type = type,
                                    .n_bytes = w->form.parts[which].n_bytes,
                                    .deferred = &w->deferred,
                                    .deferred_part = (uint32_t)which};
    c->p->vars[*id].constant = value;
    return TEG_OK;
}

/* args: in the order of their names. */
static enum teg_status new_op(struct compressor *c, const char *type, const struct teg_mil_bind *args, size_t n_args,
                              const teg_mil_var_id *outputs, size_t n_outputs)
{
    struct teg_mil_arg *const own = take(c, n_args, sizeof *own);
    teg_mil_var_id *const vars = take(c, n_args + n_outputs, sizeof *vars);
    if (!own || !vars)
        return TEG_ERR_MEMORY;
    for (size_t i = 0; i < n_args; i++) {
        vars[i] = args[i].var;
        own[i] = (struct teg_mil_arg){args[i].arg, &vars[i], 1};
    }
    for (size_t i = 0; i < n_outputs; i++) {
        vars[n_args + i] = outputs[i];
        c->p->vars[outputs[i]].op = (uint32_t)c->n_ops;
    }
    c->ops[c->n_ops++] = (struct teg_mil_op){.type = type,
                                             .name = c->p->vars[outputs[n_outputs - 1]].name,
                                             .args = own,
                                             .n_args = n_args,
                                             .outputs = vars + n_args,
                                             .n_outputs = n_outputs};
    return TEG_OK;
}

/* ---- the ops of a weight ---- */

static enum teg_mil_dtype uint_of(uint32_t bits)
{
    static const enum teg_mil_dtype types[9] = {[1] = TEG_MIL_UINT1, [2] = TEG_MIL_UINT2, [3] = TEG_MIL_UINT3,
                                                [4] = TEG_MIL_UINT4, [6] = TEG_MIL_UINT6, [8] = TEG_MIL_UINT8};
    return types[bits];
}

static enum teg_mil_dtype code_type(const struct teg_quant_rule *rule)
{
    if (rule->method == TEG_QUANT_F16)
        return TEG_MIL_FP16;
    if (rule->method == TEG_QUANT_PALETTE)
        return uint_of(rule->bits);
    if (rule->bits == 4)
        return rule->is_signed ? TEG_MIL_INT4 : TEG_MIL_UINT4;
    return rule->is_signed ? TEG_MIL_INT8 : TEG_MIL_UINT8;
}

struct shapes {
    int64_t data[TEG_MIL_MAX_RANK], groups[TEG_MIL_MAX_RANK], tables[TEG_MIL_MAX_RANK];
    uint32_t data_rank;
};

static struct shapes shapes_of(const struct weight *w)
{
    const struct geometry *const g = &w->g;
    const struct teg_quantized *const q = &w->form;
    struct shapes s = {.data_rank = q->sparse ? 1 : g->rank};
    for (uint32_t d = 0; d < g->rank; d++) {
        s.data[d] = g->dims[d];
        s.groups[d] = d == g->axis    ? (int64_t)(q->rows / q->group_rows)
                      : d == g->along ? (int64_t)(q->columns / q->group_columns)
                                      : 1;
        s.tables[d] = s.groups[d];
    }
    if (q->rule.vector > 1)
        s.data[g->along] /= q->rule.vector;
    if (q->sparse)
        s.data[0] = (int64_t)q->n_kept;
    if (g->rank + 2 <= TEG_MIL_MAX_RANK) {
        s.tables[g->rank] = (int64_t)1 << q->rule.bits;
        s.tables[g->rank + 1] = q->rule.vector;
    }
    return s;
}

/* A variable of the weight's own type and the mask that goes before it: outputs of sparse ops. */
static enum teg_status sparse_outputs(struct compressor *c, const struct weight *w, const char *base,
                                      teg_mil_var_id outputs[2])
{
    const int64_t kept = (int64_t)w->form.n_kept;
    const struct teg_mil_type mask = tensor(TEG_MIL_UINT1, w->g.rank, w->g.dims);
    const struct teg_mil_type values = tensor(TEG_MIL_FP16, 1, &kept);
    TRY(new_var(c, base, "sparse_mask", &mask, &outputs[0]));
    return new_var(c, base, "sparse_values", &values, &outputs[1]);
}

static enum teg_status vector_axis(struct compressor *c, const struct weight *w, const char *base, teg_mil_var_id *id)
{
    const struct teg_mil_type type = tensor(TEG_MIL_INT32, 0, NULL);
    struct teg_mil_const *const value = take(c, 1, sizeof *value);
    int32_t *const axis = take(c, 1, sizeof *axis);
    if (!value || !axis)
        return TEG_ERR_MEMORY;
    *axis = (int32_t)w->g.along;
    TRY(new_var(c, base, "vector_axis", &type, id));
    *value = (struct teg_mil_const){.type = type, .bytes = (const uint8_t *)axis, .n_bytes = sizeof *axis};
    c->p->vars[*id].constant = value;
    return TEG_OK;
}

static enum teg_status linear_ops(struct compressor *c, const struct weight *w, const char *base,
                                  const struct shapes *s, teg_mil_var_id data, teg_mil_var_id mask,
                                  const teg_mil_var_id *outputs, size_t n_outputs)
{
    struct teg_mil_bind args[4];
    size_t n = 0;
    if (w->form.sparse)
        args[n++] = (struct teg_mil_bind){"data_mask", mask};
    args[n++] = (struct teg_mil_bind){w->form.sparse ? "nonzero_data" : "data", data};
    if (w->form.parts[TEG_QUANT_OFFSET].n_bytes) {
        const enum teg_mil_dtype type = w->form.rule.float_offset ? TEG_MIL_FP16 : code_type(&w->form.rule);
        TRY(new_part(c, w, base, TEG_QUANT_OFFSET, type, w->g.rank, s->groups, &args[n].var));
        args[n++].arg = "offset";
    }
    TRY(new_part(c, w, base, TEG_QUANT_SCALE, TEG_MIL_FP16, w->g.rank, s->groups, &args[n].var));
    args[n++].arg = "scale";
    return new_op(c, w->form.sparse ? "constexpr_sparse_blockwise_shift_scale" : "constexpr_blockwise_shift_scale",
                  args, n, outputs, n_outputs);
}

static enum teg_status palette_ops(struct compressor *c, const struct weight *w, const char *base,
                                   const struct shapes *s, teg_mil_var_id data, teg_mil_var_id mask,
                                   const teg_mil_var_id *outputs, size_t n_outputs)
{
    struct teg_mil_bind args[4];
    size_t n = 0;
    if (w->g.rank + 2 > TEG_MIL_MAX_RANK)
        FAIL(c->err, TEG_ERR_UNSUPPORTED, "cannot quantize: %s: expected a rank of at most %d for a palette, found %u",
             w->pub.name, TEG_MIL_MAX_RANK - 2, w->g.rank);
    if (w->form.sparse)
        args[n++] = (struct teg_mil_bind){"indices_mask", mask};
    args[n++] = (struct teg_mil_bind){w->form.sparse ? "indices_nonzero_data" : "indices", data};
    TRY(new_part(c, w, base, TEG_QUANT_LUT, TEG_MIL_FP16, w->g.rank + 2, s->tables, &args[n].var));
    args[n++].arg = "lut";
    if (w->form.rule.vector > 1) {
        TRY(vector_axis(c, w, base, &args[n].var));
        args[n++].arg = "vector_axis";
    }
    return new_op(c, w->form.sparse ? "constexpr_lut_to_sparse" : "constexpr_lut_to_dense", args, n, outputs,
                  n_outputs);
}

/* fp32 weights are encoded as fp16 and cast back: the ops that use them want their type. */
static enum teg_status half_result(struct compressor *c, teg_mil_var_id id, teg_mil_var_id *half)
{
    struct teg_mil_type type = c->p->vars[id].type;
    *half = id;
    if (type.dtype == TEG_MIL_FP16)
        return TEG_OK;
    type.dtype = TEG_MIL_FP16;
    return new_var(c, c->p->vars[id].name, "fp16", &type, half);
}

static enum teg_status cast_back(struct compressor *c, teg_mil_var_id half, teg_mil_var_id id)
{
    static const struct teg_string fp32 = {"fp32", 4};
    struct teg_mil_const *const value = take(c, 1, sizeof *value);
    const struct teg_mil_type type = tensor(TEG_MIL_STRING, 0, NULL);
    struct teg_mil_bind args[2] = {{"output_dtype", 0}, {"source_val", half}};
    if (!value)
        return TEG_ERR_MEMORY;
    *value = (struct teg_mil_const){.type = type, .strings = &fp32};
    TRY(new_var(c, c->p->vars[id].name, "dtype", &type, &args[0].var));
    c->p->vars[args[0].var].constant = value;
    return new_op(c, "constexpr_cast", args, 2, &id, 1);
}

static enum teg_status write_ops(struct compressor *c, const struct weight *w, teg_mil_var_id id)
{
    const char *const base = c->p->vars[id].name;
    const struct shapes s = shapes_of(w);
    teg_mil_var_id data, mask = TEG_MIL_NO_VAR, half, sparse[2];
    TRY(half_result(c, id, &half));
    TRY(new_part(c, w, base, TEG_QUANT_DATA, code_type(&w->form.rule), s.data_rank, s.data, &data));
    if (w->form.sparse) {
        TRY(new_part(c, w, base, TEG_QUANT_MASK, TEG_MIL_UINT1, w->g.rank, w->g.dims, &mask));
        sparse[0] = mask;
        sparse[1] = data;
        if (w->form.rule.method != TEG_QUANT_F16)
            TRY(sparse_outputs(c, w, base, sparse));
    }
    const teg_mil_var_id *const outputs = w->form.sparse ? sparse : &half;
    const size_t n_outputs = w->form.sparse ? 2 : 1;
    c->p->vars[id].constant = NULL;
    if (w->form.rule.method == TEG_QUANT_LINEAR)
        TRY(linear_ops(c, w, base, &s, data, mask, outputs, n_outputs));
    else if (w->form.rule.method == TEG_QUANT_PALETTE)
        TRY(palette_ops(c, w, base, &s, data, mask, outputs, n_outputs));
    if (w->form.sparse) {
        const struct teg_mil_bind args[2] = {{"mask", sparse[0]}, {"nonzero_data", sparse[1]}};
        TRY(new_op(c, "constexpr_sparse_to_dense", args, 2, &half, 1));
    }
    return half != id ? cast_back(c, half, id) : TEG_OK;
}

/* ---- functions ---- */

static enum teg_status check_opset(const struct compressor *c, const struct teg_mil_function *f)
{
    if (f->opset < NEEDED_OPSET)
        FAIL(c->err, TEG_ERR_UNSUPPORTED,
             "cannot quantize: function %.80s: expected opset CoreML8 (iOS 18) or later, which has the ops for encoded "
             "weights, found %s; export it again for iOS 18",
             f->name, f->opset_name);
    return TEG_OK;
}

/* New ops before the old ones; what the old ones define moves by as many places. */
static enum teg_status join_ops(struct compressor *c, struct teg_mil_function *f)
{
    struct teg_mil_op *const all = take(c, c->n_ops + f->block.n_ops, sizeof *all);
    if (!all)
        return TEG_ERR_MEMORY;
    memcpy(all, c->ops, c->n_ops * sizeof *all);
    if (f->block.n_ops)
        memcpy(all + c->n_ops, f->block.ops, f->block.n_ops * sizeof *all);
    for (size_t i = 0; i < f->block.n_ops; i++)
        for (size_t k = 0; k < f->block.ops[i].n_outputs; k++)
            c->p->vars[f->block.ops[i].outputs[k]].op = (uint32_t)(c->n_ops + i);
    f->block.ops = all;
    f->block.n_ops += c->n_ops;
    return TEG_OK;
}

static enum teg_status compress_function(struct compressor *c, struct teg_mil_function *f)
{
    const size_t n_vars = c->p->n_vars;
    struct usage *const usage = teg_arena_array(&c->scratch, n_vars, sizeof *usage);
    if (!usage)
        return teg_base_fail_memory(c->err, "a program", n_vars * sizeof *usage);
    TRY(check_opset(c, f));
    TRY(teg_compress_find(c->p, f, usage, c->err));
    size_t n_weights = 0;
    for (size_t i = 0; i < n_vars; i++)
        n_weights += usage[i].role == ROLE_WEIGHT;
    c->n_ops = 0;
    c->ops = teg_arena_array(&c->scratch, n_weights * MOST_OPS, sizeof *c->ops);
    if (!c->ops)
        return teg_base_fail_memory(c->err, "a program", n_weights * MOST_OPS * sizeof *c->ops);
    for (size_t i = 0; i < n_vars; i++) {
        struct weight *w;
        TRY(decide(c, (teg_mil_var_id)i, &usage[i], &w));
        if (w && !w->pub.why)
            TRY(write_ops(c, w, (teg_mil_var_id)i));
    }
    return join_ops(c, f);
}

enum teg_status teg_compress(struct teg_mil_program *program, const struct teg_compress_options *options,
                             struct teg_compressed **compressed, struct teg_error *err)
{
    struct compressor c = {.p = program, .o = options, .var_capacity = program->n_vars, .err = err};
    c.made = take(&c, 1, sizeof *c.made);
    if (!c.made)
        return TEG_ERR_MEMORY;
    c.made->last = &c.made->first;
    teg_arena_init(&c.scratch, program->arena.allocator);
    enum teg_status status = TEG_OK;
    for (size_t i = 0; status == TEG_OK && i < program->n_functions; i++)
        status = compress_function(&c, &program->functions[i]);
    teg_arena_free(&c.scratch);
    TRY(status);
    size_t n_encoded = 0;
    for (const struct weight *w = c.made->first; w; w = w->next)
        n_encoded += !w->pub.why;
    if (!n_encoded)
        FAIL(err, TEG_ERR_ARGUMENT,
             "cannot quantize: %.160s: expected a dense weight that a rule applies to, found none; see 'inspect "
             "--weights'",
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
