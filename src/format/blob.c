/* format/blob.c: weight files (MIL blob storage version 2) and the container of an .mlmodelc's description.
 *
 * Weight file, little endian:
 *   0   u32 number of blobs    4  u32 version, 2    8  7 x u64 reserved
 *   64-byte records, 64-byte aligned; the place of one is what a program names:
 *   0   u32 0xDEADBEEF         4  u32 type code     8  u64 payload bytes
 *   16  u64 place of the payload in the file       24  u64 unused bits of the last byte   32  4 x u64 reserved
 *
 * The unused bits and the reserved words hold anything in files older than iOS 18, so they are looked at only for the
 * types that did not exist then: those below one byte. */
#include "format/impl.h"
#include "format/mlpackage.h"

enum { RECORD_BYTES = 64, HEADER_BYTES = 64, VERSION = 2 };
#define SENTINEL 0xDEADBEEFu

static const char what[] = "weight file";

static const struct teg_blob_type types[] = {
    [1] = {"float16", 16},    [2] = {"float32", 32}, [3] = {"uint8", 8},    [4] = {"int8", 8},
    [5] = {"bfloat16", 16},   [6] = {"int16", 16},   [7] = {"uint16", 16},  [8] = {"int4", 4},
    [9] = {"uint1", 1},       [10] = {"uint2", 2},   [11] = {"uint4", 4},   [12] = {"uint3", 3},
    [13] = {"uint6", 6},      [14] = {"int32", 32},  [15] = {"uint32", 32}, [16] = {"float8e4m3fn", 8},
    [17] = {"float8e5m2", 8},
};

const struct teg_blob_type *teg_blob_type(uint32_t code)
{
    return code < sizeof types / sizeof *types && types[code].name ? &types[code] : NULL;
}

static enum teg_status check_header(struct teg_span file, const char *path, struct teg_error *err)
{
    struct teg_cursor c = teg_cursor_of(file.bytes, file.n_bytes);
    uint32_t count, version;
    if (file.n_bytes < HEADER_BYTES || !teg_cursor_u32(&c, &count) || !teg_cursor_u32(&c, &version))
        return teg_source_fail(err, TEG_ERR_FORMAT, what, path, 0,
                               "expected a header of %d bytes, found a file of %zu; copy the package again",
                               HEADER_BYTES, file.n_bytes);
    if (version != VERSION)
        return teg_source_fail(err, TEG_ERR_UNSUPPORTED, what, path, 4,
                               "expected storage version %d, found %u; export the model again", VERSION, version);
    return TEG_OK;
}

/* The unused bits of a sub-byte record: fewer than a byte, and the rest whole elements. */
static enum teg_status check_padding(const struct teg_blob *blob, uint64_t padding, uint64_t offset, const char *path,
                                     struct teg_error *err)
{
    const uint32_t bits = types[blob->code].bits;
    const uint64_t n_bits = (uint64_t)blob->data.n_bytes * 8; /* a size in memory: no overflow */
    if (padding >= 8 || padding > n_bits || (n_bits - padding) % bits)
        return teg_source_fail(err, TEG_ERR_FORMAT, what, path, offset + 24,
                               "expected unused bits that leave whole %s elements in %zu bytes, found %llu; export the "
                               "model again",
                               types[blob->code].name, blob->data.n_bytes, (unsigned long long)padding);
    return TEG_OK;
}

enum teg_status teg_blob_read(struct teg_span file, const char *path, uint64_t offset, struct teg_blob *blob,
                              struct teg_error *err)
{
    TRY(check_header(file, path, err));
    if (offset < HEADER_BYTES || offset % RECORD_BYTES || offset > file.n_bytes || file.n_bytes - offset < RECORD_BYTES)
        return teg_source_fail(err, TEG_ERR_FORMAT, what, path, offset,
                               "expected a record at a multiple of %d inside %zu bytes, found offset %llu; copy the "
                               "package again",
                               RECORD_BYTES, file.n_bytes, (unsigned long long)offset);
    struct teg_cursor c = teg_cursor_of(file.bytes + offset, RECORD_BYTES);
    uint32_t sentinel, code;
    uint64_t n_bytes, place, padding;
    if (!teg_cursor_u32(&c, &sentinel) || sentinel != SENTINEL || !teg_cursor_u32(&c, &code) ||
        !teg_cursor_u64(&c, &n_bytes) || !teg_cursor_u64(&c, &place) || !teg_cursor_u64(&c, &padding))
        return teg_source_fail(
            err, TEG_ERR_FORMAT, what, path, offset,
            "expected a record that begins with deadbeef, found other bytes; copy the package again");
    const struct teg_blob_type *const type = teg_blob_type(code);
    if (!type)
        return teg_source_fail(err, TEG_ERR_UNSUPPORTED, what, path, offset + 4,
                               "expected an element type of 1 to 17, found %u; update tegula", code);
    if (place > file.n_bytes || n_bytes > file.n_bytes - place)
        return teg_source_fail(
            err, TEG_ERR_FORMAT, what, path, offset + 8,
            "expected the record's data inside %zu bytes, found %llu bytes at %llu; copy the package "
            "again",
            file.n_bytes, (unsigned long long)n_bytes, (unsigned long long)place);
    *blob = (struct teg_blob){.code = code, .data = {file.bytes + place, (size_t)n_bytes}};
    if (type->bits >= 8)
        return TEG_OK;
    TRY(check_padding(blob, padding, offset, path, err));
    blob->padding_bits = (uint32_t)padding;
    return TEG_OK;
}

/* coremldata.bin, little endian:
 *   0  u32 502 (ML program)   0x1c  u64 7, "generic"   0x2b  u32 spec version   0x4b  u64 n   0x53  n bytes */
enum teg_status teg_mlmodelc_description(struct teg_span file, const char *path, struct teg_span *description,
                                         uint32_t *spec_version, struct teg_error *err)
{
    enum { ML_PROGRAM = 502, VERSION_AT = 0x2b, LENGTH_AT = 0x4b };
    static const char name[] = "model description";
    struct teg_cursor c = teg_cursor_of(file.bytes, file.n_bytes);
    struct teg_span skipped;
    uint32_t type;
    uint64_t n;
    if (!teg_cursor_u32(&c, &type) || !teg_cursor_take(&c, VERSION_AT - 4, &skipped) ||
        !teg_cursor_u32(&c, spec_version) || !teg_cursor_take(&c, LENGTH_AT - VERSION_AT - 4, &skipped) ||
        !teg_cursor_u64(&c, &n))
        return teg_source_fail(err, TEG_ERR_FORMAT, name, path, c.position_bytes,
                               "expected a header of 83 bytes, found a file of %zu; compile the model again",
                               file.n_bytes);
    if (type != ML_PROGRAM)
        return teg_source_fail(err, TEG_ERR_UNSUPPORTED, name, path, 0,
                               "expected an ML program (type 502), found type %u; convert the model to an ML program",
                               type);
    if (!teg_cursor_take(&c, n, description))
        return teg_source_fail(err, TEG_ERR_FORMAT, name, path, LENGTH_AT,
                               "expected a description inside %zu bytes, found one of %llu; compile the model again",
                               file.n_bytes, (unsigned long long)n);
    return TEG_OK;
}
