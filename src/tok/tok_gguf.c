/* tok/tok_gguf.c: a tokenizer from GGUF's tokenizer.ggml.* keys.
 *
 * Token texts stay where the source has them: in the mapped file. A SentencePiece vocabulary ("llama") becomes the
 * same shape that its tokenizer.json would have: spaces replaced by U+2581, one put in front unless the file says
 * otherwise, specials in two sets. A unigram one ("t5") gets SentencePiece's own normalizer, a byte-level one ("gpt2")
 * its pre-tokenizer by name. */
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

static enum teg_status read_scores(struct teg_tok *tok, const struct teg_source *source, struct teg_error *err)
{
    const struct teg_meta *m;
    TRY(get(source, "tokenizer.ggml.scores", TEG_META_ARRAY_FLOAT, "array of float", &m, err));
    if (!m)
        FAIL(err, TEG_ERR_FORMAT, WHERE ": %s: tokenizer.ggml.scores: expected an array of float, found none",
             source->path);
    TRY(same_length(tok, source, m, err));
    return teg_spm_scores(tok, m->reals, err);
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

/* One for each token. */
static enum teg_status special_flags(struct teg_tok *tok, const struct teg_source *source, uint8_t **flags,
                                     struct teg_error *err)
{
    uint8_t *const made = teg_arena_array(&tok->arena, tok->vocab.n, 1);
    if (!made)
        return teg_base_fail_memory(err, "special tokens", tok->vocab.n);
    for (size_t id = 0; id < tok->vocab.n; id++)
        made[id] = (uint8_t)strip_flags(source, tok->vocab.texts[id]);
    *flags = made;
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

/* precompiled_charsmap is an array of bytes, which the source keeps as numbers. */
static enum teg_status read_charsmap(struct teg_tok *tok, const struct teg_source *source, struct teg_charsmap *map,
                                     struct teg_error *err)
{
    const struct teg_meta *m;
    TRY(get(source, "tokenizer.ggml.precompiled_charsmap", TEG_META_ARRAY_INT, "array of u8", &m, err));
    if (!m || !m->n)
        return TEG_OK;
    uint8_t *const blob = teg_arena_array(&tok->arena, m->n, 1);
    if (!blob)
        return teg_base_fail_memory(err, "the normalization rules", m->n);
    for (size_t i = 0; i < m->n; i++)
        blob[i] = (uint8_t)m->integers[i];
    const char *const where = teg_arena_printf(&tok->arena, WHERE ": %s", source->path);
    return teg_charsmap_open(map, (struct teg_span){blob, m->n}, where ? where : WHERE, err);
}

/* "t5": SentencePiece's unigram models, those of T5 and of language models alike. */
static enum teg_status from_unigram(struct teg_tok *tok, const struct teg_source *source, bool *add_eos,
                                    struct teg_error *err)
{
    bool prefix = false;
    struct teg_sentence *const s = teg_arena_array(&tok->arena, 1, sizeof *s);
    if (!s)
        return teg_base_fail_memory(err, "the normalization rules", sizeof *s);
    TRY(get_bool(source, "tokenizer.ggml.add_space_prefix", &prefix, err));
    TRY(get_bool(source, "tokenizer.ggml.remove_extra_whitespaces", &s->remove_extra, err));
    TRY(read_charsmap(tok, source, &s->map, err));
    s->escape = true;
    s->prefix = prefix ? TEG_PREFIX_ALWAYS : TEG_PREFIX_NEVER;
    tok->normal.steps[tok->normal.n_steps++] = (struct teg_normal_step){.kind = TEG_NORMAL_SENTENCE, .sentence = s};
    tok->kind = TEG_TOK_UNIGRAM;
    tok->marks_spaces = tok->fuse_unknown = true;
    tok->strips = s->prefix;
    tok->eos = tok->vocab.n > 1 ? 1 : -1;
    tok->unk = tok->vocab.n > 2 ? 2 : -1;
    *add_eos = true;
    TRY(teg_tok_index(tok, err));
    return read_scores(tok, source, err);
}

static enum teg_status from_bpe(struct teg_tok *tok, const struct teg_source *source, bool *add_bos,
                                struct teg_error *err)
{
    struct teg_string pre = {"default", 7};
    TRY(get_string(source, "tokenizer.ggml.pre", &pre, err));
    tok->kind = TEG_TOK_BYTES;
    tok->letters = true;
    TRY(teg_pretok_named(&tok->pretok, &tok->arena, pre.bytes, pre.n_bytes, &tok->ignore_merges, add_bos, err));
    TRY(teg_tok_index(tok, err));
    return read_merges(tok, source, err);
}

static enum teg_status read_ids(struct teg_tok *tok, const struct teg_source *source, bool add_bos, bool add_eos,
                                struct teg_error *err)
{
    TRY(get_id(tok, source, "tokenizer.ggml.bos_token_id", &tok->bos, err));
    TRY(get_id(tok, source, "tokenizer.ggml.eos_token_id", &tok->eos, err));
    if (tok->kind != TEG_TOK_BYTES) /* a byte-level vocabulary's "unknown" is never written for a missing byte */
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

static enum teg_status read_model(struct teg_tok *tok, const struct teg_source *source, struct teg_string model,
                                  struct teg_error *err)
{
    bool add_bos = false, add_eos = false;
    TRY(read_tokens(tok, source, err));
    if (is_text(model, "llama"))
        TRY(from_spm(tok, source, &add_bos, err));
    else if (is_text(model, "t5"))
        TRY(from_unigram(tok, source, &add_eos, err));
    else
        TRY(from_bpe(tok, source, &add_bos, err));
    return read_ids(tok, source, add_bos, add_eos, err);
}

enum teg_status teg_tok_from_gguf(struct teg_tok *tok, const struct teg_source *source, struct teg_error *err)
{
    struct teg_string model = {"", 0};
    uint8_t *flags = NULL;
    TRY(get_string(source, "tokenizer.ggml.model", &model, err));
    if (!is_text(model, "llama") && !is_text(model, "gpt2") && !is_text(model, "t5"))
        FAIL(err, TEG_ERR_UNSUPPORTED,
             WHERE ": %s: tokenizer.ggml.model: expected \"llama\", \"gpt2\" or \"t5\", found \"%.*s\"; give a "
                   "tokenizer.json",
             source->path, (int)(model.n_bytes < 64 ? model.n_bytes : 64), model.bytes);
    TRY(read_model(tok, source, model, err));
    TRY(special_flags(tok, source, &flags, err));
    TRY(teg_tok_add_specials(tok, flags, err));
    return get_string(source, "tokenizer.chat_template", &tok->chat_template, err);
}
