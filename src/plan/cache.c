/* plan/cache.c: packed weights in a file, for the next start.
 *
 *     header (4096 bytes): magic, version, bytes of content, identity, hash of the content, hash of the header
 *     content: the block of memory that pack.c makes, as it is
 *
 * The invariant: what is wrong with the file is found before a byte of it is used, said in one sentence, and ends in
 * packing again; it never ends in a failure to open the model. The content's hash is checked at each start: it costs
 * reading the content once, which the first token would do anyway, and no other way finds a bad sector. A file appears
 * under its name whole or not at all: it is written beside it, synced and renamed. The writer holds a lock, so that two
 * processes do not write one file; who does not get the lock leaves the work to the other. A mapping stays what it was
 * when the name passes to a new file. The hash is none against an enemy: the folder must be one that only trusted users
 * write to, as the model's must. Not taken: a lock for readers, which they need as little as readers of a model do. */
#include "plan/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"

#define MAGIC "TEGPACK"
#define VERSION 1u
#define HEADER_BYTES ((size_t)4096)
#define PIECE_BYTES ((size_t)4 << 20) /* hashed or written at a time */

struct header {
    char magic[8];
    uint32_t version, byte_order; /* 1: as this machine has it */
    uint64_t n_bytes;
    struct teg_hash identity, content;
    struct teg_hash own; /* of all above */
};

void teg_cache_warn(const struct teg_pack_cache *cache, const char *format, ...)
{
    char reason[256];
    struct teg_error err = {0};
    va_list args;
    va_start(args, format);
    (void)vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    (void)teg_base_fail(&err, TEG_ERR_IO, 0, "pack cache: %.160s: %s", cache->path, reason);
    if (cache->warn)
        cache->warn(cache->warn_ctx, err.message);
}

/* ---- the hash of a content: of the hashes of its pieces ---- */

struct hash_job {
    const uint8_t *bytes;
    size_t n_bytes;
    struct teg_hash *pieces;
};

static void hash_piece(void *ctx, size_t slice, size_t worker)
{
    (void)worker;
    const struct hash_job *const job = ctx;
    const size_t begin = slice * PIECE_BYTES;
    job->pieces[slice] = teg_hash_of(job->bytes + begin, teg_min(PIECE_BYTES, job->n_bytes - begin));
}

static bool hash_content(const void *bytes, size_t n_bytes, struct teg_pool *pool, struct teg_hash *hash)
{
    const size_t n = (n_bytes + PIECE_BYTES - 1) / PIECE_BYTES;
    struct teg_arena arena;
    teg_arena_init(&arena, NULL);
    struct hash_job job = {bytes, n_bytes, teg_arena_array(&arena, n, sizeof *job.pieces)};
    if (job.pieces) {
        teg_pool_run(pool, hash_piece, &job, n);
        *hash = teg_hash_of(job.pieces, n * sizeof *job.pieces);
    }
    teg_arena_free(&arena);
    return job.pieces != NULL;
}

static bool same(struct teg_hash a, struct teg_hash b)
{
    return a.high == b.high && a.low == b.low;
}

static struct teg_hash own_hash(const struct header *h)
{
    return teg_hash_of(h, offsetof(struct header, own));
}

/* ---- reading ---- */

#define AGAIN "; the weights are packed again"

/* NULL: fine; else what is wrong. */
static const char *fault_in_header(const struct header *h, struct teg_hash identity, size_t n_bytes)
{
    if (memcmp(h->magic, MAGIC, sizeof h->magic) != 0)
        return "expected packed weights, found another kind of file" AGAIN;
    if (h->version != VERSION || h->byte_order != 1)
        return "expected this program's version of packed weights, found another" AGAIN;
    if (!same(h->own, own_hash(h)))
        return "expected a header that is whole, found a damaged one" AGAIN;
    if (!same(h->identity, identity) || h->n_bytes != n_bytes)
        return "expected weights of this model, program and CPU, found others" AGAIN;
    return NULL;
}

const uint8_t *teg_cache_bytes(const struct teg_filemap *map)
{
    return map->bytes + HEADER_BYTES;
}

static bool is_intact(const struct teg_pack_cache *cache, const struct teg_filemap *map, struct teg_hash identity,
                      size_t n_bytes, struct teg_pool *pool)
{
    struct header h;
    struct teg_hash content = {0};
    if (map->n_bytes < HEADER_BYTES) {
        teg_cache_warn(cache, "expected at least %zu bytes, found %zu" AGAIN, HEADER_BYTES, map->n_bytes);
        return false;
    }
    memcpy(&h, map->bytes, sizeof h);
    const char *const fault = fault_in_header(&h, identity, n_bytes);
    if (fault) {
        teg_cache_warn(cache, "%s", fault);
        return false;
    }
    if (map->n_bytes - HEADER_BYTES != n_bytes) {
        teg_cache_warn(cache, "expected %zu bytes, found %zu" AGAIN, HEADER_BYTES + n_bytes, map->n_bytes);
        return false;
    }
    if (!hash_content(teg_cache_bytes(map), n_bytes, pool, &content) || !same(content, h.content)) {
        teg_cache_warn(cache, "expected the weights that were written, found damage" AGAIN);
        return false;
    }
    return true;
}

bool teg_cache_open(const struct teg_pack_cache *cache, struct teg_hash identity, size_t n_bytes, struct teg_pool *pool,
                    struct teg_filemap *map)
{
    struct teg_filemap found = {0};
    struct teg_error err = {0};
    struct stat st;
    if (stat(cache->path, &st) != 0 && errno == ENOENT)
        return false; /* the first start */
    if (teg_filemap_open(&found, cache->path, "pack cache", &err) != TEG_OK) {
        if (cache->warn)
            cache->warn(cache->warn_ctx, err.message);
        return false;
    }
    if (is_intact(cache, &found, identity, n_bytes, pool)) {
        *map = found;
        return true;
    }
    teg_filemap_close(&found);
    return false;
}

/* ---- writing ---- */

static bool write_bytes(int fd, const void *bytes, size_t n_bytes)
{
    const uint8_t *p = bytes;
    while (n_bytes) {
        const ssize_t n = write(fd, p, n_bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        p += n;
        n_bytes -= (size_t)n;
    }
    return true;
}

/* The name still belongs to the file that is locked: its last writer has not renamed it in between. */
static bool is_ours(int fd, const char *path)
{
    struct stat held, named;
    return fstat(fd, &held) == 0 && S_ISREG(held.st_mode) && stat(path, &named) == 0 && held.st_ino == named.st_ino &&
           held.st_dev == named.st_dev;
}

/* A file system that is too full says so before anything is written. */
static bool reserve(int fd, size_t n_bytes)
{
#if defined(__linux__)
    const int code = posix_fallocate(fd, 0, (off_t)n_bytes);
    if (code != 0 && code != EOPNOTSUPP && code != EINVAL) {
        errno = code;
        return false;
    }
#else
    (void)fd, (void)n_bytes;
#endif
    return true;
}

static bool write_all(int fd, const struct header *h, const uint8_t *bytes, bool (*is_wanted)(void *ctx), void *ctx)
{
    const uint8_t padding[HEADER_BYTES - sizeof *h] = {0};
    bool ok = ftruncate(fd, 0) == 0 && reserve(fd, HEADER_BYTES + (size_t)h->n_bytes) &&
              write_bytes(fd, h, sizeof *h) && write_bytes(fd, padding, sizeof padding);
    for (size_t at = 0; ok && at < h->n_bytes; at += PIECE_BYTES) {
        ok = write_bytes(fd, bytes + at, teg_min(PIECE_BYTES, (size_t)h->n_bytes - at));
        if (ok && !is_wanted(ctx)) {
            errno = EINTR;
            return false;
        }
    }
    return ok && fsync(fd) == 0;
}

/* The rename reaches the disk; where a file system knows no fsync of folders, in its own time. */
static void sync_folder(const char *path)
{
    char folder[4096];
    const char *const slash = strrchr(path, '/');
    const size_t n = slash ? (size_t)(slash - path) + (slash == path) : 1;
    if (n >= sizeof folder)
        return;
    memcpy(folder, slash ? path : ".", n);
    folder[n] = '\0';
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd);
        (void)close(fd);
    }
}

void teg_cache_write(const struct teg_pack_cache *cache, struct teg_hash identity, const void *bytes, size_t n_bytes,
                     struct teg_pool *pool, bool (*is_wanted)(void *ctx), void *is_wanted_ctx)
{
    static const char failed[] = "expected to write %zu bytes, found: %s; the next start packs again";
    struct header h = {.version = VERSION, .byte_order = 1, .n_bytes = n_bytes, .identity = identity};
    char temporary[4096];
    memcpy(h.magic, MAGIC, sizeof h.magic);
    const int n = snprintf(temporary, sizeof temporary, "%s.tmp", cache->path);
    if (n < 0 || (size_t)n >= sizeof temporary || !hash_content(bytes, n_bytes, pool, &h.content)) {
        teg_cache_warn(cache, failed, n_bytes, strerror(ENAMETOOLONG));
        return;
    }
    h.own = own_hash(&h);
    const int fd = open(temporary, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (fd < 0) {
        teg_cache_warn(cache, failed, n_bytes, strerror(errno));
        return;
    }
    const bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
    const int reason = errno;
    if (locked && is_ours(fd, temporary)) {
        if (!write_all(fd, &h, bytes, is_wanted, is_wanted_ctx) || rename(temporary, cache->path) != 0) {
            const int code = errno;
            (void)unlink(temporary);
            if (code != EINTR)
                teg_cache_warn(cache, failed, n_bytes, strerror(code));
        } else {
            sync_folder(cache->path);
        }
    } else if (!locked && reason != EWOULDBLOCK) {
        teg_cache_warn(cache, failed, n_bytes, strerror(reason));
    }
    (void)close(fd);
}
