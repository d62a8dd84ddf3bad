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
    const struct teg_names *names; /* of safetensors; NULL: those of Llama */
};

static const struct family families[] = {
    {"llama", "llama", "llama", teg_build_llama, NEIGHBOURS_IN_GGUF, NULL},
    {NULL, "mistral", "llama", teg_build_llama, HALVES, NULL},
    {NULL, "ministral", "llama", teg_build_llama, HALVES, NULL},
    {"mistral3", "ministral3", "mistral3", teg_build_llama, NEIGHBOURS_IN_GGUF, NULL},
    {NULL, "mistral3", "mistral3", teg_build_llama, HALVES, NULL},
    {"xverse", "xverse", "xverse", teg_build_llama, NEIGHBOURS_IN_GGUF, NULL},
    {"baichuan", NULL, "baichuan", teg_build_baichuan, NEIGHBOURS_IN_GGUF, NULL},
    {"orion", "orion", "orion", teg_build_orion, HALVES, NULL},
    {"qwen", NULL, "qwen", teg_build_qwen1, HALVES, NULL},
    {NULL, "helium", "helium", teg_build_llama, NEIGHBOURS, NULL},
    {"arcee", "arcee", "arcee", teg_build_arcee, NEIGHBOURS_IN_GGUF, NULL},
    {"smollm3", "smollm3", "smollm3", teg_build_smollm3, NEIGHBOURS_IN_GGUF, NULL},
    {"qwen2", "qwen2", "qwen2", teg_build_qwen2, HALVES, NULL},
    {"qwen3", "qwen3", "qwen3", teg_build_qwen3, HALVES, NULL},
    {"gemma", "gemma", "gemma", teg_build_gemma, HALVES, NULL},
    {"gemma2", "gemma2", "gemma2", teg_build_gemma2, HALVES, NULL},
    {"gemma3", "gemma3_text", "gemma3", teg_build_gemma3, HALVES, NULL},
    {NULL, "gemma3", "gemma3", teg_build_gemma3, HALVES, NULL},
    {"phi3", "phi3", "phi3", teg_build_phi3, HALVES, NULL},
    {"granite", "granite", "granite", teg_build_granite, NEIGHBOURS_IN_GGUF, NULL},
    {NULL, "granitemoehybrid", "granitemoehybrid", teg_build_granite, HALVES, NULL},
    {"olmo2", "olmo2", "olmo2", teg_build_olmo2, HALVES, NULL},
    {NULL, "olmo3", "olmo2", teg_build_olmo2, HALVES, NULL},
    {"exaone", "exaone", "exaone", teg_build_llama, HALVES, &teg_names_exaone},
    {"exaone4", "exaone4", "exaone4", teg_build_exaone4, HALVES, NULL},
    {"internlm2", "internlm2", "internlm2", teg_build_llama, NEIGHBOURS_IN_GGUF, &teg_names_internlm2},
    {"minicpm", "minicpm", "minicpm", teg_build_minicpm, NEIGHBOURS_IN_GGUF, NULL},
    {"ernie4_5", "ernie4_5", "ernie4_5", teg_build_llama, NEIGHBOURS, NULL},
    {"seed_oss", "seed_oss", "seed_oss", teg_build_seed, HALVES, NULL},
    {"chatglm", "glm", "glm", teg_build_glm, NEIGHBOURS, NULL},
    {"glm4", "glm4", "glm4", teg_build_glm4, NEIGHBOURS, NULL},
    {"hunyuan-dense", "hunyuan_v1_dense", "hunyuan-dense", teg_build_hunyuan, HALVES, NULL},
    {"gpt2", "gpt2", "gpt2", teg_build_gpt2, HALVES, &teg_names_gpt2},
    {NULL, "gptj", "gptj", teg_build_gptj, NEIGHBOURS, &teg_names_gptj},
    {NULL, "gpt_neo", "gpt_neo", teg_build_gpt_neo, HALVES, &teg_names_gpt_neo},
    {"gptneox", "gpt_neox", "gptneox", teg_build_gptneox, HALVES, &teg_names_gptneox},
    {NULL, "opt", "opt", teg_build_opt, HALVES, &teg_names_opt},
    {"phi2", "phi", "phi2", teg_build_phi2, HALVES, &teg_names_phi},
    {"starcoder", "gpt_bigcode", "starcoder", teg_build_gpt2, HALVES, &teg_names_starcoder},
    {"starcoder2", "starcoder2", "starcoder2", teg_build_starcoder2, HALVES, &teg_names_starcoder2},
    {"stablelm", "stablelm", "stablelm", teg_build_stablelm, HALVES, NULL},
    {"falcon", "falcon", "falcon", teg_build_falcon, HALVES, &teg_names_falcon},
    {"command-r", "cohere", "command-r", teg_build_cohere, NEIGHBOURS, NULL},
    {"cohere2", "cohere2", "cohere2", teg_build_cohere2, NEIGHBOURS, NULL},
    {"nemotron", "nemotron", "nemotron", teg_build_nemotron, HALVES, NULL},
    {"olmo", "olmo", "olmo", teg_build_olmo, NEIGHBOURS_IN_GGUF, NULL},
};

/* Tensors that may stay unused: buffers (masks too) that old checkpoints saved, a tied head's copy, and the parts of
 * multimodal models that are not the language model. */
static const char *const unused_allowed[] = {"rotary_emb.inv_freq", "rope_freqs.weight",      "lm_head.weight",
                                             "vision_tower.",       "multi_modal_projector.", "rope_factors_",
                                             ".attn.bias",          ".attention.bias",        ".masked_bias"};

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
        {"minicpm3", ", which has latent attention"},
        {"plm", ", which has latent attention"},
        {"apertus", ", which has an activation with weights"},
        {"mamba", ", a state-space model"},
        {"rwkv", ", a recurrent model"},
        {"hybrid", ", which has state-space layers"},
        {"jamba", ", which has state-space layers"},
        {"lfm2", ", which has convolution layers"},
        {"mpt", ", which uses ALiBi"},
        {"bloom", ", which uses ALiBi"},
        {"refact", ", which uses ALiBi"},
        {"jais", ", which uses ALiBi"},
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
    FAIL(err, TEG_ERR_UNSUPPORTED,
         "cannot run model: %s: architecture: expected one that docs/FORMATS.md lists (llama, qwen3, gemma3, gpt2, …), "
         "found %.*s%s; this architecture is not supported",
         source->path, (int)(name.n_bytes < 64 ? name.n_bytes : 64), name.bytes, what_else(name));
}

/* safetensors: the language model may stand inside a multimodal one, or at the top. */
static const char *find_prefix(const struct teg_source *source, const struct teg_names *names)
{
    static const char *const prefixes[] = {"model.", "language_model.model.", "model.language_model."};
    const char *const usual = names ? names->prefix : prefixes[0];
    const char *const embedding = names && names->of[TOKEN_EMBD] ? names->of[TOKEN_EMBD] : "embed_tokens";
    char name[96];
    (void)snprintf(name, sizeof name, "%s.weight", embedding);
    if (teg_source_tensor(source, name))
        return "";
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes && !names; i++) {
        (void)snprintf(name, sizeof name, "%s%s.weight", prefixes[i], embedding);
        if (teg_source_tensor(source, name))
            return prefixes[i];
    }
    return usual;
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
    if (b->names) /* whose builder asks for them */
        return TEG_OK;
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
    b.names = family->names;
    b.prefix = find_prefix(source, family->names);
    b.frequencies = b.long_frequencies = b.local_frequencies = TEG_NO_VALUE;
    b.used = teg_arena_array(arena, source->n_tensors + 1, sizeof *b.used);
    b.states = teg_arena_array(arena, hp->n_layers, sizeof *b.states);
    if (!b.used || !b.states)
        return teg_base_fail_memory(err, "builder tables", source->n_tensors);
    TRY(teg_graph_new(arena, &b.graph, err));
    TRY(check_biases(&b));
    TRY(teg_b_rope_setup(&b));
    b.graph->max_positions = hp->temperature_scale > 0 ? hp->context : 0;
    family->build(&b);
    TRY(b.status);
    TRY(check_all_used(&b));
    TRY(teg_graph_verify(b.graph, err));
    *graph = b.graph;
    return TEG_OK;
}
