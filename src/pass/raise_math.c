/* pass/raise_math.c: products, activations and the elementwise ops between them, which ask each family in turn.
 *
 * An activation waits for what is multiplied on: then it is a gate. A product or a sum that reads it makes it an op of
 * its own. */
#include <math.h>

#include "pass/raise_int.h"

bool teg_raise_same_rows(const struct meaning *a, const struct meaning *b)
{
    const bool same =
        a->is_linear == b->is_linear &&
        (a->is_linear ? a->a == b->a && a->weight == b->weight && a->bias == b->bias : a->value == b->value);
    return same && a->last == b->last && a->scale == b->scale && teg_view_same(&a->view, &b->view);
}

/* The rows that a function of rows was made from: itself with another kind. */
struct meaning *teg_raise_rows_in(struct raiser *r, const struct meaning *m)
{
    struct meaning *const rows = teg_raise_alloc(r, 1, sizeof *rows);
    if (rows) {
        *rows = *m;
        rows->kind = ROWS;
    }
    return rows;
}

/* ---- products ---- */

/* A product that another one reads is made now, so that waiting products never form a chain. */
static const struct meaning *made(struct raiser *r, struct meaning *m, const struct meaning *x)
{
    const char *why = NULL;
    const teg_value_id v = teg_raise_value(r, x, &why);
    struct meaning *const rows = v == TEG_NO_VALUE ? NULL : teg_raise_alloc(r, 1, sizeof *rows);
    if (!rows) {
        teg_raise_no(r, m, "%s", why ? why : "out of memory");
        return NULL;
    }
    teg_raise_rows(rows, v, teg_view_width(&x->view), &x->view);
    rows->last = x->last;
    return rows;
}

/* m = a product of x along its dimension `dim`; the result's columns stand there. */
static void product(struct raiser *r, struct meaning *m, const struct meaning *x, uint32_t dim, teg_mil_var_id weight,
                    bool transposed, teg_mil_var_id bias)
{
    uint64_t dims[2];
    uint32_t rank;
    const uint32_t total = teg_view_total(&x->view), at = teg_view_begin(&x->view, dim);
    if (!(x = teg_raise_as_rows(r, x)))
        return;
    if (x->kind != ROWS) {
        teg_raise_no(r, m, "expected rows as x, found another value");
        return;
    }
    if (!teg_raise_dims(r, weight, dims, &rank) || rank != 2) {
        teg_raise_no(r, m, "expected a constant weight [N, K], found another shape");
        return;
    }
    const int64_t n = (int64_t)dims[transposed], k = (int64_t)dims[!transposed];
    for (uint32_t i = 0; i < total; i++)
        if (x->view.factors[i].axis == AXIS_COLUMNS && (i < at || i >= at + x->view.count[dim])) {
            teg_raise_no(r, m, "expected all columns in the dimension that is summed over, found others outside");
            return;
        }
    const struct factor *const f = teg_view_single(&x->view, dim);
    if (k != 1 && (!f || f->stride != 1 || f->size.n != k || teg_view_width(&x->view) != k)) {
        teg_raise_no(r, m, "expected %lld columns in order, found another order or number", (long long)k);
        return;
    }
    if (x->is_linear && !(x = made(r, m, x)))
        return;
    m->kind = ROWS;
    m->is_linear = true;
    m->a = x;
    m->weight = weight;
    m->weight_transposed = transposed;
    m->bias = bias;
    m->columns = n;
    m->scale = 1;
    m->last = x->last;
    m->view = (struct view){0};
    for (uint32_t d = 0; d < x->view.rank; d++) {
        if (d == dim)
            teg_view_columns(&m->view, n);
        else
            (void)teg_view_add_dim(&m->view, &x->view.factors[teg_view_begin(&x->view, d)], x->view.count[d]);
    }
}

/* A bias of zeros, which exporters add to every product, is none. */
static teg_mil_var_id bias_of(struct raiser *r)
{
    const teg_mil_var_id id = teg_raise_arg_id(r, "bias");
    size_t n;
    const char *why = NULL;
    const float *const values = id == TEG_MIL_NO_VAR ? NULL : teg_raise_floats(r, id, &n, &why);
    for (size_t i = 0; values && i < n; i++)
        if (values[i] != 0)
            return id;
    return values ? TEG_MIL_NO_VAR : id;
}

static void rule_linear(struct raiser *r, struct meaning *m)
{
    const struct meaning *const x = teg_raise_arg(r, "x"), *const w = teg_raise_arg(r, "weight");
    if (w->kind != CONSTANT || x->view.rank == 0)
        teg_raise_no(r, m, "expected a constant weight, found a computed one");
    else
        product(r, m, x, x->view.rank - 1, w->var, false, bias_of(r));
}

static bool all_are(struct raiser *r, const char *arg, int64_t value)
{
    int64_t v[TEG_MIL_MAX_RANK * 2];
    uint32_t n;
    if (!teg_raise_arg(r, arg))
        return true;
    if (!teg_raise_numbers(r, arg, v, TEG_MIL_MAX_RANK * 2, &n))
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (v[i] != value)
            return false;
    return true;
}

static void rule_conv(struct raiser *r, struct meaning *m)
{
    const struct meaning *const x = teg_raise_arg(r, "x"), *const w = teg_raise_arg(r, "weight");
    if (w->kind != CONSTANT) {
        teg_raise_no(r, m, "expected a constant weight, found a computed one");
        return;
    }
    const struct teg_mil_type *const type = &r->program->vars[w->var].type;
    bool is_1x1 = type->rank >= 3 && all_are(r, "strides", 1) && all_are(r, "groups", 1);
    for (int32_t d = 2; d < type->rank; d++)
        is_1x1 = is_1x1 && type->dims[d] == 1;
    is_1x1 = is_1x1 &&
             (teg_raise_string_is(r, "pad_type", "valid") || !teg_raise_arg(r, "pad_type") || all_are(r, "pad", 0));
    if (!is_1x1 || x->view.rank < 3)
        teg_raise_no(r, m, "expected a 1x1 convolution (strides and groups 1, no padding), found another");
    else
        product(r, m, x, 1, w->var, false, bias_of(r));
}

static void rule_matmul(struct raiser *r, struct meaning *m)
{
    const struct meaning *const x = teg_raise_arg(r, "x"), *const y = teg_raise_arg(r, "y");
    const bool tx = teg_raise_bool(r, "transpose_x", false), ty = teg_raise_bool(r, "transpose_y", false);
    const bool is_rows = x->kind == ROWS || teg_raise_is_waiting(x);
    if (is_rows && y->kind == CONSTANT && !tx && x->view.rank > 0)
        product(r, m, x, x->view.rank - 1, y->var, !ty, TEG_MIL_NO_VAR);
    else if (!teg_raise_angles(r, m, x, y) && !teg_raise_spread(r, m, x, y) &&
             !teg_raise_attend_matmul(r, m, x, y, tx, ty) && m->kind == NOTHING && !m->why)
        teg_raise_no(r, m, "expected a product with a weight, scores, or positions times frequencies, found another");
}

/* ---- activations ---- */

static void activation(struct raiser *r, struct meaning *m, enum kind kind)
{
    const struct meaning *const x = teg_raise_arg(r, "x");
    if (x->kind != ROWS) {
        teg_raise_no(r, m, "expected rows, found another value");
        return;
    }
    *m = *x;
    m->kind = kind;
}

static bool is_gate(const struct meaning *x)
{
    return x->kind == SILU || x->kind == GELU || x->kind == RELU || (x->kind == GELU_ERF && x->gain == 0.5f);
}

static enum teg_activation activation_of(const struct meaning *x)
{
    return x->kind == SILU   ? TEG_ACT_SILU
           : x->kind == GELU ? TEG_ACT_GELU_TANH
           : x->kind == RELU ? TEG_ACT_RELU
                             : TEG_ACT_GELU_ERF;
}

bool teg_raise_is_waiting(const struct meaning *x)
{
    return is_gate(x) || x->kind == NORMED;
}

const struct meaning *teg_raise_as_rows(struct raiser *r, const struct meaning *x)
{
    const char *why = NULL;
    if (!teg_raise_is_waiting(x))
        return x;
    struct meaning *const out = teg_raise_rows_in(r, x);
    if (!out || x->kind == NORMED)
        return out ? teg_raise_bare_norm(r, x) : NULL;
    const teg_value_id v = teg_raise_value(r, out, &why);
    if (v == TEG_NO_VALUE) {
        teg_raise_no(r, out, "%s", why ? why : "out of memory");
        return out;
    }
    const struct view view = x->view;
    struct teg_op op = {.kind = TEG_OP_ACTIVATION, .n_inputs = 1, .inputs = {v}};
    op.attr.activation = activation_of(x);
    *out = (struct meaning){.weight = TEG_MIL_NO_VAR, .bias = TEG_MIL_NO_VAR, .last = x->last};
    teg_raise_rows(out, teg_raise_emit(r, &op), teg_view_width(&view), &view);
    r->ffn_width = (uint32_t)out->columns;
    return out;
}

static void rule_silu(struct raiser *r, struct meaning *m)
{
    activation(r, m, SILU);
}

static void rule_sigmoid(struct raiser *r, struct meaning *m)
{
    activation(r, m, SIGMOID);
}

static void rule_relu(struct raiser *r, struct meaning *m)
{
    activation(r, m, RELU);
}

static void rule_erf(struct raiser *r, struct meaning *m)
{
    activation(r, m, ERF);
}

static void rule_gelu(struct raiser *r, struct meaning *m)
{
    if (teg_raise_string_is(r, "mode", "TANH_APPROXIMATION"))
        activation(r, m, GELU);
    else if (!teg_raise_arg(r, "mode") || teg_raise_string_is(r, "mode", "EXACT")) {
        activation(r, m, GELU_ERF);
        m->gain = 0.5f;
    } else
        teg_raise_no(r, m, "expected mode EXACT or TANH_APPROXIMATION, found another");
}

static void rule_tanh(struct raiser *r, struct meaning *m)
{
    const struct meaning *const x = teg_raise_arg(r, "x");
    if (x->kind == SCORES) {
        *m = *x;
        m->kind = TANH_SCORES;
    } else
        activation(r, m, TANH);
}

/* ---- elementwise ---- */

static void two_rows(struct raiser *r, struct meaning *m, const struct meaning *a, const struct meaning *b,
                     const struct teg_op *op)
{
    const char *why = NULL;
    const struct meaning *const x = teg_raise_rows_in(r, a), *const y = teg_raise_rows_in(r, b);
    if (!x || !y)
        return;
    struct view bare = b->view;
    bare.offset = a->view.offset;
    if (!teg_view_same(&a->view, &bare) || a->last != b->last) {
        teg_raise_no(r, m, "expected two rows seen alike, found different layouts");
        return;
    }
    struct teg_op full = *op;
    full.n_inputs = 2;
    full.inputs[0] = teg_raise_value(r, x, &why);
    full.inputs[1] = full.inputs[0] == TEG_NO_VALUE ? TEG_NO_VALUE : teg_raise_value(r, y, &why);
    if (full.inputs[1] == TEG_NO_VALUE) {
        teg_raise_no(r, m, "%s", why ? why : "out of memory");
        return;
    }
    teg_raise_rows(m, teg_raise_emit(r, &full), teg_view_width(&a->view), &a->view);
    m->last = a->last;
}

/* s · tanh(x · k): tanh's rows have k as their scale. */
static void softcap(struct raiser *r, struct meaning *m, const struct meaning *x, float cap)
{
    struct meaning *const rows = teg_raise_rows_in(r, x);
    if (!rows)
        return;
    const float rest = rows->scale * cap; /* 1 but for the rounding of 1/cap */
    rows->scale = fabsf(rest - 1) < 1e-6f ? 1 : rest;
    *m = *rows;
    m->kind = CAPPED;
    m->a = rows;
    m->cap = cap;
}

/* Rows or a cache times ones of a larger shape: repeats by broadcasting. */
enum { MOST_REPEATS = 1024 };
static bool repeat(struct raiser *r, struct meaning *m, const struct meaning *x, const struct meaning *ones)
{
    size_t n;
    const char *why = NULL;
    if ((x->kind != ROWS && x->kind != CACHE) || ones->kind != CONSTANT || !r->program->vars[ones->var].constant)
        return false;
    const struct teg_mil_type *const type = &r->program->vars[ones->var].type;
    int64_t n_ones = 1;
    for (int32_t d = 0; d < type->rank && n_ones <= MOST_REPEATS; d++)
        n_ones = type->dims[d] >= 1 && type->dims[d] <= MOST_REPEATS ? n_ones * type->dims[d] : MOST_REPEATS + 1;
    if (n_ones > MOST_REPEATS)
        return false;
    const float *const values = teg_raise_floats(r, ones->var, &n, &why);
    for (size_t i = 0; values && i < n; i++)
        if (values[i] != 1)
            return false;
    if (!values || type->rank > (int32_t)x->view.rank)
        return false;
    struct view v = {.offset = x->view.offset};
    for (uint32_t d = 0; d < x->view.rank; d++) {
        const int32_t own = (int32_t)d - ((int32_t)x->view.rank - type->rank);
        const int64_t times = own >= 0 ? type->dims[own] : 1;
        const struct factor repeats = {AXIS_COLUMNS, teg_amount(times), 0};
        const bool has = x->view.count[d] > 0;
        if ((has && times != 1) || !teg_view_add_dim(&v, has ? &x->view.factors[teg_view_begin(&x->view, d)] : &repeats,
                                                     has ? x->view.count[d] : 1))
            return false;
    }
    *m = *x;
    m->view = v;
    return true;
}

/* x/2 · (1 + erf(x/sqrt 2)), the factors in any order: one half is collected in `gain`. */
static bool is_half_gelu(const struct meaning *rows, const struct meaning *erf)
{
    struct meaning inner = *erf;
    if (rows->kind != ROWS || erf->kind != ERF_PLUS)
        return false;
    const float ratio = erf->scale / rows->scale; /* 1/sqrt 2, or twice that where x was halved first */
    inner.scale = rows->scale;
    return teg_raise_same_rows(rows, &inner) &&
           (fabsf(ratio * 1.41421356f - 1) < 1e-3f || fabsf(ratio * 0.70710678f - 1) < 1e-3f);
}

static void multiply_erf(struct meaning *m, const struct meaning *rows, const struct meaning *erf)
{
    const bool halved = erf->scale > rows->scale;
    *m = *rows;
    m->kind = GELU_ERF;
    m->scale *= halved ? 2 : 1;
    m->gain = erf->gain * (halved ? 0.5f : 1);
}

static void multiply_rows(struct raiser *r, struct meaning *m, const struct meaning *a, const struct meaning *b)
{
    float s;
    if (teg_raise_scalar(r, b, &s) && (a->kind == ROWS || (a->kind == BY_MAX && s == -1))) {
        *m = *a;
        m->scale *= s;
    } else if (repeat(r, m, a, b)) {
        return;
    } else if (a->kind == TANH && teg_raise_scalar(r, b, &s) && s > 0)
        softcap(r, m, a, s);
    else if (teg_raise_norm_multiply(r, m, a, b))
        return;
    else if (a->kind == ROWS && b->kind == SIGMOID) {
        struct meaning *const x = teg_raise_rows_in(r, b);
        if (x && teg_raise_same_rows(a, x)) {
            *m = *a;
            m->kind = SILU;
        } else
            teg_raise_no(r, m, "expected x · sigmoid(x), found another gate");
    } else if (is_half_gelu(a, b))
        multiply_erf(m, a, b);
    else if ((a->kind == ERF_PLUS || a->kind == GELU_ERF) && teg_raise_scalar(r, b, &s)) {
        *m = *a;
        m->gain *= s;
    } else if (is_gate(a) && (b->kind == ROWS || (a == b && a->kind == RELU))) { /* relu(x)² is relu(x) · x */
        two_rows(r, m, a, b, &(struct teg_op){.kind = TEG_OP_GLU, .attr.activation = activation_of(a)});
        r->ffn_width = m->kind == ROWS ? (uint32_t)m->columns : r->ffn_width;
    }
}

static void rule_mul(struct raiser *r, struct meaning *m)
{
    const struct meaning *const a = teg_raise_arg(r, "x"), *const b = teg_raise_arg(r, "y");
    if (teg_raise_int_binary(r, m, a, b) || teg_raise_mask_binary(r, m, a, b) || teg_raise_tile_binary(r, m, a, b) ||
        teg_raise_score_binary(r, m, a, b) || teg_raise_rope_binary(r, m, a, b) || teg_raise_guard_binary(r, m, a, b) ||
        teg_raise_layer_binary(r, m, a, b))
        return;
    multiply_rows(r, m, a, b);
    if (m->kind == NOTHING && !m->why)
        multiply_rows(r, m, b, a);
    if (m->kind == NOTHING && !m->why)
        teg_raise_no(r, m, "expected a norm, a gate, a rotation or a scale, found another product");
}

/* A vector along the columns of a product or of a layer norm that has no bias yet. */
static bool add_bias(struct raiser *r, struct meaning *m, const struct meaning *x, const struct meaning *b)
{
    if (x->kind != ROWS || b->kind != CONSTANT)
        return false;
    if (!x->is_linear)
        return teg_raise_norm_bias(r, m, x, b);
    if (x->bias != TEG_MIL_NO_VAR || x->scale != 1 || !teg_raise_is_vector_along(r, b->var, &x->view, x->columns))
        return false;
    *m = *x;
    m->bias = b->var;
    return true;
}

/* Learned positions: rows of a table at the positions. */
static bool add_positions(struct raiser *r, struct meaning *m, const struct meaning *x, const struct meaning *table)
{
    struct meaning folded;
    if (x->kind != ROWS)
        return false;
    if (teg_raise_constant_wave(r, x, table, &folded))
        table = &folded;
    if (table->kind != TABLE)
        return false;
    struct meaning *const rows = teg_raise_position_rows(r, m, table, x->view.rank);
    if (rows)
        two_rows(r, m, x, rows, &(struct teg_op){.kind = TEG_OP_ADD});
    return true;
}

static void rule_add(struct raiser *r, struct meaning *m)
{
    const struct meaning *a = teg_raise_arg(r, "x"), *b = teg_raise_arg(r, "y");
    if (teg_raise_int_binary(r, m, a, b) || teg_raise_mask_binary(r, m, a, b) || teg_raise_tile_binary(r, m, a, b) ||
        teg_raise_score_binary(r, m, a, b) || teg_raise_rope_binary(r, m, a, b) || teg_raise_guard_binary(r, m, a, b) ||
        teg_raise_layer_binary(r, m, a, b))
        return;
    if (teg_raise_norm_add(r, m, a, b) || teg_raise_norm_add(r, m, b, a) || add_bias(r, m, a, b) ||
        add_bias(r, m, b, a) || add_positions(r, m, a, b) || add_positions(r, m, b, a))
        return;
    a = teg_raise_as_rows(r, a);
    b = teg_raise_as_rows(r, b);
    if (!a || !b)
        return;
    if (a->kind == ROWS && b->kind == ROWS)
        two_rows(r, m, a, b, &(struct teg_op){.kind = TEG_OP_ADD});
    else if ((a->kind == ERF && teg_raise_is_number(r, b, 1)) || (b->kind == ERF && teg_raise_is_number(r, a, 1))) {
        *m = a->kind == ERF ? *a : *b;
        m->kind = ERF_PLUS;
        m->gain = 1;
    } else
        teg_raise_no(r, m, "expected two rows, scores and a mask, or the parts of a rotation, found other terms");
}

static void rule_sub(struct raiser *r, struct meaning *m)
{
    const struct meaning *const a = teg_raise_arg(r, "x"), *const b = teg_raise_arg(r, "y");
    if (!teg_raise_int_binary(r, m, a, b) && !teg_raise_mask_binary(r, m, a, b) && !teg_raise_tile_binary(r, m, a, b) &&
        !teg_raise_rope_binary(r, m, a, b) && !teg_raise_layer_binary(r, m, a, b) && !teg_raise_centre(r, m, a, b))
        teg_raise_no(r, m, "expected positions, a mask, or rows and their mean, found other terms");
}

static void rule_div(struct raiser *r, struct meaning *m)
{
    const struct meaning *const a = teg_raise_arg(r, "x"), *const b = teg_raise_arg(r, "y");
    float s;
    if (teg_raise_int_binary(r, m, a, b) || teg_raise_tile_binary(r, m, a, b) || teg_raise_norm_divide(r, m, a, b))
        return;
    const bool scales = a->kind == ROWS || a->kind == SCORES;
    if (scales && teg_raise_scalar(r, b, &s) && s != 0) {
        *m = *a;
        m->scale /= s;
    } else
        teg_raise_no(r, m, "expected rows or scores divided by a number, found another quotient");
}

const struct teg_raise_row teg_raise_math_rows[] = {
    {"linear", rule_linear},   {"conv", rule_conv},     {"matmul", rule_matmul},
    {"erf", rule_erf},         {"silu", rule_silu},     {"relu", rule_relu},
    {"sigmoid", rule_sigmoid}, {"gelu", rule_gelu},     {"tanh", rule_tanh},
    {"mul", rule_mul},         {"add", rule_add},       {"sub", rule_sub},
    {"real_div", rule_div},    {"floor_div", rule_div}, {NULL, NULL},
};
