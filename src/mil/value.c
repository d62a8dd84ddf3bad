/* mil/value.c: constants that lie in a weight file, for both readers: the record must be of the declared element type
 * and hold exactly the bytes that the declared shape needs. */
#include "mil/impl.h"

/* Type code of a record. bool, string and the 64-bit types are never stored in weight files. */
static const uint8_t codes[TEG_MIL_DTYPE_COUNT] = {
    [TEG_MIL_FP16] = 1,       [TEG_MIL_FP32] = 2,     [TEG_MIL_UINT8] = 3,  [TEG_MIL_INT8] = 4,   [TEG_MIL_BF16] = 5,
    [TEG_MIL_INT16] = 6,      [TEG_MIL_UINT16] = 7,   [TEG_MIL_INT4] = 8,   [TEG_MIL_UINT1] = 9,  [TEG_MIL_UINT2] = 10,
    [TEG_MIL_UINT4] = 11,     [TEG_MIL_UINT3] = 12,   [TEG_MIL_UINT6] = 13, [TEG_MIL_INT32] = 14, [TEG_MIL_UINT32] = 15,
    [TEG_MIL_FP8E4M3FN] = 16, [TEG_MIL_FP8E5M2] = 17,
};

uint32_t teg_mil_blob_code(enum teg_mil_dtype dtype)
{
    return codes[dtype];
}

static enum teg_status find_file(struct teg_mil_reader *r, const char *name, const uint8_t *at, struct teg_span *file)
{
    struct teg_mil_files *const files = r->program->files;
    if (files->in_memory && !files->weights.bytes)
        MIL_FAIL(r, TEG_ERR_FORMAT, at, "expected a weight file '%.80s', found none; copy the whole package", name);
    if (files->in_memory)
        r->weights = files->weights;
    else if (name != r->weights_name)
        TRY(teg_mlpackage_weights(&files->package, name, &r->weights, r->err));
    r->weights_name = name;
    *file = r->weights;
    return TEG_OK;
}

enum teg_status teg_mil_blob(struct teg_mil_reader *r, struct teg_span file_name, uint64_t offset,
                             struct teg_mil_const *value, const uint8_t *at)
{
    const struct teg_mil_dtype_info *const info = teg_mil_dtype_info(value->type.dtype);
    size_t n = 0, n_bytes = 0;
    if (value->type.kind != TEG_MIL_TENSOR || !codes[value->type.dtype])
        MIL_FAIL(r, TEG_ERR_FORMAT, at,
                 "expected a tensor of a type that weight files hold, found %s; export the model again",
                 value->type.kind == TEG_MIL_TENSOR ? info->name : "another kind of value");
    if (!teg_mil_count(&value->type, &n) || !teg_mil_bytes(value->type.dtype, n, &n_bytes))
        MIL_FAIL(r, TEG_ERR_FORMAT, at,
                 "expected a value with a constant shape that fits in memory, found another; export the model again");
    TRY(teg_mil_intern(r, file_name, "the name of a weight file", &value->file));
    struct teg_span file = {0};
    struct teg_blob blob = {0};
    TRY(find_file(r, value->file, at, &file));
    TRY(teg_blob_read(file, value->file, offset, &blob, r->err));
    if (blob.code != codes[value->type.dtype])
        MIL_FAIL(r, TEG_ERR_FORMAT, at,
                 "expected a weight of type %s as declared, found %s in the record at %llu; export the model again",
                 info->name, teg_blob_type(blob.code)->name, (unsigned long long)offset);
    const bool is_exact = info->bits >= 8
                              ? blob.data.n_bytes == n_bytes
                              : blob.data.n_bytes == n_bytes && n_bytes * 8 - blob.padding_bits == n * info->bits;
    if (!is_exact)
        MIL_FAIL(r, TEG_ERR_FORMAT, at,
                 "expected a weight of %zu bytes (%zu x %s) as its shape says, found %zu with %u bits unused in the "
                 "record at %llu; export the model again",
                 n_bytes, n, info->name, blob.data.n_bytes, blob.padding_bits, (unsigned long long)offset);
    value->bytes = blob.data.bytes;
    value->n_bytes = n_bytes;
    value->file_offset = offset;
    return TEG_OK;
}
