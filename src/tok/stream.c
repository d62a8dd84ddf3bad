/* tok/stream.c: ids to text as they are generated.
 *
 * Bytes go through two stages. `tail` keeps an incomplete UTF-8 character (at most three bytes) until the next token
 * completes or breaks it. `text` is valid UTF-8 that has left the first stage; its first n_given bytes belong to the
 * caller since the last call, the rest is held back because a stop string may have begun in it. What is held is always
 * shorter than the longest stop string, so a push costs the piece and the stops, never the text so far.
 *
 * A generated text continues a prompt, so a leading space of SentencePiece stays: only a whole text loses it. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "tok/tok_int.h"

struct stop {
    const char *bytes;
    size_t n_bytes;
};

struct teg_stream {
    struct teg_arena arena; /* holds this struct's stops */
    const struct teg_tok *tok;
    struct stop *stops;
    size_t n_stops;
    struct teg_buf piece; /* raw bytes: the tail, then the new token */
    struct teg_buf text;
    size_t n_given;
    bool stopped;
};

static enum teg_status copy_stops(struct teg_stream *s, const char *const *stops, size_t n_stops, struct teg_error *err)
{
    s->stops = teg_arena_array(&s->arena, n_stops, sizeof *s->stops);
    if (!s->stops)
        return teg_base_fail_memory(err, "stop strings", n_stops * sizeof *s->stops);
    for (size_t i = 0; i < n_stops; i++) {
        const size_t n = stops[i] ? strlen(stops[i]) : 0;
        if (!n)
            FAIL(err, TEG_ERR_ARGUMENT, "cannot stream: stop string %zu: expected some text, found none; leave it out",
                 i);
        for (size_t at = 0, length; at < n; at += length) {
            uint32_t c;
            size_t bad;
            length = teg_utf8_next(stops[i] + at, n - at, &c, &bad);
            if (!length)
                FAIL(err, TEG_ERR_ARGUMENT,
                     "cannot stream: stop string %zu: expected UTF-8, found byte 0x%02x at position %zu", i,
                     (unsigned)(uint8_t)stops[i][at], at);
        }
        s->stops[i].bytes = teg_arena_string(&s->arena, stops[i], n);
        s->stops[i].n_bytes = n;
        if (!s->stops[i].bytes)
            return teg_base_fail_memory(err, "stop strings", n);
    }
    s->n_stops = n_stops;
    return TEG_OK;
}

enum teg_status teg_tok_stream_new(const struct teg_tok *tok, const char *const *stops, size_t n_stops,
                                   struct teg_stream **stream, struct teg_error *err)
{
    const struct teg_allocator *const allocator = tok->arena.allocator;
    struct teg_stream *const s = allocator->alloc(allocator->ctx, sizeof *s, TEG_ALIGN);
    if (!s)
        return teg_base_fail_memory(err, "a stream", sizeof *s);
    *s = (struct teg_stream){.tok = tok};
    teg_arena_init(&s->arena, allocator);
    const enum teg_status status = copy_stops(s, stops, n_stops, err);
    if (status != TEG_OK) {
        teg_stream_free(s);
        return status;
    }
    *stream = s;
    return TEG_OK;
}

void teg_stream_free(struct teg_stream *s)
{
    if (!s)
        return;
    const struct teg_allocator *const allocator = s->arena.allocator;
    teg_buf_free(&s->piece);
    teg_buf_free(&s->text);
    teg_arena_free(&s->arena);
    allocator->free(allocator->ctx, s, sizeof *s);
}

static void drop_front(struct teg_buf *buf, size_t n)
{
    if (n)
        memmove(buf->bytes, buf->bytes + n, buf->n_bytes - n);
    buf->n_bytes -= n;
}

/* Could these bytes, invalid up to the end, be the start of a character? */
static bool is_incomplete(const char *p, size_t n_bytes, size_t bad_bytes)
{
    return bad_bytes == n_bytes && (uint8_t)p[0] >= 0xC2 && (uint8_t)p[0] <= 0xF4;
}

/* Moves whole characters from `piece` to `text`; bad sequences become U+FFFD. */
static void take_characters(struct teg_stream *s, bool last)
{
    size_t at = 0;
    while (at < s->piece.n_bytes) {
        uint32_t c;
        size_t bad;
        const char *const p = s->piece.bytes + at;
        const size_t n = teg_utf8_next(p, s->piece.n_bytes - at, &c, &bad);
        if (!n && !last && is_incomplete(p, s->piece.n_bytes - at, bad))
            break;
        teg_buf_append(&s->text, n ? p : "\xEF\xBF\xBD", n ? n : 3);
        at += n ? n : bad;
    }
    drop_front(&s->piece, at);
}

/* Where the first stop string begins, or SIZE_MAX. */
static size_t find_stop(const struct teg_stream *s)
{
    size_t first = SIZE_MAX;
    for (size_t i = 0; i < s->n_stops && s->text.n_bytes; i++) {
        const char *const at = memmem(s->text.bytes, s->text.n_bytes, s->stops[i].bytes, s->stops[i].n_bytes);
        if (at)
            first = teg_min(first, (size_t)(at - s->text.bytes));
    }
    return first;
}

/* Where the longest start of a stop string begins that ends the text. A stop is UTF-8, so that is a whole character. */
static size_t find_stop_start(const struct teg_stream *s)
{
    const size_t n = s->text.n_bytes;
    size_t first = n;
    for (size_t i = 0; i < s->n_stops; i++) {
        const struct stop stop = s->stops[i];
        for (size_t length = teg_min(stop.n_bytes - 1, n); length > n - first; length--)
            if (memcmp(s->text.bytes + n - length, stop.bytes, length) == 0)
                first = n - length;
    }
    return first;
}

static enum teg_status give(struct teg_stream *s, size_t n, const char **bytes, size_t *n_bytes, struct teg_error *err)
{
    if (s->text.failed || s->piece.failed)
        return teg_base_fail_memory(err, "streamed text", s->text.n_bytes);
    s->n_given = n;
    *bytes = s->text.bytes ? s->text.bytes : "";
    *n_bytes = n;
    return TEG_OK;
}

enum teg_status teg_stream_push(struct teg_stream *s, int32_t id, const char **bytes, size_t *n_bytes, bool *stopped,
                                struct teg_error *err)
{
    drop_front(&s->text, s->n_given);
    s->n_given = 0;
    if (!s->stopped && !teg_tok_piece(s->tok, id, &s->piece))
        FAIL(err, TEG_ERR_ARGUMENT, "cannot stream: expected a token id from 0 to %zu, found %ld",
             teg_tok_size(s->tok) - 1, (long)id);
    take_characters(s, false);
    const size_t stop = find_stop(s);
    if (!s->stopped && stop != SIZE_MAX) {
        s->stopped = true;
        s->text.n_bytes = stop; /* the stop string and what came with it are not part of the text */
        s->piece.n_bytes = 0;
    }
    TRY(give(s, s->stopped ? s->text.n_bytes : find_stop_start(s), bytes, n_bytes, err));
    *stopped = s->stopped;
    return TEG_OK;
}

enum teg_status teg_stream_finish(struct teg_stream *s, const char **bytes, size_t *n_bytes, struct teg_error *err)
{
    drop_front(&s->text, s->n_given);
    s->n_given = 0;
    take_characters(s, true);
    return give(s, s->text.n_bytes, bytes, n_bytes, err);
}
