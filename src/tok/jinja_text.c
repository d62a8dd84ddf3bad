/* tok/jinja_text.c: str() and repr() of values as Python writes them, and Unicode helpers.
 *
 * All strings in here are valid UTF-8: the template is checked by the lexer, the variables by the JSON reader, and
 * cuts are made at characters only. */
#include "tok/jinja_int.h"

#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

uint32_t teg_j_next(struct jstr s, size_t at, size_t *n_bytes)
{
    uint32_t code;
    size_t bad;
    *n_bytes = teg_utf8_next(s.p + at, s.n - at, &code, &bad);
    if (!*n_bytes)
        *n_bytes = bad;
    return code;
}

size_t teg_j_utf8_count(struct jstr s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++)
        n += ((uint8_t)s.p[i] & 0xC0) != 0x80;
    return n;
}

size_t teg_j_utf8_at(struct jstr s, size_t index)
{
    size_t at = 0;
    for (; at < s.n; at++)
        if (((uint8_t)s.p[at] & 0xC0) != 0x80 && index-- == 0)
            break;
    return at;
}

bool teg_j_is_space(uint32_t c)
{
    if (c < 0x80)
        return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x1F);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

bool teg_j_is_line_end(uint32_t c)
{
    return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

static bool strips(struct jstr s, size_t at, const struct jstr *chars, size_t *n)
{
    const uint32_t code = teg_j_next(s, at, n);
    if (!chars)
        return teg_j_is_space(code);
    for (size_t i = 0, step; i < chars->n; i += step)
        if (teg_j_next(*chars, i, &step) == code)
            return true;
    return false;
}

struct jstr teg_j_strip(struct jstr s, const struct jstr *chars, bool left, bool right)
{
    size_t n;
    while (left && s.n && strips(s, 0, chars, &n)) {
        s.p += n;
        s.n -= n;
    }
    while (right && s.n) {
        size_t at = s.n - 1;
        while (at > 0 && ((uint8_t)s.p[at] & 0xC0) == 0x80)
            at--;
        if (!strips(s, at, chars, &n))
            break;
        s.n = at;
    }
    return s;
}

struct jv teg_jv_of_buf(const struct jbuf *b)
{
    return teg_jv_str(b->p ? b->p : "", b->n);
}

double teg_j_strtod(const char *text, char **end)
{
    char copy[80];
    const char *const point = strchr(text, '.');
    const size_t n = strlen(text);
    if (!point || *localeconv()->decimal_point == '.' || n >= sizeof copy)
        return strtod(text, end);
    memcpy(copy, text, n + 1);
    copy[point - text] = *localeconv()->decimal_point;
    char *copy_end;
    const double f = strtod(copy, &copy_end);
    if (end)
        *end = (char *)(uintptr_t)text + (copy_end - copy);
    return f;
}

/* The shortest decimal that reads back as f; an exponent below 1e-4 and from 1e16 on. */
void teg_j_float_repr(double f, char out[TEG_J_FLOAT_BYTES])
{
    if (isnan(f) || isinf(f)) {
        strcpy(out, isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    char text[TEG_J_FLOAT_BYTES], digits[24];
    int precision = 0;
    do
        (void)snprintf(text, sizeof text, "%.*e", precision, f);
    while (strtod(text, NULL) != f && ++precision < 17);
    const bool negative = text[0] == '-';
    const int exponent = atoi(strchr(text, 'e') + 1);
    int n = 0;
    for (const char *p = text; *p != 'e'; p++)
        if (*p >= '0' && *p <= '9')
            digits[n++] = *p;
    digits[n] = '\0';
    const char *const sign = negative ? "-" : "";
    if (exponent < -4 || exponent >= 16)
        (void)snprintf(out, TEG_J_FLOAT_BYTES, "%s%c%s%se%c%02d", sign, digits[0], n > 1 ? "." : "", digits + 1,
                       exponent < 0 ? '-' : '+', abs(exponent) % 1000);
    else if (exponent < 0)
        (void)snprintf(out, TEG_J_FLOAT_BYTES, "%s0.%.*s%s", sign, -exponent - 1, "0000", digits);
    else if (n <= exponent + 1)
        (void)snprintf(out, TEG_J_FLOAT_BYTES, "%s%s%.*s.0", sign, digits, exponent + 1 - n, "0000000000000000");
    else
        (void)snprintf(out, TEG_J_FLOAT_BYTES, "%s%.*s.%s", sign, exponent + 1, digits, digits + exponent + 1);
}

/* ---- repr ---- */

/* str.isprintable for one character: no controls, separators (but the space), surrogates, unassigned. */
static bool is_printable(uint32_t code)
{
    if (code < 0x7F)
        return code >= 0x20;
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
        return false;
    default:
        return true;
    }
}

static enum teg_status put_repr_char(struct jctx *c, struct jbuf *b, struct jstr s, size_t at, size_t n, char quote)
{
    static const char from[] = "\\\n\r\t", to[] = "\\nrt";
    const char ch = s.p[at];
    const char *const known = ch ? strchr(from, ch) : NULL;
    char text[16];
    size_t step;
    const uint32_t code = teg_j_next(s, at, &step);
    if (known)
        (void)snprintf(text, sizeof text, "\\%c", to[known - from]);
    else if (ch == quote)
        (void)snprintf(text, sizeof text, "\\%c", quote);
    else if (is_printable(code))
        return teg_j_put(c, b, s.p + at, n);
    else
        (void)snprintf(text, sizeof text,
                       code < 0x100     ? "\\x%02x"
                       : code < 0x10000 ? "\\u%04x"
                                        : "\\U%08x",
                       (unsigned)code);
    return teg_j_puts(c, b, text);
}

static enum teg_status put_str_repr(struct jctx *c, struct jbuf *b, struct jstr s)
{
    const bool single = s.n && memchr(s.p, '\'', s.n), dbl = s.n && memchr(s.p, '"', s.n);
    const char quote = single && !dbl ? '"' : '\'';
    TRY(teg_j_step(c, s.n));
    TRY(teg_j_put(c, b, &quote, 1));
    for (size_t at = 0, step; at < s.n; at += step) {
        (void)teg_j_next(s, at, &step);
        TRY(put_repr_char(c, b, s, at, step, quote));
    }
    return teg_j_put(c, b, &quote, 1);
}

static enum teg_status put_items(struct jctx *c, struct jbuf *b, const struct jv *items, size_t n, const char *open,
                                 const char *close)
{
    TRY(teg_j_puts(c, b, open));
    for (size_t i = 0; i < n; i++) {
        if (i)
            TRY(teg_j_puts(c, b, ", "));
        TRY(teg_jv_put_repr(c, b, &items[i]));
    }
    return teg_j_puts(c, b, close);
}

static enum teg_status put_pairs(struct jctx *c, struct jbuf *b, const struct jpair *pairs, size_t n)
{
    TRY(teg_j_puts(c, b, "{"));
    for (size_t i = 0; i < n; i++) {
        if (i)
            TRY(teg_j_puts(c, b, ", "));
        TRY(teg_jv_put_repr(c, b, &pairs[i].key));
        TRY(teg_j_puts(c, b, ": "));
        TRY(teg_jv_put_repr(c, b, &pairs[i].value));
    }
    return teg_j_puts(c, b, "}");
}

static enum teg_status put_range(struct jctx *c, struct jbuf *b, const struct jrange *r)
{
    char text[96];
    int n = snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64, r->start, r->stop);
    if (r->step != 1)
        n += snprintf(text + n, sizeof text - (size_t)n, ", %" PRId64, r->step);
    (void)snprintf(text + n, sizeof text - (size_t)n, ")");
    return teg_j_puts(c, b, text);
}

static enum teg_status put_compound(struct jctx *c, struct jbuf *b, const struct jv *v)
{
    static const char *const views[] = {
        [J_VIEW_KEYS] = "dict_keys([", [J_VIEW_VALUES] = "dict_values([", [J_VIEW_ITEMS] = "dict_items(["};
    switch (v->kind) {
    case J_LIST:
        return put_items(c, b, v->u.items, v->n, "[", "]");
    case J_TUPLE:
        return put_items(c, b, v->u.items, v->n, "(", v->n == 1 ? ",)" : ")");
    case J_DICT:
        return put_pairs(c, b, v->u.pairs, v->n);
    case J_RANGE:
        return put_range(c, b, v->u.range);
    case J_VIEW:
        return put_items(c, b, v->u.items, v->n, views[v->aux], "])");
    case J_NAMESPACE:
        TRY(teg_j_puts(c, b, "<Namespace "));
        TRY(put_pairs(c, b, v->u.ns->pairs, v->u.ns->n));
        return teg_j_puts(c, b, ">");
    default: /* Python writes an address here, or names that are no text for a model */
        JUNSUPPORTED(c, "writing a %s as text is not supported%s", teg_jv_type(v),
                     v->kind == J_ITER     ? "; add |list"
                     : v->kind == J_METHOD ? "; is a call missing its parentheses?"
                                           : "");
    }
}

enum teg_status teg_jv_put_repr(struct jctx *c, struct jbuf *b, const struct jv *v)
{
    char text[TEG_J_FLOAT_BYTES];
    TRY(teg_j_step(c, 0));
    switch (v->kind) {
    case J_UNDEFINED:
        return teg_j_puts(c, b, "Undefined");
    case J_NONE:
        return teg_j_puts(c, b, "None");
    case J_BOOL:
        return teg_j_puts(c, b, v->u.b ? "True" : "False");
    case J_INT:
        (void)snprintf(text, sizeof text, "%" PRId64, v->u.i);
        return teg_j_puts(c, b, text);
    case J_FLOAT:
        teg_j_float_repr(v->u.f, text);
        return teg_j_puts(c, b, text);
    case J_STR:
        if (v->aux)
            TRY(teg_j_puts(c, b, "Markup("));
        TRY(put_str_repr(c, b, teg_jv_text(v)));
        return teg_j_puts(c, b, v->aux ? ")" : "");
    default:
        TRY(teg_j_enter(c));
        TRY(put_compound(c, b, v));
        c->depth--;
        return TEG_OK;
    }
}

enum teg_status teg_jv_put_str(struct jctx *c, struct jbuf *b, const struct jv *v)
{
    if (v->kind == J_UNDEFINED)
        return TEG_OK;
    if (v->kind != J_STR)
        return teg_jv_put_repr(c, b, v);
    TRY(teg_j_step(c, v->n));
    return teg_j_put(c, b, v->u.s, v->n);
}

enum teg_status teg_jv_str_of(struct jctx *c, const struct jv *v, struct jv *out)
{
    struct jbuf b = {0};
    if (v->kind == J_STR) {
        *out = teg_jv_str(v->u.s, v->n);
        return TEG_OK;
    }
    TRY(teg_jv_put_str(c, &b, v));
    *out = teg_jv_of_buf(&b);
    return TEG_OK;
}
