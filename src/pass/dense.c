/* pass/dense.c: decoding of constants and constexpr chains.
 *
 * Every parameter is decoded to floats first, by the same function, so chains need no cases of their own: an integer of
 * at most 24 bits is itself as a float. Data are turned into results where they lie; one array of a weight's size is
 * all that most forms take. Nothing of what a file declares is trusted: counts are checked before they are used as
 * indices, chains may be DEEPEST ops long. */
#include "pass/dense.h"

#include <string.h>

#include "base/check.h"
#include "dtype/encoding.h"
#include "mil/type.h"

enum { DEEPEST = 8, PIECE = 256 };

struct work {
    const struct teg_dense *d;
    const char *why; /* NULL with a failure: memory */
};

/* ---- elements ---- */

bool teg_dense_readable(enum teg_mil_dtype dtype)
{
    return dtype != TEG_MIL_STRING && dtype != TEG_MIL_FP8E4M3FN && dtype != TEG_MIL_FP8E5M2;
}

float teg_dense_element(enum teg_mil_dtype dtype, const uint8_t *bytes, size_t i)
{
    const struct teg_mil_dtype_info *const info = teg_mil_dtype_info(dtype);
    uint64_t bits = 0;
    if (info->bits < 8) {
        for (uint32_t b = 0; b < info->bits; b++) {
            const size_t at = i * info->bits + b;
            bits |= (uint64_t)(bytes[at / 8] >> (at % 8) & 1) << b;
        }
    } else {
        memcpy(&bits, bytes + i * (info->bits / 8), info->bits / 8);
    }
    union {
        uint32_t u;
        float f;
    } word = {.u = (uint32_t)bits};
    double wide;
    memcpy(&wide, &bits, sizeof wide);
    switch (dtype) {
    case TEG_MIL_FP16:
        return teg_f16_to_f32((uint16_t)bits);
    case TEG_MIL_BF16:
        return teg_bf16_to_f32((uint16_t)bits);
    case TEG_MIL_FP32:
        return word.f;
    case TEG_MIL_FP64:
        return (float)wide;
    default:
        break;
    }
    if (info->class_ == TEG_MIL_CLASS_INT && bits >> (info->bits - 1) & 1)
        return (float)(int64_t)(info->bits == 64 ? bits : bits | ~(((uint64_t)1 << info->bits) - 1));
    return (float)bits;
}

static void fill_codes(const struct teg_packed_ints *codes, size_t n, float *out)
{
    uint8_t piece[PIECE];
    const float half = (float)teg_encoding_half(codes);
    for (size_t i = 0; i < n; i += PIECE) {
        const size_t k = teg_min(PIECE, n - i);
        teg_encoding_codes(codes, i, k, piece);
        for (size_t j = 0; j < k; j++)
            out[i + j] = (float)piece[j] - half;
    }
}

static void fill(const struct teg_mil_const *c, size_t n, float *out)
{
    const struct teg_mil_dtype_info *const info = teg_mil_dtype_info(c->type.dtype);
    const bool is_signed = info->class_ == TEG_MIL_CLASS_INT;
    if (c->type.dtype == TEG_MIL_FP16 || c->type.dtype == TEG_MIL_FP32)
        teg_dtype_decode(c->type.dtype == TEG_MIL_FP16 ? TEG_DTYPE_F16 : TEG_DTYPE_F32, c->bytes, out, n);
    else if ((is_signed || info->class_ == TEG_MIL_CLASS_UINT) && info->bits <= 8)
        fill_codes(&(struct teg_packed_ints){c->bytes, info->bits, is_signed}, n, out);
    else
        for (size_t i = 0; i < n; i++)
            out[i] = teg_dense_element(c->type.dtype, c->bytes, i);
}

static float rounded(enum teg_mil_dtype dtype, float x)
{
    return dtype == TEG_MIL_FP16 ? teg_f16_to_f32(teg_f32_to_f16(x)) : x;
}

/* ---- blocks ---- */

/* Index into a smaller tensor whose dimensions divide those of the large one. */
static size_t block_index(const struct teg_mil_type *large, const struct teg_mil_type *small, size_t i)
{
    size_t index = 0, step = 1;
    for (int32_t d = large->rank; d-- > 0;) {
        const size_t at = i % (size_t)large->dims[d];
        i /= (size_t)large->dims[d];
        index += at / (size_t)(large->dims[d] / small->dims[d]) * step;
        step *= (size_t)small->dims[d];
    }
    return index;
}

/* Elements one after the other that lie in one block. */
static size_t block_run(const struct teg_mil_type *large, const struct teg_mil_type *small)
{
    size_t run = 1;
    for (int32_t d = large->rank; d-- > 0;) {
        run *= (size_t)(large->dims[d] / small->dims[d]);
        if (small->dims[d] != 1)
            break;
    }
    return run;
}

static bool divides(const struct teg_mil_type *large, const struct teg_mil_type *small)
{
    if (large->kind != TEG_MIL_TENSOR || small->kind != TEG_MIL_TENSOR || large->rank != small->rank)
        return false;
    for (int32_t d = 0; d < large->rank; d++)
        if (small->dims[d] < 1 || large->dims[d] < 1 || large->dims[d] % small->dims[d])
            return false;
    return true;
}

/* ---- parameters ---- */

static float *values(struct work *w, teg_mil_var_id var, uint32_t depth, size_t *n);

struct param {
    const struct teg_mil_type *type; /* NULL: not there */
    float *x;
    size_t n;
};

static void *refuse(struct work *w, const char *why)
{
    w->why = why;
    return NULL;
}

/* False: there and not to be decoded; w->why has the reason. */
static bool read_param(struct work *w, const struct teg_mil_op *op, const char *name, uint32_t depth, struct param *p)
{
    const struct teg_mil_arg *const arg = teg_mil_find_arg(op, name);
    *p = (struct param){0};
    if (!arg)
        return true;
    if (arg->n_vars != 1)
        return refuse(w, "expected one value of each parameter, found several");
    p->x = values(w, arg->vars[0], depth + 1, &p->n);
    p->type = &w->d->program->vars[arg->vars[0]].type;
    return p->x != NULL;
}

/* The form's sentence instead of what went wrong in a parameter, but never instead of memory. */
static float *not_this_form(struct work *w, const char *why)
{
    if (w->why)
        w->why = why;
    return NULL;
}

static const struct teg_mil_const *stream(const struct work *w, const struct teg_mil_op *op, const char *name, size_t n,
                                          uint32_t bits)
{
    const struct teg_mil_var *const v = teg_mil_arg_var(w->d->program, op, name);
    const bool good = v && v->constant && v->constant->bytes && v->type.kind == TEG_MIL_TENSOR &&
                      teg_mil_dtype_info(v->type.dtype)->bits == 8 &&
                      v->constant->n_bytes >= n / 8 * bits + (n % 8 * bits + 7) / 8;
    return good ? v->constant : NULL;
}

static float *take(struct work *w, size_t n)
{
    float *const x = teg_arena_array(w->d->arena, n ? n : 1, sizeof *x);
    return x ? x : refuse(w, NULL);
}

/* ---- scales ---- */

struct result {
    const struct teg_mil_op *op;
    size_t output; /* which of the op's */
    const struct teg_mil_type *type;
    size_t n;
    uint32_t depth;
};

static const char shift_scale_form[] = "expected constant data with scales and offsets by blocks, found another form";

/* Scale and offset of element i, looked up where a run begins. */
struct scaling {
    const struct teg_mil_type *type;
    struct param scale, offset;
    size_t run, zero_run;
};

static bool read_scaling(struct work *w, const struct result *r, const struct teg_mil_type *type, struct scaling *s)
{
    s->type = type;
    if (!read_param(w, r->op, "scale", r->depth, &s->scale) || !read_param(w, r->op, "offset", r->depth, &s->offset) ||
        !s->scale.type || !divides(type, s->scale.type) || (s->offset.type && !divides(type, s->offset.type)))
        return false;
    s->run = block_run(type, s->scale.type);
    s->zero_run = s->offset.type ? block_run(type, s->offset.type) : SIZE_MAX;
    return true;
}

static float *decode_shift_scale(struct work *w, const struct result *r)
{
    struct param data;
    struct scaling s;
    w->why = shift_scale_form;
    if (!read_param(w, r->op, "data", r->depth, &data) || !data.type || data.n != r->n ||
        !read_scaling(w, r, data.type, &s))
        return not_this_form(w, shift_scale_form);
    float scale = 0, zero = 0;
    for (size_t i = 0; i < r->n; i++) {
        if (i % s.run == 0)
            scale = s.scale.x[block_index(s.type, s.scale.type, i)];
        if (s.offset.type && i % s.zero_run == 0)
            zero = s.offset.x[block_index(s.type, s.offset.type, i)];
        data.x[i] = rounded(r->type->dtype, scale * (data.x[i] - zero));
    }
    return data.x;
}

/* iOS16: one scale for the tensor or for each index of an axis. */
static float *decode_affine(struct work *w, const struct result *r)
{
    static const char form[] = "expected constant data, scale, zero point and axis, found another form";
    struct param data, scale, zero, axis;
    w->why = form;
    if (!read_param(w, r->op, "quantized_data", r->depth, &data) || !read_param(w, r->op, "scale", r->depth, &scale) ||
        !read_param(w, r->op, "zero_point", r->depth, &zero) || !read_param(w, r->op, "axis", r->depth, &axis) ||
        !data.type || !scale.type || !zero.type || !axis.type || data.n != r->n || axis.n != 1)
        return not_this_form(w, form);
    const int64_t given = (int64_t)axis.x[0], a = given < 0 ? given + data.type->rank : given;
    if (a < 0 || a >= data.type->rank)
        return refuse(w, "expected an axis of the data, found another number");
    size_t inner = 1;
    for (int32_t d = (int32_t)a + 1; d < data.type->rank; d++)
        inner *= (size_t)data.type->dims[d];
    const size_t rows = (size_t)data.type->dims[a];
    if ((scale.n != 1 && scale.n != rows) || (zero.n != 1 && zero.n != rows))
        return refuse(w, "expected one scale, or one for each index of the axis, found another number");
    for (size_t i = 0; i < r->n; i++) {
        const size_t row = i / inner % rows;
        const float s = scale.x[scale.n == 1 ? 0 : row], z = zero.x[zero.n == 1 ? 0 : row];
        data.x[i] = rounded(r->type->dtype, s * (data.x[i] - z));
    }
    return data.x;
}

/* ---- palettes ---- */

static const char table_form[] = "expected tables by blocks, of one value an entry, found another form";
static const char vector_form[] = "expected tables by blocks and a vector axis, found another form";
static const char large_index[] = "expected indices into the table, found a larger one";

/* iOS16: one table; indices packed in bytes, the shape apart. */
static float *decode_stream(struct work *w, const struct result *r, const struct param *lut)
{
    uint32_t bits = 0;
    while (bits < 8 && (size_t)1 << bits < lut->n)
        bits++;
    const struct teg_mil_const *const indices = stream(w, r->op, "indices", r->n, bits);
    if ((size_t)1 << bits != lut->n || bits == 0 || !indices)
        return refuse(w, "expected a table of 2, 4, 16, 64 or 256 entries and as many indices, found another");
    float *const out = take(w, r->n);
    for (size_t i = 0; out && i < r->n; i++) {
        size_t q = 0;
        for (uint32_t b = 0; b < bits; b++)
            q |= (size_t)(indices->bytes[(i * bits + b) / 8] >> ((i * bits + b) % 8) & 1) << b;
        out[i] = lut->x[q];
    }
    return out;
}

/* Tables [blocks…, entries, vector] for indices of a shape. */
struct palette {
    const struct teg_mil_type *shape; /* of the indices */
    struct teg_mil_type blocks;
    struct param lut;
    size_t entries, vector;
    size_t n_axis, inner; /* of the shape: along the vector axis and behind it */
};

static bool read_palette(struct work *w, const struct result *r, const struct teg_mil_type *shape,
                         const struct param *lut, struct palette *p)
{
    struct param axis;
    *p = (struct palette){.shape = shape, .blocks = *lut->type, .lut = *lut, .inner = 1};
    p->blocks.rank -= 2;
    w->why = table_form;
    if (p->blocks.rank < 1 || !divides(shape, &p->blocks))
        return false;
    p->entries = (size_t)lut->type->dims[p->blocks.rank];
    p->vector = (size_t)lut->type->dims[p->blocks.rank + 1];
    if (p->vector == 1)
        return true;
    w->why = vector_form;
    if (!read_param(w, r->op, "vector_axis", r->depth, &axis) || axis.n != 1)
        return not_this_form(w, vector_form);
    const int64_t a = (int64_t)axis.x[0] + (axis.x[0] < 0 ? shape->rank : 0);
    if (a < 0 || a >= shape->rank)
        return refuse(w, vector_form);
    p->n_axis = (size_t)shape->dims[a];
    for (int32_t d = (int32_t)a + 1; d < shape->rank; d++)
        p->inner *= (size_t)shape->dims[d];
    return true;
}

/* The index that element o of the result comes from, and which value of its entry it is. */
static size_t index_of(const struct palette *p, size_t o, size_t *lane)
{
    const size_t along = p->n_axis * p->vector, q = o / p->inner % along;
    *lane = q % p->vector;
    return (o / p->inner / along * p->n_axis + q / p->vector) * p->inner + o % p->inner;
}

static bool in_tables(const struct palette *p, const struct param *indices)
{
    for (size_t i = 0; i < indices->n; i++)
        if (!(indices->x[i] >= 0 && indices->x[i] < (float)p->entries))
            return false;
    return true;
}

static float *decode_lut(struct work *w, const struct result *r)
{
    static const char form[] = "expected constant indices and tables, found another form";
    struct param indices, lut;
    struct palette p;
    w->why = form;
    if (!read_param(w, r->op, "lut", r->depth, &lut) || !lut.type || lut.type->kind != TEG_MIL_TENSOR)
        return not_this_form(w, form);
    if (lut.type->rank == 1)
        return decode_stream(w, r, &lut);
    if (!read_param(w, r->op, "indices", r->depth, &indices) || !indices.type)
        return not_this_form(w, form);
    if (!read_palette(w, r, indices.type, &lut, &p))
        return NULL;
    if (indices.n > SIZE_MAX / p.vector || indices.n * p.vector != r->n)
        return refuse(w, table_form);
    if (!in_tables(&p, &indices))
        return refuse(w, large_index);
    if (p.vector > 1) {
        float *const out = take(w, r->n);
        for (size_t o = 0, lane; out && o < r->n; o++) {
            const size_t i = index_of(&p, o, &lane);
            const size_t entry = block_index(p.shape, &p.blocks, i) * p.entries + (size_t)indices.x[i];
            out[o] = lut.x[entry * p.vector + lane];
        }
        return out;
    }
    const size_t run = block_run(p.shape, &p.blocks);
    for (size_t i = 0, table = 0; i < r->n; i++) {
        if (i % run == 0)
            table = block_index(p.shape, &p.blocks, i) * p.entries;
        indices.x[i] = lut.x[table + (size_t)indices.x[i]];
    }
    return indices.x;
}

/* ---- sparse ---- */

static const char sparse_form[] = "expected a constant mask and as many values as it has ones, found another form";

static float *decode_sparse(struct work *w, const struct result *r)
{
    struct param data, mask = {0};
    const struct teg_mil_const *const bits =
        teg_mil_find_arg(r->op, "shape") ? stream(w, r->op, "mask", r->n, 1) : NULL;
    size_t used = 0;
    w->why = sparse_form;
    if (!read_param(w, r->op, "nonzero_data", r->depth, &data) || !data.type ||
        (!bits && (!read_param(w, r->op, "mask", r->depth, &mask) || !mask.type || mask.n != r->n)))
        return not_this_form(w, sparse_form);
    float *const out = take(w, r->n);
    for (size_t i = 0; out && i < r->n; i++) {
        const bool is_set = bits ? bits->bytes[i / 8] >> i % 8 & 1 : mask.x[i] != 0;
        out[i] = is_set && used < data.n ? data.x[used] : 0;
        used += is_set;
    }
    return out && used != data.n ? refuse(w, sparse_form) : out;
}

static size_t count_ones(const struct param *mask)
{
    size_t n = 0;
    for (size_t i = 0; i < mask->n; i++)
        n += mask->x[i] != 0;
    return n;
}

/* Outputs: the mask, the values. */
static float *decode_sparse_shift_scale(struct work *w, const struct result *r)
{
    struct param data, mask;
    struct scaling s;
    w->why = sparse_form;
    if (!read_param(w, r->op, "data_mask", r->depth, &mask) || !mask.type || !mask.type->rank)
        return not_this_form(w, sparse_form);
    if (r->output == 0)
        return mask.n == r->n ? mask.x : refuse(w, sparse_form);
    if (!read_param(w, r->op, "nonzero_data", r->depth, &data) || !data.type || data.n != r->n ||
        count_ones(&mask) != data.n)
        return not_this_form(w, sparse_form);
    if (!read_scaling(w, r, mask.type, &s))
        return not_this_form(w, shift_scale_form);
    for (size_t i = 0, used = 0; i < mask.n; i++) {
        if (mask.x[i] == 0)
            continue;
        const float zero = s.offset.type ? s.offset.x[block_index(s.type, s.offset.type, i)] : 0;
        const float scale = s.scale.x[block_index(s.type, s.scale.type, i)];
        data.x[used] = rounded(r->type->dtype, scale * (data.x[used] - zero));
        used++;
    }
    return data.x;
}

static float *spread_mask(struct work *w, const struct result *r, const struct palette *p, const struct param *mask)
{
    float *const out = take(w, r->n);
    for (size_t o = 0, lane; out && o < r->n; o++)
        out[o] = mask->x[p->vector > 1 ? index_of(p, o, &lane) : o];
    return out;
}

static float *decode_lut_to_sparse(struct work *w, const struct result *r)
{
    struct param indices, mask, lut;
    struct palette p;
    w->why = sparse_form;
    if (!read_param(w, r->op, "indices_mask", r->depth, &mask) || !mask.type ||
        !read_param(w, r->op, "indices_nonzero_data", r->depth, &indices) || !indices.type ||
        count_ones(&mask) != indices.n || !read_param(w, r->op, "lut", r->depth, &lut) || !lut.type)
        return not_this_form(w, sparse_form);
    if (!read_palette(w, r, mask.type, &lut, &p))
        return NULL;
    const size_t n = r->output == 0 ? mask.n : indices.n;
    if (n > SIZE_MAX / p.vector || n * p.vector != r->n)
        return refuse(w, sparse_form);
    if (r->output == 0)
        return spread_mask(w, r, &p, &mask);
    if (!in_tables(&p, &indices))
        return refuse(w, large_index);
    /* Values follow the order of the spread mask, in which an entry's values may lie apart: which code a place has is
     * counted first. */
    float *const out = take(w, r->n), *const code = take(w, mask.n);
    for (size_t i = 0, used = 0; out && code && i < mask.n; i++)
        code[i] = mask.x[i] != 0 ? indices.x[used++] : -1;
    for (size_t o = 0, used = 0, lane = 0; out && code && o < mask.n * p.vector; o++) {
        const size_t i = p.vector > 1 ? index_of(&p, o, &lane) : o;
        if (code[i] >= 0)
            out[used++] = lut.x[(block_index(p.shape, &p.blocks, i) * p.entries + (size_t)code[i]) * p.vector + lane];
    }
    return code ? out : NULL;
}

/* ---- all ---- */

static float *decode_cast(struct work *w, const struct result *r)
{
    static const char form[] = "expected a constant, found another form";
    struct param source;
    w->why = form;
    if (!read_param(w, r->op, "source_val", r->depth, &source) || !source.type || source.n != r->n)
        return not_this_form(w, form);
    for (size_t i = 0; i < r->n; i++)
        source.x[i] = rounded(r->type->dtype, source.x[i]);
    return source.x;
}

static const struct {
    const char *type;
    float *(*decode)(struct work *w, const struct result *r);
} decoders[] = {
    {"constexpr_blockwise_shift_scale", decode_shift_scale},
    {"constexpr_affine_dequantize", decode_affine},
    {"constexpr_lut_to_dense", decode_lut},
    {"constexpr_sparse_to_dense", decode_sparse},
    {"constexpr_sparse_blockwise_shift_scale", decode_sparse_shift_scale},
    {"constexpr_lut_to_sparse", decode_lut_to_sparse},
    {"constexpr_cast", decode_cast},
};

static float *decode_const(struct work *w, const struct teg_mil_const *c, size_t n)
{
    size_t n_bytes;
    if (!teg_dense_readable(c->type.dtype))
        return refuse(w, "expected weights in fp16, fp32 or integers, found 8-bit floats");
    if (!c->bytes || !teg_mil_bytes(c->type.dtype, n, &n_bytes) || n_bytes > c->n_bytes)
        return refuse(w, "expected a constant of known shape, found another");
    float *const out = take(w, n);
    if (out)
        fill(c, n, out);
    return out;
}

static float *values(struct work *w, teg_mil_var_id var, uint32_t depth, size_t *n)
{
    const struct teg_mil_var *const v = &w->d->program->vars[var];
    *n = 1;
    if (v->type.kind != TEG_MIL_TENSOR || v->type.rank < 0)
        return refuse(w, "expected a constant of known shape, found another");
    for (int32_t d = 0; d < v->type.rank; d++)
        if (v->type.dims[d] < 1 || !teg_mul(*n, (size_t)v->type.dims[d], n))
            return refuse(w, "expected a constant of known shape, found another");
    if (v->constant)
        return decode_const(w, v->constant, *n);
    const struct teg_mil_op *const op = depth < DEEPEST ? w->d->maker(w->d->ctx, var) : NULL;
    struct result r = {.op = op, .type = &v->type, .n = *n, .depth = depth};
    for (; op && r.output < op->n_outputs && op->outputs[r.output] != var; r.output++)
        ;
    for (size_t i = 0; op && i < sizeof decoders / sizeof *decoders; i++)
        if (strcmp(op->type, decoders[i].type) == 0)
            return decoders[i].decode(w, &r);
    return refuse(w, "expected weights in a known encoding, found another");
}

float *teg_dense_values(const struct teg_dense *d, teg_mil_var_id var, size_t *n, const char **why)
{
    struct work w = {.d = d};
    float *const x = values(&w, var, 0, n);
    *why = x ? *why : w.why;
    return x;
}
