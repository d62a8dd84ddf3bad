/* tune.h: what tune.c found, for the page that tune_html.c writes. */
#ifndef TEGULA_CLI_TUNE_H
#define TEGULA_CLI_TUNE_H

#include "bench.h"

enum { tune_kv_tile = 64 }; /* tokens: a page of every session; see tune.c */

struct tune_result {
    struct bench_table *table;
    const bool *dropped; /* [table->n] far behind, not run again */
    size_t chosen, n_rounds;
    const char *reason; /* of the choice, a sentence without its end */
};

/* One page that needs nothing else. */
int tune_print_html(struct cli_output *output, const struct tune_result *result);

#endif
