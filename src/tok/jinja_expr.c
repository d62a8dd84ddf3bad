/* tok/jinja_expr.c: tokens to expression nodes.
 *
 * Recursive descent with the precedence of jinja2's parser, loosest first:
 *     a if b else c | or | and | not | == != < <= > >= in, not in | + - | ~ | * / // % | ** | unary - + | postfix,
 *     then filters and tests
 * `**` associates to the left here, as it does there. Depth is counted twice: by recursion while parsing and by the
 * height of the finished tree (a.b.c.d… grows without recursion), so that no later walk can overflow the stack. */
#include "tok/jinja_int.h"

#include <string.h>

enum teg_status teg_j_node(struct jparser *p, enum jnode_kind kind, unsigned line, struct jnode **out)
{
    JNEW(p->c, *out, 1);
    **out = (struct jnode){.kind = (uint8_t)kind, .line = line, .depth = 1};
    return TEG_OK;
}

enum teg_status teg_j_adopt(struct jparser *p, struct jnode *parent, const struct jnode *child)
{
    if (child && child->depth >= parent->depth)
        parent->depth = (uint16_t)(child->depth + 1);
    if (parent->depth > TEG_J_MAX_NESTING) {
        p->c->line = parent->line;
        JUNSUPPORTED(p->c, "expected a nesting of at most %d, found more", TEG_J_MAX_NESTING);
    }
    return TEG_OK;
}

enum teg_status teg_j_push(struct jparser *p, struct jnodes *list, size_t *capacity, struct jnode *node)
{
    if (list->n == *capacity) {
        struct jnode **items;
        const size_t n = *capacity ? 2 * *capacity : 4;
        JNEW(p->c, items, n);
        if (list->n)
            memcpy(items, list->items, list->n * sizeof *items);
        list->items = items;
        *capacity = n;
    }
    list->items[list->n++] = node;
    return TEG_OK;
}

bool teg_j_at_name(const struct jparser *p, const char *name)
{
    return p->at->type == T_NAME && teg_jstr_is(p->at->text, name);
}

bool teg_j_skip_name(struct jparser *p, const char *name)
{
    if (!teg_j_at_name(p, name))
        return false;
    p->at++;
    return true;
}

bool teg_j_at_op(const struct jparser *p, enum jop op)
{
    return p->at->type == T_OPERATOR && p->at->op == op;
}

bool teg_j_skip_op(struct jparser *p, enum jop op)
{
    if (!teg_j_at_op(p, op))
        return false;
    p->at++;
    return true;
}

enum teg_status teg_j_unexpected(struct jparser *p, const char *expected)
{
    static const char *const names[] = {
        [T_EOF] = "the end of the template",
        [T_DATA] = "text",
        [T_BLOCK_BEGIN] = "{%",
        [T_BLOCK_END] = "%}",
        [T_VAR_BEGIN] = "{{",
        [T_VAR_END] = "}}",
        [T_STRING] = "a string",
        [T_INTEGER] = "a number",
        [T_FLOAT] = "a number",
    };
    const struct jtoken *const t = p->at;
    p->c->line = t->line;
    if (t->type == T_NAME)
        return teg_j_fail(p->c, TEG_ERR_FORMAT, "expected %s, found the name %.*s", expected, JSTR(t->text));
    return teg_j_fail(p->c, TEG_ERR_FORMAT, "expected %s, found %s", expected,
                      t->type == T_OPERATOR ? teg_j_op_text[t->op] : names[t->type]);
}

enum teg_status teg_j_expect_op(struct jparser *p, enum jop op)
{
    return teg_j_skip_op(p, op) ? TEG_OK : teg_j_unexpected(p, teg_j_op_text[op]);
}

enum teg_status teg_j_expect_name(struct jparser *p, struct jstr *name)
{
    if (p->at->type != T_NAME)
        return teg_j_unexpected(p, "a name");
    *name = p->at++->text;
    return TEG_OK;
}

static enum teg_status parse_or(struct jparser *p, struct jnode **out);
static enum teg_status parse_unary(struct jparser *p, bool with_filter, struct jnode **out);
static enum teg_status parse_primary(struct jparser *p, unsigned flags, struct jnode **out);
static enum teg_status parse_postfix(struct jparser *p, struct jnode *node, struct jnode **out);

static enum teg_status make_pair(struct jparser *p, enum jnode_kind kind, unsigned line, struct jnode *a,
                                 struct jnode *b, struct jnode **out)
{
    struct jnode *node;
    TRY(teg_j_node(p, kind, line, &node));
    node->a = a;
    node->b = b;
    TRY(teg_j_adopt(p, node, a));
    TRY(teg_j_adopt(p, node, b));
    *out = node;
    return TEG_OK;
}

/* ---- primary expressions ---- */

static enum teg_status parse_name(struct jparser *p, unsigned flags, struct jnode **out)
{
    const struct jtoken *const t = p->at++;
    struct jnode *node;
    TRY(teg_j_node(p, N_CONST, t->line, &node));
    *out = node;
    if (teg_jstr_is(t->text, "true") || teg_jstr_is(t->text, "True")) {
        node->value = teg_jv_bool(true);
    } else if (teg_jstr_is(t->text, "false") || teg_jstr_is(t->text, "False")) {
        node->value = teg_jv_bool(false);
    } else if (teg_jstr_is(t->text, "none") || teg_jstr_is(t->text, "None")) {
        node->value = teg_jv_none();
    } else {
        node->kind = N_NAME;
        node->name = t->text;
        if (flags & J_TARGET) {
            if (!(flags & J_WITH_NS) || !teg_j_skip_op(p, OP_DOT))
                return TEG_OK;
            node->kind = N_NSREF;
            return teg_j_expect_name(p, &node->name2);
        }
        p->uses |= teg_jstr_is(t->text, "caller")    ? J_USES_CALLER
                   : teg_jstr_is(t->text, "kwargs")  ? J_USES_KWARGS
                   : teg_jstr_is(t->text, "varargs") ? J_USES_VARARGS
                                                     : 0u;
    }
    return TEG_OK;
}

static enum teg_status parse_string(struct jparser *p, struct jnode **out)
{
    TRY(teg_j_node(p, N_CONST, p->at->line, out));
    struct jstr s = p->at++->text;
    if (p->at->type == T_STRING) { /* adjacent strings are one */
        struct jbuf b = {0};
        TRY(teg_j_put(p->c, &b, s.p, s.n));
        for (; p->at->type == T_STRING; p->at++)
            TRY(teg_j_put(p->c, &b, p->at->text.p, p->at->text.n));
        s = (struct jstr){b.p ? b.p : "", b.n};
    }
    (*out)->value = teg_jv_str(s.p, s.n);
    return TEG_OK;
}

/* [a, b] and {k: v, …}: `close` ends it, a trailing comma may stand. */
static enum teg_status parse_items(struct jparser *p, enum jnode_kind kind, enum jop close, struct jnode **out)
{
    struct jnode *node;
    size_t capacity = 0;
    TRY(teg_j_node(p, kind, p->at++->line, &node));
    while (!teg_j_at_op(p, close)) {
        if (node->list.n)
            TRY(teg_j_expect_op(p, OP_COMMA));
        if (teg_j_at_op(p, close))
            break;
        for (int part = 0; part < (kind == N_DICT ? 2 : 1); part++) {
            struct jnode *item;
            if (part)
                TRY(teg_j_expect_op(p, OP_COLON));
            TRY(teg_j_parse_expr(p, &item));
            TRY(teg_j_push(p, &node->list, &capacity, item));
            TRY(teg_j_adopt(p, node, item));
        }
    }
    p->at++;
    *out = node;
    return TEG_OK;
}

static enum teg_status parse_primary(struct jparser *p, unsigned flags, struct jnode **out)
{
    switch (p->at->type) {
    case T_NAME:
        return parse_name(p, flags, out);
    case T_STRING:
        return parse_string(p, out);
    case T_INTEGER:
    case T_FLOAT:
        TRY(teg_j_node(p, N_CONST, p->at->line, out));
        (*out)->value = p->at++->value;
        return TEG_OK;
    default:
        break;
    }
    if (teg_j_skip_op(p, OP_LPAREN)) {
        TRY(teg_j_parse_tuple(p, J_PARENTHESES, NULL, out));
        return teg_j_expect_op(p, OP_RPAREN);
    }
    if (teg_j_at_op(p, OP_LBRACKET))
        return parse_items(p, N_LIST, OP_RBRACKET, out);
    if (teg_j_at_op(p, OP_LBRACE))
        return parse_items(p, N_DICT, OP_RBRACE, out);
    return teg_j_unexpected(p, "an expression");
}

static bool at_tuple_end(const struct jparser *p, const char *end_name)
{
    return p->at->type == T_VAR_END || p->at->type == T_BLOCK_END || teg_j_at_op(p, OP_RPAREN) ||
           (end_name && teg_j_at_name(p, end_name));
}

enum teg_status teg_j_parse_tuple(struct jparser *p, unsigned flags, const char *end_name, struct jnode **out)
{
    struct jnode *node;
    size_t capacity = 0;
    bool comma = false;
    TRY(teg_j_node(p, N_TUPLE, p->at->line, &node));
    while (!at_tuple_end(p, end_name)) {
        struct jnode *item;
        if (flags & J_TARGET)
            TRY(parse_primary(p, flags, &item));
        else if (flags & J_NO_COND)
            TRY(parse_or(p, &item));
        else
            TRY(teg_j_parse_expr(p, &item));
        TRY(teg_j_push(p, &node->list, &capacity, item));
        TRY(teg_j_adopt(p, node, item));
        if (!teg_j_skip_op(p, OP_COMMA))
            break;
        comma = true;
    }
    if (!comma && node->list.n == 1)
        node = node->list.items[0];
    else if (!comma && !(flags & J_PARENTHESES))
        return teg_j_unexpected(p, "an expression");
    *out = node;
    return TEG_OK;
}

/* ---- calls, filters, tests ---- */

static enum teg_status push_keyword(struct jparser *p, struct jargs *args, size_t *capacity, struct jkeyword kw)
{
    for (size_t i = 0; i < args->n_kw; i++)
        if (teg_jstr_eq(args->kw[i].name, kw.name))
            return teg_j_fail(p->c, TEG_ERR_FORMAT, "expected the argument %.*s once, found it twice", JSTR(kw.name));
    if (args->n_kw == *capacity) {
        struct jkeyword *items;
        const size_t n = *capacity ? 2 * *capacity : 4;
        JNEW(p->c, items, n);
        if (args->n_kw)
            memcpy(items, args->kw, args->n_kw * sizeof *items);
        args->kw = items;
        *capacity = n;
    }
    args->kw[args->n_kw++] = kw;
    return TEG_OK;
}

/* One argument: value, name=value, *value, **value. */
static enum teg_status parse_arg(struct jparser *p, struct jnode *owner, size_t capacity[2])
{
    struct jargs *const args = &owner->args;
    struct jkeyword kw = {.name = {0}};
    const bool star = teg_j_skip_op(p, OP_MUL), star_star = !star && teg_j_skip_op(p, OP_POW);
    const bool keyword =
        !star && !star_star && p->at->type == T_NAME && p->at[1].type == T_OPERATOR && p->at[1].op == OP_ASSIGN;
    if (args->star_star || (star && args->star) || (!star && !star_star && !keyword && (args->star || args->n_kw)))
        return teg_j_unexpected(p, "arguments in the order value, name=value, *values, **names");
    if (keyword) {
        kw.name = p->at->text;
        p->at += 2;
    }
    TRY(teg_j_parse_expr(p, &kw.value));
    TRY(teg_j_adopt(p, owner, kw.value));
    if (star)
        args->star = kw.value;
    else if (star_star)
        args->star_star = kw.value;
    else if (keyword)
        return push_keyword(p, args, &capacity[1], kw);
    else
        return teg_j_push(p, &args->pos, &capacity[0], kw.value);
    return TEG_OK;
}

static enum teg_status parse_args(struct jparser *p, struct jnode *owner)
{
    size_t capacity[2] = {0, 0};
    TRY(teg_j_expect_op(p, OP_LPAREN));
    for (bool first = true; !teg_j_at_op(p, OP_RPAREN); first = false) {
        if (!first) {
            TRY(teg_j_expect_op(p, OP_COMMA));
            if (teg_j_at_op(p, OP_RPAREN))
                break;
        }
        TRY(parse_arg(p, owner, capacity));
    }
    p->at++;
    return TEG_OK;
}

/* A filter's or test's name, with dots as jinja2 allows; unknown ones are refused here unless inside a condition. */
static enum teg_status parse_builtin_name(struct jparser *p, struct jnode *node, const char *what)
{
    TRY(teg_j_expect_name(p, &node->name));
    if (teg_j_at_op(p, OP_DOT)) {
        p->c->line = node->line;
        JUNSUPPORTED(p->c, "the %s %.*s.… is not supported", what, JSTR(node->name));
    }
    node->builtin = node->kind == N_FILTER ? teg_j_filter(node->name) : teg_j_builtin(teg_j_tests, node->name);
    if (!node->builtin && !p->soft) {
        p->c->line = node->line;
        JUNSUPPORTED(p->c, "the %s %.*s is not supported", what, JSTR(node->name));
    }
    return TEG_OK;
}

enum teg_status teg_j_parse_filters(struct jparser *p, struct jnode *node, bool start_inline, struct jnode **out)
{
    while (start_inline || teg_j_at_op(p, OP_PIPE)) {
        if (!start_inline)
            p->at++;
        start_inline = false;
        struct jnode *filter;
        TRY(teg_j_node(p, N_FILTER, p->at->line, &filter));
        TRY(parse_builtin_name(p, filter, "filter"));
        if (teg_j_at_op(p, OP_LPAREN))
            TRY(parse_args(p, filter));
        filter->a = node;
        TRY(teg_j_adopt(p, filter, node));
        node = filter;
    }
    *out = node;
    return TEG_OK;
}

static bool starts_test_arg(const struct jparser *p)
{
    if (p->at->type == T_NAME)
        return !teg_j_at_name(p, "else") && !teg_j_at_name(p, "or") && !teg_j_at_name(p, "and");
    return p->at->type == T_STRING || p->at->type == T_INTEGER || p->at->type == T_FLOAT ||
           teg_j_at_op(p, OP_LBRACKET) || teg_j_at_op(p, OP_LBRACE);
}

static enum teg_status parse_test(struct jparser *p, struct jnode *subject, struct jnode **out)
{
    const unsigned line = p->at++->line;
    const bool negated = teg_j_skip_name(p, "not");
    struct jnode *node;
    TRY(teg_j_node(p, N_TEST, line, &node));
    TRY(parse_builtin_name(p, node, "test"));
    node->a = subject;
    TRY(teg_j_adopt(p, node, subject));
    if (teg_j_at_op(p, OP_LPAREN)) {
        TRY(parse_args(p, node));
    } else if (starts_test_arg(p)) {
        if (teg_j_at_name(p, "is"))
            return teg_j_unexpected(p, "one test (write `a is x and a is y`)");
        struct jnode *arg;
        size_t capacity = 0;
        TRY(parse_primary(p, 0, &arg));
        TRY(parse_postfix(p, arg, &arg));
        TRY(teg_j_push(p, &node->args.pos, &capacity, arg));
        TRY(teg_j_adopt(p, node, arg));
    }
    *out = node;
    return negated ? make_pair(p, N_NOT, line, node, NULL, out) : TEG_OK;
}

static enum teg_status parse_call(struct jparser *p, struct jnode *callee, struct jnode **out)
{
    struct jnode *node;
    TRY(teg_j_node(p, N_CALL, p->at->line, &node));
    node->a = callee;
    TRY(teg_j_adopt(p, node, callee));
    TRY(parse_args(p, node));
    *out = node;
    return TEG_OK;
}

/* ---- postfix: a.b, a[b], a[b:c:d], a(…) ---- */

static enum teg_status parse_slice_part(struct jparser *p, struct jnode *slice, struct jnode **part)
{
    if (teg_j_at_op(p, OP_COLON) || teg_j_at_op(p, OP_RBRACKET) || teg_j_at_op(p, OP_COMMA))
        return TEG_OK;
    TRY(teg_j_parse_expr(p, part));
    return teg_j_adopt(p, slice, *part);
}

static enum teg_status parse_subscribed(struct jparser *p, struct jnode **out)
{
    struct jnode *slice, *first = NULL;
    TRY(teg_j_node(p, N_SLICE, p->at->line, &slice));
    TRY(parse_slice_part(p, slice, &first));
    if (!teg_j_skip_op(p, OP_COLON)) {
        *out = first;
        return first ? TEG_OK : teg_j_unexpected(p, "an index");
    }
    slice->a = first;
    TRY(parse_slice_part(p, slice, &slice->b));
    if (teg_j_skip_op(p, OP_COLON))
        TRY(parse_slice_part(p, slice, &slice->c));
    *out = slice;
    return TEG_OK;
}

static enum teg_status parse_subscript(struct jparser *p, struct jnode *node, struct jnode **out)
{
    const unsigned line = p->at->line;
    struct jnode *key;
    if (teg_j_skip_op(p, OP_DOT)) {
        if (p->at->type == T_NAME) {
            TRY(make_pair(p, N_ATTR, line, node, NULL, out));
            return teg_j_expect_name(p, &(*out)->name);
        }
        if (p->at->type != T_INTEGER)
            return teg_j_unexpected(p, "a name or a number after the dot");
        TRY(parse_primary(p, 0, &key));
        return make_pair(p, N_ITEM, line, node, key, out);
    }
    p->at++;
    TRY(parse_subscribed(p, &key));
    if (teg_j_at_op(p, OP_COMMA)) {
        p->c->line = line;
        JUNSUPPORTED(p->c, "a subscript with several indices is not supported");
    }
    TRY(teg_j_expect_op(p, OP_RBRACKET));
    return make_pair(p, N_ITEM, line, node, key, out);
}

static enum teg_status parse_postfix(struct jparser *p, struct jnode *node, struct jnode **out)
{
    for (;;) {
        if (teg_j_at_op(p, OP_DOT) || teg_j_at_op(p, OP_LBRACKET))
            TRY(parse_subscript(p, node, &node));
        else if (teg_j_at_op(p, OP_LPAREN))
            TRY(parse_call(p, node, &node));
        else
            break;
    }
    *out = node;
    return TEG_OK;
}

static enum teg_status parse_filter_expr(struct jparser *p, struct jnode *node, struct jnode **out)
{
    for (;;) {
        if (teg_j_at_op(p, OP_PIPE))
            TRY(teg_j_parse_filters(p, node, false, &node));
        else if (teg_j_at_name(p, "is"))
            TRY(parse_test(p, node, &node));
        else if (teg_j_at_op(p, OP_LPAREN))
            TRY(parse_call(p, node, &node));
        else
            break;
    }
    *out = node;
    return TEG_OK;
}

/* ---- operators ---- */

static enum teg_status parse_unary(struct jparser *p, bool with_filter, struct jnode **out)
{
    const struct jtoken *const t = p->at;
    struct jnode *node;
    TRY(teg_j_enter(p->c));
    if (teg_j_skip_op(p, OP_SUB) || teg_j_skip_op(p, OP_ADD)) {
        TRY(parse_unary(p, false, &node));
        TRY(make_pair(p, N_UNARY, t->line, node, NULL, &node));
        node->op = t->op;
    } else {
        TRY(parse_primary(p, 0, &node));
    }
    TRY(parse_postfix(p, node, &node));
    if (with_filter)
        TRY(parse_filter_expr(p, node, &node));
    p->c->depth--;
    *out = node;
    return TEG_OK;
}

/* A chain of left-associative operators from `ops` (a 0-ended list) over the next tighter level. */
typedef enum teg_status (*level_fn)(struct jparser *p, struct jnode **out);

static enum teg_status parse_chain(struct jparser *p, const uint8_t *ops, level_fn next, struct jnode **out)
{
    struct jnode *left, *right;
    TRY(next(p, &left));
    while (p->at->type == T_OPERATOR && strchr((const char *)ops, p->at->op)) {
        const struct jtoken *const t = p->at++;
        TRY(next(p, &right));
        TRY(make_pair(p, N_BINARY, t->line, left, right, &left));
        left->op = t->op;
    }
    *out = left;
    return TEG_OK;
}

static enum teg_status parse_operand(struct jparser *p, struct jnode **out)
{
    return parse_unary(p, true, out);
}

static enum teg_status parse_pow(struct jparser *p, struct jnode **out)
{
    static const uint8_t ops[] = {OP_POW, 0};
    return parse_chain(p, ops, parse_operand, out);
}

static enum teg_status parse_product(struct jparser *p, struct jnode **out)
{
    static const uint8_t ops[] = {OP_MUL, OP_DIV, OP_FLOORDIV, OP_MOD, 0};
    return parse_chain(p, ops, parse_pow, out);
}

static enum teg_status parse_concat(struct jparser *p, struct jnode **out)
{
    struct jnode *item, *node;
    size_t capacity = 0;
    TRY(parse_product(p, out));
    if (!teg_j_at_op(p, OP_TILDE))
        return TEG_OK;
    item = *out;
    TRY(teg_j_node(p, N_CONCAT, item->line, &node));
    TRY(teg_j_push(p, &node->list, &capacity, item));
    TRY(teg_j_adopt(p, node, item));
    while (teg_j_skip_op(p, OP_TILDE)) {
        TRY(parse_product(p, &item));
        TRY(teg_j_push(p, &node->list, &capacity, item));
        TRY(teg_j_adopt(p, node, item));
    }
    *out = node;
    return TEG_OK;
}

static enum teg_status parse_sum(struct jparser *p, struct jnode **out)
{
    static const uint8_t ops[] = {OP_ADD, OP_SUB, 0};
    return parse_chain(p, ops, parse_concat, out);
}

/* The comparison at the cursor, skipped; OP_NONE when there is none. */
static enum jop skip_comparison(struct jparser *p)
{
    static const uint8_t ops[] = {OP_EQ, OP_NE, OP_GE, OP_LE, OP_GT, OP_LT, 0};
    if (p->at->type == T_OPERATOR && strchr((const char *)ops, p->at->op))
        return (enum jop)p->at++->op;
    if (teg_j_skip_name(p, "in"))
        return OP_IN;
    if (teg_j_at_name(p, "not") && p->at[1].type == T_NAME && teg_jstr_is(p->at[1].text, "in")) {
        p->at += 2;
        return OP_NOT_IN;
    }
    return OP_NONE;
}

static enum teg_status parse_compare(struct jparser *p, struct jnode **out)
{
    struct jnode *first, *node = NULL, *item;
    size_t capacity = 0, ops_capacity = 0;
    TRY(parse_sum(p, &first));
    *out = first;
    for (enum jop op; (op = skip_comparison(p)) != OP_NONE;) {
        if (!node) {
            TRY(make_pair(p, N_COMPARE, first->line, first, NULL, &node));
            *out = node;
        }
        TRY(parse_sum(p, &item));
        TRY(teg_j_push(p, &node->list, &capacity, item));
        TRY(teg_j_adopt(p, node, item));
        if (ops_capacity < capacity) { /* ops grow with the list */
            uint8_t *ops;
            JNEW(p->c, ops, capacity);
            if (node->ops)
                memcpy(ops, node->ops, ops_capacity);
            node->ops = ops;
            ops_capacity = capacity;
        }
        node->ops[node->list.n - 1] = (uint8_t)op;
    }
    return TEG_OK;
}

static enum teg_status parse_not(struct jparser *p, struct jnode **out)
{
    const unsigned line = p->at->line;
    if (!teg_j_skip_name(p, "not"))
        return parse_compare(p, out);
    TRY(teg_j_enter(p->c));
    TRY(parse_not(p, out));
    p->c->depth--;
    return make_pair(p, N_NOT, line, *out, NULL, out);
}

static enum teg_status parse_and(struct jparser *p, struct jnode **out)
{
    struct jnode *right;
    TRY(parse_not(p, out));
    for (unsigned line = p->at->line; teg_j_skip_name(p, "and"); line = p->at->line) {
        TRY(parse_not(p, &right));
        TRY(make_pair(p, N_AND, line, *out, right, out));
    }
    return TEG_OK;
}

static enum teg_status parse_or(struct jparser *p, struct jnode **out)
{
    struct jnode *right;
    TRY(parse_and(p, out));
    for (unsigned line = p->at->line; teg_j_skip_name(p, "or"); line = p->at->line) {
        TRY(parse_and(p, &right));
        TRY(make_pair(p, N_OR, line, *out, right, out));
    }
    return TEG_OK;
}

/* True when an `if` follows at this bracket level: the expression is conditional, so its filters may be unknown. */
static bool is_conditional(const struct jparser *p)
{
    int depth = 0;
    for (const struct jtoken *t = p->at; t->type >= T_NAME; t++) {
        if (t->type == T_NAME && depth == 0 && teg_jstr_is(t->text, "if"))
            return true;
        if (t->type != T_OPERATOR)
            continue;
        depth += t->op == OP_LPAREN || t->op == OP_LBRACKET || t->op == OP_LBRACE;
        depth -= t->op == OP_RPAREN || t->op == OP_RBRACKET || t->op == OP_RBRACE;
        if (depth < 0 || (depth == 0 && t->op == OP_COMMA))
            break;
    }
    return false;
}

enum teg_status teg_j_parse_expr(struct jparser *p, struct jnode **out)
{
    const bool soft = !p->soft && is_conditional(p);
    struct jnode *node, *test;
    TRY(teg_j_enter(p->c));
    p->soft += soft;
    TRY(parse_or(p, &node));
    for (unsigned line = p->at->line; teg_j_skip_name(p, "if"); line = p->at->line) {
        TRY(parse_or(p, &test));
        TRY(make_pair(p, N_COND, line, test, node, &node));
        if (teg_j_skip_name(p, "else")) {
            TRY(teg_j_parse_expr(p, &node->c));
            TRY(teg_j_adopt(p, node, node->c));
        }
    }
    p->soft -= soft;
    p->c->depth--;
    *out = node;
    return TEG_OK;
}
