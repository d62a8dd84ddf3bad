/* eval/ops_linear.c: linear, matmul, einsum.
 *
 * All three come down to batches for eval/products.h; operands are read where they lie, except a transposed x of
 * matmul, which is turned once. Products of integers have a loop of their own: no kernel knows them and no model needs
 * them fast. (Attention: ops_attention.c.) */
#include <string.h>

#include "base/check.h"
#include "eval/products.h"

/* ---- integers ---- */

struct int_product { /* Y[m, n] = sum of x[m, k] y[k, n] by strides, for one batch */
    const int32_t *x, *y;
    size_t x_row, x_column, y_row, y_column, m, n, k;
    int32_t *out;
};

static void int_rows(void *ctx, size_t begin, size_t end)
{
    const struct int_product *const p = ctx;
    for (size_t m = begin; m < end; m++)
        for (size_t n = 0; n < p->n; n++) {
            uint32_t sum = 0;
            for (size_t k = 0; k < p->k; k++)
                sum += (uint32_t)p->x[m * p->x_row + k * p->x_column] * (uint32_t)p->y[k * p->y_row + n * p->y_column];
            p->out[m * p->n + n] = (int32_t)sum;
        }
}

/* ---- mixed types: from opset 17 on a constant may be integer where the other operand is float, or the reverse ---- */

/* The elements as floats: in place, or a copy that lives as long as the op. */
static enum teg_status as_floats(struct teg_eval_call *c, const char *name, const struct teg_array *a,
                                 const float **out)
{
    float *copy;
    *out = a->f32;
    if (a->form == TEG_FORM_F32)
        return TEG_OK;
    if (a->form != TEG_FORM_I32)
        OP_FAIL(c, TEG_ERR_UNSUPPORTED, "parameter %s: expected numbers, found another type", name);
    TRY(teg_op_scratch(c, a->n ? a->n : 1, sizeof *copy, (void **)&copy));
    for (size_t i = 0; i < a->n; i++)
        copy[i] = (float)a->i32[i];
    *out = copy;
    return TEG_OK;
}

/* Where a product of floats goes: the output itself, or memory from which integers are taken afterwards. */
static enum teg_status float_room(struct teg_eval_call *c, struct teg_array *y, float **out)
{
    *out = y->f32;
    if (y->form == TEG_FORM_F32)
        return TEG_OK;
    if (y->form != TEG_FORM_I32)
        OP_FAIL(c, TEG_ERR_FORMAT, "output: expected numbers, found another type");
    return teg_op_scratch(c, y->n ? y->n : 1, sizeof **out, (void **)out);
}

/* Towards zero, as cast does. */
static void settle_integers(const float *from, struct teg_array *y)
{
    for (size_t i = 0; y->form == TEG_FORM_I32 && i < y->n; i++) {
        const float v = from[i];
        y->i32[i] = v >= 0x1p31f ? INT32_MAX : v > -0x1p31f ? (int32_t)v : v < 0 ? INT32_MIN : 0;
    }
}

/* ---- linear ---- */

static void linear_int(struct teg_eval_call *c, const struct teg_array *x, const struct teg_array *weight,
                       const struct teg_array *bias, struct teg_array *y)
{
    const size_t n = weight->dims[0], k = weight->dims[1];
    struct int_product p = {x->i32, weight->i32, k, 1, 1, k, n ? y->n / n : 0, n, k, y->i32};
    teg_op_parallel(c, p.m, n * k, int_rows, &p);
    for (size_t i = 0; bias && i < y->n; i++)
        y->i32[i] = (int32_t)((uint32_t)y->i32[i] + (uint32_t)bias->i32[i % n]);
}

static enum teg_status linear_float(struct teg_eval_call *c, const struct teg_array *x, const struct teg_array *weight,
                                    const struct teg_array *bias, struct teg_array *y)
{
    const struct teg_product_at whole = {0};
    const size_t n = weight->dims[0], k = weight->dims[1];
    const float *from, *rows, *column_bias = NULL;
    float *to;
    TRY(as_floats(c, "x", x, &from));
    TRY(as_floats(c, "weight", weight, &rows));
    if (bias)
        TRY(as_floats(c, "bias", bias, &column_bias));
    TRY(float_room(c, y, &to));
    const struct teg_products g = {.batches = &whole,
                                   .n_batches = 1,
                                   .m = n ? y->n / n : 0,
                                   .n = n,
                                   .k = k,
                                   .a = from,
                                   .a_stride = k,
                                   .b = rows,
                                   .b_stride = k,
                                   .b_rows = true,
                                   .column_bias = column_bias,
                                   .y = to,
                                   .y_stride = n};
    TRY(teg_products_run(c, &g));
    settle_integers(to, y);
    return TEG_OK;
}

static enum teg_status op_linear(struct teg_eval_call *c)
{
    const struct teg_array *x, *weight;
    const struct teg_array *const bias = teg_arg(c, "bias");
    TRY(teg_arg_any(c, "x", &x));
    TRY(teg_arg_any(c, "weight", &weight));
    if (weight->rank != 2 || x->rank < 1 || x->dims[x->rank - 1] != weight->dims[1])
        OP_FAIL(c, TEG_ERR_FORMAT,
                "parameter weight: expected shape [out, in] with in the last dimension of x (%s), found %s",
                teg_shape_text(x->rank, x->dims).text, teg_shape_text(weight->rank, weight->dims).text);
    const size_t n = weight->dims[0];
    if (bias && (bias->rank != 1 || bias->dims[0] != n))
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter bias: expected shape %zu, found %s", n,
                teg_shape_text(bias->rank, bias->dims).text);
    size_t dims[TEG_MIL_MAX_RANK];
    memcpy(dims, x->dims, x->rank * sizeof *dims);
    dims[x->rank - 1] = n;
    struct teg_array *y;
    TRY(teg_output(c, 0, teg_form_of(teg_output_dtype(c, 0)), x->rank, dims, &y));
    if (x->form != TEG_FORM_I32 || weight->form != TEG_FORM_I32 || (bias && bias->form != TEG_FORM_I32) ||
        y->form != TEG_FORM_I32)
        return linear_float(c, x, weight, bias, y);
    linear_int(c, x, weight, bias, y);
    return TEG_OK;
}

/* ---- matmul ---- */

struct product {
    const struct teg_array *x, *y;
    bool turn_x, turn_y;
    size_t m, n, k;
    uint32_t n_batch_dims;
    size_t batch[TEG_MIL_MAX_RANK], x_batch[TEG_MIL_MAX_RANK], y_batch[TEG_MIL_MAX_RANK];
    size_t n_batches, n_x_batches, n_y_batches;
};

/* The dims in front of the matrix, right-aligned and filled up with ones; returns their product. */
static size_t batch_dims(const struct teg_array *a, uint32_t n_dims, size_t *dims)
{
    const uint32_t own = a->rank > 2 ? a->rank - 2 : 0;
    size_t n = 1;
    for (uint32_t d = 0; d < n_dims; d++) {
        dims[d] = d + own < n_dims ? 1 : a->dims[d + own - n_dims];
        n *= dims[d];
    }
    return n;
}

static enum teg_status broadcast_batches(struct teg_eval_call *c, struct product *p)
{
    const uint32_t x = p->x->rank > 2 ? p->x->rank - 2 : 0, y = p->y->rank > 2 ? p->y->rank - 2 : 0;
    p->n_batch_dims = x > y ? x : y;
    p->n_x_batches = batch_dims(p->x, p->n_batch_dims, p->x_batch);
    p->n_y_batches = batch_dims(p->y, p->n_batch_dims, p->y_batch);
    p->n_batches = 1;
    for (uint32_t d = 0; d < p->n_batch_dims; d++) {
        const size_t a = p->x_batch[d], b = p->y_batch[d];
        if (a != b && a != 1 && b != 1)
            OP_FAIL(c, TEG_ERR_FORMAT, "parameters x and y: expected batch dimensions that broadcast, found %s and %s",
                    teg_shape_text(p->x->rank, p->x->dims).text, teg_shape_text(p->y->rank, p->y->dims).text);
        p->batch[d] = a == 1 ? b : a;
        if (!teg_mul(p->n_batches, p->batch[d], &p->n_batches))
            OP_FAIL(c, TEG_ERR_FORMAT, "output: expected a size that can be addressed, found an overflow");
    }
    return TEG_OK;
}

static enum teg_status read_product(struct teg_eval_call *c, struct product *p)
{
    TRY(teg_arg_any(c, "x", &p->x));
    TRY(teg_arg_any(c, "y", &p->y));
    TRY(teg_arg_bool(c, "transpose_x", false, &p->turn_x));
    TRY(teg_arg_bool(c, "transpose_y", false, &p->turn_y));
    if (!p->x->rank || !p->y->rank)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameters x and y: expected at least one dimension, found a scalar");
    p->turn_x = p->turn_x && p->x->rank > 1;
    p->turn_y = p->turn_y && p->y->rank > 1;
    const size_t *const x = p->x->dims + (p->x->rank > 1 ? p->x->rank - 2 : 0);
    const size_t *const y = p->y->dims + (p->y->rank > 1 ? p->y->rank - 2 : 0);
    p->m = p->x->rank == 1 ? 1 : x[p->turn_x];
    p->k = p->x->rank == 1 ? x[0] : x[!p->turn_x];
    p->n = p->y->rank == 1 ? 1 : y[!p->turn_y];
    const size_t y_k = p->y->rank == 1 ? y[0] : y[p->turn_y];
    if (p->k != y_k)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameters x and y: expected equal inner dimensions, found %zu of %s and %zu of %s",
                p->k, teg_shape_text(p->x->rank, p->x->dims).text, y_k, teg_shape_text(p->y->rank, p->y->dims).text);
    return broadcast_batches(c, p);
}

/* Which batch of an operand (dims `own`, 1 where it repeats) belongs to batch `index` of the result. */
static size_t own_batch(const struct product *p, const size_t *own, size_t index)
{
    size_t at = 0, step = 1;
    for (uint32_t d = p->n_batch_dims; d-- > 0;) {
        const size_t i = index % p->batch[d];
        index /= p->batch[d];
        at += own[d] == 1 ? 0 : i * step;
        step *= own[d];
    }
    return at;
}

static enum teg_status turn_all(struct teg_eval_call *c, struct product *p, const float *from, const float **x)
{
    float *turned;
    TRY(teg_op_scratch(c, p->x->n ? p->x->n : 1, sizeof *turned, (void **)&turned));
    for (size_t b = 0; b < p->n_x_batches; b++)
        teg_transpose(from + b * p->m * p->k, p->m, p->k, p->m, turned + b * p->m * p->k, p->k);
    *x = turned;
    return TEG_OK;
}

static enum teg_status product_float(struct teg_eval_call *c, struct product *p, struct teg_array *out)
{
    const float *x, *y;
    float *to;
    TRY(as_floats(c, "x", p->x, &x));
    TRY(as_floats(c, "y", p->y, &y));
    TRY(float_room(c, out, &to));
    if (p->turn_x)
        TRY(turn_all(c, p, x, &x));
    if (p->n_y_batches == 1 && p->n_x_batches == p->n_batches) { /* one matrix for all rows of x */
        p->m *= p->n_batches;
        p->n_batches = 1;
    }
    struct teg_product_at *batches;
    TRY(teg_op_scratch(c, p->n_batches ? p->n_batches : 1, sizeof *batches, (void **)&batches));
    for (size_t b = 0; b < p->n_batches; b++)
        batches[b] = (struct teg_product_at){.a = own_batch(p, p->x_batch, b) * p->m * p->k,
                                             .b = own_batch(p, p->y_batch, b) * p->k * p->n,
                                             .y = b * p->m * p->n};
    const bool rows = p->turn_y || p->y->rank == 1; /* a vector is one row of K as well as K rows of one */
    const struct teg_products g = {.batches = batches,
                                   .n_batches = p->n_batches,
                                   .m = p->m,
                                   .n = p->n,
                                   .k = p->k,
                                   .a = x,
                                   .a_stride = p->k,
                                   .b = y,
                                   .b_stride = rows ? p->k : p->n,
                                   .b_rows = rows,
                                   .y = to,
                                   .y_stride = p->n};
    TRY(teg_products_run(c, &g));
    settle_integers(to, out);
    return TEG_OK;
}

static void product_int(struct teg_eval_call *c, const struct product *p, struct teg_array *out)
{
    for (size_t b = 0; b < p->n_batches; b++) {
        struct int_product one = {.x = p->x->i32 + own_batch(p, p->x_batch, b) * p->m * p->k,
                                  .y = p->y->i32 + own_batch(p, p->y_batch, b) * p->k * p->n,
                                  .x_row = p->turn_x ? 1 : p->k,
                                  .x_column = p->turn_x ? p->m : 1,
                                  .y_row = p->turn_y ? 1 : p->n,
                                  .y_column = p->turn_y ? p->k : 1,
                                  .m = p->m,
                                  .n = p->n,
                                  .k = p->k,
                                  .out = out->i32 + b * p->m * p->n};
        teg_op_parallel(c, one.m, one.n * one.k, int_rows, &one);
    }
}

static enum teg_status op_matmul(struct teg_eval_call *c)
{
    struct product p = {0};
    TRY(read_product(c, &p));
    size_t dims[TEG_MIL_MAX_RANK];
    uint32_t rank = p.n_batch_dims;
    memcpy(dims, p.batch, rank * sizeof *dims);
    if (p.x->rank > 1)
        dims[rank++] = p.m;
    if (p.y->rank > 1)
        dims[rank++] = p.n;
    struct teg_array *out;
    TRY(teg_output(c, 0, teg_form_of(teg_output_dtype(c, 0)), rank, dims, &out));
    if (p.x->form == TEG_FORM_I32 && p.y->form == TEG_FORM_I32 && out->form == TEG_FORM_I32) {
        product_int(c, &p, out);
        return TEG_OK;
    }
    return product_float(c, &p, out);
}

/* ---- einsum ---- */

/* Renames letters by first appearance: "bchw,bwhu->bchu" becomes "abcd,adce->abce". Blanks are left out. */
static bool canonical(struct teg_string equation, char *out, size_t capacity)
{
    char seen[26];
    size_t n_seen = 0, n = 0;
    for (size_t i = 0; i < equation.n_bytes; i++) {
        const char letter = equation.bytes[i];
        if (letter == ' ')
            continue;
        if (n + 1 >= capacity)
            return false;
        size_t at = 0;
        while (at < n_seen && seen[at] != letter)
            at++;
        const bool is_letter = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
        if (is_letter && at == n_seen) {
            if (n_seen == sizeof seen)
                return false;
            seen[n_seen++] = letter;
        }
        out[n++] = is_letter ? (char)('a' + at) : letter;
    }
    out[n] = 0;
    return true;
}

struct einsum_shape {
    const struct teg_array *x, *y;
    size_t b, c, h, k, u; /* x [b, c, h, k], y [b, k, h, u] */
    size_t x_b, x_h, y_b, y_h;
};

static enum teg_status read_einsum(struct teg_eval_call *c, struct einsum_shape *s)
{
    struct teg_string equation;
    char form[32];
    TRY(teg_arg_string(c, "equation", "", &equation));
    if (teg_arg_count(c, "values") != 2)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter values: expected 2 tensors, found %zu", teg_arg_count(c, "values"));
    if (!canonical(equation, form, sizeof form))
        form[0] = 0;
    const bool four = strcmp(form, "abcd,adce->abce") == 0, three = strcmp(form, "abc,cbd->abd") == 0;
    if (!four && !three)
        OP_FAIL(c, TEG_ERR_UNSUPPORTED,
                "parameter equation: expected \"nchw,nwhu->nchu\" or \"chw,whr->chr\", found \"%.*s\"",
                (int)teg_min(equation.n_bytes, 60), equation.bytes);
    const struct teg_array *const x = teg_arg_at(c, "values", 0), *const y = teg_arg_at(c, "values", 1);
    const uint32_t rank = four ? 4 : 3;
    if (x->rank != rank || y->rank != rank || x->form != TEG_FORM_F32 || y->form != TEG_FORM_F32)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter values: expected two float tensors of rank %u, found ranks %u and %u",
                rank, x->rank, y->rank);
    const size_t *const xd = x->dims + rank - 3, *const yd = y->dims + rank - 3;
    *s = (struct einsum_shape){.x = x, .y = y, .c = xd[0], .k = xd[2], .u = yd[2], .x_h = xd[1], .y_h = yd[1]};
    s->x_b = four ? x->dims[0] : 1;
    s->y_b = four ? y->dims[0] : 1;
    s->b = s->x_b == 1 ? s->y_b : s->x_b;
    s->h = s->x_h == 1 ? s->y_h : s->x_h;
    if (yd[0] != s->k || (s->x_b != s->y_b && s->x_b != 1 && s->y_b != 1) ||
        (s->x_h != s->y_h && s->x_h != 1 && s->y_h != 1))
        OP_FAIL(c, TEG_ERR_FORMAT,
                "parameter values: expected shapes that agree or are 1 along each letter, found %s and %s",
                teg_shape_text(rank, x->dims).text, teg_shape_text(rank, y->dims).text);
    return TEG_OK;
}

static enum teg_status op_einsum(struct teg_eval_call *c)
{
    struct einsum_shape s;
    TRY(read_einsum(c, &s));
    const size_t dims[4] = {s.b, s.c, s.h, s.u};
    struct teg_array *out;
    TRY(teg_output(c, 0, TEG_FORM_F32, s.x->rank, dims + 4 - s.x->rank, &out));
    struct teg_product_at *batches;
    size_t n_batches;
    if (!teg_mul(s.b, s.h, &n_batches))
        OP_FAIL(c, TEG_ERR_FORMAT, "output: expected a size that can be addressed, found an overflow");
    TRY(teg_op_scratch(c, n_batches ? n_batches : 1, sizeof *batches, (void **)&batches));
    for (size_t i = 0; i < n_batches; i++) {
        const size_t b = i / s.h, h = i % s.h;
        const size_t xb = s.x_b == 1 ? 0 : b, xh = s.x_h == 1 ? 0 : h, yb = s.y_b == 1 ? 0 : b, yh = s.y_h == 1 ? 0 : h;
        batches[i] = (struct teg_product_at){
            .a = (xb * s.c * s.x_h + xh) * s.k, .b = (yb * s.k * s.y_h + yh) * s.u, .y = (b * s.c * s.h + h) * s.u};
    }
    const struct teg_products g = {.batches = batches,
                                   .n_batches = n_batches,
                                   .m = s.c,
                                   .n = s.u,
                                   .k = s.k,
                                   .a = s.x->f32,
                                   .a_stride = s.x_h * s.k,
                                   .b = s.y->f32,
                                   .b_stride = s.y_h * s.u,
                                   .y = out->f32,
                                   .y_stride = s.h * s.u};
    return teg_products_run(c, &g);
}

const struct teg_eval_row teg_eval_rows_linear[] = {
    {"linear", 6, op_linear},
    {"matmul", 6, op_matmul},
    {"einsum", 6, op_einsum},
    {NULL, 0, NULL},
};
