/* build/layernorm.c: families whose norms are LayerNorms: GPT-2, GPT-J, GPT-Neo, GPT-NeoX, OPT, Phi-2, StarCoder,
 * StarCoder 2, StableLM 2, Falcon, Command R, Command R7B, Nemotron, OLMo 1, Orion.
 *
 * They differ in few things, which `shape` lists: whether attention and feed-forward part read the same value (so the
 * layer adds both at once), whether they also share its norm, whether the feed-forward part has a gate, and where
 * positions come from: a learned table, RoPE on all layers, or RoPE on windowed ones only.
 *
 * Not taken: a forward pass for each family: fifteen screens that say the same. */
#include "build/builder.h"

enum positions { LEARNED, ROPE, ROPE_IN_WINDOWS };

struct shape {
    enum positions positions;
    bool parallel; /* both halves read x; else the second reads what the first made of it */
    bool one_norm; /* parallel: both read the same norm of x */
    bool gated;
    uint32_t first_position; /* of a learned table */
};

/* Keys that a query of the layer sees; 0: all. */
static uint32_t window_of(const struct teg_hparams *hp, uint32_t layer)
{
    if (hp->windowed)
        return hp->windowed[layer] ? hp->window : 0;
    return hp->window_pattern && (layer + 1) % hp->window_pattern == 0 ? 0 : hp->window;
}

/* [T, D] -> [T, D] */
static value feed_forward(struct teg_builder *b, const struct shape *s, value h, uint32_t l)
{
    const struct teg_hparams *const hp = b->hp;
    if (!s->gated)
        return teg_b_linear(b, teg_b_activate(b, teg_b_linear(b, h, FFN_UP, l, hp->ffn_width)), FFN_DOWN, l, hp->width);
    const value gate = teg_b_linear(b, h, FFN_GATE, l, hp->ffn_width); /* [T, F] */
    const value up = teg_b_linear(b, h, FFN_UP, l, hp->ffn_width);
    return teg_b_linear(b, teg_b_glu(b, gate, up, hp->activation), FFN_DOWN, l, hp->width);
}

static value attention(struct teg_builder *b, const struct shape *s, value h, uint32_t l)
{
    const uint32_t window = window_of(b->hp, l);
    struct teg_qkv p = teg_b_qkv(b, h, l);
    if (s->positions == ROPE || (s->positions == ROPE_IN_WINDOWS && window)) {
        p.q = teg_b_rope(b, p.q, b->frequencies);
        p.k = teg_b_rope(b, p.k, b->frequencies);
    }
    return teg_b_linear(b, teg_b_attend(b, p.q, p.k, p.v, l, window), ATTN_OUT, l, b->hp->width);
}

static void forward(struct teg_builder *b, const struct shape *s)
{
    const struct teg_hparams *const hp = b->hp;
    value x = teg_b_embed(b, 1); /* [T, D] */
    b->split = s->positions != ROPE;
    if (s->positions == LEARNED)
        x = teg_b_add(b, x, teg_b_position(b, s->first_position));
    for (uint32_t l = 0; l < hp->n_layers && b->status == TEG_OK; l++) {
        /* Falcon with two norms of x: attention reads the one that only these models have. */
        const bool two = teg_b_has(b, ATTN_NORM_2, l);
        value h = teg_b_norm(b, x, two ? ATTN_NORM_2 : ATTN_NORM, l), m = h;
        if (s->parallel && !(s->one_norm && !two))
            m = teg_b_norm(b, x, two ? MLP_NORM : FFN_NORM, l);
        x = teg_b_add(b, x, attention(b, s, h, l));
        if (!s->parallel)
            m = teg_b_norm(b, x, FFN_NORM, l);
        x = teg_b_add(b, x, feed_forward(b, s, m, l));
        teg_b_layer_output(b, x, l);
    }
    teg_b_head(b, x);
}

/* GPT-2 and StarCoder. */
void teg_build_gpt2(struct teg_builder *b)
{
    b->norm_kind = LAYER;
    b->biases = true;
    forward(b, &(struct shape){.positions = LEARNED});
}

void teg_build_gptj(struct teg_builder *b)
{
    b->norm_kind = LAYER;
    forward(b, &(struct shape){.positions = ROPE, .parallel = true, .one_norm = true});
}

/* Every second layer sees a window, where the file does not say which. */
void teg_build_gpt_neo(struct teg_builder *b)
{
    b->norm_kind = LAYER;
    struct teg_hparams hp = *b->hp;
    bool *const windowed = teg_arena_array(b->arena, hp.n_layers, sizeof *windowed);
    if (!windowed) {
        b->status = teg_base_fail_memory(b->err, "layer table", hp.n_layers);
        return;
    }
    for (uint32_t l = 0; l < hp.n_layers; l++)
        windowed[l] = hp.windowed ? hp.windowed[l] : l % 2 == 1;
    hp.windowed = windowed;
    const struct teg_hparams *const saved = b->hp;
    b->hp = &hp;
    forward(b, &(struct shape){.positions = LEARNED});
    b->hp = saved;
}

void teg_build_gptneox(struct teg_builder *b)
{
    b->norm_kind = LAYER;
    b->biases = b->hp->attention_bias;
    forward(b, &(struct shape){.positions = ROPE, .parallel = b->hp->parallel});
}

/* Positions start at row 2 of the table. */
void teg_build_opt(struct teg_builder *b)
{
    b->norm_kind = LAYER;
    b->biases = true;
    const struct teg_hparams *const hp = b->hp;
    if (!hp->norm_before || (hp->embedding_width && hp->embedding_width != hp->width))
        b->status = teg_base_fail(b->err, TEG_ERR_UNSUPPORTED, 0,
                                  "cannot run model: %s: opt: expected norms before each half of a layer and an "
                                  "embedding as wide as the model, found others; this model is not supported",
                                  b->source->path);
    forward(b, &(struct shape){.positions = LEARNED, .first_position = 2});
}

void teg_build_phi2(struct teg_builder *b)
{
    b->norm_kind = LAYER;
    b->biases = true;
    forward(b, &(struct shape){.positions = ROPE, .parallel = true, .one_norm = true});
}

void teg_build_starcoder2(struct teg_builder *b)
{
    b->norm_kind = LAYER;
    b->biases = b->hp->attention_bias;
    forward(b, &(struct shape){.positions = ROPE});
}

/* Parallel where there is no second norm. */
void teg_build_stablelm(struct teg_builder *b)
{
    const bool parallel = !teg_b_has(b, FFN_NORM, 0);
    b->norm_kind = LAYER;
    forward(b, &(struct shape){.positions = ROPE, .parallel = parallel, .one_norm = true, .gated = true});
}

void teg_build_falcon(struct teg_builder *b)
{
    b->norm_kind = LAYER;
    forward(b, &(struct shape){.positions = ROPE, .parallel = b->hp->parallel, .one_norm = true});
}

void teg_build_cohere(struct teg_builder *b)
{
    b->norm_kind = LAYER_SCALE;
    forward(b, &(struct shape){.positions = ROPE, .parallel = true, .one_norm = true, .gated = true});
}

/* Every fourth layer is global, where the file does not say which. */
void teg_build_cohere2(struct teg_builder *b)
{
    b->norm_kind = LAYER_SCALE;
    struct teg_hparams hp = *b->hp;
    if (!hp.window_pattern)
        hp.window_pattern = 4;
    const struct teg_hparams *const saved = b->hp;
    b->hp = &hp;
    forward(b, &(struct shape){.positions = ROPE_IN_WINDOWS, .parallel = true, .one_norm = true, .gated = true});
    b->hp = saved;
}

/* safetensors store norm weights minus 1. */
void teg_build_nemotron(struct teg_builder *b)
{
    b->norm_kind = LAYER;
    b->norm_offset = b->hp->is_gguf ? 0 : 1;
    forward(b, &(struct shape){.positions = ROPE});
}

void teg_build_orion(struct teg_builder *b)
{
    b->norm_kind = LAYER;
    forward(b, &(struct shape){.positions = ROPE, .gated = true});
}

void teg_build_olmo(struct teg_builder *b)
{
    b->norm_kind = LAYER_BARE;
    forward(b, &(struct shape){.positions = ROPE, .gated = true});
}
