/* kernel/sizes.h: scratch layout that every instruction set keeps to, so that a caller need not know which one runs. */
#ifndef TEG_KERNEL_SIZES_H
#define TEG_KERNEL_SIZES_H

#include "kernel/kernels.h"

/* Rows of W decoded at a time for many tokens: 16 rows of K = 2048 are 128 KiB, half an L2 cache of 256 KiB. */
#define TEG_LINEAR_ROWS 16

/* Row stride of the decoded W: a multiple of 16 floats, but not of a page, where rows would share cache sets. */
static inline size_t teg_linear_stride(size_t k)
{
    return (k + 15) / 16 * 16 + 16;
}

/* Row stride of attention accumulators and of the decoded V tile. */
static inline size_t teg_attention_stride(size_t head_width)
{
    return (head_width + 15) / 16 * 16;
}

#endif
