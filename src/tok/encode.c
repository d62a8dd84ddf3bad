/* tok/encode.c: one call of teg_tok_encode: from bytes to ids.
 *
 * The text is cut at special tokens twice, as given and normalized, because that is how Hugging Face defines it: a
 * token that is "normalized" is looked for in the normalized text only. GGUF's SentencePiece tokenizers use the second
 * pass for tokens that contain spaces. Everything in between is a segment, and goes through the pre-tokenizer alone:
 * no word crosses a special token.
 *
 * Two passes of the caller (one for the size) cost two encodings; we prefer that to keeping a result in a tokenizer
 * that many threads share. */
#include <string.h>

#include "tok/tok_int.h"

/* The text with every maximal bad sequence as U+FFFD; in place where it is valid. */
static enum teg_status clean(struct teg_encoder *e, const char **text, size_t *n_bytes, struct teg_error *err)
{
    size_t good = 0;
    uint32_t c;
    size_t bad = 0;
    const char *const s = *text;
    for (size_t i = 0; i < *n_bytes;) {
        if ((uint8_t)s[i] < 0x80) {
            i++;
            continue;
        }
        const size_t n = teg_utf8_next(s + i, *n_bytes - i, &c, &bad);
        if (!n) {
            teg_buf_append(&e->clean, s + good, i - good);
            teg_buf_puts(&e->clean, "\xEF\xBF\xBD");
            good = i + bad;
        }
        i += n ? n : bad;
    }
    if (!good)
        return TEG_OK;
    teg_buf_append(&e->clean, s + good, *n_bytes - good);
    if (e->clean.failed)
        return teg_base_fail_memory(err, "the text", *n_bytes);
    *text = e->clean.bytes;
    *n_bytes = e->clean.n_bytes;
    return TEG_OK;
}

/* A segment between two raw special tokens. */
static enum teg_status encode_segment(struct teg_encoder *e, const char *text, size_t n_bytes, bool first,
                                      struct teg_error *err)
{
    if (!n_bytes)
        return TEG_OK;
    e->first = first;
    TRY(teg_normal_run(&e->tok->normal, e, text, n_bytes, &text, &n_bytes, err));
    size_t from = 0;
    struct teg_special_match m;
    while (teg_specials_next(&e->tok->normalized, text, n_bytes, from, e->control, &m)) {
        TRY(teg_pretok_run(e, text + from, m.start - from, e->first && from == 0, err));
        teg_encoder_emit(e, m.id);
        from = m.end;
    }
    return teg_pretok_run(e, text + from, n_bytes - from, e->first && from == 0, err);
}

static enum teg_status encode_text(struct teg_encoder *e, const char *text, size_t n_bytes, struct teg_error *err)
{
    TRY(clean(e, &text, &n_bytes, err));
    size_t from = 0;
    struct teg_special_match m;
    while (teg_specials_next(&e->tok->raw, text, n_bytes, from, e->control, &m)) {
        TRY(encode_segment(e, text + from, m.start - from, from == 0, err));
        teg_encoder_emit(e, m.id);
        from = m.end;
    }
    return encode_segment(e, text + from, n_bytes - from, from == 0, err);
}

/* A chat template writes BOS itself; a second one would make the model worse. */
static bool begins_with_bos(const struct teg_encoder *e, const char *text, size_t n_bytes)
{
    const struct teg_string bos = teg_tok_text(e->tok, e->tok->bos);
    return e->control && bos.n_bytes && n_bytes >= bos.n_bytes && memcmp(text, bos.bytes, bos.n_bytes) == 0;
}

static enum teg_status encode_all(struct teg_encoder *e, const char *text, size_t n_bytes, unsigned flags,
                                  struct teg_error *err)
{
    const struct teg_tok *const tok = e->tok;
    const bool own_rules = flags & TEG_TOKENIZE_BOS;
    const bool has_bos = begins_with_bos(e, text, n_bytes);
    bool adds_bos = false;
    for (uint32_t i = 0; own_rules && i < tok->n_before; i++)
        adds_bos = adds_bos || tok->before[i] == tok->bos;
    if (flags & TEG_TOKENIZE_BOS_FORCE && !adds_bos && !has_bos) {
        if (tok->bos < 0)
            FAIL(err, TEG_ERR_ARGUMENT,
                 "cannot tokenize: TEG_TOKENIZE_BOS_FORCE: expected a vocabulary with a BOS token, found none; leave "
                 "the flag out");
        teg_encoder_emit(e, tok->bos);
    }
    for (uint32_t i = 0; own_rules && i < tok->n_before; i++)
        if (!has_bos || tok->before[i] != tok->bos)
            teg_encoder_emit(e, tok->before[i]);
    TRY(encode_text(e, text, n_bytes, err));
    for (uint32_t i = 0; own_rules && i < tok->n_after; i++)
        teg_encoder_emit(e, tok->after[i]);
    return TEG_OK;
}

static void encoder_free(struct teg_encoder *e)
{
    teg_merge_scratch_free(e);
    teg_lattice_scratch_free(e);
    teg_regex_scratch_free(e);
    teg_buf_free(&e->clean);
    teg_buf_free(&e->normal);
    teg_buf_free(&e->other);
    for (size_t i = 0; i < TEG_PRETOK_MAX_STEPS; i++)
        teg_buf_free(&e->marked[i]);
    teg_buf_free(&e->lettered);
    teg_buf_free(&e->word);
}

enum teg_status teg_tok_encode(const struct teg_tok *tok, const char *text, size_t n_bytes, unsigned flags,
                               int32_t *ids, size_t capacity, size_t *n_ids, struct teg_error *err)
{
    if (flags & ~(unsigned)(TEG_TOKENIZE_SPECIAL | TEG_TOKENIZE_BOS | TEG_TOKENIZE_BOS_FORCE))
        FAIL(err, TEG_ERR_ARGUMENT, "cannot tokenize: flags: expected a combination of TEG_TOKENIZE_…, found 0x%x",
             flags);
    if (n_bytes > TEG_TEXT_LIMIT_BYTES)
        FAIL(err, TEG_ERR_ARGUMENT, "cannot tokenize: expected a text of at most %zu bytes, found %zu; cut it",
             TEG_TEXT_LIMIT_BYTES, n_bytes);
    struct teg_encoder e = {.tok = tok,
                            .allocator = tok->arena.allocator,
                            .ids = ids,
                            .capacity = ids ? capacity : 0,
                            .control = flags & TEG_TOKENIZE_SPECIAL};
    const enum teg_status status = encode_all(&e, text ? text : "", text ? n_bytes : 0, flags, err);
    encoder_free(&e);
    if (status == TEG_OK)
        *n_ids = e.n_ids;
    return status;
}
