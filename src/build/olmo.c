/* build/olmo.c: OLMo 2, OLMo 3 and EXAONE 4: norms after each half of a layer and none before it, and norms of q and k
 * before RoPE: over all heads at once (OLMo) or over each (EXAONE).
 *
 * OLMo 3's windowed layers turn without the scaling of the global ones; EXAONE's global layers, where there are
 * windowed ones, do not turn at all. */
#include "build/builder.h"

/* Every `window_pattern`-th layer is global. */
static bool is_windowed(const struct teg_hparams *hp, uint32_t layer)
{
    if (!hp->window)
        return false;
    if (hp->windowed)
        return hp->windowed[layer];
    return (layer + 1) % (hp->window_pattern ? hp->window_pattern : 4) != 0;
}

static void forward(struct teg_builder *b, bool exaone)
{
    const struct teg_hparams *const hp = b->hp;
    const uint32_t K = hp->head_width;
    value (*const qk_norm)(struct teg_builder *, value, enum teg_tensor_name, uint32_t) =
        exaone ? teg_b_head_norm : teg_b_wide_norm;
    value x = teg_b_embed(b, 1); /* [T, D] */
    for (uint32_t l = 0; l < hp->n_layers && b->status == TEG_OK; l++) {
        const bool windowed = is_windowed(hp, l);
        value q = teg_b_linear(b, x, ATTN_Q, l, hp->n_heads * K);    /* [T, H·K] */
        value k = teg_b_linear(b, x, ATTN_K, l, hp->n_kv_heads * K); /* [T, G·K] */
        const value v = teg_b_linear(b, x, ATTN_V, l, hp->n_kv_heads * K);
        q = qk_norm(b, q, ATTN_Q_NORM, l);
        k = qk_norm(b, k, ATTN_K_NORM, l);
        if (!exaone || windowed || !hp->window) {
            const value frequencies = windowed && !exaone ? b->local_frequencies : b->frequencies;
            q = teg_b_rope(b, q, frequencies);
            k = teg_b_rope(b, k, frequencies);
        }
        value h = teg_b_linear(b, teg_b_attend(b, q, k, v, l, windowed ? hp->window : 0), ATTN_OUT, l, hp->width);
        x = teg_b_add(b, x, teg_b_norm(b, h, POST_ATTN_NORM, l));

        const value gate = teg_b_linear(b, x, FFN_GATE, l, hp->ffn_width); /* [T, F] */
        const value up = teg_b_linear(b, x, FFN_UP, l, hp->ffn_width);
        h = teg_b_linear(b, teg_b_glu(b, gate, up, TEG_ACT_SILU), FFN_DOWN, l, hp->width);
        x = teg_b_add(b, x, teg_b_norm(b, h, POST_FFN_NORM, l));
        teg_b_layer_output(b, x, l);
    }
    teg_b_head(b, x);
}

void teg_build_olmo2(struct teg_builder *b)
{
    const float base = b->hp->rope_local_base > 0 ? b->hp->rope_local_base : b->hp->rope_base;
    if (!b->hp->window || teg_b_rope_local(b, base) == TEG_OK)
        forward(b, false);
}

void teg_build_exaone4(struct teg_builder *b)
{
    forward(b, true);
}
