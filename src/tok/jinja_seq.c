/* tok/jinja_seq.c: filters over sequences.
 *
 * Those that are generators in jinja2 (map, select, reject, selectattr, rejectattr, unique, batch, slice, items)
 * return a J_ITER here: it has no length and no text, and is used up by one iteration, so that a template that works
 * here works there. They are computed at once, not as they are consumed. */
#include "tok/jinja_int.h"

#include <string.h>

#define FILTER(name)                                                                                                   \
    static enum teg_status name(struct jctx *c, const struct jv *self, const struct jcall *call, const struct jv *a,   \
                                struct jv *out)

static bool given(const struct jv *v)
{
    return v->kind != J_MISSING && v->kind != J_NONE;
}

/* ---- attribute paths: "a.b.0" or a number ---- */

static enum teg_status get_path(struct jctx *c, const struct jv *item, const struct jv *path, const struct jv *fallback,
                                struct jv *out)
{
    *out = *item;
    if (!given(path))
        return TEG_OK;
    if (path->kind != J_STR) {
        TRY(teg_j_getitem(c, item, path, out));
        if (out->kind == J_UNDEFINED && fallback && given(fallback))
            *out = *fallback;
        return TEG_OK;
    }
    struct jstr rest = teg_jv_text(path);
    for (bool more = true; more;) {
        const char *const dot = rest.n ? memchr(rest.p, '.', rest.n) : NULL;
        const size_t n = dot ? (size_t)(dot - rest.p) : rest.n;
        struct jv key = teg_jv_str(rest.p, n), found;
        bool digits = n > 0 && n < 18;
        int64_t index = 0;
        for (size_t i = 0; i < n && digits; i++) {
            digits = rest.p[i] >= '0' && rest.p[i] <= '9';
            index = index * 10 + (rest.p[i] - '0');
        }
        if (digits)
            key = teg_jv_int(index);
        TRY(teg_j_getitem(c, out, &key, &found));
        *out = found.kind == J_UNDEFINED && fallback && given(fallback) ? *fallback : found;
        more = dot != NULL;
        rest = (struct jstr){rest.p + n + more, rest.n - n - more};
    }
    return TEG_OK;
}

/* What sorting, unique, min and max compare: the attribute, in lower case unless told otherwise. */
static enum teg_status sort_key(struct jctx *c, const struct jv *item, const struct jv *path,
                                const struct jv *case_sensitive, struct jv *out)
{
    TRY(get_path(c, item, path, NULL, out));
    if (out->kind != J_STR || (case_sensitive->kind != J_MISSING && teg_jv_truth(case_sensitive)))
        return TEG_OK;
    return teg_j_lower(c, teg_jv_text(out), out);
}

static enum teg_status all_keys(struct jctx *c, const struct jv *items, size_t n, const struct jv *path,
                                const struct jv *case_sensitive, struct jv **out)
{
    JNEW(c, *out, n);
    for (size_t i = 0; i < n; i++)
        TRY(sort_key(c, &items[i], path, case_sensitive, &(*out)[i]));
    return TEG_OK;
}

/* ---- counting and picking ---- */

FILTER(filter_length)
{
    size_t n;
    (void)call;
    (void)a;
    TRY(teg_jv_length(c, self, &n));
    *out = teg_jv_int((int64_t)n);
    return TEG_OK;
}

FILTER(filter_first)
{
    const struct jv *items;
    size_t n;
    (void)call;
    (void)a;
    if (self->kind == J_ITER && self->u.iter->at < self->u.iter->n) {
        *out = self->u.iter->items[self->u.iter->at++];
        return TEG_OK;
    }
    TRY(teg_jv_iterate(c, self, &items, &n));
    *out = n ? items[0] : teg_jv_hint("no first item, sequence was empty");
    return TEG_OK;
}

FILTER(filter_last)
{
    const struct jv *items;
    size_t n;
    (void)call;
    (void)a;
    if (self->kind == J_ITER || self->kind == J_UNDEFINED)
        JFAIL(c, "'%s' object is not reversible", teg_jv_type(self));
    TRY(teg_jv_iterate(c, self, &items, &n));
    *out = n ? items[n - 1] : teg_jv_hint("no last item, sequence was empty");
    return TEG_OK;
}

FILTER(filter_list)
{
    const struct jv *items;
    size_t n;
    (void)call;
    (void)a;
    TRY(teg_jv_iterate(c, self, &items, &n));
    *out = teg_jv_items(J_LIST, items, n);
    return TEG_OK;
}

FILTER(filter_reverse)
{
    const struct jv *items;
    struct jv *reversed;
    size_t n;
    (void)call;
    (void)a;
    if (self->kind == J_STR) {
        const struct jv bounds[3] = {{.kind = J_MISSING}, {.kind = J_MISSING}, teg_jv_int(-1)};
        return teg_j_slice(c, self, bounds, out);
    }
    TRY(teg_jv_iterate(c, self, &items, &n));
    JNEW(c, reversed, n);
    for (size_t i = 0; i < n; i++)
        reversed[i] = items[n - 1 - i];
    if (self->kind == J_ITER || self->kind == J_UNDEFINED) {
        *out = teg_jv_items(J_LIST, reversed, n); /* what jinja2 falls back to */
        return TEG_OK;
    }
    return teg_jv_iter_make(c, reversed, n, out);
}

/* join(value, d="", attribute=None) */
FILTER(filter_join)
{
    const struct jv *items;
    struct jv separator = teg_jv_str("", 0), item;
    size_t n;
    struct jbuf b = {0};
    (void)call;
    if (a[0].kind != J_MISSING)
        TRY(teg_jv_str_of(c, &a[0], &separator));
    TRY(teg_jv_iterate(c, self, &items, &n));
    for (size_t i = 0; i < n; i++) {
        if (i)
            TRY(teg_j_put(c, &b, separator.u.s, separator.n));
        TRY(get_path(c, &items[i], &a[1], NULL, &item));
        TRY(teg_jv_put_str(c, &b, &item));
    }
    *out = teg_jv_of_buf(&b);
    return TEG_OK;
}

FILTER(filter_items)
{
    const struct jbuiltin *const items = teg_j_builtin(teg_j_dict_methods, (struct jstr){"items", 5});
    struct jv view;
    if (self->kind == J_UNDEFINED)
        return teg_jv_iter_make(c, NULL, 0, out);
    if (self->kind != J_DICT)
        JFAIL(c, "can only get item pairs from a mapping, found %s", teg_jv_type(self));
    TRY(items->fn(c, self, call, a, &view));
    return teg_jv_iter_make(c, view.u.items, view.n, out);
}

/* ---- order ---- */

/* sort(value, reverse=False, case_sensitive=False, attribute=None) */
FILTER(filter_sort)
{
    const struct jv *items;
    struct jv *keys, *sorted;
    size_t n, *order;
    (void)call;
    if (given(&a[2]) && a[2].kind == J_STR && memchr(a[2].u.s, ',', a[2].n))
        JUNSUPPORTED(c, "sorting by several attributes is not supported");
    TRY(teg_jv_iterate(c, self, &items, &n));
    TRY(all_keys(c, items, n, &a[2], &a[1], &keys));
    JNEW(c, order, n);
    JNEW(c, sorted, n);
    TRY(teg_jv_sort(c, keys, n, teg_jv_truth(&a[0]), order));
    for (size_t i = 0; i < n; i++)
        sorted[i] = items[order[i]];
    *out = teg_jv_items(J_LIST, sorted, n);
    return TEG_OK;
}

/* dictsort(value, case_sensitive=False, by="key", reverse=False) */
FILTER(filter_dictsort)
{
    struct jv *keys, *sorted, view;
    const struct jv path = {.kind = J_MISSING};
    size_t *order;
    const struct jstr by = a[1].kind == J_STR ? teg_jv_text(&a[1]) : (struct jstr){"key", 3};
    const bool by_value = teg_jstr_is(by, "value");
    if (self->kind != J_DICT || (!by_value && !teg_jstr_is(by, "key")))
        JFAIL(c, "dictsort takes a mapping, and by is key or value");
    JNEW(c, keys, self->n);
    for (size_t i = 0; i < self->n; i++)
        TRY(sort_key(c, by_value ? &self->u.pairs[i].value : &self->u.pairs[i].key, &path, &a[0], &keys[i]));
    JNEW(c, order, self->n);
    JNEW(c, sorted, self->n);
    TRY(teg_jv_sort(c, keys, self->n, teg_jv_truth(&a[2]), order));
    TRY(teg_j_builtin(teg_j_dict_methods, (struct jstr){"items", 5})->fn(c, self, call, a, &view));
    for (size_t i = 0; i < self->n; i++)
        sorted[i] = view.u.items[order[i]];
    *out = teg_jv_items(J_LIST, sorted, self->n);
    return TEG_OK;
}

/* unique(value, case_sensitive=False, attribute=None) */
FILTER(filter_unique)
{
    const struct jv *items;
    struct jv *keys, *kept;
    size_t n, n_kept = 0;
    (void)call;
    TRY(teg_jv_iterate(c, self, &items, &n));
    TRY(all_keys(c, items, n, &a[1], &a[0], &keys));
    JNEW(c, kept, n);
    for (size_t i = 0; i < n; i++) {
        bool same = false;
        TRY(teg_jv_hashable(c, &keys[i]));
        for (size_t k = 0; k < n_kept && !same; k++)
            TRY(teg_jv_eq(c, &keys[k], &keys[i], &same));
        if (same)
            continue;
        kept[n_kept] = items[i];
        keys[n_kept++] = keys[i];
    }
    return teg_jv_iter_make(c, kept, n_kept, out);
}

static enum teg_status extreme(struct jctx *c, const struct jv *self, const struct jv *a, enum jop op, struct jv *out)
{
    const struct jv *items;
    struct jv *keys;
    size_t n, best = 0;
    TRY(teg_jv_iterate(c, self, &items, &n));
    TRY(all_keys(c, items, n, &a[1], &a[0], &keys));
    for (size_t i = 1; i < n; i++) {
        bool better;
        TRY(teg_jv_order(c, op, &keys[i], &keys[best], &better));
        if (better)
            best = i;
    }
    *out = n ? items[best] : teg_jv_hint("no aggregated item, sequence was empty");
    return TEG_OK;
}

FILTER(filter_min)
{
    (void)call;
    return extreme(c, self, a, OP_LT, out);
}

FILTER(filter_max)
{
    (void)call;
    return extreme(c, self, a, OP_GT, out);
}

/* sum(iterable, attribute=None, start=0) */
FILTER(filter_sum)
{
    const struct jv *items;
    size_t n;
    (void)call;
    *out = a[1].kind == J_MISSING ? teg_jv_int(0) : a[1];
    if (out->kind == J_STR)
        JFAIL(c, "sum() can't sum strings; use join");
    TRY(teg_jv_iterate(c, self, &items, &n));
    for (size_t i = 0; i < n; i++) {
        struct jv item, total = *out;
        TRY(get_path(c, &items[i], &a[0], NULL, &item));
        TRY(teg_j_binary(c, OP_ADD, &total, &item, out));
    }
    return TEG_OK;
}

/* ---- cutting ---- */

/* items[from … to] as a list, filled up to `width`. */
static enum teg_status sublist(struct jctx *c, const struct jv *items, size_t n, size_t width, const struct jv *fill,
                               struct jv *out)
{
    struct jv *copy;
    const size_t total = given(fill) && width > n ? width : n;
    JNEW(c, copy, total);
    for (size_t i = 0; i < total; i++)
        copy[i] = i < n ? items[i] : *fill;
    *out = teg_jv_items(J_LIST, copy, total);
    return TEG_OK;
}

/* batch(value, linecount, fill_with=None) */
FILTER(filter_batch)
{
    const struct jv *items;
    struct jv *lines;
    int64_t width;
    size_t n, n_lines = 0;
    (void)call;
    TRY(teg_jv_int_arg(c, &a[0], "linecount", &width));
    TRY(teg_jv_iterate(c, self, &items, &n));
    if (width <= 0 || width > TEG_J_MAX_RANGE)
        JUNSUPPORTED(c, "expected batches of 1 to %d items, found another number", TEG_J_MAX_RANGE);
    const size_t w = (size_t)width;
    JNEW(c, lines, n / w + 1);
    for (size_t at = 0; at < n; at += w)
        TRY(sublist(c, items + at, n - at < w ? n - at : w, w, &a[1], &lines[n_lines++]));
    return teg_jv_iter_make(c, lines, n_lines, out);
}

/* slice(value, slices, fill_with=None): the first n % slices get one item more. */
FILTER(filter_slice)
{
    const struct jv *items;
    struct jv *lines;
    int64_t count;
    size_t n, at = 0;
    (void)call;
    TRY(teg_jv_int_arg(c, &a[0], "slices", &count));
    TRY(teg_jv_iterate(c, self, &items, &n));
    if (count <= 0 || count > TEG_J_MAX_RANGE)
        JUNSUPPORTED(c, "expected 1 to %d slices, found another number", TEG_J_MAX_RANGE);
    const size_t k = (size_t)count, each = n / k, extra = n % k;
    JNEW(c, lines, k);
    for (size_t i = 0; i < k; i++) {
        const size_t take = each + (i < extra);
        TRY(sublist(c, items + at, take, i < extra ? take : each + 1, &a[1], &lines[i]));
        at += take;
    }
    return teg_jv_iter_make(c, lines, k, out);
}

/* ---- map, select ---- */

/* The arguments behind the first `skip`. */
static struct jcall rest_of(const struct jcall *call, size_t skip)
{
    return (struct jcall){call->pos + skip, call->n_pos - skip, call->kw, call->n_kw};
}

static enum teg_status named(struct jctx *c, const struct jv *name, bool filter, const struct jbuiltin **out)
{
    const char *const what = filter ? "filter" : "test";
    TRY(teg_jv_str_arg(c, name, filter ? "a filter's name" : "a test's name"));
    *out = filter ? teg_j_filter(teg_jv_text(name)) : teg_j_builtin(teg_j_tests, teg_jv_text(name));
    if (!*out)
        JUNSUPPORTED(c, "the %s %.*s is not supported", what, JVSTR(*name));
    return TEG_OK;
}

/* map(attribute=…, default=…) or map(filter, …) */
FILTER(filter_map)
{
    const struct jv *items, *path = NULL, *fallback = NULL;
    const struct jbuiltin *f = NULL;
    struct jv *mapped;
    size_t n;
    (void)a;
    for (size_t i = 0; i < call->n_kw && !call->n_pos; i++) {
        const bool attribute = teg_jstr_is(teg_jv_text(&call->kw[i].key), "attribute");
        if (!attribute && !teg_jstr_is(teg_jv_text(&call->kw[i].key), "default"))
            JFAIL(c, "unexpected keyword argument %.*s", JVSTR(call->kw[i].key));
        *(attribute ? &path : &fallback) = &call->kw[i].value;
    }
    if (!call->n_pos && !path)
        JFAIL(c, "map requires a filter's name or attribute=…");
    TRY(teg_jv_iterate(c, self, &items, &n));
    if (!path && n)
        TRY(named(c, &call->pos[0], true, &f));
    JNEW(c, mapped, n);
    for (size_t i = 0; i < n; i++) {
        if (path) {
            TRY(get_path(c, &items[i], path, fallback, &mapped[i]));
        } else {
            const struct jcall rest = rest_of(call, 1);
            TRY(teg_j_call_builtin(c, f, "filter", &items[i], &rest, &mapped[i]));
        }
    }
    return teg_jv_iter_make(c, mapped, n, out);
}

static enum teg_status select_if(struct jctx *c, const struct jv *self, const struct jcall *call, bool by_attribute,
                                 bool keep, struct jv *out)
{
    const struct jv *items;
    const struct jv no_path = {.kind = J_MISSING};
    const struct jbuiltin *test = NULL;
    struct jv *kept, value, verdict;
    size_t n, n_kept = 0;
    if (!teg_jv_truth(self)) /* even none: jinja2 looks at the truth first */
        return teg_jv_iter_make(c, NULL, 0, out);
    TRY(teg_jv_iterate(c, self, &items, &n));
    if (call->n_pos < by_attribute)
        JFAIL(c, "missing parameter for attribute name");
    if (call->n_pos > by_attribute)
        TRY(named(c, &call->pos[by_attribute], false, &test));
    JNEW(c, kept, n);
    for (size_t i = 0; i < n; i++) {
        TRY(get_path(c, &items[i], by_attribute ? &call->pos[0] : &no_path, NULL, &value));
        verdict = value;
        if (test) {
            const struct jcall rest = rest_of(call, by_attribute + 1u);
            TRY(teg_j_call_builtin(c, test, "test", &value, &rest, &verdict));
        }
        if (teg_jv_truth(&verdict) == keep)
            kept[n_kept++] = items[i];
    }
    return teg_jv_iter_make(c, kept, n_kept, out);
}

FILTER(filter_select)
{
    (void)a;
    return select_if(c, self, call, false, true, out);
}

FILTER(filter_reject)
{
    (void)a;
    return select_if(c, self, call, false, false, out);
}

FILTER(filter_selectattr)
{
    (void)a;
    return select_if(c, self, call, true, true, out);
}

FILTER(filter_rejectattr)
{
    (void)a;
    return select_if(c, self, call, true, false, out);
}

/* groupby(value, attribute, default=None, case_sensitive=False): (key, items) pairs in the order of the keys. */
FILTER(filter_groupby)
{
    const struct jv *items;
    struct jv *keys, *groups, *sorted;
    size_t n, *order, n_groups = 0;
    (void)call;
    TRY(teg_jv_iterate(c, self, &items, &n));
    JNEW(c, keys, n);
    JNEW(c, order, n);
    JNEW(c, sorted, n);
    JNEW(c, groups, n);
    for (size_t i = 0; i < n; i++) {
        TRY(get_path(c, &items[i], &a[0], &a[1], &keys[i]));
        if (keys[i].kind == J_STR && (a[2].kind == J_MISSING || !teg_jv_truth(&a[2])))
            TRY(teg_j_lower(c, teg_jv_text(&keys[i]), &keys[i]));
    }
    TRY(teg_jv_sort(c, keys, n, false, order));
    for (size_t i = 0; i < n; i++)
        sorted[i] = items[order[i]];
    for (size_t from = 0, to; from < n; from = to) {
        bool same = true;
        for (to = from + 1; to < n; to++) {
            TRY(teg_jv_eq(c, &keys[order[from]], &keys[order[to]], &same));
            if (!same)
                break;
        }
        struct jv *pair;
        JNEW(c, pair, 2);
        TRY(get_path(c, &sorted[from], &a[0], &a[1], &pair[0]));
        pair[1] = teg_jv_items(J_LIST, sorted + from, to - from);
        groups[n_groups++] = teg_jv_items(J_TUPLE, pair, 2);
    }
    *out = teg_jv_items(J_LIST, groups, n_groups);
    return TEG_OK;
}

const struct jbuiltin teg_j_seq_filters[] = {
    {"length", filter_length, "", 0},
    {"count", filter_length, "", 0},
    {"first", filter_first, "", 0},
    {"last", filter_last, "", 0},
    {"list", filter_list, "", 0},
    {"reverse", filter_reverse, "", 0},
    {"join", filter_join, "d attribute", 0},
    {"items", filter_items, "", 0},
    {"sort", filter_sort, "reverse case_sensitive attribute", 0},
    {"dictsort", filter_dictsort, "case_sensitive by reverse", 0},
    {"unique", filter_unique, "case_sensitive attribute", 0},
    {"min", filter_min, "case_sensitive attribute", 0},
    {"max", filter_max, "case_sensitive attribute", 0},
    {"sum", filter_sum, "attribute start", 0},
    {"batch", filter_batch, "linecount fill_with", 1},
    {"slice", filter_slice, "slices fill_with", 1},
    {"map", filter_map, NULL, 0},
    {"select", filter_select, NULL, 0},
    {"reject", filter_reject, NULL, 0},
    {"selectattr", filter_selectattr, NULL, 0},
    {"rejectattr", filter_rejectattr, NULL, 0},
    {"groupby", filter_groupby, "attribute default case_sensitive", 1},
    {NULL, NULL, NULL, 0},
};
