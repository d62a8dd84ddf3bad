/* Weights of a package: which stay encoded, under what name, and that what stays means what decoding all of it gives.
 */
#include "pass/raise_int.h"
#include "unit/eval_test.h"

struct weight_case {
    int ios;
    const char *body;     /* defines y (and z) */
    const char *encoding; /* NULL: decoded to a dense constant; "": refused */
};

#define NAME "[name = string(\"o\")];\n"
#define D24 "tensor<int4, [2, 4]>([[-8, 7, -1, 3], [5, 0, 1, 2]])"
#define U24 "tensor<uint8, [2, 4]>([[255, 0, 1, 128], [5, 0, 1, 2]])"
#define I24 "tensor<int8, [2, 4]>([[-128, 127, -1, 3], [5, 0, 1, 2]])"
#define S22 "tensor<fp16, [2, 2]>([[0.5, 0.1], [-3, 1000]])"
#define S21 "tensor<fp16, [2, 1]>([[0.3], [0.1]])"
#define I44 "tensor<uint2, [4, 4]>([[0, 1, 2, 3], [3, 2, 1, 0], [1, 1, 1, 1], [0, 0, 3, 3]])"
#define H24 "tensor<fp16, [2, 4]> y = "

static const struct weight_case cases[] = {
    {18, H24 "constexpr_blockwise_shift_scale(data = " D24 ", scale = " S22 ")" NAME, "int4/2"},
    {18,
     H24 "constexpr_blockwise_shift_scale(data = " D24 ", scale = " S22
         ", offset = tensor<int4, [2, 2]>([[1, 0], [-8, 7]]))" NAME,
     "int4/2"},
    {18,
     H24 "constexpr_blockwise_shift_scale(data = " U24 ", scale = " S21
         ", offset = tensor<uint8, [2, 1]>([[7], [200]]))" NAME,
     "uint8/row"},
    {18,
     H24 "constexpr_blockwise_shift_scale(data = " U24 ", scale = " S21
         ", offset = tensor<fp16, [2, 1]>([[0.25], [-3]]))" NAME,
     "uint8/row"},
    {18,
     "tensor<fp32, [2, 4]> y = constexpr_blockwise_shift_scale(data = " I24
     ", scale = tensor<fp32, [1, 1]>([[0.1]]))" NAME,
     "int8/row"},
    {18,
     "tensor<fp16, [1, 2, 1, 4]> y = constexpr_blockwise_shift_scale(data = tensor<int8, [1, 2, 1, 4]>([[[[1, 2, 3, "
     "4]], [[5, 6, 7, 8]]]]), scale = tensor<fp16, [1, 2, 1, 1]>([[[[0.3]], [[0.1]]]]))" NAME,
     "int8/row"},
    {18,
     H24 "constexpr_blockwise_shift_scale(data = tensor<fp16, [2, 4]>([[1, 2, 3, 4], [5, 6, 7, 8]]), scale = " S21
         ")" NAME,
     NULL},
    {16,
     H24 "constexpr_affine_dequantize(quantized_data = " I24
         ", zero_point = int8(3), scale = fp16(0.3), axis = int32(0))" NAME,
     "int8/row"},
    {16,
     H24 "constexpr_affine_dequantize(quantized_data = " U24
         ", zero_point = tensor<uint8, [2]>([7, 255]), scale = fp16(0.3), axis = int32(-2))" NAME,
     "uint8/row"},
    {16,
     H24 "constexpr_affine_dequantize(quantized_data = " I24
         ", zero_point = fp32(0.5), scale = tensor<fp16, [2]>([0.3, 2]), axis = int32(0))" NAME,
     "int8/row"},
    {16,
     H24 "constexpr_affine_dequantize(quantized_data = " I24
         ", zero_point = int8(0), scale = tensor<fp16, [4]>([1, 2, 3, 4]), axis = int32(1))" NAME,
     NULL},
    {16,
     H24
     "constexpr_lut_to_dense(indices = tensor<uint8, [2]>([27, 228]), lut = tensor<fp16, [4]>([-1, 0.3, 5, 7]), shape "
     "= tensor<uint32, [2]>([2, 4]))" NAME,
     "palette2"},
    {18,
     "tensor<fp16, [4, 4]> y = constexpr_lut_to_dense(indices = " I44
     ", lut = tensor<fp16, [2, 1, 4, 1]>([[[[1], [2], [3], [4]]], [[[-1], [0.1], [0.2], [0.3]]]]))" NAME,
     "palette2/2 rows"},
    {18,
     "tensor<fp16, [4, 4]> y = constexpr_lut_to_dense(indices = " I44
     ", lut = tensor<fp16, [1, 2, 4, 1]>([[[[1], [2], [3], [4]], [[-1], [0.1], [0.2], [0.3]]]]))" NAME,
     NULL},
    {18,
     "tensor<fp16, [1, 1, 4, 1]> t = constexpr_blockwise_shift_scale(data = tensor<int8, [1, 1, 4, 1]>([[[[1], [-128], "
     "[3], [127]]]]), scale = tensor<fp16, [1, 1, 1, 1]>([[[[0.3]]]]))[name = string(\"t\")];\n"
     "tensor<fp16, [4, 4]> y = constexpr_lut_to_dense(indices = " I44 ", lut = t)" NAME,
     "palette2"},
    {18,
     H24 "constexpr_sparse_to_dense(nonzero_data = tensor<fp16, [1]>([1]), mask = tensor<uint1, [2, 4]>([[0, 1, 0, 0], "
         "[0, 0, 0, 0]]))" NAME,
     NULL},
    {18,
     H24 "constexpr_sparse_to_dense(nonzero_data = tensor<fp16, [2]>([1, 2]), mask = tensor<uint1, [2, 4]>([[0, 1, 0, "
         "0], [0, 0, 0, 0]]))" NAME,
     ""},
};

/* What no encoding of the planner holds, and the numbers that it stands for. */
#define M24 "tensor<uint1, [2, 4]>([[0, 1, 1, 0], [1, 0, 0, 1]])"
#define DENSE_OF_PAIR "tensor<fp16, [2, 4]> y = constexpr_sparse_to_dense(nonzero_data = values, mask = ones)" NAME
static const struct {
    int ios;
    const char *body;
    float values[8];
} decoded[] = {
    {18,
     H24 "constexpr_sparse_to_dense(nonzero_data = tensor<fp16, [4]>([1, 2, 3, 4]), mask = " M24 ")" NAME,
     {0, 1, 2, 0, 3, 0, 0, 4}},
    {16, /* bits 01100110: from the lowest on */
     H24 "constexpr_sparse_to_dense(nonzero_data = tensor<fp16, [4]>([1, 2, 3, 4]), mask = tensor<uint8, [1]>([102]), "
         "shape = tensor<uint32, [2]>([2, 4]))" NAME,
     {0, 1, 2, 0, 0, 3, 4, 0}},
    {18,
     H24 "constexpr_lut_to_dense(indices = tensor<uint1, [2, 2]>([[0, 1], [1, 0]]), lut = tensor<fp16, [2, 1, 2, "
         "2]>([[[[1, 2], [3, 4]]], [[[5, 6], [7, 8]]]]), vector_axis = int32(1))" NAME,
     {1, 2, 3, 4, 7, 8, 5, 6}},
    {18, /* values of an entry one below the other */
     H24 "constexpr_lut_to_dense(indices = tensor<uint1, [1, 4]>([[0, 1, 1, 0]]), lut = tensor<fp16, [1, 2, 2, "
         "2]>([[[[1, 2], [3, 4]], [[5, 6], [7, 8]]]]), vector_axis = int32(-2))" NAME,
     {1, 3, 7, 5, 2, 4, 8, 6}},
    {18,
     "tensor<uint1, [2, 4]> ones, tensor<fp16, [4]> values = constexpr_sparse_blockwise_shift_scale(nonzero_data = "
     "tensor<int8, [4]>([1, 2, 3, 4]), data_mask = " M24
     ", scale = tensor<fp16, [2, 1]>([[2], [3]]), offset = tensor<int8, [2, 1]>([[0], [1]]))[name = "
     "string(\"p\")];\n" DENSE_OF_PAIR,
     {0, 2, 4, 0, 6, 0, 0, 9}},
    {18,
     "tensor<uint1, [2, 4]> ones, tensor<fp16, [4]> values = constexpr_lut_to_sparse(indices_nonzero_data = "
     "tensor<uint1, [4]>([0, 1, 1, 0]), indices_mask = " M24
     ", lut = tensor<fp16, [2, 1, 2, 1]>([[[[5], [6]]], [[[7], [8]]]]))[name = string(\"p\")];\n" DENSE_OF_PAIR,
     {0, 5, 6, 0, 8, 0, 0, 7}},
    {18,
     "tensor<uint1, [2, 4]> ones, tensor<fp16, [4]> values = constexpr_lut_to_sparse(indices_nonzero_data = "
     "tensor<uint1, [2]>([1, 0]), indices_mask = tensor<uint1, [2, 2]>([[0, 1], [1, 0]]), lut = tensor<fp16, [1, 1, 2, "
     "2]>([[[[5, 6], [7, 8]]]]), vector_axis = int32(1))[name = string(\"p\")];\n" DENSE_OF_PAIR,
     {0, 0, 7, 8, 5, 6, 0, 0}},
};

struct bench {
    struct teg_mil_program *program;
    struct raiser r;
    struct teg_arena arena;
};

static void set_up(struct bench *b, int ios, const char *body, const char *outputs)
{
    struct teg_error err = {0};
    char *const text = program_text(ios, "", body, outputs);
    b->program = parse_program(text, &err);
    free(text);
    teg_arena_init(&b->arena, NULL);
    teg_raise_start(&b->r, b->program, &b->program->functions[0], NULL, &b->arena, NULL);
    assert_int_equal(teg_graph_new(&b->arena, &b->r.graph, NULL), TEG_OK);
}

static void tear_down(struct bench *b)
{
    teg_arena_free(&b->r.scratch);
    teg_arena_free(&b->arena);
    teg_mil_free(b->program);
}

static teg_mil_var_id var_of(const struct bench *b, const char *name)
{
    for (teg_mil_var_id i = 0; i < b->program->n_vars; i++)
        if (b->program->vars[i].name && strcmp(b->program->vars[i].name, name) == 0)
            return i;
    fail_msg("no variable %s", name);
    return 0;
}

/* Rows first … of the value are those of the variable, bit for bit. */
static void check_rows(struct bench *b, const struct teg_value *v, size_t first, const char *name)
{
    size_t n;
    const char *why = "";
    const float *const want = teg_raise_floats(&b->r, var_of(b, name), &n, &why);
    const size_t columns = teg_value_width(v);
    float got[16];
    assert_non_null(want);
    for (size_t row = 0; row < n / columns; row++) {
        if (v->encoding)
            teg_encoding_decode(v->encoding, first + row, 0, columns, got);
        else
            teg_dtype_decode(v->dtype,
                             (const uint8_t *)v->data + (first + row) * columns * teg_dtype_info(v->dtype)->block_bytes,
                             got, columns);
        assert_memory_equal(got, want + row * columns, columns * sizeof *got);
    }
}

static void test_forms(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bench b;
        const char *why = NULL;
        set_up(&b, cases[i].ios, cases[i].body, "y");
        const teg_value_id id = teg_raise_matrix(&b.r, var_of(&b, "y"), false, &why);
        if (cases[i].encoding && !*cases[i].encoding) {
            assert_int_equal(id, TEG_NO_VALUE);
            assert_non_null(why);
        } else {
            assert_int_not_equal(id, TEG_NO_VALUE);
            const struct teg_value *const v = &b.r.graph->values[id];
            if (!cases[i].encoding != !v->encoding)
                fail_msg("case %zu: %s", i, teg_value_type_name(v));
            assert_string_equal(teg_value_type_name(v), cases[i].encoding ? cases[i].encoding : "F16");
            check_rows(&b, v, 0, "y");
        }
        tear_down(&b);
    }
}

static void test_decoded(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof decoded / sizeof *decoded; i++) {
        struct bench b;
        size_t n;
        const char *why = NULL;
        set_up(&b, decoded[i].ios, decoded[i].body, "y");
        const float *const x = teg_raise_floats(&b.r, var_of(&b, "y"), &n, &why);
        if (!x || n != 8)
            fail_msg("case %zu: %s", i, why);
        for (size_t k = 0; k < n; k++)
            if (x[k] != decoded[i].values[k])
                fail_msg("case %zu: value %zu is %g", i, k, (double)x[k]);
        tear_down(&b);
    }
}

/* Parts with arrays of their own; parts that differ too much are decoded. */
static void test_stack(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        H24 "constexpr_blockwise_shift_scale(data = " D24 ", scale = " S22 ")[name = string(\"a\")];\n"
            "tensor<fp16, [2, 4]> z = constexpr_blockwise_shift_scale(data = " U24 ", scale = " S21 ")" NAME,
        H24
        "constexpr_blockwise_shift_scale(data = " D24 ", scale = " S22 ")[name = string(\"a\")];\n"
        "tensor<fp16, [2, 4]> z = const()[name = string(\"z\"), val = tensor<fp16, [2, 4]>([[1, 2, 3, 4], [5, 6, 7, "
        "8]])];\n",
    };
    for (size_t i = 0; i < 2; i++) {
        struct bench b;
        const char *why = NULL;
        set_up(&b, 18, bodies[i], "y, z");
        const teg_mil_var_id parts[] = {var_of(&b, "y"), var_of(&b, "z")};
        const teg_value_id id = teg_raise_stack(&b.r, parts, 2, false, &why);
        assert_int_not_equal(id, TEG_NO_VALUE);
        const struct teg_value *const v = &b.r.graph->values[id];
        assert_int_equal(v->encoding != NULL, i == 0);
        assert_int_equal(v->shape.dims[0], 4);
        check_rows(&b, v, 0, "y");
        check_rows(&b, v, 2, "z");
        tear_down(&b);
    }
}

static void test_graph(void **state)
{
    (void)state;
    struct teg_arena arena;
    struct teg_graph *g;
    struct teg_error err = {0};
    teg_value_id id = 7;
    const struct teg_encoding_part part = {0};
    const struct teg_encoding none = {.n_rows = 0, .columns = 4, .parts = &part, .n_parts = 1};
    teg_arena_init(&arena, NULL);
    assert_int_equal(teg_graph_new(&arena, &g, NULL), TEG_OK);
    assert_int_equal(teg_graph_encoded(g, "t", TEG_DTYPE_F16, &none, &id, &err), TEG_ERR_FORMAT);
    assert_string_equal(
        err.message,
        "cannot use tensor: t: expected dimensions from 1 to 2147483647, found 0 x 4; the file is damaged");
    assert_int_equal(id, 7);
    teg_arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_decoded),
        cmocka_unit_test(test_stack),
        cmocka_unit_test(test_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
