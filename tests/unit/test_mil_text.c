/* MIL text: what is taken in both dialects, and every message. */
#include <math.h>

#include "unit/mil_test.h"

#define HEAD "program(1.3)\n{\nfunc main<ios17>(tensor<fp32, [2]> x) {\n"
#define TAIL "} -> (y);\n}\n"
#define OK_OP "tensor<fp32, [2]> y = relu(x = x)[name = string(\"y\")];\n"

static enum teg_status parse(const char *text, struct teg_mil_program **p, struct teg_error *err)
{
    const size_t n = strlen(text);
    struct guarded g = guarded_copy((const uint8_t *)text, n);
    const enum teg_status status = teg_mil_parse_text((const char *)g.bytes, n, NULL, 0, "t", NULL, p, err);
    if (status != TEG_OK)
        guarded_free(&g); /* else the program points into it; a page or two are left to the system */
    return status;
}

static struct teg_mil_program *parse_good(const char *text)
{
    struct teg_mil_program *p = NULL;
    struct teg_error err = {0};
    if (parse(text, &p, &err) != TEG_OK)
        fail_msg("%s", err.message);
    return p;
}

static const struct teg_mil_const *value_of(const struct teg_mil_program *p, const char *arg)
{
    const struct teg_mil_var *const var = teg_mil_arg_var(p, &p->functions[0].block.ops[0], arg);
    assert_non_null(var);
    assert_non_null(var->constant);
    return var->constant;
}

/* ---- good ---- */

static void test_both_dialects(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "program(1.0)\n[buildInfo = dict<tensor<string, []>, tensor<string, []>>({{\"a]\", \"\\\"[\"}})]\n{\n"
        "func main<ios17>(tensor<fp32, [2]> x) [Info = tuple<int32>((1))] {\n"
        "tensor<int32, []> c = const()[name = tensor<string, []>(\"n\"), val = tensor<int32, []>(-7)];\n"
        "tensor<fp32, [2]> y = op(a = c, b = tensor<bool, []>(true))[name = tensor<string, []>(\"z\")];\n" TAIL,
        HEAD "int32 c = const()[name = string(\"n\"), val = int32(-7)]; // a remark\n"
             "tensor<fp32, [2]> y = op(b = bool(true), a = c)[name = string(\"z\")];\n" TAIL,
    };
    for (size_t i = 0; i < 2; i++) {
        struct teg_mil_program *const p = parse_good(texts[i]);
        const struct teg_mil_op *const op = &p->functions[0].block.ops[0];
        assert_int_equal(p->spec_version, 8);
        assert_int_equal(p->n_vars, 4);
        assert_string_equal(op->name, "z");
        assert_string_equal(op->type, "op");
        assert_memory_equal(value_of(p, "a")->bytes, "\xf9\xff\xff\xff", 4);
        assert_memory_equal(value_of(p, "b")->bytes, "\x01", 1);
        assert_int_equal(p->interfaces[0].n_inputs, 1);
        assert_string_equal(p->interfaces[0].inputs[0].name, "x");
        teg_mil_free(p);
    }
}

static double number(const char *literal, const char *type)
{
    char text[400];
    double d = 0;
    float f = 0;
    snprintf(text, sizeof text, HEAD "tensor<fp32, [2]> y = op(v = %s(%s));\n" TAIL, type, literal);
    struct teg_mil_program *const p = parse_good(text);
    const struct teg_mil_const *const v = value_of(p, "v");
    if (v->type.dtype == TEG_MIL_FP64)
        memcpy(&d, v->bytes, sizeof d);
    else if (v->type.dtype == TEG_MIL_FP32) {
        memcpy(&f, v->bytes, sizeof f);
        d = (double)f;
    } else {
        uint16_t h;
        memcpy(&h, v->bytes, sizeof h);
        d = h;
    }
    teg_mil_free(p);
    return d;
}

static void test_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *literal;
        double value;
    } doubles[] = {{"0x1.48p-1", 0x1.48p-1},
                   {"0x0p+0", 0},
                   {"0x1.fffffffffffffp+1023", 0x1.fffffffffffffp+1023},
                   {"0x1p-1074", 0x1p-1074},
                   {"-0x1.8p+3", -12},
                   {"0X1P4", 16},
                   {"0x1", 1},
                   {"0x.8p0", 0.5},
                   {"1.5", 1.5},
                   {"-2e3", -2000},
                   {"125e-3", 0.125},
                   {"7", 7},
                   {"inf", (double)INFINITY},
                   {"-inf", -(double)INFINITY},
                   {"1e999999999999", (double)INFINITY},
                   {"0x1p-99999999999", 0},
                   {"0e99", 0},
                   {"123456789012345678901234567890", 123456789012345678901234567890.0}};
    for (size_t i = 0; i < sizeof doubles / sizeof *doubles; i++)
        if (number(doubles[i].literal, "fp64") != doubles[i].value)
            fail_msg("%s reads as %g", doubles[i].literal, number(doubles[i].literal, "fp64"));
    assert_true(isnan(number("nan", "fp64")));
    assert_true(signbit(number("-0x0p+0", "fp32")));
    assert_true(number("0x1.99999ap-4", "fp32") == (double)0.1f);
    assert_true(number("0x1.ffcp+15", "fp16") == 0x7bff);
    assert_true(number("0x1p-24", "fp16") == 1);
    assert_true(number("0x1p+1", "bf16") == 0x4000);
}

static void test_integers(void **state)
{
    (void)state;
    static const struct {
        const char *type, *body;
        size_t n;
        const char *bytes;
    } cases[] = {
        {"int8", "-128", 1, "\x80"},
        {"uint16", "65535", 2, "\xff\xff"},
        {"int64", "-9223372036854775808", 8, "\0\0\0\0\0\0\0\x80"},
        {"uint64", "18446744073709551615", 8, "\xff\xff\xff\xff\xff\xff\xff\xff"},
        {"int32", "0x10", 4, "\x10\0\0\0"},
        {"tensor<uint1, [9]>", "[1,0,1,1,0,0,0,1,1]", 2, "\x8d\x01"},
        {"tensor<uint3, [11]>", "[1,2,3,4,5,6,7,0,1,2,3]", 5, "\xd1\x58\x1f\xd1\0"},
        {"tensor<int4, [5]>", "[-8,7,-1,3,5]", 3, "\x78\x3f\x05"},
        {"tensor<uint6, [5]>", "[1,63,2,33,7]", 4, "\xc1\x2f\x84\x07"},
        {"tensor<int16, [2, 1, 2]>", "[[[1, 2]], [[3, 4]]]", 8, "\1\0\2\0\3\0\4\0"},
        {"tensor<int32, [2, 0]>", "[[], []]", 0, ""},
        {"tensor<int32, [0]>", "[]", 0, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[400];
        snprintf(text, sizeof text, HEAD "tensor<fp32, [2]> y = op(v = %s(%s));\n" TAIL, cases[i].type, cases[i].body);
        struct teg_mil_program *const p = parse_good(text);
        const struct teg_mil_const *const v = value_of(p, "v");
        assert_int_equal(v->n_bytes, cases[i].n);
        assert_memory_equal(v->bytes, cases[i].bytes, cases[i].n);
        teg_mil_free(p);
    }
}

static void test_strings_and_lists(void **state)
{
    (void)state;
    struct teg_mil_program *const p = parse_good(
        HEAD "tensor<fp32, [2]> y = op(a = string(\"q\\\"\\\\\\n\\t\"), b = list<string, 2>([\"x\", string(\"y\")]), "
             "c = list<tensor<int32, [2]>, ?>(([1, 2])), d = dict<string, int32>({{\"k\", 1}, {\"l\", 2}}), "
             "e = list<string, ?>([]), f = (x, x, int32(1)), g = (), h = tuple<int32, string>((int32(5), "
             "string(\"t\"))));\n" TAIL);
    const struct teg_mil_op *const op = &p->functions[0].block.ops[0];
    assert_string_is(value_of(p, "a")->strings[0], "q\"\\\n\t");
    assert_int_equal(value_of(p, "b")->n_items, 2);
    assert_string_is(value_of(p, "b")->items[1].strings[0], "y");
    assert_int_equal(value_of(p, "c")->items[0].n_bytes, 8);
    assert_int_equal(value_of(p, "d")->n_items, 4);
    assert_string_is(value_of(p, "d")->items[2].strings[0], "l");
    assert_int_equal(value_of(p, "e")->n_items, 0);
    assert_int_equal(teg_mil_find_arg(op, "f")->n_vars, 3);
    assert_int_equal(teg_mil_find_arg(op, "g")->n_vars, 0);
    assert_int_equal(value_of(p, "h")->n_items, 2);
    teg_mil_free(p);
}

static void test_outputs_and_blocks(void **state)
{
    (void)state;
    struct teg_mil_program *const p = parse_good(
        HEAD
        "tensor<fp32, [...]> a, state<tensor<fp16, [1]>> b = two(x = x);\n"
        "none(x = x);\n"
        "tensor<fp32, [2]> y = cond(p = x)[name = string(\"c\")] yes() [skip = ([1])] { tensor<fp32, [2]> a = f(x = "
        "x); } -> (a), {} -> (x);\n"
        "tensor<fp32, [2]> z = loop(p = x) (int32 i, int32 j) {} -> (i, j) [name = string(\"l\")];\n" TAIL);
    const struct teg_mil_block *const b = &p->functions[0].block;
    assert_int_equal(b->n_ops, 4);
    assert_int_equal(b->ops[0].n_outputs, 2);
    assert_int_equal(p->vars[b->ops[0].outputs[0]].type.rank, -1);
    assert_int_equal(p->vars[b->ops[0].outputs[1]].type.kind, TEG_MIL_STATE);
    assert_int_equal(b->ops[1].n_outputs, 0);
    assert_int_equal(b->ops[2].n_blocks, 2);
    assert_string_equal(b->ops[2].name, "c");
    assert_int_not_equal(b->ops[2].blocks[0].outputs[0], b->ops[0].outputs[0]); /* an inner a */
    assert_int_equal(b->ops[3].blocks[0].n_inputs, 2);
    teg_mil_free(p);
}

/* ---- bad ---- */

#define AT "cannot read ML program: t at byte "
#define AGAIN "; compile the model again"
#define ARG(value) HEAD "tensor<fp32, [2]> y = op(v = " value ");\n" TAIL

static const struct {
    const char *text;
    enum teg_status status;
    const char *message; /* after the position, which must be there */
} bad[] = {
    {"", TEG_ERR_FORMAT, "expected MIL text, found an empty file" AGAIN},
    {"garbage", TEG_ERR_FORMAT, "expected 'program', found 'garbage'" AGAIN},
    {"\xff\xfe", TEG_ERR_FORMAT, "expected 'program', found the byte ff" AGAIN},
    {"program(2.0)", TEG_ERR_UNSUPPORTED, "expected MIL text version 1.x, found another; update tegula"},
    {"program(1.3)[", TEG_ERR_FORMAT, "expected ']' for every '[', found the end of the text" AGAIN},
    {"program(1.3){}", TEG_ERR_FORMAT, "expected 1 to 1024 functions, found 0; export the model again"},
    {HEAD OK_OP TAIL "more", TEG_ERR_FORMAT, "expected the end of the program, found 'more'" AGAIN},
    {"program(1.3){func f<ios14>() {} -> ();}", TEG_ERR_UNSUPPORTED,
     "expected an opset from ios15 to ios26, found 'ios14'; update tegula"},
    {"program(1.3){func f<ios17>() {} -> ();func f<ios17>() {} -> ();}", TEG_ERR_FORMAT,
     "expected one function of each name, found 'f' twice; export the model again"},
    {"program(1.3){func f<ios17>() {} -> x;}", TEG_ERR_FORMAT, "expected '(', found 'x;}'" AGAIN},
    {"program(1.3){func 1", TEG_ERR_FORMAT, "expected the name of a function, found '1'" AGAIN},
    {HEAD "1", TEG_ERR_FORMAT, "expected a statement or '}', found '1'" AGAIN},
    {HEAD "tensor<fp32, [2]> y = relu(x = z);" TAIL, TEG_ERR_FORMAT,
     "expected names that are defined before their use, found 'z'; export the model again"},
    {HEAD "tensor<fp32, [2]> y = relu(x = y);" TAIL, TEG_ERR_FORMAT,
     "expected names that are defined before their use, found 'y'; export the model again"},
    {HEAD OK_OP OK_OP TAIL, TEG_ERR_FORMAT,
     "expected one definition of a name, found a second one of 'y'; export the model again"},
    {HEAD "tensor<fp32, [2]> y = relu(x = x, x = x);" TAIL, TEG_ERR_FORMAT,
     "expected each parameter of op '' (relu) once, found 'x' twice; export the model again"},
    {HEAD "tensor<fp32, [2]> y = relu(x x);" TAIL, TEG_ERR_FORMAT, "expected '=', found 'x);}'" AGAIN},
    {HEAD "tensor<fp32, [2]> y = relu(x = x;" TAIL, TEG_ERR_FORMAT,
     "expected ',' or the end of the parameters, found ';}'" AGAIN},
    {HEAD "tensor<fp32, [2]> y = relu(x = 1);" TAIL, TEG_ERR_FORMAT,
     "expected a variable or a value, found '1);}'" AGAIN},
    {HEAD "tensor<fp32, [2]> y = relu(1 = x);" TAIL, TEG_ERR_FORMAT,
     "expected the name of a parameter, found '1'" AGAIN},
    {HEAD "tensor<fp32, [2]> y = relu(x = x) ;", TEG_ERR_FORMAT,
     "expected a statement or '}', found the end of the text" AGAIN},
    {HEAD "tensor<fp32, [2]> y = relu(x = x) 5;", TEG_ERR_FORMAT, "expected ';' or a nested block, found '5;'" AGAIN},
    {HEAD "tensor<fp32, [2]> = relu(x = x);", TEG_ERR_FORMAT, "expected the name of a variable, found '='" AGAIN},
    {HEAD "tensor<fp32, [2]> y = (x = x);", TEG_ERR_FORMAT, "expected an op, found '(x'" AGAIN},
    {HEAD "int32 y = const()[name = string(\"y\")];" TAIL, TEG_ERR_FORMAT,
     "expected a const to have a val and one output, found none and 1; export the model again"},
    {HEAD "int32 y, int32 z = const()[val = int32(1)];" TAIL, TEG_ERR_FORMAT,
     "expected a const to have a val and one output, found one and 2; export the model again"},
    {HEAD "int32 y = const()[val = fp32(0x1p0)];" TAIL, TEG_ERR_FORMAT,
     "expected constant 'y' to have the type that it declares, found a value of another; export the model again"},
    {ARG("float(1)"), TEG_ERR_UNSUPPORTED, "expected a known element type, found 'float'; update tegula"},
    {ARG("tensor<fp32, [1, 1, 1, 1, 1, 1, 1, 1, 1]>(1)"), TEG_ERR_UNSUPPORTED,
     "expected tensors of rank 8 at most, found more; export the model with fewer dimensions"},
    {ARG("tensor<fp32, [-1]>([1])"), TEG_ERR_FORMAT, "expected a length of 0 or more, found ']>([1]));'" AGAIN},
    {ARG("tensor<fp32, [x]>([1])"), TEG_ERR_FORMAT, "expected an integer of 64 bits, found 'x]>([1]));'" AGAIN},
    {ARG("tensor<fp32, [?]>([1])"), TEG_ERR_FORMAT,
     "expected a value for every element of a constant shape, found '[1]));'" AGAIN},
    {ARG("tensor<fp32, [4294967296, 4294967296]>([1])"), TEG_ERR_FORMAT,
     "expected a value for every element of a constant shape, found '[1]));'" AGAIN},
    {ARG("tensor<fp32, [1000000]>([1])"), TEG_ERR_FORMAT,
     "expected a value for every element of a constant shape, found '[1]));'" AGAIN},
    {ARG("tensor<fp32, [2]>([1])"), TEG_ERR_FORMAT, "expected ',', found ']));'" AGAIN},
    {ARG("tensor<fp32, [1]>([1, 2])"), TEG_ERR_FORMAT, "expected ']', found ','" AGAIN},
    {ARG("fp32(x)"), TEG_ERR_FORMAT, "expected a number, found 'x));'" AGAIN},
    {ARG("fp32(0x)"), TEG_ERR_FORMAT, "expected a number, found '0x));'" AGAIN},
    {ARG("fp32(0x1p)"), TEG_ERR_FORMAT, "expected a number, found '0x1p));'" AGAIN},
    {ARG("int32(99999999999999999999)"), TEG_ERR_FORMAT,
     "expected an integer of 64 bits, found '99999999999999999999));'" AGAIN},
    {ARG("int8(128)"), TEG_ERR_FORMAT, "expected integers in the range of int8, found 128; export the model again"},
    {ARG("uint1(2)"), TEG_ERR_FORMAT, "expected integers in the range of uint1, found 2; export the model again"},
    {ARG("uint4(-1)"), TEG_ERR_FORMAT, "expected integers in the range of uint4, found -1; export the model again"},
    {ARG("fp8e5m2(1)"), TEG_ERR_UNSUPPORTED,
     "expected inline floats of 16 bits or more, found fp8e5m2; keep them in the weight file"},
    {ARG("bool(1)"), TEG_ERR_FORMAT, "expected true or false, found '1));'" AGAIN},
    {ARG("string(x)"), TEG_ERR_FORMAT, "expected a quoted string, found 'x));'" AGAIN},
    {ARG("string(\"x)"), TEG_ERR_FORMAT, "expected a closing quote, found the end of the text" AGAIN},
    {ARG("state<tensor<fp32, [1]>>([1])"), TEG_ERR_FORMAT,
     "expected a value that is not a state, found '[1]));'" AGAIN},
    {ARG("state<list<int32, 1>>([1])"), TEG_ERR_FORMAT, "expected a state of a tensor, found '>([1]));'" AGAIN},
    {ARG("list<int32, 2>([1])"), TEG_ERR_FORMAT,
     "expected as many list items as the type says before this, found '));'" AGAIN},
    {ARG("list<int32, 2>(1)"), TEG_ERR_FORMAT, "expected '[' or '(', found '1));'" AGAIN},
    {ARG("list<int32, 2>([1 2])"), TEG_ERR_FORMAT, "expected ',' or the end of a list, found '2]));'" AGAIN},
    {ARG("dict<string, int32>([1])"), TEG_ERR_FORMAT, "expected '{', found '[1]));'" AGAIN},
    {ARG("fp32(BLOBFILE(path = string(\"@model_path/w\")))"), TEG_ERR_FORMAT,
     "expected a path and an offset of 64 bits before this, found '));'" AGAIN},
    {ARG("fp32(BLOBFILE(path = string(\"@model_path/w\"), offset = uint64(64)))"), TEG_ERR_FORMAT,
     "expected a weight file '@model_path/w', found none; copy the whole package"},
    {ARG("string(BLOBFILE(path = string(\"w\"), offset = uint64(64)))"), TEG_ERR_FORMAT,
     "expected a tensor of a type that weight files hold, found string; export the model again"},
    {ARG("tensor<fp32, [?]>(BLOBFILE(path = string(\"w\"), offset = uint64(64)))"), TEG_ERR_FORMAT,
     "expected a value with a constant shape that fits in memory, found another; export the model again"},
    {"program(1.3){func f<ios18>(state<tensor<fp16, [2]>> s) {write_state(input = s, data = fp16(1));} -> ();}",
     TEG_ERR_FORMAT,
     "expected op '' (write_state) to move exactly the type of state 's', found another; export the model again"},
    {"program(1.3){func f<ios18>(fp16 s) {write_state(input = s, data = fp16(1));} -> ();}", TEG_ERR_FORMAT,
     "expected op '' (write_state) to have a state as input and one value, found something else; export the model "
     "again"},
    {"program(1.3){func f<ios18>(state<tensor<fp16, [?]>> s) {} -> ();}", TEG_ERR_FORMAT,
     "expected state 's' to have a constant shape that can be addressed, found an open one; export the model again"},
    {"program(1.3){func f<ios18>(state<tensor<fp16, [2147483647, 2147483647, 2147483647]>> s) {} -> ();}",
     TEG_ERR_FORMAT,
     "expected state 's' to have a constant shape that can be addressed, found a larger one; export the model again"},
    {"program(1.3){func f<ios15>() {tensor<fp32, [2147483647, 2147483647, 2147483647]> c = const()[val = tensor<fp32, "
     "[2147483647, 2147483647, 2147483647]>([1])];} -> ();}",
     TEG_ERR_FORMAT,
     "expected a value for every element of a constant shape, found '[1])];}'; compile the model again"},
};

static void test_bad(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct teg_mil_program *p = NULL;
        struct teg_error err = {0};
        /* A text without the line breaks of HEAD and TAIL keeps the messages on one line. */
        char *const text = strdup(bad[i].text);
        for (char *c = text; *c; c++)
            *c = *c == '\n' ? ' ' : *c;
        const enum teg_status status = parse(text, &p, &err);
        const char *const found = strstr(err.message, ": expected ");
        if (strncmp(err.message, AT, strlen(AT)) != 0 || !found || strcmp(found + 2, bad[i].message) != 0)
            fail_msg("case %zu:\n%s\nfound\n%s", i, bad[i].message, err.message);
        assert_int_equal(status, bad[i].status);
        assert_null(p);
        free(text);
    }
}

static void test_position(void **state)
{
    (void)state;
    struct teg_mil_program *p = NULL;
    struct teg_error err = {0};
    assert_int_equal(parse(HEAD "none(x = zebra);", &p, &err), TEG_ERR_FORMAT);
    assert_int_equal(err.offset, strlen(HEAD "none(x = "));
}

static void repeat(struct bytes *b, const char *text, size_t n)
{
    while (n--)
        put_text(b, text);
}

/* Each kind of nesting, ten thousand deep. */
static void test_deep(void **state)
{
    (void)state;
    static const struct {
        const char *head, *part, *message;
    } cases[] = {
        {HEAD, "c(x = x) {", "expected blocks at most 32 deep"},
        {HEAD "tensor<fp32, [2]> y = op(v = ", "list<", "expected types at most 16 deep"},
        {HEAD "tensor<fp32, [2]> y = op(v = tuple<int32>(", "(tuple<int32>(", "expected values at most 16 deep"},
        {"program(1.3)", "[", "expected ']' for every '['"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bytes b = {0};
        struct teg_mil_program *p = NULL;
        struct teg_error err = {0};
        put_text(&b, cases[i].head);
        repeat(&b, cases[i].part, 10000);
        assert_int_equal(teg_mil_parse_text((const char *)b.at, b.n, NULL, 0, "t", NULL, &p, &err), TEG_ERR_FORMAT);
        if (!strstr(err.message, cases[i].message))
            fail_msg("%s", err.message);
        bytes_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_dialects),      cmocka_unit_test(test_numbers), cmocka_unit_test(test_integers),
        cmocka_unit_test(test_strings_and_lists),  cmocka_unit_test(test_bad),     cmocka_unit_test(test_position),
        cmocka_unit_test(test_outputs_and_blocks), cmocka_unit_test(test_deep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
