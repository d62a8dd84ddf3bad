/* Tokenizers on texts of 10 MB that are one word, one run or no words at all: they must end, and come back unchanged.
 * There is no time limit here; the runner's own ends a hang. */
#include "unit/tok_test.h"

#define BYTES ((size_t)10 << 20)

static char *text;

static void fill(const char *unit)
{
    const size_t n = strlen(unit);
    for (size_t i = 0; i + n <= BYTES; i += n)
        memcpy(text + i, unit, n);
    memset(text + BYTES - BYTES % n, 'x', BYTES % n);
}

/* Letters, spaces, marks, emoji, digits and punctuation by a fixed generator. */
static void fill_mixed(void)
{
    static const char *const units[] = {"a", "B",  " ",      "\n",         "\t",     "7", "\u00e9", "\u4f60",
                                        "!", "'s", "\u0301", "\U0001F680", "\u3000", "<", "\u200d", "ab"};
    uint32_t seed = 1;
    size_t n = 0;
    while (n + 4 <= BYTES) {
        seed = seed * 1664525u + 1013904223u;
        const char *const unit = units[seed >> 28];
        memcpy(text + n, unit, strlen(unit));
        n += strlen(unit);
    }
    memset(text + n, 'x', BYTES - n);
}

static const char *const runs[] = {"a", "A", " ", "\n", "7", "\U0001F680", "\u0301", "!", "\r\n", " \n", "<", "aA"};

static void check(const struct teg_tok *tok)
{
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        fill(runs[i]);
        assert_round_trip(tok, text, BYTES, TEG_TOKENIZE_SPECIAL);
    }
    fill_mixed();
    assert_round_trip(tok, text, BYTES, TEG_TOKENIZE_SPECIAL);
}

static void byte_level(void **state)
{
    (void)state;
    static const char *const pres[] = {"llama3", "deepseek-llm"};
    for (size_t i = 0; i < 2; i++) {
        struct gguf g = gguf_bpe(pres[i]);
        struct opened o = open_gguf(&g);
        check(o.tok);
        opened_free(&o);
    }
}

static void sentencepiece(void **state)
{
    (void)state;
    struct gguf g = gguf_spm();
    struct opened o = open_gguf(&g);
    check(o.tok);
    opened_free(&o);
}

/* A run of spaces that does not end the piece: a pattern may look at each space once, not at the rest of the run. */
static void spaces_before_a_digit(void **state)
{
    (void)state;
    static const char *const pres[] = {"gpt-2", "llama3", "gpt-4o", "deepseek-llm", "deepseek-v3", "falcon", "default"};
    fill(" ");
    text[BYTES - 1] = '7';
    for (size_t i = 0; i < sizeof pres / sizeof *pres; i++) {
        struct gguf g = gguf_bpe(pres[i]);
        struct opened o = open_gguf(&g);
        assert_round_trip(o.tok, text, BYTES, 0);
        opened_free(&o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(byte_level),
        cmocka_unit_test(sentencepiece),
        cmocka_unit_test(spaces_before_a_digit),
    };
    text = malloc(BYTES);
    const int status = text ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
    free(text);
    return status;
}
