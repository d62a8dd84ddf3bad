/* build/llama.c: Llama 2 and 3, TinyLlama, Mistral, SmolLM2; SmolLM3 leaves RoPE out of every fourth layer.
 *
 * The forward pass, on one screen. D model width, H heads, G KV heads, K head width, F feed-forward width. */
#include "build/builder.h"

static void forward(struct teg_builder *b)
{
    const struct teg_hparams *const hp = b->hp;
    const uint32_t K = hp->head_width;
    value x = teg_b_embed(b, 1); /* [T, D] */
    for (uint32_t l = 0; l < hp->n_layers && b->status == TEG_OK; l++) {
        value h = teg_b_norm(b, x, ATTN_NORM, l);
        value q = teg_b_linear(b, h, ATTN_Q, l, hp->n_heads * K);    /* [T, H·K] */
        value k = teg_b_linear(b, h, ATTN_K, l, hp->n_kv_heads * K); /* [T, G·K] */
        value v = teg_b_linear(b, h, ATTN_V, l, hp->n_kv_heads * K);
        if (!hp->uses_rope || hp->uses_rope[l]) {
            q = teg_b_rope(b, q, b->frequencies);
            k = teg_b_rope(b, k, b->frequencies);
        }
        const uint32_t window = !hp->windowed || hp->windowed[l] ? hp->window : 0;
        x = teg_b_add(b, x, teg_b_linear(b, teg_b_attend(b, q, k, v, l, window), ATTN_OUT, l, hp->width));

        h = teg_b_norm(b, x, FFN_NORM, l);
        const value gate = teg_b_linear(b, h, FFN_GATE, l, hp->ffn_width); /* [T, F] */
        const value up = teg_b_linear(b, h, FFN_UP, l, hp->ffn_width);
        x = teg_b_add(b, x, teg_b_linear(b, teg_b_glu(b, gate, up, TEG_ACT_SILU), FFN_DOWN, l, hp->width));
        teg_b_layer_output(b, x, l);
    }
    teg_b_head(b, x);
}

void teg_build_llama(struct teg_builder *b)
{
    forward(b);
}

/* A GGUF of SmolLM3 does not say which layers have RoPE: every fourth has not. */
void teg_build_smollm3(struct teg_builder *b)
{
    struct teg_hparams hp = *b->hp;
    bool *const uses_rope = teg_arena_array(b->arena, hp.n_layers, sizeof *uses_rope);
    if (!uses_rope) {
        b->status = teg_base_fail_memory(b->err, "layer table", hp.n_layers);
        return;
    }
    const uint32_t interval = hp.no_rope_interval ? hp.no_rope_interval : 4;
    for (uint32_t l = 0; l < hp.n_layers; l++)
        uses_rope[l] = (l + 1) % interval != 0;
    if (!hp.uses_rope)
        hp.uses_rope = uses_rope;
    if (hp.has_use_window && !hp.use_window)
        hp.window = 0;
    const struct teg_hparams *const saved = b->hp;
    b->hp = &hp;
    forward(b);
    b->hp = saved;
}
