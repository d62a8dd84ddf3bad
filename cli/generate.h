/* generate.h: one prompt through a session and the text that follows, with the figures that `run` reports. */
#ifndef TEGULA_CLI_GENERATE_H
#define TEGULA_CLI_GENERATE_H

#include "io.h"
#include "setup.h"

struct run_args {
    struct cli_model_args model;
    struct cli_session_args session;
    struct cli_prompt_args prompt;
    bool chat, raw, special, ignore_eos, json;
    const char *system;
    int64_t n_tokens, top_k, repeat_last_n, seed;
    double temperature, top_p, min_p, repeat_penalty, frequency_penalty, presence_penalty;
    struct cli_texts logit_bias, stops;
};

/* What `run` works with while it runs. */
struct generator {
    const struct run_args *args;
    const struct teg_model *model;
    struct teg_session *session;
    struct teg_sampler *sampler;
    struct cli_output *output; /* NULL: collect only (--json) */
    uint64_t seed;             /* the one in use */
};

/* One turn. */
struct generation {
    size_t prompt_tokens, reused_tokens; /* reused: at the start of the prompt, already in the session */
    uint64_t n_chunks;
    double prefill_seconds, first_token_seconds;
    size_t decode_tokens, decode_depth; /* decode steps, and the tokens in the session before the first */
    double decode_seconds;
    const char *stop; /* "eos", "length", "stop", "interrupt"; NULL: failed */
    struct cli_ids tokens;
    struct cli_bytes text;
};

/* Makes the session hold exactly the prompt (keeping the prefix that it holds already), then generates. Returns the
 * exit code; after an interrupt the figures are valid and generation->stop is "interrupt". */
int cli_generate(struct generator *generator, const struct cli_ids *prompt, struct generation *generation);
void cli_generation_free(struct generation *generation);

/* The closing lines on standard error. */
void cli_generation_summary(const struct generator *generator, const struct generation *generation);
/* The document of run --json; `messages` (taken over, may be NULL) is the conversation. */
json_t *cli_generation_json(const struct generator *generator, const struct generation *generation, json_t *messages);

/* The conversation of --chat, or the single templated turn of --system. `first` is the first user turn, NULL: read
 * it. */
int cli_chat(struct generator *generator, const struct cli_bytes *first);

#endif
