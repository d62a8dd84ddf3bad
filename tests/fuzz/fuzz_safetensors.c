/* Fuzz target: any bytes as a safetensors file, and those that begin with '{' as a config.json. */
#include <stdlib.h>
#include <string.h>

#include "format/json.h"

static volatile unsigned sink;

static void touch(const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sink += ((const uint8_t *)bytes)[i];
}

static void must(bool fact)
{
    if (!fact)
        abort();
}

static void touch_meta(const struct teg_meta *meta)
{
    touch(meta->key, strlen(meta->key));
    if (meta->type == TEG_META_STRING || meta->type == TEG_META_JSON)
        touch(meta->string.bytes, meta->string.n_bytes);
    else if (meta->type == TEG_META_ARRAY_INT)
        touch(meta->integers, meta->n * sizeof *meta->integers);
    else if (meta->type == TEG_META_ARRAY_FLOAT)
        touch(meta->reals, meta->n * sizeof *meta->reals);
    else if (meta->type == TEG_META_ARRAY_BOOL)
        touch(meta->booleans, meta->n);
    else if (meta->type == TEG_META_ARRAY_STRING)
        for (size_t i = 0; i < meta->n; i++)
            touch(meta->strings[i].bytes, meta->strings[i].n_bytes);
}

static void config(const uint8_t *bytes, size_t n_bytes)
{
    json_t *object = NULL;
    struct teg_error err = {0};
    if (teg_json_object((struct teg_span){bytes, n_bytes}, "config.json", "fuzz", 0, &object, &err) != TEG_OK) {
        must(err.message[0] != '\0');
        return;
    }
    struct teg_arena arena;
    teg_arena_init(&arena, NULL);
    const size_t n = json_object_size(object);
    struct teg_meta *const metas = teg_arena_array(&arena, n, sizeof *metas);
    must(metas && teg_json_metas(&arena, object, "prefix.", metas, &err) == TEG_OK);
    for (size_t i = 0; i < n; i++)
        touch_meta(&metas[i]);
    json_decref(object);
    teg_arena_free(&arena);
}

static void weights(const uint8_t *bytes, size_t n_bytes)
{
    struct teg_source *source = NULL;
    struct teg_error err = {0};
    const enum teg_status status = teg_safetensors_parse(bytes, n_bytes, "fuzz", NULL, &source, &err);
    if (status != TEG_OK) {
        must(!source && err.status == status && err.message[0]);
        return;
    }
    size_t n_data = 0;
    for (size_t i = 0; i < source->n_tensors; i++) {
        const struct teg_tensor *const t = &source->tensors[i];
        must(teg_source_tensor(source, t->name) == t);
        must(t->data == bytes + t->file_offset && t->n_bytes <= n_bytes - t->file_offset);
        touch(t->data, t->n_bytes);
        n_data += t->n_bytes;
    }
    must(n_data <= n_bytes); /* no byte belongs to two tensors */
    teg_source_free(source);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    if (n_bytes && *bytes == '{')
        config(bytes, n_bytes);
    else
        weights(bytes, n_bytes);
    return 0;
}
