/* pass/lower.h: a graph of composites as a Core ML program.
 *
 * The counterpart of raise: raise(lower(g)) == g, in normal form (pairs of RoPE as halves of a head, a norm's offset in
 * its weight, constants rounded to their encoding), for every builder, profile and softmax form. A profile is a table
 * of choices, each of which names the device rule that demands it; the code has one way through.
 *
 * Attention is tiled in the written program: no tensor has a query axis and the whole context at once beyond a tile of
 * `kv_tile` keys.
 *
 * portable: one function `main`.
 *     input_ids, position_ids   int32 [1, T], T from 1 to chunk; rows are written at position_ids[0] …
 *     k_cache, v_cache          states fp16 [layers, kv heads, context, head width]
 *     logits                    fp16 [1, 1, V]: of the last row
 *
 * ane: `prepare` (runs on the CPU), `prefill` (chunk rows) and `decode` (one row); for each bucket C also `prefill_C`
 * and `decode_C`, which see the first C slots only. All share the weights and one state.
 *     prepare   input_ids, position_ids int32 [1, T]; a padding row has position -1 (and any id)
 *               -> hidden fp16 [1, T, D], cos, sin [1, T, head width] (cos_1, sin_1, … where layers differ),
 *                  mask_I [1, T, tile] for each tile I of keys, mask_wW_I for layers with a window of W keys,
 *                  valid [1, T]: 0 for padding rows
 *     prefill   those outputs by name, T = chunk, and position int32 [1]: the first row's; position + chunk <= context
 *               -> hidden_out [1, chunk, D]. Padding rows are not written to the cache
 *     decode    the same with T = 1, without valid
 *               -> logits [1, 1, V], or logits_0 … where the head is split
 *     kv        state fp16 [2 · layers, kv heads, context, head width]: keys of all layers, then values
 * A part of a model (first_layer, n_layers) has `prepare` only where it begins with layer 0, takes the part before it's
 * hidden_out as hidden, and has logits only where it ends with the last layer; otherwise decode has hidden_out too. */
#ifndef TEG_PASS_LOWER_H
#define TEG_PASS_LOWER_H

#include "base/text.h"
#include "graph/graph.h"
#include "mil/make.h"
#include "quant/quant.h"

enum teg_profile { TEG_PROFILE_PORTABLE, TEG_PROFILE_ANE };
enum teg_softmax { TEG_SOFTMAX_TWO_PASS, TEG_SOFTMAX_ONLINE, TEG_SOFTMAX_SPLIT };

struct teg_lower_options {
    enum teg_profile profile;
    enum teg_softmax softmax;
    uint32_t context;               /* slots of the cache */
    uint32_t chunk;                 /* rows of a prefill call */
    uint32_t kv_tile;               /* keys of one tile (more, where one key would be left over); 0: the profile's */
    uint32_t n_buckets;             /* ane: further functions for shorter contexts */
    const uint32_t *buckets;        /* their contexts, ascending */
    uint32_t spec_version;          /* 9: iOS 18; 0: the same */
    bool enumerated;                /* portable: T is 1, 2, 4, … or the chunk, not any number */
    uint32_t first_layer, n_layers; /* of one part (ane): see teg_lower_parts; n_layers 0: all */
    bool force; /* a rule of the profile that the model cannot keep is no error (explain names it) */
    /* Which encoding a weight gets; what is not a matrix of the model (tables, norms) is never asked about. NULL: half
     * floats for all. */
    void (*rule)(void *ctx, const char *name, bool embedding, bool head, uint64_t rows, uint64_t columns,
                 struct teg_quant_rule *rule);
    void *rule_ctx;
    /* Weights of the squared error [columns] of that tensor, which outlive the program; NULL, of both: none. */
    const float *(*importance)(void *ctx, const char *name, uint64_t columns);
    void *importance_ctx;
    /* Rows of a constant that were written: their pages may be given back. NULL: nobody wants to know. */
    void (*release)(void *ctx, const struct teg_value *value, uint64_t row, uint64_t n_rows);
    void *release_ctx;
};

/* The graph must outlive the program: weights are made from its constants when they are written. */
struct teg_lowered;
enum teg_status teg_lower(const struct teg_graph *graph, const struct teg_lower_options *options,
                          const struct teg_allocator *allocator, struct teg_lowered **lowered, struct teg_error *err);
/* Borrowed: it goes with `lowered`. */
struct teg_mil_program *teg_lowered_program(struct teg_lowered *lowered);
void teg_lowered_free(struct teg_lowered *lowered);

/* What became of each weight; `made` and report are set when the writer has made it. */
struct teg_lowered_weight {
    const char *name; /* the tensor's */
    uint64_t rows, columns;
    struct teg_quant_rule asked, rule; /* what was asked for, what it has (see kept_blocks) */
    bool embedding, head;              /* what it is used for; neither: in a layer */
    bool made, kept_blocks, calibrated;
    struct teg_quant_report report;
};
size_t teg_lowered_n_weights(const struct teg_lowered *lowered);
const struct teg_lowered_weight *teg_lowered_weight(const struct teg_lowered *lowered, size_t index);

/* Whole layers of a model in parts whose weights take at most max_bytes each (0: n_parts alone decides), at least
 * n_parts of them. first_layers [capacity] gets the first layer of each. */
enum teg_status teg_lower_parts(const struct teg_graph *graph, const struct teg_lower_options *options,
                                uint64_t max_bytes, uint32_t n_parts, uint32_t *first_layers, uint32_t capacity,
                                uint32_t *n, struct teg_error *err);
uint32_t teg_lower_n_layers(const struct teg_graph *graph);

/* Each choice of the profile, its value for this model, and the rule that demands it: "attention tile 4096: SH07 …", a
 * line each. */
void teg_lower_explain(const struct teg_graph *graph, const struct teg_lower_options *options, struct teg_buf *out);

#endif
