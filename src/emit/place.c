/* emit/place.c: where each constant's op stands.
 *
 * A program in memory has constants as variables; a file has them as ops in blocks. Each goes before the first op that
 * uses it, in the innermost block that holds all its uses, so that every use sees it. Constants without a name stand in
 * the ops that use them, and those that nothing uses are not written.
 *
 * Blocks are numbered as they begin; a parent's number is smaller than its children's. */
#include <stdlib.h>
#include <string.h>

#include "emit/emit_int.h"

enum { MOST_DEPTH = 40 }; /* readers stop at 32 */

struct block_info {
    uint32_t parent, op; /* where it stands in its parent */
    uint32_t depth;
};
struct seen {
    uint32_t at; /* index into places + 1; 0: not yet */
};

struct finder {
    struct teg_emitter *e;
    struct seen *seen; /* [n_vars] */
    struct block_info *blocks;
    size_t n_blocks, blocks_capacity;
    struct teg_emit_place *places;
    size_t n_places, places_capacity;
};

/* Room for one more in the emitter's arena. */
static bool grow(struct finder *f, void **items, size_t n, size_t *capacity, size_t item_bytes)
{
    if (n < *capacity)
        return true;
    const size_t more = n ? 2 * n : 64;
    void *const bigger = teg_arena_array(&f->e->arena, more, item_bytes);
    if (!bigger)
        return false;
    if (n)
        memcpy(bigger, *items, n * item_bytes);
    *items = bigger;
    *capacity = more;
    return true;
}

/* The innermost block that holds both, and the op in it that comes first. */
static void merge(const struct finder *f, struct teg_emit_place *p, uint32_t block, uint32_t op)
{
    while (p->block != block) {
        const bool mine = f->blocks[p->block].depth > f->blocks[block].depth;
        const bool both = f->blocks[p->block].depth == f->blocks[block].depth;
        if (mine || both) {
            p->op = f->blocks[p->block].op;
            p->block = f->blocks[p->block].parent;
        }
        if (!mine || both) {
            op = f->blocks[block].op;
            block = f->blocks[block].parent;
        }
    }
    p->op = p->op < op ? p->op : op;
}

static enum teg_status use(struct finder *f, teg_mil_var_id id, uint32_t block, uint32_t op, bool needs_op)
{
    const struct teg_mil_var *const var = &f->e->program->vars[id];
    void *places = f->places;
    if (!var->constant)
        return TEG_OK;
    needs_op = needs_op && var->name[0];
    if (f->seen[id].at) {
        struct teg_emit_place *const p = &f->places[f->seen[id].at - 1];
        p->needs_op = p->needs_op || needs_op;
        merge(f, p, block, op);
        return TEG_OK;
    }
    if (!grow(f, &places, f->n_places, &f->places_capacity, sizeof *f->places))
        return teg_emit_no_memory(f->e, f->n_places * sizeof *f->places);
    f->places = places;
    f->places[f->n_places] = (struct teg_emit_place){block, op, (uint32_t)f->n_places, id, needs_op};
    f->seen[id].at = (uint32_t)++f->n_places;
    return TEG_OK;
}

static enum teg_status find(struct finder *f, const struct teg_mil_block *block, uint32_t number, uint32_t opset);

static enum teg_status find_op(struct finder *f, const struct teg_mil_op *op, uint32_t number, uint32_t index,
                               uint32_t opset)
{
    const bool in_attributes = opset < 9 && strncmp(op->type, "constexpr_", 10) == 0;
    void *blocks = f->blocks;
    for (size_t i = 0; i < op->n_args; i++)
        for (size_t j = 0; j < op->args[i].n_vars; j++)
            TRY(use(f, op->args[i].vars[j], number, index, !in_attributes));
    for (size_t i = 0; i < op->n_blocks; i++) {
        if (!grow(f, &blocks, f->n_blocks, &f->blocks_capacity, sizeof *f->blocks))
            return teg_emit_no_memory(f->e, f->n_blocks * sizeof *f->blocks);
        f->blocks = blocks;
        f->blocks[f->n_blocks] = (struct block_info){number, index, f->blocks[number].depth + 1};
        TRY(find(f, &op->blocks[i], (uint32_t)f->n_blocks++, opset));
        blocks = f->blocks;
    }
    return TEG_OK;
}

static enum teg_status find(struct finder *f, const struct teg_mil_block *block, uint32_t number, uint32_t opset)
{
    if (f->blocks[number].depth > MOST_DEPTH)
        EMIT_FAIL(f->e, TEG_ERR_UNSUPPORTED, "expected blocks at most %d deep, found deeper ones", MOST_DEPTH);
    for (size_t i = 0; i < block->n_ops; i++)
        TRY(find_op(f, &block->ops[i], number, (uint32_t)i, opset));
    for (size_t i = 0; i < block->n_outputs; i++)
        TRY(use(f, block->outputs[i], number, (uint32_t)block->n_ops, true));
    return TEG_OK;
}

static int compare(const void *a, const void *b)
{
    const struct teg_emit_place *const x = a, *const y = b;
    if (x->block != y->block)
        return x->block < y->block ? -1 : 1;
    if (x->op != y->op)
        return x->op < y->op ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

enum teg_status teg_emit_find_places(struct teg_emitter *e)
{
    const struct teg_mil_program *const p = e->program;
    struct finder f = {.e = e, .seen = teg_arena_array(&e->arena, p->n_vars, sizeof *f.seen)};
    e->functions = teg_arena_array(&e->arena, p->n_functions, sizeof *e->functions);
    if (!f.seen || !e->functions)
        return teg_emit_no_memory(e, p->n_vars * sizeof *f.seen);
    for (size_t i = 0; i < p->n_functions; i++) {
        void *blocks = NULL;
        f.places = NULL;
        f.n_places = f.places_capacity = f.blocks_capacity = 0;
        if (!grow(&f, &blocks, 0, &f.blocks_capacity, sizeof *f.blocks))
            return teg_emit_no_memory(e, sizeof *f.blocks);
        f.blocks = blocks;
        f.blocks[0] = (struct block_info){0};
        f.n_blocks = 1;
        TRY(find(&f, &p->functions[i].block, 0, p->functions[i].opset));
        for (size_t j = 0; j < f.n_places; j++) /* a constant may serve several functions */
            f.seen[f.places[j].var].at = 0;
        if (f.n_places)
            qsort(f.places, f.n_places, sizeof *f.places, compare);
        e->functions[i] = (struct teg_emit_function){f.places, f.n_places, (uint32_t)f.n_blocks};
    }
    return TEG_OK;
}
