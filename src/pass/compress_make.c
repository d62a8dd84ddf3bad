/* pass/compress_make.c: a constant tensor as a matrix, encoded, and its parts as tensors again.
 *
 * The channels of a weight lie along its first axis mostly; where they do not (matmul by [K, N], conv_transpose),
 * values are gathered into rows before encoding and the codes put back after it. */
#include "pass/compress_int.h"

#include <string.h>

#include "base/check.h"

bool teg_compress_geometry(const struct teg_mil_type *type, uint32_t axis, uint32_t along, struct geometry *g)
{
    struct geometry r = {.rank = (uint32_t)type->rank, .axis = axis, .along = along, .outer = 1, .inner = 1};
    size_t n = 1;
    for (uint32_t d = 0; d < r.rank; d++) {
        if (type->dims[d] < 1 || !teg_mul(n, (size_t)type->dims[d], &n))
            return false;
        r.dims[d] = type->dims[d];
        if (d < axis)
            r.outer *= (size_t)type->dims[d];
        if (d > axis)
            r.inner *= (size_t)type->dims[d];
        /* a dimension before both is a batch: its blocks would not be runs of columns */
        if (d < axis && d < along && type->dims[d] != 1)
            return false;
    }
    r.rows = (size_t)r.dims[axis];
    r.columns = n / r.rows;
    r.step = r.columns / (size_t)r.dims[along];
    *g = r;
    return true;
}

/* Where element (row, column) lies in the tensor. */
static size_t place(const struct geometry *g, size_t row, size_t column)
{
    return (column / g->inner * g->rows + row) * g->inner + column % g->inner;
}

enum teg_status teg_compress_values(const struct weight *w, struct teg_arena *arena, float **values,
                                    struct teg_error *err)
{
    const struct geometry *const g = &w->g;
    float *x;
    TRY(teg_source_values(&w->source, w->pub.name, arena, &x, err));
    *values = x;
    if (g->outer == 1)
        return TEG_OK;
    float *const rows = teg_arena_array(arena, g->rows * g->columns, sizeof *rows);
    if (!rows)
        return teg_base_fail_memory(err, w->pub.name, g->rows * g->columns * sizeof *rows);
    for (size_t r = 0; r < g->rows; r++)
        for (size_t c = 0; c < g->columns; c++)
            rows[r * g->columns + c] = x[place(g, r, c)];
    *values = rows;
    return TEG_OK;
}

enum teg_status teg_compress_layout(struct weight *w, const struct teg_quant_rule *rule, struct teg_error *err)
{
    const struct geometry *const g = &w->g;
    struct teg_quant_rule own = *rule;
    const bool by_columns = own.method == TEG_QUANT_LINEAR && own.grain == TEG_QUANT_PER_BLOCK;
    const bool moves = g->outer != 1;
    if (own.method == TEG_QUANT_PALETTE && own.vector > 1 && (g->step != 1 || moves))
        FAIL(err, TEG_ERR_UNSUPPORTED,
             "cannot quantize: %s: expected neighbouring inputs for palette entries of %u values, found a kernel or "
             "rows along another axis; take single values for it",
             w->pub.name, own.vector);
    if (moves && (own.sparsity > 0 || own.keep_of))
        FAIL(err, TEG_ERR_UNSUPPORTED,
             "cannot quantize: %s: expected channels along the first axis where weights are pruned, found axis %u; "
             "leave it out",
             w->pub.name, g->axis);
    if (by_columns && g->step > 1) { /* a group is channels of the input, each with its whole kernel */
        struct teg_quantized steps;
        TRY(teg_quant_layout(&own, g->rows, (uint64_t)g->dims[g->along], w->pub.name, &steps, err));
        own.group = (uint32_t)(steps.group_columns * g->step);
    }
    return teg_quant_layout(&own, g->rows, g->columns, w->pub.name, &w->form, err);
}

/* ---- parts that lie otherwise in the tensor ---- */

/* Codes of a matrix in the order of the tensor. */
static enum teg_status move_codes(const struct weight *w, struct teg_arena *arena, struct teg_span *part,
                                  struct teg_error *err)
{
    const struct geometry *const g = &w->g;
    const uint32_t bits = w->form.rule.bits;
    uint8_t *const moved = teg_arena_alloc(arena, part->n_bytes);
    if (!moved)
        return teg_base_fail_memory(err, w->pub.name, part->n_bytes);
    for (size_t r = 0; r < g->rows; r++)
        for (size_t c = 0; c < g->columns; c++) {
            const size_t from = (r * g->columns + c) * bits, to = place(g, r, c) * bits;
            for (uint32_t b = 0; b < bits; b++)
                moved[(to + b) / 8] = (uint8_t)(moved[(to + b) / 8] |
                                                (part->bytes[(from + b) / 8] >> (from + b) % 8 & 1) << (to + b) % 8);
        }
    part->bytes = moved;
    return TEG_OK;
}

/* [row groups, column groups] as [column groups, row groups]. */
static enum teg_status move_groups(const struct weight *w, uint32_t bits, struct teg_arena *arena,
                                   struct teg_span *part, struct teg_error *err)
{
    const size_t rows = (size_t)(w->form.rows / w->form.group_rows);
    const size_t columns = (size_t)(w->form.columns / w->form.group_columns);
    uint8_t *const moved = part->n_bytes ? teg_arena_alloc(arena, part->n_bytes) : NULL;
    if (!part->n_bytes || rows == 1 || columns == 1)
        return TEG_OK;
    if (!moved)
        return teg_base_fail_memory(err, w->pub.name, part->n_bytes);
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++)
            for (uint32_t b = 0; b < bits; b++) {
                const size_t from = (r * columns + c) * bits + b, to = (c * rows + r) * bits + b;
                moved[to / 8] = (uint8_t)(moved[to / 8] | (part->bytes[from / 8] >> from % 8 & 1) << to % 8);
            }
    part->bytes = moved;
    return TEG_OK;
}

/* Dense halves that lie along another axis. */
static enum teg_status move_halves(const struct weight *w, struct teg_arena *arena, struct teg_span *part,
                                   struct teg_error *err)
{
    const struct geometry *const g = &w->g;
    uint8_t *const moved = teg_arena_alloc(arena, part->n_bytes);
    if (!moved)
        return teg_base_fail_memory(err, w->pub.name, part->n_bytes);
    for (size_t r = 0; r < g->rows; r++)
        for (size_t c = 0; c < g->columns; c++)
            memcpy(moved + 2 * place(g, r, c), part->bytes + 2 * (r * g->columns + c), 2);
    part->bytes = moved;
    return TEG_OK;
}

static enum teg_status move_parts(const struct weight *w, struct teg_quantized *q, struct teg_arena *arena,
                                  struct teg_error *err)
{
    if (w->g.outer == 1)
        return TEG_OK;
    if (q->rule.method == TEG_QUANT_F16)
        return move_halves(w, arena, &q->parts[TEG_QUANT_DATA], err);
    TRY(move_codes(w, arena, &q->parts[TEG_QUANT_DATA], err));
    TRY(move_groups(w, 16, arena, &q->parts[TEG_QUANT_SCALE], err));
    return move_groups(w, q->rule.float_offset ? 16 : q->rule.bits, arena, &q->parts[TEG_QUANT_OFFSET], err);
}

/* ---- forms before iOS 18 ---- */

/* Numbers of a channel each, of 1 or 2 bytes, from one for all, in the type of the weight. */
static enum teg_status spread(const struct weight *w, size_t item, struct teg_arena *arena, struct teg_span *part,
                              struct teg_error *err)
{
    const size_t n = w->g.rows, n_given = part->n_bytes / item;
    uint8_t *const out = teg_arena_alloc(arena, n * item);
    if (!out)
        return teg_base_fail_memory(err, w->pub.name, n * item);
    for (size_t i = 0; i < n && n_given; i++) /* no offsets: zeros */
        memcpy(out + i * item, part->bytes + (n_given == 1 ? 0 : i) * item, item);
    *part = (struct teg_span){out, n * item};
    return TEG_OK;
}

static enum teg_status widen(const struct weight *w, struct teg_arena *arena, struct teg_span *part,
                             struct teg_error *err)
{
    const size_t n = part->n_bytes / 2;
    float *const out = n ? teg_arena_array(arena, n, sizeof *out) : NULL;
    if (!w->is_wide || !n)
        return TEG_OK;
    if (!out)
        return teg_base_fail_memory(err, w->pub.name, n * sizeof *out);
    teg_dtype_decode(TEG_DTYPE_F16, part->bytes, out, n);
    *part = (struct teg_span){(const uint8_t *)out, n * sizeof *out};
    return TEG_OK;
}

static enum teg_status to_old_form(const struct weight *w, struct teg_quantized *q, struct teg_arena *arena,
                                   struct teg_error *err)
{
    if (q->rule.method == TEG_QUANT_LINEAR) {
        TRY(spread(w, 2, arena, &q->parts[TEG_QUANT_SCALE], err));
        TRY(spread(w, 1, arena, &q->parts[TEG_QUANT_OFFSET], err));
    }
    if (q->rule.method == TEG_QUANT_F16)
        TRY(widen(w, arena, &q->parts[TEG_QUANT_DATA], err));
    TRY(widen(w, arena, &q->parts[TEG_QUANT_SCALE], err));
    return widen(w, arena, &q->parts[TEG_QUANT_LUT], err);
}

size_t teg_compress_part_bytes(const struct weight *w, enum teg_quant_part part)
{
    const size_t n = w->form.parts[part].n_bytes, wide = w->is_wide ? 2 : 1;
    const bool linear = w->form.rule.method == TEG_QUANT_LINEAR;
    if (w->opset >= TEG_COMPRESS_IOS18)
        return n;
    if (part == TEG_QUANT_SCALE)
        return linear ? w->g.rows * 2 * wide : 0;
    if (part == TEG_QUANT_OFFSET)
        return linear ? w->g.rows : 0;
    return part == TEG_QUANT_LUT || (part == TEG_QUANT_DATA && w->form.rule.method == TEG_QUANT_F16) ? n * wide : n;
}

enum teg_status teg_compress_make(const struct teg_mil_deferred *deferred, struct teg_arena *arena,
                                  struct teg_span parts[TEG_MIL_DEFERRED_PARTS], struct teg_error *err)
{
    /* The report is the maker's to write: one thread makes a weight. */
    struct weight *const w = (struct weight *)(uintptr_t)deferred->ctx;
    struct teg_quantized q;
    struct teg_arena values_arena;
    float *values;
    teg_arena_init(&values_arena, arena->allocator);
    enum teg_status status = teg_compress_values(w, &values_arena, &values, err);
    if (status == TEG_OK)
        status = teg_quantize(&w->form.rule, values, w->g.rows, w->g.columns, w->importance, w->pub.name, NULL, arena,
                              &q, &w->pub.report, err);
    teg_arena_free(&values_arena);
    TRY(status);
    TRY(move_parts(w, &q, arena, err));
    if (w->opset < TEG_COMPRESS_IOS18)
        TRY(to_old_form(w, &q, arena, err));
    w->pub.report.bytes = 0;
    for (uint32_t p = 0; p < TEG_QUANT_PART_COUNT; p++) {
        parts[p] = q.parts[p];
        w->pub.report.bytes += q.parts[p].n_bytes;
    }
    w->pub.report.bits_per_weight = 8 * (double)w->pub.report.bytes / ((double)w->g.rows * (double)w->g.columns);
    w->pub.report.source_bytes = teg_source_bytes(&w->source);
    w->pub.made = true;
    return TEG_OK;
}
