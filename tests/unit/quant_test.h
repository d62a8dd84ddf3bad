/* What the tests of quant/ share: an allocator that gives out so many pieces and then refuses. */
#ifndef QUANT_TEST_H
#define QUANT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "quant/quant.h"

static inline void *refusing_alloc(void *ctx, size_t n_bytes, size_t align)
{
    size_t *const left = ctx;
    void *p = NULL;
    if (!*left)
        return NULL;
    --*left;
    return posix_memalign(&p, align < sizeof p ? sizeof p : align, n_bytes ? n_bytes : 1) ? NULL : p;
}

static inline void refusing_free(void *ctx, void *p, size_t n_bytes)
{
    (void)ctx;
    (void)n_bytes;
    free(p);
}

/* *left pieces, which it counts down. */
static inline struct teg_allocator refusing(size_t *left)
{
    return (struct teg_allocator){refusing_alloc, refusing_free, left};
}

#endif
