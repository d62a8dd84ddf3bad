/* eval/ops_constexpr.c: the constexpr_* ops, which say how a weight is stored, and quantize and dequantize.
 *
 * Two generations: opset 7 packs indices and masks as bit streams in uint8 vectors (element i in bits [i·w, (i+1)·w),
 * lowest bit first) and gives the shape apart; opset 9 has real sub-byte tensors, blocks along every axis, vectors as
 * palette entries and sparse forms whose outputs are (mask, values of the set positions in row-major order).
 *
 * Blocks: a tensor's dims D are cut into G groups each. Dims that are cut alike are merged before the loop, so that the
 * usual weight ([out, in, 1, 1] with groups along out) is two dims, and rows along the last one need no division.
 *
 * Everything here is a value the caller asks for once; keeping weights encoded is the planner's business. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "eval/eval.h"

/* ---- blocks ---- */

struct blocks {
    uint32_t rank;
    size_t dims[TEG_MIL_MAX_RANK], groups[TEG_MIL_MAX_RANK];
};

/* Fails where a dim is not a multiple of its groups. */
static enum teg_status read_blocks(struct teg_eval_call *c, const char *name, uint32_t rank, const size_t *dims,
                                   const size_t *groups, struct blocks *out)
{
    out->rank = 0;
    for (uint32_t d = 0; d < rank; d++) {
        if (!groups[d] ? dims[d] != 0 : dims[d] % groups[d] != 0)
            OP_FAIL(c, TEG_ERR_FORMAT,
                    "parameter %s: expected groups that divide %zu elements in dimension %u, found %zu", name, dims[d],
                    d, groups[d]);
        if (dims[d] == 1)
            continue;
        const uint32_t last = out->rank - 1;
        const bool whole = groups[d] == 1, single = groups[d] == dims[d];
        const bool like_last =
            out->rank && ((whole && out->groups[last] == 1) || (single && out->groups[last] == out->dims[last]));
        if (like_last) {
            out->dims[last] *= dims[d];
            out->groups[last] *= groups[d];
        } else {
            out->dims[out->rank] = dims[d];
            out->groups[out->rank++] = groups[d];
        }
    }
    if (!out->rank) {
        out->rank = 1;
        out->dims[0] = out->groups[0] = 1;
    }
    return TEG_OK;
}

static size_t last_dim(const struct blocks *b)
{
    return b->dims[b->rank - 1];
}

/* Group of the first element of row `row` (rows run along the last dim). */
static size_t row_group(const struct blocks *b, size_t row)
{
    size_t group = 0, step = b->groups[b->rank - 1];
    for (uint32_t d = b->rank - 1; d-- > 0;) {
        group += row % b->dims[d] / (b->dims[d] / b->groups[d]) * step;
        row /= b->dims[d];
        step *= b->groups[d];
    }
    return group;
}

static size_t group_of(const struct blocks *b, size_t i)
{
    const size_t n = last_dim(b);
    return row_group(b, i / n) + i % n / (n / b->groups[b->rank - 1]);
}

/* ---- parameters ---- */

/* Integers or floats; both have elements of four bytes, so that moving them needs no form. */
static enum teg_status read_numbers(struct teg_eval_call *c, const char *name, const struct teg_array **a)
{
    TRY(teg_arg_any(c, name, a));
    if ((*a)->form != TEG_FORM_F32 && (*a)->form != TEG_FORM_I32)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter %s: expected numbers, found another type", name);
    return TEG_OK;
}

static float number(const struct teg_array *a, size_t i)
{
    return a->form == TEG_FORM_F32 ? a->f32[i] : (float)a->i32[i];
}

static void move_number(const struct teg_array *from, size_t i, struct teg_array *to, size_t at)
{
    memcpy((char *)to->data + 4 * at, (const char *)from->data + 4 * i, 4);
}

/* `shape` of the older ops: a vector of sizes. */
static enum teg_status read_shape(struct teg_eval_call *c, uint32_t *rank, size_t dims[TEG_MIL_MAX_RANK], size_t *n)
{
    int32_t shape[TEG_MIL_MAX_RANK];
    size_t count;
    TRY(teg_arg_ints(c, "shape", shape, TEG_MIL_MAX_RANK, &count));
    if (count == SIZE_MAX)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter shape: expected a value, found none");
    *rank = (uint32_t)count;
    *n = 1;
    for (size_t d = 0; d < count; d++) {
        dims[d] = (uint32_t)shape[d];
        if (!teg_mul(*n, dims[d], n) || *n > SIZE_MAX / 8)
            OP_FAIL(c, TEG_ERR_FORMAT, "parameter shape: expected a size that can be addressed, found an overflow");
    }
    return TEG_OK;
}

/* A vector of bytes that holds n elements of `bits` bits. */
static enum teg_status read_bytes(struct teg_eval_call *c, const char *name, size_t n, uint32_t bits,
                                  const struct teg_array **a)
{
    TRY(teg_arg_form(c, name, TEG_FORM_I32, a));
    const size_t want = n / 8 * bits + (n % 8 * bits + 7) / 8;
    if ((*a)->rank != 1 || (*a)->n != want)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter %s: expected %zu bytes for %zu elements of %u bits, found shape %s", name,
                want, n, bits, teg_shape_text((*a)->rank, (*a)->dims).text);
    return TEG_OK;
}

/* Element i of a stream of elements of at most 8 bits. */
static uint32_t packed(const struct teg_array *bytes, size_t i, uint32_t bits)
{
    const size_t at = i / 8 * bits + i % 8 * bits / 8;
    const uint32_t shift = (uint32_t)(i % 8 * bits % 8);
    uint32_t v = (uint32_t)bytes->i32[at] & 0xff;
    if (shift + bits > 8)
        v |= ((uint32_t)bytes->i32[at + 1] & 0xff) << 8;
    return v >> shift & ((1u << bits) - 1);
}

/* ---- one factor an axis: constexpr_affine_dequantize, quantize, dequantize ---- */

struct scaling {
    const struct teg_array *x, *scale, *zero;
    struct teg_array *y;
    size_t n_axis, inner; /* elements along the axis and behind it; one value for all: n_axis 1 */
    float low, high;      /* quantize */
};

static enum teg_status check_factor(struct teg_eval_call *c, const char *name, const struct teg_array *a, size_t n_axis)
{
    if (a->rank > 1 || (a->n != 1 && a->n != n_axis))
        OP_FAIL(c, TEG_ERR_FORMAT,
                "parameter %s: expected one value or %zu, one for each element of the axis, found shape %s", name,
                n_axis, teg_shape_text(a->rank, a->dims).text);
    return TEG_OK;
}

static enum teg_status read_scaling(struct teg_eval_call *c, const char *data, struct scaling *s)
{
    uint32_t axis = 0;
    TRY(teg_arg_any(c, data, &s->x));
    TRY(teg_arg_form(c, "scale", TEG_FORM_F32, &s->scale));
    s->zero = NULL;
    if (teg_arg(c, "zero_point"))
        TRY(read_numbers(c, "zero_point", &s->zero));
    s->n_axis = 1;
    s->inner = s->x->n ? s->x->n : 1;
    if (s->scale->rank == 0 && (!s->zero || s->zero->rank == 0))
        return TEG_OK;
    TRY(teg_arg_axis(c, "axis", 0, s->x->rank, &axis));
    s->n_axis = s->x->dims[axis];
    s->inner = 1;
    for (uint32_t d = axis + 1; d < s->x->rank; d++)
        s->inner *= s->x->dims[d];
    TRY(check_factor(c, "scale", s->scale, s->n_axis));
    return s->zero ? check_factor(c, "zero_point", s->zero, s->n_axis) : TEG_OK;
}

static float factor(const struct teg_array *a, size_t i, float otherwise)
{
    return a ? number(a, a->n == 1 ? 0 : i) : otherwise;
}

static void dequantize_runs(void *ctx, size_t begin, size_t end)
{
    const struct scaling *const s = ctx;
    for (size_t i = begin; i < end; i++) {
        const float scale = factor(s->scale, i % s->n_axis, 1), zero = factor(s->zero, i % s->n_axis, 0);
        for (size_t k = i * s->inner; k < (i + 1) * s->inner; k++)
            s->y->f32[k] = ((float)s->x->i32[k] - zero) * scale;
    }
}

static void quantize_runs(void *ctx, size_t begin, size_t end)
{
    const struct scaling *const s = ctx;
    for (size_t i = begin; i < end; i++) {
        const float scale = factor(s->scale, i % s->n_axis, 1), zero = factor(s->zero, i % s->n_axis, 0);
        for (size_t k = i * s->inner; k < (i + 1) * s->inner; k++) {
            const float v = rintf(s->x->f32[k] / scale) + zero; /* half to even */
            s->y->i32[k] = v > s->low ? v < s->high ? (int32_t)v : (int32_t)s->high : v != v ? 0 : (int32_t)s->low;
        }
    }
}

static enum teg_status run_scaling(struct teg_eval_call *c, struct scaling *s, enum teg_form from, enum teg_form to,
                                   void (*runs)(void *, size_t, size_t))
{
    if (s->x->form != from)
        OP_FAIL(c, TEG_ERR_FORMAT, "data: expected %s, found another type",
                from == TEG_FORM_F32 ? "floats" : "integers");
    TRY(teg_output(c, 0, to, s->x->rank, s->x->dims, &s->y));
    if (s->y->n)
        teg_op_parallel(c, s->y->n / s->inner, 2 * s->inner, runs, s);
    return TEG_OK;
}

static enum teg_status op_affine_dequantize(struct teg_eval_call *c)
{
    struct scaling s;
    TRY(read_scaling(c, "quantized_data", &s));
    return run_scaling(c, &s, TEG_FORM_I32, TEG_FORM_F32, dequantize_runs);
}

static enum teg_status op_dequantize(struct teg_eval_call *c)
{
    struct scaling s;
    TRY(read_scaling(c, "input", &s));
    return run_scaling(c, &s, TEG_FORM_I32, TEG_FORM_F32, dequantize_runs);
}

static enum teg_status op_quantize(struct teg_eval_call *c)
{
    struct scaling s;
    struct teg_string dtype;
    TRY(read_scaling(c, "input", &s));
    TRY(teg_arg_string(c, "output_dtype", "", &dtype));
    const bool is_signed = teg_string_is(dtype, "int8");
    if (!is_signed && !teg_string_is(dtype, "uint8"))
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter output_dtype: expected int8 or uint8, found \"%.*s\"",
                (int)teg_min(dtype.n_bytes, 60), dtype.bytes);
    s.low = is_signed ? -128 : 0;
    s.high = is_signed ? 127 : 255;
    return run_scaling(c, &s, TEG_FORM_F32, TEG_FORM_I32, quantize_runs);
}

/* ---- constexpr_cast ---- */

static enum teg_status op_cast(struct teg_eval_call *c)
{
    const struct teg_array *x;
    struct teg_array *y;
    struct teg_string dtype;
    TRY(teg_arg_form(c, "source_val", TEG_FORM_F32, &x));
    TRY(teg_arg_string(c, "output_dtype", "fp32", &dtype));
    if (!teg_string_is(dtype, "fp32") && !teg_string_is(dtype, "fp16"))
        OP_FAIL(c, TEG_ERR_UNSUPPORTED, "parameter output_dtype: expected fp32, found \"%.*s\"",
                (int)teg_min(dtype.n_bytes, 60), dtype.bytes);
    TRY(teg_output(c, 0, TEG_FORM_F32, x->rank, x->dims, &y));
    if (x->n)
        memcpy(y->f32, x->f32, x->n * sizeof *y->f32);
    return TEG_OK;
}

/* ---- opset 7: bit streams ---- */

static enum teg_status op_lut_to_dense_16(struct teg_eval_call *c)
{
    const struct teg_array *lut, *indices;
    struct teg_array *y;
    uint32_t rank, bits = 0;
    size_t dims[TEG_MIL_MAX_RANK], n;
    TRY(read_numbers(c, "lut", &lut));
    TRY(read_shape(c, &rank, dims, &n));
    while (bits < 8 && (size_t)1 << bits < lut->n)
        bits++;
    if (lut->rank != 1 || !bits || lut->n != (size_t)1 << bits)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter lut: expected 2, 4, 16, 64 or 256 entries, found shape %s",
                teg_shape_text(lut->rank, lut->dims).text);
    TRY(read_bytes(c, "indices", n, bits, &indices));
    TRY(teg_output(c, 0, lut->form, rank, dims, &y));
    for (size_t i = 0; i < n; i++)
        move_number(lut, packed(indices, i, bits), y, i);
    return TEG_OK;
}

/* Puts the values where bits are set, zeros elsewhere. bit(i): from a stream, or an element of a tensor. */
static enum teg_status fill_sparse(struct teg_eval_call *c, const struct teg_array *values,
                                   const struct teg_array *mask, bool is_stream, struct teg_array *y)
{
    size_t used = 0;
    memset(y->data, 0, 4 * y->n);
    for (size_t i = 0; i < y->n; i++) {
        if (!(is_stream ? packed(mask, i, 1) : (uint32_t)mask->i32[i]))
            continue;
        if (used < values->n)
            move_number(values, used, y, i);
        used++;
    }
    if (used != values->n)
        OP_FAIL(c, TEG_ERR_FORMAT,
                "parameter nonzero_data: expected %zu values, one for each bit of the mask, found %zu", used,
                values->n);
    return TEG_OK;
}

static enum teg_status op_sparse_to_dense_16(struct teg_eval_call *c)
{
    const struct teg_array *values, *mask;
    struct teg_array *y;
    uint32_t rank;
    size_t dims[TEG_MIL_MAX_RANK], n;
    TRY(read_numbers(c, "nonzero_data", &values));
    TRY(read_shape(c, &rank, dims, &n));
    TRY(read_bytes(c, "mask", n, 1, &mask));
    TRY(teg_output(c, 0, values->form, rank, dims, &y));
    return fill_sparse(c, values, mask, true, y);
}

/* ---- opset 9: blocks ---- */

struct shift_scale {
    const struct teg_array *data, *scale, *offset;
    struct blocks blocks;
    struct teg_array *y;
};

static enum teg_status read_shift_scale(struct teg_eval_call *c, uint32_t rank, const size_t *dims,
                                        struct shift_scale *s)
{
    TRY(teg_arg_form(c, "scale", TEG_FORM_F32, &s->scale));
    if (s->scale->rank != rank)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter scale: expected rank %u as the data has, found shape %s", rank,
                teg_shape_text(s->scale->rank, s->scale->dims).text);
    s->offset = NULL;
    if (teg_arg(c, "offset")) {
        TRY(read_numbers(c, "offset", &s->offset));
        bool same = s->offset->rank == rank;
        for (uint32_t d = 0; same && d < rank; d++)
            same = s->offset->dims[d] == s->scale->dims[d];
        if (!same)
            OP_FAIL(c, TEG_ERR_FORMAT, "parameter offset: expected the shape of scale, %s, found %s",
                    teg_shape_text(rank, s->scale->dims).text, teg_shape_text(s->offset->rank, s->offset->dims).text);
    }
    return read_blocks(c, "scale", rank, dims, s->scale->dims, &s->blocks);
}

static void shift_scale_rows(void *ctx, size_t begin, size_t end)
{
    const struct shift_scale *const s = ctx;
    const size_t n = last_dim(&s->blocks), block = n / s->blocks.groups[s->blocks.rank - 1];
    for (size_t row = begin; row < end; row++) {
        size_t group = row_group(&s->blocks, row);
        for (size_t i = row * n; i < (row + 1) * n; group++) {
            const float scale = s->scale->f32[group], offset = s->offset ? number(s->offset, group) : 0.0f;
            for (const size_t stop = i + block; i < stop; i++)
                s->y->f32[i] = (number(s->data, i) - offset) * scale;
        }
    }
}

static enum teg_status op_blockwise_shift_scale(struct teg_eval_call *c)
{
    struct shift_scale s;
    TRY(read_numbers(c, "data", &s.data));
    TRY(read_shift_scale(c, s.data->rank, s.data->dims, &s));
    TRY(teg_output(c, 0, TEG_FORM_F32, s.data->rank, s.data->dims, &s.y));
    if (s.y->n)
        teg_op_parallel(c, s.y->n / last_dim(&s.blocks), 3 * last_dim(&s.blocks), shift_scale_rows, &s);
    return TEG_OK;
}

struct palette {
    const struct teg_array *indices, *mask, *lut; /* mask NULL: dense */
    struct blocks blocks;
    size_t n_entries, vector; /* of a table; values an entry */
    size_t n_axis, inner;     /* of the indices' shape: along the vector axis and behind it */
    uint32_t rank;
    size_t dims[TEG_MIL_MAX_RANK]; /* of the result */
    struct teg_array *y;
};

static enum teg_status read_palette(struct teg_eval_call *c, const struct teg_array *shaped, struct palette *p)
{
    uint32_t axis = 0;
    TRY(read_numbers(c, "lut", &p->lut));
    p->rank = shaped->rank;
    if (!p->rank || p->lut->rank != p->rank + 2)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter lut: expected rank %u, two more than the indices, found shape %s",
                p->rank + 2, teg_shape_text(p->lut->rank, p->lut->dims).text);
    p->n_entries = p->lut->dims[p->rank];
    p->vector = p->lut->dims[p->rank + 1];
    if (p->vector != 1 && !teg_arg(c, "vector_axis"))
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter vector_axis: expected an axis for entries of %zu values, found none",
                p->vector);
    TRY(teg_arg_axis(c, "vector_axis", 0, p->rank, &axis));
    memcpy(p->dims, shaped->dims, p->rank * sizeof *p->dims);
    p->n_axis = shaped->dims[axis];
    p->inner = 1;
    for (uint32_t d = axis + 1; d < p->rank; d++)
        p->inner *= shaped->dims[d];
    if (!teg_mul(p->dims[axis], p->vector, &p->dims[axis]))
        OP_FAIL(c, TEG_ERR_FORMAT, "output: expected a size that can be addressed, found an overflow");
    TRY(read_blocks(c, "lut", p->rank, shaped->dims, p->lut->dims, &p->blocks));
    for (size_t i = 0; i < p->indices->n; i++)
        if (p->indices->i32[i] < 0 || (size_t)p->indices->i32[i] >= p->n_entries)
            OP_FAIL(c, TEG_ERR_FORMAT, "parameter indices: expected values from 0 to %zu, found %d", p->n_entries - 1,
                    p->indices->i32[i]);
    return TEG_OK;
}

/* Entries of one value, rows along the last merged dim. */
static void palette_rows(void *ctx, size_t begin, size_t end)
{
    const struct palette *const p = ctx;
    const size_t n = last_dim(&p->blocks), block = n / p->blocks.groups[p->blocks.rank - 1];
    for (size_t row = begin; row < end; row++) {
        size_t group = row_group(&p->blocks, row);
        for (size_t i = row * n; i < (row + 1) * n; group++)
            for (const size_t stop = i + block; i < stop; i++)
                move_number(p->lut, group * p->n_entries + (size_t)p->indices->i32[i], p->y, i);
    }
}

/* Position in the indices of element o of the result, and which value of the vector it is. */
static size_t source_of(const struct palette *p, size_t o, size_t *lane)
{
    const size_t q = o / p->inner % (p->n_axis * p->vector), outer = o / p->inner / (p->n_axis * p->vector);
    *lane = q % p->vector;
    return (outer * p->n_axis + q / p->vector) * p->inner + o % p->inner;
}

static void palette_vectors(void *ctx, size_t begin, size_t end)
{
    const struct palette *const p = ctx;
    for (size_t o = begin; o < end; o++) {
        size_t lane;
        const size_t i = source_of(p, o, &lane);
        const size_t entry = group_of(&p->blocks, i) * p->n_entries + (size_t)p->indices->i32[i];
        move_number(p->lut, entry * p->vector + lane, p->y, o);
    }
}

static enum teg_status op_lut_to_dense(struct teg_eval_call *c)
{
    struct palette p = {0};
    TRY(teg_arg_form(c, "indices", TEG_FORM_I32, &p.indices));
    TRY(read_palette(c, p.indices, &p));
    TRY(teg_output(c, 0, p.lut->form, p.rank, p.dims, &p.y));
    if (!p.y->n)
        return TEG_OK;
    if (p.vector == 1)
        teg_op_parallel(c, p.y->n / last_dim(&p.blocks), 2 * last_dim(&p.blocks), palette_rows, &p);
    else
        teg_op_parallel(c, p.y->n, 20, palette_vectors, &p);
    return TEG_OK;
}

/* ---- opset 9: sparse forms ---- */

/* A mask (uint1, any shape) with as many set elements as there are values. */
static enum teg_status read_mask(struct teg_eval_call *c, const char *name, const struct teg_array *values,
                                 const struct teg_array **mask)
{
    size_t n_set = 0;
    TRY(teg_arg_form(c, name, TEG_FORM_I32, mask));
    for (size_t i = 0; i < (*mask)->n; i++)
        n_set += (*mask)->i32[i] != 0;
    if (values->rank != 1 || n_set != values->n)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter %s: expected as many ones as there are values (shape %s), found %zu",
                name, teg_shape_text(values->rank, values->dims).text, n_set);
    return TEG_OK;
}

static enum teg_status op_sparse_to_dense(struct teg_eval_call *c)
{
    const struct teg_array *values, *mask;
    struct teg_array *y;
    TRY(read_numbers(c, "nonzero_data", &values));
    TRY(teg_arg_form(c, "mask", TEG_FORM_I32, &mask));
    TRY(teg_output(c, 0, values->form, mask->rank, mask->dims, &y));
    return fill_sparse(c, values, mask, false, y);
}

static enum teg_status op_lut_to_sparse(struct teg_eval_call *c)
{
    struct palette p = {0};
    struct teg_array *mask;
    size_t *ordinal, n_values, used = 0, lane;
    TRY(teg_arg_form(c, "indices_nonzero_data", TEG_FORM_I32, &p.indices));
    TRY(read_mask(c, "indices_mask", p.indices, &p.mask));
    TRY(read_palette(c, p.mask, &p));
    if (!teg_mul(p.indices->n, p.vector, &n_values))
        OP_FAIL(c, TEG_ERR_FORMAT, "output: expected a size that can be addressed, found an overflow");
    TRY(teg_output(c, 0, TEG_FORM_I32, p.rank, p.dims, &mask));
    TRY(teg_output(c, 1, p.lut->form, 1, &n_values, &p.y));
    TRY(teg_op_scratch(c, p.mask->n ? p.mask->n : 1, sizeof *ordinal, (void **)&ordinal));
    for (size_t i = 0; i < p.mask->n; i++) { /* which of the values belongs to a set position */
        ordinal[i] = used;
        used += p.mask->i32[i] != 0;
    }
    used = 0;
    for (size_t o = 0; o < mask->n; o++) {
        const size_t i = source_of(&p, o, &lane);
        mask->i32[o] = p.mask->i32[i] != 0;
        if (!mask->i32[o])
            continue;
        const size_t entry = group_of(&p.blocks, i) * p.n_entries + (size_t)p.indices->i32[ordinal[i]];
        move_number(p.lut, entry * p.vector + lane, p.y, used++);
    }
    return TEG_OK;
}

static enum teg_status op_sparse_blockwise_shift_scale(struct teg_eval_call *c)
{
    struct shift_scale s;
    const struct teg_array *mask;
    size_t used = 0;
    TRY(read_numbers(c, "nonzero_data", &s.data));
    TRY(read_mask(c, "data_mask", s.data, &mask));
    TRY(read_shift_scale(c, mask->rank, mask->dims, &s));
    TRY(teg_output_share(c, 0, mask, mask->rank, mask->dims));
    TRY(teg_output(c, 1, TEG_FORM_F32, 1, s.data->dims, &s.y));
    for (size_t i = 0; i < mask->n; i++) {
        if (!mask->i32[i])
            continue;
        const size_t group = group_of(&s.blocks, i);
        const float offset = s.offset ? number(s.offset, group) : 0.0f;
        s.y->f32[used] = (number(s.data, used) - offset) * s.scale->f32[group];
        used++;
    }
    return TEG_OK;
}

const struct teg_eval_row teg_eval_rows_constexpr[] = {
    {"constexpr_affine_dequantize", 7, op_affine_dequantize},
    {"constexpr_cast", 7, op_cast},
    {"constexpr_lut_to_dense", 7, op_lut_to_dense_16},
    {"constexpr_lut_to_dense", 9, op_lut_to_dense},
    {"constexpr_sparse_to_dense", 7, op_sparse_to_dense_16},
    {"constexpr_sparse_to_dense", 9, op_sparse_to_dense},
    {"constexpr_blockwise_shift_scale", 9, op_blockwise_shift_scale},
    {"constexpr_lut_to_sparse", 9, op_lut_to_sparse},
    {"constexpr_sparse_blockwise_shift_scale", 9, op_sparse_blockwise_shift_scale},
    {"quantize", 8, op_quantize},
    {"dequantize", 8, op_dequantize},
    {NULL, 0, NULL},
};
