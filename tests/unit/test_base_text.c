/* Errors, cursor, growing text, UTF-8. The UTF-8 walk is compared with a second decoder written from the Unicode
 * table, over every 1-, 2- and 3-byte input and the interesting 4-byte ones. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cursor.h"
#include "base/error.h"
#include "base/text.h"

static enum teg_status fails(struct teg_error *err)
{
    FAIL_AT(err, TEG_ERR_FORMAT, 77, "cannot read: %s: expected %d, found %d; do this", "m.gguf", 1, 2);
}

static enum teg_status forwards(struct teg_error *err, bool *went_on)
{
    TRY(fails(err));
    *went_on = true;
    return TEG_OK;
}

static void test_fail_and_try(void **state)
{
    (void)state;
    struct teg_error err = {0};
    bool went_on = false;
    assert_int_equal(forwards(&err, &went_on), TEG_ERR_FORMAT);
    assert_false(went_on);
    assert_int_equal(err.status, TEG_ERR_FORMAT);
    assert_int_equal(err.offset, 77);
    assert_string_equal(err.message, "cannot read: m.gguf: expected 1, found 2; do this");
    assert_int_equal(forwards(NULL, &went_on), TEG_ERR_FORMAT); /* err may be NULL */
}

static void test_error_is_cut_and_printable(void **state)
{
    (void)state;
    struct teg_error err;
    char text[2000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    teg_base_fail(&err, TEG_ERR_IO, 0, "%s", text);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
    teg_base_fail(&err, TEG_ERR_IO, 0, "a\x1b[31m\n\x7f\xC3\xA4");
    assert_string_equal(err.message, "a?[31m??\xC3\xA4");
}

static void test_memory_error(void **state)
{
    (void)state;
    struct teg_error err;
    assert_int_equal(teg_base_fail_memory(&err, "plan", 123), TEG_ERR_MEMORY);
    assert_string_equal(err.message,
                        "out of memory: plan: expected 123 bytes, found none free; close other programs or "
                        "use a smaller context, chunk or model");
}

static void test_cursor(void **state)
{
    (void)state;
    static const uint8_t bytes[] = {1, 2, 3, 4, 0xFF, 0xFE, 0xFD, 0xFC, 0xFB, 0xFA, 0xF9, 0xF8, 9};
    struct teg_cursor c = teg_cursor_of(bytes, sizeof bytes);
    uint32_t u32 = 0;
    uint64_t u64 = 0;
    struct teg_span span = {0};
    assert_true(teg_cursor_u32(&c, &u32) && u32 == 0x04030201u);
    assert_true(teg_cursor_u64(&c, &u64) && u64 == 0xF8F9FAFBFCFDFEFFull);
    assert_int_equal(teg_cursor_left(&c), 1);
    /* Past the end: false, nothing moved, the result untouched, whatever the length asked for. */
    assert_false(teg_cursor_u32(&c, &u32));
    assert_false(teg_cursor_u64(&c, &u64));
    assert_false(teg_cursor_take(&c, 2, &span));
    assert_false(teg_cursor_take(&c, UINT64_MAX, &span));
    assert_int_equal(c.position_bytes, 12);
    assert_int_equal(u32, 0x04030201u);
    assert_null(span.bytes);
    assert_true(teg_cursor_take(&c, 1, &span) && span.bytes == bytes + 12 && span.n_bytes == 1);
    assert_true(teg_cursor_take(&c, 0, &span) && span.n_bytes == 0);
    assert_false(teg_cursor_take(&c, 1, &span));
    struct teg_cursor empty = teg_cursor_of(NULL, 0);
    assert_false(teg_cursor_u32(&empty, &u32));
    assert_true(teg_cursor_take(&empty, 0, &span));
}

static char *taken(struct teg_buf *buf, size_t *n_bytes)
{
    struct teg_text text = {0};
    assert_int_equal(teg_buf_take(buf, &text, "test", NULL), TEG_OK);
    assert_null(buf->bytes);
    assert_int_equal(text.bytes[text.n_bytes], '\0');
    *n_bytes = text.n_bytes;
    return text.bytes;
}

static void test_buf_grows(void **state)
{
    (void)state;
    struct teg_buf buf = {0};
    size_t n = 0;
    char *text = taken(&buf, &n); /* nothing appended: an empty text, not NULL */
    assert_string_equal(text, "");
    free(text);
    for (int i = 0; i < 1000; i++) {
        teg_buf_puts(&buf, "ab");
        teg_buf_append(&buf, "\0c", 2);
        teg_buf_printf(&buf, "%03d", i);
    }
    text = taken(&buf, &n);
    assert_int_equal(n, 7000);
    for (size_t i = 0; i < 1000; i++) {
        char want[8] = {'a', 'b', 0, 'c', (char)('0' + i / 100), (char)('0' + i / 10 % 10), (char)('0' + i % 10)};
        assert_memory_equal(text + 7 * i, want, 7);
    }
    free(text);
}

static void test_buf_failure_is_kept(void **state)
{
    (void)state;
    struct teg_buf buf = {0};
    struct teg_text text = {0};
    struct teg_error err = {0};
    teg_buf_puts(&buf, "abc");
    teg_buf_append(&buf, "", SIZE_MAX); /* cannot be had */
    teg_buf_puts(&buf, "def");
    teg_buf_printf(&buf, "%d", 1);
    assert_true(buf.failed);
    assert_int_equal(buf.n_bytes, 3);
    assert_int_equal(teg_buf_take(&buf, &text, "rendered text", &err), TEG_ERR_MEMORY);
    assert_null(text.bytes);
    assert_null(buf.bytes);
    assert_non_null(strstr(err.message, "rendered text"));
    teg_buf_free(&buf); /* legal twice */
    teg_buf_free(&buf);
}

static void test_json_string(void **state)
{
    (void)state;
    static const struct {
        const char *in;
        size_t n;
        const char *out;
    } rows[] = {
        {"", 0, "\"\""},
        {"a\"b\\c", 5, "\"a\\\"b\\\\c\""},
        {"\n\t\x01\x7f\0", 5, "\"\\n\\u0009\\u0001\\u007f\\u0000\""},
        {"\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80", 9, "\"\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80\""},
        {"a\xFFz", 3, "\"a\xEF\xBF\xBDz\""},
        {"\xE2\x82", 2, "\"\xEF\xBF\xBD\""},                             /* one maximal sequence */
        {"\xED\xA0\x80", 3, "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""}, /* a surrogate: three */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct teg_buf buf = {0};
        size_t n = 0;
        teg_buf_json_string(&buf, rows[i].in, rows[i].n);
        char *const text = taken(&buf, &n);
        assert_string_equal(text, rows[i].out);
        free(text);
    }
}

/* Unicode table 3-7, row by row. */
static const struct {
    uint8_t n, low[4], high[4];
} utf8_rows[] = {
    {1, {0x00}, {0x7F}},
    {2, {0xC2, 0x80}, {0xDF, 0xBF}},
    {3, {0xE0, 0xA0, 0x80}, {0xE0, 0xBF, 0xBF}},
    {3, {0xE1, 0x80, 0x80}, {0xEC, 0xBF, 0xBF}},
    {3, {0xED, 0x80, 0x80}, {0xED, 0x9F, 0xBF}},
    {3, {0xEE, 0x80, 0x80}, {0xEF, 0xBF, 0xBF}},
    {4, {0xF0, 0x90, 0x80, 0x80}, {0xF0, 0xBF, 0xBF, 0xBF}},
    {4, {0xF1, 0x80, 0x80, 0x80}, {0xF3, 0xBF, 0xBF, 0xBF}},
    {4, {0xF4, 0x80, 0x80, 0x80}, {0xF4, 0x8F, 0xBF, 0xBF}},
};

/* How many leading bytes fit one row; *whole when they are all of a character. */
static size_t table_prefix(const uint8_t *s, size_t n, bool *whole)
{
    size_t best = 0;
    *whole = false;
    for (size_t r = 0; r < sizeof utf8_rows / sizeof *utf8_rows; r++) {
        size_t k = 0;
        while (k < n && k < utf8_rows[r].n && s[k] >= utf8_rows[r].low[k] && s[k] <= utf8_rows[r].high[k])
            k++;
        if (k == utf8_rows[r].n)
            *whole = true;
        if (k > best)
            best = k;
    }
    return best;
}

static void check_utf8(const uint8_t *s, size_t n)
{
    bool whole;
    uint32_t c = 0;
    size_t bad = 0;
    const size_t prefix = table_prefix(s, n, &whole);
    const size_t got = teg_utf8_next((const char *)s, n, &c, &bad);
    if (got != (whole ? prefix : 0) || (!whole && bad != (prefix ? prefix : 1)) || (!whole && c != 0xFFFD))
        fail_msg("bytes %02x %02x %02x %02x, n %zu: length %zu, bad %zu", s[0], s[1], s[2], s[3], n, got, bad);
}

static void test_utf8_against_the_table(void **state)
{
    (void)state;
    static const uint8_t tails[] = {0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xFF};
    for (unsigned a = 0; a < 256; a++)
        for (unsigned b = 0; b < 256; b++)
            for (size_t i = 0; i < sizeof tails; i++)
                for (size_t j = 0; j < sizeof tails; j++)
                    for (size_t n = 1; n <= 4; n++)
                        check_utf8((const uint8_t[4]){(uint8_t)a, (uint8_t)b, tails[i], tails[j]}, n);
}

static void test_utf8_round_trip(void **state)
{
    (void)state;
    for (uint32_t c = 0; c <= 0x110000; c++) {
        char out[4] = {0};
        uint32_t back = 0;
        size_t bad = 0;
        const size_t n = teg_utf8_put(c, out);
        const bool valid = c <= 0x10FFFF && (c < 0xD800 || c > 0xDFFF);
        if (teg_utf8_next(out, n, &back, &bad) != n || back != (valid ? c : 0xFFFD))
            fail_msg("U+%04X came back as U+%04X", (unsigned)c, (unsigned)back);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fail_and_try),    cmocka_unit_test(test_error_is_cut_and_printable),
        cmocka_unit_test(test_memory_error),    cmocka_unit_test(test_cursor),
        cmocka_unit_test(test_buf_grows),       cmocka_unit_test(test_buf_failure_is_kept),
        cmocka_unit_test(test_json_string),     cmocka_unit_test(test_utf8_against_the_table),
        cmocka_unit_test(test_utf8_round_trip),
    };
    return cmocka_run_group_tests_name("base text", tests, NULL, NULL);
}
