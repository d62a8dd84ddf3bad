/* plan/stage.c: which steps share a barrier.
 *
 * Two kinds of stage. In a row stage every step works on one token's row at a time, so a slice of tokens can run all
 * steps in order, even when one feeds the next; the only danger is that two buffers of different stride share memory,
 * because then row t of one is not row t of the other. In a free stage the steps are cut in different ways, so nothing
 * that one writes may be touched by another. The check works on places in the arena, so reuse of memory is seen too.
 * Greedy: a step joins the current stage when it can. */
#include "plan/plan.h"

static bool is_row_step(const struct teg_step *s)
{
    return s->kind != TEG_STEP_LINEAR && s->kind != TEG_STEP_ATTENTION;
}

static bool overlap(const struct teg_operand *x, const struct teg_operand *y)
{
    if (!x->used || !y->used || x->logits != y->logits)
        return false;
    /* Columns of one buffer are disjoint places; of different buffers the whole ranges count. */
    if (x->offset == y->offset && x->stride == y->stride)
        return x->column < y->column + y->width && y->column < x->column + x->width;
    return x->offset < y->offset + y->stride && y->offset < x->offset + x->stride;
}

static bool same_rows(const struct teg_operand *x, const struct teg_operand *y)
{
    return x->offset == y->offset && x->stride == y->stride;
}

/* May `late` stand in one stage with the earlier step `early`? Named values are looked at when their stage is done. */
static bool compatible(const struct teg_step *early, const struct teg_step *late, bool rows)
{
    if (early->name && overlap(&early->out, &late->out))
        return false;
    const struct teg_operand *const reads[2][4] = {{&early->a, &early->b, &early->residual, &early->out},
                                                   {&late->a, &late->b, &late->residual, &late->out}};
    for (size_t i = 0; i < 4; i++) {
        const struct teg_operand *const pairs[2][2] = {{&early->out, reads[1][i]}, {reads[0][i], &late->out}};
        for (size_t k = 0; k < 2; k++)
            if (overlap(pairs[k][0], pairs[k][1]) && !(rows && same_rows(pairs[k][0], pairs[k][1])))
                return false;
    }
    return true;
}

enum teg_status teg_plan_stages(struct teg_plan *plan, struct teg_arena *arena, struct teg_error *err)
{
    plan->stages = teg_arena_array(arena, plan->n_steps + 1, sizeof *plan->stages);
    if (!plan->stages)
        return teg_base_fail_memory(err, "stages", plan->n_steps * sizeof *plan->stages);
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        const struct teg_step *const step = &plan->steps[i];
        struct teg_stage *const last = plan->n_stages ? &plan->stages[plan->n_stages - 1] : NULL;
        /* Attention reads what kv_append writes, through the session, and is cut finely on its own. */
        bool joins = last && i != plan->first_head_step && last->rows == is_row_step(step) &&
                     step->kind != TEG_STEP_ATTENTION && plan->steps[i - 1].kind != TEG_STEP_ATTENTION;
        for (uint32_t k = 0; joins && k < last->n_steps; k++)
            joins = compatible(&plan->steps[last->first_step + k], step, last->rows);
        if (i == plan->first_head_step)
            plan->first_head_stage = plan->n_stages;
        if (joins)
            last->n_steps++;
        else
            plan->stages[plan->n_stages++] = (struct teg_stage){i, 1, is_row_step(step)};
    }
    return TEG_OK;
}
