/* kernel/peak.c: the list of peak loops, best first, and the reader of memory. */
#include "kernel/peak_loop.h"

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

/*    road, loop, what the CPU must have */
#if defined(__x86_64__)
#define PEAKS(X)                                                                                                       \
    X(INT8, dot_zmm, cpu->has[TEG_ISA_AVX512VNNI])                                                                     \
    X(INT8, dot_ymm, cpu->has[TEG_ISA_AVXVNNI])                                                                        \
    X(INT8, madd_ymm, cpu->has[TEG_ISA_AVX2])                                                                          \
    X(FP16, fp16_zmm, cpu->has_fp16)                                                                                   \
    X(BF16, bf16_zmm, cpu->has_bf16)                                                                                   \
    X(FP32, fma_zmm, cpu->has[TEG_ISA_AVX512])                                                                         \
    X(FP32, fma_ymm, cpu->has[TEG_ISA_AVX2])
#elif defined(__aarch64__)
#define PEAKS(X)                                                                                                       \
    X(INT8, dot_neon, cpu->has[TEG_ISA_DOTPROD])                                                                       \
    X(FP32, fma_neon, true)
#define FMA(i) "fmla v" #i ".4s, v14.4s, v15.4s\n\t"
extern const struct teg_peak teg_peak_fma_neon;
LOOP(fma_neon, "FMLA", 4, FMA)
#else
#define PEAKS(X)
#endif

const struct teg_peak *teg_peak_select(const struct teg_cpu *cpu, enum teg_road road)
{
#define X(road_, loop, has)                                                                                            \
    extern const struct teg_peak teg_peak_##loop;                                                                      \
    if (road == TEG_ROAD_##road_ && (has))                                                                             \
        return &teg_peak_##loop;
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
