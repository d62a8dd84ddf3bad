/* io.h: reading texts and ids, writing results: bytes, JSON documents and .npy arrays. */
#ifndef TEGULA_CLI_IO_H
#define TEGULA_CLI_IO_H

#include <jansson.h>

#include "cli.h"

/* ---- input.c ---- */

/* Reads a whole file, "-" being standard input, and appends it to bytes. Directories and more than 1 GiB are
 * refused. `what` names the content in messages ("prompt"). */
int cli_input_read(const char *path, const char *what, struct cli_bytes *bytes);
/* Reads a line from standard input without its newline; *end is set at the end of input. */
int cli_input_line(struct cli_bytes *line, bool *end);

/* Token ids as text, separated by white space or commas; as a JSON array; or as a JSON object with "ids". `where`
 * names the source in messages. */
int cli_ids_parse(const char *text, size_t n_bytes, const char *where, struct cli_ids *ids);
/* --ids: a list where the text holds only digits, signs, commas, brackets and spaces, otherwise a file. */
int cli_ids_read(const char *list_or_path, struct cli_ids *ids);

/* ---- output.c ---- */

/* A destination of bytes: standard output, a device or pipe by name, or a file that appears under its name only
 * when it is complete. */
struct cli_output {
    int fd;
    const char *path; /* as the user wrote it; NULL: standard output */
    char *target;     /* what the temporary file becomes, symbolic links resolved; NULL: written in place */
    char *temporary;
    int failure; /* exit code of the first failure, reported already */
    size_t n_used;
    char buffer[1 << 16];
};

/* path NULL or "-": standard output. */
int cli_output_open(struct cli_output *output, const char *path);
/* Failures are sticky, reported once and returned by every later call: check where convenient. */
int cli_output_write(struct cli_output *output, const void *data, size_t n_bytes);
int cli_output_printf(struct cli_output *output, const char *format, ...) CLI_PRINTF(2, 3);
/* A name that comes from a model file: control characters become '?', so that it cannot steer a terminal. Padded
 * with spaces to n_columns. */
int cli_output_name(struct cli_output *output, const char *name, int n_columns);
int cli_output_flush(struct cli_output *output);
/* `keep` false, or an earlier failure: a file is removed instead of renamed. */
int cli_output_close(struct cli_output *output, bool keep);

/* ---- json.c ---- */

/* Writes a document and a newline. Takes `document` over; NULL means out of memory. */
int cli_json_write(struct cli_output *output, json_t *document);
/* The same to standard output, opened and closed. */
int cli_json_print(json_t *document);
/* A string of any bytes; what is not UTF-8 becomes U+FFFD. */
json_t *cli_json_text(const char *bytes, size_t n_bytes);
/* A number, or null where it is not finite (JSON has no word for that). */
json_t *cli_json_real(double value);
json_t *cli_json_ids(const int32_t *ids, size_t n);
json_t *cli_json_u64(uint64_t value);

/* ---- npy.c ---- */

enum { cli_npy_header_bytes = 128 };
/* The header of a float32 array [n_rows, n_columns] in C order; always 128 bytes. */
void cli_npy_header(char header[cli_npy_header_bytes], size_t n_rows, size_t n_columns);
/* float32 values in little-endian order, as the header says. */
int cli_npy_write(struct cli_output *output, const float *values, size_t n);

#endif
