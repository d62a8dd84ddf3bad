/* tok/jinja_builtins.c: tests, global functions, and the methods of dicts, lists and cyclers. */
#include "tok/jinja_int.h"

#include <string.h>
#include <time.h>

#define BUILTIN(name)                                                                                                  \
    static enum teg_status name(struct jctx *c, const struct jv *self, const struct jcall *call, const struct jv *a,   \
                                struct jv *out)

const struct jbuiltin *teg_j_builtin(const struct jbuiltin *table, struct jstr name)
{
    for (; table->name; table++)
        if (teg_jstr_is(name, table->name))
            return table;
    return NULL;
}

/* ---- tests ---- */

/* Tests that are one expression over the subject. */
#define TEST(name, expression)                                                                                         \
    BUILTIN(name)                                                                                                      \
    {                                                                                                                  \
        (void)c;                                                                                                       \
        (void)call;                                                                                                    \
        (void)a;                                                                                                       \
        *out = teg_jv_bool(expression);                                                                                \
        return TEG_OK;                                                                                                 \
    }

TEST(test_defined, self->kind != J_UNDEFINED)
TEST(test_undefined, self->kind == J_UNDEFINED)
TEST(test_none, self->kind == J_NONE)
TEST(test_boolean, self->kind == J_BOOL)
TEST(test_true, self->kind == J_BOOL && self->u.b)
TEST(test_false, self->kind == J_BOOL && !self->u.b)
TEST(test_integer, self->kind == J_INT)
TEST(test_float, self->kind == J_FLOAT)
TEST(test_number, teg_jv_is_number(self))
TEST(test_string, self->kind == J_STR)
TEST(test_mapping, self->kind == J_DICT)
TEST(test_iterable, teg_jv_iterable(self) || self->kind == J_LOOP)
TEST(test_escaped, self->kind == J_STR && self->aux)
TEST(test_callable, self->kind == J_MACRO || self->kind == J_FUNCTION || self->kind == J_METHOD ||
                        self->kind == J_JOINER || self->kind == J_UNDEFINED)
TEST(test_sequence, self->kind == J_UNDEFINED || self->kind == J_STR || self->kind == J_LIST || self->kind == J_TUPLE ||
                        self->kind == J_DICT || self->kind == J_RANGE)
TEST(test_filter, self->kind == J_STR && teg_j_filter(teg_jv_text(self)) != NULL)
TEST(test_test, self->kind == J_STR && teg_j_builtin(teg_j_tests, teg_jv_text(self)) != NULL)

static enum teg_status remainder_is(struct jctx *c, const struct jv *self, const struct jv *by, int64_t rest,
                                    struct jv *out)
{
    struct jv remainder;
    const struct jv want = teg_jv_int(rest);
    bool same;
    TRY(teg_j_binary(c, OP_MOD, self, by, &remainder));
    TRY(teg_jv_eq(c, &remainder, &want, &same));
    *out = teg_jv_bool(same);
    return TEG_OK;
}

BUILTIN(test_odd)
{
    const struct jv two = teg_jv_int(2);
    (void)call;
    (void)a;
    return remainder_is(c, self, &two, 1, out);
}

BUILTIN(test_even)
{
    const struct jv two = teg_jv_int(2);
    (void)call;
    (void)a;
    return remainder_is(c, self, &two, 0, out);
}

BUILTIN(test_divisibleby)
{
    (void)call;
    return remainder_is(c, self, &a[0], 0, out);
}

static enum teg_status test_case(struct jctx *c, const struct jv *self, bool upper, struct jv *out)
{
    struct jv text;
    TRY(teg_jv_str_of(c, self, &text));
    TRY(teg_j_step(c, text.n));
    *out = teg_jv_bool(teg_j_cased(teg_jv_text(&text), upper));
    return TEG_OK;
}

BUILTIN(test_lower)
{
    (void)call;
    (void)a;
    return test_case(c, self, false, out);
}

BUILTIN(test_upper)
{
    (void)call;
    (void)a;
    return test_case(c, self, true, out);
}

BUILTIN(test_in)
{
    bool found;
    (void)call;
    TRY(teg_j_contains(c, &a[0], self, &found));
    *out = teg_jv_bool(found);
    return TEG_OK;
}

BUILTIN(test_eq)
{
    bool same;
    (void)call;
    TRY(teg_jv_eq(c, self, &a[0], &same));
    *out = teg_jv_bool(same);
    return TEG_OK;
}

BUILTIN(test_ne)
{
    TRY(test_eq(c, self, call, a, out));
    out->u.b = !out->u.b;
    return TEG_OK;
}

/* The one thing for none and booleans; for the rest Python's answer depends on its allocator, so ours is a refusal
 * unless the values differ anyway. */
BUILTIN(test_sameas)
{
    bool same = self->kind == a[0].kind;
    (void)call;
    if (same)
        TRY(teg_jv_eq(c, self, &a[0], &same));
    if (same && self->kind != J_NONE && self->kind != J_BOOL)
        JUNSUPPORTED(c, "the test sameas is not supported for a value of type %s; use ==", teg_jv_type(self));
    *out = teg_jv_bool(same);
    return TEG_OK;
}

static enum teg_status ordered(struct jctx *c, enum jop op, const struct jv *self, const struct jv *other,
                               struct jv *out)
{
    bool holds;
    TRY(teg_jv_order(c, op, self, other, &holds));
    *out = teg_jv_bool(holds);
    return TEG_OK;
}

BUILTIN(test_gt)
{
    (void)call;
    return ordered(c, OP_GT, self, &a[0], out);
}

BUILTIN(test_ge)
{
    (void)call;
    return ordered(c, OP_GE, self, &a[0], out);
}

BUILTIN(test_lt)
{
    (void)call;
    return ordered(c, OP_LT, self, &a[0], out);
}

BUILTIN(test_le)
{
    (void)call;
    return ordered(c, OP_LE, self, &a[0], out);
}

const struct jbuiltin teg_j_tests[] = {
    {"defined", test_defined, "", 0},   {"undefined", test_undefined, "", 0},
    {"none", test_none, "", 0},         {"boolean", test_boolean, "", 0},
    {"true", test_true, "", 0},         {"false", test_false, "", 0},
    {"integer", test_integer, "", 0},   {"float", test_float, "", 0},
    {"number", test_number, "", 0},     {"string", test_string, "", 0},
    {"mapping", test_mapping, "", 0},   {"iterable", test_iterable, "", 0},
    {"sequence", test_sequence, "", 0}, {"callable", test_callable, "", 0},
    {"escaped", test_escaped, "", 0},   {"filter", test_filter, "", 0},
    {"test", test_test, "", 0},         {"odd", test_odd, "", 0},
    {"even", test_even, "", 0},         {"divisibleby", test_divisibleby, "num", 1},
    {"lower", test_lower, "", 0},       {"upper", test_upper, "", 0},
    {"in", test_in, "seq", 1},          {"sameas", test_sameas, "other", 1},
    {"==", test_eq, "/ b", 1},          {"eq", test_eq, "/ b", 1},
    {"equalto", test_eq, "/ b", 1},     {"!=", test_ne, "/ b", 1},
    {"ne", test_ne, "/ b", 1},          {">", test_gt, "/ b", 1},
    {"gt", test_gt, "/ b", 1},          {"greaterthan", test_gt, "/ b", 1},
    {">=", test_ge, "/ b", 1},          {"ge", test_ge, "/ b", 1},
    {"<", test_lt, "/ b", 1},           {"lt", test_lt, "/ b", 1},
    {"lessthan", test_lt, "/ b", 1},    {"<=", test_le, "/ b", 1},
    {"le", test_le, "/ b", 1},          {NULL, NULL, NULL, 0},
};

/* ---- global functions ---- */

/* dict(mapping or pairs, name=value…) */
static enum teg_status collect(struct jctx *c, const struct jcall *call, const char *what, struct jnamespace *d)
{
    if (call->n_pos > 1)
        JFAIL(c, "%s expected at most 1 argument, found %zu", what, call->n_pos);
    if (call->n_pos && call->pos[0].kind == J_DICT) {
        for (size_t i = 0; i < call->pos[0].n; i++)
            TRY(teg_jv_dict_put(c, d, &call->pos[0].u.pairs[i].key, &call->pos[0].u.pairs[i].value));
    } else if (call->n_pos) {
        const struct jv *items, *pair;
        size_t n, n_pair;
        TRY(teg_jv_iterate(c, &call->pos[0], &items, &n));
        for (size_t i = 0; i < n; i++) {
            TRY(teg_jv_iterate(c, &items[i], &pair, &n_pair));
            if (n_pair != 2)
                JFAIL(c, "%s expected pairs, found an item of length %zu", what, n_pair);
            TRY(teg_jv_dict_put(c, d, &pair[0], &pair[1]));
        }
    }
    for (size_t i = 0; i < call->n_kw; i++)
        TRY(teg_jv_dict_put(c, d, &call->kw[i].key, &call->kw[i].value));
    return TEG_OK;
}

BUILTIN(global_dict)
{
    struct jnamespace d = {0};
    (void)self;
    (void)a;
    TRY(collect(c, call, "dict", &d));
    *out = (struct jv){.kind = J_DICT, .n = d.n, .u.pairs = d.pairs};
    return TEG_OK;
}

BUILTIN(global_namespace)
{
    struct jnamespace *ns;
    (void)self;
    (void)a;
    JNEW(c, ns, 1);
    TRY(collect(c, call, "namespace", ns));
    for (size_t i = 0; i < ns->n; i++)
        if (ns->pairs[i].key.kind == J_STR && ns->pairs[i].key.n && ns->pairs[i].key.u.s[0] == '_')
            JFAIL(c, "a namespace cannot hold the name %.*s, which begins with an underscore", JVSTR(ns->pairs[i].key));
    *out = (struct jv){.kind = J_NAMESPACE, .u.ns = ns};
    return TEG_OK;
}

BUILTIN(global_range)
{
    int64_t v[3] = {0, 0, 1};
    (void)self;
    (void)a;
    if (call->n_kw || call->n_pos < 1 || call->n_pos > 3)
        JFAIL(c, "range expected 1 to 3 arguments, found %zu", call->n_pos + call->n_kw);
    for (size_t i = 0; i < call->n_pos; i++)
        TRY(teg_jv_int_arg(c, &call->pos[i], "range", &v[call->n_pos == 1 ? 1 : i]));
    return teg_jv_range_make(c, v[0], v[1], v[2], out);
}

BUILTIN(global_raise)
{
    struct jv text;
    (void)self;
    (void)call;
    (void)out;
    TRY(teg_jv_str_of(c, &a[0], &text));
    return teg_j_fail(c, TEG_ERR_ARGUMENT, "%.*s", (int)(text.n > 380 ? 380 : text.n), text.u.s);
}

/* strftime as Python's naive local datetime has it: no zone, microseconds (always 0 here) as %f. */
BUILTIN(global_strftime)
{
    struct jbuf format = {0};
    struct tm tm;
    const time_t now = (time_t)c->now_unix;
    (void)self;
    (void)call;
    TRY(teg_jv_str_arg(c, &a[0], "strftime_now"));
    if (!localtime_r(&now, &tm))
        JFAIL(c, "strftime_now: expected a time that a calendar has, found another");
    if (a[0].n && memchr(a[0].u.s, '\0', a[0].n))
        JFAIL(c, "strftime_now: expected text without NUL");
    for (size_t i = 0; i < a[0].n; i++) {
        const char *const p = a[0].u.s + i;
        const char code = *p == '%' && i + 1 < a[0].n ? p[1] : '\0';
        if (code == 'f' || code == 'z' || code == 'Z')
            TRY(teg_j_puts(c, &format, code == 'f' ? "000000" : ""));
        else
            TRY(teg_j_put(c, &format, p, code ? 2 : 1));
        i += code != '\0';
    }
    TRY(teg_j_put(c, &format, "x", 2)); /* strftime returns 0 for an empty text and for one that does not fit */
    if (format.n > 4096)
        JUNSUPPORTED(c, "strftime_now: expected a format of at most 4096 bytes, found more");
    char *text;
    const size_t capacity = 64 * format.n;
    JNEW(c, text, capacity);
    const size_t n = strftime(text, capacity, format.p, &tm);
    if (!n)
        JUNSUPPORTED(c, "strftime_now: expected a shorter result");
    *out = teg_jv_str(text, n - 1);
    return TEG_OK;
}

BUILTIN(global_cycler)
{
    struct jcycler *cycler;
    (void)self;
    (void)a;
    if (!call->n_pos || call->n_kw)
        JFAIL(c, "at least one item has to be provided to cycler");
    JNEW(c, cycler, 1);
    *cycler = (struct jcycler){call->pos, call->n_pos, 0};
    *out = (struct jv){.kind = J_CYCLER, .u.cycler = cycler};
    return TEG_OK;
}

BUILTIN(global_joiner)
{
    struct jcycler *joiner;
    struct jv *separator;
    (void)self;
    (void)call;
    JNEW(c, joiner, 1);
    JNEW(c, separator, 1);
    *separator = a[0].kind == J_MISSING ? teg_jv_str(", ", 2) : a[0];
    *joiner = (struct jcycler){separator, 1, 0};
    *out = (struct jv){.kind = J_JOINER, .u.cycler = joiner};
    return TEG_OK;
}

const struct jbuiltin teg_j_globals[] = {
    {"dict", global_dict, NULL, 0},
    {"namespace", global_namespace, NULL, 0},
    {"range", global_range, NULL, 0},
    {"raise_exception", global_raise, "message", 1},
    {"strftime_now", global_strftime, "format", 1},
    {"cycler", global_cycler, NULL, 0},
    {"joiner", global_joiner, "sep", 0},
    {"lipsum", NULL, NULL, 0},
    {"self", NULL, NULL, 0},
    {NULL, NULL, NULL, 0},
};

/* ---- methods ---- */

static enum teg_status view(struct jctx *c, const struct jv *self, uint8_t what, struct jv *out)
{
    struct jv *items;
    JNEW(c, items, self->n);
    for (size_t i = 0; i < self->n; i++) {
        const struct jpair *const pair = &self->u.pairs[i];
        if (what != J_VIEW_ITEMS) {
            items[i] = what == J_VIEW_KEYS ? pair->key : pair->value;
            continue;
        }
        struct jv *two;
        JNEW(c, two, 2);
        two[0] = pair->key;
        two[1] = pair->value;
        items[i] = teg_jv_items(J_TUPLE, two, 2);
    }
    *out = teg_jv_items(J_VIEW, items, self->n);
    out->aux = what;
    return TEG_OK;
}

BUILTIN(dict_keys)
{
    (void)call;
    (void)a;
    return view(c, self, J_VIEW_KEYS, out);
}

BUILTIN(dict_values)
{
    (void)call;
    (void)a;
    return view(c, self, J_VIEW_VALUES, out);
}

BUILTIN(dict_items)
{
    (void)call;
    (void)a;
    return view(c, self, J_VIEW_ITEMS, out);
}

BUILTIN(dict_get)
{
    const struct jv *found;
    (void)call;
    TRY(teg_jv_find(c, self->u.pairs, self->n, &a[0], &found));
    *out = found ? *found : a[1].kind == J_MISSING ? teg_jv_none() : a[1];
    return TEG_OK;
}

BUILTIN(copy)
{
    (void)c;
    (void)call;
    (void)a;
    *out = *self;
    return TEG_OK;
}

const struct jbuiltin teg_j_dict_methods[] = {
    {"items", dict_items, "", 0},   {"keys", dict_keys, "", 0},
    {"values", dict_values, "", 0}, {"get", dict_get, "/ key default", 1},
    {"copy", copy, "", 0},          {"fromkeys", NULL, NULL, 0},
    {"pop", NULL, NULL, 0},         {"popitem", NULL, NULL, 0},
    {"setdefault", NULL, NULL, 0},  {"update", NULL, NULL, 0},
    {"clear", NULL, NULL, 0},       {NULL, NULL, NULL, 0},
};

BUILTIN(list_count)
{
    int64_t n = 0;
    (void)call;
    for (size_t i = 0; i < self->n; i++) {
        bool same;
        TRY(teg_jv_eq(c, &self->u.items[i], &a[0], &same));
        n += same;
    }
    *out = teg_jv_int(n);
    return TEG_OK;
}

BUILTIN(list_index)
{
    int64_t start = 0, stop = (int64_t)self->n;
    (void)call;
    if (a[1].kind != J_MISSING)
        TRY(teg_jv_int_arg(c, &a[1], "the start", &start));
    if (a[2].kind != J_MISSING)
        TRY(teg_jv_int_arg(c, &a[2], "the stop", &stop));
    start = start < 0 && start >= -(int64_t)self->n ? start + (int64_t)self->n : start < 0 ? 0 : start;
    stop = stop < 0 && stop >= -(int64_t)self->n ? stop + (int64_t)self->n : stop;
    for (int64_t i = start; i < stop && i < (int64_t)self->n; i++) {
        bool same;
        TRY(teg_jv_eq(c, &self->u.items[i], &a[0], &same));
        if (same) {
            *out = teg_jv_int(i);
            return TEG_OK;
        }
    }
    JFAIL(c, "the value is not in the %s", teg_jv_type(self));
}

const struct jbuiltin teg_j_list_methods[] = {
    {"count", list_count, "/ value", 1},
    {"index", list_index, "/ value start stop", 1},
    {"copy", copy, "", 0},
    {"append", NULL, NULL, 0},
    {"clear", NULL, NULL, 0},
    {"extend", NULL, NULL, 0},
    {"insert", NULL, NULL, 0},
    {"pop", NULL, NULL, 0},
    {"remove", NULL, NULL, 0},
    {"reverse", NULL, NULL, 0},
    {"sort", NULL, NULL, 0},
    {NULL, NULL, NULL, 0},
};

const struct jbuiltin teg_j_tuple_methods[] = {
    {"count", list_count, "/ value", 1},
    {"index", list_index, "/ value start stop", 1},
    {NULL, NULL, NULL, 0},
};

BUILTIN(cycler_next)
{
    struct jcycler *const cycler = self->u.cycler;
    (void)c;
    (void)call;
    (void)a;
    *out = cycler->items[cycler->at];
    cycler->at = (cycler->at + 1) % cycler->n;
    return TEG_OK;
}

BUILTIN(cycler_reset)
{
    (void)c;
    (void)call;
    (void)a;
    self->u.cycler->at = 0;
    *out = teg_jv_none();
    return TEG_OK;
}

const struct jbuiltin teg_j_cycler_methods[] = {
    {"next", cycler_next, "", 0},
    {"reset", cycler_reset, "", 0},
    {NULL, NULL, NULL, 0},
};
