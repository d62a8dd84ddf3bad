/* Sessions: what a session answers depends on its tokens and on nothing else: not on chunk size, threads, rewinds,
 * forks, interruptions, other sessions, or on what its memory held before. All comparisons are bit for bit. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

#include "unit/fake_source.h"
#include "unit/format_test.h"

#include "build/build.h"
#include "plan/plan.h"
#include "run/session.h"

/* ---- models ---- */

struct model {
    const char *name;
    struct teg_source *source;
    struct teg_arena arena;
    struct teg_graph *graph;
    struct teg_plan *plan;
    struct teg_cpu cpu;
    struct teg_run_model run;
    struct counting memory;
};

static void model_finish(struct model *m, const char *name)
{
    struct teg_error err = {0};
    struct teg_hparams hp = {0};
    m->name = name;
    teg_arena_init(&m->arena, NULL);
    teg_cpu_detect(&m->cpu);
    if (teg_build(m->source, &m->arena, &m->graph, &hp, &err) != TEG_OK ||
        teg_plan_new(m->graph, &m->cpu, &m->arena, &m->plan, &err) != TEG_OK)
        fail_msg("%s: %s", name, err.message);
    m->run = (struct teg_run_model){.plan = m->plan,
                                    .allocator = counting_init(&m->memory, 0),
                                    .cpu = &m->cpu,
                                    .weights_bytes = 1234,
                                    .context_tokens = hp.context,
                                    .default_kv = TEG_KV_F32};
    for (uint32_t i = 0; i < m->plan->n_rope_tables; i++)
        if (m->plan->rope_tables[i].long_frequencies)
            m->run.original_context = m->plan->rope_tables[i].original_context;
}

static void model_open(struct model *m, const char *name)
{
    char path[512];
    struct teg_error err = {0};
    (void)snprintf(path, sizeof path, "%s/tiny/%s.gguf", TEST_DATA, name);
    *m = (struct model){0};
    if (teg_source_open(path, true, NULL, &m->source, &err) != TEG_OK)
        fail_msg("%s", err.message);
    model_finish(m, name);
}

/* Every session must have been freed. */
static void model_close(struct model *m)
{
    assert_int_equal(m->memory.n_live, 0);
    teg_arena_free(&m->arena);
    teg_source_free(m->source);
}

/* ---- sessions ---- */

static struct teg_session *open_with(const struct model *m, uint32_t chunk, uint32_t threads, uint32_t context,
                                     enum teg_kv_type kv)
{
    struct teg_session_options o;
    struct teg_session *s = NULL;
    struct teg_error err = {0};
    teg_session_options_default(&o);
    o.chunk_tokens = chunk;
    o.n_threads = threads;
    o.context_tokens = context;
    o.kv_type = kv;
    if (teg_run_session_new(&m->run, &o, &s, &err) != TEG_OK)
        fail_msg("%s", err.message);
    return s;
}

static struct teg_session *open_session(const struct model *m)
{
    return open_with(m, 64, 1, 0, TEG_KV_F32);
}

static void prefill(struct teg_session *s, const int32_t *ids, size_t n)
{
    struct teg_error err = {0};
    if (teg_session_prefill(s, ids, n, NULL, &err) != TEG_OK)
        fail_msg("%s", err.message);
}

#define N_TOKENS 300

/* Some text of the model's vocabulary; `seed` chooses which. */
static const int32_t *tokens(const struct model *m, uint32_t seed)
{
    static int32_t ids[4][N_TOKENS];
    uint32_t x = seed * 7919 + 1;
    for (size_t i = 0; i < N_TOKENS; i++) {
        x = x * 1664525u + 1013904223u;
        ids[seed % 4][i] = (int32_t)((x >> 8) % m->plan->vocab);
    }
    return ids[seed % 4];
}

static void same_logits(const struct model *m, const struct teg_session *s, const float *expected)
{
    const float *const found = teg_session_logits(s);
    assert_non_null(found);
    assert_memory_equal(found, expected, m->plan->vocab * sizeof *found);
}

static float *copy_logits(const struct model *m, const struct teg_session *s)
{
    float *const copy = malloc(m->plan->vocab * sizeof *copy);
    assert_non_null(teg_session_logits(s));
    memcpy(copy, teg_session_logits(s), m->plan->vocab * sizeof *copy);
    for (uint32_t i = 0; i < m->plan->vocab; i++)
        assert_true(isfinite(copy[i]));
    return copy;
}

/* The logits that a session of its own gives for these tokens. */
static float *fresh_logits(const struct model *m, const int32_t *ids, size_t n)
{
    struct teg_session *const s = open_session(m);
    prefill(s, ids, n);
    float *const logits = copy_logits(m, s);
    teg_session_free(s);
    return logits;
}

/* Goes on with ids[length … n) and must then answer as a fresh session does. */
static void continues_well(const struct model *m, struct teg_session *s, const int32_t *ids, size_t n)
{
    const size_t at = teg_session_length(s);
    float *const expected = fresh_logits(m, ids, n);
    assert_memory_equal(teg_session_tokens(s), ids, at * sizeof *ids);
    if (at < n)
        prefill(s, ids + at, n - at);
    same_logits(m, s, expected);
    free(expected);
}

/* All rows of logits as they come. */
struct rows {
    float *logits;
    size_t n_rows, width, stop_at; /* stop_at: refuse from this row on; 0: never */
};

static bool take_rows(void *ctx, size_t first_row, size_t n_rows, const float *logits)
{
    struct rows *const r = ctx;
    assert_int_equal(first_row, r->n_rows);
    if (r->stop_at && first_row + n_rows > r->stop_at)
        return false;
    memcpy(r->logits + first_row * r->width, logits, n_rows * r->width * sizeof *logits);
    r->n_rows += n_rows;
    return true;
}

static struct rows rows_of(const struct model *m)
{
    return (struct rows){.logits = malloc(N_TOKENS * m->plan->vocab * sizeof(float)), .width = m->plan->vocab};
}

static void prefill_rows(struct teg_session *s, const int32_t *ids, size_t n, struct rows *rows)
{
    struct teg_prefill_options o;
    struct teg_error err = {0};
    teg_prefill_options_default(&o);
    o.on_logits = take_rows;
    o.on_logits_ctx = rows;
    rows->n_rows = 0;
    if (teg_session_prefill(s, ids, n, &o, &err) != TEG_OK)
        fail_msg("%s", err.message);
    assert_int_equal(rows->n_rows, n);
}

/* ---- chunks and threads ---- */

static void check_invariance(const char *name)
{
    static const uint32_t chunks[] = {1, 7, 64, 100, 256, N_TOKENS};
    static const enum teg_kv_type kinds[] = {TEG_KV_F32, TEG_KV_F16, TEG_KV_BF16};
    struct model m;
    model_open(&m, name);
    const int32_t *const ids = tokens(&m, 1);
    struct rows expected = rows_of(&m), found = rows_of(&m);
    for (size_t k = 0; k < 3; k++) {
        struct teg_session *s = open_with(&m, N_TOKENS, 1, 0, kinds[k]);
        prefill_rows(s, ids, N_TOKENS, &expected);
        teg_session_free(s);
        for (size_t c = 0; c < 6; c++)
            for (uint32_t threads = 1; threads <= 3; threads++) {
                s = open_with(&m, chunks[c], threads, 0, kinds[k]);
                prefill_rows(s, ids, N_TOKENS, &found);
                if (memcmp(found.logits, expected.logits, N_TOKENS * found.width * sizeof(float)) != 0)
                    fail_msg("%s: chunk %u, %u threads, KV type %d", name, chunks[c], threads, (int)kinds[k]);
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

/* Rounding the cache must change something, or the three kinds above are one. */
static void test_kv_types_differ(void **state)
{
    (void)state;
    struct model m;
    model_open(&m, "llama");
    float *logits[3];
    for (size_t k = 0; k < 3; k++) {
        struct teg_session *const s =
            open_with(&m, 64, 1, 0, (enum teg_kv_type[]){TEG_KV_F32, TEG_KV_F16, TEG_KV_BF16}[k]);
        prefill(s, tokens(&m, 1), N_TOKENS);
        logits[k] = copy_logits(&m, s);
        for (size_t j = 0; j < k; j++)
            assert_memory_not_equal(logits[k], logits[j], m.plan->vocab * sizeof(float));
        teg_session_free(s);
    }
    for (size_t k = 0; k < 3; k++)
        free(logits[k]);
    model_close(&m);
}

/* Prefill of everything, and token by token: the same rows. */
static void test_decode_equals_prefill(void **state)
{
    (void)state;
    static const char *const names[] = {"llama", "gemma3", "phi3", "gemma2", "llama-mixed"};
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

static struct teg_session *fork_of(const struct teg_session *s)
{
    struct teg_session *f = NULL;
    struct teg_error err = {0};
    if (teg_session_fork(s, &f, &err) != TEG_OK)
        fail_msg("%s", err.message);
    return f;
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

/* ---- refusals ---- */

static void test_context_full(void **state)
{
    (void)state;
    struct model m;
    struct teg_error err = {0};
    model_open(&m, "llama");
    const int32_t *const ids = tokens(&m, 1);
    struct teg_session *const s = open_with(&m, 64, 1, 100, TEG_KV_F32);
    assert_int_equal(teg_session_context(s), 100);
    prefill(s, ids, 90);
    float *const logits = copy_logits(&m, s);
    struct teg_memory before, after;
    teg_session_memory(s, &before);
    assert_int_equal(teg_session_prefill(s, ids + 90, 11, NULL, &err), TEG_ERR_CONTEXT_FULL);
    assert_string_equal(err.message, "context full: session: expected room for 11 more tokens, found 10 of 100 free; "
                                     "shorten the prompt, rewind, or open the session with a larger context");
    teg_session_memory(s, &after);
    assert_memory_equal(&before, &after, sizeof before);
    assert_int_equal(teg_session_length(s), 90);
    same_logits(&m, s, logits);
    continues_well(&m, s, ids, 100);
    assert_int_equal(teg_session_decode(s, 1, &err), TEG_ERR_CONTEXT_FULL);
    continues_well(&m, s, ids, 100);
    free(logits);
    teg_session_free(s);
    model_close(&m);
}

static void test_bad_ids(void **state)
{
    (void)state;
    struct model m;
    struct teg_error err = {0};
    model_open(&m, "llama");
    const int32_t *const ids = tokens(&m, 1);
    struct teg_session *const s = open_session(&m);
    prefill(s, ids, 70);
    float *const logits = copy_logits(&m, s);
    int32_t bad[] = {1, 2, (int32_t)m.plan->vocab, 3};
    char message[200];
    (void)snprintf(message, sizeof message,
                   "cannot prefill: token 2: expected an id from 0 to %u, found %u; tokenize with this model's own "
                   "vocabulary",
                   m.plan->vocab - 1, m.plan->vocab);
    assert_int_equal(teg_session_prefill(s, bad, 4, NULL, &err), TEG_ERR_ARGUMENT);
    assert_string_equal(err.message, message);
    bad[2] = -1;
    assert_int_equal(teg_session_prefill(s, bad, 4, NULL, &err), TEG_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "token 2: expected an id from 0 to 295, found -1;"));
    assert_int_equal(teg_session_decode(s, INT32_MIN, &err), TEG_ERR_ARGUMENT);
    assert_int_equal(teg_session_prefill(s, ids, 0, NULL, &err), TEG_ERR_ARGUMENT);
    assert_string_equal(err.message, "cannot prefill: tokens: expected at least one, found none; pass a prompt that is "
                                     "not empty");
    assert_int_equal(teg_session_length(s), 70);
    same_logits(&m, s, logits);
    continues_well(&m, s, ids, 120);
    free(logits);
    teg_session_free(s);
    model_close(&m);
}

static void refuses_options(const struct model *m, const struct teg_session_options *o, const char *message)
{
    struct teg_error err = {0};
    struct teg_memory memory = {.kv_bytes = 77};
    struct teg_session *s = NULL;
    assert_int_equal(teg_run_session_new(&m->run, o, &s, &err), TEG_ERR_ARGUMENT);
    assert_string_equal(err.message, message);
    assert_null(s);
    assert_int_equal(teg_run_session_bytes(&m->run, o, 1, &memory, &err), TEG_ERR_ARGUMENT);
    assert_string_equal(err.message, message);
    assert_int_equal(memory.kv_bytes, 77);
}

static void test_options(void **state)
{
    (void)state;
    struct model m;
    struct teg_session_options o, d;
    model_open(&m, "llama");
    teg_session_options_default(&d);
    assert_int_equal(d.size, sizeof d);
    assert_int_equal(d.chunk_tokens, 256);
    o = d;
    o.n_threads = 257;
    refuses_options(&m, &o, "cannot make session: thread count: expected 1 to 256, found 257; use fewer");
    o = d;
    o.chunk_tokens = 0;
    refuses_options(&m, &o, "cannot make session: chunk size: expected 1 to 65536 tokens, found 0; use 256");
    o.chunk_tokens = 65537;
    refuses_options(&m, &o, "cannot make session: chunk size: expected 1 to 65536 tokens, found 65537; use 256");
    o = d;
    o.kv_type = (enum teg_kv_type)9;
    refuses_options(&m, &o,
                    "cannot make session: KV type: expected f32, f16 or bf16, found number 9; use one of these");
    struct teg_session *s = NULL;
    assert_int_equal(teg_run_session_new(&m.run, NULL, &s, NULL), TEG_OK); /* all defaults */
    assert_int_equal(teg_session_context(s), 512);
    teg_session_free(s);
    teg_session_free(NULL);
    model_close(&m);
}

/* ---- stopping ---- */

struct stopper {
    struct teg_session *session;
    const char *at; /* interrupt at this value … */
    size_t row;     /* … of the chunk that begins with this row */
    size_t n_calls;
};

static void stop_at_value(void *ctx, const char *name, size_t first_row, size_t n_rows, size_t width, const float *data)
{
    struct stopper *const s = ctx;
    (void)n_rows;
    (void)width;
    (void)data;
    if (strcmp(name, s->at) == 0 && first_row == s->row) {
        s->n_calls++;
        teg_session_interrupt(s->session);
    }
}

static void test_interrupt_inside(void **state)
{
    (void)state;
    static const char *const values[] = {"embed", "layer00", "final_norm"};
    for (size_t i = 0; i < 9; i++) {
        struct model m;
        struct teg_error err = {0};
        model_open(&m, i % 2 ? "gemma3" : "llama");
        const int32_t *const ids = tokens(&m, 1);
        struct teg_session *const s = open_with(&m, 50, 1 + (uint32_t)i % 2, 0, TEG_KV_F32);
        const size_t done = 50 * (i / 3);
        struct stopper stopper = {.session = s, .at = values[i % 3], .row = done};
        struct teg_prefill_options o;
        teg_prefill_options_default(&o);
        o.on_value = stop_at_value;
        o.on_value_ctx = &stopper;
        prefill(s, ids, 10);
        if (i % 3 == 2) { /* the last norm runs for the last row only */
            stopper.row = 139;
            assert_int_equal(teg_session_prefill(s, ids + 10, 140, &o, &err), TEG_ERR_INTERRUPTED);
            assert_int_equal(teg_session_length(s), 110);
        } else {
            assert_int_equal(teg_session_prefill(s, ids + 10, 140, &o, &err), TEG_ERR_INTERRUPTED);
            char message[200];
            (void)snprintf(message, sizeof message,
                           "interrupted: prefill: expected 140 tokens, found time for %zu; call again with the rest to "
                           "go on",
                           done);
            assert_string_equal(err.message, message);
            assert_int_equal(teg_session_length(s), 10 + done);
        }
        assert_int_equal(stopper.n_calls, 1);
        assert_null(teg_session_logits(s));
        struct teg_memory memory, expected;
        teg_session_memory(s, &memory);
        struct teg_session_options so;
        teg_session_options_default(&so);
        so.chunk_tokens = 50;
        assert_int_equal(teg_run_session_bytes(&m.run, &so, teg_session_length(s), &expected, NULL), TEG_OK);
        assert_int_equal(memory.kv_bytes, expected.kv_bytes); /* the reserved rest was given back */
        continues_well(&m, s, ids, 150);
        teg_session_free(s);
        model_close(&m);
    }
}

struct killer {
    struct teg_session *session;
    atomic_bool finished;
};

static void *keep_interrupting(void *arg)
{
    struct killer *const k = arg;
    while (!atomic_load(&k->finished)) {
        teg_session_interrupt(k->session);
        for (volatile int i = 0; i < 3000; i++)
            ;
    }
    return NULL;
}

/* From another thread, again and again, at whatever place it hits. */
static void test_interrupt_outside(void **state)
{
    (void)state;
    struct model m;
    model_open(&m, "llama");
    const int32_t *const ids = tokens(&m, 1);
    size_t n_interrupted = 0;
    struct teg_session *const s = open_with(&m, 16, 2, 0, TEG_KV_F32);
    for (int round = 0; round < 20; round++) {
        struct killer k = {.session = s};
        pthread_t thread;
        assert_int_equal(teg_session_rewind(s, 0, NULL), TEG_OK);
        assert_int_equal(pthread_create(&thread, NULL, keep_interrupting, &k), 0);
        for (int i = 0; i < 5 && teg_session_length(s) < 250; i++) {
            const size_t at = teg_session_length(s);
            const enum teg_status status = teg_session_prefill(s, ids + at, 250 - at, NULL, NULL);
            assert_true(status == TEG_OK || status == TEG_ERR_INTERRUPTED);
            assert_int_equal(status == TEG_OK, teg_session_length(s) == 250);
            assert_int_equal((teg_session_length(s) - at) % 16 == 0 || status == TEG_OK, true);
            n_interrupted += status == TEG_ERR_INTERRUPTED;
        }
        atomic_store(&k.finished, true);
        assert_int_equal(pthread_join(thread, NULL), 0);
        (void)teg_session_prefill(s, ids, 1, NULL, NULL); /* takes the request that may be left */
        assert_int_equal(teg_session_rewind(s, teg_session_length(s) / 2, NULL), TEG_OK);
        if (memcmp(teg_session_tokens(s), ids, teg_session_length(s) * sizeof *ids) != 0)
            assert_int_equal(teg_session_rewind(s, 0, NULL), TEG_OK);
        continues_well(&m, s, ids, 260);
    }
    assert_true(n_interrupted > 0);
    teg_session_free(s);
    model_close(&m);
}

/* A request that comes while nothing runs stops the next call, once. */
static void test_interrupt_before(void **state)
{
    (void)state;
    struct model m;
    model_open(&m, "llama");
    struct teg_session *const s = open_session(&m);
    teg_session_interrupt(s);
    assert_int_equal(teg_session_prefill(s, tokens(&m, 1), 100, NULL, NULL), TEG_ERR_INTERRUPTED);
    assert_int_equal(teg_session_length(s), 0);
    continues_well(&m, s, tokens(&m, 1), 100);
    teg_session_interrupt(s);
    assert_int_equal(teg_session_decode(s, 1, NULL), TEG_ERR_INTERRUPTED);
    continues_well(&m, s, tokens(&m, 1), 101);
    teg_session_free(s);
    model_close(&m);
}

struct progress {
    size_t n_calls, stop_at;
    uint64_t last, total;
    const struct counting *memory;
    size_t allocs_at_first;
};

static bool on_progress(void *ctx, uint64_t done, uint64_t total)
{
    struct progress *const p = ctx;
    assert_true(done > p->last && done <= total);
    if (p->n_calls == 0 && p->memory)
        p->allocs_at_first = p->memory->n_allocs;
    p->last = done;
    p->total = total;
    return ++p->n_calls != p->stop_at;
}

static void test_callbacks(void **state)
{
    (void)state;
    struct model m;
    struct teg_error err = {0};
    model_open(&m, "llama");
    const int32_t *const ids = tokens(&m, 1);
    struct teg_session *s = open_session(&m);
    struct teg_prefill_options o;
    struct progress p = {.stop_at = 2};
    teg_prefill_options_default(&o);
    assert_int_equal(o.size, sizeof o);
    o.progress = on_progress;
    o.progress_ctx = &p;
    assert_int_equal(teg_session_prefill(s, ids, 200, &o, &err), TEG_ERR_INTERRUPTED);
    assert_string_equal(err.message, "interrupted: prefill: expected 200 tokens, found time for 128; call again with "
                                     "the rest to go on");
    assert_int_equal(teg_session_length(s), 128);
    assert_null(teg_session_logits(s));
    continues_well(&m, s, ids, 200);
    p = (struct progress){.stop_at = 4}; /* at the end there is nothing to stop */
    assert_int_equal(teg_session_rewind(s, 0, NULL), TEG_OK);
    assert_int_equal(teg_session_prefill(s, ids, 200, &o, &err), TEG_OK);
    assert_int_equal(p.n_calls, 4);
    assert_int_equal(p.last, 200);
    assert_int_equal(p.total, 200);
    continues_well(&m, s, ids, 200);
    struct rows rows = rows_of(&m); /* logits refused in the second chunk: it is not in the session */
    rows.stop_at = 100;
    o = (struct teg_prefill_options){.size = sizeof o, .on_logits = take_rows, .on_logits_ctx = &rows};
    assert_int_equal(teg_session_rewind(s, 0, NULL), TEG_OK);
    assert_int_equal(teg_session_prefill(s, ids, 200, &o, &err), TEG_ERR_INTERRUPTED);
    assert_int_equal(teg_session_length(s), 64);
    assert_null(teg_session_logits(s));
    continues_well(&m, s, ids, 200);
    free(rows.logits);
    teg_session_free(s);
    model_close(&m);
}

/* Every named value once a chunk, rows in order, and only where asked for. */
struct seen {
    size_t n_embed, n_last_layer, n_norm, next_row;
    uint32_t width;
};

static void see_value(void *ctx, const char *name, size_t first_row, size_t n_rows, size_t width, const float *data)
{
    struct seen *const s = ctx;
    assert_true(isfinite(data[0]) && isfinite(data[n_rows * width - 1]));
    assert_int_equal(width, s->width);
    s->n_embed += strcmp(name, "embed") == 0 ? n_rows : 0;
    s->n_norm += strcmp(name, "final_norm") == 0 ? n_rows : 0;
    if (strcmp(name, "layer01") == 0) {
        assert_int_equal(first_row, s->next_row);
        s->next_row += n_rows;
        s->n_last_layer += n_rows;
    }
}

static void test_values(void **state)
{
    (void)state;
    struct model m;
    model_open(&m, "llama");
    struct seen seen = {.width = 64};
    struct teg_prefill_options o = {.size = sizeof o, .on_value = see_value, .on_value_ctx = &seen};
    struct teg_session *const s = open_session(&m);
    assert_int_equal(teg_session_prefill(s, tokens(&m, 1), 150, &o, NULL), TEG_OK);
    assert_int_equal(seen.n_embed, 150);
    assert_int_equal(seen.n_last_layer, 150);
    assert_int_equal(seen.n_norm, 1);
    prefill(s, tokens(&m, 1) + 150, 1); /* without options the callback is gone */
    assert_int_equal(seen.n_embed, 150);
    teg_session_free(s);
    model_close(&m);
}

/* ---- memory ---- */

static void test_bytes(void **state)
{
    (void)state;
    static const size_t lengths[] = {0, 1, 63, 64, 65, 128, 300};
    static const enum teg_kv_type kinds[] = {TEG_KV_AUTO, TEG_KV_F32, TEG_KV_F16, TEG_KV_BF16};
    struct model m;
    struct teg_memory promised, held;
    struct teg_error err = {0};
    model_open(&m, "gemma3");
    for (size_t i = 0; i < 7 * 4; i++) {
        struct teg_session_options o;
        struct teg_session *s = NULL;
        teg_session_options_default(&o);
        o.kv_type = kinds[i % 4];
        o.chunk_tokens = 1 + 40 * (uint32_t)(i % 5);
        o.n_threads = 1 + (uint32_t)i % 3;
        const size_t n = lengths[i % 7], allocs = m.memory.n_allocs;
        assert_int_equal(teg_run_session_bytes(&m.run, &o, n, &promised, &err), TEG_OK);
        assert_int_equal(m.memory.n_allocs, allocs);
        assert_int_equal(promised.weights_bytes, 1234);
        const size_t per_block = m.plan->kv_block_elements * (o.kv_type == TEG_KV_F32 || !o.kv_type ? 4 : 2);
        assert_int_equal(promised.kv_bytes, (n + 63) / 64 * per_block);
        assert_int_equal(teg_run_session_new(&m.run, &o, &s, &err), TEG_OK);
        if (n)
            prefill(s, tokens(&m, 1), n);
        teg_session_memory(s, &held);
        assert_memory_equal(&promised, &held, sizeof held);
        teg_session_free(s);
    }
    struct teg_memory small, large;
    struct teg_session_options o;
    teg_session_options_default(&o);
    o.n_threads = 1;
    o.context_tokens = 256;
    assert_int_equal(teg_run_session_bytes(&m.run, &o, 256, &small, &err), TEG_OK);
    o.context_tokens = 1u << 30; /* scratch does not know the context, pages are counted by tokens */
    assert_int_equal(teg_run_session_bytes(&m.run, &o, 256, &large, &err), TEG_OK);
    assert_memory_equal(&small, &large, sizeof small);
    assert_int_equal(teg_run_session_bytes(&m.run, &o, ((size_t)1 << 30) + 1, &large, &err), TEG_ERR_CONTEXT_FULL);
    assert_string_equal(err.message, "session size: tokens: expected at most the context of 1073741824, found "
                                     "1073741825; use a larger context");
    model_close(&m);
}

/* All memory for a call is taken before its first chunk; a token inside a KV block takes none. */
static void test_allocations(void **state)
{
    (void)state;
    struct model m;
    model_open(&m, "llama");
    const int32_t *const ids = tokens(&m, 1);
    struct teg_session *const s = open_with(&m, 7, 2, 0, TEG_KV_F16);
    struct progress p = {.memory = &m.memory};
    struct teg_prefill_options o = {.size = sizeof o, .progress = on_progress, .progress_ctx = &p};
    assert_int_equal(teg_session_prefill(s, ids, 260, &o, NULL), TEG_OK);
    assert_true(p.n_calls > 30);
    assert_int_equal(p.allocs_at_first, m.memory.n_allocs);
    size_t allocs = m.memory.n_allocs;
    assert_int_equal(teg_session_rewind(s, 192, NULL), TEG_OK);
    assert_int_equal(teg_session_decode(s, ids[192], NULL), TEG_OK); /* one block */
    assert_int_equal(m.memory.n_allocs, allocs + 1);
    allocs = m.memory.n_allocs;
    for (size_t t = 193; t < 256; t++)
        assert_int_equal(teg_session_decode(s, ids[t], NULL), TEG_OK);
    assert_int_equal(m.memory.n_allocs, allocs);
    assert_int_equal(teg_session_decode(s, ids[256], NULL), TEG_OK);
    assert_int_equal(m.memory.n_allocs, allocs + 1);
    teg_session_free(s);
    model_close(&m);
}

/* Opens, fills, forks, appends to both, with the n-th allocation failing: after each failure nothing has changed. */
static enum teg_status life(const struct model *m, struct teg_session **s, struct teg_session **f,
                            struct teg_error *err)
{
    const int32_t *const ids = tokens(m, 1);
    struct teg_session_options o;
    teg_session_options_default(&o);
    o.n_threads = 2;
    o.chunk_tokens = 50;
    TRY(teg_run_session_new(&m->run, &o, s, err));
    TRY(teg_session_prefill(*s, ids, 150, NULL, err));
    TRY(teg_session_fork(*s, f, err));
    TRY(teg_session_prefill(*f, ids + 150, 100, NULL, err));
    TRY(teg_session_prefill(*s, ids + 150, 120, NULL, err));
    return teg_session_decode(*s, ids[270], err);
}

static void test_faults(void **state)
{
    (void)state;
    struct model m;
    model_open(&m, "llama");
    enum teg_status status = TEG_ERR_MEMORY;
    size_t n = 1;
    for (; status != TEG_OK; n++) {
        struct teg_session *s = NULL, *f = NULL;
        struct teg_error err = {0};
        assert_int_equal(m.memory.n_live, 0);
        counting_init(&m.memory, n);
        status = life(&m, &s, &f, &err);
        if (status != TEG_OK) {
            assert_int_equal(status, TEG_ERR_MEMORY);
            assert_int_equal(err.status, TEG_ERR_MEMORY);
            assert_memory_equal(err.message, "out of memory: ", 15);
        }
        m.memory.fail_at = 0;
        if (s && teg_session_length(s) < 271) { /* whole, and goes on */
            assert_true(teg_session_length(s) % 10 == 0);
            continues_well(&m, s, tokens(&m, 1), 280);
        }
        if (f)
            continues_well(&m, f, tokens(&m, 1), 280);
        teg_session_free(s);
        teg_session_free(f);
    }
    assert_true(n > 12);
    model_close(&m);
}

/* ---- long contexts ---- */

/* LongRoPE: which factors are used is settled by the session's context, for all of its tokens. */
static void test_long_context(void **state)
{
    (void)state;
    struct fake f = fake_hf("phi3", "model.");
    struct model m = {0};
    fake_set(&f, "{\"original_max_position_embeddings\":64,\"rope_scaling\":{\"type\":\"longrope\","
                 "\"short_factor\":[1,1,1,1],\"long_factor\":[1,4,8,16]}}");
    m.source = fake_source(&f, NULL);
    assert_non_null(m.source);
    model_finish(&m, "phi3 with longrope");
    assert_int_equal(m.run.original_context, 64);
    const int32_t *const ids = tokens(&m, 1);
    struct teg_session *const near = open_with(&m, 20, 1, 64, TEG_KV_F32), *const far =
                                                                               open_with(&m, 20, 1, 65, TEG_KV_F32);
    prefill(near, ids, 40);
    prefill(far, ids, 40);
    assert_memory_not_equal(teg_session_logits(near), teg_session_logits(far), m.plan->vocab * sizeof(float));
    struct teg_session *const fork = fork_of(far);
    prefill(fork, ids + 40, 10);
    prefill(far, ids + 40, 10);
    same_logits(&m, fork, teg_session_logits(far));
    teg_session_free(near);
    teg_session_free(far);
    teg_session_free(fork);
    model_close(&m);
    fake_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_invariance),
        cmocka_unit_test(test_kv_types_differ),
        cmocka_unit_test(test_decode_equals_prefill),
        cmocka_unit_test(test_rewind),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_fork_shares),
        cmocka_unit_test(test_interleaved),
        cmocka_unit_test(test_side_by_side),
        cmocka_unit_test(test_nothing_inherited),
        cmocka_unit_test(test_context_full),
        cmocka_unit_test(test_bad_ids),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_interrupt_inside),
        cmocka_unit_test(test_interrupt_outside),
        cmocka_unit_test(test_interrupt_before),
        cmocka_unit_test(test_callbacks),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_allocations),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_long_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
