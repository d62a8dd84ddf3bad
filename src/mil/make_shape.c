/* mil/make_shape.c: rules of the ops that move elements: their result's shape comes from numbers that may be known only
 * at run time; then that dimension is unknown, never wrong. */
#include <string.h>

#include "base/check.h"
#include "mil/make_int.h"

static bool of_tensor(struct teg_mil_making *o, const char *name)
{
    const struct teg_mil_type *const t = teg_mil_making_type(o, name);
    o->out[0] = *t;
    if (t->kind != TEG_MIL_TENSOR || t->rank < 0)
        return teg_mil_op_fail(o, "expected '%s' to be a tensor of known rank, found another", name);
    return true;
}

/* A parameter that is a vector of n numbers, known or not. n < 0: any. */
static bool vector(struct teg_mil_making *o, const char *name, int64_t n, struct teg_mil_known *known)
{
    if (!teg_mil_known_arg(o, name, known) || known->is_scalar || (n >= 0 && known->n != (uint64_t)n))
        return teg_mil_op_fail(o, "expected '%s' to be %lld whole numbers, found another value", name, (long long)n);
    return true;
}

static int64_t dim_of(int64_t known)
{
    return known == TEG_MIL_ANY ? TEG_MIL_UNKNOWN : known;
}

static void resize(struct teg_mil_type *t, int32_t rank)
{
    for (int32_t i = rank; i < TEG_MIL_MAX_RANK; i++)
        t->dims[i] = 0;
    t->rank = rank;
}

/* ---- reshape, transpose, expand_dims, squeeze ---- */

/* -1 in the shape: what is left, where everything else is known; 0: copied. */
bool teg_mil_rule_reshape(struct teg_mil_making *o)
{
    const struct teg_mil_type x = *teg_mil_making_type(o, "x");
    struct teg_mil_known shape;
    size_t all = 0, rest = 1;
    int32_t open = -1;
    bool is_known = true;
    if (!of_tensor(o, "x") || !vector(o, "shape", -1, &shape))
        return false;
    if (shape.n > TEG_MIL_MAX_RANK)
        return teg_mil_op_fail(o, "expected a shape of rank %d at most, found %u", TEG_MIL_MAX_RANK, shape.n);
    resize(&o->out[0], (int32_t)shape.n);
    for (int32_t i = 0; i < o->out[0].rank; i++) {
        int64_t d = shape.at[i];
        const int32_t from = o->opset >= 8 ? i + x.rank - o->out[0].rank : i;
        if (d == 0)
            d = from >= 0 && from < x.rank ? x.dims[from] : 1;
        else if (d == -1 && open >= 0)
            return teg_mil_op_fail(o, "expected one -1 in 'shape', found two");
        else if (d == -1)
            open = i;
        o->out[0].dims[i] = d == TEG_MIL_ANY ? TEG_MIL_UNKNOWN : d;
        is_known = is_known && d != TEG_MIL_ANY && (d >= 0 || open == i);
        if (d > 0 && !teg_mul(rest, (size_t)d, &rest))
            return teg_mil_op_fail(o, "expected a shape that fits in memory, found a larger one");
    }
    if (!teg_mil_count(&x, &all) || !is_known) {
        if (open >= 0)
            o->out[0].dims[open] = TEG_MIL_UNKNOWN;
        return true;
    }
    if (open >= 0 && rest && all % rest == 0)
        o->out[0].dims[open] = (int64_t)(all / rest);
    else if (open >= 0 || rest != all)
        return teg_mil_op_fail(o, "expected a shape of %zu elements, found one of %zu", all, rest);
    return true;
}

bool teg_mil_rule_transpose(struct teg_mil_making *o)
{
    const struct teg_mil_type x = *teg_mil_making_type(o, "x");
    struct teg_mil_known perm;
    uint32_t seen = 0;
    if (!of_tensor(o, "x") || !vector(o, "perm", x.rank, &perm))
        return false;
    for (int32_t i = 0; i < x.rank; i++) {
        const int64_t p = perm.at[i] < 0 ? perm.at[i] + x.rank : perm.at[i];
        if (p < 0 || p >= x.rank || seen >> p & 1)
            return teg_mil_op_fail(o, "expected 'perm' to be a permutation of %d axes, found another", x.rank);
        seen |= 1u << p;
        o->out[0].dims[i] = x.dims[p];
    }
    return true;
}

/* Axes as a set; those of the result where it is the larger. */
static bool axes_of(struct teg_mil_making *o, int32_t rank, uint32_t *set, uint32_t *n)
{
    struct teg_mil_known axes;
    if (!teg_mil_known_arg(o, "axes", &axes))
        return teg_mil_op_fail(o, "expected constant 'axes', found another value");
    const int32_t all = rank < 0 ? -rank - 1 + (int32_t)axes.n : rank;
    *set = 0;
    *n = axes.n;
    if (all > TEG_MIL_MAX_RANK)
        return teg_mil_op_fail(o, "expected a result of rank %d at most, found %d", TEG_MIL_MAX_RANK, all);
    for (uint32_t i = 0; i < axes.n; i++) {
        const int64_t a = axes.at[i] < 0 && axes.at[i] != TEG_MIL_ANY ? axes.at[i] + all : axes.at[i];
        if (a < 0 || a >= all || *set >> a & 1)
            return teg_mil_op_fail(o, "expected different 'axes' of rank %d, found %lld", all, (long long)axes.at[i]);
        *set |= 1u << a;
    }
    return true;
}

bool teg_mil_rule_expand_dims(struct teg_mil_making *o)
{
    const struct teg_mil_type x = *teg_mil_making_type(o, "x");
    uint32_t set, n;
    if (!of_tensor(o, "x") || !axes_of(o, -x.rank - 1, &set, &n))
        return false;
    resize(&o->out[0], x.rank + (int32_t)n);
    for (int32_t i = 0, from = 0; i < o->out[0].rank; i++)
        o->out[0].dims[i] = set >> i & 1 ? 1 : x.dims[from++];
    return true;
}

bool teg_mil_rule_squeeze(struct teg_mil_making *o)
{
    const struct teg_mil_type x = *teg_mil_making_type(o, "x");
    uint32_t set = 0, n;
    int32_t rank = 0;
    if (!of_tensor(o, "x") || (teg_mil_making_arg(o, "axes") && !axes_of(o, x.rank, &set, &n)))
        return false;
    for (int32_t i = 0; i < x.rank; i++)
        if (x.dims[i] != 1 || (teg_mil_making_arg(o, "axes") && !(set >> i & 1)))
            o->out[0].dims[rank++] = x.dims[i];
    resize(&o->out[0], rank);
    return true;
}

/* ---- concat, stack, split ---- */

static const struct teg_mil_type *value_type(const struct teg_mil_making *o, size_t i)
{
    return &o->m->program->vars[teg_mil_making_arg(o, "values")->vars[i]].type;
}

bool teg_mil_rule_concat(struct teg_mil_making *o)
{
    const size_t n = teg_mil_making_arg(o, "values")->n_vars;
    int32_t axis;
    if (!of_tensor(o, "values") || !teg_mil_making_axis(o, "axis", 0, o->out[0].rank, &axis))
        return false;
    for (size_t i = 1; i < n; i++) {
        const struct teg_mil_type *const t = value_type(o, i);
        bool ok = t->kind == TEG_MIL_TENSOR && t->rank == o->out[0].rank && t->dtype == o->out[0].dtype;
        for (int32_t d = 0; ok && d < t->rank; d++) {
            int64_t *const dim = &o->out[0].dims[d];
            if (d == axis)
                *dim = *dim < 0 || t->dims[d] < 0 ? TEG_MIL_UNKNOWN : *dim + t->dims[d];
            else if (*dim == TEG_MIL_UNKNOWN)
                *dim = t->dims[d];
            else
                ok = t->dims[d] == *dim || t->dims[d] == TEG_MIL_UNKNOWN;
        }
        if (!ok)
            return teg_mil_op_fail(
                o, "expected values of one type that differ only along axis %d, found another at %zu", axis, i);
    }
    return true;
}

bool teg_mil_rule_stack(struct teg_mil_making *o)
{
    const size_t n = teg_mil_making_arg(o, "values")->n_vars;
    const struct teg_mil_type x = *value_type(o, 0);
    int32_t axis;
    if (!of_tensor(o, "values") || !teg_mil_making_axis(o, "axis", 0, x.rank + 1, &axis))
        return false;
    for (size_t i = 1; i < n; i++)
        if (!teg_mil_same_type(&x, value_type(o, i)))
            return teg_mil_op_fail(o, "expected values of one type, found another at %zu", i);
    if (x.rank == TEG_MIL_MAX_RANK)
        return teg_mil_op_fail(o, "expected a result of rank %d at most, found more", TEG_MIL_MAX_RANK);
    resize(&o->out[0], x.rank + 1);
    for (int32_t i = 0; i <= x.rank; i++)
        o->out[0].dims[i] = i == axis ? (int64_t)n : x.dims[i < axis ? i : i - 1];
    return true;
}

bool teg_mil_rule_split(struct teg_mil_making *o)
{
    const struct teg_mil_type x = *teg_mil_making_type(o, "x");
    struct teg_mil_known sizes = {0};
    int64_t splits, sum = 0;
    int32_t axis;
    if (!of_tensor(o, "x") || !teg_mil_making_axis(o, "axis", 0, x.rank, &axis) ||
        !teg_mil_making_int(o, "num_splits", (int64_t)o->n_out, &splits))
        return false;
    const bool has_sizes = teg_mil_making_arg(o, "split_sizes") != NULL;
    if (has_sizes && !vector(o, "split_sizes", (int64_t)o->n_out, &sizes))
        return false;
    if (splits != (int64_t)o->n_out || !splits || (!has_sizes && x.dims[axis] % splits))
        return teg_mil_op_fail(o, "expected %lld equal parts of %lld, found room for %zu", (long long)splits,
                               (long long)x.dims[axis], o->n_out);
    for (size_t i = 0; i < o->n_out; i++) {
        o->out[i] = x;
        if (x.dims[axis] >= 0)
            o->out[i].dims[axis] = has_sizes ? dim_of(sizes.at[i]) : x.dims[axis] / splits;
        sum += o->out[i].dims[axis];
    }
    return x.dims[axis] < 0 || sum == x.dims[axis] ||
           teg_mil_op_fail(o, "expected parts that sum to %lld, found %lld", (long long)x.dims[axis], (long long)sum);
}

/* ---- slices ---- */

struct slice {
    struct teg_mil_known begin, end, stride, begin_mask, end_mask, squeeze_mask;
};

static bool read_slice(struct teg_mil_making *o, int32_t rank, struct slice *s)
{
    const struct {
        const char *name;
        struct teg_mil_known *to;
        int64_t absent;
    } rows[] = {{"stride", &s->stride, 1},
                {"begin_mask", &s->begin_mask, 0},
                {"end_mask", &s->end_mask, 0},
                {"squeeze_mask", &s->squeeze_mask, 0}};
    if (!vector(o, "begin", rank, &s->begin) || !vector(o, "end", rank, &s->end))
        return false;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (teg_mil_making_arg(o, rows[i].name)) {
            if (!vector(o, rows[i].name, rank, rows[i].to))
                return false;
            continue;
        }
        rows[i].to->n = (uint32_t)rank;
        for (int32_t d = 0; d < rank; d++)
            rows[i].to->at[d] = rows[i].absent;
    }
    return true;
}

static int64_t clamp(int64_t v, int64_t n)
{
    v = v < 0 ? v + n : v;
    return v < 0 ? 0 : v > n ? n : v;
}

/* Elements of one sliced dimension, or unknown. */
static int64_t slice_dim(const struct slice *s, int32_t d, int64_t n)
{
    const bool from_start = s->begin_mask.at[d] != 0, to_end = s->end_mask.at[d] != 0;
    const int64_t b = s->begin.at[d], e = s->end.at[d], stride = s->stride.at[d];
    if (n == 1 && stride == 1)
        return 1; /* as Apple's tools infer it, whatever begin and end */
    if (from_start && to_end && (stride == 1 || stride == -1))
        return n;
    if (stride == TEG_MIL_ANY || stride < 1)
        return TEG_MIL_UNKNOWN;
    const bool begins = from_start || b != TEG_MIL_ANY, ends = to_end || e != TEG_MIL_ANY;
    if (n < 0) { /* known where both ends count from the same side */
        const int64_t begin = from_start ? 0 : b;
        if (!begins || !ends || to_end || (begin < 0) != (e < 0) || e < begin)
            return begins && to_end && !from_start && b < 0 ? (-b + stride - 1) / stride : TEG_MIL_UNKNOWN;
        return (e - begin + stride - 1) / stride;
    }
    if (!begins || !ends)
        return TEG_MIL_UNKNOWN;
    const int64_t begin = from_start ? 0 : clamp(b, n), end = to_end ? n : clamp(e, n);
    return end > begin ? (end - begin + stride - 1) / stride : 0;
}

static bool slice_shape(struct teg_mil_making *o, const struct teg_mil_type *x, struct teg_mil_type *out)
{
    struct slice s = {0};
    int32_t rank = 0;
    if (!read_slice(o, x->rank, &s))
        return false;
    *out = *x;
    for (int32_t d = 0; d < x->rank; d++)
        if (!s.squeeze_mask.at[d])
            out->dims[rank++] = slice_dim(&s, d, x->dims[d]);
    resize(out, rank);
    return true;
}

bool teg_mil_rule_slice_by_index(struct teg_mil_making *o)
{
    const struct teg_mil_type x = *teg_mil_making_type(o, "x");
    return of_tensor(o, "x") && slice_shape(o, &x, &o->out[0]);
}

bool teg_mil_rule_slice_update(struct teg_mil_making *o)
{
    const struct teg_mil_type x = *teg_mil_making_type(o, "x"), update = *teg_mil_making_type(o, "update");
    struct teg_mil_type slice;
    if (!of_tensor(o, "x") || !slice_shape(o, &x, &slice))
        return false;
    bool ok = update.kind == TEG_MIL_TENSOR && update.rank == slice.rank && update.dtype == x.dtype && update.rank > 0;
    for (int32_t d = 0; ok && d < slice.rank; d++)
        ok = slice.dims[d] == update.dims[d] || slice.dims[d] < 0 || update.dims[d] < 0;
    return ok || teg_mil_op_fail(o, "expected 'update' of the slice's type and shape, found another");
}

bool teg_mil_rule_slice_by_size(struct teg_mil_making *o)
{
    const struct teg_mil_type x = *teg_mil_making_type(o, "x");
    struct teg_mil_known begin, size;
    if (!of_tensor(o, "x") || !vector(o, "begin", x.rank, &begin) || !vector(o, "size", x.rank, &size))
        return false;
    for (int32_t d = 0; d < x.rank; d++) {
        const int64_t n = x.dims[d], b = begin.at[d] < 0 && begin.at[d] != TEG_MIL_ANY ? begin.at[d] + n : begin.at[d];
        const bool to_end = size.at[d] == -1;
        o->out[0].dims[d] = !to_end                               ? dim_of(size.at[d])
                            : begin.at[d] == TEG_MIL_ANY || n < 0 ? TEG_MIL_UNKNOWN
                                                                  : n - b;
        if (n >= 0 && o->out[0].dims[d] > n)
            return teg_mil_op_fail(o, "expected a size of %lld at most on axis %d, found %lld", (long long)n, d,
                                   (long long)size.at[d]);
    }
    return true;
}

/* ---- tile, pad, shape, fill, range_1d ---- */

bool teg_mil_rule_tile(struct teg_mil_making *o)
{
    struct teg_mil_known reps;
    if (!of_tensor(o, "x") || !vector(o, "reps", o->out[0].rank, &reps))
        return false;
    for (int32_t d = 0; d < o->out[0].rank; d++) {
        int64_t *const dim = &o->out[0].dims[d];
        *dim = reps.at[d] == TEG_MIL_ANY || *dim < 0 ? (reps.at[d] == 1 ? *dim : TEG_MIL_UNKNOWN) : *dim * reps.at[d];
    }
    return true;
}

/* Two for each of the last dimensions. */
bool teg_mil_rule_pad(struct teg_mil_making *o)
{
    struct teg_mil_known pad;
    if (!of_tensor(o, "x") || !vector(o, "pad", -1, &pad))
        return false;
    const int32_t first = o->out[0].rank - (int32_t)(pad.n / 2);
    if (pad.n % 2 || first < 0)
        return teg_mil_op_fail(o, "expected two numbers for each padded dimension of rank %d, found %u", o->out[0].rank,
                               pad.n);
    for (uint32_t i = 0; i < pad.n; i += 2) {
        int64_t *const dim = &o->out[0].dims[first + (int32_t)(i / 2)];
        const int64_t before = pad.at[i], after = pad.at[i + 1];
        if (before == 0 && after == 0)
            continue;
        *dim = before == TEG_MIL_ANY || after == TEG_MIL_ANY || *dim < 0 ? TEG_MIL_UNKNOWN : *dim + before + after;
    }
    return true;
}

bool teg_mil_rule_shape(struct teg_mil_making *o)
{
    if (!of_tensor(o, "x"))
        return false;
    const int32_t rank = o->out[0].rank;
    resize(&o->out[0], 1);
    o->out[0].dims[0] = rank;
    o->out[0].dtype = TEG_MIL_INT32;
    return true;
}

bool teg_mil_rule_fill(struct teg_mil_making *o)
{
    const struct teg_mil_type *const value = teg_mil_making_type(o, "value");
    struct teg_mil_known shape;
    if (!vector(o, "shape", -1, &shape) || shape.n > TEG_MIL_MAX_RANK)
        return teg_mil_op_fail(o, "expected 'shape' of at most %d whole numbers, found another value",
                               TEG_MIL_MAX_RANK);
    o->out[0] = (struct teg_mil_type){.kind = TEG_MIL_TENSOR, .dtype = value->dtype, .rank = (int32_t)shape.n};
    for (uint32_t i = 0; i < shape.n; i++)
        o->out[0].dims[i] = dim_of(shape.at[i]);
    return true;
}

bool teg_mil_rule_range_1d(struct teg_mil_making *o)
{
    const struct teg_mil_type *const end = teg_mil_making_type(o, "end");
    struct teg_mil_known start, stop, step;
    o->out[0] = (struct teg_mil_type){.kind = TEG_MIL_TENSOR, .dtype = end->dtype, .rank = 1};
    o->out[0].dims[0] = TEG_MIL_UNKNOWN;
    if (!teg_mil_making_rank(o, "start", 0) || !teg_mil_making_rank(o, "end", 0) || !teg_mil_making_rank(o, "step", 0))
        return false;
    if (!teg_mil_known_arg(o, "start", &start) || !teg_mil_known_arg(o, "end", &stop) ||
        !teg_mil_known_arg(o, "step", &step) || start.at[0] == TEG_MIL_ANY || stop.at[0] == TEG_MIL_ANY ||
        step.at[0] == TEG_MIL_ANY || step.at[0] < 1)
        return true;
    const int64_t n = stop.at[0] - start.at[0] + step.at[0] - 1;
    o->out[0].dims[0] = n > 0 ? n / step.at[0] : 0;
    return true;
}

/* ---- gather ---- */

bool teg_mil_rule_gather(struct teg_mil_making *o)
{
    const struct teg_mil_type x = *teg_mil_making_type(o, "x"), indices = *teg_mil_making_type(o, "indices");
    int64_t batch;
    int32_t axis, rank = 0;
    if (!of_tensor(o, "indices") || !of_tensor(o, "x") || !teg_mil_making_axis(o, "axis", 0, x.rank, &axis) ||
        !teg_mil_making_int(o, "batch_dims", 0, &batch))
        return false;
    if (batch < 0 || batch > axis || batch > indices.rank || x.rank - 1 + indices.rank - batch > TEG_MIL_MAX_RANK)
        return teg_mil_op_fail(o, "expected 'batch_dims' up to 'axis' and a result of rank %d at most, found %lld",
                               TEG_MIL_MAX_RANK, (long long)batch);
    const enum teg_mil_class class_ = teg_mil_dtype_info(indices.dtype)->class_;
    if (class_ != TEG_MIL_CLASS_INT && class_ != TEG_MIL_CLASS_UINT)
        return teg_mil_op_fail(o, "expected whole numbers as 'indices', found %s",
                               teg_mil_dtype_info(indices.dtype)->name);
    for (int32_t i = 0; i < axis; i++)
        o->out[0].dims[rank++] = x.dims[i];
    for (int32_t i = (int32_t)batch; i < indices.rank; i++)
        o->out[0].dims[rank++] = indices.dims[i];
    for (int32_t i = axis + 1; i < x.rank; i++)
        o->out[0].dims[rank++] = x.dims[i];
    resize(&o->out[0], rank);
    return true;
}

bool teg_mil_rule_gather_along_axis(struct teg_mil_making *o)
{
    const struct teg_mil_type x = *teg_mil_making_type(o, "x"), indices = *teg_mil_making_type(o, "indices");
    int32_t axis;
    if (!of_tensor(o, "x") || !teg_mil_making_rank(o, "indices", x.rank) ||
        !teg_mil_making_axis(o, "axis", 0, x.rank, &axis))
        return false;
    o->out[0].dims[axis] = indices.dims[axis];
    return true;
}
