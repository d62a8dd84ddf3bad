/* pass/raise_tile.c: attention whose softmax is computed over tiles of the keys.
 *
 * Whatever the form (one maximum for all tiles, a running one, a softmax of each tile), what is computed is
 *
 *     sum of exp(score - limit) · value  over  sum of exp(score - limit)
 *
 * for one limit of each row, and that does not depend on the limit. So limits are told apart only by being the same
 * variable; sums and weighed values carry their limit and their slots, may be moved to another limit by the factor
 * between the two, and are added where their slots adjoin. When a quotient covers all slots that the function reads, it
 * is attention. Nothing is taken from the order in which tiles come.
 *
 * Not taken: a pattern for each form. There are three in use, and exporters mix them. */
#include "pass/raise_int.h"

static bool is_tile_kind(const struct meaning *m)
{
    return m->kind >= LIMIT && m->kind <= AVERAGE;
}

/* Of one query, keys, mask and factors; of any slots. */
static bool same_scores(const struct meaning *x, const struct meaning *y)
{
    return x->a && y->a && teg_raise_same_query(x->a, y->a) && teg_view_same(&x->a->view, &y->a->view) &&
           x->b->kind == CACHE && y->b->kind == CACHE && x->b->write == y->b->write &&
           x->b->view.offset == y->b->view.offset && teg_view_width(&x->b->view) == teg_view_width(&y->b->view) &&
           x->scale == y->scale && x->cap == y->cap && x->causal == y->causal && x->window == y->window &&
           x->by_channel == y->by_channel;
}

static bool same_values(const struct meaning *x, const struct meaning *y)
{
    return x->v && y->v && x->v->write == y->v->write && x->v->view.offset == y->v->view.offset &&
           teg_view_width(&x->v->view) == teg_view_width(&y->v->view);
}

static bool is_all(struct raiser *r, const struct meaning *m, int64_t first, int64_t end)
{
    return end == 0 || (first == 0 && m->b->kind == CACHE && end == teg_raise_seen(r, m->b->write->state));
}

/* The slots of both, one after the other. */
static bool adjoin(const struct meaning *x, const struct meaning *y, struct meaning *m)
{
    const struct meaning *const low = x->first_slot <= y->first_slot ? x : y, *const high = low == x ? y : x;
    if (!x->end_slot || !y->end_slot || low->end_slot != high->first_slot)
        return false;
    m->first_slot = low->first_slot;
    m->end_slot = high->end_slot;
    return true;
}

/* ---- rows of scores ---- */

bool teg_raise_tile_reduce(struct raiser *r, struct meaning *m, const struct meaning *x)
{
    const char *const type = r->op->type;
    int64_t axis = 0;
    uint32_t n = 0;
    const bool is_sum = strcmp(type, "reduce_sum") == 0;
    if (x->kind != (is_sum ? RAISED : SCORES))
        return false;
    const bool kept = teg_raise_numbers(r, "axes", &axis, 1, &n) && teg_raise_bool(r, "keep_dims", false);
    axis = axis < 0 ? axis + x->view.rank : axis;
    const struct factor *const f = kept && axis >= 0 ? teg_view_single(&x->view, (uint32_t)axis) : NULL;
    if (!f || f->axis != AXIS_SLOTS) {
        teg_raise_no(r, m, "expected scores reduced over their keys, as a dimension that is kept, found another");
        return true;
    }
    *m = *x;
    m->kind = is_sum ? TOTAL : strcmp(type, "reduce_max") == 0 ? LIMIT : LOG_SUM;
    m->view = (struct view){0};
    for (uint32_t d = 0; d < x->view.rank; d++)
        (void)teg_view_add_dim(&m->view, &x->view.factors[teg_view_begin(&x->view, d)],
                               (int64_t)d == axis ? 0 : x->view.count[d]);
    return true;
}

static void rule_log_sum(struct raiser *r, struct meaning *m)
{
    if (!teg_raise_tile_reduce(r, m, teg_raise_arg(r, "x")))
        teg_raise_no(r, m, "expected scores, found another value");
}

static bool is_limit(const struct meaning *m)
{
    return m->kind == LIMIT || m->kind == LOG_SUM;
}

static void below(struct raiser *r, struct meaning *m, const struct meaning *a, const struct meaning *b)
{
    const bool fits = is_limit(b) && (a->kind == SCORES || is_limit(a)) && teg_view_covers(&a->view, &b->view);
    if (!fits || !teg_raise_same_query(a->a, b->a)) {
        teg_raise_no(r, m, "expected scores, or a limit of them, minus a limit of the same rows, found others");
        return;
    }
    *m = *a;
    m->kind = BELOW;
    m->of = a->kind;
    m->limit = b;
    m->from = a;
}

static void rule_exp(struct raiser *r, struct meaning *m)
{
    const struct meaning *const x = teg_raise_arg(r, "x");
    if (x->kind != BELOW) {
        teg_raise_no(r, m, "expected scores minus a limit, found another value");
        return;
    }
    *m = *x;
    m->kind = x->of == SCORES ? RAISED : x->of == LOG_SUM ? TOTAL : FACTOR;
}

/* ---- sums and quotients ---- */

/* All slots are there: it is attention. Else an average over some. */
static void finish(struct raiser *r, struct meaning *m, const struct meaning *x)
{
    static const int64_t to_channels[4] = {0, 3, 1, 2};
    if (!is_all(r, x, x->first_slot, x->end_slot) || !is_all(r, x, x->over_first, x->over_end)) {
        *m = *x;
        m->kind = AVERAGE;
        return;
    }
    struct meaning *const scores = teg_raise_alloc(r, 1, sizeof *scores);
    if (!scores)
        return;
    *scores = *x;
    scores->kind = SCORES;
    *m = (struct meaning){.weight = TEG_MIL_NO_VAR, .bias = TEG_MIL_NO_VAR};
    teg_raise_attend(r, m, scores, x->v);
    if (x->by_channel && m->kind != NOTHING && !teg_view_transpose(&m->view, to_channels))
        teg_raise_no(r, m, "expected heads [1, K, 1, T], found another layout");
}

void teg_raise_weigh(struct raiser *r, struct meaning *m, const struct meaning *w, const struct meaning *v)
{
    static const int64_t to_channels[4] = {0, 3, 1, 2};
    struct meaning *const part = teg_raise_alloc(r, 2, sizeof *part);
    if (!part)
        return;
    part[0] = *w;
    part[1] = *v;
    part[0].v = &part[1];
    part[0].view = w->a->view;
    if (w->first_slot != v->first_slot || w->end_slot != v->end_slot ||
        (w->by_channel && !teg_view_transpose(&part[0].view, to_channels))) {
        teg_raise_no(r, m, "expected weights and values of the same slots, found others");
        return;
    }
    if (w->kind == WEIGHTS) {
        finish(r, m, &part[0]);
        return;
    }
    *m = part[0];
    m->kind = PARTS;
}

static void divide(struct raiser *r, struct meaning *m, const struct meaning *a, const struct meaning *b)
{
    const bool alike = same_scores(a, b) && a->limit == b->limit && teg_view_covers(&a->view, &b->view);
    if (a->kind == RAISED && b->kind == TOTAL && alike) {
        *m = *a;
        m->kind = WEIGHTS;
        m->over_first = b->first_slot;
        m->over_end = b->end_slot;
    } else if (a->kind == PARTS && b->kind == TOTAL && alike && a->first_slot == b->first_slot &&
               a->end_slot == b->end_slot) {
        struct meaning *const average = teg_raise_alloc(r, 1, sizeof *average);
        if (!average)
            return;
        *average = *a;
        average->over_first = a->first_slot;
        average->over_end = a->end_slot;
        finish(r, m, average);
    } else
        teg_raise_no(r, m, "expected raised scores, or values weighed by them, over their own sum, found others");
}

static bool same_part(const struct meaning *a, const struct meaning *b)
{
    if (a->kind != b->kind || !same_scores(a, b))
        return false;
    if (a->kind == TOTAL)
        return a->limit == b->limit;
    if (a->kind == PARTS)
        return a->limit == b->limit && same_values(a, b);
    return a->kind == AVERAGE && a->over_first == b->over_first && a->over_end == b->over_end && same_values(a, b);
}

static void add(struct raiser *r, struct meaning *m, const struct meaning *a, const struct meaning *b)
{
    struct meaning *const both = teg_raise_alloc(r, 1, sizeof *both);
    if (!both)
        return;
    *both = *a;
    if (!same_part(a, b) || !adjoin(a, b, both))
        teg_raise_no(r, m, "expected sums over tiles that adjoin, of one limit, found others");
    else if (a->kind == AVERAGE)
        finish(r, m, both);
    else
        *m = *both;
}

static bool multiply(struct meaning *m, const struct meaning *a, const struct meaning *b)
{
    if (b->kind == FACTOR && (a->kind == TOTAL || a->kind == PARTS) && a->limit == b->from && a->a &&
        teg_raise_same_query(a->a, b->a) && teg_view_covers(&a->view, &b->view)) {
        *m = *a;
        m->limit = b->limit;
        return true;
    }
    const bool own = a->kind == AVERAGE && a->over_first == a->first_slot && a->over_end == a->end_slot;
    if (!own || b->kind != TOTAL || !same_scores(a, b) || a->first_slot != b->first_slot ||
        a->end_slot != b->end_slot || !teg_view_covers(&a->view, &b->view))
        return false;
    *m = *a;
    m->kind = PARTS;
    m->limit = b->limit;
    return true;
}

bool teg_raise_tile_binary(struct raiser *r, struct meaning *m, const struct meaning *a, const struct meaning *b)
{
    const char *const type = r->op->type;
    if (!is_tile_kind(a) && !is_tile_kind(b))
        return false;
    const bool rows = a->a && b->a; /* both are of scores */
    if (strcmp(type, "sub") == 0 && rows)
        below(r, m, a, b);
    else if (strcmp(type, "real_div") == 0 && rows)
        divide(r, m, a, b);
    else if (strcmp(type, "add") == 0 && rows)
        add(r, m, a, b);
    else if (strcmp(type, "maximum") == 0 && is_limit(a) && is_limit(b) && teg_view_same(&a->view, &b->view)) {
        *m = *a;
        m->kind = LIMIT;
    } else if (strcmp(type, "mul") != 0 || !rows || (!multiply(m, a, b) && !multiply(m, b, a)))
        teg_raise_no(r, m, "expected parts of a softmax over tiles, found other operands");
    return true;
}

/* ---- einsum: keys along the channels ---- */

static void rule_einsum(struct raiser *r, struct meaning *m)
{
    static const int64_t query[4] = {0, 2, 3, 1}, keys[4] = {0, 2, 1, 3}, scores[4] = {0, 3, 1, 2};
    const struct teg_mil_arg *const values = teg_mil_find_arg(r->op, "values");
    const bool known = values->n_vars == 2 && teg_raise_string_is(r, "equation", "nchw,nwhu->nchu");
    const struct meaning *const x = known ? teg_raise_var(r, values->vars[0]) : NULL;
    const struct meaning *const y = known ? teg_raise_var(r, values->vars[1]) : NULL;
    struct meaning *const turned = teg_raise_alloc(r, 2, sizeof *turned);
    if (!turned)
        return;
    if (!known || x->kind != CACHE || x->view.rank != 4 || y->view.rank != 4) {
        teg_raise_no(r, m, "expected a cache times a query or weights, [1, C, 1, T], found other operands");
        return;
    }
    turned[0] = *x;
    turned[1] = *y;
    if (y->kind == ROWS && teg_view_transpose(&turned[0].view, keys) && teg_view_transpose(&turned[1].view, query)) {
        teg_raise_start_scores(r, m, &turned[1], &turned[0], true); /* [1, 1, T, slots] */
        if (m->kind == SCORES) {
            m->by_channel = true;
            (void)teg_view_transpose(&m->view, scores);
        }
    } else if ((y->kind == WEIGHTS || y->kind == RAISED) && y->by_channel &&
               teg_view_transpose(&turned[0].view, query)) {
        teg_raise_weigh(r, m, y, &turned[0]);
    } else if (m->kind == NOTHING && !m->why) {
        teg_raise_no(r, m, "expected a cache times a query or weights, [1, C, 1, T], found other operands");
    }
}

const struct teg_raise_row teg_raise_tile_rows[] = {
    {"exp", rule_exp}, {"reduce_log_sum_exp", rule_log_sum}, {"einsum", rule_einsum}, {NULL, NULL}};
