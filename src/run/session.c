/* run/session.c: a conversation with a model: tokens in order, their keys and values, the logits of the last.
 *
 * The invariant: length tokens are in the KV blocks, and ids[0 … length-1] are those tokens. Every call either moves
 * from one such state to another or fails and leaves it. All memory for a call is taken before its first forward pass,
 * so a pass cannot fail for want of memory. */
#include "run/session.h"

#include <stdatomic.h>
#include <string.h>

#include "base/check.h"
#include "base/options.h"
#include "base/pool.h"
#include "run/executor.h"
#include "run/kv.h"

#define MAX_CHUNK 65536u
#define DEFAULT_CHUNK 256u

struct teg_session {
    struct teg_session_base base; /* first: session.c dispatches by it */
    struct teg_run_model model;
    struct teg_pool *pool;
    struct teg_kv kv;
    struct teg_pass pass; /* buffers and constants of a pass; ids and positions change per chunk */
    size_t n_activation_bytes, n_logits_bytes, n_scratch_bytes;
    int32_t *ids; /* [capacity] */
    size_t length, capacity;
    size_t context_tokens;
    bool has_logits;
    size_t logits_row; /* in pass.logits */
    atomic_bool stop;
    atomic_uint overflow; /* of the pass; see executor.h */
    char overflow_place[192];
};

static const struct teg_session_ops session_ops;

/* ---- options and sizes ---- */

void teg_session_options_default(struct teg_session_options *options)
{
    *options = (struct teg_session_options){.size = sizeof *options, .chunk_tokens = DEFAULT_CHUNK};
}

void teg_prefill_options_default(struct teg_prefill_options *options)
{
    *options = (struct teg_prefill_options){.size = sizeof *options};
}

struct sizes {
    uint32_t n_threads, chunk;
    size_t context;
    enum teg_kv_type kv_type;
    bool pin;
    size_t activations, logits, scratch_stride, scratch, block;
    size_t states; /* where they begin in the scratch, in floats */
};

static enum teg_status settle(const struct teg_run_model *m, const struct teg_session_options *options, struct sizes *s,
                              struct teg_error *err)
{
    struct teg_session_options o;
    teg_session_options_default(&o);
    TRY(teg_options_read(&o, sizeof o, options, err));
    s->n_threads = o.n_threads ? o.n_threads : (uint32_t)teg_min(m->cpu->n_cpus, TEG_POOL_MAX_THREADS);
    s->chunk = o.chunk_tokens;
    s->context = o.context_tokens ? o.context_tokens : m->context_tokens;
    s->kv_type = o.kv_type == TEG_KV_AUTO ? m->default_kv : o.kv_type;
    s->pin = o.pin_threads;
    if (s->n_threads < 1)
        s->n_threads = 1;
    if (s->n_threads > TEG_POOL_MAX_THREADS)
        FAIL(err, TEG_ERR_ARGUMENT, "cannot make session: thread count: expected 1 to %u, found %u; use fewer",
             TEG_POOL_MAX_THREADS, s->n_threads);
    if (s->chunk < 1 || s->chunk > MAX_CHUNK)
        FAIL(err, TEG_ERR_ARGUMENT, "cannot make session: chunk size: expected 1 to %u tokens, found %u; use 256",
             MAX_CHUNK, s->chunk);
    if ((int)s->kv_type < TEG_KV_F32 || (int)s->kv_type >= TEG_KV_TYPES)
        FAIL(err, TEG_ERR_ARGUMENT,
             "cannot make session: KV type: expected f32, f16, bf16, i16, k16v8, i8, q8 or q4, found number %d; use "
             "one of "
             "these",
             (int)s->kv_type);
    if (s->context > m->plan->max_positions)
        FAIL(err, TEG_ERR_CONTEXT_FULL,
             "context full: session: expected a context of at most %zu tokens, which the model has positions for, "
             "found %zu; use a smaller context",
             m->plan->max_positions, s->context);
    s->block = m->plan->kv_block_bytes[s->kv_type];
    if (s->chunk > s->context)
        s->chunk = (uint32_t)s->context; /* no chunk can be longer */
    bool ok = teg_mul(m->plan->row_floats * sizeof(float), s->chunk, &s->activations);
    ok = ok && teg_mul((size_t)m->plan->vocab * sizeof(float), m->plan->head_rows, &s->logits);
    ok = ok && teg_round_up(m->plan->worker_floats, 16, &s->scratch_stride) &&
         teg_mul(s->scratch_stride, s->n_threads, &s->states);
    const size_t states = s->n_threads > 1 ? TEG_PASS_STATES : 0;
    ok = ok && teg_mul(s->states + states * m->plan->state_floats, sizeof(float), &s->scratch);
    if (!ok)
        FAIL(err, TEG_ERR_ARGUMENT,
             "cannot make session: sizes: expected a chunk that fits in memory, found %u tokens; "
             "use a smaller chunk",
             s->chunk);
    return TEG_OK;
}

enum teg_status teg_run_session_bytes(const struct teg_run_model *m, const struct teg_session_options *options,
                                      size_t n_tokens, struct teg_memory *memory, struct teg_error *err)
{
    struct sizes s;
    TRY(settle(m, options, &s, err));
    if (n_tokens > s.context)
        FAIL(err, TEG_ERR_CONTEXT_FULL,
             "session size: tokens: expected at most the context of %zu, found %zu; use a "
             "larger context",
             s.context, n_tokens);
    *memory = (struct teg_memory){
        .weights_bytes = m->weights_bytes,
        .kv_bytes = (uint64_t)((n_tokens + TEG_TILE_TOKENS - 1) / TEG_TILE_TOKENS) * s.block,
        .scratch_bytes = s.activations + s.logits + s.scratch,
    };
    return TEG_OK;
}

/* ---- life ---- */

static void *take(const struct teg_session *s, size_t n_bytes)
{
    return s->model.allocator->alloc(s->model.allocator->ctx, n_bytes ? n_bytes : 1, TEG_ALIGN);
}

static void give(const struct teg_session *s, void *ptr, size_t n_bytes)
{
    if (ptr)
        s->model.allocator->free(s->model.allocator->ctx, ptr, n_bytes ? n_bytes : 1);
}

static void run_session_free(struct teg_session *s)
{
    if (!s)
        return;
    teg_kv_free(&s->kv);
    give(s, s->pass.activations, s->n_activation_bytes);
    give(s, s->pass.logits, s->n_logits_bytes);
    give(s, s->pass.scratch, s->n_scratch_bytes);
    give(s, s->ids, s->capacity * sizeof *s->ids);
    teg_pool_free(s->pool);
    const struct teg_allocator *const a = s->model.allocator;
    a->free(a->ctx, s, sizeof *s);
}

/* A session without tokens and without a pool. */
static enum teg_status session_alloc(const struct teg_run_model *m, const struct sizes *sizes,
                                     struct teg_session **session, struct teg_error *err)
{
    struct teg_session *const s = m->allocator->alloc(m->allocator->ctx, sizeof *s, TEG_ALIGN);
    if (!s)
        return teg_base_fail_memory(err, "session", sizeof *s);
    memset(s, 0, sizeof *s);
    s->base.ops = &session_ops;
    s->model = *m;
    atomic_init(&s->stop, false);
    atomic_init(&s->overflow, 0);
    teg_kv_init(&s->kv, sizes->block, m->allocator);
    s->context_tokens = sizes->context;
    s->n_activation_bytes = sizes->activations;
    s->n_logits_bytes = sizes->logits;
    s->n_scratch_bytes = sizes->scratch;
    s->pass = (struct teg_pass){.plan = m->plan,
                                .activations = take(s, sizes->activations),
                                .logits = take(s, sizes->logits),
                                .scratch = take(s, sizes->scratch),
                                .max_tokens = sizes->chunk,
                                .scratch_stride = sizes->scratch_stride,
                                .kv_type = sizes->kv_type,
                                .long_context = m->original_context && sizes->context > m->original_context,
                                .stop = &s->stop,
                                .overflow = m->emulates_fp16 ? &s->overflow : NULL};
    s->pass.states = s->pass.scratch ? s->pass.scratch + sizes->states : NULL;
    if (!s->pass.activations || !s->pass.logits || !s->pass.scratch) {
        run_session_free(s);
        return teg_base_fail_memory(err, "session buffers", sizes->activations + sizes->logits + sizes->scratch);
    }
    *session = s;
    return TEG_OK;
}

static enum teg_status new_pool(const struct sizes *sizes, const struct teg_allocator *allocator,
                                struct teg_pool **pool, struct teg_error *err)
{
    struct teg_topology topology;
    if (sizes->n_threads > 1 || sizes->pin)
        teg_topology_detect(NULL, &topology);
    else
        topology.n_speeds = topology.n_order = 0;
    const struct teg_pool_places places = {.speeds = topology.speeds,
                                           .n_speeds = topology.n_speeds,
                                           .pin_to = topology.order,
                                           .n_pin_to = sizes->pin ? topology.n_order : 0};
    return teg_pool_new_placed(sizes->n_threads, &places, allocator, pool, err);
}

enum teg_status teg_run_session_new(const struct teg_run_model *m, const struct teg_session_options *options,
                                    struct teg_session **session, struct teg_error *err)
{
    struct sizes sizes;
    struct teg_session *s = NULL;
    TRY(settle(m, options, &sizes, err));
    TRY(session_alloc(m, &sizes, &s, err));
    const enum teg_status status = new_pool(&sizes, m->allocator, &s->pool, err);
    if (status != TEG_OK) {
        run_session_free(s);
        return status;
    }
    s->pass.pool = s->pool;
    *session = s;
    return TEG_OK;
}

/* ---- tokens in ---- */

static enum teg_status reserve_ids(struct teg_session *s, size_t n, struct teg_error *err)
{
    if (n <= s->capacity)
        return TEG_OK;
    const size_t capacity = teg_max(n, teg_max(s->capacity * 2, 256));
    int32_t *const ids = take(s, capacity * sizeof *ids);
    if (!ids)
        return teg_base_fail_memory(err, "session tokens", capacity * sizeof *ids);
    if (s->length)
        memcpy(ids, s->ids, s->length * sizeof *ids);
    give(s, s->ids, s->capacity * sizeof *ids);
    s->ids = ids;
    s->capacity = capacity;
    return TEG_OK;
}

static enum teg_status check_ids(const struct teg_session *s, const int32_t *ids, size_t n, struct teg_error *err)
{
    if (n == 0)
        FAIL(err, TEG_ERR_ARGUMENT,
             "cannot prefill: tokens: expected at least one, found none; pass a prompt that is not "
             "empty");
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || (uint32_t)ids[i] >= s->model.plan->vocab)
            FAIL(err, TEG_ERR_ARGUMENT,
                 "cannot prefill: token %zu: expected an id from 0 to %u, found %d; tokenize with "
                 "this model's own vocabulary",
                 i, s->model.plan->vocab - 1, ids[i]);
    if (n > s->context_tokens - s->length)
        FAIL(err, TEG_ERR_CONTEXT_FULL,
             "context full: session: expected room for %zu more tokens, found %zu of %zu free; "
             "shorten the prompt, rewind, or open the session with a larger context",
             n, s->context_tokens - s->length, s->context_tokens);
    return TEG_OK;
}

/* The logits that were asked for of the chunk that just ran. */
static bool run_head(struct teg_session *s, const struct teg_prefill_options *o, size_t row_in_call, bool last_chunk)
{
    const size_t n = s->pass.n_tokens;
    s->logits_row = 0;
    if (!o->on_logits)
        return !last_chunk || teg_pass_head(&s->pass, n - 1, 1);
    for (size_t row = 0, n_rows; row < n; row += n_rows) {
        n_rows = teg_min(n - row, s->model.plan->head_rows);
        if (!teg_pass_head(&s->pass, row, n_rows) ||
            !o->on_logits(o->on_logits_ctx, row_in_call + row, n_rows, s->pass.logits))
            return false;
        s->logits_row = n_rows - 1;
    }
    return true;
}

/* The first one of the session stays. */
static void note_overflow(struct teg_session *s)
{
    const unsigned mark = atomic_load(&s->overflow);
    if (mark && !s->overflow_place[0])
        s->model.place(s->model.place_ctx, mark - 1, s->overflow_place, sizeof s->overflow_place);
}

static enum teg_status interrupted(struct teg_session *s, size_t n_done, size_t n, struct teg_error *err)
{
    teg_kv_truncate(&s->kv, s->length);
    FAIL(err, TEG_ERR_INTERRUPTED,
         "interrupted: prefill: expected %zu tokens, found time for %zu; call again with the "
         "rest to go on",
         n, n_done);
}

/* Memory is there. */
static enum teg_status run_chunks(struct teg_session *s, const int32_t *ids, size_t n,
                                  const struct teg_prefill_options *o, struct teg_error *err)
{
    for (size_t done = 0; done < n;) {
        s->pass.ids = ids + done;
        s->pass.n_tokens = teg_min(n - done, s->pass.max_tokens);
        s->pass.first_position = s->length;
        s->pass.chunk_row = done;
        const bool last = done + s->pass.n_tokens == n;
        if (!teg_pass_body(&s->pass) || !run_head(s, o, done, last)) {
            atomic_store(&s->stop, false);
            return interrupted(s, done, n, err);
        }
        note_overflow(s);
        memcpy(s->ids + s->length, ids + done, s->pass.n_tokens * sizeof *ids);
        s->length += s->pass.n_tokens;
        done += s->pass.n_tokens;
        s->has_logits = last;
        if (o->progress && !o->progress(o->progress_ctx, done, n) && !last)
            return interrupted(s, done, n, err);
    }
    return TEG_OK;
}

static enum teg_status run_session_prefill(struct teg_session *s, const int32_t *ids, size_t n,
                                           const struct teg_prefill_options *options, struct teg_error *err)
{
    struct teg_prefill_options o;
    struct teg_pool_caller caller;
    teg_prefill_options_default(&o);
    TRY(teg_options_read(&o, sizeof o, options, err));
    TRY(check_ids(s, ids, n, err));
    TRY(reserve_ids(s, s->length + n, err));
    TRY(teg_kv_reserve(&s->kv, s->length, s->length + n, err));
    s->has_logits = false;
    s->pass.blocks = s->kv.blocks;
    s->pass.on_value = o.on_value;
    s->pass.on_value_ctx = o.on_value_ctx;
    teg_pool_enter(s->pool, &caller);
    const enum teg_status status = run_chunks(s, ids, n, &o, err);
    teg_pool_leave(&caller);
    return status;
}

static enum teg_status run_session_decode(struct teg_session *s, int32_t id, struct teg_error *err)
{
    return run_session_prefill(s, &id, 1, NULL, err);
}

static void run_session_interrupt(struct teg_session *s)
{
    atomic_store(&s->stop, true);
}

void teg_run_session_observe(struct teg_session *session,
                             void (*on_product)(void *ctx, uint32_t op, size_t n_rows, size_t k, const float *x,
                                                size_t stride),
                             void *ctx)
{
    session->pass.on_product = on_product;
    session->pass.on_product_ctx = ctx;
}

/* ---- questions ---- */

static const float *run_session_logits(const struct teg_session *s)
{
    return s->has_logits ? s->pass.logits + s->logits_row * s->model.plan->vocab : NULL;
}

static size_t run_session_length(const struct teg_session *s)
{
    return s->length;
}

static const int32_t *run_session_tokens(const struct teg_session *s)
{
    return s->ids;
}

static size_t run_session_context(const struct teg_session *s)
{
    return s->context_tokens;
}

static void run_session_memory(const struct teg_session *s, struct teg_memory *memory)
{
    *memory = (struct teg_memory){
        .weights_bytes = s->model.weights_bytes,
        .kv_bytes = (uint64_t)s->kv.n_blocks * s->kv.block_bytes,
        .scratch_bytes = s->n_activation_bytes + s->n_logits_bytes + s->n_scratch_bytes,
    };
}

/* ---- back and apart ---- */

static enum teg_status run_session_rewind(struct teg_session *s, size_t n_tokens, struct teg_error *err)
{
    if (n_tokens > s->length)
        FAIL(err, TEG_ERR_ARGUMENT,
             "cannot rewind: session: expected at most its %zu tokens, found %zu; rewind to fewer", s->length,
             n_tokens);
    if (n_tokens == s->length)
        return TEG_OK;
    teg_kv_truncate(&s->kv, n_tokens);
    s->length = n_tokens;
    s->has_logits = false;
    return TEG_OK;
}

static enum teg_status run_session_fork(const struct teg_session *s, struct teg_session **fork, struct teg_error *err)
{
    const struct sizes sizes = {.chunk = (uint32_t)s->pass.max_tokens,
                                .context = s->context_tokens,
                                .kv_type = s->pass.kv_type,
                                .activations = s->n_activation_bytes,
                                .logits = s->n_logits_bytes,
                                .scratch_stride = s->pass.scratch_stride,
                                .scratch = s->n_scratch_bytes,
                                .block = s->kv.block_bytes};
    struct teg_session *f = NULL;
    TRY(session_alloc(&s->model, &sizes, &f, err));
    enum teg_status status = reserve_ids(f, s->length, err);
    if (status == TEG_OK)
        status = teg_kv_share(&s->kv, &f->kv, err);
    if (status != TEG_OK) {
        run_session_free(f);
        return status;
    }
    f->pool = teg_pool_ref(s->pool);
    f->pass.pool = f->pool;
    f->length = s->length;
    if (s->length)
        memcpy(f->ids, s->ids, s->length * sizeof *f->ids);
    f->has_logits = s->has_logits;
    f->logits_row = 0;
    if (s->has_logits)
        memcpy(f->pass.logits, run_session_logits(s), s->model.plan->vocab * sizeof *f->pass.logits);
    *fork = f;
    return TEG_OK;
}

static const char *run_session_overflow(const struct teg_session *s)
{
    return s->overflow_place[0] ? s->overflow_place : NULL;
}

static const struct teg_session_ops session_ops = {
    .prefill = run_session_prefill,
    .decode = run_session_decode,
    .logits = run_session_logits,
    .length = run_session_length,
    .tokens = run_session_tokens,
    .context = run_session_context,
    .memory = run_session_memory,
    .rewind = run_session_rewind,
    .fork = run_session_fork,
    .interrupt = run_session_interrupt,
    .overflow = run_session_overflow,
    .free = run_session_free,
};
