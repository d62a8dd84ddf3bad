/* The loops that are fast because they are not plain, against plain ones: broadcasting, transposes in tiles, sorting,
 * branch-free functions. Random shapes and values from a fixed seed. */
#include <math.h>

#include "unit/eval_test.h"

#include "eval/vmath.h"

static uint32_t below(uint64_t *seed, uint32_t n)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % n;
}

static struct teg_array *random_array(uint64_t *seed, uint32_t rank, const size_t *dims, uint32_t n_values)
{
    struct teg_array *const a = teg_array_new(NULL, TEG_MIL_FP32, rank, dims);
    for (size_t i = 0; i < a->n; i++)
        a->f32[i] = (float)below(seed, n_values) - (float)(n_values / 2);
    return a;
}

static struct teg_array *run_one(const struct program *p, struct teg_array *const *inputs)
{
    struct teg_array *out = NULL;
    struct teg_error err = {0};
    if (teg_eval_run(p->eval, inputs, NULL, NULL, &out, NULL, &err) != TEG_OK)
        fail_msg("%s", err.message);
    return out;
}

static void test_transposes(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int round = 0; round < 60; round++) {
        uint32_t perm[4] = {0, 1, 2, 3};
        size_t dims[4], index[4];
        char body[200];
        for (uint32_t d = 0; d < 4; d++) {
            const uint32_t with = below(&seed, 4), swap = perm[d];
            perm[d] = perm[with];
            perm[with] = swap;
            dims[d] = 1 + below(&seed, d % 2 ? 5 : 40);
        }
        snprintf(body, sizeof body,
                 "tensor<fp32, [?, ?, ?, ?]> y = transpose(x = x, perm = tensor<int32, [4]>([%u, %u, %u, %u]));\n",
                 perm[0], perm[1], perm[2], perm[3]);
        struct program p = load_good(15, "tensor<fp32, [?, ?, ?, ?]> x", body, "y", NULL);
        struct teg_array *x = random_array(&seed, 4, dims, 1000000), *const y = run_one(&p, &x);
        for (size_t i = 0; i < y->n; i++) {
            size_t rest = i, at = 0;
            for (uint32_t d = 4; d-- > 0; rest /= y->dims[d])
                index[perm[d]] = rest % y->dims[d];
            for (uint32_t d = 0; d < 4; d++)
                at = at * dims[d] + index[d];
            assert_true(y->f32[i] == x->f32[at]);
        }
        teg_array_drop(NULL, x);
        teg_array_drop(NULL, y);
        program_free(&p);
    }
}

static void test_broadcasting(void **state)
{
    (void)state;
    uint64_t seed = 2;
    struct program p = load_good(15, "tensor<fp32, [?, ?, ?, ?]> x, tensor<fp32, [?, ?, ?, ?]> v",
                                 "tensor<fp32, [?, ?, ?, ?]> y = sub(x = x, y = v);\n", "y", NULL);
    for (int round = 0; round < 200; round++) {
        size_t a[4], b[4];
        for (uint32_t d = 0; d < 4; d++) {
            a[d] = b[d] = 1 + below(&seed, d == 3 ? 50 : 4);
            const uint32_t which = below(&seed, 4);
            a[d] = which == 0 ? 1 : a[d];
            b[d] = which == 1 ? 1 : b[d];
        }
        struct teg_array *in[2] = {random_array(&seed, 4, a, 1000), random_array(&seed, 4, b, 1000)};
        struct teg_array *const y = run_one(&p, in);
        for (size_t i = 0; i < y->n; i++) {
            size_t at_a = 0, at_b = 0, index[4], rest = i;
            for (uint32_t d = 4; d-- > 0; rest /= y->dims[d])
                index[d] = rest % y->dims[d];
            for (uint32_t d = 0; d < 4; d++) {
                at_a = at_a * a[d] + (a[d] == 1 ? 0 : index[d]);
                at_b = at_b * b[d] + (b[d] == 1 ? 0 : index[d]);
            }
            assert_true(y->f32[i] == in[0]->f32[at_a] - in[1]->f32[at_b]);
        }
        teg_array_drop(NULL, in[0]);
        teg_array_drop(NULL, in[1]);
        teg_array_drop(NULL, y);
    }
    program_free(&p);
}

static void check_sorted(const float *x, const int32_t *order, size_t n, size_t stride, bool ascending)
{
    for (size_t i = 1; i < n; i++) {
        const float a = x[(size_t)order[(i - 1) * stride] * stride], b = x[(size_t)order[i * stride] * stride];
        assert_true(ascending ? a <= b : a >= b);
        assert_true(a != b || order[(i - 1) * stride] < order[i * stride]);
    }
}

static void test_sorting(void **state)
{
    (void)state;
    uint64_t seed = 3;
    for (int round = 0; round < 40; round++) {
        const size_t dims[2] = {1 + below(&seed, 70), 1 + below(&seed, 300)};
        const bool ascending = round % 2, first = round % 4 > 1;
        char body[200];
        snprintf(body, sizeof body,
                 "tensor<int32, [?, ?]> y = argsort(x = x, axis = int32(%d), ascending = bool(%s));\n", first ? 0 : 1,
                 ascending ? "true" : "false");
        struct program p = load_good(15, "tensor<fp32, [?, ?]> x", body, "y", NULL);
        struct teg_array *x = random_array(&seed, 2, dims, 50), *const y = run_one(&p, &x);
        for (size_t line = 0; line < dims[first]; line++) {
            const size_t base = first ? line : line * dims[1];
            check_sorted(x->f32 + base, y->i32 + base, dims[!first], first ? dims[1] : 1, ascending);
        }
        teg_array_drop(NULL, x);
        teg_array_drop(NULL, y);
        program_free(&p);
    }
}

/* Error in units of the last place of the true value. */
static double ulps(float got, double expected)
{
    const float e = (float)expected;
    if (got == e || (got != got && e != e))
        return 0;
    const double unit = (double)nextafterf(fabsf(e), INFINITY) - (double)fabsf(e);
    return fabs((double)got - expected) / unit;
}

static void test_functions(void **state)
{
    (void)state;
    for (int i = -200000; i <= 200000; i++) {
        const float x = (float)i * 5e-4f;
        assert_true(ulps(teg_vexp(x), exp((double)x)) < 4 || x > 88.7f);
        assert_true(ulps(teg_vtanh(x / 8), tanh((double)x / 8)) < 8);
        assert_true(ulps(teg_verf(x / 16), erf((double)x / 16)) < 8);
        assert_true(teg_vfloor(x) == floorf(x));
    }
    assert_true(teg_vexp(INFINITY) == INFINITY && teg_vexp(-INFINITY) == 0 && isnan(teg_vexp(NAN)));
    assert_true(teg_vtanh(INFINITY) == 1 && teg_vtanh(-INFINITY) == -1 && isnan(teg_vtanh(NAN)));
    assert_true(teg_verf(INFINITY) == 1 && teg_verf(-INFINITY) == -1 && isnan(teg_verf(NAN)));
    assert_true(teg_vfloor(-INFINITY) == -INFINITY && isnan(teg_vfloor(NAN)) && signbit(teg_vfloor(-0.0f)));
    assert_true(teg_vtanh(1e-20f) == 1e-20f && teg_vfloor(-1e10f) == -1e10f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transposes),
        cmocka_unit_test(test_broadcasting),
        cmocka_unit_test(test_sorting),
        cmocka_unit_test(test_functions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
