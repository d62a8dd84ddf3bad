/* layers.h: named values of a forward pass, one .npy file each (logits --layers). */
#ifndef TEGULA_CLI_LAYERS_H
#define TEGULA_CLI_LAYERS_H

#include "io.h"
#include "setup.h"

struct cli_layer;

struct cli_layers {
    const char *directory;
    struct teg_session *session; /* interrupted when a file cannot be written */
    struct cli_layer *items;
    size_t n;
    int failure; /* exit code of the first failure, reported already */
};

int cli_layers_open(struct cli_layers *layers, const char *directory, struct teg_session *session);
/* The on_value callback of teg_session_prefill; ctx is the struct cli_layers. */
void cli_layers_on_value(void *ctx, const char *name, size_t first_row, size_t n_rows, size_t width, const float *data);
/* Puts the final number of rows into the headers; `keep` false removes the files. */
int cli_layers_close(struct cli_layers *layers, bool keep);

#endif
