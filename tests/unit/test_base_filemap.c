/* File maps: contents, the empty file, and one sentence for each kind of thing that is not a regular file. Opening must
 * never block, so the FIFO has no writer; an alarm turns a hang into a failure. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/filemap.h"

static char folder[] = "/tmp/tegula-filemap-XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *path, const void *bytes, size_t n_bytes)
{
    FILE *const f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n_bytes, f), n_bytes);
    assert_int_equal(fclose(f), 0);
}

/* The whole message, with the folder's random name out of it. */
static void expect_refusal(const char *path, const char *message)
{
    struct teg_filemap map = {(const uint8_t *)"untouched", 9};
    struct teg_error err = {0};
    char want[400];
    snprintf(want, sizeof want, "cannot open model: %s: %s", path, message);
    assert_int_equal(teg_filemap_open(&map, path, "cannot open model", &err), TEG_ERR_IO);
    assert_int_equal(err.status, TEG_ERR_IO);
    assert_string_equal(err.message, want);
    assert_int_equal(map.n_bytes, 9);
    assert_int_equal(teg_filemap_open(&map, path, "cannot open model", NULL), TEG_ERR_IO);
}

static void test_reads_the_bytes(void **state)
{
    (void)state;
    const char *const path = in_folder("bytes");
    uint8_t bytes[10000];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 7);
    write_file(path, bytes, sizeof bytes);
    struct teg_filemap map = {0};
    assert_int_equal(teg_filemap_open(&map, path, "cannot open model", NULL), TEG_OK);
    assert_int_equal(map.n_bytes, sizeof bytes);
    assert_memory_equal(map.bytes, bytes, sizeof bytes);
    /* Released pages read the same again; ranges inside one page and at the ragged end are legal. */
    teg_filemap_release(&map, 0, map.n_bytes);
    teg_filemap_release(&map, 5000, 10);
    teg_filemap_release(&map, 9999, 1);
    assert_memory_equal(map.bytes, bytes, sizeof bytes);
    teg_filemap_close(&map);
    assert_null(map.bytes);
    teg_filemap_close(&map);
}

static void test_empty_file(void **state)
{
    (void)state;
    const char *const path = in_folder("empty");
    write_file(path, "", 0);
    struct teg_filemap map = {(const uint8_t *)"x", 1};
    assert_int_equal(teg_filemap_open(&map, path, "cannot open model", NULL), TEG_OK);
    assert_null(map.bytes);
    assert_int_equal(map.n_bytes, 0);
    teg_filemap_close(&map);
}

static void test_missing(void **state)
{
    (void)state;
    expect_refusal(in_folder("nothing here"),
                   "expected a readable file, found: No such file or directory; check the path and its permissions");
}

static void test_directory(void **state)
{
    (void)state;
    expect_refusal(folder, "expected a regular file, found a directory; pass the path of a file");
}

static void test_fifo(void **state)
{
    (void)state;
    const char *const path = in_folder("fifo");
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_refusal(path, "expected a regular file, found a FIFO; pass the path of a file");
}

static void test_device(void **state)
{
    (void)state;
    expect_refusal("/dev/null", "expected a regular file, found a character device; pass the path of a file");
    expect_refusal("/dev/zero", "expected a regular file, found a character device; pass the path of a file");
}

static void test_socket(void **state)
{
    (void)state;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", folder);
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof address) != 0)
        skip();
    expect_refusal(in_folder("socket"),
                   "expected a readable file, found: No such device or address; check the path and its permissions");
    close(fd);
}

/* A sparse file that is larger than the address space left. */
static void test_no_room_to_map(void **state)
{
    (void)state;
    const char *const path = in_folder("bytes");
    const size_t n_bytes = (size_t)1 << 36;
    if (truncate(path, (off_t)n_bytes) != 0)
        skip();
    struct rlimit old, low;
    assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
    low = (struct rlimit){.rlim_cur = (rlim_t)1 << 34, .rlim_max = old.rlim_max};
    struct teg_filemap map = {0};
    struct teg_error err = {0};
    const bool set = setrlimit(RLIMIT_AS, &low) == 0;
    const enum teg_status status = teg_filemap_open(&map, path, "cannot open model", &err);
    assert_int_equal(setrlimit(RLIMIT_AS, &old), 0);
    if (!set || status == TEG_OK) { /* emulators and sanitizers do not keep the limit */
        teg_filemap_close(&map);
        skip();
    }
    assert_int_equal(status, TEG_ERR_MEMORY);
    assert_non_null(strstr(err.message, "expected to map 68719476736 bytes, found: Cannot allocate memory; free memory "
                                        "or copy the file to a local disk"));
}

static int setup(void **state)
{
    (void)state;
    alarm(60);
    return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    static const char *const names[] = {"bytes", "empty", "fifo", "socket"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlink(in_folder(names[i]));
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_the_bytes), cmocka_unit_test(test_empty_file),     cmocka_unit_test(test_missing),
        cmocka_unit_test(test_directory),       cmocka_unit_test(test_fifo),           cmocka_unit_test(test_device),
        cmocka_unit_test(test_socket),          cmocka_unit_test(test_no_room_to_map),
    };
    return cmocka_run_group_tests_name("base filemap", tests, setup, teardown);
}
