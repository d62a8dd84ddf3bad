/* kernel/ref/grid_base.c: the grid kernels for what the compiler targets by default. They stay as the definition. */
#include "kernel/ref/vec_base.h"

#define GRID_ROW teg_grid_row_base
#include "kernel/ref/grid_tmpl.h"
