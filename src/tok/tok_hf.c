/* tok/tok_hf.c: a tokenizer from Hugging Face's tokenizer.json and tokenizer_config.json.
 *
 *     {"added_tokens":   [{"id","content","special","lstrip","rstrip","single_word","normalized"}, …],
 *      "normalizer":     …, "pre_tokenizer": …,                    (hf_steps.c)
 *      "post_processor": what stands before and after a text,
 *      "model":          {"type":"BPE", "vocab":{text: id}, "merges":["a b"] or [["a","b"]], …}
 *                     or {"type":"Unigram", "vocab":[[text, score], …], "unk_id", …}}
 *
 * These are the models that language models come with; WordPiece and WordLevel are not read. What the file says about
 * decoding follows from the rest and is not read. The JSON tree is freed again; token texts move into the tokenizer's
 * arena as one block. */
#include <jansson.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/filemap.h"
#include "format/json.h"
#include "tok/tok_int.h"

#define WHERE "cannot read tokenizer.json"
#define FILE_LIMIT_BYTES ((size_t)64 << 20) /* the largest known has 35 MB; the JSON tree takes a multiple */

struct hf {
    struct teg_tok *tok;
    const json_t *root, *model, *vocab, *added;
    double *scores; /* of an array of a vocabulary */
    const char *path;
    size_t n_bytes; /* of the file */
    struct teg_error *err;
};

static bool is_true(const json_t *json, const char *key)
{
    return json_is_true(json_object_get(json, key));
}

static struct teg_string text_of(const json_t *string)
{
    return (struct teg_string){json_string_value(string), json_string_length(string)};
}

/* ---- vocabulary ---- */

/* Ids may have holes, but every token takes some bytes of the file, so a larger id than that is a lie. */
static enum teg_status check_id(const struct hf *h, const json_t *json, const char *what, const char *text, size_t *id)
{
    const json_int_t value = json_is_integer(json) ? json_integer_value(json) : -1;
    if (value < 0 || (uint64_t)value > h->n_bytes || value >= INT32_MAX)
        FAIL(h->err, TEG_ERR_FORMAT, WHERE ": %s: %s \"%.64s\": expected an id from 0 to %zu, found %lld", h->path,
             what, text ? text : "", h->n_bytes, (long long)value);
    *id = (size_t)value;
    return TEG_OK;
}

/* [[text, score], …] */
static enum teg_status measure_array(const struct hf *h, size_t *n_text_bytes)
{
    for (size_t i = 0; i < json_array_size(h->vocab); i++) {
        const json_t *const item = json_array_get(h->vocab, i);
        if (!json_is_string(json_array_get(item, 0)) || !json_is_number(json_array_get(item, 1)))
            FAIL(h->err, TEG_ERR_FORMAT,
                 WHERE ": %s: vocab item %zu: expected a text and a score, found something else; download the file "
                       "again",
                 h->path, i);
        *n_text_bytes += json_string_length(json_array_get(item, 0));
    }
    return TEG_OK;
}

/* First pass: how many ids, how many bytes. */
static enum teg_status measure(struct hf *h, size_t *n_ids, size_t *n_text_bytes)
{
    const char *key;
    size_t key_bytes, i, id;
    json_t *value;
    size_t n = json_array_size(h->vocab), bytes = 0;
    TRY(measure_array(h, &bytes));
    json_object_keylen_foreach((json_t *)(uintptr_t)h->vocab, key, key_bytes, value)
    {
        TRY(check_id(h, value, "token", key, &id));
        n = teg_max(n, id + 1);
        bytes += key_bytes;
    }
    json_array_foreach(h->added, i, value)
    {
        const json_t *const content = json_object_get(value, "content");
        TRY(check_id(h, json_object_get(value, "id"), "added token", json_string_value(content), &id));
        if (!json_string_length(content))
            FAIL(h->err, TEG_ERR_FORMAT, WHERE ": %s: added token %zu: expected a content, found none", h->path, i);
        n = teg_max(n, id + 1);
        bytes += json_string_length(content);
    }
    if (!n)
        FAIL(h->err, TEG_ERR_FORMAT, WHERE ": %s: model: expected a vocab with tokens, found none", h->path);
    *n_ids = n;
    *n_text_bytes = bytes;
    return TEG_OK;
}

static bool is_byte_token(const char *text, size_t n_bytes)
{
    return n_bytes == 6 && memcmp(text, "<0x", 3) == 0 && text[5] == '>';
}

/* A score as the tokenizers library reads it: its JSON reader divides the digits by a power of ten, which for 16 and 17
 * of them may be one bit off. Segmentations with equal sums are told apart by such bits, so the same is done here. */
static double score_of(const json_t *json)
{
    const double value = json_number_value(json);
    char text[40];
    uint64_t digits = 0;
    double power = 1;
    int precision = 15;
    do
        (void)snprintf(text, sizeof text, "%.*g", precision, value < 0 ? -value : value);
    while (strtod(text, NULL) != (value < 0 ? -value : value) && ++precision <= 17);
    if (precision < 16 || strchr(text, 'e'))
        return value;
    bool behind_point = false;
    for (const char *p = text; *p; p++) {
        if (*p < '0' || *p > '9') {
            behind_point = true; /* whatever the locale writes there */
            continue;
        }
        digits = digits * 10 + (uint64_t)(*p - '0');
        power *= behind_point ? 10 : 1;
    }
    const double read = (double)digits / power;
    return value < 0 ? -read : read;
}

/* Puts a text of the vocabulary where it belongs; `at` is where its copy goes. Returns where the next one goes. */
static char *put_text(const struct hf *h, struct teg_string *texts, uint8_t *types, size_t id, struct teg_string text,
                      char *at)
{
    const bool is_byte = is_true(h->model, "byte_fallback") && is_byte_token(text.bytes, text.n_bytes);
    texts[id] = (struct teg_string){memcpy(at, text.bytes, text.n_bytes), text.n_bytes};
    types[id] = is_byte ? TEG_TOKEN_BYTE : TEG_TOKEN_NORMAL;
    return at + text.n_bytes;
}

static enum teg_status read_vocab(struct hf *h)
{
    size_t n = 0, n_text_bytes = 0;
    TRY(measure(h, &n, &n_text_bytes));
    struct teg_vocab *const vocab = &h->tok->vocab;
    struct teg_string *const texts = teg_arena_array(&h->tok->arena, n, sizeof *texts);
    uint8_t *const types = teg_arena_array(&h->tok->arena, n, 1);
    char *at = teg_arena_array(&h->tok->arena, n_text_bytes + 1, 1);
    h->scores = teg_arena_array(&h->tok->arena, json_array_size(h->vocab), sizeof *h->scores);
    if (!texts || !types || !at || !h->scores)
        return teg_base_fail_memory(h->err, "the vocabulary", n * sizeof *texts + n_text_bytes);
    memset(types, TEG_TOKEN_UNUSED, n);
    const char *key;
    size_t key_bytes, i;
    json_t *value;
    json_object_keylen_foreach((json_t *)(uintptr_t)h->vocab, key, key_bytes, value)
    {
        at = put_text(h, texts, types, (size_t)json_integer_value(value), (struct teg_string){key, key_bytes}, at);
    }
    for (i = 0; i < json_array_size(h->vocab); i++) {
        const json_t *const item = json_array_get(h->vocab, i);
        at = put_text(h, texts, types, i, text_of(json_array_get(item, 0)), at);
        h->scores[i] = score_of(json_array_get(item, 1));
    }
    json_array_foreach(h->added, i, value)
    {
        const struct teg_string content = text_of(json_object_get(value, "content"));
        const size_t id = (size_t)json_integer_value(json_object_get(value, "id"));
        texts[id] = (struct teg_string){memcpy(at, content.bytes, content.n_bytes), content.n_bytes};
        types[id] = is_true(value, "special") ? TEG_TOKEN_CONTROL : TEG_TOKEN_USER;
        at += content.n_bytes;
    }
    vocab->texts = texts;
    vocab->types = types;
    vocab->n = n;
    return TEG_OK;
}

static bool merge_parts(const json_t *item, struct teg_string *left, struct teg_string *right)
{
    if (json_is_array(item)) {
        *left = text_of(json_array_get(item, 0));
        *right = text_of(json_array_get(item, 1));
        return json_array_size(item) == 2 && left->n_bytes && right->n_bytes;
    }
    const struct teg_string s = text_of(item);
    const char *const space = s.n_bytes > 1 ? memchr(s.bytes + 1, ' ', s.n_bytes - 1) : NULL;
    if (!space)
        return false;
    *left = (struct teg_string){s.bytes, (size_t)(space - s.bytes)};
    *right = (struct teg_string){space + 1, s.n_bytes - left->n_bytes - 1};
    return true;
}

static enum teg_status read_merges(struct hf *h)
{
    const json_t *const merges = json_object_get(h->model, "merges");
    TRY(teg_pairs_reserve(&h->tok->pairs, &h->tok->arena, json_array_size(merges), h->err));
    for (size_t i = 0; i < json_array_size(merges); i++) {
        struct teg_string left, right;
        if (!merge_parts(json_array_get(merges, i), &left, &right))
            FAIL(h->err, TEG_ERR_FORMAT,
                 WHERE ": %s: merges item %zu: expected \"left right\" or [\"left\",\"right\"], found something else",
                 h->path, i);
        teg_pairs_add(&h->tok->pairs, &h->tok->vocab, left, right, (uint32_t)i);
    }
    return TEG_OK;
}

/* ---- model ---- */

static enum teg_status check_model(const struct hf *h)
{
    const char *const type = json_string_value(json_object_get(h->model, "type"));
    const bool bpe = json_is_object(h->vocab) && (!type || strcmp(type, "BPE") == 0);
    const bool unigram = json_is_array(h->vocab) && (!type || strcmp(type, "Unigram") == 0);
    if (!bpe && !unigram)
        FAIL(h->err, TEG_ERR_UNSUPPORTED,
             WHERE
             ": %s: model.type: expected \"BPE\" or \"Unigram\" with its vocab, found \"%.64s\"; use the model as "
             "GGUF",
             h->path, type ? type : "none");
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < sizeof affixes / sizeof *affixes; i++)
        if (json_string_length(json_object_get(h->model, affixes[i])))
            FAIL(h->err, TEG_ERR_UNSUPPORTED, WHERE ": %s: model.%s: expected none, found \"%.16s\"", h->path,
                 affixes[i], json_string_value(json_object_get(h->model, affixes[i])));
    return TEG_OK;
}

static enum teg_status read_bpe(struct hf *h)
{
    const struct teg_string unk = text_of(json_object_get(h->model, "unk_token"));
    TRY(read_merges(h));
    h->tok->fuse_unknown = is_true(h->model, "fuse_unk");
    h->tok->ignore_merges = is_true(h->model, "ignore_merges");
    h->tok->unk = teg_vocab_find(&h->tok->vocab, unk.bytes, unk.n_bytes);
    return TEG_OK;
}

static enum teg_status read_unigram(struct hf *h)
{
    struct teg_tok *const tok = h->tok;
    const json_t *const unk = json_object_get(h->model, "unk_id");
    const size_t n = json_array_size(h->vocab);
    if (json_is_integer(unk)) {
        const json_int_t id = json_integer_value(unk);
        if (id < 0 || (uint64_t)id >= n)
            FAIL(h->err, TEG_ERR_FORMAT, WHERE ": %s: model.unk_id: expected an id under %zu, found %lld", h->path, n,
                 (long long)id);
        tok->unk = (int32_t)id;
    }
    tok->fuse_unknown = true;
    for (size_t i = 0; i < n; i++)
        tok->lattice.worst_score =
            i && tok->lattice.worst_score < h->scores[i] ? tok->lattice.worst_score : h->scores[i];
    return teg_lattice_index(&tok->lattice, &tok->vocab, h->scores, n, &tok->arena, h->err);
}

static enum teg_status read_model(struct hf *h)
{
    struct teg_tok *const tok = h->tok;
    TRY(check_model(h));
    TRY(teg_hf_normalizer(tok, json_object_get(h->root, "normalizer"), h->path, h->err));
    TRY(teg_hf_pretokenizer(tok, json_object_get(h->root, "pre_tokenizer"), h->path, h->err));
    tok->kind = json_is_array(h->vocab) ? TEG_TOK_UNIGRAM : tok->pretok.letters ? TEG_TOK_BYTES : TEG_TOK_CHARS;
    TRY(read_vocab(h));
    TRY(teg_tok_index(tok, h->err));
    tok->byte_fallback = tok->byte_fallback && is_true(h->model, "byte_fallback");
    return tok->kind == TEG_TOK_UNIGRAM ? read_unigram(h) : read_bpe(h);
}

/* ---- added tokens ---- */

static unsigned flags_of(const json_t *added)
{
    return (is_true(added, "special") ? TEG_SPECIAL_CONTROL : 0u) |
           (is_true(added, "lstrip") ? TEG_SPECIAL_LSTRIP : 0u) | (is_true(added, "rstrip") ? TEG_SPECIAL_RSTRIP : 0u) |
           (is_true(added, "single_word") ? TEG_SPECIAL_WORD : 0u);
}

/* A "normalized" token is looked for in the normalized text, so its own text is normalized too. */
static enum teg_status normalized_text(struct hf *h, struct teg_string text, struct teg_string *out)
{
    struct teg_encoder e = {.tok = h->tok, .allocator = h->tok->arena.allocator};
    const char *bytes;
    size_t n_bytes;
    enum teg_status status = teg_normal_run(&h->tok->normal, &e, text.bytes, text.n_bytes, &bytes, &n_bytes, h->err);
    if (status == TEG_OK) {
        *out = (struct teg_string){teg_arena_string(&h->tok->arena, bytes, n_bytes), n_bytes};
        if (!out->bytes)
            status = teg_base_fail_memory(h->err, "an added token", n_bytes);
    }
    teg_regex_scratch_free(&e);
    teg_buf_free(&e.normal);
    teg_buf_free(&e.other);
    return status;
}

static enum teg_status read_added(struct hf *h)
{
    size_t n_raw = 0, n_normalized = 0;
    const size_t n = json_array_size(h->added);
    struct teg_string *const normalized = teg_arena_array(&h->tok->arena, n, sizeof *normalized);
    if (!normalized)
        return teg_base_fail_memory(h->err, "added tokens", n * sizeof *normalized);
    for (size_t i = 0; i < n; i++) {
        const json_t *const item = json_array_get(h->added, i);
        const struct teg_string text = text_of(json_object_get(item, "content"));
        if (is_true(item, "normalized")) {
            TRY(normalized_text(h, text, &normalized[i]));
            n_normalized += normalized[i].n_bytes;
        } else {
            n_raw += text.n_bytes;
        }
    }
    TRY(teg_specials_reserve(&h->tok->raw, &h->tok->arena, n_raw, h->err));
    TRY(teg_specials_reserve(&h->tok->normalized, &h->tok->arena, n_normalized, h->err));
    for (size_t i = 0; i < n; i++) {
        const json_t *const item = json_array_get(h->added, i);
        const int32_t id = (int32_t)json_integer_value(json_object_get(item, "id"));
        if (normalized[i].n_bytes)
            teg_specials_add(&h->tok->normalized, normalized[i], id, flags_of(item));
        else if (!is_true(item, "normalized"))
            teg_specials_add(&h->tok->raw, text_of(json_object_get(item, "content")), id, flags_of(item));
    }
    return TEG_OK;
}

/* ---- post-processor ---- */

static enum teg_status add_around(struct hf *h, bool before, int64_t id)
{
    struct teg_tok *const tok = h->tok;
    uint32_t *const n = before ? &tok->n_before : &tok->n_after;
    if (id < 0 || (uint64_t)id >= tok->vocab.n || *n == TEG_TOK_MAX_AROUND)
        FAIL(h->err, TEG_ERR_FORMAT,
             WHERE ": %s: post_processor: expected at most %d tokens with ids under %zu around a text, found id %lld",
             h->path, TEG_TOK_MAX_AROUND, tok->vocab.n, (long long)id);
    (before ? tok->before : tok->after)[(*n)++] = (int32_t)id;
    return TEG_OK;
}

static enum teg_status read_template(struct hf *h, const json_t *post)
{
    const json_t *const single = json_object_get(post, "single");
    const json_t *const specials = json_object_get(post, "special_tokens");
    bool before = true;
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *const item = json_array_get(single, i);
        const char *const name = json_string_value(json_object_get(json_object_get(item, "SpecialToken"), "id"));
        if (!name) {
            before = false; /* the text itself */
            continue;
        }
        const json_t *const ids = json_object_get(json_object_get(specials, name), "ids");
        for (size_t k = 0; k < json_array_size(ids); k++)
            TRY(add_around(h, before, json_integer_value(json_array_get(ids, k))));
    }
    return TEG_OK;
}

/* ["</s>", 2] */
static enum teg_status read_bert(struct hf *h, const json_t *post)
{
    TRY(add_around(h, true, json_integer_value(json_array_get(json_object_get(post, "cls"), 1))));
    return add_around(h, false, json_integer_value(json_array_get(json_object_get(post, "sep"), 1)));
}

static enum teg_status read_post(struct hf *h, const json_t *post, bool in_sequence)
{
    const char *const type = json_string_value(json_object_get(post, "type"));
    if (!type || strcmp(type, "ByteLevel") == 0) /* that one moves offsets only */
        return TEG_OK;
    if (strcmp(type, "TemplateProcessing") == 0)
        return read_template(h, post);
    if (strcmp(type, "RobertaProcessing") == 0 || strcmp(type, "BertProcessing") == 0)
        return read_bert(h, post);
    if (strcmp(type, "Sequence") == 0 && !in_sequence) {
        const json_t *const items = json_object_get(post, "processors");
        for (size_t i = 0; i < json_array_size(items); i++)
            TRY(read_post(h, json_array_get(items, i), true));
        return TEG_OK;
    }
    FAIL(h->err, TEG_ERR_UNSUPPORTED,
         WHERE ": %s: post_processor: expected a type that Tegula knows, found \"%.64s\"; use the model as GGUF",
         h->path, type);
}

/* ---- tokenizer_config.json ---- */

/* "<s>" or {"content":"<s>"} */
static int32_t token_named(const struct teg_tok *tok, const json_t *config, const char *key)
{
    const json_t *value = json_object_get(config, key);
    if (json_is_object(value))
        value = json_object_get(value, "content");
    const struct teg_string text = text_of(value);
    return teg_vocab_find(&tok->vocab, text.bytes, text.n_bytes);
}

/* A string, or [{"name":"default","template":…}, …]; the first stands in where none is called default. */
static const json_t *template_in(const json_t *config)
{
    const json_t *const value = json_object_get(config, "chat_template");
    if (!json_is_array(value))
        return value;
    for (size_t i = 0; i < json_array_size(value); i++) {
        const char *const name = json_string_value(json_object_get(json_array_get(value, i), "name"));
        if (name && strcmp(name, "default") == 0)
            return json_object_get(json_array_get(value, i), "template");
    }
    return json_object_get(json_array_get(value, 0), "template");
}

static enum teg_status keep_template(struct teg_tok *tok, struct teg_string text, struct teg_error *err)
{
    if (!text.n_bytes)
        return TEG_OK;
    const char *const copy = teg_arena_string(&tok->arena, text.bytes, text.n_bytes);
    if (!copy)
        return teg_base_fail_memory(err, "the chat template", text.n_bytes);
    tok->chat_template = (struct teg_string){copy, text.n_bytes};
    return TEG_OK;
}

enum teg_status teg_hf_names(struct teg_tok *tok, const struct json_t *config, struct teg_error *err)
{
    const int32_t bos = token_named(tok, config, "bos_token"), eos = token_named(tok, config, "eos_token");
    tok->bos = bos >= 0 ? bos : tok->bos;
    tok->eos = eos >= 0 ? eos : tok->eos;
    teg_tok_add_end(tok, tok->eos);
    return keep_template(tok, text_of(template_in(config)), err);
}

static enum teg_status read_config(struct hf *h, const json_t *config)
{
    struct teg_tok *const tok = h->tok;
    TRY(teg_hf_names(tok, config, h->err));
    /* A template in tokenizer.json is the later word; the flags are what older files have instead. */
    if (!tok->n_before && !tok->n_after) {
        if (is_true(config, "add_bos_token") && tok->bos >= 0)
            TRY(add_around(h, true, tok->bos));
        if (is_true(config, "add_eos_token") && tok->eos >= 0)
            TRY(add_around(h, false, tok->eos));
    }
    return TEG_OK;
}

/* ---- files ---- */

static enum teg_status read_root(struct hf *h, struct teg_span config)
{
    TRY(read_model(h));
    TRY(read_added(h));
    TRY(read_post(h, json_object_get(h->root, "post_processor"), false));
    if (h->tok->n_before)
        h->tok->bos = h->tok->before[0]; /* unless the config has its own word on it */
    if (!config.n_bytes)
        return TEG_OK;
    json_t *json;
    TRY(teg_json_object(config, "tokenizer_config.json", h->path, 0, &json, h->err));
    const enum teg_status status = read_config(h, json);
    json_decref(json);
    return status;
}

enum teg_status teg_tok_from_json(struct teg_tok *tok, struct teg_span json, struct teg_span config, const char *path,
                                  struct teg_error *err)
{
    const size_t most_bytes = teg_max(json.n_bytes, config.n_bytes);
    if (most_bytes > FILE_LIMIT_BYTES)
        FAIL(err, TEG_ERR_UNSUPPORTED, WHERE ": %s: expected at most %zu bytes, found %zu", path, FILE_LIMIT_BYTES,
             most_bytes);
    json_t *root;
    TRY(teg_json_object(json, "tokenizer.json", path, 0, &root, err));
    const json_t *const model = json_object_get(root, "model");
    struct hf h = {.tok = tok,
                   .root = root,
                   .model = model,
                   .vocab = json_object_get(model, "vocab"),
                   .added = json_object_get(root, "added_tokens"),
                   .path = path,
                   .n_bytes = json.n_bytes,
                   .err = err};
    const enum teg_status status = read_root(&h, config);
    json_decref(root);
    return status;
}

/* chat_template.jinja wins over the config: newer directories keep the template only there. */
enum teg_status teg_hf_template(struct teg_tok *tok, const char *path, struct teg_error *err)
{
    struct teg_filemap map;
    TRY(teg_filemap_open(&map, path, "cannot open the chat template", err));
    const enum teg_status status = keep_template(tok, (struct teg_string){(const char *)map.bytes, map.n_bytes}, err);
    teg_filemap_close(&map);
    return status;
}

enum teg_status teg_tok_from_hf(struct teg_tok *tok, const char *json_path, const char *config_path,
                                const char *template_path, struct teg_error *err)
{
    struct teg_filemap json, config = {0};
    TRY(teg_filemap_open(&json, json_path, "cannot open the tokenizer", err));
    enum teg_status status = TEG_OK;
    if (config_path)
        status = teg_filemap_open(&config, config_path, "cannot open the tokenizer's configuration", err);
    if (status == TEG_OK)
        status = teg_tok_from_json(tok, (struct teg_span){json.bytes, json.n_bytes},
                                   (struct teg_span){config.bytes, config.n_bytes}, json_path, err);
    if (config_path)
        teg_filemap_close(&config);
    teg_filemap_close(&json);
    if (status == TEG_OK && template_path)
        status = teg_hf_template(tok, template_path, err);
    return status;
}
