/* kernel/x86/exact_avx512.c: the exact family with AVX-512 F, BW, DQ and VL. */
#include "kernel/x86/vec_avx512.h"

#define EXACT_ROW teg_kernel_rows_exact_avx512
#include "kernel/ref/exact_tmpl.h"
