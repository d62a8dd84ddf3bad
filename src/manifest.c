/* manifest.c: tegula.json into a struct, by a table of fields for each kind of object.
 *
 * Invariant: every field of the file is known and of the right kind, or the file is refused with the name of the field;
 * a typing error never passes for "not given". What the names in it refer to is checked where they are used. */
#include "manifest.h"

#include <string.h>

#include "base/filemap.h"
#include "format/json.h"

struct reader {
    struct teg_arena *arena;
    struct teg_manifest *manifest;
    struct teg_error *err;
    struct teg_lm_part *part; /* being read */
    struct teg_lm_functions *functions;
    char where[96]; /* "parts[1].functions." */
};

struct field {
    const char *name;
    enum teg_status (*read)(struct reader *r, const struct field *field, const json_t *value);
    size_t offset; /* in the manifest, for plain fields */
    bool required;
};

static const char *const role_names[TEG_LM_ROLE_COUNT] = {
    [TEG_LM_UNKNOWN] = "",          [TEG_LM_TOKENS] = "tokens",
    [TEG_LM_HIDDEN] = "hidden",     [TEG_LM_POSITIONS] = "positions",
    [TEG_LM_POSITION] = "position", [TEG_LM_LENGTH] = "length",
    [TEG_LM_LAST] = "last",         [TEG_LM_MASK] = "mask",
    [TEG_LM_KEEP] = "keep",         [TEG_LM_WRITES] = "writes",
    [TEG_LM_CACHE] = "cache",       [TEG_LM_LOGITS] = "logits",
    [TEG_LM_IGNORED] = "ignored",
};

const char *teg_lm_role_name(enum teg_lm_role role)
{
    return role_names[role];
}

static const char *kind_of(const json_t *value)
{
    static const char *const names[] = {"an object", "an array", "a string", "a whole number",
                                        "a number",  "true",     "false",    "null"};
    return names[json_typeof(value)];
}

static enum teg_status fail_field(const struct reader *r, const char *name, const char *expected, const char *found)
{
    FAIL(r->err, TEG_ERR_FORMAT,
         "cannot read model description: %.160s: %s%s: expected %s, found %.60s; see FORMATS.md", r->manifest->path,
         r->where, name, expected, found);
}

static enum teg_status no_memory(const struct reader *r)
{
    return teg_base_fail_memory(r->err, "model description", 64);
}

/* All members of an object by a table. */
static enum teg_status read_object(struct reader *r, const struct field *fields, size_t n, const json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        size_t i = 0;
        while (i < n && strcmp(fields[i].name, key) != 0)
            i++;
        if (i == n) {
            char names[200] = "one of ";
            for (size_t k = 0; k < n; k++) {
                const size_t used = strlen(names);
                (void)snprintf(names + used, sizeof names - used, "%s%s", k ? ", " : "", fields[k].name);
            }
            return fail_field(r, key, names, "a field of another name");
        }
        TRY(fields[i].read(r, &fields[i], value));
    }
    for (size_t i = 0; i < n; i++)
        if (fields[i].required && !json_object_get(object, fields[i].name))
            return fail_field(r, fields[i].name, "it", "none");
    return TEG_OK;
}

/* ---- plain fields ---- */

static enum teg_status read_string(struct reader *r, const char *name, const json_t *value, const char **out)
{
    if (!json_is_string(value) || json_string_length(value) == 0)
        return fail_field(r, name, "a string that is not empty", kind_of(value));
    if (strlen(json_string_value(value)) != json_string_length(value))
        return fail_field(r, name, "a string without a NUL", "one with it");
    *out = teg_arena_string(r->arena, json_string_value(value), json_string_length(value));
    return *out ? TEG_OK : no_memory(r);
}

/* Relative to the folder of the file. */
static enum teg_status read_path(struct reader *r, const char *name, const json_t *value, const char **out)
{
    const char *path = NULL;
    TRY(read_string(r, name, value, &path));
    const char *const slash = strrchr(r->manifest->path, '/');
    if (path[0] != '/' && slash)
        path = teg_arena_printf(r->arena, "%.*s/%s", (int)(slash - r->manifest->path), r->manifest->path, path);
    *out = path;
    return path ? TEG_OK : no_memory(r);
}

static enum teg_status field_path(struct reader *r, const struct field *field, const json_t *value)
{
    const char *path = NULL;
    TRY(read_path(r, field->name, value, &path));
    memcpy((char *)r->manifest + field->offset, &path, sizeof path);
    return TEG_OK;
}

static enum teg_status field_count(struct reader *r, const struct field *field, const json_t *value)
{
    const json_int_t n = json_integer_value(value);
    if (!json_is_integer(value) || n < 1 || n > INT32_MAX)
        return fail_field(r, field->name, "a whole number from 1 on",
                          json_is_integer(value) ? "another" : kind_of(value));
    const uint32_t count = (uint32_t)n;
    memcpy((char *)r->manifest + field->offset, &count, sizeof count);
    return TEG_OK;
}

static enum teg_status field_bool(struct reader *r, const struct field *field, const json_t *value)
{
    if (!json_is_boolean(value))
        return fail_field(r, field->name, "true or false", kind_of(value));
    const bool is_true = json_is_true(value);
    memcpy((char *)r->manifest + field->offset, &is_true, sizeof is_true);
    return TEG_OK;
}

static enum teg_status field_format(struct reader *r, const struct field *field, const json_t *value)
{
    if (!json_is_integer(value) || json_integer_value(value) != 1)
        return fail_field(r, field->name, "1", json_is_integer(value) ? "another number" : kind_of(value));
    return TEG_OK;
}

/* ---- functions ---- */

static enum teg_status field_function(struct reader *r, const struct field *field, const json_t *value)
{
    const char *name = NULL;
    TRY(read_string(r, field->name, value, &name));
    memcpy((char *)r->functions + field->offset, &name, sizeof name);
    return TEG_OK;
}

static enum teg_status read_functions(struct reader *r, const json_t *value, struct teg_lm_functions *functions)
{
    static const struct field fields[] = {
        {"prefill", field_function, offsetof(struct teg_lm_functions, prefill), false},
        {"decode", field_function, offsetof(struct teg_lm_functions, decode), false},
    };
    if (!json_is_object(value))
        return fail_field(r, "functions", "an object", kind_of(value));
    const size_t n = strlen(r->where);
    (void)snprintf(r->where + n, sizeof r->where - n, "functions.");
    r->functions = functions;
    TRY(read_object(r, fields, sizeof fields / sizeof *fields, value));
    r->where[n] = '\0';
    return TEG_OK;
}

static enum teg_status field_functions(struct reader *r, const struct field *field, const json_t *value)
{
    (void)field;
    return read_functions(r, value, &r->manifest->functions);
}

/* ---- the contract ---- */

static enum teg_status read_naming(struct reader *r, const char *list, const json_t *value,
                                   const enum teg_lm_role *roles, size_t n_roles, struct teg_lm_naming **out, size_t *n)
{
    const char *key;
    json_t *role;
    if (!json_is_object(value))
        return fail_field(r, list, "an object of names and roles", kind_of(value));
    *out = teg_arena_array(r->arena, json_object_size(value), sizeof **out);
    if (!*out)
        return no_memory(r);
    (void)snprintf(r->where, sizeof r->where, "contract.%s.", list);
    json_object_foreach((json_t *)value, key, role)
    {
        size_t i = 0;
        while (i < n_roles && (!json_is_string(role) || strcmp(role_names[roles[i]], json_string_value(role)) != 0))
            i++;
        if (i == n_roles) {
            char names[120] = "one of ";
            for (size_t k = 0; k < n_roles; k++) {
                const size_t used = strlen(names);
                (void)snprintf(names + used, sizeof names - used, "%s%s", k ? ", " : "", role_names[roles[k]]);
            }
            return fail_field(r, key, names, json_is_string(role) ? json_string_value(role) : kind_of(role));
        }
        const char *const name = teg_arena_string(r->arena, key, strlen(key));
        if (!name)
            return no_memory(r);
        (*out)[(*n)++] = (struct teg_lm_naming){name, roles[i]};
    }
    r->where[0] = '\0';
    return TEG_OK;
}

static enum teg_status field_inputs(struct reader *r, const struct field *field, const json_t *value)
{
    static const enum teg_lm_role roles[] = {TEG_LM_TOKENS, TEG_LM_HIDDEN, TEG_LM_POSITIONS, TEG_LM_POSITION,
                                             TEG_LM_LENGTH, TEG_LM_LAST,   TEG_LM_MASK,      TEG_LM_KEEP,
                                             TEG_LM_WRITES, TEG_LM_CACHE};
    return read_naming(r, field->name, value, roles, sizeof roles / sizeof *roles, &r->manifest->inputs,
                       &r->manifest->n_inputs);
}

static enum teg_status field_outputs(struct reader *r, const struct field *field, const json_t *value)
{
    static const enum teg_lm_role roles[] = {TEG_LM_LOGITS, TEG_LM_HIDDEN, TEG_LM_CACHE, TEG_LM_IGNORED};
    return read_naming(r, field->name, value, roles, sizeof roles / sizeof *roles, &r->manifest->outputs,
                       &r->manifest->n_outputs);
}

static enum teg_status field_contract(struct reader *r, const struct field *field, const json_t *value)
{
    static const struct field fields[] = {{"inputs", field_inputs, 0, false}, {"outputs", field_outputs, 0, false}};
    if (!json_is_object(value))
        return fail_field(r, field->name, "an object", kind_of(value));
    (void)snprintf(r->where, sizeof r->where, "contract.");
    TRY(read_object(r, fields, sizeof fields / sizeof *fields, value));
    r->where[0] = '\0';
    return TEG_OK;
}

/* ---- parts ---- */

static enum teg_status part_path(struct reader *r, const struct field *field, const json_t *value)
{
    return read_path(r, field->name, value, &r->part->path);
}

static enum teg_status part_functions(struct reader *r, const struct field *field, const json_t *value)
{
    (void)field;
    return read_functions(r, value, &r->part->functions);
}

static enum teg_status field_parts(struct reader *r, const struct field *field, const json_t *value)
{
    static const struct field fields[] = {{"path", part_path, 0, true}, {"functions", part_functions, 0, false}};
    enum { MOST_PARTS = 256 };
    const size_t n = json_array_size(value);
    if (!json_is_array(value) || n < 1 || n > MOST_PARTS)
        return fail_field(r, field->name, "an array of 1 to 256 packages",
                          json_is_array(value) ? "another" : kind_of(value));
    r->manifest->parts = teg_arena_array(r->arena, n, sizeof *r->manifest->parts);
    if (!r->manifest->parts)
        return no_memory(r);
    for (size_t i = 0; i < n; i++) {
        const json_t *const item = json_array_get(value, i);
        r->part = &r->manifest->parts[i];
        (void)snprintf(r->where, sizeof r->where, "parts[%zu]", i);
        if (json_is_string(item)) {
            TRY(read_path(r, "", item, &r->part->path));
            continue;
        }
        if (!json_is_object(item))
            return fail_field(r, "", "a path, or an object with one", kind_of(item));
        (void)snprintf(r->where, sizeof r->where, "parts[%zu].", i);
        TRY(read_object(r, fields, sizeof fields / sizeof *fields, item));
    }
    r->manifest->n_parts = n;
    r->where[0] = '\0';
    return TEG_OK;
}

/* ---- the file ---- */

#define AT(member) offsetof(struct teg_manifest, member)
static const struct field top_fields[] = {
    {"format", field_format, 0, true},
    {"contract", field_contract, 0, false},
    {"functions", field_functions, 0, false},
    {"context", field_count, AT(context), false},
    {"chunk", field_count, AT(chunk), false},
    {"tokenizer", field_path, AT(tokenizer), false},
    {"evaluate", field_bool, AT(evaluate), false},
    {"overwrites", field_bool, AT(overwrites), false},
    {"parts", field_parts, 0, false},
};

enum teg_status teg_manifest_read(const char *path, struct teg_arena *arena, struct teg_manifest *manifest,
                                  struct teg_error *err)
{
    struct teg_filemap map = {0};
    json_t *object = NULL;
    *manifest = (struct teg_manifest){.path = teg_arena_string(arena, path, strlen(path))};
    struct reader r = {.arena = arena, .manifest = manifest, .err = err};
    if (!manifest->path)
        return no_memory(&r);
    TRY(teg_filemap_open(&map, path, "cannot open model description", err));
    const struct teg_span text = {map.bytes, map.n_bytes};
    enum teg_status status = teg_json_object(text, "model description", path, 0, &object, err);
    if (status == TEG_OK)
        status = read_object(&r, top_fields, sizeof top_fields / sizeof *top_fields, object);
    json_decref(object);
    teg_filemap_close(&map);
    return status;
}
