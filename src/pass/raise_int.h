/* pass/raise_int.h: what the files of raise share. Private to pass/.
 *
 * Raising is one walk over the ops in program order that gives every variable a meaning: "position ids", "rows of %12
 * seen as [1, H, T, K]", "cos of these frequencies", "keys of layer 3 with each head repeated". A meaning is found from
 * the meanings of the operands alone, so the order of ops, dead ops and layout ops in between do not matter. What has
 * no meaning is `nothing`, with the reason; so is whatever depends on it.
 *
 * Two symbols stand in shapes and integers: T tokens in this call, P tokens before it. Every amount is n + t·T + p·P.
 *
 * Not taken: matching patterns backwards from their last op. Every exporter inserts its own casts and reshapes, and a
 * pattern must list them all; here each of those is one rule, whatever stands around it. */
#ifndef TEG_PASS_RAISE_INT_H
#define TEG_PASS_RAISE_INT_H

#include <stdbool.h>
#include <string.h>

#include "base/check.h"
#include "pass/raise.h"

/* ---- views (raise_view.c) ---- */

struct amount {
    int64_t n;
    int32_t t, p;
};

static inline struct amount teg_amount(int64_t n)
{
    return (struct amount){n, 0, 0};
}
static inline bool teg_amount_same(struct amount a, struct amount b)
{
    return a.n == b.n && a.t == b.t && a.p == b.p;
}
static inline bool teg_amount_is(struct amount a, int64_t n)
{
    return a.t == 0 && a.p == 0 && a.n == n;
}
static inline bool teg_amount_fixed(struct amount a)
{
    return a.t == 0 && a.p == 0;
}

enum axis { AXIS_TOKENS, AXIS_SLOTS, AXIS_COLUMNS };

/* An index of `size` values. Columns: it moves `stride` columns (0: repeats them). */
struct factor {
    enum axis axis;
    struct amount size;
    int64_t stride;
};

enum { MAX_FACTORS = 16 };

/* How a MIL tensor shows rows [T or slots, columns]: each of its dimensions is a product of factors, outermost first;
 * a dimension of one has none. */
struct view {
    uint32_t rank;
    uint32_t count[TEG_MIL_MAX_RANK]; /* factors of each dimension */
    struct factor factors[MAX_FACTORS];
    int64_t offset; /* columns before the first */
};

uint32_t teg_view_total(const struct view *v);
uint32_t teg_view_begin(const struct view *v, uint32_t dim);
/* False: a product with more than one symbol in it. */
bool teg_view_size(const struct view *v, uint32_t dim, struct amount *size);
bool teg_view_add_dim(struct view *v, const struct factor *factors, uint32_t n);
void teg_view_columns(struct view *v, int64_t n); /* adds a dimension of n contiguous columns */
bool teg_view_insert(struct view *v, uint32_t dim);
bool teg_view_remove(struct view *v, uint32_t dim); /* a dimension of one */
bool teg_view_transpose(struct view *v, const int64_t *perm);
bool teg_view_reshape(struct view *v, const struct amount *dims, uint32_t rank);
bool teg_view_same(const struct view *a, const struct view *b);
/* The view's dims as numpy broadcasting of the two gives them; where both have factors, a's. */
bool teg_view_broadcast(const struct view *a, const struct view *b, struct view *out);
/* n that differ in their offsets, the second by `apart` columns, side by side in dimension `dim`. */
bool teg_view_side_by_side(const struct view *a, int64_t n, int64_t apart, uint32_t dim, struct view *out);
/* Two of them, or one twice. False: they differ in more than offsets. */
bool teg_view_join(const struct view *a, const struct view *b, uint32_t dim, struct view *out);
/* Columns seen, and whether they are each seen once and are contiguous from offset on. */
int64_t teg_view_width(const struct view *v);
bool teg_view_whole(const struct view *v);
/* The factors of one axis, or of columns with a stride, in one dimension; SIZE_MAX: not exactly one. */
const struct factor *teg_view_single(const struct view *v, uint32_t dim);
bool teg_view_has(const struct view *v, enum axis axis);

/* ---- meanings ---- */

enum kind {
    NOTHING,      /* `why` */
    CONSTANT,     /* var: a const, or the result of a constexpr op */
    FIRST_ROWS,   /* of a constant: those of all tokens so far */
    INTEGERS,     /* ints: shapes and scalars */
    TOKENS,       /* the token ids, [T] */
    POSITIONS,    /* P + t + add */
    SLOTS,        /* index of a cache slot: slot + add */
    NOT_NEGATIVE, /* bool: a >= 0 */
    NEGATIVE,     /* bool: a < 0 */
    VISIBLE,      /* bool, or 1 where a key is seen: slot <= position, and slot > position - window */
    HIDDEN,       /* 1 where it is not */
    MASK,         /* added to scores: 0 where seen */
    FILLED,       /* one value (scale) for each token and slot */
    BANDED,       /* the same where seen, else 0 */
    ROWS,         /* of a value, scaled */
    SQUARES,
    ROW_MEANS, /* of rows a themselves */
    CENTRED,   /* rows less that */
    MEANS,
    MEANS_EPS,
    SUMS,    /* of squares, plus eps */
    ROOTS,   /* gain · sqrt(mean + eps) */
    INVERSE, /* of rows a: x², mean, mean + eps, 1/sqrt(mean + eps) */
    NORMED,  /* rows a / sqrt(mean + eps) */
    DOUBLED,
    DOUBLED_NORM, /* [x, -x], and its layer norm */
    TURNED,       /* [-second half, first half] of rows, or each pair as [-second, first] */
    ANGLES,
    COSINES,
    SINES, /* of positions times frequencies */
    TABLE, /* rows of a constant table at the positions: `columns` wide, times scale */
    WAVED,
    TURNED_WAVED, /* rows (turned) times cos or sin b */
    DIFFERENCE,
    SUM,          /* of two waved halves of heads, a and b */
    ROTATED_PART, /* the first columns of each head of a, rotated by `cos` and `sin` */
    SILU,
    RELU,
    SIGMOID,
    GELU,       /* of rows a */
    GELU_ERF,   /* of rows times gain, which is 1/2 when all of it is there */
    ERF,        /* of rows */
    ERF_PLUS,   /* (1 + erf of rows) times gain */
    TANH,       /* of rows a */
    CAPPED,     /* cap · tanh(rows a / cap): logits */
    MAGNITUDES, /* |rows| */
    MAXIMA,     /* the largest of a row or head, at least `least` */
    BY_MAX,     /* rows divided by that */
    STATE,      /* a state as it is after n_writes updates */
    UPDATED,    /* the same before write_state */
    CACHE,      /* keys or values that one update wrote, all slots */
    OLD_LAYER,  /* all slots of a layer before its update: state, row in `add` */
    KEPT_LAYER, /* the same with 0 where this call writes */
    NEW_LAYER,  /* the same with this call's rows: write */
    PAST,       /* slots of an input before this call: of all layers, or of the one in `add`; `columns`: of how many */
    PRESENT,    /* all layers of an input with this call's rows */
    ONE_HOT,    /* 1 where slot == position */
    WRITTEN,    /* 1 for slots that this call writes */
    UNTOUCHED,  /* 1 for the others */
    SPREAD,     /* rows a at their positions, 0 elsewhere */
    ATTENDED,   /* attention of some of the heads: scores a, values b; not in the graph until all are side by side */
    SCORES,
    TANH_SCORES,
    WEIGHTS,      /* q·k, and softmax */
    LIMIT,        /* a number for each row of scores, which may be their largest */
    LOG_SUM,      /* log of the sum of exp of scores: a limit too */
    BELOW,        /* one of these (`of`) minus `limit` */
    RAISED,       /* exp of scores minus limit */
    TOTAL,        /* its sum over keys */
    FACTOR,       /* exp of limit `from` minus limit */
    PARTS,        /* raised times values v */
    AVERAGE,      /* weights times values v, for some of the keys */
    OLD_ROWS,     /* a layer's slots of this call before its update: state, row in `add` */
    PADDING_ROWS, /* of them, those of this call's padding */
    REAL_ROWS,    /* rows a, 0 where they are padding */
    GUARDED,      /* their sum: what a layer's slots of this call become */
};

enum role { ROLE_ROW, ROLE_SLOT, ROLE_COLUMNS };

struct write {
    uint32_t state;
    int64_t row, n_rows;               /* n_rows: of inputs only */
    const struct meaning *rows;        /* what was written; its view's factors are those of the region */
    struct view view;                  /* of the region in the state: slots and columns */
    enum role roles[TEG_MIL_MAX_RANK]; /* of the state's dimensions */
};

struct meaning {
    enum kind kind;
    struct view view;
    const struct meaning *a, *b;
    const char *why;
    /* ROWS: of a value; or of a linear that is not in the graph yet */
    teg_value_id value;
    teg_mil_var_id weight, bias;
    bool is_linear, weight_transposed;
    int64_t columns; /* of the whole value */
    bool last;       /* only the last token's */
    float scale;     /* rows, scores; cos, sin and tables: what they are multiplied by */
    float eps, cap, gain;
    float least;    /* maxima, what is divided by them, its norm */
    bool by_max;    /* normed */
    bool centred;   /* normed: a layer norm */
    uint32_t group; /* norms, turned: columns of one head or row */
    /* INTEGERS */
    const struct amount *ints;
    uint32_t n_ints;
    int64_t add;
    int64_t least_rows; /* tokens: clamped so that a table of more rows would be read wrongly; 0: not */
    /* masks */
    bool causal;
    uint32_t window;
    teg_mil_var_id var; /* constant, table */
    const float *freqs; /* angles: [n_freqs], in columns of the view */
    uint32_t n_freqs;
    bool by_contract;                /* cos, sin: the caller's, from the package's base */
    bool interleaved;                /* turned: pairs are neighbours */
    const struct meaning *cos, *sin; /* a part that is rotated */
    const struct meaning *part;      /* rows that are one, as such */
    uint32_t state, n_writes;
    const struct write *write;
    uint32_t axis; /* doubled: along which dimension */
    /* Of slots, masks and caches: the first; of caches and all kinds of scores: past the last, 0: all of them. Scores
     * and what becomes of them have a: query, b: keys, and the attributes of attention. */
    int64_t first_slot, end_slot;
    int64_t over_first, over_end; /* weights: the slots whose weights sum to one */
    bool by_channel;              /* keys lie along dimension 1 */
    enum kind of;
    const struct meaning *limit, *from, *v;
};

/* A state's chain of updates. */
struct state {
    teg_mil_var_id var;
    bool is_input; /* which the caller keeps: the next call gets an output */
    uint32_t n_writes;
    uint32_t n_written;                /* by write_state */
    int64_t n_seen;                    /* slots that the function reads; 0: not known yet */
    enum role roles[TEG_MIL_MAX_RANK]; /* of its dimensions, after an update */
};

struct layer {                 /* one KV state of the graph */
    teg_value_id keys, values; /* what is appended */
    teg_value_id state;
};

struct pairing { /* of a head's columns: i and i + n_pairs, or neighbours */
    uint32_t n_pairs;
    bool interleaved;
};

struct rope { /* a table or frequencies, in the graph once for all uses */
    teg_mil_var_id var;
    const float *freqs;
    float scale;
    bool by_contract;
    struct pairing pairing;
    uint32_t n_columns;
    const int64_t *columns; /* of the table */
    teg_value_id value;
};

struct decoded { /* a constant that is in the graph */
    teg_mil_var_id var;
    uint32_t form; /* 0 matrix, 1 transposed, 2 vector, 3 stack */
    teg_value_id value;
};

struct raiser {
    const struct teg_mil_program *program;
    const struct teg_mil_function *function;
    const struct teg_raise_name *names;
    size_t n_names;
    const struct teg_mil_function *front; /* makes inputs of it from ids; or NULL */
    const struct teg_mil_op *op;          /* being read: for messages */
    size_t output;                        /* of it: which one, where it has several */
    struct teg_arena *arena;              /* of the result */
    struct teg_arena scratch;
    struct teg_graph *graph;
    struct teg_error *err;
    enum teg_status status;    /* first failure of memory or data; a missing meaning is none */
    struct meaning **meanings; /* by variable */
    struct amount tokens;      /* T, or the fixed number of tokens of a call */
    bool is_whole;             /* nothing is kept between calls: a call has the whole sequence, P is 0 */
    int64_t context;           /* slots of the states, 0: none */
    struct state *states;
    uint32_t n_states;
    struct layer *layers;
    uint32_t n_layers, layer_capacity;
    struct write **writes;
    uint32_t n_writes, write_capacity;
    struct rope *ropes;
    uint32_t n_ropes, rope_capacity;
    struct decoded *decoded;
    uint32_t n_decoded, decoded_capacity;
    teg_mil_var_id tokens_var;
    size_t table_rows; /* of the shortest table of positions; 0: none */
    bool is_learned;   /* some of them are added to the embedding */
    float rope_base;   /* from the metadata; 0: none */
    int64_t table_ids; /* rows of the smallest embedding table */
    uint32_t n_heads, n_kv_heads, head_width, ffn_width;
    uint32_t n_dense, n_encoded; /* weights by how they are held */
    uint64_t n_parameters, weights_bytes;
    bool logits_named;     /* an output has them in its name: others are for somebody else */
    const char *bad_write; /* an update that is not understood */
    struct teg_buf *why;   /* reasons, or NULL */
};

/* ---- the walk (raise.c), and what is said of it (raise_report.c) ---- */

void teg_raise_start(struct raiser *r, const struct teg_mil_program *program, const struct teg_mil_function *function,
                     const struct teg_raise_options *options, struct teg_arena *arena, struct teg_error *err);
/* An output that is the logits, or a part of them. */
bool teg_raise_is_logits(const struct raiser *r, const char *name);
/* As the caller says, else BY_NAME. */
enum teg_raise_role teg_raise_role_of(const struct raiser *r, const char *name);
/* *reason: why the function is no language model, in scratch; NULL: it is one. */
enum teg_status teg_raise_function(struct raiser *r, const char **reason);
void teg_raise_contract(const struct raiser *r, struct teg_buf *out);

/* P + T: tokens after this call. */
static inline struct amount teg_raise_used(const struct raiser *r)
{
    return (struct amount){r->tokens.n, r->tokens.t, r->is_whole ? 0 : 1};
}

void *teg_raise_alloc(struct raiser *r, size_t n, size_t item_bytes); /* scratch; NULL: r->status is set */
void teg_raise_keep(struct raiser *r, enum teg_status status);
/* Grows an array of the scratch arena by one; false: memory. */
bool teg_raise_grow(struct raiser *r, void *items, uint32_t n, uint32_t *capacity, size_t item_bytes);
/* Gives m no meaning; "expected …, found …". Returns for convenience. */
void teg_raise_no(struct raiser *r, struct meaning *m, const char *format, ...) TEG_PRINTF(3, 4);

/* The op that makes a variable, of this function or the one before it; NULL: none. */
const struct teg_mil_op *teg_raise_maker(const struct raiser *r, teg_mil_var_id var);

bool teg_raise_name_has(const char *name, const char *word); /* whatever its case */
void teg_raise_define(struct raiser *r, teg_mil_var_id var, const struct meaning *meaning);
void teg_raise_read_op(struct raiser *r, const struct teg_mil_op *op);
/* Reads the function whose outputs are this one's inputs, where there is one (raise_front.c): r->front. */
void teg_raise_read_front(struct raiser *r);

/* Meaning of a parameter's one variable; NULL where it is absent. */
const struct meaning *teg_raise_arg(struct raiser *r, const char *name);
const struct meaning *teg_raise_var(struct raiser *r, teg_mil_var_id var);
teg_mil_var_id teg_raise_arg_id(struct raiser *r, const char *name);

/* ---- constants (raise_const.c) ---- */

bool teg_raise_scalar(struct raiser *r, const struct meaning *m, float *value); /* a constant of one element */
bool teg_raise_bool(struct raiser *r, const char *arg, bool otherwise);
bool teg_raise_string_is(struct raiser *r, const char *arg, const char *text);
/* Integers of a small constant or of what is INTEGERS already; positions of one token too. */
bool teg_raise_ints(struct raiser *r, const struct meaning *m, const struct amount **ints, uint32_t *n);
/* Constant integers of a parameter; false: absent or not constant. */
bool teg_raise_numbers(struct raiser *r, const char *arg, int64_t *out, uint32_t capacity, uint32_t *n);
/* A constant's dimensions with ones dropped; false: not a constant of at most two such. */
bool teg_raise_dims(struct raiser *r, teg_mil_var_id var, uint64_t dims[2], uint32_t *rank);
/* All elements as float; NULL: r->status, or *why where the encoding is not known. In scratch. */
float *teg_raise_floats(struct raiser *r, teg_mil_var_id var, size_t *n, const char **why);

/* ---- weights (raise_weight.c) ---- */

/* In the graph as [N, K]; TEG_NO_VALUE: *why, or r->status. */
teg_value_id teg_raise_matrix(struct raiser *r, teg_mil_var_id var, bool transposed, const char **why);
teg_value_id teg_raise_vector(struct raiser *r, teg_mil_var_id var, const char **why);
/* n runs of rows, the first rows of two of them `apart`. */
struct teg_row_runs {
    size_t first, n, rows, apart;
};
/* Some rows of a matrix, and of a vector. */
teg_value_id teg_raise_matrix_rows(struct raiser *r, teg_mil_var_id var, bool transposed,
                                   const struct teg_row_runs *runs, const char **why);
teg_value_id teg_raise_vector_rows(struct raiser *r, teg_mil_var_id var, const struct teg_row_runs *runs,
                                   const char **why);
/* Several matrices on top of each other. */
teg_value_id teg_raise_stack(struct raiser *r, const teg_mil_var_id *vars, uint32_t n, bool transposed,
                             const char **why);

/* ---- the graph (raise_graph.c) ---- */

/* An op, or the one like it that is there already. TEG_NO_VALUE only with r->status. */
teg_value_id teg_raise_emit(struct raiser *r, const struct teg_op *op);
/* The value whose columns are those of the view, in order: linear made, slice taken, scale applied. */
teg_value_id teg_raise_value(struct raiser *r, const struct meaning *rows, const char **why);
void teg_raise_rows(struct meaning *m, teg_value_id value, int64_t columns, const struct view *view);

/* ---- rules; each fills m for the one output of r->op ---- */

typedef void (*teg_raise_rule)(struct raiser *r, struct meaning *m);
struct teg_raise_row {
    const char *type;
    teg_raise_rule rule;
};
extern const struct teg_raise_row teg_raise_layout_rows[], teg_raise_slice_rows[], teg_raise_math_rows[],
    teg_raise_norm_rows[], teg_raise_attend_rows[], teg_raise_state_rows[], teg_raise_rope_rows[],
    teg_raise_mask_rows[], teg_raise_tile_rows[], teg_raise_fixed_rows[];

/* An element depends only on its own place, so any order of elements keeps the meaning. */
bool teg_raise_may_move(const struct meaning *m);
void teg_raise_set_ints(struct raiser *r, struct meaning *m, const struct amount *values, uint32_t n);

/* Parts that elementwise ops share: true where they made something of it (or gave the reason). */
bool teg_raise_int_binary(struct raiser *r, struct meaning *m, const struct meaning *a, const struct meaning *b);
bool teg_raise_mask_binary(struct raiser *r, struct meaning *m, const struct meaning *a, const struct meaning *b);
bool teg_raise_score_binary(struct raiser *r, struct meaning *m, const struct meaning *a, const struct meaning *b);
void teg_raise_select_scores(struct raiser *r, struct meaning *m, const struct meaning *scores,
                             const struct meaning *cond);
bool teg_raise_rope_binary(struct raiser *r, struct meaning *m, const struct meaning *a, const struct meaning *b);
/* Concat of two halves: of rows, of a rotation. False: they are none. */
bool teg_raise_join_turned(struct meaning *m, const struct meaning *a, const struct meaning *b, uint32_t axis);
bool teg_raise_join_rotation(struct raiser *r, struct meaning *m, const struct meaning *first,
                             const struct meaning *second, uint32_t axis);
/* An input of cosines or sines. */
void teg_raise_wave_input(struct raiser *r, struct meaning *m, const struct teg_mil_type *type, bool is_cos);
/* gather of a slice of rows. False: it is none. */
bool teg_raise_gather_slice(struct raiser *r, struct meaning *m, const struct meaning *x, const struct meaning *indices,
                            int64_t axis);
/* A part of a constant. False: it has no dimensions to cut. */
bool teg_raise_slice_constant(struct raiser *r, struct meaning *m, const struct meaning *x);
bool teg_raise_slice_rows_of_mask(struct raiser *r, struct meaning *m, const struct meaning *x);
/* Constants of a call for a fixed number of tokens: a mask [..., T, slots], a wave along the rows x. False: none. */
bool teg_raise_constant_mask(struct raiser *r, const struct meaning *x, struct meaning *mask);
bool teg_raise_constant_wave(struct raiser *r, const struct meaning *x, const struct meaning *constant,
                             struct meaning *wave);
/* The first columns of each head, rotated, and the rest as it was. False: they are none. */
bool teg_raise_join_partial(struct raiser *r, struct meaning *m, const struct meaning *first,
                            const struct meaning *second, uint32_t axis);
bool teg_raise_angles(struct raiser *r, struct meaning *m, const struct meaning *x, const struct meaning *y);
/* Attention in tiles (raise_tile.c). */
bool teg_raise_tile_binary(struct raiser *r, struct meaning *m, const struct meaning *a, const struct meaning *b);
/* Rows that differ in nothing but their kind. */
bool teg_raise_same_rows(const struct meaning *a, const struct meaning *b);
/* The rows that a function of rows was made from: itself with another kind. NULL: memory. */
struct meaning *teg_raise_rows_in(struct raiser *r, const struct meaning *m);
bool teg_raise_is_number(struct raiser *r, const struct meaning *m, float value);
/* An activation without anything to gate, or a norm without a weight; as_rows: x, made rows where it waits to become
 * some. NULL: memory. */
bool teg_raise_is_waiting(const struct meaning *x);
const struct meaning *teg_raise_as_rows(struct raiser *r, const struct meaning *x);
/* Norms (raise_norm.c); false: these are none. */
const struct meaning *teg_raise_bare_norm(struct raiser *r, const struct meaning *x);
bool teg_raise_norm_multiply(struct raiser *r, struct meaning *m, const struct meaning *a, const struct meaning *b);
bool teg_raise_norm_add(struct raiser *r, struct meaning *m, const struct meaning *a, const struct meaning *b);
bool teg_raise_norm_divide(struct raiser *r, struct meaning *m, const struct meaning *a, const struct meaning *b);
bool teg_raise_norm_bias(struct raiser *r, struct meaning *m, const struct meaning *x, const struct meaning *bias);
bool teg_raise_centre(struct raiser *r, struct meaning *m, const struct meaning *x, const struct meaning *mean);
/* A constant of n values that lie along all n columns of one dimension of the view. */
bool teg_raise_is_vector_along(struct raiser *r, teg_mil_var_id var, const struct view *view, int64_t n);
/* Columns of a product with others between them, as Q, K and V of each head are: they become a product of their own.
 * False: they are none such, and m is as it was. */
bool teg_raise_pick(struct raiser *r, struct meaning *m);
/* Rows of a table at the positions, seen in `rank` dimensions (raise_graph.c); NULL: m says why. */
struct meaning *teg_raise_position_rows(struct raiser *r, struct meaning *m, const struct meaning *table,
                                        uint32_t rank);
/* Ops that nothing reads are dropped. */
enum teg_status teg_raise_prune(struct raiser *r);
/* The sum of squares (raise_norm.c). False: it is none. */
bool teg_raise_sum_squares(struct raiser *r, struct meaning *m, const struct meaning *x);
bool teg_raise_tile_reduce(struct raiser *r, struct meaning *m, const struct meaning *x);
/* Weights or raised scores times the values v, seen as [..., slots, K]. */
void teg_raise_weigh(struct raiser *r, struct meaning *m, const struct meaning *w, const struct meaning *v);
/* q [..., T, K] times k; attention of whole scores. */
void teg_raise_start_scores(struct raiser *r, struct meaning *m, const struct meaning *q, const struct meaning *k,
                            bool k_columns_last);
void teg_raise_attend(struct raiser *r, struct meaning *m, const struct meaning *scores, const struct meaning *v);
bool teg_raise_same_query(const struct meaning *a, const struct meaning *b);
/* Slots of a state that the function reads: those of its context, or of a shorter one. */
int64_t teg_raise_seen(struct raiser *r, uint32_t state);
/* Rows guarded against padding: old · padding + new · real (raise_state.c). */
bool teg_raise_guard_binary(struct raiser *r, struct meaning *m, const struct meaning *a, const struct meaning *b);
/* Each dimension of `small` is one or that of `large`. */
bool teg_view_covers(const struct view *large, const struct view *small);
bool teg_raise_attend_matmul(struct raiser *r, struct meaning *m, const struct meaning *x, const struct meaning *y,
                             bool tx, bool ty);
/* Attention of heads that stand side by side. False: they are none. */
bool teg_raise_join_attended(struct raiser *r, struct meaning *m, const struct meaning *const *parts, size_t n,
                             uint32_t axis);
bool teg_raise_layer_binary(struct raiser *r, struct meaning *m, const struct meaning *a, const struct meaning *b);
bool teg_raise_spread(struct raiser *r, struct meaning *m, const struct meaning *x, const struct meaning *y);
/* Caches as inputs and outputs (raise_cache.c). */
bool teg_raise_is_cache_input(const struct raiser *r, const struct teg_mil_var *v);
void teg_raise_cache_input(struct raiser *r, struct meaning *m, teg_mil_var_id id);
bool teg_raise_written_input(struct raiser *r, struct meaning *m, const struct teg_mil_type *type);
void teg_raise_slice_past(struct raiser *r, struct meaning *m, const struct meaning *x);
bool teg_raise_join_past(struct raiser *r, struct meaning *m, const struct meaning *past, const struct meaning *rows,
                         uint32_t axis);
void teg_raise_cache_layer(struct raiser *r, struct meaning *m, const struct view *old, struct write *w);
bool teg_raise_join_present(struct raiser *r, struct meaning *m, const struct teg_mil_arg *values);
/* An output that is an input of the next call. */
bool teg_raise_is_present(const struct raiser *r, const struct meaning *m, uint32_t *state);
/* slice_by_index of a state. */
void teg_raise_read_slice(struct raiser *r, struct meaning *m, const struct meaning *state);
/* begin and end of each dimension after masks; squeeze[d]. False: r->op's are not understood, m says why. */
bool teg_raise_slice_bounds(struct raiser *r, struct meaning *m, const struct amount *sizes, uint32_t rank,
                            struct amount *begin, struct amount *end, bool *squeeze);

#endif
