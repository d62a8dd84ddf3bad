/* cli.h: what every file of the program `tegula` shares: exit codes, the one way to report a failure, the command
 * record and small growing arrays.
 *
 * Invariant: functions that can fail return an exit code (0 is success) and have already said why on standard error,
 * in one line; callers only clean up and pass the code on. So no failure is reported twice or not at all. The
 * alternative, error values that main() prints, would need a second error type beside struct teg_error. */
#ifndef TEGULA_CLI_H
#define TEGULA_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tegula.h"

enum cli_exit {
    CLI_DONE = 0,
    CLI_FAILED = 1,
    CLI_USAGE = 2,
};

#define CLI_COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define CLI_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* ---- failures (report.c) ---- */

/* Print "tegula: <message>" on standard error, control characters replaced; return CLI_FAILED or CLI_USAGE. */
int cli_fail(const char *format, ...) CLI_PRINTF(1, 2);
int cli_usage(const char *format, ...) CLI_PRINTF(1, 2);
/* Reports a failure of the library. Prints nothing after a signal (returns 128 + its number), and nothing for
 * TEG_ERR_INTERRUPTED: then a callback of the program has reported. */
int cli_fail_library(const struct teg_error *err);
int cli_fail_memory(void);

/* ---- terminals and clocks (report.c) ---- */

enum cli_style { CLI_STYLE_ERROR, CLI_STYLE_HEADING, CLI_STYLE_FAINT, CLI_STYLE_PROMPT, CLI_STYLE_RESET };
/* The escape sequence that starts a style, or "" where the stream is no terminal or NO_COLOR is set. */
const char *cli_style(const FILE *stream, enum cli_style style);
bool cli_is_terminal(const FILE *stream);
/* Seconds on a clock that never jumps. */
double cli_now(void);
uint64_t cli_peak_rss_bytes(void);
/* The CPUs that this process may use, 1 to 256: the library's default number of threads. */
size_t cli_cpus(void);
/* "98.4 MB" into text. */
const char *cli_bytes_text(uint64_t n_bytes, char text[32]);

/* ---- growing arrays (report.c); {0} is empty, free accepts it ---- */

struct cli_bytes {
    char *data;
    size_t n, capacity;
};
/* Appends and keeps a NUL behind the last byte. False: out of memory, not reported, nothing changed. */
bool cli_bytes_append(struct cli_bytes *bytes, const char *data, size_t n);
void cli_bytes_free(struct cli_bytes *bytes);

struct cli_ids {
    int32_t *data;
    size_t n, capacity;
};
bool cli_ids_append(struct cli_ids *ids, int32_t id);
void cli_ids_free(struct cli_ids *ids);

/* ---- commands ---- */

struct cli_option;

/* The command line after parsing. */
struct cli_line {
    const struct cli_command *command;
    char **operands; /* everything that is no option, in order */
    size_t n_operands;
    uint64_t given; /* bit i: option i of the command's table was on the command line */
};

struct cli_command {
    const char *name;
    const char *operands; /* as the usage line shows them */
    const char *summary;  /* one line of `tegula help` */
    const char *details;  /* paragraphs of `tegula help COMMAND` */
    const struct cli_option *options;
    size_t n_options;
    size_t min_operands, max_operands;
    size_t args_bytes; /* size of the struct that the option table fills */
    int (*run)(const struct cli_line *line, const void *args);
};

extern const struct cli_command cli_command_run, cli_command_tokenize, cli_command_template, cli_command_logits,
    cli_command_perplexity, cli_command_predict, cli_command_inspect, cli_command_bench, cli_command_tune,
    cli_command_convert, cli_command_compare, cli_command_quantize;

#endif
