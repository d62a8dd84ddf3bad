/* tok/pretok_names.c: the pre-tokenizers that a GGUF file names in tokenizer.ggml.pre.
 *
 * GGUF stores a name, not the pattern, so this table is the only place that knows them. The patterns are those of the
 * models' own tokenizer.json files; each step isolates its matches and works on the pieces that the one before left.
 * A name that is not here is an error: a near miss would give plausible ids and a worse model. */
#include <string.h>

#include "tok/tok_int.h"

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES_LAST "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
/* "\\s+$", without trying it again from every space of a run. */
#define SPACES_AT_END "(?<!\\s)\\s++$"
#define LETTERS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define PUNCTUATION " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
/* Words that may start in capitals and end in small letters: "camelCase" is two. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(tail) "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" tail "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" tail
/* Letters of the alphabets with two cases, as DeepSeek lists them. Escaped, since some of them change when an editor
 * normalizes the file. */
#define CASED_ALPHABETS                                                                                                \
    "\\s?[A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}\\x{1C4}-\\x{293}"               \
    "\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}\\x{386}\\x{388}-\\x{38A}"             \
    "\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}"                    \
    "\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}"                  \
    "\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}"                  \
    "\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-"                   \
    "\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}"                   \
    "\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}"                  \
    "\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}"                     \
    "\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}"                   \
    "\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}"                    \
    "\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}"                  \
    "\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}"                  \
    "\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-"                  \
    "\\x{10CF2}\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}]+"
#define CJK "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"

struct named {
    const char *names[14]; /* NULL-terminated */
    bool ignore_merges, add_bos;
    const char *patterns[7]; /* NULL-terminated */
};

static const struct named table[] = {
    {{"gpt-2", "gpt2", "phi-2", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "gigachat", "a.x-4.0", "mellum",
      "exaone4", NULL},
     false,
     false,
     {TEG_PATTERN_GPT2, NULL}},
    {{"mpt", "olmo", "jais", "trillion", NULL}, false, false, {TEG_PATTERN_GPT2, NULL}},
    {{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", NULL},
     false,
     false,
     {"\\p{N}", TEG_PATTERN_GPT2, NULL}},
    {{"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", NULL},
     true,
     true,
     {CONTRACTIONS "|" LETTERS "|\\p{N}{1,3}|" PUNCTUATION "|" SPACES_LAST, NULL}},
    {{"dbrx", "smaug-bpe", "glm4", "chatglm-bpe", NULL},
     false,
     false,
     {CONTRACTIONS "|" LETTERS "|\\p{N}{1,3}|" PUNCTUATION "|" SPACES_LAST, NULL}},
    {{"qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez", NULL},
     false,
     false,
     {CONTRACTIONS "|" LETTERS "|\\p{N}|" PUNCTUATION "|" SPACES_LAST, NULL}},
    {{"tekken", NULL}, true, true, {CASED("") "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES_LAST, NULL}},
    {{"gpt-4o", "llama4", NULL},
     false,
     false,
     {CASED(CONTRACTIONS "?") "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES_LAST, NULL}},
    {{"deepseek-llm", NULL},
     false,
     false,
     {"[\\r\\n]", CASED_ALPHABETS,
      "\\s?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+", SPACES_AT_END, CJK,
      "\\p{N}+", NULL}},
    {{"deepseek-coder", NULL}, false, false, {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", CJK, "\\p{N}", NULL}},
    {{"deepseek-v3", "hunyuan-dense", NULL},
     false,
     false,
     {"\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+",
      "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
      "?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACES_LAST,
      NULL}},
    {{"falcon", NULL}, false, false, {"[\\p{P}$+<=>^~|`]+", TEG_PATTERN_GPT2, "[0-9][0-9][0-9]", NULL}},
    {{"default", NULL}, false, false, {"[\\p{P}$+<=>^~|]+", TEG_PATTERN_GPT2, "\\p{N}+", "[0-9][0-9][0-9]", NULL}},
};

static const struct named *find(const char *name, size_t n_bytes)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (const char *const *n = table[i].names; *n; n++)
            if (strlen(*n) == n_bytes && memcmp(*n, name, n_bytes) == 0)
                return &table[i];
    return NULL;
}

enum teg_status teg_pretok_named(struct teg_pretok *pretok, struct teg_arena *arena, const char *name, size_t n_bytes,
                                 bool *ignore_merges, bool *add_bos, struct teg_error *err)
{
    const struct named *const entry = find(name, n_bytes);
    if (!entry)
        FAIL(err, TEG_ERR_UNSUPPORTED,
             "cannot read the tokenizer: tokenizer.ggml.pre: expected a known pre-tokenizer such as llama-bpe, qwen2 "
             "or gpt-2, found \"%.*s\"; give the model's tokenizer.json instead",
             (int)(n_bytes < 64 ? n_bytes : 64), name);
    for (const char *const *p = entry->patterns; *p; p++)
        TRY(teg_pretok_add(pretok, arena, *p, strlen(*p), false, TEG_SPLIT_ISOLATED, false, "cannot read the tokenizer",
                           err));
    *ignore_merges = entry->ignore_merges;
    *add_bos = entry->add_bos;
    return TEG_OK;
}
