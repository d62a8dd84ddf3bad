/* build/names.c: what checkpoints call their tensors where it is not as in Llama's.
 *
 * One list for each way to name them; what it leaves out is called as in builder.h. Invariant: a list says names and
 * how a matrix lies in the file (transposed, q, k and v of each group of heads together), never what is done with it.
 * Not taken: patterns that rename one family's tensors to another's, which fail on the first name that fits two. */
#include "build/builder.h"

#define OF_GPT [TOKEN_EMBD] = "wte", [OUTPUT_NORM] = "ln_f", [ATTN_NORM] = "h.%u.ln_1", [FFN_NORM] = "h.%u.ln_2"

const struct teg_names teg_names_gpt2 = {
    .prefix = "transformer.",
    .transposed = true,
    .of = {OF_GPT, [POSITION_EMBD] = "wpe", [ATTN_QKV] = "h.%u.attn.c_attn", [ATTN_OUT] = "h.%u.attn.c_proj",
           [FFN_UP] = "h.%u.mlp.c_fc", [FFN_DOWN] = "h.%u.mlp.c_proj"}};

const struct teg_names teg_names_starcoder = {
    .prefix = "transformer.",
    .grouped = true,
    .of = {OF_GPT, [POSITION_EMBD] = "wpe", [ATTN_QKV] = "h.%u.attn.c_attn", [ATTN_OUT] = "h.%u.attn.c_proj",
           [FFN_UP] = "h.%u.mlp.c_fc", [FFN_DOWN] = "h.%u.mlp.c_proj"}};

const struct teg_names teg_names_gptj = {
    .prefix = "transformer.",
    .of = {OF_GPT, [ATTN_Q] = "h.%u.attn.q_proj", [ATTN_K] = "h.%u.attn.k_proj", [ATTN_V] = "h.%u.attn.v_proj",
           [ATTN_OUT] = "h.%u.attn.out_proj", [FFN_UP] = "h.%u.mlp.fc_in", [FFN_DOWN] = "h.%u.mlp.fc_out"}};

const struct teg_names teg_names_gpt_neo = {
    .prefix = "transformer.",
    .of = {OF_GPT, [POSITION_EMBD] = "wpe", [ATTN_Q] = "h.%u.attn.attention.q_proj",
           [ATTN_K] = "h.%u.attn.attention.k_proj", [ATTN_V] = "h.%u.attn.attention.v_proj",
           [ATTN_OUT] = "h.%u.attn.attention.out_proj", [FFN_UP] = "h.%u.mlp.c_fc", [FFN_DOWN] = "h.%u.mlp.c_proj"}};

const struct teg_names teg_names_falcon = {.prefix = "transformer.",
                                           .grouped = true,
                                           .of = {[TOKEN_EMBD] = "word_embeddings",
                                                  [OUTPUT_NORM] = "ln_f",
                                                  [ATTN_NORM] = "h.%u.input_layernorm",
                                                  [ATTN_NORM_2] = "h.%u.ln_attn",
                                                  [MLP_NORM] = "h.%u.ln_mlp",
                                                  [FFN_NORM] = "h.%u.post_attention_layernorm",
                                                  [ATTN_QKV] = "h.%u.self_attention.query_key_value",
                                                  [ATTN_OUT] = "h.%u.self_attention.dense",
                                                  [FFN_UP] = "h.%u.mlp.dense_h_to_4h",
                                                  [FFN_DOWN] = "h.%u.mlp.dense_4h_to_h"}};

const struct teg_names teg_names_gptneox = {.prefix = "gpt_neox.",
                                            .grouped = true,
                                            .of = {[TOKEN_EMBD] = "embed_in",
                                                   [OUTPUT_NORM] = "final_layer_norm",
                                                   [OUTPUT] = "embed_out",
                                                   [ATTN_QKV] = "layers.%u.attention.query_key_value",
                                                   [ATTN_OUT] = "layers.%u.attention.dense",
                                                   [FFN_UP] = "layers.%u.mlp.dense_h_to_4h",
                                                   [FFN_DOWN] = "layers.%u.mlp.dense_4h_to_h"}};

const struct teg_names teg_names_phi = {.prefix = "model.",
                                        .of = {[OUTPUT_NORM] = "final_layernorm",
                                               [ATTN_OUT] = "layers.%u.self_attn.dense",
                                               [FFN_UP] = "layers.%u.mlp.fc1",
                                               [FFN_DOWN] = "layers.%u.mlp.fc2"}};

const struct teg_names teg_names_starcoder2 = {
    .prefix = "model.", .of = {[FFN_UP] = "layers.%u.mlp.c_fc", [FFN_DOWN] = "layers.%u.mlp.c_proj"}};

const struct teg_names teg_names_opt = {.prefix = "model.decoder.",
                                        .of = {[OUTPUT_NORM] = "final_layer_norm",
                                               [POSITION_EMBD] = "embed_positions",
                                               [ATTN_NORM] = "layers.%u.self_attn_layer_norm",
                                               [FFN_NORM] = "layers.%u.final_layer_norm",
                                               [ATTN_OUT] = "layers.%u.self_attn.out_proj",
                                               [FFN_UP] = "layers.%u.fc1",
                                               [FFN_DOWN] = "layers.%u.fc2"}};

const struct teg_names teg_names_exaone = {
    .prefix = "transformer.",
    .of = {OF_GPT, [ATTN_Q] = "h.%u.attn.attention.q_proj", [ATTN_K] = "h.%u.attn.attention.k_proj",
           [ATTN_V] = "h.%u.attn.attention.v_proj", [ATTN_OUT] = "h.%u.attn.attention.out_proj",
           [FFN_GATE] = "h.%u.mlp.c_fc_0", [FFN_UP] = "h.%u.mlp.c_fc_1", [FFN_DOWN] = "h.%u.mlp.c_proj"}};

const struct teg_names teg_names_internlm2 = {.prefix = "model.",
                                              .grouped = true,
                                              .of = {[TOKEN_EMBD] = "tok_embeddings",
                                                     [OUTPUT] = "output",
                                                     [ATTN_NORM] = "layers.%u.attention_norm",
                                                     [ATTN_QKV] = "layers.%u.attention.wqkv",
                                                     [ATTN_OUT] = "layers.%u.attention.wo",
                                                     [FFN_NORM] = "layers.%u.ffn_norm",
                                                     [FFN_GATE] = "layers.%u.feed_forward.w1",
                                                     [FFN_UP] = "layers.%u.feed_forward.w3",
                                                     [FFN_DOWN] = "layers.%u.feed_forward.w2"}};
