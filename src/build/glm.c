/* build/glm.c: GLM-4 and GLM-Edge: half of each head turns, in pairs of neighbours; biases on q, k, v; gate and up in
 * one matrix. The newer GLM-4-0414 norms after as well as before each half of a layer. */
#include "build/builder.h"

static void forward(struct teg_builder *b, bool post_norms)
{
    const struct teg_hparams *const hp = b->hp;
    value x = teg_b_embed(b, 1); /* [T, D] */
    for (uint32_t l = 0; l < hp->n_layers && b->status == TEG_OK; l++) {
        value h = teg_b_norm(b, x, ATTN_NORM, l);
        struct teg_qkv p = teg_b_qkv(b, h, l); /* older files have the three matrices in one */
        p.q = teg_b_rope(b, p.q, b->frequencies);
        p.k = teg_b_rope(b, p.k, b->frequencies);
        h = teg_b_linear(b, teg_b_attend(b, p.q, p.k, p.v, l, 0), ATTN_OUT, l, hp->width);
        if (post_norms)
            h = teg_b_norm(b, h, GLM_POST_ATTN_NORM, l);
        x = teg_b_add(b, x, h);

        h = teg_b_fused_glu(b, teg_b_norm(b, x, FFN_NORM, l), FFN_GATE_UP, l);
        h = teg_b_linear(b, h, FFN_DOWN, l, hp->width);
        if (post_norms)
            h = teg_b_norm(b, h, GLM_POST_FFN_NORM, l);
        x = teg_b_add(b, x, h);
        teg_b_layer_output(b, x, l);
    }
    teg_b_head(b, x);
}

void teg_build_glm(struct teg_builder *b)
{
    forward(b, false);
}

void teg_build_glm4(struct teg_builder *b)
{
    forward(b, true);
}
