/* run/executor.c: one stage after the other, each cut into slices for the pool.
 *
 * How a stage is cut depends on T and the number of threads, and may: kernels promise that an output never depends on
 * the slice it was computed in. Linear steps are cut by output columns (and rows), attention by KV head and block of
 * tokens (cut.c), row steps by tokens. A stage too small to share runs on the calling thread.
 *
 * A chunk with many rows for each thread is cut into lanes instead: each thread takes its rows from one attention to
 * the next by itself. What it wrote is still in its own cache then, and nobody waits: 4 to 8 % of the prefill of models
 * of 576 and 640 columns. A lane is a chunk of its own, with its own part of the arena, in all but the keys that
 * attention sees. */
#include "run/executor.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "dtype/round.h"
#include "run/cut.h"

#define KNOWN_CUTS 8      /* steps of a stage whose cut is looked up; more are rare */
#define ROWS_PER_SLICE 8  /* row steps: fewer are not worth a wake-up */
#define ROWS_AT_A_TIME 16 /* row steps: what one step wrote is still near for the next */

/* Address of a row of an operand. */
static float *row_of(const struct teg_pass *p, const struct teg_operand *x, size_t row)
{
    if (x->logits)
        return p->logits + (row - p->row0) * x->stride + x->column;
    return p->activations + x->offset * p->max_tokens + row * x->stride + x->column;
}

static float *table_row(const struct teg_pass *p, size_t offset, uint32_t n_pairs, size_t row)
{
    return p->activations + offset * p->max_tokens + row * n_pairs;
}

/* ---- row steps: rows row … row + n - 1 ---- */

static void run_embedding(const struct teg_pass *p, const struct teg_step *s, size_t row, size_t n)
{
    for (size_t t = row; t < row + n; t++) {
        float *const x = row_of(p, &s->out, t);
        const size_t id = s->kind == TEG_STEP_POSITION ? s->first_row + p->first_position + t : (size_t)p->ids[t];
        const char *const src = (const char *)s->weight + id * s->weight_row_bytes;
        if (s->encoding)
            teg_encoding_decode(s->encoding, id, 0, s->out.width, x);
        else
            p->plan->kernels.decode_row(s->weight_dtype, src, x, s->out.width);
        if (s->scale != 1)
            p->plan->kernels.scale_f32(x, s->out.stride, s->scale, 1, s->out.width);
    }
}

/* Each row or head with an eps of its own. */
static void run_norm_by_max(const struct teg_pass *p, const struct teg_step *s, size_t row, size_t n)
{
    const size_t heads = s->out.width / s->head_width;
    for (size_t i = 0; i < n * heads; i++) {
        const float *const x = row_of(p, &s->a, row + i / heads) + i % heads * s->head_width;
        float *const y = row_of(p, &s->out, row + i / heads) + i % heads * s->head_width;
        float most = s->least_max;
        for (size_t k = 0; k < s->head_width; k++)
            most = fmaxf(most, fabsf(x[k]));
        p->plan->kernels.rms_norm_f32(x, s->head_width, s->weight, s->weight_offset, s->eps * most * most, y,
                                      s->head_width, 1, s->head_width);
    }
}

static void run_rms_norm(const struct teg_pass *p, const struct teg_step *s, size_t row, size_t n)
{
    const size_t heads = s->out.width / s->head_width; /* 1 for a norm over the whole row */
    if (s->by_max) {
        run_norm_by_max(p, s, row, n);
        return;
    }
    if (heads == 1) {
        p->plan->kernels.rms_norm_f32(row_of(p, &s->a, row), s->a.stride, s->weight, s->weight_offset, s->eps,
                                      row_of(p, &s->out, row), s->out.stride, n, s->head_width);
        return;
    }
    for (size_t t = row; t < row + n; t++)
        p->plan->kernels.rms_norm_f32(row_of(p, &s->a, t), s->head_width, s->weight, s->weight_offset, s->eps,
                                      row_of(p, &s->out, t), s->head_width, heads, s->head_width);
}

static void run_layer_norm(const struct teg_pass *p, const struct teg_step *s, size_t row, size_t n)
{
    const size_t heads = s->out.width / s->head_width;
    for (size_t t = row; t < row + n; t++)
        p->plan->kernels.layer_norm_f32(row_of(p, &s->a, t), s->head_width, s->weight, s->bias, s->eps,
                                        row_of(p, &s->out, t), s->head_width, heads, s->head_width);
}

static void run_rope(const struct teg_pass *p, const struct teg_step *s, size_t row, size_t n)
{
    const struct teg_rope_table *const table = &p->plan->rope_tables[s->rope_table];
    const float *const cosines = table_row(p, table->cos_offset, table->n_pairs, row);
    const float *const sines = table_row(p, table->sin_offset, table->n_pairs, row);
    const size_t n_heads = s->out.width / s->head_width;
    float *const x = row_of(p, &s->out, row);
    if (s->interleaved)
        p->plan->kernels.rope_interleaved_f32(x, s->out.stride, cosines, sines, n, n_heads, s->head_width,
                                              table->n_pairs);
    else
        p->plan->kernels.rope_half_f32(x, s->out.stride, cosines, sines, n, n_heads, s->head_width, table->n_pairs);
}

static void run_quantize(const struct teg_pass *p, const struct teg_step *s, size_t row, size_t n)
{
    s->gemm->quantize(row_of(p, &s->a, row), s->a.stride, row_of(p, &s->out, row), s->out.stride * sizeof(float),
                      s->terms, n, s->k);
}

static size_t page_offset(const struct teg_pass *p, const struct teg_step *s, size_t head)
{
    return p->plan->kv_layers[s->layer].offset_bytes[p->kv_type] + head * teg_kv_page_bytes(p->kv_type, s->head_width);
}

static void run_kv_append(const struct teg_pass *p, const struct teg_step *s, size_t row, size_t n)
{
    for (size_t head = 0; head < s->n_kv_heads; head++) {
        const struct teg_kv_append_args args = {.k = row_of(p, &s->a, row) + head * s->head_width,
                                                .v = row_of(p, &s->b, row) + head * s->head_width,
                                                .k_stride = s->a.stride,
                                                .v_stride = s->b.stride,
                                                .pages = p->blocks,
                                                .page_offset_bytes = page_offset(p, s, head),
                                                .first_position = p->first_position + row,
                                                .n_tokens = n,
                                                .head_width = s->head_width};
        p->plan->attend.of[p->kv_type].append(&args);
    }
}

typedef void (*glu_fn)(const float *gate, size_t gate_stride, const float *up, size_t up_stride, float *y,
                       size_t y_stride, size_t n_rows, size_t n);
static glu_fn glu_kernel(const struct teg_pass *p, const struct teg_step *s)
{
    const struct teg_kernels *const k = &p->plan->kernels;
    return s->activation == TEG_ACT_SILU        ? k->silu_mul_f32
           : s->activation == TEG_ACT_GELU_TANH ? k->gelu_mul_f32
           : s->activation == TEG_ACT_RELU      ? k->relu_mul_f32
                                                : k->gelu_erf_mul_f32;
}

/* Rounds rows of a step's result to fp16; a finite value that becomes infinite marks the step. */
static void round_rows(const struct teg_pass *p, const struct teg_step *s, size_t row, size_t n)
{
    bool overflowed = false;
    for (size_t t = row; s->out.used && t < row + n; t++)
        overflowed = teg_round_f16(row_of(p, &s->out, t), row_of(p, &s->out, t), s->out.width) || overflowed;
    const unsigned mark = (unsigned)(s - p->plan->steps) + 1;
    unsigned least = atomic_load(p->overflow);
    while (overflowed && (least == 0 || mark < least) && !atomic_compare_exchange_weak(p->overflow, &least, mark))
        ;
}

static void run_rows(const struct teg_pass *p, const struct teg_step *s, size_t row, size_t n)
{
    const struct teg_kernels *const k = &p->plan->kernels;
    float *const y = s->out.used ? row_of(p, &s->out, row) : NULL;
    switch (s->kind) {
    case TEG_STEP_EMBEDDING:
    case TEG_STEP_POSITION:
        run_embedding(p, s, row, n);
        break;
    case TEG_STEP_RMS_NORM:
        run_rms_norm(p, s, row, n);
        break;
    case TEG_STEP_LAYER_NORM:
        run_layer_norm(p, s, row, n);
        break;
    case TEG_STEP_QUANTIZE:
        run_quantize(p, s, row, n);
        break;
    case TEG_STEP_ROPE:
        run_rope(p, s, row, n);
        break;
    case TEG_STEP_KV_APPEND:
        run_kv_append(p, s, row, n);
        break;
    case TEG_STEP_GLU:
        glu_kernel(p, s)(row_of(p, &s->a, row), s->a.stride, row_of(p, &s->b, row), s->b.stride, y, s->out.stride, n,
                         s->out.width);
        break;
    case TEG_STEP_ACTIVATION:
        glu_kernel(p, s)(y, s->out.stride, s->weight, 0, y, s->out.stride, n, s->out.width);
        break;
    case TEG_STEP_ADD:
        k->add_f32(row_of(p, &s->a, row), s->a.stride, row_of(p, &s->b, row), s->b.stride, y, s->out.stride, n,
                   s->out.width);
        break;
    case TEG_STEP_SCALE:
        k->scale_f32(y, s->out.stride, s->scale, n, s->out.width);
        break;
    case TEG_STEP_SOFTCAP:
        k->softcap_f32(y, s->out.stride, s->scale, n, s->out.width);
        break;
    case TEG_STEP_COPY:
        for (size_t t = row; t < row + n; t++)
            memcpy(row_of(p, &s->out, t), row_of(p, &s->a, t), s->out.width * sizeof *y);
        break;
    default:
        break;
    }
    if (p->overflow)
        round_rows(p, s, row, n);
}

/* ---- steps with a cut of their own ---- */

struct stage_job {
    const struct teg_pass *pass;
    const struct teg_stage *stage;
    size_t rows_per_slice;
    size_t lead;                            /* row stages: slices start this many rows before row0 */
    struct teg_linear_cut cuts[KNOWN_CUTS]; /* of the stage's first linear steps: slices are many, cuts few */
};

static struct teg_linear_cut cut_of(const struct teg_pass *p, const struct teg_step *s)
{
    return teg_cut_linear(s->out.width, p->n_rows, teg_pool_threads(p->pool));
}

/* Rows and columns of one slice. */
struct range {
    size_t row, n_rows, n0, n1;
};

static struct range range_of(const struct teg_pass *p, const struct teg_step *s, const struct teg_linear_cut *cut,
                             size_t slice)
{
    const size_t first = slice / cut->n_column_slices * cut->rows, n0 = slice % cut->n_column_slices * cut->columns;
    return (struct range){p->row0 + first, teg_min(cut->rows, p->n_rows - first), n0,
                          teg_min(n0 + cut->columns, s->out.width)};
}

static void run_gemm(const struct teg_pass *p, const struct teg_step *s, const struct range *r, float *scratch)
{
    struct teg_qgemm_args args = {.x = row_of(p, &s->a, r->row),
                                  .x_stride_bytes = s->a.stride * sizeof(float),
                                  .terms = s->terms,
                                  .w = s->weight,
                                  .w_dtype = s->weight_dtype,
                                  .w_form = s->encoding ? &s->form : NULL,
                                  .bias = s->bias,
                                  .residual = s->residual.used ? row_of(p, &s->residual, r->row) : NULL,
                                  .y = row_of(p, &s->out, r->row),
                                  .y_stride = s->out.stride,
                                  .n_tokens = r->n_rows,
                                  .k = s->k,
                                  .n0 = r->n0,
                                  .n1 = r->n1,
                                  .scratch = scratch};
    if (s->glu) {
        args.glu = glu_kernel(p, s);
        args.gate = s[-1].weight;
        args.gate_dtype = s[-1].weight_dtype;
        args.gate_form = s[-1].encoding ? &s[-1].form : NULL;
        args.y_groups = args.y;
        args.y_groups_stride_bytes = args.y_stride * sizeof(float);
    }
    s->gemm->run(&args);
}

static void run_linear(const struct teg_pass *p, const struct teg_step *s, const struct range *r, float *scratch)
{
    const struct teg_linear_args args = {.x = row_of(p, &s->a, r->row),
                                         .x_stride = s->a.stride,
                                         .w = s->weight,
                                         .w_dtype = s->weight_dtype,
                                         .w_row_bytes = s->weight_row_bytes,
                                         .w_encoding = s->encoding,
                                         .bias = s->bias,
                                         .residual = s->residual.used ? row_of(p, &s->residual, r->row) : NULL,
                                         .y = row_of(p, &s->out, r->row),
                                         .y_stride = s->out.stride,
                                         .n_tokens = r->n_rows,
                                         .k = s->k,
                                         .n0 = r->n0,
                                         .n1 = r->n1,
                                         .scratch = scratch};
    p->plan->kernels.linear_f32(&args);
}

/* ---- attention ---- */

/* The first and the last range of keys that the rows see. */
static size_t first_range(const struct teg_pass *p, const struct teg_step *s)
{
    const size_t position = p->first_position + p->row0;
    return s->window && position >= s->window ? (position + 1 - s->window) / TEG_RANGE_TOKENS : 0;
}

static size_t last_range(const struct teg_pass *p)
{
    return (p->first_position + p->row0 + p->n_rows - 1) / TEG_RANGE_TOKENS;
}

static struct teg_attention_cut cut_attention(const struct teg_pass *p, const struct teg_step *s)
{
    const size_t n_ranges = p->plan->attend.of[p->kv_type].join ? last_range(p) - first_range(p, s) + 1 : 1;
    return teg_cut_attention(s->n_heads, s->n_kv_heads, p->n_rows, n_ranges, teg_pool_threads(p->pool));
}

/* What the kernel needs of one unit of the cut. */
static struct teg_attention_args attention_args(const struct teg_pass *p, const struct teg_step *s,
                                                const struct teg_attention_cut *c, size_t unit, float *scratch)
{
    /* The last tokens see the most keys: they go first. */
    const size_t block = c->n_blocks - 1 - unit / (s->n_kv_heads * c->n_parts);
    const size_t part = unit % c->n_parts, head = unit / c->n_parts % s->n_kv_heads;
    const size_t row = p->row0 + block * c->tokens, member = part * c->group_part;
    const size_t column = (head * c->group + member) * s->head_width, state = teg_attend_state_floats(s->head_width);
    return (struct teg_attention_args){
        .q = row_of(p, &s->a, row) + column,
        .q_stride = s->a.stride,
        .out = row_of(p, &s->out, row) + column,
        .out_stride = s->out.stride,
        .pages = (const void *const *)p->blocks,
        .page_offset_bytes = page_offset(p, s, head),
        .first_position = p->first_position + row,
        .n_tokens = teg_min(c->tokens, p->row0 + p->n_rows - row),
        .head_width = s->head_width,
        .group = teg_min(c->group_part, c->group - member),
        .window = s->window,
        .scale = s->scale,
        .softcap = s->softcap,
        .sinks = s->weight ? (const float *)s->weight + head * c->group + member : NULL,
        .scratch = scratch,
        .state_stride = s->n_heads * state,
        .state = c->n_ranges == 1
                     ? NULL
                     : p->states + (row - p->row0) * s->n_heads * state + (head * c->group + member) * state,
    };
}

static void run_attention(const struct teg_pass *p, const struct teg_step *s, size_t unit, float *scratch)
{
    const struct teg_attention_cut c = cut_attention(p, s);
    const struct teg_attention_args args = attention_args(p, s, &c, unit, scratch);
    p->plan->attend.of[p->kv_type].run(&args);
}

/* Ranges range … range + n_ranges - 1 of a step, by themselves and then together. States of all rows lie one set after
 * the other: what the ranges before came to, then a set for each range. */
struct range_job {
    const struct teg_pass *pass;
    const struct teg_step *step;
    struct teg_attention_cut cut;
    size_t range, n_ranges;
    size_t set_floats;
};

static void run_range_slice(void *ctx, size_t slice, size_t worker)
{
    const struct range_job *const job = ctx;
    const struct teg_pass *const p = job->pass;
    const size_t range = slice % job->n_ranges;
    struct teg_attention_args args =
        attention_args(p, job->step, &job->cut, slice / job->n_ranges, p->scratch + worker * p->scratch_stride);
    args.state += (1 + range) * job->set_floats;
    args.range = job->range + range;
    p->plan->attend.of[p->kv_type].run(&args);
}

static void join_slice(void *ctx, size_t slice, size_t worker)
{
    const struct range_job *const job = ctx;
    const struct teg_pass *const p = job->pass;
    struct teg_attention_args args =
        attention_args(p, job->step, &job->cut, slice, p->scratch + worker * p->scratch_stride);
    args.range = job->range;
    p->plan->attend.of[p->kv_type].join(&args, args.state + job->set_floats, job->n_ranges, job->set_floats);
}

static void run_ranges(const struct teg_pass *p, const struct teg_step *s, const struct teg_attention_cut *c)
{
    const size_t last = last_range(p);
    struct range_job job = {
        .pass = p, .step = s, .cut = *c, .set_floats = p->n_rows * s->n_heads * teg_attend_state_floats(s->head_width)};
    for (job.range = first_range(p, s); job.range <= last; job.range += job.n_ranges) {
        job.n_ranges = teg_min(c->n_ranges, last + 1 - job.range);
        teg_pool_run(p->pool, run_range_slice, &job, c->n_units * job.n_ranges);
        teg_pool_run(p->pool, join_slice, &job, c->n_units);
    }
}

/* ---- slices ---- */

static struct teg_linear_cut known_cut(const struct stage_job *job, uint32_t i)
{
    return i < KNOWN_CUTS ? job->cuts[i] : cut_of(job->pass, &job->pass->plan->steps[job->stage->first_step + i]);
}

static size_t count_slices(const struct stage_job *job, uint32_t i)
{
    const struct teg_step *const s = &job->pass->plan->steps[job->stage->first_step + i];
    if (s->is_gate)
        return 0;
    if (s->kind == TEG_STEP_LINEAR)
        return known_cut(job, i).n_slices;
    return cut_attention(job->pass, s).n_units;
}

/* Cuts each step of the stage and counts the slices. */
static size_t cut_stage(struct stage_job *job)
{
    const struct teg_pass *const p = job->pass;
    size_t n_slices = 0;
    for (uint32_t i = 0; i < job->stage->n_steps; i++) {
        const struct teg_step *const s = &p->plan->steps[job->stage->first_step + i];
        if (s->kind == TEG_STEP_LINEAR && i < KNOWN_CUTS)
            job->cuts[i] = cut_of(p, s);
        n_slices += count_slices(job, i);
    }
    return n_slices;
}

/* ---- stages ---- */

static void run_row_stage(const struct teg_pass *p, const struct teg_stage *stage, size_t begin, size_t end)
{
    for (size_t row = begin; row < end; row += ROWS_AT_A_TIME)
        for (uint32_t i = 0; i < stage->n_steps; i++)
            run_rows(p, &p->plan->steps[stage->first_step + i], row, teg_min(ROWS_AT_A_TIME, end - row));
}

static void run_row_slice(void *ctx, size_t slice, size_t worker)
{
    (void)worker;
    const struct stage_job *const job = ctx;
    const struct teg_pass *const p = job->pass;
    const size_t first = slice * job->rows_per_slice, lead = job->lead; /* rows of the first slice that are not there */
    const size_t begin = p->row0 + (first > lead ? first - lead : 0);
    run_row_stage(p, job->stage, begin, p->row0 + teg_min(first + job->rows_per_slice - lead, p->n_rows));
}

static void round_row_slice(void *ctx, size_t slice, size_t worker)
{
    (void)worker;
    const struct stage_job *const job = ctx;
    const struct teg_pass *const p = job->pass;
    const size_t row = p->row0 + slice * job->rows_per_slice;
    const size_t n = teg_min(job->rows_per_slice, p->row0 + p->n_rows - row);
    for (uint32_t i = 0; i < job->stage->n_steps; i++)
        round_rows(p, &p->plan->steps[job->stage->first_step + i], row, n);
}

static void run_free_slice(void *ctx, size_t slice, size_t worker)
{
    const struct stage_job *const job = ctx;
    const struct teg_pass *const p = job->pass;
    float *const scratch = p->scratch + worker * p->scratch_stride;
    for (uint32_t i = 0; i < job->stage->n_steps; i++) {
        const struct teg_step *const s = &p->plan->steps[job->stage->first_step + i];
        const size_t n = count_slices(job, i);
        if (slice >= n) {
            slice -= n;
            continue;
        }
        if (s->kind != TEG_STEP_LINEAR) {
            run_attention(p, s, slice, scratch);
            return;
        }
        const struct teg_linear_cut cut = known_cut(job, i);
        const struct range range = range_of(p, s, &cut, slice);
        (s->gemm ? run_gemm : run_linear)(p, s, &range, scratch);
        return;
    }
}

static size_t rows_per_slice(const struct teg_pass *p, size_t n_rows)
{
    const size_t n_threads = teg_pool_threads(p->pool);
    return teg_max(ROWS_PER_SLICE, (n_rows + 4 * n_threads - 1) / (4 * n_threads));
}

/* Where tokens of a page must be appended in order, a page is one slice's. */
static void slice_by_pages(struct stage_job *job)
{
    const struct teg_pass *const p = job->pass;
    bool appends = false;
    for (uint32_t i = 0; i < job->stage->n_steps; i++)
        appends = appends || p->plan->steps[job->stage->first_step + i].kind == TEG_STEP_KV_APPEND;
    if (!job->stage->rows || !appends || !teg_kv_ordered(p->kv_type))
        return;
    job->rows_per_slice = (job->rows_per_slice + TEG_TILE_TOKENS - 1) / TEG_TILE_TOKENS * TEG_TILE_TOKENS;
    job->lead = (p->first_position + p->row0) % TEG_TILE_TOKENS;
}

static void report_values(const struct teg_pass *p, const struct teg_stage *stage)
{
    for (uint32_t i = 0; i < stage->n_steps; i++) {
        const struct teg_step *const s = &p->plan->steps[stage->first_step + i];
        for (size_t row = 0; s->name && row < p->n_rows; row++)
            p->on_value(p->on_value_ctx, s->name, p->chunk_row + p->row0 + row, 1, s->out.width,
                        row_of(p, &s->out, p->row0 + row));
    }
}

/* After the stage: nothing has taken the place of its inputs yet. */
static void report_products(const struct teg_pass *p, const struct teg_stage *stage)
{
    for (uint32_t i = 0; i < stage->n_steps; i++) {
        const struct teg_step *const s = &p->plan->steps[stage->first_step + i];
        if (s->kind == TEG_STEP_LINEAR && !s->gemm)
            p->on_product(p->on_product_ctx, s->op, p->n_rows, s->k, row_of(p, &s->a, p->row0), s->a.stride);
    }
}

static void run_stage(struct stage_job *job)
{
    const struct teg_pass *const p = job->pass;
    const struct teg_step *const s = &p->plan->steps[job->stage->first_step];
    if (s->kind == TEG_STEP_ATTENTION) { /* alone in its stage */
        const struct teg_attention_cut c = cut_attention(p, s);
        if (c.n_ranges > 1) {
            run_ranges(p, s, &c);
            return;
        }
    }
    slice_by_pages(job);
    const size_t n_slices =
        job->stage->rows ? (job->lead + p->n_rows + job->rows_per_slice - 1) / job->rows_per_slice : cut_stage(job);
    teg_pool_run(p->pool, job->stage->rows ? run_row_slice : run_free_slice, job, n_slices);
}

static bool run_stages(const struct teg_pass *p, uint32_t first, uint32_t last)
{
    for (uint32_t i = first; i < last; i++) {
        const struct teg_stage *const stage = &p->plan->stages[i];
        struct stage_job job = {.pass = p, .stage = stage, .rows_per_slice = rows_per_slice(p, p->n_rows)};
        if (atomic_load_explicit(p->stop, memory_order_relaxed))
            return false;
        run_stage(&job);
        if (p->overflow && !stage->rows)
            teg_pool_run(p->pool, round_row_slice, &job, (p->n_rows + job.rows_per_slice - 1) / job.rows_per_slice);
        if (p->on_value)
            report_values(p, stage);
        if (p->on_product)
            report_products(p, stage);
    }
    return true;
}

/* cos and sin of a position, computed. Double precision: at position 100,000 a float angle is off by 0.004. */
static void rope_row(const struct teg_pass *p, const struct teg_rope_table *table, size_t position, float *cosines,
                     float *sines)
{
    const float *const f = table->long_frequencies && p->long_context ? table->long_frequencies : table->frequencies;
    for (uint32_t k = 0; k < table->n_pairs; k++) {
        const double angle = (double)position * (double)f[k];
        cosines[k] = (float)(cos(angle) * (double)table->magnitude);
        sines[k] = (float)(sin(angle) * (double)table->magnitude);
    }
}

/* The same from the model's own tables; a session has no positions beyond them (plan->max_positions). */
static void rope_table_row(const struct teg_pass *p, const struct teg_rope_table *table, size_t position,
                           float *cosines, float *sines)
{
    const size_t at = position * table->row_bytes;
    p->plan->kernels.decode_row(table->row_dtype, (const char *)table->cos + at, cosines, table->n_pairs);
    p->plan->kernels.decode_row(table->row_dtype, (const char *)table->sin + at, sines, table->n_pairs);
}

/* cos and sin of the positions of rows begin … end - 1. */
static void make_rope_tables(const struct teg_pass *p, size_t begin, size_t end)
{
    for (uint32_t i = 0; i < p->plan->n_rope_tables; i++) {
        const struct teg_rope_table *const table = &p->plan->rope_tables[i];
        for (size_t t = begin; t < end; t++)
            (table->cos ? rope_table_row : rope_row)(p, table, p->first_position + t,
                                                     table_row(p, table->cos_offset, table->n_pairs, t),
                                                     table_row(p, table->sin_offset, table->n_pairs, t));
    }
}

static void run_rope_tables(void *ctx, size_t slice, size_t worker)
{
    (void)worker;
    const struct stage_job *const job = ctx;
    const size_t begin = slice * job->rows_per_slice;
    make_rope_tables(job->pass, begin, teg_min(begin + job->rows_per_slice, job->pass->n_tokens));
}

/* ---- lanes ---- */

static size_t count_lanes(const struct teg_pass *p)
{
    return (p->n_tokens + p->lane_rows - 1) / p->lane_rows;
}

static size_t choose_lane_rows(const struct teg_pass *p)
{
    if (teg_pool_is_uneven(p->pool) || p->overflow || p->on_value || p->on_product)
        return p->n_tokens;
    const size_t rows = teg_cut_lanes(p->plan->steps[0].out.width, p->n_tokens, teg_pool_threads(p->pool));
    const bool in_pages = p->first_position % TEG_TILE_TOKENS == 0 && rows % TEG_TILE_TOKENS == 0;
    return !teg_kv_ordered(p->kv_type) || in_pages ? rows : p->n_tokens;
}

/* Its rows as a pass of their own; the only lane is the chunk. */
static struct teg_pass lane_of(const struct teg_pass *p, size_t i)
{
    const size_t first = i * p->lane_rows;
    struct teg_pass lane = *p;
    lane.activations += first * p->plan->row_floats;
    lane.ids += first;
    lane.first_position += first;
    lane.max_tokens = lane.n_tokens = lane.n_rows = lane.lane_rows = teg_min(p->lane_rows, p->n_tokens - first);
    lane.row0 = 0;
    return lane;
}

struct lane_job {
    const struct teg_pass *pass;
    uint32_t first, last; /* stages */
};

/* A lane through stages without attention. */
static void run_lane(void *ctx, size_t slice, size_t worker)
{
    const struct lane_job *const job = ctx;
    const struct teg_pass p = lane_of(job->pass, slice);
    float *const scratch = p.scratch + worker * p.scratch_stride;
    if (job->first == 0)
        make_rope_tables(&p, 0, p.n_tokens);
    for (uint32_t i = job->first; i < job->last; i++) {
        const struct teg_stage *const stage = &p.plan->stages[i];
        if (stage->rows) {
            run_row_stage(&p, stage, 0, p.n_rows);
            continue;
        }
        for (uint32_t k = 0; k < stage->n_steps; k++) {
            const struct teg_step *const s = &p.plan->steps[stage->first_step + k];
            const struct range all = {0, p.n_rows, 0, s->out.width};
            if (!s->is_gate)
                (s->gemm ? run_gemm : run_linear)(&p, s, &all, scratch);
        }
    }
}

static struct teg_attention_cut cut_lane(const struct teg_pass *lane, const struct teg_step *s)
{
    return teg_cut_attention(s->n_heads, s->n_kv_heads, lane->n_rows, 1, 1);
}

/* Units of all lanes in turn: threads begin with the lane that they had. */
static void run_lane_attention(void *ctx, size_t slice, size_t worker)
{
    const struct lane_job *const job = ctx;
    const size_t n_lanes = count_lanes(job->pass), unit = slice / n_lanes;
    const struct teg_pass p = lane_of(job->pass, slice % n_lanes);
    const struct teg_step *const s = &p.plan->steps[p.plan->stages[job->first].first_step];
    const struct teg_attention_cut c = cut_lane(&p, s);
    if (unit >= c.n_units) /* the last lane may be shorter */
        return;
    const struct teg_attention_args args = attention_args(&p, s, &c, unit, p.scratch + worker * p.scratch_stride);
    p.plan->attend.of[p.kv_type].run(&args);
}

static bool run_lanes(const struct teg_pass *p)
{
    const size_t n_lanes = count_lanes(p);
    struct lane_job job = {.pass = p};
    for (; job.first < p->plan->first_head_stage; job.first = job.last) {
        if (atomic_load_explicit(p->stop, memory_order_relaxed))
            return false;
        job.last = job.first + 1;
        if (teg_stage_attends(p->plan, job.first)) {
            const struct teg_pass lane = lane_of(p, 0);
            const struct teg_step *const s = &p->plan->steps[p->plan->stages[job.first].first_step];
            teg_pool_run(p->pool, run_lane_attention, &job, n_lanes * cut_lane(&lane, s).n_units);
            continue;
        }
        while (job.last < p->plan->first_head_stage && !teg_stage_attends(p->plan, job.last))
            job.last++;
        teg_pool_run(p->pool, run_lane, &job, n_lanes);
    }
    return true;
}

/* ---- a chunk ---- */

bool teg_pass_body(struct teg_pass *p)
{
    p->row0 = 0;
    p->n_rows = p->n_tokens;
    p->lane_rows = choose_lane_rows(p);
    if (p->lane_rows < p->n_tokens)
        return run_lanes(p);
    const struct teg_pass all = lane_of(p, 0);
    struct stage_job job = {.pass = &all, .rows_per_slice = rows_per_slice(p, p->n_tokens)};
    teg_pool_run(p->pool, run_rope_tables, &job, (p->n_tokens + job.rows_per_slice - 1) / job.rows_per_slice);
    return run_stages(&all, 0, p->plan->first_head_stage);
}

bool teg_pass_head(const struct teg_pass *p, size_t row0, size_t n_rows)
{
    for (size_t row = row0, end = row0 + n_rows; row < end;) {
        const size_t i = row / p->lane_rows, first = i * p->lane_rows;
        struct teg_pass lane = lane_of(p, i);
        lane.row0 = row - first;
        lane.n_rows = teg_min(end, first + p->lane_rows) - row;
        lane.chunk_row += first;
        lane.logits += (row - row0) * p->plan->vocab;
        if (!run_stages(&lane, p->plan->first_head_stage, p->plan->n_stages))
            return false;
        row += lane.n_rows;
    }
    return true;
}
