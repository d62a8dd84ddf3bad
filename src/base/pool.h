/* base/pool.h: worker threads that run slices of one job at a time.
 *
 * A job is a function called once for each slice 0 … n_slices-1, each exactly once, by some worker; teg_pool_run
 * returns when all are done. Which worker takes which slice is not defined, so a slice's result must not depend on it
 * (`worker` only selects scratch memory). Calls from several threads take turns.
 *
 * Where CPUs differ (big and little cores), a worker on a slow one leaves the last slices to the fast ones when these
 * would be done with them sooner. */
#ifndef TEG_BASE_POOL_H
#define TEG_BASE_POOL_H

#include <stdbool.h>

#include "base/arena.h"

#define TEG_POOL_MAX_THREADS 256u

struct teg_pool;
typedef void (*teg_pool_fn)(void *ctx, size_t slice, size_t worker);

/* Where threads may run; all of it optional. */
struct teg_pool_places {
    const uint32_t *speeds; /* [n_speeds] of each CPU by its number, in any unit; 0: unknown. NULL: all alike */
    size_t n_speeds;
    const uint32_t *pin_to; /* [n_pin_to] thread i stays on CPU pin_to[i % n_pin_to]; NULL: nobody is pinned */
    size_t n_pin_to;
    uint32_t (*cpu_of)(void *ctx, size_t worker); /* the CPU a worker is on; NULL: the system is asked */
    void *cpu_of_ctx;
};

/* n_threads counts the calling thread: 1 makes no thread. */
enum teg_status teg_pool_new(size_t n_threads, const struct teg_allocator *allocator, struct teg_pool **pool,
                             struct teg_error *err);
enum teg_status teg_pool_new_placed(size_t n_threads, const struct teg_pool_places *places,
                                    const struct teg_allocator *allocator, struct teg_pool **pool,
                                    struct teg_error *err);
size_t teg_pool_threads(const struct teg_pool *pool);
/* Whether CPUs are known to differ in speed. */
bool teg_pool_is_uneven(const struct teg_pool *pool);
void teg_pool_run(struct teg_pool *pool, teg_pool_fn fn, void *ctx, size_t n_slices);
/* Around calls of teg_pool_run: the calling thread is on its CPU as the workers are on theirs, and afterwards may run
 * where it could before. Does nothing in a pool that pins nobody. */
struct teg_pool_caller {
    bool is_pinned;
    unsigned long before[16]; /* the system's mask of 1,024 CPUs */
};
void teg_pool_enter(const struct teg_pool *pool, struct teg_pool_caller *caller);
void teg_pool_leave(const struct teg_pool_caller *caller);
/* Shares the pool: each teg_pool_free undoes one. */
struct teg_pool *teg_pool_ref(struct teg_pool *pool);
void teg_pool_free(struct teg_pool *pool);

#endif
