/* tok/jinja_eval.c: expressions to values, and calls.
 *
 * Every entry counts a step and a level of depth, so neither a loop nor a deep tree can run away. c->line follows the
 * node being evaluated: an error names the innermost line. */
#include "tok/jinja_int.h"

#include <string.h>

/* ---- names ---- */

static const struct jv *lookup(const struct jscope *scope, struct jstr name)
{
    for (; scope; scope = scope->parent)
        for (size_t i = scope->n; i > 0; i--)
            if (teg_jstr_eq(scope->bindings[i - 1].name, name))
                return &scope->bindings[i - 1].value;
    return NULL;
}

enum teg_status teg_j_bind(struct jctx *c, struct jscope *scope, struct jstr name, const struct jv *value)
{
    for (size_t i = 0; i < scope->n; i++)
        if (teg_jstr_eq(scope->bindings[i].name, name)) {
            scope->bindings[i].value = *value;
            return TEG_OK;
        }
    if (scope->n == scope->capacity) {
        struct jbinding *bindings;
        const size_t capacity = scope->capacity ? 2 * scope->capacity : 4;
        JNEW(c, bindings, capacity);
        if (scope->n)
            memcpy(bindings, scope->bindings, scope->n * sizeof *bindings);
        scope->bindings = bindings;
        scope->capacity = capacity;
    }
    scope->bindings[scope->n++] = (struct jbinding){name, *value};
    return TEG_OK;
}

static enum teg_status eval_name(struct jctx *c, const struct jscope *scope, struct jstr name, struct jv *out)
{
    const struct jv *const found = lookup(scope, name);
    const struct jbuiltin *const global = found ? NULL : teg_j_builtin(teg_j_globals, name);
    if (found)
        *out = *found;
    else if (global && global->fn)
        *out = (struct jv){.kind = J_FUNCTION, .u.function = global};
    else if (global)
        JUNSUPPORTED(c, "the function %s is not supported", global->name);
    else
        *out = (struct jv){.kind = J_UNDEFINED, .aux = J_UNDEF_NAME, .n = name.n, .u.s = name.p};
    return TEG_OK;
}

/* ---- calls ---- */

/* Room for one more keyword is always left: the caller of a call block. */
enum teg_status teg_j_eval_args(struct jctx *c, struct jscope *scope, const struct jargs *args, const struct jv *caller,
                                struct jcall *out)
{
    struct jv star = {.kind = J_LIST}, names = {.kind = J_DICT};
    const struct jv *star_items = NULL;
    size_t n_star = 0, n = 0;
    if (args->star) {
        TRY(teg_j_eval(c, scope, args->star, &star));
        TRY(teg_jv_iterate(c, &star, &star_items, &n_star));
    }
    if (args->star_star) {
        TRY(teg_j_eval(c, scope, args->star_star, &names));
        if (names.kind != J_DICT)
            JFAIL(c, "the argument after ** must be a mapping, not %s", teg_jv_type(&names));
    }
    struct jv *pos;
    struct jpair *kw;
    JNEW(c, pos, args->pos.n + n_star);
    JNEW(c, kw, args->n_kw + names.n + 1);
    for (size_t i = 0; i < args->pos.n; i++)
        TRY(teg_j_eval(c, scope, args->pos.items[i], &pos[i]));
    if (n_star)
        memcpy(pos + args->pos.n, star_items, n_star * sizeof *pos);
    for (size_t i = 0; i < args->n_kw; i++, n++) {
        kw[n].key = teg_jv_str(args->kw[i].name.p, args->kw[i].name.n);
        TRY(teg_j_eval(c, scope, args->kw[i].value, &kw[n].value));
    }
    for (size_t i = 0; i < names.n; i++, n++) {
        kw[n] = names.u.pairs[i];
        if (kw[n].key.kind != J_STR || teg_jv_find_str(kw, n, teg_jv_text(&kw[n].key)))
            JFAIL(c, "keywords must be different strings");
    }
    if (caller)
        kw[n++] = (struct jpair){teg_jv_str("caller", 6), *caller};
    *out = (struct jcall){pos, args->pos.n + n_star, kw, n};
    return TEG_OK;
}

/* The index of a keyword in "a b c"; -1 when it is not there. */
static int param_index(const char *params, struct jstr name)
{
    int index = 0;
    for (const char *p = params; *p; index++) {
        const size_t n = strcspn(p, " ");
        if (teg_jstr_eq((struct jstr){p, n}, name))
            return index;
        p += n + (p[n] == ' ');
    }
    return -1;
}

static size_t param_count(const char *params)
{
    size_t n = *params != '\0';
    for (; *params; params++)
        n += *params == ' ';
    return n;
}

enum teg_status teg_j_call_builtin(struct jctx *c, const struct jbuiltin *f, const char *what, const struct jv *self,
                                   const struct jcall *call, struct jv *out)
{
    struct jv bound[8];
    TRY(teg_j_step(c, 0));
    if (!f->fn)
        JUNSUPPORTED(c, "the %s %s is not supported", what, f->name);
    if (!f->params)
        return f->fn(c, self, call, NULL, out);
    const bool by_position = strncmp(f->params, "/ ", 2) == 0;
    const char *const params = f->params + (by_position ? 2 : 0);
    const size_t n = param_count(params);
    for (size_t i = 0; i < sizeof bound / sizeof *bound; i++)
        bound[i] = (struct jv){.kind = J_MISSING};
    if (call->n_pos > n)
        JFAIL(c, "the %s %s takes at most %zu arguments, found %zu", what, f->name, n, call->n_pos);
    for (size_t i = 0; i < call->n_pos; i++)
        bound[i] = call->pos[i];
    for (size_t i = 0; i < call->n_kw; i++) {
        const struct jstr name = teg_jv_text(&call->kw[i].key);
        const int at = by_position ? -1 : param_index(params, name);
        if (at < 0 || bound[at].kind != J_MISSING)
            JFAIL(c, "the %s %s has no free argument %.*s", what, f->name, JSTR(name));
        bound[at] = call->kw[i].value;
    }
    for (size_t i = 0; i < f->n_required; i++)
        if (bound[i].kind == J_MISSING)
            JFAIL(c, "the %s %s needs at least %zu arguments, found %zu", what, f->name, f->n_required, i);
    return f->fn(c, self, call, bound, out);
}

enum teg_status teg_j_call(struct jctx *c, const struct jv *callee, const struct jcall *call, struct jv *out)
{
    switch (callee->kind) {
    case J_MACRO:
        return teg_j_call_macro(c, callee->u.macro, call, out);
    case J_FUNCTION:
        return teg_j_call_builtin(c, callee->u.function, "function", callee, call, out);
    case J_METHOD:
        return teg_j_call_builtin(c, callee->u.method->builtin, "method", &callee->u.method->self, call, out);
    case J_JOINER:
        *out = callee->u.cycler->at ? callee->u.cycler->items[0] : teg_jv_str("", 0);
        callee->u.cycler->at = 1;
        return TEG_OK;
    case J_LOOP:
        JUNSUPPORTED(c, "a recursive for loop is not supported");
    default:
        TRY(teg_jv_defined(c, callee));
        JFAIL(c, "'%s' object is not callable", teg_jv_type(callee));
    }
}

static enum teg_status eval_call(struct jctx *c, struct jscope *scope, const struct jnode *node, struct jv *out)
{
    struct jv callee;
    struct jcall call;
    TRY(teg_j_eval(c, scope, node->a, &callee));
    TRY(teg_jv_defined(c, &callee)); /* before the arguments, so that the name of what is missing is told */
    TRY(teg_j_eval_args(c, scope, &node->args, NULL, &call));
    c->line = node->line;
    return teg_j_call(c, &callee, &call, out);
}

static enum teg_status eval_filter(struct jctx *c, struct jscope *scope, const struct jnode *node, struct jv *out)
{
    struct jv self;
    struct jcall call;
    const bool test = node->kind == N_TEST;
    if (!node->builtin)
        JUNSUPPORTED(c, "the %s %.*s is not supported", test ? "test" : "filter", JSTR(node->name));
    TRY(teg_j_eval(c, scope, node->a, &self));
    TRY(teg_j_eval_args(c, scope, &node->args, NULL, &call));
    c->line = node->line;
    return teg_j_call_builtin(c, node->builtin, test ? "test" : "filter", &self, &call, out);
}

/* ---- operators ---- */

static enum teg_status compare(struct jctx *c, enum jop op, const struct jv *a, const struct jv *b, bool *out)
{
    switch (op) {
    case OP_EQ:
        return teg_jv_eq(c, a, b, out);
    case OP_NE:
        TRY(teg_jv_eq(c, a, b, out));
        break;
    case OP_IN:
        return teg_j_contains(c, b, a, out);
    case OP_NOT_IN:
        TRY(teg_j_contains(c, b, a, out));
        break;
    default:
        return teg_jv_order(c, op, a, b, out);
    }
    *out = !*out;
    return TEG_OK;
}

static enum teg_status eval_compare(struct jctx *c, struct jscope *scope, const struct jnode *node, struct jv *out)
{
    struct jv left, right;
    bool holds = true;
    TRY(teg_j_eval(c, scope, node->a, &left));
    for (size_t i = 0; holds && i < node->list.n; i++) {
        TRY(teg_j_eval(c, scope, node->list.items[i], &right));
        c->line = node->line;
        TRY(compare(c, (enum jop)node->ops[i], &left, &right, &holds));
        left = right;
    }
    *out = teg_jv_bool(holds);
    return TEG_OK;
}

static enum teg_status eval_concat(struct jctx *c, struct jscope *scope, const struct jnode *node, struct jv *out)
{
    struct jbuf b = {0};
    for (size_t i = 0; i < node->list.n; i++) {
        struct jv v;
        TRY(teg_j_eval(c, scope, node->list.items[i], &v));
        TRY(teg_jv_put_str(c, &b, &v));
    }
    *out = teg_jv_of_buf(&b);
    return TEG_OK;
}

static enum teg_status eval_item(struct jctx *c, struct jscope *scope, const struct jnode *node, struct jv *out)
{
    struct jv object, key;
    TRY(teg_j_eval(c, scope, node->a, &object));
    if (node->b->kind != N_SLICE) {
        TRY(teg_j_eval(c, scope, node->b, &key));
        c->line = node->line;
        return teg_j_getitem(c, &object, &key, out);
    }
    const struct jnode *const parts[3] = {node->b->a, node->b->b, node->b->c};
    struct jv bounds[3];
    for (int i = 0; i < 3; i++) {
        bounds[i] = (struct jv){.kind = J_MISSING};
        if (parts[i])
            TRY(teg_j_eval(c, scope, parts[i], &bounds[i]));
    }
    c->line = node->line;
    return teg_j_slice(c, &object, bounds, out);
}

static enum teg_status eval_items(struct jctx *c, struct jscope *scope, const struct jnode *node, struct jv *out)
{
    struct jv *items;
    JNEW(c, items, node->list.n);
    for (size_t i = 0; i < node->list.n; i++)
        TRY(teg_j_eval(c, scope, node->list.items[i], &items[i]));
    *out = teg_jv_items(node->kind == N_LIST ? J_LIST : J_TUPLE, items, node->list.n);
    return TEG_OK;
}

static enum teg_status eval_dict(struct jctx *c, struct jscope *scope, const struct jnode *node, struct jv *out)
{
    struct jnamespace d = {0};
    for (size_t i = 0; i + 1 < node->list.n; i += 2) {
        struct jv key, value;
        TRY(teg_j_eval(c, scope, node->list.items[i], &key));
        TRY(teg_j_eval(c, scope, node->list.items[i + 1], &value));
        TRY(teg_jv_dict_put(c, &d, &key, &value));
    }
    *out = (struct jv){.kind = J_DICT, .n = d.n, .u.pairs = d.pairs};
    return TEG_OK;
}

static enum teg_status eval_logic(struct jctx *c, struct jscope *scope, const struct jnode *node, struct jv *out)
{
    TRY(teg_j_eval(c, scope, node->a, out));
    if (node->kind == N_NOT)
        *out = teg_jv_bool(!teg_jv_truth(out));
    else if (teg_jv_truth(out) == (node->kind == N_AND))
        return teg_j_eval(c, scope, node->b, out);
    return TEG_OK;
}

static enum teg_status eval_cond(struct jctx *c, struct jscope *scope, const struct jnode *node, struct jv *out)
{
    struct jv test;
    TRY(teg_j_eval(c, scope, node->a, &test));
    if (teg_jv_truth(&test))
        return teg_j_eval(c, scope, node->b, out);
    if (node->c)
        return teg_j_eval(c, scope, node->c, out);
    *out = teg_jv_hint("the inline if-expression evaluated to false and no else section was defined");
    return TEG_OK;
}

static enum teg_status eval_operator(struct jctx *c, struct jscope *scope, const struct jnode *node, struct jv *out)
{
    struct jv a, b;
    TRY(teg_j_eval(c, scope, node->a, &a));
    if (node->kind == N_BINARY)
        TRY(teg_j_eval(c, scope, node->b, &b));
    c->line = node->line;
    if (node->kind == N_BINARY)
        return teg_j_binary(c, (enum jop)node->op, &a, &b, out);
    return node->kind == N_UNARY ? teg_j_unary(c, (enum jop)node->op, &a, out) : teg_j_getattr(c, &a, node->name, out);
}

static enum teg_status eval_node(struct jctx *c, struct jscope *scope, const struct jnode *node, struct jv *out)
{
    switch (node->kind) {
    case N_CONST:
        *out = node->value;
        return TEG_OK;
    case N_NAME:
        return eval_name(c, scope, node->name, out);
    case N_TUPLE:
    case N_LIST:
        return eval_items(c, scope, node, out);
    case N_DICT:
        return eval_dict(c, scope, node, out);
    case N_UNARY:
    case N_BINARY:
    case N_ATTR:
        return eval_operator(c, scope, node, out);
    case N_CONCAT:
        return eval_concat(c, scope, node, out);
    case N_COMPARE:
        return eval_compare(c, scope, node, out);
    case N_AND:
    case N_OR:
    case N_NOT:
        return eval_logic(c, scope, node, out);
    case N_COND:
        return eval_cond(c, scope, node, out);
    case N_ITEM:
        return eval_item(c, scope, node, out);
    case N_CALL:
        return eval_call(c, scope, node, out);
    default:
        return eval_filter(c, scope, node, out);
    }
}

enum teg_status teg_j_eval(struct jctx *c, struct jscope *scope, const struct jnode *node, struct jv *out)
{
    TRY(teg_j_step(c, 0));
    TRY(teg_j_enter(c));
    c->line = node->line;
    TRY(eval_node(c, scope, node, out));
    c->depth--;
    return TEG_OK;
}
