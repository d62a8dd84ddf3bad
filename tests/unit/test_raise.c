/* Raise: a small language model as MIL text becomes the graph that it is; each change that makes it another program is
 * refused with the op and the condition; every failing allocation is survived. */
#include "unit/format_test.h"

#include "base/text.h"
#include "pass/raise.h"

#define I32(list) "tensor<int32, [" list "]>"
#define F32(dims) "tensor<fp32, [" dims "]> "

/* V 3, D 4, two query heads and one key head of 2, eight slots; one state holds keys (row 0) and values (row 1). A line
 * each, so that a test can change one. */
static const char *const model[] = {
    "program(1.3)\n{\nfunc main<ios18>(" I32("1, ?") " ids, " F32(
        "1, 1, ?, ?") "mask, "
                      "state<tensor<fp32, [2, 1, 8, 2]>> kv) {",
    F32("3, 4") "table = const()[val = " F32("3, 4") "([[1, 2, 3, 4], [5, 6, 7, 8], [4, 3, 2, 1]])];",
    F32("4, 4") "square = const()[val = " F32("4, 4") "([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])];",
    F32("2, 4") "tall = const()[val = " F32("2, 4") "([[1, 0, 0, 0], [0, 1, 0, 0]])];",
    F32("4") "ones = const()[val = " F32("4") "([1, 1, 1, 1])];",
    F32("1, 1, 1") "freqs = const()[val = " F32("1, 1, 1") "([[[1]]])];",
    I32("2") " s = shape(x = ids);",
    "int32 n = gather(x = s, indices = int32(1), axis = int32(0));",
    I32("4") " ms = shape(x = mask);",
    "int32 end = gather(x = ms, indices = int32(3), axis = int32(0));",
    "int32 begin = sub(x = end, y = n);",
    F32("1, ?, 4") "x = gather(x = table, indices = ids, axis = int32(0));",
    F32("1, ?, 4") "sq = pow(x = x, y = fp32(2));",
    F32("1, ?, 1") "mean = reduce_mean(x = sq, axes = " I32("1") "([-1]), keep_dims = bool(true));",
    F32("1, ?, 1") "me = add(x = mean, y = fp32(0.5));",
    F32("1, ?, 1") "inv = rsqrt(x = me, epsilon = fp32(0));",
    F32("1, ?, 4") "nx = mul(x = x, y = inv);",
    F32("1, ?, 4") "h = mul(x = ones, y = nx);",
    F32("1, ?, 4") "q0 = linear(x = h, weight = square);",
    F32("1, ?, 2, 2") "q1 = reshape(x = q0, shape = " I32("4") "([1, -1, 2, 2]));",
    F32("1, 2, ?, 2") "q = transpose(x = q1, perm = " I32("4") "([0, 2, 1, 3]));",
    F32("1, ?, 2") "k0 = linear(x = h, weight = tall);",
    F32("1, 1, ?, 2") "k = expand_dims(x = k0, axes = " I32("1") "([1]));",
    F32("1, ?, 2") "v0 = linear(x = h, weight = tall);",
    F32("1, 1, ?, 2") "v = expand_dims(x = v0, axes = " I32("1") "([1]));",
    F32("2, 1, 8, 2") "r0 = read_state(input = kv);",
    I32("1") " b1 = expand_dims(x = begin, axes = " I32("1") "([0]));",
    I32("1") " e1 = expand_dims(x = end, axes = " I32("1") "([0]));",
    I32("4") " kb = concat(values = (" I32("1") "([0]), " I32("1") "([0]), b1, " I32("1") "([0])), axis = int32(0), "
                                                                                          "interleave = bool(false));",
    I32("4") " ke = concat(values = (" I32("1") "([1]), " I32("1") "([1]), e1, " I32("1") "([2])), axis = int32(0), "
                                                                                          "interleave = bool(false));",
    I32("4") " vb = concat(values = (" I32("1") "([1]), " I32("1") "([0]), b1, " I32("1") "([0])), axis = int32(0), "
                                                                                          "interleave = bool(false));",
    I32("4") " ve = concat(values = (" I32("1") "([2]), " I32("1") "([1]), e1, " I32("1") "([2])), axis = int32(0), "
                                                                                          "interleave = bool(false));",
    F32("2, 1, 8, 2") "u0 = slice_update(x = r0, update = k, begin = kb, end = ke);",
    "write_state(data = u0, input = kv);",
    F32("2, 1, 8, 2") "r1 = read_state(input = kv);",
    F32("2, 1, 8, 2") "u1 = slice_update(x = r1, update = v, begin = vb, end = ve);",
    "write_state(data = u1, input = kv);",
    F32("2, 1, 8, 2") "r2 = read_state(input = kv);",
    F32("1, 1, 8, 2") "K0 = slice_by_index(x = r2, begin = " I32("4") "([0, 0, 0, 0]), end = " I32(
        "4") "([1, 1, 8, 2]));",
    I32("4") " ce = concat(values = (" I32("1") "([1]), " I32("1") "([1]), e1, " I32("1") "([2])), axis = int32(0), "
                                                                                          "interleave = bool(false));",
    F32("1, 1, ?, 2") "K1 = slice_by_index(x = K0, begin = " I32("4") "([0, 0, 0, 0]), end = ce);",
    F32("1, 1, ?, 2") "V1 = slice_by_index(x = r2, begin = " I32("4") "([1, 0, 0, 0]), end = ve);",
    F32("1, 2, ?, ?") "s0 = matmul(x = q, y = K1, transpose_y = bool(true));",
    F32("1, 2, ?, ?") "s1 = mul(x = s0, y = fp32(0.5));",
    F32("1, 2, ?, ?") "s2 = add(x = s1, y = mask);",
    F32("1, 2, ?, ?") "p = softmax(x = s2, axis = int32(-1));",
    F32("1, 2, ?, 2") "a0 = matmul(x = p, y = V1);",
    F32("1, ?, 2, 2") "a1 = transpose(x = a0, perm = " I32("4") "([0, 2, 1, 3]));",
    F32("1, ?, 4") "a2 = reshape(x = a1, shape = " I32("3") "([1, -1, 4]));",
    F32("1, ?, 4") "o = linear(x = a2, weight = square);",
    F32("1, ?, 4") "y = add(x = x, y = o);",
    F32("1, ?, 4") "g0 = linear(x = y, weight = square);",
    F32("1, ?, 4") "g1 = silu(x = g0);",
    F32("1, ?, 4") "f = mul(x = g1, y = g0);",
    F32("1, ?, 4") "z = add(x = y, y = f);",
    F32("1, ?, 3") "logits = linear(x = z, weight = table);",
    "} -> (logits);\n}\n",
};

/* The model with the first `from` in the line that begins the definition of `name` replaced. NULL: as it is. */
static struct bytes text_with(const char *name, const char *from, const char *to)
{
    struct bytes b = {0};
    char pattern[32];
    bool done = name == NULL;
    snprintf(pattern, sizeof pattern, " %s = ", name ? name : "");
    for (size_t i = 0; i < sizeof model / sizeof *model; i++) {
        const char *const line = model[i];
        const char *const at = !done && strstr(line, pattern) ? strstr(line, from) : NULL;
        if (at) {
            put(&b, line, (size_t)(at - line));
            put(&b, to, strlen(to));
            put(&b, at + strlen(from), strlen(at + strlen(from)));
            done = true;
        } else {
            put(&b, line, strlen(line));
        }
        put(&b, "\n", 1);
    }
    if (!done)
        fail_msg("no line has %s and %s", name, from);
    return b;
}

static struct teg_mil_program *program_of(const struct bytes *text, const struct teg_allocator *allocator)
{
    struct teg_mil_program *p = NULL;
    struct teg_error err = {0};
    if (teg_mil_parse_text((const char *)text->at, text->n, NULL, 0, "toy", allocator, &p, &err) != TEG_OK)
        fail_msg("%s", err.message);
    return p;
}

static uint32_t count(const struct teg_graph *g, enum teg_op_kind kind)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_ops; i++)
        n += g->ops[i].kind == kind;
    return n;
}

static const struct teg_op *first(const struct teg_graph *g, enum teg_op_kind kind)
{
    for (uint32_t i = 0; i < g->n_ops; i++)
        if (g->ops[i].kind == kind)
            return &g->ops[i];
    fail_msg("no %s", teg_op_name(kind));
    return NULL;
}

static void test_whole(void **state)
{
    (void)state;
    struct bytes text = text_with(NULL, NULL, NULL);
    struct teg_mil_program *const p = program_of(&text, NULL);
    struct teg_arena arena;
    struct teg_raised raised = {0};
    struct teg_error err = {0};
    teg_arena_init(&arena, NULL);
    if (teg_raise(p, NULL, &arena, &raised, &err) != TEG_OK)
        fail_msg("%s", err.message);
    const struct teg_graph *const g = raised.graph;
    assert_int_equal(count(g, TEG_OP_EMBEDDING), 1);
    assert_int_equal(count(g, TEG_OP_RMS_NORM), 1);
    assert_int_equal(count(g, TEG_OP_KV_APPEND), 1);
    assert_int_equal(count(g, TEG_OP_GLU), 1);
    assert_int_equal(count(g, TEG_OP_ADD), 2);
    assert_int_equal(count(g, TEG_OP_LINEAR), 4); /* k and v are one product here */
    assert_int_equal(count(g, TEG_OP_LM_HEAD), 1);
    assert_float_equal(first(g, TEG_OP_RMS_NORM)->attr.norm.eps, 0.5, 0);
    const struct teg_op *const a = first(g, TEG_OP_ATTENTION);
    assert_int_equal(a->attr.attention.n_heads, 2);
    assert_int_equal(a->attr.attention.n_kv_heads, 1);
    assert_int_equal(a->attr.attention.head_width, 2);
    assert_float_equal(a->attr.attention.scale, 0.5, 0);
    assert_int_equal(raised.context, 8);
    assert_int_equal(raised.width, 4);
    assert_non_null(strstr(raised.contract, "input      ids: token ids"));
    assert_non_null(strstr(raised.contract, "output     logits: logits of every token"));
    teg_arena_free(&arena);
    teg_mil_free(p);
    bytes_free(&text);
}

/* The message of a refusal; and why-not has a line about the same op. */
static void expect_refused(const char *name, const char *from, const char *to, const char *message)
{
    struct bytes text = text_with(name, from, to);
    struct teg_mil_program *const p = program_of(&text, NULL);
    struct teg_arena arena;
    struct teg_raised raised = {0};
    struct teg_error err = {0};
    struct teg_buf lines = {0};
    teg_arena_init(&arena, NULL);
    const enum teg_status status = teg_raise(p, NULL, &arena, &raised, &err);
    if (status != TEG_ERR_UNSUPPORTED || !strstr(err.message, message))
        fail_msg("%s: %s -> %s: status %d: %s", name, from, to, status, err.message);
    assert_int_equal(teg_raise_why_not(p, NULL, NULL, &lines, &err), TEG_OK);
    if (!lines.bytes || !strstr(lines.bytes, message))
        fail_msg("%s: %s", message, lines.bytes ? lines.bytes : "(nothing)");
    teg_buf_free(&lines);
    teg_arena_free(&arena);
    teg_mil_free(p);
    bytes_free(&text);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name, *from, *to, *message;
    } cases[] = {
        {"g1", "silu(", "softplus(",
         "op g1 (softplus): expected an op that language models are made of, found this one"},
        {"sq", "fp32(2)", "fp32(3)", "op sq (pow): expected a square, found another power"},
        {"mean", "([-1])", "([1])", "op mean (reduce_mean): expected the mean over the columns of a row or a head"},
        {"q1", "([1, -1, 2, 2])", "([1, 2, -1, 2])", "op q1 (reshape): expected a shape that keeps tokens and heads"},
        {"q", "([0, 2, 1, 3])", "([0, 3, 1, 2])", "expected [..., T, K] times [..., slots, K], found another layout"},
        {"K0", "([1, 1, 8, 2])", "([1, 1, 4, 2])",
         "op K1 (slice_by_index): expected columns, the last token, or the slots in use"},
        {"s2", "add(", "sub(", "op s2 (sub): expected positions, a mask, or rows and their mean, found other terms"},
        {"s2", "y = mask", "y = fp32(0)", "op s2 (add): expected scores times a number, or plus a mask"},
        {"p", "int32(-1)", "int32(1)", "op p (softmax): expected masked scores over the dimension of their keys"},
        {"a1", "([0, 2, 1, 3])", "([0, 1, 2, 3])", "op a2 (reshape): expected a shape that keeps tokens and heads"},
        {"u1", "begin = vb, end = ve", "begin = kb, end = ke", "expected each layer's cache to be written once a call"},
        {"u1", "update = v", "update = q", "expected this call's rows in the cache's layout, found another update"},
        {"kb", "b1", "e1", "expected one layer's slots P … P + T - 1 with all heads to be written"},
        {"f", "y = g0", "y = fp32(2)", "expected a norm, a gate, a rotation or a scale, found another product"},
        {"o", "weight = square", "weight = h", "op o (linear): expected a constant weight, found a computed one"},
        {"logits", "linear(x = z, weight = table)", "add(x = z, y = z)",
         "expected logits from a product with the head"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_refused(cases[i].name, cases[i].from, cases[i].to, cases[i].message);
}

/* Forms that mean the same: the graph is as before. */
static void test_same_meaning(void **state)
{
    (void)state;
    static const struct {
        const char *name, *from, *to;
    } cases[] = {
        {"f", "mul(x = g1, y = g0)", "mul(x = g0, y = g1)"},
        {"sq", "pow(x = x, y = fp32(2))", "mul(x = x, y = x)"},
        {"s1", "mul(x = s0, y = fp32(0.5))", "real_div(x = s0, y = fp32(2))"},
        {"y", "add(x = x, y = o)", "add(x = o, y = x)"},
        {"a2", "([1, -1, 4])", "([1, -1, 4])"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bytes text = text_with(cases[i].name, cases[i].from, cases[i].to);
        struct teg_mil_program *const p = program_of(&text, NULL);
        struct teg_arena arena;
        struct teg_raised raised = {0};
        struct teg_error err = {0};
        teg_arena_init(&arena, NULL);
        if (teg_raise(p, NULL, &arena, &raised, &err) != TEG_OK)
            fail_msg("%s: %s", cases[i].to, err.message);
        assert_int_equal(raised.graph->n_ops, 12);
        assert_float_equal(first(raised.graph, TEG_OP_ATTENTION)->attr.attention.scale, 0.5, 0);
        teg_arena_free(&arena);
        teg_mil_free(p);
        bytes_free(&text);
    }
}

static void test_arguments(void **state)
{
    (void)state;
    struct bytes text = text_with(NULL, NULL, NULL);
    struct teg_mil_program *const p = program_of(&text, NULL);
    struct teg_arena arena;
    struct teg_raised raised;
    struct teg_error err = {0};
    struct teg_buf lines = {0};
    teg_arena_init(&arena, NULL);
    const struct teg_raise_options options = {.function = "other"};
    assert_int_equal(teg_raise(p, &options, &arena, &raised, &err), TEG_ERR_ARGUMENT);
    assert_string_equal(err.message, "cannot run package: toy: function: expected one of the package's, found other; "
                                     "see `tegula inspect`");
    assert_int_equal(teg_raise_why_not(p, &(struct teg_raise_options){.function = "other"}, NULL, &lines, &err),
                     TEG_ERR_ARGUMENT);
    assert_int_equal(teg_raise_why_not(p, NULL, NULL, &lines, &err), TEG_OK);
    assert_int_equal(lines.n_bytes, 0);
    teg_arena_free(&arena);
    teg_mil_free(p);
    bytes_free(&text);
}

static void test_memory(void **state)
{
    (void)state;
    struct bytes text = text_with(NULL, NULL, NULL);
    struct teg_mil_program *const p = program_of(&text, NULL);
    for (size_t fail_at = 1;; fail_at++) {
        struct counting c;
        struct teg_arena arena;
        struct teg_raised raised = {0};
        struct teg_error err = {0};
        teg_arena_init(&arena, counting_init(&c, fail_at));
        const enum teg_status status = teg_raise(p, NULL, &arena, &raised, &err);
        teg_arena_free(&arena);
        assert_int_equal(c.n_live, 0);
        if (status == TEG_OK)
            break;
        assert_int_equal(status, TEG_ERR_MEMORY);
        assert_true(fail_at < 10000);
    }
    teg_mil_free(p);
    bytes_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),     cmocka_unit_test(test_refused), cmocka_unit_test(test_same_meaning),
        cmocka_unit_test(test_arguments), cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
