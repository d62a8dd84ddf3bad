/* options.h: the command line as a table.
 *
 * A command describes its options as an array of struct cli_option and a plain struct of values. The parser fills
 * the struct, the help text is printed from the same array, and defaults are text that goes through the same parser,
 * so help, defaults and range checks cannot disagree.
 *
 * Syntax: --name VALUE, --name=VALUE, -n VALUE, -nVALUE, flags without a value, options before, between or after
 * operands, `--` ends them, a lone `-` is an operand. An option with a value may stand once (unless its type is a
 * repeatable one): the second would silently void the first. Names are never abbreviated, so a script keeps its
 * meaning when a new option arrives. Whole numbers take the suffixes k, M, G (1024, 1024^2, 1024^3). */
#ifndef TEGULA_CLI_OPTIONS_H
#define TEGULA_CLI_OPTIONS_H

#include "cli.h"

enum cli_option_type {
    CLI_FLAG,     /* bool */
    CLI_TEXT,     /* const char *, NULL when not given */
    CLI_TEXTS,    /* struct cli_texts; repeatable */
    CLI_INTEGER,  /* int64_t from min to max */
    CLI_NUMBER,   /* double from low to high */
    CLI_CHOICE,   /* int, the value of one of choices */
    CLI_INTEGERS, /* struct cli_integers, separated by commas */
    CLI_CHOICES,  /* struct cli_integers of choice values, separated by commas */
    CLI_ABSENT,   /* known by the contract, not in this version: an error that says what works */
};

struct cli_texts {
    const char **data;
    size_t n;
};

struct cli_integers {
    int64_t *data;
    size_t n;
};

struct cli_choice {
    const char *name;
    int value;
    const char *absent; /* when not NULL: this version lacks the choice; what works instead */
};

struct cli_option {
    const char *name; /* without "--" */
    char letter;      /* or 0 */
    enum cli_option_type type;
    size_t offset;           /* of the value in the command's struct */
    const char *placeholder; /* "N"; for choices made from the list when NULL */
    const char *initial;     /* the default as text, NULL: zero */
    const char *help;        /* for CLI_ABSENT: what works instead */
    int64_t min, max;
    double low, high;
    const struct cli_choice *choices; /* ends with a NULL name */
};

/* Parses argv[0 .. argc-1] (what follows the command's name). `args` is zeroed memory of command->args_bytes.
 * `line->operands` must have room for argc pointers. *help is set when --help or -h stood where an option may
 * stand; then operands were not counted. */
int cli_options_parse(const struct cli_command *command, int argc, char **argv, struct cli_line *line, void *args,
                      bool *help);
/* Frees the lists inside args. */
void cli_options_release(const struct cli_command *command, void *args);
bool cli_option_given(const struct cli_line *line, const char *name);

/* Prints the help of one command. */
void cli_options_help(const struct cli_command *command, struct cli_bytes *out);

/* The candidate that is nearest to `name` by edit distance, or NULL when none is near. candidate(ctx, i) returns the
 * i-th name, NULL behind the last one. */
const char *cli_nearest(const char *name, const char *(*candidate)(const void *ctx, size_t i), const void *ctx);

/* The name of a choice value. */
const char *cli_choice_name(const struct cli_choice *choices, int value);

#endif
