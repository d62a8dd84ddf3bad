/* tests/unit/test_quantize.c: a program's weights encoded in place: what counts as a weight, along which axis its
 * channels lie, which rule it gets; the written package computes what the dense one does, exactly where the encoding
 * holds the numbers, closely elsewhere. */
#include <math.h>

#include "emit/emit.h"
#include "pass/compress.h"
#include "unit/mil_test.h"

/* ---- a program with a weight of every kind ---- */

static uint32_t seed;

static float next_value(bool on_grid)
{
    seed = seed * 1664525u + 1013904223u;
    const float x = (float)(int)(seed >> 28) - 8; /* -8 … 7 */
    return on_grid ? x * 0.125f : x * 0.125f + (float)(seed >> 8 & 0xffff) / 65536.0f * 0.1f;
}

static teg_mil_var_id weight(struct teg_mil_maker *m, const char *name, bool on_grid, uint32_t rank,
                             const int64_t *dims)
{
    uint16_t bytes[4096];
    size_t n = 1;
    for (uint32_t d = 0; d < rank; d++)
        n *= (size_t)dims[d];
    assert_true(n <= 4096);
    for (size_t i = 0; i < n; i++)
        bytes[i] = teg_f32_to_f16(next_value(on_grid));
    return teg_mil_make_const(m, name, TEG_MIL_FP16, rank, dims, bytes);
}

#define DIMS(...)                                                                                                      \
    (const int64_t[])                                                                                                  \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
#define ARGS(...)                                                                                                      \
    (const struct teg_mil_bind[])                                                                                      \
    {                                                                                                                  \
        __VA_ARGS__,                                                                                                   \
        {                                                                                                              \
            NULL, 0                                                                                                    \
        }                                                                                                              \
    }

static teg_mil_var_id table(struct teg_mil_maker *m, const char *name, bool is_mask)
{
    uint16_t bytes[12 * 16];
    const int64_t dims[2] = {12, 16};
    for (size_t i = 0; i < 12 * 16; i++)
        bytes[i] = teg_f32_to_f16(is_mask ? (i % 16 > i / 16 ? -4.0f : 0) : cosf((float)(i / 16 * (1 + i % 8))));
    return teg_mil_make_const(m, name, TEG_MIL_FP16, 2, dims, bytes);
}

static struct teg_mil_program *make_program(bool on_grid, uint32_t opset)
{
    struct teg_mil_maker *m = NULL;
    struct teg_mil_program *program = NULL;
    struct teg_error err = {0};
    seed = 5;
    assert_int_equal(teg_mil_make_new(opset, NULL, &m, &err), TEG_OK);
    teg_mil_make_function(m, "main", opset);
    const struct teg_mil_feature x_in = {.name = "x",
                                         .description = "",
                                         .kind = TEG_MIL_FEATURE_ARRAY,
                                         .dtype = TEG_MIL_FP16,
                                         .rank = 2,
                                         .has_shape = true,
                                         .shape = {2, 16},
                                         .lower = {2, 16},
                                         .upper = {2, 16}};
    const struct teg_mil_feature ids_in = {.name = "ids",
                                           .description = "",
                                           .kind = TEG_MIL_FEATURE_ARRAY,
                                           .dtype = TEG_MIL_INT32,
                                           .rank = 1,
                                           .has_shape = true,
                                           .shape = {2},
                                           .lower = {2},
                                           .upper = {2}};
    const teg_mil_var_id x = teg_mil_make_input(m, &x_in), ids = teg_mil_make_input(m, &ids_in);
    const teg_mil_var_id no = teg_mil_make_bool(m, false), yes = teg_mil_make_bool(m, true);
    const teg_mil_var_id axis = teg_mil_make_int(m, 0);
    teg_mil_var_id v =
        teg_mil_make_op(m, "gather", "gathered",
                        ARGS({"x", weight(m, "embedding", on_grid, 2, DIMS(12, 16))}, {"indices", ids}, {"axis", axis},
                             {"batch_dims", teg_mil_make_int(m, 0)}, {"validate_indices", no}));
    v = teg_mil_make_op(m, "add", "sum", ARGS({"x", v}, {"y", x}));
    const teg_mil_var_id cosines =
        teg_mil_make_op(m, "gather", "cosines",
                        ARGS({"x", table(m, "rope", false)}, {"indices", ids}, {"axis", axis},
                             {"batch_dims", teg_mil_make_int(m, 0)}, {"validate_indices", no}));
    v = teg_mil_make_op(m, "mul", "turned", ARGS({"x", v}, {"y", cosines}));
    const teg_mil_var_id masks =
        teg_mil_make_op(m, "gather", "masks",
                        ARGS({"x", table(m, "mask", true)}, {"indices", ids}, {"axis", axis},
                             {"batch_dims", teg_mil_make_int(m, 0)}, {"validate_indices", no}));
    v = teg_mil_make_op(m, "add", "masked", ARGS({"x", v}, {"y", masks}));
    v = teg_mil_make_op(m, "linear", "l", ARGS({"x", v}, {"weight", weight(m, "linear", on_grid, 2, DIMS(8, 16))}));
    v = teg_mil_make_op(
        m, "matmul", "m1",
        ARGS({"x", v}, {"y", weight(m, "columns", on_grid, 2, DIMS(8, 12))}, {"transpose_x", no}, {"transpose_y", no}));
    v = teg_mil_make_op(
        m, "matmul", "m2",
        ARGS({"x", v}, {"y", weight(m, "rows", on_grid, 2, DIMS(24, 12))}, {"transpose_x", no}, {"transpose_y", yes}));
    const int32_t four[4] = {2, 6, 2, 2};
    v = teg_mil_make_op(m, "reshape", "r", ARGS({"x", v}, {"shape", teg_mil_make_ints(m, 4, four)}));
    v = teg_mil_make_op(m, "conv", "c", ARGS({"x", v}, {"weight", weight(m, "kernel", on_grid, 4, DIMS(4, 6, 2, 2))}));
    const struct teg_mil_type spread = {.kind = TEG_MIL_TENSOR, .dtype = TEG_MIL_FP16, .rank = 4, .dims = {2, 6, 1, 2}};
    teg_mil_make_op_typed(m, "conv_transpose", "t",
                          ARGS({"x", v}, {"weight", weight(m, "transposed", on_grid, 4, DIMS(4, 6, 1, 2))}), 1, &spread,
                          &v);
    const int32_t two[2] = {2, 12};
    v = teg_mil_make_op(m, "reshape", "flat", ARGS({"x", v}, {"shape", teg_mil_make_ints(m, 2, two)}));
    v = teg_mil_make_op(m, "linear", "h", ARGS({"x", v}, {"weight", weight(m, "head", on_grid, 2, DIMS(16, 12))}));
    teg_mil_make_output(m, "y", v);
    if (teg_mil_make_end(m, &program, &err) != TEG_OK)
        fail_msg("%s", err.message);
    return program;
}

/* ---- running it ---- */

static void write_program(const struct teg_mil_program *program, const char *path)
{
    const struct teg_emit_options options = {.replace = true};
    struct teg_error err = {0};
    if (teg_emit_package(program, path, &options, NULL, &err) != TEG_OK)
        fail_msg("%s", err.message);
}

static void predict(const char *path, float y[32])
{
    static const int32_t ids[2] = {3, 11};
    float x[32];
    struct teg_program *program = NULL;
    struct teg_values *values = NULL;
    struct teg_error err = {0};
    struct teg_program_options options;
    for (size_t i = 0; i < 32; i++)
        x[i] = (float)(i % 7) * 0.25f - 0.5f;
    const struct teg_feature_value inputs[] = {
        {.name = "x", .kind = TEG_FEATURE_ARRAY, .element = TEG_ELEMENT_F32, .rank = 2, .dims = {2, 16}, .data = x},
        {.name = "ids", .kind = TEG_FEATURE_ARRAY, .element = TEG_ELEMENT_I32, .rank = 1, .dims = {2}, .data = ids}};
    teg_program_options_default(&options);
    options.n_threads = 1;
    if (teg_program_open(path, &options, &program, &err) != TEG_OK ||
        teg_program_predict(program, inputs, 2, NULL, &values, &err) != TEG_OK)
        fail_msg("%s", err.message);
    const struct teg_feature_value *const out = teg_values_at(values, 0);
    for (size_t i = 0; i < 32; i++) {
        uint16_t half;
        assert_int_equal(out->element, TEG_ELEMENT_F16);
        memcpy(&half, (const uint8_t *)out->data + 2 * i, 2);
        y[i] = teg_f16_to_f32(half);
    }
    teg_values_free(values);
    teg_program_free(program);
}

static struct teg_quant_policy policy_of(const char *text)
{
    struct teg_quant_policy p = {.threshold = 0};
    assert_true(teg_quant_rule_parse(text, &p.weights));
    p.embedding = p.head = p.weights;
    return p;
}

static struct teg_compressed *compress(struct teg_mil_program *program, const struct teg_quant_policy *policy)
{
    struct teg_compressed *made = NULL;
    struct teg_error err = {0};
    const struct teg_compress_options options = {.policy = policy};
    if (teg_compress(program, &options, &made, &err) != TEG_OK)
        fail_msg("%s", err.message);
    return made;
}

static const struct teg_compressed_weight *find(const struct teg_compressed *made, const char *name)
{
    for (size_t i = 0; i < teg_compressed_count(made); i++)
        if (strcmp(teg_compressed_weight(made, i)->name, name) == 0)
            return teg_compressed_weight(made, i);
    return NULL;
}

/* Relative distance of the outputs of the dense and the encoded program. */
static double distance_at(const char *text, bool on_grid, uint32_t opset)
{
    struct temp_dir d = temp_dir_make();
    char dense[128], encoded[128];
    float a[32], b[32];
    double error = 0, square = 0;
    const struct teg_quant_policy policy = policy_of(text);
    struct teg_mil_program *const plain = make_program(on_grid, opset), *const other = make_program(on_grid, opset);
    temp_path(&d, "dense.mlpackage", dense);
    temp_path(&d, "encoded.mlpackage", encoded);
    const struct teg_compressed *const made = compress(other, &policy);
    write_program(plain, dense);
    write_program(other, encoded);
    for (size_t i = 0; i < teg_compressed_count(made); i++) {
        const struct teg_compressed_weight *const w = teg_compressed_weight(made, i);
        assert_true(w->why || w->made);
        if (!w->why && on_grid)
            assert_true(w->report.relative_error < 1e-6);
    }
    predict(dense, a);
    predict(encoded, b);
    for (size_t i = 0; i < 32; i++) {
        error += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        square += (double)a[i] * (double)a[i];
    }
    assert_true(square > 0);
    teg_mil_free(plain);
    teg_mil_free(other);
    temp_dir_remove(&d);
    return sqrt(error / square);
}

static double distance(const char *text, bool on_grid)
{
    return distance_at(text, on_grid, 9);
}

/* Programs of iOS 17: one op for each weight, all of it constants. */
static void older_forms(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool on_grid;
        double most;
    } cases[] = {{"lut4/tensor", true, 1e-9},       {"lut8", false, 0.02},        {"int8", false, 0.02},
                 {"uint8,asym", false, 0.02},       {"int8/tensor", false, 0.03}, {"uint8/tensor,asym", false, 0.03},
                 {"lut4/2,fit", true, 1e-9},        {"int8/2,fit", false, 0.02},  {"lut6/tensor", false, 0.1},
                 {"lut4/tensor,unique", true, 1e-9}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const double found = distance_at(cases[i].text, cases[i].on_grid, 8);
        if (!(found < cases[i].most))
            fail_msg("%s: expected outputs within %g, found %g", cases[i].text, cases[i].most, found);
    }
}

/* Encoded, read, encoded otherwise, read: what the first encoding holds is there at the end, and its ops are gone. */
static void again_from(const char *first, const char *second, uint32_t opset)
{
    struct temp_dir d = temp_dir_make();
    struct teg_error err = {0};
    struct teg_compressed *made = NULL;
    char once[128], twice[128];
    float a[32], b[32];
    const struct teg_quant_policy one = policy_of(first), two = policy_of(second);
    struct teg_mil_program *program = make_program(true, opset);
    temp_path(&d, "once.mlpackage", once);
    temp_path(&d, "twice.mlpackage", twice);
    (void)compress(program, &one);
    write_program(program, once);
    teg_mil_free(program);
    assert_int_equal(teg_mil_open(once, NULL, &program, &err), TEG_OK);
    struct teg_compress_options options = {.policy = &two};
    assert_int_equal(teg_compress(program, &options, &made, &err), TEG_ERR_ARGUMENT);
    assert_non_null(
        strstr(err.message, "that are encoded already; encode them anew (--again), from what they are now"));
    teg_mil_free(program);
    assert_int_equal(teg_mil_open(once, NULL, &program, &err), TEG_OK);
    options.again = true;
    if (teg_compress(program, &options, &made, &err) != TEG_OK)
        fail_msg("%s to %s: %s", first, second, err.message);
    write_program(program, twice);
    for (size_t i = 0; i < teg_compressed_count(made); i++)
        if (!teg_compressed_weight(made, i)->why && !(teg_compressed_weight(made, i)->report.relative_error < 1e-6))
            fail_msg("%s to %s: %s differs", first, second, teg_compressed_weight(made, i)->name);
    teg_mil_free(program);
    assert_int_equal(teg_mil_open(twice, NULL, &program, &err), TEG_OK);
    const struct teg_mil_block *const block = &program->functions[0].block;
    size_t n_forms = 0;
    for (size_t i = 0; i < block->n_ops; i++)
        n_forms += strncmp(block->ops[i].type, "constexpr_", 10) == 0;
    assert_int_equal(n_forms, two.weights.method == TEG_QUANT_F16 ? 0 : 7);
    teg_mil_free(program);
    predict(once, a);
    predict(twice, b);
    assert_memory_equal(a, b, sizeof a);
    temp_dir_remove(&d);
}

static void encoded_again(void **state)
{
    (void)state;
    again_from("lut4/tensor", "f16", 9);
    again_from("lut4/tensor", "lut4/2", 9);
    again_from("lut4/2", "lut8/tensor", 9);
    again_from("lut4/tensor", "f16", 8);
    again_from("lut8", "lut4/tensor", 8);
}

static void what_encodings_hold_is_exact(void **state)
{
    (void)state;
    static const char *const texts[] = {"lut4/tensor",  "lut4/2",      "lut4/tensor,unique",
                                        "lut6/channel", "lut8/tensor", "lut4/4,fit"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (distance(texts[i], true) != 0)
            fail_msg("%s: expected the same outputs, found others", texts[i]);
}

static void outputs_stay_close(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double most;
    } cases[] = {{"int8", 0.02},        {"uint8,asym", 0.02},  {"int8/2", 0.02},        {"uint8/4,float,fit", 0.02},
                 {"int8/tensor", 0.03}, {"uint4/2", 0.05},     {"uint4/2,float", 0.05}, {"int4/4,asym,fit", 0.2},
                 {"lut6/2", 0.02},      {"lut8/tensor", 0.02}, {"lut4/2", 0.3},         {"uint8,sym", 0.02}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const double found = distance(cases[i].text, false);
        if (!(found < cases[i].most))
            fail_msg("%s: expected outputs within %g, found %g", cases[i].text, cases[i].most, found);
    }
}

/* ---- what is a weight ---- */

static void roles(void **state)
{
    (void)state;
    struct teg_mil_program *const program = make_program(false, 9);
    const struct teg_quant_policy policy = policy_of("int8");
    const struct teg_compressed *const made = compress(program, &policy);
    static const char *const weights[] = {"linear", "columns", "rows", "kernel", "transposed", "embedding", "head"};
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) {
        const struct teg_compressed_weight *const w = find(made, weights[i]);
        assert_non_null(w);
        assert_null(w->why);
        assert_int_equal(w->embedding, strcmp(weights[i], "embedding") == 0);
        assert_int_equal(w->head, strcmp(weights[i], "head") == 0);
    }
    assert_int_equal(find(made, "columns")->rows, 12);
    assert_int_equal(find(made, "transposed")->rows, 6);
    assert_int_equal(find(made, "kernel")->columns, 24);
    assert_string_equal(find(made, "rope")->why, "a table that turns other values: RoPE");
    assert_string_equal(find(made, "mask")->why, "a table of two numbers: a mask");
    teg_mil_free(program);
}

static void patterns_choose(void **state)
{
    (void)state;
    char texts[][32] = {"kernel=int4/2",   "op:matmul=lut6/tensor", "r*=skip",
                        "h?ad=uint8,asym", "op:linear=skip",        "columns=f16,sparse=0.5"};
    struct teg_quant_pattern patterns[6];
    for (size_t i = 0; i < 6; i++)
        assert_true(teg_quant_pattern_parse(texts[i], &patterns[i]));
    struct teg_quant_policy policy = policy_of("int8");
    policy.patterns = patterns;
    policy.n_patterns = 5;
    struct teg_mil_program *const program = make_program(false, 9);
    const struct teg_compressed *const made = compress(program, &policy);
    assert_true(find(made, "kernel")->rule.bits == 4 && find(made, "kernel")->rule.method == TEG_QUANT_LINEAR);
    assert_true(find(made, "columns")->rule.method == TEG_QUANT_PALETTE);
    assert_string_equal(find(made, "rows")->why, "skipped by a pattern");
    assert_string_equal(find(made, "linear")->why, "skipped by a pattern");
    assert_false(find(made, "head")->rule.symmetric);
    assert_true(find(made, "embedding")->rule.bits == 8);
    teg_mil_free(program);

    char bad[][24] = {"kernel", "=int8", "op:=int8", "kernel=", "kernel=int9", "kernel=int8,"};
    for (size_t i = 0; i < 6; i++)
        assert_false(teg_quant_pattern_parse(bad[i], &patterns[0]));
}

static void thresholds(void **state)
{
    (void)state;
    struct teg_mil_program *const program = make_program(false, 9);
    struct teg_quant_policy policy = policy_of("int8");
    policy.threshold = 192; /* head and embedding have just so many, rows has more */
    const struct teg_compressed *const made = compress(program, &policy);
    assert_string_equal(find(made, "head")->why, "not above the threshold");
    assert_null(find(made, "rows")->why);
    teg_mil_free(program);
}

static void ends_have_their_own_rule(void **state)
{
    (void)state;
    static const char *const cases[][2] = {{"lut4", "int8/channel"},
                                           {"int4/32,fit", "int8/channel,fit"},
                                           {"uint8,asym", "uint8/channel,asym"},
                                           {"lut8", "lut8/tensor"},
                                           {"f16", "f16"},
                                           {"int8,2:4", "int8/channel"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct teg_quant_rule rule;
        char text[64];
        assert_true(teg_quant_rule_parse(cases[i][0], &rule));
        rule = teg_quant_end_rule(&rule);
        teg_quant_rule_format(&rule, text);
        assert_string_equal(text, cases[i][1]);
    }
}

/* ---- errors ---- */

static void expect_failure(const char *text, uint32_t opset, const char *message)
{
    struct teg_mil_program *const program = make_program(false, opset);
    struct teg_compressed *made = NULL;
    struct teg_error err = {0};
    struct teg_quant_policy policy = policy_of(text);
    const struct teg_compress_options options = {.policy = &policy};
    assert_int_not_equal(teg_compress(program, &options, &made, &err), TEG_OK);
    assert_string_equal(err.message, message);
    teg_mil_free(program);
}

static void failures(void **state)
{
    (void)state;
    expect_failure(
        "int4/2", 8,
        "cannot quantize: embedding: expected int8 or uint8 by channel or tensor, lut8, lut6, lut4, lut2 or "
        "lut1 by tensor (lut4/tensor), or f16 with pruning, which programs before iOS 18 have ops for, found "
        "scales of 4 bits, which needs constexpr_blockwise_shift_scale of opset CoreML8 (iOS 18, macOS 15); "
        "choose one of those, or export the model for iOS 18");
    expect_failure("f16", 9,
                   "cannot quantize: (made): expected a weight that a rule applies to and changes, found none; "
                   "see 'inspect --weights', and what --skip and --threshold leave alone");
    expect_failure("int8/5", 9,
                   "cannot quantize: embedding: expected groups of columns that divide 16, found 5; take 4, or let it "
                   "fit");
    expect_failure("lut4/tensor,v2", 9,
                   "cannot quantize: columns: expected neighbouring inputs for palette entries of 2 values, found a "
                   "kernel or rows along another axis; take single values for it");
    expect_failure("int8,2:4", 9,
                   "cannot quantize: columns: expected channels along the first axis where weights are pruned, found "
                   "axis 1; leave it out");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(older_forms),
        cmocka_unit_test(encoded_again),
        cmocka_unit_test(what_encodings_hold_is_exact),
        cmocka_unit_test(outputs_stay_close),
        cmocka_unit_test(roles),
        cmocka_unit_test(patterns_choose),
        cmocka_unit_test(thresholds),
        cmocka_unit_test(ends_have_their_own_rule),
        cmocka_unit_test(failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
