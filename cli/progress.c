/* progress.c: the progress bar.
 *
 * Invariant: at most ten redraws a second, the bar never outlives its work (it is erased, not left behind), and in a
 * pipe nothing is written at all unless --progress on asked for it. It keeps no thread and no timer: the library
 * calls back after each chunk or block, which is often enough for work that lasts long enough to watch. */
#include <stdlib.h>
#include <string.h>

#include "interrupt.h"
#include "progress.h"

static const double redraw_seconds = 0.1;
enum { bar_cells = 24 };

void cli_progress_begin(struct cli_progress *progress, enum cli_progress_when when, const char *label, const char *unit)
{
    const char *term = getenv("TERM");
    const bool capable = cli_is_terminal(stderr) && term && strcmp(term, "dumb") != 0;
    *progress = (struct cli_progress){
        .label = label,
        .unit = unit,
        .shown = when == CLI_PROGRESS_ON || (when == CLI_PROGRESS_AUTO && capable),
        .start_seconds = cli_now(),
    };
}

static void draw(struct cli_progress *progress, uint64_t done, uint64_t total, double now)
{
    const double share = total > 0 ? (double)done / (double)total : 0;
    const double elapsed = now - progress->start_seconds;
    double rate = elapsed > 0 ? (double)done / elapsed : 0;
    const double remaining = rate > 0 && done < total ? (double)(total - done) / rate : 0;
    const bool in_bytes = strcmp(progress->unit, "bytes") == 0;
    char bar[bar_cells + 1];
    for (int i = 0; i < bar_cells; i++)
        bar[i] = (double)(i + 1) <= share * (double)bar_cells ? '#' : '.';
    bar[bar_cells] = '\0';
    if (in_bytes)
        rate /= 1e6;
    fprintf(stderr, "\r\033[K%s [%s] %3.0f%% %.1f %s/s, %.0f s left", progress->label, bar, share * 100, rate,
            in_bytes ? "MB" : progress->unit, remaining);
    fflush(stderr);
    progress->drawn = true;
    progress->last_seconds = now;
}

bool cli_progress_update(void *ctx, uint64_t done, uint64_t total)
{
    struct cli_progress *progress = ctx;
    progress->n_calls++;
    if (progress->shown) {
        const double now = cli_now();
        if (progress->last_seconds == 0 || now - progress->last_seconds >= redraw_seconds)
            draw(progress, progress->offset + done, progress->total ? progress->total : total, now);
    }
    return !cli_interrupted();
}

void cli_progress_end(struct cli_progress *progress)
{
    if (progress->drawn) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
    progress->shown = progress->drawn = false;
}
