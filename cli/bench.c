/* bench.c: `tegula bench`: prefill and decode rates, measured apart.
 *
 * Invariant: repetitions go round-robin over all combinations, so that a machine that warms up or is disturbed slows
 * all of them alike; each combination is run once before, unmeasured. The clock runs around the library call only:
 * opening, rewinding and filling up to the depth are outside. Combinations that differ only in test, length and depth
 * share a session, rewound in between. Decode feeds fixed ids instead of sampling, so its rate is that of the model.
 * The alternative, all repetitions of one combination in a row, measures the order of the table too. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#include "interrupt.h"

struct bench_args {
    struct cli_model_args model;
    struct cli_integers pp, tg, depth, chunk, threads, kv;
    int64_t reps;
    int format;
    bool json, machine;
    struct cli_session_args session; /* pin */
    const char *out;
};

#define ARG(field) offsetof(struct bench_args, field)
#define LIST(option, field, from, to, start, text)                                                                     \
    {                                                                                                                  \
        .name = option, .type = CLI_INTEGERS, .offset = ARG(field), .placeholder = "LIST", .min = from, .max = to,     \
        .initial = start, .help = text                                                                                 \
    }

/* Sessions are all open at once; each may own as many threads as there are CPUs. */
enum { groups_max = 64, rows_max = 1024 };

static const struct cli_choice formats[] = {
    {"md", BENCH_MD, NULL},     {"csv", BENCH_CSV, NULL}, {"json", BENCH_JSON, NULL},
    {"html", BENCH_HTML, NULL}, {NULL, 0, NULL},
};

static const struct cli_choice kv_types[] = {
    {"auto", TEG_KV_AUTO, NULL}, {"f32", TEG_KV_F32, NULL},
    {"f16", TEG_KV_F16, NULL},   {"bf16", TEG_KV_BF16, NULL},
    {"i16", TEG_KV_I16, NULL},   {"k16v8", TEG_KV_K16V8, NULL},
    {"i8", TEG_KV_I8, NULL},     {"q8", TEG_KV_Q8, NULL},
    {"q4", TEG_KV_Q4, NULL},     {NULL, 0, NULL},
};

static const struct cli_option option_table[] = {
    LIST("pp", pp, 0, 1 << 24, "512", "prefill: prompt lengths in tokens; 0: no prefill test"),
    LIST("tg", tg, 0, 1 << 24, "128", "decode: numbers of tokens, one at a time; 0: no decode test"),
    LIST("depth", depth, 0, 1 << 24, "0", "tokens in the session before the measured ones"),
    LIST("chunk", chunk, 1, 65536, "256", "prompt tokens per forward pass; decode rows do not depend on it"),
    LIST("threads", threads, 1, 256, NULL, CLI_THREADS_HELP),
    CLI_PIN_OPTION(struct bench_args, session),
    {.name = "kv",
     .type = CLI_CHOICES,
     .offset = ARG(kv),
     .placeholder = "LIST",
     .initial = "auto",
     .choices = kv_types,
     .help = "element types of the KV cache, of"},
    {.name = "reps",
     .type = CLI_INTEGER,
     .offset = ARG(reps),
     .placeholder = "N",
     .initial = "5",
     .min = 1,
     .max = 1000,
     .help = "measured repetitions, after one that is not measured"},
    {.name = "format",
     .type = CLI_CHOICE,
     .offset = ARG(format),
     .initial = "md",
     .choices = formats,
     .help = "md: a table for people; json: rows and the machine; html: one page with plots"},
    {.name = "machine",
     .type = CLI_FLAG,
     .offset = ARG(machine),
     .help = "only measure the machine: multiply-adds and memory; takes no MODEL"},
    {.name = "output",
     .letter = 'o',
     .type = CLI_TEXT,
     .offset = ARG(out),
     .placeholder = "FILE",
     .help = "where the result goes (default: standard output)"},
    {.name = "json", .type = CLI_FLAG, .offset = ARG(json), .help = "the same as --format json"},
    CLI_MODE_OPTION(struct bench_args, model),
    CLI_PACK_CACHE_OPTION(struct bench_args, model),
    CLI_TARGET_OPTION(struct bench_args, model.target),
    CLI_TOKENIZER_OPTION(struct bench_args, model),
    CLI_PROGRESS_OPTION(struct bench_args, model),
};

/* ---- the table of combinations ---- */

struct bench {
    const struct bench_args *args;
    struct bench_table table;
    struct teg_session *sessions[groups_max];
    size_t n_groups, n_longest; /* tokens of the longest row, depth included */
    int32_t *ids;               /* [n_longest] the fixed text: the prefix of it is what a session holds */
    struct cli_progress progress;
    size_t n_done;
};

static int add_row(struct bench *bench, struct bench_row row)
{
    struct bench_table *table = &bench->table;
    if (row.n_tokens == 0)
        return CLI_DONE;
    if (table->n == rows_max)
        return cli_usage("too many combinations: tegula bench: expected at most %d rows, found more; shorten the lists",
                         (int)rows_max);
    struct bench_row *moved = realloc(table->rows, (table->n + 1) * sizeof(*moved));
    if (!moved)
        return cli_fail_memory();
    table->rows = moved;
    row.seconds = calloc(table->reps, sizeof(*row.seconds));
    if (!row.seconds)
        return cli_fail_memory();
    table->rows[table->n++] = row;
    if (row.depth + row.n_tokens > bench->n_longest)
        bench->n_longest = row.depth + row.n_tokens;
    return CLI_DONE;
}

/* The rows of one group: every depth with every prefill length, and with every decode length where the chunk is the
 * first one (decode runs one token at a time, whatever the chunk). */
static int add_group(struct bench *bench, const struct bench_row *base, bool with_decode)
{
    const struct bench_args *a = bench->args;
    int code = CLI_DONE;
    for (size_t d = 0; code == CLI_DONE && d < a->depth.n; d++) {
        struct bench_row row = *base;
        row.depth = (size_t)a->depth.data[d];
        for (size_t i = 0; code == CLI_DONE && i < a->pp.n; i++) {
            row.n_tokens = (size_t)a->pp.data[i];
            code = add_row(bench, row);
        }
        row.decode = true;
        for (size_t i = 0; code == CLI_DONE && with_decode && i < a->tg.n; i++) {
            row.n_tokens = (size_t)a->tg.data[i];
            code = add_row(bench, row);
        }
    }
    return code;
}

static int build_table(struct bench *bench)
{
    const struct bench_args *a = bench->args;
    const int64_t all_cpus = (int64_t)cli_cpus();
    const struct cli_integers threads =
        a->threads.n > 0 ? a->threads : (struct cli_integers){.data = &(int64_t){all_cpus}, .n = 1};
    bench->n_groups = threads.n * a->kv.n * a->chunk.n;
    if (bench->n_groups > groups_max)
        return cli_usage("too many combinations: tegula bench: expected at most %d of threads, KV types and chunks, "
                         "found %zu; shorten the lists",
                         (int)groups_max, bench->n_groups);
    int code = CLI_DONE;
    for (size_t g = 0; code == CLI_DONE && g < bench->n_groups; g++) {
        const struct bench_row base = {
            .group = g,
            .chunk = (size_t)a->chunk.data[g % a->chunk.n],
            .kv = (int)a->kv.data[g / a->chunk.n % a->kv.n],
            .threads = (size_t)threads.data[g / a->chunk.n / a->kv.n],
        };
        code = add_group(bench, &base, g % a->chunk.n == 0);
    }
    if (code == CLI_DONE && bench->table.n == 0)
        return cli_usage("nothing to measure: tegula bench: expected a length in --pp or --tg, found only 0; give one");
    return code;
}

/* ---- measuring ---- */

static int open_session(struct bench *bench, const struct bench_row *row)
{
    const struct cli_session_args args = {
        .chunk = (int64_t)row->chunk,
        .ctx = (int64_t)bench->n_longest,
        .threads = (int64_t)row->threads,
        .kv = row->kv,
        .pin = bench->args->session.pin,
    };
    return bench->sessions[row->group] ? CLI_DONE
                                       : cli_session_open(bench->table.model, &args, &bench->sessions[row->group]);
}

/* Makes the session hold exactly the first `depth` ids. */
static int set_depth(struct bench *bench, struct teg_session *session, size_t depth)
{
    struct teg_error err = {0};
    struct teg_prefill_options options;
    teg_prefill_options_default(&options);
    options.progress = cli_interrupt_progress;
    const size_t length = teg_session_length(session);
    if (length > depth && teg_session_rewind(session, depth, &err) != TEG_OK)
        return cli_fail_library(&err);
    if (length < depth && teg_session_prefill(session, bench->ids + length, depth - length, &options, &err) != TEG_OK)
        return cli_fail_library(&err);
    return CLI_DONE;
}

/* One run of a row. */
static int run_row(struct bench *bench, struct bench_row *row, double *seconds)
{
    struct teg_session *session = bench->sessions[row->group];
    struct teg_error err = {0};
    struct teg_prefill_options options;
    teg_prefill_options_default(&options);
    options.progress = cli_interrupt_progress;
    cli_interrupt_watch(session);
    const int code = cli_interrupted() ? cli_interrupt_exit_code() : set_depth(bench, session, row->depth);
    if (code != CLI_DONE)
        return code;
    const int32_t *ids = bench->ids + row->depth;
    enum teg_status status = TEG_OK;
    const double start = cli_now();
    if (!row->decode)
        status = teg_session_prefill(session, ids, row->n_tokens, &options, &err);
    for (size_t i = 0; row->decode && status == TEG_OK && i < row->n_tokens; i++)
        status = teg_session_decode(session, ids[i], &err);
    *seconds = cli_now() - start;
    teg_session_memory(session, &row->memory);
    return status == TEG_OK ? CLI_DONE : cli_fail_library(&err);
}

/* Round 0 is the warm-up. */
static int measure(struct bench *bench)
{
    struct bench_table *table = &bench->table;
    int code = CLI_DONE;
    for (size_t i = 0; code == CLI_DONE && i < table->n; i++)
        code = open_session(bench, &table->rows[i]);
    const size_t n_total = table->n * (table->reps + 1);
    cli_progress_begin(&bench->progress, (enum cli_progress_when)bench->args->model.progress, "bench", "runs");
    for (size_t round = 0; code == CLI_DONE && round <= table->reps; round++) {
        for (size_t i = 0; code == CLI_DONE && i < table->n; i++) {
            struct bench_row *row = &table->rows[i];
            double seconds = 0;
            code = run_row(bench, row, &seconds);
            if (code == CLI_DONE && round > 0)
                row->seconds[row->n_seconds++] = seconds;
            (void)cli_progress_update(&bench->progress, ++bench->n_done, n_total);
        }
    }
    cli_progress_end(&bench->progress);
    for (size_t g = 0; g < bench->n_groups; g++)
        cli_session_close(bench->sessions[g]);
    return code;
}

/* Ids that wander through the vocabulary: the text is nonsense, but embedding rows are not all the same. */
static int make_ids(struct bench *bench)
{
    const int64_t n_vocab = teg_model_info(bench->table.model)->vocab_tokens;
    bench->ids = malloc((bench->n_longest + 1) * sizeof(*bench->ids));
    if (!bench->ids || n_vocab <= 0)
        return cli_fail_memory();
    uint32_t state = 12345;
    for (size_t i = 0; i < bench->n_longest; i++) {
        state = state * 1664525u + 1013904223u; /* the usual linear congruential constants */
        bench->ids[i] = (int32_t)((state >> 8) % (uint64_t)n_vocab);
    }
    return CLI_DONE;
}

/* The machine's peaks with each number of threads that rows have, and what each row costs. */
static int measure_machines(struct bench *bench)
{
    struct bench_table *table = &bench->table;
    for (size_t i = 0; i < table->n; i++) {
        struct bench_row *row = &table->rows[i];
        struct teg_error err = {0};
        size_t m = 0;
        while (m < table->n_machines && table->machines[m].n_threads != row->threads)
            m++;
        row->machine = m;
        if (m == bench_machines_max)
            continue; /* its shares are not known */
        if (m == table->n_machines &&
            teg_machine_measure((uint32_t)row->threads, &table->machines[table->n_machines++], &err) != TEG_OK)
            return cli_fail_library(&err);
        struct teg_session_options options;
        teg_session_options_default(&options);
        options.chunk_tokens = (uint32_t)row->chunk;
        options.kv_type = (enum teg_kv_type)row->kv;
        struct teg_work one;
        const size_t n = row->decode ? row->n_tokens : 1;
        row->counted = true;
        for (size_t k = 0; row->counted && k < n; k++) {
            /* A decoded token is a pass of its own. */
            const size_t tokens = row->decode ? 1 : row->n_tokens;
            row->counted = teg_session_work(bench->table.model, &options, row->depth + k, tokens, &one, &err) == TEG_OK;
            row->work.int8_macs += one.int8_macs;
            row->work.float_macs += one.float_macs;
            row->work.attention_macs += one.attention_macs;
            row->work.weight_bytes += one.weight_bytes;
            row->work.kv_bytes += one.kv_bytes;
        }
    }
    return CLI_DONE;
}

static int print_machines(const struct bench_args *args)
{
    static struct cli_output output;
    struct teg_machine machines[bench_machines_max];
    const size_t n = args->threads.n ? args->threads.n : 1;
    struct teg_error err = {0};
    if (n > bench_machines_max)
        return cli_usage("too many numbers of threads: tegula bench --machine: expected at most %d, found %zu; shorten "
                         "the list",
                         (int)bench_machines_max, n);
    for (size_t i = 0; i < n; i++)
        if (teg_machine_measure(args->threads.n ? (uint32_t)args->threads.data[i] : 0, &machines[i], &err) != TEG_OK)
            return cli_fail_library(&err);
    int code = cli_output_open(&output, args->out);
    if (code != CLI_DONE)
        return code;
    code = bench_print_machines(&output, machines, n, args->json || args->format == BENCH_JSON);
    const int closed = cli_output_close(&output, code == CLI_DONE);
    return code != CLI_DONE ? code : closed;
}

static int measure_and_print(struct bench *bench, struct cli_output *output)
{
    const struct bench_args *args = bench->args;
    struct teg_model *model = NULL;
    int code = cli_model_open(bench->table.model_path, &args->model, false, &model);
    bench->table.model = model;
    if (code == CLI_DONE)
        code = make_ids(bench);
    if (code == CLI_DONE)
        code = measure(bench);
    bench->table.peak_rss_bytes = cli_peak_rss_bytes(); /* before the buffer that measures the machine */
    if (code == CLI_DONE)
        code = measure_machines(bench);
    if (code == CLI_DONE)
        code = bench_print(output, &bench->table, args->json ? BENCH_JSON : (enum bench_format)args->format);
    teg_model_free(model);
    return code;
}

static int bench_command(const struct cli_line *line, const void *ptr)
{
    const struct bench_args *args = ptr;
    static struct cli_output output;
    struct bench bench = {.args = args};
    bench.table.reps = (size_t)args->reps;
    bench.table.model_path = line->operands[0];
    if (args->json && args->format != BENCH_JSON && cli_option_given(line, "format"))
        return cli_usage("bad options: --json and --format: expected one format, found two; leave one out");
    if (args->machine != (line->n_operands == 0))
        return cli_usage(args->machine
                             ? "too many operands: tegula bench --machine: expected no MODEL, found one; "
                               "leave it out"
                             : "missing operand: tegula bench: expected MODEL, found nothing; name one, or give "
                               "--machine");
    if (args->machine)
        return print_machines(args);
    int code = build_table(&bench);
    if (code == CLI_DONE)
        code = cli_output_open(&output, args->out);
    if (code == CLI_DONE) {
        code = measure_and_print(&bench, &output);
        const int closed = cli_output_close(&output, code == CLI_DONE);
        code = code != CLI_DONE ? code : closed;
    }
    for (size_t i = 0; i < bench.table.n; i++)
        free(bench.table.rows[i].seconds);
    free(bench.table.rows);
    free(bench.ids);
    return code;
}

const struct cli_command cli_command_bench = {
    .name = "bench",
    .operands = "[MODEL]",
    .summary = "measure prefill and decode rates",
    .details =
        "Measures prefill (pp) and decode (tg) apart, one row for each combination of the lists: median, lowest and "
        "highest tokens/s, milliseconds per chunk (per token for decode) and memory. Repetitions are interleaved over "
        "the rows. Decode feeds fixed ids; sampling is not part of it. Decode rows are made for the first --chunk "
        "only, because decode does not depend on it.\n\n"
        "A JSON document has rows, model and machine, and pp_tps or tg_tps (the median) where there is exactly one "
        "such row. After the rows the machine is measured with as many threads (--machine: only that): multiply-adds "
        "a "
        "second of each instruction that kernels use, and reading memory. A row's share of the peak is the time its "
        "multiply-adds would take at these rates, attention at that of fp32, over the time taken; bytes moved are each "
        "weight and each visible key and value once a chunk.",
    .options = option_table,
    .n_options = CLI_COUNT(option_table),
    .min_operands = 0,
    .max_operands = 1,
    .args_bytes = sizeof(struct bench_args),
    .run = bench_command,
};
