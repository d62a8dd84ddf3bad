/* mil/make_op.c: an op appended: parameters bound, checked and completed, its type inferred, its outputs named.
 *
 * Parameters that are left out get the value that their absence means, written out as Apple's own tools write it,
 * because the device's compiler has been seen with nothing else. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "mil/make_int.h"

/* ---- parameters ---- */

static bool bind(struct teg_mil_making *o, const char *name, teg_mil_var_id var)
{
    struct teg_mil_maker *const m = o->m;
    struct teg_mil_arg *arg = NULL;
    if (!teg_mil_make_is_var(m, var))
        return teg_mil_op_fail(o, "expected '%.40s' to be a value of this function, found none", name);
    for (size_t i = 0; i < o->n_args && !arg; i++)
        if (strcmp(o->args[i].name, name) == 0)
            arg = &o->args[i];
    if (!arg && o->n_args == TEG_MIL_MOST_PARAMETERS)
        return teg_mil_op_fail(o, "expected at most %d parameters, found more", TEG_MIL_MOST_PARAMETERS);
    if (!arg) {
        arg = &o->args[o->n_args++];
        *arg = (struct teg_mil_arg){0};
        m->status = teg_mil_intern(&m->reader, teg_mil_span(name), "the name of a parameter", &arg->name);
        if (m->status != TEG_OK)
            return false;
    }
    teg_mil_var_id *const vars = teg_arena_array(m->reader.arena, arg->n_vars + 1, sizeof *vars);
    if (!vars) {
        teg_mil_make_no_memory(m, (arg->n_vars + 1) * sizeof *vars);
        return false;
    }
    if (arg->n_vars)
        memcpy(vars, arg->vars, arg->n_vars * sizeof *vars);
    vars[arg->n_vars++] = var;
    arg->vars = vars;
    return true;
}

/* Several values of one parameter come one after the other: room for all of them at once. */
static bool bind_all(struct teg_mil_making *o, const struct teg_mil_bind *args)
{
    for (size_t i = 0; args[i].arg; i++) {
        size_t n = 1;
        if (!bind(o, args[i].arg, args[i].var))
            return false;
        while (args[i + n].arg && strcmp(args[i + n].arg, args[i].arg) == 0)
            n++;
        if (n == 1)
            continue;
        struct teg_mil_arg *const arg = &o->args[o->n_args - 1];
        teg_mil_var_id *const vars = teg_arena_array(o->m->reader.arena, n, sizeof *vars);
        if (!vars || strcmp(arg->name, args[i].arg) != 0 || arg->n_vars != 1) {
            teg_mil_make_no_memory(o->m, n * sizeof *vars);
            return false;
        }
        for (size_t j = 0; j < n; j++) {
            if (!teg_mil_make_is_var(o->m, args[i + j].var))
                return teg_mil_op_fail(o, "expected '%.40s' to be values of this function, found another", args[i].arg);
            vars[j] = args[i + j].var;
        }
        arg->vars = vars;
        arg->n_vars = n;
        i += n - 1;
    }
    return true;
}

/* One of "axis=i0 epsilon=f1e-5@8 bias". */
struct word {
    const char *name;
    size_t n;
    char kind; /* of the default; 0: none */
    const char *text;
    uint32_t since;
};

static bool next_word(const char **list, struct word *w)
{
    const char *p = *list;
    while (*p == ' ')
        p++;
    if (!*p)
        return false;
    const size_t n = strcspn(p, " ");
    *w = (struct word){.name = p, .n = strcspn(p, "= @")};
    if (p[w->n] == '=') {
        w->kind = p[w->n + 1];
        w->text = p + w->n + 2;
    }
    const char *const at = memchr(p, '@', n);
    w->since = at ? (uint32_t)strtoul(at + 1, NULL, 10) : 0;
    *list = p + n;
    return true;
}

static bool is_word(const char *list, const char *name, uint32_t opset)
{
    struct word w;
    while (next_word(&list, &w))
        if (strlen(name) == w.n && memcmp(name, w.name, w.n) == 0)
            return w.since <= opset;
    return false;
}

static bool check_args(struct teg_mil_making *o, const struct teg_mil_rule *rule)
{
    const char *list = rule->required;
    struct word w;
    for (size_t i = 0; i < o->n_args; i++)
        if (!is_word(rule->required, o->args[i].name, o->opset) && !is_word(rule->optional, o->args[i].name, o->opset))
            return teg_mil_op_fail(o, "expected parameters of this op and opset, found '%.40s'", o->args[i].name);
    while (next_word(&list, &w)) {
        bool is_there = false;
        for (size_t i = 0; i < o->n_args; i++)
            is_there = is_there || (strlen(o->args[i].name) == w.n && memcmp(o->args[i].name, w.name, w.n) == 0);
        if (!is_there)
            return teg_mil_op_fail(o, "expected parameter '%.*s', found none", (int)w.n, w.name);
    }
    return true;
}

/* ---- defaults ---- */

/* Zeros or ones, as many as the window has dimensions (conv). */
static teg_mil_var_id make_repeated(struct teg_mil_making *o, int32_t value, uint32_t times)
{
    int32_t all[2 * TEG_MIL_MAX_RANK];
    const struct teg_mil_type *const x = teg_mil_making_type(o, "x");
    const uint32_t spatial = x && x->rank > 2 ? (uint32_t)x->rank - 2 : 0;
    for (uint32_t i = 0; i < spatial * times; i++)
        all[i] = value;
    return teg_mil_make_ints(o->m, spatial * times, all);
}

/* A bias of zeros for linear, one for each row of its weight. */
static teg_mil_var_id make_zeros(struct teg_mil_making *o)
{
    enum { SMALL = 64 };
    static const uint8_t zeros[SMALL * 4] = {0};
    const struct teg_mil_type *const x = teg_mil_making_type(o, "x"), *const w = teg_mil_making_type(o, "weight");
    size_t n_bytes = 0;
    if (!x || !w || w->rank != 2 || w->dims[0] < 0 || !teg_mil_bytes(x->dtype, (size_t)w->dims[0], &n_bytes))
        return TEG_MIL_NO_VAR;
    const enum teg_mil_dtype dtype = x->dtype;
    const int64_t rows = w->dims[0];
    if (n_bytes <= sizeof zeros)
        return teg_mil_make_const(o->m, NULL, dtype, 1, &rows, zeros);
    void *const large = teg_arena_array(o->m->reader.arena, n_bytes, 1);
    if (!large) {
        teg_mil_make_no_memory(o->m, n_bytes);
        return TEG_MIL_NO_VAR;
    }
    return teg_mil_make_const(o->m, NULL, dtype, 1, &rows, large);
}

static teg_mil_var_id make_default(struct teg_mil_making *o, const struct word *w)
{
    char text[24] = "";
    const size_t n = strcspn(w->text, " @");
    memcpy(text, w->text, teg_min(n, sizeof text - 1));
    const struct teg_mil_type *const x =
        teg_mil_making_type(o, "x") ? teg_mil_making_type(o, "x") : teg_mil_making_type(o, "indices");
    switch (w->kind) {
    case 'i':
        return teg_mil_make_int(o->m, (int32_t)strtol(text, NULL, 10));
    case 'b':
        return teg_mil_make_bool(o->m, text[0] == '1');
    case 's':
        return teg_mil_make_string(o->m, text);
    case 'f': /* of x's type */
        return teg_mil_make_float(o->m, x && x->dtype == TEG_MIL_FP16 ? TEG_MIL_FP16 : TEG_MIL_FP32,
                                  strtof(text, NULL));
    case 'I':
        return make_repeated(o, (int32_t)strtol(text, NULL, 10), 1);
    case 'P':
        return make_repeated(o, (int32_t)strtol(text, NULL, 10), 2);
    case 'Z':
        return make_zeros(o);
    default:
        return TEG_MIL_NO_VAR;
    }
}

static bool complete(struct teg_mil_making *o, const struct teg_mil_rule *rule)
{
    const char *list = rule->optional;
    struct word w;
    while (next_word(&list, &w)) {
        char name[32] = "";
        memcpy(name, w.name, teg_min(w.n, sizeof name - 1));
        if (!w.kind || w.since > o->opset || teg_mil_making_arg(o, name))
            continue;
        const teg_mil_var_id var = make_default(o, &w);
        if (o->m->status != TEG_OK || (var != TEG_MIL_NO_VAR && !bind(o, name, var)))
            return false;
    }
    return true;
}

/* ---- constants of an op ---- */

/* Constants of constexpr ops stand in the op, those of others are named after who uses them first. */
static bool settle(struct teg_mil_making *o)
{
    struct teg_mil_maker *const m = o->m;
    const bool is_constexpr = strncmp(o->type, "constexpr_", 10) == 0;
    for (size_t i = 0; i < o->n_args; i++) {
        struct teg_mil_arg *const arg = &o->args[i];
        for (size_t j = 0; j < arg->n_vars; j++) {
            const struct teg_mil_var var = m->program->vars[arg->vars[j]];
            if (!var.constant || (is_constexpr && var.name && !var.name[0]))
                continue;
            if (is_constexpr) {
                const teg_mil_var_id twin = teg_mil_make_var(m, "", &var.type, UINT32_MAX, var.constant);
                if (twin == TEG_MIL_NO_VAR)
                    return false;
                ((teg_mil_var_id *)arg->vars)[j] = twin; /* bind's own array */
            } else if (!var.name) {
                const char *const wanted = teg_arena_printf(m->reader.arena, "%s_%s_0", o->name, arg->name);
                const char *const name = wanted ? teg_mil_make_name(m, wanted, arg->vars[j]) : NULL;
                if (!name) {
                    teg_mil_make_no_memory(m, 0);
                    return false;
                }
                m->program->vars[arg->vars[j]].name = name;
            }
        }
    }
    return true;
}

/* ---- appending ---- */

static bool append(struct teg_mil_making *o, teg_mil_var_id *outputs)
{
    struct teg_mil_maker *const m = o->m;
    if (!settle(o))
        return false;
    struct teg_mil_op *const op = teg_mil_make_push(m, &m->ops, sizeof *op);
    struct teg_mil_arg *const args = teg_arena_array(m->reader.arena, o->n_args, sizeof *args);
    teg_mil_var_id *const ids = teg_arena_array(m->reader.arena, o->n_out, sizeof *ids);
    if (!op || !args || !ids) {
        teg_mil_make_no_memory(m, o->n_args * sizeof *args);
        return false;
    }
    memcpy(args, o->args, o->n_args * sizeof *args);
    for (size_t i = 0; i < o->n_out; i++) {
        const teg_mil_var_id id = (teg_mil_var_id)m->program->n_vars;
        const char *const name = teg_mil_make_name(m, o->name, id);
        if (!name || teg_mil_make_var(m, name, &o->out[i], (uint32_t)(m->ops.n - 1), NULL) == TEG_MIL_NO_VAR)
            return false;
        ids[i] = id;
        outputs[i] = id;
    }
    const char *const own =
        o->n_out ? m->program->vars[ids[0]].name : teg_arena_string(m->reader.arena, o->name, strlen(o->name));
    if (!own) {
        teg_mil_make_no_memory(m, strlen(o->name));
        return false;
    }
    *op = (struct teg_mil_op){.name = own, .n_args = o->n_args, .outputs = ids, .n_outputs = o->n_out};
    m->status = teg_mil_intern(&m->reader, teg_mil_span(o->type), "an op type", &op->type);
    if (m->status == TEG_OK)
        m->status = teg_mil_seal_op(&m->reader, op, args, NULL);
    return m->status == TEG_OK;
}

static bool keep_known(struct teg_mil_making *o, teg_mil_var_id var)
{
    teg_mil_known_infer(o);
    if (!o->has_known)
        return true;
    struct teg_mil_known *const known = teg_arena_array(o->m->reader.arena, 1, sizeof *known);
    if (!known) {
        teg_mil_make_no_memory(o->m, sizeof *known);
        return false;
    }
    *known = o->known;
    o->m->known[var] = known;
    return true;
}

static bool begin(struct teg_mil_making *o, struct teg_mil_maker *m, const char *type, const char *name,
                  const struct teg_mil_bind *args)
{
    if (m->status == TEG_OK && !m->in_function)
        teg_mil_make_fail(m, TEG_ERR_ARGUMENT, "expected a function before op '%.60s', found none", type);
    if (m->status != TEG_OK)
        return false;
    o->m = m;
    o->type = type;
    o->name = name && name[0] ? name : type;
    o->opset = ((const struct teg_mil_function *)m->functions.at)[m->functions.n - 1].opset;
    return bind_all(o, args);
}

size_t teg_mil_make_ops(struct teg_mil_maker *m, const char *type, const char *name, const struct teg_mil_bind *args,
                        size_t capacity, teg_mil_var_id *outputs)
{
    struct teg_mil_making o = {0};
    const struct teg_mil_rule *const rule = teg_mil_rule_of(type);
    for (size_t i = 0; i < capacity; i++)
        outputs[i] = TEG_MIL_NO_VAR;
    if (!begin(&o, m, type, name, args))
        return 0;
    if (!rule)
        return teg_mil_op_fail(&o, "expected an op with a rule, found another; give its type (teg_mil_make_op_typed)");
    if (rule->since > o.opset)
        return teg_mil_op_fail(&o, "expected opset %u (iOS%u) or later, found %u; choose a later target", rule->since,
                               rule->since == 10 ? 26 : rule->since + 9, o.opset);
    o.n_out = rule->outputs < 0 ? capacity : (size_t)rule->outputs;
    if (o.n_out > TEG_MIL_MOST_OUTPUTS || (o.n_out > capacity && o.n_out))
        return teg_mil_op_fail(&o, "expected room for %zu outputs, found %zu", o.n_out, capacity);
    if (!check_args(&o, rule) || !complete(&o, rule) || !rule->infer(&o) || !append(&o, outputs))
        return 0;
    return !o.n_out || keep_known(&o, outputs[0]) ? o.n_out : 0;
}

teg_mil_var_id teg_mil_make_op(struct teg_mil_maker *m, const char *type, const char *name,
                               const struct teg_mil_bind *args)
{
    teg_mil_var_id out = TEG_MIL_NO_VAR;
    (void)teg_mil_make_ops(m, type, name, args, 1, &out);
    return out;
}

void teg_mil_make_op_typed(struct teg_mil_maker *m, const char *type, const char *name, const struct teg_mil_bind *args,
                           size_t n_outputs, const struct teg_mil_type *types, teg_mil_var_id *outputs)
{
    struct teg_mil_making o = {0};
    for (size_t i = 0; i < n_outputs; i++)
        outputs[i] = TEG_MIL_NO_VAR;
    if (!begin(&o, m, type, name, args))
        return;
    if (n_outputs > TEG_MIL_MOST_OUTPUTS) {
        (void)teg_mil_op_fail(&o, "expected at most %d outputs, found %zu", TEG_MIL_MOST_OUTPUTS, n_outputs);
        return;
    }
    o.n_out = n_outputs;
    memcpy(o.out, types, n_outputs * sizeof *types);
    (void)append(&o, outputs);
}
