/* format/impl.h: what the readers of this folder share. Nothing outside src/format and its tests includes it.
 *
 * A reader makes a source, maps files into it, reads each file into a part (tensors and metadata in the source's
 * arena), joins the parts and seals the source. Whatever fails on the way, teg_source_free returns everything, so a
 * reader has no clean-up of its own. */
#ifndef TEG_FORMAT_IMPL_H
#define TEG_FORMAT_IMPL_H

#include <stdarg.h>

#include "format/source.h"

/* What one file holds. */
struct teg_source_part {
    const char *path; /* of this file: for messages */
    const char *format;
    struct teg_tensor *tensors;
    size_t n_tensors;
    struct teg_meta *metas;
    size_t n_metas;
};

enum teg_status teg_source_new(const char *path, const struct teg_allocator *allocator, struct teg_source **source,
                               struct teg_error *err);
/* Maps a file until the source is freed. */
enum teg_status teg_source_map(struct teg_source *source, const char *path, const char *what, struct teg_span *bytes,
                               struct teg_error *err);
/* The tensors of all parts, one after the other, become the source's. */
enum teg_status teg_source_join(struct teg_source *source, const struct teg_source_part *parts, size_t n_parts,
                                struct teg_error *err);
/* Builds the name tables; refuses a tensor name or a key that comes twice. The source is complete after this. */
enum teg_status teg_source_seal(struct teg_source *source, struct teg_error *err);

/* Pointers to the n items at `items`, in the order of `compare`; equal ones keep their order in the file. Never
 * slower than n log n, whatever the items (qsort does not promise that), because the items may be hostile. */
typedef int (*teg_source_compare)(const void *a, const void *b);
enum teg_status teg_source_sort(struct teg_source *source, const void *items, size_t n, size_t item_bytes,
                                teg_source_compare compare, const void *const **sorted, struct teg_error *err);

/* "cannot read <format>: <path> at byte <offset>: <message>", the path cut to its end where it is very long. */
enum teg_status teg_source_fail(struct teg_error *err, enum teg_status status, const char *format, const char *path,
                                uint64_t offset, const char *message, ...) TEG_PRINTF(6, 7);
enum teg_status teg_source_vfail(struct teg_error *err, enum teg_status status, const char *format, const char *path,
                                 uint64_t offset, const char *message, va_list args) TEG_PRINTF(6, 0);

/* gguf.c: one GGUF file into a part. */
enum teg_status teg_gguf_read(struct teg_source *source, struct teg_span bytes, const char *path,
                              struct teg_source_part *part, struct teg_error *err);
/* gguf_split.c: the part just read, or the whole set that it belongs to, into the source. `from_file` false: the part
 * came from memory, so there is no set to look for. */
enum teg_status teg_gguf_assemble(struct teg_source *source, const struct teg_source_part *part, bool need_tensors,
                                  bool from_file, struct teg_error *err);

/* safetensors.c: one safetensors file into a part. */
enum teg_status teg_safetensors_read(struct teg_source *source, struct teg_span bytes, const char *path,
                                     struct teg_source_part *part, struct teg_error *err);
/* hf_directory.c: a directory with config.json and safetensors. */
enum teg_status teg_hf_directory_read(struct teg_source *source, bool need_tensors, struct teg_error *err);

#endif
