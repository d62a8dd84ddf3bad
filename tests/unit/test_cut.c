/* How steps are cut: every row and column in exactly one slice, along the lines that kernels allow, and evenly enough
 * that no thread has much more than its share. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "kernel/kernels.h"
#include "kernel/qgemm.h"
#include "run/cut.h"

static const size_t widths[] = {1, 31, 32, 33, 192, 256, 576, 640, 1000, 1536, 2048, 5632, 49152, 262144};
static const size_t rows[] = {1, 2, 15, 16, 31, 47, 48, 96, 97, 255, 256, 1024};
static const size_t threads[] = {1, 2, 3, 4, 6, 8, 12, 16, 64, 256};

#define FOR_EACH(i, list) for (size_t i = 0; i < sizeof(list) / sizeof *(list); i++)

static void test_covers(void **state)
{
    (void)state;
    FOR_EACH(w, widths)
    FOR_EACH(r, rows)
    FOR_EACH(t, threads)
    {
        const struct teg_linear_cut c = teg_cut_linear(widths[w], rows[r], threads[t]);
        assert_true(c.columns > 0 && c.columns % TEG_QGEMM_COLUMNS == 0 && c.rows > 0 && c.rows <= rows[r]);
        assert_true((c.n_column_slices - 1) * c.columns < widths[w] && c.n_column_slices * c.columns >= widths[w]);
        assert_int_equal(c.n_slices % c.n_column_slices, 0);
        const size_t n_row_slices = c.n_slices / c.n_column_slices;
        assert_true((n_row_slices - 1) * c.rows < rows[r] && n_row_slices * c.rows >= rows[r]);
    }
}

/* What the busiest thread computes, over its share, in panels of 32 columns that cannot be cut. */
static double excess(size_t width, size_t n_rows, size_t n_threads)
{
    const struct teg_linear_cut c = teg_cut_linear(width, n_rows, n_threads);
    const size_t rounds = (c.n_slices + n_threads - 1) / n_threads, panels = c.columns / TEG_QGEMM_COLUMNS;
    const double share = (double)((width + TEG_QGEMM_COLUMNS - 1) / TEG_QGEMM_COLUMNS) * (double)n_rows;
    return (double)(rounds * panels * c.rows) * (double)n_threads / share;
}

static void test_is_even(void **state)
{
    (void)state;
    static const size_t products[] = {576, 640, 1024, 1536, 2048, 5632};
    FOR_EACH(w, products)
    FOR_EACH(t, threads)
    {
        if (threads[t] <= 8 && excess(products[w], 256, threads[t]) > 1.13)
            fail_msg("%zu columns, 256 rows, %zu threads: %.3f times its share", products[w], threads[t],
                     excess(products[w], 256, threads[t]));
    }
    assert_true(excess(640, 256, 2) < 1.01 && excess(576, 256, 4) < 1.04);
    assert_true(teg_cut_linear(576, 256, 4).rows < 256);           /* 18 panels on 4 threads: rows are cut */
    assert_int_equal(teg_cut_linear(576, 256, 2).rows, 256);       /* no need to */
    assert_int_equal(teg_cut_linear(49152, 1, 2).n_slices % 2, 0); /* one token: even */
    assert_true(teg_cut_linear(49152, 1, 2).columns >= 4 * TEG_QGEMM_COLUMNS); /* and in long runs */
}

/* No thread without a lane, none with many more rows than others; few rows and wide models have none. */
static void test_lanes(void **state)
{
    (void)state;
    FOR_EACH(r, rows)
    FOR_EACH(t, threads)
    {
        const size_t n = teg_cut_lanes(576, rows[r], threads[t]);
        assert_true(n > 0 && n <= rows[r]);
        if (n < rows[r])
            assert_true(n >= 96 && n * threads[t] >= rows[r] && (n - 1) * threads[t] < rows[r]);
    }
    assert_int_equal(teg_cut_lanes(576, 256, 2), 128);
    assert_int_equal(teg_cut_lanes(576, 256, 1), 256);
    assert_int_equal(teg_cut_lanes(576, 256, 4), 256);
    assert_int_equal(teg_cut_lanes(2048, 256, 2), 256);
    assert_int_equal(teg_cut_lanes(2048, 512, 2), 256);
    assert_int_equal(teg_cut_lanes(576, 193, 2), 97);
}

static void test_attention(void **state)
{
    (void)state;
    static const size_t heads[][2] = {{9, 3}, {32, 4}, {1, 1}, {8, 8}, {71, 1}, {256, 1}, {4, 1}};
    static const size_t ranges[] = {1, 2, 5, 100};
    FOR_EACH(h, heads)
    FOR_EACH(r, rows)
    FOR_EACH(t, threads)
    FOR_EACH(k, ranges)
    {
        const struct teg_attention_cut c = teg_cut_attention(heads[h][0], heads[h][1], rows[r], ranges[k], threads[t]);
        assert_int_equal(c.group, heads[h][0] / heads[h][1]);
        assert_true(c.group_part >= 1 && c.group_part * c.tokens <= TEG_ATTENTION_ROWS);
        assert_true((c.n_parts - 1) * c.group_part < c.group && c.n_parts * c.group_part >= c.group);
        assert_true((c.n_blocks - 1) * c.tokens < rows[r] && c.n_blocks * c.tokens >= rows[r]);
        assert_int_equal(c.n_units, c.n_blocks * heads[h][1] * c.n_parts);
        assert_true(c.n_ranges >= 1 && c.n_ranges <= ranges[k]);
        assert_true(c.n_ranges == 1 || (c.n_ranges * rows[r] <= TEG_CUT_STATES && threads[t] > 1));
    }
    const struct teg_attention_cut one = teg_cut_attention(9, 3, 1, 1, 2), far = teg_cut_attention(9, 3, 1, 5, 2);
    assert_true(one.n_parts * 3 >= 4); /* a token alone keeps both threads busy */
    assert_true(far.n_ranges == 5 && far.n_parts == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_covers), cmocka_unit_test(test_is_even),
                                       cmocka_unit_test(test_lanes), cmocka_unit_test(test_attention)};
    return cmocka_run_group_tests_name("cut", tests, NULL, NULL);
}
