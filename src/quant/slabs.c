/* quant/slabs.c: encoding a matrix of which only some rows are in memory as floats.
 *
 * Where scales belong to rows or to blocks of a row, a slab of rows is a matrix of its own, and each part of the whole
 * is the parts of its slabs one after the other. Slabs are multiples of 64 rows, so that every part of every slab ends
 * at a whole byte. Tables of palettes, scales of a tensor and pruning look at values far apart: they get one slab.
 *
 * Not taken: slabs for palettes of row groups. Large values count by the mean square of the whole tensor, which would
 * be a pass of its own; and it is the embedding that is large, whose rule is linear where nobody says otherwise. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "quant/impl.h"

enum { SLAB_VALUES = 1 << 20, ROWS_TOGETHER = 64 };

static uint64_t slab_rows(const struct teg_quantized *q)
{
    const bool by_rows = q->rule.method == TEG_QUANT_LINEAR && !q->sparse && q->group_rows == 1;
    const uint64_t fitting = SLAB_VALUES / q->columns / ROWS_TOGETHER * ROWS_TOGETHER;
    const uint64_t n = fitting ? fitting : ROWS_TOGETHER;
    return by_rows && n < q->rows ? n : q->rows;
}

size_t teg_quant_scratch_bytes(const struct teg_quantized *q)
{
    /* a float and a code of each value, the packed parts of a slab, what palettes need for a table */
    const size_t n = (size_t)(slab_rows(q) * q->columns);
    return n * (sizeof(float) + 2) + ((size_t)(q->rule.method == TEG_QUANT_PALETTE) << 21);
}

static double square_of(const float *values, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)values[i] * (double)values[i];
    return sum;
}

/* Sums of what the slabs report. */
struct total {
    double error, square;
    struct teg_quant_report report;
};

static void add_report(struct total *t, const struct teg_quant_report *slab, double square, uint64_t first_row)
{
    t->error += slab->relative_error * slab->relative_error * square;
    t->square += square;
    t->report.exact = t->report.exact && slab->exact;
    if (slab->worst_row_error > t->report.worst_row_error) {
        t->report.worst_row_error = slab->worst_row_error;
        t->report.worst_row = first_row + slab->worst_row;
    }
}

/* Rows `row` … of the result; `used` bytes of its parts are filled. */
static enum teg_status encode_slab(const struct teg_quant_rule *rule, const struct teg_quant_rows *source, uint64_t row,
                                   uint64_t n, const float *importance, const char *name, struct teg_arena *scratch,
                                   const struct teg_quantized *whole, uint8_t *const parts[TEG_QUANT_PART_COUNT],
                                   size_t used[TEG_QUANT_PART_COUNT], struct total *total, struct teg_error *err)
{
    const size_t n_values = (size_t)(n * whole->columns);
    struct teg_quantized slab;
    struct teg_quant_report report;
    float *const values = teg_arena_alloc(scratch, n_values * sizeof *values);
    if (!values)
        return teg_base_fail_memory(err, name, n_values * sizeof *values);
    TRY(source->read(source->ctx, row, n, values, err));
    TRY(teg_quantize_from(rule, values, row, n, whole->columns, importance, name, NULL, scratch, &slab, &report, err));
    for (size_t p = 0; p < TEG_QUANT_PART_COUNT; p++)
        if (slab.parts[p].n_bytes) {
            memcpy(parts[p] + used[p], slab.parts[p].bytes, slab.parts[p].n_bytes);
            used[p] += slab.parts[p].n_bytes;
        }
    add_report(total, &report, square_of(values, n_values), row);
    return TEG_OK;
}

static enum teg_status encode_slabs(const struct teg_quant_rule *rule, const struct teg_quant_rows *source,
                                    const float *importance, const char *name, struct teg_arena *arena,
                                    struct teg_quantized *q, struct total *total, struct teg_error *err)
{
    uint8_t *parts[TEG_QUANT_PART_COUNT] = {0};
    size_t used[TEG_QUANT_PART_COUNT] = {0};
    struct teg_arena scratch;
    for (size_t p = 0; p < TEG_QUANT_PART_COUNT; p++) {
        parts[p] = q->parts[p].n_bytes ? teg_arena_alloc(arena, q->parts[p].n_bytes) : NULL;
        if (q->parts[p].n_bytes && !parts[p])
            return teg_base_fail_memory(err, "an encoded weight", q->parts[p].n_bytes);
        q->parts[p].bytes = parts[p];
    }
    for (uint64_t row = 0, n; row < q->rows; row += n) {
        n = slab_rows(q) < q->rows - row ? slab_rows(q) : q->rows - row;
        teg_arena_init(&scratch, arena->allocator);
        const enum teg_status status =
            encode_slab(rule, source, row, n, importance, name, &scratch, q, parts, used, total, err);
        teg_arena_free(&scratch);
        TRY(status);
    }
    return TEG_OK;
}

/* All at once: parts go where teg_quantize puts them. */
static enum teg_status encode_whole(const struct teg_quant_rule *rule, const struct teg_quant_rows *source,
                                    const float *importance, const char *name, struct teg_arena *arena,
                                    struct teg_quantized *q, struct teg_quant_report *report, struct teg_error *err)
{
    struct teg_arena scratch;
    teg_arena_init(&scratch, arena->allocator);
    const size_t n_bytes = (size_t)(q->rows * q->columns) * sizeof(float);
    float *const values = teg_arena_alloc(&scratch, n_bytes);
    enum teg_status status =
        values ? source->read(source->ctx, 0, q->rows, values, err) : teg_base_fail_memory(err, name, n_bytes);
    if (status == TEG_OK)
        status = teg_quantize(rule, values, q->rows, q->columns, importance, name, NULL, arena, q, report, err);
    teg_arena_free(&scratch);
    return status;
}

enum teg_status teg_quantize_rows(const struct teg_quant_rule *rule, const struct teg_quant_rows *source, uint64_t rows,
                                  uint64_t columns, const float *importance, const char *name, struct teg_arena *arena,
                                  struct teg_quantized *result, struct teg_quant_report *report, struct teg_error *err)
{
    struct teg_quantized q;
    struct total total = {.report.exact = true};
    TRY(teg_quant_layout(rule, rows, columns, name, &q, err));
    if (slab_rows(&q) == rows) {
        TRY(encode_whole(rule, source, importance, name, arena, &q, &total.report, err));
    } else {
        TRY(encode_slabs(rule, source, importance, name, arena, &q, &total, err));
        total.report.relative_error = total.square > 0 ? sqrt(total.error / total.square) : 0;
        total.report.source_bytes = rows * columns * 2;
        for (size_t p = 0; p < TEG_QUANT_PART_COUNT; p++)
            total.report.bytes += q.parts[p].n_bytes;
        total.report.bits_per_weight = 8 * (double)total.report.bytes / ((double)rows * (double)columns);
    }
    *result = q;
    *report = total.report;
    return TEG_OK;
}
