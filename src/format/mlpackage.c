/* format/mlpackage.c: see mlpackage.h. Manifest and paths; blob storage is in blob.c.
 *
 * Every path that is opened has been resolved by the operating system and lies under the resolved root: that covers
 * "..", absolute names and links in one rule. Names that could only be meant to escape are refused before, because
 * their message can be clearer. A file that is exchanged for a link between the check and the opening is not defended
 * against: who can write into the package can change the weights as well. */
#include "format/mlpackage.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/filemap.h"
#include "format/impl.h"
#include "format/json.h"

static const char what[] = "Core ML package";

struct teg_mlpackage_file {
    const char *name; /* resolved path */
    struct teg_filemap map;
    struct teg_mlpackage_file *next;
};

/* ---- paths ---- */

static bool has_dotdot(const char *path)
{
    for (const char *p = path; p; p = strchr(p, '/')) {
        p += *p == '/';
        if (p[0] == '.' && p[1] == '.' && (p[2] == '/' || !p[2]))
            return true;
    }
    return false;
}

static bool is_inside(const char *root, const char *path)
{
    const size_t n = strlen(root);
    return strncmp(root, path, n) == 0 && (path[n] == '/' || !path[n]);
}

/* realpath into the arena; NULL with errno. */
static const char *resolve(struct teg_arena *arena, const char *path)
{
    char *const real = realpath(path, NULL);
    if (!real)
        return NULL;
    const char *const copy = teg_arena_string(arena, real, strlen(real));
    free(real);
    if (!copy)
        errno = ENOMEM;
    return copy;
}

static enum teg_status refuse_name(const struct teg_mlpackage *package, const char *path, struct teg_error *err)
{
    if (path[0] == '/' || has_dotdot(path) || !path[0])
        FAIL(err, TEG_ERR_FORMAT,
             "cannot open %s: %.200s: expected paths inside the package, found '%.80s'; do not use this package", what,
             package->path, path);
    return TEG_OK;
}

/* `path` under `dir`, resolved, or why not. */
static enum teg_status resolve_inside(const struct teg_mlpackage *package, const char *dir, const char *path,
                                      const char **resolved, struct teg_error *err)
{
    TRY(refuse_name(package, path, err));
    const char *const joined = teg_arena_printf(package->arena, "%s/%s", dir, path);
    const char *const real = joined ? resolve(package->arena, joined) : NULL;
    if (!joined || (!real && errno == ENOMEM))
        return teg_base_fail_memory(err, "path of a package", strlen(path) + strlen(dir));
    if (!real)
        FAIL(err, TEG_ERR_IO, "cannot open %s: %.200s: expected a file '%.80s', found: %s; copy the package again",
             what, package->path, path, strerror(errno));
    if (!is_inside(package->root, real))
        FAIL(err, TEG_ERR_FORMAT,
             "cannot open %s: %.200s: expected files inside the package, found '%.80s' to be a link out of it; copy "
             "the package with its links followed (cp -RL)",
             what, package->path, path);
    *resolved = real;
    return TEG_OK;
}

/* False on any doubt: opening says what is wrong. */
static bool is_absent(const struct teg_mlpackage *package, const char *dir, const char *path)
{
    struct stat st;
    const char *const joined = teg_arena_printf(package->arena, "%s/%s", dir, path);
    return joined && lstat(joined, &st) != 0 && errno == ENOENT;
}

bool teg_mlpackage_has(const struct teg_mlpackage *package, const char *name)
{
    struct stat st;
    const char *const path = teg_arena_printf(package->arena, "%s/%s", package->root, name);
    return path && stat(path, &st) == 0;
}

/* ---- manifest ---- */

/* "1.0.0" or older: three numbers. */
static enum teg_status check_version(const char *path, const char *version, struct teg_error *err)
{
    const char *p = version;
    unsigned long part[3] = {0};
    for (int i = 0; i < 3 && p; i++) {
        char *end = NULL;
        part[i] = *p >= '0' && *p <= '9' ? strtoul(p, &end, 10) : 0;
        p = end && *end == (i < 2 ? '.' : '\0') ? end + 1 : NULL;
    }
    if (!p)
        return teg_source_fail(err, TEG_ERR_FORMAT, what, path, 0,
                               "expected a fileFormatVersion of three numbers, found '%.40s'; export the model again",
                               version);
    if (part[0] > 1 || (part[0] == 1 && (part[1] || part[2])))
        return teg_source_fail(err, TEG_ERR_UNSUPPORTED, what, path, 0,
                               "expected fileFormatVersion 1.0.0 at most, found %.40s; update tegula", version);
    return TEG_OK;
}

struct item {
    const char *id, *path, *name, *author;
};

static enum teg_status read_item(const char *path, const char *id, const json_t *value, struct item *item,
                                 struct teg_error *err)
{
    static const char *const keys[] = {"path", "name", "author", "description"};
    const char *found[4];
    for (size_t i = 0; i < 4; i++) {
        found[i] = json_string_value(json_object_get(value, keys[i]));
        if (!found[i])
            return teg_source_fail(err, TEG_ERR_FORMAT, what, path, 0,
                                   "expected item '%.60s' to have a string '%s', found none; export the model again",
                                   id, keys[i]);
    }
    *item = (struct item){id, found[0], found[1], found[2]};
    return TEG_OK;
}

/* Items by (name, author): there are two in practice, so a list is searched. */
static enum teg_status check_unique(const char *path, const struct item *items, size_t n, struct teg_error *err)
{
    for (size_t i = 0; i + 1 < n; i++)
        if (strcmp(items[i].name, items[n - 1].name) == 0 && strcmp(items[i].author, items[n - 1].author) == 0)
            return teg_source_fail(err, TEG_ERR_FORMAT, what, path, 0,
                                   "expected one item of each name and author, found '%.40s' of '%.40s' twice; export "
                                   "the model again",
                                   items[i].name, items[i].author);
    return TEG_OK;
}

static enum teg_status use_items(struct teg_mlpackage *package, const char *manifest, const struct item *items,
                                 size_t n, const char *root_id, struct teg_error *err)
{
    const char *const data = teg_arena_printf(package->arena, "%s/Data", package->root);
    if (!data)
        return teg_base_fail_memory(err, "path of a package", strlen(package->root));
    for (size_t i = 0; i < n; i++) {
        const bool is_root = strcmp(items[i].id, root_id) == 0;
        const char *path = NULL;
        TRY(refuse_name(package, items[i].path, err));
        /* An empty folder of weights gets lost in an archive; nobody needs it. */
        if (!is_root && is_absent(package, data, items[i].path))
            continue;
        TRY(resolve_inside(package, data, items[i].path, &path, err));
        if (is_root)
            package->model_path = path;
        if (strcmp(items[i].name, "weights") == 0 && strcmp(items[i].author, "com.apple.CoreML") == 0)
            package->weights_dir = path;
    }
    if (!package->model_path)
        return teg_source_fail(err, TEG_ERR_FORMAT, what, manifest, 0,
                               "expected rootModelIdentifier to name an item, found '%.60s'; export the model again",
                               root_id);
    const char *const slash = strrchr(package->model_path, '/');
    package->model_dir = teg_arena_string(package->arena, package->model_path, (size_t)(slash - package->model_path));
    return package->model_dir ? TEG_OK : teg_base_fail_memory(err, "path of a package", strlen(package->model_path));
}

static enum teg_status read_manifest(struct teg_mlpackage *package, const char *path, json_t *root,
                                     struct teg_error *err)
{
    enum { MOST_ITEMS = 1024 };
    const char *const version = json_string_value(json_object_get(root, "fileFormatVersion"));
    const char *const root_id = json_string_value(json_object_get(root, "rootModelIdentifier"));
    json_t *const entries = json_object_get(root, "itemInfoEntries");
    const size_t n = json_object_size(entries);
    const char *const lacks = !version                   ? "a string fileFormatVersion"
                              : !json_is_object(entries) ? "an object itemInfoEntries"
                              : !root_id                 ? "a string rootModelIdentifier"
                                                         : NULL;
    if (lacks)
        return teg_source_fail(err, TEG_ERR_FORMAT, what, path, 0, "expected %s, found none; export the model again",
                               lacks);
    TRY(check_version(path, version, err));
    if (n > MOST_ITEMS)
        return teg_source_fail(err, TEG_ERR_FORMAT, what, path, 0,
                               "expected at most %d items, found %zu; export the model again", MOST_ITEMS, n);
    struct item *const items = teg_arena_array(package->arena, n, sizeof *items);
    if (!items)
        return teg_base_fail_memory(err, "manifest", n * sizeof *items);
    size_t i = 0;
    const char *id;
    json_t *value;
    json_object_foreach(entries, id, value)
    {
        TRY(read_item(path, id, value, &items[i], err));
        TRY(check_unique(path, items, ++i, err));
    }
    return use_items(package, path, items, n, root_id, err);
}

static enum teg_status open_package(struct teg_mlpackage *package, struct teg_error *err)
{
    const char *const path = teg_arena_printf(package->arena, "%s/Manifest.json", package->path);
    struct teg_span text = {0};
    json_t *root = NULL;
    if (!path)
        return teg_base_fail_memory(err, "path of a package", strlen(package->path));
    TRY(teg_mlpackage_map(package, "Manifest.json", &text, err));
    TRY(teg_json_object(text, what, path, 0, &root, err));
    const enum teg_status status = read_manifest(package, path, root, err);
    json_decref(root);
    return status;
}

/* ---- opening ---- */

static enum teg_status open_compiled(struct teg_mlpackage *package, struct teg_error *err)
{
    static const struct {
        const char *file, *found;
    } others[] = {{"model.espresso.net", "a neural network"}, {"model0", "a pipeline of models"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!teg_mlpackage_has(package, "model.mil") && teg_mlpackage_has(package, others[i].file))
            FAIL(err, TEG_ERR_UNSUPPORTED,
                 "cannot open Core ML model: %.200s: expected an ML program, found %s; convert the model to an ML "
                 "program (iOS 15 or later)",
                 package->path, others[i].found);
    package->kind = TEG_MLMODELC;
    package->model_dir = package->root;
    return resolve_inside(package, package->root, "model.mil", &package->model_path, err);
}

enum teg_status teg_mlpackage_open(struct teg_mlpackage *package, const char *path, struct teg_arena *arena,
                                   struct teg_error *err)
{
    struct stat st;
    *package = (struct teg_mlpackage){.kind = TEG_MLPACKAGE, .arena = arena};
    package->path = teg_arena_string(arena, path, strlen(path));
    if (!package->path)
        return teg_base_fail_memory(err, "path of a package", strlen(path));
    package->root = resolve(arena, path);
    if (!package->root && errno == ENOMEM)
        return teg_base_fail_memory(err, "path of a package", strlen(path));
    if (!package->root || stat(package->root, &st) != 0)
        FAIL(err, TEG_ERR_IO,
             "cannot open %s: %.200s: expected a readable directory, found: %s; check the path and its permissions",
             what, path, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        FAIL(
            err, TEG_ERR_FORMAT,
            "cannot open %s: %.200s: expected a directory with Manifest.json, found a file; pass the .mlpackage itself",
            what, path);
    if (teg_mlpackage_has(package, "Manifest.json"))
        return open_package(package, err);
    if (teg_mlpackage_has(package, "coremldata.bin") || teg_mlpackage_has(package, "model.mil"))
        return open_compiled(package, err);
    FAIL(
        err, TEG_ERR_FORMAT,
        "cannot open %s: %.200s: expected Manifest.json (.mlpackage) or model.mil (.mlmodelc), found neither; copy the "
        "whole directory",
        what, path);
}

void teg_mlpackage_close(struct teg_mlpackage *package)
{
    for (struct teg_mlpackage_file *file = package->files; file; file = file->next)
        teg_filemap_close(&file->map);
    package->files = NULL;
}

static enum teg_status map_resolved(struct teg_mlpackage *package, const char *path, struct teg_span *bytes,
                                    struct teg_error *err)
{
    for (const struct teg_mlpackage_file *file = package->files; file; file = file->next)
        if (strcmp(file->name, path) == 0) {
            *bytes = (struct teg_span){file->map.bytes, file->map.n_bytes};
            return TEG_OK;
        }
    struct teg_mlpackage_file *const file = teg_arena_array(package->arena, 1, sizeof *file);
    if (!file)
        return teg_base_fail_memory(err, "file map", sizeof *file);
    TRY(teg_filemap_open(&file->map, path, "cannot open Core ML package", err));
    file->name = path;
    file->next = package->files;
    package->files = file;
    *bytes = (struct teg_span){file->map.bytes, file->map.n_bytes};
    return TEG_OK;
}

enum teg_status teg_mlpackage_map(struct teg_mlpackage *package, const char *path, struct teg_span *bytes,
                                  struct teg_error *err)
{
    if (!is_inside(package->root, path))
        TRY(resolve_inside(package, package->root, path, &path, err));
    return map_resolved(package, path, bytes, err);
}

enum teg_status teg_mlpackage_weights(struct teg_mlpackage *package, const char *name, struct teg_span *bytes,
                                      struct teg_error *err)
{
    static const char prefix[] = "@model_path/", folder[] = "weights/";
    const size_t n_prefix = sizeof prefix - 1, n_folder = sizeof folder - 1;
    struct stat st;
    if (strncmp(name, prefix, n_prefix) != 0)
        FAIL(err, TEG_ERR_FORMAT,
             "cannot open %s: %.200s: expected weight files named '@model_path/…', found '%.80s'; export the model "
             "again",
             what, package->path, name);
    const char *const rest = name + n_prefix;
    /* The manifest may have the weights elsewhere than beside the model. */
    const char *const beside = teg_arena_printf(package->arena, "%s/%s", package->model_dir, rest);
    if (!beside)
        return teg_base_fail_memory(err, "path of a package", strlen(name));
    const bool moved = package->weights_dir && strncmp(rest, folder, n_folder) == 0 && stat(beside, &st) != 0;
    const char *path = NULL;
    TRY(resolve_inside(package, moved ? package->weights_dir : package->model_dir, moved ? rest + n_folder : rest,
                       &path, err));
    return map_resolved(package, path, bytes, err);
}
