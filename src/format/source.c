/* format/source.c: opens a model by what its bytes say it is, finds tensors and keys by name, frees.
 *
 * Invariant: a source that teg_source_open returned is sealed: both name tables are sorted and hold no name twice.
 * The tables are sorted pointers with binary search. A hash table would be faster for one look-up in a million, but
 * names come from files, and a hash table that hostile names cannot make quadratic needs a random seed. */
#include "format/impl.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "base/filemap.h"

struct map_node {
    struct teg_filemap map;
    struct map_node *next;
};

struct teg_source_impl {
    struct map_node *maps;
    const void *const *tensors_by_name; /* [n_tensors] */
    const void *const *metas_by_key;    /* [n_metas] */
};

/* ---- failing ---- */

enum teg_status teg_source_vfail(struct teg_error *err, enum teg_status status, const char *format, const char *path,
                                 uint64_t offset, const char *message, va_list args)
{
    enum { LONGEST_PATH = 200 }; /* of a message that holds 480: the fault is worth more than the path's beginning */
    char text[sizeof err->message];
    if (vsnprintf(text, sizeof text, message, args) < 0)
        text[0] = '\0';
    const size_t n = strlen(path);
    const bool is_long = n > LONGEST_PATH;
    return teg_base_fail(err, status, offset, "cannot read %s: %s%s at byte %llu: %s", format, is_long ? "..." : "",
                         path + (is_long ? n - LONGEST_PATH : 0), (unsigned long long)offset, text);
}

enum teg_status teg_source_fail(struct teg_error *err, enum teg_status status, const char *format, const char *path,
                                uint64_t offset, const char *message, ...)
{
    va_list args;
    va_start(args, message);
    const enum teg_status result = teg_source_vfail(err, status, format, path, offset, message, args);
    va_end(args);
    return result;
}

/* ---- making and freeing ---- */

enum teg_status teg_source_new(const char *path, const struct teg_allocator *allocator, struct teg_source **out,
                               struct teg_error *err)
{
    struct teg_arena arena;
    teg_arena_init(&arena, allocator);
    struct teg_source *const source = teg_arena_alloc(&arena, sizeof *source);
    struct teg_source_impl *const impl = teg_arena_alloc(&arena, sizeof *impl);
    char *const copy = teg_arena_string(&arena, path, strlen(path));
    if (!source || !impl || !copy) {
        teg_arena_free(&arena);
        return teg_base_fail_memory(err, "model source", sizeof *source + sizeof *impl);
    }
    source->arena = arena; /* the source lies in its own arena */
    source->impl = impl;
    source->path = copy;
    *out = source;
    return TEG_OK;
}

void teg_source_free(struct teg_source *source)
{
    if (!source)
        return;
    for (struct map_node *node = source->impl->maps; node; node = node->next)
        teg_filemap_close(&node->map);
    struct teg_arena arena = source->arena;
    teg_arena_free(&arena);
}

enum teg_status teg_source_map(struct teg_source *source, const char *path, const char *what, struct teg_span *bytes,
                               struct teg_error *err)
{
    struct map_node *const node = teg_arena_array(&source->arena, 1, sizeof *node);
    if (!node)
        return teg_base_fail_memory(err, "file map", sizeof *node);
    TRY(teg_filemap_open(&node->map, path, what, err));
    node->next = source->impl->maps;
    source->impl->maps = node;
    *bytes = (struct teg_span){node->map.bytes, node->map.n_bytes};
    return TEG_OK;
}

/* ---- sorting and look-up ---- */

/* Merges the sorted runs from[begin, middle) and from[middle, end) into to[begin, end); the left one wins ties. */
static void merge(const void **to, const void *const *from, size_t begin, size_t middle, size_t end,
                  teg_source_compare compare)
{
    size_t left = begin, right = middle;
    for (size_t i = begin; i < end; i++) {
        const bool take_left = left < middle && (right == end || compare(from[left], from[right]) <= 0);
        to[i] = take_left ? from[left++] : from[right++];
    }
}

enum teg_status teg_source_sort(struct teg_source *source, const void *items, size_t n, size_t item_bytes,
                                teg_source_compare compare, const void *const **sorted, struct teg_error *err)
{
    const void **from = teg_arena_array(&source->arena, n, sizeof *from);
    const void **to = teg_arena_array(&source->arena, n, sizeof *to);
    if (!from || !to)
        return teg_base_fail_memory(err, "name table", 2 * n * sizeof *from);
    for (size_t i = 0; i < n; i++)
        from[i] = (const char *)items + i * item_bytes;
    for (size_t run = 1; run < n; run *= 2) {
        for (size_t begin = 0; begin < n; begin += 2 * run)
            merge(to, from, begin, teg_min(begin + run, n), teg_min(begin + 2 * run, n), compare);
        const void **const swap = from;
        from = to;
        to = swap;
    }
    *sorted = from;
    return TEG_OK;
}

/* teg_tensor and teg_meta both begin with their name, so one table serves both. */
static const char *name_of(const void *item)
{
    return *(const char *const *)item;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(name_of(a), name_of(b));
}

static const char *first_duplicate(const void *const *sorted, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (compare_names(sorted[i - 1], sorted[i]) == 0)
            return name_of(sorted[i]);
    return NULL;
}

static const void *find(const void *const *sorted, size_t n, const char *name)
{
    size_t begin = 0, end = n;
    while (begin < end) {
        const size_t middle = begin + (end - begin) / 2;
        const int order = strcmp(name, name_of(sorted[middle]));
        if (order == 0)
            return sorted[middle];
        if (order < 0)
            end = middle;
        else
            begin = middle + 1;
    }
    return NULL;
}

enum teg_status teg_source_seal(struct teg_source *source, struct teg_error *err)
{
    struct teg_source_impl *const impl = source->impl;
    TRY(teg_source_sort(source, source->tensors, source->n_tensors, sizeof *source->tensors, compare_names,
                        &impl->tensors_by_name, err));
    TRY(teg_source_sort(source, source->metas, source->n_metas, sizeof *source->metas, compare_names,
                        &impl->metas_by_key, err));
    const char *twice = first_duplicate(impl->tensors_by_name, source->n_tensors);
    if (twice)
        FAIL(err, TEG_ERR_FORMAT,
             "cannot read %s: %s: expected unique tensor names, found '%.64s' twice; convert the model again",
             source->format, source->path, twice);
    twice = first_duplicate(impl->metas_by_key, source->n_metas);
    if (twice)
        FAIL(err, TEG_ERR_FORMAT,
             "cannot read %s: %s: expected unique metadata keys, found '%.64s' twice; convert the model again",
             source->format, source->path, twice);
    return TEG_OK;
}

enum teg_status teg_source_join(struct teg_source *source, const struct teg_source_part *parts, size_t n_parts,
                                struct teg_error *err)
{
    if (n_parts == 1) {
        source->tensors = parts->tensors;
        source->n_tensors = parts->n_tensors;
        return TEG_OK;
    }
    size_t n = 0;
    for (size_t i = 0; i < n_parts; i++)
        n += parts[i].n_tensors; /* cannot wrap: each one exists in memory */
    struct teg_tensor *const tensors = teg_arena_array(&source->arena, n, sizeof *tensors);
    if (!tensors)
        return teg_base_fail_memory(err, "tensor table", n * sizeof *tensors);
    size_t at = 0;
    for (size_t i = 0; i < n_parts; i++) {
        if (parts[i].n_tensors)
            memcpy(tensors + at, parts[i].tensors, parts[i].n_tensors * sizeof *tensors);
        at += parts[i].n_tensors;
    }
    source->tensors = tensors;
    source->n_tensors = n;
    return TEG_OK;
}

const struct teg_tensor *teg_source_tensor(const struct teg_source *source, const char *name)
{
    return find(source->impl->tensors_by_name, source->n_tensors, name);
}

const struct teg_meta *teg_source_meta(const struct teg_source *source, const char *key)
{
    return find(source->impl->metas_by_key, source->n_metas, key);
}

/* ---- opening ---- */

/* What people pass by mistake, by first bytes. */
static const struct {
    const char *magic;
    size_t n_bytes;
    const char *found, *advice;
} strangers[] = {
    {"PK\x03\x04", 4, "a ZIP archive (perhaps a PyTorch checkpoint)", "convert it to GGUF or safetensors"},
    {"\x80\x02", 2, "a Python pickle", "convert it to GGUF or safetensors"},
    {"lmgg", 4, "the old GGML format", "convert the model to GGUF"},
    {"fmgg", 4, "the old GGMF format", "convert the model to GGUF"},
    {"tjgg", 4, "the old GGJT format", "convert the model to GGUF"},
    {"FUGG", 4, "a big-endian GGUF file", "convert the model for a little-endian machine"},
    {"\x1f\x8b", 2, "a gzip archive", "unpack it"},
    {"version https://git-lfs", 23, "a Git LFS pointer", "fetch the file itself with git lfs pull"},
    {"<", 1, "a web page or XML", "download the model again"},
    {"{", 1, "JSON text", "pass the directory that holds it and the weights"},
};

static bool looks_like_safetensors(struct teg_span s)
{
    struct teg_cursor c = teg_cursor_of(s.bytes, s.n_bytes);
    uint64_t header_bytes;
    return teg_cursor_u64(&c, &header_bytes) && header_bytes <= teg_cursor_left(&c) && header_bytes > 0 &&
           s.bytes[8] == '{';
}

static enum teg_status refuse(struct teg_span s, const char *path, struct teg_error *err)
{
    static const char what[] = "cannot open model";
    static const char expected[] = "expected a GGUF file or a directory with config.json and safetensors";
    if (!s.n_bytes)
        FAIL(err, TEG_ERR_FORMAT, "%s: %s: %s, found an empty file; download it again", what, path, expected);
    if (looks_like_safetensors(s))
        FAIL(err, TEG_ERR_FORMAT, "%s: %s: %s, found one safetensors file; pass the directory that holds it", what,
             path, expected);
    for (size_t i = 0; i < sizeof strangers / sizeof *strangers; i++)
        if (s.n_bytes >= strangers[i].n_bytes && memcmp(s.bytes, strangers[i].magic, strangers[i].n_bytes) == 0)
            FAIL(err, TEG_ERR_FORMAT, "%s: %s: %s, found %s; %s", what, path, expected, strangers[i].found,
                 strangers[i].advice);
    char first[4 * 3 + 1] = "";
    for (size_t i = 0, n = 0; i < teg_min(s.n_bytes, 4); i++)
        n += (size_t)snprintf(first + n, sizeof first - n, " %02x", s.bytes[i]);
    FAIL(err, TEG_ERR_FORMAT, "%s: %s: %s, found a file that begins with the bytes%s; check the path", what, path,
         expected, first);
}

static enum teg_status open_file(struct teg_source *source, bool need_tensors, struct teg_error *err)
{
    struct teg_span bytes = {0};
    TRY(teg_source_map(source, source->path, "cannot open model", &bytes, err));
    if (bytes.n_bytes < 4 || memcmp(bytes.bytes, "GGUF", 4) != 0)
        return refuse(bytes, source->path, err);
    struct teg_source_part part = {0};
    TRY(teg_gguf_read(source, bytes, source->path, &part, err));
    return teg_gguf_assemble(source, &part, need_tensors, true, err);
}

/* Core ML directories are programs, not named tensors: mil/ reads them. */
static enum teg_status refuse_package(const struct teg_source *source, struct teg_error *err)
{
    static const char *const marks[] = {"Manifest.json", "coremldata.bin", "model.mil"};
    struct teg_arena arena;
    bool is_package = false;
    teg_arena_init(&arena, source->arena.allocator);
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        struct stat st;
        const char *const file = teg_arena_printf(&arena, "%s/%s", source->path, marks[i]);
        is_package = is_package || (file && stat(file, &st) == 0);
    }
    teg_arena_free(&arena);
    if (is_package)
        FAIL(
            err, TEG_ERR_UNSUPPORTED,
            "cannot open model: %s: expected a GGUF file or a directory with config.json and safetensors, found a Core "
            "ML package; use the GGUF or safetensors form of the model",
            source->path);
    return TEG_OK;
}

static enum teg_status open_directory(struct teg_source *source, bool need_tensors, struct teg_error *err)
{
    TRY(refuse_package(source, err));
    return teg_hf_directory_read(source, need_tensors, err);
}

enum teg_status teg_source_open(const char *path, bool need_tensors, const struct teg_allocator *allocator,
                                struct teg_source **out, struct teg_error *err)
{
    struct teg_source *source = NULL;
    TRY(teg_source_new(path, allocator, &source, err));
    struct stat st;
    const bool is_directory = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    enum teg_status status =
        is_directory ? open_directory(source, need_tensors, err) : open_file(source, need_tensors, err);
    if (status == TEG_OK)
        status = teg_source_seal(source, err);
    if (status != TEG_OK) {
        teg_source_free(source);
        return status;
    }
    *out = source;
    return TEG_OK;
}
