/* pass/raise_const.c: reading constants: scalars, small integer vectors, and weights in any constexpr encoding.
 *
 * Decoding follows coremltools: scale · (data - offset) is computed in the type of the result, so a half-precision
 * weight is rounded once. An encoding that is not known here gives a reason, never a guess. */
#include "pass/raise_int.h"

static float element(enum teg_mil_dtype dtype, const uint8_t *bytes, size_t i)
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

static size_t elements(const struct teg_mil_type *type)
{
    size_t n = 1;
    for (int32_t d = 0; d < type->rank; d++)
        n *= (size_t)type->dims[d]; /* a constant's size was checked when it was read */
    return n;
}

static bool is_float8(enum teg_mil_dtype dtype)
{
    return dtype == TEG_MIL_FP8E4M3FN || dtype == TEG_MIL_FP8E5M2;
}

/* ---- small ones ---- */

bool teg_raise_scalar(struct raiser *r, const struct meaning *m, float *value)
{
    if (m && m->kind == INTEGERS && m->n_ints == 1 && teg_amount_fixed(m->ints[0])) {
        *value = (float)m->ints[0].n;
        return true;
    }
    const struct teg_mil_const *const c = m && m->kind == CONSTANT ? r->program->vars[m->var].constant : NULL;
    if (!c || c->type.kind != TEG_MIL_TENSOR || c->type.dtype == TEG_MIL_STRING || is_float8(c->type.dtype) ||
        elements(&c->type) != 1)
        return false;
    *value = element(c->type.dtype, c->bytes, 0);
    return true;
}

bool teg_raise_bool(struct raiser *r, const char *arg, bool otherwise)
{
    float x;
    return teg_raise_scalar(r, teg_raise_arg(r, arg), &x) ? x != 0 : otherwise;
}

bool teg_raise_string_is(struct raiser *r, const char *arg, const char *text)
{
    const struct teg_mil_var *const v = teg_mil_arg_var(r->program, r->op, arg);
    const struct teg_mil_const *const c = v ? v->constant : NULL;
    return c && c->type.kind == TEG_MIL_TENSOR && c->type.dtype == TEG_MIL_STRING && elements(&c->type) == 1 &&
           c->strings[0].n_bytes == strlen(text) && memcmp(c->strings[0].bytes, text, strlen(text)) == 0;
}

bool teg_raise_ints(struct raiser *r, const struct meaning *m, const struct amount **ints, uint32_t *n)
{
    enum { MOST = 64 };
    if (m && m->kind == INTEGERS) {
        *ints = m->ints;
        *n = m->n_ints;
        return true;
    }
    if (m && m->kind == POSITIONS && !teg_view_has(&m->view, AXIS_TOKENS)) {
        struct amount *const one = teg_raise_alloc(r, 1, sizeof *one);
        if (!one)
            return false;
        *one = (struct amount){m->add, 0, 1};
        *ints = one;
        *n = 1;
        return true;
    }
    const struct teg_mil_const *const c = m && m->kind == CONSTANT ? r->program->vars[m->var].constant : NULL;
    if (!c || c->type.kind != TEG_MIL_TENSOR || elements(&c->type) > MOST || elements(&c->type) == 0)
        return false;
    const enum teg_mil_class class_ = teg_mil_dtype_info(c->type.dtype)->class_;
    if (class_ == TEG_MIL_CLASS_STRING || class_ == TEG_MIL_CLASS_FLOAT)
        return false;
    const size_t count = elements(&c->type);
    struct amount *const made = teg_raise_alloc(r, count, sizeof *made);
    if (!made)
        return false;
    for (size_t i = 0; i < count; i++)
        made[i] = teg_amount((int64_t)element(c->type.dtype, c->bytes, i));
    *ints = made;
    *n = (uint32_t)count;
    return true;
}

bool teg_raise_numbers(struct raiser *r, const char *arg, int64_t *out, uint32_t capacity, uint32_t *n)
{
    const struct amount *ints;
    if (!teg_raise_ints(r, teg_raise_arg(r, arg), &ints, n) || *n > capacity)
        return false;
    for (uint32_t i = 0; i < *n; i++) {
        if (!teg_amount_fixed(ints[i]))
            return false;
        out[i] = ints[i].n;
    }
    return true;
}

bool teg_raise_dims(struct raiser *r, teg_mil_var_id var, uint64_t dims[2], uint32_t *rank)
{
    const struct teg_mil_type *const type = &r->program->vars[var].type;
    *rank = 0;
    if (type->kind != TEG_MIL_TENSOR || type->rank < 0)
        return false;
    for (int32_t d = 0; d < type->rank; d++) {
        if (type->dims[d] == 1 && type->rank > 2)
            continue;
        if (type->dims[d] < 1 || *rank == 2)
            return false;
        dims[(*rank)++] = (uint64_t)type->dims[d];
    }
    return true;
}

/* ---- whole weights ---- */

/* Index into a smaller tensor whose dimensions divide those of the large one: blocks. */
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
    if (large->rank != small->rank)
        return false;
    for (int32_t d = 0; d < large->rank; d++)
        if (small->dims[d] < 1 || large->dims[d] % small->dims[d])
            return false;
    return true;
}

static float rounded(enum teg_mil_dtype dtype, float x)
{
    return dtype == TEG_MIL_FP16 ? teg_f16_to_f32(teg_f32_to_f16(x)) : x;
}

static const struct teg_mil_const *part(struct raiser *r, const struct teg_mil_op *op, const char *name)
{
    const struct teg_mil_var *const v = teg_mil_arg_var(r->program, op, name);
    const struct teg_mil_const *const c = v ? v->constant : NULL;
    return c && c->type.kind == TEG_MIL_TENSOR && c->type.dtype != TEG_MIL_STRING && !is_float8(c->type.dtype) ? c
                                                                                                               : NULL;
}

static const char *decode_lut(struct raiser *r, const struct teg_mil_op *op, enum teg_mil_dtype dtype, float *out,
                              size_t n);

/* Data that are indices into a table of whole numbers: those numbers. NULL: another form. */
static const float *codes_by_table(struct raiser *r, const struct teg_mil_op *op, size_t n)
{
    const struct teg_mil_arg *const arg = teg_mil_find_arg(op, "data");
    const struct teg_mil_op *const maker = arg && arg->n_vars == 1 ? teg_raise_maker(r, arg->vars[0]) : NULL;
    if (!maker || strcmp(maker->type, "constexpr_lut_to_dense") != 0)
        return NULL;
    float *const codes = teg_raise_alloc(r, n, sizeof *codes);
    return codes && !decode_lut(r, maker, TEG_MIL_INT8, codes, n) ? codes : NULL;
}

static const char *decode_shift_scale(struct raiser *r, const struct teg_mil_op *op, enum teg_mil_dtype dtype,
                                      float *out, size_t n)
{
    const struct teg_mil_const *const data = part(r, op, "data"), *const scale = part(r, op, "scale"),
                                      *const offset = part(r, op, "offset");
    const struct teg_mil_var *const v = teg_mil_arg_var(r->program, op, "data");
    const float *const codes = data ? NULL : codes_by_table(r, op, n);
    if ((!data && !codes) || !scale || elements(&v->type) != n || !divides(&v->type, &scale->type) ||
        (teg_mil_find_arg(op, "offset") && (!offset || !divides(&v->type, &offset->type))))
        return "expected constant data with scales and offsets by blocks, found another form";
    const struct teg_mil_type *const type = &v->type;
    const size_t run = block_run(type, &scale->type);
    const size_t zero_run = offset ? block_run(type, &offset->type) : n;
    float s = 0, z = 0;
    for (size_t i = 0; i < n; i++) {
        if (i % run == 0)
            s = element(scale->type.dtype, scale->bytes, block_index(type, &scale->type, i));
        if (offset && i % zero_run == 0)
            z = element(offset->type.dtype, offset->bytes, block_index(type, &offset->type, i));
        out[i] = rounded(dtype, s * ((codes ? codes[i] : element(data->type.dtype, data->bytes, i)) - z));
    }
    return NULL;
}

/* iOS16: one scale for the tensor or for each index of an axis. */
static const char *decode_affine(struct raiser *r, const struct teg_mil_op *op, enum teg_mil_dtype dtype, float *out,
                                 size_t n)
{
    const struct teg_mil_const *const data = part(r, op, "quantized_data"), *const scale = part(r, op, "scale"),
                                      *const zero = part(r, op, "zero_point"), *const axis = part(r, op, "axis");
    if (!data || !scale || !zero || !axis || elements(&data->type) != n || elements(&axis->type) != 1)
        return "expected constant data, scale, zero point and axis, found another form";
    int64_t a = (int64_t)element(axis->type.dtype, axis->bytes, 0);
    a = a < 0 ? a + data->type.rank : a;
    if (a < 0 || a >= data->type.rank)
        return "expected an axis of the data, found another number";
    size_t inner = 1;
    for (int32_t d = (int32_t)a + 1; d < data->type.rank; d++)
        inner *= (size_t)data->type.dims[d];
    const size_t rows = (size_t)data->type.dims[a], n_scales = elements(&scale->type), n_zeros = elements(&zero->type);
    if ((n_scales != 1 && n_scales != rows) || (n_zeros != 1 && n_zeros != rows))
        return "expected one scale, or one for each index of the axis, found another number";
    for (size_t i = 0; i < n; i++) {
        const size_t row = i / inner % rows;
        const float q = element(data->type.dtype, data->bytes, i);
        out[i] = rounded(dtype, element(scale->type.dtype, scale->bytes, n_scales == 1 ? 0 : row) *
                                    (q - element(zero->type.dtype, zero->bytes, n_zeros == 1 ? 0 : row)));
    }
    return NULL;
}

/* lut [blocks…, entries, vector width 1]: the index's block chooses the table. */
static const char *decode_lut(struct raiser *r, const struct teg_mil_op *op, enum teg_mil_dtype dtype, float *out,
                              size_t n)
{
    const struct teg_mil_const *const indices = part(r, op, "indices"), *const lut = part(r, op, "lut");
    (void)dtype;
    if (!indices || !lut)
        return "expected constant indices and tables, found another form";
    if (lut->type.rank == 1) { /* iOS16: one table; indices packed in bytes, the shape apart */
        const size_t entries = (size_t)lut->type.dims[0];
        uint32_t bits = 0;
        while (bits < 8 && (size_t)1 << bits < entries)
            bits++;
        if ((size_t)1 << bits != entries || bits == 0 || indices->n_bytes < (n * bits + 7) / 8)
            return "expected a table of 2, 4, 16, 64 or 256 entries and as many indices, found another";
        for (size_t i = 0; i < n; i++) {
            size_t q = 0;
            for (uint32_t b = 0; b < bits; b++)
                q |= (size_t)(indices->bytes[(i * bits + b) / 8] >> ((i * bits + b) % 8) & 1) << b;
            out[i] = element(lut->type.dtype, lut->bytes, q);
        }
        return NULL;
    }
    struct teg_mil_type blocks = lut->type;
    blocks.rank -= 2;
    if (blocks.rank < 0 || elements(&indices->type) != n || !divides(&indices->type, &blocks) ||
        lut->type.dims[blocks.rank + 1] != 1)
        return "expected tables by blocks, of one value an entry, found another form";
    const size_t entries = (size_t)lut->type.dims[blocks.rank], run = block_run(&indices->type, &blocks);
    size_t table = 0;
    for (size_t i = 0; i < n; i++) {
        if (i % run == 0)
            table = block_index(&indices->type, &blocks, i) * entries;
        const float q = element(indices->type.dtype, indices->bytes, i);
        if ((size_t)q >= entries)
            return "expected indices into the table, found a larger one";
        out[i] = element(lut->type.dtype, lut->bytes, table + (size_t)q);
    }
    return NULL;
}

static const char *decode_cast(struct raiser *r, const struct teg_mil_op *op, enum teg_mil_dtype dtype, float *out,
                               size_t n)
{
    const struct teg_mil_const *const source = part(r, op, "source_val");
    if (!source || elements(&source->type) != n)
        return "expected a constant, found another form";
    for (size_t i = 0; i < n; i++)
        out[i] = rounded(dtype, element(source->type.dtype, source->bytes, i));
    return NULL;
}

static const struct {
    const char *type;
    const char *(*decode)(struct raiser *r, const struct teg_mil_op *op, enum teg_mil_dtype dtype, float *out,
                          size_t n);
} decoders[] = {
    {"constexpr_blockwise_shift_scale", decode_shift_scale},
    {"constexpr_affine_dequantize", decode_affine},
    {"constexpr_lut_to_dense", decode_lut},
    {"constexpr_cast", decode_cast},
};

float *teg_raise_floats(struct raiser *r, teg_mil_var_id var, size_t *n, const char **why)
{
    const struct teg_mil_var *const v = &r->program->vars[var];
    *n = 1;
    for (int32_t d = 0; d < v->type.rank; d++)
        if (v->type.dims[d] < 1 || !teg_mul(*n, (size_t)v->type.dims[d], n)) {
            *why = "expected a constant of known shape, found another";
            return NULL;
        }
    float *const out = teg_raise_alloc(r, *n, sizeof *out);
    if (!out)
        return NULL;
    if (v->constant) {
        if (is_float8(v->type.dtype)) {
            *why = "expected weights in fp16, fp32 or integers, found 8-bit floats";
            return NULL;
        }
        for (size_t i = 0; i < *n; i++)
            out[i] = element(v->type.dtype, v->constant->bytes, i);
        return out;
    }
    const struct teg_mil_op *const op = teg_raise_maker(r, var);
    *why = "expected weights in a known encoding, found another";
    for (size_t i = 0; op && i < sizeof decoders / sizeof *decoders; i++)
        if (strcmp(op->type, decoders[i].type) == 0)
            *why = decoders[i].decode(r, op, v->type.dtype, out, *n);
    return *why ? NULL : out;
}
