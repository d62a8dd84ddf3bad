/* run/cut.c: how a step is cut into slices: as evenly as the threads need, no finer than the kernels like.
 *
 * A stage ends when its last slice does, so what counts is how many slices the busiest thread gets: 18 panels on 4
 * threads are 5 rounds, not 4.5. Panels cannot be cut, but rows can, at the price of unpacking each panel once more.
 * Of the cuts that are within 2 % of the best the finest is taken: then a thread that was interrupted leaves work to
 * the others. How a step is cut never changes a result; kernels promise it. Not taken: a cut for each stage as a whole,
 * which would save at most one slice of the smallest step in it. */
#include "run/cut.h"

#include "base/check.h"
#include "kernel/kernels.h"
#include "kernel/qgemm.h"

enum {
    UNPACK_ROWS = 10, /* unpacking a panel takes as long as this many rows of its product */
    TILE_ROWS = 6,    /* of the widest kernel */
    LEAST_ROWS = 48,  /* fewer rows are not cut off */
    FEW_ROWS = 16,    /* fewer than these: bound by reading weights, in long runs */
    LANE_ROWS = 96,   /* a lane has no fewer, */
    LANE_WIDTH = 12,  /* and one for each so many columns of the model */
};

static size_t divide_up(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

struct teg_linear_cut teg_cut_linear(size_t n, size_t n_rows, size_t n_threads)
{
    static const size_t for_each_thread[] = {8, 6, 5, 4, 3, 2, 1};
    struct teg_linear_cut best = {0};
    size_t best_span = SIZE_MAX;
    for (size_t parts = 1; parts <= 4; parts *= 2) {
        const size_t rows = teg_min(divide_up(divide_up(n_rows, parts), TILE_ROWS) * TILE_ROWS, n_rows);
        if (parts > 1 && rows < LEAST_ROWS)
            break;
        for (size_t i = n_rows < FEW_ROWS ? 3 : 0; i < sizeof for_each_thread / sizeof *for_each_thread; i++) {
            const size_t panels = divide_up(divide_up(n, for_each_thread[i] * n_threads), TEG_QGEMM_COLUMNS);
            struct teg_linear_cut cut = {.columns = panels * TEG_QGEMM_COLUMNS, .rows = rows};
            cut.n_column_slices = divide_up(n, cut.columns);
            cut.n_slices = cut.n_column_slices * divide_up(n_rows, rows);
            /* Of the busiest thread, in panels and rows. */
            const size_t span = divide_up(cut.n_slices, n_threads) * panels * (rows + UNPACK_ROWS);
            if (best_span == SIZE_MAX || span + span / 50 < best_span) {
                best_span = span;
                best = cut;
            }
        }
    }
    return best;
}

/* A lane unpacks every panel for itself: UNPACK_ROWS of its rows. What it saves is that rows do not wander from cache
 * to cache, whose share of the time falls with the width of the model: 4 to 8 % at 576 and 640 columns, nothing at
 * 2,048 (128 rows, two threads). */
size_t teg_cut_lanes(size_t width, size_t n_rows, size_t n_threads)
{
    const size_t rows = divide_up(n_rows, n_threads);
    return rows >= LANE_ROWS && rows * LANE_WIDTH >= width ? rows : n_rows;
}

/* While there are too few slices for the threads, ranges of keys are slices, or else groups are cut: then a page is
 * read twice, which costs less than waiting. */
struct teg_attention_cut teg_cut_attention(size_t n_heads, size_t n_kv_heads, size_t n_rows, size_t n_ranges,
                                           size_t n_threads)
{
    struct teg_attention_cut c = {.group = n_heads / n_kv_heads, .n_ranges = 1};
    c.group_part = teg_min(c.group, TEG_ATTENTION_ROWS);
    c.tokens = teg_max(1, TEG_ATTENTION_ROWS / c.group_part);
    c.n_blocks = divide_up(n_rows, c.tokens);
    size_t n_slices = c.n_blocks * n_kv_heads;
    if (n_threads > 1 && n_slices < 4 * n_threads)
        c.n_ranges = teg_max(1, teg_min(n_ranges, TEG_CUT_STATES / n_rows));
    n_slices *= c.n_ranges;
    if (n_threads > 1 && n_slices < 2 * n_threads)
        c.group_part = teg_max(1, c.group_part * n_slices / (2 * n_threads));
    c.n_parts = divide_up(c.group, c.group_part);
    c.group_part = divide_up(c.group, c.n_parts);
    c.n_units = c.n_blocks * n_kv_heads * c.n_parts;
    return c;
}
