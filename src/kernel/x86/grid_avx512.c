/* kernel/x86/grid_avx512.c: the grid kernels with AVX-512 F, BW, DQ and VL. */
#include "kernel/x86/vec_avx512.h"

#define GRID_ROW teg_grid_row_avx512
#include "kernel/ref/grid_tmpl.h"
