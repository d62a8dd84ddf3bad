/* emit/wire_out.h: protobuf written forward.
 *
 * A message stands behind its length, which is known only when it is written. So what writes is run twice over the same
 * calls: the first run counts and notes the size of each message in the order in which they begin, the second one takes
 * the sizes in that order. Nothing is moved, and what is held is eight bytes a message. The two runs must be equal;
 * a difference is found, not written. */
#ifndef TEG_EMIT_WIRE_OUT_H
#define TEG_EMIT_WIRE_OUT_H

#include "base/arena.h"
#include "base/cursor.h"

enum { TEG_WIRE_OUT_DEPTH = 256 };

struct teg_wire_out {
    bool (*sink)(void *ctx, const void *bytes, size_t n_bytes); /* false: it has failed and knows why */
    void *sink_ctx;
    bool is_writing; /* the second run */
    bool failed;     /* memory, depth, or the sink */
    uint64_t n_bytes;
    uint64_t *sizes; /* of messages, by their beginning; malloc'ed */
    size_t n_sizes, n_counted, capacity;
    size_t depth, open[TEG_WIRE_OUT_DEPTH]; /* messages that are being written */
    uint64_t begun[TEG_WIRE_OUT_DEPTH];     /* n_bytes where their content begins */
};

/* The second run, into the sink. */
void teg_wire_out_rewind(struct teg_wire_out *w, bool (*sink)(void *, const void *, size_t), void *ctx);
void teg_wire_out_free(struct teg_wire_out *w);

void teg_wire_out_begin(struct teg_wire_out *w, uint32_t field);
void teg_wire_out_end(struct teg_wire_out *w);
/* A varint field; int64 as its 64 bits. Zero too: absent and zero are the same to a reader. */
void teg_wire_out_uint(struct teg_wire_out *w, uint32_t field, uint64_t value);
void teg_wire_out_fixed32(struct teg_wire_out *w, uint32_t field, uint32_t value);
void teg_wire_out_fixed64(struct teg_wire_out *w, uint32_t field, uint64_t value);
void teg_wire_out_bytes(struct teg_wire_out *w, uint32_t field, const void *bytes, size_t n_bytes);
void teg_wire_out_text(struct teg_wire_out *w, uint32_t field, const char *text);
/* Content of a packed field that was begun as a message. */
void teg_wire_out_varint(struct teg_wire_out *w, uint64_t value);
void teg_wire_out_raw(struct teg_wire_out *w, const void *bytes, size_t n_bytes);

#endif
