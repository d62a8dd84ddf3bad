/* eval/table.c: which op is run by what: every table of ops_*.c, one a line.
 *
 * A linear search: it happens once an op when a program is loaded. */
#include <string.h>

#include "eval/eval.h"

static const struct teg_eval_row *const tables[] = {
    teg_eval_rows_control,
};

const struct teg_eval_row *teg_eval_find_row(const char *type, uint32_t opset)
{
    const struct teg_eval_row *best = NULL;
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const struct teg_eval_row *row = tables[t]; row->type; row++)
            if (row->opset <= opset && (!best || row->opset > best->opset) && strcmp(row->type, type) == 0)
                best = row;
    return best;
}
