/* tok/normal.c: changes to a text before it is cut: Unicode forms, prepending, replacing.
 *
 * Each step reads one buffer and writes the other, so n steps need two buffers. Unicode forms come from utf8proc. It
 * orders combining marks by insertion, quadratic in the length of a run of them; such runs are cut at 64 marks (no
 * language stacks more than a handful), which keeps the time linear and changes nothing that was ever written. A
 * replacement may make a text longer, within a limit: a hostile one would fill the memory. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <utf8proc.h>

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "tok/tok_int.h"

#define LONGEST_MARK_RUN 64
#define GROWTH_LIMIT 16
#define SMALL_BYTES ((size_t)64 << 20) /* any text may grow to this */

static const utf8proc_option_t form_options[] = {
    [TEG_NORMAL_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
    [TEG_NORMAL_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
    [TEG_NORMAL_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
    [TEG_NORMAL_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
};

/* Where to cut so that no run of combining marks is too long: the end of the piece that starts at `from`. */
static size_t piece_end(const char *text, size_t n_bytes, size_t from)
{
    size_t marks = 0;
    while (from < n_bytes) {
        size_t n;
        const uint32_t c = teg_char_at(text + from, &n);
        const bool is_mark = c >= 0x300 && utf8proc_get_property((utf8proc_int32_t)c)->combining_class != 0;
        marks = is_mark ? marks + 1 : 0;
        if (marks > LONGEST_MARK_RUN)
            break;
        from += n;
    }
    return from;
}

static void unicode_form(enum teg_normal_kind kind, struct teg_buf *out, const char *text, size_t n_bytes)
{
    size_t ascii = 0;
    while (ascii < n_bytes && (uint8_t)text[ascii] < 0x80)
        ascii++;
    if (ascii == n_bytes) {
        teg_buf_append(out, text, n_bytes);
        return;
    }
    for (size_t from = 0; from < n_bytes && !out->failed;) {
        const size_t end = piece_end(text, n_bytes, from);
        utf8proc_uint8_t *made = NULL;
        const utf8proc_ssize_t n = utf8proc_map((const utf8proc_uint8_t *)text + from, (utf8proc_ssize_t)(end - from),
                                                &made, form_options[kind]);
        if (n < 0)
            out->failed = true; /* the text is valid UTF-8, so this is memory */
        else
            teg_buf_append(out, (const char *)made, (size_t)n);
        free(made);
        from = end;
    }
}

static void replace_text(const struct teg_normal_step *step, struct teg_buf *out, const char *text, size_t n_bytes,
                         size_t limit_bytes)
{
    const char *const end = text + n_bytes;
    while (text < end && out->n_bytes <= limit_bytes) {
        const char *const at = memmem(text, (size_t)(end - text), step->needle.bytes, step->needle.n_bytes);
        teg_buf_append(out, text, (size_t)((at ? at : end) - text));
        if (!at)
            return;
        teg_buf_append(out, step->content.bytes, step->content.n_bytes);
        text = at + step->needle.n_bytes;
    }
}

static enum teg_status replace_regex(const struct teg_normal_step *step, struct teg_encoder *e, struct teg_buf *out,
                                     const char *text, size_t n_bytes, size_t limit_bytes, struct teg_error *err)
{
    size_t done = 0, from = 0;
    while (from <= n_bytes && out->n_bytes <= limit_bytes) {
        size_t start = SIZE_MAX, end = 0;
        TRY(teg_regex_next(step->regex, e, text, n_bytes, from, &start, &end, err));
        if (start == SIZE_MAX)
            break;
        teg_buf_append(out, text + done, start - done);
        teg_buf_append(out, step->content.bytes, step->content.n_bytes);
        done = from = end;
        if (end == start) {
            size_t n = 1;
            if (end < n_bytes)
                (void)teg_char_at(text + end, &n);
            from = end + n;
        }
    }
    teg_buf_append(out, text + done, n_bytes - done);
    return TEG_OK;
}

/* SentencePiece's normalizer: rules, then spaces. A space is only taken from the front of what a rule gives, as there.
 */
static void sentence(const struct teg_sentence *s, bool first, struct teg_buf *out, const char *text, size_t n_bytes,
                     size_t limit_bytes)
{
    const char *const space = s->escape ? TEG_SPACE_MARK : " ";
    const size_t n_space = strlen(space);
    const bool adds = s->prefix == TEG_PREFIX_ALWAYS || (s->prefix == TEG_PREFIX_FIRST && first);
    bool after_space = s->remove_extra, some = !s->remove_extra; /* more than spaces */
    if (adds && !s->suffix)
        teg_buf_append(out, space, n_space);
    struct teg_special_match kept = {.start = 0};
    bool any = teg_specials_next(&s->kept, text, n_bytes, 0, true, &kept);
    for (size_t i = 0; i < n_bytes && out->n_bytes <= limit_bytes && !out->failed;) {
        struct teg_string to;
        if (any && kept.start < i) /* a rule went over it */
            any = teg_specials_next(&s->kept, text, n_bytes, i, true, &kept);
        if (any && kept.start == i) {
            to = (struct teg_string){text + i, kept.end - i};
            i = kept.end;
        } else {
            i += teg_charsmap_next(&s->map, text + i, n_bytes - i, &to);
        }
        some = some || to.n_bytes != 1 || to.bytes[0] != ' ';
        while (after_space && to.n_bytes && to.bytes[0] == ' ')
            to = (struct teg_string){to.bytes + 1, to.n_bytes - 1};
        for (size_t k = 0; k < to.n_bytes; k++)
            if (to.bytes[k] == ' ')
                teg_buf_append(out, space, n_space);
            else
                teg_buf_append(out, to.bytes + k, 1);
        if (to.n_bytes)
            after_space = s->remove_extra && to.bytes[to.n_bytes - 1] == ' ';
    }
    while (s->remove_extra && out->n_bytes >= n_space &&
           memcmp(out->bytes + out->n_bytes - n_space, space, n_space) == 0)
        out->n_bytes -= n_space;
    if (adds && s->suffix && some)
        teg_buf_append(out, space, n_space);
}

/* Does the step take the first character away? Then what it leaves is not at the start of the text, says the
 * tokenizers library, and a prefix for that place is not written. */
static bool drops_first(enum teg_normal_kind kind, struct teg_buf *out, const char *text, size_t n_bytes)
{
    size_t n;
    (void)teg_char_at(text, &n);
    const bool drops = teg_normal_chars(kind, out, text, teg_min(n, n_bytes)) && !out->n_bytes;
    out->n_bytes = 0;
    return drops;
}

static enum teg_status run_step(const struct teg_normal_step *step, struct teg_encoder *e, struct teg_buf *out,
                                const char *text, size_t n_bytes, size_t limit, struct teg_error *err)
{
    switch (step->kind) {
    case TEG_NORMAL_PREPEND:
        teg_buf_append(out, step->content.bytes, step->content.n_bytes);
        teg_buf_append(out, text, n_bytes);
        return TEG_OK;
    case TEG_NORMAL_REPLACE:
        if (step->regex)
            return replace_regex(step, e, out, text, n_bytes, limit, err);
        replace_text(step, out, text, n_bytes, limit);
        return TEG_OK;
    case TEG_NORMAL_CHARSMAP:
        teg_charsmap_apply(step->map, out, text, n_bytes, limit);
        return TEG_OK;
    case TEG_NORMAL_SENTENCE:
        sentence(step->sentence, e->first, out, text, n_bytes, limit);
        return TEG_OK;
    default:
        e->first = e->first && !drops_first(step->kind, out, text, n_bytes);
        if (!teg_normal_chars(step->kind, out, text, n_bytes))
            unicode_form(step->kind, out, text, n_bytes);
        return TEG_OK;
    }
}

enum teg_status teg_normal_run(const struct teg_normal *normal, struct teg_encoder *e, const char *text, size_t n_bytes,
                               const char **result, size_t *n_result, struct teg_error *err)
{
    struct teg_buf *out = &e->normal, *in = &e->other;
    const size_t limit = teg_max(SMALL_BYTES, GROWTH_LIMIT * n_bytes); /* a text is at most 1 GiB */
    for (uint32_t i = 0; i < normal->n_steps && n_bytes; i++) {
        const struct teg_normal_step *const step = &normal->steps[i];
        out->n_bytes = 0;
        TRY(run_step(step, e, out, text, n_bytes, limit, err));
        if (out->failed)
            return teg_base_fail_memory(err, "normalizing the text", n_bytes);
        if (out->n_bytes > limit)
            FAIL(err, TEG_ERR_UNSUPPORTED,
                 "cannot tokenize: normalizer step %u: expected at most %zu bytes of text, found more; use another "
                 "tokenizer.json",
                 i, limit);
        text = out->bytes;
        n_bytes = out->n_bytes;
        struct teg_buf *const swap = in;
        in = out;
        out = swap;
    }
    *result = text;
    *n_result = n_bytes;
    return TEG_OK;
}
