/* contract.h: how to call a function of a program that is a language model: what each input means, of which shape it is
 * for a call, which outputs are the logits, and how many tokens a call may have.
 *
 * Derived from names, types and shapes as exporters write them; tegula.json overrides each. What is derived is only how
 * to call: what the program computes is not looked at (pass/raise does that). */
#ifndef TEG_CONTRACT_H
#define TEG_CONTRACT_H

#include "eval/eval.h"
#include "manifest.h"
#include "mil/program.h"

struct teg_lm_input {
    const struct teg_mil_var *var;
    const struct teg_mil_feature *feature;
    enum teg_lm_role role;
};

struct teg_lm_cache { /* keys or values that go in and come out (lm_cache.c) */
    uint32_t input;   /* of the contract's inputs */
    uint32_t slots_dim;
    size_t output; /* of the function's block */
};

enum teg_lm_logits { TEG_LM_NO_LOGITS, TEG_LM_LAST_LOGITS, TEG_LM_ALL_LOGITS };

struct teg_contract {
    size_t function;                   /* of the program */
    const struct teg_lm_input *inputs; /* those that are no states, in the function's order */
    size_t n_inputs, n_states;
    const struct teg_mil_feature *tokens; /* of the token input: its shapes are those of a call */
    uint32_t tokens_dim;
    size_t least, most;                /* tokens in a call */
    const struct teg_lm_cache *caches; /* [n_caches] */
    size_t n_caches;
    bool grows, rolls;       /* caches: P slots in and P + T out; or always as many, the newest last */
    size_t pad, cache_slots; /* slots before the first token where they grow; where they do not, all of them */
    const size_t *logits;    /* outputs of the function's block that make one row together, in order */
    size_t n_logits;
    enum teg_lm_logits rows;
    uint32_t vocab;   /* 0: no logits */
    uint32_t context; /* tokens that states and masks have room for; 0: not said */
};

/* Fails with the input or output that has no meaning. `manifest` may be all zero. */
enum teg_status teg_contract_find(const struct teg_mil_program *program, size_t function,
                                  const struct teg_manifest *manifest, struct teg_arena *arena,
                                  struct teg_contract *contract, struct teg_error *err);

/* What a feature means, by tegula.json or its name and type; UNKNOWN: nothing that a language model has. */
enum teg_lm_role teg_contract_input_role(const struct teg_mil_feature *feature, const struct teg_manifest *manifest);
enum teg_lm_role teg_contract_output_role(const struct teg_mil_feature *feature, const struct teg_manifest *manifest,
                                          bool is_only_output);

/* Pairs inputs and outputs of role cache. *why: not NULL where the input *about has no pair. */
enum teg_status teg_contract_caches(const struct teg_mil_program *program, size_t function, struct teg_arena *arena,
                                    struct teg_contract *contract, const char **about, const char **why,
                                    struct teg_error *err);
bool teg_contract_gives_cache(const struct teg_contract *contract, size_t output);
/* As it is before the first call; NULL: memory. */
struct teg_array *teg_contract_empty_cache(const struct teg_contract *contract, size_t index,
                                           const struct teg_allocator *allocator);
/* Of all caches when they hold n_tokens. */
uint64_t teg_contract_cache_bytes(const struct teg_contract *contract, size_t n_tokens);
/* Where the first token of the sequence lies when `before` came before this call; less than 0: it fell out. */
int64_t teg_contract_first_slot(const struct teg_contract *contract, size_t before);

/* The number that a name ends with, or 0: logits2 comes before logits10. */
long teg_contract_number(const char *name);

/* A call: `real` tokens after `before` others, padded to `n`. */
struct teg_lm_call {
    const int32_t *ids; /* [real] */
    size_t before, real, n;
};
/* The least length that the function takes for at least `wanted` tokens; 0: none. */
size_t teg_contract_fit_up(const struct teg_contract *contract, size_t wanted);
/* The greatest for at most `wanted`; 0: none. */
size_t teg_contract_fit_down(const struct teg_contract *contract, size_t wanted);
/* Makes input `index`. */
enum teg_status teg_contract_input(const struct teg_contract *contract, size_t index, const struct teg_lm_call *call,
                                   const struct teg_allocator *allocator, struct teg_array **array,
                                   struct teg_error *err);
/* "inputIds [1, T]: tokens": a line for each input and output. */
void teg_contract_print(const struct teg_contract *contract, const struct teg_mil_program *program,
                        struct teg_buf *out);

#endif
