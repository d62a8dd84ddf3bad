/* format/source.h: what every model file reads as: named tensors plus metadata.
 *
 * A source never interprets what it holds: it guarantees only that each tensor's bytes lie inside its file, that its
 * shape and type give exactly those bytes, and that names and keys are unique. Tensor data stays in the mapped file.
 * Dimensions are outermost first, so the last one is contiguous, whatever order the file uses. */
#ifndef TEG_FORMAT_SOURCE_H
#define TEG_FORMAT_SOURCE_H

#include "base/arena.h"
#include "base/cursor.h"
#include "dtype/dtype.h"

#define TEG_MAX_RANK 8

struct teg_tensor {
    const char *name;
    enum teg_dtype dtype;
    const char *encoding; /* how it is stored where that is no dtype (packages), else NULL */
    uint32_t rank;
    uint64_t dims[TEG_MAX_RANK]; /* outermost first; unused ones are 1. GGUF: rank 1 to 4, all at least 1;
                                  * safetensors: rank 0 is a scalar, a dimension may be 0 */
    const uint8_t *data;         /* in the mapped file; may be unaligned (safetensors) */
    size_t n_bytes;
    uint64_t file_offset;
};

enum teg_meta_type {
    TEG_META_INT, /* any integer type; `integer`, or UINT64 values above INT64_MAX refused while reading */
    TEG_META_FLOAT,
    TEG_META_BOOL,
    TEG_META_STRING,
    TEG_META_ARRAY_INT, /* an empty JSON array too */
    TEG_META_ARRAY_FLOAT,
    TEG_META_ARRAY_BOOL,
    TEG_META_ARRAY_STRING,
    TEG_META_JSON, /* config.json: an object or mixed array; `string` is its JSON text, compact */
    TEG_META_NULL, /* JSON null */
};

struct teg_string {
    const char *bytes; /* not NUL-terminated */
    size_t n_bytes;
};

struct teg_meta {
    const char *key; /* NUL-terminated */
    enum teg_meta_type type;
    const char *type_name; /* as the file has it: "u32", "array of string" */
    size_t n;              /* items of an array, else 1 */
    union {
        int64_t integer;
        double real;
        bool boolean;
        struct teg_string string;
        const int64_t *integers;
        const double *reals;
        const bool *booleans;
        const struct teg_string *strings;
    };
};

enum teg_source_kind { TEG_SOURCE_GGUF, TEG_SOURCE_SAFETENSORS };

struct teg_source {
    enum teg_source_kind kind;
    const char *format;     /* "GGUF v3", "safetensors" */
    const char *path;       /* as the caller gave it: for messages */
    struct teg_arena arena; /* owns everything below */
    struct teg_tensor *tensors;
    size_t n_tensors;
    struct teg_meta *metas; /* GGUF: its key-value pairs; safetensors: config.json's top level, then
                             * generation_config.json's as "generation_config.KEY" */
    size_t n_metas;
    const char *tokenizer_path;        /* safetensors: the directory's tokenizer.json, else tokenizer.model, or NULL */
    const char *tokenizer_config_path; /* and tokenizer_config.json (chat template, special tokens) */
    const char *chat_template_path;    /* and chat_template.jinja */
    struct teg_source_impl *impl;      /* maps and hash tables */
};

/* Opens `path` as what its bytes say it is: GGUF (single file or any part of a split set; all parts are opened), or a
 * directory with config.json and safetensors. `need_tensors` false: weights may be absent (vocabulary only), and no
 * other file is opened for them: a directory then has no tensors, a split set those of its first part. */
enum teg_status teg_source_open(const char *path, bool need_tensors, const struct teg_allocator *allocator,
                                struct teg_source **source, struct teg_error *err);
void teg_source_free(struct teg_source *source);

/* NULL when there is none. O(log n), whatever the names. */
const struct teg_tensor *teg_source_tensor(const struct teg_source *source, const char *name);
const struct teg_meta *teg_source_meta(const struct teg_source *source, const char *key);

/* GGUF from memory (fuzzing, tests); `bytes` must outlive the source. `path` is for messages. */
enum teg_status teg_gguf_parse(const uint8_t *bytes, size_t n_bytes, const char *path, bool need_tensors,
                               const struct teg_allocator *allocator, struct teg_source **source,
                               struct teg_error *err);
/* One .safetensors file from memory: its tensors only. */
enum teg_status teg_safetensors_parse(const uint8_t *bytes, size_t n_bytes, const char *path,
                                      const struct teg_allocator *allocator, struct teg_source **source,
                                      struct teg_error *err);

#endif
