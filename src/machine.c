/* machine.c: how fast this machine multiplies and reads memory, measured in about a second.
 *
 * All threads run at once, because two cores of one machine share its memory and, when both work, its clock. The best
 * of several short runs counts: other programs only ever slow a loop down. */
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/error.h"
#include "base/pool.h"
#include "cpu/cpu.h"
#include "kernel/peak.h"
#include "tegula.h"

#define RUNS 5
#define RUN_SECONDS 0.02
#define READ_BYTES ((size_t)192 << 20) /* of all threads: beyond what most caches hold, small enough for a phone */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct job {
    const struct teg_peak *peak;
    size_t steps;
    const char *bytes;
    size_t bytes_each;
    uint64_t sums[TEG_POOL_MAX_THREADS]; /* so that reading is not left out */
};

static void run_slice(void *ctx, size_t slice, size_t worker)
{
    struct job *const job = ctx;
    (void)worker;
    if (job->peak)
        job->peak->run(job->steps);
    else
        job->sums[slice] = teg_peak_read(job->bytes + slice * job->bytes_each, job->bytes_each);
}

/* Seconds of the best run. */
static double best_of(struct teg_pool *pool, struct job *job)
{
    double best = 1e9;
    for (int i = 0; i < RUNS; i++) {
        const double start = now();
        teg_pool_run(pool, run_slice, job, teg_pool_threads(pool));
        const double took = now() - start;
        best = took < best ? took : best;
    }
    return best;
}

/* Billions of multiply-adds a second; 0: no such instruction. */
static double measure_road(struct teg_pool *pool, const struct teg_cpu *cpu, enum teg_road road)
{
    struct job job = {.peak = teg_peak_select(cpu, road), .steps = 1000};
    if (!job.peak)
        return 0;
    const double probe = best_of(pool, &job);
    job.steps = (size_t)(1000 * (1 + RUN_SECONDS / (probe + 1e-9)));
    return job.peak->macs_per_step * (double)job.steps * (double)teg_pool_threads(pool) / best_of(pool, &job) * 1e-9;
}

static enum teg_status measure_reading(struct teg_pool *pool, double *gb_per_second, struct teg_error *err)
{
    const struct teg_allocator *const allocator = teg_allocator_or_default(NULL);
    struct job job = {.bytes_each = READ_BYTES / teg_pool_threads(pool) / 16384 * 16384};
    const size_t n_bytes = job.bytes_each * teg_pool_threads(pool);
    char *const memory = allocator->alloc(allocator->ctx, n_bytes, TEG_ALIGN);
    if (!memory)
        return teg_base_fail_memory(err, "measuring memory", n_bytes);
    memset(memory, 1, n_bytes);
    job.bytes = memory;
    *gb_per_second = (double)n_bytes / best_of(pool, &job) * 1e-9;
    allocator->free(allocator->ctx, memory, n_bytes);
    return TEG_OK;
}

enum teg_status teg_machine_measure(uint32_t n_threads, struct teg_machine *machine, struct teg_error *err)
{
    struct teg_cpu cpu;
    struct teg_pool *pool = NULL;
    teg_cpu_detect(&cpu);
    memset(machine, 0, sizeof *machine);
    machine->n_threads = n_threads ? n_threads : cpu.n_cpus;
    memcpy(machine->cpu, cpu.name, sizeof machine->cpu);
    TRY(teg_pool_new(teg_min(machine->n_threads, TEG_POOL_MAX_THREADS), NULL, &pool, err));
    for (int road = 0; road < TEG_ROAD_COUNT; road++) {
        const struct teg_peak *const peak = teg_peak_select(&cpu, (enum teg_road)road);
        machine->roads[road].name = teg_road_name((enum teg_road)road);
        machine->roads[road].instruction = peak ? peak->instruction : "";
        machine->roads[road].gmacs_per_second = measure_road(pool, &cpu, (enum teg_road)road);
    }
    const enum teg_status status = measure_reading(pool, &machine->read_gb_per_second, err);
    teg_pool_free(pool);
    return status;
}
