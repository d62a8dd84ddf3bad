/* layers.c: writes what teg_prefill_options.on_value hands out.
 *
 * Invariant: a value's file holds the rows of all chunks in order, and its header says how many there are: values
 * that the model computes only for the last token have one row. Files are opened for each block instead of kept
 * open, because a deep model has more values than a process may have files. On failure all files are removed. */
#include "layers.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct cli_layer {
    char *name; /* as the library calls it */
    char *path;
    size_t n_rows, width;
};

int cli_layers_open(struct cli_layers *layers, const char *directory, struct teg_session *session)
{
    *layers = (struct cli_layers){.directory = directory, .session = session};
    struct stat st;
    if (mkdir(directory, 0777) != 0 && (errno != EEXIST || stat(directory, &st) != 0 || !S_ISDIR(st.st_mode)))
        return cli_fail("cannot write layers: %s: expected a directory, found '%s'; name another one", directory,
                        strerror(errno));
    return CLI_DONE;
}

static void fail_layers(struct cli_layers *layers, const char *path)
{
    layers->failure = cli_fail("cannot write layers: %s: expected to write a value, found '%s'; free some space or "
                               "choose another place",
                               path, strerror(errno));
    teg_session_interrupt(layers->session);
}

/* DIR/NAME.npy, everything but letters, digits, '.', '-' and '_' replaced by '_'. */
static char *layer_path(const char *directory, const char *name)
{
    const size_t n_bytes = strlen(directory) + strlen(name) + 6;
    char *path = malloc(n_bytes);
    if (!path)
        return NULL;
    const int start = snprintf(path, n_bytes, "%s/", directory);
    snprintf(path + start, n_bytes - (size_t)start, "%s.npy", name);
    for (char *p = path + start; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr(".-_", *p))
            *p = '_';
    if (path[start] == '.')
        path[start] = '_';
    return path;
}

static struct cli_layer *find_layer(struct cli_layers *layers, const char *name, size_t width)
{
    for (size_t i = 0; i < layers->n; i++)
        if (strcmp(layers->items[i].name, name) == 0)
            return &layers->items[i];
    struct cli_layer *moved = realloc(layers->items, (layers->n + 1) * sizeof(*moved));
    if (!moved)
        return NULL;
    layers->items = moved;
    struct cli_layer *layer = &moved[layers->n];
    *layer = (struct cli_layer){.name = strdup(name), .path = layer_path(layers->directory, name), .width = width};
    if (!layer->name || !layer->path) {
        free(layer->name);
        free(layer->path);
        return NULL;
    }
    layers->n++;
    return layer;
}

void cli_layers_on_value(void *ctx, const char *name, size_t first_row, size_t n_rows, size_t width, const float *data)
{
    struct cli_layers *layers = ctx;
    (void)first_row;
    if (layers->failure)
        return;
    errno = ENOMEM;
    struct cli_layer *layer = find_layer(layers, name, width);
    if (!layer) {
        fail_layers(layers, name);
        return;
    }
    FILE *file = fopen(layer->path, layer->n_rows == 0 ? "wb" : "ab");
    if (!file) {
        fail_layers(layers, layer->path);
        return;
    }
    char header[cli_npy_header_bytes];
    cli_npy_header(header, 0, width);
    bool ok = layer->n_rows > 0 || fwrite(header, sizeof(header), 1, file) == 1;
    ok = ok && (n_rows * width == 0 || fwrite(data, n_rows * width * sizeof(*data), 1, file) == 1);
    const int error = errno;
    if (fclose(file) != 0 || !ok) {
        errno = ok ? errno : error;
        fail_layers(layers, layer->path);
    }
    layer->n_rows += n_rows;
}

static bool finish_header(const struct cli_layer *layer)
{
    char header[cli_npy_header_bytes];
    FILE *file = fopen(layer->path, "r+b");
    if (!file)
        return false;
    cli_npy_header(header, layer->n_rows, layer->width);
    const bool ok = fwrite(header, sizeof(header), 1, file) == 1;
    return fclose(file) == 0 && ok;
}

int cli_layers_close(struct cli_layers *layers, bool keep)
{
    for (size_t i = 0; i < layers->n; i++) {
        struct cli_layer *layer = &layers->items[i];
        if (keep && !layers->failure && !finish_header(layer))
            fail_layers(layers, layer->path);
        if (!keep || layers->failure)
            unlink(layer->path);
        free(layer->name);
        free(layer->path);
    }
    free(layers->items);
    layers->items = NULL;
    layers->n = 0;
    return layers->failure;
}
