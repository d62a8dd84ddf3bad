/* template.c: `tegula template`: a conversation rendered by the model's chat template.
 *
 * Invariant: standard output holds exactly the rendered text, no newline added, so that `tegula template … | tegula
 * run --special` sees what --chat would. Messages and tools are checked here, where the file and the byte are known,
 * and then go to the library as they are: printing them again could change numbers and the order of keys. */
#include <string.h>

#include "io.h"
#include "setup.h"

struct template_args {
    struct cli_model_args model;
    struct cli_prompt_args messages;
    bool add_generation_prompt, json;
    const char *template_path, *tools_path;
    int64_t now;
};

#define ARG(field) offsetof(struct template_args, field)

static const struct cli_option option_table[] = {
    CLI_PROMPT_OPTIONS(struct template_args, messages, "the messages, JSON [{\"role\", \"content\"}, ...],"),
    {.name = "add-generation-prompt",
     .type = CLI_FLAG,
     .offset = ARG(add_generation_prompt),
     .help = "end with what begins the assistant's answer"},
    {.name = "template",
     .type = CLI_TEXT,
     .offset = ARG(template_path),
     .placeholder = "FILE",
     .help = "use this Jinja template instead of the model's own"},
    {.name = "tools",
     .type = CLI_TEXT,
     .offset = ARG(tools_path),
     .placeholder = "FILE",
     .help = "a JSON array of tools for the template"},
    {.name = "now",
     .type = CLI_INTEGER,
     .offset = ARG(now),
     .placeholder = "SECONDS",
     .min = 1,
     .max = INT64_C(1) << 40,
     .help = "the Unix time that the template sees (default: the clock)"},
    {.name = "json", .type = CLI_FLAG, .offset = ARG(json), .help = "print {\"text\": ...}"},
    CLI_TOKENIZER_OPTION(struct template_args, model),
    CLI_PROGRESS_OPTION(struct template_args, model),
};

/* A file that becomes a C string for the library. */
static int read_text_file(const char *path, const char *what, struct cli_bytes *bytes)
{
    const int code = cli_input_read(path, what, bytes);
    if (code == CLI_DONE && memchr(bytes->data, '\0', bytes->n))
        return cli_fail("cannot read %s: %s: expected text, found a NUL byte; check the file", what, path);
    return code;
}

/* JSON text that must be an array of objects; `key`, where not NULL, is a string that each must have. */
static int check_array(const struct cli_bytes *bytes, const char *what, const char *key)
{
    json_error_t problem;
    json_t *array = json_loadb(bytes->data ? bytes->data : "", bytes->n, 0, &problem);
    if (!array)
        return cli_fail("cannot read %s: byte %d: expected JSON, found '%s'; correct the text", what, problem.position,
                        problem.text);
    int code = CLI_DONE;
    if (!json_is_array(array))
        code =
            cli_fail("cannot read %s: the JSON text: expected an array, found something else; give [{...}, ...]", what);
    for (size_t i = 0; code == CLI_DONE && i < json_array_size(array); i++) {
        const json_t *item = json_array_get(array, i);
        if (!json_is_object(item) || (key && !json_is_string(json_object_get(item, key))))
            code =
                cli_fail("cannot read %s: item %zu: expected an object%s%s%s, found something else; correct the text",
                         what, i, key ? " with the string \"" : "", key ? key : "", key ? "\"" : "");
    }
    json_decref(array);
    return code;
}

static int render(const struct template_args *args, const struct teg_model *model, const struct cli_bytes *messages,
                  const struct teg_chat_options *chat)
{
    struct teg_error err = {0};
    struct teg_text text = {0};
    int code;
    if (teg_chat_render(model, messages->data ? messages->data : "", messages->n, chat, &text, &err) != TEG_OK)
        return cli_fail_library(&err);
    if (args->json) {
        code = cli_json_print(json_pack("{s:o}", "text", cli_json_text(text.bytes, text.n_bytes)));
    } else {
        struct cli_output output;
        (void)cli_output_open(&output, NULL);
        (void)cli_output_write(&output, text.bytes, text.n_bytes);
        code = cli_output_close(&output, true);
    }
    teg_text_free(&text);
    return code;
}

static int template(const struct cli_line *line, const void *ptr)
{
    const struct template_args *args = ptr;
    struct cli_bytes messages = {0}, template_text = {0}, tools = {0};
    struct teg_model *model = NULL;
    struct teg_chat_options chat;
    teg_chat_options_default(&chat);
    chat.add_generation_prompt = args->add_generation_prompt;
    chat.now_unix = args->now;
    int code = cli_prompt_read(line, &args->messages, "messages", &messages);
    if (code == CLI_DONE)
        code = check_array(&messages, "messages", "role");
    if (code == CLI_DONE && args->template_path)
        code = read_text_file(args->template_path, "template", &template_text);
    if (code == CLI_DONE && args->tools_path)
        code = read_text_file(args->tools_path, "tools", &tools);
    if (code == CLI_DONE && args->tools_path)
        code = check_array(&tools, "tools", NULL);
    chat.template_text = template_text.data;
    chat.tools_json = tools.data;
    if (code == CLI_DONE)
        code = cli_model_open(line->operands[0], &args->model, true, &model);
    if (code == CLI_DONE)
        code = render(args, model, &messages, &chat);
    teg_model_free(model);
    cli_bytes_free(&messages);
    cli_bytes_free(&template_text);
    cli_bytes_free(&tools);
    return code;
}

const struct cli_command cli_command_template = {
    .name = "template",
    .operands = "MODEL",
    .summary = "render a conversation with the model's chat template",
    .details = "Reads messages as JSON from standard input and prints the text that the model would see, exactly, "
               "without a newline added. 'tegula run --special' takes that text as a prompt.",
    .options = option_table,
    .n_options = CLI_COUNT(option_table),
    .min_operands = 1,
    .max_operands = 1,
    .args_bytes = sizeof(struct template_args),
    .run = template,
};
