/* bench.h: rows of measurements and how they are printed; bench.c measures, bench_report.c prints. */
#ifndef TEGULA_CLI_BENCH_H
#define TEGULA_CLI_BENCH_H

#include "io.h"
#include "setup.h"

/* One combination: n_tokens of prefill or decode, at a depth, in a session of a group. */
struct bench_row {
    bool decode;
    size_t group; /* threads x KV type x chunk: rows of one group share a session */
    size_t n_tokens, depth, chunk, threads;
    int kv;
    double *seconds; /* [reps] */
    size_t n_seconds;
    struct teg_memory memory; /* after the run */
    bool counted;             /* what follows is known */
    struct teg_work work;     /* of one repetition */
    size_t machine;           /* which of the table's machines: by threads */
};

enum { bench_machines_max = 16 };

struct bench_table {
    struct bench_row *rows;
    size_t n, capacity;
    size_t reps;
    const char *model_path;
    const struct teg_model *model;
    struct teg_machine machines[bench_machines_max]; /* one for each number of threads */
    size_t n_machines;
    uint64_t peak_rss_bytes; /* after the rows */
};

/* What a row's repetitions come to; sorts its seconds. */
struct bench_figures {
    double median_tps, min_tps, max_tps, chunk_ms, median_seconds;
    double peak_share;      /* time at the machine's rates of multiplying, over time taken; 0: not known */
    double bandwidth_share; /* the same of reading memory */
    double gb_moved;        /* bytes of one repetition */
};
struct bench_figures bench_summarize(const struct bench_table *table, struct bench_row *row);
const char *bench_kv_name(const struct bench_row *row);
const char *bench_cpu_name(char name[256]);

enum bench_format { BENCH_MD, BENCH_CSV, BENCH_JSON, BENCH_HTML };

/* bench_html.c: one page that needs nothing else. */
int bench_print_html(struct cli_output *output, struct bench_table *table);
/* Its parts that the page of `tune` has too: all up to the title, model and machine; the machine's peaks. */
void bench_html_head(struct cli_output *output, const struct bench_table *table, const char *title);
void bench_html_machines(struct cli_output *output, const struct bench_table *table);
int bench_print_machines(struct cli_output *output, const struct teg_machine *machines, size_t n, bool json);

int bench_print(struct cli_output *output, struct bench_table *table, enum bench_format format);

#endif
