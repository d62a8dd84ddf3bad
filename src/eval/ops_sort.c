/* eval/ops_sort.c: argsort and topk.
 *
 * Lines along the axis are sorted by a merge sort of keys that carry their index, so that equal values keep their order
 * in both directions; NaN comes last in both, as in numpy. topk is the head of that. Not taken: a heap for small k. It
 * would be faster on one vocabulary-long line, and no model that matters has one. */
#include <string.h>

#include "base/check.h"
#include "eval/strided.h"

struct sorting {
    const struct teg_array *x;
    size_t n, inner, k; /* line length, elements between neighbours of a line, results a line */
    bool ascending;
    uint64_t *scratch;                  /* two buffers of n keys a line */
    struct teg_array *values, *indices; /* either may be NULL */
};

/* The bits of an element as an integer of the same order, in the direction of the sort. -0 equals 0. */
static uint32_t key_of(const struct sorting *s, size_t at)
{
    const uint32_t u = (uint32_t)s->x->i32[at], flip = s->ascending ? 0 : UINT32_MAX;
    if (s->x->form == TEG_FORM_I32)
        return u ^ 0x80000000u ^ flip;
    const float v = s->x->f32[at];
    if (v != v)
        return UINT32_MAX;
    return (v == 0 ? 0x80000000u : u & 0x80000000u ? ~u : u | 0x80000000u) ^ flip;
}

/* Merges runs of growing width; returns the buffer that holds the result. An element is its key above its index, so no
 * two are equal and equal keys keep their order. */
static const uint64_t *sort_line(const struct sorting *s, size_t base, uint64_t *from, uint64_t *to)
{
    for (size_t i = 0; i < s->n; i++)
        from[i] = (uint64_t)key_of(s, base + i * s->inner) << 32 | i;
    for (size_t width = 1; width < s->n; width *= 2) {
        for (size_t begin = 0; begin < s->n; begin += 2 * width) {
            const size_t middle = teg_min(begin + width, s->n), end = teg_min(begin + 2 * width, s->n);
            size_t a = begin, b = middle, i = begin;
            while (a < middle && b < end) {
                const bool takes_b = from[b] < from[a];
                to[i++] = takes_b ? from[b] : from[a];
                b += takes_b;
                a += !takes_b;
            }
            memcpy(to + i, from + a, (middle - a) * sizeof *to);
            memcpy(to + i + (middle - a), from + b, (end - b) * sizeof *to);
        }
        uint64_t *const swap = from;
        from = to;
        to = swap;
    }
    return from;
}

static void sort_lines(void *ctx, size_t begin, size_t end)
{
    const struct sorting *const s = ctx;
    for (size_t line = begin; line < end; line++) {
        const size_t base = line / s->inner * s->n * s->inner + line % s->inner;
        const size_t out = line / s->inner * s->k * s->inner + line % s->inner;
        uint64_t *const buffer = s->scratch + 2 * s->n * line;
        const uint64_t *const order = sort_line(s, base, buffer, buffer + s->n);
        for (size_t i = 0; i < s->k; i++) {
            const uint32_t index = (uint32_t)order[i];
            if (s->indices)
                s->indices->i32[out + i * s->inner] = (int32_t)index;
            if (s->values)
                s->values->i32[out + i * s->inner] = s->x->i32[base + index * s->inner]; /* bits of either form */
        }
    }
}

static enum teg_status operand(struct teg_eval_call *c, struct sorting *s, uint32_t *axis)
{
    *s = (struct sorting){.inner = 1};
    TRY(teg_arg_any(c, "x", &s->x));
    TRY(teg_arg_axis(c, "axis", -1, s->x->rank, axis));
    TRY(teg_arg_bool(c, "ascending", false, &s->ascending));
    if (s->x->form > TEG_FORM_I32 || s->x->dims[*axis] > INT32_MAX)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter x: expected numbers, at most 2^31 along the axis, found shape %s",
                teg_shape_text(s->x->rank, s->x->dims).text);
    s->n = s->x->dims[*axis];
    for (uint32_t d = *axis + 1; d < s->x->rank; d++)
        s->inner *= s->x->dims[d];
    return TEG_OK;
}

static enum teg_status sort(struct teg_eval_call *c, struct sorting *s)
{
    void *memory;
    if (!s->x->n)
        return TEG_OK;
    TRY(teg_op_scratch(c, s->x->n, 2 * sizeof(uint64_t), &memory));
    s->scratch = memory;
    teg_op_parallel(c, s->x->n / s->n, 32 * s->n, sort_lines, s);
    return TEG_OK;
}

static enum teg_status op_argsort(struct teg_eval_call *c)
{
    struct sorting s;
    uint32_t axis;
    TRY(operand(c, &s, &axis));
    TRY(teg_output(c, 0, TEG_FORM_I32, s.x->rank, s.x->dims, &s.indices));
    s.k = s.n;
    return sort(c, &s);
}

/* iOS16 added sort and return_indices (without sort any order is right, the sorted one too), iOS17 k = -1. */
static enum teg_status op_topk(struct teg_eval_call *c)
{
    struct sorting s;
    uint32_t axis;
    int32_t k;
    bool return_indices;
    size_t dims[TEG_MIL_MAX_RANK];
    TRY(operand(c, &s, &axis));
    TRY(teg_arg_int(c, "k", 1, &k));
    TRY(teg_arg_bool(c, "return_indices", true, &return_indices));
    if (k == -1 && c->opset >= 8)
        k = (int32_t)s.n;
    if (k < 0 || (size_t)k > s.n)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter k: expected at most the %zu elements along the axis, found %d", s.n, k);
    memcpy(dims, s.x->dims, sizeof dims);
    dims[axis] = s.k = (size_t)k;
    TRY(teg_output(c, 0, s.x->form, s.x->rank, dims, &s.values));
    if (return_indices)
        TRY(teg_output(c, 1, TEG_FORM_I32, s.x->rank, dims, &s.indices));
    return sort(c, &s);
}

const struct teg_eval_row teg_eval_rows_sort[] = {
    {"argsort", 6, op_argsort},
    {"topk", 6, op_topk},
    {NULL, 0, NULL},
};
