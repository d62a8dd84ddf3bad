/* Tokenizers on texts of 10 MB that are one word, one run or no words at all: they must end, and come back unchanged.
 * There is no time limit here; the runner's own ends a hang. */
#include "unit/tok_test.h"

#if defined(__has_feature) /* clang */
#define SLOW (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOW 1
#else
#define SLOW 0
#endif
#if SLOW || !defined(__x86_64__) /* Arm runs under an emulator */
#define BYTES ((size_t)1 << 20)
#else
#define BYTES ((size_t)10 << 20)
#endif

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

static int32_t *ids;

/* One encoding, unlike assert_round_trip: these take seconds. */
static void comes_back(const struct teg_tok *tok)
{
    size_t n = 0;
    struct teg_buf out = {0};
    assert_int_equal(teg_tok_encode(tok, text, BYTES, TEG_TOKENIZE_SPECIAL, ids, BYTES + 8, &n, NULL), TEG_OK);
    assert_int_equal(teg_tok_decode(tok, ids, n, &out, NULL), TEG_OK);
    assert_int_equal(out.n_bytes, BYTES);
    assert_true(memcmp(out.bytes, text, BYTES) == 0);
    teg_buf_free(&out);
}

static void check(const struct teg_tok *tok)
{
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        fill(runs[i]);
        comes_back(tok);
    }
    fill_mixed();
    comes_back(tok);
}

static void byte_level(void **state)
{
    (void)state;
    struct gguf g = gguf_bpe("llama3");
    struct opened o = open_gguf(&g);
    check(o.tok);
    opened_free(&o);
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
        comes_back(o.tok);
        opened_free(&o);
    }
}

/* Every family on a text without form. */
static void mixed(void **state)
{
    (void)state;
    static const char *const pres[] = {"gpt-2", "qwen2", "gpt-4o", "deepseek-llm", "deepseek-v3", "falcon"};
    fill_mixed();
    for (size_t i = 0; i < sizeof pres / sizeof *pres; i++) {
        struct gguf g = gguf_bpe(pres[i]);
        struct opened o = open_gguf(&g);
        comes_back(o.tok);
        opened_free(&o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(byte_level),
        cmocka_unit_test(sentencepiece),
        cmocka_unit_test(spaces_before_a_digit),
        cmocka_unit_test(mixed),
    };
    text = malloc(BYTES);
    ids = malloc((BYTES + 8) * sizeof *ids);
    const int status = text && ids ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
    free(text);
    free(ids);
    return status;
}
