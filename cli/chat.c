/* chat.c: conversations.
 *
 * Invariant: every turn renders the whole conversation with the model's template, so the model sees exactly what the
 * template says; the session keeps the start that has not changed and only the rest is run. The alternative, feeding
 * only the new turn, breaks with templates that rewrite earlier turns (reasoning removed, dates, tools). */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "generate.h"
#include "interrupt.h"

static int add_message(json_t *messages, const char *role, const char *bytes, size_t n_bytes)
{
    json_t *message = json_pack("{s:s, s:o}", "role", role, "content", cli_json_text(bytes, n_bytes));
    return message && json_array_append_new(messages, message) == 0 ? CLI_DONE : cli_fail_memory();
}

/* The conversation so far as the ids that the model shall continue. */
static int render(const struct generator *g, const json_t *messages, struct cli_ids *ids)
{
    struct teg_chat_options options;
    struct teg_error err = {0};
    struct teg_text text = {0};
    teg_chat_options_default(&options);
    options.add_generation_prompt = true;
    char *json = json_dumps(messages, JSON_COMPACT);
    if (!json)
        return cli_fail_memory();
    const enum teg_status status = teg_chat_render(g->model, json, strlen(json), &options, &text, &err);
    free(json);
    if (status != TEG_OK)
        return cli_fail_library(&err);
    struct cli_bytes view = {.data = text.bytes, .n = text.n_bytes};
    const int code = cli_tokenize_prompt(g->model, &view, true, ids);
    teg_text_free(&text);
    return code;
}

static int end_turn_text(struct generator *g, const struct generation *out)
{
    if (!g->output || (out->text.n > 0 && out->text.data[out->text.n - 1] == '\n'))
        return CLI_DONE;
    if (!g->args->chat && !cli_is_terminal(stdout))
        return CLI_DONE;
    (void)cli_output_write(g->output, "\n", 1);
    return cli_output_flush(g->output);
}

/* One user turn and its answer, which is added to the conversation. */
static int turn(struct generator *g, json_t *messages, const struct cli_bytes *user, struct generation *out)
{
    struct cli_ids ids = {0};
    cli_generation_free(out);
    *out = (struct generation){0};
    int code = add_message(messages, "user", user->data, user->n);
    if (code == CLI_DONE)
        code = render(g, messages, &ids);
    if (code == CLI_DONE && ids.n == 0)
        code = cli_fail("empty prompt: chat template: expected at least one token, found none; check the template");
    if (code == CLI_DONE)
        code = cli_generate(g, &ids, out);
    cli_ids_free(&ids);
    if (out->stop && add_message(messages, "assistant", out->text.data, out->text.n) != CLI_DONE)
        code = CLI_FAILED;
    if (out->stop && end_turn_text(g, out) != CLI_DONE)
        code = g->output->failure;
    if (out->stop && !g->args->json && (code == CLI_DONE || cli_interrupted()))
        cli_generation_summary(g, out);
    return code;
}

/* The next turn that is not blank; *end at the end of input. */
static int read_turn(struct cli_bytes *user, bool *end)
{
    const bool terminal = isatty(STDIN_FILENO);
    for (;;) {
        if (terminal)
            fprintf(stderr, "%s>%s ", cli_style(stderr, CLI_STYLE_PROMPT), cli_style(stderr, CLI_STYLE_RESET));
        const int code = cli_input_line(user, end);
        if (terminal && (code != CLI_DONE || *end))
            fputc('\n', stderr);
        if (code != CLI_DONE || *end || strspn(user->data, " \t\r") < user->n)
            return code;
    }
}

static int converse(struct generator *g, json_t *messages, const struct cli_bytes *first, struct generation *last)
{
    struct cli_bytes user = {0};
    size_t n_turns = 0;
    int code = CLI_DONE;
    if (first) {
        code = turn(g, messages, first, last);
        n_turns++;
    }
    bool end = !g->args->chat;
    while (code == CLI_DONE && !end) {
        code = read_turn(&user, &end);
        if (code == CLI_DONE && !end) {
            code = turn(g, messages, &user, last);
            n_turns++;
        }
    }
    cli_bytes_free(&user);
    if (code == CLI_DONE && n_turns == 0 && !isatty(STDIN_FILENO))
        code = cli_fail("empty prompt: standard input: expected at least one turn, found none; write a line of text");
    return code;
}

int cli_chat(struct generator *g, const struct cli_bytes *first)
{
    struct generation last = {0};
    json_t *messages = json_array();
    int code = messages ? CLI_DONE : cli_fail_memory();
    if (code == CLI_DONE && g->args->system)
        code = add_message(messages, "system", g->args->system, strlen(g->args->system));
    if (code == CLI_DONE)
        code = converse(g, messages, first, &last);
    if (g->args->json && last.stop && (code == CLI_DONE || cli_interrupted())) {
        const int printed = cli_json_print(cli_generation_json(g, &last, json_incref(messages)));
        code = code != CLI_DONE ? code : printed;
    }
    json_decref(messages);
    cli_generation_free(&last);
    return code;
}
