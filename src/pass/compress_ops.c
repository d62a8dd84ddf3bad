/* pass/compress_ops.c: the constexpr ops of an encoded weight, and their parts as constants.
 *
 * Two generations. Opset 9 (iOS 18): tensors of few bits, blocks, sparse pairs, each op fed by another. Opset 7 and 8
 * (iOS 16, 17): every parameter is a constant, so one op has to do: scales for the tensor or its channels, one palette
 * as a bit stream, one sparse form; its scales and tables have the weight's own type, for nothing could cast them after
 * it. */
#include <string.h>

#include "base/check.h"
#include "mil/type.h"
#include "pass/compress_int.h"

/* ---- variables and ops ---- */

static enum teg_status new_var(struct compressor *c, const char *base, const char *suffix,
                               const struct teg_mil_type *type, teg_mil_var_id *id)
{
    struct teg_mil_program *const p = c->p;
    if (p->n_vars == c->var_capacity) {
        const size_t more = 2 * p->n_vars + 64;
        struct teg_mil_var *const moved = teg_compress_take(c, more, sizeof *moved);
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
    struct teg_mil_const *const value = teg_compress_take(c, 1, sizeof *value);
    if (!value)
        return TEG_ERR_MEMORY;
    TRY(new_var(c, base, suffixes[which], &type, id));
    *value = (struct teg_mil_const){.type = type,
                                    .n_bytes = teg_compress_part_bytes(w, which),
                                    .deferred = &w->deferred,
                                    .deferred_part = (uint32_t)which};
    c->p->vars[*id].constant = value;
    return TEG_OK;
}

/* args: in the order of their names. */
static enum teg_status new_op(struct compressor *c, const char *type, const struct teg_mil_bind *args, size_t n_args,
                              const teg_mil_var_id *outputs, size_t n_outputs)
{
    struct teg_mil_arg *const own = teg_compress_take(c, n_args, sizeof *own);
    teg_mil_var_id *const vars = teg_compress_take(c, n_args + n_outputs, sizeof *vars);
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

/* A constant of 32-bit integers: a scalar with rank 0, else a vector. */
static enum teg_status new_ints(struct compressor *c, const char *base, const char *suffix, enum teg_mil_dtype dtype,
                                uint32_t rank, const int64_t *given, size_t n, teg_mil_var_id *id)
{
    const int64_t length = (int64_t)n;
    const struct teg_mil_type type = tensor(dtype, rank, &length);
    struct teg_mil_const *const value = teg_compress_take(c, 1, sizeof *value);
    int32_t *const ints = teg_compress_take(c, n, sizeof *ints);
    if (!value || !ints)
        return TEG_ERR_MEMORY;
    for (size_t i = 0; i < n; i++)
        ints[i] = (int32_t)given[i];
    TRY(new_var(c, base, suffix, &type, id));
    *value = (struct teg_mil_const){.type = type, .bytes = (const uint8_t *)ints, .n_bytes = n * sizeof *ints};
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
        TRY(new_ints(c, base, "vector_axis", TEG_MIL_INT32, 0, (const int64_t[]){w->g.along}, 1, &args[n].var));
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
    struct teg_mil_const *const value = teg_compress_take(c, 1, sizeof *value);
    const struct teg_mil_type type = tensor(TEG_MIL_STRING, 0, NULL);
    struct teg_mil_bind args[2] = {{"output_dtype", 0}, {"source_val", half}};
    if (!value)
        return TEG_ERR_MEMORY;
    *value = (struct teg_mil_const){.type = type, .strings = &fp32};
    TRY(new_var(c, c->p->vars[id].name, "dtype", &type, &args[0].var));
    c->p->vars[args[0].var].constant = value;
    return new_op(c, "constexpr_cast", args, 2, &id, 1);
}

/* Dense halves: a constant again. */
static enum teg_status write_dense(struct compressor *c, const struct weight *w, teg_mil_var_id id)
{
    const struct teg_mil_type halves = tensor(TEG_MIL_FP16, w->g.rank, w->g.dims);
    struct teg_mil_const *const value = teg_compress_take(c, 1, sizeof *value);
    teg_mil_var_id half;
    if (!value)
        return TEG_ERR_MEMORY;
    TRY(half_result(c, id, &half));
    *value = (struct teg_mil_const){.type = halves,
                                    .n_bytes = w->form.parts[TEG_QUANT_DATA].n_bytes,
                                    .deferred = &w->deferred,
                                    .deferred_part = TEG_QUANT_DATA};
    c->p->vars[id].constant = NULL;
    c->p->vars[half].constant = value;
    c->p->vars[half].op = UINT32_MAX;
    return half != id ? cast_back(c, half, id) : TEG_OK;
}

static enum teg_status write_new_form(struct compressor *c, const struct weight *w, teg_mil_var_id id)
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

/* ---- before iOS 18 ---- */

/* A part as bytes: a stream of codes, a mask. */
static enum teg_status new_stream(struct compressor *c, const struct weight *w, const char *base,
                                  enum teg_quant_part which, struct teg_mil_bind *arg)
{
    const int64_t n = (int64_t)teg_compress_part_bytes(w, which);
    return new_part(c, w, base, which, TEG_MIL_UINT8, 1, &n, &arg->var);
}

static enum teg_status write_old_form(struct compressor *c, const struct weight *w, teg_mil_var_id id)
{
    const char *const base = c->p->vars[id].name;
    const struct teg_quantized *const q = &w->form;
    const enum teg_mil_dtype floats = c->p->vars[id].type.dtype;
    const int64_t rows = (int64_t)w->g.rows, kept = (int64_t)q->n_kept, entries = (int64_t)1 << q->rule.bits;
    struct teg_mil_bind args[4] = {{0}};
    const char *type = "constexpr_affine_dequantize";
    size_t n = 3;
    if (q->rule.method == TEG_QUANT_LINEAR) {
        const enum teg_mil_dtype codes = code_type(&q->rule);
        TRY(new_ints(c, base, "axis", TEG_MIL_INT32, 0, (const int64_t[]){w->g.axis}, 1, &args[0].var));
        TRY(new_part(c, w, base, TEG_QUANT_DATA, codes, w->g.rank, w->g.dims, &args[1].var));
        TRY(new_part(c, w, base, TEG_QUANT_SCALE, floats, 1, &rows, &args[2].var));
        TRY(new_part(c, w, base, TEG_QUANT_OFFSET, codes, 1, &rows, &args[3].var));
        args[0].arg = "axis";
        args[1].arg = "quantized_data";
        args[2].arg = "scale";
        args[3].arg = "zero_point";
        n = 4;
    } else if (q->rule.method == TEG_QUANT_PALETTE) {
        type = "constexpr_lut_to_dense";
        args[0].arg = "indices";
        args[1].arg = "lut";
        TRY(new_stream(c, w, base, TEG_QUANT_DATA, &args[0]));
        TRY(new_part(c, w, base, TEG_QUANT_LUT, floats, 1, &entries, &args[1].var));
    } else {
        type = "constexpr_sparse_to_dense";
        args[0].arg = "mask";
        args[1].arg = "nonzero_data";
        TRY(new_stream(c, w, base, TEG_QUANT_MASK, &args[0]));
        TRY(new_part(c, w, base, TEG_QUANT_DATA, floats, 1, &kept, &args[1].var));
    }
    if (n == 3) {
        args[2].arg = "shape";
        TRY(new_ints(c, base, "shape", TEG_MIL_UINT32, 1, w->g.dims, w->g.rank, &args[2].var));
    }
    c->p->vars[id].constant = NULL;
    return new_op(c, type, args, n, &id, 1);
}

/* What of a rule the older ops cannot say; NULL: nothing. */
static const char *beyond_old_forms(const struct teg_quant_rule *rule)
{
    const bool is_sparse = rule->sparsity > 0 || rule->keep_of;
    if (is_sparse && rule->method != TEG_QUANT_F16)
        return "a pruned weight that is encoded too";
    if (rule->method == TEG_QUANT_LINEAR && rule->bits != 8)
        return "scales of 4 bits";
    if (rule->method == TEG_QUANT_LINEAR && rule->grain == TEG_QUANT_PER_BLOCK)
        return "scales by blocks";
    if (rule->method == TEG_QUANT_LINEAR && rule->float_offset && !rule->symmetric)
        return "offsets in fp16";
    if (rule->method == TEG_QUANT_PALETTE && rule->vector > 1)
        return "palette entries of several values";
    if (rule->method == TEG_QUANT_PALETTE && rule->bits == 3)
        return "a palette of 8 entries";
    if (rule->method == TEG_QUANT_PALETTE && rule->grain != TEG_QUANT_PER_TENSOR)
        return "a palette for each group";
    return NULL;
}

/* The nearest grain that they have. */
static struct teg_quant_rule fitted(const struct teg_quant_rule *rule)
{
    struct teg_quant_rule r = *rule;
    if (r.method == TEG_QUANT_PALETTE)
        r.grain = TEG_QUANT_PER_TENSOR;
    if (r.method == TEG_QUANT_LINEAR && r.grain == TEG_QUANT_PER_BLOCK)
        r.grain = TEG_QUANT_PER_CHANNEL;
    return r;
}

enum teg_status teg_compress_check_form(const struct compressor *c, const char *name, struct teg_quant_rule *rule)
{
    const struct teg_quant_rule near = fitted(rule);
    const char *const what = beyond_old_forms(rule->fit ? &near : rule);
    if (c->opset >= TEG_COMPRESS_IOS18)
        return TEG_OK;
    if (what)
        FAIL(c->err, TEG_ERR_UNSUPPORTED,
             "cannot quantize: %.100s: expected int8 or uint8 by channel or tensor, lut8, lut6, lut4, lut2 or lut1 by "
             "tensor (lut4/tensor), or f16 with pruning, which programs before iOS 18 have ops for, found %s, which "
             "needs %s of opset CoreML8 (iOS 18, macOS 15); choose one of those%s, or export the model for iOS 18",
             name, what,
             rule->method == TEG_QUANT_LINEAR    ? "constexpr_blockwise_shift_scale"
             : rule->method == TEG_QUANT_PALETTE ? "the newer constexpr_lut_to_dense"
                                                 : "constexpr_lut_to_sparse",
             beyond_old_forms(&near) ? "" : " (--fit takes the nearest)");
    if (rule->fit)
        *rule = near;
    return TEG_OK;
}

enum teg_status teg_compress_write(struct compressor *c, const struct weight *w, teg_mil_var_id id)
{
    if (w->form.rule.method == TEG_QUANT_F16 && !w->form.sparse)
        return write_dense(c, w, id);
    return w->opset < TEG_COMPRESS_IOS18 ? write_old_form(c, w, id) : write_new_form(c, w, id);
}
