/* emit/spec_value.c: MIL's ValueType and Value messages, as mil/spec_value.c reads them.
 *
 *   ValueType   1 tensor {1 dataType, 2 rank, 3 dimensions {1 constant {1 size} | 2 unknown {}}}
 *               2 list {1 type, 2 length}   4 dictionary {1 key, 2 value}   5 state {1 wrapped}
 *   Value       2 type   3 immediate {1 tensor, 2 tuple, 3 list, 4 dictionary}   5 blob {1 fileName, 2 offset}
 *   tensor      1 floats, 2 ints, 3 bools, 4 strings, 5 longInts, 6 doubles, 7 bytes; each {1 values}
 *
 * Which payload an element type has is Apple's choice, not ours: readers take others, its compiler was never seen to
 * get any. */
#include "emit/emit_int.h"

static const char weight_file[] = "@model_path/weights/weight.bin";

/* ---- types ---- */

static void put_dimension(struct teg_wire_out *w, uint32_t field, int64_t size)
{
    teg_wire_out_begin(w, field);
    teg_wire_out_begin(w, size == TEG_MIL_UNKNOWN ? 2 : 1);
    if (size > 0) /* a constant 0 is an empty message */
        teg_wire_out_uint(w, 1, (uint64_t)size);
    teg_wire_out_end(w);
    teg_wire_out_end(w);
}

static void put_tensor_type(struct teg_wire_out *w, const struct teg_mil_type *type)
{
    teg_wire_out_begin(w, 1);
    teg_wire_out_uint(w, 1, teg_mil_dtype_number(type->dtype));
    if (type->rank)
        teg_wire_out_uint(w, 2, (uint64_t)(int64_t)type->rank);
    for (int32_t i = 0; i < type->rank; i++)
        put_dimension(w, 3, type->dims[i]);
    teg_wire_out_end(w);
}

enum teg_status teg_emit_type(struct teg_emitter *e, struct teg_wire_out *w, uint32_t field,
                              const struct teg_mil_type *type)
{
    teg_wire_out_begin(w, field);
    switch (type->kind) {
    case TEG_MIL_TENSOR:
        put_tensor_type(w, type);
        break;
    case TEG_MIL_STATE:
        teg_wire_out_begin(w, 5);
        teg_wire_out_begin(w, 1);
        put_tensor_type(w, type);
        teg_wire_out_end(w);
        teg_wire_out_end(w);
        break;
    case TEG_MIL_LIST:
        teg_wire_out_begin(w, 2);
        TRY(teg_emit_type(e, w, 1, type->element));
        put_dimension(w, 2, type->length);
        teg_wire_out_end(w);
        break;
    case TEG_MIL_DICT:
        teg_wire_out_begin(w, 4);
        TRY(teg_emit_type(e, w, 1, type->key));
        TRY(teg_emit_type(e, w, 2, type->element));
        teg_wire_out_end(w);
        break;
    case TEG_MIL_TUPLE:
        EMIT_FAIL(e, TEG_ERR_UNSUPPORTED, "expected no tuple types, found one; no exporter is known that writes them");
    }
    teg_wire_out_end(w);
    return TEG_OK;
}

/* ---- tensors ---- */

enum payload { FLOATS = 1, INTS, BOOLS, STRINGS, LONG_INTS, DOUBLES, BYTES };

static enum payload payload_of(enum teg_mil_dtype dtype)
{
    switch (dtype) {
    case TEG_MIL_BOOL:
        return BOOLS;
    case TEG_MIL_STRING:
        return STRINGS;
    case TEG_MIL_FP32:
        return FLOATS;
    case TEG_MIL_FP64:
        return DOUBLES;
    case TEG_MIL_INT16:
    case TEG_MIL_UINT16:
    case TEG_MIL_INT32:
        return INTS;
    case TEG_MIL_INT64:
    case TEG_MIL_UINT64:
        return LONG_INTS;
    default: /* halves, single bytes and less, uint32 */
        return BYTES;
    }
}

/* Varints are of the number: negative ones have 64 bits. */
static void put_ints(struct teg_wire_out *w, const struct teg_mil_const *value)
{
    const struct teg_mil_dtype_info *const info = teg_mil_dtype_info(value->type.dtype);
    const size_t width = info->bits / 8;
    teg_wire_out_begin(w, 1);
    for (size_t at = 0; at + width <= value->n_bytes; at += width) {
        uint64_t v = 0;
        for (size_t b = 0; b < width; b++)
            v |= (uint64_t)value->bytes[at + b] << (8 * b);
        if (info->class_ == TEG_MIL_CLASS_INT && info->bits < 64 && v >> (info->bits - 1))
            v |= ~(uint64_t)0 << info->bits;
        teg_wire_out_varint(w, v);
    }
    teg_wire_out_end(w);
}

static void put_tensor(struct teg_wire_out *w, const struct teg_mil_const *value)
{
    const enum payload payload = payload_of(value->type.dtype);
    size_t n = 0;
    (void)teg_mil_count(&value->type, &n);
    teg_wire_out_begin(w, 1);
    teg_wire_out_begin(w, (uint32_t)payload);
    if (payload == STRINGS)
        for (size_t i = 0; i < n; i++)
            teg_wire_out_bytes(w, 1, value->strings[i].bytes, value->strings[i].n_bytes);
    else if (n && (payload == INTS || payload == LONG_INTS))
        put_ints(w, value);
    else if (n) /* as it lies in memory */
        teg_wire_out_bytes(w, 1, value->bytes, value->n_bytes);
    teg_wire_out_end(w);
    teg_wire_out_end(w);
}

/* ---- values ---- */

static enum teg_status put_items(struct teg_emitter *e, struct teg_wire_out *w, const struct teg_mil_const *value)
{
    const bool is_dict = value->type.kind == TEG_MIL_DICT;
    teg_wire_out_begin(w, is_dict ? 4 : 3);
    for (size_t i = 0; i < value->n_items; i++) {
        if (!is_dict) {
            TRY(teg_emit_value(e, w, 1, &value->items[i], 0));
            continue;
        }
        teg_wire_out_begin(w, 1);
        TRY(teg_emit_value(e, w, 1, &value->items[i], 0));
        TRY(teg_emit_value(e, w, 2, &value->items[++i], 0));
        teg_wire_out_end(w);
    }
    teg_wire_out_end(w);
    return TEG_OK;
}

enum teg_status teg_emit_value(struct teg_emitter *e, struct teg_wire_out *w, uint32_t field,
                               const struct teg_mil_const *value, uint64_t record)
{
    teg_wire_out_begin(w, field);
    TRY(teg_emit_type(e, w, 2, &value->type));
    if (record) {
        teg_wire_out_begin(w, 5);
        teg_wire_out_text(w, 1, weight_file);
        teg_wire_out_uint(w, 2, record);
        teg_wire_out_end(w);
    } else {
        teg_wire_out_begin(w, 3);
        if (value->type.kind == TEG_MIL_TENSOR)
            put_tensor(w, value);
        else
            TRY(put_items(e, w, value));
        teg_wire_out_end(w);
    }
    teg_wire_out_end(w);
    return TEG_OK;
}

void teg_emit_string_value(struct teg_wire_out *w, uint32_t field, const char *text)
{
    static const struct teg_mil_type string = {.kind = TEG_MIL_TENSOR, .dtype = TEG_MIL_STRING};
    teg_wire_out_begin(w, field);
    teg_wire_out_begin(w, 2);
    put_tensor_type(w, &string);
    teg_wire_out_end(w);
    teg_wire_out_begin(w, 3);
    teg_wire_out_begin(w, 1);
    teg_wire_out_begin(w, STRINGS);
    teg_wire_out_text(w, 1, text);
    for (int i = 0; i < 4; i++)
        teg_wire_out_end(w);
}
