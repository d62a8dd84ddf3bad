/* compare.c: `tegula compare`: how far two models are apart, on the same tokens.
 *
 * Both are open at once and run the text block by block: A's rows of a block wait in memory for B's, so memory does not
 * grow with the text. A text longer than the context is cut into windows that each begin with an empty session.
 *
 * Invariant: everything is compared row by row on equal token ids, sums are double, and a value counts only where both
 * models have it under one name; what only one has is counted and said. */
#include "compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "interrupt.h"
#include "predict.h"

struct compare_args {
    struct cli_model_args model;
    struct cli_session_args session;
    struct cli_prompt_args prompt;
    const char *ids;
    bool special, json, layers;
    int mode_b, kv_b;
    double tolerance;
};

#define ARG(field) offsetof(struct compare_args, field)

static const struct cli_option option_table[] = {
    CLI_PROMPT_OPTIONS(struct compare_args, prompt, "the text"),
    {.name = "ids",
     .type = CLI_TEXT,
     .offset = ARG(ids),
     .placeholder = "FILE|LIST",
     .help = "run these token ids, exactly as they are, instead of a text"},
    {.name = "special",
     .type = CLI_FLAG,
     .offset = ARG(special),
     .help = "special tokens written in the text become their ids"},
    {.name = "layers",
     .type = CLI_FLAG,
     .offset = ARG(layers),
     .help = "compare the named values of the forward passes too, and name the first that differs"},
    {.name = "tolerance",
     .type = CLI_NUMBER,
     .offset = ARG(tolerance),
     .placeholder = "X",
     .low = 0,
     .high = 1e9,
     .initial = "0.001",
     .help = "a value differs where the root mean square of the difference is above this share of A's"},
    CLI_CTX_OPTION(struct compare_args, session),
    CLI_CHUNK_OPTION(struct compare_args, session),
    CLI_THREADS_OPTION(struct compare_args, session),
    CLI_KV_OPTION(struct compare_args, session),
    {.name = "kv-b",
     .type = CLI_CHOICE,
     .offset = ARG(kv_b),
     .choices = cli_kv_types,
     .help = "the same for B alone (default: as --kv)"},
    CLI_MODE_OPTION(struct compare_args, model),
    {.name = "mode-b",
     .type = CLI_CHOICE,
     .offset = ARG(mode_b),
     .choices = cli_modes,
     .help = "the same for B alone (default: as --mode)"},
    CLI_TARGET_OPTION(struct compare_args, model.target),
    CLI_TOKENIZER_OPTION(struct compare_args, model),
    {.name = "json", .type = CLI_FLAG, .offset = ARG(json), .help = "print one JSON document"},
    CLI_PROGRESS_OPTION(struct compare_args, model),
};

/* ---- values ---- */

static struct compare_value *find_value(struct compare_values *v, const char *name, size_t width, bool add)
{
    for (size_t i = 0; i < v->n; i++)
        if (strcmp(v->items[i].name, name) == 0)
            return &v->items[i];
    if (!add)
        return NULL;
    if (v->n == v->capacity) {
        const size_t capacity = v->capacity ? 2 * v->capacity : 64;
        struct compare_value *const moved = realloc(v->items, capacity * sizeof(*moved));
        if (!moved)
            return NULL;
        v->items = moved;
        v->capacity = capacity;
    }
    struct compare_value *const item = &v->items[v->n];
    *item = (struct compare_value){.name = strdup(name), .width = width};
    item->rows = calloc(v->block_rows ? v->block_rows : 1, (width ? width : 1) * sizeof(*item->rows));
    v->n += item->name && item->rows;
    return item->name && item->rows ? item : NULL;
}

static void on_value_a(void *ctx, const char *name, size_t first_row, size_t n_rows, size_t width, const float *data)
{
    struct compare_values *const v = ctx;
    struct compare_value *const item = find_value(v, name, width, true);
    v->failed = v->failed || !item;
    if (!item || width != item->width || first_row + n_rows > v->block_rows)
        return;
    memcpy(item->rows + first_row * width, data, n_rows * width * sizeof(*data));
    item->n_rows_a += n_rows;
}

static void on_value_b(void *ctx, const char *name, size_t first_row, size_t n_rows, size_t width, const float *data)
{
    struct compare_values *const v = ctx;
    struct compare_value *const item = find_value(v, name, width, true);
    v->failed = v->failed || !item;
    if (!item)
        return;
    item->n_rows_b += n_rows;
    item->shape_differs = item->shape_differs || width != item->width;
    if (item->n_rows_a == 0 || width != item->width || first_row + n_rows > v->block_rows)
        return;
    const float *const a = item->rows + first_row * width;
    for (size_t i = 0; i < n_rows * width; i++) {
        const double difference = data[i] == a[i] ? 0 : fabs((double)data[i] - (double)a[i]); /* infinities */
        /* not a number differs more than anything */
        item->max_abs = difference > item->max_abs || isnan(difference) ? difference : item->max_abs;
        item->sum_squares += difference * difference;
        item->sum_squares_a += isinf(a[i]) ? 0 : (double)a[i] * (double)a[i];
    }
}

static void values_free(struct compare_values *v)
{
    for (size_t i = 0; i < v->n; i++) {
        free(v->items[i].name);
        free(v->items[i].rows);
    }
    free(v->items);
}

/* ---- logits ---- */

struct block {
    float *rows; /* A's: [block rows, vocab of A] */
    size_t stride, n_vocab;
    const int32_t *next; /* the token after row 0, NULL where the text ends with the block */
    size_t n_next;       /* rows that have one */
    size_t first;        /* of the text: number of row 0 */
    struct compare_logits *sums;
};

static bool keep_rows(void *ctx, size_t first_row, size_t n_rows, const float *logits) /* [n_rows, V] */
{
    const struct block *b = ctx;
    memcpy(b->rows + first_row * b->stride, logits, n_rows * b->stride * sizeof(*logits));
    return !cli_interrupted();
}

/* ln Σ exp(x), and the likeliest id. */
static double log_sum(const float *x, size_t n, size_t *top)
{
    double sum = 0;
    *top = 0;
    for (size_t i = 1; i < n; i++)
        if (x[i] > x[*top])
            *top = i;
    for (size_t i = 0; i < n; i++)
        sum += exp((double)x[i] - (double)x[*top]);
    return (double)x[*top] + log(sum);
}

static void compare_row(const struct block *b, size_t row, const float *y)
{
    struct compare_logits *const s = b->sums;
    const float *const x = b->rows + row * b->stride;
    size_t top_x, top_y;
    const double zx = log_sum(x, b->n_vocab, &top_x), zy = log_sum(y, b->n_vocab, &top_y);
    double kl = 0;
    for (size_t i = 0; i < b->n_vocab; i++) {
        const double difference = fabs((double)x[i] - (double)y[i]);
        if (!isfinite(x[i]) || !isfinite(y[i])) {
            s->n_not_finite++;
            continue;
        }
        if (difference > s->max_abs) {
            s->max_abs = difference;
            s->max_row = b->first + row;
            s->max_id = (int32_t)i;
        }
        s->sum_abs += difference;
        s->sum_squares += difference * difference;
        s->sum_squares_a += (double)x[i] * (double)x[i];
        kl += exp((double)x[i] - zx) * (((double)x[i] - zx) - ((double)y[i] - zy));
    }
    s->n_rows++;
    s->n_values += b->n_vocab;
    s->n_same_top += top_x == top_y;
    s->kl_sum += kl;
    s->kl_max = kl > s->kl_max ? kl : s->kl_max;
    if (row < b->n_next) {
        s->n_scored++;
        s->nll_a += zx - (double)x[b->next[row]];
        s->nll_b += zy - (double)y[b->next[row]];
    }
}

static bool compare_rows(void *ctx, size_t first_row, size_t n_rows, const float *logits) /* [n_rows, V of B] */
{
    const struct block *b = ctx;
    for (size_t r = 0; r < n_rows; r++)
        compare_row(b, first_row + r, logits + r * b->n_vocab);
    return !cli_interrupted();
}

/* ---- running ---- */

struct job {
    const struct compare_args *args;
    struct comparison c;
    struct teg_model *models[2];
    struct teg_session *sessions[2];
    struct cli_ids ids;
    size_t n_context;
    struct block block;
    struct cli_progress progress;
};

static int prefill(struct job *j, int which, const int32_t *ids, size_t n)
{
    struct teg_error err = {0};
    struct teg_prefill_options o;
    teg_prefill_options_default(&o);
    o.on_logits = which == 0 ? keep_rows : compare_rows;
    o.on_logits_ctx = &j->block;
    if (j->c.values) {
        o.on_value = which == 0 ? on_value_a : on_value_b;
        o.on_value_ctx = j->c.values;
    }
    cli_interrupt_watch(j->sessions[which]);
    if (teg_session_prefill(j->sessions[which], ids, n, &o, &err) != TEG_OK)
        return cli_fail_library(&err);
    return cli_interrupted() ? cli_interrupt_exit_code() : CLI_DONE;
}

/* One window: tokens at .. end - 1, from empty sessions. */
static int run_window(struct job *j, size_t at, size_t end, size_t block_rows)
{
    struct teg_error err = {0};
    for (int i = 0; i < 2; i++)
        if (teg_session_rewind(j->sessions[i], 0, &err) != TEG_OK)
            return cli_fail_library(&err);
    for (size_t n; at < end; at += n) {
        n = end - at < block_rows ? end - at : block_rows;
        j->block.first = at;
        j->block.next = j->ids.data + at + 1;
        j->block.n_next = at + n < end ? n : n - 1;
        for (int i = 0; i < 2; i++) {
            const int code = prefill(j, i, j->ids.data + at, n);
            if (code != CLI_DONE)
                return code;
        }
        if (j->c.values && j->c.values->failed)
            return cli_fail_memory();
        (void)cli_progress_update(&j->progress, at + n, j->ids.n);
    }
    return CLI_DONE;
}

/* As many rows as a quarter of a gigabyte holds, at most a chunk: results do not depend on it. */
static size_t rows_of_block(const struct job *j)
{
    const size_t row = (size_t)teg_model_info(j->models[0])->vocab_tokens * sizeof(float);
    const size_t chunk = j->args->session.chunk ? (size_t)j->args->session.chunk : 256; /* 0: the session chooses */
    const size_t most = j->c.values ? 64 : chunk;
    const size_t fitting = ((size_t)1 << 28) / (row ? row : 1);
    const size_t n = fitting < most ? fitting : most;
    return n ? n : 1;
}

static int run_all(struct job *j)
{
    const size_t block_rows = rows_of_block(j), n_vocab = (size_t)teg_model_info(j->models[0])->vocab_tokens;
    if (j->c.values)
        j->c.values->block_rows = block_rows;
    j->block = (struct block){.rows = calloc(block_rows, n_vocab * sizeof(*j->block.rows)),
                              .stride = n_vocab,
                              .n_vocab = (size_t)j->c.n_vocab,
                              .sums = &j->c.logits};
    int code = j->block.rows ? CLI_DONE : cli_fail_memory();
    const double start = cli_now();
    cli_progress_begin(&j->progress, (enum cli_progress_when)j->args->model.progress, "compare", "tokens");
    for (size_t at = 0; code == CLI_DONE && at < j->ids.n; at += j->n_context)
        code = run_window(j, at, j->ids.n - at < j->n_context ? j->ids.n : at + j->n_context, block_rows);
    cli_progress_end(&j->progress);
    j->c.seconds = cli_now() - start;
    j->c.n_tokens = j->ids.n;
    free(j->block.rows);
    return code;
}

/* ---- opening ---- */

static int open_both(struct job *j, const struct cli_line *line)
{
    for (int i = 0; i < 2; i++) {
        struct cli_model_args args = j->args->model;
        if (i == 1 && cli_option_given(line, "mode-b"))
            args.mode = j->args->mode_b;
        if (!cli_is_program(line->operands[i]))
            args.target = NULL; /* it is a question to packages */
        const int code = cli_model_open(line->operands[i], &args, false, &j->models[i]);
        if (code != CLI_DONE)
            return code;
        j->c.paths[i] = line->operands[i];
        j->c.models[i] = j->models[i];
    }
    const int32_t a = teg_model_info(j->models[0])->vocab_tokens, b = teg_model_info(j->models[1])->vocab_tokens;
    if (a != b)
        return cli_fail(
            "cannot compare: vocabularies: expected one size, found %d tokens and %d; compare models of one "
            "vocabulary",
            a, b);
    j->c.n_vocab = a;
    return CLI_DONE;
}

static int open_sessions(struct job *j)
{
    for (int i = 0; i < 2; i++) {
        struct cli_session_args args = j->args->session;
        if (i == 1 && j->args->kv_b)
            args.kv = j->args->kv_b;
        const int code = cli_session_open(j->models[i], &args, &j->sessions[i]);
        if (code != CLI_DONE)
            return code;
    }
    const size_t a = teg_session_context(j->sessions[0]), b = teg_session_context(j->sessions[1]);
    j->n_context = a < b ? a : b;
    return CLI_DONE;
}

/* By A's tokenizer; by B's where A has none. */
static int read_tokens(struct job *j, const struct cli_bytes *text)
{
    struct teg_error err = {0};
    size_t n = 0;
    if (j->args->ids)
        return cli_check_ids(j->models[0], &j->ids);
    const bool a_has = teg_tokenize(j->models[0], "a", 1, 0, NULL, 0, &n, &err) == TEG_OK;
    return cli_tokenize_prompt(j->models[a_has ? 0 : 1], text, j->args->special, &j->ids);
}

static int compare(const struct cli_line *line, const void *ptr)
{
    struct job j = {.args = ptr};
    struct cli_bytes text = {0};
    struct compare_values values = {0};
    if (j.args->ids && (cli_prompt_given(&j.args->prompt) || j.args->special))
        return cli_usage(
            "too many sources: tegula compare: expected --ids or a text, found options for both; keep one");
    j.c.values = j.args->layers ? &values : NULL;
    j.c.tolerance = j.args->tolerance;
    int code = j.args->ids ? cli_ids_read(j.args->ids, &j.ids) : cli_prompt_read(line, &j.args->prompt, "text", &text);
    if (code == CLI_DONE)
        code = open_both(&j, line);
    if (code == CLI_DONE)
        code = read_tokens(&j, &text);
    if (code == CLI_DONE && j.ids.n == 0)
        code = cli_fail("empty prompt: tegula compare: expected at least one token, found none; give some");
    if (code == CLI_DONE)
        code = open_sessions(&j);
    if (code == CLI_DONE)
        code = run_all(&j);
    if (code == CLI_DONE)
        code = j.args->json ? compare_json(&j.c) : compare_print(&j.c);
    for (int i = 0; i < 2; i++) {
        cli_session_close(j.sessions[i]);
        teg_model_free(j.models[i]);
    }
    values_free(&values);
    cli_ids_free(&j.ids);
    cli_bytes_free(&text);
    return code;
}

const struct cli_command cli_command_compare = {
    .name = "compare",
    .operands = "A B",
    .summary = "measure how far two models are apart on a text",
    .details =
        "Runs the same tokens through two models of one vocabulary (of any two formats, or one model in two modes with "
        "--mode-b) and prints: the largest and the mean difference of the logits, the Kullback-Leibler divergence of "
        "B's predictions from A's, how often both put the same token first, and the perplexity of each.\n\n"
        "With --layers the values inside the forward passes that have one name in both are compared in the order in "
        "which A computes them, and the first that differs is named: layers for models that run by a plan (GGUF, "
        "safetensors, recognised packages), every op for packages that run op by op. Values that only one of the two "
        "has are counted.\n\n"
        "A text longer than the context (of the smaller model, or --ctx) is cut into windows that begin empty.",
    .options = option_table,
    .n_options = CLI_COUNT(option_table),
    .min_operands = 2,
    .max_operands = 2,
    .args_bytes = sizeof(struct compare_args),
    .run = compare,
};
