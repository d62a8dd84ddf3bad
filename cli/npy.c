/* npy.c: arrays in NumPy's .npy format: float32 matrices written as they come, any array of numbers read.
 *
 *     byte 0    "\x93NUMPY"
 *     byte 6    version: 1, 0 (2 and 3: the length has four bytes)
 *     byte 8    u16 little-endian: length of what follows up to the data (118 here)
 *     byte 10   {'descr': '<f4', 'fortran_order': False, 'shape': (rows, columns), }, spaces, a newline
 *     byte 128  the values
 *
 * Invariant: the header of a matrix always has 128 bytes (two 20-digit numbers fit), so it can be written again in
 * place when the number of rows turns out different. The header of a file that is read is a Python literal; only the
 * three keys that NumPy writes are understood, whatever their order, and nothing is evaluated. */
#include <stdlib.h>
#include <string.h>

#include "array.h"

void cli_npy_header(char header[cli_npy_header_bytes], size_t n_rows, size_t n_columns)
{
    static const char magic[10] = {'\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, cli_npy_header_bytes - 10, 0};
    char text[cli_npy_header_bytes];
    const int n = snprintf(text, sizeof(text), "{'descr': '<f4', 'fortran_order': False, 'shape': (%zu, %zu), }",
                           n_rows, n_columns);
    memset(header, ' ', cli_npy_header_bytes);
    memcpy(header, magic, sizeof(magic));
    memcpy(header + sizeof(magic), text, (size_t)n);
    header[cli_npy_header_bytes - 1] = '\n';
}

int cli_npy_write(struct cli_output *output, const float *values, size_t n)
{
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], 4);
        const unsigned char bytes[4] = {bits & 0xff, bits >> 8 & 0xff, bits >> 16 & 0xff, bits >> 24};
        if (cli_output_write(output, bytes, 4) != CLI_DONE)
            break;
    }
    return output->failure;
#else
    return cli_output_write(output, values, n * sizeof(*values));
#endif
}

/* ---- any array ---- */

void cli_array_free(struct cli_array *array)
{
    free(array->name);
    free(array->data);
    *array = (struct cli_array){0};
}

int cli_arrays_add(struct cli_arrays *arrays, const char *name, size_t n_name, struct cli_array *array)
{
    struct cli_array *moved = arrays->data;
    char *const copy = strndup(name, n_name);
    if (arrays->n == arrays->capacity) {
        const size_t capacity = arrays->capacity ? 2 * arrays->capacity : 8;
        moved = realloc(arrays->data, capacity * sizeof(*moved));
        if (moved) {
            arrays->data = moved;
            arrays->capacity = capacity;
        }
    }
    if (!copy || !moved) {
        free(copy);
        cli_array_free(array);
        return cli_fail_memory();
    }
    array->name = copy;
    arrays->data[arrays->n++] = *array;
    *array = (struct cli_array){0};
    return CLI_DONE;
}

void cli_arrays_free(struct cli_arrays *arrays)
{
    for (size_t i = 0; i < arrays->n; i++)
        cli_array_free(&arrays->data[i]);
    free(arrays->data);
    *arrays = (struct cli_arrays){0};
}

static const struct {
    char kind; /* as NumPy says it: "f4" */
    size_t n_bytes;
    enum teg_element element;
} elements[] = {
    {'f', 2, TEG_ELEMENT_F16}, {'f', 4, TEG_ELEMENT_F32}, {'f', 8, TEG_ELEMENT_F64}, {'i', 1, TEG_ELEMENT_I8},
    {'i', 2, TEG_ELEMENT_I16}, {'i', 4, TEG_ELEMENT_I32}, {'i', 8, TEG_ELEMENT_I64}, {'u', 1, TEG_ELEMENT_U8},
    {'u', 2, TEG_ELEMENT_U16}, {'u', 4, TEG_ELEMENT_U32}, {'u', 8, TEG_ELEMENT_U64}, {'b', 1, TEG_ELEMENT_BOOL},
};

static int fail_npy(const char *where, const char *expected, const char *found)
{
    return cli_fail("cannot read array: %s: expected %s, found %s; write it with numpy.save or numpy.savez", where,
                    expected, found);
}

/* The text behind 'key': in the header, or NULL. */
static const char *find_key(const char *header, const char *key)
{
    const size_t n = strlen(key);
    for (const char *p = strchr(header, '\''); p; p = strchr(p + 1, '\''))
        if (strncmp(p + 1, key, n) == 0 && p[1 + n] == '\'') {
            p += n + 2;
            p += strspn(p, " ");
            return *p == ':' ? p + 1 + strspn(p + 1, " ") : NULL;
        }
    return NULL;
}

static int parse_type(const char *text, const char *where, struct cli_array *array, bool *swapped)
{
    if (text && *text == '\'' && strchr("<>|=", text[1]) && text[2]) {
        char *end = NULL;
        const unsigned long n_bytes = strtoul(text + 3, &end, 10);
        *swapped = text[1] == '>' && n_bytes > 1;
        for (size_t i = 0; *end == '\'' && i < CLI_COUNT(elements); i++)
            if (elements[i].kind == text[2] && elements[i].n_bytes == n_bytes) {
                array->element = elements[i].element;
                return CLI_DONE;
            }
    }
    char found[32];
    const int n = text && *text == '\'' ? (int)strcspn(text + 1, "'") + 2 : 24; /* with its quotes */
    snprintf(found, sizeof(found), "%.*s", n < 24 ? n : 24, text ? text : "none");
    return fail_npy(where, "numbers (a descr such as '<f4')", found);
}

static int parse_shape(const char *text, const char *where, struct cli_array *array, size_t *n_items)
{
    *n_items = 1;
    if (!text || *text != '(')
        return fail_npy(where, "a shape", "none");
    text++;
    for (;;) {
        text += strspn(text, " ,");
        if (*text == ')')
            return CLI_DONE;
        char *end = NULL;
        const unsigned long long dim = strtoull(text, &end, 10);
        if (end == text || *text == '-' || array->rank == TEG_MAX_RANK ||
            (dim && *n_items > SIZE_MAX / 16 / (size_t)dim))
            return fail_npy(where, "a shape of at most 8 sane dimensions", "another");
        array->dims[array->rank++] = dim;
        *n_items *= (size_t)dim;
        text = end;
    }
}

static void swap_bytes(char *data, size_t n_bytes, size_t size)
{
    for (size_t i = 0; i + size <= n_bytes; i += size)
        for (size_t k = 0; k < size / 2; k++) {
            const char c = data[i + k];
            data[i + k] = data[i + size - 1 - k];
            data[i + size - 1 - k] = c;
        }
}

/* Column-major to row-major: walks the result in order and steps through the source. */
static void copy_fortran(const struct cli_array *array, const char *from, char *to, size_t n_items)
{
    const size_t size = teg_element_bytes(array->element);
    uint64_t index[TEG_MAX_RANK] = {0};
    for (size_t i = 0; i < n_items; i++) {
        size_t source = 0, stride = 1;
        for (uint32_t d = 0; d < array->rank; d++) {
            source += (size_t)index[d] * stride;
            stride *= (size_t)array->dims[d];
        }
        memcpy(to + i * size, from + source * size, size);
        for (uint32_t d = array->rank; d-- > 0 && ++index[d] == array->dims[d];)
            index[d] = 0;
    }
}

static int parse_header(const char *header, const char *where, struct cli_array *array, size_t *n_items, bool *swapped,
                        bool *fortran)
{
    const char *const order = find_key(header, "fortran_order");
    *fortran = order && strncmp(order, "True", 4) == 0;
    int code = parse_type(find_key(header, "descr"), where, array, swapped);
    if (code == CLI_DONE)
        code = parse_shape(find_key(header, "shape"), where, array, n_items);
    return code;
}

int cli_npy_parse(const char *bytes, size_t n_bytes, const char *where, struct cli_array *array)
{
    const unsigned char *const u = (const unsigned char *)bytes;
    if (n_bytes < 12 || memcmp(bytes, "\x93NUMPY", 6) != 0)
        return fail_npy(where, "a .npy file", "other bytes");
    const size_t start = u[6] == 1 ? 10 : 12;
    const size_t n_header = u[6] == 1 ? (size_t)u[8] | (size_t)u[9] << 8
                                      : (size_t)u[8] | (size_t)u[9] << 8 | (size_t)u[10] << 16 | (size_t)u[11] << 24;
    if (u[6] < 1 || u[6] > 3 || n_header > n_bytes - start)
        return fail_npy(where, "a whole header of version 1 to 3", "another");
    char *const header = malloc(n_header + 1);
    if (!header)
        return cli_fail_memory();
    memcpy(header, bytes + start, n_header);
    header[n_header] = '\0';
    struct cli_array made = {0};
    size_t n_items = 0;
    bool swapped = false, fortran = false;
    int code = parse_header(header, where, &made, &n_items, &swapped, &fortran);
    free(header);
    if (code != CLI_DONE)
        return code;
    const size_t left = n_bytes - start - n_header;
    made.n_bytes = n_items * teg_element_bytes(made.element);
    if (left != made.n_bytes) {
        char expected[48], found[32];
        snprintf(expected, sizeof(expected), "%zu bytes of data", made.n_bytes);
        snprintf(found, sizeof(found), "%zu", left);
        return fail_npy(where, expected, found);
    }
    made.data = malloc(made.n_bytes ? made.n_bytes : 1);
    if (!made.data)
        return cli_fail_memory();
    if (fortran && made.rank > 1)
        copy_fortran(&made, bytes + start + n_header, made.data, n_items);
    else
        memcpy(made.data, bytes + start + n_header, made.n_bytes);
    if (swapped)
        swap_bytes(made.data, made.n_bytes, teg_element_bytes(made.element));
    *array = made;
    return CLI_DONE;
}

int cli_npy_head(enum teg_element element, size_t width, uint32_t rank, const uint64_t *dims, struct cli_bytes *out)
{
    char text[512], descr[32] = "";
    for (size_t i = 0; i < CLI_COUNT(elements); i++)
        if (elements[i].element == element)
            snprintf(descr, sizeof(descr), "%c%c%zu", elements[i].n_bytes > 1 ? '<' : '|', elements[i].kind,
                     elements[i].n_bytes);
    if (width)
        snprintf(descr, sizeof(descr), "|S%zu", width);
    int used = snprintf(text, sizeof(text), "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (uint32_t d = 0; d < rank; d++)
        used += snprintf(text + used, sizeof(text) - (size_t)used, "%llu,%s", (unsigned long long)dims[d],
                         d + 1 < rank ? " " : "");
    used += snprintf(text + used, sizeof(text) - (size_t)used, "), }");
    while ((used + 11) % 64 != 0)
        text[used++] = ' ';
    text[used++] = '\n';
    const char magic[10] = {'\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, (char)(used & 0xff), (char)(used >> 8)};
    return cli_bytes_append(out, magic, sizeof(magic)) && cli_bytes_append(out, text, (size_t)used) ? CLI_DONE
                                                                                                    : cli_fail_memory();
}
