/* plan/plan.h: graph -> plan: the forward pass as a flat list of steps over one arena of activations.
 *
 * A plan knows kernels, buffers and weights, but no tokens, threads or chunk size: it is made once per model and shared
 * by all its sessions. It is polymorphic in T because every activation is a [T, width] float buffer: places are
 * assigned in floats per token, and a session multiplies them by the largest chunk it will run.
 *
 * Steps that may run at the same time, or that work row by row on the same rows, share a stage; between stages there is
 * a barrier. Steps from `first_head_step` on compute logits and run only for the rows whose logits are asked for. */
#ifndef TEG_PLAN_PLAN_H
#define TEG_PLAN_PLAN_H

#include "base/arena.h"
#include "base/filemap.h"
#include "base/hash.h"
#include "base/text.h"
#include "graph/graph.h"
#include "kernel/attend.h"
#include "kernel/kernels.h"
#include "kernel/qgemm.h"

enum teg_step_kind {
    TEG_STEP_EMBEDDING,
    TEG_STEP_POSITION,
    TEG_STEP_RMS_NORM,
    TEG_STEP_LAYER_NORM,
    TEG_STEP_QUANTIZE, /* rows of a to the groups of kernel/qgemm.h: once for all linears that read them */
    TEG_STEP_LINEAR,
    TEG_STEP_ROPE,
    TEG_STEP_KV_APPEND,
    TEG_STEP_ATTENTION,
    TEG_STEP_GLU,
    TEG_STEP_ACTIVATION, /* as glu, with ones for up */
    TEG_STEP_ADD,
    TEG_STEP_SCALE,
    TEG_STEP_SOFTCAP,
    TEG_STEP_COPY, /* y = x: where an in-place step would destroy a value that is still needed */
    TEG_STEP_KIND_COUNT
};

/* Columns column … column + width - 1 of a buffer: row t at base + offset · T_max + t · stride + column. */
struct teg_operand {
    bool used;
    bool logits;   /* in the session's logits buffer [head rows, V] instead of the arena */
    size_t offset; /* floats per token */
    uint32_t stride, column, width;
};

struct teg_step {
    enum teg_step_kind kind;
    uint32_t op;      /* index in the graph: for printing */
    const char *name; /* name of the value it makes, or NULL */
    struct teg_operand a, b, out;
    struct teg_operand residual; /* linear: added to the output */
    const void *weight;          /* embedding, position, linear: [N, K]; norms, sinks, activation: float vector */
    enum teg_dtype weight_dtype;
    size_t weight_row_bytes;
    const struct teg_encoding *encoding; /* embedding, linear: of the weight that is no rows of a dtype */
    struct teg_qgemm_form form;          /* then: how gemm has it */
    const struct teg_qgemm *gemm; /* quantize; linear: a is quantized, weight packed (by teg_plan_pack); NULL: exact */
    size_t k;                     /* quantize, linear: columns of x */
    uint32_t terms;               /* quantize, linear with gemm: rows that stand for one */
    const float *bias;            /* linear, layer_norm */
    float scale;                  /* embedding, scale, attention; softcap: the cap */
    float eps, weight_offset, softcap;
    bool by_max; /* rms_norm: see the graph's */
    float least_max;
    uint32_t n_heads, n_kv_heads, head_width, window;
    uint32_t first_row; /* position */
    uint32_t rope_table;
    bool interleaved;
    enum teg_activation activation;
    uint32_t layer; /* kv_append, attention */
    /* linear: act(gate) · up, quantized: the step is up with out the groups that the next linear reads; the step just
     * before it is gate, which has a weight and is not run. */
    bool glu, is_gate;
};

/* Rows: a slice is a range of tokens, and runs all steps of the stage on them in order. Otherwise each step is cut on
 * its own (linear by columns, attention by heads and tokens). */
struct teg_stage {
    uint32_t first_step, n_steps;
    bool rows;
};

/* cos and sin of one set of frequencies, made for each chunk: two [T, n_pairs] buffers. Computed, or rows of constant
 * tables where the model has those. */
struct teg_rope_table {
    const float *frequencies, *long_frequencies; /* [n_pairs]; long: NULL where there are none; both NULL: tables */
    const void *cos, *sin;                       /* [n_rows, n_pairs] of row_dtype, or NULL */
    enum teg_dtype row_dtype;
    size_t n_rows, row_bytes;
    uint32_t n_pairs;
    uint32_t original_context; /* sessions with more context use the long ones */
    float magnitude;
    size_t cos_offset, sin_offset; /* floats per token */
};

/* Where a layer's pages lie in a KV block (64 tokens of all layers), for each KV type a session may have. Heads follow
 * one another in steps of teg_kv_page_bytes. */
struct teg_kv_layer {
    uint32_t n_kv_heads, head_width;
    size_t offset_bytes[TEG_KV_TYPES];
};

struct teg_plan {
    struct teg_kernels kernels;
    struct teg_attend_table attend; /* kernels of attention, by KV type */
    const struct teg_qgemm *gemm;   /* NULL: exact mode */
    struct teg_step *steps;
    uint32_t n_steps, first_head_step;
    struct teg_stage *stages;
    uint32_t n_stages, first_head_stage;
    struct teg_rope_table *rope_tables;
    uint32_t n_rope_tables;
    size_t max_positions; /* a session can have no more: rows of the shortest constant table, or what the graph says;
                           * SIZE_MAX: no limit */
    struct teg_kv_layer *kv_layers;
    uint32_t n_kv_layers;
    size_t kv_block_elements;            /* keys and values of 64 tokens */
    size_t kv_block_bytes[TEG_KV_TYPES]; /* what they take */
    size_t row_floats;                   /* activations of one token, after placement */
    size_t worker_floats;                /* scratch of one worker */
    size_t state_floats;                 /* states of attention for one token (kernel/attend.h) */
    uint32_t vocab, head_rows;           /* logits are made for up to head_rows rows at a time */
    struct teg_packed {                  /* weights in the layout of their kernel, one block of memory */
        const struct teg_allocator *allocator;
        const void *memory; /* of the allocator, or in `map` */
        size_t n_bytes;
        struct teg_filemap map; /* empty, or the cache file that they lie in */
        size_t replaced_bytes;  /* of the source, not needed any more */
    } packed;
};

struct teg_plan_options {
    bool fast;          /* integer kernels for weights that they accept */
    bool rounds_floats; /* and for f32, f16 and bf16, which are rounded to 8 bits */
};

/* Allocates in `arena`; weights stay where the graph's constants point. options NULL: exact. A fast plan cannot run
 * before teg_plan_pack. */
enum teg_status teg_plan_new(const struct teg_graph *graph, const struct teg_cpu *cpu,
                             const struct teg_plan_options *options, struct teg_arena *arena, struct teg_plan **plan,
                             struct teg_error *err);
/* Where packed weights are kept for the next start; plan/cache.c. */
struct teg_pack_cache {
    const char *path;                              /* of the file, in a folder that exists */
    struct teg_hash source;                        /* of what says that the model's files are the same */
    void (*warn)(void *ctx, const char *sentence); /* the cache was of no use, and why; may be NULL */
    void *warn_ctx;
};

/* plan/pack.c: packs the weights of a fast plan, or finds them in the cache; a plan without any is left as it is. */
struct teg_pack_hooks {
    const struct teg_pack_cache *cache;                           /* NULL: none */
    void (*release)(void *ctx, const void *data, size_t n_bytes); /* these source bytes were read; may be NULL */
    teg_progress_fn progress;                                     /* of total_bytes source bytes; may be NULL */
    void *release_ctx, *progress_ctx;
    uint64_t total_bytes;
};
enum teg_status teg_plan_pack(struct teg_plan *plan, const struct teg_cpu *cpu, const struct teg_allocator *allocator,
                              const struct teg_pack_hooks *hooks, struct teg_error *err);
/* Returns the packed weights; the plan itself belongs to its arena. NULL is fine. */
void teg_plan_free(struct teg_plan *plan);
/* Whether any product of the graph has weights that the integer kernels accept. */
bool teg_plan_gains(const struct teg_graph *graph);
/* The step list, a line each, with kernel, weight and place in the arena. */
void teg_plan_dump(const struct teg_plan *plan, const struct teg_graph *graph, struct teg_buf *out);

/* plan/place.c: gives each buffer a place so that no two that live at the same time overlap; largest first, each in the
 * smallest gap that holds it. */
struct teg_lifetime {
    size_t width;         /* floats per token */
    uint32_t first, last; /* steps, inclusive */
    size_t offset;        /* result, a multiple of 16 floats */
};
enum teg_status teg_plan_place(struct teg_lifetime *buffers, size_t n, struct teg_arena *arena, size_t *row_floats,
                               struct teg_error *err);
/* Attention is alone in its stage. */
static inline bool teg_stage_attends(const struct teg_plan *plan, uint32_t stage)
{
    return plan->steps[plan->stages[stage].first_step].kind == TEG_STEP_ATTENTION;
}
/* plan/stage.c: cuts the step list into stages. */
enum teg_status teg_plan_stages(struct teg_plan *plan, struct teg_arena *arena, struct teg_error *err);

#endif
