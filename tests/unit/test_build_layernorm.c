/* Builders of the LayerNorm families: each message once, and what is done with weights that lie in a file otherwise
 * than in the graph. Forward passes are compared with transformers elsewhere (tests/golden, tools/tiny_families.py). */
#include "unit/build_test.h"

#define WHOLE(name) "; the file is not a whole " name " model"

static void fails(struct fake *f, enum teg_status status, const char *message)
{
    struct built b = build(f);
    assert_string_equal(b.err.message, message);
    assert_int_equal(b.status, status);
    built_free(&b);
    fake_free(f);
}

struct shape {
    const char *name; /* %u: the layer */
    uint64_t rows, columns;
};

enum { D = 32, H = 4, K = 8, F = 128, V = 50, C = 64 };

static void add_all(struct fake *f, const struct shape *shapes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *const at = strstr(shapes[i].name, "%u");
        char name[128];
        for (unsigned l = 0; l < (at ? 2u : 1u); l++) {
            if (at)
                (void)snprintf(name, sizeof name, "%.*s%u%s", (int)(at - shapes[i].name), shapes[i].name, l, at + 2);
            fake_add(f, at ? name : shapes[i].name, shapes[i].rows, shapes[i].columns);
        }
    }
}
#define ADD_ALL(f, shapes) add_all((f), (shapes), sizeof(shapes) / sizeof *(shapes))

static struct fake directory(const char *config)
{
    struct fake f = {.kind = TEG_SOURCE_SAFETENSORS, .seed = 1};
    f.metas = fake_json(config);
    return f;
}

static const struct shape gpt2_tensors[] = {
    {"transformer.wte.weight", V, D},
    {"transformer.wpe.weight", C, D},
    {"transformer.h.%u.ln_1.weight", 0, D},
    {"transformer.h.%u.ln_1.bias", 0, D},
    {"transformer.h.%u.attn.c_attn.weight", D, 3 * D},
    {"transformer.h.%u.attn.c_attn.bias", 0, 3 * D},
    {"transformer.h.%u.attn.c_proj.weight", D, D},
    {"transformer.h.%u.attn.c_proj.bias", 0, D},
    {"transformer.h.%u.ln_2.weight", 0, D},
    {"transformer.h.%u.ln_2.bias", 0, D},
    {"transformer.h.%u.mlp.c_fc.weight", D, F},
    {"transformer.h.%u.mlp.c_fc.bias", 0, F},
    {"transformer.h.%u.mlp.c_proj.weight", F, D},
    {"transformer.h.%u.mlp.c_proj.bias", 0, D},
    {"transformer.ln_f.weight", 0, D},
    {"transformer.ln_f.bias", 0, D},
};

static struct fake gpt2(void)
{
    struct fake f = directory("{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_head\":4,\"n_embd\":32,\"n_positions\":64,"
                              "\"n_ctx\":64,\"vocab_size\":50,\"activation_function\":\"gelu_new\",\"n_inner\":null,"
                              "\"layer_norm_epsilon\":1e-5,\"summary_type\":\"cls_index\"}");
    ADD_ALL(&f, gpt2_tensors);
    return f;
}

static const struct shape neox_tensors[] = {
    {"gpt_neox.embed_in.weight", V, D},
    {"gpt_neox.layers.%u.input_layernorm.weight", 0, D},
    {"gpt_neox.layers.%u.input_layernorm.bias", 0, D},
    {"gpt_neox.layers.%u.attention.query_key_value.weight", 3 * D, D},
    {"gpt_neox.layers.%u.attention.query_key_value.bias", 0, 3 * D},
    {"gpt_neox.layers.%u.attention.dense.weight", D, D},
    {"gpt_neox.layers.%u.attention.dense.bias", 0, D},
    {"gpt_neox.layers.%u.post_attention_layernorm.weight", 0, D},
    {"gpt_neox.layers.%u.post_attention_layernorm.bias", 0, D},
    {"gpt_neox.layers.%u.mlp.dense_h_to_4h.weight", F, D},
    {"gpt_neox.layers.%u.mlp.dense_h_to_4h.bias", 0, F},
    {"gpt_neox.layers.%u.mlp.dense_4h_to_h.weight", D, F},
    {"gpt_neox.layers.%u.mlp.dense_4h_to_h.bias", 0, D},
    {"gpt_neox.final_layer_norm.weight", 0, D},
    {"gpt_neox.final_layer_norm.bias", 0, D},
    {"embed_out.weight", V, D},
};

static struct fake neox(void)
{
    struct fake f = directory("{\"model_type\":\"gpt_neox\",\"num_hidden_layers\":2,\"num_attention_heads\":4,"
                              "\"hidden_size\":32,\"intermediate_size\":128,\"max_position_embeddings\":64,"
                              "\"rotary_pct\":0.5,\"layer_norm_eps\":1e-5,\"hidden_act\":\"gelu\"}");
    ADD_ALL(&f, neox_tensors);
    return f;
}

static void test_messages(void **state)
{
    (void)state;
    static const struct {
        struct fake (*make)(void);
        const char *set, *drop_key, *drop;
        enum teg_status status;
        const char *message;
    } rows[] = {
        {gpt2, NULL, "n_layer", NULL, TEG_ERR_FORMAT,
         "cannot read model: fake: key n_layer: expected a value, found none; the file is not a whole model"},
        {gpt2, "{\"activation_function\":\"tanh\"}", NULL, NULL, TEG_ERR_UNSUPPORTED,
         "cannot run model: fake: key activation_function: expected silu, gelu, gelu_new, relu or relu2 for gpt2, "
         "found "
         "tanh; this activation is not supported"},
        {gpt2, "{\"scale_attn_by_inverse_layer_idx\":true}", NULL, NULL, TEG_ERR_UNSUPPORTED,
         "cannot run model: fake: key scale_attn_by_inverse_layer_idx: expected keys whose meaning is known for gpt2, "
         "found this one (bool), which may change the maths; this model is not supported"},
        {gpt2, "{\"n_positions\":63}", NULL, NULL, TEG_ERR_FORMAT,
         "cannot use model: fake: tensor transformer.wpe.weight: expected shape [63, 32], found rank 2, [64, 32]; the "
         "file is damaged or its metadata belong to another model"},
        {gpt2, NULL, NULL, "transformer.h.1.mlp.c_fc.bias", TEG_ERR_FORMAT,
         "cannot use model: fake: tensor transformer.h.1.mlp.c_fc.bias: expected it in the file, found none" WHOLE(
             "gpt2")},
        {gpt2, NULL, NULL, "transformer.ln_f.bias", TEG_ERR_FORMAT,
         "cannot use model: fake: tensor transformer.ln_f.bias: expected it in the file, found none" WHOLE("gpt2")},
        {neox, NULL, NULL, "embed_out.weight", TEG_ERR_FORMAT,
         "cannot use model: fake: tensor embed_out.weight: expected it in the file, found none" WHOLE("gptneox")},
        {neox, NULL, NULL, "gpt_neox.layers.0.attention.dense.bias", TEG_ERR_FORMAT,
         "cannot use model: fake: tensor gpt_neox.layers.0.attention.dense.bias: expected it in the file, found "
         "none" WHOLE("gptneox")},
        {neox, "{\"alibi\":true}", NULL, NULL, TEG_ERR_UNSUPPORTED,
         "cannot run model: fake: key alibi: expected a dense model with plain weights, found ALiBi instead of "
         "position "
         "embeddings, which is not supported"},
        {neox, "{\"use_qk_norm\":true}", NULL, NULL, TEG_ERR_UNSUPPORTED,
         "cannot run model: fake: key use_qk_norm: expected a dense model with plain weights, found norms of q and k "
         "with weights for each head, which are not supported"},
        {neox, "{\"qk_layernorm\":true}", NULL, NULL, TEG_ERR_UNSUPPORTED,
         "cannot run model: fake: key qk_layernorm: expected a dense model with plain weights, found norms of q and k "
         "with weights for each head, which are not supported"},
        {neox, "{\"model_type\":\"bloom\"}", NULL, NULL, TEG_ERR_UNSUPPORTED,
         "cannot run model: fake: architecture: expected one that docs/FORMATS.md lists (llama, qwen3, gemma3, gpt2, "
         "…), "
         "found bloom, which uses ALiBi; this architecture is not supported"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fake f = rows[i].make();
        if (rows[i].set)
            fake_set(&f, rows[i].set);
        if (rows[i].drop_key)
            fake_drop(&f, rows[i].drop_key);
        if (rows[i].drop)
            fake_remove(&f, rows[i].drop);
        fails(&f, rows[i].status, rows[i].message);
    }
}

static void test_opt(void **state)
{
    (void)state;
    static const char *const changes[] = {"{\"do_layer_norm_before\":false}", "{\"word_embed_proj_dim\":16}"};
    for (size_t i = 0; i < 2; i++) {
        struct fake f = directory("{\"model_type\":\"opt\",\"num_hidden_layers\":2,\"num_attention_heads\":4,"
                                  "\"hidden_size\":32,\"ffn_dim\":128,\"max_position_embeddings\":64}");
        fake_set(&f, changes[i]);
        fails(&f, TEG_ERR_UNSUPPORTED,
              "cannot run model: fake: opt: expected norms before each half of a layer and an embedding as wide as the "
              "model, found others; this model is not supported");
    }
}

/* A matrix of GPT-2 lies as [in, out]; the graph's is [out, in], and no other type can be turned. */
static void test_turned(void **state)
{
    (void)state;
    static float fc[D * F];
    for (size_t i = 0; i < (size_t)D * F; i++)
        fc[i] = (float)i;
    struct fake f = gpt2();
    fake_tensor(&f, "transformer.h.0.mlp.c_fc.weight")->data = fc;
    fake_add(&f, "transformer.h.0.attn.bias", 8, 8); /* a mask that old checkpoints keep */
    struct built b = build_well(&f);
    const struct teg_op *const op = nth_op(b.graph, TEG_OP_LINEAR, 4); /* q, k, v, out */
    const struct teg_value *const w = &b.graph->values[op->inputs[1]];
    assert_string_equal(w->name, "transformer.h.0.mlp.c_fc.weight");
    assert_int_equal(w->shape.dims[0], F);
    for (size_t r = 0; r < F; r++)
        for (size_t c = 0; c < D; c++)
            assert_true(((const float *)w->data)[r * D + c] == fc[c * F + r]);
    for (uint32_t part = 0; part < 3; part++) { /* one matrix in the file, three products in the graph */
        const struct teg_op *const product = nth_op(b.graph, TEG_OP_LINEAR, part);
        const struct teg_value *const qkv = &b.graph->values[product->inputs[1]];
        assert_int_equal(qkv->shape.dims[0], D);
        assert_int_equal(b.graph->values[product->inputs[2]].shape.dims[0], D);
        assert_int_equal(teg_value_width(&b.graph->values[product->result]), D);
    }
    assert_int_equal(nth_op(b.graph, TEG_OP_ACTIVATION, 0)->attr.activation, TEG_ACT_GELU_TANH);
    built_free(&b);
    fake_free(&f);
    f = gpt2();
    fake_tensor(&f, "transformer.h.0.attn.c_proj.weight")->dtype = TEG_DTYPE_Q8_0;
    fails(&f, TEG_ERR_UNSUPPORTED,
          "cannot use model: fake: tensor transformer.h.0.attn.c_proj.weight: expected float16, bfloat16 or float32, "
          "found another type; convert the model to one of these");
    f = gpt2();
    fake_tensor(&f, "transformer.h.0.attn.c_attn.weight")->columns--;
    fails(&f, TEG_ERR_FORMAT,
          "cannot use model: fake: tensor transformer.h.0.attn.c_attn.weight: expected shape [32, 96], found rank 2, "
          "[32, 95]; the file is damaged or its metadata belong to another model");
}

/* Rows of q, k and v of each head together become all of q, then k, then v; the bias too. */
static void test_grouped(void **state)
{
    (void)state;
    static float rows[3 * D * D], bias[3 * D];
    for (size_t r = 0; r < (size_t)3 * D; r++) {
        bias[r] = (float)r;
        for (size_t c = 0; c < D; c++)
            rows[r * D + c] = (float)r;
    }
    struct fake f = neox();
    fake_tensor(&f, "gpt_neox.layers.0.attention.query_key_value.weight")->data = rows;
    fake_tensor(&f, "gpt_neox.layers.0.attention.query_key_value.bias")->data = bias;
    struct built b = build_well(&f);
    const struct teg_op *const op = nth_op(b.graph, TEG_OP_LINEAR, 0);
    const float *const w = b.graph->values[op->inputs[1]].data, *const v = b.graph->values[op->inputs[2]].data;
    for (size_t part = 0; part < 3; part++)
        for (size_t h = 0; h < H; h++)
            for (size_t k = 0; k < K; k++) {
                const size_t to = part * D + h * K + k, from = (h * 3 + part) * K + k;
                assert_true(w[to * D] == (float)from && w[to * D + D - 1] == (float)from && v[to] == (float)from);
            }
    assert_int_equal(nth_op(b.graph, TEG_OP_ACTIVATION, 0)->attr.activation, TEG_ACT_GELU_ERF);
    assert_int_equal(teg_value_width(&b.graph->values[nth_op(b.graph, TEG_OP_ROPE, 0)->inputs[1]]), K / 4);
    built_free(&b);
    fake_free(&f);
}

/* The n-th allocation fails, for all n: one error, no crash. */
static void test_memory(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct fake f = i ? gpt2() : neox();
        build_every_allocation(&f, 200);
        fake_free(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_messages), cmocka_unit_test(test_opt),
                                       cmocka_unit_test(test_turned), cmocka_unit_test(test_grouped),
                                       cmocka_unit_test(test_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
