/* tests/unit/test_quant.c: encoding of weights: the k-means optimum against brute force, every rule by every shape
 * against a direct computation of what the parts say, bounds on the error, determinism, each error message. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "quant/impl.h"
#include "unit/quant_test.h"

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* About normal: a sum of uniform numbers. */
static float noise(uint32_t *state)
{
    float sum = 0;
    for (int i = 0; i < 6; i++)
        sum += (float)next_random(state) / 16777216.0f - 0.5f;
    return sum;
}

static float *make_weight(size_t rows, size_t columns, uint32_t seed)
{
    float *const w = malloc(rows * columns * sizeof *w);
    assert_non_null(w);
    for (size_t i = 0; i < rows * columns; i++)
        w[i] = noise(&seed) * (1.0f + (float)(i % columns % 5)) * 0.1f;
    return w;
}

/* ---- k-means ---- */

/* Least cost by trying every first cluster, without any of the tricks. */
static double brute_force(const struct teg_kmeans_point *p, size_t n, size_t k)
{
    if (n == 0)
        return 0;
    if (k == 0)
        return INFINITY;
    double best = INFINITY;
    for (size_t m = 1; m <= n; m++) {
        double weight = 0, moment = 0, cost = 0;
        for (size_t i = 0; i < m; i++) {
            weight += p[i].weight;
            moment += p[i].weight * p[i].x;
        }
        for (size_t i = 0; i < m; i++)
            cost += p[i].weight * (p[i].x - moment / weight) * (p[i].x - moment / weight);
        best = fmin(best, cost + brute_force(p + m, n - m, k - 1));
    }
    return best;
}

static double cost_of(const struct teg_kmeans_point *p, size_t n, const double *centres, size_t k)
{
    double cost = 0;
    for (size_t i = 0; i < n; i++) {
        double nearest = INFINITY;
        for (size_t c = 0; c < k; c++)
            nearest = fmin(nearest, (p[i].x - centres[c]) * (p[i].x - centres[c]));
        cost += p[i].weight * nearest;
    }
    return cost;
}

static void kmeans_finds_the_optimum(void **state)
{
    (void)state;
    uint32_t seed = 7;
    for (int trial = 0; trial < 600; trial++) {
        struct teg_kmeans_point p[16];
        double centres[16];
        const size_t n = 1 + next_random(&seed) % 11, k = 1 + next_random(&seed) % n;
        double x = -20;
        for (size_t i = 0; i < n; i++) {
            x += trial % 2 ? 1 + next_random(&seed) % 3 : (1 + next_random(&seed) % 1000) / 300.0; /* ties, and none */
            p[i] = (struct teg_kmeans_point){x, trial % 3 ? 1 + next_random(&seed) % 9 : 1};
        }
        void *const memory = malloc(teg_kmeans_bytes(n, k));
        assert_non_null(memory);
        teg_kmeans(p, n, k, centres, memory);
        free(memory);
        const double best = brute_force(p, n, k), found = cost_of(p, n, centres, k);
        assert_true(found <= best + 1e-9 * (1 + best));
        for (size_t c = 1; c < k; c++)
            assert_true(centres[c - 1] < centres[c]);
    }
}

/* ---- rules by shapes ---- */

/* What the parts say, read the slow way. */
static float half_of(struct teg_span part, size_t i)
{
    assert_true(2 * i + 1 < part.n_bytes);
    return teg_f16_to_f32((uint16_t)(part.bytes[2 * i] | part.bytes[2 * i + 1] << 8));
}

static int bits_of(struct teg_span part, size_t i, uint32_t bits)
{
    int v = 0;
    for (uint32_t b = 0; b < bits; b++) {
        const size_t at = i * bits + b;
        assert_true(at / 8 < part.n_bytes);
        v |= (part.bytes[at / 8] >> at % 8 & 1) << b;
    }
    return v;
}

static float slow_value(const struct teg_quantized *q, size_t row, size_t column, size_t *kept)
{
    const size_t at = row * q->columns + column, bits = q->rule.bits;
    const size_t group = row / q->group_rows * (q->columns / q->group_columns) + column / q->group_columns;
    if (q->sparse && !bits_of(q->parts[TEG_QUANT_MASK], at, 1))
        return 0;
    const size_t code_at = q->sparse ? (*kept)++ : at / q->rule.vector;
    if (q->rule.method == TEG_QUANT_F16)
        return half_of(q->parts[TEG_QUANT_DATA], code_at);
    const int raw = bits_of(q->parts[TEG_QUANT_DATA], code_at, q->rule.bits), full = 1 << bits;
    if (q->rule.method == TEG_QUANT_PALETTE)
        return half_of(q->parts[TEG_QUANT_LUT],
                       (group * (size_t)full + (size_t)raw) * q->rule.vector + column % q->rule.vector);
    const float code = (float)(q->rule.is_signed && raw >= full / 2 ? raw - full : raw);
    float offset = 0;
    if (q->parts[TEG_QUANT_OFFSET].n_bytes && q->rule.float_offset)
        offset = half_of(q->parts[TEG_QUANT_OFFSET], group);
    else if (q->parts[TEG_QUANT_OFFSET].n_bytes) {
        const int o = bits_of(q->parts[TEG_QUANT_OFFSET], group, q->rule.bits);
        offset = (float)(q->rule.is_signed && o >= full / 2 ? o - full : o);
    }
    return half_round(half_of(q->parts[TEG_QUANT_SCALE], group) * half_round(code - offset));
}

static void check_parts(const struct teg_quantized *q, const struct teg_quantized *layout)
{
    assert_int_equal(q->n_kept, layout->n_kept);
    assert_int_equal(q->group_rows, layout->group_rows);
    assert_int_equal(q->group_columns, layout->group_columns);
    for (int p = 0; p < TEG_QUANT_PART_COUNT; p++) {
        assert_int_equal(q->parts[p].n_bytes, layout->parts[p].n_bytes);
        assert_true((q->parts[p].bytes != NULL) == (q->parts[p].n_bytes != 0));
        assert_null(layout->parts[p].bytes);
    }
}

static const char *const rule_texts[] = {
    "f16",
    "int8",
    "int8/tensor",
    "int8,minmax",
    "uint8",
    "uint8,asym",
    "uint8,float",
    "int4/4",
    "int4/4,minmax",
    "uint4/4",
    "uint4/4,minmax",
    "uint4/4,asym",
    "int4/4,asym",
    "int4/4,float",
    "uint4/4,float",
    "uint4/4,asym,minmax",
    "int4/4,sym",
    "uint4/4,sym",
    "lut4/2,plain",
    "int4/4,sym,minmax",
    "int4/tensor",
    "int4/channel",
    "lut1/2",
    "lut2/2",
    "lut3/2",
    "lut4/2",
    "lut6",
    "lut8",
    "lut4/channel",
    "lut4/tensor",
    "lut4/2,uniform",
    "lut2/2,v2",
    "lut4/tensor,v4",
    "f16,sparse=0.4",
    "int8,2:4",
    "int4/4,sparse=0.5",
    "uint4/4,float,2:4",
    "lut4/2,2:4",
    "lut2/2,sparse=0.7",
    "uint8,asym,1:4",
};
static const size_t shapes[][2] = {{2, 4}, {4, 8}, {6, 20}, {10, 36}, {2, 512}, {16, 64}};

static void every_rule_by_every_shape(void **state)
{
    (void)state;
    struct teg_pool *pool = NULL;
    assert_int_equal(teg_pool_new(3, NULL, &pool, NULL), TEG_OK);
    for (size_t r = 0; r < sizeof rule_texts / sizeof *rule_texts; r++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            const size_t rows = shapes[s][0], columns = shapes[s][1];
            struct teg_quant_rule rule;
            struct teg_quantized q, again, layout;
            struct teg_quant_report report;
            struct teg_error err = {0};
            struct teg_arena arena;
            float *const w = make_weight(rows, columns, (uint32_t)(r * 17 + s)), *const back =
                                                                                     malloc(4 * rows * columns);
            teg_arena_init(&arena, NULL);
            assert_true(teg_quant_rule_parse(rule_texts[r], &rule));
            assert_int_equal(teg_quant_layout(&rule, rows, columns, "w", &layout, &err), TEG_OK);
            if (teg_quantize(&rule, w, rows, columns, NULL, "w", NULL, &arena, &q, &report, &err) != TEG_OK)
                fail_msg("%s %zux%zu: %s", rule_texts[r], rows, columns, err.message);
            assert_int_equal(teg_quantize(&rule, w, rows, columns, NULL, "w", pool, &arena, &again, NULL, &err),
                             TEG_OK);
            check_parts(&q, &layout);
            for (int p = 0; p < TEG_QUANT_PART_COUNT; p++) /* threads change nothing */
                if (q.parts[p].n_bytes)
                    assert_memory_equal(q.parts[p].bytes, again.parts[p].bytes, q.parts[p].n_bytes);
            assert_int_equal(teg_dequantize(&q, 0, rows, back, &err), TEG_OK);
            size_t kept = 0;
            double error = 0, square = 0;
            for (size_t i = 0; i < rows * columns; i++) {
                const float slow = slow_value(&q, i / columns, i % columns, &kept);
                if (slow != back[i])
                    fail_msg("%s %zux%zu: value %zu: %g, parts say %g", rule_texts[r], rows, columns, i,
                             (double)back[i], (double)slow);
                error += ((double)w[i] - (double)back[i]) * ((double)w[i] - (double)back[i]);
                square += (double)w[i] * (double)w[i];
            }
            if (q.sparse)
                assert_int_equal(kept, q.n_kept);
            assert_true(fabs(sqrt(error / square) - report.relative_error) < 1e-9);
            assert_true(report.relative_error < 0.9);
            /* one row alone is the same row */
            assert_int_equal(teg_dequantize(&q, rows - 1, 1, w, &err), TEG_OK);
            assert_memory_equal(w, back + (rows - 1) * columns, 4 * columns);
            teg_arena_free(&arena);
            free(w);
            free(back);
        }
    teg_pool_free(pool);
}

static struct teg_quant_report report_of(const char *text, const float *w, size_t rows, size_t columns,
                                         const float *importance, float *back)
{
    struct teg_quant_rule rule;
    struct teg_quantized q;
    struct teg_quant_report report;
    struct teg_error err = {0};
    struct teg_arena arena;
    teg_arena_init(&arena, NULL);
    assert_true(teg_quant_rule_parse(text, &rule));
    if (teg_quantize(&rule, w, rows, columns, importance, "w", NULL, &arena, &q, &report, &err) != TEG_OK)
        fail_msg("%s: %s", text, err.message);
    if (back)
        assert_int_equal(teg_dequantize(&q, 0, rows, back, &err), TEG_OK);
    teg_arena_free(&arena);
    return report;
}

/* ---- quality ---- */

static void search_is_never_worse(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {{"int4/32,sym", "int4/32,sym,minmax"},
                                           {"uint4/32,sym", "uint4/32,sym,minmax"},
                                           {"int8", "int8,minmax"},
                                           {"uint4/32,asym", "uint4/32,asym,minmax"},
                                           {"uint8,asym", "uint8,asym,minmax"},
                                           {"uint4/32,float", "uint4/32,asym"},
                                           {"lut4/16", "lut4/16,uniform"},
                                           {"lut4/16,plain", "lut4/16"},
                                           {"lut4/2,plain", "lut4/16,plain"},
                                           {"lut6,plain", "lut4/16,plain"}};
    for (uint32_t seed = 0; seed < 4; seed++) {
        float *const w = make_weight(64, 128, seed);
        for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
            assert_true(report_of(pairs[i][0], w, 64, 128, NULL, NULL).relative_error <
                        report_of(pairs[i][1], w, 64, 128, NULL, NULL).relative_error * 1.0001);
        free(w);
    }
}

static double weighted_error(const float *w, const float *back, size_t rows, size_t columns, const float *importance)
{
    double error = 0;
    for (size_t i = 0; i < rows * columns; i++)
        error += (double)importance[i % columns] * ((double)w[i] - (double)back[i]) * ((double)w[i] - (double)back[i]);
    return error;
}

static void importance_lowers_the_error_that_it_weighs(void **state)
{
    (void)state;
    static const char *const texts[] = {"int4/32", "uint4/32,asym", "uint4/32,float", "lut4/16",
                                        "lut3/16", "lut4/16,v2",    "f16,sparse=0.5", "int4/32,2:4"};
    float importance[64];
    float *const w = make_weight(64, 64, 3), *const plain = malloc(4 * 64 * 64), *const weighted = malloc(4 * 64 * 64);
    for (size_t i = 0; i < 64; i++)
        importance[i] = i % 16 == 3 ? 400 : 1;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        (void)report_of(texts[i], w, 64, 64, NULL, plain);
        (void)report_of(texts[i], w, 64, 64, importance, weighted);
        assert_true(weighted_error(w, weighted, 64, 64, importance) < weighted_error(w, plain, 64, 64, importance));
    }
    free(w);
    free(plain);
    free(weighted);
}

static void what_fits_is_exact(void **state)
{
    (void)state;
    float w[4 * 64];
    uint32_t seed = 1;
    for (size_t i = 0; i < 4 * 64; i++) /* blocks of 32 in steps of their own, both ends used */
        w[i] = (float)(i % 32 == 5   ? -8
                       : i % 32 == 6 ? 7
                                     : (int)(next_random(&seed) % 16) - 8) *
               0.25f * (float)(1 + i / 32);
    assert_true(report_of("int4/32", w, 4, 64, NULL, NULL).exact);
    assert_true(report_of("uint4/32", w, 4, 64, NULL, NULL).exact);
    assert_true(report_of("uint4/32,float", w, 4, 64, NULL, NULL).exact);
    assert_true(report_of("lut4/tensor", w, 1, 32, NULL, NULL).exact);
    assert_true(report_of("f16", w, 4, 64, NULL, NULL).exact);
    assert_true(report_of("lut8,unique", w, 4, 64, NULL, NULL).exact);
    assert_false(report_of("lut4/tensor", w, 4, 64, NULL, NULL).exact);
}

static void zeros_stay_zeros(void **state)
{
    (void)state;
    float w[4 * 64] = {0}, back[4 * 64];
    for (size_t r = 0; r < sizeof rule_texts / sizeof *rule_texts; r++) {
        const struct teg_quant_report report = report_of(rule_texts[r], w, 4, 64, NULL, back);
        assert_true(report.relative_error == 0 && report.worst_row_error == 0);
        for (size_t i = 0; i < 4 * 64; i++)
            assert_true(back[i] == 0);
    }
    w[70] = 1; /* one block of many is not zero */
    (void)report_of("int4/32", w, 4, 64, NULL, back);
    assert_true(fabsf(back[70] - 1) < 0.001f && back[69] == 0 && back[0] == 0);
}

static void tiny_and_huge_values(void **state)
{
    (void)state;
    float w[2 * 32], back[2 * 32];
    for (size_t i = 0; i < 64; i++)
        w[i] = (i % 2 ? 1.0f : -1.0f) * (i < 32 ? 0x1p-24f : 65504.0f);
    for (size_t r = 0; r < sizeof rule_texts / sizeof *rule_texts; r++) {
        (void)report_of(rule_texts[r], w, 2, 32, NULL, back);
        for (size_t i = 0; i < 64; i++)
            if (!isfinite(back[i]))
                fail_msg("%s: value %zu: %g became %g", rule_texts[r], i, (double)w[i], (double)back[i]);
    }
}

static void unique_bits(void **state)
{
    (void)state;
    struct teg_quant_rule rule;
    float w[4 * 300];
    uint32_t bits = 0;
    static const struct {
        size_t distinct;
        uint32_t bits;
    } cases[] = {{1, 1}, {2, 1}, {3, 2}, {5, 3}, {9, 4}, {17, 6}, {64, 6}, {65, 8}, {256, 8}};
    assert_true(teg_quant_rule_parse("lut8/tensor,unique", &rule));
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        for (size_t i = 0; i < 4 * 300; i++)
            w[i] = (float)(i % cases[c].distinct);
        assert_int_equal(teg_quant_unique_bits(&rule, w, 4, 300, "w", &bits, NULL), TEG_OK);
        assert_int_equal(bits, cases[c].bits);
    }
}

/* ---- GGUF blocks ---- */

struct block_type {
    enum teg_dtype dtype;
    size_t halves[2]; /* where the scales lie: bytes that random bits must not fill */
    double tolerance; /* relative; 0: the same halves */
};
static const struct block_type block_types[] = {
    {TEG_DTYPE_Q4_0, {0, 0}, 0},           {TEG_DTYPE_Q4_1, {0, 2}, 0x3p-11}, {TEG_DTYPE_Q5_0, {0, 0}, 0},
    {TEG_DTYPE_Q5_1, {0, 2}, 0x3p-11},     {TEG_DTYPE_Q8_0, {0, 0}, 0},       {TEG_DTYPE_Q2_K, {80, 82}, 0x3p-11},
    {TEG_DTYPE_Q3_K, {108, 108}, 0x3p-11}, {TEG_DTYPE_Q4_K, {0, 2}, 0x3p-11}, {TEG_DTYPE_Q5_K, {0, 2}, 0x3p-11},
    {TEG_DTYPE_Q6_K, {208, 208}, 0x3p-11}, {TEG_DTYPE_IQ4_NL, {0, 0}, 0},     {TEG_DTYPE_IQ4_XS, {0, 0}, 0x3p-11},
};

static void gguf_blocks_keep_their_numbers(void **state)
{
    (void)state;
    for (size_t t = 0; t < sizeof block_types / sizeof *block_types; t++) {
        const struct teg_dtype_info *const info = teg_dtype_info(block_types[t].dtype);
        const size_t rows = 3, columns = 512, n = rows * columns, n_blocks = n / info->block_elements;
        uint8_t *const data = malloc(n_blocks * info->block_bytes);
        float *const values = malloc(4 * n), *const back = malloc(4 * n);
        uint32_t seed = (uint32_t)t;
        struct teg_quantized q, layout;
        struct teg_arena arena;
        bool possible = false;
        teg_arena_init(&arena, NULL);
        for (size_t b = 0; b < n_blocks; b++) {
            for (size_t i = 0; i < info->block_bytes; i++)
                data[b * info->block_bytes + i] = (uint8_t)next_random(&seed);
            for (int h = 0; h < 2; h++) {
                const uint16_t half = teg_f32_to_f16(b % 7 == 3 ? 0 : noise(&seed) * (h ? 0.1f : 0.01f));
                memcpy(data + b * info->block_bytes + block_types[t].halves[h], &half, 2);
            }
        }
        teg_dtype_decode(block_types[t].dtype, data, values, n);
        assert_int_equal(
            teg_quant_reencode(block_types[t].dtype, data, rows, columns, "w", &arena, &q, &possible, NULL), TEG_OK);
        assert_true(possible);
        assert_int_equal(teg_quant_reencode_is_exact(block_types[t].dtype), block_types[t].tolerance == 0);
        assert_true(teg_quant_reencode_layout(block_types[t].dtype, rows, columns, &layout));
        check_parts(&q, &layout);
        assert_int_equal(teg_dequantize(&q, 0, rows, back, NULL), TEG_OK);
        for (size_t i = 0; i < n; i++) {
            float low = 0, high = 0; /* of its group of 16: the minimum is at most high - low away from a value */
            for (size_t k = i / 16 * 16; k < i / 16 * 16 + 16; k++) {
                low = fminf(low, values[k]);
                high = fmaxf(high, values[k]);
            }
            if (block_types[t].tolerance == 0
                    ? half_round(values[i]) != back[i]
                    : fabs((double)values[i] - (double)back[i]) > block_types[t].tolerance * (double)(high - low))
                fail_msg("%s: value %zu: %g became %g", info->name, i, (double)values[i], (double)back[i]);
        }
        teg_arena_free(&arena);
        free(data);
        free(values);
        free(back);
    }
}

static void gguf_blocks_that_do_not_fit(void **state)
{
    (void)state;
    struct teg_quantized q;
    struct teg_arena arena;
    struct teg_error err = {0};
    bool possible = true;
    uint8_t block[34] = {0};
    float plain[32] = {0};
    teg_arena_init(&arena, NULL);
    assert_false(teg_quant_reencode_layout(TEG_DTYPE_F32, 1, 32, &q));
    assert_false(teg_quant_reencode_layout(TEG_DTYPE_Q4_0, 1, 48, &q));
    assert_false(teg_quant_reencode_layout(TEG_DTYPE_Q4_0, 0, 32, &q));
    assert_int_equal(teg_quant_reencode(TEG_DTYPE_F32, plain, 1, 32, "w", &arena, &q, &possible, &err), TEG_OK);
    assert_false(possible);
    const uint16_t infinite = 0x7c00;
    memcpy(block, &infinite, 2);
    block[5] = 1;
    assert_int_equal(teg_quant_reencode(TEG_DTYPE_Q8_0, block, 1, 32, "w", &arena, &q, &possible, &err),
                     TEG_ERR_FORMAT);
    assert_string_equal(err.message, "cannot quantize: w: row 0, column 0: expected a finite number, found nan; mend "
                                     "the model");
    teg_arena_free(&arena);
}

/* ---- rules as text ---- */

static void rules_read_and_write(void **state)
{
    (void)state;
    char text[64];
    struct teg_quant_rule rule, again;
    for (size_t r = 0; r < sizeof rule_texts / sizeof *rule_texts; r++) {
        assert_true(teg_quant_rule_parse(rule_texts[r], &rule));
        teg_quant_rule_format(&rule, text);
        memset(&again, 0xff, sizeof again);
        assert_true(teg_quant_rule_parse(text, &again));
        assert_memory_equal(&rule, &again, sizeof rule);
    }
    assert_true(teg_quant_rule_parse("lut4/16,uniform,fit", &rule));
    assert_true(rule.method == TEG_QUANT_PALETTE && rule.bits == 4 && rule.group == 16 && rule.fit &&
                rule.table == TEG_QUANT_UNIFORM && rule.grain == TEG_QUANT_PER_BLOCK);
    static const char *const bad[] = {
        "",          "int5",      "int4/",         "int4/0",           "int4/x",        "int4/32,",
        "int4,v2",   "lut4,asym", "f16/channel",   "int4/99999999999", "int4,3:2",      "int4,0:2",
        "int4,2:65", "int4,2:",   "int4,sparse=1", "int4,sparse=",     "int4,sparse=x", "int4,sparse=1e-1",
        "lut5",      "int4 /32",  "INT4",          "int4/32,float,v2"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(teg_quant_rule_parse(bad[i], &rule));
}

/* ---- errors ---- */

static void expect_error(const char *text, size_t rows, size_t columns, const char *message)
{
    struct teg_quant_rule rule;
    struct teg_quantized q;
    struct teg_error err = {0};
    assert_true(teg_quant_rule_parse(text, &rule));
    assert_int_not_equal(teg_quant_layout(&rule, rows, columns, "w", &q, &err), TEG_OK);
    assert_string_equal(err.message, message);
}

static void rules_that_do_not_fit(void **state)
{
    (void)state;
    struct teg_quantized q;
    struct teg_quant_rule rule;
    struct teg_error err = {0};
    expect_error("int4/32", 4, 48,
                 "cannot quantize: w: expected groups of columns that divide 48, found 32; take 24, or let it fit");
    expect_error("lut4/16", 24, 48,
                 "cannot quantize: w: expected groups of rows that divide 24, found 16; take 12, or let it fit");
    expect_error("int4/64", 4, 32,
                 "cannot quantize: w: expected groups of columns that divide 32, found 64; take 32, or let it fit");
    expect_error("int8", 0, 32, "cannot quantize: w: expected a matrix whose size can be addressed, found 0 by 32");
    expect_error("lut4/tensor,v4", 4, 30,
                 "cannot quantize: w: expected columns that palette entries of 4 divide, found 30; take single values");
    expect_error("lut4/tensor,v2,uniform", 4, 32,
                 "cannot quantize: w: expected k-means for palette entries of 2 values, found a uniform or unique "
                 "table; take single values");
    expect_error("lut4/tensor,v2,2:4", 4, 32,
                 "cannot quantize: w: expected single values where weights are pruned, found palette entries of 2; "
                 "keep one of the two");
    expect_error("int8,2:4,sparse=0.5", 4, 32, "cannot quantize: w: expected a sparsity or n:m, found both; keep one");
    assert_true(teg_quant_rule_parse("int4/32,fit", &rule));
    assert_int_equal(teg_quant_layout(&rule, 4, 48, "w", &q, &err), TEG_OK);
    assert_int_equal(q.group_columns, 24);

    static const struct {
        struct teg_quant_rule rule;
        const char *message;
    } raw[] = {
        {{.method = TEG_QUANT_LINEAR, .bits = 5},
         "cannot quantize: w: expected 4 or 8 bits, found 5; or take a palette"},
        {{.method = TEG_QUANT_PALETTE, .bits = 5},
         "cannot quantize: w: expected a palette of 1, 2, 3, 4, 6 or 8 bits, found 5"},
        {{.method = TEG_QUANT_LINEAR, .bits = 4, .grain = TEG_QUANT_PER_BLOCK},
         "cannot quantize: w: expected a group of 1 or more, found 0"},
        {{.method = TEG_QUANT_F16, .sparsity = 1},
         "cannot quantize: w: expected a sparsity from 0 to below 1, found 1"},
        {{.method = TEG_QUANT_F16, .keep_n = 3, .keep_of = 2},
         "cannot quantize: w: expected n:m with 1 or more kept of at most 64 values, found 3:2"},
        {{.method = TEG_QUANT_PALETTE, .bits = 4, .vector = 3},
         "cannot quantize: w: expected palette entries of 1, 2 or 4 values, found 3"},
    };
    for (size_t i = 0; i < sizeof raw / sizeof *raw; i++) {
        assert_int_equal(teg_quant_layout(&raw[i].rule, 4, 32, "w", &q, &err), TEG_ERR_ARGUMENT);
        assert_string_equal(err.message, raw[i].message);
    }
}

static void values_that_cannot_be(void **state)
{
    (void)state;
    static const float bad[] = {INFINITY, -INFINITY, 65520, -1e30f};
    float w[2 * 32] = {0}, importance[32];
    struct teg_quant_rule rule;
    struct teg_quantized q;
    struct teg_arena arena;
    struct teg_error err = {0};
    uint32_t bits;
    char message[256];
    teg_arena_init(&arena, NULL);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        w[32 + 7] = bad[i];
        assert_true(teg_quant_rule_parse(i % 2 ? "lut4/tensor" : "int4/32", &rule));
        assert_int_equal(teg_quantize(&rule, w, 2, 32, NULL, "w", NULL, &arena, &q, NULL, &err), TEG_ERR_FORMAT);
        snprintf(message, sizeof message,
                 "cannot quantize: w: row 1, column 7: expected a number that fp16 can hold, found %g; mend the model "
                 "or leave this weight out",
                 (double)bad[i]);
        assert_string_equal(err.message, message);
    }
    w[39] = NAN;
    assert_int_equal(teg_quantize(&rule, w, 2, 32, NULL, "w", NULL, &arena, &q, NULL, &err), TEG_ERR_FORMAT);
    w[39] = 1;
    for (size_t i = 0; i < 32; i++)
        importance[i] = 1;
    importance[4] = -1;
    assert_int_equal(teg_quantize(&rule, w, 2, 32, importance, "w", NULL, &arena, &q, NULL, &err), TEG_ERR_ARGUMENT);
    assert_string_equal(err.message, "cannot quantize: w: importance of column 4: expected a number of 0 or more, "
                                     "found -1; collect the statistics again");
    assert_int_equal(teg_dequantize(&(struct teg_quantized){.rows = 2, .columns = 32}, 1, 2, w, &err),
                     TEG_ERR_ARGUMENT);
    assert_string_equal(err.message, "cannot decode a weight: rows: expected rows below 2, found 2 from 1 on");
    float many[300];
    for (size_t i = 0; i < 300; i++)
        many[i] = (float)i;
    assert_true(teg_quant_rule_parse("lut8/tensor,unique", &rule));
    assert_int_equal(teg_quant_unique_bits(&rule, many, 1, 300, "w", &bits, &err), TEG_ERR_ARGUMENT);
    assert_string_equal(
        err.message,
        "cannot quantize: w: expected at most 256 distinct values in group 0, found more; leave out 'unique'");
    assert_int_equal(teg_quantize(&rule, many, 1, 300, NULL, "w", NULL, &arena, &q, NULL, &err), TEG_ERR_ARGUMENT);
    assert_string_equal(err.message, "cannot quantize: w: expected at most 256 distinct values in group 0, found more; "
                                     "leave out 'unique', or take more bits");
    teg_arena_free(&arena);
}

/* ---- memory ---- */

static void every_allocation_may_fail(void **state)
{
    (void)state;
    float *const w = make_weight(16, 64, 1);
    for (size_t r = 0; r < sizeof rule_texts / sizeof *rule_texts; r++) {
        struct teg_quant_rule rule;
        enum teg_status status = TEG_ERR_MEMORY;
        assert_true(teg_quant_rule_parse(rule_texts[r], &rule));
        for (size_t n = 0; status != TEG_OK; n++) {
            size_t left = n;
            const struct teg_allocator allocator = refusing(&left);
            struct teg_arena arena;
            struct teg_quantized q;
            struct teg_quant_report report;
            teg_arena_init(&arena, &allocator);
            status = teg_quantize(&rule, w, 16, 64, NULL, "w", NULL, &arena, &q, &report, NULL);
            assert_true(status == TEG_OK || status == TEG_ERR_MEMORY);
            assert_true(n < 200);
            teg_arena_free(&arena);
        }
    }
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kmeans_finds_the_optimum),
        cmocka_unit_test(every_rule_by_every_shape),
        cmocka_unit_test(search_is_never_worse),
        cmocka_unit_test(importance_lowers_the_error_that_it_weighs),
        cmocka_unit_test(what_fits_is_exact),
        cmocka_unit_test(zeros_stay_zeros),
        cmocka_unit_test(tiny_and_huge_values),
        cmocka_unit_test(unique_bits),
        cmocka_unit_test(gguf_blocks_keep_their_numbers),
        cmocka_unit_test(gguf_blocks_that_do_not_fit),
        cmocka_unit_test(rules_read_and_write),
        cmocka_unit_test(rules_that_do_not_fit),
        cmocka_unit_test(values_that_cannot_be),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
