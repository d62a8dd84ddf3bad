/* Tokenizers: ids and texts of tiny vocabularies whose answers can be worked out by hand. Real vocabularies are
 * compared with other people's in tests/golden. */
#include "unit/tok_test.h"

/* ---- byte-level BPE ---- */

static struct opened bpe(const char *pre)
{
    struct gguf g = gguf_bpe(pre);
    struct opened o = open_gguf(&g);
    if (o.status != TEG_OK)
        fail_msg("%s", o.err.message);
    return o;
}

static void bytes_merge_by_rank(void **state)
{
    (void)state;
    struct opened o = bpe("gpt-2");
    assert_int_equal(teg_tok_size(o.tok), B_N);
    size_t none = 7;
    assert_int_equal(teg_tok_encode(o.tok, "", 0, 0, NULL, 0, &none, NULL), TEG_OK);
    assert_int_equal(none, 0);
    assert_ids(o.tok, T("the the"), 0, IDS('t', B_HE, B_THE));
    assert_ids(o.tok, T("aaa"), 0, IDS(B_AA, 'a')); /* ties: leftmost */
    assert_ids(o.tok, T("aaaab"), 0, IDS(B_AAAA, 'b'));
    assert_ids(o.tok, T("aab"), 0, IDS(B_AA, 'b')); /* rank before length */
    assert_ids(o.tok, T("\xC3\xA9\n"), 0, IDS(0xC3, 0xA9, '\n'));
    opened_free(&o);
}

static void special_tokens_are_parsed_on_demand(void **state)
{
    (void)state;
    struct opened o = bpe("gpt-2");
    assert_ids(o.tok, T("<s>a<u>"), TEG_TOKENIZE_SPECIAL, IDS(B_BOS, 'a', B_USER));
    assert_ids(o.tok, T("<s>a<u>"), 0, IDS('<', 's', '>', 'a', B_USER));
    assert_ids(o.tok, T("<s"), TEG_TOKENIZE_SPECIAL, IDS('<', 's'));
    assert_ids(o.tok, T("<</s>>"), TEG_TOKENIZE_SPECIAL, IDS('<', B_EOS, '>'));
    assert_decodes(o.tok, IDS(B_BOS, B_THE, B_USER, 0xC3, 0xA9), "<s> the<u>\u00e9");
    opened_free(&o);
}

static void bos_where_the_file_says_so(void **state)
{
    (void)state;
    struct opened o = bpe("gpt-2"), l3 = bpe("llama-bpe");
    struct gguf g = gguf_bpe("gpt-2");
    gguf_number(&g, "tokenizer.ggml.add_bos_token", BOOL, 1);
    gguf_number(&g, "tokenizer.ggml.add_eos_token", BOOL, 1);
    struct opened both = open_gguf(&g);
    assert_ids(o.tok, T("a"), TEG_TOKENIZE_BOS, IDS('a'));
    assert_ids(o.tok, T("a"), TEG_TOKENIZE_BOS_FORCE, IDS(B_BOS, 'a'));
    assert_ids(l3.tok, T("a"), TEG_TOKENIZE_BOS, IDS(B_BOS, 'a'));
    assert_ids(both.tok, T("a"), 0, IDS('a'));
    assert_ids(both.tok, T("a"), TEG_TOKENIZE_BOS | TEG_TOKENIZE_BOS_FORCE, IDS(B_BOS, 'a', B_EOS));
    assert_ids(both.tok, T(""), TEG_TOKENIZE_BOS, IDS(B_BOS, B_EOS));
    assert_ids(both.tok, T("<s>a"), TEG_TOKENIZE_BOS | TEG_TOKENIZE_SPECIAL, IDS(B_BOS, 'a', B_EOS));
    assert_ids(both.tok, T("<s>"), TEG_TOKENIZE_BOS, IDS(B_BOS, '<', 's', '>', B_EOS));
    assert_int_equal(teg_tok_bos(o.tok), B_BOS);
    assert_int_equal(teg_tok_eos(o.tok), B_EOS);
    opened_free(&o);
    opened_free(&l3);
    opened_free(&both);
}

static void invalid_utf8_reads_as_replacement(void **state)
{
    (void)state;
    struct opened o = bpe("gpt-2");
    assert_ids(o.tok, T("a\xFF"), 0, IDS('a', 0xEF, 0xBF, 0xBD));
    assert_ids(o.tok, T("\xE2\x82!"), 0, IDS(0xEF, 0xBF, 0xBD, '!'));
    assert_ids(o.tok, T("\xED\xA0\x80"), 0, IDS(0xEF, 0xBF, 0xBD, 0xEF, 0xBF, 0xBD, 0xEF, 0xBF, 0xBD));
    assert_ids(o.tok, T("a\0b"), 0, IDS('a', 0, 'b'));
    opened_free(&o);
}

static void every_byte_comes_back(void **state)
{
    (void)state;
    struct opened o = bpe("smollm");
    char text[2 * 0x1000];
    size_t n = 0;
    for (uint32_t c = 0; c < 0x800; c++)
        n += teg_utf8_put(c, text + n);
    assert_round_trip(o.tok, text, n, TEG_TOKENIZE_SPECIAL);
    opened_free(&o);
}

static void whole_words_first_where_merges_are_ignored(void **state)
{
    (void)state;
    /* "abab" is a token that no merge makes. */
    static const char *const tokens[] = {"a", "b", "ab", "abab"};
    static const char *const merges[] = {"a b"};
    for (int ignore = 0; ignore < 2; ignore++) {
        struct gguf g = {0};
        gguf_text(&g, "tokenizer.ggml.model", "gpt2");
        gguf_text(&g, "tokenizer.ggml.pre", ignore ? "llama3" : "qwen2");
        gguf_texts(&g, "tokenizer.ggml.tokens", tokens, 4);
        gguf_texts(&g, "tokenizer.ggml.merges", merges, 1);
        struct opened o = open_gguf(&g);
        if (ignore)
            assert_ids(o.tok, T("abab"), 0, IDS(3));
        else
            assert_ids(o.tok, T("abab"), 0, IDS(2, 2));
        assert_ids(o.tok, T("azb"), 0, IDS(0, 1)); /* a byte without a token is lost, as upstream */
        assert_int_equal(teg_tok_bos(o.tok), -1);
        opened_free(&o);
    }
}

/* What each family keeps together: the pieces of one text, as the lengths of its words. Without merges every byte is a
 * token, so the words are seen through a normal "ignore merges" vocabulary: here through the regexes alone. */
struct cut {
    const char *pre, *text;
    const char *pieces; /* separated by '/' */
};

static const struct cut cuts[] = {
    {"gpt-2", "I'll be 1234 x's  y!?\n", "I/'ll/ be/ 1234/ x/'s/ / y/!?/\n"},
    {"gpt-2", "I'LL", "I/'/LL"},
    {"smollm", "a 12", "a/ /1/2"},
    {"llama3", "I'LL go_12345 !!\n\nx  y", "I/'LL/ go/_/123/45/ !!\n\n/x/ / y"},
    {"qwen2", "v12 \n\n z", "v/1/2/ \n\n/ z"},
    {"tekken", "camelCase HTTPServer 12", "camel/Case/ HTTPServer/ /1/2"},
    {"gpt-4o", "camelCase it'S 1234/\n", "camel/Case/ it'S/ /123/4//\n"},
    {"deepseek-llm", "ab\n12  !\xE4\xBD\xA0", "ab/\n/12/ / !/\xE4\xBD\xA0"},
    {"deepseek-coder", "ab 12!", "ab/ /1/2/!"},
    {"deepseek-v3", "1234 !ab!ab", "123/4/ !/ab/!ab"},
    {"falcon", "a 1234!?b", "a/ /123/4/!?/b"},
    {"default", "a 1234!", "a/ /123/4/!"},
    {"mpt", " a", " a"},
    {"gpt-2", "a\xE1\xA0\x8E b", "a/\xE1\xA0\x8E/ b"}, /* U+180E is no space any more */
};

static char seen[256];

static void families_cut_as_they_should(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        /* A vocabulary whose tokens are exactly the pieces, each ignoring merges, numbered in order. */
        struct gguf g = {0};
        const char *tokens[32];
        char texts[32][64];
        size_t n_tokens = 0;
        snprintf(seen, sizeof seen, "%s", cuts[i].pieces);
        for (char *p = seen, *end; *p && n_tokens < 32; p = end) {
            end = strchr(p + 1, '/'); /* the piece "/" itself is not cut */
            char *const next = end ? end + 1 : p + strlen(p);
            size_t n = 0;
            for (const char *c = p; c < (end ? end : next); c++)
                n += teg_utf8_put(teg_byte_letter((uint8_t)*c), texts[n_tokens] + n);
            texts[n_tokens][n] = '\0';
            tokens[n_tokens] = texts[n_tokens];
            n_tokens++;
            end = next;
        }
        gguf_text(&g, "tokenizer.ggml.model", "gpt2");
        gguf_text(&g, "tokenizer.ggml.pre", cuts[i].pre);
        gguf_texts(&g, "tokenizer.ggml.tokens", tokens, n_tokens);
        struct opened o = open_gguf(&g);
        if (o.status != TEG_OK)
            fail_msg("%s", o.err.message);
        o.tok->ignore_merges = true;
        int32_t ids[64];
        size_t n = 0;
        assert_int_equal(teg_tok_encode(o.tok, cuts[i].text, strlen(cuts[i].text), 0, ids, 64, &n, NULL), TEG_OK);
        bool same = n == n_tokens;
        for (size_t k = 0; same && k < n; k++)
            same = teg_tok_text(o.tok, ids[k]).n_bytes == strlen(tokens[k]) &&
                   memcmp(teg_tok_text(o.tok, ids[k]).bytes, tokens[k], strlen(tokens[k])) == 0;
        if (!same)
            fail_msg("%s cut \"%s\" into %zu known pieces, expected %s", cuts[i].pre, cuts[i].text, n, cuts[i].pieces);
        opened_free(&o);
    }
}

/* ---- SentencePiece ---- */

static void pieces_merge_by_score(void **state)
{
    (void)state;
    struct gguf g = gguf_spm();
    struct opened o = open_gguf(&g);
    assert_int_equal(o.status, TEG_OK);
    /* "▁ab" scores better than "ab", but only "▁a"+"b" or "▁"+"ab" can make it; "ab" (-3) comes before "▁a" (-4) */
    assert_ids(o.tok, T("ab"), 0, IDS(S_MAB));
    assert_ids(o.tok, T("aab"), 0, IDS(S_MA, S_AB));
    assert_ids(o.tok, T("a ab"), 0, IDS(S_MA, S_MAB));
    assert_ids(o.tok, T("he"), 0, IDS(S_MARK, S_HE));
    assert_ids(o.tok, T("b"), 0, IDS(S_MARK, S_BYTE + 'b'));
    assert_ids(o.tok, T("\xC3\xA9"), 0, IDS(S_MARK, S_BYTE + 0xC3, S_BYTE + 0xA9));
    assert_ids(o.tok, T(" a"), 0, IDS(S_TWO, S_A)); /* "▁▁" is user-defined: never merged, never split */
    assert_ids(o.tok, T("a\u2581\u2581he"), 0, IDS(S_MA, S_TWO, S_HE));
    assert_ids(o.tok, T("a<u>a</s>"), 0,
               IDS(S_MA, S_USER, S_MA, S_BYTE + '<', S_BYTE + '/', S_BYTE + 's', S_BYTE + '>'));
    assert_ids(o.tok, T("</s>a"), TEG_TOKENIZE_SPECIAL | TEG_TOKENIZE_BOS, IDS(1, 2, S_MA));
    assert_ids(o.tok, T("<0x41><unk>"), 0,
               IDS(S_MARK, S_BYTE + '<', S_BYTE + '0', S_BYTE + 'x', S_BYTE + '4', S_BYTE + '1', S_BYTE + '>',
                   S_BYTE + '<', S_BYTE + 'u', S_BYTE + 'n', S_BYTE + 'k', S_BYTE + '>'));
    assert_decodes(o.tok, IDS(S_MAB, S_MAB), "ab ab");
    assert_decodes(o.tok, IDS(1, S_MAB, S_USER, S_MAB), "<s>ab<u>ab");
    assert_decodes(o.tok, IDS(S_TWO, S_A), " a");
    assert_decodes(o.tok, IDS(S_MARK, S_BYTE + 0xC3, S_BYTE + 0xA9), "\u00e9");
    static const char *const texts[] = {"", " ", "  ", "ab  ab", "<u> ab<u>", "\n", "   <u>   he", "\u00e9\u00e9"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_round_trip(o.tok, texts[i], strlen(texts[i]), TEG_TOKENIZE_SPECIAL);
    opened_free(&o);
}

static void no_space_is_added_where_the_file_says_no(void **state)
{
    (void)state;
    struct gguf g = gguf_spm();
    gguf_number(&g, "tokenizer.ggml.add_space_prefix", BOOL, 0);
    struct opened o = open_gguf(&g);
    assert_ids(o.tok, T("ab ab"), 0, IDS(S_AB, S_MAB));
    assert_decodes(o.tok, IDS(S_MAB), " ab");
    opened_free(&o);
}

static void unknown_where_there_are_no_bytes(void **state)
{
    (void)state;
    static const char *const tokens[] = {"<unk>", "<s>", "</s>", "a"};
    static const float scores[] = {0, 0, 0, -1};
    struct gguf g = {0};
    gguf_text(&g, "tokenizer.ggml.model", "llama");
    gguf_number(&g, "tokenizer.ggml.add_space_prefix", BOOL, 0);
    gguf_texts(&g, "tokenizer.ggml.tokens", tokens, 4);
    gguf_scores(&g, scores, 4);
    struct opened o = open_gguf(&g);
    assert_ids(o.tok, T("abba"), 0, IDS(3, 0, 0, 3));
    opened_free(&o);
}

static void phi3_specials_take_the_space_behind(void **state)
{
    (void)state;
    struct gguf g = gguf_spm();
    gguf_text(&g, "general.architecture", "phi3");
    struct opened o = open_gguf(&g);
    assert_ids(o.tok, T("</s> \n ab"), TEG_TOKENIZE_SPECIAL, IDS(2, S_MAB));
    assert_ids(o.tok, T("<s> a"), TEG_TOKENIZE_SPECIAL, IDS(1, S_TWO, S_A));
    opened_free(&o);
}

static void ends_of_generation(void **state)
{
    (void)state;
    struct gguf g = gguf_spm();
    gguf_number(&g, "tokenizer.ggml.eot_token_id", U32, S_HE);
    gguf_number(&g, "tokenizer.ggml.eom_token_id", U32, S_AB);
    gguf_text(&g, "tokenizer.chat_template", "{{ x }}");
    struct opened o = open_gguf(&g);
    const int32_t ends[] = {2, S_HE, S_AB, S_END};
    for (int32_t id = -1; id <= S_N; id++)
        assert_int_equal(teg_tok_is_end(o.tok, id), id == ends[0] || id == ends[1] || id == ends[2] || id == ends[3]);
    assert_ids(o.tok, T("<end_of_turn>"), TEG_TOKENIZE_SPECIAL, IDS(S_END)); /* control, though the file says user */
    assert_string_is(teg_tok_chat_template(o.tok), "{{ x }}");
    assert_string_is(teg_tok_text(o.tok, 1), "<s>");
    assert_null(teg_tok_text(o.tok, -1).bytes);
    assert_null(teg_tok_text(o.tok, S_N).bytes);
    opened_free(&o);
}

/* ---- tokenizer.json ---- */

static struct opened json(const char *normalizer, const char *pre, const char *added, const char *model)
{
    struct opened o = open_json(json_with(normalizer, pre, added, model), NULL);
    if (o.status != TEG_OK)
        fail_msg("%s", o.err.message);
    return o;
}

static void added_tokens_with_flags(void **state)
{
    (void)state;
    struct opened o = json("null", BYTE_LEVEL,
                           "{\"id\":200,\"content\":\"[L]\",\"lstrip\":true},"
                           "{\"id\":201,\"content\":\"[R]\",\"rstrip\":true,\"special\":true},"
                           "{\"id\":202,\"content\":\"[W]\",\"single_word\":true},"
                           "{\"id\":203,\"content\":\"[R]x\"}",
                           "");
    assert_int_equal(teg_tok_size(o.tok), 204);
    assert_ids(o.tok, T("a  [L] b"), 0, IDS('a', 200, 32, 'b'));
    assert_ids(o.tok, T("a [R]  b"), TEG_TOKENIZE_SPECIAL, IDS('a', 32, 201, 'b'));
    assert_ids(o.tok, T("[R]x"), TEG_TOKENIZE_SPECIAL, IDS(203)); /* the longest */
    assert_ids(o.tok, T("[R]"), 0, IDS('[', 'R', ']'));
    assert_ids(o.tok, T("[W] x[W]"), 0, IDS(202, 32, 'x', '[', 'W', ']'));
    opened_free(&o);
}

static void steps_of_the_pretokenizer(void **state)
{
    (void)state;
    struct opened o = json("null", "{\"type\":\"ByteLevel\"}", "", "");
    assert_ids(o.tok, T("a ab"), 0, IDS(129, 32, 128));
    opened_free(&o);
    o = json("null",
             "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"String\":\"b\"},"
             "\"behavior\":\"Removed\"}," BYTE_LEVEL "]}",
             "", "");
    assert_ids(o.tok, T("abab"), 0, IDS('a', 'a'));
    opened_free(&o);
    o = json("null",
             "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?=b)\"},"
             "\"behavior\":\"Isolated\"}," BYTE_LEVEL "]}",
             "", "");
    assert_ids(o.tok, T("abab"), 0, IDS('a', 'b', 'a', 'b')); /* an empty match is a cut */
    opened_free(&o);
}

static void normalizers_and_normalized_tokens(void **state)
{
    (void)state;
    struct opened o =
        json("{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"},{\"type\":\"Replace\",\"pattern\":"
             "{\"Regex\":\"[0-9]+\"},\"content\":\"a\"}]}",
             BYTE_LEVEL, "{\"id\":200,\"content\":\"<7>\",\"normalized\":true}", "");
    assert_ids(o.tok, T("\uFF12b"), 0, IDS(128)); /* a full-width 2, then a letter: "ab" */
    assert_ids(o.tok, T("<123>"), 0, IDS(200));   /* "<7>" and "<123>" are both "<a>" */
    opened_free(&o);
    o = json(
        "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"\u2581\"},{\"type\":\"Replace\","
        "\"pattern\":{\"String\":\" \"},\"content\":\"\u2581\"}]}",
        "null", "", "\"unk_token\":\"?\",\"fuse_unk\":true,");
    assert_ids(o.tok, T("ab \u4e00\u4e8c c"), 0, IDS(130, 128, 130, '?', 130, 'c'));
    assert_decodes(o.tok, IDS(130, 128, 130, 'c'), "ab c");
    opened_free(&o);
    o = json("{\"type\":\"NFD\"}", BYTE_LEVEL, "", "");
    opened_free(&o);
    o = json("{\"type\":\"NFKD\"}", "{\"type\":\"Metaspace\",\"prepend_scheme\":\"first\",\"split\":true}",
             "{\"id\":200,\"content\":\"<u>\"}", "");
    assert_ids(o.tok, T("a<u>ab"), 0, IDS(130, 'a', 200, 128));
    assert_decodes(o.tok, IDS(130, 'a', 200, 130, 128), "a<u> ab");
    opened_free(&o);
}

static void long_runs_of_marks_are_normalized(void **state)
{
    (void)state;
    struct opened o = json("{\"type\":\"NFC\"}", BYTE_LEVEL, "", "\"unk_token\":\"?\",");
    char text[3001] = "e";
    for (size_t i = 1; i < 3000; i += 2)
        memcpy(text + i, i % 4 == 1 ? "\u0301" : "\u0323", 2);
    size_t n = 0;
    assert_int_equal(teg_tok_encode(o.tok, text, 2999, 0, NULL, 0, &n, NULL), TEG_OK);
    assert_true(n > 1000);
    opened_free(&o);
}

static void post_processors_and_configuration(void **state)
{
    (void)state;
    static const char *const posts[] = {
        "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}},{\"Sequence\":{\"id\":\"A\"}}"
        ","
        "{\"SpecialToken\":{\"id\":\"</s>\"}}],\"special_tokens\":{\"<s>\":{\"ids\":[0]},\"</s>\":{\"ids\":[1]}}}",
        "{\"type\":\"RobertaProcessing\",\"cls\":[\"<s>\",0],\"sep\":[\"</s>\",1]}",
        "{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"},{\"type\":\"BertProcessing\",\"cls\":[\"<s>\","
        "0],"
        "\"sep\":[\"</s>\",1]}]}",
        "null",
    };
    for (size_t i = 0; i < 4; i++) {
        char text[2048];
        snprintf(text, sizeof text,
                 "{\"post_processor\":%s,\"added_tokens\":[{\"id\":0,\"content\":\"<s>\",\"special\":true},{\"id\":1,"
                 "\"content\":\"</s>\",\"special\":true}],\"model\":{\"vocab\":{\"a\":2}}}",
                 posts[i]);
        struct opened o =
            open_json(text, "{\"bos_token\":\"<s>\",\"eos_token\":{\"content\":\"</s>\"},"
                            "\"add_bos_token\":true,\"add_eos_token\":true,\"chat_template\":"
                            "[{\"name\":\"x\",\"template\":\"X\"},{\"name\":\"default\",\"template\":\"D\"}]}");
        if (o.status != TEG_OK)
            fail_msg("%s", o.err.message);
        assert_ids(o.tok, T("a"), TEG_TOKENIZE_BOS, IDS(0, 2, 1));
        assert_int_equal(teg_tok_bos(o.tok), 0);
        assert_true(teg_tok_is_end(o.tok, 1));
        assert_string_is(teg_tok_chat_template(o.tok), "D");
        opened_free(&o);
    }
    struct opened o = open_json("{\"model\":{\"vocab\":{\"a\":2}}}", "{\"chat_template\":\"S\"}");
    assert_string_is(teg_tok_chat_template(o.tok), "S");
    opened_free(&o);
    o = open_json("{\"model\":{\"vocab\":{\"a\":2}}}", "{\"chat_template\":[{\"name\":\"x\",\"template\":\"X\"}]}");
    assert_string_is(teg_tok_chat_template(o.tok), "X");
    opened_free(&o);
}

/* A safetensors directory: its files, config.json's ends, chat_template.jinja; and a GGUF in place of the tokenizer. */
static void directories_and_override_files(void **state)
{
    (void)state;
    const struct temp_dir d = temp_dir_make();
    char path[128];
    temp_write_text(&d, "config.json", "{\"model_type\":\"llama\",\"bos_token_id\":0,\"eos_token_id\":[2,1]}");
    temp_write_text(&d, "generation_config.json", "{\"eos_token_id\":3}");
    temp_write_text(&d, "tokenizer.json", "{\"model\":{\"vocab\":{\"a\":2,\"b\":1,\"c\":3,\"d\":0}}}");
    temp_write_text(&d, "tokenizer_config.json", "{\"chat_template\":\"old\"}");
    temp_write_text(&d, "chat_template.jinja", "new");
    struct gguf g = gguf_spm();
    struct bytes file = gguf_done(&g);
    temp_write(&d, "tiny.gguf", file.at, file.n);
    bytes_free(&file);
    struct teg_source *source = NULL;
    struct teg_tok *tok = NULL;
    struct teg_error err = {0};
    if (teg_source_open(d.path, false, NULL, &source, &err) != TEG_OK ||
        teg_tok_open(source, NULL, NULL, &tok, &err) != TEG_OK)
        fail_msg("%s", err.message);
    assert_ids(tok, T("ab"), 0, IDS(2, 1));
    assert_int_equal(teg_tok_bos(tok), 0);
    assert_int_equal(teg_tok_eos(tok), -1);
    assert_true(teg_tok_is_end(tok, 1) && teg_tok_is_end(tok, 2) && teg_tok_is_end(tok, 3) && !teg_tok_is_end(tok, 0));
    assert_string_is(teg_tok_chat_template(tok), "new");
    teg_tok_free(tok);
    temp_path(&d, "tiny.gguf", path);
    assert_int_equal(teg_tok_open(source, path, NULL, &tok, &err), TEG_OK);
    assert_int_equal(teg_tok_size(tok), S_N);
    teg_tok_free(tok);
    temp_path(&d, "tokenizer.json", path);
    assert_int_equal(teg_tok_open(NULL, path, NULL, &tok, &err), TEG_OK);
    assert_int_equal(teg_tok_size(tok), 4);
    teg_tok_free(tok);
    teg_source_free(source);
    temp_dir_remove(&d);
}

static void the_size_comes_first(void **state)
{
    (void)state;
    struct opened o = bpe("gpt-2");
    size_t n = 0;
    int32_t ids[3] = {-7, -7, -7};
    assert_int_equal(teg_tok_encode(o.tok, "xyz", 3, 0, NULL, 0, &n, NULL), TEG_OK);
    assert_int_equal(n, 3);
    assert_int_equal(teg_tok_encode(o.tok, "xyz", 3, 0, ids, 2, &n, NULL), TEG_OK);
    assert_int_equal(n, 3);
    assert_int_equal(ids[1], 'y');
    assert_int_equal(ids[2], -7);
    opened_free(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_merge_by_rank),
        cmocka_unit_test(special_tokens_are_parsed_on_demand),
        cmocka_unit_test(bos_where_the_file_says_so),
        cmocka_unit_test(invalid_utf8_reads_as_replacement),
        cmocka_unit_test(every_byte_comes_back),
        cmocka_unit_test(whole_words_first_where_merges_are_ignored),
        cmocka_unit_test(families_cut_as_they_should),
        cmocka_unit_test(pieces_merge_by_score),
        cmocka_unit_test(no_space_is_added_where_the_file_says_no),
        cmocka_unit_test(unknown_where_there_are_no_bytes),
        cmocka_unit_test(phi3_specials_take_the_space_behind),
        cmocka_unit_test(ends_of_generation),
        cmocka_unit_test(added_tokens_with_flags),
        cmocka_unit_test(steps_of_the_pretokenizer),
        cmocka_unit_test(normalizers_and_normalized_tokens),
        cmocka_unit_test(long_runs_of_marks_are_normalized),
        cmocka_unit_test(post_processors_and_configuration),
        cmocka_unit_test(directories_and_override_files),
        cmocka_unit_test(the_size_comes_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
