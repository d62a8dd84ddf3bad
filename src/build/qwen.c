/* build/qwen.c: Qwen2, Qwen2.5 (biases on q, k, v) and Qwen3 (RMSNorm on each head of q and k before RoPE). */
#include "build/builder.h"

/* config.json: windows only where use_sliding_window says so, and then from max_window_layers on. */
static uint32_t window_of(const struct teg_hparams *hp, uint32_t layer)
{
    if (hp->windowed)
        return hp->windowed[layer] ? hp->window : 0;
    return hp->use_window && layer >= hp->max_window_layers ? hp->window : 0;
}

static void forward(struct teg_builder *b, bool head_norms)
{
    const struct teg_hparams *const hp = b->hp;
    const uint32_t K = hp->head_width;
    value x = teg_b_embed(b, 1); /* [T, D] */
    for (uint32_t l = 0; l < hp->n_layers && b->status == TEG_OK; l++) {
        value h = teg_b_norm(b, x, ATTN_NORM, l);
        value q = teg_b_linear(b, h, ATTN_Q, l, hp->n_heads * K);    /* [T, H·K] */
        value k = teg_b_linear(b, h, ATTN_K, l, hp->n_kv_heads * K); /* [T, G·K] */
        const value v = teg_b_linear(b, h, ATTN_V, l, hp->n_kv_heads * K);
        if (head_norms) {
            q = teg_b_head_norm(b, q, ATTN_Q_NORM, l);
            k = teg_b_head_norm(b, k, ATTN_K_NORM, l);
        }
        q = teg_b_rope(b, q, b->frequencies);
        k = teg_b_rope(b, k, b->frequencies);
        x = teg_b_add(b, x, teg_b_linear(b, teg_b_attend(b, q, k, v, l, window_of(hp, l)), ATTN_OUT, l, hp->width));

        h = teg_b_norm(b, x, FFN_NORM, l);
        const value gate = teg_b_linear(b, h, FFN_GATE, l, hp->ffn_width); /* [T, F] */
        const value up = teg_b_linear(b, h, FFN_UP, l, hp->ffn_width);
        x = teg_b_add(b, x, teg_b_linear(b, teg_b_glu(b, gate, up, TEG_ACT_SILU), FFN_DOWN, l, hp->width));
        teg_b_layer_output(b, x, l);
    }
    teg_b_head(b, x);
}

void teg_build_qwen2(struct teg_builder *b)
{
    forward(b, false);
}

void teg_build_qwen3(struct teg_builder *b)
{
    forward(b, true);
}
