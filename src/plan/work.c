/* plan/work.c: the step list, added up. */
#include "plan/work.h"

#include "base/check.h"

/* Keys that rows first … first + n - 1 see together. */
static uint64_t visible_keys(size_t first, size_t n, size_t window)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t seen = first + i + 1;
        sum += window ? teg_min(seen, window) : seen;
    }
    return sum;
}

static uint64_t bytes_of(const struct teg_step *s)
{
    if (s->encoding)
        return teg_qgemm_form_bytes(&s->form, s->out.width, s->k);
    return s->gemm ? teg_qgemm_packed_bytes(s->weight_dtype, s->out.width, s->k) : s->weight_row_bytes * s->out.width;
}

void teg_plan_work(const struct teg_plan *plan, size_t first_position, size_t n_tokens, size_t head_rows,
                   struct teg_plan_work *work)
{
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        const struct teg_step *const s = &plan->steps[i];
        const size_t rows = i < plan->first_head_step ? n_tokens : head_rows;
        if (s->kind == TEG_STEP_EMBEDDING)
            work->weight_bytes += s->weight_row_bytes * rows;
        if (s->kind == TEG_STEP_ATTENTION)
            work->attention_macs +=
                visible_keys(first_position, rows, s->window) * s->n_heads * s->head_width * 2; /* q·k, and times v */
        if (s->kind != TEG_STEP_LINEAR || rows == 0)
            continue;
        const uint64_t macs = (uint64_t)rows * s->k * s->out.width;
        if (s->gemm)
            work->int8_macs += macs * s->terms;
        else
            work->float_macs += macs;
        work->weight_bytes += bytes_of(s);
    }
}
