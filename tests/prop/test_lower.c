/* Lowering: the written program answers as the executor does, whatever the model, profile and softmax form, over chunks
 * and single tokens; and raising it gives the graph again. */
#include "prop/session_test.h"

#include "unit/lower_test.h"

static const char *const models[] = {"llama", "llama-mixed", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "smollm3"};
enum { N_MODELS = sizeof models / sizeof *models, CONTEXT = 128, CHUNK = 32 };

/* Logits after each call: prefill in chunks of T, then single tokens. */
static double worst_portable(struct model *m, const struct teg_lower_options *o, bool emulate)
{
    struct lowered l = lower_well(m->graph, o);
    struct teg_eval *const eval = lower_eval(l.program, "main", emulate);
    struct teg_eval_state *state = NULL;
    struct teg_error err = {0};
    struct lower_values v = {0};
    static const uint32_t calls[] = {20, 32, 7, 1, 1, 1};
    const int32_t *const ids = tokens(m, 1);
    double worst = 0;
    assert_int_equal(teg_eval_state_new(l.program, NULL, &state, &err), TEG_OK);
    struct teg_session *const s = open_with(m, 64, 1, CONTEXT, TEG_KV_F32);
    uint32_t at = 0;
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++) {
        const size_t dims[2] = {1, calls[c]};
        int32_t positions[CHUNK];
        struct teg_eval_report report = {0};
        for (uint32_t i = 0; i < calls[c]; i++)
            positions[i] = (int32_t)(at + i);
        lower_set(&v, "input_ids", lower_ints(2, dims, ids + at));
        lower_set(&v, "position_ids", lower_ints(2, dims, positions));
        lower_run(l.program, "main", eval, state, &v, &report);
        assert_null(report.overflow_op);
        prefill(s, ids + at, calls[c]);
        at += calls[c];
        const struct teg_array *const logits = lower_get(&v, "logits");
        assert_int_equal(logits->n, m->plan->vocab);
        for (uint32_t i = 0; i < m->plan->vocab; i++)
            worst = fmax(worst, fabs((double)logits->f32[i] - (double)teg_session_logits(s)[i]));
    }
    teg_session_free(s);
    lower_drop(&v);
    teg_eval_state_free(state);
    teg_eval_free(eval);
    lowered_free(&l);
    return worst;
}

static void test_portable(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_MODELS; i++) {
        struct model m;
        model_open(&m, models[i]);
        for (int softmax = TEG_SOFTMAX_TWO_PASS; softmax <= TEG_SOFTMAX_SPLIT; softmax++)
            for (uint32_t tile = 32; tile <= 128; tile += 48) {
                const struct teg_lower_options o = {.profile = TEG_PROFILE_PORTABLE,
                                                    .softmax = (enum teg_softmax)softmax,
                                                    .context = CONTEXT,
                                                    .chunk = CHUNK,
                                                    .kv_tile = tile};
                const double worst = worst_portable(&m, &o, false);
                print_message("# %s softmax %d tile %u: %g\n", models[i], softmax, tile, worst);
            }
        model_close(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_portable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
