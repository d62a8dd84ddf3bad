/* base/pool.c: spin, then sleep.
 *
 * A forward pass has hundreds of short jobs, microseconds apart, so a worker first spins on the job number and only
 * then waits on a condition. Slices are handed out by one atomic counter; the calling thread works too. A job's number
 * and the slices left share one 64-bit word (job << 32 | left), so a worker that wakes late can never take a slice of
 * a job it has not read. With fewer CPUs than threads spinning only steals time, so then nobody spins. */
#include "base/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define SPIN_ROUNDS 4000 /* about 20 to 50 us of pause instructions */

struct teg_pool {
    const struct teg_allocator *allocator;
    atomic_size_t n_refs;
    size_t n_threads; /* the caller included */
    size_t n_started; /* workers that exist: n_threads - 1 after a successful new */
    unsigned spin_rounds;
    pthread_mutex_t turn; /* held by the caller for a whole job */
    pthread_mutex_t lock; /* guards sleeping */
    pthread_cond_t wake, finished;
    _Atomic uint64_t next; /* job << 32 | slices left */
    atomic_size_t n_done;  /* slices finished in this job */
    atomic_bool stop;
    _Atomic(teg_pool_fn) fn;
    _Atomic(void *) ctx;
    atomic_size_t n_slices;
    struct worker {
        struct teg_pool *pool;
        pthread_t thread;
        size_t index;
    } workers[];
};

static void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Takes slices of job `job` until none is left or another job has begun. fn, ctx and n_slices are read after a slice
 * was taken, hence belong to its job: the caller changes them only when every slice is done. */
static void work(struct teg_pool *pool, uint32_t job, size_t worker)
{
    for (;;) {
        uint64_t next = atomic_load(&pool->next);
        do {
            if ((uint32_t)(next >> 32) != job || (uint32_t)next == 0)
                return;
        } while (!atomic_compare_exchange_weak(&pool->next, &next, next - 1));
        const size_t n_slices = atomic_load(&pool->n_slices);
        atomic_load (&pool->fn)(atomic_load(&pool->ctx), n_slices - (uint32_t)next, worker);
        if (atomic_fetch_add(&pool->n_done, 1) + 1 == n_slices) {
            pthread_mutex_lock(&pool->lock);
            pthread_cond_broadcast(&pool->finished);
            pthread_mutex_unlock(&pool->lock);
        }
    }
}

static uint32_t job_of(const struct teg_pool *pool)
{
    return (uint32_t)(atomic_load(&pool->next) >> 32);
}

static void *worker_main(void *arg)
{
    const struct worker *const self = arg;
    struct teg_pool *const pool = self->pool;
    uint32_t seen = 0;
    for (;;) {
        for (unsigned i = 0; i < pool->spin_rounds && job_of(pool) == seen && !atomic_load(&pool->stop); i++)
            cpu_relax();
        if (job_of(pool) == seen) {
            pthread_mutex_lock(&pool->lock);
            while (job_of(pool) == seen && !atomic_load(&pool->stop))
                pthread_cond_wait(&pool->wake, &pool->lock);
            pthread_mutex_unlock(&pool->lock);
        }
        if (atomic_load(&pool->stop))
            return NULL;
        seen = job_of(pool);
        work(pool, seen, self->index);
    }
}

static void destroy(struct teg_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->stop, true);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    for (size_t i = 0; i < pool->n_started; i++)
        pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->finished);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
    pthread_mutex_destroy(&pool->turn);
    pool->allocator->free(pool->allocator->ctx, pool, sizeof *pool + (pool->n_threads - 1) * sizeof *pool->workers);
}

enum teg_status teg_pool_new(size_t n_threads, const struct teg_allocator *allocator, struct teg_pool **out,
                             struct teg_error *err)
{
    if (n_threads < 1 || n_threads > TEG_POOL_MAX_THREADS)
        FAIL(err, TEG_ERR_ARGUMENT, "cannot start threads: thread count: expected 1 to %u, found %zu; use fewer",
             TEG_POOL_MAX_THREADS, n_threads);
    allocator = teg_allocator_or_default(allocator);
    const size_t n_bytes = sizeof(struct teg_pool) + (n_threads - 1) * sizeof(struct worker);
    struct teg_pool *const pool = allocator->alloc(allocator->ctx, n_bytes, TEG_ALIGN);
    if (!pool)
        return teg_base_fail_memory(err, "thread pool", n_bytes);
    memset(pool, 0, n_bytes);
    pool->allocator = allocator;
    pool->n_threads = n_threads;
    atomic_init(&pool->n_refs, 1);
    const long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
    pool->spin_rounds = n_cpus > 0 && (size_t)n_cpus >= n_threads ? SPIN_ROUNDS : 0;
    pthread_mutex_init(&pool->turn, NULL);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->finished, NULL);
    for (; pool->n_started < n_threads - 1; pool->n_started++) {
        struct worker *const w = &pool->workers[pool->n_started];
        *w = (struct worker){.pool = pool, .index = pool->n_started + 1};
        if (pthread_create(&w->thread, NULL, worker_main, w) != 0) {
            const size_t n_got = pool->n_started + 1;
            destroy(pool);
            FAIL(err, TEG_ERR_MEMORY,
                 "cannot start threads: operating system: expected %zu threads, found room for %zu; use fewer",
                 n_threads, n_got);
        }
    }
    *out = pool;
    return TEG_OK;
}

size_t teg_pool_threads(const struct teg_pool *pool)
{
    return pool->n_threads;
}

void teg_pool_run(struct teg_pool *pool, teg_pool_fn fn, void *ctx, size_t n_slices)
{
    if (n_slices == 0)
        return;
    pthread_mutex_lock(&pool->turn);
    if (pool->n_threads == 1 || n_slices == 1) {
        for (size_t i = 0; i < n_slices; i++)
            fn(ctx, i, 0);
        pthread_mutex_unlock(&pool->turn);
        return;
    }
    const uint32_t job = job_of(pool) + 1;
    atomic_store(&pool->fn, fn);
    atomic_store(&pool->ctx, ctx);
    atomic_store(&pool->n_slices, n_slices);
    atomic_store(&pool->n_done, 0);
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->next, (uint64_t)job << 32 | (uint32_t)n_slices);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    work(pool, job, 0);
    for (unsigned i = 0; i < pool->spin_rounds && atomic_load(&pool->n_done) < n_slices; i++)
        cpu_relax();
    if (atomic_load(&pool->n_done) < n_slices) {
        pthread_mutex_lock(&pool->lock);
        while (atomic_load(&pool->n_done) < n_slices)
            pthread_cond_wait(&pool->finished, &pool->lock);
        pthread_mutex_unlock(&pool->lock);
    }
    pthread_mutex_unlock(&pool->turn);
}

struct teg_pool *teg_pool_ref(struct teg_pool *pool)
{
    atomic_fetch_add(&pool->n_refs, 1);
    return pool;
}

void teg_pool_free(struct teg_pool *pool)
{
    if (pool && atomic_fetch_sub(&pool->n_refs, 1) == 1)
        destroy(pool);
}
