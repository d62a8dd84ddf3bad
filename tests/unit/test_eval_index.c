/* Ops that select: gather, scatter, sorting, lists, random numbers, classes. */
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
#define F1 "tensor<fp32, [?]> "
#define F2 "tensor<fp32, [?, ?]> "
#define F3 "tensor<fp32, [?, ?, ?]> "
#define I1 "tensor<int32, [?]> "
#define I2 "tensor<int32, [?, ?]> "
#define V123 "tensor<fp32, [3]>([1, 2, 3])"
#define M23 "tensor<fp32, [2, 3]>([[1, 2, 3], [4, 5, 6]])"
#define II(n, values) "tensor<int32, [" #n "]>([" values "])"
#define TRUE_ "bool(true)"

static void test_gather(void **state)
{
    (void)state;
    static const struct op_case cases[] = {
        {15, F1 "y = gather(x = " V123 ", indices = " II(2, "2, -3") ")" NAME, "2: 3 1"},
        {15, F1 "y = gather(x = " M23 ", indices = int32(1))" NAME, "3: 4 5 6"},
        {15, F2 "y = gather(x = " M23 ", indices = " II(2, "2, 0") ", axis = int32(-1))" NAME, "2x2: 3 1 6 4"},
        {16,
         F2 "y = gather(x = " M23
            ", indices = tensor<int32, [2, 1]>([[0], [2]]), axis = int32(1), batch_dims = int32(1))" NAME,
         "2x1: 1 6"},
        {15, F1 "y = gather(x = " V123 ", indices = " II(1, "3") ")" NAME,
         "cannot run op: o (gather, iOS15): parameter indices: expected indices into 3 elements, found 3"},
        {17, F1 "y = gather(x = " V123 ", indices = " II(3, "1, -1, 9") ")" NAME, "3: 2 0 0"},
        {17, F1 "y = gather(x = " V123 ", indices = " II(1, "-1") ", validate_indices = " TRUE_ ")" NAME,
         "cannot run op: o (gather, iOS17): parameter indices: expected indices into 3 elements, found -1"},
        {16, F2 "y = gather(x = " M23 ", indices = " II(2, "0, 1") ", batch_dims = int32(1))" NAME,
         "cannot run op: o (gather, iOS16): parameter batch_dims: expected leading dimensions that x of shape 2x3 and "
         "indices "
         "of shape 2 share, found 1"},
        {15, F1 "y = gather(x = string(\"s\"), indices = " II(2, "0, 1") ")" NAME,
         "cannot run op: o (gather, iOS15): parameter x: expected numbers or bools, found strings or a list"},
        {15, F1 "y = gather_nd(x = " M23 ", indices = tensor<int32, [2, 2]>([[0, -1], [1, 0]]))" NAME, "2: 3 4"},
        {15, F2 "y = gather_nd(x = " M23 ", indices = tensor<int32, [1, 1]>([[1]]))" NAME, "1x3: 4 5 6"},
        {16, F1 "y = gather_nd(x = " M23 ", indices = tensor<int32, [2, 1]>([[0], [2]]), batch_dims = int32(1))" NAME,
         "2: 1 6"},
        {17, F1 "y = gather_nd(x = " M23 ", indices = tensor<int32, [2, 2]>([[0, 3], [1, 0]]))" NAME, "2: 0 4"},
        {15, F1 "y = gather_nd(x = " M23 ", indices = tensor<int32, [1, 3]>([[1, 1, 1]]))" NAME,
         "cannot run op: o (gather_nd, iOS15): parameter indices: expected tuples of at most 2 indices, found 3"},
        {15, F1 "y = gather_nd(x = " M23 ", indices = int32(1))" NAME,
         "cannot run op: o (gather_nd, iOS15): parameter indices: expected tuples of indices, found shape scalar"},
        {15,
         F2 "y = gather_along_axis(x = " M23
            ", indices = tensor<int32, [2, 2]>([[0, -1], [1, 1]]), axis = int32(1))" NAME,
         "2x2: 1 3 5 5"},
        {15, F2 "y = gather_along_axis(x = " M23 ", indices = tensor<int32, [1, 3]>([[0, 1, 0]]))" NAME, "1x3: 1 5 3"},
        {15, F2 "y = gather_along_axis(x = " M23 ", indices = tensor<int32, [1, 2]>([[0, 1]]))" NAME,
         "cannot run op: o (gather_along_axis, iOS15): parameter indices: expected the shape of x but along the axis, "
         "found "
         "1x2 and 2x3"},
    };
    CHECK(cases);
}

#define SCATTER(mode)                                                                                                  \
    "y = scatter(data = " V123                                                                                         \
    ", indices = " II(2, "0, 0") ", updates = tensor<fp32, [2]>([5, 2]), mode = string(\"" mode "\"))" NAME

static void test_scatter(void **state)
{
    (void)state;
    static const struct op_case cases[] = {
        {15, F1 SCATTER("add"), "3: 8 2 3"},
        {15, F1 SCATTER("sub"), "3: -6 2 3"},
        {15, F1 SCATTER("mul"), "3: 10 2 3"},
        {15, F1 SCATTER("div"), "3: 0.1 2 3"},
        {15, F1 SCATTER("max"), "3: 5 2 3"},
        {15, F1 SCATTER("min"), "3: 1 2 3"},
        {15, F1 SCATTER("update"), "3: 2 2 3"},
        {15, F1 SCATTER("xor"),
         "cannot run op: o (scatter, iOS15): parameter mode: expected update, add, sub, mul, div, max or min of "
         "numbers, found "
         "xor"},
        {15, F1 "y = scatter(data = " V123 ", indices = " II(1, "-1") ", updates = tensor<fp32, [1]>([5]))" NAME,
         "3: 1 2 8"},
        {17, F1 "y = scatter(data = " V123 ", indices = " II(1, "-1") ", updates = tensor<fp32, [1]>([5]))" NAME,
         "3: 1 2 3"},
        {15,
         I1 "y = scatter(data = " II(2, "7, 8") ", indices = " II(1, "1") ", updates = " II(
             1, "0") ", mode = "
                     "string(\"div\"))" NAME,
         "2: 7 0"},
        {15,
         F2 "y = scatter(data = " M23 ", indices = " II(1, "2") ", updates = tensor<fp32, [2, 1]>([[1], [2]]), axis = "
                                                                "int32(1))" NAME,
         "2x3: 1 2 4 4 5 8"},
        {15, F1 "y = scatter(data = " V123 ", indices = " II(1, "1") ", updates = " V123 ")" NAME,
         "cannot run op: o (scatter, iOS15): parameter updates: expected shape 1, found 3"},
        {15,
         F2 "y = scatter_along_axis(data = " M23
            ", indices = tensor<int32, [2, 1]>([[2], [0]]), updates = tensor<fp32, [2, "
            "1]>([[1], [2]]), axis = int32(1), mode = string(\"update\"))" NAME,
         "2x3: 1 2 1 2 5 6"},
        {15,
         F2 "y = scatter_along_axis(data = " M23 ", indices = tensor<int32, [1, 1]>([[2]]), updates = tensor<fp32, [1, "
            "1]>([[1]]), axis = int32(1))" NAME,
         "cannot run op: o (scatter_along_axis, iOS15): parameter indices: expected the shape of data but along the "
         "axis, found "
         "1x1 and 2x3"},
        {15,
         F2 "y = scatter_nd(data = " M23
            ", indices = tensor<int32, [2, 1]>([[1], [1]]), updates = tensor<fp32, [2, 3]>([[1, "
            "1, 1], [2, 2, 2]]))" NAME,
         "2x3: 1 2 3 7 8 9"},
        {15, F2 "y = scatter_nd(data = " M23 ", indices = int32(1), updates = " V123 ")" NAME,
         "cannot run op: o (scatter_nd, iOS15): parameter indices: expected tuples of 1 to 2 indices, found shape "
         "scalar"},
        {15, "string y = scatter(data = string(\"a\"), indices = int32(1), updates = string(\"b\"))" NAME,
         "cannot run op: o (scatter, iOS15): parameter data: expected numbers or bools, found strings or a list"},
    };
    CHECK(cases);
}

static void test_sorting(void **state)
{
    (void)state;
    static const struct op_case cases[] = {
        {15, I1 "y = argsort(x = tensor<fp32, [4]>([2, 3, nan, 2]))" NAME, "4: 1 0 3 2"},
        {15, I1 "y = argsort(x = tensor<fp32, [4]>([2, 3, nan, 2]), ascending = " TRUE_ ")" NAME, "4: 0 3 1 2"},
        {15, I2 "y = argsort(x = " M23 ", axis = int32(0))" NAME, "2x3: 1 1 1 0 0 0"},
        {15, F2 "y, " I2 "z = topk(x = " M23 ", k = int32(2))" NAME, "2x2: 3 2 6 5"},
        {15, F2 "z, " I2 "y = topk(x = " M23 ", k = int32(2), ascending = " TRUE_ ")" NAME, "2x2: 0 1 0 1"},
        {16, F2 "y = topk(x = " M23 ", k = int32(1), return_indices = bool(false))" NAME, "2x1: 3 6"},
        {17, F2 "y, " I2 "z = topk(x = " M23 ", k = int32(-1))" NAME, "2x3: 3 2 1 6 5 4"},
        {16, F2 "y, " I2 "z = topk(x = " M23 ", k = int32(-1))" NAME,
         "cannot run op: o (topk, iOS16): parameter k: expected at most the 3 elements along the axis, found -1"},
        {16, F2 "y, " I2 "z = topk(x = " M23 ", k = int32(4))" NAME,
         "cannot run op: o (topk, iOS16): parameter k: expected at most the 3 elements along the axis, found 4"},
        {16, F2 "y = topk(x = " M23 ", k = int32(1))" NAME,
         "cannot run op: o (topk, iOS16): outputs: expected at least 2, found 1"},
    };
    CHECK(cases);
}

#define BOXES "tensor<fp32, [1, 3, 4]>([[[5, 5, 2, 2], [5.1, 5, 2, 2], [9, 9, 2, 2]]])"
#define SCORES "tensor<fp32, [1, 3, 2]>([[[1, 0], [0, 2], [0.5, 0.4]]])"
#define NMS(more)                                                                                                      \
    "z0, " F3 "z1, tensor<int32, [?, ?]> y, tensor<int32, [?]> z2 = non_maximum_suppression(boxes = " BOXES            \
    ", scores = " SCORES ", iou_threshold = fp32(0.5), max_boxes = int32(3), score_threshold = " more ")" NAME

static void test_nms(void **state)
{
    (void)state;
    static const struct op_case cases[] = {
        {15, F3 NMS("fp32(-1)"), "1x3: 1 2 -1"},
        {15, F3 NMS("fp32(0.6)"), "1x3: 1 -1 -1"},
        {15, F3 NMS("fp32(9)"), "1x3: 1 -1 -1"}, /* none passes: the best one */
        {15, F3 NMS("fp32(-1), per_class_suppression = " TRUE_), "1x3: 1 0 2"},
        {17,
         F3
         "z0, " F3
         "z1, tensor<int32, [?, ?]> y = non_maximum_suppression(boxes = tensor<fp32, [1, 4, 2]>([[[5, 5.1], [5, "
         "5], [2, 2], [2, 2]]]), scores = tensor<fp32, [1, 1, 2]>([[[1, 2]]]), iou_threshold = fp32(0.5), max_boxes = "
         "int32(2))" NAME,
         "1x2: 1 -1"},
        {17,
         F3 "y, " F3 "z1, tensor<int32, [?, ?]> z2 = non_maximum_suppression(boxes = " BOXES ", scores = " SCORES
            ", iou_threshold = fp32(0.5), max_boxes = int32(2))" NAME,
         "cannot run op: o (non_maximum_suppression, iOS17): parameter boxes: expected four numbers for each of the "
         "scores' "
         "boxes, found shapes 1x3x4 and 1x3x2"},
        {17,
         F3 "y, " F3 "z1, tensor<int32, [?, ?]> z2 = non_maximum_suppression(boxes = " BOXES ", scores = " SCORES
            ", iou_threshold = fp32(0.5), max_boxes = int32(-2))" NAME,
         "cannot run op: o (non_maximum_suppression, iOS17): parameter max_boxes: expected a number from 0, found -2"},
    };
    CHECK(cases);
}

/* ---- random numbers ---- */

static void test_random(void **state)
{
    (void)state;
    /* Seeded: the same values for ever; means of many near their expectation. */
#define MEAN_OF(draw)                                                                                                  \
    F1 "r = " draw ";\nfp32 m = reduce_mean(x = r);\nfp32 k = mul(x = m, y = fp32(10));\nfp32 y = round(x = k);\n"
#define MANY "shape = tensor<int32, [1]>([20000]), seed = int32(7)"
    static const struct op_case cases[] = {
        {15, MEAN_OF("random_bernoulli(" MANY ", prob = fp32(0.3))"), "scalar: 3"},
        {15, MEAN_OF("random_uniform(" MANY ", low = fp32(-1), high = fp32(2))"), "scalar: 5"},
        {15, MEAN_OF("random_normal(" MANY ", mean = fp32(2), stddev = fp32(0.5))"), "scalar: 20"},
        {15, MEAN_OF("random_categorical(x = tensor<fp32, [2]>([0, 0]), size = int32(20000), seed = int32(1))"),
         "scalar: 5"},
        {15, MEAN_OF("random_categorical(x = tensor<fp32, [3]>([0, 1, 0]), mode = string(\"probs\"), size = int32(9))"),
         "scalar: 10"},
        {15, F1 "y = random_uniform(shape = " II(1, "-1") ")" NAME,
         "cannot run op: o (random_uniform, iOS15): parameter shape: expected sizes, found -1 at dimension 0"},
        {15, F1 "y = random_uniform(low = fp32(0))" NAME,
         "cannot run op: o (random_uniform, iOS15): parameter shape: expected a value, found none"},
        {15, F1 "y = random_categorical(x = " V123 ", mode = string(\"odds\"))" NAME,
         "cannot run op: o (random_categorical, iOS15): parameter mode: expected logits or probs of at least one class "
         "and a "
         "size from 0, found odds, shape 3 and size 1"},
    };
    CHECK(cases);
    struct program p = load_good(15, "", F1 "y = random_normal(shape = " II(1, "4") ");\n", "y", NULL);
    char *const first = run_to_text(&p, NULL, NULL, NULL);
    check_run(&p, NULL, NULL, first);
    free(first);
    program_free(&p);
}

/* ---- lists ---- */

#define LIST "list<tensor<fp32, [2]>, ?> "
#define MAKE                                                                                                           \
    LIST "a = make_list(init_length = int32(2), dynamic_length = " TRUE_                                               \
         ", elem_shape = (int32(2)), dtype = string(\"fp32\"));\n" LIST                                                \
         "b = list_write(ls = a, index = int32(2), value = tensor<fp32, [2]>([3, 4]));\n"

static void test_lists(void **state)
{
    (void)state;
    static const struct op_case cases[] = {
        {15, MAKE "int32 y = list_length(ls = b);\n", "scalar: 3"},
        {15, MAKE "int32 y = list_length(ls = a);\n", "scalar: 2"}, /* the list before is unchanged */
        {15, MAKE "tensor<fp32, [2]> y = list_read(ls = b, index = int32(2));\n", "2: 3 4"},
        {15, MAKE "tensor<fp32, [2]> y = list_read(ls = b, index = int32(0));\n", "2: 0 0"},
        {15, MAKE "tensor<fp32, [2]> y = list_read(ls = a, index = int32(0));\n", "2: 0 0"},
        {15, MAKE F1 "y = list_read(ls = a, index = int32(0))" NAME,
         "cannot run op: o (list_read, iOS15): list: expected item 0 to have been written, found an empty list"},
        {15, MAKE F1 "y = list_read(ls = b, index = int32(3))" NAME,
         "cannot run op: o (list_read, iOS15): list: expected an index below 3, found 3"},
        {15, MAKE F2 "y = list_gather(ls = b, indices = " II(2, "2, 0") ");\n", "2x2: 3 4 0 0"},
        {15, MAKE F2 "y = list_gather(ls = a, indices = " II(1, "0") ")" NAME,
         "cannot run op: o (list_gather, iOS15): list: expected an item of at most 7 dimensions, found none"},
        {15,
         MAKE LIST "d = list_scatter(ls = b, indices = " II(
             2, "0, 3") ", value = tensor<fp32, [2, 2]>([[5, 6], [7, 8]]));\n" F2
                        "y = list_gather(ls = d, indices = " II(3, "0, 2, 3") ");\n",
         "3x2: 5 6 3 4 7 8"},
        {15,
         MAKE LIST "d = list_scatter(ls = b, indices = " II(
             1, "0") ", value = tensor<fp32, [2, 2]>([[5, 6], [7, 8]]))" NAME "int32 y = list_length(ls = d);\n",
         "cannot run op: o (list_scatter, iOS15): parameter value: expected one item for each of 1 indices, found "
         "shape 2x2"},
        {15,
         MAKE LIST "d = list_write(ls = b, index = int32(-1), value = tensor<fp32, [2]>([5, 6]))" NAME
                   "int32 y = list_length(ls = d);\n",
         "cannot run op: o (list_write, iOS15): list: expected an index below 16777216, found -1"},
        {15,
         MAKE LIST "d = list_write(ls = b, index = int32(0), value = " V123 ");\n" F2
                   "y = list_gather(ls = d, indices = " II(2, "0, 2") ")" NAME,
         "cannot run op: o (list_gather, iOS15): list: expected items of one shape, found 3 and 2"},
        {15, MAKE LIST "d = list_write(ls = b, index = int32(0), value = b)" NAME "int32 y = list_length(ls = d);\n",
         "cannot run op: o (list_write, iOS15): parameter value: expected a tensor, found a list"},
        {15, LIST "d = make_list(init_length = int32(-1))" NAME "int32 y = list_length(ls = d);\n",
         "cannot run op: o (make_list, iOS15): parameter init_length: expected 0 to 16777216, found -1"},
        {15, "int32 y = list_length(ls = " V123 ")" NAME,
         "cannot run op: o (list_length, iOS15): parameter ls: expected a list, found floats"},
    };
    CHECK(cases);
}

/* ---- classify ---- */

#define CLASSES "list<string, 2>((\"cat\", \"dog\"))"

static void test_classify(void **state)
{
    (void)state;
    static const struct op_case cases[] = {
        {15,
         "string y, dict<string, fp64> p = classify(probabilities = tensor<fp32, [2]>([0.2, 0.8]), classes = " CLASSES
         ")" NAME,
         "scalar: dog"},
        {15,
         "string z, dict<string, fp64> y = classify(probabilities = tensor<fp32, [2]>([0.2, 0.8]), classes = " CLASSES
         ")" NAME,
         "list: [ [2: cat dog2: 0.2 0.8"},
        {15, "string y, dict<string, fp64> p = classify(probabilities = " V123 ", classes = " CLASSES ")" NAME,
         "cannot run op: o (classify, iOS15): parameter classes: expected a label for each of 3 probabilities, found "
         "2"},
        {15,
         "int64 y, dict<int64, fp64> p = classify(probabilities = tensor<fp32, [2]>([0.2, 0.8]), classes = list<int64, "
         "2>((7, 4294967303)))" NAME,
         "cannot run op: o (classify, iOS15): parameter classes: expected labels of less than 32 bits, found a larger "
         "number as label 1; export the model with strings as labels"},
    };
    CHECK(cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gather),   cmocka_unit_test(test_scatter), cmocka_unit_test(test_sorting),
        cmocka_unit_test(test_nms),      cmocka_unit_test(test_random),  cmocka_unit_test(test_lists),
        cmocka_unit_test(test_classify),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
