/* tok/tok_model.c: SentencePiece's own file, tokenizer.model, with what Hugging Face's directories keep beside it.
 *
 *     ModelProto       1 pieces (SentencePiece, repeated)   2 trainer_spec   3 normalizer_spec
 *     SentencePiece    1 piece (text)   2 score (float)   3 type: 1 normal, 2 unknown, 3 control, 4 user's, 5 unused, 6
 * byte TrainerSpec      3 model_type: 1 unigram, 2 BPE   24 treat_whitespace_as_suffix   35 byte_fallback 40 unk_id 41
 * bos_id   42 eos_id NormalizerSpec   2 precompiled_charsmap   3 add_dummy_prefix   4 remove_extra_whitespaces   5
 * escape_whitespaces
 *
 * Protobuf is read in place (base/wire.h). An id is the position of its piece; more tokens come from
 * tokenizer_config.json ("added_tokens_decoder"), added_tokens.json and special_tokens_map.json. Texts are copied, the
 * files are closed again. Not taken: a tokenizer.json derived from the file, as transformers does; its normalizer is
 * only nearly SentencePiece's. */
#include <jansson.h>

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/filemap.h"
#include "base/wire.h"
#include "format/json.h"
#include "tok/tok_int.h"

#define WHERE "cannot read tokenizer.model"
#define FILE_LIMIT_BYTES ((size_t)64 << 20)

enum { MODEL_UNIGRAM = 1, MODEL_BPE = 2 };

struct trainer {
    uint64_t model_type, suffix, byte_fallback, unk, bos, eos;
};

struct normalizer {
    struct teg_span charsmap;
    uint64_t add_prefix, remove_extra, escape;
};

struct proto {
    size_t n_pieces;
    struct teg_span trainer, normalizer;
};

struct piece {
    struct teg_span text;
    uint64_t score, type;
};

/* A token that a JSON file adds or describes. */
struct added {
    size_t id;
    struct teg_string text;
    uint8_t type, flags;
};

struct reader {
    struct teg_tok *tok;
    const struct teg_model_files *files;
    struct trainer trainer;
    struct normalizer normalizer;
    size_t n_pieces;
    json_t *config, *extra, *map; /* NULL: no such file */
    struct added *added;
    size_t n_added;
    double *scores;
    uint8_t *flags; /* of specials, for each token */
    struct teg_error *err;
};

/* ---- protobuf ---- */

static enum teg_status read_message(const struct reader *r, struct teg_span message, const struct teg_wire_row *rows,
                                    size_t n_rows, const char *what, void *out)
{
    size_t bad = 0;
    if (!teg_wire_read(message, rows, n_rows, out, &bad)) {
        const size_t at = (size_t)(message.bytes - r->files->model.bytes) + bad;
        FAIL_AT(r->err, TEG_ERR_FORMAT, at,
                WHERE ": %s at byte %zu: expected a field of %s, found damage; download the file again", r->files->path,
                at, what);
    }
    return TEG_OK;
}

#define ROW(number, kind, type, member)                                                                                \
    {                                                                                                                  \
        number, kind, offsetof(type, member)                                                                           \
    }
#define READ(r, message, rows, what, out) read_message(r, message, rows, sizeof(rows) / sizeof *(rows), what, out)

static enum teg_status read_proto(struct reader *r)
{
    static const struct teg_wire_row model[] = {
        ROW(1, TEG_WIRE_COUNT, struct proto, n_pieces),
        ROW(2, TEG_WIRE_SPAN, struct proto, trainer),
        ROW(3, TEG_WIRE_SPAN, struct proto, normalizer),
    };
    static const struct teg_wire_row trainer[] = {
        ROW(3, TEG_WIRE_UINT, struct trainer, model_type),     ROW(24, TEG_WIRE_UINT, struct trainer, suffix),
        ROW(35, TEG_WIRE_UINT, struct trainer, byte_fallback), ROW(40, TEG_WIRE_UINT, struct trainer, unk),
        ROW(41, TEG_WIRE_UINT, struct trainer, bos),           ROW(42, TEG_WIRE_UINT, struct trainer, eos),
    };
    static const struct teg_wire_row normalizer[] = {
        ROW(2, TEG_WIRE_SPAN, struct normalizer, charsmap),
        ROW(3, TEG_WIRE_UINT, struct normalizer, add_prefix),
        ROW(4, TEG_WIRE_UINT, struct normalizer, remove_extra),
        ROW(5, TEG_WIRE_UINT, struct normalizer, escape),
    };
    struct proto proto = {0};
    TRY(READ(r, r->files->model, model, "ModelProto", &proto));
    /* what the fields are where the file leaves them out */
    r->trainer = (struct trainer){.model_type = MODEL_UNIGRAM, .bos = 1, .eos = 2};
    r->normalizer = (struct normalizer){.add_prefix = 1, .remove_extra = 1, .escape = 1};
    TRY(READ(r, proto.trainer, trainer, "TrainerSpec", &r->trainer));
    TRY(READ(r, proto.normalizer, normalizer, "NormalizerSpec", &r->normalizer));
    if (!proto.n_pieces || proto.n_pieces > INT32_MAX / 2)
        FAIL(r->err, TEG_ERR_FORMAT, WHERE ": %s: expected 1 to %d pieces, found %zu; give the model's tokenizer.json",
             r->files->path, INT32_MAX / 2, proto.n_pieces);
    if (r->trainer.model_type != MODEL_UNIGRAM && r->trainer.model_type != MODEL_BPE)
        FAIL(r->err, TEG_ERR_UNSUPPORTED,
             WHERE ": %s: model_type: expected 1 (unigram) or 2 (BPE), found %llu; give the model's tokenizer.json",
             r->files->path, (unsigned long long)r->trainer.model_type);
    r->n_pieces = proto.n_pieces;
    return TEG_OK;
}

/* ---- tokens of the other files ---- */

static bool is_true(const json_t *json, const char *key)
{
    return json_is_true(json_object_get(json, key));
}

static enum teg_status add(struct reader *r, const char *file, json_int_t id, const char *text, size_t n_bytes,
                           const json_t *options)
{
    const size_t limit = r->n_pieces + r->files->config.n_bytes + r->files->added.n_bytes;
    if (id < 0 || (uint64_t)id >= limit || !n_bytes)
        FAIL(r->err, TEG_ERR_FORMAT, WHERE ": %s: %s: expected a text and an id under %zu, found \"%.64s\" and %lld",
             r->files->path, file, limit, text ? text : "", (long long)id);
    const char *const copy = teg_arena_string(&r->tok->arena, text, n_bytes);
    if (!copy)
        return teg_base_fail_memory(r->err, "added tokens", n_bytes);
    const unsigned flags = (is_true(options, "lstrip") ? TEG_SPECIAL_LSTRIP : 0u) |
                           (is_true(options, "rstrip") ? TEG_SPECIAL_RSTRIP : 0u) |
                           (is_true(options, "single_word") ? TEG_SPECIAL_WORD : 0u) |
                           (is_true(options, "normalized") ? TEG_SPECIAL_NORMALIZED : 0u);
    r->added[r->n_added++] = (struct added){
        (size_t)id, {copy, n_bytes}, is_true(options, "special") ? TEG_TOKEN_CONTROL : TEG_TOKEN_USER, (uint8_t)flags};
    return TEG_OK;
}

static enum teg_status read_added(struct reader *r)
{
    json_t *const described = json_object_get(r->config, "added_tokens_decoder");
    const size_t n = json_object_size(r->extra) + json_object_size(described);
    const char *key;
    size_t n_key;
    json_t *value;
    r->added = teg_arena_array(&r->tok->arena, n, sizeof *r->added);
    if (!r->added)
        return teg_base_fail_memory(r->err, "added tokens", n * sizeof *r->added);
    json_object_keylen_foreach(r->extra, key, n_key, value)
        TRY(add(r, "added_tokens.json", json_is_integer(value) ? json_integer_value(value) : -1, key, n_key, NULL));
    json_object_foreach(described, key, value)
    {
        const json_t *const text = json_object_get(value, "content");
        char *end;
        const long long id = strtoll(key, &end, 10); /* saturates */
        TRY(add(r, "tokenizer_config.json", *end || end == key ? -1 : id, json_string_value(text),
                json_string_length(text), value));
    }
    return TEG_OK;
}

/* ---- vocabulary ---- */

static double score_of(uint64_t bits)
{
    const uint32_t low = (uint32_t)bits;
    float score;
    memcpy(&score, &low, sizeof score);
    return (double)score;
}

static enum teg_status read_pieces(struct reader *r, struct teg_string *texts, uint8_t *types)
{
    static const struct teg_wire_row rows[] = {
        ROW(1, TEG_WIRE_SPAN, struct piece, text),
        ROW(2, TEG_WIRE_UINT, struct piece, score),
        ROW(3, TEG_WIRE_UINT, struct piece, type),
    };
    struct teg_wire_iter iter = teg_wire_iter_of(r->files->model, 1);
    struct teg_wire_field field;
    for (size_t id = 0; teg_wire_each(&iter, &field); id++) {
        struct piece p = {.type = TEG_TOKEN_NORMAL};
        TRY(READ(r, field.bytes, rows, "SentencePiece", &p));
        if (p.type < TEG_TOKEN_NORMAL || p.type > TEG_TOKEN_BYTE)
            FAIL(r->err, TEG_ERR_FORMAT, WHERE ": %s: piece %zu: expected a type from 1 to 6, found %llu",
                 r->files->path, id, (unsigned long long)p.type);
        const char *const copy =
            teg_arena_string(&r->tok->arena, p.text.n_bytes ? (const char *)p.text.bytes : "", p.text.n_bytes);
        if (!copy)
            return teg_base_fail_memory(r->err, "the vocabulary", p.text.n_bytes);
        texts[id] = (struct teg_string){copy, p.text.n_bytes};
        types[id] = (uint8_t)p.type;
        r->flags[id] = p.type == TEG_TOKEN_USER ? TEG_SPECIAL_PIECE : 0;
        r->scores[id] = score_of(p.score);
    }
    return TEG_OK;
}

static enum teg_status read_vocab(struct reader *r)
{
    size_t n = r->n_pieces;
    for (size_t i = 0; i < r->n_added; i++)
        n = teg_max(n, r->added[i].id + 1);
    struct teg_arena *const arena = &r->tok->arena;
    struct teg_string *const texts = teg_arena_array(arena, n, sizeof *texts);
    uint8_t *const types = teg_arena_array(arena, n, 1);
    r->scores = teg_arena_array(arena, n, sizeof *r->scores);
    r->flags = teg_arena_array(arena, n, 1);
    if (!texts || !types || !r->scores || !r->flags)
        return teg_base_fail_memory(r->err, "the vocabulary", n * (sizeof *texts + sizeof *r->scores + 2));
    memset(types, TEG_TOKEN_UNUSED, n);
    TRY(read_pieces(r, texts, types));
    for (size_t i = 0; i < r->n_added; i++) {
        const struct added *const a = &r->added[i];
        const bool special = types[a->id] == TEG_TOKEN_CONTROL || types[a->id] == TEG_TOKEN_UNKNOWN;
        if (!special) /* a control of the model's stays one */
            types[a->id] = a->type;
        texts[a->id] = a->text;
        r->flags[a->id] = a->flags;
    }
    r->tok->vocab.texts = texts;
    r->tok->vocab.types = types;
    r->tok->vocab.n = n;
    return TEG_OK;
}

/* special_tokens_map.json names tokens that are special, whatever their type says. */
static void mark_special(const struct reader *r, const json_t *value)
{
    const json_t *const text = json_is_object(value) ? json_object_get(value, "content") : value;
    const int32_t id = teg_vocab_find(&r->tok->vocab, json_string_value(text), json_string_length(text));
    if (id >= 0 && r->tok->vocab.types[id] != TEG_TOKEN_UNKNOWN) {
        r->tok->vocab.types[id] = TEG_TOKEN_CONTROL;
        r->flags[id] &= (uint8_t)~TEG_SPECIAL_PIECE;
    }
}

static void read_map(const struct reader *r)
{
    const char *key;
    json_t *value;
    json_object_foreach(r->map, key, value)
    {
        mark_special(r, value);
        for (size_t i = 0; i < json_array_size(value); i++)
            mark_special(r, json_array_get(value, i));
    }
}

/* ---- rules ---- */

/* transformers writes the prefix before every segment, unless the directory says that it was made after that was found
 * to be a mistake ("legacy": false). */
static enum teg_prefix prefix_of(const struct reader *r)
{
    const json_t *const wanted = json_object_get(r->config, "add_prefix_space");
    if (!r->normalizer.add_prefix || json_is_false(wanted))
        return TEG_PREFIX_NEVER;
    return json_is_false(json_object_get(r->config, "legacy")) ? TEG_PREFIX_FIRST : TEG_PREFIX_ALWAYS;
}

/* Symbols of the user's are looked for before any rule is. */
static enum teg_status read_kept(const struct reader *r, struct teg_specials *kept)
{
    const struct teg_vocab *const vocab = &r->tok->vocab;
    size_t n_bytes = 0;
    for (size_t id = 0; id < vocab->n; id++)
        n_bytes += r->flags[id] & TEG_SPECIAL_PIECE ? vocab->texts[id].n_bytes : 0;
    TRY(teg_specials_reserve(kept, &r->tok->arena, n_bytes, r->err));
    for (size_t id = 0; id < vocab->n; id++)
        if (r->flags[id] & TEG_SPECIAL_PIECE && vocab->texts[id].n_bytes)
            teg_specials_add(kept, vocab->texts[id], (int32_t)id, 0);
    return TEG_OK;
}

static enum teg_status read_normalizer(struct reader *r)
{
    struct teg_tok *const tok = r->tok;
    const struct teg_span blob = r->normalizer.charsmap;
    struct teg_sentence *const s = teg_arena_array(&tok->arena, 1, sizeof *s);
    uint8_t *const copy = teg_arena_array(&tok->arena, blob.n_bytes, 1);
    if (!s || !copy)
        return teg_base_fail_memory(r->err, "the normalization rules", blob.n_bytes);
    *s = (struct teg_sentence){.prefix = prefix_of(r),
                               .suffix = r->trainer.suffix != 0,
                               .remove_extra = r->normalizer.remove_extra != 0,
                               .escape = r->normalizer.escape != 0};
    TRY(read_kept(r, &s->kept));
    if (blob.n_bytes) {
        const char *const where = teg_arena_printf(&tok->arena, WHERE ": %s", r->files->path);
        memcpy(copy, blob.bytes, blob.n_bytes);
        TRY(teg_charsmap_open(&s->map, (struct teg_span){copy, blob.n_bytes}, where ? where : WHERE, r->err));
    }
    tok->normal.steps[tok->normal.n_steps++] = (struct teg_normal_step){.kind = TEG_NORMAL_SENTENCE, .sentence = s};
    tok->marks_spaces = s->escape;
    tok->strips = s->suffix ? TEG_PREFIX_NEVER : s->prefix;
    return TEG_OK;
}

static int32_t id_of(const struct reader *r, uint64_t id)
{
    return id < r->n_pieces ? (int32_t)id : -1; /* -1 is a very large number here */
}

/* What stands around a text: the config's word, else as in a GGUF: BOS for BPE models, EOS for unigram ones. */
static void read_around(const struct reader *r)
{
    struct teg_tok *const tok = r->tok;
    const json_t *const bos = json_object_get(r->config, "add_bos_token");
    const json_t *const eos = json_object_get(r->config, "add_eos_token");
    const bool bpe = tok->kind == TEG_TOK_SCORES;
    if ((json_is_boolean(bos) ? json_is_true(bos) : bpe) && tok->bos >= 0)
        tok->before[tok->n_before++] = tok->bos;
    if ((json_is_boolean(eos) ? json_is_true(eos) : !bpe) && tok->eos >= 0)
        tok->after[tok->n_after++] = tok->eos;
}

static enum teg_status read_all(struct reader *r)
{
    struct teg_tok *const tok = r->tok;
    TRY(read_proto(r));
    TRY(read_added(r));
    TRY(read_vocab(r));
    tok->kind = r->trainer.model_type == MODEL_BPE ? TEG_TOK_SCORES : TEG_TOK_UNIGRAM;
    tok->unk = id_of(r, r->trainer.unk);
    tok->bos = id_of(r, r->trainer.bos);
    tok->eos = id_of(r, r->trainer.eos);
    tok->fuse_unknown = true;
    TRY(teg_tok_index(tok, r->err));
    tok->byte_fallback = tok->byte_fallback && r->trainer.byte_fallback;
    read_map(r);
    TRY(read_normalizer(r));
    TRY(teg_spm_scores(tok, r->scores, r->err));
    TRY(teg_tok_add_specials(tok, r->flags, r->err));
    teg_tok_add_end(tok, tok->eos);
    if (r->config)
        TRY(teg_hf_names(tok, r->config, r->err));
    read_around(r);
    return TEG_OK;
}

/* ---- files ---- */

static enum teg_status parse(const struct reader *r, struct teg_span text, const char *name, json_t **json)
{
    return text.n_bytes ? teg_json_object(text, name, r->files->path, 0, json, r->err) : TEG_OK;
}

enum teg_status teg_tok_from_model_bytes(struct teg_tok *tok, const struct teg_model_files *files,
                                         struct teg_error *err)
{
    struct reader r = {.tok = tok, .files = files, .err = err};
    if (files->model.n_bytes > FILE_LIMIT_BYTES)
        FAIL(err, TEG_ERR_UNSUPPORTED, WHERE ": %s: expected at most %zu bytes, found %zu", files->path,
             FILE_LIMIT_BYTES, files->model.n_bytes);
    enum teg_status status = parse(&r, files->config, "tokenizer_config.json", &r.config);
    if (status == TEG_OK)
        status = parse(&r, files->added, "added_tokens.json", &r.extra);
    if (status == TEG_OK)
        status = parse(&r, files->map, "special_tokens_map.json", &r.map);
    if (status == TEG_OK)
        status = read_all(&r);
    json_decref(r.config);
    json_decref(r.extra);
    json_decref(r.map);
    return status;
}

bool teg_tok_is_model(struct teg_span head)
{
    size_t i = 0;
    while (i < head.n_bytes && strchr(" \t\r\n", head.bytes[i]) && head.bytes[i])
        i++;
    return head.n_bytes > 1 && head.bytes[0] == '\n' && !(i < head.n_bytes && head.bytes[i] == '{');
}

enum teg_status teg_tok_from_model(struct teg_tok *tok, const char *model_path, const char *config_path,
                                   const char *template_path, struct teg_error *err)
{
    enum { MODEL, CONFIG, ADDED, MAP, N };
    const char *const paths[N] = {model_path, config_path, teg_tok_beside(tok, model_path, "added_tokens.json"),
                                  teg_tok_beside(tok, model_path, "special_tokens_map.json")};
    struct teg_filemap maps[N] = {{0}};
    struct teg_span spans[N] = {{0}};
    enum teg_status status = TEG_OK;
    size_t n = 0;
    for (; n < N && status == TEG_OK; n++) {
        if (paths[n])
            status = teg_filemap_open(&maps[n], paths[n], "cannot open the tokenizer", err);
        spans[n] = (struct teg_span){maps[n].bytes, maps[n].n_bytes};
    }
    const struct teg_model_files files = {spans[MODEL], spans[CONFIG], spans[ADDED], spans[MAP], model_path};
    if (status == TEG_OK)
        status = teg_tok_from_model_bytes(tok, &files, err);
    for (size_t i = 0; i < n; i++)
        teg_filemap_close(&maps[i]);
    if (status == TEG_OK && template_path)
        status = teg_hf_template(tok, template_path, err);
    return status;
}
