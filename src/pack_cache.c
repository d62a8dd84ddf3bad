/* pack_cache.c: which file holds a model's packed weights, and what says that the model's files are the same.
 *
 * The name comes from where the model lies and which kernel the weights are packed for, so a model that changed writes
 * over its old cache, and nothing piles up. What the file must match comes from the model's files: of each its size,
 * its times of writing and of change, device and inode; of a folder, those of all files in it; of a split set, of all
 * its parts. plan/pack.c compares some of the weights besides. Not taken: a hash of the whole model. It would read all
 * of the source at each start, and so hold in the page cache what packing has just replaced. The price: a copy of a
 * model has a cache of its own, and a touched file is packed again. */
#include "pack_cache.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"

#define ENDING ".tegpack"
enum { MOST_DEPTH = 6, MOST_FILES = 10000 };

struct stamps {
    struct teg_hash sum; /* of all files, in whatever order the folder lists them */
    size_t n_files;
    bool failed;
};

static bool ends_with(const char *text, const char *ending)
{
    const size_t n = strlen(text), k = strlen(ending);
    return n >= k && strcmp(text + n - k, ending) == 0;
}

static void stamp_file(const char *path, const struct stat *st, struct stamps *stamps)
{
    struct teg_hasher h;
#if defined(__APPLE__)
    const struct timespec written = st->st_mtimespec, changed = st->st_ctimespec;
#else
    const struct timespec written = st->st_mtim, changed = st->st_ctim;
#endif
    const int64_t facts[] = {(int64_t)st->st_size,    (int64_t)written.tv_sec,  (int64_t)written.tv_nsec,
                             (int64_t)changed.tv_sec, (int64_t)changed.tv_nsec, (int64_t)st->st_dev,
                             (int64_t)st->st_ino};
    teg_hasher_init(&h);
    teg_hasher_add(&h, path, strlen(path));
    teg_hasher_add(&h, facts, sizeof facts);
    const struct teg_hash one = teg_hasher_end(&h);
    stamps->sum.high += one.high;
    stamps->sum.low += one.low;
    stamps->failed |= ++stamps->n_files > MOST_FILES;
}

static void stamp(const char *path, int depth, struct stamps *stamps)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        stamps->failed |= depth == 0; /* below: a link to nothing, which is not read either */
        return;
    }
    if (S_ISREG(st.st_mode))
        stamp_file(path, &st, stamps);
    if (!S_ISDIR(st.st_mode))
        return;
    DIR *const folder = depth < MOST_DEPTH ? opendir(path) : NULL;
    stamps->failed |= !folder;
    for (const struct dirent *d; !stamps->failed && (d = readdir(folder)) != NULL;) {
        char below[4096];
        if (d->d_name[0] == '.' || ends_with(d->d_name, ENDING) || ends_with(d->d_name, ENDING ".tmp"))
            continue;
        const int n = snprintf(below, sizeof below, "%s/%s", path, d->d_name);
        stamps->failed |= n < 0 || (size_t)n >= sizeof below;
        if (!stamps->failed)
            stamp(below, depth + 1, stamps);
    }
    if (folder)
        (void)closedir(folder);
}

/* "…-00002-of-00003.gguf" is a set: all of its parts. */
static bool stamp_split(const char *path, struct stamps *stamps)
{
    char part[4096];
    unsigned number = 0, of = 0;
    int end = 0;
    const size_t n = strlen(path), tail = strlen("-00001-of-00001.gguf");
    if (n < tail || n >= sizeof part || sscanf(path + n - tail, "-%5u-of-%5u.gguf%n", &number, &of, &end) != 2 ||
        (size_t)end != tail || of > MOST_FILES)
        return false;
    for (unsigned i = 1; i <= of; i++) {
        (void)snprintf(part, sizeof part, "%.*s-%05u-of-%05u.gguf", (int)(n - tail), path, i, of);
        stamp(part, 0, stamps);
    }
    return true;
}

/* A folder's tegula.json stands for the folder. */
static const char *stamped_path(const char *real, struct teg_arena *arena)
{
    const char *const name = strrchr(real, '/');
    return name && strcmp(name, "/tegula.json") == 0 ? teg_arena_string(arena, real, (size_t)(name - real)) : real;
}

/* DIR/NAME-0123456789abcdef.tegpack; letters that a shell would mind become '_'. */
static char *file_of(const char *dir, const char *real, const char *kernel, struct teg_arena *arena)
{
    struct teg_hasher h;
    char name[65];
    const char *const base = strrchr(real, '/') ? strrchr(real, '/') + 1 : real;
    size_t n = 0;
    for (; base[n] && n < sizeof name - 1; n++) {
        const unsigned char c = (unsigned char)base[n];
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
                           c == '-' || c >= 128;
        name[n] = plain ? (char)c : '_';
    }
    name[n] = '\0';
    teg_hasher_init(&h);
    teg_hasher_add(&h, real, strlen(real) + 1);
    teg_hasher_add(&h, kernel, strlen(kernel));
    return teg_arena_printf(arena, "%s/%s-%016llx" ENDING, dir, name, (unsigned long long)teg_hasher_end(&h).low);
}

/* errno says why not. */
static bool make_folder(const char *path)
{
    struct stat st;
    if (mkdir(path, 0777) == 0)
        return true;
    if (errno != EEXIST || stat(path, &st) != 0)
        return false;
    errno = ENOTDIR;
    return S_ISDIR(st.st_mode);
}

static void none(struct teg_pack_cache *cache, const char *dir, const char *reason)
{
    struct teg_error text = {0};
    (void)teg_base_fail(&text, TEG_ERR_IO, 0, "pack cache: %.200s: expected %s; the model opens without a cache", dir,
                        reason);
    if (cache->warn)
        cache->warn(cache->warn_ctx, text.message);
}

enum teg_status teg_pack_cache_of(const char *path, const struct teg_model_options *o, const struct teg_plan *plan,
                                  struct teg_arena *arena, struct teg_pack_cache *cache, struct teg_error *err)
{
    struct stamps stamps = {0};
    char reason[128];
    *cache = (struct teg_pack_cache){.warn = o->on_warning, .warn_ctx = o->on_warning_ctx};
    if (!o->pack_cache_dir || !plan->gemm)
        return TEG_OK;
    if (!make_folder(o->pack_cache_dir)) {
        (void)snprintf(reason, sizeof reason, "a folder to write to, found: %.60s", strerror(errno));
        none(cache, o->pack_cache_dir, reason);
        return TEG_OK;
    }
    char *const real = realpath(path, NULL);
    const char *const copy = real ? teg_arena_string(arena, real, strlen(real)) : NULL;
    const char *const stamped = copy ? stamped_path(copy, arena) : NULL;
    const bool no_memory = real && !stamped;
    free(real);
    if (no_memory)
        return teg_base_fail_memory(err, "path", strlen(path));
    if (!stamped || (!stamp_split(stamped, &stamps) && (stamp(stamped, 0, &stamps), stamps.failed)) || stamps.failed) {
        (void)snprintf(reason, sizeof reason, "at most %d files of a model in %d levels, found others", MOST_FILES,
                       MOST_DEPTH);
        none(cache, path, reason);
        return TEG_OK;
    }
    cache->source = stamps.sum;
    cache->path = file_of(o->pack_cache_dir, copy, plan->gemm->name, arena);
    return cache->path ? TEG_OK : teg_base_fail_memory(err, "path", strlen(path));
}
