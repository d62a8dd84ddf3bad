/* tegula.h: the whole public API of libtegula.
 *
 * Tegula runs language models with fast prefill of long prompts: a prompt goes through the model in chunks, a
 * stateful KV cache persists between chunks, and attention is computed tile by tile with an online softmax, so no
 * buffer grows with the square of the prompt.
 *
 * A complete program:
 *
 *     #include <stdio.h>
 *     #include <tegula.h>
 *
 *     int main(int argc, char **argv)
 *     {
 *         struct teg_error err = {0};
 *         struct teg_model *model = NULL;
 *         struct teg_session *session = NULL;
 *         int32_t ids[64];
 *         size_t n = 0;
 *         if (argc > 1 && teg_model_open(argv[1], NULL, &model, &err) == TEG_OK
 *             && teg_session_new(model, NULL, &session, &err) == TEG_OK
 *             && teg_tokenize(model, "The capital of France is", 24, TEG_TOKENIZE_BOS, ids, 64, &n, &err) == TEG_OK
 *             && teg_session_prefill(session, ids, n, NULL, &err) == TEG_OK) {
 *             const float *logits = teg_session_logits(session);
 *             int32_t best = 0;
 *             for (int32_t i = 1; i < teg_model_info(model)->vocab_tokens; i++)
 *                 if (logits[i] > logits[best])
 *                     best = i;
 *             printf("next token: %d\n", best);
 *         } else if (err.status != TEG_OK) {
 *             fprintf(stderr, "%s\n", err.message);
 *         }
 *         teg_session_free(session);
 *         teg_model_free(model);
 *         return err.status == TEG_OK ? 0 : 1;
 *     }
 *
 * Rules that hold for every function:
 *  - A function that can fail returns enum teg_status. Results go out by pointer and are untouched on failure. The
 *    last parameter, `err`, may be NULL; when it is not, it is filled on failure with one sentence that says what
 *    failed, where, what was expected and found, and what to do. It is untouched on success.
 *  - Every *_free and *_close accepts NULL.
 *  - The library never prints, exits or aborts, reads no environment variable, and keeps no global state.
 *  - A model is immutable after teg_model_open and may be used from any number of threads. A session, sampler or
 *    stream is used by one thread at a time; different sessions of one model may run at once.
 *  - Options structs start with `size`; fill them with their _default() function, then change fields. NULL means all
 *    defaults.
 */
#ifndef TEGULA_H
#define TEGULA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TEG_VERSION_MAJOR 0
#define TEG_VERSION_MINOR 1
#define TEG_VERSION_PATCH 0

#if defined(__GNUC__)
#define TEG_API __attribute__((visibility("default")))
#else
#define TEG_API
#endif

/* ---- status, errors, memory ---- */

enum teg_status {
    TEG_OK = 0,
    TEG_ERR_ARGUMENT,     /* the caller passed something that can never work */
    TEG_ERR_MEMORY,       /* the allocator returned NULL */
    TEG_ERR_IO,           /* the operating system refused to open, map, read or write */
    TEG_ERR_FORMAT,       /* a file is damaged or lies about itself */
    TEG_ERR_UNSUPPORTED,  /* a valid input that Tegula cannot run; the message names the reason */
    TEG_ERR_CONTEXT_FULL, /* the session has no room for the tokens; nothing was changed */
    TEG_ERR_INTERRUPTED,  /* a callback or teg_session_interrupt() asked to stop */
};

/* One failure. `offset` is the byte position in the file where that makes sense, else 0. */
struct teg_error {
    enum teg_status status;
    uint64_t offset;
    char message[480];
};

/* Memory comes from here. `alloc` returns NULL on failure; `align` is a power of two. `free` gets the size that was
 * asked for. Both must be callable from any thread. */
struct teg_allocator {
    void *(*alloc)(void *ctx, size_t size_bytes, size_t align_bytes);
    void (*free)(void *ctx, void *ptr, size_t size_bytes);
    void *ctx;
};

/* Text that the library made: UTF-8 unless said otherwise, NUL-terminated (n_bytes does not count the NUL). */
struct teg_text {
    char *bytes;
    size_t n_bytes;
};

/* Releases a text and clears it. */
TEG_API void teg_text_free(struct teg_text *text);

/* "0.1.0" */
TEG_API const char *teg_version(void);

/* The status as a word: "ok", "bad argument", … */
TEG_API const char *teg_status_name(enum teg_status status);

/* Progress of long work: `done` of `total` units. Return false to stop; the call then returns TEG_ERR_INTERRUPTED. */
typedef bool (*teg_progress_fn)(void *ctx, uint64_t done, uint64_t total);

/* ---- models ---- */

struct teg_model;

enum teg_mode {
    TEG_MODE_AUTO = 0, /* the fastest mode that this version has for the model */
    TEG_MODE_EXACT,    /* decoded weights, fp32 accumulation: the truth */
    TEG_MODE_FAST,     /* int8 activations */
};

struct teg_model_options {
    size_t size;
    const struct teg_allocator *allocator; /* NULL: malloc; must outlive the model and its sessions */
    enum teg_mode mode;
    bool vocab_only;            /* read metadata and tokenizer only; sessions cannot be made */
    const char *tokenizer_path; /* a tokenizer.json or GGUF that replaces the model's own; NULL: the model's own */
    teg_progress_fn progress;   /* called while loading, units are bytes; may be NULL */
    void *progress_ctx;
};

TEG_API void teg_model_options_default(struct teg_model_options *options);

struct teg_model_info {
    const char *format;       /* "GGUF v3", "safetensors" */
    const char *architecture; /* "llama", "qwen2", … */
    const char *name;         /* from the metadata, "" when absent */
    const char *mode;         /* "exact" or "fast": what sessions will use */
    int32_t vocab_tokens;     /* rows of the logits */
    uint32_t n_layers, n_heads, n_kv_heads, head_width, width, ffn_width;
    uint32_t context_tokens; /* the context the model was trained for */
    uint64_t n_parameters;
    uint64_t weights_bytes; /* bytes of weights held while the model is open */
};

/* Opens a model: a .gguf file (any part of a split set: the first), or a directory with config.json and
 * *.safetensors. The caller owns *model and frees it after its last session. */
TEG_API enum teg_status teg_model_open(const char *path, const struct teg_model_options *options,
                                       struct teg_model **model, struct teg_error *err);
TEG_API void teg_model_free(struct teg_model *model);

/* Facts about the model; lives as long as the model. */
TEG_API const struct teg_model_info *teg_model_info(const struct teg_model *model);

/* One metadata entry; `value` is JSON text. */
struct teg_metadata {
    const char *key;
    const char *type; /* "u32", "string", "array of string[49152]" */
};
TEG_API size_t teg_model_metadata_count(const struct teg_model *model);
TEG_API enum teg_status teg_model_metadata(const struct teg_model *model, size_t index, struct teg_metadata *item);
/* The value of entry `index` as JSON; an array longer than `max_items` is cut and ends with "…". 0: no limit. */
TEG_API enum teg_status teg_model_metadata_json(const struct teg_model *model, size_t index, size_t max_items,
                                                struct teg_text *json, struct teg_error *err);

/* One stored tensor; dims are outermost first, the last one is contiguous. */
struct teg_weight {
    const char *name;
    const char *dtype; /* "Q4_1", "F32", … */
    uint32_t rank;
    uint64_t dims[8];
    uint64_t n_bytes;
    uint64_t file_offset;
};
TEG_API size_t teg_model_weight_count(const struct teg_model *model);
TEG_API enum teg_status teg_model_weight(const struct teg_model *model, size_t index, struct teg_weight *weight);

/* The graph (every op with its shapes) or the plan (every step with its kernel and buffers) as text, a line each. */
enum teg_dump { TEG_DUMP_OPS, TEG_DUMP_PLAN };
TEG_API enum teg_status teg_model_dump(const struct teg_model *model, enum teg_dump what, struct teg_text *text,
                                       struct teg_error *err);

/* ---- tokens and text ---- */

enum {
    TEG_TOKENIZE_SPECIAL = 1,   /* special tokens in the text become their ids; otherwise they are plain text */
    TEG_TOKENIZE_BOS = 2,       /* add BOS (and EOS) where the model's own rules say so */
    TEG_TOKENIZE_BOS_FORCE = 4, /* add BOS whatever the model says (an error where it has none) */
};

/* Text to token ids. Invalid UTF-8 reads as U+FFFD for each maximal bad sequence. *n_ids is the number of ids the
 * text has; when that is more than `capacity`, only the first `capacity` are written and the call still succeeds, so
 * a first call with capacity 0 (ids may be NULL) gives the size. */
TEG_API enum teg_status teg_tokenize(const struct teg_model *model, const char *text, size_t n_bytes, unsigned flags,
                                     int32_t *ids, size_t capacity, size_t *n_ids, struct teg_error *err);

/* Token ids to bytes, special tokens included as written in the vocabulary. The bytes may be invalid UTF-8 when the
 * ids are not a whole text. */
TEG_API enum teg_status teg_detokenize(const struct teg_model *model, const int32_t *ids, size_t n_ids,
                                       struct teg_text *text, struct teg_error *err);

/* True when generation ends at this token (EOS, end of turn). */
TEG_API bool teg_token_is_end(const struct teg_model *model, int32_t id);
/* The BOS id, or -1. */
TEG_API int32_t teg_token_bos(const struct teg_model *model);

struct teg_chat_options {
    size_t size;
    bool add_generation_prompt;
    const char *tools_json;    /* an array, or NULL */
    const char *template_text; /* replaces the model's own template; NULL: the model's */
    int64_t now_unix;          /* what strftime_now sees, seconds; 0: the clock */
};
TEG_API void teg_chat_options_default(struct teg_chat_options *options);

/* Renders a conversation, JSON text [{"role":…,"content":…}, …], with the model's own chat template. */
TEG_API enum teg_status teg_chat_render(const struct teg_model *model, const char *messages_json, size_t n_bytes,
                                        const struct teg_chat_options *options, struct teg_text *text,
                                        struct teg_error *err);

/* Streaming text: push token ids, take whole UTF-8 characters. Holds back what could be the start of a stop string. */
struct teg_stream;
TEG_API enum teg_status teg_stream_new(const struct teg_model *model, const char *const *stops, size_t n_stops,
                                       struct teg_stream **stream, struct teg_error *err);
/* *bytes (not NUL-terminated, valid until the next call) is the text that became certain; *stopped is true once a
 * stop string was seen, and the text ends before it. */
TEG_API enum teg_status teg_stream_push(struct teg_stream *stream, int32_t id, const char **bytes, size_t *n_bytes,
                                        bool *stopped, struct teg_error *err);
/* What is still held back; an incomplete character becomes U+FFFD. */
TEG_API enum teg_status teg_stream_finish(struct teg_stream *stream, const char **bytes, size_t *n_bytes,
                                          struct teg_error *err);
TEG_API void teg_stream_free(struct teg_stream *stream);

/* ---- sessions ---- */

struct teg_session;

enum teg_kv_type {
    TEG_KV_AUTO = 0, /* f32 in exact mode, f16 in fast mode */
    TEG_KV_F32,
    TEG_KV_F16,
    TEG_KV_BF16,
};

struct teg_session_options {
    size_t size;
    uint32_t n_threads;      /* 0: the CPUs this process may use; at most 256 */
    uint32_t chunk_tokens;   /* prompt tokens per forward pass, 1 to 65,536; default 256 */
    uint32_t context_tokens; /* most tokens the session may hold; 0: what the model was trained for */
    enum teg_kv_type kv_type;
};
TEG_API void teg_session_options_default(struct teg_session_options *options);

struct teg_memory {
    uint64_t weights_bytes; /* of the model, shared by its sessions */
    uint64_t kv_bytes;      /* KV pages */
    uint64_t scratch_bytes; /* activations and per-thread buffers; does not depend on the context */
};

/* The memory a session with these options needs to hold n_tokens; allocates nothing. */
TEG_API enum teg_status teg_session_bytes(const struct teg_model *model, const struct teg_session_options *options,
                                          size_t n_tokens, struct teg_memory *memory, struct teg_error *err);

/* A new session is always empty. The model must outlive it. */
TEG_API enum teg_status teg_session_new(const struct teg_model *model, const struct teg_session_options *options,
                                        struct teg_session **session, struct teg_error *err);

struct teg_prefill_options {
    size_t size;
    teg_progress_fn progress; /* after each chunk, units are tokens of this call; may be NULL */
    void *progress_ctx;
    /* Logits of every token, a few rows at a time, in order: rows first_row … first_row + n_rows - 1 of this call,
     * float32 [n_rows, V]. NULL: only the last row is computed, for teg_session_logits(). */
    bool (*on_logits)(void *ctx, size_t first_row, size_t n_rows, const float *logits);
    void *on_logits_ctx;
    /* Values inside the forward pass, for comparing and calibrating: called after a named step with its float32
     * result [n_rows, width]. NULL: no cost. */
    void (*on_value)(void *ctx, const char *name, size_t first_row, size_t n_rows, size_t width, const float *data);
    void *on_value_ctx;
};
TEG_API void teg_prefill_options_default(struct teg_prefill_options *options);

/* Appends n_ids tokens: runs them through the model in chunks and leaves the logits of the last one in the session.
 * On TEG_ERR_CONTEXT_FULL or a bad id nothing was changed. On TEG_ERR_INTERRUPTED the chunks that were done are in
 * the session (see teg_session_length), the current one is not. */
TEG_API enum teg_status teg_session_prefill(struct teg_session *session, const int32_t *ids, size_t n_ids,
                                            const struct teg_prefill_options *options, struct teg_error *err);
/* Appends one token. */
TEG_API enum teg_status teg_session_decode(struct teg_session *session, int32_t id, struct teg_error *err);

/* float32 [V] of the last token; NULL when the session is empty or was rewound since. Valid until the next call. */
TEG_API const float *teg_session_logits(const struct teg_session *session);
/* Tokens in the session. */
TEG_API size_t teg_session_length(const struct teg_session *session);
/* The ids of those tokens. */
TEG_API const int32_t *teg_session_tokens(const struct teg_session *session);
/* The most tokens it can hold. */
TEG_API size_t teg_session_context(const struct teg_session *session);
/* What it holds now. */
TEG_API void teg_session_memory(const struct teg_session *session, struct teg_memory *memory);

/* Drops every token after the first n_tokens. */
TEG_API enum teg_status teg_session_rewind(struct teg_session *session, size_t n_tokens, struct teg_error *err);
/* A second session with the same tokens; pages are shared until one of the two changes them. */
TEG_API enum teg_status teg_session_fork(const struct teg_session *session, struct teg_session **fork,
                                         struct teg_error *err);
/* Asks a running prefill or decode to stop. The one call that a signal handler or another thread may make. */
TEG_API void teg_session_interrupt(struct teg_session *session);
TEG_API void teg_session_free(struct teg_session *session);

/* ---- sampling ---- */

struct teg_sampler;

struct teg_logit_bias {
    int32_t id;
    float bias; /* added to the logit; -INFINITY forbids the token */
};

struct teg_sampler_options {
    size_t size;
    float temperature;       /* 0: greedy; default 0.8 */
    uint32_t top_k;          /* 0: off; default 40 */
    float top_p;             /* 1: off; default 0.95 */
    float min_p;             /* 0: off; default 0.05 */
    float repeat_penalty;    /* 1: off (default); divides positive and multiplies negative logits of recent tokens */
    float frequency_penalty; /* 0: off; times the count in the recent tokens, subtracted */
    float presence_penalty;  /* 0: off; subtracted once */
    uint32_t repeat_last_n;  /* how many tokens are recent; default 64 */
    uint64_t seed;           /* the same seed gives the same text */
    const struct teg_logit_bias *biases; /* copied */
    size_t n_biases;
};
TEG_API void teg_sampler_options_default(struct teg_sampler_options *options);

/* Order: bias, penalties, top-k, temperature, top-p, min-p, draw. */
TEG_API enum teg_status teg_sampler_new(const struct teg_model *model, const struct teg_sampler_options *options,
                                        struct teg_sampler **sampler, struct teg_error *err);
/* Tells the sampler of a token that now belongs to the text (prompt tokens too), for the penalties. */
TEG_API void teg_sampler_accept(struct teg_sampler *sampler, int32_t id);
/* Picks a token from float32 [V] logits and accepts it. Ties go to the lower id; NaN never wins. */
TEG_API int32_t teg_sampler_pick(struct teg_sampler *sampler, const float *logits);
TEG_API void teg_sampler_free(struct teg_sampler *sampler);

#ifdef __cplusplus
}
#endif
#endif
