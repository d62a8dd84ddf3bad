/* Tokenizers: every message, whole, once. */
#include "unit/tok_test.h"

#define READ "cannot read the tokenizer: "
#define JSON "cannot read tokenizer.json: t.json: "

static void expect(const struct opened *o, enum teg_status status, const char *message)
{
    assert_string_equal(o->err.message, message);
    assert_int_equal(o->status, status);
    assert_null(o->tok);
}

static void gguf_fails(struct gguf *g, enum teg_status status, const char *message)
{
    struct opened o = open_gguf(g);
    expect(&o, status, message);
    opened_free(&o);
}

static void json_fails(const char *text, enum teg_status status, const char *message)
{
    struct opened o = open_json(text, NULL);
    expect(&o, status, message);
    opened_free(&o);
}

static void gguf_models(void **state)
{
    (void)state;
    struct gguf g = {0};
    gguf_text(&g, "tokenizer.ggml.model", "bert");
    gguf_fails(&g, TEG_ERR_UNSUPPORTED,
               READ "tiny.gguf: tokenizer.ggml.model: expected \"llama\", \"gpt2\" or \"t5\", found \"bert\"; "
                    "give a tokenizer.json");
    g = gguf_bpe("no-such");
    gguf_fails(&g, TEG_ERR_UNSUPPORTED,
               READ "tokenizer.ggml.pre: expected a known pre-tokenizer such as llama-bpe, qwen2 or gpt-2, found "
                    "\"no-such\"; give the model's tokenizer.json instead");
    g = (struct gguf){0};
    gguf_text(&g, "tokenizer.ggml.model", "gpt2");
    gguf_fails(&g, TEG_ERR_FORMAT,
               READ "tiny.gguf: tokenizer.ggml.tokens: expected 1 to 2147483647 tokens, found 0; give the model's "
                    "tokenizer.json");
    g = (struct gguf){0};
    gguf_number(&g, "tokenizer.ggml.model", U32, 7);
    gguf_fails(&g, TEG_ERR_FORMAT,
               READ "tiny.gguf: tokenizer.ggml.model: expected string, found u32; convert the model again");
}

static void gguf_arrays(void **state)
{
    (void)state;
    static const char *const tokens[] = {"a", "b"};
    static const char *const merges[] = {"a b", "ab"};
    struct gguf g = {0};
    gguf_text(&g, "tokenizer.ggml.model", "gpt2");
    gguf_texts(&g, "tokenizer.ggml.tokens", tokens, 2);
    gguf_types(&g, "1");
    gguf_fails(&g, TEG_ERR_FORMAT,
               READ "tiny.gguf: tokenizer.ggml.token_type: expected 2 items, one per token, found 1");
    g = (struct gguf){0};
    gguf_text(&g, "tokenizer.ggml.model", "gpt2");
    gguf_texts(&g, "tokenizer.ggml.tokens", tokens, 2);
    gguf_types(&g, "17");
    gguf_fails(&g, TEG_ERR_FORMAT, READ "tiny.gguf: tokenizer.ggml.token_type item 1: expected 1 to 6, found 7");
    g = (struct gguf){0};
    gguf_text(&g, "tokenizer.ggml.model", "gpt2");
    gguf_texts(&g, "tokenizer.ggml.tokens", tokens, 2);
    gguf_texts(&g, "tokenizer.ggml.merges", merges, 2);
    gguf_fails(&g, TEG_ERR_FORMAT,
               READ "tiny.gguf: tokenizer.ggml.merges item 1: expected two texts with a space between, found \"ab\"");
    g = (struct gguf){0};
    gguf_text(&g, "tokenizer.ggml.model", "llama");
    gguf_texts(&g, "tokenizer.ggml.tokens", tokens, 2);
    gguf_fails(&g, TEG_ERR_FORMAT, READ "tiny.gguf: tokenizer.ggml.scores: expected an array of float, found none");
    g = gguf_bpe("gpt-2");
    gguf_number(&g, "tokenizer.ggml.eot_token_id", U32, B_N);
    gguf_fails(&g, TEG_ERR_FORMAT,
               READ "tiny.gguf: tokenizer.ggml.eot_token_id: expected an id under 265, found 265; convert the model "
                    "again");
}

static void json_models(void **state)
{
    (void)state;
    json_fails("{", TEG_ERR_FORMAT,
               "cannot read tokenizer.json: t.json at byte 1: expected a JSON object, found: string or '}' expected "
               "near end of file; download the file again");
    json_fails("{\"model\":{\"type\":\"WordPiece\",\"vocab\":{}}}", TEG_ERR_UNSUPPORTED,
               JSON "model.type: expected \"BPE\" or \"Unigram\" with its vocab, found \"WordPiece\"; use the model as "
                    "GGUF");
    json_fails("{}", TEG_ERR_UNSUPPORTED,
               JSON
               "model.type: expected \"BPE\" or \"Unigram\" with its vocab, found \"none\"; use the model as GGUF");
    json_fails("{\"model\":{\"vocab\":{}}}", TEG_ERR_FORMAT, JSON "model: expected a vocab with tokens, found none");
    json_fails("{\"model\":{\"vocab\":{},\"end_of_word_suffix\":\"</w>\"}}", TEG_ERR_UNSUPPORTED,
               JSON "model.end_of_word_suffix: expected none, found \"</w>\"");
    json_fails("{\"model\":{\"vocab\":{\"a\":999}}}", TEG_ERR_FORMAT,
               JSON "token \"a\": expected an id from 0 to 29, found 999");
    json_fails("{\"added_tokens\":[{\"id\":1}],\"model\":{\"vocab\":{}}}", TEG_ERR_FORMAT,
               JSON "added token 0: expected a content, found none");
    json_fails("{\"added_tokens\":[{\"content\":\"x\"}],\"model\":{\"vocab\":{}}}", TEG_ERR_FORMAT,
               JSON "added token \"x\": expected an id from 0 to 55, found -1");
    json_fails("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}}", TEG_ERR_FORMAT,
               JSON "merges item 0: expected \"left right\" or [\"left\",\"right\"], found something else");
    json_fails("{\"model\":{\"vocab\":{\"a\":0}},\"post_processor\":{\"type\":\"X\"}}", TEG_ERR_UNSUPPORTED,
               JSON "post_processor: expected a type that Tegula knows, found \"X\"; use the model as GGUF");
    json_fails("{\"model\":{\"vocab\":{\"a\":0}},\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"x\",5]}}",
               TEG_ERR_FORMAT,
               JSON "post_processor: expected at most 8 tokens with ids under 1 around a text, found id 5");
    struct opened o = {0};
    o.status = teg_tok_parse((struct teg_span){(const uint8_t *)"", (size_t)65 << 20}, (struct teg_span){0}, "t.json",
                             NULL, &o.tok, &o.err);
    expect(&o, TEG_ERR_UNSUPPORTED, JSON "expected at most 67108864 bytes, found 68157440");
}

static void step_fails(const char *normalizer, const char *pre, enum teg_status status, const char *message)
{
    json_fails(json_with(normalizer, pre, "", ""), status, message);
}

static void json_steps(void **state)
{
    (void)state;
    step_fails("{\"type\":\"Prepared\"}", "null", TEG_ERR_UNSUPPORTED,
               JSON "normalizer: expected a type that Tegula knows, found \"Prepared\"; use the model as GGUF");
    step_fails("null", "{\"type\":\"UnicodeScripts\"}", TEG_ERR_UNSUPPORTED,
               JSON
               "pre_tokenizer: expected a type that Tegula knows, found \"UnicodeScripts\"; use the model as GGUF");
    char deep[1024] = "", many[1024] = "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\"}";
    for (int i = 0; i < 9; i++)
        strcat(deep, "{\"type\":\"Sequence\",\"normalizers\":[");
    for (int i = 0; i < 9; i++)
        strcat(deep, "]}");
    step_fails(deep, "null", TEG_ERR_FORMAT, JSON "normalizer: expected at most 8 levels of Sequence, found more");
    for (int i = 0; i < 12; i++)
        strcat(many, ",{\"type\":\"Digits\"}");
    strcat(many, "]}");
    step_fails("null", many, TEG_ERR_UNSUPPORTED,
               "cannot read tokenizer.json: pre_tokenizer: expected at most 12 pre-tokenizer steps");
    snprintf(many, sizeof many, "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}");
    for (int i = 0; i < 12; i++)
        strcat(many, ",{\"type\":\"NFC\"}");
    strcat(many, "]}");
    step_fails(many, "null", TEG_ERR_UNSUPPORTED, JSON "normalizer: expected at most 12 steps, found more");
    step_fails("null", "{\"type\":\"Split\",\"behavior\":\"Isolated\"}", TEG_ERR_FORMAT,
               JSON "Split: expected a pattern with a String or a Regex, found none");
    step_fails("null", "{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":\"Sideways\"}",
               TEG_ERR_UNSUPPORTED, JSON "Split: expected a known behavior, found \"Sideways\"");
    step_fails("null", "{\"type\":\"Metaspace\",\"replacement\":\"_\"}", TEG_ERR_UNSUPPORTED,
               JSON "Metaspace: expected the replacement U+2581, found \"_\"");
}

static void regex_fails(const char *pattern, const char *message)
{
    struct teg_arena arena;
    struct teg_regex *regex = NULL;
    struct teg_error err = {0};
    teg_arena_init(&arena, NULL);
    assert_int_equal(teg_regex_new(&arena, pattern, strlen(pattern), false, "X", &regex, &err), TEG_ERR_UNSUPPORTED);
    assert_string_equal(err.message, message);
    assert_null(regex);
    teg_arena_free(&arena);
}

static void patterns(void **state)
{
    (void)state;
    regex_fails("a(", "X: pattern byte 2: expected a regular expression, found missing closing parenthesis");
    regex_fails("[a[b]]", "X: pattern byte 2: expected a plain character class, found a class inside one; use a "
                          "tokenizer whose pattern has none");
    regex_fails("[a&&b]", "X: pattern byte 2: expected a plain character class, found && inside one; use a tokenizer "
                          "whose pattern has none");
    char *const large = calloc(1, 70000);
    assert_non_null(large);
    memset(large, 'a', 69999);
    regex_fails(large, "X: expected a pattern of at most 65536 bytes, found 69999");
    free(large);
}

static void encode_fails(const struct teg_tok *tok, const char *text, size_t n_bytes, unsigned flags,
                         enum teg_status status, const char *message)
{
    struct teg_error err = {0};
    size_t n = 7;
    assert_int_equal(teg_tok_encode(tok, text, n_bytes, flags, NULL, 0, &n, &err), status);
    assert_string_equal(err.message, message);
    assert_int_equal(n, 7);
}

static void encoding(void **state)
{
    (void)state;
    struct opened o =
        open_json(json_with("null", "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a|a)+$\"}}", "", ""), NULL);
    assert_int_equal(o.status, TEG_OK);
    encode_fails(o.tok, "a", 1, 64, TEG_ERR_ARGUMENT,
                 "cannot tokenize: flags: expected a combination of TEG_TOKENIZE_\u2026, found 0x40");
    encode_fails(o.tok, "a", ((size_t)1 << 30) + 1, 0, TEG_ERR_ARGUMENT,
                 "cannot tokenize: expected a text of at most 1073741824 bytes, found 1073741825; cut it");
    encode_fails(
        o.tok, "a", 1, TEG_TOKENIZE_BOS_FORCE, TEG_ERR_ARGUMENT,
        "cannot tokenize: TEG_TOKENIZE_BOS_FORCE: expected a vocabulary with a BOS token, found none; leave the "
        "flag out");
    encode_fails(
        o.tok, T("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab"), 0, TEG_ERR_UNSUPPORTED,
        "cannot tokenize: byte 0 of a segment: expected a pre-tokenizer pattern that matches in time linear in "
        "the text, found one that needs more than 101312 steps; use another tokenizer.json");
    opened_free(&o);
    char grow[4096];
    snprintf(grow, sizeof grow,
             "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"x\"},\"content\":"
             "\"%0*d\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\"0\"},\"content\":\"%0*d\"}]}",
             1000, 0, 1000, 0);
    o = open_json(json_with(grow, BYTE_LEVEL, "", ""), NULL);
    assert_int_equal(o.status, TEG_OK);
    char many[101];
    memset(many, 'x', 100);
    encode_fails(o.tok, many, 100, 0, TEG_ERR_UNSUPPORTED,
                 "cannot tokenize: normalizer step 1: expected at most 67108864 bytes of text, found more; use another "
                 "tokenizer.json");
    struct teg_error err = {0};
    struct teg_buf out = {0};
    assert_int_equal(teg_tok_decode(o.tok, (const int32_t[]){97, 999}, 2, &out, &err), TEG_ERR_ARGUMENT);
    assert_string_equal(err.message, "cannot decode: token 1: expected an id from 0 to 131, found 999");
    teg_buf_free(&out);
    assert_false(teg_tok_piece(o.tok, -1, &out));
    opened_free(&o);
}

static void no_tokenizer_in_a_directory(void **state)
{
    (void)state;
    const struct temp_dir d = temp_dir_make();
    char message[256];
    struct teg_source *source = NULL;
    struct opened o = {0};
    temp_write_text(&d, "config.json", "{}");
    assert_int_equal(teg_source_open(d.path, false, NULL, &source, &o.err), TEG_OK);
    o.status = teg_tok_open(source, NULL, NULL, &o.tok, &o.err);
    snprintf(
        message, sizeof message,
        "cannot open the tokenizer: %s: expected a tokenizer.json or tokenizer.model, found none; give one with the "
        "option tokenizer_path",
        d.path);
    expect(&o, TEG_ERR_UNSUPPORTED, message);
    teg_source_free(source);
    temp_dir_remove(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gguf_models),
        cmocka_unit_test(gguf_arrays),
        cmocka_unit_test(json_models),
        cmocka_unit_test(json_steps),
        cmocka_unit_test(patterns),
        cmocka_unit_test(encoding),
        cmocka_unit_test(no_tokenizer_in_a_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
