/* tok/jinja_lex.c: template text to tokens.
 *
 * The rules are those of jinja2's lexer with trim_blocks and lstrip_blocks on and keep_trailing_newline off:
 *   - line ends become \n; one at the very end is dropped;
 *   - text before {%- {{- {#- loses its trailing white space; before {% and {# (not {%+, not {{) it loses spaces
 *     after the last line end, when nothing else stands on that line;
 *   - -%} -}} -#} eat white space after them; %} and #} (not +%}) eat one line end.
 * The invariant is the pair (at, line): `line` is the line of byte `at`. Everything is lexed before parsing, because
 * the parser looks two tokens ahead and a template is small. */
#include "tok/jinja_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *const teg_j_op_text[OP_N] = {
    "",  "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~",  "[",      "]",
    "(", ")",  "{",  "}",  ">",  "<",  "=",  ".", ":", "|", ",", ";", "in", "not in",
};

struct lexer {
    struct jctx *c;
    const char *s;
    size_t n, at;
    bool line_starting; /* the last match ended with a line end */
    struct jtoken *tokens;
    size_t n_tokens, capacity;
    char open[TEG_J_MAX_NESTING]; /* closing brackets that are due */
    size_t n_open;
};

static enum teg_status emit(struct lexer *x, enum jtok type, struct jtoken **out)
{
    if (x->n_tokens == x->capacity) {
        const size_t capacity = x->capacity ? 2 * x->capacity : 64;
        struct jtoken *tokens;
        JNEW(x->c, tokens, capacity);
        if (x->n_tokens)
            memcpy(tokens, x->tokens, x->n_tokens * sizeof *tokens);
        x->tokens = tokens;
        x->capacity = capacity;
    }
    struct jtoken *const t = &x->tokens[x->n_tokens++];
    *t = (struct jtoken){.type = (uint8_t)type, .line = x->c->line};
    if (out)
        *out = t;
    return TEG_OK;
}

/* Moves to byte `to`, counting lines. */
static void advance(struct lexer *x, size_t to)
{
    for (; x->at < to; x->at++)
        x->c->line += x->s[x->at] == '\n';
    x->line_starting = to > 0 && x->s[to - 1] == '\n';
}

static size_t space_at(const struct lexer *x, size_t at)
{
    size_t n;
    return at < x->n && teg_j_is_space(teg_j_next((struct jstr){x->s, x->n}, at, &n)) ? n : 0;
}

static size_t skip_space(const struct lexer *x, size_t at)
{
    for (size_t n; (n = space_at(x, at)) > 0;)
        at += n;
    return at;
}

static bool looking_at(const struct lexer *x, size_t at, const char *text)
{
    const size_t n = strlen(text);
    return at <= x->n && n <= x->n - at && memcmp(x->s + at, text, n) == 0;
}

/* The end of a closing tag `close` (two characters) that may begin at `at` with a sign; 0 when there is none. */
static size_t tag_end(const struct lexer *x, size_t at, const char *close, bool trim_line)
{
    if (looking_at(x, at, "-") && looking_at(x, at + 1, close))
        return skip_space(x, at + 3);
    if (trim_line && looking_at(x, at, "+") && looking_at(x, at + 1, close))
        return at + 3;
    if (!looking_at(x, at, close))
        return 0;
    return at + 2 + (trim_line && looking_at(x, at + 2, "\n"));
}

/* A {% raw %} or {% endraw %} tag at `at`: its end, or 0. */
static size_t raw_tag(const struct lexer *x, size_t at, const char *word)
{
    at += 2;
    if (looking_at(x, at, "-") || looking_at(x, at, "+"))
        at++;
    at = skip_space(x, at);
    if (!looking_at(x, at, word))
        return 0;
    at = skip_space(x, at + strlen(word));
    return tag_end(x, at, "%}", strcmp(word, "endraw") == 0);
}

/* Emits the text from x->at to `to`, stripped as the tag at `to` asks for. */
static enum teg_status emit_data(struct lexer *x, size_t to)
{
    const size_t from = x->at;
    struct jstr text = {x->s + from, to - from};
    const char sign = to + 2 < x->n ? x->s[to + 2] : '\0';
    if (to < x->n && sign == '-') {
        text = teg_j_strip(text, NULL, false, true);
    } else if (to < x->n && sign != '+' && x->s[to + 1] != '{') {
        size_t line_at = text.n;
        while (line_at > 0 && text.p[line_at - 1] != '\n')
            line_at--;
        const struct jstr rest = {text.p + line_at, text.n - line_at};
        if ((line_at > 0 || x->line_starting) && teg_j_strip(rest, NULL, true, false).n == 0)
            text.n = line_at;
    }
    if (text.n) {
        struct jtoken *t;
        TRY(emit(x, T_DATA, &t));
        t->text = text;
    }
    advance(x, to);
    return TEG_OK;
}

static enum teg_status lex_comment(struct lexer *x)
{
    const unsigned line = x->c->line;
    size_t at = x->at + 2;
    if (looking_at(x, at, "-") || looking_at(x, at, "+"))
        at++;
    for (; at < x->n; at++) {
        const size_t end = tag_end(x, at, "#}", true);
        if (end) {
            advance(x, end);
            return TEG_OK;
        }
    }
    x->c->line = line;
    return teg_j_fail(x->c, TEG_ERR_FORMAT, "expected #} to end the comment, found the end of the template");
}

static enum teg_status lex_raw(struct lexer *x, size_t begin_end)
{
    const unsigned line = x->c->line;
    advance(x, begin_end);
    for (size_t at = x->at; at < x->n; at++) {
        if (!looking_at(x, at, "{%"))
            continue;
        const size_t end = raw_tag(x, at, "endraw");
        if (end) {
            TRY(emit_data(x, at));
            advance(x, end);
            return TEG_OK;
        }
    }
    x->c->line = line;
    return teg_j_fail(x->c, TEG_ERR_FORMAT, "expected {%% endraw %%}, found the end of the template");
}

static bool is_digit(char ch)
{
    return ch >= '0' && ch <= '9';
}

static bool is_name_byte(char ch)
{
    return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || ch == '_' || is_digit(ch);
}

static size_t digits(const struct lexer *x, size_t at)
{
    if (at >= x->n || !is_digit(x->s[at]))
        return at;
    while (at < x->n && (is_digit(x->s[at]) || (x->s[at] == '_' && at + 1 < x->n && is_digit(x->s[at + 1]))))
        at++;
    return at;
}

/* The end of a float at x->at, or 0: digits with a fraction, an exponent, or both. */
static size_t float_end(const struct lexer *x)
{
    if (x->at > 0 && x->s[x->at - 1] == '.')
        return 0;
    size_t at = digits(x, x->at);
    const size_t whole = at;
    if (looking_at(x, at, ".") && digits(x, at + 1) > at + 1)
        at = digits(x, at + 1);
    if (at < x->n && (x->s[at] == 'e' || x->s[at] == 'E')) {
        size_t exponent = at + 1;
        if (looking_at(x, exponent, "+") || looking_at(x, exponent, "-"))
            exponent++;
        if (digits(x, exponent) > exponent)
            return digits(x, exponent);
    }
    return at > whole ? at : 0;
}

static int hex_value(char ch)
{
    if (is_digit(ch))
        return ch - '0';
    ch = (char)(ch | 0x20);
    return ch >= 'a' && ch <= 'f' ? ch - 'a' + 10 : -1;
}

/* The end of 0x…, 0o… or 0b… at x->at and its base, or 0. */
static size_t prefixed_end(const struct lexer *x, int *base)
{
    static const char marks[] = "xob";
    static const int bases[] = {16, 8, 2};
    if (x->at + 2 >= x->n || x->s[x->at] != '0')
        return 0;
    const char *const mark = strchr(marks, x->s[x->at + 1] | 0x20);
    if (!mark || !*mark)
        return 0;
    *base = bases[mark - marks];
    size_t to = x->at + 2;
    for (size_t at = to; at < x->n; at++) {
        const int v = hex_value(x->s[at]);
        if (v >= 0 && v < *base)
            to = at + 1;
        else if (x->s[at] != '_' || x->s[at - 1] == '_')
            break;
    }
    return to > x->at + 2 ? to : 0;
}

static enum teg_status lex_number(struct lexer *x)
{
    int base = 10;
    const size_t prefixed_to = prefixed_end(x, &base), float_to = prefixed_to ? 0 : float_end(x);
    size_t to = prefixed_to ? prefixed_to : float_to ? float_to : digits(x, x->at);
    if (!prefixed_to && !float_to && x->s[x->at] == '0') /* 0, 00, …: 012 is two tokens */
        for (to = x->at + 1; looking_at(x, to, "0"); to++)
            ;
    char text[80];
    size_t n = 0;
    for (size_t i = x->at + (prefixed_to ? 2 : 0); i < to && n + 1 < sizeof text; i++)
        if (x->s[i] != '_')
            text[n++] = x->s[i];
    text[n] = '\0';
    struct jtoken *t;
    TRY(emit(x, float_to ? T_FLOAT : T_INTEGER, &t));
    errno = 0;
    t->value = float_to ? teg_jv_float(teg_j_strtod(text, NULL)) : teg_jv_int(strtoll(text, NULL, base));
    if (n + 1 == sizeof text || (!float_to && errno == ERANGE))
        JUNSUPPORTED(x->c, "expected a number of 64 bits, found %s", text);
    t->text = (struct jstr){x->s + x->at, to - x->at};
    advance(x, to);
    return TEG_OK;
}

/* \xhh, \uhhhh, \Uhhhhhhhh: *at is behind the letter. */
static enum teg_status unescape_hex(struct jctx *c, struct jstr s, size_t *at, size_t n_digits, struct jbuf *b)
{
    uint32_t code = 0;
    for (size_t i = 0; i < n_digits; i++, (*at)++) {
        const int v = *at < s.n ? hex_value(s.p[*at]) : -1;
        if (v < 0)
            return teg_j_fail(c, TEG_ERR_FORMAT, "expected %zu hex digits in the string escape, found fewer", n_digits);
        code = code << 4 | (uint32_t)v;
    }
    if (code > 0x10FFFF)
        return teg_j_fail(c, TEG_ERR_FORMAT, "expected a character up to U+10FFFF, found U+%X", (unsigned)code);
    if (code >= 0xD800 && code < 0xE000)
        JUNSUPPORTED(c, "expected a character in the string escape, found half of a surrogate pair");
    return teg_j_put_code_point(c, b, code);
}

/* One escape sequence; *at is behind the backslash. Unknown ones keep it, as in Python. */
static enum teg_status unescape_one(struct jctx *c, struct jstr s, size_t *at, struct jbuf *b)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    const char ch = s.p[(*at)++];
    if (ch == '\n')
        return TEG_OK;
    const char *const known = ch ? strchr(from, ch) : NULL;
    if (known)
        return teg_j_put(c, b, to + (known - from), 1);
    if (ch == 'x' || ch == 'u' || ch == 'U')
        return unescape_hex(c, s, at, ch == 'x' ? 2 : ch == 'u' ? 4 : 8, b);
    if (ch == 'N')
        JUNSUPPORTED(c, "the string escape \\N{…} is not supported; write \\u and four hex digits");
    if (ch < '0' || ch > '7') {
        TRY(teg_j_put(c, b, "\\", 1));
        return teg_j_put(c, b, &ch, 1);
    }
    uint32_t code = (uint32_t)(ch - '0');
    for (int i = 0; i < 2 && *at < s.n && s.p[*at] >= '0' && s.p[*at] <= '7'; i++)
        code = code * 8 + (uint32_t)(s.p[(*at)++] - '0');
    return teg_j_put_code_point(c, b, code);
}

static enum teg_status lex_string(struct lexer *x)
{
    const char quote = x->s[x->at];
    size_t to = x->at + 1;
    bool escaped = false;
    for (; to < x->n && x->s[to] != quote; to++)
        if (x->s[to] == '\\') {
            escaped = true;
            to++;
        }
    if (to >= x->n)
        return teg_j_fail(x->c, TEG_ERR_FORMAT, "expected %c to end the string, found the end of the template", quote);
    struct jtoken *t;
    TRY(emit(x, T_STRING, &t));
    const struct jstr raw = {x->s + x->at + 1, to - x->at - 1};
    t->text = raw;
    if (escaped) {
        struct jbuf b = {0};
        for (size_t i = 0; i < raw.n;) {
            if (raw.p[i] == '\\') {
                i++;
                TRY(unescape_one(x->c, raw, &i, &b));
            } else {
                TRY(teg_j_put(x->c, &b, raw.p + i++, 1));
            }
        }
        t->text = (struct jstr){b.n ? b.p : "", b.n};
    }
    advance(x, to + 1);
    return TEG_OK;
}

static enum teg_status balance(struct lexer *x, enum jop op)
{
    const char *const pairs = "[](){}";
    const char ch = teg_j_op_text[op][0];
    const char *const found = strchr(pairs, ch);
    if (!found)
        return TEG_OK;
    if ((found - pairs) % 2 == 0) {
        if (x->n_open == sizeof x->open)
            JUNSUPPORTED(x->c, "expected at most %d brackets inside each other, found more", TEG_J_MAX_NESTING);
        x->open[x->n_open++] = found[1];
        return TEG_OK;
    }
    if (x->n_open == 0)
        return teg_j_fail(x->c, TEG_ERR_FORMAT, "expected an opening bracket before %c, found none", ch);
    if (x->open[x->n_open - 1] != ch)
        return teg_j_fail(x->c, TEG_ERR_FORMAT, "expected %c, found %c", x->open[x->n_open - 1], ch);
    x->n_open--;
    return TEG_OK;
}

static enum teg_status lex_operator(struct lexer *x)
{
    for (enum jop op = OP_FLOORDIV; op <= OP_SEMICOLON; op++) {
        if (!looking_at(x, x->at, teg_j_op_text[op]))
            continue;
        TRY(balance(x, op));
        struct jtoken *t;
        TRY(emit(x, T_OPERATOR, &t));
        t->op = (uint8_t)op;
        advance(x, x->at + strlen(teg_j_op_text[op]));
        return TEG_OK;
    }
    if ((unsigned char)x->s[x->at] >= 0x80)
        JUNSUPPORTED(x->c, "expected an ASCII name or operator, found another character");
    return teg_j_fail(x->c, TEG_ERR_FORMAT, "expected an expression, found the character '%c'", x->s[x->at]);
}

static enum teg_status lex_name(struct lexer *x)
{
    size_t to = x->at;
    while (to < x->n && is_name_byte(x->s[to]))
        to++;
    struct jtoken *t;
    TRY(emit(x, T_NAME, &t));
    t->text = (struct jstr){x->s + x->at, to - x->at};
    advance(x, to);
    return TEG_OK;
}

/* The inside of {% … %} or {{ … }}. */
static enum teg_status lex_tag(struct lexer *x, bool block)
{
    TRY(emit(x, block ? T_BLOCK_BEGIN : T_VAR_BEGIN, NULL));
    size_t at = x->at + 2;
    if (looking_at(x, at, "-") || looking_at(x, at, "+"))
        at++;
    advance(x, at);
    x->n_open = 0;
    for (;;) {
        if (x->at >= x->n)
            return teg_j_fail(x->c, TEG_ERR_FORMAT, "expected %s, found the end of the template", block ? "%}" : "}}");
        const size_t end = x->n_open ? 0 : tag_end(x, x->at, block ? "%}" : "}}", block);
        if (end) {
            TRY(emit(x, block ? T_BLOCK_END : T_VAR_END, NULL));
            advance(x, end);
            return TEG_OK;
        }
        const char ch = x->s[x->at];
        if (space_at(x, x->at))
            advance(x, skip_space(x, x->at));
        else if (is_digit(ch))
            TRY(lex_number(x));
        else if (is_name_byte(ch))
            TRY(lex_name(x));
        else if (ch == '\'' || ch == '"')
            TRY(lex_string(x));
        else
            TRY(lex_operator(x));
    }
}

static enum teg_status lex_root(struct lexer *x)
{
    while (x->at < x->n) {
        size_t to = x->at;
        while (to < x->n && !(x->s[to] == '{' && to + 1 < x->n && strchr("%{#", x->s[to + 1]) && x->s[to + 1]))
            to++;
        TRY(emit_data(x, to));
        if (to >= x->n)
            break;
        const size_t raw_end = x->s[to + 1] == '%' ? raw_tag(x, to, "raw") : 0;
        if (raw_end)
            TRY(lex_raw(x, raw_end));
        else if (x->s[to + 1] == '#')
            TRY(lex_comment(x));
        else
            TRY(lex_tag(x, x->s[to + 1] == '%'));
    }
    return emit(x, T_EOF, NULL);
}

/* A copy with \n as line end, without the last one. */
static enum teg_status normalize(struct jctx *c, const char *source, size_t n_bytes, struct jstr *out)
{
    char *text;
    JNEW(c, text, n_bytes + 1);
    size_t n = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        text[n++] = source[i] == '\r' ? '\n' : source[i];
        if (source[i] == '\r' && i + 1 < n_bytes && source[i + 1] == '\n')
            i++;
    }
    if (n && text[n - 1] == '\n')
        n--;
    for (size_t i = 0; i < n;) {
        uint32_t code;
        size_t bad;
        const size_t step = teg_utf8_next(text + i, n - i, &code, &bad);
        if (!step)
            return teg_j_fail(c, TEG_ERR_FORMAT, "expected UTF-8 text, found the byte 0x%02X at byte %zu",
                              (unsigned)(uint8_t)text[i], i);
        c->line += code == '\n';
        i += step;
    }
    *out = (struct jstr){text, n};
    return TEG_OK;
}

enum teg_status teg_j_lex(struct jctx *c, const char *source, size_t n_bytes, struct jtoken **tokens)
{
    struct jstr text = {NULL, 0};
    c->line = 1;
    TRY(normalize(c, source, n_bytes, &text));
    c->line = 1;
    struct lexer x = {.c = c, .s = text.p, .n = text.n, .line_starting = true};
    TRY(lex_root(&x));
    *tokens = x.tokens;
    return TEG_OK;
}
