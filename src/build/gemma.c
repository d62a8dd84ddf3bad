/* build/gemma.c: Gemma, Gemma 2 and Gemma 3.
 *
 * All scale the embedding by sqrt(D) and use the tanh GELU. From the second on they norm after as well as before each
 * half of a layer, and alternate windowed with global layers. Gemma 2 caps scores and logits; Gemma 3 norms the heads
 * of q and k, and its windowed layers turn with a base of their own (10,000, unscaled). safetensors store norm weights
 * minus 1. */
#include <math.h>

#include "build/builder.h"

/* The largest model of each generation divides by sqrt(D / H); a GGUF does not say so, except by its layer count. */
#define GEMMA2_27B_LAYERS 46
#define GEMMA3_27B_LAYERS 62

static float attention_scale(const struct teg_hparams *hp, uint32_t layers_27b)
{
    if (hp->attention_scale > 0)
        return hp->attention_scale;
    if (hp->query_pre_attn > 0)
        return (float)(1 / sqrt((double)hp->query_pre_attn));
    if (hp->is_gguf && hp->n_layers == layers_27b)
        return (float)(1 / sqrt((double)hp->width / hp->n_heads));
    return (float)(1 / sqrt((double)hp->head_width));
}

/* Every `pattern`-th layer is global. */
static bool is_windowed(const struct teg_hparams *hp, uint32_t layer, uint32_t pattern)
{
    if (hp->windowed)
        return hp->windowed[layer];
    return (layer + 1) % (hp->window_pattern ? hp->window_pattern : pattern) != 0;
}

/* How a generation differs from the first. */
struct generation {
    bool post_norms, head_norms;
    uint32_t pattern; /* of global layers, where the file does not say it */
};

static void forward(struct teg_builder *b, struct generation g)
{
    const struct teg_hparams *const hp = b->hp;
    const uint32_t K = hp->head_width;
    b->norm_offset = hp->is_gguf ? 0 : 1;
    value x = teg_b_embed(b, (float)sqrt((double)hp->width)); /* [T, D] */
    for (uint32_t l = 0; l < hp->n_layers && b->status == TEG_OK; l++) {
        const bool windowed = hp->window && is_windowed(hp, l, g.pattern);
        const value frequencies = windowed ? b->local_frequencies : b->frequencies;
        value h = teg_b_norm(b, x, ATTN_NORM, l);
        value q = teg_b_linear(b, h, ATTN_Q, l, hp->n_heads * K);    /* [T, H·K] */
        value k = teg_b_linear(b, h, ATTN_K, l, hp->n_kv_heads * K); /* [T, G·K] */
        const value v = teg_b_linear(b, h, ATTN_V, l, hp->n_kv_heads * K);
        if (g.head_norms) {
            q = teg_b_head_norm(b, q, ATTN_Q_NORM, l);
            k = teg_b_head_norm(b, k, ATTN_K_NORM, l);
        }
        q = teg_b_rope(b, q, frequencies);
        k = teg_b_rope(b, k, frequencies);
        h = teg_b_linear(b, teg_b_attend(b, q, k, v, l, windowed ? hp->window : 0), ATTN_OUT, l, hp->width);
        x = teg_b_add(b, x, g.post_norms ? teg_b_norm(b, h, POST_ATTN_NORM, l) : h);

        h = teg_b_norm(b, x, g.post_norms ? PRE_FFN_NORM : FFN_NORM, l);
        const value gate = teg_b_linear(b, h, FFN_GATE, l, hp->ffn_width); /* [T, F] */
        const value up = teg_b_linear(b, h, FFN_UP, l, hp->ffn_width);
        h = teg_b_linear(b, teg_b_glu(b, gate, up, TEG_ACT_GELU_TANH), FFN_DOWN, l, hp->width);
        x = teg_b_add(b, x, g.post_norms ? teg_b_norm(b, h, POST_FFN_NORM, l) : h);
        teg_b_layer_output(b, x, l);
    }
    teg_b_head(b, x);
}

static void forward_scaled(struct teg_builder *b, uint32_t layers_27b, struct generation g)
{
    struct teg_hparams hp = *b->hp;
    hp.attention_scale = attention_scale(&hp, layers_27b);
    const struct teg_hparams *const saved = b->hp;
    b->hp = &hp;
    forward(b, g);
    b->hp = saved;
}

void teg_build_gemma(struct teg_builder *b)
{
    forward_scaled(b, UINT32_MAX, (struct generation){false, false, 1});
}

void teg_build_gemma2(struct teg_builder *b)
{
    forward_scaled(b, GEMMA2_27B_LAYERS, (struct generation){true, false, 2});
}

void teg_build_gemma3(struct teg_builder *b)
{
    if (teg_b_rope_local(b, b->hp->rope_local_base > 0 ? b->hp->rope_local_base : 10000) == TEG_OK)
        forward_scaled(b, GEMMA3_27B_LAYERS, (struct generation){true, true, 6});
}
