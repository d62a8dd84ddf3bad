/* emit/emit_int.h: what the files of emit.c share: one package that is being written. */
#ifndef TEG_EMIT_EMIT_INT_H
#define TEG_EMIT_EMIT_INT_H

#include "base/hash.h"
#include "emit/emit.h"
#include "emit/wire_out.h"
#include "mil/type.h"

/* A constant of a function and where its op stands: before op `op` of block `block` (numbered as they begin). */
struct teg_emit_place {
    uint32_t block, op;
    uint32_t order; /* of first uses: variables' numbers come from the order of a map in a file */
    teg_mil_var_id var;
    bool needs_op; /* some use is by name; else it stands in its users */
};
struct teg_emit_function {
    struct teg_emit_place *places; /* by block, then op */
    size_t n_places;
    uint32_t n_blocks;
};

struct teg_emitter {
    const struct teg_mil_program *program;
    const struct teg_emit_options *options;
    const char *path; /* the target: for messages */
    struct teg_arena arena;
    struct teg_error *err;
    struct teg_emit_function *functions; /* [n_functions] */
    uint64_t *records;                   /* [n_vars] place in the weight file; 0: inline */
    struct teg_hasher content;           /* of all that is written */
    struct teg_emit_report report;
};

/* "cannot write package: PATH: …" */
#define EMIT_FAIL(e, status, ...) return (void)teg_emit_fail((e), (status), __VA_ARGS__), (status)
enum teg_status teg_emit_fail(const struct teg_emitter *e, enum teg_status status, const char *format, ...)
    TEG_PRINTF(3, 4);
enum teg_status teg_emit_no_memory(const struct teg_emitter *e, size_t n_bytes);

/* ---- place.c ---- */

enum teg_status teg_emit_find_places(struct teg_emitter *e);

/* ---- weights.c ---- */

/* Whether it goes to the weight file. */
bool teg_emit_is_blob(const struct teg_emitter *e, const struct teg_mil_const *value);
/* Writes the weight file (which is open for reading and writing, and empty) and fills e->records. */
enum teg_status teg_emit_weights(struct teg_emitter *e, int fd);

/* ---- spec.c, spec_value.c, spec_description.c ---- */

/* The Model message; run twice (wire_out.h). Fails for what the format cannot say. */
enum teg_status teg_emit_model(struct teg_emitter *e, struct teg_wire_out *w);
enum teg_status teg_emit_type(struct teg_emitter *e, struct teg_wire_out *w, uint32_t field,
                              const struct teg_mil_type *type);
/* record 0: inline. */
enum teg_status teg_emit_value(struct teg_emitter *e, struct teg_wire_out *w, uint32_t field,
                               const struct teg_mil_const *value, uint64_t record);
void teg_emit_string_value(struct teg_wire_out *w, uint32_t field, const char *text);
void teg_emit_description(struct teg_emitter *e, struct teg_wire_out *w, uint32_t field);

#endif
