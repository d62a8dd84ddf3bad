/* format/gguf_split.c: a model cut into several GGUF files, NAME-00001-of-00003.gguf and so on.
 *
 * Each part says in its metadata which one it is (split.no, from 0), how many there are (split.count) and how many
 * tensors they hold together (split.tensors.count). The first part has the model's metadata, any part may be given,
 * and what the names say must be what the metadata says. Guessing a set from file names alone was not taken: a
 * renamed or mixed-up part would become a wrong model. */
#include "format/impl.h"

#include <stdio.h>
#include <string.h>

enum { MAX_PARTS = 99999 }; /* five digits in the name */

struct split {
    int64_t no, count, n_tensors;
};

static enum teg_status read_int_key(const struct teg_source_part *part, const char *key, int64_t least, int64_t most,
                                    int64_t *out, struct teg_error *err)
{
    for (size_t i = 0; i < part->n_metas; i++) {
        const struct teg_meta *const m = &part->metas[i];
        if (strcmp(m->key, key) != 0)
            continue;
        if (m->type == TEG_META_INT && m->integer >= least && m->integer <= most) {
            *out = m->integer;
            return TEG_OK;
        }
        if (m->type == TEG_META_INT)
            FAIL(err, TEG_ERR_FORMAT,
                 "cannot read GGUF: %s: expected %s from %lld to %lld, found %lld; split the model again", part->path,
                 key, (long long)least, (long long)most, (long long)m->integer);
        FAIL(err, TEG_ERR_FORMAT, "cannot read GGUF: %s: expected %s to be an integer, found %s; split the model again",
             part->path, key, m->type_name);
    }
    FAIL(err, TEG_ERR_FORMAT,
         "cannot read GGUF: %s: expected the key %s in a part of a split model, found none; split "
         "the model again",
         part->path, key);
}

static bool has_key(const struct teg_source_part *part, const char *key)
{
    for (size_t i = 0; i < part->n_metas; i++)
        if (strcmp(part->metas[i].key, key) == 0)
            return true;
    return false;
}

/* count 1 for a file that is not split. */
static enum teg_status read_split(const struct teg_source_part *part, struct split *split, struct teg_error *err)
{
    *split = (struct split){.count = 1};
    if (!has_key(part, "split.count"))
        return TEG_OK;
    TRY(read_int_key(part, "split.count", 0, MAX_PARTS, &split->count, err));
    if (split->count <= 1) {
        split->count = 1;
        return TEG_OK;
    }
    TRY(read_int_key(part, "split.no", 0, split->count - 1, &split->no, err));
    return read_int_key(part, "split.tensors.count", 0, INT32_MAX, &split->n_tensors, err);
}

/* The length of `path` before its "-00001-of-00003.gguf". */
static enum teg_status find_stem(const char *path, const struct split *split, size_t *stem_bytes, struct teg_error *err)
{
    char suffix[64];
    const int n =
        snprintf(suffix, sizeof suffix, "-%05lld-of-%05lld.gguf", (long long)split->no + 1, (long long)split->count);
    const size_t n_path = strlen(path), n_suffix = (size_t)n;
    if (n_path < n_suffix || strcmp(path + n_path - n_suffix, suffix) != 0)
        FAIL(err, TEG_ERR_FORMAT,
             "cannot open split GGUF: %s: expected a name that ends in '%s', as its metadata says, found another; "
             "rename the file",
             path, suffix);
    *stem_bytes = n_path - n_suffix;
    return TEG_OK;
}

/* Maps and reads part `no` of the set, which must agree with `first`, the split that the given part described. */
static enum teg_status read_sibling(struct teg_source *source, size_t stem_bytes, int64_t no, const struct split *first,
                                    struct teg_source_part *part, struct teg_error *err)
{
    const char *const path = teg_arena_printf(&source->arena, "%.*s-%05lld-of-%05lld.gguf", (int)stem_bytes,
                                              source->path, (long long)no + 1, (long long)first->count);
    if (!path)
        return teg_base_fail_memory(err, "path of a GGUF part", stem_bytes);
    struct teg_span bytes;
    TRY(teg_source_map(source, path, "cannot open part of split GGUF", &bytes, err));
    TRY(teg_gguf_read(source, bytes, path, part, err));
    struct split split = {0};
    TRY(read_split(part, &split, err));
    if (split.no != no || split.count != first->count || split.n_tensors != first->n_tensors)
        FAIL(err, TEG_ERR_FORMAT,
             "cannot read split GGUF: %s: expected part %lld of %lld with %lld tensors in all, found part %lld of %lld "
             "with %lld; put the parts of one model together",
             path, (long long)no + 1, (long long)first->count, (long long)first->n_tensors, (long long)split.no + 1,
             (long long)split.count, (long long)split.n_tensors);
    return TEG_OK;
}

static enum teg_status read_set(struct teg_source *source, const struct teg_source_part *given,
                                const struct split *split, bool need_tensors, struct teg_error *err)
{
    size_t stem_bytes = 0;
    TRY(find_stem(source->path, split, &stem_bytes, err));
    /* The metadata is all in the first part. */
    const size_t n_parts = need_tensors ? (size_t)split->count : 1;
    struct teg_source_part *const parts = teg_arena_array(&source->arena, n_parts, sizeof *parts);
    if (!parts)
        return teg_base_fail_memory(err, "table of GGUF parts", n_parts * sizeof *parts);
    for (size_t i = 0; i < n_parts; i++) {
        if ((int64_t)i == split->no)
            parts[i] = *given;
        else
            TRY(read_sibling(source, stem_bytes, (int64_t)i, split, &parts[i], err));
    }
    TRY(teg_source_join(source, parts, n_parts, err));
    source->metas = parts[0].metas;
    source->n_metas = parts[0].n_metas;
    if (need_tensors && source->n_tensors != (uint64_t)split->n_tensors)
        FAIL(
            err, TEG_ERR_FORMAT,
            "cannot read split GGUF: %s: expected %lld tensors in all parts (split.tensors.count), found %zu; download "
            "the parts again",
            source->path, (long long)split->n_tensors, source->n_tensors);
    return TEG_OK;
}

enum teg_status teg_gguf_assemble(struct teg_source *source, const struct teg_source_part *part, bool need_tensors,
                                  bool from_file, struct teg_error *err)
{
    source->kind = TEG_SOURCE_GGUF;
    source->format = part->format;
    struct split split = {0};
    TRY(read_split(part, &split, err));
    if (split.count > 1 && from_file)
        TRY(read_set(source, part, &split, need_tensors, err));
    else if (split.count > 1 && need_tensors)
        FAIL(err, TEG_ERR_UNSUPPORTED,
             "cannot read GGUF: %s: expected a whole model, found part %lld of %lld; open it by its path", part->path,
             (long long)split.no + 1, (long long)split.count);
    else {
        TRY(teg_source_join(source, part, 1, err));
        source->metas = part->metas;
        source->n_metas = part->n_metas;
    }
    if (need_tensors && !source->n_tensors)
        FAIL(err, TEG_ERR_FORMAT,
             "cannot read GGUF: %s: expected tensors, found none (a file with only a vocabulary); use a complete model",
             source->path);
    return TEG_OK;
}
