/* emit/wire_out.c: see wire_out.h. */
#include "emit/wire_out.h"

#include <stdlib.h>

void teg_wire_out_rewind(struct teg_wire_out *w, bool (*sink)(void *, const void *, size_t), void *ctx)
{
    w->is_writing = true;
    w->failed = w->failed || w->depth;
    w->sink = sink;
    w->sink_ctx = ctx;
    w->n_bytes = 0;
    w->n_counted = w->n_sizes;
    w->n_sizes = 0;
}

void teg_wire_out_free(struct teg_wire_out *w)
{
    free(w->sizes);
    *w = (struct teg_wire_out){0};
}

void teg_wire_out_raw(struct teg_wire_out *w, const void *bytes, size_t n_bytes)
{
    if (w->failed)
        return;
    w->n_bytes += n_bytes;
    if (w->is_writing && n_bytes)
        w->failed = !w->sink(w->sink_ctx, bytes, n_bytes);
}

void teg_wire_out_varint(struct teg_wire_out *w, uint64_t value)
{
    uint8_t bytes[10];
    size_t n = 0;
    for (; value >= 0x80; value >>= 7)
        bytes[n++] = (uint8_t)(value | 0x80);
    bytes[n++] = (uint8_t)value;
    teg_wire_out_raw(w, bytes, n);
}

static void key(struct teg_wire_out *w, uint32_t field, uint32_t type)
{
    teg_wire_out_varint(w, (uint64_t)field << 3 | type);
}

static size_t varint_bytes(uint64_t value)
{
    size_t n = 1;
    for (; value >= 0x80; value >>= 7)
        n++;
    return n;
}

static bool note(struct teg_wire_out *w)
{
    if (w->is_writing)
        return w->n_sizes < w->n_counted;
    if (w->n_sizes < w->capacity)
        return true;
    const size_t more = w->capacity ? 2 * w->capacity : 1024;
    uint64_t *const sizes = more <= SIZE_MAX / sizeof *sizes ? realloc(w->sizes, more * sizeof *sizes) : NULL;
    if (!sizes)
        return false;
    w->sizes = sizes;
    w->capacity = more;
    return true;
}

void teg_wire_out_begin(struct teg_wire_out *w, uint32_t field)
{
    key(w, field, 2);
    if (w->failed || w->depth == TEG_WIRE_OUT_DEPTH || !note(w)) {
        w->failed = true;
        return;
    }
    if (w->is_writing)
        teg_wire_out_varint(w, w->sizes[w->n_sizes]);
    w->open[w->depth] = w->n_sizes++;
    w->begun[w->depth++] = w->n_bytes;
}

void teg_wire_out_end(struct teg_wire_out *w)
{
    if (w->failed || !w->depth) {
        w->failed = true;
        return;
    }
    w->depth--;
    const uint64_t size = w->n_bytes - w->begun[w->depth];
    if (w->is_writing)
        w->failed = w->sizes[w->open[w->depth]] != size;
    else {
        w->sizes[w->open[w->depth]] = size;
        w->n_bytes += varint_bytes(size);
    }
}

void teg_wire_out_uint(struct teg_wire_out *w, uint32_t field, uint64_t value)
{
    key(w, field, 0);
    teg_wire_out_varint(w, value);
}

static void put_fixed(struct teg_wire_out *w, uint64_t value, size_t n)
{
    uint8_t bytes[8];
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
    teg_wire_out_raw(w, bytes, n);
}

void teg_wire_out_fixed32(struct teg_wire_out *w, uint32_t field, uint32_t value)
{
    key(w, field, 5);
    put_fixed(w, value, 4);
}

void teg_wire_out_fixed64(struct teg_wire_out *w, uint32_t field, uint64_t value)
{
    key(w, field, 1);
    put_fixed(w, value, 8);
}

void teg_wire_out_bytes(struct teg_wire_out *w, uint32_t field, const void *bytes, size_t n_bytes)
{
    key(w, field, 2);
    teg_wire_out_varint(w, n_bytes);
    teg_wire_out_raw(w, bytes, n_bytes);
}

void teg_wire_out_text(struct teg_wire_out *w, uint32_t field, const char *text)
{
    teg_wire_out_bytes(w, field, text, strlen(text));
}
