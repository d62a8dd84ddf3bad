/* tok/tok.c: opening a tokenizer, looking into it, and ids back to bytes.
 *
 * What follows from the vocabulary alone, whichever file it came from, is worked out here (teg_tok_index): the byte
 * tokens, where words may be cut, and which tokens end a generation. */
#include <stdio.h>
#include <string.h>

#include "base/filemap.h"
#include "tok/tok_int.h"

/* ---- open ---- */

/* Tokens that end a turn or a text, known by their text: files often name only one of them as EOS. */
static const char *const end_texts[] = {
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|return|>",
    "<|call|>",
    "<EOT>",
    "_<EOT>",
    "<|endofturn|>",
    "<turn|>",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
};

void teg_tok_add_end(struct teg_tok *tok, int64_t id)
{
    if (id < 0 || (uint64_t)id >= tok->vocab.n || tok->n_ends == TEG_TOK_MAX_ENDS || teg_tok_is_end(tok, (int32_t)id))
        return;
    tok->ends[tok->n_ends++] = (int32_t)id;
}

/* In the "harmony" format <|end|> closes a message, not the turn: there <|return|> and <|call|> do that. */
static void ends_by_text(struct teg_tok *tok)
{
    const bool harmony =
        teg_vocab_find(&tok->vocab, "<|return|>", 10) >= 0 && teg_vocab_find(&tok->vocab, "<|call|>", 8) >= 0;
    for (size_t i = 0; i < sizeof end_texts / sizeof *end_texts; i++) {
        const int32_t id = teg_vocab_find(&tok->vocab, end_texts[i], strlen(end_texts[i]));
        if (id < 0 || (harmony && strcmp(end_texts[i], "<|end|>") == 0))
            continue;
        tok->vocab.types[id] = TEG_TOKEN_CONTROL; /* some files say "user defined" or "normal" */
        teg_tok_add_end(tok, id);
    }
}

static void find_byte_ids(struct teg_tok *tok)
{
    tok->byte_fallback = tok->kind != TEG_TOK_BYTES;
    for (unsigned b = 0; b < 256; b++) {
        char text[8];
        size_t n;
        if (tok->kind == TEG_TOK_BYTES)
            n = teg_utf8_put(teg_byte_letter((uint8_t)b), text);
        else
            n = (size_t)snprintf(text, sizeof text, "<0x%02X>", b);
        tok->byte_ids[b] = teg_vocab_find(&tok->vocab, text, n);
        tok->byte_fallback = tok->byte_fallback && tok->byte_ids[b] >= 0;
    }
}

static void find_joins(struct teg_tok *tok)
{
    for (size_t id = 0; id < tok->vocab.n; id++) {
        const struct teg_string text = tok->vocab.texts[id];
        for (size_t i = 1; i + TEG_SPACE_MARK_BYTES <= text.n_bytes; i++)
            if (text.bytes[i] == TEG_SPACE_MARK[0] && memcmp(text.bytes + i, TEG_SPACE_MARK, TEG_SPACE_MARK_BYTES) == 0)
                tok->joins_mark[(uint8_t)text.bytes[i - 1]] = true;
    }
}

enum teg_status teg_tok_index(struct teg_tok *tok, struct teg_error *err)
{
    TRY(teg_vocab_index(&tok->vocab, &tok->arena, err));
    find_byte_ids(tok);
    find_joins(tok);
    ends_by_text(tok);
    return TEG_OK;
}

enum file_kind { FILE_JSON, FILE_GGUF, FILE_MODEL };

/* By the first bytes; what cannot be read counts as JSON, whose reader says why. */
static enum file_kind kind_of(const char *path)
{
    struct teg_filemap map;
    enum file_kind kind = FILE_JSON;
    if (teg_filemap_open(&map, path, "", NULL) != TEG_OK)
        return kind;
    if (map.n_bytes >= 4 && memcmp(map.bytes, "GGUF", 4) == 0)
        kind = FILE_GGUF;
    else if (teg_tok_is_model((struct teg_span){map.bytes, map.n_bytes}))
        kind = FILE_MODEL;
    teg_filemap_close(&map);
    return kind;
}

bool teg_tok_is_sentencepiece(const char *path)
{
    return kind_of(path) == FILE_MODEL;
}

enum teg_status teg_tok_from_file(struct teg_tok *tok, const char *path, const char *config_path,
                                  const char *template_path, struct teg_error *err)
{
    return kind_of(path) == FILE_MODEL ? teg_tok_from_model(tok, path, config_path, template_path, err)
                                       : teg_tok_from_hf(tok, path, config_path, template_path, err);
}

/* Ends that a safetensors directory's config.json and generation_config.json name. */
static void ends_from_config(struct teg_tok *tok, const struct teg_source *source)
{
    static const char *const keys[] = {"eos_token_id", "generation_config.eos_token_id"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const struct teg_meta *const meta = teg_source_meta(source, keys[i]);
        if (meta && meta->type == TEG_META_INT)
            teg_tok_add_end(tok, meta->integer);
        for (size_t k = 0; meta && meta->type == TEG_META_ARRAY_INT && k < meta->n; k++)
            teg_tok_add_end(tok, meta->integers[k]);
    }
}

static int32_t id_from_config(const struct teg_tok *tok, const struct teg_source *source, const char *key)
{
    const struct teg_meta *const meta = teg_source_meta(source, key);
    const bool ok = meta && meta->type == TEG_META_INT && meta->integer >= 0 && (uint64_t)meta->integer < tok->vocab.n;
    return ok ? (int32_t)meta->integer : -1;
}

static enum teg_status open_into(struct teg_tok *tok, const struct teg_source *source, const char *path,
                                 const struct teg_allocator *allocator, struct teg_error *err)
{
    if (path && kind_of(path) == FILE_GGUF) {
        TRY(teg_source_open(path, false, allocator, &tok->own_source, err));
        return teg_tok_from_gguf(tok, tok->own_source, err);
    }
    if (!path && source->kind == TEG_SOURCE_GGUF)
        return teg_tok_from_gguf(tok, source, err);
    if (!path && !source->tokenizer_path)
        FAIL(err, TEG_ERR_UNSUPPORTED,
             "cannot open the tokenizer: %s: expected a tokenizer.json or tokenizer.model, found none; give "
             "one with the option tokenizer_path",
             source->path);
    TRY(teg_tok_from_file(tok, path ? path : source->tokenizer_path, source ? source->tokenizer_config_path : NULL,
                          source ? source->chat_template_path : NULL, err));
    if (source && source->kind == TEG_SOURCE_SAFETENSORS) {
        if (tok->bos < 0)
            tok->bos = id_from_config(tok, source, "bos_token_id");
        if (tok->eos < 0)
            tok->eos = id_from_config(tok, source, "eos_token_id");
        ends_from_config(tok, source);
    }
    return TEG_OK;
}

static enum teg_status make(const struct teg_allocator *allocator, struct teg_tok **tok, struct teg_error *err)
{
    struct teg_tok *const made = allocator->alloc(allocator->ctx, sizeof *made, TEG_ALIGN);
    if (!made)
        return teg_base_fail_memory(err, "the tokenizer", sizeof *made);
    *made = (struct teg_tok){.bos = -1, .eos = -1, .unk = -1};
    teg_arena_init(&made->arena, allocator);
    *tok = made;
    return TEG_OK;
}

/* Hands a tokenizer out, or frees it. */
static enum teg_status finish(enum teg_status status, struct teg_tok *made, struct teg_tok **tok)
{
    if (status == TEG_OK)
        *tok = made;
    else
        teg_tok_free(made);
    return status;
}

enum teg_status teg_tok_open(const struct teg_source *source, const char *path, const struct teg_allocator *allocator,
                             struct teg_tok **tok, struct teg_error *err)
{
    struct teg_tok *made = NULL;
    allocator = teg_allocator_or_default(allocator);
    TRY(make(allocator, &made, err));
    return finish(open_into(made, source, path, allocator, err), made, tok);
}

enum teg_status teg_tok_open_folder(const char *path, const struct teg_allocator *allocator, struct teg_tok **tok,
                                    struct teg_error *err)
{
    struct teg_tok *made = NULL;
    allocator = teg_allocator_or_default(allocator);
    TRY(make(allocator, &made, err));
    return finish(kind_of(path) == FILE_GGUF ? open_into(made, NULL, path, allocator, err)
                                             : teg_tok_read_folder(made, path, err),
                  made, tok);
}

enum teg_status teg_tok_parse(struct teg_span json, struct teg_span config, const char *path,
                              const struct teg_allocator *allocator, struct teg_tok **tok, struct teg_error *err)
{
    struct teg_tok *made = NULL;
    TRY(make(teg_allocator_or_default(allocator), &made, err));
    return finish(teg_tok_from_json(made, json, config, path, err), made, tok);
}

enum teg_status teg_tok_parse_model(const struct teg_model_files *files, const struct teg_allocator *allocator,
                                    struct teg_tok **tok, struct teg_error *err)
{
    struct teg_tok *made = NULL;
    TRY(make(teg_allocator_or_default(allocator), &made, err));
    return finish(teg_tok_from_model_bytes(made, files, err), made, tok);
}

void teg_tok_free(struct teg_tok *tok)
{
    if (!tok)
        return;
    const struct teg_allocator *const allocator = tok->arena.allocator;
    teg_pretok_free(&tok->pretok);
    for (uint32_t i = 0; i < tok->normal.n_steps; i++)
        teg_regex_free(tok->normal.steps[i].regex);
    teg_source_free(tok->own_source);
    teg_arena_free(&tok->arena);
    allocator->free(allocator->ctx, tok, sizeof *tok);
}

/* ---- look ---- */

size_t teg_tok_size(const struct teg_tok *tok)
{
    return tok->vocab.n;
}

int32_t teg_tok_bos(const struct teg_tok *tok)
{
    return tok->bos;
}

int32_t teg_tok_eos(const struct teg_tok *tok)
{
    return tok->eos;
}

bool teg_tok_is_end(const struct teg_tok *tok, int32_t id)
{
    for (uint32_t i = 0; i < tok->n_ends; i++)
        if (tok->ends[i] == id)
            return true;
    return false;
}

struct teg_string teg_tok_text(const struct teg_tok *tok, int32_t id)
{
    if (id < 0 || (size_t)id >= tok->vocab.n)
        return (struct teg_string){NULL, 0};
    return tok->vocab.texts[id];
}

struct teg_string teg_tok_chat_template(const struct teg_tok *tok)
{
    return tok->chat_template;
}

/* ---- ids to bytes ---- */

/* The alphabet's letters as bytes. A text that leaves the alphabet was not written in it: it stands for itself. */
static void append_letters(struct teg_buf *out, struct teg_string text)
{
    const size_t before = out->n_bytes;
    for (size_t i = 0; i < text.n_bytes;) {
        uint32_t c;
        size_t bad;
        const size_t n = teg_utf8_next(text.bytes + i, text.n_bytes - i, &c, &bad);
        const int byte = n ? teg_letter_byte(c) : -1;
        if (byte < 0) {
            out->n_bytes = before;
            teg_buf_append(out, text.bytes, text.n_bytes);
            return;
        }
        teg_buf_append(out, &(char){(char)byte}, 1);
        i += n;
    }
}

static void append_marked(struct teg_buf *out, struct teg_string text)
{
    while (text.n_bytes) {
        const char *const at = memmem(text.bytes, text.n_bytes, TEG_SPACE_MARK, TEG_SPACE_MARK_BYTES);
        const size_t n = at ? (size_t)(at - text.bytes) : text.n_bytes;
        teg_buf_append(out, text.bytes, n);
        if (!at)
            return;
        teg_buf_append(out, " ", 1);
        text.bytes += n + TEG_SPACE_MARK_BYTES;
        text.n_bytes -= n + TEG_SPACE_MARK_BYTES;
    }
}

/* "<0x41>" -> 0x41, or -1 */
static int byte_of(struct teg_string text)
{
    if (text.n_bytes != 6 || memcmp(text.bytes, "<0x", 3) != 0 || text.bytes[5] != '>')
        return -1;
    int value = 0;
    for (int i = 3; i < 5; i++) {
        const char c = text.bytes[i];
        const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

static bool is_control(uint8_t type)
{
    return type == TEG_TOKEN_CONTROL || type == TEG_TOKEN_UNKNOWN;
}

bool teg_tok_piece(const struct teg_tok *tok, int32_t id, struct teg_buf *out)
{
    if (id < 0 || (size_t)id >= tok->vocab.n)
        return false;
    const struct teg_string text = tok->vocab.texts[id];
    const uint8_t type = tok->vocab.types[id];
    if (is_control(type) || (tok->letters && type == TEG_TOKEN_USER)) {
        teg_buf_append(out, text.bytes ? text.bytes : "", text.n_bytes);
        return true;
    }
    const int byte = type == TEG_TOKEN_BYTE ? byte_of(text) : -1;
    if (byte >= 0)
        teg_buf_append(out, &(char){(char)byte}, 1);
    else if (tok->letters)
        append_letters(out, text);
    else if (tok->marks_spaces)
        append_marked(out, text);
    else
        teg_buf_append(out, text.bytes ? text.bytes : "", text.n_bytes);
    return true;
}

/* Did encoding start a new segment behind this token? */
static bool ends_segment(const struct teg_tok *tok, int32_t id)
{
    const struct teg_string text = tok->vocab.texts[id];
    const uint8_t type = tok->vocab.types[id];
    const bool spaced = text.n_bytes && (memchr(text.bytes, ' ', text.n_bytes) ||
                                         memmem(text.bytes, text.n_bytes, TEG_SPACE_MARK, TEG_SPACE_MARK_BYTES));
    return type == TEG_TOKEN_CONTROL || (type == TEG_TOKEN_USER && !spaced);
}

enum teg_status teg_tok_decode(const struct teg_tok *tok, const int32_t *ids, size_t n_ids, struct teg_buf *out,
                               struct teg_error *err)
{
    bool segment_starts = tok->strips != TEG_PREFIX_NEVER;
    for (size_t i = 0; i < n_ids; i++) {
        const size_t before = out->n_bytes;
        if (!teg_tok_piece(tok, ids[i], out))
            FAIL(err, TEG_ERR_ARGUMENT, "cannot decode: token %zu: expected an id from 0 to %zu, found %ld", i,
                 tok->vocab.n - 1, (long)ids[i]);
        if (ends_segment(tok, ids[i])) {
            segment_starts = tok->strips == TEG_PREFIX_ALWAYS;
            continue;
        }
        if (segment_starts && out->n_bytes > before && out->bytes[before] == ' ') {
            memmove(out->bytes + before, out->bytes + before + 1, out->n_bytes - before - 1);
            out->n_bytes--;
            out->bytes[out->n_bytes] = '\0';
        }
        segment_starts = false;
    }
    if (out->failed)
        return teg_base_fail_memory(err, "the decoded text", out->n_bytes);
    return TEG_OK;
}
