/* pass/raise_cache.c: keys and values that come as inputs and go out as outputs, as in programs before iOS 18.
 *
 * By contract a caller gives back what came out, so such an input is a state that the caller keeps. Two kinds:
 *   kept      a fixed number of slots: a state that is read as it comes (raise_state.c); its changed layers are caches
 *   growing   P slots: a layer of it with this call's rows behind is a cache
 * A program is understood when every such input has one output that is all its layers with this call's rows: which
 * belongs to which is seen in what it is made from, not in names. */
#include "pass/raise_int.h"

bool teg_raise_is_cache_input(const struct raiser *r, const struct teg_mil_var *v)
{
    static const char *const words[] = {"cache", "past", "key", "value"};
    const struct teg_mil_type *const type = &v->type;
    if (type->kind != TEG_MIL_TENSOR || type->rank < 3 || type->rank > TEG_MIL_MAX_RANK ||
        teg_mil_dtype_info(type->dtype)->class_ != TEG_MIL_CLASS_FLOAT)
        return false;
    const enum teg_raise_role role = teg_raise_role_of(r, v->name);
    if (role != TEG_RAISE_BY_NAME || teg_raise_name_has(v->name, "mask"))
        return role == TEG_RAISE_CACHE;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (teg_raise_name_has(v->name, words[i]))
            return true;
    return false;
}

/* Dimensions are known by strides -1, -2, … as those of an old layer are (raise_state.c); open is the slots. */
void teg_raise_cache_input(struct raiser *r, struct meaning *m, teg_mil_var_id id)
{
    const struct teg_mil_type *const type = &r->program->vars[id].type;
    uint32_t n_open = 0;
    *m = (struct meaning){.kind = PAST, .state = r->n_states, .columns = 1};
    for (int32_t d = 0; d < type->rank; d++) {
        const bool open = type->dims[d] == TEG_MIL_UNKNOWN;
        const struct factor slots = {AXIS_SLOTS, {0, 0, 1}, 0};
        const struct factor code = {AXIS_COLUMNS, teg_amount(type->dims[d]), -(d + 1)};
        n_open += open;
        if ((!open && (type->dims[d] < 1 || type->dims[d] > INT32_MAX)) ||
            !teg_view_add_dim(&m->view, open ? &slots : &code, 1))
            n_open = 2;
    }
    if (n_open > 1) {
        teg_raise_no(r, m, "input %.80s: expected a cache with one open dimension at most, found another shape",
                     r->program->vars[id].name);
        return;
    }
    if (n_open == 0)
        *m = (struct meaning){.kind = STATE, .state = r->n_states};
    r->states[r->n_states++] = (struct state){.var = id, .is_input = true};
}

/* An input that marks the slots of this call's one token. */
bool teg_raise_written_input(struct raiser *r, struct meaning *m, const struct teg_mil_type *type)
{
    uint32_t n = 0;
    if (!teg_amount_is(r->tokens, 1))
        return false;
    *m = (struct meaning){.kind = WRITTEN};
    for (int32_t d = 0; d < type->rank; d++) {
        const bool is_slots = type->dims[d] > 1;
        n += is_slots;
        if (type->dims[d] < 1 ||
            !teg_view_add_dim(&m->view, &(struct factor){AXIS_SLOTS, teg_amount(type->dims[d]), 0}, is_slots))
            return false;
    }
    return n == 1;
}

/* ---- growing ---- */

void teg_raise_slice_past(struct raiser *r, struct meaning *m, const struct meaning *x)
{
    struct amount sizes[TEG_MIL_MAX_RANK], begin[TEG_MIL_MAX_RANK], end[TEG_MIL_MAX_RANK];
    bool squeeze[TEG_MIL_MAX_RANK], good = true;
    const uint32_t rank = x->view.rank;
    for (uint32_t d = 0; d < rank; d++)
        (void)teg_view_size(&x->view, d, &sizes[d]);
    if (!teg_raise_slice_bounds(r, m, sizes, rank, begin, end, squeeze))
        return;
    *m = *x;
    m->view = (struct view){0};
    for (uint32_t d = 0; d < rank; d++) {
        const bool whole = teg_amount_is(begin[d], 0) && teg_amount_same(end[d], sizes[d]);
        const bool single = teg_amount_fixed(sizes[d]) && teg_amount_fixed(begin[d]) && begin[d].n >= 0 &&
                            begin[d].n < sizes[d].n && teg_amount_is(end[d], begin[d].n + 1);
        good = good && (whole || single);
        if (single && !whole) {
            m->add = m->add * sizes[d].n + begin[d].n;
            m->columns *= sizes[d].n;
        }
        if (!squeeze[d] || !single)
            good = good && teg_view_add_dim(&m->view, &x->view.factors[teg_view_begin(&x->view, d)],
                                            whole && !teg_amount_is(sizes[d], 1) ? x->view.count[d] : 0);
    }
    if (!good)
        teg_raise_no(r, m, "expected one layer of a cache with all its slots, found another part");
}

static bool keep_write(struct raiser *r, struct meaning *m, struct write *w)
{
    for (uint32_t i = 0; i < r->n_writes; i++)
        if (r->writes[i]->state == w->state && r->writes[i]->row == w->row) {
            teg_raise_no(r, m, "expected each layer's cache to be written once a call, found a second update");
            return false;
        }
    if (!teg_raise_grow(r, &r->writes, r->n_writes, &r->write_capacity, sizeof *r->writes))
        return false;
    r->writes[r->n_writes++] = w;
    return true;
}

/* A past layer and this call's rows behind it. */
bool teg_raise_join_past(struct raiser *r, struct meaning *m, const struct meaning *past, const struct meaning *rows,
                         uint32_t axis)
{
    if (past->kind != PAST || rows->kind != ROWS)
        return false;
    struct write *const w = teg_raise_alloc(r, 1, sizeof *w);
    if (!w)
        return true;
    *w = (struct write){.state = past->state, .row = past->add, .n_rows = past->columns, .rows = rows};
    bool good = past->view.rank == rows->view.rank && !rows->last && teg_view_whole(&rows->view);
    for (uint32_t d = 0; good && d < past->view.rank; d++) {
        const struct factor *const f = &rows->view.factors[teg_view_begin(&rows->view, d)];
        const struct factor *const slots = teg_view_single(&past->view, d);
        const struct factor all = {AXIS_SLOTS, teg_raise_used(r), 0};
        struct amount a, b;
        if (d == axis) {
            const uint32_t n = rows->view.count[d];
            good = slots && slots->axis == AXIS_SLOTS &&
                   (teg_amount_is(r->tokens, 1) ? n == 0 : n == 1 && f->axis == AXIS_TOKENS) &&
                   teg_view_add_dim(&w->view, &all, 1);
        } else {
            good = teg_view_size(&past->view, d, &a) && teg_view_size(&rows->view, d, &b) && teg_amount_fixed(a) &&
                   teg_amount_same(a, b) && teg_view_add_dim(&w->view, f, rows->view.count[d]);
        }
    }
    if (!good) {
        teg_raise_no(r, m, "expected a layer of a cache with this call's rows behind its slots, found another layout");
        return true;
    }
    if (keep_write(r, m, w))
        *m = (struct meaning){.kind = CACHE, .write = w, .view = w->view};
    return true;
}

/* ---- kept ---- */

/* A changed layer of an input is what attention reads: nothing is put back first. `old` has the layer's dimensions. */
void teg_raise_cache_layer(struct raiser *r, struct meaning *m, const struct view *old, struct write *w)
{
    const struct teg_mil_type *const type = &r->program->vars[r->states[w->state].var].type;
    struct view v = {0};
    w->n_rows = 1;
    for (int32_t d = 0; d < type->rank; d++) {
        w->n_rows *= w->roles[d] == ROLE_ROW ? type->dims[d] : 1;
        if (w->roles[d] == ROLE_SLOT)
            r->context = type->dims[d];
    }
    for (uint32_t i = 0; i < old->rank; i++) {
        const struct factor *const code = teg_view_single(old, i);
        const uint32_t d = code ? (uint32_t)(-code->stride - 1) : 0;
        if (!teg_view_add_dim(&v, &w->view.factors[teg_view_begin(&w->view, d)], code ? w->view.count[d] : 0))
            return;
    }
    memcpy(r->states[w->state].roles, w->roles, sizeof w->roles);
    if (keep_write(r, m, w))
        *m = (struct meaning){.kind = CACHE, .write = w, .view = v};
}

/* ---- outputs ---- */

static bool is_full(const struct raiser *r, const struct meaning *m)
{
    return m->kind == CACHE && r->states[m->write->state].is_input && !m->end_slot && teg_view_whole(&m->view) &&
           m->view.offset == 0;
}

/* All layers side by side. False: they are none. */
bool teg_raise_join_present(struct raiser *r, struct meaning *m, const struct teg_mil_arg *values)
{
    const struct meaning *const first = teg_raise_var(r, values->vars[0]);
    if (first->kind != CACHE)
        return false;
    bool good = is_full(r, first) && first->write->n_rows == (int64_t)values->n_vars;
    for (size_t i = 0; i < values->n_vars && good; i++) {
        const struct meaning *const part = teg_raise_var(r, values->vars[i]);
        good = is_full(r, part) && part->write->state == first->write->state && part->write->row == (int64_t)i;
    }
    if (good)
        *m = (struct meaning){.kind = PRESENT, .state = first->write->state};
    else
        teg_raise_no(r, m, "expected all layers of a cache in their order, found others");
    return true;
}

bool teg_raise_is_present(const struct raiser *r, const struct meaning *m, uint32_t *state)
{
    *state = m->kind == CACHE ? m->write->state : m->state;
    if (m->kind == PRESENT)
        return true;
    if (m->kind == UPDATED)
        return r->states[m->state].is_input && m->n_writes == r->states[m->state].n_writes;
    return is_full(r, m) && m->write->n_rows == 1;
}
