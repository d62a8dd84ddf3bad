/* Fuzz target: any bytes as a GGUF file. What is accepted must be what it claims: every byte of metadata and tensors
 * is read, every name is found again, and no tensor leaves the file. */
#include <stdlib.h>
#include <string.h>

#include "format/source.h"

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

static void touch_meta(const struct teg_source *source, const struct teg_meta *meta)
{
    must(teg_source_meta(source, meta->key) == meta);
    touch(meta->type_name, strlen(meta->type_name));
    switch (meta->type) {
    case TEG_META_STRING:
        touch(meta->string.bytes, meta->string.n_bytes);
        break;
    case TEG_META_ARRAY_INT:
        touch(meta->integers, meta->n * sizeof *meta->integers);
        break;
    case TEG_META_ARRAY_FLOAT:
        touch(meta->reals, meta->n * sizeof *meta->reals);
        break;
    case TEG_META_ARRAY_BOOL:
        for (size_t i = 0; i < meta->n; i++)
            sink += meta->booleans[i];
        break;
    case TEG_META_ARRAY_STRING:
        for (size_t i = 0; i < meta->n; i++)
            touch(meta->strings[i].bytes, meta->strings[i].n_bytes);
        break;
    case TEG_META_BOOL:
        sink += meta->boolean;
        break;
    default: /* a number */
        touch(&meta->integer, sizeof meta->integer);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    struct teg_source *source = NULL;
    struct teg_error err = {0};
    const bool need_tensors = n_bytes % 2;
    const enum teg_status status = teg_gguf_parse(bytes, n_bytes, "fuzz", need_tensors, NULL, &source, &err);
    if (status != TEG_OK) {
        must(!source && err.status == status && err.message[0]);
        return 0;
    }
    must(source->n_tensors || !need_tensors);
    for (size_t i = 0; i < source->n_metas; i++)
        touch_meta(source, &source->metas[i]);
    for (size_t i = 0; i < source->n_tensors; i++) {
        const struct teg_tensor *const t = &source->tensors[i];
        must(teg_source_tensor(source, t->name) == t);
        must(t->data == bytes + t->file_offset && t->n_bytes > 0 && t->n_bytes <= n_bytes - t->file_offset);
        touch(t->data, t->n_bytes);
    }
    must(source->arena.total_bytes <= 32 * n_bytes + (64 << 10));
    teg_source_free(source);
    return 0;
}
