/* eval/ops_fill.c: ops that make elements: fill, range_1d, one_hot, non_zero, band_part, pad.
 *
 * Their sizes come from values, at run time: each is checked before anything is allocated. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "eval/strided.h"

/* Sets n elements of y from `at` on to the scalar `value` (NULL: zero). */
static void fill_elements(struct teg_array *y, size_t at, size_t n, const void *value)
{
    const size_t item = teg_item_bytes(y);
    uint32_t word = 0;
    if (!value || item == 1) {
        memset((char *)y->data + at * item, value ? *(const uint8_t *)value : 0, n * item);
        return;
    }
    memcpy(&word, value, sizeof word);
    for (size_t i = 0; i < n; i++)
        memcpy(y->i32 + at + i, &word, sizeof word);
}

/* A scalar parameter of y's form; *value stays NULL where it is absent. */
static enum teg_status scalar_of(struct teg_eval_call *c, const char *name, const struct teg_array *y,
                                 const void **value)
{
    const struct teg_array *a;
    *value = NULL;
    if (y->form > TEG_FORM_BOOL)
        OP_FAIL(c, TEG_ERR_UNSUPPORTED, "output: expected numbers or bools, found strings or a list");
    if (!teg_arg(c, name))
        return TEG_OK;
    TRY(teg_arg_form(c, name, y->form, &a));
    if (a->n != 1)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter %s: expected one value, found %zu", name, a->n);
    *value = a->data;
    return TEG_OK;
}

static enum teg_status fill(struct teg_eval_call *c, uint32_t rank, const size_t *dims)
{
    struct teg_array *y;
    const void *value;
    TRY(teg_output(c, 0, teg_form_of(teg_output_dtype(c, 0)), rank, dims, &y));
    TRY(scalar_of(c, "value", y, &value));
    fill_elements(y, 0, y->n, value);
    return TEG_OK;
}

static enum teg_status op_fill(struct teg_eval_call *c)
{
    int32_t shape[TEG_MIL_MAX_RANK];
    size_t rank, dims[TEG_MIL_MAX_RANK];
    TRY(teg_arg_ints(c, "shape", shape, TEG_MIL_MAX_RANK, &rank));
    for (size_t d = 0; rank != SIZE_MAX && d < rank; d++) {
        if (shape[d] < 0)
            OP_FAIL(c, TEG_ERR_FORMAT, "parameter shape: expected sizes, found %d at dimension %zu", shape[d], d);
        dims[d] = (size_t)shape[d];
    }
    if (rank == SIZE_MAX)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter shape: expected a value, found none");
    return fill(c, (uint32_t)rank, dims);
}

static enum teg_status op_fill_like(struct teg_eval_call *c)
{
    const struct teg_array *ref;
    TRY(teg_arg_any(c, "ref_tensor", &ref));
    return fill(c, ref->rank, ref->dims);
}

/* ---- range_1d ---- */

static enum teg_status range_values(struct teg_eval_call *c, enum teg_form form, double out[3])
{
    static const char *const names[] = {"start", "end", "step"};
    for (size_t i = 0; i < 3; i++) {
        int32_t integer = 0;
        float real = 0;
        if (form == TEG_FORM_I32)
            TRY(teg_arg_int(c, names[i], 0, &integer));
        else
            TRY(teg_arg_float(c, names[i], 0, &real));
        out[i] = form == TEG_FORM_I32 ? integer : (double)real;
    }
    return TEG_OK;
}

static enum teg_status op_range_1d(struct teg_eval_call *c)
{
    const struct teg_array *start;
    struct teg_array *y;
    double v[3];
    TRY(teg_arg_any(c, "start", &start));
    TRY(range_values(c, start->form, v));
    const double length = ceil((v[1] - v[0]) / v[2]);
    if (v[2] == 0 || !isfinite(length) || length > (double)INT32_MAX)
        OP_FAIL(c, TEG_ERR_FORMAT, "range: expected a finite number of steps, found %g to %g by %g", v[0], v[1], v[2]);
    const size_t dims[1] = {length > 0 ? (size_t)length : 0};
    TRY(teg_output(c, 0, start->form, 1, dims, &y));
    for (size_t i = 0; i < y->n; i++)
        if (y->form == TEG_FORM_I32)
            y->i32[i] = (int32_t)(v[0] + (double)i * v[2]);
        else
            y->f32[i] = (float)(v[0] + (double)i * v[2]);
    return TEG_OK;
}

/* ---- one_hot, non_zero, band_part ---- */

static enum teg_status op_one_hot(struct teg_eval_call *c)
{
    static const float one_f = 1.0f;
    static const int32_t one_i = 1;
    static const uint8_t one_b = 1;
    const struct teg_array *indices;
    struct teg_array *y;
    const void *on, *off;
    int32_t depth;
    uint32_t axis;
    size_t dims[TEG_MIL_MAX_RANK], inner = 1;
    TRY(teg_arg_form(c, "indices", TEG_FORM_I32, &indices));
    TRY(teg_arg_int(c, "one_hot_vector_size", 0, &depth));
    if (depth < 0 || indices->rank == TEG_MIL_MAX_RANK)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter one_hot_vector_size: expected a size, found %d", depth);
    TRY(teg_arg_axis(c, "axis", -1, indices->rank + 1, &axis));
    for (uint32_t d = 0; d < indices->rank; d++) {
        dims[d + (d >= axis)] = indices->dims[d];
        inner *= d >= axis ? indices->dims[d] : 1;
    }
    dims[axis] = (size_t)depth;
    TRY(teg_output(c, 0, teg_form_of(teg_output_dtype(c, 0)), indices->rank + 1, dims, &y));
    TRY(scalar_of(c, "on_value", y, &on));
    TRY(scalar_of(c, "off_value", y, &off));
    if (!on)
        on = y->form == TEG_FORM_F32 ? (const void *)&one_f : y->form == TEG_FORM_I32 ? (const void *)&one_i : &one_b;
    fill_elements(y, 0, y->n, off);
    for (size_t i = 0; i < indices->n; i++)
        if (indices->i32[i] >= 0 && indices->i32[i] < depth)
            fill_elements(y, (i / inner * (size_t)depth + (size_t)indices->i32[i]) * inner + i % inner, 1, on);
    return TEG_OK;
}

static bool is_set(const struct teg_array *x, size_t i)
{
    return x->form == TEG_FORM_F32 ? x->f32[i] != 0 : x->form == TEG_FORM_I32 ? x->i32[i] != 0 : x->b[i] != 0;
}

static enum teg_status op_non_zero(struct teg_eval_call *c)
{
    const struct teg_array *x;
    struct teg_array *y;
    size_t n = 0, at = 0;
    TRY(teg_arg_any(c, "x", &x));
    if (x->form > TEG_FORM_BOOL)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter x: expected numbers or bools, found strings or a list");
    for (size_t i = 0; i < x->n; i++)
        n += is_set(x, i);
    const size_t dims[2] = {n, x->rank};
    TRY(teg_output(c, 0, TEG_FORM_I32, 2, dims, &y));
    for (size_t i = 0; i < x->n; i++) {
        size_t rest = i;
        if (!is_set(x, i))
            continue;
        for (uint32_t d = x->rank; d-- > 0; rest /= x->dims[d])
            y->i32[at * x->rank + d] = (int32_t)(rest % x->dims[d]);
        at++;
    }
    return TEG_OK;
}

static enum teg_status op_band_part(struct teg_eval_call *c)
{
    const struct teg_array *x;
    struct teg_array *y;
    int32_t lower, upper;
    TRY(teg_arg_any(c, "x", &x));
    TRY(teg_arg_int(c, "lower", -1, &lower));
    TRY(teg_arg_int(c, "upper", -1, &upper));
    if (x->rank < 2 || x->form > TEG_FORM_BOOL)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter x: expected matrices, found shape %s",
                teg_shape_text(x->rank, x->dims).text);
    TRY(teg_output(c, 0, x->form, x->rank, x->dims, &y));
    const size_t item = teg_item_bytes(x), n_rows = x->dims[x->rank - 2], n = x->dims[x->rank - 1];
    for (size_t row = 0; n && row < x->n / n; row++) {
        /* Columns from m - lower to m + upper stay. */
        const size_t m = row % n_rows;
        const size_t begin = lower < 0 || (size_t)lower > m ? 0 : teg_min(m - (size_t)lower, n);
        const size_t end = upper < 0 ? n : teg_max(begin, teg_min(m + (size_t)upper + 1, n));
        fill_elements(y, row * n, begin, NULL);
        memcpy((char *)y->data + (row * n + begin) * item, (const char *)x->data + (row * n + begin) * item,
               (end - begin) * item);
        fill_elements(y, row * n + end, n - end, NULL);
    }
    return TEG_OK;
}

/* ---- pad ---- */

enum pad_mode { PAD_CONSTANT, PAD_REFLECT, PAD_REPLICATE };
#define OUTSIDE SIZE_MAX

struct padding {
    const struct teg_array *x;
    struct teg_array *y;
    size_t *map[TEG_MIL_MAX_RANK]; /* by dimension and output index: the index in x times its stride, or OUTSIDE */
    uint32_t last;                 /* the dimension of rows: dims behind it are 1 in both */
    const void *value;
};

static size_t source_index(int64_t i, int64_t n, enum pad_mode mode)
{
    if (i >= 0 && i < n)
        return (size_t)i;
    if (mode == PAD_CONSTANT)
        return OUTSIDE;
    if (mode == PAD_REPLICATE || n == 1)
        return i < 0 ? 0 : (size_t)(n - 1);
    const int64_t period = 2 * (n - 1);
    i = ((i % period) + period) % period;
    return (size_t)(i < n ? i : period - i);
}

static void pad_rows(void *ctx, size_t begin, size_t end)
{
    const struct padding *const p = ctx;
    const size_t n = p->y->dims[p->last], item = teg_item_bytes(p->x), *const map = p->map[p->last];
    for (size_t row = begin; row < end; row++) {
        size_t base = 0, rest = row;
        for (uint32_t d = p->last; d-- > 0 && base != OUTSIDE; rest /= p->y->dims[d]) {
            const size_t of = p->map[d][rest % p->y->dims[d]];
            base = of == OUTSIDE ? OUTSIDE : base + of;
        }
        for (size_t i = 0; i < n;) {
            if (base == OUTSIDE || map[i] == OUTSIDE) {
                const size_t run = base == OUTSIDE ? n - i : 1;
                fill_elements(p->y, row * n + i, run, p->value);
                i += run;
                continue;
            }
            size_t run = 1; /* neighbours that are neighbours in x too */
            while (i + run < n && map[i + run] == map[i] + run)
                run++;
            memcpy((char *)p->y->data + (row * n + i) * item, (const char *)p->x->data + (base + map[i]) * item,
                   run * item);
            i += run;
        }
    }
}

static enum teg_status pad_mode(struct teg_eval_call *c, enum pad_mode *mode)
{
    static const char *const names[] = {"constant", "reflect", "replicate"};
    struct teg_string given;
    TRY(teg_arg_string(c, "mode", "constant", &given));
    for (size_t i = 0; i < 3; i++)
        if (teg_string_is(given, names[i])) {
            *mode = (enum pad_mode)i;
            return TEG_OK;
        }
    OP_FAIL(c, TEG_ERR_FORMAT, "parameter mode: expected constant, reflect or replicate, found %.*s",
            (int)teg_min(given.n_bytes, 60), given.bytes);
}

static enum teg_status make_maps(struct teg_eval_call *c, struct padding *p, const int32_t *before, const size_t *dims,
                                 enum pad_mode mode)
{
    size_t stride = 1;
    for (uint32_t d = p->x->rank; d-- > 0; stride *= p->x->dims[d]) {
        void *memory;
        TRY(teg_op_scratch(c, dims[d], sizeof(size_t), &memory));
        p->map[d] = memory;
        for (size_t i = 0; i < dims[d]; i++) {
            const size_t from = source_index((int64_t)i - before[d], (int64_t)p->x->dims[d], mode);
            p->map[d][i] = from == OUTSIDE ? OUTSIDE : from * stride;
        }
    }
    return TEG_OK;
}

static enum teg_status op_pad(struct teg_eval_call *c)
{
    int32_t pad[2 * TEG_MIL_MAX_RANK], before[TEG_MIL_MAX_RANK] = {0};
    size_t n, dims[TEG_MIL_MAX_RANK];
    struct padding p = {0};
    enum pad_mode mode;
    TRY(teg_arg_any(c, "x", &p.x));
    TRY(teg_arg_ints(c, "pad", pad, 2 * TEG_MIL_MAX_RANK, &n));
    TRY(pad_mode(c, &mode));
    if (n == SIZE_MAX || n % 2 || n / 2 > p.x->rank)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter pad: expected two a dimension of at most %u, found %zu", p.x->rank,
                n == SIZE_MAX ? 0 : n);
    memcpy(dims, p.x->dims, sizeof dims);
    for (uint32_t k = 0; k < n / 2; k++) {
        const uint32_t d = p.x->rank - (uint32_t)(n / 2) + k;
        if (pad[2 * k] < 0 || pad[2 * k + 1] < 0 || (mode != PAD_CONSTANT && !p.x->dims[d]))
            OP_FAIL(c, TEG_ERR_FORMAT, "parameter pad: expected numbers from 0, found %d and %d at dimension %u",
                    pad[2 * k], pad[2 * k + 1], d);
        before[d] = pad[2 * k];
        dims[d] += (size_t)pad[2 * k] + (size_t)pad[2 * k + 1];
    }
    if (!p.x->rank)
        return teg_output_share(c, 0, p.x, 0, dims);
    TRY(teg_output(c, 0, p.x->form, p.x->rank, dims, &p.y));
    TRY(scalar_of(c, "constant_val", p.y, &p.value));
    TRY(make_maps(c, &p, before, dims, mode));
    p.last = p.x->rank - 1;
    while (p.last && dims[p.last] == 1 && p.x->dims[p.last] == 1)
        p.last--;
    if (p.y->n)
        teg_op_parallel(c, p.y->n / dims[p.last], dims[p.last], pad_rows, &p);
    return TEG_OK;
}

const struct teg_eval_row teg_eval_rows_fill[] = {
    {"fill", 6, op_fill},         {"fill_like", 7, op_fill_like},
    {"range_1d", 6, op_range_1d}, {"one_hot", 6, op_one_hot},
    {"non_zero", 6, op_non_zero}, {"band_part", 6, op_band_part},
    {"pad", 6, op_pad},           {NULL, 0, NULL},
};
