/* convert.h: what `tegula convert` and `tegula quantize` share: calibration (calibrate.c), rules by name (rules.c) and
 * the check of what was written (convert_check.c). */
#ifndef TEGULA_CLI_CONVERT_H
#define TEGULA_CLI_CONVERT_H

#include "io.h"
#include "setup.h"

struct cli_check {
    size_t n_tokens; /* scored */
    double kl_mean, kl_max, perplexity_source, perplexity_package;
    double top1_agreement;
};

/* Runs both models over the same ids and compares every row of logits. text_path NULL: a text of its own. */
int cli_convert_check(const char *source, const char *package, const struct cli_model_args *args, const char *text_path,
                      struct cli_check *check);
/* Whether it will find a tokenizer and a text, before the hours of work that come first. */
int cli_convert_check_ready(const char *source, const struct cli_model_args *args, const char *text_path);
json_t *cli_check_json(const struct cli_check *check);
void cli_check_print(struct cli_output *output, const struct cli_check *check);

/* What the errors of the weights let expect of that. */
void cli_predicted_print(struct cli_output *output, double kl);

/* Which columns the text of a file uses in the model at `path`. */
int cli_calibrate(const char *path, const char *text_path, const struct cli_model_args *model_args, int64_t n_threads,
                  struct teg_calibration **calibration);

/* "NAME=RULE" and "NAME=skip", for cli_patterns_free; NULL: out of memory. */
char **cli_patterns_make(const struct cli_texts *rules, const struct cli_texts *skips, size_t *n);
void cli_patterns_free(char **patterns, size_t n);

#endif
