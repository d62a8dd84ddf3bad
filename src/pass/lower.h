/* pass/lower.h: a graph of composites as a Core ML program.
 *
 * The counterpart of raise: raise(lower(g)) == g for every builder, profile and softmax form. A profile is a table of
 * choices, each of which names the device rule that demands it; the code has one way through.
 *
 * Attention is tiled in the written program: no tensor has a query axis and the whole context at once beyond a tile of
 * `kv_tile` keys. */
#ifndef TEG_PASS_LOWER_H
#define TEG_PASS_LOWER_H

#include "base/text.h"
#include "graph/graph.h"
#include "mil/make.h"
#include "quant/quant.h"

enum teg_profile {
    TEG_PROFILE_PORTABLE, /* input_ids, position_ids int32 [1, T]; KV states; logits of the last row */
    TEG_PROFILE_ANE       /* functions prefill (chunk rows, no head) and decode (one row), shared weights and state */
};
enum teg_softmax { TEG_SOFTMAX_TWO_PASS, TEG_SOFTMAX_ONLINE, TEG_SOFTMAX_SPLIT };

struct teg_lower_options {
    enum teg_profile profile;
    enum teg_softmax softmax;
    uint32_t context;           /* slots of the cache */
    uint32_t chunk;             /* rows of a prefill call */
    uint32_t kv_tile;           /* keys of one tile; 0: the profile's */
    uint32_t n_buckets;         /* ane: further functions for shorter contexts */
    const uint32_t *buckets;    /* their contexts, ascending */
    uint32_t spec_version;      /* 9: iOS 18 */
    uint32_t first_op, last_op; /* layers of one part: see teg_lower_parts; 0, UINT32_MAX: all */
    /* Which encoding a weight gets; what is not a matrix of the model (tables, norms) is never asked about. */
    void (*rule)(void *ctx, const char *name, bool embedding, bool head, uint64_t rows, uint64_t columns,
                 struct teg_quant_rule *rule);
    void *rule_ctx;
    bool keep_blocks; /* GGUF blocks that have an exact Core ML encoding keep their numbers */
};

/* The graph must outlive the program: weights are made from its constants when they are written. Reports of the made
 * weights are appended to `report` when the writer has made them. */
struct teg_lowered;
enum teg_status teg_lower(const struct teg_graph *graph, const struct teg_lower_options *options,
                          const struct teg_allocator *allocator, struct teg_lowered **lowered, struct teg_error *err);
struct teg_mil_program *teg_lowered_program(struct teg_lowered *lowered);
void teg_lowered_free(struct teg_lowered *lowered);

/* Each choice of the profile, its value for this model, and the rule that demands it: "attention tile 4096: SH07 …", a
 * line each. */
void teg_lower_explain(const struct teg_graph *graph, const struct teg_lower_options *options, struct teg_buf *out);

#endif
