/* build/hparams.c: metadata -> hyperparameters, by the tables of fields.c.
 *
 * Any key that no table has and that is not known to be harmless, with a value that is not zero, false, null or empty,
 * is an error that names it, because it may be exactly the one that makes this model different. */
#include "build/fields.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define AT(member) offsetof(struct teg_hparams, member)
#define ABSENT TEG_HPARAMS_ABSENT

/* ---- one value, from GGUF or from JSON ---- */

/* What a field needs of a value: a number, a list of numbers, or text. */
struct reading {
    const struct teg_source *source;
    struct teg_arena *arena;
    struct teg_hparams *hp;
    struct teg_error *err;
};

static enum teg_status wrong_type(const struct reading *r, const char *key, const char *expected, const char *found)
{
    FAIL(r->err, TEG_ERR_FORMAT,
         "cannot read model: %s: key %s: expected %s, found %s; the file is damaged or was "
         "written by a faulty converter",
         r->source->path, key, expected, found);
}

static enum teg_status put_number(const struct reading *r, const struct teg_field *f, const char *key, double x,
                                  bool is_bool, const char *type_name)
{
    char *const at = (char *)r->hp + f->offset;
    char found[64];
    (void)snprintf(found, sizeof found, "%s %.9g", type_name, x);
    switch (f->type) {
    case FIELD_U32:
        if (is_bool || !(x >= 0 && x <= INT32_MAX) || x != floor(x))
            return wrong_type(r, key, "a whole number from 0 to 2147483647", found);
        *(uint32_t *)(void *)at = (uint32_t)x;
        return TEG_OK;
    case FIELD_F32:
        if (is_bool || !isfinite((float)x))
            return wrong_type(r, key, "a finite number", found);
        *(float *)(void *)at = (float)x;
        return TEG_OK;
    case FIELD_BOOL:
        if (!is_bool)
            return wrong_type(r, key, "true or false", found);
        *(bool *)at = x != 0;
        return TEG_OK;
    default:
        return wrong_type(r, key, "a list", type_name);
    }
}

/* A list of numbers: stored as such, or, for a single field, taken when all items agree (some converters write head
 * counts per layer). */
static enum teg_status put_list(const struct reading *r, const struct teg_field *f, const char *key,
                                const double *items, size_t n, const char *type_name)
{
    char *const at = (char *)r->hp + f->offset;
    if (f->type == FIELD_F32S || f->type == FIELD_BOOLS) {
        float *const reals = teg_arena_array(r->arena, n + 1, sizeof *reals);
        bool *const bools = teg_arena_array(r->arena, n + 1, sizeof *bools);
        if (!reals || !bools)
            return teg_base_fail_memory(r->err, key, n * sizeof *reals);
        for (size_t i = 0; i < n; i++) {
            reals[i] = (float)items[i];
            bools[i] = items[i] != 0;
        }
        if (f->type == FIELD_BOOLS && n != r->hp->n_layers)
            return wrong_type(r, key, "one item a layer", type_name);
        if (f->type == FIELD_F32S)
            *(const float **)(void *)at = reals;
        else
            *(const bool **)(void *)at = bools;
        return TEG_OK;
    }
    if (n != r->hp->n_layers)
        return wrong_type(r, key, "one item a layer", type_name);
    for (size_t i = 1; i < n; i++)
        if (items[i] != items[0])
            FAIL(r->err, TEG_ERR_UNSUPPORTED,
                 "cannot run model: %s: key %s: expected one value for all layers, found "
                 "several; models whose layers differ in size are not supported",
                 r->source->path, key);
    return put_number(r, f, key, items[0], false, type_name);
}

static enum teg_status put_meta(const struct reading *r, const struct teg_field *f, const struct teg_meta *m)
{
    switch (m->type) {
    case TEG_META_INT:
        return put_number(r, f, m->key, (double)m->integer, false, m->type_name);
    case TEG_META_FLOAT:
        return put_number(r, f, m->key, m->real, false, m->type_name);
    case TEG_META_BOOL:
        return put_number(r, f, m->key, m->boolean, true, m->type_name);
    case TEG_META_NULL:
        return TEG_OK;
    case TEG_META_ARRAY_INT:
    case TEG_META_ARRAY_BOOL:
    case TEG_META_ARRAY_FLOAT: {
        double *const items = teg_arena_array(r->arena, m->n + 1, sizeof *items);
        if (!items)
            return teg_base_fail_memory(r->err, m->key, m->n * sizeof *items);
        for (size_t i = 0; i < m->n; i++)
            items[i] = m->type == TEG_META_ARRAY_INT    ? (double)m->integers[i]
                       : m->type == TEG_META_ARRAY_BOOL ? (double)m->booleans[i]
                                                        : m->reals[i];
        return put_list(r, f, m->key, items, m->n, m->type_name);
    }
    default:
        return wrong_type(r, m->key, "a number", m->type_name);
    }
}

/* A JSON value as the metadata entry it would be at the top level; strings and arrays live in the arena. */
static enum teg_status meta_of_json(const struct reading *r, const char *key, const json_t *json, struct teg_meta *m)
{
    static const char *const names[] = {"object", "array", "string", "integer", "real", "true", "false", "null"};
    *m = (struct teg_meta){.key = key, .n = 1, .type_name = names[json_typeof(json)]};
    switch (json_typeof(json)) {
    case JSON_INTEGER:
        m->type = TEG_META_INT;
        m->integer = json_integer_value(json);
        return TEG_OK;
    case JSON_REAL:
        m->type = TEG_META_FLOAT;
        m->real = json_real_value(json);
        return TEG_OK;
    case JSON_TRUE:
    case JSON_FALSE:
        m->type = TEG_META_BOOL;
        m->boolean = json_is_true(json);
        return TEG_OK;
    case JSON_STRING:
        m->type = TEG_META_STRING;
        m->string.n_bytes = json_string_length(json);
        m->string.bytes = teg_arena_string(r->arena, json_string_value(json), m->string.n_bytes);
        return m->string.bytes ? TEG_OK : teg_base_fail_memory(r->err, key, m->string.n_bytes);
    case JSON_ARRAY: {
        m->n = json_array_size(json);
        double *const items = teg_arena_array(r->arena, m->n + 1, sizeof *items);
        struct teg_string *const strings = teg_arena_array(r->arena, m->n + 1, sizeof *strings);
        if (!items || !strings)
            return teg_base_fail_memory(r->err, key, m->n * sizeof *items);
        size_t n_numbers = 0, n_strings = 0;
        for (size_t i = 0; i < m->n; i++) {
            struct teg_meta item;
            const json_t *const value = json_array_get(json, i);
            if (json_is_array(value) || json_is_object(value))
                continue;
            TRY(meta_of_json(r, key, value, &item));
            n_strings += item.type == TEG_META_STRING;
            n_numbers += item.type == TEG_META_INT || item.type == TEG_META_FLOAT || item.type == TEG_META_BOOL;
            if (item.type == TEG_META_STRING)
                strings[i] = item.string;
            else
                items[i] = item.type == TEG_META_INT    ? (double)item.integer
                           : item.type == TEG_META_BOOL ? (double)item.boolean
                                                        : item.real;
        }
        m->type = n_numbers == m->n ? TEG_META_ARRAY_FLOAT : n_strings == m->n ? TEG_META_ARRAY_STRING : TEG_META_JSON;
        if (m->type == TEG_META_ARRAY_FLOAT)
            m->reals = items;
        else if (m->type == TEG_META_ARRAY_STRING)
            m->strings = strings;
        return TEG_OK;
    }
    case JSON_OBJECT:
        m->type = TEG_META_JSON;
        return TEG_OK;
    default:
        m->type = TEG_META_NULL;
        return TEG_OK;
    }
}

static bool is_nothing(const struct teg_meta *m)
{
    switch (m->type) {
    case TEG_META_INT:
        return m->integer == 0;
    case TEG_META_FLOAT:
        return m->real == 0;
    case TEG_META_BOOL:
        return !m->boolean;
    case TEG_META_STRING:
        return m->string.n_bytes == 0;
    case TEG_META_NULL:
        return true;
    case TEG_META_JSON:
        return false;
    default:
        return m->n == 0;
    }
}

static bool string_is(struct teg_string s, const char *word)
{
    return s.n_bytes == strlen(word) && memcmp(s.bytes, word, s.n_bytes) == 0;
}

/* ---- the special ones ---- */

static enum teg_status read_scaling_type(const struct reading *r, const char *key, struct teg_string type)
{
    static const struct {
        const char *word;
        enum teg_rope_scaling scaling;
    } types[] = {{"none", TEG_ROPE_NONE},     {"default", TEG_ROPE_NONE}, {"linear", TEG_ROPE_LINEAR},
                 {"llama3", TEG_ROPE_LLAMA3}, {"yarn", TEG_ROPE_YARN},    {"longrope", TEG_ROPE_LONGROPE},
                 {"su", TEG_ROPE_LONGROPE}};
    /* transformers: only texts longer than the context that the model was trained for are turned otherwise. */
    if (!r->hp->is_gguf && string_is(type, "dynamic"))
        type = (struct teg_string){"default", 7};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (string_is(type, types[i].word)) {
            r->hp->scaling = types[i].scaling;
            r->hp->has_scaling_type = true;
            return TEG_OK;
        }
    FAIL(r->err, TEG_ERR_UNSUPPORTED,
         "cannot run model: %s: key %s: expected RoPE scaling none, linear, llama3, yarn "
         "or longrope, found %.*s; this kind is not supported",
         r->source->path, key, (int)type.n_bytes, type.bytes);
}

/* The word of a config.json. Families whose code has one activation written into it accept that one only. */
static enum teg_status read_activation(const struct reading *r, const struct teg_meta *m)
{
    static const struct {
        const char *word;
        enum teg_activation activation;
        bool squared;
    } known[] = {{"silu", TEG_ACT_SILU, false},
                 {"swish", TEG_ACT_SILU, false},
                 {"gelu_pytorch_tanh", TEG_ACT_GELU_TANH, false},
                 {"gelu_new", TEG_ACT_GELU_TANH, false},
                 {"gelu_fast", TEG_ACT_GELU_TANH, false},
                 {"gelu", TEG_ACT_GELU_ERF, false},
                 {"relu", TEG_ACT_RELU, false},
                 {"relu2", TEG_ACT_RELU, true}};
    struct teg_hparams *const hp = r->hp;
    const bool gemma = strncmp(hp->arch, "gemma", 5) == 0, any = teg_hparams_any_activation(hp->arch);
    if (m->type == TEG_META_NULL)
        return TEG_OK;
    if (m->type != TEG_META_STRING)
        return wrong_type(r, m->key, "the name of an activation", m->type_name);
    /* Gemma 2 files say "gelu" in one key and the tanh form in the other; transformers runs the tanh form. */
    if (gemma && string_is(m->string, "gelu"))
        return TEG_OK;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (string_is(m->string, known[i].word) && (any || known[i].activation == hp->activation)) {
            hp->activation = known[i].activation;
            hp->squared_activation = known[i].squared;
            return TEG_OK;
        }
    FAIL(r->err, TEG_ERR_UNSUPPORTED,
         "cannot run model: %s: key %s: expected %s for %s, found %.*s; this activation is "
         "not supported",
         r->source->path, m->key,
         any     ? "silu, gelu, gelu_new, relu or relu2"
         : gemma ? "gelu_pytorch_tanh"
                 : "silu",
         hp->arch, (int)m->string.n_bytes, m->string.bytes);
}

/* config.json: ["full_attention", "sliding_attention", …]; GGUF: one boolean a layer, or "every n-th is global". */
static enum teg_status read_layer_types(const struct reading *r, const struct teg_meta *m)
{
    struct teg_hparams *const hp = r->hp;
    if (m->type == TEG_META_NULL)
        return TEG_OK;
    if (m->type == TEG_META_INT && m->integer >= 0 && m->integer <= INT32_MAX) {
        hp->window_pattern = (uint32_t)m->integer;
        return TEG_OK;
    }
    const bool words = m->type == TEG_META_ARRAY_STRING;
    if ((!words && m->type != TEG_META_ARRAY_BOOL && m->type != TEG_META_ARRAY_INT &&
         m->type != TEG_META_ARRAY_FLOAT) ||
        m->n != hp->n_layers)
        return wrong_type(r, m->key, "one item a layer", m->type_name);
    bool *const windowed = teg_arena_array(r->arena, m->n, sizeof *windowed);
    if (!windowed)
        return teg_base_fail_memory(r->err, m->key, m->n);
    for (size_t i = 0; i < m->n; i++) {
        const bool local =
            words && (string_is(m->strings[i], "sliding_attention") || string_is(m->strings[i], "local"));
        if (words && !local && !string_is(m->strings[i], "full_attention") && !string_is(m->strings[i], "attention") &&
            !string_is(m->strings[i], "global"))
            FAIL(r->err, TEG_ERR_UNSUPPORTED,
                 "cannot run model: %s: key %s: expected full_attention or "
                 "sliding_attention, found %.*s; this kind of layer is not supported",
                 r->source->path, m->key, (int)m->strings[i].n_bytes, m->strings[i].bytes);
        windowed[i] = words                            ? local
                      : m->type == TEG_META_ARRAY_BOOL ? m->booleans[i]
                      : m->type == TEG_META_ARRAY_INT  ? m->integers[i] != 0
                                                       : m->reals[i] != 0;
    }
    hp->windowed = windowed;
    return TEG_OK;
}

/* exaone4: "LLLG", a letter for each layer of a period that ends with a global one; others: the period's length. */
static enum teg_status read_period(const struct reading *r, const struct teg_meta *m)
{
    static const struct teg_field length = {NULL, "", FIELD_U32, AT(window_pattern), false};
    if (m->type != TEG_META_STRING)
        return put_meta(r, &length, m);
    const size_t n = m->string.n_bytes;
    bool known = n > 0;
    for (size_t i = 0; i < n; i++)
        known = known && m->string.bytes[i] == (i + 1 < n ? 'L' : 'G');
    if (!known)
        return wrong_type(r, m->key, "a period such as LLLG", "another text");
    r->hp->window_pattern = (uint32_t)n;
    return TEG_OK;
}

static enum teg_status unknown_key(const struct reading *r, const char *key, const char *type_name)
{
    const char *const feature = teg_hparams_absent_feature(key);
    if (feature)
        FAIL(r->err, TEG_ERR_UNSUPPORTED,
             "cannot run model: %s: key %s: expected a dense model with plain weights, found %s", r->source->path, key,
             feature);
    FAIL(r->err, TEG_ERR_UNSUPPORTED,
         "cannot run model: %s: key %s: expected keys whose meaning is known for %s, found "
         "this one (%s), which may change the maths; this model is not supported",
         r->source->path, key, r->hp->arch, type_name);
}

static enum teg_status read_rope_object(const struct reading *r, const char *key, const json_t *object);

/* transformers 5 writes rope_parameters, flat or one object per kind of layer. */
static enum teg_status read_rope_parameters(const struct reading *r, const char *key, const json_t *object)
{
    const json_t *const full = json_object_get(object, "full_attention");
    const json_t *const local = json_object_get(object, "sliding_attention");
    if (!full && !local)
        return read_rope_object(r, key, object);
    if (json_is_object(full))
        TRY(read_rope_object(r, key, full));
    const json_t *const base = json_is_object(local) ? json_object_get(local, "rope_theta") : NULL;
    const char *const type = json_string_value(json_is_object(local) ? json_object_get(local, "rope_type") : NULL);
    if (type && strcmp(type, "default") != 0)
        FAIL(r->err, TEG_ERR_UNSUPPORTED,
             "cannot run model: %s: key %s: expected windowed layers without RoPE scaling, found %.32s; this model is "
             "not supported",
             r->source->path, key, type);
    if (json_is_number(base))
        r->hp->rope_local_base = (float)json_number_value(base);
    return TEG_OK;
}

static enum teg_status read_rope_object(const struct reading *r, const char *key, const json_t *object)
{
    const char *name;
    json_t *value;
    const json_t *type = json_object_get(object, "rope_type");
    if (!type)
        type = json_object_get(object, "type");
    if (!json_is_string(type))
        return wrong_type(r, key, "an object with rope_type", "none");
    TRY(read_scaling_type(r, key, (struct teg_string){json_string_value(type), json_string_length(type)}));
    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        const struct teg_field *const f = teg_field_find_rope(r->hp, name);
        struct teg_meta m;
        TRY(meta_of_json(r, name, value, &m));
        if (!f && !is_nothing(&m))
            return unknown_key(r, name, m.type_name);
        if (f && strcmp(name, "truncate") == 0)
            r->hp->yarn_exact_ramp = json_is_false(value);
        else if (f && f->type != FIELD_IGNORED)
            TRY(put_meta(r, f, &m));
        if (f && f->type == FIELD_F32S) {
            if (r->hp->n_factors && m.n != r->hp->n_factors)
                return wrong_type(r, name, "as many factors as in the other list", "another number");
            r->hp->n_factors = (uint32_t)m.n;
        }
    }
    return TEG_OK;
}

/* ---- a whole file ---- */

static enum teg_status read_entry(const struct reading *r, const struct teg_field *f, const struct teg_meta *m,
                                  const json_t *json)
{
    if (f->type == FIELD_IGNORED)
        return TEG_OK;
    if (f->type != FIELD_SPECIAL) {
        if (f->offset == AT(use_window))
            r->hp->has_use_window = m->type == TEG_META_BOOL;
        return put_meta(r, f, m);
    }
    if (f->offset == AT(windowed))
        return read_layer_types(r, m);
    if (f->offset == AT(activation))
        return read_activation(r, m);
    if (f->json && f->offset == AT(rope_finetuned)) {
        r->hp->rope_finetuned = m->type == TEG_META_STRING && string_is(m->string, "rope");
        return TEG_OK;
    }
    if (f->json && f->offset == AT(window_pattern))
        return read_period(r, m);
    if (r->hp->is_gguf)
        return m->type == TEG_META_STRING ? read_scaling_type(r, m->key, m->string)
                                          : wrong_type(r, m->key, "a string", m->type_name);
    if (m->type == TEG_META_NULL)
        return TEG_OK;
    if (!json_is_object(json))
        return wrong_type(r, m->key, "an object", m->type_name);
    return strcmp(f->json, "rope_parameters") == 0 ? read_rope_parameters(r, m->key, json)
                                                   : read_rope_object(r, m->key, json);
}

/* Two passes: plain fields first, because lists and the special ones need the layer count. */
static enum teg_status read_gguf(const struct reading *r, const char *arch)
{
    const size_t prefix = strlen(arch);
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < r->source->n_metas; i++) {
            const struct teg_meta *const m = &r->source->metas[i];
            if (strncmp(m->key, arch, prefix) != 0 || m->key[prefix] != '.')
                continue;
            const struct teg_field *const f = teg_field_find(r->hp, m->key + prefix + 1);
            const bool is_list = m->type >= TEG_META_ARRAY_INT && m->type <= TEG_META_ARRAY_STRING;
            if (!f && !is_nothing(m) && !teg_hparams_is_harmless(m->key))
                return unknown_key(r, m->key, m->type_name);
            if (f && (f->type == FIELD_SPECIAL || is_list) == (pass == 1))
                TRY(read_entry(r, f, m, NULL));
        }
    return TEG_OK;
}

static enum teg_status read_json_entry(const struct reading *r, int pass, const struct teg_meta *m, const json_t *json)
{
    const struct teg_field *const f = teg_field_find(r->hp, m->key);
    if (!f)
        return is_nothing(m) || teg_hparams_is_harmless(m->key) ? TEG_OK : unknown_key(r, m->key, m->type_name);
    const bool is_list = m->type >= TEG_META_ARRAY_INT && m->type <= TEG_META_ARRAY_STRING;
    return (f->type == FIELD_SPECIAL || is_list) == (pass == 1) ? read_entry(r, f, m, json) : TEG_OK;
}

static enum teg_status read_json_object(const struct reading *r, int pass, const json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        struct teg_meta m;
        TRY(meta_of_json(r, key, value, &m));
        TRY(read_json_entry(r, pass, &m, value));
    }
    return TEG_OK;
}

static enum teg_status read_config(const struct reading *r)
{
    enum teg_status status = TEG_OK;
    const size_t n = r->source->n_metas;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < 2 * n && status == TEG_OK; i++) {
            const struct teg_meta *const m = &r->source->metas[i % n];
            json_t *json = NULL;
            /* A multimodal model keeps its language model's keys one level down; read last, they have the last word. */
            if ((strcmp(m->key, "text_config") == 0) != (i >= n))
                continue;
            if (m->type == TEG_META_JSON && !(json = json_loadb(m->string.bytes, m->string.n_bytes, 0, NULL)))
                return wrong_type(r, m->key, "JSON that can be read in the memory there is", "none");
            if (json && i >= n)
                status = json_is_object(json) ? read_json_object(r, pass, json)
                                              : wrong_type(r, m->key, "an object", m->type_name);
            else
                status = read_json_entry(r, pass, m, json);
            json_decref(json);
        }
    return status;
}

static enum teg_status check(const struct reading *r)
{
    struct teg_hparams *const hp = r->hp;
    const char *const path = r->source->path;
    static const struct {
        size_t offset;
        const char *what;
        uint32_t most;
    } counts[] = {{AT(n_layers), "layer count", 4096},       {AT(n_heads), "head count", 4096},
                  {AT(n_kv_heads), "KV head count", 4096},   {AT(width), "model width", 1u << 20},
                  {AT(head_width), "head width", 8192},      {AT(ffn_width), "feed-forward width", 1u << 22},
                  {AT(context), "context length", INT32_MAX}};
    if (hp->n_kv_heads == ABSENT)
        hp->n_kv_heads = hp->n_heads;
    if (hp->head_width == ABSENT && hp->n_heads) {
        if (hp->width % hp->n_heads)
            FAIL(r->err, TEG_ERR_FORMAT,
                 "cannot read model: %s: head count: expected a divisor of the model width %u, "
                 "found %u; the file is damaged",
                 path, hp->width, hp->n_heads);
        hp->head_width = hp->width / hp->n_heads;
    }
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const uint32_t n = *(const uint32_t *)(const void *)((const char *)hp + counts[i].offset);
        if (n < 1 || n > counts[i].most)
            FAIL(r->err, TEG_ERR_FORMAT, "cannot read model: %s: %s: expected 1 to %u, found %u; the file is damaged",
                 path, counts[i].what, counts[i].most, n);
    }
    if (hp->n_heads % hp->n_kv_heads)
        FAIL(r->err, TEG_ERR_FORMAT,
             "cannot read model: %s: KV head count: expected a divisor of the head count %u, "
             "found %u; the file is damaged",
             path, hp->n_heads, hp->n_kv_heads);
    if (!hp->causal)
        FAIL(r->err, TEG_ERR_UNSUPPORTED,
             "cannot run model: %s: key attention.causal: expected true, found false; only models whose tokens see the "
             "ones before them are supported",
             path);
    if (hp->shared_ffn_width)
        hp->ffn_width = hp->shared_ffn_width;
    /* A GGUF factor without a type is a linear one. */
    if (hp->is_gguf && !hp->has_scaling_type && hp->rope_factor > 0 && hp->rope_factor != 1)
        hp->scaling = TEG_ROPE_LINEAR;
    if (hp->value_width && hp->value_width != hp->head_width)
        FAIL(r->err, TEG_ERR_UNSUPPORTED,
             "cannot run model: %s: value width: expected that of keys, %u, found %u; such "
             "models are not supported",
             path, hp->head_width, hp->value_width);
    if (!(hp->partial_rotary >= 0 && hp->partial_rotary <= 1))
        FAIL(r->err, TEG_ERR_FORMAT,
             "cannot read model: %s: key partial_rotary_factor: expected 0 to 1, found %g; the file is damaged", path,
             (double)hp->partial_rotary);
    if (!hp->rope_dims)
        hp->rope_dims =
            hp->partial_rotary > 0 ? (uint32_t)((float)hp->head_width * hp->partial_rotary) : hp->head_width;
    if (hp->rope_dims < 2 || hp->rope_dims > hp->head_width || hp->rope_dims % 2)
        FAIL(r->err, TEG_ERR_FORMAT,
             "cannot read model: %s: rotated dimensions: expected an even number up to the head "
             "width %u, found %u; the file is damaged",
             path, hp->head_width, hp->rope_dims);
    if (hp->n_factors && hp->n_factors != hp->rope_dims / 2)
        FAIL(r->err, TEG_ERR_FORMAT,
             "cannot read model: %s: longrope factors: expected one for each of %u pairs, found "
             "%u; the file is damaged",
             path, hp->rope_dims / 2, hp->n_factors);
    if (!(hp->norm_eps >= 0) || !(hp->rope_base > 0) || !(hp->rope_local_base >= 0))
        FAIL(r->err, TEG_ERR_FORMAT,
             "cannot read model: %s: norm epsilon and RoPE base: expected positive numbers, "
             "found %g and %g; the file is damaged",
             path, (double)hp->norm_eps, (double)hp->rope_base);
    if (hp->scaling != TEG_ROPE_NONE && hp->scaling != TEG_ROPE_LONGROPE && !(hp->rope_factor > 0))
        FAIL(r->err, TEG_ERR_FORMAT,
             "cannot read model: %s: RoPE scaling factor: expected a positive number, found %g; "
             "the file is damaged",
             path, (double)hp->rope_factor);
    return TEG_OK;
}

static enum teg_status check_required(const struct reading *r, const char *arch)
{
    const struct teg_field *f;
    for (size_t i = 0; (f = teg_field_at(i)) != NULL; i++) {
        if (!f->required)
            continue;
        const uint32_t bits = *(const uint32_t *)(const void *)((const char *)r->hp + f->offset);
        char key[128];
        (void)snprintf(key, sizeof key, "%s%s%s", r->hp->is_gguf ? arch : "", r->hp->is_gguf ? "." : "",
                       teg_field_key(r->hp, f));
        const bool nested = !r->hp->is_gguf && teg_source_meta(r->source, "text_config");
        if (!bits && !nested && !teg_source_meta(r->source, key))
            FAIL(r->err, TEG_ERR_FORMAT,
                 "cannot read model: %s: key %s: expected a value, found none; the file is not "
                 "a whole model",
                 r->source->path, key);
    }
    return TEG_OK;
}

enum teg_status teg_hparams_architecture(const struct teg_source *source, struct teg_string *name,
                                         struct teg_error *err)
{
    const char *const key = source->kind == TEG_SOURCE_GGUF ? "general.architecture" : "model_type";
    const struct teg_meta *const m = teg_source_meta(source, key);
    if (!m || m->type != TEG_META_STRING)
        FAIL(err, TEG_ERR_FORMAT,
             "cannot read model: %s: key %s: expected a string, found %s; the file is not a whole "
             "model",
             source->path, key, m ? m->type_name : "none");
    *name = m->string;
    return TEG_OK;
}

enum teg_status teg_hparams_read(const struct teg_source *source, const char *family, struct teg_arena *arena,
                                 struct teg_hparams *hp, struct teg_error *err)
{
    *hp = (struct teg_hparams){.arch = family,
                               .name = "",
                               .is_gguf = source->kind == TEG_SOURCE_GGUF,
                               .n_kv_heads = ABSENT,
                               .head_width = ABSENT,
                               .causal = true,
                               .rope_finetuned = true,
                               .parallel = true,
                               .multi_query = true,
                               .scaled_scores = true,
                               .norm_before = true,
                               .beta_fast = 32,
                               .beta_slow = 1,
                               .rope_base = 10000};
    teg_hparams_defaults(source, hp);
    const struct reading r = {source, arena, hp, err};
    struct teg_string file_arch;
    TRY(teg_hparams_architecture(source, &file_arch, err));
    const char *const arch = teg_arena_string(arena, file_arch.bytes, file_arch.n_bytes);
    if (!arch)
        return teg_base_fail_memory(err, "architecture", file_arch.n_bytes);
    const struct teg_meta *const name = teg_source_meta(source, hp->is_gguf ? "general.name" : "_name_or_path");
    if (name && name->type == TEG_META_STRING) {
        hp->name = teg_arena_string(arena, name->string.bytes, name->string.n_bytes);
        if (!hp->name)
            return teg_base_fail_memory(err, "model name", name->string.n_bytes);
    }
    TRY(hp->is_gguf ? read_gguf(&r, arch) : read_config(&r));
    teg_hparams_settle(hp);
    TRY(check_required(&r, arch));
    return check(&r);
}
