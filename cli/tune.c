/* tune.c: `tegula tune`: which chunk size and how many threads prefill a prompt fastest here, measured.
 *
 * Invariant: rounds go over all candidates in turn, so what disturbs the machine disturbs all of them; a candidate that
 * is far behind after two rounds is not run again. The best run of each counts: other programs only ever slow one
 * down. Results of a model never depend on either size, so tuning only changes
 * speed and memory. Not tuned: the KV tile, which is one page of 64 tokens in every session, because sums are cut there
 * and a result must not depend on tuning. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "interrupt.h"
#include "tune.h"
#include "tuned.h"

struct tune_args {
    struct cli_model_args model;
    struct cli_integers chunk, threads;
    struct cli_session_args session; /* its KV type */
    int64_t ctx, budget;
    bool json, apply;
    const char *html;
};

#define ARG(field) offsetof(struct tune_args, field)

enum { rounds_max = 9, candidates_max = 64 };
#define FAR_BEHIND 1.25 /* times the best, by the better of two runs: not run again */
#define AS_FAST 1.02    /* times the best: counts as equal, the smaller scratch wins */

static const struct cli_option option_table[] = {
    {.name = "chunk",
     .type = CLI_INTEGERS,
     .offset = ARG(chunk),
     .placeholder = "LIST",
     .min = 1,
     .max = 65536,
     .initial = "64,96,128,192,256,384,512,768,1024",
     .help = "prompt tokens per forward pass to try"},
    {.name = "threads",
     .type = CLI_INTEGERS,
     .offset = ARG(threads),
     .placeholder = "LIST",
     .min = 1,
     .max = 256,
     .help = "numbers of threads to try (default: all CPUs, and half of them)"},
    {.name = "ctx",
     .type = CLI_INTEGER,
     .offset = ARG(ctx),
     .placeholder = "N",
     .min = 1,
     .max = 1 << 24,
     .initial = "2048",
     .help = "length of the prompt to tune for, in tokens"},
    {.name = "budget",
     .type = CLI_INTEGER,
     .offset = ARG(budget),
     .placeholder = "SECONDS",
     .min = 1,
     .max = 86400,
     .initial = "60",
     .help = "time to spend; each candidate runs at least once after a short warm-up"},
    CLI_KV_OPTION(struct tune_args, session),
    CLI_PIN_OPTION(struct tune_args, session),
    {.name = "html",
     .type = CLI_TEXT,
     .offset = ARG(html),
     .placeholder = "FILE",
     .help = "also write a page with plots"},
    {.name = "apply",
     .type = CLI_FLAG,
     .offset = ARG(apply),
     .help = "remember the choice for this model on this machine: later commands use it where --chunk or --threads is "
             "not given"},
    {.name = "json", .type = CLI_FLAG, .offset = ARG(json), .help = "the table and the choice as one JSON document"},
    CLI_MODE_OPTION(struct tune_args, model),
    CLI_PACK_CACHE_OPTION(struct tune_args, model),
    CLI_TOKENIZER_OPTION(struct tune_args, model),
    CLI_PROGRESS_OPTION(struct tune_args, model),
};

struct tune {
    const struct tune_args *args;
    struct bench_table table;
    struct bench_row rows[candidates_max];
    double seconds[candidates_max][rounds_max];
    bool dropped[candidates_max];
    int32_t *ids; /* [ctx] */
    double end;   /* of the budget, by cli_now() */
    size_t n_rounds;
};

static int add_candidates(struct tune *t)
{
    const struct tune_args *a = t->args;
    const int64_t cpus = (int64_t)cli_cpus();
    const int64_t both[2] = {cpus, cpus / 2};
    const size_t n_threads = a->threads.n ? a->threads.n : cpus > 2 ? 2 : 1;
    const int64_t *threads = a->threads.n ? a->threads.data : both;
    if (a->chunk.n * n_threads > candidates_max)
        return cli_usage("too many candidates: tegula tune: expected at most %d, found %zu; shorten the lists",
                         (int)candidates_max, a->chunk.n * n_threads);
    for (size_t i = 0; i < a->chunk.n * n_threads; i++)
        t->rows[t->table.n++] = (struct bench_row){.n_tokens = (size_t)a->ctx,
                                                   .chunk = (size_t)a->chunk.data[i % a->chunk.n],
                                                   .threads = (size_t)threads[i / a->chunk.n],
                                                   .kv = a->session.kv ? a->session.kv : TEG_KV_AUTO,
                                                   .seconds = t->seconds[i]};
    t->table.rows = t->rows;
    return CLI_DONE;
}

static int count_work(struct tune *t)
{
    struct bench_table *table = &t->table;
    for (size_t i = 0; i < table->n; i++) {
        struct bench_row *row = &table->rows[i];
        struct teg_error err = {0};
        struct teg_session_options options;
        size_t m = 0;
        while (m < table->n_machines && table->machines[m].n_threads != row->threads)
            m++;
        row->machine = m;
        if (m < bench_machines_max && m == table->n_machines &&
            teg_machine_measure((uint32_t)row->threads, &table->machines[table->n_machines++], &err) != TEG_OK)
            return cli_fail_library(&err);
        teg_session_options_default(&options);
        options.chunk_tokens = (uint32_t)row->chunk;
        options.kv_type = (enum teg_kv_type)row->kv;
        row->counted = m < bench_machines_max &&
                       teg_session_work(table->model, &options, 0, row->n_tokens, &row->work, &err) == TEG_OK;
    }
    return CLI_DONE;
}

/* Prefills n tokens in a fresh session of the row; *seconds of the library call. */
static int run_candidate(struct tune *t, struct bench_row *row, size_t n, double *seconds)
{
    const struct cli_session_args args = {.chunk = (int64_t)row->chunk,
                                          .ctx = (int64_t)row->n_tokens,
                                          .threads = (int64_t)row->threads,
                                          .kv = t->args->session.kv,
                                          .pin = t->args->session.pin};
    struct teg_session *session = NULL;
    struct teg_prefill_options options;
    struct teg_error err = {0};
    teg_prefill_options_default(&options);
    options.progress = cli_interrupt_progress;
    int code = cli_interrupted() ? cli_interrupt_exit_code() : cli_session_open(t->table.model, &args, &session);
    if (code != CLI_DONE)
        return code;
    const double start = cli_now();
    const enum teg_status status = teg_session_prefill(session, t->ids, n, &options, &err);
    *seconds = cli_now() - start;
    teg_session_memory(session, &row->memory);
    cli_session_close(session);
    return status == TEG_OK ? CLI_DONE : cli_fail_library(&err);
}

static double best_seconds(const struct bench_row *row)
{
    double best = HUGE_VAL;
    for (size_t i = 0; i < row->n_seconds; i++)
        best = row->seconds[i] < best ? row->seconds[i] : best;
    return best;
}

static double best_of_all(const struct tune *t)
{
    double best = HUGE_VAL;
    for (size_t i = 0; i < t->table.n; i++)
        best = fmin(best, best_seconds(&t->rows[i]));
    return best;
}

static void drop_slow(struct tune *t)
{
    const double best = best_of_all(t);
    for (size_t i = 0; i < t->table.n; i++)
        t->dropped[i] |= t->rows[i].n_seconds >= 2 && best_seconds(&t->rows[i]) > FAR_BEHIND * best;
}

/* Round 0 warms up with one chunk each; every later one is measured. */
static int measure(struct tune *t)
{
    struct cli_progress progress = {0};
    double seconds = 0;
    int code = CLI_DONE;
    cli_progress_begin(&progress, (enum cli_progress_when)t->args->model.progress, "tune", "candidates");
    for (size_t round = 0; code == CLI_DONE && round <= rounds_max; round++) {
        for (size_t i = 0; code == CLI_DONE && i < t->table.n; i++) {
            struct bench_row *row = &t->rows[i];
            const size_t warm = row->chunk < row->n_tokens ? row->chunk : row->n_tokens;
            if (t->dropped[i] || (round > 1 && cli_now() > t->end))
                continue;
            code = run_candidate(t, row, round ? row->n_tokens : warm, &seconds);
            if (code == CLI_DONE && round)
                row->seconds[row->n_seconds++] = seconds;
            (void)cli_progress_update(&progress, i + 1, t->table.n);
        }
        t->n_rounds = round;
        if (round)
            drop_slow(t);
        if (round && cli_now() > t->end)
            break;
    }
    cli_progress_end(&progress);
    return code;
}

/* The fastest; of those as fast, the one with the least scratch. */
static size_t choose(struct tune *t, size_t *fastest)
{
    const double best = best_of_all(t);
    size_t chosen = 0;
    while (best_seconds(&t->rows[chosen]) > best)
        chosen++;
    *fastest = chosen;
    for (size_t i = 0; i < t->table.n; i++)
        if (best_seconds(&t->rows[i]) <= AS_FAST * best &&
            t->rows[i].memory.scratch_bytes < t->rows[chosen].memory.scratch_bytes)
            chosen = i;
    return chosen;
}

static void reason_of(struct tune *t, size_t chosen, size_t fastest, char text[512])
{
    const struct bench_figures c = bench_summarize(&t->table, &t->rows[chosen]),
                               f = bench_summarize(&t->table, &t->rows[fastest]);
    if (chosen == fastest)
        snprintf(text, 512,
                 "the fastest: %.1f tokens/s in its best run, first token after %.0f ms of a prompt of %zu tokens",
                 c.max_tps, best_seconds(&t->rows[chosen]) * 1e3, t->rows[chosen].n_tokens);
    else
        snprintf(text, 512,
                 "%.1f tokens/s in its best run, within %.0f %% of the fastest (chunk %zu, %zu thread%s: %.1f), with "
                 "%.1f MB of scratch instead of %.1f",
                 c.max_tps, 100 * (AS_FAST - 1), t->rows[fastest].chunk, t->rows[fastest].threads,
                 t->rows[fastest].threads == 1 ? "" : "s", f.max_tps,
                 (double)t->rows[chosen].memory.scratch_bytes / 1e6,
                 (double)t->rows[fastest].memory.scratch_bytes / 1e6);
}

static int print_table(struct tune *t, struct cli_output *output, size_t chosen, const char *reason)
{
    (void)cli_output_printf(
        output,
        "%s: prompt of %zu tokens, %zu rounds; the KV tile is a page of %d tokens in every session, "
        "so that results never depend on tuning\n\n"
        "| chunk | KV tile | threads | tokens/s median | min | max | first token ms | utilization | moved "
        "KB/token | of memory rate | scratch MB | |\n"
        "|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|\n",
        t->table.model_path, t->rows[0].n_tokens, t->n_rounds, (int)tune_kv_tile);
    for (size_t i = 0; i < t->table.n; i++) {
        struct bench_row *row = &t->rows[i];
        const struct bench_figures f = bench_summarize(&t->table, row);
        (void)cli_output_printf(
            output, "| %zu | %d | %zu | %.1f | %.1f | %.1f | %.1f | %.0f %% | %.0f | %.0f %% | %.2f | %s |\n",
            row->chunk, (int)tune_kv_tile, row->threads, f.median_tps, f.min_tps, f.max_tps, f.median_seconds * 1e3,
            100 * f.peak_share, f.gb_moved * 1e6 / (double)row->n_tokens, 100 * f.bandwidth_share,
            (double)row->memory.scratch_bytes / 1e6,
            i == chosen     ? "chosen"
            : t->dropped[i] ? "far behind"
                            : "");
    }
    (void)cli_output_printf(output, "\nchunk %zu, %zu thread%s: %s\n", t->rows[chosen].chunk, t->rows[chosen].threads,
                            t->rows[chosen].threads == 1 ? "" : "s", reason);
    return output->failure;
}

static int print_json(struct tune *t, struct cli_output *output, size_t chosen, const char *reason)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < t->table.n; i++) {
        struct bench_row *row = &t->rows[i];
        const struct bench_figures f = bench_summarize(&t->table, row);
        json_array_append_new(
            rows,
            json_pack("{s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:b}", "chunk",
                      (json_int_t)row->chunk, "kv_tile", (json_int_t)tune_kv_tile, "threads", (json_int_t)row->threads,
                      "median_tokens_per_second", cli_json_real(f.median_tps), "min_tokens_per_second",
                      cli_json_real(f.min_tps), "max_tokens_per_second", cli_json_real(f.max_tps), "first_token_ms",
                      cli_json_real(f.median_seconds * 1e3), "peak_share", cli_json_real(f.peak_share),
                      "bandwidth_share", cli_json_real(f.bandwidth_share), "bytes_moved",
                      cli_json_u64(row->work.weight_bytes + row->work.kv_bytes), "scratch_bytes",
                      cli_json_u64(row->memory.scratch_bytes), "reps", (json_int_t)row->n_seconds, "dropped",
                      (int)t->dropped[i]));
    }
    return cli_json_write(output, json_pack("{s:I, s:I, s:o, s:{s:I, s:I, s:s}, s:b}", "tokens",
                                            (json_int_t)t->rows[0].n_tokens, "kv_tile", (json_int_t)tune_kv_tile,
                                            "rows", rows, "choice", "chunk", (json_int_t)t->rows[chosen].chunk,
                                            "threads", (json_int_t)t->rows[chosen].threads, "reason", reason, "applied",
                                            (int)t->args->apply));
}

static int write_html(struct tune *t, size_t chosen, const char *reason)
{
    static struct cli_output page;
    int code = cli_output_open(&page, t->args->html);
    if (code != CLI_DONE)
        return code;
    const struct tune_result result = {&t->table, t->dropped, chosen, t->n_rounds, reason};
    code = tune_print_html(&page, &result);
    const int closed = cli_output_close(&page, code == CLI_DONE);
    return code != CLI_DONE ? code : closed;
}

static int report(struct tune *t)
{
    static struct cli_output output;
    size_t fastest;
    char reason[512];
    const size_t chosen = choose(t, &fastest);
    reason_of(t, chosen, fastest, reason);
    int code = cli_output_open(&output, NULL);
    if (code == CLI_DONE)
        code = (t->args->json ? print_json : print_table)(t, &output, chosen, reason);
    const int closed = cli_output_close(&output, code == CLI_DONE);
    code = code != CLI_DONE ? code : closed;
    if (code == CLI_DONE && t->args->html)
        code = write_html(t, chosen, reason);
    const struct cli_tuned tuned = {t->args->ctx, (int64_t)t->rows[chosen].chunk, (int64_t)t->rows[chosen].threads};
    return code == CLI_DONE && t->args->apply ? cli_tuned_save(t->table.model, &tuned) : code;
}

static int tune_model(struct tune *t)
{
    const int64_t n_vocab = teg_model_info(t->table.model)->vocab_tokens;
    t->ids = malloc((size_t)t->args->ctx * sizeof(*t->ids));
    if (!t->ids || n_vocab <= 0)
        return cli_fail_memory();
    for (int64_t i = 0; i < t->args->ctx; i++)
        t->ids[i] = (int32_t)((uint64_t)(i + 1) * 2654435761u % (uint64_t)n_vocab);
    int code = count_work(t);
    t->end = cli_now() + (double)t->args->budget;
    if (code == CLI_DONE)
        code = measure(t);
    return code == CLI_DONE ? report(t) : code;
}

static int tune_command(const struct cli_line *line, const void *ptr)
{
    struct tune *t = calloc(1, sizeof(*t));
    struct teg_model *model = NULL;
    if (!t)
        return cli_fail_memory();
    t->args = ptr;
    t->table.model_path = line->operands[0];
    int code = add_candidates(t);
    if (code == CLI_DONE)
        code = cli_model_open(line->operands[0], &t->args->model, false, &model);
    t->table.model = model;
    if (code == CLI_DONE)
        code = tune_model(t);
    teg_model_free(model);
    free(t->ids);
    free(t);
    return code;
}

const struct cli_command cli_command_tune = {
    .name = "tune",
    .operands = "MODEL",
    .summary = "find the fastest chunk size and number of threads",
    .details =
        "Prefills one prompt with every chunk size and number of threads, round by round, until the budget is spent, "
        "and picks the fastest; among those within 2 % the one with the least scratch memory. The table has the rate, "
        "the time to the first token, the share of the machine's peak (utilization), the bytes of weights, keys and "
        "values moved for each token, and scratch memory. Neither size changes results. With --apply the choice is "
        "kept in the user's cache folder and used by later commands on this machine.",
    .options = option_table,
    .n_options = CLI_COUNT(option_table),
    .min_operands = 1,
    .max_operands = 1,
    .args_bytes = sizeof(struct tune_args),
    .run = tune_command,
};
