/* tuned.h: what `tegula tune --apply` found, per model, CPU and context, for the sessions of later commands. */
#ifndef TEGULA_CLI_TUNED_H
#define TEGULA_CLI_TUNED_H

#include "cli.h"

struct cli_tuned {
    int64_t ctx, chunk, threads; /* ctx: prompt length it was measured with */
};

/* The entry for the smallest context of at least ctx tokens (0: any), else for the largest; false: none. What cannot be
 * read counts as none: tuning never changes results. */
bool cli_tuned_load(const struct teg_model *model, int64_t ctx, struct cli_tuned *tuned);
/* Adds an entry or replaces that of the same context. */
int cli_tuned_save(const struct teg_model *model, const struct cli_tuned *tuned);
/* Where that is; empty: no cache folder is known. */
void cli_tuned_path(const struct teg_model *model, char path[4096]);

#endif
