/* kernel/x86/grid_avx2.c: the grid kernels with AVX2 and FMA. */
#include "kernel/x86/vec_avx2.h"

#define GRID_ROW teg_grid_row_avx2
#include "kernel/ref/grid_tmpl.h"
