/* build/defaults.c: what is known of keys beyond the table of hparams.c: what a config.json may leave out, what
 * describes no maths, and what belongs to a kind of model that no builder has, so that the refusal can say which.
 *
 * Invariant: nothing here makes a key that changes the maths pass unread. Not taken: defaults for whatever is missing,
 * which would run a damaged model. */
#include <math.h>
#include <string.h>

#include "build/hparams.h"

/* Keys of config.json that describe training, storage, tokens, or how text is drawn from the model. */
static const char *const harmless_json_keys[] = {
    "architectures",
    "model_type",
    "torch_dtype",
    "dtype",
    "transformers_version",
    "use_cache",
    "bos_token_id",
    "eos_token_id",
    "eod_token_id",
    "pad_token_id",
    "unk_token_id",
    "sep_token_id",
    "initializer_range",
    "attention_dropout",
    "resid_pdrop",
    "embd_pdrop",
    "hidden_dropout",
    "residual_dropout",
    "attn_pdrop",
    "pretraining_tp",
    "attn_implementation",
    "auto_map",
    "cache_implementation",
    "is_llama_config",
    "transformers.js_config",
    "transformers_js_config",
    "unsloth_fixed",
    "unsloth_version",
    "image_token_index",
    "boi_token_index",
    "eoi_token_index",
    "mm_tokens_per_image",
    "vision_config",
    "text_config",
    "task_specific_params",
    "torchscript",
    "return_dict",
    "output_attentions",
    "output_hidden_states",
    "id2label",
    "label2id",
    "num_labels",
    "tokenizer_class",
    "rope_local_base_freq",
    "use_bfloat16",
    "chunk_size_feed_forward",
    "max_length",
    "language",
    "output_router_logits",
    "router_aux_loss_coef",
    "init_method",
    "finetuning_task",
    "problem_type",
    "decoder_start_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "suppress_tokens",
    "begin_suppress_tokens",
    "bad_words_ids",
    "exponential_decay_length_penalty",
    "remove_invalid_values",
    "return_dict_in_generate",
    "output_scores",
    "do_sample",
    "early_stopping",
    "num_beams",
    "num_beam_groups",
    "num_return_sequences",
    "diversity_penalty",
    "length_penalty",
    "repetition_penalty",
    "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
    "min_length",
    "max_new_tokens",
    "tf_legacy_loss",
    "is_decoder",
    "license",
    "init_std",
    "dropout",
    "layerdrop",
    "resid_dropout",
    "embed_dropout",
    "embedding_dropout",
    "classifier_dropout",
    "gradient_checkpointing",
    "tokenizer_name",
    "prefix",
};

bool teg_hparams_is_harmless(const char *key)
{
    for (size_t i = 0; i < sizeof harmless_json_keys / sizeof *harmless_json_keys; i++)
        if (strcmp(key, harmless_json_keys[i]) == 0)
            return true;
    /* Private to transformers, except those that hparams.c reads. Of granite's state-space layers: where there are any,
     * layer_types or a tensor says so. */
    return key[0] == '_' || strncmp(key, "generation_config.", 18) == 0 || strncmp(key, "mamba_", 6) == 0 ||
           strncmp(key, "time_step_", 10) == 0 || strncmp(key, "summary_", 8) == 0 ||
           strncmp(key, "granite.ssm.", 12) == 0;
}

const char *teg_hparams_absent_feature(const char *key)
{
    static const struct {
        const char *word, *feature; /* word: somewhere in the key */
    } rows[] = {
        {"quantization", "weights that another library quantized (GPTQ, AWQ, bitsandbytes, FP8, MLX); use the original "
                         "weights or a GGUF file"},
        {"expert", "a mixture of experts, which is not supported; use a dense model of the family"},
        {"ssm.", "state-space (Mamba) layers, which are not supported; use a transformer"},
        {"alibi", "ALiBi instead of position embeddings, which is not supported"},
        {"qk_norm", "norms of q and k with weights for each head, which are not supported"},
        {"qk_layernorm", "norms of q and k with weights for each head, which are not supported"},
        {"lora", "low-rank (latent) attention or adapters, which are not supported; merge adapters into the weights"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strstr(key, rows[i].word))
            return rows[i].feature;
    return NULL;
}

static void gemma3_defaults(const struct teg_source *source, struct teg_hparams *hp)
{
    hp->rope_base = 1e6f;
    if (!teg_source_meta(source, "text_config"))
        return;
    hp->n_heads = 8;
    hp->n_kv_heads = 4;
    hp->head_width = 256;
    hp->context = 131072;
    hp->norm_eps = 1e-6f;
    hp->window = 4096;
    hp->query_pre_attn = 256;
}

/* A row's values; 0: as without a row. Those of config.json only are not for a GGUF, which says them, or whose silence
 * means something else. */
struct defaults {
    const char *arch;
    bool tied;
    float rope_base;
    enum teg_activation activation;
    bool squared;
    struct {
        float partial_rotary, attention_scale, logit_scale;
        uint32_t context;
    } json;
};

static const struct defaults rows[] = {
    {"smollm3", true, 2e6f, TEG_ACT_SILU, false, {0, 0, 0, 0}},
    {"gemma", true, 1e4f, TEG_ACT_GELU_TANH, false, {0, 0, 0, 0}},
    {"gemma2", true, 1e4f, TEG_ACT_GELU_TANH, false, {0, 0, 0, 0}},
    {"gemma3", true, 1e6f, TEG_ACT_GELU_TANH, false, {0, 0, 0, 0}},
    {"glm", false, 1e4f, TEG_ACT_SILU, false, {.partial_rotary = .5f}},
    {"glm4", false, 1e4f, TEG_ACT_SILU, false, {.partial_rotary = .5f}},
    {"ernie4_5", true, 5e5f, TEG_ACT_SILU, false, {0, 0, 0, 0}},
    {"granite", false, 1e4f, TEG_ACT_SILU, false, {.attention_scale = 1}},
    {"granitemoehybrid", false, 1e4f, TEG_ACT_SILU, false, {.attention_scale = 1}},
    {"helium", false, 1e5f, TEG_ACT_SILU, false, {0, 0, 0, 0}},
    {"arcee", false, 1e4f, TEG_ACT_RELU, true, {0, 0, 0, 0}},
    {"gpt2", true, 1e4f, TEG_ACT_GELU_TANH, false, {0, 0, 0, 0}},
    {"starcoder", true, 1e4f, TEG_ACT_GELU_TANH, false, {0, 0, 0, 0}},
    {"starcoder2", true, 1e4f, TEG_ACT_GELU_TANH, false, {0, 0, 0, 0}},
    {"gptj", false, 1e4f, TEG_ACT_GELU_TANH, false, {0, 0, 0, 0}},
    {"gpt_neo", true, 1e4f, TEG_ACT_GELU_TANH, false, {0, 0, 0, 0}},
    {"gptneox", false, 1e4f, TEG_ACT_GELU_ERF, false, {.partial_rotary = .25f}},
    {"phi2", false, 1e4f, TEG_ACT_GELU_TANH, false, {.partial_rotary = .5f}},
    {"stablelm", false, 1e4f, TEG_ACT_SILU, false, {.partial_rotary = .25f}},
    {"falcon", true, 1e4f, TEG_ACT_GELU_ERF, false, {.context = 2048}},
    {"command-r", true, 1e4f, TEG_ACT_SILU, false, {.logit_scale = .0625f}},
    {"cohere2", true, 1e4f, TEG_ACT_SILU, false, {.logit_scale = .0625f}},
    {"nemotron", false, 1e4f, TEG_ACT_RELU, true, {.partial_rotary = .5f}},
    {"olmo", false, 1e4f, TEG_ACT_SILU, false, {0, 0, 0, 0}},
    {"opt", true, 1e4f, TEG_ACT_RELU, false, {0, 0, 0, 0}},
    {"minicpm", true, 1e4f, TEG_ACT_SILU, false, {0, 0, 0, 0}},
};

/* Families of LayerNorm: their code takes any activation, and an epsilon that config.json may leave out. */
static bool has_layer_norm(const char *arch)
{
    static const char *const words[] = {"gpt2",   "starcoder", "starcoder2", "gptj",    "gpt_neo", "gptneox",  "phi2",
                                        "falcon", "stablelm",  "command-r",  "cohere2", "olmo",    "nemotron", "opt"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i], arch) == 0)
            return true;
    return false;
}

bool teg_hparams_any_activation(const char *arch)
{
    return has_layer_norm(arch) || strcmp(arch, "arcee") == 0;
}

void teg_hparams_defaults(const struct teg_source *source, struct teg_hparams *hp)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(rows[i].arch, hp->arch) != 0)
            continue;
        hp->tied = rows[i].tied;
        hp->rope_base = rows[i].rope_base;
        hp->activation = rows[i].activation;
        hp->squared_activation = rows[i].squared;
        if (hp->is_gguf)
            continue;
        hp->partial_rotary = rows[i].json.partial_rotary;
        hp->attention_scale = rows[i].json.attention_scale;
        hp->logit_scale = rows[i].json.logit_scale;
        hp->context = rows[i].json.context;
    }
    if (strcmp(hp->arch, "gptneox") == 0 || strcmp(hp->arch, "starcoder2") == 0)
        hp->attention_bias = true;
    if (!hp->is_gguf && has_layer_norm(hp->arch))
        hp->norm_eps = 1e-5f;
    if (strcmp(hp->arch, "granitemoehybrid") == 0)
        hp->rope_finetuned = false; /* only where position_embedding_type says "rope" */
    if (strcmp(hp->arch, "gemma3") == 0)
        gemma3_defaults(source, hp);
}

#define GPT_NEOX_20B_LAYERS 44

void teg_hparams_settle(struct teg_hparams *hp)
{
    static const char *const four_wide[] = {"gpt2", "starcoder", "gptj", "gpt_neo", "falcon"};
    for (size_t i = 0; i < sizeof four_wide / sizeof *four_wide; i++)
        if (strcmp(hp->arch, four_wide[i]) == 0 && !hp->is_gguf && !hp->ffn_width && hp->width < INT32_MAX / 4)
            hp->ffn_width = 4 * hp->width;
    const bool falcon = strcmp(hp->arch, "falcon") == 0;
    if (!hp->is_gguf && (falcon || strcmp(hp->arch, "starcoder") == 0) && !hp->new_decoder)
        hp->n_kv_heads = hp->multi_query ? 1 : hp->n_heads;
    if (!hp->is_gguf && strcmp(hp->arch, "minicpm") == 0) { /* what it says the factors with */
        if (hp->residual_scale > 0 && hp->n_layers)
            hp->residual_scale /= sqrtf((float)hp->n_layers);
        if (hp->logit_divisor > 0)
            hp->logit_divisor = (float)hp->width / hp->logit_divisor;
    }
    /* Within the original context the factor is 1; a longer one is not offered. */
    if (hp->temperature_scale > 0 && hp->original_context && hp->context > hp->original_context)
        hp->context = hp->original_context;
    /* The tanh form in GPT-NeoX 20B, which a GGUF tells by its layers alone; the exact one in all others. */
    if (hp->is_gguf && strcmp(hp->arch, "gptneox") == 0 && hp->n_layers == GPT_NEOX_20B_LAYERS)
        hp->activation = TEG_ACT_GELU_TANH;
    /* transformers takes an original context that is not said for the whole, and its share for a factor. */
    if (!hp->is_gguf && (hp->scaling == TEG_ROPE_YARN || hp->scaling == TEG_ROPE_LONGROPE) && !hp->original_context)
        hp->original_context = hp->context;
    if (!hp->is_gguf && hp->scaling == TEG_ROPE_YARN && hp->original_context && !(hp->rope_factor > 0))
        hp->rope_factor = (float)hp->context / (float)hp->original_context;
    if (hp->is_gguf && hp->mscale_all_dim > 0)
        hp->mscale = 1; /* GGUF has no key for it */
    if (!hp->scaled_scores || strcmp(hp->arch, "gpt_neo") == 0)
        hp->attention_scale = 1;
}
