/* build/defaults.c: what is known of keys beyond the table of hparams.c: what a config.json may leave out, what
 * describes no maths, and what belongs to a kind of model that no builder has, so that the refusal can say which.
 *
 * Invariant: nothing here makes a key that changes the maths pass unread. Not taken: defaults for whatever is missing,
 * which would run a damaged model. */
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
};

bool teg_hparams_is_harmless(const char *key)
{
    for (size_t i = 0; i < sizeof harmless_json_keys / sizeof *harmless_json_keys; i++)
        if (strcmp(key, harmless_json_keys[i]) == 0)
            return true;
    /* Private to transformers, except those that hparams.c reads. Of granite's state-space layers: where there are any,
     * layer_types or a tensor says so. */
    return key[0] == '_' || strncmp(key, "generation_config.", 18) == 0 || strncmp(key, "mamba_", 6) == 0 ||
           strncmp(key, "granite.ssm.", 12) == 0;
}

const char *teg_hparams_absent_feature(const char *key)
{
    static const struct {
        const char *word, *feature; /* word: somewhere in the key */
    } rows[] = {
        {"quantization",
         "weights that another library quantized (GPTQ, AWQ, bitsandbytes, FP8, MLX); use the original "
         "weights or a GGUF file"},
        {"expert", "a mixture of experts, which is not supported; use a dense model of the family"},
        {"ssm.", "state-space (Mamba) layers, which are not supported; use a transformer"},
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

void teg_hparams_defaults(const struct teg_source *source, struct teg_hparams *hp)
{
    static const struct {
        const char *arch;
        bool tied;
        float rope_base, partial_rotary, attention_scale;
    } rows[] = {
        {"smollm3", true, 2e6f, 0, 0},  {"gemma", true, 1e4f, 0, 0},    {"gemma2", true, 1e4f, 0, 0},
        {"gemma3", true, 1e6f, 0, 0},   {"glm", false, 1e4f, .5f, 0},   {"glm4", false, 1e4f, .5f, 0},
        {"ernie4_5", true, 5e5f, 0, 0}, {"granite", false, 1e4f, 0, 1}, {"granitemoehybrid", false, 1e4f, 0, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].arch, hp->arch) == 0) {
            hp->tied = rows[i].tied;
            hp->rope_base = rows[i].rope_base;
            if (hp->is_gguf)
                continue; /* a GGUF says these, or their absence means something else */
            hp->partial_rotary = rows[i].partial_rotary;
            hp->attention_scale = rows[i].attention_scale;
        }
    if (strcmp(hp->arch, "granitemoehybrid") == 0)
        hp->rope_finetuned = false; /* only where position_embedding_type says "rope" */
    if (strcmp(hp->arch, "gemma3") == 0)
        gemma3_defaults(source, hp);
}
