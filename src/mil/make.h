/* mil/make.h: ML programs made in memory, op by op.
 *
 * What the readers build from files, this builds from calls: the same struct teg_mil_program, so everything that takes
 * a program (dump, eval, raise, emit) takes a made one. Types of results are inferred here by the rule of each op, and
 * an op whose operands do not fit is an error at the call that makes it, not in Apple's compiler.
 *
 * Weights may be deferred: their type is known, their bytes are made when the writer reaches them, so a converted model
 * is never whole in memory. */
#ifndef TEG_MIL_MAKE_H
#define TEG_MIL_MAKE_H

#include "base/cursor.h"
#include "mil/program.h"

/* A weight that is made when it is written. Its constants are parts of one making: data and scales, say. Two constants
 * with equal (deferred, part) are one blob. */
enum { TEG_MIL_DEFERRED_PARTS = 5 };
struct teg_mil_deferred {
    /* Fills parts (of the sizes that the constants have) in `arena`, which lives until they are written. Called from
     * any thread, several weights at a time. */
    enum teg_status (*make)(const struct teg_mil_deferred *weight, struct teg_arena *arena,
                            struct teg_span parts[TEG_MIL_DEFERRED_PARTS], struct teg_error *err);
    const void *ctx; /* the maker's */
    uint64_t key;    /* which weight */
    size_t cost;     /* bytes of memory that making takes, for the writer's budget */
    /* All parts are in the file: what they were made from will not be read again soon. May be NULL. */
    void (*written)(const struct teg_mil_deferred *weight);
};

struct teg_mil_maker; /* a program being made */

enum teg_status teg_mil_make_new(uint32_t spec_version, const struct teg_allocator *allocator,
                                 struct teg_mil_maker **maker, struct teg_error *err);
/* Ends the making; the program is the caller's (teg_mil_free). NULL program: throws all away. */
enum teg_status teg_mil_make_end(struct teg_mil_maker *maker, struct teg_mil_program **program, struct teg_error *err);

/* The first failure stays: every call after it does nothing and returns TEG_MIL_NO_VAR, teg_mil_make_end reports it. So
 * a lowering reads like a formula. */

/* Begins a function, ends the one before. The first one that is made is the default. */
void teg_mil_make_function(struct teg_mil_maker *m, const char *name, uint32_t opset);
/* An array. Bounds of 0 and 0 mean: fixed at the default shape. */
teg_mil_var_id teg_mil_make_input(struct teg_mil_maker *m, const struct teg_mil_feature *feature);
teg_mil_var_id teg_mil_make_state(struct teg_mil_maker *m, const char *name, enum teg_mil_dtype dtype, uint32_t rank,
                                  const int64_t *dims);
/* Renames the variable to the output's name by an identity where it must. */
void teg_mil_make_output(struct teg_mil_maker *m, const char *name, teg_mil_var_id var);

/* A constant without a name (NULL) is named after its first use; equal small ones are one variable. */
teg_mil_var_id teg_mil_make_const(struct teg_mil_maker *m, const char *name, enum teg_mil_dtype dtype, uint32_t rank,
                                  const int64_t *dims, const void *bytes); /* copied */
teg_mil_var_id teg_mil_make_weight(struct teg_mil_maker *m, const char *name, enum teg_mil_dtype dtype, uint32_t rank,
                                   const int64_t *dims, const struct teg_mil_deferred *deferred, uint32_t part);
teg_mil_var_id teg_mil_make_ints(struct teg_mil_maker *m, uint32_t n, const int32_t *values); /* rank 1 */
teg_mil_var_id teg_mil_make_int(struct teg_mil_maker *m, int32_t value);                      /* scalars */
teg_mil_var_id teg_mil_make_bool(struct teg_mil_maker *m, bool value);
teg_mil_var_id teg_mil_make_float(struct teg_mil_maker *m, enum teg_mil_dtype dtype, float value);
teg_mil_var_id teg_mil_make_string(struct teg_mil_maker *m, const char *value);

/* Appends an op. `args`: name, variable, ended by a NULL name; several variables of one parameter (concat's values) by
 * repeating its name. One output, named `name` (made unique where it is taken), its type inferred. Parameters that are
 * left out and have a default get it. An op without outputs (write_state) returns TEG_MIL_NO_VAR. */
struct teg_mil_bind {
    const char *arg;
    teg_mil_var_id var;
};
teg_mil_var_id teg_mil_make_op(struct teg_mil_maker *m, const char *type, const char *name,
                               const struct teg_mil_bind *args);
/* The same for ops of several outputs (split, topk, constexpr_lut_to_sparse): "name", "name_1", …; returns how many. */
size_t teg_mil_make_ops(struct teg_mil_maker *m, const char *type, const char *name, const struct teg_mil_bind *args,
                        size_t capacity, teg_mil_var_id *outputs);
/* The same with a given type, for what has no rule here; several outputs. */
void teg_mil_make_op_typed(struct teg_mil_maker *m, const char *type, const char *name, const struct teg_mil_bind *args,
                           size_t n_outputs, const struct teg_mil_type *types, teg_mil_var_id *outputs);
const struct teg_mil_type *teg_mil_make_type(const struct teg_mil_maker *m, teg_mil_var_id var);

/* Description: model card and user-defined metadata. */
void teg_mil_make_card(struct teg_mil_maker *m, const char *description, const char *author, const char *license,
                       const char *version);
void teg_mil_make_metadata(struct teg_mil_maker *m, const char *key, const char *value, size_t n_bytes);

#endif
