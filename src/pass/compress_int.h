/* pass/compress_int.h: what the files of compress share. Private to pass/. */
#ifndef TEG_PASS_COMPRESS_INT_H
#define TEG_PASS_COMPRESS_INT_H

#include "pass/compress.h"
#include "pass/dense.h"

enum { TEG_COMPRESS_IOS16 = 7, TEG_COMPRESS_IOS18 = 9 }; /* opsets */

/* A tensor as a matrix: rows are the channels along `axis`, columns all else in order. Blocks of columns run along
 * `along`; one step of that dimension is `step` columns. */
struct geometry {
    uint32_t rank, axis, along;
    int64_t dims[TEG_MIL_MAX_RANK];
    size_t rows, columns, step;
    size_t outer, inner; /* elements before and after the axis: outer 1: rows lie one after the other */
};

/* A variable of the program as it was: a constant, or made by constexpr ops of that block. */
struct source {
    const struct teg_mil_program *program;
    const struct teg_mil_block *block;
    teg_mil_var_id var;
};
static inline const struct teg_mil_const *teg_source_constant(const struct source *s)
{
    return s->program->vars[s->var].constant;
}

struct weight {
    struct teg_compressed_weight pub;
    struct source source;
    uint32_t opset;
    bool is_wide; /* before iOS 18, of fp32: so are scales and tables */
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

struct compressor {
    struct teg_mil_program *p;
    const struct teg_mil_program *before; /* a copy: variables as they were */
    const struct teg_compress_options *o;
    struct teg_compressed *made;
    struct teg_arena scratch;
    size_t var_capacity;
    uint32_t opset;         /* of this function */
    struct teg_mil_op *ops; /* new ops of this function */
    size_t n_ops;
    bool *is_replaced; /* [n_vars before]: an old op made it */
    struct teg_error *err;
};
void *teg_compress_take(struct compressor *c, size_t n, size_t item_bytes); /* in the program's arena */

/* ---- sources (compress_source.c) ---- */

/* The constexpr op of the block that makes it, or NULL. */
const struct teg_mil_op *teg_source_maker(const struct source *s);
bool teg_source_same(const struct source *a, const struct source *b);
/* Of all constants in it. */
size_t teg_source_bytes(const struct source *s);
/* Row-major, [n] of the tensor's type; in `arena`. */
enum teg_status teg_source_values(const struct source *s, const char *name, struct teg_arena *arena, float **values,
                                  struct teg_error *err);

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
                                  bool again, struct usage *usage, struct teg_error *err);

/* ---- ops (compress_ops.c) ---- */

/* Whether the function's opset has ops for that form; `rule` is changed to one that it has where rule->fit says so. */
enum teg_status teg_compress_check_form(const struct compressor *c, const char *name, struct teg_quant_rule *rule);
/* Lets new ops define the variable. */
enum teg_status teg_compress_write(struct compressor *c, const struct weight *w, teg_mil_var_id id);

/* ---- encoding (compress_make.c) ---- */

bool teg_compress_geometry(const struct teg_mil_type *type, uint32_t axis, uint32_t along, struct geometry *g);
/* rows · columns floats of a weight, in `arena`. */
enum teg_status teg_compress_values(const struct weight *w, struct teg_arena *arena, float **values,
                                    struct teg_error *err);
/* Bytes of a part as the program has it. */
size_t teg_compress_part_bytes(const struct weight *w, enum teg_quant_part part);
/* Groups of columns counted in steps of `along`. */
enum teg_status teg_compress_layout(struct weight *w, const struct teg_quant_rule *rule, struct teg_error *err);
enum teg_status teg_compress_make(const struct teg_mil_deferred *deferred, struct teg_arena *arena,
                                  struct teg_span parts[TEG_MIL_DEFERRED_PARTS], struct teg_error *err);

#endif
