/* eval/strided.h: copies between two views of memory: what most shape ops are. */
#ifndef TEG_EVAL_STRIDED_H
#define TEG_EVAL_STRIDED_H

#include "eval/eval.h"

#define TEG_STRIDED_MAX (2 * TEG_MIL_MAX_RANK)

/* Element (i0, i1, …) goes from src + Σ i·src_stride to dst + Σ i·dst_stride; strides are in elements, src's may be
 * zero or negative. Dimensions may be added in any number up to TEG_STRIDED_MAX, outer ones first. */
struct teg_strided {
    uint32_t rank;
    size_t dims[TEG_STRIDED_MAX];
    ptrdiff_t dst_stride[TEG_STRIDED_MAX], src_stride[TEG_STRIDED_MAX];
    size_t item_bytes;
    char *dst;
    const char *src;
};

size_t teg_item_bytes(const struct teg_array *array);
/* Row-major strides of a shape. */
void teg_strides_of(uint32_t rank, const size_t *dims, ptrdiff_t *strides);
/* From the whole of src to the start of dst; moved on with `dst +=`, `src +=`. */
struct teg_strided teg_strided_between(struct teg_array *dst, const struct teg_array *src);
void teg_strided_dim(struct teg_strided *s, size_t size, ptrdiff_t dst_stride, ptrdiff_t src_stride);
void teg_strided_copy(const struct teg_eval_call *c, const struct teg_strided *s);

#endif
