/* help.c: the help text of a command, printed from its option table.
 *
 * Invariant: what is printed is what the parser does: names, ranges, choices and defaults come from the table and
 * are never written a second time by hand. Lines are at most 96 columns wide. */
#include <string.h>

#include "options.h"

enum { left_columns = 30, line_columns = 96 };

static void put(struct cli_bytes *out, const char *text)
{
    /* Out of memory here only shortens the help. */
    (void)cli_bytes_append(out, text, strlen(text));
}

/* Breaks `text` at spaces; `column` is where the cursor stands and `indent` where further lines start. A newline in
 * the text is kept. */
static void put_wrapped(struct cli_bytes *out, const char *text, size_t indent, size_t column)
{
    char pad[left_columns + 1];
    memset(pad, ' ', sizeof(pad));
    pad[indent] = '\0';
    bool line_start = true;
    while (*text) {
        const size_t n = strcspn(text, " \n");
        if (!line_start && column + 1 + n > line_columns) {
            put(out, "\n");
            put(out, pad);
            column = indent;
            line_start = true;
        }
        if (!line_start) {
            put(out, " ");
            column++;
        }
        (void)cli_bytes_append(out, text, n);
        column += n;
        line_start = false;
        text += n;
        if (*text == '\n') {
            put(out, "\n");
            if (text[1] && text[1] != '\n')
                put(out, pad);
            column = indent;
            line_start = true;
        }
        if (*text)
            text++;
    }
    put(out, "\n");
}

/* "exact|auto", the choices of this version. */
static void choice_list(const struct cli_option *option, char *text, size_t capacity)
{
    text[0] = '\0';
    for (const struct cli_choice *choice = option->choices; choice->name; choice++) {
        const size_t used = strlen(text);
        if (!choice->absent)
            snprintf(text + used, capacity - used, "%s%s", used ? "|" : "", choice->name);
    }
}

static void put_option(struct cli_bytes *out, const struct cli_option *option)
{
    char left[128], value[80] = "", text[1024];
    if (option->placeholder)
        snprintf(value, sizeof(value), " %s", option->placeholder);
    else if (option->choices) {
        value[0] = ' ';
        choice_list(option, value + 1, sizeof(value) - 1);
    }
    if (option->letter)
        snprintf(left, sizeof(left), "  -%c, --%s%s", option->letter, option->name, value);
    else
        snprintf(left, sizeof(left), "  --%s%s", option->name, value);
    put(out, left);
    size_t column = strlen(left);
    if (column + 2 > left_columns) {
        put(out, "\n");
        column = 0;
    }
    for (; column < left_columns; column++)
        put(out, " ");
    char list[80] = "";
    if (option->placeholder && option->choices)
        choice_list(option, list, sizeof(list));
    snprintf(text, sizeof(text), "%s%s%s%s%s%s%s", option->help, *list ? ": " : "", list,
             option->initial ? " (default: " : "", option->initial ? option->initial : "", option->initial ? ")" : "",
             "");
    put_wrapped(out, text, left_columns, left_columns);
}

void cli_options_help(const struct cli_command *command, struct cli_bytes *out)
{
    const char *strong = cli_style(stdout, CLI_STYLE_HEADING), *plain = cli_style(stdout, CLI_STYLE_RESET);
    put(out, strong);
    put(out, "usage: tegula ");
    put(out, command->name);
    put(out, " ");
    put(out, command->operands);
    put(out, " [options]");
    put(out, plain);
    put(out, "\n\n");
    put_wrapped(out, command->details, 0, 0);
    put(out, "\n");
    put(out, strong);
    put(out, "options:");
    put(out, plain);
    put(out, "\n");
    for (size_t i = 0; i < command->n_options; i++)
        if (command->options[i].type != CLI_ABSENT)
            put_option(out, &command->options[i]);
    static const struct cli_option help_option = {.name = "help", .letter = 'h', .help = "print this text"};
    put_option(out, &help_option);
    put(out, "\nWhole numbers take k, M or G (1024, 1024^2, 1024^3). Options may stand before or after ");
    put(out, "operands; -- ends them.\nExit codes: 0 done, 1 failed, 2 usage, 130 interrupted (Ctrl-C).\n");
}
