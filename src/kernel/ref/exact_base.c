/* kernel/ref/exact_base.c: the exact family for what the compiler targets by default: SSE2, NEON or plain C. It fills
 * every slot and stays as the definition. */
#include "kernel/ref/vec_base.h"

#define EXACT_ROW teg_kernel_rows_base
#include "kernel/ref/exact_tmpl.h"
