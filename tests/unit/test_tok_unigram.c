/* Unigram tokenizers and SentencePiece's own file: segmentations, normalization rules and messages that can be worked
 * out by hand. Random vocabularies were compared with the libraries that train them; see docs/FORMATS.md. */
#include "unit/tok_unigram_test.h"

#define JSON "cannot read tokenizer.json: t.json: "
#define MODEL "cannot read tokenizer.model: t.model"

/* ---- rules of replacement ---- */

static char *base64(struct teg_span s)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static char text[4 * (sizeof(struct rules) / 3 + 2)];
    char *at = text;
    for (size_t i = 0; i < s.n_bytes; i += 3) {
        const size_t left = s.n_bytes - i;
        const uint32_t bits = (uint32_t)s.bytes[i] << 16 | (left > 1 ? (uint32_t)s.bytes[i + 1] << 8 : 0u) |
                              (left > 2 ? s.bytes[i + 2] : 0u);
        for (unsigned k = 0; k < 4; k++)
            *at++ = k <= left ? digits[bits >> (18 - 6 * k) & 63] : '=';
    }
    *at = '\0';
    return text;
}

static void assert_next(const struct teg_charsmap *map, const char *text, size_t want, const char *want_text)
{
    struct teg_string to;
    assert_int_equal(teg_charsmap_next(map, text, strlen(text), &to), want);
    assert_string_is(to, want_text);
}

static void rules_replace_the_longest_key(void **state)
{
    (void)state;
    struct teg_charsmap map;
    assert_int_equal(teg_charsmap_open(&map, rules_span(some_rules()), "X", NULL), TEG_OK);
    assert_next(&map, "Ab", 1, "a");
    assert_next(&map, "\u00e9", 2, "b");
    assert_next(&map, "xyzA", 3, "");
    assert_next(&map, "xyA", 1, "x");
    assert_next(&map, "QQ", 1, "Q");
    assert_next(&map, "\u4e00", 3, "\u4e00");
    struct teg_buf out = {0};
    teg_charsmap_apply(&map, &out, T("AA\u0301\u00e9xyz\tQ"), 100);
    teg_buf_append(&out, "", 1);
    assert_string_equal(out.bytes, "aabxyz Q"); /* A and its accent are one; x, y, z are three */
    teg_buf_free(&out);
}

/* Every cut and every single damaged unit: an answer, and no read outside (the sanitizers say). */
static void damaged_rules_do_no_harm(void **state)
{
    (void)state;
    static struct rules r;
    const char text[] = "AxyzA\u00e9\tQ";
    for (uint32_t seed = 1; seed < 2000; seed++) {
        r = *some_rules();
        uint32_t x = seed * 2654435761u;
        for (int i = 0; i < 4; i++) {
            x = x * 1664525u + 1013904223u;
            const size_t at = i < 2 ? 256 + (x >> 8) % 2048 : (x >> 8) % N_UNITS;
            set_unit(&r, at, x ^ x >> 13);
        }
        struct teg_charsmap map;
        const struct teg_span whole = rules_span(&r);
        assert_int_equal(teg_charsmap_open(&map, whole, "X", NULL), TEG_OK);
        for (size_t i = 0, n; i < sizeof text - 1; i += n) {
            struct teg_string to;
            n = teg_charsmap_next(&map, text + i, sizeof text - 1 - i, &to);
            assert_true(n > 0 && n <= sizeof text - 1 - i);
        }
    }
    for (size_t n = 0; n < 4; n++) {
        struct teg_charsmap map;
        assert_int_equal(teg_charsmap_open(&map, (struct teg_span){some_rules()->bytes, n}, "X", NULL), TEG_ERR_FORMAT);
    }
}

/* A trie whose one node is its own child: the walk ends by itself, and the long text is read in linear time. */
static void a_trie_in_a_circle_ends(void **state)
{
    (void)state;
    static struct rules r;
    rules_begin(&r);
    set_unit(&r, 256u ^ 'a', (uint32_t)'a' << 10 | 0x100u | 'a');
    struct teg_charsmap map;
    assert_int_equal(teg_charsmap_open(&map, rules_span(&r), "X", NULL), TEG_OK);
    char *const text = malloc(100000);
    assert_non_null(text);
    memset(text, 'a', 100000);
    for (size_t i = 0, n; i < 100000; i += n) {
        struct teg_string to;
        n = teg_charsmap_next(&map, text + i, 100000 - i, &to);
        assert_int_equal(n, 1);
    }
    free(text);
}

/* ---- tokenizer.json ---- */

static struct opened unigram(const char *normalizer, const char *pre, const char *more, bool with_bytes)
{
    struct opened o = open_json(unigram_json(normalizer, pre, more, with_bytes), NULL);
    if (o.status != TEG_OK)
        fail_msg("%s", o.err.message);
    return o;
}

static void the_best_sum_wins(void **state)
{
    (void)state;
    struct opened o = unigram("null", METASPACE, "", false);
    assert_int_equal(teg_tok_size(o.tok), U_BYTE);
    assert_ids(o.tok, T("ab"), 0, IDS(U_MAB)); /* -6, as ▁ and ab: the one found first stays */
    assert_ids(o.tok, T("aab"), 0, IDS(U_MA, U_AB));
    assert_ids(o.tok, T("ba"), 0, IDS(U_MARK, U_B, U_A));
    assert_ids(o.tok, T("a ab"), 0, IDS(U_MA, U_MAB));
    assert_ids(o.tok, T("a\u4e00\u4e8c!b"), 0, IDS(U_MA, U_UNK, U_B)); /* unknown characters fuse */
    assert_ids(o.tok, T("\u4e00 \u4e8c"), 0, IDS(U_MARK, U_UNK, U_MARK, U_UNK));
    assert_ids(o.tok, T("\xFF"), 0, IDS(U_MARK, U_UNK));
    assert_ids(o.tok, T(""), 0, &(const int32_t){0}, 0);
    assert_ids(o.tok, T("a<unk>b"), TEG_TOKENIZE_SPECIAL, IDS(U_MA, U_UNK, U_MARK, U_B));
    assert_decodes(o.tok, IDS(U_MAB, U_MARK, U_B), "ab b");
    opened_free(&o);
}

static void unknown_characters_as_bytes(void **state)
{
    (void)state;
    struct opened o = unigram("null", METASPACE, "\"byte_fallback\":true,", true);
    assert_ids(o.tok, T("a\u00e9b"), 0, IDS(U_MA, U_BYTE + 0xC3, U_BYTE + 0xA9, U_B));
    assert_ids(o.tok, T("<0x41>"), 0,
               IDS(U_MARK, U_BYTE + '<', U_BYTE + '0', U_BYTE + 'x', U_BYTE + '4', U_BYTE + '1', U_BYTE + '>'));
    static const char *const texts[] = {"ab  ab", "\n", "\u4e00 a\u0301", "xyz", "ab "};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_round_trip(o.tok, texts[i], strlen(texts[i]), 0);
    opened_free(&o);
}

static void normalizers_by_character(void **state)
{
    (void)state;
    static const struct {
        const char *normalizer, *text, *want;
    } cases[] = {
        {"{\"type\":\"Lowercase\"}", "AB\u0130", "abi\u0307"},
        {"{\"type\":\"StripAccents\"}", "a\u0301b\u20dd", "ab"},
        {"{\"type\":\"Strip\"}", " \n ab \u3000", "ab"},
        {"{\"type\":\"Strip\",\"strip_left\":false}", " ab ", " ab"},
        {"{\"type\":\"Nmt\"}", "a\x01\tb\u200b\uFEFF", "a b  "},
        {"{\"type\":\"BertNormalizer\"}", "\u00c4\u4e00\x02\tb", "a \u4e00  b"},
        {"{\"type\":\"BertNormalizer\",\"lowercase\":false,\"handle_chinese_chars\":false}", "\u00c4\u4e00",
         "\u00c4\u4e00"},
        {"{\"type\":\"BertNormalizer\",\"clean_text\":false,\"strip_accents\":true,\"lowercase\":false}", "\u00c4\x02",
         "A\x02"},
        {"{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"\"}", "A", "A"},
        {"{\"type\":\"ByteLevel\"}", "a \u00e9", "a\u0120\u00c3\u00a9"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct opened o = unigram(cases[i].normalizer, "null", "", false);
        struct teg_encoder e = {.tok = o.tok, .allocator = teg_allocator_or_default(NULL)};
        const char *out;
        size_t n;
        assert_int_equal(teg_normal_run(&o.tok->normal, &e, cases[i].text, strlen(cases[i].text), &out, &n, NULL),
                         TEG_OK);
        assert_string_is(((struct teg_string){out, n}), cases[i].want);
        teg_buf_free(&e.normal);
        teg_buf_free(&e.other);
        opened_free(&o);
    }
}

static void rules_in_base64(void **state)
{
    (void)state;
    static char normalizer[sizeof(struct rules) * 2];
    snprintf(normalizer, sizeof normalizer, "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"%s\"}",
             base64(rules_span(some_rules())));
    struct opened o = unigram(normalizer, METASPACE, "", false);
    assert_ids(o.tok, T("A\u00e9\tA"), 0, IDS(U_MAB, U_MA));
    opened_free(&o);
}

static void pretokenizers_of_other_models(void **state)
{
    (void)state;
    struct opened o = unigram("null", "{\"type\":\"BertPreTokenizer\"}", "", false);
    assert_ids(o.tok, T(" ab  \u4e00!\u4e8c"), 0, IDS(U_AB, U_UNK, U_UNK, U_UNK)); /* three words, not fused */
    opened_free(&o);
    o = unigram("null", "{\"type\":\"CharDelimiterSplit\",\"delimiter\":\"|\"}", "", false);
    assert_ids(o.tok, T("ab||a"), 0, IDS(U_AB, U_A));
    opened_free(&o);
    o = unigram("null", "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"WhitespaceSplit\"}," METASPACE "]}", "",
                false);
    assert_ids(o.tok, T(" a\n\n ab"), 0, IDS(U_MA, U_MAB)); /* every word gets its mark */
    opened_free(&o);
    o = unigram("null",
                "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"WhitespaceSplit\"},{\"type\":\"Metaspace\","
                "\"prepend_scheme\":\"first\"}]}",
                "", false);
    assert_ids(o.tok, T("a ab"), 0, IDS(U_MA, U_AB));
    opened_free(&o);
}

static void json_fails(const char *text, enum teg_status status, const char *message)
{
    struct opened o = open_json(text, NULL);
    assert_string_equal(o.err.message, message);
    assert_int_equal(o.status, status);
    assert_null(o.tok);
    opened_free(&o);
}

static void json_messages(void **state)
{
    (void)state;
    json_fails("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",-1],[\"b\"]]}}", TEG_ERR_FORMAT,
               JSON "vocab item 1: expected a text and a score, found something else; download the file again");
    json_fails("{\"model\":{\"type\":\"Unigram\",\"unk_id\":1,\"vocab\":[[\"a\",-1]]}}", TEG_ERR_FORMAT,
               JSON "model.unk_id: expected an id under 1, found 1");
    json_fails(unigram_json("{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"A*==\"}", "null", "", false),
               TEG_ERR_FORMAT,
               JSON "Precompiled: expected precompiled_charsmap in base64, found something else; download the file "
                    "again");
    json_fails(unigram_json("{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"/wAAAA==\"}", "null", "", false),
               TEG_ERR_FORMAT,
               JSON
               "precompiled_charsmap: expected a count of bytes and a trie of that size, found 4 bytes that are no "
               "such table; download the file again");
    json_fails(unigram_json("null", "{\"type\":\"CharDelimiterSplit\"}", "", false), TEG_ERR_FORMAT,
               JSON "CharDelimiterSplit: expected a delimiter, found none");
}

/* ---- GGUF ---- */

static void unigram_from_gguf(void **state)
{
    (void)state;
    enum { EOS = 1, UNK, MARK, A, B, AB, MA, USER };
    struct gguf g = gguf_t5(true);
    struct opened o = open_gguf(&g);
    if (o.status != TEG_OK)
        fail_msg("%s", o.err.message);
    assert_ids(o.tok, T("ab"), 0, IDS(MARK, AB));
    assert_ids(o.tok, T("  A \t a\u00e9 xyz "), TEG_TOKENIZE_BOS, IDS(MA, MARK, AB, EOS));
    assert_ids(o.tok, T("a\u4e00\u4e8cb"), 0, IDS(MA, UNK, B));
    assert_ids(o.tok, T("a<u>b"), 0, IDS(MA, USER, MARK, B));
    assert_decodes(o.tok, IDS(MA, MARK, AB), "a ab");
    opened_free(&o);
    g = gguf_t5(false);
    o = open_gguf(&g);
    assert_ids(o.tok, T("ab  a"), 0, IDS(AB, MARK, MA));
    assert_int_equal(teg_tok_eos(o.tok), EOS);
    opened_free(&o);
}

/* ---- tokenizer.model ---- */

static struct teg_span text_span(const char *text)
{
    return (struct teg_span){(const uint8_t *)text, text ? strlen(text) : 0};
}

struct made {
    struct teg_tok *tok;
    enum teg_status status;
    struct teg_error err;
};

/* By way of files in a directory, as a user has them. */
static struct made open_model(struct bytes file, const char *config, const char *added, const char *map)
{
    struct made m = {0};
    const struct temp_dir d = temp_dir_make();
    char path[128];
    temp_write(&d, "tokenizer.model", file.at, file.n);
    if (config)
        temp_write_text(&d, "tokenizer_config.json", config);
    if (added)
        temp_write_text(&d, "added_tokens.json", added);
    if (map)
        temp_write_text(&d, "special_tokens_map.json", map);
    temp_path(&d, "tokenizer.model", path);
    m.status = teg_tok_open_folder(path, NULL, &m.tok, &m.err);
    temp_dir_remove(&d);
    bytes_free(&file);
    return m;
}

static struct teg_tok *model_tok(struct bytes file, const char *config, const char *added, const char *map)
{
    struct made m = open_model(file, config, added, map);
    if (m.status != TEG_OK)
        fail_msg("%s", m.err.message);
    return m.tok;
}

static void sentencepiece_files(void **state)
{
    (void)state;
    struct teg_tok *tok = model_tok(model_file(1, true, false), NULL, NULL, NULL);
    assert_int_equal(teg_tok_size(tok), M_N);
    assert_ids(tok, T("  A \t \u00e9xyz "), 0, IDS(M_MA, M_MARK, M_B));
    assert_ids(tok, T("a\u4e00\u4e8c"), TEG_TOKENIZE_BOS, IDS(M_MA, M_UNK, M_EOS));
    assert_ids(tok, T("<s>"), TEG_TOKENIZE_SPECIAL, IDS(M_BOS));
    assert_decodes(tok, IDS(M_MA, M_MARK, M_AB), "a ab");
    teg_tok_free(tok);
    tok = model_tok(model_file(1, false, true), NULL, NULL, NULL);
    assert_ids(tok, T("Aab  a"), 0, IDS(M_UNK, M_AB, M_MARK, M_MA));
    teg_tok_free(tok);
    tok = model_tok(model_file(2, false, true), NULL, NULL, NULL); /* merges: ▁a is worth more than ab */
    assert_ids(tok, T(" ab"), TEG_TOKENIZE_BOS, IDS(M_BOS, M_MA, M_B));
    assert_int_equal(teg_tok_bos(tok), M_BOS);
    assert_int_equal(teg_tok_eos(tok), M_EOS);
    assert_true(teg_tok_is_end(tok, M_EOS));
    teg_tok_free(tok);
}

static void files_beside_a_sentencepiece_file(void **state)
{
    (void)state;
    struct teg_tok *tok = model_tok(
        model_file(1, false, false),
        "{\"add_bos_token\":true,\"add_eos_token\":false,\"legacy\":false,\"eos_token\":\"<end>\",\"chat_template\":"
        "\"T\",\"added_tokens_decoder\":{\"10\":{\"content\":\"<end>\",\"special\":true},\"11\":{\"content\":\"[L]\","
        "\"lstrip\":true}}}",
        "{\"<x>\":9}", "{\"additional_special_tokens\":[\"<x>\",{\"content\":\"<u>\"}]}");
    assert_int_equal(teg_tok_size(tok), 12);
    assert_ids(tok, T("a [L]b<end>"), TEG_TOKENIZE_BOS | TEG_TOKENIZE_SPECIAL, IDS(M_BOS, M_MA, 11, M_B, 10));
    assert_ids(tok, T("<x><u>"), TEG_TOKENIZE_SPECIAL, IDS(9, M_USER));
    assert_ids(tok, T("<u>"), 0, IDS(M_MARK, M_UNK)); /* special now, so text unless asked for */
    assert_int_equal(teg_tok_eos(tok), 10);
    assert_string_is(teg_tok_chat_template(tok), "T");
    teg_tok_free(tok);
}

/* A directory without a tokenizer.json. */
static void sentencepiece_in_a_directory(void **state)
{
    (void)state;
    const struct temp_dir d = temp_dir_make();
    struct bytes file = model_file(2, false, true);
    struct teg_source *source = NULL;
    struct teg_tok *tok = NULL;
    struct teg_error err = {0};
    temp_write_text(&d, "config.json", "{\"model_type\":\"llama\"}");
    temp_write(&d, "tokenizer.model", file.at, file.n);
    if (teg_source_open(d.path, false, NULL, &source, &err) != TEG_OK ||
        teg_tok_open(source, NULL, NULL, &tok, &err) != TEG_OK)
        fail_msg("%s", err.message);
    assert_int_equal(teg_tok_size(tok), M_N);
    teg_tok_free(tok);
    teg_source_free(source);
    bytes_free(&file);
    temp_dir_remove(&d);
}

static void bytes_fail(struct bytes file, const char *config, const char *added, enum teg_status status,
                       const char *message)
{
    struct teg_tok *tok = NULL;
    struct teg_error err = {0};
    const struct teg_model_files files = {{file.at, file.n}, text_span(config), text_span(added), {0}, "t.model"};
    assert_int_equal(teg_tok_parse_model(&files, NULL, &tok, &err), status);
    assert_string_equal(err.message, message);
    assert_null(tok);
    bytes_free(&file);
}

static void model_messages(void **state)
{
    (void)state;
    struct bytes file = model_file(1, false, false);
    file.n--;
    bytes_fail(file, NULL, NULL, TEG_ERR_FORMAT,
               MODEL " at byte 132: expected a field of ModelProto, found damage; download the file again");
    file = (struct bytes){0};
    put_number(&file, 9, 1);
    bytes_fail(file, NULL, NULL, TEG_ERR_FORMAT,
               MODEL ": expected 1 to 1073741823 pieces, found 0; give the model's tokenizer.json");
    bytes_fail(model_file(3, false, false), NULL, NULL, TEG_ERR_UNSUPPORTED,
               MODEL ": model_type: expected 1 (unigram) or 2 (BPE), found 3; give the model's tokenizer.json");
    file = model_file(1, false, false);
    put_piece(&file, "x", 0, 7);
    bytes_fail(file, NULL, NULL, TEG_ERR_FORMAT, MODEL ": piece 9: expected a type from 1 to 6, found 7");
    bytes_fail(model_file(1, false, false), NULL, "{\"x\":99}", TEG_ERR_FORMAT,
               MODEL ": added_tokens.json: expected a text and an id under 17, found \"x\" and 99");
    bytes_fail(model_file(1, false, false), "{\"added_tokens_decoder\":{\"1x\":{\"content\":\"y\"}}}", NULL,
               TEG_ERR_FORMAT, MODEL ": tokenizer_config.json: expected a text and an id under 56, found \"y\" and -1");
    const struct teg_model_files large = {{(const uint8_t *)"", (size_t)65 << 20}, {0}, {0}, {0}, "t.model"};
    struct teg_tok *tok = NULL;
    struct teg_error err = {0};
    assert_int_equal(teg_tok_parse_model(&large, NULL, &tok, &err), TEG_ERR_UNSUPPORTED);
    assert_string_equal(err.message, MODEL ": expected at most 67108864 bytes, found 68157440");
}

static void what_is_a_sentencepiece_file(void **state)
{
    (void)state;
    assert_true(teg_tok_is_model(text_span("\n\x0e\n\x05<unk>")));
    assert_false(teg_tok_is_model(text_span("\n  {\"model\":1}")));
    assert_false(teg_tok_is_model(text_span("{}")));
    assert_false(teg_tok_is_model(text_span("")));
    assert_false(teg_tok_is_model(text_span("\n")));
    assert_false(teg_tok_is_sentencepiece("/no/such/file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_replace_the_longest_key),
        cmocka_unit_test(damaged_rules_do_no_harm),
        cmocka_unit_test(a_trie_in_a_circle_ends),
        cmocka_unit_test(the_best_sum_wins),
        cmocka_unit_test(unknown_characters_as_bytes),
        cmocka_unit_test(normalizers_by_character),
        cmocka_unit_test(rules_in_base64),
        cmocka_unit_test(pretokenizers_of_other_models),
        cmocka_unit_test(json_messages),
        cmocka_unit_test(unigram_from_gguf),
        cmocka_unit_test(sentencepiece_files),
        cmocka_unit_test(files_beside_a_sentencepiece_file),
        cmocka_unit_test(sentencepiece_in_a_directory),
        cmocka_unit_test(model_messages),
        cmocka_unit_test(what_is_a_sentencepiece_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
