/* tests/unit/test_jinja.c: the template interpreter against jinja2's own answers (tests/data/jinja_cases.json), its
 * error messages, its limits, and the n-th allocation failing for all n. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "failing_malloc.h"
#include "tok/jinja.h"

enum { NOW = 1753963810 }; /* 2025-07-31 12:10:10 UTC */

/* ---- helpers ---- */

static enum teg_status run(const char *source, size_t n_source, const char *variables, struct teg_text *text,
                           struct teg_error *err)
{
    struct teg_jinja *jinja = NULL;
    *text = (struct teg_text){0};
    *err = (struct teg_error){0};
    enum teg_status status = teg_jinja_parse(source, n_source, &jinja, err);
    if (status == TEG_OK)
        status = teg_jinja_render(jinja, variables, strlen(variables), NOW, text, err);
    teg_jinja_free(jinja);
    return status;
}

static json_t *load_cases(void)
{
    json_error_t error;
    json_t *const json = json_load_file(TEST_DATA "/jinja_cases.json", JSON_ALLOW_NUL, &error);
    if (!json)
        fail_msg("jinja_cases.json: %s", error.text);
    return json;
}

/* ---- jinja2's answers ---- */

static bool case_holds(const json_t *row, const char *variables)
{
    const json_t *const t = json_object_get(row, "t"), *const out = json_object_get(row, "out");
    struct teg_text text;
    struct teg_error err;
    const enum teg_status status = run(json_string_value(t), json_string_length(t), variables, &text, &err);
    bool ok;
    if (json_object_get(row, "unsupported"))
        ok = status == TEG_ERR_UNSUPPORTED;
    else if (json_object_get(row, "error"))
        ok = status != TEG_OK && strncmp(err.message, "chat template: line ", 20) == 0;
    else
        ok = status == TEG_OK && text.n_bytes == json_string_length(out) &&
             memcmp(text.bytes, json_string_value(out), text.n_bytes) == 0;
    if (!ok)
        print_error("%s\n  expected %s\n  found    %s\n", json_string_value(t),
                    out ? json_string_value(out) : "an error", status == TEG_OK ? text.bytes : err.message);
    free(text.bytes);
    return ok;
}

static void test_cases(void **state)
{
    (void)state;
    json_t *const json = load_cases();
    const json_t *const cases = json_object_get(json, "cases");
    char *const variables = json_dumps(json_object_get(json, "variables"), 0);
    size_t n_bad = 0;
    for (size_t i = 0; i < json_array_size(cases); i++)
        n_bad += !case_holds(json_array_get(cases, i), variables);
    assert_true(json_array_size(cases) > 1000);
    free(variables);
    json_decref(json);
    assert_int_equal(n_bad, 0);
}

/* ---- messages ---- */

static const struct {
    const char *source, *variables;
    enum teg_status status;
    const char *message;
} failures[] = {
    {"a\nb\n{{ raise_exception('roles must alternate') }}", "{}", TEG_ERR_ARGUMENT,
     "chat template: line 3: roles must alternate"},
    {"{% include 'x' %}", "{}", TEG_ERR_UNSUPPORTED, "chat template: line 1: the statement include is not supported"},
    {"\n{% block b %}{% endblock %}", "{}", TEG_ERR_UNSUPPORTED,
     "chat template: line 2: the statement block is not supported"},
    {"{{ 1|shout }}", "{}", TEG_ERR_UNSUPPORTED, "chat template: line 1: the filter shout is not supported"},
    {"{{ 1|urlize }}", "{}", TEG_ERR_UNSUPPORTED, "chat template: line 1: the filter urlize is not supported"},
    {"{{ 1 is nice }}", "{}", TEG_ERR_UNSUPPORTED, "chat template: line 1: the test nice is not supported"},
    {"{{ lipsum() }}", "{}", TEG_ERR_UNSUPPORTED, "chat template: line 1: the function lipsum is not supported"},
    {"{{ 'a'.encode() }}", "{}", TEG_ERR_UNSUPPORTED, "chat template: line 1: the method str.encode is not supported"},
    {"{% for x in [] recursive %}{% endfor %}", "{}", TEG_ERR_UNSUPPORTED,
     "chat template: line 1: a recursive for loop is not supported"},
    {"{% if 1 %}", "{}", TEG_ERR_FORMAT,
     "chat template: line 1: expected {% endif %} to end this block, found the end of the template"},
    {"{% endif %}", "{}", TEG_ERR_FORMAT,
     "chat template: line 1: expected the end of the innermost block, found endif"},
    {"{{ 1 + }}", "{}", TEG_ERR_FORMAT, "chat template: line 1: expected an expression, found }}"},
    {"{{ 'a }}", "{}", TEG_ERR_FORMAT,
     "chat template: line 1: expected ' to end the string, found the end of the template"},
    {"{{ ) }}", "{}", TEG_ERR_FORMAT, "chat template: line 1: expected an opening bracket before ), found none"},
    {"{{ (] }}", "{}", TEG_ERR_FORMAT, "chat template: line 1: expected ), found ]"},
    {"{# a", "{}", TEG_ERR_FORMAT,
     "chat template: line 1: expected #} to end the comment, found the end of the template"},
    {"{% raw %}", "{}", TEG_ERR_FORMAT, "chat template: line 1: expected {% endraw %}, found the end of the template"},
    {"{{ a", "{}", TEG_ERR_FORMAT, "chat template: line 1: expected }}, found the end of the template"},
    {"{{ @ }}", "{}", TEG_ERR_FORMAT, "chat template: line 1: expected an expression, found the character '@'"},
    {"{{ é }}", "{}", TEG_ERR_UNSUPPORTED,
     "chat template: line 1: expected an ASCII name or operator, found another character"},
    {"a\xff", "{}", TEG_ERR_FORMAT, "chat template: line 1: expected UTF-8 text, found the byte 0xFF at byte 1"},
    {"{{ '\\ud800' }}", "{}", TEG_ERR_UNSUPPORTED,
     "chat template: line 1: expected a character in the string escape, found half of a surrogate pair"},
    {"{{ 99999999999999999999 }}", "{}", TEG_ERR_UNSUPPORTED,
     "chat template: line 1: expected a number of 64 bits, found 99999999999999999999"},
    {"{{ 9223372036854775807 + 1 }}", "{}", TEG_ERR_UNSUPPORTED,
     "chat template: line 1: expected an integer of 64 bits, found a larger result"},
    {"{{ 1 / 0 }}", "{}", TEG_ERR_ARGUMENT, "chat template: line 1: division by zero"},
    {"{{ who.name }}", "{}", TEG_ERR_ARGUMENT, "chat template: line 1: 'who' is undefined"},
    {"{{ m.a.b }}", "{\"m\":{}}", TEG_ERR_ARGUMENT, "chat template: line 1: 'dict object' has no attribute 'a'"},
    {"{{ 'a' + 1 }}", "{}", TEG_ERR_ARGUMENT,
     "chat template: line 1: can only concatenate str (not \"int\") to str; use ~"},
    {"{{ 'a' < 1 }}", "{}", TEG_ERR_ARGUMENT, "chat template: line 1: '<' is not supported between 'str' and 'int'"},
    {"{% for x in none %}{% endfor %}", "{}", TEG_ERR_ARGUMENT,
     "chat template: line 1: 'NoneType' object is not iterable"},
    {"{{ [].append(1) }}", "{}", TEG_ERR_ARGUMENT,
     "chat template: line 1: access to attribute 'append' is unsafe: templates may not change lists and dicts"},
    {"{{ [1]|map('string') }}", "{}", TEG_ERR_UNSUPPORTED,
     "chat template: line 1: writing a generator as text is not supported; add |list"},
    {"{% macro m() %}{% endmacro %}{{ m(1) }}", "{}", TEG_ERR_ARGUMENT,
     "chat template: line 1: macro m takes not more than 0 arguments, found 1"},
    {"{% set x.y = 1 %}", "{\"x\":{}}", TEG_ERR_ARGUMENT,
     "chat template: line 1: cannot assign attribute y on non-namespace object x"},
    {"{% set a, b = [1] %}", "{}", TEG_ERR_ARGUMENT, "chat template: line 1: expected 2 values to unpack, found 1"},
    {"{% break %}", "{}", TEG_ERR_FORMAT, "chat template: line 1: expected break inside a for loop, found it outside"},
    {"x", "[]", TEG_ERR_ARGUMENT, "chat template: variables: expected a JSON object, found another type"},
    {"x", "{\"a\":", TEG_ERR_ARGUMENT, NULL},
    {"x", "{\"a\":99999999999999999999}", TEG_ERR_ARGUMENT, NULL},
};

static void test_messages(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        struct teg_text text;
        struct teg_error err;
        const enum teg_status status =
            run(failures[i].source, strlen(failures[i].source), failures[i].variables, &text, &err);
        if (status != failures[i].status)
            fail_msg("%s: status %d, %s", failures[i].source, (int)status, err.message);
        assert_null(text.bytes);
        if (failures[i].message)
            assert_string_equal(err.message, failures[i].message);
        else
            assert_non_null(strstr(err.message, "chat template: variables at byte"));
    }
}

/* ---- limits ---- */

static char *repeated(const char *head, const char *unit, size_t n, const char *tail)
{
    const size_t n_unit = strlen(unit), n_head = strlen(head);
    char *const text = malloc(n_head + n * n_unit + strlen(tail) + 1);
    assert_non_null(text);
    memcpy(text, head, n_head);
    for (size_t i = 0; i < n; i++)
        memcpy(text + n_head + i * n_unit, unit, n_unit);
    strcpy(text + n_head + n * n_unit, tail);
    return text;
}

static void check_limit(const char *source, const char *variables)
{
    struct teg_text text;
    struct teg_error err;
    const clock_t start = clock();
    const enum teg_status status = run(source, strlen(source), variables, &text, &err);
    if (status != TEG_ERR_UNSUPPORTED)
        fail_msg("%.60s: status %d, %s", source, (int)status, err.message);
    assert_null(text.bytes);
    assert_true((double)(clock() - start) / CLOCKS_PER_SEC < 20);
}

static void test_limits(void **state)
{
    (void)state;
    static const char *const sources[] = {
        "{% for a in range(99999) %}{% for b in range(99999) %}{{ c }}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{{ 'x' * 100000 }}{% endfor %}",
        "{{ 'x' * 1000000000 }}",
        "{{ [1] * 1000000000 }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
        "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
        "{% set a = 'a' * 4000000 %}{% set b = 'a' * 2000000 ~ 'b' %}{{ a.rfind(b) }}",
        "{% set ns = namespace(s='x' * 1000) %}{% for i in range(40) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set d = {} %}{% for i in range(99999) %}{{ range(99999)|list|sort|length }}{% endfor %}",
    };
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++)
        check_limit(sources[i], "{}");
    static const struct {
        const char *head, *unit, *tail;
    } deep[] = {
        {"{{ ", "(", ""},
        {"{{ ", "[", ""},
        {"{{ a", ".b", " }}"},
        {"{{ 1", "|abs", " }}"},
        {"{{ ", "not ", "1 }}"},
        {"{{ ", "-", "1 }}"},
        {"{{ 1", "+1", " }}"},
        {"", "{% if 1 %}", ""},
        {"", "{% for x in y %}", ""},
        {"{{ 1 ", "if 1 else 2 ", "}}"},
    };
    for (size_t i = 0; i < sizeof deep / sizeof *deep; i++) {
        char *const source = repeated(deep[i].head, deep[i].unit, 100000, deep[i].tail);
        check_limit(source, "{}");
        free(source);
    }
    char *const variables = repeated("{\"a\":", "[", 1000, "");
    char *const closed = repeated(variables, "]", 1000, "}");
    check_limit("x", closed);
    free(closed);
    free(variables);
}

/* ---- memory ---- */

#if CAN_FAIL
static const char *const big_template =
    "{% macro show(x) %}[{{ x|upper }}{{ caller() }}]{% endmacro %}{% for m in messages %}{% call show(m.role) %}"
    "{{ m.content|tojson(indent=1) }}{% endcall %}{{ m|tojson }}{% set q %}{{ m.role.split('s')|join('-') }}"
    "{% endset %}{{ q|indent }}{{ loop.length }}{{ '%s' % q }}{{ m.items()|list }}{% endfor %}"
    "{{ messages|map(attribute='role')|sort|unique|list }}{{ messages[::-1] }}{{ range(200)|map('string')|join }}"
    "{{ ['b', 'a']|sort }}{{ 'x' * 40000 }}";
static const char *const big_variables =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"h\\u00e9 \\\"x\\\"\"},{\"role\":\"assistant\",\"content\":[1,"
    "{\"a\":null}]}]}";
#endif

static void test_allocation_failures(void **state)
{
    (void)state;
#if CAN_FAIL
    enum teg_status status = TEG_ERR_MEMORY;
    long n = 0;
    for (; status != TEG_OK && n < 100000; n++) {
        struct teg_text text;
        struct teg_error err;
        const long before = blocks_held;
        allocations_left = n;
        status = run(big_template, strlen(big_template), big_variables, &text, &err);
        allocations_left = -1;
        if (status == TEG_OK)
            free(text.bytes);
        else
            assert_null(text.bytes);
        assert_int_equal(blocks_held, before);
        /* jansson reports some of its own failed allocations as bad syntax */
        const bool by_jansson = status == TEG_ERR_ARGUMENT && strstr(err.message, "variables at byte");
        if (status != TEG_OK && status != TEG_ERR_MEMORY && !by_jansson)
            fail_msg("allocation %ld: status %d, %s", n, (int)status, err.message);
    }
    assert_int_equal(status, TEG_OK);
    assert_true(n > 20);
#else
    skip();
#endif
}

static void test_null_error_and_free(void **state)
{
    (void)state;
    struct teg_jinja *jinja = NULL;
    assert_int_equal(teg_jinja_parse("{{", 2, &jinja, NULL), TEG_ERR_FORMAT);
    assert_null(jinja);
    teg_jinja_free(NULL);
    assert_int_equal(teg_jinja_parse("{{ x }}", 7, &jinja, NULL), TEG_OK);
    struct teg_text text = {0};
    for (int i = 0; i < 2; i++) { /* a template is not changed by rendering */
        assert_int_equal(teg_jinja_render(jinja, "{\"x\":1}", 7, NOW, &text, NULL), TEG_OK);
        assert_string_equal(text.bytes, "1");
        free(text.bytes);
    }
    teg_jinja_free(jinja);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_allocation_failures),
        cmocka_unit_test(test_null_error_and_free),
    };
    (void)setenv("TZ", "UTC", 1);
    tzset();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
