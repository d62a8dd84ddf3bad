/* tests/failing_malloc.h: malloc and its kin, replaced in a test program: they fail once allocations_left is used up,
 * and count the blocks that are held. Everything in the program is hit, jansson, PCRE2 and utf8proc too.
 *
 * Only with glibc, whose own functions stand behind these, and not under sanitizers, which replace malloc themselves:
 * CAN_FAIL is 0 there and the test must skip. Include it in one file of a program. */
#ifndef TEG_TESTS_FAILING_MALLOC_H
#define TEG_TESTS_FAILING_MALLOC_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CAN_FAIL 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define CAN_FAIL 0
#endif
#endif
#if !defined(CAN_FAIL) && defined(__GLIBC__)
#define CAN_FAIL 1
#endif

#if CAN_FAIL
static long allocations_left = -1; /* -1: all succeed */
static long blocks_held;

static bool refused(void)
{
    if (allocations_left < 0)
        return false;
    if (allocations_left == 0)
        return true;
    allocations_left--;
    return false;
}

void *__libc_malloc(size_t n_bytes);
void *__libc_calloc(size_t n, size_t n_bytes);
void *__libc_realloc(void *p, size_t n_bytes);
void *__libc_memalign(size_t align, size_t n_bytes);
void __libc_free(void *p);

void *malloc(size_t n_bytes)
{
    void *const p = refused() ? NULL : __libc_malloc(n_bytes);
    blocks_held += p != NULL;
    return p;
}

void *calloc(size_t n, size_t n_bytes)
{
    void *const p = refused() ? NULL : __libc_calloc(n, n_bytes);
    blocks_held += p != NULL;
    return p;
}

void *realloc(void *old, size_t n_bytes)
{
    void *const p = refused() ? NULL : __libc_realloc(old, n_bytes);
    blocks_held += p != NULL && old == NULL;
    return p;
}

int posix_memalign(void **out, size_t align, size_t n_bytes)
{
    void *const p = refused() ? NULL : __libc_memalign(align, n_bytes);
    if (!p)
        return ENOMEM;
    blocks_held++;
    *out = p;
    return 0;
}

void free(void *p)
{
    blocks_held -= p != NULL;
    __libc_free(p);
}
#endif

#endif
