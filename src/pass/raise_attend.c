/* pass/raise_attend.c: attention: scores of queries and a cache, masks, softmax, values; or one op that is all of it.
 *
 * Keys and values meet here, and both are appended to a state of the graph just before they are read. How many query
 * heads read one key head is not taken from names or shapes: each query head's own columns must be multiplied with
 * those of key head h / (H / G), by whatever reshapes, repeats and broadcasts that comes about. */
#include <math.h>

#include "pass/raise_int.h"

#define LEAST_AFTER_MASK (1.0f / 64) /* what -10000 times this leaves of a weight is 0 */

/* Keys or values: a cache, or (without states) the rows of this call, which are then the whole sequence. */
static bool is_context(const struct raiser *r, const struct meaning *m)
{
    return m->kind == CACHE || (m->kind == ROWS && r->is_whole && m->scale == 1 && !m->last);
}

static bool is_slots(const struct raiser *r, const struct factor *f)
{
    return f && (f->axis == AXIS_SLOTS || (r->is_whole && f->axis == AXIS_TOKENS));
}

static const struct meaning *context_rows(const struct meaning *m)
{
    return m->kind == CACHE ? m->write->rows : m;
}

struct heads { /* of a layer */
    int64_t n, n_kv, width;
};

/* Columns of index i (row-major over the dimensions before `dims`) of a view that is broadcast to the sizes of `like`.
 */
static bool batch_column(const struct view *v, const struct view *like, uint32_t dims, int64_t i, int64_t *column)
{
    *column = v->offset;
    for (uint32_t d = dims; d-- > 0;) {
        struct amount size, own;
        if (!teg_view_size(like, d, &size) || !teg_amount_fixed(size))
            return false;
        int64_t at = i % size.n;
        i /= size.n;
        const int64_t shift = (int64_t)v->rank - (int64_t)like->rank;
        if ((int64_t)d + shift < 0)
            continue;
        const uint32_t dim = (uint32_t)((int64_t)d + shift), begin = teg_view_begin(v, dim);
        if (!teg_view_size(v, dim, &own) || (!teg_amount_same(own, size) && v->count[dim]))
            return false;
        for (uint32_t k = v->count[dim]; k-- > 0;) {
            const struct factor *const f = &v->factors[begin + k];
            if (f->axis != AXIS_COLUMNS)
                return false;
            *column += at % f->size.n * f->stride;
            at /= f->size.n;
        }
    }
    return true;
}

/* Head h of the query reads head h / (H / G) of keys and values, whatever the dimensions are called. The query's heads
 * begin at column q_base, those of keys and values at kv_base; `total` of them are seen. */
static bool heads_fit(const struct view *q, const struct view *kv, const struct heads *h, int64_t q_base,
                      int64_t kv_base)
{
    const int64_t n_heads = h->n, n_kv_heads = h->n_kv, width = h->width;
    if (q->rank < 2 || kv->rank < 2 || kv->rank > q->rank || n_heads % n_kv_heads)
        return false;
    int64_t total = 1;
    for (uint32_t d = 0; d + 2 < q->rank; d++) {
        struct amount size;
        if (!teg_view_size(q, d, &size) || !teg_amount_fixed(size))
            return false;
        total *= size.n;
    }
    if (total * width != teg_view_width(q))
        return false;
    for (int64_t i = 0; i < total; i++) {
        int64_t a, b;
        if (!batch_column(q, q, q->rank - 2, i, &a) || !batch_column(kv, q, q->rank - 2, i, &b))
            return false;
        a -= q_base;
        if (a < 0 || a % width || b - kv_base != a / width / (n_heads / n_kv_heads) * width)
            return false;
    }
    return true;
}

/* What is appended: the rows of a cache, or those of this call, each head once. */
static const struct meaning *appended(struct raiser *r, const struct meaning *m)
{
    if (m->kind == CACHE)
        return m->write->rows;
    struct meaning *const once = teg_raise_alloc(r, 1, sizeof *once);
    if (!once)
        return m;
    *once = *m;
    once->view = (struct view){.offset = m->view.offset};
    for (uint32_t d = 0; d < m->view.rank; d++) {
        const struct factor *const f = &m->view.factors[teg_view_begin(&m->view, d)];
        struct factor kept[MAX_FACTORS];
        uint32_t n = 0;
        for (uint32_t i = 0; i < m->view.count[d]; i++)
            if (f[i].axis != AXIS_COLUMNS || f[i].stride != 0)
                kept[n++] = f[i];
        (void)teg_view_add_dim(&once->view, kept, n);
    }
    return once;
}

/* The KV state that these keys and values are appended to. */
static teg_value_id layer_state(struct raiser *r, const struct meaning *k, const struct meaning *v, uint32_t n_kv_heads,
                                uint32_t width, const char **why)
{
    const teg_value_id keys = teg_raise_value(r, appended(r, k), why);
    const teg_value_id values = keys == TEG_NO_VALUE ? keys : teg_raise_value(r, appended(r, v), why);
    teg_value_id state = TEG_NO_VALUE;
    if (values == TEG_NO_VALUE)
        return values;
    for (uint32_t i = 0; i < r->n_layers; i++)
        if (r->layers[i].keys == keys && r->layers[i].values == values)
            return r->layers[i].state;
    if (!teg_raise_grow(r, &r->layers, r->n_layers, &r->layer_capacity, sizeof *r->layers))
        return TEG_NO_VALUE;
    const char *const name = teg_arena_printf(r->arena, "kv.%u", r->n_layers);
    if (!name) {
        teg_raise_keep(r, teg_base_fail_memory(r->err, "state name", 16));
        return TEG_NO_VALUE;
    }
    teg_raise_keep(r, teg_graph_state(r->graph, name, n_kv_heads, width, &state, r->err));
    if (r->status != TEG_OK)
        return TEG_NO_VALUE;
    (void)teg_raise_emit(r, &(struct teg_op){.kind = TEG_OP_KV_APPEND,
                                             .n_inputs = 3,
                                             .inputs = {keys, values, state},
                                             .attr.attention = {.n_kv_heads = n_kv_heads, .head_width = width}});
    r->layers[r->n_layers++] = (struct layer){keys, values, state};
    return state;
}

/* m = attention of the whole query `q`, seen as its view; scores hold k, scale, cap and mask. */
static void emit_attention(struct raiser *r, struct meaning *m, const struct meaning *q, const struct meaning *scores,
                           const struct meaning *v, const struct heads *h)
{
    const char *why = NULL;
    struct meaning *const rows = teg_raise_alloc(r, 1, sizeof *rows);
    if (!rows)
        return;
    *rows = *q;
    rows->kind = ROWS;
    rows->scale = 1;
    const teg_value_id query = teg_raise_value(r, rows, &why);
    const teg_value_id state =
        query == TEG_NO_VALUE ? query : layer_state(r, scores->b, v, (uint32_t)h->n_kv, (uint32_t)h->width, &why);
    if (state == TEG_NO_VALUE) {
        teg_raise_no(r, m, "%s", why ? why : "out of memory");
        return;
    }
    struct teg_op op = {.kind = TEG_OP_ATTENTION, .n_inputs = 2, .inputs = {query, state}};
    op.attr.attention.n_heads = (uint32_t)h->n;
    op.attr.attention.n_kv_heads = (uint32_t)h->n_kv;
    op.attr.attention.head_width = (uint32_t)h->width;
    op.attr.attention.window = scores->window;
    op.attr.attention.scale = scores->scale * scores->a->scale;
    op.attr.attention.softcap = scores->cap;
    *m = (struct meaning){.weight = TEG_MIL_NO_VAR, .bias = TEG_MIL_NO_VAR};
    teg_raise_rows(m, teg_raise_emit(r, &op), teg_view_width(&q->view), &q->view);
    r->n_heads = (uint32_t)h->n;
    r->n_kv_heads = (uint32_t)h->n_kv;
    r->head_width = (uint32_t)h->width;
}

/* The layer's heads, and whether these keys and values are those of some of them only. */
static bool count_heads(const struct meaning *q, const struct meaning *k, const struct meaning *v, struct heads *h,
                        bool *is_part)
{
    const struct factor *const head = teg_view_single(&q->view, q->view.rank - 1);
    const struct factor *const v_head = teg_view_single(&v->view, v->view.rank - 1);
    const int64_t k_width = teg_view_width(&context_rows(k)->view), v_width = teg_view_width(&context_rows(v)->view);
    *h = (struct heads){.width = head ? head->size.n : 0};
    if (h->width < 1 || !v_head || v_head->stride != 1 || v_head->size.n != h->width || k_width != v_width ||
        k_width % h->width || q->last)
        return false;
    h->n_kv = k_width / h->width;
    *is_part = teg_view_width(&k->view) != k_width || (h->n_kv == 1 && teg_view_width(&q->view) != q->columns);
    h->n = (*is_part ? q->columns : teg_view_width(&q->view)) / h->width;
    return teg_view_width(&v->view) == teg_view_width(&k->view);
}

/* Scores hold q, k, scale, cap and mask; v is seen as [..., slots, K]. */
void teg_raise_attend(struct raiser *r, struct meaning *m, const struct meaning *scores, const struct meaning *v)
{
    const struct meaning *const q = scores->a, *const k = scores->b;
    struct heads h;
    bool is_part;
    if (!scores->causal) {
        teg_raise_no(r, m, "expected a causal mask on the scores, found none");
        return;
    }
    if (!is_slots(r, v->view.rank > 1 ? teg_view_single(&v->view, v->view.rank - 2) : NULL) ||
        !count_heads(q, k, v, &h, &is_part)) {
        teg_raise_no(r, m, "expected keys and values with as many columns a head as the query, found others");
        return;
    }
    const int64_t q_base = is_part ? 0 : q->view.offset;
    const int64_t k_base = k->kind == CACHE ? 0 : k->view.offset, v_base = v->kind == CACHE ? 0 : v->view.offset;
    if (!heads_fit(&q->view, &v->view, &h, q_base, v_base) || !heads_fit(&q->view, &k->view, &h, q_base, k_base)) {
        teg_raise_no(r, m, "expected query head h to meet key head h / (H / G), found another order of heads");
        return;
    }
    if (!is_part) {
        emit_attention(r, m, q, scores, v, &h);
        return;
    }
    *m = *q;
    m->kind = ATTENDED;
    m->a = scores;
    m->b = v;
}

bool teg_raise_same_query(const struct meaning *a, const struct meaning *b)
{
    return a->is_linear == b->is_linear && a->scale == b->scale &&
           (a->is_linear ? a->a == b->a && a->weight == b->weight && a->bias == b->bias : a->value == b->value);
}

/* Parts of one attention, but for the heads. */
static bool same_attention(const struct meaning *x, const struct meaning *y)
{
    const struct meaning *const a = x->a, *const b = y->a;
    return teg_raise_same_query(a->a, b->a) && a->scale == b->scale && a->cap == b->cap && a->window == b->window &&
           a->b->kind == CACHE && b->b->kind == CACHE && a->b->write == b->b->write && x->b->kind == CACHE &&
           y->b->kind == CACHE && x->b->write == y->b->write;
}

bool teg_raise_join_attended(struct raiser *r, struct meaning *m, const struct meaning *const *parts, size_t n,
                             uint32_t axis)
{
    struct heads h;
    bool is_part;
    const struct meaning *const first = parts[0];
    if (first->kind != ATTENDED)
        return false;
    struct meaning *const q = teg_raise_alloc(r, 1, sizeof *q);
    if (!q)
        return true;
    *q = *first->a->a;
    const int64_t apart = n > 1 ? parts[1]->view.offset - first->view.offset : 0;
    bool good = n > 1 && teg_view_side_by_side(&first->view, (int64_t)n, apart, axis, &q->view);
    for (size_t i = 1; i < n && good; i++) {
        struct view there = parts[i]->view;
        good = parts[i]->kind == ATTENDED && there.offset == first->view.offset + (int64_t)i * apart;
        there.offset = first->view.offset;
        good = good && teg_view_same(&first->view, &there) && same_attention(first, parts[i]);
    }
    good = good && teg_view_whole(&q->view) && q->view.offset == 0 && teg_view_width(&q->view) == q->columns &&
           count_heads(first->a->a, first->a->b, first->b, &h, &is_part);
    if (good)
        emit_attention(r, m, q, first->a, first->b, &h);
    else
        teg_raise_no(r, m, "expected all heads of one attention side by side, found others");
    return true;
}

/* q · k: m is the scores. `k_columns_last`: k is seen as [..., slots, K]. */
/* Dimensions of the query before its last, then the keys' slots. */
static bool scores_view(struct meaning *m, const struct view *q, const struct factor *slots)
{
    m->view = (struct view){0};
    for (uint32_t d = 0; d + 1 < q->rank; d++)
        if (!teg_view_add_dim(&m->view, &q->factors[teg_view_begin(q, d)], q->count[d]))
            return false;
    return teg_view_add_dim(&m->view, slots, 1);
}

void teg_raise_start_scores(struct raiser *r, struct meaning *m, const struct meaning *q, const struct meaning *k,
                            bool k_columns_last)
{
    const uint32_t rank = k->view.rank;
    struct meaning *const turned = teg_raise_alloc(r, 1, sizeof *turned);
    if (!turned)
        return;
    *turned = *k;
    int64_t perm[TEG_MIL_MAX_RANK];
    for (uint32_t d = 0; d < rank; d++)
        perm[d] = d;
    if (!k_columns_last && rank >= 2) {
        perm[rank - 1] = rank - 2;
        perm[rank - 2] = rank - 1;
        (void)teg_view_transpose(&turned->view, perm);
    }
    const struct factor *const head = teg_view_single(&q->view, q->view.rank ? q->view.rank - 1 : 0);
    const struct factor *const key = rank >= 2 ? teg_view_single(&turned->view, rank - 1) : NULL;
    const struct factor *const slots = rank >= 2 ? teg_view_single(&turned->view, rank - 2) : NULL;
    const struct factor *const time = q->view.rank >= 2 ? teg_view_single(&q->view, q->view.rank - 2) : NULL;
    const bool tokens = teg_amount_is(r->tokens, 1) ? !time : time && time->axis == AXIS_TOKENS;
    if (!head || !key || !tokens || !is_slots(r, slots) || head->stride != 1 || key->stride != 1 ||
        head->size.n != key->size.n || head->axis != AXIS_COLUMNS || key->axis != AXIS_COLUMNS ||
        !scores_view(m, &q->view, slots)) {
        teg_raise_no(r, m, "expected [..., T, K] times [..., slots, K], found another layout");
        return;
    }
    m->kind = SCORES;
    m->a = q;
    m->b = turned;
    m->scale = 1;
    m->first_slot = k->first_slot;
    m->end_slot = k->end_slot;
}

bool teg_raise_attend_matmul(struct raiser *r, struct meaning *m, const struct meaning *x, const struct meaning *y,
                             bool tx, bool ty)
{
    if (x->kind == ROWS && is_context(r, y) && !tx)
        teg_raise_start_scores(r, m, x, y, ty);
    else if ((x->kind == WEIGHTS || x->kind == RAISED) && is_context(r, y) && !tx && !ty && y->view.rank >= 2)
        teg_raise_weigh(r, m, x, y);
    else
        return false;
    return true;
}

/* Each dimension of the mask is one, or tokens or slots where the scores have them. */
static bool mask_fits(const struct meaning *scores, const struct meaning *mask)
{
    const struct view *const s = &scores->view, *const v = &mask->view;
    bool has_slots = false;
    for (uint32_t d = 0; d < v->rank; d++) {
        const int64_t at = (int64_t)d + s->rank - v->rank;
        const struct factor *const f = teg_view_single(v, d), *const g =
                                                                  at >= 0 ? teg_view_single(s, (uint32_t)at) : NULL;
        if (v->count[d] == 0)
            continue;
        if (!f || !g || f->axis == AXIS_COLUMNS || (f->axis != g->axis && g->axis != AXIS_TOKENS))
            return false;
        if (f->axis == AXIS_SLOTS && teg_amount_fixed(f->size) && teg_amount_fixed(g->size) && g->axis == AXIS_SLOTS &&
            f->size.n != g->size.n)
            return false;
        has_slots |= f->axis == AXIS_SLOTS;
    }
    return has_slots && mask->first_slot == scores->first_slot;
}

static void add_mask(struct raiser *r, struct meaning *m, const struct meaning *scores, const struct meaning *mask)
{
    if (!mask_fits(scores, mask) || scores->cap < 0) {
        teg_raise_no(r, m, "expected a mask [..., T, slots] of the slots that are scored, found another layout");
        return;
    }
    *m = *scores;
    m->causal = scores->causal || mask->causal;
    if (mask->window && (!m->window || mask->window < m->window))
        m->window = mask->window;
}

/* Scores where a slot is seen, and far below elsewhere. */
void teg_raise_select_scores(struct raiser *r, struct meaning *m, const struct meaning *scores,
                             const struct meaning *cond)
{
    struct meaning mask = *cond;
    mask.kind = MASK;
    add_mask(r, m, scores, &mask);
}

bool teg_raise_score_binary(struct raiser *r, struct meaning *m, const struct meaning *a, const struct meaning *b)
{
    const char *const type = r->op->type;
    float s;
    if (b->kind == SCORES || b->kind == TANH_SCORES) {
        const struct meaning *const other = a;
        a = b;
        b = other;
    }
    if (a->kind != SCORES && a->kind != TANH_SCORES)
        return false;
    const bool plain = !a->causal && !a->window; /* a mask must come after a cap; a scale leaves hidden what is */
    struct meaning folded;
    if (b->kind == CONSTANT && teg_raise_constant_mask(r, b, &folded))
        b = &folded;
    if (strcmp(type, "add") == 0 && b->kind == MASK && a->kind == SCORES) {
        add_mask(r, m, a, b);
    } else if (strcmp(type, "mul") == 0 && teg_raise_scalar(r, b, &s) && (plain || s >= LEAST_AFTER_MASK) &&
               a->kind == SCORES && a->cap == 0) {
        *m = *a;
        m->scale *= s;
    } else if (strcmp(type, "mul") == 0 && teg_raise_scalar(r, b, &s) && plain && a->kind == TANH_SCORES && s > 0) {
        *m = *a;
        m->kind = SCORES;
        m->cap = s;
        m->scale *= s; /* cap · tanh(x / cap), x = scores · scale · cap */
    } else {
        teg_raise_no(r, m, "expected scores times a number, or plus a mask, found another operand");
    }
    return true;
}

static void rule_softmax(struct raiser *r, struct meaning *m)
{
    const struct meaning *const x = teg_raise_arg(r, "x");
    int64_t axis = -1;
    uint32_t n;
    if (teg_raise_arg(r, "axis"))
        (void)teg_raise_numbers(r, "axis", &axis, 1, &n);
    axis = axis < 0 ? axis + x->view.rank : axis;
    if (x->kind != SCORES || axis < 0 || !is_slots(r, teg_view_single(&x->view, (uint32_t)axis))) {
        teg_raise_no(r, m, "expected masked scores over the dimension of their keys, found another value");
        return;
    }
    *m = *x;
    m->kind = WEIGHTS;
    m->over_first = x->first_slot;
    m->over_end = x->end_slot;
}

static void rule_sdpa(struct raiser *r, struct meaning *m)
{
    const struct meaning *const q = teg_raise_arg(r, "query"), *const k = teg_raise_arg(r, "key"),
                                *const v = teg_raise_arg(r, "value"), *mask = teg_raise_arg(r, "attn_mask");
    struct meaning folded;
    if (mask && mask->kind == CONSTANT && teg_raise_constant_mask(r, mask, &folded))
        mask = &folded;
    struct meaning *const scores = teg_raise_alloc(r, 2, sizeof *scores);
    if (!scores)
        return;
    if (q->kind != ROWS || !is_context(r, k) || !is_context(r, v) || !mask || mask->kind != MASK) {
        teg_raise_no(r, m, "expected a query, a cache of keys and values, and a causal mask, found other operands");
        return;
    }
    teg_raise_start_scores(r, &scores[0], q, k, true);
    if (scores[0].kind == SCORES)
        add_mask(r, &scores[1], &scores[0], mask);
    if (scores[1].kind != SCORES) {
        m->why = scores[1].why ? scores[1].why : scores[0].why;
        return;
    }
    const struct factor *const head = teg_view_single(&q->view, q->view.rank - 1);
    scores[1].scale = (float)(1 / sqrt((double)head->size.n));
    (void)teg_raise_scalar(r, teg_raise_arg(r, "scale"), &scores[1].scale);
    teg_raise_attend(r, m, &scores[1], v);
}

const struct teg_raise_row teg_raise_attend_rows[] = {
    {"softmax", rule_softmax}, {"scaled_dot_product_attention", rule_sdpa}, {NULL, NULL}};
