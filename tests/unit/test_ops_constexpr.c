/* Compressed weights: bit packing by golden bytes, blocks, palettes of vectors, sparse forms, and every message. */
#include "unit/eval_test.h"

struct op_case {
    int ios;
    const char *body, *expected;
};

static void check_cases(const struct op_case *cases, size_t n, const char *outputs)
{
    for (size_t i = 0; i < n; i++)
        check_body(cases[i].ios, cases[i].body, outputs, cases[i].expected);
}
#define CHECK(cases) check_cases(cases, sizeof(cases) / sizeof *(cases), "y")
#define CHECK2(cases) check_cases(cases, sizeof(cases) / sizeof *(cases), "m, y")

#define NAME "[name = string(\"o\")];\n"
#define F1 "tensor<fp32, [?]>"
#define F2 "tensor<fp32, [?, ?]>"
#define U8(n, v) "tensor<uint8, [" #n "]>([" v "])"
#define SHAPE(n, v) "tensor<uint32, [" #n "]>([" v "])"
#define FV(n, v) "tensor<fp32, [" #n "]>([" v "])"

/* 8d01: 1,0,1,1,0,0,0,1,1 of one bit; 6301: 3,0,2,1,1 of two; c12f8407: 1,63,2,33,7 of six. */
static void test_streams(void **state)
{
    (void)state;
    static const struct op_case cases[] = {
        {16,
         F1 " y = constexpr_lut_to_dense(indices = " U8(2, "141, 1") ", lut = " FV(2, "0, 1") ", shape = " SHAPE(
             1, "9") ")" NAME,
         "9: 1 0 1 1 0 0 0 1 1"},
        {16,
         F1 " y = constexpr_lut_to_dense(indices = " U8(2, "99, 1") ", lut = " FV(
             4, "0, 10, 20, 30") ", shape = " SHAPE(1, "5") ")" NAME,
         "5: 30 0 20 10 10"},
        {16,
         F1 " y = constexpr_lut_to_dense(indices = " U8(2, "31, 8") ", lut = tensor<fp32, [16]>([0, 1, 2, 3, 4, 5, 6, "
                                                                    "7, 8, 9, 10, 11, 12, 13, 14, 15]), shape = " SHAPE(
                                                                        1, "3") ")" NAME,
         "3: 15 1 8"},
        {16,
         F1 " y = constexpr_lut_to_dense(indices = " U8(1, "1") ", lut = " FV(3, "0, 1, 2") ", shape = " SHAPE(
             1, "1") ")" NAME,
         "cannot run op: o (constexpr_lut_to_dense, iOS16): parameter lut: expected 2, 4, 16, 64 or 256 entries, found "
         "shape 3"},
        {16,
         F1 " y = constexpr_lut_to_dense(indices = " U8(1, "1") ", lut = " FV(2, "0, 1") ", shape = " SHAPE(
             1, "9") ")" NAME,
         "cannot run op: o (constexpr_lut_to_dense, iOS16): parameter indices: expected 2 bytes for 9 elements of 1 "
         "bits, "
         "found shape 1"},
        {16,
         F1 " y = constexpr_lut_to_dense(indices = " U8(1, "1") ", lut = " FV(2, "0, 1") ", shape = " SHAPE(
             3, "4294967295, 4294967295, 4294967295") ")" NAME,
         "cannot run op: o (constexpr_lut_to_dense, iOS16): parameter shape: expected a size that can be addressed, "
         "found "
         "an overflow"},
        {16, F1 " y = constexpr_lut_to_dense(indices = " U8(1, "1") ", lut = " FV(2, "0, 1") ")" NAME,
         "cannot run op: o (constexpr_lut_to_dense, iOS16): parameter shape: expected a value, found none"},
        {16,
         F2 " y = constexpr_sparse_to_dense(nonzero_data = " FV(3, "7, 8, 9") ", mask = " U8(
             1, "44") ", shape = " SHAPE(2, "2, 3") ")" NAME,
         "2x3: 0 0 7 8 0 9"},
        {16,
         F2 " y = constexpr_sparse_to_dense(nonzero_data = " FV(2, "7, 8") ", mask = " U8(1, "44") ", shape = " SHAPE(
             2, "2, 3") ")" NAME,
         "cannot run op: o (constexpr_sparse_to_dense, iOS16): parameter nonzero_data: expected 3 values, one for each "
         "bit "
         "of the mask, found 2"},
    };
    CHECK(cases);
}

static void test_affine(void **state)
{
    (void)state;
#define Q23 "tensor<int8, [2, 3]>([[-128, 0, 127], [1, 2, 3]])"
    static const struct op_case cases[] = {
        {16,
         F2 " y = constexpr_affine_dequantize(quantized_data = " Q23
            ", zero_point = int8(1), scale = fp32(0.5), axis = "
            "int32(0))" NAME,
         "2x3: -64.5 -0.5 63 0 0.5 1"},
        {16,
         F2 " y = constexpr_affine_dequantize(quantized_data = " Q23
            ", zero_point = int8(0), scale = " FV(2, "1, 10") ", axis = int32(-2))" NAME,
         "2x3: -128 0 127 10 20 30"},
        {16,
         F2 " y = constexpr_affine_dequantize(quantized_data = " Q23
            ", zero_point = tensor<int8, [3]>([0, 1, 2]), scale "
            "= fp32(1), axis = int32(1))" NAME,
         "2x3: -128 -1 125 1 1 1"},
        {16,
         F2 " y = constexpr_affine_dequantize(quantized_data = " Q23
            ", zero_point = int8(0), scale = " FV(2, "1, 10") ", axis = int32(1))" NAME,
         "cannot run op: o (constexpr_affine_dequantize, iOS16): parameter scale: expected one value or 3, one for "
         "each "
         "element of the axis, found shape 2"},
        {16,
         F1 " y = constexpr_affine_dequantize(quantized_data = " FV(1, "1") ", zero_point = int8(0), scale = fp32(1), "
                                                                            "axis = int32(0))" NAME,
         "cannot run op: o (constexpr_affine_dequantize, iOS16): data: expected integers, found another type"},
        {16, F1 " y = constexpr_cast(source_val = tensor<fp16, [2]>([1.5, 2]), output_dtype = string(\"fp32\"))" NAME,
         "2: 1.5 2"},
        {16, F1 " y = constexpr_cast(source_val = tensor<fp16, [1]>([1]), output_dtype = string(\"int8\"))" NAME,
         "cannot run op: o (constexpr_cast, iOS16): parameter output_dtype: expected fp32, found \"int8\""},
        {17,
         "tensor<int8, [?]> y = quantize(input = " FV(
             6, "0.5, 1.5, -2.5, 1000, -1000, nan") ", scale = fp32(1), "
                                                    "zero_point = int8(1), output_dtype = string(\"int8\"))" NAME,
         "6: 1 3 -1 127 -128 0"},
        {17,
         "tensor<uint8, [?]> y = quantize(input = " FV(3, "-1, 1, 300") ", scale = fp32(0.5), output_dtype = "
                                                                        "string(\"uint8\"))" NAME,
         "3: 0 2 255"},
        {17,
         "tensor<uint8, [?]> y = quantize(input = " FV(1,
                                                       "1") ", scale = fp32(1), output_dtype = string(\"int4\"))" NAME,
         "cannot run op: o (quantize, iOS17): parameter output_dtype: expected int8 or uint8, found \"int4\""},
        {17,
         F2 " y = dequantize(input = " Q23 ", scale = " FV(3, "1, 2, 3") ", zero_point = tensor<int8, [3]>([0, 0, 7]), "
                                                                         "axis = int32(1))" NAME,
         "2x3: -128 0 360 1 4 -12"},
    };
    CHECK(cases);
}

static void test_blocks(void **state)
{
    (void)state;
#define D24 "tensor<int4, [2, 4]>([[-8, 7, -1, 3], [5, 0, 1, 2]])"
    static const struct op_case cases[] = {
        {18,
         F2 " y = constexpr_blockwise_shift_scale(data = " D24
            ", scale = tensor<fp32, [2, 2]>([[1, 10], [100, 1000]]))" NAME,
         "2x4: -8 7 -10 30 500 0 1000 2000"},
        {18,
         F2 " y = constexpr_blockwise_shift_scale(data = " D24
            ", scale = tensor<fp32, [1, 4]>([[1, 2, 3, 4]]), offset = "
            "tensor<int4, [1, 4]>([[1, 0, 0, -1]]))" NAME,
         "2x4: -9 14 -3 16 4 0 3 12"},
        {18, F2 " y = constexpr_blockwise_shift_scale(data = " D24 ", scale = tensor<fp32, [1, 3]>([[1, 2, 3]]))" NAME,
         "cannot run op: o (constexpr_blockwise_shift_scale, iOS18): parameter scale: expected groups that divide 4 "
         "elements in dimension 1, found 3"},
        {18, F2 " y = constexpr_blockwise_shift_scale(data = " D24 ", scale = " FV(1, "1") ")" NAME,
         "cannot run op: o (constexpr_blockwise_shift_scale, iOS18): parameter scale: expected rank 2 as the data has, "
         "found shape 1"},
        {18,
         F2 " y = constexpr_blockwise_shift_scale(data = " D24 ", scale = tensor<fp32, [1, 1]>([[1]]), offset = "
            "tensor<int4, [1, 2]>([[1, 1]]))" NAME,
         "cannot run op: o (constexpr_blockwise_shift_scale, iOS18): parameter offset: expected the shape of scale, "
         "1x1, "
         "found 1x2"},
        /* dims of 1 between, groups along the first and the last */
        {18,
         "tensor<fp32, [?, ?, ?]> y = constexpr_blockwise_shift_scale(data = tensor<int8, [2, 1, 4]>([[[1, 2, 3, 4]], "
         "[[5, 6, 7, 8]]]), scale = tensor<fp32, [2, 1, 2]>([[[1, 10]], [[100, 1000]]]))" NAME,
         "2x1x4: 1 2 30 40 500 600 7000 8000"},
    };
    CHECK(cases);
}

/* The examples of the published definition: two groups of a scalar palette, one palette of vectors along either axis.
 */
static void test_palettes(void **state)
{
    (void)state;
#define I62 "tensor<uint2, [6, 2]>([[2, 3], [3, 0], [1, 0], [3, 0], [2, 1], [0, 3]])"
#define I22 "tensor<uint1, [2, 2]>([[0, 1], [1, 0]])"
#define V3 "tensor<fp32, [1, 1, 2, 3]>([[[[1, 2, 3], [4, 5, 6]]]])"
    static const struct op_case cases[] = {
        {18,
         F2 " y = constexpr_lut_to_dense(indices = " I62 ", lut = tensor<fp32, [2, 1, 4, 1]>([[[[1], [5], [9], [13]]], "
            "[[[2], [10], [18], [26]]]]))" NAME,
         "6x2: 9 13 13 1 5 1 26 2 18 10 2 26"},
        {18, F2 " y = constexpr_lut_to_dense(indices = " I22 ", lut = " V3 ", vector_axis = int32(0))" NAME,
         "6x2: 1 4 2 5 3 6 4 1 5 2 6 3"},
        {18, F2 " y = constexpr_lut_to_dense(indices = " I22 ", lut = " V3 ", vector_axis = int32(-1))" NAME,
         "2x6: 1 2 3 4 5 6 4 5 6 1 2 3"},
        {18, F2 " y = constexpr_lut_to_dense(indices = " I22 ", lut = " V3 ")" NAME,
         "cannot run op: o (constexpr_lut_to_dense, iOS18): parameter vector_axis: expected an axis for entries of 3 "
         "values, found none"},
        {18, F2 " y = constexpr_lut_to_dense(indices = " I22 ", lut = " FV(2, "0, 1") ")" NAME,
         "cannot run op: o (constexpr_lut_to_dense, iOS18): parameter lut: expected rank 4, two more than the indices, "
         "found shape 2"},
        {18,
         F2 " y = constexpr_lut_to_dense(indices = tensor<uint8, [1, 1]>([[2]]), lut = tensor<fp32, [1, 1, 2, "
            "1]>([[[[1], [2]]]]))" NAME,
         "cannot run op: o (constexpr_lut_to_dense, iOS18): parameter indices: expected values from 0 to 1, found 2"},
    };
    CHECK(cases);
}

static void test_sparse(void **state)
{
    (void)state;
#define M23 "tensor<uint1, [2, 3]>([[1, 0, 1], [0, 1, 0]])"
#define MY "tensor<uint1, [?, ?]> m, " F1 " y = "
    static const struct op_case dense[] = {
        {18, F2 " y = constexpr_sparse_to_dense(nonzero_data = " FV(3, "7, 8, 9") ", mask = " M23 ")" NAME,
         "2x3: 7 0 8 0 9 0"},
        {18, F2 " y = constexpr_sparse_to_dense(nonzero_data = " FV(4, "7, 8, 9, 1") ", mask = " M23 ")" NAME,
         "cannot run op: o (constexpr_sparse_to_dense, iOS18): parameter nonzero_data: expected 3 values, one for each "
         "bit "
         "of the mask, found 4"},
    };
    static const struct op_case pairs[] = {
        {18,
         MY "constexpr_sparse_blockwise_shift_scale(data_mask = " M23
            ", nonzero_data = tensor<int8, [3]>([10, 11, 3]), "
            "scale = tensor<fp32, [1, 3]>([[1, 2, 3]]), offset = tensor<int8, [1, 3]>([[1, 2, 3]]))" NAME,
         "2x3: 1 0 1 0 1 0; 3: 9 24 2"},
        {18,
         MY "constexpr_lut_to_sparse(indices_mask = " M23
            ", indices_nonzero_data = tensor<uint1, [3]>([1, 0, 1]), lut = "
            "tensor<fp32, [1, 1, 2, 1]>([[[[2], [3]]]]))" NAME,
         "2x3: 1 0 1 0 1 0; 3: 3 2 3"},
        {18,
         MY "constexpr_lut_to_sparse(indices_mask = " M23
            ", indices_nonzero_data = tensor<uint1, [3]>([1, 0, 1]), lut = "
            "tensor<fp32, [1, 1, 2, 2]>([[[[2, 20], [3, 30]]]]), vector_axis = int32(0))" NAME,
         "4x3: 1 0 1 1 0 1 0 1 0 0 1 0; 6: 3 2 30 20 3 30"},
        {18,
         MY "constexpr_lut_to_sparse(indices_mask = " M23 ", indices_nonzero_data = tensor<uint1, [2]>([1, 0]), lut = "
            "tensor<fp32, [1, 1, 2, 1]>([[[[2], [3]]]]))" NAME,
         "cannot run op: o (constexpr_lut_to_sparse, iOS18): parameter indices_mask: expected as many ones as there "
         "are "
         "values (shape 2), found 3"},
    };
    CHECK(dense);
    CHECK2(pairs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams),  cmocka_unit_test(test_affine), cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_palettes), cmocka_unit_test(test_sparse),
    };
    return cmocka_run_group_tests_name("ops_constexpr", tests, NULL, NULL);
}
