/* tests/unit/test_dtype.c: element types: sizes, names, decoding bit for bit as an independent implementation does
 * (tests/data/dtype_vectors.bin, see tools/make_dtype_vectors.py), and half-precision conversions over all values. */
#include "dtype/dtype.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* Same bits, or both NaN: payloads differ between CPUs. */
static bool same(float a, float b)
{
    return bits_of(a) == bits_of(b) || (isnan(a) && isnan(b));
}

struct file {
    unsigned char *bytes;
    size_t size;
};

static struct file read_file(const char *path)
{
    struct file file = {NULL, 0};
    FILE *const f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    file.size = (size_t)ftell(f);
    rewind(f);
    file.bytes = malloc(file.size);
    assert_non_null(file.bytes);
    assert_int_equal(fread(file.bytes, 1, file.size, f), file.size);
    fclose(f);
    return file;
}

static bool find_dtype(const char *name, enum teg_dtype *dtype)
{
    for (int i = 0; i < TEG_DTYPE_COUNT; i++) {
        if (strcmp(teg_dtype_info((enum teg_dtype)i)->name, name) == 0) {
            *dtype = (enum teg_dtype)i;
            return true;
        }
    }
    return false;
}

static void decodes_as_the_independent_implementation(void **state)
{
    (void)state;
    const struct file file = read_file(TEST_DATA "/dtype_vectors.bin");
    bool seen[TEG_DTYPE_COUNT] = {false};
    for (size_t at = 0; at < file.size;) {
        char name[9] = {0};
        uint32_t n_elements, n_bytes;
        memcpy(name, file.bytes + at, 8);
        memcpy(&n_elements, file.bytes + at + 8, 4);
        memcpy(&n_bytes, file.bytes + at + 12, 4);
        const unsigned char *const data = file.bytes + at + 16;
        enum teg_dtype dtype = TEG_DTYPE_COUNT;
        assert_true(find_dtype(name, &dtype));
        size_t row_bytes;
        assert_true(teg_dtype_row_bytes(dtype, n_elements, &row_bytes));
        assert_int_equal(row_bytes, n_bytes);

        float *const values = malloc(n_elements * sizeof *values);
        unsigned char *const unaligned = malloc(n_bytes + 1);
        assert_non_null(values);
        assert_non_null(unaligned);
        memcpy(unaligned + 1, data, n_bytes);
        teg_dtype_decode(dtype, unaligned + 1, values, n_elements);
        for (size_t i = 0; i < n_elements; i++) {
            float expected;
            memcpy(&expected, data + n_bytes + 4 * i, 4);
            if (!same(values[i], expected))
                fail_msg("%s element %zu: expected %a, found %a", name, i, (double)expected, (double)values[i]);
        }
        free(values);
        free(unaligned);
        seen[dtype] = true;
        at += 16 + n_bytes + 4 * (size_t)n_elements;
    }
    for (int i = 0; i < TEG_DTYPE_COUNT; i++)
        if (!seen[i])
            fail_msg("no vector for %s", teg_dtype_info((enum teg_dtype)i)->name);
    free(file.bytes);
}

static void decodes_hand_made_blocks(void **state)
{
    (void)state;
    float y[256];
    const unsigned char q4_0[18] = {0x00, 0x38, 0x0f, 0xf0}; /* d = 0.5 */
    teg_dtype_decode(TEG_DTYPE_Q4_0, q4_0, y, 32);
    assert_true(y[0] == 3.5f && y[1] == -4.0f && y[16] == -4.0f && y[17] == 3.5f);
    const unsigned char mxfp4[17] = {127, 0x72}; /* scale 1: 2 is 1.0, 7 is 6.0 */
    teg_dtype_decode(TEG_DTYPE_MXFP4, mxfp4, y, 32);
    assert_true(y[0] == 1.0f && y[16] == 6.0f && y[1] == 0.0f);
    teg_dtype_decode(TEG_DTYPE_Q4_0, q4_0, y, 0);
}

static void row_bytes(void **state)
{
    (void)state;
    size_t n = 77;
    assert_true(teg_dtype_row_bytes(TEG_DTYPE_Q4_K, 512, &n));
    assert_int_equal(n, 288);
    assert_true(teg_dtype_row_bytes(TEG_DTYPE_F32, 0, &n));
    assert_int_equal(n, 0);
    n = 77;
    assert_false(teg_dtype_row_bytes(TEG_DTYPE_Q4_K, 511, &n));
    assert_false(teg_dtype_row_bytes(TEG_DTYPE_F64, UINT64_MAX / 2, &n));
    assert_int_equal(n, 77);
}

static void names_and_numbers(void **state)
{
    (void)state;
    enum teg_dtype dtype = TEG_DTYPE_F32;
    assert_true(teg_dtype_from_gguf(12, &dtype));
    assert_int_equal(dtype, TEG_DTYPE_Q4_K);
    assert_false(teg_dtype_from_gguf(16, &dtype));
    assert_false(teg_dtype_from_gguf(UINT32_MAX, &dtype));
    assert_int_equal(dtype, TEG_DTYPE_Q4_K);
    assert_string_equal(teg_dtype_gguf_name(16), "IQ2_XXS");
    assert_null(teg_dtype_gguf_name(4));
    assert_null(teg_dtype_gguf_name(40));
    for (int i = 0; i < TEG_DTYPE_COUNT; i++) {
        const struct teg_dtype_info *const info = teg_dtype_info((enum teg_dtype)i);
        if (info->gguf_type < 0)
            continue;
        assert_string_equal(teg_dtype_gguf_name((uint32_t)info->gguf_type), info->name);
        assert_true(teg_dtype_from_gguf((uint32_t)info->gguf_type, &dtype));
        assert_int_equal(dtype, i);
    }
}

/* Value of a half, by definition. */
static double half_value(uint32_t bits)
{
    const double sign = bits & 0x8000 ? -1 : 1;
    const int exponent = (int)(bits >> 10 & 31), mantissa = (int)(bits & 0x3ff);
    if (exponent == 0)
        return sign * ldexp(mantissa, -24);
    return sign * ldexp(1024 + mantissa, exponent - 25);
}

static void all_halves(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        const float f = teg_f16_to_f32((uint16_t)h);
        if ((h & 0x7c00) == 0x7c00) {
            assert_true((h & 0x3ff) ? isnan(f) : isinf(f));
            assert_int_equal(signbit(f) != 0, h >> 15);
        } else {
            assert_true((double)f == half_value(h));
            assert_int_equal(bits_of(f) >> 31, h >> 15);
        }
        if (!isnan(f))
            assert_int_equal(teg_f32_to_f16(f), h);
        else
            assert_int_equal(teg_f32_to_f16(f) & 0x7e00, 0x7e00);
    }
}

/* Between neighbours: below the middle, the middle (to even), above the middle. */
static void half_rounding(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7bff; h++) {
        const double low = half_value(h), high = half_value(h + 1), middle = (low + high) / 2;
        assert_int_equal(teg_f32_to_f16((float)middle), h + (h & 1));
        assert_int_equal(teg_f32_to_f16(nextafterf((float)middle, 0)), h);
        assert_int_equal(teg_f32_to_f16(-nextafterf((float)middle, INFINITY)), (h + 1) | 0x8000);
    }
    assert_int_equal(teg_f32_to_f16(65519.996f), 0x7bff);
    assert_int_equal(teg_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(teg_f32_to_f16(1e30f), 0x7c00);
    assert_int_equal(teg_f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(teg_f32_to_f16(0x1p-149f), 0);
    assert_int_equal(teg_f32_to_f16(-0x1p-25f), 0x8000);
    assert_int_equal(teg_f32_to_f16(0x1.000002p-25f), 1);
}

static void bf16(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        const float f = teg_bf16_to_f32((uint16_t)h);
        if (isnan(f)) {
            assert_true((teg_f32_to_bf16(f) & 0x7fff) > 0x7f80);
            continue;
        }
        assert_int_equal(teg_f32_to_bf16(f), h);
        if (isinf(f))
            continue;
        float between;
        uint32_t bits = h << 16 | 0x8000;
        memcpy(&between, &bits, 4);
        assert_int_equal(teg_f32_to_bf16(between), h + (h & 1));
        bits--;
        memcpy(&between, &bits, 4);
        assert_int_equal(teg_f32_to_bf16(between), h);
        bits += 2;
        memcpy(&between, &bits, 4);
        assert_int_equal(teg_f32_to_bf16(between), h + 1);
    }
    float nan_low;
    const uint32_t bits = 0x7f800001; /* a NaN whose payload lies in the bits that are cut */
    memcpy(&nan_low, &bits, 4);
    assert_true((teg_f32_to_bf16(nan_low) & 0x7fff) > 0x7f80);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decodes_as_the_independent_implementation),
        cmocka_unit_test(decodes_hand_made_blocks),
        cmocka_unit_test(row_bytes),
        cmocka_unit_test(names_and_numbers),
        cmocka_unit_test(all_halves),
        cmocka_unit_test(half_rounding),
        cmocka_unit_test(bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
