/* quant/dequantize.c: the values of an encoded weight, and how far they are from others.
 *
 * A run of values that share a scale or table is decoded by a table of what each code means there, made once for the
 * run; only runs shorter than such a table compute value by value. So fp16 rounding, which is what costs, happens once
 * a code.
 *
 * Comparing decodes bands of rows of fixed size in any order; row errors are added up in order. The figures do not
 * depend on the threads. */
#include <math.h>

#include "base/check.h"
#include "quant/impl.h"

enum { BAND_VALUES = 1 << 16, MOST_CODES = 256 };

uint32_t teg_quant_unpack(const uint8_t *packed, size_t i, uint32_t bits)
{
    const size_t at = i / 8 * bits + i % 8 * bits / 8;
    const uint32_t shift = (uint32_t)(i % 8 * bits % 8);
    uint32_t v = packed[at];
    if (shift + bits > 8)
        v |= (uint32_t)packed[at + 1] << 8;
    return v >> shift & ((1u << bits) - 1);
}

static float half_at(const uint8_t *bytes, size_t i)
{
    return teg_f16_to_f32((uint16_t)(bytes[2 * i] | bytes[2 * i + 1] << 8));
}

static float integer(uint32_t code, uint32_t bits, bool is_signed)
{
    return is_signed && code >> (bits - 1) ? (float)code - (float)(1u << bits) : (float)code;
}

/* ---- what a code means ---- */

struct meaning {
    float scale, offset;      /* linear */
    const uint8_t *table;     /* palettes: this group's */
    float values[MOST_CODES]; /* of each code; vectors are not here */
};

static void read_group(const struct teg_quantized *q, size_t group, struct meaning *m)
{
    const struct teg_quant_rule *const rule = &q->rule;
    const struct teg_span offset = q->parts[TEG_QUANT_OFFSET];
    if (rule->method == TEG_QUANT_PALETTE) {
        m->table = q->parts[TEG_QUANT_LUT].bytes + (group << rule->bits) * rule->vector * 2;
        return;
    }
    m->scale = half_at(q->parts[TEG_QUANT_SCALE].bytes, group);
    m->offset = 0;
    if (offset.n_bytes)
        m->offset = rule->float_offset
                        ? half_at(offset.bytes, group)
                        : integer(teg_quant_unpack(offset.bytes, group, rule->bits), rule->bits, rule->is_signed);
}

static float value_of(const struct teg_quantized *q, const struct meaning *m, uint32_t code)
{
    const struct teg_quant_rule *const rule = &q->rule;
    const struct teg_span lut = q->parts[TEG_QUANT_LUT];
    if (rule->method == TEG_QUANT_PALETTE)
        return half_at(m->table, code);
    const float x =
        lut.n_bytes ? integer(lut.bytes[code], 8, rule->is_signed) : integer(code, rule->bits, rule->is_signed);
    return half_round(m->scale * half_round(x - m->offset));
}

/* n values of one group whose codes start at `code`. */
static void decode_run(const struct teg_quantized *q, struct meaning *m, size_t code, size_t n, float *out)
{
    const uint8_t *const data = q->parts[TEG_QUANT_DATA].bytes;
    const uint32_t bits = q->rule.bits;
    if (n < (size_t)1 << bits) {
        for (size_t i = 0; i < n; i++)
            out[i] = value_of(q, m, teg_quant_unpack(data, code + i, bits));
        return;
    }
    for (uint32_t c = 0; c < 1u << bits; c++)
        m->values[c] = value_of(q, m, c);
    if (bits == 8)
        for (size_t i = 0; i < n; i++)
            out[i] = m->values[data[code + i]];
    else if (bits == 4)
        for (size_t i = 0; i < n; i++)
            out[i] = m->values[data[(code + i) / 2] >> (code + i) % 2 * 4 & 15];
    else
        for (size_t i = 0; i < n; i++)
            out[i] = m->values[teg_quant_unpack(data, code + i, bits)];
}

static void decode_vectors(const struct teg_quantized *q, const struct meaning *m, size_t code, size_t n, float *out)
{
    const size_t v = q->rule.vector;
    for (size_t i = 0; i < n; i++) {
        const uint32_t c = teg_quant_unpack(q->parts[TEG_QUANT_DATA].bytes, code + i / v, q->rule.bits);
        out[i] = half_at(m->table, c * v + i % v);
    }
}

/* Row `row`; its codes start at `code`. */
static void decode_row(const struct teg_quantized *q, size_t row, size_t code, float *out)
{
    const size_t columns = (size_t)q->columns, run = (size_t)q->group_columns, v = q->rule.vector ? q->rule.vector : 1;
    const size_t first = row / (size_t)q->group_rows * (columns / run);
    struct meaning m;
    if (q->rule.method == TEG_QUANT_F16) {
        for (size_t i = 0; i < columns; i++)
            out[i] = half_at(q->parts[TEG_QUANT_DATA].bytes, code + i);
        return;
    }
    for (size_t c = 0; c < columns; c += run) {
        read_group(q, first + c / run, &m);
        if (v > 1)
            decode_vectors(q, &m, code + c / v, run, out + c);
        else
            decode_run(q, &m, code + c, run, out + c);
    }
}

/* ---- sparse ---- */

static size_t count_bits(const uint8_t *mask, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += mask[i / 8] >> i % 8 & 1;
    return count;
}

static void decode_sparse_row(const struct teg_quantized *q, size_t row, size_t *code, float *out)
{
    const size_t columns = (size_t)q->columns, run = (size_t)q->group_columns;
    const size_t first = row / (size_t)q->group_rows * (columns / run);
    struct meaning m;
    for (size_t c = 0; c < columns; c++) {
        if (q->rule.method != TEG_QUANT_F16 && c % run == 0)
            read_group(q, first + c / run, &m);
        const uint8_t *const data = q->parts[TEG_QUANT_DATA].bytes;
        if (!teg_quant_unpack(q->parts[TEG_QUANT_MASK].bytes, row * columns + c, 1)) {
            out[c] = 0;
            continue;
        }
        out[c] = q->rule.method == TEG_QUANT_F16 ? half_at(data, *code)
                                                 : value_of(q, &m, teg_quant_unpack(data, *code, q->rule.bits));
        ++*code;
    }
}

enum teg_status teg_dequantize(const struct teg_quantized *q, uint64_t row, uint64_t n_rows, float *values,
                               struct teg_error *err)
{
    const size_t columns = (size_t)q->columns, v = q->rule.vector ? q->rule.vector : 1;
    if (row > q->rows || n_rows > q->rows - row)
        FAIL(err, TEG_ERR_ARGUMENT, "cannot decode a weight: rows: expected rows below %llu, found %llu from %llu on",
             (unsigned long long)q->rows, (unsigned long long)n_rows, (unsigned long long)row);
    size_t code = q->sparse ? count_bits(q->parts[TEG_QUANT_MASK].bytes, (size_t)row * columns) : 0;
    for (size_t r = 0; r < n_rows; r++) {
        if (q->sparse)
            decode_sparse_row(q, (size_t)row + r, &code, values + r * columns);
        else
            decode_row(q, (size_t)row + r, ((size_t)row + r) * columns / v, values + r * columns);
    }
    return TEG_OK;
}

/* ---- comparing ---- */

struct measuring {
    const struct teg_quantized *q;
    const float *values;
    float *buffers; /* a band for each worker */
    size_t band_rows, buffer_n;
    double *error, *square; /* [rows] */
    bool *exact;            /* [bands] */
};

static void measure_band(void *ctx, size_t band, size_t worker)
{
    const struct measuring *const m = ctx;
    const size_t columns = (size_t)m->q->columns, rows = (size_t)m->q->rows;
    const size_t first = band * m->band_rows, n = teg_min(m->band_rows, rows - first);
    float *const decoded = m->buffers + worker * m->buffer_n;
    (void)teg_dequantize(m->q, first, n, decoded, NULL); /* the rows are there */
    m->exact[band] = true;
    for (size_t r = 0; r < n; r++) {
        const float *const given = m->values + (first + r) * columns, *const back = decoded + r * columns;
        double error = 0, square = 0;
        for (size_t c = 0; c < columns; c++) {
            const double x = (double)given[c], d = x - (double)back[c];
            error += d * d;
            square += x * x;
        }
        for (size_t c = 0; c < columns && m->exact[band]; c++)
            m->exact[band] = given[c] == back[c] || half_round(given[c]) == back[c];
        m->error[first + r] = error;
        m->square[first + r] = square;
    }
}

static double relative(double error, double square)
{
    return square > 0 ? sqrt(error / square) : 0;
}

static void sum_up(const struct measuring *m, size_t n_bands, struct teg_quant_report *r)
{
    double error = 0, square = 0;
    *r = (struct teg_quant_report){.exact = true};
    for (size_t i = 0; i < m->q->rows; i++) {
        const double of_row = relative(m->error[i], m->square[i]);
        error += m->error[i];
        square += m->square[i];
        if (of_row > r->worst_row_error) {
            r->worst_row_error = of_row;
            r->worst_row = i;
        }
    }
    for (size_t i = 0; i < n_bands; i++)
        r->exact = r->exact && m->exact[i];
    for (uint32_t p = 0; p < TEG_QUANT_PART_COUNT; p++)
        r->bytes += m->q->parts[p].n_bytes;
    r->source_bytes = m->q->rows * m->q->columns * 2;
    r->relative_error = relative(error, square);
    r->bits_per_weight = (double)r->bytes * 8 / (double)(m->q->rows * m->q->columns);
}

enum teg_status teg_quant_measure(const struct teg_quantized *q, const float *values, struct teg_pool *pool,
                                  const struct teg_allocator *allocator, struct teg_quant_report *report,
                                  struct teg_error *err)
{
    const size_t rows = (size_t)q->rows, columns = (size_t)q->columns;
    /* A sparse weight finds its codes by counting from the start: one band. */
    struct measuring m = {.q = q, .values = values, .band_rows = teg_max(1, BAND_VALUES / columns)};
    struct teg_arena scratch;
    if (q->sparse)
        m.band_rows = rows;
    const size_t n_bands = (rows + m.band_rows - 1) / m.band_rows;
    m.buffer_n = teg_min(m.band_rows, rows) * columns;
    teg_arena_init(&scratch, allocator);
    m.buffers = teg_arena_array(&scratch, teg_quant_workers(pool, n_bands) * m.buffer_n, sizeof *m.buffers);
    m.error = teg_arena_array(&scratch, rows, sizeof *m.error);
    m.square = teg_arena_array(&scratch, rows, sizeof *m.square);
    m.exact = teg_arena_array(&scratch, n_bands, sizeof *m.exact);
    const bool ok = m.buffers && m.error && m.square && m.exact;
    if (ok) {
        teg_quant_run(pool, measure_band, &m, n_bands);
        sum_up(&m, n_bands, report);
    }
    teg_arena_free(&scratch);
    return ok ? TEG_OK : teg_base_fail_memory(err, "measuring", m.buffer_n * sizeof *m.buffers);
}
