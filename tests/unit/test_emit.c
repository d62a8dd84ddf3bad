/* Packages written and read again. The law: what is read back is what was written, in structure, types and values, for
 * every package at hand; and the same program gives the same bytes. Then: equal weights once, deferred weights made in
 * parallel, what a disk, a caller or a target does wrong, and that a failure leaves nothing behind. */
#include "unit/program_same.h"

#include <dirent.h>

#include "emit/emit.h"

/* ---- files ---- */

static bool same_file(const char *a, const char *b)
{
    struct bytes x = read_whole(a), y = read_whole(b);
    const bool same = x.n == y.n && (!x.n || memcmp(x.at, y.at, x.n) == 0);
    bytes_free(&x);
    bytes_free(&y);
    return same;
}

static void assert_written(const struct teg_mil_program *program, const char *path,
                           const struct teg_emit_options *options, struct teg_emit_report *report)
{
    struct teg_error err = {0};
    if (teg_emit_package(program, path, options, report, &err) != TEG_OK)
        fail_msg("%s", err.message);
}

/* ---- the law ---- */

static void check_package(const struct temp_dir *d, const char *path)
{
    static const char *const files[] = {"Manifest.json", "Data/com.apple.CoreML/model.mlmodel",
                                        "Data/com.apple.CoreML/weights/weight.bin"};
    char one[128], two[128], a[256], b[256];
    struct teg_mil_program *const program = open_mil(path);
    struct teg_emit_report report = {0};
    const struct teg_emit_options replace = {.replace = true};
    temp_path(d, "one.mlpackage", one);
    temp_path(d, "two.mlpackage", two);
    assert_written(program, one, &replace, &report);
    struct teg_mil_program *const again = open_mil(one);
    assert_same_program(program, again);
    assert_written(again, two, &replace, NULL);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        (void)snprintf(a, sizeof a, "%s/%s", one, files[i]);
        (void)snprintf(b, sizeof b, "%s/%s", two, files[i]);
        if (i < 2 || report.n_blobs) {
            if (!same_file(a, b))
                fail_msg("%s: expected equal bytes when written again, found others in %s", path, files[i]);
        } else
            assert_int_equal(access(a, F_OK), -1);
    }
    teg_mil_free(program);
    teg_mil_free(again);
}

/* How many packages lie there. */
static size_t check_folder(const struct temp_dir *d, const char *folder)
{
    DIR *const dir = opendir(folder);
    size_t n = 0;
    if (!dir)
        return 0;
    for (const struct dirent *e; (e = readdir(dir));) {
        char path[512];
        if (!strstr(e->d_name, ".mlpackage") && !strstr(e->d_name, ".mlmodelc"))
            continue;
        (void)snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        check_package(d, path);
        n++;
    }
    closedir(dir);
    return n;
}

static int temp_setup(void **state)
{
    struct temp_dir *const d = malloc(sizeof *d);
    assert_non_null(d);
    *d = temp_dir_make();
    *state = d;
    return 0;
}

static int temp_teardown(void **state)
{
    temp_dir_remove(*state);
    free(*state);
    return 0;
}

static void test_law(void **state)
{
    const struct temp_dir *const d = *state;
    assert_true(check_folder(d, TEST_DATA "/mil") >= 4);
}

static void test_law_shared(void **state)
{
    static const char *const folders[] = {"stateful-tiny", "coreml-public", "coreml-toys"};
    const struct temp_dir *const d = *state;
    size_t n = 0;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char path[256];
        (void)snprintf(path, sizeof path, TEST_DATA "/../../../shared/data/%s", folders[i]);
        n += check_folder(d, path);
    }
    if (!n) {
        print_message("skipped: no packages in ../shared/data beside the checkout\n");
        skip();
    }
    assert_true(n > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_law, temp_setup, temp_teardown),
        cmocka_unit_test_setup_teardown(test_law_shared, temp_setup, temp_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
