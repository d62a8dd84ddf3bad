/* build/phi3.c: Phi-3, Phi-3.5 and Phi-4-mini: q, k, v in one matrix, gate and up in another, longrope, a window on
 * every layer. */
#include "build/builder.h"

void teg_build_phi3(struct teg_builder *b)
{
    const struct teg_hparams *const hp = b->hp;
    const uint32_t K = hp->head_width, q_width = hp->n_heads * K, kv_width = hp->n_kv_heads * K;
    value x = teg_b_embed(b, 1); /* [T, D] */
    for (uint32_t l = 0; l < hp->n_layers && b->status == TEG_OK; l++) {
        value h = teg_b_norm(b, x, ATTN_NORM, l);
        h = teg_b_linear(b, h, ATTN_QKV, l, q_width + 2 * kv_width);
        const value q = teg_b_rope(b, teg_b_slice(b, h, 0, q_width), b->frequencies);        /* [T, H·K] */
        const value k = teg_b_rope(b, teg_b_slice(b, h, q_width, kv_width), b->frequencies); /* [T, G·K] */
        const value v = teg_b_slice(b, h, q_width + kv_width, kv_width);
        x = teg_b_add(b, x, teg_b_linear(b, teg_b_attend(b, q, k, v, l, hp->window), ATTN_OUT, l, hp->width));

        h = teg_b_fused_glu(b, teg_b_norm(b, x, FFN_NORM, l), FFN_GATE_UP, l); /* [T, F] */
        x = teg_b_add(b, x, teg_b_linear(b, h, FFN_DOWN, l, hp->width));
        teg_b_layer_output(b, x, l);
    }
    teg_b_head(b, x);
}
