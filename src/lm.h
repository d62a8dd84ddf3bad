/* lm.h: a language model that is a program run op by op: what recognising (pass/raise) left over. lm.c is the model,
 * lm_session.c its sessions, behind the same teg_session_* as those of a plan. */
#ifndef TEG_LM_H
#define TEG_LM_H

#include "contract.h"
#include "program.h"
#include "run/session.h"

/* Immutable, but for what `program` makes ready at first use. */
struct teg_lm {
    struct teg_program *program; /* not owned */
    const struct teg_allocator *allocator;
    struct teg_contract *contracts; /* functions that can be called, those of most tokens first */
    size_t n_contracts;
    uint32_t vocab, context, chunk; /* chunk: most tokens a call, 0: any */
    size_t n_caches;                /* that go in and come out, the same in all functions */
    bool overwrites, is_stateless;
    uint64_t weights_bytes; /* decoded to floats, by each function */
    uint64_t n_parameters;
    const char *contract_text;
};

/* Everything lies in `arena`; the program must outlive it. Fails with the reason of the function that was named, or of
 * the default one. */
enum teg_status teg_lm_new(struct teg_program *program, const struct teg_manifest *manifest, struct teg_arena *arena,
                           struct teg_lm **lm, struct teg_error *err);

/* The next call for the tokens that are left. */
struct teg_lm_step {
    const struct teg_contract *contract;
    size_t n, real; /* tokens of the call, and those of them that are no padding */
    bool keeps;     /* the state after it is that of `real` tokens */
};
/* all_rows: the logits of every token are wanted, not of the last alone. False: no function takes them. */
bool teg_lm_next(const struct teg_lm *lm, size_t before, size_t left, size_t chunk, bool all_rows,
                 struct teg_lm_step *step);

/* The outputs of one call. */
struct teg_lm_result {
    struct teg_array **arrays;
    size_t n_arrays;
    struct teg_eval_report report;
};
enum teg_status teg_lm_call(const struct teg_lm *lm, const struct teg_lm_step *step, const int32_t *ids, size_t before,
                            struct teg_eval_state *state, struct teg_array *const *caches, const volatile bool *stop,
                            const struct teg_eval_watch *watch, struct teg_lm_result *result, struct teg_error *err);
/* The cache that the call gave, still the result's. */
struct teg_array *teg_lm_cache_of(const struct teg_lm_step *step, const struct teg_lm_result *result, size_t index);
void teg_lm_result_free(const struct teg_lm *lm, struct teg_lm_result *result);
/* Logits [V] of row `row` of the call. */
enum teg_status teg_lm_row(const struct teg_lm *lm, const struct teg_lm_step *step, const struct teg_lm_result *result,
                           size_t row, float *logits, struct teg_error *err);

/* The number behind "layers", "blk" and the like in a weight's name; -1: none. */
long teg_lm_layer_in(const char *name);
/* "op NAME (layer 3)": the layer by the names of the weights up to the op. */
void teg_lm_place(const struct teg_lm *lm, const struct teg_contract *contract, const char *op, char *text, size_t n);

enum teg_status teg_lm_session_new(const struct teg_lm *lm, const struct teg_session_options *options,
                                   struct teg_session **session, struct teg_error *err);
enum teg_status teg_lm_session_bytes(const struct teg_lm *lm, const struct teg_session_options *options,
                                     size_t n_tokens, struct teg_memory *memory, struct teg_error *err);

#endif
