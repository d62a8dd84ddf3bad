/* main.c: the program `tegula`: finds the command, parses its options, runs it.
 *
 * Invariant: main() is the only place that ends the program, and the exit code is what the command returned: 0 done,
 * 1 failed, 2 usage, 128 + signal after a signal. A command is a row of one table; commands of the contract that this
 * version lacks are only names, so that calling one says so and help does not list it. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "interrupt.h"
#include "io.h"
#include "options.h"

static const struct cli_command *const commands[] = {
    &cli_command_run,        &cli_command_tokenize, &cli_command_template, &cli_command_logits,
    &cli_command_perplexity, &cli_command_predict,  &cli_command_inspect,  &cli_command_bench,
    &cli_command_tune,       &cli_command_convert,  &cli_command_compare,  &cli_command_quantize,
};

static const char *const absent_commands[] = {"lint", "session", "serve"};

/* The names that a mistyped command may have meant. */
static const char *command_candidate(const void *ctx, size_t i)
{
    (void)ctx;
    if (i == CLI_COUNT(commands))
        return "help";
    return i < CLI_COUNT(commands) ? commands[i]->name : NULL;
}

static const struct cli_command *find_command(const char *name)
{
    for (size_t i = 0; i < CLI_COUNT(commands); i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

static int unknown_command(const char *name)
{
    for (size_t i = 0; i < CLI_COUNT(absent_commands); i++)
        if (strcmp(absent_commands[i], name) == 0)
            return cli_usage("unknown command: %s: this version does not have it; see 'tegula help' for the commands "
                             "that it has",
                             name);
    const char *near = cli_nearest(name, command_candidate, NULL);
    if (near)
        return cli_usage("unknown command: %s: expected a command, found an unknown name; did you mean '%s'?", name,
                         near);
    return cli_usage("unknown command: %s: expected a command, found an unknown name; see 'tegula help'", name);
}

static bool overview(struct cli_bytes *text, const FILE *stream)
{
    const char *strong = cli_style(stream, CLI_STYLE_HEADING), *plain = cli_style(stream, CLI_STYLE_RESET);
    char line[256];
    int n = snprintf(line, sizeof(line),
                     "%susage: tegula COMMAND [options] [files]%s\n\n"
                     "Runs language models with fast chunked prefill, and Core ML ML programs.\n\n%scommands:%s\n",
                     strong, plain, strong, plain);
    bool ok = cli_bytes_append(text, line, (size_t)n);
    for (size_t i = 0; i < CLI_COUNT(commands); i++) {
        n = snprintf(line, sizeof(line), "  %-12s%s\n", commands[i]->name, commands[i]->summary);
        ok = ok && cli_bytes_append(text, line, (size_t)n);
    }
    static const char end[] =
        "\n'tegula help COMMAND' or 'tegula COMMAND --help' explains a command; 'tegula --version' prints the "
        "version.\n"
        "A MODEL is a .gguf file (any part of a split set), a directory with config.json and "
        "*.safetensors,\na Core ML package that is a language model, or a folder with a tegula.json.\n"
        "A PACKAGE is a Core ML .mlpackage or .mlmodelc with an ML program.\n";
    return ok && cli_bytes_append(text, end, sizeof(end) - 1);
}

static int print_text(const struct cli_bytes *text)
{
    struct cli_output output;
    (void)cli_output_open(&output, NULL);
    (void)cli_output_write(&output, text->data, text->n);
    return cli_output_close(&output, true);
}

static int print_overview(void)
{
    struct cli_bytes text = {0};
    const int code = overview(&text, stdout) ? print_text(&text) : cli_fail_memory();
    cli_bytes_free(&text);
    return code;
}

static int print_help(const struct cli_command *command)
{
    struct cli_bytes text = {0};
    cli_options_help(command, &text);
    const int code = print_text(&text);
    cli_bytes_free(&text);
    return code;
}

static int help_command(int argc, char **argv)
{
    if (argc == 0)
        return print_overview();
    if (argc > 1)
        return cli_usage("bad command line: tegula help: expected one COMMAND, found also '%s'; name one", argv[1]);
    const struct cli_command *command = find_command(argv[0]);
    return command ? print_help(command) : unknown_command(argv[0]);
}

static int print_version(void)
{
    struct cli_bytes text = {0};
    const char *version = teg_version();
    const bool ok = cli_bytes_append(&text, "tegula ", 7) && cli_bytes_append(&text, version, strlen(version)) &&
                    cli_bytes_append(&text, "\n", 1);
    const int code = ok ? print_text(&text) : cli_fail_memory();
    cli_bytes_free(&text);
    return code;
}

static int run_command(const struct cli_command *command, int argc, char **argv)
{
    struct cli_line line = {0};
    bool help = false;
    void *args = calloc(1, command->args_bytes);
    line.operands = calloc((size_t)argc + 1, sizeof(*line.operands));
    int code;
    if (!args || !line.operands)
        code = cli_fail_memory();
    else
        code = cli_options_parse(command, argc, argv, &line, args, &help);
    if (code == CLI_DONE)
        code = help ? print_help(command) : command->run(&line, args);
    if (args)
        cli_options_release(command, args);
    free(args);
    free(line.operands);
    return code;
}

/* A program started with standard streams closed would get them back as the files it opens next. */
static bool occupy_standard_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd)
            return false;
    return true;
}

int main(int argc, char **argv)
{
    if (!occupy_standard_streams())
        return CLI_FAILED;
    cli_interrupt_install();
    if (argc < 2) {
        struct cli_bytes text = {0};
        if (overview(&text, stderr))
            fputs(text.data, stderr);
        cli_bytes_free(&text);
        return CLI_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        return print_overview();
    if (strcmp(name, "--version") == 0)
        return print_version();
    if (strcmp(name, "help") == 0)
        return help_command(argc - 2, argv + 2);
    const struct cli_command *command = find_command(name);
    return command ? run_command(command, argc - 2, argv + 2) : unknown_command(name);
}
