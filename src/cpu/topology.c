/* cpu/topology.c: which CPUs there are and how fast they are beside one another.
 *
 * Linux says it in files: cpu_capacity (Arm: 1024 is the fastest core at its highest clock), else the highest clock of
 * cpufreq (x86 with two kinds of core), and which CPUs are threads of one core. Nothing is measured: a measurement
 * taken while something else runs would be remembered as a slow core. Elsewhere nothing is known, and all are alike. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__linux__)
#include <sched.h>
#endif

#include "cpu/cpu.h"

struct place {
    uint32_t cpu, speed;
    bool is_second; /* another thread of its core comes before it */
};

/* The first number in ROOT/cpuN/NAME, or -1. */
static long number_in(const char *root, uint32_t cpu, const char *name)
{
    char path[512];
    long value = -1;
    const int n = snprintf(path, sizeof path, "%s/cpu%u/%s", root, cpu, name);
    FILE *const file = n > 0 && (size_t)n < sizeof path ? fopen(path, "r") : NULL;
    if (!file)
        return -1;
    if (fscanf(file, "%ld", &value) != 1)
        value = -1;
    (void)fclose(file);
    return value;
}

/* CPUs of this process, one true each; all where the system does not say. */
static void find_ours(bool ours[TEG_CPU_MOST])
{
    memset(ours, true, TEG_CPU_MOST);
#if defined(__linux__)
    cpu_set_t set;
    for (uint32_t i = 0; sched_getaffinity(0, sizeof set, &set) == 0 && i < TEG_CPU_MOST; i++)
        ours[i] = i < CPU_SETSIZE && CPU_ISSET(i, &set);
#endif
}

static int by_rank(const void *a, const void *b)
{
    const struct place *const x = a, *const y = b;
    if (x->is_second != y->is_second)
        return x->is_second ? 1 : -1;
    if (x->speed != y->speed)
        return x->speed > y->speed ? -1 : 1;
    return x->cpu < y->cpu ? -1 : 1;
}

void teg_topology_detect(const char *root, struct teg_topology *t)
{
    static const char *const names[] = {"cpu_capacity", "cpufreq/cpuinfo_max_freq"};
    const char *name = NULL; /* one for all: their units differ */
    struct place places[TEG_CPU_MOST];
    bool ours[TEG_CPU_MOST];
    memset(t, 0, sizeof *t);
    memset(ours, true, sizeof ours);
    if (!root) {
        root = "/sys/devices/system/cpu";
        find_ours(ours);
    }
    for (uint32_t cpu = 0; cpu < TEG_CPU_MOST; cpu++) {
        const long first = ours[cpu] ? number_in(root, cpu, "topology/thread_siblings_list") : -1;
        if (first < 0)
            continue;
        for (size_t i = 0; i < sizeof names / sizeof *names && !name; i++)
            name = number_in(root, cpu, names[i]) > 0 ? names[i] : NULL;
        const long speed = name ? number_in(root, cpu, name) : -1;
        struct place *const place = &places[t->n_order++];
        *place = (struct place){cpu, speed > 0 && speed < INT32_MAX ? (uint32_t)speed : 0, first < (long)cpu};
        t->speeds[cpu] = place->speed;
        t->n_speeds = cpu + 1;
    }
    qsort(places, t->n_order, sizeof *places, by_rank);
    for (uint32_t i = 0; i < t->n_order; i++)
        t->order[i] = places[i].cpu;
}
