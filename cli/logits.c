/* logits.c: `tegula logits`: what the model says about the next token, as numbers.
 *
 * Invariant: memory does not grow with T x V: the shape is known beforehand, so the header goes out first and rows
 * follow as the library computes them. The file appears under its name only when complete. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "interrupt.h"
#include "layers.h"

struct logits_args {
    struct cli_model_args model;
    struct cli_session_args session;
    struct cli_prompt_args prompt;
    const char *ids, *out, *layers;
    bool last, special, json;
    int64_t top;
};

#define ARG(field) offsetof(struct logits_args, field)

static const struct cli_option option_table[] = {
    CLI_PROMPT_OPTIONS(struct logits_args, prompt, "the text"),
    {.name = "ids",
     .type = CLI_TEXT,
     .offset = ARG(ids),
     .placeholder = "FILE|LIST",
     .help = "token ids instead of a text: a file, or the list itself (1,2,3)"},
    {.name = "special",
     .type = CLI_FLAG,
     .offset = ARG(special),
     .help = "special tokens written in the text become their ids"},
    {.name = "last",
     .type = CLI_FLAG,
     .offset = ARG(last),
     .help = "only the row of the last token, shape [1, V] (default: all rows, [T, V])"},
    {.name = "output",
     .letter = 'o',
     .type = CLI_TEXT,
     .offset = ARG(out),
     .placeholder = "OUT.npy",
     .help = "where the float32 array goes; - is standard output; required without --json"},
    {.name = "json",
     .type = CLI_FLAG,
     .offset = ARG(json),
     .help = "print {\"top\": [[id, logit], ...], \"tokens\": T} for the last token"},
    {.name = "top",
     .type = CLI_INTEGER,
     .offset = ARG(top),
     .placeholder = "K",
     .initial = "10",
     .min = 1,
     .max = INT32_MAX,
     .help = "how many tokens --json lists, the most likely first"},
    {.name = "layers",
     .type = CLI_TEXT,
     .offset = ARG(layers),
     .placeholder = "DIR",
     .help = "write each named value of the forward pass as DIR/NAME.npy, float32 [T, width]"},
    CLI_CHUNK_OPTION(struct logits_args, session),
    CLI_CTX_OPTION(struct logits_args, session),
    CLI_THREADS_OPTION(struct logits_args, session),
    CLI_PIN_OPTION(struct logits_args, session),
    CLI_KV_OPTION(struct logits_args, session),
    CLI_MODE_OPTION(struct logits_args, model),
    CLI_PACK_CACHE_OPTION(struct logits_args, model),
    CLI_TARGET_OPTION(struct logits_args, model.target),
    CLI_TOKENIZER_OPTION(struct logits_args, model),
    CLI_PROGRESS_OPTION(struct logits_args, model),
};

struct sink {
    struct cli_output *output;
    size_t n_vocab;
};

static bool on_logits(void *ctx, size_t first_row, size_t n_rows, const float *logits) /* [n_rows, V] */
{
    const struct sink *sink = ctx;
    (void)first_row;
    return cli_npy_write(sink->output, logits, n_rows * sink->n_vocab) == CLI_DONE && !cli_interrupted();
}

/* The K best ids of a row, best first, ties to the lower id. K is small against V: one pass with insertion. */
static json_t *top_json(const float *logits, size_t n_vocab, size_t n_top)
{
    if (n_top > n_vocab)
        n_top = n_vocab;
    size_t *best = malloc((n_top + 1) * sizeof(*best));
    size_t n = 0;
    for (size_t id = 0; best && id < n_vocab; id++) {
        if (n == n_top && !(logits[id] > logits[best[n - 1]]))
            continue;
        size_t at = n < n_top ? n++ : n - 1;
        for (; at > 0 && logits[id] > logits[best[at - 1]]; at--)
            best[at] = best[at - 1];
        best[at] = id;
    }
    json_t *top = best ? json_array() : NULL;
    for (size_t i = 0; top && i < n; i++)
        json_array_append_new(top, json_pack("[I, o]", (json_int_t)best[i], cli_json_real((double)logits[best[i]])));
    free(best);
    return top;
}

static int print_json(const struct logits_args *args, const struct teg_session *session, size_t n_vocab)
{
    const float *logits = teg_session_logits(session);
    if (!logits)
        return cli_fail("cannot list the likeliest tokens: the session: expected logits of the last token, found none; "
                        "give at least one token");
    return cli_json_print(json_pack("{s:o, s:I}", "top", top_json(logits, n_vocab, (size_t)args->top), "tokens",
                                    (json_int_t)teg_session_length(session)));
}

/* Runs the ids; rows go to `output` (NULL: none) behind their header. */
static int run_rows(const struct logits_args *args, struct teg_session *session, const struct cli_ids *ids,
                    struct sink *sink, struct cli_layers *layers)
{
    struct teg_prefill_options options;
    char header[cli_npy_header_bytes];
    teg_prefill_options_default(&options);
    if (sink->output) {
        cli_npy_header(header, args->last ? 1 : ids->n, sink->n_vocab);
        const int code = cli_output_write(sink->output, header, sizeof(header));
        if (code != CLI_DONE)
            return code;
    }
    if (sink->output && !args->last) {
        options.on_logits = on_logits;
        options.on_logits_ctx = sink;
    }
    if (layers) {
        options.on_value = cli_layers_on_value;
        options.on_value_ctx = layers;
    }
    int code = cli_prefill(session, ids->data, ids->n, &options, args->model.progress, NULL);
    if (layers && layers->failure)
        code = layers->failure;
    if (sink->output && sink->output->failure)
        code = sink->output->failure;
    if (code == CLI_DONE && sink->output && args->last)
        code = cli_npy_write(sink->output, teg_session_logits(session), sink->n_vocab);
    return code;
}

static int compute(const struct logits_args *args, const struct teg_model *model, const struct cli_ids *ids,
                   struct cli_output *output)
{
    struct teg_session *session = NULL;
    struct cli_layers layers = {0};
    struct sink sink = {.output = output, .n_vocab = (size_t)teg_model_info(model)->vocab_tokens};
    int code = cli_session_open(model, &args->session, &session);
    if (code == CLI_DONE && args->layers)
        code = cli_layers_open(&layers, args->layers, session);
    if (code == CLI_DONE)
        code = run_rows(args, session, ids, &sink, args->layers ? &layers : NULL);
    const int closed = cli_layers_close(&layers, code == CLI_DONE);
    code = code != CLI_DONE ? code : closed;
    if (code == CLI_DONE && args->json)
        code = print_json(args, session, sink.n_vocab);
    cli_session_close(session);
    return code;
}

static int check_options(const struct cli_line *line, const struct logits_args *args)
{
    const bool to_stdout = args->out && strcmp(args->out, "-") == 0;
    if (args->ids && (cli_prompt_given(&args->prompt) || args->special))
        return cli_usage("too many sources: tegula logits: expected --ids or a text, found options for both; keep one");
    if (!args->out && !args->json)
        return cli_usage("no output: tegula logits: expected -o OUT.npy or --json, found neither; give one of them");
    if (!args->json && cli_option_given(line, "top"))
        return cli_usage("bad option: --top: expected --json beside it, found none; add --json");
    if (to_stdout && args->json)
        return cli_usage(
            "bad options: -o - and --json: expected one result on standard output, found two; name a file");
    if (to_stdout && isatty(STDOUT_FILENO))
        return cli_usage("bad option: -o -: expected a pipe or file for binary data, found a terminal; redirect it");
    return CLI_DONE;
}

static int logits(const struct cli_line *line, const void *ptr)
{
    const struct logits_args *args = ptr;
    struct cli_bytes text = {0};
    struct cli_ids ids = {0};
    struct teg_model *model = NULL;
    static struct cli_output output;
    int code = check_options(line, args);
    if (code == CLI_DONE)
        code = args->ids ? cli_ids_read(args->ids, &ids) : cli_prompt_read(line, &args->prompt, "text", &text);
    if (code == CLI_DONE)
        code = cli_model_open(line->operands[0], &args->model, false, &model);
    if (code == CLI_DONE)
        code = args->ids ? cli_check_ids(model, &ids) : cli_tokenize_prompt(model, &text, args->special, &ids);
    if (code == CLI_DONE && ids.n == 0)
        code = cli_fail("empty prompt: tegula logits: expected at least one token, found none; give some");
    if (code == CLI_DONE && args->out) {
        code = cli_output_open(&output, args->out);
        if (code == CLI_DONE)
            code = compute(args, model, &ids, &output);
        const int closed = cli_output_close(&output, code == CLI_DONE);
        code = code != CLI_DONE ? code : closed;
    } else if (code == CLI_DONE) {
        code = compute(args, model, &ids, NULL);
    }
    teg_model_free(model);
    cli_ids_free(&ids);
    cli_bytes_free(&text);
    return code;
}

const struct cli_command cli_command_logits = {
    .name = "logits",
    .operands = "MODEL",
    .summary = "write the logits of every token, or of the last one",
    .details = "Runs token ids or a text through the model and writes the logits as a float32 .npy array, row by row, "
               "so memory does not grow with the length. A text gets BOS where the model's rules add one; ids are "
               "taken as they are. A file of ids holds them separated by white space or commas, or as JSON. The file "
               "appears under its name only when it is complete.",
    .options = option_table,
    .n_options = CLI_COUNT(option_table),
    .min_operands = 1,
    .max_operands = 1,
    .args_bytes = sizeof(struct logits_args),
    .run = logits,
};
