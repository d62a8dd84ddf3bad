/* eval/strided.c: copies between two strided views.
 *
 * Dimensions of size 1 vanish and neighbours that both sides walk evenly are merged, so that what is contiguous in both
 * is one memcpy. Rows are the unit of work; a row is copied by memcpy or walked by its strides. Where source and
 * destination run along different dimensions, both are walked in tiles, so that a cache line is used whole.
 * Invariant: the views were checked by the caller to lie inside their arrays; nothing here can know. */
#include "eval/strided.h"

#include <string.h>

size_t teg_item_bytes(const struct teg_array *array)
{
    return array->form == TEG_FORM_BOOL ? 1 : array->form == TEG_FORM_STRING ? sizeof(struct teg_string) : 4;
}

void teg_strides_of(uint32_t rank, const size_t *dims, ptrdiff_t *strides)
{
    ptrdiff_t s = 1;
    for (uint32_t d = rank; d-- > 0; s *= (ptrdiff_t)dims[d])
        strides[d] = s;
}

struct teg_strided teg_strided_between(struct teg_array *dst, const struct teg_array *src)
{
    return (struct teg_strided){.item_bytes = teg_item_bytes(src), .dst = dst->data, .src = src->data};
}

void teg_strided_dim(struct teg_strided *s, size_t size, ptrdiff_t dst_stride, ptrdiff_t src_stride)
{
    if (size == 1)
        return;
    const uint32_t last = s->rank - 1;
    if (s->rank && s->dst_stride[last] == dst_stride * (ptrdiff_t)size &&
        s->src_stride[last] == src_stride * (ptrdiff_t)size) {
        s->dims[last] *= size;
        s->dst_stride[last] = dst_stride;
        s->src_stride[last] = src_stride;
        return;
    }
    s->dims[s->rank] = size;
    s->dst_stride[s->rank] = dst_stride;
    s->src_stride[s->rank++] = src_stride;
}

static void copy_row(const struct teg_strided *s, char *dst, const char *src, size_t n, ptrdiff_t to, ptrdiff_t from)
{
    if (to == 1 && from == 1) {
        memcpy(dst, src, n * s->item_bytes);
    } else if (s->item_bytes == 4) {
        uint32_t *const d = (uint32_t *)(void *)dst;
        const uint32_t *const x = (const uint32_t *)(const void *)src;
        for (ptrdiff_t i = 0; i < (ptrdiff_t)n; i++)
            d[i * to] = x[i * from];
    } else if (s->item_bytes == 1) {
        for (ptrdiff_t i = 0; i < (ptrdiff_t)n; i++)
            dst[i * to] = src[i * from];
    } else {
        for (ptrdiff_t i = 0; i < (ptrdiff_t)n; i++)
            memcpy(dst + i * to * (ptrdiff_t)s->item_bytes, src + i * from * (ptrdiff_t)s->item_bytes, s->item_bytes);
    }
}

static void copy_rows(void *ctx, size_t begin, size_t end)
{
    const struct teg_strided *const s = ctx;
    const uint32_t last = s->rank - 1;
    const ptrdiff_t item = (ptrdiff_t)s->item_bytes;
    for (size_t row = begin; row < end; row++) {
        ptrdiff_t to = 0, from = 0;
        size_t rest = row;
        for (uint32_t d = last; d-- > 0; rest /= s->dims[d]) {
            const ptrdiff_t i = (ptrdiff_t)(rest % s->dims[d]);
            to += i * s->dst_stride[d];
            from += i * s->src_stride[d];
        }
        copy_row(s, s->dst + to * item, s->src + from * item, s->dims[last], s->dst_stride[last], s->src_stride[last]);
    }
}

/* ---- transposes ---- */

#define TILE ((size_t)16) /* elements each way: a cache line of floats */

struct tiles {
    const struct teg_strided *s;
    uint32_t across; /* the dimension whose source stride is 1; the last one's destination stride is 1 */
    size_t n_tiles;  /* along it */
};

/* One item is a tile's worth of `across` for one combination of the other dimensions: rows of the source are read, rows
 * of the destination written, TILE of each at a time. */
static void copy_tiles(void *ctx, size_t begin, size_t end)
{
    const struct tiles *const t = ctx;
    const struct teg_strided *const s = t->s;
    const uint32_t last = s->rank - 1;
    for (size_t item = begin; item < end; item++) {
        const size_t k0 = item % t->n_tiles * TILE,
                     k1 = k0 + TILE < s->dims[t->across] ? k0 + TILE : s->dims[t->across];
        ptrdiff_t to = 0, from = 0;
        size_t rest = item / t->n_tiles;
        for (uint32_t d = last; d-- > 0;) {
            if (d == t->across)
                continue;
            to += (ptrdiff_t)(rest % s->dims[d]) * s->dst_stride[d];
            from += (ptrdiff_t)(rest % s->dims[d]) * s->src_stride[d];
            rest /= s->dims[d];
        }
        uint32_t *const dst = (uint32_t *)(void *)s->dst + to;
        const uint32_t *const src = (const uint32_t *)(const void *)s->src + from;
        for (size_t l0 = 0; l0 < s->dims[last]; l0 += TILE) {
            const size_t l1 = l0 + TILE < s->dims[last] ? l0 + TILE : s->dims[last];
            for (size_t k = k0; k < k1; k++)
                for (size_t l = l0; l < l1; l++)
                    dst[(ptrdiff_t)k * s->dst_stride[t->across] + (ptrdiff_t)l] =
                        src[(ptrdiff_t)k + (ptrdiff_t)l * s->src_stride[last]];
        }
    }
}

/* The dimension to tile with the last one, or rank where rows do as well. */
static uint32_t across_of(const struct teg_strided *s)
{
    const uint32_t last = s->rank - 1;
    if (s->item_bytes != 4 || s->dst_stride[last] != 1 || s->src_stride[last] < (ptrdiff_t)TILE || s->dims[last] < TILE)
        return s->rank;
    for (uint32_t d = 0; d < last; d++)
        if (s->src_stride[d] == 1 && s->dims[d] >= TILE)
            return d;
    return s->rank;
}

void teg_strided_copy(const struct teg_eval_call *c, const struct teg_strided *s)
{
    size_t n_rows = 1;
    for (uint32_t d = 0; d + 1 < s->rank; d++)
        n_rows *= s->dims[d];
    if (!s->rank) {
        memcpy(s->dst, s->src, s->item_bytes);
        return;
    }
    if (!n_rows || !s->dims[s->rank - 1])
        return;
    const uint32_t across = across_of(s);
    if (across < s->rank) {
        struct tiles t = {s, across, (s->dims[across] + TILE - 1) / TILE};
        teg_op_parallel(c, n_rows / s->dims[across] * t.n_tiles, 2 * TILE * s->dims[s->rank - 1], copy_tiles, &t);
    } else {
        teg_op_parallel(c, n_rows, s->dims[s->rank - 1], copy_rows, (void *)s);
    }
}
