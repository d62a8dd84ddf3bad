/* convert_parts.c: a model as several packages in one folder, whole layers each, and the tegula.json that joins them.
 *
 * Parts are lowered and written one after the other into a folder with a hidden name, which gets its own when the last
 * is whole; one that is replaced gives its name up in the same step. */
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

static enum teg_status io_fail(const struct teg_convert_job *j, const char *doing, const char *path)
{
    FAIL(j->err, TEG_ERR_IO, "cannot convert: expected to %s '%.160s', found: %s; check the folder's permissions",
         doing, path, strerror(errno));
}

static enum teg_status write_small(const struct teg_convert_job *j, const char *path, const void *bytes, size_t n_bytes)
{
    FILE *const f = fopen(path, "wb");
    const bool is_written = f && fwrite(bytes, 1, n_bytes, f) == n_bytes && fflush(f) == 0 && fsync(fileno(f)) == 0;
    const bool is_closed = f && fclose(f) == 0;
    return is_written && is_closed ? TEG_OK : io_fail(j, "write", path);
}

/* tegula.json: docs/FORMATS.md. */
static enum teg_status write_join(const struct teg_convert_job *j, const char *folder, uint32_t n)
{
    struct teg_buf out = {0};
    struct teg_text text = {0};
    const char *const path = teg_arena_printf((struct teg_arena *)&j->in.arena, "%s/tegula.json", folder);
    teg_buf_printf(&out, "{\n  \"format\": 1,\n  \"context\": %u,\n  \"chunk\": %u,\n", j->lower.context,
                   j->lower.chunk);
    if (j->in.n_items)
        teg_buf_printf(&out, "  \"tokenizer\": \"%s\",\n", j->in.items[0].name);
    teg_buf_puts(&out, "  \"parts\": [\n");
    for (uint32_t i = 0; i < n; i++)
        teg_buf_printf(&out,
                       "    {\"path\": \"part-%u.mlpackage\", \"functions\": {\"prefill\": \"prefill\", \"decode\": "
                       "\"decode\"}}%s\n",
                       i + 1, i + 1 < n ? "," : "");
    teg_buf_puts(&out, "  ]\n}\n");
    TRY(teg_buf_take(&out, &text, "tegula.json", j->err));
    const enum teg_status status =
        path ? write_small(j, path, text.bytes, text.n_bytes) : teg_base_fail_memory(j->err, "path", 0);
    teg_text_free(&text);
    return status;
}

static enum teg_status write_parts_into(struct teg_convert_job *j, const char *folder)
{
    uint32_t first[TEG_CONVERT_MOST_PARTS], n = 0;
    TRY(teg_lower_parts(j->in.graph, &j->lower, j->o.part_bytes, j->o.n_parts, first, TEG_CONVERT_MOST_PARTS, &n,
                        j->err));
    const uint32_t n_layers = teg_lower_n_layers(j->in.graph);
    for (uint32_t i = 0; i < n; i++) {
        const char *const path = teg_arena_printf(&j->in.arena, "%s/part-%u.mlpackage", folder, i + 1);
        if (!path)
            return teg_base_fail_memory(j->err, "path", strlen(folder));
        j->lower.first_layer = first[i];
        j->lower.n_layers = (i + 1 < n ? first[i + 1] : n_layers) - first[i];
        TRY(teg_convert_write(j, path));
    }
    for (size_t i = 0; i < j->in.n_items; i++) {
        const struct teg_emit_item *const item = &j->in.items[i];
        const char *const path = teg_arena_printf(&j->in.arena, "%s/%s", folder, item->name);
        if (!path)
            return teg_base_fail_memory(j->err, "path", strlen(folder));
        TRY(write_small(j, path, item->bytes.bytes, item->bytes.n_bytes));
    }
    return write_join(j, folder, n);
}

bool teg_convert_is_parts(const char *path)
{
    char join[4096];
    struct stat st;
    const int n = snprintf(join, sizeof join, "%s/tegula.json", path);
    return n > 0 && (size_t)n < sizeof join && stat(join, &st) == 0 && S_ISREG(st.st_mode);
}

static void remove_folder(const char *path)
{
    (void)nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* The folder has no other name than a hidden one until all parts are whole. */
enum teg_status teg_convert_write_parts(struct teg_convert_job *j)
{
    struct stat st;
    size_t n = strlen(j->output);
    while (n > 1 && j->output[n - 1] == '/')
        n--;
    const char *const target = teg_arena_string(&j->in.arena, j->output, n);
    const char *const hidden = teg_arena_printf(&j->in.arena, "%.*s.%ld.tmp", (int)n, j->output, (long)getpid());
    if (!hidden || !target)
        return teg_base_fail_memory(j->err, "path", n);
    if (mkdir(hidden, 0777) != 0)
        return io_fail(j, "make folder", hidden);
    enum teg_status status = write_parts_into(j, hidden);
    const bool is_there = lstat(target, &st) == 0;
    if (status == TEG_OK && (is_there ? !teg_emit_swap(hidden, target) : rename(hidden, target) != 0))
        status = io_fail(j, "rename to", target);
    if (status != TEG_OK || is_there)
        remove_folder(hidden);
    return status;
}
