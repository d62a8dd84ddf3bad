/* What the packages of tests/data/mil read as; a package and its compiled counterpart read the same; every prefix,
 * every failing allocation; real packages beside the checkout where there are any. */
#include <dirent.h>

#include "unit/mil_test.h"

/* ---- the same from both forms ---- */

static char *dump_all(const struct teg_mil_program *p)
{
    struct teg_buf text = {0};
    for (size_t i = 0; i < p->n_functions; i++)
        teg_mil_dump(p, &p->functions[i], &text);
    assert_false(text.failed);
    return text.bytes;
}

static void compare_interfaces(const struct teg_mil_program *a, const struct teg_mil_program *b)
{
    assert_int_equal(a->n_functions, b->n_functions);
    assert_string_equal(a->default_function, b->default_function);
    assert_string_equal(a->description, b->description);
    assert_int_equal(a->n_user_metadata, b->n_user_metadata);
    for (size_t i = 0; i < a->n_functions; i++) {
        const struct teg_mil_interface *const x = &a->interfaces[i], *const y = &b->interfaces[i];
        assert_string_equal(x->function, a->functions[i].name);
        assert_string_equal(x->function, y->function);
        assert_int_equal(x->n_inputs, y->n_inputs);
        assert_int_equal(x->n_outputs, y->n_outputs);
        assert_int_equal(x->n_states, y->n_states);
        for (size_t k = 0; k < x->n_inputs; k++)
            assert_string_equal(x->inputs[k].name, y->inputs[k].name);
    }
}

/* Constants too: the dump cuts them. */
static void compare_constants(const struct teg_mil_program *a, const struct teg_mil_program *b)
{
    assert_int_equal(a->n_vars, b->n_vars);
    size_t n_bytes[2] = {0}, sums[2] = {0};
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < a->n_vars; i++) {
            const struct teg_mil_const *const c = (side ? b : a)->vars[i].constant;
            n_bytes[side] += c ? c->n_bytes : 0;
            for (size_t k = 0; c && c->bytes && k < c->n_bytes; k++)
                sums[side] += (size_t)c->bytes[k] * (k + 1);
        }
    assert_int_equal(n_bytes[0], n_bytes[1]);
    assert_int_equal(sums[0], sums[1]);
}

static void compare_pair(const char *package, const char *compiled)
{
    struct teg_mil_program *const a = open_mil(package), *const b = open_mil(compiled);
    char *const x = dump_all(a), *const y = dump_all(b);
    assert_string_equal(a->format, "mlpackage");
    assert_string_equal(b->format, "mlmodelc");
    assert_int_equal(a->spec_version, b->spec_version);
    assert_string_equal(x, y);
    compare_interfaces(a, b);
    compare_constants(a, b);
    free(x);
    free(y);
    teg_mil_free(a);
    teg_mil_free(b);
}

static void test_pairs(void **state)
{
    (void)state;
    compare_pair(MIL_DATA "old.mlpackage", MIL_DATA "old.mlmodelc");
    compare_pair(MIL_DATA "cache.mlpackage", MIL_DATA "cache.mlmodelc");
    compare_pair(MIL_DATA "flow.mlpackage", MIL_DATA "flow.mlmodelc");
}

/* ---- what they hold ---- */

static const struct teg_mil_op *find_op(const struct teg_mil_block *block, const char *type)
{
    for (size_t i = 0; i < block->n_ops; i++)
        if (strcmp(block->ops[i].type, type) == 0)
            return &block->ops[i];
    fail_msg("no op %s", type);
    return NULL;
}

static const struct teg_mil_const *constant_of(const struct teg_mil_program *p, const struct teg_mil_op *op,
                                               const char *name)
{
    const struct teg_mil_var *const var = teg_mil_arg_var(p, op, name);
    assert_non_null(var);
    assert_non_null(var->constant);
    return var->constant;
}

static void test_old(void **state)
{
    (void)state;
    struct teg_mil_program *const p = open_mil(MIL_DATA "old.mlpackage");
    assert_int_equal(p->spec_version, 7);
    assert_string_equal(p->description, "A small model.");
    assert_string_equal(p->version, "2");
    assert_string_equal(p->author, "somebody");
    assert_string_equal(p->license, "none");
    assert_int_equal(p->n_user_metadata, 2);
    assert_string_is(p->user_metadata[0][0], "com.github.apple.coremltools.version");
    assert_string_is(p->user_metadata[0][1], "9.0");
    const struct teg_mil_function *const f = teg_mil_find_function(p, "main");
    assert_non_null(f);
    assert_null(teg_mil_find_function(p, "other"));
    assert_int_equal(f->opset, 7);
    assert_string_equal(f->opset_name, "CoreML6");
    /* attributes of a constexpr are args */
    const struct teg_mil_op *const q = find_op(&f->block, "constexpr_affine_dequantize");
    assert_int_equal(q->n_args, 4);
    for (size_t i = 1; i < q->n_args; i++)
        assert_true(strcmp(q->args[i - 1].name, q->args[i].name) < 0);
    const struct teg_mil_const *const data = constant_of(p, q, "quantized_data");
    assert_int_equal(data->type.dtype, TEG_MIL_INT8);
    assert_int_equal(data->type.rank, 2);
    assert_int_equal(data->n_bytes, 6);
    assert_memory_equal(data->bytes, ((const int8_t[]){1, -2, 3, -4, 5, -6}), 6);
    assert_string_equal(data->file, "@model_path/weights/weight.bin");
    assert_int_equal(data->file_offset, 64);
    assert_null(constant_of(p, q, "scale")->file);
    /* a const op is a variable */
    const struct teg_mil_op *const cast = find_op(&f->block, "cast");
    assert_string_equal(cast->name, "cast_3");
    assert_string_is(constant_of(p, cast, "dtype")->strings[0], "fp16");
    assert_null(teg_mil_find_arg(cast, "none"));
    assert_string_equal(teg_mil_arg_var(p, cast, "dtype")->name, "to");
    /* interface */
    const struct teg_mil_interface *const in = &p->interfaces[0];
    assert_int_equal(in->inputs[0].kind, TEG_MIL_FEATURE_IMAGE);
    assert_int_equal(in->inputs[0].colour, TEG_MIL_BGR);
    assert_int_equal(in->inputs[0].width, 5);
    assert_int_equal(in->inputs[0].max_height, 4);
    assert_true(in->inputs[1].optional);
    assert_true(in->inputs[1].has_default);
    assert_true(in->inputs[1].default_value == 0.25);
    assert_string_equal(in->inputs[1].description, "about extra");
    assert_int_equal(in->outputs[0].dtype, TEG_MIL_FP16);
    teg_mil_free(p);
}

static void test_cache(void **state)
{
    (void)state;
    struct teg_mil_program *const p = open_mil(MIL_DATA "cache.mlpackage");
    assert_int_equal(p->n_functions, 2);
    assert_string_equal(p->functions[0].name, "chunk"); /* by name, whatever the file's order */
    assert_string_equal(p->default_function, "step");
    const struct teg_mil_function *const f = &p->functions[0];
    const struct teg_mil_interface *const in = &p->interfaces[0];
    assert_int_equal(in->n_states, 1);
    assert_int_equal(in->states[0].kind, TEG_MIL_FEATURE_STATE);
    assert_int_equal(in->inputs[1].n_enumerated, 2);
    assert_int_equal(in->inputs[1].enumerated[1][0], 1);
    assert_int_equal(in->inputs[1].shape[0], 8);
    assert_int_equal(in->inputs[1].lower[0], 1);
    assert_int_equal(in->inputs[1].upper[0], 8);
    assert_false(in->outputs[0].has_shape);
    /* inputs in the description's order, states last */
    assert_string_equal(p->vars[f->block.inputs[0]].name, "x");
    assert_string_equal(p->vars[f->block.inputs[1]].name, "offset");
    assert_string_equal(p->vars[f->block.inputs[2]].name, "kv");
    assert_int_equal(p->vars[f->block.inputs[2]].type.kind, TEG_MIL_STATE);
    assert_int_equal(p->vars[f->block.inputs[1]].type.dims[0], TEG_MIL_UNKNOWN);
    const struct teg_mil_const *const data =
        constant_of(p, find_op(&f->block, "constexpr_blockwise_shift_scale"), "data");
    assert_int_equal(data->type.dtype, TEG_MIL_INT4);
    assert_memory_equal(data->bytes, "\x78\x3f\x05\x21", 4);
    const struct teg_mil_op *const write = find_op(&f->block, "write_state");
    assert_int_equal(write->n_outputs, 0);
    assert_ptr_equal(teg_mil_arg_var(p, write, "input"), &p->vars[f->block.inputs[2]]);
    assert_string_equal(constant_of(p, find_op(&f->block, "constexpr_lut_to_dense"), "indices")->file,
                        "@model_path/weights/more/other.bin");
    /* the second function is another scope: the same names, other variables */
    const struct teg_mil_function *const g = &p->functions[1];
    assert_string_equal(p->vars[g->block.inputs[2]].name, "kv");
    assert_int_not_equal(g->block.inputs[2], f->block.inputs[2]);
    teg_mil_free(p);
}

static void test_flow(void **state)
{
    (void)state;
    struct teg_mil_program *const p = open_mil(MIL_DATA "flow.mlpackage");
    const struct teg_mil_block *const main_block = &p->functions[0].block;
    const struct teg_mil_op *const loop = find_op(main_block, "while_loop");
    assert_int_equal(loop->n_blocks, 2);
    assert_int_equal(loop->n_outputs, 2);
    const struct teg_mil_arg *const vars = teg_mil_find_arg(loop, "loop_vars");
    assert_int_equal(vars->n_vars, 2);
    assert_null(teg_mil_arg_var(p, loop, "loop_vars"));
    assert_non_null(p->vars[vars->vars[0]].constant);
    assert_int_equal(p->vars[vars->vars[1]].type.kind, TEG_MIL_LIST);
    assert_int_equal(p->vars[vars->vars[1]].type.element->rank, 2);
    assert_int_equal(loop->blocks[1].n_inputs, 2);
    assert_int_equal(loop->blocks[1].n_ops, 2);
    const struct teg_mil_var *const next = &p->vars[loop->blocks[1].outputs[0]];
    assert_string_equal(next->name, "next");
    assert_int_equal(next->op, 0); /* in its own block */
    const struct teg_mil_op *const choice = find_op(main_block, "cond");
    assert_int_equal(choice->blocks[1].n_ops, 0);
    assert_string_equal(p->vars[choice->blocks[1].outputs[0]].name, "first"); /* an outer name */
    const struct teg_mil_op *const classify = find_op(main_block, "classify");
    const struct teg_mil_const *const classes = constant_of(p, classify, "classes");
    assert_int_equal(classes->n_items, 2);
    assert_string_is(classes->items[1].strings[0], "dog");
    assert_int_equal(p->vars[classify->outputs[1]].type.kind, TEG_MIL_DICT);
    const struct teg_mil_interface *const in = &p->interfaces[0];
    assert_int_equal(in->inputs[0].lower[0], 1);
    assert_int_equal(in->inputs[0].upper[0], 16);
    assert_int_equal(in->inputs[0].shape[0], 4);
    assert_int_equal(in->outputs[0].kind, TEG_MIL_FEATURE_STRING);
    assert_int_equal(in->outputs[1].kind, TEG_MIL_FEATURE_DICT_STRING);
    assert_string_equal(in->predicted_feature, "label");
    assert_string_equal(in->predicted_probabilities, "label_probs");
    teg_mil_free(p);
}

/* A writer that leaves the version out: the opset says it. */
static void test_version_from_opset(void **state)
{
    (void)state;
    const struct temp_dir d = temp_dir_make();
    char path[128];
    temp_path(&d, "m", path);
    copy_package(&d, "cache.mlmodelc");
    struct bytes b = read_whole(MIL_DATA "cache.mlmodelc/coremldata.bin");
    b.at[0x2b] = 0;
    replace_file(&d, "coremldata.bin", b.at, b.n);
    struct teg_mil_program *const p = open_mil(path);
    assert_int_equal(p->spec_version, 9);
    teg_mil_free(p);
    bytes_free(&b);
    temp_dir_remove(&d);
}

static void test_dump(void **state)
{
    (void)state;
    struct teg_mil_program *const p = open_mil(MIL_DATA "flow.mlpackage");
    char *const text = dump_all(p);
    static const char *const lines[] = {
        "func main<CoreML7>\n(tensor<fp32, [?, 2]> x) {\n",
        "    tensor<fp16, [2]> kept_fp16 = identity(x = [0.0999756, -0])\n",
        "    tensor<uint64, [1]> kept_uint64 = identity(x = [18446744073709551615])\n",
        "    tensor<int4, [3]> kept_int4 = identity(x = [-8, 7, -1])\n",
        "    tensor<string, [3]> kept_string = identity(x = [\"\", \"a \\\"b\\\" \\\\ c\", \"\xc3\xa9\"])\n",
        "        (int32 n, list<tensor<fp32, [1, 2]>, ?> rows) {\n            bool more = less(x = n, y = 3)\n        "
        "} -> (more)\n",
        "    string label, dict<string, fp64> label_probs = classify(classes = (\"cat\", \"dog\"), probabilities = "
        "chosen)\n",
        "} -> (label, label_probs, count, total)\n",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!strstr(text, lines[i]))
            fail_msg("the dump lacks: %s", lines[i]);
    free(text);
    teg_mil_free(p);
}

/* ---- damaged files ---- */

static void expect_no_prefix(const char *path, const char *weights_path, bool is_text)
{
    struct bytes b = read_whole(path), w = {0};
    if (weights_path)
        w = read_whole(weights_path);
    for (size_t n = 0; n <= b.n; n++) {
        struct guarded g = guarded_copy(b.at, n);
        struct counting c;
        struct teg_error err = {0};
        struct teg_mil_program *p = NULL;
        struct teg_allocator *const a = counting_init(&c, 0);
        const enum teg_status status = is_text
                                           ? teg_mil_parse_text((const char *)g.bytes, n, w.at, w.n, "t", a, &p, &err)
                                           : teg_mil_parse_spec(g.bytes, n, w.at, w.n, "t", a, &p, &err);
        if (n == b.n)
            assert_int_equal(status, TEG_OK);
        else if (status != TEG_ERR_FORMAT && status != TEG_ERR_UNSUPPORTED)
            fail_msg("prefix of %zu bytes of %s: status %d", n, path, status);
        teg_mil_free(p);
        assert_int_equal(c.n_live, 0);
        guarded_free(&g);
    }
    bytes_free(&b);
    bytes_free(&w);
}

static void test_prefixes(void **state)
{
    (void)state;
    expect_no_prefix(MIL_DATA "flow.mlpackage" MIL_SPEC "model.mlmodel", NULL, false);
    expect_no_prefix(MIL_DATA "old.mlpackage" MIL_SPEC "model.mlmodel",
                     MIL_DATA "old.mlpackage" MIL_SPEC "weights/weight.bin", false);
    expect_no_prefix(MIL_DATA "flow.mlmodelc/model.mil", NULL, true);
    expect_no_prefix(MIL_DATA "old.mlmodelc/model.mil", MIL_DATA "old.mlmodelc/weights/weight.bin", true);
}

static void test_weight_prefixes(void **state)
{
    (void)state;
    struct bytes b = read_whole(MIL_DATA "old.mlpackage" MIL_SPEC "model.mlmodel");
    struct bytes w = read_whole(MIL_DATA "old.mlpackage" MIL_SPEC "weights/weight.bin");
    for (size_t n = 0; n < w.n; n++) {
        struct guarded g = guarded_copy(w.at, n);
        struct teg_mil_program *p = NULL;
        assert_int_equal(teg_mil_parse_spec(b.at, b.n, g.bytes, n, "t", NULL, &p, NULL), TEG_ERR_FORMAT);
        guarded_free(&g);
    }
    struct teg_mil_program *p = NULL;
    struct teg_error err = {0};
    assert_int_equal(teg_mil_parse_spec(b.at, b.n, NULL, 0, "t", NULL, &p, &err), TEG_ERR_FORMAT);
    assert_non_null(strstr(err.message, "expected a weight file '@model_path/weights/weight.bin', found none; copy the "
                                        "whole package"));
    bytes_free(&b);
    bytes_free(&w);
}

static void test_failing_allocations(void **state)
{
    (void)state;
    static const char *const paths[] = {MIL_DATA "old.mlpackage", MIL_DATA "cache.mlpackage", MIL_DATA "flow.mlpackage",
                                        MIL_DATA "old.mlmodelc",  MIL_DATA "cache.mlmodelc",  MIL_DATA "flow.mlmodelc"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        enum teg_status status = TEG_ERR_MEMORY;
        for (size_t fail_at = 1; status != TEG_OK; fail_at++) {
            struct counting c;
            struct teg_mil_program *p = NULL;
            struct teg_error err = {0};
            status = teg_mil_open(paths[i], counting_init(&c, fail_at), &p, &err);
            if (status != TEG_OK) {
                assert_int_equal(status, TEG_ERR_MEMORY);
                assert_non_null(strstr(err.message, "out of memory"));
                assert_null(p);
            }
            teg_mil_free(p);
            assert_int_equal(c.n_live, 0);
        }
    }
    teg_mil_free(NULL);
}

/* Small things share a few large allocations, so that a failure hits few places. A longer path, which is kept in the
 * same memory, moves the place where the next large one is asked for: every small one gets its turn to fail. */
static void test_failing_everywhere(void **state)
{
    (void)state;
    enum { STEP = 24, LONGEST = 20000, AT_LEAST = 300 };
    static char path[LONGEST + 1];
    static const char *const files[] = {MIL_DATA "flow.mlpackage" MIL_SPEC "model.mlmodel",
                                        MIL_DATA "flow.mlmodelc/model.mil"};
    for (size_t i = 0; i < 2; i++) {
        struct bytes b = read_whole(files[i]);
        size_t n_failed = 0;
        for (size_t length = 0; length < LONGEST; length += STEP)
            for (size_t fail_at = 2; fail_at < 5; fail_at++) {
                struct counting c;
                struct teg_mil_program *p = NULL;
                struct teg_allocator *const a = counting_init(&c, fail_at);
                memset(path, 'p', length);
                path[length] = '\0';
                const enum teg_status status =
                    i ? teg_mil_parse_text((const char *)b.at, b.n, NULL, 0, path, a, &p, NULL)
                      : teg_mil_parse_spec(b.at, b.n, NULL, 0, path, a, &p, NULL);
                assert_true(status == TEG_OK || status == TEG_ERR_MEMORY);
                n_failed += status != TEG_OK;
                teg_mil_free(p);
                assert_int_equal(c.n_live, 0);
            }
        assert_true(n_failed > AT_LEAST);
        bytes_free(&b);
    }
}

/* ---- real packages ---- */

static size_t open_folder(const char *folder)
{
    DIR *const dir = opendir(folder);
    size_t n = 0;
    if (!dir)
        return 0;
    for (const struct dirent *e; (e = readdir(dir));) {
        char path[600];
        if (!strstr(e->d_name, ".mlpackage") && !strstr(e->d_name, ".mlmodelc"))
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        struct teg_mil_program *const p = open_mil(path);
        free(dump_all(p));
        teg_mil_free(p);
        n++;
    }
    closedir(dir);
    return n;
}

#define SHARED TEST_DATA "/../../../shared/data/"

static void test_real_packages(void **state)
{
    (void)state;
    static const char *const folders[] = {SHARED "coreml-public", SHARED "coreml-toys", SHARED "stateful-tiny"};
    size_t n = 0;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        n += open_folder(folders[i]);
    if (!n) {
        print_message("skipped: no packages in ../shared/data beside the checkout\n");
        skip();
    }
    print_message("%zu packages\n", n);
}

static void test_real_pairs(void **state)
{
    (void)state;
    if (access(SHARED "coreml-public/unified_int8.mlmodelc", R_OK) != 0) {
        print_message("skipped: no compiled models in ../shared/data beside the checkout\n");
        skip();
    }
    compare_pair(SHARED "coreml-public/unified_int8.mlpackage", SHARED "coreml-public/unified_int8.mlmodelc");
    compare_pair(SHARED "coreml-public/unified_palette_4bit.mlpackage",
                 SHARED "coreml-public/unified_palette_4bit.mlmodelc");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_old),
        cmocka_unit_test(test_cache),
        cmocka_unit_test(test_flow),
        cmocka_unit_test(test_dump),
        cmocka_unit_test(test_version_from_opset),
        cmocka_unit_test(test_prefixes),
        cmocka_unit_test(test_weight_prefixes),
        cmocka_unit_test(test_failing_allocations),
        cmocka_unit_test(test_failing_everywhere),
        cmocka_unit_test(test_real_packages),
        cmocka_unit_test(test_real_pairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
