/* base/pool.c: spin, then sleep.
 *
 * A forward pass has hundreds of short jobs, microseconds apart, so a worker first spins on the job number and only
 * then waits on a condition. Slices are handed out by one atomic counter; the calling thread works too. A job's number
 * and the slices left share one 64-bit word (job << 32 | left), so a worker that wakes late can never take a slice of
 * a job it has not read. With fewer CPUs than threads spinning only steals time, so then nobody spins.
 *
 * Little cores: with slices handed out to whoever asks, a slow core takes fewer by itself; only the last ones hurt,
 * when everybody waits for a slice that a slow core took late. So a worker looks at how fast its CPU is (it may have
 * been moved) and leaves a slice alone that the faster workers, each half through one, would finish sooner. The caller
 * never does, so every job ends whatever the speeds say. Not taken: shares cut by speed before a job begins. They are
 * right only while nobody else uses the machine and no thread is moved, and they fix the order of slices. */
#include "base/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define SPIN_ROUNDS 4000 /* about 20 to 50 us of pause instructions */
#define MOST_CPUS 1024u

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
    bool is_uneven; /* CPUs differ in speed */
    uint32_t (*cpu_of)(void *ctx, size_t worker);
    void *cpu_of_ctx;
    uint32_t speed_of_cpu[MOST_CPUS];              /* 0: unknown */
    _Atomic uint32_t speeds[TEG_POOL_MAX_THREADS]; /* of workers, where they were last; 0: not known yet */
    bool is_pinned;
    uint16_t pin_to[TEG_POOL_MAX_THREADS];
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

/* ---- places ---- */

static uint32_t current_cpu(void *ctx, size_t worker)
{
    (void)ctx, (void)worker;
#if defined(__linux__)
    const int cpu = sched_getcpu();
    return cpu >= 0 ? (uint32_t)cpu : MOST_CPUS;
#else
    return MOST_CPUS;
#endif
}

/* Of the CPUs that this process may use. */
static size_t count_cpus(void)
{
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return (size_t)CPU_COUNT(&set);
#endif
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (size_t)n : 1;
}

static void pin_to(uint32_t cpu)
{
#if defined(__linux__)
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    (void)sched_setaffinity(0, sizeof set, &set); /* refused: the thread runs where it may */
#else
    (void)cpu;
#endif
}

void teg_pool_enter(const struct teg_pool *pool, struct teg_pool_caller *caller)
{
    caller->is_pinned = false;
#if defined(__linux__)
    _Static_assert(sizeof caller->before >= sizeof(cpu_set_t), "room for a mask of the system");
    if (!pool->is_pinned || sched_getaffinity(0, sizeof(cpu_set_t), (cpu_set_t *)(void *)caller->before) != 0)
        return;
    caller->is_pinned = true;
    pin_to(pool->pin_to[0]);
#else
    (void)pool;
#endif
}

void teg_pool_leave(const struct teg_pool_caller *caller)
{
#if defined(__linux__)
    if (caller->is_pinned)
        (void)sched_setaffinity(0, sizeof(cpu_set_t), (const cpu_set_t *)(const void *)caller->before);
#else
    (void)caller;
#endif
}

static void set_places(struct teg_pool *pool, const struct teg_pool_places *places)
{
    uint32_t seen = 0;
    pool->cpu_of = places->cpu_of ? places->cpu_of : current_cpu;
    pool->cpu_of_ctx = places->cpu_of_ctx;
    for (size_t i = 0; i < places->n_speeds && i < MOST_CPUS; i++) {
        const uint32_t speed = places->speeds[i];
        pool->speed_of_cpu[i] = speed;
        pool->is_uneven |= speed && seen && speed != seen;
        seen = speed ? speed : seen;
    }
    pool->is_pinned = places->n_pin_to > 0;
    for (size_t i = 0; pool->is_pinned && i < pool->n_threads; i++)
        pool->pin_to[i] = (uint16_t)(places->pin_to[i % places->n_pin_to] % MOST_CPUS);
}

/* How a worker compares with the others, as far as these have said where they are. */
struct rank {
    uint64_t own, best;
    uint32_t n_faster;
};

static struct rank rank_of(struct teg_pool *pool, size_t worker)
{
    const uint32_t cpu = pool->cpu_of(pool->cpu_of_ctx, worker);
    const uint32_t own = cpu < MOST_CPUS ? pool->speed_of_cpu[cpu] : 0;
    struct rank r = {.own = own};
    atomic_store_explicit(&pool->speeds[worker], own, memory_order_relaxed);
    for (size_t i = 0; own && worker > 0 && i < pool->n_threads; i++) {
        const uint32_t speed = atomic_load_explicit(&pool->speeds[i], memory_order_relaxed);
        r.n_faster += speed > own;
        r.best = speed > r.best ? speed : r.best;
    }
    return r;
}

/* The faster ones need so many rounds, and half a slice before that, to finish what is left: at least as long as this
 * worker would for one slice. */
static bool is_worth_taking(const struct rank *r, uint32_t left)
{
    if (r->n_faster == 0)
        return true;
    const uint64_t rounds = (left + r->n_faster - 1) / r->n_faster;
    return (2 * rounds + 1) * r->own >= 2 * r->best;
}

/* ---- jobs ---- */

/* Takes slices of job `job` until none is left or another job has begun. fn, ctx and n_slices are read after a slice
 * was taken, hence belong to its job: the caller changes them only when every slice is done. */
static void work(struct teg_pool *pool, uint32_t job, size_t worker)
{
    const struct rank rank = pool->is_uneven ? rank_of(pool, worker) : (struct rank){0};
    for (;;) {
        uint64_t next = atomic_load(&pool->next);
        do {
            if ((uint32_t)(next >> 32) != job || (uint32_t)next == 0 || !is_worth_taking(&rank, (uint32_t)next))
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
    if (pool->is_pinned)
        pin_to(pool->pin_to[self->index]);
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
    return teg_pool_new_placed(n_threads, NULL, allocator, out, err);
}

enum teg_status teg_pool_new_placed(size_t n_threads, const struct teg_pool_places *places,
                                    const struct teg_allocator *allocator, struct teg_pool **out, struct teg_error *err)
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
    pool->spin_rounds = count_cpus() >= n_threads ? SPIN_ROUNDS : 0;
    if (places)
        set_places(pool, places);
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

bool teg_pool_is_uneven(const struct teg_pool *pool)
{
    return pool->is_uneven;
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
