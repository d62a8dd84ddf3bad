/* mil/program.h: a Core ML ML Program in memory, whatever it was read from (protobuf of a .mlpackage, MIL text of a
 * .mlmodelc).
 *
 * A program is functions; a function is one block of ops in order; ops bind parameters to variables. Every variable has
 * one definition and one declared type, and is known by its index in the program's table, so nothing downstream ever
 * looks up a name. Constants (`const` ops and inline values) are not ops here: they are variables with a value. The
 * constexpr_* ops stay ops: what a weight is encoded as is what the planner wants to know.
 *
 * Not taken: one op set for this and for graph/ (composites). The two differ in everything that a pass touches
 * (dynamic shapes, lists, nested blocks, opsets here; none of these there), and a program that is recognised whole
 * becomes a graph by one function (pass/raise), so sharing would only make both harder to read. */
#ifndef TEG_MIL_PROGRAM_H
#define TEG_MIL_PROGRAM_H

#include "base/arena.h"
#include "format/source.h"

#define TEG_MIL_MAX_RANK 8
#define TEG_MIL_UNKNOWN ((int64_t)-1) /* a dimension that is known only at run time */

/*    name     text name   bits  class */
#define TEG_MIL_DTYPES(X)                                                                                              \
    X(BOOL, "bool", 8, TEG_MIL_CLASS_BOOL)                                                                             \
    X(STRING, "string", 0, TEG_MIL_CLASS_STRING)                                                                       \
    X(FP16, "fp16", 16, TEG_MIL_CLASS_FLOAT)                                                                           \
    X(FP32, "fp32", 32, TEG_MIL_CLASS_FLOAT)                                                                           \
    X(FP64, "fp64", 64, TEG_MIL_CLASS_FLOAT)                                                                           \
    X(BF16, "bf16", 16, TEG_MIL_CLASS_FLOAT)                                                                           \
    X(FP8E4M3FN, "fp8e4m3fn", 8, TEG_MIL_CLASS_FLOAT)                                                                  \
    X(FP8E5M2, "fp8e5m2", 8, TEG_MIL_CLASS_FLOAT)                                                                      \
    X(INT4, "int4", 4, TEG_MIL_CLASS_INT)                                                                              \
    X(INT8, "int8", 8, TEG_MIL_CLASS_INT)                                                                              \
    X(INT16, "int16", 16, TEG_MIL_CLASS_INT)                                                                           \
    X(INT32, "int32", 32, TEG_MIL_CLASS_INT)                                                                           \
    X(INT64, "int64", 64, TEG_MIL_CLASS_INT)                                                                           \
    X(UINT1, "uint1", 1, TEG_MIL_CLASS_UINT)                                                                           \
    X(UINT2, "uint2", 2, TEG_MIL_CLASS_UINT)                                                                           \
    X(UINT3, "uint3", 3, TEG_MIL_CLASS_UINT)                                                                           \
    X(UINT4, "uint4", 4, TEG_MIL_CLASS_UINT)                                                                           \
    X(UINT6, "uint6", 6, TEG_MIL_CLASS_UINT)                                                                           \
    X(UINT8, "uint8", 8, TEG_MIL_CLASS_UINT)                                                                           \
    X(UINT16, "uint16", 16, TEG_MIL_CLASS_UINT)                                                                        \
    X(UINT32, "uint32", 32, TEG_MIL_CLASS_UINT)                                                                        \
    X(UINT64, "uint64", 64, TEG_MIL_CLASS_UINT)

enum teg_mil_dtype {
#define X(name, text, bits, class) TEG_MIL_##name,
    TEG_MIL_DTYPES(X)
#undef X
        TEG_MIL_DTYPE_COUNT
};

enum teg_mil_class {
    TEG_MIL_CLASS_BOOL,
    TEG_MIL_CLASS_STRING,
    TEG_MIL_CLASS_FLOAT,
    TEG_MIL_CLASS_INT,
    TEG_MIL_CLASS_UINT
};

struct teg_mil_dtype_info {
    const char *name;
    uint32_t bits;
    enum teg_mil_class class_;
};
const struct teg_mil_dtype_info *teg_mil_dtype_info(enum teg_mil_dtype dtype);

enum teg_mil_kind { TEG_MIL_TENSOR, TEG_MIL_STATE, TEG_MIL_LIST, TEG_MIL_TUPLE, TEG_MIL_DICT };

struct teg_mil_type {
    enum teg_mil_kind kind;
    enum teg_mil_dtype dtype;           /* tensor, state (of what it wraps) */
    int32_t rank;                       /* tensor, state; -1: known only at run time */
    int64_t dims[TEG_MIL_MAX_RANK];     /* TEG_MIL_UNKNOWN where not constant */
    const struct teg_mil_type *element; /* list: of what; dict: the values */
    const struct teg_mil_type *key;     /* dict */
    int64_t length;                     /* list: or TEG_MIL_UNKNOWN */
};

/* A constant. Tensor payloads are little-endian, row-major, sub-byte types packed from the lowest bit, as in the file;
 * `bytes` may point into a mapped weight file and be unaligned. */
struct teg_mil_deferred;
struct teg_mil_const {
    struct teg_mil_type type;
    const uint8_t *bytes; /* tensors of numbers and bools; NULL with n_bytes: deferred */
    size_t n_bytes;
    const struct teg_mil_deferred *deferred; /* made when it is written (mil/make.h); never in a program from a file */
    uint32_t deferred_part;
    const struct teg_string *strings;  /* tensors of strings */
    const struct teg_mil_const *items; /* list, tuple: the items; dict: key, value, key, value, … */
    size_t n_items;
    const char *file;     /* weight file it lies in, NULL: inline; for inspection */
    uint64_t file_offset; /* of its record */
};

typedef uint32_t teg_mil_var_id;
#define TEG_MIL_NO_VAR UINT32_MAX

struct teg_mil_var {
    const char *name;
    struct teg_mil_type type;
    const struct teg_mil_const *constant; /* NULL: computed, or an input */
    uint32_t op; /* index in its block of the op that makes it; UINT32_MAX: input or constant */
};

/* One parameter: `values` of concat binds several variables, most bind one. Attributes other than the name (constexpr
 * ops up to CoreML7 have theirs there) are parameters too. */
struct teg_mil_arg {
    const char *name;
    const teg_mil_var_id *vars;
    size_t n_vars;
};

struct teg_mil_block;
struct teg_mil_op {
    const char *type;               /* "slice_by_index" */
    const char *name;               /* its name attribute, or "" */
    const struct teg_mil_arg *args; /* sorted by name */
    size_t n_args;
    const teg_mil_var_id *outputs;
    size_t n_outputs;
    const struct teg_mil_block *blocks; /* cond: true, false; while_loop: condition, body */
    size_t n_blocks;
    uint64_t file_offset; /* where it stands in the file: for messages */
    uint32_t opset;       /* of the function that it came from, in a joined program; 0: its function's */
};

struct teg_mil_block {
    const teg_mil_var_id *inputs;
    size_t n_inputs;
    const teg_mil_var_id *outputs;
    size_t n_outputs;
    const struct teg_mil_op *ops;
    size_t n_ops;
};

/* Opsets by the spec version that brought them: CoreML5 = iOS15 = 6, … CoreML8 = iOS18 = 9, CoreML9 = iOS26 = 10. */
struct teg_mil_function {
    const char *name;
    const char *opset_name;
    uint32_t opset;             /* 6 … 10 */
    struct teg_mil_block block; /* inputs: in the order of the description, then the states in theirs */
};

/* ---- what the model description adds ---- */

enum teg_mil_feature_kind {
    TEG_MIL_FEATURE_ARRAY,
    TEG_MIL_FEATURE_IMAGE,
    TEG_MIL_FEATURE_STATE,
    TEG_MIL_FEATURE_INT64,
    TEG_MIL_FEATURE_DOUBLE,
    TEG_MIL_FEATURE_STRING,
    TEG_MIL_FEATURE_DICT_INT64, /* classifier probabilities by label */
    TEG_MIL_FEATURE_DICT_STRING,
    TEG_MIL_FEATURE_OTHER,
};
enum teg_mil_colour { TEG_MIL_RGB, TEG_MIL_BGR, TEG_MIL_GRAY, TEG_MIL_GRAY_FP16 };

struct teg_mil_feature {
    const char *name, *description;
    enum teg_mil_feature_kind kind;
    bool optional;
    enum teg_mil_dtype dtype; /* array, state */
    uint32_t rank;            /* of `shape`; 0 with has_shape false: not given */
    bool has_shape;
    int64_t shape[TEG_MIL_MAX_RANK];                          /* default shape */
    int64_t lower[TEG_MIL_MAX_RANK], upper[TEG_MIL_MAX_RANK]; /* upper -1: unbounded; equal to shape where fixed */
    const int64_t (*enumerated)[TEG_MIL_MAX_RANK];            /* NULL: none; entry 0 is the default */
    size_t n_enumerated;
    bool has_default; /* optional arrays: the value that stands for an input that is not given */
    double default_value;
    enum teg_mil_colour colour; /* image; then width and height, with ranges */
    int64_t width, height, min_width, max_width, min_height, max_height;
};

struct teg_mil_interface { /* of one function */
    const char *function;
    const struct teg_mil_feature *inputs, *outputs, *states;
    size_t n_inputs, n_outputs, n_states;
    const char *predicted_feature, *predicted_probabilities; /* classifiers; "" otherwise */
};

struct teg_mil_program {
    struct teg_arena arena; /* owns everything */
    uint32_t spec_version;
    const char *path, *format; /* "mlpackage" or "mlmodelc" */
    struct teg_mil_var *vars;
    size_t n_vars;
    struct teg_mil_function *functions;
    size_t n_functions;
    struct teg_mil_interface *interfaces; /* one a function, same order */
    const char *default_function;
    const char *author, *license, *version, *description;
    const struct teg_string (*user_metadata)[2]; /* key, value */
    size_t n_user_metadata;
    struct teg_mil_files *files;          /* mapped weight files; NULL: those of the program that this is a part of */
    struct teg_mil_program *const *parts; /* of a joined program: they own its names and constants */
    size_t n_parts;
};

/* Opens a .mlpackage or .mlmodelc directory. Everything a later stage relies on is checked here: definitions before
 * uses, no duplicate names in one scope, constants' sizes, description and functions agree on names and types. Model
 * types other than ML programs are an error that names the type. */
enum teg_status teg_mil_open(const char *path, const struct teg_allocator *allocator, struct teg_mil_program **program,
                             struct teg_error *err);
void teg_mil_free(struct teg_mil_program *program);

/* From memory (tests, fuzzing). `weights`: the one weight file, or NULL. Both must outlive the program, whose constants
 * point into them. */
enum teg_status teg_mil_parse_spec(const uint8_t *bytes, size_t n_bytes, const uint8_t *weights, size_t n_weight_bytes,
                                   const char *path, const struct teg_allocator *allocator,
                                   struct teg_mil_program **program, struct teg_error *err);
enum teg_status teg_mil_parse_text(const char *text, size_t n_bytes, const uint8_t *weights, size_t n_weight_bytes,
                                   const char *path, const struct teg_allocator *allocator,
                                   struct teg_mil_program **program, struct teg_error *err);

const struct teg_mil_function *teg_mil_find_function(const struct teg_mil_program *program, const char *name);
/* The parameter of that name, or NULL. */
const struct teg_mil_arg *teg_mil_find_arg(const struct teg_mil_op *op, const char *name);
/* Its one variable, or NULL where the parameter is absent. */
const struct teg_mil_var *teg_mil_arg_var(const struct teg_mil_program *program, const struct teg_mil_op *op,
                                          const char *name);

/* MIL-like text of a function, a line each op. */
struct teg_buf;
void teg_mil_dump(const struct teg_mil_program *program, const struct teg_mil_function *function, struct teg_buf *out);

#endif
