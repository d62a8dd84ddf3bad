/* pass/raise_layout.c: ops that move values but do not compute: cast, reshape, transpose, slices, gather, concat, and
 * the integer arithmetic on shapes that steers them.
 *
 * A layout op keeps a meaning and changes its view. Shape arithmetic is done on amounts n + t·T + p·P, so what
 * exporters compute at run time (lengths, repeats, ends of slices) is known here whatever T and P will be. */
#include "pass/raise_int.h"

/* Meanings of which an element depends only on its own place, so that any order of elements keeps them. */
bool teg_raise_may_move(const struct meaning *m)
{
    switch (m->kind) {
    case TOKENS:
    case POSITIONS:
    case SLOTS:
    case NOT_NEGATIVE:
    case NEGATIVE:
    case VISIBLE:
    case HIDDEN:
    case MASK:
    case FILLED:
    case BANDED:
    case ROTATED_PART:
    case ROWS:
    case NORMED:
    case TURNED:
    case ANGLES:
    case COSINES:
    case SINES:
    case TABLE:
    case WAVED:
    case TURNED_WAVED:
    case DIFFERENCE:
    case SUM:
    case SILU:
    case RELU:
    case SIGMOID:
    case GELU:
    case GELU_ERF:
    case ERF:
    case ERF_PLUS:
    case TANH:
    case CAPPED:
    case CACHE:
    case ATTENDED:
    case OLD_LAYER:
    case NEW_LAYER:
    case ONE_HOT:
    case WRITTEN:
    case UNTOUCHED:
    case PAST:
        return true;
    default:
        return false;
    }
}

void teg_raise_set_ints(struct raiser *r, struct meaning *m, const struct amount *values, uint32_t n)
{
    struct amount *const copy = teg_raise_alloc(r, n + 1, sizeof *copy);
    if (!copy)
        return;
    memcpy(copy, values, n * sizeof *copy);
    m->kind = INTEGERS;
    m->ints = copy;
    m->n_ints = n;
}

static void rule_cast(struct raiser *r, struct meaning *m)
{
    *m = *teg_raise_arg(r, "x");
}

static bool start_move(struct raiser *r, struct meaning *m)
{
    const struct meaning *const x = teg_raise_arg(r, "x");
    if (!teg_raise_may_move(x)) {
        teg_raise_no(r, m, "expected rows, positions or a mask, found another value");
        return false;
    }
    *m = *x;
    return true;
}

/* Integers have no shape here: those of rank 0 and 1 are told apart by nobody. */
static bool pass_ints(struct raiser *r, struct meaning *m)
{
    const struct meaning *const x = teg_raise_arg(r, "x");
    const struct amount *values;
    uint32_t n;
    if (x->kind != INTEGERS && !(x->kind == CONSTANT && teg_raise_ints(r, x, &values, &n)))
        return false;
    *m = *x;
    return true;
}

static void rule_reshape(struct raiser *r, struct meaning *m)
{
    const struct amount *dims;
    uint32_t n;
    if (pass_ints(r, m) || !start_move(r, m))
        return;
    if (!teg_raise_ints(r, teg_raise_arg(r, "shape"), &dims, &n) || !teg_view_reshape(&m->view, dims, n))
        teg_raise_no(r, m, "expected a shape that keeps tokens and heads apart, found another");
}

static void rule_transpose(struct raiser *r, struct meaning *m)
{
    int64_t perm[TEG_MIL_MAX_RANK];
    uint32_t n;
    if (!start_move(r, m))
        return;
    if (!teg_raise_numbers(r, "perm", perm, TEG_MIL_MAX_RANK, &n) || n != m->view.rank ||
        !teg_view_transpose(&m->view, perm))
        teg_raise_no(r, m, "expected a constant order of the dimensions, found another");
}

/* Marks axes (negatives counted from the end) in a mask; false: out of range. */
static bool mark_axes(const int64_t *axes, uint32_t n, uint32_t rank, bool *marked)
{
    for (uint32_t i = 0; i < n; i++) {
        const int64_t a = axes[i] < 0 ? axes[i] + rank : axes[i];
        if (a < 0 || a >= rank)
            return false;
        marked[a] = true;
    }
    return true;
}

static void rule_expand_dims(struct raiser *r, struct meaning *m)
{
    int64_t axes[TEG_MIL_MAX_RANK];
    uint32_t n;
    bool marked[TEG_MIL_MAX_RANK * 2] = {false};
    if (pass_ints(r, m) || !start_move(r, m))
        return;
    if (!teg_raise_numbers(r, "axes", axes, TEG_MIL_MAX_RANK, &n) || !mark_axes(axes, n, m->view.rank + n, marked)) {
        teg_raise_no(r, m, "expected constant axes, found others");
        return;
    }
    for (uint32_t d = 0; d < TEG_MIL_MAX_RANK; d++)
        if (marked[d] && !teg_view_insert(&m->view, d))
            teg_raise_no(r, m, "expected a rank of at most 8, found more");
}

static void rule_squeeze(struct raiser *r, struct meaning *m)
{
    int64_t axes[TEG_MIL_MAX_RANK];
    uint32_t n;
    bool marked[TEG_MIL_MAX_RANK] = {false};
    if (pass_ints(r, m) || !start_move(r, m))
        return;
    const bool all = !teg_raise_arg(r, "axes");
    if (!all &&
        (!teg_raise_numbers(r, "axes", axes, TEG_MIL_MAX_RANK, &n) || !mark_axes(axes, n, m->view.rank, marked))) {
        teg_raise_no(r, m, "expected constant axes, found others");
        return;
    }
    for (uint32_t d = m->view.rank; d-- > 0;)
        if ((all ? m->view.count[d] == 0 : marked[d]) && !teg_view_remove(&m->view, d))
            teg_raise_no(r, m, "expected dimensions of one, found more");
}

/* ---- shapes ---- */

static void rule_shape(struct raiser *r, struct meaning *m)
{
    const struct meaning *const x = teg_raise_arg(r, "x");
    struct amount sizes[TEG_MIL_MAX_RANK];
    if (!teg_raise_may_move(x)) {
        teg_raise_no(r, m, "expected rows, positions or a mask, found another value");
        return;
    }
    for (uint32_t d = 0; d < x->view.rank; d++)
        if (!teg_view_size(&x->view, d, &sizes[d])) {
            teg_raise_no(r, m, "expected dimensions known from T and P, found others");
            return;
        }
    teg_raise_set_ints(r, m, sizes, x->view.rank);
}

static bool gather_ints(struct raiser *r, struct meaning *m, const struct meaning *x, const struct meaning *indices)
{
    const struct amount *values, *at;
    struct amount picked[TEG_MIL_MAX_RANK];
    uint32_t n, n_at;
    if (!teg_raise_ints(r, x, &values, &n) || !teg_raise_ints(r, indices, &at, &n_at) || n_at > TEG_MIL_MAX_RANK)
        return false;
    for (uint32_t i = 0; i < n_at; i++) {
        const int64_t k = teg_amount_fixed(at[i]) && at[i].n < 0 ? at[i].n + n : at[i].n;
        if (!teg_amount_fixed(at[i]) || k < 0 || k >= n)
            return false;
        picked[i] = values[k];
    }
    teg_raise_set_ints(r, m, picked, n_at);
    return true;
}

/* Positions, also where a call has one token and the start position is all there is. */
static bool as_positions(const struct raiser *r, const struct meaning *x, struct view *view, int64_t *add)
{
    if (x->kind == POSITIONS) {
        *add = x->add;
        *view = x->view;
        return teg_view_has(view, AXIS_TOKENS) || teg_amount_is(r->tokens, 1);
    }
    if (x->kind == INTEGERS && x->n_ints == 1 && teg_amount_is(r->tokens, 1) && x->ints[0].t == 0 &&
        x->ints[0].p == 1) {
        *add = x->ints[0].n;
        *view = (struct view){.rank = 1};
        return true;
    }
    return false;
}

/* A table [rows, width] whose row dimension is `axis`: indices take that dimension's place. */
static bool gather_view(struct raiser *r, struct meaning *m, const struct view *indices, teg_mil_var_id table,
                        int64_t axis)
{
    const struct teg_mil_type *const type = &r->program->vars[table].type;
    axis = axis < 0 ? axis + type->rank : axis;
    if (axis < 0 || axis >= type->rank)
        return false;
    m->view = (struct view){0};
    uint32_t n_wide = 0;
    for (int32_t d = 0; d < type->rank; d++) {
        if (d == axis) {
            for (uint32_t i = 0; i < indices->rank; i++)
                if (!teg_view_add_dim(&m->view, &indices->factors[teg_view_begin(indices, i)], indices->count[i]))
                    return false;
        } else if (m->view.rank == TEG_MIL_MAX_RANK) {
            return false;
        } else {
            teg_view_columns(&m->view, type->dims[d]);
            n_wide += type->dims[d] != 1;
        }
    }
    return n_wide == 1 && axis < type->rank - 1;
}

/* Rows of an embedding table. */
static void embed(struct raiser *r, struct meaning *m, const struct meaning *ids, teg_mil_var_id table, int64_t axis)
{
    const char *why = NULL;
    const struct teg_mil_type *const type = &r->program->vars[table].type;
    if (!gather_view(r, m, &ids->view, table, axis) || type->rank != 2) {
        teg_raise_no(r, m, "expected an embedding table [V, D], found another shape");
        return;
    }
    if (ids->least_rows && ids->least_rows < type->dims[0]) {
        teg_raise_no(r, m, "expected ids clamped to the rows of the table, found a lower bound");
        return;
    }
    const teg_value_id value = teg_raise_matrix(r, table, false, &why);
    if (value == TEG_NO_VALUE) {
        teg_raise_no(r, m, "%s", why ? why : "out of memory");
        return;
    }
    const struct view view = m->view;
    struct teg_op op = {.kind = TEG_OP_EMBEDDING, .n_inputs = 2, .inputs = {r->graph->tokens, value}};
    op.attr.scale.scale = 1;
    teg_raise_rows(m, teg_raise_emit(r, &op), type->dims[1], &view);
    r->table_ids = r->table_ids && r->table_ids < type->dims[0] ? r->table_ids : type->dims[0];
}

/* Indices [..., 1] of whole rows: a gather along the first dimension. */
static void rule_gather_nd(struct raiser *r, struct meaning *m)
{
    const struct meaning *const x = teg_raise_arg(r, "x"), *const indices = teg_raise_arg(r, "indices");
    int64_t batch = 0;
    uint32_t n;
    struct meaning ids = *indices;
    const bool plain =
        !teg_raise_arg(r, "batch_dims") || (teg_raise_numbers(r, "batch_dims", &batch, 1, &n) && batch == 0);
    if (x->kind == CONSTANT && indices->kind == TOKENS && indices->add == 0 && plain && ids.view.rank > 0 &&
        teg_view_remove(&ids.view, ids.view.rank - 1))
        embed(r, m, &ids, x->var, 0);
    else
        teg_raise_no(r, m, "expected token ids [..., 1] into a constant table, found other operands");
}

static void set_table(struct meaning *m, teg_mil_var_id var, int64_t add)
{
    m->kind = TABLE;
    m->var = var;
    m->add = add;
    m->columns = teg_view_width(&m->view);
    m->scale = 1;
}

/* Rows of a table by positions that are repeated for each of its columns. */
static void rule_gather_along(struct raiser *r, struct meaning *m)
{
    const struct meaning *const x = teg_raise_arg(r, "x"), *const indices = teg_raise_arg(r, "indices");
    int64_t axis = 0, add = 0;
    uint32_t n;
    struct view positions, bare = {0};
    if (teg_raise_arg(r, "axis"))
        (void)teg_raise_numbers(r, "axis", &axis, 1, &n);
    const struct teg_mil_type *const type = &r->program->vars[x->kind == CONSTANT ? x->var : r->tokens_var].type;
    axis = axis < 0 ? axis + type->rank : axis;
    bool good = x->kind == CONSTANT && as_positions(r, indices, &positions, &add) &&
                type->rank == (int32_t)positions.rank && axis >= 0 && axis < type->rank;
    for (uint32_t d = 0; good && d < positions.rank; d++) {
        const struct factor *const f = teg_view_single(&positions, d);
        const bool repeats = f && f->axis == AXIS_COLUMNS && f->stride == 0 && teg_amount_is(f->size, type->dims[d]);
        good = d == (uint32_t)axis ? !f || f->axis == AXIS_TOKENS : repeats || (!f && type->dims[d] == 1);
        if (d == (uint32_t)axis)
            good = good && teg_view_add_dim(&bare, f, f != NULL);
    }
    if (good && gather_view(r, m, &bare, x->var, axis))
        set_table(m, x->var, add);
    else
        teg_raise_no(r, m, "expected positions, repeated for each column, into a constant table, found other operands");
}

static void rule_gather(struct raiser *r, struct meaning *m)
{
    const struct meaning *const x = teg_raise_arg(r, "x"), *const indices = teg_raise_arg(r, "indices");
    int64_t axis = 0, add = 0;
    uint32_t n;
    struct view positions;
    if (teg_raise_arg(r, "axis"))
        (void)teg_raise_numbers(r, "axis", &axis, 1, &n);
    if (gather_ints(r, m, x, indices) || teg_raise_gather_slice(r, m, x, indices, axis))
        return;
    const bool has_rows = x->kind == CONSTANT || (x->kind == FIRST_ROWS && indices->kind != TOKENS);
    if (!has_rows) {
        teg_raise_no(r, m, "expected a constant table, found a computed one");
    } else if (indices->kind == TOKENS && indices->add == 0) {
        embed(r, m, indices, x->var, axis);
    } else if (as_positions(r, indices, &positions, &add)) {
        if (!gather_view(r, m, &positions, x->var, axis)) {
            teg_raise_no(r, m, "expected a table [positions, width], found another shape");
            return;
        }
        set_table(m, x->var, add);
    } else {
        teg_raise_no(r, m, "expected token ids or positions as indices, found others");
    }
}

/* ---- concat ---- */

static bool concat_ints(struct raiser *r, struct meaning *m, const struct teg_mil_arg *values)
{
    struct amount all[64];
    uint32_t n_all = 0;
    for (size_t i = 0; i < values->n_vars; i++) {
        const struct amount *part;
        uint32_t n;
        if (!teg_raise_ints(r, teg_raise_var(r, values->vars[i]), &part, &n) || n_all + n > 64)
            return false;
        memcpy(all + n_all, part, n * sizeof *part);
        n_all += n;
    }
    teg_raise_set_ints(r, m, all, n_all);
    return true;
}

static bool same_rows(const struct meaning *a, const struct meaning *b)
{
    return a->is_linear == b->is_linear &&
           (a->is_linear ? a->a == b->a && a->weight == b->weight && a->bias == b->bias : a->value == b->value) &&
           a->last == b->last;
}

/* [x, -x] */
static bool concat_doubled(struct meaning *m, const struct meaning *a, const struct meaning *b, uint32_t axis)
{
    const struct factor *const f = teg_view_single(&a->view, axis);
    if ((a->kind != ROWS && a->kind != BY_MAX) || b->kind != a->kind || !f || f->axis != AXIS_COLUMNS ||
        f->stride != 1 || !same_rows(a, b) || a->scale != -b->scale)
        return false;
    if (!teg_view_same(&a->view, &b->view))
        return false;
    *m = *a;
    m->kind = DOUBLED;
    m->by_max = a->kind == BY_MAX;
    m->axis = axis;
    return true;
}

/* [f, f] of angles, cosines or sines. */
static bool concat_twice(struct meaning *m, const struct meaning *a, const struct meaning *b, uint32_t axis)
{
    const bool periodic = a->kind == ANGLES || a->kind == COSINES || a->kind == SINES || a->kind == TABLE;
    struct view v;
    if (!periodic || b->kind != a->kind || a->freqs != b->freqs || a->var != b->var || a->scale != b->scale ||
        !teg_view_same(&a->view, &b->view) || !teg_view_join(&a->view, &b->view, axis, &v))
        return false;
    *m = *a;
    m->view = v;
    return true;
}

static bool join(struct raiser *r, struct meaning *m, const struct meaning *a, const struct meaning *b, uint32_t axis)
{
    return concat_doubled(m, a, b, axis) || concat_twice(m, a, b, axis) || teg_raise_join_turned(m, a, b, axis) ||
           teg_raise_join_rotation(r, m, a, b, axis) || teg_raise_join_partial(r, m, a, b, axis);
}

static void rule_stack(struct raiser *r, struct meaning *m)
{
    const struct teg_mil_arg *const values = teg_mil_find_arg(r->op, "values");
    int64_t axis = 0;
    uint32_t n;
    if (concat_ints(r, m, values) || (values->n_vars > 0 && teg_raise_join_present(r, m, values)))
        return;
    if (values->n_vars == 2 && teg_raise_numbers(r, "axis", &axis, 1, &n)) {
        struct meaning *const parts = teg_raise_alloc(r, 2, sizeof *parts);
        if (!parts)
            return;
        parts[0] = *teg_raise_var(r, values->vars[0]);
        parts[1] = *teg_raise_var(r, values->vars[1]);
        axis = axis < 0 ? axis + parts[0].view.rank + 1 : axis;
        if (axis >= 0 && axis <= parts[0].view.rank && teg_view_insert(&parts[0].view, (uint32_t)axis) &&
            teg_view_insert(&parts[1].view, (uint32_t)axis) && join(r, m, &parts[0], &parts[1], (uint32_t)axis))
            return;
    }
    teg_raise_no(r, m, "expected halves of a head, or twice the same angles, found other parts");
}

static bool concat_heads(struct raiser *r, struct meaning *m, const struct teg_mil_arg *values, int64_t axis)
{
    const struct meaning **const parts = teg_raise_alloc(r, values->n_vars, sizeof *parts);
    for (size_t i = 0; parts && i < values->n_vars; i++)
        parts[i] = teg_raise_var(r, values->vars[i]);
    axis = parts && axis < 0 ? axis + parts[0]->view.rank : axis;
    return parts && axis >= 0 && teg_raise_join_attended(r, m, parts, values->n_vars, (uint32_t)axis);
}

static void rule_concat(struct raiser *r, struct meaning *m)
{
    const struct teg_mil_arg *const values = teg_mil_find_arg(r->op, "values");
    int64_t axis = 0;
    uint32_t n;
    if (!values || values->n_vars == 0 || teg_raise_bool(r, "interleave", false) ||
        !teg_raise_numbers(r, "axis", &axis, 1, &n)) {
        teg_raise_no(r, m, "expected values side by side along a constant axis, found others");
        return;
    }
    const struct meaning *const a = teg_raise_var(r, values->vars[0]);
    if (values->n_vars == 1)
        *m = *a;
    else if (concat_ints(r, m, values) || concat_heads(r, m, values, axis) || teg_raise_join_present(r, m, values))
        return;
    else if (values->n_vars == 2) {
        const struct meaning *const b = teg_raise_var(r, values->vars[1]);
        const uint32_t at = (uint32_t)(axis < 0 ? axis + a->view.rank : axis);
        if (at < a->view.rank && (join(r, m, a, b, at) || teg_raise_join_past(r, m, a, b, at)))
            return;
    }
    if (values->n_vars > 1)
        teg_raise_no(r, m, "expected [x, -x], halves of a head, or twice the same angles, found other parts");
}

/* ---- repeats ---- */

static void rule_tile(struct raiser *r, struct meaning *m)
{
    const struct amount *reps;
    uint32_t n;
    if (!start_move(r, m))
        return;
    const struct view from = m->view;
    if (!teg_raise_ints(r, teg_raise_arg(r, "reps"), &reps, &n) || n != from.rank) {
        teg_raise_no(r, m, "expected repeats known from shapes, found others");
        return;
    }
    m->view = (struct view){.offset = from.offset};
    for (uint32_t d = 0; d < n; d++) {
        struct factor parts[MAX_FACTORS] = {{AXIS_COLUMNS, reps[d], 0}};
        memcpy(parts + 1, &from.factors[teg_view_begin(&from, d)], from.count[d] * sizeof *parts);
        if (!teg_amount_fixed(reps[d]) || reps[d].n < 1 || from.count[d] + 1 >= MAX_FACTORS ||
            !teg_view_add_dim(&m->view, parts, from.count[d] + 1)) {
            teg_raise_no(r, m, "expected a fixed number of repeats, found another");
            return;
        }
    }
}

/* ---- integer arithmetic ---- */

static bool quotient(struct amount a, struct amount b, struct amount *q)
{
    if (teg_amount_same(a, b))
        *q = teg_amount(1);
    else if (teg_amount_fixed(b) && b.n > 0 && a.n % b.n == 0 && a.t % b.n == 0 && a.p % b.n == 0)
        *q = (struct amount){a.n / b.n, (int32_t)(a.t / b.n), (int32_t)(a.p / b.n)};
    else
        return false;
    return true;
}

/* T and P are at least 1 and 0, so an amount without negative parts is not negative. */
static bool compare_equal(struct amount a, struct amount b, int64_t *equal)
{
    const struct amount d = {a.n - b.n, a.t - b.t, a.p - b.p};
    *equal = teg_amount_is(d, 0);
    return teg_amount_fixed(d) || (d.n >= 0 && d.t >= 0 && d.p >= 0 && d.n + d.t > 0) ||
           (d.n <= 0 && d.t <= 0 && d.p <= 0 && d.n + d.t < 0);
}

static bool apply(const char *type, struct amount a, struct amount b, struct amount *out)
{
    int64_t equal;
    if (strcmp(type, "add") == 0)
        *out = (struct amount){a.n + b.n, a.t + b.t, a.p + b.p};
    else if (strcmp(type, "sub") == 0)
        *out = (struct amount){a.n - b.n, a.t - b.t, a.p - b.p};
    else if (strcmp(type, "real_div") == 0 || strcmp(type, "floor_div") == 0)
        return quotient(a, b, out);
    else if (strcmp(type, "equal") == 0 && compare_equal(a, b, &equal))
        *out = teg_amount(equal);
    else if (strcmp(type, "greater_equal") == 0 && teg_amount_is(b, 0) && a.n >= 0 && a.t >= 0 && a.p >= 0)
        *out = teg_amount(1);
    else if (strcmp(type, "mul") == 0 && (teg_amount_fixed(a) || teg_amount_fixed(b))) {
        const int64_t k = teg_amount_fixed(a) ? a.n : b.n;
        const struct amount x = teg_amount_fixed(a) ? b : a;
        if (k < INT16_MIN || k > INT16_MAX)
            return false;
        *out = (struct amount){x.n * k, (int32_t)(x.t * k), (int32_t)(x.p * k)};
    } else
        return false;
    return out->n > -INT32_MAX && out->n < INT32_MAX && out->t > -1000 && out->t < 1000 && out->p > -1000 &&
           out->p < 1000;
}

bool teg_raise_int_binary(struct raiser *r, struct meaning *m, const struct meaning *a, const struct meaning *b)
{
    const struct amount *x, *y;
    struct amount out[64];
    uint32_t nx, ny;
    const bool adds = strcmp(r->op->type, "add") == 0, subs = strcmp(r->op->type, "sub") == 0;
    if (teg_raise_ints(r, a, &x, &nx) && teg_raise_ints(r, b, &y, &ny) && (nx == ny || nx == 1 || ny == 1)) {
        const uint32_t n = nx > ny ? nx : ny;
        for (uint32_t i = 0; i < n; i++)
            if (!apply(r->op->type, x[nx == 1 ? 0 : i], y[ny == 1 ? 0 : i], &out[i])) {
                teg_raise_no(r, m, "expected shape arithmetic with a known result, found another");
                return true;
            }
        teg_raise_set_ints(r, m, out, n);
        return true;
    }
    if (teg_raise_ints(r, a, &x, &nx) && nx == 1 && adds) {
        const struct meaning *const other = a;
        a = b;
        b = other;
    }
    const bool counts = a->kind == POSITIONS || a->kind == SLOTS || a->kind == TOKENS;
    if (!counts || (!adds && !subs) || !teg_raise_ints(r, b, &y, &ny) || ny != 1 || !teg_amount_fixed(y[0]))
        return false;
    *m = *a;
    m->add += adds ? y[0].n : -y[0].n;
    return true;
}

static void rule_range(struct raiser *r, struct meaning *m)
{
    const struct amount *start, *end;
    uint32_t n;
    int64_t step;
    const struct amount used = teg_raise_used(r);
    if (!teg_raise_ints(r, teg_raise_arg(r, "start"), &start, &n) ||
        !teg_raise_ints(r, teg_raise_arg(r, "end"), &end, &n) || !teg_raise_numbers(r, "step", &step, 1, &n) ||
        step != 1) {
        teg_raise_no(r, m, "expected bounds known from T and P, and steps of 1, found others");
        return;
    }
    if (start->n == 0 && start->t == 0 && start->p == (r->is_whole ? 0 : 1) && teg_amount_same(*end, used)) {
        m->kind = POSITIONS;
        (void)teg_view_add_dim(&m->view, &(struct factor){AXIS_TOKENS, r->tokens, 0}, 1);
    } else if (teg_amount_is(*start, 0) && (teg_amount_same(*end, used) || teg_amount_is(*end, r->context))) {
        m->kind = SLOTS;
        (void)teg_view_add_dim(&m->view, &(struct factor){AXIS_SLOTS, *end, 0}, 1);
    } else {
        teg_raise_no(r, m, "expected positions P … P + T - 1 or slots from 0 on, found another range");
    }
}

const struct teg_raise_row teg_raise_layout_rows[] = {
    {"cast", rule_cast},
    {"identity", rule_cast},
    {"reshape", rule_reshape},
    {"transpose", rule_transpose},
    {"expand_dims", rule_expand_dims},
    {"squeeze", rule_squeeze},
    {"shape", rule_shape},
    {"gather", rule_gather},
    {"gather_nd", rule_gather_nd},
    {"concat", rule_concat},
    {"stack", rule_stack},
    {"gather_along_axis", rule_gather_along},
    {"tile", rule_tile},
    {"range_1d", rule_range},
    {NULL, NULL},
};
