/* The protobuf form: every message, with the smallest model that provokes it; what is liberal; what is deep or large.
 *
 * Models are written as text (see mil_test.h). The good one has a function main with input x and output y = relu(x),
 * both fp32 [2]. */
#include "unit/mil_test.h"

/* ---- parts of the good model ---- */

#define FP32_2 "1{1:11 2:1 3{1{1:2}}}"
#define INT32 "1{1:23}"
#define INT32_1 "1{1:23 2:1 3{1{1:1}}}"
#define STRING "1{1:2}"
#define NAMED(number, name, type) number "{1'" name "' 2{" type "}} "
#define VALUE(type, tensor) "2{" type "} 3{1{" tensor "}}"
#define NAME(name) "5{1'name' 2{" VALUE(STRING, "4{1'" name "'}") "}} "
#define IN(param, variable) "2{1'" param "' 2{1{1'" variable "'}}} "
#define IN_VALUE(param, value) "2{1'" param "' 2{1{2{" value "}}}} "
#define RELU "3{1'relu' " IN("x", "x") NAMED("3", "y", FP32_2) NAME("y") "} "
#define BLOCK(ops) "2'y' " ops
#define FUNCTION(inputs, opset, key, block) inputs "2'" opset "' 3{1'" key "' 2{" block "}}"
#define PROGRAM(function) "1:1 2{1'main' 2{" function "}}"
#define ARRAY "5{1:2 2:65568}"
#define FEATURE(number, name, type) number "{1'" name "' 3{" type "}} "
#define DESCRIPTION FEATURE("1", "x", ARRAY) FEATURE("10", "y", ARRAY)
#define MODEL(version, description, program) "1:" version " 2{" description "} 502{" program "}"

#define X NAMED("1", "x", FP32_2)
#define WITH_OPS(ops) MODEL("8", DESCRIPTION, PROGRAM(FUNCTION(X, "CoreML7", "CoreML7", BLOCK(ops))))
#define WITH_INPUTS(inputs) MODEL("8", DESCRIPTION, PROGRAM(FUNCTION(inputs, "CoreML7", "CoreML7", BLOCK(RELU))))
#define WITH_DESCRIPTION(d) MODEL("8", d, PROGRAM(FUNCTION(X, "CoreML7", "CoreML7", BLOCK(RELU))))
/* an op of no outputs with one inline value, before relu */
#define WITH_VALUE(value) WITH_OPS("3{1'op' " IN_VALUE("v", value) "} " RELU)
#define WITH_TYPE(type) WITH_INPUTS(X "1{1'z' 2{" type "}} ")
#define GOOD WITH_OPS(RELU)

static enum teg_status parse(const char *text, struct teg_mil_program **p, struct teg_error *err)
{
    struct bytes b = pb(text);
    static struct bytes kept; /* the program points into it */
    bytes_free(&kept);
    kept = b;
    return teg_mil_parse_spec(b.at, b.n, NULL, 0, "t", NULL, p, err);
}

static struct teg_mil_program *parse_good(const char *text)
{
    struct teg_mil_program *p = NULL;
    struct teg_error err = {0};
    if (parse(text, &p, &err) != TEG_OK)
        fail_msg("%s", err.message);
    return p;
}

/* ---- bad ---- */

#define EXPORT "; export the model again"
#define DAMAGED(what) "expected whole protobuf fields in " what ", found damaged or missing bytes; copy the model again"
#define CONVERT "; convert the model to an ML program (iOS 15 or later)"

static const struct {
    const char *model;
    enum teg_status status;
    const char *message; /* after the position, which must be there */
} bad[] = {
    /* the model */
    {"", TEG_ERR_FORMAT, "expected an ML program, found no model" EXPORT},
    {"1:8 2{} 500{}", TEG_ERR_UNSUPPORTED, "expected an ML program, found a neural network" CONVERT},
    {"1:8 2{} 402{}", TEG_ERR_UNSUPPORTED, "expected an ML program, found a tree ensemble classifier" CONVERT},
    {"1:8 2{} 3000:1", TEG_ERR_UNSUPPORTED, "expected an ML program, found a serialized model" CONVERT},
    /* pipelines */
    {"1:8 202{1{500{}} 1{502{}} 2'a' 2'b'}", TEG_ERR_UNSUPPORTED,
     "expected a pipeline of ML programs, found a neural network as model 1 of it; convert that to an ML program (iOS "
     "15 "
     "or later)"},
    {"1:8 200{1{1{403{}} 1{604{}}}}", TEG_ERR_UNSUPPORTED,
     "expected a pipeline of ML programs, found a neural network classifier as model 1 of it; convert that to an ML "
     "program (iOS 15 or later)"},
    {"1:8 202{1{202{}}}", TEG_ERR_UNSUPPORTED,
     "expected a pipeline of ML programs, found a pipeline as model 1 of it; convert that to an ML program (iOS 15 or "
     "later)"},
    {"1:8 201{}", TEG_ERR_FORMAT, "expected a pipeline of 1 to 256 models, found 0"},
    {"1:8 202{1{1:8}}", TEG_ERR_FORMAT, "expected an ML program, found no model" EXPORT},
    {MODEL("5", "", PROGRAM("")), TEG_ERR_UNSUPPORTED, "expected specification version 6 to 10, found 5" EXPORT},
    {MODEL("11", "", PROGRAM("")), TEG_ERR_UNSUPPORTED,
     "expected specification version 6 to 10, found 11; update tegula"},
    {"1:8 502:1", TEG_ERR_FORMAT, DAMAGED("the Model")},
    {"1'x' 502{}", TEG_ERR_FORMAT, DAMAGED("the Model")},
    /* program and functions */
    {MODEL("8", "", "1:2"), TEG_ERR_UNSUPPORTED, "expected program version 1, found 2; update tegula"},
    {MODEL("8", "", "1:1"), TEG_ERR_FORMAT, "expected 1 to 1024 functions, found 0" EXPORT},
    {MODEL("8", DESCRIPTION,
           PROGRAM(FUNCTION(X, "CoreML7", "CoreML7", BLOCK(RELU))) " "
                                                                   "2{1'main' 2{" FUNCTION(X, "CoreML7", "CoreML7",
                                                                                           BLOCK(RELU)) "}}"),
     TEG_ERR_FORMAT, "expected one function of each name, found 'main' twice" EXPORT},
    {MODEL("8", "", PROGRAM(FUNCTION("", "CoreML4", "CoreML4", ""))), TEG_ERR_UNSUPPORTED,
     "expected an opset from CoreML5 to CoreML9, found 'CoreML4'; update tegula"},
    {MODEL("8", "", PROGRAM("")), TEG_ERR_UNSUPPORTED,
     "expected an opset from CoreML5 to CoreML9, found ''; update tegula"},
    {MODEL("8", "", PROGRAM(FUNCTION("", "CoreML7", "CoreML6", ""))), TEG_ERR_FORMAT,
     "expected a block for the function's opset 'CoreML7', found none" EXPORT},
    {MODEL("8", "", "1:1 2{2{" FUNCTION("", "CoreML7", "CoreML7", "") "}}"), TEG_ERR_FORMAT,
     "expected the name of a function, found an empty name" EXPORT},
    {MODEL("8", "", "1:1 2{1=6100 2{" FUNCTION("", "CoreML7", "CoreML7", "") "}}"), TEG_ERR_FORMAT,
     "expected the name of a function without a zero byte, found one" EXPORT},
    /* ops */
    {WITH_OPS("3{} " RELU), TEG_ERR_FORMAT, "expected an op type, found an empty name" EXPORT},
    {WITH_OPS("3=0a "), TEG_ERR_FORMAT, DAMAGED("an Operation")},
    {WITH_OPS("3{1'relu' " IN("x", "y") NAMED("3", "y", FP32_2) "}"), TEG_ERR_FORMAT,
     "expected names that are defined before their use, found 'y'" EXPORT},
    {WITH_OPS(""), TEG_ERR_FORMAT, "expected names that are defined before their use, found 'y'" EXPORT},
    {WITH_OPS(RELU RELU), TEG_ERR_FORMAT, "expected one definition of a name, found a second one of 'y'" EXPORT},
    {WITH_INPUTS(X X), TEG_ERR_FORMAT, "expected one definition of a name, found a second one of 'x'" EXPORT},
    {WITH_OPS("3{1'op' " NAME("n") IN("x", "x") IN("x", "x") "} " RELU), TEG_ERR_FORMAT,
     "expected each parameter of op 'n' (op) once, found 'x' twice" EXPORT},
    {WITH_OPS("3{1'op' " IN("x", "x") "5{1'x' 2{" VALUE(INT32, "2{1:1}") "}}} " RELU), TEG_ERR_FORMAT,
     "expected each parameter of op '' (op) once, found 'x' twice" EXPORT},
    {WITH_OPS("3{1'op' 2{1'x' 2{1{}}}} " RELU), TEG_ERR_FORMAT,
     "expected an argument to be a name or a value, found neither" EXPORT},
    {WITH_OPS("3{1'op' 2{1'x' 2{1{1'x' 2{}}}}} " RELU), TEG_ERR_FORMAT,
     "expected an argument to be a name or a value, found both" EXPORT},
    {WITH_OPS("3{1'op' 5{1'name' 2{" VALUE(INT32, "2{1:1}") "}}} " RELU), TEG_ERR_FORMAT,
     "expected the name of an op to be a string, found another type" EXPORT},
    {WITH_OPS("3{1'const' " NAMED("3", "c", INT32) "} " RELU), TEG_ERR_FORMAT,
     "expected a const to have a val and one output, found none and 1" EXPORT},
    {WITH_OPS("3{1'const' 5{1'val' 2{" VALUE(INT32, "2{1:1}") "}}} " RELU), TEG_ERR_FORMAT,
     "expected a const to have a val and one output, found one and 0" EXPORT},
    {WITH_OPS("3{1'const' " NAMED("3", "c", INT32_1) "5{1'val' 2{" VALUE(INT32, "2{1:1}") "}}} " RELU), TEG_ERR_FORMAT,
     "expected constant 'c' to have the type that it declares, found a value of another" EXPORT},
#define FLOW "found others" EXPORT
    {WITH_OPS("3{1'cond' " NAME("c") "4{}} " RELU), TEG_ERR_FORMAT,
     "expected op 'c' (cond) to have two blocks with its inputs and outputs, " FLOW},
    {WITH_OPS("3{1'cond' " NAME("c") "4{} 4{2'x'}} " RELU), TEG_ERR_FORMAT,
     "expected op 'c' (cond) to have two blocks with its inputs and outputs, " FLOW},
    {WITH_OPS("3{1'while_loop' " NAME("w") "4{2'x'} 4{}} " RELU), TEG_ERR_FORMAT,
     "expected op 'w' (while_loop) to have two blocks with its inputs and outputs, " FLOW},
    {WITH_OPS("3{1'while_loop' " NAME("w") IN("loop_vars", "x") NAMED("3", "o", FP32_2) "4{2'x'} 4{1{1'i' 2{" FP32_2
                                                                                        "}} 2'i'}} " RELU),
     TEG_ERR_FORMAT, "expected op 'w' (while_loop) to have two blocks with its inputs and outputs, " FLOW},
    /* types */
    {WITH_TYPE(""), TEG_ERR_FORMAT, "expected a tensor, list, tuple, dictionary or state type, found none" EXPORT},
    {WITH_TYPE("1{1:99}"), TEG_ERR_UNSUPPORTED, "expected a known element type, found DataType 99; update tegula"},
    {WITH_TYPE("1{1:11 2:2 3{1{1:2}}}"), TEG_ERR_FORMAT,
     "expected a tensor type of rank 2 to have as many dimensions, found 1" EXPORT},
    {WITH_TYPE("1{1:11 2:9 3{2{}} 3{2{}} 3{2{}} 3{2{}} 3{2{}} 3{2{}} 3{2{}} 3{2{}} 3{2{}}}"), TEG_ERR_UNSUPPORTED,
     "expected tensors of rank 8 at most, found 9; export the model with fewer dimensions"},
    {WITH_TYPE("1{1:11 2:1 3{}}"), TEG_ERR_FORMAT,
     "expected a dimension to be constant or unknown, found neither" EXPORT},
    {WITH_TYPE("1{1:11 2:1 3{1{} 2{}}}"), TEG_ERR_FORMAT,
     "expected a dimension to be constant or unknown, found both" EXPORT},
    {WITH_TYPE("1{1:11 2:1 3{1{1:-1}}}"), TEG_ERR_FORMAT,
     "expected a dimension below 2^63, found 18446744073709551615" EXPORT},
    {WITH_TYPE("5{1{3{}}}"), TEG_ERR_FORMAT, "expected a state to hold a tensor, found another type" EXPORT},
    {WITH_TYPE("2{1{} 2{2{}}}"), TEG_ERR_FORMAT,
     "expected a tensor, list, tuple, dictionary or state type, found none" EXPORT},
    /* values */
    {WITH_VALUE("2{" INT32 "}"), TEG_ERR_FORMAT, "expected a value inline or in a weight file, found neither" EXPORT},
    {WITH_VALUE("2{" INT32 "} 3{} 5{}"), TEG_ERR_FORMAT,
     "expected a value inline or in a weight file, found both" EXPORT},
    {WITH_VALUE("2{" INT32 "} 3{3{}}"), TEG_ERR_FORMAT,
     "expected a value of the kind that its type says, found another" EXPORT},
    {WITH_VALUE(VALUE("5{1{" INT32 "}}", "2{1:1}")), TEG_ERR_FORMAT,
     "expected a value of the kind that its type says, found another" EXPORT},
    {WITH_VALUE(VALUE(INT32, "2{1:1 1:2}")), TEG_ERR_FORMAT,
     "expected a value of 1 ints as its shape says, found 2" EXPORT},
    {WITH_VALUE(VALUE(FP32_2, "1{1=0000803f}")), TEG_ERR_FORMAT,
     "expected a value of 2 floats as its shape says, found 1" EXPORT},
    {WITH_VALUE(VALUE(FP32_2, "1{1=0000803f00}")), TEG_ERR_FORMAT,
     "expected whole floats, found other bytes; copy the model again"},
    {WITH_VALUE(VALUE(FP32_2, "1{1:7 1:7}")), TEG_ERR_FORMAT,
     "expected whole floats, found other bytes; copy the model again"},
    {WITH_VALUE(VALUE("1{1:10}", "7{1=00}")), TEG_ERR_FORMAT,
     "expected a value of 2 bytes as its shape says, found 1" EXPORT},
    {WITH_VALUE(VALUE("1{1:35 2:1 3{1{1:3}}}", "7{1=00}")), TEG_ERR_FORMAT,
     "expected a value of 2 bytes as its shape says, found 1" EXPORT},
    {WITH_VALUE(VALUE(STRING, "4{}")), TEG_ERR_FORMAT,
     "expected a value of 1 strings as its shape says, found 0" EXPORT},
    {WITH_VALUE(VALUE("1{1:21}", "2{1:128}")), TEG_ERR_FORMAT,
     "expected integers in the range of int8, found 128" EXPORT},
    {WITH_VALUE(VALUE("1{1:32}", "2{1:-1}")), TEG_ERR_FORMAT,
     "expected integers in the range of uint16, found -1" EXPORT},
    {WITH_VALUE(VALUE("1{1:1}", "7{1=02}")), TEG_ERR_FORMAT, "expected bools of 0 and 1, found another byte" EXPORT},
    {WITH_VALUE(VALUE(INT32, "1{1#1.0}")), TEG_ERR_FORMAT,
     "expected a payload for elements of type int32, found field 1" EXPORT},
    {WITH_VALUE(VALUE("1{1:35}", "2{1:1}")), TEG_ERR_FORMAT,
     "expected a payload for elements of type uint4, found field 2" EXPORT},
    {WITH_VALUE(VALUE(STRING, "7{1'a'}")), TEG_ERR_FORMAT,
     "expected a payload for elements of type string, found field 7" EXPORT},
    {WITH_VALUE(VALUE(INT32, "")), TEG_ERR_FORMAT,
     "expected a payload for elements of type int32, found field 0" EXPORT},
    {WITH_VALUE(VALUE("1{1:23 2:1 3{2{}}}", "2{1:1}")), TEG_ERR_FORMAT,
     "expected a value with a constant shape that fits in memory, found another" EXPORT},
    {WITH_VALUE(VALUE("1{1:23 2:-1}", "2{1:1}")), TEG_ERR_FORMAT,
     "expected a value with a constant shape that fits in memory, found another" EXPORT},
    {WITH_VALUE(VALUE("1{1:23 2:2 3{1{1:4294967296}} 3{1{1:4294967296}}}", "2{1:1}")), TEG_ERR_FORMAT,
     "expected a value with a constant shape that fits in memory, found another" EXPORT},
    {WITH_VALUE(VALUE("1{1:24 2:1 3{1{1:2305843009213693952}}}", "5{1:1}")), TEG_ERR_FORMAT,
     "expected a value with a constant shape that fits in memory, found another" EXPORT},
    {WITH_VALUE(VALUE("1{1:31 2:1 3{1{1:1152921504606846976}}}", "7{1=00}")), TEG_ERR_FORMAT,
     "expected a value of 1152921504606846976 bytes as its shape says, found 1" EXPORT},
    {WITH_VALUE("2{2{1{" INT32 "} 2{1{1:2}}}} 3{3{1{" VALUE(INT32, "2{1:1}") "}}}"), TEG_ERR_FORMAT,
     "expected a value of 2 list items as its shape says, found 1" EXPORT},
    {WITH_VALUE("2{2{1{" INT32 "} 2{2{}}}} 3{3{1{" VALUE(STRING, "4{1'a'}") "}}}"), TEG_ERR_FORMAT,
     "expected the items of a value to have its declared type, found another" EXPORT},
    {WITH_VALUE("2{4{1{" STRING "} 2{" INT32
                "}}} 3{4{1{1{" VALUE(INT32, "2{1:1}") "} 2{" VALUE(INT32, "2{1:1}") "}}}}"),
     TEG_ERR_FORMAT, "expected the items of a value to have its declared type, found another" EXPORT},
    {WITH_VALUE("2{" INT32 "} 5{1'@model_path/w' 2:64}"), TEG_ERR_FORMAT,
     "expected a weight file '@model_path/w', found none; copy the whole package"},
    {WITH_VALUE("2{1{1:1}} 5{1'@model_path/w' 2:64}"), TEG_ERR_FORMAT,
     "expected a tensor of a type that weight files hold, found bool" EXPORT},
    {WITH_VALUE("2{3{}} 5{1'@model_path/w' 2:64}"), TEG_ERR_FORMAT,
     "expected a tensor of a type that weight files hold, found another kind of value" EXPORT},
    {WITH_VALUE("2{" INT32 "} 5{2:64}"), TEG_ERR_FORMAT,
     "expected the name of a weight file, found an empty name" EXPORT},
    /* description */
    {WITH_DESCRIPTION(""), TEG_ERR_FORMAT, "expected a description of input 'x' of function 'main', found none" EXPORT},
    {WITH_DESCRIPTION(DESCRIPTION FEATURE("1", "z", ARRAY)), TEG_ERR_FORMAT,
     "expected function 'main' to have the input 'z' of its description, found none" EXPORT},
    {WITH_DESCRIPTION(DESCRIPTION FEATURE("10", "z", ARRAY)), TEG_ERR_FORMAT,
     "expected function 'main' to have the output 'z' of its description, found none" EXPORT},
    {WITH_DESCRIPTION(DESCRIPTION FEATURE("13", "z", "8{1{1:2 2:65568}}")), TEG_ERR_FORMAT,
     "expected function 'main' to have the state 'z' of its description, found none" EXPORT},
    {WITH_DESCRIPTION(DESCRIPTION FEATURE("13", "x", "8{1{1:2 2:65568}}")), TEG_ERR_FORMAT,
     "expected state 'x' of function 'main' to have the type and shape of its description, found another" EXPORT},
    {WITH_DESCRIPTION(FEATURE("1", "x", "5{1:2 2:65552}")), TEG_ERR_FORMAT,
     "expected input 'x' of function 'main' to have the type and shape of its description, found another" EXPORT},
    {WITH_DESCRIPTION(FEATURE("1", "x", "5{1:3 2:65568}")), TEG_ERR_FORMAT,
     "expected input 'x' of function 'main' to have the type and shape of its description, found another" EXPORT},
    {WITH_DESCRIPTION(FEATURE("1", "x", "5{1:2 1:1 2:65568}")), TEG_ERR_FORMAT,
     "expected input 'x' of function 'main' to have the type and shape of its description, found another" EXPORT},
    {WITH_DESCRIPTION(FEATURE("1", "x", "4{1:2 2:2 3:20}")), TEG_ERR_FORMAT,
     "expected input 'x' of function 'main' to have the type and shape of its description, found another" EXPORT},
    {WITH_DESCRIPTION(FEATURE("1", "x", "3{}")), TEG_ERR_FORMAT,
     "expected input 'x' of function 'main' to have the type and shape of its description, found another" EXPORT},
    {WITH_DESCRIPTION(DESCRIPTION FEATURE("1", "x", ARRAY)), TEG_ERR_FORMAT,
     "expected one description of input 'x', found two" EXPORT},
    {WITH_DESCRIPTION(DESCRIPTION FEATURE("13", "x", ARRAY)), TEG_ERR_FORMAT,
     "expected state 'x' of function 'main' to have the type and shape of its description, found another" EXPORT},
    {MODEL("9", FEATURE("1", "s", "8{1{1:2 2:65568}}") FEATURE("13", "s", "8{1{1:2 2:65568}}"),
           PROGRAM(FUNCTION("1{1's' 2{5{1{" FP32_2 "}}}} " X, "CoreML8", "CoreML8", ""))),
     TEG_ERR_FORMAT,
     "expected input 's' of function 'main' to have the type and shape of its description, found another" EXPORT},
    {MODEL("9", FEATURE("1", "s", "7{}") FEATURE("13", "s", "8{1{1:2 2:65568}}"),
           PROGRAM(FUNCTION("1{1's' 2{5{1{" FP32_2 "}}}} " X, "CoreML8", "CoreML8", ""))),
     TEG_ERR_FORMAT,
     "expected input 's' of function 'main' to have the type and shape of its description, found another" EXPORT},
    {WITH_DESCRIPTION("1{}"), TEG_ERR_FORMAT, "expected the name of a feature, found an empty name" EXPORT},
    {WITH_DESCRIPTION(FEATURE("1", "x", "5{2:1}")), TEG_ERR_UNSUPPORTED,
     "expected feature 'x' to have a known element type, found 1; update tegula"},
    {WITH_DESCRIPTION(FEATURE("1", "x", "5{1:-1 2:65568}")), TEG_ERR_FORMAT,
     "expected shapes of at most 8 dimensions below 2^63, found another" EXPORT},
    {WITH_DESCRIPTION(FEATURE("1", "x", "5{1=010101010101010101 2:65568}")), TEG_ERR_FORMAT,
     "expected shapes of at most 8 dimensions below 2^63, found another" EXPORT},
    {WITH_DESCRIPTION(FEATURE("1", "x", "5{1=ff 2:65568}")), TEG_ERR_FORMAT, DAMAGED("a shape")},
    {WITH_DESCRIPTION(FEATURE("1", "x", "5{1:2 2:65568 21{1{1:2} 1{1:2 1:2}}}")), TEG_ERR_FORMAT,
     "expected enumerated shapes of one rank in 'x', found 1 and 2" EXPORT},
    {WITH_DESCRIPTION(FEATURE("1", "x", "5{1:2 2:65568 31{1{} 1{}}}")), TEG_ERR_FORMAT,
     "expected a size range for each dimension of 'x', found 2 for rank 1" EXPORT},
    {WITH_DESCRIPTION(FEATURE("1", "x", "5{1:2 2:65568 31{1{1:5 2:4}}}")), TEG_ERR_FORMAT,
     "expected a size range from low to high, found 5 to 4" EXPORT},
    {WITH_DESCRIPTION(FEATURE("1", "x", "4{1:2 2:3}")), TEG_ERR_FORMAT,
     "expected image 'x' with a colour space and a sane size, found colour space 0 and 2 x 3" EXPORT},
    {WITH_DESCRIPTION(FEATURE("1", "x", "4{1:-1 2:3 3:20}")), TEG_ERR_FORMAT,
     "expected image 'x' with a colour space and a sane size, found colour space 20 and 18446744073709551615 x "
     "3" EXPORT},
    /* description of functions */
    {WITH_DESCRIPTION("20{1'other'} 21'main'"), TEG_ERR_FORMAT,
     "expected a function 'other' as the description says, found none" EXPORT},
    {WITH_DESCRIPTION("20{1'main'} 20{1'main'} 21'main'"), TEG_ERR_FORMAT,
     "expected one description of function 'main', found two" EXPORT},
    {WITH_DESCRIPTION("20{1'main'} 21'other'"), TEG_ERR_FORMAT,
     "expected defaultFunctionName to name a function, found 'other'" EXPORT},
    {MODEL("9", "20{1'main' " FEATURE("2", "x", ARRAY) "} 21'main'",
           PROGRAM(FUNCTION(X, "CoreML7", "CoreML7", BLOCK(RELU))) " 2{1'more' 2{" FUNCTION("", "CoreML7", "CoreML7",
                                                                                            "") "}}"),
     TEG_ERR_FORMAT, "expected a description of function 'more', found none" EXPORT},
    {MODEL("9", DESCRIPTION,
           "1:1 2{1'a' 2{" FUNCTION("", "CoreML7", "CoreML7", "") "}} 2{1'b' 2{" FUNCTION("", "CoreML7", "CoreML7",
                                                                                          "") "}}"),
     TEG_ERR_FORMAT, "expected a function 'main' as the description says, found none" EXPORT},
};

static void test_bad(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct teg_mil_program *p = NULL;
        struct teg_error err = {0};
        const enum teg_status status = parse(bad[i].model, &p, &err);
        const char *const found = strstr(err.message, ": expected ");
        static const char at[] = "cannot read ML program: t at byte ";
        if (strncmp(err.message, at, strlen(at)) != 0 || !found || strcmp(found + 2, bad[i].message) != 0)
            fail_msg("%s:\n%s\nfound\n%s", bad[i].model, bad[i].message, err.message);
        assert_int_equal(status, bad[i].status);
        assert_null(p);
    }
}

/* ---- weights that lie ---- */

static void put_blob(struct bytes *b, uint32_t code, uint64_t n, uint64_t padding)
{
    put_uint(b, 1, 4);
    put_uint(b, 2, 4);
    put_zeros(b, 56);
    put_uint(b, 0xdeadbeef, 4);
    put_uint(b, code, 4);
    put_uint(b, n, 8);
    put_uint(b, 128, 8);
    put_uint(b, padding, 8);
    put_zeros(b, 32);
    put_zeros(b, n);
}

static void test_weights_that_lie(void **state)
{
    (void)state;
    static const struct {
        uint32_t code;
        uint64_t n, padding;
        const char *type, *message;
    } cases[] = {
        {1, 8, 0, FP32_2, "expected a weight of type fp32 as declared, found float16 in the record at 64" EXPORT},
        {2, 12, 0, FP32_2,
         "expected a weight of 8 bytes (2 x fp32) as its shape says, found 12 with 0 bits unused in the record at "
         "64" EXPORT},
        {11, 2, 0, "1{1:35 2:1 3{1{1:3}}}",
         "expected a weight of 2 bytes (3 x uint4) as its shape says, found 2 with 0 bits unused in the record at "
         "64" EXPORT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[800];
        struct bytes w = {0};
        struct teg_mil_program *p = NULL;
        struct teg_error err = {0};
        snprintf(text, sizeof text, WITH_VALUE("2{%s} 5{1'@model_path/w' 2:64}"), cases[i].type);
        put_blob(&w, cases[i].code, cases[i].n, cases[i].padding);
        struct bytes b = pb(text);
        assert_int_equal(teg_mil_parse_spec(b.at, b.n, w.at, w.n, "t", NULL, &p, &err), TEG_ERR_FORMAT);
        if (!strstr(err.message, cases[i].message))
            fail_msg("%s", err.message);
        bytes_free(&b);
        bytes_free(&w);
    }
}

/* ---- good ---- */

static const struct teg_mil_const *value_of(const struct teg_mil_program *p)
{
    const struct teg_mil_var *const v = teg_mil_arg_var(p, &p->functions[0].block.ops[0], "v");
    assert_non_null(v);
    return v->constant;
}

/* One value, however the numbers lie in the file. */
static void test_payloads(void **state)
{
    (void)state;
    static const struct {
        const char *type, *tensor;
        size_t n;
        const char *bytes;
    } cases[] = {
        {FP32_2, "1{1=0000803f00000040}", 8, "\0\0\x80\x3f\0\0\0\x40"},
        {FP32_2, "1{1#1.0 1#2.0}", 8, "\0\0\x80\x3f\0\0\0\x40"},
        {FP32_2, "1{1=0000803f 1=00000040}", 8, "\0\0\x80\x3f\0\0\0\x40"},
        {FP32_2, "7{1=0000803f00000040}", 8, "\0\0\x80\x3f\0\0\0\x40"},
        {INT32, "2{1:-2}", 4, "\xfe\xff\xff\xff"},
        {INT32, "2{1=feffffffffffffffff01}", 4, "\xfe\xff\xff\xff"},
        {INT32, "5{1:-2}", 4, "\xfe\xff\xff\xff"},
        {"1{1:21}", "2{1:-128}", 1, "\x80"},
        {"1{1:34}", "5{1:18446744073709551615}", 8, "\xff\xff\xff\xff\xff\xff\xff\xff"},
        {"1{1:1 2:1 3{1{1:3}}}", "3{1=010001}", 3, "\1\0\1"},
        {"1{1:1 2:1 3{1{1:3}}}", "3{1:1 1:0 1:5}", 3, "\1\0\1"},
        {"1{1:1 2:1 3{1{1:2}}}", "3{1=81800000}", 2, "\1\0"}, /* a long-winded 1 */
        {"1{1:12}", "6{1=000000000000f03f}", 8, "\0\0\0\0\0\0\xf0\x3f"},
        {"1{1:35 2:1 3{1{1:3}}}", "7{1=1f08}", 2, "\x1f\x08"},
        {"1{1:23 2:1 3{1{}}}", "2{}", 0, ""},
        {"1{1:23 2:1 3{1{}}}", "", 0, ""},
        {"1{1:10 2:2 3{1{}} 3{1{1:9223372036854775807}}}", "7{}", 0, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[800];
        snprintf(text, sizeof text, WITH_VALUE(VALUE("%s", "%s")), cases[i].type, cases[i].tensor);
        struct teg_mil_program *const p = parse_good(text);
        const struct teg_mil_const *const v = value_of(p);
        assert_int_equal(v->n_bytes, cases[i].n);
        assert_non_null(v->bytes);
        assert_memory_equal(v->bytes, cases[i].bytes, cases[i].n);
        teg_mil_free(p);
    }
}

static void test_liberal(void **state)
{
    (void)state;
    static const char *const good[] = {
        GOOD,
        /* unknown fields everywhere */
        "77:1 78{} 79#1.0 " GOOD " 80'x'",
        /* two specializations: the opset's counts */
        MODEL("8", DESCRIPTION, PROGRAM(FUNCTION(X, "CoreML7", "CoreML6", "77:1") " 3{1'CoreML7' 2{" BLOCK(RELU) "}}")),
        /* an output that is not described; one value twice; an empty op name */
        WITH_DESCRIPTION(FEATURE("1", "x", ARRAY)),
        WITH_DESCRIPTION(DESCRIPTION FEATURE("10", "y", ARRAY)),
        WITH_OPS("3{1'relu' " IN("x", "x") NAMED("3", "y", FP32_2) NAME("") "}"),
        /* an input that nothing is known of but its rank */
        WITH_DESCRIPTION(FEATURE("1", "x", "5{2:65568}") FEATURE("10", "y", "5{2:65568}")),
        WITH_DESCRIPTION(FEATURE("1", "x", "7{}") FEATURE("10", "y", ARRAY)),
        /* a single function of another name */
        MODEL("8", DESCRIPTION, "1:1 2{1'predict' 2{" FUNCTION(X, "CoreML7", "CoreML7", BLOCK(RELU)) "}}"),
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct teg_mil_program *const p = parse_good(good[i]);
        assert_int_equal(p->n_functions, 1);
        assert_int_equal(p->functions[0].block.n_ops, 1);
        teg_mil_free(p);
    }
}

static void test_features(void **state)
{
    (void)state;
#define IMAGE_INPUT(type, tensor)                                                                                      \
    MODEL("8", FEATURE("1", "x", type), PROGRAM(FUNCTION(NAMED("1", "x", tensor), "CoreML7", "CoreML7", "")))
#define RGB_TENSOR "1{1:11 2:4 3{1{1:1}} 3{1{1:3}} 3{2{}} 3{2{}}}"
    struct teg_mil_program *p = parse_good(IMAGE_INPUT("4{1:8 2:6 3:20 21{1{1:8 2:6} 1{1:4 2:12}}}", RGB_TENSOR));
    const struct teg_mil_feature *f = &p->interfaces[0].inputs[0];
    assert_int_equal(f->n_enumerated, 2);
    assert_int_equal(f->enumerated[1][0], 12); /* height, width */
    assert_int_equal(f->min_width, 4);
    assert_int_equal(f->max_height, 12);
    teg_mil_free(p);
    p = parse_good(IMAGE_INPUT("4{1:8 2:6 3:20 31{1{1:4 2:-1} 2{1:6 2:9}}}", RGB_TENSOR));
    f = &p->interfaces[0].inputs[0];
    assert_int_equal(f->max_width, -1);
    assert_int_equal(f->max_height, 9);
    teg_mil_free(p);
    p = parse_good(
        WITH_DESCRIPTION(FEATURE("1", "x", "5{2:65568 31{1{1:2 2:-1}} 41:-3} 1000:1") FEATURE("10", "y", ARRAY)));
    f = &p->interfaces[0].inputs[0];
    assert_true(f->optional && f->has_default && f->default_value == -3.0);
    assert_int_equal(f->shape[0], 2); /* the lower bound */
    assert_int_equal(f->upper[0], -1);
    teg_mil_free(p);
}

/* ---- deep ---- */

/* The message that each level wraps, as fields of `open` around it: "3{1'cond' 4{" is the field 4 after a 1 inside a 3.
 */
static void wrap(struct bytes *inner, const char *const *around, const uint32_t *fields, size_t n)
{
    for (size_t i = n; i-- > 0;) {
        struct bytes b = pb(around[i]);
        pb_bytes(&b, fields[i], inner->at ? (const void *)inner->at : "", inner->n);
        bytes_free(inner);
        *inner = b;
    }
}

/* Ten thousand levels of each kind of nesting: written from the inside out, refused from the outside in. */
static void test_deep(void **state)
{
    (void)state;
    static const struct {
        const char *head[7];
        uint32_t head_fields[7];
        size_t n_head;
        const char *level[3];
        uint32_t level_fields[3];
        size_t n_level;
        const char *message;
    } cases[] = {
        {{"1:8", "1:1", "1'main'", "2'CoreML7'", "1'CoreML7'"},
         {502, 2, 2, 3, 2},
         5,
         {"", "1'cond'"},
         {3, 4},
         2,
         "expected blocks at most 32 deep, found deeper ones" EXPORT},
        {{"1:8", "1:1", "1'main'", "2'CoreML7' 3{1'CoreML7'}", "1'x'"},
         {502, 2, 2, 1, 2},
         5,
         {"", ""},
         {2, 1},
         2,
         "expected types at most 16 deep, found deeper ones" EXPORT},
        {{"1:8", "1:1", "1'main'", "2'CoreML7'", "1'CoreML7'", "", "1'op' 77:1"},
         {502, 2, 2, 3, 2, 3, 5},
         7,
         {"2{3{}}", "", ""},
         {3, 2, 1},
         3,
         "expected values at most 16 deep, found deeper ones" EXPORT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bytes b = {0};
        struct teg_error err = {0};
        struct teg_mil_program *p = NULL;
        for (int k = 0; k < 10000; k++)
            wrap(&b, cases[i].level, cases[i].level_fields, cases[i].n_level);
        if (i == 2) { /* an attribute is a pair */
            static const char *const pair[] = {"1'v'"};
            wrap(&b, pair, (const uint32_t[]){2}, 1);
        }
        wrap(&b, cases[i].head, cases[i].head_fields, cases[i].n_head);
        assert_int_equal(teg_mil_parse_spec(b.at, b.n, NULL, 0, "t", NULL, &p, &err), TEG_ERR_FORMAT);
        if (!strstr(err.message, cases[i].message))
            fail_msg("%s", err.message);
        bytes_free(&b);
    }
}

/* More features than anybody has. */
static void test_many_features(void **state)
{
    (void)state;
    struct bytes description = {0}, inputs = {0}, model = {0};
    struct teg_error err = {0};
    struct teg_mil_program *p = NULL;
    for (int i = 0; i < 4097; i++) {
        char text[100];
        snprintf(text, sizeof text, "1{1'x%d' 3{" ARRAY "}}", i);
        struct bytes b = pb(text);
        put(&description, b.at, b.n);
        bytes_free(&b);
        snprintf(text, sizeof text, NAMED("1", "x%d", FP32_2), i);
        b = pb(text);
        put(&inputs, b.at, b.n);
        bytes_free(&b);
    }
    struct bytes tail = pb("2'CoreML7' 3{1'CoreML7' 2{}}");
    put(&inputs, tail.at, tail.n);
    bytes_free(&tail);
    static const char *const around[] = {"1:8", "1:1", "1'main'"};
    wrap(&inputs, around, (const uint32_t[]){502, 2, 2}, 3);
    put(&model, inputs.at, inputs.n);
    pb_bytes(&model, 2, description.at, description.n);
    assert_int_equal(teg_mil_parse_spec(model.at, model.n, NULL, 0, "t", NULL, &p, &err), TEG_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "expected at most 4096 inputs and outputs, found more; split the model"));
    bytes_free(&description);
    bytes_free(&inputs);
    bytes_free(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad),           cmocka_unit_test(test_weights_that_lie), cmocka_unit_test(test_payloads),
        cmocka_unit_test(test_liberal),       cmocka_unit_test(test_features),         cmocka_unit_test(test_deep),
        cmocka_unit_test(test_many_features),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
