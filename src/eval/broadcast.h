/* eval/broadcast.h: loops over one to three operands whose shapes broadcast as in numpy. */
#ifndef TEG_EVAL_BROADCAST_H
#define TEG_EVAL_BROADCAST_H

#include "eval/eval.h"

#define TEG_BROADCAST_MAX 3

/* n results in a row: out[i] from in[k][i * stride[k]]; strides are in elements, and 0 or 1 but for odd shapes. */
typedef void (*teg_row_fn)(void *out, const void *const *in, const size_t *stride, size_t n);

/* Makes output 0 of the broadcast shape and fills it. cost: rough operations an element. */
enum teg_status teg_broadcast(struct teg_eval_call *c, const struct teg_array *const *in, size_t n_in,
                              enum teg_form form, teg_row_fn row, size_t cost);

#endif
