/* tok/jinja_exec.c: statements to text, loops, macros.
 *
 * Scopes follow jinja2's: if opens none; for (each round), with, filter, block set, macro, call and generation open
 * one, and what is set inside ends with it. A macro sees the scope it was defined in. break and continue travel up as
 * a flow value, because statements between (if, with) must not run on. */
#include "tok/jinja_int.h"

#include <string.h>

static enum teg_status exec(struct jctx *c, struct jscope *scope, const struct jnode *node, struct jbuf *out,
                            enum jflow *flow);

enum teg_status teg_j_exec_body(struct jctx *c, struct jscope *scope, const struct jnodes *body, struct jbuf *out,
                                enum jflow *flow)
{
    TRY(teg_j_enter(c));
    for (size_t i = 0; i < body->n && *flow == J_FLOW_ON; i++)
        TRY(exec(c, scope, body->items[i], out, flow));
    c->depth--;
    return TEG_OK;
}

static enum teg_status scope_new(struct jctx *c, struct jscope *parent, struct jscope **out)
{
    JNEW(c, *out, 1);
    (*out)->parent = parent;
    return TEG_OK;
}

/* ---- assignment ---- */

static enum teg_status assign_attribute(struct jctx *c, struct jscope *scope, const struct jnode *target,
                                        const struct jv *value)
{
    struct jv ns;
    const struct jnode name = {.kind = N_NAME, .line = target->line, .name = target->name};
    const struct jv key = teg_jv_str(target->name2.p, target->name2.n);
    TRY(teg_j_eval(c, scope, &name, &ns));
    TRY(teg_jv_defined(c, &ns));
    if (ns.kind != J_NAMESPACE)
        JFAIL(c, "cannot assign attribute %.*s on non-namespace object %.*s", JSTR(target->name2), JSTR(target->name));
    if (key.n && key.u.s[0] == '_')
        JFAIL(c, "a namespace cannot hold the name %.*s, which begins with an underscore", JSTR(target->name2));
    return teg_jv_dict_put(c, ns.u.ns, &key, value);
}

enum teg_status teg_j_assign(struct jctx *c, struct jscope *scope, const struct jnode *target, const struct jv *value)
{
    const struct jv *items;
    size_t n;
    if (target->kind == N_NAME)
        return teg_j_bind(c, scope, target->name, value);
    if (target->kind == N_NSREF)
        return assign_attribute(c, scope, target, value);
    TRY(teg_jv_iterate(c, value, &items, &n));
    if (n != target->list.n)
        JFAIL(c, "expected %zu values to unpack, found %zu", target->list.n, n);
    TRY(teg_j_enter(c));
    for (size_t i = 0; i < n; i++)
        TRY(teg_j_assign(c, scope, target->list.items[i], &items[i]));
    c->depth--;
    return TEG_OK;
}

/* ---- for ---- */

/* Whether the loop's condition takes the item, evaluated in a scope of its own. */
static enum teg_status loop_takes(struct jctx *c, const struct jloop *loop, const struct jv *item, bool *out)
{
    struct jscope *scope;
    struct jv v;
    *out = true;
    if (!loop->test)
        return TEG_OK;
    TRY(scope_new(c, loop->scope, &scope));
    TRY(teg_j_assign(c, scope, loop->target, item));
    TRY(teg_j_eval(c, scope, loop->test, &v));
    *out = teg_jv_truth(&v);
    return TEG_OK;
}

enum teg_status teg_j_loop_peek(struct jctx *c, struct jloop *loop)
{
    while (loop->after.kind == J_MISSING && loop->at < loop->n) {
        const struct jv *const item = &loop->items[loop->at++];
        bool takes;
        TRY(loop_takes(c, loop, item, &takes));
        if (takes)
            loop->after = *item;
    }
    return TEG_OK;
}

/* Counts the rest by filtering it now, once, as jinja2's loop.length does. */
static enum teg_status loop_length(struct jctx *c, struct jloop *loop)
{
    if (loop->length >= 0)
        return TEG_OK;
    struct jv *rest;
    size_t n = 0;
    JNEW(c, rest, loop->n - loop->at);
    for (; loop->at < loop->n; loop->at++) {
        bool takes;
        TRY(loop_takes(c, loop, &loop->items[loop->at], &takes));
        if (takes)
            rest[n++] = loop->items[loop->at];
    }
    loop->items = rest;
    loop->n = n;
    loop->at = 0;
    loop->test = NULL;
    loop->length = loop->index0 + 1 + (int64_t)n + (loop->after.kind != J_MISSING);
    return TEG_OK;
}

enum loop_attr {
    LOOP_INDEX,
    LOOP_INDEX0,
    LOOP_FIRST,
    LOOP_LAST,
    LOOP_LENGTH,
    LOOP_REVINDEX,
    LOOP_REVINDEX0,
    LOOP_PREVITEM,
    LOOP_NEXTITEM,
    LOOP_DEPTH,
    LOOP_DEPTH0,
    LOOP_N
};

static enum teg_status loop_value(struct jctx *c, struct jloop *loop, enum loop_attr attr, struct jv *out)
{
    if (attr == LOOP_LAST || attr == LOOP_NEXTITEM)
        TRY(teg_j_loop_peek(c, loop));
    if (attr == LOOP_LENGTH || attr == LOOP_REVINDEX || attr == LOOP_REVINDEX0)
        TRY(loop_length(c, loop));
    const bool is_last = loop->after.kind == J_MISSING;
    switch (attr) {
    case LOOP_FIRST:
        *out = teg_jv_bool(loop->index0 == 0);
        break;
    case LOOP_LAST:
        *out = teg_jv_bool(is_last);
        break;
    case LOOP_PREVITEM:
        *out = loop->index0 == 0 ? teg_jv_hint("there is no previous item") : loop->before;
        break;
    case LOOP_NEXTITEM:
        *out = is_last ? teg_jv_hint("there is no next item") : loop->after;
        break;
    default:
        *out = teg_jv_int(attr == LOOP_INDEX       ? loop->index0 + 1
                          : attr == LOOP_INDEX0    ? loop->index0
                          : attr == LOOP_LENGTH    ? loop->length
                          : attr == LOOP_REVINDEX  ? loop->length - loop->index0
                          : attr == LOOP_REVINDEX0 ? loop->length - loop->index0 - 1
                                                   : attr == LOOP_DEPTH);
    }
    return TEG_OK;
}

enum teg_status teg_j_loop_attr(struct jctx *c, struct jloop *loop, struct jstr name, struct jv *out)
{
    static const char *const names[LOOP_N] = {"index",     "index0",   "first",    "last",  "length", "revindex",
                                              "revindex0", "previtem", "nextitem", "depth", "depth0"};
    for (size_t i = 0; i < LOOP_N; i++)
        if (teg_jstr_is(name, names[i]))
            return loop_value(c, loop, (enum loop_attr)i, out);
    const struct jbuiltin *const f = teg_j_builtin(teg_j_loop_methods, name);
    if (f) {
        struct jmethod *m;
        JNEW(c, m, 1);
        *m = (struct jmethod){{.kind = J_LOOP, .u.loop = loop}, f};
        *out = (struct jv){.kind = J_METHOD, .u.method = m};
        return TEG_OK;
    }
    *out = (struct jv){.kind = J_UNDEFINED, .aux = J_UNDEF_ATTR + J_LOOP, .n = name.n, .u.s = name.p};
    return TEG_OK;
}

static enum teg_status loop_cycle(struct jctx *c, const struct jv *self, const struct jcall *call, const struct jv *a,
                                  struct jv *out)
{
    (void)a;
    if (!call->n_pos || call->n_kw)
        JFAIL(c, "no items for cycling given");
    *out = call->pos[(size_t)self->u.loop->index0 % call->n_pos];
    return TEG_OK;
}

static enum teg_status loop_changed(struct jctx *c, const struct jv *self, const struct jcall *call, const struct jv *a,
                                    struct jv *out)
{
    const struct jv now = teg_jv_items(J_TUPLE, call->pos, call->n_pos);
    struct jv *const last = &self->u.loop->changed;
    bool same = false;
    (void)a;
    if (last->kind != J_MISSING)
        TRY(teg_jv_eq(c, last, &now, &same));
    *last = now;
    *out = teg_jv_bool(!same);
    return TEG_OK;
}

const struct jbuiltin teg_j_loop_methods[] = {
    {"cycle", loop_cycle, NULL, 0},
    {"changed", loop_changed, NULL, 0},
    {NULL, NULL, NULL, 0},
};

static enum teg_status exec_for(struct jctx *c, struct jscope *scope, const struct jnode *node, struct jbuf *out,
                                enum jflow *flow)
{
    struct jloop *loop;
    struct jv iterable;
    JNEW(c, loop, 1);
    *loop = (struct jloop){.index0 = -1, .length = -1, .target = node->a, .test = node->c, .scope = scope};
    TRY(teg_j_eval(c, scope, node->b, &iterable));
    TRY(teg_jv_iterate(c, &iterable, &loop->items, &loop->n));
    const struct jv self = {.kind = J_LOOP, .u.loop = loop};
    bool completed = false; /* one round to its end; else what `else` waits for has not happened */
    for (enum jflow inner = J_FLOW_ON; inner != J_FLOW_BREAK;) {
        struct jscope *round;
        TRY(teg_j_loop_peek(c, loop));
        if (loop->after.kind == J_MISSING)
            break;
        loop->before = loop->current;
        loop->current = loop->after;
        loop->after = (struct jv){.kind = J_MISSING};
        loop->index0++;
        TRY(scope_new(c, scope, &round));
        TRY(teg_j_bind(c, round, (struct jstr){"loop", 4}, &self));
        TRY(teg_j_assign(c, round, node->a, &loop->current));
        inner = J_FLOW_ON;
        TRY(teg_j_exec_body(c, round, &node->list, out, &inner));
        completed |= inner == J_FLOW_ON;
    }
    if (completed || !node->list2.n)
        return TEG_OK;
    TRY(scope_new(c, scope, &scope));
    return teg_j_exec_body(c, scope, &node->list2, out, flow);
}

/* ---- macros ---- */

static enum teg_status bind_param(struct jctx *c, struct jscope *scope, const struct jnode *macro, size_t i,
                                  const struct jv *given)
{
    const struct jstr name = macro->args.pos.items[i]->name;
    struct jv value = *given;
    if (value.kind == J_MISSING && macro->list2.items[i])
        TRY(teg_j_eval(c, scope, macro->list2.items[i], &value));
    else if (value.kind == J_MISSING)
        value = (struct jv){.kind = J_UNDEFINED, .aux = J_UNDEF_NAME, .n = name.n, .u.s = name.p};
    return teg_j_bind(c, scope, name, &value);
}

/* What the parameters did not take: kwargs, varargs and caller where the body asks for them, else an error. */
static enum teg_status bind_rest(struct jctx *c, struct jscope *scope, const struct jnode *macro,
                                 const struct jcall *call, const bool *used)
{
    const size_t n_params = macro->args.pos.n;
    const struct jstr caller_name = {"caller", 6};
    struct jv caller = teg_jv_hint("no caller defined");
    struct jpair *rest;
    size_t n = 0;
    JNEW(c, rest, call->n_kw);
    for (size_t i = 0; i < call->n_kw; i++) {
        if (used[i])
            continue;
        if ((macro->uses & J_USES_CALLER) && teg_jstr_eq(teg_jv_text(&call->kw[i].key), caller_name))
            caller = call->kw[i].value;
        else
            rest[n++] = call->kw[i];
    }
    if (n && !(macro->uses & J_USES_KWARGS))
        JFAIL(c, "macro %.*s takes no keyword argument %.*s", JSTR(macro->name), JVSTR(rest[0].key));
    if (call->n_pos > n_params && !(macro->uses & J_USES_VARARGS))
        JFAIL(c, "macro %.*s takes not more than %zu arguments, found %zu", JSTR(macro->name), n_params, call->n_pos);
    const struct jv kwargs = {.kind = J_DICT, .n = n, .u.pairs = rest};
    const size_t n_var = call->n_pos > n_params ? call->n_pos - n_params : 0;
    const struct jv varargs = teg_jv_items(J_TUPLE, n_var ? call->pos + n_params : NULL, n_var);
    if (macro->uses & J_USES_CALLER)
        TRY(teg_j_bind(c, scope, caller_name, &caller));
    if (macro->uses & J_USES_KWARGS)
        TRY(teg_j_bind(c, scope, (struct jstr){"kwargs", 6}, &kwargs));
    if (macro->uses & J_USES_VARARGS)
        TRY(teg_j_bind(c, scope, (struct jstr){"varargs", 7}, &varargs));
    return TEG_OK;
}

enum teg_status teg_j_call_macro(struct jctx *c, const struct jmacro *macro, const struct jcall *call, struct jv *out)
{
    const struct jnode *const node = macro->node;
    struct jscope *scope;
    struct jbuf text = {0};
    enum jflow flow = J_FLOW_ON;
    bool *used;
    const unsigned line = c->line;
    TRY(scope_new(c, macro->scope, &scope));
    JNEW(c, used, call->n_kw);
    /* jinja2 binds the special names first; parameters of the same name win */
    struct jv *given;
    JNEW(c, given, node->args.pos.n);
    for (size_t i = 0; i < node->args.pos.n; i++) {
        given[i] = i < call->n_pos ? call->pos[i] : (struct jv){.kind = J_MISSING};
        for (size_t k = 0; i >= call->n_pos && k < call->n_kw; k++)
            if (teg_jstr_eq(teg_jv_text(&call->kw[k].key), node->args.pos.items[i]->name)) {
                given[i] = call->kw[k].value;
                used[k] = true;
            }
    }
    TRY(bind_rest(c, scope, node, call, used));
    for (size_t i = 0; i < node->args.pos.n; i++)
        TRY(bind_param(c, scope, node, i, &given[i]));
    TRY(teg_j_exec_body(c, scope, &node->list, &text, &flow));
    c->line = line;
    *out = teg_jv_of_buf(&text);
    return TEG_OK;
}

static enum teg_status macro_value(struct jctx *c, struct jscope *scope, const struct jnode *node, struct jv *out)
{
    struct jmacro *macro;
    JNEW(c, macro, 1);
    *macro = (struct jmacro){node, scope};
    *out = (struct jv){.kind = J_MACRO, .u.macro = macro};
    return TEG_OK;
}

static enum teg_status exec_call_block(struct jctx *c, struct jscope *scope, const struct jnode *node, struct jbuf *out)
{
    struct jv caller, callee, result;
    struct jcall call;
    TRY(macro_value(c, scope, node->b, &caller));
    TRY(teg_j_eval(c, scope, node->a->a, &callee));
    TRY(teg_j_eval_args(c, scope, &node->a->args, &caller, &call));
    TRY(teg_j_call(c, &callee, &call, &result));
    return teg_jv_put_str(c, out, &result);
}

/* ---- blocks whose text is a value ---- */

/* Runs the body apart and passes its text through the filters (node->b, whose innermost subject is NULL). */
static enum teg_status filter_text(struct jctx *c, struct jscope *scope, const struct jnode *filter, struct jv *text)
{
    struct jcall call;
    if (!filter)
        return TEG_OK;
    TRY(teg_j_enter(c));
    TRY(filter_text(c, scope, filter->a, text));
    TRY(teg_j_eval_args(c, scope, &filter->args, NULL, &call));
    c->line = filter->line;
    if (!filter->builtin)
        JUNSUPPORTED(c, "the filter %.*s is not supported", JSTR(filter->name));
    c->depth--;
    struct jv result;
    TRY(teg_j_call_builtin(c, filter->builtin, "filter", text, &call, &result));
    *text = result;
    return TEG_OK;
}

static enum teg_status exec_captured(struct jctx *c, struct jscope *scope, const struct jnode *node, struct jbuf *out,
                                     enum jflow *flow)
{
    struct jscope *inner;
    struct jbuf b = {0};
    TRY(scope_new(c, scope, &inner));
    TRY(teg_j_exec_body(c, inner, &node->list, &b, flow));
    if (*flow != J_FLOW_ON)
        return TEG_OK;
    struct jv text = teg_jv_of_buf(&b);
    TRY(filter_text(c, inner, node->b, &text));
    if (node->kind == N_SET_BLOCK)
        return teg_j_assign(c, scope, node->a, &text);
    return teg_jv_put_str(c, out, &text);
}

/* ---- the rest ---- */

static enum teg_status exec_if(struct jctx *c, struct jscope *scope, const struct jnode *node, struct jbuf *out,
                               enum jflow *flow)
{
    for (size_t i = 0; i + 1 < node->list.n; i += 2) {
        struct jv test;
        TRY(teg_j_eval(c, scope, node->list.items[i], &test));
        if (teg_jv_truth(&test))
            return teg_j_exec_body(c, scope, &node->list.items[i + 1]->list, out, flow);
    }
    return teg_j_exec_body(c, scope, &node->list2, out, flow);
}

static enum teg_status exec_with(struct jctx *c, struct jscope *scope, const struct jnode *node, struct jbuf *out,
                                 enum jflow *flow)
{
    struct jscope *inner;
    TRY(scope_new(c, scope, &inner));
    for (size_t i = 0; i + 1 < node->list2.n; i += 2) {
        struct jv value;
        TRY(teg_j_eval(c, scope, node->list2.items[i + 1], &value));
        TRY(teg_j_assign(c, inner, node->list2.items[i], &value));
    }
    return teg_j_exec_body(c, inner, &node->list, out, flow);
}

static enum teg_status exec_output(struct jctx *c, struct jscope *scope, const struct jnode *node, struct jbuf *out)
{
    for (size_t i = 0; i < node->list.n; i++) {
        struct jv value;
        TRY(teg_j_eval(c, scope, node->list.items[i], &value));
        TRY(teg_jv_put_str(c, out, &value));
    }
    return TEG_OK;
}

static enum teg_status exec_set(struct jctx *c, struct jscope *scope, const struct jnode *node)
{
    struct jv value;
    TRY(teg_j_eval(c, scope, node->b, &value));
    c->line = node->line;
    return teg_j_assign(c, scope, node->a, &value);
}

static enum teg_status exec(struct jctx *c, struct jscope *scope, const struct jnode *node, struct jbuf *out,
                            enum jflow *flow)
{
    struct jv value;
    TRY(teg_j_step(c, 0));
    c->line = node->line;
    switch (node->kind) {
    case N_DATA:
        return teg_j_put(c, out, node->name.p, node->name.n);
    case N_OUTPUT:
        return exec_output(c, scope, node, out);
    case N_FOR:
        return exec_for(c, scope, node, out, flow);
    case N_IF:
        return exec_if(c, scope, node, out, flow);
    case N_SET:
        return exec_set(c, scope, node);
    case N_SET_BLOCK:
    case N_FILTER_BLOCK:
        return exec_captured(c, scope, node, out, flow);
    case N_MACRO:
        TRY(macro_value(c, scope, node, &value));
        return teg_j_bind(c, scope, node->name, &value);
    case N_CALL_BLOCK:
        return exec_call_block(c, scope, node, out);
    case N_WITH:
        return exec_with(c, scope, node, out, flow);
    case N_BREAK:
    case N_CONTINUE:
        *flow = node->kind == N_BREAK ? J_FLOW_BREAK : J_FLOW_CONTINUE;
        return TEG_OK;
    default: /* N_BLOCK: {% generation %} */
        TRY(scope_new(c, scope, &scope));
        return teg_j_exec_body(c, scope, &node->list, out, flow);
    }
}
