/* plan/work.h: what a forward pass costs, from its plan: multiply-adds and bytes, no clock. */
#ifndef TEG_PLAN_WORK_H
#define TEG_PLAN_WORK_H

#include "plan/plan.h"

struct teg_plan_work {
    uint64_t int8_macs;      /* packed weights times quantized activations */
    uint64_t float_macs;     /* other weights */
    uint64_t attention_macs; /* of the keys that rows see */
    uint64_t weight_bytes;   /* as the kernels read them; of an embedding only the rows */
};
/* Adds one pass of n_tokens tokens behind first_position others; head_rows of them have logits. */
void teg_plan_work(const struct teg_plan *plan, size_t first_position, size_t n_tokens, size_t head_rows,
                   struct teg_plan_work *work);

#endif
