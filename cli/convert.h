/* convert.h: `tegula convert` and its check of what it wrote (convert_check.c). */
#ifndef TEGULA_CLI_CONVERT_H
#define TEGULA_CLI_CONVERT_H

#include "setup.h"

struct cli_check {
    size_t n_tokens; /* scored */
    double kl_mean, kl_max, perplexity_source, perplexity_package;
    double top1_agreement;
};

/* Runs both models over the same ids and compares every row of logits. text NULL: a text of its own. */
int cli_convert_check(const char *source, const char *package, const struct cli_model_args *args,
                      const struct cli_bytes *text, struct cli_check *check);

/* Runs the text of a file through the model at `path` (quantize.c). */
int cli_calibrate(const char *path, const char *text, const struct cli_model_args *model_args, int64_t n_threads,
                  struct teg_calibration **calibration);

#endif
