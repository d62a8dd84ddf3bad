/* eval/frame.h: what the evaluator keeps of a function (load.c) and of one run of it (eval.c), private to both and to
 * call.c, which gives ops their view of it.
 *
 * Invariant: frame.values holds one reference to the array of every variable that is alive, and nothing else keeps an
 * array alive during a run but the caller's inputs and the state object. */
#ifndef TEG_EVAL_FRAME_H
#define TEG_EVAL_FRAME_H

#include "eval/eval.h"

#define TEG_EVAL_MAX_DEPTH 64 /* of nested blocks */

struct teg_eval_block;

struct teg_eval_step {
    const struct teg_mil_op *op;
    const struct teg_eval_row *row;
    const struct teg_eval_block *blocks; /* as many as the op has */
    const teg_mil_var_id *dead;          /* variables of this block whose last use this is */
    size_t n_dead;
};

struct teg_eval_block {
    const struct teg_mil_block *block;
    const struct teg_eval_step *steps;
    size_t n_steps;
};

struct teg_eval {
    const struct teg_mil_program *program;
    const struct teg_mil_function *function;
    struct teg_eval_options options; /* defaults filled in */
    struct teg_arena arena;          /* steps and tables */
    struct teg_eval_block block;
    struct teg_array **constants; /* by variable; NULL where it is none */
    const bool *half_outputs;     /* by output: an fp16 value that a cast has widened at the very end */
    struct teg_kernels kernels;
    struct teg_pool *pool;
};

struct teg_eval_scratch { /* header of a block that lives as long as one op */
    struct teg_eval_scratch *next;
    size_t size_bytes;
};

struct teg_eval_frame {
    const struct teg_eval *eval;
    struct teg_array **values; /* by variable */
    const struct teg_eval_step *step;
    struct teg_eval_scratch *scratch;
    struct teg_allocator allocator; /* counts, limits, passes on */
    uint64_t live_bytes;
    uint64_t random;
    const volatile bool *stop;
    const struct teg_eval_watch *watch; /* NULL: none */
    struct teg_eval_report report;
    struct teg_error *err;
};

/* The array of a variable: computed, input or constant; NULL: none yet. */
static inline const struct teg_array *teg_frame_value(const struct teg_eval_frame *f, teg_mil_var_id var)
{
    return f->values[var] ? f->values[var] : f->eval->constants[var];
}

void teg_frame_init(struct teg_eval_frame *f, const struct teg_eval *eval, struct teg_array **values,
                    struct teg_error *err);
/* Runs one op of a frame and settles its outputs. */
enum teg_status teg_frame_step(struct teg_eval_frame *f, const struct teg_eval_step *step);
/* Takes over the reference to `array`; fails (and drops it) where it does not fit the variable's declared type. */
enum teg_status teg_frame_bind(struct teg_eval_call *c, teg_mil_var_id var, struct teg_array *array);
/* Exchanges a state's array; returns the one before. */
struct teg_array *teg_frame_swap_state(struct teg_eval_state *state, const char *name, struct teg_array *array);

#endif
