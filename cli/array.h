/* array.h: arrays in memory, as `tegula predict` reads and writes them: .npy, .npz and .png files. */
#ifndef TEGULA_CLI_ARRAY_H
#define TEGULA_CLI_ARRAY_H

#include "io.h"

struct cli_array {
    char *name; /* owned; NULL: none */
    enum teg_element element;
    uint32_t rank;
    uint64_t dims[TEG_MAX_RANK];
    void *data; /* owned, row-major */
    size_t n_bytes;
};

struct cli_arrays {
    struct cli_array *data;
    size_t n, capacity;
};

void cli_array_free(struct cli_array *array);
/* Takes *array over, whatever the result, and gives it a copy of the name. */
int cli_arrays_add(struct cli_arrays *arrays, const char *name, size_t n_name, struct cli_array *array);
void cli_arrays_free(struct cli_arrays *arrays);

/* ---- npy.c ---- */

/* The array in the bytes of a .npy file; `where` names it in messages. Fortran order and big-endian numbers are turned.
 */
int cli_npy_parse(const char *bytes, size_t n_bytes, const char *where, struct cli_array *array);
/* The header for any array; appended to out. `width` > 0: byte strings of that width instead of `element`. */
int cli_npy_head(enum teg_element element, size_t width, uint32_t rank, const uint64_t *dims, struct cli_bytes *out);

/* ---- npz.c ---- */

/* Adds every array of a .npz file under its own name. */
int cli_npz_parse(const char *bytes, size_t n_bytes, const char *where, struct cli_arrays *arrays);

struct cli_npz_writer {
    struct cli_output *output;
    struct cli_bytes directory;
    uint64_t position_bytes;
    size_t n_entries;
};
/* Arrays go out one by one, uncompressed; `finish` writes the directory. Failures are those of the output. */
void cli_npz_begin(struct cli_npz_writer *npz, struct cli_output *output);
int cli_npz_add(struct cli_npz_writer *npz, const char *name, enum teg_element element, size_t width, uint32_t rank,
                const uint64_t *dims, const void *data);
int cli_npz_finish(struct cli_npz_writer *npz);

/* ---- image.c ---- */

/* A PNG file as u8 [H, W] (grey) or [H, W, 3]; alpha is dropped, 16 bits become 8. */
int cli_png_parse(const char *bytes, size_t n_bytes, const char *where, struct cli_array *array);

#endif
