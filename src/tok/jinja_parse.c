/* tok/jinja_parse.c: tokens to statement nodes.
 *
 * A body is parsed until one of its closing tags stands at the cursor; the caller consumes it, so a closing tag is
 * only ever accepted by the statement it belongs to. Tags that need other templates (import, include, extends, block)
 * are refused by name. */
#include "tok/jinja_int.h"

#include <string.h>

static enum teg_status parse_body(struct jparser *p, const char *const *ends, struct jnodes *body, struct jnode *owner);

static enum teg_status block_end(struct jparser *p)
{
    if (p->at->type != T_BLOCK_END)
        return teg_j_unexpected(p, "%}");
    p->at++;
    return TEG_OK;
}

/* The body after a tag's head, up to and including one of the `ends` (a NULL-ended list), whose name is skipped. */
static enum teg_status parse_block(struct jparser *p, const char *const *ends, struct jnodes *body, struct jnode *owner,
                                   struct jstr *end)
{
    (void)teg_j_skip_op(p, OP_COLON);
    TRY(block_end(p));
    TRY(parse_body(p, ends, body, owner));
    if (p->at->type == T_EOF) {
        p->c->line = owner->line;
        return teg_j_fail(p->c, TEG_ERR_FORMAT, "expected {%% %s %%} to end this block, found the end of the template",
                          ends[0]);
    }
    *end = p->at++->text;
    return TEG_OK;
}

static enum teg_status check_target(struct jparser *p, const struct jnode *target)
{
    if (target->kind == N_TUPLE) {
        for (size_t i = 0; i < target->list.n; i++)
            TRY(check_target(p, target->list.items[i]));
        return TEG_OK;
    }
    p->c->line = target->line;
    if (target->kind != N_NAME && target->kind != N_NSREF)
        return teg_j_fail(p->c, TEG_ERR_FORMAT, "expected a name to assign to, found an expression");
    if (p->for_depth && target->kind == N_NAME && teg_jstr_is(target->name, "loop"))
        return teg_j_fail(p->c, TEG_ERR_FORMAT, "expected another name than loop inside a for loop");
    return TEG_OK;
}

static enum teg_status parse_target(struct jparser *p, unsigned flags, const char *end_name, struct jnode **out)
{
    TRY(teg_j_parse_tuple(p, J_TARGET | flags, end_name, out));
    return check_target(p, *out);
}

static enum teg_status parse_for(struct jparser *p, struct jnode **out)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    const unsigned soft = p->soft;
    struct jnode *node;
    struct jstr end;
    TRY(teg_j_node(p, N_FOR, p->at++->line, &node));
    p->for_depth++;
    TRY(parse_target(p, 0, "in", &node->a));
    if (!teg_j_skip_name(p, "in"))
        return teg_j_unexpected(p, "in");
    TRY(teg_j_parse_tuple(p, J_NO_COND, "recursive", &node->b));
    if (teg_j_skip_name(p, "if"))
        TRY(teg_j_parse_expr(p, &node->c));
    if (teg_j_at_name(p, "recursive")) {
        p->c->line = node->line;
        JUNSUPPORTED(p->c, "a recursive for loop is not supported");
    }
    p->soft = 0;
    p->loop_depth++;
    TRY(parse_block(p, ends, &node->list, node, &end));
    p->loop_depth--;
    if (teg_jstr_is(end, "else")) {
        static const char *const last[] = {"endfor", NULL};
        TRY(parse_block(p, last, &node->list2, node, &end));
    }
    p->for_depth--;
    p->soft = soft;
    TRY(teg_j_adopt(p, node, node->a));
    TRY(teg_j_adopt(p, node, node->b));
    TRY(teg_j_adopt(p, node, node->c));
    *out = node;
    return TEG_OK;
}

/* if … elif … else: list holds (test, body) pairs. */
static enum teg_status parse_if(struct jparser *p, struct jnode **out)
{
    static const char *const ends[] = {"endif", "else", "elif", NULL};
    static const char *const last[] = {"endif", NULL};
    struct jnode *node, *test, *body;
    struct jstr end;
    size_t capacity = 0;
    TRY(teg_j_node(p, N_IF, p->at++->line, &node));
    p->soft++;
    do {
        TRY(teg_j_node(p, N_BLOCK, p->at->line, &body));
        TRY(teg_j_parse_tuple(p, J_NO_COND, NULL, &test));
        TRY(parse_block(p, ends, &body->list, body, &end));
        TRY(teg_j_push(p, &node->list, &capacity, test));
        TRY(teg_j_push(p, &node->list, &capacity, body));
        TRY(teg_j_adopt(p, node, test));
        TRY(teg_j_adopt(p, node, body));
    } while (teg_jstr_is(end, "elif"));
    if (teg_jstr_is(end, "else"))
        TRY(parse_block(p, last, &node->list2, node, &end));
    p->soft--;
    *out = node;
    return TEG_OK;
}

/* Parses the body of a statement that opens a function-like frame of its own. */
static enum teg_status parse_frame(struct jparser *p, const char *end_name, struct jnode *node)
{
    const char *const ends[] = {end_name, NULL};
    const unsigned soft = p->soft, loop_depth = p->loop_depth;
    struct jstr end;
    p->soft = 0;
    p->loop_depth = 0;
    TRY(parse_block(p, ends, &node->list, node, &end));
    p->soft = soft;
    p->loop_depth = loop_depth;
    return TEG_OK;
}

static enum teg_status parse_set(struct jparser *p, struct jnode **out)
{
    struct jnode *node;
    TRY(teg_j_node(p, N_SET, p->at++->line, &node));
    *out = node;
    TRY(parse_target(p, J_WITH_NS, NULL, &node->a));
    if (teg_j_skip_op(p, OP_ASSIGN)) {
        TRY(teg_j_parse_tuple(p, 0, NULL, &node->b));
        return teg_j_adopt(p, node, node->b);
    }
    node->kind = N_SET_BLOCK;
    TRY(teg_j_parse_filters(p, NULL, false, &node->b));
    TRY(teg_j_adopt(p, node, node->b));
    static const char *const ends[] = {"endset", NULL};
    struct jstr end;
    const unsigned soft = p->soft;
    p->soft = 0;
    TRY(parse_block(p, ends, &node->list, node, &end));
    p->soft = soft;
    return TEG_OK;
}

/* (a, b=1): the names become list, their defaults list2 (NULL where there is none). */
static enum teg_status parse_signature(struct jparser *p, struct jnode *node)
{
    size_t capacity[2] = {0, 0};
    TRY(teg_j_expect_op(p, OP_LPAREN));
    for (bool defaults = false; !teg_j_at_op(p, OP_RPAREN);) {
        struct jnode *name, *value = NULL;
        if (node->list2.n)
            TRY(teg_j_expect_op(p, OP_COMMA));
        TRY(teg_j_node(p, N_NAME, p->at->line, &name));
        TRY(teg_j_expect_name(p, &name->name));
        TRY(check_target(p, name));
        if (teg_j_skip_op(p, OP_ASSIGN)) {
            TRY(teg_j_parse_expr(p, &value));
            TRY(teg_j_adopt(p, node, value));
            defaults = true;
        } else if (defaults) {
            return teg_j_unexpected(p, "= and a default value, as the parameter before has one");
        }
        for (size_t i = 0; i < node->args.pos.n; i++)
            if (teg_jstr_eq(node->args.pos.items[i]->name, name->name))
                return teg_j_fail(p->c, TEG_ERR_FORMAT, "expected each parameter once, found %.*s twice",
                                  JSTR(name->name));
        TRY(teg_j_push(p, &node->args.pos, &capacity[0], name));
        TRY(teg_j_push(p, &node->list2, &capacity[1], value));
    }
    p->at++;
    return TEG_OK;
}

/* A macro, or the body of a call block: parameters in args.pos and list2, body in list. */
static enum teg_status parse_macro_rest(struct jparser *p, struct jnode *node, const char *end_name)
{
    const unsigned uses = p->uses;
    p->uses = 0;
    TRY(parse_frame(p, end_name, node));
    node->uses = (uint8_t)p->uses;
    p->uses |= uses;
    return TEG_OK;
}

static enum teg_status parse_macro(struct jparser *p, struct jnode **out)
{
    TRY(teg_j_node(p, N_MACRO, p->at++->line, out));
    TRY(teg_j_expect_name(p, &(*out)->name));
    TRY(parse_signature(p, *out));
    return parse_macro_rest(p, *out, "endmacro");
}

static enum teg_status parse_call_block(struct jparser *p, struct jnode **out)
{
    struct jnode *node, *macro;
    TRY(teg_j_node(p, N_CALL_BLOCK, p->at->line, &node));
    TRY(teg_j_node(p, N_MACRO, p->at++->line, &macro));
    macro->name = (struct jstr){"caller", 6};
    if (teg_j_at_op(p, OP_LPAREN))
        TRY(parse_signature(p, macro));
    TRY(teg_j_parse_expr(p, &node->a));
    if (node->a->kind != N_CALL) {
        p->c->line = node->line;
        return teg_j_fail(p->c, TEG_ERR_FORMAT, "expected a call such as {%% call name() %%}, found an expression");
    }
    TRY(parse_macro_rest(p, macro, "endcall"));
    node->b = macro;
    TRY(teg_j_adopt(p, node, node->a));
    TRY(teg_j_adopt(p, node, node->b));
    *out = node;
    return TEG_OK;
}

static enum teg_status parse_filter_block(struct jparser *p, struct jnode **out)
{
    struct jnode *node;
    struct jstr end;
    static const char *const ends[] = {"endfilter", NULL};
    TRY(teg_j_node(p, N_FILTER_BLOCK, p->at++->line, &node));
    const unsigned soft = p->soft;
    p->soft = 0;
    TRY(teg_j_parse_filters(p, NULL, true, &node->b));
    TRY(parse_block(p, ends, &node->list, node, &end));
    p->soft = soft;
    TRY(teg_j_adopt(p, node, node->b));
    *out = node;
    return TEG_OK;
}

static enum teg_status parse_with(struct jparser *p, struct jnode **out)
{
    struct jnode *node;
    struct jstr end;
    static const char *const ends[] = {"endwith", NULL};
    size_t capacity = 0;
    TRY(teg_j_node(p, N_WITH, p->at++->line, &node));
    while (p->at->type != T_BLOCK_END) {
        struct jnode *target, *value;
        if (node->list2.n)
            TRY(teg_j_expect_op(p, OP_COMMA));
        TRY(parse_target(p, 0, NULL, &target));
        TRY(teg_j_expect_op(p, OP_ASSIGN));
        TRY(teg_j_parse_expr(p, &value));
        TRY(teg_j_push(p, &node->list2, &capacity, target));
        TRY(teg_j_push(p, &node->list2, &capacity, value));
        TRY(teg_j_adopt(p, node, value));
    }
    const unsigned soft = p->soft;
    p->soft = 0;
    TRY(parse_block(p, ends, &node->list, node, &end));
    p->soft = soft;
    *out = node;
    return TEG_OK;
}

static enum teg_status parse_print(struct jparser *p, struct jnode **out)
{
    struct jnode *node, *item;
    size_t capacity = 0;
    TRY(teg_j_node(p, N_OUTPUT, p->at++->line, &node));
    while (p->at->type != T_BLOCK_END) {
        if (node->list.n)
            TRY(teg_j_expect_op(p, OP_COMMA));
        TRY(teg_j_parse_expr(p, &item));
        TRY(teg_j_push(p, &node->list, &capacity, item));
        TRY(teg_j_adopt(p, node, item));
    }
    *out = node;
    return TEG_OK;
}

/* transformers' tag around what the assistant says: transparent in text, but a frame of its own. */
static enum teg_status parse_generation(struct jparser *p, struct jnode **out)
{
    TRY(teg_j_node(p, N_BLOCK, p->at++->line, out));
    (*out)->scoped = true;
    return parse_frame(p, "endgeneration", *out);
}

static enum teg_status parse_jump(struct jparser *p, struct jnode **out)
{
    const bool is_break = teg_j_at_name(p, "break");
    p->c->line = p->at->line;
    if (!p->loop_depth)
        return teg_j_fail(p->c, TEG_ERR_FORMAT, "expected %s inside a for loop, found it outside",
                          is_break ? "break" : "continue");
    return teg_j_node(p, is_break ? N_BREAK : N_CONTINUE, p->at++->line, out);
}

static const struct {
    const char *name;
    enum teg_status (*parse)(struct jparser *p, struct jnode **out); /* NULL: jinja2 has it, we do not */
} statements[] = {
    {"for", parse_for},
    {"if", parse_if},
    {"set", parse_set},
    {"macro", parse_macro},
    {"call", parse_call_block},
    {"filter", parse_filter_block},
    {"with", parse_with},
    {"print", parse_print},
    {"break", parse_jump},
    {"continue", parse_jump},
    {"generation", parse_generation},
    {"import", NULL},
    {"from", NULL},
    {"include", NULL},
    {"extends", NULL},
    {"block", NULL},
    {"autoescape", NULL},
};

static enum teg_status parse_statement(struct jparser *p, struct jnode **out)
{
    if (p->at->type != T_NAME)
        return teg_j_unexpected(p, "the name of a statement");
    const struct jtoken *const t = p->at;
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        if (!teg_jstr_is(t->text, statements[i].name))
            continue;
        if (!statements[i].parse)
            break;
        TRY(statements[i].parse(p, out));
        return block_end(p);
    }
    p->c->line = t->line;
    if (t->text.n > 3 && memcmp(t->text.p, "end", 3) == 0)
        return teg_j_fail(p->c, TEG_ERR_FORMAT, "expected the end of the innermost block, found %.*s", JSTR(t->text));
    JUNSUPPORTED(p->c, "the statement %.*s is not supported", JSTR(t->text));
}

static bool at_end(const struct jparser *p, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (teg_j_at_name(p, *ends))
            return true;
    return false;
}

/* Statements until one of `ends` (its name is then at the cursor) or the end of the template. */
static enum teg_status parse_body(struct jparser *p, const char *const *ends, struct jnodes *body, struct jnode *owner)
{
    size_t capacity = 0;
    TRY(teg_j_enter(p->c));
    for (; p->at->type != T_EOF;) {
        const struct jtoken *const t = p->at++;
        struct jnode *node;
        if (t->type == T_DATA) {
            TRY(teg_j_node(p, N_DATA, t->line, &node));
            node->name = t->text;
        } else if (t->type == T_VAR_BEGIN) {
            struct jnode *value;
            size_t one = 0;
            TRY(teg_j_node(p, N_OUTPUT, t->line, &node));
            TRY(teg_j_parse_tuple(p, 0, NULL, &value));
            if (p->at->type != T_VAR_END)
                return teg_j_unexpected(p, "}}");
            p->at++;
            TRY(teg_j_push(p, &node->list, &one, value));
            TRY(teg_j_adopt(p, node, value));
        } else {
            if (at_end(p, ends))
                break;
            TRY(parse_statement(p, &node));
        }
        TRY(teg_j_push(p, body, &capacity, node));
        TRY(teg_j_adopt(p, owner, node));
    }
    p->c->depth--;
    return TEG_OK;
}

enum teg_status teg_j_parse(struct jctx *c, const struct jtoken *tokens, const struct jnode **root)
{
    struct jparser p = {.c = c, .at = tokens};
    struct jnode *node;
    TRY(teg_j_node(&p, N_BLOCK, 1, &node));
    TRY(parse_body(&p, NULL, &node->list, node));
    *root = node;
    return TEG_OK;
}
