/* dtype/encoding.h: a matrix whose codes, scales and tables lie apart, as Core ML packages store weights.
 *
 * The types of dtype.h keep everything about a row in the row. Here a row is a run of codes of 1 to 8 bits, and what
 * they mean stands elsewhere:
 *
 *     affine    value = scale · (code - offset)      one scale and offset for rows_each x columns_each values
 *     palette   value = table[code]                  one table for rows_each rows
 *
 * A matrix is one or more parts on top of each other (a head that was split), each with arrays of its own. Nothing is
 * copied: codes, scales and offsets are pointers into the mapped file, only tables are floats in memory. One function
 * decodes; it is the truth that packed forms are tested against.
 *
 * Not taken: turning these into the nearest block type of dtype.h. It costs a copy of the weights, an fp16 rounding of
 * products, and fits few of them. */
#ifndef TEG_DTYPE_ENCODING_H
#define TEG_DTYPE_ENCODING_H

#include "dtype/dtype.h"

enum { TEG_ENCODING_NAME = 24 };

/* Numbers of an array in the file. Integers may be narrower than a byte, packed from the lowest bit. */
struct teg_packed_ints {
    const uint8_t *bytes;
    uint32_t bits; /* 1, 2, 3, 4, 6, 8 */
    bool is_signed;
};

struct teg_encoding_part {
    size_t n_rows;
    struct teg_packed_ints codes; /* [n_rows, columns], row by row without padding; a palette's are unsigned */
    size_t rows_each;             /* rows that share a table, or a scale */
    const float *tables;          /* palette: [n_rows / rows_each][1 << bits]; NULL: affine */
    /* affine: arrays [n_rows / rows_each, columns / columns_each] */
    size_t columns_each;
    const uint8_t *scales;
    enum teg_dtype scale_dtype;     /* F16 or F32; values are rounded to it */
    struct teg_packed_ints offsets; /* .bytes NULL: 0, or float_offsets */
    const uint8_t *float_offsets;   /* NULL: none */
    enum teg_dtype float_offset_dtype;
    bool is_mapped; /* codes, scales and offsets lie in a mapped file, whose pages may be given back */
};

struct teg_encoding {
    char name[TEG_ENCODING_NAME]; /* "palette 4", "int4 x 32", "uint8 x row" */
    size_t n_rows, columns;
    const struct teg_encoding_part *parts;
    size_t n_parts;
    size_t n_bytes; /* in the file: codes, scales, offsets, tables */
};

/* Columns column … column + n - 1 of a row, as floats. */
void teg_encoding_decode(const struct teg_encoding *e, size_t row, size_t column, size_t n, float *dst);

/* The part that holds a row, and the row's number in it. */
const struct teg_encoding_part *teg_encoding_part_of(const struct teg_encoding *e, size_t row, size_t *row_in_part);
/* n codes from element `first` on, a byte each; signed ones are raised by half of their range (int4: by 8). */
void teg_encoding_codes(const struct teg_packed_ints *codes, size_t first, size_t n, uint8_t *dst);
/* What affine codes of this type are raised by. */
static inline int teg_encoding_half(const struct teg_packed_ints *codes)
{
    return codes->is_signed ? 1 << (codes->bits - 1) : 0;
}
/* Number i of an array of F16 or F32. */
float teg_encoding_float(const uint8_t *bytes, enum teg_dtype dtype, size_t i);
/* Element i, with its sign. */
int teg_encoding_int(const struct teg_packed_ints *ints, size_t i);
/* Bytes of the codes of rows row … row + n - 1 of a part, from `*bytes` on (whole bytes around them). */
size_t teg_encoding_code_bytes(const struct teg_encoding_part *part, size_t columns, size_t row, size_t n,
                               const uint8_t **bytes);
/* Writes the name and sums the bytes; everything else is set. */
void teg_encoding_seal(struct teg_encoding *e);

#endif
