/* base/text.c: see text.h. */
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

static bool reserve(struct teg_buf *buf, size_t more_bytes)
{
    size_t need;
    if (buf->failed || !teg_add(buf->n_bytes, more_bytes, &need) || !teg_add(need, 1, &need)) {
        buf->failed = true;
        return false;
    }
    if (need <= buf->capacity_bytes)
        return true;
    size_t capacity = teg_max(need, 64);
    if (buf->capacity_bytes < SIZE_MAX / 2)
        capacity = teg_max(capacity, buf->capacity_bytes * 2);
    char *const bytes = realloc(buf->bytes, capacity);
    if (!bytes) {
        buf->failed = true;
        return false;
    }
    buf->bytes = bytes;
    buf->capacity_bytes = capacity;
    return true;
}

void teg_buf_append(struct teg_buf *buf, const char *bytes, size_t n_bytes)
{
    if (!reserve(buf, n_bytes))
        return;
    if (n_bytes)
        memcpy(buf->bytes + buf->n_bytes, bytes, n_bytes);
    buf->n_bytes += n_bytes;
    buf->bytes[buf->n_bytes] = '\0';
}

void teg_buf_puts(struct teg_buf *buf, const char *string)
{
    teg_buf_append(buf, string, strlen(string));
}

void teg_buf_printf(struct teg_buf *buf, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0 || !reserve(buf, (size_t)n)) {
        buf->failed = true;
        return;
    }
    va_start(args, format);
    (void)vsnprintf(buf->bytes + buf->n_bytes, (size_t)n + 1, format, args);
    va_end(args);
    buf->n_bytes += (size_t)n;
}

void teg_buf_json_string(struct teg_buf *buf, const char *bytes, size_t n_bytes)
{
    teg_buf_puts(buf, "\"");
    for (size_t i = 0; i < n_bytes;) {
        uint32_t c;
        size_t bad = 0;
        const size_t n = teg_utf8_next(bytes + i, n_bytes - i, &c, &bad);
        if (!n)
            teg_buf_puts(buf, "\xEF\xBF\xBD");
        else if (c == '"' || c == '\\')
            teg_buf_printf(buf, "\\%c", (char)c);
        else if (c == '\n')
            teg_buf_puts(buf, "\\n");
        else if (c < 0x20 || c == 0x7f)
            teg_buf_printf(buf, "\\u%04x", (unsigned)c);
        else
            teg_buf_append(buf, bytes + i, n);
        i += n ? n : bad;
    }
    teg_buf_puts(buf, "\"");
}

void teg_buf_free(struct teg_buf *buf)
{
    free(buf->bytes);
    *buf = (struct teg_buf){0};
}

enum teg_status teg_buf_take(struct teg_buf *buf, struct teg_text *text, const char *what, struct teg_error *err)
{
    teg_buf_append(buf, "", 0); /* an empty text is still a NUL-terminated one */
    if (buf->failed) {
        const size_t n_bytes = buf->n_bytes;
        teg_buf_free(buf);
        return teg_base_fail_memory(err, what, n_bytes);
    }
    *text = (struct teg_text){buf->bytes, buf->n_bytes};
    *buf = (struct teg_buf){0};
    return TEG_OK;
}

/* The maximal bad sequence is that of Unicode 3.9, table 3-8, as Python's and WHATWG's decoders have it: the longest
 * prefix of a well-formed character, or one byte. */
size_t teg_utf8_next(const char *p, size_t n_bytes, uint32_t *code_point, size_t *bad_bytes)
{
    const uint8_t *const s = (const uint8_t *)p;
    const uint8_t b = s[0];
    *code_point = 0xFFFD;
    *bad_bytes = 1;
    if (b < 0x80) {
        *code_point = b;
        return 1;
    }
    const size_t n = b >= 0xF0 ? 4 : b >= 0xE0 ? 3 : 2;
    if (b < 0xC2 || b > 0xF4)
        return 0;
    /* The second byte's range is narrower after E0, ED, F0, F4: no overlong forms, surrogates or values past 10FFFF. */
    const uint8_t low = b == 0xE0 ? 0xA0 : b == 0xF0 ? 0x90 : 0x80;
    const uint8_t high = b == 0xED ? 0x9F : b == 0xF4 ? 0x8F : 0xBF;
    uint32_t c = b & (0x7Fu >> n);
    for (size_t i = 1; i < n; i++) {
        if (i >= n_bytes || s[i] < (i == 1 ? low : 0x80) || s[i] > (i == 1 ? high : 0xBF)) {
            *bad_bytes = i;
            return 0;
        }
        c = c << 6 | (s[i] & 0x3Fu);
    }
    *code_point = c;
    return n;
}

bool teg_utf8_is_valid(const char *text, size_t n_bytes)
{
    for (size_t i = 0, n; i < n_bytes; i += n) {
        uint32_t c;
        size_t bad;
        n = teg_utf8_next(text + i, n_bytes - i, &c, &bad);
        if (!n)
            return false;
    }
    return true;
}

size_t teg_utf8_put(uint32_t c, char out[4])
{
    if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000))
        c = 0xFFFD;
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    const size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80u | (c & 0x3Fu));
    out[0] = (char)((0xF00u >> n & 0xFFu) | c);
    return n;
}
