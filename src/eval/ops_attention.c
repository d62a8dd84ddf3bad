/* eval/ops_attention.c: scaled_dot_product_attention, tile by tile.
 *
 * A job is 64 query rows of one head. It walks over the keys in tiles of 128: scores by linear_f32, scale and mask,
 * then the online softmax: rows keep a running maximum and sum, and what was accumulated so far is rescaled when the
 * maximum grows. So no [L, S] matrix exists; a worker holds 64 x 128 scores and nothing else.
 *
 * A row that may attend to nothing is NaN, as the formula says (0/0). Not taken: the KV-cache kernels of kernels.h,
 * which want pages and causal bounds; a mask here is any tensor. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "eval/products.h"

#define Q_TILE 64
#define S_TILE 128

struct attention {
    const struct teg_kernels *kernels;
    const struct teg_grid_kernels *grid;
    const float *q, *k, *v; /* [batch, L, E], [batch, S, E], [batch, S, EV] */
    float *out;             /* [batch, L, EV] */
    size_t n_batches, l, s, e, ev;
    float scale;
    const struct teg_array *mask;
    size_t mask_l, mask_s; /* strides of the mask: 0 where it repeats */
    uint32_t n_batch_dims;
    size_t batch[TEG_MIL_MAX_RANK], mask_batch[TEG_MIL_MAX_RANK]; /* dims; strides of the mask */
    float *scratch;
    size_t scratch_floats, n_q_tiles;
};

static size_t mask_start(const struct attention *a, size_t batch)
{
    size_t at = 0;
    for (uint32_t d = a->n_batch_dims; d-- > 0; batch /= a->batch[d])
        at += batch % a->batch[d] * a->mask_batch[d];
    return at;
}

/* scores[rows, S_TILE] of keys s0 … s0+n-1: scaled, masked. */
static void finish_scores(const struct attention *a, size_t mask_at, size_t l0, size_t rows, size_t s0, size_t n,
                          float *scores)
{
    for (size_t r = 0; r < rows; r++) {
        float *const row = scores + r * S_TILE;
        for (size_t i = 0; i < n; i++)
            row[i] *= a->scale;
        if (!a->mask)
            continue;
        const size_t at = mask_at + (l0 + r) * a->mask_l + s0 * a->mask_s;
        if (a->mask->form == TEG_FORM_F32) {
            const float *const m = a->mask->f32 + at;
            for (size_t i = 0; i < n; i++)
                row[i] += m[i * a->mask_s];
        } else {
            const uint8_t *const m = a->mask->b + at;
            for (size_t i = 0; i < n; i++)
                row[i] = m[i * a->mask_s] ? row[i] : -INFINITY;
        }
    }
}

/* Turns a row's scores into weights relative to its new maximum and rescales what it holds. */
static void soften(const struct attention *a, float *scores, size_t n, float *max, float *sum, float *out)
{
    float top = *max;
    for (size_t i = 0; i < n; i++)
        top = scores[i] > top || scores[i] != scores[i] ? scores[i] : top;
    if (top == -INFINITY) { /* nothing to attend to yet */
        memset(scores, 0, n * sizeof *scores);
        return;
    }
    if (top != *max) { /* at first from -inf: factor 0 */
        const float factor = expf(*max - top);
        *sum *= factor;
        for (size_t i = 0; i < a->ev; i++)
            out[i] *= factor;
        *max = top;
    }
    *sum += a->grid->row_exp_f32(scores, top, n);
}

static void attention_slice(void *ctx, size_t slice, size_t worker)
{
    const struct attention *const a = ctx;
    const size_t batch = slice / a->n_q_tiles, l0 = slice % a->n_q_tiles * Q_TILE;
    const size_t rows = teg_min(Q_TILE, a->l - l0), mask_at = mask_start(a, batch);
    float *const max = a->scratch + worker * a->scratch_floats, *const sum = max + Q_TILE;
    float *const scores = sum + Q_TILE, *const linear = scores + Q_TILE * S_TILE;
    float *const out = a->out + (batch * a->l + l0) * a->ev;
    memset(out, 0, rows * a->ev * sizeof *out);
    for (size_t r = 0; r < rows; r++) {
        max[r] = -INFINITY;
        sum[r] = 0;
    }
    for (size_t s0 = 0; s0 < a->s; s0 += S_TILE) {
        const size_t n = teg_min(S_TILE, a->s - s0);
        const struct teg_linear_args dot = {.x = a->q + (batch * a->l + l0) * a->e,
                                            .x_stride = a->e,
                                            .w = a->k + (batch * a->s + s0) * a->e,
                                            .w_dtype = TEG_DTYPE_F32,
                                            .w_row_bytes = a->e * sizeof(float),
                                            .y = scores,
                                            .y_stride = S_TILE,
                                            .n_tokens = rows,
                                            .k = a->e,
                                            .n0 = 0,
                                            .n1 = n,
                                            .scratch = linear};
        a->kernels->linear_f32(&dot);
        finish_scores(a, mask_at, l0, rows, s0, n, scores);
        for (size_t r = 0; r < rows; r++)
            soften(a, scores + r * S_TILE, n, &max[r], &sum[r], out + r * a->ev);
        const struct teg_grid_gemm_args mix = {.a = scores,
                                               .a_stride = S_TILE,
                                               .b = a->v + (batch * a->s + s0) * a->ev,
                                               .b_stride = a->ev,
                                               .y = out,
                                               .y_stride = a->ev,
                                               .m = rows,
                                               .n = a->ev,
                                               .k = n};
        a->grid->gemm_f32(&mix);
    }
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < a->ev; i++)
            out[r * a->ev + i] /= sum[r];
}

/* Strides of a mask that broadcasts to [batch…, L, S]. */
static enum teg_status read_mask(struct teg_eval_call *c, struct attention *a)
{
    const struct teg_array *const m = a->mask;
    const uint32_t rank = a->n_batch_dims + 2;
    bool fits = m->rank <= rank && (m->form == TEG_FORM_F32 || m->form == TEG_FORM_BOOL);
    size_t step = 1;
    for (uint32_t back = 0; fits && back < m->rank; back++) {
        const size_t own = m->dims[m->rank - 1 - back], d = rank - 1 - back;
        const size_t want = back == 0 ? a->s : back == 1 ? a->l : a->batch[d];
        const size_t stride = own == 1 ? 0 : step;
        fits = own == want || own == 1;
        if (back == 0)
            a->mask_s = stride;
        else if (back == 1)
            a->mask_l = stride;
        else
            a->mask_batch[d] = stride;
        step *= own;
    }
    if (!fits)
        OP_FAIL(c, TEG_ERR_FORMAT,
                "parameter attn_mask: expected bools or floats that broadcast to [batch, %zu, %zu], found "
                "shape %s",
                a->l, a->s, teg_shape_text(m->rank, m->dims).text);
    return TEG_OK;
}

static enum teg_status read_operands(struct teg_eval_call *c, struct attention *a, uint32_t *rank)
{
    const struct teg_array *q, *k, *v;
    TRY(teg_arg_form(c, "query", TEG_FORM_F32, &q));
    TRY(teg_arg_form(c, "key", TEG_FORM_F32, &k));
    TRY(teg_arg_form(c, "value", TEG_FORM_F32, &v));
    bool fits = q->rank >= 3 && k->rank == q->rank && v->rank == q->rank;
    for (uint32_t d = 0; fits && d + 2 < q->rank; d++)
        fits = q->dims[d] == k->dims[d] && q->dims[d] == v->dims[d];
    const uint32_t last = q->rank - 1;
    fits = fits && q->dims[last] == k->dims[last] && k->dims[last - 1] == v->dims[last - 1];
    if (!fits)
        OP_FAIL(c, TEG_ERR_FORMAT,
                "parameters query, key, value: expected [batch, L, E], [batch, S, E], [batch, S, EV] of one "
                "rank from 3 on, found %s, %s, %s",
                teg_shape_text(q->rank, q->dims).text, teg_shape_text(k->rank, k->dims).text,
                teg_shape_text(v->rank, v->dims).text);
    *rank = q->rank;
    a->q = q->f32;
    a->k = k->f32;
    a->v = v->f32;
    a->e = q->dims[last];
    a->l = q->dims[last - 1];
    a->s = k->dims[last - 1];
    a->ev = v->dims[last];
    a->n_batch_dims = q->rank - 2;
    a->n_batches = 1;
    for (uint32_t d = 0; d < a->n_batch_dims; d++) {
        a->batch[d] = q->dims[d];
        a->n_batches *= q->dims[d];
    }
    return TEG_OK;
}

static enum teg_status op_attention(struct teg_eval_call *c)
{
    struct attention a = {.kernels = c->kernels, .grid = teg_grid_kernels(c->kernels), .mask = teg_arg(c, "attn_mask")};
    uint32_t rank;
    TRY(read_operands(c, &a, &rank));
    if (a.mask)
        TRY(read_mask(c, &a));
    size_t dims[TEG_MIL_MAX_RANK];
    memcpy(dims, a.batch, a.n_batch_dims * sizeof *dims);
    dims[rank - 2] = a.l;
    dims[rank - 1] = a.ev;
    struct teg_array *out;
    TRY(teg_output(c, 0, TEG_FORM_F32, rank, dims, &out));
    if (!out->n)
        return TEG_OK;
    a.out = out->f32;
    a.scale = 1.0f / sqrtf((float)a.e);
    a.n_q_tiles = (a.l + Q_TILE - 1) / Q_TILE;
    a.scratch_floats = Q_TILE * (2 + S_TILE) + (teg_linear_scratch_floats(a.e) + 15) / 16 * 16;
    TRY(teg_op_scratch(c, teg_pool_threads(c->pool) * a.scratch_floats, sizeof *a.scratch, (void **)&a.scratch));
    teg_op_run(c, attention_slice, &a, a.n_batches * a.n_q_tiles);
    return TEG_OK;
}

const struct teg_eval_row teg_eval_rows_attention[] = {
    {"scaled_dot_product_attention", 9, op_attention},
    {NULL, 0, NULL},
};
