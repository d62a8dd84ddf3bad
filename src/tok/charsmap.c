/* tok/charsmap.c: the normalization rules that SentencePiece compiles into a model.
 *
 *     u32 n          bytes of the trie, little endian
 *     u32 units[n/4] a double array (Darts): bit 31 says "value", bits 0-7 are a label, bit 8 "a key ends here",
 *                    bits 10-30 (times 256 where bit 9 is set) the offset to the children
 *     char texts[]   what keys are replaced by, each with a NUL behind it; a value is a position in here
 *
 * The whole is bytes from a file: every step of a walk is checked against the ends of both arrays, a walk is cut where
 * no real key is that long (a trie can be made to run in a circle), and a rule that would cut a character in two, is
 * absurdly long, or puts invalid UTF-8 into the text counts as absent. Nothing is unpacked: a walk is one or two loads
 * per byte, and the table is read in place.
 *
 * Two programs apply these rules differently, and vocabularies depend on it. SentencePiece replaces the longest key at
 * each position. The tokenizers library goes by grapheme clusters: one of fewer than six bytes is replaced as a whole
 * by the rule of its *shortest* prefix; otherwise the same is done with each character. So there are both. */
#include <utf8proc.h>

#include <string.h>

#include "base/check.h"
#include "tok/tok_int.h"

enum teg_status teg_charsmap_open(struct teg_charsmap *map, struct teg_span blob, const char *where,
                                  struct teg_error *err)
{
    struct teg_cursor c = teg_cursor_of(blob.bytes, blob.n_bytes);
    struct teg_span units;
    uint32_t n_bytes;
    if (!teg_cursor_u32(&c, &n_bytes) || n_bytes % 4 || !teg_cursor_take(&c, n_bytes, &units))
        FAIL(err, TEG_ERR_FORMAT,
             "%s: precompiled_charsmap: expected a count of bytes and a trie of that size, found %zu bytes that are "
             "no such table; download the file again",
             where, blob.n_bytes);
    *map =
        (struct teg_charsmap){units.bytes, n_bytes / 4, (const char *)c.bytes + c.position_bytes, teg_cursor_left(&c)};
    return TEG_OK;
}

#define LONGEST_KEY_BYTES 256 /* real ones stay under 40; both bound the work for a character */
#define LONGEST_RULE_BYTES 1024

static bool unit_at(const struct teg_charsmap *map, size_t at, uint32_t *unit)
{
    if (at >= map->n_units)
        return false;
    const uint8_t *const p = map->units + 4 * at;
    *unit = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    return true;
}

static size_t offset_of(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & 0x200u) >> 6);
}

/* The text of a value; false where there is none that could be used. */
static bool text_of(const struct teg_charsmap *map, uint32_t value, struct teg_string *to)
{
    if (value >= map->n_text_bytes)
        return false;
    const char *const text = map->texts + value;
    *to = (struct teg_string){text, strnlen(text, teg_min(map->n_text_bytes - value, LONGEST_RULE_BYTES + 1))};
    return to->n_bytes <= LONGEST_RULE_BYTES && teg_utf8_is_valid(text, to->n_bytes);
}

static bool ends_character(const char *text, size_t n_bytes, size_t at)
{
    return at == n_bytes || ((uint8_t)text[at] & 0xC0) != 0x80;
}

/* The shortest or the longest key that `text` begins with: how many bytes it takes and what replaces them. */
static bool match(const struct teg_charsmap *map, const char *text, size_t n_bytes, bool longest, size_t *length,
                  struct teg_string *to)
{
    uint32_t unit, value = 0;
    *length = 0;
    if (!unit_at(map, 0, &unit))
        return false;
    size_t at = offset_of(unit);
    for (size_t i = 0; i < n_bytes && i < LONGEST_KEY_BYTES && text[i] && (longest || !*length); i++) {
        const uint8_t byte = (uint8_t)text[i];
        at ^= byte;
        if (!unit_at(map, at, &unit) || (unit & 0x800000FFu) != byte)
            break;
        at ^= offset_of(unit);
        if (unit & 0x100u && ends_character(text, n_bytes, i + 1) && unit_at(map, at, &unit)) {
            value = unit & 0x7FFFFFFFu;
            *length = i + 1;
        }
    }
    return *length && text_of(map, value, to);
}

size_t teg_charsmap_next(const struct teg_charsmap *map, const char *text, size_t n_bytes, struct teg_string *to)
{
    size_t length = 0;
    if (map->n_units && match(map, text, n_bytes, true, &length, to))
        return length;
    (void)teg_char_at(text, &length);
    *to = (struct teg_string){text, length};
    return length;
}

static size_t grapheme_bytes(const char *text, size_t n_bytes)
{
    size_t n, at;
    utf8proc_int32_t state = 0;
    uint32_t c = teg_char_at(text, &at);
    while (at < n_bytes) {
        const uint32_t next = teg_char_at(text + at, &n);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)c, (utf8proc_int32_t)next, &state))
            break;
        c = next;
        at += n;
    }
    return at;
}

#define WHOLE_GRAPHEME_BYTES 6 /* from here on characters are looked at one by one */

void teg_charsmap_apply(const struct teg_charsmap *map, struct teg_buf *out, const char *text, size_t n_bytes,
                        size_t limit_bytes)
{
    for (size_t i = 0, n; i < n_bytes && out->n_bytes <= limit_bytes && !out->failed; i += n) {
        struct teg_string to;
        size_t length;
        n = grapheme_bytes(text + i, n_bytes - i);
        if (n < WHOLE_GRAPHEME_BYTES && match(map, text + i, n, false, &length, &to)) {
            teg_buf_append(out, to.bytes, to.n_bytes);
            continue;
        }
        for (size_t k = i, one; k < i + n && out->n_bytes <= limit_bytes; k += one) {
            (void)teg_char_at(text + k, &one);
            if (!match(map, text + k, one, false, &length, &to))
                to = (struct teg_string){text + k, one};
            teg_buf_append(out, to.bytes, to.n_bytes);
        }
    }
}

/* ---- base64 ---- */

static int digit_of(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool teg_base64_decode(struct teg_string text, uint8_t *out, size_t *n_out)
{
    uint32_t bits = 0;
    size_t n = 0;
    if (text.n_bytes % 4)
        return false;
    while (text.n_bytes && text.bytes[text.n_bytes - 1] == '=')
        text.n_bytes--;
    for (size_t i = 0; i < text.n_bytes; i++) {
        const int digit = digit_of(text.bytes[i]);
        if (digit < 0)
            return false;
        bits = bits << 6 | (uint32_t)digit;
        if (i % 4)
            out[n++] = (uint8_t)(bits >> (6 - 2 * (i % 4)));
    }
    *n_out = n;
    return true;
}
