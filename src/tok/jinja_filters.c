/* tok/jinja_filters.c: filters that take one value: text, numbers, defaults.
 *
 * A filter is a row: name, function, parameters as jinja2 names them. Filters over sequences are in jinja_seq.c. What
 * jinja2 has and no chat template needs (HTML and URL helpers, random) stays in the table as NULL, so that the error
 * can say "not supported" rather than "unknown". */
#include "tok/jinja_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define FILTER(name)                                                                                                   \
    static enum teg_status name(struct jctx *c, const struct jv *self, const struct jcall *call, const struct jv *a,   \
                                struct jv *out)

static bool given(const struct jv *v)
{
    return v->kind != J_MISSING;
}

/* Text filters turn their subject into text first, as soft_str does; Markup stays what it is. */
static enum teg_status soft_str(struct jctx *c, const struct jv *self, struct jv *out)
{
    if (self->kind == J_STR) {
        *out = *self;
        return TEG_OK;
    }
    return teg_jv_str_of(c, self, out);
}

/* The string method of the same name, on the subject's text. */
static enum teg_status by_method(struct jctx *c, const char *name, const struct jv *self, const struct jcall *call,
                                 struct jv *out)
{
    struct jv text;
    TRY(soft_str(c, self, &text));
    const struct jbuiltin *const f = teg_j_builtin(teg_j_str_methods, (struct jstr){name, strlen(name)});
    return teg_j_call_builtin(c, f, "filter", &text, call, out);
}

FILTER(filter_upper)
{
    (void)a;
    return by_method(c, "upper", self, call, out);
}

FILTER(filter_lower)
{
    (void)a;
    return by_method(c, "lower", self, call, out);
}

FILTER(filter_capitalize)
{
    (void)a;
    return by_method(c, "capitalize", self, call, out);
}

FILTER(filter_trim)
{
    const struct jcall chars = {a, given(&a[0]), NULL, 0};
    (void)call;
    return by_method(c, "strip", self, &chars, out);
}

FILTER(filter_center)
{
    const struct jv width = given(&a[0]) ? a[0] : teg_jv_int(80);
    const struct jcall args = {&width, 1, NULL, 0};
    (void)call;
    return by_method(c, "center", self, &args, out);
}

/* Words as jinja2's title sees them: parted by white space and -({[< */
FILTER(filter_title)
{
    struct jv text, part;
    struct jbuf b = {0};
    (void)call;
    (void)a;
    TRY(soft_str(c, self, &text));
    const struct jstr s = teg_jv_text(&text);
    for (size_t at = 0, n; at < s.n;) {
        size_t to = at;
        bool separator = false;
        for (; to < s.n; to += n) {
            const uint32_t code = teg_j_next(s, to, &n);
            const bool is_separator = teg_j_is_space(code) || (code && code < 0x80 && strchr("-({[<", (int)code));
            if (to == at)
                separator = is_separator;
            else if (is_separator != separator)
                break;
        }
        const struct jstr run = {s.p + at, to - at};
        (void)teg_j_next(run, 0, &n);
        TRY(teg_j_upper(c, (struct jstr){run.p, n}, &part));
        TRY(teg_jv_put_str(c, &b, &part));
        TRY(teg_j_lower(c, (struct jstr){run.p + n, run.n - n}, &part));
        TRY(teg_jv_put_str(c, &b, &part));
        at = to;
    }
    *out = teg_jv_of_buf(&b);
    return TEG_OK;
}

FILTER(filter_string)
{
    (void)call;
    (void)a;
    return soft_str(c, self, out);
}

FILTER(filter_safe)
{
    (void)call;
    (void)a;
    TRY(teg_jv_str_of(c, self, out));
    out->aux = 1;
    return TEG_OK;
}

enum teg_status teg_j_escape(struct jctx *c, const struct jv *v, struct jv *out)
{
    static const char from[] = "&<>\"'";
    static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
    struct jbuf b = {0};
    struct jv text;
    TRY(teg_jv_str_of(c, v, &text));
    if (v->kind == J_STR && v->aux) {
        *out = *v;
        return TEG_OK;
    }
    for (size_t i = 0; i < text.n; i++) {
        const char *const found = text.u.s[i] ? strchr(from, text.u.s[i]) : NULL;
        TRY(found ? teg_j_puts(c, &b, to[found - from]) : teg_j_put(c, &b, text.u.s + i, 1));
    }
    *out = teg_jv_of_buf(&b);
    out->aux = 1;
    return TEG_OK;
}

FILTER(filter_escape)
{
    (void)call;
    (void)a;
    return teg_j_escape(c, self, out);
}

FILTER(filter_replace)
{
    struct jv text, old, by;
    int64_t count = -1;
    (void)call;
    TRY(teg_jv_str_of(c, self, &text));
    TRY(teg_jv_str_of(c, &a[0], &old));
    TRY(teg_jv_str_of(c, &a[1], &by));
    if (given(&a[2]) && a[2].kind != J_NONE)
        TRY(teg_jv_int_arg(c, &a[2], "count", &count));
    return teg_j_replace(c, teg_jv_text(&text), teg_jv_text(&old), teg_jv_text(&by), count, out);
}

FILTER(filter_format)
{
    struct jv text, args = teg_jv_items(J_TUPLE, call->pos, call->n_pos);
    (void)a;
    if (call->n_pos && call->n_kw)
        JFAIL(c, "format takes positional or keyword arguments, not both");
    if (call->n_kw)
        args = (struct jv){.kind = J_DICT, .n = call->n_kw, .u.pairs = call->kw};
    TRY(soft_str(c, self, &text));
    return teg_j_percent(c, &text, &args, out);
}

/* indent(s, width=4, first=False, blank=False) */
FILTER(filter_indent)
{
    struct jv lines, prefix = teg_jv_str("    ", 4);
    struct jbuf with_end = {0}, b = {0};
    const bool first = given(&a[1]) && teg_jv_truth(&a[1]), blank = given(&a[2]) && teg_jv_truth(&a[2]);
    (void)call;
    TRY(teg_jv_defined(c, self));
    if (self->kind != J_STR)
        JFAIL(c, "unsupported operand types for +: '%s' and 'str'", teg_jv_type(self));
    if (given(&a[0]) && a[0].kind == J_STR) {
        prefix = a[0];
    } else if (given(&a[0])) {
        const struct jv space = teg_jv_str(" ", 1);
        TRY(teg_j_binary(c, OP_MUL, &space, &a[0], &prefix));
    }
    TRY(teg_j_put(c, &with_end, self->u.s, self->n));
    TRY(teg_j_puts(c, &with_end, "\n"));
    TRY(teg_j_splitlines(c, (struct jstr){with_end.p, with_end.n}, false, &lines));
    for (size_t i = 0; i < lines.n; i++) {
        const struct jv *const line = &lines.u.items[i];
        if (i)
            TRY(teg_j_puts(c, &b, "\n"));
        if (i ? blank || line->n : first)
            TRY(teg_j_put(c, &b, prefix.u.s, prefix.n));
        TRY(teg_j_put(c, &b, line->u.s, line->n));
    }
    *out = teg_jv_of_buf(&b);
    out->aux = self->aux;
    return TEG_OK;
}

static bool is_word(uint32_t code)
{
    const utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)code);
    return code == '_' || (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO) ||
           (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO);
}

FILTER(filter_wordcount)
{
    struct jv text;
    int64_t count = 0;
    bool inside = false;
    (void)call;
    (void)a;
    TRY(soft_str(c, self, &text));
    for (size_t at = 0, n; at < text.n; at += n) {
        const bool word = is_word(teg_j_next(teg_jv_text(&text), at, &n));
        count += word && !inside;
        inside = word;
    }
    *out = teg_jv_int(count);
    return TEG_OK;
}

/* truncate(s, length=255, killwords=False, end="...", leeway=5) */
FILTER(filter_truncate)
{
    struct jv end = given(&a[2]) ? a[2] : teg_jv_str("...", 3);
    int64_t length = 255, leeway = 5;
    size_t n;
    struct jbuf b = {0};
    (void)call;
    TRY(teg_jv_str_arg(c, self, "truncate"));
    TRY(teg_jv_str_arg(c, &end, "end"));
    if (given(&a[0]))
        TRY(teg_jv_int_arg(c, &a[0], "length", &length));
    if (given(&a[3]) && a[3].kind != J_NONE)
        TRY(teg_jv_int_arg(c, &a[3], "leeway", &leeway));
    const int64_t n_end = (int64_t)teg_j_utf8_count(teg_jv_text(&end));
    if (length < n_end || leeway < 0)
        JFAIL(c, "expected a length of at least %d and a leeway of at least 0", (int)n_end);
    TRY(teg_jv_length(c, self, &n));
    *out = *self;
    if ((int64_t)n <= length || (int64_t)n - length <= leeway)
        return TEG_OK;
    struct jstr s = teg_jv_text(self);
    s.n = teg_j_utf8_at(s, (size_t)(length - n_end));
    const char *const space = given(&a[1]) && teg_jv_truth(&a[1]) ? NULL : memrchr(s.p, ' ', s.n);
    TRY(teg_j_put(c, &b, s.p, space ? (size_t)(space - s.p) : s.n));
    TRY(teg_j_put(c, &b, end.u.s, end.n));
    *out = teg_jv_of_buf(&b);
    return TEG_OK;
}

/* ---- numbers ---- */

/* int() or float() of a string: digits with single underscores between them. */
static bool clean_number(struct jstr s, char *text, size_t capacity)
{
    s = teg_j_strip(s, NULL, true, true);
    size_t n = 0;
    if (s.n >= capacity || !s.n)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        const bool digit_before = i && s.p[i - 1] >= '0' && s.p[i - 1] <= '9';
        const bool digit_after = i + 1 < s.n && s.p[i + 1] >= '0' && s.p[i + 1] <= '9';
        if (s.p[i] == '_' && digit_before && digit_after)
            continue;
        if ((uint8_t)s.p[i] >= 0x80 || s.p[i] == '\0' || s.p[i] == '_' || teg_j_is_space((uint32_t)s.p[i]))
            return false;
        text[n++] = s.p[i];
    }
    text[n] = '\0';
    return true;
}

static bool parse_float(struct jstr s, double *out)
{
    char text[80], *end;
    if (!clean_number(s, text, sizeof text) || strpbrk(text, "xXpP(")) /* strtod also reads hex, Python does not */
        return false;
    *out = teg_j_strtod(text, &end);
    return *end == '\0' && end != text;
}

/* 1: *out; 0: not an integer; -1: too large. */
static int parse_int(struct jstr s, int64_t base, int64_t *out)
{
    char text[80];
    if (!clean_number(s, text, sizeof text))
        return 0;
    const bool negative = text[0] == '-';
    const char *p = text + (negative || text[0] == '+');
    if (*p == '0' && ((base == 16 && (p[1] | 0x20) == 'x') || (base == 8 && (p[1] | 0x20) == 'o') ||
                      (base == 2 && (p[1] | 0x20) == 'b')))
        p += 2;
    int64_t value = 0;
    if (!*p)
        return 0;
    for (; *p; p++) {
        const char lower = (char)(*p | 0x20);
        const int64_t digit = *p >= '0' && *p <= '9' ? *p - '0' : lower >= 'a' && lower <= 'z' ? lower - 'a' + 10 : 99;
        if (digit >= base)
            return 0;
        if (__builtin_mul_overflow(value, base, &value) || __builtin_sub_overflow(value, digit, &value))
            return -1;
    }
    if (!negative && value == INT64_MIN)
        return -1;
    *out = negative ? value : -value;
    return 1;
}

static enum teg_status int_of_float(struct jctx *c, double f, const struct jv *fallback, struct jv *out)
{
    if (isnan(f) || isinf(f))
        *out = *fallback;
    else if (fabs(f) >= 9223372036854775808.0)
        JUNSUPPORTED(c, "expected an integer of 64 bits, found a larger one");
    else
        *out = teg_jv_int((int64_t)f);
    return TEG_OK;
}

/* Python reads digits of every script; here they are refused, never misread. */
static enum teg_status ascii_digits(struct jctx *c, const struct jv *v)
{
    TRY(teg_j_step(c, v->n));
    for (size_t at = 0, n; at < v->n; at += n) {
        const uint32_t code = teg_j_next(teg_jv_text(v), at, &n);
        if (code >= 0x80 && utf8proc_category((utf8proc_int32_t)code) == UTF8PROC_CATEGORY_ND)
            JUNSUPPORTED(c, "expected ASCII digits in a number, found U+%04X", (unsigned)code);
    }
    return TEG_OK;
}

/* int(value, default=0, base=10) */
FILTER(filter_int)
{
    const struct jv fallback = given(&a[0]) ? a[0] : teg_jv_int(0);
    int64_t base = 10, i;
    double f;
    (void)call;
    TRY(teg_jv_defined(c, self));
    if (given(&a[1]))
        TRY(teg_jv_int_arg(c, &a[1], "base", &base));
    if (base < 2 || base > 36)
        JUNSUPPORTED(c, "expected a base from 2 to 36, found another");
    if (teg_jv_as_int(self, &i)) {
        *out = teg_jv_int(i);
        return TEG_OK;
    }
    if (self->kind == J_FLOAT) {
        if (isinf(self->u.f)) /* OverflowError is not caught around the first attempt */
            JFAIL(c, "cannot convert float infinity to integer");
        return int_of_float(c, self->u.f, &fallback, out);
    }
    *out = fallback;
    if (self->kind != J_STR)
        return TEG_OK;
    TRY(ascii_digits(c, self));
    const int parsed = parse_int(teg_jv_text(self), base, &i);
    if (parsed < 0)
        JUNSUPPORTED(c, "expected an integer of 64 bits, found a larger one");
    if (parsed)
        *out = teg_jv_int(i);
    else if (parse_float(teg_jv_text(self), &f))
        return int_of_float(c, f, &fallback, out);
    return TEG_OK;
}

FILTER(filter_float)
{
    double f;
    (void)call;
    TRY(teg_jv_defined(c, self));
    *out = given(&a[0]) ? a[0] : teg_jv_float(0);
    if (self->kind == J_STR)
        TRY(ascii_digits(c, self));
    if (teg_jv_is_number(self))
        *out = teg_jv_float(teg_jv_as_float(self));
    else if (self->kind == J_STR && parse_float(teg_jv_text(self), &f))
        *out = teg_jv_float(f);
    return TEG_OK;
}

FILTER(filter_abs)
{
    int64_t i;
    (void)call;
    (void)a;
    TRY(teg_jv_defined(c, self));
    if (self->kind == J_FLOAT) {
        *out = teg_jv_float(fabs(self->u.f));
        return TEG_OK;
    }
    if (!teg_jv_as_int(self, &i))
        JFAIL(c, "bad operand type for abs(): '%s'", teg_jv_type(self));
    const struct jv v = teg_jv_int(i);
    return teg_j_unary(c, i < 0 ? OP_SUB : OP_ADD, &v, out);
}

/* Correctly rounded decimal rounding: through the decimal text, as Python does. */
static double round_decimal(double f, int64_t precision)
{
    char text[400];
    if (!isfinite(f) || precision > 22)
        return f;
    if (precision >= 0) {
        (void)snprintf(text, sizeof text, "%.*f", (int)precision, f);
        return strtod(text, NULL);
    }
    if (precision < -308)
        return copysign(0, f);
    const double scale = pow(10, (double)-precision);
    return rint(f / scale) * scale;
}

/* round(value, precision=0, method="common") */
FILTER(filter_round)
{
    int64_t precision = 0, i;
    const struct jv method = given(&a[1]) ? a[1] : teg_jv_str("common", 6);
    (void)call;
    TRY(teg_jv_str_arg(c, &method, "method"));
    if (given(&a[0]))
        TRY(teg_jv_int_arg(c, &a[0], "precision", &precision));
    TRY(teg_jv_defined(c, self));
    if (!teg_jv_is_number(self))
        JFAIL(c, "type %s doesn't define __round__ method", teg_jv_type(self));
    const bool is_int = teg_jv_as_int(self, &i);
    if (teg_jstr_is(teg_jv_text(&method), "common")) {
        if (is_int && precision < 0)
            JUNSUPPORTED(c, "rounding an integer to a negative precision is not supported");
        *out = is_int ? teg_jv_int(i) : teg_jv_float(round_decimal(self->u.f, precision));
        return TEG_OK;
    }
    const bool up = teg_jstr_is(teg_jv_text(&method), "ceil");
    if (!up && !teg_jstr_is(teg_jv_text(&method), "floor"))
        JFAIL(c, "method must be common, ceil or floor");
    if (precision < 0 || precision > 15)
        JUNSUPPORTED(c, "expected a precision from 0 to 15, found another");
    const double scale = pow(10, (double)precision), f = teg_jv_as_float(self) * scale;
    if (!isfinite(f))
        JFAIL(c, "cannot convert float infinity or NaN to integer");
    *out = teg_jv_float((up ? ceil(f) : floor(f)) / scale + 0.0);
    return TEG_OK;
}

/* ---- defaults ---- */

FILTER(filter_default)
{
    const bool falsy = given(&a[1]) && teg_jv_truth(&a[1]) && !teg_jv_truth(self);
    (void)c;
    (void)call;
    *out = *self;
    if (self->kind == J_UNDEFINED || falsy)
        *out = given(&a[0]) ? a[0] : teg_jv_str("", 0);
    return TEG_OK;
}

FILTER(filter_attr)
{
    (void)call;
    TRY(teg_jv_str_arg(c, &a[0], "name"));
    if (self->kind == J_DICT) { /* attr does not look at items */
        struct jv bare = *self;
        bare.n = 0;
        return teg_j_getattr(c, &bare, teg_jv_text(&a[0]), out);
    }
    return teg_j_getattr(c, self, teg_jv_text(&a[0]), out);
}

const struct jbuiltin teg_j_filters[] = {
    {"trim", filter_trim, "chars", 0},
    {"upper", filter_upper, NULL, 0},
    {"lower", filter_lower, NULL, 0},
    {"capitalize", filter_capitalize, NULL, 0},
    {"title", filter_title, "", 0},
    {"center", filter_center, "width", 0},
    {"string", filter_string, "", 0},
    {"safe", filter_safe, "", 0},
    {"e", filter_escape, "", 0},
    {"escape", filter_escape, "", 0},
    {"replace", filter_replace, "old new count", 2},
    {"format", filter_format, NULL, 0},
    {"indent", filter_indent, "width first blank", 0},
    {"wordcount", filter_wordcount, "", 0},
    {"truncate", filter_truncate, "length killwords end leeway", 0},
    {"int", filter_int, "default base", 0},
    {"float", filter_float, "default", 0},
    {"abs", filter_abs, "", 0},
    {"round", filter_round, "precision method", 0},
    {"default", filter_default, "default_value boolean", 0},
    {"d", filter_default, "default_value boolean", 0},
    {"attr", filter_attr, "name", 1},
    {"tojson", teg_j_tojson, "ensure_ascii indent separators sort_keys", 0},
    {"filesizeformat", NULL, NULL, 0},
    {"forceescape", NULL, NULL, 0},
    {"pprint", NULL, NULL, 0},
    {"random", NULL, NULL, 0},
    {"striptags", NULL, NULL, 0},
    {"urlencode", NULL, NULL, 0},
    {"urlize", NULL, NULL, 0},
    {"wordwrap", NULL, NULL, 0},
    {"xmlattr", NULL, NULL, 0},
    {NULL, NULL, NULL, 0},
};

const struct jbuiltin *teg_j_filter(struct jstr name)
{
    const struct jbuiltin *const f = teg_j_builtin(teg_j_filters, name);
    return f ? f : teg_j_builtin(teg_j_seq_filters, name);
}
