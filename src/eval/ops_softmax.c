/* eval/ops_softmax.c: softmax along one axis.
 *
 * The greatest element is subtracted first, so the exponentials never overflow; a row of -inf alone is NaN, as the
 * formula says. Along the last axis a row is a run in memory; along another one a strip of up to 64 neighbouring rows
 * is computed side by side, so that reads stay in order. Not taken: turning the tensor, which costs two more passes
 * over it. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "eval/eval.h"
#include "kernel/grid.h"

#define STRIP 64

struct softmax {
    const struct teg_grid_kernels *grid;
    const float *x;
    float *y;
    size_t n, inner, strips; /* along the axis; behind it; strips of inner */
};

static void softmax_rows(void *ctx, size_t begin, size_t end)
{
    const struct softmax *const s = ctx;
    for (size_t i = begin; i < end; i++) {
        const float *const x = s->x + i * s->n;
        float *const y = s->y + i * s->n;
        float max = -INFINITY;
        for (size_t j = 0; j < s->n; j++)
            max = x[j] > max || x[j] != x[j] ? x[j] : max;
        memcpy(y, x, s->n * sizeof *y);
        const float sum = s->grid->row_exp_f32(y, max, s->n);
        for (size_t j = 0; j < s->n; j++)
            y[j] /= sum;
    }
}

static void softmax_strips(void *ctx, size_t begin, size_t end)
{
    const struct softmax *const s = ctx;
    for (size_t i = begin; i < end; i++) {
        const size_t from = i % s->strips * STRIP, width = teg_min(STRIP, s->inner - from);
        const float *const x = s->x + i / s->strips * s->n * s->inner + from;
        float *const y = s->y + i / s->strips * s->n * s->inner + from;
        float max[STRIP], sum[STRIP] = {0};
        for (size_t l = 0; l < STRIP; l++)
            max[l] = -INFINITY;
        for (size_t j = 0; j < s->n; j++)
            s->grid->row_max_f32(max, x + j * s->inner, 1, width);
        for (size_t j = 0; j < s->n; j++) {
            float *const row = y + j * s->inner;
            for (size_t l = 0; l < width; l++)
                row[l] = x[j * s->inner + l] - max[l];
            s->grid->row_exp_f32(row, 0.0f, width);
            s->grid->row_add_f32(sum, row, 1, width);
        }
        for (size_t j = 0; j < s->n; j++)
            for (size_t l = 0; l < width; l++)
                y[j * s->inner + l] /= sum[l];
    }
}

static enum teg_status op_softmax(struct teg_eval_call *c)
{
    const struct teg_array *x;
    struct teg_array *y;
    uint32_t axis;
    TRY(teg_arg_form(c, "x", TEG_FORM_F32, &x));
    TRY(teg_arg_axis(c, "axis", -1, x->rank, &axis));
    TRY(teg_output(c, 0, TEG_FORM_F32, x->rank, x->dims, &y));
    if (!y->n)
        return TEG_OK;
    struct softmax s = {.grid = teg_grid_kernels(c->kernels), .x = x->f32, .y = y->f32, .n = x->dims[axis], .inner = 1};
    for (uint32_t d = axis + 1; d < x->rank; d++)
        s.inner *= x->dims[d];
    s.strips = (s.inner + STRIP - 1) / STRIP;
    const size_t outer = y->n / s.n / s.inner;
    if (s.inner == 1)
        teg_op_parallel(c, outer, 8 * s.n, softmax_rows, &s);
    else
        teg_op_parallel(c, outer * s.strips, 8 * s.n * teg_min(STRIP, s.inner), softmax_strips, &s);
    return TEG_OK;
}

const struct teg_eval_row teg_eval_rows_softmax[] = {
    {"softmax", 6, op_softmax},
    {NULL, 0, NULL},
};
