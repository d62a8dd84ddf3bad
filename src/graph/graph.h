/* graph/graph.h: a program as typed values and ops, in SSA form.
 *
 * Every value has one definition: a function input, a constant, a state, or the result of an op. Ops stand in
 * topological order: an op may only use values that exist already, so a graph is built front to back and is never
 * cyclic. Constants point into the source's mapped file and carry their encoding as a dtype; nothing is decoded here.
 * Dimensions are numbers or the symbol T (tokens in this chunk); tokens already in the cache (P) never appear in a
 * shape, because keys and values live in states.
 *
 * The ops are composites: each says what the program means, not how it is computed, so one definition of an
 * architecture serves running, inspecting and writing. Not taken: one op per kernel, which would let the choice of
 * kernels leak into every builder. */
#ifndef TEG_GRAPH_GRAPH_H
#define TEG_GRAPH_GRAPH_H

#include "base/arena.h"
#include "base/text.h"
#include "dtype/encoding.h"

typedef uint32_t teg_value_id;
#define TEG_NO_VALUE UINT32_MAX
#define TEG_DIM_T ((int64_t)-1) /* tokens in this chunk */
#define TEG_SHAPE_RANK 4
#define TEG_OP_INPUTS 3

struct teg_shape {
    uint32_t rank;
    int64_t dims[TEG_SHAPE_RANK]; /* outermost first */
};

enum teg_value_kind { TEG_VALUE_INPUT, TEG_VALUE_CONST, TEG_VALUE_STATE, TEG_VALUE_RESULT };

struct teg_value {
    enum teg_value_kind kind;
    enum teg_dtype dtype;                /* of a constant: how its rows are stored */
    const struct teg_encoding *encoding; /* of a constant that is no rows of a dtype, else NULL; then dtype is F16 or
                                          * F32, what values are rounded to, and data are the first codes */
    struct teg_shape shape;
    const char *name; /* constants: the tensor's; results: a name that callers may ask for, or NULL */
    const void *data; /* constants only; may be unaligned */
    size_t n_bytes;
    uint32_t op; /* results only: index of the defining op */
};

/* Every op, its operands and its result. [T, D] float values throughout; W is [N, K], the last dimension contiguous. */
/*    kind       name         operands (optional ones in brackets)                                                    */
#define TEG_OPS(X)                                                                                                     \
    X(EMBEDDING, "embedding", 2, 2)   /* tokens [T] i32, table [V, D]; result = row · scale          */               \
    X(POSITION, "position", 1, 1)     /* table [positions, D]; row first + position, none beyond     */                \
    X(RMS_NORM, "rms_norm", 2, 2)     /* x, weight [n]; over each n consecutive columns of a row     */                \
    X(LAYER_NORM, "layer_norm", 2, 3) /* the same less the mean: x, weight [n] (bias [n])          */                  \
    X(LINEAR, "linear", 2, 3)         /* x [T, K], W [N, K], (bias [N])                              */                \
    X(ROPE, "rope", 2, 3)             /* x, frequencies [n_pairs] (long-context frequencies); or:    */                \
    /* x, cos, sin [positions, n_pairs], f32 or f16: rows as they are, no position */                                  \
    /* beyond them, no magnitude                                   */                                                  \
    X(KV_APPEND, "kv_append", 3, 3)   /* k, v [T, G·K], state; no result                             */               \
    X(ATTENTION, "attention", 2, 3)   /* q [T, H·K], state (sinks [H])                               */               \
    X(GLU, "glu", 2, 2)               /* gate, up [T, F]; result = act(gate) · up                    */               \
    X(ACTIVATION, "activation", 1, 1) /* act(x)                                                    */                  \
    X(ADD, "add", 2, 2)               /* a, b of one shape                                           */                \
    X(SCALE, "scale", 1, 1)           /* x · scale                                                   */               \
    X(SOFTCAP, "softcap", 1, 1)       /* cap · tanh(x / cap)                                         */               \
    X(SLICE, "slice", 1, 1)           /* columns begin … begin + width - 1 of x                      */              \
    X(LM_HEAD, "lm_head", 2, 3)       /* as linear, but only for the rows whose logits are asked for */

enum teg_op_kind {
#define X(kind, name, min, max) TEG_OP_##kind,
    TEG_OPS(X)
#undef X
        TEG_OP_COUNT
};

enum teg_activation { TEG_ACT_SILU, TEG_ACT_GELU_TANH, TEG_ACT_GELU_ERF, TEG_ACT_RELU };

struct teg_op {
    enum teg_op_kind kind;
    uint32_t n_inputs;
    teg_value_id inputs[TEG_OP_INPUTS];
    teg_value_id result; /* TEG_NO_VALUE: none */
    union {
        struct {
            float scale; /* embedding, scale */
        } scale;
        struct {
            float eps, weight_offset; /* result = x̂ · (w + weight_offset): 1 where a file stores w - 1 */
            bool by_max;              /* eps is times max(|x|, least_max)²: x was divided by that before its norm */
            float least_max;
        } norm;
        struct {
            uint32_t head_width;
            bool interleaved;          /* pairs (2i, 2i+1); else (i, i + n_pairs) */
            float magnitude;           /* cos and sin are multiplied by it (yarn, longrope); else 1 */
            uint32_t original_context; /* sessions with more context use the long frequencies; 0: never */
        } rope;
        struct {
            uint32_t n_heads, n_kv_heads, head_width;
            uint32_t window; /* keys a query sees, itself included; 0: all */
            float scale, softcap;
        } attention; /* kv_append: n_kv_heads and head_width */
        enum teg_activation activation;
        uint32_t first; /* position: the row of position 0 */
        float cap;
        struct {
            uint32_t begin, width;
        } slice;
    } attr;
};

struct teg_graph {
    struct teg_arena *arena; /* owns everything here */
    struct teg_value *values;
    struct teg_op *ops;
    uint32_t n_values, n_ops, value_capacity, op_capacity;
    teg_value_id tokens;  /* the one input: [T] i32 */
    teg_value_id logits;  /* the output: [T, V] */
    size_t max_positions; /* the ops mean the program up to so many only; 0: for any number */
};

const char *teg_op_name(enum teg_op_kind kind);

enum teg_status teg_graph_new(struct teg_arena *arena, struct teg_graph **graph, struct teg_error *err);

/* A constant; dims are the tensor's, outermost first. Fails when the bytes do not fit shape and dtype. */
enum teg_status teg_graph_const(struct teg_graph *graph, const char *name, enum teg_dtype dtype, uint32_t rank,
                                const uint64_t *dims, const void *data, size_t n_bytes, teg_value_id *value,
                                struct teg_error *err);
/* A constant matrix in an encoding of its own, which must live as long as the graph. */
enum teg_status teg_graph_encoded(struct teg_graph *graph, const char *name, enum teg_dtype dtype,
                                  const struct teg_encoding *encoding, teg_value_id *value, struct teg_error *err);
/* How a constant's elements are stored, as text. */
const char *teg_value_type_name(const struct teg_value *value);
/* The KV state of one layer: [n_kv_heads, head_width]. */
enum teg_status teg_graph_state(struct teg_graph *graph, const char *name, uint32_t n_kv_heads, uint32_t head_width,
                                teg_value_id *value, struct teg_error *err);
/* Appends an op after checking its operands; infers the result's shape. `op->result` is ignored. *value may be NULL
 * for an op without a result. */
enum teg_status teg_graph_op(struct teg_graph *graph, const struct teg_op *op, teg_value_id *value,
                             struct teg_error *err);

/* Checks a whole graph again: every operand defined before its use, every shape as inferred, logits present, each
 * state appended to before it is read. For graphs that a pass has changed, and for tests. */
enum teg_status teg_graph_verify(const struct teg_graph *graph, struct teg_error *err);
/* One line an op: "%12 = linear(%11, blk.0.attn_q.weight Q4_1[576, 576]) : f32[T, 576]". */
void teg_graph_dump(const struct teg_graph *graph, struct teg_buf *out);

/* Columns of a [T, n] value, or items of a vector. */
static inline size_t teg_value_width(const struct teg_value *value)
{
    return (size_t)value->shape.dims[value->shape.rank - 1];
}

#endif
