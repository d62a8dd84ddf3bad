/* pass/raise_norm.c: norms of rows and of heads, RMS and layer norms, in one op or spelled out.
 *
 * A norm is built up over its ops (less the mean, squares, their mean, mean + eps, its inverse root), each with the
 * rows it came from, and becomes an op of the graph when the weight is multiplied on, or when a product reads it
 * without one. A bias that is added to a layer norm makes that op again with the bias; the first is pruned. */
#include <math.h>

#include "pass/raise_int.h"

static const char ones_name[] = "ones";

bool teg_raise_is_number(struct raiser *r, const struct meaning *m, float value)
{
    float x;
    return teg_raise_scalar(r, m, &x) && x == value;
}

static void squares(struct raiser *r, struct meaning *m, const struct meaning *x)
{
    if (x->kind != ROWS && x->kind != BY_MAX && x->kind != CENTRED) {
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
    if (teg_raise_is_number(r, y, 2))
        squares(r, m, x);
    else if ((x->kind == MEANS_EPS || x->kind == MEANS) && teg_raise_is_number(r, y, -0.5f)) {
        *m = *x;
        m->kind = INVERSE;
        m->gain = 1;
    } else if ((x->kind == MEANS_EPS || x->kind == MEANS || x->kind == SUMS) && teg_raise_is_number(r, y, 0.5f))
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
    if (x->kind != SQUARES && x->kind != ROWS) {
        teg_raise_no(r, m, "expected the mean of rows or of their squares, found another");
        return;
    }
    const struct factor *const f = reduced(r, x);
    if (!f) {
        teg_raise_no(
            r, m, "expected the mean over the columns of a row or a head, as a dimension that is kept, found another");
        return;
    }
    m->kind = x->kind == ROWS ? ROW_MEANS : MEANS;
    m->a = x->kind == ROWS ? x : x->a;
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
    const bool has_rows = x->kind == ROWS || x->kind == BY_MAX || x->kind == CENTRED;
    const struct factor *const f = has_rows ? reduced(r, x) : NULL;
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
    m->centred = rows->kind == CENTRED;
    m->eps = inverse->eps;
    m->group = inverse->group;
    m->gain = gain;
}

/* A vector of ones in place of a weight. */
static teg_value_id ones(struct raiser *r, uint32_t n)
{
    for (uint32_t i = 0; i < r->graph->n_values; i++)
        if (r->graph->values[i].name == ones_name && teg_value_width(&r->graph->values[i]) == n)
            return i;
    const uint64_t dims[1] = {n};
    teg_value_id v = TEG_NO_VALUE;
    float *const values = teg_arena_array(r->arena, n, sizeof *values);
    for (uint32_t i = 0; values && i < n; i++)
        values[i] = 1;
    if (values)
        teg_raise_keep(
            r, teg_graph_const(r->graph, ones_name, TEG_DTYPE_F32, 1, dims, values, n * sizeof *values, &v, r->err));
    else
        teg_raise_keep(r, teg_base_fail_memory(r->err, "weights", n * sizeof *values));
    return r->status == TEG_OK ? v : TEG_NO_VALUE;
}

/* m = the norm of x with these constants; `bias` may be none. */
static void emit_norm(struct raiser *r, struct meaning *m, const struct meaning *x, teg_mil_var_id w,
                      teg_mil_var_id bias)
{
    const char *why = NULL;
    const struct meaning *const rows = teg_raise_rows_in(r, x);
    const teg_value_id v = rows ? teg_raise_value(r, rows, &why) : TEG_NO_VALUE;
    const teg_value_id weight = v == TEG_NO_VALUE     ? v
                                : w == TEG_MIL_NO_VAR ? ones(r, x->group)
                                                      : teg_raise_vector(r, w, &why);
    struct teg_op op = {.kind = x->centred ? TEG_OP_LAYER_NORM : TEG_OP_RMS_NORM, .n_inputs = 2, .inputs = {v, weight}};
    if (weight != TEG_NO_VALUE && bias != TEG_MIL_NO_VAR)
        op.inputs[op.n_inputs++] = teg_raise_vector(r, bias, &why);
    if (weight == TEG_NO_VALUE || op.inputs[op.n_inputs - 1] == TEG_NO_VALUE) {
        teg_raise_no(r, m, "%s", why ? why : "out of memory");
        return;
    }
    op.attr.norm.eps = x->eps;
    op.attr.norm.by_max = x->by_max;
    op.attr.norm.least_max = x->least;
    const bool last = x->last;
    const float gain = x->gain > 0 && fabsf(x->gain - 1) > 1e-6f ? x->gain : 1;
    const struct view view = x->view;
    *m = (struct meaning){.weight = TEG_MIL_NO_VAR, .bias = TEG_MIL_NO_VAR, .last = last};
    teg_raise_rows(m, teg_raise_emit(r, &op), teg_view_width(&view), &view);
    m->scale = gain;
}

const struct meaning *teg_raise_bare_norm(struct raiser *r, const struct meaning *x)
{
    struct meaning *const m = teg_raise_alloc(r, 1, sizeof *m);
    if (m)
        emit_norm(r, m, x, TEG_MIL_NO_VAR, TEG_MIL_NO_VAR);
    return m;
}

/* The norm of a row or a head; a layer norm of [x, -x], whose mean is 0, is an RMS norm of x. */
static void rule_layer_norm(struct raiser *r, struct meaning *m)
{
    const struct meaning *const x = teg_raise_arg(r, "x"), *const gamma = teg_raise_arg(r, "gamma"),
                                *const beta = teg_raise_arg(r, "beta");
    const bool doubled = x->kind == DOUBLED;
    int64_t axis;
    uint32_t n;
    float eps = 1e-5f;
    const bool one = teg_raise_numbers(r, "axes", &axis, 1, &n) && n == 1;
    axis = one && axis < 0 ? axis + x->view.rank : axis;
    if (doubled ? gamma || beta || !one || axis != x->axis : x->kind != ROWS || !one || axis < 0) {
        teg_raise_no(r, m,
                     "expected the norm of a row or a head, or of [x, -x] over it without gamma and beta, found "
                     "another");
        return;
    }
    (void)teg_raise_scalar(r, teg_raise_arg(r, "epsilon"), &eps);
    const struct factor *const f = teg_view_single(&x->view, (uint32_t)axis);
    if (!doubled && (!f || f->axis != AXIS_COLUMNS || f->stride != 1 || !teg_view_whole(&x->view) ||
                     (gamma && gamma->kind != CONSTANT) || (beta && (!gamma || beta->kind != CONSTANT)))) {
        teg_raise_no(r, m,
                     "expected the norm over the columns of a row or a head, with constant gamma and beta, found "
                     "another");
        return;
    }
    struct meaning normed = *x;
    normed.kind = doubled ? DOUBLED_NORM : NORMED;
    normed.centred = !doubled;
    normed.eps = eps;
    normed.group = (uint32_t)teg_view_single(&x->view, doubled ? x->axis : (uint32_t)axis)->size.n;
    if (gamma)
        emit_norm(r, m, &normed, gamma->var, beta ? beta->var : TEG_MIL_NO_VAR);
    else
        *m = normed;
}

bool teg_raise_is_vector_along(struct raiser *r, teg_mil_var_id var, const struct view *view, int64_t n)
{
    const struct teg_mil_type *const type = &r->program->vars[var].type;
    int32_t from_end = 0;
    for (int32_t d = 0; d < type->rank; d++)
        if (type->dims[d] != 1)
            from_end = from_end ? -1 : type->rank - d;
    const struct factor *const f = from_end > 0 && (uint32_t)from_end <= view->rank
                                       ? teg_view_single(view, view->rank - (uint32_t)from_end)
                                       : NULL;
    return f && f->axis == AXIS_COLUMNS && f->stride == 1 && f->size.n == n && type->dims[type->rank - from_end] == n;
}

/* ---- what elementwise ops make of norms ---- */

bool teg_raise_norm_multiply(struct raiser *r, struct meaning *m, const struct meaning *a, const struct meaning *b)
{
    float s;
    const bool by_number = teg_raise_scalar(r, b, &s);
    if (a->kind == NORMED && b->kind == CONSTANT && !by_number) {
        if (teg_raise_is_vector_along(r, b->var, &a->view, a->group))
            emit_norm(r, m, a, b->var, TEG_MIL_NO_VAR);
        else
            teg_raise_no(r, m, "expected a weight of %u values along what is normed, found another shape", a->group);
    } else if (b->kind == INVERSE && a->kind == b->a->kind && teg_raise_same_rows(a, b->a)) {
        normed(m, a, b, b->gain);
    } else if (a->kind == NORMED && by_number && s > 0) {
        *m = *a;
        m->gain = (a->gain > 0 ? a->gain : 1) * s;
    } else if (a->kind == SUMS && by_number && fabsf(s * (float)a->group - 1) < 1e-3f) {
        *m = *a;
        m->kind = MEANS_EPS;
        m->eps = a->eps * s;
    } else if (a == b && a->kind != RELU) {
        squares(r, m, a);
    } else
        return false;
    return true;
}

bool teg_raise_norm_add(struct raiser *r, struct meaning *m, const struct meaning *a, const struct meaning *b)
{
    float eps;
    if ((a->kind != MEANS && a->kind != MEANS_EPS && a->kind != SUMS) || !teg_raise_scalar(r, b, &eps) || eps < 0)
        return false;
    *m = *a;
    m->kind = a->kind == MEANS ? MEANS_EPS : a->kind;
    m->eps += eps;
    return true;
}

bool teg_raise_norm_divide(struct raiser *r, struct meaning *m, const struct meaning *a, const struct meaning *b)
{
    float s;
    if (a->kind == ROWS && b->kind == MAXIMA && teg_raise_same_rows(a, b->a)) {
        *m = *a;
        m->kind = BY_MAX;
        m->least = b->least;
        m->group = b->group;
    } else if (b->kind == ROOTS && a->kind == b->a->kind && teg_raise_same_rows(a, b->a)) {
        normed(m, a, b, 1 / b->gain);
    } else if (a->kind == SUMS && teg_raise_scalar(r, b, &s) && fabsf((float)a->group / s - 1) < 1e-3f) {
        *m = *a;
        m->kind = MEANS_EPS;
        m->eps = a->eps / s;
    } else if (b->kind == ROOTS && teg_raise_is_number(r, a, 1)) {
        *m = *b;
        m->kind = INVERSE;
        m->gain = 1 / b->gain;
    } else
        return false;
    return true;
}

/* x - mean(x): rows still, until they are divided by what is left of them. */
bool teg_raise_centre(struct raiser *r, struct meaning *m, const struct meaning *x, const struct meaning *mean)
{
    (void)r;
    if (x->kind != ROWS || mean->kind != ROW_MEANS || !teg_raise_same_rows(x, mean->a))
        return false;
    *m = *x;
    m->kind = CENTRED;
    m->group = mean->group;
    return true;
}

/* The layer norm that made x, a value of the graph, with this bias. */
bool teg_raise_norm_bias(struct raiser *r, struct meaning *m, const struct meaning *x, const struct meaning *bias)
{
    const char *why = NULL;
    const struct teg_value *const v = &r->graph->values[x->value];
    if (v->kind != TEG_VALUE_RESULT || r->graph->ops[v->op].kind != TEG_OP_LAYER_NORM || x->scale != 1 ||
        r->graph->ops[v->op].n_inputs != 2 || !teg_view_whole(&x->view) || teg_view_width(&x->view) != x->columns)
        return false;
    const int64_t n = (int64_t)teg_value_width(&r->graph->values[r->graph->ops[v->op].inputs[1]]);
    if (!teg_raise_is_vector_along(r, bias->var, &x->view, n))
        return false;
    struct teg_op op = r->graph->ops[v->op];
    op.inputs[op.n_inputs++] = teg_raise_vector(r, bias->var, &why);
    if (op.inputs[2] == TEG_NO_VALUE) {
        teg_raise_no(r, m, "%s", why ? why : "out of memory");
        return true;
    }
    *m = *x;
    m->value = teg_raise_emit(r, &op);
    return true;
}

const struct teg_raise_row teg_raise_norm_rows[] = {
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
    {NULL, NULL},
};
