/* kernel/qgemm_encoding.c: matrices of dtype/encoding.h into panels (qgemm_layout.h).
 *
 * Affine codes and their scales go over as they are. A palette's codes do too, but its entries are half floats, and the
 * product wants bytes: so each block of columns has tables of its own, made from the entries that are really used
 * there. Outliers are rare, so most blocks have a narrow range and fine steps; one table for the whole matrix, whose
 * step the largest entry sets, is several times worse. What has no form of its own (palettes of 256 entries, blocks
 * that are not whole groups, float offsets) is decoded and quantized again in 8 bits, by row and block.
 *
 * In both cases scale and zero point are a float and a byte: value ≈ scale · (code - zero), where the range includes 0.
 * An entry that is not finite makes its columns NaN. */
#include <math.h>
#include <string.h>

#include "kernel/qgemm_layout.h"

enum { MOST_GROUPS = 24, LANE_COLUMNS = 4 };

struct form_type {
    enum gemm_codes codes;
    size_t code_bytes;
    size_t tables;
    uint32_t most_groups; /* 0: as the scales are */
};

static const struct form_type types[TEG_QGEMM_KIND_COUNT] = {
#define X(kind, codes, tables, most) [TEG_QGEMM_##kind] = {codes, CODE_BYTES(codes), tables, most},
    GEMM_FORMS(X)
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
           a->columns_each == b->columns_each;
}

/* Its codes and scales can stay: offsets are bytes as the codes are, and blocks are whole groups. */
static bool affine_stays(const struct teg_encoding *e, const struct teg_encoding_part *p)
{
    return !p->tables && (p->codes.bits == 4 || p->codes.bits == 8) && p->columns_each % TEG_QGEMM_GROUP == 0 &&
           !p->float_offsets && (!p->offsets.bytes || same_ints(&p->offsets, &p->codes)) &&
           e->columns % p->columns_each == 0;
}

/* Four columns share the 16 bytes in which a lookup happens: so must they share the file's table. */
static bool palette_stays(const struct teg_encoding_part *p)
{
    return p->tables && p->codes.bits <= 6 && (p->rows_each % LANE_COLUMNS == 0 || p->rows_each == p->n_rows);
}

bool teg_qgemm_form_of(const struct teg_encoding *e, struct teg_qgemm_form *form)
{
    static const enum teg_qgemm_kind palettes[] = {
        [1] = TEG_QGEMM_PALETTE_1, [2] = TEG_QGEMM_PALETTE_2, [3] = TEG_QGEMM_PALETTE_3,
        [4] = TEG_QGEMM_PALETTE_4, [6] = TEG_QGEMM_PALETTE_6,
    };
    const struct teg_encoding_part *const first = &e->parts[0];
    const size_t n_groups = e->columns / TEG_QGEMM_GROUP;
    if (e->columns % TEG_QGEMM_GROUP || n_groups == 0)
        return false;
    bool affine = true, palette = true;
    for (size_t i = 0; i < e->n_parts; i++) {
        const struct teg_encoding_part *const p = &e->parts[i];
        const bool same = same_kind(first, p);
        affine = affine && same && affine_stays(e, p);
        /* a part that ends within four columns would share their table with the next */
        palette = palette && same && palette_stays(p) && (p->n_rows % LANE_COLUMNS == 0 || i + 1 == e->n_parts);
    }
    *form = (struct teg_qgemm_form){.kind = TEG_QGEMM_REQUANTIZED, .wide_scales = true};
    if (affine) {
        form->kind = first->codes.bits == 4 ? TEG_QGEMM_AFFINE_4 : TEG_QGEMM_AFFINE_8;
        form->wide_scales = first->scale_dtype == TEG_DTYPE_F32;
        form->block_groups = (uint32_t)(first->columns_each / TEG_QGEMM_GROUP);
        return true;
    }
    if (palette)
        form->kind = palettes[first->codes.bits];
    const size_t most = types[form->kind].most_groups, n_blocks = (n_groups + most - 1) / most;
    form->block_groups = (uint32_t)((n_groups + n_blocks - 1) / n_blocks);
    return true;
}

size_t teg_qgemm_form_bytes(const struct teg_qgemm_form *form, size_t n, size_t k)
{
    const struct form_type *const type = &types[form->kind];
    const size_t panels = (n + COLUMNS - 1) / COLUMNS, groups = k / TEG_QGEMM_GROUP;
    const size_t blocks = (groups + form->block_groups - 1) / form->block_groups;
    return panels * (blocks * FORM_HEADER_BYTES(form, type->tables) + groups * type->code_bytes);
}

/* ---- one block of one panel ---- */

struct block {
    const struct teg_qgemm_form *form;
    const struct teg_encoding *e;
    uint8_t *header, *codes; /* scales, zeros, tables; planes of its groups */
    size_t n, columns;       /* rows of the matrix: columns of the product */
    size_t k, n_groups;
};

static void put_scale(const struct block *b, size_t c, float scale, uint8_t zero)
{
    memcpy(b->header + 4 * c, &scale, sizeof scale);
    b->header[FORM_SCALE_BYTES(b->form) + c] = zero;
}

/* Codes of column c, in order of k. */
static void place_column(const struct block *b, size_t c, const uint8_t *q)
{
    const struct form_type *const type = &types[b->form->kind];
    for (size_t g = 0; g < b->n_groups; g++)
        teg_qgemm_place(type->codes, b->codes + g * type->code_bytes, c, q + g * TEG_QGEMM_GROUP);
}

static void put_affine(const struct block *b, size_t c)
{
    size_t row;
    const struct teg_encoding_part *const p = teg_encoding_part_of(b->e, b->n + c, &row);
    const size_t scale_bytes = b->form->wide_scales ? 4 : 2;
    const size_t group = row / p->rows_each * (b->e->columns / p->columns_each) + b->k / p->columns_each;
    const int offset = p->offsets.bytes ? teg_encoding_int(&p->offsets, group) : 0;
    memcpy(b->header + scale_bytes * c, p->scales + scale_bytes * group, scale_bytes);
    b->header[scale_bytes * COLUMNS + c] = (uint8_t)(offset + teg_encoding_half(&p->codes));
    struct block piece = *b;
    for (size_t g = 0; g < b->n_groups; g++) { /* a block may be a whole row */
        uint8_t q[TEG_QGEMM_GROUP];
        teg_encoding_codes(&p->codes, row * b->e->columns + b->k + g * TEG_QGEMM_GROUP, TEG_QGEMM_GROUP, q);
        piece.codes = b->codes + g * types[b->form->kind].code_bytes;
        piece.n_groups = 1;
        place_column(&piece, c, q);
    }
}

/* A step and a zero point so that 0 … 255 reaches from low to high. */
struct range {
    float low, high;
    bool finite;
};

static void range_add(struct range *r, float x)
{
    r->low = x < r->low ? x : r->low;
    r->high = x > r->high ? x : r->high;
    r->finite = r->finite && x - x == 0;
}

static float range_step(const struct range *r, uint8_t *zero)
{
    const float step = r->high * (1.0f / 255) - r->low * (1.0f / 255);
    *zero = 0;
    if (!r->finite)
        return NAN;
    if (!(step >= 0x1p-120f)) /* its inverse must be a number */
        return 0;
    *zero = (uint8_t)fminf(255, nearbyintf(-r->low / step));
    return step;
}

static uint8_t byte_of(float x, float step, uint8_t zero)
{
    if (!(step > 0))
        return zero;
    return (uint8_t)fminf(255, fmaxf(0, nearbyintf(x / step) + (float)zero));
}

static void put_requantized(const struct block *b, size_t c)
{
    enum { MOST = 4 * TEG_QGEMM_GROUP };
    float x[MOST];
    uint8_t q[MOST], zero;
    const size_t n = b->n_groups * TEG_QGEMM_GROUP;
    struct range range = {.finite = true};
    teg_encoding_decode(b->e, b->n + c, b->k, n, x);
    for (size_t i = 0; i < n; i++)
        range_add(&range, x[i]);
    const float step = range_step(&range, &zero);
    for (size_t i = 0; i < n; i++)
        q[i] = byte_of(x[i], step, zero);
    put_scale(b, c, step, zero);
    place_column(b, c, q);
}

/* Columns c … c + 3: a table of the entries they use. */
static void put_palette(const struct block *b, size_t c, size_t columns)
{
    const struct form_type *const type = &types[b->form->kind];
    size_t row;
    const struct teg_encoding_part *const p = teg_encoding_part_of(b->e, b->n + c, &row);
    const float *const table = p->tables + (row / p->rows_each << p->codes.bits);
    const size_t n_entries = (size_t)1 << p->codes.bits;
    uint8_t q[MOST_GROUPS * TEG_QGEMM_GROUP], zero;
    bool used[64] = {false};
    struct range range = {.finite = true};
    for (size_t i = 0; i < columns; i++) {
        teg_encoding_codes(&p->codes, (row + i) * b->e->columns + b->k, b->n_groups * TEG_QGEMM_GROUP, q);
        for (size_t k = 0; k < b->n_groups * TEG_QGEMM_GROUP; k++)
            used[q[k]] = true;
        place_column(b, c + i, q);
    }
    for (size_t i = 0; i < n_entries; i++)
        if (used[i])
            range_add(&range, table[i]);
    const float step = range_step(&range, &zero);
    uint8_t *const bytes = b->header + FORM_SCALE_BYTES(b->form) + COLUMNS + c / LANE_COLUMNS * 16;
    for (size_t i = 0; i < type->tables * 16; i++)
        bytes[i / 16 * QUAD_BYTES + i % 16] = i < n_entries && used[i] ? byte_of(table[i], step, zero) : zero;
    for (size_t i = 0; i < columns; i++)
        put_scale(b, c + i, step, zero);
}

static void put_block(const struct block *b)
{
    for (size_t c = 0; c < b->columns; c++) {
        const size_t left = b->columns - c;
        if (b->form->kind == TEG_QGEMM_REQUANTIZED)
            put_requantized(b, c);
        else if (!types[b->form->kind].tables)
            put_affine(b, c);
        else if (c % LANE_COLUMNS == 0)
            put_palette(b, c, left < LANE_COLUMNS ? left : LANE_COLUMNS);
    }
}

void teg_qgemm_pack_form(const struct teg_qgemm_form *form, const struct teg_encoding *e, size_t n0, size_t n1,
                         void *dst)
{
    const struct form_type *const type = &types[form->kind];
    const size_t panel_bytes = teg_qgemm_form_bytes(form, COLUMNS, e->columns), n_groups = e->columns / TEG_QGEMM_GROUP;
    const size_t header_bytes = FORM_HEADER_BYTES(form, type->tables);
    for (size_t n = n0; n < n1; n += COLUMNS) {
        uint8_t *at = (uint8_t *)dst + n / COLUMNS * panel_bytes;
        struct block b = {.form = form, .e = e, .n = n, .columns = n1 - n < COLUMNS ? n1 - n : COLUMNS};
        if (b.columns < COLUMNS)
            memset(at, 0, panel_bytes);
        for (size_t g = 0; g < n_groups; g += form->block_groups) {
            b.k = g * TEG_QGEMM_GROUP;
            b.n_groups = n_groups - g < form->block_groups ? n_groups - g : form->block_groups;
            b.header = at;
            b.codes = at + header_bytes;
            put_block(&b);
            at = b.codes + b.n_groups * type->code_bytes;
        }
    }
}
