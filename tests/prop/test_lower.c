/* Lowering: the written program answers as the executor does, whatever the model, profile and softmax form, over chunks
 * and single tokens; and raising it gives the graph again. */
#include "prop/session_test.h"

#include "unit/lower_test.h"

static const char *const models[] = {"llama", "llama-mixed", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "smollm3"};
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
            r->worst = fmax(r->worst, fabs((double)logits->f32[i] - (double)expected[row + i]));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
