/* convert_model.h: what the files behind teg_convert share: convert_model.c (the way from a model to a package),
 * convert_parts.c (to several), convert_folder.c (a folder of them), convert_items.c (what goes along with it),
 * convert_rules.c (encodings as options). */
#ifndef TEG_CONVERT_MODEL_H
#define TEG_CONVERT_MODEL_H

#include "build/hparams.h"
#include "emit/emit.h"
#include "format/source.h"
#include "pass/lower.h"
#include "pass/raise.h"
#include "program.h"
#include "quant/policy.h"
#include "tok/tok.h"

enum { TEG_CONVERT_MOST_ITEMS = 8 };

/* The model that is converted; all of it goes with `arena`, `source`, `program`, `tok`. */
struct teg_convert_input {
    const char *path;
    struct teg_arena arena;
    struct teg_source *source;   /* NULL: a package */
    struct teg_program *program; /* a package's */
    struct teg_tok *tok;         /* NULL: none */
    const char *tokenizer;       /* of a package: the file, or NULL */
    struct teg_graph *graph;
    struct teg_hparams hparams;
    struct teg_emit_item items[TEG_CONVERT_MOST_ITEMS];
    size_t n_items;
    struct teg_filemap *maps[TEG_CONVERT_MOST_ITEMS]; /* of items that are files */
    size_t n_maps;
};

/* Tokenizer files as items of the package: tokenizer.json and what stands beside it, or tokenizer.gguf: the metadata of
 * a GGUF, without tensors. */
enum teg_status teg_convert_items(struct teg_convert_input *in, struct teg_error *err);
void teg_convert_items_free(struct teg_convert_input *in);

/* An option's rule; `verb` ("convert") and the option's name are for the message. */
enum teg_status teg_convert_read_rule(const char *verb, const char *option, const char *text, bool fit,
                                      struct teg_quant_rule *rule, struct teg_error *err);
/* Sets policy->patterns, which outlive neither `texts` nor the arena. */
enum teg_status teg_convert_read_patterns(const char *verb, const char *const *texts, size_t n, bool fit,
                                          struct teg_arena *arena, struct teg_quant_policy *policy,
                                          struct teg_error *err);

/* A rule that no weight was noted for (teg_quant_note) is a mistake; a skip is not. */
enum teg_status teg_convert_check_patterns(const char *verb, const struct teg_quant_policy *policy,
                                           struct teg_error *err);

/* What is said of a weight; encoding and exactness may be said otherwise by the caller. */
struct teg_convert_weight teg_convert_weight_of(const char *name, uint64_t rows, uint64_t columns,
                                                const struct teg_quant_report *report);

/* ---- the divergence that errors let expect (convert_divergence.c) ---- */

struct teg_divergence {
    double n[3], loss[3]; /* of layers, embedding, head */
};
struct teg_divergence_weight {
    const struct teg_quant_rule *rule;
    uint64_t rows, columns;
    double relative_error;
    bool embedding, head, calibrated;
};
void teg_divergence_add(struct teg_divergence *d, const struct teg_divergence_weight *weight);
/* Nats a token. */
double teg_divergence_of(const struct teg_divergence *d);

/* ---- what the metadata say ---- */

/* Pages of a mapped file that will not be read again soon; the bytes stay valid. Only for such memory. */
void teg_convert_release(const void *data, size_t n_bytes);

struct teg_convert_lowered { /* what the metadata say */
    const struct teg_convert_options *options;
    const struct teg_lower_options *lower;
};
/* The model card and user-defined metadata of the program; texts lie in its arena. */
enum teg_status teg_convert_describe(const struct teg_convert_input *in, const struct teg_convert_lowered *how,
                                     struct teg_mil_program *program, struct teg_error *err);

struct teg_convert_job {
    struct teg_convert_options o;
    struct teg_convert_input in;
    struct teg_lower_options lower;
    struct teg_quant_policy policy;
    const char *output;
    struct teg_pool *pool;
    bool rescaled;        /* the residual stream is divided */
    uint64_t done, total; /* of all parts, for progress */
    struct teg_divergence divergence;
    struct teg_convert_report report;
    struct teg_error *err;
};

/* Gives back the pages of bytes in a mapped file; they are read anew where somebody wants them. */
void teg_convert_release(const void *data, size_t n_bytes);
/* One package of lower's layers, as `path`. */
enum teg_status teg_convert_write(struct teg_convert_job *j, const char *path);

/* ---- a folder of parts (convert_folder.c) ---- */

struct teg_convert_folder {
    const char *verb; /* "convert": for messages */
    struct teg_error *err;
    struct teg_arena *arena;
    const char *target, *hidden; /* what it will be called, and what it is until then */
};
/* Makes the hidden folder; verb and err are set. After success _end must follow. */
enum teg_status teg_convert_folder_begin(struct teg_convert_folder *folder, const char *output,
                                         struct teg_arena *arena);
/* Where `name` lies in it now; NULL: out of memory. */
const char *teg_convert_folder_path(const struct teg_convert_folder *folder, const char *name);
enum teg_status teg_convert_folder_write(const struct teg_convert_folder *folder, const char *name, const void *bytes,
                                         size_t n_bytes);
/* Gives it its name where `status` is TEG_OK, else removes it. */
enum teg_status teg_convert_folder_end(const struct teg_convert_folder *folder, enum teg_status status);
/* A folder that tegula.json makes one model of. */
bool teg_convert_is_parts(const char *path);
/* What can be said of the output's name before hours of work. */
enum teg_status teg_convert_check_output(const char *verb, const char *output, bool in_parts, bool replace,
                                         struct teg_error *err);

/* ---- parts (convert_parts.c) ---- */

enum { TEG_CONVERT_MOST_PARTS = 64 };
static inline bool teg_convert_in_parts(const struct teg_convert_job *j)
{
    return j->o.n_parts > 1 || j->o.part_bytes;
}
/* All parts, their tokenizer and join, as folder j->output. */
enum teg_status teg_convert_write_parts(struct teg_convert_job *j);

#endif
