/* kernel/qgemm_encoding.c: matrices of dtype/encoding.h into panels (qgemm_layout.h).
 *
 * Affine codes and their scales go over as they are (float scales in 22 bits); a float offset becomes a minimum, minus
 * scale · offset. A palette's codes do too, but its entries are half floats, and the product wants bytes: so an entry
 * becomes two of them, value ≈ scale · (256 high + low - zero), with a scale and zero point for each 4 columns, from
 * the entries that those use. Not taken: one byte an entry, or values quantized again in 8 bits. Both are twice as
 * fast, and both cost more than 8-bit activations do (docs/PERFORMANCE.md). An entry that is not finite makes its
 * columns NaN. */
#include <math.h>
#include <string.h>

#include "kernel/qgemm_layout.h"

enum { LANE_COLUMNS = 4 };

static const struct form_type {
    enum gemm_codes codes;
    size_t code_bytes;
    size_t tables; /* of 16 entries; 0: affine */
} types[TEG_QGEMM_KIND_COUNT] = {
#define X(kind, codes) [TEG_QGEMM_##kind] = {codes, CODE_BYTES(codes), 0},
    GEMM_AFFINE(X)
#undef X
#define X(kind, codes, tables) [TEG_QGEMM_##kind] = {codes, CODE_BYTES(codes), tables},
        GEMM_PALETTES(X)
#undef X
};

/* ---- which form ---- */

static bool same_ints(const struct teg_packed_ints *a, const struct teg_packed_ints *b)
{
    return a->bits == b->bits && a->is_signed == b->is_signed;
}

static bool same_kind(const struct teg_encoding_part *a, const struct teg_encoding_part *b)
{
    return same_ints(&a->codes, &b->codes) && !a->tables == !b->tables && a->scale_dtype == b->scale_dtype &&
           !a->float_offsets == !b->float_offsets && a->columns_each == b->columns_each;
}

/* Its codes and scales can stay: offsets are bytes as the codes are, and blocks are whole groups. */
static bool affine_stays(const struct teg_encoding *e, const struct teg_encoding_part *p)
{
    return !p->tables && (p->codes.bits == 4 || p->codes.bits == 8) && p->columns_each % TEG_QGEMM_GROUP == 0 &&
           (!p->float_offsets || p->codes.bits == 4) && (!p->offsets.bytes || same_ints(&p->offsets, &p->codes)) &&
           e->columns % p->columns_each == 0;
}

/* Four columns share the 16 bytes in which a lookup happens: so must they share the file's table. */
static bool palette_stays(const struct teg_encoding_part *p)
{
    return p->tables && (p->rows_each % LANE_COLUMNS == 0 || p->rows_each == p->n_rows);
}

bool teg_qgemm_form_of(const struct teg_encoding *e, struct teg_qgemm_form *form)
{
    static const enum teg_qgemm_kind palettes[] = {
        [1] = TEG_QGEMM_PALETTE_1, [2] = TEG_QGEMM_PALETTE_2, [3] = TEG_QGEMM_PALETTE_3,
        [4] = TEG_QGEMM_PALETTE_4, [6] = TEG_QGEMM_PALETTE_6, [8] = TEG_QGEMM_PALETTE_8,
    };
    const struct teg_encoding_part *const first = &e->parts[0];
    if (e->columns == 0 || e->columns % TEG_QGEMM_GROUP)
        return false;
    for (size_t i = 0; i < e->n_parts; i++) {
        const struct teg_encoding_part *const p = &e->parts[i];
        if (!same_kind(first, p) || (p->tables ? !palette_stays(p) : !affine_stays(e, p)))
            return false;
        if (p->tables && i + 1 < e->n_parts && p->n_rows % LANE_COLUMNS)
            return false; /* the next part would share its last table */
    }
    *form = (struct teg_qgemm_form){.kind = palettes[first->codes.bits]};
    if (!first->tables)
        *form = (struct teg_qgemm_form){
            .kind = first->float_offsets     ? TEG_QGEMM_MINIMUM_4
                    : first->codes.bits == 4 ? TEG_QGEMM_AFFINE_4
                                             : TEG_QGEMM_AFFINE_8,
            .wide_scales = first->scale_dtype == TEG_DTYPE_F32,
            .block_groups = (uint32_t)(first->columns_each / TEG_QGEMM_GROUP),
        };
    return true;
}

/* Groups of one panel under a header, and the header's bytes. */
static size_t block_of(const struct teg_qgemm_form *form, size_t n_groups, size_t *header_bytes)
{
    const size_t tables = types[form->kind].tables;
    *header_bytes = tables ? PALETTE_HEADER_BYTES(tables) : AFFINE_HEADER_BYTES(form);
    return tables ? n_groups : form->block_groups;
}

size_t teg_qgemm_form_bytes(const struct teg_qgemm_form *form, size_t n, size_t k)
{
    const size_t panels = (n + COLUMNS - 1) / COLUMNS, n_groups = k / TEG_QGEMM_GROUP;
    size_t header_bytes;
    const size_t block = block_of(form, n_groups, &header_bytes);
    return panels * (n_groups / block * header_bytes + n_groups * types[form->kind].code_bytes);
}

/* ---- one block of one panel ---- */

struct block {
    const struct teg_qgemm_form *form;
    const struct teg_encoding *e;
    uint8_t *header, *codes; /* planes of its groups */
    size_t n, columns;       /* rows of the matrix: columns of the product */
    size_t group, n_groups;
};

/* Codes of column c, row `row` of the part; used[] (or NULL) learns which come. */
static void place_column(const struct block *b, const struct teg_encoding_part *p, size_t row, size_t c, bool *used)
{
    const struct form_type *const type = &types[b->form->kind];
    for (size_t g = 0; g < b->n_groups; g++) {
        uint8_t q[TEG_QGEMM_GROUP];
        teg_encoding_codes(&p->codes, row * b->e->columns + (b->group + g) * TEG_QGEMM_GROUP, TEG_QGEMM_GROUP, q);
        teg_qgemm_place(type->codes, b->codes + g * type->code_bytes, c, q);
        for (size_t k = 0; used && k < TEG_QGEMM_GROUP; k++)
            used[q[k]] = true;
    }
}

/* Nearest float of 22 bits, which is what a product takes (qgemm_layout.h). Infinity, NaN and what has fewer bits stay.
 */
static float short_scale(float scale)
{
    uint32_t bits;
    memcpy(&bits, &scale, sizeof bits);
    const uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude < 0x400000 || magnitude >= 0x7f7ffffc)
        return scale;
    bits = (bits + 2) & ~UINT32_C(3);
    memcpy(&scale, &bits, sizeof scale);
    return scale;
}

static void put_affine(const struct block *b, size_t c)
{
    size_t row;
    const struct teg_encoding_part *const p = teg_encoding_part_of(b->e, b->n + c, &row);
    const size_t scale_bytes = b->form->wide_scales ? 4 : 2;
    const size_t group =
        row / p->rows_each * (b->e->columns / p->columns_each) + b->group * TEG_QGEMM_GROUP / p->columns_each;
    const int offset = p->offsets.bytes ? teg_encoding_int(&p->offsets, group) : 0;
    if (b->form->wide_scales) {
        const float scale = short_scale(teg_encoding_float(p->scales, p->scale_dtype, group));
        memcpy(b->header + scale_bytes * c, &scale, sizeof scale);
    } else {
        memcpy(b->header + scale_bytes * c, p->scales + scale_bytes * group, scale_bytes);
    }
    b->header[scale_bytes * COLUMNS + c] = (uint8_t)(offset + teg_encoding_half(&p->codes));
    if (p->float_offsets) { /* of two f16, the product is exact */
        const float minimum = -teg_encoding_float(p->scales, p->scale_dtype, group) *
                              teg_encoding_float(p->float_offsets, p->float_offset_dtype, group);
        memcpy(b->header + (scale_bytes + 1) * COLUMNS + 4 * c, &minimum, sizeof minimum);
    }
    place_column(b, p, row, c, NULL);
}

/* Nearest integer, ties to even, of |x| < 2^22. */
static float nearest(float x)
{
    return (x + 12582912.0f) - 12582912.0f;
}

/* A step and a zero point so that 0 … 65535 reaches from the least to the largest of the used entries, and 0. */
static float step_of(const float *table, const bool *used, size_t n, float *zero)
{
    float low = 0, high = 0;
    bool finite = true;
    for (size_t i = 0; i < n; i++) {
        const float x = used[i] ? table[i] : 0;
        low = x < low ? x : low;
        high = x > high ? x : high;
        finite = finite && x - x == 0;
    }
    const float step = high * (1.0f / 65535) - low * (1.0f / 65535);
    *zero = 0;
    if (!finite)
        return NAN;
    if (!(step >= 0x1p-120f)) /* its inverse must be a number, and 256 of it too */
        return 0;
    *zero = nearest(-low / step);
    return short_scale(step);
}

static void put_halves(uint8_t *low, size_t distance, float x)
{
    const uint32_t word = (uint32_t)fminf(65535, fmaxf(0, x));
    low[0] = (uint8_t)word;
    low[distance] = (uint8_t)(word >> 8);
}

/* Columns c … c + 3, and their table. */
static void put_palette(const struct block *b, size_t c, size_t columns)
{
    const size_t tables = types[b->form->kind].tables;
    size_t row;
    const struct teg_encoding_part *const p = teg_encoding_part_of(b->e, b->n + c, &row);
    const size_t n_entries = (size_t)1 << p->codes.bits;
    const float *const table = p->tables + row / p->rows_each * n_entries;
    bool used[256] = {false};
    float zero;
    for (size_t i = 0; i < columns; i++)
        place_column(b, p, row + i, c + i, used);
    const float step = step_of(table, used, n_entries, &zero), inverse = step > 0 ? 1 / step : 0;
    uint8_t *const zeros = b->header + 4 * COLUMNS, *const entries = zeros + 2 * COLUMNS + c / LANE_COLUMNS * 16;
    for (size_t i = 0; i < tables * 16; i++)
        put_halves(entries + i / 16 * QUAD_BYTES + i % 16, tables * QUAD_BYTES,
                   i < n_entries && used[i] && step > 0 ? nearest(table[i] * inverse) + zero : zero);
    for (size_t i = c; i < c + columns; i++) {
        memcpy(b->header + 4 * i, &step, sizeof step);
        put_halves(zeros + i, COLUMNS, zero);
    }
}

static void put_block(const struct block *b)
{
    const bool palette = types[b->form->kind].tables > 0;
    for (size_t c = 0; c < b->columns; c += palette ? LANE_COLUMNS : 1) {
        const size_t left = b->columns - c;
        if (palette)
            put_palette(b, c, left < LANE_COLUMNS ? left : LANE_COLUMNS);
        else
            put_affine(b, c);
    }
}

void teg_qgemm_pack_form(const struct teg_qgemm_form *form, const struct teg_encoding *e, size_t n0, size_t n1,
                         void *dst)
{
    const size_t panel_bytes = teg_qgemm_form_bytes(form, COLUMNS, e->columns), n_groups = e->columns / TEG_QGEMM_GROUP;
    size_t header_bytes;
    const size_t block = block_of(form, n_groups, &header_bytes);
    for (size_t n = n0; n < n1; n += COLUMNS) {
        uint8_t *at = (uint8_t *)dst + n / COLUMNS * panel_bytes;
        struct block b = {
            .form = form, .e = e, .n = n, .columns = n1 - n < COLUMNS ? n1 - n : COLUMNS, .n_groups = block};
        if (b.columns < COLUMNS)
            memset(at, 0, panel_bytes);
        for (; b.group < n_groups; b.group += block) {
            b.header = at;
            b.codes = at + header_bytes;
            put_block(&b);
            at = b.codes + block * types[form->kind].code_bytes;
        }
    }
}
