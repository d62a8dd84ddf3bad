/* What the tests of sessions share: tiny models without their tokenizers, sessions of them, and the one question asked
 * again and again: does this session answer as a fresh one with the same tokens does? */
#ifndef SESSION_TEST_H
#define SESSION_TEST_H

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

static inline void model_finish(struct model *m, const char *name)
{
    struct teg_error err = {0};
    struct teg_hparams hp = {0};
    m->name = name;
    teg_arena_init(&m->arena, NULL);
    teg_cpu_detect(&m->cpu);
    if (teg_build(m->source, &m->arena, &m->graph, &hp, &err) != TEG_OK ||
        teg_plan_new(m->graph, &m->cpu, NULL, &m->arena, &m->plan, &err) != TEG_OK)
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

static inline void model_open(struct model *m, const char *name)
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
static inline void model_close(struct model *m)
{
    assert_int_equal(m->memory.n_live, 0);
    teg_arena_free(&m->arena);
    teg_source_free(m->source);
}

/* ---- sessions ---- */

static inline struct teg_session *open_with(const struct model *m, uint32_t chunk, uint32_t threads, uint32_t context,
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

static inline struct teg_session *open_session(const struct model *m)
{
    return open_with(m, 64, 1, 0, TEG_KV_F32);
}

static inline void prefill(struct teg_session *s, const int32_t *ids, size_t n)
{
    struct teg_error err = {0};
    if (teg_session_prefill(s, ids, n, NULL, &err) != TEG_OK)
        fail_msg("%s", err.message);
}

#define N_TOKENS 300

/* Some text of the model's vocabulary; `seed` chooses which. */
static inline const int32_t *tokens(const struct model *m, uint32_t seed)
{
    static int32_t ids[4][N_TOKENS];
    uint32_t x = seed * 7919 + 1;
    for (size_t i = 0; i < N_TOKENS; i++) {
        x = x * 1664525u + 1013904223u;
        ids[seed % 4][i] = (int32_t)((x >> 8) % m->plan->vocab);
    }
    return ids[seed % 4];
}

static inline void same_logits(const struct model *m, const struct teg_session *s, const float *expected)
{
    const float *const found = teg_session_logits(s);
    assert_non_null(found);
    assert_memory_equal(found, expected, m->plan->vocab * sizeof *found);
}

static inline float *copy_logits(const struct model *m, const struct teg_session *s)
{
    float *const copy = malloc(m->plan->vocab * sizeof *copy);
    assert_non_null(teg_session_logits(s));
    memcpy(copy, teg_session_logits(s), m->plan->vocab * sizeof *copy);
    for (uint32_t i = 0; i < m->plan->vocab; i++)
        assert_true(isfinite(copy[i]));
    return copy;
}

/* The logits that a session of its own gives for these tokens. */
static inline float *fresh_logits(const struct model *m, const int32_t *ids, size_t n)
{
    struct teg_session *const s = open_session(m);
    prefill(s, ids, n);
    float *const logits = copy_logits(m, s);
    teg_session_free(s);
    return logits;
}

/* Goes on with ids[length … n) and must then answer as a fresh session does. */
static inline void continues_well(const struct model *m, struct teg_session *s, const int32_t *ids, size_t n)
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

static inline bool take_rows(void *ctx, size_t first_row, size_t n_rows, const float *logits)
{
    struct rows *const r = ctx;
    assert_int_equal(first_row, r->n_rows);
    if (r->stop_at && first_row + n_rows > r->stop_at)
        return false;
    memcpy(r->logits + first_row * r->width, logits, n_rows * r->width * sizeof *logits);
    r->n_rows += n_rows;
    return true;
}

static inline struct rows rows_of(const struct model *m)
{
    return (struct rows){.logits = malloc(N_TOKENS * m->plan->vocab * sizeof(float)), .width = m->plan->vocab};
}

static inline void prefill_rows(struct teg_session *s, const int32_t *ids, size_t n, struct rows *rows)
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

static inline struct teg_session *fork_of(const struct teg_session *s)
{
    struct teg_session *f = NULL;
    struct teg_error err = {0};
    if (teg_session_fork(s, &f, &err) != TEG_OK)
        fail_msg("%s", err.message);
    return f;
}

#endif
