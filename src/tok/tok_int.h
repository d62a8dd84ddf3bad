/* tok/tok_int.h: what the files of tok/ share. Private to them.
 *
 * The road of a text through a tokenizer, the same for every kind of vocabulary:
 *
 *     bytes ─clean─► UTF-8 ─raw specials─► segments ─normalize─► ─normalized specials─► ─pre-tokenize─► words ─merge─►
 * ids
 *
 * A GGUF file and a tokenizer.json differ only in how the tables below are filled (tok_gguf.c, tok_hf.c). A struct
 * teg_tok is constant once it is open, so any number of threads may encode with it; what a call needs for itself is in
 * struct teg_encoder. Token texts are kept as the file has them (for byte-level BPE that is GPT-2's printable
 * alphabet), by reference where the file is mapped, because a second copy of every vocabulary would be the largest
 * thing here. */
#ifndef TEG_TOK_TOK_INT_H
#define TEG_TOK_TOK_INT_H

#include "tok/tok.h"

#define TEG_SPACE_MARK "\xE2\x96\x81" /* U+2581, what SentencePiece writes for a space */
#define TEG_SPACE_MARK_BYTES 3
#define TEG_NO_RANK UINT32_MAX
#define TEG_TEXT_LIMIT_BYTES ((size_t)1 << 30) /* positions are 32 bits wide, also after spaces grew to 3 bytes */

/* ---- vocabulary (vocab.c) ---- */

enum teg_token_type { /* the numbers of tokenizer.ggml.token_type */
                      TEG_TOKEN_NORMAL = 1,
                      TEG_TOKEN_UNKNOWN = 2,
                      TEG_TOKEN_CONTROL = 3,
                      TEG_TOKEN_USER = 4,
                      TEG_TOKEN_UNUSED = 5,
                      TEG_TOKEN_BYTE = 6,
};

struct teg_vocab_slot {
    uint32_t hash;
    int32_t id; /* -1: empty */
};

/* text -> id. Open addressing, at most half full. Of equal texts the lowest id is found. */
struct teg_vocab {
    const struct teg_string *texts; /* [n] */
    uint8_t *types;                 /* [n] enum teg_token_type */
    size_t n;
    size_t longest_bytes;
    struct teg_vocab_slot *slots;
    uint32_t mask;
    uint64_t seed; /* differs from run to run, so that a file cannot aim at long probe chains */
};

/* `texts` and `types` are set by the caller and outlive the vocabulary. */
enum teg_status teg_vocab_index(struct teg_vocab *vocab, struct teg_arena *arena, struct teg_error *err);
int32_t teg_vocab_find(const struct teg_vocab *vocab, const char *bytes, size_t n_bytes); /* -1: absent */

struct teg_pair_slot {
    int32_t left, right; /* left -1: empty */
    uint32_t rank;
    int32_t merged;
};

/* (left id, right id) -> merge. Of equal pairs the first rank stays. */
struct teg_pairs {
    struct teg_pair_slot *slots;
    uint32_t mask;
    uint64_t seed;
};

enum teg_status teg_pairs_reserve(struct teg_pairs *pairs, struct teg_arena *arena, size_t n, struct teg_error *err);
/* The merge `rank` of two texts; one whose parts or result are no tokens can never apply and is left out. */
void teg_pairs_add(struct teg_pairs *pairs, const struct teg_vocab *vocab, struct teg_string left,
                   struct teg_string right, uint32_t rank);
const struct teg_pair_slot *teg_pairs_find(const struct teg_pairs *pairs, int32_t left, int32_t right);

/* ---- special tokens (special.c) ---- */

enum {                          /* of one special token */
       TEG_SPECIAL_CONTROL = 1, /* matched under TEG_TOKENIZE_SPECIAL only */
       TEG_SPECIAL_LSTRIP = 2,  /* takes the white space before it along */
       TEG_SPECIAL_RSTRIP = 4,
       TEG_SPECIAL_WORD = 8,        /* only where no word character touches it */
       TEG_SPECIAL_PIECE = 32,      /* a symbol that the model itself looks for, in the normalized text */
       TEG_SPECIAL_NORMALIZED = 16, /* found once spaces are U+2581 */
};

struct teg_trie_node;

/* A set of texts, found leftmost-longest. Needs at most (longest text) steps per byte of input. */
struct teg_specials {
    struct teg_trie_node *nodes; /* node 0 is not used: 0 is "none" */
    uint32_t n_nodes, capacity;
    uint32_t first[256]; /* the node of each first byte */
};

struct teg_special_match {
    size_t start, end; /* of the text that the token stands for, stripped white space included */
    int32_t id;
};

/* Makes room for texts of together n_bytes. */
enum teg_status teg_specials_reserve(struct teg_specials *set, struct teg_arena *arena, size_t n_bytes,
                                     struct teg_error *err);
void teg_specials_add(struct teg_specials *set, struct teg_string text, int32_t id, unsigned flags);
/* The first match at or after `from`; false where there is none. */
bool teg_specials_next(const struct teg_specials *set, const char *text, size_t n_bytes, size_t from, bool control,
                       struct teg_special_match *match);

/* ---- unigram model (lattice.c) ---- */

struct teg_lattice_piece;
struct teg_lattice {
    const struct teg_lattice_piece *pieces; /* [n_pieces] sorted by text */
    size_t n_pieces;
    uint32_t first[257];            /* pieces that begin with byte b are first[b] … first[b + 1] - 1 */
    double best_score, worst_score; /* of the vocabulary */
    double unknown_score;
    bool narrow; /* sums are floats and a symbol of the user's is always taken, as in SentencePiece */
};

/* Pieces are the NORMAL and USER tokens of the first n_scores; best_score, worst_score and narrow are set. */
enum teg_status teg_lattice_index(struct teg_lattice *lattice, const struct teg_vocab *vocab, const double *scores,
                                  size_t n_scores, struct teg_arena *arena, struct teg_error *err);

/* ---- pre-tokenizer (pretok.c, pretok_names.c) ---- */

enum teg_split { TEG_SPLIT_ISOLATED, TEG_SPLIT_REMOVED, TEG_SPLIT_CONTIGUOUS, TEG_SPLIT_PREVIOUS, TEG_SPLIT_NEXT };

#define TEG_PRETOK_MAX_STEPS 12

enum teg_prefix { TEG_PREFIX_NEVER, TEG_PREFIX_FIRST, TEG_PREFIX_ALWAYS };

struct teg_regex;
struct teg_pretok_step {
    struct teg_regex *regex; /* NULL: the step writes spaces, the next two members say how */
    enum teg_prefix prefix;  /* a space put before a piece, unless it starts with one; FIRST: at the text's start */
    bool mark_spaces;        /* ' ' becomes U+2581 */
    enum teg_split split;
    bool invert;  /* what the pattern does not match is the match */
    bool letters; /* this step and those after it see bytes as GPT-2's letters: a ByteLevel component came before */
};

struct teg_pretok {
    bool letters; /* the next step to be added gets that flag */
    uint32_t n_steps;
    struct teg_pretok_step steps[TEG_PRETOK_MAX_STEPS];
};

/* `pattern` in the common part of Oniguruma's and PCRE2's syntax; `where` starts the message. The regex lives until
 * teg_pretok_free / teg_regex_free; its memory comes from the arena. */
enum teg_status teg_regex_new(struct teg_arena *arena, const char *pattern, size_t n_bytes, bool literal,
                              const char *where, struct teg_regex **regex, struct teg_error *err);
void teg_regex_free(struct teg_regex *regex);
enum teg_status teg_pretok_add(struct teg_pretok *pretok, struct teg_arena *arena, const char *pattern, size_t n_bytes,
                               bool literal, enum teg_split split, bool invert, const char *where,
                               struct teg_error *err);
enum teg_status teg_pretok_add_spaces(struct teg_pretok *pretok, enum teg_prefix prefix, bool mark_spaces,
                                      const char *where, struct teg_error *err);
/* The steps that tokenizer.ggml.pre names. *ignore_merges and *add_bos as that family has them. */
enum teg_status teg_pretok_named(struct teg_pretok *pretok, struct teg_arena *arena, const char *name, size_t n_bytes,
                                 bool *ignore_merges, bool *add_bos, struct teg_error *err);
#define TEG_PATTERN_GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
void teg_pretok_free(struct teg_pretok *pretok);

/* ---- normalizer (normal.c, normal_chars.c, charsmap.c) ---- */

enum teg_normal_kind {
    TEG_NORMAL_NFC,
    TEG_NORMAL_NFD,
    TEG_NORMAL_NFKC,
    TEG_NORMAL_NFKD,
    TEG_NORMAL_PREPEND,
    TEG_NORMAL_REPLACE,
    TEG_NORMAL_LOWERCASE,
    TEG_NORMAL_STRIP_MARKS,   /* M* */
    TEG_NORMAL_STRIP_ACCENTS, /* Mn, as BERT does */
    TEG_NORMAL_STRIP_LEFT,    /* white space */
    TEG_NORMAL_STRIP_RIGHT,
    TEG_NORMAL_NMT,   /* controls away, odd spaces to ' ' */
    TEG_NORMAL_CLEAN, /* BERT's idea of the same */
    TEG_NORMAL_SPACE_IDEOGRAMS,
    TEG_NORMAL_LETTERS,  /* bytes as GPT-2's letters */
    TEG_NORMAL_CHARSMAP, /* by grapheme clusters */
    TEG_NORMAL_SENTENCE, /* the whole of SentencePiece's normalizer */
};

/* Rules of replacement as a model holds them, in place. */
struct teg_charsmap {
    const uint8_t *units;
    size_t n_units; /* 0: no rules */
    const char *texts;
    size_t n_text_bytes;
};

/* `blob` outlives the map. `where` starts the message. */
enum teg_status teg_charsmap_open(struct teg_charsmap *map, struct teg_span blob, const char *where,
                                  struct teg_error *err);
/* The longest key that the text begins with: returns its bytes, at least one character, and what stands for it. */
size_t teg_charsmap_next(const struct teg_charsmap *map, const char *text, size_t n_bytes, struct teg_string *to);
/* The whole text as the tokenizers library changes it; ends early when `out` has more than limit_bytes. */
void teg_charsmap_apply(const struct teg_charsmap *map, struct teg_buf *out, const char *text, size_t n_bytes,
                        size_t limit_bytes);
/* `out` has room for 3/4 of the text. */
bool teg_base64_decode(struct teg_string text, uint8_t *out, size_t *n_out);

/* SentencePiece's NormalizerSpec. */
struct teg_sentence {
    struct teg_charsmap map;
    enum teg_prefix prefix; /* a space at the front, or where `suffix` at the end */
    bool suffix;
    bool remove_extra;        /* spaces at both ends and repeated ones go away */
    bool escape;              /* ' ' becomes U+2581 */
    struct teg_specials kept; /* texts that no rule changes */
};

struct teg_normal_step {
    enum teg_normal_kind kind;
    const struct teg_charsmap *map;      /* CHARSMAP */
    const struct teg_sentence *sentence; /* SENTENCE */
    struct teg_regex *regex;             /* REPLACE: what, or NULL for the plain text `needle` */
    struct teg_string needle;            /* not empty */
    struct teg_string content;           /* PREPEND, REPLACE: with what */
};

#define TEG_NORMAL_MAX_STEPS 12
struct teg_normal {
    uint32_t n_steps;
    struct teg_normal_step steps[TEG_NORMAL_MAX_STEPS];
};

/* ---- the tokenizer ---- */

enum teg_tok_kind {
    TEG_TOK_BYTES,   /* byte-level BPE: merges over bytes, texts in GPT-2's alphabet */
    TEG_TOK_CHARS,   /* BPE with merges over characters, unknown ones as bytes */
    TEG_TOK_SCORES,  /* SentencePiece: any two neighbours that are a token together merge, best score first */
    TEG_TOK_UNIGRAM, /* the segmentation with the best sum of scores */
};

#define TEG_TOK_MAX_ENDS 64
#define TEG_TOK_MAX_AROUND 8

struct teg_tok {
    struct teg_arena arena;
    struct teg_source *own_source; /* of an override file */
    enum teg_tok_kind kind;
    struct teg_vocab vocab;
    struct teg_pairs pairs;     /* BYTES, CHARS */
    const uint32_t *score_rank; /* SCORES: [n], lower merges first */
    struct teg_lattice lattice; /* UNIGRAM */
    int32_t byte_ids[256];      /* BYTES: each byte's symbol; else the <0xXX> tokens; -1: none */
    bool byte_fallback;         /* all but BYTES: all 256 are there */
    bool ignore_merges;         /* a word that is a token is that token */
    bool fuse_unknown;          /* a run of unknown characters is one token */
    /* joins_mark[b]: some token has U+2581 right after a character that ends in byte b. Where it is false no merge
     * can cross, and the text is cut there into independent words. */
    bool joins_mark[256];
    struct teg_specials raw;        /* found in the text as given */
    struct teg_specials normalized; /* found after normalization */
    struct teg_normal normal;
    struct teg_pretok pretok;
    bool letters;           /* texts are in GPT-2's alphabet; BYTES: always */
    bool marks_spaces;      /* decoding: U+2581 in a token is a space */
    enum teg_prefix strips; /* decoding: the space that encoding put in front goes away again */
    int32_t bos, eos, unk;  /* -1: none */
    int32_t before[TEG_TOK_MAX_AROUND], after[TEG_TOK_MAX_AROUND]; /* what TEG_TOKENIZE_BOS adds */
    uint32_t n_before, n_after;
    int32_t ends[TEG_TOK_MAX_ENDS];
    uint32_t n_ends;
    struct teg_string chat_template;
};

/* Files: each fills an empty tok whose arena is initialised. */
enum teg_status teg_tok_from_gguf(struct teg_tok *tok, const struct teg_source *source, struct teg_error *err);
/* config_path (tokenizer_config.json) and template_path (chat_template.jinja) may be NULL. */
/* A tokenizer.json and what stands beside it (tok_folder.c). */
enum teg_status teg_tok_read_folder(struct teg_tok *tok, const char *path, struct teg_error *err);
/* SentencePiece's tokenizer.model with added_tokens.json and special_tokens_map.json beside it (tok_model.c). */
enum teg_status teg_tok_from_model(struct teg_tok *tok, const char *model_path, const char *config_path,
                                   const char *template_path, struct teg_error *err);
/* The same from memory; any of the other files may be empty. */
struct teg_model_files {
    struct teg_span model, config, added, map;
    const char *path; /* for messages */
};
enum teg_status teg_tok_from_model_bytes(struct teg_tok *tok, const struct teg_model_files *files,
                                         struct teg_error *err);
/* Does the file begin as a tokenizer.model does, and not as JSON? */
bool teg_tok_is_model(struct teg_span head);
/* A tokenizer.json or a tokenizer.model, as its first bytes say. */
enum teg_status teg_tok_from_file(struct teg_tok *tok, const char *path, const char *config_path,
                                  const char *template_path, struct teg_error *err);
/* The path of a file beside another, NULL where there is none. */
const char *teg_tok_beside(struct teg_tok *tok, const char *path, const char *name);
enum teg_status teg_tok_from_hf(struct teg_tok *tok, const char *json_path, const char *config_path,
                                const char *template_path, struct teg_error *err);
/* The same from memory; config may be empty. `path` is for messages. */
enum teg_status teg_tok_from_json(struct teg_tok *tok, struct teg_span json, struct teg_span config, const char *path,
                                  struct teg_error *err);

/* A whole tokenizer from memory, for tests and fuzzing. */
enum teg_status teg_tok_parse(struct teg_span json, struct teg_span config, const char *path,
                              const struct teg_allocator *allocator, struct teg_tok **tok, struct teg_error *err);
enum teg_status teg_tok_parse_model(const struct teg_model_files *files, const struct teg_allocator *allocator,
                                    struct teg_tok **tok, struct teg_error *err);

/* tokenizer.json's "normalizer" and "pre_tokenizer" (hf_steps.c); NULL and null are none. */
struct json_t;
/* bos_token, eos_token and chat_template of a tokenizer_config.json; a chat_template.jinja, which wins (tok_hf.c). */
enum teg_status teg_hf_names(struct teg_tok *tok, const struct json_t *config, struct teg_error *err);
enum teg_status teg_hf_template(struct teg_tok *tok, const char *path, struct teg_error *err);
enum teg_status teg_hf_normalizer(struct teg_tok *tok, const struct json_t *json, const char *path,
                                  struct teg_error *err);
enum teg_status teg_hf_pretokenizer(struct teg_tok *tok, const struct json_t *json, const char *path,
                                    struct teg_error *err);

/* What both do last: index, byte ids, joins_mark, ends by text. The vocabulary's texts and types are set. */
enum teg_status teg_tok_index(struct teg_tok *tok, struct teg_error *err);
/* Ranks or the lattice from a score for each token; the index is made (tok_spm.c). */
enum teg_status teg_spm_scores(struct teg_tok *tok, const double *scores, struct teg_error *err);
/* Special tokens by their types; `flags` (NULL: none) has what comes on top for each token (tok_spm.c). */
enum teg_status teg_tok_add_specials(struct teg_tok *tok, const uint8_t *flags, struct teg_error *err);
/* Adds an end of generation; ids outside the vocabulary and those already there are ignored. */
void teg_tok_add_end(struct teg_tok *tok, int64_t id);

/* ---- one call of encode ---- */

struct teg_symbol;
struct teg_lattice_node;
struct teg_encoder {
    const struct teg_tok *tok;
    const struct teg_allocator *allocator;
    int32_t *ids;
    size_t capacity, n_ids;
    bool control; /* TEG_TOKENIZE_SPECIAL */
    bool first;   /* the segment is at the start of the text */
    bool last_unknown;
    struct teg_symbol *symbols; /* scratch of merge.c */
    uint64_t *heap;
    size_t symbols_capacity;
    struct teg_lattice_node *nodes; /* scratch of lattice.c */
    size_t nodes_capacity;
    void *match_data; /* scratch of pretok.c */
    bool letters;     /* words come as GPT-2's letters */
    struct teg_buf clean, normal, other, lettered, word;
    struct teg_buf marked[TEG_PRETOK_MAX_STEPS]; /* each step's own: pieces go down before the next one is cut */
};

static inline void teg_encoder_emit(struct teg_encoder *e, int32_t id)
{
    if (e->n_ids < e->capacity)
        e->ids[e->n_ids] = id;
    e->n_ids++;
}

/* One of the kinds that go by single characters (normal_chars.c); true where it is. */
bool teg_normal_chars(enum teg_normal_kind kind, struct teg_buf *out, const char *text, size_t n_bytes);
enum teg_status teg_normal_run(const struct teg_normal *normal, struct teg_encoder *e, const char *text, size_t n_bytes,
                               const char **out, size_t *n_out, struct teg_error *err);
/* Pre-tokenizes a segment and merges its words. `first`: the segment is at the start of the text. */
enum teg_status teg_pretok_run(struct teg_encoder *e, const char *text, size_t n_bytes, bool first,
                               struct teg_error *err);
/* One match of the regex in text, from byte `from`; *start is SIZE_MAX where there is none. */
enum teg_status teg_regex_next(const struct teg_regex *regex, struct teg_encoder *e, const char *text, size_t n_bytes,
                               size_t from, size_t *start, size_t *end, struct teg_error *err);
void teg_regex_scratch_free(struct teg_encoder *e);
/* Merges one word into ids (merge.c). */
enum teg_status teg_merge_word(struct teg_encoder *e, const char *word, size_t n_bytes, struct teg_error *err);
void teg_merge_scratch_free(struct teg_encoder *e);
/* Text that is no token: its bytes, or the unknown token, or nothing where the vocabulary has neither. */
void teg_emit_unknown(struct teg_encoder *e, const char *text, size_t n_bytes);
/* The best segmentation of one word into ids (lattice.c). */
enum teg_status teg_lattice_word(struct teg_encoder *e, const char *word, size_t n_bytes, struct teg_error *err);
void teg_lattice_scratch_free(struct teg_encoder *e);

/* ---- characters (chars.c) ---- */

bool teg_char_is_space(uint32_t c); /* Unicode White_Space */
bool teg_char_is_word(uint32_t c);  /* \w of UTS 18: alphabetic, marks, digits, connectors, joiners */
/* The code point that starts at, or ends right before, p; the text is valid UTF-8. *n_bytes is its length. */
uint32_t teg_char_at(const char *p, size_t *n_bytes);
uint32_t teg_char_before(const char *p, size_t *n_bytes);
/* GPT-2's printable alphabet. */
uint32_t teg_byte_letter(uint8_t byte);
int teg_letter_byte(uint32_t letter); /* -1: not of the alphabet */

#endif
