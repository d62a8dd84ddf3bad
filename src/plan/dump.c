/* plan/dump.c: the plan as text, so that a reader sees the forward pass on one screen. */
#include "plan/plan.h"

static const char *const step_names[TEG_STEP_KIND_COUNT] = {
    [TEG_STEP_POSITION] = "position",
    [TEG_STEP_LAYER_NORM] = "layer_norm",
    [TEG_STEP_ACTIVATION] = "activation",
    [TEG_STEP_EMBEDDING] = "embedding",
    [TEG_STEP_RMS_NORM] = "rms_norm",
    [TEG_STEP_QUANTIZE] = "quantize",
    [TEG_STEP_LINEAR] = "linear",
    [TEG_STEP_ROPE] = "rope",
    [TEG_STEP_KV_APPEND] = "kv_append",
    [TEG_STEP_ATTENTION] = "attention",
    [TEG_STEP_GLU] = "glu",
    [TEG_STEP_ADD] = "add",
    [TEG_STEP_SCALE] = "scale",
    [TEG_STEP_SOFTCAP] = "softcap",
    [TEG_STEP_COPY] = "copy",
};

static void dump_operand(const struct teg_operand *x, const char *label, struct teg_buf *out)
{
    if (!x->used)
        return;
    if (x->logits)
        teg_buf_printf(out, " %slogits", label);
    else
        teg_buf_printf(out, " %s@%zu", label, x->offset + x->column);
    if (x->width != x->stride)
        teg_buf_printf(out, "[%u of %u]", x->width, x->stride);
    else
        teg_buf_printf(out, "[%u]", x->width);
}

static const char *weight_name(const struct teg_graph *g, const struct teg_step *s)
{
    const struct teg_op *const op = &g->ops[s->op];
    if (s->kind == TEG_STEP_POSITION)
        return g->values[op->inputs[0]].name;
    return op->n_inputs > 1 && g->values[op->inputs[1]].kind == TEG_VALUE_CONST ? g->values[op->inputs[1]].name : "";
}

static void dump_step(const struct teg_graph *g, const struct teg_step *s, struct teg_buf *out)
{
    teg_buf_printf(out, "    %-9s", step_names[s->kind]);
    dump_operand(&s->a, "", out);
    dump_operand(&s->b, "", out);
    if (s->weight && s->kind != TEG_STEP_ACTIVATION)
        teg_buf_printf(out, " %s %s", weight_name(g, s),
                       s->encoding ? s->encoding->name : teg_dtype_info(s->weight_dtype)->name);
    if (s->kind == TEG_STEP_LINEAR)
        teg_buf_printf(out, "%s by %s",
                       s->gemm && !s->encoding && teg_qgemm_rounds(s->weight_dtype, s->k) ? " in 8 bits" : "",
                       s->gemm ? s->gemm->name : "linear_f32");
    if (s->terms > 1)
        teg_buf_printf(out, " in %u rows each", s->terms);
    if (s->is_gate)
        teg_buf_puts(out, ", in the next step");
    if (s->glu)
        teg_buf_puts(out, ", times the activated gate, quantized");
    if (s->bias)
        teg_buf_puts(out, " +bias");
    dump_operand(&s->residual, "+", out);
    if (s->kind == TEG_STEP_ATTENTION) {
        teg_buf_printf(out, " heads %u/%u of %u", s->n_heads, s->n_kv_heads, s->head_width);
        if (s->window)
            teg_buf_printf(out, " window %u", s->window);
    }
    if (s->kind == TEG_STEP_ATTENTION || s->kind == TEG_STEP_KV_APPEND)
        teg_buf_printf(out, " kv.%u", s->layer);
    dump_operand(&s->out, "-> ", out);
    if (s->name)
        teg_buf_printf(out, " \"%s\"", s->name);
    teg_buf_puts(out, "\n");
}

/* Rows of one token are no work to share: only these stages have threads wait for one another. */
static uint32_t count_free(const struct teg_plan *plan)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->n_stages; i++)
        n += !plan->stages[i].rows;
    return n;
}

/* Of a chunk in lanes (run/executor.c): around each attention, and after each stage of the head. */
static uint32_t count_lane_barriers(const struct teg_plan *plan)
{
    uint32_t n = plan->n_stages - plan->first_head_stage;
    bool runs = false;
    for (uint32_t i = 0; i < plan->first_head_stage; i++) {
        const bool attends = teg_stage_attends(plan, i);
        n += attends || !runs;
        runs = !attends;
    }
    return n;
}

void teg_plan_dump(const struct teg_plan *plan, const struct teg_graph *g, struct teg_buf *out)
{
    static const char *const slots[] = {
#define X(slot, args) #slot,
        TEG_KERNELS(X)
#undef X
    };
    static const char *const choices[] = {
        [TEG_ATTEND_ONLY] = "only row for integers",
        [TEG_ATTEND_KNOWN_CPU] = "integers by the table of known CPUs",
        [TEG_ATTEND_MEASURED] = "integers by measurement",
    };
    teg_buf_printf(out,
                   "%u steps in %u stages; barriers: %u for a chunk, %u in lanes, %u for one token; arena %zu bytes a "
                   "token; scratch "
                   "%zu bytes a worker; KV %zu elements for %d tokens; logits %u rows at a time\nkernels:",
                   plan->n_steps, plan->n_stages, plan->n_stages + (plan->n_rope_tables > 0), count_lane_barriers(plan),
                   count_free(plan), plan->row_floats * sizeof(float), plan->worker_floats * sizeof(float),
                   plan->kv_block_elements, TEG_TILE_TOKENS, plan->head_rows);
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++)
        teg_buf_printf(out, " %s=%s", slots[i], plan->kernels.isa_of_slot[i]);
    teg_buf_printf(out, "\nattention:");
    for (int type = TEG_KV_F32; type < TEG_KV_TYPES; type++)
        teg_buf_printf(out, " %s=%s", teg_kv_type_name((enum teg_kv_type)type), plan->attend.of[type].name);
    teg_buf_printf(out, " (%s)", choices[plan->attend.choice]);
    if (plan->gemm)
        teg_buf_printf(out, "\npacked weights: %zu bytes in place of %zu%s", plan->packed.n_bytes,
                       plan->packed.replaced_bytes, plan->packed.map.bytes ? ", mapped from the cache" : "");
    teg_buf_puts(out, "\n");
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        const struct teg_stage *const stage = &plan->stages[i];
        teg_buf_printf(out, "stage %u, %s%s\n", i, stage->rows ? "by rows" : "by slices",
                       i >= plan->first_head_stage ? ", only for rows whose logits are asked for" : "");
        for (uint32_t k = 0; k < stage->n_steps; k++)
            dump_step(g, &plan->steps[stage->first_step + k], out);
    }
}
