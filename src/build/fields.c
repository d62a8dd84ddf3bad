/* build/fields.c: which key of which kind of file holds which hyperparameter.
 *
 * Three tables: keys that mean one thing for every family, keys that only some families have (one name may mean
 * different things elsewhere, or nothing that is known), and those inside a RoPE object. Invariant: a row says what a
 * key means, never a value; values that a file may leave out stand in defaults.c. Not taken: a reader for each family,
 * which repeats the same forty keys. */
#include "build/fields.h"

#include <string.h>

#define AT(member) offsetof(struct teg_hparams, member)

static const struct teg_field fields[] = {
    {"block_count", "num_hidden_layers", FIELD_U32, AT(n_layers), true},
    {"context_length", "max_position_embeddings", FIELD_U32, AT(context), true},
    {"embedding_length", "hidden_size", FIELD_U32, AT(width), true},
    {"feed_forward_length", "intermediate_size", FIELD_U32, AT(ffn_width), true},
    {"expert_shared_feed_forward_length", "shared_intermediate_size", FIELD_U32, AT(shared_ffn_width), false},
    {"attention.head_count", "num_attention_heads", FIELD_U32, AT(n_heads), true},
    {"attention.head_count_kv", "num_key_value_heads", FIELD_U32, AT(n_kv_heads), false},
    {"attention.key_length", "head_dim", FIELD_U32, AT(head_width), false},
    {"attention.value_length", NULL, FIELD_U32, AT(value_width), false},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", FIELD_F32, AT(norm_eps), true},
    {"attention.scale", "attention_multiplier", FIELD_F32, AT(attention_scale), false},
    {NULL, "query_pre_attn_scalar", FIELD_F32, AT(query_pre_attn), false},
    {"attention.sliding_window", "sliding_window", FIELD_U32, AT(window), false},
    {"attention.sliding_window_pattern", "layer_types", FIELD_SPECIAL, AT(windowed), false},
    {NULL, "sliding_window_pattern", FIELD_SPECIAL, AT(window_pattern), false},
    {NULL, "_sliding_window_pattern", FIELD_U32, AT(window_pattern), false},
    {NULL, "use_sliding_window", FIELD_BOOL, AT(use_window), false},
    {NULL, "max_window_layers", FIELD_U32, AT(max_window_layers), false},
    {NULL, "no_rope_layer_interval", FIELD_U32, AT(no_rope_interval), false},
    {NULL, "no_rope_layers", FIELD_BOOLS, AT(uses_rope), false},
    {"attn_logit_softcapping", "attn_logit_softcapping", FIELD_F32, AT(attn_softcap), false},
    {"final_logit_softcapping", "final_logit_softcapping", FIELD_F32, AT(final_softcap), false},
    {"vocab_size", "vocab_size", FIELD_U32, AT(vocab), false},
    {NULL, "tie_word_embeddings", FIELD_BOOL, AT(tied), false},
    {NULL, "attention_bias", FIELD_BOOL, AT(attention_bias), false},
    {NULL, "use_bias", FIELD_BOOL, AT(attention_bias), false},
    {NULL, "attention_out_bias", FIELD_IGNORED, 0, false}, /* the tensor says it */
    {NULL, "mlp_bias", FIELD_BOOL, AT(mlp_bias), false},
    {"rope.freq_base", "rope_theta", FIELD_F32, AT(rope_base), false},
    {"rope.freq_base_swa", "rope_local_base_freq", FIELD_F32, AT(rope_local_base), false},
    {"rope.local.freq_base", NULL, FIELD_F32, AT(rope_local_base), false},
    {"rope.dimension_count", NULL, FIELD_U32, AT(rope_dims), false},
    {NULL, "partial_rotary_factor", FIELD_F32, AT(partial_rotary), false},
    {"rope.scaling.type", "rope_scaling", FIELD_SPECIAL, 0, false},
    {NULL, "rope_parameters", FIELD_SPECIAL, 0, false},
    {"rope.scaling.factor", NULL, FIELD_F32, AT(rope_factor), false},
    {"rope.scale_linear", NULL, FIELD_F32, AT(rope_factor), false}, /* old files: a linear factor without a type */
    {"attention.causal", NULL, FIELD_BOOL, AT(causal), false},
    {"rope.scaling.original_context_length", "original_max_position_embeddings", FIELD_U32, AT(original_context),
     false},
    {"rope.scaling.attn_factor", NULL, FIELD_F32, AT(rope_magnitude), false},
    {"rope.scaling.yarn_attn_factor", NULL, FIELD_F32, AT(rope_magnitude), false},
    {"rope.scaling.yarn_beta_fast", NULL, FIELD_F32, AT(beta_fast), false},
    {"rope.scaling.yarn_beta_slow", NULL, FIELD_F32, AT(beta_slow), false},
    {"rope.scaling.finetuned", NULL, FIELD_BOOL, AT(rope_finetuned), false},
    {"tensor_data_layout", NULL, FIELD_IGNORED, 0, false},
    {NULL, "position_embedding_type", FIELD_SPECIAL, AT(rope_finetuned), false},
    {NULL, "hidden_act", FIELD_SPECIAL, AT(activation), false},
    {NULL, "hidden_activation", FIELD_SPECIAL, AT(activation), false},
};

/* Families, as words. */
#define GPT "gpt2 starcoder gptj gpt_neo falcon" /* whose config.json has GPT-2's names */
#define LAYER_NORMS GPT " gptneox phi2 starcoder2 stablelm command-r cohere2 nemotron olmo opt orion"
#define FACTORS "granite granitemoehybrid minicpm"

static const struct {
    const char *families;
    struct teg_field field;
} family_fields[] = {
    {FACTORS, {"embedding_scale", "embedding_multiplier", FIELD_F32, AT(embedding_scale), false}},
    {FACTORS, {"residual_scale", "residual_multiplier", FIELD_F32, AT(residual_scale), false}},
    {FACTORS, {"logit_scale", "logits_scaling", FIELD_F32, AT(logit_divisor), false}},
    {"command-r cohere2", {"logit_scale", "logit_scale", FIELD_F32, AT(logit_scale), false}},
    {LAYER_NORMS, {"attention.layer_norm_epsilon", "layer_norm_epsilon", FIELD_F32, AT(norm_eps), false}},
    {LAYER_NORMS, {NULL, "layer_norm_eps", FIELD_F32, AT(norm_eps), false}},
    {LAYER_NORMS, {NULL, "norm_epsilon", FIELD_F32, AT(norm_eps), false}},
    {LAYER_NORMS, {NULL, "norm_eps", FIELD_F32, AT(norm_eps), false}},
    {GPT, {NULL, "n_embd", FIELD_U32, AT(width), false}},
    {GPT, {NULL, "n_layer", FIELD_U32, AT(n_layers), false}},
    {GPT, {NULL, "n_head", FIELD_U32, AT(n_heads), false}},
    {GPT, {NULL, "n_inner", FIELD_U32, AT(ffn_width), false}},
    {GPT, {NULL, "n_positions", FIELD_U32, AT(context), false}},
    {GPT, {NULL, "n_ctx", FIELD_IGNORED, 0, false}}, /* of the training; n_positions is what there is */
    {GPT, {NULL, "activation_function", FIELD_SPECIAL, AT(activation), false}},
    {"opt", {NULL, "activation_function", FIELD_SPECIAL, AT(activation), false}},
    {"falcon", {NULL, "activation", FIELD_SPECIAL, AT(activation), false}},
    {"gpt2 starcoder", {NULL, "scale_attn_weights", FIELD_BOOL, AT(scaled_scores), false}},
    {"starcoder", {NULL, "attention_softmax_in_fp32", FIELD_IGNORED, 0, false}},
    {"starcoder", {NULL, "scale_attention_softmax_in_fp32", FIELD_IGNORED, 0, false}},
    {"starcoder", {NULL, "inference_runner", FIELD_IGNORED, 0, false}},
    {"starcoder", {NULL, "validate_runner_input", FIELD_IGNORED, 0, false}},
    {"starcoder", {NULL, "pre_allocate_kv_cache", FIELD_IGNORED, 0, false}},
    {"starcoder", {NULL, "pad_key_length", FIELD_IGNORED, 0, false}},
    {"starcoder", {NULL, "max_batch_size", FIELD_IGNORED, 0, false}},
    {"starcoder", {NULL, "max_sequence_length", FIELD_IGNORED, 0, false}},
    {"starcoder falcon", {NULL, "multi_query", FIELD_BOOL, AT(multi_query), false}},
    {"falcon", {NULL, "num_kv_heads", FIELD_U32, AT(n_kv_heads), false}},
    {"falcon", {NULL, "n_head_kv", FIELD_U32, AT(n_kv_heads), false}},
    {"falcon", {NULL, "ffn_hidden_size", FIELD_U32, AT(ffn_width), false}},
    {"falcon", {NULL, "new_decoder_architecture", FIELD_BOOL, AT(new_decoder), false}},
    {"falcon", {NULL, "parallel_attn", FIELD_BOOL, AT(parallel), false}},
    {"falcon", {NULL, "num_ln_in_parallel_attn", FIELD_IGNORED, 0, false}}, /* the tensors say it */
    {"falcon", {NULL, "bias", FIELD_IGNORED, 0, false}},
    {"gptneox", {"use_parallel_residual", "use_parallel_residual", FIELD_BOOL, AT(parallel), false}},
    {"gptneox", {NULL, "rotary_emb_base", FIELD_F32, AT(rope_base), false}},
    {"gptneox cohere2", {NULL, "rotary_pct", FIELD_F32, AT(partial_rotary), false}},
    /* The tensors say it; the key is true in GGUF files of models that are not. */
    {"stablelm", {"use_parallel_residual", "use_parallel_residual", FIELD_IGNORED, 0, false}},
    {"stablelm", {NULL, "use_qkv_bias", FIELD_BOOL, AT(attention_bias), false}},
    {"starcoder2", {NULL, "norm_type", FIELD_IGNORED, 0, false}},
    {"starcoder2", {NULL, "mlp_type", FIELD_IGNORED, 0, false}},
    {"cohere2", {NULL, "order_of_interleaved_layers", FIELD_IGNORED, 0, false}},
    {"cohere2", {NULL, "layer_switch", FIELD_IGNORED, 0, false}},
    {"cohere2", {NULL, "use_embedding_sharing", FIELD_IGNORED, 0, false}},
    {"cohere2", {NULL, "use_gated_activation", FIELD_IGNORED, 0, false}},
    {"cohere2", {NULL, "use_parallel_block", FIELD_IGNORED, 0, false}},
    {"gptj", {NULL, "rotary_dim", FIELD_U32, AT(rope_dims), false}},
    {"gptj", {NULL, "rotary", FIELD_IGNORED, 0, false}},
    {"gpt_neo", {NULL, "num_layers", FIELD_U32, AT(n_layers), false}},
    {"gpt_neo", {NULL, "num_heads", FIELD_U32, AT(n_heads), false}},
    {"gpt_neo", {NULL, "window_size", FIELD_U32, AT(window), false}},
    {"gpt_neo", {NULL, "attention_layers", FIELD_SPECIAL, AT(windowed), false}},
    {"gpt_neo", {NULL, "attention_types", FIELD_IGNORED, 0, false}}, /* the same, shorter */
    {"exaone", {NULL, "num_layers", FIELD_U32, AT(n_layers), false}},
    {"exaone", {NULL, "layer_norm_epsilon", FIELD_F32, AT(norm_eps), false}},
    {"exaone", {NULL, "activation_function", FIELD_SPECIAL, AT(activation), false}},
    {"minicpm", {NULL, "scale_emb", FIELD_F32, AT(embedding_scale), false}},
    {"minicpm", {NULL, "scale_depth", FIELD_F32, AT(residual_scale), false}},
    {"minicpm", {NULL, "dim_model_base", FIELD_F32, AT(logit_divisor), false}},
    {"minicpm", {NULL, "mup_denominator", FIELD_IGNORED, 0, false}}, /* of the training */
    {"xverse", {NULL, "max_tokenizer_truncation", FIELD_IGNORED, 0, false}},
    {"mistral3", {"attention.temperature_scale", NULL, FIELD_F32, AT(temperature_scale), false}},
    {"mistral3", {"rope.scaling.yarn_log_multiplier", NULL, FIELD_F32, AT(mscale_all_dim), false}},
    {"mistral3", {NULL, "projector_hidden_act", FIELD_IGNORED, 0, false}}, /* these four: of the images */
    {"mistral3", {NULL, "vision_feature_layer", FIELD_IGNORED, 0, false}},
    {"mistral3", {NULL, "multimodal_projector_bias", FIELD_IGNORED, 0, false}},
    {"mistral3", {NULL, "spatial_merge_size", FIELD_IGNORED, 0, false}},
    {"opt", {NULL, "ffn_dim", FIELD_U32, AT(ffn_width), false}},
    {"opt", {NULL, "word_embed_proj_dim", FIELD_U32, AT(embedding_width), false}},
    {"opt", {NULL, "do_layer_norm_before", FIELD_BOOL, AT(norm_before), false}},
    {"opt", {NULL, "enable_bias", FIELD_IGNORED, 0, false}},
    {"opt", {NULL, "layer_norm_elementwise_affine", FIELD_IGNORED, 0, false}},
};

/* Inside config.json's rope_scaling or rope_parameters. */
static const struct teg_field rope_fields[] = {
    {NULL, "factor", FIELD_F32, AT(rope_factor), false},
    {NULL, "low_freq_factor", FIELD_F32, AT(low_freq_factor), false},
    {NULL, "high_freq_factor", FIELD_F32, AT(high_freq_factor), false},
    {NULL, "original_max_position_embeddings", FIELD_U32, AT(original_context), false},
    {NULL, "attention_factor", FIELD_F32, AT(rope_magnitude), false},
    {NULL, "beta_fast", FIELD_F32, AT(beta_fast), false},
    {NULL, "beta_slow", FIELD_F32, AT(beta_slow), false},
    {NULL, "mscale", FIELD_F32, AT(mscale), false},
    {NULL, "mscale_all_dim", FIELD_F32, AT(mscale_all_dim), false},
    {NULL, "rope_theta", FIELD_F32, AT(rope_base), false},
    {NULL, "partial_rotary_factor", FIELD_F32, AT(partial_rotary), false},
    {NULL, "short_factor", FIELD_F32S, AT(short_factors), false},
    {NULL, "long_factor", FIELD_F32S, AT(long_factors), false},
    {NULL, "alpha", FIELD_F32, AT(rope_alpha), false},
    {NULL, "truncate", FIELD_SPECIAL, 0, false},
    {NULL, "llama_4_scaling_beta", FIELD_F32, AT(temperature_scale), false},
    {NULL, "max_position_embeddings", FIELD_IGNORED, 0, false}, /* ministral3: config.json has it one level up too */
    {NULL, "rope_type", FIELD_IGNORED, 0, false},
    {NULL, "type", FIELD_IGNORED, 0, false},
};

static bool has_word(const char *words, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = strstr(words, word); at; at = strstr(at + 1, word))
        if ((at == words || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
            return true;
    return false;
}

const struct teg_field *teg_field_find(const struct teg_hparams *hp, const char *key)
{
    for (size_t i = 0; i < sizeof family_fields / sizeof *family_fields; i++) {
        const struct teg_field *const f = &family_fields[i].field;
        const char *const name = hp->is_gguf ? f->gguf : f->json;
        if (name && strcmp(name, key) == 0 && has_word(family_fields[i].families, hp->arch))
            return f;
    }
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const char *const name = hp->is_gguf ? fields[i].gguf : fields[i].json;
        if (name && strcmp(name, key) == 0)
            return &fields[i];
    }
    return NULL;
}

const struct teg_field *teg_field_find_rope(const struct teg_hparams *hp, const char *key)
{
    for (size_t i = 0; i < sizeof rope_fields / sizeof *rope_fields; i++) {
        const bool alpha = rope_fields[i].offset == AT(rope_alpha); /* others mean something else by it, or nothing */
        if (strcmp(rope_fields[i].json, key) == 0)
            return alpha && strcmp(hp->arch, "hunyuan-dense") != 0 ? NULL : &rope_fields[i];
    }
    return NULL;
}

const struct teg_field *teg_field_at(size_t i)
{
    return i < sizeof fields / sizeof *fields ? &fields[i] : NULL;
}

const char *teg_field_key(const struct teg_hparams *hp, const struct teg_field *field)
{
    for (size_t i = 0; i < sizeof family_fields / sizeof *family_fields; i++) {
        const struct teg_field *const f = &family_fields[i].field;
        const char *const name = hp->is_gguf ? f->gguf : f->json;
        if (name && f->offset == field->offset && f->type == field->type &&
            has_word(family_fields[i].families, hp->arch))
            return name;
    }
    return hp->is_gguf ? field->gguf : field->json;
}
