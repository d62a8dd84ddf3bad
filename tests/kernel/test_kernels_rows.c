/* tests/kernel/test_kernels_rows.c: norms, rotary positions, gated activations, sums: against double precision with the
 * bounds of kernels.h, guard pages, special values, and the same bits wherever an element stands. */
#include "kernel_test.h"

static const size_t widths[] = {1, 3, 4, 7, 8, 15, 16, 17, 31, 64, 127, 576, 1000};
#define N_WIDTHS (sizeof widths / sizeof widths[0])

/* Rows of n floats, `stride` apart; no padding behind the last. */
static float *guarded_rows(size_t rows, size_t n, size_t stride, enum edge edge)
{
    float *const p = guarded_floats((rows - 1) * stride + n, edge);
    for (size_t r = 0; r < rows; r++)
        fill_random(p + r * stride, n);
    return p;
}

static void test_rms_norm(const char *isa, const struct teg_kernels *k)
{
    struct worst worst = {0};
    for (size_t i = 0; i < N_WIDTHS; i++) {
        const size_t n = widths[i], rows = 3, stride = n + 2;
        const enum edge edge = (enum edge)(i % 2);
        float *const x = guarded_rows(rows, n, stride, edge), *const y = guarded_rows(rows, n, n + 1, edge);
        float *const w = guarded_rows(1, n, n, edge);
        x[0] = i % 3 ? 1e5f : 1e-15f; /* an outlier; a tiny value */
        const float offset = i % 2 ? 1.0f : 0.0f, eps = 1e-6f;
        k->rms_norm_f32(x, stride, i % 4 == 3 ? NULL : w, offset, eps, y, n + 1, rows, n);
        for (size_t r = 0; r < rows; r++) {
            double sum = 0;
            for (size_t c = 0; c < n; c++)
                sum += (double)x[r * stride + c] * (double)x[r * stride + c];
            for (size_t c = 0; c < n; c++) {
                const double weight = i % 4 == 3 ? 1 : (double)(w[c] + offset);
                const double expected = (double)x[r * stride + c] / sqrt(sum / (double)n + (double)eps) * weight;
                worst_add(&worst, (double)y[r * (n + 1) + c], expected, ((double)n + 4) * EPS * fabs(expected) + 1e-44);
            }
        }
        release_all();
    }
    tap_ok(worst.ratio <= 1, "%s rms_norm_f32 (%.3f of the bound)", isa, worst.ratio);
}

static void test_rope(const char *isa, const struct teg_kernels *k)
{
    struct worst worst = {0};
    bool untouched = true;
    for (size_t i = 0; i < N_WIDTHS; i++) {
        const size_t pairs = widths[i] > 128 ? 64 : widths[i], width = 2 * pairs + i % 3, heads = 3, tokens = 2;
        const size_t stride = heads * width + 1, n = heads * width;
        for (int interleaved = 0; interleaved < 2; interleaved++) {
            float *const x = guarded_rows(tokens, n, stride, EDGE_END);
            float *const cosines = guarded_rows(tokens, pairs, pairs, EDGE_END);
            float *const sines = guarded_rows(tokens, pairs, pairs, EDGE_END);
            float *const before = malloc(((tokens - 1) * stride + n) * sizeof *before);
            memcpy(before, x, ((tokens - 1) * stride + n) * sizeof *before);
            (interleaved ? k->rope_interleaved_f32 : k->rope_half_f32)(x, stride, cosines, sines, tokens, heads, width,
                                                                       pairs);
            for (size_t t = 0; t < tokens; t++) {
                for (size_t h = 0; h < heads; h++) {
                    const size_t base = t * stride + h * width;
                    for (size_t j = 0; j < pairs; j++) {
                        const size_t at = interleaved ? base + 2 * j : base + j, to = interleaved ? at + 1 : at + pairs;
                        const double a = (double)before[at], b = (double)before[to];
                        const double c = (double)cosines[t * pairs + j], s = (double)sines[t * pairs + j];
                        worst_add(&worst, (double)x[at], a * c - b * s, 2 * EPS * (fabs(a * c) + fabs(b * s)) + 1e-44);
                        worst_add(&worst, (double)x[to], b * c + a * s, 2 * EPS * (fabs(b * c) + fabs(a * s)) + 1e-44);
                    }
                    for (size_t j = 2 * pairs; j < width; j++)
                        untouched &= same_bits(x[base + j], before[base + j]);
                }
            }
            free(before);
            release_all();
        }
    }
    tap_ok(worst.ratio <= 1, "%s rope (%.3f of the bound)", isa, worst.ratio);
    tap_ok(untouched, "%s rope leaves the rest of a head alone", isa);
}

/* Bound: what rounding of the mean, of the sums and of the result may do to a row of that size and spread. */
static void test_layer_norm(const char *isa, const struct teg_kernels *k)
{
    struct worst worst = {0};
    for (size_t i = 0; i < N_WIDTHS; i++) {
        const size_t n = widths[i], rows = 3;
        float *const x = guarded_rows(rows, n, n + 3, EDGE_END), *const w = guarded_rows(1, n, n, EDGE_START);
        float *const b = guarded_rows(1, n, n, EDGE_END), *const y = guarded_rows(rows, n, n + 1, EDGE_END);
        for (size_t c = 0; c < n; c++)
            x[n + 3 + c] += 100; /* far from 0 */
        const float *const bias = i % 3 ? b : NULL;
        k->layer_norm_f32(x, n + 3, w, bias, 1e-5f, y, n + 1, rows, n);
        for (size_t r = 0; r < rows; r++) {
            const float *const row = x + r * (n + 3);
            double mean = 0, squares = 0, most = 0;
            for (size_t c = 0; c < n; c++) {
                mean += (double)row[c] / (double)n;
                most = fabs((double)row[c]) > most ? fabs((double)row[c]) : most;
            }
            for (size_t c = 0; c < n; c++)
                squares += ((double)row[c] - mean) * ((double)row[c] - mean) / (double)n;
            const double deviation = sqrt(squares + (double)1e-5f);
            for (size_t c = 0; c < n; c++) {
                const double unit = ((double)row[c] - mean) / deviation, add = bias ? (double)bias[c] : 0;
                const double off = ((double)n / 4 + 8) * EPS * most / deviation; /* of the mean, as far as it shows */
                worst_add(&worst, (double)y[r * (n + 1) + c], unit * (double)w[c] + add,
                          off * (1 + fabs(unit)) * fabs((double)w[c]) + 4 * EPS * fabs(add));
            }
        }
        release_all();
    }
    tap_ok(worst.ratio <= 1, "%s layer_norm_f32 (%.3f of the bound)", isa, worst.ratio);
}

static double relu(double g)
{
    return g < 0 ? 0 : g;
}

static double silu(double g)
{
    return g / (1 + exp(-g));
}

static double gelu(double g)
{
    return 0.5 * g * (1 + tanh(sqrt(2 / acos(-1)) * (g + 0.044715 * g * g * g)));
}

static double gelu_erf(double g)
{
    return 0.5 * g * erfc(-g / sqrt(2));
}

typedef void gate_kernel(const float *, size_t, const float *, size_t, float *, size_t, size_t, size_t);

static double gate_error(gate_kernel *run, double (*meaning)(double), bool absolute)
{
    struct worst worst = {0};
    for (size_t i = 0; i < N_WIDTHS; i++) {
        const size_t n = widths[i], rows = 4;
        float *const g = guarded_rows(rows, n, n + 1, EDGE_END), *const u = guarded_rows(rows, n, n + 2, EDGE_START);
        float *const y = guarded_rows(rows, n, n + 3, EDGE_END);
        for (size_t c = 0; c < n; c++) {
            g[n + 1 + c] *= 10;
            g[2 * (n + 1) + c] *= 100;
            g[3 * (n + 1) + c] *= 1e-20f;
        }
        run(g, n + 1, u, n + 2, y, n + 3, rows, n);
        for (size_t r = 0; r < rows; r++) {
            for (size_t c = 0; c < n; c++) {
                const double gate = (double)g[r * (n + 1) + c], up = (double)u[r * (n + 2) + c];
                const double expected = meaning(gate) * up;
                const double size = absolute ? fabs(gate * up) : fabs(expected);
                worst_add(&worst, (double)y[r * (n + 3) + c], expected, 8 * EPS * size + 0x1p-126);
            }
        }
        release_all();
    }
    return worst.ratio;
}

static void test_gates(const char *isa, const struct teg_kernels *k)
{
    const double s = gate_error(k->silu_mul_f32, silu, false), g = gate_error(k->gelu_mul_f32, gelu, true);
    tap_ok(s <= 1, "%s silu_mul_f32 (%.3f of the bound)", isa, s);
    tap_ok(g <= 1, "%s gelu_mul_f32 (%.3f of the bound)", isa, g);
    const double e = gate_error(k->gelu_erf_mul_f32, gelu_erf, true);
    tap_ok(e <= 1, "%s gelu_erf_mul_f32 (%.3f of the bound)", isa, e);
    const double z = gate_error(k->relu_mul_f32, relu, false);
    tap_ok(z <= 1, "%s relu_mul_f32 (%.3f of the bound)", isa, z);
    const float gate[5] = {INFINITY, NAN, -200.0f, 3e38f, -3e38f}, up[5] = {1, 1, 1, 1, 1};
    float y[5];
    k->silu_mul_f32(gate, 5, up, 5, y, 5, 1, 5);
    bool right = isinf(y[0]) && isnan(y[1]) && y[2] == 0 && y[3] == 3e38f && y[4] == 0;
    k->gelu_mul_f32(gate, 5, up, 5, y, 5, 1, 5);
    right &= isinf(y[0]) && isnan(y[1]) && y[2] == 0 && y[3] == 3e38f && y[4] == 0;
    k->gelu_erf_mul_f32(gate, 5, up, 5, y, 5, 1, 5);
    right &= isinf(y[0]) && isnan(y[1]) && y[2] == 0 && y[3] == 3e38f && y[4] == 0;
    k->relu_mul_f32(gate, 5, up, 5, y, 5, 1, 5);
    right &= isinf(y[0]) && isnan(y[1]) && y[2] == 0 && y[3] == 3e38f && y[4] == 0;
    tap_ok(right, "%s gates: special values", isa);
    const float two[2][3] = {{1, 2, 3}, {4, -5, 6}}, ones[3] = {1, 1, 1};
    k->relu_mul_f32(two[0], 3, ones, 0, y, 2, 2, 2);
    tap_ok(y[0] == 1 && y[1] == 2 && y[2] == 4 && y[3] == 0, "%s gates: one row of up for all", isa);
}

static void test_sums(const char *isa, const struct teg_kernels *k)
{
    bool right = true;
    struct worst worst = {0};
    for (size_t i = 0; i < N_WIDTHS; i++) {
        const size_t n = widths[i], rows = 3;
        float *const a = guarded_rows(rows, n, n + 1, EDGE_END), *const b = guarded_rows(rows, n, n, EDGE_START);
        float *const y = guarded_rows(rows, n, n + 2, EDGE_END);
        a[0] = NAN, b[n] = -INFINITY;
        k->add_f32(a, n + 1, b, n, y, n + 2, rows, n);
        for (size_t r = 0; r < rows; r++)
            for (size_t c = 0; c < n; c++)
                right &= same_bits(y[r * (n + 2) + c], a[r * (n + 1) + c] + b[r * n + c]);
        a[0] = 2.0f;
        float *const before = malloc(rows * (n + 1) * sizeof *before);
        memcpy(before, a, ((rows - 1) * (n + 1) + n) * sizeof *a);
        k->scale_f32(a, n + 1, 0.7f, rows, n);
        for (size_t r = 0; r < rows; r++)
            for (size_t c = 0; c < n; c++)
                right &= same_bits(a[r * (n + 1) + c], before[r * (n + 1) + c] * 0.7f);
        for (size_t r = 0; r < rows; r++)
            for (size_t c = 0; c < n; c++)
                a[r * (n + 1) + c] = before[r * (n + 1) + c] *= powf(10, (float)((c + r) % 13) - 6);
        k->softcap_f32(a, n + 1, 30.0f, rows, n);
        for (size_t r = 0; r < rows; r++) {
            for (size_t c = 0; c < n; c++) {
                const double expected = 30 * tanh((double)before[r * (n + 1) + c] / 30);
                worst_add(&worst, (double)a[r * (n + 1) + c], expected, 8 * EPS * fabs(expected));
            }
        }
        free(before);
        release_all();
    }
    tap_ok(right, "%s add_f32 and scale_f32 are exact", isa);
    tap_ok(worst.ratio <= 1, "%s softcap_f32 (%.3f of the bound)", isa, worst.ratio);
    float x[4] = {INFINITY, -INFINITY, NAN, -0.0f};
    k->softcap_f32(x, 4, 50.0f, 1, 4);
    tap_ok(x[0] == 50 && x[1] == -50 && isnan(x[2]) && x[3] == 0 && signbit(x[3]), "%s softcap: special values", isa);
}

/* An element's value may not depend on the width of the row or its place in it. */
static void test_places(const char *isa, const struct teg_kernels *k)
{
    float g[67], u[67], whole[67], part[67];
    bool same = true;
    fill_random(g, 67);
    fill_random(u, 67);
    gate_kernel *const kernels[] = {k->silu_mul_f32, k->gelu_mul_f32, k->gelu_erf_mul_f32, k->relu_mul_f32};
    for (size_t i = 0; i < 4; i++) {
        kernels[i](g, 67, u, 67, whole, 67, 1, 67);
        for (size_t c = 0; c < 67; c += 5)
            kernels[i](g + c, 67, u + c, 67, part + c, 67, 1, 67 - c < 5 ? 67 - c : 5);
        same &= all_same_bits(whole, part, 67);
    }
    memcpy(whole, g, sizeof g);
    memcpy(part, g, sizeof g);
    k->softcap_f32(whole, 67, 2.0f, 1, 67);
    for (size_t c = 0; c < 67; c++)
        k->softcap_f32(part + c, 67, 2.0f, 1, 1);
    same &= all_same_bits(whole, part, 67);
    tap_ok(same, "%s elementwise kernels: same bits anywhere in a row", isa);
}

static void test_every_slot(const char *isa, const struct teg_kernels *k)
{
    size_t n = 0, filled = 0, named = 0;
#define X(slot, args)                                                                                                  \
    if (k->slot)                                                                                                       \
        filled++;                                                                                                      \
    if (k->isa_of_slot[n++])                                                                                           \
        named++;
    TEG_KERNELS(X)
#undef X
    tap_ok(filled == n && named == n, "%s fills all slots (%zu of %zu, %zu named)", isa, filled, n, named);
}

int main(void)
{
    for_each_isa(test_every_slot);
    for_each_isa(test_rms_norm);
    for_each_isa(test_layer_norm);
    for_each_isa(test_rope);
    for_each_isa(test_gates);
    for_each_isa(test_sums);
    for_each_isa(test_places);
    return tap_done();
}
