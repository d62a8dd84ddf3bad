/* tok/jinja_value.c: what Python's data model says about values: truth, equality, order, hashing, iteration.
 *
 * Invariant: dicts hold no two equal keys, in insertion order. They are arrays searched in order, not hash tables:
 * the objects of a conversation have a handful of keys, and a search counts as steps, so a hostile one is bounded. */
#include "tok/jinja_int.h"

#include <math.h>
#include <string.h>

bool teg_jstr_eq(struct jstr a, struct jstr b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

bool teg_jstr_is(struct jstr a, const char *b)
{
    return a.n == strlen(b) && memcmp(a.p, b, a.n) == 0;
}

const char *teg_jv_type(const struct jv *v)
{
    static const char *const names[J_N_KINDS] = {
        [J_MISSING] = "missing",   [J_UNDEFINED] = "Undefined",
        [J_NONE] = "NoneType",     [J_BOOL] = "bool",
        [J_INT] = "int",           [J_FLOAT] = "float",
        [J_STR] = "str",           [J_LIST] = "list",
        [J_TUPLE] = "tuple",       [J_DICT] = "dict",
        [J_RANGE] = "range",       [J_ITER] = "generator",
        [J_VIEW] = "dict view",    [J_NAMESPACE] = "Namespace",
        [J_LOOP] = "LoopContext",  [J_MACRO] = "Macro",
        [J_FUNCTION] = "function", [J_METHOD] = "builtin_function_or_method",
        [J_CYCLER] = "Cycler",     [J_JOINER] = "Joiner",
    };
    return names[v->kind];
}

struct jv teg_jv_hint(const char *message)
{
    return (struct jv){.kind = J_UNDEFINED, .aux = J_UNDEF_HINT, .n = strlen(message), .u.s = message};
}

enum teg_status teg_jv_defined(struct jctx *c, const struct jv *v)
{
    if (v->kind != J_UNDEFINED)
        return TEG_OK;
    if (v->aux == J_UNDEF_HINT)
        JFAIL(c, "%.*s", JVSTR(*v));
    if (v->aux == J_UNDEF_NAME)
        JFAIL(c, "'%.*s' is undefined", JVSTR(*v));
    if (v->aux == J_UNDEF_UNSAFE)
        JFAIL(c, "access to attribute '%.*s' is unsafe: templates may not change lists and dicts", JVSTR(*v));
    const struct jv of = {.kind = (uint8_t)(v->aux - J_UNDEF_ATTR)};
    JFAIL(c, "'%s object' has no attribute '%.*s'", teg_jv_type(&of), JVSTR(*v));
}

bool teg_jv_truth(const struct jv *v)
{
    switch (v->kind) {
    case J_MISSING:
    case J_UNDEFINED:
    case J_NONE:
        return false;
    case J_BOOL:
        return v->u.b;
    case J_INT:
        return v->u.i != 0;
    case J_FLOAT:
        return v->u.f != 0;
    case J_STR:
    case J_LIST:
    case J_TUPLE:
    case J_DICT:
    case J_VIEW:
        return v->n != 0;
    case J_RANGE:
        return v->u.range->n != 0;
    default:
        return true;
    }
}

bool teg_jv_is_number(const struct jv *v)
{
    return v->kind == J_BOOL || v->kind == J_INT || v->kind == J_FLOAT;
}

bool teg_jv_is_sequence(const struct jv *v)
{
    return v->kind == J_LIST || v->kind == J_TUPLE;
}

bool teg_jv_as_int(const struct jv *v, int64_t *out)
{
    if (v->kind == J_INT)
        *out = v->u.i;
    else if (v->kind == J_BOOL)
        *out = v->u.b;
    else
        return false;
    return true;
}

double teg_jv_as_float(const struct jv *v)
{
    return v->kind == J_FLOAT ? v->u.f : v->kind == J_INT ? (double)v->u.i : (double)v->u.b;
}

enum teg_status teg_jv_int_arg(struct jctx *c, const struct jv *v, const char *what, int64_t *out)
{
    TRY(teg_jv_defined(c, v));
    if (!teg_jv_as_int(v, out))
        JFAIL(c, "expected an integer for %s, found %s", what, teg_jv_type(v));
    return TEG_OK;
}

enum teg_status teg_jv_str_arg(struct jctx *c, const struct jv *v, const char *what)
{
    TRY(teg_jv_defined(c, v));
    if (v->kind != J_STR)
        JFAIL(c, "expected a string for %s, found %s", what, teg_jv_type(v));
    return TEG_OK;
}

/* ---- equality and order ---- */

/* -1, 0, 1; 2 when a NaN is among them. Exact also where an int has more bits than a double. */
static int compare_numbers(const struct jv *a, const struct jv *b)
{
    int64_t x, y;
    const bool ai = teg_jv_as_int(a, &x), bi = teg_jv_as_int(b, &y);
    if (ai && bi)
        return (x > y) - (x < y);
    const double f = teg_jv_as_float(a), g = teg_jv_as_float(b);
    if (isnan(f) || isnan(g))
        return 2;
    if (ai == bi || f != g || fabs(f) < 9007199254740992.0)
        return (f > g) - (f < g);
    /* One int, one float, equal after rounding: compare as long double, which holds 64-bit integers. */
    const long double p = ai ? (long double)x : (long double)f, q = bi ? (long double)y : (long double)g;
    return (p > q) - (p < q);
}

static enum teg_status eq_items(struct jctx *c, const struct jv *a, const struct jv *b, bool *out)
{
    *out = a->n == b->n;
    if (a->u.items == b->u.items)
        return TEG_OK;
    for (size_t i = 0; *out && i < a->n; i++)
        TRY(teg_jv_eq(c, &a->u.items[i], &b->u.items[i], out));
    return TEG_OK;
}

static enum teg_status eq_dict(struct jctx *c, const struct jv *a, const struct jv *b, bool *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; *out && i < a->n; i++) {
        const struct jv *other;
        TRY(teg_jv_find(c, b->u.pairs, b->n, &a->u.pairs[i].key, &other));
        *out = other != NULL;
        if (other)
            TRY(teg_jv_eq(c, &a->u.pairs[i].value, other, out));
    }
    return TEG_OK;
}

static enum teg_status eq_same_kind(struct jctx *c, const struct jv *a, const struct jv *b, bool *out)
{
    switch (a->kind) {
    case J_MISSING:
    case J_UNDEFINED:
    case J_NONE:
        *out = true;
        return TEG_OK;
    case J_STR:
        TRY(teg_j_step(c, a->n));
        *out = teg_jstr_eq(teg_jv_text(a), teg_jv_text(b));
        return TEG_OK;
    case J_LIST:
    case J_TUPLE:
        return eq_items(c, a, b, out);
    case J_DICT:
        return eq_dict(c, a, b, out);
    case J_RANGE: {
        const struct jrange *const r = a->u.range, *const s = b->u.range;
        *out = r->n == s->n && (r->n == 0 || (r->start == s->start && (r->n == 1 || r->step == s->step)));
        return TEG_OK;
    }
    case J_VIEW:
        JUNSUPPORTED(c, "comparing dict.keys(), .values() or .items() is not supported; compare lists of them");
    case J_METHOD:
        JUNSUPPORTED(c, "comparing methods is not supported; is a call missing its parentheses?");
    default:
        *out = a->u.ns == b->u.ns;
        return TEG_OK;
    }
}

enum teg_status teg_jv_eq(struct jctx *c, const struct jv *a, const struct jv *b, bool *out)
{
    TRY(teg_j_step(c, 0));
    if (teg_jv_is_number(a) && teg_jv_is_number(b)) {
        *out = compare_numbers(a, b) == 0;
        return TEG_OK;
    }
    if (a->kind != b->kind) {
        *out = false;
        return TEG_OK;
    }
    TRY(teg_j_enter(c));
    TRY(eq_same_kind(c, a, b, out));
    c->depth--;
    return TEG_OK;
}

static bool holds(enum jop op, int sign)
{
    if (sign == 2)
        return false;
    return op == OP_LT ? sign < 0 : op == OP_LE ? sign <= 0 : op == OP_GT ? sign > 0 : sign >= 0;
}

enum teg_status teg_jv_order(struct jctx *c, enum jop op, const struct jv *a, const struct jv *b, bool *out)
{
    TRY(teg_j_step(c, 0));
    TRY(teg_jv_defined(c, a));
    TRY(teg_jv_defined(c, b));
    if (teg_jv_is_number(a) && teg_jv_is_number(b)) {
        *out = holds(op, compare_numbers(a, b));
        return TEG_OK;
    }
    if (a->kind != b->kind || (a->kind != J_STR && !teg_jv_is_sequence(a)))
        JFAIL(c, "'%s' is not supported between '%s' and '%s'", teg_j_op_text[op], teg_jv_type(a), teg_jv_type(b));
    const size_t n = a->n < b->n ? a->n : b->n;
    if (a->kind == J_STR) { /* UTF-8 bytes sort as code points do */
        TRY(teg_j_step(c, n));
        const int sign = n ? memcmp(a->u.s, b->u.s, n) : 0;
        *out = holds(op, sign ? sign < 0 ? -1 : 1 : (a->n > b->n) - (a->n < b->n));
        return TEG_OK;
    }
    TRY(teg_j_enter(c));
    size_t i = 0;
    for (bool same = true; i < n; i++) {
        TRY(teg_jv_eq(c, &a->u.items[i], &b->u.items[i], &same));
        if (!same)
            break;
    }
    if (i < n)
        TRY(teg_jv_order(c, op, &a->u.items[i], &b->u.items[i], out));
    else
        *out = holds(op, (a->n > b->n) - (a->n < b->n));
    c->depth--;
    return TEG_OK;
}

enum teg_status teg_jv_hashable(struct jctx *c, const struct jv *v)
{
    if (v->kind == J_LIST || v->kind == J_DICT || v->kind == J_VIEW)
        JFAIL(c, "unhashable type: '%s'", teg_jv_type(v));
    if (v->kind != J_TUPLE)
        return TEG_OK;
    TRY(teg_j_enter(c));
    for (size_t i = 0; i < v->n; i++)
        TRY(teg_jv_hashable(c, &v->u.items[i]));
    c->depth--;
    return TEG_OK;
}

/* ---- dicts ---- */

enum teg_status teg_jv_find(struct jctx *c, const struct jpair *pairs, size_t n, const struct jv *key,
                            const struct jv **out)
{
    *out = NULL;
    TRY(teg_jv_hashable(c, key));
    TRY(teg_j_step(c, 8 * n));
    if (key->kind == J_STR) {
        *out = teg_jv_find_str(pairs, n, teg_jv_text(key));
        return TEG_OK;
    }
    for (size_t i = 0; i < n; i++) {
        bool same;
        TRY(teg_jv_eq(c, &pairs[i].key, key, &same));
        if (same) {
            *out = &pairs[i].value;
            break;
        }
    }
    return TEG_OK;
}

const struct jv *teg_jv_find_str(const struct jpair *pairs, size_t n, struct jstr key)
{
    for (size_t i = 0; i < n; i++)
        if (pairs[i].key.kind == J_STR && teg_jstr_eq(teg_jv_text(&pairs[i].key), key))
            return &pairs[i].value;
    return NULL;
}

enum teg_status teg_jv_dict_put(struct jctx *c, struct jnamespace *d, const struct jv *key, const struct jv *value)
{
    const struct jv *old;
    TRY(teg_jv_find(c, d->pairs, d->n, key, &old));
    if (old) {
        d->pairs[(const struct jpair *)((const char *)old - offsetof(struct jpair, value)) - d->pairs].value = *value;
        return TEG_OK;
    }
    if (d->n == d->capacity) {
        struct jpair *pairs;
        const size_t capacity = d->capacity ? 2 * d->capacity : 4;
        JNEW(c, pairs, capacity);
        if (d->n)
            memcpy(pairs, d->pairs, d->n * sizeof *pairs);
        d->pairs = pairs;
        d->capacity = capacity;
    }
    d->pairs[d->n++] = (struct jpair){*key, *value};
    return TEG_OK;
}

/* ---- iteration ---- */

bool teg_jv_iterable(const struct jv *v)
{
    return v->kind == J_UNDEFINED || v->kind == J_STR || v->kind == J_LIST || v->kind == J_TUPLE || v->kind == J_DICT ||
           v->kind == J_RANGE || v->kind == J_ITER || v->kind == J_VIEW;
}

static enum teg_status characters(struct jctx *c, struct jstr s, struct jv **items, size_t *n)
{
    *n = teg_j_utf8_count(s);
    JNEW(c, *items, *n);
    for (size_t i = 0, at = 0, step; i < *n; i++, at += step) {
        (void)teg_j_next(s, at, &step);
        (*items)[i] = teg_jv_str(s.p + at, step);
    }
    return TEG_OK;
}

enum teg_status teg_jv_iterate(struct jctx *c, const struct jv *v, const struct jv **items, size_t *n)
{
    struct jv *made = NULL;
    *items = NULL;
    *n = 0;
    TRY(teg_j_step(c, 0));
    if (v->kind == J_LIST || v->kind == J_TUPLE || v->kind == J_VIEW) {
        *items = v->u.items;
        *n = v->n;
    } else if (v->kind == J_ITER) {
        *n = v->u.iter->n - v->u.iter->at;
        *items = *n ? v->u.iter->items + v->u.iter->at : NULL;
        v->u.iter->at = v->u.iter->n;
    } else if (v->kind == J_STR) {
        TRY(characters(c, teg_jv_text(v), &made, n));
        *items = made;
    } else if (v->kind == J_DICT || v->kind == J_RANGE) {
        *n = v->kind == J_DICT ? v->n : v->u.range->n;
        JNEW(c, made, *n);
        for (size_t i = 0; i < *n; i++)
            made[i] =
                v->kind == J_DICT ? v->u.pairs[i].key : teg_jv_int(v->u.range->start + (int64_t)i * v->u.range->step);
        *items = made;
    } else if (v->kind == J_LOOP || v->kind == J_MACRO) {
        JUNSUPPORTED(c, "iterating over a %s is not supported", teg_jv_type(v));
    } else if (v->kind != J_UNDEFINED) {
        JFAIL(c, "'%s' object is not iterable", teg_jv_type(v));
    }
    return TEG_OK;
}

enum teg_status teg_jv_length(struct jctx *c, const struct jv *v, size_t *n)
{
    switch (v->kind) {
    case J_UNDEFINED:
        *n = 0;
        return TEG_OK;
    case J_STR:
        TRY(teg_j_step(c, v->n));
        *n = teg_j_utf8_count(teg_jv_text(v));
        return TEG_OK;
    case J_LIST:
    case J_TUPLE:
    case J_DICT:
    case J_VIEW:
        *n = v->n;
        return TEG_OK;
    case J_RANGE:
        *n = v->u.range->n;
        return TEG_OK;
    default:
        JFAIL(c, "object of type '%s' has no length", teg_jv_type(v));
    }
}

enum teg_status teg_jv_range_make(struct jctx *c, int64_t start, int64_t stop, int64_t step, struct jv *out)
{
    if (step == 0)
        JFAIL(c, "range() step must not be zero");
    const bool some = step > 0 ? start < stop : start > stop;
    /* The distance fits 64 bits without sign, whatever the ends. */
    const uint64_t distance = !some      ? 0
                              : step > 0 ? (uint64_t)stop - (uint64_t)start
                                         : (uint64_t)start - (uint64_t)stop;
    const uint64_t stride = step > 0 ? (uint64_t)step : 0u - (uint64_t)step;
    const uint64_t n = distance / stride + (distance % stride != 0);
    if (n > TEG_J_MAX_RANGE)
        JFAIL(c, "range too big: expected at most %d items, found more", TEG_J_MAX_RANGE);
    struct jrange *range;
    JNEW(c, range, 1);
    *range = (struct jrange){start, stop, step, (size_t)n};
    *out = (struct jv){.kind = J_RANGE, .u.range = range};
    return TEG_OK;
}

enum teg_status teg_jv_iter_make(struct jctx *c, const struct jv *items, size_t n, struct jv *out)
{
    struct jiter *iter;
    JNEW(c, iter, 1);
    *iter = (struct jiter){items, n, 0};
    *out = (struct jv){.kind = J_ITER, .u.iter = iter};
    return TEG_OK;
}

/* A stable merge sort of indices by their keys. Reverse keeps equal items in order too, as Python's does. */
enum teg_status teg_jv_sort(struct jctx *c, const struct jv *keys, size_t n, bool reverse, size_t *order)
{
    size_t *from = order, *to;
    JNEW(c, to, n);
    for (size_t i = 0; i < n; i++)
        order[i] = i;
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t lo = 0; lo < n; lo += 2 * width) {
            const size_t mid = lo + width < n ? lo + width : n, hi = lo + 2 * width < n ? lo + 2 * width : n;
            size_t i = lo, j = mid;
            for (size_t k = lo; k < hi; k++) {
                bool take_right = i == mid;
                if (i < mid && j < hi) {
                    const struct jv *const a = &keys[from[i]], *const b = &keys[from[j]];
                    TRY(teg_jv_order(c, OP_LT, reverse ? a : b, reverse ? b : a, &take_right));
                }
                to[k] = take_right ? from[j++] : from[i++];
            }
        }
        size_t *const swap = from;
        from = to;
        to = swap;
    }
    if (from != order)
        memcpy(order, from, n * sizeof *order);
    return TEG_OK;
}
