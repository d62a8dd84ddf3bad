/* tok/jinja_json.c: JSON to values, and values to JSON as Python's json.dumps writes it.
 *
 * Strings of the variables are not copied: the JSON tree outlives the rendering. jansson keeps insertion order and has
 * refused duplicate surrogates, bad UTF-8 and numbers past 64 bits before we see the tree. */
#include "tok/jinja_int.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static enum teg_status from_array(struct jctx *c, const json_t *json, struct jv *out)
{
    const size_t n = json_array_size(json);
    struct jv *items;
    JNEW(c, items, n);
    for (size_t i = 0; i < n; i++)
        TRY(teg_j_from_json(c, json_array_get(json, i), &items[i]));
    *out = teg_jv_items(J_LIST, items, n);
    return TEG_OK;
}

static enum teg_status from_object(struct jctx *c, const json_t *json, struct jv *out)
{
    struct jpair *pairs;
    size_t n = 0;
    JNEW(c, pairs, json_object_size(json));
    /* jansson's iteration functions take a mutable tree, but change nothing. */
    json_t *const object = (json_t *)(uintptr_t)json;
    for (void *at = json_object_iter(object); at; at = json_object_iter_next(object, at)) {
        const char *const key = json_object_iter_key(at);
        pairs[n].key = teg_jv_str(key, json_object_iter_key_len(at));
        TRY(teg_j_from_json(c, json_object_iter_value(at), &pairs[n].value));
        n++;
    }
    *out = (struct jv){.kind = J_DICT, .n = n, .u.pairs = pairs};
    return TEG_OK;
}

enum teg_status teg_j_from_json(struct jctx *c, const void *tree, struct jv *out)
{
    const json_t *const json = tree;
    if (json_is_array(json) || json_is_object(json)) {
        if (++c->depth > TEG_J_MAX_VALUE_DEPTH)
            JUNSUPPORTED(c, "expected variables of at most %d levels, found more", TEG_J_MAX_VALUE_DEPTH);
        TRY(json_is_array(json) ? from_array(c, json, out) : from_object(c, json, out));
        c->depth--;
    } else if (json_is_string(json)) {
        *out = teg_jv_str(json_string_value(json), json_string_length(json));
    } else if (json_is_integer(json)) {
        *out = teg_jv_int(json_integer_value(json));
    } else if (json_is_real(json)) {
        *out = teg_jv_float(json_real_value(json));
    } else {
        *out = json_is_boolean(json) ? teg_jv_bool(json_is_true(json)) : teg_jv_none();
    }
    return TEG_OK;
}

/* ---- tojson ---- */

struct dumper {
    struct jctx *c;
    struct jbuf *b;
    bool ascii, sort;
    bool indented;
    struct jstr indent; /* one level of it */
    struct jstr item_separator, key_separator;
    size_t level;
};

static enum teg_status dump(struct dumper *d, const struct jv *v);

static enum teg_status put_escaped(struct dumper *d, uint32_t code)
{
    char text[16];
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char *const known = code && code < 0x80 ? strchr(from, (int)code) : NULL;
    if (known)
        (void)snprintf(text, sizeof text, "\\%c", to[known - from]);
    else if (code < 0x10000)
        (void)snprintf(text, sizeof text, "\\u%04x", (unsigned)code);
    else
        (void)snprintf(text, sizeof text, "\\u%04x\\u%04x", (unsigned)(0xD800 + ((code - 0x10000) >> 10)),
                       (unsigned)(0xDC00 + ((code - 0x10000) & 0x3FF)));
    return teg_j_puts(d->c, d->b, text);
}

static enum teg_status dump_string(struct dumper *d, struct jstr s)
{
    size_t plain = 0; /* where the run of bytes that stand for themselves begins */
    TRY(teg_j_step(d->c, s.n));
    TRY(teg_j_puts(d->c, d->b, "\""));
    for (size_t at = 0, step; at < s.n; at += step) {
        const uint32_t code = teg_j_next(s, at, &step);
        if (code >= 0x20 && code != '"' && code != '\\' && (code < 0x80 || !d->ascii) && !(d->ascii && code == 0x7F))
            continue;
        TRY(teg_j_put(d->c, d->b, s.p + plain, at - plain));
        TRY(put_escaped(d, code));
        plain = at + step;
    }
    TRY(teg_j_put(d->c, d->b, s.p + plain, s.n - plain));
    return teg_j_puts(d->c, d->b, "\"");
}

static enum teg_status line_break(struct dumper *d)
{
    if (!d->indented)
        return TEG_OK;
    TRY(teg_j_puts(d->c, d->b, "\n"));
    for (size_t i = 0; i < d->level; i++)
        TRY(teg_j_put(d->c, d->b, d->indent.p, d->indent.n));
    return TEG_OK;
}

static enum teg_status dump_float(struct dumper *d, double f)
{
    char text[TEG_J_FLOAT_BYTES];
    teg_j_float_repr(f, text);
    return teg_j_puts(d->c, d->b, isnan(f) ? "NaN" : isinf(f) ? (f < 0 ? "-Infinity" : "Infinity") : text);
}

static enum teg_status dump_key(struct dumper *d, const struct jv *key)
{
    if (key->kind == J_STR)
        return dump_string(d, teg_jv_text(key));
    if (key->kind != J_NONE && !teg_jv_is_number(key))
        JFAIL(d->c, "keys must be str, int, float, bool or None, not %s", teg_jv_type(key));
    TRY(teg_j_puts(d->c, d->b, "\""));
    TRY(dump(d, key));
    return teg_j_puts(d->c, d->b, "\"");
}

static enum teg_status sorted_pairs(struct dumper *d, const struct jv *v, const struct jpair **out)
{
    struct jv *keys;
    size_t *order;
    struct jpair *pairs;
    JNEW(d->c, keys, v->n);
    JNEW(d->c, order, v->n);
    JNEW(d->c, pairs, v->n);
    for (size_t i = 0; i < v->n; i++)
        keys[i] = v->u.pairs[i].key;
    TRY(teg_jv_sort(d->c, keys, v->n, false, order));
    for (size_t i = 0; i < v->n; i++)
        pairs[i] = v->u.pairs[order[i]];
    *out = pairs;
    return TEG_OK;
}

static enum teg_status dump_compound(struct dumper *d, const struct jv *v)
{
    const bool dict = v->kind == J_DICT;
    const struct jpair *pairs = dict ? v->u.pairs : NULL;
    if (!v->n)
        return teg_j_puts(d->c, d->b, dict ? "{}" : "[]");
    if (dict && d->sort)
        TRY(sorted_pairs(d, v, &pairs));
    TRY(teg_j_enter(d->c));
    d->level++;
    for (size_t i = 0; i < v->n; i++) {
        if (i)
            TRY(teg_j_put(d->c, d->b, d->item_separator.p, d->item_separator.n));
        else
            TRY(teg_j_puts(d->c, d->b, dict ? "{" : "["));
        TRY(line_break(d));
        if (dict) {
            TRY(dump_key(d, &pairs[i].key));
            TRY(teg_j_put(d->c, d->b, d->key_separator.p, d->key_separator.n));
        }
        TRY(dump(d, dict ? &pairs[i].value : &v->u.items[i]));
    }
    d->level--;
    TRY(line_break(d));
    d->c->depth--;
    return teg_j_puts(d->c, d->b, dict ? "}" : "]");
}

static enum teg_status dump(struct dumper *d, const struct jv *v)
{
    char text[TEG_J_FLOAT_BYTES];
    TRY(teg_j_step(d->c, 0));
    switch (v->kind) {
    case J_NONE:
        return teg_j_puts(d->c, d->b, "null");
    case J_BOOL:
        return teg_j_puts(d->c, d->b, v->u.b ? "true" : "false");
    case J_INT:
        (void)snprintf(text, sizeof text, "%" PRId64, v->u.i);
        return teg_j_puts(d->c, d->b, text);
    case J_FLOAT:
        return dump_float(d, v->u.f);
    case J_STR:
        return dump_string(d, teg_jv_text(v));
    case J_LIST:
    case J_TUPLE:
    case J_DICT:
        return dump_compound(d, v);
    default:
        JFAIL(d->c, "object of type %s is not JSON serializable", teg_jv_type(v));
    }
}

static enum teg_status set_indent(struct dumper *d, const struct jv *v)
{
    int64_t n;
    d->indented = v->kind != J_MISSING && v->kind != J_NONE;
    if (!d->indented)
        return TEG_OK;
    d->item_separator = (struct jstr){",", 1};
    if (v->kind == J_STR) {
        d->indent = teg_jv_text(v);
        return TEG_OK;
    }
    TRY(teg_jv_int_arg(d->c, v, "indent", &n));
    if (n > 1000)
        JUNSUPPORTED(d->c, "expected an indent of at most 1000, found %" PRId64, n);
    char *spaces;
    d->indent.n = n > 0 ? (size_t)n : 0;
    JNEW(d->c, spaces, d->indent.n + 1);
    memset(spaces, ' ', d->indent.n);
    d->indent.p = spaces;
    return TEG_OK;
}

/* tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False) */
enum teg_status teg_j_tojson(struct jctx *c, const struct jv *self, const struct jcall *call, const struct jv *a,
                             struct jv *out)
{
    struct jbuf b = {0};
    struct dumper d = {.c = c, .b = &b, .item_separator = {", ", 2}, .key_separator = {": ", 2}};
    (void)call;
    d.ascii = teg_jv_truth(&a[0]);
    d.sort = teg_jv_truth(&a[3]);
    TRY(set_indent(&d, &a[1]));
    if (a[2].kind != J_MISSING && a[2].kind != J_NONE) {
        if (!teg_jv_is_sequence(&a[2]) || a[2].n != 2 || a[2].u.items[0].kind != J_STR || a[2].u.items[1].kind != J_STR)
            JFAIL(c, "expected two strings for separators, found %s", teg_jv_type(&a[2]));
        d.item_separator = teg_jv_text(&a[2].u.items[0]);
        d.key_separator = teg_jv_text(&a[2].u.items[1]);
    }
    TRY(dump(&d, self));
    *out = teg_jv_of_buf(&b);
    return TEG_OK;
}
