/* emit/emit.h: a program as a .mlpackage.
 *
 * The weight file is written first, weight by weight as they are made, each blob once (equal bytes are one blob, within
 * and across functions); then the protobuf, which needs the places of the blobs; then the manifest. All of it in a
 * folder beside the target, which is renamed at the end: a target that can be opened is whole. The same program gives
 * the same bytes.
 *
 * Not taken: writing into memory first. A package is as large as its model. */
#ifndef TEG_EMIT_EMIT_H
#define TEG_EMIT_EMIT_H

#include "base/options.h"
#include "base/pool.h"
#include "mil/make.h"

/* A file that goes along with the model, as an item of the manifest: Data/tegula/NAME. */
#define TEG_EMIT_AUTHOR "tegula"
struct teg_emit_item {
    const char *name, *description;
    struct teg_span bytes;
};

struct teg_emit_options {
    const struct teg_allocator *allocator; /* NULL: malloc */
    bool replace;                          /* an existing target is replaced, after the new one is whole */
    size_t memory_budget;  /* bytes for weights in the making; 0: 256 MiB. One weight at a time may exceed it */
    struct teg_pool *pool; /* makes weights, so their making must not use it; NULL: the caller alone */
    const struct teg_emit_item *items;
    size_t n_items;
    teg_progress_fn progress; /* of all weight bytes; may be NULL */
    void *progress_ctx;
    bool (*cancelled)(void *ctx); /* asked between weights; may be NULL */
    void *cancelled_ctx;
};
struct teg_emit_report {
    uint64_t weights_bytes, shared_bytes; /* in the file; not written because they were there already */
    uint64_t spec_bytes;
    uint32_t n_blobs;
};

/* Writes `path`, which must end in ".mlpackage". On failure or cancellation nothing is left under that name that was
 * not there before, and no temporary folder. report may be NULL. */
enum teg_status teg_emit_package(const struct teg_mil_program *program, const char *path,
                                 const struct teg_emit_options *options, struct teg_emit_report *report,
                                 struct teg_error *err);

/* Gives the folder `fresh` the name `target`, which another has; that one is called `fresh` then. False: errno, and all
 * is as it was. */
bool teg_emit_swap(const char *fresh, const char *target);

#endif
