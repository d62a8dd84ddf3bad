/* run_report.c: the figures of `run`: closing lines for people, one document for programs.
 *
 * Invariant: every rate stands beside its number of tokens and its depth, and a unit is part of each name. Rates of
 * nothing are 0, never a division by zero. */
#include <string.h>

#include "generate.h"

static double rate(size_t n, double seconds)
{
    return n > 0 && seconds > 0 ? (double)n / seconds : 0;
}

void cli_generation_summary(const struct generator *g, const struct generation *out)
{
    struct teg_memory memory = {0};
    char weights[32], kv[32], scratch[32], peak[32];
    const char *faint = cli_style(stderr, CLI_STYLE_FAINT), *plain = cli_style(stderr, CLI_STYLE_RESET);
    const size_t n_new = out->prompt_tokens - out->reused_tokens;
    teg_session_memory(g->session, &memory);
    fprintf(stderr, "%s", faint);
    fprintf(stderr, "prefill: %zu tokens from depth %zu in %llu chunks, %.3f s, %.1f tokens/s, first token %.1f ms\n",
            n_new, out->reused_tokens, (unsigned long long)out->n_chunks, out->prefill_seconds,
            rate(n_new, out->prefill_seconds), out->first_token_seconds * 1e3);
    fprintf(stderr, "decode:  %zu tokens from depth %zu, %.3f s, %.1f tokens/s, stopped by %s\n", out->decode_tokens,
            out->decode_depth, out->decode_seconds, rate(out->decode_tokens, out->decode_seconds), out->stop);
    fprintf(stderr, "memory:  weights %s, KV %s, scratch %s, peak RSS %s%s\n",
            cli_bytes_text(memory.weights_bytes, weights), cli_bytes_text(memory.kv_bytes, kv),
            cli_bytes_text(memory.scratch_bytes, scratch), cli_bytes_text(cli_peak_rss_bytes(), peak), plain);
}

static json_t *options_json(const struct generator *g)
{
    const struct run_args *a = g->args;
    const struct cli_session_args settled = cli_session_settle(g->model, &a->session);
    json_t *stops = json_array(), *biases = json_array();
    for (size_t i = 0; i < a->stops.n; i++)
        json_array_append_new(stops, cli_json_text(a->stops.data[i], strlen(a->stops.data[i])));
    for (size_t i = 0; i < a->logit_bias.n; i++)
        json_array_append_new(biases, cli_json_text(a->logit_bias.data[i], strlen(a->logit_bias.data[i])));
    json_t *options = json_pack("{s:I, s:b, s:b, s:b, s:b, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:I, s:o}", //
                                "n", (json_int_t)a->n_tokens, "chat", a->chat, "templated", a->chat || a->system,
                                "special", a->special, "ignore_eos", a->ignore_eos,                   //
                                "temp", cli_json_real(a->temperature), "top_k", (json_int_t)a->top_k, //
                                "top_p", cli_json_real(a->top_p), "min_p", cli_json_real(a->min_p),   //
                                "repeat_penalty", cli_json_real(a->repeat_penalty),                   //
                                "frequency_penalty", cli_json_real(a->frequency_penalty),             //
                                "presence_penalty", cli_json_real(a->presence_penalty),               //
                                "repeat_last_n", (json_int_t)a->repeat_last_n,                        //
                                "seed", cli_json_u64(g->seed));
    json_t *more = json_pack("{s:o, s:o, s:I, s:I, s:o, s:s, s:s}", "stop", stops, "logit_bias", biases, "chunk",
                             (json_int_t)settled.chunk, "ctx", (json_int_t)teg_session_context(g->session), //
                             "threads", settled.threads ? json_integer(settled.threads) : json_null(),      //
                             "kv", a->session.kv ? cli_choice_name(cli_kv_types, a->session.kv) : "auto",   //
                             "mode", teg_model_info(g->model)->mode);
    if (!options || !more || json_object_update(options, more) != 0) {
        json_decref(options);
        options = NULL;
    }
    json_decref(more);
    return options;
}

json_t *cli_generation_json(const struct generator *g, const struct generation *out, json_t *messages)
{
    struct teg_memory memory = {0};
    const size_t n_new = out->prompt_tokens - out->reused_tokens;
    teg_session_memory(g->session, &memory);
    json_t *prefill = json_pack("{s:I, s:I, s:I, s:o, s:o, s:o}", "tokens", (json_int_t)n_new,         //
                                "reused_tokens", (json_int_t)out->reused_tokens,                       //
                                "chunks", (json_int_t)out->n_chunks,                                   //
                                "seconds", cli_json_real(out->prefill_seconds),                        //
                                "tokens_per_second", cli_json_real(rate(n_new, out->prefill_seconds)), //
                                "first_token_ms", cli_json_real(out->first_token_seconds * 1e3));
    json_t *decode = json_pack("{s:I, s:I, s:o, s:o}", "tokens", (json_int_t)out->decode_tokens, //
                               "depth_tokens", (json_int_t)out->decode_depth,                    //
                               "seconds", cli_json_real(out->decode_seconds),                    //
                               "tokens_per_second", cli_json_real(rate(out->decode_tokens, out->decode_seconds)));
    json_t *bytes = json_pack("{s:o, s:o, s:o, s:o}", "weights_bytes", cli_json_u64(memory.weights_bytes), //
                              "kv_bytes", cli_json_u64(memory.kv_bytes),                                   //
                              "scratch_bytes", cli_json_u64(memory.scratch_bytes),                         //
                              "peak_rss_bytes", cli_json_u64(cli_peak_rss_bytes()));
    const char *const overflow = teg_session_overflow(g->session);
    json_t *document = json_pack("{s:o, s:I, s:o, s:s, s:o, s:o, s:o, s:o, s:o}",         //
                                 "text", cli_json_text(out->text.data, out->text.n),      //
                                 "prompt_tokens", (json_int_t)out->prompt_tokens,         //
                                 "tokens", cli_json_ids(out->tokens.data, out->tokens.n), //
                                 "stop", out->stop ? out->stop : "interrupt",             //
                                 "prefill", prefill, "decode", decode, "memory", bytes, "options", options_json(g),
                                 "overflow_op", overflow ? cli_json_text(overflow, strlen(overflow)) : json_null());
    if (messages && (!document || json_object_set_new(document, "messages", messages) != 0)) {
        json_decref(document);
        document = NULL;
    }
    return document;
}
