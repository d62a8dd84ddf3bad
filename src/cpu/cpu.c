/* cpu/cpu.c: CPU detection.
 *
 * x86: CPUID says what the core has, XGETBV what the operating system saves; an instruction set counts only when both
 * agree. Arm Linux: the auxiliary vector; Apple: sysctl. Each set implies those before it in its family (cpu.h), so a
 * CPU that breaks the chain is reported without the later ones. Alternative not taken: __builtin_cpu_supports, which
 * gcc 12 and clang 14 spell differently and which hides the register check. */
#include "cpu/cpu.h"

#include <string.h>
#include <unistd.h>

#if defined(__linux__)
#include <sched.h>
#endif
#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif
#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif
#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif

static const char *const isa_names[TEG_ISA_COUNT] = {
#define X(name, suffix) suffix,
    TEG_ISAS(X)
#undef X
};

const char *teg_isa_name(enum teg_isa isa)
{
    return isa_names[isa];
}

#if defined(__x86_64__) || defined(__i386__)

struct cpuid {
    uint32_t a, b, c, d;
};

static struct cpuid cpuid(uint32_t leaf, uint32_t subleaf)
{
    struct cpuid r = {0, 0, 0, 0};
    const uint32_t highest = (uint32_t)__get_cpuid_max(leaf & 0x80000000u, NULL);
    if (highest >= leaf)
        __cpuid_count(leaf, subleaf, r.a, r.b, r.c, r.d);
    return r;
}

static uint64_t xgetbv0(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static bool bit(uint32_t word, int n)
{
    return word >> n & 1;
}

static void detect_features(struct teg_cpu *cpu)
{
    const struct cpuid l1 = cpuid(1, 0), l7 = cpuid(7, 0), l71 = cpuid(7, 1);
    const uint64_t saved = bit(l1.c, 27) ? xgetbv0() : 0; /* OSXSAVE */
    const bool ymm = (saved & 0x06) == 0x06;              /* SSE and AVX state */
    const bool zmm = (saved & 0xe6) == 0xe6;              /* and mask registers, upper halves, upper sixteen */
    const bool avx2_fma_f16c = bit(l1.c, 28) && bit(l1.c, 12) && bit(l1.c, 29) && bit(l7.b, 5);
    const bool f_dq_bw_vl = bit(l7.b, 16) && bit(l7.b, 17) && bit(l7.b, 30) && bit(l7.b, 31);

    cpu->has[TEG_ISA_AVX2] = ymm && avx2_fma_f16c;
    cpu->has[TEG_ISA_AVXVNNI] = cpu->has[TEG_ISA_AVX2] && bit(l71.a, 4);
    cpu->has[TEG_ISA_AVX512] = cpu->has[TEG_ISA_AVX2] && zmm && f_dq_bw_vl;
    cpu->has[TEG_ISA_AVX512VNNI] = cpu->has[TEG_ISA_AVX512] && bit(l7.c, 11);
    cpu->has_fp16 = cpu->has[TEG_ISA_AVX512VNNI] && bit(l7.d, 23);
    cpu->has_bf16 = cpu->has[TEG_ISA_AVX512VNNI] && bit(l71.a, 5);

    cpu->family = l1.a >> 8 & 15;
    cpu->model = l1.a >> 4 & 15;
    if (cpu->family == 6 || cpu->family == 15)
        cpu->model |= (l1.a >> 16 & 15) << 4;
    if (cpu->family == 15)
        cpu->family += l1.a >> 20 & 255;
}

static void detect_name(struct teg_cpu *cpu)
{
    char brand[49] = {0};
    for (uint32_t i = 0; i < 3; i++) {
        const struct cpuid r = cpuid(0x80000002u + i, 0);
        memcpy(brand + 16 * i, &r, 16);
    }
    const char *start = brand;
    while (*start == ' ')
        start++;
    memcpy(cpu->name, start, strlen(start) + 1);
}

#elif defined(__aarch64__)

#define HWCAP_DOTPROD_BIT 20 /* AT_HWCAP: ASIMDDP */
#define HWCAP2_I8MM_BIT 13   /* AT_HWCAP2: I8MM */

#if defined(__APPLE__)
static bool sysctl_true(const char *name)
{
    int value = 0;
    size_t size = sizeof value;
    return sysctlbyname(name, &value, &size, NULL, 0) == 0 && value != 0;
}
#endif

static void detect_features(struct teg_cpu *cpu)
{
#if defined(__linux__)
    cpu->has[TEG_ISA_DOTPROD] = getauxval(AT_HWCAP) >> HWCAP_DOTPROD_BIT & 1;
    cpu->has[TEG_ISA_I8MM] = cpu->has[TEG_ISA_DOTPROD] && (getauxval(AT_HWCAP2) >> HWCAP2_I8MM_BIT & 1);
#elif defined(__APPLE__)
    cpu->has[TEG_ISA_DOTPROD] = sysctl_true("hw.optional.arm.FEAT_DotProd");
    cpu->has[TEG_ISA_I8MM] = cpu->has[TEG_ISA_DOTPROD] && sysctl_true("hw.optional.arm.FEAT_I8MM");
#else
    (void)cpu;
#endif
}

static void detect_name(struct teg_cpu *cpu)
{
    strcpy(cpu->name, "AArch64");
}

#else

static void detect_features(struct teg_cpu *cpu)
{
    (void)cpu;
}

static void detect_name(struct teg_cpu *cpu)
{
    strcpy(cpu->name, "unknown CPU");
}

#endif

/* CPUs that this process may run on: a container or taskset may allow fewer than the machine has. */
static uint32_t count_cpus(void)
{
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return (uint32_t)CPU_COUNT(&set);
#endif
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (uint32_t)n : 1;
}

static size_t l2_bytes(void)
{
#if defined(__APPLE__)
    uint64_t bytes = 0;
    size_t size = sizeof bytes;
    return sysctlbyname("hw.l2cachesize", &bytes, &size, NULL, 0) == 0 ? (size_t)bytes : 0;
#elif defined(_SC_LEVEL2_CACHE_SIZE)
    const long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return bytes > 0 ? (size_t)bytes : 0;
#else
    return 0;
#endif
}

void teg_cpu_detect(struct teg_cpu *cpu)
{
    memset(cpu, 0, sizeof *cpu);
    cpu->has[TEG_ISA_BASE] = true;
    detect_features(cpu);
    detect_name(cpu);
    cpu->n_cpus = count_cpus();
    cpu->l2_bytes = l2_bytes();
}
