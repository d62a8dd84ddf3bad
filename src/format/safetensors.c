/* format/safetensors.c: one safetensors file into a part.
 *
 *     u64 n, little endian
 *     n bytes of JSON: {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, …,
 *                       "__metadata__": {…}}, may end in spaces
 *     tensor data; begin and end count from here
 *
 * Invariant: the tensors tile the data: the first begins at 0, each begins where the one before it ends, the last ends
 * at the end of the file. The format demands it, and it means that no byte is read twice or hidden. Dimensions are
 * outermost first already; one may be 0 and a scalar has none, as the format allows. Data is not aligned. */
#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "format/impl.h"
#include "format/json.h"

#define MAX_HEADER_BYTES ((uint64_t)100000000) /* the format's own limit */

/* dtype -1: a type of the format that Tegula has no use for. */
static const struct {
    const char *name;
    int dtype;
} types[] = {
    {"F32", TEG_DTYPE_F32},
    {"F16", TEG_DTYPE_F16},
    {"BF16", TEG_DTYPE_BF16},
    {"F64", TEG_DTYPE_F64},
    {"I8", TEG_DTYPE_I8},
    {"I16", TEG_DTYPE_I16},
    {"I32", TEG_DTYPE_I32},
    {"I64", TEG_DTYPE_I64},
    {"U8", TEG_DTYPE_U8},
    {"U16", -1},
    {"U32", -1},
    {"U64", -1},
    {"BOOL", TEG_DTYPE_U8}, /* a byte, 0 or 1 */
    {"F8_E4M3", -1},
    {"F8_E5M2", -1},
    {"F8_E8M0", -1},
    {"F4", -1},
    {"F6_E2M3", -1},
    {"F6_E3M2", -1},
    {"C64", -1},
};

struct reader {
    struct teg_span data;  /* behind the header */
    uint64_t header_bytes; /* with the length before it */
    struct teg_source *source;
    const char *path;
    struct teg_error *err;
};

TEG_PRINTF(3, 4)
static enum teg_status damaged(const struct reader *r, uint64_t at, const char *message, ...)
{
    va_list args;
    va_start(args, message);
    (void)teg_source_vfail(r->err, TEG_ERR_FORMAT, "safetensors", r->path, at, message, args);
    va_end(args);
    return TEG_ERR_FORMAT;
}

/* The header's values have no byte positions of their own, so faults in them are named by tensor. */
enum { IN_HEADER = 8 };

static enum teg_status read_type(const struct reader *r, const json_t *entry, struct teg_tensor *tensor)
{
    const char *const name = json_string_value(json_object_get(entry, "dtype"));
    if (!name)
        return damaged(r, IN_HEADER,
                       "expected tensor '%.64s' to have a dtype string, found none; convert the model again",
                       tensor->name);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strcmp(name, types[i].name) != 0)
            continue;
        if (types[i].dtype < 0)
            return teg_source_fail(
                r->err, TEG_ERR_UNSUPPORTED, "safetensors", r->path, IN_HEADER,
                "expected tensor '%.64s' in a type that Tegula reads, found %s; use the model in BF16, "
                "F16 or F32",
                tensor->name, name);
        tensor->dtype = (enum teg_dtype)types[i].dtype;
        return TEG_OK;
    }
    return damaged(r, IN_HEADER,
                   "expected tensor '%.64s' to have a known dtype, found '%.32s'; use the model in BF16, F16 "
                   "or F32",
                   tensor->name, name);
}

static enum teg_status read_shape(const struct reader *r, const json_t *entry, struct teg_tensor *tensor)
{
    const json_t *const shape = json_object_get(entry, "shape");
    if (!json_is_array(shape))
        return damaged(r, IN_HEADER,
                       "expected tensor '%.64s' to have a shape array, found none; convert the model again",
                       tensor->name);
    const size_t rank = json_array_size(shape);
    if (rank > TEG_MAX_RANK)
        return damaged(r, IN_HEADER,
                       "expected tensor '%.64s' to have at most %d dimensions, found %zu; convert the model "
                       "again",
                       tensor->name, TEG_MAX_RANK, rank);
    tensor->rank = (uint32_t)rank;
    for (size_t i = 0; i < TEG_MAX_RANK; i++)
        tensor->dims[i] = 1;
    for (size_t i = 0; i < rank; i++) {
        const json_t *const dim = json_array_get(shape, i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return damaged(r, IN_HEADER,
                           "expected whole dimensions of tensor '%.64s', found another value at index %zu; "
                           "convert the model again",
                           tensor->name, i);
        tensor->dims[i] = (uint64_t)json_integer_value(dim);
    }
    return TEG_OK;
}

/* Bytes of dtype x shape; false when they overflow. */
static bool measure(const struct teg_tensor *tensor, uint64_t *n_bytes)
{
    size_t n = teg_dtype_info(tensor->dtype)->block_bytes;
    for (uint32_t i = 0; i < tensor->rank; i++)
        if (tensor->dims[i] > SIZE_MAX || !teg_mul(n, (size_t)tensor->dims[i], &n))
            return false;
    *n_bytes = n;
    return true;
}

static enum teg_status read_offsets(const struct reader *r, const json_t *entry, struct teg_tensor *tensor)
{
    const json_t *const offsets = json_object_get(entry, "data_offsets");
    const json_t *const first = json_array_get(offsets, 0), *const last = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last))
        return damaged(r, IN_HEADER,
                       "expected tensor '%.64s' to have data_offsets of two integers, found none; convert "
                       "the model again",
                       tensor->name);
    const int64_t begin = json_integer_value(first), end = json_integer_value(last);
    if (begin < 0 || end < begin || (uint64_t)end > r->data.n_bytes)
        return damaged(r, IN_HEADER,
                       "expected data_offsets of tensor '%.64s' within the %zu bytes of data, found %" PRId64
                       " to %" PRId64 "; download the file again",
                       tensor->name, r->data.n_bytes, begin, end);
    uint64_t n_bytes = 0;
    if (!measure(tensor, &n_bytes))
        return damaged(r, IN_HEADER,
                       "expected tensor '%.64s' to fit in memory, found a shape that needs more than 2^64 "
                       "bytes; download the file again",
                       tensor->name);
    if ((uint64_t)(end - begin) != n_bytes)
        return damaged(r, IN_HEADER,
                       "expected data_offsets of tensor '%.64s' %" PRIu64 " bytes apart as its dtype and "
                       "shape say, found %" PRId64 "; convert the model again",
                       tensor->name, n_bytes, end - begin);
    tensor->n_bytes = (size_t)n_bytes;
    tensor->data = r->data.bytes + begin;
    tensor->file_offset = r->header_bytes + (uint64_t)begin;
    return TEG_OK;
}

static enum teg_status read_tensor(const struct reader *r, const char *name, const json_t *entry,
                                   struct teg_tensor *tensor)
{
    tensor->name = teg_arena_string(&r->source->arena, name, strlen(name));
    if (!tensor->name)
        return teg_base_fail_memory(r->err, "tensor name", strlen(name) + 1);
    if (!json_is_object(entry))
        return damaged(r, IN_HEADER,
                       "expected the entry of tensor '%.64s' to be an object, found another value; convert "
                       "the model again",
                       name);
    TRY(read_type(r, entry, tensor));
    TRY(read_shape(r, entry, tensor));
    return read_offsets(r, entry, tensor);
}

/* By where they begin; an empty tensor before the one that begins at the same byte. */
static int compare_places(const void *a, const void *b)
{
    const struct teg_tensor *const x = a, *const y = b;
    if (x->file_offset != y->file_offset)
        return x->file_offset < y->file_offset ? -1 : 1;
    return (x->n_bytes > y->n_bytes) - (x->n_bytes < y->n_bytes);
}

static enum teg_status check_tiling(const struct reader *r, const struct teg_source_part *part)
{
    const void *const *sorted = NULL;
    TRY(teg_source_sort(r->source, part->tensors, part->n_tensors, sizeof *part->tensors, compare_places, &sorted,
                        r->err));
    uint64_t end = r->header_bytes;
    for (size_t i = 0; i < part->n_tensors; i++) {
        const struct teg_tensor *const t = sorted[i];
        if (t->file_offset != end)
            return damaged(r, t->file_offset,
                           "expected tensor '%.64s' to begin at byte %" PRIu64
                           " where the data before it ends, found %s; "
                           "convert the model again",
                           t->name, end, t->file_offset < end ? "an overlap" : "a hole");
        end += t->n_bytes;
    }
    const uint64_t file_bytes = r->header_bytes + r->data.n_bytes;
    if (end != file_bytes)
        return damaged(r, end,
                       "expected the last tensor to end at the end of the file, found %" PRIu64
                       " bytes more; download the file again",
                       file_bytes - end);
    return TEG_OK;
}

static enum teg_status read_entries(const struct reader *r, json_t *header, struct teg_source_part *part)
{
    part->tensors = teg_arena_array(&r->source->arena, json_object_size(header), sizeof *part->tensors);
    if (!part->tensors)
        return teg_base_fail_memory(r->err, "tensor table", json_object_size(header) * sizeof *part->tensors);
    const char *name;
    json_t *entry;
    json_object_foreach(header, name, entry)
    {
        if (strcmp(name, "__metadata__") != 0)
            TRY(read_tensor(r, name, entry, &part->tensors[part->n_tensors++]));
        else if (!json_is_object(entry))
            return damaged(r, IN_HEADER,
                           "expected __metadata__ to be an object, found another value; convert the model again");
    }
    return check_tiling(r, part);
}

enum teg_status teg_safetensors_read(struct teg_source *source, struct teg_span bytes, const char *path,
                                     struct teg_source_part *part, struct teg_error *err)
{
    struct reader r = {.source = source, .path = path, .err = err};
    *part = (struct teg_source_part){.path = path, .format = "safetensors"};
    struct teg_cursor c = teg_cursor_of(bytes.bytes, bytes.n_bytes);
    uint64_t n_bytes = 0;
    if (!teg_cursor_u64(&c, &n_bytes))
        return damaged(&r, 0,
                       "expected 8 bytes of header length, found %zu before the end of the file; download the file "
                       "again",
                       teg_cursor_left(&c));
    struct teg_span text;
    if (n_bytes > MAX_HEADER_BYTES || !teg_cursor_take(&c, n_bytes, &text))
        return damaged(&r, 0,
                       "expected a header of at most %" PRIu64 " bytes, found a length of %" PRIu64
                       "; download the file again",
                       (uint64_t)teg_min(teg_cursor_left(&c), MAX_HEADER_BYTES), n_bytes);
    r.header_bytes = c.position_bytes;
    r.data = (struct teg_span){c.bytes + c.position_bytes, teg_cursor_left(&c)};
    json_t *header = NULL;
    TRY(teg_json_object(text, "safetensors", path, IN_HEADER, &header, err));
    const enum teg_status status = read_entries(&r, header, part);
    json_decref(header);
    return status;
}

enum teg_status teg_safetensors_parse(const uint8_t *bytes, size_t n_bytes, const char *path,
                                      const struct teg_allocator *allocator, struct teg_source **out,
                                      struct teg_error *err)
{
    struct teg_source *source = NULL;
    TRY(teg_source_new(path, allocator, &source, err));
    source->kind = TEG_SOURCE_SAFETENSORS;
    source->format = "safetensors";
    struct teg_source_part part = {0};
    enum teg_status status = teg_safetensors_read(source, (struct teg_span){bytes, n_bytes}, source->path, &part, err);
    if (status == TEG_OK)
        status = teg_source_join(source, &part, 1, err);
    if (status == TEG_OK)
        status = teg_source_seal(source, err);
    if (status != TEG_OK) {
        teg_source_free(source);
        return status;
    }
    *out = source;
    return TEG_OK;
}
