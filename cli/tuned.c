/* tuned.c: one small JSON file for each model and CPU, in the cache folder of the user.
 *
 * A model is known by its shape and the bytes of its weights, not by its path: a copy runs at the same speed. Writing
 * is to a temporary file that is renamed, so a reader sees the old entries or the new ones. */
#include "tuned.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench.h"
#include "io.h"

/* FNV-1a. */
static uint64_t hash_text(uint64_t hash, const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash;
}

void cli_tuned_path(const struct teg_model *model, char path[4096])
{
    const struct teg_model_info *info = teg_model_info(model);
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char text[1024], cpu[256];
    path[0] = '\0';
    if ((!cache || cache[0] != '/') && (!home || home[0] != '/'))
        return;
    snprintf(text, sizeof(text), "%s|%s|%s|%s|%llu|%llu|%u|%u|%zu", bench_cpu_name(cpu), info->architecture, info->name,
             info->mode, (unsigned long long)info->n_parameters, (unsigned long long)info->weights_bytes,
             info->n_layers, info->width, cli_cpus());
    const char *const base = cache && cache[0] == '/' ? cache : home;
    snprintf(path, 4096, "%s%s/tegula/tune/%016llx.json", base, base == cache ? "" : "/.cache",
             (unsigned long long)hash_text(0xcbf29ce484222325u, text));
}

static int64_t field(const json_t *entry, const char *name)
{
    return json_integer_value(json_object_get(entry, name));
}

bool cli_tuned_load(const struct teg_model *model, int64_t ctx, struct cli_tuned *tuned)
{
    char path[4096];
    cli_tuned_path(model, path);
    json_t *list = path[0] ? json_load_file(path, 0, NULL) : NULL;
    const json_t *best = NULL;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        const int64_t chunk = field(entry, "chunk"), threads = field(entry, "threads"), here = field(entry, "ctx");
        if (chunk < 1 || chunk > 65536 || threads < 1 || threads > 256)
            continue;
        const int64_t kept = best ? field(best, "ctx") : 0;
        if (!best || (kept < ctx ? here > kept : here >= ctx && here < kept))
            best = entry;
    }
    if (best)
        *tuned = (struct cli_tuned){field(best, "ctx"), field(best, "chunk"), field(best, "threads")};
    json_decref(list);
    return best != NULL;
}

/* Makes the folders of a path. */
static void make_folders(const char *path)
{
    char part[4096];
    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        memcpy(part, path, (size_t)(slash - path));
        part[slash - path] = '\0';
        (void)mkdir(part, 0777); /* what is missing in the end shows when the file is written */
    }
}

int cli_tuned_save(const struct teg_model *model, const struct cli_tuned *tuned)
{
    char path[4096], temporary[4096 + 32];
    cli_tuned_path(model, path);
    if (!path[0])
        return cli_fail(
            "cannot remember: tegula tune: expected XDG_CACHE_HOME or HOME to name a folder, found neither; "
            "set one");
    json_t *list = json_load_file(path, 0, NULL);
    if (!json_is_array(list)) {
        json_decref(list);
        list = json_array();
    }
    for (size_t i = json_array_size(list); i-- > 0;)
        if (field(json_array_get(list, i), "ctx") == tuned->ctx)
            json_array_remove(list, i);
    json_array_append_new(list, json_pack("{s:I, s:I, s:I, s:s}", "ctx", (json_int_t)tuned->ctx, "chunk",
                                          (json_int_t)tuned->chunk, "threads", (json_int_t)tuned->threads, "model",
                                          teg_model_info(model)->name));
    make_folders(path);
    snprintf(temporary, sizeof(temporary), "%s.%ld", path, (long)getpid());
    const bool written = json_dump_file(list, temporary, JSON_COMPACT) == 0 && rename(temporary, path) == 0;
    const int reason = errno;
    json_decref(list);
    if (written)
        return CLI_DONE;
    (void)unlink(temporary);
    return cli_fail("cannot remember: %s: expected to write it, found: %s; check the folder", path, strerror(reason));
}
