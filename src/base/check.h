/* base/check.h: size arithmetic that cannot wrap. Each returns false on overflow and leaves *out untouched. */
#ifndef TEG_BASE_CHECK_H
#define TEG_BASE_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool teg_add(size_t a, size_t b, size_t *out)
{
    if (b > SIZE_MAX - a)
        return false;
    *out = a + b;
    return true;
}

static inline bool teg_mul(size_t a, size_t b, size_t *out)
{
    if (a && b > SIZE_MAX / a)
        return false;
    *out = a * b;
    return true;
}

static inline size_t teg_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t teg_max(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* a rounded up to a multiple of the power of two `align`; false on overflow. */
static inline bool teg_round_up(size_t a, size_t align, size_t *out)
{
    if (a > SIZE_MAX - (align - 1))
        return false;
    *out = (a + align - 1) & ~(align - 1);
    return true;
}

#endif
