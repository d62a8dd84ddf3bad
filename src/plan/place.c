/* plan/place.c: places for buffers in one arena.
 *
 * Largest first: the few wide buffers set the arena's size and the narrow ones fill the gaps they leave. For each, the
 * already placed buffers that live at the same time are walked in order of offset, and the smallest gap that holds it
 * is taken. Quadratic in the number of buffers, which is a few hundred. */
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

#define PLACE_ALIGN 16 /* floats: 64 bytes at any T */

struct order {
    struct teg_lifetime *buffer;
    size_t index;
};

static int by_width(const void *a, const void *b)
{
    const struct order *const x = a, *const y = b;
    if (x->buffer->width != y->buffer->width)
        return x->buffer->width < y->buffer->width ? 1 : -1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static bool overlap_in_time(const struct teg_lifetime *a, const struct teg_lifetime *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* `placed` is sorted by offset. */
static size_t best_gap(const struct teg_lifetime *buffer, struct teg_lifetime *const *placed, size_t n_placed)
{
    size_t end = 0, best = SIZE_MAX, best_size = SIZE_MAX;
    for (size_t i = 0; i < n_placed; i++) {
        const struct teg_lifetime *const p = placed[i];
        if (!overlap_in_time(buffer, p))
            continue;
        if (p->offset >= end + buffer->width && p->offset - end < best_size) {
            best = end;
            best_size = p->offset - end;
        }
        if (p->offset + p->width > end)
            end = p->offset + p->width;
    }
    return best != SIZE_MAX ? best : end;
}

enum teg_status teg_plan_place(struct teg_lifetime *buffers, size_t n, struct teg_arena *arena, size_t *row_floats,
                               struct teg_error *err)
{
    struct order *const order = teg_arena_array(arena, n + 1, sizeof *order);
    struct teg_lifetime **const placed = teg_arena_array(arena, n + 1, sizeof(struct teg_lifetime *));
    if (!order || !placed)
        return teg_base_fail_memory(err, "buffer placement", n * sizeof *order);
    for (size_t i = 0; i < n; i++) {
        buffers[i].width = (buffers[i].width + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN;
        order[i] = (struct order){&buffers[i], i};
    }
    qsort(order, n, sizeof *order, by_width);
    *row_floats = 0;
    for (size_t i = 0; i < n; i++) {
        struct teg_lifetime *const b = order[i].buffer;
        b->offset = best_gap(b, placed, i);
        size_t at = i;
        while (at > 0 && placed[at - 1]->offset > b->offset)
            at--;
        memmove(placed + at + 1, placed + at, (i - at) * sizeof *placed);
        placed[at] = b;
        if (b->offset + b->width > *row_floats)
            *row_floats = b->offset + b->width;
    }
    return TEG_OK;
}
