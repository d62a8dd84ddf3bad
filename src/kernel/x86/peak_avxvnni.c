/* kernel/x86/peak_avxvnni.c: the peak of int8 dot products on 256 bits. */
#include "kernel/peak_loop.h"

#define DOT(i) "%{vex%} vpdpbusd %%ymm15, %%ymm14, %%ymm" #i "\n\t"

LOOP(dot_ymm, "VPDPBUSD ymm", 32, DOT)
