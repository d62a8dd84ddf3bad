/* plan/cache.h: packed weights in a file, for the next start. */
#ifndef TEG_PLAN_CACHE_H
#define TEG_PLAN_CACHE_H

#include "base/pool.h"
#include "plan/plan.h"

/* The file as a mapping whose content is that of `identity`, n_bytes of it, intact; else false, and a warning where
 * there is a file. The weights begin at teg_cache_bytes(). Damage is looked for by all threads of the pool. */
bool teg_cache_open(const struct teg_pack_cache *cache, struct teg_hash identity, size_t n_bytes, struct teg_pool *pool,
                    struct teg_filemap *map);
const uint8_t *teg_cache_bytes(const struct teg_filemap *map);
/* Writes the file anew. A failure is a warning and leaves no file of its own; so does `is_wanted`, asked between
 * pieces, when it says no. */
void teg_cache_write(const struct teg_pack_cache *cache, struct teg_hash identity, const void *bytes, size_t n_bytes,
                     struct teg_pool *pool, bool (*is_wanted)(void *ctx), void *is_wanted_ctx);
/* "pack cache: PATH: expected …, found …; the weights are packed again" */
void teg_cache_warn(const struct teg_pack_cache *cache, const char *format, ...) TEG_PRINTF(2, 3);

#endif
