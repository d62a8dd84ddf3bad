/* Fuzz target: any bytes as text for two tiny vocabularies, byte-level and SentencePiece, and any bytes that begin with
 * '{' as a tokenizer.json, with a line feed as a tokenizer.model. What must hold: encoding succeeds whatever the text;
 * decoding gives valid text back unchanged (SentencePiece: unless it has U+2581, which is a space there); a stream
 * gives the same text. The first byte of a text chooses vocabulary and flags. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tok/tok_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void must(bool fact)
{
    if (!fact)
        abort();
}

static struct teg_tok *parse(const char *json)
{
    struct teg_tok *tok = NULL;
    struct teg_error err = {0};
    if (teg_tok_parse((struct teg_span){(const uint8_t *)json, strlen(json)}, (struct teg_span){0}, "tiny", NULL, &tok,
                      &err) != TEG_OK) {
        (void)fprintf(stderr, "%s\n", err.message);
        abort();
    }
    return tok;
}

static void put_letters(struct teg_buf *out, unsigned first_id)
{
    for (unsigned b = 0; b < 256; b++) {
        char letter[4];
        const size_t n = teg_utf8_put(teg_byte_letter((uint8_t)b), letter);
        teg_buf_puts(out, b ? "," : "");
        teg_buf_json_string(out, letter, n);
        teg_buf_printf(out, ":%u", first_id + b);
    }
}

static struct teg_tok *byte_level(void)
{
    struct teg_buf json = {0};
    teg_buf_puts(&json, "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"added_tokens\":["
                        "{\"id\":300,\"content\":\"<s>\",\"special\":true},{\"id\":301,\"content\":\"<u>\"}],\"model\":"
                        "{\"merges\":[\"a b\",\"ab ab\",\"\u0120 a\",\"\u0120 \u0120\",\"a a\",\"0 0\"],\"vocab\":{");
    put_letters(&json, 0);
    teg_buf_puts(&json, ",\"ab\":256,\"abab\":257,\"\u0120a\":258,\"\u0120\u0120\":259,\"aa\":260,\"00\":261}}}");
    struct teg_tok *const tok = parse(json.bytes);
    teg_buf_free(&json);
    return tok;
}

static struct teg_tok *sentencepiece(void)
{
    struct teg_buf json = {0};
    teg_buf_puts(
        &json, "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"\u2581\"},"
               "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\u2581\"}]},\"added_tokens\":["
               "{\"id\":300,\"content\":\"<s>\",\"special\":true},{\"id\":301,\"content\":\"<u>\"}],\"model\":"
               "{\"byte_fallback\":true,\"merges\":[\"\u2581 a\",\"\u2581 \u2581\",\"a b\",\"\u2581a b\"],\"vocab\":{");
    for (unsigned b = 0; b < 256; b++)
        teg_buf_printf(&json, "\"<0x%02X>\":%u,", b, b);
    teg_buf_puts(&json, "\"\u2581\":256,\"a\":257,\"b\":258,\"\u2581a\":259,\"\u2581\u2581\":260,\"ab\":261,"
                        "\"\u2581ab\":262,\"\u00e9\":263}}}");
    struct teg_tok *const tok = parse(json.bytes);
    teg_buf_free(&json);
    return tok;
}

static void check_stream(const struct teg_tok *tok, const int32_t *ids, size_t n_ids, const char *text, size_t n_bytes)
{
    struct teg_stream *stream = NULL;
    struct teg_buf all = {0};
    static const char *const stops[] = {"\x01never\x02", "\x01\x01never"};
    must(teg_tok_stream_new(tok, stops, 2, &stream, NULL) == TEG_OK);
    const char *bytes;
    size_t n;
    bool stopped = false;
    for (size_t i = 0; i < n_ids && !stopped; i++) {
        must(teg_stream_push(stream, ids[i], &bytes, &n, &stopped, NULL) == TEG_OK);
        must(teg_utf8_is_valid(bytes, n));
        teg_buf_append(&all, bytes, n);
    }
    must(teg_stream_finish(stream, &bytes, &n, NULL) == TEG_OK);
    teg_buf_append(&all, bytes, n);
    must(stopped || (all.n_bytes == n_bytes && memcmp(all.bytes, text, n_bytes) == 0));
    teg_buf_free(&all);
    teg_stream_free(stream);
}

static void check_text(const struct teg_tok *tok, unsigned flags, const char *text, size_t n_bytes)
{
    size_t n = 0, again = 0;
    struct teg_buf out = {0};
    must(teg_tok_encode(tok, text, n_bytes, flags, NULL, 0, &n, NULL) == TEG_OK);
    int32_t *const ids = malloc((n + 1) * sizeof *ids);
    must(ids != NULL);
    must(teg_tok_encode(tok, text, n_bytes, flags, ids, n, &again, NULL) == TEG_OK && again == n);
    must(teg_tok_decode(tok, ids, n, &out, NULL) == TEG_OK);
    if (teg_utf8_is_valid(text, n_bytes) &&
        (tok->kind == TEG_TOK_BYTES || !n_bytes || !memmem(text, n_bytes, TEG_SPACE_MARK, TEG_SPACE_MARK_BYTES))) {
        must(out.n_bytes == n_bytes && (!n_bytes || memcmp(out.bytes, text, n_bytes) == 0));
        if (tok->kind == TEG_TOK_BYTES && n_bytes)
            check_stream(tok, ids, n, text, n_bytes);
    }
    teg_buf_free(&out);
    free(ids);
}

static void check_file(const uint8_t *data, size_t n_bytes)
{
    static const char text[] = "a b  <s>12 \u00e9\u2581\n\tA\u0301\uFB01";
    struct teg_tok *tok = NULL;
    struct teg_error err = {0};
    size_t n = 0;
    const struct teg_model_files files = {.model = {data, n_bytes}, .path = "fuzz"};
    if ((data[0] == '\n' ? teg_tok_parse_model(&files, NULL, &tok, &err)
                         : teg_tok_parse(files.model, (struct teg_span){0}, "fuzz", NULL, &tok, &err)) != TEG_OK)
        return;
    int32_t ids[64];
    if (teg_tok_encode(tok, text, sizeof text - 1, TEG_TOKENIZE_SPECIAL | TEG_TOKENIZE_BOS, ids, 64, &n, &err) ==
        TEG_OK) {
        struct teg_buf out = {0};
        must(teg_tok_decode(tok, ids, n < 64 ? n : 64, &out, &err) == TEG_OK);
        teg_buf_free(&out);
    }
    teg_tok_free(tok);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static struct teg_tok *vocabularies[2];
    if (!vocabularies[0]) {
        vocabularies[0] = byte_level();
        vocabularies[1] = sentencepiece();
    }
    if (!n_bytes)
        return 0;
    if (data[0] == '{' || data[0] == '\n')
        check_file(data, n_bytes);
    else
        check_text(vocabularies[data[0] & 1], data[0] & 2 ? TEG_TOKENIZE_SPECIAL : 0, (const char *)data + 1,
                   n_bytes - 1);
    return 0;
}
