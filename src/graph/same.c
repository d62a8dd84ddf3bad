/* graph/same.c: matching of two graphs, op by op in the order of the first.
 *
 * An op of `a` is matched with an op of `b` of the same kind and attributes whose operands are the counterparts of its
 * own. Where several fit (q, k and v read one value), the constants decide. Because operands come before ops, one walk
 * is enough and nothing is ever taken back. */
#include "graph/same.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

struct matcher {
    const struct teg_graph *a, *b;
    const struct teg_same_options *o;
    struct teg_buf *out;
    teg_value_id *value; /* [a->n_values]: counterpart in b, or TEG_NO_VALUE */
    teg_value_id *back;  /* [b->n_values] */
    bool *in_a, *in_b;   /* ops that are compared */
    bool *taken;         /* ops of b that have a counterpart */
};

/* ---- what is compared ---- */

static void mark(const struct teg_graph *g, bool *needed)
{
    if (g->logits != TEG_NO_VALUE && g->values[g->logits].kind == TEG_VALUE_RESULT)
        needed[g->values[g->logits].op] = true;
    for (uint32_t i = g->n_ops; i-- > 0;) {
        needed[i] = needed[i] || g->ops[i].kind == TEG_OP_KV_APPEND;
        for (uint32_t k = 0; k < g->ops[i].n_inputs && needed[i]; k++)
            if (g->values[g->ops[i].inputs[k]].kind == TEG_VALUE_RESULT)
                needed[g->values[g->ops[i].inputs[k]].op] = true;
    }
}

/* ---- numbers ---- */

static bool near(const struct matcher *m, double x, double y)
{
    enum { SMALLEST_HALF = 16777216 }; /* 2^24: below 2^-24 a half float is zero */
    return fabs(x - y) <= m->o->numbers * fmax(fabs(x), fabs(y)) + (m->o->numbers > 0 ? 1.0 / SMALLEST_HALF : 0);
}

static void differs(struct matcher *m, const char *what, double x, double y)
{
    m->out->n_bytes = 0;
    teg_buf_printf(m->out, "%s %.9g and %.9g", what, x, y);
}

#define SAME(field)                                                                                                    \
    do {                                                                                                               \
        if (x->attr.field != y->attr.field)                                                                            \
            return differs(m, #field, (double)x->attr.field, (double)y->attr.field), false;                            \
    } while (0)
#define NEAR(field)                                                                                                    \
    do {                                                                                                               \
        if (!near(m, (double)x->attr.field, (double)y->attr.field))                                                    \
            return differs(m, #field, (double)x->attr.field, (double)y->attr.field), false;                            \
    } while (0)

static bool same_attributes(struct matcher *m, const struct teg_op *x, const struct teg_op *y)
{
    switch (x->kind) {
    case TEG_OP_EMBEDDING:
    case TEG_OP_SCALE:
        NEAR(scale.scale);
        break;
    case TEG_OP_POSITION:
        SAME(first);
        break;
    case TEG_OP_RMS_NORM:
    case TEG_OP_LAYER_NORM:
        NEAR(norm.eps);
        SAME(norm.weight_offset);
        SAME(norm.by_max);
        NEAR(norm.least_max);
        break;
    case TEG_OP_ROPE:
        SAME(rope.head_width);
        SAME(rope.interleaved);
        SAME(rope.original_context);
        NEAR(rope.magnitude);
        break;
    case TEG_OP_ATTENTION:
        SAME(attention.n_heads);
        SAME(attention.window);
        NEAR(attention.scale);
        NEAR(attention.softcap);
        SAME(attention.n_kv_heads);
        SAME(attention.head_width);
        break;
    case TEG_OP_KV_APPEND:
        SAME(attention.n_kv_heads);
        SAME(attention.head_width);
        break;
    case TEG_OP_GLU:
    case TEG_OP_ACTIVATION:
        SAME(activation);
        break;
    case TEG_OP_SOFTCAP:
        NEAR(cap);
        break;
    case TEG_OP_SLICE:
        SAME(slice.begin);
        SAME(slice.width);
        break;
    default:
        break;
    }
    return true;
}

/* ---- constants ---- */

static bool decode_row(const struct teg_value *v, size_t row, float *out)
{
    const size_t n = teg_value_width(v);
    size_t row_bytes;
    if (v->encoding) {
        teg_encoding_decode(v->encoding, row, 0, n, out);
        return true;
    }
    if (!teg_dtype_row_bytes(v->dtype, n, &row_bytes))
        return false;
    teg_dtype_decode(v->dtype, (const uint8_t *)v->data + row * row_bytes, out, n);
    return true;
}

static bool same_row(struct matcher *m, const struct teg_value *a, size_t row, const float *x, const float *y)
{
    double largest = 0;
    const size_t n = teg_value_width(a);
    for (size_t i = 0; i < n; i++) /* not fmax: gcc 12 for Arm dies of that loop */
        largest = fabs((double)x[i]) > largest ? fabs((double)x[i]) : largest;
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)x[i] - (double)y[i]) <= m->o->weights * largest)) {
            m->out->n_bytes = 0;
            teg_buf_printf(m->out, "constant %s, row %zu, column %zu: %.9g and %.9g", a->name ? a->name : "?", row, i,
                           (double)x[i], (double)y[i]);
            return false;
        }
    return true;
}

static bool same_constant(struct matcher *m, teg_value_id ia, teg_value_id ib)
{
    const struct teg_value *const a = &m->a->values[ia], *const b = &m->b->values[ib];
    size_t rows = 1;
    if (m->value[ia] == ib)
        return true;
    if (a->shape.rank != b->shape.rank ||
        memcmp(a->shape.dims, b->shape.dims, a->shape.rank * sizeof *a->shape.dims) != 0) {
        m->out->n_bytes = 0;
        teg_buf_printf(m->out, "constants %s and %s of other shapes", a->name ? a->name : "?", b->name ? b->name : "?");
        return false;
    }
    for (uint32_t d = 0; d + 1 < a->shape.rank; d++)
        rows *= (size_t)a->shape.dims[d];
    const size_t n = teg_value_width(a);
    float *const x = calloc(2 * n + 1, sizeof *x);
    bool same = x != NULL;
    for (size_t r = 0; r < rows && same; r++)
        same = decode_row(a, r, x) && decode_row(b, r, x + n) && same_row(m, a, r, x, x + n);
    free(x);
    if (same)
        m->value[ia] = ib;
    return same;
}

/* ---- ops ---- */

static const char *kind_name(enum teg_value_kind kind)
{
    static const char *const names[] = {"an input", "a constant", "a state", "a result"};
    return names[kind];
}

/* States meet when they are first appended to; results when their ops do. */
static bool same_operand(struct matcher *m, const struct teg_op *op, uint32_t k, teg_value_id ia, teg_value_id ib)
{
    const struct teg_value *const a = &m->a->values[ia], *const b = &m->b->values[ib];
    const bool is_new_state = a->kind == TEG_VALUE_STATE && b->kind == TEG_VALUE_STATE &&
                              m->value[ia] == TEG_NO_VALUE && m->back[ib] == TEG_NO_VALUE &&
                              op->kind == TEG_OP_KV_APPEND && a->shape.dims[0] == b->shape.dims[0] &&
                              a->shape.dims[1] == b->shape.dims[1];
    if (a->kind == TEG_VALUE_CONST && b->kind == TEG_VALUE_CONST)
        return same_constant(m, ia, ib);
    if (is_new_state || (a->kind == TEG_VALUE_INPUT && b->kind == TEG_VALUE_INPUT) || m->value[ia] == ib)
        return true;
    m->out->n_bytes = 0;
    teg_buf_printf(m->out, "operand %u is %s %%%u, and %s %%%u", k, kind_name(a->kind), ia, kind_name(b->kind), ib);
    return false;
}

/* Results of both are counterparts already: what else differs is worth telling. */
static bool reads_alike(const struct matcher *m, const struct teg_op *x, const struct teg_op *y)
{
    for (uint32_t k = 0; k < x->n_inputs && k < y->n_inputs; k++)
        if (m->a->values[x->inputs[k]].kind == TEG_VALUE_RESULT && m->value[x->inputs[k]] != y->inputs[k])
            return false;
    return true;
}

static bool same_op(struct matcher *m, const struct teg_op *x, const struct teg_op *y)
{
    if (x->n_inputs != y->n_inputs) {
        differs(m, "number of operands", x->n_inputs, y->n_inputs);
        return false;
    }
    if (!same_attributes(m, x, y))
        return false;
    for (uint32_t k = 0; k < x->n_inputs; k++)
        if (!same_operand(m, x, k, x->inputs[k], y->inputs[k]))
            return false;
    return true;
}

static void pair(struct matcher *m, const struct teg_op *x, const struct teg_op *y)
{
    for (uint32_t k = 0; k < x->n_inputs; k++)
        if (m->a->values[x->inputs[k]].kind == TEG_VALUE_STATE) {
            m->value[x->inputs[k]] = y->inputs[k];
            m->back[y->inputs[k]] = x->inputs[k];
        }
    if (x->result != TEG_NO_VALUE && y->result != TEG_NO_VALUE)
        m->value[x->result] = y->result;
}

static bool match(struct matcher *m, uint32_t i)
{
    const struct teg_op *const x = &m->a->ops[i];
    char nearest[256] = "";
    uint32_t n_alike = 0;
    for (uint32_t j = 0; j < m->b->n_ops; j++) {
        const struct teg_op *const y = &m->b->ops[j];
        if (!m->in_b[j] || m->taken[j] || y->kind != x->kind)
            continue;
        m->out->n_bytes = 0;
        if (same_op(m, x, y)) {
            m->taken[j] = true;
            pair(m, x, y);
            return true;
        }
        if (m->out->bytes && !m->out->failed && (reads_alike(m, x, y) ? n_alike++ == 0 : !nearest[0])) {
            const size_t n = teg_min(m->out->n_bytes, sizeof nearest - 1);
            memcpy(nearest, m->out->bytes, n);
            nearest[n] = 0;
        }
    }
    m->out->n_bytes = 0;
    teg_buf_printf(m->out, "op %u of the first (%s, result %%%u): %s", i, teg_op_name(x->kind), x->result,
                   nearest[0] ? nearest : "the second has none that is left of this kind");
    return false;
}

static bool run(struct matcher *m)
{
    mark(m->a, m->in_a);
    mark(m->b, m->in_b);
    for (uint32_t i = 0; i < m->a->n_ops; i++)
        if (m->in_a[i] && !match(m, i))
            return false;
    m->out->n_bytes = 0;
    for (uint32_t j = 0; j < m->b->n_ops; j++)
        if (m->in_b[j] && !m->taken[j]) {
            teg_buf_printf(m->out, "op %u of the second (%s, result %%%u): the first has none like it", j,
                           teg_op_name(m->b->ops[j].kind), m->b->ops[j].result);
            return false;
        }
    if (m->value[m->a->logits] != m->b->logits) {
        teg_buf_puts(m->out, "the logits are of different ops");
        return false;
    }
    return true;
}

bool teg_graph_same(const struct teg_graph *a, const struct teg_graph *b, const struct teg_same_options *options,
                    struct teg_buf *difference)
{
    struct matcher m = {.a = a, .b = b, .o = options, .out = difference};
    const size_t n_values = (size_t)a->n_values + b->n_values, n_ops = (size_t)a->n_ops + 2 * (size_t)b->n_ops;
    teg_value_id *const values = malloc((n_values + 1) * sizeof *values);
    bool *const flags = calloc(n_ops + 1, sizeof *flags);
    bool same = false;
    if (values && flags) {
        for (size_t i = 0; i < n_values; i++)
            values[i] = TEG_NO_VALUE;
        m.value = values;
        m.back = values + a->n_values;
        m.in_a = flags;
        m.in_b = flags + a->n_ops;
        m.taken = m.in_b + b->n_ops;
        same = run(&m);
    } else {
        teg_buf_puts(difference, "out of memory");
    }
    free(values);
    free(flags);
    return same;
}
