/* Model directories: config.json and generation_config.json as metadata, weights in one file or several, the
 * tokenizer's paths, and one broken directory for each message. */
#include "unit/format_test.h"

/* A safetensors file with one I8 tensor `name` of one byte, `value`. */
static void write_weights(const struct temp_dir *d, const char *file, const char *name, uint8_t value)
{
    char header[256];
    snprintf(header, sizeof header, "{\"%s\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}", name);
    struct bytes b = {0};
    put_uint(&b, strlen(header), 8);
    put_text(&b, header);
    put(&b, &value, 1);
    temp_write(d, file, b.at, b.n);
    bytes_free(&b);
}

static const char config[] = "{\"model_type\":\"llama\",\"hidden_size\":576,\"big\":9223372036854775807,\"eps\":1e-5,"
                             "\"tie\":true,\"untie\":false,\"nothing\":null,\"architectures\":[\"A\",\"B\\u00e9\"],"
                             "\"ints\":[1,-2],\"mixed_numbers\":[1,2.5],\"flags\":[true,false],\"empty\":[],"
                             "\"rope_scaling\":{\"factor\":8.0,\"type\":\"llama3\"},\"mixed\":[1,\"x\",null]}";
/* What transformers writes for a length without limit, and its like; text that looks like it stays text. */
static const char unlimited[] = "{\"model_type\":\"llama\",\"most\":1000000000000000019884624838656,\"n\":7,"
                                "\"least\":-99999999999999999999,\"text\":\"\\\"99999999999999999999,\"}";

static struct temp_dir make_directory(void)
{
    const struct temp_dir d = temp_dir_make();
    temp_write_text(&d, "config.json", config);
    temp_write_text(&d, "generation_config.json", "{\"eos_token_id\":[2,7],\"temperature\":0.6}");
    write_weights(&d, "model.safetensors", "w", 42);
    return d;
}

static const struct teg_meta *meta_of(const struct teg_source *s, const char *key, enum teg_meta_type type,
                                      const char *type_name, size_t n)
{
    const struct teg_meta *const m = teg_source_meta(s, key);
    assert_non_null(m);
    assert_int_equal(m->type, type);
    assert_string_equal(m->type_name, type_name);
    assert_int_equal(m->n, n);
    return m;
}

static void check_config(const struct teg_source *s)
{
    assert_string_is(meta_of(s, "model_type", TEG_META_STRING, "string", 1)->string, "llama");
    assert_int_equal(meta_of(s, "hidden_size", TEG_META_INT, "int", 1)->integer, 576);
    assert_true(meta_of(s, "big", TEG_META_INT, "int", 1)->integer == INT64_MAX);
    assert_true(meta_of(s, "eps", TEG_META_FLOAT, "float", 1)->real == 1e-5);
    assert_true(meta_of(s, "tie", TEG_META_BOOL, "bool", 1)->boolean);
    assert_false(meta_of(s, "untie", TEG_META_BOOL, "bool", 1)->boolean);
    (void)meta_of(s, "nothing", TEG_META_NULL, "null", 1);
    const struct teg_meta *m = meta_of(s, "architectures", TEG_META_ARRAY_STRING, "array of string", 2);
    assert_string_is(m->strings[0], "A");
    assert_string_is(m->strings[1], "B\xc3\xa9");
    m = meta_of(s, "ints", TEG_META_ARRAY_INT, "array of int", 2);
    assert_true(m->integers[0] == 1 && m->integers[1] == -2);
    m = meta_of(s, "mixed_numbers", TEG_META_ARRAY_FLOAT, "array of float", 2);
    assert_true(m->reals[0] == 1 && m->reals[1] == 2.5);
    m = meta_of(s, "flags", TEG_META_ARRAY_BOOL, "array of bool", 2);
    assert_true(m->booleans[0] && !m->booleans[1]);
    (void)meta_of(s, "empty", TEG_META_ARRAY_INT, "array of int", 0);
    assert_string_is(meta_of(s, "rope_scaling", TEG_META_JSON, "object", 1)->string,
                     "{\"factor\":8.0,\"type\":\"llama3\"}");
    assert_string_is(meta_of(s, "mixed", TEG_META_JSON, "array", 1)->string, "[1,\"x\",null]");
    m = meta_of(s, "generation_config.eos_token_id", TEG_META_ARRAY_INT, "array of int", 2);
    assert_true(m->integers[1] == 7);
    assert_true(meta_of(s, "generation_config.temperature", TEG_META_FLOAT, "float", 1)->real == 0.6);
    assert_int_equal(s->n_metas, 16);
    assert_string_equal(s->metas[0].key, "model_type"); /* the file's order */
}

static void test_integers_beyond_64_bits(void **state)
{
    (void)state;
    const struct temp_dir d = make_directory();
    temp_write_text(&d, "config.json", unlimited);
    struct teg_source *s = NULL;
    assert_int_equal(teg_source_open(d.path, true, NULL, &s, NULL), TEG_OK);
    assert_true(meta_of(s, "most", TEG_META_FLOAT, "float", 1)->real == 1e30);
    assert_true(meta_of(s, "least", TEG_META_FLOAT, "float", 1)->real == -1e20);
    assert_int_equal(meta_of(s, "n", TEG_META_INT, "int", 1)->integer, 7);
    assert_string_is(meta_of(s, "text", TEG_META_STRING, "string", 1)->string, "\"99999999999999999999,");
    teg_source_free(s);
    temp_dir_remove(&d);
}

static void test_good_directory(void **state)
{
    (void)state;
    const struct temp_dir d = make_directory();
    struct teg_source *s = NULL;
    assert_int_equal(teg_source_open(d.path, true, NULL, &s, NULL), TEG_OK);
    assert_int_equal(s->kind, TEG_SOURCE_SAFETENSORS);
    assert_string_equal(s->format, "safetensors");
    assert_string_equal(s->path, d.path);
    check_config(s);
    assert_int_equal(s->n_tensors, 1);
    assert_int_equal(teg_source_tensor(s, "w")->data[0], 42);
    assert_null(s->tokenizer_path);
    assert_null(s->tokenizer_config_path);
    assert_null(s->chat_template_path);
    teg_source_free(s);
    temp_write_text(&d, "tokenizer.json", "");
    temp_write_text(&d, "tokenizer_config.json", "");
    temp_write_text(&d, "chat_template.jinja", "");
    temp_remove(&d, "model.safetensors");
    assert_int_equal(teg_source_open(d.path, false, NULL, &s, NULL), TEG_OK);
    assert_int_equal(s->n_tensors, 0);
    char path[128];
    temp_path(&d, "tokenizer.json", path);
    assert_string_equal(s->tokenizer_path, path);
    temp_path(&d, "tokenizer_config.json", path);
    assert_string_equal(s->tokenizer_config_path, path);
    temp_path(&d, "chat_template.jinja", path);
    assert_string_equal(s->chat_template_path, path);
    teg_source_free(s);
    temp_dir_remove(&d);
}

static void test_bad_directories(void **state)
{
    (void)state;
    const struct temp_dir d = make_directory();
    temp_remove(&d, "model.safetensors");
    expect_open_fails(&d, d.path, true, TEG_ERR_FORMAT,
                      "cannot open model: %: expected model.safetensors or model.safetensors.index.json beside "
                      "config.json, found neither; download the weights too");
    temp_write(&d, "model.safetensors", "\2\0\0\0\0\0\0\0{}", 10);
    expect_open_fails(&d, d.path, true, TEG_ERR_FORMAT,
                      "cannot open model: %: expected tensors in its safetensors, found none; download the weights "
                      "again");
    temp_write(&d, "model.safetensors", "", 0);
    expect_open_fails(&d, d.path, true, TEG_ERR_FORMAT,
                      "cannot read safetensors: %/model.safetensors at byte 0: expected 8 bytes of header length, "
                      "found 0 before the end of the file; download the file again");
    temp_write_text(&d, "config.json", "[]");
    expect_open_fails(&d, d.path, false, TEG_ERR_FORMAT,
                      "cannot read config.json: %/config.json at byte 0: expected a JSON object, found another value; "
                      "download the file again");
    temp_write_text(&d, "config.json", "");
    expect_open_fails(&d, d.path, false, TEG_ERR_FORMAT,
                      "cannot read config.json: %/config.json at byte 0: expected a JSON object, found: '[' or '{' "
                      "expected near end of file; download the file again");
    temp_write_text(&d, "config.json", "{\"a\":1,\"b\":2,\"a\":3}");
    expect_open_fails(&d, d.path, false, TEG_ERR_FORMAT,
                      "cannot read config.json: %/config.json at byte 16: expected a JSON object, found: duplicate "
                      "object key near '\"a\"'; download the file again");
    temp_write_text(&d, "config.json", "{\"generation_config.temperature\":1}");
    expect_open_fails(&d, d.path, false, TEG_ERR_FORMAT,
                      "cannot read safetensors: %: expected unique metadata keys, found "
                      "'generation_config.temperature' twice; convert the model again");
    temp_write_text(&d, "config.json", "{}");
    temp_write_text(&d, "generation_config.json", "{");
    expect_open_fails(&d, d.path, false, TEG_ERR_FORMAT,
                      "cannot read generation_config.json: %/generation_config.json at byte 1: expected a JSON object, "
                      "found: string or '}' expected near end of file; download the file again");
    temp_remove(&d, "config.json");
    expect_open_fails(&d, d.path, true, TEG_ERR_FORMAT,
                      "cannot open model: %: expected config.json in this directory, found none; pass a .gguf file or "
                      "a directory with config.json and safetensors");
    char path[128];
    temp_path(&d, "config.json", path);
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_open_fails(&d, d.path, true, TEG_ERR_IO,
                      "cannot open model: %/config.json: expected a regular file, found a FIFO; pass the path of a "
                      "file");
    temp_dir_remove(&d);
}

/* A sparse file of 65 MiB: refused before it is read. */
static void test_large_config(void **state)
{
    (void)state;
    const struct temp_dir d = temp_dir_make();
    temp_write_text(&d, "config.json", "{}");
    char path[128];
    temp_path(&d, "config.json", path);
    assert_int_equal(truncate(path, (off_t)65 << 20), 0);
    expect_open_fails(&d, d.path, false, TEG_ERR_FORMAT,
                      "cannot read config.json: %/config.json at byte 67108864: expected at most 67108864 bytes, found "
                      "68157440; check the file");
    temp_dir_remove(&d);
}

static void test_core_ml(void **state)
{
    (void)state;
    static const char *const names[] = {"model.mlpackage", "model.mlpackage//", "model.mlmodelc"};
    const struct temp_dir d = temp_dir_make();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[128], message[512];
        temp_path(&d, names[i], path);
        (void)mkdir(path, 0700);
        snprintf(message, sizeof message,
                 "cannot open model: %s: expected GGUF or safetensors, found a Core ML model (%s), which is not "
                 "supported yet; use the model it was made from",
                 path, i < 2 ? ".mlpackage" : ".mlmodelc");
        expect_open_fails(&d, path, true, TEG_ERR_UNSUPPORTED, message);
    }
    temp_dir_remove(&d);
}

/* ---- weights in several files ---- */

static struct temp_dir make_sharded(const char *index)
{
    const struct temp_dir d = temp_dir_make();
    temp_write_text(&d, "config.json", "{}");
    write_weights(&d, "model-2.safetensors", "b", 2);
    write_weights(&d, "model-1.safetensors", "a", 1);
    temp_write_text(&d, "model.safetensors.index.json", index);
    return d;
}

static void test_shards(void **state)
{
    (void)state;
    const struct temp_dir d =
        make_sharded("{\"metadata\":{},\"weight_map\":{\"b\":\"model-2.safetensors\",\"a\":\"model-1.safetensors\"}}");
    struct teg_source *s = NULL;
    struct teg_error err = {0};
    assert_int_equal(teg_source_open(d.path, true, NULL, &s, &err), TEG_OK);
    assert_int_equal(s->n_tensors, 2);
    assert_int_equal(teg_source_tensor(s, "a")->data[0], 1);
    assert_int_equal(teg_source_tensor(s, "b")->data[0], 2);
    teg_source_free(s);
    temp_remove(&d, "model-1.safetensors");
    assert_int_equal(teg_source_open(d.path, false, NULL, &s, &err), TEG_OK); /* not asked for weights */
    teg_source_free(s);
    temp_dir_remove(&d);
}

#define INDEX "cannot read index: %/model.safetensors.index.json"

static void test_bad_shards(void **state)
{
    (void)state;
    static const struct {
        const char *index, *message;
        enum teg_status status;
    } cases[] = {
        {"{}", INDEX " at byte 0: expected an object weight_map, found none; download the model again", TEG_ERR_FORMAT},
        {"{\"weight_map\":{}}",
         "cannot open model: %: expected tensors in its safetensors, found none; download the weights again",
         TEG_ERR_FORMAT},
        {"{\"weight_map\":{\"a\":\"model-3.safetensors\"}}",
         "cannot open weights named in model.safetensors.index.json: %/model-3.safetensors: expected a readable file, "
         "found: No such file or directory; check the path and its permissions",
         TEG_ERR_IO},
        {"{\"weight_map\":{\"a\":\"../model-1.safetensors\"}}",
         INDEX ": expected 'a' in a file of the same directory, found '../model-1.safetensors'; download the model "
               "again",
         TEG_ERR_FORMAT},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}",
         INDEX ": expected 'a' in a file of the same directory, found '/etc/passwd'; download the model again",
         TEG_ERR_FORMAT},
        {"{\"weight_map\":{\"a\":\"..\"}}",
         INDEX ": expected 'a' in a file of the same directory, found '..'; download the model again", TEG_ERR_FORMAT},
        {"{\"weight_map\":{\"a\":\"\"}}",
         INDEX ": expected 'a' in a file of the same directory, found ''; download the model again", TEG_ERR_FORMAT},
        {"{\"weight_map\":{\"a\":7}}",
         INDEX ": expected 'a' in a file of the same directory, found 'no file name'; download the model again",
         TEG_ERR_FORMAT},
        {"{\"weight_map\":{\"a\":\"model-1.safetensors\",\"c\":\"model-2.safetensors\"}}",
         INDEX ": expected tensor 'c' in 'model-2.safetensors', found none of that name; download the model again",
         TEG_ERR_FORMAT},
        {"{\"weight_map\":{\"a\":\"model-2.safetensors\",\"b\":\"model-1.safetensors\"}}",
         INDEX ": expected tensor 'a' in 'model-2.safetensors', found it in another file; download the model again",
         TEG_ERR_FORMAT},
        {"{\"weight_map\":{\"a\":\"model-1.safetensors\",\"b\":\"config.json\"}}",
         "cannot read safetensors: %/config.json at byte 0: expected 8 bytes of header length, found 2 before the end "
         "of the file; download the file again",
         TEG_ERR_FORMAT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct temp_dir d = make_sharded(cases[i].index);
        expect_open_fails(&d, d.path, true, cases[i].status, cases[i].message);
        temp_dir_remove(&d);
    }
}

static void test_tensor_in_two_shards(void **state)
{
    (void)state;
    const struct temp_dir d =
        make_sharded("{\"weight_map\":{\"a\":\"model-1.safetensors\",\"b\":\"model-2.safetensors\"}}");
    write_weights(&d, "model-2.safetensors", "a", 2);
    expect_open_fails(&d, d.path, true, TEG_ERR_FORMAT,
                      "cannot read safetensors: %: expected unique tensor names, found 'a' twice; convert the model "
                      "again");
    temp_dir_remove(&d);
}

/* Many shards, so that the search for a shard takes every turn. */
static void test_many_shards(void **state)
{
    (void)state;
    for (size_t n = 1; n <= 20; n++) {
        const struct temp_dir d = temp_dir_make();
        char index[2048] = "{\"weight_map\":{", name[32], file[32];
        for (size_t i = 0; i < n; i++) {
            snprintf(name, sizeof name, "t%zu", i);
            snprintf(file, sizeof file, "m%zu.safetensors", i * 7 % 23);
            write_weights(&d, file, name, (uint8_t)i);
            snprintf(index + strlen(index), 80, "%s\"%s\":\"%s\"", i ? "," : "", name, file);
        }
        snprintf(index + strlen(index), 8, "}}");
        temp_write_text(&d, "config.json", "{}");
        temp_write_text(&d, "model.safetensors.index.json", index);
        struct teg_source *s = NULL;
        assert_int_equal(teg_source_open(d.path, true, NULL, &s, NULL), TEG_OK);
        for (size_t i = 0; i < n; i++) {
            snprintf(name, sizeof name, "t%zu", i);
            assert_int_equal(teg_source_tensor(s, name)->data[0], i);
        }
        teg_source_free(s);
        temp_dir_remove(&d);
    }
}

static void open_at_every_failure(const struct temp_dir *d)
{
    enum teg_status status = TEG_ERR_MEMORY;
    for (size_t fail_at = 1; status != TEG_OK; fail_at++) {
        struct counting c;
        struct teg_error err = {0};
        struct teg_source *s = NULL;
        status = teg_source_open(d->path, true, counting_init(&c, fail_at), &s, &err);
        if (status == TEG_OK)
            assert_int_equal(s->n_tensors, 2);
        else
            assert_int_equal(status, TEG_ERR_MEMORY);
        teg_source_free(s);
        assert_int_equal(c.n_live, 0);
    }
}

/* Keys of growing length move every later allocation past the end of the arena's first block; very many keys give the
 * table of metadata a block of its own. */
static void test_every_allocation(void **state)
{
    (void)state;
    const struct temp_dir d =
        make_sharded("{\"weight_map\":{\"b\":\"model-2.safetensors\",\"a\":\"model-1.safetensors\"}}");
    static char text[20000];
    for (size_t shift = 11000; shift < 16200; shift += 24) {
        const int n = (int)shift / 4;
        snprintf(text, sizeof text, "{\"%0*d\":1,\"%0*d\":1,\"%0*d\":1,\"%0*d\":1,%s", n, 1, n, 2, n, 3, n, 4,
                 config + 1);
        temp_write_text(&d, "config.json", text);
        open_at_every_failure(&d);
    }
    size_t n = 0;
    for (size_t i = 0; i < 400; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s\"%zu\":1", i ? "," : "{", i);
    snprintf(text + n, sizeof text - n, "}");
    temp_write_text(&d, "config.json", text);
    open_at_every_failure(&d);
    temp_dir_remove(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_directory),  cmocka_unit_test(test_integers_beyond_64_bits),
        cmocka_unit_test(test_bad_directories), cmocka_unit_test(test_large_config),
        cmocka_unit_test(test_core_ml),         cmocka_unit_test(test_shards),
        cmocka_unit_test(test_bad_shards),      cmocka_unit_test(test_tensor_in_two_shards),
        cmocka_unit_test(test_many_shards),     cmocka_unit_test(test_every_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
