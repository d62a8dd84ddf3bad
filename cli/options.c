/* options.c: the table-driven option parser; the syntax is described in options.h, the help printer is in help.c.
 *
 * Invariant: every byte of the command line is either used or refused with a sentence that names the option, what
 * was expected and what was found; nothing is parsed and ignored. Values are read by one function per type, chosen
 * from a table. getopt_long was not taken: it abbreviates names, permutes argv, prints its own messages, and knows
 * nothing of types, ranges and defaults. */
#include "options.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Where a value came from, for messages. */
struct place {
    const struct cli_command *command;
    const struct cli_option *option;
};

/* "--chunk", "--prompt (-p)" */
static const char *shown_name(const struct cli_option *option, char text[64])
{
    if (option->letter)
        snprintf(text, 64, "--%s (-%c)", option->name, option->letter);
    else
        snprintf(text, 64, "--%s", option->name);
    return text;
}

static int bad_value(const struct place *at, const char *expected, const char *found)
{
    char name[64];
    return cli_usage("bad option: %s: expected %s, found '%s'; see 'tegula %s --help'", shown_name(at->option, name),
                     expected, found, at->command->name);
}

/* A decimal integer with an optional suffix k, M or G, n_bytes long; false when it is anything else. */
static bool read_integer(const char *text, size_t n_bytes, int64_t *value)
{
    char copy[32];
    if (n_bytes == 0 || n_bytes >= sizeof(copy))
        return false;
    memcpy(copy, text, n_bytes);
    copy[n_bytes] = '\0';
    const char *digits = copy + (copy[0] == '-' || copy[0] == '+');
    if (*digits < '0' || *digits > '9')
        return false;
    char *end = NULL;
    errno = 0;
    const long long parsed = strtoll(copy, &end, 10);
    if (errno != 0)
        return false;
    static const char suffixes[] = "kKmMgG";
    int64_t scale = 1;
    if (*end != '\0') {
        const char *suffix = strchr(suffixes, *end);
        if (!suffix || end[1] != '\0')
            return false;
        scale = INT64_C(1) << (10 * ((suffix - suffixes) / 2 + 1));
    }
    if (parsed > INT64_MAX / scale || parsed < INT64_MIN / scale)
        return false;
    *value = parsed * scale;
    return true;
}

static int parse_one_integer(const struct place *at, const char *text, size_t n_bytes, int64_t *value)
{
    const struct cli_option *option = at->option;
    int64_t parsed = 0;
    if (read_integer(text, n_bytes, &parsed) && parsed >= option->min && parsed <= option->max) {
        *value = parsed;
        return CLI_DONE;
    }
    char expected[96], found[64];
    snprintf(expected, sizeof(expected), "a whole number from %lld to %lld", (long long)option->min,
             (long long)option->max);
    snprintf(found, sizeof(found), "%.*s", n_bytes < 48 ? (int)n_bytes : 48, text);
    return bad_value(at, expected, found);
}

static int parse_one_choice(const struct place *at, const char *text, size_t n_bytes, int *value)
{
    char names[160] = "", found[64];
    snprintf(found, sizeof(found), "%.*s", n_bytes < 48 ? (int)n_bytes : 48, text);
    for (const struct cli_choice *choice = at->option->choices; choice->name; choice++) {
        if (strlen(choice->name) == n_bytes && memcmp(choice->name, text, n_bytes) == 0) {
            if (choice->absent)
                return cli_usage("bad option: --%s: '%s' is not in this version; %s", at->option->name, choice->name,
                                 choice->absent);
            *value = choice->value;
            return CLI_DONE;
        }
        if (!choice->absent) {
            const size_t used = strlen(names);
            snprintf(names + used, sizeof(names) - used, "%s%s", used ? " or " : "", choice->name);
        }
    }
    return bad_value(at, names, found);
}

static int parse_text(const struct place *at, const char *text, void *slot)
{
    (void)at;
    *(const char **)slot = text;
    return CLI_DONE;
}

static int parse_texts(const struct place *at, const char *text, void *slot)
{
    (void)at;
    struct cli_texts *texts = slot;
    const char **moved = realloc(texts->data, (texts->n + 1) * sizeof(*moved));
    if (!moved)
        return cli_fail_memory();
    texts->data = moved;
    texts->data[texts->n++] = text;
    return CLI_DONE;
}

static int parse_integer(const struct place *at, const char *text, void *slot)
{
    return parse_one_integer(at, text, strlen(text), slot);
}

static int parse_number(const struct place *at, const char *text, void *slot)
{
    char *end = NULL;
    const double value = strtod(text, &end);
    const bool starts_well = *text == '-' || *text == '+' || *text == '.' || (*text >= '0' && *text <= '9');
    if (starts_well && end != text && *end == '\0' && isfinite(value) && value >= at->option->low &&
        value <= at->option->high) {
        *(double *)slot = value;
        return CLI_DONE;
    }
    char expected[96];
    snprintf(expected, sizeof(expected), "a number from %g to %g", at->option->low, at->option->high);
    return bad_value(at, expected, text);
}

static int parse_choice(const struct place *at, const char *text, void *slot)
{
    return parse_one_choice(at, text, strlen(text), slot);
}

static int append_integer(struct cli_integers *list, int64_t value)
{
    int64_t *moved = realloc(list->data, (list->n + 1) * sizeof(*moved));
    if (!moved)
        return cli_fail_memory();
    list->data = moved;
    list->data[list->n++] = value;
    return CLI_DONE;
}

/* A list separated by commas; its items are integers or choices. A new list replaces the default. */
static int parse_list(const struct place *at, const char *text, void *slot)
{
    struct cli_integers *list = slot;
    list->n = 0;
    for (const char *p = text;;) {
        const size_t n = strcspn(p, ",");
        int64_t integer = 0;
        int code, choice = 0;
        if (at->option->type == CLI_CHOICES) {
            code = parse_one_choice(at, p, n, &choice);
            integer = choice;
        } else {
            code = parse_one_integer(at, p, n, &integer);
        }
        if (code == CLI_DONE)
            code = append_integer(list, integer);
        if (code != CLI_DONE)
            return code;
        if (p[n] == '\0')
            return CLI_DONE;
        p += n + 1;
    }
}

static const struct {
    int (*parse)(const struct place *at, const char *text, void *slot);
    bool takes_value, repeats;
} types[] = {
    [CLI_FLAG] = {NULL, false, true},           [CLI_TEXT] = {parse_text, true, false},
    [CLI_TEXTS] = {parse_texts, true, true},    [CLI_INTEGER] = {parse_integer, true, false},
    [CLI_NUMBER] = {parse_number, true, false}, [CLI_CHOICE] = {parse_choice, true, false},
    [CLI_INTEGERS] = {parse_list, true, false}, [CLI_CHOICES] = {parse_list, true, false},
    [CLI_ABSENT] = {NULL, false, false},
};

/* ---- names ---- */

enum { name_bytes_max = 40 };

/* Edit distance with swaps of neighbours counted as one edit; both names are shorter than name_bytes_max. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t rows[3][name_bytes_max + 1];
    const size_t n = strlen(b);
    size_t *before = rows[0], *above = rows[1], *row = rows[2];
    for (size_t j = 0; j <= n; j++)
        above[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t best = above[j - 1] + (a[i - 1] != b[j - 1]);
            if (above[j] + 1 < best)
                best = above[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            row[j] = best;
        }
        size_t *const recycled = before;
        before = above;
        above = row;
        row = recycled;
    }
    return above[n];
}

const char *cli_nearest(const char *name, const char *(*candidate)(const void *ctx, size_t i), const void *ctx)
{
    const size_t n = strlen(name);
    if (n == 0 || n >= name_bytes_max)
        return NULL;
    const char *best = NULL;
    size_t best_distance = n < 4 ? 2 : 1 + n / 3 + 1; /* one more than what still counts as near */
    for (size_t i = 0; candidate(ctx, i); i++) {
        const char *other = candidate(ctx, i);
        if (strlen(other) >= name_bytes_max)
            continue;
        size_t distance = edit_distance(name, other);
        const size_t n_other = strlen(other), n_shorter = n < n_other ? n : n_other;
        if (distance > 1 && n_shorter >= 3 && strncmp(name, other, n_shorter) == 0)
            distance = 1; /* one abbreviates the other */
        if (distance < best_distance) {
            best = other;
            best_distance = distance;
        }
    }
    return best;
}

static const char *option_candidate(const void *ctx, size_t i)
{
    const struct cli_command *command = ctx;
    if (i == command->n_options)
        return "help";
    return i < command->n_options ? command->options[i].name : NULL;
}

static int unknown_option(const struct cli_command *command, const char *shown, const char *name)
{
    const char *near = cli_nearest(name, option_candidate, command);
    if (near)
        return cli_usage("bad option: %s: expected an option of '%s', found an unknown name; did you mean --%s?", shown,
                         command->name, near);
    return cli_usage("bad option: %s: expected an option of '%s', found an unknown name; see 'tegula %s --help'", shown,
                     command->name, command->name);
}

bool cli_option_given(const struct cli_line *line, const char *name)
{
    for (size_t i = 0; i < line->command->n_options; i++)
        if (strcmp(line->command->options[i].name, name) == 0)
            return (line->given >> i & 1) != 0;
    return false;
}

const char *cli_choice_name(const struct cli_choice *choices, int value)
{
    for (; choices->name; choices++)
        if (choices->value == value && !choices->absent)
            return choices->name;
    return "?";
}

/* ---- the command line ---- */

struct parser {
    const struct cli_command *command;
    int argc, next; /* next: the argument to read next */
    char **argv;
    struct cli_line *line;
    char *args;
    bool help;
};

/* Stores one option; `value` is what followed "=" or the letter, NULL where nothing did. */
static int store_option(struct parser *p, const struct cli_option *option, const char *value)
{
    const struct place at = {p->command, option};
    const uint64_t bit = UINT64_C(1) << (option - p->command->options);
    char name[64];
    if (option->type == CLI_ABSENT)
        return cli_usage("bad option: --%s is not in this version; %s", option->name, option->help);
    if (!types[option->type].takes_value) {
        if (value)
            return cli_usage("bad option: --%s: expected no value, found '%s'; write --%s alone", option->name, value,
                             option->name);
        *(bool *)(void *)(p->args + option->offset) = true;
        p->line->given |= bit;
        return CLI_DONE;
    }
    if (!value && p->next >= p->argc)
        return cli_usage("bad option: %s: expected a value, found the end of the command line; write --%s %s",
                         shown_name(option, name), option->name, option->placeholder ? option->placeholder : "VALUE");
    if ((p->line->given & bit) && !types[option->type].repeats)
        return cli_usage("bad option: %s: expected once, found twice; keep one of them", shown_name(option, name));
    p->line->given |= bit;
    return types[option->type].parse(&at, value ? value : p->argv[p->next++], p->args + option->offset);
}

static int parse_long(struct parser *p, const char *argument)
{
    const char *name = argument + 2;
    const size_t n = strcspn(name, "=");
    const char *value = name[n] == '=' ? name + n + 1 : NULL;
    char copy[name_bytes_max];
    snprintf(copy, sizeof(copy), "%.*s", n < name_bytes_max ? (int)n : name_bytes_max - 1, name);
    if (strcmp(copy, "help") == 0 && !value) {
        p->help = true;
        return CLI_DONE;
    }
    for (size_t i = 0; i < p->command->n_options; i++)
        if (n < name_bytes_max && strcmp(p->command->options[i].name, copy) == 0)
            return store_option(p, &p->command->options[i], value);
    char shown[name_bytes_max + 8];
    snprintf(shown, sizeof(shown), "--%s", copy);
    return unknown_option(p->command, shown, copy);
}

static int parse_short(struct parser *p, const char *argument)
{
    if (strcmp(argument, "-h") == 0) {
        p->help = true;
        return CLI_DONE;
    }
    for (size_t i = 0; i < p->command->n_options; i++) {
        const struct cli_option *option = &p->command->options[i];
        if (option->letter && option->letter == argument[1])
            return store_option(p, option, argument[2] ? argument + 2 : NULL);
    }
    return unknown_option(p->command, argument, argument + 1);
}

static int check_operands(const struct cli_command *command, const struct cli_line *line)
{
    if (line->n_operands < command->min_operands)
        return cli_usage("bad command line: tegula %s: expected %s, found nothing; see 'tegula %s --help'",
                         command->name, command->operands, command->name);
    if (line->n_operands > command->max_operands)
        return cli_usage("bad command line: tegula %s: expected only %s, found also '%s'; see 'tegula %s --help'",
                         command->name, command->operands, line->operands[command->max_operands], command->name);
    return CLI_DONE;
}

int cli_options_parse(const struct cli_command *command, int argc, char **argv, struct cli_line *line, void *args,
                      bool *help)
{
    struct parser p = {.command = command, .argc = argc, .argv = argv, .line = line, .args = args};
    line->command = command;
    for (size_t i = 0; i < command->n_options; i++) {
        const struct cli_option *option = &command->options[i];
        const struct place at = {command, option};
        if (option->initial) {
            const int code = types[option->type].parse(&at, option->initial, p.args + option->offset);
            if (code != CLI_DONE)
                return code;
        }
    }
    bool ended = false;
    while (p.next < argc) {
        char *argument = argv[p.next++];
        int code = CLI_DONE;
        if (ended || argument[0] != '-' || argument[1] == '\0')
            line->operands[line->n_operands++] = argument;
        else if (strcmp(argument, "--") == 0)
            ended = true;
        else
            code = argument[1] == '-' ? parse_long(&p, argument) : parse_short(&p, argument);
        if (code != CLI_DONE)
            return code;
    }
    *help = p.help;
    return p.help ? CLI_DONE : check_operands(command, line);
}

void cli_options_release(const struct cli_command *command, void *args)
{
    for (size_t i = 0; i < command->n_options; i++) {
        void *slot = (char *)args + command->options[i].offset;
        const enum cli_option_type type = command->options[i].type;
        if (type == CLI_TEXTS)
            free(((struct cli_texts *)slot)->data);
        else if (type == CLI_INTEGERS || type == CLI_CHOICES)
            free(((struct cli_integers *)slot)->data);
    }
}
