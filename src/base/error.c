/* base/error.c: fills struct teg_error. The message is cut, never overrun, and always NUL-terminated; bytes that are
 * not printable in a terminal (they can come from a hostile file's strings) are replaced by '?'. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

enum teg_status teg_base_fail(struct teg_error *err, enum teg_status status, uint64_t offset, const char *format, ...)
{
    if (!err)
        return status;
    err->status = status;
    err->offset = offset;
    va_list args;
    va_start(args, format);
    if (vsnprintf(err->message, sizeof err->message, format, args) < 0)
        err->message[0] = '\0';
    va_end(args);
    for (char *p = err->message; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '?';
    return status;
}

enum teg_status teg_base_fail_memory(struct teg_error *err, const char *what, size_t n_bytes)
{
    return teg_base_fail(err, TEG_ERR_MEMORY, 0,
                         "out of memory: %s: expected %zu bytes, found none free; close other programs or use a "
                         "smaller context, chunk or model",
                         what, n_bytes);
}
