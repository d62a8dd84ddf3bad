/* lm_session.c: a session over a program that is evaluated: tokens in order, the program's states, the last logits.
 *
 * Invariant: `state` is that of exactly the first n_done tokens, which came to it in calls without padding. Tokens
 * n_done … length - 1 are known but not in it: those of a padded call, all of them where the program keeps no states,
 * what a rewind left. The next prefill runs them first. So a rewind needs no knowledge of the program's caches, and is
 * dear: the text is run again from its beginning. A state is shared by reference until it is written, so a fork and the
 * throw-away copy of a padded call cost nothing. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/options.h"
#include "lm.h"

struct lm_session {
    struct teg_session_base base;
    const struct teg_lm *lm;
    struct teg_eval_state *state;
    struct teg_array **caches; /* [lm->n_caches]: with `state`, what the program keeps */
    int32_t *ids;              /* [capacity] */
    size_t length, n_done, capacity;
    size_t context, chunk;
    float *logits; /* [V] */
    bool has_logits;
    volatile bool stop;
    char overflow[192]; /* "": none */
};

static const struct teg_session_ops session_ops;

static struct lm_session *own(struct teg_session *s)
{
    return (struct lm_session *)s;
}

static const struct lm_session *view(const struct teg_session *s)
{
    return (const struct lm_session *)s;
}

/* ---- options and sizes ---- */

static enum teg_status settle(const struct teg_lm *lm, const struct teg_session_options *options,
                              struct teg_session_options *o, struct teg_error *err)
{
    enum { MOST_CHUNK = 65536, MOST_THREADS = 256 };
    teg_session_options_default(o);
    TRY(teg_options_read(o, sizeof *o, options, err));
    if (o->n_threads > MOST_THREADS)
        FAIL(err, TEG_ERR_ARGUMENT, "cannot make session: thread count: expected 1 to %d, found %u; use fewer",
             MOST_THREADS, o->n_threads);
    if (o->chunk_tokens < 1 || o->chunk_tokens > MOST_CHUNK)
        FAIL(err, TEG_ERR_ARGUMENT, "cannot make session: chunk size: expected 1 to %d tokens, found %u; use 256",
             MOST_CHUNK, o->chunk_tokens);
    if (o->context_tokens > lm->context)
        FAIL(err, TEG_ERR_ARGUMENT,
             "cannot make session: context: expected at most the %u tokens that the package has room for, found %u; "
             "use a smaller one",
             lm->context, o->context_tokens);
    o->context_tokens = o->context_tokens ? o->context_tokens : lm->context;
    if (lm->chunk && lm->chunk < o->chunk_tokens)
        o->chunk_tokens = lm->chunk;
    return TEG_OK;
}

static uint64_t state_bytes(const struct lm_session *s)
{
    const struct teg_eval_state *const state = s->state;
    uint64_t n = 0;
    for (size_t i = 0; i < s->lm->n_caches; i++)
        n += s->caches[i]->n * sizeof(float);
    for (size_t i = 0; i < teg_eval_state_count(state); i++)
        n += teg_eval_state_array(state, teg_eval_state_name(state, i))->n_bytes;
    return n;
}

enum teg_status teg_lm_session_bytes(const struct teg_lm *lm, const struct teg_session_options *options,
                                     size_t n_tokens, struct teg_memory *memory, struct teg_error *err)
{
    struct teg_session_options o;
    TRY(settle(lm, options, &o, err));
    if (n_tokens > o.context_tokens)
        FAIL(err, TEG_ERR_CONTEXT_FULL,
             "session size: tokens: expected at most the context of %u, found %zu; use a larger context",
             o.context_tokens, n_tokens);
    *memory = (struct teg_memory){.weights_bytes = lm->weights_bytes, .scratch_bytes = lm->vocab * sizeof(float)};
    const struct teg_mil_program *const mil = lm->program->mil;
    const struct teg_mil_block *const b = &mil->functions[lm->contracts[0].function].block;
    for (size_t i = 0; i < b->n_inputs; i++) {
        const struct teg_mil_type *const t = &mil->vars[b->inputs[i]].type;
        uint64_t n = sizeof(float);
        for (int32_t d = 0; d < t->rank; d++)
            n *= (uint64_t)t->dims[d];
        memory->kv_bytes += t->kind == TEG_MIL_STATE ? n : 0;
    }
    memory->kv_bytes += teg_contract_cache_bytes(&lm->contracts[0], n_tokens);
    return TEG_OK;
}

/* ---- life ---- */

static void *take(const struct teg_lm *lm, size_t n_bytes)
{
    return lm->allocator->alloc(lm->allocator->ctx, n_bytes ? n_bytes : 1, TEG_ALIGN);
}

static void give(const struct teg_lm *lm, void *memory, size_t n_bytes)
{
    if (memory)
        lm->allocator->free(lm->allocator->ctx, memory, n_bytes ? n_bytes : 1);
}

static void drop_caches(const struct teg_lm *lm, struct teg_array **caches)
{
    for (size_t i = 0; caches && i < lm->n_caches; i++)
        teg_array_drop(lm->allocator, caches[i]);
    give(lm, caches, lm->n_caches * sizeof *caches);
}

/* As they are before the first token. */
static enum teg_status empty_caches(const struct teg_lm *lm, struct teg_array ***out, struct teg_error *err)
{
    const size_t n_bytes = lm->n_caches * sizeof(struct teg_array *);
    struct teg_array **const caches = take(lm, n_bytes);
    bool good = caches != NULL;
    if (caches)
        memset(caches, 0, n_bytes);
    for (size_t i = 0; i < lm->n_caches && good; i++) {
        caches[i] = teg_contract_empty_cache(&lm->contracts[0], i, lm->allocator);
        good = caches[i] != NULL;
    }
    if (!good) {
        drop_caches(lm, caches);
        return teg_base_fail_memory(err, "keys and values", n_bytes);
    }
    *out = caches;
    return TEG_OK;
}

static void session_free(struct teg_session *session)
{
    struct lm_session *const s = own(session);
    const struct teg_lm *const lm = s->lm;
    teg_eval_state_free(s->state);
    drop_caches(lm, s->caches);
    give(lm, s->ids, s->capacity * sizeof *s->ids);
    give(lm, s->logits, lm->vocab * sizeof *s->logits);
    give(lm, s, sizeof *s);
}

static enum teg_status session_new(const struct teg_lm *lm, size_t context, size_t chunk, struct lm_session **out,
                                   struct teg_error *err)
{
    struct lm_session *const s = take(lm, sizeof *s);
    if (!s)
        return teg_base_fail_memory(err, "session", sizeof *s);
    *s = (struct lm_session){.base.ops = &session_ops, .lm = lm, .context = context, .chunk = chunk};
    s->logits = take(lm, lm->vocab * sizeof *s->logits);
    enum teg_status status = s->logits ? TEG_OK : teg_base_fail_memory(err, "logits", lm->vocab * sizeof *s->logits);
    if (status == TEG_OK)
        status = teg_eval_state_new(lm->program->mil, lm->allocator, &s->state, err);
    if (status == TEG_OK)
        status = empty_caches(lm, &s->caches, err);
    if (status == TEG_OK)
        *out = s;
    else
        session_free((struct teg_session *)s);
    return status;
}

enum teg_status teg_lm_session_new(const struct teg_lm *lm, const struct teg_session_options *options,
                                   struct teg_session **session, struct teg_error *err)
{
    struct teg_session_options o;
    struct lm_session *s = NULL;
    TRY(settle(lm, options, &o, err));
    teg_program_want_threads(lm->program, o.n_threads);
    TRY(session_new(lm, o.context_tokens, o.chunk_tokens, &s, err));
    *session = (struct teg_session *)s;
    return TEG_OK;
}

/* A state object with the same arrays. */
static enum teg_status copy_state(const struct lm_session *s, struct teg_eval_state **copy, struct teg_error *err)
{
    struct teg_eval_state *made = NULL;
    TRY(teg_eval_state_new(s->lm->program->mil, s->lm->allocator, &made, err));
    for (size_t i = 0; i < teg_eval_state_count(made); i++) {
        const char *const name = teg_eval_state_name(made, i);
        struct teg_array *const array = (struct teg_array *)teg_eval_state_array(s->state, name);
        const enum teg_status status = teg_eval_state_set(made, name, array, err);
        if (status != TEG_OK) {
            teg_eval_state_free(made);
            return status;
        }
    }
    *copy = made;
    return TEG_OK;
}

/* ---- tokens in ---- */

static enum teg_status reserve(struct lm_session *s, size_t n, struct teg_error *err)
{
    if (n <= s->capacity)
        return TEG_OK;
    const size_t capacity = teg_max(n, teg_max(2 * s->capacity, 256));
    int32_t *const ids = take(s->lm, capacity * sizeof *ids);
    if (!ids)
        return teg_base_fail_memory(err, "session tokens", capacity * sizeof *ids);
    if (s->length)
        memcpy(ids, s->ids, s->length * sizeof *ids);
    give(s->lm, s->ids, s->capacity * sizeof *ids);
    s->ids = ids;
    s->capacity = capacity;
    return TEG_OK;
}

static enum teg_status check_ids(const struct lm_session *s, const int32_t *ids, size_t n, struct teg_error *err)
{
    if (n == 0)
        FAIL(err, TEG_ERR_ARGUMENT,
             "cannot prefill: tokens: expected at least one, found none; pass a prompt that is not empty");
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || (uint32_t)ids[i] >= s->lm->vocab)
            FAIL(err, TEG_ERR_ARGUMENT,
                 "cannot prefill: token %zu: expected an id from 0 to %u, found %d; tokenize with this model's own "
                 "vocabulary",
                 i, s->lm->vocab - 1, ids[i]);
    if (n > s->context - s->length)
        FAIL(err, TEG_ERR_CONTEXT_FULL,
             "context full: session: expected room for %zu more tokens, found %zu of %zu free; shorten the prompt, "
             "rewind, or open the session with a larger context",
             n, s->context - s->length, s->context);
    return TEG_OK;
}

/* One prefill: tokens [from … end) of s->ids are new. */
struct job {
    struct lm_session *s;
    const struct teg_prefill_options *options;
    size_t from, end;
    struct teg_error *err;
};

static enum teg_status interrupted(const struct job *j)
{
    const size_t done = j->s->length > j->from ? j->s->length - j->from : 0;
    FAIL(j->err, TEG_ERR_INTERRUPTED,
         "interrupted: prefill: expected %zu tokens, found time for %zu; call again with the rest to go on",
         j->end - j->from, done);
}

/* The logits of the call that began at token `at`: of every new token, or of the last of all. */
static enum teg_status hand_out(const struct job *j, const struct teg_lm_step *step, size_t at,
                                const struct teg_lm_result *result)
{
    struct lm_session *const s = j->s;
    if (j->options->on_logits) {
        for (size_t row = at < j->from ? j->from - at : 0; row < step->real; row++) {
            TRY(teg_lm_row(s->lm, step, result, row, s->logits, j->err));
            if (!j->options->on_logits(j->options->on_logits_ctx, at + row - j->from, 1, s->logits))
                return interrupted(j);
        }
    } else if (at + step->real == j->end) {
        TRY(teg_lm_row(s->lm, step, result, step->real - 1, s->logits, j->err));
    }
    return TEG_OK;
}

/* Hands values [1, ..., 1, T, width] on: those that have a row for each token. */
struct watcher {
    const struct job *job;
    const struct teg_lm_step *step;
    size_t at;
};

static void watch_value(void *ctx, const char *name, const struct teg_array *a)
{
    const struct watcher *const w = ctx;
    const struct teg_prefill_options *const o = w->job->options;
    const size_t width = a->rank ? a->dims[a->rank - 1] : 0, skip = w->at < w->job->from ? w->job->from - w->at : 0;
    const bool fits = a->form == TEG_FORM_F32 && a->rank >= 2 && a->dims[a->rank - 2] == w->step->n &&
                      a->n == w->step->n * width && skip < w->step->real;
    if (fits)
        o->on_value(o->on_value_ctx, name, w->at + skip - w->job->from, w->step->real - skip, width,
                    a->f32 + skip * width);
}

static enum teg_status run_step(const struct job *j, const struct teg_lm_step *step, size_t at)
{
    struct lm_session *const s = j->s;
    struct teg_eval_state *copy = NULL;
    struct teg_lm_result result = {0};
    struct watcher watcher = {j, step, at};
    const struct teg_eval_watch watch = {watch_value, &watcher};
    TRY(copy_state(s, &copy, j->err));
    enum teg_status status = teg_lm_call(s->lm, step, s->ids + at, at, copy, s->caches, &s->stop,
                                         j->options->on_value ? &watch : NULL, &result, j->err);
    if (status == TEG_ERR_INTERRUPTED) {
        s->stop = false;
        status = interrupted(j);
    }
    if (status == TEG_OK && result.report.overflow_op && !s->overflow[0])
        teg_lm_place(s->lm, step->contract, result.report.overflow_op, s->overflow, sizeof s->overflow);
    if (status == TEG_OK)
        status = hand_out(j, step, at, &result);
    if (status == TEG_OK && step->keeps) {
        struct teg_eval_state *const before = s->state;
        s->state = copy;
        copy = before;
        s->n_done = at + step->real;
        for (size_t i = 0; i < s->lm->n_caches; i++) {
            teg_array_drop(s->lm->allocator, s->caches[i]);
            s->caches[i] = teg_array_ref(teg_lm_cache_of(step, &result, i));
        }
    }
    if (status == TEG_OK)
        s->length = teg_max(s->length, at + step->real);
    teg_eval_state_free(copy);
    teg_lm_result_free(s->lm, &result);
    return status;
}

static enum teg_status run_job(const struct job *j)
{
    struct lm_session *const s = j->s;
    for (size_t at = s->n_done; at < j->end;) {
        struct teg_lm_step step = {0};
        if (!teg_lm_next(s->lm, at, j->end - at, s->chunk, j->options->on_logits != NULL, &step))
            FAIL(j->err, TEG_ERR_CONTEXT_FULL,
                 "cannot prefill: package: expected a function that takes the next %zu tokens after %zu%s, found none; "
                 "see its contract with tegula inspect",
                 j->end - at, at, j->options->on_logits ? " and gives the logits of each" : "");
        TRY(run_step(j, &step, at));
        at += step.real;
        const struct teg_prefill_options *const o = j->options;
        const size_t done = at > j->from ? at - j->from : 0;
        if (o->progress && !o->progress(o->progress_ctx, done, j->end - j->from) && at < j->end)
            return interrupted(j);
    }
    s->has_logits = true;
    return TEG_OK;
}

static enum teg_status session_prefill(struct teg_session *session, const int32_t *ids, size_t n,
                                       const struct teg_prefill_options *options, struct teg_error *err)
{
    struct lm_session *const s = own(session);
    struct teg_prefill_options o;
    teg_prefill_options_default(&o);
    TRY(teg_options_read(&o, sizeof o, options, err));
    TRY(check_ids(s, ids, n, err));
    TRY(reserve(s, s->length + n, err));
    memcpy(s->ids + s->length, ids, n * sizeof *ids);
    s->has_logits = false;
    const struct job job = {s, &o, s->length, s->length + n, err};
    return run_job(&job);
}

static enum teg_status session_decode(struct teg_session *session, int32_t id, struct teg_error *err)
{
    return session_prefill(session, &id, 1, NULL, err);
}

/* ---- the rest ---- */

static const float *session_logits(const struct teg_session *session)
{
    return view(session)->has_logits ? view(session)->logits : NULL;
}

static size_t session_length(const struct teg_session *session)
{
    return view(session)->length;
}

static const int32_t *session_tokens(const struct teg_session *session)
{
    return view(session)->ids;
}

static size_t session_context(const struct teg_session *session)
{
    return view(session)->context;
}

static void session_memory(const struct teg_session *session, struct teg_memory *memory)
{
    const struct lm_session *const s = view(session);
    *memory = (struct teg_memory){.weights_bytes = s->lm->weights_bytes,
                                  .kv_bytes = state_bytes(s),
                                  .scratch_bytes = s->lm->vocab * sizeof *s->logits};
}

static enum teg_status session_rewind(struct teg_session *session, size_t n_tokens, struct teg_error *err)
{
    struct lm_session *const s = own(session);
    struct teg_eval_state *fresh = NULL;
    struct teg_array **caches = NULL;
    if (n_tokens > s->length)
        FAIL(err, TEG_ERR_ARGUMENT,
             "cannot rewind: session: expected at most its %zu tokens, found %zu; rewind to fewer", s->length,
             n_tokens);
    if (n_tokens == s->length)
        return TEG_OK;
    if (n_tokens < s->n_done && s->lm->overwrites && s->lm->n_caches == 0 && n_tokens > 0) {
        s->n_done = n_tokens;
    } else if (n_tokens < s->n_done) {
        TRY(empty_caches(s->lm, &caches, err));
        const enum teg_status status = teg_eval_state_new(s->lm->program->mil, s->lm->allocator, &fresh, err);
        if (status != TEG_OK) {
            drop_caches(s->lm, caches);
            return status;
        }
        teg_eval_state_free(s->state);
        drop_caches(s->lm, s->caches);
        s->state = fresh;
        s->caches = caches;
        s->n_done = 0;
    }
    s->length = n_tokens;
    s->has_logits = false;
    return TEG_OK;
}

static enum teg_status session_fork(const struct teg_session *session, struct teg_session **fork, struct teg_error *err)
{
    const struct lm_session *const s = view(session);
    struct lm_session *f = NULL;
    TRY(session_new(s->lm, s->context, s->chunk, &f, err));
    struct teg_eval_state *state = NULL;
    enum teg_status status = reserve(f, s->length, err);
    if (status == TEG_OK)
        status = copy_state(s, &state, err);
    if (status != TEG_OK) {
        session_free((struct teg_session *)f);
        return status;
    }
    teg_eval_state_free(f->state);
    f->state = state;
    for (size_t i = 0; i < s->lm->n_caches; i++) {
        teg_array_drop(s->lm->allocator, f->caches[i]);
        f->caches[i] = teg_array_ref(s->caches[i]);
    }
    if (s->length)
        memcpy(f->ids, s->ids, s->length * sizeof *f->ids);
    f->length = s->length;
    f->n_done = s->n_done;
    f->has_logits = s->has_logits;
    memcpy(f->overflow, s->overflow, sizeof f->overflow);
    if (s->has_logits)
        memcpy(f->logits, s->logits, s->lm->vocab * sizeof *f->logits);
    *fork = (struct teg_session *)f;
    return TEG_OK;
}

static void session_interrupt(struct teg_session *session)
{
    own(session)->stop = true;
}

static const char *session_overflow(const struct teg_session *session)
{
    return view(session)->overflow[0] ? view(session)->overflow : NULL;
}

static const struct teg_session_ops session_ops = {
    .prefill = session_prefill,
    .decode = session_decode,
    .logits = session_logits,
    .length = session_length,
    .tokens = session_tokens,
    .context = session_context,
    .memory = session_memory,
    .rewind = session_rewind,
    .fork = session_fork,
    .interrupt = session_interrupt,
    .overflow = session_overflow,
    .free = session_free,
};
