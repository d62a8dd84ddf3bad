/* cpu/cpu.h: what this CPU can do. Detected once by asking the CPU (and, for the registers it saves, the operating
 * system); a level can be forced down for tests, never up. */
#ifndef TEG_CPU_CPU_H
#define TEG_CPU_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Instruction sets as kernels are built for them: each is a file suffix (gemm_avx2.c) with its own compiler flags. Each
 * one implies the ones above it in its family. */
/*      name        file suffix   family */
#define TEG_ISAS(X)                                                                                                    \
    X(BASE, "base")             /* what the compiler targets by default: SSE2 or NEON */                               \
    X(AVX2, "avx2")             /* x86: AVX2 + FMA + F16C */                                                           \
    X(AVXVNNI, "avxvnni")       /* x86: AVX2 + AVX-VNNI */                                                             \
    X(AVX512, "avx512")         /* x86: AVX-512 F, BW, DQ, VL */                                                       \
    X(AVX512VNNI, "avx512vnni") /* x86: AVX-512 + VNNI */                                                              \
    X(DOTPROD, "dotprod")       /* Arm: NEON dot product */                                                            \
    X(I8MM, "i8mm")             /* Arm: int8 matrix multiply */

enum teg_isa {
#define X(name, suffix) TEG_ISA_##name,
    TEG_ISAS(X)
#undef X
        TEG_ISA_COUNT
};

struct teg_cpu {
    bool has[TEG_ISA_COUNT];
    bool has_fp16, has_bf16; /* x86: AVX-512 FP16 and BF16, beyond AVX512VNNI */
    uint32_t family, model;
    char name[64];
    uint32_t n_cpus; /* that this process may run on */
    size_t l2_bytes; /* of one core; 0: unknown */
};

void teg_cpu_detect(struct teg_cpu *cpu);

/* cpu/topology.c: the CPUs that this process may run on, and how they differ. */
#define TEG_CPU_MOST 1024u
struct teg_topology {
    uint32_t n_speeds;
    uint32_t speeds[TEG_CPU_MOST]; /* of CPU i, in any unit; 0: unknown or not ours */
    uint32_t n_order;
    uint32_t order[TEG_CPU_MOST]; /* ours, best first: fast ones, then second threads of a core */
};
/* `root` stands for "/sys/devices/system/cpu" (tests); NULL: that. Where it says nothing, all CPUs are alike. */
void teg_topology_detect(const char *root, struct teg_topology *topology);
const char *teg_isa_name(enum teg_isa isa);

#endif
