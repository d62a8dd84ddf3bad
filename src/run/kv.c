/* run/kv.c: see kv.h. A block is one allocation: a header of TEG_ALIGN bytes with the reference count, then the data.
 */
#include "run/kv.h"

#include <stdatomic.h>
#include <string.h>

#include "base/check.h"
#include "kernel/kernels.h"

struct header {
    atomic_size_t n_refs;
};

static struct header *header_of(void *data)
{
    return (struct header *)(void *)((char *)data - TEG_ALIGN);
}

static void *block_new(const struct teg_kv *kv)
{
    char *const block = kv->allocator->alloc(kv->allocator->ctx, kv->block_bytes + TEG_ALIGN, TEG_ALIGN);
    if (!block)
        return NULL;
    atomic_init(&((struct header *)(void *)block)->n_refs, 1);
    return block + TEG_ALIGN;
}

static void block_drop(const struct teg_kv *kv, void *data)
{
    struct header *const h = header_of(data);
    if (atomic_fetch_sub(&h->n_refs, 1) == 1)
        kv->allocator->free(kv->allocator->ctx, h, kv->block_bytes + TEG_ALIGN);
}

void teg_kv_init(struct teg_kv *kv, size_t block_bytes, const struct teg_allocator *allocator)
{
    *kv = (struct teg_kv){.allocator = allocator, .block_bytes = block_bytes};
}

void teg_kv_truncate(struct teg_kv *kv, size_t n_tokens)
{
    const size_t n_kept = (n_tokens + TEG_TILE_TOKENS - 1) / TEG_TILE_TOKENS;
    while (kv->n_blocks > n_kept)
        block_drop(kv, kv->blocks[--kv->n_blocks]);
}

void teg_kv_free(struct teg_kv *kv)
{
    teg_kv_truncate(kv, 0);
    if (kv->blocks)
        kv->allocator->free(kv->allocator->ctx, kv->blocks, kv->capacity * sizeof *kv->blocks);
    kv->blocks = NULL;
    kv->capacity = 0;
}

static enum teg_status grow_table(struct teg_kv *kv, size_t n_blocks, struct teg_error *err)
{
    if (n_blocks <= kv->capacity)
        return TEG_OK;
    const size_t capacity = teg_max(n_blocks, teg_max(kv->capacity * 2, 16));
    void **const blocks = kv->allocator->alloc(kv->allocator->ctx, capacity * sizeof *blocks, TEG_ALIGN);
    if (!blocks)
        return teg_base_fail_memory(err, "KV page table", capacity * sizeof *blocks);
    if (kv->n_blocks)
        memcpy(blocks, kv->blocks, kv->n_blocks * sizeof *blocks);
    if (kv->blocks)
        kv->allocator->free(kv->allocator->ctx, kv->blocks, kv->capacity * sizeof *blocks);
    kv->blocks = blocks;
    kv->capacity = capacity;
    return TEG_OK;
}

/* The block that token n_held falls into is written next: it must be ours alone. */
static enum teg_status own_tail(struct teg_kv *kv, size_t n_held, struct teg_error *err)
{
    const size_t tail = n_held / TEG_TILE_TOKENS;
    if (n_held % TEG_TILE_TOKENS == 0 || atomic_load(&header_of(kv->blocks[tail])->n_refs) == 1)
        return TEG_OK;
    void *const copy = block_new(kv);
    if (!copy)
        return teg_base_fail_memory(err, "KV block", kv->block_bytes);
    memcpy(copy, kv->blocks[tail], kv->block_bytes);
    block_drop(kv, kv->blocks[tail]);
    kv->blocks[tail] = copy;
    return TEG_OK;
}

enum teg_status teg_kv_reserve(struct teg_kv *kv, size_t n_held, size_t n_wanted, struct teg_error *err)
{
    const size_t n_blocks = (n_wanted + TEG_TILE_TOKENS - 1) / TEG_TILE_TOKENS;
    teg_kv_truncate(kv, n_held);
    TRY(grow_table(kv, n_blocks, err));
    if (n_wanted > n_held)
        TRY(own_tail(kv, n_held, err));
    while (kv->n_blocks < n_blocks) {
        void *const block = block_new(kv);
        if (!block) {
            teg_kv_truncate(kv, n_held);
            return teg_base_fail_memory(err, "KV block", kv->block_bytes);
        }
        kv->blocks[kv->n_blocks++] = block;
    }
    return TEG_OK;
}

enum teg_status teg_kv_share(const struct teg_kv *kv, struct teg_kv *copy, struct teg_error *err)
{
    TRY(grow_table(copy, kv->n_blocks, err));
    for (size_t i = 0; i < kv->n_blocks; i++) {
        atomic_fetch_add(&header_of(kv->blocks[i])->n_refs, 1);
        copy->blocks[i] = kv->blocks[i];
    }
    copy->n_blocks = kv->n_blocks;
    return TEG_OK;
}
