/* mil/make_known.c: whole numbers that are known before a run, element by element.
 *
 * Exported programs compute shapes: `shape` of an input, pieces of it gathered, a `concat` with constants, a
 * `reshape`. Where the rules follow these numbers, the declared types are as sharp as Apple's tools infer them. */
#include <string.h>

#include "mil/make_int.h"

static int64_t element(const struct teg_mil_const *value, size_t i)
{
    const struct teg_mil_dtype_info *const info = teg_mil_dtype_info(value->type.dtype);
    const size_t width = info->bits / 8;
    uint64_t bits = 0;
    for (size_t b = 0; b < width; b++)
        bits |= (uint64_t)value->bytes[i * width + b] << (8 * b);
    if (info->class_ == TEG_MIL_CLASS_INT && info->bits < 64 && bits >> (info->bits - 1))
        bits |= ~(uint64_t)0 << info->bits;
    return (int64_t)bits;
}

static bool known_constant(const struct teg_mil_const *value, struct teg_mil_known *known)
{
    const struct teg_mil_dtype_info *const info = teg_mil_dtype_info(value->type.dtype);
    const bool is_whole =
        info->class_ == TEG_MIL_CLASS_INT || info->class_ == TEG_MIL_CLASS_UINT || info->class_ == TEG_MIL_CLASS_BOOL;
    size_t n = 0;
    if (value->type.kind != TEG_MIL_TENSOR || !is_whole || info->bits < 8 || value->type.rank > 1 || !value->bytes ||
        !teg_mil_count(&value->type, &n) || n > TEG_MIL_MOST_KNOWN)
        return false;
    known->is_scalar = value->type.rank == 0;
    known->n = (uint32_t)n;
    for (size_t i = 0; i < n; i++)
        known->at[i] = element(value, i);
    return true;
}

bool teg_mil_known_of(const struct teg_mil_maker *m, teg_mil_var_id var, struct teg_mil_known *known)
{
    const struct teg_mil_var *const v = &m->program->vars[var];
    const enum teg_mil_class class_ = teg_mil_dtype_info(v->type.dtype)->class_;
    if (v->constant)
        return known_constant(v->constant, known);
    if (m->known[var]) {
        *known = *m->known[var];
        return true;
    }
    if (v->type.kind != TEG_MIL_TENSOR || v->type.rank > 1 || v->type.rank < 0 ||
        (class_ != TEG_MIL_CLASS_INT && class_ != TEG_MIL_CLASS_UINT))
        return false;
    if (v->type.rank == 1 && (v->type.dims[0] < 0 || v->type.dims[0] > TEG_MIL_MOST_KNOWN))
        return false;
    known->is_scalar = v->type.rank == 0; /* nothing but how many */
    known->n = known->is_scalar ? 1 : (uint32_t)v->type.dims[0];
    for (uint32_t i = 0; i < known->n; i++)
        known->at[i] = TEG_MIL_ANY;
    return true;
}

bool teg_mil_known_arg(const struct teg_mil_making *o, const char *arg, struct teg_mil_known *known)
{
    const struct teg_mil_arg *const a = teg_mil_making_arg(o, arg);
    return a && a->n_vars == 1 && teg_mil_known_of(o->m, a->vars[0], known);
}

/* ---- ops on known numbers ---- */

static bool of_shape(struct teg_mil_making *o)
{
    const struct teg_mil_type *const x = teg_mil_making_type(o, "x");
    if (x->rank < 0 || x->rank > TEG_MIL_MOST_KNOWN)
        return false;
    o->known = (struct teg_mil_known){.n = (uint32_t)x->rank};
    for (int32_t i = 0; i < x->rank; i++)
        o->known.at[i] = x->dims[i] == TEG_MIL_UNKNOWN ? TEG_MIL_ANY : x->dims[i];
    return true;
}

static bool of_concat(struct teg_mil_making *o)
{
    const struct teg_mil_arg *const values = teg_mil_making_arg(o, "values");
    struct teg_mil_known part;
    o->known = (struct teg_mil_known){0};
    for (size_t i = 0; i < values->n_vars; i++) {
        if (!teg_mil_known_of(o->m, values->vars[i], &part) || o->known.n + part.n > TEG_MIL_MOST_KNOWN)
            return false;
        memcpy(o->known.at + o->known.n, part.at, part.n * sizeof *part.at);
        o->known.n += part.n;
    }
    return true;
}

static bool of_gather(struct teg_mil_making *o)
{
    struct teg_mil_known x, indices;
    if (!teg_mil_known_arg(o, "x", &x) || x.is_scalar || !teg_mil_known_arg(o, "indices", &indices))
        return false;
    o->known = (struct teg_mil_known){.n = indices.n, .is_scalar = indices.is_scalar};
    for (uint32_t i = 0; i < indices.n; i++) {
        const int64_t at = indices.at[i] < 0 && indices.at[i] != TEG_MIL_ANY ? indices.at[i] + x.n : indices.at[i];
        o->known.at[i] = at >= 0 && at < x.n ? x.at[at] : TEG_MIL_ANY;
    }
    return true;
}

static bool of_slice(struct teg_mil_making *o)
{
    struct teg_mil_known x, begin, end, mask;
    if (!teg_mil_known_arg(o, "x", &x) || x.is_scalar || o->out[0].rank > 1 || !teg_mil_known_arg(o, "begin", &begin) ||
        begin.n != 1 || begin.at[0] == TEG_MIL_ANY || teg_mil_making_arg(o, "stride") ||
        !teg_mil_known_arg(o, "end", &end))
        return false;
    const bool is_open = teg_mil_known_arg(o, "begin_mask", &mask) && mask.at[0];
    const int64_t first = is_open ? 0 : begin.at[0] < 0 ? begin.at[0] + x.n : begin.at[0];
    const int64_t n = o->out[0].rank ? o->out[0].dims[0] : 1;
    if (first < 0 || n < 0 || first + n > x.n)
        return false;
    o->known = (struct teg_mil_known){.n = (uint32_t)n, .is_scalar = !o->out[0].rank};
    memcpy(o->known.at, x.at + first, (size_t)n * sizeof *x.at);
    return true;
}

/* The same numbers in another form. */
static bool of_x(struct teg_mil_making *o)
{
    if (o->out[0].rank > 1 || !teg_mil_known_arg(o, "x", &o->known))
        return false;
    o->known.is_scalar = !o->out[0].rank;
    return teg_mil_dtype_info(o->out[0].dtype)->class_ == TEG_MIL_CLASS_INT ||
           teg_mil_dtype_info(o->out[0].dtype)->class_ == TEG_MIL_CLASS_UINT;
}

static int64_t calculate(const char *type, int64_t a, int64_t b)
{
    const bool is_small = a < INT32_MAX && a > INT32_MIN && b < INT32_MAX && b > INT32_MIN;
    if (!is_small)
        return TEG_MIL_ANY;
    if (strcmp(type, "add") == 0)
        return a + b;
    if (strcmp(type, "sub") == 0)
        return a - b;
    if (strcmp(type, "mul") == 0)
        return a * b;
    return b > 0 && a >= 0 ? a / b : TEG_MIL_ANY; /* floor_div, real_div */
}

static bool of_binary(struct teg_mil_making *o)
{
    struct teg_mil_known x, y;
    if (o->out[0].rank > 1 || !teg_mil_known_arg(o, "x", &x) || !teg_mil_known_arg(o, "y", &y) ||
        (x.n != y.n && x.n != 1 && y.n != 1))
        return false;
    o->known = (struct teg_mil_known){.n = x.n > y.n ? x.n : y.n, .is_scalar = x.is_scalar && y.is_scalar};
    for (uint32_t i = 0; i < o->known.n; i++)
        o->known.at[i] = calculate(o->type, x.at[x.n == 1 ? 0 : i], y.at[y.n == 1 ? 0 : i]);
    return true;
}

void teg_mil_known_infer(struct teg_mil_making *o)
{
    static const struct {
        const char *type;
        bool (*of)(struct teg_mil_making *o);
    } rows[] = {{"shape", of_shape},     {"concat", of_concat},   {"gather", of_gather}, {"slice_by_index", of_slice},
                {"identity", of_x},      {"cast", of_x},          {"expand_dims", of_x}, {"squeeze", of_x},
                {"reshape", of_x},       {"add", of_binary},      {"sub", of_binary},    {"mul", of_binary},
                {"real_div", of_binary}, {"floor_div", of_binary}};
    const enum teg_mil_class class_ = teg_mil_dtype_info(o->out[0].dtype)->class_;
    if (o->out[0].kind != TEG_MIL_TENSOR || (class_ != TEG_MIL_CLASS_INT && class_ != TEG_MIL_CLASS_UINT))
        return;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].type, o->type) == 0)
            o->has_known = rows[i].of(o);
}
