/* base/arena.c: bump allocation in blocks that double up to 1 MiB; a request that would waste a block gets its own. */
#include "base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

#define FIRST_BLOCK_BYTES ((size_t)16 << 10)
#define LARGEST_BLOCK_BYTES ((size_t)1 << 20)

struct teg_arena_block {
    struct teg_arena_block *next;
    size_t size_bytes; /* of the whole allocation, header included */
    size_t used_bytes; /* header included */
};

static void *malloc_alloc(void *ctx, size_t size_bytes, size_t align_bytes)
{
    (void)ctx;
    void *p = NULL;
    if (align_bytes < sizeof(void *))
        align_bytes = sizeof(void *);
    return posix_memalign(&p, align_bytes, size_bytes ? size_bytes : 1) == 0 ? p : NULL;
}

static void malloc_free(void *ctx, void *ptr, size_t size_bytes)
{
    (void)ctx;
    (void)size_bytes;
    free(ptr);
}

static const struct teg_allocator malloc_allocator = {malloc_alloc, malloc_free, NULL};

const struct teg_allocator *teg_allocator_or_default(const struct teg_allocator *allocator)
{
    return allocator ? allocator : &malloc_allocator;
}

void teg_arena_init(struct teg_arena *arena, const struct teg_allocator *allocator)
{
    *arena = (struct teg_arena){.allocator = teg_allocator_or_default(allocator), .block_bytes = FIRST_BLOCK_BYTES};
}

void teg_arena_free(struct teg_arena *arena)
{
    struct teg_arena_block *block = arena->blocks;
    while (block) {
        struct teg_arena_block *const next = block->next;
        arena->allocator->free(arena->allocator->ctx, block, block->size_bytes);
        block = next;
    }
    teg_arena_init(arena, arena->allocator);
}

static struct teg_arena_block *block_new(struct teg_arena *arena, size_t payload_bytes)
{
    size_t size;
    if (!teg_add(payload_bytes, 2 * TEG_ALIGN, &size))
        return NULL;
    struct teg_arena_block *const block = arena->allocator->alloc(arena->allocator->ctx, size, TEG_ALIGN);
    if (!block)
        return NULL;
    *block = (struct teg_arena_block){.size_bytes = size, .used_bytes = sizeof *block};
    arena->total_bytes += size;
    return block;
}

static void *bump(struct teg_arena *arena, size_t n_bytes, size_t align)
{
    struct teg_arena_block *block = arena->blocks;
    if (block) {
        const size_t at = (block->used_bytes + align - 1) & ~(align - 1);
        if (at <= block->size_bytes && n_bytes <= block->size_bytes - at) {
            block->used_bytes = at + n_bytes;
            return memset((char *)block + at, 0, n_bytes);
        }
    }
    const bool own_block = n_bytes > arena->block_bytes / 4;
    block = block_new(arena, own_block ? n_bytes : arena->block_bytes);
    if (!block)
        return NULL;
    if (own_block && arena->blocks) { /* keep filling the current block */
        block->next = arena->blocks->next;
        arena->blocks->next = block;
    } else {
        block->next = arena->blocks;
        arena->blocks = block;
        if (!own_block && arena->block_bytes < LARGEST_BLOCK_BYTES)
            arena->block_bytes *= 2;
    }
    const size_t at = (block->used_bytes + align - 1) & ~(align - 1);
    block->used_bytes = at + n_bytes;
    return memset((char *)block + at, 0, n_bytes);
}

void *teg_arena_alloc(struct teg_arena *arena, size_t n_bytes)
{
    return bump(arena, n_bytes, TEG_ALIGN);
}

void *teg_arena_array(struct teg_arena *arena, size_t n, size_t item_bytes)
{
    size_t n_bytes;
    return teg_mul(n, item_bytes, &n_bytes) ? bump(arena, n_bytes, 16) : NULL;
}

char *teg_arena_string(struct teg_arena *arena, const char *bytes, size_t n_bytes)
{
    char *const copy = n_bytes < SIZE_MAX ? bump(arena, n_bytes + 1, 1) : NULL;
    if (copy && n_bytes)
        memcpy(copy, bytes, n_bytes);
    return copy;
}

char *teg_arena_printf(struct teg_arena *arena, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0)
        return NULL;
    char *const text = bump(arena, (size_t)n + 1, 1);
    if (!text)
        return NULL;
    va_start(args, format);
    (void)vsnprintf(text, (size_t)n + 1, format, args);
    va_end(args);
    return text;
}
