/* pass/lower_weight.c: weights as constants that are made when they are written, and the constexpr ops over them.
 *
 * What a weight will look like (types, groups, sizes) is settled here from its rule and shape; its bytes are made one
 * weight at a time by the writer, from the graph's constant, in any thread. A constant of half floats whose rows stay
 * as they are is not copied at all. */
#include "pass/lower_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const float largest_half = 65504;

enum teg_status teg_lower_decode(const struct teg_value *v, uint64_t row, float *out, struct teg_error *err)
{
    const size_t n = teg_value_width(v);
    size_t row_bytes;
    if (v->encoding) {
        teg_encoding_decode(v->encoding, (size_t)row, 0, n, out);
        return TEG_OK;
    }
    if (!teg_dtype_row_bytes(v->dtype, n, &row_bytes))
        FAIL(err, TEG_ERR_FORMAT,
             "cannot read weight: %s: expected whole blocks in a row, found %zu columns; the file "
             "is damaged",
             v->name ? v->name : "?", n);
    teg_dtype_decode(v->dtype, (const uint8_t *)v->data + row * row_bytes, out, n);
    return TEG_OK;
}

/* ---- making ---- */

/* The row of the constant that becomes row `row` of the weight. */
static uint64_t source_row(const struct weight *w, uint64_t row)
{
    const uint64_t at = w->begin + row;
    for (uint32_t i = 0; i < w->n_orders; i++) {
        const struct order *const o = &w->orders[i];
        if (at >= o->begin && at - o->begin < o->width)
            return o->begin + teg_lower_source_column(o, (uint32_t)(at - o->begin));
    }
    return at;
}

static enum teg_status too_large(const struct weight *w, uint64_t row, uint64_t column, float x, struct teg_error *err)
{
    FAIL(
        err, TEG_ERR_FORMAT,
        "cannot write weight: %s: row %llu, column %llu: expected a number within ±65504, found %g; choose a quantized "
        "encoding, or mend the model",
        w->value->name, (unsigned long long)row, (unsigned long long)column, (double)x);
}

static enum teg_status make_half(const struct weight *w, struct teg_arena *arena, struct teg_span *data,
                                 struct teg_error *err)
{
    const size_t columns = (size_t)w->columns, n = (size_t)w->rows * columns;
    if (w->value->dtype == TEG_DTYPE_F16 && !w->value->encoding && !w->n_orders) {
        *data = (struct teg_span){(const uint8_t *)w->value->data + w->begin * columns * 2, n * 2};
        return TEG_OK;
    }
    uint16_t *const out = teg_arena_alloc(arena, n * sizeof *out);
    float *const row = teg_arena_alloc(arena, columns * sizeof *row);
    if (!out || !row)
        return teg_base_fail_memory(err, w->value->name, n * sizeof *out);
    for (uint64_t r = 0; r < w->rows; r++) {
        TRY(teg_lower_decode(w->value, source_row(w, r), row, err));
        for (size_t c = 0; c < columns; c++) {
            if (!(fabsf(row[c]) <= largest_half))
                return too_large(w, r, c, row[c], err);
            out[r * columns + c] = teg_f32_to_f16(row[c]);
        }
    }
    *data = (struct teg_span){(const uint8_t *)out, n * sizeof *out};
    return TEG_OK;
}

/* The codes of a package. */
static enum teg_status make_again(const struct weight *w, struct teg_arena *arena, struct teg_quantized *made,
                                  struct teg_error *err)
{
    TRY(teg_quant_keep(w->value->encoding, w->begin, &w->form, w->value->name, arena, made, err));
    w->report->report = (struct teg_quant_report){.exact = true};
    for (size_t i = 0; i < TEG_QUANT_PART_COUNT; i++)
        w->report->report.source_bytes += made->parts[i].n_bytes;
    return TEG_OK;
}

/* The blocks of a GGUF. */
static enum teg_status make_kept(const struct weight *w, struct teg_arena *arena, struct teg_quantized *made,
                                 struct teg_error *err)
{
    const struct teg_value *const v = w->value;
    size_t row_bytes;
    bool possible = teg_dtype_row_bytes(v->dtype, w->columns, &row_bytes);
    const uint8_t *rows = (const uint8_t *)v->data + w->begin * row_bytes;
    if (w->n_orders) {
        uint8_t *const moved = teg_arena_alloc(arena, (size_t)w->rows * row_bytes);
        if (!moved)
            return teg_base_fail_memory(err, v->name, (size_t)w->rows * row_bytes);
        for (uint64_t r = 0; r < w->rows; r++)
            memcpy(moved + r * row_bytes, (const uint8_t *)v->data + source_row(w, r) * row_bytes, row_bytes);
        rows = moved;
    }
    if (possible)
        TRY(teg_quant_reencode(v->dtype, rows, w->rows, w->columns, v->name, arena, made, &possible, err));
    if (!possible)
        FAIL(err, TEG_ERR_UNSUPPORTED,
             "cannot write weight: %s: expected blocks that a Core ML encoding holds, found a number that it does not; "
             "give this weight an encoding instead of keeping its blocks",
             v->name);
    w->report->report = (struct teg_quant_report){.source_bytes = (uint64_t)w->rows * row_bytes,
                                                  .exact = teg_quant_reencode_is_exact(v->dtype)};
    return TEG_OK;
}

static enum teg_status read_rows(void *ctx, uint64_t row, uint64_t n, float *values, struct teg_error *err)
{
    const struct weight *const w = ctx;
    for (uint64_t r = 0; r < n; r++)
        TRY(teg_lower_decode(w->value, source_row(w, row + r), values + r * (size_t)w->columns, err));
    if (w->release && !w->n_orders)
        w->release(w->release_ctx, w->value, w->begin + row, n);
    return TEG_OK;
}

static enum teg_status make_quantized(const struct weight *w, struct teg_arena *arena, struct teg_quantized *made,
                                      struct teg_error *err)
{
    const struct teg_quant_rows source = {read_rows, (void *)(uintptr_t)w};
    return teg_quantize_rows(&w->form.rule, &source, w->rows, w->columns, w->importance, w->value->name, arena, made,
                             &w->report->report, err);
}

static enum teg_status make(const struct teg_mil_deferred *deferred, struct teg_arena *arena,
                            struct teg_span parts[TEG_MIL_DEFERRED_PARTS], struct teg_error *err)
{
    const struct weight *const w = deferred->ctx;
    struct teg_quantized made = {0};
    if (w->form.rule.method == TEG_QUANT_F16 && !w->form.sparse) {
        TRY(make_half(w, arena, &made.parts[TEG_QUANT_DATA], err));
        const uint64_t all = w->value->shape.rank == 2 ? (uint64_t)w->value->shape.dims[0] : w->rows;
        w->report->report = (struct teg_quant_report){.source_bytes = w->value->n_bytes / all * w->rows,
                                                      .bits_per_weight = 16,
                                                      .exact = w->value->dtype == TEG_DTYPE_F16 && !w->value->encoding};
    } else {
        TRY(!w->keeps            ? make_quantized(w, arena, &made, err)
            : w->value->encoding ? make_again(w, arena, &made, err)
                                 : make_kept(w, arena, &made, err));
    }
    uint64_t total = 0;
    for (size_t i = 0; i < TEG_QUANT_PART_COUNT; i++) {
        if (made.parts[i].n_bytes != w->form.parts[i].n_bytes)
            FAIL(err, TEG_ERR_UNSUPPORTED,
                 "cannot write weight: %s: expected %zu bytes in part %zu, found %zu; report this as a fault",
                 w->value->name, w->form.parts[i].n_bytes, i, made.parts[i].n_bytes);
        parts[i] = made.parts[i];
        total += made.parts[i].n_bytes;
    }
    w->report->report.bytes = total;
    if (w->keeps)
        w->report->report.bits_per_weight = 8.0 * (double)total / ((double)w->rows * (double)w->columns);
    w->report->made = true;
    return TEG_OK;
}

static void written(const struct teg_mil_deferred *deferred)
{
    const struct weight *const w = deferred->ctx;
    if (w->release)
        w->release(w->release_ctx, w->value, w->begin, w->rows);
}

/* ---- forms ---- */

static bool same_orders(const struct weight *w, const struct order *orders, uint32_t n)
{
    return w->n_orders == n && (n == 0 || w->orders == orders);
}

static bool same_rule(const struct teg_quant_rule *a, const struct teg_quant_rule *b)
{
    char x[64], y[64];
    teg_quant_rule_format(a, x);
    teg_quant_rule_format(b, y);
    return strcmp(x, y) == 0;
}

static enum teg_status unique_bits(struct lowerer *l, const struct weight *w, struct teg_quant_rule *rule)
{
    struct teg_arena arena;
    teg_arena_init(&arena, l->scratch.allocator);
    const size_t columns = (size_t)w->columns;
    float *const values = teg_arena_alloc(&arena, (size_t)w->rows * columns * sizeof *values);
    enum teg_status status =
        values ? TEG_OK : teg_base_fail_memory(l->err, w->value->name, (size_t)w->rows * columns * sizeof *values);
    for (uint64_t r = 0; r < w->rows && status == TEG_OK; r++)
        status = teg_lower_decode(w->value, source_row(w, r), values + r * columns, l->err);
    if (status == TEG_OK)
        status = teg_quant_unique_bits(rule, values, w->rows, w->columns, w->value->name, &rule->bits, l->err);
    teg_arena_free(&arena);
    return status;
}

static bool is_float(enum teg_dtype dtype)
{
    return dtype == TEG_DTYPE_F32 || dtype == TEG_DTYPE_F16 || dtype == TEG_DTYPE_BF16;
}

/* Types, groups and sizes of the weight's parts. */
static enum teg_status settle(struct lowerer *l, struct weight *w, const struct teg_quant_rule *wanted)
{
    struct teg_quant_rule rule = *wanted;
    const struct teg_value *const v = w->value;
    if (rule.keep)
        w->keeps = v->encoding
                       ? !w->n_orders && teg_quant_keep_layout(v->encoding, v->dtype, w->begin, w->rows, &w->form)
                       : teg_quant_reencode_layout(v->dtype, w->rows, w->columns, &w->form);
    if (w->keeps)
        return TEG_OK;
    if (rule.keep && !v->encoding && is_float(v->dtype))
        rule = (struct teg_quant_rule){.method = TEG_QUANT_F16, .bits = 16};
    rule.keep = false;
    const bool is_half = rule.method == TEG_QUANT_F16 && rule.sparsity == 0 && rule.keep_n == 0;
    if (rule.method == TEG_QUANT_PALETTE && rule.table == TEG_QUANT_UNIQUE)
        TRY(unique_bits(l, w, &rule));
    if (!is_half)
        return teg_quant_layout(&rule, w->rows, w->columns, v->name, &w->form, l->err);
    w->form = (struct teg_quantized){.rule = rule, .rows = w->rows, .columns = w->columns};
    if (!teg_mul((size_t)w->rows, (size_t)w->columns * 2, &w->form.parts[TEG_QUANT_DATA].n_bytes))
        return teg_base_fail_memory(l->err, v->name, SIZE_MAX);
    return TEG_OK;
}

/* The weight's record; one for all uses of the same rows in one shape. (Equal bytes are one blob all the same.) */
static struct weight *find_weight(struct lowerer *l, const struct weight_use *use)
{
    struct teg_lowered *const all = l->lowered;
    const struct teg_value *const v = &l->g->values[use->value];
    const uint64_t columns = teg_value_width(v), rows = use->rows ? use->rows : (uint64_t)v->shape.dims[0];
    struct teg_quant_rule rule = {.method = TEG_QUANT_F16};
    uint32_t n_orders = 0;
    const struct order *const orders = use->op == UINT32_MAX ? NULL : teg_lower_orders_of(l, use->op, &n_orders);
    if (l->o->rule)
        l->o->rule(l->o->rule_ctx, v->name, use->embedding, use->head, rows, columns, &rule);
    for (struct weight *w = all->weights; w; w = w->next)
        if (w->value == v && w->begin == use->begin && w->rows == rows && w->as_conv == use->as_conv &&
            same_orders(w, orders, n_orders) && same_rule(&w->report->asked, &rule)) {
            w->report->embedding |= use->embedding;
            w->report->head |= use->head;
            return w;
        }
    struct weight *const w = teg_arena_array(&all->arena, 1, sizeof *w);
    struct teg_lowered_weight *const report = teg_arena_array(&all->arena, 1, sizeof *report);
    if (!w || !report) {
        teg_lower_keep(l, teg_base_fail_memory(l->err, "weights", sizeof *w));
        return NULL;
    }
    *w = (struct weight){.value = v,
                         .begin = use->begin,
                         .rows = rows,
                         .columns = columns,
                         .as_conv = use->as_conv,
                         .orders = orders,
                         .n_orders = n_orders,
                         .importance =
                             l->o->importance ? l->o->importance(l->o->importance_ctx, v->name, columns) : NULL,
                         .report = report};
    const enum teg_status status = settle(l, w, &rule);
    *report = (struct teg_lowered_weight){.name = v->name,
                                          .rows = rows,
                                          .columns = columns,
                                          .rule = w->form.rule,
                                          .asked = rule,
                                          .embedding = use->embedding,
                                          .head = use->head,
                                          .calibrated = w->importance != NULL,
                                          .kept_blocks = w->keeps};
    w->deferred = (struct teg_mil_deferred){.make = make, .written = written, .ctx = w, .key = all->n_weights};
    w->release = l->o->release;
    w->release_ctx = l->o->release_ctx;
    for (size_t i = 0; i < TEG_QUANT_PART_COUNT; i++)
        w->deferred.cost += w->form.parts[i].n_bytes;
    if (w->form.rule.method != TEG_QUANT_F16 && !w->keeps)
        w->deferred.cost += teg_quant_scratch_bytes(&w->form);
    teg_lower_keep(l, status);
    w->next = all->weights;
    all->weights = w;
    all->n_weights++;
    return teg_lower_ok(l) ? w : NULL;
}

uint64_t teg_lower_weight_bytes(struct lowerer *l, teg_value_id value, bool embedding, bool head)
{
    const struct teg_value *const v = &l->g->values[value];
    struct weight w = {
        .value = v, .rows = v->shape.rank == 2 ? (uint64_t)v->shape.dims[0] : 1, .columns = teg_value_width(v)};
    struct teg_quant_rule rule = {.method = TEG_QUANT_F16};
    uint64_t total = 0;
    if (v->shape.rank == 2 && l->o->rule)
        l->o->rule(l->o->rule_ctx, v->name, embedding, head, w.rows, w.columns, &rule);
    if (rule.method == TEG_QUANT_PALETTE && rule.table == TEG_QUANT_UNIQUE)
        rule.table = TEG_QUANT_KMEANS; /* as large, and nothing need be read */
    teg_lower_keep(l, settle(l, &w, &rule));
    for (size_t i = 0; i < TEG_QUANT_PART_COUNT; i++)
        total += w.form.parts[i].n_bytes;
    return total;
}

/* ---- constants and ops ---- */

/* [rows, columns], or with two ones after them. */
static uint32_t dims_of(bool as_conv, uint64_t rows, uint64_t columns, int64_t dims[TEG_MIL_MAX_RANK])
{
    dims[0] = (int64_t)rows;
    dims[1] = (int64_t)columns;
    dims[2] = dims[3] = 1;
    return as_conv ? 4 : 2;
}

static enum teg_mil_dtype uint_of(uint32_t bits)
{
    static const enum teg_mil_dtype types[9] = {[1] = TEG_MIL_UINT1, [2] = TEG_MIL_UINT2, [3] = TEG_MIL_UINT3,
                                                [4] = TEG_MIL_UINT4, [6] = TEG_MIL_UINT6, [8] = TEG_MIL_UINT8};
    return types[bits];
}

static enum teg_mil_dtype int_of(const struct teg_quant_rule *rule)
{
    if (rule->bits == 4)
        return rule->is_signed ? TEG_MIL_INT4 : TEG_MIL_UINT4;
    return rule->is_signed ? TEG_MIL_INT8 : TEG_MIL_UINT8;
}

static var part(struct lowerer *l, const struct weight *w, const char *name, enum teg_quant_part which,
                enum teg_mil_dtype dtype, uint32_t rank, const int64_t *dims)
{
    static const char *const suffixes[] = {"data", "scale", "offset", "lut", "mask"};
    char full[224];
    (void)snprintf(full, sizeof full, "%s_%s", name, suffixes[which]);
    return teg_mil_make_weight(l->m, full, dtype, rank, dims, &w->deferred, (uint32_t)which);
}

static bool has(const struct weight *w, enum teg_quant_part which)
{
    return w->form.parts[which].n_bytes > 0;
}

/* [tables…, entries, vector] */
static var tables(struct lowerer *l, const struct weight *w, const char *name, bool as_conv, enum teg_mil_dtype dtype,
                  uint64_t rows, uint64_t columns)
{
    int64_t dims[TEG_MIL_MAX_RANK];
    const uint32_t rank = dims_of(as_conv, rows, columns, dims);
    dims[rank] = (int64_t)1 << w->form.rule.bits;
    dims[rank + 1] = w->form.rule.method == TEG_QUANT_PALETTE && w->form.rule.vector ? w->form.rule.vector : 1;
    return part(l, w, name, TEG_QUANT_LUT, dtype, rank + 2, dims);
}

static var linear_weight(struct lowerer *l, const struct weight *w, const char *name, bool as_conv, uint32_t rank,
                         const int64_t *dims, var mask)
{
    const struct teg_quantized *const f = &w->form;
    int64_t groups[TEG_MIL_MAX_RANK];
    (void)dims_of(as_conv, f->rows / f->group_rows, f->columns / f->group_columns, groups);
    const enum teg_mil_dtype dtype = int_of(&f->rule);
    const int64_t kept = (int64_t)f->n_kept;
    const bool by_table = has(w, TEG_QUANT_LUT);
    var data = part(l, w, name, TEG_QUANT_DATA, by_table ? uint_of(f->rule.bits) : dtype, f->sparse ? 1 : rank,
                    f->sparse ? &kept : dims);
    if (by_table)
        data = OP(l, "constexpr_lut_to_dense", name, {"indices", data},
                  {"lut", tables(l, w, name, as_conv, f->rule.is_signed ? TEG_MIL_INT8 : TEG_MIL_UINT8, 1, 1)});
    struct teg_mil_bind args[6] = {{"scale", part(l, w, name, TEG_QUANT_SCALE, TEG_MIL_FP16, rank, groups)}};
    size_t n = 1;
    if (has(w, TEG_QUANT_OFFSET))
        args[n++] = (struct teg_mil_bind){
            "offset", part(l, w, name, TEG_QUANT_OFFSET, f->rule.float_offset ? TEG_MIL_FP16 : dtype, rank, groups)};
    args[n++] = (struct teg_mil_bind){f->sparse ? "nonzero_data" : "data", data};
    if (!f->sparse)
        return teg_lower_op(l, "constexpr_blockwise_shift_scale", name, args);
    args[n++] = (struct teg_mil_bind){"data_mask", mask};
    var outputs[2];
    (void)teg_mil_make_ops(l->m, "constexpr_sparse_blockwise_shift_scale", name, args, 2, outputs);
    return OP(l, "constexpr_sparse_to_dense", name, {"nonzero_data", outputs[1]}, {"mask", outputs[0]});
}

static var palette_weight(struct lowerer *l, const struct weight *w, const char *name, bool as_conv, uint32_t rank,
                          const int64_t *dims, var mask)
{
    const struct teg_quantized *const f = &w->form;
    const uint32_t vector = f->rule.vector > 1 ? f->rule.vector : 1;
    int64_t codes[TEG_MIL_MAX_RANK];
    memcpy(codes, dims, sizeof codes);
    codes[1] /= vector;
    const int64_t kept = (int64_t)f->n_kept;
    const var lut = tables(l, w, name, as_conv, TEG_MIL_FP16, f->rows / f->group_rows, f->columns / f->group_columns);
    const var data =
        part(l, w, name, TEG_QUANT_DATA, uint_of(f->rule.bits), f->sparse ? 1 : rank, f->sparse ? &kept : codes);
    struct teg_mil_bind args[6] = {{"lut", lut}};
    size_t n = 1;
    if (vector > 1)
        args[n++] = (struct teg_mil_bind){"vector_axis", teg_mil_make_int(l->m, 1)};
    args[n++] = (struct teg_mil_bind){f->sparse ? "indices_nonzero_data" : "indices", data};
    if (!f->sparse)
        return teg_lower_op(l, "constexpr_lut_to_dense", name, args);
    args[n++] = (struct teg_mil_bind){"indices_mask", mask};
    var outputs[2];
    (void)teg_mil_make_ops(l->m, "constexpr_lut_to_sparse", name, args, 2, outputs);
    return OP(l, "constexpr_sparse_to_dense", name, {"nonzero_data", outputs[1]}, {"mask", outputs[0]});
}

var teg_lower_weight(struct lowerer *l, const struct weight_use *use)
{
    struct weight *const w = teg_lower_ok(l) ? find_weight(l, use) : NULL;
    if (!w)
        return TEG_MIL_NO_VAR;
    char name[160];
    int64_t dims[TEG_MIL_MAX_RANK] = {0};
    const uint32_t rank = dims_of(use->as_conv, w->rows, w->columns, dims);
    (void)snprintf(name, sizeof name, use->rows ? "%.120s_%llu" : "%.120s", w->value->name,
                   (unsigned long long)use->begin);
    const struct teg_quantized *const f = &w->form;
    const int64_t kept = (int64_t)f->n_kept;
    const bool lut_mask = f->sparse && f->rule.method == TEG_QUANT_PALETTE && f->rule.vector > 1;
    int64_t mask_dims[TEG_MIL_MAX_RANK];
    memcpy(mask_dims, dims, sizeof mask_dims);
    mask_dims[1] /= lut_mask ? f->rule.vector : 1;
    const var mask = f->sparse ? part(l, w, name, TEG_QUANT_MASK, TEG_MIL_UINT1, rank, mask_dims) : TEG_MIL_NO_VAR;
    switch (f->rule.method) {
    case TEG_QUANT_LINEAR:
        return linear_weight(l, w, name, use->as_conv, rank, dims, mask);
    case TEG_QUANT_PALETTE:
        return palette_weight(l, w, name, use->as_conv, rank, dims, mask);
    case TEG_QUANT_F16:
        break;
    }
    if (!f->sparse)
        return teg_mil_make_weight(l->m, name, TEG_MIL_FP16, rank, dims, &w->deferred, TEG_QUANT_DATA);
    return OP(l, "constexpr_sparse_to_dense", name,
              {"nonzero_data", part(l, w, name, TEG_QUANT_DATA, TEG_MIL_FP16, 1, &kept)}, {"mask", mask});
}

/* ---- small ones ---- */

static var half_const(struct lowerer *l, const char *name, const float *x, size_t n, uint32_t rank, const int64_t *dims)
{
    uint16_t *const halves = teg_arena_alloc(&l->scratch, n * sizeof *halves);
    if (!halves) {
        teg_lower_keep(l, teg_base_fail_memory(l->err, name, n * sizeof *halves));
        return TEG_MIL_NO_VAR;
    }
    for (size_t i = 0; i < n; i++) {
        if (!(fabsf(x[i]) <= largest_half)) {
            teg_lower_keep(l, teg_base_fail(l->err, TEG_ERR_FORMAT, 0,
                                            "cannot write weight: %s: element %zu: expected a number within ±65504, "
                                            "found %g; mend the model",
                                            name, i, (double)x[i]));
            return TEG_MIL_NO_VAR;
        }
        halves[i] = teg_f32_to_f16(x[i]);
    }
    return teg_mil_make_const(l->m, name, TEG_MIL_FP16, rank, dims, halves);
}

var teg_lower_vector(struct lowerer *l, teg_value_id value, float offset, const struct order *orders, uint32_t n_orders,
                     uint32_t rank, const int64_t *dims)
{
    const struct teg_value *const v = &l->g->values[value];
    const size_t n = teg_value_width(v);
    if (!teg_lower_ok(l))
        return TEG_MIL_NO_VAR;
    float *const x = teg_arena_alloc(&l->scratch, 2 * n * sizeof *x);
    if (!x) {
        teg_lower_keep(l, teg_base_fail_memory(l->err, v->name, 2 * n * sizeof *x));
        return TEG_MIL_NO_VAR;
    }
    float *const moved = x + n;
    teg_lower_keep(l, teg_lower_decode(v, 0, x, l->err));
    for (size_t i = 0; i < n; i++)
        moved[i] = x[i] + offset;
    for (uint32_t k = 0; k < n_orders; k++)
        for (uint32_t i = 0; i < orders[k].width; i++)
            moved[orders[k].begin + i] = x[orders[k].begin + teg_lower_source_column(&orders[k], i)] + offset;
    return half_const(l, v->name ? v->name : "vector", moved, n, rank, dims);
}

var teg_lower_vector_part(struct lowerer *l, teg_value_id value, uint64_t begin, uint64_t n)
{
    const struct teg_value *const v = &l->g->values[value];
    const int64_t dim = (int64_t)n;
    float *const x = teg_arena_alloc(&l->scratch, teg_value_width(v) * sizeof *x);
    if (!x) {
        teg_lower_keep(l, teg_base_fail_memory(l->err, v->name, teg_value_width(v) * sizeof *x));
        return TEG_MIL_NO_VAR;
    }
    teg_lower_keep(l, teg_lower_decode(v, 0, x, l->err));
    return half_const(l, v->name ? v->name : "vector", x + begin, (size_t)n, 1, &dim);
}

/* ---- tables of RoPE ---- */

/* cos and sin of row p for pair i, as the op has them. */
static void wave(const struct lowerer *l, const struct teg_op *op, const float *a, const float *b, uint32_t p,
                 uint32_t i, float out[2])
{
    if (teg_lower_has_tables(l, op)) {
        out[0] = a[i];
        out[1] = b[i];
        return;
    }
    const double angle = (double)p * (double)a[i], magnitude = (double)op->attr.rope.magnitude;
    out[0] = (float)(cos(angle) * magnitude);
    out[1] = (float)(sin(angle) * magnitude);
}

void teg_lower_tables(struct lowerer *l, const struct teg_op *op, const char *suffix, var *cosines, var *sines)
{
    const bool given = teg_lower_has_tables(l, op);
    const struct teg_value *const a = &l->g->values[teg_lower_frequencies(l, op)];
    const struct teg_value *const b = given ? &l->g->values[op->inputs[2]] : NULL;
    const uint32_t width = op->attr.rope.head_width, half = width / 2, n = (uint32_t)teg_value_width(a);
    const uint32_t rows = l->o->context;
    const int64_t dims[2] = {rows, width};
    char name[64];
    *cosines = *sines = TEG_MIL_NO_VAR;
    if (!teg_lower_ok(l))
        return;
    if (given && (uint64_t)a->shape.dims[0] < rows) {
        teg_lower_keep(l, teg_base_fail(l->err, TEG_ERR_UNSUPPORTED, 0,
                                        "cannot write a package: rope: expected tables of %u positions, found %lld; "
                                        "choose a context of at most that",
                                        rows, (long long)a->shape.dims[0]));
        return;
    }
    float *const x = teg_arena_alloc(&l->scratch, ((size_t)rows * width * 2 + 2 * (size_t)n) * sizeof *x);
    if (!x) {
        teg_lower_keep(l, teg_base_fail_memory(l->err, "tables of cos and sin", (size_t)rows * width * 2 * sizeof *x));
        return;
    }
    float *const y = x + (size_t)rows * width, *const from = y + (size_t)rows * width;
    if (!given)
        teg_lower_keep(l, teg_lower_decode(a, 0, from, l->err));
    for (uint32_t p = 0; p < rows; p++) {
        if (given) {
            teg_lower_keep(l, teg_lower_decode(a, p, from, l->err));
            teg_lower_keep(l, teg_lower_decode(b, p, from + n, l->err));
        }
        for (uint32_t i = 0; i < half; i++) {
            float cs[2] = {1, 0}; /* what does not turn */
            if (i < n)
                wave(l, op, from, from + n, p, i, cs);
            x[(size_t)p * width + i] = x[(size_t)p * width + i + half] = cs[0];
            y[(size_t)p * width + i] = y[(size_t)p * width + i + half] = cs[1];
        }
    }
    (void)snprintf(name, sizeof name, "cos_table%s", suffix);
    *cosines = half_const(l, name, x, (size_t)rows * width, 2, dims);
    (void)snprintf(name, sizeof name, "sin_table%s", suffix);
    *sines = half_const(l, name, y, (size_t)rows * width, 2, dims);
}
