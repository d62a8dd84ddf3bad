/* tok/lattice.c: one word to ids by a unigram model: the segmentation whose scores have the largest sum.
 *
 * A node for each byte position keeps the best way to get there (Viterbi): its score, where its last piece begins and
 * which piece that is. From each character on, every piece that the text continues with is tried, shortest first; a
 * character that is no piece itself may be passed as "unknown" at a price. A later way must be strictly better to
 * replace an earlier one, which is the tie rule of both programs that train such models, so ids are theirs to the last.
 *
 * Pieces are found in the sorted vocabulary: the pieces that begin with a prefix are an interval, and each further byte
 * narrows it by two binary searches. That is an array of the vocabulary's size and no other structure. A trie is faster
 * by a constant, and takes a node for every byte of every piece or hashing that a file could aim at. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "tok/tok_int.h"

#define LONGEST_PIECE_BYTES 1024 /* bounds the work for a byte of text; real pieces stay under 100 */
#define UNKNOWN_PENALTY 10.0

struct teg_lattice_piece {
    const uint8_t *bytes;
    uint32_t n_bytes;
    int32_t id;
    double score;
};

struct teg_lattice_node {
    double score;
    uint32_t begin; /* of the last piece; after the walk back: where the next piece ends */
    int32_t id;     /* NOWHERE, UNKNOWN, or the piece */
};

enum { NOWHERE = -2, UNKNOWN = -1 };

/* ---- vocabulary ---- */

static int compare(const void *left, const void *right)
{
    const struct teg_lattice_piece *const a = left, *const b = right;
    const int order = memcmp(a->bytes, b->bytes, teg_min(a->n_bytes, b->n_bytes));
    if (order || a->n_bytes != b->n_bytes)
        return order ? order : a->n_bytes < b->n_bytes ? -1 : 1;
    return a->id < b->id ? 1 : -1; /* of equal texts the last one counts */
}

static bool is_piece(const struct teg_vocab *vocab, size_t id)
{
    const uint8_t type = vocab->types[id];
    const size_t n_bytes = vocab->texts[id].n_bytes;
    return n_bytes && n_bytes <= LONGEST_PIECE_BYTES && (type == TEG_TOKEN_NORMAL || type == TEG_TOKEN_USER);
}

/* What SentencePiece adds for a symbol of the user's, so that it is always taken. */
static double bonus(const struct teg_lattice *lattice, size_t n_bytes)
{
    return (double)((float)n_bytes * (float)lattice->best_score) - 0.1;
}

enum teg_status teg_lattice_index(struct teg_lattice *lattice, const struct teg_vocab *vocab, const double *scores,
                                  size_t n_scores, struct teg_arena *arena, struct teg_error *err)
{
    size_t n = 0;
    struct teg_lattice_piece *const pieces = teg_arena_array(arena, n_scores, sizeof *pieces);
    if (!pieces)
        return teg_base_fail_memory(err, "the vocabulary's index", n_scores * sizeof *pieces);
    for (size_t id = 0; id < n_scores; id++) {
        const struct teg_string text = vocab->texts[id];
        if (!is_piece(vocab, id))
            continue;
        const bool user = lattice->narrow && vocab->types[id] == TEG_TOKEN_USER;
        pieces[n++] = (struct teg_lattice_piece){(const uint8_t *)text.bytes, (uint32_t)text.n_bytes, (int32_t)id,
                                                 user ? bonus(lattice, text.n_bytes) : scores[id]};
    }
    qsort(pieces, n, sizeof *pieces, compare);
    lattice->pieces = pieces;
    lattice->n_pieces = n;
    lattice->unknown_score = lattice->narrow ? (double)((float)lattice->worst_score - (float)UNKNOWN_PENALTY)
                                             : lattice->worst_score - UNKNOWN_PENALTY;
    for (size_t i = 0; i < n; i++)
        lattice->first[pieces[i].bytes[0] + 1] = (uint32_t)(i + 1);
    for (size_t b = 1; b <= 256; b++) /* a byte that no piece begins with has an empty interval */
        lattice->first[b] = lattice->first[b] ? lattice->first[b] : lattice->first[b - 1];
    return TEG_OK;
}

/* ---- search ---- */

/* The first piece of [from, to) whose byte at `depth` is not below `byte`; all of them share what comes before. */
static uint32_t lower_bound(const struct teg_lattice_piece *pieces, uint32_t from, uint32_t to, size_t depth,
                            unsigned byte)
{
    while (from < to) {
        const uint32_t middle = from + (to - from) / 2;
        const struct teg_lattice_piece *const p = &pieces[middle];
        if (p->n_bytes <= depth || p->bytes[depth] < byte)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

static double narrowed(const struct teg_lattice *lattice, double score)
{
    return lattice->narrow ? (double)(float)score : score;
}

static void offer(const struct teg_lattice *lattice, struct teg_lattice_node *node, double score, uint32_t begin,
                  int32_t id)
{
    score = narrowed(lattice, score);
    if (node->id == NOWHERE || score > node->score)
        *node = (struct teg_lattice_node){score, begin, id};
}

/* Offers every piece that begins at `at`. */
static void extend(const struct teg_lattice *lattice, struct teg_lattice_node *nodes, const char *word, uint32_t n,
                   uint32_t at)
{
    const struct teg_lattice_piece *const pieces = lattice->pieces;
    const uint8_t *const text = (const uint8_t *)word + at;
    size_t character;
    bool single = false;
    (void)teg_char_at(word + at, &character);
    uint32_t from = lattice->first[text[0]], to = lattice->first[text[0] + 1];
    for (size_t depth = 1; from < to; depth++) {
        while (from < to && pieces[from].n_bytes == depth) { /* equal texts: the first stands for them */
            const struct teg_lattice_piece *const p = &pieces[from];
            if (depth == character)
                single = true;
            offer(lattice, &nodes[at + depth], nodes[at].score + p->score, at, p->id);
            do
                from++;
            while (from < to && pieces[from].n_bytes == depth);
        }
        if (at + depth == n || from == to)
            break;
        from = lower_bound(pieces, from, to, depth, text[depth]);
        to = lower_bound(pieces, from, to, depth, text[depth] + 1u);
    }
    if (!single)
        offer(lattice, &nodes[at + character], narrowed(lattice, nodes[at].score + lattice->unknown_score), at,
              UNKNOWN);
}

/* Turns the links round: afterwards `begin` of each node on the way is where the piece behind it ends. Returns the end
 * of the first piece. */
static uint32_t turn_links(struct teg_lattice_node *nodes, uint32_t n)
{
    uint32_t at = n, next = n;
    while (at > 0) {
        const uint32_t begin = nodes[at].begin;
        nodes[at].begin = next;
        next = at;
        at = begin;
    }
    return next;
}

static enum teg_status reserve(struct teg_encoder *e, size_t n, struct teg_error *err)
{
    if (n <= e->nodes_capacity)
        return TEG_OK;
    teg_lattice_scratch_free(e);
    const size_t capacity = teg_max(n, 256);
    e->nodes = e->allocator->alloc(e->allocator->ctx, capacity * sizeof *e->nodes, 16);
    if (!e->nodes)
        return teg_base_fail_memory(err, "the segmentations of a word", capacity * sizeof *e->nodes);
    e->nodes_capacity = capacity;
    return TEG_OK;
}

void teg_lattice_scratch_free(struct teg_encoder *e)
{
    if (e->nodes)
        e->allocator->free(e->allocator->ctx, e->nodes, e->nodes_capacity * sizeof *e->nodes);
    e->nodes = NULL;
    e->nodes_capacity = 0;
}

enum teg_status teg_lattice_word(struct teg_encoder *e, const char *word, size_t n_bytes, struct teg_error *err)
{
    const uint32_t n = (uint32_t)n_bytes;
    TRY(reserve(e, n_bytes + 1, err));
    struct teg_lattice_node *const nodes = e->nodes;
    for (uint32_t i = 0; i <= n; i++)
        nodes[i] = (struct teg_lattice_node){0, 0, NOWHERE};
    for (uint32_t at = 0; at < n;) {
        size_t character;
        (void)teg_char_at(word + at, &character);
        extend(&e->tok->lattice, nodes, word, n, at);
        at += (uint32_t)character;
    }
    uint32_t begin = 0;
    for (uint32_t end = turn_links(nodes, n); begin < n; end = nodes[end].begin) {
        if (nodes[end].id == UNKNOWN || nodes[end].id == e->tok->unk) {
            teg_emit_unknown(e, word + begin, end - begin);
        } else {
            teg_encoder_emit(e, nodes[end].id);
            e->last_unknown = false;
        }
        begin = end;
    }
    return TEG_OK;
}
