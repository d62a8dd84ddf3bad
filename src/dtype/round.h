/* dtype/round.h: float32 values rounded to fp16, in bulk. */
#ifndef TEG_DTYPE_ROUND_H
#define TEG_DTYPE_ROUND_H

#include <stdbool.h>
#include <stddef.h>

/* dst[i] = src[i] rounded to fp16 (to nearest even, overflow to infinity, NaN stays NaN); dst may be src. True where a
 * finite value became infinite. */
bool teg_round_f16(float *dst, const float *src, size_t n);
/* Whether rounding would change nothing. */
bool teg_is_f16(const float *x, size_t n);

#endif
