/* Sessions: what a session answers depends on its tokens and on nothing else: not on chunk size, threads, rewinds,
 * forks, interruptions, other sessions, or on what its memory held before. All comparisons are bit for bit. */
#include "prop/session_test.h"

/* ---- chunks and threads ---- */

static void check_invariance(const char *name)
{
    static const uint32_t chunks[] = {1, 7, 64, 100, 256, N_TOKENS};
    struct model m;
    model_open(&m, name);
    const int32_t *const ids = tokens(&m, 1);
    struct rows expected = rows_of(&m), found = rows_of(&m);
    for (int k = TEG_KV_F32; k < TEG_KV_TYPES; k++) {
        struct teg_session *s = open_with(&m, N_TOKENS, 1, 0, (enum teg_kv_type)k);
        prefill_rows(s, ids, N_TOKENS, &expected);
        teg_session_free(s);
        for (size_t c = 0; c < 6; c++)
            for (uint32_t threads = 1; threads <= 3; threads++) {
                s = open_with(&m, chunks[c], threads, 0, (enum teg_kv_type)k);
                prefill_rows(s, ids, N_TOKENS, &found);
                if (memcmp(found.logits, expected.logits, N_TOKENS * found.width * sizeof(float)) != 0)
                    fail_msg("%s: chunk %u, %u threads, KV type %d", name, chunks[c], threads, k);
                same_logits(&m, s, expected.logits + (N_TOKENS - 1) * found.width);
                assert_int_equal(teg_session_length(s), N_TOKENS);
                assert_memory_equal(teg_session_tokens(s), ids, N_TOKENS * sizeof *ids);
                teg_session_free(s);
            }
    }
    free(expected.logits);
    free(found.logits);
    model_close(&m);
}

static void test_invariance(void **state)
{
    (void)state;
    check_invariance("llama");
    check_invariance("gemma3");
    check_invariance("phi3");
}

/* Few tokens behind many keys: ranges of keys are shared out among threads, some at a time. */
static void check_far(const char *name, enum teg_kv_type kv)
{
    enum { FAR = 2 * TEG_RANGE_TOKENS + 70, N = 24 };
    static const size_t steps[] = {7, 1, 8, 2, 1, 1, 3, 1};
    struct model m;
    model_open(&m, name);
    int32_t *const ids = malloc((FAR + N) * sizeof *ids);
    for (size_t i = 0; i < FAR + N; i++)
        ids[i] = tokens(&m, 1)[(i * i + i / 300) % N_TOKENS];
    struct teg_session *const one = open_with(&m, 256, 1, FAR + N, kv), *const three =
                                                                            open_with(&m, 96, 3, FAR + N, kv);
    prefill(one, ids, FAR);
    prefill(three, ids, FAR);
    size_t at = FAR;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; at += steps[i++]) {
        prefill(one, ids + at, steps[i]);
        prefill(three, ids + at, steps[i]);
        float *const expected = copy_logits(&m, one);
        same_logits(&m, three, expected);
        free(expected);
    }
    assert_int_equal(at, FAR + N);
    teg_session_free(one);
    teg_session_free(three);
    free(ids);
    model_close(&m);
}

static void test_far(void **state)
{
    (void)state;
    for (int k = TEG_KV_F32; k < TEG_KV_TYPES; k++)
        check_far("llama", (enum teg_kv_type)k);
    check_far("gemma3", TEG_KV_K16V8);
    check_far("phi3", TEG_KV_I16);
}

/* Rounding the cache must change something, or two of the kinds above are one. */
static void test_kv_types_differ(void **state)
{
    (void)state;
    struct model m;
    model_open(&m, "llama");
    float *logits[TEG_KV_TYPES];
    for (int k = TEG_KV_F32; k < TEG_KV_TYPES; k++) {
        struct teg_session *const s = open_with(&m, 64, 1, 0, (enum teg_kv_type)k);
        prefill(s, tokens(&m, 1), N_TOKENS);
        logits[k] = copy_logits(&m, s);
        for (int j = TEG_KV_F32; j < k; j++)
            assert_memory_not_equal(logits[k], logits[j], m.plan->vocab * sizeof(float));
        teg_session_free(s);
    }
    for (int k = TEG_KV_F32; k < TEG_KV_TYPES; k++)
        free(logits[k]);
    model_close(&m);
}

/* Prefill of everything, and token by token: the same rows. */
static void test_decode_equals_prefill(void **state)
{
    (void)state;
    static const char *const names[] = {"llama", "gemma3", "phi3", "gemma2", "llama-mixed", "granite", "olmo2"};
    for (size_t i = 0; i < 5; i++) {
        struct model m;
        model_open(&m, names[i]);
        const int32_t *const ids = tokens(&m, 2);
        struct rows rows = rows_of(&m);
        struct teg_session *const all = open_session(&m), *const one = open_session(&m);
        prefill_rows(all, ids, 140, &rows);
        for (size_t t = 0; t < 140; t++) {
            assert_int_equal(teg_session_decode(one, ids[t], NULL), TEG_OK);
            same_logits(&m, one, rows.logits + t * rows.width);
        }
        teg_session_free(all);
        teg_session_free(one);
        free(rows.logits);
        model_close(&m);
    }
}

/* ---- rewind and fork ---- */

static void test_rewind(void **state)
{
    (void)state;
    static const size_t lengths[] = {299, 256, 255, 200, 129, 128, 127, 65, 64, 63, 1, 0, 5};
    static const char *const names[] = {"llama", "gemma3", "phi3"};
    for (size_t i = 0; i < 3; i++) {
        struct model m;
        struct teg_error err = {0};
        model_open(&m, names[i]);
        struct teg_session *const s = open_session(&m);
        const int32_t *const ids = tokens(&m, 1), *const others = tokens(&m, 2);
        int32_t mixed[N_TOKENS];
        assert_null(teg_session_logits(s));
        assert_int_equal(teg_session_rewind(s, 0, &err), TEG_OK);
        for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
            const size_t at = lengths[k];
            assert_int_equal(teg_session_rewind(s, 0, &err), TEG_OK);
            prefill(s, ids, N_TOKENS);
            assert_int_equal(teg_session_rewind(s, N_TOKENS, &err), TEG_OK);
            assert_non_null(teg_session_logits(s)); /* nothing was dropped */
            assert_int_equal(teg_session_rewind(s, at, &err), TEG_OK);
            assert_null(teg_session_logits(s));
            assert_int_equal(teg_session_length(s), at);
            continues_well(&m, s, ids, N_TOKENS);
            assert_int_equal(teg_session_rewind(s, at, &err), TEG_OK); /* and now another way */
            memcpy(mixed, ids, at * sizeof *ids);
            memcpy(mixed + at, others, (N_TOKENS - at) * sizeof *ids);
            continues_well(&m, s, mixed, at + 20 < N_TOKENS ? at + 20 : N_TOKENS);
        }
        const size_t n = teg_session_length(s);
        assert_int_equal(teg_session_rewind(s, n + 1, &err), TEG_ERR_ARGUMENT);
        assert_string_equal(err.message, "cannot rewind: session: expected at most its 25 tokens, found 26; rewind to "
                                         "fewer");
        assert_int_equal(teg_session_length(s), n);
        teg_session_free(s);
        model_close(&m);
    }
}

/* ids[0 … at) and then the others. */
static void splice(int32_t *out, const int32_t *ids, size_t at, const int32_t *others)
{
    memcpy(out, ids, at * sizeof *ids);
    memcpy(out + at, others, (N_TOKENS - at) * sizeof *ids);
}

static void test_fork(void **state)
{
    (void)state;
    static const size_t lengths[] = {0, 1, 50, 64, 100, 128, 250};
    for (size_t i = 0; i < 7; i++) {
        struct model m;
        struct teg_memory before, after;
        model_open(&m, i % 2 ? "gemma3" : "llama");
        const int32_t *const ids = tokens(&m, 1), *const others = tokens(&m, 2);
        const size_t at = lengths[i];
        int32_t mixed[N_TOKENS];
        splice(mixed, ids, at, others);
        struct teg_session *const parent = open_session(&m);
        if (at)
            prefill(parent, ids, at);
        struct teg_session *const child = fork_of(parent), *const grandchild = fork_of(child);
        assert_int_equal(teg_session_length(child), at);
        assert_int_equal(teg_session_context(child), teg_session_context(parent));
        if (at) {
            float *const logits = copy_logits(&m, parent);
            same_logits(&m, child, logits);
            same_logits(&m, grandchild, logits);
            free(logits);
        } else {
            assert_null(teg_session_logits(child));
        }
        teg_session_memory(parent, &before);
        teg_session_memory(child, &after);
        assert_int_equal(before.kv_bytes, after.kv_bytes);
        continues_well(&m, child, mixed, at + 20); /* each writes where the other has written */
        continues_well(&m, parent, ids, N_TOKENS);
        continues_well(&m, child, mixed, N_TOKENS);
        assert_int_equal(teg_session_rewind(child, at / 2, NULL), TEG_OK);
        continues_well(&m, child, ids, N_TOKENS);
        teg_session_free(parent); /* before those who share its pages and threads */
        continues_well(&m, grandchild, mixed, N_TOKENS);
        teg_session_free(child);
        teg_session_free(grandchild);
        model_close(&m);
    }
}

/* A fork costs no copy of the cache; writing copies one block. */
static void test_fork_shares(void **state)
{
    (void)state;
    struct model m;
    model_open(&m, "llama");
    struct teg_session *const parent = open_session(&m);
    prefill(parent, tokens(&m, 1), 200);
    const size_t block = m.plan->kv_block_elements * sizeof(float);
    const size_t before = m.memory.total_bytes;
    struct teg_memory memory;
    teg_session_memory(parent, &memory);
    struct teg_session *const child = fork_of(parent);
    const size_t forked = m.memory.total_bytes;
    assert_true(forked - before < memory.scratch_bytes + block); /* activations of its own, no pages */
    assert_int_equal(teg_session_decode(child, 5, NULL), TEG_OK);
    assert_true(m.memory.total_bytes - forked >= block && m.memory.total_bytes - forked < 2 * block);
    const size_t written = m.memory.total_bytes;
    assert_int_equal(teg_session_decode(parent, 6, NULL), TEG_OK); /* its tail is its own again */
    assert_int_equal(m.memory.total_bytes, written);
    teg_session_free(child);
    teg_session_free(parent);
    model_close(&m);
}

/* ---- other sessions ---- */

static void test_interleaved(void **state)
{
    (void)state;
    struct model m;
    model_open(&m, "gemma3");
    const int32_t *const a_ids = tokens(&m, 1), *const b_ids = tokens(&m, 2);
    struct teg_session *const a = open_with(&m, 64, 2, 0, TEG_KV_F32), *const b = open_with(&m, 32, 1, 0, TEG_KV_F32);
    for (size_t at = 0; at < N_TOKENS; at += 20) {
        continues_well(&m, a, a_ids, at + 20);
        continues_well(&m, b, b_ids, at + 20);
    }
    teg_session_free(a);
    teg_session_free(b);
    model_close(&m);
}

/* Two threads, a session each, of one model. */
struct worker {
    const struct model *m;
    const int32_t *ids;
    struct teg_session *session;
    enum teg_status status;
};

static void *run_worker(void *arg)
{
    struct worker *const w = arg;
    for (size_t at = 0; at < N_TOKENS && w->status == TEG_OK; at += 30)
        w->status = teg_session_prefill(w->session, w->ids + at, 30, NULL, NULL);
    return NULL;
}

static void test_side_by_side(void **state)
{
    (void)state;
    struct model m;
    model_open(&m, "llama");
    m.run.allocator = teg_allocator_or_default(NULL); /* the counting one belongs to one thread */
    struct worker w[2];
    pthread_t threads[2];
    struct teg_session *const first = open_with(&m, 64, 2, 0, TEG_KV_F32);
    for (size_t round = 0; round < 2; round++) { /* two sessions of their own; then a fork, which shares threads */
        w[0] = (struct worker){&m, tokens(&m, 1), first, TEG_OK};
        w[1] = (struct worker){&m, tokens(&m, 2), round ? fork_of(first) : open_with(&m, 64, 2, 0, TEG_KV_F32), TEG_OK};
        for (int i = 0; i < 2; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, run_worker, &w[i]), 0);
        for (int i = 0; i < 2; i++)
            assert_int_equal(pthread_join(threads[i], NULL), 0);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(w[i].status, TEG_OK);
            continues_well(&m, w[i].session, w[i].ids, N_TOKENS);
        }
        teg_session_free(w[1].session);
        assert_int_equal(teg_session_rewind(first, 0, NULL), TEG_OK);
    }
    teg_session_free(first);
    model_close(&m);
}

/* An allocator that gives freed memory back as it was, newest first, or filled with NaN. */
struct recycling {
    struct teg_allocator allocator;
    struct {
        void *at;
        size_t n_bytes;
    } free[64];
    size_t n_free, n_reused;
    bool poison;
};

static void *recycling_alloc(void *ctx, size_t size_bytes, size_t align_bytes)
{
    struct recycling *const r = ctx;
    for (size_t i = r->n_free; i-- > 0;)
        if (r->free[i].n_bytes == size_bytes) {
            void *const p = r->free[i].at;
            r->free[i] = r->free[--r->n_free];
            r->n_reused++;
            return r->poison ? memset(p, 0xff, size_bytes) : p;
        }
    void *p = NULL;
    if (posix_memalign(&p, align_bytes, size_bytes) != 0)
        return NULL;
    return r->poison ? memset(p, 0xff, size_bytes) : p;
}

static void recycling_free(void *ctx, void *ptr, size_t size_bytes)
{
    struct recycling *const r = ctx;
    assert_true(r->n_free < 64);
    r->free[r->n_free].at = ptr;
    r->free[r->n_free++].n_bytes = size_bytes;
}

static void check_nothing_inherited(const char *name, bool poison)
{
    struct model m;
    model_open(&m, name);
    float *const expected = fresh_logits(&m, tokens(&m, 1), 150), *const early = fresh_logits(&m, tokens(&m, 1), 10);
    struct recycling r = {.allocator = {recycling_alloc, recycling_free, &r}, .poison = poison};
    m.run.allocator = &r.allocator;
    struct teg_session *s = open_session(&m);
    prefill(s, tokens(&m, 2), N_TOKENS);
    teg_session_free(s);
    const size_t reused = r.n_reused;
    s = open_session(&m);
    assert_int_equal(teg_session_length(s), 0);
    assert_null(teg_session_logits(s));
    prefill(s, tokens(&m, 1), 10);
    same_logits(&m, s, early);
    prefill(s, tokens(&m, 1) + 10, 140);
    same_logits(&m, s, expected);
    assert_true(r.n_reused >= reused + 5); /* session, activations, logits, scratch, pages: the old ones */
    teg_session_free(s);
    while (r.n_free)
        free(r.free[--r.n_free].at);
    free(expected);
    free(early);
    model_close(&m);
}

static void test_nothing_inherited(void **state)
{
    (void)state;
    check_nothing_inherited("llama", false);
    check_nothing_inherited("gemma3", false);
    check_nothing_inherited("phi3", false);
    check_nothing_inherited("llama", true);
    check_nothing_inherited("gemma3", true);
    check_nothing_inherited("phi3", true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_invariance),      cmocka_unit_test(test_far),
        cmocka_unit_test(test_kv_types_differ), cmocka_unit_test(test_decode_equals_prefill),
        cmocka_unit_test(test_rewind),          cmocka_unit_test(test_fork),
        cmocka_unit_test(test_fork_shares),     cmocka_unit_test(test_interleaved),
        cmocka_unit_test(test_side_by_side),    cmocka_unit_test(test_nothing_inherited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
