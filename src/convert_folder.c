/* convert_folder.c: a folder that has its name when it is whole, for models in parts.
 *
 * It is filled under a hidden name beside the target; one that is there already gives its name up in the same step as
 * the new one takes it. A process that is killed leaves the hidden folder, never half a target. */
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "convert_model.h"

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static enum teg_status io_fail(const struct teg_convert_folder *f, const char *doing, const char *path)
{
    FAIL(f->err, TEG_ERR_IO, "cannot %s: expected to %s '%.160s', found: %s; check the folder's permissions", f->verb,
         doing, path, strerror(errno));
}

enum teg_status teg_convert_folder_begin(struct teg_convert_folder *f, const char *output, struct teg_arena *arena)
{
    size_t n = strlen(output);
    while (n > 1 && output[n - 1] == '/')
        n--;
    f->arena = arena;
    f->target = teg_arena_string(arena, output, n);
    f->hidden = teg_arena_printf(arena, "%.*s.%ld.tmp", (int)n, output, (long)getpid());
    if (!f->hidden || !f->target)
        return teg_base_fail_memory(f->err, "path", n);
    return mkdir(f->hidden, 0777) == 0 ? TEG_OK : io_fail(f, "make folder", f->hidden);
}

const char *teg_convert_folder_path(const struct teg_convert_folder *f, const char *name)
{
    return teg_arena_printf(f->arena, "%s/%s", f->hidden, name);
}

enum teg_status teg_convert_folder_write(const struct teg_convert_folder *f, const char *name, const void *bytes,
                                         size_t n_bytes)
{
    const char *const path = teg_convert_folder_path(f, name);
    if (!path)
        return teg_base_fail_memory(f->err, "path", strlen(name));
    FILE *const file = fopen(path, "wb");
    const bool is_written =
        file && fwrite(bytes, 1, n_bytes, file) == n_bytes && fflush(file) == 0 && fsync(fileno(file)) == 0;
    const bool is_closed = file && fclose(file) == 0;
    return is_written && is_closed ? TEG_OK : io_fail(f, "write", path);
}

enum teg_status teg_convert_folder_end(const struct teg_convert_folder *f, enum teg_status status)
{
    struct stat st;
    const bool is_there = lstat(f->target, &st) == 0;
    if (status == TEG_OK && (is_there ? !teg_emit_swap(f->hidden, f->target) : rename(f->hidden, f->target) != 0))
        status = io_fail(f, "rename to", f->target);
    if (status != TEG_OK || is_there)
        (void)nftw(f->hidden, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    return status;
}

bool teg_convert_is_parts(const char *path)
{
    char join[4096];
    struct stat st;
    const int n = snprintf(join, sizeof join, "%s/tegula.json", path);
    return n > 0 && (size_t)n < sizeof join && stat(join, &st) == 0 && S_ISREG(st.st_mode);
}

enum teg_status teg_convert_check_output(const char *verb, const char *output, bool in_parts, bool replace,
                                         struct teg_error *err)
{
    static const char ending[] = ".mlpackage";
    const size_t k = sizeof ending - 1;
    struct stat st;
    size_t n = strlen(output);
    while (n > 1 && output[n - 1] == '/')
        n--;
    const bool is_package = n > k && memcmp(output + n - k, ending, k) == 0;
    if (is_package == in_parts)
        FAIL(err, TEG_ERR_ARGUMENT, "cannot %s: %.160s: expected %s, found another name; choose one", verb, output,
             in_parts ? "the name of a folder for the parts, without .mlpackage" : "a name that ends in .mlpackage");
    const bool is_there = lstat(output, &st) == 0;
    if (is_there && in_parts && !teg_convert_is_parts(output))
        FAIL(err, TEG_ERR_ARGUMENT,
             "cannot %s: %.160s: expected no file or folder of that name for the parts, or one that holds parts, "
             "found another; remove it",
             verb, output);
    if (is_there && !replace)
        FAIL(err, TEG_ERR_ARGUMENT,
             "cannot %s: %.160s: expected no file of that name, found one; remove it, or allow replacing (--force)",
             verb, output);
    return TEG_OK;
}
