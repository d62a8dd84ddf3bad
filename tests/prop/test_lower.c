/* Lowering: the written program answers as the executor does, whatever the model, profile and softmax form, over chunks
 * and single tokens; and raising it gives the graph again. */
#include "prop/session_test.h"

#include "unit/lower_test.h"

static const char *const models[] = {"llama",  "llama-mixed", "qwen2",   "qwen3",   "gemma2",
                                     "gemma3", "phi3",        "smollm3", "granite", "olmo2"};
enum { N_MODELS = sizeof models / sizeof *models, CONTEXT = 128, CHUNK = 32 };

/* Half floats round weights, the cache and what goes between functions; logits of these models reach about 10. */
static const double bound = 0.02;

struct run { /* a program and a session of the same model */
    struct model *m;
    struct lowered l;
    struct teg_eval_state *state;
    struct teg_session *session;
    struct lower_values values;
    const int32_t *ids;
    uint32_t at;
    bool emulate;
    double worst;
};

static void run_begin(struct run *r, struct model *m, const struct teg_lower_options *o)
{
    struct teg_error err = {0};
    *r = (struct run){.m = m, .l = lower_well(m->graph, o), .ids = tokens(m, 1)};
    assert_int_equal(teg_eval_state_new(r->l.program, NULL, &r->state, &err), TEG_OK);
    r->session = open_with(m, 64, 1, CONTEXT, TEG_KV_F16);
}

static void run_end(struct run *r)
{
    teg_session_free(r->session);
    lower_drop(&r->values);
    teg_eval_state_free(r->state);
    lowered_free(&r->l);
}

static void call(struct run *r, const char *function)
{
    struct teg_eval_report report = {0};
    struct teg_eval *const eval = lower_eval(r->l.program, function, r->emulate);
    lower_run(r->l.program, function, eval, r->state, &r->values, &report);
    if (report.overflow_op)
        fail_msg("%s: %s overflows", function, report.overflow_op);
    teg_eval_free(eval);
}

/* The next n ids, in `rows` rows: the others are padding. */
static void set_tokens(struct run *r, uint32_t n, uint32_t rows)
{
    int32_t ids[CHUNK], positions[CHUNK];
    const size_t dims[2] = {1, rows}, one = 1;
    for (uint32_t i = 0; i < rows; i++) {
        ids[i] = i < n ? r->ids[r->at + i] : 3;
        positions[i] = i < n ? (int32_t)(r->at + i) : -1;
    }
    lower_set(&r->values, "input_ids", lower_ints(2, dims, ids));
    lower_set(&r->values, "position_ids", lower_ints(2, dims, positions));
    lower_set(&r->values, "position", lower_ints(1, &one, positions));
    prefill(r->session, r->ids + r->at, n);
    r->at += n;
}

static void compare_logits(struct run *r)
{
    const float *const expected = teg_session_logits(r->session);
    uint32_t row = 0;
    for (uint32_t part = 0; row < r->m->plan->vocab; part++) {
        char name[32];
        (void)snprintf(name, sizeof name, "logits_%u", part);
        const struct teg_array *const logits = lower_get(&r->values, lower_has(&r->values, name) ? name : "logits");
        for (size_t i = 0; i < logits->n; i++)
            r->worst = lower_worse(r->worst, fabs((double)logits->f32[i] - (double)expected[row + i]));
        row += (uint32_t)logits->n;
    }
    assert_int_equal(row, r->m->plan->vocab);
}

static double worst_portable(struct model *m, const struct teg_lower_options *o, bool emulate)
{
    static const uint32_t calls[] = {20, 32, 7, 1, 1, 1};
    struct run r;
    run_begin(&r, m, o);
    r.emulate = emulate;
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++) {
        set_tokens(&r, calls[c], calls[c]);
        call(&r, "main");
        compare_logits(&r);
    }
    run_end(&r);
    return r.worst;
}

/* Chunks, the second with padding; tokens; in the shortest functions that hold them. */
static double worst_fixed(struct model *m, const struct teg_lower_options *o, bool emulate)
{
    static const uint32_t chunks[] = {CHUNK, 11, CHUNK};
    struct run r;
    char name[32];
    run_begin(&r, m, o);
    r.emulate = emulate;
    for (size_t c = 0; c < 7; c++) {
        const uint32_t rows = c < 3 ? CHUNK : 1;
        const uint32_t bucket = o->n_buckets && r.at + rows <= o->buckets[0] ? o->buckets[0] : 0;
        set_tokens(&r, c < 3 ? chunks[c] : 1, rows);
        (void)snprintf(name, sizeof name, bucket ? "%s_%u" : "%s", rows > 1 ? "prefill" : "decode", bucket);
        call(&r, "prepare");
        call(&r, name);
        if (rows == 1)
            compare_logits(&r);
    }
    run_end(&r);
    return r.worst;
}

static void test_answers(void **state)
{
    (void)state;
    static const uint32_t bucket = 64;
    for (size_t i = 0; i < N_MODELS; i++) {
        struct model m;
        model_open(&m, models[i]);
        for (int softmax = TEG_SOFTMAX_TWO_PASS; softmax <= TEG_SOFTMAX_SPLIT; softmax++)
            for (uint32_t tile = 32; tile <= 128; tile += 48) {
                struct teg_lower_options o = {
                    .softmax = (enum teg_softmax)softmax, .context = CONTEXT, .chunk = CHUNK, .kv_tile = tile};
                const double portable = worst_portable(&m, &o, false);
                o.profile = TEG_PROFILE_ANE;
                o.buckets = &bucket;
                o.n_buckets = tile == 80;
                o.force = true;
                const double fixed = worst_fixed(&m, &o, false);
                print_message("# %s softmax %d tile %u: %g %g\n", models[i], softmax, tile, portable, fixed);
                assert_true(portable < bound && fixed < bound);
            }
        model_close(&m);
    }
}

/* Every result rounded to half, as a device may: nothing overflows, and logits stay near. */
static void test_halves(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_MODELS; i++) {
        struct model m;
        model_open(&m, models[i]);
        struct teg_lower_options o = {
            .softmax = (enum teg_softmax)(i % 3), .context = CONTEXT, .chunk = CHUNK, .kv_tile = 64};
        const double portable = worst_portable(&m, &o, true);
        o.profile = TEG_PROFILE_ANE;
        o.force = true;
        const double fixed = worst_fixed(&m, &o, true);
        print_message("# %s in half floats: %g %g\n", models[i], portable, fixed);
        assert_true(portable < 0.1 && fixed < 0.1);
        model_close(&m);
    }
}

/* ---- parts ---- */

/* A model in n parts, each a program of its own; hidden rows go from one to the next. */
static void test_parts(void **state)
{
    (void)state;
    struct model m;
    model_open(&m, "gemma3");
    struct teg_lower_options o = {
        .profile = TEG_PROFILE_ANE, .context = CONTEXT, .chunk = CHUNK, .kv_tile = 64, .force = true};
    uint32_t first[8] = {0}, n = 0;
    struct teg_error err = {0};
    if (teg_lower_parts(m.graph, &o, 0, 3, first, 8, &n, &err) != TEG_OK)
        fail_msg("%s", err.message);
    assert_int_equal(n, 3);
    assert_int_equal(first[0], 0);
    struct run parts[3];
    const uint32_t n_layers = teg_lower_n_layers(m.graph);
    assert_int_equal(n_layers, 7);
    for (uint32_t p = 0; p < n; p++) {
        o.first_layer = first[p];
        o.n_layers = (p + 1 < n ? first[p + 1] : n_layers) - first[p];
        assert_true(o.n_layers >= 1 && o.n_layers <= 4);
        run_begin(&parts[p], &m, &o);
        if (p) { /* one session for all */
            teg_session_free(parts[p].session);
            parts[p].session = parts[0].session;
        }
    }
    for (uint32_t call_no = 0; call_no < 4; call_no++) {
        const uint32_t rows = call_no < 2 ? CHUNK : 1, valid = call_no == 1 ? 9 : rows;
        set_tokens(&parts[0], valid, rows);
        call(&parts[0], "prepare");
        for (uint32_t p = 0; p < n; p++) {
            for (size_t i = 0; p && i < parts[p - 1].values.n; i++) {
                const bool is_hidden = strcmp(parts[p - 1].values.names[i], "hidden_out") == 0;
                if (strcmp(parts[p - 1].values.names[i], "hidden") != 0)
                    lower_set(&parts[p].values, is_hidden ? "hidden" : parts[p - 1].values.names[i],
                              teg_array_ref(parts[p - 1].values.arrays[i]));
            }
            call(&parts[p], rows > 1 ? "prefill" : "decode");
        }
        if (rows == 1)
            compare_logits(&parts[n - 1]);
    }
    print_message("# gemma3 in parts: %g\n", parts[n - 1].worst);
    assert_true(parts[n - 1].worst < bound && parts[n - 1].worst > 0);
    for (uint32_t p = 0; p < n; p++) {
        parts[p].session = p ? NULL : parts[p].session;
        run_end(&parts[p]);
    }
    model_close(&m);
}

/* ---- tiles ---- */

/* Elements of the largest tensor with both a row of the call and keys, T counted as `rows`; 0: none. `whole`: whether
 * one has all slots. */
static size_t largest_scores(const struct teg_mil_program *p, int64_t rows, int64_t context, bool *whole)
{
    size_t largest = 0;
    *whole = false;
    for (size_t f = 0; f < p->n_functions; f++)
        for (size_t i = 0; i < p->functions[f].block.n_ops; i++) {
            const struct teg_mil_op *const op = &p->functions[f].block.ops[i];
            for (size_t k = 0; k < op->n_outputs; k++) {
                const struct teg_mil_type *const t = &p->vars[op->outputs[k]].type;
                size_t n = 1;
                bool has_rows = false, has_slots = false;
                for (int32_t d = 0; d < t->rank; d++) {
                    has_rows |= t->dims[d] == TEG_MIL_UNKNOWN || t->dims[d] == rows;
                    has_slots |= t->dims[d] == context;
                    n *= (size_t)(t->dims[d] == TEG_MIL_UNKNOWN ? rows : t->dims[d]);
                }
                *whole |= has_rows && has_slots;
                largest = has_rows && n > largest ? n : largest;
            }
        }
    return largest;
}

/* At 8192 slots and 96 rows: scores of a tile, not of the context. */
static void test_tiles(void **state)
{
    (void)state;
    struct model m;
    model_open(&m, "qwen3");
    for (int profile = TEG_PROFILE_PORTABLE; profile <= TEG_PROFILE_ANE; profile++)
        for (int softmax = TEG_SOFTMAX_TWO_PASS; softmax <= TEG_SOFTMAX_SPLIT; softmax++) {
            struct teg_lower_options o = {.profile = (enum teg_profile)profile,
                                          .softmax = (enum teg_softmax)softmax,
                                          .context = 8192,
                                          .chunk = 160};
            const uint32_t heads = profile == TEG_PROFILE_ANE ? 1 : 4;
            bool whole;
            struct lowered l = lower_well(m.graph, &o);
            const size_t tiled = largest_scores(l.program, o.chunk, o.context, &whole);
            assert_false(whole);
            lowered_free(&l);
            o.kv_tile = o.context;
            l = lower_well(m.graph, &o);
            const size_t untiled = largest_scores(l.program, o.chunk, o.context, &whole);
            assert_true(whole);
            lowered_free(&l);
            print_message("# profile %d softmax %d, 160 rows, 8192 slots: largest tensor %zu, untiled %zu\n", profile,
                          softmax, tiled, untiled);
            assert_int_equal(untiled, (size_t)heads * 160 * 8192);
            assert_int_equal(tiled, (size_t)heads * 160 * (profile == TEG_PROFILE_ANE ? 4096 : 1024));
        }
    model_close(&m);
}

/* ---- weights ---- */

static void one_rule(void *ctx, const char *name, bool embedding, bool head, uint64_t rows, uint64_t columns,
                     struct teg_quant_rule *rule)
{
    (void)name, (void)head, (void)rows, (void)columns;
    if (!embedding)
        *rule = *(const struct teg_quant_rule *)ctx;
}

/* Every encoding: the program runs, and the more bits the nearer its logits. */
static void test_encodings(void **state)
{
    (void)state;
    static const struct {
        const char *rule;
        double most;
    } cases[] = {{"int8", 0.3},        {"uint8/channel,asym", 0.3}, {"int8/tensor", 0.5},   {"int4/32", 5},
                 {"uint4/32,asym", 5}, {"uint4/16,float", 5},       {"lut8", 0.5},          {"lut6", 2},
                 {"lut4/16,fit", 5},   {"lut4/16,v2,fit", 12},      {"int8,sparse=0.1", 1}, {"lut6,sparse=0.1", 3},
                 {"f16,sparse=0.1", 1}};
    struct model m;
    model_open(&m, "llama-mixed");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int profile = TEG_PROFILE_PORTABLE; profile <= TEG_PROFILE_ANE; profile++) {
            struct teg_quant_rule rule;
            if (!teg_quant_rule_parse(cases[i].rule, &rule))
                fail_msg("no rule %s", cases[i].rule);
            const struct teg_lower_options o = {.profile = (enum teg_profile)profile,
                                                .context = CONTEXT,
                                                .chunk = CHUNK,
                                                .force = true,
                                                .rule = one_rule,
                                                .rule_ctx = &rule};
            const double worst =
                profile == TEG_PROFILE_ANE ? worst_fixed(&m, &o, false) : worst_portable(&m, &o, false);
            print_message("# %s profile %d: %g\n", cases[i].rule, profile, worst);
            assert_true(worst < cases[i].most);
        }
    model_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers), cmocka_unit_test(test_halves),    cmocka_unit_test(test_parts),
        cmocka_unit_test(test_tiles),   cmocka_unit_test(test_encodings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
