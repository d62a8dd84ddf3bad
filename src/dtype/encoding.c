/* dtype/encoding.c: decoding of matrices whose codes and scales lie apart.
 *
 * Codes become bytes, 256 at a time, then bytes become floats run by run: all values of a run share a scale, or a
 * table. The loops are plain and branch-free, for the compiler to make vectors of. Rounding to fp16 works on bits, so a
 * value is the same with every compiler flag and equals what rounding it through an fp16 number gives. */
#include "dtype/encoding.h"

#include <stdio.h>
#include <string.h>

enum { PIECE = 256 };

/* ---- codes ---- */

static inline __attribute__((always_inline)) void eight_at_a_time(const uint8_t *src, size_t n, const uint32_t bits,
                                                                  uint8_t *dst)
{
    for (size_t i = 0; i < n; i += 8, src += bits) {
        uint64_t word = 0;
        memcpy(&word, src, bits);
        for (uint32_t k = 0; k < 8; k++)
            dst[i + k] = (uint8_t)(word >> (k * bits) & ((1u << bits) - 1));
    }
}

static uint8_t code_at(const struct teg_packed_ints *codes, size_t i)
{
    const size_t bit = i % 8 * codes->bits;
    const uint8_t *const p = codes->bytes + i / 8 * codes->bits + bit / 8;
    uint32_t word = p[0];
    if (bit % 8 + codes->bits > 8)
        word |= (uint32_t)p[1] << 8;
    return (uint8_t)(word >> (bit % 8) & ((1u << codes->bits) - 1));
}

static void eights(const struct teg_packed_ints *codes, size_t first, size_t n, uint8_t *dst)
{
    const uint8_t *const src = codes->bytes + first / 8 * codes->bits;
    switch (codes->bits) {
    case 1:
        eight_at_a_time(src, n, 1, dst);
        break;
    case 2:
        eight_at_a_time(src, n, 2, dst);
        break;
    case 3:
        eight_at_a_time(src, n, 3, dst);
        break;
    case 4:
        for (size_t i = 0; i < n; i += 2) {
            dst[i] = src[i / 2] & 15;
            dst[i + 1] = src[i / 2] >> 4;
        }
        break;
    case 6:
        eight_at_a_time(src, n, 6, dst);
        break;
    default:
        memcpy(dst, src, n);
        break;
    }
}

void teg_encoding_codes(const struct teg_packed_ints *codes, size_t first, size_t n, uint8_t *dst)
{
    size_t i = 0;
    for (; i < n && (first + i) % 8; i++)
        dst[i] = code_at(codes, first + i);
    const size_t whole = (n - i) / 8 * 8;
    if (whole)
        eights(codes, first + i, whole, dst + i);
    for (i += whole; i < n; i++)
        dst[i] = code_at(codes, first + i);
    if (codes->is_signed)
        for (i = 0; i < n; i++)
            dst[i] = (uint8_t)(dst[i] ^ 1u << (codes->bits - 1));
}

int teg_encoding_int(const struct teg_packed_ints *ints, size_t i)
{
    const int code = code_at(ints, i);
    return ints->is_signed ? (code ^ teg_encoding_half(ints)) - teg_encoding_half(ints) : code;
}

size_t teg_encoding_code_bytes(const struct teg_encoding_part *part, size_t columns, size_t row, size_t n,
                               const uint8_t **bytes)
{
    /* in eighths of the elements, so that nothing overflows that is not too large already */
    const size_t first = row * columns, last = first + n * columns;
    const size_t begin = first / 8 * part->codes.bits + first % 8 * part->codes.bits / 8;
    const size_t end = last / 8 * part->codes.bits + (last % 8 * part->codes.bits + 7) / 8;
    *bytes = part->codes.bytes + begin;
    return end - begin;
}

/* ---- values ---- */

float teg_encoding_float(const uint8_t *bytes, enum teg_dtype dtype, size_t i)
{
    uint16_t half;
    float value;
    if (dtype == TEG_DTYPE_F16) {
        memcpy(&half, bytes + 2 * i, sizeof half);
        return teg_f16_to_f32(half);
    }
    memcpy(&value, bytes + 4 * i, sizeof value);
    return value;
}

/* Each to the nearest fp16 number, ties to even. Below 2^-14 those are multiples of 2^-24, which is the distance of
 * floats from 1/2 to 1. */
static void round_to_half(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits, tiny_bits;
        memcpy(&bits, &x[i], sizeof bits);
        const uint32_t sign = bits & 0x80000000u, magnitude = bits & 0x7fffffffu;
        float size;
        memcpy(&size, &magnitude, sizeof size);
        const float tiny = (size + 0.5f) - 0.5f;
        memcpy(&tiny_bits, &tiny, sizeof tiny_bits);
        const uint32_t normal = (magnitude + 0xfff + (magnitude >> 13 & 1)) & ~0x1fffu;
        uint32_t result = magnitude < 0x38800000u ? tiny_bits : normal;
        result = magnitude >= 0x477ff000u ? 0x7f800000u : result;
        result = magnitude > 0x7f800000u ? magnitude | 0x400000u : result;
        result |= sign;
        memcpy(&x[i], &result, sizeof result);
    }
}

/* n values of one scale. */
static void affine_run(const struct teg_encoding_part *part, size_t group, const uint8_t *codes, size_t n, float *dst)
{
    const float scale = teg_encoding_float(part->scales, part->scale_dtype, group);
    const float half = (float)teg_encoding_half(&part->codes);
    float offset = 0;
    if (part->float_offsets)
        offset = teg_encoding_float(part->float_offsets, part->float_offset_dtype, group);
    else if (part->offsets.bytes)
        offset = (float)teg_encoding_int(&part->offsets, group);
    for (size_t i = 0; i < n; i++)
        dst[i] = scale * (((float)codes[i] - half) - offset);
    if (part->scale_dtype == TEG_DTYPE_F16)
        round_to_half(dst, n);
}

const struct teg_encoding_part *teg_encoding_part_of(const struct teg_encoding *e, size_t row, size_t *row_in_part)
{
    const struct teg_encoding_part *part = e->parts;
    for (; row >= part->n_rows; part++)
        row -= part->n_rows;
    *row_in_part = row;
    return part;
}

void teg_encoding_decode(const struct teg_encoding *e, size_t row, size_t column, size_t n, float *dst)
{
    const struct teg_encoding_part *const part = teg_encoding_part_of(e, row, &row);
    const float *const table = part->tables ? part->tables + (row / part->rows_each << part->codes.bits) : NULL;
    const size_t first_group = part->tables ? 0 : row / part->rows_each * (e->columns / part->columns_each);
    uint8_t codes[PIECE];
    while (n) {
        size_t run = n < PIECE ? n : PIECE;
        if (!table && part->columns_each - column % part->columns_each < run)
            run = part->columns_each - column % part->columns_each;
        teg_encoding_codes(&part->codes, row * e->columns + column, run, codes);
        if (table)
            for (size_t i = 0; i < run; i++)
                dst[i] = table[codes[i]];
        else
            affine_run(part, first_group + column / part->columns_each, codes, run, dst);
        column += run;
        dst += run;
        n -= run;
    }
}

/* ---- facts ---- */

static size_t part_bytes(const struct teg_encoding_part *part, size_t columns)
{
    const uint8_t *first;
    const size_t codes = teg_encoding_code_bytes(part, columns, 0, part->n_rows, &first);
    const size_t rows = part->n_rows / part->rows_each;
    if (part->tables)
        return codes + (rows << part->codes.bits) * 2; /* fp16 there */
    const size_t groups = rows * (columns / part->columns_each);
    const size_t offset_bits = part->float_offsets   ? part->float_offset_dtype == TEG_DTYPE_F16 ? 16 : 32
                               : part->offsets.bytes ? part->offsets.bits
                                                     : 0;
    return codes + groups * (part->scale_dtype == TEG_DTYPE_F16 ? 2 : 4) + (groups * offset_bits + 7) / 8;
}

void teg_encoding_seal(struct teg_encoding *e)
{
    const struct teg_encoding_part *const p = &e->parts[0];
    const char *const kind = p->codes.is_signed ? "int" : "uint";
    if (p->tables && p->rows_each == p->n_rows)
        (void)snprintf(e->name, sizeof e->name, "palette%u", p->codes.bits);
    else if (p->tables)
        (void)snprintf(e->name, sizeof e->name, "palette%u/%zu rows", p->codes.bits, p->rows_each);
    else if (p->columns_each == e->columns)
        (void)snprintf(e->name, sizeof e->name, "%s%u/row", kind, p->codes.bits);
    else
        (void)snprintf(e->name, sizeof e->name, "%s%u/%zu", kind, p->codes.bits, p->columns_each);
    e->n_bytes = 0;
    for (size_t i = 0; i < e->n_parts; i++)
        e->n_bytes += part_bytes(&e->parts[i], e->columns);
}
