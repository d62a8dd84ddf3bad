/* progress.h: one progress bar on standard error, for work that the library reports through teg_progress_fn. */
#ifndef TEGULA_CLI_PROGRESS_H
#define TEGULA_CLI_PROGRESS_H

#include "cli.h"

enum cli_progress_when { CLI_PROGRESS_AUTO, CLI_PROGRESS_ON, CLI_PROGRESS_OFF };

struct cli_progress {
    const char *label; /* "prefill" */
    const char *unit;  /* "tokens", or "bytes" to be scaled to MB */
    bool shown;        /* draw at all */
    bool drawn;        /* something is on the line now */
    double start_seconds, last_seconds;
    uint64_t n_calls; /* how often the library reported */
    uint64_t offset;  /* added to what the library reports, where one bar spans several calls */
    uint64_t total;   /* replaces the library's total where not 0 */
};

void cli_progress_begin(struct cli_progress *progress, enum cli_progress_when when, const char *label,
                        const char *unit);
/* A teg_progress_fn; ctx is the struct cli_progress. Returns false once the program was interrupted. */
bool cli_progress_update(void *ctx, uint64_t done, uint64_t total);
/* Erases the bar. */
void cli_progress_end(struct cli_progress *progress);

#endif
