/* build/builder.c: the verbs of builder.h. Each finds its tensors by name, checks their shape against the
 * hyperparameters with a message that names the tensor, marks them as used, and appends one op. */
#include "build/builder.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *gguf, *hf;
} tensor_names[TENSOR_NAME_COUNT] = {
#define X(id, gguf, hf) [id] = {gguf, hf},
    TEG_TENSOR_NAMES(X)
#undef X
};

static const char *pattern_of(const struct teg_builder *b, enum teg_tensor_name name)
{
    if (b->hp->is_gguf)
        return tensor_names[name].gguf;
    return b->names && b->names->of[name] ? b->names->of[name] : tensor_names[name].hf;
}

/* The tensor's full name in this file. */
static void full_name(const struct teg_builder *b, enum teg_tensor_name name, uint32_t layer, const char *suffix,
                      char out[160])
{
    char body[96];
    const char *const pattern = pattern_of(b, name);
    const char *const at = strstr(pattern, "%u");
    if (at)
        (void)snprintf(body, sizeof body, "%.*s%u%s", (int)(at - pattern), pattern, layer, at + 2);
    else
        (void)snprintf(body, sizeof body, "%s", pattern);
    /* lm_head stands beside "model.", not in it; "language_model.model." has it in "language_model.". */
    const char *prefix = b->hp->is_gguf ? "" : b->prefix;
    int prefix_length = (int)strlen(prefix);
    if (name == OUTPUT && b->names)
        prefix_length = 0;
    else if (name == OUTPUT && prefix_length >= 6 && strcmp(prefix + prefix_length - 6, "model.") == 0)
        prefix_length -= strcmp(prefix, "model.language_model.") == 0 ? prefix_length : 6;
    (void)snprintf(out, 160, "%.*s%s.%s", prefix_length, prefix, body, suffix);
}

static const struct teg_tensor *find(struct teg_builder *b, enum teg_tensor_name name, uint32_t layer,
                                     const char *suffix)
{
    char full[160];
    full_name(b, name, layer, suffix, full);
    const struct teg_tensor *const t = teg_source_tensor(b->source, full);
    if (t)
        b->used[t - b->source->tensors] = true;
    return t;
}

static value keep(struct teg_builder *b, enum teg_status status, value v)
{
    if (b->status == TEG_OK)
        b->status = status;
    return b->status == TEG_OK ? v : TEG_NO_VALUE;
}

/* A tensor as a constant; rows 0: a vector of `columns`. */
static value constant(struct teg_builder *b, const struct teg_tensor *t, uint64_t rows, uint64_t columns)
{
    const uint32_t rank = rows ? 2 : 1;
    const uint64_t *dims = t->dims;
    if (t->rank != rank || dims[rank - 1] != columns || (rows && dims[0] != rows)) {
        char shape[48], found[96];
        if (rows)
            (void)snprintf(shape, sizeof shape, "[%llu, %llu]", (unsigned long long)rows, (unsigned long long)columns);
        else
            (void)snprintf(shape, sizeof shape, "[%llu]", (unsigned long long)columns);
        (void)snprintf(found, sizeof found, "rank %u, [%llu, %llu]", t->rank, (unsigned long long)dims[0],
                       (unsigned long long)dims[1]);
        return keep(
            b,
            teg_base_fail(b->err, TEG_ERR_FORMAT, t->file_offset,
                          "cannot use model: %s: tensor %s: expected shape %s, found %s; the file is damaged or "
                          "its metadata belong to another model",
                          b->source->path, t->name, shape, found),
            TEG_NO_VALUE);
    }
    value v = TEG_NO_VALUE;
    const enum teg_status status =
        teg_graph_const(b->graph, t->name, t->dtype, rank, dims, t->data, t->n_bytes, &v, b->err);
    return keep(b, status, v);
}

/* [columns, rows] items -> [rows, columns]. Inlined for each size, so that a copy is one move. */
static inline void turn(char *to, const void *from, size_t rows, size_t columns, size_t item)
{
    enum { BLOCK = 32 }; /* columns that are read while their lines are in the cache */
    for (size_t c0 = 0; c0 < columns; c0 += BLOCK)
        for (size_t r = 0; r < rows; r++)
            for (size_t c = c0; c < columns && c < c0 + BLOCK; c++)
                memcpy(to + (r * columns + c) * item, (const char *)from + (c * rows + r) * item, item);
}

/* A matrix that the file stores as [columns, rows], as [rows, columns]. */
static value turned(struct teg_builder *b, const struct teg_tensor *t, uint64_t rows, uint64_t columns)
{
    const uint64_t dims[2] = {rows, columns};
    const size_t n = (size_t)rows * (size_t)columns;
    if (t->rank != 2 || t->dims[0] != columns || t->dims[1] != rows)
        return constant(b, t, columns, rows); /* fails, and says how */
    if (t->n_bytes != 2 * n && t->n_bytes != 4 * n)
        return keep(b,
                    teg_base_fail(b->err, TEG_ERR_UNSUPPORTED, t->file_offset,
                                  "cannot use model: %s: tensor %s: expected float16, bfloat16 or float32, found "
                                  "another type; convert the model to one of these",
                                  b->source->path, t->name),
                    TEG_NO_VALUE);
    char *const data = teg_arena_array(b->arena, t->n_bytes, 1);
    if (!data)
        return keep(b, teg_base_fail_memory(b->err, t->name, t->n_bytes), TEG_NO_VALUE);
    if (t->n_bytes == 2 * n)
        turn(data, t->data, (size_t)rows, (size_t)columns, 2);
    else
        turn(data, t->data, (size_t)rows, (size_t)columns, 4);
    value v = TEG_NO_VALUE;
    const enum teg_status status = teg_graph_const(b->graph, t->name, t->dtype, 2, dims, data, t->n_bytes, &v, b->err);
    return keep(b, status, v);
}

/* Rows of q, k and v of each KV head together -> all of q, then k, then v. `row_bytes` a row. */
static void *ungrouped(struct teg_builder *b, const char *name, const void *rows, size_t row_bytes)
{
    const struct teg_hparams *const hp = b->hp;
    const size_t G = hp->n_kv_heads, n = hp->n_heads / G, head = hp->head_width * row_bytes;
    char *const data = teg_arena_array(b->arena, G * (n + 2), head);
    if (!data) {
        keep(b, teg_base_fail_memory(b->err, name, G * (n + 2) * head), TEG_NO_VALUE);
        return NULL;
    }
    const char *from = rows;
    for (size_t g = 0; g < G; g++, from += (n + 2) * head) {
        memcpy(data + g * n * head, from, n * head);
        memcpy(data + (G * n + g) * head, from + n * head, head);
        memcpy(data + (G * n + G + g) * head, from + (n + 1) * head, head);
    }
    return data;
}

value teg_b_vector(struct teg_builder *b, const char *name, const float *data, uint32_t n)
{
    value v = TEG_NO_VALUE;
    const uint64_t dims[1] = {n};
    if (b->status != TEG_OK)
        return TEG_NO_VALUE;
    const enum teg_status status =
        teg_graph_const(b->graph, name, TEG_DTYPE_F32, 1, dims, data, n * sizeof *data, &v, b->err);
    return keep(b, status, v);
}

/* Norm weights and biases are float32 for the kernels, whatever the file has: they are a thousandth of a model. */
static const float *decode_vector(struct teg_builder *b, const struct teg_tensor *t, uint32_t n)
{
    if (t->rank != 1 || t->dims[0] != n) {
        constant(b, t, 0, n); /* fails, and says how */
        return NULL;
    }
    float *const data = teg_arena_alloc(b->arena, n * sizeof *data);
    if (!data) {
        keep(b, teg_base_fail_memory(b->err, t->name, n * sizeof *data), TEG_NO_VALUE);
        return NULL;
    }
    teg_dtype_decode(t->dtype, t->data, data, n);
    return data;
}

const float *teg_b_find_vector(struct teg_builder *b, enum teg_tensor_name name, uint32_t n)
{
    const struct teg_tensor *const t = b->hp->is_gguf && b->status == TEG_OK ? find(b, name, 0, "weight") : NULL;
    return t ? decode_vector(b, t, n) : NULL;
}

static value vector(struct teg_builder *b, const struct teg_tensor *t, uint32_t n)
{
    const float *const data = decode_vector(b, t, n);
    return data ? teg_b_vector(b, t->name, data, n) : TEG_NO_VALUE;
}

static const struct teg_tensor *need(struct teg_builder *b, enum teg_tensor_name name, uint32_t layer,
                                     const char *suffix)
{
    const struct teg_tensor *const t = b->status == TEG_OK ? find(b, name, layer, suffix) : NULL;
    if (!t && b->status == TEG_OK) {
        char full[160];
        full_name(b, name, layer, suffix, full);
        keep(b,
             teg_base_fail(b->err, TEG_ERR_FORMAT, 0,
                           "cannot use model: %s: tensor %s: expected it in the file, found none; the file is not a "
                           "whole %s model",
                           b->source->path, full, b->hp->arch),
             TEG_NO_VALUE);
    }
    return t;
}

static value append(struct teg_builder *b, const struct teg_op *op)
{
    value v = TEG_NO_VALUE;
    if (b->status != TEG_OK)
        return TEG_NO_VALUE;
    const enum teg_status status = teg_graph_op(b->graph, op, &v, b->err);
    return keep(b, status, v);
}

value teg_b_embed(struct teg_builder *b, float scale)
{
    const struct teg_tensor *const t = need(b, TOKEN_EMBD, 0, "weight");
    if (!t)
        return TEG_NO_VALUE;
    const value table = constant(b, t, b->hp->vocab ? b->hp->vocab : t->dims[0], b->hp->width);
    const value x = append(b, &(struct teg_op){.kind = TEG_OP_EMBEDDING,
                                               .n_inputs = 2,
                                               .inputs = {b->graph->tokens, table},
                                               .attr.scale.scale = scale});
    if (x != TEG_NO_VALUE)
        b->graph->values[x].name = "embed";
    return x;
}

/* OLMo's norm has no weights: ones. */
static value bare_norm(struct teg_builder *b, value x, uint32_t width)
{
    float *const ones = b->status == TEG_OK ? teg_arena_array(b->arena, width, sizeof *ones) : NULL;
    if (!ones && b->status == TEG_OK)
        keep(b, teg_base_fail_memory(b->err, "norm weights", width * sizeof *ones), TEG_NO_VALUE);
    for (uint32_t i = 0; ones && i < width; i++)
        ones[i] = 1;
    return append(b, &(struct teg_op){.kind = TEG_OP_LAYER_NORM,
                                      .n_inputs = 2,
                                      .inputs = {x, teg_b_vector(b, "norm.ones", ones, width)},
                                      .attr.norm = {.eps = b->hp->norm_eps}});
}

/* A vector that the file stores less b->norm_offset. */
static value offset_vector(struct teg_builder *b, const struct teg_tensor *t, uint32_t n)
{
    const float *const data = decode_vector(b, t, n);
    float *const sum = data ? teg_arena_array(b->arena, n, sizeof *sum) : NULL;
    if (data && !sum)
        keep(b, teg_base_fail_memory(b->err, t->name, n * sizeof *sum), TEG_NO_VALUE);
    for (uint32_t i = 0; sum && i < n; i++)
        sum[i] = data[i] + b->norm_offset;
    return sum ? teg_b_vector(b, t->name, sum, n) : TEG_NO_VALUE;
}

static value layer_norm(struct teg_builder *b, value x, enum teg_tensor_name name, uint32_t layer, uint32_t width)
{
    if (b->norm_kind == LAYER_BARE)
        return bare_norm(b, x, width);
    const struct teg_tensor *const t = need(b, name, layer, "weight");
    const struct teg_tensor *const bias = b->norm_kind == LAYER ? need(b, name, layer, "bias") : NULL;
    if (b->status != TEG_OK)
        return TEG_NO_VALUE;
    struct teg_op op = {.kind = TEG_OP_LAYER_NORM,
                        .n_inputs = 2,
                        .inputs = {x, b->norm_offset > 0 ? offset_vector(b, t, width) : vector(b, t, width)},
                        .attr.norm = {.eps = b->hp->norm_eps}};
    if (bias)
        op.inputs[op.n_inputs++] = vector(b, bias, width);
    return append(b, &op);
}

static value norm(struct teg_builder *b, value x, enum teg_tensor_name name, uint32_t layer, uint32_t width)
{
    if (b->norm_kind != RMS)
        return layer_norm(b, x, name, layer, width);
    const struct teg_tensor *const t = need(b, name, layer, "weight");
    if (!t)
        return TEG_NO_VALUE;
    return append(b, &(struct teg_op){.kind = TEG_OP_RMS_NORM,
                                      .n_inputs = 2,
                                      .inputs = {x, vector(b, t, width)},
                                      .attr.norm = {.eps = b->hp->norm_eps, .weight_offset = b->norm_offset}});
}

value teg_b_norm(struct teg_builder *b, value x, enum teg_tensor_name name, uint32_t layer)
{
    return norm(b, x, name, layer, b->hp->width);
}

value teg_b_head_norm(struct teg_builder *b, value x, enum teg_tensor_name name, uint32_t layer)
{
    return norm(b, x, name, layer, b->hp->head_width);
}

value teg_b_wide_norm(struct teg_builder *b, value x, enum teg_tensor_name name, uint32_t layer)
{
    if (b->status != TEG_OK)
        return TEG_NO_VALUE;
    return norm(b, x, name, layer, (uint32_t)teg_value_width(&b->graph->values[x]));
}

value teg_b_linear(struct teg_builder *b, value x, enum teg_tensor_name name, uint32_t layer, uint32_t n_out)
{
    const struct teg_tensor *const t = need(b, name, layer, "weight");
    if (!t)
        return TEG_NO_VALUE;
    const uint64_t k = (uint64_t)teg_value_width(&b->graph->values[x]);
    const bool is_turned = !b->hp->is_gguf && b->names && b->names->transposed;
    struct teg_op op = {.kind = TEG_OP_LINEAR,
                        .n_inputs = 2,
                        .inputs = {x, is_turned ? turned(b, t, n_out, k) : constant(b, t, n_out, k)}};
    const struct teg_tensor *const bias = (b->biases ? need : find)(b, name, layer, "bias");
    if (bias)
        op.inputs[op.n_inputs++] = vector(b, bias, n_out);
    return append(b, &op);
}

/* One matrix of q, k and v that has the rows of each KV head together. */
static value grouped_linear(struct teg_builder *b, value x, uint32_t layer, uint32_t n_out)
{
    const value y = teg_b_linear(b, x, ATTN_QKV, layer, n_out);
    if (b->status != TEG_OK)
        return TEG_NO_VALUE;
    const struct teg_op *const op = &b->graph->ops[b->graph->n_ops - 1];
    for (uint32_t i = 1; i < op->n_inputs; i++) {
        struct teg_value *const w = &b->graph->values[op->inputs[i]];
        const void *const data = ungrouped(b, w->name, w->data, w->n_bytes / n_out);
        if (!data)
            return TEG_NO_VALUE;
        w->data = data;
    }
    return y;
}

/* `n` rows of what `whole` was, a product's weight or bias, as a constant of their own. */
static value rows_of(struct teg_builder *b, struct teg_value whole, uint32_t begin, uint32_t n, char part)
{
    const uint64_t dims[2] = {n, (uint64_t)whole.shape.dims[1]};
    const size_t row_bytes = whole.n_bytes / (size_t)whole.shape.dims[0];
    const char *const name = teg_arena_printf(b->arena, "%s.%c", whole.name, part);
    value v = TEG_NO_VALUE;
    if (!name)
        return keep(b, teg_base_fail_memory(b->err, whole.name, 2), TEG_NO_VALUE);
    const enum teg_status status =
        teg_graph_const(b->graph, name, whole.dtype, whole.shape.rank, dims,
                        (const char *)whole.data + begin * row_bytes, n * row_bytes, &v, b->err);
    return keep(b, status, v);
}

/* The last op, a product with the rows of q, k and v, as three: heads that are cut from the product at once, without
 * RoPE between, would be counted from its first column. */
static struct teg_qkv split(struct teg_builder *b, uint32_t q, uint32_t kv)
{
    const struct teg_op op = b->graph->ops[b->graph->n_ops - 1];
    value made[2] = {TEG_NO_VALUE, TEG_NO_VALUE};
    for (uint32_t i = 0; i < 2 && b->status == TEG_OK; i++) {
        struct teg_op part = {.kind = TEG_OP_LINEAR, .n_inputs = op.n_inputs, .inputs = {op.inputs[0]}};
        for (uint32_t k = 1; k < op.n_inputs; k++)
            part.inputs[k] = rows_of(b, b->graph->values[op.inputs[k]], q + i * kv, kv, i ? 'v' : 'k');
        made[i] = append(b, &part);
    }
    for (uint32_t k = 1; k < op.n_inputs && b->status == TEG_OK; k++) {
        struct teg_value *const w = &b->graph->values[op.inputs[k]];
        w->n_bytes = w->n_bytes / (q + 2 * (size_t)kv) * q;
        w->shape.dims[0] = q;
    }
    if (b->status == TEG_OK)
        b->graph->values[op.result].shape.dims[1] = q;
    return (struct teg_qkv){op.result, made[0], made[1]};
}

struct teg_qkv teg_b_qkv(struct teg_builder *b, value x, uint32_t layer)
{
    const uint32_t q = b->hp->n_heads * b->hp->head_width, kv = b->hp->n_kv_heads * b->hp->head_width;
    if (!teg_b_has(b, ATTN_QKV, layer))
        return (struct teg_qkv){teg_b_linear(b, x, ATTN_Q, layer, q), teg_b_linear(b, x, ATTN_K, layer, kv),
                                teg_b_linear(b, x, ATTN_V, layer, kv)};
    const bool grouped = !b->hp->is_gguf && b->names && b->names->grouped && b->hp->n_kv_heads > 1;
    const value all =
        grouped ? grouped_linear(b, x, layer, q + 2 * kv) : teg_b_linear(b, x, ATTN_QKV, layer, q + 2 * kv);
    if (b->split && b->status == TEG_OK)
        return split(b, q, kv);
    return (struct teg_qkv){teg_b_slice(b, all, 0, q), teg_b_slice(b, all, q, kv), teg_b_slice(b, all, q + kv, kv)};
}

value teg_b_position(struct teg_builder *b, uint32_t first)
{
    const struct teg_tensor *const t = need(b, POSITION_EMBD, 0, "weight");
    if (!t)
        return TEG_NO_VALUE;
    const value table = constant(b, t, (uint64_t)b->hp->context + first, b->hp->width);
    return append(b, &(struct teg_op){.kind = TEG_OP_POSITION, .n_inputs = 1, .inputs = {table}, .attr.first = first});
}

value teg_b_activate(struct teg_builder *b, value x)
{
    if (b->hp->squared_activation) /* relu(x)² = relu(x) · x */
        return teg_b_glu(b, x, x, b->hp->activation);
    return append(b,
                  &(struct teg_op){
                      .kind = TEG_OP_ACTIVATION, .n_inputs = 1, .inputs = {x}, .attr.activation = b->hp->activation});
}

value teg_b_slice(struct teg_builder *b, value x, uint32_t begin, uint32_t width)
{
    return append(b,
                  &(struct teg_op){.kind = TEG_OP_SLICE, .n_inputs = 1, .inputs = {x}, .attr.slice = {begin, width}});
}

value teg_b_rope(struct teg_builder *b, value x, value frequencies)
{
    const bool is_long = frequencies == b->frequencies && b->long_frequencies != TEG_NO_VALUE;
    struct teg_op op = {.kind = TEG_OP_ROPE, .n_inputs = 2, .inputs = {x, frequencies}};
    if (is_long)
        op.inputs[op.n_inputs++] = b->long_frequencies;
    op.attr.rope.head_width = b->hp->head_width;
    op.attr.rope.interleaved = b->hp->rope_pairs;
    op.attr.rope.magnitude = frequencies == b->frequencies ? b->rope_magnitude : 1;
    op.attr.rope.original_context = is_long ? b->hp->original_context : 0;
    return append(b, &op);
}

value teg_b_attend(struct teg_builder *b, value q, value k, value v, uint32_t layer, uint32_t window)
{
    const struct teg_hparams *const hp = b->hp;
    if (b->status != TEG_OK)
        return TEG_NO_VALUE;
    const char *const name = teg_arena_printf(b->arena, "kv.%u", layer);
    if (!name)
        return keep(b, teg_base_fail_memory(b->err, "state name", 16), TEG_NO_VALUE);
    keep(b, teg_graph_state(b->graph, name, hp->n_kv_heads, hp->head_width, &b->states[layer], b->err), 0);
    struct teg_op op = {.kind = TEG_OP_KV_APPEND,
                        .n_inputs = 3,
                        .inputs = {k, v, b->states[layer]},
                        .attr.attention = {.n_kv_heads = hp->n_kv_heads, .head_width = hp->head_width}};
    append(b, &op);
    op = (struct teg_op){.kind = TEG_OP_ATTENTION, .n_inputs = 2, .inputs = {q, b->states[layer]}};
    op.attr.attention.n_heads = hp->n_heads;
    op.attr.attention.n_kv_heads = hp->n_kv_heads;
    op.attr.attention.head_width = hp->head_width;
    op.attr.attention.window = window;
    op.attr.attention.scale = hp->attention_scale;
    op.attr.attention.softcap = hp->attn_softcap;
    return append(b, &op);
}

value teg_b_glu(struct teg_builder *b, value gate, value up, enum teg_activation activation)
{
    return append(
        b, &(struct teg_op){.kind = TEG_OP_GLU, .n_inputs = 2, .inputs = {gate, up}, .attr.activation = activation});
}

value teg_b_add(struct teg_builder *b, value x, value y)
{
    return append(b, &(struct teg_op){.kind = TEG_OP_ADD, .n_inputs = 2, .inputs = {x, y}});
}

value teg_b_scale(struct teg_builder *b, value x, float factor)
{
    if (!(factor > 0) || factor == 1)
        return x;
    return append(b, &(struct teg_op){.kind = TEG_OP_SCALE, .n_inputs = 1, .inputs = {x}, .attr.scale.scale = factor});
}

value teg_b_fused_glu(struct teg_builder *b, value x, enum teg_tensor_name name, uint32_t layer)
{
    const uint32_t F = b->hp->ffn_width;
    const value both = teg_b_linear(b, x, name, layer, 2 * F);
    const value gate = teg_b_slice(b, both, 0, F); /* [T, F] */
    return teg_b_glu(b, gate, teg_b_slice(b, both, F, F), TEG_ACT_SILU);
}

bool teg_b_has(const struct teg_builder *b, enum teg_tensor_name name, uint32_t layer)
{
    char full[160];
    full_name(b, name, layer, "weight", full);
    return teg_source_tensor(b->source, full) != NULL;
}

value teg_b_layer_output(struct teg_builder *b, value x, uint32_t layer)
{
    if (b->status != TEG_OK)
        return TEG_NO_VALUE;
    const char *const name = teg_arena_printf(b->arena, "layer%02u", layer);
    if (!name)
        return keep(b, teg_base_fail_memory(b->err, "layer name", 16), TEG_NO_VALUE);
    b->graph->values[x].name = name;
    return x;
}

void teg_b_head(struct teg_builder *b, value x)
{
    x = teg_b_norm(b, x, OUTPUT_NORM, 0);
    if (b->status != TEG_OK)
        return;
    b->graph->values[x].name = "final_norm";
    const struct teg_tensor *const embedding = need(b, TOKEN_EMBD, 0, "weight");
    const struct teg_tensor *own = find(b, OUTPUT, 0, "weight");
    if (!own && !b->hp->is_gguf && !b->hp->tied)
        own = need(b, OUTPUT, 0, "weight"); /* fails: config.json says there is one */
    if (b->status != TEG_OK)
        return;
    /* A checkpoint of a tied model may still carry a copy of the embedding as its head. */
    const struct teg_tensor *const t = own && (b->hp->is_gguf || !b->hp->tied) ? own : embedding;
    struct teg_op op = {
        .kind = TEG_OP_LM_HEAD, .n_inputs = 2, .inputs = {x, constant(b, t, embedding->dims[0], b->hp->width)}};
    const struct teg_tensor *const bias = find(b, OUTPUT, 0, "bias");
    if (bias)
        op.inputs[op.n_inputs++] = vector(b, bias, (uint32_t)embedding->dims[0]);
    value logits = append(b, &op);
    logits = teg_b_scale(b, logits, b->hp->logit_scale);
    if (b->hp->logit_divisor > 0)
        logits = teg_b_scale(b, logits, 1 / b->hp->logit_divisor);
    if (b->hp->final_softcap > 0)
        logits =
            append(b, &(struct teg_op){
                          .kind = TEG_OP_SOFTCAP, .n_inputs = 1, .inputs = {logits}, .attr.cap = b->hp->final_softcap});
    b->graph->logits = logits;
}
