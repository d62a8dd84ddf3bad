/* Fuzz target: MIL text, loaded and run. Whatever a program asks for, a run ends with outputs or with a message, within
 * the limits of memory and iterations that it was given.
 *
 * Inputs are zero; dimensions that are known only at run time are 2. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "eval/eval.h"

#define MOST_INPUTS 8
#define MOST_OUTPUTS 16
#define MOST_ELEMENTS 65536

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

static struct teg_array *zero_input(const struct teg_mil_type *type)
{
    size_t dims[TEG_MIL_MAX_RANK], n = 1;
    for (int32_t d = 0; d < type->rank; d++) {
        dims[d] = type->dims[d] < 0 ? 2 : (size_t)type->dims[d];
        if (dims[d] > MOST_ELEMENTS || (n *= dims[d]) > MOST_ELEMENTS)
            return NULL;
    }
    struct teg_array *const a = teg_array_new(NULL, type->dtype, type->rank < 0 ? 0 : (uint32_t)type->rank, dims);
    if (a)
        memset(a->data, 0, a->n_bytes);
    return a;
}

static bool has_small_states(const struct teg_mil_program *p, const struct teg_mil_function *f)
{
    for (size_t i = 0; i < f->block.n_inputs; i++) {
        struct teg_array *const a = zero_input(&p->vars[f->block.inputs[i]].type);
        if (!a)
            return false;
        teg_array_drop(NULL, a);
    }
    return true;
}

static void run(const struct teg_mil_program *p, const struct teg_mil_function *f, bool emulate)
{
    const struct teg_eval_options options = {
        .emulate_fp16 = emulate, .n_threads = 1, .max_loop_iterations = 50, .max_bytes = (uint64_t)1 << 22};
    struct teg_array *inputs[MOST_INPUTS] = {0}, *outputs[MOST_OUTPUTS];
    struct teg_eval *eval = NULL;
    struct teg_eval_state *state = NULL;
    struct teg_error err = {0};
    size_t n = 0;
    if (f->block.n_inputs > MOST_INPUTS || f->block.n_outputs > MOST_OUTPUTS || !has_small_states(p, f))
        return;
    if (teg_eval_new(p, f->name, &options, &eval, &err) == TEG_OK &&
        teg_eval_state_new(p, NULL, &state, &err) == TEG_OK) {
        for (size_t i = 0; i < f->block.n_inputs; i++)
            if (p->vars[f->block.inputs[i]].type.kind != TEG_MIL_STATE)
                inputs[n++] = zero_input(&p->vars[f->block.inputs[i]].type);
        if (teg_eval_run(eval, inputs, state, NULL, outputs, NULL, &err) == TEG_OK)
            for (size_t i = 0; i < f->block.n_outputs; i++)
                teg_array_drop(NULL, outputs[i]);
        else if (!err.message[0])
            abort(); /* a failure without a reason */
        for (size_t i = 0; i < n; i++)
            teg_array_drop(NULL, inputs[i]);
    }
    teg_eval_state_free(state);
    teg_eval_free(eval);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    struct teg_mil_program *p = NULL;
    struct teg_error err = {0};
    if (n_bytes > 1 << 14 ||
        teg_mil_parse_text((const char *)bytes, n_bytes, NULL, 0, "fuzz", NULL, &p, &err) != TEG_OK)
        return 0;
    for (size_t i = 0; i < p->n_functions && i < 2; i++)
        run(p, &p->functions[i], i % 2);
    teg_mil_free(p);
    return 0;
}
