/* The law of lowering: raise(lower(g)) == g, in normal form, for every builder, profile and softmax form. And what it
 * rests on: two graphs are the same only if they are, and the first difference is told. */
#include "prop/session_test.h"

#include "graph/same.h"
#include "pass/raise.h"
#include "unit/lower_test.h"
#include "unit/normal_form.h"

static const char *const models[] = {"llama", "llama-mixed", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "smollm3"};
enum { N_MODELS = sizeof models / sizeof *models, CONTEXT = 160, CHUNK = 32 };

static void holds(const struct teg_graph *g, const struct teg_graph *normal, const struct teg_lower_options *o,
                  const char *function, const char *what)
{
    struct lowered l = lower_well(g, o);
    struct teg_arena arena;
    struct teg_raised raised = {0};
    struct teg_error err = {0};
    struct teg_buf difference = {0};
    /* A half float is off by 2^-11 of itself; a small eps by more, being subnormal. */
    const struct teg_same_options same = {.weights = 1.0 / 2048, .numbers = 1.0 / 1024};
    teg_arena_init(&arena, NULL);
    const struct teg_raise_options ro = {.function = function};
    if (teg_raise(l.program, &ro, &arena, &raised, &err) != TEG_OK)
        fail_msg("%s: %s", what, err.message);
    if (!teg_graph_same(normal, raised.graph, &same, &difference))
        fail_msg("%s: %s", what, difference.bytes);
    const bool bucket = function && strstr(function, "_64");
    assert_int_equal(raised.context, bucket ? 64 : CONTEXT);
    teg_buf_free(&difference);
    teg_arena_free(&arena);
    lowered_free(&l);
}

static void test_law(void **state)
{
    (void)state;
    static const uint32_t bucket = 64;
    for (size_t i = 0; i < N_MODELS; i++) {
        struct model m;
        struct teg_arena arena;
        char what[128];
        model_open(&m, models[i]);
        teg_arena_init(&arena, NULL);
        const struct teg_graph *const normal = normal_form(m.graph, CONTEXT, &arena);
        for (int softmax = TEG_SOFTMAX_TWO_PASS; softmax <= TEG_SOFTMAX_SPLIT; softmax++)
            for (uint32_t tile = 64; tile <= 192; tile += 64) {
                struct teg_lower_options o = {
                    .softmax = (enum teg_softmax)softmax, .context = CONTEXT, .chunk = CHUNK, .kv_tile = tile};
                (void)snprintf(what, sizeof what, "%s, portable, softmax %d, tile %u", models[i], softmax, tile);
                holds(m.graph, normal, &o, "main", what);
                o.profile = TEG_PROFILE_ANE;
                o.force = true;
                (void)snprintf(what, sizeof what, "%s, ane, softmax %d, tile %u", models[i], softmax, tile);
                holds(m.graph, normal, &o, "decode", what);
                if (tile != 128)
                    continue;
                o.buckets = &bucket;
                o.n_buckets = 1;
                holds(m.graph, normal, &o, "decode_64", what);
            }
        teg_arena_free(&arena);
        model_close(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_law),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
