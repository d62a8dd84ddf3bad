/* build/build.c: which builder a model needs, and the check that it used the whole model.
 *
 * A tensor that no builder asked for is a part of the model that would silently be left out, so it is an error, except
 * for the few kinds listed below that carry no maths of the language model. */
#include "build/build.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "build/builder.h"

/* Which columns of a head RoPE turns together. GGUF's converter reorders the rows of Wq and Wk for some families, so
 * that their pairs lie side by side. */
enum pairs { HALVES, NEIGHBOURS, NEIGHBOURS_IN_GGUF };

struct family {
    const char *gguf, *model_type; /* NULL: no such file */
    const char *name;
    void (*build)(struct teg_builder *b);
    enum pairs pairs;
};

static const struct family families[] = {
    {"llama", "llama", "llama", teg_build_llama, NEIGHBOURS_IN_GGUF},
    {NULL, "mistral", "llama", teg_build_llama, HALVES},
    {NULL, "ministral", "llama", teg_build_llama, HALVES},
    {"smollm3", "smollm3", "smollm3", teg_build_smollm3, NEIGHBOURS_IN_GGUF},
    {"qwen2", "qwen2", "qwen2", teg_build_qwen2, HALVES},
    {"qwen3", "qwen3", "qwen3", teg_build_qwen3, HALVES},
    {"gemma", "gemma", "gemma", teg_build_gemma, HALVES},
    {"gemma2", "gemma2", "gemma2", teg_build_gemma2, HALVES},
    {"gemma3", "gemma3_text", "gemma3", teg_build_gemma3, HALVES},
    {NULL, "gemma3", "gemma3", teg_build_gemma3, HALVES},
    {"phi3", "phi3", "phi3", teg_build_phi3, HALVES},
    {"granite", "granite", "granite", teg_build_granite, NEIGHBOURS_IN_GGUF},
    {NULL, "granitemoehybrid", "granitemoehybrid", teg_build_granite, HALVES},
    {"olmo2", "olmo2", "olmo2", teg_build_olmo2, HALVES},
    {NULL, "olmo3", "olmo2", teg_build_olmo2, HALVES},
    {"exaone", NULL, "exaone", teg_build_llama, HALVES},
    {"exaone4", "exaone4", "exaone4", teg_build_exaone4, HALVES},
    {"internlm2", NULL, "internlm2", teg_build_llama, NEIGHBOURS_IN_GGUF},
    {"minicpm", NULL, "minicpm", teg_build_minicpm, NEIGHBOURS_IN_GGUF},
    {"ernie4_5", "ernie4_5", "ernie4_5", teg_build_llama, NEIGHBOURS},
    {"seed_oss", "seed_oss", "seed_oss", teg_build_seed, HALVES},
    {"chatglm", "glm", "glm", teg_build_glm, NEIGHBOURS},
    {"glm4", "glm4", "glm4", teg_build_glm4, NEIGHBOURS},
    {"hunyuan-dense", "hunyuan_v1_dense", "hunyuan-dense", teg_build_hunyuan, HALVES},
};

/* Tensors that may stay unused: buffers that old checkpoints saved, a tied head's copy, and the parts of multimodal
 * models that are not the language model. */
static const char *const unused_allowed[] = {"rotary_emb.inv_freq", "rope_freqs.weight",      "lm_head.weight",
                                             "vision_tower.",       "multi_modal_projector.", "rope_factors_"};

/* "llama, smollm3, …": the words that a file of this kind may use. */
static void list_families(enum teg_source_kind kind, char *text, size_t n_bytes)
{
    size_t used = 0;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const char *const word = kind == TEG_SOURCE_GGUF ? families[i].gguf : families[i].model_type;
        if (word && used + strlen(word) + 3 < n_bytes)
            used += (size_t)snprintf(text + used, n_bytes - used, "%s%s", used ? ", " : "", word);
    }
}

/* What a well-known architecture has that no builder knows, as the middle of a sentence; else "". */
static const char *what_else(struct teg_string name)
{
    static const struct {
        const char *part, *what; /* part: somewhere in the name */
    } rows[] = {
        {"moe", ", a mixture of experts"},
        {"mixtral", ", a mixture of experts"},
        {"deepseek", ", a mixture of experts"},
        {"gpt-oss", ", a mixture of experts"},
        {"gpt_oss", ", a mixture of experts"},
        {"mamba", ", a state-space model"},
        {"rwkv", ", a recurrent model"},
        {"hybrid", ", which has state-space layers"},
        {"jamba", ", which has state-space layers"},
        {"lfm2", ", which has convolution layers"},
        {"gpt2", ", which uses LayerNorm"},
        {"gptneox", ", which uses LayerNorm"},
        {"gpt_neox", ", which uses LayerNorm"},
        {"gpt_bigcode", ", which uses LayerNorm"},
        {"phi2", ", which uses LayerNorm"},
        {"stablelm", ", which uses LayerNorm"},
        {"starcoder", ", which uses LayerNorm"},
        {"falcon", ", which uses LayerNorm"},
        {"command", ", which uses LayerNorm"},
        {"cohere", ", which uses LayerNorm"},
        {"bert", ", which gives embeddings and no text"},
        {"clip", ", an image encoder"},
        {"whisper", ", which hears"},
        {"t5", ", an encoder with a decoder"},
    };
    char word[65];
    const size_t n = name.n_bytes < sizeof word - 1 ? name.n_bytes : sizeof word - 1;
    memcpy(word, name.bytes, n);
    word[n] = '\0';
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strstr(word, rows[i].part))
            return rows[i].what;
    return "";
}

static enum teg_status find_family(const struct teg_source *source, const struct family **family, struct teg_error *err)
{
    struct teg_string name;
    TRY(teg_hparams_architecture(source, &name, err));
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const char *const word = source->kind == TEG_SOURCE_GGUF ? families[i].gguf : families[i].model_type;
        if (word && name.n_bytes == strlen(word) && memcmp(word, name.bytes, name.n_bytes) == 0) {
            *family = &families[i];
            return TEG_OK;
        }
    }
    char known[320];
    list_families(source->kind, known, sizeof known);
    FAIL(err, TEG_ERR_UNSUPPORTED,
         "cannot run model: %s: architecture: expected one of %s, found %.*s%s; this architecture is not supported",
         source->path, known, (int)(name.n_bytes < 64 ? name.n_bytes : 64), name.bytes, what_else(name));
}

/* safetensors: the language model may stand inside a multimodal one. */
static const char *find_prefix(const struct teg_source *source)
{
    static const char *const prefixes[] = {"model.", "language_model.model.", "model.language_model."};
    char name[64];
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        strcat(strcpy(name, prefixes[i]), "embed_tokens.weight");
        if (teg_source_tensor(source, name))
            return prefixes[i];
    }
    return prefixes[0];
}

static enum teg_status check_all_used(const struct teg_builder *b)
{
    for (size_t i = 0; i < b->source->n_tensors; i++) {
        const char *const name = b->source->tensors[i].name;
        bool allowed = b->used[i];
        for (size_t k = 0; k < sizeof unused_allowed / sizeof *unused_allowed && !allowed; k++)
            allowed = strstr(name, unused_allowed[k]) != NULL;
        if (!allowed)
            FAIL(b->err, TEG_ERR_UNSUPPORTED,
                 "cannot run model: %s: tensor %s: expected only tensors of a %s model, found "
                 "this one, whose part in the maths is not known; this model is not supported",
                 b->source->path, name, b->hp->arch);
    }
    return TEG_OK;
}

/* Qwen2 always has biases on q, k and v; config.json may promise more. */
static enum teg_status check_biases(const struct teg_builder *b)
{
    const bool gguf = b->hp->is_gguf;
    const bool qkv = b->hp->attention_bias || strcmp(b->hp->arch, "qwen2") == 0;
    const struct {
        bool wanted;
        const char *gguf, *hf;
    } rows[] = {{qkv, "blk.0.attn_q.bias", "layers.0.self_attn.q_proj.bias"},
                {qkv, "blk.0.attn_k.bias", "layers.0.self_attn.k_proj.bias"},
                {qkv, "blk.0.attn_v.bias", "layers.0.self_attn.v_proj.bias"},
                {b->hp->mlp_bias, "blk.0.ffn_up.bias", "layers.0.mlp.up_proj.bias"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char name[128];
        strcat(strcpy(name, gguf ? "" : b->prefix), gguf ? rows[i].gguf : rows[i].hf);
        if (rows[i].wanted && !teg_source_tensor(b->source, name))
            FAIL(b->err, TEG_ERR_FORMAT,
                 "cannot use model: %s: tensor %s: expected it in the file, found none; the file "
                 "is not a whole %s model",
                 b->source->path, name, b->hp->arch);
    }
    return TEG_OK;
}

enum teg_status teg_build(const struct teg_source *source, struct teg_arena *arena, struct teg_graph **graph,
                          struct teg_hparams *hp, struct teg_error *err)
{
    const struct family *family = NULL;
    TRY(find_family(source, &family, err));
    TRY(teg_hparams_read(source, family->name, arena, hp, err));
    hp->rope_pairs = family->pairs == NEIGHBOURS || (family->pairs == NEIGHBOURS_IN_GGUF && hp->is_gguf);
    if (!(hp->attention_scale > 0) && strncmp(family->name, "gemma", 5) != 0)
        hp->attention_scale = (float)(1 / sqrt((double)hp->head_width));
    struct teg_builder b = {.source = source, .arena = arena, .hp = hp, .err = err, .rope_magnitude = 1};
    b.prefix = find_prefix(source);
    b.frequencies = b.long_frequencies = b.local_frequencies = TEG_NO_VALUE;
    b.used = teg_arena_array(arena, source->n_tensors + 1, sizeof *b.used);
    b.states = teg_arena_array(arena, hp->n_layers, sizeof *b.states);
    if (!b.used || !b.states)
        return teg_base_fail_memory(err, "builder tables", source->n_tensors);
    TRY(teg_graph_new(arena, &b.graph, err));
    TRY(check_biases(&b));
    TRY(teg_b_rope_setup(&b));
    family->build(&b);
    TRY(b.status);
    TRY(check_all_used(&b));
    TRY(teg_graph_verify(b.graph, err));
    *graph = b.graph;
    return TEG_OK;
}
