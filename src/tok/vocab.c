/* tok/vocab.c: the two hash tables of a tokenizer: text -> id and (left, right) -> merge.
 *
 * Both are filled once, while opening, with linear probing over a power of two of slots that stays at most half full.
 * A slot of the text table keeps 32 bits of the hash, so a probe touches the text itself only on a likely hit.
 * The hash is seeded with an address: which slot a text takes differs between runs, what is found does not. A perfect
 * hash would be smaller, but takes longer to build than a model takes to open. */
#include <string.h>

#include "base/check.h"
#include "tok/tok_int.h"

#define MIX 0x9E3779B97F4A7C15u /* 2^64 / golden ratio */

static uint64_t mix(uint64_t h, uint64_t word)
{
    h = (h ^ word) * MIX;
    return h ^ h >> 29;
}

static uint32_t text_hash(uint64_t seed, const char *bytes, size_t n_bytes)
{
    uint64_t h = seed ^ n_bytes;
    while (n_bytes >= 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        h = mix(h, word);
        bytes += 8;
        n_bytes -= 8;
    }
    uint64_t tail = 0;
    if (n_bytes)
        memcpy(&tail, bytes, n_bytes);
    h = mix(h, tail);
    return (uint32_t)(mix(h, h >> 32) >> 32);
}

/* The smallest power of two that `n` items fill at most by half; 0 where that is beyond 2^31. */
static uint32_t slots_for(size_t n)
{
    uint32_t slots = 16;
    while (slots / 2 < n) {
        if (slots >= (uint32_t)1 << 31)
            return 0;
        slots *= 2;
    }
    return slots;
}

static bool same(struct teg_string text, const char *bytes, size_t n_bytes)
{
    return text.n_bytes == n_bytes && (!n_bytes || memcmp(text.bytes, bytes, n_bytes) == 0);
}

enum teg_status teg_vocab_index(struct teg_vocab *vocab, struct teg_arena *arena, struct teg_error *err)
{
    const uint32_t n_slots = slots_for(vocab->n);
    vocab->slots = n_slots ? teg_arena_array(arena, n_slots, sizeof *vocab->slots) : NULL;
    if (!vocab->slots)
        return teg_base_fail_memory(err, "the vocabulary's index", vocab->n * sizeof *vocab->slots);
    vocab->mask = n_slots - 1;
    vocab->seed = (uint64_t)(uintptr_t)vocab->slots;
    for (uint32_t i = 0; i < n_slots; i++)
        vocab->slots[i].id = -1;
    for (size_t id = 0; id < vocab->n; id++) {
        const struct teg_string text = vocab->texts[id];
        if (!text.n_bytes)
            continue; /* a hole; an empty token could never be found in a text */
        vocab->longest_bytes = teg_max(vocab->longest_bytes, text.n_bytes);
        const uint32_t hash = text_hash(vocab->seed, text.bytes, text.n_bytes);
        uint32_t at = hash & vocab->mask;
        while (vocab->slots[at].id >= 0 &&
               !(vocab->slots[at].hash == hash && same(vocab->texts[vocab->slots[at].id], text.bytes, text.n_bytes)))
            at = (at + 1) & vocab->mask;
        if (vocab->slots[at].id < 0)
            vocab->slots[at] = (struct teg_vocab_slot){hash, (int32_t)id};
    }
    return TEG_OK;
}

int32_t teg_vocab_find(const struct teg_vocab *vocab, const char *bytes, size_t n_bytes)
{
    if (!n_bytes || n_bytes > vocab->longest_bytes)
        return -1;
    const uint32_t hash = text_hash(vocab->seed, bytes, n_bytes);
    for (uint32_t at = hash & vocab->mask;; at = (at + 1) & vocab->mask) {
        const struct teg_vocab_slot slot = vocab->slots[at];
        if (slot.id < 0 || (slot.hash == hash && same(vocab->texts[slot.id], bytes, n_bytes)))
            return slot.id;
    }
}

enum teg_status teg_pairs_reserve(struct teg_pairs *pairs, struct teg_arena *arena, size_t n, struct teg_error *err)
{
    const uint32_t n_slots = slots_for(n);
    pairs->slots = n_slots ? teg_arena_array(arena, n_slots, sizeof *pairs->slots) : NULL;
    if (!pairs->slots)
        return teg_base_fail_memory(err, "the merge table", n * sizeof *pairs->slots);
    pairs->mask = n_slots - 1;
    pairs->seed = (uint64_t)(uintptr_t)pairs->slots;
    for (uint32_t i = 0; i < n_slots; i++)
        pairs->slots[i].left = -1;
    return TEG_OK;
}

/* The slot of a pair, or the empty one where it belongs. */
static struct teg_pair_slot *pair_slot(const struct teg_pairs *pairs, int32_t left, int32_t right)
{
    const uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint32_t at = (uint32_t)(mix(pairs->seed, key) >> 32) & pairs->mask;
    while (pairs->slots[at].left >= 0 && (pairs->slots[at].left != left || pairs->slots[at].right != right))
        at = (at + 1) & pairs->mask;
    return &pairs->slots[at];
}

void teg_pairs_add(struct teg_pairs *pairs, const struct teg_vocab *vocab, struct teg_string left,
                   struct teg_string right, uint32_t rank)
{
    char both[1024]; /* no real token comes near; a longer one just never merges */
    if (left.n_bytes > sizeof both || right.n_bytes > sizeof both - left.n_bytes)
        return;
    memcpy(both, left.bytes, left.n_bytes);
    memcpy(both + left.n_bytes, right.bytes, right.n_bytes);
    const int32_t l = teg_vocab_find(vocab, left.bytes, left.n_bytes);
    const int32_t r = teg_vocab_find(vocab, right.bytes, right.n_bytes);
    const int32_t merged = teg_vocab_find(vocab, both, left.n_bytes + right.n_bytes);
    if (l < 0 || r < 0 || merged < 0)
        return;
    struct teg_pair_slot *const slot = pair_slot(pairs, l, r);
    if (slot->left < 0)
        *slot = (struct teg_pair_slot){l, r, rank, merged};
}

const struct teg_pair_slot *teg_pairs_find(const struct teg_pairs *pairs, int32_t left, int32_t right)
{
    const struct teg_pair_slot *const slot = pair_slot(pairs, left, right);
    return slot->left < 0 ? NULL : slot;
}
