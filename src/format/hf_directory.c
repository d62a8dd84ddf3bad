/* format/hf_directory.c: a Hugging Face model directory.
 *
 *     config.json                      top level becomes the metadata
 *     generation_config.json           optional; "generation_config.KEY"
 *     model.safetensors                all tensors, or
 *     model.safetensors.index.json     {"weight_map": {"TENSOR": "FILE", …}}: tensors in several files here
 *     tokenizer.json (else tokenizer.model), tokenizer_config.json, chat_template.jinja   optional; paths only
 *
 * Invariant: only files directly in the directory are opened (a name with a slash is refused), each once, and every
 * tensor of the index is in the file that the index names. Taking whatever *.safetensors lie there was not done: a
 * directory often has a second set of weights, such as an adapter. */
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "format/impl.h"
#include "format/json.h"

/* The largest index files have about 10 MB. */
#define MAX_JSON_BYTES ((size_t)64 << 20)

static bool exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

/* The path of a file of the directory. */
static enum teg_status path_of(struct teg_source *source, const char *name, const char **path, struct teg_error *err)
{
    *path = teg_arena_printf(&source->arena, "%s/%s", source->path, name);
    return *path ? TEG_OK : teg_base_fail_memory(err, "path", strlen(source->path) + strlen(name) + 2);
}

/* The path of a file of the directory, or NULL where there is none. */
static enum teg_status path_if_there(struct teg_source *source, const char *name, const char **path,
                                     struct teg_error *err)
{
    const char *there = NULL;
    TRY(path_of(source, name, &there, err));
    *path = exists(there) ? there : NULL;
    return TEG_OK;
}

static enum teg_status load_json(struct teg_source *source, const char *name, const char *path, json_t **object,
                                 struct teg_error *err)
{
    struct teg_span text = {0};
    TRY(teg_source_map(source, path, "cannot open model", &text, err));
    if (text.n_bytes > MAX_JSON_BYTES)
        return teg_source_fail(err, TEG_ERR_FORMAT, name, path, MAX_JSON_BYTES,
                               "expected at most %zu bytes, found %zu; check the file", MAX_JSON_BYTES, text.n_bytes);
    return teg_json_object(text, name, path, 0, object, err);
}

/* ---- metadata ---- */

static enum teg_status read_config(struct teg_source *source, const char *config_path, struct teg_error *err)
{
    const char *generation_path = NULL;
    TRY(path_if_there(source, "generation_config.json", &generation_path, err));
    json_t *config = NULL, *generation = NULL;
    enum teg_status status = load_json(source, "config.json", config_path, &config, err);
    if (status == TEG_OK && generation_path)
        status = load_json(source, "generation_config.json", generation_path, &generation, err);
    if (status != TEG_OK)
        goto done;
    const size_t n_config = json_object_size(config), n = n_config + json_object_size(generation);
    struct teg_meta *const metas = teg_arena_array(&source->arena, n, sizeof *metas);
    if (!metas) {
        status = teg_base_fail_memory(err, "model metadata", n * sizeof *metas);
        goto done;
    }
    status = teg_json_metas(&source->arena, config, "", metas, err);
    if (status == TEG_OK && generation)
        status = teg_json_metas(&source->arena, generation, "generation_config.", metas + n_config, err);
    source->metas = metas;
    source->n_metas = n;
done:
    json_decref(config);
    json_decref(generation);
    return status;
}

/* ---- weights in several files ---- */

struct shard {
    const char *name;                /* first: sorted by it */
    size_t first_tensor, end_tensor; /* in the source's table */
};

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Each file that the index names, once, in order of name. */
static enum teg_status list_shards(struct teg_source *source, json_t *map, const char *index_path, struct shard **out,
                                   size_t *n_out, struct teg_error *err)
{
    const size_t n_entries = json_object_size(map);
    const char **const names = teg_arena_array(&source->arena, n_entries, sizeof *names);
    struct shard *const shards = teg_arena_array(&source->arena, n_entries, sizeof *shards);
    if (!names || !shards)
        return teg_base_fail_memory(err, "shard table", n_entries * (sizeof *names + sizeof *shards));
    size_t n = 0;
    const char *tensor;
    json_t *value;
    json_object_foreach(map, tensor, value)
    {
        const char *const name = json_string_value(value);
        if (!name || !*name || strchr(name, '/') || strcmp(name, "..") == 0 || strcmp(name, ".") == 0)
            FAIL(err, TEG_ERR_FORMAT,
                 "cannot read index: %s: expected '%.64s' in a file of the same directory, found '%.64s'; download the "
                 "model again",
                 index_path, tensor, name ? name : "no file name");
        names[n++] = name;
    }
    const void *const *sorted = NULL;
    TRY(teg_source_sort(source, names, n, sizeof *names, compare_names, &sorted, err));
    size_t n_shards = 0;
    for (size_t i = 0; i < n; i++)
        if (i == 0 || compare_names(sorted[i - 1], sorted[i]) != 0)
            shards[n_shards++].name = *(const char *const *)sorted[i];
    *out = shards;
    *n_out = n_shards;
    return TEG_OK;
}

static const struct shard *find_shard(const struct shard *shards, size_t n_shards, const char *name)
{
    size_t begin = 0;
    for (size_t n = n_shards; n > 1;) { /* shards[begin, begin + n) holds it */
        const size_t half = n / 2;
        if (strcmp(name, shards[begin + half].name) >= 0) {
            begin += half;
            n -= half;
        } else {
            n = half;
        }
    }
    return &shards[begin];
}

/* Is every tensor of the index in the file that the index names? */
static enum teg_status check_map(const struct teg_source *source, json_t *map, const struct shard *shards,
                                 size_t n_shards, const char *index_path, struct teg_error *err)
{
    const char *name;
    json_t *value;
    json_object_foreach(map, name, value)
    {
        const struct shard *const shard = find_shard(shards, n_shards, json_string_value(value));
        const struct teg_tensor *const tensor = teg_source_tensor(source, name);
        const size_t at = tensor ? (size_t)(tensor - source->tensors) : SIZE_MAX;
        if (at < shard->first_tensor || at >= shard->end_tensor)
            FAIL(err, TEG_ERR_FORMAT,
                 "cannot read index: %s: expected tensor '%.64s' in '%.64s', found %s; download the model again",
                 index_path, name, shard->name, tensor ? "it in another file" : "none of that name");
    }
    return TEG_OK;
}

static enum teg_status read_shards(struct teg_source *source, json_t *map, const char *index_path,
                                   struct teg_error *err)
{
    struct shard *shards = NULL;
    size_t n_shards = 0;
    TRY(list_shards(source, map, index_path, &shards, &n_shards, err));
    struct teg_source_part *const parts = teg_arena_array(&source->arena, n_shards, sizeof *parts);
    if (!parts)
        return teg_base_fail_memory(err, "shard table", n_shards * sizeof *parts);
    size_t n_tensors = 0;
    for (size_t i = 0; i < n_shards; i++) {
        const char *path = NULL;
        struct teg_span bytes = {0};
        TRY(path_of(source, shards[i].name, &path, err));
        TRY(teg_source_map(source, path, "cannot open weights named in model.safetensors.index.json", &bytes, err));
        TRY(teg_safetensors_read(source, bytes, path, &parts[i], err));
        shards[i].first_tensor = n_tensors;
        n_tensors += parts[i].n_tensors;
        shards[i].end_tensor = n_tensors;
    }
    TRY(teg_source_join(source, parts, n_shards, err));
    TRY(teg_source_seal(source, err)); /* check_map looks tensors up */
    return check_map(source, map, shards, n_shards, index_path, err);
}

static enum teg_status read_index(struct teg_source *source, const char *index_path, struct teg_error *err)
{
    json_t *index = NULL;
    TRY(load_json(source, "index", index_path, &index, err));
    json_t *const map = json_object_get(index, "weight_map");
    const enum teg_status status =
        json_is_object(map) ? read_shards(source, map, index_path, err)
                            : teg_source_fail(err, TEG_ERR_FORMAT, "index", index_path, 0,
                                              "expected an object weight_map, found none; download the model again");
    json_decref(index);
    return status;
}

static enum teg_status read_weights(struct teg_source *source, struct teg_error *err)
{
    const char *single = NULL, *index = NULL;
    TRY(path_if_there(source, "model.safetensors", &single, err));
    TRY(path_if_there(source, "model.safetensors.index.json", &index, err));
    if (single) {
        struct teg_span bytes = {0};
        struct teg_source_part part = {0};
        TRY(teg_source_map(source, single, "cannot open weights", &bytes, err));
        TRY(teg_safetensors_read(source, bytes, single, &part, err));
        TRY(teg_source_join(source, &part, 1, err));
    } else if (index) {
        TRY(read_index(source, index, err));
    } else {
        FAIL(err, TEG_ERR_FORMAT,
             "cannot open model: %s: expected model.safetensors or model.safetensors.index.json beside config.json, "
             "found "
             "neither; download the weights too",
             source->path);
    }
    if (!source->n_tensors)
        FAIL(err, TEG_ERR_FORMAT,
             "cannot open model: %s: expected tensors in its safetensors, found none; download the "
             "weights again",
             source->path);
    return TEG_OK;
}

/* ---- the directory ---- */

static enum teg_status refuse_core_ml(const struct teg_source *source, struct teg_error *err)
{
    static const char *const endings[] = {".mlpackage", ".mlmodelc"};
    size_t n = strlen(source->path);
    while (n > 1 && source->path[n - 1] == '/')
        n--;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        const size_t n_ending = strlen(endings[i]);
        if (n >= n_ending && memcmp(source->path + n - n_ending, endings[i], n_ending) == 0)
            FAIL(err, TEG_ERR_UNSUPPORTED,
                 "cannot open model: %s: expected GGUF or safetensors, found a Core ML model (%s), which is not "
                 "supported yet; use the model it was made from",
                 source->path, endings[i]);
    }
    return TEG_OK;
}

enum teg_status teg_hf_directory_read(struct teg_source *source, bool need_tensors, struct teg_error *err)
{
    source->kind = TEG_SOURCE_SAFETENSORS;
    source->format = "safetensors";
    TRY(refuse_core_ml(source, err));
    const char *config = NULL;
    TRY(path_if_there(source, "config.json", &config, err));
    if (!config)
        FAIL(err, TEG_ERR_FORMAT,
             "cannot open model: %s: expected config.json in this directory, found none; pass a .gguf file or a "
             "directory "
             "with config.json and safetensors",
             source->path);
    TRY(read_config(source, config, err));
    TRY(path_if_there(source, "tokenizer.json", &source->tokenizer_path, err));
    if (!source->tokenizer_path)
        TRY(path_if_there(source, "tokenizer.model", &source->tokenizer_path, err));
    TRY(path_if_there(source, "tokenizer_config.json", &source->tokenizer_config_path, err));
    TRY(path_if_there(source, "chat_template.jinja", &source->chat_template_path, err));
    return need_tensors ? read_weights(source, err) : TEG_OK;
}
