/* setup.h: the options that commands share (model, session, prompt) and the steps they stand for. Each group is a
 * struct that a command embeds in its own and a macro that lists the table rows for it. */
#ifndef TEGULA_CLI_SETUP_H
#define TEGULA_CLI_SETUP_H

#include "options.h"
#include "progress.h"

extern const struct cli_choice cli_modes[], cli_kv_types[], cli_progress_choices[];

/* ---- model ---- */

struct cli_model_args {
    const char *tokenizer, *target, *pack_cache;
    int mode, progress;
};

#define CLI_PACK_CACHE_OPTION(args, field)                                                                             \
    {                                                                                                                  \
        .name = "pack-cache", .type = CLI_TEXT, .offset = offsetof(args, field.pack_cache), .placeholder = "DIR",      \
        .help = "keep packed weights in this folder, so that the next start is quicker; changes no result"             \
    }

#define CLI_TOKENIZER_OPTION(args, field)                                                                              \
    {                                                                                                                  \
        .name = "tokenizer", .type = CLI_TEXT, .offset = offsetof(args, field.tokenizer), .placeholder = "FILE",       \
        .help = "use this tokenizer.json, tokenizer.model or GGUF instead of the model's own tokenizer"                \
    }
#define CLI_PROGRESS_OPTION(args, field)                                                                               \
    {                                                                                                                  \
        .name = "progress", .type = CLI_CHOICE, .offset = offsetof(args, field.progress), .initial = "auto",           \
        .choices = cli_progress_choices, .help = "progress bar on standard error; auto: only on a terminal"            \
    }
#define CLI_MODE_OPTION(args, field)                                                                                   \
    {                                                                                                                  \
        .name = "mode", .type = CLI_CHOICE, .offset = offsetof(args, field.mode), .initial = "auto",                   \
        .choices = cli_modes,                                                                                          \
        .help = "exact: decoded weights and fp32 sums; auto: the fastest mode that this version has; emulate-fp16: "   \
                "exact, and "                                                                                          \
                "the result of every op is rounded to fp16"                                                            \
    }

#define CLI_TARGET_OPTION(args, field)                                                                                 \
    {                                                                                                                  \
        .name = "target", .type = CLI_TEXT, .offset = offsetof(args, field), .placeholder = "SYSTEM",                  \
        .help = "packages: fail where the program needs a newer system than this: iOS17, iOS18, macOS15, …"          \
    }

/* Opens a model with a progress bar; the first one leaves the report of a failure to the caller. */
enum teg_status cli_model_try(const char *path, const struct cli_model_args *args, bool vocab_only,
                              struct teg_model **model, struct teg_error *err);
int cli_model_open(const char *path, const struct cli_model_args *args, bool vocab_only, struct teg_model **model);

/* ---- session ---- */

struct cli_session_args {
    int64_t chunk, ctx, threads;
    int kv;
    bool pin;
};

#define CLI_PIN_OPTION(args, field)                                                                                    \
    {                                                                                                                  \
        .name = "pin", .type = CLI_FLAG, .offset = offsetof(args, field.pin),                                          \
        .help = "keep each thread on a CPU of its own, fast ones first; for machines that run nothing else"            \
    }

#define CLI_THREADS_HELP "threads (default: one for each CPU that the process may use)"
#define CLI_CHUNK_OPTION(args, field)                                                                                  \
    {                                                                                                                  \
        .name = "chunk", .type = CLI_INTEGER, .offset = offsetof(args, field.chunk), .placeholder = "N", .min = 1,     \
        .max = 65536,                                                                                                  \
        .help = "prompt tokens per forward pass, 1 to 65536 (default: what tune --apply found, else 256); changes "    \
                "speed and memory, never results"                                                                      \
    }
#define CLI_THREADS_OPTION(args, field)                                                                                \
    {                                                                                                                  \
        .name = "threads", .type = CLI_INTEGER, .offset = offsetof(args, field.threads), .placeholder = "N", .min = 1, \
        .max = 256, .help = CLI_THREADS_HELP                                                                           \
    }
#define CLI_KV_OPTION(args, field)                                                                                     \
    {                                                                                                                  \
        .name = "kv", .type = CLI_CHOICE, .offset = offsetof(args, field.kv), .choices = cli_kv_types,                 \
        .help = "element type of the KV cache (default: chosen by the mode, f32 in exact mode)"                        \
    }
#define CLI_CTX_OPTION(args, field)                                                                                    \
    {                                                                                                                  \
        .name = "ctx", .type = CLI_INTEGER, .offset = offsetof(args, field.ctx), .placeholder = "N", .min = 1,         \
        .max = UINT32_MAX,                                                                                             \
        .help = "most tokens of prompt and answer together (default: what the model was trained for)"                  \
    }

/* What was not given: chunk and threads that `tune --apply` found for this model here, else 256 and 0. */
struct cli_session_args cli_session_settle(const struct teg_model *model, const struct cli_session_args *args);
/* Also makes Ctrl-C stop the session's work; close it with cli_session_close. */
int cli_session_open(const struct teg_model *model, const struct cli_session_args *args, struct teg_session **session);
void cli_session_close(struct teg_session *session);

/* Prefill with a progress bar. `options` may carry callbacks for values; NULL: none. *n_chunks may be NULL. */
int cli_prefill(struct teg_session *session, const int32_t *ids, size_t n_ids,
                const struct teg_prefill_options *options, int progress_when, uint64_t *n_chunks);

/* ---- prompt ---- */

struct cli_prompt_args {
    const char *text, *file;
};

#define CLI_PROMPT_OPTIONS(args, field, content)                                                                       \
    {.name = "prompt",                                                                                                 \
     .letter = 'p',                                                                                                    \
     .type = CLI_TEXT,                                                                                                 \
     .offset = offsetof(args, field.text),                                                                             \
     .placeholder = "TEXT",                                                                                            \
     .help = content " as an argument"},                                                                               \
    {                                                                                                                  \
        .name = "file", .letter = 'f', .type = CLI_TEXT, .offset = offsetof(args, field.file), .placeholder = "FILE",  \
        .help = content " from a file, every byte of it; - is standard input (default: standard input when piped)"     \
    }

/* True when -p or -f was given. */
bool cli_prompt_given(const struct cli_prompt_args *args);
/* The bytes of -p, -f, or standard input when that is no terminal. `what` names them in messages. */
int cli_prompt_read(const struct cli_line *line, const struct cli_prompt_args *args, const char *what,
                    struct cli_bytes *bytes);

/* ---- tokens ---- */

/* Text to ids with the flags of teg_tokenize. */
int cli_tokenize(const struct teg_model *model, const struct cli_bytes *text, unsigned flags, struct cli_ids *ids);
/* The same, with BOS where the model's rules want one and the text does not start with it; never an EOS. */
int cli_tokenize_prompt(const struct teg_model *model, const struct cli_bytes *text, bool special, struct cli_ids *ids);
/* True when the model's rules put BOS in front of a text. */
int cli_wants_bos(const struct teg_model *model, bool *wants);
/* Refuses ids outside the vocabulary and names the first one. */
int cli_check_ids(const struct teg_model *model, const struct cli_ids *ids);

#endif
