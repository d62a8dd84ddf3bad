/* base/error.h: how a function fails.
 *
 * Every fallible function returns enum teg_status and takes an optional struct teg_error. FAIL fills it once, at the
 * place that knows what went wrong; TRY forwards. The message is one sentence without a final full stop:
 *
 *     WHAT: WHERE: expected …, found …; do …
 *
 * e.g. "cannot read GGUF: m.gguf at byte 4: expected version 2 or 3, found 99; convert the model again". */
#ifndef TEG_BASE_ERROR_H
#define TEG_BASE_ERROR_H

#include "tegula.h"

#if defined(__GNUC__)
#define TEG_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define TEG_PRINTF(fmt, args)
#endif

/* Fills err (when not NULL) and returns status. */
enum teg_status teg_base_fail(struct teg_error *err, enum teg_status status, uint64_t offset, const char *format, ...)
    TEG_PRINTF(4, 5);

/* "out of memory: <what> needs <n> bytes" */
enum teg_status teg_base_fail_memory(struct teg_error *err, const char *what, size_t n_bytes);

/* The status stands in the return itself, so that compilers see that a failure is never TEG_OK. */
#define FAIL(err, status, ...) FAIL_AT(err, status, 0, __VA_ARGS__)
#define FAIL_AT(err, status, offset, ...) return (void)teg_base_fail((err), (status), (offset), __VA_ARGS__), (status)
#define TRY(expr)                                                                                                      \
    do {                                                                                                               \
        const enum teg_status try_status_ = (expr);                                                                    \
        if (try_status_ != TEG_OK)                                                                                     \
            return try_status_;                                                                                        \
    } while (0)

#endif
