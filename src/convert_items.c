/* convert_items.c: what goes along with a converted model: its tokenizer, its chat template, its card, and how it was
 * made.
 *
 * A tokenizer travels as the files that it came in, so it cannot differ from the model's own. A GGUF's is the GGUF's
 * header without tensors: any reader of GGUF takes it. Not taken: a tokenizer.json derived from it; a pre-tokenizer is
 * only a name there, and a pattern written down for that name would be a copy that can be wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/filemap.h"
#include "base/hash.h"
#include "convert_model.h"

/* ---- files ---- */

static enum teg_status add_file(struct teg_convert_input *in, const char *path, const char *name,
                                const char *description, struct teg_error *err)
{
    struct teg_filemap *const map = teg_arena_array(&in->arena, 1, sizeof *map);
    if (!path || access(path, R_OK) != 0)
        return TEG_OK;
    if (!map || in->n_items == TEG_CONVERT_MOST_ITEMS)
        return teg_base_fail_memory(err, "tokenizer", sizeof *map);
    TRY(teg_filemap_open(map, path, "cannot read the tokenizer", err));
    in->maps[in->n_maps++] = map;
    in->items[in->n_items++] = (struct teg_emit_item){name, description, {map->bytes, map->n_bytes}};
    return TEG_OK;
}

static bool ends_with(const char *path, const char *ending)
{
    const size_t n = strlen(path), k = strlen(ending);
    return n >= k && strcmp(path + n - k, ending) == 0;
}

/* The file and what stands beside it. */
static enum teg_status add_files(struct teg_convert_input *in, const char *path, struct teg_error *err)
{
    if (!path)
        return TEG_OK;
    const char *const slash = strrchr(path, '/');
    const int n = slash ? (int)(slash - path) + 1 : 0;
    if (ends_with(path, ".gguf"))
        return add_file(in, path, "tokenizer.gguf", "Tokenizer (GGUF metadata)", err);
    const char *const config = teg_arena_printf(&in->arena, "%.*stokenizer_config.json", n, path);
    const char *const template = teg_arena_printf(&in->arena, "%.*schat_template.jinja", n, path);
    if (teg_tok_is_sentencepiece(path)) {
        const char *const added = teg_arena_printf(&in->arena, "%.*sadded_tokens.json", n, path);
        const char *const map = teg_arena_printf(&in->arena, "%.*sspecial_tokens_map.json", n, path);
        TRY(add_file(in, path, "tokenizer.model", "Tokenizer (SentencePiece)", err));
        TRY(add_file(in, added, "added_tokens.json", "Added tokens", err));
        TRY(add_file(in, map, "special_tokens_map.json", "Special tokens", err));
    } else {
        TRY(add_file(in, path, "tokenizer.json", "Tokenizer", err));
    }
    TRY(add_file(in, config, "tokenizer_config.json", "Tokenizer options", err));
    return add_file(in, template, "chat_template.jinja", "Chat template", err);
}

/* ---- a GGUF's header ---- */

static void put_word(struct teg_buf *out, uint64_t v, size_t n_bytes)
{
    char bytes[8];
    for (size_t i = 0; i < n_bytes; i++)
        bytes[i] = (char)(v >> (8 * i));
    teg_buf_append(out, bytes, n_bytes);
}

static void put_string(struct teg_buf *out, const char *bytes, size_t n_bytes)
{
    put_word(out, n_bytes, 8);
    teg_buf_append(out, bytes, n_bytes);
}

enum { GGUF_INT32 = 5, GGUF_FLOAT32 = 6, GGUF_BOOL = 7, GGUF_STRING = 8, GGUF_ARRAY = 9, GGUF_INT64 = 11 };

static uint32_t bits_of(double value)
{
    const float real = (float)value;
    uint32_t bits;
    memcpy(&bits, &real, sizeof bits);
    return bits;
}

/* One entry; false: of a kind that a GGUF has not. Integers that need no more have 32 bits, as token types have. */
static bool put_meta(struct teg_buf *out, const struct teg_meta *m)
{
    static const uint8_t types[] = {
        [TEG_META_INT] = GGUF_INT64,       [TEG_META_FLOAT] = GGUF_FLOAT32,      [TEG_META_BOOL] = GGUF_BOOL,
        [TEG_META_STRING] = GGUF_STRING,   [TEG_META_ARRAY_INT] = GGUF_INT32,    [TEG_META_ARRAY_FLOAT] = GGUF_FLOAT32,
        [TEG_META_ARRAY_BOOL] = GGUF_BOOL, [TEG_META_ARRAY_STRING] = GGUF_STRING};
    if (m->type >= sizeof types)
        return false;
    const bool is_array = m->type >= TEG_META_ARRAY_INT;
    put_string(out, m->key, strlen(m->key));
    if (is_array)
        put_word(out, GGUF_ARRAY, 4);
    put_word(out, types[m->type], 4);
    if (is_array)
        put_word(out, m->n, 8);
    for (size_t i = 0; i < m->n; i++)
        switch (m->type) {
        case TEG_META_INT:
            put_word(out, (uint64_t)m->integer, 8);
            break;
        case TEG_META_FLOAT:
            put_word(out, bits_of(m->real), 4);
            break;
        case TEG_META_BOOL:
            put_word(out, m->boolean, 1);
            break;
        case TEG_META_STRING:
            put_string(out, m->string.bytes, m->string.n_bytes);
            break;
        case TEG_META_ARRAY_INT:
            put_word(out, (uint64_t)m->integers[i], 4);
            break;
        case TEG_META_ARRAY_FLOAT:
            put_word(out, bits_of(m->reals[i]), 4);
            break;
        case TEG_META_ARRAY_BOOL:
            put_word(out, m->booleans[i], 1);
            break;
        default:
            put_string(out, m->strings[i].bytes, m->strings[i].n_bytes);
        }
    return true;
}

static enum teg_status add_header(struct teg_convert_input *in, struct teg_error *err)
{
    struct teg_buf body = {0}, out = {0};
    struct teg_text text = {0};
    uint64_t n = 0;
    for (size_t i = 0; i < in->source->n_metas; i++) {
        const struct teg_meta *const m = &in->source->metas[i];
        if (strncmp(m->key, "tokenizer.", 10) == 0 || strncmp(m->key, "general.", 8) == 0)
            n += put_meta(&body, m);
    }
    teg_buf_append(&out, "GGUF", 4);
    put_word(&out, 3, 4);
    put_word(&out, 0, 8);
    put_word(&out, n, 8);
    teg_buf_append(&out, body.bytes, body.n_bytes);
    out.failed = out.failed || body.failed;
    teg_buf_free(&body);
    TRY(teg_buf_take(&out, &text, "tokenizer", err));
    char *const copy = teg_arena_string(&in->arena, text.bytes, text.n_bytes);
    const size_t n_bytes = text.n_bytes;
    teg_text_free(&text);
    if (!copy)
        return teg_base_fail_memory(err, "tokenizer", n_bytes);
    in->items[in->n_items++] =
        (struct teg_emit_item){"tokenizer.gguf", "Tokenizer (GGUF metadata)", {(const uint8_t *)copy, n_bytes}};
    return TEG_OK;
}

/* "2,32000": the ids that end an answer. */
static const char *end_ids(const struct teg_tok *tok, struct teg_arena *arena)
{
    const char *list = "";
    for (size_t id = 0; list && id < teg_tok_size(tok); id++)
        if (teg_tok_is_end(tok, (int32_t)id))
            list = teg_arena_printf(arena, "%s%s%zu", list, list[0] ? "," : "", id);
    return list;
}

/* generation_config.json: the ids that begin and end a text, whatever file of the model said so. */
static enum teg_status add_ends(struct teg_convert_input *in, struct teg_error *err)
{
    const char *const ids = end_ids(in->tok, &in->arena);
    const int32_t bos = teg_tok_bos(in->tok);
    const char *const begin = bos < 0 ? "" : teg_arena_printf(&in->arena, "\"bos_token_id\": %d, ", (int)bos);
    const char *const text = teg_arena_printf(&in->arena, "{%s\"eos_token_id\": [%s]}\n", begin, ids);
    if (!ids || !begin || !text)
        return teg_base_fail_memory(err, "tokenizer", 64);
    in->items[in->n_items++] = (struct teg_emit_item){
        "generation_config.json", "Ids that end an answer", {(const uint8_t *)text, strlen(text)}};
    return TEG_OK;
}

enum teg_status teg_convert_items(struct teg_convert_input *in, struct teg_error *err)
{
    const struct teg_source *const s = in->source;
    if (!in->tok && !in->tokenizer)
        return TEG_OK;
    if (s && !in->tokenizer && s->kind == TEG_SOURCE_GGUF)
        return add_header(in, err);
    const char *const path = in->tokenizer ? in->tokenizer : s ? s->tokenizer_path : NULL;
    TRY(add_files(in, path, err));
    if (!in->n_items || ends_with(path, ".gguf"))
        return TEG_OK;
    if (in->tok)
        return add_ends(in, err);
    const char *const slash = strrchr(path, '/');
    const char *const ends =
        teg_arena_printf(&in->arena, "%.*sgeneration_config.json", slash ? (int)(slash - path) + 1 : 0, path);
    return add_file(in, ends, "generation_config.json", "Ids that end an answer", err);
}

void teg_convert_items_free(struct teg_convert_input *in)
{
    for (size_t i = 0; i < in->n_maps; i++)
        teg_filemap_close(in->maps[i]);
    in->n_maps = in->n_items = 0;
}

/* ---- card and metadata ---- */

static struct teg_string text_meta(const struct teg_convert_input *in, const char *gguf, const char *other)
{
    const char *const key = in->source && in->source->kind == TEG_SOURCE_GGUF ? gguf : other;
    const struct teg_meta *const m = in->source && key ? teg_source_meta(in->source, key) : NULL;
    return m && m->type == TEG_META_STRING ? m->string : (struct teg_string){"", 0};
}

/* Names, types and bytes of all weights: what the model is, wherever its file lies. Read pages go back, or the whole
 * model would stay in memory until each weight has been made. */
static struct teg_hash hash_of(const struct teg_convert_input *in)
{
    struct teg_hasher h;
    teg_hasher_init(&h);
    for (size_t i = 0; in->source && i < in->source->n_tensors; i++) {
        const struct teg_tensor *const t = &in->source->tensors[i];
        teg_hasher_add(&h, t->name, strlen(t->name) + 1);
        teg_hasher_add(&h, t->data, t->n_bytes);
        teg_convert_release(t->data, t->n_bytes);
    }
    for (uint32_t i = 0; !in->source && i < in->graph->n_values; i++) {
        const struct teg_value *const v = &in->graph->values[i];
        if (v->kind == TEG_VALUE_CONST && v->data)
            teg_hasher_add(&h, v->data, v->n_bytes);
    }
    return teg_hasher_end(&h);
}

struct pairs {
    struct teg_arena *arena;
    struct teg_string (*at)[2];
    size_t n;
    bool failed;
};
enum { MOST_PAIRS = 16 };

static void add_pair(struct pairs *p, const char *key, struct teg_string value)
{
    const char *const own_key = teg_arena_string(p->arena, key, strlen(key));
    const char *const own = teg_arena_string(p->arena, value.bytes ? value.bytes : "", value.n_bytes);
    if (!own_key || !own || p->n == MOST_PAIRS) {
        p->failed = true;
        return;
    }
    p->at[p->n][0] = (struct teg_string){own_key, strlen(own_key)};
    p->at[p->n++][1] = (struct teg_string){own, value.n_bytes};
}

static void add_text(struct pairs *p, const char *key, const char *text)
{
    if (text)
        add_pair(p, key, (struct teg_string){text, strlen(text)});
    p->failed = p->failed || !text;
}

static void add_tokenizer(struct pairs *p, const struct teg_tok *tok)
{
    const struct teg_string template = teg_tok_chat_template(tok);
    if (template.n_bytes)
        add_pair(p, "tegula.chat_template", template);
    add_text(p, "tegula.bos_id", teg_arena_printf(p->arena, "%d", (int)teg_tok_bos(tok)));
    add_text(p, "tegula.end_ids", end_ids(tok, p->arena));
}

static const char *options_text(const struct teg_convert_lowered *how, struct teg_arena *arena)
{
    static const char *const forms[] = {"two-pass", "online", "split"};
    const struct teg_lower_options *const l = how->lower;
    return teg_arena_printf(arena, "profile=%s weights=%s softmax=%s ctx=%u chunk=%u kv-tile=%u layers=%u+%u",
                            how->options->profile, how->options->weights, forms[l->softmax], l->context, l->chunk,
                            l->kv_tile, l->first_layer, l->n_layers);
}

enum teg_status teg_convert_describe(const struct teg_convert_input *in, const struct teg_convert_lowered *how,
                                     struct teg_mil_program *program, struct teg_error *err)
{
    struct teg_arena *const arena = &program->arena;
    const struct teg_hash hash = hash_of(in);
    const char *const slash = strrchr(in->path, '/');
    struct pairs p = {.arena = arena, .at = teg_arena_array(arena, MOST_PAIRS, sizeof *p.at)};
    if (!p.at)
        return teg_base_fail_memory(err, "metadata", MOST_PAIRS);
    add_text(&p, "tegula.version", teg_version());
    add_text(&p, "tegula.options", options_text(how, arena));
    add_text(&p, "tegula.source", slash && slash[1] ? slash + 1 : in->path);
    add_text(&p, "tegula.source_hash",
             teg_arena_printf(arena, "%016llx%016llx", (unsigned long long)hash.high, (unsigned long long)hash.low));
    add_text(&p, "tegula.context", teg_arena_printf(arena, "%u", how->lower->context));
    add_text(&p, "tegula.chunk", teg_arena_printf(arena, "%u", how->lower->chunk));
    if (in->tok)
        add_tokenizer(&p, in->tok);
    const struct teg_string name = text_meta(in, "general.name", "_name_or_path");
    const struct teg_string author = text_meta(in, "general.author", NULL);
    const struct teg_string license = text_meta(in, "general.license", NULL);
    const struct teg_mil_program *const old = in->program ? in->program->mil : NULL;
    program->description =
        old && old->description[0] ? old->description : teg_arena_string(arena, name.bytes, name.n_bytes);
    program->author = old ? old->author : teg_arena_string(arena, author.bytes, author.n_bytes);
    program->license = old ? old->license : teg_arena_string(arena, license.bytes, license.n_bytes);
    program->version = old ? old->version : "";
    if (p.failed || !program->description || !program->author || !program->license)
        return teg_base_fail_memory(err, "metadata", MOST_PAIRS);
    program->user_metadata = (const struct teg_string(*)[2])p.at;
    program->n_user_metadata = p.n;
    return TEG_OK;
}
