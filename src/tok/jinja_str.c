/* tok/jinja_str.c: Python's string methods, over UTF-8.
 *
 * Positions that a template sees count characters; inside, everything is bytes. A method that Python has and this
 * table marks NULL is an error that names it. */
#include "tok/jinja_int.h"

#include <string.h>

#define METHOD(name)                                                                                                   \
    static enum teg_status name(struct jctx *c, const struct jv *self, const struct jcall *call, const struct jv *a,   \
                                struct jv *out)
#define UNUSED_ARGS (void)call, (void)a

/* ---- case ---- */

METHOD(str_lower)
{
    UNUSED_ARGS;
    TRY(teg_j_lower(c, teg_jv_text(self), out));
    out->aux = self->aux;
    return TEG_OK;
}

METHOD(str_upper)
{
    UNUSED_ARGS;
    TRY(teg_j_upper(c, teg_jv_text(self), out));
    out->aux = self->aux;
    return TEG_OK;
}

METHOD(str_capitalize)
{
    UNUSED_ARGS;
    TRY(teg_j_capitalize(c, teg_jv_text(self), out));
    out->aux = self->aux;
    return TEG_OK;
}

METHOD(str_title)
{
    UNUSED_ARGS;
    TRY(teg_j_title(c, teg_jv_text(self), out));
    out->aux = self->aux;
    return TEG_OK;
}

METHOD(str_swapcase)
{
    UNUSED_ARGS;
    TRY(teg_j_swapcase(c, teg_jv_text(self), out));
    out->aux = self->aux;
    return TEG_OK;
}

/* ---- stripping ---- */

static enum teg_status strip(struct jctx *c, const struct jv *self, const struct jv *a, bool left, bool right,
                             struct jv *out)
{
    struct jstr chars;
    const bool given = a[0].kind != J_MISSING && a[0].kind != J_NONE;
    if (given)
        TRY(teg_jv_str_arg(c, &a[0], "strip"));
    chars = teg_jv_text(&a[0]);
    TRY(teg_j_step(c, self->n * (given ? chars.n : 1)));
    const struct jstr s = teg_j_strip(teg_jv_text(self), given ? &chars : NULL, left, right);
    *out = teg_jv_str(s.p, s.n);
    out->aux = self->aux;
    return TEG_OK;
}

METHOD(str_strip)
{
    (void)call;
    return strip(c, self, a, true, true, out);
}

METHOD(str_lstrip)
{
    (void)call;
    return strip(c, self, a, true, false, out);
}

METHOD(str_rstrip)
{
    (void)call;
    return strip(c, self, a, false, true, out);
}

static enum teg_status remove_affix(struct jctx *c, const struct jv *self, const struct jv *a, bool prefix,
                                    struct jv *out)
{
    TRY(teg_jv_str_arg(c, &a[0], "the affix"));
    *out = *self;
    if (a[0].n > self->n || !a[0].n)
        return TEG_OK;
    const char *const at = self->u.s + (prefix ? 0 : self->n - a[0].n);
    if (memcmp(at, a[0].u.s, a[0].n) == 0) {
        out->n -= a[0].n;
        out->u.s += prefix ? a[0].n : 0;
    }
    return TEG_OK;
}

METHOD(str_removeprefix)
{
    (void)call;
    return remove_affix(c, self, a, true, out);
}

METHOD(str_removesuffix)
{
    (void)call;
    return remove_affix(c, self, a, false, out);
}

/* ---- splitting ---- */

struct list {
    struct jv *items;
    size_t n, capacity;
};

static enum teg_status push(struct jctx *c, struct list *l, const char *p, size_t n)
{
    if (l->n == l->capacity) {
        struct jv *items;
        const size_t capacity = l->capacity ? 2 * l->capacity : 8;
        JNEW(c, items, capacity);
        if (l->n)
            memcpy(items, l->items, l->n * sizeof *items);
        l->items = items;
        l->capacity = capacity;
    }
    l->items[l->n++] = teg_jv_str(p, n);
    return TEG_OK;
}

static void reverse(struct list *l)
{
    for (size_t i = 0; i < l->n / 2; i++) {
        const struct jv swap = l->items[i];
        l->items[i] = l->items[l->n - 1 - i];
        l->items[l->n - 1 - i] = swap;
    }
}

static const char *find_last(struct jstr s, struct jstr what)
{
    for (size_t at = s.n >= what.n ? s.n - what.n + 1 : 0; at > 0; at--)
        if (memcmp(s.p + at - 1, what.p, what.n) == 0)
            return s.p + at - 1;
    return NULL;
}

static enum teg_status split_by(struct jctx *c, struct jstr s, struct jstr sep, int64_t limit, bool right,
                                struct list *l)
{
    for (; limit != 0; limit--) {
        const char *const at = right ? find_last(s, sep) : s.n ? memmem(s.p, s.n, sep.p, sep.n) : NULL;
        if (!at)
            break;
        const size_t before = (size_t)(at - s.p), after = before + sep.n;
        if (right) {
            TRY(push(c, l, s.p + after, s.n - after));
            s.n = before;
        } else {
            TRY(push(c, l, s.p, before));
            s = (struct jstr){s.p + after, s.n - after};
        }
    }
    return push(c, l, s.p, s.n);
}

/* At runs of white space; empty parts do not count. */
static enum teg_status split_spaces(struct jctx *c, struct jstr s, int64_t limit, bool right, struct list *l)
{
    for (;; limit--) {
        s = teg_j_strip(s, NULL, !right, right);
        if (!s.n)
            return TEG_OK;
        if (limit == 0)
            break;
        size_t cut = right ? 0 : s.n, n;
        for (size_t at = 0; at < s.n; at += n) {
            if (!teg_j_is_space(teg_j_next(s, at, &n)))
                continue;
            cut = right ? at + n : at;
            if (!right)
                break;
        }
        if (right) {
            TRY(push(c, l, s.p + cut, s.n - cut));
            s.n = cut;
        } else {
            TRY(push(c, l, s.p, cut));
            s = (struct jstr){s.p + cut, s.n - cut};
        }
        TRY(teg_j_step(c, right ? s.n : 0));
    }
    return push(c, l, s.p, s.n);
}

static enum teg_status split(struct jctx *c, const struct jv *self, const struct jv *a, bool right, struct jv *out)
{
    struct list l = {0};
    int64_t limit = -1;
    TRY(teg_j_step(c, self->n));
    if (a[1].kind != J_MISSING)
        TRY(teg_jv_int_arg(c, &a[1], "maxsplit", &limit));
    if (limit < 0)
        limit = -1;
    if (a[0].kind == J_MISSING || a[0].kind == J_NONE) {
        TRY(split_spaces(c, teg_jv_text(self), limit, right, &l));
    } else {
        TRY(teg_jv_str_arg(c, &a[0], "the separator"));
        if (!a[0].n)
            JFAIL(c, "empty separator");
        TRY(teg_j_step(c, right ? self->n * a[0].n : 0));
        TRY(split_by(c, teg_jv_text(self), teg_jv_text(&a[0]), limit, right, &l));
    }
    if (right)
        reverse(&l);
    for (size_t i = 0; i < l.n; i++)
        l.items[i].aux = self->aux;
    *out = teg_jv_items(J_LIST, l.items, l.n);
    return TEG_OK;
}

METHOD(str_split)
{
    (void)call;
    return split(c, self, a, false, out);
}

METHOD(str_rsplit)
{
    (void)call;
    return split(c, self, a, true, out);
}

enum teg_status teg_j_splitlines(struct jctx *c, struct jstr s, bool keep_ends, struct jv *out)
{
    struct list l = {0};
    size_t start = 0;
    TRY(teg_j_step(c, s.n));
    for (size_t at = 0, n; at < s.n;) {
        const uint32_t code = teg_j_next(s, at, &n);
        const size_t end = at;
        at += n;
        if (!teg_j_is_line_end(code))
            continue;
        if (code == '\r' && at < s.n && s.p[at] == '\n')
            at++;
        TRY(push(c, &l, s.p + start, (keep_ends ? at : end) - start));
        start = at;
    }
    if (start < s.n)
        TRY(push(c, &l, s.p + start, s.n - start));
    *out = teg_jv_items(J_LIST, l.items, l.n);
    return TEG_OK;
}

METHOD(str_splitlines)
{
    (void)call;
    return teg_j_splitlines(c, teg_jv_text(self), teg_jv_truth(&a[0]), out);
}

static enum teg_status partition(struct jctx *c, const struct jv *self, const struct jv *a, bool right, struct jv *out)
{
    struct jv *parts;
    const struct jstr s = teg_jv_text(self);
    TRY(teg_jv_str_arg(c, &a[0], "the separator"));
    if (!a[0].n)
        JFAIL(c, "empty separator");
    JNEW(c, parts, 3);
    TRY(teg_j_step(c, right ? s.n * a[0].n : s.n));
    const char *const at = right ? find_last(s, teg_jv_text(&a[0])) : s.n ? memmem(s.p, s.n, a[0].u.s, a[0].n) : NULL;
    parts[0] = parts[1] = parts[2] = teg_jv_str("", 0);
    if (at) {
        const size_t before = (size_t)(at - s.p);
        parts[0] = teg_jv_str(s.p, before);
        parts[1] = a[0];
        parts[2] = teg_jv_str(at + a[0].n, s.n - before - a[0].n);
    } else {
        parts[right ? 2 : 0] = *self;
    }
    *out = teg_jv_items(J_TUPLE, parts, 3);
    return TEG_OK;
}

METHOD(str_partition)
{
    (void)call;
    return partition(c, self, a, false, out);
}

METHOD(str_rpartition)
{
    (void)call;
    return partition(c, self, a, true, out);
}

/* ---- searching ---- */

/* self[start:end] of the arguments a[1], a[2]; *offset is its first character's index. */
static enum teg_status search_window(struct jctx *c, const struct jv *self, const struct jv *a, struct jv *window,
                                     size_t *offset)
{
    const struct jv bounds[3] = {a[1], a[2], {.kind = J_MISSING}};
    int64_t start = 0;
    *window = *self;
    *offset = 0;
    if (a[1].kind == J_MISSING && a[2].kind == J_MISSING)
        return TEG_OK;
    if (a[1].kind != J_MISSING && a[1].kind != J_NONE)
        TRY(teg_jv_int_arg(c, &a[1], "the start", &start));
    const int64_t n = (int64_t)teg_j_utf8_count(teg_jv_text(self));
    if (start < 0)
        start = start < -n ? 0 : start + n;
    *offset = (size_t)start;
    TRY(teg_j_slice(c, self, bounds, window));
    if (start > n)
        window->n = SIZE_MAX; /* past the end: even "" is not found there */
    return TEG_OK;
}

static enum teg_status find(struct jctx *c, const struct jv *self, const struct jv *a, bool right, bool must,
                            struct jv *out)
{
    struct jv window;
    size_t offset;
    TRY(teg_jv_str_arg(c, &a[0], "the text to find"));
    TRY(teg_j_step(c, right ? self->n * a[0].n : self->n));
    TRY(search_window(c, self, a, &window, &offset));
    const char *at = NULL;
    if (window.n != SIZE_MAX) {
        const struct jstr s = teg_jv_text(&window);
        at = !a[0].n ? s.p + (right ? s.n : 0)
             : right ? find_last(s, teg_jv_text(&a[0]))
             : s.n   ? memmem(s.p, s.n, a[0].u.s, a[0].n)
                     : NULL;
    }
    if (!at && must)
        JFAIL(c, "substring not found");
    *out = teg_jv_int(-1);
    if (at)
        *out = teg_jv_int((int64_t)(offset + teg_j_utf8_count((struct jstr){window.u.s, (size_t)(at - window.u.s)})));
    return TEG_OK;
}

METHOD(str_find)
{
    (void)call;
    return find(c, self, a, false, false, out);
}

METHOD(str_rfind)
{
    (void)call;
    return find(c, self, a, true, false, out);
}

METHOD(str_index)
{
    (void)call;
    return find(c, self, a, false, true, out);
}

METHOD(str_rindex)
{
    (void)call;
    return find(c, self, a, true, true, out);
}

METHOD(str_count)
{
    struct jv window;
    size_t offset, n = 0;
    (void)call;
    TRY(teg_jv_str_arg(c, &a[0], "the text to count"));
    TRY(teg_j_step(c, self->n));
    TRY(search_window(c, self, a, &window, &offset));
    if (window.n == SIZE_MAX) {
        n = 0;
    } else if (!a[0].n) {
        n = teg_j_utf8_count(teg_jv_text(&window)) + 1;
    } else {
        const char *at = window.u.s, *const end = at + window.n;
        while (at < end && (at = memmem(at, (size_t)(end - at), a[0].u.s, a[0].n)) != NULL) {
            n++;
            at += a[0].n;
        }
    }
    *out = teg_jv_int((int64_t)n);
    return TEG_OK;
}

static enum teg_status affix(struct jctx *c, const struct jv *self, const struct jv *a, bool prefix, struct jv *out)
{
    struct jv window;
    size_t offset;
    const struct jv *const options = a[0].kind == J_TUPLE ? a[0].u.items : &a[0];
    const size_t n = a[0].kind == J_TUPLE ? a[0].n : 1;
    TRY(search_window(c, self, a, &window, &offset));
    *out = teg_jv_bool(false);
    for (size_t i = 0; i < n; i++) {
        TRY(teg_jv_str_arg(c, &options[i], prefix ? "startswith" : "endswith"));
        const struct jv *const o = &options[i];
        if (window.n == SIZE_MAX || o->n > window.n)
            continue;
        if (!o->n || memcmp(window.u.s + (prefix ? 0 : window.n - o->n), o->u.s, o->n) == 0)
            out->u.b = true;
    }
    return TEG_OK;
}

METHOD(str_startswith)
{
    (void)call;
    return affix(c, self, a, true, out);
}

METHOD(str_endswith)
{
    (void)call;
    return affix(c, self, a, false, out);
}

/* ---- building ---- */

enum teg_status teg_j_replace(struct jctx *c, struct jstr s, struct jstr old, struct jstr by, int64_t count,
                              struct jv *out)
{
    struct jbuf b = {0};
    TRY(teg_j_step(c, s.n));
    size_t at = 0;
    for (; count != 0; count--) {
        size_t to = at, step = 0;
        if (old.n) {
            const char *const found = at < s.n ? memmem(s.p + at, s.n - at, old.p, old.n) : NULL;
            if (!found)
                break;
            to = (size_t)(found - s.p);
            TRY(teg_j_put(c, &b, s.p + at, to - at));
        }
        TRY(teg_j_put(c, &b, by.p, by.n));
        at = to + old.n;
        if (!old.n) { /* "" stands before every character and at the end */
            if (at >= s.n)
                break;
            (void)teg_j_next(s, at, &step);
            TRY(teg_j_put(c, &b, s.p + at, step));
            at += step;
        }
    }
    if (at < s.n)
        TRY(teg_j_put(c, &b, s.p + at, s.n - at));
    *out = teg_jv_of_buf(&b);
    return TEG_OK;
}

METHOD(str_replace)
{
    int64_t count = -1;
    (void)call;
    TRY(teg_jv_str_arg(c, &a[0], "replace"));
    TRY(teg_jv_str_arg(c, &a[1], "replace"));
    if (a[2].kind != J_MISSING)
        TRY(teg_jv_int_arg(c, &a[2], "count", &count));
    if (self->aux)
        JUNSUPPORTED(c, "replacing in a safe string is not supported");
    return teg_j_replace(c, teg_jv_text(self), teg_jv_text(&a[0]), teg_jv_text(&a[1]), count, out);
}

METHOD(str_join)
{
    const struct jv *items;
    size_t n;
    struct jbuf b = {0};
    (void)call;
    if (self->aux)
        JUNSUPPORTED(c, "joining with a safe string is not supported");
    TRY(teg_jv_iterate(c, &a[0], &items, &n));
    for (size_t i = 0; i < n; i++) {
        if (items[i].kind != J_STR)
            JFAIL(c, "sequence item %zu: expected str instance, %s found", i, teg_jv_type(&items[i]));
        if (i)
            TRY(teg_j_put(c, &b, self->u.s, self->n));
        TRY(teg_j_put(c, &b, items[i].u.s, items[i].n));
    }
    *out = teg_jv_of_buf(&b);
    return TEG_OK;
}

/* Padding: left and right counts of a fill character. */
static enum teg_status pad(struct jctx *c, const struct jv *self, const struct jv *a, char side, struct jv *out)
{
    int64_t width;
    struct jbuf b = {0};
    const struct jstr s = teg_jv_text(self);
    struct jstr fill = {" ", 1};
    TRY(teg_jv_int_arg(c, &a[0], "the width", &width));
    if (side != 'z' && a[1].kind != J_MISSING) {
        TRY(teg_jv_str_arg(c, &a[1], "the fill character"));
        fill = teg_jv_text(&a[1]);
        if (teg_j_utf8_count(fill) != 1)
            JFAIL(c, "the fill character must be exactly one character long");
    }
    const int64_t n = (int64_t)teg_j_utf8_count(s);
    if (width > TEG_J_MAX_TEXT)
        JUNSUPPORTED(c, "expected a width of at most %d, found more", TEG_J_MAX_TEXT);
    const int64_t total = width > n ? width - n : 0;
    const int64_t left = side == 'l' ? 0 : side == 'c' ? total / 2 + (total & width & 1) : total;
    const size_t sign = side == 'z' && s.n && (s.p[0] == '+' || s.p[0] == '-');
    if (side == 'z')
        fill = (struct jstr){"0", 1};
    TRY(teg_j_put(c, &b, s.p, sign));
    for (int64_t i = 0; i < left; i++)
        TRY(teg_j_put(c, &b, fill.p, fill.n));
    TRY(teg_j_put(c, &b, s.p + sign, s.n - sign));
    for (int64_t i = left; i < total; i++)
        TRY(teg_j_put(c, &b, fill.p, fill.n));
    *out = teg_jv_of_buf(&b);
    return TEG_OK;
}

METHOD(str_ljust)
{
    (void)call;
    return pad(c, self, a, 'l', out);
}

METHOD(str_rjust)
{
    (void)call;
    return pad(c, self, a, 'r', out);
}

METHOD(str_center)
{
    (void)call;
    return pad(c, self, a, 'c', out);
}

METHOD(str_zfill)
{
    (void)call;
    return pad(c, self, a, 'z', out);
}

/* ---- questions about all characters ---- */

METHOD(str_isalpha)
{
    UNUSED_ARGS;
    return teg_j_all_in(c, self, J_CLASS_ALPHA, out);
}

METHOD(str_isdigit)
{
    UNUSED_ARGS;
    return teg_j_all_in(c, self, J_CLASS_DIGIT, out);
}

METHOD(str_isalnum)
{
    UNUSED_ARGS;
    return teg_j_all_in(c, self, J_CLASS_ALNUM, out);
}

METHOD(str_isspace)
{
    UNUSED_ARGS;
    return teg_j_all_in(c, self, J_CLASS_SPACE, out);
}

METHOD(str_isupper)
{
    UNUSED_ARGS;
    TRY(teg_j_step(c, self->n));
    *out = teg_jv_bool(teg_j_cased(teg_jv_text(self), true));
    return TEG_OK;
}

METHOD(str_islower)
{
    UNUSED_ARGS;
    TRY(teg_j_step(c, self->n));
    *out = teg_jv_bool(teg_j_cased(teg_jv_text(self), false));
    return TEG_OK;
}

const struct jbuiltin teg_j_str_methods[] = {
    {"split", str_split, "sep maxsplit", 0},
    {"rsplit", str_rsplit, "sep maxsplit", 0},
    {"splitlines", str_splitlines, "keepends", 0},
    {"partition", str_partition, "/ sep", 1},
    {"rpartition", str_rpartition, "/ sep", 1},
    {"strip", str_strip, "/ chars", 0},
    {"lstrip", str_lstrip, "/ chars", 0},
    {"rstrip", str_rstrip, "/ chars", 0},
    {"removeprefix", str_removeprefix, "/ prefix", 1},
    {"removesuffix", str_removesuffix, "/ suffix", 1},
    {"startswith", str_startswith, "/ prefix start end", 1},
    {"endswith", str_endswith, "/ suffix start end", 1},
    {"find", str_find, "/ sub start end", 1},
    {"rfind", str_rfind, "/ sub start end", 1},
    {"index", str_index, "/ sub start end", 1},
    {"rindex", str_rindex, "/ sub start end", 1},
    {"count", str_count, "/ sub start end", 1},
    {"replace", str_replace, "/ old new count", 2},
    {"join", str_join, "/ iterable", 1},
    {"format", teg_j_format, NULL, 0},
    {"lower", str_lower, "", 0},
    {"upper", str_upper, "", 0},
    {"title", str_title, "", 0},
    {"capitalize", str_capitalize, "", 0},
    {"swapcase", str_swapcase, "", 0},
    {"ljust", str_ljust, "/ width fill", 1},
    {"rjust", str_rjust, "/ width fill", 1},
    {"center", str_center, "/ width fill", 1},
    {"zfill", str_zfill, "/ width", 1},
    {"isalpha", str_isalpha, "", 0},
    {"isdigit", str_isdigit, "", 0},
    {"isalnum", str_isalnum, "", 0},
    {"isspace", str_isspace, "", 0},
    {"isupper", str_isupper, "", 0},
    {"islower", str_islower, "", 0},
    {"casefold", NULL, NULL, 0},
    {"encode", NULL, NULL, 0},
    {"expandtabs", NULL, NULL, 0},
    {"format_map", NULL, NULL, 0},
    {"isascii", NULL, NULL, 0},
    {"isdecimal", NULL, NULL, 0},
    {"isidentifier", NULL, NULL, 0},
    {"isnumeric", NULL, NULL, 0},
    {"isprintable", NULL, NULL, 0},
    {"istitle", NULL, NULL, 0},
    {"maketrans", NULL, NULL, 0},
    {"translate", NULL, NULL, 0},
    {NULL, NULL, NULL, 0},
};
