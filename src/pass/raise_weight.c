/* pass/raise_weight.c: a package's weights as constants of the graph.
 *
 * What is dense in fp16 or fp32 stays where it is, in the mapped file. Everything else is decoded once, to what the
 * program says it is: mostly fp16. Where the caller wants blocks, integer weights whose scales fit those of Q8_0, Q4_0
 * or Q4_1 (32 values, an fp16 scale, for Q4_1 an fp16 minimum) become those instead: the same size as in the package.
 * A block keeps the product scale · q, which the program rounds to fp16; that is the only difference. */
#include "pass/raise_int.h"

enum { BLOCK = 32 };

/* An encoded matrix [N, K]; data NULL: not possible this way. */
struct encoded {
    enum teg_dtype dtype;
    const void *data;
    size_t n_bytes;
};

static void *take(struct raiser *r, size_t n_bytes)
{
    void *const p = teg_arena_alloc(r->arena, n_bytes);
    if (!p)
        teg_raise_keep(r, teg_base_fail_memory(r->err, "weights", n_bytes));
    return p;
}

/* ---- blocks ---- */

struct quantized {
    const struct teg_mil_const *data, *scale, *offset;
    size_t rows, columns;
    size_t row_blocks, column_blocks; /* of the scale */
};

static const struct teg_mil_const *part(const struct raiser *r, const struct teg_mil_op *op, const char *name)
{
    const struct teg_mil_var *const v = teg_mil_arg_var(r->program, op, name);
    return v && v->constant && v->type.kind == TEG_MIL_TENSOR ? v->constant : NULL;
}

/* Rows and columns of a tensor whose dimensions after the second are ones. */
static bool matrix_dims(const struct teg_mil_type *type, size_t *rows, size_t *columns)
{
    if (type->kind != TEG_MIL_TENSOR || type->rank < 2)
        return false;
    for (int32_t d = 2; d < type->rank; d++)
        if (type->dims[d] != 1)
            return false;
    *rows = (size_t)type->dims[0];
    *columns = (size_t)type->dims[1];
    return *rows && *columns;
}

static bool read_quantized(const struct raiser *r, teg_mil_var_id var, struct quantized *q)
{
    const struct teg_mil_var *const v = &r->program->vars[var];
    if (v->constant || v->op >= r->function->block.n_ops)
        return false;
    const struct teg_mil_op *const op = &r->function->block.ops[v->op];
    size_t offset_rows, offset_columns;
    if (strcmp(op->type, "constexpr_blockwise_shift_scale") != 0)
        return false;
    q->data = part(r, op, "data");
    q->scale = part(r, op, "scale");
    q->offset = part(r, op, "offset");
    if (!q->data || !q->scale || q->scale->type.dtype != TEG_MIL_FP16 || (teg_mil_find_arg(op, "offset") && !q->offset))
        return false;
    if (!matrix_dims(&q->data->type, &q->rows, &q->columns) ||
        !matrix_dims(&q->scale->type, &q->row_blocks, &q->column_blocks) || q->rows % q->row_blocks ||
        q->columns % q->column_blocks || q->columns % BLOCK || q->columns / q->column_blocks % BLOCK)
        return false;
    return !q->offset || (matrix_dims(&q->offset->type, &offset_rows, &offset_columns) &&
                          offset_rows == q->row_blocks && offset_columns == q->column_blocks);
}

static int integer(const struct teg_mil_const *c, size_t i)
{
    const uint32_t bits = teg_mil_dtype_info(c->type.dtype)->bits;
    const bool is_signed = teg_mil_dtype_info(c->type.dtype)->class_ == TEG_MIL_CLASS_INT;
    const size_t at = i * bits;
    const int raw = bits == 8 ? c->bytes[i] : c->bytes[at / 8] >> (at % 8) & ((1 << bits) - 1);
    return is_signed && raw >> (bits - 1) ? raw - (1 << bits) : raw;
}

static uint16_t half_at(const struct teg_mil_const *c, size_t i)
{
    uint16_t h;
    memcpy(&h, c->bytes + 2 * i, sizeof h);
    return h;
}

/* 32 values from `q - zero` at element i on; false: one does not fit. */
static bool put_q8(uint8_t *out, const struct quantized *q, size_t i, uint16_t scale, int zero)
{
    memcpy(out, &scale, 2);
    for (size_t k = 0; k < BLOCK; k++) {
        const int x = integer(q->data, i + k) - zero;
        if (x < -128 || x > 127)
            return false;
        out[2 + k] = (uint8_t)(int8_t)x;
    }
    return true;
}

/* Low nibbles hold the first 16 values. Q4_0: scale · (n - 8). */
static bool put_q4_0(uint8_t *out, const struct quantized *q, size_t i, uint16_t scale, int zero)
{
    memcpy(out, &scale, 2);
    for (size_t k = 0; k < BLOCK / 2; k++) {
        const int low = integer(q->data, i + k) - zero + 8, high = integer(q->data, i + k + BLOCK / 2) - zero + 8;
        if (low < 0 || low > 15 || high < 0 || high > 15)
            return false;
        out[2 + k] = (uint8_t)(low | high << 4);
    }
    return true;
}

/* Q4_1: scale · n + minimum, with minimum = -scale · zero, which must be an fp16 value. */
static bool put_q4_1(uint8_t *out, const struct quantized *q, size_t i, uint16_t scale, int zero)
{
    const float minimum = teg_f16_to_f32(scale) * (float)-zero;
    const uint16_t half = teg_f32_to_f16(minimum);
    if (teg_f16_to_f32(half) != minimum)
        return false;
    memcpy(out, &scale, 2);
    memcpy(out + 2, &half, 2);
    for (size_t k = 0; k < BLOCK / 2; k++) {
        const int low = integer(q->data, i + k), high = integer(q->data, i + k + BLOCK / 2);
        if (low < 0 || low > 15 || high < 0 || high > 15)
            return false;
        out[4 + k] = (uint8_t)(low | high << 4);
    }
    return true;
}

static const struct {
    enum teg_dtype dtype;
    uint32_t most_bits;
    bool (*put)(uint8_t *out, const struct quantized *q, size_t i, uint16_t scale, int zero);
} block_forms[] = {
    {TEG_DTYPE_Q4_0, 4, put_q4_0},
    {TEG_DTYPE_Q4_1, 4, put_q4_1},
    {TEG_DTYPE_Q8_0, 8, put_q8},
};

static bool fill_blocks(const struct quantized *q, size_t form, uint8_t *out)
{
    const size_t block_bytes = teg_dtype_info(block_forms[form].dtype)->block_bytes;
    const size_t rows_each = q->rows / q->row_blocks, columns_each = q->columns / q->column_blocks;
    for (size_t row = 0; row < q->rows; row++)
        for (size_t c = 0; c < q->columns; c += BLOCK) {
            const size_t s = row / rows_each * q->column_blocks + c / columns_each;
            const int zero = q->offset ? integer(q->offset, s) : 0;
            if (!block_forms[form].put(out, q, row * q->columns + c, half_at(q->scale, s), zero))
                return false;
            out += block_bytes;
        }
    return true;
}

static struct encoded as_blocks(struct raiser *r, teg_mil_var_id var)
{
    struct quantized q;
    struct encoded e = {0};
    if (!read_quantized(r, var, &q))
        return e;
    const uint32_t bits = teg_mil_dtype_info(q.data->type.dtype)->bits;
    const enum teg_mil_class class_ = teg_mil_dtype_info(q.data->type.dtype)->class_;
    if ((bits != 2 && bits != 4 && bits != 8) || (class_ != TEG_MIL_CLASS_INT && class_ != TEG_MIL_CLASS_UINT) ||
        (q.offset && teg_mil_dtype_info(q.offset->type.dtype)->class_ == TEG_MIL_CLASS_FLOAT))
        return e;
    for (size_t form = 0; form < sizeof block_forms / sizeof *block_forms; form++) {
        size_t row_bytes, n_bytes;
        if (bits > block_forms[form].most_bits ||
            !teg_dtype_row_bytes(block_forms[form].dtype, q.columns, &row_bytes) ||
            !teg_mul(row_bytes, q.rows, &n_bytes))
            continue;
        uint8_t *const out = take(r, n_bytes);
        if (!out)
            return e;
        if (fill_blocks(&q, form, out))
            return (struct encoded){block_forms[form].dtype, out, n_bytes};
    }
    return e;
}

/* ---- dense ---- */

static void decode_dense(struct raiser *r, teg_mil_var_id var, size_t rows, size_t columns, bool transposed,
                         struct encoded *e, const char **why)
{
    size_t n;
    const float *const x = teg_raise_floats(r, var, &n, why);
    const size_t item = e->dtype == TEG_DTYPE_F16 ? 2 : 4;
    uint8_t *const out = x && n == rows * columns ? take(r, n * item) : NULL;
    for (size_t i = 0; out && i < n; i++) {
        const float value = x[transposed ? i % columns * rows + i / columns : i];
        const uint16_t half = teg_f32_to_f16(value);
        memcpy(out + i * item, item == 2 ? (const void *)&half : &value, item);
    }
    e->data = out;
    e->n_bytes = out ? n * item : 0;
}

static struct encoded as_dense(struct raiser *r, teg_mil_var_id var, size_t rows, size_t columns, bool transposed,
                               const char **why)
{
    const struct teg_mil_const *const c = r->program->vars[var].constant;
    const enum teg_mil_dtype dtype = r->program->vars[var].type.dtype;
    struct encoded e = {dtype == TEG_MIL_FP16 ? TEG_DTYPE_F16 : TEG_DTYPE_F32, NULL, 0};
    if (c && !transposed && (dtype == TEG_MIL_FP16 || dtype == TEG_MIL_FP32)) {
        e.data = c->bytes;
        e.n_bytes = c->n_bytes;
        return e;
    }
    /* The floats live only as long as this: all weights as floats at once would be twice the model. */
    const struct teg_arena saved = r->scratch;
    teg_arena_init(&r->scratch, saved.allocator);
    decode_dense(r, var, rows, columns, transposed, &e, why);
    teg_arena_free(&r->scratch);
    r->scratch = saved;
    return e;
}

static struct encoded encode(struct raiser *r, teg_mil_var_id var, bool transposed, uint64_t dims[2], const char **why)
{
    uint32_t rank;
    struct encoded e = {0};
    if (!teg_raise_dims(r, var, dims, &rank) || rank != 2) {
        *why = "expected a constant weight [N, K], found another shape";
        return e;
    }
    if (transposed) {
        const uint64_t n = dims[1];
        dims[1] = dims[0];
        dims[0] = n;
    } else if (r->blocks) {
        e = as_blocks(r, var);
    }
    if (!e.data && r->status == TEG_OK)
        e = as_dense(r, var, (size_t)dims[0], (size_t)dims[1], transposed, why);
    return e;
}

/* ---- into the graph ---- */

static teg_value_id find(const struct raiser *r, teg_mil_var_id var, uint32_t form)
{
    for (uint32_t i = 0; i < r->n_decoded; i++)
        if (r->decoded[i].var == var && r->decoded[i].form == form)
            return r->decoded[i].value;
    return TEG_NO_VALUE;
}

static teg_value_id add(struct raiser *r, teg_mil_var_id var, uint32_t form, const struct encoded *e, uint32_t rank,
                        const uint64_t *dims)
{
    teg_value_id v = TEG_NO_VALUE;
    if (r->status != TEG_OK || !teg_raise_grow(r, &r->decoded, r->n_decoded, &r->decoded_capacity, sizeof *r->decoded))
        return v;
    teg_raise_keep(r, teg_graph_const(r->graph, r->program->vars[var].name, e->dtype, rank, dims, e->data, e->n_bytes,
                                      &v, r->err));
    if (r->status != TEG_OK)
        return TEG_NO_VALUE;
    r->decoded[r->n_decoded++] = (struct decoded){var, form, v};
    r->n_parameters += dims[0] * (rank == 2 ? dims[1] : 1);
    r->weights_bytes += e->n_bytes;
    if (rank == 2)
        *(teg_dtype_info(e->dtype)->block_elements > 1 ? &r->n_block : &r->n_f16) += 1;
    return v;
}

teg_value_id teg_raise_matrix(struct raiser *r, teg_mil_var_id var, bool transposed, const char **why)
{
    uint64_t dims[2];
    const teg_value_id known = find(r, var, transposed);
    if (known != TEG_NO_VALUE)
        return known;
    const struct encoded e = encode(r, var, transposed, dims, why);
    return e.data ? add(r, var, transposed, &e, 2, dims) : TEG_NO_VALUE;
}

teg_value_id teg_raise_vector(struct raiser *r, teg_mil_var_id var, const char **why)
{
    enum { VECTOR = 2 };
    size_t n;
    const teg_value_id known = find(r, var, VECTOR);
    if (known != TEG_NO_VALUE)
        return known;
    const float *const x = teg_raise_floats(r, var, &n, why);
    if (!x)
        return TEG_NO_VALUE;
    void *const copy = take(r, n * sizeof *x);
    if (!copy)
        return TEG_NO_VALUE;
    memcpy(copy, x, n * sizeof *x);
    const uint64_t dims[1] = {n};
    return add(r, var, VECTOR, &(struct encoded){TEG_DTYPE_F32, copy, n * sizeof *x}, 1, dims);
}

teg_value_id teg_raise_stack(struct raiser *r, const teg_mil_var_id *vars, uint32_t n, bool transposed,
                             const char **why)
{
    struct encoded *const parts = teg_raise_alloc(r, n, sizeof *parts);
    uint64_t dims[2], all[2] = {0, 0};
    size_t n_bytes = 0;
    for (uint32_t i = 0; parts && i < n; i++) {
        parts[i] = encode(r, vars[i], transposed, dims, why);
        if (!parts[i].data)
            return TEG_NO_VALUE;
        if (i && (parts[i].dtype != parts[0].dtype || dims[1] != all[1])) {
            *why = "expected the head's parts in one encoding and width, found several";
            return TEG_NO_VALUE;
        }
        all[0] += dims[0];
        all[1] = dims[1];
        n_bytes += parts[i].n_bytes;
    }
    uint8_t *const out = parts ? take(r, n_bytes) : NULL;
    if (!out)
        return TEG_NO_VALUE;
    uint8_t *at = out;
    for (uint32_t i = 0; i < n; i++) {
        memcpy(at, parts[i].data, parts[i].n_bytes);
        at += parts[i].n_bytes;
    }
    return add(r, vars[0], 3, &(struct encoded){parts[0].dtype, out, n_bytes}, 2, all);
}
