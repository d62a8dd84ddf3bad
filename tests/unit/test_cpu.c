/* tests/unit/test_cpu.c: CPU detection: sane numbers, implication chains, agreement with the compiler's own detection
 * where it has one, and which CPUs are fast on machines of other kinds. */
#include "cpu/cpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void is_sane(void **state)
{
    (void)state;
    struct teg_cpu cpu;
    memset(&cpu, 0xff, sizeof cpu);
    teg_cpu_detect(&cpu);
    assert_true(cpu.has[TEG_ISA_BASE]);
    assert_in_range(cpu.n_cpus, 1, 65536);
    assert_non_null(memchr(cpu.name, 0, sizeof cpu.name));
    assert_true(cpu.name[0] != 0);
    assert_true(cpu.l2_bytes == 0 || cpu.l2_bytes >= 16384);
}

static void later_sets_imply_earlier_ones(void **state)
{
    (void)state;
    struct teg_cpu cpu;
    teg_cpu_detect(&cpu);
    assert_true(!cpu.has[TEG_ISA_AVXVNNI] || cpu.has[TEG_ISA_AVX2]);
    assert_true(!cpu.has[TEG_ISA_AVX512] || cpu.has[TEG_ISA_AVX2]);
    assert_true(!cpu.has[TEG_ISA_AVX512VNNI] || cpu.has[TEG_ISA_AVX512]);
    assert_true(!cpu.has[TEG_ISA_I8MM] || cpu.has[TEG_ISA_DOTPROD]);
    assert_false(cpu.has[TEG_ISA_AVX2] && cpu.has[TEG_ISA_DOTPROD]);
}

static void agrees_with_the_compiler(void **state)
{
    (void)state;
#if defined(__x86_64__)
    struct teg_cpu cpu;
    teg_cpu_detect(&cpu);
    __builtin_cpu_init();
    assert_int_equal(cpu.has[TEG_ISA_AVX2], __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
    assert_int_equal(cpu.has[TEG_ISA_AVX512], __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                                                  __builtin_cpu_supports("avx512dq") &&
                                                  __builtin_cpu_supports("avx512vl"));
    assert_int_equal(cpu.has[TEG_ISA_AVX512VNNI], cpu.has[TEG_ISA_AVX512] && __builtin_cpu_supports("avx512vnni"));
#else
    skip();
#endif
}

static void names(void **state)
{
    (void)state;
    assert_string_equal(teg_isa_name(TEG_ISA_BASE), "base");
    assert_string_equal(teg_isa_name(TEG_ISA_AVX512VNNI), "avx512vnni");
    assert_string_equal(teg_isa_name(TEG_ISA_I8MM), "i8mm");
}

/* One line of a file below a folder that stands for the system's. */
static void put_line(const char *root, unsigned cpu, const char *name, const char *line)
{
    char command[400];
    assert_true(snprintf(command, sizeof command, "mkdir -p $(dirname %s/cpu%u/%s) && echo '%s' > %s/cpu%u/%s", root,
                         cpu, name, line, root, cpu, name) < 400);
    assert_int_equal(system(command), 0);
}

struct topology_case {
    const char *speed_file;
    struct {
        const char *siblings, *speed; /* speed NULL: no such file */
    } cpus[8];
    uint32_t order[8], speeds[8];
    uint32_t n_order;
};

static void topology_of(const struct topology_case *c)
{
    static struct teg_topology t;
    char root[] = "/tmp/teg-cpu-XXXXXX", command[64];
    assert_non_null(mkdtemp(root));
    for (unsigned i = 0; i < 8; i++) {
        if (c->cpus[i].siblings)
            put_line(root, i, "topology/thread_siblings_list", c->cpus[i].siblings);
        if (c->cpus[i].speed)
            put_line(root, i, c->speed_file, c->cpus[i].speed);
    }
    teg_topology_detect(root, &t);
    assert_int_equal(t.n_order, c->n_order);
    for (uint32_t i = 0; i < c->n_order; i++) {
        assert_int_equal(t.order[i], c->order[i]);
        assert_int_equal(t.speeds[i], c->speeds[i]);
    }
    (void)snprintf(command, sizeof command, "rm -rf %s", root);
    assert_int_equal(system(command), 0);
}

static void topologies(void **state)
{
    (void)state;
    static const struct topology_case cases[] = {
        /* A phone: little cores first in number. */
        {.speed_file = "cpu_capacity",
         .cpus = {{"0", "250"}, {"1", "250"}, {"2", "1024"}, {"3", "800"}},
         .n_order = 4,
         .order = {2, 3, 0, 1},
         .speeds = {250, 250, 1024, 800}},
        /* Two fast cores of two threads each, two slow ones. */
        {.speed_file = "cpufreq/cpuinfo_max_freq",
         .cpus = {{"0-1", "5200000"}, {"0-1", "5200000"}, {"2-3", "5200000"}, {"2-3", "5200000"}, {"4", "3900000"}},
         .n_order = 5,
         .order = {0, 2, 4, 1, 3},
         .speeds = {5200000, 5200000, 5200000, 5200000, 3900000}},
        /* A virtual machine that says nothing; nonsense counts as nothing. */
        {.speed_file = "cpu_capacity",
         .cpus = {{"0", NULL}, {"1", "fast"}, {"2", "-7"}},
         .n_order = 3,
         .order = {0, 1, 2},
         .speeds = {0, 0, 0}},
        {.n_order = 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        topology_of(&cases[i]);
}

static void own_topology(void **state)
{
    (void)state;
    static struct teg_topology t;
    struct teg_cpu cpu;
    teg_cpu_detect(&cpu);
    teg_topology_detect(NULL, &t);
    assert_true(t.n_order <= cpu.n_cpus && t.n_speeds <= TEG_CPU_MOST);
    for (uint32_t i = 0; i < t.n_order; i++)
        assert_true(t.order[i] < t.n_speeds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_sane),
        cmocka_unit_test(later_sets_imply_earlier_ones),
        cmocka_unit_test(agrees_with_the_compiler),
        cmocka_unit_test(names),
        cmocka_unit_test(topologies),
        cmocka_unit_test(own_topology),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
