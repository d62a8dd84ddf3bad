/* tok/jinja_ops.c: operators, attributes, subscripts, slices.
 *
 * Integers are 64 bits; where Python would grow one, the result is an error, never a wrapped number. Attribute lookup
 * is that of the sandbox: a.b prefers Python's methods and falls back to a["b"], a["b"] prefers the item; what would
 * change a list or dict is undefined. */
#include "tok/jinja_int.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static enum teg_status overflow(struct jctx *c)
{
    JUNSUPPORTED(c, "expected an integer of 64 bits, found a larger result");
}

static enum teg_status no_operator(struct jctx *c, enum jop op, const struct jv *a, const struct jv *b)
{
    if (op == OP_ADD && a->kind == J_STR)
        JFAIL(c, "can only concatenate str (not \"%s\") to str; use ~", teg_jv_type(b));
    JFAIL(c, "unsupported operand types for %s: '%s' and '%s'", teg_j_op_text[op], teg_jv_type(a), teg_jv_type(b));
}

/* ---- numbers ---- */

static enum teg_status int_pow(struct jctx *c, int64_t base, int64_t exponent, struct jv *out)
{
    int64_t result = 1;
    if (exponent < 0) {
        if (base == 0)
            JFAIL(c, "0 cannot be raised to a negative power");
        *out = teg_jv_float(pow((double)base, (double)exponent));
        return TEG_OK;
    }
    if (base == 0 || base == 1 || base == -1) { /* any exponent; the others overflow within 63 rounds */
        *out = teg_jv_int(exponent == 0 ? 1 : base < 0 && exponent % 2 == 0 ? 1 : base);
        return TEG_OK;
    }
    for (; exponent > 0; exponent--)
        if (__builtin_mul_overflow(result, base, &result))
            return overflow(c);
    *out = teg_jv_int(result);
    return TEG_OK;
}

static enum teg_status int_binary(struct jctx *c, enum jop op, int64_t a, int64_t b, struct jv *out)
{
    int64_t r = 0;
    if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && b == 0)
        JFAIL(c, "division by zero");
    switch (op) {
    case OP_ADD:
        if (__builtin_add_overflow(a, b, &r))
            return overflow(c);
        break;
    case OP_SUB:
        if (__builtin_sub_overflow(a, b, &r))
            return overflow(c);
        break;
    case OP_MUL:
        if (__builtin_mul_overflow(a, b, &r))
            return overflow(c);
        break;
    case OP_DIV:
        *out = teg_jv_float((double)((long double)a / (long double)b));
        return TEG_OK;
    case OP_FLOORDIV:
        if (a == INT64_MIN && b == -1)
            return overflow(c);
        r = a / b - (a % b != 0 && (a < 0) != (b < 0));
        break;
    case OP_MOD:
        r = b == -1 ? 0 : a % b;
        if (r != 0 && (r < 0) != (b < 0))
            r += b;
        break;
    default:
        return int_pow(c, a, b, out);
    }
    *out = teg_jv_int(r);
    return TEG_OK;
}

/* Python's float % and //, after its float_divmod: the remainder has the divisor's sign. */
static void float_divmod(double a, double b, double *quotient, double *rest)
{
    *rest = fmod(a, b);
    double q = (a - *rest) / b;
    if (*rest != 0) {
        if ((b < 0) != (*rest < 0)) {
            *rest += b;
            q -= 1;
        }
    } else {
        *rest = copysign(0, b);
    }
    *quotient = q != 0 ? floor(q) : copysign(0, a / b);
    if (q != 0 && q - *quotient > 0.5)
        *quotient += 1;
}

static enum teg_status float_binary(struct jctx *c, enum jop op, double a, double b, struct jv *out)
{
    double r = 0, other;
    if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && b == 0)
        JFAIL(c, "division by zero");
    switch (op) {
    case OP_ADD:
        r = a + b;
        break;
    case OP_SUB:
        r = a - b;
        break;
    case OP_MUL:
        r = a * b;
        break;
    case OP_DIV:
        r = a / b;
        break;
    case OP_FLOORDIV:
        float_divmod(a, b, &r, &other);
        break;
    case OP_MOD:
        float_divmod(a, b, &other, &r);
        break;
    default:
        if (a == 0 && b < 0)
            JFAIL(c, "0.0 cannot be raised to a negative power");
        if (a < 0 && isfinite(b) && b != floor(b) && isfinite(a))
            JUNSUPPORTED(c, "expected a real number, found a negative one with a fractional power");
        r = pow(a, b);
        if (isinf(r) && isfinite(a) && isfinite(b))
            JFAIL(c, "the result of ** is too large");
    }
    *out = teg_jv_float(r);
    return TEG_OK;
}

/* ---- strings and lists ---- */

static enum teg_status add_strings(struct jctx *c, const struct jv *a, const struct jv *b, struct jv *out)
{
    struct jbuf buf = {0};
    struct jv left = *a, right = *b;
    if (a->aux != b->aux) /* Markup escapes what it is joined with */
        TRY(teg_j_escape(c, a->aux ? b : a, a->aux ? &right : &left));
    if (!left.n || !right.n) {
        *out = left.n ? left : right;
        out->aux = a->aux | b->aux;
        return TEG_OK;
    }
    TRY(teg_j_put(c, &buf, left.u.s, left.n));
    TRY(teg_j_put(c, &buf, right.u.s, right.n));
    *out = teg_jv_of_buf(&buf);
    out->aux = a->aux | b->aux;
    return TEG_OK;
}

static enum teg_status add_items(struct jctx *c, const struct jv *a, const struct jv *b, struct jv *out)
{
    struct jv *items;
    JNEW(c, items, a->n + b->n);
    if (a->n)
        memcpy(items, a->u.items, a->n * sizeof *items);
    if (b->n)
        memcpy(items + a->n, b->u.items, b->n * sizeof *items);
    *out = teg_jv_items(a->kind, items, a->n + b->n);
    return TEG_OK;
}

static enum teg_status repeat(struct jctx *c, const struct jv *v, int64_t times, struct jv *out)
{
    const size_t n = times > 0 && v->n ? (size_t)times : 0;
    const size_t size = v->kind == J_STR ? 1 : sizeof(struct jv);
    if (n && n > TEG_J_MAX_TEXT / size / v->n)
        JUNSUPPORTED(c, "expected at most %d MiB from *, found more", TEG_J_MAX_TEXT >> 20);
    *out = *v;
    out->n = n * v->n;
    char *p;
    JNEW(c, p, out->n * size);
    const void *const from = v->kind == J_STR ? (const void *)v->u.s : (const void *)v->u.items;
    for (size_t i = 0; i < n; i++)
        memcpy(p + i * v->n * size, from, v->n * size);
    if (v->kind == J_STR)
        out->u.s = p;
    else
        out->u.items = (const struct jv *)(const void *)p;
    return TEG_OK;
}

enum teg_status teg_j_binary(struct jctx *c, enum jop op, const struct jv *a, const struct jv *b, struct jv *out)
{
    int64_t x, y;
    TRY(teg_j_step(c, 0));
    if (op == OP_MOD && a->kind == J_STR)
        return teg_j_percent(c, a, b, out);
    TRY(teg_jv_defined(c, a));
    TRY(teg_jv_defined(c, b));
    if (teg_jv_is_number(a) && teg_jv_is_number(b)) {
        if (teg_jv_as_int(a, &x) && teg_jv_as_int(b, &y))
            return int_binary(c, op, x, y, out);
        return float_binary(c, op, teg_jv_as_float(a), teg_jv_as_float(b), out);
    }
    if (op == OP_ADD && a->kind == J_STR && b->kind == J_STR)
        return add_strings(c, a, b, out);
    if (op == OP_ADD && teg_jv_is_sequence(a) && a->kind == b->kind)
        return add_items(c, a, b, out);
    if (op == OP_MUL && (a->kind == J_STR || teg_jv_is_sequence(a)) && teg_jv_as_int(b, &y))
        return repeat(c, a, y, out);
    if (op == OP_MUL && (b->kind == J_STR || teg_jv_is_sequence(b)) && teg_jv_as_int(a, &x))
        return repeat(c, b, x, out);
    return no_operator(c, op, a, b);
}

enum teg_status teg_j_unary(struct jctx *c, enum jop op, const struct jv *a, struct jv *out)
{
    int64_t i;
    TRY(teg_jv_defined(c, a));
    if (teg_jv_as_int(a, &i)) {
        if (op == OP_SUB && i == INT64_MIN)
            return overflow(c);
        *out = teg_jv_int(op == OP_SUB ? -i : i);
    } else if (a->kind == J_FLOAT) {
        *out = teg_jv_float(op == OP_SUB ? -a->u.f : a->u.f);
    } else {
        JFAIL(c, "bad operand type for unary %s: '%s'", teg_j_op_text[op], teg_jv_type(a));
    }
    return TEG_OK;
}

enum teg_status teg_j_contains(struct jctx *c, const struct jv *container, const struct jv *item, bool *out)
{
    const struct jv *items;
    size_t n;
    *out = false;
    if (container->kind == J_STR) {
        if (item->kind != J_STR)
            JFAIL(c, "'in <string>' requires a string on its left, found %s", teg_jv_type(item));
        TRY(teg_j_step(c, container->n));
        *out = item->n == 0 || memmem(container->u.s, container->n, item->u.s, item->n);
        return TEG_OK;
    }
    if (container->kind == J_DICT) {
        const struct jv *found;
        TRY(teg_jv_find(c, container->u.pairs, container->n, item, &found));
        *out = found != NULL;
        return TEG_OK;
    }
    if (!teg_jv_iterable(container))
        JFAIL(c, "argument of type '%s' is not iterable", teg_jv_type(container));
    TRY(teg_jv_iterate(c, container, &items, &n));
    for (size_t i = 0; i < n && !*out; i++)
        TRY(teg_jv_eq(c, &items[i], item, out));
    return TEG_OK;
}

/* ---- slices ---- */

static enum teg_status slice_bound(struct jctx *c, const struct jv *v, int64_t n, int64_t step, bool is_start,
                                   int64_t *out)
{
    if (v->kind == J_MISSING || v->kind == J_NONE) {
        *out = is_start ? (step > 0 ? 0 : n - 1) : step > 0 ? n : -1;
        return TEG_OK;
    }
    if (!teg_jv_as_int(v, out))
        JFAIL(c, "slice indices must be integers or None, found %s", teg_jv_type(v));
    if (*out < 0)
        *out = *out < -n ? (step < 0 ? -1 : 0) : *out + n;
    else if (*out >= n)
        *out = step < 0 ? n - 1 : n;
    return TEG_OK;
}

static enum teg_status slice_string(struct jctx *c, const struct jv *v, int64_t start, int64_t step, size_t n,
                                    struct jv *out)
{
    const struct jstr s = teg_jv_text(v);
    TRY(teg_j_step(c, s.n));
    *out = *v;
    if (step == 1) {
        const size_t from = n ? teg_j_utf8_at(s, (size_t)start) : 0;
        out->u.s = s.p + from;
        out->n = n ? teg_j_utf8_at((struct jstr){s.p + from, s.n - from}, n) : 0;
        return TEG_OK;
    }
    struct jbuf b = {0};
    const struct jv *chars;
    size_t n_chars;
    TRY(teg_jv_iterate(c, v, &chars, &n_chars));
    for (size_t i = 0; i < n; i++) {
        const struct jv *const ch = &chars[start + (int64_t)i * step];
        TRY(teg_j_put(c, &b, ch->u.s, ch->n));
    }
    out->u.s = b.p ? b.p : "";
    out->n = b.n;
    return TEG_OK;
}

static enum teg_status slice_items(struct jctx *c, const struct jv *v, int64_t start, int64_t step, size_t n,
                                   struct jv *out)
{
    if (step == 1) { /* lists do not change: share */
        *out = teg_jv_items(v->kind, n ? v->u.items + start : v->u.items, n);
        return TEG_OK;
    }
    struct jv *items;
    JNEW(c, items, n);
    for (size_t i = 0; i < n; i++)
        items[i] = v->u.items[start + (int64_t)i * step];
    *out = teg_jv_items(v->kind, items, n);
    return TEG_OK;
}

enum teg_status teg_j_slice(struct jctx *c, const struct jv *obj, const struct jv bounds[3], struct jv *out)
{
    int64_t start, stop, step = 1;
    size_t length;
    TRY(teg_j_step(c, 0));
    TRY(teg_jv_defined(c, obj));
    if (obj->kind != J_STR && obj->kind != J_RANGE && !teg_jv_is_sequence(obj))
        JFAIL(c, "expected a string or list to slice, found %s", teg_jv_type(obj));
    if (bounds[2].kind != J_MISSING && bounds[2].kind != J_NONE && !teg_jv_as_int(&bounds[2], &step))
        JFAIL(c, "slice indices must be integers or None, found %s", teg_jv_type(&bounds[2]));
    if (step == 0)
        JFAIL(c, "slice step cannot be zero");
    TRY(teg_jv_length(c, obj, &length));
    if (step < -(1 << 30) || step > 1 << 30) /* no sequence is longer; keeps the arithmetic below in range */
        step = step < 0 ? -(1 << 30) : 1 << 30;
    TRY(slice_bound(c, &bounds[0], (int64_t)length, step, true, &start));
    TRY(slice_bound(c, &bounds[1], (int64_t)length, step, false, &stop));
    const int64_t span = step > 0 ? stop - start : start - stop, stride = step > 0 ? step : -step;
    const size_t n = span > 0 ? (size_t)((span + stride - 1) / stride) : 0;
    if (obj->kind == J_STR)
        return slice_string(c, obj, start, step, n, out);
    if (teg_jv_is_sequence(obj))
        return slice_items(c, obj, start, step, n, out);
    const struct jrange *const r = obj->u.range;
    int64_t range_step;
    if (__builtin_mul_overflow(r->step, step, &range_step))
        return overflow(c);
    return teg_jv_range_make(c, r->start + start * r->step, r->start + stop * r->step, range_step, out);
}

/* ---- items and attributes ---- */

static struct jv no_attribute(const struct jv *obj, struct jstr name)
{
    return (struct jv){.kind = J_UNDEFINED, .aux = (uint8_t)(J_UNDEF_ATTR + obj->kind), .n = name.n, .u.s = name.p};
}

/* Methods of Python's types; sets *found. */
static enum teg_status method(struct jctx *c, const struct jv *obj, struct jstr name, bool *found, struct jv *out)
{
    static const char *const mutating[] = {"append",  "clear",  "pop",  "popitem", "setdefault", "update",
                                           "reverse", "insert", "sort", "extend",  "remove",     NULL};
    const struct jbuiltin *const table = obj->kind == J_STR      ? teg_j_str_methods
                                         : obj->kind == J_DICT   ? teg_j_dict_methods
                                         : obj->kind == J_LIST   ? teg_j_list_methods
                                         : obj->kind == J_TUPLE  ? teg_j_tuple_methods
                                         : obj->kind == J_CYCLER ? teg_j_cycler_methods
                                                                 : NULL;
    const struct jbuiltin *const f = table ? teg_j_builtin(table, name) : NULL;
    *found = f != NULL;
    if (!f)
        return TEG_OK;
    for (size_t i = 0; !f->fn && mutating[i] && obj->kind != J_STR; i++)
        if (teg_jstr_is(name, mutating[i])) {
            *out = (struct jv){.kind = J_UNDEFINED, .aux = J_UNDEF_UNSAFE, .n = name.n, .u.s = name.p};
            return TEG_OK;
        }
    if (!f->fn)
        JUNSUPPORTED(c, "the method %s.%.*s is not supported", teg_jv_type(obj), JSTR(name));
    struct jmethod *m;
    JNEW(c, m, 1);
    *m = (struct jmethod){*obj, f};
    *out = (struct jv){.kind = J_METHOD, .u.method = m};
    return TEG_OK;
}

/* Attributes of numbers and of other things: none of them is text for a model, so they are refused by name. */
static enum teg_status other_attribute(struct jctx *c, const struct jv *obj, struct jstr name)
{
    static const char *const names[] = {"real",       "imag",      "numerator", "denominator", "conjugate",
                                        "bit_length", "bit_count", "to_bytes",  "from_bytes",  "as_integer_ratio",
                                        "is_integer", "hex",       "fromhex",   "start",       "stop",
                                        "step",       "count",     "index",     "isdisjoint",  "mapping",
                                        "name",       "arguments", "send",      "throw",       "close",
                                        "fromkeys",   NULL};
    if (teg_jv_is_sequence(obj) || obj->kind == J_STR || obj->kind == J_DICT || obj->kind == J_NONE)
        return TEG_OK;
    for (size_t i = 0; names[i]; i++)
        if (teg_jstr_is(name, names[i]))
            JUNSUPPORTED(c, "the attribute %s of a %s is not supported", names[i], teg_jv_type(obj));
    return TEG_OK;
}

/* obj[key] as Python has it; J_MISSING where Python raises TypeError or LookupError. */
static enum teg_status subscript(struct jctx *c, const struct jv *obj, const struct jv *key, struct jv *out)
{
    int64_t i;
    size_t n;
    *out = (struct jv){.kind = J_MISSING};
    if (obj->kind == J_DICT) {
        const struct jv *found;
        if (key->kind == J_LIST || key->kind == J_DICT)
            return TEG_OK;
        TRY(teg_jv_find(c, obj->u.pairs, obj->n, key, &found));
        if (found)
            *out = *found;
        return TEG_OK;
    }
    if ((obj->kind != J_STR && obj->kind != J_RANGE && !teg_jv_is_sequence(obj)) || !teg_jv_as_int(key, &i))
        return TEG_OK;
    TRY(teg_jv_length(c, obj, &n));
    if (i < 0)
        i += (int64_t)n;
    if (i < 0 || i >= (int64_t)n)
        return TEG_OK;
    if (obj->kind == J_RANGE) {
        *out = teg_jv_int(obj->u.range->start + i * obj->u.range->step);
        return TEG_OK;
    }
    if (obj->kind == J_STR)
        return slice_string(c, obj, i, 1, 1, out);
    *out = obj->u.items[i];
    return TEG_OK;
}

enum teg_status teg_j_getitem(struct jctx *c, const struct jv *obj, const struct jv *key, struct jv *out)
{
    TRY(teg_j_step(c, 0));
    TRY(teg_jv_defined(c, obj));
    TRY(subscript(c, obj, key, out));
    if (out->kind != J_MISSING)
        return TEG_OK;
    if (key->kind != J_STR) {
        *out = teg_jv_hint("there is no such element");
        return TEG_OK;
    }
    if (obj->kind == J_DICT || obj->kind == J_STR || teg_jv_is_sequence(obj)) {
        bool found;
        TRY(method(c, obj, teg_jv_text(key), &found, out));
        if (!found)
            *out = no_attribute(obj, teg_jv_text(key));
        return TEG_OK;
    }
    return teg_j_getattr(c, obj, teg_jv_text(key), out);
}

enum teg_status teg_j_getattr(struct jctx *c, const struct jv *obj, struct jstr name, struct jv *out)
{
    bool found;
    TRY(teg_j_step(c, 0));
    TRY(teg_jv_defined(c, obj));
    if (obj->kind == J_LOOP)
        return teg_j_loop_attr(c, obj->u.loop, name, out);
    TRY(method(c, obj, name, &found, out));
    if (found)
        return TEG_OK;
    const struct jv *value = NULL;
    const bool dunder = name.n > 4 && memcmp(name.p, "__", 2) == 0 && memcmp(name.p + name.n - 2, "__", 2) == 0;
    if (obj->kind == J_DICT && !dunder) {
        TRY(teg_j_step(c, 8 * obj->n));
        value = teg_jv_find_str(obj->u.pairs, obj->n, name);
    } else if (obj->kind == J_NAMESPACE && !dunder) {
        value = teg_jv_find_str(obj->u.ns->pairs, obj->u.ns->n, name);
    } else if (obj->kind == J_CYCLER && teg_jstr_is(name, "current")) {
        *out = obj->u.cycler->items[obj->u.cycler->at];
        return TEG_OK;
    } else {
        TRY(other_attribute(c, obj, name));
    }
    *out = value ? *value : no_attribute(obj, name);
    return TEG_OK;
}
