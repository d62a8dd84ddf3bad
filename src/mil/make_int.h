/* mil/make_int.h: what the files of make.c share.
 *
 * A maker is a program that grows, and beside each variable what is known of its value: the rules of shape ops need
 * the numbers that a `shape` or a `concat` of constants gives, as far as they are known before a run. */
#ifndef TEG_MIL_MAKE_INT_H
#define TEG_MIL_MAKE_INT_H

#include "mil/impl.h"
#include "mil/make.h"

enum { TEG_MIL_MOST_KNOWN = 16, TEG_MIL_MOST_OUTPUTS = 64, TEG_MIL_MOST_PARAMETERS = 16 };
#define TEG_MIL_ANY INT64_MIN /* an element of a value that is known only at run time */

/* A vector (or scalar) of whole numbers as far as it is known. */
struct teg_mil_known {
    bool is_scalar;
    uint32_t n;
    int64_t at[TEG_MIL_MOST_KNOWN];
};

struct teg_mil_list {
    void *at;
    size_t n, capacity;
};

struct teg_mil_small; /* a small constant without a name, to be shared */
enum { TEG_MIL_SMALL_BUCKETS = 256 };

struct teg_mil_maker {
    struct teg_mil_program *program;
    struct teg_mil_reader reader; /* names; the checks that a program from a file passes too */
    enum teg_status status;       /* the first failure stays */
    struct teg_error error;
    size_t var_capacity, known_capacity;
    const struct teg_mil_known **known; /* [n_vars]; NULL: nothing */
    struct teg_mil_list functions, interfaces, metadata;
    /* the function that is being made */
    bool in_function;
    size_t names_mark, first_var;
    struct teg_mil_list ops, inputs, states, outputs, input_features, state_features, output_features;
    struct teg_mil_small *small[TEG_MIL_SMALL_BUCKETS];
};

/* An op in the making: its parameters as bound, and what its rule finds. */
struct teg_mil_making {
    struct teg_mil_maker *m;
    const char *type, *name;
    uint32_t opset;
    struct teg_mil_arg args[TEG_MIL_MOST_PARAMETERS];
    size_t n_args;
    size_t n_out; /* that the caller takes */
    struct teg_mil_type out[TEG_MIL_MOST_OUTPUTS];
    struct teg_mil_known known; /* of the first output; n 0 and not scalar: nothing */
    bool has_known;
};

/* A rule gives o->out from the bound parameters, or fails. */
typedef bool (*teg_mil_rule_fn)(struct teg_mil_making *o);
struct teg_mil_rule {
    const char *type;
    teg_mil_rule_fn infer;
    const char *required; /* parameters, by spaces */
    const char *optional; /* "axis=i0 epsilon=f1e-5 bias": with the default that is written out; "@8": since opset */
    uint32_t since;       /* opset that brought the op */
    int outputs;          /* -1: as many as its parameters say */
};
const struct teg_mil_rule *teg_mil_rule_of(const char *type);

/* ---- make.c ---- */

/* "cannot make ML program: function 'f': …"; the first one stays. */
void teg_mil_make_fail(struct teg_mil_maker *m, enum teg_status status, const char *format, ...) TEG_PRINTF(3, 4);
void teg_mil_make_no_memory(struct teg_mil_maker *m, size_t n_bytes);
/* A place for one more item, zeroed; NULL: failed. */
void *teg_mil_make_push(struct teg_mil_maker *m, struct teg_mil_list *list, size_t item_bytes);
/* A name of the open function that nothing else has, made of the letters that MIL allows. NULL: failed. */
const char *teg_mil_make_name(struct teg_mil_maker *m, const char *wanted, teg_mil_var_id var);
teg_mil_var_id teg_mil_make_var(struct teg_mil_maker *m, const char *name, const struct teg_mil_type *type, uint32_t op,
                                const struct teg_mil_const *constant);
bool teg_mil_make_is_var(struct teg_mil_maker *m, teg_mil_var_id var);

/* ---- make_known.c ---- */

/* The whole numbers of a constant or computed value; false: not that kind of value, or longer than is kept. */
bool teg_mil_known_of(const struct teg_mil_maker *m, teg_mil_var_id var, struct teg_mil_known *known);
bool teg_mil_known_arg(const struct teg_mil_making *o, const char *arg, struct teg_mil_known *known);
/* What an op makes of known numbers: o->known from its parameters, where it is one that shapes go through. */
void teg_mil_known_infer(struct teg_mil_making *o);

/* ---- for rules (make_rules.c) ---- */

bool teg_mil_op_fail(struct teg_mil_making *o, const char *format, ...) TEG_PRINTF(2, 3);
const struct teg_mil_arg *teg_mil_making_arg(const struct teg_mil_making *o, const char *name);
/* Of the parameter's (first) variable; NULL: absent. */
const struct teg_mil_type *teg_mil_making_type(const struct teg_mil_making *o, const char *name);
/* A scalar parameter; `absent` where it is not bound. False: failed, it is not a constant. */
bool teg_mil_making_int(struct teg_mil_making *o, const char *name, int64_t absent, int64_t *value);
bool teg_mil_making_axis(struct teg_mil_making *o, const char *name, int64_t absent, int32_t rank, int32_t *axis);
bool teg_mil_making_bool(struct teg_mil_making *o, const char *name, bool *value);
bool teg_mil_making_string(const struct teg_mil_making *o, const char *name, struct teg_string *value);
bool teg_mil_making_rank(struct teg_mil_making *o, const char *name, int32_t rank);
/* One dimension of numpy's broadcasting; false: they do not fit. */
bool teg_mil_broadcast_dim(int64_t a, int64_t b, int64_t *out);
bool teg_mil_broadcast(const struct teg_mil_type *a, const struct teg_mil_type *b, struct teg_mil_type *out);

#define TEG_MIL_SHAPE_RULES(X)                                                                                         \
    X(reshape)                                                                                                         \
    X(transpose)                                                                                                       \
    X(expand_dims)                                                                                                     \
    X(squeeze)                                                                                                         \
    X(concat)                                                                                                          \
    X(stack)                                                                                                           \
    X(split)                                                                                                           \
    X(slice_by_index)                                                                                                  \
    X(slice_by_size)                                                                                                   \
    X(slice_update)                                                                                                    \
    X(tile)                                                                                                            \
    X(pad)                                                                                                             \
    X(shape)                                                                                                           \
    X(fill)                                                                                                            \
    X(range_1d)                                                                                                        \
    X(gather)                                                                                                          \
    X(gather_along_axis)
#define TEG_MIL_PACKED_RULES(X)                                                                                        \
    X(blockwise_shift_scale)                                                                                           \
    X(lut_to_dense)                                                                                                    \
    X(sparse_to_dense)                                                                                                 \
    X(lut_to_sparse)                                                                                                   \
    X(sparse_blockwise_shift_scale)                                                                                    \
    X(affine_dequantize)
#define X(name) bool teg_mil_rule_##name(struct teg_mil_making *o);
TEG_MIL_SHAPE_RULES(X)  /* make_shape.c */
TEG_MIL_PACKED_RULES(X) /* make_packed.c */
#undef X

#endif
