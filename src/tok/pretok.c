/* tok/pretok.c: cuts a segment into the words that merges may not cross.
 *
 * A pre-tokenizer is a list of steps; each is a pattern and what to do with its matches, and each cuts the pieces of
 * the step before it. A piece is pushed through the remaining steps as soon as it is known, so no list of pieces
 * exists, however long the text is. The depth of that is the number of steps, at most 12.
 *
 * Every published pre-tokenizer is a regular expression, so we run them as such, by PCRE2 (compiled to machine code
 * where the system lets us), instead of translating each by hand. Two things are not left to PCRE2: \s is written out
 * as Unicode's White_Space (PCRE2 counts U+180E in; likewise \w, which has no marks there), and work is bounded: it
 * keeps its backtracking on the heap, and a match gets a number of steps in proportion to the text, so a hostile
 * pattern ends in an error, not in a hang. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <string.h>

#include "base/check.h"
#include "tok/tok_int.h"

#define SPACES "\\t-\\r \\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"
#define WORD "\\p{L}\\p{M}\\p{Nd}\\p{Pc}"
#define PATTERN_LIMIT_BYTES ((size_t)64 << 10)

struct teg_regex {
    pcre2_code *code;
};

/* ---- compile ---- */

/* PCRE2 allocates through callbacks without sizes on free. A compiled pattern lives as long as the tokenizer, so its
 * memory comes from the arena and free does nothing. */
static void *arena_malloc(size_t n_bytes, void *arena)
{
    return teg_arena_array(arena, n_bytes, 1);
}

static void arena_no_free(void *p, void *arena)
{
    (void)p;
    (void)arena;
}

/* Rewrites what PCRE2 reads differently. Inside brackets Oniguruma knows nested classes and &&; PCRE2 takes both as
 * plain characters, so they are refused. */
static enum teg_status translate(const char *pattern, size_t n_bytes, struct teg_buf *out, const char *where,
                                 struct teg_error *err)
{
    bool in_class = false;
    for (size_t i = 0; i < n_bytes; i++) {
        const char c = pattern[i];
        const char next = i + 1 < n_bytes ? pattern[i + 1] : '\0';
        if (c == '\\' && next == 's') {
            teg_buf_puts(out, in_class ? SPACES : "[" SPACES "]");
            i++;
        } else if (c == '\\' && next == 'w') {
            teg_buf_puts(out, in_class ? WORD : "[" WORD "]");
            i++;
        } else if (c == '\\' && next == 'S' && !in_class) {
            teg_buf_puts(out, "[^" SPACES "]");
            i++;
        } else if (c == '\\' && i + 1 < n_bytes) {
            teg_buf_append(out, pattern + i, 2);
            i++;
        } else if (in_class && ((c == '[' && next != ':') || (c == '&' && next == '&'))) {
            FAIL(err, TEG_ERR_UNSUPPORTED,
                 "%s: pattern byte %zu: expected a plain character class, found %s inside one; use a tokenizer whose "
                 "pattern has none",
                 where, i, c == '[' ? "a class" : "&&");
        } else {
            if (c == '[' && !in_class) {
                in_class = true;
                teg_buf_append(out, "[", 1);
                if (next == '^')
                    teg_buf_append(out, pattern + ++i, 1);
                if (i + 1 < n_bytes && pattern[i + 1] == ']') /* a leading ] is a character */
                    teg_buf_append(out, pattern + ++i, 1);
                continue;
            }
            if (in_class && c == '[') { /* [:name:] */
                const char *const end = memchr(pattern + i, ']', n_bytes - i);
                const size_t n = end ? (size_t)(end - (pattern + i)) + 1 : 1;
                teg_buf_append(out, pattern + i, n);
                i += n - 1;
                continue;
            }
            if (c == ']')
                in_class = false;
            teg_buf_append(out, &c, 1);
        }
    }
    return TEG_OK;
}

static void quote(const char *text, size_t n_bytes, struct teg_buf *out)
{
    for (size_t i = 0; i < n_bytes; i++) {
        if (strchr("\\^$.|?*+()[]{}-#&~", text[i]) && text[i])
            teg_buf_append(out, "\\", 1);
        teg_buf_append(out, text + i, 1);
    }
}

static enum teg_status compile(struct teg_regex *regex, struct teg_arena *arena, const struct teg_buf *pattern,
                               const char *where, struct teg_error *err)
{
    pcre2_general_context *const general = pcre2_general_context_create(arena_malloc, arena_no_free, arena);
    pcre2_compile_context *const context = general ? pcre2_compile_context_create(general) : NULL;
    if (!context)
        return teg_base_fail_memory(err, "a pre-tokenizer pattern", 0);
    pcre2_set_max_pattern_length(context, PATTERN_LIMIT_BYTES);
    int code = 0;
    PCRE2_SIZE at = 0;
    regex->code =
        pcre2_compile((PCRE2_SPTR)(pattern->bytes ? pattern->bytes : ""), pattern->n_bytes,
                      PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | PCRE2_DOLLAR_ENDONLY, &code, &at, context);
    if (!regex->code) {
        if (code == PCRE2_ERROR_NOMEMORY || code == 121 /* the compiler's own name for it */)
            return teg_base_fail_memory(err, "a pre-tokenizer pattern", pattern->n_bytes);
        char reason[160] = "";
        (void)pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof reason);
        FAIL(err, TEG_ERR_UNSUPPORTED, "%s: pattern byte %zu: expected a regular expression, found %s", where,
             (size_t)at, reason);
    }
    (void)pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE); /* without it PCRE2 interprets */
    return TEG_OK;
}

enum teg_status teg_regex_new(struct teg_arena *arena, const char *pattern, size_t n_bytes, bool literal,
                              const char *where, struct teg_regex **regex, struct teg_error *err)
{
    if (n_bytes > PATTERN_LIMIT_BYTES)
        FAIL(err, TEG_ERR_UNSUPPORTED, "%s: expected a pattern of at most %zu bytes, found %zu", where,
             PATTERN_LIMIT_BYTES, n_bytes);
    struct teg_regex *const made = teg_arena_array(arena, 1, sizeof *made);
    if (!made)
        return teg_base_fail_memory(err, "a pre-tokenizer pattern", sizeof *made);
    struct teg_buf text = {0};
    enum teg_status status = TEG_OK;
    if (literal)
        quote(pattern, n_bytes, &text);
    else
        status = translate(pattern, n_bytes, &text, where, err);
    if (status == TEG_OK && text.failed)
        status = teg_base_fail_memory(err, "a pre-tokenizer pattern", n_bytes);
    if (status == TEG_OK)
        status = compile(made, arena, &text, where, err);
    teg_buf_free(&text);
    if (status == TEG_OK)
        *regex = made;
    return status;
}

void teg_regex_free(struct teg_regex *regex)
{
    if (regex)
        pcre2_code_free(regex->code); /* the machine code is not the arena's */
}

static enum teg_status next_step(struct teg_pretok *pretok, const char *where, struct teg_pretok_step **step,
                                 struct teg_error *err)
{
    if (pretok->n_steps == TEG_PRETOK_MAX_STEPS)
        FAIL(err, TEG_ERR_UNSUPPORTED, "%s: expected at most %d pre-tokenizer steps", where, TEG_PRETOK_MAX_STEPS);
    *step = &pretok->steps[pretok->n_steps];
    return TEG_OK;
}

enum teg_status teg_pretok_add_spaces(struct teg_pretok *pretok, enum teg_prefix prefix, bool mark_spaces,
                                      const char *where, struct teg_error *err)
{
    struct teg_pretok_step *step;
    TRY(next_step(pretok, where, &step, err));
    *step = (struct teg_pretok_step){.prefix = prefix, .mark_spaces = mark_spaces, .letters = pretok->letters};
    pretok->n_steps++;
    return TEG_OK;
}

enum teg_status teg_pretok_add(struct teg_pretok *pretok, struct teg_arena *arena, const char *pattern, size_t n_bytes,
                               bool literal, enum teg_split split, bool invert, const char *where,
                               struct teg_error *err)
{
    struct teg_pretok_step *step;
    TRY(next_step(pretok, where, &step, err));
    TRY(teg_regex_new(arena, pattern, n_bytes, literal, where, &step->regex, err));
    step->split = split;
    step->invert = invert;
    step->letters = pretok->letters;
    pretok->n_steps++;
    return TEG_OK;
}

void teg_pretok_free(struct teg_pretok *pretok)
{
    for (uint32_t i = 0; i < pretok->n_steps; i++)
        teg_regex_free(pretok->steps[i].regex); /* NULL is one that writes spaces */
}

/* ---- match ---- */

/* What PCRE2 needs during a call; its free() gets no size, so each block carries its own. */
struct match_scratch {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_general_context *general;
};

#define HEADER_BYTES 16

static void *sized_malloc(size_t n_bytes, void *allocator)
{
    const struct teg_allocator *const a = allocator;
    size_t total;
    if (!teg_add(n_bytes, HEADER_BYTES, &total))
        return NULL;
    char *const p = a->alloc(a->ctx, total, HEADER_BYTES);
    if (!p)
        return NULL;
    memcpy(p, &total, sizeof total);
    return p + HEADER_BYTES;
}

static void sized_free(void *ptr, void *allocator)
{
    const struct teg_allocator *const a = allocator;
    if (!ptr)
        return;
    char *const p = (char *)ptr - HEADER_BYTES;
    size_t total;
    memcpy(&total, p, sizeof total);
    a->free(a->ctx, p, total);
}

static enum teg_status match_scratch(struct teg_encoder *e, struct teg_error *err)
{
    if (e->match_data)
        return TEG_OK;
    void *const ctx = (void *)(uintptr_t)e->allocator; /* PCRE2 hands it back, unchanged, to the two above */
    struct match_scratch *const m = sized_malloc(sizeof *m, ctx);
    if (!m)
        return teg_base_fail_memory(err, "matching a pattern", sizeof *m);
    *m = (struct match_scratch){0};
    e->match_data = m;
    m->general = pcre2_general_context_create(sized_malloc, sized_free, ctx);
    m->context = m->general ? pcre2_match_context_create(m->general) : NULL;
    m->data = m->context ? pcre2_match_data_create(1, m->general) : NULL;
    if (!m->data)
        return teg_base_fail_memory(err, "matching a pattern", sizeof *m);
    return TEG_OK;
}

void teg_regex_scratch_free(struct teg_encoder *e)
{
    struct match_scratch *const m = e->match_data;
    if (!m)
        return;
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->context);
    pcre2_general_context_free(m->general);
    sized_free(m, (void *)(uintptr_t)e->allocator);
    e->match_data = NULL;
}

enum teg_status teg_regex_next(const struct teg_regex *regex, struct teg_encoder *e, const char *text, size_t n_bytes,
                               size_t from, size_t *start, size_t *end, struct teg_error *err)
{
    TRY(match_scratch(e, err));
    struct match_scratch *const m = e->match_data;
    /* A real pattern backs off at most once per byte and alternative. */
    const size_t limit = 32 * (n_bytes - from) + 100000;
    pcre2_set_match_limit(m->context, limit < UINT32_MAX ? (uint32_t)limit : UINT32_MAX);
    int rc = pcre2_match(regex->code, (PCRE2_SPTR)text, n_bytes, from, PCRE2_NO_UTF_CHECK, m->data, m->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) /* the interpreter's stack is the heap */
        rc = pcre2_match(regex->code, (PCRE2_SPTR)text, n_bytes, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, m->data,
                         m->context);
    if (rc == PCRE2_ERROR_NOMATCH) {
        *start = SIZE_MAX;
        return TEG_OK;
    }
    if (rc == PCRE2_ERROR_NOMEMORY || rc == PCRE2_ERROR_HEAPLIMIT)
        return teg_base_fail_memory(err, "matching a pattern", n_bytes);
    if (rc < 0)
        FAIL(err, TEG_ERR_UNSUPPORTED,
             "cannot tokenize: byte %zu of a segment: expected a pre-tokenizer pattern that matches in time linear in "
             "the text, found one that needs more than %zu steps; use another tokenizer.json",
             from, limit);
    const PCRE2_SIZE *const span = pcre2_get_ovector_pointer(m->data);
    *start = span[0];
    *end = teg_max(span[0], span[1]); /* \K can put the start after the end */
    return TEG_OK;
}

/* ---- split ---- */

struct piece {
    size_t start, end;
    bool match;
};

/* One step at work on one piece of text; `held` waits for what follows it. */
struct splitter {
    struct teg_encoder *e;
    const char *text;
    uint32_t step;
    bool first; /* the text is at the start of what is encoded */
    bool holds;
    bool closed; /* PREVIOUS: `held` ends in a match and takes no other */
    struct piece held;
};

static enum teg_status run_steps(struct teg_encoder *e, uint32_t step, const char *text, size_t n_bytes, bool first,
                                 struct teg_error *err);

static enum teg_status pass_on(const struct splitter *s, size_t start, size_t end, struct teg_error *err)
{
    return start < end ? run_steps(s->e, s->step + 1, s->text + start, end - start, s->first && !start, err) : TEG_OK;
}

static enum teg_status flush(struct splitter *s, struct teg_error *err)
{
    if (!s->holds)
        return TEG_OK;
    s->holds = false;
    return pass_on(s, s->held.start, s->held.end, err);
}

static enum teg_status add_piece(struct splitter *s, struct piece p, struct teg_error *err)
{
    const enum teg_split split = s->e->tok->pretok.steps[s->step].split;
    bool join = false;
    switch (split) {
    case TEG_SPLIT_ISOLATED:
        return pass_on(s, p.start, p.end, err);
    case TEG_SPLIT_REMOVED:
        return p.match ? TEG_OK : pass_on(s, p.start, p.end, err);
    case TEG_SPLIT_CONTIGUOUS:
        join = s->held.match == p.match;
        break;
    case TEG_SPLIT_PREVIOUS:
        join = p.match && !s->closed;
        break;
    case TEG_SPLIT_NEXT:
        join = s->held.match && !p.match;
        break;
    }
    if (s->holds && join) {
        s->held.end = p.end;
        s->held.match = p.match;
    } else {
        TRY(flush(s, err));
        s->held = p;
        s->holds = true;
    }
    s->closed = p.match;
    return TEG_OK;
}

static enum teg_status run_split(struct splitter *s, size_t n_bytes, struct teg_error *err)
{
    const struct teg_pretok_step *const step = &s->e->tok->pretok.steps[s->step];
    size_t done = 0, from = 0;
    while (from <= n_bytes) {
        size_t start = SIZE_MAX, end = 0;
        TRY(teg_regex_next(step->regex, s->e, s->text, n_bytes, from, &start, &end, err));
        if (start == SIZE_MAX)
            break;
        if (start > done)
            TRY(add_piece(s, (struct piece){done, start, step->invert}, err));
        if (end > start)
            TRY(add_piece(s, (struct piece){start, end, !step->invert}, err));
        done = from = end;
        if (end == start) { /* an empty match is a cut; go on behind the next character */
            size_t n = 1;
            if (end < n_bytes)
                (void)teg_char_at(s->text + end, &n);
            from = end + n;
        }
    }
    if (done < n_bytes)
        TRY(add_piece(s, (struct piece){done, n_bytes, step->invert}, err));
    return flush(s, err);
}

/* Cuts before each U+2581 that no token joins to what stands before it; see teg_tok.joins_mark. */
static enum teg_status merge_words(struct teg_encoder *e, const char *text, size_t n_bytes, struct teg_error *err)
{
    const struct teg_tok *const tok = e->tok;
    if (tok->kind == TEG_TOK_UNIGRAM)
        return teg_lattice_word(e, text, n_bytes, err);
    if (tok->kind == TEG_TOK_BYTES || tok->ignore_merges)
        return teg_merge_word(e, text, n_bytes, err);
    size_t start = 0;
    for (size_t i = 1; i + TEG_SPACE_MARK_BYTES <= n_bytes; i++) {
        const char *const mark = memchr(text + i, TEG_SPACE_MARK[0], n_bytes - i);
        if (!mark)
            break;
        i = (size_t)(mark - text);
        if (n_bytes - i < TEG_SPACE_MARK_BYTES || memcmp(mark, TEG_SPACE_MARK, TEG_SPACE_MARK_BYTES) != 0 ||
            tok->joins_mark[(uint8_t)text[i - 1]])
            continue;
        TRY(teg_merge_word(e, text + start, i - start, err));
        start = i;
    }
    return teg_merge_word(e, text + start, n_bytes - start, err);
}

static void append_letter(struct teg_buf *out, uint32_t letter)
{
    char bytes[4];
    teg_buf_append(out, bytes, teg_utf8_put(letter, bytes));
}

/* The remaining steps on a piece whose bytes are written as letters. */
static enum teg_status run_on_letters(struct teg_encoder *e, uint32_t step, const char *text, size_t n_bytes,
                                      bool first, struct teg_error *err)
{
    e->lettered.n_bytes = 0;
    for (size_t i = 0; i < n_bytes; i++)
        append_letter(&e->lettered, teg_byte_letter((uint8_t)text[i]));
    if (e->lettered.failed)
        return teg_base_fail_memory(err, "a piece of the text", n_bytes);
    e->letters = true;
    const enum teg_status status = run_steps(e, step, e->lettered.bytes, e->lettered.n_bytes, first, err);
    e->letters = false;
    return status;
}

static enum teg_status merge_letters(struct teg_encoder *e, const char *text, size_t n_bytes, struct teg_error *err)
{
    e->word.n_bytes = 0;
    for (size_t i = 0, n; i < n_bytes; i += n) {
        const int byte = teg_letter_byte(teg_char_at(text + i, &n));
        teg_buf_append(&e->word, &(char){(char)byte}, 1);
    }
    if (e->word.failed)
        return teg_base_fail_memory(err, "a word of the text", n_bytes);
    return teg_merge_word(e, e->word.bytes, e->word.n_bytes, err);
}

/* A step that writes spaces: as U+2581, and one in front where the piece has none. */
static enum teg_status run_spaces(struct teg_encoder *e, uint32_t step, const char *text, size_t n_bytes, bool first,
                                  struct teg_error *err)
{
    const struct teg_pretok_step *const s = &e->tok->pretok.steps[step];
    const char *const space = s->mark_spaces ? TEG_SPACE_MARK : " ";
    const size_t n_space = strlen(space);
    struct teg_buf *const out = &e->marked[step];
    out->n_bytes = 0;
    if ((s->prefix == TEG_PREFIX_ALWAYS || (s->prefix == TEG_PREFIX_FIRST && first)) && text[0] != ' ' &&
        !(n_bytes >= n_space && memcmp(text, space, n_space) == 0))
        teg_buf_append(out, space, n_space);
    while (s->mark_spaces && n_bytes) {
        const char *const at = memchr(text, ' ', n_bytes);
        const size_t n = at ? (size_t)(at - text) : n_bytes;
        teg_buf_append(out, text, n);
        if (at)
            teg_buf_append(out, space, n_space);
        text += n + (at != NULL);
        n_bytes -= n + (at != NULL);
    }
    teg_buf_append(out, text, n_bytes);
    if (out->failed)
        return teg_base_fail_memory(err, "a segment of the text", n_bytes);
    return run_steps(e, step + 1, out->bytes, out->n_bytes, first, err);
}

static enum teg_status run_steps(struct teg_encoder *e, uint32_t step, const char *text, size_t n_bytes, bool first,
                                 struct teg_error *err)
{
    if (step == e->tok->pretok.n_steps) {
        if (e->tok->pretok.letters && !e->letters && e->tok->kind != TEG_TOK_BYTES)
            return run_on_letters(e, step, text, n_bytes, first, err);
        e->last_unknown = false; /* unknown characters of two words do not fuse */
        return e->letters && e->tok->kind == TEG_TOK_BYTES ? merge_letters(e, text, n_bytes, err)
                                                           : merge_words(e, text, n_bytes, err);
    }
    if (e->tok->pretok.steps[step].letters && !e->letters)
        return run_on_letters(e, step, text, n_bytes, first, err);
    if (!e->tok->pretok.steps[step].regex)
        return run_spaces(e, step, text, n_bytes, first, err);
    struct splitter s = {.e = e, .text = text, .step = step, .first = first};
    return run_split(&s, n_bytes, err);
}

enum teg_status teg_pretok_run(struct teg_encoder *e, const char *text, size_t n_bytes, bool first,
                               struct teg_error *err)
{
    return n_bytes ? run_steps(e, 0, text, n_bytes, first, err) : TEG_OK;
}
