/* pass/rescale.h: a residual stream that half floats can hold. */
#ifndef TEG_PASS_RESCALE_H
#define TEG_PASS_RESCALE_H

#include "graph/graph.h"

/* Divides the residual stream by 32 where it is the sum of a scaled embedding and of norms' results, as in Gemma 2 and
 * 3; *done says whether. Another graph, or one that has been divided before, stays as it is. The graph means the same
 * numbers, but for eps where that becomes less than the smallest half float. */
enum teg_status teg_rescale(struct teg_graph *graph, bool *done, struct teg_error *err);

#endif
