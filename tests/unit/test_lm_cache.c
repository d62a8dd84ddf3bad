/* Caches that go in and come out of a program that runs op by op: which are understood, and what each refusal says.
 *
 * The rolling model adds up the embeddings of the last tokens: three slots in, the newest row behind them, the oldest
 * out. That its cache was rolled, and its mask with it, is seen in the sum. tests/unit/test_exports.c has the others.
 */
#include "unit/format_test.h"

#include "lm.h"

#define IDS "tensor<int32, [1, 1]> input_ids"
#define POS "tensor<int32, [1, 1]> position_ids"
#define MASK(n) "tensor<fp32, [1, 1, " n "]> causal_mask"
#define CACHE(name, n) "tensor<fp32, [1, " n ", 2]> " name
#define TABLE "tensor<fp32, [3, 2]> table = const()[val = tensor<fp32, [3, 2]>([[1, 2], [-3, 1], [0.5, -1]])];\n"
#define EMBED "tensor<fp32, [1, 1, 2]> x = gather(x = table, indices = input_ids, axis = int32(0));\n"
#define HEAD "tensor<fp32, [1, 1, 3]> logits = linear(x = x, weight = table);\n"
#define SAME(out, in, n) "tensor<fp32, [1, " n ", 2]> " out " = identity(x = " in ");\n"
#define FUNCTION(name, inputs, body, outputs)                                                                          \
    "func " name "<ios16>(" inputs ") {\n" TABLE EMBED body "} -> (" outputs ");\n"
#define PROGRAM(functions) "program(1.3)\n{\n" functions "}\n"
#define MAIN(inputs, body, outputs) PROGRAM(FUNCTION("main", inputs, body, outputs))

static const char rolling[] = MAIN(
    IDS ", " POS ", " MASK("4") ", " CACHE("past", "3"),
    "tensor<fp32, [1, 4, 2]> all = concat(values = (past, x), axis = int32(1), interleave = bool(false));\n"
    "tensor<fp32, [1, 1, 4]> seen = exp(x = causal_mask);\n"
    "tensor<fp32, [1, 1, 2]> sum = matmul(x = seen, y = all, transpose_x = bool(false), transpose_y = bool(false));\n"
    "tensor<fp32, [1, 1, 3]> logits = linear(x = sum, weight = table);\n"
    "tensor<fp32, [1, 3, 2]> present = slice_by_index(x = all, begin = tensor<int32, [3]>([0, 1, 0]), end = "
    "tensor<int32, [3]>([1, 4, 2]));\n",
    "logits, present");

struct model {
    struct teg_arena arena;
    struct teg_program *program;
    struct teg_lm *lm;
};

static enum teg_status open_model(const char *text, const struct teg_allocator *allocator, struct model *m,
                                  struct teg_error *err)
{
    const struct teg_manifest none = {0};
    struct teg_mil_program *mil = NULL;
    struct teg_program_options o;
    teg_program_options_default(&o);
    o.allocator = teg_allocator_or_default(allocator);
    o.n_threads = 1;
    *m = (struct model){0};
    teg_arena_init(&m->arena, allocator);
    TRY(teg_mil_parse_text(text, strlen(text), NULL, 0, "toy", allocator, &mil, err));
    TRY(teg_program_of(mil, &o, &m->program, err));
    return teg_lm_new(m->program, &none, &m->arena, &m->lm, err);
}

static void close_model(struct model *m)
{
    teg_program_free(m->program);
    teg_arena_free(&m->arena);
}

/* The sum over the last four tokens, times the table. */
static void expect_sum(const int32_t *ids, size_t n, const float *logits)
{
    static const float table[3][2] = {{1, 2}, {-3, 1}, {0.5f, -1}};
    float sum[2] = {0};
    for (size_t i = n > 4 ? n - 4 : 0; i < n; i++)
        for (size_t k = 0; k < 2; k++)
            sum[k] += table[ids[i]][k];
    assert_non_null(logits);
    for (size_t v = 0; v < 3; v++)
        assert_float_equal(logits[v], sum[0] * table[v][0] + sum[1] * table[v][1], 1e-5);
}

static void test_rolling(void **state)
{
    static const int32_t ids[] = {0, 1, 2, 2, 1, 0, 1, 1};
    struct model m;
    struct teg_session *s = NULL, *fork = NULL;
    struct teg_error err = {0};
    (void)state;
    if (open_model(rolling, NULL, &m, &err) != TEG_OK || teg_lm_session_new(m.lm, NULL, &s, &err) != TEG_OK)
        fail_msg("%s", err.message);
    for (size_t i = 0; i < teg_session_context(s) && i < 8; i++) {
        assert_int_equal(teg_session_decode(s, ids[i], &err), TEG_OK);
        expect_sum(ids, i + 1, teg_session_logits(s));
        if (i == 1)
            assert_int_equal(teg_session_fork(s, &fork, &err), TEG_OK);
    }
    assert_int_equal(teg_session_decode(fork, ids[2], &err), TEG_OK);
    expect_sum(ids, 3, teg_session_logits(fork));
    assert_int_equal(teg_session_rewind(s, 1, &err), TEG_OK);
    assert_int_equal(teg_session_decode(s, ids[1], &err), TEG_OK);
    expect_sum(ids, 2, teg_session_logits(s));
    teg_session_free(fork);
    teg_session_free(s);
    close_model(&m);
}

static const struct {
    const char *text, *message;
} refusals[] = {
    {MAIN(IDS ", " POS ", " MASK("8") ", " CACHE("k_cache", "8"), HEAD, "logits"),
     "input 'k_cache': expected an output of its shape that goes into the next call, found none"},
    {MAIN(IDS ", " MASK("8") ", " CACHE("k_cache", "8"), HEAD SAME("new", "k_cache", "8"), "logits, new"),
     "input 'k_cache': expected an input that says which slots are written, found none"},
    {MAIN(IDS ", " MASK("9") ", " CACHE("k_cache", "8"), HEAD SAME("new", "k_cache", "8"), "logits, new"),
     "input 'k_cache': expected a mask and positions as inputs"},
    {MAIN(IDS ", " POS ", " MASK("9") ", " CACHE("k_cache", "5"), HEAD SAME("new", "k_cache", "5"), "logits, new"),
     "input 'k_cache': expected keys or values with as many slots as the mask, or any number"},
    {MAIN(IDS ", " POS ", " MASK("8") ", " CACHE("k_cache", "8") ", " CACHE("v_cache", "7"),
          HEAD SAME("k_new", "k_cache", "8") SAME("v_new", "v_cache", "7"), "logits, k_new, v_new"),
     "input 'v_cache': expected all caches to have slots alike, found others"},
    {PROGRAM(FUNCTION("main", IDS ", " POS ", " MASK("8") ", " CACHE("k_cache", "8"), HEAD SAME("new", "k_cache", "8"),
                      "logits, new") FUNCTION("other", IDS ", " POS ", " MASK("6") ", " CACHE("k_cache", "6"),
                                              HEAD SAME("new", "k_cache", "6"), "logits, new")),
     "caches: expected the same inputs in all functions, found others in '"},
};

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        struct model m;
        struct teg_error err = {0};
        if (open_model(refusals[i].text, NULL, &m, &err) == TEG_OK)
            fail_msg("was taken: %s", refusals[i].text);
        if (err.status != TEG_ERR_UNSUPPORTED || !strstr(err.message, refusals[i].message))
            fail_msg("expected: %s\nfound: %s", refusals[i].message, err.message);
        close_model(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rolling),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
