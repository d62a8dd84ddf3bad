/* kernel/rows.h: the rows that table.c chooses from. A row fills the slots it improves and leaves the others NULL; one
 * file per instruction set defines it. Private to kernel/. */
#ifndef TEG_KERNEL_ROWS_H
#define TEG_KERNEL_ROWS_H

#include "kernel/attend.h"
#include "kernel/kernels.h"
#include "kernel/qgemm.h"

extern const struct teg_kernels teg_kernel_rows_base; /* every slot */
extern const struct teg_kernels teg_kernel_rows_exact_avx2;
extern const struct teg_kernels teg_kernel_rows_exact_avx512;

extern const struct teg_attend_row teg_attend_base;
extern const struct teg_attend_row teg_attend_avx2;
extern const struct teg_attend_row teg_attend_avxvnni;
extern const struct teg_attend_row teg_attend_avx512vnni;
extern const struct teg_attend_row teg_attend_dotprod;
extern const struct teg_attend_row teg_attend_i8mm;

extern const struct teg_qgemm teg_qgemm_base;
extern const struct teg_qgemm teg_qgemm_avx2;
extern const struct teg_qgemm teg_qgemm_avxvnni;
extern const struct teg_qgemm teg_qgemm_avx512vnni;
extern const struct teg_qgemm teg_qgemm_dotprod;
extern const struct teg_qgemm teg_qgemm_i8mm;

#endif
