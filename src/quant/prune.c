/* quant/prune.c: which values of a weight survive.
 *
 * A value's worth is its square times the importance of its column: what leaving it out costs. The least worthy ones
 * go; of equals the first. Exactly as many go as the layout says, so zeros that were there already may survive as
 * stored zeros where few values are to go.
 *
 * The threshold is found by two histograms over the bits of the worth (non-negative floats order as integers), not by
 * sorting: linear, and nothing to allocate that grows with the weight. */
#include <string.h>

#include "quant/impl.h"

enum { BUCKETS = 1 << 16 };

static uint32_t worth(const struct encoding *e, size_t i)
{
    const float x = e->values[i], w = e->importance ? e->importance[i % e->q.columns] : 1;
    const float value = x * x * w;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* The bucket in which the n_out-th smallest lies; *n_out becomes how many of that bucket go. */
static uint32_t find_bucket(const uint64_t *counts, uint64_t *n_out)
{
    uint32_t b = 0;
    for (; b + 1 < BUCKETS && counts[b] < *n_out; b++)
        *n_out -= counts[b];
    return b;
}

static enum teg_status prune_share(struct encoding *e, uint8_t *kept, struct teg_error *err)
{
    uint64_t n_out = e->n - e->q.n_kept;
    uint64_t *const counts = teg_arena_array(&e->scratch, BUCKETS, sizeof *counts);
    if (!counts)
        return teg_base_fail_memory(err, "pruning", BUCKETS * sizeof *counts);
    for (size_t i = 0; i < e->n; i++)
        counts[worth(e, i) >> 16]++;
    const uint32_t high = find_bucket(counts, &n_out);
    memset(counts, 0, BUCKETS * sizeof *counts);
    for (size_t i = 0; i < e->n; i++)
        if (worth(e, i) >> 16 == high)
            counts[worth(e, i) & 0xffff]++;
    const uint32_t threshold = high << 16 | find_bucket(counts, &n_out);
    for (size_t i = 0; i < e->n; i++) {
        const uint32_t w = worth(e, i);
        kept[i] = w > threshold || (w == threshold && n_out == 0);
        n_out -= w == threshold && n_out > 0;
    }
    return TEG_OK;
}

/* One group of a row: a value survives where fewer than keep_n are worth more. */
static void prune_group(const struct encoding *e, size_t begin, size_t n, uint8_t *kept)
{
    for (size_t i = begin; i < begin + n; i++) {
        size_t better = 0;
        for (size_t k = begin; k < begin + n; k++)
            better += worth(e, k) > worth(e, i) || (worth(e, k) == worth(e, i) && k < i);
        kept[i] = better < e->q.rule.keep_n;
    }
}

enum teg_status teg_quant_prune(struct encoding *e, uint8_t *kept, struct teg_error *err)
{
    const size_t columns = (size_t)e->q.columns, of = e->q.rule.keep_of;
    if (!of)
        return prune_share(e, kept, err);
    for (size_t row = 0; row < e->q.rows; row++)
        for (size_t c = 0; c < columns; c += of)
            prune_group(e, row * columns + c, of < columns - c ? of : columns - c, kept);
    return TEG_OK;
}
