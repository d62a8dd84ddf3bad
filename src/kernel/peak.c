/* kernel/peak.c: the loops, twelve chains each: more than latency times ports asks for, fewer than there are registers.
 *
 * Written with inline assembly, because a compiler may fold, hoist or spill what computes nothing of use. The operands
 * are zeros: they cost what numbers cost, and never become denormal or infinite. */
#include "kernel/peak.h"

#include <string.h>

#define ROAD_NAMES                                                                                                     \
    {                                                                                                                  \
        "int8", "fp16", "bf16", "fp32"                                                                                 \
    }

const char *teg_road_name(enum teg_road road)
{
    static const char *const names[TEG_ROAD_COUNT] = ROAD_NAMES;
    return names[road];
}

#define TWELVE(op) op(0) op(1) op(2) op(3) op(4) op(5) op(6) op(7) op(8) op(9) op(10) op(11)

#if defined(__x86_64__)
#define CLOBBERS                                                                                                       \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm14", "xmm15"
#define CLEAR(i) "vpxor %%xmm" #i ", %%xmm" #i ", %%xmm" #i "\n\t"
#define BEFORE __asm__ volatile(TWELVE(CLEAR) CLEAR(14) CLEAR(15) : : : CLOBBERS);
#define AFTER __asm__ volatile("vzeroupper" : : : CLOBBERS);
#define FMA_YMM(i) "vfmadd231ps %%ymm15, %%ymm14, %%ymm" #i "\n\t"
#define MADD_YMM(i) "vpmaddubsw %%ymm15, %%ymm14, %%ymm" #i "\n\t"
#define DOT_YMM(i) "%{vex%} vpdpbusd %%ymm15, %%ymm14, %%ymm" #i "\n\t"
#define FMA_ZMM(i) "vfmadd231ps %%zmm15, %%zmm14, %%zmm" #i "\n\t"
#define DOT_ZMM(i) "vpdpbusd %%zmm15, %%zmm14, %%zmm" #i "\n\t"
#define BF16_ZMM(i) "vdpbf16ps %%zmm15, %%zmm14, %%zmm" #i "\n\t"
#define FP16_ZMM(i) "vfmadd231ph %%zmm15, %%zmm14, %%zmm" #i "\n\t"
#elif defined(__aarch64__)
#define CLOBBERS "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v14", "v15"
#define CLEAR(i) "movi v" #i ".16b, #0\n\t"
#define BEFORE __asm__ volatile(TWELVE(CLEAR) CLEAR(14) CLEAR(15) : : : CLOBBERS);
#define AFTER
#define FMA_NEON(i) "fmla v" #i ".4s, v14.4s, v15.4s\n\t"
#define DOT_NEON(i) ".arch armv8.2-a+dotprod\n\tsdot v" #i ".4s, v14.16b, v15.16b\n\t"
#endif

/* Registers keep their values between the statements of one function: nothing in between touches them. */
#define LOOP(name, instruction)                                                                                        \
    static void name(size_t steps)                                                                                     \
    {                                                                                                                  \
        BEFORE                                                                                                         \
        for (size_t i = 0; i < steps; i++)                                                                             \
            __asm__ volatile(TWELVE(instruction) : : : CLOBBERS);                                                      \
        AFTER                                                                                                          \
    }

/*    road, instruction, multiply-adds of one, what the CPU must have, loop */
#if defined(__x86_64__)
#define PEAKS(X)                                                                                                       \
    X(INT8, "VPDPBUSD zmm", 64, cpu->has[TEG_ISA_AVX512VNNI], dot_zmm, DOT_ZMM)                                        \
    X(INT8, "VPDPBUSD ymm", 32, cpu->has[TEG_ISA_AVXVNNI], dot_ymm, DOT_YMM)                                           \
    X(INT8, "VPMADDUBSW ymm", 32, cpu->has[TEG_ISA_AVX2], madd_ymm, MADD_YMM)                                          \
    X(FP16, "VFMADD231PH zmm", 32, cpu->has_fp16, fp16_zmm, FP16_ZMM)                                                  \
    X(BF16, "VDPBF16PS zmm", 32, cpu->has_bf16, bf16_zmm, BF16_ZMM)                                                    \
    X(FP32, "VFMADD231PS zmm", 16, cpu->has[TEG_ISA_AVX512], fma_zmm, FMA_ZMM)                                         \
    X(FP32, "VFMADD231PS ymm", 8, cpu->has[TEG_ISA_AVX2], fma_ymm, FMA_YMM)
#elif defined(__aarch64__)
#define PEAKS(X)                                                                                                       \
    X(INT8, "SDOT", 16, cpu->has[TEG_ISA_DOTPROD], dot_neon, DOT_NEON)                                                 \
    X(FP32, "FMLA", 4, true, fma_neon, FMA_NEON)
#else
#define PEAKS(X)
#endif

#define X(road, instruction, macs, has, loop, op) LOOP(loop, op)
PEAKS(X)
#undef X

const struct teg_peak *teg_peak_select(const struct teg_cpu *cpu, enum teg_road road)
{
#define X(road_, instruction, macs, has, loop, op)                                                                     \
    static const struct teg_peak peak_##loop = {instruction, 12 * (macs), loop};                                       \
    if (road == TEG_ROAD_##road_ && (has))                                                                             \
        return &peak_##loop;
    PEAKS(X)
#undef X
    (void)cpu;
    (void)road;
    return NULL;
}

uint64_t teg_peak_read(const void *bytes, size_t n_bytes)
{
    typedef uint64_t vector __attribute__((vector_size(64)));
    const size_t quarter = n_bytes / 4;
    vector sums[4] = {{0}};
    for (size_t i = 0; i < quarter; i += sizeof(vector))
        for (size_t s = 0; s < 4; s++) {
            vector v;
            memcpy(&v, (const char *)bytes + s * quarter + i, sizeof v);
            sums[s] ^= v;
        }
    const vector all = sums[0] ^ sums[1] ^ sums[2] ^ sums[3];
    uint64_t sum = 0;
    for (size_t i = 0; i < 8; i++)
        sum ^= all[i];
    return sum;
}
