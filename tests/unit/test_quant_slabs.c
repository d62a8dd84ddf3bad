/* tests/unit/test_quant_slabs.c: a matrix that is encoded slab by slab is the one that is encoded at once, to the last
 * byte of every part; what goes wrong in a later slab is said with the matrix's own row; memory is that of a slab. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "unit/quant_test.h"

enum { ROWS = 130, COLUMNS = 8192 }; /* slabs of 128 rows and 2 */

struct matrix {
    float *values;
    uint64_t most_rows; /* asked for at once */
    uint64_t fails_at;  /* a row that cannot be read; 0: none */
};

static enum teg_status read_matrix(void *ctx, uint64_t row, uint64_t n, float *values, struct teg_error *err)
{
    struct matrix *const m = ctx;
    (void)err;
    m->most_rows = n > m->most_rows ? n : m->most_rows;
    if (m->fails_at && row + n > m->fails_at)
        return TEG_ERR_IO;
    memcpy(values, m->values + row * COLUMNS, (size_t)n * COLUMNS * sizeof *values);
    return TEG_OK;
}

static struct matrix make_matrix(void)
{
    struct matrix m = {.values = malloc(sizeof(float) * ROWS * COLUMNS)};
    uint32_t seed = 7;
    assert_non_null(m.values);
    for (size_t i = 0; i < (size_t)ROWS * COLUMNS; i++) {
        seed = seed * 1664525u + 1013904223u;
        m.values[i] = ((float)(seed >> 8) / 16777216.0f - 0.4f) * (1.0f + (float)(i / COLUMNS % 3));
    }
    return m;
}

static struct teg_quant_rule rule_of(const char *text)
{
    struct teg_quant_rule rule;
    assert_true(teg_quant_rule_parse(text, &rule));
    return rule;
}

static void expect_same(const char *text, bool in_slabs, struct matrix *m)
{
    const struct teg_quant_rule rule = rule_of(text);
    const struct teg_quant_rows source = {read_matrix, m};
    struct teg_arena arena;
    struct teg_quantized whole, pieces;
    struct teg_quant_report a, b;
    struct teg_error err = {0};
    teg_arena_init(&arena, NULL);
    m->most_rows = 0;
    assert_int_equal(teg_quantize(&rule, m->values, ROWS, COLUMNS, NULL, "w", NULL, &arena, &whole, &a, &err), TEG_OK);
    assert_int_equal(teg_quantize_rows(&rule, &source, ROWS, COLUMNS, NULL, "w", &arena, &pieces, &b, &err), TEG_OK);
    assert_int_equal(m->most_rows, in_slabs ? 128 : ROWS);
    for (size_t p = 0; p < TEG_QUANT_PART_COUNT; p++) {
        assert_int_equal(whole.parts[p].n_bytes, pieces.parts[p].n_bytes);
        if (whole.parts[p].n_bytes)
            assert_memory_equal(whole.parts[p].bytes, pieces.parts[p].bytes, whole.parts[p].n_bytes);
    }
    assert_true(fabs(a.relative_error - b.relative_error) <= 1e-9 * a.relative_error);
    assert_true(a.worst_row_error == b.worst_row_error);
    assert_int_equal(a.worst_row, b.worst_row);
    assert_int_equal(a.bytes, b.bytes);
    assert_int_equal(a.source_bytes, b.source_bytes);
    assert_true(a.exact == b.exact && a.bits_per_weight == b.bits_per_weight);
    teg_arena_free(&arena);
}

static void slabs_are_the_whole(void **state)
{
    (void)state;
    static const struct {
        const char *rule;
        bool in_slabs;
    } cases[] = {{"int8", true},         {"uint8,asym", true}, {"int4/32", true},
                 {"uint4/32,sym", true}, {"int4/8192", true},  {"uint4/64,float,minmax", true},
                 {"int8/tensor", false}, {"lut1/65", false},   {"int8,minmax,sparse=0.5", false}};
    struct matrix m = make_matrix();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_same(cases[i].rule, cases[i].in_slabs, &m);
    free(m.values);
}

static void memory_is_that_of_a_slab(void **state)
{
    (void)state;
    const struct teg_quant_rule rows = rule_of("int8"), tensor = rule_of("int8/tensor");
    struct teg_quantized q;
    assert_int_equal(teg_quant_layout(&rows, 49152, 576, "w", &q, NULL), TEG_OK);
    assert_in_range(teg_quant_scratch_bytes(&q), 1 << 20, 8 << 20);
    assert_int_equal(teg_quant_layout(&tensor, 49152, 576, "w", &q, NULL), TEG_OK);
    assert_true(teg_quant_scratch_bytes(&q) >= (size_t)49152 * 576 * sizeof(float));
}

static void what_goes_wrong_later(void **state)
{
    (void)state;
    const struct teg_quant_rule rule = rule_of("int8,minmax");
    struct matrix m = make_matrix();
    const struct teg_quant_rows source = {read_matrix, &m};
    struct teg_quantized q;
    struct teg_quant_report report;
    struct teg_error err = {0};
    struct teg_arena arena;
    teg_arena_init(&arena, NULL);
    m.values[129 * COLUMNS + 5] = NAN;
    assert_int_equal(teg_quantize_rows(&rule, &source, ROWS, COLUMNS, NULL, "w", &arena, &q, &report, &err),
                     TEG_ERR_FORMAT);
    assert_non_null(strstr(err.message, "w: row 129, column 5: expected a number that fp16 can hold"));
    m.fails_at = 128;
    assert_int_equal(teg_quantize_rows(&rule, &source, ROWS, COLUMNS, NULL, "w", &arena, &q, &report, &err),
                     TEG_ERR_IO);
    teg_arena_free(&arena);
    free(m.values);
}

/* ---- memory ---- */

static void every_allocation_may_fail(void **state)
{
    (void)state;
    static const char *const texts[] = {"int8,minmax", "uint4/64,minmax", "int8/tensor,minmax"};
    struct matrix m = make_matrix();
    const struct teg_quant_rows source = {read_matrix, &m};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const struct teg_quant_rule rule = rule_of(texts[i]);
        enum teg_status status = TEG_ERR_MEMORY;
        for (size_t n = 0; status != TEG_OK; n++) {
            size_t left = n;
            const struct teg_allocator allocator = refusing(&left);
            struct teg_arena arena;
            struct teg_quantized q;
            struct teg_quant_report report;
            teg_arena_init(&arena, &allocator);
            status = teg_quantize_rows(&rule, &source, ROWS, COLUMNS, NULL, "w", &arena, &q, &report, NULL);
            assert_true(status == TEG_OK || status == TEG_ERR_MEMORY);
            assert_true(n < 100);
            teg_arena_free(&arena);
        }
    }
    free(m.values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slabs_are_the_whole),
        cmocka_unit_test(memory_is_that_of_a_slab),
        cmocka_unit_test(what_goes_wrong_later),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
