/* setup.c: from options to a model, a session, a prompt and its tokens: the steps that most commands begin with.
 *
 * Invariant: sources of text are never mixed up: two of them are an error, and standard input is read only when it
 * was named or nothing else was and it is no terminal, so a program that starts `tegula run -p …` with an open pipe
 * as standard input does not hang. */
#include "setup.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "interrupt.h"
#include "io.h"
#include "tuned.h"

const struct cli_choice cli_modes[] = {
    {"exact", TEG_MODE_EXACT, NULL},
    {"auto", TEG_MODE_AUTO, NULL},
    {"fast", TEG_MODE_FAST, NULL},
    {"emulate-fp16", TEG_MODE_EMULATE_FP16, NULL},
    {NULL, 0, NULL},
};

const struct cli_choice cli_kv_types[] = {
    {"f32", TEG_KV_F32, NULL}, {"f16", TEG_KV_F16, NULL},     {"bf16", TEG_KV_BF16, NULL},
    {"i16", TEG_KV_I16, NULL}, {"k16v8", TEG_KV_K16V8, NULL}, {"i8", TEG_KV_I8, NULL},
    {"q8", TEG_KV_Q8, NULL},   {"q4", TEG_KV_Q4, NULL},       {NULL, 0, NULL},
};

const struct cli_choice cli_progress_choices[] = {
    {"on", CLI_PROGRESS_ON, NULL},
    {"off", CLI_PROGRESS_OFF, NULL},
    {"auto", CLI_PROGRESS_AUTO, NULL},
    {NULL, 0, NULL},
};

static void warn(void *ctx, const char *sentence)
{
    (void)ctx;
    fprintf(stderr, "tegula: warning: %s\n", sentence);
}

enum teg_status cli_model_try(const char *path, const struct cli_model_args *args, bool vocab_only,
                              struct teg_model **model, struct teg_error *err)
{
    struct teg_model_options options;
    struct cli_progress progress;
    teg_model_options_default(&options);
    options.mode = (enum teg_mode)args->mode;
    options.vocab_only = vocab_only;
    options.tokenizer_path = args->tokenizer;
    options.target = args->target;
    options.pack_cache_dir = args->pack_cache;
    options.on_warning = warn;
    options.progress = cli_progress_update;
    options.progress_ctx = &progress;
    cli_progress_begin(&progress, (enum cli_progress_when)args->progress, "load", "bytes");
    const enum teg_status status = teg_model_open(path, &options, model, err);
    cli_progress_end(&progress);
    return status;
}

int cli_model_open(const char *path, const struct cli_model_args *args, bool vocab_only, struct teg_model **model)
{
    struct teg_error err = {0};
    if (cli_model_try(path, args, vocab_only, model, &err) != TEG_OK)
        return cli_fail_library(&err);
    return cli_interrupted() ? cli_interrupt_exit_code() : CLI_DONE;
}

struct cli_session_args cli_session_settle(const struct teg_model *model, const struct cli_session_args *args)
{
    struct cli_session_args settled = *args;
    struct cli_tuned tuned = {.chunk = 256};
    if (args->chunk == 0 || args->threads == 0)
        (void)cli_tuned_load(model, args->ctx, &tuned);
    settled.chunk = args->chunk ? args->chunk : tuned.chunk;
    settled.threads = args->threads ? args->threads : tuned.threads;
    return settled;
}

int cli_session_open(const struct teg_model *model, const struct cli_session_args *args, struct teg_session **session)
{
    struct teg_session_options options;
    struct teg_error err = {0};
    teg_session_options_default(&options);
    const struct cli_session_args settled = cli_session_settle(model, args);
    options.n_threads = (uint32_t)settled.threads;
    options.chunk_tokens = (uint32_t)settled.chunk;
    options.context_tokens = (uint32_t)args->ctx;
    options.kv_type = (enum teg_kv_type)args->kv;
    options.pin_threads = args->pin;
    if (teg_session_new(model, &options, session, &err) != TEG_OK)
        return cli_fail_library(&err);
    cli_interrupt_watch(*session);
    return CLI_DONE;
}

void cli_session_close(struct teg_session *session)
{
    const char *const overflow = session ? teg_session_overflow(session) : NULL;
    cli_interrupt_watch(NULL);
    if (overflow)
        fprintf(stderr, "first fp16 overflow: %s\n", overflow);
    teg_session_free(session);
}

int cli_prefill(struct teg_session *session, const int32_t *ids, size_t n_ids,
                const struct teg_prefill_options *options, int progress_when, uint64_t *n_chunks)
{
    struct teg_prefill_options own;
    struct teg_error err = {0};
    struct cli_progress progress;
    teg_prefill_options_default(&own);
    if (options)
        own = *options;
    if (cli_interrupted())
        return cli_interrupt_exit_code();
    cli_progress_begin(&progress, (enum cli_progress_when)progress_when, "prefill", "tokens");
    own.progress = cli_progress_update;
    own.progress_ctx = &progress;
    const enum teg_status status = teg_session_prefill(session, ids, n_ids, &own, &err);
    cli_progress_end(&progress);
    if (n_chunks)
        *n_chunks = progress.n_calls;
    if (status != TEG_OK)
        return cli_fail_library(&err);
    return cli_interrupted() ? cli_interrupt_exit_code() : CLI_DONE;
}

/* ---- prompt ---- */

bool cli_prompt_given(const struct cli_prompt_args *args)
{
    return args->text || args->file;
}

int cli_prompt_read(const struct cli_line *line, const struct cli_prompt_args *args, const char *what,
                    struct cli_bytes *bytes)
{
    const char *command = line->command->name;
    if (args->text && args->file)
        return cli_usage("too many sources: tegula %s: expected one of -p and -f, found both; keep one", command);
    if (args->text)
        return cli_bytes_append(bytes, args->text, strlen(args->text)) ? CLI_DONE : cli_fail_memory();
    if (!args->file && isatty(STDIN_FILENO))
        return cli_usage("no %s: tegula %s: expected -p TEXT, -f FILE or a pipe, found a terminal; give one of them",
                         what, command);
    return cli_input_read(args->file ? args->file : "-", what, bytes);
}

/* ---- tokens ---- */

static int reserve_ids(struct cli_ids *ids, size_t n)
{
    int32_t *moved = n <= SIZE_MAX / sizeof(*moved) ? realloc(ids->data, n * sizeof(*moved)) : NULL;
    if (!moved)
        return cli_fail_memory();
    ids->data = moved;
    ids->capacity = n;
    return CLI_DONE;
}

int cli_tokenize(const struct teg_model *model, const struct cli_bytes *text, unsigned flags, struct cli_ids *ids)
{
    struct teg_error err = {0};
    size_t n = 0;
    /* Most texts have more than two bytes per token; where not, the second round has the exact size. */
    size_t capacity = text->n / 2 + 16;
    for (int round = 0; round < 2; round++) {
        const int code = reserve_ids(ids, capacity);
        if (code != CLI_DONE)
            return code;
        if (teg_tokenize(model, text->data ? text->data : "", text->n, flags, ids->data, ids->capacity, &n, &err) !=
            TEG_OK)
            return cli_fail_library(&err);
        if (n <= ids->capacity)
            break;
        capacity = n;
    }
    ids->n = n;
    return CLI_DONE;
}

int cli_wants_bos(const struct teg_model *model, bool *wants)
{
    const struct cli_bytes empty = {0};
    struct cli_ids ids = {0};
    const int code = cli_tokenize(model, &empty, TEG_TOKENIZE_BOS, &ids);
    *wants = code == CLI_DONE && ids.n > 0 && ids.data[0] == teg_token_bos(model);
    cli_ids_free(&ids);
    return code;
}

int cli_tokenize_prompt(const struct teg_model *model, const struct cli_bytes *text, bool special, struct cli_ids *ids)
{
    bool wants_bos = false;
    int code = cli_wants_bos(model, &wants_bos);
    if (code == CLI_DONE)
        code = cli_tokenize(model, text, special ? TEG_TOKENIZE_SPECIAL : 0, ids);
    const int32_t bos = teg_token_bos(model);
    if (code != CLI_DONE || !wants_bos || (ids->n > 0 && ids->data[0] == bos))
        return code;
    if (!cli_ids_append(ids, bos))
        return cli_fail_memory();
    memmove(ids->data + 1, ids->data, (ids->n - 1) * sizeof(*ids->data));
    ids->data[0] = bos;
    return CLI_DONE;
}

int cli_check_ids(const struct teg_model *model, const struct cli_ids *ids)
{
    const int32_t n_vocab = teg_model_info(model)->vocab_tokens;
    for (size_t i = 0; n_vocab > 0 && i < ids->n; i++)
        if (ids->data[i] >= n_vocab)
            return cli_fail(
                "cannot use token ids: item %zu: expected an id below %d, the size of the vocabulary, found "
                "%d; correct the list",
                i, n_vocab, ids->data[i]);
    return CLI_DONE;
}
