/* pass/raise_rope.c: rotary positions: angles computed from positions, or tables gathered at them.
 *
 * A table of cosines and one of sines name their frequencies: f is known roughly from row 1, and each doubling of the
 * position halves what is unknown, because the angle at 2p is known to a turn from the one at p. Every entry of both
 * tables is then compared with the angle's own cosine and sine, so a table that is anything else is refused. */
#include <math.h>

#include "pass/raise_int.h"

/* What rounding to half precision, and 8-bit tables, may differ by. Above: not a rotation. */
static const double worst_error = 0.02;

/* ---- angles ---- */

bool teg_raise_angles(struct raiser *r, struct meaning *m, const struct meaning *x, const struct meaning *y)
{
    const bool constant_first = x->kind == CONSTANT && y->kind == POSITIONS;
    const struct meaning *const c = constant_first ? x : y, *const p = constant_first ? y : x;
    uint32_t wide = 0, n_wide = 0;
    size_t n;
    const char *why = NULL;
    if (c->kind != CONSTANT || p->kind != POSITIONS || p->add)
        return false;
    const struct teg_mil_type *const type = &r->program->vars[c->var].type;
    for (int32_t d = 0; d < type->rank; d++)
        if (type->dims[d] != 1) {
            wide = (uint32_t)(type->rank - d); /* from the end */
            n_wide++;
        }
    const float *const freqs = n_wide == 1 ? teg_raise_floats(r, c->var, &n, &why) : NULL;
    if (!freqs || n > 4096) {
        teg_raise_no(r, m, "expected positions times a vector of frequencies, found another constant");
        return true;
    }
    /* Products of a column and a row and elementwise ones give the same: each operand keeps its place. */
    struct view columns = {0};
    for (int32_t d = 0; d < type->rank; d++) {
        if ((uint32_t)(type->rank - d) == wide)
            teg_view_columns(&columns, (int64_t)n);
        else
            (void)teg_view_add_dim(&columns, NULL, 0);
    }
    if (!teg_view_broadcast(&columns, &p->view, &m->view)) {
        teg_raise_no(r, m, "expected a rank of at most 8, found more");
        return true;
    }
    if (teg_view_total(&m->view) != teg_view_total(&columns) + teg_view_total(&p->view)) {
        teg_raise_no(r, m, "expected frequencies and positions along different dimensions, found one");
        return true;
    }
    m->view.offset = 0;
    m->kind = ANGLES;
    m->freqs = freqs;
    m->n_freqs = (uint32_t)n;
    m->scale = 1;
    return true;
}

static void rule_cos(struct raiser *r, struct meaning *m)
{
    const struct meaning *const x = teg_raise_arg(r, "x");
    if (x->kind != ANGLES) {
        teg_raise_no(r, m, "expected positions times frequencies, found another value");
        return;
    }
    *m = *x;
    m->kind = strcmp(r->op->type, "cos") == 0 ? COSINES : SINES;
}

/* ---- tables ---- */

struct tables {
    const float *cos, *sin; /* [rows, width] */
    size_t rows, width;
    double magnitude;
};

static double entry(const float *table, const struct tables *t, size_t row, size_t column)
{
    return (double)table[row * t->width + column] / t->magnitude;
}

/* The frequency of one column. */
static double frequency(const struct tables *t, size_t column)
{
    double f = atan2(entry(t->sin, t, 1, column), entry(t->cos, t, 1, column));
    for (size_t p = 2; p < t->rows; p *= 2) {
        const double angle = atan2(entry(t->sin, t, p, column), entry(t->cos, t, p, column));
        const double turns = round((f * (double)p - angle) / (2 * acos(-1.0)));
        f = (angle + turns * 2 * acos(-1.0)) / (double)p;
    }
    return f;
}

/* Frequencies are nearly always base^(-i/n): then the base of all is a better estimate than each alone. */
static void fit_base(double *f, size_t n, const struct tables *t)
{
    double sum = 0, weight = 0;
    for (size_t i = 1; i < n; i++) {
        if (!(f[i] > 0))
            return;
        const double w = f[i] * f[i]; /* the error of log f is that of f over f */
        sum += w * log(f[i]) / (-(double)i / (double)n) * ((double)i * (double)i);
        weight += w * ((double)i * (double)i);
    }
    if (n < 2 || weight == 0)
        return;
    double base = exp(sum / weight);
    if (fabs(base - round(base)) < 1e-3 * base && base > 100)
        base = fabs(base - 100 * round(base / 100)) < 1e-3 * base ? 100 * round(base / 100) : base;
    for (size_t i = 0; i < n; i++)
        if (fabs(pow(base, -(double)i / (double)n) - f[i]) * (double)t->rows > 8 * worst_error)
            return;
    for (size_t i = 0; i < n; i++)
        f[i] = pow(base, -(double)i / (double)n);
}

static double difference(const struct tables *t, const double *f, size_t n, bool interleaved)
{
    double worst = 0;
    for (size_t p = 0; p < t->rows; p++)
        for (size_t c = 0; c < t->width; c++) {
            const double angle = (double)p * f[interleaved ? c / 2 : c % n];
            worst = fmax(worst, fabs(entry(t->cos, t, p, c) - cos(angle)));
            worst = fmax(worst, fabs(entry(t->sin, t, p, c) - sin(angle)));
        }
    return worst;
}

static bool read_table(struct raiser *r, teg_mil_var_id var, const float **values, size_t *rows, size_t *width,
                       const char **why)
{
    uint64_t dims[2];
    uint32_t rank;
    size_t n;
    if (!teg_raise_dims(r, var, dims, &rank) || rank != 2) {
        *why = "expected tables [positions, width], found another shape";
        return false;
    }
    *values = teg_raise_floats(r, var, &n, why);
    *rows = (size_t)dims[0];
    *width = (size_t)dims[1];
    return *values != NULL;
}

static teg_value_id add_frequencies(struct raiser *r, const float *freqs, uint32_t n)
{
    teg_value_id v = TEG_NO_VALUE;
    float *const copy = teg_arena_alloc(r->arena, n * sizeof *copy);
    if (!copy) {
        teg_raise_keep(r, teg_base_fail_memory(r->err, "frequencies", n * sizeof *copy));
        return v;
    }
    memcpy(copy, freqs, n * sizeof *copy);
    const uint64_t dims[1] = {n};
    teg_raise_keep(
        r, teg_graph_const(r->graph, "rope.frequencies", TEG_DTYPE_F32, 1, dims, copy, n * sizeof *copy, &v, r->err));
    return v;
}

static bool fit_tables(struct raiser *r, teg_mil_var_id cos_var, teg_mil_var_id sin_var, struct rope *rope,
                       const char **why)
{
    struct tables t = {0};
    size_t rows, width;
    if (!read_table(r, cos_var, &t.cos, &t.rows, &t.width, why) || !read_table(r, sin_var, &t.sin, &rows, &width, why))
        return false;
    const size_t n = t.width / 2;
    t.magnitude = (double)t.cos[0];
    *why = "expected tables of cosines and sines of one size, found others";
    if (rows != t.rows || width != t.width || t.width % 2 || t.rows < 2 || n == 0 || n > 4096 ||
        !(t.magnitude > 0.1 && t.magnitude < 10))
        return false;
    if (fabs(t.magnitude - 1) < worst_error / 2)
        t.magnitude = 1;
    double *const f = teg_raise_alloc(r, n, sizeof *f);
    float *const freqs = teg_raise_alloc(r, n, sizeof *freqs);
    if (!f || !freqs)
        return false;
    for (size_t i = 0; i < n; i++)
        f[i] = frequency(&t, i);
    fit_base(f, n, &t);
    const double worst = difference(&t, f, n, false);
    *why = "expected entries within 0.02 of the cosines and sines of p · f, found others; the tables are no rotation";
    if (!(worst <= worst_error))
        return false;
    r->table_error = fmax(r->table_error, worst);
    for (size_t i = 0; i < n; i++)
        freqs[i] = (float)f[i];
    *rope = (struct rope){cos_var, sin_var, add_frequencies(r, freqs, (uint32_t)n), (float)t.magnitude};
    return r->status == TEG_OK;
}

teg_value_id teg_raise_frequencies(struct raiser *r, const struct meaning *c, const struct meaning *s, float *magnitude,
                                   const char **why)
{
    struct rope rope;
    *magnitude = 1;
    if (c->kind == TABLE && s->kind == TABLE) {
        for (uint32_t i = 0; i < r->n_ropes; i++)
            if (r->ropes[i].cos == c->var && r->ropes[i].sin == s->var) {
                *magnitude = r->ropes[i].magnitude;
                return r->ropes[i].frequencies;
            }
        if (!fit_tables(r, c->var, s->var, &rope, why))
            return TEG_NO_VALUE;
    } else if (c->kind == COSINES && s->kind == SINES && c->freqs == s->freqs) {
        for (uint32_t i = 0; i < r->n_ropes; i++)
            if (r->ropes[i].cos == TEG_MIL_NO_VAR &&
                memcmp(r->graph->values[r->ropes[i].frequencies].data, c->freqs, c->n_freqs * sizeof *c->freqs) == 0)
                return r->ropes[i].frequencies;
        rope = (struct rope){TEG_MIL_NO_VAR, TEG_MIL_NO_VAR, add_frequencies(r, c->freqs, c->n_freqs), 1};
    } else {
        *why = "expected a cosine and a sine of the same angles, found others";
        return TEG_NO_VALUE;
    }
    if (r->status != TEG_OK || !teg_raise_grow(r, &r->ropes, r->n_ropes, &r->rope_capacity, sizeof *r->ropes))
        return TEG_NO_VALUE;
    r->ropes[r->n_ropes++] = rope;
    *magnitude = rope.magnitude;
    return rope.frequencies;
}

/* ---- the rotation: x · cos + turned(x) · sin ---- */

static bool is_wave(const struct meaning *m)
{
    return m->kind == COSINES || m->kind == SINES || m->kind == TABLE;
}

/* The waves must lie along tokens and the columns of a head, as [f, f]. */
static bool lies_along(const struct meaning *x, const struct meaning *wave)
{
    const struct view *const v = &x->view, *const w = &wave->view;
    if (w->rank > v->rank || v->rank == 0)
        return false;
    const uint32_t skip = v->rank - w->rank;
    for (uint32_t d = 0; d + 1 < w->rank; d++) {
        const struct factor *const f = teg_view_single(w, d), *const g = teg_view_single(v, d + skip);
        if (w->count[d] && (!f || f->axis != AXIS_TOKENS || !g || g->axis != AXIS_TOKENS))
            return false;
    }
    const struct factor *const head = teg_view_single(v, v->rank - 1);
    const struct factor *const last = &w->factors[teg_view_begin(w, w->rank - 1)];
    const uint32_t n = w->count[w->rank - 1];
    if (!head || head->axis != AXIS_COLUMNS || head->stride != 1)
        return false;
    if (wave->kind == TABLE)
        return n == 1 && last->stride == 1 && last->size.n == head->size.n;
    return n == 2 && last[0].stride == 0 && last[0].size.n == 2 && last[1].stride == 1 &&
           2 * last[1].size.n == head->size.n;
}

static void rotate(struct raiser *r, struct meaning *m, const struct meaning *x, const struct meaning *turned)
{
    const char *why = NULL;
    float magnitude;
    struct meaning *const rows = teg_raise_alloc(r, 1, sizeof *rows);
    if (!rows)
        return;
    *rows = *x;
    rows->kind = ROWS;
    const bool same = x->is_linear == turned->is_linear && x->scale == turned->scale &&
                      teg_view_same(&x->view, &turned->view) &&
                      (x->is_linear ? x->a == turned->a && x->weight == turned->weight : x->value == turned->value);
    if (!same) {
        teg_raise_no(r, m, "expected x · cos + turned(x) · sin of one x, found two");
        return;
    }
    const teg_value_id f = teg_raise_frequencies(r, x->b, turned->b, &magnitude, &why);
    const teg_value_id v = f == TEG_NO_VALUE ? f : teg_raise_value(r, rows, &why);
    if (v == TEG_NO_VALUE) {
        teg_raise_no(r, m, "%s", why ? why : "out of memory");
        return;
    }
    struct teg_op op = {.kind = TEG_OP_ROPE, .n_inputs = 2, .inputs = {v, f}};
    op.attr.rope.head_width = turned->group;
    op.attr.rope.magnitude = magnitude;
    teg_raise_rows(m, teg_raise_emit(r, &op), teg_view_width(&x->view), &x->view);
    m->last = x->last;
}

bool teg_raise_rope_binary(struct raiser *r, struct meaning *m, const struct meaning *a, const struct meaning *b)
{
    if (strcmp(r->op->type, "add") == 0) {
        if (a->kind == BY_COS && b->kind == BY_SIN)
            rotate(r, m, a, b);
        else if (a->kind == BY_SIN && b->kind == BY_COS)
            rotate(r, m, b, a);
        else
            return false;
        return true;
    }
    if (strcmp(r->op->type, "mul") != 0)
        return false;
    if (is_wave(a)) {
        const struct meaning *const other = a;
        a = b;
        b = other;
    }
    if (!is_wave(b)) /* positions times frequencies by broadcasting */
        return (a->kind == POSITIONS || b->kind == POSITIONS) && teg_raise_angles(r, m, a, b);
    if ((a->kind != ROWS && a->kind != TURNED) || !lies_along(a, b)) {
        teg_raise_no(r, m, "expected rows seen as heads times cos or sin along each head, found another layout");
        return true;
    }
    *m = *a;
    m->kind = a->kind == ROWS ? BY_COS : BY_SIN;
    m->b = b;
    return true;
}

const struct teg_raise_row teg_raise_rope_rows[] = {{"cos", rule_cos}, {"sin", rule_cos}, {NULL, NULL}};
