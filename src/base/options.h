/* base/options.h: options structs across versions of the library.
 *
 * Each starts with `size`, the caller's sizeof. A caller built against an older header passes a shorter struct: the
 * fields it does not know keep their defaults. One built against a newer header passes a longer one: what this version
 * does not know is not read. */
#ifndef TEG_BASE_OPTIONS_H
#define TEG_BASE_OPTIONS_H

#include <string.h>

#include "base/error.h"

/* Copies what both sides know of `given` over the defaults in `options`; given NULL: nothing. */
static inline enum teg_status teg_options_read(void *options, size_t n_bytes, const void *given, struct teg_error *err)
{
    size_t given_bytes;
    if (!given)
        return TEG_OK;
    memcpy(&given_bytes, given, sizeof given_bytes);
    if (given_bytes < sizeof given_bytes)
        FAIL(err, TEG_ERR_ARGUMENT,
             "bad options: size: expected the size of the struct, found %zu; fill options with their _default function",
             given_bytes);
    memcpy(options, given, given_bytes < n_bytes ? given_bytes : n_bytes);
    return TEG_OK;
}

#endif
