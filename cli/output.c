/* output.c: writing results.
 *
 * Invariant: success is returned only when every byte reached the operating system, and a named file holds either
 * its old content or the whole new one: it is written to a temporary file beside it and renamed. A closed pipe ends
 * the program quietly with exit code 1 (the reader has what it wanted); every other failure is one sentence. Devices
 * and pipes given by name are written in place, because renaming over /dev/null would replace it. stdio was not
 * taken: it cannot tell a signal from a failure and hides which write failed. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "interrupt.h"
#include "io.h"

static int fail_output(struct cli_output *output, int error)
{
    if (error == EPIPE)
        output->failure = CLI_FAILED;
    else
        output->failure = cli_fail("cannot write: %s: expected to write the result, found '%s'; free some space or "
                                   "choose another place",
                                   output->path ? output->path : "standard output", strerror(error));
    return output->failure;
}

/* Opens the temporary file "<target>.XXXXXX" with the permissions that the final file shall have. */
static int open_temporary(struct cli_output *output, const char *target, bool exists, mode_t mode)
{
    const size_t n = strlen(target) + sizeof(".XXXXXX");
    output->target = strdup(target);
    output->temporary = malloc(n);
    if (!output->target || !output->temporary)
        return output->failure = cli_fail_memory();
    snprintf(output->temporary, n, "%s.XXXXXX", target);
    output->fd = mkstemp(output->temporary);
    if (output->fd < 0) {
        const int error = errno;
        free(output->temporary);
        output->temporary = NULL;
        return fail_output(output, error);
    }
    cli_interrupt_unlink(output->temporary);
    if (!exists) {
        const mode_t mask = umask(0);
        umask(mask);
        mode = 0666 & ~mask;
    }
    (void)fchmod(output->fd, mode & 0777);
    return CLI_DONE;
}

int cli_output_open(struct cli_output *output, const char *path)
{
    output->fd = STDOUT_FILENO;
    output->path = path && strcmp(path, "-") != 0 ? path : NULL;
    output->target = output->temporary = NULL;
    output->failure = CLI_DONE;
    output->n_used = 0;
    if (!output->path)
        return CLI_DONE;
    output->fd = -1;
    struct stat st;
    const bool exists = stat(path, &st) == 0;
    if (exists && S_ISDIR(st.st_mode))
        return fail_output(output, EISDIR);
    if (exists && !S_ISREG(st.st_mode)) {
        output->fd = open(path, O_WRONLY | O_CLOEXEC);
        return output->fd < 0 ? fail_output(output, errno) : CLI_DONE;
    }
    if (exists && access(path, W_OK) != 0)
        return fail_output(output, errno);
    char *resolved = exists ? realpath(path, NULL) : NULL;
    const int code = open_temporary(output, resolved ? resolved : path, exists, exists ? st.st_mode : 0);
    free(resolved);
    return code;
}

static int write_all(struct cli_output *output, const char *data, size_t n_bytes)
{
    while (n_bytes > 0) {
        const ssize_t n = write(output->fd, data, n_bytes);
        if (n >= 0) {
            data += n;
            n_bytes -= (size_t)n;
        } else if (errno == EINTR && cli_interrupted()) {
            return output->failure = cli_interrupt_exit_code();
        } else if (errno != EINTR) {
            return fail_output(output, errno);
        }
    }
    return CLI_DONE;
}

int cli_output_flush(struct cli_output *output)
{
    if (output->failure)
        return output->failure;
    const size_t n = output->n_used;
    output->n_used = 0;
    return write_all(output, output->buffer, n);
}

int cli_output_write(struct cli_output *output, const void *data, size_t n_bytes)
{
    if (output->failure)
        return output->failure;
    if (n_bytes > sizeof(output->buffer) - output->n_used) {
        const int code = cli_output_flush(output);
        if (code != CLI_DONE || n_bytes > sizeof(output->buffer))
            return code != CLI_DONE ? code : write_all(output, data, n_bytes);
    }
    if (n_bytes > 0)
        memcpy(output->buffer + output->n_used, data, n_bytes);
    output->n_used += n_bytes;
    return CLI_DONE;
}

int cli_output_printf(struct cli_output *output, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (n >= 0 && (size_t)n < sizeof(text))
        return cli_output_write(output, text, (size_t)n);
    char *longer = NULL;
    va_start(args, format);
    const int m = vasprintf(&longer, format, args);
    va_end(args);
    if (m < 0)
        return output->failure = cli_fail_memory();
    const int code = cli_output_write(output, longer, (size_t)m);
    free(longer);
    return code;
}

int cli_output_name(struct cli_output *output, const char *name, int n_columns)
{
    int n = 0;
    for (; *name; name++, n++) {
        const bool control = (unsigned char)*name < 0x20 || *name == 0x7f;
        (void)cli_output_write(output, control ? "?" : name, 1);
    }
    for (; n < n_columns; n++)
        (void)cli_output_write(output, " ", 1);
    return output->failure;
}

int cli_output_close(struct cli_output *output, bool keep)
{
    if (keep)
        (void)cli_output_flush(output);
    if (output->path && output->fd >= 0 && close(output->fd) != 0 && keep && !output->failure)
        (void)fail_output(output, errno);
    if (output->temporary) {
        const bool complete = keep && !output->failure;
        if (complete && rename(output->temporary, output->target) != 0)
            (void)fail_output(output, errno);
        if (!complete || output->failure)
            unlink(output->temporary);
        cli_interrupt_unlink(NULL);
    }
    free(output->temporary);
    free(output->target);
    output->temporary = output->target = NULL;
    output->fd = -1;
    return output->failure;
}
