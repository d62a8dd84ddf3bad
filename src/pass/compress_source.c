/* pass/compress_source.c: a weight as it was before it is encoded: a constant, or a chain of constexpr ops.
 *
 * Chains are compared op by op, so that a weight that two functions share is encoded once whatever form it came in. */
#include "pass/compress_int.h"

#include <string.h>

#include "base/check.h"

enum { DEEPEST = 8 };

const struct teg_mil_op *teg_source_maker(const struct source *s)
{
    const struct teg_mil_var *const v = &s->program->vars[s->var];
    if (v->constant || v->op >= s->block->n_ops)
        return NULL;
    const struct teg_mil_op *const op = &s->block->ops[v->op];
    if (strncmp(op->type, "constexpr_", 10) != 0)
        return NULL;
    for (size_t i = 0; i < op->n_outputs; i++)
        if (op->outputs[i] == s->var)
            return op;
    return NULL; /* of another block, whose ops have numbers of their own */
}

static const struct teg_mil_op *maker_of(const void *ctx, teg_mil_var_id var)
{
    const struct source *const s = ctx;
    const struct source other = {s->program, s->block, var};
    return teg_source_maker(&other);
}

static bool same_constant(const struct teg_mil_const *a, const struct teg_mil_const *b)
{
    return a->type.dtype == b->type.dtype && a->n_bytes == b->n_bytes && a->bytes && b->bytes &&
           (a->bytes == b->bytes || memcmp(a->bytes, b->bytes, a->n_bytes) == 0);
}

static bool same(const struct source *a, const struct source *b, int depth)
{
    const struct teg_mil_const *const x = teg_source_constant(a), *const y = teg_source_constant(b);
    const struct teg_mil_op *const p = teg_source_maker(a), *const q = teg_source_maker(b);
    if (x || y)
        return x && y && same_constant(x, y);
    if (!p || !q || depth == DEEPEST || strcmp(p->type, q->type) != 0 || p->n_args != q->n_args)
        return false;
    for (size_t i = 0; i < p->n_args; i++) {
        if (strcmp(p->args[i].name, q->args[i].name) != 0 || p->args[i].n_vars != 1 || q->args[i].n_vars != 1)
            return false;
        const struct source m = {a->program, a->block, p->args[i].vars[0]};
        const struct source n = {b->program, b->block, q->args[i].vars[0]};
        if (!same(&m, &n, depth + 1))
            return false;
    }
    return true;
}

bool teg_source_same(const struct source *a, const struct source *b)
{
    return same(a, b, 0);
}

static size_t bytes_of(const struct source *s, int depth)
{
    const struct teg_mil_const *const c = teg_source_constant(s);
    const struct teg_mil_op *const op = teg_source_maker(s);
    size_t n = c ? c->n_bytes : 0;
    for (size_t i = 0; op && depth < DEEPEST && i < op->n_args; i++)
        if (op->args[i].n_vars == 1) {
            const struct source from = {s->program, s->block, op->args[i].vars[0]};
            n += bytes_of(&from, depth + 1);
        }
    return n;
}

size_t teg_source_bytes(const struct source *s)
{
    return bytes_of(s, 0);
}

enum teg_status teg_source_values(const struct source *s, const char *name, struct teg_arena *arena, float **values,
                                  struct teg_error *err)
{
    const struct teg_dense d = {s->program, maker_of, s, arena};
    const char *why = NULL;
    size_t n;
    *values = teg_dense_values(&d, s->var, &n, &why);
    if (!*values && why)
        FAIL(err, TEG_ERR_UNSUPPORTED, "cannot quantize: %s: %s; leave it out (--skip)", name, why);
    return *values ? TEG_OK : teg_base_fail_memory(err, name, n * sizeof **values);
}
