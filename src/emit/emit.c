/* emit/emit.c: the package as a folder.
 *
 *   Manifest.json
 *   Data/com.apple.CoreML/model.mlmodel
 *   Data/com.apple.CoreML/weights/weight.bin       where there are weights
 *   Data/tegula/NAME                               files that go along
 *
 * Everything is written into a hidden folder beside the target and reaches the disk before the folder gets the target's
 * name, in one rename. What is written is opened once before that: a package that our own reader refuses is a fault of
 * ours and must not replace a good one. Identifiers in the manifest follow from the content.
 *
 * Not taken: writing into the target and deleting it on failure. A process that is killed deletes nothing. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif

#include "base/text.h"
#include "emit/emit_int.h"

#define MODEL_DIR "Data/com.apple.CoreML"

/* ---- failing ---- */

enum teg_status teg_emit_fail(const struct teg_emitter *e, enum teg_status status, const char *format, ...)
{
    enum { LONGEST_PATH = 160 };
    char text[sizeof e->err->message];
    va_list args;
    va_start(args, format);
    if (vsnprintf(text, sizeof text, format, args) < 0)
        text[0] = '\0';
    va_end(args);
    const size_t n = strlen(e->path);
    return teg_base_fail(e->err, status, 0, "cannot write package: %s%s: %s", n > LONGEST_PATH ? "..." : "",
                         e->path + (n > LONGEST_PATH ? n - LONGEST_PATH : 0), text);
}

enum teg_status teg_emit_no_memory(const struct teg_emitter *e, size_t n_bytes)
{
    return teg_base_fail_memory(e->err, "package", n_bytes);
}

static enum teg_status io_fail(const struct teg_emitter *e, const char *doing, const char *name)
{
    EMIT_FAIL(e, TEG_ERR_IO, "expected to %s '%.60s', found: %s; check the folder's permissions and free space", doing,
              name, strerror(errno));
}

/* ---- files ---- */

struct folder {
    struct teg_emitter *e;
    const char *path; /* of the hidden folder; NULL: not made yet */
};

static const char *join(const struct folder *f, const char *name)
{
    return teg_arena_printf(&f->e->arena, "%s/%s", f->path, name);
}

static enum teg_status make_dir(const struct folder *f, const char *name)
{
    const char *const path = join(f, name);
    if (!path)
        return teg_emit_no_memory(f->e, strlen(name));
    return mkdir(path, 0777) == 0 ? TEG_OK : io_fail(f->e, "make folder", name);
}

static enum teg_status sync_dir(const struct folder *f, const char *name)
{
    const char *const path = join(f, name);
    const int fd = path ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (!path)
        return teg_emit_no_memory(f->e, strlen(name));
    /* Some file systems know no fsync of a folder. */
    const bool is_synced = fd >= 0 && (fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP);
    if (fd >= 0)
        (void)close(fd);
    return is_synced ? TEG_OK : io_fail(f->e, "sync folder", name);
}

struct file {
    const struct folder *folder;
    const char *name;
    int fd;
    enum teg_status status; /* of the first failure */
    size_t n_held;
    uint8_t held[1 << 16];
};

static enum teg_status open_file(const struct folder *f, const char *name, struct file *file)
{
    const char *const path = join(f, name);
    file->folder = f;
    file->name = name;
    file->status = TEG_OK;
    file->n_held = 0;
    if (!path)
        return teg_emit_no_memory(f->e, strlen(name));
    file->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return file->fd >= 0 ? TEG_OK : io_fail(f->e, "make file", name);
}

static bool flush_file(struct file *file)
{
    const uint8_t *p = file->held;
    for (size_t left = file->n_held; left && file->status == TEG_OK;) {
        const ssize_t n = write(file->fd, p, left);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            errno = n ? errno : ENOSPC;
            file->status = io_fail(file->folder->e, "write file", file->name);
            break;
        }
        p += n;
        left -= (size_t)n;
    }
    file->n_held = 0;
    return file->status == TEG_OK;
}

/* A sink of teg_wire_out. */
static bool put_file(void *ctx, const void *bytes, size_t n_bytes)
{
    struct file *const file = ctx;
    const uint8_t *p = bytes;
    teg_hasher_add(&file->folder->e->content, bytes, n_bytes);
    while (n_bytes) {
        const size_t room = sizeof file->held - file->n_held;
        const size_t n = n_bytes < room ? n_bytes : room;
        memcpy(file->held + file->n_held, p, n);
        file->n_held += n;
        p += n;
        n_bytes -= n;
        if (file->n_held == sizeof file->held && !flush_file(file))
            return false;
    }
    return true;
}

/* To the disk, and closed whatever the result. */
static enum teg_status close_file(struct file *file)
{
    (void)flush_file(file);
    if (file->status == TEG_OK && fsync(file->fd) != 0)
        file->status = io_fail(file->folder->e, "sync file", file->name);
    if (close(file->fd) != 0 && file->status == TEG_OK)
        file->status = io_fail(file->folder->e, "close file", file->name);
    return file->status;
}

static enum teg_status write_file(const struct folder *f, const char *name, const void *bytes, size_t n_bytes)
{
    struct file file;
    TRY(open_file(f, name, &file));
    (void)put_file(&file, bytes, n_bytes);
    return close_file(&file);
}

/* ---- the parts ---- */

static enum teg_status write_weights(const struct folder *f)
{
    struct file file;
    TRY(make_dir(f, MODEL_DIR "/weights"));
    TRY(open_file(f, MODEL_DIR "/weights/weight.bin", &file));
    file.status = teg_emit_weights(f->e, file.fd);
    TRY(close_file(&file));
    if (f->e->report.n_blobs)
        return sync_dir(f, MODEL_DIR "/weights");
    const char *const path = join(f, MODEL_DIR "/weights/weight.bin"), *const dir = join(f, MODEL_DIR "/weights");
    if (!path || !dir)
        return teg_emit_no_memory(f->e, 0);
    return unlink(path) == 0 && rmdir(dir) == 0 ? TEG_OK : io_fail(f->e, "remove", "weights");
}

static enum teg_status write_spec(const struct folder *f)
{
    struct teg_wire_out w = {0};
    struct file file;
    enum teg_status status = teg_emit_model(f->e, &w);
    const uint64_t n_bytes = w.n_bytes;
    if (status == TEG_OK && w.failed)
        status = teg_emit_no_memory(f->e, (size_t)n_bytes);
    if (status == TEG_OK && n_bytes > INT32_MAX)
        status = teg_emit_fail(f->e, TEG_ERR_UNSUPPORTED,
                               "expected a specification below 2 GiB, found one of %llu bytes; split the model",
                               (unsigned long long)n_bytes);
    if (status == TEG_OK)
        status = open_file(f, MODEL_DIR "/model.mlmodel", &file);
    if (status == TEG_OK) {
        teg_wire_out_rewind(&w, put_file, &file);
        status = teg_emit_model(f->e, &w);
        if (status == TEG_OK && file.status == TEG_OK && (w.failed || w.n_bytes != n_bytes))
            status = teg_emit_fail(f->e, TEG_ERR_ARGUMENT, "expected two equal runs, found a program that changed");
        const enum teg_status closed = close_file(&file);
        status = status == TEG_OK ? closed : status;
    }
    teg_wire_out_free(&w);
    f->e->report.spec_bytes = n_bytes;
    return status;
}

static enum teg_status write_items(const struct folder *f)
{
    const struct teg_emit_options *const o = f->e->options;
    if (!o->n_items)
        return TEG_OK;
    TRY(make_dir(f, "Data/" TEG_EMIT_AUTHOR));
    for (size_t i = 0; i < o->n_items; i++) {
        const char *const name = teg_arena_printf(&f->e->arena, "Data/" TEG_EMIT_AUTHOR "/%s", o->items[i].name);
        if (!name)
            return teg_emit_no_memory(f->e, 0);
        TRY(write_file(f, name, o->items[i].bytes.bytes, o->items[i].bytes.n_bytes));
    }
    return sync_dir(f, "Data/" TEG_EMIT_AUTHOR);
}

/* ---- manifest ---- */

/* RFC 9562 version 8: bits of our own making. */
static void print_id(const struct teg_emitter *e, const char *of, char id[37])
{
    struct teg_hasher h = e->content;
    teg_hasher_add(&h, of, strlen(of));
    const struct teg_hash hash = teg_hasher_end(&h);
    (void)snprintf(id, 37, "%08X-%04X-8%03X-%04X-%012llX", (unsigned)(hash.high >> 32),
                   (unsigned)(hash.high >> 16) & 0xffff, (unsigned)hash.high & 0xfff,
                   ((unsigned)(hash.low >> 48) & 0x3fff) | 0x8000, (unsigned long long)hash.low & 0xffffffffffffu);
}

static void put_item(struct teg_buf *out, const struct teg_emitter *e, const char *author, const char *name,
                     const char *description)
{
    char id[37];
    print_id(e, name, id);
    teg_buf_printf(out, "        \"%s\": {\n            \"author\": \"%s\",\n            \"description\": ", id,
                   author);
    teg_buf_json_string(out, description, strlen(description));
    teg_buf_puts(out, ",\n            \"name\": ");
    teg_buf_json_string(out, name, strlen(name));
    teg_buf_printf(out, ",\n            \"path\": \"%s/%s\"\n        }", author, name);
}

static enum teg_status write_manifest(const struct folder *f)
{
    static const char apple[] = "com.apple.CoreML";
    const struct teg_emit_options *const o = f->e->options;
    struct teg_buf out = {0};
    struct teg_text text = {0};
    char root[37];
    print_id(f->e, "model.mlmodel", root);
    teg_buf_puts(&out, "{\n    \"fileFormatVersion\": \"1.0.0\",\n    \"itemInfoEntries\": {\n");
    put_item(&out, f->e, apple, "model.mlmodel", "CoreML Model Specification");
    if (f->e->report.n_blobs) {
        teg_buf_puts(&out, ",\n");
        put_item(&out, f->e, apple, "weights", "CoreML Model Weights");
    }
    for (size_t i = 0; i < o->n_items; i++) {
        teg_buf_puts(&out, ",\n");
        put_item(&out, f->e, TEG_EMIT_AUTHOR, o->items[i].name, o->items[i].description);
    }
    teg_buf_printf(&out, "\n    },\n    \"rootModelIdentifier\": \"%s\"\n}\n", root);
    TRY(teg_buf_take(&out, &text, "manifest", f->e->err));
    const enum teg_status status = write_file(f, "Manifest.json", text.bytes, text.n_bytes);
    teg_text_free(&text);
    return status;
}

/* ---- from the hidden name to the target's ---- */

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static void remove_tree(const char *path)
{
    (void)nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* In one step where the system can; elsewhere the old one steps aside, and for a moment there is none. */
bool teg_emit_swap(const char *fresh, const char *target)
{
    char aside[4096];
#if defined(__linux__) && defined(SYS_renameat2)
    enum { EXCHANGE = 2 };
    if (syscall(SYS_renameat2, AT_FDCWD, fresh, AT_FDCWD, target, EXCHANGE) == 0)
        return true;
#elif defined(__APPLE__)
    if (renamex_np(fresh, target, RENAME_SWAP) == 0)
        return true;
#endif
    const int n = snprintf(aside, sizeof aside, "%s-old", fresh);
    if (n < 0 || (size_t)n >= sizeof aside || rename(target, aside) != 0)
        return false;
    if (rename(fresh, target) != 0) {
        const int why = errno;
        (void)rename(aside, target);
        errno = why;
        return false;
    }
    (void)rename(aside, fresh);
    return true;
}

static enum teg_status publish(struct folder *f)
{
    struct stat st;
    const char *const target = f->e->path;
    const bool is_there = lstat(target, &st) == 0;
    if (is_there && !f->e->options->replace)
        EMIT_FAIL(f->e, TEG_ERR_ARGUMENT,
                  "expected no file of that name, found one that came meanwhile; remove it, or allow replacing");
    if (is_there ? !teg_emit_swap(f->path, target) : rename(f->path, target) != 0)
        return io_fail(f->e, "rename to", target);
    if (is_there)
        remove_tree(f->path); /* the old one has the hidden name now */
    f->path = NULL;
    return TEG_OK;
}

/* The folder that holds the target: after the rename, its entry is on the disk too. */
static void sync_parent(const struct teg_emitter *e)
{
    const char *const slash = strrchr(e->path, '/');
    const char *const parent = !slash             ? "."
                               : slash == e->path ? "/"
                                                  : teg_arena_printf(&((struct teg_emitter *)e)->arena, "%.*s",
                                                                     (int)(slash - e->path), e->path);
    const int fd = parent ? open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        (void)fsync(fd); /* the package is whole either way */
        (void)close(fd);
    }
}

/* ---- all ---- */

/* What --force may delete: a package, a link to one, an empty folder. */
static bool may_replace(const struct teg_emitter *e, const struct stat *st)
{
    const char *const manifest = teg_arena_printf((struct teg_arena *)&e->arena, "%s/Manifest.json", e->path);
    bool is_empty = true;
    if (S_ISLNK(st->st_mode))
        return true;
    if (!S_ISDIR(st->st_mode) || !manifest)
        return false;
    if (access(manifest, F_OK) == 0)
        return true;
    DIR *const dir = opendir(e->path);
    for (const struct dirent *entry; dir && is_empty && (entry = readdir(dir));)
        is_empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    if (dir)
        (void)closedir(dir);
    return dir && is_empty;
}

static enum teg_status check_target(const struct teg_emitter *e)
{
    static const char ending[] = ".mlpackage";
    struct stat st;
    const size_t n = strlen(e->path), k = sizeof ending - 1;
    const char *const slash = strrchr(e->path, '/');
    const char *const name = slash ? slash + 1 : e->path;
    if (n < k || strcmp(e->path + n - k, ending) != 0 || strlen(name) <= k)
        EMIT_FAIL(e, TEG_ERR_ARGUMENT, "expected a name that ends in .mlpackage, found another");
    if (lstat(e->path, &st) != 0)
        return TEG_OK;
    if (!e->options->replace)
        EMIT_FAIL(e, TEG_ERR_ARGUMENT,
                  "expected no file of that name, found one; remove it, or allow replacing "
                  "(--force)");
    if (!may_replace(e, &st))
        EMIT_FAIL(e, TEG_ERR_ARGUMENT,
                  "expected a package to replace, found a file or folder that is none; remove it yourself");
    return TEG_OK;
}

static enum teg_status make_folder(struct folder *f)
{
    enum { MOST_TRIES = 100 };
    const char *const path = f->e->path, *const slash = strrchr(path, '/');
    const int n = slash ? (int)(slash - path) + 1 : 0;
    for (unsigned i = 0; i < MOST_TRIES; i++) {
        const char *const hidden =
            teg_arena_printf(&f->e->arena, "%.*s.%s.%ld-%u.tmp", n, path, path + n, (long)getpid(), i);
        if (!hidden)
            return teg_emit_no_memory(f->e, strlen(path));
        if (mkdir(hidden, 0777) == 0) {
            f->path = hidden;
            return TEG_OK;
        }
        if (errno != EEXIST)
            break;
    }
    return io_fail(f->e, "make a folder beside", path);
}

/* By our own reader. */
static enum teg_status verify(const struct folder *f)
{
    struct teg_mil_program *program = NULL;
    TRY(teg_mil_open(f->path, f->e->arena.allocator, &program, f->e->err));
    teg_mil_free(program);
    return TEG_OK;
}

static enum teg_status write_all(struct folder *f)
{
    TRY(make_folder(f));
    TRY(make_dir(f, "Data"));
    TRY(make_dir(f, MODEL_DIR));
    TRY(write_weights(f));
    TRY(write_spec(f));
    TRY(sync_dir(f, MODEL_DIR));
    TRY(write_items(f));
    TRY(write_manifest(f));
    TRY(sync_dir(f, "Data"));
    TRY(sync_dir(f, "."));
    TRY(verify(f));
    TRY(publish(f));
    sync_parent(f->e);
    return TEG_OK;
}

enum teg_status teg_emit_package(const struct teg_mil_program *program, const char *path,
                                 const struct teg_emit_options *options, struct teg_emit_report *report,
                                 struct teg_error *err)
{
    static const struct teg_emit_options none = {0};
    struct teg_emitter e = {.program = program, .options = options ? options : &none, .path = path, .err = err};
    struct folder f = {&e, NULL};
    size_t n = strlen(path);
    teg_arena_init(&e.arena, e.options->allocator);
    teg_hasher_init(&e.content);
    while (n > 1 && path[n - 1] == '/')
        n--;
    enum teg_status status = TEG_OK;
    e.path = teg_arena_string(&e.arena, path, n);
    if (!e.path)
        status = teg_base_fail_memory(err, "package", n);
    if (status == TEG_OK)
        status = check_target(&e);
    if (status == TEG_OK)
        status = teg_emit_find_places(&e);
    if (status == TEG_OK)
        status = write_all(&f);
    if (f.path)
        remove_tree(f.path);
    if (status == TEG_OK && report)
        *report = e.report;
    teg_arena_free(&e.arena);
    return status;
}
