/* eval/ops_norm.c: batch_norm, instance_norm, layer_norm, l2_norm, local_response_norm.
 *
 * Sums are taken in double over lanes of floats: a mean over a picture loses nothing, and the variance is computed from
 * the differences to the mean, never as E[x²] - E[x]². layer_norm over other axes than the last ones walks a table of
 * offsets; everything else is contiguous runs. (softmax: ops_softmax.c.) */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "eval/eval.h"

#define LANES 8

static double sum(const float *x, size_t n)
{
    double lane[LANES] = {0}, total = 0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t l = 0; l < LANES; l++)
            lane[l] += (double)x[i + l];
    for (; i < n; i++)
        total += (double)x[i];
    for (size_t l = 0; l < LANES; l++)
        total += lane[l];
    return total;
}

/* Sum of (x - mean)². */
static double sum_of_squares(const float *x, size_t n, double mean)
{
    double lane[LANES] = {0}, total = 0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t l = 0; l < LANES; l++) {
            const double d = (double)x[i + l] - mean;
            lane[l] += d * d;
        }
    for (; i < n; i++)
        total += ((double)x[i] - mean) * ((double)x[i] - mean);
    for (size_t l = 0; l < LANES; l++)
        total += lane[l];
    return total;
}

/* y = (x - mean) · scale + shift */
static void apply(const float *x, float *y, size_t n, float mean, float scale, float shift)
{
    for (size_t i = 0; i < n; i++)
        y[i] = (x[i] - mean) * scale + shift;
}

/* x and an output of its shape, with at least `rank` dims. */
static enum teg_status start(struct teg_eval_call *c, uint32_t rank, const struct teg_array **x, struct teg_array **y)
{
    TRY(teg_arg_form(c, "x", TEG_FORM_F32, x));
    if ((*x)->rank < rank)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter x: expected rank %u or more, found shape %s", rank,
                teg_shape_text((*x)->rank, (*x)->dims).text);
    TRY(teg_output(c, 0, TEG_FORM_F32, (*x)->rank, (*x)->dims, y));
    return TEG_OK;
}

/* One value for each of n; NULL where the parameter is absent. */
static enum teg_status values_for(struct teg_eval_call *c, const char *name, size_t n, bool required,
                                  const float **values)
{
    const struct teg_array *a;
    *values = NULL;
    if (!required && !teg_arg(c, name))
        return TEG_OK;
    TRY(teg_arg_form(c, name, TEG_FORM_F32, &a));
    if (a->n != n)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter %s: expected %zu values, found shape %s", name, n,
                teg_shape_text(a->rank, a->dims).text);
    *values = a->f32;
    return TEG_OK;
}

struct norm {
    const float *x;
    float *y;
    size_t n;        /* elements of a run */
    size_t channels; /* run i belongs to channel i % channels */
    float epsilon;
    const float *mean, *variance, *gamma, *beta;
};

/* Product of the dims from `from` on. */
static size_t volume(const struct teg_array *a, uint32_t from)
{
    size_t n = 1;
    for (uint32_t d = from; d < a->rank; d++)
        n *= a->dims[d];
    return n;
}

/* ---- batch_norm, instance_norm ---- */

static void batch_norm_runs(void *ctx, size_t begin, size_t end)
{
    const struct norm *const o = ctx;
    for (size_t i = begin; i < end; i++) {
        const size_t ch = i % o->channels;
        const float scale = (o->gamma ? o->gamma[ch] : 1.0f) / sqrtf(o->variance[ch] + o->epsilon);
        apply(o->x + i * o->n, o->y + i * o->n, o->n, o->mean[ch], scale, o->beta ? o->beta[ch] : 0.0f);
    }
}

static void instance_norm_runs(void *ctx, size_t begin, size_t end)
{
    const struct norm *const o = ctx;
    for (size_t i = begin; i < end; i++) {
        const float *const x = o->x + i * o->n;
        const size_t ch = i % o->channels;
        const double mean = sum(x, o->n) / (double)o->n;
        const double variance = sum_of_squares(x, o->n, mean) / (double)o->n;
        const double scale = (o->gamma ? (double)o->gamma[ch] : 1.0) / sqrt(variance + (double)o->epsilon);
        apply(x, o->y + i * o->n, o->n, (float)mean, (float)scale, o->beta ? o->beta[ch] : 0.0f);
    }
}

static enum teg_status norm_by_channel(struct teg_eval_call *c, bool given, void (*runs)(void *, size_t, size_t))
{
    const struct teg_array *x;
    struct teg_array *y;
    struct norm o = {0};
    TRY(start(c, given ? 2 : 3, &x, &y));
    o.channels = x->dims[1];
    if (given) {
        TRY(values_for(c, "mean", o.channels, true, &o.mean));
        TRY(values_for(c, "variance", o.channels, true, &o.variance));
    }
    TRY(values_for(c, "gamma", o.channels, false, &o.gamma));
    TRY(values_for(c, "beta", o.channels, false, &o.beta));
    TRY(teg_arg_float(c, "epsilon", 1e-5f, &o.epsilon));
    if (!y->n)
        return TEG_OK;
    o.n = volume(x, 2);
    o.x = x->f32;
    o.y = y->f32;
    teg_op_parallel(c, y->n / o.n, 4 * o.n, runs, &o);
    return TEG_OK;
}

static enum teg_status op_batch_norm(struct teg_eval_call *c)
{
    return norm_by_channel(c, true, batch_norm_runs);
}

static enum teg_status op_instance_norm(struct teg_eval_call *c)
{
    return norm_by_channel(c, false, instance_norm_runs);
}

/* ---- layer_norm ---- */

struct layer_norm {
    struct norm o;
    const size_t *inner; /* offset of each element of a group; NULL: contiguous */
    uint32_t n_kept;     /* dims that are not normalized: their sizes and strides */
    size_t kept[TEG_MIL_MAX_RANK], kept_stride[TEG_MIL_MAX_RANK];
};

static void layer_norm_run(const struct norm *o, const float *x, float *y)
{
    const double mean = sum(x, o->n) / (double)o->n;
    const double scale = 1.0 / sqrt(sum_of_squares(x, o->n, mean) / (double)o->n + (double)o->epsilon);
    apply(x, y, o->n, (float)mean, (float)scale, 0.0f);
    for (size_t i = 0; o->gamma && i < o->n; i++)
        y[i] *= o->gamma[i];
    for (size_t i = 0; o->beta && i < o->n; i++)
        y[i] += o->beta[i];
}

static void layer_norm_strided(const struct layer_norm *l, const float *x, float *y)
{
    const struct norm *const o = &l->o;
    double total = 0, squares = 0;
    for (size_t i = 0; i < o->n; i++)
        total += (double)x[l->inner[i]];
    const double mean = total / (double)o->n;
    for (size_t i = 0; i < o->n; i++)
        squares += ((double)x[l->inner[i]] - mean) * ((double)x[l->inner[i]] - mean);
    const float scale = (float)(1.0 / sqrt(squares / (double)o->n + (double)o->epsilon));
    for (size_t i = 0; i < o->n; i++) {
        const float v = (x[l->inner[i]] - (float)mean) * scale;
        y[l->inner[i]] = v * (o->gamma ? o->gamma[i] : 1.0f) + (o->beta ? o->beta[i] : 0.0f);
    }
}

static void layer_norm_runs(void *ctx, size_t begin, size_t end)
{
    const struct layer_norm *const l = ctx;
    for (size_t i = begin; i < end; i++) {
        size_t at = l->inner ? 0 : i * l->o.n, rest = i;
        for (uint32_t d = l->n_kept; l->inner && d-- > 0; rest /= l->kept[d])
            at += rest % l->kept[d] * l->kept_stride[d];
        if (l->inner)
            layer_norm_strided(l, l->o.x + at, l->o.y + at);
        else
            layer_norm_run(&l->o, l->o.x + at, l->o.y + at);
    }
}

/* Splits x's dims into kept and normalized ones and lists the offsets of a group's elements in row-major order. */
static enum teg_status split_axes(struct teg_eval_call *c, const struct teg_array *x, uint32_t mask,
                                  struct layer_norm *l)
{
    size_t strides[TEG_MIL_MAX_RANK], step = 1;
    for (uint32_t d = x->rank; d-- > 0; step *= x->dims[d])
        strides[d] = step;
    for (uint32_t d = 0; d < x->rank; d++)
        if (!(mask >> d & 1)) {
            l->kept[l->n_kept] = x->dims[d];
            l->kept_stride[l->n_kept++] = strides[d];
        }
    if (mask == ((1u << x->rank) - 1u) >> l->n_kept << l->n_kept) /* the last dims */
        return TEG_OK;
    size_t *inner;
    TRY(teg_op_scratch(c, l->o.n, sizeof *inner, (void **)&inner));
    for (size_t i = 0; i < l->o.n; i++) {
        size_t rest = i;
        inner[i] = 0;
        for (uint32_t d = x->rank; d-- > 0;)
            if (mask >> d & 1) {
                inner[i] += rest % x->dims[d] * strides[d];
                rest /= x->dims[d];
            }
    }
    l->inner = inner;
    return TEG_OK;
}

static enum teg_status op_layer_norm(struct teg_eval_call *c)
{
    const struct teg_array *x;
    struct teg_array *y;
    struct layer_norm l = {0};
    uint32_t mask;
    TRY(start(c, 0, &x, &y));
    TRY(teg_arg_axes(c, "axes", x->rank, (1u << x->rank) - 1u, &mask));
    TRY(teg_arg_float(c, "epsilon", 1e-5f, &l.o.epsilon));
    l.o.n = 1;
    for (uint32_t d = 0; d < x->rank; d++)
        if (mask >> d & 1 && !teg_mul(l.o.n, x->dims[d], &l.o.n))
            OP_FAIL(c, TEG_ERR_FORMAT, "parameter axes: expected a size that can be addressed, found an overflow");
    TRY(values_for(c, "gamma", l.o.n, false, &l.o.gamma));
    TRY(values_for(c, "beta", l.o.n, false, &l.o.beta));
    if (!y->n)
        return TEG_OK;
    TRY(split_axes(c, x, mask, &l));
    l.o.x = x->f32;
    l.o.y = y->f32;
    teg_op_parallel(c, y->n / l.o.n, 8 * l.o.n, layer_norm_runs, &l);
    return TEG_OK;
}

/* ---- l2_norm ---- */

static void l2_norm_runs(void *ctx, size_t begin, size_t end)
{
    const struct norm *const o = ctx;
    for (size_t i = begin; i < end; i++) {
        const float *const x = o->x + i * o->n;
        const double scale = 1.0 / sqrt(sum_of_squares(x, o->n, 0.0) + (double)o->epsilon);
        apply(x, o->y + i * o->n, o->n, 0.0f, (float)scale, 0.0f);
    }
}

static enum teg_status op_l2_norm(struct teg_eval_call *c)
{
    const struct teg_array *x;
    struct teg_array *y;
    struct norm o = {0};
    TRY(start(c, 3, &x, &y));
    TRY(teg_arg_float(c, "epsilon", 1e-6f, &o.epsilon));
    if (!y->n)
        return TEG_OK;
    o.n = volume(x, x->rank - 3);
    o.x = x->f32;
    o.y = y->f32;
    teg_op_parallel(c, y->n / o.n, 4 * o.n, l2_norm_runs, &o);
    return TEG_OK;
}

/* ---- local_response_norm ---- */

struct response_norm {
    const float *x;
    float *y;
    size_t channels, plane;
    size_t before, after; /* neighbours on either side */
    float scale, beta, k; /* scale: alpha / size */
};

static void response_norm_planes(void *ctx, size_t begin, size_t end)
{
    const struct response_norm *const o = ctx;
    for (size_t i = begin; i < end; i++) {
        const size_t ch = i % o->channels, image = i - ch;
        const size_t first = ch > o->before ? ch - o->before : 0;
        const size_t last = o->after < o->channels - ch ? ch + o->after : o->channels - 1;
        float *const y = o->y + i * o->plane;
        memset(y, 0, o->plane * sizeof *y);
        for (size_t j = first; j <= last; j++) {
            const float *const x = o->x + (image + j) * o->plane;
            for (size_t p = 0; p < o->plane; p++)
                y[p] += x[p] * x[p];
        }
        const float *const x = o->x + i * o->plane;
        for (size_t p = 0; p < o->plane; p++)
            y[p] = x[p] / powf(o->k + o->scale * y[p], o->beta);
    }
}

static enum teg_status op_local_response_norm(struct teg_eval_call *c)
{
    const struct teg_array *x;
    struct teg_array *y;
    struct response_norm o = {0};
    int32_t size;
    float alpha;
    TRY(start(c, 3, &x, &y));
    TRY(teg_arg_int(c, "size", 0, &size));
    TRY(teg_arg_float(c, "alpha", 1e-4f, &alpha));
    TRY(teg_arg_float(c, "beta", 0.75f, &o.beta));
    TRY(teg_arg_float(c, "k", 1.0f, &o.k));
    if (size < 1)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter size: expected a number of channels from 1 on, found %d", size);
    if (!y->n)
        return TEG_OK;
    o.x = x->f32;
    o.y = y->f32;
    /* Of rank 3 the first dim: coremltools' documentation says [n, C, *D], but what its tests expect is [C, H, W], as
     * in the layer of neural networks that this op was. */
    const uint32_t axis = x->rank == 3 ? 0 : 1;
    o.channels = x->dims[axis];
    o.plane = volume(x, axis + 1);
    o.before = (size_t)size / 2;
    o.after = ((size_t)size - 1) / 2;
    o.scale = alpha / (float)size;
    teg_op_parallel(c, y->n / o.plane, o.plane * (teg_min((size_t)size, o.channels) + 32), response_norm_planes, &o);
    return TEG_OK;
}

const struct teg_eval_row teg_eval_rows_norm[] = {
    {"batch_norm", 6, op_batch_norm},
    {"instance_norm", 6, op_instance_norm},
    {"layer_norm", 6, op_layer_norm},
    {"l2_norm", 6, op_l2_norm},
    {"local_response_norm", 6, op_local_response_norm},
    {NULL, 0, NULL},
};
