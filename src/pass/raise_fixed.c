/* pass/raise_fixed.c: constants that a call's place in the sequence picks from, and those that are folded for one size.
 *
 * Exporters keep cosines, positions and masks as constants of the longest sequence and cut from them what a call needs:
 * rows P … P + T - 1, or 0 … T - 1 where a call has the whole sequence. For functions of a fixed size converters fold
 * all of that, and what is left are constants [1, 1, T, T] and [1, 1, T, K] whose row is the position.
 *
 * What a constant is for is read from its values (a mask) or from its use (a wave). Not taken: telling masks by names.
 */
#include "pass/raise_int.h"

enum { FAR_BELOW = -10000, MOST_RANK = TEG_MIL_MAX_RANK };

/* ---- masks ---- */

struct pattern { /* of a matrix [rows, slots] whose row is a position */
    float seen, hidden;
    uint32_t window; /* 0: all before */
};

static bool is_seen(const struct pattern *p, size_t row, size_t slot)
{
    return slot <= row && (!p->window || row - slot < p->window);
}

/* The values where a row sees itself and where it sees the next slot; the window from the last row. */
static bool find_pattern(const float *values, size_t rows, size_t slots, struct pattern *p)
{
    if (rows < 2 || slots < rows)
        return false;
    *p = (struct pattern){values[0], values[1], 0};
    const float *const last = values + (rows - 1) * slots;
    size_t n = 0;
    while (n < rows && last[rows - 1 - n] == p->seen)
        n++;
    if (p->seen == p->hidden || n == 0)
        return false;
    p->window = n < rows ? (uint32_t)n : 0;
    for (size_t i = 0; i < rows; i++)
        for (size_t k = 0; k < slots; k++)
            if (values[i * slots + k] != (is_seen(p, i, k) ? p->seen : p->hidden))
                return false;
    return true;
}

/* The last two dimensions of a constant; the others are copies, one for each head. */
static bool is_matrix(const struct teg_mil_type *type, size_t *copies, size_t *rows, size_t *columns)
{
    *copies = 1;
    if (type->kind != TEG_MIL_TENSOR || type->rank < 2 || type->rank > MOST_RANK || type->dtype == TEG_MIL_STRING)
        return false;
    for (int32_t d = 0; d < type->rank; d++)
        if (type->dims[d] < 1 || (d + 2 < type->rank && !teg_mul(*copies, (size_t)type->dims[d], copies)))
            return false;
    *rows = (size_t)type->dims[type->rank - 2];
    *columns = (size_t)type->dims[type->rank - 1];
    return true;
}

static bool read_pattern(struct raiser *r, teg_mil_var_id var, struct pattern *p)
{
    size_t copies, rows, slots, n;
    const char *why = NULL;
    if (!is_matrix(&r->program->vars[var].type, &copies, &rows, &slots))
        return false;
    const struct teg_arena saved = r->scratch; /* a matrix of the whole context lives only as long as this */
    teg_arena_init(&r->scratch, saved.allocator);
    const float *const values = teg_raise_floats(r, var, &n, &why);
    bool good = values && n % copies == 0 && n / copies == rows * slots && find_pattern(values, rows, slots, p);
    for (size_t i = 1; good && i < copies; i++)
        good = memcmp(values, values + i * rows * slots, rows * slots * sizeof *values) == 0;
    teg_arena_free(&r->scratch);
    r->scratch = saved;
    return good;
}

/* m = a mask by its pattern, seen as `rank` dimensions of which the last two are tokens and slots. */
static bool set_mask(struct raiser *r, struct meaning *m, const struct pattern *p, int32_t rank, struct amount slots)
{
    const struct factor time = {AXIS_TOKENS, r->tokens, 0}, keys = {AXIS_SLOTS, slots, 0};
    enum kind kind;
    if (p->seen == 0 && p->hidden <= FAR_BELOW)
        kind = MASK;
    else if (p->seen == 1 && p->hidden == 0)
        kind = VISIBLE;
    else if (p->seen == 0 && p->hidden == 1)
        kind = HIDDEN;
    else
        return false;
    *m = (struct meaning){.kind = kind, .causal = true, .window = p->window};
    for (int32_t d = 0; d < rank; d++)
        if (!teg_view_add_dim(&m->view, d + 1 == rank ? &keys : &time,
                              d + 1 == rank || (d + 2 == rank && !teg_amount_is(r->tokens, 1))))
            return false;
    return true;
}

bool teg_raise_constant_mask(struct raiser *r, const struct meaning *x, struct meaning *mask)
{
    size_t copies, rows, slots;
    struct pattern p;
    if (x->kind != CONSTANT || !r->is_whole || !teg_amount_fixed(r->tokens))
        return false;
    const struct teg_mil_type *const type = &r->program->vars[x->var].type;
    return is_matrix(type, &copies, &rows, &slots) && rows == slots && (int64_t)rows == r->tokens.n &&
           read_pattern(r, x->var, &p) && set_mask(r, mask, &p, type->rank, r->tokens);
}

/* ---- waves ---- */

/* Row t of the constant goes with token t of x, its columns with those of each head. */
bool teg_raise_constant_wave(struct raiser *r, const struct meaning *x, const struct meaning *constant,
                             struct meaning *wave)
{
    const struct factor time = {AXIS_TOKENS, r->tokens, 0};
    uint32_t n_time = 0;
    if (constant->kind != CONSTANT || (x->kind != ROWS && x->kind != TURNED) || !r->is_whole ||
        !teg_amount_fixed(r->tokens))
        return false;
    const struct teg_mil_type *const type = &r->program->vars[constant->var].type;
    if (type->rank < 2 || type->rank > (int32_t)x->view.rank)
        return false;
    *wave = (struct meaning){.kind = TABLE, .var = constant->var, .scale = 1, .columns = type->dims[type->rank - 1]};
    for (int32_t d = 0; d + 1 < type->rank; d++) {
        const struct factor *const f = teg_view_single(&x->view, x->view.rank - (uint32_t)type->rank + (uint32_t)d);
        const bool is_time = f && f->axis == AXIS_TOKENS && type->dims[d] == r->tokens.n;
        if ((!is_time && type->dims[d] != 1) || !teg_view_add_dim(&wave->view, &time, is_time))
            return false;
        n_time += is_time;
    }
    teg_view_columns(&wave->view, wave->columns);
    return n_time == 1 && wave->columns > 1;
}

/* ---- cuts ---- */

enum cut { CUT_NOT, CUT_ALL, CUT_CALL, CUT_USED, CUT_OTHER };

/* Which part of a dimension: all of it, this call's rows, or what is used so far. */
static enum cut find_cut(const struct raiser *r, int64_t size, struct amount begin, struct amount end)
{
    const struct amount used = teg_raise_used(r);
    if (teg_amount_is(begin, 0) && teg_amount_is(end, size))
        return CUT_ALL;
    if (begin.n == 0 && begin.t == 0 && begin.p == (r->is_whole ? 0 : 1) && teg_amount_same(end, used))
        return CUT_CALL;
    return teg_amount_is(begin, 0) && teg_amount_same(end, used) ? CUT_USED : CUT_OTHER;
}

static bool is_counting(struct raiser *r, teg_mil_var_id var)
{
    size_t n;
    const char *why = NULL;
    const float *const values = teg_raise_floats(r, var, &n, &why);
    for (size_t i = 0; values && i < n; i++)
        if (values[i] != (float)i)
            return false;
    return values && n > 1;
}

/* Rows of this call from a table, or the positions themselves. */
static bool set_rows(struct raiser *r, struct meaning *m, teg_mil_var_id var, const enum cut *cuts)
{
    const struct teg_mil_type *const type = &r->program->vars[var].type;
    const struct factor time = {AXIS_TOKENS, r->tokens, 0};
    uint32_t n_wide = 0;
    *m = (struct meaning){.weight = TEG_MIL_NO_VAR, .bias = TEG_MIL_NO_VAR};
    for (int32_t d = 0; d < type->rank; d++) {
        if (cuts[d] != CUT_ALL) {
            if (!teg_view_add_dim(&m->view, &time, !teg_amount_is(r->tokens, 1)))
                return false;
        } else {
            teg_view_columns(&m->view, type->dims[d]);
            n_wide += type->dims[d] != 1;
        }
    }
    if (n_wide == 0) {
        m->kind = POSITIONS;
        return is_counting(r, var);
    }
    m->kind = TABLE;
    m->var = var;
    m->columns = type->dims[type->rank - 1];
    m->scale = 1;
    return n_wide == 1 && type->dims[type->rank - 1] != 1 && cuts[type->rank - 1] == CUT_ALL;
}

static bool cut_constant(struct raiser *r, struct meaning *m, teg_mil_var_id var, const enum cut *cuts)
{
    const struct teg_mil_type *const type = &r->program->vars[var].type;
    const int32_t last = type->rank - 1;
    uint32_t n_cut = 0, n_call = 0;
    struct pattern p;
    for (int32_t d = 0; d < type->rank; d++) {
        n_cut += cuts[d] != CUT_ALL;
        n_call += cuts[d] == CUT_CALL;
    }
    if (n_cut == 1 && n_call == 1)
        return set_rows(r, m, var, cuts);
    if (n_cut == 1 && cuts[0] == CUT_USED) { /* whoever reads it by positions may read the whole */
        *m = (struct meaning){.kind = FIRST_ROWS, .var = var};
        return true;
    }
    return last >= 1 && n_cut == 2 && cuts[last - 1] == CUT_CALL &&
           (cuts[last] == CUT_USED || (r->is_whole && cuts[last] == CUT_CALL)) && read_pattern(r, var, &p) &&
           set_mask(r, m, &p, type->rank, teg_raise_used(r));
}

/* This call's rows of a matrix, then its columns up to what is used: cut one after the other, a mask too. */
bool teg_raise_slice_rows_of_mask(struct raiser *r, struct meaning *m, const struct meaning *x)
{
    struct amount sizes[MOST_RANK], begin[MOST_RANK], end[MOST_RANK];
    bool squeeze[MOST_RANK];
    struct pattern p;
    if (x->kind != TABLE)
        return false;
    const struct teg_mil_type *const type = &r->program->vars[x->var].type;
    const int32_t last = type->rank - 1;
    if (x->add || x->scale != 1 || (uint32_t)type->rank != x->view.rank || last < 1 ||
        teg_view_width(&x->view) != type->dims[last] || !teg_view_single(&x->view, (uint32_t)last))
        return false;
    for (uint32_t d = 0; d < x->view.rank; d++)
        if (!teg_view_size(&x->view, d, &sizes[d]))
            return false;
    struct meaning unused = {0};
    if (!teg_raise_slice_bounds(r, &unused, sizes, x->view.rank, begin, end, squeeze))
        return false;
    for (int32_t d = 0; d <= last; d++)
        if (squeeze[d] || !teg_amount_is(begin[d], 0) ||
            !teg_amount_same(end[d], d == last ? teg_raise_used(r) : sizes[d]))
            return false;
    return read_pattern(r, x->var, &p) && set_mask(r, m, &p, type->rank, teg_raise_used(r));
}

bool teg_raise_slice_constant(struct raiser *r, struct meaning *m, const struct meaning *x)
{
    struct amount sizes[MOST_RANK], begin[MOST_RANK], end[MOST_RANK];
    bool squeeze[MOST_RANK];
    enum cut cuts[MOST_RANK] = {CUT_NOT};
    const struct teg_mil_type *const type = &r->program->vars[x->var].type;
    if (type->kind != TEG_MIL_TENSOR || type->rank < 1 || type->rank > MOST_RANK)
        return false;
    for (int32_t d = 0; d < type->rank; d++)
        sizes[d] = teg_amount(type->dims[d]);
    if (!teg_raise_slice_bounds(r, m, sizes, (uint32_t)type->rank, begin, end, squeeze))
        return true;
    for (int32_t d = 0; d < type->rank; d++)
        cuts[d] = find_cut(r, type->dims[d], begin[d], end[d]);
    if (!cut_constant(r, m, x->var, cuts)) {
        teg_raise_no(r, m, "expected this call's rows of a table or of a causal mask, found another part");
        return true;
    }
    for (uint32_t d = (uint32_t)type->rank; d-- > 0;)
        if (squeeze[d] && (m->kind == FIRST_ROWS || !teg_view_remove(&m->view, d)))
            teg_raise_no(r, m, "expected a dimension of one to drop, found more");
    return true;
}

/* ---- masks that are filled ---- */

/* [..., T, slots] of one value. */
static void rule_fill(struct raiser *r, struct meaning *m)
{
    const struct amount *dims;
    uint32_t n;
    float value;
    struct meaning mask;
    const struct pattern all = {0, FAR_BELOW, 0};
    bool good = teg_raise_ints(r, teg_raise_arg(r, "shape"), &dims, &n) && n >= 2 && n <= MOST_RANK &&
                teg_amount_same(dims[n - 2], r->tokens) && teg_amount_same(dims[n - 1], teg_raise_used(r)) &&
                teg_raise_scalar(r, teg_raise_arg(r, "value"), &value) &&
                set_mask(r, &mask, &all, (int32_t)n, dims[n - 1]);
    for (uint32_t d = 0; good && d + 2 < n; d++)
        good = teg_amount_is(dims[d], 1);
    if (!good) {
        teg_raise_no(r, m, "expected a mask [..., T, slots] of one value, found another shape");
        return;
    }
    *m = mask;
    m->kind = FILLED;
    m->causal = false;
    m->scale = value;
}

/* A triangle: of the whole sequence, so that row and position are one. */
static void rule_band(struct raiser *r, struct meaning *m)
{
    const struct meaning *const x = teg_raise_arg(r, "x");
    float lower = -1, upper = -1;
    if (teg_raise_arg(r, "lower"))
        (void)teg_raise_scalar(r, teg_raise_arg(r, "lower"), &lower);
    if (teg_raise_arg(r, "upper"))
        (void)teg_raise_scalar(r, teg_raise_arg(r, "upper"), &upper);
    if ((x->kind != FILLED && x->kind != VISIBLE) || !r->is_whole || upper != 0 || lower < -1) {
        teg_raise_no(r, m, "expected the lower triangle of a mask of the whole sequence, found another band");
        return;
    }
    *m = *x;
    m->causal = true;
    if (lower >= 0 && (!m->window || lower + 1 < (float)m->window))
        m->window = (uint32_t)lower + 1;
    if (x->kind == FILLED)
        m->kind = x->scale == 1 ? VISIBLE : BANDED;
}

const struct teg_raise_row teg_raise_fixed_rows[] = {{"fill", rule_fill}, {"band_part", rule_band}, {NULL, NULL}};
