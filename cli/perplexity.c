/* perplexity.c: `tegula perplexity`: how surprised the model is by a text.
 *
 * Let t[0 .. N) be the tokens of the text, with BOS in front where the model's rules add one. nll is the mean of
 * -ln p(t[i] | what stands before it) over the scored tokens, perplexity is exp(nll).
 *
 *  - N <= C (context): one window; t[1 .. N) are scored, N - 1 tokens.
 *  - N > C: the first window is t[0 .. C) and scores t[1 .. C). Each further window scores the next S (stride) tokens,
 *    or what is left of them, and holds as many tokens before them as fit into C, beginning with BOS where the rules
 *    add one. So every token but the first is scored exactly once, after the first window with at least C - S tokens
 *    of context (BOS counted).
 *
 * Invariant: sums are double, log-sum-exp is shifted by the maximum, and only the rows that are scored are computed.
 * A KV cache cannot be reused between windows: positions differ. */
#include <math.h>
#include <string.h>

#include "interrupt.h"
#include "io.h"
#include "setup.h"

struct perplexity_args {
    struct cli_model_args model;
    struct cli_session_args session;
    struct cli_prompt_args prompt;
    const char *ids;
    bool special, json;
    int64_t stride;
};

#define ARG(field) offsetof(struct perplexity_args, field)

static const struct cli_option option_table[] = {
    CLI_PROMPT_OPTIONS(struct perplexity_args, prompt, "the text"),
    {.name = "ids",
     .type = CLI_TEXT,
     .offset = ARG(ids),
     .placeholder = "FILE|LIST",
     .help = "score these token ids, exactly as they are, instead of a text"},
    {.name = "special",
     .type = CLI_FLAG,
     .offset = ARG(special),
     .help = "special tokens written in the text become their ids"},
    {.name = "ctx",
     .type = CLI_INTEGER,
     .offset = ARG(session.ctx),
     .placeholder = "N",
     .min = 2,
     .max = UINT32_MAX,
     .help = "tokens in a window (default: what the model was trained for)"},
    {.name = "stride",
     .type = CLI_INTEGER,
     .offset = ARG(stride),
     .placeholder = "N",
     .min = 1,
     .max = UINT32_MAX,
     .help = "tokens scored in each window after the first, below --ctx (default: half of --ctx)"},
    CLI_CHUNK_OPTION(struct perplexity_args, session),
    CLI_THREADS_OPTION(struct perplexity_args, session),
    CLI_PIN_OPTION(struct perplexity_args, session),
    CLI_KV_OPTION(struct perplexity_args, session),
    CLI_MODE_OPTION(struct perplexity_args, model),
    CLI_PACK_CACHE_OPTION(struct perplexity_args, model),
    CLI_TARGET_OPTION(struct perplexity_args, model.target),
    {.name = "json",
     .type = CLI_FLAG,
     .offset = ARG(json),
     .help = "print {\"perplexity\", \"nll\" (mean), \"nll_sum\", \"tokens\" (scored), ...}"},
    CLI_TOKENIZER_OPTION(struct perplexity_args, model),
    CLI_PROGRESS_OPTION(struct perplexity_args, model),
};

struct score {
    const int32_t *targets; /* of the rows of the running call */
    size_t n_vocab, n_tokens;
    double nll_sum;
};

/* -ln softmax(logits)[target] */
static double negative_log_likelihood(const float *logits, size_t n, int32_t target) /* logits [n] */
{
    double highest = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++)
        if (logits[i] > highest)
            highest = logits[i];
    for (size_t i = 0; i < n; i++)
        sum += exp(logits[i] - highest);
    return highest + log(sum) - (double)logits[target];
}

static bool on_logits(void *ctx, size_t first_row, size_t n_rows, const float *logits) /* [n_rows, V] */
{
    struct score *score = ctx;
    for (size_t r = 0; r < n_rows; r++)
        score->nll_sum +=
            negative_log_likelihood(logits + r * score->n_vocab, score->n_vocab, score->targets[first_row + r]);
    score->n_tokens += n_rows;
    return !cli_interrupted();
}

/* One window: ids [n]; the tokens from index `first` on are scored. Row r predicts token r + 1, so the rows before
 * first - 1 are run without their logits, and the last token is not run at all. */
static int score_window(struct teg_session *session, const int32_t *ids, size_t n, size_t first,
                        struct cli_progress *progress, struct score *score)
{
    struct teg_error err = {0};
    struct teg_prefill_options options;
    if (teg_session_rewind(session, 0, &err) != TEG_OK)
        return cli_fail_library(&err);
    teg_prefill_options_default(&options);
    options.progress = cli_progress_update;
    options.progress_ctx = progress;
    if (first > 1 && teg_session_prefill(session, ids, first - 1, &options, &err) != TEG_OK)
        return cli_fail_library(&err);
    progress->offset += first - 1;
    options.on_logits = on_logits;
    options.on_logits_ctx = score;
    score->targets = ids + first;
    if (teg_session_prefill(session, ids + first - 1, n - first, &options, &err) != TEG_OK)
        return cli_fail_library(&err);
    progress->offset += n - first;
    return cli_interrupted() ? cli_interrupt_exit_code() : CLI_DONE;
}

struct windows {
    size_t n_context, n_stride;
    bool bos_first; /* windows after the first begin with BOS */
    int32_t bos;
};

/* Where the window that scores tokens done .. end begins, and how many of its tokens come before them. */
static size_t window_start(const struct windows *w, size_t end)
{
    return end - (w->n_context - (w->bos_first ? 1 : 0));
}

static int score_windows(struct teg_session *session, const struct cli_ids *ids, const struct windows *w,
                         struct cli_progress *progress, struct score *score)
{
    const size_t n_first = ids->n < w->n_context ? ids->n : w->n_context;
    int code = score_window(session, ids->data, n_first, 1, progress, score);
    struct cli_ids window = {0};
    for (size_t done = n_first, end; code == CLI_DONE && done < ids->n; done = end) {
        end = ids->n - done < w->n_stride ? ids->n : done + w->n_stride;
        window.n = 0;
        bool ok = !w->bos_first || cli_ids_append(&window, w->bos);
        for (size_t i = window_start(w, end); ok && i < end; i++)
            ok = cli_ids_append(&window, ids->data[i]);
        code = ok ? score_window(session, window.data, window.n, window.n - (end - done), progress, score)
                  : cli_fail_memory();
    }
    cli_ids_free(&window);
    return code;
}

static int print_score(const struct perplexity_args *args, const struct windows *w, const struct score *score,
                       double seconds)
{
    const double nll = score->nll_sum / (double)score->n_tokens;
    if (args->json)
        return cli_json_print(json_pack("{s:o, s:o, s:o, s:I, s:I, s:I, s:o}", "perplexity", cli_json_real(exp(nll)), //
                                        "nll", cli_json_real(nll), "nll_sum", cli_json_real(score->nll_sum),          //
                                        "tokens", (json_int_t)score->n_tokens,                                        //
                                        "ctx", (json_int_t)w->n_context, "stride", (json_int_t)w->n_stride,           //
                                        "seconds", cli_json_real(seconds)));
    struct cli_output output;
    (void)cli_output_open(&output, NULL);
    (void)cli_output_printf(&output,
                            "perplexity %.6f, nll %.6f per token, %zu tokens scored, context %zu, stride %zu\n",
                            exp(nll), nll, score->n_tokens, w->n_context, w->n_stride);
    return cli_output_close(&output, true);
}

static int measure(const struct perplexity_args *args, const struct teg_model *model, const struct cli_ids *ids)
{
    struct teg_session *session = NULL;
    struct score score = {.n_vocab = (size_t)teg_model_info(model)->vocab_tokens};
    struct windows w = {.bos = teg_token_bos(model)};
    struct cli_progress progress;
    bool wants_bos = false;
    int code = cli_wants_bos(model, &wants_bos);
    if (code == CLI_DONE)
        code = cli_session_open(model, &args->session, &session);
    if (code == CLI_DONE) {
        w.n_context = teg_session_context(session);
        w.n_stride = args->stride ? (size_t)args->stride : (w.n_context + 1) / 2;
        w.bos_first = wants_bos && ids->data[0] == w.bos;
        if (w.n_context - w.n_stride < (w.bos_first ? 2u : 1u) || w.n_stride >= w.n_context)
            code = cli_usage("bad option: --stride: expected it to leave context in a window of %zu tokens, found %zu; "
                             "give a smaller --stride or a larger --ctx",
                             w.n_context, w.n_stride);
    }
    if (code == CLI_DONE) {
        const double start = cli_now();
        cli_progress_begin(&progress, (enum cli_progress_when)args->model.progress, "score", "tokens");
        const size_t n_windows = ids->n <= w.n_context ? 0 : (ids->n - w.n_context + w.n_stride - 1) / w.n_stride;
        progress.total = ids->n <= w.n_context ? ids->n - 1 : (n_windows + 1) * (w.n_context - 1);
        code = score_windows(session, ids, &w, &progress, &score);
        cli_progress_end(&progress);
        if (code == CLI_DONE)
            code = print_score(args, &w, &score, cli_now() - start);
    }
    cli_session_close(session);
    return code;
}

static int perplexity(const struct cli_line *line, const void *ptr)
{
    const struct perplexity_args *args = ptr;
    struct cli_bytes text = {0};
    struct cli_ids ids = {0};
    struct teg_model *model = NULL;
    int code = CLI_DONE;
    if (args->stride && args->session.ctx && args->stride >= args->session.ctx)
        return cli_usage("bad option: --stride: expected it below --ctx (%lld), found %lld; give a smaller one",
                         (long long)args->session.ctx, (long long)args->stride);
    if (args->ids && (cli_prompt_given(&args->prompt) || args->special))
        return cli_usage("too many sources: tegula perplexity: expected --ids or a text, found options for both; keep "
                         "one");
    code = args->ids ? cli_ids_read(args->ids, &ids) : cli_prompt_read(line, &args->prompt, "text", &text);
    if (code == CLI_DONE)
        code = cli_model_open(line->operands[0], &args->model, false, &model);
    if (code == CLI_DONE)
        code = args->ids ? cli_check_ids(model, &ids) : cli_tokenize_prompt(model, &text, args->special, &ids);
    if (code == CLI_DONE && ids.n < 2)
        code = cli_fail("cannot score: the text: expected at least 2 tokens, found %zu; give a longer text", ids.n);
    if (code == CLI_DONE)
        code = measure(args, model, &ids);
    teg_model_free(model);
    cli_ids_free(&ids);
    cli_bytes_free(&text);
    return code;
}

const struct cli_command cli_command_perplexity = {
    .name = "perplexity",
    .operands = "MODEL",
    .summary = "measure how well the model predicts a text",
    .details =
        "Scores every token of a text but the first by -ln of the probability that the model gave it; nll is the "
        "mean, perplexity is exp(nll).\n\n"
        "A text that fits into --ctx tokens is one window. A longer one is scored by windows of --ctx tokens: the "
        "first scores all its tokens but the first; each further one scores the next --stride tokens, after as many "
        "tokens before them as fit, beginning with BOS where the model's rules add one. So each token is scored once, "
        "with at least ctx - stride tokens of context once the first window is full.",
    .options = option_table,
    .n_options = CLI_COUNT(option_table),
    .min_operands = 1,
    .max_operands = 1,
    .args_bytes = sizeof(struct perplexity_args),
    .run = perplexity,
};
