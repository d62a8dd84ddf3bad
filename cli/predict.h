/* predict.h: how `tegula predict` shows and saves outputs (predict_report.c), and the option that it shares with
 * `tegula inspect`. */
#ifndef TEGULA_CLI_PREDICT_H
#define TEGULA_CLI_PREDICT_H

#include "io.h"
#include "setup.h"

struct cli_timing {
    size_t n_runs;
    double median, least, most; /* seconds */
};

/* A line each output: name, type, shape, range and first values. */
int cli_predict_print(const struct teg_values *outputs);
int cli_predict_json(const struct teg_values *outputs, const struct cli_timing *timing,
                     const struct teg_predict_report *report);
/* All outputs as OUT.npz; a dictionary becomes NAME.keys and NAME.values. */
int cli_predict_write(const struct teg_values *outputs, const char *path);

/* inspect_program.c: the same for packages as inspect.c for language models. */
struct cli_inspect_program {
    const char *target, *why_not;
    bool metadata, weights, ops, functions, states, json;
};
bool cli_is_program(const char *path);
int cli_inspect_program(const char *path, const struct cli_inspect_program *what);

#endif
