/* The law of raise: a program answers the same before and after. Before: its ops, one by one, in chunks, with its own
 * states. After: the graph's plan in exact mode, in other chunks. Programs: random small language models that mix every
 * form of every part, and packages where there are some.
 *
 * Bounds, in any logit, times the largest logit but at least 1: 2e-5 for programs in fp32 (two orders of summation);
 * 1e-3 for packages, whose weights are read alike, whose caches are half precision here and there, but where a rounding
 * of one key may go either way. */
#include <dirent.h>
#include <math.h>

#include "unit/lm_text.h"

#include "base/check.h"
#include "eval/eval.h"
#include "pass/raise.h"
#include "plan/plan.h"
#include "run/session.h"

enum { N_TOKENS = 14, FORMS = 400 };

struct subject {
    const char *name;
    struct teg_mil_program *program;
    const struct teg_mil_function *function;
    struct teg_raised raised;
    uint32_t vocab;
    int32_t ids[N_TOKENS];
    float *expected, *found; /* [N_TOKENS, vocab]; expected: NAN where the program gives no row */
};

static uint32_t below(uint32_t *seed, uint32_t n)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % n;
}

/* ---- before ---- */

static bool name_has(const char *name, const char *part)
{
    return strstr(name, part) != NULL;
}

/* The value at element i of an input: what the contract says. */
static void fill_input(const struct subject *s, const char *name, struct teg_array *a, size_t begin, size_t n_tokens)
{
    const size_t width = a->rank ? a->dims[a->rank - 1] : 1;
    for (size_t i = 0; i < a->n; i++) {
        const size_t column = i % width, row = i / width;
        if (name_has(name, "ask")) {
            a->f32[i] = column <= begin + row ? 0 : -INFINITY;
        } else if (name_has(name, "cos") || name_has(name, "sin")) {
            const double f = pow(100, -(double)(column % (width / 2)) / (double)(width / 2));
            const double angle = (double)(begin + row) * f;
            a->f32[i] = (float)(name_has(name, "cos") ? cos(angle) : sin(angle));
        } else if (name_has(name, "pos")) {
            a->i32[i] = (int32_t)(begin + (a->n == n_tokens ? i : 0));
        } else {
            a->i32[i] = s->ids[begin + i];
        }
    }
}

static struct teg_array *make_input(const struct subject *s, teg_mil_var_id id, size_t begin, size_t n_tokens)
{
    const struct teg_mil_var *const v = &s->program->vars[id];
    size_t dims[TEG_MIL_MAX_RANK];
    for (int32_t d = 0; d < v->type.rank; d++) {
        const bool slots = name_has(v->name, "ask") && d + 1 == v->type.rank;
        dims[d] = v->type.dims[d] >= 0 ? (size_t)v->type.dims[d] : slots ? begin + n_tokens : n_tokens;
    }
    struct teg_array *const a = teg_array_new(NULL, v->type.dtype, (uint32_t)v->type.rank, dims);
    assert_non_null(a);
    fill_input(s, v->name, a, begin, n_tokens);
    return a;
}

/* One call; its logits go to the rows of s->expected. */
static void evaluate_chunk(struct subject *s, const struct teg_eval *eval, struct teg_eval_state *state, size_t begin,
                           size_t n_tokens)
{
    const struct teg_mil_block *const block = &s->function->block;
    struct teg_array *inputs[16], *outputs[16];
    struct teg_error err = {0};
    size_t n_inputs = 0, column = 0;
    for (size_t i = 0; i < block->n_inputs; i++)
        if (s->program->vars[block->inputs[i]].type.kind == TEG_MIL_TENSOR)
            inputs[n_inputs++] = make_input(s, block->inputs[i], begin, n_tokens);
    if (teg_eval_run(eval, inputs, state, NULL, outputs, NULL, &err) != TEG_OK)
        fail_msg("%s: %s", s->name, err.message);
    for (size_t i = 0; i < block->n_outputs; i++) {
        const struct teg_array *const y = outputs[i];
        const size_t width = y->dims[y->rank - 1], rows = y->n / width, first = begin + n_tokens - rows;
        for (size_t t = 0; t < rows; t++)
            memcpy(s->expected + (first + t) * s->vocab + column, y->f32 + t * width, width * sizeof *y->f32);
        column += width;
        teg_array_drop(NULL, outputs[i]);
    }
    assert_int_equal(column, s->vocab);
    for (size_t i = 0; i < n_inputs; i++)
        teg_array_drop(NULL, inputs[i]);
}

/* Chunks of `chunk` tokens, or as many as the program's inputs are made for. */
static void evaluate(struct subject *s, size_t chunk)
{
    const struct teg_eval_options options = {.n_threads = 1};
    struct teg_eval *eval = NULL;
    struct teg_eval_state *state = NULL;
    struct teg_error err = {0};
    const struct teg_mil_block *const block = &s->function->block;
    for (size_t i = 0; i < block->n_inputs; i++) {
        const struct teg_mil_var *const v = &s->program->vars[block->inputs[i]];
        if (v->type.kind == TEG_MIL_TENSOR && name_has(v->name, "ids") && v->type.dims[1] > 0)
            chunk = (size_t)v->type.dims[1];
    }
    if (teg_eval_new(s->program, s->function->name, &options, &eval, &err) != TEG_OK ||
        teg_eval_state_new(s->program, NULL, &state, &err) != TEG_OK)
        fail_msg("%s: %s", s->name, err.message);
    for (size_t i = 0; i < (size_t)N_TOKENS * s->vocab; i++)
        s->expected[i] = NAN;
    for (size_t begin = 0; begin < N_TOKENS; begin += chunk)
        evaluate_chunk(s, eval, state, begin, teg_min(chunk, N_TOKENS - begin));
    teg_eval_state_free(state);
    teg_eval_free(eval);
}

/* ---- after ---- */

static bool keep_rows(void *ctx, size_t first_row, size_t n_rows, const float *logits)
{
    struct subject *const s = ctx;
    memcpy(s->found + first_row * s->vocab, logits, n_rows * s->vocab * sizeof *logits);
    return true;
}

static void run(struct subject *s, struct teg_arena *arena, uint32_t chunk, enum teg_kv_type kv)
{
    struct teg_plan *plan = NULL;
    struct teg_cpu cpu;
    struct teg_session *session = NULL;
    struct teg_session_options options;
    struct teg_prefill_options prefill;
    struct teg_error err = {0};
    teg_cpu_detect(&cpu);
    if (teg_plan_new(s->raised.graph, &cpu, NULL, arena, &plan, &err) != TEG_OK)
        fail_msg("%s: %s", s->name, err.message);
    const struct teg_run_model model = {.plan = plan,
                                        .allocator = arena->allocator,
                                        .cpu = &cpu,
                                        .context_tokens = s->raised.context,
                                        .default_kv = kv};
    teg_session_options_default(&options);
    options.chunk_tokens = chunk;
    options.n_threads = 1;
    teg_prefill_options_default(&prefill);
    prefill.on_logits = keep_rows;
    prefill.on_logits_ctx = s;
    if (teg_run_session_new(&model, &options, &session, &err) != TEG_OK ||
        teg_session_prefill(session, s->ids, N_TOKENS, &prefill, &err) != TEG_OK)
        fail_msg("%s: %s", s->name, err.message);
    teg_session_free(session);
}

/* The worst difference, in units of the bound's scale. */
static double worst(const struct subject *s)
{
    double most = 1, gap = 0;
    size_t n = 0;
    for (size_t i = 0; i < (size_t)N_TOKENS * s->vocab; i++) {
        if (isnan(s->expected[i]))
            continue;
        n++;
        most = fmax(most, fabs((double)s->expected[i]));
        const double d = fabs((double)s->expected[i] - (double)s->found[i]);
        gap = d > gap || isnan(d) ? d : gap;
    }
    assert_true(n >= s->vocab);
    return gap / most;
}

/* Whether it is a language model; then the law holds. */
static bool check_law(struct subject *s, uint32_t seed, double bound, enum teg_kv_type kv, struct teg_error *err)
{
    struct teg_arena arena;
    teg_arena_init(&arena, NULL);
    if (teg_raise(s->program, NULL, &arena, &s->raised, err) != TEG_OK) {
        teg_arena_free(&arena);
        return false;
    }
    const struct teg_graph *const g = s->raised.graph;
    s->function = teg_mil_find_function(s->program, s->raised.function);
    s->vocab = (uint32_t)teg_value_width(&g->values[g->logits]);
    s->expected = teg_arena_array(&arena, (size_t)N_TOKENS * s->vocab, sizeof *s->expected);
    s->found = teg_arena_array(&arena, (size_t)N_TOKENS * s->vocab, sizeof *s->found);
    assert_true(s->expected && s->found);
    for (size_t i = 0; i < N_TOKENS; i++)
        s->ids[i] = (int32_t)below(&seed, s->vocab);
    evaluate(s, 1 + below(&seed, N_TOKENS));
    run(s, &arena, 1 + below(&seed, N_TOKENS), kv);
    const double w = worst(s);
    if (!(w <= bound))
        fail_msg("%s: expected logits within %g of the program's, found %g", s->name, bound, w);
    teg_arena_free(&arena);
    return true;
}

/* ---- random programs ---- */

static struct lm_form random_form(uint32_t seed)
{
    uint32_t s = seed * 31 + 7;
    struct lm_form f = {.embedding = (enum lm_embedding)below(&s, LM_EMBEDDINGS),
                        .norm = (enum lm_norm)below(&s, LM_NORMS),
                        .rope = (enum lm_rope)below(&s, LM_ROPES),
                        .group = (enum lm_group)below(&s, LM_GROUPS),
                        .attend = (enum lm_attend)below(&s, LM_ATTENDS),
                        .mask = (enum lm_mask)below(&s, LM_MASKS),
                        .act = (enum lm_act)below(&s, LM_ACTS),
                        .product = (enum lm_product)below(&s, LM_PRODUCTS),
                        .n_layers = 1 + below(&s, 2),
                        .n_kv_heads = 1 + below(&s, 3),
                        .head_width = 4 + 2 * below(&s, 3),
                        .ffn = 4 + 4 * below(&s, 4),
                        .vocab = 5 + below(&s, 30),
                        .context = N_TOKENS + below(&s, 20),
                        .two_states = below(&s, 2),
                        .head_norms = below(&s, 3) == 0,
                        .biases = below(&s, 2),
                        .last_only = below(&s, 2),
                        .softcap = below(&s, 4) == 0,
                        .no_gate = below(&s, 3) == 0,
                        .learned = below(&s, 4) == 0,
                        .seed = seed};
    f.n_heads = f.n_kv_heads * (1 + below(&s, 3));
    f.window = f.mask != LM_MASK_INPUT && below(&s, 2) ? 1 + below(&s, 6) : 0;
    return f;
}

static void test_random_programs(void **state)
{
    (void)state;
    static const struct teg_string theta[1][2] = {{{"rope_theta", 10}, {"100", 3}}};
    for (uint32_t seed = 0; seed < FORMS; seed++) {
        const struct lm_form form = random_form(seed);
        struct bytes text = lm_program(&form);
        struct subject s = {0};
        struct teg_error err = {0};
        char name[300];
        (void)snprintf(name, sizeof name,
                       "seed %u: embedding %d, norm %d, rope %d, group %d, attend %d, mask %d, act %d, product %d, "
                       "heads %u/%u of %u",
                       seed, form.embedding, form.norm, form.rope, form.group, form.attend, form.mask, form.act,
                       form.product, form.n_heads, form.n_kv_heads, form.head_width);
        s.name = name;
        if (teg_mil_parse_text((const char *)text.at, text.n, NULL, 0, "random", NULL, &s.program, &err) != TEG_OK)
            fail_msg("%s: %s", name, err.message);
        s.program->user_metadata = theta;
        s.program->n_user_metadata = 1;
        if (!check_law(&s, seed, 2e-5, TEG_KV_F32, &err))
            fail_msg("%s: %s", name, err.message);
        teg_mil_free(s.program);
        bytes_free(&text);
    }
}

/* ---- packages ---- */

static void check_folder(const char *folder, size_t *n_checked, size_t *n_others)
{
    DIR *const dir = opendir(folder);
    for (const struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir)) {
        char path[4096];
        struct subject s = {.name = e->d_name};
        struct teg_error err = {0};
        const char *const dot = strrchr(e->d_name, '.');
        if (!dot || (strcmp(dot, ".mlpackage") != 0 && strcmp(dot, ".mlmodelc") != 0))
            continue;
        (void)snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (teg_mil_open(path, NULL, &s.program, &err) != TEG_OK)
            fail_msg("%s", err.message);
        if (check_law(&s, 5, 1e-3, TEG_KV_F16, &err))
            ++*n_checked;
        else if (err.status == TEG_ERR_UNSUPPORTED)
            ++*n_others;
        else
            fail_msg("%s", err.message);
        teg_mil_free(s.program);
    }
    if (dir)
        closedir(dir);
}

static void test_packages(void **state)
{
    (void)state;
    size_t n = 0, others = 0;
    check_folder(TEST_DATA "/mil", &n, &others);
    check_folder(TEST_DATA "/../../../shared/data/stateful-tiny", &n, &others);
    if (n == 0) {
        print_message("# SKIP no packages of language models: no ../shared/data/stateful-tiny beside the checkout\n");
        skip();
    }
    print_message("# %zu packages of language models, %zu of other programs\n", n, others);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_programs), cmocka_unit_test(test_packages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
