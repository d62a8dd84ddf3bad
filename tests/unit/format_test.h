/* What the tests of src/format share: files built in memory, buffers whose end is the end of a page (a read past it
 * crashes), temporary directories, an allocator that fails where told, and checks of whole error messages. */
#ifndef FORMAT_TEST_H
#define FORMAT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "format/impl.h"

/* ---- a file in memory ---- */

struct bytes {
    uint8_t *at;
    size_t n, capacity;
};

static inline void put(struct bytes *b, const void *p, size_t n)
{
    if (b->n + n > b->capacity) {
        b->capacity = 2 * (b->n + n);
        b->at = realloc(b->at, b->capacity);
        assert_non_null(b->at);
    }
    if (n)
        memcpy(b->at + b->n, p, n);
    b->n += n;
}

static inline void put_uint(struct bytes *b, uint64_t value, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++)
        put(b, &(uint8_t){(uint8_t)(value >> (8 * i))}, 1);
}

static inline void put_zeros(struct bytes *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        put(b, "", 1);
}

static inline void put_text(struct bytes *b, const char *text)
{
    put(b, text, strlen(text));
}

static inline void bytes_free(struct bytes *b)
{
    free(b->at);
    *b = (struct bytes){0};
}

/* ---- the end of a file is the end of the world ---- */

struct guarded {
    uint8_t *map;
    size_t map_bytes;
    uint8_t *bytes; /* n of them, then a page that may not be read */
};

static inline struct guarded guarded_copy(const uint8_t *bytes, size_t n)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (n + page - 1) / page * page;
    struct guarded g = {.map_bytes = room + page};
    g.map = mmap(NULL, g.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(g.map != MAP_FAILED);
    g.bytes = g.map + room - n;
    if (n)
        memcpy(g.bytes, bytes, n);
    assert_int_equal(mprotect(g.map + room, page, PROT_NONE), 0);
    return g;
}

static inline void guarded_free(struct guarded *g)
{
    munmap(g->map, g->map_bytes);
}

/* ---- allocator ---- */

struct counting {
    struct teg_allocator allocator;
    size_t n_allocs, n_live, total_bytes, fail_at; /* fail_at counts from 1; 0: never */
};

static inline void *counting_alloc(void *ctx, size_t size_bytes, size_t align_bytes)
{
    struct counting *const c = ctx;
    if (++c->n_allocs == c->fail_at)
        return NULL;
    void *p = NULL;
    if (posix_memalign(&p, align_bytes, size_bytes) != 0)
        return NULL;
    c->n_live++;
    c->total_bytes += size_bytes;
    return p;
}

static inline void counting_free(void *ctx, void *ptr, size_t size_bytes)
{
    (void)size_bytes;
    ((struct counting *)ctx)->n_live--;
    free(ptr);
}

static inline struct teg_allocator *counting_init(struct counting *c, size_t fail_at)
{
    *c = (struct counting){.allocator = {counting_alloc, counting_free, c}, .fail_at = fail_at};
    return &c->allocator;
}

/* ---- temporary directory ---- */

struct temp_dir {
    char path[64];
};

static inline struct temp_dir temp_dir_make(void)
{
    struct temp_dir d = {"/tmp/tegula-test-XXXXXX"};
    assert_non_null(mkdtemp(d.path));
    return d;
}

static inline void temp_path(const struct temp_dir *d, const char *name, char out[128])
{
    assert_true(snprintf(out, 128, "%s/%s", d->path, name) < 128);
}

static inline void temp_write(const struct temp_dir *d, const char *name, const void *bytes, size_t n)
{
    char path[128];
    temp_path(d, name, path);
    FILE *const f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static inline void temp_write_text(const struct temp_dir *d, const char *name, const char *text)
{
    temp_write(d, name, text, strlen(text));
}

static inline void temp_remove(const struct temp_dir *d, const char *name)
{
    char path[128];
    temp_path(d, name, path);
    assert_int_equal(remove(path), 0);
}

static inline void temp_dir_remove(const struct temp_dir *d)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", d->path);
    assert_int_equal(system(command), 0);
}

/* ---- expectations ---- */

/* Opening `path` fails with this whole message; every "%" in it stands for the directory's path. */
static inline void expect_open_fails(const struct temp_dir *d, const char *path, bool need_tensors,
                                     enum teg_status status, const char *message)
{
    char expected[1024] = "";
    size_t n = 0;
    for (const char *p = message; *p && n + sizeof d->path + 1 < sizeof expected; p++) {
        if (*p == '%')
            n += (size_t)snprintf(expected + n, sizeof expected - n, "%s", d->path);
        else
            expected[n++] = *p;
        expected[n] = '\0';
    }
    struct counting c;
    struct teg_error err = {0};
    struct teg_source *source = NULL;
    assert_int_equal(teg_source_open(path, need_tensors, counting_init(&c, 0), &source, &err), status);
    assert_string_equal(err.message, expected);
    assert_int_equal(err.status, status);
    assert_null(source);
    assert_int_equal(c.n_live, 0);
}

static inline void assert_string_is(struct teg_string s, const char *text)
{
    assert_int_equal(s.n_bytes, strlen(text));
    assert_memory_equal(s.bytes, text, s.n_bytes);
}

#endif
