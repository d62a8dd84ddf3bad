/* eval/ops_classify.c: classify: the label of the greatest probability, and the dictionary of labels and probabilities
 * (a list of two arrays: keys, values). */
#include <string.h>

#include "eval/strided.h"

static enum teg_status op_classify(struct teg_eval_call *c)
{
    const struct teg_array *p, *classes;
    struct teg_array *label, *dictionary;
    size_t best = 0;
    TRY(teg_arg_form(c, "probabilities", TEG_FORM_F32, &p));
    TRY(teg_arg_any(c, "classes", &classes));
    if (classes->n != p->n || !p->n || (classes->form != TEG_FORM_STRING && classes->form != TEG_FORM_I32))
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter classes: expected a label for each of %zu probabilities, found %zu", p->n,
                classes->n);
    for (size_t i = 0; i < p->n && classes->form == TEG_FORM_I32; i++)
        if (classes->i32[i] == INT32_MAX || classes->i32[i] == INT32_MIN) /* or beyond: both ends stand for more */
            OP_FAIL(
                c, TEG_ERR_UNSUPPORTED,
                "parameter classes: expected labels of less than 32 bits, found a larger number as label %zu; export "
                "the model with strings as labels",
                i);
    for (size_t i = 1; i < p->n; i++)
        if (p->f32[i] > p->f32[best])
            best = i;
    TRY(teg_output(c, 0, classes->form, 0, NULL, &label));
    const size_t item = teg_item_bytes(classes);
    memcpy(label->data, (const char *)classes->data + best * item, item);
    if (c->op->n_outputs < 2)
        return TEG_OK;
    TRY(teg_output_list(c, 1, TEG_MIL_FP32, 2, &dictionary));
    dictionary->items[0] = teg_array_ref((struct teg_array *)classes);
    dictionary->items[1] = teg_array_ref((struct teg_array *)p);
    return TEG_OK;
}

const struct teg_eval_row teg_eval_rows_classify[] = {
    {"classify", 6, op_classify},
    {NULL, 0, NULL},
};
