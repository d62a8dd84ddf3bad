/* eval/ops_recurrent.c: rnn, gru, lstm over a sequence [S, B, I].
 *
 * The input's share of the gates does not depend on the past, so it is one product for a block of 64 steps; the state's
 * share is a small product a step, added in place. Gates of a step lie side by side ([B, gates · H]), in the order of
 * the weights: gru reset, output, update; lstm input, forget, output, cell.
 *
 * Order of the output, by recorded results: `reverse` writes its steps in the order it takes them (the last input
 * first); the backward half of `bidirectional` is put back into the order of the input. The last state of either is
 * after its last step. Not taken: eval/products.h, whose memory lives as long as the op and would pile up over the
 * steps. */
#include <string.h>

#include "base/check.h"
#include "eval/eval.h"
#include "kernel/grid.h"

#define BLOCK_STEPS 64
#define SLICE_COLUMNS 64 /* gate columns a job */
#define SERIAL 65536     /* multiplications below which the pool costs more than it gives */

typedef void (*activate_fn)(const struct teg_grid_kernels *grid, float *x, size_t n);

struct direction {
    const float *w_ih, *w_hh, *bias, *input_bias, *peephole;
    bool backward, in_input_order;
    size_t column; /* where its H columns start in a row of outputs and states */
};

struct recurrent {
    struct teg_eval_call *c;
    const struct teg_grid_kernels *grid;
    const float *x, *initial_h, *initial_c;
    float *y, *last_h, *last_c; /* [S or 1, B, row], [B, row], [B, row]; row = directions · H */
    size_t s, b, i, h, row, n_gates;
    bool sequence, reset_after, clips;
    float clip;
    activate_fn recurrent, cell, output;
    float *gates, *state, *cell_state, *extra; /* [block · B, gates · H], [B, H], [B, H], [B, H] */
    float *scratch;
    size_t scratch_floats;
    void (*step)(const struct recurrent *r, const struct direction *d, float *gates);
};

/* ---- activations ---- */

static void act_tanh(const struct teg_grid_kernels *grid, float *x, size_t n)
{
    grid->row_tanh_f32(x, n);
}

static void act_sigmoid(const struct teg_grid_kernels *grid, float *x, size_t n)
{
    grid->row_sigmoid_f32(x, n);
}

static void act_hard_sigmoid(const struct teg_grid_kernels *grid, float *x, size_t n)
{
    (void)grid;
    for (size_t i = 0; i < n; i++) {
        const float v = 0.2f * x[i] + 0.5f;
        x[i] = v < 0 ? 0 : v > 1 ? 1 : v;
    }
}

static void act_relu(const struct teg_grid_kernels *grid, float *x, size_t n)
{
    (void)grid;
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] < 0 ? 0 : x[i];
}

static void act_linear(const struct teg_grid_kernels *grid, float *x, size_t n)
{
    (void)grid;
    (void)x;
    (void)n;
}

/* scaled_tanh has no parameters here: its factors are 1. */
static const struct {
    const char *name;
    activate_fn fn;
} activations[] = {{"tanh", act_tanh},    {"scaled_tanh", act_tanh},          {"sigmoid", act_sigmoid},
                   {"relu", act_relu},    {"hard_sigmoid", act_hard_sigmoid}, {"sigmoid_hard", act_hard_sigmoid},
                   {"linear", act_linear}};

static enum teg_status read_activation(struct teg_eval_call *c, const char *name, const char *otherwise,
                                       activate_fn *fn)
{
    struct teg_string text;
    TRY(teg_arg_string(c, name, otherwise, &text));
    for (size_t i = 0; i < sizeof activations / sizeof *activations; i++)
        if (teg_string_is(text, activations[i].name)) {
            *fn = activations[i].fn;
            return TEG_OK;
        }
    OP_FAIL(c, TEG_ERR_FORMAT,
            "parameter %s: expected tanh, scaled_tanh, sigmoid, hard_sigmoid, relu or linear, found "
            "\"%.*s\"",
            name, (int)teg_min(text.n_bytes, 60), text.bytes);
}

/* ---- products ---- */

struct product {
    const struct recurrent *r;
    struct teg_linear_args args;
};

static void product_slice(void *ctx, size_t slice, size_t worker)
{
    const struct product *const p = ctx;
    struct teg_linear_args args = p->args;
    args.n0 = p->args.n0 + slice * SLICE_COLUMNS;
    args.n1 = teg_min(args.n0 + SLICE_COLUMNS, p->args.n1);
    args.scratch = p->r->scratch + worker * p->r->scratch_floats;
    p->r->c->kernels->linear_f32(&args);
}

/* y[rows, stride], columns n0 … n1-1: x[rows, k] · w[columns, k]^T, plus bias, plus y where `add`. */
static void product(const struct recurrent *r, const float *x, size_t rows, size_t k, const float *w, const float *bias,
                    bool add, float *y, size_t stride, size_t n0, size_t n1)
{
    struct product p = {.r = r,
                        .args = {.x = x,
                                 .x_stride = k,
                                 .w = w,
                                 .w_dtype = TEG_DTYPE_F32,
                                 .w_row_bytes = k * sizeof(float),
                                 .bias = bias,
                                 .residual = add ? y : NULL,
                                 .y = y,
                                 .y_stride = stride,
                                 .n_tokens = rows,
                                 .k = k,
                                 .n0 = n0,
                                 .n1 = n1}};
    const size_t n_slices = (n1 - n0 + SLICE_COLUMNS - 1) / SLICE_COLUMNS;
    if (rows * k * (n1 - n0) >= SERIAL)
        teg_op_run(r->c, product_slice, &p, n_slices);
    else
        for (size_t slice = 0; slice < n_slices; slice++)
            product_slice(&p, slice, 0);
}

/* ---- steps: gates [B, gates · H] hold the input's share; state becomes the new one ---- */

static void rnn_step(const struct recurrent *r, const struct direction *d, float *gates)
{
    product(r, r->state, r->b, r->h, d->w_hh, NULL, true, gates, r->h, 0, r->h);
    r->output(r->grid, gates, r->b * r->h);
    memcpy(r->state, gates, r->b * r->h * sizeof *gates);
}

static void gru_step(const struct recurrent *r, const struct direction *d, float *gates)
{
    const size_t h = r->h, row = 3 * h;
    product(r, r->state, r->b, h, d->w_hh, NULL, true, gates, row, 0, h);
    product(r, r->state, r->b, h, d->w_hh, NULL, true, gates, row, 2 * h, row);
    for (size_t b = 0; b < r->b; b++) {
        r->recurrent(r->grid, gates + b * row, h);
        r->recurrent(r->grid, gates + b * row + 2 * h, h);
    }
    if (r->reset_after) {
        product(r, r->state, r->b, h, d->w_hh + h * h, d->bias ? d->bias + h : NULL, false, r->extra, h, 0, h);
        for (size_t b = 0; b < r->b; b++)
            for (size_t k = 0; k < h; k++)
                gates[b * row + h + k] += gates[b * row + k] * r->extra[b * h + k];
    } else {
        for (size_t b = 0; b < r->b; b++)
            for (size_t k = 0; k < h; k++)
                r->extra[b * h + k] = gates[b * row + k] * r->state[b * h + k];
        product(r, r->extra, r->b, h, d->w_hh, NULL, true, gates, row, h, 2 * h);
    }
    for (size_t b = 0; b < r->b; b++) {
        const float *const o = gates + b * row + h, *const z = o + h;
        float *const state = r->state + b * h;
        r->output(r->grid, gates + b * row + h, h);
        for (size_t k = 0; k < h; k++)
            state[k] = (1.0f - z[k]) * o[k] + z[k] * state[k];
    }
}

static void add_peephole(const float *peephole, const float *cell, float *gate, size_t n)
{
    for (size_t k = 0; peephole && k < n; k++)
        gate[k] += peephole[k] * cell[k];
}

static void lstm_step(const struct recurrent *r, const struct direction *d, float *gates)
{
    const size_t h = r->h, row = 4 * h;
    product(r, r->state, r->b, h, d->w_hh, NULL, true, gates, row, 0, row);
    for (size_t b = 0; b < r->b; b++) {
        float *const i = gates + b * row, *const f = i + h, *const o = f + h, *const z = o + h;
        float *const cell = r->cell_state + b * h, *const state = r->state + b * h;
        add_peephole(d->peephole, cell, i, h);
        add_peephole(d->peephole ? d->peephole + h : NULL, cell, f, h);
        r->recurrent(r->grid, i, 2 * h);
        r->cell(r->grid, z, h);
        for (size_t k = 0; k < h; k++) {
            const float v = f[k] * cell[k] + i[k] * z[k];
            cell[k] = !r->clips ? v : v > r->clip ? r->clip : v < -r->clip ? -r->clip : v;
        }
        add_peephole(d->peephole ? d->peephole + 2 * h : NULL, cell, o, h);
        r->recurrent(r->grid, o, h);
        memcpy(state, cell, h * sizeof *state);
        r->output(r->grid, state, h);
        for (size_t k = 0; k < h; k++)
            state[k] *= o[k];
    }
}

/* ---- sequences ---- */

/* Rows of H at a column of wider rows, out and in. */
static void put_rows(const struct recurrent *r, const float *from, float *to, size_t column)
{
    for (size_t b = 0; b < r->b; b++)
        memcpy(to + b * r->row + column, from + b * r->h, r->h * sizeof *to);
}

static void get_rows(const struct recurrent *r, const float *from, float *to, size_t column)
{
    for (size_t b = 0; b < r->b; b++)
        memcpy(to + b * r->h, from + b * r->row + column, r->h * sizeof *to);
}

static void run_direction(const struct recurrent *r, const struct direction *d)
{
    const size_t columns = r->n_gates * r->h;
    get_rows(r, r->initial_h, r->state, d->column);
    if (r->initial_c)
        get_rows(r, r->initial_c, r->cell_state, d->column);
    for (size_t t0 = 0; t0 < r->s; t0 += BLOCK_STEPS) { /* steps in the order they are taken */
        const size_t n = teg_min(BLOCK_STEPS, r->s - t0), from = d->backward ? r->s - t0 - n : t0;
        product(r, r->x + from * r->b * r->i, n * r->b, r->i, d->w_ih, d->input_bias, false, r->gates, columns, 0,
                columns);
        for (size_t t = t0; t < t0 + n && !teg_op_stopped(r->c); t++) {
            const size_t input = d->backward ? r->s - 1 - t : t;
            r->step(r, d, r->gates + (input - from) * r->b * columns);
            if (r->sequence)
                put_rows(r, r->state, r->y + (d->in_input_order ? input : t) * r->b * r->row, d->column);
        }
    }
    if (!r->sequence)
        put_rows(r, r->state, r->y, d->column);
    put_rows(r, r->state, r->last_h, d->column);
    if (r->last_c)
        put_rows(r, r->cell_state, r->last_c, d->column);
}

/* ---- reading ---- */

/* A float parameter of exactly this shape; absent (NULL) only where it is not required. */
static enum teg_status read_tensor(struct teg_eval_call *c, const char *name, bool required, uint32_t rank, size_t d0,
                                   size_t d1, const float **values)
{
    const struct teg_array *a;
    *values = NULL;
    if (!required && !teg_arg(c, name))
        return TEG_OK;
    TRY(teg_arg_form(c, name, TEG_FORM_F32, &a));
    if (a->rank != rank || a->dims[0] != d0 || (rank == 2 && a->dims[1] != d1)) {
        const size_t want[2] = {d0, d1};
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter %s: expected shape %s, found %s", name, teg_shape_text(rank, want).text,
                teg_shape_text(a->rank, a->dims).text);
    }
    *values = a->f32;
    return TEG_OK;
}

/* A state of more rows than there are sequences is read from its start: programs that were converted from packed
 * sequences have such states (of zeros), and Core ML runs them. */
static enum teg_status read_initial(const struct recurrent *r, const char *name, const float **values)
{
    const struct teg_array *a;
    TRY(teg_arg_form(r->c, name, TEG_FORM_F32, &a));
    const size_t want[2] = {r->b, r->row};
    if (a->rank != 2 || a->dims[0] < r->b || a->dims[1] != r->row)
        OP_FAIL(r->c, TEG_ERR_FORMAT, "parameter %s: expected shape %s, found %s", name, teg_shape_text(2, want).text,
                teg_shape_text(a->rank, a->dims).text);
    *values = a->f32;
    return TEG_OK;
}

static enum teg_status read_sizes(struct recurrent *r)
{
    struct teg_eval_call *const c = r->c;
    const struct teg_array *x, *w;
    TRY(teg_arg_form(c, "x", TEG_FORM_F32, &x));
    TRY(teg_arg_form(c, "weight_hh", TEG_FORM_F32, &w));
    if (x->rank != 3)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter x: expected shape [steps, batch, inputs], found %s",
                teg_shape_text(x->rank, x->dims).text);
    if (w->rank != 2 || w->dims[1] > SIZE_MAX / 8 || w->dims[0] != r->n_gates * w->dims[1])
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter weight_hh: expected shape [%zu times H, H], found %s", r->n_gates,
                teg_shape_text(w->rank, w->dims).text);
    r->x = x->f32;
    r->s = x->dims[0];
    r->b = x->dims[1];
    r->i = x->dims[2];
    r->h = w->dims[1];
    return teg_arg_bool(c, "output_sequence", false, &r->sequence);
}

static enum teg_status read_direction(struct recurrent *r, bool back, struct direction *d)
{
    struct teg_eval_call *const c = r->c;
    const size_t rows = r->n_gates * r->h;
    TRY(read_tensor(c, back ? "weight_ih_back" : "weight_ih", true, 2, rows, r->i, &d->w_ih));
    TRY(read_tensor(c, back ? "weight_hh_back" : "weight_hh", true, 2, rows, r->h, &d->w_hh));
    TRY(read_tensor(c, back ? "bias_back" : "bias", false, 1, rows, 0, &d->bias));
    d->input_bias = d->bias;
    return TEG_OK;
}

static enum teg_status read_way(struct recurrent *r, bool may_be_both, struct direction *d, size_t *n_directions)
{
    struct teg_eval_call *const c = r->c;
    struct teg_string way;
    TRY(teg_arg_string(c, "direction", "forward", &way));
    const bool both = may_be_both && teg_string_is(way, "bidirectional");
    const bool reverse = teg_string_is(way, "reverse");
    if (!both && !reverse && !teg_string_is(way, "forward"))
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter direction: expected forward%s or reverse, found \"%.*s\"",
                may_be_both ? ", bidirectional" : "", (int)teg_min(way.n_bytes, 60), way.bytes);
    memset(d, 0, 2 * sizeof *d);
    d[0].backward = reverse;
    d[1] = (struct direction){.backward = true, .in_input_order = true, .column = r->h};
    *n_directions = both ? 2 : 1;
    r->row = *n_directions * r->h;
    TRY(read_direction(r, false, &d[0]));
    return both ? read_direction(r, true, &d[1]) : TEG_OK;
}

/* Outputs and memory, then the directions one after another. */
static enum teg_status run_recurrent(struct recurrent *r, const struct direction *d, size_t n_directions)
{
    struct teg_eval_call *const c = r->c;
    const size_t dims[3] = {r->sequence ? r->s : 1, r->b, r->row};
    struct teg_array *y, *last_h, *last_c = NULL;
    TRY(read_initial(r, "initial_h", &r->initial_h));
    TRY(teg_output(c, 0, TEG_FORM_F32, 3, dims, &y));
    TRY(teg_output(c, 1, TEG_FORM_F32, 2, dims + 1, &last_h));
    if (r->initial_c)
        TRY(teg_output(c, 2, TEG_FORM_F32, 2, dims + 1, &last_c));
    r->y = y->f32;
    r->last_h = last_h->f32;
    r->last_c = last_c ? last_c->f32 : NULL;
    size_t state, gates, workers = teg_pool_threads(c->pool);
    if (!teg_mul(r->b, r->h, &state) || !teg_mul(state, r->n_gates * teg_min(BLOCK_STEPS, r->s ? r->s : 1), &gates))
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter x: expected a size that can be addressed, found an overflow");
    if (!state)
        return TEG_OK;
    r->scratch_floats = (teg_linear_scratch_floats(r->i > r->h ? r->i : r->h) + 15) / 16 * 16;
    TRY(teg_op_scratch(c, workers * r->scratch_floats, sizeof(float), (void **)&r->scratch));
    TRY(teg_op_scratch(c, gates, sizeof(float), (void **)&r->gates));
    TRY(teg_op_scratch(c, state, sizeof(float), (void **)&r->state));
    TRY(teg_op_scratch(c, state, sizeof(float), (void **)&r->cell_state));
    TRY(teg_op_scratch(c, state, sizeof(float), (void **)&r->extra));
    for (size_t i = 0; i < n_directions; i++)
        run_direction(r, &d[i]);
    return TEG_OK;
}

/* ---- the ops ---- */

static enum teg_status start(struct teg_eval_call *c, struct recurrent *r, size_t n_gates)
{
    *r = (struct recurrent){.c = c, .grid = teg_grid_kernels(c->kernels), .n_gates = n_gates};
    return read_sizes(r);
}

static enum teg_status op_rnn(struct teg_eval_call *c)
{
    struct recurrent r;
    struct direction d[2];
    size_t n;
    TRY(start(c, &r, 1));
    TRY(read_activation(c, "activation", "tanh", &r.output));
    TRY(read_way(&r, false, d, &n));
    r.step = rnn_step;
    return run_recurrent(&r, d, n);
}

/* Without reset_after both biases are added at once; with it, the output gate keeps `bias` for the state's share, which
 * is scaled by the reset gate. */
static enum teg_status gru_biases(struct recurrent *r, struct direction *d)
{
    const float *input;
    float *sum;
    const size_t n = 3 * r->h;
    TRY(read_tensor(r->c, "input_bias", false, 1, n, 0, &input));
    if (!input && !(r->reset_after && d->bias))
        return TEG_OK;
    TRY(teg_op_scratch(r->c, n ? n : 1, sizeof *sum, (void **)&sum));
    for (size_t k = 0; k < n; k++) {
        const bool apart = r->reset_after && k >= r->h && k < 2 * r->h;
        sum[k] = (input ? input[k] : 0.0f) + (d->bias && !apart ? d->bias[k] : 0.0f);
    }
    d->input_bias = sum;
    return TEG_OK;
}

static enum teg_status op_gru(struct teg_eval_call *c)
{
    struct recurrent r;
    struct direction d[2];
    size_t n;
    TRY(start(c, &r, 3));
    TRY(read_activation(c, "recurrent_activation", "sigmoid", &r.recurrent));
    TRY(read_activation(c, "activation", "tanh", &r.output));
    TRY(teg_arg_bool(c, "reset_after", false, &r.reset_after));
    TRY(read_way(&r, false, d, &n));
    TRY(gru_biases(&r, &d[0]));
    r.step = gru_step;
    return run_recurrent(&r, d, n);
}

static enum teg_status op_lstm(struct teg_eval_call *c)
{
    struct recurrent r;
    struct direction d[2];
    size_t n;
    TRY(start(c, &r, 4));
    TRY(read_activation(c, "recurrent_activation", "sigmoid", &r.recurrent));
    TRY(read_activation(c, "cell_activation", "tanh", &r.cell));
    TRY(read_activation(c, "activation", "tanh", &r.output));
    TRY(teg_arg_float(c, "clip", 0.0f, &r.clip));
    r.clips = teg_arg(c, "clip") != NULL;
    TRY(read_way(&r, true, d, &n));
    TRY(read_tensor(c, "peephole", false, 1, 3 * r.h, 0, &d[0].peephole));
    if (n == 2)
        TRY(read_tensor(c, "peephole_back", false, 1, 3 * r.h, 0, &d[1].peephole));
    TRY(read_initial(&r, "initial_c", &r.initial_c));
    r.step = lstm_step;
    return run_recurrent(&r, d, n);
}

const struct teg_eval_row teg_eval_rows_recurrent[] = {
    {"rnn", 6, op_rnn},
    {"gru", 6, op_gru},
    {"lstm", 6, op_lstm},
    {NULL, 0, NULL},
};
