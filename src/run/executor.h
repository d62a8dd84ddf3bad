/* run/executor.h: runs a plan on one chunk of tokens. Allocates nothing: the session brings all memory. */
#ifndef TEG_RUN_EXECUTOR_H
#define TEG_RUN_EXECUTOR_H

#include <stdatomic.h>

#include "base/pool.h"
#include "plan/plan.h"
#include "run/cut.h"

/* Of tokens times ranges, and those of what ranges before came to. */
#define TEG_PASS_STATES (TEG_CUT_STATES + TEG_CUT_STATES / 2)

struct teg_pass {
    const struct teg_plan *plan;
    struct teg_pool *pool;
    float *activations;       /* plan->row_floats · max_tokens floats */
    size_t max_tokens;        /* the chunk size that memory was sized for */
    float *logits;            /* [plan->head_rows, V] */
    float *scratch;           /* plan->worker_floats (rounded up to 16) for each thread of the pool */
    size_t scratch_stride;    /* floats */
    float *states;            /* TEG_PASS_STATES · plan->state_floats floats, where the pool has several threads */
    enum teg_kv_type kv_type; /* not AUTO */
    bool long_context;        /* use the long-context RoPE frequencies where there are some */

    const int32_t *ids;    /* [n_tokens] */
    size_t n_tokens;       /* 1 … max_tokens */
    size_t first_position; /* tokens already in the cache */
    void *const *blocks;   /* KV blocks that cover first_position + n_tokens tokens */
    /* The executor's own: the rows that the current steps work on; rows of a lane of the chunk that ran last, n_tokens
     * where it was not cut into lanes. */
    size_t row0, n_rows, lane_rows;

    atomic_bool *stop; /* set from elsewhere: give up between stages */
    void (*on_value)(void *ctx, const char *name, size_t first_row, size_t n_rows, size_t width, const float *data);
    void *on_value_ctx;
    size_t chunk_row; /* row number of ids[0] in the caller's count, for on_value */
    /* Rows of x [n_rows, k] that a linear of the graph multiplies; NULL: no cost. Exact plans only. */
    void (*on_product)(void *ctx, uint32_t op, size_t n_rows, size_t k, const float *x, size_t stride);
    void *on_product_ctx;
    /* Not NULL: the result of every step is rounded to fp16, and this is the least step whose result overflowed, plus
     * 1; 0: none. */
    atomic_uint *overflow;
};

/* Everything but the head: appends the chunk's keys and values. False when it was stopped. */
bool teg_pass_body(struct teg_pass *pass);
/* Logits of rows row0 … row0 + n_rows - 1 of that chunk (at most plan->head_rows) into pass->logits. */
bool teg_pass_head(const struct teg_pass *pass, size_t row0, size_t n_rows);

#endif
