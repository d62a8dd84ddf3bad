/* build/builder.h: the verbs in which a forward pass is written.
 *
 * A builder file reads like the paper: x = add(b, x, linear(b, attend(b, q, layer), ATTN_OUT, layer)). To allow that,
 * a verb returns the value it made and keeps the first failure in the builder; after a failure every verb does nothing.
 * Private to build/. */
#ifndef TEG_BUILD_BUILDER_H
#define TEG_BUILD_BUILDER_H

#include "build/hparams.h"
#include "graph/graph.h"

/* Every tensor a builder can ask for: GGUF name, config.json-style name. %u is the layer; ".weight" or ".bias" is
 * added. Where two rows have one GGUF name, the families differ in what safetensors call it. */
#define TEG_TENSOR_NAMES(X)                                                                                            \
    X(TOKEN_EMBD, "token_embd", "embed_tokens")                                                                        \
    X(POSITION_EMBD, "position_embd", "embed_positions")                                                               \
    X(OUTPUT_NORM, "output_norm", "norm")                                                                              \
    X(OUTPUT, "output", "lm_head")                                                                                     \
    X(ROPE_FREQS, "rope_freqs", "")                                                                                    \
    X(ROPE_LONG, "rope_factors_long", "")                                                                              \
    X(ROPE_SHORT, "rope_factors_short", "")                                                                            \
    X(ATTN_NORM, "blk.%u.attn_norm", "layers.%u.input_layernorm")                                                      \
    X(ATTN_NORM_2, "blk.%u.attn_norm_2", "")                                                                           \
    X(MLP_NORM, "blk.%u.attn_norm", "")                                                                                \
    X(ATTN_Q, "blk.%u.attn_q", "layers.%u.self_attn.q_proj")                                                           \
    X(ATTN_K, "blk.%u.attn_k", "layers.%u.self_attn.k_proj")                                                           \
    X(ATTN_V, "blk.%u.attn_v", "layers.%u.self_attn.v_proj")                                                           \
    X(ATTN_QKV, "blk.%u.attn_qkv", "layers.%u.self_attn.qkv_proj")                                                     \
    X(ATTN_OUT, "blk.%u.attn_output", "layers.%u.self_attn.o_proj")                                                    \
    X(ATTN_Q_NORM, "blk.%u.attn_q_norm", "layers.%u.self_attn.q_norm")                                                 \
    X(ATTN_K_NORM, "blk.%u.attn_k_norm", "layers.%u.self_attn.k_norm")                                                 \
    X(FFN_NORM, "blk.%u.ffn_norm", "layers.%u.post_attention_layernorm")                                               \
    X(FFN_GATE, "blk.%u.ffn_gate", "layers.%u.mlp.gate_proj")                                                          \
    X(FFN_UP, "blk.%u.ffn_up", "layers.%u.mlp.up_proj")                                                                \
    X(FFN_GATE_UP, "blk.%u.ffn_up", "layers.%u.mlp.gate_up_proj")                                                      \
    X(FFN_DOWN, "blk.%u.ffn_down", "layers.%u.mlp.down_proj")                                                          \
    X(FFN_GATE_UP_SHARED, "", "layers.%u.shared_mlp.input_linear")                                                     \
    X(FFN_DOWN_SHARED, "", "layers.%u.shared_mlp.output_linear")                                                       \
    X(POST_ATTN_NORM, "blk.%u.post_attention_norm", "layers.%u.post_attention_layernorm")                              \
    X(PRE_FFN_NORM, "blk.%u.ffn_norm", "layers.%u.pre_feedforward_layernorm")                                          \
    X(POST_FFN_NORM, "blk.%u.post_ffw_norm", "layers.%u.post_feedforward_layernorm")                                   \
    X(GLM_POST_ATTN_NORM, "blk.%u.post_attention_norm", "layers.%u.post_self_attn_layernorm")                          \
    X(GLM_POST_FFN_NORM, "blk.%u.post_ffw_norm", "layers.%u.post_mlp_layernorm")                                       \
    X(HUNYUAN_Q_NORM, "blk.%u.attn_q_norm", "layers.%u.self_attn.query_layernorm")                                     \
    X(HUNYUAN_K_NORM, "blk.%u.attn_k_norm", "layers.%u.self_attn.key_layernorm")

enum teg_tensor_name {
#define X(id, gguf, hf) id,
    TEG_TENSOR_NAMES(X)
#undef X
        TENSOR_NAME_COUNT
};

/* What the safetensors of a family call tensors, and how they lay them out. */
struct teg_names {
    const char *prefix;
    bool transposed;                   /* matrices of layers are stored [in, out] */
    bool grouped;                      /* q, k, v in one matrix: for each KV head its q heads, k and v together */
    const char *of[TENSOR_NAME_COUNT]; /* NULL: as in TEG_TENSOR_NAMES */
};
extern const struct teg_names teg_names_gpt2, teg_names_starcoder, teg_names_gptj, teg_names_gpt_neo, teg_names_falcon,
    teg_names_gptneox, teg_names_phi, teg_names_starcoder2, teg_names_opt, teg_names_exaone, teg_names_internlm2;

/* What norm() is, which a family's file does not say. */
enum teg_norm_kind {
    RMS,
    LAYER,       /* less the mean, with a bias */
    LAYER_SCALE, /* the same without a bias */
    LAYER_BARE   /* without weights: files have none */
};

struct teg_builder {
    const struct teg_source *source;
    struct teg_arena *arena;
    const struct teg_hparams *hp;
    struct teg_graph *graph;
    struct teg_error *err;
    enum teg_status status;        /* the first failure */
    const char *prefix;            /* safetensors: "model." */
    const struct teg_names *names; /* safetensors: NULL: those of Llama */
    enum teg_norm_kind norm_kind;
    bool biases;          /* every product in a layer has one, or the file is not whole */
    bool split;           /* q, k and v of one matrix become three products */
    float norm_offset;    /* 1 where the file stores norm weights minus 1 */
    bool *used;           /* [n_tensors] of the source */
    teg_value_id *states; /* [n_layers] */
    teg_value_id frequencies, long_frequencies, local_frequencies;
    float rope_magnitude;
};

typedef teg_value_id value;

/* Verbs. `layer` is ignored by names without one. */
value teg_b_embed(struct teg_builder *b, float scale);
value teg_b_norm(struct teg_builder *b, value x, enum teg_tensor_name name, uint32_t layer);
/* As norm, over all columns of x, however many it has. */
value teg_b_wide_norm(struct teg_builder *b, value x, enum teg_tensor_name name, uint32_t layer);
/* As norm, over each head's columns. */
value teg_b_head_norm(struct teg_builder *b, value x, enum teg_tensor_name name, uint32_t layer);
/* W·x, plus the bias where the file has one. n_out: rows that W must have. */
value teg_b_linear(struct teg_builder *b, value x, enum teg_tensor_name name, uint32_t layer, uint32_t n_out);
struct teg_qkv {
    value q, k, v; /* [T, H·K], [T, G·K], [T, G·K] */
};
/* q, k and v, from three matrices or one. */
struct teg_qkv teg_b_qkv(struct teg_builder *b, value x, uint32_t layer);
/* The row of each token's position, `first` rows into the table. */
value teg_b_position(struct teg_builder *b, uint32_t first);
/* The feed-forward activation of the model, without a gate. */
value teg_b_activate(struct teg_builder *b, value x);
value teg_b_slice(struct teg_builder *b, value x, uint32_t begin, uint32_t width);
value teg_b_rope(struct teg_builder *b, value x, value frequencies);
/* Appends k and v to the layer's cache and attends with q. */
value teg_b_attend(struct teg_builder *b, value q, value k, value v, uint32_t layer, uint32_t window);
value teg_b_glu(struct teg_builder *b, value gate, value up, enum teg_activation activation);
/* gate and up as the halves of one product with a matrix of 2F rows. */
value teg_b_fused_glu(struct teg_builder *b, value x, enum teg_tensor_name name, uint32_t layer);
value teg_b_add(struct teg_builder *b, value x, value y);
/* x times a factor; 0 and 1 leave it alone. */
value teg_b_scale(struct teg_builder *b, value x, float factor);
/* Does the file have this weight? */
bool teg_b_has(const struct teg_builder *b, enum teg_tensor_name name, uint32_t layer);
/* Names the result of a layer ("layer07"), so that callers can look at it. */
value teg_b_layer_output(struct teg_builder *b, value x, uint32_t layer);
/* Final norm, head (tied where the file has no own), divisor, final softcap; sets the graph's output. */
void teg_b_head(struct teg_builder *b, value x);

/* RoPE frequencies of the model: `frequencies` and `long_frequencies` of the builder, for base hp->rope_base. */
enum teg_status teg_b_rope_setup(struct teg_builder *b);

/* `local_frequencies`: those of a base without scaling, for windowed layers. */
enum teg_status teg_b_rope_local(struct teg_builder *b, float base);

/* A float32 constant of n values computed here. */
value teg_b_vector(struct teg_builder *b, const char *name, const float *data, uint32_t n);
/* The float32 vector of that tensor, or TEG_NO_VALUE where the file has none. */
const float *teg_b_find_vector(struct teg_builder *b, enum teg_tensor_name name, uint32_t n);

/* A family's forward pass. */
void teg_build_llama(struct teg_builder *b);
void teg_build_smollm3(struct teg_builder *b);
void teg_build_baichuan(struct teg_builder *b);
void teg_build_qwen1(struct teg_builder *b);
void teg_build_qwen2(struct teg_builder *b);
void teg_build_qwen3(struct teg_builder *b);
void teg_build_gemma(struct teg_builder *b);
void teg_build_gemma2(struct teg_builder *b);
void teg_build_gemma3(struct teg_builder *b);
void teg_build_phi3(struct teg_builder *b);
void teg_build_granite(struct teg_builder *b);
void teg_build_minicpm(struct teg_builder *b);
void teg_build_seed(struct teg_builder *b);
void teg_build_olmo2(struct teg_builder *b);
void teg_build_exaone4(struct teg_builder *b);
void teg_build_glm(struct teg_builder *b);
void teg_build_glm4(struct teg_builder *b);
void teg_build_hunyuan(struct teg_builder *b);
void teg_build_arcee(struct teg_builder *b);
void teg_build_gpt2(struct teg_builder *b);
void teg_build_gptj(struct teg_builder *b);
void teg_build_gpt_neo(struct teg_builder *b);
void teg_build_gptneox(struct teg_builder *b);
void teg_build_opt(struct teg_builder *b);
void teg_build_phi2(struct teg_builder *b);
void teg_build_starcoder2(struct teg_builder *b);
void teg_build_stablelm(struct teg_builder *b);
void teg_build_falcon(struct teg_builder *b);
void teg_build_cohere(struct teg_builder *b);
void teg_build_cohere2(struct teg_builder *b);
void teg_build_nemotron(struct teg_builder *b);
void teg_build_orion(struct teg_builder *b);
void teg_build_olmo(struct teg_builder *b);

#endif
