/* pass/raise.h: a Core ML program that is a language model, as a graph of composites.
 *
 * Packages hold what an exporter left of a model: hundreds of reshapes, shape arithmetic at run time, norms and
 * attention in pieces. Raising finds the forward pass again, so that a package runs through the planner, the paged KV
 * cache and the kernels like a GGUF.
 *
 * It is all or nothing for a function: a graph answers as the program does, for every chunk size, or there is none and
 * the reasons say which op was not understood. The program then still runs op by op (eval/). */
#ifndef TEG_PASS_RAISE_H
#define TEG_PASS_RAISE_H

#include "base/text.h"
#include "graph/graph.h"
#include "mil/program.h"

struct teg_raised {
    struct teg_graph *graph;
    const char *function;
    const char *contract; /* text: what each input and output means, a line each */
    uint32_t n_layers, n_heads, n_kv_heads, head_width, width, ffn_width;
    uint32_t context; /* slots of the program's own cache */
    uint64_t n_parameters, weights_bytes;
    uint32_t n_ops; /* of the function */
};

/* What an input or output is for where its name does not say it. */
enum teg_raise_role {
    TEG_RAISE_BY_NAME,
    TEG_RAISE_TOKENS,
    TEG_RAISE_POSITIONS, /* P … P + T - 1, or P */
    TEG_RAISE_MASK,
    TEG_RAISE_KEEP,   /* 1 for each token there is */
    TEG_RAISE_WRITES, /* 1 where the call writes */
    TEG_RAISE_CACHE,
    TEG_RAISE_LOGITS,
    TEG_RAISE_IGNORED, /* an output that nobody needs */
};

struct teg_raise_name {
    const char *name;
    enum teg_raise_role role;
};

struct teg_raise_options {
    const char *function;               /* NULL: the default one, or else the first that has logits */
    const struct teg_raise_name *names; /* [n_names] */
    size_t n_names;
};

/* Raises a function. The graph, its decoded weights and all texts lie in `arena`; other weights stay in the program's
 * files, so the program must outlive the graph. options NULL: all defaults. TEG_ERR_UNSUPPORTED: not recognised; the
 * message names the op and the condition. */
enum teg_status teg_raise(const struct teg_mil_program *program, const struct teg_raise_options *options,
                          struct teg_arena *arena, struct teg_raised *raised, struct teg_error *err);

/* How much of a function raise understands; the texts are freed by teg_raise_survey_free. */
struct teg_raise_survey {
    bool is_model;                /* raise would make a graph of it */
    uint32_t n_ops, n_understood; /* that outputs or states need, weights not counted; of those, with a meaning */
    struct teg_buf contract;      /* as in struct teg_raised; a model only */
    struct teg_buf composites;    /* "1 embedding, 5 rms_norm, …"; a model only */
    struct teg_buf ops;           /* the graph, an op a line; a model only */
    struct teg_buf reason;        /* why it is none; else empty */
};
enum teg_status teg_raise_look(const struct teg_mil_program *program, const struct teg_raise_options *options,
                               struct teg_raise_survey *survey, struct teg_error *err);
void teg_raise_survey_free(struct teg_raise_survey *survey);

/* For every op that is not understood in itself (not for its users): "op NAME (TYPE): expected …, found …", a line
 * each; `op` not NULL: only ops with that text in name or type, their users too. Nothing is added where all is
 * understood. */
enum teg_status teg_raise_why_not(const struct teg_mil_program *program, const struct teg_raise_options *options,
                                  const char *op, struct teg_buf *out, struct teg_error *err);

#endif
