/* Models in memory for the tests of build, plan and run: metadata written as JSON text, tensors of small random
 * numbers, both changed one piece at a time. The result is a sealed source, as a reader of files would leave it.
 *
 * GGUF's metadata are written as JSON too: a builder sees the same metas, only the names of their types differ. */
#ifndef FAKE_SOURCE_H
#define FAKE_SOURCE_H

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/impl.h"
#include "format/json.h"

#define FAKE_TENSORS 160

struct fake_tensor {
    char name[128];
    enum teg_dtype dtype;
    uint64_t rows, columns; /* rows 0: a vector */
    const float *data;      /* NULL: random */
};

struct fake {
    enum teg_source_kind kind;
    json_t *metas;
    struct fake_tensor tensors[FAKE_TENSORS];
    size_t n_tensors;
    uint32_t seed;
};

/* The dimensions of every fake model. D is not H·K, F is no multiple of anything. */
enum { FAKE_L = 2, FAKE_D = 36, FAKE_H = 4, FAKE_G = 2, FAKE_K = 8, FAKE_F = 44, FAKE_V = 50, FAKE_C = 300 };

static inline json_t *fake_json(const char *text)
{
    json_error_t error;
    json_t *const json = json_loads(text, 0, &error);
    if (!json) {
        (void)fprintf(stderr, "bad JSON in a test: %s: %s\n", error.text, text);
        abort();
    }
    return json;
}

/* Keys of `text` replace those there are. */
static inline void fake_set(struct fake *f, const char *text)
{
    json_t *const update = fake_json(text);
    json_object_update(f->metas, update);
    json_decref(update);
}

static inline void fake_drop(struct fake *f, const char *key)
{
    json_object_del(f->metas, key);
}

static inline void fake_add(struct fake *f, const char *name, uint64_t rows, uint64_t columns)
{
    struct fake_tensor *const t = &f->tensors[f->n_tensors++];
    if (f->n_tensors > FAKE_TENSORS)
        abort();
    *t = (struct fake_tensor){.rows = rows, .columns = columns};
    (void)snprintf(t->name, sizeof t->name, "%s", name);
}

static inline struct fake_tensor *fake_tensor(struct fake *f, const char *name)
{
    for (size_t i = 0; i < f->n_tensors; i++)
        if (strcmp(f->tensors[i].name, name) == 0)
            return &f->tensors[i];
    (void)fprintf(stderr, "no tensor %s in this fake model\n", name);
    abort();
}

static inline void fake_remove(struct fake *f, const char *name)
{
    struct fake_tensor *const t = fake_tensor(f, name);
    *t = f->tensors[--f->n_tensors];
}

static inline void fake_free(struct fake *f)
{
    json_decref(f->metas);
}

/* ---- whole models ---- */

struct fake_name {
    const char *gguf, *hf;
    uint64_t rows, columns;
};

/* Per layer; prefix and layer are added. */
static const struct fake_name fake_llama_names[] = {
    {"attn_norm.weight", "input_layernorm.weight", 0, FAKE_D},
    {"attn_q.weight", "self_attn.q_proj.weight", FAKE_H *FAKE_K, FAKE_D},
    {"attn_k.weight", "self_attn.k_proj.weight", FAKE_G *FAKE_K, FAKE_D},
    {"attn_v.weight", "self_attn.v_proj.weight", FAKE_G *FAKE_K, FAKE_D},
    {"attn_output.weight", "self_attn.o_proj.weight", FAKE_D, FAKE_H *FAKE_K},
    {"ffn_norm.weight", "post_attention_layernorm.weight", 0, FAKE_D},
    {"ffn_gate.weight", "mlp.gate_proj.weight", FAKE_F, FAKE_D},
    {"ffn_up.weight", "mlp.up_proj.weight", FAKE_F, FAKE_D},
    {"ffn_down.weight", "mlp.down_proj.weight", FAKE_D, FAKE_F},
};
static const struct fake_name fake_gemma3_names[] = {
    {"attn_norm.weight", "input_layernorm.weight", 0, FAKE_D},
    {"attn_q.weight", "self_attn.q_proj.weight", FAKE_H *FAKE_K, FAKE_D},
    {"attn_k.weight", "self_attn.k_proj.weight", FAKE_G *FAKE_K, FAKE_D},
    {"attn_v.weight", "self_attn.v_proj.weight", FAKE_G *FAKE_K, FAKE_D},
    {"attn_q_norm.weight", "self_attn.q_norm.weight", 0, FAKE_K},
    {"attn_k_norm.weight", "self_attn.k_norm.weight", 0, FAKE_K},
    {"attn_output.weight", "self_attn.o_proj.weight", FAKE_D, FAKE_H *FAKE_K},
    {"post_attention_norm.weight", "post_attention_layernorm.weight", 0, FAKE_D},
    {"ffn_norm.weight", "pre_feedforward_layernorm.weight", 0, FAKE_D},
    {"ffn_gate.weight", "mlp.gate_proj.weight", FAKE_F, FAKE_D},
    {"ffn_up.weight", "mlp.up_proj.weight", FAKE_F, FAKE_D},
    {"ffn_down.weight", "mlp.down_proj.weight", FAKE_D, FAKE_F},
    {"post_ffw_norm.weight", "post_feedforward_layernorm.weight", 0, FAKE_D},
};
static const struct fake_name fake_phi3_names[] = {
    {"attn_norm.weight", "input_layernorm.weight", 0, FAKE_D},
    {"attn_qkv.weight", "self_attn.qkv_proj.weight", (FAKE_H + 2 * FAKE_G) * FAKE_K, FAKE_D},
    {"attn_output.weight", "self_attn.o_proj.weight", FAKE_D, FAKE_H *FAKE_K},
    {"ffn_norm.weight", "post_attention_layernorm.weight", 0, FAKE_D},
    {"ffn_up.weight", "mlp.gate_up_proj.weight", 2 * FAKE_F, FAKE_D},
    {"ffn_down.weight", "mlp.down_proj.weight", FAKE_D, FAKE_F},
};

static inline void fake_add_layers(struct fake *f, const char *prefix, const struct fake_name *names, size_t n_names)
{
    const bool gguf = f->kind == TEG_SOURCE_GGUF;
    char name[128];
    for (unsigned l = 0; l < FAKE_L; l++)
        for (size_t i = 0; i < n_names; i++) {
            (void)snprintf(name, sizeof name, "%s%s.%u.%s", gguf ? "" : prefix, gguf ? "blk" : "layers", l,
                           gguf ? names[i].gguf : names[i].hf);
            fake_add(f, name, names[i].rows, names[i].columns);
        }
    (void)snprintf(name, sizeof name, "%s%s", gguf ? "" : prefix, gguf ? "token_embd.weight" : "embed_tokens.weight");
    fake_add(f, name, FAKE_V, FAKE_D);
    (void)snprintf(name, sizeof name, "%s%s", gguf ? "" : prefix, gguf ? "output_norm.weight" : "norm.weight");
    fake_add(f, name, 0, FAKE_D);
}

#define FAKE_LAYERS(f, prefix, names) fake_add_layers((f), (prefix), (names), sizeof(names) / sizeof *(names))

/* A GGUF of `arch` with the keys that every family needs and, without a head, a tied embedding. */
static inline struct fake fake_gguf(const char *arch)
{
    struct fake f = {.kind = TEG_SOURCE_GGUF, .seed = 1};
    char text[1024];
    (void)snprintf(text, sizeof text,
                   "{\"general.architecture\":\"%s\",\"%s.block_count\":%d,\"%s.context_length\":%d,"
                   "\"%s.embedding_length\":%d,\"%s.feed_forward_length\":%d,\"%s.attention.head_count\":%d,"
                   "\"%s.attention.head_count_kv\":%d,\"%s.attention.key_length\":%d,"
                   "\"%s.attention.layer_norm_rms_epsilon\":1e-5}",
                   arch, arch, FAKE_L, arch, FAKE_C, arch, FAKE_D, arch, FAKE_F, arch, FAKE_H, arch, FAKE_G, arch,
                   FAKE_K, arch);
    f.metas = fake_json(text);
    if (strcmp(arch, "phi3") == 0)
        FAKE_LAYERS(&f, "", fake_phi3_names);
    else if (strcmp(arch, "gemma3") == 0)
        FAKE_LAYERS(&f, "", fake_gemma3_names);
    else
        FAKE_LAYERS(&f, "", fake_llama_names);
    return f;
}

/* The same as a checkpoint directory; prefix "model." or that of a multimodal model. */
static inline struct fake fake_hf(const char *model_type, const char *prefix)
{
    struct fake f = {.kind = TEG_SOURCE_SAFETENSORS, .seed = 1};
    const bool gemma = strncmp(model_type, "gemma3", 6) == 0;
    char text[1024];
    (void)snprintf(text, sizeof text,
                   "{\"model_type\":\"%s\",\"num_hidden_layers\":%d,\"max_position_embeddings\":%d,\"hidden_size\":%d,"
                   "\"intermediate_size\":%d,\"num_attention_heads\":%d,\"num_key_value_heads\":%d,\"head_dim\":%d,"
                   "\"rms_norm_eps\":1e-5,\"vocab_size\":%d,\"tie_word_embeddings\":true,\"hidden_act\":\"%s\"}",
                   model_type, FAKE_L, FAKE_C, FAKE_D, FAKE_F, FAKE_H, FAKE_G, FAKE_K, FAKE_V,
                   gemma ? "gelu_pytorch_tanh" : "silu");
    f.metas = fake_json(text);
    if (strcmp(model_type, "phi3") == 0)
        FAKE_LAYERS(&f, prefix, fake_phi3_names);
    else if (gemma)
        FAKE_LAYERS(&f, prefix, fake_gemma3_names);
    else
        FAKE_LAYERS(&f, prefix, fake_llama_names);
    return f;
}

/* ---- fake -> source ---- */

/* Uniform in [-0.5, 0.5). */
static inline float fake_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(*seed >> 8) * 0x1p-24f - 0.5f;
}

static inline bool fake_fill(struct fake *f, struct teg_arena *arena, const struct fake_tensor *from,
                             struct teg_tensor *t)
{
    const uint64_t rows = from->rows ? from->rows : 1;
    size_t row_bytes = 0;
    if (!teg_dtype_row_bytes(from->dtype, from->columns, &row_bytes))
        abort();
    uint8_t *const data = teg_arena_alloc(arena, rows * row_bytes + 1);
    char *const name = teg_arena_string(arena, from->name, strlen(from->name));
    if (!data || !name)
        return false;
    for (size_t i = 0; from->dtype == TEG_DTYPE_F32 && i < rows * from->columns; i++) {
        const float x = from->data ? from->data[i] : fake_random(&f->seed);
        memcpy(data + 4 * i, &x, 4);
    }
    for (size_t i = 0; from->dtype == TEG_DTYPE_BF16 && i < rows * from->columns; i++)
        memcpy(data + 2 * i, &(uint16_t){teg_f32_to_bf16(fake_random(&f->seed))}, 2);
    *t = (struct teg_tensor){
        .name = name,
        .dtype = from->dtype,
        .rank = from->rows ? 2 : 1,
        .dims = {from->rows ? from->rows : from->columns, from->rows ? from->columns : 1, 1, 1, 1, 1, 1, 1},
        .data = data,
        .n_bytes = rows * row_bytes,
        .file_offset = 64};
    return true;
}

/* NULL where memory ran out. */
static inline struct teg_source *fake_source(struct fake *f, const struct teg_allocator *allocator)
{
    struct teg_source *s = NULL;
    struct teg_error err;
    if (teg_source_new("fake", allocator, &s, &err) != TEG_OK)
        return NULL;
    s->kind = f->kind;
    s->format = f->kind == TEG_SOURCE_GGUF ? "GGUF v3" : "safetensors";
    s->n_metas = json_object_size(f->metas);
    s->n_tensors = f->n_tensors;
    s->metas = teg_arena_array(&s->arena, s->n_metas + 1, sizeof *s->metas);
    s->tensors = teg_arena_array(&s->arena, s->n_tensors + 1, sizeof *s->tensors);
    bool ok = s->metas && s->tensors && teg_json_metas(&s->arena, f->metas, "", s->metas, &err) == TEG_OK;
    const uint32_t seed = f->seed;
    for (size_t i = 0; ok && i < f->n_tensors; i++)
        ok = fake_fill(f, &s->arena, &f->tensors[i], &s->tensors[i]);
    f->seed = seed;
    if (ok && teg_source_seal(s, &err) == TEG_OK)
        return s;
    teg_source_free(s);
    return NULL;
}

#endif
