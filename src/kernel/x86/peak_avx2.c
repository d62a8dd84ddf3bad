/* kernel/x86/peak_avx2.c: the peaks of 256 bits. */
#include "kernel/peak_loop.h"

#define FMA(i) "vfmadd231ps %%ymm15, %%ymm14, %%ymm" #i "\n\t"
#define MADD(i) "vpmaddubsw %%ymm15, %%ymm14, %%ymm" #i "\n\t"

LOOP(fma_ymm, "VFMADD231PS ymm", 8, FMA)
LOOP(madd_ymm, "VPMADDUBSW ymm", 32, MADD)
