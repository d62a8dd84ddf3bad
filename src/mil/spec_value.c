/* mil/spec_value.c: MIL's ValueType and Value messages.
 *
 *   ValueType   1 tensor {1 dataType, 2 rank, 3 dimensions {1 constant {1 size} | 2 unknown {1 variadic}}}
 *               2 list {1 type, 2 length}   3 tuple {1 types}   4 dictionary {1 key, 2 value}   5 state {1 wrapped}
 *   Value       2 type   3 immediate {1 tensor, 2 tuple, 3 list, 4 dictionary}   5 blob {1 fileName, 2 offset}
 *   tensor      1 floats, 2 ints, 3 bools, 4 strings, 5 longInts, 6 doubles, 7 bytes; each {1 values}
 *
 * A payload whose bytes in the file are already what teg_mil_const promises stays there; only integers (varints) and
 * numbers in several pieces are written anew. */
#include "mil/impl.h"

#include "base/check.h"

/* ---- types ---- */

struct msg_dimension {
    struct teg_span constant, unknown;
};
static const struct teg_wire_row dimension_rows[] = {
    {1, TEG_WIRE_SPAN, offsetof(struct msg_dimension, constant)},
    {2, TEG_WIRE_SPAN, offsetof(struct msg_dimension, unknown)},
};
struct msg_number {
    uint64_t value;
};
static const struct teg_wire_row number_rows[] = {{1, TEG_WIRE_UINT, offsetof(struct msg_number, value)}};

static enum teg_status read_dimension(struct teg_mil_reader *r, struct teg_span message, int64_t *size,
                                      bool *is_variadic)
{
    struct msg_dimension m = {0};
    struct msg_number n = {0};
    MIL_READ(r, message, dimension_rows, &m, "a Dimension");
    if (!m.constant.bytes == !m.unknown.bytes)
        MIL_FAIL(r, TEG_ERR_FORMAT, message.bytes,
                 "expected a dimension to be constant or unknown, found %s; export the model again",
                 m.constant.bytes ? "both" : "neither");
    MIL_READ(r, m.constant.bytes ? m.constant : m.unknown, number_rows, &n, "a Dimension");
    *is_variadic = !m.constant.bytes && n.value;
    *size = m.constant.bytes ? (int64_t)n.value : TEG_MIL_UNKNOWN;
    if (m.constant.bytes && n.value > INT64_MAX)
        MIL_FAIL(r, TEG_ERR_FORMAT, message.bytes,
                 "expected a dimension below 2^63, found %llu; export the model again", (unsigned long long)n.value);
    return TEG_OK;
}

struct msg_tensor_type {
    uint64_t dtype, rank;
    size_t n_dimensions;
};
static const struct teg_wire_row tensor_type_rows[] = {
    {1, TEG_WIRE_UINT, offsetof(struct msg_tensor_type, dtype)},
    {2, TEG_WIRE_UINT, offsetof(struct msg_tensor_type, rank)},
    {3, TEG_WIRE_COUNT, offsetof(struct msg_tensor_type, n_dimensions)},
};

static enum teg_status read_tensor_type(struct teg_mil_reader *r, struct teg_span message, struct teg_mil_type *type)
{
    struct msg_tensor_type m = {0};
    MIL_READ(r, message, tensor_type_rows, &m, "a TensorType");
    const int64_t rank = (int64_t)m.rank;
    if (!teg_mil_dtype_by_number(m.dtype, &type->dtype))
        MIL_FAIL(r, TEG_ERR_UNSUPPORTED, message.bytes,
                 "expected a known element type, found DataType %llu; update tegula", (unsigned long long)m.dtype);
    if (rank >= 0 && (uint64_t)rank != m.n_dimensions)
        MIL_FAIL(r, TEG_ERR_FORMAT, message.bytes,
                 "expected a tensor type of rank %lld to have as many dimensions, found %zu; export the model again",
                 (long long)rank, m.n_dimensions);
    if (rank > TEG_MIL_MAX_RANK)
        MIL_FAIL(r, TEG_ERR_UNSUPPORTED, message.bytes,
                 "expected tensors of rank %d at most, found %lld; export the "
                 "model with fewer dimensions",
                 TEG_MIL_MAX_RANK, (long long)rank);
    type->kind = TEG_MIL_TENSOR;
    type->rank = rank < 0 ? -1 : (int32_t)rank;
    if (rank < 0)
        return TEG_OK;
    struct teg_wire_iter iter = teg_wire_iter_of(message, 3);
    struct teg_wire_field f;
    bool any_variadic = false;
    for (int32_t i = 0; i < type->rank && teg_wire_each(&iter, &f); i++) {
        bool is_variadic = false;
        TRY(read_dimension(r, f.bytes, &type->dims[i], &is_variadic));
        any_variadic = any_variadic || is_variadic;
    }
    if (any_variadic)
        type->rank = -1;
    return TEG_OK;
}

struct msg_value_type {
    struct teg_span tensor, list, tuple, dict, state;
};
static const struct teg_wire_row value_type_rows[] = {
    {1, TEG_WIRE_SPAN, offsetof(struct msg_value_type, tensor)},
    {2, TEG_WIRE_SPAN, offsetof(struct msg_value_type, list)},
    {3, TEG_WIRE_SPAN, offsetof(struct msg_value_type, tuple)},
    {4, TEG_WIRE_SPAN, offsetof(struct msg_value_type, dict)},
    {5, TEG_WIRE_SPAN, offsetof(struct msg_value_type, state)},
};
struct msg_pair {
    struct teg_span first, second;
};
static const struct teg_wire_row pair_rows[] = {
    {1, TEG_WIRE_SPAN, offsetof(struct msg_pair, first)},
    {2, TEG_WIRE_SPAN, offsetof(struct msg_pair, second)},
};

static enum teg_status read_inner_type(struct teg_mil_reader *r, struct teg_span message, int depth,
                                       const struct teg_mil_type **out)
{
    struct teg_mil_type *const type = teg_arena_array(r->arena, 1, sizeof *type);
    if (!type)
        return teg_mil_no_memory(r, sizeof *type);
    *out = type;
    return teg_mil_spec_type(r, message, depth + 1, type);
}

static enum teg_status read_list_type(struct teg_mil_reader *r, struct teg_span message, int depth,
                                      struct teg_mil_type *type)
{
    struct msg_pair m = {0};
    bool is_variadic;
    MIL_READ(r, message, pair_rows, &m, "a ListType");
    type->kind = TEG_MIL_LIST;
    type->length = TEG_MIL_UNKNOWN;
    if (m.second.bytes)
        TRY(read_dimension(r, m.second, &type->length, &is_variadic));
    return read_inner_type(r, m.first, depth, &type->element);
}

enum teg_status teg_mil_spec_type(struct teg_mil_reader *r, struct teg_span message, int depth,
                                  struct teg_mil_type *type)
{
    struct msg_value_type m = {0};
    struct msg_pair inner = {0};
    if (depth > TEG_MIL_MAX_TYPE_DEPTH)
        MIL_FAIL(r, TEG_ERR_FORMAT, message.bytes,
                 "expected types at most %d deep, found deeper ones; export the model "
                 "again",
                 TEG_MIL_MAX_TYPE_DEPTH);
    MIL_READ(r, message, value_type_rows, &m, "a ValueType");
    *type = (struct teg_mil_type){0};
    if (m.tensor.bytes)
        return read_tensor_type(r, m.tensor, type);
    if (m.list.bytes)
        return read_list_type(r, m.list, depth, type);
    if (m.dict.bytes) {
        MIL_READ(r, m.dict, pair_rows, &inner, "a DictionaryType");
        type->kind = TEG_MIL_DICT;
        TRY(read_inner_type(r, inner.first, depth, &type->key));
        return read_inner_type(r, inner.second, depth, &type->element);
    }
    if (m.state.bytes) {
        MIL_READ(r, m.state, pair_rows, &inner, "a StateType");
        TRY(teg_mil_spec_type(r, inner.first, depth + 1, type));
        if (type->kind != TEG_MIL_TENSOR)
            MIL_FAIL(r, TEG_ERR_FORMAT, message.bytes,
                     "expected a state to hold a tensor, found another type; export the model again");
        type->kind = TEG_MIL_STATE;
        return TEG_OK;
    }
    if (!m.tuple.bytes)
        MIL_FAIL(r, TEG_ERR_FORMAT, message.bytes,
                 "expected a tensor, list, tuple, dictionary or state type, found none; export the model again");
    type->kind = TEG_MIL_TUPLE;
    return TEG_OK;
}

/* ---- tensor payloads ---- */

/* How the numbers of one field lie in the file. */
struct payload {
    uint32_t field;          /* in TensorValue */
    enum teg_wire_type type; /* of one item */
    size_t item_bytes;       /* in the file; 0: varint */
    const char *name;
};
static const struct payload payloads[] = {
    {1, TEG_WIRE_FIXED32, 4, "floats"},  {2, TEG_WIRE_VARINT, 0, "ints"},     {3, TEG_WIRE_VARINT, 1, "bools"},
    {5, TEG_WIRE_VARINT, 0, "longInts"}, {6, TEG_WIRE_FIXED64, 8, "doubles"}, {7, TEG_WIRE_BYTES, 0, "bytes"},
};
enum { FLOATS, INTS, BOOLS, LONG_INTS, DOUBLES, BYTES };

/* Which fields may hold an element type: a bit each. */
static unsigned fields_of(enum teg_mil_dtype dtype)
{
    const struct teg_mil_dtype_info *const info = teg_mil_dtype_info(dtype);
    switch (info->class_) {
    case TEG_MIL_CLASS_BOOL:
        return 1u << BOOLS | 1u << BYTES;
    case TEG_MIL_CLASS_FLOAT:
        return 1u << BYTES | (dtype == TEG_MIL_FP32 ? 1u << FLOATS : 0u) | (dtype == TEG_MIL_FP64 ? 1u << DOUBLES : 0u);
    case TEG_MIL_CLASS_INT:
    case TEG_MIL_CLASS_UINT: /* sub-byte ones are packed, so never varints */
        return 1u << BYTES | (info->bits >= 8 ? 1u << INTS | 1u << LONG_INTS : 0u);
    case TEG_MIL_CLASS_STRING:
        break;
    }
    return 0;
}

static bool fits(int64_t v, const struct teg_mil_dtype_info *info)
{
    if (info->bits == 64)
        return true; /* uint64 comes as the int64 of the same bits */
    if (info->class_ == TEG_MIL_CLASS_INT)
        return v >= -((int64_t)1 << (info->bits - 1)) && v < (int64_t)1 << (info->bits - 1);
    return v >= 0 && v < (int64_t)1 << info->bits;
}

bool teg_mil_put_int(uint8_t *to, enum teg_mil_dtype dtype, int64_t v)
{
    const struct teg_mil_dtype_info *const info = teg_mil_dtype_info(dtype);
    if (info->class_ != TEG_MIL_CLASS_BOOL && !fits(v, info))
        return false;
    if (info->class_ == TEG_MIL_CLASS_BOOL)
        v = v != 0;
    for (uint32_t i = 0; i < info->bits / 8; i++)
        to[i] = (uint8_t)((uint64_t)v >> (8 * i));
    return true;
}

/* Items of a repeated field: packed ones and single ones, in any mix. */
static bool count_items(struct teg_span values, const struct payload *p, size_t *n)
{
    struct teg_wire_iter iter = teg_wire_iter_of(values, 1);
    struct teg_wire_field f;
    size_t count = 0;
    while (teg_wire_each(&iter, &f)) {
        if (f.type == (uint32_t)p->type)
            count++;
        else if (f.type != TEG_WIRE_BYTES)
            return false;
        else if (p->type != TEG_WIRE_VARINT) {
            if (f.bytes.n_bytes % p->item_bytes)
                return false;
            count += f.bytes.n_bytes / p->item_bytes;
        } else
            for (size_t i = 0; i < f.bytes.n_bytes; i++)
                count += f.bytes.bytes[i] < 0x80; /* the last byte of each */
    }
    *n = count;
    return true;
}

static bool is_plain_bools(struct teg_span bytes)
{
    for (size_t i = 0; i < bytes.n_bytes; i++)
        if (bytes.bytes[i] > 1)
            return false;
    return true;
}

/* The one packed piece that already has the layout that is wanted. */
static bool find_in_place(struct teg_span values, const struct payload *p, size_t n_bytes, struct teg_span *out)
{
    struct teg_wire_iter iter = teg_wire_iter_of(values, 1);
    struct teg_wire_field f;
    if (!p->item_bytes || !teg_wire_each(&iter, &f) || f.type != TEG_WIRE_BYTES || f.bytes.n_bytes != n_bytes)
        return false;
    *out = f.bytes;
    return p->type != TEG_WIRE_VARINT || is_plain_bools(f.bytes);
}

static bool put_item(struct teg_mil_const *value, uint8_t *to, size_t i, uint64_t v)
{
    const size_t width = teg_mil_dtype_info(value->type.dtype)->bits / 8;
    const bool is_float = teg_mil_dtype_info(value->type.dtype)->class_ == TEG_MIL_CLASS_FLOAT;
    if (!is_float)
        return teg_mil_put_int(to + i * width, value->type.dtype, (int64_t)v);
    for (size_t b = 0; b < width; b++)
        to[i * width + b] = (uint8_t)(v >> (8 * b));
    return true;
}

/* Writes the n items that count_items found. */
static enum teg_status convert(struct teg_mil_reader *r, struct teg_span values, const struct payload *p,
                               struct teg_mil_const *value)
{
    uint8_t *const to = teg_arena_array(r->arena, value->n_bytes, 1);
    if (!to)
        return teg_mil_no_memory(r, value->n_bytes);
    struct teg_wire_iter iter = teg_wire_iter_of(values, 1);
    struct teg_wire_field f;
    size_t i = 0;
    while (teg_wire_each(&iter, &f)) {
        const bool is_packed = f.type == TEG_WIRE_BYTES;
        struct teg_cursor c = teg_cursor_of(f.bytes.bytes, f.bytes.n_bytes);
        do {
            uint64_t v = f.value;
            if (is_packed && !teg_cursor_left(&c))
                break;
            const bool is_whole = !is_packed || (p->type == TEG_WIRE_VARINT ? teg_wire_varint(&c, &v)
                                                                            : teg_cursor_uint(&c, p->item_bytes, &v));
            if (!is_whole || !put_item(value, to, i++, v))
                MIL_FAIL(r, TEG_ERR_FORMAT, values.bytes,
                         "expected integers in the range of %s, found %lld; export the model again",
                         teg_mil_dtype_info(value->type.dtype)->name, is_whole ? (long long)v : -1LL);
        } while (is_packed);
    }
    value->bytes = to;
    return TEG_OK;
}

static enum teg_status wrong_count(const struct teg_mil_reader *r, const uint8_t *at, const char *of, size_t expected,
                                   size_t found)
{
    MIL_FAIL(r, TEG_ERR_FORMAT, at, "expected a value of %zu %s as its shape says, found %zu; export the model again",
             expected, of, found);
}

static enum teg_status read_strings(struct teg_mil_reader *r, struct teg_span message, size_t n,
                                    struct teg_mil_const *value)
{
    struct teg_wire_iter iter = teg_wire_iter_of(message, 1);
    struct teg_wire_field f;
    size_t found = 0;
    while (teg_wire_each(&iter, &f))
        found += f.type == TEG_WIRE_BYTES;
    if (found != n)
        return wrong_count(r, message.bytes, "strings", n, found);
    struct teg_string *const strings = teg_arena_array(r->arena, n, sizeof *strings);
    if (!strings)
        return teg_mil_no_memory(r, n * sizeof *strings);
    iter = teg_wire_iter_of(message, 1);
    for (size_t i = 0; i < n && teg_wire_each(&iter, &f);)
        if (f.type == TEG_WIRE_BYTES)
            strings[i++] = (struct teg_string){(const char *)f.bytes.bytes, f.bytes.n_bytes};
    value->strings = strings;
    return TEG_OK;
}

static enum teg_status read_bytes(struct teg_mil_reader *r, struct teg_span message, struct teg_mil_const *value)
{
    struct msg_pair m = {0};
    MIL_READ(r, message, pair_rows, &m, "bytes of a tensor");
    if (m.first.n_bytes != value->n_bytes)
        return wrong_count(r, message.bytes, "bytes", value->n_bytes, m.first.n_bytes);
    value->bytes = m.first.bytes ? m.first.bytes : message.bytes;
    if (value->type.dtype == TEG_MIL_BOOL && !is_plain_bools(m.first))
        MIL_FAIL(r, TEG_ERR_FORMAT, message.bytes,
                 "expected bools of 0 and 1, found another byte; export the model again");
    return TEG_OK;
}

static enum teg_status read_numbers(struct teg_mil_reader *r, struct teg_span message, const struct payload *p,
                                    size_t n, struct teg_mil_const *value)
{
    size_t found = 0;
    struct teg_span in_place;
    size_t bad;
    if (!teg_wire_read(message, NULL, 0, NULL, &bad))
        return teg_mil_wire_fail(r, message, bad, p->name);
    if (!count_items(message, p, &found))
        MIL_FAIL(r, TEG_ERR_FORMAT, message.bytes, "expected whole %s, found other bytes; copy the model again",
                 p->name);
    if (found != n)
        return wrong_count(r, message.bytes, p->name, n, found);
    if (!find_in_place(message, p, value->n_bytes, &in_place))
        return convert(r, message, p, value);
    value->bytes = in_place.bytes;
    return TEG_OK;
}

static enum teg_status read_tensor(struct teg_mil_reader *r, struct teg_span message, struct teg_mil_const *value)
{
    struct teg_cursor c = teg_cursor_of(message.bytes, message.n_bytes);
    struct teg_wire_field f = {0}, last = {0};
    const bool is_string = value->type.dtype == TEG_MIL_STRING;
    size_t n;
    while (teg_wire_next(&c, &f))
        last = f;
    if (teg_cursor_left(&c))
        return teg_mil_wire_fail(r, message, c.position_bytes, "a TensorValue");
    if (!teg_mil_count(&value->type, &n) || (!is_string && !teg_mil_bytes(value->type.dtype, n, &value->n_bytes)))
        MIL_FAIL(r, TEG_ERR_FORMAT, message.bytes,
                 "expected a value with a constant shape that fits in memory, found another; export the model again");
    if (is_string && (last.number == 4 || (!last.number && !n)))
        return read_strings(r, last.bytes, n, value);
    for (unsigned i = 0; i < sizeof payloads / sizeof *payloads; i++)
        if (payloads[i].field == last.number && fields_of(value->type.dtype) >> i & 1 && last.type == TEG_WIRE_BYTES)
            return i == BYTES ? read_bytes(r, last.bytes, value) : read_numbers(r, last.bytes, &payloads[i], n, value);
    if (!last.number && !n) { /* an empty tensor may say nothing */
        value->bytes = message.bytes;
        return TEG_OK;
    }
    MIL_FAIL(r, TEG_ERR_FORMAT, message.bytes,
             "expected a payload for elements of type %s, found field %u; export the "
             "model again",
             teg_mil_dtype_info(value->type.dtype)->name, last.number);
}

/* ---- values ---- */

struct msg_value {
    struct teg_span type, immediate, blob;
};
static const struct teg_wire_row value_rows[] = {
    {2, TEG_WIRE_SPAN, offsetof(struct msg_value, type)},
    {3, TEG_WIRE_SPAN, offsetof(struct msg_value, immediate)},
    {5, TEG_WIRE_SPAN, offsetof(struct msg_value, blob)},
};
struct msg_immediate {
    struct teg_span tensor, tuple, list, dict;
};
static const struct teg_wire_row immediate_rows[] = {
    {1, TEG_WIRE_SPAN, offsetof(struct msg_immediate, tensor)},
    {2, TEG_WIRE_SPAN, offsetof(struct msg_immediate, tuple)},
    {3, TEG_WIRE_SPAN, offsetof(struct msg_immediate, list)},
    {4, TEG_WIRE_SPAN, offsetof(struct msg_immediate, dict)},
};
struct msg_blob {
    struct teg_span file;
    uint64_t offset;
};
static const struct teg_wire_row blob_rows[] = {
    {1, TEG_WIRE_SPAN, offsetof(struct msg_blob, file)},
    {2, TEG_WIRE_UINT, offsetof(struct msg_blob, offset)},
};
struct msg_items {
    size_t n;
};
static const struct teg_wire_row items_rows[] = {{1, TEG_WIRE_COUNT, offsetof(struct msg_items, n)}};

/* Items of a list or tuple; a dictionary's are pairs, two values each. */
static enum teg_status read_items(struct teg_mil_reader *r, struct teg_span message, int depth,
                                  struct teg_mil_const *value)
{
    struct msg_items m = {0};
    MIL_READ(r, message, items_rows, &m, "the items of a value");
    const size_t each = value->type.kind == TEG_MIL_DICT ? 2 : 1;
    struct teg_mil_const *const items = teg_arena_array(r->arena, m.n, each * sizeof *items);
    if (!items)
        return teg_mil_no_memory(r, m.n * each * sizeof *items);
    struct teg_wire_iter iter = teg_wire_iter_of(message, 1);
    struct teg_wire_field f;
    for (size_t i = 0; i < m.n && teg_wire_each(&iter, &f); i++) {
        if (each == 1) {
            TRY(teg_mil_spec_value(r, f.bytes, depth + 1, &items[i]));
            continue;
        }
        struct msg_pair pair = {0};
        MIL_READ(r, f.bytes, pair_rows, &pair, "a dictionary entry");
        TRY(teg_mil_spec_value(r, pair.first, depth + 1, &items[2 * i]));
        TRY(teg_mil_spec_value(r, pair.second, depth + 1, &items[2 * i + 1]));
    }
    value->items = items;
    value->n_items = m.n * each;
    return TEG_OK;
}

static enum teg_status check_items(const struct teg_mil_reader *r, const struct teg_mil_const *value, const uint8_t *at)
{
    const struct teg_mil_type *const t = &value->type;
    if (t->kind == TEG_MIL_LIST && t->length != TEG_MIL_UNKNOWN && (uint64_t)t->length != value->n_items)
        return wrong_count(r, at, "list items", (size_t)t->length, value->n_items);
    for (size_t i = 0; t->kind != TEG_MIL_TUPLE && i < value->n_items; i++) {
        const bool is_key = t->kind == TEG_MIL_DICT && i % 2 == 0;
        if (!teg_mil_same_type(is_key ? t->key : t->element, &value->items[i].type))
            MIL_FAIL(r, TEG_ERR_FORMAT, at,
                     "expected the items of a value to have its declared type, found another; export the model again");
    }
    return TEG_OK;
}

static enum teg_status read_immediate(struct teg_mil_reader *r, struct teg_span message, int depth,
                                      struct teg_mil_const *value)
{
    struct msg_immediate m = {0};
    MIL_READ(r, message, immediate_rows, &m, "an ImmediateValue");
    const struct teg_span parts[] = {
        [TEG_MIL_TENSOR] = m.tensor, [TEG_MIL_LIST] = m.list, [TEG_MIL_TUPLE] = m.tuple, [TEG_MIL_DICT] = m.dict};
    const enum teg_mil_kind kind = value->type.kind;
    if (kind == TEG_MIL_STATE || !parts[kind].bytes)
        MIL_FAIL(r, TEG_ERR_FORMAT, message.bytes,
                 "expected a value of the kind that its type says, found another; export the model again");
    if (kind == TEG_MIL_TENSOR)
        return read_tensor(r, m.tensor, value);
    TRY(read_items(r, parts[kind], depth, value));
    return check_items(r, value, message.bytes);
}

static enum teg_status read_blob(struct teg_mil_reader *r, struct teg_span message, struct teg_mil_const *value)
{
    struct msg_blob m = {0};
    MIL_READ(r, message, blob_rows, &m, "a BlobFileValue");
    return teg_mil_blob(r, m.file, m.offset, value, message.bytes);
}

enum teg_status teg_mil_spec_value(struct teg_mil_reader *r, struct teg_span message, int depth,
                                   struct teg_mil_const *value)
{
    struct msg_value m = {0};
    if (depth > TEG_MIL_MAX_VALUE_DEPTH)
        MIL_FAIL(r, TEG_ERR_FORMAT, message.bytes,
                 "expected values at most %d deep, found deeper ones; export the model "
                 "again",
                 TEG_MIL_MAX_VALUE_DEPTH);
    MIL_READ(r, message, value_rows, &m, "a Value");
    if (!m.immediate.bytes == !m.blob.bytes)
        MIL_FAIL(r, TEG_ERR_FORMAT, message.bytes,
                 "expected a value inline or in a weight file, found %s; export the model again",
                 m.blob.bytes ? "both" : "neither");
    *value = (struct teg_mil_const){0};
    TRY(teg_mil_spec_type(r, m.type, 1, &value->type));
    return m.blob.bytes ? read_blob(r, m.blob, value) : read_immediate(r, m.immediate, depth, value);
}
