/* Directories of Core ML models: the manifest's rules, paths that want out, where weights may lie, records of weight
 * files, the container of a compiled model's description. What is inside the model is in test_mil_*.c. */
#include <errno.h>

#include "unit/mil_test.h"

#define OPEN "cannot open Core ML package: %/m: "
#define MANIFEST "cannot read Core ML package: %/m/Manifest.json at byte 0: "

/* ---- manifest ---- */

#define ITEM(id, path, name)                                                                                           \
    "\"" id "\":{\"path\":\"" path "\",\"name\":\"" name "\",\"author\":\"com.apple.CoreML\",\"description\":\"\"}"
#define MODEL ITEM("A", "com.apple.CoreML/model.mlmodel", "model.mlmodel")
#define BODY(version, items, root)                                                                                     \
    "{\"fileFormatVersion\":\"" version "\",\"itemInfoEntries\":{" items "},\"rootModelIdentifier\":\"" root "\"}"

static const struct {
    const char *manifest;
    enum teg_status status;
    const char *message;
} bad_manifests[] = {
    {"{}", TEG_ERR_FORMAT, MANIFEST "expected a string fileFormatVersion, found none; export the model again"},
    {"{\"fileFormatVersion\":\"1.0.0\"}", TEG_ERR_FORMAT,
     MANIFEST "expected an object itemInfoEntries, found none; export the model again"},
    {"{\"fileFormatVersion\":\"1.0.0\",\"itemInfoEntries\":{}}", TEG_ERR_FORMAT,
     MANIFEST "expected a string rootModelIdentifier, found none; export the model again"},
    {BODY("1.0", MODEL, "A"), TEG_ERR_FORMAT,
     MANIFEST "expected a fileFormatVersion of three numbers, found '1.0'; export the model again"},
    {BODY("1.-1.0", MODEL, "A"), TEG_ERR_FORMAT,
     MANIFEST "expected a fileFormatVersion of three numbers, found '1.-1.0'; export the model again"},
    {BODY("1.0.1", MODEL, "A"), TEG_ERR_UNSUPPORTED,
     MANIFEST "expected fileFormatVersion 1.0.0 at most, found 1.0.1; update tegula"},
    {BODY("2.0.0", MODEL, "A"), TEG_ERR_UNSUPPORTED,
     MANIFEST "expected fileFormatVersion 1.0.0 at most, found 2.0.0; update tegula"},
    {BODY("1.0.0", "\"A\":{\"path\":\"com.apple.CoreML/model.mlmodel\"}", "A"), TEG_ERR_FORMAT,
     MANIFEST "expected item 'A' to have a string 'name', found none; export the model again"},
    {BODY("1.0.0", MODEL, "B"), TEG_ERR_FORMAT,
     MANIFEST "expected rootModelIdentifier to name an item, found 'B'; export the model again"},
    {BODY("1.0.0", MODEL "," ITEM("B", "com.apple.CoreML/model.mlmodel", "model.mlmodel"), "A"), TEG_ERR_FORMAT,
     MANIFEST "expected one item of each name and author, found 'model.mlmodel' of 'com.apple.CoreML' twice; export "
              "the model again"},
    {BODY("1.0.0", ITEM("A", "com.apple.CoreML/none.mlmodel", "model.mlmodel"), "A"), TEG_ERR_IO,
     OPEN "expected a file 'com.apple.CoreML/none.mlmodel', found: No such file or directory; copy the package again"},
    {BODY("1.0.0", ITEM("A", "../../../../etc/passwd", "model.mlmodel"), "A"), TEG_ERR_FORMAT,
     OPEN "expected paths inside the package, found '../../../../etc/passwd'; do not use this package"},
    {BODY("1.0.0", ITEM("A", "com.apple.CoreML/..", "model.mlmodel"), "A"), TEG_ERR_FORMAT,
     OPEN "expected paths inside the package, found 'com.apple.CoreML/..'; do not use this package"},
    {BODY("1.0.0", ITEM("A", "/etc/passwd", "model.mlmodel"), "A"), TEG_ERR_FORMAT,
     OPEN "expected paths inside the package, found '/etc/passwd'; do not use this package"},
    {BODY("1.0.0", ITEM("A", "", "model.mlmodel"), "A"), TEG_ERR_FORMAT,
     OPEN "expected paths inside the package, found ''; do not use this package"},
    {BODY("1.0.0", MODEL "," ITEM("B", "../weights", "weights"), "A"), TEG_ERR_FORMAT,
     OPEN "expected paths inside the package, found '../weights'; do not use this package"},
    {"[1]", TEG_ERR_FORMAT, MANIFEST "expected a JSON object, found another value; download the file again"},
    {BODY("1.0.0", ITEM("A", "com.apple.CoreML", "model.mlmodel"), "A"), TEG_ERR_IO,
     "cannot open Core ML package: %/m/Data/com.apple.CoreML: expected a regular file, found a directory; pass the "
     "path "
     "of a file"},
};

static void test_bad_manifests(void **state)
{
    (void)state;
    const struct temp_dir d = temp_dir_make();
    copy_package(&d, "flow.mlpackage");
    for (size_t i = 0; i < sizeof bad_manifests / sizeof *bad_manifests; i++) {
        replace_file(&d, "Manifest.json", bad_manifests[i].manifest, strlen(bad_manifests[i].manifest));
        expect_mil_fails(&d, bad_manifests[i].status, bad_manifests[i].message);
    }
    temp_dir_remove(&d);
}

static void test_good_manifests(void **state)
{
    (void)state;
    static const char *const good[] = {
        BODY("1.0.0", MODEL, "A"),
        BODY("0.9.7", MODEL, "A"),
        /* folders that are empty get lost */
        BODY("1.0.0", MODEL "," ITEM("B", "com.apple.CoreML/weights", "weights"), "A"),
        /* somebody else's items */
        BODY("1.0.0", MODEL "," ITEM("B", "org.other/notes", "notes"), "A"),
    };
    const struct temp_dir d = temp_dir_make();
    char path[128];
    temp_path(&d, "m", path);
    copy_package(&d, "flow.mlpackage");
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        replace_file(&d, "Manifest.json", good[i], strlen(good[i]));
        teg_mil_free(open_mil(path));
    }
    temp_dir_remove(&d);
}

static void test_too_many_items(void **state)
{
    (void)state;
    const struct temp_dir d = temp_dir_make();
    struct bytes b = {0};
    char item[160];
    copy_package(&d, "flow.mlpackage");
    put_text(&b, "{\"fileFormatVersion\":\"1.0.0\",\"rootModelIdentifier\":\"A\",\"itemInfoEntries\":{" MODEL);
    for (int i = 0; i < 1024; i++) {
        snprintf(item, sizeof item, "," ITEM("B%d", "com.apple.CoreML/model.mlmodel", "n%d"), i, i);
        put_text(&b, item);
    }
    put_text(&b, "}}");
    replace_file(&d, "Manifest.json", b.at, b.n);
    expect_mil_fails(&d, TEG_ERR_FORMAT, MANIFEST "expected at most 1024 items, found 1025; export the model again");
    bytes_free(&b);
    temp_dir_remove(&d);
}

/* ---- directories ---- */

static void test_not_a_package(void **state)
{
    (void)state;
    const struct temp_dir d = temp_dir_make();
    char path[128];
    temp_path(&d, "m", path);
    expect_mil_fails(&d, TEG_ERR_IO,
                     OPEN "expected a readable directory, found: No such file or directory; check the path and its "
                          "permissions");
    temp_write_text(&d, "m", "x");
    expect_mil_fails(&d, TEG_ERR_FORMAT,
                     OPEN "expected a directory with Manifest.json, found a file; pass the .mlpackage itself");
    temp_remove(&d, "m");
    assert_int_equal(mkdir(path, 0700), 0);
    expect_mil_fails(&d, TEG_ERR_FORMAT,
                     OPEN "expected Manifest.json (.mlpackage) or model.mil (.mlmodelc), found neither; copy the whole "
                          "directory");
    temp_write_text(&d, "m/coremldata.bin", "x");
    expect_mil_fails(&d, TEG_ERR_IO,
                     OPEN "expected a file 'model.mil', found: No such file or directory; copy the package again");
    temp_write_text(&d, "m/model.espresso.net", "{}");
    expect_mil_fails(
        &d, TEG_ERR_UNSUPPORTED,
        "cannot open Core ML model: %/m: expected an ML program, found a neural network; convert the model "
        "to an ML program (iOS 15 or later)");
    temp_remove(&d, "m/model.espresso.net");
    temp_write_text(&d, "m/model0", "");
    expect_mil_fails(&d, TEG_ERR_UNSUPPORTED,
                     "cannot open Core ML model: %/m: expected an ML program, found a pipeline of models; convert the "
                     "model to an ML program (iOS 15 or later)");
    temp_dir_remove(&d);
}

static void link_out(const struct temp_dir *d, const char *name)
{
    char path[256], target[256];
    assert_true(snprintf(path, sizeof path, "%s/m/%s", d->path, name) < 256);
    assert_true(snprintf(target, sizeof target, "%s/outside", d->path) < 256);
    assert_int_equal(rename(path, target), 0);
    assert_int_equal(symlink(target, path), 0);
}

static void test_links_out(void **state)
{
    (void)state;
    static const char *const names[] = {"Manifest.json", "Data/com.apple.CoreML/another.mlmodel",
                                        "Data/com.apple.CoreML/weights/weight.bin"};
    static const char *const found[] = {"Manifest.json", "com.apple.CoreML/another.mlmodel", "weights/weight.bin"};
    const struct temp_dir d = temp_dir_make();
    for (size_t i = 0; i < 3; i++) {
        char message[400];
        copy_package(&d, "cache.mlpackage");
        link_out(&d, names[i]);
        snprintf(message, sizeof message, "%s%s%s", OPEN "expected files inside the package, found '", found[i],
                 "' to be a link out of it; copy the package with its links followed (cp -RL)");
        expect_mil_fails(&d, TEG_ERR_FORMAT, message);
    }
    temp_dir_remove(&d);
}

static void test_links_inside(void **state)
{
    (void)state;
    const struct temp_dir d = temp_dir_make();
    char from[256], to[256], path[128];
    temp_path(&d, "m", path);
    copy_package(&d, "cache.mlpackage");
    snprintf(from, sizeof from, "%s/m/Data/com.apple.CoreML/weights/weight.bin", d.path);
    snprintf(to, sizeof to, "%s/m/Data/blob", d.path);
    assert_int_equal(rename(from, to), 0);
    assert_int_equal(symlink("../../blob", from), 0);
    teg_mil_free(open_mil(path));
    temp_dir_remove(&d);
}

/* The manifest may have the weights elsewhere than beside the model. */
static void test_weights_elsewhere(void **state)
{
    (void)state;
    static const char manifest[] = BODY(
        "1.0.0",
        ITEM("A", "com.apple.CoreML/another.mlmodel", "another.mlmodel") "," ITEM("B", "org.other/numbers", "weights"),
        "A");
    const struct temp_dir d = temp_dir_make();
    char command[400], path[128];
    temp_path(&d, "m", path);
    copy_package(&d, "cache.mlpackage");
    snprintf(command, sizeof command,
             "mkdir %s/m/Data/org.other && mv %s/m/Data/com.apple.CoreML/weights %s/m/Data/org.other/numbers", d.path,
             d.path, d.path);
    assert_int_equal(system(command), 0);
    replace_file(&d, "Manifest.json", manifest, strlen(manifest));
    teg_mil_free(open_mil(path));
    temp_dir_remove(&d);
}

static void test_weight_names(void **state)
{
    (void)state;
    struct teg_arena arena;
    struct teg_mlpackage package;
    struct teg_span bytes;
    struct teg_error err = {0};
    static const struct {
        const char *name, *message;
        enum teg_status status;
    } bad[] = {
        {"weights/weight.bin",
         "expected weight files named '@model_path/…', found 'weights/weight.bin'; export the model "
         "again",
         TEG_ERR_FORMAT},
        {"@model_path/../../Manifest.json",
         "expected paths inside the package, found '../../Manifest.json'; do not use this package", TEG_ERR_FORMAT},
        {"@model_path//etc/passwd", "expected paths inside the package, found '/etc/passwd'; do not use this package",
         TEG_ERR_FORMAT},
        {"@model_path/weights/../weights/weight.bin",
         "expected paths inside the package, found 'weights/../weights/weight.bin'; do not use this package",
         TEG_ERR_FORMAT},
        {"@model_path/none.bin", "expected a file 'none.bin', found: No such file or directory; copy the package again",
         TEG_ERR_IO},
    };
    teg_arena_init(&arena, NULL);
    assert_int_equal(teg_mlpackage_open(&package, MIL_DATA "old.mlpackage", &arena, &err), TEG_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(teg_mlpackage_weights(&package, bad[i].name, &bytes, &err), bad[i].status);
        assert_non_null(strstr(err.message, bad[i].message));
    }
    assert_int_equal(teg_mlpackage_weights(&package, "@model_path/weights/weight.bin", &bytes, &err), TEG_OK);
    struct teg_span again = {0};
    assert_int_equal(teg_mlpackage_weights(&package, "@model_path/weights/./weight.bin", &again, &err), TEG_OK);
    assert_ptr_equal(bytes.bytes, again.bytes); /* mapped once */
    teg_mlpackage_close(&package);
    teg_arena_free(&arena);
}

/* ---- records ---- */

static void put_record(struct bytes *b, uint32_t sentinel, uint32_t code, uint64_t n, uint64_t place, uint64_t padding)
{
    put_uint(b, sentinel, 4);
    put_uint(b, code, 4);
    put_uint(b, n, 8);
    put_uint(b, place, 8);
    put_uint(b, padding, 8);
    for (int i = 0; i < 4; i++)
        put_uint(b, 0x123456789abcdefu, 8); /* reserved: anything */
}

static struct bytes weight_file(uint32_t version, uint32_t sentinel, uint32_t code, uint64_t n, uint64_t place,
                                uint64_t padding)
{
    struct bytes b = {0};
    put_uint(&b, 1, 4);
    put_uint(&b, version, 4);
    put_zeros(&b, 56);
    put_record(&b, sentinel, code, n, place, padding);
    put_text(&b, "\x8d\x01");
    return b;
}

#define WEIGHTS "cannot read weight file: w.bin at byte "
static const struct {
    uint32_t version, sentinel, code;
    uint64_t n, place, padding, offset;
    enum teg_status status;
    const char *message;
} bad_records[] = {
    {1, 0xdeadbeef, 9, 2, 128, 7, 64, TEG_ERR_UNSUPPORTED,
     WEIGHTS "4: expected storage version 2, found 1; export the model again"},
    {2, 0xdeadbeee, 9, 2, 128, 7, 64, TEG_ERR_FORMAT,
     WEIGHTS "64: expected a record that begins with deadbeef, found other bytes; copy the package again"},
    {2, 0xdeadbeef, 0, 2, 128, 7, 64, TEG_ERR_UNSUPPORTED,
     WEIGHTS "68: expected an element type of 1 to 17, found 0; update tegula"},
    {2, 0xdeadbeef, 18, 2, 128, 7, 64, TEG_ERR_UNSUPPORTED,
     WEIGHTS "68: expected an element type of 1 to 17, found 18; update tegula"},
    {2, 0xdeadbeef, 9, (uint64_t)1 << 60, 128, 7, 64, TEG_ERR_FORMAT,
     WEIGHTS
     "72: expected the record's data inside 130 bytes, found 1152921504606846976 bytes at 128; copy the package "
     "again"},
    {2, 0xdeadbeef, 9, 2, 129, 7, 64, TEG_ERR_FORMAT,
     WEIGHTS "72: expected the record's data inside 130 bytes, found 2 bytes at 129; copy the package again"},
    {2, 0xdeadbeef, 9, 0, UINT64_MAX, 0, 64, TEG_ERR_FORMAT,
     WEIGHTS "72: expected the record's data inside 130 bytes, found 0 bytes at 18446744073709551615; copy the package "
             "again"},
    {2, 0xdeadbeef, 9, 2, 128, 8, 64, TEG_ERR_FORMAT,
     WEIGHTS "88: expected unused bits that leave whole uint1 elements in 2 bytes, found 8; export the model again"},
    {2, 0xdeadbeef, 8, 2, 128, 3, 64, TEG_ERR_FORMAT,
     WEIGHTS "88: expected unused bits that leave whole int4 elements in 2 bytes, found 3; export the model again"},
    {2, 0xdeadbeef, 9, 0, 128, 1, 64, TEG_ERR_FORMAT,
     WEIGHTS "88: expected unused bits that leave whole uint1 elements in 0 bytes, found 1; export the model again"},
    {2, 0xdeadbeef, 9, 2, 128, 7, 0, TEG_ERR_FORMAT,
     WEIGHTS "0: expected a record at a multiple of 64 inside 130 bytes, found offset 0; copy the package again"},
    {2, 0xdeadbeef, 9, 2, 128, 7, 65, TEG_ERR_FORMAT,
     WEIGHTS "65: expected a record at a multiple of 64 inside 130 bytes, found offset 65; copy the package again"},
    {2, 0xdeadbeef, 9, 2, 128, 7, 128, TEG_ERR_FORMAT,
     WEIGHTS "128: expected a record at a multiple of 64 inside 130 bytes, found offset 128; copy the package again"},
    {2, 0xdeadbeef, 9, 2, 128, 7, UINT64_MAX - 63, TEG_ERR_FORMAT,
     WEIGHTS "18446744073709551552: expected a record at a multiple of 64 inside 130 bytes, found offset "
             "18446744073709551552; copy the package again"},
};

static void test_bad_records(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_records / sizeof *bad_records; i++) {
        struct bytes b = weight_file(bad_records[i].version, bad_records[i].sentinel, bad_records[i].code,
                                     bad_records[i].n, bad_records[i].place, bad_records[i].padding);
        struct teg_blob blob;
        struct teg_error err = {0};
        const struct teg_span file = {b.at, b.n};
        const enum teg_status status = teg_blob_read(file, "w.bin", bad_records[i].offset, &blob, &err);
        assert_string_equal(err.message, bad_records[i].message);
        assert_int_equal(status, bad_records[i].status);
        bytes_free(&b);
    }
}

static void test_good_records(void **state)
{
    (void)state;
    static const struct {
        uint32_t code;
        uint64_t padding;
        uint32_t found;
    } good[] = {{9, 7, 7}, {10, 6, 6}, {13, 4, 4}, {3, 5104411984, 0}, {1, 9, 0}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct bytes b = weight_file(2, 0xdeadbeef, good[i].code, 2, 128, good[i].padding);
        struct guarded g = guarded_copy(b.at, b.n);
        struct teg_blob blob = {0};
        assert_int_equal(teg_blob_read((struct teg_span){g.bytes, b.n}, "w.bin", 64, &blob, NULL), TEG_OK);
        assert_int_equal(blob.code, good[i].code);
        assert_int_equal(blob.padding_bits, good[i].found);
        assert_ptr_equal(blob.data.bytes, g.bytes + 128);
        assert_int_equal(blob.data.n_bytes, 2);
        guarded_free(&g);
        bytes_free(&b);
    }
}

static void test_record_prefixes(void **state)
{
    (void)state;
    struct bytes b = weight_file(2, 0xdeadbeef, 9, 2, 128, 7);
    for (size_t n = 0; n < b.n; n++) {
        struct guarded g = guarded_copy(b.at, n);
        struct teg_blob blob;
        struct teg_error err = {0};
        assert_int_equal(teg_blob_read((struct teg_span){g.bytes, n}, "w.bin", 64, &blob, &err), TEG_ERR_FORMAT);
        assert_non_null(strstr(err.message, "; copy the package again"));
        guarded_free(&g);
    }
    bytes_free(&b);
}

/* ---- the description of a compiled model ---- */

static void test_description_container(void **state)
{
    (void)state;
    struct bytes b = read_whole(MIL_DATA "cache.mlmodelc/coremldata.bin");
    struct teg_span description = {0};
    uint32_t version = 0;
    struct teg_error err = {0};
    assert_int_equal(teg_mlmodelc_description((struct teg_span){b.at, b.n}, "c.bin", &description, &version, &err),
                     TEG_OK);
    assert_int_equal(version, 9);
    const size_t end = (size_t)(description.bytes - b.at) + description.n_bytes;
    assert_int_equal(end, b.n - 32); /* two functions */
    for (size_t n = 0; n < end; n++) {
        struct guarded g = guarded_copy(b.at, n);
        assert_int_equal(teg_mlmodelc_description((struct teg_span){g.bytes, n}, "c.bin", &description, &version, &err),
                         TEG_ERR_FORMAT);
        assert_non_null(strstr(err.message, "; compile the model again"));
        guarded_free(&g);
    }
    b.at[0] = 0xf4;
    assert_int_equal(teg_mlmodelc_description((struct teg_span){b.at, b.n}, "c.bin", &description, &version, &err),
                     TEG_ERR_UNSUPPORTED);
    assert_string_equal(err.message,
                        "cannot read model description: c.bin at byte 0: expected an ML program (type 502), "
                        "found type 500; convert the model to an ML program");
    bytes_free(&b);
}

/* ---- as a source of tensors ---- */

static void test_source_refuses(void **state)
{
    (void)state;
    struct teg_source *source = NULL;
    struct teg_error err = {0};
    static const char *const names[] = {MIL_DATA "old.mlpackage", MIL_DATA "old.mlmodelc"};
    for (size_t i = 0; i < 2; i++) {
        char expected[400];
        snprintf(expected, sizeof expected,
                 "cannot open model: %s: expected a GGUF file or a directory with config.json and safetensors, found a "
                 "Core ML package; use the GGUF or safetensors form of the model",
                 names[i]);
        assert_int_equal(teg_source_open(names[i], true, NULL, &source, &err), TEG_ERR_UNSUPPORTED);
        assert_string_equal(err.message, expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_manifests),     cmocka_unit_test(test_good_manifests),
        cmocka_unit_test(test_too_many_items),    cmocka_unit_test(test_not_a_package),
        cmocka_unit_test(test_links_out),         cmocka_unit_test(test_links_inside),
        cmocka_unit_test(test_weights_elsewhere), cmocka_unit_test(test_weight_names),
        cmocka_unit_test(test_bad_records),       cmocka_unit_test(test_good_records),
        cmocka_unit_test(test_record_prefixes),   cmocka_unit_test(test_description_container),
        cmocka_unit_test(test_source_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
