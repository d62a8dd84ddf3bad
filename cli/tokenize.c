/* tokenize.c: `tegula tokenize`: text to ids and back.
 *
 * Invariant: every byte of the input counts, a final newline too, and --decode writes exactly the bytes of the ids,
 * without adding one. Only the vocabulary is opened, so it is quick for models of any size. */
#include <string.h>

#include "io.h"
#include "setup.h"

enum bos_when { BOS_AUTO, BOS_ON, BOS_OFF };

struct tokenize_args {
    struct cli_model_args model;
    struct cli_prompt_args prompt;
    bool special, decode, json;
    int bos;
};

#define ARG(field) offsetof(struct tokenize_args, field)

static const struct cli_choice bos_choices[] = {
    {"auto", BOS_AUTO, NULL},
    {"on", BOS_ON, NULL},
    {"off", BOS_OFF, NULL},
    {NULL, 0, NULL},
};

static const struct cli_option option_table[] = {
    CLI_PROMPT_OPTIONS(struct tokenize_args, prompt, "the text"),
    {.name = "special",
     .type = CLI_FLAG,
     .offset = ARG(special),
     .help = "special tokens written in the text become their ids"},
    {.name = "bos",
     .type = CLI_CHOICE,
     .offset = ARG(bos),
     .initial = "auto",
     .choices = bos_choices,
     .help = "the token that begins a text; auto: where the model's own rules add it"},
    {.name = "decode",
     .type = CLI_FLAG,
     .offset = ARG(decode),
     .help = "the other way: read ids, write the bytes they stand for"},
    {.name = "json",
     .type = CLI_FLAG,
     .offset = ARG(json),
     .help = "print {\"ids\": [...]}, with --decode {\"text\": "
             "...}"},
    CLI_TOKENIZER_OPTION(struct tokenize_args, model),
    CLI_PROGRESS_OPTION(struct tokenize_args, model),
};

static int print_ids(const struct tokenize_args *args, const struct cli_ids *ids)
{
    if (args->json)
        return cli_json_print(json_pack("{s:o}", "ids", cli_json_ids(ids->data, ids->n)));
    struct cli_output output;
    (void)cli_output_open(&output, NULL);
    for (size_t i = 0; i < ids->n && cli_output_printf(&output, "%d\n", ids->data[i]) == CLI_DONE; i++)
        ;
    return cli_output_close(&output, true);
}

static int encode(const struct tokenize_args *args, const struct teg_model *model, const struct cli_bytes *text)
{
    static const unsigned bos_flags[] = {
        [BOS_AUTO] = TEG_TOKENIZE_BOS, [BOS_ON] = TEG_TOKENIZE_BOS_FORCE, [BOS_OFF] = 0};
    struct cli_ids ids = {0};
    const unsigned flags = bos_flags[args->bos] | (args->special ? TEG_TOKENIZE_SPECIAL : 0u);
    int code = cli_tokenize(model, text, flags, &ids);
    if (code == CLI_DONE)
        code = print_ids(args, &ids);
    cli_ids_free(&ids);
    return code;
}

static int decode(const struct tokenize_args *args, const struct teg_model *model, const struct cli_bytes *list)
{
    struct cli_ids ids = {0};
    struct teg_error err = {0};
    struct teg_text text = {0};
    int code = cli_ids_parse(list->data ? list->data : "", list->n, "the ids", &ids);
    if (code == CLI_DONE)
        code = cli_check_ids(model, &ids);
    if (code == CLI_DONE && teg_detokenize(model, ids.data, ids.n, &text, &err) != TEG_OK)
        code = cli_fail_library(&err);
    if (code == CLI_DONE && args->json) {
        code = cli_json_print(json_pack("{s:o}", "text", cli_json_text(text.bytes, text.n_bytes)));
    } else if (code == CLI_DONE) {
        struct cli_output output;
        (void)cli_output_open(&output, NULL);
        (void)cli_output_write(&output, text.bytes, text.n_bytes);
        code = cli_output_close(&output, true);
    }
    teg_text_free(&text);
    cli_ids_free(&ids);
    return code;
}

/* The input: the operands after MODEL (ids of --decode), or the prompt's sources. */
static int read_input(const struct cli_line *line, const struct tokenize_args *args, struct cli_bytes *input)
{
    if (line->n_operands == 1)
        return cli_prompt_read(line, &args->prompt, args->decode ? "ids" : "text", input);
    if (!args->decode)
        return cli_usage("bad command line: tegula tokenize: expected only MODEL, found also '%s'; give the text with "
                         "-p or -f",
                         line->operands[1]);
    if (cli_prompt_given(&args->prompt))
        return cli_usage("too many sources: tegula tokenize: expected one of -p, -f and ids as operands, found two; "
                         "keep one");
    for (size_t i = 1; i < line->n_operands; i++)
        if (!cli_bytes_append(input, line->operands[i], strlen(line->operands[i])) || !cli_bytes_append(input, " ", 1))
            return cli_fail_memory();
    return CLI_DONE;
}

static int tokenize(const struct cli_line *line, const void *ptr)
{
    const struct tokenize_args *args = ptr;
    struct cli_bytes input = {0};
    struct teg_model *model = NULL;
    if (args->decode && (args->special || cli_option_given(line, "bos")))
        return cli_usage(
            "bad options: --decode and --%s: expected ids to decode as they are, found an option for text; "
            "leave one out",
            args->special ? "special" : "bos");
    int code = read_input(line, args, &input);
    if (code == CLI_DONE)
        code = cli_model_open(line->operands[0], &args->model, true, &model);
    if (code == CLI_DONE)
        code = args->decode ? decode(args, model, &input) : encode(args, model, &input);
    teg_model_free(model);
    cli_bytes_free(&input);
    return code;
}

const struct cli_command cli_command_tokenize = {
    .name = "tokenize",
    .operands = "MODEL [ID...]",
    .summary = "turn text into token ids, or ids into text",
    .details = "Prints the token ids of a text, one a line. Every byte of the input counts, a final newline too.\n\n"
               "With --decode it reads ids (operands after MODEL, -p, -f or standard input; separated by white space "
               "or commas, a JSON array, or the output of --json) and writes exactly the bytes they stand for.",
    .options = option_table,
    .n_options = CLI_COUNT(option_table),
    .min_operands = 1,
    .max_operands = SIZE_MAX,
    .args_bytes = sizeof(struct tokenize_args),
    .run = tokenize,
};
