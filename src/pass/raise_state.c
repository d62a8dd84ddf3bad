/* pass/raise_state.c: states as KV caches.
 *
 * A state is a stack of caches [slots, columns], one for keys or values of each layer, told apart by its other
 * dimensions. An update is understood when it puts the rows of this call at slots P … P + T - 1 of one of them: by a
 * slice, or by changing a whole layer (scatter, one-hot) that is then put back. A read is understood when it takes a
 * whole layer after that. The program's states themselves are never made. */
#include "pass/raise_int.h"

static const struct teg_mil_type *type_of(const struct raiser *r, uint32_t state)
{
    return &r->program->vars[r->states[state].var].type;
}

static bool is_whole(const struct teg_mil_type *type, int32_t d, struct amount begin, struct amount end)
{
    return teg_amount_is(begin, 0) && teg_amount_is(end, type->dims[d]);
}

static bool is_single(const struct teg_mil_type *type, int32_t d, struct amount begin, struct amount end)
{
    return teg_amount_fixed(begin) && teg_amount_is(end, begin.n + 1) && begin.n >= 0 && begin.n < type->dims[d];
}

static void rule_read_state(struct raiser *r, struct meaning *m)
{
    const teg_mil_var_id var = teg_raise_arg_id(r, "input");
    for (uint32_t i = 0; i < r->n_states; i++)
        if (r->states[i].var == var) {
            m->kind = STATE;
            m->state = i;
            m->n_writes = r->states[i].n_written;
            return;
        }
    teg_raise_no(r, m, "expected a state of the function, found another value");
}

static void rule_write_state(struct raiser *r, struct meaning *m)
{
    const struct meaning *const data = teg_raise_arg(r, "data");
    const teg_mil_var_id var = teg_raise_arg_id(r, "input");
    if (data->kind == UPDATED && r->states[data->state].var == var &&
        data->n_writes == r->states[data->state].n_writes) {
        r->states[data->state].n_written = data->n_writes;
        return;
    }
    if (data->kind == NOTHING)
        m->why = data->why;
    else
        teg_raise_no(r, m, "expected the state with this call's rows written into it, found another value");
    if (!r->bad_write)
        r->bad_write = m->why;
}

/* ---- slices of this call's rows ---- */

/* What each dimension is for, from the bounds of the update. */
static bool find_roles(const struct raiser *r, const struct teg_mil_type *type, const struct amount *begin,
                       const struct amount *end, enum role *roles)
{
    uint32_t n_slots = 0;
    for (int32_t d = 0; d < type->rank; d++) {
        const struct amount b = begin[d], e = end[d];
        if (b.n == 0 && b.t == 0 && b.p == 1 && e.n == r->tokens.n && e.t == r->tokens.t && e.p == 1) {
            roles[d] = ROLE_SLOT;
            n_slots++;
        } else if (is_single(type, d, b, e))
            roles[d] = ROLE_ROW;
        else if (is_whole(type, d, b, e))
            roles[d] = ROLE_COLUMNS;
        else
            return false;
    }
    return n_slots == 1;
}

static int64_t row_of(const struct teg_mil_type *type, const enum role *roles, const struct amount *begin)
{
    int64_t row = 0;
    for (int32_t d = 0; d < type->rank; d++)
        if (roles[d] == ROLE_ROW)
            row = row * type->dims[d] + begin[d].n;
    return row;
}

static void state_sizes(const struct teg_mil_type *type, struct amount *sizes)
{
    for (int32_t d = 0; d < type->rank; d++)
        sizes[d] = teg_amount(type->dims[d]);
}

/* One dimension of the region: slots, nothing, or the columns f of the update. */
static bool lay_dim(struct view *out, enum role role, int64_t size, const struct factor *f, uint32_t n, bool one_token)
{
    const struct factor slots = {AXIS_SLOTS, teg_amount(size), 0};
    struct amount got;
    if (role == ROLE_SLOT)
        return (one_token ? n == 0 : n == 1 && f->axis == AXIS_TOKENS) && teg_view_add_dim(out, &slots, 1);
    if (role == ROLE_ROW)
        return n == 0 && teg_view_add_dim(out, NULL, 0);
    return n > 0 && f->axis == AXIS_COLUMNS && teg_view_add_dim(out, f, n) && teg_view_size(out, out->rank - 1, &got) &&
           teg_amount_is(got, size);
}

/* The update's view laid over the state's dimensions. */
static bool lay_over(const struct raiser *r, const struct teg_mil_type *type, const enum role *roles,
                     const struct view *update, const bool *squeeze, struct view *out)
{
    uint32_t from = 0;
    *out = (struct view){0};
    for (int32_t d = 0; d < type->rank; d++) {
        const uint32_t dim = squeeze[d] ? 0 : from++;
        if (!squeeze[d] && dim >= update->rank)
            return false;
        if (!lay_dim(out, roles[d], type->dims[d], &update->factors[teg_view_begin(update, dim)],
                     squeeze[d] ? 0 : update->count[dim], teg_amount_is(r->tokens, 1)))
            return false;
    }
    return from == update->rank;
}

/* ---- whole layers: scatter and one-hot forms ---- */

/* A layer before its update. Its dimensions are known as the state's, by strides -1, -2, …, because which of them are
 * slots is seen only in what is done with it. */
static bool old_layer(const struct raiser *r, struct meaning *m, const struct meaning *x, const struct amount *begin,
                      const struct amount *end, const bool *squeeze)
{
    const struct teg_mil_type *const type = type_of(r, x->state);
    struct view v = {0};
    int64_t row = 0;
    for (int32_t d = 0; d < type->rank; d++) {
        const bool single = is_single(type, d, begin[d], end[d]);
        if (!single && !is_whole(type, d, begin[d], end[d]))
            return false;
        const struct factor f = {AXIS_COLUMNS, teg_amount(single ? 1 : type->dims[d]), -(d + 1)};
        row = single ? row * type->dims[d] + begin[d].n : row;
        if (!squeeze[d] && !teg_view_add_dim(&v, &f, 1))
            return false;
    }
    *m = (struct meaning){.kind = OLD_LAYER, .state = x->state, .n_writes = x->n_writes, .add = row, .view = v};
    return true;
}

/* Which dimension of the state each of the layer's is, and so what for. `spread`: the new rows, of the layer's rank. */
static bool match_roles(const struct teg_mil_type *type, const struct view *old, const struct view *spread,
                        enum role *roles, uint32_t *from)
{
    uint32_t n_slots = 0;
    for (int32_t d = 0; d < type->rank; d++)
        roles[d] = ROLE_ROW;
    for (uint32_t i = 0; i < old->rank; i++) {
        const struct factor *const code = teg_view_single(old, i);
        if (!old->count[i] && !spread->count[i])
            continue;
        if (!code || code->stride >= 0 || -code->stride > type->rank || !spread->count[i])
            return false;
        const int64_t d = -code->stride - 1;
        const bool is_slot = spread->factors[teg_view_begin(spread, i)].axis == AXIS_TOKENS;
        roles[d] = is_slot ? ROLE_SLOT : ROLE_COLUMNS;
        from[d] = i;
        n_slots += is_slot;
    }
    return n_slots == 1;
}

/* m = the old layer with `rows` at this call's positions. */
static void replace_rows(struct raiser *r, struct meaning *m, const struct meaning *old, const struct meaning *rows,
                         const struct view *spread)
{
    const struct teg_mil_type *const type = type_of(r, old->state);
    struct write *const w = teg_raise_alloc(r, 1, sizeof *w);
    uint32_t from[TEG_MIL_MAX_RANK] = {0};
    if (!w)
        return;
    bool good = rows->kind == ROWS && !rows->last && spread->rank == old->view.rank && teg_view_whole(&rows->view) &&
                match_roles(type, &old->view, spread, w->roles, from);
    for (int32_t d = 0; d < type->rank && good; d++) {
        const bool is_row = w->roles[d] == ROLE_ROW;
        good = lay_dim(&w->view, w->roles[d], type->dims[d], &spread->factors[teg_view_begin(spread, from[d])],
                       is_row ? 0 : spread->count[from[d]], false);
    }
    if (!good) {
        teg_raise_no(r, m, "expected this call's rows put into a layer's slots, found another layout");
        return;
    }
    w->state = old->state;
    w->row = old->add;
    w->rows = rows;
    if (r->states[old->state].is_input) {
        teg_raise_cache_layer(r, m, &old->view, w);
        return;
    }
    *m = *old;
    m->kind = NEW_LAYER;
    m->write = w;
}

static void rule_scatter_nd(struct raiser *r, struct meaning *m)
{
    const struct meaning *const data = teg_raise_arg(r, "data"), *const indices = teg_raise_arg(r, "indices"),
                                *const updates = teg_raise_arg(r, "updates");
    const struct factor *const t = indices->kind == POSITIONS ? teg_view_single(&indices->view, 0) : NULL;
    const bool by_position = t && t->axis == AXIS_TOKENS && indices->view.rank == 2 && indices->add == 0;
    if (data->kind == OLD_LAYER && by_position && updates->view.rank && updates->view.count[0] == 1 &&
        updates->view.factors[0].axis == AXIS_TOKENS && teg_raise_string_is(r, "mode", "update"))
        replace_rows(r, m, data, updates, &updates->view);
    else
        teg_raise_no(r, m, "expected this call's rows put at their positions in a layer, found another scatter");
}

/* A cache that is an input of its own is a layer as it comes. */
static const struct meaning *as_layer(struct raiser *r, const struct meaning *x)
{
    struct amount begin[TEG_MIL_MAX_RANK], end[TEG_MIL_MAX_RANK];
    const bool squeeze[TEG_MIL_MAX_RANK] = {false};
    if (x->kind != STATE || !r->states[x->state].is_input)
        return x;
    struct meaning *const layer = teg_raise_alloc(r, 1, sizeof *layer);
    for (uint32_t d = 0; d < TEG_MIL_MAX_RANK; d++)
        begin[d] = teg_amount(0);
    state_sizes(type_of(r, x->state), end);
    return layer && old_layer(r, layer, x, begin, end, squeeze) ? layer : x;
}

/* Along one dimension, by positions of its own or repeated for each element. */
static void rule_scatter(struct raiser *r, struct meaning *m)
{
    const struct meaning *const data = as_layer(r, teg_raise_arg(r, "data")),
                                *const indices = teg_raise_arg(r, "indices"),
                                *const updates = teg_raise_arg(r, "updates");
    int64_t axis = 0;
    uint32_t n;
    if (teg_raise_arg(r, "axis"))
        (void)teg_raise_numbers(r, "axis", &axis, 1, &n);
    axis = axis < 0 ? axis + data->view.rank : axis;
    const struct factor *const f = axis >= 0 ? teg_view_single(&updates->view, (uint32_t)axis) : NULL;
    const bool by_position =
        indices->kind == POSITIONS && indices->add == 0 && teg_view_has(&indices->view, AXIS_TOKENS);
    if (data->kind == OLD_LAYER && by_position && f && f->axis == AXIS_TOKENS &&
        teg_raise_string_is(r, "mode", "update"))
        replace_rows(r, m, data, updates, &updates->view);
    else
        teg_raise_no(r, m, "expected this call's rows put at their positions in a layer, found another scatter");
}

static void rule_reduce_sum(struct raiser *r, struct meaning *m)
{
    const struct meaning *const x = teg_raise_arg(r, "x");
    int64_t axis;
    uint32_t n;
    if (teg_raise_tile_reduce(r, m, x) || teg_raise_sum_squares(r, m, x))
        return;
    const bool good = x->kind == ONE_HOT && teg_raise_numbers(r, "axes", &axis, 1, &n) && n == 1 &&
                      teg_raise_bool(r, "keep_dims", false) && x->view.rank == 2 && (axis == -1 || axis == 1) &&
                      teg_view_single(&x->view, 0) && teg_view_single(&x->view, 0)->axis == AXIS_SLOTS;
    if (!good) {
        teg_raise_no(r, m, "expected one-hot positions summed over tokens, found another sum");
        return;
    }
    m->kind = WRITTEN;
    (void)teg_view_add_dim(&m->view, teg_view_single(&x->view, 0), 1);
    (void)teg_view_add_dim(&m->view, NULL, 0);
}

/* The sum of what is kept and what is spread must have slots in one place: the last dimension but one of both. */
static void join(struct raiser *r, struct meaning *m, const struct meaning *kept, const struct meaning *spread)
{
    const uint32_t rank = spread->view.rank;
    if (rank >= 2 && rank == kept->view.rank && spread->view.count[rank - 2] == 1)
        replace_rows(r, m, kept, spread->a, &spread->view);
    else
        teg_raise_no(r, m, "expected slots as the last dimension but one, found another layout");
}

/* The one row of this call at the slot that is marked. */
static void spread_one(struct raiser *r, struct meaning *m, const struct meaning *rows, const struct meaning *written)
{
    const struct factor time = {AXIS_TOKENS, {0, 1, 0}, 0}; /* a factor of one would be dropped */
    const uint32_t rank = rows->view.rank, own = written->view.rank;
    bool good = own <= rank && teg_amount_is(r->tokens, 1) && !rows->last;
    *m = (struct meaning){.kind = SPREAD, .a = rows};
    for (uint32_t d = 0; good && d < rank; d++) {
        const bool is_slot = d + own >= rank && written->view.count[d + own - rank] == 1;
        const uint32_t n = rows->view.count[d];
        good = is_slot ? n == 0 && teg_view_add_dim(&m->view, &time, 1)
                       : teg_view_add_dim(&m->view, &rows->view.factors[teg_view_begin(&rows->view, d)], n);
    }
    if (!good)
        teg_raise_no(r, m, "expected one token's rows times a mask of its slot, found another layout");
}

/* old · (1 - written), and its sum with one-hot times rows. */
bool teg_raise_layer_binary(struct raiser *r, struct meaning *m, const struct meaning *a, const struct meaning *b)
{
    const char *const type = r->op->type;
    const bool swap = strcmp(type, "sub") != 0 && (a->kind == UNTOUCHED || a->kind == SPREAD || a->kind == WRITTEN);
    const struct meaning *const x = as_layer(r, swap ? b : a), *const y = swap ? a : b;
    float one;
    if (strcmp(type, "sub") == 0 && y->kind == WRITTEN && teg_raise_scalar(r, x, &one) && one == 1) {
        *m = *y;
        m->kind = UNTOUCHED;
    } else if (strcmp(type, "mul") == 0 && x->kind == ROWS && y->kind == WRITTEN) {
        spread_one(r, m, x, y);
    } else if (strcmp(type, "mul") == 0 && x->kind == OLD_LAYER && y->kind == UNTOUCHED) {
        *m = *x;
        m->kind = KEPT_LAYER;
    } else if (strcmp(type, "add") == 0 && x->kind == KEPT_LAYER && y->kind == SPREAD) {
        join(r, m, x, y);
    } else {
        return false;
    }
    return true;
}

bool teg_raise_spread(struct raiser *r, struct meaning *m, const struct meaning *x, const struct meaning *y)
{
    if (x->kind != ONE_HOT || y->kind != ROWS)
        return false;
    const struct factor *const s = teg_view_single(&x->view, 0), *const t = teg_view_single(&x->view, 1);
    const struct factor *const time = y->view.rank >= 2 ? teg_view_single(&y->view, y->view.rank - 2) : NULL;
    if (x->view.rank == 2 && s && s->axis == AXIS_SLOTS && t && t->axis == AXIS_TOKENS && time &&
        time->axis == AXIS_TOKENS)
        *m = (struct meaning){.kind = SPREAD, .a = y, .view = y->view};
    else
        teg_raise_no(r, m, "expected one-hot positions [slots, T] times rows [..., T, K], found another layout");
    return true;
}

/* A new layer goes back to where the old one came from. */
static bool puts_back(const struct meaning *layer, const struct teg_mil_type *type, const struct amount *begin,
                      const struct amount *end, const bool *squeeze)
{
    const struct write *const w = layer->write;
    uint32_t from = 0;
    for (int32_t d = 0; d < type->rank; d++) {
        const bool is_row = w->roles[d] == ROLE_ROW;
        if (!(is_row ? is_single(type, d, begin[d], end[d]) : is_whole(type, d, begin[d], end[d])))
            return false;
        if (squeeze[d])
            continue;
        if (from == layer->view.rank)
            return false;
        const uint32_t dim = from++;
        const struct factor *const f = teg_view_single(&layer->view, dim);
        if (is_row ? layer->view.count[dim] != 0 : !f || f->stride != -(d + 1))
            return false;
    }
    return from == layer->view.rank && row_of(type, w->roles, begin) == w->row;
}

/* ---- updates ---- */

/* Keeps the write; each layer is written once a call. */
static void add_write(struct raiser *r, struct meaning *m, struct write *w)
{
    struct state *const s = &r->states[w->state];
    const struct teg_mil_type *const type = type_of(r, w->state);
    if (!teg_raise_grow(r, &r->writes, r->n_writes, &r->write_capacity, sizeof *r->writes))
        return;
    for (uint32_t i = 0; i < r->n_writes; i++)
        if (r->writes[i]->state == w->state && r->writes[i]->row == w->row) {
            teg_raise_no(r, m, "expected each layer's cache to be written once a call, found a second update");
            return;
        }
    if (s->n_writes && memcmp(w->roles, s->roles, (size_t)type->rank * sizeof *w->roles) != 0) {
        teg_raise_no(r, m, "expected all layers to be written in one layout, found another");
        return;
    }
    memcpy(s->roles, w->roles, sizeof w->roles);
    for (int32_t d = 0; d < type->rank; d++)
        if (s->roles[d] == ROLE_SLOT)
            r->context = type->dims[d];
    r->writes[r->n_writes++] = w;
    m->kind = UPDATED;
    m->state = w->state;
    m->n_writes = ++s->n_writes;
}

static void rule_slice_update(struct raiser *r, struct meaning *m)
{
    const struct meaning *const x = teg_raise_arg(r, "x"), *const update = teg_raise_arg(r, "update");
    struct amount sizes[TEG_MIL_MAX_RANK], begin[TEG_MIL_MAX_RANK], end[TEG_MIL_MAX_RANK];
    bool squeeze[TEG_MIL_MAX_RANK];
    if ((x->kind != STATE && x->kind != UPDATED) || x->n_writes != r->states[x->state].n_writes) {
        teg_raise_no(r, m, "expected the newest content of a state as x, found another value");
        return;
    }
    const struct teg_mil_type *const type = type_of(r, x->state);
    state_sizes(type, sizes);
    if (!teg_raise_slice_bounds(r, m, sizes, (uint32_t)type->rank, begin, end, squeeze))
        return;
    struct write *const w = teg_raise_alloc(r, 1, sizeof *w);
    if (!w)
        return;
    const struct meaning *const rows = update->kind == GUARDED ? update->a : update;
    if (update->kind == NEW_LAYER) {
        *w = *update->write;
        if (w->state == x->state && puts_back(update, type, begin, end, squeeze))
            add_write(r, m, w);
        else
            teg_raise_no(r, m, "expected a changed layer to be put back in its place, found another update");
        return;
    }
    *w = (struct write){.state = x->state, .rows = rows};
    if (!find_roles(r, type, begin, end, w->roles)) {
        teg_raise_no(r, m, "expected one layer's slots P … P + T - 1 with all heads to be written, found other bounds");
        return;
    }
    w->row = row_of(type, w->roles, begin);
    const bool elsewhere = update->kind == GUARDED && (update->state != x->state || update->add != w->row);
    if (rows->kind != ROWS || rows->last || !lay_over(r, type, w->roles, &rows->view, squeeze, &w->view) ||
        !teg_view_whole(&rows->view) || elsewhere)
        teg_raise_no(r, m, "expected this call's rows in the cache's layout, found another update");
    else
        add_write(r, m, w);
}

/* ---- reads ---- */

/* What a read takes of a layer. */
struct taken {
    bool used;               /* slots 0 … P + T - 1 */
    int64_t first, end;      /* slots of a tile; end 0: all */
    int64_t begins, columns; /* of the dimension of columns that is cut: columns 0: none */
    int32_t cut;
};

static bool reads_layer(struct raiser *r, uint32_t state, const enum role *roles, const struct amount *begin,
                        const struct amount *end, struct taken *t)
{
    const struct teg_mil_type *const type = type_of(r, state);
    *t = (struct taken){0};
    for (int32_t d = 0; d < type->rank; d++) {
        const bool fixed = teg_amount_fixed(begin[d]) && teg_amount_fixed(end[d]);
        const bool inside = fixed && begin[d].n >= 0 && begin[d].n < end[d].n && end[d].n <= type->dims[d];
        if (is_whole(type, d, begin[d], end[d]) && roles[d] != ROLE_ROW)
            continue;
        if (roles[d] == ROLE_ROW && !is_single(type, d, begin[d], end[d]))
            return false;
        if (roles[d] == ROLE_COLUMNS) {
            if (!inside || t->columns)
                return false;
            t->begins = begin[d].n;
            t->columns = end[d].n - begin[d].n;
            t->cut = d;
        }
        if (roles[d] != ROLE_SLOT)
            continue;
        t->used = !fixed;
        if (fixed ? !inside
                  : !teg_amount_is(begin[d], 0) || end[d].n != r->tokens.n || end[d].t != r->tokens.t || end[d].p != 1)
            return false;
        t->first = fixed ? begin[d].n : 0;
        t->end = fixed && (begin[d].n || end[d].n < teg_raise_seen(r, state)) ? end[d].n : 0;
    }
    return true;
}

/* The view of a write, cut to what is read. */
static bool take_part(const struct raiser *r, const struct write *w, const struct taken *t, int64_t n_slots,
                      struct view *out)
{
    *out = (struct view){.offset = w->view.offset};
    for (uint32_t d = 0; d < w->view.rank; d++) {
        struct factor f[MAX_FACTORS];
        memcpy(f, &w->view.factors[teg_view_begin(&w->view, d)], w->view.count[d] * sizeof *f);
        if (w->roles[d] == ROLE_SLOT)
            f[0].size = t->used ? (struct amount){r->tokens.n, r->tokens.t, 1} : teg_amount(n_slots);
        if (t->columns && (int32_t)d == t->cut) {
            if (w->view.count[d] != 1)
                return false;
            out->offset += t->begins * f[0].stride;
            f[0].size = teg_amount(t->columns);
        }
        if (!teg_view_add_dim(out, f, w->view.count[d]))
            return false;
    }
    return true;
}

static const struct write *find_write(const struct raiser *r, uint32_t state, int64_t row)
{
    for (uint32_t i = 0; i < r->n_writes; i++)
        if (r->writes[i]->state == state && r->writes[i]->row == row)
            return r->writes[i];
    return NULL;
}

void teg_raise_read_slice(struct raiser *r, struct meaning *m, const struct meaning *x)
{
    struct amount sizes[TEG_MIL_MAX_RANK], begin[TEG_MIL_MAX_RANK], end[TEG_MIL_MAX_RANK];
    bool squeeze[TEG_MIL_MAX_RANK];
    struct taken taken = {0};
    const struct state *const s = &r->states[x->state];
    const struct teg_mil_type *const type = type_of(r, x->state);
    state_sizes(type, sizes);
    if (!teg_raise_slice_bounds(r, m, sizes, (uint32_t)type->rank, begin, end, squeeze))
        return;
    const bool newest = x->n_writes == s->n_writes;
    const struct write *const w = newest && s->n_writes && reads_layer(r, x->state, s->roles, begin, end, &taken)
                                      ? find_write(r, x->state, row_of(type, s->roles, begin))
                                      : NULL;
    if (!w && newest && old_layer(r, m, x, begin, end, squeeze))
        return;
    int64_t n_slots = 0;
    for (int32_t d = 0; d < type->rank && w; d++)
        if (s->roles[d] == ROLE_SLOT)
            n_slots = teg_amount_fixed(end[d]) ? end[d].n - begin[d].n : 0;
    if (!w || !take_part(r, w, &taken, n_slots, &m->view)) {
        teg_raise_no(r, m, "expected all slots of one layer in the newest state, or tiles of them, found another read");
        return;
    }
    m->kind = CACHE;
    m->write = w;
    m->first_slot = taken.end ? taken.first : 0;
    m->end_slot = taken.end;
    for (uint32_t d = (uint32_t)type->rank; d-- > 0;)
        if (squeeze[d] && !teg_view_remove(&m->view, d))
            teg_raise_no(r, m, "expected only single layers to be dropped as dimensions, found more");
}

/* The last slot that any read of the state takes, where all of them are between constant bounds. */
static int64_t find_seen(const struct raiser *r, uint32_t state, int32_t slot_dim)
{
    const struct teg_mil_block *const block = &r->function->block;
    const struct teg_mil_type *const type = type_of(r, state);
    int64_t most = 0;
    for (size_t i = 0; i < block->n_ops; i++) {
        const struct teg_mil_op *const op = &block->ops[i];
        const struct teg_mil_arg *const x = teg_mil_find_arg(op, "x");
        const struct teg_mil_op *const read =
            strcmp(op->type, "slice_by_index") == 0 && x && x->n_vars == 1 ? teg_raise_maker(r, x->vars[0]) : NULL;
        const struct teg_mil_arg *const from =
            read && strcmp(read->type, "read_state") == 0 ? teg_mil_find_arg(read, "input") : NULL;
        if (!from || from->n_vars != 1 || from->vars[0] != r->states[state].var)
            continue;
        const struct teg_mil_var *const end = teg_mil_arg_var(r->program, op, "end");
        const struct teg_mil_const *const c = end ? end->constant : NULL;
        int32_t at;
        if (!c || c->type.dtype != TEG_MIL_INT32 || c->type.rank != 1 || c->type.dims[0] != type->rank ||
            teg_mil_find_arg(op, "end_mask"))
            return type->dims[slot_dim];
        memcpy(&at, c->bytes + 4 * slot_dim, sizeof at);
        most = at > most ? at : most;
    }
    return most > 0 && most < type->dims[slot_dim] ? most : type->dims[slot_dim];
}

int64_t teg_raise_seen(struct raiser *r, uint32_t state)
{
    struct state *const s = &r->states[state];
    const struct teg_mil_type *const type = type_of(r, state);
    for (int32_t d = 0; d < type->rank && !s->n_seen; d++)
        if (s->roles[d] == ROLE_SLOT)
            s->n_seen = find_seen(r, state, d);
    if (s->n_seen < r->context)
        r->context = s->n_seen;
    return s->n_seen;
}

/* ---- rows that may be padding ---- */

static void rule_slice_by_size(struct raiser *r, struct meaning *m)
{
    const struct meaning *const x = teg_raise_arg(r, "x");
    struct amount end[TEG_MIL_MAX_RANK];
    const struct amount *begin, *size;
    uint32_t nb, ns;
    enum role roles[TEG_MIL_MAX_RANK];
    if (x->kind != STATE || x->n_writes != r->states[x->state].n_writes) {
        teg_raise_no(r, m, "expected the newest content of a state, found another value");
        return;
    }
    const struct teg_mil_type *const type = type_of(r, x->state);
    bool good = teg_raise_ints(r, teg_raise_arg(r, "begin"), &begin, &nb) &&
                teg_raise_ints(r, teg_raise_arg(r, "size"), &size, &ns) && (int32_t)nb == type->rank && ns == nb;
    for (int32_t d = 0; d < type->rank && good; d++)
        end[d] = (struct amount){begin[d].n + size[d].n, begin[d].t + size[d].t, begin[d].p + size[d].p};
    good = good && find_roles(r, type, begin, end, roles);
    for (int32_t d = 0; d < type->rank && good; d++) {
        const struct factor columns = {AXIS_COLUMNS, teg_amount(type->dims[d]), -(d + 1)};
        const struct factor tokens = {AXIS_TOKENS, r->tokens, 0};
        good = teg_view_add_dim(&m->view, roles[d] == ROLE_SLOT ? &tokens : &columns, roles[d] != ROLE_ROW);
    }
    if (!good) {
        teg_raise_no(r, m, "expected a layer's slots P … P + T - 1 with all heads, found other bounds");
        return;
    }
    m->kind = OLD_ROWS;
    m->state = x->state;
    m->add = row_of(type, roles, begin);
}

static bool is_padding(const struct meaning *m, enum kind kind)
{
    return m->kind == kind && m->a && m->a->kind == POSITIONS;
}

bool teg_raise_guard_binary(struct raiser *r, struct meaning *m, const struct meaning *a, const struct meaning *b)
{
    if (strcmp(r->op->type, "add") == 0) {
        if (a->kind == PADDING_ROWS) {
            const struct meaning *const other = a;
            a = b;
            b = other;
        }
        if (a->kind != REAL_ROWS || b->kind != PADDING_ROWS)
            return false;
        *m = *b;
        m->kind = GUARDED;
        m->a = a->a;
        m->view = a->view;
        return true;
    }
    if (a->kind != ROWS && a->kind != OLD_ROWS) {
        const struct meaning *const other = a;
        a = b;
        b = other;
    }
    if (a->kind == OLD_ROWS && is_padding(b, NEGATIVE) && teg_view_covers(&a->view, &b->view)) {
        *m = *a;
        m->kind = PADDING_ROWS;
        return true;
    }
    if (a->kind != ROWS || !is_padding(b, NOT_NEGATIVE) || !teg_view_covers(&a->view, &b->view))
        return false;
    m->kind = REAL_ROWS;
    m->a = a;
    m->view = a->view;
    return true;
}

const struct teg_raise_row teg_raise_state_rows[] = {
    {"read_state", rule_read_state},
    {"write_state", rule_write_state},
    {"slice_update", rule_slice_update},
    {"scatter_nd", rule_scatter_nd},
    {"scatter", rule_scatter},
    {"scatter_along_axis", rule_scatter},
    {"reduce_sum", rule_reduce_sum},
    {"slice_by_size", rule_slice_by_size},
    {NULL, NULL},
};
