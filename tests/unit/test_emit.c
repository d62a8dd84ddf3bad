/* Packages written and read again. The law: what is read back is what was written, in structure, types and values, for
 * every package at hand; and the same program gives the same bytes. Then: equal weights once, deferred weights made in
 * parallel, what a disk, a caller or a target does wrong, and that a failure leaves nothing behind. */
#include "unit/program_same.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

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

/* ---- weights that are made ---- */

enum { N_WEIGHTS = 24, ROWS = 32, COLUMNS = 64 };

/* Key k: a matrix of values k (part 0) and a scale (part 1); keys from 20 on are equal to key 0. */
static enum teg_status make_weight(const struct teg_mil_deferred *w, struct teg_arena *arena,
                                   struct teg_span parts[TEG_MIL_DEFERRED_PARTS], struct teg_error *err)
{
    const uint64_t fails = w->ctx ? *(const uint64_t *)w->ctx : UINT64_MAX;
    uint8_t *const data = teg_arena_array(arena, ROWS * COLUMNS, 1);
    uint16_t *const scale = teg_arena_array(arena, ROWS, sizeof *scale);
    if (w->key == fails)
        FAIL(err, TEG_ERR_FORMAT, "cannot quantize: weight %d: expected numbers, found nan", (int)w->key);
    if (!data || !scale)
        return teg_base_fail_memory(err, "a weight", ROWS * COLUMNS);
    for (size_t i = 0; i < ROWS * COLUMNS; i++)
        data[i] = (uint8_t)((w->key < 20 ? w->key : 0) * 7 + i % 5);
    for (size_t i = 0; i < ROWS; i++)
        scale[i] = teg_f32_to_f16(0.5f);
    parts[0] = (struct teg_span){data, ROWS * COLUMNS};
    parts[1] = (struct teg_span){(const uint8_t *)scale, ROWS * sizeof *scale};
    return TEG_OK;
}

static struct teg_mil_program *make_program(const uint64_t *fails)
{
    static const int64_t shape[] = {ROWS, COLUMNS}, scales[] = {ROWS, 1};
    const struct teg_mil_feature x = {
        .name = "x", .kind = TEG_MIL_FEATURE_ARRAY, .dtype = TEG_MIL_FP16, .rank = 2, .shape = {1, COLUMNS}};
    struct teg_mil_program *program = NULL;
    struct teg_mil_maker *m = NULL;
    struct teg_error err = {0};
    assert_int_equal(teg_mil_make_new(9, NULL, &m, NULL), TEG_OK);
    for (int f = 0; f < 2; f++) { /* two functions of the same weights */
        teg_mil_make_function(m, f ? "decode" : "prefill", 9);
        const teg_mil_var_id in = teg_mil_make_input(m, &x);
        teg_mil_var_id sum = TEG_MIL_NO_VAR;
        for (uint64_t k = 0; k < N_WEIGHTS; k++) {
            const struct teg_mil_deferred w = {.make = make_weight, .ctx = fails, .key = k, .cost = 3000};
            const teg_mil_var_id q = teg_mil_make_op(
                m, "constexpr_blockwise_shift_scale", "w",
                (const struct teg_mil_bind[]){{"data", teg_mil_make_weight(m, "w", TEG_MIL_INT8, 2, shape, &w, 0)},
                                              {"scale", teg_mil_make_weight(m, "s", TEG_MIL_FP16, 2, scales, &w, 1)},
                                              {NULL, 0}});
            const teg_mil_var_id y =
                teg_mil_make_op(m, "linear", "y", (const struct teg_mil_bind[]){{"x", in}, {"weight", q}, {NULL, 0}});
            sum = k ? teg_mil_make_op(m, "add", "sum", (const struct teg_mil_bind[]){{"x", sum}, {"y", y}, {NULL, 0}})
                    : y;
        }
        teg_mil_make_output(m, "out", sum);
    }
    if (teg_mil_make_end(m, &program, &err) != TEG_OK)
        fail_msg("%s", err.message);
    return program;
}

static void test_deferred(void **state)
{
    const struct temp_dir *const d = *state;
    char one[128], two[128], a[256], b[256];
    struct teg_mil_program *const program = make_program(NULL);
    struct teg_pool *pool = NULL;
    struct teg_emit_report report = {0};
    assert_int_equal(teg_pool_new(3, NULL, &pool, NULL), TEG_OK);
    /* One at a time, and many on several threads with room for three: the same file. */
    const struct teg_emit_options alone = {.memory_budget = 1}, together = {.memory_budget = 10000, .pool = pool};
    temp_path(d, "one.mlpackage", one);
    temp_path(d, "two.mlpackage", two);
    assert_written(program, one, &alone, &report);
    assert_written(program, two, &together, NULL);
    (void)snprintf(a, sizeof a, "%s/Data/com.apple.CoreML/weights/weight.bin", one);
    (void)snprintf(b, sizeof b, "%s/Data/com.apple.CoreML/weights/weight.bin", two);
    assert_true(same_file(a, b));
    /* 20 different matrices, one scale, one bias of zeros */
    assert_int_equal(report.n_blobs, 22);
    assert_int_equal(report.weights_bytes, 20 * ROWS * COLUMNS + ROWS * 2 + ROWS * 2);
    struct teg_mil_program *const again = open_mil(one);
    assert_string_equal(again->default_function, "prefill");
    for (size_t f = 0; f < 2; f++) {
        const struct teg_mil_op *const op =
            &again->functions[f].block.ops[3]; /* constexpr, linear, constexpr, linear */
        assert_string_equal(op->type, "linear");
        const struct teg_mil_var *const w = teg_mil_arg_var(again, &again->functions[f].block.ops[2], "data");
        assert_int_equal(w->constant->bytes[1], 7 + 1);
    }
    teg_mil_free(again);
    teg_mil_free(program);
    teg_pool_free(pool);
}

/* ---- what goes wrong ---- */

static size_t count_entries(const char *path)
{
    DIR *const dir = opendir(path);
    size_t n = 0;
    assert_non_null(dir);
    for (const struct dirent *e; (e = readdir(dir));)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(dir);
    return n;
}

/* The message with every "%" the directory, and nothing new in it. */
static void expect_not_written(const struct temp_dir *d, const struct teg_mil_program *program, const char *name,
                               const struct teg_emit_options *options, const char *message)
{
    char path[128], expected[512];
    size_t n = 0;
    struct teg_error err = {0};
    const size_t before = count_entries(d->path);
    temp_path(d, name, path);
    assert_int_not_equal(teg_emit_package(program, path, options, NULL, &err), TEG_OK);
    for (const char *p = message; *p; p++)
        n += (size_t)snprintf(expected + n, sizeof expected - n, *p == '%' ? "%s" : "%.1s", *p == '%' ? d->path : p);
    assert_string_equal(err.message, expected);
    assert_int_equal(count_entries(d->path), before);
}

static bool stop_later(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    return done < total / 2;
}

static bool stop_now(void *ctx)
{
    (void)ctx;
    return true;
}

static void test_refused(void **state)
{
    const struct temp_dir *const d = *state;
    static const uint64_t third = 3;
    char path[128];
    struct teg_mil_program *program = make_program(&third);
    expect_not_written(d, program, "a.mlpackage", NULL, "cannot quantize: weight 3: expected numbers, found nan");
    teg_mil_free(program);
    program = make_program(NULL);
    expect_not_written(d, program, "a.mlmodel", NULL,
                       "cannot write package: %/a.mlmodel: expected a name that ends in .mlpackage, found another");
    expect_not_written(
        d, program, "none/a.mlpackage", NULL,
        "cannot write package: %/none/a.mlpackage: expected to make a folder beside "
        "'%/none/a.mlpackage', found: No such file or directory; check the folder's permissions and free "
        "space");
    const struct teg_emit_options stops = {.progress = stop_later}, cancelled = {.cancelled = stop_now};
    expect_not_written(d, program, "a.mlpackage", &stops,
                       "cannot write package: %/a.mlpackage: interrupted at 25408 of 50816 bytes of weights");
    expect_not_written(d, program, "a.mlpackage", &cancelled,
                       "cannot write package: %/a.mlpackage: interrupted at 0 of 50816 bytes of weights");
    temp_path(d, "a.mlpackage", path);
    assert_written(program, path, NULL, NULL);
    expect_not_written(d, program, "a.mlpackage", NULL,
                       "cannot write package: %/a.mlpackage: expected no file of that name, found one; remove it, or "
                       "allow replacing (--force)");
    temp_write_text(d, "b.mlpackage", "a file");
    expect_not_written(d, program, "b.mlpackage", &(const struct teg_emit_options){.replace = true},
                       "cannot write package: %/b.mlpackage: expected a package to replace, found a file or folder "
                       "that is none; remove it yourself");
    teg_mil_free(program);
}

/* A replacement that fails leaves the old package. */
static void test_replaced(void **state)
{
    const struct temp_dir *const d = *state;
    static const uint64_t third = 3;
    char path[128], copy[128];
    const struct teg_emit_options replace = {.replace = true};
    struct teg_mil_program *const good = make_program(NULL), *const bad = make_program(&third);
    struct teg_mil_program *const other = open_mil(MIL_DATA "flow.mlpackage");
    temp_path(d, "a.mlpackage", path);
    temp_path(d, "b.mlpackage", copy);
    assert_written(good, path, NULL, NULL);
    assert_written(good, copy, NULL, NULL);
    expect_not_written(d, bad, "a.mlpackage", &replace, "cannot quantize: weight 3: expected numbers, found nan");
    struct teg_mil_program *a = open_mil(path), *b = open_mil(copy);
    assert_same_program(a, b);
    teg_mil_free(a);
    teg_mil_free(b);
    assert_written(other, path, &replace, NULL);
    a = open_mil(path);
    assert_same_program(a, other);
    assert_int_equal(count_entries(d->path), 2);
    teg_mil_free(a);
    teg_mil_free(good);
    teg_mil_free(bad);
    teg_mil_free(other);
}

/* A disk that is full after n bytes of each file: an error, and nothing left. */
static void test_full_disk(void **state)
{
    const struct temp_dir *const d = *state;
    static const rlim_t limits[] = {10, 100, 5000, 42000};
    struct teg_mil_program *const program = make_program(NULL);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        const pid_t child = fork();
        if (child == 0) {
            char path[128];
            struct teg_error err = {0};
            (void)signal(SIGXFSZ, SIG_IGN);
            (void)setrlimit(RLIMIT_FSIZE, &(const struct rlimit){limits[i], limits[i]});
            temp_path(d, "a.mlpackage", path);
            const enum teg_status status = teg_emit_package(program, path, NULL, NULL, &err);
            _exit(status == TEG_ERR_IO && strstr(err.message, "File too large") ? 0 : 1);
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        assert_int_equal(count_entries(d->path), 0);
    }
    teg_mil_free(program);
}

/* Killed at any moment: the name is free, or the package under it is whole. */
static void test_killed(void **state)
{
    const struct temp_dir *const d = *state;
    char path[128];
    struct teg_mil_program *const program = make_program(NULL);
    size_t n_whole = 0, n_none = 0;
    temp_path(d, "a.mlpackage", path);
    for (unsigned i = 0; i < 60; i++) {
        const pid_t child = fork();
        if (child == 0) {
            (void)teg_emit_package(program, path, &(const struct teg_emit_options){.replace = true}, NULL, NULL);
            _exit(0);
        }
        (void)usleep(i * 2000);
        (void)kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
        if (access(path, F_OK) != 0) {
            n_none++;
            continue;
        }
        teg_mil_free(open_mil(path));
        n_whole++;
        char command[160];
        (void)snprintf(command, sizeof command, "rm -rf '%s'", path);
        assert_int_equal(system(command), 0);
    }
    assert_true(n_none > 0);
    print_message("%zu whole, %zu not there\n", n_whole, n_none);
    teg_mil_free(program);
}

/* Every allocation may fail, and then nothing is left. */
static void test_memory(void **state)
{
    const struct temp_dir *const d = *state;
    struct teg_mil_program *const program = make_program(NULL);
    char path[128];
    temp_path(d, "a.mlpackage", path);
    for (size_t fail_at = 1;; fail_at++) {
        struct counting c;
        struct teg_error err = {0};
        const struct teg_emit_options options = {.allocator = counting_init(&c, fail_at)};
        const enum teg_status status = teg_emit_package(program, path, &options, NULL, &err);
        assert_int_equal(c.n_live, 0);
        if (status == TEG_OK)
            break;
        assert_int_equal(status, TEG_ERR_MEMORY);
        assert_int_equal(count_entries(d->path), 0);
    }
    teg_mil_free(program);
}

/* Files that go along are items of the manifest. */
static void test_items(void **state)
{
    const struct temp_dir *const d = *state;
    static const char text[] = "{\"version\": 1}";
    const struct teg_emit_item item = {"tokenizer.json", "Tokenizer", {(const uint8_t *)text, sizeof text - 1}};
    const struct teg_emit_options options = {.items = &item, .n_items = 1};
    char path[128], file[256];
    struct teg_mil_program *const program = make_program(NULL);
    temp_path(d, "a.mlpackage", path);
    assert_written(program, path, &options, NULL);
    (void)snprintf(file, sizeof file, "%s/Data/tegula/tokenizer.json", path);
    struct bytes b = read_whole(file);
    assert_int_equal(b.n, sizeof text - 1);
    assert_memory_equal(b.at, text, b.n);
    bytes_free(&b);
    (void)snprintf(file, sizeof file, "%s/Manifest.json", path);
    b = read_whole(file);
    put_uint(&b, 0, 1);
    assert_non_null(strstr((const char *)b.at, "\"path\": \"tegula/tokenizer.json\""));
    bytes_free(&b);
    teg_mil_free(open_mil(path));
    teg_mil_free(program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_law, temp_setup, temp_teardown),
        cmocka_unit_test_setup_teardown(test_law_shared, temp_setup, temp_teardown),
        cmocka_unit_test_setup_teardown(test_deferred, temp_setup, temp_teardown),
        cmocka_unit_test_setup_teardown(test_refused, temp_setup, temp_teardown),
        cmocka_unit_test_setup_teardown(test_replaced, temp_setup, temp_teardown),
        cmocka_unit_test_setup_teardown(test_full_disk, temp_setup, temp_teardown),
        cmocka_unit_test_setup_teardown(test_killed, temp_setup, temp_teardown),
        cmocka_unit_test_setup_teardown(test_memory, temp_setup, temp_teardown),
        cmocka_unit_test_setup_teardown(test_items, temp_setup, temp_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
