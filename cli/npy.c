/* npy.c: float32 arrays in NumPy's .npy format, version 1.0.
 *
 *     byte 0    "\x93NUMPY"
 *     byte 6    version: 1, 0
 *     byte 8    u16 little-endian: length of what follows up to the data (118 here)
 *     byte 10   {'descr': '<f4', 'fortran_order': False, 'shape': (rows, columns), }, spaces, a newline
 *     byte 128  the values
 *
 * Invariant: the header always has 128 bytes (two 20-digit numbers fit), so it can be written again in place when
 * the number of rows turns out different. */
#include <string.h>

#include "io.h"

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
