/* run/session.h: sessions over a plan, and what any session is: a table of the functions behind teg_session_* of
 * tegula.h. Two kinds exist, this one and that of programs that are evaluated op by op (lm_session.c); a session begins
 * with its base, so that session.c can dispatch without knowing either. _new and _bytes are not in the table: they need
 * a model. */
#ifndef TEG_RUN_SESSION_H
#define TEG_RUN_SESSION_H

#include "plan/plan.h"

struct teg_session_ops {
    enum teg_status (*prefill)(struct teg_session *session, const int32_t *ids, size_t n_ids,
                               const struct teg_prefill_options *options, struct teg_error *err);
    enum teg_status (*decode)(struct teg_session *session, int32_t id, struct teg_error *err);
    const float *(*logits)(const struct teg_session *session);
    size_t (*length)(const struct teg_session *session);
    const int32_t *(*tokens)(const struct teg_session *session);
    size_t (*context)(const struct teg_session *session);
    void (*memory)(const struct teg_session *session, struct teg_memory *memory);
    enum teg_status (*rewind)(struct teg_session *session, size_t n_tokens, struct teg_error *err);
    enum teg_status (*fork)(const struct teg_session *session, struct teg_session **fork, struct teg_error *err);
    void (*interrupt)(struct teg_session *session); /* async-signal-safe */
    const char *(*overflow)(const struct teg_session *session);
    void (*free)(struct teg_session *session);
};

struct teg_session_base {
    const struct teg_session_ops *ops;
};

/* What a session needs to know of its model. */
struct teg_run_model {
    const struct teg_plan *plan;
    const struct teg_allocator *allocator;
    const struct teg_cpu *cpu;
    uint64_t weights_bytes;
    uint32_t context_tokens;   /* trained for */
    uint32_t original_context; /* sessions with more context use long-context RoPE frequencies; 0: none */
    enum teg_kv_type default_kv;
    bool emulates_fp16; /* the plan is exact, the result of every step is rounded */
    /* "op NAME (layer 3)" of a step, for messages; with emulates_fp16. */
    void (*place)(const void *ctx, uint32_t step, char *text, size_t n);
    const void *place_ctx;
};

enum teg_status teg_run_session_new(const struct teg_run_model *model, const struct teg_session_options *options,
                                    struct teg_session **session, struct teg_error *err);
/* From now on calls back with the rows of every product; see run/executor.h. The session is of an exact plan. */
void teg_run_session_observe(struct teg_session *session,
                             void (*on_product)(void *ctx, uint32_t op, size_t n_rows, size_t k, const float *x,
                                                size_t stride),
                             void *ctx);
enum teg_status teg_run_session_bytes(const struct teg_run_model *model, const struct teg_session_options *options,
                                      size_t n_tokens, struct teg_memory *memory, struct teg_error *err);

#endif
