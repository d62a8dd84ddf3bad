/* kernel/peak.h: how fast this CPU multiplies, at best, by each road that kernels may take.
 *
 * A loop is nothing but independent multiply-add instructions on registers, so its rate is what no kernel can pass; a
 * kernel's share of it says what is left to gain. A feature flag is not a speed: one CPU runs VDPBF16PS at twice the
 * rate of fp32, another at half. */
#ifndef TEG_KERNEL_PEAK_H
#define TEG_KERNEL_PEAK_H

#include "cpu/cpu.h"

enum teg_road { TEG_ROAD_INT8, TEG_ROAD_FP16, TEG_ROAD_BF16, TEG_ROAD_FP32, TEG_ROAD_COUNT };

struct teg_peak {
    const char *instruction;
    double macs_per_step; /* multiply-adds */
    void (*run)(size_t steps);
};

const char *teg_road_name(enum teg_road road);
/* The widest loop of this CPU; NULL where it has no instruction for that road. */
const struct teg_peak *teg_peak_select(const struct teg_cpu *cpu, enum teg_road road);
/* Reads n_bytes (a multiple of 4 KiB) once, from four places at a time, as the integer GEMM reads weights. Returns a
 * value that depends on all of them. */
uint64_t teg_peak_read(const void *bytes, size_t n_bytes);

#endif
