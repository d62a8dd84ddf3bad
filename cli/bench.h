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
};

struct bench_table {
    struct bench_row *rows;
    size_t n, capacity;
    size_t reps;
    const char *model_path;
    const struct teg_model *model;
};

enum bench_format { BENCH_MD, BENCH_CSV, BENCH_JSON };

int bench_print(struct cli_output *output, struct bench_table *table, enum bench_format format);

#endif
