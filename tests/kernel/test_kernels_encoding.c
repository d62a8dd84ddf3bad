/* tests/kernel/test_kernels_encoding.c: matrices of dtype/encoding.h: decoding, packing and products, every record x
 * form x shapes around tiles, blocks and tables, worst-case data, guard pages.
 *
 * Nothing here shares code with what it tests: codes are read bit by bit, values are computed one at a time, and packed
 * panels are read by the layout's description. Three things are checked. Decoding gives the file's values, bit for bit.
 * Packed values are the file's: exactly for affine codes, within half of 1/65535 of the range that a table's used
 * entries have for palettes. Products are the sums of packed values times quantized activations, within the bound of
 * qgemm.h. */
#include "kernel/qgemm.h"
#include "kernel/qgemm_layout.h"
#include "kernel_test.h"

/* ---- matrices ---- */

struct recipe {
    const char *name;
    uint32_t bits;
    bool is_signed, palette, offsets, float_offsets;
    enum teg_dtype scale_dtype;
    size_t rows_each, columns_each; /* 0: all */
    size_t n_parts;
    enum teg_qgemm_kind kind; /* the form that is expected; BLOCKS: none */
};

static const struct recipe recipes[] = {
    {"int4 x 32", 4, true, false, false, false, TEG_DTYPE_F16, 1, 32, 1, TEG_QGEMM_AFFINE_4},
    {"uint4 x 32 offset", 4, false, false, true, false, TEG_DTYPE_F16, 1, 32, 1, TEG_QGEMM_AFFINE_4},
    {"int4 x 64 offset f32", 4, true, false, true, false, TEG_DTYPE_F32, 1, 64, 1, TEG_QGEMM_AFFINE_4},
    {"uint4 rows of 3", 4, false, false, false, false, TEG_DTYPE_F16, 3, 0, 1, TEG_QGEMM_AFFINE_4},
    {"int8 rows", 8, true, false, false, false, TEG_DTYPE_F16, 1, 0, 1, TEG_QGEMM_AFFINE_8},
    {"uint8 rows offset f32", 8, false, false, true, false, TEG_DTYPE_F32, 1, 0, 1, TEG_QGEMM_AFFINE_8},
    {"int8 x 32 offset", 8, true, false, true, false, TEG_DTYPE_F16, 1, 32, 1, TEG_QGEMM_AFFINE_8},
    {"int8 tensor, parts", 8, true, false, false, false, TEG_DTYPE_F16, 0, 0, 2, TEG_QGEMM_AFFINE_8},
    {"int4 x 16", 4, true, false, false, false, TEG_DTYPE_F16, 1, 16, 1, TEG_QGEMM_BLOCKS},
    {"int4 x 64 float offset", 4, true, false, false, true, TEG_DTYPE_F16, 1, 64, 1, TEG_QGEMM_MINIMUM_4},
    {"uint8 float offset", 8, false, false, false, true, TEG_DTYPE_F16, 1, 32, 1, TEG_QGEMM_BLOCKS},
    {"palette 1", 1, false, true, false, false, TEG_DTYPE_F16, 0, 0, 1, TEG_QGEMM_PALETTE_1},
    {"palette 2, rows of 8", 2, false, true, false, false, TEG_DTYPE_F16, 8, 0, 1, TEG_QGEMM_PALETTE_2},
    {"palette 3, rows of 4", 3, false, true, false, false, TEG_DTYPE_F16, 4, 0, 1, TEG_QGEMM_PALETTE_3},
    {"palette 4", 4, false, true, false, false, TEG_DTYPE_F16, 0, 0, 1, TEG_QGEMM_PALETTE_4},
    {"palette 4, rows of 16, parts", 4, false, true, false, false, TEG_DTYPE_F16, 16, 0, 3, TEG_QGEMM_PALETTE_4},
    {"palette 4, rows of 2", 4, false, true, false, false, TEG_DTYPE_F16, 2, 0, 1, TEG_QGEMM_BLOCKS},
    {"palette 6", 6, false, true, false, false, TEG_DTYPE_F16, 0, 0, 1, TEG_QGEMM_PALETTE_6},
    {"palette 8, rows of 32", 8, false, true, false, false, TEG_DTYPE_F16, 32, 0, 1, TEG_QGEMM_PALETTE_8},
};
enum { N_RECIPES = sizeof recipes / sizeof recipes[0], MOST_PARTS = 3 };

enum fill { FILL_RANDOM, FILL_ZEROS, FILL_ONES, FILL_OUTLIER, FILL_TINY, FILL_COUNT };

struct matrix {
    struct teg_encoding e;
    struct teg_encoding_part parts[MOST_PARTS];
};

static void fill_bytes(uint8_t *p, size_t n, enum fill fill)
{
    for (size_t i = 0; i < n; i++)
        p[i] = fill == FILL_ZEROS ? 0 : fill == FILL_ONES ? 0xff : (uint8_t)random_u32();
}

static float some_float(enum fill fill)
{
    return (fill == FILL_TINY ? 3e-7f : 0.02f) * random_float();
}

static uint8_t *some_floats(size_t n, enum teg_dtype dtype, enum fill fill, enum edge edge)
{
    const size_t item = dtype == TEG_DTYPE_F16 ? 2 : 4;
    uint8_t *const bytes = guarded(n * item, edge);
    for (size_t i = 0; i < n; i++) {
        const float x = some_float(fill);
        const uint16_t half = teg_f32_to_f16(x);
        memcpy(bytes + i * item, item == 2 ? (const void *)&half : &x, item);
    }
    return bytes;
}

static void make_part(struct teg_encoding_part *p, const struct recipe *r, size_t n_rows, size_t columns,
                      enum fill fill, enum edge edge)
{
    *p = (struct teg_encoding_part){.n_rows = n_rows};
    const size_t code_bytes = (n_rows * columns * r->bits + 7) / 8;
    uint8_t *const codes = guarded(code_bytes, edge);
    fill_bytes(codes, code_bytes, fill);
    p->codes = (struct teg_packed_ints){codes, r->bits, r->is_signed};
    p->rows_each = r->rows_each ? r->rows_each : n_rows;
    p->columns_each = r->columns_each ? r->columns_each : columns;
    const size_t groups = n_rows / p->rows_each * (r->palette ? 1 : columns / p->columns_each);
    if (r->palette) {
        float *const tables = guarded_floats(groups << r->bits, edge);
        for (size_t i = 0; i < groups << r->bits; i++)
            tables[i] = teg_f16_to_f32(teg_f32_to_f16(some_float(fill)));
        if (fill == FILL_OUTLIER)
            tables[0] = 60000;
        p->tables = tables;
        return;
    }
    p->scale_dtype = r->scale_dtype;
    p->scales = some_floats(groups, r->scale_dtype, fill, edge);
    if (r->offsets) {
        uint8_t *const offsets = guarded((groups * r->bits + 7) / 8, edge);
        fill_bytes(offsets, (groups * r->bits + 7) / 8, fill);
        p->offsets = (struct teg_packed_ints){offsets, r->bits, r->is_signed};
    }
    p->float_offset_dtype = TEG_DTYPE_F16;
    if (r->float_offsets)
        p->float_offsets = some_floats(groups, TEG_DTYPE_F16, fill, edge);
}

/* Rows must suit the recipe: their number is rounded up to whole groups of rows. Returns it. */
static size_t make_matrix(struct matrix *m, const struct recipe *r, size_t n, size_t columns, enum fill fill,
                          enum edge edge)
{
    const size_t each = r->rows_each ? r->rows_each : 1, least = r->n_parts > 1 && each < 4 ? 4 : each;
    const size_t part_rows = (n + least * r->n_parts - 1) / (least * r->n_parts) * least;
    m->e = (struct teg_encoding){.columns = columns, .parts = m->parts, .n_parts = r->n_parts};
    for (size_t i = 0; i < r->n_parts; i++) {
        make_part(&m->parts[i], r, part_rows, columns, fill, edge);
        m->e.n_rows += part_rows;
    }
    teg_encoding_seal(&m->e);
    return m->e.n_rows;
}

/* ---- what the file says ---- */

static int int_at(const struct teg_packed_ints *ints, size_t i)
{
    int v = 0;
    for (uint32_t b = 0; b < ints->bits; b++) {
        const size_t at = i * ints->bits + b;
        v |= (ints->bytes[at / 8] >> (at % 8) & 1) << b;
    }
    return ints->is_signed && v >> (ints->bits - 1) ? v - (1 << ints->bits) : v;
}

static float float_at(const uint8_t *bytes, enum teg_dtype dtype, size_t i)
{
    uint16_t half;
    float x;
    memcpy(&half, bytes + 2 * i, sizeof half);
    if (dtype == TEG_DTYPE_F16)
        return teg_f16_to_f32(half);
    memcpy(&x, bytes + 4 * i, sizeof x);
    return x;
}

/* As the file means it, before the rounding to fp16. */
static float value_at(const struct matrix *m, size_t row, size_t column, bool *rounds)
{
    const struct teg_encoding_part *p = m->parts;
    for (; row >= p->n_rows; p++)
        row -= p->n_rows;
    const int code = int_at(&p->codes, row * m->e.columns + column);
    *rounds = false;
    if (p->tables)
        return p->tables[(row / p->rows_each << p->codes.bits) + (size_t)code];
    const size_t group = row / p->rows_each * (m->e.columns / p->columns_each) + column / p->columns_each;
    const float offset = p->float_offsets   ? float_at(p->float_offsets, TEG_DTYPE_F16, group)
                         : p->offsets.bytes ? (float)int_at(&p->offsets, group)
                                            : 0;
    *rounds = p->scale_dtype == TEG_DTYPE_F16;
    return float_at(p->scales, p->scale_dtype, group) * ((float)code - offset);
}

static float decoded_at(const struct matrix *m, size_t row, size_t column)
{
    bool rounds;
    const float x = value_at(m, row, column, &rounds);
    return rounds ? teg_f16_to_f32(teg_f32_to_f16(x)) : x;
}

static void test_decode(void)
{
    for (size_t i = 0; i < N_RECIPES; i++) {
        bool same = true;
        for (int fill = 0; fill < FILL_COUNT; fill++)
            for (size_t columns = 32; columns <= 640; columns += 304) {
                struct matrix m;
                const struct recipe *const r = &recipes[i];
                /* odd widths begin rows within a byte */
                const size_t width = r->columns_each
                                         ? (columns + r->columns_each - 1) / r->columns_each * r->columns_each
                                         : columns + (size_t)fill;
                const size_t n = make_matrix(&m, r, 7, width, (enum fill)fill, fill % 2 ? EDGE_START : EDGE_END);
                for (size_t row = 0; row < n; row++)
                    for (size_t piece = 1; piece <= width; piece = piece * 3 + 5) {
                        float *const x = guarded_floats(piece, EDGE_END);
                        const size_t column = random_u32() % (width - piece + 1);
                        teg_encoding_decode(&m.e, row, column, piece, x);
                        for (size_t k = 0; k < piece; k++)
                            same &= same_bits(x[k], decoded_at(&m, row, column + k));
                    }
                release_all();
            }
        tap_ok(same, "%s: decoded bit for bit", recipes[i].name);
    }
}

/* ---- what a panel says ---- */

static const struct layout {
    enum gemm_codes codes;
    size_t code_bytes, tables;
} layouts[TEG_QGEMM_KIND_COUNT] = {
#define X(kind, codes) [TEG_QGEMM_##kind] = {codes, CODE_BYTES(codes), 0},
    GEMM_AFFINE(X)
#undef X
#define X(kind, codes, tables) [TEG_QGEMM_##kind] = {codes, CODE_BYTES(codes), tables},
        GEMM_PALETTES(X)
#undef X
};

static unsigned pair_of(const uint8_t *plane, size_t c, size_t quad, size_t r)
{
    return plane[quad / 4 * QUAD_BYTES + 4 * c + r] >> (quad % 4 * 2) & 3u;
}

static unsigned nibble_of(const uint8_t *plane, size_t c, size_t quad, size_t r)
{
    return plane[quad / 2 * QUAD_BYTES + 4 * c + r] >> (quad % 2 * 4) & 15u;
}

/* Code of k (0 … 31) of column c in a group's planes. */
static unsigned plane_code(enum gemm_codes codes, const uint8_t *plane, size_t c, size_t k)
{
    const size_t quad = k / 4, r = k % 4;
    switch (codes) {
    case CODES_1:
        return plane[4 * c + r] >> quad & 1;
    case CODES_2:
        return pair_of(plane, c, quad, r);
    case CODES_3:
        return pair_of(plane, c, quad, r) | (plane[2 * QUAD_BYTES + 4 * c + r] >> quad & 1u) << 2;
    case CODES_6:
        return nibble_of(plane, c, quad, r) | pair_of(plane + 4 * QUAD_BYTES, c, quad, r) << 4;
    case CODES_8:
        return plane[quad * QUAD_BYTES + 4 * c + r];
    default:
        return nibble_of(plane, c, quad, r);
    }
}

struct packed_value {
    double value, step;
    double parts; /* what is added apart, without its sign */
};

static struct packed_value affine_at(const struct teg_qgemm_form *form, const uint8_t *packed, size_t n, size_t k,
                                     size_t columns)
{
    const struct layout *const l = &layouts[form->kind];
    const bool minimums = form->kind == TEG_QGEMM_MINIMUM_4;
    const size_t scale_bytes = form->wide_scales ? 128 : 64, header_bytes = scale_bytes + (minimums ? 160 : 32);
    const size_t c = n % 32, group = k / 32;
    const uint8_t *const header = packed + n / 32 * teg_qgemm_form_bytes(form, 32, columns) +
                                  group / form->block_groups * (header_bytes + form->block_groups * l->code_bytes);
    const unsigned code =
        plane_code(l->codes, header + header_bytes + group % form->block_groups * l->code_bytes, c, k % 32);
    const double step = (double)float_at(header, form->wide_scales ? TEG_DTYPE_F32 : TEG_DTYPE_F16, c);
    const double value = step * ((double)code - (double)header[scale_bytes + c]);
    const double minimum = minimums ? (double)float_at(header + scale_bytes + 32, TEG_DTYPE_F32, c) : 0;
    return (struct packed_value){value + minimum, step, fabs(value) + fabs(minimum)};
}

static struct packed_value palette_at(const struct teg_qgemm_form *form, const uint8_t *packed, size_t n, size_t k,
                                      size_t columns)
{
    const struct layout *const l = &layouts[form->kind];
    const size_t c = n % 32, half = l->tables * 128;
    const uint8_t *const header = packed + n / 32 * teg_qgemm_form_bytes(form, 32, columns), *const zeros =
                                                                                                 header + 128;
    const uint8_t *const tables = zeros + 64, *const codes = tables + 2 * half;
    const unsigned code = plane_code(l->codes, codes + k / 32 * l->code_bytes, c, k % 32);
    const uint8_t *const entry = tables + code / 16 * 128 + c / 4 * 16 + code % 16;
    const double step = (double)float_at(header, TEG_DTYPE_F32, c);
    const int low = entry[0] - zeros[c], high = 256 * (entry[half] - zeros[32 + c]);
    return (struct packed_value){step * (low + high), step, fabs(step) * (abs(low) + abs(high))};
}

static struct packed_value packed_at(const struct teg_qgemm_form *form, const uint8_t *packed, size_t n, size_t k,
                                     size_t columns)
{
    return (layouts[form->kind].tables ? palette_at : affine_at)(form, packed, n, k, columns);
}

/* The range of all values of the four rows that share a table with row n, zero included. */
static double range_at(const struct matrix *m, size_t n)
{
    double low = 0, high = 0;
    for (size_t i = n / 4 * 4; i < n / 4 * 4 + 4 && i < m->e.n_rows; i++)
        for (size_t j = 0; j < m->e.columns; j++) {
            const double x = (double)decoded_at(m, i, j);
            low = x < low ? x : low;
            high = x > high ? x : high;
        }
    return high - low;
}

static bool packed_right(const struct matrix *m, const struct teg_qgemm_form *form, const uint8_t *packed)
{
    for (size_t n = 0; n < m->e.n_rows; n += 1 + n / 3) {
        const double range = layouts[form->kind].tables ? range_at(m, n) : 0;
        for (size_t k = 0; k < m->e.columns; k += 1 + k % 5) {
            bool rounds;
            const double value = (double)value_at(m, n, k, &rounds);
            const struct packed_value p = packed_at(form, packed, n, k, m->e.columns);
            if (range == 0 ? fabs(p.value - value) > p.parts * 6 * EPS /* of them 4: float scales have 22 bits */
                           : fabs(p.value - value) > 0.51 * p.step + 65535 * 0x1p-120 || p.step > range / 65530)
                return false;
        }
    }
    return true;
}

/* ---- products ---- */

struct problem {
    size_t t, n, k;
    const struct recipe *recipe;
    enum fill fill;
    bool extreme; /* activations at both ends of their range */
    uint32_t terms;
};

struct verdict {
    double ratio;
    bool form, packed, cuts, isas;
};

static double activation(const struct gemm_group *g, size_t i)
{
    return (double)g->scale * (double)(g->u[i] + (int16_t)(g->pair & 0xffff));
}

static double check_sums(const struct teg_qgemm_args *a, const uint8_t *packed, size_t row_bytes)
{
    struct worst worst = {0};
    struct packed_value *const w = malloc(a->k * sizeof *w);
    for (size_t n = 0; n < a->n1; n++) {
        for (size_t k = 0; k < a->k; k++)
            w[k] = packed_at(a->w_form, packed, n, k, a->k);
        for (size_t t = 0; t < a->n_tokens; t++) {
            double sum = a->bias ? (double)a->bias[n] : 0, magnitude = fabs(sum);
            for (size_t term = 0; term < a->terms; term++) {
                const struct gemm_group *const row =
                    (const void *)((const char *)a->x + t * a->x_stride_bytes + term * row_bytes);
                for (size_t k = 0; k < a->k; k++) {
                    const double x = activation(&row[k / 32], k % 32);
                    sum += x * w[k].value;
                    magnitude += fabs(x) * w[k].parts;
                }
            }
            worst_add(&worst, (double)a->y[t * a->y_stride + n], sum,
                      (12 * (double)a->k / 32 + 8) * EPS * magnitude + 1e-38);
        }
    }
    free(w);
    return worst.ratio;
}

static bool cuts_agree(const struct teg_qgemm *gemm, const struct teg_qgemm_args *whole, float *y,
                       const float *expected)
{
    struct teg_qgemm_args a = *whole;
    const size_t n_tokens = whole->n_tokens, n = whole->n1;
    bool same = true;
    for (size_t t = 0; t < n_tokens; t += a.n_tokens) {
        a.n_tokens = 1 + t % 3 < n_tokens - t ? 1 + t % 3 : n_tokens - t;
        a.x = (const char *)whole->x + t * a.x_stride_bytes;
        a.y = y + t * a.y_stride;
        for (a.n0 = 0; a.n0 < n; a.n0 = a.n1) {
            a.n1 = a.n0 + 32 < n ? a.n0 + 32 : n;
            gemm->run(&a);
        }
    }
    for (size_t t = 0; t < n_tokens; t++)
        same &= all_same_bits(y + t * a.y_stride, expected + t * a.y_stride, n);
    return same;
}

static void run_problem(const struct teg_cpu *cpu, const struct teg_qgemm *gemm, const struct problem *p,
                        enum edge edge, struct verdict *v)
{
    struct matrix m;
    struct teg_qgemm_form form;
    const size_t n = make_matrix(&m, p->recipe, p->n, p->k, p->fill, edge), row = teg_qgemm_row_bytes(p->k);
    const bool has_form = teg_qgemm_form_of(&m.e, &form), expects = p->recipe->kind != TEG_QGEMM_BLOCKS;
    v->form &= has_form == expects && (!has_form || form.kind == p->recipe->kind);
    if (!has_form) {
        release_all();
        return;
    }
    uint8_t *const packed = guarded(teg_qgemm_form_bytes(&form, n, p->k), EDGE_END);
    for (size_t c = 0; c < n; c += 32)
        teg_qgemm_pack_form(&form, &m.e, c, c + 32 < n ? c + 32 : n, packed);
    v->packed &= packed_right(&m, &form, packed);
    float *const x = guarded_floats(p->t * p->k, edge), *const y = guarded_floats(p->t * (n + 5) - 5, edge);
    float *const other = guarded_floats(p->t * (n + 5) - 5, edge), *const bias = guarded_floats(n, edge);
    fill_random(x, p->t * p->k);
    fill_random(bias, n);
    for (size_t i = 0; p->extreme && i < p->t * p->k; i++)
        x[i] = i % 64 < 16 || i % 64 >= 32 ? 1 : -1;
    void *const q = guarded(p->t * row * p->terms, edge);
    gemm->quantize(x, p->k, q, row * p->terms, p->terms, p->t, p->k);
    struct teg_qgemm_args a = {.x = q,
                               .x_stride_bytes = row * p->terms,
                               .terms = p->terms,
                               .w = packed,
                               .w_form = &form,
                               .bias = bias,
                               .y = y,
                               .y_stride = n + 5,
                               .n_tokens = p->t,
                               .k = p->k,
                               .n1 = n,
                               .scratch = guarded_scratch(teg_qgemm_scratch_floats())};
    gemm->run(&a);
    v->ratio = fmax(v->ratio, check_sums(&a, packed, row));
    v->cuts &= cuts_agree(gemm, &a, other, y);
    const struct teg_qgemm *const avx2 = teg_qgemm_select_isa(cpu, TEG_ISA_AVX2);
    if (avx2 && gemm->isa != TEG_ISA_BASE) /* fused records agree with one another */
        v->isas &= cuts_agree(avx2, &a, other, y);
    release_all();
}

static void test_products(const struct teg_cpu *cpu, const struct teg_qgemm *gemm)
{
    static const size_t shapes[][3] = {
        {1, 32, 2}, {2, 33, 9}, {3, 4, 10}, {5, 64, 1}, {7, 40, 18}, {13, 97, 25}, {255, 8, 2},
    };
    for (size_t i = 0; i < N_RECIPES; i++) {
        struct verdict v = {0, true, true, true, true};
        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
            for (int fill = 0; fill < FILL_COUNT; fill++) {
                if (fill && shapes[s][0] > 7)
                    continue;
                const size_t groups = recipes[i].columns_each == 64 ? (shapes[s][2] + 1) / 2 * 2 : shapes[s][2];
                const struct problem p = {shapes[s][0],         shapes[s][1],    groups * 32,
                                          &recipes[i],          (enum fill)fill, fill == FILL_ONES || (s + i) % 3 == 0,
                                          1 + (uint32_t)(s % 2)};
                run_problem(cpu, gemm, &p, s % 2 ? EDGE_START : EDGE_END, &v);
            }
        const char *const name = recipes[i].name;
        tap_ok(v.form && v.packed, "%s %s: packed in its form, values kept", gemm->name, name);
        if (recipes[i].kind == TEG_QGEMM_BLOCKS)
            continue;
        tap_ok(v.ratio <= 1, "%s %s: within the bound (%.3f of it)", gemm->name, name, v.ratio);
        tap_ok(v.cuts, "%s %s: same bits for any cut", gemm->name, name);
        tap_ok(v.isas, "%s %s: same bits as other instruction sets", gemm->name, name);
    }
}

/* The exact product reads the matrix itself. */
static void test_exact(const char *isa, const struct teg_kernels *k)
{
    bool close = true;
    for (size_t i = 0; i < N_RECIPES; i++)
        for (size_t t = 1; t <= 9; t += 8) {
            struct matrix m;
            const size_t columns = 1056, n = make_matrix(&m, &recipes[i], 5, columns / 64 * 64, FILL_RANDOM, EDGE_END);
            const size_t width = m.e.columns;
            float *const x = guarded_floats(t * width, EDGE_END), *const y = guarded_floats(t * n, EDGE_END);
            fill_random(x, t * width);
            const struct teg_linear_args a = {.x = x,
                                              .x_stride = width,
                                              .w_encoding = &m.e,
                                              .y = y,
                                              .y_stride = n,
                                              .n_tokens = t,
                                              .k = width,
                                              .n1 = n,
                                              .scratch = guarded_scratch(teg_linear_scratch_floats(width))};
            k->linear_f32(&a);
            for (size_t row = 0; row < t * n; row++) {
                double sum = 0, magnitude = 0;
                for (size_t j = 0; j < width; j++) {
                    const double product = (double)x[row / n * width + j] * (double)decoded_at(&m, row % n, j);
                    sum += product;
                    magnitude += fabs(product);
                }
                close &= fabs(sum - (double)y[row]) <= 2 * (double)(width + 1) * EPS * magnitude;
            }
            release_all();
        }
    tap_ok(close, "%s linear_f32 reads encodings", isa);
}

static void test_refused(void)
{
    struct matrix m;
    struct teg_qgemm_form form;
    (void)make_matrix(&m, &recipes[4], 4, 40, FILL_RANDOM, EDGE_END);
    tap_ok(!teg_qgemm_form_of(&m.e, &form), "rows that are not whole groups have no form");
    release_all();
    (void)make_matrix(&m, &recipes[13], 4, 64, FILL_RANDOM, EDGE_END);
    float table[16] = {0};
    for (size_t i = 0; i < 16; i++)
        table[i] = i == 3 ? NAN : (float)i;
    m.parts[0].tables = table;
    uint8_t *const codes = guarded(4 * 64 / 2, EDGE_END);
    memset(codes, 0x33, 32);
    memset(codes + 32, 0x11, 96);
    m.parts[0].codes.bytes = codes;
    (void)teg_qgemm_form_of(&m.e, &form);
    uint8_t *const packed = guarded(teg_qgemm_form_bytes(&form, 4, 64), EDGE_END);
    teg_qgemm_pack_form(&form, &m.e, 0, 4, packed);
    tap_ok(isnan(packed_at(&form, packed, 0, 0, 64).value), "a NaN that is used stays one");
    memset(codes, 0x22, 32);
    teg_qgemm_pack_form(&form, &m.e, 0, 4, packed);
    tap_ok(fabs(packed_at(&form, packed, 0, 0, 64).value - 2) < 1e-4, "an entry that is not used does not count");
    release_all();
}

int main(void)
{
    struct teg_cpu cpu;
    teg_cpu_detect(&cpu);
    test_decode();
    test_refused();
    for_each_isa(test_exact);
    for (int isa = 0; isa < TEG_ISA_COUNT; isa++) {
        const struct teg_qgemm *const gemm = teg_qgemm_select_isa(&cpu, (enum teg_isa)isa);
        if (gemm)
            test_products(&cpu, gemm);
    }
    return tap_done();
}
