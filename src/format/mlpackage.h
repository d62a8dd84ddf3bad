/* format/mlpackage.h: the directories that Core ML models come in, and their weight files.
 *
 * .mlpackage                                  .mlmodelc (compiled)
 *   Manifest.json                               model.mil             program as text
 *   Data/com.apple.CoreML/model.mlmodel         coremldata.bin        model description
 *   Data/com.apple.CoreML/weights/weight.bin    weights/weight.bin
 *
 * What lies where in a package is what its manifest says. Nothing outside of the directory is ever opened, by whatever
 * name or link. A weight file (MIL blob storage version 2) is mapped when the first constant asks for it. */
#ifndef TEG_FORMAT_MLPACKAGE_H
#define TEG_FORMAT_MLPACKAGE_H

#include "base/arena.h"
#include "base/cursor.h"

enum teg_mlpackage_kind { TEG_MLPACKAGE, TEG_MLMODELC };

struct teg_mlpackage_file;
struct teg_mlpackage {
    enum teg_mlpackage_kind kind;
    const char *path;                 /* as the caller gave it: for messages */
    const char *root;                 /* resolved */
    const char *model_path;           /* resolved: the protobuf model, or model.mil */
    const char *model_dir;            /* resolved: what "@model_path" stands for */
    const char *weights_dir;          /* resolved: the manifest's item of that name; NULL: none */
    struct teg_mlpackage_file *files; /* mapped ones */
    struct teg_arena *arena;          /* owns the names */
};

/* Finds the parts of the package; opens none of them. Close it whatever the result. */
enum teg_status teg_mlpackage_open(struct teg_mlpackage *package, const char *path, struct teg_arena *arena,
                                   struct teg_error *err);
void teg_mlpackage_close(struct teg_mlpackage *package);

/* Maps a file inside the package until it is closed. `path` is relative to the root, or resolved. */
enum teg_status teg_mlpackage_map(struct teg_mlpackage *package, const char *path, struct teg_span *bytes,
                                  struct teg_error *err);
bool teg_mlpackage_has(const struct teg_mlpackage *package, const char *name);
/* The weight file that a program names, e.g. "@model_path/weights/weight.bin"; mapped once. */
enum teg_status teg_mlpackage_weights(struct teg_mlpackage *package, const char *name, struct teg_span *bytes,
                                      struct teg_error *err);

/* One record of a weight file. */
struct teg_blob {
    uint32_t code;         /* element type, teg_blob_type() knows it */
    struct teg_span data;  /* padding bits included */
    uint32_t padding_bits; /* unused high bits of the last byte; 0 for types of whole bytes, whatever the file says */
};
struct teg_blob_type {
    const char *name;
    uint32_t bits;
};
/* NULL: no such code. */
const struct teg_blob_type *teg_blob_type(uint32_t code);
/* The record at `offset` of a weight file, which is `path` in messages. */
enum teg_status teg_blob_read(struct teg_span file, const char *path, uint64_t offset, struct teg_blob *blob,
                              struct teg_error *err);

/* coremldata.bin of an .mlmodelc: the serialized description in it. */
enum teg_status teg_mlmodelc_description(struct teg_span file, const char *path, struct teg_span *description,
                                         uint32_t *spec_version, struct teg_error *err);

#endif
