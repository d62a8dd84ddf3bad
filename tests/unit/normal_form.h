/* The normal form of a graph, in which raise(lower(g)) == g holds: what a written program cannot tell apart is one
 * thing. RoPE is by tables, in halves of a head; a norm's offset is in its weight, the embedding's factor is an op of
 * its own, constants are floats.
 *
 * Written without a look at src/pass: it says once more, in another way, what lowering does to columns. */
#ifndef NORMAL_FORM_H
#define NORMAL_FORM_H

#include <math.h>
#include <stdlib.h>

#include "graph/graph.h"

struct normal {
    const struct teg_graph *g;
    struct teg_graph *out;
    struct teg_arena *arena;
    teg_value_id *value;
    const struct teg_op **turned_by; /* of each value: the rope whose pairs its columns are in; or NULL */
    uint32_t context;
};

static inline size_t normal_rows(const struct teg_value *v)
{
    return v->shape.rank == 2 ? (size_t)v->shape.dims[0] : 1;
}

static inline float *normal_floats(const struct normal *n, teg_value_id id)
{
    const struct teg_value *const v = &n->g->values[id];
    const size_t rows = normal_rows(v), columns = teg_value_width(v);
    float *const x = teg_arena_alloc(n->arena, rows * columns * sizeof *x);
    size_t row_bytes;
    assert_non_null(x);
    assert_true(teg_dtype_row_bytes(v->dtype, columns, &row_bytes));
    for (size_t r = 0; r < rows; r++)
        teg_dtype_decode(v->dtype, (const uint8_t *)v->data + r * row_bytes, x + r * columns, columns);
    return x;
}

static inline teg_value_id normal_const(const struct normal *n, const char *name, const float *x, size_t rows,
                                        size_t columns, uint32_t rank)
{
    struct teg_error err = {0};
    teg_value_id id = TEG_NO_VALUE;
    const uint64_t dims[2] = {rank == 2 ? rows : columns, columns};
    if (teg_graph_const(n->out, name, TEG_DTYPE_F32, rank, dims, x, rows * columns * sizeof *x, &id, &err) != TEG_OK)
        fail_msg("%s", err.message);
    return id;
}

/* Rows (or elements) of each head: first components of the pairs, those that do not turn, second components, … */
static inline void normal_turn(const struct normal *n, const struct teg_op *rope, float *x, size_t rows, size_t columns)
{
    const size_t k = rope->attr.rope.head_width, pairs = teg_value_width(&n->g->values[rope->inputs[1]]), half = k / 2;
    float *const old = malloc(rows * columns * sizeof *old);
    assert_non_null(old);
    memcpy(old, x, rows * columns * sizeof *old);
    for (size_t head = 0; head < rows; head += k) {
        size_t rest = 2 * pairs;
        for (size_t i = 0; i < half; i++)
            memcpy(x + (head + i) * columns,
                   old + (head + (i >= pairs                    ? rest++
                                  : rope->attr.rope.interleaved ? 2 * i
                                                                : i)) *
                             columns,
                   columns * sizeof *x);
        for (size_t i = 0; i < half; i++)
            memcpy(x + (head + half + i) * columns,
                   old + (head + (i >= pairs                    ? rest++
                                  : rope->attr.rope.interleaved ? 2 * i + 1
                                                                : i + pairs)) *
                             columns,
                   columns * sizeof *x);
    }
    free(old);
}

/* Which products and norms a rope's input comes from. */
static inline void normal_find_turned(struct normal *n)
{
    for (uint32_t i = 0; i < n->g->n_ops; i++) {
        const struct teg_op *const rope = &n->g->ops[i];
        if (rope->kind != TEG_OP_ROPE ||
            (!rope->attr.rope.interleaved &&
             2 * teg_value_width(&n->g->values[rope->inputs[1]]) == rope->attr.rope.head_width))
            continue;
        for (teg_value_id v = rope->inputs[0]; n->g->values[v].kind == TEG_VALUE_RESULT;) {
            const struct teg_op *const op = &n->g->ops[n->g->values[v].op];
            n->turned_by[v] = rope;
            if (op->kind == TEG_OP_LINEAR)
                break;
            assert_int_equal(op->kind, TEG_OP_RMS_NORM);
            v = op->inputs[0];
        }
    }
}

static inline teg_value_id normal_matrix(struct normal *n, const struct teg_op *op, uint32_t k)
{
    const struct teg_value *const v = &n->g->values[op->inputs[k]];
    const size_t rows = normal_rows(v), columns = teg_value_width(v);
    const struct teg_op *const rope = op->kind == TEG_OP_EMBEDDING ? NULL : n->turned_by[op->result];
    float *const x = normal_floats(n, op->inputs[k]);
    if (rope && v->shape.rank == 2)
        normal_turn(n, rope, x, rows, columns);
    else if (rope) /* a bias, a norm's weight */
        normal_turn(n, rope, x, columns, 1);
    for (size_t i = 0; op->kind == TEG_OP_RMS_NORM && i < columns; i++)
        x[i] += op->attr.norm.weight_offset;
    return normal_const(n, v->name, x, rows, columns, v->shape.rank);
}

static inline void normal_tables(struct normal *n, const struct teg_op *op, struct teg_op *out)
{
    const bool is_long =
        op->n_inputs == 3 && op->attr.rope.original_context && n->context > op->attr.rope.original_context;
    const teg_value_id id = op->inputs[is_long ? 2 : 1];
    const float *const f = normal_floats(n, id);
    const size_t pairs = teg_value_width(&n->g->values[id]), half = op->attr.rope.head_width / 2;
    float *const x = teg_arena_alloc(n->arena, 2 * n->context * half * sizeof *x);
    assert_non_null(x);
    float *const y = x + n->context * half;
    for (size_t p = 0; p < n->context; p++)
        for (size_t i = 0; i < half; i++) {
            const double angle = i < pairs ? (double)p * (double)f[i] : 0;
            const double magnitude = i < pairs ? (double)op->attr.rope.magnitude : 1;
            x[p * half + i] = (float)(cos(angle) * magnitude);
            y[p * half + i] = (float)(sin(angle) * magnitude);
        }
    *out = *op;
    out->n_inputs = 3;
    out->inputs[1] = normal_const(n, "cos", x, n->context, half, 2);
    out->inputs[2] = normal_const(n, "sin", y, n->context, half, 2);
    out->attr.rope.interleaved = false;
    out->attr.rope.magnitude = 1;
    out->attr.rope.original_context = 0;
}

static inline void normal_op(struct normal *n, const struct teg_op *op)
{
    struct teg_error err = {0};
    struct teg_op out = *op;
    if (op->kind == TEG_OP_ROPE)
        normal_tables(n, op, &out);
    for (uint32_t k = 0; k < op->n_inputs; k++) {
        const struct teg_value *const v = &n->g->values[op->inputs[k]];
        if (v->kind == TEG_VALUE_STATE && n->value[op->inputs[k]] == TEG_NO_VALUE)
            assert_int_equal(teg_graph_state(n->out, v->name, (uint32_t)v->shape.dims[0], (uint32_t)v->shape.dims[1],
                                             &n->value[op->inputs[k]], &err),
                             TEG_OK);
        if (v->kind == TEG_VALUE_CONST && op->kind != TEG_OP_ROPE)
            out.inputs[k] = normal_matrix(n, op, k);
        else if (v->kind != TEG_VALUE_CONST)
            out.inputs[k] = n->value[op->inputs[k]];
    }
    const float factor = op->kind == TEG_OP_EMBEDDING ? op->attr.scale.scale : 1;
    if (op->kind == TEG_OP_EMBEDDING)
        out.attr.scale.scale = 1;
    if (op->kind == TEG_OP_RMS_NORM)
        out.attr.norm.weight_offset = 0;
    teg_value_id v = TEG_NO_VALUE;
    if (teg_graph_op(n->out, &out, &v, &err) != TEG_OK)
        fail_msg("%s", err.message);
    if (factor != 1)
        assert_int_equal(
            teg_graph_op(
                n->out,
                &(struct teg_op){.kind = TEG_OP_SCALE, .n_inputs = 1, .inputs = {v}, .attr.scale.scale = factor}, &v,
                &err),
            TEG_OK);
    if (op->result != TEG_NO_VALUE)
        n->value[op->result] = v;
}

static inline struct teg_graph *normal_form(const struct teg_graph *g, uint32_t context, struct teg_arena *arena)
{
    struct normal n = {.g = g, .arena = arena, .context = context};
    struct teg_error err = {0};
    assert_int_equal(teg_graph_new(arena, &n.out, &err), TEG_OK);
    n.value = teg_arena_array(arena, g->n_values, sizeof *n.value);
    n.turned_by = teg_arena_array(arena, g->n_values, sizeof *n.turned_by);
    assert_true(n.value && n.turned_by);
    for (uint32_t i = 0; i < g->n_values; i++)
        n.value[i] = TEG_NO_VALUE;
    n.value[g->tokens] = n.out->tokens;
    normal_find_turned(&n);
    for (uint32_t i = 0; i < g->n_ops; i++)
        normal_op(&n, &g->ops[i]);
    n.out->logits = n.value[g->logits];
    assert_int_equal(teg_graph_verify(n.out, &err), TEG_OK);
    return n.out;
}

#endif
