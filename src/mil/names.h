/* mil/names.h: every name of a program once, and what it means in the scope that is being read.
 *
 * A crit-bit tree: a look-up touches at most one node per bit of the name it looks for, whatever names the file holds,
 * so a hostile file cannot make it slow, as it could with a hash table without a secret. Scopes are an undo list:
 * defining a name pushes what it meant before, leaving a block pops. */
#ifndef TEG_MIL_NAMES_H
#define TEG_MIL_NAMES_H

#include "base/arena.h"
#include "base/cursor.h"

struct teg_mil_symbol {
    const char *name; /* in the arena */
    size_t n_bytes;
    uint32_t var;   /* what it means now; UINT32_MAX: nothing */
    uint32_t scope; /* that defined it */
};

struct teg_mil_names_node;
struct teg_mil_undo {
    struct teg_mil_symbol *symbol;
    uint32_t var, scope; /* as before */
};

struct teg_mil_names {
    struct teg_arena *arena;
    void *root; /* node or symbol, told apart by the lowest bit */
    struct teg_mil_undo *undo;
    size_t n_undo, undo_capacity;
    uint32_t n_scopes; /* open ones */
};

/* The symbol of a name (which holds no NUL), made when new; NULL: out of memory. */
struct teg_mil_symbol *teg_mil_names_get(struct teg_mil_names *names, struct teg_span name);
/* Opens a scope; the result goes to teg_mil_names_leave. */
size_t teg_mil_names_enter(struct teg_mil_names *names);
void teg_mil_names_leave(struct teg_mil_names *names, size_t mark);
/* Defines in the innermost scope; false: out of memory. The caller has looked whether this scope has it already. */
bool teg_mil_names_define(struct teg_mil_names *names, struct teg_mil_symbol *symbol, uint32_t var);
bool teg_mil_names_is_taken(const struct teg_mil_names *names, const struct teg_mil_symbol *symbol);

/* Makes room for one more item: capacity doubles, in the arena. False: out of memory. */
bool teg_mil_grow(struct teg_arena *arena, void **items, size_t n, size_t *capacity, size_t item_bytes);

#endif
