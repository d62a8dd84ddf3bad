/* Resizing and sampling: the published grids of every mode, nearest neighbour by recorded results, boxes, padding of
 * sampled points, and every message. */
#include "unit/eval_test.h"

struct op_case {
    int ios;
    const char *body, *expected;
};

static void check_cases(const struct op_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++)
        check_body(cases[i].ios, cases[i].body, "y", cases[i].expected);
}
#define CHECK(cases) check_cases(cases, sizeof(cases) / sizeof *(cases))

#define NAME "[name = string(\"o\")];\n"
#define F3 "tensor<fp32, [?, ?, ?]>"
#define F4 "tensor<fp32, [?, ?, ?, ?]>"
#define F5 "tensor<fp32, [?, ?, ?, ?, ?]>"
#define X2 "tensor<fp32, [1, 1, 2]>([[[0, 1]]])"
#define P22 "tensor<fp32, [1, 1, 2, 2]>([[[[11, 22], [33, 44]]]])"
#define P44 "tensor<fp32, [1, 1, 4, 4]>([[[[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12], [13, 14, 15, 16]]]])"
#define BILINEAR(w, mode)                                                                                              \
    F3 " y = resize_bilinear(x = " X2 ", target_size_height = int32(1), target_size_width = int32(" #w                 \
       "), sampling_mode = "                                                                                           \
       "string(\"" mode "\"))" NAME

static void test_grids(void **state)
{
    (void)state;
    static const struct op_case cases[] = {
        {15, BILINEAR(5, "UNALIGN_CORNERS"), "1x1x5: 0 0.1 0.5 0.9 1"},
        {15, BILINEAR(5, "STRICT_ALIGN_CORNERS"), "1x1x5: 0 0.25 0.5 0.75 1"},
        {15, BILINEAR(5, "ALIGN_CORNERS"), "1x1x5: 0 0.25 0.5 0.75 1"},
        {15, BILINEAR(5, "DEFAULT"), "1x1x5: 0 0.4 0.8 1 1"},
        {15, BILINEAR(5, "OFFSET_CORNERS"), "1x1x5: 0.1 0.3 0.5 0.7 0.9"},
        {15, BILINEAR(6, "OFFSET_CORNERS"), "1x1x6: 0.0833333 0.25 0.416667 0.583333 0.75 0.916667"},
        {15, BILINEAR(2, "OFFSET_CORNERS"), "1x1x2: 0.25 0.75"},
        {15, BILINEAR(1, "STRICT_ALIGN_CORNERS"), "1x1x1: 0"},
        {15, BILINEAR(1, "ALIGN_CORNERS"), "1x1x1: 0.5"},
        {15, BILINEAR(2, "DEFAULT"), "1x1x2: 0 1"},
        {15, BILINEAR(2, "CORNERS"),
         "cannot run op: o (resize_bilinear, iOS15): parameter sampling_mode: expected DEFAULT, STRICT_ALIGN_CORNERS, "
         "ALIGN_CORNERS, OFFSET_CORNERS or UNALIGN_CORNERS, found \"CORNERS\""},
        {15, BILINEAR(0, "DEFAULT"),
         "cannot run op: o (resize_bilinear, iOS15): parameter target_size_width: expected a size from 1 on, found 0"},
        {15, "tensor<fp32, [?]> y = resize_bilinear(x = tensor<fp32, [1]>([1]))" NAME,
         "cannot run op: o (resize_bilinear, iOS15): parameter x: expected rank 3 or more, found shape 1"},
    };
    CHECK(cases);
}

static void test_upsample(void **state)
{
    (void)state;
#define UP(op, h, w, more)                                                                                             \
    F3 " y = " op "(x = " X2 ", scale_factor_height = " h ", scale_factor_width = " w more ")" NAME
    static const struct op_case cases[] = {
        {15, UP("upsample_bilinear", "int32(1)", "int32(3)", ""), "1x1x6: 0 0.2 0.4 0.6 0.8 1"},
        {15, UP("upsample_bilinear", "fp32(1)", "fp32(2.6)", ", align_corners = bool(false)"),
         "1x1x5: 0 0.1 0.5 0.9 1"},
        {16,
         UP("upsample_bilinear", "int32(1)", "int32(3)",
            ", align_corners = bool(false), half_pixel_centers = bool(false)"),
         "1x1x6: 0 0.333333 0.666667 1 1 1"},
        {15, UP("upsample_bilinear", "int32(2)", "int32(1)", ""), "1x2x2: 0 1 0 1"},
        {15, UP("upsample_nearest_neighbor", "fp32(1)", "fp32(1.5)", ""), "1x1x3: 0 0 1"},
        {15, UP("upsample_nearest_neighbor", "int32(1)", "int32(2)", ""), "1x1x4: 0 0 1 1"},
        {15, UP("upsample_nearest_neighbor", "fp32(0.5)", "fp32(1)", ""),
         "cannot run op: o (upsample_nearest_neighbor, iOS15): parameter scale_factor_height: expected a factor that "
         "gives "
         "a size from 1 to 2^31, found 0.5 times 1"},
        {15, UP("upsample_nearest_neighbor", "fp32(1)", "fp32(nan)", ""),
         "cannot run op: o (upsample_nearest_neighbor, iOS15): parameter scale_factor_width: expected a factor that "
         "gives a "
         "size from 1 to 2^31, found nan times 2"},
        {15,
         F3 " y = resize_nearest_neighbor(x = " X2
            ", target_size_height = int32(1), target_size_width = int32(3))" NAME,
         "1x1x3: 0 1 1"},
    };
    CHECK(cases);
}

static void test_resize(void **state)
{
    (void)state;
#define R(shape, n, mode)                                                                                              \
    F3 " y = resize(x = " X2 ", shape = " shape ", resized_dims = uint32(" n "), interpolation_mode = string(\"" mode  \
       "\"))" NAME
#define S3(v) "tensor<int32, [3]>([" v "])"
    static const struct op_case cases[] = {
        {17, R(S3("1, 1, 5"), "2", "LINEAR"), "1x1x5: 0 0.4 0.8 1 1"},
        {17, R(S3("9, 0, 4"), "2", "NEAREST_NEIGHBOR"), "1x1x4: 0 0 1 1"},
        {17, R(S3("2, 2, 0"), "3", "LINEAR"), "2x2x2: 0 1 0 1 0 1 0 1"},
        {17,
         "tensor<int32, [?, ?]> y = resize(x = tensor<int32, [1, 2]>([[10, 20]]), shape = tensor<int32, [1]>([3]), "
         "resized_dims = uint32(1))" NAME,
         "1x3: 10 17 20"},
        {17, R(S3("1, 1, -5"), "2", "LINEAR"),
         "cannot run op: o (resize, iOS17): parameter shape: expected sizes from 0 on, found -5"},
        {17, R(S3("1, 1, 5"), "4", "LINEAR"),
         "cannot run op: o (resize, iOS17): parameter resized_dims: expected at most the 3 values of shape, which has "
         "at "
         "most the rank of x (3), found 4"},
        {17, R(S3("1, 1, 5"), "2", "CUBIC"),
         "cannot run op: o (resize, iOS17): parameter interpolation_mode: expected LINEAR or NEAREST_NEIGHBOR, found "
         "\"CUBIC\""},
        {17,
         F3 " y = resize(x = tensor<fp32, [1, 1, 0]>([[[]]]), shape = tensor<int32, [1]>([2]), resized_dims = "
            "uint32(1))" NAME,
         "cannot run op: o (resize, iOS17): parameter x: expected elements to resize, found shape 1x1x0"},
    };
    CHECK(cases);
}

static void test_boxes(void **state)
{
    (void)state;
#define ROI(b, t, mode, more)                                                                                          \
    F5 " y = crop_resize(x = " P44 ", roi = tensor<fp32, [1, 1, 4, 1, 1]>([[" b "]]), target_height = int32(" t        \
       "), target_width = int32(" t "), sampling_mode = string(\"" mode "\")" more ")" NAME
#define B(a, b, c, d) "[[[" a "]], [[" b "]], [[" c "]], [[" d "]]]"
#define BOX(b, more)                                                                                                   \
    F4 " y = crop_resize(x = " P44 ", boxes = tensor<fp32, [1, 4]>([[" b                                               \
       "]]), target_height = int32(2), target_width = "                                                                \
       "int32(2), sampling_mode = string(\"ALIGN_CORNERS\")" more ")" NAME
    static const struct op_case cases[] = {
        {15, ROI(B("1", "1", "2", "2"), "2", "ALIGN_CORNERS", ""), "1x1x1x2x2: 6 7 10 11"},
        {15, ROI(B("1", "1", "2", "2"), "1", "ALIGN_CORNERS", ""), "1x1x1x1x1: 8.5"},
        {15, ROI(B("2", "2", "1", "1"), "2", "ALIGN_CORNERS", ""), "1x1x1x2x2: 11 10 7 6"},
        {15, ROI(B("2", "2", "1", "1"), "2", "UNALIGN_CORNERS", ", normalized_coordinates = bool(true)"),
         "1x1x1x2x2: 3.5 5.5 11.5 13.5"},
        {15, ROI(B("1", "1", "9", "9"), "2", "ALIGN_CORNERS", ""), "1x1x1x2x2: 6 8 14 16"}, /* clamped */
        {16, ROI(B("1", "1", "9", "9"), "2", "ALIGN_CORNERS", ""), "1x1x1x2x2: 6 0 0 0"},   /* padded */
        {16, ROI(B("1", "1", "9", "9"), "2", "ALIGN_CORNERS", ", pad_value = fp32(7)"), "1x1x1x2x2: 6 7 7 7"},
        {15, ROI(B("2", "2", "4", "4"), "2", "ALIGN_CORNERS", ", spatial_scale = fp32(0.5)"), "1x1x1x2x2: 6 7 10 11"},
        {17, BOX("1, 0, 2, 3", ""), "1x1x2x2: 5 8 9 12"},
        {17, BOX("1, 0, 2, 3", ", box_coordinate_mode = string(\"CORNERS_WIDTH_FIRST\")"), "1x1x2x2: 2 3 14 15"},
        {17, BOX("1, 2, 2, 0", ", box_coordinate_mode = string(\"CENTER_SIZE_HEIGHT_FIRST\")"), "1x1x2x2: 3 3 11 11"},
        {17, BOX("2, 1, 0, 2", ", box_coordinate_mode = string(\"CENTER_SIZE_WIDTH_FIRST\")"), "1x1x2x2: 3 3 11 11"},
        {17, BOX("nan, 0, 2, 3", ""), "1x1x2x2: 0 0 0 0"},
        {17, BOX("1, 0, 2, 3", ", box_coordinate_mode = string(\"X\")"),
         "cannot run op: o (crop_resize, iOS17): parameter box_coordinate_mode: expected CORNERS_ or CENTER_SIZE_ with "
         "HEIGHT_FIRST or WIDTH_FIRST, found \"X\""},
        {17, BOX("1, 0, 2, 3", ", box_indices = tensor<int32, [1]>([1])"),
         "cannot run op: o (crop_resize, iOS17): parameter box_indices: expected an image from 0 to 0, found 1 in box "
         "0"},
        {17, BOX("1, 0, 2, 3", ", box_indices = tensor<int32, [2]>([0, 0])"),
         "cannot run op: o (crop_resize, iOS17): parameter box_indices: expected shape 1, found 2"},
        {17, F4 " y = crop_resize(x = " P44 ", boxes = tensor<fp32, [1, 3]>([[1, 2, 3]]))" NAME,
         "cannot run op: o (crop_resize, iOS17): parameter boxes: expected shape [N, 4], found 1x3"},
        {15, F5 " y = crop_resize(x = " P44 ", roi = tensor<fp32, [1, 4]>([[1, 2, 3, 4]]))" NAME,
         "cannot run op: o (crop_resize, iOS15): parameter roi: expected shape [N, 1, 4 or 5, 1, 1], found 1x4"},
        {15, F5 " y = crop_resize(x = " X2 ", roi = tensor<fp32, [1, 4]>([[1, 2, 3, 4]]))" NAME,
         "cannot run op: o (crop_resize, iOS15): parameter x: expected rank 4, found shape 1x1x2"},
        {17,
         F4 " y = crop_resize(x = " P44
            ", boxes = tensor<fp32, [1, 4]>([[1, 2, 3, 4]]), target_height = int32(0))" NAME,
         "cannot run op: o (crop_resize, iOS17): parameters target_height and target_width: expected sizes from 1 on, "
         "found "
         "0 and 1"},
    };
    CHECK(cases);
}

static void test_crop(void **state)
{
    (void)state;
    static const struct op_case cases[] = {
        {15,
         F4 " y = crop(x = " P44
            ", crop_height = tensor<int32, [2]>([1, 1]), crop_width = tensor<int32, [2]>([0, 3]))" NAME,
         "1x1x2x1: 5 9"},
        {15,
         F4 " y = crop(x = " P44
            ", crop_height = tensor<int32, [2]>([3, 2]), crop_width = tensor<int32, [2]>([0, 3]))" NAME,
         "cannot run op: o (crop, iOS15): parameter crop_height: expected two amounts from 0 on within 4 elements, "
         "found "
         "others"},
        {15, "tensor<fp32, [?]> y = crop(x = tensor<fp32, [1]>([1]))" NAME,
         "cannot run op: o (crop, iOS15): parameter x: expected numbers of rank 3 or more, found shape 1"},
    };
    CHECK(cases);
}

static void test_warps(void **state)
{
    (void)state;
#define AFFINE(m, size)                                                                                                \
    F4 " y = affine(x = " P22 ", transform_matrix = tensor<fp32, [1, 6]>([[" m "]]), output_height = int32(" size      \
       "), output_width = int32(" size                                                                                 \
       "), sampling_mode = string(\"bilinear\"), padding_mode = string(\"constant\"), "                                \
       "padding_value = fp32(0), coordinates_mode = string(\"normalized_minus_one_to_one\"), align_corners = "         \
       "bool(true))" NAME
#define RESAMPLE(points, how, pad, form, align)                                                                        \
    F4 " y = resample(x = " P22 ", coordinates = tensor<fp32, [1, 1, 3, 2]>([[[" points                                \
       "]]]), sampling_mode = string(\"" how "\"), padding_mode = string(\"" pad                                       \
       "\"), padding_value = fp32(5), coordinates_mode = string(\"" form "\"), align_corners = bool(" align "))" NAME
    static const struct op_case cases[] = {
        {15, AFFINE("1, 0, 0, 0, 1, 0", "3"), "1x1x3x3: 11 16.5 22 22 27.5 33 33 38.5 44"},
        {15, AFFINE("1, 0, 2, 0, 1, 0", "2"), "1x1x2x2: 22 0 44 0"},
        {15, AFFINE("0, 1, 0, 1, 0, 0", "2"), "1x1x2x2: 11 33 22 44"},
        {15, AFFINE("1, 0, 0, 0, 1, 0", "0"),
         "cannot run op: o (affine, iOS15): parameters output_height and output_width: expected sizes from 1 on, found "
         "0 "
         "and 0"},
        {15, RESAMPLE("[0, 0], [0.5, 0], [-1, 0]", "bilinear", "constant", "unnormalized", "true"),
         "1x1x1x3: 11 16.5 5"},
        {15, RESAMPLE("[-1, -2], [0, 0], [nan, 0]", "bilinear", "constant", "normalized_minus_one_to_one", "true"),
         "1x1x1x3: 8 27.5 5"},
        {15, RESAMPLE("[-7, 0], [9, 9], [inf, 0]", "bilinear", "border", "unnormalized", "true"), "1x1x1x3: 11 44 22"},
        {15, RESAMPLE("[-1, 0], [2, 0], [3, 0]", "nearest", "reflection", "unnormalized", "true"), "1x1x1x3: 22 11 22"},
        {15, RESAMPLE("[-1, 0], [2, 0], [3, 0]", "nearest", "symmetric", "unnormalized", "true"), "1x1x1x3: 11 22 11"},
        {15, RESAMPLE("[0, 0], [1, 1], [0.5, 0.5]", "bilinear", "border", "normalized_zero_to_one", "false"),
         "1x1x1x3: 11 44 27.5"},
        {15, RESAMPLE("[0, 0], [0, 0], [0, 0]", "cubic", "border", "unnormalized", "false"),
         "cannot run op: o (resample, iOS15): parameter sampling_mode: expected bilinear or nearest, found \"cubic\""},
        {15, RESAMPLE("[0, 0], [0, 0], [0, 0]", "nearest", "wrap", "unnormalized", "false"),
         "cannot run op: o (resample, iOS15): parameter padding_mode: expected constant, border, reflection or "
         "symmetric, "
         "found \"wrap\""},
        {15, RESAMPLE("[0, 0], [0, 0], [0, 0]", "nearest", "border", "polar", "false"),
         "cannot run op: o (resample, iOS15): parameter coordinates_mode: expected normalized_minus_one_to_one, "
         "normalized_zero_to_one or unnormalized, found \"polar\""},
        {15,
         F4 " y = resample(x = " P22 ", coordinates = tensor<fp32, [1, 2, 1, 2]>([[[[9, 9]], [[0, 0]]]]), "
            "coordinates_mode = string(\"unnormalized\"))" NAME,
         "1x1x2x1: 0 11"},
        {15, F4 " y = resample(x = " P22 ", coordinates = " X2 ")" NAME,
         "cannot run op: o (resample, iOS15): parameter coordinates: expected shape [1, height, width, 2], found "
         "1x1x2"},
        {15, F4 " y = affine(x = " P22 ", transform_matrix = tensor<fp32, [1, 2]>([[1, 2]]))" NAME,
         "cannot run op: o (affine, iOS15): parameter transform_matrix: expected shape [1 or 1, 6], found 1x2"},
        {15, F4 " y = resample(x = " X2 ", coordinates = " P22 ")" NAME,
         "cannot run op: o (resample, iOS15): parameter x: expected pixels of rank 4, found shape 1x1x2"},
    };
    CHECK(cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grids), cmocka_unit_test(test_upsample), cmocka_unit_test(test_resize),
        cmocka_unit_test(test_boxes), cmocka_unit_test(test_crop),     cmocka_unit_test(test_warps),
    };
    return cmocka_run_group_tests_name("ops_image", tests, NULL, NULL);
}
