/* The law of lowering: raise(lower(g)) == g, in normal form, for every builder, profile and softmax form. And what it
 * rests on: two graphs are the same only if they are, and the first difference is told. */
#include "prop/session_test.h"

#include "graph/same.h"
#include "pass/raise.h"
#include "unit/lower_test.h"
#include "unit/normal_form.h"

static const char *const models[] = {"llama",  "llama-mixed", "qwen2",   "qwen3",   "gemma2",
                                     "gemma3", "phi3",        "smollm3", "granite", "olmo2"};
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
    assert_int_equal(raised.context, bucket ? 64 : o->context);
    teg_buf_free(&difference);
    teg_arena_free(&arena);
    lowered_free(&l);
}

/* What raise knows of other exporters and no builder makes: written and found again. */
static void test_other_forms(void **state)
{
    (void)state;
    struct model m;
    struct teg_arena arena;
    model_open(&m, "llama");
    for (uint32_t i = 0; i < m.graph->n_ops; i++) {
        struct teg_op *const op = &m.graph->ops[i];
        if (op->kind == TEG_OP_GLU)
            op->attr.activation = TEG_ACT_GELU_ERF;
        if (op->kind == TEG_OP_RMS_NORM) {
            op->attr.norm.by_max = true;
            op->attr.norm.least_max = i % 2 ? 0 : 0.25f;
        }
    }
    teg_arena_init(&arena, NULL);
    const struct teg_graph *const normal = normal_form(m.graph, CONTEXT, &arena);
    struct teg_lower_options o = {.context = CONTEXT, .chunk = CHUNK, .kv_tile = 64};
    holds(m.graph, normal, &o, "main", "other forms, portable");
    o.profile = TEG_PROFILE_ANE;
    o.force = true;
    holds(m.graph, normal, &o, "decode", "other forms, ane");
    teg_arena_free(&arena);
    model_close(&m);
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

/* 129 slots in tiles of 64 would leave one. */
static void test_odd_tile(void **state)
{
    (void)state;
    struct model m;
    struct teg_arena arena;
    model_open(&m, "qwen2");
    teg_arena_init(&arena, NULL);
    const struct teg_lower_options o = {.context = 129, .chunk = CHUNK, .kv_tile = 64};
    holds(m.graph, normal_form(m.graph, o.context, &arena), &o, "main", "129 slots");
    teg_arena_free(&arena);
    model_close(&m);
}

/* ---- programs that are nearly lowered ones ---- */

/* Logits after 150 tokens, which reach all tiles, by the program. False: it cannot run. */
static bool run_program(const struct teg_mil_program *p, const int32_t *ids, float *logits, uint32_t vocab)
{
    struct teg_eval *eval = NULL;
    struct teg_eval_state *state = NULL;
    struct teg_error err = {0};
    const struct teg_eval_options o = {.n_threads = 1};
    bool good =
        teg_eval_new(p, "main", &o, &eval, &err) == TEG_OK && teg_eval_state_new(p, NULL, &state, &err) == TEG_OK;
    for (uint32_t at = 0; at < 150 && good; at += 30) {
        const size_t dims[2] = {1, 30};
        int32_t positions[30];
        for (uint32_t i = 0; i < 30; i++)
            positions[i] = (int32_t)(at + i);
        struct teg_array *in[2] = {lower_ints(2, dims, ids + at), lower_ints(2, dims, positions)}, *out = NULL;
        good = teg_eval_run(eval, in, state, NULL, &out, NULL, &err) == TEG_OK;
        if (good && at + 30 == 150)
            memcpy(logits, out->f32, vocab * sizeof *logits);
        if (good)
            teg_array_drop(teg_allocator_or_default(NULL), out);
        teg_array_drop(teg_allocator_or_default(NULL), in[0]);
        teg_array_drop(teg_allocator_or_default(NULL), in[1]);
    }
    teg_eval_state_free(state);
    teg_eval_free(eval);
    return good;
}

/* The same by the graph that it was raised to. */
static void run_graph(const struct teg_graph *g, const int32_t *ids, float *logits, uint32_t vocab)
{
    struct model m = {0};
    struct teg_error err = {0};
    teg_cpu_detect(&m.cpu);
    teg_arena_init(&m.arena, NULL);
    if (teg_plan_new(g, &m.cpu, NULL, &m.arena, &m.plan, &err) != TEG_OK)
        fail_msg("%s", err.message);
    m.run = (struct teg_run_model){.plan = m.plan,
                                   .allocator = counting_init(&m.memory, 0),
                                   .cpu = &m.cpu,
                                   .context_tokens = CONTEXT,
                                   .default_kv = TEG_KV_F16};
    struct teg_session *const s = open_with(&m, 64, 1, CONTEXT, TEG_KV_F16);
    prefill(s, ids, 150);
    memcpy(logits, teg_session_logits(s), vocab * sizeof *logits);
    teg_session_free(s);
    teg_arena_free(&m.arena);
}

static uint32_t draw(uint32_t *seed, uint32_t n)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % n;
}

static bool same_type(const struct teg_mil_type *a, const struct teg_mil_type *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->dims, b->dims, (size_t)(a->rank > 0 ? a->rank : 0) * sizeof *a->dims) == 0;
}

/* Another operand of the same type, made before the op; TEG_MIL_NO_VAR: none was found. */
static teg_mil_var_id other_operand(const struct teg_mil_program *p, const struct teg_mil_block *block, size_t op,
                                    teg_mil_var_id old, uint32_t *seed)
{
    for (int tries = 0; tries < 200 && op; tries++) {
        const struct teg_mil_op *const from = &block->ops[draw(seed, (uint32_t)op)];
        if (from->n_outputs == 1 && from->outputs[0] != old &&
            same_type(&p->vars[from->outputs[0]].type, &p->vars[old].type))
            return from->outputs[0];
    }
    return TEG_MIL_NO_VAR;
}

/* A program in which one operand is another value is refused, or the graph answers as it does: nothing is taken for
 * attention because it looks like it. */
static void test_mutations(void **state)
{
    (void)state;
    struct model m;
    model_open(&m, "llama");
    const int32_t *const ids = tokens(&m, 2);
    const uint32_t vocab = (uint32_t)m.plan->vocab;
    float *const by_program = malloc(2 * vocab * sizeof *by_program), *const by_graph = by_program + vocab;
    uint32_t seed = 7, n_refused = 0, n_alike = 0;
    assert_non_null(by_program);
    for (int softmax = TEG_SOFTMAX_TWO_PASS; softmax <= TEG_SOFTMAX_SPLIT; softmax++) {
        const struct teg_lower_options o = {
            .softmax = (enum teg_softmax)softmax, .context = CONTEXT, .chunk = CHUNK, .kv_tile = 64};
        struct lowered l = lower_well(m.graph, &o);
        const struct teg_mil_block *const block = &l.program->functions[0].block;
        for (int i = 0; i < 150; i++) {
            const size_t at = draw(&seed, (uint32_t)block->n_ops);
            const struct teg_mil_op *const op = &block->ops[at];
            const struct teg_mil_arg *const arg = &op->args[draw(&seed, (uint32_t)op->n_args)];
            teg_mil_var_id *const operand = (teg_mil_var_id *)&arg->vars[draw(&seed, (uint32_t)arg->n_vars)];
            const teg_mil_var_id old = *operand;
            const teg_mil_var_id other =
                l.program->vars[old].constant ? TEG_MIL_NO_VAR : other_operand(l.program, block, at, old, &seed);
            if (other == TEG_MIL_NO_VAR)
                continue;
            struct teg_arena arena;
            struct teg_raised raised = {0};
            struct teg_error err = {0};
            teg_arena_init(&arena, NULL);
            *operand = other;
            const enum teg_status status = teg_raise(l.program, NULL, &arena, &raised, &err);
            n_refused += status != TEG_OK;
            if (status == TEG_OK && run_program(l.program, ids, by_program, vocab)) {
                run_graph(raised.graph, ids, by_graph, vocab);
                double worst = 0;
                for (uint32_t k = 0; k < vocab; k++)
                    worst = lower_worse(worst, fabs((double)by_program[k] - (double)by_graph[k]));
                if (!(worst < 0.05))
                    fail_msg("softmax %d, op %s (%s), %s: graph and program differ by %g", softmax, op->name, op->type,
                             arg->name, worst);
                n_alike++;
            }
            *operand = old;
            teg_arena_free(&arena);
        }
        lowered_free(&l);
    }
    print_message("# %u changed programs refused, %u answer alike\n", n_refused, n_alike);
    assert_true(n_refused > 50);
    free(by_program);
    model_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_law),
        cmocka_unit_test(test_odd_tile),
        cmocka_unit_test(test_other_forms),
        cmocka_unit_test(test_mutations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
