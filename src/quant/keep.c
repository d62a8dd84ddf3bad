/* quant/keep.c: a package's own encoding, kept: codes, scales and tables as they are.
 *
 * An encoding of dtype/encoding.h is one part or several on top of each other (a head that was split). The rows that
 * are wanted must be whole groups of each part that they touch, and all parts of one form; then every array of the
 * result is a run of an array that is there. Tables are floats in memory and were halves in the file, which is checked,
 * not believed. */
#include <string.h>

#include "base/check.h"
#include "dtype/encoding.h"
#include "quant/impl.h"

static bool is_half(float x)
{
    return half_round(x) == x;
}

/* What one part says of the rule; false: not to be said. */
static bool read_form(const struct teg_encoding_part *p, struct teg_quant_rule *rule)
{
    const uint32_t bits = p->codes.bits;
    *rule = (struct teg_quant_rule){.bits = bits, .vector = 1, .grain = TEG_QUANT_PER_BLOCK};
    if (p->tables) {
        rule->method = TEG_QUANT_PALETTE;
        return !p->codes.is_signed && (bits <= 4 || bits == 6 || bits == 8);
    }
    rule->method = TEG_QUANT_LINEAR;
    rule->is_signed = p->codes.is_signed;
    rule->float_offset = p->float_offsets != NULL;
    rule->symmetric = !p->float_offsets && !p->offsets.bytes;
    if (!rule->symmetric && !rule->float_offset && (p->offsets.bits != bits || p->offsets.is_signed != rule->is_signed))
        return false;
    return (bits == 4 || bits == 8) && p->scale_dtype == TEG_DTYPE_F16 &&
           (!rule->float_offset || p->float_offset_dtype == TEG_DTYPE_F16);
}

/* Rows of part p, whose first is row `at` of the whole, that lie in row … row + n - 1. */
struct run {
    const struct teg_encoding_part *part;
    size_t begin, n; /* in the part */
};

static struct run run_of(const struct teg_encoding_part *p, uint64_t at, uint64_t row, uint64_t n)
{
    const uint64_t begin = row > at ? row - at : 0;
    const uint64_t end = row + n < at + p->n_rows ? row + n - at : p->n_rows;
    const bool touches = row < at + p->n_rows && row + n > at;
    return (struct run){p, (size_t)(touches ? begin : 0), (size_t)(touches ? end - begin : 0)};
}

static bool same_form(const struct teg_encoding *e, const struct run *r, const struct teg_quantized *q)
{
    struct teg_quant_rule rule;
    const struct teg_encoding_part *const p = r->part;
    const bool linear = q->rule.method == TEG_QUANT_LINEAR;
    const size_t code_bits = e->columns * q->rule.bits, groups = linear ? e->columns / (size_t)q->group_columns : 1;
    return read_form(p, &rule) && rule.method == q->rule.method && rule.bits == q->rule.bits &&
           rule.is_signed == q->rule.is_signed && rule.symmetric == q->rule.symmetric &&
           rule.float_offset == q->rule.float_offset && p->rows_each == q->group_rows &&
           (!linear || p->columns_each == q->group_columns) && r->begin % p->rows_each == 0 &&
           r->n % p->rows_each == 0 && r->begin * code_bits % 8 == 0 && r->n * code_bits % 8 == 0 &&
           (!linear || rule.symmetric || rule.float_offset || rule.bits == 8 ||
            (r->begin / p->rows_each * groups % 2 == 0 && r->n / p->rows_each * groups % 2 == 0));
}

static bool halves_only(const struct run *r, uint32_t bits)
{
    const size_t first = r->begin / r->part->rows_each << bits, n = r->n / r->part->rows_each << bits;
    for (size_t i = 0; r->part->tables && i < n; i++)
        if (!is_half(r->part->tables[first + i]))
            return false;
    return true;
}

bool teg_quant_keep_layout(const struct teg_encoding *e, enum teg_dtype dtype, uint64_t row, uint64_t n_rows,
                           struct teg_quantized *layout)
{
    struct teg_quantized q = {.rows = n_rows, .columns = e->columns};
    uint64_t at = 0;
    bool is_first = true;
    if (dtype != TEG_DTYPE_F16 || !n_rows || row > e->n_rows || n_rows > e->n_rows - row)
        return false;
    for (size_t i = 0; i < e->n_parts; at += e->parts[i++].n_rows) {
        const struct run r = run_of(&e->parts[i], at, row, n_rows);
        if (!r.n)
            continue;
        if (is_first && !read_form(r.part, &q.rule))
            return false;
        if (is_first) {
            q.group_rows = r.part->rows_each;
            q.group_columns = r.part->tables ? e->columns : r.part->columns_each;
            q.rule.group = (uint32_t)(r.part->tables ? q.group_rows : q.group_columns);
        }
        is_first = false;
        if (!same_form(e, &r, &q) || !halves_only(&r, q.rule.bits))
            return false;
    }
    q.n_kept = q.rows * q.columns;
    teg_quant_size_parts(&q);
    if (q.rule.symmetric) /* unsigned codes without offsets stay so */
        q.parts[TEG_QUANT_OFFSET].n_bytes = 0;
    *layout = q;
    return true;
}

/* Appends n numbers of `bits` bits from number `first` on; both ends are whole bytes. */
static uint8_t *append(uint8_t *out, const uint8_t *bytes, size_t first, size_t n, uint32_t bits)
{
    const size_t n_bytes = n / 8 * bits + n % 8 * bits / 8;
    memcpy(out, bytes + first / 8 * bits + first % 8 * bits / 8, n_bytes);
    return out + n_bytes;
}

static void put_run(const struct teg_encoding *e, const struct run *r, const struct teg_quantized *q,
                    uint8_t *out[TEG_QUANT_PART_COUNT])
{
    const struct teg_encoding_part *const p = r->part;
    const size_t groups = e->columns / (size_t)q->group_columns;
    const size_t first = r->begin / p->rows_each * groups, n = r->n / p->rows_each * groups;
    out[TEG_QUANT_DATA] =
        append(out[TEG_QUANT_DATA], p->codes.bytes, r->begin * e->columns, r->n * e->columns, p->codes.bits);
    for (size_t i = first << p->codes.bits; p->tables && i < (first + n) << p->codes.bits; i++) {
        const uint16_t half = teg_f32_to_f16(p->tables[i]);
        *out[TEG_QUANT_LUT]++ = (uint8_t)half;
        *out[TEG_QUANT_LUT]++ = (uint8_t)(half >> 8);
    }
    if (p->tables)
        return;
    out[TEG_QUANT_SCALE] = append(out[TEG_QUANT_SCALE], p->scales, first, n, 16);
    if (p->float_offsets)
        out[TEG_QUANT_OFFSET] = append(out[TEG_QUANT_OFFSET], p->float_offsets, first, n, 16);
    else if (p->offsets.bytes)
        out[TEG_QUANT_OFFSET] = append(out[TEG_QUANT_OFFSET], p->offsets.bytes, first, n, p->offsets.bits);
}

enum teg_status teg_quant_keep(const struct teg_encoding *e, uint64_t row, const struct teg_quantized *layout,
                               const char *name, struct teg_arena *arena, struct teg_quantized *result,
                               struct teg_error *err)
{
    struct teg_quantized q = *layout;
    uint8_t *out[TEG_QUANT_PART_COUNT] = {0};
    uint64_t at = 0;
    for (uint32_t p = 0; p < TEG_QUANT_PART_COUNT; p++) {
        if (!q.parts[p].n_bytes)
            continue;
        out[p] = teg_arena_alloc(arena, q.parts[p].n_bytes);
        if (!out[p])
            return teg_base_fail_memory(err, name, q.parts[p].n_bytes);
        q.parts[p].bytes = out[p];
    }
    for (size_t i = 0; i < e->n_parts; at += e->parts[i++].n_rows) {
        const struct run r = run_of(&e->parts[i], at, row, q.rows);
        if (r.n)
            put_run(e, &r, &q, out);
    }
    *result = q;
    return TEG_OK;
}
