/* Lowering: what cannot be written and why, one message each; the account of a profile; parts; heads in parts; every
 * failing allocation. That programs answer rightly: tests/prop/test_lower.c and test_lower_law.c. */
#include "unit/build_test.h"

#include "graph/same.h"
#include "pass/raise.h"
#include "unit/lower_test.h"
#include "unit/normal_form.h"

static const struct teg_lower_options portable = {.profile = TEG_PROFILE_PORTABLE, .context = 64, .chunk = 32};
static const struct teg_lower_options fixed = {.profile = TEG_PROFILE_ANE, .context = 64, .chunk = 32, .force = true};

static void refuses(const struct teg_graph *g, const struct teg_lower_options *o, enum teg_status status,
                    const char *message)
{
    struct teg_lowered *l = NULL;
    struct teg_error err = {0};
    const enum teg_status found = teg_lower(g, o, NULL, &l, &err);
    if (found != status || !strstr(err.message, message))
        fail_msg("expected %s, found status %d: %s", message, found, err.message);
    assert_null(l);
}

static struct teg_lower_options changed(const struct teg_lower_options *from,
                                        void (*change)(struct teg_lower_options *))
{
    struct teg_lower_options o = *from;
    change(&o);
    return o;
}

/* ---- options ---- */

static const uint32_t wrong_buckets[] = {64}, odd_bucket[] = {40};

static void no_context(struct teg_lower_options *o)
{
    o->context = 0;
}
static void no_chunk(struct teg_lower_options *o)
{
    o->chunk = 0;
}
static void long_chunk(struct teg_lower_options *o)
{
    o->chunk = 65;
}
static void old_version(struct teg_lower_options *o)
{
    o->spec_version = 8;
}
static void bad_buckets(struct teg_lower_options *o)
{
    o->buckets = wrong_buckets;
    o->n_buckets = 1;
}
static void odd_buckets(struct teg_lower_options *o)
{
    o->buckets = odd_bucket;
    o->n_buckets = 1;
}
static void small_tile(struct teg_lower_options *o)
{
    o->context = 4096;
    o->kv_tile = 8;
}
static void far_layer(struct teg_lower_options *o)
{
    o->first_layer = 2;
}
static void one_layer(struct teg_lower_options *o)
{
    o->n_layers = 1;
}
static void odd_context(struct teg_lower_options *o)
{
    o->context = 70;
}
static void odd_chunk(struct teg_lower_options *o)
{
    o->chunk = 20;
}
static void odd_tile(struct teg_lower_options *o)
{
    o->kv_tile = 48;
}
static void large_tile(struct teg_lower_options *o)
{
    o->kv_tile = 32768;
}
static void plain(struct teg_lower_options *o)
{
    (void)o;
}

static void test_options(void **state)
{
    (void)state;
    static const struct {
        bool fixed, strict;
        void (*change)(struct teg_lower_options *);
        enum teg_status status;
        const char *message;
    } cases[] = {
        {false, false, no_context, TEG_ERR_ARGUMENT,
         "cannot write a package: profile portable: context: expected at least 1 slot, found 0; choose another"},
        {false, false, no_chunk, TEG_ERR_ARGUMENT, "chunk: expected 1 to the context, found 0"},
        {false, false, long_chunk, TEG_ERR_ARGUMENT, "chunk: expected 1 to the context, found 65"},
        {false, false, old_version, TEG_ERR_ARGUMENT,
         "specification version: expected 9 (iOS 18) or later, which have states, found 8"},
        {true, false, bad_buckets, TEG_ERR_ARGUMENT,
         "buckets: expected ascending contexts below the largest, found 64"},
        {false, false, odd_buckets, TEG_ERR_ARGUMENT, "buckets: expected none in this profile, found 1"},
        {false, false, small_tile, TEG_ERR_ARGUMENT,
         "KV tile: expected tiles of which at most 256 make the context, found 8"},
        {true, false, far_layer, TEG_ERR_ARGUMENT, "layers: expected a range of the model's, found 2"},
        {false, false, one_layer, TEG_ERR_ARGUMENT, "layers: expected all of them in this profile, found 1"},
        {true, true, odd_context, TEG_ERR_UNSUPPORTED,
         "cannot write a package: profile ane: rule SH09: expected a context in multiples of 32, found 70; choose "
         "another size or profile, or force it"},
        {true, true, odd_chunk, TEG_ERR_UNSUPPORTED, "rule SH03: expected a chunk in multiples of 32, found 20"},
        {true, true, odd_tile, TEG_ERR_UNSUPPORTED, "rule SH03: expected a KV tile in multiples of 32, found 48"},
        {true, true, large_tile, TEG_ERR_UNSUPPORTED,
         "rule SH07: expected a KV tile of at most 16384 keys, found 32768"},
        {true, true, odd_buckets, TEG_ERR_UNSUPPORTED, "rule SH09: expected buckets in multiples of 32, found 40"},
        {true, true, plain, TEG_ERR_UNSUPPORTED, "rule SH09: expected heads whose width is a multiple of 32, found 8"},
    };
    struct fake f = fake_gguf("llama");
    struct built b = build_well(&f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct teg_lower_options o = changed(cases[i].fixed ? &fixed : &portable, cases[i].change);
        o.force = !cases[i].strict;
        refuses(b.graph, &o, cases[i].status, cases[i].message);
    }
    built_free(&b);
    fake_free(&f);
}

static void test_wide(void **state)
{
    (void)state;
    struct fake f = fake_gguf("llama");
    fake_set(&f, "{\"llama.feed_forward_length\":65540}");
    fake_tensor(&f, "blk.0.ffn_gate.weight")->rows = fake_tensor(&f, "blk.0.ffn_up.weight")->rows = 65540;
    fake_tensor(&f, "blk.1.ffn_gate.weight")->rows = fake_tensor(&f, "blk.1.ffn_up.weight")->rows = 65540;
    fake_tensor(&f, "blk.0.ffn_down.weight")->columns = fake_tensor(&f, "blk.1.ffn_down.weight")->columns = 65540;
    struct built b = build_well(&f);
    for (uint32_t i = 0; i < b.graph->n_ops; i++) /* so that the heads are not what is refused */
        b.graph->ops[i].attr.attention.head_width =
            b.graph->ops[i].kind == TEG_OP_ATTENTION ? 32 : b.graph->ops[i].attr.attention.head_width;
    struct teg_lower_options o = fixed;
    o.force = false;
    refuses(b.graph, &o, TEG_ERR_UNSUPPORTED, "rule SH05: expected products of at most 65536 columns, found 65540");
    built_free(&b);
    fake_free(&f);
}

/* ---- graphs ---- */

static struct teg_op *op_of(const struct teg_graph *g, enum teg_op_kind kind, uint32_t n)
{
    return &g->ops[nth_op(g, kind, n) - g->ops];
}

static void test_graphs(void **state)
{
    (void)state;
    struct fake f = fake_gguf("llama");
    struct teg_error err = {0};
    for (int i = 0; i < 11; i++) {
        struct built b = build_well(&f);
        struct teg_graph *const g = b.graph;
        const float sinks[FAKE_H] = {0}, large[FAKE_D] = {[3] = 70000};
        const uint64_t n_heads = FAKE_H, width = FAKE_D;
        teg_value_id v = TEG_NO_VALUE;
        const char *message = NULL;
        enum teg_status status = TEG_ERR_UNSUPPORTED;
        switch (i) {
        case 0:
            assert_int_equal(teg_graph_const(g, "sinks", TEG_DTYPE_F32, 1, &n_heads, sinks, sizeof sinks, &v, &err), 0);
            op_of(g, TEG_OP_ATTENTION, 1)->inputs[2] = v;
            op_of(g, TEG_OP_ATTENTION, 1)->n_inputs = 3;
            message =
                "cannot write a package: attention: expected no sinks, found 4; programs with sinks are not written";
            break;
        case 1: /* q is read twice */
            op_of(g, TEG_OP_ATTENTION, 0)->inputs[0] = op_of(g, TEG_OP_ROPE, 0)->inputs[0];
            message = "cannot write a package: rope: expected q and k that come from one product each, so that its "
                      "rows can be put in the order of halves, found a value that is used elsewhere too";
            break;
        case 2: /* keys do not turn as queries do */
            op_of(g, TEG_OP_ROPE, 1)->attr.rope.interleaved = false;
            message = "found queries and keys that turn differently";
            break;
        case 3:
            op_of(g, TEG_OP_ROPE, 0)->attr.rope.head_width = 9;
            message = "cannot write a package: rope: expected heads of an even number of columns, found 9";
            break;
        case 4: /* q from a gate */
            op_of(g, TEG_OP_LINEAR, 0)->kind = TEG_OP_SCALE;
            message = "so that its rows can be put in the order of halves, found scale";
            break;
        case 5:
            op_of(g, TEG_OP_LM_HEAD, 0)->kind = TEG_OP_ADD;
            message =
                "cannot write a package: graph: expected layers with a KV cache and a head after them, found none";
            break;
        case 6: /* two values go on */
            op_of(g, TEG_OP_ADD, 3)->inputs[1] = op_of(g, TEG_OP_EMBEDDING, 0)->result;
            message = "cannot write a package: layer 1: expected one value to go from layer to layer, found more";
            break;
        case 7:
            assert_int_equal(teg_graph_const(g, "large", TEG_DTYPE_F32, 1, &width, large, sizeof large, &v, &err), 0);
            op_of(g, TEG_OP_RMS_NORM, 1)->inputs[1] = v;
            message =
                "cannot write weight: large: element 3: expected a number within ±65504, found 70000; mend the model";
            status = TEG_ERR_FORMAT;
            break;
        case 8:
            op_of(g, TEG_OP_EMBEDDING, 0)->kind = TEG_OP_SLICE;
            message = "expected an embedding of the tokens, found none";
            break;
        case 9:
            op_of(g, TEG_OP_ADD, 0)->kind = TEG_OP_EMBEDDING;
            message =
                "cannot write a package: embedding: expected it before the first layer or in the head, found it in "
                "layer 0";
            break;
        case 10:
            g->values[op_of(g, TEG_OP_KV_APPEND, 1)->inputs[2]].shape.dims[1] = 4;
            message = "cannot write a package: kv_append: expected caches of one shape in all layers (they are one "
                      "state), found another in layer 1";
            break;
        }
        refuses(g, &portable, status, message);
        built_free(&b);
    }
    fake_free(&f);
}

/* More windows and rotations than there are names for. */
static void test_kinds(void **state)
{
    (void)state;
    struct fake f = fake_gguf("llama");
    fake_set(&f, "{\"llama.block_count\":9}");
    for (unsigned l = 2; l < 9; l++)
        for (size_t i = 0; i < sizeof fake_llama_names / sizeof *fake_llama_names; i++) {
            char name[64];
            (void)snprintf(name, sizeof name, "blk.%u.%s", l, fake_llama_names[i].gguf);
            fake_add(&f, name, fake_llama_names[i].rows, fake_llama_names[i].columns);
        }
    struct built b = build_well(&f);
    for (uint32_t l = 0; l < 9; l++)
        op_of(b.graph, TEG_OP_ATTENTION, l)->attr.attention.window = l + 1;
    refuses(b.graph, &portable, TEG_ERR_UNSUPPORTED,
            "cannot write a package: attention: expected at most 8 lengths of windows, found more");
    for (uint32_t l = 0; l < 9; l++) {
        op_of(b.graph, TEG_OP_ATTENTION, l)->attr.attention.window = 0;
        op_of(b.graph, TEG_OP_ROPE, 2 * l)->attr.rope.magnitude = (float)l + 2;
    }
    refuses(b.graph, &portable, TEG_ERR_UNSUPPORTED,
            "cannot write a package: rope: expected at most 8 kinds of rotation, found more");
    built_free(&b);
    fake_free(&f);
}

/* Tables of a package that end before the context. */
static void test_tables(void **state)
{
    (void)state;
    struct fake f = fake_gguf("phi3");
    struct built b = build_well(&f);
    static const float table[40 * FAKE_K / 2] = {0};
    const uint64_t dims[2] = {40, FAKE_K / 2};
    struct teg_error err = {0};
    teg_value_id v = TEG_NO_VALUE;
    assert_int_equal(teg_graph_const(b.graph, "cos", TEG_DTYPE_F32, 2, dims, table, sizeof table, &v, &err), TEG_OK);
    for (uint32_t i = 0; i < 4; i++) {
        struct teg_op *const op = op_of(b.graph, TEG_OP_ROPE, i);
        op->inputs[1] = op->inputs[2] = v;
        op->n_inputs = 3;
    }
    refuses(
        b.graph, &portable, TEG_ERR_UNSUPPORTED,
        "cannot write a package: rope: expected tables of 64 positions, found 40; choose a context of at most that");
    struct teg_lower_options o = portable;
    o.context = 40;
    struct lowered l = lower_well(b.graph, &o);
    lowered_free(&l);
    built_free(&b);
    fake_free(&f);
}

/* ---- weights that cannot be made ---- */

static void int4(void *ctx, const char *name, bool embedding, bool head, uint64_t rows, uint64_t columns,
                 struct teg_quant_rule *rule)
{
    (void)name, (void)embedding, (void)head, (void)rows, (void)columns;
    (void)teg_quant_rule_parse(ctx, rule);
}

static void test_weights(void **state)
{
    (void)state;
    struct fake f = fake_gguf("llama");
    struct built b = build_well(&f);
    struct teg_lower_options o = portable;
    o.rule = int4;
    o.rule_ctx = (void *)(uintptr_t) "int4/32"; /* D is 36 */
    refuses(b.graph, &o, TEG_ERR_ARGUMENT, "token_embd.weight");
    built_free(&b);
    static float data[FAKE_V * FAKE_D];
    data[2 * FAKE_D + 5] = 1e6f;
    fake_tensor(&f, "token_embd.weight")->data = data;
    b = build_well(&f);
    struct teg_lowered *l = NULL;
    struct teg_error err = {0};
    assert_int_equal(teg_lower(b.graph, &portable, NULL, &l, &err), TEG_OK);
    const struct teg_mil_program *const p = teg_lowered_program(l);
    struct teg_arena arena;
    teg_arena_init(&arena, NULL);
    bool failed = false;
    for (size_t i = 0; i < p->n_vars && !failed; i++) {
        struct teg_span parts[TEG_MIL_DEFERRED_PARTS] = {{0}};
        const struct teg_mil_const *const c = p->vars[i].constant;
        failed = c && c->deferred && c->deferred->make(c->deferred, &arena, parts, &err) != TEG_OK;
    }
    assert_true(failed);
    assert_non_null(strstr(err.message, "cannot write weight: token_embd.weight: row 2, column 5: expected a number "
                                        "within ±65504, found 1e+06; choose a quantized encoding, or mend the model"));
    assert_true(teg_lowered_n_weights(l) > 10);
    assert_string_equal(teg_lowered_weight(l, 0)->name, "token_embd.weight");
    assert_false(teg_lowered_weight(l, 0)->made);
    assert_null(teg_lowered_weight(l, teg_lowered_n_weights(l)));
    teg_arena_free(&arena);
    teg_lowered_free(l);
    built_free(&b);
    fake_free(&f);
}

/* ---- parts and accounts ---- */

static void test_parts(void **state)
{
    (void)state;
    struct fake f = fake_gguf("llama");
    struct built b = build_well(&f);
    uint32_t first[4] = {9, 9, 9, 9}, n = 0;
    struct teg_error err = {0};
    assert_int_equal(teg_lower_parts(b.graph, &fixed, 0, 0, first, 4, &n, &err), TEG_OK);
    assert_int_equal(n, 1);
    assert_int_equal(teg_lower_parts(b.graph, &fixed, 0, 2, first, 4, &n, &err), TEG_OK);
    assert_int_equal(n, 2);
    assert_int_equal(first[0], 0);
    assert_int_equal(first[1], 1);
    assert_int_equal(teg_lower_parts(b.graph, &fixed, 30000, 0, first, 4, &n, &err), TEG_OK);
    assert_int_equal(n, 2); /* a layer is 19 KB, embedding and head 4 KB each */
    assert_int_equal(teg_lower_parts(b.graph, &fixed, 0, 3, first, 4, &n, &err), TEG_ERR_ARGUMENT);
    assert_string_equal(err.message,
                        "cannot write a package: parts: expected at most 2 (whole layers), found 3; choose "
                        "fewer");
    assert_int_equal(teg_lower_parts(b.graph, &fixed, 1000, 0, first, 4, &n, &err), TEG_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "parts: rule WT01: expected layers that fit into 1000 bytes, found "));
    built_free(&b);
    fake_free(&f);
}

static void test_explain(void **state)
{
    (void)state;
    struct fake f = fake_gguf("llama");
    fake_tensor(&f, "token_embd.weight")->rows = 20000;
    struct built b = build_well(&f);
    struct teg_buf text = {0};
    struct teg_lower_options o = fixed;
    static const uint32_t buckets[] = {1024};
    o.context = 8192;
    o.buckets = buckets;
    o.n_buckets = 1;
    teg_lower_explain(b.graph, &o, &text);
    static const char *const lines[] = {"profile ane\n",
                                        "attention in 2 tiles of 4096 keys, two-pass softmax: AT02, SH07",
                                        "head of 20000 rows in 2 products: OP15",
                                        "functions for contexts up to 1024: ST07",
                                        "broken SH09: expected heads whose width is a multiple of 32, found 8\n",
                                        "NU01",
                                        "OP02",
                                        "SH03"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!strstr(text.bytes, lines[i]))
            fail_msg("no line %s in %s", lines[i], text.bytes);
    teg_buf_free(&text);
    teg_lower_explain(b.graph, &portable, &text);
    assert_non_null(strstr(text.bytes, "profile portable\none function for 1 to 32 tokens a call"));
    assert_non_null(strstr(text.bytes, "attention in one tile of 64 keys"));
    assert_null(strstr(text.bytes, "broken"));
    teg_buf_free(&text);
    o.context = 0;
    teg_lower_explain(b.graph, &o, &text);
    assert_non_null(strstr(text.bytes, "context: expected at least 1 slot, found 0"));
    teg_buf_free(&text);
    built_free(&b);
    fake_free(&f);
}

/* ---- a head in parts, with a cap ---- */

static void test_head(void **state)
{
    (void)state;
    struct fake f = fake_gguf("llama");
    fake_tensor(&f, "token_embd.weight")->rows = 20000;
    struct built b = build_well(&f);
    struct teg_error err = {0};
    struct teg_op cap = {.kind = TEG_OP_SOFTCAP, .n_inputs = 1, .inputs = {b.graph->logits}, .attr.cap = 30};
    assert_int_equal(teg_graph_op(b.graph, &cap, &b.graph->logits, &err), TEG_OK);
    struct lowered l = lower_well(b.graph, &fixed);
    const struct teg_mil_function *const decode = teg_mil_find_function(l.program, "decode");
    assert_int_equal(decode->block.n_outputs, 2);
    assert_int_equal(l.program->vars[decode->block.outputs[0]].type.dims[2], 10016);
    assert_int_equal(l.program->vars[decode->block.outputs[1]].type.dims[2], 9984);
    struct teg_arena arena;
    struct teg_raised raised = {0};
    struct teg_buf difference = {0};
    const struct teg_same_options same = {.weights = 1.0 / 2048, .numbers = 1.0 / 1024};
    teg_arena_init(&arena, NULL);
    if (teg_raise(l.program, NULL, &arena, &raised, &err) != TEG_OK)
        fail_msg("%s", err.message);
    if (!teg_graph_same(normal_form(b.graph, fixed.context, &arena), raised.graph, &same, &difference))
        fail_msg("%s", difference.bytes);
    teg_buf_free(&difference);
    teg_arena_free(&arena);
    lowered_free(&l);
    built_free(&b);
    fake_free(&f);
}

/* ---- memory ---- */

static void test_memory(void **state)
{
    (void)state;
    struct fake f = fake_gguf("llama");
    struct built b = build_well(&f);
    for (int profile = TEG_PROFILE_PORTABLE; profile <= TEG_PROFILE_ANE; profile++) {
        const struct teg_lower_options *const o = profile == TEG_PROFILE_ANE ? &fixed : &portable;
        enum teg_status status = TEG_ERR_MEMORY;
        for (size_t fail_at = 1; status != TEG_OK; fail_at++) {
            struct counting c;
            struct teg_lowered *l = NULL;
            struct teg_error err = {0};
            status = teg_lower(b.graph, o, counting_init(&c, fail_at), &l, &err);
            if (status != TEG_OK) {
                assert_int_equal(status, TEG_ERR_MEMORY);
                assert_non_null(strstr(err.message, "out of memory"));
                assert_null(l);
            }
            teg_lowered_free(l);
            assert_int_equal(c.n_live, 0);
            assert_true(fail_at < 2000);
        }
    }
    built_free(&b);
    fake_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options), cmocka_unit_test(test_wide),    cmocka_unit_test(test_graphs),
        cmocka_unit_test(test_kinds),   cmocka_unit_test(test_tables),  cmocka_unit_test(test_weights),
        cmocka_unit_test(test_parts),   cmocka_unit_test(test_explain), cmocka_unit_test(test_head),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
