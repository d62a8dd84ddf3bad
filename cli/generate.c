/* generate.c: prefill, then decode token by token.
 *
 * Invariant: prefill and decode are timed apart. The first token comes from the prompt's last logits, so it belongs
 * to prefill; decode counts forward passes, one fewer than tokens. The last token is never run through the model:
 * nobody asks for what follows it. Text leaves as soon as it is certain and is flushed piece by piece. */
#include <string.h>

#include "generate.h"
#include "interrupt.h"

void cli_generation_free(struct generation *generation)
{
    cli_ids_free(&generation->tokens);
    cli_bytes_free(&generation->text);
}

/* Drops what the session holds beyond its common start with the prompt. At least one prompt token is left to run,
 * because the logits of the last one are needed. */
static int rewind_to_prefix(struct teg_session *session, const struct cli_ids *prompt, size_t *n_common)
{
    struct teg_error err = {0};
    const size_t length = teg_session_length(session);
    const int32_t *held = teg_session_tokens(session);
    size_t n = 0;
    while (n < length && n + 1 < prompt->n && held[n] == prompt->data[n])
        n++;
    *n_common = n;
    if (n < length && teg_session_rewind(session, n, &err) != TEG_OK)
        return cli_fail_library(&err);
    return CLI_DONE;
}

static int prefill_prompt(struct generator *g, const struct cli_ids *prompt, struct generation *out)
{
    out->prompt_tokens = prompt->n;
    int code = rewind_to_prefix(g->session, prompt, &out->reused_tokens);
    if (code != CLI_DONE)
        return code;
    const double start = cli_now();
    code = cli_prefill(g->session, prompt->data + out->reused_tokens, prompt->n - out->reused_tokens, NULL,
                       g->args->model.progress, &out->n_chunks);
    out->prefill_seconds = cli_now() - start;
    for (size_t i = out->reused_tokens; code == CLI_DONE && i < prompt->n; i++)
        teg_sampler_accept(g->sampler, prompt->data[i]);
    return code;
}

/* Hands text on: to the result, and to standard output unless the result is a document. */
static int emit(struct generator *g, struct generation *out, const char *bytes, size_t n_bytes)
{
    if (n_bytes == 0)
        return CLI_DONE;
    if (!cli_bytes_append(&out->text, bytes, n_bytes))
        return cli_fail_memory();
    if (!g->output)
        return CLI_DONE;
    (void)cli_output_write(g->output, bytes, n_bytes);
    return cli_output_flush(g->output);
}

/* Takes token `id`: *done is set when a stop string was seen. */
static int take_token(struct generator *g, struct generation *out, struct teg_stream *stream, int32_t id, bool *done)
{
    struct teg_error err = {0};
    const char *bytes = NULL;
    size_t n_bytes = 0;
    if (!cli_ids_append(&out->tokens, id))
        return cli_fail_memory();
    if (teg_stream_push(stream, id, &bytes, &n_bytes, done, &err) != TEG_OK)
        return cli_fail_library(&err);
    if (*done)
        out->stop = "stop";
    return emit(g, out, bytes, n_bytes);
}

static int decode_loop(struct generator *g, struct generation *out, struct teg_stream *stream, double start)
{
    struct teg_error err = {0};
    const size_t limit = g->args->n_tokens < 0 ? SIZE_MAX : (size_t)g->args->n_tokens;
    out->decode_depth = teg_session_length(g->session);
    out->stop = "length";
    double decode_start = cli_now();
    while (out->tokens.n < limit) {
        if (cli_interrupted())
            return cli_interrupt_exit_code();
        const int32_t id = teg_sampler_pick(g->sampler, teg_session_logits(g->session));
        if (out->tokens.n == 0) {
            decode_start = cli_now();
            out->first_token_seconds = decode_start - start;
        }
        if (!g->args->ignore_eos && teg_token_is_end(g->model, id)) {
            out->stop = "eos";
            break;
        }
        bool done = false;
        const int code = take_token(g, out, stream, id, &done);
        if (code != CLI_DONE)
            return code;
        if (done || out->tokens.n == limit || teg_session_length(g->session) >= teg_session_context(g->session))
            break;
        if (teg_session_decode(g->session, id, &err) != TEG_OK)
            return cli_fail_library(&err);
        out->decode_tokens++;
        out->decode_seconds = cli_now() - decode_start;
    }
    return CLI_DONE;
}

/* Text that was held back for a stop string that did not come. */
static int finish_stream(struct generator *g, struct generation *out, struct teg_stream *stream)
{
    struct teg_error err = {0};
    const char *bytes = NULL;
    size_t n_bytes = 0;
    if (out->stop && strcmp(out->stop, "stop") == 0)
        return CLI_DONE;
    if (teg_stream_finish(stream, &bytes, &n_bytes, &err) != TEG_OK)
        return cli_fail("%s", err.message);
    return emit(g, out, bytes, n_bytes);
}

int cli_generate(struct generator *g, const struct cli_ids *prompt, struct generation *out)
{
    struct teg_error err = {0};
    struct teg_stream *stream = NULL;
    *out = (struct generation){0};
    if (teg_stream_new(g->model, g->args->stops.data, g->args->stops.n, &stream, &err) != TEG_OK)
        return cli_fail_library(&err);
    const double start = cli_now();
    int code = prefill_prompt(g, prompt, out);
    if (code == CLI_DONE)
        code = decode_loop(g, out, stream, start);
    if (code != CLI_DONE)
        out->stop = NULL;
    if (code == CLI_DONE || code > 128) {
        if (code > 128)
            out->stop = "interrupt";
        const int finished = finish_stream(g, out, stream);
        code = code != CLI_DONE ? code : finished;
    }
    teg_stream_free(stream);
    return code;
}
