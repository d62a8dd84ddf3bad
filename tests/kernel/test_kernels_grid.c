/* tests/kernel/test_kernels_grid.c: kernel/grid.h: against double precision with its bounds, guard pages, NaN, and the
 * same bits wherever an element stands in a tile and however K is cut. */
#include "kernel_test.h"

#include "kernel/grid.h"

static const size_t sizes[] = {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 23, 47, 48, 49, 97};
#define N_SIZES (sizeof sizes / sizeof *sizes)

/* Rows of n floats, `stride` apart; no padding behind the last. */
static float *matrix(size_t rows, size_t n, size_t stride, enum edge edge)
{
    const size_t floats = rows ? (rows - 1) * stride + n : 0;
    float *const p = guarded_floats(floats, edge);
    for (size_t r = 0; r < rows; r++)
        fill_random(p + r * stride, n);
    return p;
}

static void check_gemm(const struct teg_grid_kernels *g, size_t m, size_t n, size_t k, enum edge edge,
                       struct worst *worst, bool *cut_alike)
{
    const size_t as = k + 3, bs = n + 1, ys = n + 2;
    const float *const a = matrix(m, k, as, edge), *const b = matrix(k, n, bs, edge);
    float *const y = matrix(m, n, ys, edge), *const twice = guarded_floats(m ? (m - 1) * ys + n : 0, edge);
    double *const before = calloc(m * n + 1, sizeof *before);
    for (size_t i = 0; i < m * n; i++)
        before[i] = (double)y[i / n * ys + i % n];
    if (m)
        memcpy(twice, y, ((m - 1) * ys + n) * sizeof *y);
    struct teg_grid_gemm_args args = {a, as, b, bs, y, ys, m, n, k};
    g->gemm_f32(&args);
    for (size_t i = 0; i < m * n; i++) {
        double sum = before[i], size = fabs(before[i]);
        for (size_t j = 0; j < k; j++) {
            const double term = (double)a[i / n * as + j] * (double)b[j * bs + i % n];
            sum += term;
            size += fabs(term);
        }
        worst_add(worst, (double)y[i / n * ys + i % n], sum, ((double)k + 1) * 2 * EPS * size + 1e-44);
    }
    args.y = twice; /* the same in two blocks of K, column by column */
    for (size_t half = 0; half < 2; half++)
        for (size_t c = 0; c < n; c++) {
            const size_t k0 = half ? k / 2 : 0, nk = half ? k - k / 2 : k / 2;
            const struct teg_grid_gemm_args part = {a + k0, as, b + k0 * bs + c, bs, twice + c, ys, m, 1, nk};
            g->gemm_f32(&part);
        }
    for (size_t i = 0; i < m * n; i++)
        *cut_alike &= same_bits(y[i / n * ys + i % n], twice[i / n * ys + i % n]);
    free(before);
    release_all();
}

static void test_gemm(const char *isa, const struct teg_kernels *kernels)
{
    const struct teg_grid_kernels *const g = teg_grid_kernels(kernels);
    struct worst worst = {0};
    bool cut_alike = true;
    for (size_t i = 0; i < N_SIZES; i++)
        for (size_t j = 0; j < N_SIZES; j++)
            check_gemm(g, sizes[i] % 24, sizes[j], sizes[(i + j) % N_SIZES], (enum edge)((i + j) % 2), &worst,
                       &cut_alike);
    tap_ok(worst.ratio <= 1, "%s gemm_f32 (%.3f of the bound)", isa, worst.ratio);
    tap_ok(cut_alike, "%s gemm_f32: the same bits in any cut", isa);
}

static void test_rows(const char *isa, const struct teg_kernels *kernels)
{
    const struct teg_grid_kernels *const g = teg_grid_kernels(kernels);
    bool right = true;
    for (size_t i = 0; i < N_SIZES; i++)
        for (size_t step = 1; step < 4; step++) {
            const size_t n = sizes[i], wide = n ? (n - 1) * step + 1 : 0;
            float *const x = matrix(1, wide, wide, EDGE_END), *const narrow = matrix(1, n, n, EDGE_END);
            float *const add = matrix(1, n, n, EDGE_END), *const square = matrix(1, n, n, EDGE_END);
            float *const max = matrix(1, n, n, EDGE_END), *const out = matrix(1, wide, wide, EDGE_END);
            float *const old = matrix(1, 4 * n + 1, 4 * n + 1, EDGE_END), *const old_out =
                                                                              matrix(1, wide, wide, EDGE_END);
            if (n > 2) {
                x[step] = NAN; /* in x */
                max[0] = NAN;  /* in y */
            }
            for (size_t k = 0; k < n; k++) {
                old[4 * k] = add[k];
                old[4 * k + 1] = square[k];
                old[4 * k + 2] = max[k];
            }
            memcpy(old_out, out, wide * sizeof *out);
            g->row_add_f32(add, x, step, n);
            g->row_add_square_f32(square, x, step, n);
            g->row_max_f32(max, x, step, n);
            g->row_scatter_f32(out, step, narrow, n);
            for (size_t k = 0; k < n; k++) {
                const float v = x[k * step], top = old[4 * k + 2];
                const bool is_nan = v != v || top != top;
                right &= v != v ? add[k] != add[k] : same_bits(add[k], old[4 * k] + v);
                right &= v != v ? square[k] != square[k] : same_bits(square[k], old[4 * k + 1] + v * v);
                right &= is_nan ? max[k] != max[k] : same_bits(max[k], v > top ? v : top);
            }
            for (size_t k = 0; k < wide; k++)
                right &= same_bits(out[k], k % step ? old_out[k] : old_out[k] + narrow[k / step]);
            release_all();
        }
    tap_ok(right, "%s rows: sums, squares, maxima, scattered sums", isa);
}

static void test_functions(const char *isa, const struct teg_kernels *kernels)
{
    const struct teg_grid_kernels *const g = teg_grid_kernels(kernels);
    struct worst exps = {0}, sigmoids = {0}, tanhs = {0}, sums = {0};
    for (size_t i = 1; i < N_SIZES; i++) {
        const size_t n = sizes[i];
        float *const x = matrix(1, n, n, EDGE_END), *const e = guarded_floats(n, EDGE_END);
        float *const s = guarded_floats(n, EDGE_START), *const t = guarded_floats(n, EDGE_END);
        for (size_t k = 0; k < n; k++)
            e[k] = s[k] = t[k] = x[k] = x[k] * (k % 3 ? 1 : 20);
        const float sum = g->row_exp_f32(e, 1.5f, n);
        double total = 0;
        g->row_sigmoid_f32(s, n);
        g->row_tanh_f32(t, n);
        for (size_t k = 0; k < n; k++) {
            const double want = exp((double)(x[k] - 1.5f)), logistic = 1 / (1 + exp(-(double)x[k]));
            total += want;
            worst_add(&exps, (double)e[k], want, 6 * EPS * want + 0x1p-126);
            worst_add(&sigmoids, (double)s[k], logistic, 8 * EPS * logistic + 0x1p-126);
            worst_add(&tanhs, (double)t[k], tanh((double)x[k]), 8 * EPS * fabs(tanh((double)x[k])) + 0x1p-126);
        }
        worst_add(&sums, (double)sum, total, ((double)n + 6) * EPS * total);
        release_all();
    }
    tap_ok(exps.ratio <= 1, "%s row_exp_f32 (%.3f of the bound)", isa, exps.ratio);
    tap_ok(sums.ratio <= 1, "%s row_exp_f32: sum (%.3f of the bound)", isa, sums.ratio);
    tap_ok(sigmoids.ratio <= 1, "%s row_sigmoid_f32 (%.3f of the bound)", isa, sigmoids.ratio);
    tap_ok(tanhs.ratio <= 1, "%s row_tanh_f32 (%.3f of the bound)", isa, tanhs.ratio);
}

static void test_all(const char *isa, const struct teg_kernels *k)
{
    test_gemm(isa, k);
    test_rows(isa, k);
    test_functions(isa, k);
}

int main(void)
{
    for_each_isa(test_all);
    return tap_done();
}
