/* Thread pool: every slice exactly once, in one job or a hundred thousand, with more threads than CPUs, and from two
 * callers at once; slow CPUs leave the end to fast ones. Failed checks inside slices are counted, not asserted:
 * cmocka's asserts belong to one thread. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/pool.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif
#define MANY_JOBS (SANITIZED ? 5000u : 50000u)
#define MOST_SLICES 1000

struct job {
    atomic_int seen[MOST_SLICES];
    atomic_size_t n_bad; /* worker out of range */
    size_t n_threads;
};

static void count_slice(void *ctx, size_t slice, size_t worker)
{
    struct job *const job = ctx;
    if (slice >= MOST_SLICES || worker >= job->n_threads)
        atomic_fetch_add(&job->n_bad, 1);
    else
        atomic_fetch_add(&job->seen[slice], 1);
}

/* Runs one job and says whether each of its slices ran once, and no other. */
static bool run_once(struct teg_pool *pool, struct job *job, size_t n_slices)
{
    for (size_t i = 0; i < MOST_SLICES; i++)
        atomic_store_explicit(&job->seen[i], 0, memory_order_relaxed);
    job->n_threads = teg_pool_threads(pool);
    atomic_store(&job->n_bad, 0);
    teg_pool_run(pool, count_slice, job, n_slices);
    for (size_t i = 0; i < MOST_SLICES; i++)
        if (atomic_load_explicit(&job->seen[i], memory_order_relaxed) != (i < n_slices))
            return false;
    return atomic_load(&job->n_bad) == 0;
}

static struct teg_pool *pool_of(size_t n_threads)
{
    struct teg_pool *pool = NULL;
    assert_int_equal(teg_pool_new(n_threads, NULL, &pool, NULL), TEG_OK);
    assert_int_equal(teg_pool_threads(pool), n_threads);
    return pool;
}

static void test_each_slice_once(void **state)
{
    (void)state;
    static const size_t threads[] = {1, 2, 3, 8};
    static const size_t slices[] = {0, 1, 2, 3, 7, 64, MOST_SLICES};
    static struct job job;
    for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
        struct teg_pool *const pool = pool_of(threads[t]);
        for (size_t round = 0; round < 20; round++)
            for (size_t s = 0; s < sizeof slices / sizeof *slices; s++)
                assert_true(run_once(pool, &job, slices[s]));
        teg_pool_free(pool);
    }
}

static void add_slice(void *ctx, size_t slice, size_t worker)
{
    (void)worker;
    atomic_fetch_add_explicit((atomic_size_t *)ctx, slice + 1, memory_order_relaxed);
}

/* A forward pass is hundreds of jobs of microseconds: the hand-over must be right every time. */
static void many_small_jobs(size_t n_threads, size_t n_jobs)
{
    struct teg_pool *const pool = pool_of(n_threads);
    for (size_t i = 0; i < n_jobs; i++) {
        const size_t n_slices = 1 + i % 9;
        atomic_size_t sum = 0;
        teg_pool_run(pool, add_slice, &sum, n_slices);
        assert_int_equal(atomic_load(&sum), n_slices * (n_slices + 1) / 2);
    }
    teg_pool_free(pool);
}

static void test_many_small_jobs(void **state)
{
    (void)state;
    many_small_jobs(2, MANY_JOBS);
}

static void test_oversubscribed(void **state)
{
    (void)state;
    const long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
    many_small_jobs(4 * (size_t)(n_cpus > 0 && n_cpus < 16 ? n_cpus : 4) + 1, MANY_JOBS / 20);
}

/* Workers that fell asleep between jobs wake again. */
static void test_sleeping_workers_wake(void **state)
{
    (void)state;
    static struct job job;
    struct teg_pool *const pool = pool_of(2);
    for (int i = 0; i < 20; i++) {
        usleep(3000);
        assert_true(run_once(pool, &job, 64));
    }
    teg_pool_free(pool);
}

struct caller {
    struct teg_pool *pool;
    size_t n_jobs, n_bad;
};

static void *caller_main(void *arg)
{
    struct caller *const self = arg;
    struct job *const job = calloc(1, sizeof *job);
    for (size_t i = 0; job && i < self->n_jobs; i++)
        self->n_bad += !run_once(self->pool, job, 1 + i % 50);
    self->n_bad += job == NULL;
    free(job);
    teg_pool_free(self->pool);
    return NULL;
}

static void test_two_callers_at_once(void **state)
{
    (void)state;
    struct teg_pool *const pool = pool_of(3);
    struct caller callers[2] = {{.n_jobs = MANY_JOBS / 25}, {.n_jobs = MANY_JOBS / 25}};
    pthread_t threads[2];
    for (size_t i = 0; i < 2; i++) {
        callers[i].pool = teg_pool_ref(pool);
        assert_int_equal(pthread_create(&threads[i], NULL, caller_main, &callers[i]), 0);
    }
    teg_pool_free(pool); /* the callers' references keep it alive */
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(callers[i].n_bad, 0);
    }
}

/* What a slice wrote is seen after teg_pool_run without further care. */
static void write_slice(void *ctx, size_t slice, size_t worker)
{
    (void)worker;
    ((size_t *)ctx)[slice] += slice;
}

static void test_results_are_visible(void **state)
{
    (void)state;
    size_t values[256] = {0};
    struct teg_pool *const pool = pool_of(4);
    for (size_t i = 0; i < 1000; i++)
        teg_pool_run(pool, write_slice, values, 256);
    for (size_t i = 0; i < 256; i++)
        assert_int_equal(values[i], 1000 * i);
    teg_pool_free(pool);
}

static void test_thread_count_is_checked(void **state)
{
    (void)state;
    static const size_t bad[] = {0, TEG_POOL_MAX_THREADS + 1, SIZE_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct teg_pool *pool = NULL;
        struct teg_error err = {0};
        assert_int_equal(teg_pool_new(bad[i], NULL, &pool, &err), TEG_ERR_ARGUMENT);
        assert_null(pool);
        assert_non_null(strstr(err.message, "cannot start threads: thread count: expected 1 to 256, found "));
    }
}

static void *no_memory(void *ctx, size_t size_bytes, size_t align_bytes)
{
    (void)ctx;
    (void)size_bytes;
    (void)align_bytes;
    return NULL;
}

static void test_no_memory(void **state)
{
    (void)state;
    const struct teg_allocator allocator = {no_memory, NULL, NULL};
    struct teg_pool *pool = NULL;
    struct teg_error err = {0};
    assert_int_equal(teg_pool_new(2, &allocator, &pool, &err), TEG_ERR_MEMORY);
    assert_null(pool);
    assert_non_null(strstr(err.message, "out of memory: thread pool"));
}

/* Address space for a few stacks only: the pool must join what it started and say how far it came. */
static void test_no_room_for_threads(void **state)
{
    (void)state;
    if (SANITIZED) /* their own tables need the address space */
        skip();
    struct rlimit old, low;
    assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
    low = (struct rlimit){.rlim_cur = (rlim_t)1 << 30, .rlim_max = old.rlim_max};
    struct teg_pool *pool = NULL;
    struct teg_error err = {0};
    enum teg_status status = TEG_OK;
    const bool set = setrlimit(RLIMIT_AS, &low) == 0;
    void *const probe = mmap(NULL, (size_t)2 << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const bool limited = set && probe == MAP_FAILED; /* emulators do not keep the limit */
    if (limited)
        status = teg_pool_new(TEG_POOL_MAX_THREADS, NULL, &pool, &err);
    if (probe != MAP_FAILED)
        munmap(probe, (size_t)2 << 30);
    assert_int_equal(setrlimit(RLIMIT_AS, &old), 0);
    if (!limited || (status == TEG_OK && (teg_pool_free(pool), true))) /* small stacks by ulimit fit after all */
        skip();
    assert_int_equal(status, TEG_ERR_MEMORY);
    assert_null(pool);
    assert_non_null(
        strstr(err.message, "cannot start threads: operating system: expected 256 threads, found room for "));
}

/* ---- big and little CPUs ---- */

/* Worker i is on CPU i; each slice notes who ran it and takes as long as its worker's CPU needs. */
struct uneven {
    const uint32_t *speeds;
    atomic_size_t n_taken[8];
    atomic_size_t n_once;
    unsigned slice_us; /* on a CPU of speed 100 */
    bool is_paced;
};

static uint32_t cpu_is_worker(void *ctx, size_t worker)
{
    (void)ctx;
    return (uint32_t)worker;
}

static void uneven_slice(void *ctx, size_t slice, size_t worker)
{
    struct uneven *const u = ctx;
    (void)slice;
    atomic_fetch_add(&u->n_taken[worker], 1);
    atomic_fetch_add(&u->n_once, 1);
    if (u->is_paced)
        usleep(u->slice_us * 100 / u->speeds[worker]);
}

static struct teg_pool *uneven_pool(const uint32_t *speeds, size_t n)
{
    const struct teg_pool_places places = {.speeds = speeds, .n_speeds = n, .cpu_of = cpu_is_worker};
    struct teg_pool *pool = NULL;
    assert_int_equal(teg_pool_new_placed(n, &places, NULL, &pool, NULL), TEG_OK);
    return pool;
}

/* One CPU is twenty times slower than the other three: once speeds are known, it takes no slice of a short job. */
static void test_slow_cpu_leaves_short_jobs(void **state)
{
    (void)state;
    static const uint32_t speeds[4] = {100, 100, 100, 5};
    struct teg_pool *const pool = uneven_pool(speeds, 4);
    struct uneven u = {.speeds = speeds, .slice_us = 2000, .is_paced = true};
    for (int i = 0; i < 4; i++) /* everybody has been seen once */
        teg_pool_run(pool, uneven_slice, &u, 8);
    atomic_store(&u.n_taken[3], 0);
    for (int i = 0; i < 10; i++)
        teg_pool_run(pool, uneven_slice, &u, 8);
    assert_int_equal(atomic_load(&u.n_taken[3]), 0);
    assert_int_equal(atomic_load(&u.n_once), 14 * 8);
    teg_pool_free(pool);
}

/* Of a long job it takes what it is worth, and leaves the end alone. */
static void test_slow_cpu_helps_with_long_jobs(void **state)
{
    (void)state;
    static const uint32_t speeds[2] = {100, 25};
    struct teg_pool *const pool = uneven_pool(speeds, 2);
    struct uneven u = {.speeds = speeds, .slice_us = 1000, .is_paced = true};
    for (int i = 0; i < 3; i++)
        teg_pool_run(pool, uneven_slice, &u, 60);
    const size_t slow = atomic_load(&u.n_taken[1]);
    assert_int_equal(atomic_load(&u.n_once), 180);
    assert_true(slow > 0 && slow < 90);
    teg_pool_free(pool);
}

/* Whatever speeds say, also about a caller that is the slowest, and about unknown CPUs: every slice once. */
static void test_any_speeds(void **state)
{
    (void)state;
    static const uint32_t rows[][4] = {{1, 100, 100, 100}, {100, 1, 1, 1}, {0, 5, 0, 7}, {3, 3, 3, 3}, {9, 8, 7, 6}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        struct teg_pool *const pool = uneven_pool(rows[r], 4);
        static struct job job;
        for (size_t i = 0; i < 200; i++)
            assert_true(run_once(pool, &job, i % 40));
        teg_pool_free(pool);
    }
}

#if defined(__linux__)
struct seen_masks {
    cpu_set_t masks[2];
    atomic_int n;
};

static void note_mask(void *ctx, size_t slice, size_t worker)
{
    struct seen_masks *const s = ctx;
    (void)slice;
    (void)sched_getaffinity(0, sizeof(cpu_set_t), &s->masks[worker & 1]);
    atomic_fetch_add(&s->n, 1);
    usleep(2000); /* so that both take one */
}

/* Only where asked for, and the caller only between enter and leave. */
static void test_pinning(void **state)
{
    (void)state;
    cpu_set_t before, after;
    uint32_t ours[2];
    size_t n = 0;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    for (uint32_t i = 0; i < CPU_SETSIZE && n < 2; i++)
        if (CPU_ISSET(i, &before))
            ours[n++] = i;
    if (n < 2)
        skip();
    const struct teg_pool_places places = {.pin_to = ours, .n_pin_to = 2};
    struct teg_pool *pool = NULL;
    struct teg_pool_caller caller;
    struct seen_masks seen = {0};
    assert_int_equal(teg_pool_new_placed(2, &places, NULL, &pool, NULL), TEG_OK);
    teg_pool_enter(pool, &caller);
    for (int i = 0; i < 20; i++)
        teg_pool_run(pool, note_mask, &seen, 8);
    teg_pool_leave(&caller);
    assert_int_equal(atomic_load(&seen.n), 160);
    for (size_t i = 0; i < 2; i++)
        assert_true(CPU_COUNT(&seen.masks[i]) == 1 && CPU_ISSET(ours[i], &seen.masks[i]));
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
    teg_pool_free(pool);
    pool = pool_of(2);
    teg_pool_enter(pool, &caller);
    assert_false(caller.is_pinned);
    teg_pool_leave(&caller);
    teg_pool_free(pool);
}
#endif

static void test_free_accepts_null(void **state)
{
    (void)state;
    teg_pool_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_slice_once),
        cmocka_unit_test(test_many_small_jobs),
        cmocka_unit_test(test_oversubscribed),
        cmocka_unit_test(test_sleeping_workers_wake),
        cmocka_unit_test(test_two_callers_at_once),
        cmocka_unit_test(test_results_are_visible),
        cmocka_unit_test(test_thread_count_is_checked),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_no_room_for_threads),
        cmocka_unit_test(test_free_accepts_null),
        cmocka_unit_test(test_slow_cpu_leaves_short_jobs),
        cmocka_unit_test(test_slow_cpu_helps_with_long_jobs),
        cmocka_unit_test(test_any_speeds),
#if defined(__linux__)
        cmocka_unit_test(test_pinning),
#endif
    };
    alarm(300); /* a lost wake-up is a hang */
    return cmocka_run_group_tests_name("base pool", tests, NULL, NULL);
}
