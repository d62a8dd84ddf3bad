/* convert_check.c: a package against the model that it was made from, by our own executor: Kullback-Leibler divergence
 * of each row, perplexities, agreement of the best token.
 *
 * Both run in exact mode, so what differs is what the conversion did. The rows of the source are kept, so the text is
 * cut to what fits into a fixed amount of memory whatever the vocabulary. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "interrupt.h"

enum { MOST_TOKENS = 512, MOST_LOGITS_BYTES = 192 << 20 };

static const char own_text[] =
    "The lighthouse stood at the end of a long wall of stone. Every evening, an hour before the sun went down, the "
    "keeper climbed its two hundred and twelve steps with a can of oil in one hand and a book in the other. He had "
    "kept the light for thirty years, and in all that time no ship had been lost on the rocks below.\n\n"
    "To make bread, mix 500 grams of flour with 350 grams of water, 10 grams of salt and a little yeast. Let the dough "
    "rest for twelve hours, fold it twice, and bake it for forty minutes in a very hot oven.\n\n"
    "def mean(values):\n    \"\"\"The arithmetic mean of a list of numbers.\"\"\"\n    total = 0.0\n    for value in "
    "values:\n        total += value\n    return total / len(values)\n\n"
    "Water boils at 100 degrees Celsius at sea level, but at lower temperatures on high mountains, because the "
    "pressure of the air is lower there. The capital of France is Paris, that of Italy is Rome, and that of Japan is "
    "Tokyo.\n";

struct rows {
    float *source; /* [n, V] */
    size_t n_vocab, n_done;
    const int32_t *ids; /* row r predicts ids[r + 1] */
    struct cli_check *check;
};

static double log_sum(const float *logits, size_t n)
{
    double highest = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++)
        highest = (double)logits[i] > highest ? (double)logits[i] : highest;
    for (size_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - highest);
    return highest + log(sum);
}

static size_t best_of(const float *logits, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

static bool keep_rows(void *ctx, size_t first_row, size_t n_rows, const float *logits)
{
    struct rows *rows = ctx;
    memcpy(rows->source + first_row * rows->n_vocab, logits, n_rows * rows->n_vocab * sizeof(*logits));
    return !cli_interrupted();
}

static void compare_row(struct rows *rows, size_t r, const float *q)
{
    const float *p = rows->source + r * rows->n_vocab;
    const double log_p = log_sum(p, rows->n_vocab), log_q = log_sum(q, rows->n_vocab);
    const size_t target = (size_t)rows->ids[r + 1];
    double kl = 0;
    for (size_t i = 0; i < rows->n_vocab; i++) {
        const double lp = (double)p[i] - log_p;
        kl += exp(lp) * (lp - ((double)q[i] - log_q));
    }
    struct cli_check *check = rows->check;
    check->kl_mean += kl;
    check->kl_max = kl > check->kl_max || kl != kl ? kl : check->kl_max;
    check->perplexity_source += log_p - (double)p[target];
    check->perplexity_package += log_q - (double)q[target];
    check->top1_agreement += best_of(p, rows->n_vocab) == best_of(q, rows->n_vocab);
    check->n_tokens++;
}

static bool compare_rows(void *ctx, size_t first_row, size_t n_rows, const float *logits)
{
    struct rows *rows = ctx;
    for (size_t r = 0; r < n_rows; r++)
        compare_row(rows, first_row + r, logits + r * rows->n_vocab);
    return !cli_interrupted();
}

static int run_model(const struct teg_model *model, const struct cli_model_args *args, const int32_t *ids, size_t n,
                     bool (*on_logits)(void *, size_t, size_t, const float *), struct rows *rows)
{
    const struct cli_session_args session_args = {.chunk = 128, .ctx = (int64_t)n};
    struct teg_session *session = NULL;
    struct teg_prefill_options options;
    int code = cli_session_open(model, &session_args, &session);
    teg_prefill_options_default(&options);
    options.on_logits = on_logits;
    options.on_logits_ctx = rows;
    if (code == CLI_DONE)
        code = cli_prefill(session, ids, n, &options, args->progress, NULL);
    cli_session_close(session);
    return code;
}

/* Both see the source's ids. */
static int compare(const struct teg_model *source, const struct teg_model *package, const struct cli_model_args *args,
                   const struct cli_ids *ids, struct rows *rows)
{
    const size_t n = ids->n - 1;
    rows->ids = ids->data;
    rows->source = malloc(n * rows->n_vocab * sizeof(*rows->source));
    if (!rows->source)
        return cli_fail_memory();
    int code = run_model(source, args, ids->data, n, keep_rows, rows);
    if (code == CLI_DONE)
        code = run_model(package, args, ids->data, n, compare_rows, rows);
    free(rows->source);
    return code;
}

/* As many tokens as the package has slots for and the memory rows. */
static void cut(struct cli_ids *ids, const struct teg_model *package, size_t n_vocab)
{
    const size_t slots = teg_model_info(package)->context_tokens;
    size_t most = MOST_LOGITS_BYTES / (n_vocab * sizeof(float));
    most = most < MOST_TOKENS ? most : MOST_TOKENS;
    most = slots && slots < most ? slots : most;
    ids->n = ids->n > most + 1 ? most + 1 : ids->n;
}

static int enough(const struct cli_ids *ids)
{
    return ids->n >= 2
               ? CLI_DONE
               : cli_fail("cannot check: the text: expected at least 2 tokens, found %zu; give a longer text", ids->n);
}

static int compare_models(const struct teg_model *source, const char *path, const struct cli_model_args *args,
                          struct cli_ids *ids, struct rows *rows)
{
    struct teg_model *package = NULL;
    int code = cli_model_open(path, args, false, &package);
    rows->n_vocab = (size_t)teg_model_info(source)->vocab_tokens;
    if (code == CLI_DONE && (size_t)teg_model_info(package)->vocab_tokens != rows->n_vocab)
        code = cli_fail("cannot check: %s: expected %zu logits as the source has, found %d; report this as a fault",
                        path, rows->n_vocab, teg_model_info(package)->vocab_tokens);
    if (code == CLI_DONE)
        cut(ids, package, rows->n_vocab);
    if (code == CLI_DONE)
        code = enough(ids);
    if (code == CLI_DONE)
        code = compare(source, package, args, ids, rows);
    teg_model_free(package);
    return code;
}

int cli_convert_check_ready(const char *source, const struct cli_model_args *args, const char *text_path)
{
    struct cli_bytes text = {0};
    const struct cli_bytes own = {.data = (char *)own_text, .n = sizeof(own_text) - 1};
    struct teg_model *model = NULL;
    struct cli_ids ids = {0};
    int code = text_path ? cli_input_read(text_path, "text", &text) : CLI_DONE;
    if (code == CLI_DONE)
        code = cli_model_open(source, args, true, &model);
    if (code == CLI_DONE)
        code = cli_tokenize_prompt(model, text_path ? &text : &own, false, &ids);
    if (code == CLI_DONE)
        code = enough(&ids);
    teg_model_free(model);
    cli_ids_free(&ids);
    cli_bytes_free(&text);
    return code;
}

json_t *cli_check_json(const struct cli_check *check)
{
    return json_pack("{s:I, s:o, s:o, s:o, s:o, s:o}", "tokens", (json_int_t)check->n_tokens, "kl_mean",
                     cli_json_real(check->kl_mean), "kl_max", cli_json_real(check->kl_max), "perplexity_source",
                     cli_json_real(check->perplexity_source), "perplexity_package",
                     cli_json_real(check->perplexity_package), "top1_agreement", cli_json_real(check->top1_agreement));
}

void cli_predicted_print(struct cli_output *output, double kl)
{
    (void)cli_output_printf(output,
                            "expected from these errors: KL about %.2g nats a token, as often a third as three times "
                            "that; --check measures it\n",
                            kl);
}

void cli_check_print(struct cli_output *output, const struct cli_check *check)
{
    (void)cli_output_printf(
        output,
        "check: %zu tokens, KL %.6f nats a token (at most %.4f), perplexity %.4f (source %.4f), same "
        "best token %.2f %%\n",
        check->n_tokens, check->kl_mean, check->kl_max, check->perplexity_package, check->perplexity_source,
        100 * check->top1_agreement);
}

int cli_convert_check(const char *source, const char *package, const struct cli_model_args *args, const char *text_path,
                      struct cli_check *check)
{
    struct cli_model_args exact = *args;
    struct cli_bytes text = {0};
    const struct cli_bytes own = {.data = (char *)own_text, .n = sizeof(own_text) - 1};
    struct teg_model *model = NULL;
    struct cli_ids ids = {0};
    struct rows rows = {.check = check};
    exact.mode = TEG_MODE_EXACT;
    *check = (struct cli_check){0};
    int code = text_path ? cli_input_read(text_path, "text", &text) : CLI_DONE;
    if (code == CLI_DONE)
        code = cli_model_open(source, &exact, false, &model);
    if (code == CLI_DONE)
        code = cli_tokenize_prompt(model, text_path ? &text : &own, false, &ids);
    if (code == CLI_DONE)
        code = compare_models(model, package, &exact, &ids, &rows);
    if (code == CLI_DONE) {
        const double n = (double)check->n_tokens;
        check->kl_mean /= n;
        check->top1_agreement /= n;
        check->perplexity_source = exp(check->perplexity_source / n);
        check->perplexity_package = exp(check->perplexity_package / n);
    }
    teg_model_free(model);
    cli_ids_free(&ids);
    cli_bytes_free(&text);
    return code;
}
