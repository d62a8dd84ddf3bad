/* Fuzz target: a language model in the forms that the bytes choose, with some of its operands and digits exchanged.
 *
 * Text that is changed at random seldom reads (fuzz_raise); here most programs are valid, or fail late, so the bytes
 * are spent on the graph's shape. The first FORM_BYTES choose a form of every part; each CHANGE_BYTES that follow put
 * the name or number of one place where that of another stands. Unchanged, every form must be raised. */
#include "fuzz/raise_fuzz.h"
#include "unit/lm_text.h"

#include "base/check.h"

enum { FORM_BYTES = 20, CHANGE_BYTES = 4, MOST_CHANGES = 8, MOST_WORDS = 4096 };

/* ---- a form ---- */

struct choices {
    const uint8_t *bytes;
    size_t n, at;
};

static uint32_t choose(struct choices *c, uint32_t n)
{
    return c->at < c->n ? c->bytes[c->at++] % n : 0;
}

static struct lm_form form_of(struct choices *c)
{
    struct lm_form f = lm_plain;
    f.embedding = (enum lm_embedding)choose(c, LM_EMBEDDINGS);
    f.norm = (enum lm_norm)choose(c, LM_NORMS);
    f.rope = (enum lm_rope)choose(c, LM_ROPES);
    f.group = (enum lm_group)choose(c, LM_GROUPS);
    f.attend = (enum lm_attend)choose(c, LM_ATTENDS);
    f.mask = (enum lm_mask)choose(c, LM_MASKS);
    f.act = (enum lm_act)choose(c, LM_ACTS);
    f.product = (enum lm_product)choose(c, LM_PRODUCTS);
    f.n_kv_heads = 1 + choose(c, 3);
    f.n_heads = f.n_kv_heads * (1 + choose(c, 3));
    f.head_width = 4 + 2 * choose(c, 3);
    f.ffn = 4 + 4 * choose(c, 4);
    f.vocab = 5 + choose(c, 10);
    f.two_states = choose(c, 2);
    f.head_norms = choose(c, 2);
    f.biases = choose(c, 2);
    f.last_only = choose(c, 2);
    f.softcap = choose(c, 2);
    f.window = f.mask == LM_MASK_INPUT ? 0 : choose(c, 7);
    f.no_gate = choose(c, 2);
    f.learned = choose(c, 2);
    f.seed = choose(c, 256);
    return f;
}

/* ---- changes ---- */

struct word { /* a name or a number of the text */
    const char *at;
    size_t n;
};

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

/* What stands behind a '=': operands and scalars. Values of weights are not meant: there are thousands, all alike. */
static size_t find_words(const char *text, size_t n, struct word *words)
{
    size_t n_words = 0;
    for (size_t i = 2; i < n && n_words < MOST_WORDS; i++) {
        if (!is_word(text[i]) || is_word(text[i - 1]) || text[i - 1] == '.' ||
            (text[i - 2] != '=' && text[i - 1] != '('))
            continue;
        size_t end = i;
        while (end < n && is_word(text[end]))
            end++;
        words[n_words++] = (struct word){text + i, end - i};
    }
    return n_words;
}

static void change(struct bytes *text, const uint8_t *bytes)
{
    static struct word words[MOST_WORDS];
    const size_t n = find_words((const char *)text->at, text->n, words);
    if (!n)
        return;
    const struct word to = words[((size_t)bytes[0] | (size_t)bytes[1] << 8) % n];
    const struct word from = words[((size_t)bytes[2] | (size_t)bytes[3] << 8) % n];
    const size_t before = (size_t)(to.at - (const char *)text->at);
    struct bytes out = {0};
    put(&out, text->at, before);
    put(&out, from.at, from.n);
    put(&out, text->at + before + to.n, text->n - before - to.n);
    bytes_free(text);
    *text = out;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    struct choices c = {bytes, teg_min(n_bytes, FORM_BYTES), 0};
    const struct lm_form form = form_of(&c);
    struct bytes text = lm_program(&form);
    size_t n_changes = 0;
    for (size_t at = FORM_BYTES; at + CHANGE_BYTES <= n_bytes && n_changes < MOST_CHANGES;
         at += CHANGE_BYTES, n_changes++)
        change(&text, bytes + at);
    if (fuzz_raise_text((const char *)text.at, text.n) == 0 && !n_changes)
        abort();
    bytes_free(&text);
    return 0;
}
