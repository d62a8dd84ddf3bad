/* eval/index.h: the rules for indices that gather and scatter ops get at run time. */
#ifndef TEG_EVAL_INDEX_H
#define TEG_EVAL_INDEX_H

#include "eval/eval.h"

#define TEG_INDEX_OUTSIDE SIZE_MAX

/* Settles all of `indices`: element i against limits[i % n_limits]. Up to iOS16 a negative index counts from the end
 * and one outside fails. From iOS17 on a negative index is outside, and outside fails where validate_indices is true
 * and is TEG_INDEX_OUTSIDE otherwise: gather then gives zeros, scatter does nothing. *out lives until the op returns.
 */
enum teg_status teg_settle_indices(struct teg_eval_call *c, const struct teg_array *indices, const size_t *limits,
                                   size_t n_limits, size_t **out);

#endif
