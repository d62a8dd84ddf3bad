/* format/gguf.c: one GGUF file (version 2 or 3, little endian) into a part.
 *
 *     "GGUF"  u32 version  u64 n_tensors  u64 n_pairs
 *     n_pairs   x { string key, u32 type, value }
 *     n_tensors x { string name, u32 rank, u64 dims[rank], u32 type, u64 offset }
 *     zero bytes up to a multiple of general.alignment (32 unless the metadata says otherwise)
 *     tensor data; each offset counts from here and is a multiple of the alignment
 *
 * A string is a u64 length and that many bytes, an array is u32 type, u64 n and n values. dims[0] is the contiguous
 * one, so they are reversed here.
 *
 * Invariant: a count is believed only after the bytes it needs at least are known to be there, so memory stays within
 * about ten times the file's metadata. Strings and bools stay in the map, numbers are widened into the arena. Tensor
 * data is never touched. Reading everything into one struct per known key was not taken: this file does not know what
 * a key means (general.alignment excepted). */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "format/impl.h"

enum {
    DEFAULT_ALIGNMENT = 32,
    MAX_GGUF_RANK = 4,
    LEAST_PAIR_BYTES = 8 + 4 + 1,           /* empty key, type, one byte */
    LEAST_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8, /* empty name, rank 1 */
    GGUF_STRING = 8,
    GGUF_ARRAY = 9,
};

/* Indexed by the file's type number. */
static const struct value_type {
    const char *name, *array_name;
    size_t least_bytes; /* of one value; numbers and bools have exactly this size */
    enum teg_meta_type type, array_type;
    bool is_signed;
} value_types[] = {
    {"u8", "array of u8", 1, TEG_META_INT, TEG_META_ARRAY_INT, false},
    {"i8", "array of i8", 1, TEG_META_INT, TEG_META_ARRAY_INT, true},
    {"u16", "array of u16", 2, TEG_META_INT, TEG_META_ARRAY_INT, false},
    {"i16", "array of i16", 2, TEG_META_INT, TEG_META_ARRAY_INT, true},
    {"u32", "array of u32", 4, TEG_META_INT, TEG_META_ARRAY_INT, false},
    {"i32", "array of i32", 4, TEG_META_INT, TEG_META_ARRAY_INT, true},
    {"f32", "array of f32", 4, TEG_META_FLOAT, TEG_META_ARRAY_FLOAT, false},
    {"bool", "array of bool", 1, TEG_META_BOOL, TEG_META_ARRAY_BOOL, false},
    {"string", "array of string", 8, TEG_META_STRING, TEG_META_ARRAY_STRING, false},
    {"array", NULL, 12, TEG_META_NULL, TEG_META_NULL, false},
    {"u64", "array of u64", 8, TEG_META_INT, TEG_META_ARRAY_INT, false},
    {"i64", "array of i64", 8, TEG_META_INT, TEG_META_ARRAY_INT, true},
    {"f64", "array of f64", 8, TEG_META_FLOAT, TEG_META_ARRAY_FLOAT, false},
};
enum { N_VALUE_TYPES = sizeof value_types / sizeof *value_types };

struct reader {
    struct teg_cursor c;
    struct teg_arena *arena;
    const char *path;
    struct teg_error *err;
};

/* ---- failing ---- */

TEG_PRINTF(3, 4) static enum teg_status damaged(const struct reader *r, size_t at, const char *message, ...)
{
    va_list args;
    va_start(args, message);
    (void)teg_source_vfail(r->err, TEG_ERR_FORMAT, "GGUF", r->path, at, message, args);
    va_end(args);
    return TEG_ERR_FORMAT;
}

/* The file ends before `what`, which needs n_bytes more from here. */
static enum teg_status ends_early(const struct reader *r, const char *what, uint64_t n_bytes)
{
    return damaged(r, r->c.position_bytes,
                   "expected %llu bytes of %s, found %zu before the end of the file; download the file again",
                   (unsigned long long)n_bytes, what, teg_cursor_left(&r->c));
}

/* ---- small things ---- */

static enum teg_status read_u32(struct reader *r, const char *what, uint32_t *out)
{
    return teg_cursor_u32(&r->c, out) ? TEG_OK : ends_early(r, what, 4);
}

static enum teg_status read_u64(struct reader *r, const char *what, uint64_t *out)
{
    return teg_cursor_u64(&r->c, out) ? TEG_OK : ends_early(r, what, 8);
}

static enum teg_status read_string(struct reader *r, const char *what, struct teg_string *out)
{
    uint64_t n_bytes = 0;
    TRY(read_u64(r, what, &n_bytes));
    struct teg_span s;
    if (!teg_cursor_take(&r->c, n_bytes, &s))
        return ends_early(r, what, n_bytes);
    *out = (struct teg_string){(const char *)s.bytes, s.n_bytes};
    return TEG_OK;
}

/* A key or tensor name, NUL-terminated in the arena. */
static enum teg_status read_name(struct reader *r, const char *what, const char **out)
{
    const size_t at = r->c.position_bytes;
    struct teg_string s = {0};
    TRY(read_string(r, what, &s));
    if (memchr(s.bytes, '\0', s.n_bytes))
        return damaged(r, at, "expected a %s without NUL bytes, found one inside; convert the model again", what);
    *out = teg_arena_string(r->arena, s.bytes, s.n_bytes);
    return *out ? TEG_OK : teg_base_fail_memory(r->err, what, s.n_bytes + 1);
}

/* ---- values ---- */

static enum teg_status read_int(struct reader *r, const struct value_type *type, int64_t *out)
{
    const size_t at = r->c.position_bytes, n_bytes = type->least_bytes;
    uint64_t bits = 0;
    if (!teg_cursor_uint(&r->c, n_bytes, &bits))
        return ends_early(r, type->name, n_bytes);
    if (type->is_signed) {
        const uint64_t sign = UINT64_C(1) << (8 * n_bytes - 1);
        bits = (bits ^ sign) - sign; /* sign extension */
    } else if (bits > INT64_MAX) {
        return damaged(r, at, "expected an integer below 2^63, found %llu; convert the model again",
                       (unsigned long long)bits);
    }
    memcpy(out, &bits, sizeof *out);
    return TEG_OK;
}

static enum teg_status read_real(struct reader *r, const struct value_type *type, double *out)
{
    uint64_t bits = 0;
    if (!teg_cursor_uint(&r->c, type->least_bytes, &bits))
        return ends_early(r, type->name, type->least_bytes);
    if (type->least_bytes == sizeof(double)) {
        memcpy(out, &bits, sizeof *out);
    } else {
        const uint32_t low = (uint32_t)bits;
        float value;
        memcpy(&value, &low, sizeof value);
        *out = (double)value;
    }
    return TEG_OK;
}

/* n bools, checked and left in place: any other byte read as a bool would be undefined. */
static enum teg_status read_bools(struct reader *r, size_t n, const bool **out)
{
    static_assert(sizeof(bool) == 1, "a bool in the file is a bool in memory");
    const size_t at = r->c.position_bytes;
    struct teg_span s;
    if (!teg_cursor_take(&r->c, n, &s))
        return ends_early(r, "bool", n);
    for (size_t i = 0; i < n; i++)
        if (s.bytes[i] > 1)
            return damaged(r, at + i, "expected a bool of 0 or 1, found %u; convert the model again", s.bytes[i]);
    *out = (const bool *)s.bytes;
    return TEG_OK;
}

static enum teg_status read_ints(struct reader *r, const struct value_type *type, size_t n, const int64_t **out)
{
    int64_t *const items = teg_arena_array(r->arena, n, sizeof *items);
    if (!items)
        return teg_base_fail_memory(r->err, type->array_name, n * sizeof *items);
    for (size_t i = 0; i < n; i++)
        TRY(read_int(r, type, &items[i]));
    *out = items;
    return TEG_OK;
}

static enum teg_status read_reals(struct reader *r, const struct value_type *type, size_t n, const double **out)
{
    double *const items = teg_arena_array(r->arena, n, sizeof *items);
    if (!items)
        return teg_base_fail_memory(r->err, type->array_name, n * sizeof *items);
    for (size_t i = 0; i < n; i++)
        TRY(read_real(r, type, &items[i]));
    *out = items;
    return TEG_OK;
}

static enum teg_status read_strings(struct reader *r, size_t n, const struct teg_string **out)
{
    struct teg_string *const items = teg_arena_array(r->arena, n, sizeof *items);
    if (!items)
        return teg_base_fail_memory(r->err, "array of string", n * sizeof *items);
    for (size_t i = 0; i < n; i++)
        TRY(read_string(r, "string", &items[i]));
    *out = items;
    return TEG_OK;
}

static enum teg_status read_value_type(struct reader *r, const struct value_type **type)
{
    const size_t at = r->c.position_bytes;
    uint32_t number = 0;
    TRY(read_u32(r, "value type", &number));
    if (number >= N_VALUE_TYPES)
        return damaged(r, at, "expected a value type from 0 to %d, found %u; convert the model again",
                       N_VALUE_TYPES - 1, number);
    *type = &value_types[number];
    return TEG_OK;
}

static enum teg_status read_array(struct reader *r, struct teg_meta *meta)
{
    const size_t at = r->c.position_bytes;
    const struct value_type *type = NULL;
    TRY(read_value_type(r, &type));
    if (type == &value_types[GGUF_ARRAY])
        return damaged(r, at,
                       "expected an array of plain values in '%.64s', found an array of arrays; convert the "
                       "model again",
                       meta->key);
    const size_t n_at = r->c.position_bytes;
    uint64_t n = 0;
    TRY(read_u64(r, "array length", &n));
    const size_t most = teg_cursor_left(&r->c) / type->least_bytes;
    if (n > most)
        return damaged(r, n_at,
                       "expected at most %zu items of type %s before the end of the file, found a count of "
                       "%llu; download the file again",
                       most, type->name, (unsigned long long)n);
    meta->type = type->array_type;
    meta->type_name = type->array_name;
    meta->n = (size_t)n;
    switch (type->type) {
    case TEG_META_INT:
        return read_ints(r, type, meta->n, &meta->integers);
    case TEG_META_FLOAT:
        return read_reals(r, type, meta->n, &meta->reals);
    case TEG_META_BOOL:
        return read_bools(r, meta->n, &meta->booleans);
    default:
        return read_strings(r, meta->n, &meta->strings);
    }
}

static enum teg_status read_pair(struct reader *r, struct teg_meta *meta)
{
    TRY(read_name(r, "metadata key", &meta->key));
    const struct value_type *type = NULL;
    TRY(read_value_type(r, &type));
    if (type == &value_types[GGUF_ARRAY])
        return read_array(r, meta);
    meta->type = type->type;
    meta->type_name = type->name;
    meta->n = 1;
    switch (type->type) {
    case TEG_META_INT:
        return read_int(r, type, &meta->integer);
    case TEG_META_FLOAT:
        return read_real(r, type, &meta->real);
    case TEG_META_BOOL: {
        const bool *in_place = NULL;
        TRY(read_bools(r, 1, &in_place));
        meta->boolean = *in_place;
        return TEG_OK;
    }
    default:
        return read_string(r, "string", &meta->string);
    }
}

/* ---- tensors ---- */

static enum teg_status read_dims(struct reader *r, struct teg_tensor *tensor)
{
    const size_t at = r->c.position_bytes;
    TRY(read_u32(r, "rank", &tensor->rank));
    if (tensor->rank < 1 || tensor->rank > MAX_GGUF_RANK)
        return damaged(r, at, "expected tensor '%.64s' to have 1 to %d dimensions, found %u; convert the model again",
                       tensor->name, MAX_GGUF_RANK, tensor->rank);
    for (size_t i = 0; i < TEG_MAX_RANK; i++)
        tensor->dims[i] = 1;
    for (uint32_t i = tensor->rank; i-- > 0;) {
        const size_t dim_at = r->c.position_bytes;
        TRY(read_u64(r, "dimension", &tensor->dims[i]));
        if (!tensor->dims[i])
            return damaged(r, dim_at,
                           "expected dimensions of tensor '%.64s' of at least 1, found 0; convert the model "
                           "again",
                           tensor->name);
    }
    return TEG_OK;
}

static enum teg_status read_tensor_type(struct reader *r, struct teg_tensor *tensor)
{
    const size_t at = r->c.position_bytes;
    uint32_t number = 0;
    TRY(read_u32(r, "tensor type", &number));
    if (teg_dtype_from_gguf(number, &tensor->dtype))
        return TEG_OK;
    const char *const name = teg_dtype_gguf_name(number);
    return teg_source_fail(r->err, TEG_ERR_UNSUPPORTED, "GGUF", r->path, at,
                           "expected tensor '%.64s' in a type that Tegula reads, found type %u (%s); use another "
                           "quantization of the model, such as Q4_K_M or Q8_0",
                           tensor->name, number, name ? name : "withdrawn or unknown");
}

static enum teg_status measure(struct reader *r, size_t at, struct teg_tensor *tensor)
{
    const uint64_t width = tensor->dims[tensor->rank - 1];
    const struct teg_dtype_info *const info = teg_dtype_info(tensor->dtype);
    if (width % info->block_elements)
        return damaged(r, at,
                       "expected rows of tensor '%.64s' in whole blocks of %u (%s), found rows of %llu; convert "
                       "the model again",
                       tensor->name, info->block_elements, info->name, (unsigned long long)width);
    bool fits = teg_dtype_row_bytes(tensor->dtype, width, &tensor->n_bytes);
    for (uint32_t i = 0; fits && i + 1 < tensor->rank; i++)
        fits = tensor->dims[i] <= SIZE_MAX && teg_mul(tensor->n_bytes, (size_t)tensor->dims[i], &tensor->n_bytes);
    if (!fits)
        return damaged(r, at,
                       "expected tensor '%.64s' to fit in memory, found dimensions that need more than 2^64 "
                       "bytes; download the file again",
                       tensor->name);
    return TEG_OK;
}

static enum teg_status read_tensor(struct reader *r, uint64_t alignment, struct teg_tensor *tensor)
{
    const size_t at = r->c.position_bytes;
    TRY(read_name(r, "tensor name", &tensor->name));
    TRY(read_dims(r, tensor));
    TRY(read_tensor_type(r, tensor));
    TRY(measure(r, at, tensor));
    const size_t offset_at = r->c.position_bytes;
    TRY(read_u64(r, "tensor offset", &tensor->file_offset)); /* from the data section until place_tensors */
    if (tensor->file_offset % alignment)
        return damaged(r, offset_at,
                       "expected tensor '%.64s' at a multiple of %llu bytes, found offset %llu; convert "
                       "the model again",
                       tensor->name, (unsigned long long)alignment, (unsigned long long)tensor->file_offset);
    return TEG_OK;
}

/* The data section begins behind the last tensor's description; only now is it known where each tensor lies. */
static enum teg_status place_tensors(struct reader *r, uint64_t alignment, struct teg_source_part *part)
{
    size_t begin;
    if (alignment > SIZE_MAX || !teg_round_up(r->c.position_bytes, (size_t)alignment, &begin) || begin > r->c.n_bytes)
        begin = r->c.n_bytes; /* no data: the first tensor reports it */
    const size_t section_bytes = r->c.n_bytes - begin;
    for (size_t i = 0; i < part->n_tensors; i++) {
        struct teg_tensor *const t = &part->tensors[i];
        if (t->file_offset > section_bytes || t->n_bytes > section_bytes - t->file_offset)
            return damaged(r, begin,
                           "expected tensor '%.64s' (%zu bytes at offset %llu) inside the data, found %zu "
                           "bytes of data; download the file again",
                           t->name, t->n_bytes, (unsigned long long)t->file_offset, section_bytes);
        t->file_offset += begin;
        t->data = r->c.bytes + t->file_offset;
    }
    return TEG_OK;
}

static int compare_offsets(const void *a, const void *b)
{
    const struct teg_tensor *const x = a, *const y = b;
    return (x->file_offset > y->file_offset) - (x->file_offset < y->file_offset);
}

static enum teg_status refuse_overlap(struct reader *r, struct teg_source *source, const struct teg_source_part *part)
{
    const void *const *sorted;
    TRY(teg_source_sort(source, part->tensors, part->n_tensors, sizeof *part->tensors, compare_offsets, &sorted,
                        r->err));
    for (size_t i = 1; i < part->n_tensors; i++) {
        const struct teg_tensor *const a = sorted[i - 1], *const b = sorted[i];
        if (b->file_offset - a->file_offset < a->n_bytes)
            return damaged(r, (size_t)b->file_offset,
                           "expected tensors that do not overlap, found '%.64s' beginning inside '%.64s'; convert the "
                           "model again",
                           b->name, a->name);
    }
    return TEG_OK;
}

/* ---- the file ---- */

static enum teg_status read_header(struct reader *r, struct teg_source_part *part)
{
    struct teg_span magic;
    if (!teg_cursor_take(&r->c, 4, &magic))
        return ends_early(r, "magic", 4);
    if (memcmp(magic.bytes, "GGUF", 4) != 0)
        return damaged(r, 0, "expected the bytes 'GGUF', found %02x %02x %02x %02x; check that this is a GGUF file",
                       magic.bytes[0], magic.bytes[1], magic.bytes[2], magic.bytes[3]);
    uint32_t version = 0;
    TRY(read_u32(r, "version", &version));
    if (version && version % 65536 == 0)
        return teg_source_fail(r->err, TEG_ERR_UNSUPPORTED, "GGUF", r->path, 4,
                               "expected a little-endian file, found a big-endian one; convert the model for a "
                               "little-endian machine");
    if (version != 2 && version != 3)
        return teg_source_fail(r->err, TEG_ERR_UNSUPPORTED, "GGUF", r->path, 4,
                               "expected version 2 or 3, found %u; convert the model again", version);
    part->format = version == 2 ? "GGUF v2" : "GGUF v3";
    uint64_t n_tensors = 0, n_metas = 0;
    TRY(read_u64(r, "tensor count", &n_tensors));
    TRY(read_u64(r, "metadata count", &n_metas));
    const size_t left = teg_cursor_left(&r->c);
    if (n_metas > left / LEAST_PAIR_BYTES)
        return damaged(r, 16,
                       "expected at most %zu metadata pairs in a file of this size, found a count of %llu; "
                       "download the file again",
                       left / LEAST_PAIR_BYTES, (unsigned long long)n_metas);
    const size_t left_for_tensors = left - (size_t)n_metas * LEAST_PAIR_BYTES;
    if (n_tensors > left_for_tensors / LEAST_TENSOR_BYTES)
        return damaged(r, 8,
                       "expected at most %zu tensors in a file of this size, found a count of %llu; download the "
                       "file again",
                       left_for_tensors / LEAST_TENSOR_BYTES, (unsigned long long)n_tensors);
    part->n_metas = (size_t)n_metas;
    part->n_tensors = (size_t)n_tensors;
    return TEG_OK;
}

static enum teg_status find_alignment(struct reader *r, const struct teg_source_part *part, uint64_t *alignment)
{
    *alignment = DEFAULT_ALIGNMENT;
    for (size_t i = 0; i < part->n_metas; i++) {
        const struct teg_meta *const m = &part->metas[i];
        if (strcmp(m->key, "general.alignment") != 0)
            continue;
        if (m->type != TEG_META_INT)
            return damaged(r, r->c.position_bytes,
                           "expected general.alignment to be an integer, found %s; convert the "
                           "model again",
                           m->type_name);
        if (m->integer <= 0 || (m->integer & (m->integer - 1)))
            return damaged(r, r->c.position_bytes,
                           "expected general.alignment to be a power of two, found %lld; convert the model again",
                           (long long)m->integer);
        *alignment = (uint64_t)m->integer;
        return TEG_OK;
    }
    return TEG_OK;
}

enum teg_status teg_gguf_read(struct teg_source *source, struct teg_span bytes, const char *path,
                              struct teg_source_part *part, struct teg_error *err)
{
    struct reader r = {teg_cursor_of(bytes.bytes, bytes.n_bytes), &source->arena, path, err};
    *part = (struct teg_source_part){.path = path};
    TRY(read_header(&r, part));
    part->metas = teg_arena_array(r.arena, part->n_metas, sizeof *part->metas);
    part->tensors = teg_arena_array(r.arena, part->n_tensors, sizeof *part->tensors);
    if (!part->metas || !part->tensors)
        return teg_base_fail_memory(err, "GGUF tables",
                                    part->n_metas * sizeof *part->metas + part->n_tensors * sizeof *part->tensors);
    for (size_t i = 0; i < part->n_metas; i++)
        TRY(read_pair(&r, &part->metas[i]));
    uint64_t alignment = 0;
    TRY(find_alignment(&r, part, &alignment));
    for (size_t i = 0; i < part->n_tensors; i++)
        TRY(read_tensor(&r, alignment, &part->tensors[i]));
    TRY(place_tensors(&r, alignment, part));
    return refuse_overlap(&r, source, part);
}

enum teg_status teg_gguf_parse(const uint8_t *bytes, size_t n_bytes, const char *path, bool need_tensors,
                               const struct teg_allocator *allocator, struct teg_source **out, struct teg_error *err)
{
    struct teg_source *source = NULL;
    TRY(teg_source_new(path, allocator, &source, err));
    struct teg_source_part part = {0};
    enum teg_status status = teg_gguf_read(source, (struct teg_span){bytes, n_bytes}, source->path, &part, err);
    if (status == TEG_OK)
        status = teg_gguf_assemble(source, &part, need_tensors, false, err);
    if (status == TEG_OK)
        status = teg_source_seal(source, err);
    if (status != TEG_OK) {
        teg_source_free(source);
        return status;
    }
    *out = source;
    return TEG_OK;
}
