/* tok/chars.c: single characters: classes, steps through valid UTF-8, and GPT-2's printable alphabet for bytes.
 *
 * Byte-level vocabularies are written in that alphabet: a byte that prints in Latin-1 is itself, the other 68 are
 * U+0100 … U+0143 in order. Both directions are arithmetic over four ranges rather than a table built at open, so
 * there is no state. */
#include <utf8proc.h>

#include "tok/tok_int.h"

bool teg_char_is_space(uint32_t c)
{
    if (c < 0x80)
        return c == ' ' || (c >= 9 && c <= 13);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

bool teg_char_is_word(uint32_t c)
{
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) || category == UTF8PROC_CATEGORY_PC ||
           c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9);
}

uint32_t teg_char_at(const char *p, size_t *n_bytes)
{
    const uint8_t *const s = (const uint8_t *)p;
    if (s[0] < 0x80) {
        *n_bytes = 1;
        return s[0];
    }
    const size_t n = s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
    uint32_t c = s[0] & (0x7Fu >> n);
    for (size_t i = 1; i < n; i++)
        c = c << 6 | (s[i] & 0x3Fu);
    *n_bytes = n;
    return c;
}

uint32_t teg_char_before(const char *p, size_t *n_bytes)
{
    do
        p--;
    while (((uint8_t)*p & 0xC0) == 0x80);
    return teg_char_at(p, n_bytes);
}

/* Bytes that stand for themselves: 0x21 … 0x7E, 0xA1 … 0xAC, 0xAE … 0xFF. */
uint32_t teg_byte_letter(uint8_t byte)
{
    if (byte <= 0x20)
        return 0x100u + byte;
    if (byte <= 0x7E)
        return byte;
    if (byte <= 0xA0)
        return 0x121u + (byte - 0x7Fu);
    return byte == 0xAD ? 0x143u : byte;
}

int teg_letter_byte(uint32_t letter)
{
    if (letter > 0x143)
        return -1;
    if (letter == 0x143)
        return 0xAD;
    if (letter >= 0x121)
        return (int)(letter - 0x121 + 0x7F);
    if (letter >= 0x100)
        return (int)(letter - 0x100);
    return teg_byte_letter((uint8_t)letter) == letter ? (int)letter : -1;
}
