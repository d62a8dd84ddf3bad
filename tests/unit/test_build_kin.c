/* Builders of Llama's kin: what a family's keys mean that no other has, RoPE as transformers 5 writes it, and the
 * sentences that refuse its relatives. Forward passes are compared with transformers elsewhere. */
#include "unit/build_test.h"

static struct fake gguf(const char *arch, const char *more)
{
    struct fake f = fake_gguf(arch);
    if (more)
        fake_set(&f, more);
    return f;
}

static struct fake directory(const char *model_type, const char *more)
{
    struct fake f = fake_hf("llama", "model.");
    json_object_set_new(f.metas, "model_type", json_string(model_type));
    if (more)
        fake_set(&f, more);
    return f;
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *model_type, *what;
    } rows[] = {{"minicpm3", "minicpm3, which has latent attention"},
                {"plm", "plm, which has latent attention"},
                {"apertus", "apertus, which has an activation with weights"},
                {"baichuan", "baichuan"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fake f = directory(rows[i].model_type, NULL);
        struct built b = build(&f);
        char message[256];
        (void)snprintf(message, sizeof message,
                       "cannot run model: fake: architecture: expected one that docs/FORMATS.md lists (llama, qwen3, "
                       "gemma3, gpt2, …), found %s; this architecture is not supported",
                       rows[i].what);
        assert_string_equal(b.err.message, message);
        assert_int_equal(b.status, TEG_ERR_UNSUPPORTED);
        built_free(&b);
        fake_free(&f);
    }
}

/* The larger Baichuan is told by its 40 layers alone; they need not be in the file for that. */
static void test_baichuan(void **state)
{
    (void)state;
    struct fake f = gguf("baichuan", NULL);
    struct built b = build_well(&f);
    assert_true(nth_op(b.graph, TEG_OP_ROPE, 0)->attr.rope.interleaved);
    built_free(&b);
    fake_set(&f, "{\"baichuan.block_count\":40}");
    b = build(&f);
    assert_string_equal(b.err.message,
                        "cannot run model: fake: baichuan: expected the 7B model, which has RoPE, found one of 40 "
                        "layers, which uses ALiBi; this model is not supported");
    assert_int_equal(b.status, TEG_ERR_UNSUPPORTED);
    built_free(&b);
    fake_free(&f);
}

#define YARN                                                                                                           \
    "\"rope_parameters\":{\"rope_type\":\"yarn\",\"type\":\"yarn\",\"factor\":4,\"rope_theta\":1e6,\"mscale\":1,"      \
    "\"mscale_all_dim\":1,\"original_max_position_embeddings\":16,\"max_position_embeddings\":64,"                     \
    "\"llama_4_scaling_beta\":0.1}"

/* Beyond the original context queries grow, which no op does: that much is offered, and no more. */
static void test_ministral(void **state)
{
    (void)state;
    struct fake f = directory("ministral3", "{\"max_position_embeddings\":64," YARN "}");
    struct built b = build_well(&f);
    assert_int_equal(b.hp.context, 16);
    assert_int_equal(b.graph->max_positions, 16);
    assert_true(nth_op(b.graph, TEG_OP_ROPE, 0)->attr.rope.magnitude == 1);
    built_free(&b);
    fake_free(&f);

    f = gguf("mistral3", "{\"mistral3.context_length\":64,\"mistral3.rope.scaling.type\":\"yarn\","
                         "\"mistral3.rope.scaling.factor\":4.0,\"mistral3.rope.scaling.original_context_length\":16,"
                         "\"mistral3.rope.scaling.yarn_log_multiplier\":1.0,"
                         "\"mistral3.attention.temperature_scale\":0.1}");
    b = build_well(&f);
    assert_int_equal(b.graph->max_positions, 16);
    assert_true(nth_op(b.graph, TEG_OP_ROPE, 0)->attr.rope.magnitude == 1);
    built_free(&b);
    fake_drop(&f, "mistral3.attention.temperature_scale");
    b = build_well(&f);
    assert_int_equal(b.hp.context, 64);
    assert_int_equal(b.graph->max_positions, 0);
    built_free(&b);
    fake_free(&f);
}

/* The head is the embedding, says the multimodal model; it is not, says its language model, and is right. */
static void test_last_word(void **state)
{
    (void)state;
    struct fake f = fake_hf("llama", "language_model.model.");
    json_t *const text = json_deep_copy(f.metas);
    json_object_set_new(text, "model_type", json_string("mistral"));
    json_object_set_new(text, "tie_word_embeddings", json_false());
    json_object_clear(f.metas);
    json_object_set_new(f.metas, "text_config", text);
    fake_set(&f, "{\"model_type\":\"mistral3\",\"tie_word_embeddings\":true,\"vision_feature_layer\":-1,"
                 "\"projector_hidden_act\":\"gelu\",\"spatial_merge_size\":2,\"image_token_index\":10}");
    fake_add(&f, "language_model.lm_head.weight", FAKE_V, FAKE_D);
    struct built b = build_well(&f);
    assert_false(b.hp.tied);
    built_free(&b);
    fake_free(&f);
}

/* Depth and base of the width are what the factors are made of. */
static void test_minicpm(void **state)
{
    (void)state;
    struct fake f = directory("minicpm", "{\"scale_emb\":12,\"scale_depth\":1.4,\"dim_model_base\":9}");
    struct built b = build_well(&f);
    assert_true(nth_op(b.graph, TEG_OP_EMBEDDING, 0)->attr.scale.scale == 12);
    assert_true(fabs((double)b.hp.residual_scale - 1.4 / sqrt(FAKE_L)) < 1e-6);
    assert_true(fabs((double)b.hp.logit_divisor - FAKE_D / 9.0) < 1e-6);
    built_free(&b);
    fake_free(&f);
}

/* Windowed layers have a base of their own, and no scaling. */
static void test_windowed_scaling(void **state)
{
    (void)state;
    struct fake f =
        directory("llama", "{\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"default\",\"rope_theta\":5e4},"
                           "\"sliding_attention\":{\"rope_type\":\"default\",\"rope_theta\":1e3}}}");
    struct built b = build_well(&f);
    assert_true(b.hp.rope_base == 5e4f && b.hp.rope_local_base == 1e3f);
    built_free(&b);
    fake_set(&f, "{\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"default\"},"
                 "\"sliding_attention\":{\"rope_type\":\"linear\",\"factor\":2}}}");
    b = build(&f);
    assert_string_equal(b.err.message, "cannot run model: fake: key rope_parameters: expected windowed layers without "
                                       "RoPE scaling, found linear; this model is not supported");
    assert_int_equal(b.status, TEG_ERR_UNSUPPORTED);
    built_free(&b);
    fake_free(&f);
}

/* A factor that is given is taken, else the context's ratio to the original one; an original one that is not given is
 * the whole. */
static void test_scaling(void **state)
{
    (void)state;
#define FACTORS "\"rope_type\":\"longrope\",\"short_factor\":[1,1,1,1],\"long_factor\":[1,2,3,4]"
    static const struct {
        const char *set;
        double magnitude;
        uint32_t original;
    } rows[] = {
        {"{\"rope_parameters\":{" FACTORS ",\"factor\":4,\"original_max_position_embeddings\":16}}", 1.224745, 16},
        {"{\"rope_parameters\":{" FACTORS ",\"original_max_position_embeddings\":16}}", 1.118034, 16},
        {"{\"rope_scaling\":{" FACTORS "},\"original_max_position_embeddings\":16}", 1.118034, 16},
        {"{\"rope_scaling\":{" FACTORS ",\"factor\":4}}", 1.183216, 32},
        {"{\"rope_parameters\":{\"rope_type\":\"yarn\",\"original_max_position_embeddings\":16}}", 1.069315, 16},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fake f = directory("llama", "{\"max_position_embeddings\":32}");
        fake_set(&f, rows[i].set);
        struct built b = build_well(&f);
        assert_int_equal(b.hp.original_context, rows[i].original);
        assert_true(fabs((double)nth_op(b.graph, TEG_OP_ROPE, 0)->attr.rope.magnitude - rows[i].magnitude) < 1e-5);
        built_free(&b);
        fake_free(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_refused),         cmocka_unit_test(test_baichuan),
                                       cmocka_unit_test(test_ministral),       cmocka_unit_test(test_last_word),
                                       cmocka_unit_test(test_minicpm),         cmocka_unit_test(test_scaling),
                                       cmocka_unit_test(test_windowed_scaling)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
