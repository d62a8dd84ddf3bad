/* What the tests of src/tok share: tiny vocabularies as GGUF and as tokenizer.json, made here, and checks of ids. */
#ifndef TOK_TEST_H
#define TOK_TEST_H

#include "tok/tok_int.h"
#include "unit/gguf_test.h"

/* ---- a GGUF of metadata only ---- */

struct gguf {
    struct bytes pairs;
    uint64_t n_pairs;
};

static inline void gguf_text(struct gguf *g, const char *key, const char *value)
{
    put_key(&g->pairs, key, STRING);
    put_string(&g->pairs, value);
    g->n_pairs++;
}

static inline void gguf_number(struct gguf *g, const char *key, uint32_t type, uint64_t value)
{
    put_pair(&g->pairs, key, type, value, type == BOOL ? 1 : 4);
    g->n_pairs++;
}

static inline void gguf_texts(struct gguf *g, const char *key, const char *const *values, size_t n)
{
    put_array(&g->pairs, key, STRING, n);
    for (size_t i = 0; i < n; i++)
        put_string(&g->pairs, values[i]);
    g->n_pairs++;
}

/* "312…": a digit each */
static inline void gguf_types(struct gguf *g, const char *digits)
{
    put_array(&g->pairs, "tokenizer.ggml.token_type", I32, strlen(digits));
    for (const char *p = digits; *p; p++)
        put_uint(&g->pairs, (uint64_t)(*p - '0'), 4);
    g->n_pairs++;
}

static inline void gguf_scores(struct gguf *g, const float *scores, size_t n)
{
    put_array(&g->pairs, "tokenizer.ggml.scores", F32, n);
    put(&g->pairs, scores, n * sizeof *scores);
    g->n_pairs++;
}

static inline struct bytes gguf_done(struct gguf *g)
{
    struct bytes file = {0};
    put_header(&file, 3, 0, g->n_pairs);
    put(&file, g->pairs.at, g->pairs.n);
    bytes_free(&g->pairs);
    return file;
}

struct opened {
    struct bytes file;
    struct teg_source *source;
    struct teg_tok *tok;
    enum teg_status status;
    struct teg_error err;
};

static inline struct opened open_bytes(struct bytes file)
{
    struct opened o = {.file = file};
    assert_int_equal(teg_gguf_parse(file.at, file.n, "tiny.gguf", false, NULL, &o.source, &o.err), TEG_OK);
    o.status = teg_tok_open(o.source, NULL, NULL, &o.tok, &o.err);
    return o;
}

static inline struct opened open_gguf(struct gguf *g)
{
    return open_bytes(gguf_done(g));
}

static inline struct opened open_json(const char *json, const char *config)
{
    struct opened o = {0};
    o.status = teg_tok_parse((struct teg_span){(const uint8_t *)json, strlen(json)},
                             (struct teg_span){(const uint8_t *)config, config ? strlen(config) : 0}, "t.json", NULL,
                             &o.tok, &o.err);
    return o;
}

static inline void opened_free(struct opened *o)
{
    teg_tok_free(o->tok);
    teg_source_free(o->source);
    bytes_free(&o->file);
}

/* ---- the two vocabularies ---- */

/* Byte level: ids 0 … 255 are the bytes, then these. */
enum { B_GT = 256, B_HE, B_THE, B_AA, B_AAAA, B_AB, B_BOS, B_EOS, B_USER, B_N };

static inline const char *byte_token(unsigned b)
{
    static char texts[256][5];
    texts[b][teg_utf8_put(teg_byte_letter((uint8_t)b), texts[b])] = '\0';
    return texts[b];
}

static inline void gguf_bytes_tokens(struct gguf *g)
{
    static const char *const more[] = {"\u0120t", "he", "\u0120the", "aa", "aaaa", "ab", "<s>", "</s>", "<u>"};
    static const char *const merges[] = {"\u0120 t", "h e", "\u0120t he", "a a", "aa aa", "a b"};
    const char *tokens[B_N];
    char types[B_N + 1] = "";
    for (unsigned i = 0; i < B_N; i++) {
        tokens[i] = i < 256 ? byte_token(i) : more[i - 256];
        types[i] = i >= B_USER ? '4' : i >= B_BOS ? '3' : '1';
    }
    gguf_texts(g, "tokenizer.ggml.tokens", tokens, B_N);
    gguf_types(g, types);
    gguf_texts(g, "tokenizer.ggml.merges", merges, 6);
    gguf_number(g, "tokenizer.ggml.bos_token_id", U32, B_BOS);
    gguf_number(g, "tokenizer.ggml.eos_token_id", U32, B_EOS);
}

static inline struct gguf gguf_bpe(const char *pre)
{
    struct gguf g = {0};
    gguf_text(&g, "tokenizer.ggml.model", "gpt2");
    if (pre)
        gguf_text(&g, "tokenizer.ggml.pre", pre);
    gguf_bytes_tokens(&g);
    return g;
}

/* SentencePiece: <unk>, <s>, </s>, the bytes, then these; "b" and "y" are no tokens, "ab" is. */
enum { S_BYTE = 3, S_MARK = 259, S_A, S_AB, S_MA, S_MAB, S_H, S_E, S_HE, S_TWO, S_USER, S_END, S_N };

static inline struct gguf gguf_spm(void)
{
    static const char *const more[] = {"\u2581", "a",  "ab",           "\u2581a", "\u2581ab",     "h",
                                       "e",      "he", "\u2581\u2581", "<u>",     "<end_of_turn>"};
    static const float scores[] = {-1, -2, -3, -4, -2.5F, -6, -7, -5, 0, 0, 0};
    static char bytes[256][8];
    struct gguf g = {0};
    const char *tokens[S_N] = {"<unk>", "<s>", "</s>"};
    float all[S_N] = {0};
    char types[S_N + 1] = "233";
    for (unsigned i = S_BYTE; i < S_N; i++) {
        if (i < S_MARK)
            snprintf(bytes[i - S_BYTE], sizeof bytes[0], "<0x%02X>", i - S_BYTE);
        tokens[i] = i < S_MARK ? bytes[i - S_BYTE] : more[i - S_MARK];
        all[i] = i < S_MARK ? 0 : scores[i - S_MARK];
        types[i] = i < S_MARK ? '6' : i >= S_TWO ? '4' : '1';
    }
    gguf_text(&g, "tokenizer.ggml.model", "llama");
    gguf_texts(&g, "tokenizer.ggml.tokens", tokens, S_N);
    gguf_scores(&g, all, S_N);
    gguf_types(&g, types);
    return g;
}

/* tokenizer.json over the bytes a, b, c, space … of printable ASCII, "ab" and "Ġa"; the parts that vary are given. */
static inline char *json_with(const char *normalizer, const char *pre, const char *added, const char *model)
{
    static char text[16384];
    size_t n = (size_t)snprintf(text, sizeof text,
                                "{\"normalizer\":%s,\"pre_tokenizer\":%s,\"added_tokens\":[%s],\"model\":{%s"
                                "\"type\":\"BPE\",\"merges\":[\"a b\",[\"\u0120\",\"a\"]],\"vocab\":{",
                                normalizer, pre, added, model);
    for (unsigned c = 33; c < 127; c++)
        n += (size_t)snprintf(text + n, sizeof text - n, "\"%s%c\":%u,", c == '"' || c == '\\' ? "\\" : "", (int)c, c);
    snprintf(text + n, sizeof text - n, "\"\u0120\":32,\"ab\":128,\"\u0120a\":129,\"\u2581\":130,\"\u010a\":131}}}");
    return text;
}

#define BYTE_LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}"

/* ---- checks ---- */

#define IDS(...) ((const int32_t[]){__VA_ARGS__}), sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)

static inline void assert_ids(const struct teg_tok *tok, const char *text, size_t n_bytes, unsigned flags,
                              const int32_t *want, size_t n_want)
{
    int32_t ids[256];
    size_t n = 0;
    struct teg_error err = {0};
    assert_int_equal(teg_tok_encode(tok, text, n_bytes, flags, ids, 256, &n, &err), TEG_OK);
    if (n != n_want || (n && memcmp(ids, want, n * sizeof *ids) != 0)) {
        print_message("\"%s\" gave", text);
        for (size_t i = 0; i < n && i < 256; i++)
            print_message(" %d", ids[i]);
        print_message(", expected");
        for (size_t i = 0; i < n_want; i++)
            print_message(" %d", want[i]);
        print_message("\n");
        fail();
    }
}

static inline void assert_decodes(const struct teg_tok *tok, const int32_t *ids, size_t n, const char *want)
{
    struct teg_buf out = {0};
    assert_int_equal(teg_tok_decode(tok, ids, n, &out, NULL), TEG_OK);
    assert_int_equal(out.n_bytes, strlen(want));
    assert_memory_equal(out.n_bytes ? out.bytes : "", want, out.n_bytes);
    teg_buf_free(&out);
}

static inline void assert_round_trip(const struct teg_tok *tok, const char *text, size_t n_bytes, unsigned flags)
{
    size_t n = 0, n_again = 0;
    struct teg_buf out = {0};
    assert_int_equal(teg_tok_encode(tok, text, n_bytes, flags, NULL, 0, &n, NULL), TEG_OK);
    int32_t *const ids = malloc((n + 1) * sizeof *ids);
    assert_non_null(ids);
    assert_int_equal(teg_tok_encode(tok, text, n_bytes, flags, ids, n, &n_again, NULL), TEG_OK);
    assert_int_equal(n, n_again);
    assert_int_equal(teg_tok_decode(tok, ids, n, &out, NULL), TEG_OK);
    assert_int_equal(out.n_bytes, n_bytes);
    assert_true(!n_bytes || memcmp(out.bytes, text, n_bytes) == 0);
    teg_buf_free(&out);
    free(ids);
}

#define T(text) text, sizeof(text) - 1

#endif
