/* tests/kernel/kernel_test.h: what the kernel tests share: every instruction set this CPU can run, operands that touch
 * a guard page on one side, random numbers, comparison.
 *
 * The tests need no library, so that they also build for another CPU with one line and run in an emulator:
 *   aarch64-linux-gnu-gcc -static -O2 -D_GNU_SOURCE -Iinclude -Isrc -Itests tests/kernel/test_kernels_linear.c \
 *       src/kernel/table.c src/kernel/ref/exact_base.c src/dtype/dtype*.c src/cpu/cpu.c -lm -o t && qemu-aarch64 ./t */
#ifndef TEG_KERNEL_TEST_H
#define TEG_KERNEL_TEST_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernel/kernels.h"
#include "tap.h"

#define EPS 0x1p-24

/* ---- operands between guard pages ---- */

enum edge { EDGE_START, EDGE_END }; /* which side of the operand lies against a guard page */

#define MAX_OPERANDS 1200
static struct {
    void *map;
    size_t bytes;
} operands[MAX_OPERANDS];
static size_t n_operands;

/* `bytes` of memory filled with NaN patterns; one byte before (EDGE_START) or behind it (EDGE_END) faults. */
static inline void *guarded(size_t bytes, enum edge edge)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), body = (bytes + page - 1) / page * page;
    char *const map = mmap(NULL, body + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || n_operands == MAX_OPERANDS)
        abort();
    memset(map, 0xff, body + 2 * page);
    mprotect(map, page, PROT_NONE);
    mprotect(map + page + body, page, PROT_NONE);
    operands[n_operands].map = map;
    operands[n_operands++].bytes = body + 2 * page;
    return edge == EDGE_START ? map + page : map + page + body - bytes;
}

static inline float *guarded_floats(size_t n, enum edge edge)
{
    return guarded(n * sizeof(float), edge);
}

static inline void release_all(void)
{
    while (n_operands > 0) {
        n_operands--;
        munmap(operands[n_operands].map, operands[n_operands].bytes);
    }
}

/* Scratch has a fixed alignment, so only its end can be guarded, up to 64 bytes. */
static inline float *guarded_scratch(size_t n_floats)
{
    return guarded_floats((n_floats + 15) / 16 * 16, EDGE_END);
}

/* ---- random numbers ---- */

static uint64_t random_state = 0x9e3779b97f4a7c15u;

static inline uint32_t random_u32(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 32);
}

/* Roughly normal, variance 1. */
static inline float random_float(void)
{
    float sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (float)(random_u32() >> 8) * 0x1p-24f - 0.5f;
    return sum * 1.7320508f;
}

static inline void fill_random(float *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = random_float();
}

/* ---- comparison ---- */

/* Same bits, or both NaN. */
static inline bool same_bits(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

static inline bool all_same_bits(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!same_bits(a[i], b[i]))
            return false;
    return true;
}

/* Largest |a - b| / bound seen; a NaN or infinity where the reference has none counts as infinite. */
struct worst {
    double ratio;
};

static inline void worst_add(struct worst *w, double found, double expected, double bound)
{
    double ratio;
    if (isnan(expected) || isinf(expected))
        ratio = (isnan(expected) ? isnan(found) : found == expected) ? 0 : INFINITY;
    else
        ratio = fabs(found - expected) / bound;
    if (found == expected)
        ratio = 0;
    if (!(ratio <= w->ratio))
        w->ratio = isnan(ratio) ? INFINITY : ratio;
}

/* ---- instruction sets ---- */

/* Calls test() with each set of kernels that this build and CPU have. */
static inline void for_each_isa(void (*test)(const char *isa, const struct teg_kernels *k))
{
    struct teg_cpu cpu;
    teg_cpu_detect(&cpu);
    for (int isa = 0; isa < TEG_ISA_COUNT; isa++) {
        struct teg_kernels kernels;
        if (!teg_kernels_select_isa(&cpu, (enum teg_isa)isa, &kernels))
            continue;
        test(teg_isa_name((enum teg_isa)isa), &kernels);
        release_all();
    }
}

#endif
