/* pass/raise_rope.c: rotary positions: x · cos + turned(x) · sin, in whole heads or in halves.
 *
 * A wave is what is multiplied on: the cosine or sine of positions times frequencies, or rows of a constant table.
 * Which of the two a table holds is known from its use alone. Column j of a wave is column col(j) of its source; the
 * two components of a pair must be turned by one angle, so their columns must be the same column, or hold the same
 * values. Then the rotation is what it is for any values: tables go into the graph as they are, rounded or quantized.
 *
 * Not taken: finding the frequencies that a table was made from. Tables are in half precision, often quantized with the
 * weights, and logits differ by 1e-2 from those of the program when they are replaced by exact angles. */
#include <math.h>

#include "pass/raise_int.h"

enum { MOST_COLUMNS = 8192 };

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
    if (type->rank > 0 && n_wide == 0) { /* one frequency: heads of two columns */
        n_wide = 1;
        wide = constant_first && type->rank > 1 ? 2 : 1;
    }
    const float *const freqs = n_wide == 1 ? teg_raise_floats(r, c->var, &n, &why) : NULL;
    if (!freqs || n > MOST_COLUMNS / 2) {
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
    if (!teg_view_broadcast(&columns, &p->view, &m->view) ||
        teg_view_total(&m->view) != teg_view_total(&columns) + teg_view_total(&p->view)) {
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

/* ---- waves ---- */

static bool is_wave(const struct meaning *m)
{
    return m->kind == COSINES || m->kind == SINES || (m->kind == TABLE && m->add == 0);
}

static bool same_wave(const struct meaning *a, const struct meaning *b)
{
    return a == b || (a->kind == b->kind && a->var == b->var && a->freqs == b->freqs && a->scale == b->scale &&
                      teg_view_same(&a->view, &b->view));
}

/* The dimension that has a wave's columns: the last, but where another one alone has some. */
static uint32_t column_dim(const struct view *v)
{
    uint32_t dim = v->rank - 1, n = 0;
    for (uint32_t d = 0; d < v->rank; d++)
        if (v->count[d] && v->factors[teg_view_begin(v, d)].axis == AXIS_COLUMNS) {
            dim = d;
            n++;
        }
    return n == 1 ? dim : v->rank - 1;
}

/* The source's column for each of the n columns of the wave; NULL: too many, or memory. */
static int64_t *columns_of(struct raiser *r, const struct meaning *wave, uint32_t *n)
{
    const struct view *const v = &wave->view;
    const uint32_t last = column_dim(v), at = teg_view_begin(v, last);
    struct amount size;
    if (!teg_view_size(v, last, &size) || !teg_amount_fixed(size) || size.n < 1 || size.n > MOST_COLUMNS)
        return NULL;
    int64_t *const columns = teg_raise_alloc(r, (size_t)size.n, sizeof *columns);
    for (int64_t j = 0; columns && j < size.n; j++) {
        int64_t rest = j;
        columns[j] = v->offset;
        for (uint32_t k = v->count[last]; k-- > 0;) {
            columns[j] += rest % v->factors[at + k].size.n * v->factors[at + k].stride;
            rest /= v->factors[at + k].size.n;
        }
    }
    *n = (uint32_t)size.n;
    return columns;
}

/* Both columns of a table hold the same. */
static bool same_values(const float *table, size_t n, size_t width, int64_t a, int64_t b)
{
    for (size_t row = 0; a != b && row < n / width; row++)
        if (table[row * width + (size_t)a] != table[row * width + (size_t)b])
            return false;
    return true;
}

/* One column for each pair, from one column for each component. */
static bool pair_columns(const struct pairing *p, const float *table, size_t n, size_t width, int64_t *columns)
{
    for (uint32_t i = 0; i < p->n_pairs; i++) {
        const int64_t a = columns[p->interleaved ? 2 * i : i], b = columns[p->interleaved ? 2 * i + 1 : i + p->n_pairs];
        if (a != b && !(table && same_values(table, n, width, a, b)))
            return false;
    }
    for (uint32_t i = 0; i < p->n_pairs && p->interleaved; i++)
        columns[i] = columns[2 * i];
    return true;
}

static teg_value_id add_constant(struct raiser *r, const char *name, enum teg_dtype dtype, uint32_t rank,
                                 const uint64_t *dims, const float *values)
{
    teg_value_id v = TEG_NO_VALUE;
    const size_t n = (size_t)(dims[0] * (rank == 2 ? dims[1] : 1)), item = dtype == TEG_DTYPE_F16 ? 2 : 4;
    uint8_t *const copy = teg_arena_alloc(r->arena, n * item);
    if (!copy) {
        teg_raise_keep(r, teg_base_fail_memory(r->err, "rotary positions", n * item));
        return v;
    }
    for (size_t i = 0; i < n; i++) {
        const uint16_t half = teg_f32_to_f16(values[i]);
        memcpy(copy + i * item, item == 2 ? (const void *)&half : &values[i], item);
    }
    teg_raise_keep(r, teg_graph_const(r->graph, name, dtype, rank, dims, copy, n * item, &v, r->err));
    return r->status == TEG_OK ? v : TEG_NO_VALUE;
}

/* The columns of a table that pairs need, [rows, n_pairs]. */
static teg_value_id cut_table(struct raiser *r, const struct meaning *wave, const struct pairing *p, int64_t *columns,
                              bool whole, const char **why)
{
    size_t n;
    const float *const values = teg_raise_floats(r, wave->var, &n, why);
    const size_t width = (size_t)wave->columns, rows = n / width;
    if (!values)
        return TEG_NO_VALUE;
    if (whole && !pair_columns(p, values, n, width, columns)) {
        *why = "expected a table that turns both components of a pair by one angle, found other values";
        return TEG_NO_VALUE;
    }
    float *const cut = teg_raise_alloc(r, rows * p->n_pairs, sizeof *cut);
    for (size_t i = 0; cut && i < rows * p->n_pairs; i++)
        cut[i] = values[i / p->n_pairs * width + (size_t)columns[i % p->n_pairs]] * wave->scale;
    const bool half = r->program->vars[wave->var].type.dtype == TEG_MIL_FP16 && wave->scale == 1;
    const uint64_t dims[2] = {rows, p->n_pairs};
    r->table_rows = r->table_rows && r->table_rows < rows ? r->table_rows : rows;
    return cut ? add_constant(r, r->program->vars[wave->var].name, half ? TEG_DTYPE_F16 : TEG_DTYPE_F32, 2, dims, cut)
               : TEG_NO_VALUE;
}

static teg_value_id cut_frequencies(struct raiser *r, const struct meaning *wave, const struct pairing *p,
                                    int64_t *columns, bool whole, const char **why)
{
    /* Whole heads of an input: which columns are alike is seen from the pairing, for nothing else is a rotation. */
    const bool given_whole = wave->by_contract && wave->columns == 2 * (int64_t)p->n_pairs;
    if (whole && !given_whole && !pair_columns(p, NULL, 0, 0, columns)) {
        *why = "expected both components of a pair to turn by one angle, found different frequencies";
        return TEG_NO_VALUE;
    }
    float *const f = teg_raise_alloc(r, p->n_pairs, sizeof *f);
    for (uint32_t i = 0; f && i < p->n_pairs; i++) {
        const double at = given_whole ? i : (double)columns[i];
        f[i] = wave->by_contract ? (float)pow((double)r->rope_base, -at / p->n_pairs) : wave->freqs[columns[i]];
    }
    const uint64_t dims[1] = {p->n_pairs};
    return f ? add_constant(r, "rope.frequencies", TEG_DTYPE_F32, 1, dims, f) : TEG_NO_VALUE;
}

/* The constant of the graph for a wave; one for all its uses. */
static teg_value_id wave_value(struct raiser *r, const struct meaning *wave, const struct pairing *p, const char **why)
{
    uint32_t n = 0;
    int64_t *const columns = columns_of(r, wave, &n);
    int64_t *const key = columns ? teg_raise_alloc(r, n, sizeof *key) : NULL;
    const int64_t width = wave->kind == TABLE || wave->by_contract ? wave->columns : wave->n_freqs;
    bool good = key && (n == p->n_pairs || n == 2 * p->n_pairs);
    for (uint32_t i = 0; i < n && good; i++) {
        key[i] = columns[i];
        good = columns[i] >= 0 && columns[i] < width; /* a view says so, but a table is not read on trust */
    }
    if (!good) {
        *why = "expected as many columns of cos and sin as a head has components or pairs, found another number";
        return TEG_NO_VALUE;
    }
    for (uint32_t i = 0; i < r->n_ropes; i++) {
        const struct rope *const known = &r->ropes[i];
        if (known->var == wave->var && known->freqs == wave->freqs && known->scale == wave->scale &&
            known->by_contract == wave->by_contract && known->pairing.n_pairs == p->n_pairs &&
            known->pairing.interleaved == p->interleaved && known->n_columns == n &&
            memcmp(known->columns, key, n * sizeof *key) == 0)
            return known->value;
    }
    const struct teg_arena saved = r->scratch; /* decoded tables live only as long as this */
    teg_arena_init(&r->scratch, saved.allocator);
    const teg_value_id v =
        (wave->kind == TABLE ? cut_table : cut_frequencies)(r, wave, p, columns, n == 2 * p->n_pairs, why);
    teg_arena_free(&r->scratch);
    r->scratch = saved;
    if (v == TEG_NO_VALUE || !teg_raise_grow(r, &r->ropes, r->n_ropes, &r->rope_capacity, sizeof *r->ropes))
        return TEG_NO_VALUE;
    const float scale = wave->scale;
    r->ropes[r->n_ropes++] = (struct rope){wave->var, wave->freqs, scale, wave->by_contract, *p, n, key, v};
    return v;
}

/* Operands and attributes of the rotation by these waves. */
static bool rope_op(struct raiser *r, const struct meaning *c, const struct meaning *s, const struct pairing *p,
                    struct teg_op *op, const char **why)
{
    const bool tables = c->kind == TABLE && s->kind == TABLE;
    *op = (struct teg_op){.kind = TEG_OP_ROPE, .n_inputs = tables ? 3 : 2};
    op->attr.rope.head_width = 2 * p->n_pairs;
    op->attr.rope.interleaved = p->interleaved;
    op->attr.rope.magnitude = tables ? 1 : c->scale;
    if (!tables && !(c->kind == COSINES && s->kind == SINES && c->freqs == s->freqs && c->scale == s->scale &&
                     c->by_contract == s->by_contract)) {
        *why = "expected a cosine and a sine of the same angles, found others";
        return false;
    }
    op->inputs[1] = wave_value(r, c, p, why);
    const teg_value_id second = op->inputs[1] == TEG_NO_VALUE ? TEG_NO_VALUE : wave_value(r, s, p, why);
    if (tables)
        op->inputs[2] = second;
    else if (second != TEG_NO_VALUE && second != op->inputs[1])
        *why = "expected a cosine and a sine of the same angles, found others";
    if (second != TEG_NO_VALUE && tables &&
        r->graph->values[second].shape.dims[0] != r->graph->values[op->inputs[1]].shape.dims[0]) {
        *why = "expected tables of cosines and sines of one size, found others";
        return false;
    }
    return second != TEG_NO_VALUE && (tables || second == op->inputs[1]);
}

/* ---- the rotation ---- */

/* The waves must lie along tokens, and their columns along those of x's heads. */
static bool lies_along(const struct meaning *x, const struct meaning *wave)
{
    const struct view *const v = &x->view, *const w = &wave->view;
    struct amount a, b;
    if (w->rank > v->rank || w->rank == 0)
        return false;
    const uint32_t skip = v->rank - w->rank, columns = column_dim(w);
    for (uint32_t d = 0; d < w->rank; d++) {
        const struct factor *const f = teg_view_single(w, d), *const g = teg_view_single(v, d + skip);
        if (d != columns && w->count[d] && (!f || f->axis != AXIS_TOKENS || !g || g->axis != AXIS_TOKENS))
            return false;
    }
    const struct factor *const head = teg_view_single(v, columns + skip);
    return head && head->axis == AXIS_COLUMNS && head->stride > 0 && teg_view_size(w, columns, &a) &&
           teg_view_size(v, columns + skip, &b) && teg_amount_same(a, b);
}

static bool same_source(const struct meaning *a, const struct meaning *b)
{
    return a->is_linear == b->is_linear && a->last == b->last && a->scale == b->scale &&
           (a->is_linear ? a->a == b->a && a->weight == b->weight && a->bias == b->bias : a->value == b->value);
}

/* Halves of heads with columns like `half`, `apart` columns from each other. */
static bool find_pairing(const struct factor *half, int64_t apart, struct pairing *p)
{
    if (!half || half->axis != AXIS_COLUMNS || half->size.n > MOST_COLUMNS / 2)
        return false;
    *p = (struct pairing){(uint32_t)half->size.n, half->stride == 2 && apart == 1};
    return p->interleaved || (half->stride == 1 && apart == half->size.n);
}

/* [-second, first] */
bool teg_raise_join_turned(struct meaning *m, const struct meaning *a, const struct meaning *b, uint32_t axis)
{
    struct pairing p;
    struct view whole;
    const uint32_t rank = a->view.rank;
    const bool is_stack = axis + 1 == rank && a->view.count[axis] == 0; /* then the halves' columns are before it */
    struct meaning negated = *a;
    negated.scale = -a->scale;
    if (a->kind != ROWS || b->kind != ROWS || !same_source(&negated, b) || axis >= rank || (is_stack && rank < 2) ||
        !find_pairing(teg_view_single(&b->view, axis - is_stack), a->view.offset - b->view.offset, &p) ||
        !teg_view_join(&b->view, &a->view, axis, &whole))
        return false;
    *m = *b;
    m->kind = TURNED;
    m->view = whole;
    m->group = 2 * p.n_pairs;
    m->interleaved = p.interleaved;
    return true;
}

/* m = the rows of `whole` with the first columns of each head turned: as many as there are pairs. */
static void rotate_rows(struct raiser *r, struct meaning *m, const struct meaning *whole, uint32_t head_width,
                        const struct meaning *c, const struct meaning *s, const struct pairing *p)
{
    const char *why = NULL;
    struct teg_op op;
    const teg_value_id v = rope_op(r, c, s, p, &op, &why) ? teg_raise_value(r, whole, &why) : TEG_NO_VALUE;
    if (v == TEG_NO_VALUE) {
        teg_raise_no(r, m, "%s", why ? why : "out of memory");
        return;
    }
    op.inputs[0] = v;
    op.attr.rope.head_width = head_width;
    teg_raise_rows(m, teg_raise_emit(r, &op), teg_view_width(&whole->view), &whole->view);
    m->last = whole->last;
}

/* Where there is one head, its first columns are rows of their own and were turned already: what was turned. */
static const struct meaning *turned_alone(struct raiser *r, const struct meaning *m)
{
    struct meaning *const part = m->kind == ROWS && m->part && m->value == m->part->value && m->scale == 1
                                     ? teg_raise_alloc(r, 1, sizeof *part)
                                     : NULL;
    if (!part)
        return m;
    *part = *m->part;
    part->view = m->view;
    part->view.offset = m->part->view.offset;
    return part;
}

/* Some columns of each head are turned: that becomes an op when the others are put beside them. */
bool teg_raise_join_partial(struct raiser *r, struct meaning *m, const struct meaning *first,
                            const struct meaning *second, uint32_t axis)
{
    first = turned_alone(r, first);
    if (first->kind != ROTATED_PART || second->kind != ROWS)
        return false;
    const struct factor *const turned = teg_view_single(&first->view, axis), *const rest =
                                                                                 teg_view_single(&second->view, axis);
    struct meaning *const whole = teg_raise_alloc(r, 1, sizeof *whole);
    if (!whole)
        return true;
    bool good = turned && rest && turned->stride == 1 && rest->stride == 1 && rest->axis == AXIS_COLUMNS &&
                turned->size.n == first->group && same_source(first->a, second) &&
                second->view.offset == first->view.offset + turned->size.n && first->view.rank == second->view.rank;
    *whole = *second;
    whole->view = (struct view){.offset = first->view.offset};
    for (uint32_t d = 0; good && d < first->view.rank; d++) {
        const struct factor *const f = &first->view.factors[teg_view_begin(&first->view, d)];
        struct factor wide = *turned;
        wide.size.n += rest->size.n;
        good = teg_view_add_dim(&whole->view, d == axis ? &wide : f, first->view.count[d]);
    }
    struct view narrow = whole->view; /* all else must be alike */
    if (good) {
        narrow.factors[teg_view_begin(&narrow, axis)].size = rest->size;
        narrow.offset = second->view.offset;
    }
    const struct pairing p = {first->group / 2, first->interleaved};
    if (good && teg_view_same(&narrow, &second->view) && teg_view_whole(&whole->view))
        rotate_rows(r, m, whole, first->group + (uint32_t)rest->size.n, first->cos, first->sin, &p);
    else
        teg_raise_no(r, m, "expected the rotated columns of each head and the rest of them, found others");
    return true;
}

/* m = the rows `x` (of any kind; its view is that of whole heads, or of their first columns) turned. */
static void rotate(struct raiser *r, struct meaning *m, const struct meaning *x, const struct meaning *c,
                   const struct meaning *s, const struct pairing *p)
{
    struct meaning *const rows = teg_raise_alloc(r, 1, sizeof *rows);
    if (!rows)
        return;
    *rows = *x;
    rows->kind = ROWS;
    struct meaning part = *rows;
    part.kind = ROTATED_PART;
    part.a = rows;
    part.cos = c;
    part.sin = s;
    part.group = 2 * p->n_pairs;
    part.interleaved = p->interleaved;
    if (!teg_view_whole(&rows->view)) {
        *m = part;
        return;
    }
    rotate_rows(r, m, rows, 2 * p->n_pairs, c, s, p);
    struct meaning *const kept = m->kind == ROWS ? teg_raise_alloc(r, 1, sizeof *kept) : NULL;
    if (!kept)
        return;
    *kept = part;
    kept->value = m->value;
    m->part = kept;
}

/* x · cos + turned(x) · sin */
static void rotate_whole(struct raiser *r, struct meaning *m, const struct meaning *x, const struct meaning *turned)
{
    const struct pairing p = {turned->group / 2, turned->interleaved};
    if (!same_source(x, turned) || !teg_view_same(&x->view, &turned->view))
        teg_raise_no(r, m, "expected x · cos + turned(x) · sin of one x, found two");
    else
        rotate(r, m, x, x->b, turned->b, &p);
}

/* first · wave - second · wave, or their sum: half of a rotation, until both halves are put side by side. */
static void half_rotation(struct raiser *r, struct meaning *m, const struct meaning *a, const struct meaning *b,
                          bool adds)
{
    struct meaning *const positive = teg_raise_alloc(r, 1, sizeof *positive);
    if (!positive)
        return;
    if (adds && a->scale < 0) {
        const struct meaning *const other = a;
        a = b;
        b = other;
    }
    *positive = *b;
    positive->scale = fabsf(b->scale);
    const bool is_sum = adds == (b->scale == a->scale);
    struct view there = b->view;
    there.offset = a->view.offset;
    if (!same_source(a, positive) || !teg_view_same(&a->view, &there)) {
        teg_raise_no(r, m, "expected two halves of the same heads, each times cos or sin, found others");
        return;
    }
    *m = *a;
    m->kind = is_sum ? SUM : DIFFERENCE;
    m->a = a;
    m->b = positive;
    m->view = is_sum ? (a->view.offset > b->view.offset ? a : b)->view : a->view;
}

bool teg_raise_join_rotation(struct raiser *r, struct meaning *m, const struct meaning *first,
                             const struct meaning *second, uint32_t axis)
{
    if (first->kind != DIFFERENCE || second->kind != SUM)
        return false;
    const struct meaning *const x = first->a, *const y = first->b;
    const bool in_order = same_source(x, second->a) && teg_view_same(&x->view, &second->a->view);
    const struct meaning *const xs = in_order ? second->a : second->b, *const ys = in_order ? second->b : second->a;
    struct meaning *const whole = teg_raise_alloc(r, 1, sizeof *whole);
    if (!whole)
        return true;
    *whole = *x;
    const struct factor *const head = teg_view_single(&x->view, x->view.rank - 1);
    struct pairing p = {0};
    const bool good = same_source(x, xs) && same_source(y, ys) && teg_view_same(&x->view, &xs->view) &&
                      teg_view_same(&y->view, &ys->view) && same_wave(x->b, ys->b) && same_wave(y->b, xs->b) &&
                      teg_view_join(&first->view, &second->view, axis, &whole->view) &&
                      find_pairing(head, second->view.offset - first->view.offset, &p);
    if (good)
        rotate(r, m, whole, x->b, y->b, &p);
    else
        teg_raise_no(r, m, "expected both halves of one rotation side by side, found others");
    return true;
}

bool teg_raise_rope_binary(struct raiser *r, struct meaning *m, const struct meaning *a, const struct meaning *b)
{
    const bool adds = strcmp(r->op->type, "add") == 0;
    float s;
    if (adds || strcmp(r->op->type, "sub") == 0) {
        if (adds && a->kind == WAVED && b->kind == TURNED_WAVED)
            rotate_whole(r, m, a, b);
        else if (adds && a->kind == TURNED_WAVED && b->kind == WAVED)
            rotate_whole(r, m, b, a);
        else if (a->kind == WAVED && b->kind == WAVED)
            half_rotation(r, m, a, b, adds);
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
    struct meaning *const folded = teg_raise_alloc(r, 1, sizeof *folded);
    if (!folded)
        return true;
    if (teg_raise_constant_wave(r, b, a, folded)) {
        a = b;
        b = folded;
    } else if (teg_raise_constant_wave(r, a, b, folded))
        b = folded;
    if (!is_wave(b)) /* positions times frequencies by broadcasting */
        return (a->kind == POSITIONS || b->kind == POSITIONS) && teg_raise_angles(r, m, a, b);
    if (teg_raise_scalar(r, a, &s)) { /* the magnitude of yarn and others */
        *m = *b;
        m->scale *= s;
        return true;
    }
    if ((a->kind != ROWS && a->kind != TURNED) || !lies_along(a, b)) {
        teg_raise_no(r, m, "expected rows seen as heads times cos or sin along each head, found another layout");
        return true;
    }
    *m = *a;
    m->kind = a->kind == ROWS ? WAVED : TURNED_WAVED;
    m->b = b;
    return true;
}

/* ---- cos and sin that come as inputs ---- */

/* "10000", "500000.0"; 0: another text. By hand: strtod hangs on the host program's locale. */
static float base_number(const struct teg_string *text)
{
    double x = 0, step = 0;
    for (size_t i = 0; i < text->n_bytes; i++) {
        const char c = text->bytes[i];
        if (c == '.' && step == 0)
            step = 1;
        else if (c >= '0' && c <= '9' && step == 0)
            x = 10 * x + (c - '0');
        else if (c >= '0' && c <= '9')
            x += (c - '0') * (step /= 10);
        else
            return 0;
    }
    return x > 1 && x < 1e12 ? (float)x : 0;
}

/* Their values are the caller's, who made them from a base that the package must name. */
void teg_raise_wave_input(struct raiser *r, struct meaning *m, const struct teg_mil_type *type, bool is_cos)
{
    static const char *const keys[] = {"rope_theta", "rope.freq_base", "rope_freq_base", "rope_base"};
    m->kind = is_cos ? COSINES : SINES;
    m->by_contract = true;
    m->scale = 1;
    m->var = TEG_MIL_NO_VAR;
    for (size_t i = 0; i < r->program->n_user_metadata && r->rope_base == 0; i++) {
        const struct teg_string *const entry = r->program->user_metadata[i];
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            if (entry[0].n_bytes == strlen(keys[k]) && memcmp(entry[0].bytes, keys[k], entry[0].n_bytes) == 0)
                r->rope_base = base_number(&entry[1]);
    }
    if (r->rope_base == 0) {
        teg_raise_no(r, m, "expected a metadata entry rope_theta, from which the caller makes cos and sin, found none");
        return;
    }
    const bool flexible = !teg_amount_is(r->tokens, 1);
    for (int32_t d = 0; d < type->rank; d++) {
        const bool is_time =
            d < type->rank - 1 && flexible &&
            (type->dims[d] == TEG_MIL_UNKNOWN ? r->tokens.t == 1 : teg_amount_is(r->tokens, type->dims[d]));
        if (d == type->rank - 1 && type->dims[d] > 0 && type->dims[d] <= MOST_COLUMNS) {
            m->columns = type->dims[d];
            teg_view_columns(&m->view, m->columns);
        } else if (is_time && !teg_view_has(&m->view, AXIS_TOKENS))
            (void)teg_view_add_dim(&m->view, &(struct factor){AXIS_TOKENS, r->tokens, 0}, 1);
        else if (type->dims[d] == 1)
            (void)teg_view_add_dim(&m->view, NULL, 0);
        else
            break;
    }
    if ((int32_t)m->view.rank != type->rank || type->rank < 1 || (flexible && !teg_view_has(&m->view, AXIS_TOKENS)))
        teg_raise_no(r, m, "expected cos and sin of shape [1, T, columns], found another shape");
}

const struct teg_raise_row teg_raise_rope_rows[] = {{"cos", rule_cos}, {"sin", rule_cos}, {NULL, NULL}};
