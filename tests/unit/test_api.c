/* The public functions as a caller meets them: facts, listings and dumps of a model, defaults, NULL wherever it is
 * allowed, and the error of each function. tests/install compiles the example on top of tegula.h; here its steps run.
 */
#include "unit/format_test.h"

#include "tegula.h"

#define LLAMA TEST_DATA "/tiny/llama.gguf"

static struct teg_model *open_model(const char *path, const struct teg_model_options *o)
{
    struct teg_model *m = NULL;
    struct teg_error err = {0};
    if (teg_model_open(path, o, &m, &err) != TEG_OK)
        fail_msg("%s", err.message);
    assert_int_equal(err.status, TEG_OK); /* untouched on success */
    assert_string_equal(err.message, "");
    return m;
}

static void test_words(void **state)
{
    (void)state;
    char version[32];
    (void)snprintf(version, sizeof version, "%d.%d.%d", TEG_VERSION_MAJOR, TEG_VERSION_MINOR, TEG_VERSION_PATCH);
    assert_string_equal(teg_version(), version);
    static const char *const names[] = {"ok",           "bad argument",  "out of memory", "input/output error",
                                        "damaged file", "not supported", "context full",  "interrupted"};
    for (int i = 0; i < 8; i++)
        assert_string_equal(teg_status_name((enum teg_status)i), names[i]);
    assert_string_equal(teg_status_name((enum teg_status)8), "unknown status");
    assert_string_equal(teg_status_name((enum teg_status) - 1), "unknown status");
}

static void test_free_null(void **state)
{
    (void)state;
    struct teg_text text = {0};
    teg_text_free(NULL);
    teg_text_free(&text);
    teg_model_free(NULL);
    teg_session_free(NULL);
    teg_sampler_free(NULL);
    teg_stream_free(NULL);
}

static void test_defaults(void **state)
{
    (void)state;
    struct teg_model_options m;
    struct teg_chat_options c;
    memset(&m, 0xff, sizeof m);
    memset(&c, 0xff, sizeof c);
    teg_model_options_default(&m);
    teg_chat_options_default(&c);
    assert_int_equal(m.size, sizeof m);
    assert_true(!m.allocator && m.mode == TEG_MODE_AUTO && !m.vocab_only && !m.tokenizer_path && !m.progress);
    assert_int_equal(c.size, sizeof c);
    assert_true(!c.tools_json && !c.template_text && c.now_unix == 0);
}

/* ---- the example ---- */

static void test_example(void **state)
{
    (void)state;
    struct teg_error err = {0};
    struct teg_model *model = NULL;
    struct teg_session *session = NULL;
    int32_t ids[64];
    size_t n = 0;
    assert_int_equal(teg_model_open(LLAMA, NULL, &model, &err), TEG_OK);
    assert_int_equal(teg_session_new(model, NULL, &session, &err), TEG_OK);
    assert_int_equal(teg_tokenize(model, "The capital of France is", 24, TEG_TOKENIZE_BOS, ids, 64, &n, &err), TEG_OK);
    assert_true(n > 1 && n <= 64);
    assert_int_equal(ids[0], teg_token_bos(model));
    assert_int_equal(teg_session_prefill(session, ids, n, NULL, &err), TEG_OK);
    const float *const logits = teg_session_logits(session);
    int32_t best = 0;
    for (int32_t i = 1; i < teg_model_info(model)->vocab_tokens; i++)
        if (logits[i] > logits[best])
            best = i;
    struct teg_sampler_options o; /* a greedy sampler says the same */
    struct teg_sampler *sampler = NULL;
    teg_sampler_options_default(&o);
    o.temperature = 0;
    assert_int_equal(teg_sampler_new(model, &o, &sampler, &err), TEG_OK);
    assert_int_equal(teg_sampler_pick(sampler, logits), best);
    teg_sampler_free(sampler);
    teg_session_free(session);
    teg_model_free(model);
    assert_int_equal(err.status, TEG_OK);
}

/* ---- facts ---- */

static void test_info(void **state)
{
    (void)state;
    struct teg_model *m = open_model(LLAMA, NULL);
    const struct teg_model_info *i = teg_model_info(m);
    assert_string_equal(i->format, "GGUF v3");
    assert_string_equal(i->architecture, "llama");
    assert_string_equal(i->mode, "exact");
    assert_int_equal(i->vocab_tokens, 296);
    assert_int_equal(i->n_layers, 2);
    assert_int_equal(i->n_heads, 4);
    assert_int_equal(i->n_kv_heads, 2);
    assert_int_equal(i->head_width, 16);
    assert_int_equal(i->width, 64);
    assert_int_equal(i->ffn_width, 96);
    assert_int_equal(i->context_tokens, 512);
    uint64_t n_parameters = 0, n_bytes = 0;
    for (size_t k = 0; k < teg_model_weight_count(m); k++) {
        struct teg_weight w;
        uint64_t n = 1;
        assert_int_equal(teg_model_weight(m, k, &w), TEG_OK);
        assert_true(w.name[0] && w.dtype[0] && w.rank >= 1 && w.rank <= 8 && w.file_offset > 0);
        for (uint32_t d = 0; d < w.rank; d++)
            n *= w.dims[d];
        n_parameters += n;
        n_bytes += w.n_bytes;
    }
    assert_int_equal(i->n_parameters, n_parameters);
    assert_int_equal(i->weights_bytes, n_bytes);
    struct teg_weight w;
    assert_int_equal(teg_model_weight(m, teg_model_weight_count(m), &w), TEG_ERR_ARGUMENT);
    teg_model_free(m);
    m = open_model(TEST_DATA "/tiny/gemma3", NULL);
    i = teg_model_info(m);
    assert_string_equal(i->format, "safetensors");
    assert_string_equal(i->architecture, "gemma3_text");
    assert_string_equal(i->name, "");
    assert_int_equal(i->n_layers, 7);
    assert_int_equal(i->vocab_tokens, 384);
    teg_model_free(m);
}

static void test_vocab_only(void **state)
{
    (void)state;
    struct teg_model_options o;
    struct teg_error err = {0};
    struct teg_session *s = NULL;
    struct teg_memory memory;
    struct teg_text text = {0};
    teg_model_options_default(&o);
    o.vocab_only = true;
    struct teg_model *const m = open_model(LLAMA, &o);
    assert_int_equal(teg_model_info(m)->vocab_tokens, 296);
    static const char no_session[] = "cannot make session: model: expected a whole model, found one opened for its "
                                     "vocabulary; open it with its weights";
    assert_int_equal(teg_session_new(m, NULL, &s, &err), TEG_ERR_ARGUMENT);
    assert_string_equal(err.message, no_session);
    assert_null(s);
    err = (struct teg_error){0};
    assert_int_equal(teg_session_bytes(m, NULL, 10, &memory, &err), TEG_ERR_ARGUMENT);
    assert_string_equal(err.message, no_session);
    assert_int_equal(teg_model_dump(m, TEG_DUMP_OPS, &text, &err), TEG_ERR_ARGUMENT);
    assert_string_equal(err.message, "cannot show ops: model: expected a whole model, found one opened for its "
                                     "vocabulary; open it with its weights");
    assert_null(text.bytes);
    struct teg_sampler *sampler = NULL; /* needs no weights */
    assert_int_equal(teg_sampler_new(m, NULL, &sampler, &err), TEG_OK);
    teg_sampler_free(sampler);
    teg_model_free(m);
}

/* ---- metadata ---- */

static size_t index_of(const struct teg_model *m, const char *key)
{
    struct teg_metadata item;
    for (size_t i = 0; i < teg_model_metadata_count(m); i++) {
        assert_int_equal(teg_model_metadata(m, i, &item), TEG_OK);
        if (strcmp(item.key, key) == 0)
            return i;
    }
    fail_msg("no key %s", key);
    return 0;
}

static void shows(const struct teg_model *m, const char *key, size_t max_items, const char *type, const char *json)
{
    struct teg_metadata item;
    struct teg_text text = {0};
    const size_t i = index_of(m, key);
    assert_int_equal(teg_model_metadata(m, i, &item), TEG_OK);
    assert_string_equal(item.type, type);
    assert_int_equal(teg_model_metadata_json(m, i, max_items, &text, NULL), TEG_OK);
    assert_string_equal(text.bytes, json);
    assert_int_equal(text.n_bytes, strlen(json));
    teg_text_free(&text);
    assert_null(text.bytes);
    assert_int_equal(text.n_bytes, 0);
}

/* A directory's config.json may hold any value, and a vocabulary is enough to open it. */
static void test_metadata(void **state)
{
    (void)state;
    static const char config[] =
        "{\"model_type\":\"llama\",\"int\":-5,\"big\":9223372036854775807,\"real\":0.25,\"small\":1e-5,\"yes\":true,"
        "\"no\":false,\"nothing\":null,\"text\":\"a \\\"b\\\"\\n\\u00e9\",\"object\":{\"a\":[1,{\"b\":null}]},"
        "\"ints\":[1,-2,3],\"reals\":[0.5,1,2e10],\"bools\":[true,false],\"strings\":[\"x\",\"y\",\"\"],\"none\":[],"
        "\"mixed\":[1,\"x\"]}";
    const struct temp_dir d = temp_dir_make();
    char command[300];
    (void)snprintf(command, sizeof command, "cp %s/tiny/llama/tokenizer*.json %s/", TEST_DATA, d.path);
    assert_int_equal(system(command), 0);
    temp_write_text(&d, "config.json", config);
    struct teg_model_options o;
    teg_model_options_default(&o);
    o.vocab_only = true;
    struct teg_model *const m = open_model(d.path, &o);
    shows(m, "int", 0, "int", "-5");
    shows(m, "big", 0, "int", "9223372036854775807");
    shows(m, "real", 0, "float", "0.25");
    shows(m, "small", 0, "float", "1e-05");
    shows(m, "yes", 0, "bool", "true");
    shows(m, "no", 0, "bool", "false");
    shows(m, "nothing", 0, "null", "null");
    shows(m, "text", 0, "string", "\"a \\\"b\\\"\\n\xc3\xa9\"");
    shows(m, "object", 0, "object", "{\"a\":[1,{\"b\":null}]}");
    shows(m, "ints", 0, "array of int", "[1, -2, 3]");
    shows(m, "ints", 3, "array of int", "[1, -2, 3]");
    shows(m, "ints", 2, "array of int", "[1, -2, \"…\"]");
    shows(m, "reals", 0, "array of float", "[0.5, 1, 2e+10]");
    shows(m, "bools", 1, "array of bool", "[true, \"…\"]");
    shows(m, "strings", 0, "array of string", "[\"x\", \"y\", \"\"]");
    shows(m, "none", 0, "array of int", "[]");
    shows(m, "mixed", 1, "array", "[1,\"x\"]");
    const size_t n = teg_model_metadata_count(m);
    struct teg_metadata item;
    struct teg_text text = {0};
    struct teg_error err = {0};
    char message[200];
    assert_int_equal(teg_model_metadata(m, n, &item), TEG_ERR_ARGUMENT);
    assert_int_equal(teg_model_metadata_json(m, n, 0, &text, &err), TEG_ERR_ARGUMENT);
    (void)snprintf(message, sizeof message,
                   "no such metadata: entry: expected less than %zu, found %zu; ask for the count first", n, n);
    assert_string_equal(err.message, message);
    assert_null(text.bytes);
    teg_model_free(m);
    temp_dir_remove(&d);
}

static void test_metadata_gguf(void **state)
{
    (void)state;
    struct teg_model *const m = open_model(LLAMA, NULL);
    shows(m, "general.architecture", 0, "string", "\"llama\"");
    shows(m, "llama.block_count", 0, "u32", "2");
    shows(m, "llama.attention.layer_norm_rms_epsilon", 0, "f32", "9.99999975e-06");
    teg_model_free(m);
}

/* ---- dumps ---- */

static size_t count(const char *text, const char *word)
{
    size_t n = 0;
    for (const char *p = text; (p = strstr(p, word)); p++)
        n++;
    return n;
}

static void test_dumps(void **state)
{
    (void)state;
    struct teg_model *const m = open_model(LLAMA, NULL);
    struct teg_text text = {0};
    assert_int_equal(teg_model_dump(m, TEG_DUMP_OPS, &text, NULL), TEG_OK);
    assert_non_null(strstr(text.bytes, " = embedding(tokens, token_embd.weight "));
    assert_int_equal(count(text.bytes, " = attention("), 2);
    assert_int_equal(count(text.bytes, "kv_append("), 2);
    assert_int_equal(count(text.bytes, " = linear("), 14);
    assert_int_equal(count(text.bytes, " = lm_head("), 1);
    assert_int_equal(text.bytes[text.n_bytes - 1], '\n');
    assert_int_equal(strlen(text.bytes), text.n_bytes);
    teg_text_free(&text);
    assert_int_equal(teg_model_dump(m, TEG_DUMP_PLAN, &text, NULL), TEG_OK);
    assert_int_equal(count(text.bytes, "    attention "), 2);
    assert_int_equal(count(text.bytes, "    linear "), 15); /* the head too */
    assert_int_equal(count(text.bytes, "    add "), 0);     /* all are part of a linear */
    assert_non_null(strstr(text.bytes, "kernels: decode_row="));
    assert_non_null(strstr(text.bytes, ", only for rows whose logits are asked for\n"));
    teg_text_free(&text);
    teg_model_free(m);
}

/* ---- errors ---- */

static void open_fails(const char *path, const struct teg_model_options *o, enum teg_status status, const char *message)
{
    struct teg_error err = {0};
    struct teg_model *m = NULL;
    assert_int_equal(teg_model_open(path, o, &m, &err), status);
    assert_int_equal(err.status, status);
    assert_non_null(strstr(err.message, message));
    assert_null(m);
    assert_int_equal(teg_model_open(path, o, &m, NULL), status); /* and without an error to fill */
}

static bool refuse(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    assert_true(done <= total);
    return false;
}

static bool watch_whole(void *ctx, uint64_t done, uint64_t total)
{
    uint64_t *const seen = ctx;
    assert_true(done <= total);
    seen[0]++;
    seen[1] = done == total;
    return true;
}

static void test_open_errors(void **state)
{
    (void)state;
    struct teg_model_options o;
    open_fails("/nonexistent/model.gguf", NULL, TEG_ERR_IO, "/nonexistent/model.gguf");
    open_fails(TEST_DATA "/dtype_vectors.bin", NULL, TEG_ERR_FORMAT, "expected a GGUF file or a directory");
    teg_model_options_default(&o);
    o.tokenizer_path = "/nonexistent/tokenizer.json";
    open_fails(LLAMA, &o, TEG_ERR_IO, "/nonexistent/tokenizer.json");
    teg_model_options_default(&o);
    o.progress = refuse;
    open_fails(LLAMA, &o, TEG_ERR_INTERRUPTED,
               "interrupted: opening " LLAMA ": expected to finish, found a request to "
               "stop; open it again");
    uint64_t seen[2] = {0};
    o.progress = watch_whole;
    o.progress_ctx = seen;
    struct teg_model *const m = open_model(LLAMA, &o);
    assert_true(seen[0] > 0 && seen[1]);
    teg_model_free(m);
}

static void test_chat(void **state)
{
    (void)state;
    struct teg_model *const m = open_model(LLAMA, NULL);
    struct teg_chat_options o;
    struct teg_text text = {0};
    struct teg_error err = {0};
    static const char hello[] = "[{\"role\":\"user\",\"content\":\"Hi\"}]";
    teg_chat_options_default(&o);
    o.template_text =
        "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}{% if tools %}{{ tools | length }}{% endif %}";
    o.add_generation_prompt = true;
    o.tools_json = "[1, 2]";
    assert_int_equal(teg_chat_render(m, hello, sizeof hello - 1, &o, &text, &err), TEG_OK);
    assert_non_null(strstr(text.bytes, "<user>Hi<assistant>2"));
    teg_text_free(&text);
    o.add_generation_prompt = false;
    o.tools_json = NULL;
    assert_int_equal(teg_chat_render(m, hello, sizeof hello - 1, &o, &text, &err), TEG_OK);
    assert_null(strstr(text.bytes, "<assistant>"));
    teg_text_free(&text);
    assert_int_equal(teg_chat_render(m, "[1", 2, &o, &text, &err), TEG_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "cannot render chat: messages, byte 2: expected a JSON array, found: "));
    assert_int_equal(teg_chat_render(m, "{}", 2, &o, &text, &err), TEG_ERR_ARGUMENT);
    assert_string_equal(err.message, "cannot render chat: messages: expected a JSON array, found another value; pass "
                                     "[{\"role\": …, \"content\": …}]");
    o.tools_json = "{}";
    assert_int_equal(teg_chat_render(m, hello, sizeof hello - 1, &o, &text, &err), TEG_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "cannot render chat: tools: expected a JSON array"));
    o.tools_json = NULL;
    o.template_text = "{% if %}";
    assert_int_not_equal(teg_chat_render(m, hello, sizeof hello - 1, &o, &text, &err), TEG_OK);
    assert_null(text.bytes);
    teg_model_free(m);
}

static void test_no_template(void **state)
{
    (void)state;
    const struct temp_dir d = temp_dir_make();
    char command[300];
    struct teg_text text = {0};
    struct teg_error err = {0};
    struct teg_model_options o;
    (void)snprintf(command, sizeof command, "cp %s/tiny/llama/tokenizer.json %s/", TEST_DATA, d.path);
    assert_int_equal(system(command), 0);
    temp_write_text(&d, "config.json", "{\"model_type\":\"llama\"}");
    teg_model_options_default(&o);
    o.vocab_only = true;
    struct teg_model *const m = open_model(d.path, &o);
    assert_int_equal(teg_chat_render(m, "[]", 2, NULL, &text, &err), TEG_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, ": expected a chat template, found none; pass one, or use raw prompts"));
    teg_model_free(m);
    temp_dir_remove(&d);
}

static void test_tokens(void **state)
{
    (void)state;
    struct teg_model *const m = open_model(LLAMA, NULL);
    struct teg_error err = {0};
    struct teg_text text = {0};
    int32_t ids[32];
    size_t n = 0, needed = 0;
    assert_int_equal(teg_tokenize(m, "Hello tiles", 11, 0, NULL, 0, &needed, &err), TEG_OK);
    assert_true(needed > 1 && needed < 32);
    ids[1] = -77;
    assert_int_equal(teg_tokenize(m, "Hello tiles", 11, 0, ids, 1, &n, &err), TEG_OK);
    assert_int_equal(n, needed);
    assert_int_equal(ids[1], -77); /* only what fits is written */
    assert_int_equal(teg_tokenize(m, "Hello tiles", 11, 0, ids, 32, &n, &err), TEG_OK);
    assert_int_equal(teg_detokenize(m, ids, n, &text, &err), TEG_OK);
    assert_string_equal(text.bytes, "Hello tiles");
    teg_text_free(&text);
    ids[0] = 1 << 20;
    assert_int_equal(teg_detokenize(m, ids, 1, &text, &err), TEG_ERR_ARGUMENT);
    assert_null(text.bytes);
    assert_int_equal(teg_tokenize(m, "", 0, 0, ids, 32, &n, &err), TEG_OK);
    assert_int_equal(n, 0);
    assert_false(teg_token_is_end(m, -1));
    assert_false(teg_token_is_end(m, 1 << 20));
    assert_true(teg_token_is_end(m, 292));
    teg_model_free(m);
}

static void test_session_errors(void **state)
{
    (void)state;
    struct teg_model *const m = open_model(LLAMA, NULL);
    struct teg_session_options o;
    struct teg_session *s = NULL;
    struct teg_memory memory, held;
    struct teg_error err = {0};
    struct teg_sampler_options so;
    struct teg_sampler *sampler = NULL;
    teg_session_options_default(&o);
    o.chunk_tokens = 0;
    assert_int_equal(teg_session_new(m, &o, &s, &err), TEG_ERR_ARGUMENT);
    assert_string_equal(err.message, "cannot make session: chunk size: expected 1 to 65536 tokens, found 0; use 256");
    assert_int_equal(teg_session_bytes(m, NULL, 513, &memory, &err), TEG_ERR_CONTEXT_FULL);
    assert_int_equal(teg_session_bytes(m, NULL, 0, &memory, &err), TEG_OK);
    assert_int_equal(memory.weights_bytes, teg_model_info(m)->weights_bytes);
    assert_int_equal(teg_session_new(m, NULL, &s, &err), TEG_OK);
    teg_session_memory(s, &held);
    assert_memory_equal(&memory, &held, sizeof held);
    assert_int_equal(teg_session_context(s), 512);
    assert_int_equal(teg_session_length(s), 0);
    assert_int_equal(teg_session_decode(s, 296, NULL), TEG_ERR_ARGUMENT);
    teg_session_free(s);
    teg_sampler_options_default(&so);
    so.top_p = 2;
    assert_int_equal(teg_sampler_new(m, &so, &sampler, &err), TEG_ERR_ARGUMENT);
    assert_null(sampler);
    teg_model_free(m);
}

/* The caller's allocator serves all of a model's and a session's own memory, and gets it all back. */
static void test_allocator(void **state)
{
    (void)state;
    struct counting c;
    struct teg_model_options o;
    struct teg_session *s = NULL;
    struct teg_session_options so;
    teg_model_options_default(&o);
    o.allocator = counting_init(&c, 0);
    struct teg_model *const m = open_model(LLAMA, &o);
    assert_true(c.n_live > 0);
    const size_t before = c.n_live;
    teg_session_options_default(&so);
    so.n_threads = 1;
    assert_int_equal(teg_session_new(m, &so, &s, NULL), TEG_OK);
    assert_true(c.n_live > before);
    assert_int_equal(teg_session_decode(s, 1, NULL), TEG_OK);
    teg_session_free(s);
    assert_int_equal(c.n_live, before);
    teg_model_free(m);
    assert_int_equal(c.n_live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),       cmocka_unit_test(test_free_null),      cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_example),     cmocka_unit_test(test_info),           cmocka_unit_test(test_vocab_only),
        cmocka_unit_test(test_metadata),    cmocka_unit_test(test_metadata_gguf),  cmocka_unit_test(test_dumps),
        cmocka_unit_test(test_open_errors), cmocka_unit_test(test_chat),           cmocka_unit_test(test_no_template),
        cmocka_unit_test(test_tokens),      cmocka_unit_test(test_session_errors), cmocka_unit_test(test_allocator),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
