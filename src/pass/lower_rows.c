/* pass/lower_rows.c: the ops of a layer that work on rows: norms, products, rotations, gates; and the head.
 *
 * RMSNorm is written as the layer norm of [x, -x], whose mean is 0: the squares are summed inside of one op, in
 * whatever precision the device has there. Written out, mean(x²) passes the largest half float in models people use. */
#include "pass/lower_int.h"

#include <stdio.h>

static void put(struct lowerer *l, const struct teg_op *op, var flat)
{
    l->seen[op->result] = (struct seen){.flat = flat, .heads = TEG_MIL_NO_VAR};
}

static void put_heads(struct lowerer *l, const struct teg_op *op, var heads, uint32_t head_width)
{
    l->seen[op->result] = (struct seen){.flat = TEG_MIL_NO_VAR, .heads = heads, .head_width = head_width};
}

/* ---- norms ---- */

static var unit_norm(struct lowerer *l, var x, uint32_t rank, uint32_t axis, uint32_t width, float eps)
{
    const var both[2] = {x, teg_lower_multiply(l, "negative", x, -1)};
    const var doubled = teg_lower_concat(l, "doubled", both, 2, (int32_t)axis);
    const var normed = OP(l, "layer_norm", "unit", {"x", doubled}, {"axes", INTS(l, (int32_t)axis)},
                          {"epsilon", teg_lower_half(l, eps)});
    return teg_lower_slice(l, "unit_half", normed, rank, axis, 0, width);
}

/* x divided by the largest |x|, or by `least`: eps is that of the quotient. */
static var divide_by_max(struct lowerer *l, var x, uint32_t axis, float least)
{
    const var size = OP(l, "abs", "size", {"x", x});
    const var most = OP(l, "reduce_max", "most", {"x", size}, {"axes", INTS(l, (int32_t)axis)},
                        {"keep_dims", teg_mil_make_bool(l->m, true)});
    const var divisor = least > 0 ? OP(l, "maximum", "divisor", {"x", most}, {"y", teg_lower_half(l, least)}) : most;
    return OP(l, "real_div", "by_most", {"x", x}, {"y", divisor});
}

static void norm(struct lowerer *l, const struct teg_op *op)
{
    const uint32_t n = (uint32_t)teg_value_width(&l->g->values[op->inputs[1]]);
    const bool by_head = n != teg_value_width(&l->g->values[op->inputs[0]]);
    var x = by_head ? teg_lower_heads(l, op->inputs[0], n) : teg_lower_flat(l, op->inputs[0]);
    const uint32_t rank = by_head || l->c->channels ? 4 : 3;
    const uint32_t axis = by_head ? teg_lower_head_axis(l) : teg_lower_flat_axis(l);
    const int64_t columns[4] = {1, n, 1, 1};
    if (op->attr.norm.by_max)
        x = divide_by_max(l, x, axis, op->attr.norm.least_max);
    struct order order = {.width = n, .head_width = n};
    if (by_head && l->moved[op->result]) {
        order.n_pairs = (l->moved[op->result] - 1) >> 1;
        order.interleaved = (l->moved[op->result] - 1) & 1;
    }
    const var weight = teg_lower_vector(l, op->inputs[1], op->attr.norm.weight_offset, &order, order.n_pairs != 0,
                                        l->c->channels ? 4 : 1, l->c->channels ? columns : columns + 1);
    const var y = OP(l, "mul", "norm", {"x", unit_norm(l, x, rank, axis, n, op->attr.norm.eps)}, {"y", weight});
    if (by_head)
        put_heads(l, op, y, n);
    else
        put(l, op, y);
}

static void layer_norm(struct lowerer *l, const struct teg_op *op)
{
    const int64_t n = (int64_t)teg_value_width(&l->g->values[op->inputs[1]]);
    const bool by_head = (size_t)n != teg_value_width(&l->g->values[op->inputs[0]]);
    const uint32_t axis = by_head ? teg_lower_head_axis(l) : teg_lower_flat_axis(l);
    struct teg_mil_bind args[6] = {
        {"x", by_head ? teg_lower_heads(l, op->inputs[0], (uint32_t)n) : teg_lower_flat(l, op->inputs[0])},
        {"axes", INTS(l, (int32_t)axis)},
        {"epsilon", teg_lower_half(l, op->attr.norm.eps)},
        {"gamma", teg_lower_vector(l, op->inputs[1], 0, NULL, 0, 1, &n)}};
    if (op->n_inputs > 2)
        args[4] = (struct teg_mil_bind){"beta", teg_lower_vector(l, op->inputs[2], 0, NULL, 0, 1, &n)};
    const var y = teg_lower_op(l, "layer_norm", "norm", args);
    if (by_head)
        put_heads(l, op, y, (uint32_t)n);
    else
        put(l, op, y);
}

/* ---- products ---- */

static var product(struct lowerer *l, const char *name, var x, var weight, var bias)
{
    struct teg_mil_bind args[4] = {{"x", x}, {"weight", weight}};
    if (bias != TEG_MIL_NO_VAR)
        args[2] = (struct teg_mil_bind){"bias", bias};
    return teg_lower_op(l, l->c->channels ? "conv" : "linear", name, args);
}

static void linear(struct lowerer *l, const struct teg_op *op)
{
    const uint32_t index = (uint32_t)(op - l->g->ops);
    uint32_t n_orders;
    const struct order *const orders = teg_lower_orders_of(l, index, &n_orders);
    const var w =
        teg_lower_weight(l, &(struct weight_use){.value = op->inputs[1], .op = index, .as_conv = l->c->channels});
    var bias = TEG_MIL_NO_VAR;
    if (op->n_inputs == 3) {
        const int64_t n = (int64_t)teg_value_width(&l->g->values[op->inputs[2]]);
        bias = teg_lower_vector(l, op->inputs[2], 0, orders, n_orders, 1, &n);
    }
    put(l, op, product(l, "product", teg_lower_flat(l, op->inputs[0]), w, bias));
}

/* ---- rotations ---- */

static void rope(struct lowerer *l, const struct teg_op *op)
{
    const struct rope_tables *const t = &l->ropes[teg_lower_rope_index(l, op)];
    const uint32_t width = op->attr.rope.head_width, half = width / 2, axis = teg_lower_head_axis(l);
    const var x = teg_lower_heads(l, op->inputs[0], width);
    const var first = teg_lower_slice(l, "first_half", x, 4, axis, 0, half);
    const var second = teg_lower_slice(l, "second_half", x, 4, axis, half, width);
    const var halves[2] = {teg_lower_multiply(l, "turned_half", second, -1), first};
    const var turned = teg_lower_concat(l, "turned", halves, 2, (int32_t)axis);
    const var by_cos = OP(l, "mul", "by_cos", {"x", x}, {"y", t->cos});
    const var by_sin = OP(l, "mul", "by_sin", {"x", turned}, {"y", t->sin});
    put_heads(l, op, OP(l, "add", "rotated", {"x", by_cos}, {"y", by_sin}), width);
}

/* ---- elementwise ---- */

static var activated(struct lowerer *l, const struct teg_op *op)
{
    const var x = teg_lower_flat(l, op->inputs[0]);
    const char *const mode = op->attr.activation == TEG_ACT_GELU_ERF ? "EXACT" : "TANH_APPROXIMATION";
    if (op->attr.activation == TEG_ACT_SILU || op->attr.activation == TEG_ACT_RELU)
        return teg_lower_op(l, op->attr.activation == TEG_ACT_SILU ? "silu" : "relu", "gate",
                            (struct teg_mil_bind[]){{"x", x}, {0}});
    return OP(l, "gelu", "gate", {"x", x}, {"mode", teg_mil_make_string(l->m, mode)});
}

static void glu(struct lowerer *l, const struct teg_op *op)
{
    const var gate = activated(l, op), up = teg_lower_flat(l, op->inputs[1]);
    put(l, op, OP(l, "mul", "gated", {"x", gate}, {"y", up}));
}

static void activation(struct lowerer *l, const struct teg_op *op)
{
    put(l, op, activated(l, op));
}

static void add(struct lowerer *l, const struct teg_op *op)
{
    const var x = teg_lower_flat(l, op->inputs[0]), y = teg_lower_flat(l, op->inputs[1]);
    put(l, op, OP(l, "add", "sum", {"x", x}, {"y", y}));
}

static void scale(struct lowerer *l, const struct teg_op *op)
{
    put(l, op, teg_lower_multiply(l, "scaled", teg_lower_flat(l, op->inputs[0]), op->attr.scale.scale));
}

/* Divided, because 1/cap is no half float where cap is one. */
static var capped(struct lowerer *l, var x, float cap)
{
    const var small = OP(l, "real_div", "in_caps", {"x", x}, {"y", teg_lower_half(l, cap)});
    return teg_lower_multiply(l, "capped", OP(l, "tanh", "bent", {"x", small}), cap);
}

static void softcap(struct lowerer *l, const struct teg_op *op)
{
    put(l, op, capped(l, teg_lower_flat(l, op->inputs[0]), op->attr.cap));
}

static void slice(struct lowerer *l, const struct teg_op *op)
{
    const uint32_t begin = op->attr.slice.begin;
    put(l, op,
        teg_lower_slice(l, "columns", teg_lower_flat(l, op->inputs[0]), l->c->channels ? 4 : 3, teg_lower_flat_axis(l),
                        begin, begin + op->attr.slice.width));
}

static void unwritten(struct lowerer *l, const struct teg_op *op)
{
    teg_lower_keep(l, teg_base_fail(l->err, TEG_ERR_UNSUPPORTED, 0,
                                    "cannot write a package: %s: expected it before the first layer or in the head, "
                                    "found it in layer %u; only models of stacked layers can be written",
                                    teg_op_name(op->kind), l->layer));
}

static void (*const writers[])(struct lowerer *l, const struct teg_op *op) = {
    [TEG_OP_EMBEDDING] = unwritten,
    [TEG_OP_POSITION] = unwritten,
    [TEG_OP_RMS_NORM] = norm,
    [TEG_OP_LAYER_NORM] = layer_norm,
    [TEG_OP_LINEAR] = linear,
    [TEG_OP_ROPE] = rope,
    [TEG_OP_KV_APPEND] = teg_lower_append,
    [TEG_OP_ATTENTION] = teg_lower_attention,
    [TEG_OP_GLU] = glu,
    [TEG_OP_ACTIVATION] = activation,
    [TEG_OP_ADD] = add,
    [TEG_OP_SCALE] = scale,
    [TEG_OP_SOFTCAP] = softcap,
    [TEG_OP_SLICE] = slice,
    [TEG_OP_LM_HEAD] = unwritten,
};

void teg_lower_graph_op(struct lowerer *l, uint32_t index)
{
    if (teg_lower_ok(l))
        writers[l->g->ops[index].kind](l, &l->g->ops[index]);
}

/* ---- the head ---- */

/* Rows begin … begin + rows - 1 of the logits: [1, 1, rows]. */
static var part_of_head(struct lowerer *l, const struct teg_op *op, uint64_t begin, uint64_t rows, bool whole)
{
    const var w = teg_lower_weight(l, &(struct weight_use){.value = op->inputs[1],
                                                           .op = UINT32_MAX,
                                                           .head = true,
                                                           .as_conv = l->c->channels,
                                                           .begin = begin,
                                                           .rows = whole ? 0 : rows});
    var bias = TEG_MIL_NO_VAR;
    if (op->n_inputs == 3)
        bias = teg_lower_vector_part(l, op->inputs[2], begin, rows);
    var y = product(l, "logits", teg_lower_flat(l, op->inputs[0]), w, bias);
    for (const struct teg_op *next = op + 1; next < l->g->ops + l->g->n_ops; next++)
        y = next->kind == TEG_OP_SOFTCAP ? capped(l, y, next->attr.cap)
                                         : teg_lower_multiply(l, "scaled", y, next->attr.scale.scale);
    if (l->c->channels)
        y = teg_lower_reshape(l, "logits_row", y, 3, (const int32_t[]){1, 1, (int32_t)rows});
    return y;
}

void teg_lower_head(struct lowerer *l)
{
    const struct teg_op *op = &l->g->ops[l->layers.head], *const end = l->g->ops + l->g->n_ops;
    char name[32];
    l->prefix = "head_";
    for (; op < end && op->kind != TEG_OP_LM_HEAD; op++)
        teg_lower_graph_op(l, (uint32_t)(op - l->g->ops));
    if (op == end) {
        teg_lower_keep(l, teg_base_fail(l->err, TEG_ERR_UNSUPPORTED, 0,
                                        "cannot write a package: graph: expected a head, found none; only language "
                                        "models can be written"));
        return;
    }
    for (const struct teg_op *next = op + 1; next < end; next++)
        if (next->kind != TEG_OP_SOFTCAP && next->kind != TEG_OP_SCALE)
            unwritten(l, next);
    const uint64_t all = (uint64_t)l->g->values[op->inputs[1]].shape.dims[0];
    const uint64_t most = l->c->head_rows ? l->c->head_rows : all, n = (all + most - 1) / most;
    const uint64_t each = ((all + n - 1) / n + 31) / 32 * 32; /* parts of one size, and a shorter last one */
    for (uint64_t begin = 0, i = 0; begin < all && teg_lower_ok(l); begin += each, i++) {
        const uint64_t rows = n == 1 ? all : teg_min((size_t)each, (size_t)(all - begin));
        (void)snprintf(name, sizeof name, n == 1 ? "logits" : "logits_%llu", (unsigned long long)i);
        teg_mil_make_output(l->m, name, part_of_head(l, op, n == 1 ? 0 : begin, rows, n == 1));
        if (n == 1)
            break;
    }
}
