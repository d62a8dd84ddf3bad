/* pass/raise_const.c: reading constants: scalars, small integer vectors, and weights in any constexpr encoding.
 *
 * Whole weights are decoded by pass/dense.h. An encoding that it does not know gives a reason, never a guess. */
#include "pass/dense.h"
#include "pass/raise_int.h"

static size_t elements(const struct teg_mil_type *type)
{
    size_t n = 1;
    for (int32_t d = 0; d < type->rank; d++)
        n *= (size_t)type->dims[d]; /* a constant's size was checked when it was read */
    return n;
}

/* ---- small ones ---- */

bool teg_raise_scalar(struct raiser *r, const struct meaning *m, float *value)
{
    if (m && m->kind == INTEGERS && m->n_ints == 1 && teg_amount_fixed(m->ints[0])) {
        *value = (float)m->ints[0].n;
        return true;
    }
    const struct teg_mil_const *const c = m && m->kind == CONSTANT ? r->program->vars[m->var].constant : NULL;
    if (!c || c->type.kind != TEG_MIL_TENSOR || !teg_dense_readable(c->type.dtype) || elements(&c->type) != 1)
        return false;
    *value = teg_dense_element(c->type.dtype, c->bytes, 0);
    return true;
}

bool teg_raise_bool(struct raiser *r, const char *arg, bool otherwise)
{
    float x;
    return teg_raise_scalar(r, teg_raise_arg(r, arg), &x) ? x != 0 : otherwise;
}

bool teg_raise_string_is(struct raiser *r, const char *arg, const char *text)
{
    const struct teg_mil_var *const v = teg_mil_arg_var(r->program, r->op, arg);
    const struct teg_mil_const *const c = v ? v->constant : NULL;
    return c && c->type.kind == TEG_MIL_TENSOR && c->type.dtype == TEG_MIL_STRING && elements(&c->type) == 1 &&
           c->strings[0].n_bytes == strlen(text) && memcmp(c->strings[0].bytes, text, strlen(text)) == 0;
}

bool teg_raise_ints(struct raiser *r, const struct meaning *m, const struct amount **ints, uint32_t *n)
{
    enum { MOST = 64 };
    if (m && m->kind == INTEGERS) {
        *ints = m->ints;
        *n = m->n_ints;
        return true;
    }
    if (m && m->kind == POSITIONS && !teg_view_has(&m->view, AXIS_TOKENS)) {
        struct amount *const one = teg_raise_alloc(r, 1, sizeof *one);
        if (!one)
            return false;
        *one = (struct amount){m->add, 0, 1};
        *ints = one;
        *n = 1;
        return true;
    }
    const struct teg_mil_const *const c = m && m->kind == CONSTANT ? r->program->vars[m->var].constant : NULL;
    if (!c || c->type.kind != TEG_MIL_TENSOR || elements(&c->type) > MOST || elements(&c->type) == 0)
        return false;
    const enum teg_mil_class class_ = teg_mil_dtype_info(c->type.dtype)->class_;
    if (class_ == TEG_MIL_CLASS_STRING || class_ == TEG_MIL_CLASS_FLOAT)
        return false;
    const size_t count = elements(&c->type);
    struct amount *const made = teg_raise_alloc(r, count, sizeof *made);
    if (!made)
        return false;
    for (size_t i = 0; i < count; i++)
        made[i] = teg_amount((int64_t)teg_dense_element(c->type.dtype, c->bytes, i));
    *ints = made;
    *n = (uint32_t)count;
    return true;
}

bool teg_raise_numbers(struct raiser *r, const char *arg, int64_t *out, uint32_t capacity, uint32_t *n)
{
    const struct amount *ints;
    if (!teg_raise_ints(r, teg_raise_arg(r, arg), &ints, n) || *n > capacity)
        return false;
    for (uint32_t i = 0; i < *n; i++) {
        if (!teg_amount_fixed(ints[i]))
            return false;
        out[i] = ints[i].n;
    }
    return true;
}

bool teg_raise_dims(struct raiser *r, teg_mil_var_id var, uint64_t dims[2], uint32_t *rank)
{
    const struct teg_mil_type *const type = &r->program->vars[var].type;
    *rank = 0;
    if (type->kind != TEG_MIL_TENSOR || type->rank < 0)
        return false;
    for (int32_t d = 0; d < type->rank; d++) {
        if (type->dims[d] == 1 && type->rank > 2)
            continue;
        if (type->dims[d] < 1 || *rank == 2)
            return false;
        dims[(*rank)++] = (uint64_t)type->dims[d];
    }
    return true;
}

/* ---- whole weights ---- */

static const struct teg_mil_op *maker_of(const void *ctx, teg_mil_var_id var)
{
    return teg_raise_maker(ctx, var);
}

float *teg_raise_floats(struct raiser *r, teg_mil_var_id var, size_t *n, const char **why)
{
    const struct teg_dense d = {r->program, maker_of, r, &r->scratch};
    *why = NULL;
    float *const out = teg_dense_values(&d, var, n, why);
    if (!out && !*why)
        teg_raise_keep(r, teg_base_fail_memory(r->err, "a constant", *n * sizeof *out));
    return out;
}
