/* graph/graph.c: building, checking and printing graphs.
 *
 * Shape inference is the only judge of an op: teg_graph_op refuses what infer() refuses, and teg_graph_verify asks it
 * again. So no later stage has to check a shape. */
#include "graph/graph.h"

#include <string.h>

#include "base/check.h"

#define MAX_VALUES (1u << 20)

struct op_row {
    const char *name;
    uint32_t min_inputs, max_inputs;
};

static const struct op_row op_table[TEG_OP_COUNT] = {
#define X(kind, name, min, max) [TEG_OP_##kind] = {name, min, max},
    TEG_OPS(X)
#undef X
};

const char *teg_op_name(enum teg_op_kind kind)
{
    return op_table[kind].name;
}

/* ---- building ---- */

/* Makes room for one more item; arenas do not free, so the old array stays behind (at most as large as the new). */
static void *grow(struct teg_arena *arena, void *items, uint32_t n, uint32_t *capacity, size_t item_bytes)
{
    if (n < *capacity)
        return items;
    const uint32_t bigger = *capacity ? *capacity * 2 : 256;
    void *const moved = bigger <= MAX_VALUES ? teg_arena_array(arena, bigger, item_bytes) : NULL;
    if (!moved)
        return NULL;
    if (n)
        memcpy(moved, items, n * item_bytes);
    *capacity = bigger;
    return moved;
}

static enum teg_status add_value(struct teg_graph *g, const struct teg_value *value, teg_value_id *id,
                                 struct teg_error *err)
{
    struct teg_value *const values = grow(g->arena, g->values, g->n_values, &g->value_capacity, sizeof *values);
    if (!values)
        return teg_base_fail_memory(err, "graph values", sizeof *values);
    g->values = values;
    g->values[g->n_values] = *value;
    *id = g->n_values++;
    return TEG_OK;
}

enum teg_status teg_graph_new(struct teg_arena *arena, struct teg_graph **graph, struct teg_error *err)
{
    struct teg_graph *const g = teg_arena_array(arena, 1, sizeof *g);
    if (!g)
        return teg_base_fail_memory(err, "graph", sizeof *g);
    g->arena = arena;
    g->logits = TEG_NO_VALUE;
    const struct teg_value tokens = {
        .kind = TEG_VALUE_INPUT, .dtype = TEG_DTYPE_I32, .shape = {1, {TEG_DIM_T}}, .name = "tokens"};
    TRY(add_value(g, &tokens, &g->tokens, err));
    *graph = g;
    return TEG_OK;
}

enum teg_status teg_graph_const(struct teg_graph *g, const char *name, enum teg_dtype dtype, uint32_t rank,
                                const uint64_t *dims, const void *data, size_t n_bytes, teg_value_id *value,
                                struct teg_error *err)
{
    struct teg_value v = {.kind = TEG_VALUE_CONST, .dtype = dtype, .name = name, .data = data, .n_bytes = n_bytes};
    if (rank < 1 || rank > TEG_SHAPE_RANK)
        FAIL(err, TEG_ERR_FORMAT, "cannot use tensor: %s: expected rank 1 to %d, found %u; the file is damaged", name,
             TEG_SHAPE_RANK, rank);
    size_t rows = 1, row_bytes, total;
    v.shape.rank = rank;
    for (uint32_t i = 0; i < rank; i++) {
        if (dims[i] < 1 || dims[i] > INT32_MAX || (i + 1 < rank && !teg_mul(rows, (size_t)dims[i], &rows)))
            FAIL(err, TEG_ERR_FORMAT,
                 "cannot use tensor: %s: expected dimensions from 1 to 2147483647, found %llu; the file is damaged",
                 name, (unsigned long long)dims[i]);
        v.shape.dims[i] = (int64_t)dims[i];
    }
    if (!teg_dtype_row_bytes(dtype, dims[rank - 1], &row_bytes) || !teg_mul(rows, row_bytes, &total) ||
        total != n_bytes)
        FAIL(err, TEG_ERR_FORMAT,
             "cannot use tensor: %s: expected the bytes of its shape and type %s, found %zu; the file is damaged", name,
             teg_dtype_info(dtype)->name, n_bytes);
    return add_value(g, &v, value, err);
}

enum teg_status teg_graph_encoded(struct teg_graph *g, const char *name, enum teg_dtype dtype,
                                  const struct teg_encoding *encoding, teg_value_id *value, struct teg_error *err)
{
    const size_t n_rows = encoding->n_rows, columns = encoding->columns;
    const struct teg_value v = {.kind = TEG_VALUE_CONST,
                                .dtype = dtype,
                                .encoding = encoding,
                                .shape = {2, {(int64_t)n_rows, (int64_t)columns}},
                                .name = name,
                                .data = encoding->parts[0].codes.bytes,
                                .n_bytes = encoding->n_bytes};
    if (n_rows < 1 || n_rows > INT32_MAX || columns < 1 || columns > INT32_MAX)
        FAIL(err, TEG_ERR_FORMAT,
             "cannot use tensor: %s: expected dimensions from 1 to 2147483647, found %zu x %zu; the file is damaged",
             name, n_rows, columns);
    return add_value(g, &v, value, err);
}

const char *teg_value_type_name(const struct teg_value *value)
{
    return value->encoding ? value->encoding->name : teg_dtype_info(value->dtype)->name;
}

enum teg_status teg_graph_state(struct teg_graph *g, const char *name, uint32_t n_kv_heads, uint32_t head_width,
                                teg_value_id *value, struct teg_error *err)
{
    const struct teg_value v = {
        .kind = TEG_VALUE_STATE, .dtype = TEG_DTYPE_F32, .shape = {2, {n_kv_heads, head_width}}, .name = name};
    if (n_kv_heads < 1 || head_width < 1)
        FAIL(err, TEG_ERR_ARGUMENT,
             "bad graph: %s: expected a state of at least one head and column, found none; report this as a fault",
             name);
    return add_value(g, &v, value, err);
}

/* ---- shapes ---- */

static bool is_rows(const struct teg_value *v)
{
    return v->kind != TEG_VALUE_STATE && v->shape.rank == 2 && v->shape.dims[0] == TEG_DIM_T &&
           v->dtype == TEG_DTYPE_F32;
}

static bool is_vector(const struct teg_value *v, size_t n)
{
    return v->kind == TEG_VALUE_CONST && v->shape.rank == 1 && v->dtype == TEG_DTYPE_F32 && teg_value_width(v) == n;
}

static bool is_matrix(const struct teg_value *v, size_t k)
{
    return v->kind == TEG_VALUE_CONST && v->shape.rank == 2 && (k == 0 || teg_value_width(v) == k);
}

static bool is_state(const struct teg_value *v, const struct teg_op *op)
{
    return v->kind == TEG_VALUE_STATE && v->shape.dims[0] == op->attr.attention.n_kv_heads &&
           v->shape.dims[1] == op->attr.attention.head_width;
}

/* cos and sin of each position, of one shape and type. */
static bool are_tables(const struct teg_op *op, const struct teg_value *cosines, const struct teg_value *sines)
{
    return sines && !cosines->encoding && !sines->encoding && is_matrix(cosines, 0) && is_matrix(sines, 0) &&
           cosines->dtype == sines->dtype && (cosines->dtype == TEG_DTYPE_F32 || cosines->dtype == TEG_DTYPE_F16) &&
           op->attr.rope.magnitude == 1 && cosines->shape.dims[0] == sines->shape.dims[0] &&
           cosines->shape.dims[1] == sines->shape.dims[1];
}

/* The columns of the result, 0 for an op without one; false when the operands do not fit. */
static bool infer(const struct teg_op *op, const struct teg_value *const in[TEG_OP_INPUTS], size_t *width)
{
    const struct teg_value *const a = in[0], *const b = in[1], *const c = in[2];
    const bool looks_up = op->kind == TEG_OP_EMBEDDING || op->kind == TEG_OP_POSITION;
    const size_t n = op->kind == TEG_OP_EMBEDDING ? 0 : teg_value_width(a);
    *width = n;
    if (!looks_up && !is_rows(a))
        return false;
    switch (op->kind) {
    case TEG_OP_EMBEDDING:
        *width = teg_value_width(b);
        return a->dtype == TEG_DTYPE_I32 && a->shape.rank == 1 && is_matrix(b, 0);
    case TEG_OP_POSITION:
        return is_matrix(a, n) && op->attr.first < a->shape.dims[0];
    case TEG_OP_RMS_NORM:
    case TEG_OP_LAYER_NORM:
        return is_vector(b, teg_value_width(b)) && n % teg_value_width(b) == 0 &&
               (!c || is_vector(c, teg_value_width(b)));
    case TEG_OP_LINEAR:
    case TEG_OP_LM_HEAD:
        *width = (size_t)b->shape.dims[0];
        return is_matrix(b, n) && (!c || is_vector(c, *width));
    case TEG_OP_ROPE: {
        const size_t pairs = teg_value_width(b), head = op->attr.rope.head_width;
        const bool angles = is_vector(b, pairs) && (!c || is_vector(c, pairs));
        return head && n % head == 0 && 2 * pairs <= head && (angles || are_tables(op, b, c));
    }
    case TEG_OP_KV_APPEND:
        *width = 0;
        return is_rows(b) && is_state(c, op) && teg_value_width(b) == n &&
               n == (size_t)op->attr.attention.n_kv_heads * op->attr.attention.head_width;
    case TEG_OP_ATTENTION:
        return is_state(b, op) && n == (size_t)op->attr.attention.n_heads * op->attr.attention.head_width &&
               op->attr.attention.n_heads % op->attr.attention.n_kv_heads == 0 &&
               (!c || is_vector(c, op->attr.attention.n_heads));
    case TEG_OP_GLU:
    case TEG_OP_ADD:
        return is_rows(b) && teg_value_width(b) == n;
    case TEG_OP_ACTIVATION:
    case TEG_OP_SCALE:
    case TEG_OP_SOFTCAP:
        return true;
    case TEG_OP_SLICE:
        *width = op->attr.slice.width;
        return op->attr.slice.width > 0 && op->attr.slice.width <= n &&
               op->attr.slice.begin <= n - op->attr.slice.width;
    default:
        return false;
    }
}

static void print_shape(struct teg_buf *out, const struct teg_value *v)
{
    teg_buf_printf(out, "%s[", teg_value_type_name(v));
    for (uint32_t i = 0; i < v->shape.rank; i++) {
        if (v->shape.dims[i] == TEG_DIM_T)
            teg_buf_printf(out, "%sT", i ? ", " : "");
        else
            teg_buf_printf(out, "%s%lld", i ? ", " : "", (long long)v->shape.dims[i]);
    }
    teg_buf_puts(out, "]");
}

static enum teg_status check_op(const struct teg_graph *g, const struct teg_op *op, uint32_t n_defined, size_t *width,
                                struct teg_error *err)
{
    const struct op_row *const row = &op_table[op->kind];
    const struct teg_value *in[TEG_OP_INPUTS] = {NULL};
    if (op->n_inputs < row->min_inputs || op->n_inputs > row->max_inputs)
        FAIL(err, TEG_ERR_ARGUMENT, "bad graph: %s: expected %u to %u operands, found %u; report this as a fault",
             row->name, row->min_inputs, row->max_inputs, op->n_inputs);
    for (uint32_t i = 0; i < op->n_inputs; i++) {
        if (op->inputs[i] >= n_defined)
            FAIL(err, TEG_ERR_ARGUMENT,
                 "bad graph: %s: expected operand %u to be defined before, found %%%u; report "
                 "this as a fault",
                 row->name, i, op->inputs[i]);
        in[i] = &g->values[op->inputs[i]];
    }
    if (infer(op, in, width))
        return TEG_OK;
    struct teg_buf shapes = {0};
    for (uint32_t i = 0; i < op->n_inputs; i++) {
        teg_buf_printf(&shapes, "%s%s ", i ? ", " : "", in[i]->name ? in[i]->name : "value");
        print_shape(&shapes, in[i]);
    }
    const enum teg_status status =
        teg_base_fail(err, TEG_ERR_FORMAT, 0,
                      "bad model: %s: expected operands whose shapes fit, found %s; the file is damaged or is not of "
                      "the architecture it names",
                      row->name, shapes.bytes && !shapes.failed ? shapes.bytes : "others");
    teg_buf_free(&shapes);
    return status;
}

enum teg_status teg_graph_op(struct teg_graph *g, const struct teg_op *op, teg_value_id *value, struct teg_error *err)
{
    size_t width;
    TRY(check_op(g, op, g->n_values, &width, err));
    struct teg_op *const ops = grow(g->arena, g->ops, g->n_ops, &g->op_capacity, sizeof *ops);
    if (!ops)
        return teg_base_fail_memory(err, "graph ops", sizeof *ops);
    g->ops = ops;
    struct teg_op added = *op;
    added.result = TEG_NO_VALUE;
    if (width) {
        const struct teg_value v = {.kind = TEG_VALUE_RESULT,
                                    .dtype = TEG_DTYPE_F32,
                                    .shape = {2, {TEG_DIM_T, (int64_t)width}},
                                    .op = g->n_ops};
        TRY(add_value(g, &v, &added.result, err));
    }
    g->ops[g->n_ops++] = added;
    if (value)
        *value = added.result;
    return TEG_OK;
}

/* Operands come from earlier ops, and a state that is read was appended to. */
static enum teg_status verify_operands(const struct teg_graph *g, uint32_t i, struct teg_error *err)
{
    const struct teg_op *const op = &g->ops[i];
    const char *const name = op_table[op->kind].name;
    for (uint32_t k = 0; k < op->n_inputs; k++) {
        const struct teg_value *const in = &g->values[op->inputs[k]];
        if (in->kind == TEG_VALUE_RESULT && in->op >= i)
            FAIL(err, TEG_ERR_ARGUMENT,
                 "bad graph: %s: expected operand %u to be defined before, found %%%u; report this as a fault", name, k,
                 op->inputs[k]);
    }
    if (op->kind != TEG_OP_ATTENTION)
        return TEG_OK;
    for (uint32_t j = i; j-- > 0;) /* a builder appends just before, so this search is short */
        if (g->ops[j].kind == TEG_OP_KV_APPEND && g->ops[j].inputs[2] == op->inputs[1])
            return TEG_OK;
    FAIL(err, TEG_ERR_ARGUMENT,
         "bad graph: %s: expected %s to be appended to before it is read, found no such op; report this as a fault",
         name, g->values[op->inputs[1]].name);
}

static enum teg_status verify_result(const struct teg_graph *g, uint32_t i, size_t width, struct teg_error *err)
{
    const struct teg_op *const op = &g->ops[i];
    const char *const name = op_table[op->kind].name;
    if (op->result != TEG_NO_VALUE && (width == 0 || op->result >= g->n_values || g->values[op->result].op != i ||
                                       g->values[op->result].kind != TEG_VALUE_RESULT))
        FAIL(err, TEG_ERR_ARGUMENT, "bad graph: %s: expected a result of its own, found %%%u; report this as a fault",
             name, op->result);
    if (width && (op->result == TEG_NO_VALUE || teg_value_width(&g->values[op->result]) != width))
        FAIL(err, TEG_ERR_ARGUMENT,
             "bad graph: %s: expected a result of width %zu, found another; report this as a fault", name, width);
    return TEG_OK;
}

enum teg_status teg_graph_verify(const struct teg_graph *g, struct teg_error *err)
{
    for (uint32_t i = 0; i < g->n_ops; i++) {
        size_t width;
        TRY(check_op(g, &g->ops[i], g->n_values, &width, err));
        TRY(verify_operands(g, i, err));
        TRY(verify_result(g, i, width, err));
    }
    if (g->logits >= g->n_values || g->values[g->logits].kind != TEG_VALUE_RESULT)
        FAIL(err, TEG_ERR_ARGUMENT, "bad graph: output: expected logits, found none; report this as a fault");
    return TEG_OK;
}

/* ---- printing ---- */

static const char *const activation_names[] = {[TEG_ACT_SILU] = "silu",
                                               [TEG_ACT_GELU_TANH] = "gelu_tanh",
                                               [TEG_ACT_GELU_ERF] = "gelu_erf",
                                               [TEG_ACT_RELU] = "relu"};

static void dump_attributes(const struct teg_op *op, struct teg_buf *out)
{
    switch (op->kind) {
    case TEG_OP_EMBEDDING:
    case TEG_OP_SCALE:
        teg_buf_printf(out, " scale=%g", (double)op->attr.scale.scale);
        break;
    case TEG_OP_POSITION:
        if (op->attr.first)
            teg_buf_printf(out, " first=%u", op->attr.first);
        break;
    case TEG_OP_RMS_NORM:
    case TEG_OP_LAYER_NORM:
        teg_buf_printf(out, " eps=%g", (double)op->attr.norm.eps);
        if (op->attr.norm.weight_offset != 0)
            teg_buf_printf(out, " weight_offset=%g", (double)op->attr.norm.weight_offset);
        if (op->attr.norm.by_max)
            teg_buf_printf(out, " by max(|x|, %g)", (double)op->attr.norm.least_max);
        break;
    case TEG_OP_ROPE:
        teg_buf_printf(out, " head_width=%u %s", op->attr.rope.head_width,
                       op->attr.rope.interleaved ? "interleaved" : "half");
        if (op->attr.rope.magnitude != 1)
            teg_buf_printf(out, " magnitude=%g", (double)op->attr.rope.magnitude);
        break;
    case TEG_OP_ATTENTION:
        teg_buf_printf(out, " heads=%u kv_heads=%u head_width=%u scale=%g", op->attr.attention.n_heads,
                       op->attr.attention.n_kv_heads, op->attr.attention.head_width, (double)op->attr.attention.scale);
        if (op->attr.attention.window)
            teg_buf_printf(out, " window=%u", op->attr.attention.window);
        if (op->attr.attention.softcap > 0)
            teg_buf_printf(out, " softcap=%g", (double)op->attr.attention.softcap);
        break;
    case TEG_OP_GLU:
    case TEG_OP_ACTIVATION:
        teg_buf_printf(out, " %s", activation_names[op->attr.activation]);
        break;
    case TEG_OP_SOFTCAP:
        teg_buf_printf(out, " cap=%g", (double)op->attr.cap);
        break;
    case TEG_OP_SLICE:
        teg_buf_printf(out, " begin=%u width=%u", op->attr.slice.begin, op->attr.slice.width);
        break;
    default:
        break;
    }
}

void teg_graph_dump(const struct teg_graph *g, struct teg_buf *out)
{
    for (uint32_t i = 0; i < g->n_ops; i++) {
        const struct teg_op *const op = &g->ops[i];
        if (op->result != TEG_NO_VALUE)
            teg_buf_printf(out, "%%%u = ", op->result);
        teg_buf_printf(out, "%s(", op_table[op->kind].name);
        for (uint32_t k = 0; k < op->n_inputs; k++) {
            const struct teg_value *const in = &g->values[op->inputs[k]];
            teg_buf_puts(out, k ? ", " : "");
            if (in->kind == TEG_VALUE_RESULT) {
                teg_buf_printf(out, "%%%u", op->inputs[k]);
            } else {
                teg_buf_puts(out, in->name);
                if (in->kind == TEG_VALUE_CONST) {
                    teg_buf_puts(out, " ");
                    print_shape(out, in);
                }
            }
        }
        teg_buf_puts(out, ")");
        dump_attributes(op, out);
        if (op->result != TEG_NO_VALUE) {
            const struct teg_value *const result = &g->values[op->result];
            teg_buf_puts(out, " : ");
            print_shape(out, result);
            if (result->name)
                teg_buf_printf(out, " \"%s\"", result->name);
        }
        teg_buf_puts(out, "\n");
    }
}
