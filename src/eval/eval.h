/* eval/eval.h: runs any function of a MIL program, op by op.
 *
 * This is the general path: it knows every op of every opset and no idiom. (Language models whose program is recognised
 * take the planner's path instead.) Values are held in four forms only: float32 for every float type, int32 for every
 * integer type, one byte for bool, and strings; the declared dtype says how they are rounded or wrapped. So an op has
 * at most three loops, not twelve.
 *
 * Two modes. exact: float values are never rounded between ops; only inputs, outputs and states have their declared
 * type. emulate-fp16: the result of every op whose declared type is fp16 is rounded to it, and the first overflow to
 * infinity is reported with the op's name. In both, results of narrow integer types wrap. A value is freed after its
 * last use. */
#ifndef TEG_EVAL_EVAL_H
#define TEG_EVAL_EVAL_H

#include <stdatomic.h>

#include "base/pool.h"
#include "kernel/kernels.h"
#include "mil/program.h"

enum teg_form { TEG_FORM_F32, TEG_FORM_I32, TEG_FORM_BOOL, TEG_FORM_STRING, TEG_FORM_LIST };

/* A tensor, row-major and contiguous, or a list of tensors. Reference-counted; written only by the op that made it. */
struct teg_array {
    atomic_size_t n_refs;
    struct teg_array *owner;  /* whose data this is (it is held); NULL: its own */
    enum teg_mil_dtype dtype; /* declared; lists: of the items */
    enum teg_form form;
    uint32_t rank;
    size_t dims[TEG_MIL_MAX_RANK];
    size_t n;       /* elements; lists: items */
    size_t n_bytes; /* of data; 0 with an owner */
    union {
        float *f32;
        int32_t *i32;
        uint8_t *b;                 /* 0 or 1 */
        struct teg_string *strings; /* point into the program or the caller's input */
        struct teg_array **items;   /* lists; NULL where nothing was written yet */
        void *data;                 /* 64-byte aligned */
    };
};

enum teg_form teg_form_of(enum teg_mil_dtype dtype);

/* ---- loading and predicting ---- */

struct teg_eval; /* a function ready to run: op rows, decoded constants, lifetimes. Immutable; shared by threads. */

struct teg_eval_options {
    const struct teg_allocator *allocator;
    bool emulate_fp16;
    uint32_t n_threads;               /* 0: the CPUs there are */
    uint64_t max_loop_iterations;     /* while_loop is given up after so many; 0: 100 million */
    uint64_t max_bytes;               /* that a run may hold at once; 0: the machine's memory */
    uint64_t seed;                    /* random_* ops whose seed is not given */
    struct teg_eval *const *siblings; /* functions of this program that are loaded: their weights are shared; */
    size_t n_siblings;                /* some may be NULL */
};

/* Fails with the op's name, opset and position where an op (or its version) is unknown. The program must outlive it.
 * constexpr_* ops of constants are computed here, once. */
enum teg_status teg_eval_new(const struct teg_mil_program *program, const char *function,
                             const struct teg_eval_options *options, struct teg_eval **eval, struct teg_error *err);
void teg_eval_free(struct teg_eval *eval);

/* State values by name; zero at first. One state object serves all functions of a program. */
struct teg_eval_state;
enum teg_status teg_eval_state_new(const struct teg_mil_program *program, const struct teg_allocator *allocator,
                                   struct teg_eval_state **state, struct teg_error *err);
void teg_eval_state_free(struct teg_eval_state *state);
/* Borrowed until the next run or set; NULL: no such state. */
const struct teg_array *teg_eval_state_array(const struct teg_eval_state *state, const char *name);
/* Takes a reference; the type must be the state's own, the values are rounded to it. */
enum teg_status teg_eval_state_set(struct teg_eval_state *state, const char *name, struct teg_array *array,
                                   struct teg_error *err);
size_t teg_eval_state_count(const struct teg_eval_state *state);
const char *teg_eval_state_name(const struct teg_eval_state *state, size_t index);

/* What a run was; filled on success and on failure. */
struct teg_eval_report {
    const char *overflow_op; /* emulate-fp16: the first op that made an infinity of finite numbers; NULL: none */
    uint64_t peak_bytes;     /* most that values took at once, constants and inputs not counted */
    uint64_t n_ops;          /* ops run, those of loops each time */
};

/* inputs: one array for each non-state input of the function, in its order (the caller has put defaults in). outputs:
 * as many as the function's block has, set to arrays that the caller drops; NULL on failure. state: NULL only where the
 * function has none. stop: set from elsewhere to give up between ops; may be NULL, as may report. On failure no state
 * is changed. */
enum teg_status teg_eval_run(const struct teg_eval *eval, struct teg_array *const *inputs, struct teg_eval_state *state,
                             const volatile bool *stop, struct teg_array **outputs, struct teg_eval_report *report,
                             struct teg_error *err);

/* Sees the result of every op as it is made, by the variable's name. */
struct teg_eval_watch {
    void (*on_value)(void *ctx, const char *name, const struct teg_array *value);
    void *ctx;
};
/* The same run, watched; watch NULL: not. */
enum teg_status teg_eval_run_watched(const struct teg_eval *eval, struct teg_array *const *inputs,
                                     struct teg_eval_state *state, const volatile bool *stop,
                                     const struct teg_eval_watch *watch, struct teg_array **outputs,
                                     struct teg_eval_report *report, struct teg_error *err);

/* ---- what an op sees (eval/ops_*.c) ---- */

struct teg_eval_call {
    const struct teg_mil_op *op;
    uint32_t opset; /* 6 … 10: semantics in force */
    const struct teg_kernels *kernels;
    struct teg_pool *pool;
    const struct teg_allocator *allocator;
    struct teg_error *err;
    uint64_t *random;             /* generator of this run */
    struct teg_eval_frame *frame; /* private to eval.c */
};

/* The parameter's array, or NULL where it is absent. */
const struct teg_array *teg_arg(const struct teg_eval_call *c, const char *name);
size_t teg_arg_count(const struct teg_eval_call *c, const char *name); /* variables bound: `values` of concat */
const struct teg_array *teg_arg_at(const struct teg_eval_call *c, const char *name, size_t index);
/* The parameter's array; fails where it is absent or, in the second, not of that form. */
enum teg_status teg_arg_any(const struct teg_eval_call *c, const char *name, const struct teg_array **array);
enum teg_status teg_arg_form(const struct teg_eval_call *c, const char *name, enum teg_form form,
                             const struct teg_array **array);
/* Scalars (or one element) with a default for an absent parameter; they fail where the value is not of that form. */
enum teg_status teg_arg_int(const struct teg_eval_call *c, const char *name, int32_t otherwise, int32_t *out);
enum teg_status teg_arg_float(const struct teg_eval_call *c, const char *name, float otherwise, float *out);
enum teg_status teg_arg_bool(const struct teg_eval_call *c, const char *name, bool otherwise, bool *out);
enum teg_status teg_arg_string(const struct teg_eval_call *c, const char *name, const char *otherwise,
                               struct teg_string *out);
bool teg_string_is(struct teg_string string, const char *text);
/* Up to `capacity` integers; *n is SIZE_MAX where the parameter is absent. A scalar counts as one. */
enum teg_status teg_arg_ints(const struct teg_eval_call *c, const char *name, int32_t *out, size_t capacity, size_t *n);
/* An axis parameter, negatives counted from the end, checked against rank. */
enum teg_status teg_arg_axis(const struct teg_eval_call *c, const char *name, int32_t otherwise, uint32_t rank,
                             uint32_t *out);
/* An axis list as a mask of dims (bit d: dim d); absent: `otherwise`. Repeated axes fail. */
enum teg_status teg_arg_axes(const struct teg_eval_call *c, const char *name, uint32_t rank, uint32_t otherwise,
                             uint32_t *mask);
/* The declared dtype of output `index`. */
enum teg_mil_dtype teg_output_dtype(const struct teg_eval_call *c, size_t index);
/* Its declared shape; false where a dimension is known only at run time. */
bool teg_output_declared(const struct teg_eval_call *c, size_t index, uint32_t *rank, size_t *dims);
/* Makes output `index` (uninitialised): checks that rank and dims fit what is declared and that the size is sane. form:
 * what the op will write; a declared type of another form is refused, so that nobody writes floats into bools. */
enum teg_status teg_output(struct teg_eval_call *c, size_t index, enum teg_form form, uint32_t rank, const size_t *dims,
                           struct teg_array **array);
/* Makes an existing array output `index` (identity, reshape with a new shape over the same data). */
enum teg_status teg_output_share(struct teg_eval_call *c, size_t index, const struct teg_array *array, uint32_t rank,
                                 const size_t *dims);
/* Makes output `index` a list of n items of `dtype`, all NULL; also what a dictionary is: a list of keys and values. */
enum teg_status teg_output_list(struct teg_eval_call *c, size_t index, enum teg_mil_dtype dtype, size_t n,
                                struct teg_array **list);
/* Uninitialised, 64-byte aligned memory that lives until the op returns. */
enum teg_status teg_op_scratch(struct teg_eval_call *c, size_t n, size_t item_bytes, void **memory);
/* "cannot run op: NAME (TYPE, iOSxx): WHAT: expected …, found …; …": fills err with the op named. */
enum teg_status teg_op_fail(const struct teg_eval_call *c, enum teg_status status, const char *format, ...)
    TEG_PRINTF(3, 4);
#define OP_FAIL(c, status, ...) return (void)teg_op_fail((c), (status), __VA_ARGS__), (status)
/* teg_pool_run, but slices that have not begun when the run is stopped are left out: what the op wrote is thrown away
 * then. Long loops that are no slices ask. */
void teg_op_run(const struct teg_eval_call *c, teg_pool_fn fn, void *ctx, size_t n_slices);
bool teg_op_stopped(const struct teg_eval_call *c);
/* Splits n items over the pool when there are enough of them to be worth it (cost: rough operations per item). */
void teg_op_parallel(const struct teg_eval_call *c, size_t n, size_t cost,
                     void (*fn)(void *ctx, size_t begin, size_t end), void *ctx);

/* "2x3x4" of a shape into text, for messages. */
struct teg_shape_text {
    char text[24 * TEG_MIL_MAX_RANK];
};
struct teg_shape_text teg_shape_text(uint32_t rank, const size_t *dims);

/* Arrays outside of ops. */
struct teg_array *teg_array_new(const struct teg_allocator *allocator, enum teg_mil_dtype dtype, uint32_t rank,
                                const size_t *dims); /* NULL: no memory or absurd size */
struct teg_array *teg_array_list_new(const struct teg_allocator *allocator, enum teg_mil_dtype dtype,
                                     size_t n); /* of NULLs; the list will hold a reference to each item */
struct teg_array *teg_array_ref(struct teg_array *array);
void teg_array_drop(const struct teg_allocator *allocator, struct teg_array *array);
/* The array as a value of `dtype` of the same form: itself (one more reference) where nothing changes, else a rounded
 * copy. NULL: no memory. */
struct teg_array *teg_array_as(const struct teg_allocator *allocator, struct teg_array *array,
                               enum teg_mil_dtype dtype);
/* A constant of the program, decoded. */
enum teg_status teg_array_from_const(const struct teg_allocator *allocator, const struct teg_mil_const *constant,
                                     const char *name, struct teg_array **array, struct teg_error *err);

typedef enum teg_status (*teg_eval_fn)(struct teg_eval_call *c);

/* One row an op and version: in force from `opset` on until a row of the same type with a higher one. */
struct teg_eval_row {
    const char *type;
    uint32_t opset;
    teg_eval_fn fn;
};
/* Each ops_*.c ends with its table; table.c lists the tables. `type` NULL ends one. */
extern const struct teg_eval_row teg_eval_rows_control[], teg_eval_rows_unary[], teg_eval_rows_binary[],
    teg_eval_rows_reduce[], teg_eval_rows_shape[], teg_eval_rows_slice[], teg_eval_rows_layout[], teg_eval_rows_fill[],
    teg_eval_rows_gather[], teg_eval_rows_scatter[], teg_eval_rows_sort[], teg_eval_rows_nms[], teg_eval_rows_random[],
    teg_eval_rows_linear[], teg_eval_rows_attention[], teg_eval_rows_conv[], teg_eval_rows_conv_transpose[],
    teg_eval_rows_pool[], teg_eval_rows_norm[], teg_eval_rows_softmax[], teg_eval_rows_image[], teg_eval_rows_resize[],
    teg_eval_rows_recurrent[], teg_eval_rows_constexpr[], teg_eval_rows_list[], teg_eval_rows_classify[];

/* The row in force, or NULL. */
const struct teg_eval_row *teg_eval_find_row(const char *type, uint32_t opset);

#endif
