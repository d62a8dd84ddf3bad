/* tok/jinja_format.c: "…" % args and "…".format(args).
 *
 * Both come down to one field: flags, width, precision, a letter, a value. What the two mini-languages have beyond
 * that (attributes and indices in {}, nested fields, n and c types) is refused by name. */
#include "tok/jinja_int.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct field {
    uint32_t fill;
    char align; /* < > ^ = or 0 */
    char sign;  /* + - space */
    bool alternate, zero, comma;
    size_t width;
    int precision; /* -1: none */
    char type;     /* 0: none */
};

enum { MAX_WIDTH = 1000, MAX_PRECISION = 100, MAX_NUMBER = 500 };

static enum teg_status put_fill(struct jctx *c, struct jbuf *b, uint32_t fill, size_t n)
{
    for (; n > 0; n--)
        TRY(teg_j_put_code_point(c, b, fill));
    return TEG_OK;
}

/* text padded to the field's width; for '=' the fill goes behind the first n_prefix bytes. */
static enum teg_status put_padded(struct jctx *c, struct jbuf *b, const struct field *f, struct jstr text,
                                  char default_align, size_t n_prefix)
{
    const size_t n = teg_j_utf8_count(text), pad = f->width > n ? f->width - n : 0;
    const char align = f->align ? f->align : f->zero && default_align == '>' ? '=' : default_align;
    const uint32_t fill = f->zero && !f->align ? '0' : f->fill;
    const size_t before = align == '>' ? pad : align == '^' ? pad / 2 : 0;
    TRY(put_fill(c, b, fill, before));
    TRY(teg_j_put(c, b, text.p, align == '=' ? n_prefix : 0));
    if (align == '=')
        TRY(put_fill(c, b, fill, pad));
    TRY(teg_j_put(c, b, text.p + (align == '=' ? n_prefix : 0), text.n - (align == '=' ? n_prefix : 0)));
    return align == '=' ? TEG_OK : put_fill(c, b, fill, pad - before);
}

/* Digits with a comma after every third from the point. */
static void add_commas(char *text, size_t capacity)
{
    size_t start = text[0] == '-' || text[0] == '+' || text[0] == ' ', end = start;
    while (text[end] >= '0' && text[end] <= '9')
        end++;
    for (size_t at = end; at > start + 3 && strlen(text) + 2 < capacity;) {
        at -= 3;
        memmove(text + at + 1, text + at, strlen(text + at) + 1);
        text[at] = ',';
    }
}

static enum teg_status put_int(struct jctx *c, struct jbuf *b, const struct field *f, int64_t i)
{
    char digits[80], text[MAX_NUMBER];
    const uint64_t u = i < 0 ? 0u - (uint64_t)i : (uint64_t)i;
    const char *const sign = i < 0 ? "-" : f->sign == '+' ? "+" : f->sign == ' ' ? " " : "";
    const char *prefix = "";
    if (f->type == 'x' || f->type == 'X' || f->type == 'o')
        (void)snprintf(digits, sizeof digits,
                       f->type == 'x'   ? "%" PRIx64
                       : f->type == 'X' ? "%" PRIX64
                                        : "%" PRIo64,
                       u);
    else if (f->type == 'b') {
        size_t n = 1;
        for (uint64_t rest = u; rest > 1; rest >>= 1)
            n++;
        for (size_t k = 0; k < n; k++)
            digits[k] = (char)('0' + (u >> (n - 1 - k) & 1));
        digits[n] = '\0';
    } else {
        (void)snprintf(digits, sizeof digits, "%" PRIu64, u);
    }
    if (f->alternate && strchr("xXob", f->type) && f->type)
        prefix = f->type == 'x' ? "0x" : f->type == 'X' ? "0X" : f->type == 'o' ? "0o" : "0b";
    if (f->comma)
        add_commas(digits, sizeof digits);
    const size_t n_digits = strlen(digits), n_zero = f->precision > (int)n_digits ? (size_t)f->precision - n_digits : 0;
    char zeros[MAX_PRECISION + 1];
    memset(zeros, '0', n_zero);
    zeros[n_zero] = '\0';
    (void)snprintf(text, sizeof text, "%s%s%s%s", sign, prefix, zeros, digits);
    return put_padded(c, b, f, (struct jstr){text, strlen(text)}, '>', strlen(sign) + strlen(prefix));
}

static enum teg_status put_float(struct jctx *c, struct jbuf *b, const struct field *f, double value)
{
    char text[MAX_NUMBER], format[16];
    const char *const sign = signbit(value) && !isnan(value) ? "-" : f->sign == '+' ? "+" : f->sign == ' ' ? " " : "";
    const double magnitude = fabs(value) * (f->type == '%' ? 100 : 1);
    size_t n = strlen(sign);
    memcpy(text, sign, n + 1);
    if (f->type) {
        (void)snprintf(format, sizeof format, "%%%s.*%c", f->alternate ? "#" : "", f->type == '%' ? 'f' : f->type);
        const int written = snprintf(text + n, sizeof text - n, format, f->precision < 0 ? 6 : f->precision, magnitude);
        if (written < 0 || (size_t)written >= sizeof text - n)
            JUNSUPPORTED(c, "expected a number of at most %d digits, found more", MAX_NUMBER);
    } else if (f->precision >= 0) {
        JUNSUPPORTED(c, "a format with a precision and no type is not supported; write f, e or g");
    } else {
        teg_j_float_repr(magnitude, text + n);
    }
    if (f->comma)
        add_commas(text, sizeof text);
    if (f->type == '%')
        strcat(text, "%");
    return put_padded(c, b, f, (struct jstr){text, strlen(text)}, '>', n);
}

static enum teg_status put_text(struct jctx *c, struct jbuf *b, const struct field *f, struct jstr s)
{
    if (f->precision >= 0)
        s.n = teg_j_utf8_at(s, (size_t)f->precision);
    return put_padded(c, b, f, s, '<', 0);
}

static bool parse_count(struct jstr s, size_t *at, int limit, int *out)
{
    int n = 0;
    for (; *at < s.n && s.p[*at] >= '0' && s.p[*at] <= '9'; (*at)++) {
        n = n * 10 + (s.p[*at] - '0');
        if (n > limit)
            return false;
    }
    *out = n;
    return true;
}

/* ---- % ---- */

struct percent {
    struct jctx *c;
    const struct jv *args; /* a tuple, a dict, or one value */
    size_t at;
    bool used_names;
};

static enum teg_status next_arg(struct percent *p, struct jv *out)
{
    const size_t n = p->args->kind == J_TUPLE ? p->args->n : 1;
    if (p->at >= n)
        JFAIL(p->c, "not enough arguments for the format string");
    *out = p->args->kind == J_TUPLE ? p->args->u.items[p->at] : *p->args;
    p->at++;
    return TEG_OK;
}

static enum teg_status named_arg(struct percent *p, struct jstr s, size_t *at, struct jv *out)
{
    const char *const end = memchr(s.p + *at, ')', s.n - *at);
    if (!end || p->args->kind != J_DICT)
        JFAIL(p->c, "expected a mapping for the format string, found %s", teg_jv_type(p->args));
    const struct jstr name = {s.p + *at, (size_t)(end - s.p) - *at};
    const struct jv *const found = teg_jv_find_str(p->args->u.pairs, p->args->n, name);
    if (!found)
        JFAIL(p->c, "the format string's name %.*s is not in the mapping", JSTR(name));
    *out = *found;
    *at += name.n + 1;
    p->used_names = true;
    return TEG_OK;
}

static enum teg_status percent_value(struct percent *p, struct jbuf *b, struct field *f, const struct jv *v)
{
    struct jctx *const c = p->c;
    struct jbuf text = {0};
    int64_t i;
    switch (f->type) {
    case 's':
    case 'r':
        TRY(f->type == 's' ? teg_jv_put_str(c, &text, v) : teg_jv_put_repr(c, &text, v));
        f->zero = false;
        f->align = f->align ? f->align : '>';
        return put_text(c, b, f, (struct jstr){text.p ? text.p : "", text.n});
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
        TRY(teg_jv_defined(c, v));
        if (v->kind == J_FLOAT && f->type != 'x' && f->type != 'X' && f->type != 'o' && fabs(v->u.f) < 9e18)
            i = (int64_t)v->u.f;
        else if (!teg_jv_as_int(v, &i))
            JFAIL(c, "%%%c format: a real number is required, not %s", f->type, teg_jv_type(v));
        return put_int(c, b, f, i);
    case 'f':
    case 'F':
    case 'e':
    case 'E':
    case 'g':
    case 'G':
        TRY(teg_jv_defined(c, v));
        if (!teg_jv_is_number(v))
            JFAIL(c, "must be real number, not %s", teg_jv_type(v));
        return put_float(c, b, f, teg_jv_as_float(v));
    default:
        JUNSUPPORTED(c, "the format %%%c is not supported", f->type);
    }
}

/* One % field; *at is behind the percent sign. */
static enum teg_status percent_field(struct percent *p, struct jbuf *b, struct jstr s, size_t *at)
{
    struct field f = {.fill = ' ', .precision = -1};
    struct jv v = {.kind = J_MISSING};
    int width = 0;
    if (*at < s.n && s.p[*at] == '(') {
        ++*at;
        TRY(named_arg(p, s, at, &v));
    }
    for (; *at < s.n && strchr("#0- +", s.p[*at]) && s.p[*at]; ++*at) {
        const char flag = s.p[*at];
        f.alternate |= flag == '#';
        f.zero |= flag == '0';
        if (flag == '-')
            f.align = '<';
        if (flag == '+' || (flag == ' ' && !f.sign))
            f.sign = flag;
    }
    bool fits = parse_count(s, at, MAX_WIDTH, &width);
    f.width = (size_t)width;
    if (*at < s.n && s.p[*at] == '.') {
        ++*at;
        fits &= parse_count(s, at, MAX_PRECISION, &f.precision);
    }
    if (!fits || (*at < s.n && s.p[*at] == '*'))
        JUNSUPPORTED(p->c, "expected a width up to %d and a precision up to %d in the format, found another", MAX_WIDTH,
                     MAX_PRECISION);
    if (*at >= s.n)
        JFAIL(p->c, "incomplete format");
    f.type = s.p[(*at)++];
    if (f.type == '%')
        return teg_j_puts(p->c, b, "%");
    if (v.kind == J_MISSING)
        TRY(next_arg(p, &v));
    return percent_value(p, b, &f, &v);
}

enum teg_status teg_j_percent(struct jctx *c, const struct jv *format, const struct jv *args, struct jv *out)
{
    struct percent p = {.c = c, .args = args};
    struct jbuf b = {0};
    const struct jstr s = teg_jv_text(format);
    if (format->aux)
        JUNSUPPORTED(c, "formatting a safe string with %% is not supported");
    for (size_t at = 0; at < s.n;) {
        const char *const sign = memchr(s.p + at, '%', s.n - at);
        const size_t to = sign ? (size_t)(sign - s.p) : s.n;
        TRY(teg_j_put(c, &b, s.p + at, to - at));
        at = to + 1;
        if (sign)
            TRY(percent_field(&p, &b, s, &at));
    }
    if (!p.used_names && args->kind != J_DICT && args->kind != J_LIST && args->kind != J_UNDEFINED &&
        p.at < (args->kind == J_TUPLE ? args->n : 1))
        JFAIL(c, "not all arguments converted during string formatting");
    *out = teg_jv_of_buf(&b);
    return TEG_OK;
}

/* ---- format ---- */

/* [[fill]align][sign][#][0][width][,][.precision][type] */
static enum teg_status parse_spec(struct jctx *c, struct jstr s, struct field *f)
{
    size_t at = 0, n = 0;
    int width = 0;
    *f = (struct field){.fill = ' ', .precision = -1};
    if (s.n)
        (void)teg_j_next(s, 0, &n);
    if (n && n < s.n && strchr("<>^=", s.p[n]) && s.p[n]) {
        f->fill = teg_j_next(s, 0, &n);
        f->align = s.p[n];
        at = n + 1;
    } else if (s.n && strchr("<>^=", s.p[0]) && s.p[0]) {
        f->align = s.p[at++];
    }
    if (at < s.n && strchr("+- ", s.p[at]) && s.p[at])
        f->sign = s.p[at++];
    if (at < s.n && s.p[at] == '#')
        f->alternate = s.p[at++] == '#';
    if (at < s.n && s.p[at] == '0')
        f->zero = s.p[at++] == '0';
    bool fits = parse_count(s, &at, MAX_WIDTH, &width);
    f->width = (size_t)width;
    if (at < s.n && s.p[at] == ',')
        f->comma = s.p[at++] == ',';
    if (at < s.n && s.p[at] == '.') {
        at++;
        fits &= at < s.n && s.p[at] >= '0' && s.p[at] <= '9' && parse_count(s, &at, MAX_PRECISION, &f->precision);
    }
    if (at < s.n)
        f->type = s.p[at++];
    if (!fits || at < s.n || (f->type && !strchr("sdxXobfFeEgG%", f->type)) || (f->comma && f->zero))
        JUNSUPPORTED(c, "the format {:%.*s} is not supported", JSTR(s));
    return TEG_OK;
}

static enum teg_status format_value(struct jctx *c, struct jbuf *b, const struct jv *v, struct jstr spec)
{
    struct field f;
    struct jv text;
    int64_t i;
    if (!spec.n)
        return teg_jv_put_str(c, b, v);
    TRY(parse_spec(c, spec, &f));
    if (v->kind == J_STR && (!f.type || f.type == 's') && !f.sign && !f.comma && f.align != '=' && !f.zero)
        return put_text(c, b, &f, teg_jv_text(v));
    if (v->kind == J_BOOL && !f.type) {
        TRY(teg_jv_str_of(c, v, &text));
        JUNSUPPORTED(c, "formatting True or False with {:%.*s} is not supported", JSTR(spec));
    }
    const bool float_type = f.type && strchr("fFeEgG%", f.type);
    if (teg_jv_is_number(v) && (v->kind == J_FLOAT || float_type) && (!f.type || float_type))
        return put_float(c, b, &f, teg_jv_as_float(v));
    if (teg_jv_as_int(v, &i) && (!f.type || strchr("dxXob", f.type)) && f.precision < 0)
        return put_int(c, b, &f, i);
    JFAIL(c, "the format {:%.*s} does not fit a value of type %s", JSTR(spec), teg_jv_type(v));
}

/* The value that a field's name means: "", "0", "name". */
static enum teg_status field_value(struct jctx *c, const struct jcall *call, struct jstr name, size_t *next,
                                   struct jv *out)
{
    size_t index = *next, at = 0;
    int n;
    if (name.n && name.p[0] >= '0' && name.p[0] <= '9') {
        if (!parse_count(name, &at, TEG_J_MAX_ARGS, &n) || at < name.n)
            JUNSUPPORTED(c, "the format field {%.*s} is not supported", JSTR(name));
        index = (size_t)n;
    } else if (name.n) {
        const struct jv *const found = teg_jv_find_str(call->kw, call->n_kw, name);
        if (memchr(name.p, '.', name.n) || memchr(name.p, '[', name.n))
            JUNSUPPORTED(c, "the format field {%.*s} is not supported", JSTR(name));
        if (!found)
            JFAIL(c, "the format field {%.*s} has no argument", JSTR(name));
        *out = *found;
        return TEG_OK;
    } else {
        ++*next;
    }
    if (index >= call->n_pos)
        JFAIL(c, "the format field %zu has no argument", index);
    *out = call->pos[index];
    return TEG_OK;
}

/* One {…}; *at is behind the brace. */
static enum teg_status format_field(struct jctx *c, const struct jcall *call, struct jstr s, size_t *at, size_t *next,
                                    struct jbuf *b)
{
    const char *const close = memchr(s.p + *at, '}', s.n - *at);
    if (!close)
        JFAIL(c, "expected '}' in the format string, found its end");
    const struct jstr all = {s.p + *at, (size_t)(close - s.p) - *at};
    if (memchr(all.p, '{', all.n))
        JUNSUPPORTED(c, "the nested format field {%.*s} is not supported", JSTR(all));
    struct jstr name = all, spec = {"", 0};
    const char *const colon = memchr(all.p, ':', all.n);
    if (colon) {
        name.n = (size_t)(colon - all.p);
        spec = (struct jstr){colon + 1, all.n - name.n - 1};
    }
    char conversion = '\0';
    if (name.n >= 2 && name.p[name.n - 2] == '!') {
        conversion = name.p[name.n - 1];
        name.n -= 2;
    }
    struct jv v;
    struct jbuf text = {0};
    TRY(field_value(c, call, name, next, &v));
    if (conversion) {
        TRY(conversion == 'r' ? teg_jv_put_repr(c, &text, &v) : teg_jv_put_str(c, &text, &v));
        v = teg_jv_of_buf(&text);
    }
    if (conversion && conversion != 'r' && conversion != 's')
        JUNSUPPORTED(c, "the format conversion !%c is not supported", conversion);
    *at += all.n + 1;
    return format_value(c, b, &v, spec);
}

enum teg_status teg_j_format(struct jctx *c, const struct jv *self, const struct jcall *call, const struct jv *a,
                             struct jv *out)
{
    const struct jstr s = teg_jv_text(self);
    struct jbuf b = {0};
    size_t next = 0;
    (void)a;
    if (self->aux)
        JUNSUPPORTED(c, "formatting a safe string is not supported");
    for (size_t at = 0; at < s.n;) {
        const char ch = s.p[at++];
        const bool twice = at < s.n && s.p[at] == ch;
        if (ch == '{' && !twice) {
            TRY(format_field(c, call, s, &at, &next, &b));
        } else if (ch == '}' && !twice) {
            JFAIL(c, "single '}' encountered in the format string");
        } else {
            TRY(teg_j_put(c, &b, &ch, 1));
            at += ch == '{' || ch == '}';
        }
    }
    *out = teg_jv_of_buf(&b);
    return TEG_OK;
}
