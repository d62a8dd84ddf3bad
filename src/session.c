/* session.c: teg_session_* of tegula.h for every kind of session: a jump through the table that a session begins with.
 * What a kind must promise (a failed call changes nothing, interrupt is safe in a signal handler) is written at the
 * functions in tegula.h; nothing is added here. */
#include "run/session.h"

static const struct teg_session_ops *ops_of(const struct teg_session *session)
{
    return ((const struct teg_session_base *)session)->ops;
}

enum teg_status teg_session_prefill(struct teg_session *session, const int32_t *ids, size_t n_ids,
                                    const struct teg_prefill_options *options, struct teg_error *err)
{
    return ops_of(session)->prefill(session, ids, n_ids, options, err);
}

enum teg_status teg_session_decode(struct teg_session *session, int32_t id, struct teg_error *err)
{
    return ops_of(session)->decode(session, id, err);
}

const float *teg_session_logits(const struct teg_session *session)
{
    return ops_of(session)->logits(session);
}

size_t teg_session_length(const struct teg_session *session)
{
    return ops_of(session)->length(session);
}

const int32_t *teg_session_tokens(const struct teg_session *session)
{
    return ops_of(session)->tokens(session);
}

size_t teg_session_context(const struct teg_session *session)
{
    return ops_of(session)->context(session);
}

void teg_session_memory(const struct teg_session *session, struct teg_memory *memory)
{
    ops_of(session)->memory(session, memory);
}

enum teg_status teg_session_rewind(struct teg_session *session, size_t n_tokens, struct teg_error *err)
{
    return ops_of(session)->rewind(session, n_tokens, err);
}

enum teg_status teg_session_fork(const struct teg_session *session, struct teg_session **fork, struct teg_error *err)
{
    return ops_of(session)->fork(session, fork, err);
}

void teg_session_interrupt(struct teg_session *session)
{
    ops_of(session)->interrupt(session);
}

const char *teg_session_overflow(const struct teg_session *session)
{
    return ops_of(session)->overflow(session);
}

void teg_session_free(struct teg_session *session)
{
    if (session)
        ops_of(session)->free(session);
}
