/* RoPE frequencies and magnitudes of every scaling, from GGUF and from config.json, against the published formulas in
 * double precision. */
#include "unit/build_test.h"

#define PI 3.14159265358979323846

static const float *frequencies_of(const struct built *b, const struct teg_op *op, uint32_t operand, size_t n)
{
    const struct teg_value *const v = &b->graph->values[op->inputs[operand]];
    assert_int_equal(teg_value_width(v), n);
    return v->data;
}

static void same_frequencies(const float *found, const double *expected, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)found[i] - expected[i]) <= 1e-6 * fabs(expected[i])))
            fail_msg("frequency %zu: expected %.9g, found %.9g", i, expected[i], (double)found[i]);
}

static struct built build_rope(struct fake *f, const char *config)
{
    fake_set(f, config);
    return build_well(f);
}

static void test_rope_plain_linear(void **state)
{
    (void)state;
    double expected[4];
    struct fake f = fake_hf("llama", "model.");
    struct built b = build_rope(&f, "{\"rope_theta\":500}");
    for (int i = 0; i < 4; i++)
        expected[i] = pow(500, -2.0 * i / 8);
    same_frequencies(frequencies_of(&b, nth_op(b.graph, TEG_OP_ROPE, 0), 1, 4), expected, 4);
    built_free(&b);
    b = build_rope(&f, "{\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":2.5}}");
    for (int i = 0; i < 4; i++)
        expected[i] /= 2.5;
    same_frequencies(frequencies_of(&b, nth_op(b.graph, TEG_OP_ROPE, 0), 1, 4), expected, 4);
    assert_true(nth_op(b.graph, TEG_OP_ROPE, 0)->attr.rope.magnitude == 1);
    built_free(&b);
    fake_free(&f);
    f = fake_hf("llama", "model."); /* half of each head turns: pairs of 4 dimensions */
    b = build_rope(&f, "{\"rope_theta\":500,\"partial_rotary_factor\":0.5}");
    for (int i = 0; i < 2; i++)
        expected[i] = pow(500, -2.0 * i / 4);
    same_frequencies(frequencies_of(&b, nth_op(b.graph, TEG_OP_ROPE, 0), 1, 2), expected, 2);
    built_free(&b);
    fake_free(&f);
    f = fake_gguf("llama"); /* old GGUF: a factor without a type */
    b = build_rope(&f, "{\"llama.rope.scale_linear\":4}");
    for (int i = 0; i < 4; i++)
        expected[i] = pow(10000, -2.0 * i / 8) / 4;
    same_frequencies(frequencies_of(&b, nth_op(b.graph, TEG_OP_ROPE, 0), 1, 4), expected, 4);
    built_free(&b);
    fake_free(&f);
}

/* Llama 3.1: wavelengths beyond original/low are stretched, below original/high kept, blended between. */
static void test_rope_llama3(void **state)
{
    (void)state;
    const double base = 100, factor = 8, low = 1, high = 4, original = 64;
    double expected[4];
    int kinds[3] = {0};
    struct fake f = fake_hf("llama", "model.");
    for (int i = 0; i < 4; i++) {
        const double freq = pow(base, -2.0 * i / 8), wave = 2 * PI / freq;
        const double smooth = (original / wave - low) / (high - low);
        const int kind = wave < original / high ? 0 : wave > original / low ? 1 : 2;
        expected[i] = kind == 0 ? freq : kind == 1 ? freq / factor : (1 - smooth) * freq / factor + smooth * freq;
        kinds[kind]++;
    }
    assert_true(kinds[0] && kinds[1] && kinds[2]);
    struct built b = build_rope(
        &f, "{\"rope_theta\":100,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":"
            "1,\"high_freq_factor\":4,\"original_max_position_embeddings\":64}}");
    same_frequencies(frequencies_of(&b, nth_op(b.graph, TEG_OP_ROPE, 0), 1, 4), expected, 4);
    built_free(&b);
    fake_free(&f);
    static const float divisors[4] = {1, 2, 4, 8}; /* GGUF: the divisors as a tensor */
    f = fake_gguf("llama");
    fake_add(&f, "rope_freqs.weight", 0, 4);
    fake_tensor(&f, "rope_freqs.weight")->data = divisors;
    b = build_well(&f);
    for (int i = 0; i < 4; i++)
        expected[i] = pow(10000, -2.0 * i / 8) / (double)divisors[i];
    same_frequencies(frequencies_of(&b, nth_op(b.graph, TEG_OP_ROPE, 0), 1, 4), expected, 4);
    built_free(&b);
    fake_free(&f);
}

/* YaRN (Peng et al. 2023, section 3.2 and the authors' code): dimension d(r) = D ln(L / 2πr) / 2 ln base. */
static void yarn(double base, double factor, double original, double fast, double slow, bool truncate,
                 double expected[4])
{
    double low = 8 * log(original / (fast * 2 * PI)) / (2 * log(base));
    double high = 8 * log(original / (slow * 2 * PI)) / (2 * log(base));
    low = fmax(truncate ? floor(low) : low, 0);
    high = fmin(truncate ? ceil(high) : high, 7);
    for (int i = 0; i < 4; i++) {
        const double freq = pow(base, -2.0 * i / 8), ramp = fmin(fmax((i - low) / (high - low), 0), 1);
        expected[i] = freq / factor * ramp + freq * (1 - ramp);
    }
}

static void check_yarn(const char *config, const double expected[4], double magnitude)
{
    struct fake f = fake_hf("llama", "model.");
    struct built b = build_rope(&f, config);
    const struct teg_op *const op = nth_op(b.graph, TEG_OP_ROPE, 0);
    same_frequencies(frequencies_of(&b, op, 1, 4), expected, 4);
    assert_true(fabs((double)op->attr.rope.magnitude - magnitude) < 1e-6);
    built_free(&b);
    fake_free(&f);
}

static void test_rope_yarn(void **state)
{
    (void)state;
    double e[4];
    yarn(100, 4, 64, 6, 1, true, e);
    assert_true(e[0] == 1 && e[3] < pow(100, -0.75) / 2);
    check_yarn("{\"rope_theta\":100,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,\"beta_fast\":6,"
               "\"beta_slow\":1,\"original_max_position_embeddings\":64}}",
               e, 0.1 * log(4) + 1);
    check_yarn("{\"rope_theta\":100,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"beta_fast\":6,"
               "\"original_max_position_embeddings\":64,\"attention_factor\":0.7}}",
               e, 0.7);
    check_yarn("{\"rope_theta\":100,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"beta_fast\":6,"
               "\"original_max_position_embeddings\":64,\"mscale\":2,\"mscale_all_dim\":0.5}}",
               e, (0.2 * log(4) + 1) / (0.05 * log(4) + 1));
    check_yarn("{\"rope_parameters\":{\"rope_theta\":100,\"rope_type\":\"yarn\",\"factor\":4,\"beta_fast\":6,"
               "\"original_max_position_embeddings\":64}}",
               e, 0.1 * log(4) + 1);
    yarn(100, 4, 64, 6, 1, false, e);
    check_yarn("{\"rope_theta\":100,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,\"beta_fast\":6,"
               "\"beta_slow\":1,\"original_max_position_embeddings\":64,\"truncate\":false}}",
               e, 0.1 * log(4) + 1);
    yarn(100, 4, FAKE_C, 32, 1, true, e); /* the original context left out: the model's own */
    check_yarn("{\"rope_theta\":100,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4}}", e, 0.1 * log(4) + 1);
    struct fake f = fake_gguf("llama"); /* GGUF: attn_factor multiplies the formula */
    struct built b =
        build_rope(&f, "{\"llama.rope.freq_base\":100,\"llama.rope.scaling.type\":\"yarn\","
                       "\"llama.rope.scaling.factor\":4,\"llama.rope.scaling.yarn_beta_fast\":6,"
                       "\"llama.rope.scaling.original_context_length\":64,\"llama.rope.scaling.attn_factor\":0.5}");
    yarn(100, 4, 64, 6, 1, true, e);
    same_frequencies(frequencies_of(&b, nth_op(b.graph, TEG_OP_ROPE, 0), 1, 4), e, 4);
    assert_true(fabs((double)nth_op(b.graph, TEG_OP_ROPE, 0)->attr.rope.magnitude - 0.5 * (0.1 * log(4) + 1)) < 1e-6);
    built_free(&b);
    fake_free(&f);
}

/* LongRoPE: base^(-2i/D) / factor[i], two sets; cos and sin times sqrt(1 + ln(s) / ln(L)). */
static void test_rope_longrope(void **state)
{
    (void)state;
    static const float short_factors[4] = {1, 1.5f, 2, 2.5f}, long_factors[4] = {1, 4, 8, 16};
    double near[4], far[4];
    for (int i = 0; i < 4; i++) {
        near[i] = pow(10000, -2.0 * i / 8) / (double)short_factors[i];
        far[i] = pow(10000, -2.0 * i / 8) / (double)long_factors[i];
    }
    struct fake f = fake_hf("phi3", "model.");
    struct built b = build_rope(&f, "{\"original_max_position_embeddings\":64,\"rope_scaling\":{\"type\":\"longrope\","
                                    "\"short_factor\":[1,1.5,2,2.5],\"long_factor\":[1,4,8,16]}}");
    const struct teg_op *op = nth_op(b.graph, TEG_OP_ROPE, 1);
    assert_int_equal(op->n_inputs, 3);
    same_frequencies(frequencies_of(&b, op, 1, 4), near, 4);
    same_frequencies(frequencies_of(&b, op, 2, 4), far, 4);
    assert_int_equal(op->attr.rope.original_context, 64);
    assert_true(fabs((double)op->attr.rope.magnitude - sqrt(1 + log(FAKE_C / 64.0) / log(64))) < 1e-6);
    built_free(&b);
    fake_free(&f);
    f = fake_gguf("phi3");
    fake_add(&f, "rope_factors_short.weight", 0, 4);
    fake_tensor(&f, "rope_factors_short.weight")->data = short_factors;
    fake_add(&f, "rope_factors_long.weight", 0, 4);
    fake_tensor(&f, "rope_factors_long.weight")->data = long_factors;
    b = build_rope(&f, "{\"phi3.rope.scaling.original_context_length\":64,\"phi3.rope.scaling.attn_factor\":1.25}");
    op = nth_op(b.graph, TEG_OP_ROPE, 1);
    same_frequencies(frequencies_of(&b, op, 1, 4), near, 4);
    same_frequencies(frequencies_of(&b, op, 2, 4), far, 4);
    assert_true(op->attr.rope.magnitude == 1.25f);
    built_free(&b);
    fake_free(&f);
}

/* Gemma 3: windowed layers turn with a base of their own, unscaled, and without the global magnitude. */
static void check_gemma_rope(struct fake *f, const char *config, double global_factor, double magnitude)
{
    struct built b = build_rope(f, config);
    double local[4], global[4];
    for (int i = 0; i < 4; i++) {
        local[i] = pow(700, -2.0 * i / 8);
        global[i] = pow(1e6, -2.0 * i / 8) / global_factor;
    }
    const struct teg_op *const first = nth_op(b.graph, TEG_OP_ROPE, 0), *const second = nth_op(b.graph, TEG_OP_ROPE, 2);
    same_frequencies(frequencies_of(&b, first, 1, 4), local, 4);
    same_frequencies(frequencies_of(&b, second, 1, 4), global, 4);
    assert_true(first->attr.rope.magnitude == 1);
    assert_true(fabs((double)second->attr.rope.magnitude - magnitude) < 1e-6);
    built_free(&b);
    fake_free(f);
}

static void test_rope_gemma3(void **state)
{
    (void)state;
    struct fake f = fake_hf("gemma3_text", "model.");
    check_gemma_rope(&f,
                     "{\"sliding_window\":9,\"layer_types\":[\"sliding_attention\",\"full_attention\"],"
                     "\"rope_local_base_freq\":700,\"rope_theta\":1e6,\"rope_scaling\":{\"rope_type\":\"linear\","
                     "\"factor\":8}}",
                     8, 1);
    f = fake_hf("gemma3_text", "model."); /* transformers 5 */
    check_gemma_rope(&f,
                     "{\"sliding_window\":9,\"layer_types\":[\"sliding_attention\",\"full_attention\"],"
                     "\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"linear\",\"factor\":8,\"rope_theta\":"
                     "1e6},\"sliding_attention\":{\"rope_type\":\"default\",\"rope_theta\":700}}}",
                     8, 1);
    f = fake_hf("gemma3_text", "model."); /* a context so long that nothing is interpolated: the magnitude is left */
    check_gemma_rope(&f,
                     "{\"sliding_window\":9,\"layer_types\":[\"sliding_attention\",\"full_attention\"],"
                     "\"rope_local_base_freq\":700,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":8,"
                     "\"original_max_position_embeddings\":2000000000,\"beta_fast\":1.5,\"beta_slow\":1.25}}",
                     1, 0.1 * log(8) + 1);
    f = fake_gguf("gemma3");
    check_gemma_rope(&f,
                     "{\"gemma3.attention.sliding_window\":9,\"gemma3.attention.sliding_window_pattern\":[true,false],"
                     "\"gemma3.rope.freq_base\":1e6,\"gemma3.rope.freq_base_swa\":700,"
                     "\"gemma3.rope.scaling.type\":\"linear\",\"gemma3.rope.scaling.factor\":8}",
                     8, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rope_plain_linear), cmocka_unit_test(test_rope_llama3), cmocka_unit_test(test_rope_yarn),
        cmocka_unit_test(test_rope_longrope),     cmocka_unit_test(test_rope_gemma3),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
