/* base/cursor.h: the one way to read a file's bytes. Little endian; a read past the end returns false and moves
 * nothing, so `position_bytes` is where the fault is. */
#ifndef TEG_BASE_CURSOR_H
#define TEG_BASE_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct teg_span {
    const uint8_t *bytes;
    size_t n_bytes;
};

struct teg_cursor {
    const uint8_t *bytes;
    size_t n_bytes;
    size_t position_bytes;
};

static inline struct teg_cursor teg_cursor_of(const void *bytes, size_t n_bytes)
{
    return (struct teg_cursor){(const uint8_t *)bytes, n_bytes, 0};
}

static inline size_t teg_cursor_left(const struct teg_cursor *c)
{
    return c->n_bytes - c->position_bytes;
}

/* The next n bytes, in place. */
static inline bool teg_cursor_take(struct teg_cursor *c, uint64_t n_bytes, struct teg_span *out)
{
    if (n_bytes > teg_cursor_left(c))
        return false;
    *out = (struct teg_span){c->bytes + c->position_bytes, (size_t)n_bytes};
    c->position_bytes += (size_t)n_bytes;
    return true;
}

static inline bool teg_cursor_uint(struct teg_cursor *c, size_t n_bytes, uint64_t *out)
{
    struct teg_span s;
    if (!teg_cursor_take(c, n_bytes, &s))
        return false;
    uint64_t v = 0;
    for (size_t i = 0; i < n_bytes; i++)
        v |= (uint64_t)s.bytes[i] << (8 * i);
    *out = v;
    return true;
}

static inline bool teg_cursor_u32(struct teg_cursor *c, uint32_t *out)
{
    uint64_t v;
    if (!teg_cursor_uint(c, 4, &v))
        return false;
    *out = (uint32_t)v;
    return true;
}

static inline bool teg_cursor_u64(struct teg_cursor *c, uint64_t *out)
{
    return teg_cursor_uint(c, 8, out);
}

#endif
