/* convert_model.h: what the files behind teg_convert share: convert_model.c (the way from a model to a package),
 * convert_items.c (what goes along with it). */
#ifndef TEG_CONVERT_MODEL_H
#define TEG_CONVERT_MODEL_H

#include "build/hparams.h"
#include "emit/emit.h"
#include "format/source.h"
#include "pass/lower.h"
#include "pass/raise.h"
#include "program.h"
#include "tok/tok.h"

enum { TEG_CONVERT_MOST_ITEMS = 4 };

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

struct teg_convert_lowered { /* what the metadata say */
    const struct teg_convert_options *options;
    const struct teg_lower_options *lower;
};
/* The model card and user-defined metadata of the program; texts lie in its arena. */
enum teg_status teg_convert_describe(const struct teg_convert_input *in, const struct teg_convert_lowered *how,
                                     struct teg_mil_program *program, struct teg_error *err);

#endif
