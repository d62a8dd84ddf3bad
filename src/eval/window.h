/* eval/window.h: the arithmetic of windows that slide over space, for convolutions and poolings.
 *
 * One to three spatial dims become three, the missing ones in front with size, kernel and stride 1, so that nobody else
 * has three cases. All products that a file can make large are checked here: whoever holds a window may add and
 * multiply its numbers in int64_t. */
#ifndef TEG_EVAL_WINDOW_H
#define TEG_EVAL_WINDOW_H

#include "eval/eval.h"

#define TEG_WINDOW_DIMS 3
#define TEG_WINDOW_MAX ((int64_t)1 << 40) /* of an extent with everything added */

struct teg_window {
    uint32_t rank;                                                              /* spatial dims in use: the last ones */
    int64_t in[TEG_WINDOW_DIMS], out[TEG_WINDOW_DIMS], kernel[TEG_WINDOW_DIMS]; /* sizes */
    int64_t stride[TEG_WINDOW_DIMS], dilation[TEG_WINDOW_DIMS];
    int64_t before[TEG_WINDOW_DIMS], after[TEG_WINDOW_DIMS]; /* padding */
};

/* Reads strides, dilations (convolutions only: absent is 1), pad_type and pad of the op and solves for the padding and
 * the output size. x is [N, C, space…]; kernel: x's rank - 2 sizes. ceil: round the number of steps up. */
enum teg_status teg_window_read(const struct teg_eval_call *c, const struct teg_array *x, const size_t *kernel,
                                const char *pad_type_otherwise, bool ceil, struct teg_window *w);
/* The same for a transposed convolution, whose output size may be given (output_shape). */
enum teg_status teg_window_read_transposed(const struct teg_eval_call *c, const struct teg_array *x,
                                           const size_t *kernel, struct teg_window *w);

/* Drops last dims that are 1 and that no window moves along ([H, 1] becomes [1, H]), so that rows along the last dim
 * are long. Memory stays as it is; `rank` no longer says which dims are in use. */
void teg_window_flatten(struct teg_window *w);

/* Outputs first … last-1 along dim d whose tap `offset` (a multiple of the dilation) falls inside the input. */
void teg_window_inside(const struct teg_window *w, uint32_t d, int64_t offset, int64_t *first, int64_t *last);

/* Meaningful where a tensor of these dims exists and has elements. */
static inline size_t teg_window_volume(const int64_t dims[TEG_WINDOW_DIMS])
{
    return (size_t)dims[0] * (size_t)dims[1] * (size_t)dims[2];
}

#endif
