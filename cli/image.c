/* image.c: PNG files as arrays of bytes: what image inputs of a model take.
 *
 *     89 'PNG' 0d 0a 1a 0a, then chunks: u32 big-endian length, 4 letters, data, u32 check sum
 *     IHDR  width, height (u32), bits, colour type, compression, filter, interlace
 *     PLTE  palette, 3 bytes an entry       IDAT  one zlib stream in parts       IEND
 *
 * Each row of the stream is a filter byte and the packed pixels; filters predict from the pixel to the left, above and
 * both. All depths and colour types are read; Adam7 interlacing is refused with a word on what to do. Alpha is dropped,
 * 16 bits keep the high byte. Chunks other than these three are passed over. Nothing is allocated that the bytes of the
 * file cannot fill (deflate grows at most 1032 times).
 * libpng was not taken: it ends in longjmp and is ten times what is needed here beside zlib. */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "array.h"

enum { greyscale = 0, truecolour = 2, indexed = 3, grey_alpha = 4, truecolour_alpha = 6 };

struct png {
    const char *where;
    uint32_t width, height;
    unsigned depth, type, interlace;
    const unsigned char *palette;
    size_t n_palette;
    struct cli_bytes packed; /* the IDAT parts joined */
};

static int fail_png(const struct png *png, const char *expected, const char *found)
{
    return cli_fail("cannot read image: %s: expected %s, found %s; save it again as a plain PNG", png->where, expected,
                    found);
}

static uint32_t read_be(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static size_t channels(unsigned type)
{
    static const size_t of[] = {
        [greyscale] = 1, [truecolour] = 3, [indexed] = 1, [grey_alpha] = 2, [truecolour_alpha] = 4};
    return of[type];
}

static int read_header(struct png *png, const unsigned char *data, size_t n)
{
    /* bit d: depth d is allowed for the colour type */
    static const uint32_t depths[] = {[greyscale] = 0x10116,
                                      [truecolour] = 0x10100,
                                      [indexed] = 0x116,
                                      [grey_alpha] = 0x10100,
                                      [truecolour_alpha] = 0x10100};
    if (n != 13)
        return fail_png(png, "a header of 13 bytes", "another");
    png->width = read_be(data);
    png->height = read_be(data + 4);
    png->depth = data[8];
    png->type = data[9];
    png->interlace = data[12];
    if (png->width == 0 || png->height == 0 || png->width > 1u << 20 || png->height > 1u << 20)
        return fail_png(png, "1 to 1048576 rows and columns", "another size");
    if (png->type >= CLI_COUNT(depths) || png->depth > 16 || !(depths[png->type] >> png->depth & 1))
        return fail_png(png, "a known colour type and depth", "another");
    if (png->interlace)
        return fail_png(png, "an image without interlacing", "an interlaced one");
    return CLI_DONE;
}

static int read_chunks(struct png *png, const unsigned char *bytes, size_t n_bytes)
{
    static const unsigned char magic[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    if (n_bytes < 8 || memcmp(bytes, magic, 8) != 0)
        return fail_png(png, "a PNG file", "other bytes");
    for (size_t at = 8;;) {
        if (n_bytes - at < 12)
            return fail_png(png, "an IEND chunk", "the end of the file");
        const size_t n = read_be(bytes + at);
        const unsigned char *const name = bytes + at + 4, *const data = name + 4;
        if (n > n_bytes - at - 12)
            return fail_png(png, "a whole chunk", "the end of the file");
        if (read_be(data + n) != (uint32_t)crc32_z(0, name, n + 4))
            return fail_png(png, "the check sum of a chunk", "another");
        int code = CLI_DONE;
        if (memcmp(name, "IHDR", 4) == 0)
            code = read_header(png, data, n);
        else if (memcmp(name, "IDAT", 4) == 0 && !cli_bytes_append(&png->packed, (const char *)data, n))
            code = cli_fail_memory();
        else if (memcmp(name, "PLTE", 4) == 0) {
            png->palette = data;
            png->n_palette = n / 3;
        } else if (memcmp(name, "IEND", 4) == 0)
            return png->width ? CLI_DONE : fail_png(png, "an IHDR chunk", "none");
        if (code != CLI_DONE)
            return code;
        at += 12 + n;
    }
}

/* ---- pixels ---- */

static unsigned paeth(int left, int up, int corner)
{
    const int p = left + up - corner;
    const int a = abs(p - left), b = abs(p - up), c = abs(p - corner);
    return (unsigned)(a <= b && a <= c ? left : b <= c ? up : corner);
}

/* Undoes the filter of one row in place; `above` is the row before, zeros for the first. step: bytes of a pixel. */
static bool unfilter(unsigned filter, unsigned char *row, const unsigned char *above, size_t n, size_t step)
{
    if (filter > 4)
        return false;
    for (size_t i = 0; i < n; i++) {
        const unsigned left = i >= step ? row[i - step] : 0, up = above[i], corner = i >= step ? above[i - step] : 0;
        const unsigned guess[] = {0, left, up, (left + up) / 2, paeth((int)left, (int)up, (int)corner)};
        row[i] = (unsigned char)(row[i] + guess[filter]);
    }
    return true;
}

/* Sample i of a row as a byte; grey samples below 8 bits are spread to 0 … 255, indices are not. */
static unsigned sample(const struct png *png, const unsigned char *row, size_t i)
{
    if (png->depth == 8)
        return row[i];
    if (png->depth == 16)
        return row[2 * i];
    const size_t bit = i * png->depth;
    const unsigned mask = (1u << png->depth) - 1;
    const unsigned value = row[bit / 8] >> (8 - png->depth - bit % 8) & mask;
    return png->type == indexed ? value : value * 255 / mask;
}

static bool put_row(const struct png *png, const unsigned char *row, unsigned char *out)
{
    const size_t n_in = channels(png->type), n_out = png->type == greyscale || png->type == grey_alpha ? 1 : 3;
    for (size_t x = 0; x < png->width; x++) {
        if (png->type != indexed) {
            for (size_t c = 0; c < n_out; c++)
                out[x * n_out + c] = (unsigned char)sample(png, row, x * n_in + c);
            continue;
        }
        const unsigned index = sample(png, row, x);
        if (index >= png->n_palette)
            return false;
        memcpy(out + x * 3, png->palette + 3 * (size_t)index, 3);
    }
    return true;
}

/* ISIZE is not stored in PNG: the size follows from the header, and the stream must have exactly that. */
static int unpack(const struct png *png, struct cli_array *array)
{
    const size_t step = (channels(png->type) * png->depth + 7) / 8;
    const size_t n_row = ((size_t)png->width * channels(png->type) * png->depth + 7) / 8,
                 n_all = png->height * (n_row + 1);
    if (n_all / 1032 > png->packed.n + 1 || n_all > UINT32_MAX || png->packed.n > UINT32_MAX)
        return fail_png(png, "pixels for its size", "too few bytes");
    unsigned char *const rows = malloc(n_all), *const zeros = calloc(1, n_row);
    if (!rows || !zeros) {
        free(rows);
        free(zeros);
        return cli_fail_memory();
    }
    uLongf n_unpacked = (uLongf)n_all;
    int code = CLI_DONE;
    if (uncompress(rows, &n_unpacked, (const Bytef *)png->packed.data, (uLong)png->packed.n) != Z_OK ||
        n_unpacked != n_all)
        code = fail_png(png, "pixels for its size", "damaged or missing ones");
    const size_t n_out = (size_t)png->width * (array->rank == 3 ? 3 : 1);
    for (size_t y = 0; code == CLI_DONE && y < png->height; y++) {
        unsigned char *const row = rows + y * (n_row + 1) + 1;
        const unsigned char *const above = y ? row - (n_row + 1) : zeros;
        if (!unfilter(row[-1], row, above, n_row, step) || !put_row(png, row, (unsigned char *)array->data + y * n_out))
            code = fail_png(png, "known filters and colours of its palette", "others");
    }
    free(rows);
    free(zeros);
    return code;
}

int cli_png_parse(const char *bytes, size_t n_bytes, const char *where, struct cli_array *array)
{
    struct png png = {.where = where};
    struct cli_array made = {.element = TEG_ELEMENT_U8};
    int code = read_chunks(&png, (const unsigned char *)bytes, n_bytes);
    if (code == CLI_DONE) {
        const bool is_grey = png.type == greyscale || png.type == grey_alpha;
        made.rank = is_grey ? 2 : 3;
        made.dims[0] = png.height;
        made.dims[1] = png.width;
        made.dims[2] = 3;
        made.n_bytes = (size_t)png.height * png.width * (is_grey ? 1 : 3);
        /* Before the allocation: the bytes of the file must be able to fill it (8 pixels a byte of grey at most). */
        if (made.n_bytes / (UINT64_C(1032) * 24) > png.packed.n + 1)
            code = fail_png(&png, "pixels for its size", "too few bytes");
    }
    if (code == CLI_DONE) {
        made.data = malloc(made.n_bytes);
        code = made.data ? unpack(&png, &made) : cli_fail_memory();
    }
    cli_bytes_free(&png.packed);
    if (code == CLI_DONE)
        *array = made;
    else
        cli_array_free(&made);
    return code;
}
