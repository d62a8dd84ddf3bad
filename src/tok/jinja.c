/* tok/jinja.c: the two entry points, and what every other file here needs: failing, memory, growing text.
 *
 * A rendering is bounded three ways: steps (evaluated nodes, plus one for every 64 bytes that an operation reads or
 * writes), memory (the arena), and depth. All three end in an error that names the line. Locks, timers and freeing
 * early were not needed for that. */
#include "tok/jinja_int.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum teg_status teg_j_fail(struct jctx *c, enum teg_status status, const char *format, ...)
{
    char message[400];
    va_list args;
    va_start(args, format);
    if (vsnprintf(message, sizeof message, format, args) < 0)
        message[0] = '\0';
    va_end(args);
    return teg_base_fail(c->err, status, 0, "chat template: line %u: %s", c->line, message);
}

enum teg_status teg_j_fail_memory(struct jctx *c)
{
    if (!c->too_large)
        return teg_base_fail_memory(c->err, "chat template", c->arena.total_bytes);
    JUNSUPPORTED(c, "expected at most %d MiB of intermediate values, found more; shorten the conversation",
                 TEG_J_MAX_MEMORY >> 20);
}

void *teg_j_take(struct jctx *c, size_t n, size_t item_bytes)
{
    size_t n_bytes;
    c->too_large = !teg_mul(n, item_bytes, &n_bytes) || n_bytes > TEG_J_MAX_MEMORY ||
                   c->arena.total_bytes + n_bytes > TEG_J_MAX_MEMORY;
    if (c->too_large)
        return NULL;
    c->steps += n_bytes / 64;
    return teg_arena_array(&c->arena, n, item_bytes);
}

enum teg_status teg_j_step(struct jctx *c, size_t n_bytes)
{
    c->steps += 1 + n_bytes / 64;
    if (c->steps > TEG_J_MAX_STEPS)
        JUNSUPPORTED(c, "expected at most %d evaluation steps, found more; does a loop run away?", TEG_J_MAX_STEPS);
    return TEG_OK;
}

enum teg_status teg_j_enter(struct jctx *c)
{
    if (++c->depth > c->max_depth)
        JUNSUPPORTED(c, "expected a nesting of at most %u, found more", c->max_depth);
    return TEG_OK;
}

enum teg_status teg_j_put(struct jctx *c, struct jbuf *b, const char *p, size_t n)
{
    if (n > b->capacity - b->n) {
        size_t capacity = b->capacity ? 2 * b->capacity : 64;
        if (n > TEG_J_MAX_TEXT || b->n + n > TEG_J_MAX_TEXT)
            JUNSUPPORTED(c, "expected a text of at most %d MiB, found more", TEG_J_MAX_TEXT >> 20);
        capacity = teg_max(capacity, b->n + n);
        char *grown;
        JNEW(c, grown, capacity);
        if (b->n)
            memcpy(grown, b->p, b->n);
        b->p = grown;
        b->capacity = capacity;
    }
    if (n)
        memcpy(b->p + b->n, p, n);
    b->n += n;
    return TEG_OK;
}

enum teg_status teg_j_puts(struct jctx *c, struct jbuf *b, const char *s)
{
    return teg_j_put(c, b, s, strlen(s));
}

enum teg_status teg_j_put_code_point(struct jctx *c, struct jbuf *b, uint32_t code_point)
{
    char utf8[4];
    return teg_j_put(c, b, utf8, teg_utf8_put(code_point, utf8));
}

enum teg_status teg_jinja_parse(const char *source, size_t n_bytes, struct teg_jinja **jinja, struct teg_error *err)
{
    struct teg_jinja *const j = calloc(1, sizeof *j);
    if (!j)
        return teg_base_fail_memory(err, "chat template", sizeof *j);
    struct jtoken *tokens;
    j->ctx = (struct jctx){.err = err, .line = 1, .max_depth = 2 * TEG_J_MAX_NESTING};
    teg_arena_init(&j->ctx.arena, NULL);
    enum teg_status status = teg_j_lex(&j->ctx, source, n_bytes, &tokens);
    if (status == TEG_OK)
        status = teg_j_parse(&j->ctx, tokens, &j->root);
    j->ctx.err = NULL;
    if (status == TEG_OK)
        *jinja = j;
    else
        teg_jinja_free(j);
    return status;
}

void teg_jinja_free(struct teg_jinja *jinja)
{
    if (!jinja)
        return;
    teg_arena_free(&jinja->ctx.arena);
    free(jinja);
}

/* The variables become the names of the outermost scope. */
static enum teg_status bind_variables(struct jctx *c, const json_t *json, struct jscope *scope)
{
    struct jv variables;
    TRY(teg_j_from_json(c, json, &variables));
    for (size_t i = 0; i < variables.n; i++) {
        const struct jpair *const pair = &variables.u.pairs[i];
        TRY(teg_j_bind(c, scope, teg_jv_text(&pair->key), &pair->value));
    }
    return TEG_OK;
}

static enum teg_status render(struct jctx *c, const struct teg_jinja *jinja, const json_t *json, struct teg_text *text)
{
    struct jscope scope = {.parent = NULL};
    struct jbuf out = {0};
    enum jflow flow = J_FLOW_ON;
    c->root = &scope;
    TRY(bind_variables(c, json, &scope));
    c->depth = 0;
    TRY(teg_j_exec_body(c, &scope, &jinja->root->list, &out, &flow));
    struct teg_buf result = {0};
    teg_buf_append(&result, out.p, out.n);
    return teg_buf_take(&result, text, "chat template", c->err);
}

enum teg_status teg_jinja_render(const struct teg_jinja *jinja, const char *variables_json, size_t n_bytes,
                                 int64_t now_unix, struct teg_text *text, struct teg_error *err)
{
    json_error_t json_error;
    json_t *const json = json_loadb(variables_json, n_bytes, JSON_ALLOW_NUL, &json_error);
    if (!json && !json_error.text[0]) /* all that jansson says when memory ends */
        return teg_base_fail_memory(err, "chat template variables", n_bytes);
    if (!json)
        FAIL_AT(err, TEG_ERR_ARGUMENT, (uint64_t)json_error.position,
                "chat template: variables at byte %d: expected a JSON object, found: %s", json_error.position,
                json_error.text);
    enum teg_status status;
    struct jctx c = {.err = err, .max_depth = TEG_J_MAX_DEPTH, .now_unix = now_unix};
    teg_arena_init(&c.arena, NULL);
    if (json_is_object(json))
        status = render(&c, jinja, json, text);
    else
        status = teg_base_fail(err, TEG_ERR_ARGUMENT, 0,
                               "chat template: variables: expected a JSON object, found another type");
    teg_arena_free(&c.arena);
    json_decref(json);
    return status;
}
