/* mil/impl.h: what the two readers (protobuf: spec.c, text: text.c) share. Nothing outside src/mil and its tests
 * includes it.
 *
 * A reader walks its file once, in order. Names are resolved to variables as they come, so a use before the definition
 * is found where it stands; types and constants are checked where they are made. What both files can say is built by
 * the functions here, so the two cannot disagree. */
#ifndef TEG_MIL_IMPL_H
#define TEG_MIL_IMPL_H

#include "base/check.h"
#include "base/wire.h"
#include "format/mlpackage.h"
#include "mil/names.h"
#include "mil/program.h"
#include "mil/type.h"

/* Deeper is refused. Types and values nest by recursion, blocks too; real programs have 3 and 4. */
enum { TEG_MIL_MAX_TYPE_DEPTH = 16, TEG_MIL_MAX_VALUE_DEPTH = 16, TEG_MIL_MAX_BLOCK_DEPTH = 32 };

/* Specification versions that have ML programs and that are known. */
enum { TEG_MIL_OLDEST = 6, TEG_MIL_NEWEST = 10 };

struct teg_mil_files {
    struct teg_mlpackage package;
    bool in_memory;          /* then `weights` is the one weight file */
    struct teg_span weights; /* .bytes NULL: none */
};

struct teg_mil_reader {
    struct teg_mil_program *program;
    struct teg_arena *arena; /* the program's */
    struct teg_error *err;
    const char *path;    /* of the file being read: for messages */
    const uint8_t *base; /* its first byte: positions */
    struct teg_mil_names names;
    size_t var_capacity;
    const char *weights_name; /* of the weight file asked for last, interned; most programs have one */
    struct teg_span weights;
};

#define MIL_FAIL(r, status, at, ...) return (void)teg_mil_fail((r), (status), (at), __VA_ARGS__), (status)
/* "cannot read ML program: PATH at byte N: …"; `at` points into the file. */
enum teg_status teg_mil_fail(const struct teg_mil_reader *r, enum teg_status status, const uint8_t *at,
                             const char *message, ...) TEG_PRINTF(4, 5);
enum teg_status teg_mil_no_memory(const struct teg_mil_reader *r, size_t n_bytes);

/* ---- build.c ---- */

enum teg_status teg_mil_program_new(const char *path, const char *format, const struct teg_allocator *allocator,
                                    struct teg_mil_program **program, struct teg_error *err);

/* A name as a C string, made once. `what`: "an op type". */
enum teg_status teg_mil_intern(struct teg_mil_reader *r, struct teg_span name, const char *what, const char **out);
enum teg_status teg_mil_define(struct teg_mil_reader *r, struct teg_span name, const struct teg_mil_type *type,
                               uint32_t op, teg_mil_var_id *id);
enum teg_status teg_mil_use(struct teg_mil_reader *r, struct teg_span name, teg_mil_var_id *id);
/* A variable for a value without a name. */
enum teg_status teg_mil_inline(struct teg_mil_reader *r, const struct teg_mil_const *value, teg_mil_var_id *id);
/* Sorts the args by name and refuses a name that comes twice. */
enum teg_status teg_mil_seal_op(struct teg_mil_reader *r, struct teg_mil_op *op, struct teg_mil_arg *args,
                                const uint8_t *at);
/* A const op: gives its output `name` the value. */
enum teg_status teg_mil_define_const(struct teg_mil_reader *r, struct teg_span name, const struct teg_mil_type *type,
                                     const struct teg_mil_const *value);
/* All functions are read: sorts them by name and refuses a name that comes twice. */
enum teg_status teg_mil_seal_functions(struct teg_mil_reader *r, const uint8_t *at);
/* The opset's number; an error where it is unknown. `tag`: ios16, not CoreML6. */
enum teg_status teg_mil_opset(const struct teg_mil_reader *r, struct teg_span name, bool is_tag, uint32_t *opset,
                              const char **canonical);

/* ---- constants (value.c) ---- */

/* Reads a tensor's payload from a weight file: value->type is set. */
enum teg_status teg_mil_blob(struct teg_mil_reader *r, struct teg_span file, uint64_t offset,
                             struct teg_mil_const *value, const uint8_t *at);
/* Stores an integer as one element of dtype; false: out of its range. */
bool teg_mil_put_int(uint8_t *to, enum teg_mil_dtype dtype, int64_t v);

/* ---- spec_type.c, spec_value.c, spec.c, describe.c ---- */

enum teg_status teg_mil_spec_type(struct teg_mil_reader *r, struct teg_span message, int depth,
                                  struct teg_mil_type *type);
enum teg_status teg_mil_spec_value(struct teg_mil_reader *r, struct teg_span message, int depth,
                                   struct teg_mil_const *value);
enum teg_status teg_mil_wire_fail(const struct teg_mil_reader *r, struct teg_span message, size_t bad,
                                  const char *what);
/* teg_wire_read or a failure that names the message. */
#define MIL_READ(r, message, rows, out, what)                                                                          \
    do {                                                                                                               \
        size_t bad_;                                                                                                   \
        if (!teg_wire_read((message), (rows), sizeof(rows) / sizeof *(rows), (out), &bad_))                            \
            return teg_mil_wire_fail((r), (message), bad_, (what));                                                    \
    } while (0)

enum teg_status teg_mil_read_spec(struct teg_mil_reader *r, struct teg_span model);
/* "a neural network": what a Model is that is no ML program, and its message; NULL: none that is known. */
const char *teg_mil_model_type(struct teg_span model, struct teg_span *content);
/* pipeline.c: `content` is the Pipeline, `description` its ModelDescription. */
enum teg_status teg_mil_read_pipeline(struct teg_mil_reader *r, struct teg_span content, struct teg_span description);
enum teg_status teg_mil_read_text(struct teg_mil_reader *r, struct teg_span text);
/* The ModelDescription, after the functions are known: interfaces, metadata; then check.c. */
enum teg_status teg_mil_describe(struct teg_mil_reader *r, struct teg_span message);
/* Interfaces from the functions themselves, where there is no description (text from memory). */
enum teg_status teg_mil_describe_functions(struct teg_mil_reader *r);
/* Description and functions agree. */
enum teg_status teg_mil_check(struct teg_mil_reader *r, const uint8_t *at);

static inline struct teg_span teg_mil_span(const char *s)
{
    return (struct teg_span){(const uint8_t *)s, strlen(s)};
}
/* For "%.*s": at most 80 bytes of a name from a file. */
#define MIL_NAME(span) (int)teg_min((span).n_bytes, 80), (const char *)(span).bytes

#endif
