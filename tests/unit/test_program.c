/* test_program.c: ML programs through tegula.h: what they say of themselves, predictions in every element type, states,
 * and that the n-th allocation may fail for every n without a crash, a leak or a changed state. The packages lie in
 * tests/data/mil; the rules on inputs are tested from Python (tests/python) and from the program (tests/cli). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tegula.h"

/* ---- an allocator that counts and fails ---- */

struct ledger {
    size_t n_calls, n_live, n_bytes;
    size_t fail_at; /* the call that fails, counted from 1; 0: none */
};

static void *counted_alloc(void *ctx, size_t n_bytes, size_t align)
{
    struct ledger *const l = ctx;
    void *p = NULL;
    if (__atomic_add_fetch(&l->n_calls, 1, __ATOMIC_RELAXED) == l->fail_at ||
        posix_memalign(&p, align < sizeof(void *) ? sizeof(void *) : align, n_bytes ? n_bytes : 1) != 0)
        return NULL;
    __atomic_add_fetch(&l->n_live, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&l->n_bytes, n_bytes, __ATOMIC_RELAXED);
    return p;
}

static void counted_free(void *ctx, void *p, size_t n_bytes)
{
    struct ledger *const l = ctx;
    if (p) {
        __atomic_sub_fetch(&l->n_live, 1, __ATOMIC_RELAXED);
        __atomic_sub_fetch(&l->n_bytes, n_bytes, __ATOMIC_RELAXED);
    }
    free(p);
}

/* ---- lives of a program ---- */

#define PACKAGE(name) TEST_DATA "/mil/" name ".mlpackage"

static struct teg_feature_value array_of(const char *name, enum teg_element element, uint32_t rank, uint64_t d0,
                                         uint64_t d1, const void *data)
{
    return (struct teg_feature_value){
        .name = name, .kind = TEG_FEATURE_ARRAY, .element = element, .rank = rank, .dims = {d0, d1}, .data = data};
}

static const float numbers[16] = {1, 2, 3, 4, -1, -2, -3, -4, 1, 2, 3, 4, 0, 0, 0, 0};

static enum teg_status use_old(struct teg_program *p, struct teg_values **out, struct teg_error *err)
{
    static const uint8_t pixels[4 * 5 * 3] = {10, 20, 30, 40};
    struct teg_feature_value picture = {
        .name = "picture", .kind = TEG_FEATURE_IMAGE, .element = TEG_ELEMENT_U8, .rank = 3, .dims = {4, 5, 3}};
    picture.data = pixels;
    return teg_program_predict(p, &picture, 1, NULL, out, err);
}

static enum teg_status use_flow(struct teg_program *p, struct teg_values **out, struct teg_error *err)
{
    const struct teg_feature_value x = array_of("x", TEG_ELEMENT_F32, 2, 3, 2, numbers);
    return teg_program_predict(p, &x, 1, NULL, out, err);
}

static enum teg_status use_cache(struct teg_program *p, struct teg_values **out, struct teg_error *err)
{
    struct teg_state *state = NULL;
    struct teg_values *before = NULL;
    struct teg_predict_options o;
    teg_predict_options_default(&o);
    const struct teg_feature_value step[] = {array_of("x", TEG_ELEMENT_F32, 2, 1, 4, numbers),
                                             array_of("offset", TEG_ELEMENT_F32, 1, 8, 0, numbers)};
    enum teg_status status = teg_state_new(p, &state, err);
    if (status == TEG_OK)
        status = teg_state_read(state, "kv", &before, err);
    if (status == TEG_OK)
        status = teg_state_write(state, teg_values_at(before, 0), err);
    o.state = state;
    if (status == TEG_OK)
        status = teg_program_predict(p, step, 2, &o, out, err);
    teg_values_free(before);
    teg_state_free(state);
    return status;
}

static const struct life {
    const char *path;
    enum teg_status (*use)(struct teg_program *p, struct teg_values **out, struct teg_error *err);
    size_t n_outputs;
} lives[] = {{PACKAGE("old"), use_old, 1}, {PACKAGE("cache"), use_cache, 1}, {PACKAGE("flow"), use_flow, 4}};

static enum teg_status live(const struct life *life, struct ledger *ledger, struct teg_error *err)
{
    const struct teg_allocator allocator = {counted_alloc, counted_free, ledger};
    struct teg_program_options o;
    struct teg_program *p = NULL;
    struct teg_values *out = NULL;
    teg_program_options_default(&o);
    o.allocator = &allocator;
    o.n_threads = 1;
    enum teg_status status = teg_program_open(life->path, &o, &p, err);
    if (status == TEG_OK)
        status = life->use(p, &out, err);
    assert_int_equal(teg_values_count(out), status == TEG_OK ? life->n_outputs : 0);
    teg_values_free(out);
    teg_program_free(p);
    return status;
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof lives / sizeof *lives; k++) {
        struct ledger ledger = {0};
        struct teg_error err = {0};
        const enum teg_status status = live(&lives[k], &ledger, &err);
        if (status != TEG_OK)
            fail_msg("%s: %s", lives[k].path, err.message);
        assert_int_equal(ledger.n_live, 0);
        assert_int_equal(ledger.n_bytes, 0);
        const size_t n = ledger.n_calls;
        for (size_t i = 1; i <= n; i++) {
            ledger = (struct ledger){.fail_at = i};
            err = (struct teg_error){0};
            assert_int_equal(live(&lives[k], &ledger, &err), TEG_ERR_MEMORY);
            assert_int_equal(err.status, TEG_ERR_MEMORY);
            assert_int_not_equal(err.message[0], 0);
            assert_int_equal(ledger.n_live, 0);
            assert_int_equal(ledger.n_bytes, 0);
        }
    }
}

/* ---- what a program says ---- */

static void test_facts(void **state)
{
    (void)state;
    struct teg_program *p = NULL;
    struct teg_error err = {0};
    struct teg_function f = {0};
    struct teg_feature feature;
    struct teg_weight w;
    assert_int_equal(teg_program_open(PACKAGE("cache"), NULL, &p, &err), TEG_OK);
    const struct teg_program_info *const info = teg_program_info(p);
    assert_string_equal(info->format, "mlpackage");
    assert_string_equal(info->default_function, "step");
    assert_int_equal(info->n_functions, 2);
    assert_int_equal(teg_program_find_function(p, NULL), teg_program_find_function(p, "step"));
    assert_true(teg_program_find_function(p, "other") == SIZE_MAX);
    assert_int_equal(teg_program_function(p, teg_program_find_function(p, "chunk"), &f), TEG_OK);
    assert_int_equal(f.n_inputs, 2);
    assert_int_equal(f.n_states, 1);
    assert_string_equal(f.opset, "CoreML8");
    assert_int_equal(teg_program_function(p, 2, &f), TEG_ERR_ARGUMENT);
    const size_t step = teg_program_find_function(p, "step");
    assert_int_equal(teg_program_feature(p, step, TEG_ROLE_INPUT, 1, &feature), TEG_OK);
    assert_int_equal(feature.n_enumerated, 2);
    assert_int_equal(feature.enumerated[1][0], 1);
    assert_int_equal(teg_program_feature(p, step, TEG_ROLE_STATE, 0, &feature), TEG_OK);
    assert_int_equal(feature.element, TEG_ELEMENT_F16);
    assert_int_equal(teg_program_feature(p, step, TEG_ROLE_STATE, 1, &feature), TEG_ERR_ARGUMENT);
    assert_int_equal(teg_program_feature(p, 2, TEG_ROLE_STATE, 0, &feature), TEG_ERR_ARGUMENT);
    assert_true(info->n_weights > 0);
    for (size_t i = 0; i < info->n_weights; i++) {
        assert_int_equal(teg_program_weight(p, i, &w), TEG_OK);
        assert_int_not_equal(w.name[0], 0);
    }
    assert_int_equal(teg_program_weight(p, info->n_weights, &w), TEG_ERR_ARGUMENT);
    teg_program_free(p);
}

static void test_metadata_and_dump(void **state)
{
    (void)state;
    struct teg_program *p = NULL;
    struct teg_error err = {0};
    struct teg_text text = {0};
    const char *key = NULL, *value = NULL;
    assert_int_equal(teg_program_open(PACKAGE("old"), NULL, &p, &err), TEG_OK);
    assert_string_equal(teg_program_info(p)->author, "somebody");
    assert_int_equal(teg_program_info(p)->n_metadata, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(teg_program_metadata(p, i, &key, &value), TEG_OK);
        assert_string_equal(value, strcmp(key, "empty") == 0 ? "" : "9.0");
    }
    assert_int_equal(teg_program_metadata(p, 2, &key, &value), TEG_ERR_ARGUMENT);
    assert_int_equal(teg_program_dump(p, NULL, &text, &err), TEG_OK);
    assert_non_null(strstr(text.bytes, "func main<CoreML6>"));
    teg_text_free(&text);
    assert_int_equal(teg_program_dump(p, "other", &text, &err), TEG_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "main"));
    teg_program_free(p);
}

/* What is no language model is told so, with the op; and no memory is an error like another. */
static void test_recognised(void **state)
{
    (void)state;
    struct ledger ledger = {0};
    const struct teg_allocator allocator = {counted_alloc, counted_free, &ledger};
    struct teg_program_options options;
    struct teg_program *p = NULL;
    struct teg_recognition r = {0};
    struct teg_text text = {0};
    struct teg_error err = {0};
    teg_program_options_default(&options);
    options.allocator = &allocator;
    assert_int_equal(teg_program_open(PACKAGE("cache"), &options, &p, &err), TEG_OK);
    const size_t n_live = ledger.n_live;
    for (size_t n = 1;; n++) {
        ledger.fail_at = ledger.n_calls + n;
        const enum teg_status status = teg_program_recognise(p, NULL, &r, &err);
        if (status == TEG_OK)
            break;
        assert_int_equal(status, TEG_ERR_MEMORY);
        assert_int_equal(ledger.n_live, n_live);
        assert_true(n < 1000);
    }
    ledger.fail_at = 0;
    assert_int_equal(ledger.n_live, n_live);
    assert_true(!r.is_model && r.n_ops > 0 && r.n_understood < r.n_ops);
    assert_true(r.contract.n_bytes == 0 && r.composites.n_bytes == 0 && r.ops.n_bytes == 0 && r.reason.n_bytes > 0);
    teg_recognition_free(&r);
    assert_int_equal(teg_program_why_not(p, NULL, NULL, &text, &err), TEG_OK);
    assert_true(text.n_bytes > 0);
    teg_text_free(&text);
    assert_int_equal(teg_program_why_not(p, NULL, "nothing of that name", &text, &err), TEG_OK);
    assert_string_equal(text.bytes, "no op has 'nothing of that name' in its name or type\n");
    teg_text_free(&text);
    assert_int_equal(teg_program_recognise(p, "other", &r, &err), TEG_ERR_ARGUMENT);
    assert_int_equal(teg_program_why_not(p, "other", NULL, &text, &err), TEG_ERR_ARGUMENT);
    teg_program_free(p);
    assert_int_equal(ledger.n_live, 0);
}

/* The same program as a package and compiled needs the same systems. */
static void test_requirements(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t spec_version;
        const char *good, *bad, *feature;
    } rows[] = {{"old", 7, "iOS16", "iOS15", "float16"},
                {"cache", 9, "macos 15.2", "macOS14", "several functions"},
                {"flow", 9, "visionOS2", "watchOS10", "4"}};
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        char path[512];
        struct teg_program *p = NULL;
        struct teg_error err = {0};
        uint32_t newest = 0;
        struct teg_requirement r;
        snprintf(path, sizeof path, "%s/mil/%s.%s", TEST_DATA, rows[i / 2].name, i % 2 ? "mlmodelc" : "mlpackage");
        assert_int_equal(teg_program_open(path, NULL, &p, &err), TEG_OK);
        for (size_t k = 0; teg_program_requirement(p, k, &r) == TEG_OK; k++)
            newest = r.spec_version > newest ? r.spec_version : newest;
        assert_int_equal(newest, rows[i / 2].spec_version);
        assert_int_equal(teg_program_check_target(p, rows[i / 2].good, &err), TEG_OK);
        assert_int_equal(teg_program_check_target(p, rows[i / 2].bad, &err), TEG_ERR_UNSUPPORTED);
        assert_non_null(strstr(err.message, rows[i / 2].feature));
        assert_int_equal(teg_program_check_target(p, "Linux", &err), TEG_ERR_ARGUMENT);
        assert_int_equal(teg_program_check_target(p, "iOS", &err), TEG_ERR_ARGUMENT);
        assert_int_equal(teg_program_check_target(p, "iOS14", &err), TEG_ERR_UNSUPPORTED);
        teg_program_free(p);
    }
}

/* ---- values ---- */

static void test_elements(void **state)
{
    (void)state;
    static const size_t sizes[TEG_ELEMENT_COUNT] = {2, 4, 8, 1, 1, 2, 2, 4, 4, 8, 8, 1};
    for (int e = 0; e < TEG_ELEMENT_COUNT; e++) {
        assert_int_equal(teg_element_bytes((enum teg_element)e), sizes[e]);
        assert_string_not_equal(teg_element_name((enum teg_element)e), "unknown");
    }
    assert_string_equal(teg_element_name(TEG_ELEMENT_COUNT), "unknown");
    assert_int_equal(teg_element_bytes(TEG_ELEMENT_COUNT), 0);
}

static void test_flow(void **state)
{
    (void)state;
    struct teg_program *p = NULL;
    struct teg_values *out = NULL;
    struct teg_error err = {0};
    struct teg_predict_report report = {0};
    assert_int_equal(teg_program_open(PACKAGE("flow"), NULL, &p, &err), TEG_OK);
    assert_int_equal(use_flow(p, &out, &err), TEG_OK);
    const struct teg_feature_value *v = teg_values_at(out, 0);
    assert_int_equal(v->kind, TEG_FEATURE_STRING);
    assert_string_equal(v->string, "dog"); /* the row is (1, 2), doubled */
    v = teg_values_at(out, 1);
    assert_int_equal(v->kind, TEG_FEATURE_DICT_STRING);
    assert_int_equal(v->n_entries, 2);
    assert_string_equal(v->string_keys[0], "cat");
    assert_true(v->entry_values[0] == 2.0 && v->entry_values[1] == 4.0);
    v = teg_values_at(out, 2);
    assert_int_equal(v->element, TEG_ELEMENT_I32);
    assert_int_equal(*(const int32_t *)v->data, 3);
    v = teg_values_at(out, 3);
    assert_true(v->rank == 1 && v->dims[0] == 1 && *(const float *)v->data == 3.0f);
    assert_null(teg_values_at(out, 4));
    teg_values_report(out, &report);
    assert_true(report.n_ops > 0 && report.peak_bytes > 0 && !report.overflow_op);
    teg_values_free(out);
    teg_program_free(p);
}

static void test_stop(void **state)
{
    (void)state;
    static volatile bool stop = true;
    struct teg_program *p = NULL;
    struct teg_values *out = NULL;
    struct teg_error err = {0};
    struct teg_predict_options o;
    teg_predict_options_default(&o);
    o.stop = &stop;
    const struct teg_feature_value x = array_of("x", TEG_ELEMENT_F32, 2, 3, 2, numbers);
    assert_int_equal(teg_program_open(PACKAGE("flow"), NULL, &p, &err), TEG_OK);
    assert_int_equal(teg_program_predict(p, &x, 1, &o, &out, &err), TEG_ERR_INTERRUPTED);
    assert_null(out);
    o.function = "other";
    assert_int_equal(teg_program_predict(p, &x, 1, &o, &out, &err), TEG_ERR_ARGUMENT);
    assert_int_equal(teg_program_prepare(p, "other", &err), TEG_ERR_ARGUMENT);
    teg_program_free(p);
}

static bool count_and_stop(void *ctx)
{
    ++*(int *)ctx;
    return false;
}

/* Asked after the first op; what it says holds before the next one. */
static void test_check(void **state)
{
    (void)state;
    int n = 0;
    struct teg_program *p = NULL;
    struct teg_values *out = NULL;
    struct teg_error err = {0};
    struct teg_predict_options o;
    teg_predict_options_default(&o);
    o.check = count_and_stop;
    o.check_ctx = &n;
    const struct teg_feature_value x = array_of("x", TEG_ELEMENT_F32, 2, 3, 2, numbers);
    assert_int_equal(teg_program_open(PACKAGE("flow"), NULL, &p, &err), TEG_OK);
    assert_int_equal(teg_program_predict(p, &x, 1, &o, &out, &err), TEG_ERR_INTERRUPTED);
    assert_int_equal(n, 1);
    assert_null(out);
    teg_program_free(p);
}

static void test_free_null(void **state)
{
    (void)state;
    teg_program_free(NULL);
    teg_values_free(NULL);
    teg_state_free(NULL);
    assert_int_equal(teg_values_count(NULL), 0);
    assert_null(teg_values_at(NULL, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_facts),      cmocka_unit_test(test_metadata_and_dump),
        cmocka_unit_test(test_recognised), cmocka_unit_test(test_requirements),
        cmocka_unit_test(test_elements),   cmocka_unit_test(test_flow),
        cmocka_unit_test(test_stop),       cmocka_unit_test(test_check),
        cmocka_unit_test(test_free_null),  cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
