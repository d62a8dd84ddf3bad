/* run.c: `tegula run`: text in, text out.
 *
 * Invariant: without --chat and --system the prompt is completed as it is, byte for byte; a template is used only
 * when one of the two asks for it, so the same command line means the same for every model. Everything that can be
 * wrong with the command line is refused before the model is opened, because opening takes seconds. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "generate.h"
#include "interrupt.h"

#define ARG(field) offsetof(struct run_args, field)
#define FLAG(option, field, text)                                                                                      \
    {                                                                                                                  \
        .name = option, .type = CLI_FLAG, .offset = ARG(field), .help = text                                           \
    }
#define NUMBER(option, field, from, to, start, text)                                                                   \
    {                                                                                                                  \
        .name = option, .type = CLI_NUMBER, .offset = ARG(field), .placeholder = "X", .low = from, .high = to,         \
        .initial = start, .help = text                                                                                 \
    }
#define INTEGER(option, field, from, to, start, text)                                                                  \
    {                                                                                                                  \
        .name = option, .type = CLI_INTEGER, .offset = ARG(field), .placeholder = "N", .min = from, .max = to,         \
        .initial = start, .help = text                                                                                 \
    }

static const struct cli_option option_table[] = {
    CLI_PROMPT_OPTIONS(struct run_args, prompt, "the prompt"),
    FLAG("chat", chat,
         "a conversation through the model's chat template: -p or -f is the first turn, further turns are lines of "
         "standard input"),
    {.name = "system",
     .type = CLI_TEXT,
     .offset = ARG(system),
     .placeholder = "TEXT",
     .help = "system message; uses the chat template, for one turn where --chat is not given"},
    FLAG("raw", raw, "complete the prompt as it is, without a template (the default without --chat and --system)"),
    FLAG("special", special, "special tokens written in the prompt become their ids (always so with a template)"),
    {.name = "tokens",
     .letter = 'n',
     .type = CLI_INTEGER,
     .offset = ARG(n_tokens),
     .placeholder = "N",
     .initial = "256",
     .min = -1,
     .max = INT32_MAX,
     .help = "most tokens to generate; 0 only prefills, -1 goes on until the model ends or the context is full"},
    FLAG("ignore-eos", ignore_eos, "go on after the token that ends the text"),
    NUMBER("temp", temperature, 0, 100, "0.8", "temperature; 0 always takes the most likely token"),
    INTEGER("top-k", top_k, 0, INT32_MAX, "40", "draw from the N most likely tokens; 0: off"),
    NUMBER("top-p", top_p, 0, 1, "0.95", "draw from the likeliest tokens that hold this share; 1: off"),
    NUMBER("min-p", min_p, 0, 1, "0.05", "drop tokens below this share of the likeliest one; 0: off"),
    NUMBER("repeat-penalty", repeat_penalty, 0.01, 100, "1", "divides the logits of recent tokens; 1: off"),
    NUMBER("frequency-penalty", frequency_penalty, -100, 100, "0", "subtracted for each recent use of a token"),
    NUMBER("presence-penalty", presence_penalty, -100, 100, "0", "subtracted once for recent tokens"),
    INTEGER("repeat-last-n", repeat_last_n, 0, INT32_MAX, "64", "how many tokens the penalties call recent"),
    {.name = "seed",
     .type = CLI_INTEGER,
     .offset = ARG(seed),
     .placeholder = "N",
     .min = 0,
     .max = INT64_MAX,
     .help = "the same seed gives the same text (default: random, shown in the options of --json)"},
    {.name = "logit-bias",
     .type = CLI_TEXTS,
     .offset = ARG(logit_bias),
     .placeholder = "ID=X",
     .help = "add X to the logit of token ID, -inf forbids it; may be repeated"},
    {.name = "stop",
     .type = CLI_TEXTS,
     .offset = ARG(stops),
     .placeholder = "TEXT",
     .help = "end before this text; may be repeated"},
    CLI_CHUNK_OPTION(struct run_args, session),
    CLI_CTX_OPTION(struct run_args, session),
    CLI_THREADS_OPTION(struct run_args, session),
    CLI_PIN_OPTION(struct run_args, session),
    CLI_KV_OPTION(struct run_args, session),
    CLI_MODE_OPTION(struct run_args, model),
    CLI_PACK_CACHE_OPTION(struct run_args, model),
    CLI_TARGET_OPTION(struct run_args, model.target),
    FLAG("json", json, "print one JSON document instead of streaming text"),
    CLI_TOKENIZER_OPTION(struct run_args, model),
    CLI_PROGRESS_OPTION(struct run_args, model),
    {.name = "session",
     .type = CLI_ABSENT,
     .placeholder = "FILE",
     .help = "leave it out; sessions live as long as the program"},
};

static uint64_t random_seed(void)
{
    uint32_t seed = 0;
    /* 32 bits are enough to be different and short enough to be typed again. */
    if (getentropy(&seed, sizeof(seed)) != 0)
        seed = (uint32_t)(cli_now() * 1e6);
    return seed;
}

static int parse_biases(const struct cli_texts *texts, struct teg_logit_bias *biases)
{
    for (size_t i = 0; i < texts->n; i++) {
        const char *text = texts->data[i];
        char *end = NULL, *after = NULL;
        errno = 0;
        const long id = strtol(text, &end, 10);
        const bool id_ok = end != text && *end == '=' && errno == 0 && id >= 0 && id <= INT32_MAX;
        const float bias = id_ok ? strtof(end + 1, &after) : 0;
        if (!id_ok || after == end + 1 || *after != '\0' || isnan(bias) || (isinf(bias) && bias > 0))
            return cli_usage("bad option: --logit-bias: expected ID=VALUE with a token id and a number or -inf, found "
                             "'%s'; see 'tegula run --help'",
                             text);
        biases[i] = (struct teg_logit_bias){.id = (int32_t)id, .bias = bias};
    }
    return CLI_DONE;
}

static int open_sampler(struct generator *g, const struct teg_logit_bias *biases)
{
    const struct run_args *a = g->args;
    struct teg_error err = {0};
    struct teg_sampler_options o;
    teg_sampler_options_default(&o);
    o.temperature = (float)a->temperature;
    o.top_k = (uint32_t)a->top_k;
    o.top_p = (float)a->top_p;
    o.min_p = (float)a->min_p;
    o.repeat_penalty = (float)a->repeat_penalty;
    o.frequency_penalty = (float)a->frequency_penalty;
    o.presence_penalty = (float)a->presence_penalty;
    o.repeat_last_n = (uint32_t)a->repeat_last_n;
    o.seed = g->seed;
    o.biases = biases;
    o.n_biases = a->logit_bias.n;
    return teg_sampler_new(g->model, &o, &g->sampler, &err) == TEG_OK ? CLI_DONE : cli_fail_library(&err);
}

/* The prompt as it is, completed. */
static int complete(struct generator *g, const struct cli_bytes *prompt)
{
    struct cli_ids ids = {0};
    struct generation out = {0};
    int code = cli_tokenize_prompt(g->model, prompt, g->args->special, &ids);
    if (code == CLI_DONE && ids.n == 0)
        code = cli_fail("empty prompt: tegula run: expected at least one token, found none; give some text");
    if (code == CLI_DONE)
        code = cli_generate(g, &ids, &out);
    if (out.stop && g->args->json) {
        const int printed = cli_json_print(cli_generation_json(g, &out, NULL));
        code = code != CLI_DONE ? code : printed;
    } else if (out.stop) {
        if (cli_is_terminal(stdout) && out.text.n > 0 && out.text.data[out.text.n - 1] != '\n') {
            (void)cli_output_write(g->output, "\n", 1);
            (void)cli_output_flush(g->output);
        }
        if (!g->output->failure || cli_interrupted())
            cli_generation_summary(g, &out);
    }
    cli_generation_free(&out);
    cli_ids_free(&ids);
    return code;
}

/* Opens everything, runs, closes everything. prompt NULL: the turns are read one by one. */
static int run_with_prompt(const struct cli_line *line, const struct run_args *args, const struct cli_bytes *prompt,
                           const struct teg_logit_bias *biases)
{
    struct teg_model *model = NULL;
    struct cli_output output;
    struct generator g = {.args = args, .seed = (uint64_t)args->seed};
    if (!cli_option_given(line, "seed"))
        g.seed = random_seed();
    int code = cli_output_open(&output, NULL);
    if (code == CLI_DONE)
        code = cli_model_open(line->operands[0], &args->model, false, &model);
    g.model = model;
    g.output = args->json ? NULL : &output;
    if (code == CLI_DONE)
        code = cli_session_open(model, &args->session, &g.session);
    if (code == CLI_DONE)
        code = open_sampler(&g, biases);
    if (code == CLI_DONE)
        code = args->chat || args->system ? cli_chat(&g, prompt) : complete(&g, prompt);
    teg_sampler_free(g.sampler);
    cli_session_close(g.session);
    teg_model_free(model);
    const int closed = cli_output_close(&output, true);
    return code != CLI_DONE ? code : closed;
}

static int run(const struct cli_line *line, const void *ptr)
{
    const struct run_args *args = ptr;
    if (args->raw && (args->chat || args->system))
        return cli_usage("bad options: --raw and --%s: expected one of them, found both; leave one out",
                         args->chat ? "chat" : "system");
    struct teg_logit_bias *biases = calloc(args->logit_bias.n + 1, sizeof(*biases));
    struct cli_bytes prompt = {0};
    int code = biases ? parse_biases(&args->logit_bias, biases) : cli_fail_memory();
    /* In a conversation standard input holds the turns, one a line. */
    const bool read_now = !args->chat || cli_prompt_given(&args->prompt);
    if (code == CLI_DONE && args->chat && args->prompt.file && strcmp(args->prompt.file, "-") == 0)
        code = cli_usage("bad options: -f - and --chat: expected a file, found standard input, which holds the turns; "
                         "leave -f out");
    if (code == CLI_DONE && read_now)
        code = cli_prompt_read(line, &args->prompt, "prompt", &prompt);
    if (code == CLI_DONE && read_now && prompt.n == 0)
        code = cli_fail("empty prompt: tegula run: expected some text, found none; give at least one character");
    if (code == CLI_DONE)
        code = run_with_prompt(line, args, read_now ? &prompt : NULL, biases);
    cli_bytes_free(&prompt);
    free(biases);
    return code;
}

const struct cli_command cli_command_run = {
    .name = "run",
    .operands = "MODEL",
    .summary = "complete a prompt or hold a conversation",
    .details = "Reads a prompt, runs it through the model in chunks and streams the text that follows to standard "
               "output. Closing lines on standard error give prefill and decode apart. Without --chat and --system "
               "the prompt is completed as it is; BOS is added where the model's own rules say so.\n\n"
               "With --json, standard output is one document: text, prompt_tokens, tokens (the ids of the text, "
               "without the one that ended it), stop (eos, length, stop or interrupt), prefill, decode, memory, "
               "options; in a conversation these describe the last turn, and messages holds all of it.\n\n"
               "Ctrl-C ends the generation, prints the figures and exits with 130; a second one kills.",
    .options = option_table,
    .n_options = CLI_COUNT(option_table),
    .min_operands = 1,
    .max_operands = 1,
    .args_bytes = sizeof(struct run_args),
    .run = run,
};
