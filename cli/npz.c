/* npz.c: NumPy's .npz: a ZIP archive of .npy files.
 *
 *     local header   PK\3\4, 26 bytes of facts, name, extra; then the data       (once an array)
 *     directory      PK\1\2, 42 bytes of facts, name, extra, comment             (once an array)
 *     end            PK\5\6, counts, size and offset of the directory
 *
 * Invariant: what is read comes from the directory at the end, never from the local headers' sizes (writers leave them
 * empty), every offset is checked against the file, and the check sum of every array is compared. A compressed array
 * may grow to at most 1032 times its size (that is deflate's own limit), so a small file cannot ask for much memory.
 * libzip was not taken: zlib is enough, and there is nothing else in these files. */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "array.h"

enum { local_bytes = 30, entry_bytes = 46, end_bytes = 22, end64_bytes = 56, locator_bytes = 20 };
enum { method_stored = 0, method_deflated = 8 };
#define LARGEST_32 UINT64_C(0xffffffff)

struct archive {
    const unsigned char *bytes;
    size_t n_bytes;
    const char *where;
};

struct entry {
    const char *name;
    size_t n_name;
    unsigned method;
    uint32_t check_sum;
    uint64_t n_packed, n_bytes, offset;
};

static uint64_t read_le(const unsigned char *p, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static int fail_archive(const struct archive *a, const char *expected, const char *found)
{
    return cli_fail("cannot read arrays: %s: expected %s, found %s; write it with numpy.savez", a->where, expected,
                    found);
}

/* ---- the directory ---- */

/* The last bytes of the file that may be the end record; a comment of up to 65535 bytes may follow it. */
static const unsigned char *find_end(const struct archive *a)
{
    if (a->n_bytes < end_bytes)
        return NULL;
    const size_t last = a->n_bytes - end_bytes, first = last > 65535 ? last - 65535 : 0;
    for (size_t at = last + 1; at-- > first;)
        if (memcmp(a->bytes + at, "PK\5\6", 4) == 0)
            return a->bytes + at;
    return NULL;
}

static int find_directory(const struct archive *a, uint64_t *n_entries, uint64_t *offset)
{
    const unsigned char *const end = find_end(a);
    if (!end)
        return fail_archive(a, "the end of a ZIP archive", "none");
    *n_entries = read_le(end + 10, 2);
    *offset = read_le(end + 16, 4);
    const size_t at = (size_t)(end - a->bytes);
    if ((*n_entries != 0xffff && *offset != LARGEST_32) || at < locator_bytes)
        return CLI_DONE;
    const unsigned char *const locator = end - locator_bytes;
    const uint64_t end64 = read_le(locator + 8, 8);
    if (memcmp(locator, "PK\6\7", 4) != 0)
        return CLI_DONE;
    if (end64 > a->n_bytes || a->n_bytes - end64 < end64_bytes || memcmp(a->bytes + end64, "PK\6\6", 4) != 0)
        return fail_archive(a, "a 64-bit end record", "none");
    *n_entries = read_le(a->bytes + end64 + 32, 8);
    *offset = read_le(a->bytes + end64 + 48, 8);
    return CLI_DONE;
}

/* 64-bit sizes stand in the extra field, in this order, each only where the 32-bit one is full. */
static void read_extra64(const unsigned char *extra, size_t n, struct entry *e)
{
    uint64_t *const wide[] = {&e->n_bytes, &e->n_packed, &e->offset};
    for (size_t at = 0; n - at >= 4;) {
        const size_t size = (size_t)read_le(extra + at + 2, 2);
        if (size > n - at - 4)
            return;
        if (read_le(extra + at, 2) == 1)
            for (size_t i = 0, used = 0; i < CLI_COUNT(wide); i++)
                if (*wide[i] == LARGEST_32 && size - used >= 8) {
                    *wide[i] = read_le(extra + at + 4 + used, 8);
                    used += 8;
                }
        at += 4 + size;
    }
}

static int read_entry(const struct archive *a, uint64_t *offset, struct entry *e)
{
    if (*offset > a->n_bytes || a->n_bytes - *offset < entry_bytes || memcmp(a->bytes + *offset, "PK\1\2", 4) != 0)
        return fail_archive(a, "a directory entry", "other bytes");
    const unsigned char *const p = a->bytes + *offset;
    const size_t n_name = (size_t)read_le(p + 28, 2), n_extra = (size_t)read_le(p + 30, 2);
    const size_t n_all = entry_bytes + n_name + n_extra + (size_t)read_le(p + 32, 2);
    if (a->n_bytes - *offset < n_all)
        return fail_archive(a, "a whole directory entry", "the end of the file");
    *e = (struct entry){.name = (const char *)p + entry_bytes,
                        .n_name = n_name,
                        .method = (unsigned)read_le(p + 10, 2),
                        .check_sum = (uint32_t)read_le(p + 16, 4),
                        .n_packed = read_le(p + 20, 4),
                        .n_bytes = read_le(p + 24, 4),
                        .offset = read_le(p + 42, 4)};
    read_extra64(p + entry_bytes + n_name, n_extra, e);
    *offset += n_all;
    return CLI_DONE;
}

/* ---- one array ---- */

static bool inflate_all(const unsigned char *from, size_t n_from, unsigned char *to, size_t n_to)
{
    z_stream z = {.next_in = (unsigned char *)(uintptr_t)from, .next_out = to};
    if (inflateInit2(&z, -MAX_WBITS) != Z_OK)
        return false;
    int status = Z_OK;
    size_t in_left = n_from, out_left = n_to;
    while (status == Z_OK) { /* zlib counts in 32 bits */
        const uInt in = in_left < UINT32_MAX / 2 ? (uInt)in_left : UINT32_MAX / 2;
        const uInt out = out_left < UINT32_MAX / 2 ? (uInt)out_left : UINT32_MAX / 2;
        z.avail_in = in;
        z.avail_out = out;
        status = inflate(&z, Z_NO_FLUSH);
        in_left -= in - z.avail_in;
        out_left -= out - z.avail_out;
        if (status == Z_OK && in == z.avail_in && out == z.avail_out)
            break;
    }
    (void)inflateEnd(&z);
    return status == Z_STREAM_END && out_left == 0;
}

static uint32_t check_sum_of(uint32_t sum, const void *data, size_t n_bytes)
{
    return (uint32_t)crc32_z(sum, data, n_bytes);
}

static int read_array(const struct archive *a, const struct entry *e, struct cli_array *array)
{
    char where[256];
    snprintf(where, sizeof(where), "%.120s, array %.*s", a->where, e->n_name < 80 ? (int)e->n_name : 80, e->name);
    const struct archive inner = {a->bytes, a->n_bytes, where};
    if (e->offset > a->n_bytes || a->n_bytes - e->offset < local_bytes ||
        memcmp(a->bytes + e->offset, "PK\3\4", 4) != 0)
        return fail_archive(&inner, "a local header", "other bytes");
    const unsigned char *const local = a->bytes + e->offset;
    const uint64_t start = e->offset + local_bytes + read_le(local + 26, 2) + read_le(local + 28, 2);
    if (start > a->n_bytes || e->n_packed > a->n_bytes - start)
        return fail_archive(&inner, "its bytes inside the file", "the end of the file");
    if (e->method != method_stored && e->method != method_deflated)
        return fail_archive(&inner, "stored or deflated bytes", "another method");
    if (e->method == method_stored ? e->n_bytes != e->n_packed : e->n_bytes / 1032 > e->n_packed + 1)
        return fail_archive(&inner, "a size that its bytes can have", "another");
    unsigned char *unpacked = NULL;
    const unsigned char *data = a->bytes + start;
    if (e->method == method_deflated) {
        unpacked = malloc(e->n_bytes ? (size_t)e->n_bytes : 1);
        if (!unpacked)
            return cli_fail_memory();
        if (!inflate_all(data, (size_t)e->n_packed, unpacked, (size_t)e->n_bytes)) {
            free(unpacked);
            return fail_archive(&inner, "deflated bytes", "damaged ones");
        }
        data = unpacked;
    }
    int code = CLI_DONE;
    if (check_sum_of(0, data, (size_t)e->n_bytes) != e->check_sum)
        code = fail_archive(&inner, "its check sum", "another");
    else
        code = cli_npy_parse((const char *)data, (size_t)e->n_bytes, where, array);
    free(unpacked);
    return code;
}

int cli_npz_parse(const char *bytes, size_t n_bytes, const char *where, struct cli_arrays *arrays)
{
    const struct archive a = {(const unsigned char *)bytes, n_bytes, where};
    uint64_t n_entries = 0, offset = 0;
    int code = find_directory(&a, &n_entries, &offset);
    for (uint64_t i = 0; code == CLI_DONE && i < n_entries; i++) {
        struct entry e;
        struct cli_array array = {0};
        code = read_entry(&a, &offset, &e);
        if (code == CLI_DONE)
            code = read_array(&a, &e, &array);
        const bool has_suffix = code == CLI_DONE && e.n_name > 4 && memcmp(e.name + e.n_name - 4, ".npy", 4) == 0;
        if (code == CLI_DONE)
            code = cli_arrays_add(arrays, e.name, e.n_name - (has_suffix ? 4 : 0), &array);
    }
    return code;
}

/* ---- writing ---- */

void cli_npz_begin(struct cli_npz_writer *npz, struct cli_output *output)
{
    *npz = (struct cli_npz_writer){.output = output};
}

static void put_le(unsigned char *p, uint64_t v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)(v >> (8 * i));
}

/* The facts that local header and directory entry share: version 2.0, stored, 1980-01-01, sums and sizes. */
static void put_facts(unsigned char *p, uint32_t check_sum, uint64_t n_bytes, size_t n_name)
{
    put_le(p, 20, 2);
    put_le(p + 8, 33, 2); /* 1980-01-01: the same arrays give the same file */
    put_le(p + 10, check_sum, 4);
    put_le(p + 14, n_bytes, 4);
    put_le(p + 18, n_bytes, 4);
    put_le(p + 22, n_name, 2);
}

static int add_directory(struct cli_npz_writer *npz, const char *name, size_t n_name, uint32_t check_sum,
                         uint64_t n_bytes)
{
    unsigned char entry[entry_bytes] = {'P', 'K', 1, 2};
    put_le(entry + 4, 20, 2);
    put_facts(entry + 6, check_sum, n_bytes, n_name);
    put_le(entry + 42, npz->position_bytes, 4);
    npz->n_entries++;
    return cli_bytes_append(&npz->directory, (const char *)entry, sizeof(entry)) &&
                   cli_bytes_append(&npz->directory, name, n_name)
               ? CLI_DONE
               : (npz->output->failure = cli_fail_memory());
}

int cli_npz_add(struct cli_npz_writer *npz, const char *name, enum teg_element element, size_t width, uint32_t rank,
                const uint64_t *dims, const void *data)
{
    char full[1024];
    size_t n_bytes = width ? width : teg_element_bytes(element);
    for (uint32_t d = 0; d < rank; d++)
        n_bytes *= (size_t)dims[d];
    struct cli_bytes head = {0};
    int code = cli_npy_head(element, width, rank, dims, &head);
    const int n_name = snprintf(full, sizeof(full), "%s.npy", name);
    if (code == CLI_DONE && (n_name < 0 || (size_t)n_name >= sizeof(full)))
        code = cli_fail("cannot write arrays: %.80s…: expected a name of less than 1000 bytes, found more", name);
    const uint64_t n_all = head.n + (uint64_t)n_bytes;
    if (code == CLI_DONE && npz->position_bytes + n_all + 4096 > LARGEST_32)
        code = cli_fail("cannot write arrays: %.200s: expected less than 4 GiB in all, found more; write fewer outputs",
                        name);
    unsigned char local[local_bytes] = {'P', 'K', 3, 4};
    const uint32_t check_sum = check_sum_of(check_sum_of(0, head.data, head.n), data, n_bytes);
    put_facts(local + 4, check_sum, n_all, (size_t)n_name);
    if (code == CLI_DONE)
        code = add_directory(npz, full, (size_t)n_name, check_sum, n_all);
    if (code == CLI_DONE) {
        (void)cli_output_write(npz->output, local, sizeof(local));
        (void)cli_output_write(npz->output, full, (size_t)n_name);
        (void)cli_output_write(npz->output, head.data, head.n);
        code = cli_output_write(npz->output, data, n_bytes);
        npz->position_bytes += local_bytes + (size_t)n_name + n_all;
    }
    cli_bytes_free(&head);
    return code;
}

int cli_npz_finish(struct cli_npz_writer *npz)
{
    unsigned char end[end_bytes] = {'P', 'K', 5, 6};
    put_le(end + 8, npz->n_entries, 2);
    put_le(end + 10, npz->n_entries, 2);
    put_le(end + 12, npz->directory.n, 4);
    put_le(end + 16, npz->position_bytes, 4);
    if (npz->directory.n)
        (void)cli_output_write(npz->output, npz->directory.data, npz->directory.n);
    const int code = cli_output_write(npz->output, end, sizeof(end));
    cli_bytes_free(&npz->directory);
    return code;
}
