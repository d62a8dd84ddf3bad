/* eval/table.c: which op is run by what: every table of ops_*.c, one a line.
 *
 * A linear search: it happens once an op when a program is loaded. */
#include <string.h>

#include "eval/eval.h"

/* clang-format off */
static const struct teg_eval_row *const tables[] = {
    teg_eval_rows_control,
    teg_eval_rows_unary,
    teg_eval_rows_binary,
    teg_eval_rows_reduce,
    teg_eval_rows_shape,
    teg_eval_rows_slice,
    teg_eval_rows_layout,
    teg_eval_rows_fill,
    teg_eval_rows_gather,
    teg_eval_rows_scatter,
    teg_eval_rows_sort,
    teg_eval_rows_nms,
    teg_eval_rows_random,
    teg_eval_rows_linear,
    teg_eval_rows_attention,
    teg_eval_rows_conv,
    teg_eval_rows_conv_transpose,
    teg_eval_rows_pool,
    teg_eval_rows_norm,
    teg_eval_rows_softmax,
    teg_eval_rows_image,
    teg_eval_rows_resize,
    teg_eval_rows_recurrent,
    teg_eval_rows_constexpr,
    teg_eval_rows_list,
    teg_eval_rows_classify,
};
/* clang-format on */

const struct teg_eval_row *teg_eval_find_row(const char *type, uint32_t opset)
{
    const struct teg_eval_row *best = NULL;
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const struct teg_eval_row *row = tables[t]; row->type; row++)
            if (row->opset <= opset && (!best || row->opset > best->opset) && strcmp(row->type, type) == 0)
                best = row;
    return best;
}
