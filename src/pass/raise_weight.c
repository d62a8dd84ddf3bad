/* pass/raise_weight.c: a package's weights as constants of the graph.
 *
 * A weight stays where it is, in the mapped file, and as it is: dense fp16 and fp32, and every matrix that
 * dtype/encoding.h can describe (scales and offsets by row and block of columns, palettes by groups of rows). The few
 * others (transposed, sparse, scaled palettes, palettes of vectors) are decoded once, to what the program says they
 * are: mostly fp16. What is described is not trusted: every count is checked against the bytes that are there. */
#include "mil/type.h"
#include "pass/raise_int.h"

/* A matrix [N, K]: rows of dtype at data, or an encoding; both NULL: not possible this way. */
struct encoded {
    enum teg_dtype dtype;
    const void *data;
    size_t n_bytes;
    const struct teg_encoding *encoding;
};

static void *take(struct raiser *r, size_t n_bytes)
{
    void *const p = teg_arena_alloc(r->arena, n_bytes);
    if (!p)
        teg_raise_keep(r, teg_base_fail_memory(r->err, "weights", n_bytes));
    return p;
}

/* ---- encodings ---- */

static const struct teg_mil_const *part(const struct raiser *r, const struct teg_mil_op *op, const char *name)
{
    const struct teg_mil_var *const v = teg_mil_arg_var(r->program, op, name);
    return v && v->constant && v->type.kind == TEG_MIL_TENSOR && v->constant->bytes ? v->constant : NULL;
}

/* Sizes of a tensor's two dimensions that are not ones, and of a smaller tensor's along them. */
static bool two_dims(const struct teg_mil_type *large, const struct teg_mil_type *small, size_t dims[2],
                     size_t small_dims[2])
{
    uint32_t n = 0;
    if (large->kind != TEG_MIL_TENSOR || large->rank < 2 || small->rank < large->rank)
        return false;
    for (int32_t d = 0; d < large->rank; d++) {
        if (small->dims[d] < 1 || large->dims[d] < 1 || large->dims[d] % small->dims[d])
            return false;
        if (large->rank > 2 && large->dims[d] == 1)
            continue;
        if (n == 2)
            return false;
        dims[n] = (size_t)large->dims[d];
        small_dims[n++] = (size_t)small->dims[d];
    }
    return n == 2;
}

/* n elements are there. */
static bool holds(const struct teg_mil_const *c, size_t n)
{
    const uint32_t bits = teg_mil_dtype_info(c->type.dtype)->bits;
    return n / 8 < c->n_bytes && n / 8 * bits + (n % 8 * bits + 7) / 8 <= c->n_bytes;
}

static bool as_ints(const struct teg_mil_const *c, size_t n, struct teg_packed_ints *ints)
{
    const struct teg_mil_dtype_info *const info = teg_mil_dtype_info(c->type.dtype);
    *ints = (struct teg_packed_ints){c->bytes, info->bits, info->class_ == TEG_MIL_CLASS_INT};
    return (info->class_ == TEG_MIL_CLASS_INT || info->class_ == TEG_MIL_CLASS_UINT) && info->bits <= 8 && holds(c, n);
}

static bool as_floats(const struct teg_mil_const *c, size_t n, const uint8_t **bytes, enum teg_dtype *dtype)
{
    *bytes = c->bytes;
    *dtype = c->type.dtype == TEG_MIL_FP16 ? TEG_DTYPE_F16 : TEG_DTYPE_F32;
    return (c->type.dtype == TEG_MIL_FP16 || c->type.dtype == TEG_MIL_FP32) && holds(c, n);
}

static bool set_offsets(const struct teg_mil_const *c, size_t n, struct teg_encoding_part *e)
{
    return as_ints(c, n, &e->offsets) ||
           (e->offsets.bytes = NULL, as_floats(c, n, &e->float_offsets, &e->float_offset_dtype));
}

/* Codes that are indices into one table of 8-bit numbers, as blocks of 5 and 6 bits are written: they become a byte
 * each. NULL: another form. */
static const struct teg_mil_const *spread_codes(struct raiser *r, const struct teg_mil_op *op,
                                                struct teg_mil_const *codes)
{
    const struct teg_mil_arg *const arg = teg_mil_find_arg(op, "data");
    const struct teg_mil_op *const maker = arg && arg->n_vars == 1 ? teg_raise_maker(r, arg->vars[0]) : NULL;
    if (!maker || strcmp(maker->type, "constexpr_lut_to_dense") != 0)
        return NULL;
    const struct teg_mil_const *const indices = part(r, maker, "indices"), *const lut = part(r, maker, "lut");
    struct teg_packed_ints packed, table;
    size_t n, n_entries;
    if (!indices || !lut || !teg_mil_count(&indices->type, &n) || !teg_mil_count(&lut->type, &n_entries) ||
        !as_ints(indices, n, &packed) || packed.is_signed || n_entries != (size_t)1 << packed.bits ||
        !as_ints(lut, n_entries, &table) || table.bits != 8)
        return NULL;
    uint8_t *const bytes = take(r, n);
    if (!bytes)
        return NULL;
    teg_encoding_codes(&packed, 0, n, bytes);
    for (size_t i = 0; i < n; i++)
        bytes[i] = lut->bytes[bytes[i]];
    *codes = (struct teg_mil_const){.type = indices->type, .bytes = bytes, .n_bytes = n};
    codes->type.dtype = lut->type.dtype;
    return codes;
}

static bool read_shift_scale(struct raiser *r, const struct teg_mil_op *op, struct teg_encoding_part *e,
                             size_t *columns)
{
    struct teg_mil_const codes;
    const struct teg_mil_const *const own = part(r, op, "data"), *const data = own ? own : spread_codes(r, op, &codes),
                                      *const scale = part(r, op, "scale"), *const offset = part(r, op, "offset");
    size_t dims[2], groups[2], offsets[2], n_groups;
    if (!data || !scale || (teg_mil_find_arg(op, "offset") && !offset) || data->type.rank != scale->type.rank ||
        !two_dims(&data->type, &scale->type, dims, groups) || !teg_mul(groups[0], groups[1], &n_groups))
        return false;
    if (offset && (offset->type.rank != data->type.rank || !two_dims(&data->type, &offset->type, dims, offsets) ||
                   offsets[0] != groups[0] || offsets[1] != groups[1] || !set_offsets(offset, n_groups, e)))
        return false;
    e->n_rows = dims[0];
    e->rows_each = dims[0] / groups[0];
    e->columns_each = dims[1] / groups[1];
    e->is_mapped = data->file != NULL;
    *columns = dims[1];
    return as_floats(scale, n_groups, &e->scales, &e->scale_dtype) && as_ints(data, dims[0] * dims[1], &e->codes);
}

/* iOS16: a scale and a zero point for the tensor, or for each row. Where one is for all and the other is not, it is
 * written out. */
static const uint8_t *spread(struct raiser *r, const struct teg_mil_const *c, size_t n)
{
    const size_t item = teg_mil_dtype_info(c->type.dtype)->bits / 8;
    uint8_t *const out = item && holds(c, 1) ? take(r, n * item) : NULL;
    for (size_t i = 0; out && i < n; i++)
        memcpy(out + i * item, c->bytes, item);
    return out;
}

static size_t count(const struct teg_mil_type *type)
{
    size_t n = 1;
    for (int32_t d = 0; d < type->rank; d++)
        n *= (size_t)type->dims[d]; /* a constant's size was checked when it was read */
    return n;
}

static bool read_affine(struct raiser *r, const struct teg_mil_op *op, struct teg_encoding_part *e, size_t *columns)
{
    const struct teg_mil_const *const data = part(r, op, "quantized_data"), *const scale = part(r, op, "scale"),
                                      *const zero = part(r, op, "zero_point"), *const axis = part(r, op, "axis");
    size_t dims[2], same[2];
    if (!data || !scale || !zero || !axis || axis->type.dtype != TEG_MIL_INT32 || !holds(axis, 1) ||
        !two_dims(&data->type, &data->type, dims, same))
        return false;
    int32_t a, first = 0;
    memcpy(&a, axis->bytes, sizeof a);
    while (data->type.rank > 2 && data->type.dims[first] == 1)
        first++;
    const size_t n_scales = count(&scale->type), n_zeros = count(&zero->type);
    const size_t n = n_scales > n_zeros ? n_scales : n_zeros;
    if ((n != 1 && (n != dims[0] || (a < 0 ? a + data->type.rank : a) != first)) || (n_scales != n && n_scales != 1) ||
        (n_zeros != n && n_zeros != 1) || !as_floats(scale, n_scales, &e->scales, &e->scale_dtype) ||
        !set_offsets(zero, n_zeros, e))
        return false;
    if (n_scales != n)
        e->scales = spread(r, scale, n);
    if (n_zeros != n && e->float_offsets)
        e->float_offsets = spread(r, zero, n);
    else if (n_zeros != n)
        e->offsets.bytes = spread(r, zero, n);
    e->n_rows = dims[0];
    e->rows_each = dims[0] / n;
    e->columns_each = *columns = dims[1];
    e->is_mapped = data->file != NULL;
    return e->scales && (e->offsets.bytes || e->float_offsets) && as_ints(data, dims[0] * dims[1], &e->codes);
}

/* The tables as floats; small beside their codes, or there is no encoding. */
static const float *read_tables(struct raiser *r, teg_mil_var_id var, size_t n, size_t n_code_bytes)
{
    size_t n_read;
    const char *why;
    const struct teg_mil_dtype_info *const info = teg_mil_dtype_info(r->program->vars[var].type.dtype);
    if (info->class_ != TEG_MIL_CLASS_FLOAT || n / 2 > n_code_bytes / sizeof(float) + 64 ||
        (!r->program->vars[var].constant && r->program->vars[var].op >= r->function->block.n_ops))
        return NULL;
    const struct teg_arena saved = r->scratch;
    teg_arena_init(&r->scratch, saved.allocator);
    const float *const floats = teg_raise_floats(r, var, &n_read, &why);
    float *const out = floats && n_read == n ? take(r, n * sizeof *out) : NULL;
    if (out)
        memcpy(out, floats, n * sizeof *out);
    teg_arena_free(&r->scratch);
    r->scratch = saved;
    return out;
}

static bool read_palette(struct raiser *r, const struct teg_mil_op *op, struct teg_encoding_part *e, size_t *columns)
{
    const struct teg_mil_const *const indices = part(r, op, "indices");
    const struct teg_mil_arg *const lut = teg_mil_find_arg(op, "lut");
    if (!indices || !lut || lut->n_vars != 1 || op->n_outputs != 1)
        return false;
    const struct teg_mil_type *const type = &r->program->vars[lut->vars[0]].type;
    const struct teg_mil_type *const out = &r->program->vars[op->outputs[0]].type;
    const bool streamed = type->kind == TEG_MIL_TENSOR && type->rank == 1; /* iOS16: indices packed in bytes */
    size_t dims[2], groups[2] = {1, 1}, n_entries = 0, n_indices;
    if (type->kind != TEG_MIL_TENSOR || type->rank < 1 || teg_mil_dtype_info(indices->type.dtype)->bits > 8)
        return false;
    if (streamed ? !two_dims(out, out, dims, groups)
                 : type->rank != indices->type.rank + 2 || type->dims[type->rank - 1] != 1 ||
                       !two_dims(&indices->type, type, dims, groups))
        return false;
    if (streamed)
        groups[0] = groups[1] = 1;
    n_entries = (size_t)type->dims[streamed ? 0 : type->rank - 2];
    e->codes = (struct teg_packed_ints){.bytes = indices->bytes, .bits = 1};
    while (e->codes.bits < 8 && (size_t)1 << e->codes.bits < n_entries)
        e->codes.bits++;
    if ((size_t)1 << e->codes.bits != n_entries || groups[1] != 1 || e->codes.bits == 5 || e->codes.bits == 7 ||
        (!streamed && teg_mil_dtype_info(indices->type.dtype)->bits != e->codes.bits) ||
        !teg_mul(dims[0], dims[1], &n_indices) ||
        indices->n_bytes < n_indices / 8 * e->codes.bits + (n_indices % 8 * e->codes.bits + 7) / 8)
        return false;
    e->n_rows = dims[0];
    e->rows_each = dims[0] / groups[0];
    e->is_mapped = indices->file != NULL;
    *columns = dims[1];
    e->tables = read_tables(r, lut->vars[0], groups[0] << e->codes.bits, indices->n_bytes);
    return e->tables != NULL;
}

static const struct {
    const char *type;
    bool (*read)(struct raiser *r, const struct teg_mil_op *op, struct teg_encoding_part *e, size_t *columns);
} encodings[] = {
    {"constexpr_blockwise_shift_scale", read_shift_scale},
    {"constexpr_affine_dequantize", read_affine},
    {"constexpr_lut_to_dense", read_palette},
};

/* One weight as rows of an encoding; false: it is none. */
static bool read_encoding(struct raiser *r, teg_mil_var_id var, struct teg_encoding_part *e, size_t *columns)
{
    const struct teg_mil_var *const v = &r->program->vars[var];
    *e = (struct teg_encoding_part){0};
    const struct teg_mil_op *const op = v->constant ? NULL : teg_raise_maker(r, var);
    if (!op)
        return false;
    for (size_t i = 0; i < sizeof encodings / sizeof *encodings; i++)
        if (strcmp(op->type, encodings[i].type) == 0)
            return encodings[i].read(r, op, e, columns);
    return false;
}

/* Several weights on top of each other. */
static struct encoded as_encoding(struct raiser *r, const teg_mil_var_id *vars, uint32_t n)
{
    struct encoded e = {0};
    struct teg_encoding *const encoding = take(r, sizeof *encoding);
    struct teg_encoding_part *const parts = take(r, n * sizeof *parts);
    if (!encoding || !parts)
        return e;
    *encoding = (struct teg_encoding){.parts = parts, .n_parts = n};
    for (uint32_t i = 0; i < n; i++) {
        size_t columns;
        if (!read_encoding(r, vars[i], &parts[i], &columns) || (i && columns != encoding->columns))
            return e;
        encoding->columns = columns;
        if (!teg_add(encoding->n_rows, parts[i].n_rows, &encoding->n_rows))
            return e;
    }
    teg_encoding_seal(encoding);
    e.dtype = r->program->vars[vars[0]].type.dtype == TEG_MIL_FP16 ? TEG_DTYPE_F16 : TEG_DTYPE_F32;
    e.data = parts[0].codes.bytes;
    e.n_bytes = encoding->n_bytes;
    e.encoding = encoding;
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
    struct encoded e = {dtype == TEG_MIL_FP16 ? TEG_DTYPE_F16 : TEG_DTYPE_F32, NULL, 0, NULL};
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

static struct encoded encode(struct raiser *r, teg_mil_var_id var, bool transposed, bool may_stay, uint64_t dims[2],
                             const char **why)
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
    } else if (may_stay) {
        e = as_encoding(r, &var, 1);
        if (e.encoding && (e.encoding->n_rows != dims[0] || e.encoding->columns != dims[1]))
            e = (struct encoded){0}; /* the op's declared type is another: refused below */
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
    const char *const name = r->program->vars[var].name;
    if (e->encoding)
        teg_raise_keep(r, teg_graph_encoded(r->graph, name, e->dtype, e->encoding, &v, r->err));
    else
        teg_raise_keep(r, teg_graph_const(r->graph, name, e->dtype, rank, dims, e->data, e->n_bytes, &v, r->err));
    if (r->status != TEG_OK)
        return TEG_NO_VALUE;
    r->decoded[r->n_decoded++] = (struct decoded){var, form, v};
    r->n_parameters += dims[0] * (rank == 2 ? dims[1] : 1);
    r->weights_bytes += e->n_bytes;
    if (rank == 2)
        *(e->encoding ? &r->n_encoded : &r->n_dense) += 1;
    return v;
}

teg_value_id teg_raise_matrix(struct raiser *r, teg_mil_var_id var, bool transposed, const char **why)
{
    uint64_t dims[2];
    const teg_value_id known = find(r, var, transposed);
    if (known != TEG_NO_VALUE)
        return known;
    const struct encoded e = encode(r, var, transposed, true, dims, why);
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
    return add(r, var, VECTOR, &(struct encoded){TEG_DTYPE_F32, copy, n * sizeof *x, NULL}, 1, dims);
}

teg_value_id teg_raise_stack(struct raiser *r, const teg_mil_var_id *vars, uint32_t n, bool transposed,
                             const char **why)
{
    enum { STACK = 3 };
    uint64_t dims[2], all[2] = {0, 0};
    const struct encoded whole = transposed ? (struct encoded){0} : as_encoding(r, vars, n);
    if (whole.encoding) {
        all[0] = whole.encoding->n_rows;
        all[1] = whole.encoding->columns;
        return add(r, vars[0], STACK, &whole, 2, all);
    }
    struct encoded *const parts = teg_raise_alloc(r, n, sizeof *parts);
    size_t n_bytes = 0;
    for (uint32_t i = 0; parts && i < n; i++) {
        parts[i] = encode(r, vars[i], transposed, false, dims, why);
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
    return add(r, vars[0], STACK, &(struct encoded){parts[0].dtype, out, n_bytes, NULL}, 2, all);
}

/* ---- some of the rows ---- */

/* Rows row … row + n - 1 of a part, where its groups and bytes can be cut there. */
static bool cut_part(const struct teg_encoding_part *from, size_t columns, size_t row, size_t n,
                     struct teg_encoding_part *out)
{
    const size_t each = from->rows_each, group = row / each;
    const size_t per_row = from->tables ? 0 : columns / from->columns_each, first = group * per_row;
    const bool inside = group == (row + n - 1) / each;
    if ((!inside && (row % each || n % each)) || row * columns % 8 || first * from->offsets.bits % 8)
        return false;
    *out = *from;
    out->n_rows = n;
    out->rows_each = inside ? n : each;
    out->codes.bytes += row * columns / 8 * from->codes.bits;
    if (from->tables)
        out->tables += group << from->codes.bits;
    if (from->scales)
        out->scales += first * (from->scale_dtype == TEG_DTYPE_F16 ? 2 : 4);
    if (from->offsets.bytes)
        out->offsets.bytes += first * from->offsets.bits / 8;
    if (from->float_offsets)
        out->float_offsets += first * (from->float_offset_dtype == TEG_DTYPE_F16 ? 2 : 4);
    return true;
}

/* Runs of rows that follow one another become parts. */
static bool pick_encoded(struct raiser *r, const struct teg_encoding *from, const struct teg_row_runs *runs,
                         struct encoded *e)
{
    struct teg_encoding *const encoding = take(r, sizeof *encoding);
    struct teg_encoding_part *const parts = take(r, runs->n * sizeof *parts);
    if (!encoding || !parts || from->n_parts != 1)
        return false;
    *encoding = (struct teg_encoding){.columns = from->columns, .parts = parts, .n_parts = runs->n};
    for (size_t i = 0; i < runs->n; i++) {
        const size_t row = runs->first + i * runs->apart;
        if (row + runs->rows > from->n_rows || !cut_part(&from->parts[0], from->columns, row, runs->rows, &parts[i]))
            return false;
        encoding->n_rows += runs->rows;
    }
    teg_encoding_seal(encoding);
    e->data = parts[0].codes.bytes;
    e->n_bytes = encoding->n_bytes;
    e->encoding = encoding;
    return true;
}

static void pick_dense(struct raiser *r, const struct teg_row_runs *runs, uint64_t columns, struct encoded *e)
{
    const size_t row_bytes = (size_t)columns * (e->dtype == TEG_DTYPE_F16 ? 2 : 4), run = runs->rows * row_bytes;
    uint8_t *const out = take(r, runs->n * run);
    for (size_t i = 0; out && i < runs->n; i++)
        memcpy(out + i * run, (const uint8_t *)e->data + (runs->first + i * runs->apart) * row_bytes, run);
    e->data = out;
    e->n_bytes = out ? runs->n * run : 0;
}

teg_value_id teg_raise_matrix_rows(struct raiser *r, teg_mil_var_id var, bool transposed,
                                   const struct teg_row_runs *runs, const char **why)
{
    enum { PICKED = 4 };
    uint64_t dims[2];
    struct encoded e = encode(r, var, transposed, true, dims, why);
    if (e.encoding && !pick_encoded(r, e.encoding, runs, &e) && r->status == TEG_OK)
        e = encode(r, var, transposed, false, dims, why);
    if (!e.data || runs->first + (runs->n - 1) * runs->apart + runs->rows > dims[0])
        return TEG_NO_VALUE;
    if (!e.encoding)
        pick_dense(r, runs, dims[1], &e);
    dims[0] = runs->n * runs->rows;
    return e.data ? add(r, var, PICKED, &e, 2, dims) : TEG_NO_VALUE;
}

teg_value_id teg_raise_vector_rows(struct raiser *r, teg_mil_var_id var, const struct teg_row_runs *runs,
                                   const char **why)
{
    enum { PICKED_VECTOR = 5 };
    size_t n;
    const float *const x = teg_raise_floats(r, var, &n, why);
    const size_t n_out = runs->n * runs->rows;
    float *const out =
        x && runs->first + (runs->n - 1) * runs->apart + runs->rows <= n ? take(r, n_out * sizeof *out) : NULL;
    if (!out)
        return TEG_NO_VALUE;
    for (size_t i = 0; i < n_out; i++)
        out[i] = x[runs->first + i / runs->rows * runs->apart + i % runs->rows];
    const uint64_t dims[1] = {n_out};
    return add(r, var, PICKED_VECTOR, &(struct encoded){TEG_DTYPE_F32, out, n_out * sizeof *out, NULL}, 1, dims);
}
