/* compare.h: what `tegula compare` measures; compare.c runs the models, compare_report.c prints. */
#ifndef TEGULA_CLI_COMPARE_H
#define TEGULA_CLI_COMPARE_H

#include "io.h"
#include "setup.h"

/* Sums over all rows of logits. */
struct compare_logits {
    size_t n_rows, n_values, n_scored, n_same_top, n_not_finite;
    double max_abs, sum_abs, sum_squares, sum_squares_a;
    size_t max_row; /* of max_abs */
    int32_t max_id;
    double kl_sum, kl_max, nll_a, nll_b;
};

/* One named value of the forward passes. */
struct compare_value {
    char *name;
    size_t width, n_rows_a, n_rows_b; /* that were seen */
    double max_abs, sum_squares, sum_squares_a;
    float *rows; /* A's, of the block that runs: [block rows, width] */
    bool shape_differs;
};

struct compare_values {
    struct compare_value *items; /* in the order in which A computes them, then B's own */
    size_t n, capacity;
    size_t block_rows;
    bool failed; /* memory */
};

struct comparison {
    const char *paths[2];
    const struct teg_model *models[2];
    size_t n_tokens;
    int32_t n_vocab; /* compared */
    struct compare_logits logits;
    struct compare_values *values; /* NULL: not asked for */
    double tolerance;
    double seconds;
};

/* Root mean square of the difference, relative to A's. */
double compare_relative(double sum_squares, double sum_squares_a);
int compare_print(const struct comparison *comparison);
int compare_json(const struct comparison *comparison);

#endif
