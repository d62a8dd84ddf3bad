/* Sessions at their limits: refusals that change nothing, requests to stop at any place, callbacks that say no, memory
 * promised and held, failing allocations, long contexts. After each the session must go on as if nothing had been. */
#include "prop/session_test.h"

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

/* A model with a table of positions: no session has more than its rows. */
static void test_positions(void **state)
{
    (void)state;
    struct model m;
    struct teg_error err = {0};
    struct teg_session *s = NULL;
    struct teg_session_options o;
    model_open(&m, "llama");
    m.plan->max_positions = 100;
    teg_session_options_default(&o);
    o.context_tokens = 101;
    assert_int_equal(teg_run_session_new(&m.run, &o, &s, &err), TEG_ERR_CONTEXT_FULL);
    assert_string_equal(err.message, "context full: session: expected a context of at most 100 tokens, which the model "
                                     "has positions for, found 101; use a smaller context");
    o.context_tokens = 100;
    assert_int_equal(teg_run_session_new(&m.run, &o, &s, &err), TEG_OK);
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
    o.kv_type = (enum teg_kv_type)TEG_KV_TYPES;
    refuses_options(&m, &o,
                    "cannot make session: KV type: expected f32, f16, bf16, i16, k16v8, i8, q8 or q4, found number 9; "
                    "use one of these");
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
    struct model m;
    struct teg_memory promised, held;
    struct teg_error err = {0};
    model_open(&m, "gemma3");
    for (size_t i = 0; i < 7 * TEG_KV_TYPES; i++) {
        struct teg_session_options o;
        struct teg_session *s = NULL;
        teg_session_options_default(&o);
        o.kv_type = (enum teg_kv_type)(i % TEG_KV_TYPES);
        o.chunk_tokens = 1 + 40 * (uint32_t)(i % 5);
        o.n_threads = 1 + (uint32_t)i % 3;
        const size_t n = lengths[i / TEG_KV_TYPES], allocs = m.memory.n_allocs;
        assert_int_equal(teg_run_session_bytes(&m.run, &o, n, &promised, &err), TEG_OK);
        assert_int_equal(m.memory.n_allocs, allocs);
        assert_int_equal(promised.weights_bytes, 1234);
        const size_t per_block = m.plan->kv_block_bytes[o.kv_type ? o.kv_type : TEG_KV_F32];
        if (o.kv_type <= TEG_KV_BF16)
            assert_int_equal(per_block, m.plan->kv_block_elements * (o.kv_type <= TEG_KV_F32 ? 4 : 2));
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
        cmocka_unit_test(test_context_full),     cmocka_unit_test(test_positions),
        cmocka_unit_test(test_bad_ids),          cmocka_unit_test(test_options),
        cmocka_unit_test(test_interrupt_inside), cmocka_unit_test(test_interrupt_outside),
        cmocka_unit_test(test_interrupt_before), cmocka_unit_test(test_callbacks),
        cmocka_unit_test(test_values),           cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_allocations),      cmocka_unit_test(test_faults),
        cmocka_unit_test(test_long_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
