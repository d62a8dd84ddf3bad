/* quant/quant.h: one weight in another encoding, and what that cost.
 *
 * A weight is a matrix of `rows` output channels by `columns` inputs, row-major. The encodings are those that the
 * constexpr ops of Core ML hold (facts: docs/FORMATS.md), so nothing here needs to know a program: pass/ turns an
 * encoded weight into ops, emit/ writes its parts. Results depend on the input and the rule alone: not on threads, not
 * on the instruction set.
 *
 * Not taken: encoding in the writer's loop, tensor by tensor, with options read there. The report, `quantize` of a
 * package and `convert` of a GGUF would each have repeated it. */
#ifndef TEG_QUANT_QUANT_H
#define TEG_QUANT_QUANT_H

#include "base/arena.h"
#include "base/cursor.h"
#include "base/pool.h"
#include "dtype/dtype.h"

enum teg_quant_method {
    TEG_QUANT_F16,    /* dense half floats */
    TEG_QUANT_LINEAR, /* scale · (q - offset) */
    TEG_QUANT_PALETTE /* table[index] */
};
enum teg_quant_grain {
    TEG_QUANT_PER_TENSOR,
    TEG_QUANT_PER_CHANNEL, /* a row */
    TEG_QUANT_PER_BLOCK,   /* linear: `group` columns of a row; palettes: `group` rows share a table */
};
enum teg_quant_table { TEG_QUANT_KMEANS, TEG_QUANT_UNIFORM, TEG_QUANT_UNIQUE };

struct teg_quant_rule {
    enum teg_quant_method method;
    uint32_t bits;  /* linear: 4, 8; palettes: 1, 2, 3, 4, 6, 8 */
    bool is_signed; /* linear */
    bool symmetric; /* linear: offset in the middle; else it is stored */
    bool search;    /* linear: the scale with the least (weighted) squared error instead of the largest value's */
    enum teg_quant_grain grain;
    uint32_t group;
    bool pad;                   /* a last group may be short; else it is an error */
    enum teg_quant_table table; /* palettes */
    uint32_t vector;            /* palettes: columns of one entry, 1, 2 or 4 */
    float sparsity;             /* share of the smallest values set to zero first; 0: none */
    uint32_t keep_n, keep_of;   /* or: of each keep_of values of a row at most keep_n are kept; 0: none */
};

/* The parts of an encoded weight, each packed from the lowest bit as Core ML has it. n_bytes 0: not there. */
enum teg_quant_part {
    TEG_QUANT_DATA,   /* fp16 values, q, indices, or the kept values of a sparse weight */
    TEG_QUANT_SCALE,  /* fp16 [rows / group_rows, columns / group_columns] */
    TEG_QUANT_OFFSET, /* as data's type, shape as scale's */
    TEG_QUANT_LUT,    /* fp16 [rows / group_rows, columns / group_columns, 2^bits, vector] */
    TEG_QUANT_MASK,   /* one bit a value: sparse */
    TEG_QUANT_PART_COUNT
};

struct teg_quantized {
    struct teg_quant_rule rule; /* bits may be fewer: unique values */
    uint64_t rows, columns;
    uint64_t group_rows, group_columns; /* values that share a scale or table */
    bool sparse;
    struct teg_span parts[TEG_QUANT_PART_COUNT];
};

struct teg_quant_report {
    uint64_t source_bytes, bytes; /* all parts */
    double bits_per_weight;
    double relative_error; /* Frobenius: |w - w'| / |w| */
    double worst_row_error;
    uint64_t worst_row;
    bool exact; /* the same numbers as the source */
};

/* Bytes of each part and the groups, before anything is encoded (unique tables: the most it can be): what a writer
 * needs to lay out a file. Fails where the rule does not fit the shape; the sentence says what would. */
enum teg_status teg_quant_layout(const struct teg_quant_rule *rule, uint64_t rows, uint64_t columns, const char *name,
                                 size_t n_bytes[TEG_QUANT_PART_COUNT], struct teg_error *err);

/* Encodes values [rows, columns]. `importance` [columns] or NULL: weights of the squared error (mean square of what the
 * column is multiplied with). Parts lie in `arena`; report may be NULL. NaN and Inf are an error that names row and
 * column. Threads: slices of `pool`; NULL: the caller alone. */
enum teg_status teg_quantize(const struct teg_quant_rule *rule, const float *values, uint64_t rows, uint64_t columns,
                             const float *importance, const char *name, struct teg_pool *pool, struct teg_arena *arena,
                             struct teg_quantized *result, struct teg_quant_report *report, struct teg_error *err);
/* The values again: rows row … row + n - 1. */
enum teg_status teg_dequantize(const struct teg_quantized *weight, uint64_t row, uint64_t n, float *values,
                               struct teg_error *err);

/* A GGUF-quantized weight in the Core ML encoding that holds the same numbers. *possible false: there is none (the
 * caller decodes and encodes anew). */
enum teg_status teg_quant_reencode(enum teg_dtype dtype, const void *data, uint64_t rows, uint64_t columns,
                                   const char *name, struct teg_arena *arena, struct teg_quantized *result,
                                   bool *possible, struct teg_error *err);

/* "int4", "uint8", "lut4", "f16", … with grain and group as options have them; false: no such word. */
bool teg_quant_rule_parse(const char *text, struct teg_quant_rule *rule);

#endif
