/* eval/index.c: indices settled before the op's loop starts, so that no loop can read or write outside its arrays. */
#include "eval/index.h"

enum teg_status teg_settle_indices(struct teg_eval_call *c, const struct teg_array *indices, const size_t *limits,
                                   size_t n_limits, size_t **out)
{
    bool validate;
    void *memory;
    if (indices->form != TEG_FORM_I32)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter indices: expected integers, found another type");
    TRY(teg_arg_bool(c, "validate_indices", false, &validate));
    TRY(teg_op_scratch(c, indices->n, sizeof(size_t), &memory));
    size_t *const settled = memory;
    const bool wraps = c->opset < 8;
    for (size_t i = 0; i < indices->n; i++) {
        const int64_t limit = (int64_t)limits[i % n_limits];
        const int64_t at = indices->i32[i] + (wraps && indices->i32[i] < 0 ? limit : 0);
        if (at >= 0 && at < limit)
            settled[i] = (size_t)at;
        else if (wraps || validate)
            OP_FAIL(c, TEG_ERR_ARGUMENT, "parameter indices: expected indices into %lld elements, found %d",
                    (long long)limit, indices->i32[i]);
        else
            settled[i] = TEG_INDEX_OUTSIDE;
    }
    *out = settled;
    return TEG_OK;
}
