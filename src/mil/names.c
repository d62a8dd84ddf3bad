/* mil/names.c: see names.h. A node says which byte and bit its two subtrees differ in; bytes only grow on the way down.
 * The byte past a name's end reads as 0, which no name holds, so a prefix differs from its continuation. */
#include "mil/names.h"

struct teg_mil_names_node {
    void *child[2];
    size_t byte;
    uint8_t others; /* all bits but the one that decides */
};

static bool is_node(const void *p)
{
    return (uintptr_t)p & 1;
}

static struct teg_mil_names_node *as_node(void *p)
{
    return (struct teg_mil_names_node *)(void *)((char *)p - 1);
}

static uint8_t byte_at(struct teg_span name, size_t i)
{
    return i < name.n_bytes ? name.bytes[i] : 0;
}

/* 1 where the deciding bit of the byte is set. */
static unsigned side(const struct teg_mil_names_node *node, struct teg_span name)
{
    return (1u + (unsigned)(node->others | byte_at(name, node->byte))) >> 8;
}

static struct teg_mil_symbol *closest(void *root, struct teg_span name)
{
    while (is_node(root))
        root = as_node(root)->child[side(as_node(root), name)];
    return root;
}

static struct teg_mil_symbol *symbol_new(struct teg_arena *arena, struct teg_span name)
{
    struct teg_mil_symbol *const symbol = teg_arena_array(arena, 1, sizeof *symbol);
    char *const copy = teg_arena_string(arena, (const char *)name.bytes, name.n_bytes);
    if (!symbol || !copy)
        return NULL;
    *symbol = (struct teg_mil_symbol){copy, name.n_bytes, UINT32_MAX, 0};
    return symbol;
}

/* Where the new node goes: above the first that decides on a later bit. */
static void insert(struct teg_mil_names *names, struct teg_mil_names_node *node, struct teg_mil_symbol *symbol,
                   struct teg_span name)
{
    void **where = &names->root;
    while (is_node(*where)) {
        struct teg_mil_names_node *const next = as_node(*where);
        if (next->byte > node->byte || (next->byte == node->byte && next->others > node->others))
            break;
        where = &next->child[side(next, name)];
    }
    const unsigned mine = side(node, name);
    node->child[mine] = symbol;
    node->child[1 - mine] = *where;
    *where = (char *)node + 1;
}

struct teg_mil_symbol *teg_mil_names_get(struct teg_mil_names *names, struct teg_span name)
{
    if (!names->root)
        return names->root = symbol_new(names->arena, name);
    struct teg_mil_symbol *const found = closest(names->root, name);
    const struct teg_span other = {(const uint8_t *)found->name, found->n_bytes};
    size_t byte = 0;
    while (byte < name.n_bytes && byte_at(name, byte) == byte_at(other, byte))
        byte++;
    uint8_t differ = byte_at(name, byte) ^ byte_at(other, byte);
    if (!differ)
        return found; /* both end here: no name holds a 0 */
    while (differ & (differ - 1))
        differ &= (uint8_t)(differ - 1); /* the highest bit */
    struct teg_mil_names_node *const node = teg_arena_array(names->arena, 1, sizeof *node);
    struct teg_mil_symbol *const symbol = symbol_new(names->arena, name);
    if (!node || !symbol)
        return NULL;
    node->byte = byte;
    node->others = differ ^ 0xff;
    insert(names, node, symbol, name);
    return symbol;
}

size_t teg_mil_names_enter(struct teg_mil_names *names)
{
    names->n_scopes++;
    return names->n_undo;
}

void teg_mil_names_leave(struct teg_mil_names *names, size_t mark)
{
    while (names->n_undo > mark) {
        const struct teg_mil_undo *const u = &names->undo[--names->n_undo];
        u->symbol->var = u->var;
        u->symbol->scope = u->scope;
    }
    names->n_scopes--;
}

bool teg_mil_names_is_taken(const struct teg_mil_names *names, const struct teg_mil_symbol *symbol)
{
    return symbol->var != UINT32_MAX && symbol->scope == names->n_scopes;
}

bool teg_mil_names_define(struct teg_mil_names *names, struct teg_mil_symbol *symbol, uint32_t var)
{
    void *undo = names->undo;
    if (!teg_mil_grow(names->arena, &undo, names->n_undo, &names->undo_capacity, sizeof *names->undo))
        return false;
    names->undo = undo;
    names->undo[names->n_undo++] = (struct teg_mil_undo){symbol, symbol->var, symbol->scope};
    symbol->var = var;
    symbol->scope = names->n_scopes;
    return true;
}

bool teg_mil_grow(struct teg_arena *arena, void **items, size_t n, size_t *capacity, size_t item_bytes)
{
    if (n < *capacity)
        return true;
    if (n > SIZE_MAX / 2)
        return false;
    const size_t more = n ? 2 * n : 4;
    void *const bigger = teg_arena_array(arena, more, item_bytes);
    if (!bigger)
        return false;
    if (n)
        memcpy(bigger, *items, n * item_bytes);
    *items = bigger;
    *capacity = more;
    return true;
}
