/* build/hparams.h: a model's hyperparameters, whatever file they came from. */
#ifndef TEG_BUILD_HPARAMS_H
#define TEG_BUILD_HPARAMS_H

#include "base/arena.h"
#include "format/source.h"
#include "graph/graph.h"

#define TEG_HPARAMS_ABSENT UINT32_MAX /* a count that the file may leave out, while reading */

enum teg_rope_scaling { TEG_ROPE_NONE, TEG_ROPE_LINEAR, TEG_ROPE_LLAMA3, TEG_ROPE_YARN, TEG_ROPE_LONGROPE };

struct teg_hparams {
    const char *arch; /* "llama": the GGUF name of the family, for safetensors too */
    const char *name; /* general.name, or "" */
    bool is_gguf;     /* tensor names, norm weights and RoPE pairs follow the file's convention */
    uint32_t n_layers, n_heads, n_kv_heads;
    uint32_t width;                /* D */
    uint32_t head_width;           /* K */
    uint32_t value_width;          /* must equal head_width */
    uint32_t ffn_width;            /* F */
    uint32_t shared_ffn_width;     /* granite: that of a model without experts; 0: ffn_width */
    uint32_t context;              /* tokens the model was trained for */
    uint32_t vocab;                /* as declared; 0: take the embedding's rows */
    bool tied;                     /* config.json: the head is the embedding; GGUF says it by leaving the head out */
    bool attention_bias, mlp_bias; /* config.json: biases must be there */
    bool causal;
    bool parallel;                 /* gptneox, falcon: both halves of a layer read what the layer reads */
    bool multi_query, new_decoder; /* starcoder, falcon: one KV head; falcon: groups of heads */
    bool scaled_scores;            /* gpt2: false: attention scores are not divided by sqrt(head_width) */
    bool norm_before;              /* opt: norms stand before each half of a layer */
    bool squared_activation;       /* of the feed-forward part: relu² */
    enum teg_activation activation;
    uint32_t embedding_width; /* opt: of the embedding, before a projection to the model's; 0: the model's */
    float norm_eps;
    float attn_softcap, final_softcap;     /* 0: none */
    float attention_scale;                 /* GGUF: the factor itself; 0: 1/sqrt(head_width) */
    float query_pre_attn;                  /* config.json: the factor is its -1/2 power; 0: not given */
    float temperature_scale;               /* ministral3: of queries beyond the original context; 0: none */
    float embedding_scale, residual_scale; /* granite: of the embedding, of what half a layer adds; 0: 1 */
    float logit_divisor;                   /* granite: the logits are divided by it; 0: 1 */
    float logit_scale;                     /* cohere: the logits are multiplied by it; 0: 1 */

    float rope_base, rope_local_base; /* local: for windowed layers; 0: the same base */
    bool rope_pairs;                  /* of neighbours (2i, 2i + 1); else (i, i + rope_dims / 2) */
    bool has_scaling_type;
    bool yarn_exact_ramp; /* "truncate": false: the ramp's ends are not rounded to whole dimensions */
    bool rope_finetuned;  /* granite: false: no layer has RoPE; others say it and have */
    uint32_t rope_dims;   /* of a head that turn; 0: all */
    float partial_rotary; /* config.json's way to say it; 0: all */
    enum teg_rope_scaling scaling;
    float rope_factor, low_freq_factor, high_freq_factor, beta_fast, beta_slow;
    float rope_magnitude; /* attention factor as given; 0: by the formula */
    float mscale, mscale_all_dim;
    uint32_t original_context;
    float rope_alpha;                          /* hunyuan: the base grows by its d/(d - 2)th power; 0: 1 */
    const float *short_factors, *long_factors; /* config.json's longrope: [n_factors] */
    uint32_t n_factors;                        /* rope_dims / 2 */

    uint32_t window;                 /* keys a windowed layer sees; 0: no layer is windowed */
    uint32_t window_pattern;         /* every n-th layer is global; 0: see windowed */
    const bool *windowed;            /* per layer where the file says it; else NULL */
    bool use_window, has_use_window; /* qwen: "use_sliding_window" */
    uint32_t max_window_layers;      /* qwen: layers from this one on are windowed */
    uint32_t no_rope_interval;       /* smollm3: every n-th layer has no RoPE */
    const bool *uses_rope;           /* smollm3: per layer where the file says it; else NULL */
};

/* Reads and checks them. `family` is the GGUF architecture name. */
enum teg_status teg_hparams_read(const struct teg_source *source, const char *family, struct teg_arena *arena,
                                 struct teg_hparams *hparams, struct teg_error *err);

/* Private to build/ (defaults.c): what a config.json may leave out, because the family's configuration class has it. */
void teg_hparams_defaults(const struct teg_source *source, struct teg_hparams *hparams);
/* The family takes whatever activation its config.json names. */
bool teg_hparams_any_activation(const char *arch);
/* What follows from several keys, once all are read. */
void teg_hparams_settle(struct teg_hparams *hparams);
/* A key of config.json that describes training, storage or tokens. */
bool teg_hparams_is_harmless(const char *key);
/* What a key belongs to where that is a known thing that no builder has, as the end of a sentence; else NULL. */
const char *teg_hparams_absent_feature(const char *key);

/* The file's own word for its architecture: general.architecture or model_type. */
enum teg_status teg_hparams_architecture(const struct teg_source *source, struct teg_string *name,
                                         struct teg_error *err);

#endif
