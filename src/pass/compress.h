/* pass/compress.h: a program whose dense weights become encoded ones: ML program -> ML program, where it stands.
 *
 * A weight is a constant of floats that some op uses as its weight: linear, conv, conv_transpose, matmul, the weights
 * of recurrent layers, the table of an embedding. Everything else keeps its bytes, above all tables that are no
 * weights: a gathered table is one where its rows multiply something that does not come from it (cos and sin of RoPE),
 * or where they hold two numbers only (masks).
 *
 * A weight that is encoded already may get another encoding; it is decoded to what the program says it is, and the ops
 * that held it go. Programs before iOS 18 get the forms that their opset has; those of iOS 15, which has none, become
 * programs of iOS 16.
 *
 * Nothing is encoded here: the constants become deferred ones (mil/make.h), whose bytes the writer asks for. */
#ifndef TEG_PASS_COMPRESS_H
#define TEG_PASS_COMPRESS_H

#include "mil/make.h"
#include "quant/policy.h"

struct teg_compress_options {
    const struct teg_quant_policy *policy;
    bool again;           /* weights that are encoded already too */
    bool may_leave_alone; /* a program that no weight of can be encoded is no error */
    /* Importance of the columns of a weight, [columns], or NULL. */
    const float *(*importance)(void *ctx, const char *name, uint64_t columns);
    void *importance_ctx;
};

/* One constant of the program; constants of several functions that share bytes and form are one. */
struct teg_compressed_weight {
    const char *name, *op; /* op: one that uses it */
    uint64_t rows, columns;
    bool embedding, head;
    const char *why;            /* left alone: the reason; NULL: encoded */
    struct teg_quant_rule rule; /* of the layout */
    bool calibrated, made;
    struct teg_quant_report report; /* once made */
};

struct teg_compressed;
/* Changes `program`, which must outlive the result; where it fails, the program is good for teg_mil_free only. A
 * program that no weight of can be encoded is an error (see may_leave_alone). */
enum teg_status teg_compress(struct teg_mil_program *program, const struct teg_compress_options *options,
                             struct teg_compressed **compressed, struct teg_error *err);
size_t teg_compressed_count(const struct teg_compressed *compressed);
const struct teg_compressed_weight *teg_compressed_weight(const struct teg_compressed *compressed, size_t index);

#endif
