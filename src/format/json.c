/* format/json.c: see json.h. Every number keeps its kind: jansson reads 64-bit integers as integers and everything with
 * a point or exponent as double. An integer beyond 64 bits, which it refuses, becomes a double: transformers writes
 * 10^30 for a length without limit. Objects and mixed arrays stay JSON text, because what they mean is the business of
 * the module that asks for them.
 *
 * jansson takes its memory from malloc. A quick look at the text beforehand bounds its recursion and its memory. */
#include "format/json.h"

#include <string.h>

#include "base/text.h"
#include "format/impl.h"

enum { MAX_DEPTH = 64, ALWAYS_VALUES = 1 << 16, BYTES_PER_VALUE = 8 };

/* One pass before jansson's: how deep, and how many values (each but the first follows a bracket or a comma). Honest
 * headers and configurations spend more than 8 bytes on a value; the shortest possible take 2, and about 200 bytes of
 * jansson's memory each. */
static enum teg_status refuse_structure(struct teg_span text, const char *what, const char *path, uint64_t offset,
                                        struct teg_error *err)
{
    const size_t most_values = ALWAYS_VALUES + text.n_bytes / BYTES_PER_VALUE;
    size_t depth = 0, n_values = 0;
    bool in_string = false;
    for (size_t i = 0; i < text.n_bytes; i++) {
        const uint8_t c = text.bytes[i];
        if (in_string) {
            i += c == '\\';
            in_string = c != '"';
            continue;
        }
        const bool opens = c == '{' || c == '[';
        in_string = c == '"';
        depth += opens;
        depth -= (c == '}' || c == ']') && depth;
        n_values += opens || c == ',';
        if (depth > MAX_DEPTH)
            return teg_source_fail(err, TEG_ERR_FORMAT, what, path, offset + i,
                                   "expected JSON at most %d levels deep, found more; download the file again",
                                   MAX_DEPTH);
        if (n_values > most_values)
            return teg_source_fail(err, TEG_ERR_FORMAT, what, path, offset + i,
                                   "expected at most %zu JSON values in %zu bytes, found more; download the file again",
                                   most_values, text.n_bytes);
    }
    return TEG_OK;
}

enum { SAFE_DIGITS = 18 }; /* of an integer that surely fits 64 bits */

/* Bytes of the number that begins here, 0 where none does. */
static size_t number_bytes(const uint8_t *p, size_t n_bytes, bool *is_integer)
{
    size_t n = 0;
    *is_integer = true;
    if (*p != '-' && (*p < '0' || *p > '9'))
        return 0;
    for (n = 1; n < n_bytes && ((p[n] >= '0' && p[n] <= '9') || (p[n] && strchr(".eE+-", p[n]))); n++)
        *is_integer = *is_integer && p[n] >= '0' && p[n] <= '9';
    return n;
}

/* The text with an exponent of 0 behind each integer that may not fit. */
static void spell_as_reals(struct teg_span text, struct teg_buf *out)
{
    const char *const bytes = (const char *)text.bytes;
    bool in_string = false, is_integer = false;
    for (size_t i = 0, n; i < text.n_bytes; i += n) {
        n = in_string ? 0 : number_bytes(text.bytes + i, text.n_bytes - i, &is_integer);
        if (n > SAFE_DIGITS && is_integer) {
            teg_buf_append(out, bytes + i, n);
            teg_buf_puts(out, "e0");
            continue;
        }
        n = n ? n : in_string && bytes[i] == '\\' && i + 1 < text.n_bytes ? 2 : 1;
        in_string ^= bytes[i] == '"';
        teg_buf_append(out, bytes + i, n);
    }
}

/* As json_loadb, integers beyond 64 bits as reals. */
static json_t *load(struct teg_span text, json_error_t *error)
{
    const char *const bytes = text.n_bytes ? (const char *)text.bytes : "";
    json_t *root = json_loadb(bytes, text.n_bytes, JSON_REJECT_DUPLICATES, error);
    if (root || json_error_code(error) != json_error_numeric_overflow)
        return root;
    struct teg_buf spelled = {0};
    spell_as_reals(text, &spelled);
    if (spelled.failed)
        error->text[0] = '\0'; /* as where memory fails within jansson */
    else
        root = json_loadb(spelled.bytes, spelled.n_bytes, JSON_REJECT_DUPLICATES, error);
    teg_buf_free(&spelled);
    return root;
}

enum teg_status teg_json_object(struct teg_span text, const char *what, const char *path, uint64_t offset,
                                json_t **object, struct teg_error *err)
{
    TRY(refuse_structure(text, what, path, offset, err));
    json_error_t error = {0};
    json_t *const root = load(text, &error);
    if (!root) {
        /* jansson leaves the text empty when malloc fails under it. */
        if (json_error_code(&error) == json_error_out_of_memory || !error.text[0])
            return teg_base_fail_memory(err, "JSON values", text.n_bytes);
        return teg_source_fail(err, TEG_ERR_FORMAT, what, path, offset + (uint64_t)error.position,
                               "expected a JSON object, found: %.120s; download the file again", error.text);
    }
    if (!json_is_object(root)) {
        json_decref(root);
        return teg_source_fail(err, TEG_ERR_FORMAT, what, path, offset,
                               "expected a JSON object, found another value; download the file again");
    }
    *object = root;
    return TEG_OK;
}

/* ---- values to metadata ---- */

static bool is_bool(const json_t *v)
{
    return json_is_boolean(v);
}

static bool is_int(const json_t *v)
{
    return json_is_integer(v);
}

static bool is_number(const json_t *v)
{
    return json_is_number(v);
}

static bool is_string(const json_t *v)
{
    return json_is_string(v);
}

static bool all_items(const json_t *array, bool (*is)(const json_t *))
{
    for (size_t i = 0; i < json_array_size(array); i++)
        if (!is(json_array_get(array, i)))
            return false;
    return true;
}

static bool copy_string(struct teg_arena *arena, const json_t *v, struct teg_string *out)
{
    const size_t n_bytes = json_string_length(v);
    *out = (struct teg_string){teg_arena_string(arena, json_string_value(v), n_bytes), n_bytes};
    return out->bytes;
}

/* Each fills meta from a value of its kind; false when memory is short. */

static bool put_int(struct teg_arena *arena, json_t *v, struct teg_meta *meta)
{
    (void)arena;
    meta->integer = json_integer_value(v);
    return true;
}

static bool put_real(struct teg_arena *arena, json_t *v, struct teg_meta *meta)
{
    (void)arena;
    meta->real = json_real_value(v);
    return true;
}

static bool put_bool(struct teg_arena *arena, json_t *v, struct teg_meta *meta)
{
    (void)arena;
    meta->boolean = json_is_true(v);
    return true;
}

static bool put_null(struct teg_arena *arena, json_t *v, struct teg_meta *meta)
{
    (void)arena, (void)v, (void)meta;
    return true;
}

static bool put_string(struct teg_arena *arena, json_t *v, struct teg_meta *meta)
{
    return copy_string(arena, v, &meta->string);
}

static bool put_json(struct teg_arena *arena, json_t *v, struct teg_meta *meta)
{
    const size_t n_bytes = json_dumpb(v, NULL, 0, JSON_COMPACT);
    char *const text = teg_arena_array(arena, n_bytes + 1, 1);
    if (!n_bytes || !text || json_dumpb(v, text, n_bytes, JSON_COMPACT) != n_bytes)
        return false;
    meta->string = (struct teg_string){text, n_bytes};
    return true;
}

static bool put_ints(struct teg_arena *arena, json_t *v, struct teg_meta *meta)
{
    int64_t *const items = teg_arena_array(arena, meta->n, sizeof *items);
    for (size_t i = 0; items && i < meta->n; i++)
        items[i] = json_integer_value(json_array_get(v, i));
    meta->integers = items;
    return items;
}

static bool put_reals(struct teg_arena *arena, json_t *v, struct teg_meta *meta)
{
    double *const items = teg_arena_array(arena, meta->n, sizeof *items);
    for (size_t i = 0; items && i < meta->n; i++)
        items[i] = json_number_value(json_array_get(v, i));
    meta->reals = items;
    return items;
}

static bool put_bools(struct teg_arena *arena, json_t *v, struct teg_meta *meta)
{
    bool *const items = teg_arena_array(arena, meta->n, sizeof *items);
    for (size_t i = 0; items && i < meta->n; i++)
        items[i] = json_is_true(json_array_get(v, i));
    meta->booleans = items;
    return items;
}

static bool put_strings(struct teg_arena *arena, json_t *v, struct teg_meta *meta)
{
    struct teg_string *const items = teg_arena_array(arena, meta->n, sizeof *items);
    for (size_t i = 0; items && i < meta->n; i++)
        if (!copy_string(arena, json_array_get(v, i), &items[i]))
            return false;
    meta->strings = items;
    return items;
}

struct kind {
    const char *name;
    enum teg_meta_type type;
    bool (*put)(struct teg_arena *arena, json_t *v, struct teg_meta *meta);
};

static const struct kind plain_kinds[] = {
    [JSON_OBJECT] = {"object", TEG_META_JSON, put_json},     [JSON_ARRAY] = {"array", TEG_META_JSON, put_json},
    [JSON_STRING] = {"string", TEG_META_STRING, put_string}, [JSON_INTEGER] = {"int", TEG_META_INT, put_int},
    [JSON_REAL] = {"float", TEG_META_FLOAT, put_real},       [JSON_TRUE] = {"bool", TEG_META_BOOL, put_bool},
    [JSON_FALSE] = {"bool", TEG_META_BOOL, put_bool},        [JSON_NULL] = {"null", TEG_META_NULL, put_null},
};

/* Tried in this order: integers first, so that an array of floats is one with at least one float (or nothing). */
static const struct {
    bool (*is)(const json_t *v);
    struct kind kind;
} array_kinds[] = {
    {is_int, {"array of int", TEG_META_ARRAY_INT, put_ints}},
    {is_number, {"array of float", TEG_META_ARRAY_FLOAT, put_reals}},
    {is_bool, {"array of bool", TEG_META_ARRAY_BOOL, put_bools}},
    {is_string, {"array of string", TEG_META_ARRAY_STRING, put_strings}},
};

static struct kind kind_of(const json_t *v)
{
    if (json_is_array(v))
        for (size_t i = 0; i < sizeof array_kinds / sizeof *array_kinds; i++)
            if (all_items(v, array_kinds[i].is))
                return array_kinds[i].kind;
    return plain_kinds[json_typeof(v)];
}

enum teg_status teg_json_metas(struct teg_arena *arena, json_t *object, const char *key_prefix, struct teg_meta *metas,
                               struct teg_error *err)
{
    size_t i = 0;
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        const struct kind kind = kind_of(value);
        struct teg_meta *const meta = &metas[i++];
        meta->key = teg_arena_printf(arena, "%s%s", key_prefix, key);
        meta->type = kind.type;
        meta->type_name = kind.name;
        meta->n = kind.type >= TEG_META_ARRAY_INT && kind.type <= TEG_META_ARRAY_STRING ? json_array_size(value) : 1;
        if (!meta->key || !kind.put(arena, value, meta))
            return teg_base_fail_memory(err, "model metadata", sizeof *metas * json_object_size(object));
    }
    return TEG_OK;
}
