/* tok/normal_chars.c: normalizer steps that look at one character at a time: drop it, replace it, or put spaces round
 * it.
 *
 * Each step is a function from a character to at most three characters; where it says nothing, the character stays. So
 * a step is a row here and none of them can make a text more than nine times as long. Lists of characters are those of
 * the tokenizers library, version 0.22, which took them from SentencePiece and BERT. */
#include <utf8proc.h>

#include "tok/tok_int.h"

struct change {
    size_t n; /* characters that stand for it; 0 drops it */
    uint32_t to[3];
};

typedef void (*change_fn)(uint32_t c, struct change *change);

static void drop(struct change *change)
{
    change->n = 0;
}

static void lowercase(uint32_t c, struct change *change)
{
    if (c == 0x130) /* the one letter whose small form is two characters */
        *change = (struct change){2, {'i', 0x307}};
    else
        change->to[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
}

static void strip_marks(uint32_t c, struct change *change)
{
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    if (category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME)
        drop(change);
}

static void strip_accents(uint32_t c, struct change *change)
{
    if (utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_MN)
        drop(change);
}

static void nmt(uint32_t c, struct change *change)
{
    const bool control =
        (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
    const bool space = c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
                       (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF ||
                       c == 0xFFFD;
    if (control)
        drop(change);
    else if (space)
        change->to[0] = ' ';
}

/* Controls, formats and private use go; white space becomes ' '. */
static void clean(uint32_t c, struct change *change)
{
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    const bool space = c == '\t' || c == '\n' || c == '\r' || teg_char_is_space(c);
    const bool other =
        category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_CO;
    if (c == 0 || c == 0xFFFD || (other && c != '\t' && c != '\n' && c != '\r'))
        drop(change);
    else if (space)
        change->to[0] = ' ';
}

static void space_ideograms(uint32_t c, struct change *change)
{
    static const uint32_t ranges[][2] = {
        {0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
        {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i][0] && c <= ranges[i][1])
            *change = (struct change){3, {' ', c, ' '}};
}

static const change_fn functions[] = {
    [TEG_NORMAL_LOWERCASE] = lowercase,
    [TEG_NORMAL_STRIP_MARKS] = strip_marks,
    [TEG_NORMAL_STRIP_ACCENTS] = strip_accents,
    [TEG_NORMAL_NMT] = nmt,
    [TEG_NORMAL_CLEAN] = clean,
    [TEG_NORMAL_SPACE_IDEOGRAMS] = space_ideograms,
};

static void strip(enum teg_normal_kind kind, struct teg_buf *out, const char *text, size_t n_bytes)
{
    size_t n;
    while (kind == TEG_NORMAL_STRIP_LEFT && n_bytes && teg_char_is_space(teg_char_at(text, &n))) {
        text += n;
        n_bytes -= n;
    }
    while (kind == TEG_NORMAL_STRIP_RIGHT && n_bytes && teg_char_is_space(teg_char_before(text + n_bytes, &n)))
        n_bytes -= n;
    teg_buf_append(out, text, n_bytes);
}

static void letters(struct teg_buf *out, const char *text, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) {
        char letter[4];
        teg_buf_append(out, letter, teg_utf8_put(teg_byte_letter((uint8_t)text[i]), letter));
    }
}

bool teg_normal_chars(enum teg_normal_kind kind, struct teg_buf *out, const char *text, size_t n_bytes)
{
    if (kind == TEG_NORMAL_STRIP_LEFT || kind == TEG_NORMAL_STRIP_RIGHT) {
        strip(kind, out, text, n_bytes);
        return true;
    }
    if (kind == TEG_NORMAL_LETTERS) {
        letters(out, text, n_bytes);
        return true;
    }
    const change_fn change_of = (size_t)kind < sizeof functions / sizeof *functions ? functions[kind] : NULL;
    if (!change_of)
        return false;
    for (size_t i = 0, n; i < n_bytes && !out->failed; i += n) {
        struct change change = {1, {teg_char_at(text + i, &n)}};
        change_of(change.to[0], &change);
        for (size_t k = 0; k < change.n; k++) {
            char bytes[4];
            teg_buf_append(out, bytes, teg_utf8_put(change.to[k], bytes));
        }
    }
    return true;
}
