/* tok/merge.c: one word to ids: merges neighbours, best first, ties leftmost, until none is left.
 *
 * The symbols of a word are a linked list that lives in an array indexed by byte position: symbol i covers the bytes
 * from i to its `next`, so a merge is two link updates and needs no text. Candidates wait in a binary heap of 64-bit
 * keys, rank in the upper half and position in the lower, which is exactly the order wanted. An entry is stale when
 * the rank at its position has changed since; that is found when it is popped, so nothing is ever removed from the
 * middle. n log n for a word of n bytes, whatever it holds. Scanning for the minimum each time is quadratic, and a
 * 10 MB line without a space does occur.
 *
 * Byte-level BPE and BPE over characters take the rank from the pair table. SentencePiece has no merge list: two
 * neighbours merge when their joined text is a token, and its score gives the rank. */
#include "tok/tok_int.h"

#include <string.h>

#include "base/check.h"

struct teg_symbol {
    uint32_t prev, next; /* byte positions; NONE, or the word's length */
    uint32_t rank;       /* of merging it with its right neighbour; TEG_NO_RANK: they do not merge */
    int32_t id;          /* -1: not in the vocabulary */
    int32_t merged;      /* id of that merge */
};

#define NONE UINT32_MAX

static enum teg_status reserve(struct teg_encoder *e, size_t n_bytes, struct teg_error *err)
{
    if (n_bytes <= e->symbols_capacity)
        return TEG_OK;
    teg_merge_scratch_free(e);
    const size_t n = teg_max(n_bytes, 256);
    /* Each of the at most n merges takes one entry from the heap and adds at most two, so 2n are enough. */
    e->symbols = e->allocator->alloc(e->allocator->ctx, n * sizeof *e->symbols, 16);
    e->heap = e->allocator->alloc(e->allocator->ctx, 2 * n * sizeof *e->heap, 16);
    e->symbols_capacity = n;
    if (!e->symbols || !e->heap) {
        teg_merge_scratch_free(e);
        return teg_base_fail_memory(err, "merging a word", n * (sizeof *e->symbols + 2 * sizeof *e->heap));
    }
    return TEG_OK;
}

void teg_merge_scratch_free(struct teg_encoder *e)
{
    if (e->symbols)
        e->allocator->free(e->allocator->ctx, e->symbols, e->symbols_capacity * sizeof *e->symbols);
    if (e->heap)
        e->allocator->free(e->allocator->ctx, e->heap, 2 * e->symbols_capacity * sizeof *e->heap);
    e->symbols = NULL;
    e->heap = NULL;
    e->symbols_capacity = 0;
}

static void heap_push(uint64_t *heap, size_t *n, uint64_t key)
{
    size_t at = (*n)++;
    while (at > 0 && heap[(at - 1) / 2] > key) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = key;
}

static uint64_t heap_pop(uint64_t *heap, size_t *n)
{
    const uint64_t top = heap[0];
    const uint64_t key = heap[--*n];
    size_t at = 0;
    for (size_t child = 1; child < *n; child = 2 * at + 1) {
        if (child + 1 < *n && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= key)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = key;
    return top;
}

/* Can a piece of text become this token by merging? Control tokens and bytes cannot be written as text. */
static bool is_mergeable(const struct teg_tok *tok, int32_t id)
{
    const uint8_t type = tok->vocab.types[id];
    return type == TEG_TOKEN_NORMAL || type == TEG_TOKEN_USER || type == TEG_TOKEN_UNUSED;
}

static int32_t find_mergeable(const struct teg_tok *tok, const char *text, size_t n_bytes)
{
    const int32_t id = teg_vocab_find(&tok->vocab, text, n_bytes);
    return id >= 0 && is_mergeable(tok, id) ? id : -1;
}

/* Ranks the symbol at `at` with its right neighbour and puts the candidate on the heap. */
static void offer(struct teg_encoder *e, const char *word, uint32_t n, uint32_t at, size_t *n_heap)
{
    struct teg_symbol *const left = &e->symbols[at];
    left->rank = TEG_NO_RANK;
    if (left->next == n)
        return;
    const struct teg_symbol *const right = &e->symbols[left->next];
    if (e->tok->kind == TEG_TOK_SCORES) {
        const int32_t id = find_mergeable(e->tok, word + at, right->next - at);
        if (id < 0)
            return;
        left->rank = e->tok->score_rank[id];
        left->merged = id;
    } else {
        const struct teg_pair_slot *const slot =
            left->id >= 0 && right->id >= 0 ? teg_pairs_find(&e->tok->pairs, left->id, right->id) : NULL;
        if (!slot)
            return;
        left->rank = slot->rank;
        left->merged = slot->merged;
    }
    heap_push(e->heap, n_heap, (uint64_t)left->rank << 32 | at);
}

/* The word as single bytes or characters, linked. */
static void spell(struct teg_encoder *e, const char *word, uint32_t n)
{
    uint32_t prev = NONE;
    for (uint32_t at = 0; at < n;) {
        size_t length = 1;
        int32_t id;
        if (e->tok->kind == TEG_TOK_BYTES) {
            id = e->tok->byte_ids[(uint8_t)word[at]];
        } else {
            (void)teg_char_at(word + at, &length);
            id = find_mergeable(e->tok, word + at, length);
        }
        e->symbols[at] = (struct teg_symbol){prev, at + (uint32_t)length, TEG_NO_RANK, id, -1};
        prev = at;
        at += (uint32_t)length;
    }
}

static void merge_all(struct teg_encoder *e, const char *word, uint32_t n)
{
    struct teg_symbol *const s = e->symbols;
    size_t n_heap = 0;
    for (uint32_t at = 0; at < n; at = s[at].next)
        offer(e, word, n, at, &n_heap);
    while (n_heap) {
        const uint64_t key = heap_pop(e->heap, &n_heap);
        const uint32_t at = (uint32_t)key;
        if (s[at].rank != (uint32_t)(key >> 32))
            continue; /* stale */
        const uint32_t right = s[at].next;
        s[at].id = s[at].merged;
        s[at].next = s[right].next;
        s[right].rank = TEG_NO_RANK;
        if (s[at].next < n)
            s[s[at].next].prev = at;
        offer(e, word, n, at, &n_heap);
        if (s[at].prev != NONE)
            offer(e, word, n, s[at].prev, &n_heap);
    }
}

void teg_emit_unknown(struct teg_encoder *e, const char *text, size_t n_bytes)
{
    const struct teg_tok *const tok = e->tok;
    if (tok->byte_fallback) {
        for (size_t i = 0; i < n_bytes; i++)
            teg_encoder_emit(e, tok->byte_ids[(uint8_t)text[i]]);
    } else if (tok->unk >= 0 && !(tok->fuse_unknown && e->last_unknown)) {
        teg_encoder_emit(e, tok->unk);
    }
    e->last_unknown = true;
}

static bool is_whole_token(struct teg_encoder *e, const char *word, size_t n_bytes)
{
    const struct teg_tok *const tok = e->tok;
    int32_t id = -1;
    if (tok->kind == TEG_TOK_BYTES) {
        char letters[512];
        size_t n = 0;
        if (n_bytes > sizeof letters / 2)
            return false;
        for (size_t i = 0; i < n_bytes; i++) {
            char letter[4];
            const size_t length = teg_utf8_put(teg_byte_letter((uint8_t)word[i]), letter);
            memcpy(letters + n, letter, length);
            n += length;
        }
        id = teg_vocab_find(&tok->vocab, letters, n);
    } else {
        id = teg_vocab_find(&tok->vocab, word, n_bytes);
    }
    if (id < 0 || !is_mergeable(tok, id))
        return false;
    teg_encoder_emit(e, id);
    e->last_unknown = false;
    return true;
}

enum teg_status teg_merge_word(struct teg_encoder *e, const char *word, size_t n_bytes, struct teg_error *err)
{
    if (e->tok->ignore_merges && is_whole_token(e, word, n_bytes))
        return TEG_OK;
    TRY(reserve(e, n_bytes, err));
    const uint32_t n = (uint32_t)n_bytes;
    spell(e, word, n);
    merge_all(e, word, n);
    for (uint32_t at = 0; at < n; at = e->symbols[at].next) {
        if (e->symbols[at].id < 0) {
            teg_emit_unknown(e, word + at, e->symbols[at].next - at);
            continue;
        }
        teg_encoder_emit(e, e->symbols[at].id);
        e->last_unknown = false;
    }
    return TEG_OK;
}
