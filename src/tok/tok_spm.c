/* tok/tok_spm.c: what a SentencePiece vocabulary becomes, whether it came in a GGUF or in the model's own file.
 *
 * Both hold the same three columns: texts, types and scores. A BPE model needs the order of the scores only; a unigram
 * model needs their values, and SentencePiece adds them as floats. Special tokens are two sets: those that are found in
 * the text as it came, and those whose text appears only once spaces are U+2581. */
#include <string.h>

#include "base/check.h"
#include "tok/tok_int.h"

/* ---- scores ---- */

/* A score as a number that sorts the other way round, equal for equal scores: its float bits, made monotone. */
static uint32_t rank_of_score(double score)
{
    const float f = (float)(score == 0.0 ? 0.0 : score); /* -0 is 0 */
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    const uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    const uint32_t rank = ~ascending;
    return rank == TEG_NO_RANK ? TEG_NO_RANK - 1 : rank;
}

enum teg_status teg_spm_scores(struct teg_tok *tok, const double *scores, struct teg_error *err)
{
    const struct teg_vocab *const vocab = &tok->vocab;
    if (tok->kind == TEG_TOK_UNIGRAM) {
        struct teg_lattice *const lattice = &tok->lattice;
        bool any = false;
        lattice->narrow = true;
        for (size_t i = 0; i < vocab->n; i++)
            if (vocab->types[i] == TEG_TOKEN_NORMAL) {
                lattice->best_score = !any || scores[i] > lattice->best_score ? scores[i] : lattice->best_score;
                lattice->worst_score = !any || scores[i] < lattice->worst_score ? scores[i] : lattice->worst_score;
                any = true;
            }
        return teg_lattice_index(lattice, vocab, scores, vocab->n, &tok->arena, err);
    }
    uint32_t *const ranks = teg_arena_array(&tok->arena, vocab->n, sizeof *ranks);
    if (!ranks)
        return teg_base_fail_memory(err, "token scores", vocab->n * sizeof *ranks);
    for (size_t i = 0; i < vocab->n; i++)
        ranks[i] = rank_of_score(scores[i]);
    tok->score_rank = ranks;
    return TEG_OK;
}

/* ---- special tokens ---- */

static bool has_space(struct teg_string s)
{
    return s.n_bytes &&
           (memchr(s.bytes, ' ', s.n_bytes) || memmem(s.bytes, s.n_bytes, TEG_SPACE_MARK, TEG_SPACE_MARK_BYTES));
}

/* Does the text of this token appear in the text only once spaces are U+2581? */
static bool is_normalized(const struct teg_tok *tok, size_t id, const uint8_t *flags)
{
    const bool spaced = (tok->kind == TEG_TOK_SCORES || tok->kind == TEG_TOK_UNIGRAM) &&
                        tok->vocab.types[id] == TEG_TOKEN_USER && has_space(tok->vocab.texts[id]);
    return spaced || (flags && flags[id] & (TEG_SPECIAL_NORMALIZED | TEG_SPECIAL_PIECE));
}

static bool is_special(const struct teg_tok *tok, size_t id, const uint8_t *flags)
{
    const uint8_t type = tok->vocab.types[id];
    if (tok->kind == TEG_TOK_UNIGRAM && flags && flags[id] & TEG_SPECIAL_PIECE)
        return false; /* the lattice takes it */
    return type == TEG_TOKEN_CONTROL || type == TEG_TOKEN_UNKNOWN || type == TEG_TOKEN_USER;
}

static enum teg_status marked(struct teg_tok *tok, struct teg_string text, struct teg_string *out,
                              struct teg_error *err)
{
    char *const bytes = teg_arena_array(&tok->arena, text.n_bytes, TEG_SPACE_MARK_BYTES);
    size_t n = 0;
    if (!bytes)
        return teg_base_fail_memory(err, "a special token", text.n_bytes);
    for (size_t i = 0; i < text.n_bytes; i++) {
        const size_t length = text.bytes[i] == ' ' ? TEG_SPACE_MARK_BYTES : 1;
        memcpy(bytes + n, length > 1 ? TEG_SPACE_MARK : text.bytes + i, length);
        n += length;
    }
    *out = (struct teg_string){bytes, n};
    return TEG_OK;
}

enum teg_status teg_tok_add_specials(struct teg_tok *tok, const uint8_t *flags, struct teg_error *err)
{
    size_t n_raw = 0, n_normalized = 0;
    for (size_t id = 0; id < tok->vocab.n; id++)
        if (is_special(tok, id, flags))
            *(is_normalized(tok, id, flags) ? &n_normalized : &n_raw) += tok->vocab.texts[id].n_bytes;
    TRY(teg_specials_reserve(&tok->raw, &tok->arena, n_raw, err));
    TRY(teg_specials_reserve(&tok->normalized, &tok->arena, n_normalized * TEG_SPACE_MARK_BYTES, err));
    for (size_t id = 0; id < tok->vocab.n; id++) {
        struct teg_string text = tok->vocab.texts[id];
        if (!is_special(tok, id, flags) || !text.n_bytes)
            continue;
        const unsigned control = tok->vocab.types[id] == TEG_TOKEN_USER ? 0 : TEG_SPECIAL_CONTROL;
        const unsigned all = control | (flags ? flags[id] : 0u);
        if (is_normalized(tok, id, flags)) {
            if (!flags || !(flags[id] & TEG_SPECIAL_PIECE)) /* those have their spaces written as the model has them */
                TRY(marked(tok, text, &text, err));
            teg_specials_add(&tok->normalized, text, (int32_t)id, all);
        } else {
            teg_specials_add(&tok->raw, text, (int32_t)id, all);
        }
    }
    return TEG_OK;
}
