/* mil/text.h: the lexer, types and literals of MIL text, shared by text_value.c and text.c; nobody else includes it. */
#ifndef TEG_MIL_TEXT_H
#define TEG_MIL_TEXT_H

#include "mil/impl.h"

struct teg_mil_text {
    struct teg_mil_reader *r;
    const uint8_t *at, *end;
    /* Of the op being read; nested blocks come when they are no longer needed. */
    struct teg_mil_arg *args;
    teg_mil_var_id *vars;
    size_t args_capacity, vars_capacity;
};

/* ---- tokens (text_value.c); each skips white space and comments first ---- */

/* The next byte, not taken; 0 at the end. */
uint8_t teg_mil_text_peek(struct teg_mil_text *t);
bool teg_mil_text_accept(struct teg_mil_text *t, char c);
enum teg_status teg_mil_text_expect(struct teg_mil_text *t, const char *token);
/* A letter or _, then letters, digits, _ @ . */
enum teg_status teg_mil_text_word(struct teg_mil_text *t, const char *what, struct teg_span *word);
/* Skips a balanced [ … ] that nobody needs. */
enum teg_status teg_mil_text_skip(struct teg_mil_text *t);
enum teg_status teg_mil_text_wrong(struct teg_mil_text *t, const char *expected);

/* ---- types and values ---- */

enum teg_status teg_mil_text_type(struct teg_mil_text *t, int depth, struct teg_mil_type *type);
/* TYPE ( BODY ) */
enum teg_status teg_mil_text_literal(struct teg_mil_text *t, int depth, struct teg_mil_const *value);

#endif
