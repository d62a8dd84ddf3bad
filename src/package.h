/* package.h: what a language model needs that came as a Core ML package: package.c for api.c. */
#ifndef TEG_PACKAGE_H
#define TEG_PACKAGE_H

#include "build/hparams.h"
#include "pass/raise.h"
#include "tok/tok.h"

/* The name ends in .mlpackage or .mlmodelc. */
bool teg_package_is(const char *path);
/* tokenizer.json in the package or beside it; NULL: neither is there. */
const char *teg_package_tokenizer(struct teg_arena *arena, const char *path);
/* `tokenizer` NULL fails: the caller needs one. */
enum teg_status teg_package_open_tokenizer(const char *path, const char *tokenizer,
                                           const struct teg_allocator *allocator, struct teg_tok **tok,
                                           struct teg_error *err);
/* The package as a source (its weights in the encodings that the graph has, its metadata) and hyperparameters. */
enum teg_status teg_package_describe(const struct teg_mil_program *program, const struct teg_raised *raised,
                                     const char *path, struct teg_arena *arena, struct teg_source **source,
                                     struct teg_hparams *hparams, struct teg_error *err);

#endif
