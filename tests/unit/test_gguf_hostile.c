/* GGUF files that lie, one for each message. Each lies in memory that ends where the file ends, and must fail with the
 * whole message, at the right byte, with nothing left allocated and little allocated on the way. */
#include "unit/gguf_test.h"

static void build_wrong_magic(struct bytes *b)
{
    put_text(b, "GGUX");
    put_zeros(b, 40);
}

static void build_version_99(struct bytes *b)
{
    put_header(b, 99, 0, 0);
}

static void build_version_1(struct bytes *b)
{
    put_header(b, 1, 0, 0);
}

static void build_big_endian(struct bytes *b)
{
    put_header(b, 0x03000000, 0, 0);
}

static void build_many_tensors(struct bytes *b)
{
    put_header(b, 3, UINT64_C(1) << 32, 1);
    put_pair(b, "k", U32, 0, 4);
}

static void build_many_pairs(struct bytes *b)
{
    put_header(b, 3, 0, UINT64_C(1) << 60);
    put_pair(b, "k", U32, 0, 4);
}

static void build_long_key(struct bytes *b)
{
    put_header(b, 3, 0, 1);
    put_uint(b, UINT64_C(1) << 63, 8);
    put_zeros(b, 20);
}

static void build_long_string(struct bytes *b)
{
    put_header(b, 3, 0, 1);
    put_key(b, "k", STRING);
    put_uint(b, UINT64_MAX, 8);
    put_zeros(b, 20);
}

static void build_key_with_nul(struct bytes *b)
{
    put_header(b, 3, 0, 1);
    put_uint(b, 3, 8);
    put(b, "a\0b", 3);
    put_uint(b, U8, 4);
    put_zeros(b, 1);
}

static void build_value_type(struct bytes *b)
{
    put_header(b, 3, 0, 1);
    put_pair(b, "k", 13, 0, 8);
}

static void build_array_type(struct bytes *b)
{
    put_header(b, 3, 0, 1);
    put_array(b, "k", 1000, 0);
}

static void build_nested_array(struct bytes *b)
{
    put_header(b, 3, 0, 1);
    put_array(b, "k", ARRAY, 1);
    put_uint(b, U8, 4);
    put_uint(b, 0, 8);
}

static void build_long_array(struct bytes *b)
{
    put_header(b, 3, 0, 1);
    put_array(b, "k", F64, UINT64_C(1) << 61);
    put_zeros(b, 23);
}

static void build_bool_2(struct bytes *b)
{
    put_header(b, 3, 0, 1);
    put_pair(b, "k", BOOL, 2, 1);
}

static void build_bool_array(struct bytes *b)
{
    put_header(b, 3, 0, 1);
    put_array(b, "k", BOOL, 3);
    put_uint(b, 0xFF0001, 3);
}

static void build_cut_bool(struct bytes *b)
{
    put_header(b, 3, 0, 1);
    put_key(b, "k", BOOL);
}

static void build_cut_float(struct bytes *b)
{
    put_header(b, 3, 0, 1);
    put_pair(b, "k", F64, 0, 7);
}

static void build_cut_int(struct bytes *b)
{
    put_header(b, 3, 0, 1);
    put_pair(b, "k", I16, 0, 1);
}

static void build_large_u64(struct bytes *b)
{
    put_header(b, 3, 0, 1);
    put_pair(b, "k", U64, UINT64_C(1) << 63, 8);
}

static void build_duplicate_key(struct bytes *b)
{
    put_header(b, 3, 1, 3);
    put_pair(b, "k", U8, 1, 1);
    put_pair(b, "j", U8, 1, 1);
    put_pair(b, "k", U32, 1, 4);
    put_plain_tensor(b, "w", 0);
    put_padding(b, 32);
    put_zeros(b, 32);
}

static void build_alignment_48(struct bytes *b)
{
    put_header(b, 3, 0, 1);
    put_pair(b, "general.alignment", U32, 48, 4);
}

static void build_alignment_0(struct bytes *b)
{
    put_header(b, 3, 0, 1);
    put_pair(b, "general.alignment", I32, 0, 4);
}

static void build_alignment_float(struct bytes *b)
{
    put_header(b, 3, 0, 1);
    put_pair(b, "general.alignment", F32, 0x42000000, 4);
}

static void build_rank_0(struct bytes *b)
{
    put_header(b, 3, 1, 0);
    put_tensor(b, "w", 0, NULL, TYPE_F32, 0);
    put_zeros(b, 64);
}

static void build_rank_5(struct bytes *b)
{
    put_header(b, 3, 1, 0);
    put_tensor(b, "w", 5, (uint64_t[]){1, 1, 1, 1, 1}, TYPE_F32, 0);
    put_zeros(b, 64);
}

static void build_dim_0(struct bytes *b)
{
    put_header(b, 3, 1, 0);
    put_tensor(b, "w", 2, (uint64_t[]){4, 0}, TYPE_F32, 0);
    put_zeros(b, 64);
}

static void build_half_block(struct bytes *b)
{
    put_header(b, 3, 1, 0);
    put_tensor(b, "w", 2, (uint64_t[]){48, 2}, TYPE_Q4_0, 0);
    put_zeros(b, 128);
}

static void build_row_overflow(struct bytes *b)
{
    put_header(b, 3, 1, 0);
    put_tensor(b, "w", 1, (uint64_t[]){UINT64_C(1) << 62}, TYPE_F32, 0);
    put_zeros(b, 64);
}

static void build_product_overflow(struct bytes *b)
{
    put_header(b, 3, 1, 0);
    put_tensor(b, "w", 4, (uint64_t[]){1 << 16, 1 << 16, 1 << 16, 1 << 16}, TYPE_F32, 0);
    put_zeros(b, 64);
}

static void build_type_iq2(struct bytes *b)
{
    put_header(b, 3, 1, 0);
    put_tensor(b, "w", 1, (uint64_t[]){256}, 16, 0);
    put_zeros(b, 256);
}

static void build_misaligned(struct bytes *b)
{
    put_header(b, 3, 1, 0);
    put_plain_tensor(b, "w", 16);
    put_zeros(b, 128);
}

static void build_out_of_range(struct bytes *b)
{
    put_header(b, 3, 2, 0);
    put_plain_tensor(b, "v", 0);
    put_plain_tensor(b, "w", UINT64_MAX - 31);
    put_padding(b, 32);
    put_zeros(b, 64);
}

static void build_cut_data(struct bytes *b)
{
    put_header(b, 3, 1, 0);
    put_plain_tensor(b, "w", 32);
    put_padding(b, 32);
    put_zeros(b, 63);
}

static void build_huge_alignment(struct bytes *b)
{
    put_header(b, 3, 1, 1);
    put_pair(b, "general.alignment", U64, UINT64_C(1) << 62, 8);
    put_plain_tensor(b, "w", 0);
    put_zeros(b, 64);
}

static void build_overlap(struct bytes *b)
{
    put_header(b, 3, 3, 0);
    put_plain_tensor(b, "c", 32);
    put_tensor(b, "a", 1, (uint64_t[]){9}, TYPE_F32, 64);
    put_tensor(b, "b", 1, (uint64_t[]){9}, TYPE_F32, 0);
    put_padding(b, 32);
    put_zeros(b, 128);
}

static void build_same_place(struct bytes *b)
{
    put_header(b, 3, 2, 0);
    put_plain_tensor(b, "a", 0);
    put_plain_tensor(b, "b", 0);
    put_padding(b, 32);
    put_zeros(b, 64);
}

static void build_duplicate_tensor(struct bytes *b)
{
    put_header(b, 3, 2, 0);
    put_plain_tensor(b, "w", 0);
    put_plain_tensor(b, "w", 32);
    put_padding(b, 32);
    put_zeros(b, 64);
}

static void build_no_tensors(struct bytes *b)
{
    put_header(b, 3, 0, 0);
}

static void build_one_part(struct bytes *b)
{
    put_header(b, 3, 0, 3);
    put_pair(b, "split.no", U16, 0, 2);
    put_pair(b, "split.count", U16, 3, 2);
    put_pair(b, "split.tensors.count", I32, 9, 4);
}

static void build_split_count_string(struct bytes *b)
{
    put_header(b, 3, 0, 1);
    put_key(b, "split.count", STRING);
    put_string(b, "3");
}

static void build_split_count_large(struct bytes *b)
{
    put_header(b, 3, 0, 1);
    put_pair(b, "split.count", U32, 100000, 4);
}

static void build_split_no_large(struct bytes *b)
{
    put_header(b, 3, 0, 2);
    put_pair(b, "split.count", U16, 3, 2);
    put_pair(b, "split.no", U16, 3, 2);
}

static void build_split_no_missing(struct bytes *b)
{
    put_header(b, 3, 0, 1);
    put_pair(b, "split.count", U16, 3, 2);
}

#define AT "cannot read GGUF: t.gguf at byte "
#define IN "cannot read GGUF: t.gguf: "
#define IN_V3 "cannot read GGUF v3: t.gguf: "

static const struct {
    void (*build)(struct bytes *b);
    enum teg_status status;
    uint64_t offset;
    const char *message;
} bad_files[] = {
    {build_wrong_magic, TEG_ERR_FORMAT, 0,
     AT "0: expected the bytes 'GGUF', found 47 47 55 58; check that this is a GGUF file"},
    {build_version_99, TEG_ERR_UNSUPPORTED, 4, AT "4: expected version 2 or 3, found 99; convert the model again"},
    {build_version_1, TEG_ERR_UNSUPPORTED, 4, AT "4: expected version 2 or 3, found 1; convert the model again"},
    {build_big_endian, TEG_ERR_UNSUPPORTED, 4,
     AT "4: expected a little-endian file, found a big-endian one; convert the model for a little-endian machine"},
    {build_many_tensors, TEG_ERR_FORMAT, 8,
     AT "8: expected at most 0 tensors in a file of this size, found a count of 4294967296; download the file again"},
    {build_many_pairs, TEG_ERR_FORMAT, 16,
     AT "16: expected at most 1 metadata pairs in a file of this size, found a count of 1152921504606846976; download "
        "the file again"},
    {build_long_key, TEG_ERR_FORMAT, 32,
     AT
     "32: expected 9223372036854775808 bytes of metadata key, found 20 before the end of the file; download the file "
     "again"},
    {build_long_string, TEG_ERR_FORMAT, 45,
     AT "45: expected 18446744073709551615 bytes of string, found 20 before the end of the file; download the file "
        "again"},
    {build_key_with_nul, TEG_ERR_FORMAT, 24,
     AT "24: expected a metadata key without NUL bytes, found one inside; convert the model again"},
    {build_value_type, TEG_ERR_FORMAT, 33,
     AT "33: expected a value type from 0 to 12, found 13; convert the model again"},
    {build_array_type, TEG_ERR_FORMAT, 37,
     AT "37: expected a value type from 0 to 12, found 1000; convert the model again"},
    {build_nested_array, TEG_ERR_FORMAT, 37,
     AT "37: expected an array of plain values in 'k', found an array of arrays; convert the model again"},
    {build_long_array, TEG_ERR_FORMAT, 41,
     AT "41: expected at most 2 items of type f64 before the end of the file, found a count of 2305843009213693952; "
        "download the file again"},
    {build_bool_2, TEG_ERR_FORMAT, 37, AT "37: expected a bool of 0 or 1, found 2; convert the model again"},
    {build_bool_array, TEG_ERR_FORMAT, 51, AT "51: expected a bool of 0 or 1, found 255; convert the model again"},
    {build_cut_bool, TEG_ERR_FORMAT, 37,
     AT "37: expected 1 bytes of bool, found 0 before the end of the file; download the file again"},
    {build_cut_float, TEG_ERR_FORMAT, 37,
     AT "37: expected 8 bytes of f64, found 7 before the end of the file; download the file again"},
    {build_cut_int, TEG_ERR_FORMAT, 37,
     AT "37: expected 2 bytes of i16, found 1 before the end of the file; download the file again"},
    {build_large_u64, TEG_ERR_FORMAT, 37,
     AT "37: expected an integer below 2^63, found 9223372036854775808; convert the model again"},
    {build_duplicate_key, TEG_ERR_FORMAT, 0,
     IN_V3 "expected unique metadata keys, found 'k' twice; convert the model again"},
    {build_alignment_48, TEG_ERR_FORMAT, 57,
     AT "57: expected general.alignment to be a power of two, found 48; convert the model again"},
    {build_alignment_0, TEG_ERR_FORMAT, 57,
     AT "57: expected general.alignment to be a power of two, found 0; convert the model again"},
    {build_alignment_float, TEG_ERR_FORMAT, 57,
     AT "57: expected general.alignment to be an integer, found f32; convert the model again"},
    {build_rank_0, TEG_ERR_FORMAT, 33,
     AT "33: expected tensor 'w' to have 1 to 4 dimensions, found 0; convert the model again"},
    {build_rank_5, TEG_ERR_FORMAT, 33,
     AT "33: expected tensor 'w' to have 1 to 4 dimensions, found 5; convert the model again"},
    {build_dim_0, TEG_ERR_FORMAT, 45,
     AT "45: expected dimensions of tensor 'w' of at least 1, found 0; convert the model again"},
    {build_half_block, TEG_ERR_FORMAT, 24,
     AT "24: expected rows of tensor 'w' in whole blocks of 32 (Q4_0), found rows of 48; convert the model again"},
    {build_row_overflow, TEG_ERR_FORMAT, 24,
     AT "24: expected tensor 'w' to fit in memory, found dimensions that need more than 2^64 bytes; download the file "
        "again"},
    {build_product_overflow, TEG_ERR_FORMAT, 24,
     AT "24: expected tensor 'w' to fit in memory, found dimensions that need more than 2^64 bytes; download the file "
        "again"},
    {build_type_iq2, TEG_ERR_UNSUPPORTED, 45,
     AT "45: expected tensor 'w' in a type that Tegula reads, found type 16 (IQ2_XXS); use another quantization of the "
        "model, such as Q4_K_M or Q8_0"},
    {build_misaligned, TEG_ERR_FORMAT, 49,
     AT "49: expected tensor 'w' at a multiple of 32 bytes, found offset 16; convert the model again"},
    {build_out_of_range, TEG_ERR_FORMAT, 96,
     AT "96: expected tensor 'w' (32 bytes at offset 18446744073709551584) inside the data, found 64 bytes of data; "
        "download the file again"},
    {build_cut_data, TEG_ERR_FORMAT, 64,
     AT "64: expected tensor 'w' (32 bytes at offset 32) inside the data, found 63 bytes of data; download the file "
        "again"},
    {build_huge_alignment, TEG_ERR_FORMAT, 158,
     AT "158: expected tensor 'w' (32 bytes at offset 0) inside the data, found 0 bytes of data; download the file "
        "again"},
    {build_overlap, TEG_ERR_FORMAT, 160,
     AT "160: expected tensors that do not overlap, found 'c' beginning inside 'b'; convert the model again"},
    {build_same_place, TEG_ERR_FORMAT, 96,
     AT "96: expected tensors that do not overlap, found 'b' beginning inside 'a'; convert the model again"},
    {build_duplicate_tensor, TEG_ERR_FORMAT, 0,
     IN_V3 "expected unique tensor names, found 'w' twice; convert the model again"},
    {build_no_tensors, TEG_ERR_FORMAT, 0,
     IN "expected tensors, found none (a file with only a vocabulary); use a complete model"},
    {build_one_part, TEG_ERR_UNSUPPORTED, 0, IN "expected a whole model, found part 1 of 3; open it by its path"},
    {build_split_count_string, TEG_ERR_FORMAT, 0,
     IN "expected split.count to be an integer, found string; split the model again"},
    {build_split_count_large, TEG_ERR_FORMAT, 0,
     IN "expected split.count from 0 to 99999, found 100000; split the model again"},
    {build_split_no_large, TEG_ERR_FORMAT, 0, IN "expected split.no from 0 to 2, found 3; split the model again"},
    {build_split_no_missing, TEG_ERR_FORMAT, 0,
     IN "expected the key split.no in a part of a split model, found none; split the model again"},
};

static void expect_bad(const struct bytes *b, enum teg_status status, uint64_t offset, const char *message)
{
    struct guarded g = guarded_copy(b->at, b->n);
    struct counting c;
    struct teg_error err = {0};
    struct teg_source *s = NULL;
    assert_int_equal(teg_gguf_parse(g.bytes, b->n, "t.gguf", true, counting_init(&c, 0), &s, &err), status);
    assert_string_equal(err.message, message);
    assert_int_equal(err.status, status);
    assert_int_equal(err.offset, offset);
    assert_null(s);
    assert_int_equal(c.n_live, 0);
    assert_in_range(c.total_bytes, 0, 64 << 10);
    assert_int_equal(teg_gguf_parse(g.bytes, b->n, "t.gguf", true, NULL, &s, NULL), status); /* err may be NULL */
    guarded_free(&g);
}

static void test_bad_files(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_files / sizeof *bad_files; i++) {
        struct bytes b = {0};
        bad_files[i].build(&b);
        expect_bad(&b, bad_files[i].status, bad_files[i].offset, bad_files[i].message);
        bytes_free(&b);
    }
}

/* Numbers that once were types and numbers that never were. */
static void test_bad_types(void **state)
{
    (void)state;
    static const uint32_t types[] = {4, 5, 31, 32, 33, 36, 37, 38, 40, 255, UINT32_MAX};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct bytes b = {0};
        put_header(&b, 3, 1, 0);
        put_tensor(&b, "w", 1, (uint64_t[]){256}, types[i], 0);
        put_zeros(&b, 256);
        const char *const name = teg_dtype_gguf_name(types[i]);
        char message[480];
        snprintf(message, sizeof message,
                 AT "45: expected tensor 'w' in a type that Tegula reads, found type %u (%s); use another quantization "
                    "of the model, such as Q4_K_M or Q8_0",
                 types[i], name ? name : "withdrawn or unknown");
        expect_bad(&b, TEG_ERR_UNSUPPORTED, 45, message);
        bytes_free(&b);
    }
}

/* A message keeps its end when the path is very long. */
static void test_long_path(void **state)
{
    (void)state;
    char path[1000];
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    struct teg_error err = {0};
    struct teg_source *s = NULL;
    assert_int_equal(teg_gguf_parse((const uint8_t *)"GGUF", 4, path, false, NULL, &s, &err), TEG_ERR_FORMAT);
    assert_non_null(strstr(err.message, "GGUF: ...xxx"));
    assert_non_null(strstr(err.message, "found 0 before the end of the file; download the file again"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_bad_types),
        cmocka_unit_test(test_long_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
