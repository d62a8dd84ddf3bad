/* convert.h: what `tegula convert` and `tegula quantize` share: the options that say which encoding a weight gets
 * (rules.c), calibration (calibrate.c) and the check of what was written (convert_check.c). */
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

/* ---- options (rules.c) ---- */

struct cli_encoding_args {
    const char *weights, *embedding, *head, *calibrate, *check_file;
    int granularity; /* 0: not given */
    int64_t group_size;
    struct cli_texts rules, skips;
    bool fit, check;
};
extern const struct cli_choice cli_grains[];

#define CLI_ENCODING_AT(args_type, field, member)                                                                      \
    (offsetof(args_type, field) + offsetof(struct cli_encoding_args, member))
/* The options of `field`, a struct cli_encoding_args in `args_type`; the texts are where the two commands differ. */
#define CLI_ENCODING_OPTIONS(args_type, field, weights_initial, weights_help, rule_help, skip_help)                    \
    {.name = "weights",                                                                                                \
     .type = CLI_TEXT,                                                                                                 \
     .offset = CLI_ENCODING_AT(args_type, field, weights),                                                             \
     .placeholder = "RULE",                                                                                            \
     .initial = (weights_initial),                                                                                     \
     .help = (weights_help)},                                                                                          \
        {.name = "embedding",                                                                                          \
         .type = CLI_TEXT,                                                                                             \
         .offset = CLI_ENCODING_AT(args_type, field, embedding),                                                       \
         .placeholder = "RULE",                                                                                        \
         .help = "the same for the embedding (default: int8, or as --weights where that has 8 bits or more)"},         \
        {.name = "head",                                                                                               \
         .type = CLI_TEXT,                                                                                             \
         .offset = CLI_ENCODING_AT(args_type, field, head),                                                            \
         .placeholder = "RULE",                                                                                        \
         .help = "the same for the output head (default: as for the embedding)"},                                      \
        {.name = "granularity",                                                                                        \
         .type = CLI_CHOICE,                                                                                           \
         .offset = CLI_ENCODING_AT(args_type, field, granularity),                                                     \
         .choices = cli_grains,                                                                                        \
         .help = "values that share a scale or table, for --weights (default: the rule's own)"},                       \
        {.name = "group-size",                                                                                         \
         .type = CLI_INTEGER,                                                                                          \
         .offset = CLI_ENCODING_AT(args_type, field, group_size),                                                      \
         .placeholder = "N",                                                                                           \
         .min = 1,                                                                                                     \
         .max = 65536,                                                                                                 \
         .help = "columns of a block, or rows that share a table, for --weights"},                                     \
        {.name = "fit",                                                                                                \
         .type = CLI_FLAG,                                                                                             \
         .offset = CLI_ENCODING_AT(args_type, field, fit),                                                             \
         .help = "where a group does not divide a weight, take the largest smaller one that does"},                    \
        {.name = "rule",                                                                                               \
         .type = CLI_TEXTS,                                                                                            \
         .offset = CLI_ENCODING_AT(args_type, field, rules),                                                           \
         .placeholder = "PATTERN=RULE",                                                                                \
         .help = (rule_help)},                                                                                         \
        {.name = "skip",                                                                                               \
         .type = CLI_TEXTS,                                                                                            \
         .offset = CLI_ENCODING_AT(args_type, field, skips),                                                           \
         .placeholder = "PATTERN",                                                                                     \
         .help = (skip_help)},                                                                                         \
        {.name = "calibrate",                                                                                          \
         .type = CLI_TEXT,                                                                                             \
         .offset = CLI_ENCODING_AT(args_type, field, calibrate),                                                       \
         .placeholder = "FILE",                                                                                        \
         .help = "run this text through the model first; columns that it uses much lose less (language models)"},      \
        {.name = "check",                                                                                              \
         .type = CLI_FLAG,                                                                                             \
         .offset = CLI_ENCODING_AT(args_type, field, check),                                                           \
         .help = "run the result against the source and report divergence and perplexity (language models)"},          \
    {                                                                                                                  \
        .name = "check-file", .type = CLI_TEXT, .offset = CLI_ENCODING_AT(args_type, field, check_file),               \
        .placeholder = "FILE", .help = "the text for --check (default: a short one of its own)"                        \
    }

/* --weights with the grain that other options give, and `more` flags: "int4", 64 and ",2:4" are "int4/64,2:4". */
enum { CLI_MOST_RULE = 128 };
int cli_rule_text(const struct cli_encoding_args *args, const char *more, char text[CLI_MOST_RULE]);
/* --rule and --skip as "NAME=RULE" and "NAME=skip", for cli_patterns_free; NULL: out of memory. */
char **cli_patterns_make(const struct cli_encoding_args *args, size_t *n);
void cli_patterns_free(char **patterns, size_t n);

#endif
