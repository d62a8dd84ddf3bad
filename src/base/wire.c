/* base/wire.c: see wire.h. The invariant: no function here reads past its span or returns one that leaves it. */
#include "base/wire.h"

bool teg_wire_varint(struct teg_cursor *c, uint64_t *value)
{
    enum { LONGEST = 10 };
    uint64_t v = 0;
    const size_t left = teg_cursor_left(c);
    for (size_t i = 0; i < LONGEST && i < left; i++) {
        const uint8_t byte = c->bytes[c->position_bytes + i];
        v |= (uint64_t)(byte & 0x7f) << (7 * i); /* bits above the 64th fall off, as everywhere */
        if (!(byte & 0x80)) {
            c->position_bytes += i + 1;
            *value = v;
            return true;
        }
    }
    return false;
}

static bool take_fixed(struct teg_cursor *c, size_t n_bytes, struct teg_wire_field *field)
{
    const size_t begin = c->position_bytes;
    if (!teg_cursor_uint(c, n_bytes, &field->value))
        return false;
    field->bytes = (struct teg_span){c->bytes + begin, n_bytes};
    return true;
}

static bool take_payload(struct teg_cursor *c, struct teg_wire_field *field)
{
    uint64_t n_bytes;
    switch (field->type) {
    case TEG_WIRE_VARINT:
        return teg_wire_varint(c, &field->value);
    case TEG_WIRE_FIXED64:
        return take_fixed(c, 8, field);
    case TEG_WIRE_FIXED32:
        return take_fixed(c, 4, field);
    case TEG_WIRE_BYTES:
        return teg_wire_varint(c, &n_bytes) && teg_cursor_take(c, n_bytes, &field->bytes);
    default:
        return false;
    }
}

bool teg_wire_next(struct teg_cursor *c, struct teg_wire_field *field)
{
    const size_t begin = c->position_bytes;
    uint64_t key;
    if (!teg_cursor_left(c))
        return false;
    *field = (struct teg_wire_field){0};
    if (teg_wire_varint(c, &key) && key <= UINT32_MAX && key >> 3) {
        field->number = (uint32_t)(key >> 3);
        field->type = (uint32_t)(key & 7);
        if (take_payload(c, field))
            return true;
    }
    c->position_bytes = begin;
    return false;
}

static bool put(const struct teg_wire_row *row, const struct teg_wire_field *field, void *out)
{
    void *const member = (char *)out + row->offset;
    const bool is_bytes = field->type == TEG_WIRE_BYTES;
    switch (row->kind) {
    case TEG_WIRE_UINT:
        *(uint64_t *)member = field->value;
        return !is_bytes;
    case TEG_WIRE_SPAN:
        *(struct teg_span *)member = field->bytes;
        return is_bytes;
    case TEG_WIRE_COUNT:
        ++*(size_t *)member;
        return true;
    }
    return false;
}

bool teg_wire_read(struct teg_span message, const struct teg_wire_row *rows, size_t n_rows, void *out, size_t *bad)
{
    struct teg_cursor c = teg_cursor_of(message.bytes, message.n_bytes);
    struct teg_wire_field field;
    size_t begin = 0;
    while (teg_wire_next(&c, &field)) {
        for (size_t i = 0; i < n_rows; i++)
            if (rows[i].number == field.number && !put(&rows[i], &field, out)) {
                *bad = begin;
                return false;
            }
        begin = c.position_bytes;
    }
    *bad = c.position_bytes;
    return !teg_cursor_left(&c);
}

bool teg_wire_each(struct teg_wire_iter *iter, struct teg_wire_field *field)
{
    while (teg_wire_next(&iter->c, field))
        if (field->number == iter->number)
            return true;
    return false;
}
