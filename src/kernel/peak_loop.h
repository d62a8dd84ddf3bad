/* kernel/peak_loop.h: a loop of twelve chains of one instruction: more than latency times ports asks for, fewer than
 * there are registers. Private to the peak_*.c files, one for each instruction set.
 *
 * Written with inline assembly, because a compiler may fold, hoist or spill what computes nothing of use. The operands
 * are zeros: they cost what numbers cost, and never become denormal or infinite. */
#ifndef TEG_KERNEL_PEAK_LOOP_H
#define TEG_KERNEL_PEAK_LOOP_H

#include "kernel/peak.h"

#define TWELVE(op) op(0) op(1) op(2) op(3) op(4) op(5) op(6) op(7) op(8) op(9) op(10) op(11)

#if defined(__x86_64__)
#define CLOBBERS                                                                                                       \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm14", "xmm15"
#define CLEAR(i) "vpxor %%xmm" #i ", %%xmm" #i ", %%xmm" #i "\n\t"
#define AFTER __asm__ volatile("vzeroupper" : : : CLOBBERS);
#elif defined(__aarch64__)
#define CLOBBERS "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v14", "v15"
#define CLEAR(i) "movi v" #i ".16b, #0\n\t"
#define AFTER
#endif

/* Registers keep their values between the statements of one function: nothing in between touches them. */
#define LOOP(name, text, macs, instruction)                                                                            \
    static void name##_run(size_t steps)                                                                               \
    {                                                                                                                  \
        __asm__ volatile(TWELVE(CLEAR) CLEAR(14) CLEAR(15) : : : CLOBBERS);                                            \
        for (size_t i = 0; i < steps; i++)                                                                             \
            __asm__ volatile(TWELVE(instruction) : : : CLOBBERS);                                                      \
        AFTER                                                                                                          \
    }                                                                                                                  \
    const struct teg_peak teg_peak_##name = {text, 12 * (macs), name##_run};

#endif
