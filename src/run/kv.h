/* run/kv.h: the KV cache of a session: a row of reference-counted blocks.
 *
 * A block holds 64 tokens of all layers and KV heads, each (layer, head) as one page in kernel operand order (see
 * kernel/kernels.h). Sharing is by block: a fork takes references, an append to a block that somebody else holds
 * copies it first, a rewind drops whole blocks. Blocks exist only for tokens that exist, so nothing is sized by a
 * context that is not used. Not taken: one reference count per page, which would let windowed layers drop old pages
 * but costs a table per layer and makes rewinding past the window impossible. */
#ifndef TEG_RUN_KV_H
#define TEG_RUN_KV_H

#include "base/arena.h"

struct teg_kv {
    const struct teg_allocator *allocator;
    size_t block_bytes;
    void **blocks; /* data of each block, TEG_ALIGN-aligned */
    size_t n_blocks, capacity;
};

void teg_kv_init(struct teg_kv *kv, size_t block_bytes, const struct teg_allocator *allocator);
void teg_kv_free(struct teg_kv *kv);

/* Makes tokens n_held … n_wanted - 1 writable. On failure nothing changed. */
enum teg_status teg_kv_reserve(struct teg_kv *kv, size_t n_held, size_t n_wanted, struct teg_error *err);
/* Drops the blocks that hold only tokens from n_tokens on. */
void teg_kv_truncate(struct teg_kv *kv, size_t n_tokens);
/* `copy` must be empty: it gets references to all of kv's blocks. */
enum teg_status teg_kv_share(const struct teg_kv *kv, struct teg_kv *copy, struct teg_error *err);

#endif
