/* tok/tok_gguf.c: a tokenizer from GGUF's tokenizer.ggml.* keys.
 *
 * Token texts stay where the source has them: in the mapped file. A SentencePiece vocabulary ("llama") becomes the
 * same shape that its tokenizer.json would have: spaces replaced by U+2581, one put in front unless the file says
 * otherwise, specials in two sets. A byte-level one ("gpt2") gets its pre-tokenizer by name. */
#include <string.h>

#include "tok/tok_int.h"

#define WHERE "cannot read the tokenizer"

static bool is_text(struct teg_string s, const char *text)
{
    return s.n_bytes == strlen(text) && memcmp(s.bytes, text, s.n_bytes) == 0;
}

/* The entry, which must have this type; *meta NULL where the file has none. */
static enum teg_status get(const struct teg_source *source, const char *key, enum teg_meta_type type,
                           const char *type_name, const struct teg_meta **meta, struct teg_error *err)
{
    const struct teg_meta *const m = teg_source_meta(source, key);
    if (m && m->type != type && !(m->n == 0 && type >= TEG_META_ARRAY_INT))
        FAIL(err, TEG_ERR_FORMAT, WHERE ": %s: %s: expected %s, found %s; convert the model again", source->path, key,
             type_name, m->type_name);
    *meta = m && (m->type == type) ? m : NULL;
    return TEG_OK;
}

static enum teg_status get_bool(const struct teg_source *source, const char *key, bool *value, struct teg_error *err)
{
    const struct teg_meta *m;
    TRY(get(source, key, TEG_META_BOOL, "bool", &m, err));
    if (m)
        *value = m->boolean;
    return TEG_OK;
}

static enum teg_status get_string(const struct teg_source *source, const char *key, struct teg_string *value,
                                  struct teg_error *err)
{
    const struct teg_meta *m;
    TRY(get(source, key, TEG_META_STRING, "string", &m, err));
    if (m)
        *value = m->string;
    return TEG_OK;
}

static enum teg_status get_id(const struct teg_tok *tok, const struct teg_source *source, const char *key, int32_t *id,
                              struct teg_error *err)
{
    const struct teg_meta *m;
    TRY(get(source, key, TEG_META_INT, "an integer", &m, err));
    if (!m || m->integer == -1 || m->integer == UINT32_MAX)
        return TEG_OK;
    if (m->integer < 0 || (uint64_t)m->integer >= tok->vocab.n)
        FAIL(err, TEG_ERR_FORMAT, WHERE ": %s: %s: expected an id under %zu, found %lld; convert the model again",
             source->path, key, tok->vocab.n, (long long)m->integer);
    *id = (int32_t)m->integer;
    return TEG_OK;
}

static enum teg_status same_length(const struct teg_tok *tok, const struct teg_source *source, const struct teg_meta *m,
                                   struct teg_error *err)
{
    if (m && m->n != tok->vocab.n)
        FAIL(err, TEG_ERR_FORMAT, WHERE ": %s: %s: expected %zu items, one per token, found %zu", source->path, m->key,
             tok->vocab.n, m->n);
    return TEG_OK;
}

static enum teg_status read_tokens(struct teg_tok *tok, const struct teg_source *source, struct teg_error *err)
{
    const struct teg_meta *m;
    TRY(get(source, "tokenizer.ggml.tokens", TEG_META_ARRAY_STRING, "array of string", &m, err));
    if (!m || !m->n || m->n > INT32_MAX)
        FAIL(err, TEG_ERR_FORMAT,
             WHERE ": %s: tokenizer.ggml.tokens: expected 1 to %d tokens, found %zu; give the model's tokenizer.json",
             source->path, INT32_MAX, m ? m->n : 0);
    tok->vocab.texts = m->strings;
    tok->vocab.n = m->n;
    tok->vocab.types = teg_arena_array(&tok->arena, m->n, 1);
    if (!tok->vocab.types)
        return teg_base_fail_memory(err, "token types", m->n);
    memset(tok->vocab.types, TEG_TOKEN_NORMAL, m->n);
    TRY(get(source, "tokenizer.ggml.token_type", TEG_META_ARRAY_INT, "array of integers", &m, err));
    TRY(same_length(tok, source, m, err));
    for (size_t i = 0; m && i < m->n; i++) {
        if (m->integers[i] < 0 || m->integers[i] > TEG_TOKEN_BYTE)
            FAIL(err, TEG_ERR_FORMAT, WHERE ": %s: tokenizer.ggml.token_type item %zu: expected 1 to 6, found %lld",
                 source->path, i, (long long)m->integers[i]);
        tok->vocab.types[i] = m->integers[i] ? (uint8_t)m->integers[i] : TEG_TOKEN_NORMAL;
    }
    return TEG_OK;
}

static enum teg_status read_merges(struct teg_tok *tok, const struct teg_source *source, struct teg_error *err)
{
    const struct teg_meta *m;
    TRY(get(source, "tokenizer.ggml.merges", TEG_META_ARRAY_STRING, "array of string", &m, err));
    const size_t n = m ? m->n : 0;
    TRY(teg_pairs_reserve(&tok->pairs, &tok->arena, n, err));
    for (size_t i = 0; i < n; i++) {
        const struct teg_string s = m->strings[i];
        const char *const space = s.n_bytes > 1 ? memchr(s.bytes + 1, ' ', s.n_bytes - 1) : NULL;
        if (!space)
            FAIL(err, TEG_ERR_FORMAT,
                 WHERE ": %s: tokenizer.ggml.merges item %zu: expected two texts with a space between, found \"%.*s\"",
                 source->path, i, (int)(s.n_bytes < 64 ? s.n_bytes : 64), s.bytes);
        const size_t left = (size_t)(space - s.bytes);
        teg_pairs_add(&tok->pairs, &tok->vocab, (struct teg_string){s.bytes, left},
                      (struct teg_string){space + 1, s.n_bytes - left - 1}, (uint32_t)i);
    }
    return TEG_OK;
}

/* A score as a number that sorts the other way round, equal for equal scores: its float bits, made monotone. */
static uint32_t rank_of_score(double score)
{
    const float f = (float)score;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    const uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    const uint32_t rank = ~ascending;
    return rank == TEG_NO_RANK ? TEG_NO_RANK - 1 : rank;
}

static enum teg_status read_scores(struct teg_tok *tok, const struct teg_source *source, struct teg_error *err)
{
    const struct teg_meta *m;
    TRY(get(source, "tokenizer.ggml.scores", TEG_META_ARRAY_FLOAT, "array of float", &m, err));
    if (!m)
        FAIL(err, TEG_ERR_FORMAT, WHERE ": %s: tokenizer.ggml.scores: expected an array of float, found none",
             source->path);
    TRY(same_length(tok, source, m, err));
    uint32_t *const ranks = teg_arena_array(&tok->arena, m->n, sizeof *ranks);
    if (!ranks)
        return teg_base_fail_memory(err, "token scores", m->n * sizeof *ranks);
    for (size_t i = 0; i < m->n; i++)
        ranks[i] = rank_of_score(m->reals[i] == 0.0 ? 0.0 : m->reals[i]); /* -0 is 0 */
    tok->score_rank = ranks;
    return TEG_OK;
}

/* ---- specials ---- */

/* Phi-3's special tokens take the white space behind them along; GGUF has no field for that. */
static unsigned strip_flags(const struct teg_source *source, struct teg_string text)
{
    const struct teg_meta *const arch = teg_source_meta(source, "general.architecture");
    const bool phi3 = arch && arch->type == TEG_META_STRING && is_text(arch->string, "phi3");
    const bool plain = is_text(text, "<unk>") || is_text(text, "<s>") || is_text(text, "<|endoftext|>");
    return phi3 && !plain ? TEG_SPECIAL_RSTRIP : 0;
}

static bool has_space(struct teg_string s)
{
    return s.n_bytes &&
           (memchr(s.bytes, ' ', s.n_bytes) || memmem(s.bytes, s.n_bytes, TEG_SPACE_MARK, TEG_SPACE_MARK_BYTES));
}

/* Does the text of this token appear in the text only once spaces are U+2581? */
static bool is_normalized(const struct teg_tok *tok, size_t id)
{
    return tok->kind == TEG_TOK_SCORES && tok->vocab.types[id] == TEG_TOKEN_USER && has_space(tok->vocab.texts[id]);
}

static bool is_special(const struct teg_tok *tok, size_t id)
{
    const uint8_t type = tok->vocab.types[id];
    return type == TEG_TOKEN_CONTROL || type == TEG_TOKEN_UNKNOWN || type == TEG_TOKEN_USER;
}

static enum teg_status marked(struct teg_tok *tok, struct teg_string text, struct teg_string *out,
                              struct teg_error *err)
{
    char *const bytes = teg_arena_array(&tok->arena, text.n_bytes, TEG_SPACE_MARK_BYTES);
    size_t n = 0;
    if (!bytes)
        return teg_base_fail_memory(err, "a special token", text.n_bytes);
    for (size_t i = 0; i < text.n_bytes; i++) {
        const size_t length = text.bytes[i] == ' ' ? TEG_SPACE_MARK_BYTES : 1;
        memcpy(bytes + n, length > 1 ? TEG_SPACE_MARK : text.bytes + i, length);
        n += length;
    }
    *out = (struct teg_string){bytes, n};
    return TEG_OK;
}

static enum teg_status add_specials(struct teg_tok *tok, const struct teg_source *source, struct teg_error *err)
{
    size_t n_raw = 0, n_normalized = 0;
    for (size_t id = 0; id < tok->vocab.n; id++)
        if (is_special(tok, id))
            *(is_normalized(tok, id) ? &n_normalized : &n_raw) += tok->vocab.texts[id].n_bytes;
    TRY(teg_specials_reserve(&tok->raw, &tok->arena, n_raw, err));
    TRY(teg_specials_reserve(&tok->normalized, &tok->arena, n_normalized * TEG_SPACE_MARK_BYTES, err));
    for (size_t id = 0; id < tok->vocab.n; id++) {
        struct teg_string text = tok->vocab.texts[id];
        if (!is_special(tok, id) || !text.n_bytes)
            continue;
        const unsigned control = tok->vocab.types[id] == TEG_TOKEN_USER ? 0 : TEG_SPECIAL_CONTROL;
        if (is_normalized(tok, id)) {
            TRY(marked(tok, text, &text, err));
            teg_specials_add(&tok->normalized, text, (int32_t)id, control);
        } else {
            teg_specials_add(&tok->raw, text, (int32_t)id, control | strip_flags(source, text));
        }
    }
    return TEG_OK;
}

/* ---- kinds ---- */

static enum teg_status from_spm(struct teg_tok *tok, const struct teg_source *source, bool *add_bos,
                                struct teg_error *err)
{
    static const struct teg_string mark = {TEG_SPACE_MARK, TEG_SPACE_MARK_BYTES};
    bool prefix = true;
    TRY(get_bool(source, "tokenizer.ggml.add_space_prefix", &prefix, err));
    tok->kind = TEG_TOK_SCORES;
    tok->marks_spaces = true;
    tok->bos = tok->vocab.n > 1 ? 1 : -1;
    tok->eos = tok->vocab.n > 2 ? 2 : -1;
    tok->unk = 0;
    *add_bos = true;
    if (prefix) {
        tok->normal.steps[tok->normal.n_steps++] =
            (struct teg_normal_step){.kind = TEG_NORMAL_PREPEND, .content = mark};
        tok->strips = TEG_PREFIX_ALWAYS;
    }
    tok->normal.steps[tok->normal.n_steps++] =
        (struct teg_normal_step){.kind = TEG_NORMAL_REPLACE, .needle = {" ", 1}, .content = mark};
    TRY(read_scores(tok, source, err));
    return teg_tok_index(tok, err);
}

static enum teg_status from_bpe(struct teg_tok *tok, const struct teg_source *source, bool *add_bos,
                                struct teg_error *err)
{
    struct teg_string pre = {"default", 7};
    TRY(get_string(source, "tokenizer.ggml.pre", &pre, err));
    tok->kind = TEG_TOK_BYTES;
    TRY(teg_pretok_named(&tok->pretok, &tok->arena, pre.bytes, pre.n_bytes, &tok->ignore_merges, add_bos, err));
    TRY(teg_tok_index(tok, err));
    return read_merges(tok, source, err);
}

static enum teg_status read_ids(struct teg_tok *tok, const struct teg_source *source, bool add_bos,
                                struct teg_error *err)
{
    bool add_eos = false;
    TRY(get_id(tok, source, "tokenizer.ggml.bos_token_id", &tok->bos, err));
    TRY(get_id(tok, source, "tokenizer.ggml.eos_token_id", &tok->eos, err));
    if (tok->kind == TEG_TOK_SCORES) /* a byte-level vocabulary's "unknown" is never written for a missing byte */
        TRY(get_id(tok, source, "tokenizer.ggml.unknown_token_id", &tok->unk, err));
    TRY(get_bool(source, "tokenizer.ggml.add_bos_token", &add_bos, err));
    TRY(get_bool(source, "tokenizer.ggml.add_eos_token", &add_eos, err));
    if (add_bos && tok->bos >= 0)
        tok->before[tok->n_before++] = tok->bos;
    if (add_eos && tok->eos >= 0)
        tok->after[tok->n_after++] = tok->eos;
    teg_tok_add_end(tok, tok->eos);
    static const char *const ends[] = {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        int32_t id = -1;
        TRY(get_id(tok, source, ends[i], &id, err));
        teg_tok_add_end(tok, id);
    }
    return TEG_OK;
}

enum teg_status teg_tok_from_gguf(struct teg_tok *tok, const struct teg_source *source, struct teg_error *err)
{
    struct teg_string model = {"", 0};
    bool add_bos = false;
    TRY(get_string(source, "tokenizer.ggml.model", &model, err));
    const bool spm = is_text(model, "llama"), bpe = is_text(model, "gpt2");
    if (!spm && !bpe)
        FAIL(err, TEG_ERR_UNSUPPORTED,
             WHERE ": %s: tokenizer.ggml.model: expected \"llama\" or \"gpt2\", found \"%.*s\"; give a tokenizer.json",
             source->path, (int)(model.n_bytes < 64 ? model.n_bytes : 64), model.bytes);
    TRY(read_tokens(tok, source, err));
    TRY(spm ? from_spm(tok, source, &add_bos, err) : from_bpe(tok, source, &add_bos, err));
    TRY(read_ids(tok, source, add_bos, err));
    TRY(add_specials(tok, source, err));
    return get_string(source, "tokenizer.chat_template", &tok->chat_template, err);
}
