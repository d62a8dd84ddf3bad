/* pass/raise_view.c: how a tensor shows rows, and what reshape, transpose and broadcasting do to that.
 *
 * A view is a list of factors cut into dimensions. Because a reshape keeps the order of elements, it only cuts the list
 * anew: factors are split where a new dimension ends inside one. Two factors that step through columns as one would are
 * merged, so equal views are equal lists. A token or slot factor is never split. */
#include "pass/raise_int.h"

uint32_t teg_view_begin(const struct view *v, uint32_t dim)
{
    uint32_t n = 0;
    for (uint32_t d = 0; d < dim; d++)
        n += v->count[d];
    return n;
}

uint32_t teg_view_total(const struct view *v)
{
    return teg_view_begin(v, v->rank);
}

bool teg_view_size(const struct view *v, uint32_t dim, struct amount *size)
{
    struct amount s = teg_amount(1);
    const uint32_t at = teg_view_begin(v, dim);
    for (uint32_t i = 0; i < v->count[dim]; i++) {
        const struct amount f = v->factors[at + i].size;
        if (!teg_amount_fixed(s) && !teg_amount_fixed(f))
            return false;
        const struct amount x = teg_amount_fixed(s) ? f : s;
        const int64_t k = teg_amount_fixed(s) ? s.n : f.n;
        if (k < 0 || k > INT32_MAX || x.n > INT32_MAX || x.t > 1 || x.p > 1)
            return false;
        s = (struct amount){x.n * k, x.t * (int32_t)k, x.p * (int32_t)k};
    }
    *size = s;
    return true;
}

static bool joins(const struct factor *a, const struct factor *b)
{
    if (a->axis != AXIS_COLUMNS || b->axis != AXIS_COLUMNS)
        return false;
    return (a->stride == 0 && b->stride == 0) || (b->stride && a->stride == b->stride * b->size.n);
}

/* Appends a factor to the last dimension; a factor of one is none. */
static bool push(struct view *v, const struct factor *f)
{
    if (teg_amount_is(f->size, 1))
        return true;
    const uint32_t n = teg_view_total(v);
    uint32_t *const count = &v->count[v->rank - 1];
    if (*count && joins(&v->factors[n - 1], f)) {
        if (f->size.n > INT32_MAX || v->factors[n - 1].size.n > INT32_MAX / f->size.n)
            return false;
        v->factors[n - 1].size.n *= f->size.n;
        v->factors[n - 1].stride = f->stride;
        return true;
    }
    if (n == MAX_FACTORS || f->size.n > INT32_MAX || f->size.n < -INT32_MAX)
        return false;
    v->factors[n] = *f;
    (*count)++;
    return true;
}

bool teg_view_add_dim(struct view *v, const struct factor *factors, uint32_t n)
{
    if (v->rank == TEG_MIL_MAX_RANK)
        return false;
    v->count[v->rank++] = 0;
    for (uint32_t i = 0; i < n; i++)
        if (!push(v, &factors[i]))
            return false;
    return true;
}

void teg_view_columns(struct view *v, int64_t n)
{
    (void)teg_view_add_dim(v, &(struct factor){AXIS_COLUMNS, teg_amount(n), 1}, 1);
}

bool teg_view_insert(struct view *v, uint32_t dim)
{
    if (v->rank == TEG_MIL_MAX_RANK || dim > v->rank)
        return false;
    memmove(&v->count[dim + 1], &v->count[dim], (v->rank - dim) * sizeof *v->count);
    v->count[dim] = 0;
    v->rank++;
    return true;
}

bool teg_view_remove(struct view *v, uint32_t dim)
{
    if (dim >= v->rank || v->count[dim])
        return false;
    memmove(&v->count[dim], &v->count[dim + 1], (v->rank - dim - 1) * sizeof *v->count);
    v->rank--;
    return true;
}

bool teg_view_transpose(struct view *v, const int64_t *perm)
{
    struct view out = {.offset = v->offset};
    bool seen[TEG_MIL_MAX_RANK] = {false};
    for (uint32_t d = 0; d < v->rank; d++) {
        const int64_t from = perm[d] < 0 ? perm[d] + v->rank : perm[d];
        if (from < 0 || from >= v->rank || seen[from])
            return false;
        seen[from] = true;
        if (!teg_view_add_dim(&out, &v->factors[teg_view_begin(v, (uint32_t)from)], v->count[from]))
            return false;
    }
    *v = out;
    return true;
}

/* A list of factors that is used up from both ends. */
struct rest {
    struct factor f[MAX_FACTORS * 2];
    uint32_t begin, end;
};

/* Takes a dimension of `size` from one end of the rest; the factors go to `out`, outermost first. */
static bool take(struct rest *rest, struct amount size, bool from_end, struct factor *out, uint32_t *n)
{
    struct factor taken[MAX_FACTORS];
    uint32_t k = 0;
    while (!teg_amount_is(size, 1)) {
        if (rest->begin == rest->end || k == MAX_FACTORS)
            return false;
        struct factor *const f = &rest->f[from_end ? rest->end - 1 : rest->begin];
        const bool fixed = teg_amount_fixed(size) && teg_amount_fixed(f->size) && size.n > 0 && f->size.n > 0;
        if (teg_amount_same(size, f->size) || (fixed && size.n % f->size.n == 0)) {
            taken[k++] = *f;
            size = fixed ? teg_amount(size.n / f->size.n) : teg_amount(1);
            if (from_end)
                rest->end--;
            else
                rest->begin++;
        } else if (fixed && f->axis == AXIS_COLUMNS && f->size.n % size.n == 0) {
            const int64_t other = f->size.n / size.n;
            taken[k] = *f;
            taken[k++].size = size;
            if (from_end)
                f->stride *= size.n;
            else
                taken[k - 1].stride *= other;
            f->size = teg_amount(other);
            size = teg_amount(1);
        } else {
            return false;
        }
    }
    for (uint32_t i = 0; i < k; i++)
        out[i] = taken[from_end ? k - 1 - i : i];
    *n = k;
    return true;
}

bool teg_view_reshape(struct view *v, const struct amount *dims, uint32_t rank)
{
    struct rest rest = {.end = teg_view_total(v)};
    struct factor parts[TEG_MIL_MAX_RANK][MAX_FACTORS];
    uint32_t n[TEG_MIL_MAX_RANK] = {0}, free_dim = rank;
    if (rank > TEG_MIL_MAX_RANK)
        return false;
    memcpy(rest.f, v->factors, rest.end * sizeof *rest.f);
    for (uint32_t d = 0; d < rank && free_dim == rank; d++) {
        if (teg_amount_is(dims[d], -1))
            free_dim = d;
        else if (!take(&rest, dims[d], false, parts[d], &n[d]))
            return false;
    }
    for (uint32_t d = rank; d-- > free_dim + 1;)
        if (!take(&rest, dims[d], true, parts[d], &n[d]))
            return false;
    struct view out = {.offset = v->offset};
    for (uint32_t d = 0; d < rank; d++) {
        const bool is_free = d == free_dim;
        if (!teg_view_add_dim(&out, is_free ? &rest.f[rest.begin] : parts[d], is_free ? rest.end - rest.begin : n[d]))
            return false;
    }
    if (free_dim == rank && rest.begin != rest.end)
        return false;
    *v = out;
    return true;
}

static bool same_dim(const struct view *a, uint32_t da, const struct view *b, uint32_t db)
{
    const struct factor *const x = &a->factors[teg_view_begin(a, da)], *const y = &b->factors[teg_view_begin(b, db)];
    if (a->count[da] != b->count[db])
        return false;
    for (uint32_t i = 0; i < a->count[da]; i++)
        if (x[i].axis != y[i].axis || !teg_amount_same(x[i].size, y[i].size) ||
            (x[i].axis == AXIS_COLUMNS && x[i].stride != y[i].stride))
            return false;
    return true;
}

bool teg_view_same(const struct view *a, const struct view *b)
{
    if (a->rank != b->rank || a->offset != b->offset)
        return false;
    for (uint32_t d = 0; d < a->rank; d++)
        if (!same_dim(a, d, b, d))
            return false;
    return true;
}

bool teg_view_covers(const struct view *large, const struct view *small)
{
    if (small->rank != large->rank)
        return false;
    for (uint32_t d = 0; d < small->rank; d++)
        if (small->count[d] && !same_dim(large, d, small, d))
            return false;
    return true;
}

bool teg_view_broadcast(const struct view *a, const struct view *b, struct view *out)
{
    const uint32_t rank = a->rank > b->rank ? a->rank : b->rank;
    struct view v = {.offset = a->offset};
    for (uint32_t d = 0; d < rank; d++) {
        const bool in_a = d + a->rank >= rank && a->count[d + a->rank - rank];
        const bool in_b = d + b->rank >= rank && b->count[d + b->rank - rank];
        const struct view *const from = in_a ? a : b;
        const uint32_t dim = d + from->rank - rank;
        if (!in_a && !in_b) {
            if (!teg_view_add_dim(&v, NULL, 0))
                return false;
        } else if (!teg_view_add_dim(&v, &from->factors[teg_view_begin(from, dim)], from->count[dim])) {
            return false;
        }
    }
    *out = v;
    return true;
}

bool teg_view_side_by_side(const struct view *a, int64_t n, int64_t apart, uint32_t dim, struct view *out)
{
    struct factor parts[MAX_FACTORS] = {{AXIS_COLUMNS, teg_amount(n), apart}};
    struct view v = {.offset = a->offset};
    if (dim >= a->rank || a->count[dim] + 1 >= MAX_FACTORS)
        return false;
    for (uint32_t d = 0; d < a->rank; d++) {
        const struct factor *const f = &a->factors[teg_view_begin(a, d)];
        const uint32_t more = d == dim;
        memcpy(parts + 1, f, a->count[d] * sizeof *parts);
        if (!teg_view_add_dim(&v, parts + !more, a->count[d] + more))
            return false;
    }
    *out = v;
    return true;
}

bool teg_view_join(const struct view *a, const struct view *b, uint32_t dim, struct view *out)
{
    struct view there = *b;
    there.offset = a->offset;
    return teg_view_same(a, &there) && teg_view_side_by_side(a, 2, b->offset - a->offset, dim, out);
}

int64_t teg_view_width(const struct view *v)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < teg_view_total(v); i++)
        if (v->factors[i].axis == AXIS_COLUMNS && v->factors[i].stride)
            n *= v->factors[i].size.n;
    return n;
}

/* Column factors sorted by stride must each step over what the smaller ones cover. */
bool teg_view_whole(const struct view *v)
{
    const uint32_t total = teg_view_total(v);
    const int64_t width = teg_view_width(v);
    for (int64_t covered = 1; covered < width;) {
        uint32_t i = 0;
        while (i < total && !(v->factors[i].axis == AXIS_COLUMNS && v->factors[i].stride == covered))
            i++;
        if (i == total)
            return false;
        covered *= v->factors[i].size.n;
    }
    for (uint32_t i = 0; i < total; i++)
        if (v->factors[i].axis == AXIS_COLUMNS && v->factors[i].stride == 0)
            return false;
    return true;
}

const struct factor *teg_view_single(const struct view *v, uint32_t dim)
{
    return dim < v->rank && v->count[dim] == 1 ? &v->factors[teg_view_begin(v, dim)] : NULL;
}

bool teg_view_has(const struct view *v, enum axis axis)
{
    for (uint32_t i = 0; i < teg_view_total(v); i++)
        if (v->factors[i].axis == axis)
            return true;
    return false;
}
