/* Builders: every key and tensor that can be wrong, one message each, and that each family reads its metadata as
 * written. RoPE is in test_rope.c. Forward passes are
 * compared with an independent implementation elsewhere (tests/golden). */
#include "unit/build_test.h"

static void fails(struct fake *f, enum teg_status status, const char *message)
{
    struct built b = build(f);
    assert_string_equal(b.err.message, message);
    assert_int_equal(b.status, status);
    assert_int_equal(b.err.status, status);
    assert_null(b.graph);
    built_free(&b);
    fake_free(f);
}

/* ---- metadata ---- */

struct bad_key {
    const char *set; /* JSON that is laid over the metadata, or NULL */
    const char *drop;
    enum teg_status status;
    const char *message;
};

#define TYPE_TAIL "; the file is damaged or was written by a faulty converter"
#define COUNT_RANGE "expected a whole number from 0 to 2147483647, found "

#define LISTED "one that docs/FORMATS.md lists (llama, qwen3, gemma3, gpt2, …)"

static const struct bad_key bad_gguf[] = {
    {NULL, "general.architecture", TEG_ERR_FORMAT,
     "cannot read model: fake: key general.architecture: expected a string, found none; the file is not a whole model"},
    {"{\"general.architecture\":7}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: key general.architecture: expected a string, found int; the file is not a whole model"},
    {"{\"general.architecture\":\"mamba\"}", NULL, TEG_ERR_UNSUPPORTED,
     "cannot run model: fake: architecture: expected " LISTED
     ", found mamba, a state-space model; this architecture is not supported"},
    {"{\"general.architecture\":\"mistral\"}", NULL, TEG_ERR_UNSUPPORTED, /* in GGUF Mistral is llama */
     "cannot run model: fake: architecture: expected " LISTED ", found mistral; this architecture is not supported"},
    {NULL, "llama.block_count", TEG_ERR_FORMAT,
     "cannot read model: fake: key llama.block_count: expected a value, found none; the file is not a whole model"},
    {NULL, "llama.context_length", TEG_ERR_FORMAT,
     "cannot read model: fake: key llama.context_length: expected a value, found none; the file is not a whole model"},
    {NULL, "llama.embedding_length", TEG_ERR_FORMAT,
     "cannot read model: fake: key llama.embedding_length: expected a value, found none; the file is not a whole "
     "model"},
    {NULL, "llama.feed_forward_length", TEG_ERR_FORMAT,
     "cannot read model: fake: key llama.feed_forward_length: expected a value, found none; the file is not a whole "
     "model"},
    {NULL, "llama.attention.head_count", TEG_ERR_FORMAT,
     "cannot read model: fake: key llama.attention.head_count: expected a value, found none; the file is not a whole "
     "model"},
    {NULL, "llama.attention.layer_norm_rms_epsilon", TEG_ERR_FORMAT,
     "cannot read model: fake: key llama.attention.layer_norm_rms_epsilon: expected a value, found none; the file is "
     "not a whole model"},
    {"{\"llama.block_count\":\"2\"}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: key llama.block_count: expected a number, found string" TYPE_TAIL},
    {"{\"llama.block_count\":-1}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: key llama.block_count: " COUNT_RANGE "int -1" TYPE_TAIL},
    {"{\"llama.block_count\":1.5}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: key llama.block_count: " COUNT_RANGE "float 1.5" TYPE_TAIL},
    {"{\"llama.block_count\":4294967298}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: key llama.block_count: " COUNT_RANGE "int 4.2949673e+09" TYPE_TAIL},
    {"{\"llama.block_count\":true}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: key llama.block_count: " COUNT_RANGE "bool 1" TYPE_TAIL},
    {"{\"llama.block_count\":0}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: layer count: expected 1 to 4096, found 0; the file is damaged"},
    {"{\"llama.block_count\":5000}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: layer count: expected 1 to 4096, found 5000; the file is damaged"},
    {"{\"llama.attention.head_count\":0}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: head count: expected 1 to 4096, found 0; the file is damaged"},
    {"{\"llama.attention.head_count_kv\":0}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: KV head count: expected 1 to 4096, found 0; the file is damaged"},
    {"{\"llama.embedding_length\":0}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: model width: expected 1 to 1048576, found 0; the file is damaged"},
    {"{\"llama.attention.key_length\":0}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: head width: expected 1 to 8192, found 0; the file is damaged"},
    {"{\"llama.attention.key_length\":8194}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: head width: expected 1 to 8192, found 8194; the file is damaged"},
    {"{\"llama.feed_forward_length\":0}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: feed-forward width: expected 1 to 4194304, found 0; the file is damaged"},
    {"{\"llama.context_length\":0}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: context length: expected 1 to 2147483647, found 0; the file is damaged"},
    {"{\"llama.attention.head_count\":5}", "llama.attention.key_length", TEG_ERR_FORMAT,
     "cannot read model: fake: head count: expected a divisor of the model width 36, found 5; the file is damaged"},
    {"{\"llama.attention.head_count_kv\":3}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: KV head count: expected a divisor of the head count 4, found 3; the file is damaged"},
    {"{\"llama.attention.value_length\":4}", NULL, TEG_ERR_UNSUPPORTED,
     "cannot run model: fake: value width: expected that of keys, 8, found 4; such models are not supported"},
    {"{\"llama.attention.causal\":false}", NULL, TEG_ERR_UNSUPPORTED,
     "cannot run model: fake: key attention.causal: expected true, found false; only models whose tokens see the ones "
     "before them are supported"},
    {"{\"llama.attention.causal\":1}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: key llama.attention.causal: expected true or false, found int 1" TYPE_TAIL},
    {"{\"llama.attention.head_count_kv\":[2,1]}", NULL, TEG_ERR_UNSUPPORTED,
     "cannot run model: fake: key llama.attention.head_count_kv: expected one value for all layers, found several; "
     "models whose layers differ in size are not supported"},
    {"{\"llama.attention.head_count_kv\":[2]}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: key llama.attention.head_count_kv: expected one item a layer, found array of "
     "int" TYPE_TAIL},
    {"{\"llama.attention.head_count_kv\":[]}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: key llama.attention.head_count_kv: expected one item a layer, found array of "
     "int" TYPE_TAIL},
    {"{\"llama.attention.layer_norm_rms_epsilon\":1e300}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: key llama.attention.layer_norm_rms_epsilon: expected a finite number, found float "
     "1e+300" TYPE_TAIL},
    {"{\"llama.attention.layer_norm_rms_epsilon\":-1}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: norm epsilon and RoPE base: expected positive numbers, found -1 and 10000; the file is "
     "damaged"},
    {"{\"llama.rope.freq_base\":-5}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: norm epsilon and RoPE base: expected positive numbers, found 1e-05 and -5; the file is "
     "damaged"},
    {"{\"llama.rope.dimension_count\":7}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: rotated dimensions: expected an even number up to the head width 8, found 7; the file "
     "is damaged"},
    {"{\"llama.rope.dimension_count\":10}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: rotated dimensions: expected an even number up to the head width 8, found 10; the file "
     "is damaged"},
    {"{\"llama.rope.scaling.type\":\"dynamic\"}", NULL, TEG_ERR_UNSUPPORTED,
     "cannot run model: fake: key llama.rope.scaling.type: expected RoPE scaling none, linear, llama3, yarn or "
     "longrope, found dynamic; this kind is not supported"},
    {"{\"llama.rope.scaling.type\":3}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: key llama.rope.scaling.type: expected a string, found int" TYPE_TAIL},
    {"{\"llama.rope.scaling.type\":\"yarn\"}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: RoPE scaling factor: expected a positive number, found 0; the file is damaged"},
    {"{\"llama.rope.scaling.type\":\"yarn\",\"llama.rope.scaling.factor\":4,"
     "\"llama.rope.scaling.yarn_beta_fast\":-1}",
     NULL, TEG_ERR_FORMAT,
     "cannot use model: fake: yarn: expected positive beta_fast and beta_slow, found -1 and 1; the file is damaged"},
    {"{\"llama.rope.scaling.type\":\"llama3\",\"llama.rope.scaling.factor\":4}", NULL, TEG_ERR_FORMAT,
     "cannot use model: fake: rope_scaling: expected low_freq_factor < high_freq_factor and "
     "original_max_position_embeddings, found others; the file is damaged"},
    {"{\"llama.rope.scaling.type\":\"longrope\"}", NULL, TEG_ERR_FORMAT,
     "cannot use model: fake: longrope: expected factors for short and long contexts, found none; the file is not a "
     "whole model"},
    {"{\"llama.expert_count\":8}", NULL, TEG_ERR_UNSUPPORTED,
     "cannot run model: fake: key llama.expert_count: expected a dense model with plain weights, found a mixture of "
     "experts, which is not supported; use a dense model of the family"},
    {"{\"llama.ssm.state_size\":8}", NULL, TEG_ERR_UNSUPPORTED,
     "cannot run model: fake: key llama.ssm.state_size: expected a dense model with plain weights, found state-space "
     "(Mamba) layers, which are not supported; use a transformer"},
    {"{\"llama.attention.kv_lora_rank\":8}", NULL, TEG_ERR_UNSUPPORTED,
     "cannot run model: fake: key llama.attention.kv_lora_rank: expected a dense model with plain weights, found "
     "low-rank (latent) attention or adapters, which are not supported; merge adapters into the weights"},
    {"{\"llama.logit_scale\":0.5}", NULL, TEG_ERR_UNSUPPORTED,
     "cannot run model: fake: key llama.logit_scale: expected keys whose meaning is known for llama, found this one "
     "(float), which may change the maths; this model is not supported"},
    {"{\"llama.attention.sliding_window_pattern\":[true]}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: key llama.attention.sliding_window_pattern: expected one item a layer, found array of "
     "bool" TYPE_TAIL},
    {"{\"llama.attention.sliding_window_pattern\":\"x\"}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: key llama.attention.sliding_window_pattern: expected one item a layer, found "
     "string" TYPE_TAIL},
    {"{\"llama.vocab_size\":49}", NULL, TEG_ERR_FORMAT,
     "cannot use model: fake: tensor token_embd.weight: expected shape [49, 36], found rank 2, [50, 36]; the file is "
     "damaged or its metadata belong to another model"},
};

static const struct bad_key bad_config[] = {
    {NULL, "model_type", TEG_ERR_FORMAT,
     "cannot read model: fake: key model_type: expected a string, found none; the file is not a whole model"},
    {NULL, "hidden_size", TEG_ERR_FORMAT,
     "cannot read model: fake: key hidden_size: expected a value, found none; the file is not a whole model"},
    {NULL, "rms_norm_eps", TEG_ERR_FORMAT,
     "cannot read model: fake: key rms_norm_eps: expected a value, found none; the file is not a whole model"},
    {"{\"hidden_act\":\"relu\"}", NULL, TEG_ERR_UNSUPPORTED,
     "cannot run model: fake: key hidden_act: expected silu for llama, found relu; this activation is not supported"},
    {"{\"hidden_act\":\"gelu_pytorch_tanh\"}", NULL, TEG_ERR_UNSUPPORTED,
     "cannot run model: fake: key hidden_act: expected silu for llama, found gelu_pytorch_tanh; this activation is not "
     "supported"},
    {"{\"hidden_act\":1}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: key hidden_act: expected the name of an activation, found int" TYPE_TAIL},
    {"{\"tie_word_embeddings\":1}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: key tie_word_embeddings: expected true or false, found int 1" TYPE_TAIL},
    {"{\"no_rope_layers\":3}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: key no_rope_layers: expected a list, found int" TYPE_TAIL},
    {"{\"no_rope_layers\":[1]}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: key no_rope_layers: expected one item a layer, found array of int" TYPE_TAIL},
    {"{\"layer_types\":[\"full_attention\"]}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: key layer_types: expected one item a layer, found array of string" TYPE_TAIL},
    {"{\"layer_types\":[\"full_attention\",\"linear_attention\"]}", NULL, TEG_ERR_UNSUPPORTED,
     "cannot run model: fake: key layer_types: expected full_attention or sliding_attention, found linear_attention; "
     "this kind of layer is not supported"},
    {"{\"layer_types\":{\"a\":1}}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: key layer_types: expected one item a layer, found object" TYPE_TAIL},
    {"{\"num_local_experts\":8}", NULL, TEG_ERR_UNSUPPORTED,
     "cannot run model: fake: key num_local_experts: expected a dense model with plain weights, found a mixture of "
     "experts, which is not supported; use a dense model of the family"},
    {"{\"quantization_config\":{\"bits\":4}}", NULL, TEG_ERR_UNSUPPORTED,
     "cannot run model: fake: key quantization_config: expected a dense model with plain weights, found weights that "
     "another library quantized (GPTQ, AWQ, bitsandbytes, FP8, MLX); use the original weights or a GGUF file"},
    {"{\"sliding_window_pattern\":\"LGL\"}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: key sliding_window_pattern: expected a period such as LLLG, found another "
     "text" TYPE_TAIL},
    {"{\"rope_scaling\":7}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: key rope_scaling: expected an object, found int" TYPE_TAIL},
    {"{\"rope_scaling\":{\"factor\":2}}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: key rope_scaling: expected an object with rope_type, found none" TYPE_TAIL},
    {"{\"rope_scaling\":{\"type\":\"ntk\"}}", NULL, TEG_ERR_UNSUPPORTED,
     "cannot run model: fake: key rope_scaling: expected RoPE scaling none, linear, llama3, yarn or longrope, found "
     "ntk; this kind is not supported"},
    {"{\"rope_scaling\":{\"type\":\"linear\",\"factor\":\"2\"}}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: key factor: expected a number, found string" TYPE_TAIL},
    {"{\"rope_scaling\":{\"type\":\"linear\",\"factor\":0}}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: RoPE scaling factor: expected a positive number, found 0; the file is damaged"},
    {"{\"rope_scaling\":{\"type\":\"linear\",\"factor\":2,\"alpha\":3}}", NULL, TEG_ERR_UNSUPPORTED,
     "cannot run model: fake: key alpha: expected keys whose meaning is known for llama, found this one (integer), "
     "which may change the maths; this model is not supported"},
    {"{\"rope_scaling\":{\"type\":\"llama3\",\"factor\":2,\"low_freq_factor\":4,\"high_freq_factor\":1,"
     "\"original_max_position_embeddings\":64}}",
     NULL, TEG_ERR_FORMAT,
     "cannot use model: fake: rope_scaling: expected low_freq_factor < high_freq_factor and "
     "original_max_position_embeddings, found others; the file is damaged"},
    {"{\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,1,1,1],\"long_factor\":[1,1,1]}}", NULL,
     TEG_ERR_FORMAT,
     "cannot read model: fake: key long_factor: expected as many factors as in the other list, found another "
     "number" TYPE_TAIL},
    {"{\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,1,1],\"long_factor\":[1,1,1]}}", NULL,
     TEG_ERR_FORMAT,
     "cannot read model: fake: longrope factors: expected one for each of 4 pairs, found 3; the file is damaged"},
    {"{\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":1}}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: key short_factor: expected a list, found integer" TYPE_TAIL},
    {"{\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,1,1,1]}}", NULL, TEG_ERR_FORMAT,
     "cannot use model: fake: longrope: expected factors for short and long contexts, found none; the file is not a "
     "whole model"},
    {"{\"rope_parameters\":[1]}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: key rope_parameters: expected an object, found array of int" TYPE_TAIL},
    {"{\"rope_parameters\":{\"rope_type\":\"x\"}}", NULL, TEG_ERR_UNSUPPORTED,
     "cannot run model: fake: key rope_parameters: expected RoPE scaling none, linear, llama3, yarn or longrope, found "
     "x; this kind is not supported"},
    {"{\"partial_rotary_factor\":1.5}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: key partial_rotary_factor: expected 0 to 1, found 1.5; the file is damaged"},
    {"{\"partial_rotary_factor\":1e30}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: key partial_rotary_factor: expected 0 to 1, found 1e+30; the file is damaged"},
    {"{\"partial_rotary_factor\":0.01}", NULL, TEG_ERR_FORMAT,
     "cannot read model: fake: rotated dimensions: expected an even number up to the head width 8, found 0; the file "
     "is damaged"},
    {"{\"tie_word_embeddings\":false}", NULL, TEG_ERR_FORMAT,
     "cannot use model: fake: tensor lm_head.weight: expected it in the file, found none; the file is not a whole "
     "llama model"},
    {"{\"attention_bias\":true}", NULL, TEG_ERR_FORMAT,
     "cannot use model: fake: tensor model.layers.0.self_attn.q_proj.bias: expected it in the file, found none; the "
     "file is not a whole llama model"},
    {"{\"mlp_bias\":true}", NULL, TEG_ERR_FORMAT,
     "cannot use model: fake: tensor model.layers.0.mlp.up_proj.bias: expected it in the file, found none; the file is "
     "not a whole llama model"},
};

static void run_bad_keys(struct fake (*make)(void), const struct bad_key *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct fake f = make();
        if (rows[i].set)
            fake_set(&f, rows[i].set);
        if (rows[i].drop)
            fake_drop(&f, rows[i].drop);
        fails(&f, rows[i].status, rows[i].message);
    }
}

static struct fake llama_gguf(void)
{
    return fake_gguf("llama");
}

static struct fake llama_hf(void)
{
    return fake_hf("llama", "model.");
}

static void test_bad_gguf(void **state)
{
    (void)state;
    run_bad_keys(llama_gguf, bad_gguf, sizeof bad_gguf / sizeof *bad_gguf);
}

static void test_bad_config(void **state)
{
    (void)state;
    run_bad_keys(llama_hf, bad_config, sizeof bad_config / sizeof *bad_config);
}

static void test_bad_gemma(void **state)
{
    (void)state;
    struct fake f = fake_hf("gemma3_text", "model.");
    fake_set(&f, "{\"hidden_activation\":\"silu\"}");
    fails(&f, TEG_ERR_UNSUPPORTED,
          "cannot run model: fake: key hidden_activation: expected gelu_pytorch_tanh for gemma3, found silu; this "
          "activation is not supported");
    f = fake_hf("gemma3", "language_model.model.");
    fake_set(&f, "{\"text_config\":[1,\"x\"]}");
    fails(&f, TEG_ERR_FORMAT, "cannot read model: fake: key text_config: expected an object, found array" TYPE_TAIL);
    f = fake_hf("gemma3_text", "model.");
    fake_set(&f, "{\"rope_local_base_freq\":-1}");
    fails(&f, TEG_ERR_FORMAT,
          "cannot read model: fake: norm epsilon and RoPE base: expected positive numbers, found 1e-05 and 1e+06; the "
          "file is damaged");
}

/* ---- tensors ---- */

static void test_missing_tensors(void **state)
{
    (void)state;
    const struct fake whole = fake_gguf("llama");
    for (size_t i = 0; i < whole.n_tensors; i++) {
        char message[300];
        struct fake f = fake_gguf("llama");
        (void)snprintf(message, sizeof message,
                       "cannot use model: fake: tensor %s: expected it in the file, found none; the file is not a "
                       "whole llama model",
                       whole.tensors[i].name);
        fake_remove(&f, whole.tensors[i].name);
        fails(&f, TEG_ERR_FORMAT, message);
    }
    json_decref(whole.metas);
}

/* One more column: every tensor is noticed, and the message names it and both shapes. */
static void test_misshapen_tensors(void **state)
{
    (void)state;
    static const char tail[] = "; the file is damaged or its metadata belong to another model";
    const struct fake whole = fake_gguf("llama");
    for (size_t i = 0; i < whole.n_tensors; i++) {
        const struct fake_tensor *const t = &whole.tensors[i];
        char expected[64], found[64], message[300];
        struct fake f = fake_gguf("llama");
        fake_tensor(&f, t->name)->columns++;
        if (t->rows) {
            (void)snprintf(expected, sizeof expected, "[%llu, %llu]", (unsigned long long)t->rows,
                           (unsigned long long)t->columns);
            (void)snprintf(found, sizeof found, "rank 2, [%llu, %llu]", (unsigned long long)t->rows,
                           (unsigned long long)t->columns + 1);
        } else {
            (void)snprintf(expected, sizeof expected, "[%llu]", (unsigned long long)t->columns);
            (void)snprintf(found, sizeof found, "rank 1, [%llu, 1]", (unsigned long long)t->columns + 1);
        }
        (void)snprintf(message, sizeof message, "cannot use model: fake: tensor %s: expected shape %s, found %s%s",
                       t->name, expected, found, tail);
        fails(&f, TEG_ERR_FORMAT, message);
    }
    json_decref(whole.metas);
    struct fake f = fake_gguf("llama"); /* one row more, and a matrix that is a vector */
    fake_tensor(&f, "blk.1.attn_k.weight")->rows++;
    fails(&f, TEG_ERR_FORMAT,
          "cannot use model: fake: tensor blk.1.attn_k.weight: expected shape [16, 36], found rank 2, [17, 36]; the "
          "file is damaged or its metadata belong to another model");
    f = fake_gguf("llama");
    fake_tensor(&f, "blk.0.ffn_up.weight")->rows = 0;
    fails(&f, TEG_ERR_FORMAT,
          "cannot use model: fake: tensor blk.0.ffn_up.weight: expected shape [44, 36], found rank 1, [36, 1]; the "
          "file is damaged or its metadata belong to another model");
    f = fake_gguf("llama");
    fake_add(&f, "output.weight", FAKE_V + 1, FAKE_D);
    fails(&f, TEG_ERR_FORMAT,
          "cannot use model: fake: tensor output.weight: expected shape [50, 36], found rank 2, [51, 36]; the file is "
          "damaged or its metadata belong to another model");
    f = fake_gguf("llama");
    fake_add(&f, "blk.1.attn_q.bias", 0, 5);
    fails(&f, TEG_ERR_FORMAT,
          "cannot use model: fake: tensor blk.1.attn_q.bias: expected shape [32], found rank 1, [5, 1]; the file is "
          "damaged or its metadata belong to another model");
}

static void test_unknown_tensors(void **state)
{
    (void)state;
    static const char tail[] = "expected only tensors of a llama model, found this one, whose part in the maths is not "
                               "known; this model is not supported";
    char message[300];
    struct fake f = fake_gguf("llama");
    fake_add(&f, "blk.1.ffn_gate_inp.weight", 8, FAKE_D);
    (void)snprintf(message, sizeof message, "cannot run model: fake: tensor blk.1.ffn_gate_inp.weight: %s", tail);
    fails(&f, TEG_ERR_UNSUPPORTED, message);
    f = fake_gguf("llama");
    fake_add(&f, "blk.2.attn_q.weight", FAKE_H * FAKE_K, FAKE_D); /* a layer too many */
    (void)snprintf(message, sizeof message, "cannot run model: fake: tensor blk.2.attn_q.weight: %s", tail);
    fails(&f, TEG_ERR_UNSUPPORTED, message);
    f = fake_hf("llama", "model."); /* no maths: kept quiet about */
    fake_add(&f, "model.layers.0.self_attn.rotary_emb.inv_freq", 0, 4);
    fake_add(&f, "lm_head.weight", FAKE_V, FAKE_D);
    struct built b = build_well(&f);
    built_free(&b);
    fake_free(&f);
}

static void test_missing_biases(void **state)
{
    (void)state;
    struct fake f = fake_gguf("qwen2");
    fails(&f, TEG_ERR_FORMAT,
          "cannot use model: fake: tensor blk.0.attn_q.bias: expected it in the file, found none; the file is not a "
          "whole qwen2 model");
    f = fake_hf("qwen2", "model.");
    fails(&f, TEG_ERR_FORMAT,
          "cannot use model: fake: tensor model.layers.0.self_attn.q_proj.bias: expected it in the file, found none; "
          "the file is not a whole qwen2 model");
}

/* ---- what a good file reads as ---- */

static uint32_t window_of(const struct built *b, uint32_t layer)
{
    return nth_op(b->graph, TEG_OP_ATTENTION, layer)->attr.attention.window;
}

static void check_windows(struct fake *f, uint32_t first, uint32_t second)
{
    struct built b = build_well(f);
    assert_int_equal(window_of(&b, 0), first);
    assert_int_equal(window_of(&b, 1), second);
    built_free(&b);
    fake_free(f);
}

static void test_windows(void **state)
{
    (void)state;
    struct fake f = fake_gguf("llama");
    check_windows(&f, 0, 0);
    f = fake_gguf("llama");
    fake_set(&f, "{\"llama.attention.sliding_window\":16}");
    check_windows(&f, 16, 16);
    f = fake_hf("mistral", "model.");
    fake_set(&f, "{\"sliding_window\":null}");
    check_windows(&f, 0, 0);
    f = fake_hf("mistral", "model.");
    fake_set(&f, "{\"sliding_window\":24}");
    check_windows(&f, 24, 24);
    f = fake_hf("llama", "model.");
    fake_set(&f, "{\"sliding_window\":24,\"layer_types\":[\"full_attention\",\"sliding_attention\"]}");
    check_windows(&f, 0, 24);
    f = fake_gguf("phi3");
    fake_set(&f, "{\"phi3.attention.sliding_window\":20}");
    check_windows(&f, 20, 20);
    f = fake_hf("qwen2", "model.");
    for (unsigned l = 0; l < FAKE_L; l++)
        for (int i = 0; i < 3; i++) {
            char name[96];
            (void)snprintf(name, sizeof name, "model.layers.%u.self_attn.%c_proj.bias", l, "qkv"[i]);
            fake_add(&f, name, 0, (uint64_t)(i ? FAKE_G : FAKE_H) * FAKE_K);
        }
    struct fake g = f;
    json_incref(g.metas);
    fake_set(&f, "{\"sliding_window\":12,\"use_sliding_window\":false,\"max_window_layers\":1}");
    check_windows(&f, 0, 0);
    fake_set(&g, "{\"sliding_window\":12,\"use_sliding_window\":true,\"max_window_layers\":1}");
    check_windows(&g, 0, 12);
    f = fake_gguf("gemma3");
    fake_set(&f, "{\"gemma3.attention.sliding_window\":9}"); /* every sixth is global: none of two */
    check_windows(&f, 9, 9);
    f = fake_gguf("gemma3");
    fake_set(&f, "{\"gemma3.attention.sliding_window\":9,\"gemma3.attention.sliding_window_pattern\":[true,false]}");
    check_windows(&f, 9, 0);
    f = fake_gguf("gemma3");
    fake_set(&f, "{\"gemma3.attention.sliding_window\":9,\"gemma3.attention.sliding_window_pattern\":2}");
    check_windows(&f, 9, 0);
    f = fake_hf("gemma3_text", "model.");
    fake_set(&f, "{\"sliding_window\":9,\"_sliding_window_pattern\":2}");
    check_windows(&f, 9, 0);
}

static void test_llama(void **state)
{
    (void)state;
    struct fake f = fake_gguf("llama");
    fake_set(&f, "{\"general.name\":\"a name\",\"llama.attention.head_count_kv\":[2,2],\"llama.expert_count\":0,"
                 "\"llama.rope.freq_base\":5000}");
    struct built b = build_well(&f);
    assert_string_equal(b.hp.name, "a name");
    assert_string_equal(b.hp.arch, "llama");
    assert_int_equal(b.hp.n_layers, FAKE_L);
    assert_int_equal(b.hp.n_kv_heads, FAKE_G);
    assert_int_equal(b.hp.rope_dims, FAKE_K);
    assert_int_equal(b.hp.context, FAKE_C);
    assert_true(b.hp.rope_base == 5000);
    assert_true(fabs((double)nth_op(b.graph, TEG_OP_ATTENTION, 0)->attr.attention.scale - 1 / sqrt(8)) < 1e-7);
    assert_true(nth_op(b.graph, TEG_OP_ROPE, 0)->attr.rope.interleaved);
    assert_true(nth_op(b.graph, TEG_OP_RMS_NORM, 0)->attr.norm.weight_offset == 0);
    assert_int_equal(nth_op(b.graph, TEG_OP_LM_HEAD, 0)->n_inputs, 2);
    built_free(&b);
    fake_free(&f);
    f = fake_hf("llama", "model.");
    fake_drop(&f, "num_key_value_heads"); /* then as many as heads */
    for (unsigned l = 0; l < FAKE_L; l++) {
        char name[96];
        (void)snprintf(name, sizeof name, "model.layers.%u.self_attn.k_proj.weight", l);
        fake_tensor(&f, name)->rows = FAKE_H * FAKE_K;
        (void)snprintf(name, sizeof name, "model.layers.%u.self_attn.v_proj.weight", l);
        fake_tensor(&f, name)->rows = FAKE_H * FAKE_K;
    }
    b = build_well(&f);
    assert_int_equal(b.hp.n_kv_heads, FAKE_H);
    assert_false(nth_op(b.graph, TEG_OP_ROPE, 0)->attr.rope.interleaved);
    built_free(&b);
    fake_free(&f);
}

/* RoPE is left out of every fourth layer, or where config.json says so. */
static void test_smollm3(void **state)
{
    (void)state;
    struct fake f = fake_hf("smollm3", "model.");
    struct built b = build_well(&f);
    size_t n = 0;
    for (uint32_t i = 0; i < b.graph->n_ops; i++)
        n += b.graph->ops[i].kind == TEG_OP_ROPE;
    assert_int_equal(n, 4);
    assert_true(b.hp.rope_base == 2e6f);
    built_free(&b);
    fake_set(&f, "{\"no_rope_layers\":[0,1]}");
    b = build_well(&f);
    n = 0;
    for (uint32_t i = 0; i < b.graph->n_ops; i++)
        n += b.graph->ops[i].kind == TEG_OP_ROPE;
    assert_int_equal(n, 2);
    assert_int_equal(nth_op(b.graph, TEG_OP_KV_APPEND, 0)->inputs[0], /* the first layer's key is not turned */
                     nth_op(b.graph, TEG_OP_LINEAR, 1)->result);
    built_free(&b);
    fake_free(&f);
}

/* A multimodal model's language model: keys one level down, tensors behind a prefix, defaults of its class. */
static void check_nested(const char *prefix)
{
    struct fake f = fake_hf("gemma3", prefix);
    json_t *const text = json_deep_copy(f.metas), *const nested = json_object();
    json_object_del(text, "model_type");
    json_object_set_new(nested, "text_config", text);
    json_object_clear(f.metas);
    json_object_update(f.metas, nested);
    json_decref(nested);
    fake_set(&f, "{\"model_type\":\"gemma3\",\"vision_config\":{\"hidden_size\":7},\"mm_tokens_per_image\":256}");
    fake_add(&f, "vision_tower.embedding.weight", 3, 3);
    struct built b = build_well(&f);
    assert_int_equal(b.hp.width, FAKE_D);
    assert_int_equal(b.hp.n_layers, FAKE_L);
    assert_int_equal(window_of(&b, 0), 4096); /* the class's default */
    assert_true(b.hp.query_pre_attn == 256);
    assert_true(nth_op(b.graph, TEG_OP_RMS_NORM, 0)->attr.norm.weight_offset == 1);
    assert_true(nth_op(b.graph, TEG_OP_ATTENTION, 0)->attr.attention.scale == 0.0625f);
    assert_true(fabs((double)nth_op(b.graph, TEG_OP_EMBEDDING, 0)->attr.scale.scale - 6) < 1e-6);
    built_free(&b);
    fake_free(&f);
}

static void test_nested(void **state)
{
    (void)state;
    check_nested("language_model.model.");
    check_nested("model.language_model.");
    check_nested("model.");
}

/* ---- memory ---- */

static void test_memory(void **state)
{
    (void)state;
    static const char *const makes[] = {"llama", "gemma3", "phi3", "smollm3"};
    for (size_t i = 0; i < 8; i++) {
        struct fake f = i < 4 ? fake_gguf(makes[i]) : fake_hf(i == 5 ? "gemma3_text" : makes[i - 4], "model.");
        if (i >= 4)
            fake_set(&f, "{\"layer_types\":[\"full_attention\",\"full_attention\"],\"rope_scaling\":{\"rope_type\":"
                         "\"longrope\",\"short_factor\":[1,1,1,1],\"long_factor\":[1,1,1,1]}}");
        build_every_allocation(&f, 100);
        fake_free(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_gguf),
        cmocka_unit_test(test_bad_config),
        cmocka_unit_test(test_bad_gemma),
        cmocka_unit_test(test_missing_tensors),
        cmocka_unit_test(test_misshapen_tensors),
        cmocka_unit_test(test_unknown_tensors),
        cmocka_unit_test(test_missing_biases),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_llama),
        cmocka_unit_test(test_smollm3),
        cmocka_unit_test(test_nested),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
