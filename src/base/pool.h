/* base/pool.h: worker threads that run slices of one job at a time.
 *
 * A job is a function called once for each slice 0 … n_slices-1, each exactly once, by some worker; teg_pool_run
 * returns when all are done. Which worker takes which slice is not defined, so a slice's result must not depend on it
 * (`worker` only selects scratch memory). Calls from several threads take turns. */
#ifndef TEG_BASE_POOL_H
#define TEG_BASE_POOL_H

#include "base/arena.h"

#define TEG_POOL_MAX_THREADS 256u

struct teg_pool;
typedef void (*teg_pool_fn)(void *ctx, size_t slice, size_t worker);

/* n_threads counts the calling thread: 1 makes no thread. */
enum teg_status teg_pool_new(size_t n_threads, const struct teg_allocator *allocator, struct teg_pool **pool,
                             struct teg_error *err);
size_t teg_pool_threads(const struct teg_pool *pool);
void teg_pool_run(struct teg_pool *pool, teg_pool_fn fn, void *ctx, size_t n_slices);
/* Shares the pool: each teg_pool_free undoes one. */
struct teg_pool *teg_pool_ref(struct teg_pool *pool);
void teg_pool_free(struct teg_pool *pool);

#endif
