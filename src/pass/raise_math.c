/* pass/raise_math.c: products, norms, activations and the elementwise ops between them.
 *
 * A norm is built up over its ops (squares, their mean, mean + eps, its inverse root), each with the rows it came from,
 * and becomes an op of the graph when the weight is multiplied on. The elementwise ops ask each family in turn. */
#include <math.h>

#include "pass/raise_int.h"

static bool same_rows(const struct meaning *a, const struct meaning *b)
{
    const bool same =
        a->is_linear == b->is_linear &&
        (a->is_linear ? a->a == b->a && a->weight == b->weight && a->bias == b->bias : a->value == b->value);
    return same && a->last == b->last && a->scale == b->scale && teg_view_same(&a->view, &b->view);
}

/* The rows that a function of rows was made from: itself with another kind. */
static struct meaning *rows_in(struct raiser *r, const struct meaning *m)
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
    if (x->kind == ROWS && y->kind == CONSTANT && !tx && x->view.rank > 0)
        product(r, m, x, x->view.rank - 1, y->var, !ty, TEG_MIL_NO_VAR);
    else if (!teg_raise_angles(r, m, x, y) && !teg_raise_spread(r, m, x, y) &&
             !teg_raise_attend_matmul(r, m, x, y, tx, ty) && m->kind == NOTHING && !m->why)
        teg_raise_no(r, m, "expected a product with a weight, scores, or positions times frequencies, found another");
}

/* ---- norms ---- */

static bool is_number(struct raiser *r, const struct meaning *m, float value)
{
    float x;
    return teg_raise_scalar(r, m, &x) && x == value;
}

static void squares(struct raiser *r, struct meaning *m, const struct meaning *x)
{
    if (x->kind != ROWS && x->kind != BY_MAX) {
        teg_raise_no(r, m, "expected rows to square, found another value");
        return;
    }
    m->kind = SQUARES;
    m->a = x;
    m->view = x->view;
}

static void rule_sqrt(struct raiser *r, struct meaning *m);
static void rule_pow(struct raiser *r, struct meaning *m)
{
    const struct meaning *const x = teg_raise_arg(r, "x"), *const y = teg_raise_arg(r, "y");
    if (is_number(r, y, 2))
        squares(r, m, x);
    else if ((x->kind == MEANS_EPS || x->kind == MEANS) && is_number(r, y, -0.5f)) {
        *m = *x;
        m->kind = INVERSE;
        m->gain = 1;
    } else if ((x->kind == MEANS_EPS || x->kind == MEANS || x->kind == SUMS) && is_number(r, y, 0.5f))
        rule_sqrt(r, m);
    else
        teg_raise_no(r, m, "expected a square, found another power");
}

static void rule_square(struct raiser *r, struct meaning *m)
{
    squares(r, m, teg_raise_arg(r, "x"));
}

/* The dimension of x that an op reduces and keeps: the columns of a row or a head. */
static const struct factor *reduced(struct raiser *r, const struct meaning *x)
{
    int64_t axis;
    uint32_t n;
    if (!teg_raise_numbers(r, "axes", &axis, 1, &n) || !teg_raise_bool(r, "keep_dims", false))
        return NULL;
    axis = axis < 0 ? axis + x->view.rank : axis;
    const struct factor *const f = axis >= 0 ? teg_view_single(&x->view, (uint32_t)axis) : NULL;
    return f && f->axis == AXIS_COLUMNS && f->stride == 1 && teg_view_whole(&x->view) ? f : NULL;
}

/* max |x|, by which careful exporters divide x so that its squares fit half precision. */
static void rule_abs(struct raiser *r, struct meaning *m)
{
    const struct meaning *const x = teg_raise_arg(r, "x");
    if (x->kind == ROWS)
        *m = (struct meaning){.kind = MAGNITUDES, .a = x, .view = x->view};
    else
        teg_raise_no(r, m, "expected rows, found another value");
}

static void rule_reduce_max(struct raiser *r, struct meaning *m)
{
    const struct meaning *const x = teg_raise_arg(r, "x");
    if (teg_raise_tile_reduce(r, m, x))
        return;
    const struct factor *const f = x->kind == MAGNITUDES ? reduced(r, x) : NULL;
    if (f)
        *m = (struct meaning){.kind = MAXIMA, .a = x->a, .group = (uint32_t)f->size.n, .view = x->view};
    else
        teg_raise_no(r, m,
                     "expected the largest of |x| in a row or a head, as a dimension that is kept, found another");
}

static void rule_reduce_mean(struct raiser *r, struct meaning *m)
{
    const struct meaning *const x = teg_raise_arg(r, "x");
    if (x->kind != SQUARES) {
        teg_raise_no(r, m, "expected the mean of squares, found another");
        return;
    }
    const struct factor *const f = reduced(r, x);
    if (!f) {
        teg_raise_no(
            r, m, "expected the mean over the columns of a row or a head, as a dimension that is kept, found another");
        return;
    }
    m->kind = MEANS;
    m->a = x->a;
    m->group = (uint32_t)f->size.n;
    m->view = x->view;
}

bool teg_raise_sum_squares(struct raiser *r, struct meaning *m, const struct meaning *x)
{
    const struct factor *const f = x->kind == SQUARES ? reduced(r, x) : NULL;
    if (f)
        *m = (struct meaning){.kind = SUMS, .a = x->a, .group = (uint32_t)f->size.n, .view = x->view};
    return f != NULL;
}

/* Of rows that an op squares and adds up itself; its root where `is_root`. */
static void sum_rows(struct raiser *r, struct meaning *m, bool is_root)
{
    const struct meaning *const x = teg_raise_arg(r, "x");
    const struct factor *const f = x->kind == ROWS || x->kind == BY_MAX ? reduced(r, x) : NULL;
    if (!f) {
        teg_raise_no(r, m, "expected the columns of a row or a head, as a dimension that is kept, found another value");
        return;
    }
    *m = (struct meaning){.kind = is_root ? ROOTS : SUMS, .a = x, .group = (uint32_t)f->size.n, .view = x->view};
    m->gain = sqrtf((float)m->group);
}

static void rule_sum_square(struct raiser *r, struct meaning *m)
{
    sum_rows(r, m, false);
}

static void rule_l2_norm(struct raiser *r, struct meaning *m)
{
    sum_rows(r, m, true);
}

static void rule_sqrt(struct raiser *r, struct meaning *m)
{
    const struct meaning *const x = teg_raise_arg(r, "x");
    if (x->kind != MEANS && x->kind != MEANS_EPS && x->kind != SUMS) {
        teg_raise_no(r, m, "expected the mean of squares, found another value");
        return;
    }
    *m = *x;
    m->kind = ROOTS;
    m->gain = x->kind == SUMS ? sqrtf((float)x->group) : 1;
    m->eps = x->kind == SUMS ? x->eps / (float)x->group : x->eps;
}

static void rule_rsqrt(struct raiser *r, struct meaning *m)
{
    const struct meaning *const x = teg_raise_arg(r, "x");
    float eps = 1e-12f;
    if (x->kind != MEANS && x->kind != MEANS_EPS && x->kind != SUMS) {
        teg_raise_no(r, m, "expected the mean of squares, found another value");
        return;
    }
    (void)teg_raise_scalar(r, teg_raise_arg(r, "epsilon"), &eps);
    *m = *x;
    m->kind = INVERSE;
    m->gain = x->kind == SUMS ? 1 / sqrtf((float)x->group) : 1;
    m->eps = x->kind == SUMS ? (x->eps + eps) / (float)x->group : x->eps + eps;
}

/* 1 / ROOTS */
static void rule_inverse(struct raiser *r, struct meaning *m)
{
    const struct meaning *const x = teg_raise_arg(r, "x");
    if (x->kind != ROOTS) {
        teg_raise_no(r, m, "expected the root of the mean of squares, found another value");
        return;
    }
    *m = *x;
    m->kind = INVERSE;
    m->gain = 1 / x->gain;
}

/* Rows over the root of their own mean square. */
static void normed(struct meaning *m, const struct meaning *rows, const struct meaning *inverse, float gain)
{
    *m = *rows;
    m->kind = NORMED;
    m->by_max = rows->kind == BY_MAX;
    m->eps = inverse->eps;
    m->group = inverse->group;
    m->gain = gain;
}

static void rule_layer_norm(struct raiser *r, struct meaning *m)
{
    const struct meaning *const x = teg_raise_arg(r, "x");
    int64_t axis;
    uint32_t n;
    float eps = 1e-5f;
    const bool plain = !teg_raise_arg(r, "gamma") && !teg_raise_arg(r, "beta");
    if (x->kind != DOUBLED || !plain || !teg_raise_numbers(r, "axes", &axis, 1, &n) ||
        (axis < 0 ? axis + x->view.rank : axis) != x->axis) {
        teg_raise_no(r, m, "expected the norm of [x, -x] over it, without gamma and beta, found another");
        return;
    }
    (void)teg_raise_scalar(r, teg_raise_arg(r, "epsilon"), &eps);
    *m = *x;
    m->kind = DOUBLED_NORM;
    m->eps = eps;
    m->group = (uint32_t)teg_view_single(&x->view, x->axis)->size.n;
}

/* normed rows times a weight along their group */
static void weighted_norm(struct raiser *r, struct meaning *m, const struct meaning *x, const struct meaning *w)
{
    const struct teg_mil_type *const type = &r->program->vars[w->var].type;
    const char *why = NULL;
    int32_t from_end = 0;
    for (int32_t d = 0; d < type->rank; d++)
        if (type->dims[d] != 1)
            from_end = from_end ? -1 : type->rank - d;
    const struct factor *const f = from_end > 0 && (uint32_t)from_end <= x->view.rank
                                       ? teg_view_single(&x->view, x->view.rank - (uint32_t)from_end)
                                       : NULL;
    if (!f || f->stride != 1 || f->size.n != x->group) {
        teg_raise_no(r, m, "expected a weight of %u values along what is normed, found another shape", x->group);
        return;
    }
    const struct meaning *const rows = rows_in(r, x);
    const teg_value_id v = rows ? teg_raise_value(r, rows, &why) : TEG_NO_VALUE;
    const teg_value_id weight = v == TEG_NO_VALUE ? v : teg_raise_vector(r, w->var, &why);
    if (weight == TEG_NO_VALUE) {
        teg_raise_no(r, m, "%s", why ? why : "out of memory");
        return;
    }
    struct teg_op op = {.kind = TEG_OP_RMS_NORM, .n_inputs = 2, .inputs = {v, weight}};
    op.attr.norm.eps = x->eps;
    op.attr.norm.by_max = x->by_max;
    op.attr.norm.least_max = x->least;
    const teg_value_id out = teg_raise_emit(r, &op);
    teg_raise_rows(m, out, teg_view_width(&x->view), &x->view);
    m->last = x->last;
    m->scale = x->gain > 0 && fabsf(x->gain - 1) > 1e-6f ? x->gain : 1;
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

static void rule_silu(struct raiser *r, struct meaning *m)
{
    activation(r, m, SILU);
}

static void rule_sigmoid(struct raiser *r, struct meaning *m)
{
    activation(r, m, SIGMOID);
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
    const struct meaning *const x = rows_in(r, a), *const y = rows_in(r, b);
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
    struct meaning *const rows = rows_in(r, x);
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
    return same_rows(rows, &inner) &&
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

static bool is_gate(const struct meaning *x)
{
    return x->kind == SILU || x->kind == GELU || (x->kind == GELU_ERF && x->gain == 0.5f);
}

static enum teg_activation activation_of(const struct meaning *x)
{
    return x->kind == SILU ? TEG_ACT_SILU : x->kind == GELU ? TEG_ACT_GELU_TANH : TEG_ACT_GELU_ERF;
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
    else if (a->kind == NORMED && b->kind == CONSTANT && !teg_raise_scalar(r, b, &s))
        weighted_norm(r, m, a, b);
    else if (b->kind == INVERSE && a->kind == b->a->kind && same_rows(a, b->a))
        normed(m, a, b, b->gain);
    else if (a->kind == NORMED && teg_raise_scalar(r, b, &s) && s > 0) {
        *m = *a;
        m->gain = (a->gain > 0 ? a->gain : 1) * s;
    } else if (a->kind == SUMS && teg_raise_scalar(r, b, &s) && fabsf(s * (float)a->group - 1) < 1e-3f) {
        *m = *a;
        m->kind = MEANS_EPS;
        m->eps = a->eps * s;
    } else if (a->kind == ROWS && b->kind == SIGMOID) {
        struct meaning *const x = rows_in(r, b);
        if (x && same_rows(a, x)) {
            *m = *a;
            m->kind = SILU;
        } else
            teg_raise_no(r, m, "expected x · sigmoid(x), found another gate");
    } else if (is_half_gelu(a, b))
        multiply_erf(m, a, b);
    else if ((a->kind == ERF_PLUS || a->kind == GELU_ERF) && teg_raise_scalar(r, b, &s)) {
        *m = *a;
        m->gain *= s;
    } else if (is_gate(a) && b->kind == ROWS) {
        two_rows(r, m, a, b, &(struct teg_op){.kind = TEG_OP_GLU, .attr.activation = activation_of(a)});
        r->ffn_width = m->kind == ROWS ? (uint32_t)m->columns : r->ffn_width;
    } else if (a == b)
        squares(r, m, a);
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

static void rule_add(struct raiser *r, struct meaning *m)
{
    const struct meaning *a = teg_raise_arg(r, "x"), *b = teg_raise_arg(r, "y");
    float eps;
    if (teg_raise_int_binary(r, m, a, b) || teg_raise_mask_binary(r, m, a, b) || teg_raise_tile_binary(r, m, a, b) ||
        teg_raise_score_binary(r, m, a, b) || teg_raise_rope_binary(r, m, a, b) || teg_raise_guard_binary(r, m, a, b) ||
        teg_raise_layer_binary(r, m, a, b))
        return;
    if (b->kind == MEANS || b->kind == MEANS_EPS || b->kind == SUMS) {
        const struct meaning *const other = a;
        a = b;
        b = other;
    }
    if ((a->kind == MEANS || a->kind == MEANS_EPS || a->kind == SUMS) && teg_raise_scalar(r, b, &eps) && eps >= 0) {
        *m = *a;
        m->kind = a->kind == MEANS ? MEANS_EPS : a->kind;
        m->eps += eps;
    } else if (a->kind == ROWS && b->kind == ROWS)
        two_rows(r, m, a, b, &(struct teg_op){.kind = TEG_OP_ADD});
    else if ((a->kind == ERF && is_number(r, b, 1)) || (b->kind == ERF && is_number(r, a, 1))) {
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
        !teg_raise_rope_binary(r, m, a, b) && !teg_raise_layer_binary(r, m, a, b))
        teg_raise_no(r, m, "expected positions or a mask, found other terms");
}

static void rule_div(struct raiser *r, struct meaning *m)
{
    const struct meaning *const a = teg_raise_arg(r, "x"), *const b = teg_raise_arg(r, "y");
    float s;
    if (teg_raise_int_binary(r, m, a, b) || teg_raise_tile_binary(r, m, a, b))
        return;
    if (a->kind == ROWS && b->kind == MAXIMA && same_rows(a, b->a)) {
        *m = *a;
        m->kind = BY_MAX;
        m->least = b->least;
        m->group = b->group;
        return;
    }
    if (b->kind == ROOTS && a->kind == b->a->kind && same_rows(a, b->a)) {
        normed(m, a, b, 1 / b->gain);
        return;
    }
    if (a->kind == SUMS && teg_raise_scalar(r, b, &s) && fabsf((float)a->group / s - 1) < 1e-3f) {
        *m = *a;
        m->kind = MEANS_EPS;
        m->eps = a->eps / s;
        return;
    }
    if (b->kind == ROOTS && is_number(r, a, 1)) {
        *m = *b;
        m->kind = INVERSE;
        m->gain = 1 / b->gain;
        return;
    }
    const bool scales = a->kind == ROWS || a->kind == SCORES;
    if (scales && teg_raise_scalar(r, b, &s) && s != 0) {
        *m = *a;
        m->scale /= s;
    } else
        teg_raise_no(r, m, "expected rows or scores divided by a number, found another quotient");
}

const struct teg_raise_row teg_raise_math_rows[] = {
    {"linear", rule_linear},
    {"conv", rule_conv},
    {"matmul", rule_matmul},
    {"pow", rule_pow},
    {"square", rule_square},
    {"reduce_mean", rule_reduce_mean},
    {"rsqrt", rule_rsqrt},
    {"sqrt", rule_sqrt},
    {"inverse", rule_inverse},
    {"reduce_sum_square", rule_sum_square},
    {"reduce_l2_norm", rule_l2_norm},
    {"layer_norm", rule_layer_norm},
    {"abs", rule_abs},
    {"reduce_max", rule_reduce_max},
    {"erf", rule_erf},
    {"silu", rule_silu},
    {"sigmoid", rule_sigmoid},
    {"gelu", rule_gelu},
    {"tanh", rule_tanh},
    {"mul", rule_mul},
    {"add", rule_add},
    {"sub", rule_sub},
    {"real_div", rule_div},
    {"floor_div", rule_div},
    {NULL, NULL},
};
