/* One safetensors file: what a good one reads as, every prefix, one file for each message, every failing allocation
 * (ours and jansson's). Model directories are in test_hf_directory.c. */
#include <jansson.h>

#include "unit/format_test.h"

/* Header text (padded with spaces to 8 bytes, as writers do) and n_data bytes 0, 1, 2, … */
static void build(struct bytes *b, const char *header, size_t n_data)
{
    const size_t n = strlen(header), padded = (n + 7) / 8 * 8;
    put_uint(b, padded, 8);
    put_text(b, header);
    for (size_t i = n; i < padded; i++)
        put_text(b, " ");
    for (size_t i = 0; i < n_data; i++)
        put_uint(b, i, 1);
}

static const char good_header[] = "{\"__metadata__\":{\"format\":\"pt\"},"
                                  "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[24,36]},"
                                  "\"a\":{\"dtype\":\"F32\",\"shape\":[1,2,3],\"data_offsets\":[0,24]},"
                                  "\"empty\":{\"dtype\":\"F16\",\"shape\":[0,7],\"data_offsets\":[36,36]},"
                                  "\"scalar\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[36,44],\"extra\":1},"
                                  "\"odd\":{\"dtype\":\"I8\",\"shape\":[3],\"data_offsets\":[44,47]},"
                                  "\"f64\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[47,55]},"
                                  "\"i16\":{\"dtype\":\"I16\",\"shape\":[1],\"data_offsets\":[55,57]},"
                                  "\"i32\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[57,61]}}";
enum { GOOD_DATA_BYTES = 61, GOOD_TENSORS = 8 };

static enum teg_status parse(const struct bytes *b, const struct teg_allocator *allocator, struct teg_source **source,
                             struct teg_error *err)
{
    return teg_safetensors_parse(b->at, b->n, "t.safetensors", allocator, source, err);
}

static void test_good_file(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum teg_dtype dtype;
        uint32_t rank;
        uint64_t dims[3];
        size_t begin, end;
    } expected[GOOD_TENSORS] = {
        {"a", TEG_DTYPE_F32, 3, {1, 2, 3}, 0, 24},      {"b", TEG_DTYPE_BF16, 2, {2, 3, 1}, 24, 36},
        {"empty", TEG_DTYPE_F16, 2, {0, 7, 1}, 36, 36}, {"scalar", TEG_DTYPE_I64, 0, {1, 1, 1}, 36, 44},
        {"odd", TEG_DTYPE_I8, 1, {3, 1, 1}, 44, 47},    {"f64", TEG_DTYPE_F64, 1, {1, 1, 1}, 47, 55},
        {"i16", TEG_DTYPE_I16, 1, {1, 1, 1}, 55, 57},   {"i32", TEG_DTYPE_I32, 1, {1, 1, 1}, 57, 61},
    };
    struct bytes b = {0};
    build(&b, good_header, GOOD_DATA_BYTES);
    const size_t data = b.n - GOOD_DATA_BYTES;
    struct teg_source *s = NULL;
    assert_int_equal(parse(&b, NULL, &s, NULL), TEG_OK);
    assert_int_equal(s->kind, TEG_SOURCE_SAFETENSORS);
    assert_string_equal(s->format, "safetensors");
    assert_int_equal(s->n_tensors, GOOD_TENSORS);
    assert_int_equal(s->n_metas, 0);
    for (size_t i = 0; i < GOOD_TENSORS; i++) {
        const struct teg_tensor *const t = teg_source_tensor(s, expected[i].name);
        assert_non_null(t);
        assert_int_equal(t->dtype, expected[i].dtype);
        assert_int_equal(t->rank, expected[i].rank);
        for (size_t d = 0; d < TEG_MAX_RANK; d++)
            assert_int_equal(t->dims[d], d < 3 ? expected[i].dims[d] : 1);
        assert_int_equal(t->n_bytes, expected[i].end - expected[i].begin);
        assert_int_equal(t->file_offset, data + expected[i].begin);
        assert_ptr_equal(t->data, b.at + data + expected[i].begin);
    }
    assert_null(teg_source_tensor(s, "__metadata__"));
    teg_source_free(s);
    bytes_free(&b);
}

/* Masks of old checkpoints: bytes without a sign, and truth values. */
static void test_masks(void **state)
{
    (void)state;
    struct bytes b = {0};
    build(&b,
          "{\"a\":{\"dtype\":\"U8\",\"shape\":[256],\"data_offsets\":[0,256]},"
          "\"b\":{\"dtype\":\"BOOL\",\"shape\":[1,2],\"data_offsets\":[256,258]}}",
          258);
    struct teg_source *s = NULL;
    assert_int_equal(parse(&b, NULL, &s, NULL), TEG_OK);
    assert_int_equal(teg_source_tensor(s, "a")->dtype, TEG_DTYPE_U8);
    assert_int_equal(teg_source_tensor(s, "b")->dtype, TEG_DTYPE_U8);
    float values[256];
    teg_dtype_decode(TEG_DTYPE_U8, teg_source_tensor(s, "a")->data, values, 256);
    for (size_t i = 0; i < 256; i++)
        assert_true(values[i] == (float)((const uint8_t *)teg_source_tensor(s, "a")->data)[i]);
    assert_true(values[255] > 127);
    teg_source_free(s);
    bytes_free(&b);
}

static void test_no_tensors(void **state)
{
    (void)state;
    struct bytes b = {0};
    build(&b, "{}", 0);
    struct teg_source *s = NULL;
    assert_int_equal(parse(&b, NULL, &s, NULL), TEG_OK);
    assert_int_equal(s->n_tensors, 0);
    assert_null(teg_source_tensor(s, "a"));
    teg_source_free(s);
    bytes_free(&b);
}

static void test_every_prefix(void **state)
{
    (void)state;
    struct bytes b = {0};
    build(&b, good_header, GOOD_DATA_BYTES);
    for (size_t n = 0; n < b.n; n++) {
        struct guarded g = guarded_copy(b.at, n);
        struct counting c;
        struct teg_error err = {0};
        struct teg_source *s = NULL;
        assert_int_equal(teg_safetensors_parse(g.bytes, n, "t.safetensors", counting_init(&c, 0), &s, &err),
                         TEG_ERR_FORMAT);
        assert_non_null(strstr(err.message, "; download the file again"));
        assert_int_equal(c.n_live, 0);
        guarded_free(&g);
    }
    bytes_free(&b);
}

/* ---- bad files ---- */

#define AT "cannot read safetensors: t.safetensors at byte "
#define F32_4 "{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":"

static const struct {
    const char *header;
    size_t n_data;
    enum teg_status status;
    const char *message;
} bad_headers[] = {
    {"[1, 2]", 0, TEG_ERR_FORMAT, AT "8: expected a JSON object, found another value; download the file again"},
    {"{\"a\": ", 0, TEG_ERR_FORMAT,
     AT "16: expected a JSON object, found: unexpected token near end of file; download the file again"},
    {"{} {}", 0, TEG_ERR_FORMAT,
     AT "12: expected a JSON object, found: end of file expected near '{'; download the file again"},
    {"{\"a\":99999999999999999999}", 0, TEG_ERR_FORMAT,
     AT "8: expected the entry of tensor 'a' to be an object, found another value; convert the model again"},
    {"{\"a\":1e999}", 0, TEG_ERR_FORMAT,
     AT "18: expected a JSON object, found: real number overflow near '1e999'; download the file again"},
    {"{\"a\":" F32_4 "[0,4]},\"a\":" F32_4 "[4,8]}}", 8, TEG_ERR_FORMAT,
     AT "65: expected a JSON object, found: duplicate object key near '\"a\"'; download the file again"},
    {"{\"__metadata__\":3}", 0, TEG_ERR_FORMAT,
     AT "8: expected __metadata__ to be an object, found another value; convert the model again"},
    {"{\"a\":[]}", 0, TEG_ERR_FORMAT,
     AT "8: expected the entry of tensor 'a' to be an object, found another value; convert the model again"},
    {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, TEG_ERR_FORMAT,
     AT "8: expected tensor 'a' to have a dtype string, found none; convert the model again"},
    {"{\"a\":{\"dtype\":\"Q9\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, TEG_ERR_FORMAT,
     AT "8: expected tensor 'a' to have a known dtype, found 'Q9'; use the model in BF16, F16 or F32"},
    {"{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, TEG_ERR_UNSUPPORTED,
     AT "8: expected tensor 'a' in a type that Tegula reads, found F8_E4M3; use the model in BF16, F16 or F32"},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, TEG_ERR_FORMAT,
     AT "8: expected tensor 'a' to have a shape array, found none; convert the model again"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4, TEG_ERR_FORMAT,
     AT "8: expected tensor 'a' to have at most 8 dimensions, found 9; convert the model again"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,-1],\"data_offsets\":[0,4]}}", 4, TEG_ERR_FORMAT,
     AT "8: expected whole dimensions of tensor 'a', found another value at index 1; convert the model again"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4, TEG_ERR_FORMAT,
     AT "8: expected whole dimensions of tensor 'a', found another value at index 0; convert the model again"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, TEG_ERR_FORMAT,
     AT "8: expected tensor 'a' to have data_offsets of two integers, found none; convert the model again"},
    {"{\"a\":" F32_4 "[0,4,8]}}", 4, TEG_ERR_FORMAT,
     AT "8: expected tensor 'a' to have data_offsets of two integers, found none; convert the model again"},
    {"{\"a\":" F32_4 "[0,\"4\"]}}", 4, TEG_ERR_FORMAT,
     AT "8: expected tensor 'a' to have data_offsets of two integers, found none; convert the model again"},
    {"{\"a\":" F32_4 "[4,8]}}", 4, TEG_ERR_FORMAT,
     AT "8: expected data_offsets of tensor 'a' within the 4 bytes of data, found 4 to 8; download the file again"},
    {"{\"a\":" F32_4 "[4,0]}}", 8, TEG_ERR_FORMAT,
     AT "8: expected data_offsets of tensor 'a' within the 8 bytes of data, found 4 to 0; download the file again"},
    {"{\"a\":" F32_4 "[-4,0]}}", 8, TEG_ERR_FORMAT,
     AT "8: expected data_offsets of tensor 'a' within the 8 bytes of data, found -4 to 0; download the file again"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,4]}}", 4, TEG_ERR_FORMAT,
     AT "8: expected tensor 'a' to fit in memory, found a shape that needs more than 2^64 bytes; download the file "
        "again"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, TEG_ERR_FORMAT,
     AT "8: expected data_offsets of tensor 'a' 8 bytes apart as its dtype and shape say, found 4; convert the model "
        "again"},
    {"{\"a\":" F32_4 "[0,4]},\"b\":" F32_4 "[2,6]}}", 6, TEG_ERR_FORMAT,
     AT "122: expected tensor 'b' to begin at byte 124 where the data before it ends, found an overlap; convert the "
        "model again"},
    {"{\"a\":" F32_4 "[0,4]},\"b\":" F32_4 "[0,4]}}", 4, TEG_ERR_FORMAT,
     AT "120: expected tensor 'b' to begin at byte 124 where the data before it ends, found an overlap; convert the "
        "model again"},
    {"{\"b\":" F32_4 "[8,12]},\"a\":" F32_4 "[0,4]}}", 12, TEG_ERR_FORMAT,
     AT "128: expected tensor 'b' to begin at byte 124 where the data before it ends, found a hole; convert the model "
        "again"},
    {"{\"a\":" F32_4 "[4,8]}}", 8, TEG_ERR_FORMAT,
     AT "68: expected tensor 'a' to begin at byte 64 where the data before it ends, found a hole; convert the model "
        "again"},
    {"{\"a\":" F32_4 "[0,4]}}", 7, TEG_ERR_FORMAT,
     AT "68: expected the last tensor to end at the end of the file, found 3 bytes more; download the file again"},
};

static void expect_bad(const struct bytes *b, enum teg_status status, const char *message)
{
    struct guarded g = guarded_copy(b->at, b->n);
    struct counting c;
    struct teg_error err = {0};
    struct teg_source *s = NULL;
    assert_int_equal(teg_safetensors_parse(g.bytes, b->n, "t.safetensors", counting_init(&c, 0), &s, &err), status);
    assert_string_equal(err.message, message);
    assert_null(s);
    assert_int_equal(c.n_live, 0);
    assert_in_range(c.total_bytes, 0, 64 << 10);
    assert_int_equal(teg_safetensors_parse(g.bytes, b->n, "t.safetensors", NULL, &s, NULL), status);
    guarded_free(&g);
}

static void test_bad_headers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_headers / sizeof *bad_headers; i++) {
        struct bytes b = {0};
        build(&b, bad_headers[i].header, bad_headers[i].n_data);
        expect_bad(&b, bad_headers[i].status, bad_headers[i].message);
        bytes_free(&b);
    }
}

static void test_bad_lengths(void **state)
{
    (void)state;
    static const struct {
        uint64_t n_header;
        const char *message;
    } cases[] = {
        {UINT64_C(1) << 63,
         AT "0: expected a header of at most 16 bytes, found a length of 9223372036854775808; download the file again"},
        {UINT64_MAX,
         AT "0: expected a header of at most 16 bytes, found a length of 18446744073709551615; download the file "
            "again"},
        {17, AT "0: expected a header of at most 16 bytes, found a length of 17; download the file again"},
        {0, AT "8: expected a JSON object, found: '[' or '{' expected near end of file; download the file again"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bytes b = {0};
        put_uint(&b, cases[i].n_header, 8);
        put_zeros(&b, 16);
        expect_bad(&b, TEG_ERR_FORMAT, cases[i].message);
        bytes_free(&b);
    }
}

/* 64 levels are read (and then refused for what they are), 65 are not even tried; brackets in strings do not count. */
static void test_depth(void **state)
{
    (void)state;
    static const char *const messages[] = {
        AT "8: expected the entry of tensor 'a' to be an object, found another value; convert the model again",
        AT "76: expected JSON at most 64 levels deep, found more; download the file again",
    };
    for (size_t i = 0; i < 2; i++) {
        char header[512] = "{\"a\":", *p = header + strlen(header);
        for (size_t depth = 1; depth < 64 + i; depth++)
            *p++ = '[';
        for (size_t depth = 1; depth < 64 + i; depth++)
            *p++ = ']';
        snprintf(p, 200, ",\"\\\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\":1}");
        struct bytes b = {0};
        build(&b, header, 0);
        expect_bad(&b, TEG_ERR_FORMAT, messages[i]);
        bytes_free(&b);
    }
}

/* A million brackets: refused at once, without recursion. */
static void test_deep_file(void **state)
{
    (void)state;
    struct bytes b = {0};
    put_uint(&b, 1000000, 8);
    for (size_t i = 0; i < 1000000; i++)
        put_text(&b, "[");
    expect_bad(&b, TEG_ERR_FORMAT, AT "72: expected JSON at most 64 levels deep, found more; download the file again");
    bytes_free(&b);
}

/* A value in two bytes is a bomb for whoever makes an object of each. */
static void test_many_values(void **state)
{
    (void)state;
    struct bytes b = {0};
    put_uint(&b, 200000, 8);
    put_text(&b, "{\"a\":[1");
    while (b.n < 200008)
        put_text(&b, ",1");
    expect_bad(&b, TEG_ERR_FORMAT,
               AT "181083: expected at most 90536 JSON values in 200000 bytes, found more; download the file again");
    bytes_free(&b);
}

/* ---- allocations ---- */

/* n tensors of one byte each with names of `name_bytes`. */
static void build_many(struct bytes *b, size_t n, size_t name_bytes)
{
    struct bytes header = {0};
    char text[4096];
    for (size_t i = 0; i < n; i++) {
        snprintf(text, sizeof text, "%s\"%0*zu\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[%zu,%zu]}",
                 i ? "," : "{", (int)name_bytes, i, i, i + 1);
        put_text(&header, text);
    }
    put(&header, "}", 2);
    build(b, (const char *)header.at, n);
    bytes_free(&header);
}

static void test_every_allocation(void **state)
{
    (void)state;
    static const char *const needs[] = {"model source", "tensor table", "tensor name", "name table"};
    size_t n_seen[sizeof needs / sizeof *needs] = {0};
    for (size_t n = 1; n < 400; n += 7) {
        struct bytes b = {0};
        build_many(&b, n, 40);
        enum teg_status status = TEG_ERR_MEMORY;
        for (size_t fail_at = 1; status != TEG_OK; fail_at++) {
            struct counting c;
            struct teg_error err = {0};
            struct teg_source *s = NULL;
            status = parse(&b, counting_init(&c, fail_at), &s, &err);
            if (status != TEG_OK) {
                assert_int_equal(status, TEG_ERR_MEMORY);
                for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
                    n_seen[i] += strstr(err.message, needs[i]) != NULL;
            } else {
                assert_int_equal(s->n_tensors, n);
                assert_in_range(c.total_bytes, 0, 8 * b.n + (64 << 10));
            }
            teg_source_free(s);
            assert_int_equal(c.n_live, 0);
        }
        bytes_free(&b);
    }
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        assert_true(n_seen[i] > 0);
}

static size_t n_json_allocs, json_fail_at;
static size_t n_json_live;

static void *json_alloc(size_t n)
{
    if (++n_json_allocs == json_fail_at)
        return NULL;
    n_json_live++;
    return malloc(n);
}

static void json_free(void *p)
{
    if (p)
        n_json_live--;
    free(p);
}

/* jansson's own memory: nothing leaks, and what is read is whole. (Where jansson's buffer for long strings cannot grow,
 * it drops characters and goes on, so the failure is then a missing key or an unknown dtype instead of memory.) */
static void test_every_json_allocation(void **state)
{
    (void)state;
    struct bytes b = {0};
    build(&b, good_header, GOOD_DATA_BYTES);
    json_set_alloc_funcs(json_alloc, json_free);
    enum teg_status status = TEG_ERR_MEMORY;
    size_t n_memory = 0;
    for (json_fail_at = 1; status != TEG_OK || n_json_allocs >= json_fail_at; json_fail_at++) {
        n_json_allocs = 0;
        struct teg_error err = {0};
        struct teg_source *s = NULL;
        status = parse(&b, NULL, &s, &err);
        n_memory += status == TEG_ERR_MEMORY;
        if (status == TEG_OK)
            assert_int_equal(s->n_tensors, GOOD_TENSORS);
        else
            assert_true(err.message[0] != '\0');
        teg_source_free(s);
        assert_int_equal(n_json_live, 0);
    }
    json_set_alloc_funcs(malloc, free);
    assert_true(n_memory > 20);
    bytes_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_good_file),
        cmocka_unit_test(test_no_tensors),
        cmocka_unit_test(test_every_prefix),
        cmocka_unit_test(test_bad_headers),
        cmocka_unit_test(test_bad_lengths),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_deep_file),
        cmocka_unit_test(test_many_values),
        cmocka_unit_test(test_every_allocation),
        cmocka_unit_test(test_every_json_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
