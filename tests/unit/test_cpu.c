/* tests/unit/test_cpu.c: CPU detection: sane numbers, implication chains, and agreement with the compiler's own
 * detection where it has one. */
#include "cpu/cpu.h"

#include <setjmp.h>
#include <stdarg.h>
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_sane),
        cmocka_unit_test(later_sets_imply_earlier_ones),
        cmocka_unit_test(agrees_with_the_compiler),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
