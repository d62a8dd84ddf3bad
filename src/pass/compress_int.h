/* pass/compress_int.h: what the files of compress share. Private to pass/. */
#ifndef TEG_PASS_COMPRESS_INT_H
#define TEG_PASS_COMPRESS_INT_H

#include "pass/compress.h"

/* A tensor as a matrix: rows are the channels along `axis`, columns all else in order. Blocks of columns run along
 * `along`; one step of that dimension is `step` columns. */
struct geometry {
    uint32_t rank, axis, along;
    int64_t dims[TEG_MIL_MAX_RANK];
    size_t rows, columns, step;
    size_t outer, inner; /* elements before and after the axis: outer 1: rows lie one after the other */
};

struct weight {
    struct teg_compressed_weight pub;
    const struct teg_mil_const *source;
    struct geometry g;
    struct teg_quantized form; /* without bytes */
    const float *importance;
    struct teg_mil_deferred deferred;
    struct weight *next;
};

struct teg_compressed {
    struct weight *first, **last;
    size_t n;
};

/* ---- finding (compress_find.c) ---- */

enum role { ROLE_NONE, ROLE_WEIGHT, ROLE_OTHER, ROLE_SEVERAL };
struct usage {
    enum role role;
    uint32_t axis, along;
    const struct teg_mil_op *op;
    bool embedding, head;
    const char *why; /* not a weight */
};
/* What each constant of a function is used for: usage [n_vars], cleared. */
enum teg_status teg_compress_find(const struct teg_mil_program *program, const struct teg_mil_function *function,
                                  struct usage *usage, struct teg_error *err);

/* ---- encoding (compress_make.c) ---- */

bool teg_compress_geometry(const struct teg_mil_type *type, uint32_t axis, uint32_t along, struct geometry *g);
/* rows · columns floats. */
void teg_compress_values(const struct teg_mil_const *source, const struct geometry *g, float *values);
/* Groups of columns counted in steps of `along`. */
enum teg_status teg_compress_layout(struct weight *w, const struct teg_quant_rule *rule, struct teg_error *err);
enum teg_status teg_compress_make(const struct teg_mil_deferred *deferred, struct teg_arena *arena,
                                  struct teg_span parts[TEG_MIL_DEFERRED_PARTS], struct teg_error *err);

#endif
