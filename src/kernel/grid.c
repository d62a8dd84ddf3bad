/* kernel/grid.c: which grid kernels go with a table of kernels.
 *
 * The choice follows linear_f32 of the caller's table, so a table that was forced down to an instruction set (tests)
 * gets grid kernels of the same set. Alternative not taken: slots in kernels.h, which language models would carry
 * around without a use. */
#include "kernel/grid.h"
#include "kernel/rows.h"

const struct teg_grid_kernels *teg_grid_kernels(const struct teg_kernels *kernels)
{
#if defined(__x86_64__)
    if (kernels->linear_f32 == teg_kernel_rows_exact_avx512.linear_f32)
        return &teg_grid_row_avx512;
    if (kernels->linear_f32 == teg_kernel_rows_exact_avx2.linear_f32)
        return &teg_grid_row_avx2;
#else
    (void)kernels;
#endif
    return &teg_grid_row_base;
}
