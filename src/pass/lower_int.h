/* pass/lower_int.h: what the files of lower share. Private to pass/.
 *
 * One walk over the graph's ops writes a function: each value of the graph has a variable, seen flat (all columns of a
 * row) or as heads, whichever was asked for, and the choices of the profile say along which axis columns lie, where
 * masks come from and how attention is cut. The maker keeps the first failure, so the walk reads like a formula. */
#ifndef TEG_PASS_LOWER_INT_H
#define TEG_PASS_LOWER_INT_H

#include <stdbool.h>
#include <string.h>

#include "base/check.h"
#include "pass/lower.h"

typedef teg_mil_var_id var;

/* ---- profiles ---- */

/* A profile is a row of these. */
struct choices {
    const char *name;
    bool channels;      /* values are [1, columns, 1, T], else [1, T, columns] */
    bool per_head;      /* attention of each query head alone, keys along the channels */
    bool fixed;         /* T is a number in each function; ids, positions and masks come from `prepare` */
    bool one_state;     /* keys and values in one */
    uint32_t kv_tile;   /* where the caller gives none */
    uint32_t head_rows; /* most rows of one product of the head; 0: any */
    uint32_t alignment; /* of head width, slots and chunk; 0: any */
    uint32_t most_axis; /* longest axis of a tensor; 0: any */
};
const struct choices *teg_lower_choices(enum teg_profile profile);

/* ---- the shape of a model (lower_layers.c) ---- */

/* Ops [begin, end) of the graph are a layer. The embedding comes before the first, the head after the last. */
struct layer_range {
    uint32_t begin, end;
    teg_value_id input, state;
};
struct layers {
    struct layer_range *at;
    uint32_t n;
    uint32_t head;               /* first op of the head: norms, product, cap */
    teg_value_id embedded, last; /* rows that go into the first layer and into the head */
};
enum teg_status teg_lower_find_layers(const struct teg_graph *g, struct teg_arena *arena, struct layers *layers,
                                      struct teg_error *err);

/* Columns of a product in another order: each head's pairs (i, i + K/2) over the whole width, so that RoPE is two
 * halves of a head. Those that do not turn get frequency 0. */
struct order {
    uint32_t op;           /* of the product */
    uint32_t begin, width; /* its columns */
    uint32_t head_width, n_pairs;
    bool interleaved;
};
/* Where column `column` of the new order comes from. */
uint32_t teg_lower_source_column(const struct order *order, uint32_t column);

/* ---- weights (lower_weight.c) ---- */

/* A constant of the graph, or some of its rows, encoded by a rule. */
struct weight {
    const struct teg_value *value;
    uint64_t begin, rows, columns; /* rows begin … begin + rows - 1 of the result's order */
    bool as_conv;                  /* see weight_use */
    const struct order *orders;    /* that its rows are moved by */
    uint32_t n_orders;
    const float *importance;   /* [columns] or NULL */
    bool keeps;                /* the source's own encoding */
    struct teg_quantized form; /* without bytes */
    struct teg_mil_deferred deferred;
    void (*release)(void *ctx, const struct teg_value *value, uint64_t row, uint64_t n_rows);
    void *release_ctx;
    struct teg_lowered_weight *report; /* filled by the maker's thread */
    struct weight *next;
};

struct teg_lowered {
    struct teg_arena arena;
    struct teg_mil_program *program;
    struct weight *weights; /* newest first */
    size_t n_weights;
};

/* ---- a function in the making ---- */

struct seen { /* a value of the graph */
    var flat, heads;
    uint32_t head_width;
};

enum { MOST_TILES = 256, MOST_WINDOWS = 8, MOST_ROPES = 8 };

struct mask_set {
    uint32_t window; /* 0: causal alone */
    bool is_used;    /* by this part */
    var tiles[MOST_TILES];
};

struct rope_tables {
    teg_value_id a, b; /* operands of the rope ops that they serve */
    float magnitude;
    uint32_t head_width;
    bool is_used;
    const struct teg_op *op; /* one of them */
    var cos, sin;
};

struct lowerer {
    const struct teg_graph *g;
    const struct teg_lower_options *o;
    const struct choices *c;
    struct teg_lowered *lowered;
    struct teg_arena scratch;
    struct teg_mil_maker *m;
    struct teg_error *err;
    enum teg_status status; /* of memory and of what cannot be expressed */
    struct layers layers;
    struct order *orders;
    uint32_t n_orders;
    uint32_t *moved; /* [n_values]: in which order the columns of a head are; 0: the graph's */
    uint32_t *uses;  /* [n_values] */
    uint32_t first_layer, end_layer;
    uint32_t tile, n_masks, n_ropes;
    struct mask_set masks[MOST_WINDOWS];
    struct rope_tables ropes[MOST_ROPES];
    /* of the function */
    struct seen *seen; /* [n_values] */
    const char *prefix;
    uint32_t n_rows;           /* T; 0: symbolic */
    uint32_t context, n_tiles; /* slots that it sees */
    uint32_t layer;
    bool guarded;   /* rows may be padding */
    var begin, end; /* P and P + T as vectors of one */
    var valid, invalid;
    var states[2];  /* keys and values, or one: the state */
    var content[2]; /* what was read last */
};

struct lowerer teg_lower_of(const struct teg_graph *graph, const struct teg_lower_options *options,
                            const struct teg_allocator *allocator, struct teg_error *err);
/* Sizes and layers; orders of products are kept in `keep`. */
enum teg_status teg_lower_start(struct lowerer *l, struct teg_arena *keep);
/* Rules of the device that the model or the sizes break. */
typedef void (*teg_lower_broken_fn)(void *ctx, const char *rule, const char *what, uint64_t found);
void teg_lower_broken_rules(const struct lowerer *l, teg_lower_broken_fn tell, void *ctx);

/* Keeps the first failure; returns for convenience. */
void teg_lower_keep(struct lowerer *l, enum teg_status status);
bool teg_lower_ok(const struct lowerer *l);

/* ---- verbs ---- */

#define OP(l, type, name, ...) teg_lower_op((l), (type), (name), (const struct teg_mil_bind[]){__VA_ARGS__, {NULL, 0}})
var teg_lower_op(struct lowerer *l, const char *type, const char *name, const struct teg_mil_bind *args);
#define INTS(l, ...)                                                                                                   \
    teg_mil_make_ints((l)->m, (uint32_t)(sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)),                    \
                      (const int32_t[]){__VA_ARGS__})
static inline var teg_lower_half(struct lowerer *l, float x)
{
    return teg_mil_make_float(l->m, TEG_MIL_FP16, x);
}
var teg_lower_reshape(struct lowerer *l, const char *name, var x, uint32_t rank, const int32_t *dims);
var teg_lower_transpose(struct lowerer *l, const char *name, var x, uint32_t rank, const int32_t *perm);
/* Columns begin … begin + width - 1 along `axis`; the other dimensions whole. */
var teg_lower_slice(struct lowerer *l, const char *name, var x, uint32_t rank, uint32_t axis, uint32_t begin,
                    uint32_t end);
var teg_lower_concat(struct lowerer *l, const char *name, const var *values, uint32_t n, int32_t axis);
var teg_lower_multiply(struct lowerer *l, const char *name, var x, float factor);
/* begin and end of an update: numbers, and one dimension from P to P + T. */
var teg_lower_bounds(struct lowerer *l, const char *name, const int32_t *before, uint32_t n_before, var middle,
                     int32_t after);
var teg_lower_flat(struct lowerer *l, teg_value_id v);
/* Rows: [1, H, T, K]; channels: [H, K, 1, T]. */
var teg_lower_heads(struct lowerer *l, teg_value_id v, uint32_t head_width);
static inline uint32_t teg_lower_flat_axis(const struct lowerer *l)
{
    return l->c->channels ? 1 : 2;
}
static inline uint32_t teg_lower_head_axis(const struct lowerer *l)
{
    return l->c->channels ? 1 : 3;
}

/* Writes one op of the graph (lower_rows.c, lower_attend.c). */
void teg_lower_graph_op(struct lowerer *l, uint32_t index);
void teg_lower_append(struct lowerer *l, const struct teg_op *op);
void teg_lower_attention(struct lowerer *l, const struct teg_op *op);
/* The head: logits of what is in value `layers.last`, as outputs. */
void teg_lower_head(struct lowerer *l);

/* A constant of the graph as the value of a parameter: [N, K] or, with `as_conv`, [N, K, 1, 1]. */
struct weight_use {
    teg_value_id value;
    uint32_t op; /* whose orders apply; UINT32_MAX: none */
    bool embedding, head, as_conv;
    uint64_t begin, rows; /* rows 0: all */
};
var teg_lower_weight(struct lowerer *l, const struct weight_use *use);
/* A vector as fp16 of that shape, plus `offset`, its elements in the order of the columns that it belongs to. */
var teg_lower_vector(struct lowerer *l, teg_value_id value, float offset, const struct order *orders, uint32_t n_orders,
                     uint32_t rank, const int64_t *dims);
var teg_lower_vector_part(struct lowerer *l, teg_value_id value, uint64_t begin, uint64_t n);
/* Orders of a product's columns: a run of l->orders. */
const struct order *teg_lower_orders_of(const struct lowerer *l, uint32_t op, uint32_t *n);
/* Rows of a constant as floats. */
enum teg_status teg_lower_decode(const struct teg_value *value, uint64_t row, float *out, struct teg_error *err);
/* Operands 1 and 2 are cos and sin of each position, not frequencies. */
bool teg_lower_has_tables(const struct lowerer *l, const struct teg_op *op);
/* The frequencies for this context (longrope has two), or the table of cosines. */
teg_value_id teg_lower_frequencies(const struct lowerer *l, const struct teg_op *op);
/* Tables [context, head width] of a rope op: cos, sin as fp16 constants. */
void teg_lower_tables(struct lowerer *l, const struct teg_op *op, const char *suffix, var *cosines, var *sines);
/* Index of the tables that a rope op reads; made known if it is new. */
uint32_t teg_lower_rope_index(struct lowerer *l, const struct teg_op *op);
uint32_t teg_lower_mask_index(struct lowerer *l, uint32_t window);

/* Bytes of a constant in the encoding that its rule gives it. */
uint64_t teg_lower_weight_bytes(struct lowerer *l, teg_value_id value, bool embedding, bool head);

/* The whole program. */
void teg_lower_portable(struct lowerer *l);
void teg_lower_fixed(struct lowerer *l);
/* Masks of each tile from position ids, [T, tile] or [1, T, tile] (lower_inputs.c). */
void teg_lower_make_masks(struct lowerer *l, struct mask_set *set, var positions, bool batched);

#endif
