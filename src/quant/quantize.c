/* quant/quantize.c: encoding a weight: check, prune, encode, pack, measure.
 *
 * The report is measured on what was packed, by the same teg_dequantize that anybody else would call: it cannot praise
 * what was not stored. What is not finite never reaches an encoder. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "quant/impl.h"

void teg_quant_run(struct teg_pool *pool, teg_pool_fn fn, void *ctx, size_t n_slices)
{
    if (pool)
        teg_pool_run(pool, fn, ctx, n_slices);
    else
        for (size_t i = 0; i < n_slices; i++)
            fn(ctx, i, 0);
}

size_t teg_quant_workers(const struct teg_pool *pool, size_t n_slices)
{
    return pool && n_slices > 1 ? teg_pool_threads(pool) : 1; /* any thread may take any of several slices */
}

/* ---- codes ---- */

void teg_quant_pack(const uint8_t *codes, size_t n, uint32_t bits, uint8_t *packed)
{
    const uint32_t mask = (1u << bits) - 1;
    uint32_t word = 0, n_bits = 0;
    for (size_t i = 0; i < n; i++) {
        word |= (codes[i] & mask) << n_bits;
        for (n_bits += bits; n_bits >= 8; n_bits -= 8) {
            *packed++ = (uint8_t)word;
            word >>= 8;
        }
    }
    if (n_bits)
        *packed = (uint8_t)word;
}

static void put_half(uint8_t *out, uint16_t half)
{
    out[0] = (uint8_t)half;
    out[1] = (uint8_t)(half >> 8);
}

/* ---- checks before anything is made ---- */

static enum teg_status check_values(struct encoding *e, struct teg_error *err)
{
    const float most = 65519.996f; /* rounds to 65504 */
    double square = 0;
    for (size_t i = 0; i < e->n; i++) {
        square += (double)e->values[i] * (double)e->values[i];
        if (!(fabsf(e->values[i]) <= most))
            FAIL(err, TEG_ERR_FORMAT,
                 "cannot quantize: %s: row %zu, column %zu: expected a number that fp16 can hold, found %g; mend the "
                 "model or leave this weight out",
                 e->name, e->first_row + i / (size_t)e->q.columns, i % (size_t)e->q.columns, (double)e->values[i]);
    }
    const struct teg_quant_rule *const rule = &e->q.rule;
    if (rule->method == TEG_QUANT_PALETTE && rule->table == TEG_QUANT_KMEANS && !rule->plain && square > 0)
        e->tail = (float)(1 / sqrt(square / (double)e->n));
    return TEG_OK;
}

/* A copy with mean 1; NULL where there is none, or where it says nothing. */
static enum teg_status read_importance(struct encoding *e, const float *given, struct teg_error *err)
{
    const size_t n = (size_t)e->q.columns;
    double sum = 0;
    for (size_t i = 0; given && i < n; i++) {
        if (!(given[i] >= 0 && given[i] < INFINITY))
            FAIL(err, TEG_ERR_ARGUMENT,
                 "cannot quantize: %s: importance of column %zu: expected a number of 0 or more, found %g; collect "
                 "the statistics again",
                 e->name, i, (double)given[i]);
        sum += (double)given[i];
    }
    if (!given || !(sum > 0))
        return TEG_OK;
    float *const copy = teg_arena_array(&e->scratch, n, sizeof *copy);
    if (!copy)
        return teg_base_fail_memory(err, "importance", n * sizeof *copy);
    /* Never 0: a column that no token reached still has values to keep apart. */
    for (size_t i = 0; i < n; i++)
        copy[i] = (float)fmax((double)given[i] * (double)n / sum, 1e-6);
    e->importance = copy;
    return TEG_OK;
}

/* ---- parts ---- */

static void pack_halves(const struct encoding *e, uint8_t *out)
{
    for (size_t i = 0; i < e->n; i++)
        if (!e->kept || e->kept[i]) {
            put_half(out, teg_f32_to_f16(e->values[i]));
            out += 2;
        }
}

/* Moves the codes of the values that are kept to the front. */
static void drop_pruned(const struct encoding *e)
{
    size_t n = 0;
    for (size_t i = 0; e->kept && i < e->n; i++)
        if (e->kept[i])
            e->codes[n++] = e->codes[i];
}

static void fill_part(const struct encoding *e, enum teg_quant_part part, uint8_t *out)
{
    const size_t entries = ((size_t)1 << e->q.rule.bits) * e->q.rule.vector * e->n_groups;
    if (part == TEG_QUANT_DATA && e->q.rule.method == TEG_QUANT_F16) {
        pack_halves(e, out);
    } else if (part == TEG_QUANT_DATA) {
        drop_pruned(e);
        teg_quant_pack(e->codes, (size_t)e->q.n_kept, e->q.rule.bits, out);
    } else if (part == TEG_QUANT_MASK) {
        teg_quant_pack(e->kept, e->n, 1, out);
    } else if (part == TEG_QUANT_SCALE) {
        for (size_t g = 0; g < e->n_groups; g++)
            put_half(out + 2 * g, e->scales[g]);
    } else if (part == TEG_QUANT_LUT) {
        for (size_t i = 0; i < entries; i++)
            put_half(out + 2 * i, e->table[i]);
    } else if (e->q.rule.float_offset) {
        for (size_t g = 0; g < e->n_groups; g++)
            put_half(out + 2 * g, (uint16_t)e->offsets[g]);
    } else {
        for (size_t g = 0; g < e->n_groups; g++) /* scales are packed: their bytes serve again */
            e->codes[g] = (uint8_t)e->offsets[g];
        teg_quant_pack(e->codes, e->n_groups, e->q.rule.bits, out);
    }
}

static enum teg_status fill_parts(struct encoding *e, struct teg_arena *arena, struct teg_error *err)
{
    for (uint32_t p = 0; p < TEG_QUANT_PART_COUNT; p++) {
        struct teg_span *const span = &e->q.parts[p];
        if (!span->n_bytes)
            continue;
        uint8_t *const out = teg_arena_alloc(arena, span->n_bytes);
        if (!out)
            return teg_base_fail_memory(err, "an encoded weight", span->n_bytes);
        fill_part(e, (enum teg_quant_part)p, out);
        span->bytes = out;
    }
    return TEG_OK;
}

static enum teg_status encode(struct encoding *e, const float *importance, struct teg_error *err)
{
    const struct teg_quant_rule *const rule = &e->q.rule;
    TRY(check_values(e, err));
    TRY(read_importance(e, importance, err));
    if (e->importance)
        e->tail = 0; /* it knows better */
    if (e->q.sparse) {
        uint8_t *const kept = teg_arena_alloc(&e->scratch, e->n);
        if (!kept)
            return teg_base_fail_memory(err, "pruning", e->n);
        TRY(teg_quant_prune(e, kept, err));
        e->kept = kept;
    }
    if (rule->method == TEG_QUANT_F16)
        return TEG_OK;
    e->codes = teg_arena_alloc(&e->scratch, e->n);
    if (!e->codes)
        return teg_base_fail_memory(err, "codes", e->n);
    return rule->method == TEG_QUANT_LINEAR ? teg_quant_linear(e, err)
           : rule->vector > 1               ? teg_quant_vector_palette(e, err)
                                            : teg_quant_palette(e, err);
}

enum teg_status teg_quantize_from(const struct teg_quant_rule *rule, const float *values, uint64_t first_row,
                                  uint64_t rows, uint64_t columns, const float *importance, const char *name,
                                  struct teg_pool *pool, struct teg_arena *arena, struct teg_quantized *result,
                                  struct teg_quant_report *report, struct teg_error *err)
{
    struct encoding e = {.values = values, .name = name, .pool = pool, .first_row = (size_t)first_row};
    struct teg_quant_report measured;
    TRY(teg_quant_layout(rule, rows, columns, name, &e.q, err));
    e.n = (size_t)(rows * columns);
    e.group_n = (size_t)(e.q.group_rows * e.q.group_columns);
    e.n_groups = e.n / e.group_n;
    teg_arena_init(&e.scratch, arena->allocator);
    enum teg_status status = encode(&e, importance, err);
    if (status == TEG_OK)
        status = fill_parts(&e, arena, err);
    if (status == TEG_OK && report)
        status = teg_quant_measure(&e.q, values, pool, arena->allocator, &measured, err);
    teg_arena_free(&e.scratch);
    if (status != TEG_OK)
        return status;
    *result = e.q;
    if (report)
        *report = measured;
    return TEG_OK;
}

enum teg_status teg_quantize(const struct teg_quant_rule *rule, const float *values, uint64_t rows, uint64_t columns,
                             const float *importance, const char *name, struct teg_pool *pool, struct teg_arena *arena,
                             struct teg_quantized *result, struct teg_quant_report *report, struct teg_error *err)
{
    return teg_quantize_from(rule, values, 0, rows, columns, importance, name, pool, arena, result, report, err);
}
