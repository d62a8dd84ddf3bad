/* run/session.h: sessions over a plan; implements teg_session_* of tegula.h except _new and _bytes, which need a
 * model. */
#ifndef TEG_RUN_SESSION_H
#define TEG_RUN_SESSION_H

#include "plan/plan.h"

/* What a session needs to know of its model. */
struct teg_run_model {
    const struct teg_plan *plan;
    const struct teg_allocator *allocator;
    const struct teg_cpu *cpu;
    uint64_t weights_bytes;
    uint32_t context_tokens;   /* trained for */
    uint32_t original_context; /* sessions with more context use long-context RoPE frequencies; 0: none */
    enum teg_kv_type default_kv;
};

enum teg_status teg_run_session_new(const struct teg_run_model *model, const struct teg_session_options *options,
                                    struct teg_session **session, struct teg_error *err);
enum teg_status teg_run_session_bytes(const struct teg_run_model *model, const struct teg_session_options *options,
                                      size_t n_tokens, struct teg_memory *memory, struct teg_error *err);

#endif
