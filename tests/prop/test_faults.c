/* Memory that runs out anywhere: the n-th call of malloc and its kin fails, for every n, in the library and in the
 * libraries below it (jansson, PCRE2). Each run must end in success or in TEG_ERR_MEMORY with a sentence, and give back
 * every block. The allocator is replaced by this program's own functions, which hand on to glibc's; so elsewhere, and
 * under the sanitizers, which replace it themselves, there is nothing to run. Sessions have one thread here: the C
 * library keeps memory of threads that have ended. */
#include "unit/format_test.h"

#include "tegula.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define REPLACED 1
#endif
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || !defined(__GLIBC__)
#define REPLACED 1
#endif

#ifdef REPLACED

static void test_all(void **state)
{
    (void)state;
    skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

#include <errno.h>

/* ---- the allocator ---- */

extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t align, size_t n);
extern void __libc_free(void *p);

static size_t n_calls, fail_at; /* fail_at 0: never */
static long n_live;

static bool fails(void)
{
    if (++n_calls != fail_at)
        return false;
    errno = ENOMEM;
    return true;
}

static void *counted(void *p)
{
    n_live += p != NULL;
    return p;
}

void *malloc(size_t n)
{
    return fails() ? NULL : counted(__libc_malloc(n));
}

void *calloc(size_t n, size_t size)
{
    return fails() ? NULL : counted(__libc_calloc(n, size));
}

void *realloc(void *p, size_t n)
{
    if (fails())
        return NULL;
    void *const q = __libc_realloc(p, n);
    n_live += !p && q;
    n_live -= p && !n;
    return q;
}

void free(void *p)
{
    n_live -= p != NULL;
    __libc_free(p);
}

void *memalign(size_t align, size_t n);
void *memalign(size_t align, size_t n)
{
    return fails() ? NULL : counted(__libc_memalign(align, n));
}

void *aligned_alloc(size_t align, size_t n)
{
    return memalign(align, n);
}

int posix_memalign(void **out, size_t align, size_t n)
{
    void *const p = memalign(align, n);
    if (!p)
        return ENOMEM;
    *out = p;
    return 0;
}

/* ---- lives of a model ---- */

struct life {
    struct teg_model *model;
    struct teg_session *session, *fork;
    struct teg_sampler *sampler;
    struct teg_stream *stream;
    struct teg_text text;
    const char *template_text; /* NULL: the model's own */
};

static void life_free(struct life *l)
{
    teg_text_free(&l->text);
    teg_stream_free(l->stream);
    teg_sampler_free(l->sampler);
    teg_session_free(l->fork);
    teg_session_free(l->session);
    teg_model_free(l->model);
}

static enum teg_status read_texts(struct life *l, struct teg_error *err)
{
    static const char text[] = "Hello world, 12 tiles!\n\xc3\xa9\xe4\xbd\xa0 <s>";
    static const char messages[] = "[{\"role\":\"user\",\"content\":\"How many tiles?\"}]";
    int32_t ids[64];
    size_t n = 0;
    TRY(teg_tokenize(l->model, text, sizeof text - 1, TEG_TOKENIZE_SPECIAL | TEG_TOKENIZE_BOS, ids, 64, &n, err));
    TRY(teg_detokenize(l->model, ids, n < 64 ? n : 64, &l->text, err));
    teg_text_free(&l->text);
    struct teg_chat_options o;
    teg_chat_options_default(&o);
    o.template_text = l->template_text;
    o.now_unix = 1;
    TRY(teg_chat_render(l->model, messages, sizeof messages - 1, &o, &l->text, err));
    teg_text_free(&l->text);
    const char *bytes;
    size_t n_bytes;
    bool stopped;
    TRY(teg_stream_new(l->model, (const char *const[]){"stop", "\n\n"}, 2, &l->stream, err));
    for (size_t i = 0; i < n && i < 64; i++)
        TRY(teg_stream_push(l->stream, ids[i], &bytes, &n_bytes, &stopped, err));
    return teg_stream_finish(l->stream, &bytes, &n_bytes, err);
}

static enum teg_status read_model(struct life *l, struct teg_error *err)
{
    for (size_t i = 0; i < teg_model_metadata_count(l->model); i++) {
        TRY(teg_model_metadata_json(l->model, i, 5, &l->text, err));
        teg_text_free(&l->text);
    }
    TRY(teg_model_dump(l->model, TEG_DUMP_OPS, &l->text, err));
    teg_text_free(&l->text);
    TRY(teg_model_dump(l->model, TEG_DUMP_PLAN, &l->text, err));
    teg_text_free(&l->text);
    return TEG_OK;
}

static enum teg_status run_sessions(struct life *l, struct teg_error *err)
{
    struct teg_session_options o;
    int32_t ids[70];
    for (int32_t i = 0; i < 70; i++)
        ids[i] = i + 3;
    teg_session_options_default(&o);
    o.n_threads = 1;
    o.chunk_tokens = 32;
    TRY(teg_session_new(l->model, &o, &l->session, err));
    TRY(teg_sampler_new(l->model, NULL, &l->sampler, err));
    TRY(teg_session_prefill(l->session, ids, 70, NULL, err));
    TRY(teg_session_decode(l->session, teg_sampler_pick(l->sampler, teg_session_logits(l->session)), err));
    TRY(teg_session_fork(l->session, &l->fork, err));
    TRY(teg_session_rewind(l->session, 10, err));
    TRY(teg_session_decode(l->session, 5, err));
    return teg_session_prefill(l->fork, ids, 70, NULL, err);
}

static enum teg_status open_gguf(struct life *l, struct teg_error *err)
{
    TRY(teg_model_open(TEST_DATA "/tiny/llama.gguf", NULL, &l->model, err));
    TRY(read_model(l, err));
    TRY(read_texts(l, err));
    return run_sessions(l, err);
}

static enum teg_status open_gguf_gemma(struct life *l, struct teg_error *err)
{
    TRY(teg_model_open(TEST_DATA "/tiny/gemma3.gguf", NULL, &l->model, err));
    TRY(read_texts(l, err));
    return run_sessions(l, err);
}

static enum teg_status open_directory(struct life *l, struct teg_error *err)
{
    TRY(teg_model_open(TEST_DATA "/tiny/llama", NULL, &l->model, err));
    TRY(read_model(l, err));
    TRY(read_texts(l, err));
    return run_sessions(l, err);
}

static enum teg_status open_directory_gemma(struct life *l, struct teg_error *err)
{
    TRY(teg_model_open(TEST_DATA "/tiny/gemma3", NULL, &l->model, err));
    TRY(read_texts(l, err));
    return run_sessions(l, err);
}

static enum teg_status open_vocabulary(struct life *l, struct teg_error *err)
{
    struct teg_model_options o;
    l->template_text = "{% for m in messages %}{{ m.role | upper }}: {{ m['content'].split(' ')[0] }}{% endfor %}";
    teg_model_options_default(&o);
    o.vocab_only = true;
    o.tokenizer_path = TEST_DATA "/tiny/qwen2/tokenizer.json";
    TRY(teg_model_open(TEST_DATA "/tiny/qwen2.gguf", &o, &l->model, err));
    return read_texts(l, err);
}

/* jansson takes some of its own failed allocations for faults of the text, and drops characters in others, so a model
 * whose files are JSON may look damaged in any way then; there is no way to ask it. In a GGUF only the messages of a
 * conversation go through it. */
static bool is_memory(enum teg_status status, const struct teg_error *err, bool json_files)
{
    const bool misnamed =
        json_files || strstr(err->message, "expected a JSON array") || strstr(err->message, "variables at byte");
    return (status == TEG_ERR_MEMORY || misnamed) && err->status == status && err->message[0];
}

/* One life with the n-th call failing; false when it has fewer calls than n. */
static bool live(enum teg_status (*run)(struct life *l, struct teg_error *err), size_t n, bool json_files,
                 bool is_first)
{
    struct life l = {0};
    struct teg_error err = {0};
    const long before = n_live;
    n_calls = 0;
    fail_at = n;
    const enum teg_status status = run(&l, &err);
    const size_t calls = n_calls;
    fail_at = 0;
    life_free(&l);
    if (n_live != before && !is_first)
        fail_msg("call %zu of %zu: %ld blocks are left; status %s: %s", n, calls, n_live - before,
                 teg_status_name(status), err.message);
    if (status == TEG_OK && n == 0)
        assert_string_equal(err.message, "");
    else if (status != TEG_OK && (n == 0 || !is_memory(status, &err, json_files)))
        fail_msg("call %zu of %zu: expected to be out of memory, found %s: %s", n, calls, teg_status_name(status),
                 err.message);
    return n == 0 || calls >= n;
}

static void check(enum teg_status (*run)(struct life *l, struct teg_error *err), const char *what, bool json_files)
{
    size_t n = 1;
    (void)live(run, 0, json_files, true); /* what the C library keeps, it takes here */
    (void)live(run, 0, json_files, false);
    while (live(run, n, json_files, false))
        n++;
    print_message("# %s: %zu calls\n", what, n - 1);
    assert_true(n > 20);
}

static void test_gguf(void **state)
{
    (void)state;
    check(open_gguf, "GGUF, byte-level BPE", false);
    check(open_gguf_gemma, "GGUF, SentencePiece", false);
}

static void test_directory(void **state)
{
    (void)state;
    check(open_directory, "directory, byte-level BPE", true);
    check(open_directory_gemma, "directory, SentencePiece", true);
}

static void test_vocabulary(void **state)
{
    (void)state;
    check(open_vocabulary, "vocabulary only, another tokenizer", true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gguf), cmocka_unit_test(test_directory),
                                       cmocka_unit_test(test_vocabulary)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
