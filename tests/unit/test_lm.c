/* Language models that run op by op, from MIL text: every way through functions of fixed sizes gives the same logits;
 * rewinding, forking and stopping keep to the tokens; every failing allocation is survived.
 *
 * The model adds up the embeddings of all tokens so far, from a cache, and multiplies by the table; what it should say
 * is computed here in a line. With T tokens in a call the cache has 8 slots. */
#include "unit/format_test.h"

#include "lm.h"

#define I32(list) "tensor<int32, [" list "]>"
#define F32(dims) "tensor<fp32, [" dims "]> "

enum { VOCAB = 3, WIDTH = 2, SLOTS = 8 };
static const float table[VOCAB][WIDTH] = {{1, 2}, {-3, 1}, {0.5f, -1}};

/* clang-format off */
/* A function of so many tokens; %1$d: how many, %2$s: its name, %3$s: what it gives. */
static const char function_text[] =
    "func %2$s<ios18>(" I32("1, %1$d") " input_ids, " F32("1, %1$d, 8") "causal_mask, " I32("1") " current_pos, "
    "state<tensor<fp32, [1, 8, 2]>> kv) {\n"
    F32("3, 2") "table = const()[val = " F32("3, 2") "([[1, 2], [-3, 1], [0.5, -1]])];\n"
    F32("1, %1$d, 2") "x = gather(x = table, indices = input_ids, axis = int32(0));\n"
    F32("1, 8, 2") "before = read_state(input = kv);\n"
    I32("1") " end_pos = add(x = current_pos, y = " I32("1") "([%1$d]));\n"
    I32("3") " begin = concat(values = (" I32("1") "([0]), current_pos, " I32("1") "([0])), axis = int32(0), "
    "interleave = bool(false));\n"
    I32("3") " end = concat(values = (" I32("1") "([1]), end_pos, " I32("1") "([2])), axis = int32(0), "
    "interleave = bool(false));\n"
    F32("1, 8, 2") "after = slice_update(x = before, update = x, begin = begin, end = end);\n"
    "write_state(data = after, input = kv);\n"
    F32("1, 8, 2") "all = read_state(input = kv);\n"
    F32("1, %1$d, 8") "seen = exp(x = causal_mask);\n"
    F32("1, %1$d, 2") "hidden_states = matmul(x = seen, y = all);\n"
    F32("1, %1$d, 3") "logits = linear(x = hidden_states, weight = table);\n"
    "} -> (%3$s);\n";
/* clang-format on */

struct form {
    const char *name;
    struct {
        int n_tokens;
        const char *name, *result;
    } functions[2];
};
static const struct form forms[] = {
    {"single tokens", {{1, "main", "logits"}}},
    {"one size", {{3, "main", "logits"}}},
    {"a pair", {{1, "infer", "logits"}, {4, "prefill", "logits"}}},
    {"a pair without logits", {{1, "infer", "logits"}, {2, "prefill", "hidden_states"}}},
};
enum { N_FORMS = sizeof forms / sizeof *forms };

static struct bytes text_of(const struct form *form)
{
    struct bytes b = {0};
    char text[4096];
    put_text(&b, "program(1.3)\n{\n");
    for (size_t i = 0; i < 2 && form->functions[i].name; i++) {
        (void)snprintf(text, sizeof text, function_text, form->functions[i].n_tokens, form->functions[i].name,
                       form->functions[i].result);
        put_text(&b, text);
    }
    put_text(&b, "}\n");
    return b;
}

/* ---- a model ---- */

struct model {
    struct teg_arena arena;
    struct teg_program *program;
    struct teg_lm *lm;
};

static enum teg_status open_model(const struct bytes *text, const struct teg_manifest *manifest,
                                  const struct teg_allocator *allocator, struct model *m, struct teg_error *err)
{
    struct teg_mil_program *mil = NULL;
    struct teg_program_options o;
    teg_program_options_default(&o);
    o.allocator = teg_allocator_or_default(allocator);
    o.n_threads = 1;
    *m = (struct model){0};
    teg_arena_init(&m->arena, allocator);
    TRY(teg_mil_parse_text((const char *)text->at, text->n, NULL, 0, "toy", allocator, &mil, err));
    TRY(teg_program_of(mil, &o, &m->program, err));
    return teg_lm_new(m->program, manifest, &m->arena, &m->lm, err);
}

static void close_model(struct model *m)
{
    teg_program_free(m->program);
    teg_arena_free(&m->arena);
}

static struct model must_open(const struct form *form, const struct teg_manifest *manifest)
{
    struct bytes text = text_of(form);
    struct model m;
    struct teg_error err = {0};
    const struct teg_manifest none = {0};
    if (open_model(&text, manifest ? manifest : &none, NULL, &m, &err) != TEG_OK)
        fail_msg("%s: %s", form->name, err.message);
    bytes_free(&text);
    return m;
}

static struct teg_session *must_start(const struct model *m)
{
    struct teg_session *s = NULL;
    struct teg_error err = {0};
    if (teg_lm_session_new(m->lm, NULL, &s, &err) != TEG_OK)
        fail_msg("%s", err.message);
    return s;
}

/* ---- what it should say ---- */

static void expect_row(const int32_t *ids, size_t n, const float *logits)
{
    float sum[WIDTH] = {0};
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < WIDTH; k++)
            sum[k] += table[ids[i]][k];
    assert_non_null(logits);
    for (int v = 0; v < VOCAB; v++)
        assert_float_equal(logits[v], sum[0] * table[v][0] + sum[1] * table[v][1], 1e-5);
}

struct rows {
    const int32_t *ids;
    size_t before, n_seen;
};

static bool on_logits(void *ctx, size_t first_row, size_t n_rows, const float *logits)
{
    struct rows *const r = ctx;
    assert_int_equal(first_row, r->n_seen);
    for (size_t i = 0; i < n_rows; i++)
        expect_row(r->ids, r->before + first_row + i + 1, logits + i * VOCAB);
    r->n_seen += n_rows;
    return true;
}

static const int32_t ids[SLOTS] = {2, 0, 1, 1, 2, 0, 0, 1};

static void must_prefill(struct teg_session *s, const int32_t *new_ids, size_t n)
{
    struct teg_error err = {0};
    if (teg_session_prefill(s, new_ids, n, NULL, &err) != TEG_OK)
        fail_msg("%s", err.message);
}

/* Any cut of the tokens into calls, with the last row and with all. */
static void test_cuts(void **state)
{
    (void)state;
    for (size_t f = 0; f < N_FORMS; f++)
        for (size_t first = 1; first < 8; first++) {
            /* A call of three at token 6 does not fit into eight slots. */
            const size_t n = forms[f].functions[0].n_tokens == 3 ? 6 : 7;
            if (first >= n)
                continue;
            struct model m = must_open(&forms[f], NULL);
            struct teg_session *const s = must_start(&m);
            struct teg_prefill_options o;
            struct teg_error err = {0};
            struct rows rows = {ids, first, 0};
            must_prefill(s, ids, first);
            expect_row(ids, first, teg_session_logits(s));
            teg_prefill_options_default(&o);
            o.on_logits = on_logits;
            o.on_logits_ctx = &rows;
            if (teg_session_prefill(s, ids + first, n - first, &o, &err) != TEG_OK)
                fail_msg("%s, %zu: %s", forms[f].name, first, err.message);
            assert_int_equal(rows.n_seen, n - first);
            expect_row(ids, n, teg_session_logits(s));
            assert_int_equal(teg_session_length(s), n);
            assert_memory_equal(teg_session_tokens(s), ids, n * sizeof *ids);
            teg_session_free(s);
            close_model(&m);
        }
}

static void test_rewind_and_fork(void **state)
{
    (void)state;
    for (size_t f = 0; f < N_FORMS; f++) {
        struct model m = must_open(&forms[f], NULL);
        struct teg_session *const s = must_start(&m), *fork = NULL;
        struct teg_error err = {0};
        must_prefill(s, ids, 5);
        assert_int_equal(teg_session_fork(s, &fork, &err), TEG_OK);
        expect_row(ids, 5, teg_session_logits(fork));
        assert_int_equal(teg_session_rewind(s, 6, &err), TEG_ERR_ARGUMENT);
        assert_int_equal(teg_session_rewind(s, 2, &err), TEG_OK);
        assert_null(teg_session_logits(s));
        const int32_t other[] = {2, 0, 0};
        assert_int_equal(teg_session_decode(s, 0, &err), TEG_OK);
        expect_row(other, 3, teg_session_logits(s));
        assert_int_equal(teg_session_decode(fork, ids[5], &err), TEG_OK); /* untouched by it */
        expect_row(ids, 6, teg_session_logits(fork));
        teg_session_free(s);
        teg_session_free(fork);
        close_model(&m);
    }
}

static void test_stop(void **state)
{
    (void)state;
    struct model m = must_open(&forms[2], NULL);
    struct teg_session *const s = must_start(&m);
    struct teg_error err = {0};
    teg_session_interrupt(s);
    assert_int_equal(teg_session_prefill(s, ids, 5, NULL, &err), TEG_ERR_INTERRUPTED);
    assert_int_equal(teg_session_length(s), 0);
    must_prefill(s, ids, 5); /* only that one */
    expect_row(ids, 5, teg_session_logits(s));
    const int32_t bad = VOCAB;
    assert_int_equal(teg_session_decode(s, bad, &err), TEG_ERR_ARGUMENT);
    assert_int_equal(teg_session_prefill(s, ids, 4, NULL, &err), TEG_ERR_CONTEXT_FULL);
    assert_int_equal(teg_session_prefill(s, ids, 0, NULL, &err), TEG_ERR_ARGUMENT);
    assert_int_equal(teg_session_length(s), 5);
    assert_int_equal(teg_session_context(s), SLOTS);
    teg_session_free(s);
    close_model(&m);
}

/* Padding that stays is never seen, and saves calls. */
static void test_overwrites(void **state)
{
    (void)state;
    const struct teg_manifest manifest = {.overwrites = true};
    struct model m = must_open(&forms[2], &manifest);
    struct teg_session *const s = must_start(&m);
    struct teg_lm_step step = {0};
    assert_true(teg_lm_next(m.lm, 0, 3, 256, false, &step));
    assert_int_equal(step.n, 4);
    assert_int_equal(step.real, 3);
    assert_true(step.keeps);
    must_prefill(s, ids, 3);
    expect_row(ids, 3, teg_session_logits(s));
    must_prefill(s, ids + 3, 2);
    expect_row(ids, 5, teg_session_logits(s));
    assert_int_equal(teg_session_rewind(s, 1, NULL), TEG_OK);
    must_prefill(s, ids + 1, 6);
    expect_row(ids, 7, teg_session_logits(s));
    teg_session_free(s);
    close_model(&m);
}

/* A call that does not fit before the end of the context is made of smaller ones, or refused. */
static void test_end(void **state)
{
    (void)state;
    struct model m = must_open(&forms[1], NULL);
    struct teg_session *const s = must_start(&m);
    struct teg_error err = {0};
    must_prefill(s, ids, 6);
    assert_int_equal(teg_session_decode(s, 0, &err), TEG_ERR_CONTEXT_FULL);
    assert_non_null(strstr(err.message, "expected a function"));
    assert_int_equal(teg_session_length(s), 6);
    teg_session_free(s);
    close_model(&m);
}

/* ---- memory ---- */

struct limit {
    long left, held;
};

static void *limited_alloc(void *ctx, size_t n_bytes, size_t align)
{
    struct limit *const l = ctx;
    const struct teg_allocator *const a = teg_allocator_or_default(NULL);
    if (l->left == 0)
        return NULL;
    l->left--;
    l->held++;
    return a->alloc(a->ctx, n_bytes, align);
}

static void limited_free(void *ctx, void *ptr, size_t n_bytes)
{
    struct limit *const l = ctx;
    const struct teg_allocator *const a = teg_allocator_or_default(NULL);
    l->held -= ptr != NULL;
    a->free(a->ctx, ptr, n_bytes);
}

static enum teg_status whole_story(const struct bytes *text, const struct teg_allocator *a)
{
    struct model m;
    struct teg_session *s = NULL, *fork = NULL;
    struct teg_error err = {0};
    const struct teg_manifest none = {0};
    enum teg_status status = open_model(text, &none, a, &m, &err);
    if (status == TEG_OK)
        status = teg_lm_session_new(m.lm, NULL, &s, &err);
    if (status == TEG_OK)
        status = teg_session_prefill(s, ids, 5, NULL, &err);
    if (status == TEG_OK)
        status = teg_session_fork(s, &fork, &err);
    if (status == TEG_OK)
        status = teg_session_rewind(s, 3, &err);
    if (status == TEG_OK)
        status = teg_session_decode(s, 1, &err);
    teg_session_free(s);
    teg_session_free(fork);
    close_model(&m);
    return status;
}

static void test_failing_allocations(void **state)
{
    (void)state;
    struct bytes text = text_of(&forms[3]);
    long n = 0;
    for (;; n++) {
        struct limit limit = {n, 0};
        const struct teg_allocator a = {limited_alloc, limited_free, &limit};
        const enum teg_status status = whole_story(&text, &a);
        assert_int_equal(limit.held, 0);
        if (status == TEG_OK)
            break;
        assert_int_equal(status, TEG_ERR_MEMORY);
    }
    assert_true(n > 50);
    bytes_free(&text);
}

/* tegula.json may give less room than the package has, never more. */
static void test_context(void **state)
{
    (void)state;
    struct bytes text = text_of(&forms[3]);
    struct teg_manifest manifest = {.context = SLOTS + 1};
    struct model m;
    struct teg_error err = {0};
    assert_int_equal(open_model(&text, &manifest, NULL, &m, &err), TEG_ERR_ARGUMENT);
    close_model(&m);
    char expected[300];
    (void)snprintf(
        expected, sizeof expected,
        "context in tegula.json: expected at most the %d tokens that the package has room for, found %d; give "
        "a smaller one",
        SLOTS, SLOTS + 1);
    assert_non_null(strstr(err.message, expected));
    bytes_free(&text);
    manifest.context = 3;
    m = must_open(&forms[3], &manifest);
    struct teg_session *const s = must_start(&m);
    assert_int_equal(teg_session_context(s), 3);
    teg_session_free(s);
    close_model(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_context),
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_rewind_and_fork),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_overwrites),
        cmocka_unit_test(test_end),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
