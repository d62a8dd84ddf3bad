/* pass/raise_slice.c: parts of tensors: slices and splits.
 *
 * Columns may be cut anywhere, also every other one; of tokens a slice has a meaning only as the last row, of slots as
 * those in use, of positions as any one of them. What else a slice could mean (a part of the prompt, say) would make
 * the result depend on where a caller cuts the prompt, and is refused. */
#include "pass/raise_int.h"

/* Steps of each dimension, at least 1. */
static bool slice_strides(struct raiser *r, uint32_t rank, int64_t *stride)
{
    uint32_t n = rank;
    for (uint32_t d = 0; d < rank; d++)
        stride[d] = 1;
    if (teg_raise_arg(r, "stride") && !teg_raise_numbers(r, "stride", stride, TEG_MIL_MAX_RANK, &n))
        return false;
    for (uint32_t d = 0; d < rank && n == rank; d++)
        if (stride[d] < 1)
            return false;
    return n == rank;
}

static bool bounds(struct raiser *r, struct meaning *m, const struct amount *sizes, uint32_t rank, struct amount *begin,
                   struct amount *end, bool *squeeze)
{
    static const char *const masks[] = {"begin_mask", "end_mask", "squeeze_mask"};
    const struct amount *b, *e;
    uint32_t nb, ne, n;
    int64_t mask[3][TEG_MIL_MAX_RANK] = {{0}};
    bool good = teg_raise_ints(r, teg_raise_arg(r, "begin"), &b, &nb) &&
                teg_raise_ints(r, teg_raise_arg(r, "end"), &e, &ne) && nb == rank && ne == rank;
    for (size_t i = 0; i < 3 && good; i++)
        if (teg_raise_arg(r, masks[i]))
            good = teg_raise_numbers(r, masks[i], mask[i], TEG_MIL_MAX_RANK, &n) && n == rank;
    if (!good) {
        teg_raise_no(r, m, "expected bounds known from T and P, found others");
        return false;
    }
    for (uint32_t d = 0; d < rank; d++) {
        begin[d] = mask[0][d] ? teg_amount(0) : b[d];
        end[d] = mask[1][d] ? sizes[d] : e[d];
        squeeze[d] = mask[2][d] != 0;
        if (teg_amount_fixed(begin[d]) && begin[d].n < 0)
            begin[d] = (struct amount){sizes[d].n + begin[d].n, sizes[d].t, sizes[d].p};
        if (teg_amount_fixed(end[d]) && end[d].n < 0)
            end[d] = (struct amount){sizes[d].n + end[d].n, sizes[d].t, sizes[d].p};
        if (squeeze[d])
            end[d] = (struct amount){begin[d].n + 1, begin[d].t, begin[d].p};
    }
    return true;
}

bool teg_raise_slice_bounds(struct raiser *r, struct meaning *m, const struct amount *sizes, uint32_t rank,
                            struct amount *begin, struct amount *end, bool *squeeze)
{
    int64_t stride[TEG_MIL_MAX_RANK];
    bool ones = slice_strides(r, rank, stride);
    for (uint32_t d = 0; d < rank && ones; d++)
        ones = stride[d] == 1;
    if (!ones)
        teg_raise_no(r, m, "expected strides of 1, found others");
    return ones && bounds(r, m, sizes, rank, begin, end, squeeze);
}

static void slice_ints(struct raiser *r, struct meaning *m, const struct amount *values, uint32_t n)
{
    struct amount begin, end, size = teg_amount(n);
    bool squeeze;
    if (!teg_raise_slice_bounds(r, m, &size, 1, &begin, &end, &squeeze))
        return;
    if (!teg_amount_fixed(begin) || !teg_amount_fixed(end) || begin.n < 0 || end.n > n || begin.n >= end.n)
        teg_raise_no(r, m, "expected constant bounds of a shape, found others");
    else
        teg_raise_set_ints(r, m, values + begin.n, (uint32_t)(end.n - begin.n));
}

/* Of whom columns may be taken: each is one of its own. */
static bool has_columns(const struct meaning *m)
{
    return m->kind == ROWS || m->kind == TABLE || m->kind == ANGLES || m->kind == COSINES || m->kind == SINES ||
           m->kind == CACHE;
}

/* Columns begin … end - 1, each `stride`th, of n factors in one dimension: the outermost is cut where the bounds are
 * multiples of what it steps over; or one value of the innermost is left. */
static bool cut_columns(struct view *v, const struct factor *f, uint32_t n, int64_t begin, int64_t end, int64_t stride,
                        struct factor *kept, uint32_t *n_kept)
{
    const struct factor *const last = &f[n - 1];
    int64_t inner = 1;
    for (uint32_t i = 1; i < n; i++)
        inner *= f[i].size.n;
    const int64_t size = inner * f[0].size.n;
    if (begin < 0 || end > size || begin >= end)
        return false;
    *n_kept = n;
    memcpy(kept, f, n * sizeof *kept);
    if (begin % inner == 0 && end % inner == 0 && (stride == 1 || n == 1)) {
        v->offset += begin / inner * f[0].stride;
        kept[0].size = teg_amount((end / inner - begin / inner + stride - 1) / stride);
        kept[0].stride *= stride;
        return true;
    }
    if (n < 2 || stride != last->size.n || begin >= stride || (end - begin + stride - 1) / stride * stride < size)
        return false;
    v->offset += begin * last->stride;
    *n_kept = n - 1;
    return true;
}

static bool all_columns(const struct factor *f, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (f[i].axis != AXIS_COLUMNS)
            return false;
    return true;
}

/* Tokens and slots: of rows the last one, of positions any, of slots those in use. */
static bool cut_axis(struct raiser *r, struct meaning *m, struct amount size, struct amount begin, struct amount end,
                     struct factor *f)
{
    const struct amount one_before = {size.n - 1, size.t, size.p};
    const struct amount used = teg_raise_used(r);
    if (f->axis == AXIS_TOKENS && m->kind == ROWS) {
        if (!teg_amount_same(begin, one_before) || !teg_amount_same(end, size))
            return false;
        m->last = true;
        f->size = teg_amount(1);
    } else if (f->axis == AXIS_TOKENS && m->kind == POSITIONS) {
        if (!teg_amount_fixed(begin) || !teg_amount_is(end, begin.n + 1) || begin.n < 0)
            return false;
        m->add += begin.n;
        f->size = teg_amount(1);
    } else if (f->axis == AXIS_SLOTS && m->kind == MASK && teg_amount_fixed(begin) && teg_amount_fixed(end)) {
        if (begin.n < 0 || end.n > size.n || begin.n >= end.n || !teg_amount_fixed(size))
            return false;
        m->first_slot += begin.n;
        f->size = teg_amount(end.n - begin.n);
    } else {
        if (m->end_slot || f->axis != AXIS_SLOTS || !teg_amount_is(begin, 0) || !teg_amount_same(end, used))
            return false;
        f->size = end;
    }
    return true;
}

/* Cuts dimension d to begin … end by `stride`; false: that has no meaning. */
static bool cut(struct raiser *r, struct meaning *m, uint32_t d, struct amount begin, struct amount end, int64_t stride)
{
    struct view *const v = &m->view;
    const struct factor *const f = &v->factors[teg_view_begin(v, d)];
    const uint32_t n = v->count[d];
    struct factor kept[MAX_FACTORS];
    uint32_t n_kept = n;
    struct amount size;
    if (!teg_view_size(v, d, &size))
        return false;
    if (teg_amount_is(begin, 0) && teg_amount_same(end, size) && (stride == 1 || n == 0))
        return true;
    if (n == 0)
        return false;
    memcpy(kept, f, n * sizeof *kept);
    if (all_columns(f, n) && has_columns(m)) {
        if (!teg_amount_fixed(begin) || !teg_amount_fixed(end) ||
            !cut_columns(v, f, n, begin.n, end.n, stride, kept, &n_kept))
            return false;
    } else if (n != 1 || stride != 1 || !cut_axis(r, m, size, begin, end, kept)) {
        return false;
    }
    struct view out = {.offset = v->offset};
    for (uint32_t i = 0; i < v->rank; i++)
        if (!teg_view_add_dim(&out, i == d ? kept : &v->factors[teg_view_begin(v, i)], i == d ? n_kept : v->count[i]))
            return false;
    *v = out;
    return true;
}

/* Parts of a dimension that holds Q, K and V of a head, or the heads of a group: three or more, or three of equal size.
 * Two are halves that turn. */
static void pick(struct raiser *r, struct meaning *m, const struct meaning *x, uint32_t dim, bool thirds)
{
    const struct factor *const f = teg_view_single(&x->view, dim);
    if (m->kind == ROWS && f && f->axis == AXIS_COLUMNS && f->size.n >= 3 && (thirds || f->stride > 1))
        (void)teg_raise_pick(r, m);
}

/* Elements with consecutive numbers of one dimension: a slice. */
bool teg_raise_gather_slice(struct raiser *r, struct meaning *m, const struct meaning *x, const struct meaning *indices,
                            int64_t axis)
{
    const struct amount *at;
    struct amount size;
    uint32_t n;
    axis = axis < 0 ? axis + x->view.rank : axis;
    if (x->kind != ROWS || axis < 0 || axis >= x->view.rank || indices->kind != CONSTANT ||
        r->program->vars[indices->var].type.rank > 1 || !teg_raise_ints(r, indices, &at, &n) || n == 0 ||
        !teg_view_size(&x->view, (uint32_t)axis, &size) || !teg_amount_fixed(size))
        return false;
    const int64_t first = at[0].n < 0 ? at[0].n + size.n : at[0].n;
    for (uint32_t i = 0; i < n; i++)
        if (!teg_amount_fixed(at[i]) || (at[i].n < 0 ? at[i].n + size.n : at[i].n) != first + i)
            return false;
    *m = *x;
    if (!cut(r, m, (uint32_t)axis, teg_amount(first), teg_amount(first + n), 1)) {
        teg_raise_no(r, m, "expected columns that follow one another, found others");
        return true;
    }
    pick(r, m, x, (uint32_t)axis, false);
    if (m->kind == ROWS && r->program->vars[indices->var].type.rank == 0 && !teg_view_remove(&m->view, (uint32_t)axis))
        teg_raise_no(r, m, "expected a dimension of one to drop, found more");
    return true;
}

static void slice_view(struct raiser *r, struct meaning *m, const struct meaning *x)
{
    struct amount begin[TEG_MIL_MAX_RANK], end[TEG_MIL_MAX_RANK], sizes[TEG_MIL_MAX_RANK];
    bool squeeze[TEG_MIL_MAX_RANK];
    int64_t stride[TEG_MIL_MAX_RANK];
    const uint32_t rank = x->view.rank;
    for (uint32_t d = 0; d < rank; d++)
        if (!teg_view_size(&x->view, d, &sizes[d])) {
            teg_raise_no(r, m, "expected dimensions known from T and P, found others");
            return;
        }
    if (x->kind == DOUBLED_NORM)
        sizes[x->axis].n *= 2;
    if (!slice_strides(r, rank, stride)) {
        teg_raise_no(r, m, "expected constant strides of at least 1, found others");
        return;
    }
    if (!bounds(r, m, sizes, rank, begin, end, squeeze))
        return;
    *m = *x;
    if (x->kind == DOUBLED_NORM) { /* the first half is x's norm */
        m->kind = NORMED;
        if (!teg_amount_is(end[x->axis], sizes[x->axis].n / 2) || stride[x->axis] != 1) {
            teg_raise_no(r, m, "expected the first half of a norm over [x, -x], found other columns");
            return;
        }
    }
    for (uint32_t d = 0; d < rank; d++)
        if (!cut(r, m, d, begin[d], end[d], stride[d])) {
            teg_raise_no(
                r, m, "expected columns, the last token, or the slots in use, in dimension %u, found other bounds", d);
            return;
        }
    for (uint32_t d = 0; d < rank; d++)
        if (!teg_amount_is(begin[d], 0) || !teg_amount_same(end[d], sizes[d]))
            pick(r, m, x, d, begin[d].n > 0 && end[d].n < sizes[d].n && 3 * (end[d].n - begin[d].n) == sizes[d].n);
    for (uint32_t d = rank; d-- > 0 && m->kind != NOTHING;)
        if (squeeze[d] && !teg_view_remove(&m->view, d))
            teg_raise_no(r, m, "expected a dimension of one to drop, found more");
}

/* Small integers between constant bounds. */
static bool is_shape(struct raiser *r, const struct meaning *x)
{
    const struct amount *values, *begin, *end;
    uint32_t n, nb, ne;
    return teg_raise_ints(r, x, &values, &n) && teg_raise_ints(r, teg_raise_arg(r, "begin"), &begin, &nb) && nb == 1 &&
           teg_amount_fixed(begin[0]) && teg_raise_ints(r, teg_raise_arg(r, "end"), &end, &ne) && ne == 1 &&
           teg_amount_fixed(end[0]);
}

static void rule_slice(struct raiser *r, struct meaning *m)
{
    const struct meaning *const x = teg_raise_arg(r, "x");
    const struct amount *values;
    uint32_t n;
    if (x->kind == STATE || x->kind == UPDATED)
        teg_raise_read_slice(r, m, x);
    else if (teg_raise_slice_rows_of_mask(r, m, x))
        return;
    else if (x->kind == PAST)
        teg_raise_slice_past(r, m, x);
    else if (x->kind == INTEGERS || x->kind == CONSTANT) {
        if (x->kind == CONSTANT && !is_shape(r, x) && teg_raise_slice_constant(r, m, x))
            return;
        if (teg_raise_ints(r, x, &values, &n))
            slice_ints(r, m, values, n);
        else
            teg_raise_no(r, m, "expected rows or a shape, found a constant");
    } else if (teg_raise_may_move(x) || x->kind == DOUBLED_NORM)
        slice_view(r, m, x);
    else
        teg_raise_no(r, m, "expected rows, positions or a state, found another value");
}

/* The first half of [x, -x]'s norm is x's; the second has no use. */
static void split_norm(struct raiser *r, struct meaning *m, const struct meaning *x)
{
    int64_t axis = 0, parts = 0;
    uint32_t n;
    const bool halves = teg_raise_numbers(r, "axis", &axis, 1, &n) &&
                        (axis < 0 ? axis + x->view.rank : axis) == x->axis &&
                        teg_raise_numbers(r, "num_splits", &parts, 1, &n) && parts == 2;
    if (!halves || r->output > 0) {
        teg_raise_no(r, m, "expected the first half of a norm over [x, -x], found another part");
        return;
    }
    *m = *x;
    m->kind = NORMED;
}

/* Part r->output of x along an axis. */
static void rule_split(struct raiser *r, struct meaning *m)
{
    const struct meaning *const x = teg_raise_arg(r, "x");
    int64_t axis, sizes[64], parts = 0, begin = 0;
    uint32_t n = 0, n_sizes = 0;
    struct amount size;
    if (x->kind == DOUBLED_NORM) {
        split_norm(r, m, x);
        return;
    }
    if (!teg_raise_may_move(x) || !teg_raise_numbers(r, "axis", &axis, 1, &n)) {
        teg_raise_no(r, m, "expected rows, positions or a mask and a constant axis, found other operands");
        return;
    }
    axis = axis < 0 ? axis + x->view.rank : axis;
    const bool equal = teg_raise_numbers(r, "num_splits", &parts, 1, &n);
    const bool given = teg_raise_numbers(r, "split_sizes", sizes, 64, &n_sizes);
    const bool known =
        axis >= 0 && axis < x->view.rank && teg_view_size(&x->view, (uint32_t)axis, &size) && teg_amount_fixed(size);
    if (!known || (given ? n_sizes != r->op->n_outputs
                         : !equal || parts < 1 || parts != (int64_t)r->op->n_outputs || size.n % parts != 0)) {
        teg_raise_no(r, m, "expected parts of constant sizes, one for each output, found others");
        return;
    }
    const int64_t width = given ? sizes[r->output] : size.n / parts;
    for (size_t i = 0; i < r->output; i++)
        begin += given ? sizes[i] : width;
    *m = *x;
    if (!cut(r, m, (uint32_t)axis, teg_amount(begin), teg_amount(begin + width), 1))
        teg_raise_no(r, m, "expected columns to be split, found another dimension");
    else
        pick(r, m, x, (uint32_t)axis, r->op->n_outputs == 3 && width * 3 == size.n);
}

const struct teg_raise_row teg_raise_slice_rows[] = {
    {"slice_by_index", rule_slice}, {"split", rule_split}, {NULL, NULL}};
