/* Packed weights in a file: the second start finds them, results stay the same bit for bit, and whatever is wrong with
 * the file ends in one warning and a whole new file. A folder that cannot be written to and a disk that is full end in
 * a warning and leave nothing. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit/format_test.h"

#include "base/hash.h"
#include "tegula.h"

#define MODEL TEST_DATA "/tiny/llama-mixed.gguf"
#define OTHER TEST_DATA "/tiny/llama.gguf"
enum { HEADER = 4096, N_IDS = 12, AT_VERSION = 8, AT_CONTENT_HASH = 40, AT_OWN = 56 };

struct fixture {
    char root[64], model[96], cache[128];
    struct warnings {
        size_t n;
        char last[480];
    } warnings;
};

static void note(void *ctx, const char *sentence)
{
    struct warnings *const w = ctx;
    w->n++;
    (void)snprintf(w->last, sizeof w->last, "%s", sentence);
}

static void copy_file(const char *from, const char *to)
{
    char command[400];
    (void)snprintf(command, sizeof command, "cp '%s' '%s'", from, to);
    assert_int_equal(system(command), 0);
}

static int begin(void **state)
{
    static struct fixture f;
    f = (struct fixture){.root = "/tmp/teg-pack-XXXXXX"};
    assert_non_null(mkdtemp(f.root));
    (void)snprintf(f.model, sizeof f.model, "%s/m.gguf", f.root);
    (void)snprintf(f.cache, sizeof f.cache, "%s/cache", f.root);
    copy_file(MODEL, f.model);
    *state = &f;
    return 0;
}

static int end(void **state)
{
    const struct fixture *const f = *state;
    char command[100];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", f->root);
    return system(command);
}

struct opened {
    struct teg_model *model;
    bool mapped;
    size_t n_logits;
    float *logits; /* of the last of N_IDS tokens */
};

static void get_logits(struct opened *o)
{
    struct teg_session *session = NULL;
    struct teg_error err = {0};
    int32_t ids[N_IDS];
    o->n_logits = (size_t)teg_model_info(o->model)->vocab_tokens;
    for (int32_t i = 0; i < N_IDS; i++)
        ids[i] = i * 7 % (int32_t)o->n_logits;
    if (teg_session_new(o->model, NULL, &session, &err) != TEG_OK ||
        teg_session_prefill(session, ids, N_IDS, NULL, &err) != TEG_OK)
        fail_msg("%s", err.message);
    o->logits = malloc(o->n_logits * sizeof *o->logits);
    assert_non_null(o->logits);
    memcpy(o->logits, teg_session_logits(session), o->n_logits * sizeof *o->logits);
    teg_session_free(session);
}

/* Opens in fast mode; counts warnings from zero. cache NULL: none. */
static struct opened open_model(struct fixture *f, const char *path, const char *cache)
{
    struct opened o = {0};
    struct teg_model_options options;
    struct teg_error err = {0};
    struct teg_text plan = {0};
    f->warnings = (struct warnings){0};
    teg_model_options_default(&options);
    options.mode = TEG_MODE_FAST;
    options.pack_cache_dir = cache;
    options.on_warning = note;
    options.on_warning_ctx = &f->warnings;
    if (teg_model_open(path, &options, &o.model, &err) != TEG_OK ||
        teg_model_dump(o.model, TEG_DUMP_PLAN, &plan, &err) != TEG_OK)
        fail_msg("%s", err.message);
    o.mapped = strstr(plan.bytes, "mapped from the cache") != NULL;
    teg_text_free(&plan);
    get_logits(&o);
    return o;
}

static void close_model(struct opened *o)
{
    free(o->logits);
    teg_model_free(o->model);
    *o = (struct opened){0};
}

/* The one file of the folder; n_files counts all. */
static void cache_file(const struct fixture *f, char path[400], size_t *n_files)
{
    DIR *const d = opendir(f->cache);
    *n_files = 0;
    for (const struct dirent *e; d && (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.') {
            (void)snprintf(path, 400, "%s/%s", f->cache, e->d_name);
            ++*n_files;
        }
    if (d)
        closedir(d);
}

static uint8_t *read_all(const char *path, size_t *n)
{
    FILE *const file = fopen(path, "rb");
    assert_non_null(file);
    struct stat st;
    assert_int_equal(fstat(fileno(file), &st), 0);
    *n = (size_t)st.st_size;
    uint8_t *const bytes = malloc(*n + 16);
    assert_int_equal(fread(bytes, 1, *n, file), *n);
    fclose(file);
    return bytes;
}

/* A new file of that name: what is mapped must not change. */
static void write_all(const char *path, const uint8_t *bytes, size_t n)
{
    (void)unlink(path);
    FILE *const file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static void same_logits(const struct opened *a, const struct opened *b)
{
    assert_int_equal(a->n_logits, b->n_logits);
    assert_memory_equal(a->logits, b->logits, a->n_logits * sizeof *a->logits);
}

static void test_second_start(void **state)
{
    struct fixture *const f = *state;
    char path[400];
    size_t n_files;
    struct opened plain = open_model(f, f->model, NULL), first = open_model(f, f->model, f->cache);
    assert_int_equal(f->warnings.n, 0);
    assert_true(!plain.mapped && !first.mapped);
    cache_file(f, path, &n_files);
    assert_int_equal(n_files, 1);
    assert_non_null(strstr(path, "/m.gguf-"));
    struct opened second = open_model(f, f->model, f->cache);
    assert_int_equal(f->warnings.n, 0);
    assert_true(second.mapped);
    same_logits(&plain, &first);
    same_logits(&plain, &second);
    assert_int_equal(teg_model_info(plain.model)->weights_bytes, teg_model_info(second.model)->weights_bytes);
    close_model(&plain);
    close_model(&first);
    close_model(&second);
}

/* After `path` was spoiled: one warning with this text, the same logits, and a whole file for the next start. */
static void expect_repair(struct fixture *f, const struct opened *plain, const char *text)
{
    struct opened o = open_model(f, f->model, f->cache);
    char path[400];
    size_t n_files;
    if (f->warnings.n != 1 || !strstr(f->warnings.last, text) || strncmp(f->warnings.last, "pack cache: ", 12) != 0)
        fail_msg("expected one warning with \"%s\", found %zu: %s", text, f->warnings.n, f->warnings.last);
    assert_false(o.mapped);
    same_logits(plain, &o);
    close_model(&o);
    o = open_model(f, f->model, f->cache);
    assert_int_equal(f->warnings.n, 0);
    assert_true(o.mapped);
    same_logits(plain, &o);
    close_model(&o);
    cache_file(f, path, &n_files);
    assert_int_equal(n_files, 1);
}

static void test_damage(void **state)
{
    struct fixture *const f = *state;
    char path[400];
    size_t n_files, n;
    struct opened plain = open_model(f, f->model, NULL), first = open_model(f, f->model, f->cache);
    cache_file(f, path, &n_files);
    uint8_t *const good = read_all(path, &n);
    static const struct {
        size_t at; /* byte to change; from SIZE_MAX / 2 on: SIZE_MAX - at from the end */
        const char *text;
    } flips[] = {
        {0, "expected packed weights, found another kind of file; the weights are packed again"},
        {AT_VERSION, "expected this program's version of packed weights, found another"},
        {AT_VERSION + 4, "expected this program's version"},
        {AT_VERSION + 8, "expected a header that is whole, found a damaged one"},
        {AT_CONTENT_HASH, "expected a header that is whole"},
        {AT_OWN + 15, "expected a header that is whole"},
        {HEADER, "expected the weights that were written, found damage"},
        {HEADER + 12345, "expected the weights that were written"},
        {SIZE_MAX, "expected the weights that were written"},
    };
    for (size_t i = 0; i < sizeof flips / sizeof *flips; i++) {
        uint8_t *const byte = good + (flips[i].at > SIZE_MAX / 2 ? n - 1 : flips[i].at);
        *byte ^= 0x10;
        write_all(path, good, n);
        *byte ^= 0x10;
        expect_repair(f, &plain, flips[i].text);
    }
    const size_t cuts[] = {0, 1, HEADER - 1, HEADER, HEADER + 1, n - 1, n + 5};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        memset(good + n, 0, 16);
        write_all(path, good, cuts[i]);
        expect_repair(f, &plain, cuts[i] < HEADER ? "expected at least 4096 bytes, found " : " bytes, found ");
    }
    free(good);
    close_model(&plain);
    close_model(&first);
}

/* A file that is whole in itself, whose panels this program would not make: another layout, or another model behind
 * the same facts. */
static void test_other_panels(void **state)
{
    struct fixture *const f = *state;
    char path[400];
    size_t n_files, n;
    struct opened plain = open_model(f, f->model, NULL), first = open_model(f, f->model, f->cache);
    cache_file(f, path, &n_files);
    uint8_t *const bytes = read_all(path, &n);
    bytes[HEADER + 200] ^= 1;
    const struct teg_hash piece = teg_hash_of(bytes + HEADER, n - HEADER), content = teg_hash_of(&piece, sizeof piece);
    memcpy(bytes + AT_CONTENT_HASH, &content, sizeof content);
    const struct teg_hash own = teg_hash_of(bytes, AT_OWN);
    memcpy(bytes + AT_OWN, &own, sizeof own);
    assert_true(n - HEADER < (size_t)4 << 20); /* one piece */
    write_all(path, bytes, n);
    expect_repair(f, &plain, "expected panels as this program packs them, found others");
    free(bytes);
    close_model(&plain);
    close_model(&first);
}

static void test_stale_and_foreign(void **state)
{
    struct fixture *const f = *state;
    char path[400], foreign[400], other[120], command[900];
    size_t n_files;
    struct opened plain = open_model(f, f->model, NULL), o = open_model(f, f->model, f->cache);
    close_model(&o);
    (void)snprintf(command, sizeof command, "touch -d 2001-02-03 '%s'", f->model);
    assert_int_equal(system(command), 0);
    expect_repair(f, &plain, "expected weights of this model, program and CPU, found others");
    /* Another model's, under this one's name. */
    cache_file(f, path, &n_files);
    (void)snprintf(foreign, sizeof foreign, "%s", path);
    assert_int_equal(unlink(path), 0);
    (void)snprintf(other, sizeof other, "%s/n.gguf", f->root);
    copy_file(MODEL, other);
    o = open_model(f, other, f->cache);
    close_model(&o);
    cache_file(f, path, &n_files);
    assert_string_not_equal(path, foreign);
    assert_int_equal(rename(path, foreign), 0);
    expect_repair(f, &plain, "expected weights of this model, program and CPU, found others");
    /* Something that is no file at all. */
    assert_int_equal(unlink(foreign), 0);
    assert_int_equal(mkdir(foreign, 0777), 0);
    o = open_model(f, f->model, f->cache);
    assert_int_equal(f->warnings.n, 2); /* not to be read, not to be replaced */
    assert_non_null(strstr(f->warnings.last, "expected to write "));
    same_logits(&plain, &o);
    close_model(&o);
    assert_int_equal(rmdir(foreign), 0);
    cache_file(f, path, &n_files);
    assert_int_equal(n_files, 0);
    close_model(&plain);
}

static void expect_no_cache(struct fixture *f, const struct opened *plain, const char *cache, const char *text)
{
    struct opened o = open_model(f, f->model, cache);
    if (f->warnings.n != 1 || !strstr(f->warnings.last, text))
        fail_msg("expected one warning with \"%s\", found %zu: %s", text, f->warnings.n, f->warnings.last);
    same_logits(plain, &o);
    close_model(&o);
}

static void test_nowhere_to_write(void **state)
{
    struct fixture *const f = *state;
    struct opened plain = open_model(f, f->model, NULL);
    char path[400];
    size_t n_files;
    (void)snprintf(path, sizeof path, "%s/no/such", f->root);
    expect_no_cache(f, &plain, path, "expected a folder to write to, found: No such file or directory");
    expect_no_cache(f, &plain, f->model, "expected a folder to write to, found: Not a directory"); /* a file */
    const struct rlimit small = {1 << 16, RLIM_INFINITY};
    struct rlimit old;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0); /* as a full disk */
    expect_no_cache(f, &plain, f->cache, " bytes, found: File too large; the next start packs again");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    cache_file(f, path, &n_files);
    assert_int_equal(n_files, 0);
    close_model(&plain);
}

static void test_lock(void **state)
{
    struct fixture *const f = *state;
    char path[400], temporary[420];
    size_t n_files;
    struct opened plain = open_model(f, f->model, NULL), o = open_model(f, f->model, f->cache);
    close_model(&o);
    cache_file(f, path, &n_files);
    (void)snprintf(temporary, sizeof temporary, "%s.tmp", path);
    assert_int_equal(unlink(path), 0);
    const int fd = open(temporary, O_CREAT | O_WRONLY, 0666);
    assert_true(fd >= 0 && write(fd, "left over", 9) == 9 && flock(fd, LOCK_EX) == 0);
    o = open_model(f, f->model, f->cache); /* somebody else writes */
    assert_int_equal(f->warnings.n, 0);
    same_logits(&plain, &o);
    close_model(&o);
    assert_int_not_equal(access(path, F_OK), 0);
    close(fd); /* it died */
    o = open_model(f, f->model, f->cache);
    assert_int_equal(f->warnings.n, 0);
    close_model(&o);
    o = open_model(f, f->model, f->cache);
    assert_true(o.mapped && f->warnings.n == 0);
    same_logits(&plain, &o);
    close_model(&o);
    assert_int_not_equal(access(temporary, F_OK), 0);
    close_model(&plain);
}

static void test_many_at_once(void **state)
{
    struct fixture *const f = *state;
    enum { PROCESSES = 6 };
    struct opened plain = open_model(f, f->model, NULL);
    pid_t pids[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            bool fine = true;
            for (int k = 0; k < 4; k++) {
                struct opened o = open_model(f, f->model, f->cache);
                fine = fine && f->warnings.n == 0 && o.n_logits == plain.n_logits &&
                       memcmp(o.logits, plain.logits, o.n_logits * sizeof *o.logits) == 0;
                close_model(&o);
            }
            _exit(fine ? 0 : 1);
        }
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status = -1;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    struct opened o = open_model(f, f->model, f->cache);
    assert_true(o.mapped && f->warnings.n == 0);
    close_model(&o);
    close_model(&plain);
}

static bool stop_at_the_end(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    return done < total;
}

static void test_nothing_to_keep(void **state)
{
    struct fixture *const f = *state;
    struct teg_model *model = NULL;
    struct teg_model_options options;
    char path[400];
    size_t n_files;
    teg_model_options_default(&options);
    options.pack_cache_dir = f->cache;
    options.mode = TEG_MODE_EXACT; /* packs nothing */
    assert_int_equal(teg_model_open(f->model, &options, &model, NULL), TEG_OK);
    teg_model_free(model);
    options.mode = TEG_MODE_FAST;
    options.progress = stop_at_the_end; /* gives up while the file is written */
    assert_int_equal(teg_model_open(f->model, &options, &model, NULL), TEG_OK);
    teg_model_free(model);
    cache_file(f, path, &n_files);
    assert_int_equal(n_files, 0);
}

/* A model that is a folder: any file of it counts; the cache may even lie in it. */
static void test_package(void **state)
{
    struct fixture *const f = *state;
    struct teg_convert_options options;
    struct teg_error err = {0};
    char package[100], path[400], command[900];
    size_t n_files;
    (void)snprintf(package, sizeof package, "%s/p.mlpackage", f->root);
    (void)snprintf(f->cache, sizeof f->cache, "%s/Data/cache", package);
    teg_convert_options_default(&options);
    options.weights = "int8";
    options.fit_groups = true;
    if (teg_convert(OTHER, package, &options, NULL, &err) != TEG_OK)
        fail_msg("%s", err.message);
    struct opened plain = open_model(f, package, NULL), o = open_model(f, package, f->cache);
    assert_false(o.mapped);
    close_model(&o);
    o = open_model(f, package, f->cache);
    assert_true(o.mapped && f->warnings.n == 0);
    same_logits(&plain, &o);
    close_model(&o);
    cache_file(f, path, &n_files);
    assert_int_equal(n_files, 1);
    (void)snprintf(command, sizeof command, "find '%s' -name weight.bin -exec touch {} +", package);
    assert_int_equal(system(command), 0);
    o = open_model(f, package, f->cache);
    assert_true(!o.mapped && f->warnings.n == 1);
    assert_non_null(strstr(f->warnings.last, "expected weights of this model"));
    close_model(&o);
    close_model(&plain);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(test_second_start),      TEST(test_damage),           TEST(test_other_panels),
        TEST(test_stale_and_foreign), TEST(test_nowhere_to_write), TEST(test_lock),
        TEST(test_many_at_once),      TEST(test_nothing_to_keep),  TEST(test_package),
    };
    return cmocka_run_group_tests_name("pack cache", tests, NULL, NULL);
}
