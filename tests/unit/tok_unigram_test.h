/* Unigram vocabularies for the tests: normalization rules, a tokenizer.json, a GGUF "t5" and a tokenizer.model, made
 * here. */
#ifndef TOK_UNIGRAM_TEST_H
#define TOK_UNIGRAM_TEST_H

#include "unit/tok_test.h"

/* ---- rules of replacement ---- */

/* A double array over keys with different first bytes: the root's children lie at 256 ^ byte, those of key k's n-th
 * byte in a block of their own, its value at the block's unused index 0. */
struct rules {
    uint8_t bytes[4 + 4 * 8192 + 256];
    size_t n_blocks, n_text_bytes;
};

enum { N_UNITS = 8192 };

static inline void set_unit(struct rules *r, size_t at, uint32_t unit)
{
    for (int i = 0; i < 4; i++)
        r->bytes[4 + 4 * at + (size_t)i] = (uint8_t)(unit >> (8 * i));
}

static inline void rules_begin(struct rules *r)
{
    memset(r, 0, sizeof *r);
    r->bytes[1] = 4 * N_UNITS >> 8;
    r->n_blocks = 2;
    for (size_t i = 0; i < N_UNITS; i++)
        set_unit(r, i, 0x80000000u); /* nobody's child */
    set_unit(r, 0, 256u << 10);
}

static inline void rule(struct rules *r, const char *key, const char *value)
{
    size_t at = 256u ^ (uint8_t)key[0];
    for (const char *p = key; *p; p++) {
        const uint32_t offset = (uint32_t)(at ^ (256 * r->n_blocks++));
        set_unit(r, at, offset << 10 | (p[1] ? 0u : 0x100u) | (uint8_t)*p);
        at ^= offset;
        if (p[1])
            at ^= (uint8_t)p[1];
    }
    set_unit(r, at, 0x80000000u | (uint32_t)r->n_text_bytes);
    memcpy(r->bytes + 4 + 4 * N_UNITS + r->n_text_bytes, value, strlen(value) + 1);
    r->n_text_bytes += strlen(value) + 1;
}

static inline struct teg_span rules_span(const struct rules *r)
{
    return (struct teg_span){r->bytes, 4 + 4 * N_UNITS + r->n_text_bytes};
}

static inline const struct rules *some_rules(void)
{
    static struct rules r;
    rules_begin(&r);
    rule(&r, "A", "a");
    rule(&r, "\u00e9", "b");
    rule(&r, "\t", " ");
    rule(&r, "xyz", "");
    rule(&r, "Q", "\xFF"); /* no text: no rule */
    return &r;
}

/* ---- tokenizer.json ---- */

enum { U_UNK, U_MARK, U_A, U_B, U_AB, U_MA, U_MAB, U_BYTE };

#define METASPACE "{\"type\":\"Metaspace\",\"replacement\":\"\u2581\",\"prepend_scheme\":\"always\",\"split\":true}"

static inline char *unigram_json(const char *normalizer, const char *pre, const char *more, bool with_bytes)
{
    static char text[100000];
    size_t n = (size_t)snprintf(
        text, sizeof text,
        "{\"normalizer\":%s,\"pre_tokenizer\":%s,\"added_tokens\":[{\"id\":0,\"content\":\"<unk>\",\"special\":true}],"
        "\"model\":{\"type\":\"Unigram\",%s\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"\u2581\",-2],[\"a\",-3],[\"b\",-3],"
        "[\"ab\",-4],[\"\u2581a\",-3.5],[\"\u2581ab\",-6]",
        normalizer, pre, more);
    for (unsigned b = 0; with_bytes && b < 256; b++)
        n += (size_t)snprintf(text + n, sizeof text - n, ",[\"<0x%02X>\",0]", b);
    snprintf(text + n, sizeof text - n, "]}}");
    return text;
}

/* ---- GGUF ---- */

static inline struct gguf gguf_t5(bool spaces)
{
    static const char *const tokens[] = {"<pad>", "</s>", "<unk>", "\u2581", "a", "b", "ab", "\u2581a", "<u>"};
    static const float scores[] = {0, 0, 0, -2, -3, -3, -4, -3.5F, 0};
    const struct teg_span rules = rules_span(some_rules());
    struct gguf g = {0};
    gguf_text(&g, "tokenizer.ggml.model", "t5");
    gguf_texts(&g, "tokenizer.ggml.tokens", tokens, 9);
    gguf_scores(&g, scores, 9);
    gguf_types(&g, "332111114");
    put_array(&g.pairs, "tokenizer.ggml.precompiled_charsmap", U8, rules.n_bytes);
    put(&g.pairs, rules.bytes, rules.n_bytes);
    g.n_pairs++;
    gguf_number(&g, "tokenizer.ggml.add_space_prefix", BOOL, spaces);
    gguf_number(&g, "tokenizer.ggml.remove_extra_whitespaces", BOOL, spaces);
    return g;
}

/* ---- tokenizer.model ---- */

static inline void put_varint(struct bytes *b, uint64_t value)
{
    for (; value > 127; value >>= 7)
        put_uint(b, (value & 127) | 128, 1);
    put_uint(b, value, 1);
}

static inline void put_number(struct bytes *b, unsigned field, uint64_t value)
{
    put_varint(b, field << 3);
    put_varint(b, value);
}

static inline void put_block(struct bytes *b, unsigned field, const void *bytes, size_t n_bytes)
{
    put_varint(b, field << 3 | 2);
    put_varint(b, n_bytes);
    put(b, bytes, n_bytes);
}

static inline void put_piece(struct bytes *b, const char *text, float score, unsigned type)
{
    struct bytes piece = {0};
    put_block(&piece, 1, text, strlen(text));
    put_varint(&piece, 2 << 3 | 5);
    put(&piece, &score, sizeof score);
    put_number(&piece, 3, type);
    put_block(b, 1, piece.at, piece.n);
    bytes_free(&piece);
}

enum { M_UNK, M_BOS, M_EOS, M_MARK, M_A, M_B, M_AB, M_MA, M_USER, M_N };

/* `type`: 1 unigram, 2 BPE; `plain`: spaces stay as they are */
static inline struct bytes model_file(unsigned type, bool with_rules, bool plain)
{
    struct bytes file = {0}, trainer = {0}, normalizer = {0};
    put_piece(&file, "<unk>", 0, 2);
    put_piece(&file, "<s>", 0, 3);
    put_piece(&file, "</s>", 0, 3);
    put_piece(&file, "\u2581", -2, 1);
    put_piece(&file, "a", -3, 1);
    put_piece(&file, "b", -3, 1);
    put_piece(&file, "ab", -4, 1);
    put_piece(&file, "\u2581a", -3.5F, 1);
    put_piece(&file, "<u>", 0, 4);
    put_number(&trainer, 3, type);
    put_number(&trainer, 40, 0);
    put_block(&file, 2, trainer.at, trainer.n);
    const struct teg_span rules = rules_span(some_rules());
    if (with_rules)
        put_block(&normalizer, 2, rules.bytes, rules.n_bytes);
    if (plain) {
        put_number(&normalizer, 3, 0);
        put_number(&normalizer, 4, 0);
    }
    put_block(&file, 3, normalizer.at, normalizer.n);
    bytes_free(&trainer);
    bytes_free(&normalizer);
    return file;
}

#endif
