/* report.c: failures, terminal styles, clocks and growing arrays.
 *
 * Invariant: a failure is exactly one line on standard error that starts with "tegula: ". Names of files and options
 * come from outside, so control characters in them are replaced: a hostile file name can neither add a line nor
 * send an escape sequence to the terminal. Colours are chosen per stream at the moment of printing; the alternative,
 * deciding once at start, needs global state and is wrong when only one of the two streams is a terminal. */
#ifdef __linux__
#include <sched.h>
#endif
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "interrupt.h"

bool cli_is_terminal(const FILE *stream)
{
    const int fd = fileno((FILE *)(uintptr_t)stream);
    return fd >= 0 && isatty(fd);
}

const char *cli_style(const FILE *stream, enum cli_style style)
{
    static const char *const sequences[] = {
        [CLI_STYLE_ERROR] = "\033[1;31m",  [CLI_STYLE_HEADING] = "\033[1m", [CLI_STYLE_FAINT] = "\033[2m",
        [CLI_STYLE_PROMPT] = "\033[1;32m", [CLI_STYLE_RESET] = "\033[0m",
    };
    const char *no_color = getenv("NO_COLOR");
    const char *term = getenv("TERM");
    if ((no_color && *no_color) || !term || strcmp(term, "dumb") == 0 || !cli_is_terminal(stream))
        return "";
    return sequences[style];
}

static void print_failure(const char *format, va_list args)
{
    char text[2048];
    if (vsnprintf(text, sizeof(text), format, args) < 0)
        return;
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '?';
    fprintf(stderr, "%stegula:%s %s\n", cli_style(stderr, CLI_STYLE_ERROR), cli_style(stderr, CLI_STYLE_RESET), text);
}

int cli_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_failure(format, args);
    va_end(args);
    return CLI_FAILED;
}

int cli_usage(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_failure(format, args);
    va_end(args);
    return CLI_USAGE;
}

int cli_fail_library(const struct teg_error *err)
{
    if (cli_interrupted())
        return cli_interrupt_exit_code();
    /* Without a signal, only a callback of ours stops the library, after it has said why. */
    if (err->status == TEG_ERR_INTERRUPTED)
        return CLI_FAILED;
    return cli_fail("%s", err->message[0] ? err->message : teg_status_name(err->status));
}

int cli_fail_memory(void)
{
    return cli_fail("out of memory: the program's own buffers: expected room for the input and the result, found "
                    "none; close other programs or use a smaller input");
}

double cli_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Linux keeps ru_maxrss across exec, so it may be the parent's peak; VmHWM is this program's own. */
static uint64_t peak_rss_of_proc(void)
{
    unsigned long long kib = 0;
    char line[128];
    FILE *const f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f) && sscanf(line, "VmHWM: %llu", &kib) != 1)
        continue;
    if (f)
        fclose(f);
    return kib * 1024;
}

uint64_t cli_peak_rss_bytes(void)
{
    struct rusage usage;
    const uint64_t own = peak_rss_of_proc();
    if (own)
        return own;
    if (getrusage(RUSAGE_SELF, &usage) != 0)
        return 0;
#ifdef __APPLE__
    return (uint64_t)usage.ru_maxrss;
#else
    return (uint64_t)usage.ru_maxrss * 1024;
#endif
}

const char *cli_bytes_text(uint64_t n_bytes, char text[32])
{
    static const char *const units[] = {"kB", "MB", "GB", "TB"};
    double value = (double)n_bytes / 1000;
    size_t unit = 0;
    while (value >= 1000 && unit + 1 < CLI_COUNT(units)) {
        value /= 1000;
        unit++;
    }
    snprintf(text, 32, "%.1f %s", value, units[unit]);
    return text;
}

size_t cli_cpus(void)
{
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 0)
        return CPU_COUNT(&set) < 256 ? (size_t)CPU_COUNT(&set) : 256;
#endif
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > 256 ? 256 : (size_t)n;
}

/* Room for n more items of item_bytes each, doubling so that appending is linear. */
static bool grow(void **data, size_t *capacity, size_t n_used, size_t n_more, size_t item_bytes)
{
    if (n_more <= *capacity - n_used)
        return true;
    if (n_more > SIZE_MAX / 2 / item_bytes - n_used)
        return false;
    size_t target = *capacity ? *capacity * 2 : 256;
    if (target < n_used + n_more)
        target = n_used + n_more;
    void *moved = realloc(*data, target * item_bytes);
    if (!moved)
        return false;
    *data = moved;
    *capacity = target;
    return true;
}

bool cli_bytes_append(struct cli_bytes *bytes, const char *data, size_t n)
{
    void *p = bytes->data;
    if (n == SIZE_MAX || !grow(&p, &bytes->capacity, bytes->n, n + 1, 1))
        return false;
    bytes->data = p;
    if (n > 0)
        memcpy(bytes->data + bytes->n, data, n);
    bytes->n += n;
    bytes->data[bytes->n] = '\0';
    return true;
}

void cli_bytes_free(struct cli_bytes *bytes)
{
    free(bytes->data);
    *bytes = (struct cli_bytes){0};
}

bool cli_ids_append(struct cli_ids *ids, int32_t id)
{
    void *p = ids->data;
    if (!grow(&p, &ids->capacity, ids->n, 1, sizeof(*ids->data)))
        return false;
    ids->data = p;
    ids->data[ids->n++] = id;
    return true;
}

void cli_ids_free(struct cli_ids *ids)
{
    free(ids->data);
    *ids = (struct cli_ids){0};
}
