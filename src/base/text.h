/* base/text.h: a string that grows. Appends after a failed one do nothing, so a writer checks once, at the end, with
 * teg_buf_take. malloc-backed, because its result is handed to the caller as struct teg_text. */
#ifndef TEG_BASE_TEXT_H
#define TEG_BASE_TEXT_H

#include "base/error.h"

struct teg_buf {
    char *bytes;
    size_t n_bytes, capacity_bytes;
    bool failed;
};

void teg_buf_append(struct teg_buf *buf, const char *bytes, size_t n_bytes);
void teg_buf_puts(struct teg_buf *buf, const char *string);
void teg_buf_printf(struct teg_buf *buf, const char *format, ...) TEG_PRINTF(2, 3);
/* A JSON string literal of n bytes, quotes included; invalid UTF-8 becomes U+FFFD. */
void teg_buf_json_string(struct teg_buf *buf, const char *bytes, size_t n_bytes);
void teg_buf_free(struct teg_buf *buf);
/* Moves the content out (NUL-terminated) and clears buf; frees it and fails where an append had failed. */
enum teg_status teg_buf_take(struct teg_buf *buf, struct teg_text *text, const char *what, struct teg_error *err);

/* Length in bytes of the UTF-8 character at p (1 to 4), or 0 where the bytes are not valid UTF-8; then *bad_bytes is
 * the length of the maximal bad sequence (at least 1) that one U+FFFD stands for. n_bytes > 0. */
size_t teg_utf8_next(const char *p, size_t n_bytes, uint32_t *code_point, size_t *bad_bytes);
bool teg_utf8_is_valid(const char *text, size_t n_bytes);
/* Writes a code point (surrogates and values past U+10FFFF as U+FFFD); returns 1 to 4. */
size_t teg_utf8_put(uint32_t code_point, char out[4]);

#endif
