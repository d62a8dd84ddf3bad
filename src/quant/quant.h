/* quant/quant.h: one weight in another encoding, and what that cost.
 *
 * A weight is a matrix of `rows` output channels by `columns` inputs, row-major. The encodings are those that the
 * constexpr ops of Core ML hold (facts: docs/FORMATS.md), so nothing here needs to know a program: pass/ turns an
 * encoded weight into ops, emit/ writes its parts. Results depend on the input and the rule alone: not on threads, not
 * on the instruction set.
 *
 * What an encoded weight is in ops, by its parts (SCALE etc. below):
 *   LINEAR   constexpr_blockwise_shift_scale(data, scale, offset where it is there)
 *            with a LUT part: data = constexpr_lut_to_dense(indices, lut) of int8 or uint8, then the same
 *   PALETTE  constexpr_lut_to_dense(indices, lut, vector_axis 1 where vector > 1)
 *   sparse   constexpr_sparse_blockwise_shift_scale, constexpr_lut_to_sparse or nothing, then constexpr_sparse_to_dense
 * The value of a weight is what these say when they compute in fp16: fp16(scale · fp16(q - offset)).
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
    uint32_t bits;     /* linear: 4, 8; palettes: 1, 2, 3, 4, 6, 8 */
    bool is_signed;    /* linear */
    bool symmetric;    /* linear: zero is in the middle (no OFFSET where signed); else an offset is stored */
    bool float_offset; /* linear, not symmetric: the offset is fp16, so that it need not be a whole step */
    bool search;       /* linear: the scale with the least (weighted) squared error instead of the largest value's */
    enum teg_quant_grain grain;
    uint32_t group;
    bool fit;                   /* a group that does not divide: the largest one below it that does; else an error */
    enum teg_quant_table table; /* palettes */
    bool plain; /* palettes by k-means: all values count alike, so the error is the least there is. Otherwise large ones
                   count more where no importance is given: the better guess, see docs/PERFORMANCE.md */
    uint32_t vector;          /* palettes: columns of one entry, 1, 2 or 4 */
    bool keep;                /* the source's own encoding where it has one; else the rest of this rule */
    float sparsity;           /* share of the smallest values set to zero first; 0: none */
    uint32_t keep_n, keep_of; /* or: of each keep_of values of a row at most keep_n are kept; 0: none */
};

/* The parts of an encoded weight, each packed from the lowest bit as Core ML has it. n_bytes 0: not there. */
enum teg_quant_part {
    TEG_QUANT_DATA,   /* fp16 values, q, indices, or the kept values of a sparse weight */
    TEG_QUANT_SCALE,  /* fp16 [rows / group_rows, columns / group_columns] */
    TEG_QUANT_OFFSET, /* data's type, or fp16 with float_offset; shape as scale's */
    TEG_QUANT_LUT,    /* palette: fp16 [rows / group_rows, columns / group_columns, 2^bits, vector];
                         linear: int8 or uint8 (is_signed) [2^bits], one for the tensor: DATA are indices into it */
    TEG_QUANT_MASK,   /* one bit a value: sparse */
    TEG_QUANT_PART_COUNT
};

struct teg_quantized {
    struct teg_quant_rule rule; /* bits may be fewer: unique values */
    uint64_t rows, columns;
    uint64_t group_rows, group_columns; /* values that share a scale or table */
    bool sparse;
    uint64_t n_kept; /* values that DATA holds: rows · columns where not sparse, indices of `vector` values */
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

/* All of a weight but its bytes (spans of NULL and their sizes), before anything is encoded: what a writer needs to lay
 * out a file. teg_quantize gives exactly this form. Fails where the rule does not fit the shape; the sentence says what
 * would. Tables of unique values: see teg_quant_unique_bits. */
enum teg_status teg_quant_layout(const struct teg_quant_rule *rule, uint64_t rows, uint64_t columns, const char *name,
                                 struct teg_quantized *layout, struct teg_error *err);
/* Bits of the smallest table that holds every distinct value of each group; an error where 8 are not enough. A rule for
 * unique tables gets its bits by this before it goes to layout. */
enum teg_status teg_quant_unique_bits(const struct teg_quant_rule *rule, const float *values, uint64_t rows,
                                      uint64_t columns, const char *name, uint32_t *bits, struct teg_error *err);

/* Encodes values [rows, columns]. `importance` [columns] or NULL: weights of the squared error (mean square of what the
 * column is multiplied with). Parts lie in `arena`; report may be NULL. NaN and Inf are an error that names row and
 * column. Threads: slices of `pool`; NULL: the caller alone. */
enum teg_status teg_quantize(const struct teg_quant_rule *rule, const float *values, uint64_t rows, uint64_t columns,
                             const float *importance, const char *name, struct teg_pool *pool, struct teg_arena *arena,
                             struct teg_quantized *result, struct teg_quant_report *report, struct teg_error *err);
/* The same from a matrix that is read slab by slab, so that no more floats are in memory at once than the rule needs: a
 * few megabytes where each row stands for itself, else all. The result is teg_quantize's to the last byte. `read` fills
 * values [n, columns] of rows row … row + n - 1. */
struct teg_quant_rows {
    enum teg_status (*read)(void *ctx, uint64_t row, uint64_t n, float *values, struct teg_error *err);
    void *ctx;
};
enum teg_status teg_quantize_rows(const struct teg_quant_rule *rule, const struct teg_quant_rows *source, uint64_t rows,
                                  uint64_t columns, const float *importance, const char *name, struct teg_arena *arena,
                                  struct teg_quantized *result, struct teg_quant_report *report, struct teg_error *err);
/* Bytes that it has at once beside the result. */
size_t teg_quant_scratch_bytes(const struct teg_quantized *layout);
/* The values again: rows row … row + n - 1. */
enum teg_status teg_dequantize(const struct teg_quantized *weight, uint64_t row, uint64_t n, float *values,
                               struct teg_error *err);

/* What `weight` lost of `values` [rows, columns]; source_bytes is that of fp16. `exact`: each is the fp16 of what it
 * was. */
enum teg_status teg_quant_measure(const struct teg_quantized *weight, const float *values, struct teg_pool *pool,
                                  const struct teg_allocator *allocator, struct teg_quant_report *report,
                                  struct teg_error *err);

/* A GGUF-quantized weight in the Core ML encoding that holds the same numbers: what the file means, to within the
 * rounding of scales and offsets to fp16 (none for Q4_0 and Q8_0). The form depends on the type and the shape alone.
 * False: there is none (the caller decodes and encodes anew). */
bool teg_quant_reencode_layout(enum teg_dtype dtype, uint64_t rows, uint64_t columns, struct teg_quantized *layout);
/* Whether that form has the type's numbers to the last bit of fp16: one scale, no minimum. */
bool teg_quant_reencode_is_exact(enum teg_dtype dtype);
/* *possible false: no such form, or a number that does not fit it. */
enum teg_status teg_quant_reencode(enum teg_dtype dtype, const void *data, uint64_t rows, uint64_t columns,
                                   const char *name, struct teg_arena *arena, struct teg_quantized *result,
                                   bool *possible, struct teg_error *err);

/* A matrix in one of the encodings of packages, or some of its rows, again as an encoded weight: the same codes, scales
 * and tables, so the same numbers. False: there is none (scales in fp32, rows that cut a table in two, parts that
 * differ). */
struct teg_encoding;
bool teg_quant_keep_layout(const struct teg_encoding *encoding, enum teg_dtype dtype, uint64_t row, uint64_t n_rows,
                           struct teg_quantized *layout);
enum teg_status teg_quant_keep(const struct teg_encoding *encoding, uint64_t row, const struct teg_quantized *layout,
                               const char *name, struct teg_arena *arena, struct teg_quantized *result,
                               struct teg_error *err);

/* A rule as options write it: WORD[/GRAIN][,FLAG]…
 *   WORD   f16, int8, uint8, int4, uint4, lut8, lut6, lut4, lut3, lut2, lut1, keep (else int8/channel)
 *   GRAIN  tensor, channel, or a number: the group (default: int8 channel, int4 32, lut6 and lut8 tensor, others 16)
 *   FLAG   sym (8 bits: the default), asym (4 bits: the default), float (asym with fp16 offsets), minmax (no search),
 *          kmeans, plain (see above), uniform, unique, v2, v4, fit, sparse=0.5, 2:4
 * False: no such rule; *rule is untouched. */
bool teg_quant_rule_parse(const char *text, struct teg_quant_rule *rule);
/* The same text again, canonical: at most 64 bytes. */
void teg_quant_rule_format(const struct teg_quant_rule *rule, char text[64]);

#endif
