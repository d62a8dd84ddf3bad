/* pass/raise_mask.c: which keys a query sees: masks that a program computes from positions and slots.
 *
 * All of them say slot <= position, some also slot > position - window. They are kept as these two facts, whatever form
 * they have on the way: bool, 1 where seen, 1 where hidden, or a large negative number to add. A mask that comes as an
 * input is taken to be causal: that is the contract under which a caller fills it. */
#include "pass/raise_int.h"

enum { FAR_BELOW = -10000 }; /* what hides a key when it is added to a score */
enum { LARGEST_HALF = 65504 };

/* Slots from a constant 0, 1, 2, … or from what is slots already. */
static bool as_slots(struct raiser *r, const struct meaning *x, struct meaning *slots)
{
    if (x->kind == SLOTS) {
        *slots = *x;
        return true;
    }
    if (x->kind != CONSTANT || !r->program->vars[x->var].constant)
        return false;
    const struct teg_mil_type *const type = &r->program->vars[x->var].type;
    size_t n;
    const char *why = NULL;
    const float *const values = teg_raise_floats(r, x->var, &n, &why);
    if (!values || n < 2 || !(values[0] >= 0 && values[0] < 16777216))
        return false;
    for (size_t i = 0; i < n; i++)
        if (values[i] != values[0] + (float)i)
            return false;
    *slots = (struct meaning){.kind = SLOTS, .first_slot = (int64_t)values[0]};
    for (int32_t d = 0; d < type->rank; d++)
        if (!teg_view_add_dim(&slots->view, &(struct factor){AXIS_SLOTS, teg_amount(type->dims[d]), 0}, 1))
            return false;
    return teg_view_total(&slots->view) == 1;
}

/* Dimension of the only factor, from the end; 0: there are others. */
static uint32_t from_end(const struct view *v)
{
    for (uint32_t d = 0; d < v->rank; d++)
        if (v->count[d])
            return teg_view_total(v) == 1 ? v->rank - d : 0;
    return 0;
}

/* A call that has the whole sequence counts tokens and slots alike: those in the later dimension are slots. */
static bool count_slots(const struct raiser *r, const struct meaning *x, const struct meaning *other,
                        struct meaning *slots)
{
    const bool both = r->is_whole && x->kind == POSITIONS && other->kind == POSITIONS;
    const uint32_t at = both ? from_end(&x->view) : 0;
    if (!at || from_end(&other->view) <= at)
        return false;
    *slots = *x;
    slots->kind = SLOTS;
    slots->view.factors[0].axis = AXIS_SLOTS;
    return true;
}

/* m = slots RELATION positions; `add` is on the right side. */
static void relate(struct raiser *r, struct meaning *m, const struct meaning *slots, const char *relation,
                   const struct meaning *positions)
{
    const int64_t add = positions->add - slots->add;
    struct view v;
    if (strcmp(relation, "equal") == 0 && add == 0 && slots->first_slot == 0 &&
        teg_view_broadcast(&slots->view, &positions->view, &v)) {
        m->kind = teg_amount_is(teg_view_has(&v, AXIS_TOKENS) ? teg_amount(2) : r->tokens, 1) ? WRITTEN : ONE_HOT;
        m->view = v;
        return;
    }
    const bool below = strcmp(relation, "less_equal") == 0 || strcmp(relation, "less") == 0;
    /* slot <= position + bound, or slot > position + bound */
    const int64_t bound = strcmp(relation, "less") == 0 || strcmp(relation, "greater_equal") == 0 ? add - 1 : add;
    if (!teg_view_broadcast(&slots->view, &positions->view, &v) || (below ? bound != 0 : bound < -INT32_MAX) ||
        (!below && bound > 0)) {
        teg_raise_no(r, m, "expected slot <= position or slot > position - window, found another comparison");
        return;
    }
    m->kind = !below && bound == 0 ? HIDDEN : VISIBLE;
    m->view = v;
    m->first_slot = slots->first_slot;
    m->causal = below || bound == 0;
    m->window = below ? 0 : (uint32_t)-bound;
}

static const char *mirrored(const char *relation)
{
    static const char *const pairs[][2] = {
        {"less", "greater"}, {"less_equal", "greater_equal"}, {"greater", "less"}, {"greater_equal", "less_equal"}};
    for (size_t i = 0; i < 4; i++)
        if (strcmp(relation, pairs[i][0]) == 0)
            return pairs[i][1];
    return relation;
}

/* Where a call has one token, P plus a number is its position too. */
static bool as_position(const struct raiser *r, const struct meaning *x, struct meaning *position)
{
    *position = *x;
    if (x->kind == POSITIONS)
        return teg_view_has(&x->view, AXIS_TOKENS) || teg_amount_is(r->tokens, 1);
    if (x->kind != INTEGERS || x->n_ints != 1 || x->ints[0].p != 1 || x->ints[0].t != 0 || !teg_amount_is(r->tokens, 1))
        return false;
    *position = (struct meaning){.kind = POSITIONS, .add = x->ints[0].n};
    return true;
}

static void toggle(struct meaning *m, const struct meaning *x)
{
    *m = *x;
    m->kind = x->kind == VISIBLE ? HIDDEN : VISIBLE;
}

/* Ones and zeros compared with one of the two. */
static void compare_ones(struct raiser *r, struct meaning *m, const struct meaning *x, float number)
{
    static const struct {
        const char *type;
        float number;
        bool same;
    } rows[] = {{"equal", 0, false},  {"equal", 1, true}, {"not_equal", 0, true},    {"not_equal", 1, false},
                {"greater", 0, true}, {"less", 1, false}, {"greater_equal", 1, true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(r->op->type, rows[i].type) == 0 && rows[i].number == number) {
            if (rows[i].same)
                *m = *x;
            else
                toggle(m, x);
            return;
        }
    teg_raise_no(r, m, "expected a mask compared with 0 or 1, found another number");
}

static void rule_not(struct raiser *r, struct meaning *m)
{
    const struct meaning *const x = teg_raise_arg(r, "x");
    if (x->kind == VISIBLE || x->kind == HIDDEN)
        toggle(m, x);
    else
        teg_raise_no(r, m, "expected a mask, found another value");
}

static void rule_compare(struct raiser *r, struct meaning *m)
{
    const struct meaning *const a = teg_raise_arg(r, "x"), *const b = teg_raise_arg(r, "y");
    struct meaning slots;
    float zero;
    struct meaning position;
    const bool guards = a->kind == TOKENS || a->kind == POSITIONS;
    const bool ints = strcmp(r->op->type, "equal") == 0 || teg_raise_scalar(r, b, &zero);
    if (ints && teg_raise_int_binary(r, m, a, b))
        return;
    if ((a->kind == VISIBLE || a->kind == HIDDEN) && teg_raise_scalar(r, b, &zero)) {
        compare_ones(r, m, a, zero);
        return;
    }
    if (guards && strcmp(r->op->type, "greater_equal") == 0 && teg_raise_scalar(r, b, &zero) && zero == 0) {
        *m = *a;
        m->kind = NOT_NEGATIVE;
        m->a = a;
    } else if (guards && strcmp(r->op->type, "less") == 0 && teg_raise_scalar(r, b, &zero) && zero == 0) {
        *m = *a;
        m->kind = NEGATIVE;
        m->a = a;
    } else if (as_position(r, b, &position) && (as_slots(r, a, &slots) || count_slots(r, a, b, &slots))) {
        relate(r, m, &slots, r->op->type, &position);
    } else if (as_position(r, a, &position) && (as_slots(r, b, &slots) || count_slots(r, b, a, &slots))) {
        relate(r, m, &slots, mirrored(r->op->type), &position);
    } else {
        teg_raise_no(r, m, "expected slots compared with positions, found other values");
    }
}

/* Both conditions hold. */
static void both(struct raiser *r, struct meaning *m, const struct meaning *a, const struct meaning *b, enum kind kind)
{
    struct view v;
    if (a->first_slot != b->first_slot || !teg_view_broadcast(&a->view, &b->view, &v)) {
        teg_raise_no(r, m, "expected masks of one shape, found others");
        return;
    }
    *m = *a;
    m->kind = kind;
    m->view = v;
    m->causal = a->causal || b->causal;
    m->window = !a->window || (b->window && b->window < a->window) ? b->window : a->window;
}

static void rule_and(struct raiser *r, struct meaning *m)
{
    const struct meaning *const a = teg_raise_arg(r, "x"), *const b = teg_raise_arg(r, "y");
    if (a->kind == VISIBLE && b->kind == VISIBLE)
        both(r, m, a, b, VISIBLE);
    else
        teg_raise_no(r, m, "expected two masks, found other values");
}

/* One value everywhere. */
static bool filled_with(struct raiser *r, const struct meaning *x, float *value)
{
    size_t n;
    const char *why = NULL;
    if (teg_raise_scalar(r, x, value))
        return true;
    if (x->kind == FILLED) {
        *value = x->scale;
        return true;
    }
    const float *const all =
        x->kind == CONSTANT && r->program->vars[x->var].constant ? teg_raise_floats(r, x->var, &n, &why) : NULL;
    if (!all)
        return false;
    *value = all[0];
    for (size_t i = 1; i < n; i++)
        if (all[i] != all[0])
            return false;
    return true;
}

static void rule_select(struct raiser *r, struct meaning *m)
{
    const struct meaning *cond = teg_raise_arg(r, "cond"), *const a = teg_raise_arg(r, "a"),
                         *const b = teg_raise_arg(r, "b");
    struct meaning folded;
    const struct amount *c, *x, *y;
    uint32_t n, nx, ny;
    float seen, hidden;
    if (cond->kind == CONSTANT && teg_raise_constant_mask(r, cond, &folded))
        cond = &folded;
    if (cond->kind == INTEGERS && teg_raise_ints(r, a, &x, &nx) && teg_raise_ints(r, b, &y, &ny)) {
        n = cond->n_ints;
        c = cond->ints;
        struct amount *const out = teg_raise_alloc(r, n + 1, sizeof *out);
        if (!out || (nx != n && nx != 1) || (ny != n && ny != 1)) {
            teg_raise_no(r, m, "expected as many conditions as values, found another number");
            return;
        }
        for (uint32_t i = 0; i < n; i++)
            out[i] = c[i].n ? x[nx == 1 ? 0 : i] : y[ny == 1 ? 0 : i];
        m->kind = INTEGERS;
        m->ints = out;
        m->n_ints = n;
    } else if (cond->kind == NOT_NEGATIVE && a->kind == cond->a->kind && a->add == cond->a->add) {
        *m = *a; /* ids and positions are never negative */
    } else if (cond->kind == NEGATIVE && b->kind == cond->a->kind && b->add == cond->a->add) {
        *m = *b;
    } else if (cond->kind == VISIBLE && !cond->causal && a->kind == POSITIONS) {
        *m = *a; /* where there is no token, any will do */
    } else if (cond->kind == HIDDEN && !cond->causal && b->kind == POSITIONS) {
        *m = *b;
    } else if (cond->kind == VISIBLE && filled_with(r, b, &hidden) && hidden <= FAR_BELOW) {
        if (a->kind == MASK) {
            both(r, m, a, cond, MASK);
        } else if (a->kind == SCORES) {
            teg_raise_select_scores(r, m, a, cond);
        } else if (filled_with(r, a, &seen) && seen == 0) {
            *m = *cond;
            m->kind = MASK;
        } else {
            teg_raise_no(r, m, "expected 0 or another mask where a key is seen, found another value");
        }
    } else if (cond->kind == HIDDEN && filled_with(r, a, &hidden) && hidden <= FAR_BELOW) {
        if (b->kind == MASK) {
            both(r, m, b, cond, MASK);
        } else if (b->kind == SCORES) {
            teg_raise_select_scores(r, m, b, cond);
        } else if (filled_with(r, b, &seen) && seen == 0) {
            *m = *cond;
            m->kind = MASK;
        } else {
            teg_raise_no(r, m, "expected 0 or another mask where a key is seen, found another value");
        }
    } else {
        teg_raise_no(r, m, "expected a mask or a guard against negative indices, found another condition");
    }
}

/* How many of a caller's ones there are up to each: positions from 1 on, where a call has the whole sequence. */
static void rule_cumsum(struct raiser *r, struct meaning *m)
{
    const struct meaning *const x = teg_raise_arg(r, "x");
    int64_t axis = 0;
    uint32_t n;
    if (teg_raise_arg(r, "axis"))
        (void)teg_raise_numbers(r, "axis", &axis, 1, &n);
    axis = axis < 0 ? axis + x->view.rank : axis;
    const struct factor *const f = axis >= 0 ? teg_view_single(&x->view, (uint32_t)axis) : NULL;
    if (x->kind != VISIBLE || x->causal || x->window || !r->is_whole || !f || f->axis != AXIS_SLOTS ||
        teg_view_total(&x->view) != 1 || teg_raise_bool(r, "exclusive", false) || teg_raise_bool(r, "reverse", false)) {
        teg_raise_no(r, m, "expected the sums of a mask [1, T] of ones, found another value");
        return;
    }
    *m = (struct meaning){.kind = POSITIONS, .add = 1, .view = x->view};
    m->view.factors[0].axis = AXIS_TOKENS;
}

/* Clamps: of ids and positions, which are in their ranges anyway; of the largest of a row. */
static void rule_clamp(struct raiser *r, struct meaning *m)
{
    const struct meaning *a = teg_raise_arg(r, "x"), *b = teg_raise_arg(r, "y");
    const bool is_max = strcmp(r->op->type, "maximum") == 0;
    float bound;
    if (is_max && teg_raise_tile_binary(r, m, a, b))
        return;
    if (a->kind == CONSTANT) {
        const struct meaning *const other = a;
        a = b;
        b = other;
    }
    const bool guards = a->kind == TOKENS || (a->kind == POSITIONS && is_max);
    if (a->kind == ROOTS && is_max && teg_raise_scalar(r, b, &bound) && bound >= 0 && bound <= 1e-3f) {
        *m = *a; /* a row of zeros stays one */
        m->eps += bound / a->gain * (bound / a->gain);
        return;
    }
    if (!teg_raise_scalar(r, b, &bound) || (!guards && !(a->kind == MAXIMA && is_max && bound >= 0)) ||
        (guards && is_max && (bound > 0 || a->add)) || (guards && !is_max && !(bound >= 0 && bound < 16777216))) {
        teg_raise_no(r, m, "expected ids or positions, not below 0, or the largest of |x|, found another clamp");
        return;
    }
    *m = *a;
    if (a->kind == MAXIMA)
        m->least = bound > a->least ? bound : a->least;
    else if (!is_max && (!m->least_rows || (int64_t)bound + 1 < m->least_rows))
        m->least_rows = (int64_t)bound + 1;
}

bool teg_raise_mask_binary(struct raiser *r, struct meaning *m, const struct meaning *a, const struct meaning *b)
{
    const char *const type = r->op->type;
    float x;
    if (strcmp(type, "sub") == 0 && (b->kind == VISIBLE || b->kind == NOT_NEGATIVE) && teg_raise_scalar(r, a, &x) &&
        x == 1) {
        *m = *b;
        m->kind = b->kind == VISIBLE ? HIDDEN : NEGATIVE;
        return true;
    }
    if (strcmp(type, "sub") == 0 && a->kind == FILLED && b->kind == BANDED && a->scale == b->scale &&
        a->scale <= FAR_BELOW && teg_view_same(&a->view, &b->view)) {
        *m = *b;
        m->kind = MASK;
        return true;
    }
    if (strcmp(type, "sub") == 0 && a->kind == FILLED && a->scale == 1 && b->kind == VISIBLE &&
        teg_view_same(&a->view, &b->view)) {
        *m = *b;
        m->kind = HIDDEN;
        return true;
    }
    if (strcmp(type, "mul") == 0 && (a->kind == HIDDEN || b->kind == HIDDEN)) {
        const struct meaning *const mask = a->kind == HIDDEN ? a : b, *const factor = mask == a ? b : a;
        if (factor->kind == MASK) {
            if (mask->window || factor->window || !mask->causal || !factor->causal)
                teg_raise_no(r, m, "expected two causal masks of all slots before, found others");
            else
                both(r, m, mask, factor, MASK);
        } else if (filled_with(r, factor, &x) && x <= FAR_BELOW) {
            *m = *mask;
            m->kind = MASK;
        } else {
            teg_raise_no(r, m, "expected what is hidden times a large negative number, found another factor");
        }
        return true;
    }
    if ((strcmp(type, "add") == 0 && a->kind == MASK && b->kind == MASK) ||
        (strcmp(type, "mul") == 0 && a->kind == VISIBLE && b->kind == VISIBLE)) {
        both(r, m, a, b, a->kind);
        return true;
    }
    return false;
}

/* Bounds that nothing passes: of positions from below, of masks 0 and far below. */
static void rule_clip(struct raiser *r, struct meaning *m)
{
    const struct meaning *const x = teg_raise_arg(r, "x"), *const low = teg_raise_arg(r, "alpha"),
                                *const high = teg_raise_arg(r, "beta");
    float alpha, beta;
    const bool known = low && high && teg_raise_scalar(r, low, &alpha) && teg_raise_scalar(r, high, &beta);
    const bool counts = x->kind == POSITIONS && x->add >= 0;
    if (known &&
        ((counts && alpha <= 0 && beta >= LARGEST_HALF) || (x->kind == MASK && alpha <= FAR_BELOW && beta >= 0)))
        *m = *x;
    else
        teg_raise_no(r, m, "expected positions from 0 on or a mask within its bounds, found another clamp");
}

const struct teg_raise_row teg_raise_mask_rows[] = {
    {"less", rule_compare},    {"less_equal", rule_compare},
    {"greater", rule_compare}, {"greater_equal", rule_compare},
    {"equal", rule_compare},   {"not_equal", rule_compare},
    {"logical_not", rule_not}, {"logical_and", rule_and},
    {"cumsum", rule_cumsum},   {"clip", rule_clip},
    {"select", rule_select},   {"maximum", rule_clamp},
    {"minimum", rule_clamp},   {NULL, NULL},
};
