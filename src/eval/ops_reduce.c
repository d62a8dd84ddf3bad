/* eval/ops_reduce.c: reduce_* over any set of axes, reduce_argmax and reduce_argmin, cumsum.
 *
 * Neighbouring dimensions that are both kept or both reduced are merged first. Then either the innermost group is
 * reduced, and one output is a fold over contiguous rows, or it is kept, and a block of neighbouring outputs is folded
 * side by side. Floats are folded in double, integers in 64 bits, so the order of summation never shows.
 * Invariant: an output is made by one thread, whole. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "eval/eval.h"

#define BLOCK 256 /* outputs side by side */
#define LANES 8

enum fold { FOLD_SUM, FOLD_ABS, FOLD_SQUARE, FOLD_PROD, FOLD_MAX, FOLD_MIN, FOLD_EXP };
enum finish { FINISH_NONE, FINISH_MEAN, FINISH_SQRT, FINISH_LOG };

static const struct {
    const char *type;
    enum fold fold;
    enum finish finish;
} reductions[] = {
    {"reduce_sum", FOLD_SUM, FINISH_NONE},     {"reduce_mean", FOLD_SUM, FINISH_MEAN},
    {"reduce_prod", FOLD_PROD, FINISH_NONE},   {"reduce_max", FOLD_MAX, FINISH_NONE},
    {"reduce_min", FOLD_MIN, FINISH_NONE},     {"reduce_sum_square", FOLD_SQUARE, FINISH_NONE},
    {"reduce_l1_norm", FOLD_ABS, FINISH_NONE}, {"reduce_l2_norm", FOLD_SQUARE, FINISH_SQRT},
    {"reduce_log_sum", FOLD_SUM, FINISH_LOG},  {"reduce_log_sum_exp", FOLD_EXP, FINISH_LOG},
};

struct plan {
    enum fold fold;
    enum finish finish;
    size_t n_kept, kept_size[TEG_MIL_MAX_RANK], kept_stride[TEG_MIL_MAX_RANK];
    size_t n_reduced, reduced_size[TEG_MIL_MAX_RANK], reduced_stride[TEG_MIL_MAX_RANK];
    bool columns; /* the innermost group is kept */
    size_t count; /* elements of one output */
    const struct teg_array *x;
    struct teg_array *y;
};

/* ---- folds ---- */

/* NaN wins over every number, as in numpy. */
static inline double larger(double a, double b)
{
    return a >= b || a != a ? a : b;
}

static inline double smaller(double a, double b)
{
    return a <= b || a != a ? a : b;
}

#define FOLDS(X)                                                                                                       \
    X(FOLD_SUM, a + v)                                                                                                 \
    X(FOLD_ABS, a + fabs(v))                                                                                           \
    X(FOLD_SQUARE, a + v * v)                                                                                          \
    X(FOLD_PROD, a *v)                                                                                                 \
    X(FOLD_MAX, larger(a, v))                                                                                          \
    X(FOLD_MIN, smaller(a, v))                                                                                         \
    X(FOLD_EXP, a + exp(v - shift[i]))

static const double identity[] = {[FOLD_PROD] = 1.0, [FOLD_MAX] = -INFINITY, [FOLD_MIN] = INFINITY, [FOLD_EXP] = 0.0};

/* acc[i] takes x[i], for n outputs side by side. */
static void fold_columns(enum fold fold, double *acc, const float *x, size_t n, const double *shift)
{
    switch (fold) {
#define X(name, result)                                                                                                \
    case name:                                                                                                         \
        for (size_t i = 0; i < n; i++) {                                                                               \
            const double a = acc[i], v = x[i];                                                                         \
            acc[i] = result;                                                                                           \
        }                                                                                                              \
        break;
        FOLDS(X)
#undef X
    }
}

/* acc[0] takes all n of x, in LANES partial results that vectorise. */
static void fold_row(enum fold fold, double *acc, const float *x, size_t n, const double *shift0)
{
    double lanes[LANES], shift[LANES];
    for (size_t i = 0; i < LANES; i++) {
        lanes[i] = identity[fold];
        shift[i] = shift0[0];
    }
    size_t at = 0;
    for (; at + LANES <= n; at += LANES)
        fold_columns(fold, lanes, x + at, LANES, shift);
    fold_columns(fold, lanes, x + at, n - at, shift);
    for (size_t l = 0; l < LANES; l++) {
        if (fold == FOLD_PROD)
            acc[0] *= lanes[l];
        else if (fold == FOLD_MAX)
            acc[0] = larger(acc[0], lanes[l]);
        else if (fold == FOLD_MIN)
            acc[0] = smaller(acc[0], lanes[l]);
        else
            acc[0] += lanes[l];
    }
}

/* Integers: sums and products modulo 2^64, which is right modulo 2^32 too. */
static void fold_ints(enum fold fold, int64_t *acc, const int32_t *x, size_t n, size_t acc_step)
{
    for (size_t i = 0; i < n; i++) {
        int64_t *const a = &acc[i * acc_step];
        const int64_t v = x[i];
        switch (fold) {
        case FOLD_PROD:
            *a = (int64_t)((uint64_t)*a * (uint64_t)v);
            break;
        case FOLD_MAX:
            *a = *a > v ? *a : v;
            break;
        case FOLD_MIN:
            *a = *a < v ? *a : v;
            break;
        default:
            *a = (int64_t)((uint64_t)*a + (uint64_t)(fold == FOLD_SQUARE ? v * v : fold == FOLD_ABS && v < 0 ? -v : v));
        }
    }
}

static double finish_float(const struct plan *p, double a, double shift)
{
    switch (p->finish) {
    case FINISH_MEAN:
        return a / (double)p->count;
    case FINISH_SQRT:
        return sqrt(a);
    case FINISH_LOG:
        return log(a) + shift;
    default:
        return a;
    }
}

static int32_t finish_int(const struct plan *p, int64_t a)
{
    if (p->finish == FINISH_NONE)
        return (int32_t)(uint32_t)(uint64_t)a;
    if (p->finish == FINISH_MEAN)
        return p->count ? (int32_t)(a / (int64_t)p->count) : 0;
    const double v = finish_float(p, (double)a, 0);
    return v >= 2147483647.0 ? INT32_MAX : v <= -2147483648.0 ? INT32_MIN : v != v ? 0 : (int32_t)v;
}

/* ---- the walk ---- */

struct odometer {
    size_t n, index[TEG_MIL_MAX_RANK], offset;
};

/* Next combination of the first o->n reduced groups; false after the last. */
static bool step(const struct plan *p, struct odometer *o)
{
    for (size_t d = o->n; d-- > 0;) {
        o->offset += p->reduced_stride[d];
        if (++o->index[d] < p->reduced_size[d])
            return true;
        o->offset -= p->reduced_size[d] * p->reduced_stride[d];
        o->index[d] = 0;
    }
    return false;
}

static size_t base_of(const struct plan *p, size_t output)
{
    size_t offset = 0;
    for (size_t d = p->n_kept; d-- > 0; output /= p->kept_size[d])
        offset += output % p->kept_size[d] * p->kept_stride[d];
    return offset;
}

/* Folds everything under `w` outputs that start at offset `base`. */
static void fold_block(const struct plan *p, enum fold fold, size_t base, size_t w, double *acc, const double *shift)
{
    const size_t row = p->columns ? 0 : p->reduced_size[p->n_reduced - 1];
    struct odometer o = {.n = p->columns ? p->n_reduced : p->n_reduced - 1};
    for (size_t i = 0; i < w; i++)
        acc[i] = identity[fold];
    do {
        const float *const x = p->x->f32 + base + o.offset;
        if (p->columns)
            fold_columns(fold, acc, x, w, shift);
        else
            fold_row(fold, acc, x, row, shift);
    } while (step(p, &o));
}

static void reduce_floats(const struct plan *p, size_t at, size_t base, size_t w)
{
    double acc[BLOCK], shift[BLOCK] = {0};
    if (p->fold == FOLD_EXP) {
        fold_block(p, FOLD_MAX, base, w, shift, acc);
        for (size_t i = 0; i < w; i++)
            shift[i] = isfinite(shift[i]) ? shift[i] : 0.0;
    }
    fold_block(p, p->fold, base, w, acc, shift);
    for (size_t i = 0; i < w; i++)
        p->y->f32[at + i] = (float)finish_float(p, acc[i], shift[i]);
}

static void reduce_ints(const struct plan *p, size_t at, size_t base, size_t w)
{
    static const int64_t start[] = {[FOLD_PROD] = 1, [FOLD_MAX] = INT32_MIN, [FOLD_MIN] = INT32_MAX, [FOLD_EXP] = 0};
    int64_t acc[BLOCK];
    const size_t row = p->columns ? 0 : p->reduced_size[p->n_reduced - 1];
    struct odometer o = {.n = p->columns ? p->n_reduced : p->n_reduced - 1};
    for (size_t i = 0; i < w; i++)
        acc[i] = start[p->fold];
    do {
        fold_ints(p->fold, acc, p->x->i32 + base + o.offset, p->columns ? w : row, p->columns);
    } while (step(p, &o));
    for (size_t i = 0; i < w; i++)
        p->y->i32[at + i] = finish_int(p, acc[i]);
}

static void reduce_range(void *ctx, size_t begin, size_t end)
{
    const struct plan *const p = ctx;
    const size_t inner = p->columns ? p->kept_size[p->n_kept - 1] : 1;
    for (size_t at = begin; at < end;) {
        const size_t w = p->columns ? teg_min(BLOCK, teg_min(inner - at % inner, end - at)) : 1;
        if (p->x->form == TEG_FORM_F32)
            reduce_floats(p, at, base_of(p, at), w);
        else
            reduce_ints(p, at, base_of(p, at), w);
        at += w;
    }
}

static void push(size_t *n, size_t *sizes, size_t *strides, size_t size, size_t stride)
{
    if (*n && strides[*n - 1] == size * stride) {
        sizes[*n - 1] *= size;
        strides[*n - 1] = stride;
        return;
    }
    sizes[*n] = size;
    strides[(*n)++] = stride;
}

static void plan_groups(struct plan *p, uint32_t mask)
{
    size_t stride[TEG_MIL_MAX_RANK], s = 1;
    for (uint32_t d = p->x->rank; d-- > 0; s *= p->x->dims[d])
        stride[d] = s;
    p->columns = true;
    p->count = 1;
    for (uint32_t d = 0; d < p->x->rank; d++) {
        if (p->x->dims[d] == 1)
            continue;
        p->columns = !(mask >> d & 1);
        if (p->columns) {
            push(&p->n_kept, p->kept_size, p->kept_stride, p->x->dims[d], stride[d]);
        } else {
            push(&p->n_reduced, p->reduced_size, p->reduced_stride, p->x->dims[d], stride[d]);
            p->count *= p->x->dims[d];
        }
    }
    if (p->columns && !p->n_kept)
        push(&p->n_kept, p->kept_size, p->kept_stride, 1, 1);
}

/* Dims of x with those of the mask made 1 or left out. */
static uint32_t reduced_shape(const struct teg_array *x, uint32_t mask, bool keep_dims, size_t *dims)
{
    uint32_t rank = 0;
    for (uint32_t d = 0; d < x->rank; d++)
        if (!(mask >> d & 1))
            dims[rank++] = x->dims[d];
        else if (keep_dims)
            dims[rank++] = 1;
    return rank;
}

/* The log of a sum of exponentials of integers is taken in floats. */
static enum teg_status as_floats(struct teg_eval_call *c, struct teg_array *x)
{
    void *copy;
    TRY(teg_op_scratch(c, x->n, sizeof(float), &copy));
    for (size_t i = 0; i < x->n; i++)
        ((float *)copy)[i] = (float)x->i32[i];
    x->data = copy;
    x->form = TEG_FORM_F32;
    return TEG_OK;
}

static void fill_empty(const struct plan *p)
{
    for (size_t i = 0; i < p->y->n; i++)
        if (p->y->form == TEG_FORM_F32)
            p->y->f32[i] = (float)finish_float(p, identity[p->fold], 0);
        else
            p->y->i32[i] = (int32_t)(p->fold == FOLD_PROD);
}

static enum teg_status op_reduce(struct teg_eval_call *c)
{
    const struct teg_array *x;
    struct plan p = {0};
    uint32_t mask;
    bool keep_dims;
    size_t dims[TEG_MIL_MAX_RANK];
    for (size_t i = 0; i < sizeof reductions / sizeof *reductions; i++)
        if (strcmp(reductions[i].type, c->op->type) == 0)
            p = (struct plan){.fold = reductions[i].fold, .finish = reductions[i].finish};
    TRY(teg_arg_any(c, "x", &x));
    if (x->form > TEG_FORM_I32)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter x: expected numbers, found another type");
    TRY(teg_arg_axes(c, "axes", x->rank, (1u << x->rank) - 1, &mask));
    TRY(teg_arg_bool(c, "keep_dims", false, &keep_dims));
    const uint32_t rank = reduced_shape(x, mask, keep_dims, dims);
    TRY(teg_output(c, 0, x->form, rank, dims, &p.y));
    struct teg_array view = {.form = x->form, .rank = x->rank, .n = x->n, .data = x->data};
    memcpy(view.dims, x->dims, sizeof view.dims);
    p.x = &view;
    if (!x->n) {
        fill_empty(&p);
        return TEG_OK;
    }
    plan_groups(&p, mask);
    if (p.fold == FOLD_EXP && x->form == TEG_FORM_I32) {
        struct teg_array floats = *p.y;
        TRY(as_floats(c, &view));
        void *result;
        TRY(teg_op_scratch(c, p.y->n, sizeof(float), &result));
        floats.data = result;
        struct teg_array *const ints = p.y;
        p.y = &floats;
        reduce_range(&p, 0, ints->n);
        for (size_t i = 0; i < ints->n; i++)
            ints->i32[i] = (int32_t)floats.f32[i];
        return TEG_OK;
    }
    teg_op_parallel(c, p.y->n, p.count * (p.fold == FOLD_EXP ? 16 : 1), reduce_range, &p);
    return TEG_OK;
}

/* ---- along one axis: x is [outer, n, inner] ---- */

struct axis_job {
    const struct teg_array *x;
    struct teg_array *y;
    size_t n, inner;
    bool smallest, exclusive, reverse;
};

#define ARG_LOOP(name, type, member, is_better)                                                                        \
    static size_t name(const type *x, size_t n, size_t stride, bool smallest)                                          \
    {                                                                                                                  \
        size_t best_at = 0;                                                                                            \
        type best = x[0];                                                                                              \
        for (size_t i = 1; i < n; i++) {                                                                               \
            const type v = x[i * stride];                                                                              \
            if (is_better) {                                                                                           \
                best = v;                                                                                              \
                best_at = i;                                                                                           \
            }                                                                                                          \
        }                                                                                                              \
        return best_at;                                                                                                \
    }
ARG_LOOP(arg_float, float, f32, (smallest ? v < best : v > best) || (v != v && best == best))
ARG_LOOP(arg_int, int32_t, i32, smallest ? v < best : v > best)

static void arg_range(void *ctx, size_t begin, size_t end)
{
    const struct axis_job *const j = ctx;
    for (size_t at = begin; at < end; at++) {
        const size_t base = at / j->inner * j->n * j->inner + at % j->inner;
        const size_t found = j->x->form == TEG_FORM_F32 ? arg_float(j->x->f32 + base, j->n, j->inner, j->smallest)
                                                        : arg_int(j->x->i32 + base, j->n, j->inner, j->smallest);
        j->y->i32[at] = (int32_t)found;
    }
}

static size_t inner_of(const struct teg_array *x, uint32_t axis)
{
    size_t inner = 1;
    for (uint32_t d = axis + 1; d < x->rank; d++)
        inner *= x->dims[d];
    return inner;
}

static enum teg_status arg(struct teg_eval_call *c, bool smallest)
{
    const struct teg_array *x;
    uint32_t axis;
    bool keep_dims;
    size_t dims[TEG_MIL_MAX_RANK];
    struct axis_job job = {.smallest = smallest};
    TRY(teg_arg_any(c, "x", &x));
    TRY(teg_arg_axis(c, "axis", -1, x->rank, &axis));
    TRY(teg_arg_bool(c, "keep_dims", false, &keep_dims));
    if (x->form > TEG_FORM_I32 || !x->dims[axis] || x->dims[axis] > INT32_MAX)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter x: expected numbers along the axis, found shape %s",
                teg_shape_text(x->rank, x->dims).text);
    const uint32_t rank = reduced_shape(x, 1u << axis, keep_dims, dims);
    TRY(teg_output(c, 0, TEG_FORM_I32, rank, dims, &job.y));
    job.x = x;
    job.n = x->dims[axis];
    job.inner = inner_of(x, axis);
    teg_op_parallel(c, job.y->n, job.n, arg_range, &job);
    return TEG_OK;
}

static enum teg_status op_argmax(struct teg_eval_call *c)
{
    return arg(c, false);
}

static enum teg_status op_argmin(struct teg_eval_call *c)
{
    return arg(c, true);
}

/* y = before + x, where either may be NULL: zero. */
static void add_rows(const struct teg_array *of, void *y, const void *before, const void *x, size_t n)
{
    for (size_t k = 0; k < n && of->form == TEG_FORM_F32; k++)
        ((float *)y)[k] = (before ? ((const float *)before)[k] : 0) + (x ? ((const float *)x)[k] : 0);
    for (size_t k = 0; k < n && of->form == TEG_FORM_I32; k++)
        ((uint32_t *)y)[k] = (before ? ((const uint32_t *)before)[k] : 0) + (x ? ((const uint32_t *)x)[k] : 0);
}

/* Row i is the row before plus x's row i (or, exclusive, x's row before): rows have `inner` elements. */
static void cumsum_range(void *ctx, size_t begin, size_t end)
{
    const struct axis_job *const j = ctx;
    for (size_t outer = begin; outer < end; outer++)
        for (size_t i = 0; i < j->n; i++) {
            const size_t at = (outer * j->n + (j->reverse ? j->n - 1 - i : i)) * j->inner;
            const size_t at_before = !i ? at : j->reverse ? at + j->inner : at - j->inner;
            const void *const x = j->x->i32 + (j->exclusive ? at_before : at);
            add_rows(j->x, j->y->i32 + at, i ? j->y->i32 + at_before : NULL, i || !j->exclusive ? x : NULL, j->inner);
        }
}

static enum teg_status op_cumsum(struct teg_eval_call *c)
{
    const struct teg_array *x;
    uint32_t axis;
    struct axis_job job = {0};
    TRY(teg_arg_any(c, "x", &x));
    if (x->form > TEG_FORM_I32)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter x: expected numbers, found another type");
    TRY(teg_arg_axis(c, "axis", 0, x->rank, &axis));
    TRY(teg_arg_bool(c, "exclusive", false, &job.exclusive));
    TRY(teg_arg_bool(c, "reverse", false, &job.reverse));
    TRY(teg_output(c, 0, x->form, x->rank, x->dims, &job.y));
    job.x = x;
    job.n = x->dims[axis];
    job.inner = inner_of(x, axis);
    if (x->n)
        teg_op_parallel(c, x->n / job.n / job.inner, job.n * job.inner, cumsum_range, &job);
    return TEG_OK;
}

const struct teg_eval_row teg_eval_rows_reduce[] = {
    {"reduce_sum", 6, op_reduce},     {"reduce_mean", 6, op_reduce},
    {"reduce_prod", 6, op_reduce},    {"reduce_max", 6, op_reduce},
    {"reduce_min", 6, op_reduce},     {"reduce_sum_square", 6, op_reduce},
    {"reduce_l1_norm", 6, op_reduce}, {"reduce_l2_norm", 6, op_reduce},
    {"reduce_log_sum", 6, op_reduce}, {"reduce_log_sum_exp", 6, op_reduce},
    {"reduce_argmax", 6, op_argmax},  {"reduce_argmin", 6, op_argmin},
    {"cumsum", 6, op_cumsum},         {NULL, 0, NULL},
};
