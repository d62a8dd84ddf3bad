/* calibrate.c: how strongly a text uses the columns of each weight.
 *
 * The error that quantizing a weight brings to its product is, for each row, the sum of (w - w')·x over the columns;
 * its mean square is Σ (w - w')² · mean(x²) where columns are taken as independent. So mean(x²) of each column is what
 * an encoder should weigh errors by, and it is one number a column: what is kept here. Not taken: products of two
 * columns (as GPTQ has them): K² numbers a weight and a solve for each, for a gain that k-means, which sees single
 * values, cannot use.
 *
 * Sums are doubles, in the order of the tokens: threads of the model change nothing. */
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "model.h"
#include "run/session.h"

enum { DEFAULT_WINDOW = 512, MOST_WINDOW = 65536 };

struct columns {
    const char *name; /* NULL: this op is no product */
    size_t n;
    double *sums;
    float *means;
    uint64_t n_rows;
};

struct teg_calibration {
    struct teg_arena arena;
    struct columns *of_op; /* [n_ops] */
    uint32_t n_ops;
};

void teg_calibrate_options_default(struct teg_calibrate_options *options)
{
    *options = (struct teg_calibrate_options){.size = sizeof *options, .window_tokens = DEFAULT_WINDOW};
}

static void add_rows(void *ctx, uint32_t op, size_t n_rows, size_t k, const float *x, size_t stride)
{
    const struct teg_calibration *const c = ctx;
    struct columns *const of = &c->of_op[op];
    if (op >= c->n_ops || !of->name || of->n != k)
        return;
    for (size_t r = 0; r < n_rows; r++)
        for (size_t i = 0; i < k; i++)
            of->sums[i] += (double)x[r * stride + i] * (double)x[r * stride + i];
    of->n_rows += n_rows;
}

static enum teg_status prepare(struct teg_calibration *c, const struct teg_graph *g, struct teg_error *err)
{
    c->of_op = teg_arena_array(&c->arena, g->n_ops, sizeof *c->of_op);
    if (!c->of_op)
        return teg_base_fail_memory(err, "calibration", g->n_ops * sizeof *c->of_op);
    c->n_ops = g->n_ops;
    for (uint32_t i = 0; i < g->n_ops; i++) {
        const struct teg_op *const op = &g->ops[i];
        if (op->kind != TEG_OP_LINEAR && op->kind != TEG_OP_LM_HEAD)
            continue;
        const struct teg_value *const w = &g->values[op->inputs[1]];
        struct columns *const of = &c->of_op[i];
        of->n = teg_value_width(w);
        of->sums = teg_arena_array(&c->arena, of->n, sizeof *of->sums);
        of->means = teg_arena_array(&c->arena, of->n, sizeof *of->means);
        of->name = w->name ? teg_arena_string(&c->arena, w->name, strlen(w->name)) : NULL;
        if (!of->sums || !of->means || (w->name && !of->name))
            return teg_base_fail_memory(err, "calibration", of->n * sizeof *of->sums);
    }
    return TEG_OK;
}

/* The head is computed for rows that somebody wants. */
static bool ignore_logits(void *ctx, size_t first_row, size_t n_rows, const float *logits)
{
    (void)ctx, (void)first_row, (void)n_rows, (void)logits;
    return true;
}

static enum teg_status run(const struct teg_model *model, const int32_t *ids, size_t n,
                           const struct teg_calibrate_options *o, struct teg_calibration *c, struct teg_error *err)
{
    struct teg_session_options options;
    struct teg_prefill_options prefill;
    struct teg_session *session = NULL;
    const size_t trained = teg_model_info(model)->context_tokens;
    size_t window = o->window_tokens ? o->window_tokens : DEFAULT_WINDOW;
    window = trained && window > trained ? trained : window;
    teg_session_options_default(&options);
    options.n_threads = o->n_threads;
    options.context_tokens = (uint32_t)window;
    TRY(teg_session_new(model, &options, &session, err));
    teg_run_session_observe(session, add_rows, c);
    teg_prefill_options_default(&prefill);
    prefill.on_logits = ignore_logits;
    enum teg_status status = TEG_OK;
    for (size_t i = 0; status == TEG_OK && i < n; i += window) {
        const size_t count = n - i < window ? n - i : window;
        status = teg_session_rewind(session, 0, err);
        if (status == TEG_OK)
            status = teg_session_prefill(session, ids + i, count, &prefill, err);
        if (status == TEG_OK && o->progress && !o->progress(o->progress_ctx, i + count, n))
            status = teg_base_fail(err, TEG_ERR_INTERRUPTED, 0,
                                   "interrupted: calibration: expected %zu tokens, found time for %zu", n, i + count);
    }
    teg_session_free(session);
    return status;
}

static enum teg_status calibrate(const struct teg_model *model, const int32_t *ids, size_t n,
                                 const struct teg_calibrate_options *o, struct teg_calibration *c,
                                 struct teg_error *err)
{
    const struct teg_graph *const g = teg_model_graph(model);
    if (!g)
        FAIL(err, TEG_ERR_UNSUPPORTED,
             "cannot calibrate: model: expected one that runs as a graph in exact mode, found mode '%s'; open it with "
             "TEG_MODE_EXACT (a package must be recognised as a language model)",
             teg_model_info(model)->mode);
    if (!n)
        FAIL(err, TEG_ERR_ARGUMENT, "cannot calibrate: tokens: expected at least one, found none; give a longer text");
    if (o->window_tokens > MOST_WINDOW)
        FAIL(err, TEG_ERR_ARGUMENT, "cannot calibrate: window: expected at most %d tokens, found %u; use 512",
             MOST_WINDOW, o->window_tokens);
    TRY(prepare(c, g, err));
    TRY(run(model, ids, n, o, c, err));
    for (uint32_t i = 0; i < c->n_ops; i++)
        for (size_t k = 0; c->of_op[i].name && k < c->of_op[i].n; k++)
            c->of_op[i].means[k] = c->of_op[i].n_rows ? (float)(c->of_op[i].sums[k] / (double)c->of_op[i].n_rows) : 0;
    return TEG_OK;
}

enum teg_status teg_calibrate(const struct teg_model *model, const int32_t *ids, size_t n_ids,
                              const struct teg_calibrate_options *options, struct teg_calibration **calibration,
                              struct teg_error *err)
{
    struct teg_calibrate_options o;
    teg_calibrate_options_default(&o);
    TRY(teg_options_read(&o, sizeof o, options, err));
    struct teg_arena arena;
    teg_arena_init(&arena, NULL);
    struct teg_calibration *const c = teg_arena_alloc(&arena, sizeof *c);
    if (!c)
        return teg_base_fail_memory(err, "calibration", sizeof *c);
    c->arena = arena;
    const enum teg_status status = calibrate(model, ids, n_ids, &o, c, err);
    if (status == TEG_OK)
        *calibration = c;
    else
        teg_calibration_free(c);
    return status;
}

const float *teg_calibration_columns(const struct teg_calibration *calibration, const char *name, size_t *n_columns)
{
    for (uint32_t i = 0; calibration && i < calibration->n_ops; i++) {
        const struct columns *const of = &calibration->of_op[i];
        if (of->name && of->n_rows && strcmp(of->name, name) == 0) {
            *n_columns = of->n;
            return of->means;
        }
    }
    *n_columns = 0;
    return NULL;
}

void teg_calibration_free(struct teg_calibration *calibration)
{
    if (!calibration)
        return;
    struct teg_arena arena = calibration->arena; /* it lies in its own arena */
    teg_arena_free(&arena);
}
