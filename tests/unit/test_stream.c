/* Streaming: whole characters, stop strings across tokens, what is held back and what comes out at the end. */
#include "unit/tok_test.h"

struct streamed {
    char text[256];
    size_t n;
    bool stopped;
};

static void take(struct streamed *out, const char *bytes, size_t n)
{
    assert_true(out->n + n < sizeof out->text);
    memcpy(out->text + out->n, bytes, n);
    out->n += n;
    out->text[out->n] = '\0';
}

static void push(struct teg_stream *s, struct streamed *out, int32_t id)
{
    const char *bytes = NULL;
    size_t n = 99;
    assert_int_equal(teg_stream_push(s, id, &bytes, &n, &out->stopped, NULL), TEG_OK);
    assert_non_null(bytes);
    take(out, bytes, n);
}

/* Pushes the bytes of `text` one by one; '|' in `steps` separates what each push gives. */
static void expect_steps(const struct teg_tok *tok, const char *const *stops, size_t n_stops, const char *text,
                         const char *steps, bool stopped)
{
    struct teg_stream *s = NULL;
    struct streamed all = {0};
    assert_int_equal(teg_tok_stream_new(tok, stops, n_stops, &s, NULL), TEG_OK);
    for (const char *p = text; *p; p++) {
        push(s, &all, (uint8_t)*p);
        take(&all, "|", 1);
    }
    const bool was_stopped = all.stopped;
    const char *bytes;
    size_t n;
    assert_int_equal(teg_stream_finish(s, &bytes, &n, NULL), TEG_OK);
    take(&all, bytes, n);
    assert_string_equal(all.text, steps);
    assert_int_equal(was_stopped, stopped);
    teg_stream_free(s);
}

static struct opened bytes_vocabulary(void)
{
    struct gguf g = gguf_bpe("gpt-2");
    return open_gguf(&g);
}

static void whole_characters(void **state)
{
    (void)state;
    struct opened o = bytes_vocabulary();
    expect_steps(o.tok, NULL, 0, "a\xF0\x9F\x9A\x80!", "a||||\xF0\x9F\x9A\x80|!|", false);
    expect_steps(o.tok, NULL, 0, "\xE2\x82!", "||\uFFFD!|", false);
    expect_steps(o.tok, NULL, 0, "\xFF\x80", "\uFFFD|\uFFFD|", false);
    expect_steps(o.tok, NULL, 0, "x\xE2\x82", "x|||\uFFFD", false);
    expect_steps(o.tok, NULL, 0, "\xED\xA0", "|\uFFFD\uFFFD|", false);
    opened_free(&o);
}

static void stop_strings(void **state)
{
    (void)state;
    struct opened o = bytes_vocabulary();
    const char *const one[] = {"STOP"}, *const two[] = {"\n\n", "aab"}, *const wide[] = {"\u00e9\u00e8"};
    expect_steps(o.tok, one, 1, "aSTxSTOPb", "a|||STx||||||", true);
    expect_steps(o.tok, one, 1, "SST", "|S||ST", false);
    expect_steps(o.tok, two, 2, "x\ny\n\n", "x||\ny|||", true);
    expect_steps(o.tok, two, 2, "aaab", "||a||", true);
    expect_steps(o.tok, wide, 1, "\u00e9\u00e9\u00e8", "|||\u00e9|||", true);
    opened_free(&o);
}

static void a_token_may_hold_a_stop_and_more(void **state)
{
    (void)state;
    struct opened o = bytes_vocabulary();
    const char *const stops[] = {"h", "the"};
    struct teg_stream *s = NULL;
    struct streamed all = {0};
    assert_int_equal(teg_tok_stream_new(o.tok, stops, 2, &s, NULL), TEG_OK);
    push(s, &all, B_THE);               /* " the" */
    assert_string_equal(all.text, " "); /* the earliest start wins */
    assert_true(all.stopped);
    push(s, &all, 'x');
    assert_string_equal(all.text, " ");
    assert_true(all.stopped);
    teg_stream_free(s);
    opened_free(&o);
}

static void a_continuation_keeps_its_space(void **state)
{
    (void)state;
    struct gguf g = gguf_spm();
    struct opened o = open_gguf(&g);
    struct teg_stream *s = NULL;
    struct streamed all = {0};
    assert_int_equal(teg_tok_stream_new(o.tok, NULL, 0, &s, NULL), TEG_OK);
    push(s, &all, S_MAB);
    push(s, &all, S_BYTE + 0xC3);
    push(s, &all, S_BYTE + 0xA9);
    push(s, &all, S_END);
    assert_string_equal(all.text, " ab\u00e9<end_of_turn>");
    teg_stream_free(s);
    opened_free(&o);
}

static void messages(void **state)
{
    (void)state;
    struct opened o = bytes_vocabulary();
    struct teg_stream *s = NULL;
    struct teg_error err = {0};
    const char *const empty[] = {"a", ""}, *const bad[] = {"a\xFF"};
    assert_int_equal(teg_tok_stream_new(o.tok, empty, 2, &s, &err), TEG_ERR_ARGUMENT);
    assert_string_equal(err.message, "cannot stream: stop string 1: expected some text, found none; leave it out");
    assert_int_equal(teg_tok_stream_new(o.tok, bad, 1, &s, &err), TEG_ERR_ARGUMENT);
    assert_string_equal(err.message, "cannot stream: stop string 0: expected UTF-8, found byte 0xff at position 1");
    assert_null(s);
    assert_int_equal(teg_tok_stream_new(o.tok, NULL, 0, &s, &err), TEG_OK);
    const char *bytes = NULL;
    size_t n = 7;
    bool stopped = true;
    assert_int_equal(teg_stream_push(s, B_N, &bytes, &n, &stopped, &err), TEG_ERR_ARGUMENT);
    assert_string_equal(err.message, "cannot stream: expected a token id from 0 to 264, found 265");
    assert_int_equal(n, 7);
    teg_stream_free(s);
    teg_stream_free(NULL);
    opened_free(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_characters),
        cmocka_unit_test(stop_strings),
        cmocka_unit_test(a_token_may_hold_a_stop_and_more),
        cmocka_unit_test(a_continuation_keeps_its_space),
        cmocka_unit_test(messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
