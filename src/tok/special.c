/* tok/special.c: finds special tokens in a text, leftmost first, then longest.
 *
 * The texts are one trie; at each position it is walked as far as it goes. That is at most (longest special token)
 * steps per byte, and one table lookup where no token starts with the byte, which is nearly everywhere. Aho-Corasick
 * would bound it by one step per byte, but its failure links cost a second structure for a worst case that only a
 * vocabulary made for it reaches. Searching each token in turn, as others do, takes minutes with Gemma's 6,000. */
#include "base/check.h"
#include "tok/tok_int.h"

struct teg_trie_node {
    uint32_t child, sibling;
    int32_t id; /* -1: no token ends here */
    uint8_t byte, flags;
};

enum teg_status teg_specials_reserve(struct teg_specials *set, struct teg_arena *arena, size_t n_bytes,
                                     struct teg_error *err)
{
    if (n_bytes < UINT32_MAX) /* nodes are counted in 32 bits; the array is larger than memory long before */
        set->nodes = teg_arena_array(arena, n_bytes + 1, sizeof *set->nodes);
    if (!set->nodes)
        return teg_base_fail_memory(err, "the special tokens", (n_bytes + 1) * sizeof *set->nodes);
    set->capacity = (uint32_t)n_bytes + 1;
    set->n_nodes = 1;
    return TEG_OK;
}

static uint32_t child_of(const struct teg_specials *set, uint32_t node, uint8_t byte)
{
    uint32_t child = set->nodes[node].child;
    while (child && set->nodes[child].byte != byte)
        child = set->nodes[child].sibling;
    return child;
}

void teg_specials_add(struct teg_specials *set, struct teg_string text, int32_t id, unsigned flags)
{
    uint32_t node = 0;
    for (size_t i = 0; i < text.n_bytes; i++) {
        const uint8_t byte = (uint8_t)text.bytes[i];
        uint32_t next = i ? child_of(set, node, byte) : set->first[byte];
        if (!next) {
            if (set->n_nodes == set->capacity)
                return; /* cannot happen: reserve() counted these bytes */
            next = set->n_nodes++;
            set->nodes[next] = (struct teg_trie_node){.id = -1, .byte = byte};
            if (i) {
                set->nodes[next].sibling = set->nodes[node].child;
                set->nodes[node].child = next;
            } else {
                set->first[byte] = next;
            }
        }
        node = next;
    }
    if (node && set->nodes[node].id < 0) {
        set->nodes[node].id = id;
        set->nodes[node].flags = (uint8_t)flags;
    }
}

/* The longest token at `at` that may match; its node, or 0. */
static uint32_t longest_at(const struct teg_specials *set, const char *text, size_t n_bytes, size_t at, bool control,
                           size_t *end)
{
    uint32_t best = 0;
    uint32_t node = set->first[(uint8_t)text[at]];
    while (node) {
        const struct teg_trie_node *const n = &set->nodes[node];
        at++;
        if (n->id >= 0 && (control || !(n->flags & TEG_SPECIAL_CONTROL))) {
            best = node;
            *end = at;
        }
        node = at < n_bytes ? child_of(set, node, (uint8_t)text[at]) : 0;
    }
    return best;
}

static bool is_whole_word(const char *text, size_t n_bytes, size_t start, size_t end)
{
    size_t n;
    return !(start > 0 && teg_char_is_word(teg_char_before(text + start, &n))) &&
           !(end < n_bytes && teg_char_is_word(teg_char_at(text + end, &n)));
}

bool teg_specials_next(const struct teg_specials *set, const char *text, size_t n_bytes, size_t from, bool control,
                       struct teg_special_match *match)
{
    if (set->n_nodes <= 1)
        return false;
    for (size_t at = from; at < n_bytes;) {
        size_t end = 0;
        const uint32_t node = longest_at(set, text, n_bytes, at, control, &end);
        if (!node) {
            at++;
            continue;
        }
        const unsigned flags = set->nodes[node].flags;
        if (flags & TEG_SPECIAL_WORD && !is_whole_word(text, n_bytes, at, end)) {
            at = end;
            continue;
        }
        size_t start = at, n;
        while (flags & TEG_SPECIAL_LSTRIP && start > from && teg_char_is_space(teg_char_before(text + start, &n)))
            start -= n;
        while (flags & TEG_SPECIAL_RSTRIP && end < n_bytes && teg_char_is_space(teg_char_at(text + end, &n)))
            end += n;
        *match = (struct teg_special_match){start, end, set->nodes[node].id};
        return true;
    }
    return false;
}
