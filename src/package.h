/* package.h: what a language model needs that came as a Core ML package: package.c for api.c. */
#ifndef TEG_PACKAGE_H
#define TEG_PACKAGE_H

#include "build/hparams.h"
#include "manifest.h"
#include "pass/raise.h"
#include "program.h"
#include "tok/tok.h"

/* The name ends in .mlpackage or .mlmodelc, or it is a tegula.json or a folder with one. */
bool teg_package_is(const char *path);
/* It is a tegula.json or a folder with one: of several packages. */
bool teg_package_has_parts(const char *path);
/* tokenizer.json in the package or beside it; NULL: neither is there. */
const char *teg_package_tokenizer(struct teg_arena *arena, const char *path);
/* tegula.json in the package or beside it, or all zero. One that lists parts does not describe a single part. */
enum teg_status teg_package_manifest(const char *path, struct teg_arena *arena, struct teg_manifest *manifest,
                                     struct teg_error *err);
/* The package, or the parts of the manifest as one program; fails where the target cannot load it. */
enum teg_status teg_package_open(const char *path, const struct teg_manifest *manifest,
                                 const struct teg_model_options *options, const struct teg_allocator *allocator,
                                 struct teg_program **program, struct teg_error *err);
/* What tegula.json says for raise; fails where it names what the program does not have. The names lie in `arena`. */
enum teg_status teg_package_names(const struct teg_mil_program *program, const struct teg_manifest *manifest,
                                  struct teg_arena *arena, struct teg_raise_options *options, struct teg_error *err);
/* `tokenizer` NULL fails: the caller needs one. */
enum teg_status teg_package_open_tokenizer(const char *path, const char *tokenizer,
                                           const struct teg_allocator *allocator, struct teg_tok **tok,
                                           struct teg_error *err);
/* The package as a source (its weights in the encodings that the graph has, its metadata) and hyperparameters. */
enum teg_status teg_package_describe(const struct teg_mil_program *program, const struct teg_raised *raised,
                                     const char *path, struct teg_arena *arena, struct teg_source **source,
                                     struct teg_hparams *hparams, struct teg_error *err);

#endif
