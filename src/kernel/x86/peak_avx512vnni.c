/* kernel/x86/peak_avx512vnni.c: the peaks of 512 bits; those of FP16 and BF16 need more than the file's suffix says,
 * and are run only where the CPU has them. */
#include "kernel/peak_loop.h"

#define FMA(i) "vfmadd231ps %%zmm15, %%zmm14, %%zmm" #i "\n\t"
#define DOT(i) "vpdpbusd %%zmm15, %%zmm14, %%zmm" #i "\n\t"
#define BF16(i) "vdpbf16ps %%zmm15, %%zmm14, %%zmm" #i "\n\t"
#define FP16(i) "vfmadd231ph %%zmm15, %%zmm14, %%zmm" #i "\n\t"

LOOP(fma_zmm, "VFMADD231PS zmm", 16, FMA)
LOOP(dot_zmm, "VPDPBUSD zmm", 64, DOT)
LOOP(bf16_zmm, "VDPBF16PS zmm", 32, BF16)
LOOP(fp16_zmm, "VFMADD231PH zmm", 32, FP16)
