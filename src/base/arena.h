/* base/arena.h: memory by lifetime.
 *
 * An arena hands out aligned blocks from a few large allocations and returns all of them in one call. Nothing in it is
 * freed alone. Lifetimes in Tegula: model (source, graph, plan, packed weights), session (pages, activations), scratch
 * (one call). */
#ifndef TEG_BASE_ARENA_H
#define TEG_BASE_ARENA_H

#include "base/error.h"

#define TEG_ALIGN ((size_t)64) /* a cache line, and the widest vector */

/* The malloc-backed allocator, and the caller's choice of it: never NULL. */
const struct teg_allocator *teg_allocator_or_default(const struct teg_allocator *allocator);

struct teg_arena_block;
struct teg_arena {
    const struct teg_allocator *allocator;
    struct teg_arena_block *blocks; /* newest first */
    size_t block_bytes;             /* size of the next ordinary block */
    size_t total_bytes;             /* taken from the allocator */
};

/* Makes an empty arena; takes no memory yet. allocator may be NULL (malloc). */
void teg_arena_init(struct teg_arena *arena, const struct teg_allocator *allocator);
/* Returns everything; the arena may be used again. */
void teg_arena_free(struct teg_arena *arena);

/* `n_bytes` aligned to TEG_ALIGN and zeroed, or NULL. n_bytes 0 gives a valid pointer. */
void *teg_arena_alloc(struct teg_arena *arena, size_t n_bytes);
/* n items of item_bytes, zeroed; NULL on overflow too. Aligned to 16 bytes: for many small things. */
void *teg_arena_array(struct teg_arena *arena, size_t n, size_t item_bytes);
/* A NUL-terminated copy of n bytes, or NULL. */
char *teg_arena_string(struct teg_arena *arena, const char *bytes, size_t n_bytes);
/* printf into the arena, or NULL. */
char *teg_arena_printf(struct teg_arena *arena, const char *format, ...) TEG_PRINTF(2, 3);

#endif
