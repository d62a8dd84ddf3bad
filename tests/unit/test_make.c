/* Programs made by calls: what each rule infers, defaults that are written out, names, constants that are shared, and
 * every sentence for an op that does not fit. */
#include "unit/mil_test.h"

#include "mil/make.h"

#define NONE ((struct teg_mil_bind){NULL, 0})
#define ARGS(...) ((const struct teg_mil_bind[]){__VA_ARGS__, NONE})

static struct teg_mil_maker *new_maker(uint32_t opset)
{
    struct teg_mil_maker *m = NULL;
    assert_int_equal(teg_mil_make_new(opset, NULL, &m, NULL), TEG_OK);
    teg_mil_make_function(m, "main", opset);
    return m;
}

/* "fp16[2,?,8]" is an input of that type; ? spans 1 to 100. */
static teg_mil_var_id input(struct teg_mil_maker *m, const char *name, const char *text)
{
    struct teg_mil_feature f = {.name = name, .description = "", .kind = TEG_MIL_FEATURE_ARRAY};
    const char *const bracket = strchr(text, '[');
    assert_true(teg_mil_dtype_by_name((struct teg_span){(const uint8_t *)text, (size_t)(bracket - text)}, &f.dtype));
    for (const char *p = bracket; *p != ']' && p[1] != ']'; p = strpbrk(p + 1, ",]")) {
        const bool is_open = p[1] == '?';
        f.shape[f.rank] = is_open ? 7 : strtoll(p + 1, NULL, 10);
        f.lower[f.rank] = is_open ? 1 : f.shape[f.rank];
        f.upper[f.rank] = is_open ? 100 : f.shape[f.rank];
        f.rank++;
    }
    return teg_mil_make_input(m, &f);
}

static void expect_type(const struct teg_mil_maker *m, teg_mil_var_id var, const char *text)
{
    struct teg_buf out = {0};
    assert_int_not_equal(var, TEG_MIL_NO_VAR);
    teg_mil_print_type(&out, teg_mil_make_type(m, var));
    teg_buf_append(&out, "", 1);
    assert_string_equal(out.bytes, text);
    teg_buf_free(&out);
}

/* ---- rules ---- */

/* x, y, z are inputs; extra parameters are ints "axes=1,2", one int "axis:1", a bool "keep!1", a word "dtype'fp32". */
struct rule_case {
    const char *op, *names, *x, *y, *z, *extra, *result;
};

static const struct rule_case cases[] = {
    {"add", "x y", "fp16[2,1,8]", "fp16[3,1]", NULL, "", "tensor<fp16, [2, 3, 8]>"},
    {"mul", "x y", "fp16[1,?]", "fp16[4,5]", NULL, "", "tensor<fp16, [4, 5]>"},
    {"maximum", "x y", "int32[?]", "int32[1]", NULL, "", "tensor<int32, [?]>"},
    {"less_equal", "x y", "int32[1,9]", "int32[4,1]", NULL, "", "tensor<bool, [4, 9]>"},
    {"silu", "x", "fp16[1,?,8]", NULL, NULL, "", "tensor<fp16, [1, ?, 8]>"},
    {"rsqrt", "x", "fp16[2]", NULL, NULL, "", "tensor<fp16, [2]>"},
    {"gelu", "x", "fp32[2]", NULL, NULL, "", "tensor<fp32, [2]>"},
    {"softmax", "x", "fp16[2,3]", NULL, NULL, "axis:-1", "tensor<fp16, [2, 3]>"},
    {"layer_norm", "x", "fp16[2,3]", NULL, NULL, "axes=-1", "tensor<fp16, [2, 3]>"},
    {"cast", "x", "fp16[2,3]", NULL, NULL, "dtype'fp32", "tensor<fp32, [2, 3]>"},
    {"reduce_sum", "x", "fp16[2,3,4]", NULL, NULL, "axes=1,-1", "tensor<fp16, [2]>"},
    {"reduce_max", "x", "fp16[2,3,4]", NULL, NULL, "axes=-1 keep_dims!1", "tensor<fp16, [2, 3, 1]>"},
    {"reduce_mean", "x", "fp16[2,3,4]", NULL, NULL, "", "fp16"},
    {"reduce_argmax", "x", "fp16[2,3]", NULL, NULL, "axis:1", "tensor<int32, [2]>"},
    {"matmul", "x y", "fp16[1,4,?,8]", "fp16[1,1,5,8]", NULL, "transpose_y!1", "tensor<fp16, [1, 4, ?, 5]>"},
    {"matmul", "x y", "fp16[3,2]", "fp16[3,7]", NULL, "transpose_x!1", "tensor<fp16, [2, 7]>"},
    {"reshape", "x", "fp16[2,3,4]", NULL, NULL, "shape=1,-1,4", "tensor<fp16, [1, 6, 4]>"},
    {"reshape", "x", "fp16[1,?,8]", NULL, NULL, "shape=1,-1,2,4", "tensor<fp16, [1, ?, 2, 4]>"},
    {"transpose", "x", "fp16[2,3,4]", NULL, NULL, "perm=2,0,-2", "tensor<fp16, [4, 2, 3]>"},
    {"expand_dims", "x", "fp16[2,3]", NULL, NULL, "axes=0,-1", "tensor<fp16, [1, 2, 3, 1]>"},
    {"squeeze", "x", "fp16[1,3,1]", NULL, NULL, "axes=0", "tensor<fp16, [3, 1]>"},
    {"squeeze", "x", "fp16[1,3,1]", NULL, NULL, "", "tensor<fp16, [3]>"},
    {"concat", "values values values", "fp16[2,3]", "fp16[2,?]", "fp16[2,5]", "axis:1", "tensor<fp16, [2, ?]>"},
    {"concat", "values values", "fp16[2,?]", "fp16[4,5]", NULL, "axis:0", "tensor<fp16, [6, 5]>"},
    {"stack", "values values", "fp16[2,3]", "fp16[2,3]", NULL, "axis:1", "tensor<fp16, [2, 2, 3]>"},
    {"slice_by_index", "x", "fp16[8,9]", NULL, NULL, "begin=1,0 end=-2,4", "tensor<fp16, [5, 4]>"},
    {"slice_by_index", "x", "fp16[8,9]", NULL, NULL, "begin=-1,3 end=0,0 end_mask=1,1 squeeze_mask=1,0",
     "tensor<fp16, [6]>"},
    {"slice_by_index", "x", "fp16[1,?,8]", NULL, NULL, "begin=0,-1,0 end=1,0,8 end_mask=0,1,0",
     "tensor<fp16, [1, 1, 8]>"},
    {"slice_by_index", "x", "fp16[9]", NULL, NULL, "begin=0 end=9 stride=2", "tensor<fp16, [5]>"},
    {"slice_by_size", "x", "fp16[8,9]", NULL, NULL, "begin=1,-3 size=2,-1", "tensor<fp16, [2, 3]>"},
    {"tile", "x", "fp16[2,3]", NULL, NULL, "reps=1,4", "tensor<fp16, [2, 12]>"},
    {"pad", "x", "fp16[2,3]", NULL, NULL, "pad=1,2", "tensor<fp16, [2, 6]>"},
    {"shape", "x", "fp16[1,?,8]", NULL, NULL, "", "tensor<int32, [3]>"},
    {"gather", "x indices", "fp16[100,8]", "int32[1,?]", NULL, "axis:0", "tensor<fp16, [1, ?, 8]>"},
    {"gather", "x indices", "fp16[3,4,5]", "int32[2]", NULL, "axis:1", "tensor<fp16, [3, 2, 5]>"},
    {"gather_along_axis", "x indices", "fp16[3,4]", "int32[3,2]", NULL, "axis:1", "tensor<fp16, [3, 2]>"},
    {"conv", "x weight", "fp16[1,8,1,?]", "fp16[16,8,1,1]", NULL, "", "tensor<fp16, [1, 16, 1, ?]>"},
    {"conv", "x weight", "fp16[1,8,9,9]", "fp16[4,4,3,3]", NULL, "groups:2 strides=2,2", "tensor<fp16, [1, 4, 4, 4]>"},
    {"scaled_dot_product_attention", "query key value", "fp16[1,4,?,8]", "fp16[1,4,9,8]", "fp16[1,4,9,6]", "",
     "tensor<fp16, [1, 4, ?, 6]>"},
    {"range_1d", "", NULL, NULL, NULL, "start:2 end:9 step:3", "tensor<int32, [3]>"},
    {"fill", "", NULL, NULL, NULL, "shape=2,3", "tensor<fp32, [2, 3]>"},
};

/* Adds the parameters that `extra` writes. */
static size_t add_extra(struct teg_mil_maker *m, const char *extra, struct teg_mil_bind *args, size_t n,
                        char names[8][32])
{
    for (size_t k = 0; *extra; k++) {
        const size_t length = strcspn(extra, "=:!'");
        const char kind = extra[length];
        const char *p = extra + length + 1;
        memcpy(names[k], extra, length);
        names[k][length] = '\0';
        int32_t ints[8];
        uint8_t bools[8];
        uint32_t count = 0;
        char word[16] = "";
        if (kind == '\'')
            memcpy(word, p, strcspn(p, " "));
        for (char *end; kind != '\'' && *p && *p != ' '; p = *end == ',' ? end + 1 : end) {
            ints[count] = (int32_t)strtol(p, &end, 10);
            bools[count] = ints[count] != 0;
            count++;
        }
        const int64_t dims = count;
        const bool is_mask = strstr(names[k], "_mask") != NULL;
        args[n++] =
            (struct teg_mil_bind){names[k], kind == '\''  ? teg_mil_make_string(m, word)
                                            : kind == ':' ? teg_mil_make_int(m, ints[0])
                                            : kind == '!' ? teg_mil_make_bool(m, ints[0])
                                            : is_mask     ? teg_mil_make_const(m, NULL, TEG_MIL_BOOL, 1, &dims, bools)
                                                          : teg_mil_make_ints(m, count, ints)};
        extra += strcspn(extra, " ");
        extra += *extra == ' ';
    }
    return n;
}

static teg_mil_var_id make_case(struct teg_mil_maker *m, const struct rule_case *c)
{
    const char *const types[] = {c->x, c->y, c->z}, *const inputs[] = {"x", "y", "z"};
    struct teg_mil_bind args[16] = {{0}};
    char names[8][32], own[3][32];
    size_t n = 0;
    const char *p = c->names;
    for (size_t i = 0; i < 3 && types[i]; i++) {
        const size_t length = strcspn(p, " ");
        memcpy(own[i], p, length);
        own[i][length] = '\0';
        p += length + (p[length] == ' ');
        args[n++] = (struct teg_mil_bind){own[i], input(m, inputs[i], types[i])};
    }
    n = add_extra(m, c->extra, args, n, names);
    args[n] = NONE;
    return teg_mil_make_op(m, c->op, "result", args);
}

static void test_rules(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct teg_mil_maker *const m = new_maker(9);
        const teg_mil_var_id var = make_case(m, &cases[i]);
        struct teg_mil_program *program = NULL;
        struct teg_error err = {0};
        if (var != TEG_MIL_NO_VAR) {
            expect_type(m, var, cases[i].result);
            teg_mil_make_output(m, "out", var);
        }
        if (teg_mil_make_end(m, &program, &err) != TEG_OK)
            fail_msg("case %zu (%s): %s", i, cases[i].op, err.message);
        teg_mil_free(program);
    }
}

/* Weights in parts: what they stand for. */
static void test_packed(void **state)
{
    (void)state;
    static const uint8_t zeros[4096] = {0};
    struct teg_mil_maker *const m = new_maker(9);
    struct teg_mil_program *program = NULL;
#define CONST(dtype, ...)                                                                                              \
    teg_mil_make_const(m, "c", TEG_MIL_##dtype, sizeof((int64_t[]){__VA_ARGS__}) / 8, (int64_t[]){__VA_ARGS__}, zeros)
    const teg_mil_var_id q = teg_mil_make_op(
        m, "constexpr_blockwise_shift_scale", "q",
        ARGS({"data", CONST(INT4, 8, 32)}, {"scale", CONST(FP16, 8, 2)}, {"offset", CONST(INT4, 8, 2)}));
    expect_type(m, q, "tensor<fp16, [8, 32]>");
    expect_type(m,
                teg_mil_make_op(m, "constexpr_lut_to_dense", "l",
                                ARGS({"indices", CONST(UINT4, 8, 16)}, {"lut", CONST(FP16, 2, 1, 16, 2)},
                                     {"vector_axis", teg_mil_make_int(m, 1)})),
                "tensor<fp16, [8, 32]>");
    expect_type(m,
                teg_mil_make_op(m, "constexpr_sparse_to_dense", "s",
                                ARGS({"nonzero_data", CONST(FP16, 5)}, {"mask", CONST(UINT1, 8, 16)})),
                "tensor<fp16, [8, 16]>");
    teg_mil_var_id two[2];
    assert_int_equal(
        teg_mil_make_ops(m, "constexpr_lut_to_sparse", "ls",
                         ARGS({"indices_mask", CONST(UINT1, 8, 16)}, {"indices_nonzero_data", CONST(UINT4, 5)},
                              {"lut", CONST(FP16, 1, 1, 16, 1)}),
                         2, two),
        2);
    expect_type(m, two[1], "tensor<fp16, [5]>");
    assert_int_equal(teg_mil_make_ops(m, "constexpr_sparse_blockwise_shift_scale", "ss",
                                      ARGS({"data_mask", CONST(UINT1, 8, 16)}, {"nonzero_data", CONST(INT8, 5)},
                                           {"scale", CONST(FP16, 8, 1)}),
                                      2, two),
                     2);
    expect_type(m, two[0], "tensor<uint1, [8, 16]>");
    teg_mil_make_output(m, "out",
                        teg_mil_make_op(m, "linear", "y", ARGS({"x", input(m, "x", "fp16[1,?,32]")}, {"weight", q})));
    struct teg_error err = {0};
    if (teg_mil_make_end(m, &program, &err) != TEG_OK)
        fail_msg("%s", err.message);
    /* constants of constexpr ops have no names of their own, the bias is written out */
    const struct teg_mil_op *const op = &program->functions[0].block.ops[0];
    assert_string_equal(teg_mil_arg_var(program, op, "data")->name, "");
    const struct teg_mil_op *const linear = &program->functions[0].block.ops[program->functions[0].block.n_ops - 1];
    assert_int_equal(teg_mil_arg_var(program, linear, "bias")->type.dims[0], 8);
    teg_mil_free(program);
}

/* Numbers that flow through shape arithmetic sharpen the types. */
static void test_known(void **state)
{
    (void)state;
    struct teg_mil_maker *const m = new_maker(9);
    const teg_mil_var_id x = input(m, "x", "fp16[2,?,8]");
    const teg_mil_var_id shape = teg_mil_make_op(m, "shape", "s", ARGS({"x", x}));
    const teg_mil_var_id rows =
        teg_mil_make_op(m, "gather", "rows", ARGS({"x", shape}, {"indices", teg_mil_make_int(m, 0)}));
    const teg_mil_var_id twice = teg_mil_make_op(m, "mul", "twice", ARGS({"x", rows}, {"y", teg_mil_make_int(m, 2)}));
    const teg_mil_var_id vector =
        teg_mil_make_op(m, "expand_dims", "v", ARGS({"x", twice}, {"axes", teg_mil_make_ints(m, 1, (int32_t[]){0})}));
    const teg_mil_var_id to =
        teg_mil_make_op(m, "concat", "to",
                        ARGS({"values", vector}, {"values", teg_mil_make_ints(m, 2, (int32_t[]){-1, 4})},
                             {"axis", teg_mil_make_int(m, 0)}));
    expect_type(m, teg_mil_make_op(m, "reshape", "r", ARGS({"x", x}, {"shape", to})), "tensor<fp16, [4, ?, 4]>");
    assert_int_equal(teg_mil_make_end(m, NULL, NULL), TEG_OK);
}

/* ---- names, sharing, functions ---- */

static void test_program(void **state)
{
    (void)state;
    struct teg_mil_maker *m = NULL;
    struct teg_mil_program *program = NULL;
    struct teg_error err = {0};
    const int64_t slots[] = {4, 2};
    assert_int_equal(teg_mil_make_new(9, NULL, &m, NULL), TEG_OK);
    static const char *const names[] = {"second", "first"};
    for (size_t i = 0; i < 2; i++) {
        teg_mil_make_function(m, names[i], 9);
        const teg_mil_var_id x = input(m, "x", "fp16[4,2]");
        const teg_mil_var_id cache = teg_mil_make_state(m, "cache", TEG_MIL_FP16, 2, slots);
        const teg_mil_var_id old = teg_mil_make_op(m, "read_state", "out", ARGS({"input", cache}));
        const teg_mil_var_id sum = teg_mil_make_op(m, "add", "a.b/c", ARGS({"x", old}, {"y", x}));
        char fleeting[] = "fleeting"; /* names are copied, of ops without outputs too */
        assert_int_equal(teg_mil_make_op(m, "write_state", fleeting, ARGS({"input", cache}, {"data", sum})),
                         TEG_MIL_NO_VAR);
        fleeting[0] = 'F';
        assert_int_equal(teg_mil_make_int(m, 5), teg_mil_make_int(m, 5));
        assert_int_not_equal(teg_mil_make_int(m, 5), teg_mil_make_bool(m, 5));
        assert_int_equal(teg_mil_make_string(m, "fp32"), teg_mil_make_string(m, "fp32"));
        const teg_mil_var_id wide =
            teg_mil_make_op(m, "cast", "wide", ARGS({"x", sum}, {"dtype", teg_mil_make_string(m, "fp32")}));
        teg_mil_make_output(m, "out", wide); /* the intermediate value gives the name up */
        teg_mil_make_output(m, "same", x);   /* an input goes out by an identity */
        teg_mil_make_output(m, "again", wide);
    }
    teg_mil_make_card(m, "d", "a", "l", "v");
    teg_mil_make_metadata(m, "key", "value", 5);
    if (teg_mil_make_end(m, &program, &err) != TEG_OK)
        fail_msg("%s", err.message);
    assert_string_equal(program->functions[0].name, "first");
    assert_string_equal(program->default_function, "second"); /* the one that was made first */
    const struct teg_mil_block *const block = &program->functions[1].block;
    assert_int_equal(block->n_inputs, 2);
    assert_string_equal(program->vars[block->outputs[0]].name, "out");
    assert_string_equal(program->vars[block->outputs[1]].name, "same");
    assert_string_equal(program->vars[block->ops[1].outputs[0]].name, "a_b_c");
    assert_string_equal(block->ops[2].name, "fleeting");
    assert_string_equal(program->interfaces[1].outputs[2].name, "again");
    assert_string_equal(program->author, "a");
    assert_int_equal(program->n_user_metadata, 1);
    teg_mil_free(program);
}

/* ---- failures ---- */

static void expect_failure(struct teg_mil_maker *m, const char *message)
{
    struct teg_mil_program *program = NULL;
    struct teg_error err = {0};
    assert_int_not_equal(teg_mil_make_end(m, &program, &err), TEG_OK);
    assert_string_equal(err.message, message);
    assert_null(program);
}

#define PREFIX "cannot make ML program: function 'main': op 'result' "

static void test_failures(void **state)
{
    (void)state;
    static const struct {
        struct rule_case c;
        const char *message;
    } bad[] = {
        {{"add", "x y", "fp16[2]", "fp16[3]", NULL, "", ""},
         "(add): expected shapes that broadcast, found others in 'x' and 'y'"},
        {{"add", "x y", "fp16[2]", "fp32[2]", NULL, "", ""},
         "(add): expected 'x' and 'y' of one type, found fp16 and fp32"},
        {{"add", "x", "fp16[2]", NULL, NULL, "", ""}, "(add): expected parameter 'y', found none"},
        {{"silu", "x why", "fp16[2]", "fp16[2]", NULL, "", ""},
         "(silu): expected parameters of this op and opset, found 'why'"},
        {{"nonsense", "x", "fp16[2]", NULL, NULL, "", ""},
         "(nonsense): expected an op with a rule, found another; give its type (teg_mil_make_op_typed)"},
        {{"matmul", "x y", "fp16[2,3]", "fp16[4,5]", NULL, "", ""},
         "(matmul): expected inner dimensions that agree, found 3 and 4"},
        {{"linear", "x weight", "fp16[2,3]", "fp16[4,5]", NULL, "", ""},
         "(linear): expected 'x' with 5 columns, found 3"},
        {{"reshape", "x", "fp16[2,3]", NULL, NULL, "shape=4,2", ""},
         "(reshape): expected a shape of 6 elements, found one of 8"},
        {{"reshape", "x", "fp16[2,3]", NULL, NULL, "shape=-1,-1", ""},
         "(reshape): expected one -1 in 'shape', found two"},
        {{"transpose", "x", "fp16[2,3]", NULL, NULL, "perm=0,0", ""},
         "(transpose): expected 'perm' to be a permutation of 2 axes, found another"},
        {{"softmax", "x", "fp16[2,3]", NULL, NULL, "axis:2", ""}, "(softmax): expected 'axis' from -2 to 1, found 2"},
        {{"concat", "values values", "fp16[2,3]", "fp16[3,3]", NULL, "axis:1", ""},
         "(concat): expected values of one type that differ only along axis 1, found another at 1"},
        {{"gather", "x indices", "fp16[2,3]", "fp16[3]", NULL, "axis:1", ""},
         "(gather): expected whole numbers as 'indices', found fp16"},
        {{"slice_update", "x update", "fp16[4,2]", "fp16[3,2]", NULL, "begin=0,0 end=2,2", ""},
         "(slice_update): expected 'update' of the slice's type and shape, found another"},
        {{"cast", "x", "fp16[2]", NULL, NULL, "dtype'half", ""}, "(cast): expected 'dtype' to name a type, found none"},
        {{"select", "cond a b", "fp16[2]", "fp16[2]", "fp16[2]", "", ""},
         "(select): expected 'cond' of type bool, found fp16"},
        {{"expand_dims", "x", "fp16[2]", NULL, NULL, "axes=0,0", ""},
         "(expand_dims): expected different 'axes' of rank 3, found 0"},
        {{"slice_by_size", "x", "fp16[2]", NULL, NULL, "begin=0 size=3", ""},
         "(slice_by_size): expected a size of 2 at most on axis 0, found 3"},
        {{"write_state", "input data", "fp16[2]", "fp16[2]", NULL, "", ""},
         "(write_state): expected 'input' to be a state and 'data' a tensor, found others"},
        {{"read_state", "input", "fp16[2]", NULL, NULL, "", ""},
         "(read_state): expected 'input' to be a state, found another"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct teg_mil_maker *const m = new_maker(9);
        char message[480];
        assert_int_equal(make_case(m, &bad[i].c), TEG_MIL_NO_VAR);
        assert_int_equal(teg_mil_make_int(m, 1), TEG_MIL_NO_VAR); /* nothing works after it */
        (void)snprintf(message, sizeof message, PREFIX "%s", bad[i].message);
        expect_failure(m, message);
    }
}

static void test_other_failures(void **state)
{
    (void)state;
    struct teg_mil_maker *m = NULL;
    struct teg_error err = {0};
    assert_int_equal(teg_mil_make_new(5, NULL, &m, &err), TEG_ERR_ARGUMENT);
    assert_string_equal(err.message, "cannot make ML program: specification version: expected 6 to 10, found 5; choose "
                                     "a target from iOS15 to iOS26");
    m = new_maker(8);
    (void)teg_mil_make_state(m, "s", TEG_MIL_FP16, 1, (const int64_t[]){2});
    expect_failure(m, "cannot make ML program: function 'main': expected a state of rank 1 to 8 and target iOS18 or "
                      "later, found rank 1 and opset 8; choose --target iOS18");
    m = new_maker(8);
    (void)teg_mil_make_op(m, "slice_update", "u", ARGS({"x", input(m, "x", "fp16[2]")}));
    expect_failure(m, "cannot make ML program: function 'main': op 'u' (slice_update): expected opset 9 (iOS18) or "
                      "later, found 8; choose a later target");
    m = new_maker(9);
    expect_failure(m, "cannot make ML program: function 'main': expected an output, found none; call "
                      "teg_mil_make_output");
    m = new_maker(9);
    (void)input(m, "x", "fp16[2]");
    (void)input(m, "x", "fp16[2]");
    expect_failure(m, "cannot make ML program: function 'main': expected 'x' to be a free identifier, found it taken "
                      "or with other characters than letters, digits and _; choose another name");
    m = new_maker(9);
    (void)teg_mil_make_op(m, "silu", "s", ARGS({"x", 77}));
    expect_failure(m, "cannot make ML program: function 'main': op 's' (silu): expected 'x' to be a value of this "
                      "function, found none");
    m = new_maker(9);
    teg_mil_make_function(m, "next", 10);
    expect_failure(m, "cannot make ML program: function 'main': expected an output, found none; call "
                      "teg_mil_make_output");
}

/* Every allocation may fail. */
static void test_memory(void **state)
{
    (void)state;
    for (size_t fail_at = 1;; fail_at++) {
        struct counting c;
        struct teg_mil_maker *m = NULL;
        struct teg_mil_program *program = NULL;
        struct teg_error err = {0};
        enum teg_status status = teg_mil_make_new(9, counting_init(&c, fail_at), &m, &err);
        if (status == TEG_OK) {
            teg_mil_make_function(m, "main", 9);
            const teg_mil_var_id x = input(m, "x", "fp16[1,?,8]");
            const teg_mil_var_id y = teg_mil_make_op(m, "silu", "y", ARGS({"x", x}));
            teg_mil_make_output(m, "out", y);
            status = teg_mil_make_end(m, &program, &err);
        }
        if (status == TEG_OK) {
            teg_mil_free(program);
            assert_int_equal(c.n_live, 0);
            return;
        }
        assert_int_equal(status, TEG_ERR_MEMORY);
        assert_int_equal(c.n_live, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules),   cmocka_unit_test(test_packed),   cmocka_unit_test(test_known),
        cmocka_unit_test(test_program), cmocka_unit_test(test_failures), cmocka_unit_test(test_other_failures),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
