/* pass/dense.h: what a constant of a program is, as floats, whatever it is stored as.
 *
 * A weight is a constant, or a chain of constexpr ops over constants: scales over a palette of codes, a sparse form
 * over either. All forms of both generations (opset 7: bit streams; opset 9: blocks, vectors, sparse pairs) are decoded
 * here, once, for whoever needs the numbers: raise, where a weight has no encoding that the planner knows, and
 * compress, where it gets another one. Not taken: calling the evaluator, which is a level above and holds every value
 * in four bytes and a header. */
#ifndef TEG_PASS_DENSE_H
#define TEG_PASS_DENSE_H

#include "mil/program.h"

struct teg_dense {
    const struct teg_mil_program *program;
    /* The op that makes a variable, NULL where there is none. */
    const struct teg_mil_op *(*maker)(const void *ctx, teg_mil_var_id var);
    const void *ctx;
    struct teg_arena *arena; /* results, and what it took to get them */
};

/* The values, row-major. NULL: *why says what was expected and found, or is NULL where memory is out. A half-precision
 * result is rounded once: fp16(scale · (code - offset)). */
float *teg_dense_values(const struct teg_dense *d, teg_mil_var_id var, size_t *n, const char **why);

/* Element i of packed bytes; not of strings and 8-bit floats. */
float teg_dense_element(enum teg_mil_dtype dtype, const uint8_t *bytes, size_t i);
/* Types that teg_dense_element reads. */
bool teg_dense_readable(enum teg_mil_dtype dtype);

#endif
