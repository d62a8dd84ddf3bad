/* Packages as others export them, made by tools/make_export_packages.py from random models of transformers, with the
 * logits that torch computes: recognised or not, they answer the same, however the prompt is cut. NAME.golden holds
 * int32 T and V, int32 [T] ids, float32 [T, V] logits, all little-endian. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tegula.h"

static const struct export
{
    const char *name;
    bool is_model;
    const char *says; /* in what inspect prints: of the contract, or the reason why it runs op by op */
}
exports[] = {
    {"whole", true, "input      inputIds: token ids [1, ?]"}, /* no states: the whole text in every call, iOS 16 */
    {"whole_fixed", true, "tokens     T = 24 a call in the package; any number here"}, /* of one size, all folded */
    {"keep", true, "input      attention_mask: 1 for each token there is"},            /* Hugging Face's mask of ones */
    {"counted", true, "input      attention_mask: 1 for each token there is"},         /* positions counted from them */
    {"partial", true, "state      k_cache: 2 caches of keys or values, 32 slots"},     /* 3/4 of a head rotated */
    {"growing", true, "output     present_keys: the next call's past_keys"},           /* caches in and out, iOS 16 */
    {"kept", true, "input      update_mask: 1 where the call writes"},                 /* of a fixed size, by mask */
    {"scattered", true, "output     present_value_1: the next call's past_value_1"}, /* caches of each layer, 4 rows */
    {"layer_norm", true, "positions  tables of learned rows, 256 rows"},             /* GPT-2 */
    {"joint", true, "weights    0 matrices encoded, 14 dense"},       /* GPT-NeoX: Q, K, V of each head side by side */
    {"looked_up", true, "positions  tables of cos and sin, 64 rows"}, /* GPT-J: gather along an axis, pairs */
    {"buffered", true, "positions  tables of learned rows, 64 rows"}, /* GPT-Neo: masks cut from buffers, windows */
};

struct golden {
    int32_t n_tokens, n_vocab, ids[64];
    float *logits;
};

static struct golden read_golden(const char *name)
{
    struct golden g;
    char path[256];
    (void)snprintf(path, sizeof path, TEST_DATA "/exports/%s.golden", name);
    FILE *const f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(&g, sizeof(int32_t), 2, f), 2);
    assert_in_range(g.n_tokens, 1, 64);
    const size_t n = (size_t)g.n_tokens * (size_t)g.n_vocab;
    g.logits = malloc(n * sizeof *g.logits);
    assert_int_equal(fread(g.ids, sizeof *g.ids, (size_t)g.n_tokens, f), g.n_tokens);
    assert_int_equal(fread(g.logits, sizeof *g.logits, n, f), n);
    (void)fclose(f);
    return g;
}

struct rows {
    const struct golden *golden;
    size_t first, n;
    double worst;
};

static bool take(void *ctx, size_t first_row, size_t n_rows, const float *logits)
{
    struct rows *const r = ctx;
    const size_t width = (size_t)r->golden->n_vocab;
    const float *const wanted = r->golden->logits + (r->first + first_row) * width;
    for (size_t i = 0; i < n_rows * width; i++) {
        const double difference = fabs((double)logits[i] - (double)wanted[i]);
        if (!(difference <= r->worst)) /* a NaN too; fmax here breaks gcc 12 for Arm */
            r->worst = difference;
    }
    r->n += n_rows;
    return true;
}

/* All tokens in pieces of these sizes, the last one again and again. */
static double run(const char *path, const struct golden *g, const size_t *pieces, size_t n_pieces)
{
    struct teg_model_options options;
    struct teg_prefill_options prefill;
    struct teg_model *model = NULL;
    struct teg_session *session = NULL;
    struct teg_error err = {0};
    struct rows rows = {.golden = g};
    teg_model_options_default(&options);
    teg_prefill_options_default(&prefill);
    options.mode = TEG_MODE_EXACT;
    prefill.on_logits = take;
    prefill.on_logits_ctx = &rows;
    if (teg_model_open(path, &options, &model, &err) != TEG_OK ||
        teg_session_new(model, NULL, &session, &err) != TEG_OK)
        fail_msg("%s", err.message);
    assert_int_equal(teg_model_info(model)->vocab_tokens, g->n_vocab);
    for (size_t i = 0; rows.first < (size_t)g->n_tokens; i++) {
        const size_t wanted = pieces[i < n_pieces ? i : n_pieces - 1], left = (size_t)g->n_tokens - rows.first;
        const size_t n = wanted < left ? wanted : left;
        if (teg_session_prefill(session, g->ids + rows.first, n, &prefill, &err) != TEG_OK)
            fail_msg("%s: %s", path, err.message);
        rows.first += n;
    }
    assert_int_equal(rows.n, g->n_tokens);
    teg_session_free(session);
    teg_model_free(model);
    return rows.worst;
}

static void expect_answers(const char *path, const struct golden *g)
{
    const double fp16 = 0.02; /* weights and, op by op, outputs are fp16 values */
    const double whole = run(path, g, (const size_t[]){64}, 1);
    const double pieces = run(path, g, (const size_t[]){7, 5, 1}, 3);
    if (!(whole < fp16) || !(pieces < fp16))
        fail_msg("%s: logits differ by %g, in pieces by %g", path, whole, pieces);
}

static void expect_recognised(const struct export *e, const char *path)
{
    struct teg_program *program = NULL;
    struct teg_recognition r;
    struct teg_error err = {0};
    if (teg_program_open(path, NULL, &program, &err) != TEG_OK ||
        teg_program_recognise(program, NULL, &r, &err) != TEG_OK)
        fail_msg("%s", err.message);
    assert_int_equal(r.is_model, e->is_model);
    assert_int_equal(r.reason.n_bytes == 0, e->is_model);
    assert_int_equal(r.call.n_bytes == 0, e->is_model);
    const char *const text = e->is_model ? r.contract.bytes : r.call.bytes;
    if (!strstr(text, e->says))
        fail_msg("%s: no line \"%s\" in\n%s", path, e->says, text);
    if (e->is_model)
        assert_int_equal(r.n_understood, r.n_ops);
    teg_recognition_free(&r);
    teg_program_free(program);
}

static void test_answers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof exports / sizeof *exports; i++) {
        char path[256];
        struct golden g = read_golden(exports[i].name);
        (void)snprintf(path, sizeof path, TEST_DATA "/exports/%s.mlpackage", exports[i].name);
        expect_recognised(&exports[i], path);
        expect_answers(path, &g);
        free(g.logits);
    }
}

/* ---- the same op by op, and what tegula.json says ---- */

struct folder {
    char path[64], package[96], manifest[96];
};

static struct folder link_package(const char *name)
{
    struct folder f = {.path = "/tmp/tegula-exports-XXXXXX"};
    char target[256];
    assert_non_null(mkdtemp(f.path));
    (void)snprintf(f.package, sizeof f.package, "%s/m.mlpackage", f.path);
    (void)snprintf(f.manifest, sizeof f.manifest, "%s/tegula.json", f.path);
    (void)snprintf(target, sizeof target, "cp -r %s/exports/%s.mlpackage %s", TEST_DATA, name, f.package);
    assert_int_equal(system(target), 0);
    return f;
}

static void write_manifest(const struct folder *f, const char *text)
{
    FILE *const file = fopen(f->manifest, "w");
    assert_non_null(file);
    assert_int_not_equal(fputs(text, file), EOF);
    assert_int_equal(fclose(file), 0);
}

static void remove_folder(const struct folder *f)
{
    char command[128];
    (void)snprintf(command, sizeof command, "rm -r %s", f->path);
    assert_int_equal(system(command), 0);
}

static void test_op_by_op(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof exports / sizeof *exports; i++) {
        const struct folder f = link_package(exports[i].name);
        struct golden g = read_golden(exports[i].name);
        write_manifest(&f, "{\"format\": 1, \"evaluate\": true}");
        expect_answers(f.package, &g);
        free(g.logits);
        remove_folder(&f);
    }
}

static void expect_refused(const struct folder *f, const char *json, const char *message)
{
    struct teg_model *model = NULL;
    struct teg_error err = {0};
    write_manifest(f, json);
    if (teg_model_open(f->package, NULL, &model, &err) == TEG_OK)
        fail_msg("%s was taken", json);
    if (!strstr(err.message, message))
        fail_msg("expected: %s\nfound: %s", message, err.message);
}

static void test_names(void **state)
{
    (void)state;
    const struct folder f = link_package("growing");
    struct golden g = read_golden("growing");
    write_manifest(&f,
                   "{\"format\": 1, \"contract\": {\"inputs\": {\"input_ids\": \"tokens\", \"past_keys\": \"cache\","
                   "\"past_values\": \"cache\", \"causal_mask\": \"mask\"}, \"outputs\": {\"logits\": \"logits\"}}}");
    expect_answers(f.package, &g);
    expect_refused(&f, "{\"format\": 1, \"functions\": {\"prefill\": \"fill\"}}", "functions: expected functions of ");
    expect_refused(&f, "{\"format\": 1, \"contract\": {\"inputs\": {\"ids\": \"tokens\"}}}",
                   "contract: expected inputs of ");
    expect_refused(&f, "{\"format\": 1, \"contract\": {\"outputs\": {\"x\": \"logits\"}}}",
                   "contract: expected outputs of ");
    expect_refused(&f, "{\"format\": 1, \"contract\": {\"inputs\": {\"past_values\": \"tokens\"}}}",
                   "expected token ids once, found twice");
    free(g.logits);
    remove_folder(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_op_by_op),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
