/* Tokenizers with the n-th allocation failing, for every n: an error or the right answer, and nothing kept. malloc
 * itself is replaced, because jansson, PCRE2 and utf8proc allocate too. */
#include "failing_malloc.h"
#include "unit/tok_unigram_test.h"

/* Opens, encodes, decodes and streams; TEG_OK only when every answer is right. */
static enum teg_status use(struct teg_tok *tok, struct teg_error *err)
{
    int32_t ids[64];
    size_t n = 0;
    TRY(teg_tok_encode(tok, "ab \xFF<u>1 e\u0301", 13, TEG_TOKENIZE_SPECIAL, ids, 64, &n, err));
    struct teg_buf out = {0};
    const enum teg_status status = teg_tok_decode(tok, ids, n, &out, err);
    teg_buf_free(&out);
    TRY(status);
    struct teg_stream *s = NULL;
    const char *const stops[] = {"zz"};
    TRY(teg_tok_stream_new(tok, stops, 1, &s, err));
    const char *bytes;
    size_t n_bytes;
    bool stopped;
    enum teg_status pushed = TEG_OK;
    for (size_t i = 0; i < n && pushed == TEG_OK; i++)
        pushed = teg_stream_push(s, ids[i], &bytes, &n_bytes, &stopped, err);
    teg_stream_free(s);
    return pushed;
}

static enum teg_status from_gguf(const void *what, struct teg_error *err)
{
    struct teg_tok *tok = NULL;
    TRY(teg_tok_open(what, NULL, NULL, &tok, err));
    const enum teg_status status = use(tok, err);
    teg_tok_free(tok);
    return status;
}

static enum teg_status from_json(const void *what, struct teg_error *err)
{
    static const char config[] = "{\"chat_template\":\"x\",\"bos_token\":\"a\"}";
    struct teg_tok *tok = NULL;
    TRY(teg_tok_parse((struct teg_span){what, strlen(what)},
                      (struct teg_span){(const uint8_t *)config, sizeof config - 1}, "t.json", NULL, &tok, err));
    const enum teg_status status = use(tok, err);
    teg_tok_free(tok);
    return status;
}

static void all_allocations(enum teg_status (*run)(const void *what, struct teg_error *err), const void *what)
{
    struct teg_error err = {0};
    if (run(what, &err) != TEG_OK)
        fail_msg("%s", err.message);
#if CAN_FAIL
    for (long n = 0;; n++) {
        err = (struct teg_error){0};
        const long before = blocks_held;
        allocations_left = n;
        const enum teg_status status = run(what, &err);
        const bool ran_out = allocations_left == 0;
        allocations_left = -1;
        assert_int_equal(blocks_held, before);
        if (status == TEG_OK && !ran_out)
            break;
        /* jansson sometimes takes a missing token for a wrong one */
        const bool json = strstr(err.message, "expected a JSON object") != NULL;
        if (status != TEG_OK && !json && (status != TEG_ERR_MEMORY || strncmp(err.message, "out of memory: ", 15) != 0))
            fail_msg("allocation %ld: status %d, %s", n, (int)status, err.message);
    }
#endif
}

static void gguf_sources(void **state)
{
    (void)state;
    struct gguf made[] = {gguf_bpe("llama3"), gguf_spm(), gguf_t5(true)};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        struct opened o = open_gguf(&made[i]);
        all_allocations(from_gguf, o.source);
        opened_free(&o);
    }
}

static void json_sources(void **state)
{
    (void)state;
    all_allocations(from_json,
                    json_with("{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Replace\","
                              "\"pattern\":{\"Regex\":\"[0-9]+\"},\"content\":\"a\"}]}",
                              "{\"type\":\"Sequence\",\"pretokenizers\":[" BYTE_LEVEL ",{\"type\":\"Digits\"}]}",
                              "{\"id\":200,\"content\":\"<u>\",\"normalized\":true}", ""));
    all_allocations(from_json, json_with("null", "{\"type\":\"Metaspace\"}", "{\"id\":200,\"content\":\"<u>\"}", ""));
}

static enum teg_status from_model(const void *what, struct teg_error *err)
{
    static const char config[] = "{\"added_tokens_decoder\":{\"9\":{\"content\":\"1\"}},\"chat_template\":\"x\"}";
    const struct bytes *const file = what;
    const struct teg_model_files files = {
        .model = {file->at, file->n}, .config = {(const uint8_t *)config, sizeof config - 1}, .path = "t.model"};
    struct teg_tok *tok = NULL;
    TRY(teg_tok_parse_model(&files, NULL, &tok, err));
    const enum teg_status status = use(tok, err);
    teg_tok_free(tok);
    return status;
}

static void unigram_sources(void **state)
{
    (void)state;
    all_allocations(from_json, unigram_json("{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAAAA==\"}",
                                            METASPACE, "", false));
    struct bytes file = model_file(1, true, false);
    all_allocations(from_model, &file);
    bytes_free(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gguf_sources),
        cmocka_unit_test(json_sources),
        cmocka_unit_test(unigram_sources),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
