/* kernel/arm/peak_dotprod.c: the peak of int8 dot products. */
#include "kernel/peak_loop.h"

#define DOT(i) "sdot v" #i ".4s, v14.16b, v15.16b\n\t"

LOOP(dot_neon, "SDOT", 16, DOT)
