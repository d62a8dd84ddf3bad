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
    TEG_MODE_FAST,     /* int8 activations; float weights are rounded to int8 in blocks of 32 (automatic keeps them) */
    TEG_MODE_EMULATE_FP16, /* exact, and the result of every op is rounded to fp16, as on a device; a Core ML package
                              runs op by op as its program says. See teg_session_overflow(). */
};

struct teg_model_options {
    size_t size;
    const struct teg_allocator *allocator; /* NULL: malloc; must outlive the model and its sessions */
    enum teg_mode mode;
    bool vocab_only; /* read metadata and tokenizer only; sessions cannot be made */
    const char
        *tokenizer_path; /* a tokenizer.json, tokenizer.model or GGUF instead of the model's own, which NULL means */
    teg_progress_fn progress; /* called while loading, units are bytes; may be NULL */
    void *progress_ctx;
    const char *target; /* packages: "iOS17", "macOS15", …: fail where the package needs a newer system; NULL: any */
    /* A folder (made where it is missing) that keeps packed weights: fast mode writes them there once, one file for
     * each model and kind of CPU, and later opens map that file instead of packing. A file that is damaged, or not of
     * this model and version, is written again. Never an error: what goes wrong is a warning. Whoever can write to the
     * folder can change the model. NULL: none. */
    const char *pack_cache_dir;
    /* Things that do not fail but should be known, one sentence each, from the calling thread; may be NULL. */
    void (*on_warning)(void *ctx, const char *sentence);
    void *on_warning_ctx;
};

TEG_API void teg_model_options_default(struct teg_model_options *options);

struct teg_model_info {
    const char *format;       /* "GGUF v3", "safetensors" */
    const char *architecture; /* "llama", "qwen2", … */
    const char *name;         /* from the metadata, "" when absent */
    const char *mode;         /* "exact", "fast" or "emulate-fp16": what sessions will use */
    int32_t vocab_tokens;     /* rows of the logits */
    uint32_t n_layers, n_heads, n_kv_heads, head_width, width, ffn_width;
    uint32_t context_tokens; /* the context the model was trained for */
    uint64_t n_parameters;
    uint64_t weights_bytes; /* bytes of weights held while the model is open */
};

/* Opens a model: a .gguf file (any part of a split set), a directory with config.json and *.safetensors, a Core ML
 * package that is a language model, or a folder whose tegula.json (docs/FORMATS.md) lists the packages of one. A
 * program that is recognised runs like any other model; another one op by op, with the same calls: slower, and a rewind
 * runs the text again. The metadata entry "contract" says what was found. Without a tokenizer.json only calls that need
 * no text work. The caller owns *model and frees it after its last session. */
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
    TEG_KV_AUTO =
        0, /* f32 in exact mode; in fast mode k16v8 where the CPU multiplies it faster than floats, else f16 */
    TEG_KV_F32,
    TEG_KV_F16,
    TEG_KV_BF16,
    TEG_KV_I16,   /* 16-bit integers, one scale for each token and head: multiplied as integers */
    TEG_KV_Q8,    /* 8 bits, scale and offset for each 32 components: 9 bits in all; i16 arithmetic */
    TEG_KV_Q4,    /* 4 bits, the same: 5 bits in all */
    TEG_KV_I8,    /* 8-bit integers, one scale for each token and head: 9 bits in all; multiplied as bytes */
    TEG_KV_K16V8, /* keys as in i16, values as in i8: 12 to 13 bits in all */
};

struct teg_session_options {
    size_t size;
    uint32_t n_threads;      /* 0: the CPUs this process may use; at most 256 */
    uint32_t chunk_tokens;   /* prompt tokens per forward pass, 1 to 65,536; default 256 */
    uint32_t context_tokens; /* most tokens the session may hold; 0: what the model was trained for */
    enum teg_kv_type kv_type;
    /* Each thread stays on a CPU of its own, the fastest ones first; the calling thread only while it is inside a call.
     * For machines that run nothing else: where something else runs, a pinned thread waits for it. Ignored where the
     * system has no such call, and by models that run op by op. */
    bool pin_threads;
};
TEG_API void teg_session_options_default(struct teg_session_options *options);

struct teg_memory {
    uint64_t weights_bytes; /* of the model, shared by its sessions */
    uint64_t kv_bytes;      /* KV pages */
    uint64_t scratch_bytes; /* activations and per-thread buffers; the same for every context of a chunk or more */
};

/* The memory a session with these options needs to hold n_tokens; allocates nothing. */
TEG_API enum teg_status teg_session_bytes(const struct teg_model *model, const struct teg_session_options *options,
                                          size_t n_tokens, struct teg_memory *memory, struct teg_error *err);

/* ---- what work costs, and what the machine can do ---- */

/* Multiply-adds and bytes of prefilling n_tokens tokens behind first_position others in a session with these options
 * (in chunks; logits of the last row), or of decoding one. Counted from the plan, nothing is run. */
struct teg_work {
    uint64_t int8_macs;      /* quantized weights times quantized activations */
    uint64_t float_macs;     /* other weights */
    uint64_t attention_macs; /* of the keys that queries see */
    uint64_t weight_bytes;   /* each weight once a chunk */
    uint64_t kv_bytes;       /* keys and values: each visible one once a chunk, and what is written */
};
TEG_API enum teg_status teg_session_work(const struct teg_model *model, const struct teg_session_options *options,
                                         size_t first_position, size_t n_tokens, struct teg_work *work,
                                         struct teg_error *err);

/* The rates that nothing on this machine can pass, measured in about a second with all threads at once. */
struct teg_machine {
    char cpu[64];
    uint32_t n_threads;
    struct {
        const char *name, *instruction; /* "int8", "fp16", "bf16", "fp32"; "VPDPBUSD zmm", … or "" */
        double gmacs_per_second;        /* 1e9 multiply-adds a second, all threads together; 0: none */
    } roads[4];
    double read_gb_per_second; /* 1e9 bytes a second from memory */
};
/* n_threads 0: the CPUs this process may use. */
TEG_API enum teg_status teg_machine_measure(uint32_t n_threads, struct teg_machine *machine, struct teg_error *err);

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
/* The ids of those tokens; valid until the next call that changes the session. */
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
/* Asks a running prefill or decode to stop; when none runs, the next one stops at once, and only that one. The one call
 * that a signal handler or another thread may make. */
TEG_API void teg_session_interrupt(struct teg_session *session);
/* emulate-fp16: the first op since the session was made whose result overflowed fp16 (an infinity out of finite
 * numbers), with its layer where that is known: "op sq_cast_fp16 (layer 3)"; NULL: none, or another mode. Valid until
 * the session is freed. */
TEG_API const char *teg_session_overflow(const struct teg_session *session);
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

/* ---- ML programs ---- */

/* A Core ML ML Program: a .mlpackage or .mlmodelc directory. Immutable after teg_program_open and usable from any
 * number of threads; a state is used by one thread at a time.
 *
 *     struct teg_program *program = NULL;
 *     struct teg_values *outputs = NULL;
 *     struct teg_feature_value x = {.name = "x", .kind = TEG_FEATURE_ARRAY, .element = TEG_ELEMENT_F32,
 *                                   .rank = 2, .dims = {1, 64}, .data = floats};
 *     if (teg_program_open("m.mlpackage", NULL, &program, &err) == TEG_OK
 *         && teg_program_predict(program, &x, 1, NULL, &outputs, &err) == TEG_OK)
 *         use(teg_values_at(outputs, 0)->data);
 *     teg_values_free(outputs);
 *     teg_program_free(program);
 */
struct teg_program;

enum { TEG_MAX_RANK = 8 };

enum teg_program_mode {
    TEG_PROGRAM_EXACT = 0,    /* float values are rounded to the declared type at inputs, outputs and states only */
    TEG_PROGRAM_EMULATE_FP16, /* the result of every op that is declared fp16 is rounded, as on a device */
};

struct teg_program_options {
    size_t size;
    const struct teg_allocator *allocator; /* NULL: malloc; must outlive the program, its states and values */
    enum teg_program_mode mode;
    uint32_t n_threads;           /* 0: the CPUs this process may use */
    uint64_t max_bytes;           /* that one prediction may hold at once; 0: the machine's memory */
    uint64_t max_loop_iterations; /* a while_loop is given up after so many; 0: 100 million */
    uint64_t seed;                /* of random_* ops that give none */
    const char *target;           /* "iOS17", "macOS15", …: fail where the program needs a newer system; NULL: any */
};
TEG_API void teg_program_options_default(struct teg_program_options *options);

/* Reads and checks the package; functions are made ready by their first use or by teg_program_prepare. A folder with a
 * tegula.json that lists parts, or that file, is one program: its functions `decode` and `prefill` run the parts. */
TEG_API enum teg_status teg_program_open(const char *path, const struct teg_program_options *options,
                                         struct teg_program **program, struct teg_error *err);
TEG_API void teg_program_free(struct teg_program *program);
/* Makes a function ready to run (NULL: the default one), so that what cannot run is known before a prediction. */
TEG_API enum teg_status teg_program_prepare(struct teg_program *program, const char *function, struct teg_error *err);

struct teg_program_info {
    const char *format; /* "mlpackage", "mlmodelc" */
    uint32_t spec_version;
    const char *default_function;
    const char *author, *license, *version, *description; /* "" where absent */
    size_t n_functions, n_metadata, n_weights, n_requirements;
    uint64_t weights_bytes; /* in weight files, each record once */
};
TEG_API const struct teg_program_info *teg_program_info(const struct teg_program *program);
/* User-defined metadata; both texts live as long as the program. */
TEG_API enum teg_status teg_program_metadata(const struct teg_program *program, size_t index, const char **key,
                                             const char **value);
/* One constant of a weight file. */
TEG_API enum teg_status teg_program_weight(const struct teg_program *program, size_t index, struct teg_weight *weight);

struct teg_function {
    const char *name, *opset; /* "main", "CoreML8" */
    uint32_t spec_version;    /* that brought the opset: 6 … 10 */
    size_t n_inputs, n_outputs, n_states, n_ops;
    const char *predicted_feature, *predicted_probabilities; /* of classifiers; "" otherwise */
};
TEG_API enum teg_status teg_program_function(const struct teg_program *program, size_t index,
                                             struct teg_function *function);
/* The index of a function by name (NULL: the default one), or SIZE_MAX. */
TEG_API size_t teg_program_find_function(const struct teg_program *program, const char *name);
/* The ops of a function (NULL: the default one), a line each. */
TEG_API enum teg_status teg_program_dump(const struct teg_program *program, const char *function, struct teg_text *text,
                                         struct teg_error *err);

/* A function seen as a language model: what teg_model_open makes of it. */
struct teg_recognition {
    bool is_model;              /* its graph is known; else it runs op by op */
    size_t n_ops, n_understood; /* that outputs or states need, weights not counted; of those, with a known meaning */
    struct teg_text contract;   /* lines "input      ids: token ids [1, ?]": what everything is for; a model only */
    struct teg_text composites; /* "1 embedding, 5 rms_norm, …": what the ops became; a model only */
    struct teg_text ops;        /* the graph, an op a line; a model only */
    struct teg_text reason;     /* why it is no model; else empty */
    struct teg_text call;       /* no model, but run op by op as one: lines "input      ids: tokens"; else empty */
};
/* NULL: the default function. On success the texts belong to the caller. */
TEG_API enum teg_status teg_program_recognise(const struct teg_program *program, const char *function,
                                              struct teg_recognition *recognition, struct teg_error *err);
TEG_API void teg_recognition_free(struct teg_recognition *recognition);
/* A line for every op without a known meaning, or only for those with `op` in their name or type: which condition
 * failed. Empty where there is none; one line says so where no op at all has `op`. */
TEG_API enum teg_status teg_program_why_not(const struct teg_program *program, const char *function, const char *op,
                                            struct teg_text *text, struct teg_error *err);

enum teg_element {
    TEG_ELEMENT_F16, /* IEEE half, as uint16_t bits */
    TEG_ELEMENT_F32,
    TEG_ELEMENT_F64,
    TEG_ELEMENT_I8,
    TEG_ELEMENT_U8,
    TEG_ELEMENT_I16,
    TEG_ELEMENT_U16,
    TEG_ELEMENT_I32,
    TEG_ELEMENT_U32,
    TEG_ELEMENT_I64,
    TEG_ELEMENT_U64,
    TEG_ELEMENT_BOOL, /* a byte, 0 or 1 */
    TEG_ELEMENT_COUNT
};
/* "float32", as NumPy says it. */
TEG_API const char *teg_element_name(enum teg_element element);
TEG_API size_t teg_element_bytes(enum teg_element element);

enum teg_feature_kind {
    TEG_FEATURE_ARRAY,
    TEG_FEATURE_IMAGE,
    TEG_FEATURE_STATE,
    TEG_FEATURE_INT64,
    TEG_FEATURE_DOUBLE,
    TEG_FEATURE_STRING,
    TEG_FEATURE_DICT_INT64, /* int64 labels to probabilities */
    TEG_FEATURE_DICT_STRING,
    TEG_FEATURE_OTHER,
};
enum teg_feature_role { TEG_ROLE_INPUT, TEG_ROLE_OUTPUT, TEG_ROLE_STATE };
enum teg_colour { TEG_COLOUR_RGB, TEG_COLOUR_BGR, TEG_COLOUR_GRAY, TEG_COLOUR_GRAY_F16 };

/* What a function takes, gives or keeps. Texts and shapes live as long as the program. */
struct teg_feature {
    const char *name, *description;
    enum teg_feature_kind kind;
    enum teg_element element; /* arrays, states; of images what predict takes: u8, or f32 for fp16 grey */
    bool optional;
    bool has_default; /* optional arrays: default_value stands for the missing input */
    double default_value;
    bool has_shape; /* false: known only at run time */
    uint32_t rank;
    int64_t shape[TEG_MAX_RANK];                      /* the default shape; images: H, W, 3 or H, W */
    int64_t lower[TEG_MAX_RANK], upper[TEG_MAX_RANK]; /* what each dimension may be; upper -1: unbounded */
    const int64_t (*enumerated)[TEG_MAX_RANK];        /* NULL: none; entry 0 is the default; images: H, W */
    size_t n_enumerated;
    enum teg_colour colour; /* images */
};
TEG_API enum teg_status teg_program_feature(const struct teg_program *program, size_t function,
                                            enum teg_feature_role role, size_t index, struct teg_feature *feature);

/* Why a program needs a system. One row for each feature and function, at the first op that has it. */
struct teg_requirement {
    const char *feature;  /* "states", "4-bit weights" */
    const char *function; /* "" where it is the program as a whole */
    const char *where;    /* the op or value that has it, "" where it is none */
    uint32_t spec_version;
    const char *systems; /* "iOS 18, macOS 15, tvOS 18, watchOS 11, visionOS 2" */
};
TEG_API enum teg_status teg_program_requirement(const struct teg_program *program, size_t index,
                                                struct teg_requirement *requirement);
/* Fails with the feature, the op and the needed version where the program needs a newer system than `target`. */
TEG_API enum teg_status teg_program_check_target(const struct teg_program *program, const char *target,
                                                 struct teg_error *err);
/* The systems of the newest requirement and its Xcode: "iOS 18, macOS 15, …"; lives forever. */
TEG_API const char *teg_program_minimum_systems(const struct teg_program *program);

/* A value by name: an input that the caller holds, or an output that the library holds. */
struct teg_feature_value {
    const char *name;
    enum teg_feature_kind kind;
    enum teg_element element; /* arrays and images; images are u8 [H, W, 3] RGB, u8 [H, W] or f32 [H, W] */
    uint32_t rank;
    uint64_t dims[TEG_MAX_RANK];
    const void *data;   /* row-major, contiguous, any alignment */
    int64_t integer;    /* INT64 */
    double real;        /* DOUBLE */
    const char *string; /* STRING: UTF-8 */
    size_t n_entries;   /* dictionaries: a key and a value each */
    const int64_t *integer_keys;
    const char *const *string_keys;
    const double *entry_values;
};

/* Named values that the library made; free them before their program. */
struct teg_values;
TEG_API size_t teg_values_count(const struct teg_values *values);
/* NULL: no such index. */
TEG_API const struct teg_feature_value *teg_values_at(const struct teg_values *values, size_t index);
TEG_API void teg_values_free(struct teg_values *values);

/* What the stateful functions of a program keep between predictions: zero at first, shared by all its functions. */
struct teg_state;
TEG_API enum teg_status teg_state_new(const struct teg_program *program, struct teg_state **state,
                                      struct teg_error *err);
TEG_API void teg_state_free(struct teg_state *state);
TEG_API size_t teg_state_count(const struct teg_state *state);
TEG_API const char *teg_state_name(const struct teg_state *state, size_t index);
/* A copy in the declared type; the caller frees it. */
TEG_API enum teg_status teg_state_read(const struct teg_state *state, const char *name, struct teg_values **value,
                                       struct teg_error *err);
/* value->name says which; the shape must be the state's, numbers are converted to its type. */
TEG_API enum teg_status teg_state_write(struct teg_state *state, const struct teg_feature_value *value,
                                        struct teg_error *err);

struct teg_predict_options {
    size_t size;
    const char *function;      /* NULL: the default one */
    struct teg_state *state;   /* NULL only where the function has no states */
    const volatile bool *stop; /* set to true from elsewhere to give up: TEG_ERR_INTERRUPTED; may be NULL */
    /* Asked between ops, by the calling thread, at most ten times a second: false gives up like `stop`. For callers
     * that cannot set a flag while they wait, such as interpreters with signal handlers of their own; NULL: never. */
    bool (*check)(void *ctx);
    void *check_ctx;
};
TEG_API void teg_predict_options_default(struct teg_predict_options *options);

/* Runs a function once. Inputs are found by name and must be exactly those of the function (optional ones may be left
 * out); their shapes must be declared ones; numbers are converted to the declared type. *outputs belongs to the
 * caller, in the order of the description, in the declared types; scalars have the shape (1). On failure the state is
 * as before. */
TEG_API enum teg_status teg_program_predict(struct teg_program *program, const struct teg_feature_value *inputs,
                                            size_t n_inputs, const struct teg_predict_options *options,
                                            struct teg_values **outputs, struct teg_error *err);

/* What the prediction that made `values` was. */
struct teg_predict_report {
    const char *overflow_op; /* emulate-fp16: the first op that made an infinity of finite numbers; NULL: none */
    uint64_t peak_bytes;     /* most that values took at once, constants and inputs not counted */
    uint64_t n_ops;          /* ops run, those of loops each time */
};
TEG_API void teg_values_report(const struct teg_values *values, struct teg_predict_report *report);

/* ---- calibration ---- */

/* How strongly each input column of each weight matrix is used by a text: what quantizing it should be careful with. */
struct teg_calibration;

struct teg_calibrate_options {
    size_t size;
    uint32_t n_threads;       /* 0: the CPUs this process may use */
    uint32_t window_tokens;   /* the text goes through the model in pieces of so many; 0: 512 */
    teg_progress_fn progress; /* tokens; may be NULL */
    void *progress_ctx;
};
TEG_API void teg_calibrate_options_default(struct teg_calibrate_options *options);

/* Runs n_ids tokens through a model opened with TEG_MODE_EXACT and keeps the mean square of each column's factor, by
 * the weights' names as the model's file has them. The caller frees *calibration; the model may go before it. */
TEG_API enum teg_status teg_calibrate(const struct teg_model *model, const int32_t *ids, size_t n_ids,
                                      const struct teg_calibrate_options *options, struct teg_calibration **calibration,
                                      struct teg_error *err);
/* float32 [*n_columns] of a weight, or NULL where it was not used; lives as long as the calibration. */
TEG_API const float *teg_calibration_columns(const struct teg_calibration *calibration, const char *name,
                                             size_t *n_columns);
TEG_API void teg_calibration_free(struct teg_calibration *calibration);

/* ---- models as Core ML packages ---- */

/* What became of one weight matrix. `encoding` is a rule as `weights` takes it, or "kept": the numbers of a GGUF's
 * blocks. Errors are Frobenius norms: |w - w'| / |w|, of the whole and of the worst row. */
struct teg_convert_weight {
    const char *name;
    uint64_t rows, columns;
    char encoding[64];
    uint64_t source_bytes, bytes;
    double bits_per_weight, relative_error, worst_row_error;
    uint64_t worst_row;
    bool exact; /* the same numbers as in the source */
};

struct teg_convert_options {
    size_t size;
    const struct teg_allocator *allocator; /* NULL: malloc */
    const char *profile;                   /* "portable": one function, any device; "ane": for the Neural Engine */
    const char *softmax;                   /* "two-pass", "online", "split"; NULL: two-pass */
    /* "f16", "int8", "int4", "lut4", …, with "/channel", "/tensor" or "/32" (a group) after it; "keep": the source's
     * own encoding where Core ML can hold it (a GGUF's blocks, a package's codes), f16 of floats, else int8. Embedding
     * and head: NULL: int8, or as weights where these have 8 bits or more. */
    const char *weights, *embedding, *head;
    bool fit_groups; /* where a group does not divide: the largest smaller one that does; otherwise an error */
    const struct teg_calibration *calibration; /* of this model: columns that matter lose less; NULL: none */
    uint32_t context_tokens;                   /* slots of the cache; 0: what the model was trained for, at most 4096 */
    uint32_t chunk_tokens;                     /* most tokens of a prefill call, ane: at least 2; 0: 256 */
    uint32_t kv_tile_tokens;                   /* keys of an attention tile; 0: the profile's */
    const uint32_t *buckets;                   /* ane: further functions for these shorter contexts, ascending */
    size_t n_buckets;
    bool ignore_rules;          /* write what breaks a rule of the profile; see teg_convert_explain */
    const char *target;         /* "iOS18", "macOS26", …: the oldest system that must load it */
    uint32_t n_parts;           /* ane: above 1, a folder of packages that tegula.json joins */
    const char *tokenizer_path; /* replaces the model's own; NULL: its own */
    bool replace;               /* an existing package (never another folder), after the new one is whole */
    uint32_t n_threads;         /* 0: one for each CPU */
    size_t memory_budget_bytes; /* for weights in the making; 0: 256 MiB */
    teg_progress_fn progress;   /* bytes of weights; may be NULL */
    void *progress_ctx;
    void (*on_weight)(void *ctx, const struct teg_convert_weight *weight); /* after its package is whole; may be NULL */
    void *on_weight_ctx;
    /* "NAME=RULE", "op:TYPE=RULE", or "skip" for RULE (f16): see teg_quantize_options. NAME is the tensor's in the
     * source, TYPE linear, gather (the embedding) or lm_head. */
    const char *const *patterns;
    size_t n_patterns;
    uint64_t part_bytes;    /* ane: as many parts as keep the weights of each below this; 0: n_parts alone says */
    bool enumerated_shapes; /* portable: calls of 1, 2, 4, … and chunk tokens only, which is what the Neural Engine
                               takes of flexible shapes; otherwise any number up to chunk */
};

TEG_API void teg_convert_options_default(struct teg_convert_options *options);

struct teg_convert_report {
    uint64_t source_bytes, weights_bytes; /* of the matrices; of all that is in the weight files */
    uint64_t shared_bytes;                /* not written, because equal bytes were there */
    uint64_t spec_bytes;
    uint32_t n_weights, n_packages;
    /* Kullback-Leibler divergence of the next token, in nats, that errors of this size caused in models of this kind
     * (docs/CONVERT.md says how near that comes): a guess before --check's measurement. */
    double predicted_kl;
};

/* Writes the model `input` (whatever teg_model_open takes, a package only where it is recognised) as the package
 * `output`, which ends in ".mlpackage". The package holds the tokenizer, so it opens like any model; how it is called
 * is in docs/CONVERT.md. On failure nothing is left that was not there before. May be called from any thread; callbacks
 * come from that thread. report may be NULL. */
TEG_API enum teg_status teg_convert(const char *input, const char *output, const struct teg_convert_options *options,
                                    struct teg_convert_report *report, struct teg_error *err);
/* The choices of the profile for this model, each with the rule that demands it, a line each. */
TEG_API enum teg_status teg_convert_explain(const char *input, const struct teg_convert_options *options,
                                            struct teg_text *text, struct teg_error *err);

/* ---- weights of packages ---- */

/* What became of one constant: a weight, or a table that could be taken for one. */
struct teg_quantize_weight {
    struct teg_convert_weight weight; /* encoding "" and sizes of the source where it was left alone */
    const char *op;                   /* one that uses it: "linear" */
    bool embedding, head;
    bool calibrated;        /* columns were weighed by their importance */
    const char *left_alone; /* the reason; NULL: it was encoded */
};

struct teg_quantize_options {
    size_t size;
    const struct teg_allocator *allocator; /* NULL: malloc */
    /* Rules: WORD[/GRAIN][,FLAG]…, WORD one of f16, int8, uint8, int4, uint4, lut8, lut6, lut4, lut3, lut2, lut1; GRAIN
     * tensor, channel, or a number: columns that share a scale, or rows that share a table; FLAG asym, float, minmax,
     * plain, uniform, unique, v2, v4, fit, sparse=0.5, 2:4. Embedding and head: NULL: int8, or as weights where these
     * have 8 bits or more. */
    const char *weights, *embedding, *head;
    /* "NAME=RULE", "op:TYPE=RULE" or with "skip" for RULE; NAME and TYPE have * and ?. The last name that matches
     * decides, else the last op, else the above. A rule that matches no weight is an error, a skip is not. */
    const char *const *patterns;
    size_t n_patterns;
    uint64_t threshold_elements; /* constants of so many elements or fewer stay, unless a name pattern wants them */
    bool fit_groups;             /* where a group does not divide: the largest smaller one; otherwise an error */
    const struct teg_calibration *calibration; /* NULL: none */
    bool replace;                              /* an existing package, after the new one is whole */
    uint32_t n_threads;                        /* 0: one for each CPU */
    size_t memory_budget_bytes;                /* for weights in the making; 0: 256 MiB */
    teg_progress_fn progress;                  /* bytes of weights; may be NULL */
    void *progress_ctx;
    void (*on_weight)(void *ctx, const struct teg_quantize_weight *weight); /* when all is whole; may be NULL */
    void *on_weight_ctx;
    bool again; /* weights that are encoded already get another encoding, from the numbers that they have; f16: decoded
                 */
};
TEG_API void teg_quantize_options_default(struct teg_quantize_options *options);

/* Writes the package at `input` again, as `output` (which must end in ".mlpackage"), its dense weights encoded and all
 * else as it is, tokenizer files included. `input` may be a folder of parts that a tegula.json joins, or that file:
 * then each part is written, and `output` is a folder with all files of the first. A program before iOS 18 gets the
 * forms that its system has (int8 by channel or tensor, palettes by tensor, pruning alone), one of iOS 15 becomes one
 * of iOS 16; any other rule is an error that names what it needs. NaN and infinities in a weight are an error that
 * names row and column. `report` may be NULL. On failure nothing is left under the output's name that was not there
 * before. Any number of calls may run at once. */
TEG_API enum teg_status teg_quantize_package(const char *input, const char *output,
                                             const struct teg_quantize_options *options,
                                             struct teg_convert_report *report, struct teg_error *err);

#ifdef __cplusplus
}
#endif
#endif
