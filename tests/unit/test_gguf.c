/* GGUF: what a good file reads as, every prefix of it, every failing allocation, split sets, and what is not GGUF at
 * all. All files are built here, byte by byte. Bad files are in test_gguf_hostile.c. */
#include "unit/gguf_test.h"

/* A file with a value of every type and three tensors; it ends with the last tensor's last byte. */
static void build_good(struct bytes *b, uint32_t version)
{
    put_header(b, version, 3, 20);
    put_pair(b, "k.u8", U8, 200, 1);
    put_pair(b, "k.i8", I8, 0x80, 1);
    put_pair(b, "k.u16", U16, 65535, 2);
    put_pair(b, "k.i16", I16, 0xFFFE, 2);
    put_pair(b, "k.u32", U32, UINT32_MAX, 4);
    put_pair(b, "k.i32", I32, 0x80000000, 4);
    put_pair(b, "k.f32", F32, 0x3FC00000, 4); /* 1.5 */
    put_pair(b, "k.bool", BOOL, 1, 1);
    put_key(b, "k.string", STRING);
    put_string(b, "a string");
    put_pair(b, "k.u64", U64, INT64_MAX, 8);
    put_pair(b, "k.i64", I64, UINT64_MAX, 8);
    put_pair(b, "k.f64", F64, 0xC000000000000000, 8); /* -2 */
    put_array(b, "a.i16", I16, 2);
    put_uint(b, 0xFFFF, 2);
    put_uint(b, 7, 2);
    put_array(b, "a.f32", F32, 2);
    put_uint(b, 0x3F800000, 4);
    put_uint(b, 0xBF800000, 4);
    put_array(b, "a.f64", F64, 1);
    put_uint(b, 0x3FF0000000000000, 8);
    put_array(b, "a.bool", BOOL, 3);
    put_uint(b, 0x010001, 3);
    put_array(b, "a.string", STRING, 3);
    put_string(b, "x");
    put_string(b, "");
    put_string(b, "zzz");
    put_array(b, "a.u64", U64, 1);
    put_uint(b, 5, 8);
    put_array(b, "a.empty", STRING, 0);
    put_pair(b, "general.alignment", U32, 64, 4);
    put_tensor(b, "matrix", 3, (uint64_t[]){4, 3, 2}, TYPE_F32, 64); /* 96 bytes */
    put_tensor(b, "vector", 1, (uint64_t[]){32}, TYPE_Q4_0, 0);      /* 18 bytes */
    put_tensor(b, "last", 2, (uint64_t[]){256, 1}, TYPE_Q4_K, 192);  /* 144 bytes */
    put_padding(b, 64);
    for (size_t i = 0; i < 192 + 144; i++)
        put_uint(b, i, 1);
}

static enum teg_status parse(const struct bytes *b, bool need_tensors, const struct teg_allocator *allocator,
                             struct teg_source **source, struct teg_error *err)
{
    return teg_gguf_parse(b->at, b->n, "t.gguf", need_tensors, allocator, source, err);
}

/* ---- good files ---- */

static const struct teg_meta *meta_of(const struct teg_source *s, const char *key, enum teg_meta_type type,
                                      const char *type_name, size_t n)
{
    const struct teg_meta *const m = teg_source_meta(s, key);
    assert_non_null(m);
    assert_string_equal(m->key, key);
    assert_int_equal(m->type, type);
    assert_string_equal(m->type_name, type_name);
    assert_int_equal(m->n, n);
    return m;
}

static void check_scalars(const struct teg_source *s)
{
    static const struct {
        const char *key, *type_name;
        int64_t value;
    } ints[] = {{"k.u8", "u8", 200},         {"k.i8", "i8", -128},         {"k.u16", "u16", 65535},
                {"k.i16", "i16", -2},        {"k.u32", "u32", 4294967295}, {"k.i32", "i32", -2147483648LL},
                {"k.u64", "u64", INT64_MAX}, {"k.i64", "i64", -1},         {"general.alignment", "u32", 64}};
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++)
        assert_true(meta_of(s, ints[i].key, TEG_META_INT, ints[i].type_name, 1)->integer == ints[i].value);
    assert_true(meta_of(s, "k.f32", TEG_META_FLOAT, "f32", 1)->real == 1.5);
    assert_true(meta_of(s, "k.f64", TEG_META_FLOAT, "f64", 1)->real == -2);
    assert_true(meta_of(s, "k.bool", TEG_META_BOOL, "bool", 1)->boolean);
    assert_string_is(meta_of(s, "k.string", TEG_META_STRING, "string", 1)->string, "a string");
}

static void check_arrays(const struct teg_source *s, const uint8_t *file, size_t n_file)
{
    const struct teg_meta *m = meta_of(s, "a.i16", TEG_META_ARRAY_INT, "array of i16", 2);
    assert_true(m->integers[0] == -1 && m->integers[1] == 7);
    m = meta_of(s, "a.f32", TEG_META_ARRAY_FLOAT, "array of f32", 2);
    assert_true(m->reals[0] == 1 && m->reals[1] == -1);
    assert_true(meta_of(s, "a.f64", TEG_META_ARRAY_FLOAT, "array of f64", 1)->reals[0] == 1);
    m = meta_of(s, "a.bool", TEG_META_ARRAY_BOOL, "array of bool", 3);
    assert_true(m->booleans[0] && !m->booleans[1] && m->booleans[2]);
    m = meta_of(s, "a.string", TEG_META_ARRAY_STRING, "array of string", 3);
    assert_string_is(m->strings[0], "x");
    assert_string_is(m->strings[1], "");
    assert_string_is(m->strings[2], "zzz");
    assert_in_range((uintptr_t)m->strings[2].bytes, (uintptr_t)file, (uintptr_t)file + n_file); /* not copied */
    assert_true(meta_of(s, "a.u64", TEG_META_ARRAY_INT, "array of u64", 1)->integers[0] == 5);
    (void)meta_of(s, "a.empty", TEG_META_ARRAY_STRING, "array of string", 0);
}

static void check_tensor(const struct teg_source *s, const char *name, enum teg_dtype dtype, uint32_t rank,
                         const uint64_t *dims, size_t n_bytes, uint64_t file_offset, const uint8_t *file)
{
    const struct teg_tensor *const t = teg_source_tensor(s, name);
    assert_non_null(t);
    assert_string_equal(t->name, name);
    assert_int_equal(t->dtype, dtype);
    assert_int_equal(t->rank, rank);
    for (uint32_t i = 0; i < TEG_MAX_RANK; i++)
        assert_int_equal(t->dims[i], i < rank ? dims[i] : 1);
    assert_int_equal(t->n_bytes, n_bytes);
    assert_int_equal(t->file_offset, file_offset);
    assert_ptr_equal(t->data, file + file_offset);
}

static void test_good_files(void **state)
{
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        struct bytes b = {0};
        build_good(&b, version);
        struct teg_source *s = NULL;
        assert_int_equal(parse(&b, true, NULL, &s, NULL), TEG_OK);
        assert_int_equal(s->kind, TEG_SOURCE_GGUF);
        assert_string_equal(s->format, version == 2 ? "GGUF v2" : "GGUF v3");
        assert_string_equal(s->path, "t.gguf");
        assert_int_equal(s->n_metas, 20);
        assert_int_equal(s->n_tensors, 3);
        check_scalars(s);
        check_arrays(s, b.at, b.n);
        const uint64_t data = b.n - 192 - 144;
        check_tensor(s, "matrix", TEG_DTYPE_F32, 3, (uint64_t[]){2, 3, 4}, 96, data + 64, b.at);
        check_tensor(s, "vector", TEG_DTYPE_Q4_0, 1, (uint64_t[]){32}, 18, data, b.at);
        check_tensor(s, "last", TEG_DTYPE_Q4_K, 2, (uint64_t[]){1, 256}, 144, data + 192, b.at);
        assert_null(teg_source_tensor(s, "las"));
        assert_null(teg_source_tensor(s, "lastt"));
        assert_null(teg_source_tensor(s, ""));
        assert_null(teg_source_meta(s, "k"));
        assert_null(teg_source_meta(s, "zz"));
        teg_source_free(s);
        bytes_free(&b);
    }
}

/* Names in the worst orders, and enough of them for the sort to have odd runs. */
static void test_look_up(void **state)
{
    (void)state;
    for (size_t n = 0; n < 70; n += n < 10 ? 1 : 7) {
        struct bytes b = {0};
        put_header(&b, 3, 0, n);
        char key[16];
        for (size_t i = 0; i < n; i++) {
            snprintf(key, sizeof key, "k%03zu", i * 37 % 101);
            put_pair(&b, key, U32, i, 4);
        }
        struct teg_source *s = NULL;
        assert_int_equal(parse(&b, false, NULL, &s, NULL), TEG_OK);
        for (size_t i = 0; i < n; i++) {
            snprintf(key, sizeof key, "k%03zu", i * 37 % 101);
            assert_true(meta_of(s, key, TEG_META_INT, "u32", 1)->integer == (int64_t)i);
        }
        assert_null(teg_source_meta(s, "k999"));
        assert_null(teg_source_meta(s, "a"));
        teg_source_free(s);
        bytes_free(&b);
    }
}

/* ---- every prefix, every allocation ---- */

static void test_every_prefix(void **state)
{
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        struct bytes b = {0};
        build_good(&b, version);
        for (size_t n = 0; n < b.n; n++) {
            struct guarded g = guarded_copy(b.at, n);
            struct counting c;
            struct teg_error err = {0};
            struct teg_source *s = NULL;
            const enum teg_status status = teg_gguf_parse(g.bytes, n, "t.gguf", true, counting_init(&c, 0), &s, &err);
            assert_int_equal(status, TEG_ERR_FORMAT);
            assert_non_null(strstr(err.message, "; download the file again"));
            assert_in_range(err.offset, 0, n);
            assert_int_equal(c.n_live, 0);
            guarded_free(&g);
        }
        bytes_free(&b);
    }
}

/* A file with long keys, so that the arena's blocks end at many different places of the parse. */
static void build_shifted(struct bytes *b, size_t shift)
{
    char key[8192];
    struct bytes good = {0};
    build_good(&good, 3);
    put_header(b, 3, 3, 20 + 5 + 400); /* 400 more, so that the table of pairs gets a block of its own */
    for (size_t i = 0; i < 400; i++) {
        snprintf(key, sizeof key, "%zu", i);
        put_pair(b, key, U8, 0, 1);
    }
    for (size_t i = 0; i < 5; i++) {
        const size_t n = i < 4 ? 2000 : 1 + shift;
        memset(key, (int)('a' + i), n);
        key[n] = '\0';
        put_pair(b, key, U8, 0, 1);
    }
    /* The rest of the good file, its data moved to the next multiple of 64. */
    const size_t n_infos = good.n - 192 - 144;
    size_t n_used = n_infos;
    while (n_used && good.at[n_used - 1] == 0) /* padding and the zero bytes of the last offset */
        n_used--;
    put(b, good.at + 24, n_used + 7 - 24); /* the last offset is 192: one byte and seven zeros */
    put_padding(b, 64);
    put(b, good.at + n_infos, 192 + 144);
    bytes_free(&good);
}

/* Each allocation that can fail did fail somewhere in test_every_allocation. */
static const char *const needs[] = {
    "model source", "GGUF tables",     "metadata key", "array of i16", "array of f32",
    "array of f64", "array of string", "tensor name",  "name table",
};

static void test_every_allocation(void **state)
{
    (void)state;
    size_t n_seen[sizeof needs / sizeof *needs] = {0};
    for (size_t shift = 0; shift < 7000; shift += 8) {
        struct bytes b = {0};
        build_shifted(&b, shift);
        enum teg_status status = TEG_ERR_MEMORY;
        for (size_t fail_at = 1; status != TEG_OK; fail_at++) {
            struct counting c;
            struct teg_error err = {0};
            struct teg_source *s = NULL;
            status = parse(&b, true, counting_init(&c, fail_at), &s, &err);
            if (status != TEG_OK) {
                assert_int_equal(status, TEG_ERR_MEMORY);
                assert_memory_equal(err.message, "out of memory: ", 15);
                assert_null(s);
                for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
                    n_seen[i] += strstr(err.message, needs[i]) != NULL;
            }
            teg_source_free(s);
            assert_int_equal(c.n_live, 0);
        }
        bytes_free(&b);
    }
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        assert_true(n_seen[i] > 0);
}

/* The worst file for memory: the smallest pairs and tensors there can be, and the narrowest numbers. */
static void test_memory_is_bounded(void **state)
{
    (void)state;
    struct bytes b = {0};
    put_header(&b, 3, 0, 5001);
    char key[8];
    for (size_t i = 0; i < 5000; i++) {
        snprintf(key, sizeof key, "%zx", i);
        put_pair(&b, key, U8, 0, 1);
    }
    put_array(&b, "bytes", U8, 100000);
    put_zeros(&b, 100000);
    struct counting c;
    struct teg_source *s = NULL;
    assert_int_equal(parse(&b, false, counting_init(&c, 0), &s, NULL), TEG_OK);
    assert_in_range(c.total_bytes, 1, 16 * b.n);
    teg_source_free(s);
    bytes_free(&b);
}

/* ---- split sets ---- */

/* Part `no` of `count`: a tensor "t<no>" with four bytes' worth of `no`. */
static void build_part(struct bytes *b, uint64_t no, uint64_t count, uint64_t n_tensors)
{
    put_header(b, 3, 1, 4);
    put_pair(b, "split.no", U16, no, 2);
    put_pair(b, "split.count", U16, count, 2);
    put_pair(b, "split.tensors.count", I32, n_tensors, 4);
    put_pair(b, "only.here", U32, no, 4);
    char name[8];
    snprintf(name, sizeof name, "t%u", (unsigned)no);
    put_tensor(b, name, 1, (uint64_t[]){1}, TYPE_F32, 0);
    put_padding(b, 32);
    put_uint(b, 0x01010101 * no, 4);
}

static void write_part(const struct temp_dir *d, const char *name, uint64_t no, uint64_t count, uint64_t n_tensors)
{
    struct bytes b = {0};
    build_part(&b, no, count, n_tensors);
    temp_write(d, name, b.at, b.n);
    bytes_free(&b);
}

static const char *const part_names[] = {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"};

static struct temp_dir write_set(void)
{
    const struct temp_dir d = temp_dir_make();
    for (size_t i = 0; i < 3; i++)
        write_part(&d, part_names[i], i, 3, 3);
    return d;
}

static void test_split_opens_by_any_part(void **state)
{
    (void)state;
    const struct temp_dir d = write_set();
    for (size_t i = 0; i < 3; i++) {
        char path[128];
        temp_path(&d, part_names[i], path);
        struct teg_source *s = NULL;
        struct teg_error err = {0};
        assert_int_equal(teg_source_open(path, true, NULL, &s, &err), TEG_OK);
        assert_int_equal(s->n_tensors, 3);
        for (size_t t = 0; t < 3; t++) {
            const struct teg_tensor *const tensor = teg_source_tensor(s, (const char *[]){"t0", "t1", "t2"}[t]);
            assert_ptr_equal(tensor, &s->tensors[t]);
            assert_int_equal(tensor->data[3], t);
        }
        assert_int_equal(teg_source_meta(s, "only.here")->integer, 0); /* the first part's */
        teg_source_free(s);
        /* Only the vocabulary: the first part is enough. */
        assert_int_equal(teg_source_open(path, false, NULL, &s, &err), TEG_OK);
        assert_int_equal(s->n_tensors, 1);
        assert_int_equal(teg_source_meta(s, "only.here")->integer, 0);
        teg_source_free(s);
    }
    temp_dir_remove(&d);
}

static void test_split_faults(void **state)
{
    (void)state;
    const struct temp_dir d = write_set();
    char path[128];
    temp_path(&d, part_names[0], path);
    temp_remove(&d, part_names[2]);
    expect_open_fails(&d, path, true, TEG_ERR_IO,
                      "cannot open part of split GGUF: %/m-00003-of-00003.gguf: expected a readable file, found: No "
                      "such file or directory; check the path and its permissions");
    write_part(&d, part_names[2], 1, 3, 3);
    expect_open_fails(&d, path, true, TEG_ERR_FORMAT,
                      "cannot read split GGUF: %/m-00003-of-00003.gguf: expected part 3 of 3 with 3 tensors in all, "
                      "found part 2 of 3 with 3; put the parts of one model together");
    write_part(&d, part_names[2], 2, 4, 3);
    expect_open_fails(&d, path, true, TEG_ERR_FORMAT,
                      "cannot read split GGUF: %/m-00003-of-00003.gguf: expected part 3 of 3 with 3 tensors in all, "
                      "found part 3 of 4 with 3; put the parts of one model together");
    for (size_t i = 0; i < 3; i++)
        write_part(&d, part_names[i], i, 3, 4);
    expect_open_fails(&d, path, true, TEG_ERR_FORMAT,
                      "cannot read split GGUF: %/m-00001-of-00003.gguf: expected 4 tensors in all parts "
                      "(split.tensors.count), found 3; download the parts again");
    temp_path(&d, "renamed.gguf", path);
    write_part(&d, "renamed.gguf", 1, 3, 3);
    expect_open_fails(&d, path, true, TEG_ERR_FORMAT,
                      "cannot open split GGUF: %/renamed.gguf: expected a name that ends in '-00002-of-00003.gguf', as "
                      "its metadata says, found another; rename the file");
    temp_dir_remove(&d);
}

/* The given part has a string key that fills the arena's first block, so that what follows needs a second one. */
static void write_filled_part(const struct temp_dir *d, size_t n_filler)
{
    struct bytes b = {0};
    build_part(&b, 1, 3, 3);
    struct bytes filled = {0};
    put_header(&filled, 3, 1, 8);
    for (size_t i = 0; i < 4; i++) {
        put_uint(&filled, n_filler / 4, 8);
        for (size_t k = 0; k < n_filler / 4; k++)
            put_uint(&filled, 'a' + i, 1);
        put_uint(&filled, U8, 4);
        put_uint(&filled, 0, 1);
    }
    const size_t n_infos = b.n - 4; /* data is four bytes */
    size_t n_used = n_infos;
    while (b.at[n_used - 1] == 0)
        n_used--;
    put(&filled, b.at + 24, n_used - 24); /* ends with the dimension's 1 … */
    put_zeros(&filled, 7 + 4 + 8);        /* … its other bytes, type F32, offset 0 */
    put_padding(&filled, 32);
    put(&filled, b.at + n_infos, 4);
    temp_write(d, part_names[1], filled.at, filled.n);
    bytes_free(&filled);
    bytes_free(&b);
}

static void test_split_allocations(void **state)
{
    (void)state;
    const struct temp_dir d = write_set();
    char path[128];
    temp_path(&d, part_names[1], path);
    for (size_t n_filler = 12000; n_filler < 16000; n_filler += 40) {
        write_filled_part(&d, n_filler);
        enum teg_status status = TEG_ERR_MEMORY;
        for (size_t fail_at = 1; status != TEG_OK; fail_at++) {
            struct counting c;
            struct teg_source *s = NULL;
            status = teg_source_open(path, true, counting_init(&c, fail_at), &s, NULL);
            assert_true(status == TEG_OK || status == TEG_ERR_MEMORY);
            teg_source_free(s);
            assert_int_equal(c.n_live, 0);
        }
    }
    temp_dir_remove(&d);
}

/* A "set" of one is a file like any other. */
static void test_split_of_one(void **state)
{
    (void)state;
    const struct temp_dir d = temp_dir_make();
    write_part(&d, "any name", 0, 1, 1);
    char path[128];
    temp_path(&d, "any name", path);
    struct teg_source *s = NULL;
    assert_int_equal(teg_source_open(path, true, NULL, &s, NULL), TEG_OK);
    assert_int_equal(s->n_tensors, 1);
    teg_source_free(s);
    temp_dir_remove(&d);
}

/* The same tensor in two parts. */
static void test_split_duplicate(void **state)
{
    (void)state;
    const struct temp_dir d = temp_dir_make();
    struct bytes b = {0};
    build_part(&b, 0, 2, 2);
    temp_write(&d, "m-00001-of-00002.gguf", b.at, b.n);
    const size_t no_at = 24 + 8 + strlen("split.no") + 4;
    assert_int_equal(b.at[no_at], 0);
    b.at[no_at] = 1;
    temp_write(&d, "m-00002-of-00002.gguf", b.at, b.n);
    bytes_free(&b);
    char path[128];
    temp_path(&d, "m-00002-of-00002.gguf", path);
    expect_open_fails(&d, path, true, TEG_ERR_FORMAT,
                      "cannot read GGUF v3: %/m-00002-of-00002.gguf: expected unique tensor names, found 't0' twice; "
                      "convert the model again");
    temp_dir_remove(&d);
}

/* ---- opening by content ---- */

static void test_strangers(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        const char *rest;
    } files[] = {
        {"", 0, "found an empty file; download it again"},
        {"PK\3\4data", 8, "found a ZIP archive (perhaps a PyTorch checkpoint); convert it to GGUF or safetensors"},
        {"\x80\2}q", 4, "found a Python pickle; convert it to GGUF or safetensors"},
        {"lmgg", 4, "found the old GGML format; convert the model to GGUF"},
        {"fmgg", 4, "found the old GGMF format; convert the model to GGUF"},
        {"tjgg\3", 5, "found the old GGJT format; convert the model to GGUF"},
        {"FUGG", 4, "found a big-endian GGUF file; convert the model for a little-endian machine"},
        {"\x1f\x8b\x08", 3, "found a gzip archive; unpack it"},
        {"version https://git-lfs.github.com/spec/v1\n", 43,
         "found a Git LFS pointer; fetch the file itself with git lfs pull"},
        {"<!DOCTYPE html>", 15, "found a web page or XML; download the model again"},
        {"{\"a\": 1}", 8, "found JSON text; pass the directory that holds it and the weights"},
        {"\2\0\0\0\0\0\0\0{}", 10, "found one safetensors file; pass the directory that holds it"},
        {"hello", 5, "found a file that begins with the bytes 68 65 6c 6c; check the path"},
        {"\xff", 1, "found a file that begins with the bytes ff; check the path"},
        {"GGU", 3, "found a file that begins with the bytes 47 47 55; check the path"},
    };
    const struct temp_dir d = temp_dir_make();
    char path[128], message[600];
    temp_path(&d, "model", path);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        temp_write(&d, "model", files[i].bytes, files[i].n);
        snprintf(
            message, sizeof message,
            "cannot open model: %s/model: expected a GGUF file or a directory with config.json and safetensors, %s",
            d.path, files[i].rest);
        expect_open_fails(&d, path, true, TEG_ERR_FORMAT, message);
    }
    temp_remove(&d, "model");
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_open_fails(&d, path, true, TEG_ERR_IO,
                      "cannot open model: %/model: expected a regular file, found a FIFO; pass the path of a file");
    temp_remove(&d, "model");
    expect_open_fails(&d, path, true, TEG_ERR_IO,
                      "cannot open model: %/model: expected a readable file, found: No such file or directory; check "
                      "the path and its permissions");
    temp_dir_remove(&d);
    teg_source_free(NULL);
}

/* ---- whole models ---- */

/* The same model as GGUF and as a directory: as many weights, at least, and the same width of them. */
static void test_tiny_models(void **state)
{
    (void)state;
    static const char *const names[] = {"llama", "qwen2",   "qwen3",   "gemma2", "gemma3",
                                        "phi3",  "smollm3", "granite", "olmo2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/tiny/%s.gguf", TEST_DATA, names[i]);
        struct teg_source *gguf = NULL, *directory = NULL;
        struct teg_error err = {0};
        if (access(path, R_OK) != 0) {
            print_message("skip: no %s\n", path);
            continue;
        }
        assert_int_equal(teg_source_open(path, true, NULL, &gguf, &err), TEG_OK);
        path[strlen(path) - strlen(".gguf")] = '\0';
        assert_int_equal(teg_source_open(path, true, NULL, &directory, &err), TEG_OK);
        const struct teg_tensor *const a = teg_source_tensor(gguf, "token_embd.weight");
        const struct teg_tensor *const b = teg_source_tensor(directory, "model.embed_tokens.weight");
        assert_non_null(a);
        assert_non_null(b);
        assert_true(a->rank == 2 && b->rank == 2 && a->dims[0] == b->dims[0] && a->dims[1] == b->dims[1]);
        assert_int_equal(teg_source_meta(gguf, "general.architecture")->type, TEG_META_STRING);
        assert_true((uint64_t)teg_source_meta(directory, "hidden_size")->integer == a->dims[1]);
        assert_non_null(directory->tokenizer_path);
        teg_source_free(gguf);
        teg_source_free(directory);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_files),        cmocka_unit_test(test_look_up),
        cmocka_unit_test(test_every_prefix),      cmocka_unit_test(test_every_allocation),
        cmocka_unit_test(test_memory_is_bounded), cmocka_unit_test(test_split_opens_by_any_part),
        cmocka_unit_test(test_split_faults),      cmocka_unit_test(test_split_allocations),
        cmocka_unit_test(test_split_of_one),      cmocka_unit_test(test_split_duplicate),
        cmocka_unit_test(test_strangers),         cmocka_unit_test(test_tiny_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
