/* kernel/x86/exact_avx2.c: the exact family with AVX2, FMA and F16C. */
#include "kernel/x86/vec_avx2.h"

#define EXACT_ROW teg_kernel_rows_exact_avx2
#include "kernel/ref/exact_tmpl.h"
