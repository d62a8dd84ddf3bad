/* tests/tap.h: the smallest test harness: prints TAP, counts failures. For tests that must build with one compiler line
 * on a target without a test library. `return tap_done();` at the end of main. */
#ifndef TEG_TESTS_TAP_H
#define TEG_TESTS_TAP_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

static int tap_count, tap_failures;

/* Prints "ok N - name" or "not ok N - name"; returns ok. */
__attribute__((format(printf, 2, 3))) static inline bool tap_ok(bool ok, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("%s %d - ", ok ? "ok" : "not ok", ++tap_count);
    vprintf(format, args);
    printf("\n");
    va_end(args);
    fflush(stdout);
    tap_failures += !ok;
    return ok;
}

/* A remark under the test that follows or precedes. */
__attribute__((format(printf, 1, 2))) static inline void tap_note(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("# ");
    vprintf(format, args);
    printf("\n");
    va_end(args);
}

static inline int tap_done(void)
{
    printf("1..%d\n", tap_count);
    if (tap_failures)
        tap_note("%d of %d failed", tap_failures, tap_count);
    return tap_failures != 0;
}

#endif
