/* Evaluates a graph op by op, every value in a buffer of its own, with the kernels a plan has. Slow and obvious: what
 * the planner does with places, views, fusions and stages must not change one bit of any value. */
#ifndef NAIVE_H
#define NAIVE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"
#include "kernel/kernels.h"

struct naive {
    const struct teg_graph *graph;
    const struct teg_kernels *kernels;
    size_t n_tokens;
    bool long_context;
    const int32_t *ids;
    float **values; /* [n_values]: [n_tokens, width] */
    void ***pages;  /* [n_values]: of each state, [heads · tiles] */
    float *scratch;
};

static inline void *naive_alloc(size_t n_bytes)
{
    void *p = NULL;
    if (posix_memalign(&p, 64, n_bytes + 64) != 0)
        abort();
    return memset(p, 0, n_bytes + 64);
}

static inline size_t naive_tiles(const struct naive *n)
{
    return (n->n_tokens + TEG_TILE_TOKENS - 1) / TEG_TILE_TOKENS;
}

/* cos and sin of position t: rows of the model's tables, or computed. */
static inline void naive_angles(const struct naive *n, const struct teg_op *op, size_t t, size_t n_pairs,
                                float *cosines, float *sines)
{
    const struct teg_value *const v = &n->graph->values[op->inputs[1]];
    const float *const f = n->graph->values[op->inputs[op->n_inputs > 2 && n->long_context ? 2 : 1]].data;
    for (size_t i = 0; i < n_pairs; i++) {
        const size_t at = t * n_pairs + i;
        if (v->shape.rank == 1) {
            const double angle = (double)t * (double)f[i];
            cosines[i] = (float)(cos(angle) * (double)op->attr.rope.magnitude);
            sines[i] = (float)(sin(angle) * (double)op->attr.rope.magnitude);
            continue;
        }
        const void *const c = v->data, *const s = n->graph->values[op->inputs[2]].data;
        cosines[i] = v->dtype == TEG_DTYPE_F32 ? ((const float *)c)[at] : teg_f16_to_f32(((const uint16_t *)c)[at]);
        sines[i] = v->dtype == TEG_DTYPE_F32 ? ((const float *)s)[at] : teg_f16_to_f32(((const uint16_t *)s)[at]);
    }
}

static inline void naive_rope(const struct naive *n, const struct teg_op *op, float *y, size_t width)
{
    const size_t n_pairs = teg_value_width(&n->graph->values[op->inputs[1]]);
    float *const table = naive_alloc(2 * n_pairs * sizeof *table);
    for (size_t t = 0; t < n->n_tokens; t++) {
        naive_angles(n, op, t, n_pairs, table, table + n_pairs);
        (op->attr.rope.interleaved ? n->kernels->rope_interleaved_f32 : n->kernels->rope_half_f32)(
            y + t * width, width, table, table + n_pairs, 1, width / op->attr.rope.head_width, op->attr.rope.head_width,
            n_pairs);
    }
    free(table);
}

static inline void naive_linear(const struct naive *n, const struct teg_op *op, float *y)
{
    const struct teg_value *const w = &n->graph->values[op->inputs[1]];
    struct teg_linear_args a = {.x = n->values[op->inputs[0]],
                                .x_stride = teg_value_width(w),
                                .w = w->data,
                                .w_dtype = w->dtype,
                                .bias = op->n_inputs > 2 ? n->graph->values[op->inputs[2]].data : NULL,
                                .y = y,
                                .y_stride = (size_t)w->shape.dims[0],
                                .n_tokens = n->n_tokens,
                                .k = teg_value_width(w),
                                .n1 = (size_t)w->shape.dims[0],
                                .scratch = n->scratch};
    (void)teg_dtype_row_bytes(w->dtype, a.k, &a.w_row_bytes);
    n->kernels->linear_f32(&a);
}

/* float32 pages; one token and one head at a time. */
static inline void naive_append(struct naive *n, const struct teg_op *op)
{
    const teg_value_id state = op->inputs[2];
    const size_t heads = op->attr.attention.n_kv_heads, k = op->attr.attention.head_width, tiles = naive_tiles(n);
    void **const pages = calloc(heads * tiles, sizeof *pages);
    n->pages[state] = pages;
    for (size_t i = 0; i < heads * tiles; i++)
        pages[i] = naive_alloc(2 * k * TEG_TILE_TOKENS * sizeof(float));
    for (size_t head = 0; head < heads; head++)
        for (size_t t = 0; t < n->n_tokens; t++) {
            const struct teg_kv_append_args a = {.k = n->values[op->inputs[0]] + t * heads * k + head * k,
                                                 .v = n->values[op->inputs[1]] + t * heads * k + head * k,
                                                 .k_stride = heads * k,
                                                 .v_stride = heads * k,
                                                 .pages = pages + head * tiles,
                                                 .first_position = t,
                                                 .n_tokens = 1,
                                                 .head_width = k};
            n->kernels->kv_append_f32(&a);
        }
}

static inline void naive_attention(const struct naive *n, const struct teg_op *op, float *y)
{
    const size_t heads = op->attr.attention.n_kv_heads, k = op->attr.attention.head_width, tiles = naive_tiles(n);
    const size_t width = op->attr.attention.n_heads * k, group = op->attr.attention.n_heads / heads;
    const float *const sinks = op->n_inputs > 2 ? n->graph->values[op->inputs[2]].data : NULL;
    for (size_t h = 0; h < op->attr.attention.n_heads; h++)
        for (size_t t = 0; t < n->n_tokens; t++) {
            const struct teg_attention_args a = {.q = n->values[op->inputs[0]] + t * width + h * k,
                                                 .q_stride = width,
                                                 .out = y + t * width + h * k,
                                                 .out_stride = width,
                                                 .pages =
                                                     (const void *const *)n->pages[op->inputs[1]] + h / group * tiles,
                                                 .first_position = t,
                                                 .n_tokens = 1,
                                                 .head_width = k,
                                                 .group = 1,
                                                 .window = op->attr.attention.window,
                                                 .scale = op->attr.attention.scale,
                                                 .softcap = op->attr.attention.softcap,
                                                 .sinks = sinks ? sinks + h : NULL,
                                                 .scratch = n->scratch};
            n->kernels->attention_f32(&a);
        }
}

static inline void naive_embedding(const struct naive *n, const struct teg_op *op, float *y)
{
    const struct teg_value *const table = &n->graph->values[op->inputs[1]];
    const size_t width = teg_value_width(table);
    size_t row_bytes = 0;
    (void)teg_dtype_row_bytes(table->dtype, width, &row_bytes);
    for (size_t t = 0; t < n->n_tokens; t++)
        n->kernels->decode_row(table->dtype, (const char *)table->data + (size_t)n->ids[t] * row_bytes, y + t * width,
                               width);
    if (op->attr.scale.scale != 1)
        n->kernels->scale_f32(y, width, op->attr.scale.scale, n->n_tokens, width);
}

/* The row of each token's position. */
static inline void naive_position(const struct naive *n, const struct teg_op *op, float *y)
{
    const struct teg_value *const table = &n->graph->values[op->inputs[0]];
    const size_t width = teg_value_width(table);
    size_t row_bytes = 0;
    (void)teg_dtype_row_bytes(table->dtype, width, &row_bytes);
    for (size_t t = 0; t < n->n_tokens; t++)
        n->kernels->decode_row(table->dtype, (const char *)table->data + (op->attr.first + t) * row_bytes,
                               y + t * width, width);
}

/* act(a) · b; b NULL: 1. */
static inline void naive_activation(const struct naive *n, const struct teg_op *op, const float *a, const float *b,
                                    float *y, size_t width)
{
    const struct teg_kernels *const k = n->kernels;
    const size_t T = n->n_tokens;
    float *const ones = naive_alloc(T * width * sizeof *ones);
    for (size_t i = 0; i < T * width; i++)
        ones[i] = 1;
    (op->attr.activation == TEG_ACT_SILU   ? k->silu_mul_f32
     : op->attr.activation == TEG_ACT_RELU ? k->relu_mul_f32
     : op->attr.activation == TEG_ACT_GELU_TANH
         ? k->gelu_mul_f32
         : k->gelu_erf_mul_f32)(a, width, b ? b : ones, width, y, width, T, width);
    free(ones);
}

static inline void naive_op(struct naive *n, const struct teg_op *op)
{
    const struct teg_kernels *const k = n->kernels;
    const size_t T = n->n_tokens,
                 width = op->result == TEG_NO_VALUE ? 0 : teg_value_width(&n->graph->values[op->result]);
    const size_t in_width = teg_value_width(&n->graph->values[op->inputs[0]]);
    const float *const a = n->values[op->inputs[0]];
    const float *const b = op->n_inputs > 1 ? n->values[op->inputs[1]] : NULL;
    float *y = NULL;
    if (width)
        y = n->values[op->result] = naive_alloc(T * width * sizeof(float));
    switch (op->kind) {
    case TEG_OP_EMBEDDING:
        naive_embedding(n, op, y);
        break;
    case TEG_OP_RMS_NORM: {
        const size_t m = teg_value_width(&n->graph->values[op->inputs[1]]);
        for (size_t i = 0; op->attr.norm.by_max && i < T * width / m; i++) {
            float most = op->attr.norm.least_max;
            for (size_t c = 0; c < m; c++)
                most = fmaxf(most, fabsf(a[i * m + c]));
            k->rms_norm_f32(a + i * m, m, n->graph->values[op->inputs[1]].data, op->attr.norm.weight_offset,
                            op->attr.norm.eps * most * most, y + i * m, m, 1, m);
        }
        if (op->attr.norm.by_max)
            break;
        k->rms_norm_f32(a, m, n->graph->values[op->inputs[1]].data, op->attr.norm.weight_offset, op->attr.norm.eps, y,
                        m, T * width / m, m);
        break;
    }
    case TEG_OP_LINEAR:
    case TEG_OP_LM_HEAD:
        naive_linear(n, op, y);
        break;
    case TEG_OP_ROPE:
        memcpy(y, a, T * width * sizeof *y);
        naive_rope(n, op, y, width);
        break;
    case TEG_OP_KV_APPEND:
        naive_append(n, op);
        break;
    case TEG_OP_ATTENTION:
        naive_attention(n, op, y);
        break;
    case TEG_OP_LAYER_NORM: {
        const size_t m = teg_value_width(&n->graph->values[op->inputs[1]]);
        k->layer_norm_f32(a, m, n->graph->values[op->inputs[1]].data,
                          op->n_inputs > 2 ? n->graph->values[op->inputs[2]].data : NULL, op->attr.norm.eps, y, m,
                          T * width / m, m);
        break;
    }
    case TEG_OP_POSITION:
        naive_position(n, op, y);
        break;
    case TEG_OP_GLU:
        naive_activation(n, op, a, b, y, width);
        break;
    case TEG_OP_ACTIVATION:
        naive_activation(n, op, a, NULL, y, width);
        break;
    case TEG_OP_ADD:
        k->add_f32(a, width, b, width, y, width, T, width);
        break;
    case TEG_OP_SCALE:
        memcpy(y, a, T * width * sizeof *y);
        k->scale_f32(y, width, op->attr.scale.scale, T, width);
        break;
    case TEG_OP_SOFTCAP:
        memcpy(y, a, T * width * sizeof *y);
        k->softcap_f32(y, width, op->attr.cap, T, width);
        break;
    case TEG_OP_SLICE:
        for (size_t t = 0; t < T; t++)
            memcpy(y + t * width, a + t * in_width + op->attr.slice.begin, width * sizeof *y);
        break;
    default:
        abort();
    }
}

static inline struct naive naive_run(const struct teg_graph *g, const struct teg_kernels *kernels, const int32_t *ids,
                                     size_t n_tokens, bool long_context)
{
    struct naive n = {.graph = g, .kernels = kernels, .n_tokens = n_tokens, .long_context = long_context, .ids = ids};
    size_t scratch = 0;
    n.values = calloc(g->n_values, sizeof *n.values);
    n.pages = calloc(g->n_values, sizeof *n.pages);
    for (uint32_t i = 0; i < g->n_ops; i++) {
        const struct teg_op *const op = &g->ops[i];
        size_t need = 0;
        if (op->kind == TEG_OP_ATTENTION)
            need = teg_attention_scratch_floats(op->attr.attention.head_width);
        else if (op->kind == TEG_OP_LINEAR || op->kind == TEG_OP_LM_HEAD)
            need = teg_linear_scratch_floats(teg_value_width(&g->values[op->inputs[0]]));
        scratch = need > scratch ? need : scratch;
    }
    n.scratch = naive_alloc(scratch * sizeof *n.scratch);
    for (uint32_t i = 0; i < g->n_ops; i++)
        naive_op(&n, &g->ops[i]);
    return n;
}

static inline void naive_free(struct naive *n)
{
    for (uint32_t i = 0; i < n->graph->n_values; i++) {
        free(n->values[i]);
        const size_t n_pages = n->pages[i] ? (size_t)n->graph->values[i].shape.dims[0] * naive_tiles(n) : 0;
        for (size_t p = 0; p < n_pages; p++)
            free(n->pages[i][p]);
        free(n->pages[i]);
    }
    free(n->values);
    free(n->pages);
    free(n->scratch);
}

#endif
