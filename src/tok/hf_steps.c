/* tok/hf_steps.c: tokenizer.json's "normalizer" and "pre_tokenizer" as steps of ours.
 *
 * Each component type is a row of a table with the function that reads it. Everything that splits becomes a pattern
 * and a behaviour; everything that rewrites becomes a normalizer step or a flag of the pre-tokenizer. A type that is
 * not in the table, or an option that we would have to ignore, is an error that names it. */
#include <jansson.h>

#include <string.h>

#include "tok/tok_int.h"

#define WHERE "cannot read tokenizer.json"
#define MAX_NESTING 8

struct reader {
    struct teg_tok *tok;
    const char *path;
    unsigned depth;
    struct teg_error *err;
};

typedef enum teg_status (*read_fn)(struct reader *r, const json_t *json);

struct component {
    const char *type;
    read_fn read;
};

static const char *string_of(const json_t *json, const char *key)
{
    const char *const s = json_string_value(json_object_get(json, key));
    return s ? s : "";
}

/* An absent key counts as `otherwise`. */
static bool flag_of(const json_t *json, const char *key, bool otherwise)
{
    const json_t *const value = json_object_get(json, key);
    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

static enum teg_status dispatch(struct reader *r, const json_t *json, const struct component *table, size_t n,
                                const char *what)
{
    if (++r->depth > MAX_NESTING)
        FAIL(r->err, TEG_ERR_FORMAT, WHERE ": %s: %s: expected at most %d levels of Sequence, found more", r->path,
             what, MAX_NESTING);
    const char *const type = string_of(json, "type");
    for (size_t i = 0; i < n; i++)
        if (strcmp(table[i].type, type) == 0) {
            TRY(table[i].read(r, json));
            r->depth--;
            return TEG_OK;
        }
    FAIL(r->err, TEG_ERR_UNSUPPORTED,
         WHERE ": %s: %s: expected a type that Tegula knows, found \"%.64s\"; use the model as GGUF", r->path, what,
         type);
}

/* ---- normalizers ---- */

static enum teg_status read_normalizer(struct reader *r, const json_t *json);

static enum teg_status add_normal(struct reader *r, struct teg_normal_step step)
{
    struct teg_normal *const normal = &r->tok->normal;
    if (normal->n_steps == TEG_NORMAL_MAX_STEPS)
        FAIL(r->err, TEG_ERR_UNSUPPORTED, WHERE ": %s: normalizer: expected at most %d steps, found more", r->path,
             TEG_NORMAL_MAX_STEPS);
    normal->steps[normal->n_steps++] = step;
    return TEG_OK;
}

static enum teg_status keep(struct reader *r, const json_t *string, struct teg_string *out)
{
    const size_t n = json_string_length(string);
    const char *const copy = teg_arena_string(&r->tok->arena, n ? json_string_value(string) : "", n);
    if (!copy)
        return teg_base_fail_memory(r->err, "a tokenizer component", n);
    *out = (struct teg_string){copy, n};
    return TEG_OK;
}

static enum teg_status normal_sequence(struct reader *r, const json_t *json)
{
    const json_t *const items = json_object_get(json, "normalizers");
    for (size_t i = 0; i < json_array_size(items); i++)
        TRY(read_normalizer(r, json_array_get(items, i)));
    return TEG_OK;
}

/* {"precompiled_charsmap": base64}; null and "" are no rules. */
static enum teg_status normal_precompiled(struct reader *r, const json_t *json)
{
    const json_t *const text = json_object_get(json, "precompiled_charsmap");
    const size_t n = json_string_length(text);
    struct teg_charsmap *const map = teg_arena_array(&r->tok->arena, 1, sizeof *map);
    uint8_t *const blob = teg_arena_array(&r->tok->arena, n / 4 + 1, 3);
    size_t n_blob = 0;
    if (!map || !blob)
        return teg_base_fail_memory(r->err, "a tokenizer component", n);
    if (!n)
        return TEG_OK;
    if (!teg_base64_decode((struct teg_string){json_string_value(text), n}, blob, &n_blob))
        FAIL(r->err, TEG_ERR_FORMAT,
             WHERE ": %s: Precompiled: expected precompiled_charsmap in base64, found something else; download the "
                   "file again",
             r->path);
    const char *const where = teg_arena_printf(&r->tok->arena, WHERE ": %s", r->path);
    TRY(teg_charsmap_open(map, (struct teg_span){blob, n_blob}, where ? where : WHERE, r->err));
    return add_normal(r, (struct teg_normal_step){.kind = TEG_NORMAL_CHARSMAP, .map = map});
}

static enum teg_status normal_strip(struct reader *r, const json_t *json)
{
    if (flag_of(json, "strip_left", true))
        TRY(add_normal(r, (struct teg_normal_step){.kind = TEG_NORMAL_STRIP_LEFT}));
    if (flag_of(json, "strip_right", true))
        TRY(add_normal(r, (struct teg_normal_step){.kind = TEG_NORMAL_STRIP_RIGHT}));
    return TEG_OK;
}

static enum teg_status normal_byte_level(struct reader *r, const json_t *json)
{
    (void)json;
    r->tok->letters = true;
    return add_normal(r, (struct teg_normal_step){.kind = TEG_NORMAL_LETTERS});
}

static enum teg_status normal_bert(struct reader *r, const json_t *json)
{
    const bool lowercase = flag_of(json, "lowercase", true);
    const bool strip = flag_of(json, "strip_accents", lowercase); /* null follows lowercase */
    const struct {
        bool wanted;
        enum teg_normal_kind kind;
    } steps[] = {
        {flag_of(json, "clean_text", true), TEG_NORMAL_CLEAN},
        {flag_of(json, "handle_chinese_chars", true), TEG_NORMAL_SPACE_IDEOGRAMS},
        {strip, TEG_NORMAL_NFD},
        {strip, TEG_NORMAL_STRIP_ACCENTS},
        {lowercase, TEG_NORMAL_LOWERCASE},
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (steps[i].wanted)
            TRY(add_normal(r, (struct teg_normal_step){.kind = steps[i].kind}));
    return TEG_OK;
}

static enum teg_status normal_prepend(struct reader *r, const json_t *json)
{
    struct teg_normal_step step = {.kind = TEG_NORMAL_PREPEND};
    TRY(keep(r, json_object_get(json, "prepend"), &step.content));
    if (strcmp(step.content.bytes, TEG_SPACE_MARK) == 0)
        r->tok->strips = TEG_PREFIX_ALWAYS;
    return add_normal(r, step);
}

/* {"pattern":{"String":…}} or {"pattern":{"Regex":…}}; *literal says which. */
static enum teg_status read_pattern(struct reader *r, const json_t *json, const json_t **text, bool *literal)
{
    const json_t *const pattern = json_object_get(json, "pattern");
    const json_t *const plain = json_object_get(pattern, "String");
    *text = plain ? plain : json_object_get(pattern, "Regex");
    *literal = plain != NULL;
    if (!json_string_length(*text))
        FAIL(r->err, TEG_ERR_FORMAT, WHERE ": %s: %s: expected a pattern with a String or a Regex, found none", r->path,
             string_of(json, "type"));
    return TEG_OK;
}

static enum teg_status normal_replace(struct reader *r, const json_t *json)
{
    struct teg_normal_step step = {.kind = TEG_NORMAL_REPLACE};
    const json_t *text;
    bool literal;
    TRY(read_pattern(r, json, &text, &literal));
    TRY(keep(r, json_object_get(json, "content"), &step.content));
    if (literal)
        TRY(keep(r, text, &step.needle));
    else
        TRY(teg_regex_new(&r->tok->arena, json_string_value(text), json_string_length(text), false, WHERE ": Replace",
                          &step.regex, r->err));
    if (strcmp(step.content.bytes, TEG_SPACE_MARK) == 0)
        r->tok->marks_spaces = true;
    const enum teg_status status = add_normal(r, step);
    if (status != TEG_OK)
        teg_regex_free(step.regex);
    return status;
}

static enum teg_status read_normalizer(struct reader *r, const json_t *json)
{
    static const struct {
        const char *type;
        enum teg_normal_kind kind;
    } plain[] = {
        {"NFC", TEG_NORMAL_NFC},
        {"NFD", TEG_NORMAL_NFD},
        {"NFKC", TEG_NORMAL_NFKC},
        {"NFKD", TEG_NORMAL_NFKD},
        {"Lowercase", TEG_NORMAL_LOWERCASE},
        {"StripAccents", TEG_NORMAL_STRIP_MARKS},
        {"Nmt", TEG_NORMAL_NMT},
    };
    static const struct component table[] = {
        {"Sequence", normal_sequence},       {"Prepend", normal_prepend}, {"Replace", normal_replace},
        {"Precompiled", normal_precompiled}, {"Strip", normal_strip},     {"BertNormalizer", normal_bert},
        {"ByteLevel", normal_byte_level},
    };
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (strcmp(plain[i].type, string_of(json, "type")) == 0)
            return add_normal(r, (struct teg_normal_step){.kind = plain[i].kind});
    return dispatch(r, json, table, sizeof table / sizeof *table, "normalizer");
}

enum teg_status teg_hf_normalizer(struct teg_tok *tok, const struct json_t *json, const char *path,
                                  struct teg_error *err)
{
    struct reader r = {tok, path, 0, err};
    return !json || json_is_null(json) ? TEG_OK : read_normalizer(&r, json);
}

/* ---- pre-tokenizers ---- */

static enum teg_status read_pretokenizer(struct reader *r, const json_t *json);

static enum teg_status read_behavior(struct reader *r, const json_t *json, enum teg_split otherwise,
                                     enum teg_split *split)
{
    static const struct {
        const char *name;
        enum teg_split split;
    } table[] = {
        {"Isolated", TEG_SPLIT_ISOLATED},     {"Removed", TEG_SPLIT_REMOVED},
        {"Contiguous", TEG_SPLIT_CONTIGUOUS}, {"MergedWithPrevious", TEG_SPLIT_PREVIOUS},
        {"MergedWithNext", TEG_SPLIT_NEXT},
    };
    const char *const name = string_of(json, "behavior");
    *split = otherwise;
    if (!*name)
        return TEG_OK;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i].name, name) == 0) {
            *split = table[i].split;
            return TEG_OK;
        }
    FAIL(r->err, TEG_ERR_UNSUPPORTED, WHERE ": %s: %s: expected a known behavior, found \"%.64s\"", r->path,
         string_of(json, "type"), name);
}

static enum teg_status add_step(struct reader *r, const char *pattern, bool literal, enum teg_split split, bool invert)
{
    return teg_pretok_add(&r->tok->pretok, &r->tok->arena, pattern, strlen(pattern), literal, split, invert,
                          WHERE ": pre_tokenizer", r->err);
}

static enum teg_status pre_sequence(struct reader *r, const json_t *json)
{
    const json_t *const items = json_object_get(json, "pretokenizers");
    for (size_t i = 0; i < json_array_size(items); i++)
        TRY(read_pretokenizer(r, json_array_get(items, i)));
    return TEG_OK;
}

static enum teg_status pre_split(struct reader *r, const json_t *json)
{
    const json_t *text;
    bool literal;
    enum teg_split split;
    TRY(read_pattern(r, json, &text, &literal));
    TRY(read_behavior(r, json, TEG_SPLIT_ISOLATED, &split));
    return add_step(r, json_string_value(text), literal, split, flag_of(json, "invert", false));
}

static enum teg_status pre_byte_level(struct reader *r, const json_t *json)
{
    r->tok->letters = true;
    if (flag_of(json, "add_prefix_space", true))
        TRY(teg_pretok_add_spaces(&r->tok->pretok, TEG_PREFIX_ALWAYS, false, WHERE ": pre_tokenizer", r->err));
    if (flag_of(json, "use_regex", true))
        TRY(add_step(r, TEG_PATTERN_GPT2, false, TEG_SPLIT_ISOLATED, false));
    r->tok->pretok.letters = true;
    return TEG_OK;
}

static enum teg_status pre_metaspace(struct reader *r, const json_t *json)
{
    const char *const mark = string_of(json, "replacement");
    if (*mark && strcmp(mark, TEG_SPACE_MARK) != 0)
        FAIL(r->err, TEG_ERR_UNSUPPORTED, WHERE ": %s: Metaspace: expected the replacement U+2581, found \"%.16s\"",
             r->path, mark);
    const char *const scheme = string_of(json, "prepend_scheme");
    enum teg_prefix prefix = flag_of(json, "add_prefix_space", true) ? TEG_PREFIX_ALWAYS : TEG_PREFIX_NEVER;
    if (strcmp(scheme, "first") == 0)
        prefix = TEG_PREFIX_FIRST;
    else if (strcmp(scheme, "never") == 0)
        prefix = TEG_PREFIX_NEVER;
    else if (strcmp(scheme, "always") == 0)
        prefix = TEG_PREFIX_ALWAYS;
    TRY(teg_pretok_add_spaces(&r->tok->pretok, prefix, true, WHERE ": pre_tokenizer", r->err));
    r->tok->marks_spaces = true;
    r->tok->strips = prefix;
    return flag_of(json, "split", true) ? add_step(r, TEG_SPACE_MARK, true, TEG_SPLIT_NEXT, false) : TEG_OK;
}

static enum teg_status pre_digits(struct reader *r, const json_t *json)
{
    const bool each = flag_of(json, "individual_digits", false);
    return add_step(r, "\\p{N}", false, each ? TEG_SPLIT_ISOLATED : TEG_SPLIT_CONTIGUOUS, false);
}

#define PUNCTUATION "[\\p{P}$+<=>\\^`|~]" /* Unicode's, and what ASCII calls so */

static enum teg_status pre_punctuation(struct reader *r, const json_t *json)
{
    enum teg_split split;
    TRY(read_behavior(r, json, TEG_SPLIT_ISOLATED, &split));
    return add_step(r, PUNCTUATION, false, split, false);
}

/* \w of the regular expressions that this component is made with: wider than that of a Split pattern. */
#define WORD "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{200C}\\x{200D}\\x{24B6}-\\x{24E9}"

static enum teg_status pre_whitespace(struct reader *r, const json_t *json)
{
    (void)json;
    return add_step(r, "[" WORD "]+|[^" WORD "\\s]+", false, TEG_SPLIT_REMOVED, true);
}

static enum teg_status pre_whitespace_split(struct reader *r, const json_t *json)
{
    (void)json;
    return add_step(r, "\\s", false, TEG_SPLIT_REMOVED, false);
}

static enum teg_status pre_bert(struct reader *r, const json_t *json)
{
    TRY(pre_whitespace_split(r, json));
    return add_step(r, PUNCTUATION, false, TEG_SPLIT_ISOLATED, false);
}

static enum teg_status pre_delimiter(struct reader *r, const json_t *json)
{
    const char *const delimiter = string_of(json, "delimiter");
    if (!*delimiter)
        FAIL(r->err, TEG_ERR_FORMAT, WHERE ": %s: CharDelimiterSplit: expected a delimiter, found none", r->path);
    return add_step(r, delimiter, true, TEG_SPLIT_REMOVED, false);
}

static enum teg_status read_pretokenizer(struct reader *r, const json_t *json)
{
    static const struct component table[] = {
        {"Sequence", pre_sequence},     {"Split", pre_split},
        {"ByteLevel", pre_byte_level},  {"Metaspace", pre_metaspace},
        {"Digits", pre_digits},         {"Punctuation", pre_punctuation},
        {"Whitespace", pre_whitespace}, {"WhitespaceSplit", pre_whitespace_split},
        {"BertPreTokenizer", pre_bert}, {"CharDelimiterSplit", pre_delimiter},
    };
    return dispatch(r, json, table, sizeof table / sizeof *table, "pre_tokenizer");
}

enum teg_status teg_hf_pretokenizer(struct teg_tok *tok, const struct json_t *json, const char *path,
                                    struct teg_error *err)
{
    struct reader r = {tok, path, 0, err};
    return !json || json_is_null(json) ? TEG_OK : read_pretokenizer(&r, json);
}
