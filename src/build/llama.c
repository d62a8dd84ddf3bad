/* build/llama.c: norms before each half of a layer, RoPE, SiLU-gated feed-forward: Llama 2 and 3, TinyLlama, Mistral,
 * Ministral 3, SmolLM2, ERNIE 4.5, InternLM2, EXAONE 3, XVERSE; and what differs from them by little: SmolLM3 (every
 * fourth layer without RoPE), Granite and MiniCPM (factors on embedding, residual and logits), Seed-OSS (another name
 * of the second norm), Hunyuan (head norms after RoPE), Arcee (relu² without a gate), Baichuan 7B, Qwen 1 (q, k, v in
 * one matrix; twice the width of the feed-forward part in its file).
 *
 * The forward pass, on one screen. D model width, F feed-forward width. */
#include <math.h>

#include "build/builder.h"

struct names {
    enum teg_tensor_name ffn_norm;
    bool head_norms; /* after RoPE */
    bool plain;      /* feed-forward without a gate */
};

static const struct names usual = {FFN_NORM, false, false};

/* [T, D] -> [T, D] */
static value feed_forward(struct teg_builder *b, value h, uint32_t l, bool plain)
{
    const struct teg_hparams *const hp = b->hp;
    if (plain)
        return teg_b_linear(b, teg_b_activate(b, teg_b_linear(b, h, FFN_UP, l, hp->ffn_width)), FFN_DOWN, l, hp->width);
    if (teg_b_has(b, FFN_GATE_UP_SHARED, l)) /* granite 4 without experts */
        return teg_b_linear(b, teg_b_fused_glu(b, h, FFN_GATE_UP_SHARED, l), FFN_DOWN_SHARED, l, hp->width);
    const value gate = teg_b_linear(b, h, FFN_GATE, l, hp->ffn_width); /* [T, F] */
    const value up = teg_b_linear(b, h, FFN_UP, l, hp->ffn_width);
    return teg_b_linear(b, teg_b_glu(b, gate, up, TEG_ACT_SILU), FFN_DOWN, l, hp->width);
}

static void forward(struct teg_builder *b, const struct names *names)
{
    const struct teg_hparams *const hp = b->hp;
    value x = teg_b_embed(b, hp->embedding_scale > 0 ? hp->embedding_scale : 1); /* [T, D] */
    for (uint32_t l = 0; l < hp->n_layers && b->status == TEG_OK; l++) {
        value h = teg_b_norm(b, x, ATTN_NORM, l);
        struct teg_qkv p = teg_b_qkv(b, h, l);
        if (!hp->uses_rope || hp->uses_rope[l]) {
            p.q = teg_b_rope(b, p.q, b->frequencies);
            p.k = teg_b_rope(b, p.k, b->frequencies);
        }
        if (names->head_norms) {
            p.q = teg_b_head_norm(b, p.q, HUNYUAN_Q_NORM, l);
            p.k = teg_b_head_norm(b, p.k, HUNYUAN_K_NORM, l);
        }
        const uint32_t window = !hp->windowed || hp->windowed[l] ? hp->window : 0;
        h = teg_b_linear(b, teg_b_attend(b, p.q, p.k, p.v, l, window), ATTN_OUT, l, hp->width);
        x = teg_b_add(b, x, teg_b_scale(b, h, hp->residual_scale));

        h = feed_forward(b, teg_b_norm(b, x, names->ffn_norm, l), l, names->plain);
        x = teg_b_add(b, x, teg_b_scale(b, h, hp->residual_scale));
        teg_b_layer_output(b, x, l);
    }
    teg_b_head(b, x);
}

/* The forward pass with hyperparameters that differ from what the file says. */
static void forward_as(struct teg_builder *b, const struct teg_hparams *hp, const struct names *names)
{
    const struct teg_hparams *const saved = b->hp;
    b->hp = hp;
    forward(b, names);
    b->hp = saved;
}

void teg_build_llama(struct teg_builder *b)
{
    forward(b, &usual);
}

/* Which layers have RoPE: every one but each `interval`-th; 1: none. */
static bool *rope_layers(struct teg_builder *b, uint32_t interval)
{
    bool *const uses_rope = teg_arena_array(b->arena, b->hp->n_layers, sizeof *uses_rope);
    if (!uses_rope)
        b->status = teg_base_fail_memory(b->err, "layer table", b->hp->n_layers);
    for (uint32_t l = 0; uses_rope && l < b->hp->n_layers; l++)
        uses_rope[l] = (l + 1) % interval != 0;
    return uses_rope;
}

/* A GGUF of SmolLM3 does not say which layers have RoPE: every fourth has not. */
void teg_build_smollm3(struct teg_builder *b)
{
    struct teg_hparams hp = *b->hp;
    bool *const uses_rope = rope_layers(b, hp.no_rope_interval ? hp.no_rope_interval : 4);
    if (!uses_rope)
        return;
    if (!hp.uses_rope)
        hp.uses_rope = uses_rope;
    if (hp.has_use_window && !hp.use_window)
        hp.window = 0;
    forward_as(b, &hp, &usual);
}

void teg_build_granite(struct teg_builder *b)
{
    struct teg_hparams hp = *b->hp;
    if (!hp.rope_finetuned && !(hp.uses_rope = rope_layers(b, 1)))
        return;
    forward_as(b, &hp, &usual);
}

/* Old files leave out the factors, which are those of MiniCPM-2B: 12, 1.4 / sqrt(L), D / 256. */
void teg_build_minicpm(struct teg_builder *b)
{
    struct teg_hparams hp = *b->hp;
    if (!(hp.embedding_scale > 0))
        hp.embedding_scale = 12;
    if (!(hp.residual_scale > 0))
        hp.residual_scale = (float)(1.4 / sqrt((double)hp.n_layers));
    if (!(hp.logit_divisor > 0))
        hp.logit_divisor = (float)hp.width / 256;
    forward_as(b, &hp, &usual);
}

void teg_build_seed(struct teg_builder *b)
{
    forward(b, &(struct names){POST_ATTN_NORM, false, false});
}

void teg_build_hunyuan(struct teg_builder *b)
{
    forward(b, &(struct names){FFN_NORM, true, false});
}

void teg_build_arcee(struct teg_builder *b)
{
    forward(b, &(struct names){FFN_NORM, false, true});
}

/* A GGUF says by the number of layers which of the two Baichuan is: that of 40 has ALiBi. */
#define BAICHUAN_13B_LAYERS 40

void teg_build_baichuan(struct teg_builder *b)
{
    if (b->hp->n_layers == BAICHUAN_13B_LAYERS)
        b->status = teg_base_fail(b->err, TEG_ERR_UNSUPPORTED, 0,
                                  "cannot run model: %s: baichuan: expected the 7B model, which has RoPE, found one of "
                                  "%u layers, which uses ALiBi; this model is not supported",
                                  b->source->path, b->hp->n_layers);
    forward(b, &usual);
}

/* Its width is that of gate and up together. */
void teg_build_qwen1(struct teg_builder *b)
{
    struct teg_hparams hp = *b->hp;
    hp.ffn_width /= 2;
    forward_as(b, &hp, &usual);
}
