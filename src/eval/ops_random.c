/* eval/ops_random.c: random_* ops. The generator is splitmix64; an op with a seed starts its own from it and so gives
 * the same values in every run, one without (seed below 0) draws from the generator of the run. */
#include <math.h>

#include "base/check.h"
#include "eval/eval.h"

static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* In [0, 1), a multiple of 2^-24: exact as a float. */
static float uniform(uint64_t *state)
{
    return (float)(next(state) >> 40) * 0x1p-24f;
}

static float normal(uint64_t *state)
{
    const float u = 1.0f - uniform(state), v = uniform(state); /* u is not 0 */
    return sqrtf(-2.0f * logf(u)) * cosf(6.28318530717958648f * v);
}

/* The generator to draw from: `own` where the op has a seed. */
static enum teg_status generator(struct teg_eval_call *c, uint64_t *own, uint64_t **out)
{
    int32_t seed;
    TRY(teg_arg_int(c, "seed", -1, &seed));
    *own = (uint64_t)seed;
    *out = seed >= 0 ? own : c->random;
    return TEG_OK;
}

static enum teg_status output_of_shape(struct teg_eval_call *c, struct teg_array **y)
{
    int32_t shape[TEG_MIL_MAX_RANK];
    size_t rank, dims[TEG_MIL_MAX_RANK];
    TRY(teg_arg_ints(c, "shape", shape, TEG_MIL_MAX_RANK, &rank));
    if (rank == SIZE_MAX)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter shape: expected a value, found none");
    for (size_t d = 0; d < rank; d++) {
        if (shape[d] < 0)
            OP_FAIL(c, TEG_ERR_FORMAT, "parameter shape: expected sizes, found %d at dimension %zu", shape[d], d);
        dims[d] = (size_t)shape[d];
    }
    TRY(teg_output(c, 0, TEG_FORM_F32, (uint32_t)rank, dims, y));
    return TEG_OK;
}

static enum teg_status op_bernoulli(struct teg_eval_call *c)
{
    struct teg_array *y;
    uint64_t own, *g;
    float prob;
    TRY(teg_arg_float(c, "prob", 0.5f, &prob));
    TRY(generator(c, &own, &g));
    TRY(output_of_shape(c, &y));
    for (size_t i = 0; i < y->n; i++)
        y->f32[i] = uniform(g) < prob;
    return TEG_OK;
}

static enum teg_status op_normal(struct teg_eval_call *c)
{
    struct teg_array *y;
    uint64_t own, *g;
    float mean, stddev;
    TRY(teg_arg_float(c, "mean", 0.0f, &mean));
    TRY(teg_arg_float(c, "stddev", 1.0f, &stddev));
    TRY(generator(c, &own, &g));
    TRY(output_of_shape(c, &y));
    for (size_t i = 0; i < y->n; i++)
        y->f32[i] = mean + stddev * normal(g);
    return TEG_OK;
}

static enum teg_status op_uniform(struct teg_eval_call *c)
{
    struct teg_array *y;
    uint64_t own, *g;
    float low, high;
    TRY(teg_arg_float(c, "low", 0.0f, &low));
    TRY(teg_arg_float(c, "high", 1.0f, &high));
    TRY(generator(c, &own, &g));
    TRY(output_of_shape(c, &y));
    for (size_t i = 0; i < y->n; i++)
        y->f32[i] = low + (high - low) * uniform(g);
    return TEG_OK;
}

/* One index drawn with the weights w[0 … n-1], whose sum is `total`. */
static size_t draw(const double *w, size_t n, double total, uint64_t *g)
{
    double left = (double)(next(g) >> 11) * 0x1p-53 * total;
    size_t last = 0;
    for (size_t i = 0; i < n; i++) {
        if (w[i] > 0)
            last = i;
        left -= w[i];
        if (left < 0)
            return i;
    }
    return last;
}

static double weights_of(const float *x, size_t n, bool is_logits, double *w)
{
    double most = -INFINITY, total = 0;
    for (size_t i = 0; i < n; i++)
        most = x[i] > most ? x[i] : most;
    for (size_t i = 0; i < n; i++) {
        w[i] = is_logits ? exp(x[i] - most) : x[i];
        w[i] = w[i] > 0 ? w[i] : 0; /* NaN and negative weights are never drawn */
        total += w[i];
    }
    return total;
}

static enum teg_status op_categorical(struct teg_eval_call *c)
{
    const struct teg_array *x;
    struct teg_array *y;
    struct teg_string mode;
    uint64_t own, *g;
    int32_t size;
    void *weights;
    size_t dims[TEG_MIL_MAX_RANK];
    TRY(teg_arg_form(c, "x", TEG_FORM_F32, &x));
    TRY(teg_arg_string(c, "mode", "logits", &mode));
    TRY(teg_arg_int(c, "size", 1, &size));
    TRY(generator(c, &own, &g));
    const bool is_logits = teg_string_is(mode, "logits");
    if (!x->rank || !x->dims[x->rank - 1] || size < 0 || (!is_logits && !teg_string_is(mode, "probs")))
        OP_FAIL(c, TEG_ERR_FORMAT,
                "parameter mode: expected logits or probs of at least one class and a size from 0, "
                "found %.*s, shape %s and size %d",
                (int)teg_min(mode.n_bytes, 60), mode.bytes, teg_shape_text(x->rank, x->dims).text, size);
    const size_t n = x->dims[x->rank - 1];
    for (uint32_t d = 0; d < x->rank; d++)
        dims[d] = d + 1 < x->rank ? x->dims[d] : (size_t)size;
    TRY(teg_output(c, 0, teg_form_of(teg_output_dtype(c, 0)), x->rank, dims, &y));
    TRY(teg_op_scratch(c, n, sizeof(double), &weights));
    if (y->form > TEG_FORM_I32)
        OP_FAIL(c, TEG_ERR_FORMAT, "output: expected it declared as numbers, found another type");
    for (size_t row = 0; row < x->n / n; row++) {
        const double total = weights_of(x->f32 + row * n, n, is_logits, weights);
        for (size_t i = row * (size_t)size; i < (row + 1) * (size_t)size; i++) {
            const size_t drawn = draw(weights, n, total, g);
            if (y->form == TEG_FORM_F32)
                y->f32[i] = (float)drawn;
            else
                y->i32[i] = (int32_t)drawn;
        }
    }
    return TEG_OK;
}

const struct teg_eval_row teg_eval_rows_random[] = {
    {"random_bernoulli", 6, op_bernoulli},
    {"random_categorical", 6, op_categorical},
    {"random_normal", 6, op_normal},
    {"random_uniform", 6, op_uniform},
    {NULL, 0, NULL},
};
