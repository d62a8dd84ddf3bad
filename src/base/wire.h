/* base/wire.h: protobuf's wire format, read in place.
 *
 * A message is a span of the mapped file. teg_wire_read goes once over its fields, checks that every one of them lies
 * whole inside the span, and by a table puts what it knows into a struct: a number, a span (string, bytes, message), or
 * for a repeated field how often it comes. teg_wire_each then walks a repeated field of a span that was read so: it
 * cannot fail. Nothing is copied and nothing recurses here, so nesting costs only what the caller's own depth allows.
 *
 * Not taken: generated code (protobuf-c). It unpacks everything before anybody looks at it, recursively, copies every
 * immediate of a model's hundred megabytes, knows no positions for messages, and needs a compiler at build time. */
#ifndef TEG_BASE_WIRE_H
#define TEG_BASE_WIRE_H

#include <stddef.h>

#include "base/cursor.h"

enum teg_wire_type { TEG_WIRE_VARINT = 0, TEG_WIRE_FIXED64 = 1, TEG_WIRE_BYTES = 2, TEG_WIRE_FIXED32 = 5 };

struct teg_wire_field {
    uint32_t number;
    uint32_t type;         /* enum teg_wire_type; groups, which proto3 has not, are damage */
    uint64_t value;        /* varint; the bits of a fixed one */
    struct teg_span bytes; /* TEG_WIRE_BYTES; fixed ones too */
};

/* The next field; false at the end and on damage, which leaves bytes over in the cursor. */
bool teg_wire_next(struct teg_cursor *c, struct teg_wire_field *field);
/* A varint of at most ten bytes. */
bool teg_wire_varint(struct teg_cursor *c, uint64_t *value);

enum teg_wire_kind {
    TEG_WIRE_UINT,  /* uint64_t: the last value (int64: cast it); varint or fixed */
    TEG_WIRE_SPAN,  /* struct teg_span: the last one; .bytes NULL where absent */
    TEG_WIRE_COUNT, /* size_t: fields of that number */
};

struct teg_wire_row {
    uint32_t number;
    enum teg_wire_kind kind;
    size_t offset; /* of the member in the struct */
};

/* Fills the members (all zero before) that the rows name. False: damage, at byte *bad of the message. Fields without a
 * row are skipped. */
bool teg_wire_read(struct teg_span message, const struct teg_wire_row *rows, size_t n_rows, void *out, size_t *bad);

struct teg_wire_iter {
    struct teg_cursor c;
    uint32_t number;
};
static inline struct teg_wire_iter teg_wire_iter_of(struct teg_span message, uint32_t number)
{
    return (struct teg_wire_iter){teg_cursor_of(message.bytes, message.n_bytes), number};
}
/* The next field of that number. */
bool teg_wire_each(struct teg_wire_iter *iter, struct teg_wire_field *field);

#endif
