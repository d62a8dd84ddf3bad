/* eval/ops_list.c: lists of tensors, the arrays that loops of recurrent models grow.
 *
 * A list is a value like any other: writing makes a new list that shares the items, which costs a pointer each. */
#include <string.h>

#include "base/check.h"
#include "eval/strided.h"

#define MOST_ITEMS ((size_t)1 << 24)

static enum teg_status list_argument(struct teg_eval_call *c, const struct teg_array **ls)
{
    return teg_arg_form(c, "ls", TEG_FORM_LIST, ls);
}

static enum teg_status op_make_list(struct teg_eval_call *c)
{
    int32_t length;
    struct teg_array *list;
    TRY(teg_arg_int(c, "init_length", 1, &length));
    if (length < 0 || (size_t)length > MOST_ITEMS)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter init_length: expected 0 to %zu, found %d", MOST_ITEMS, length);
    return teg_output_list(c, 0, teg_output_dtype(c, 0), (size_t)length, &list);
}

static enum teg_status op_list_length(struct teg_eval_call *c)
{
    const struct teg_array *ls;
    struct teg_array *y;
    TRY(list_argument(c, &ls));
    TRY(teg_output(c, 0, TEG_FORM_I32, 0, NULL, &y));
    y->i32[0] = (int32_t)ls->n;
    return TEG_OK;
}

/* A new list of at least n items that shares those of `ls`. */
static enum teg_status grown_copy(struct teg_eval_call *c, const struct teg_array *ls, size_t n, struct teg_array **out)
{
    TRY(teg_output_list(c, 0, ls->dtype, teg_max(n, ls->n), out));
    for (size_t i = 0; i < ls->n; i++)
        (*out)->items[i] = ls->items[i] ? teg_array_ref(ls->items[i]) : NULL;
    return TEG_OK;
}

static enum teg_status check_index(struct teg_eval_call *c, int32_t index, size_t limit)
{
    if (index < 0 || (size_t)index >= limit)
        OP_FAIL(c, TEG_ERR_ARGUMENT, "list: expected an index below %zu, found %d", limit, index);
    return TEG_OK;
}

/* Takes over the reference to `item`. */
static void set_item(const struct teg_eval_call *c, struct teg_array *list, size_t i, struct teg_array *item)
{
    teg_array_drop(c->allocator, list->items[i]);
    list->items[i] = item;
}

static enum teg_status op_list_write(struct teg_eval_call *c)
{
    const struct teg_array *ls, *value;
    struct teg_array *out;
    int32_t index;
    TRY(list_argument(c, &ls));
    TRY(teg_arg_int(c, "index", 0, &index));
    TRY(teg_arg_any(c, "value", &value));
    TRY(check_index(c, index, MOST_ITEMS));
    if (value->form == TEG_FORM_LIST)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter value: expected a tensor, found a list");
    TRY(grown_copy(c, ls, (size_t)index + 1, &out));
    set_item(c, out, (size_t)index, teg_array_ref((struct teg_array *)value));
    return TEG_OK;
}

static const struct teg_array *first_item(const struct teg_array *ls)
{
    for (size_t i = 0; i < ls->n; i++)
        if (ls->items[i])
            return ls->items[i];
    return NULL;
}

/* An item that was never written is zero, of the shape that others have or that is declared. */
static enum teg_status op_list_read(struct teg_eval_call *c)
{
    const struct teg_array *ls;
    struct teg_array *y;
    int32_t index;
    uint32_t rank;
    size_t dims[TEG_MIL_MAX_RANK];
    TRY(list_argument(c, &ls));
    TRY(teg_arg_int(c, "index", 0, &index));
    TRY(check_index(c, index, ls->n));
    const struct teg_array *const item = ls->items[index];
    if (item)
        return teg_output_share(c, 0, item, item->rank, item->dims);
    const struct teg_array *const other = first_item(ls);
    if (other)
        TRY(teg_output(c, 0, other->form, other->rank, other->dims, &y));
    else if (teg_output_declared(c, 0, &rank, dims))
        TRY(teg_output(c, 0, teg_form_of(teg_output_dtype(c, 0)), rank, dims, &y));
    else
        OP_FAIL(c, TEG_ERR_ARGUMENT, "list: expected item %d to have been written, found an empty list", index);
    memset(y->data, 0, y->n_bytes);
    return TEG_OK;
}

static enum teg_status op_list_gather(struct teg_eval_call *c)
{
    const struct teg_array *ls, *indices;
    struct teg_array *y;
    size_t dims[TEG_MIL_MAX_RANK];
    TRY(list_argument(c, &ls));
    TRY(teg_arg_form(c, "indices", TEG_FORM_I32, &indices));
    const struct teg_array *const first = first_item(ls);
    if (!first || first->rank == TEG_MIL_MAX_RANK)
        OP_FAIL(c, TEG_ERR_ARGUMENT, "list: expected an item of at most %d dimensions, found none",
                TEG_MIL_MAX_RANK - 1);
    dims[0] = indices->n;
    for (uint32_t d = 0; d < first->rank; d++)
        dims[d + 1] = first->dims[d];
    TRY(teg_output(c, 0, first->form, first->rank + 1, dims, &y));
    const size_t bytes = first->n * teg_item_bytes(first);
    for (size_t i = 0; i < indices->n; i++) {
        TRY(check_index(c, indices->i32[i], ls->n));
        const struct teg_array *const item = ls->items[indices->i32[i]];
        if (item && (item->n != first->n || item->form != y->form))
            OP_FAIL(c, TEG_ERR_ARGUMENT, "list: expected items of one shape, found %s and %s",
                    teg_shape_text(first->rank, first->dims).text, teg_shape_text(item->rank, item->dims).text);
        char *const to = (char *)y->data + i * bytes;
        if (item)
            memcpy(to, item->data, bytes);
        else
            memset(to, 0, bytes);
    }
    return TEG_OK;
}

static enum teg_status op_list_scatter(struct teg_eval_call *c)
{
    const struct teg_array *ls, *indices, *value;
    struct teg_array *out;
    size_t most = 0;
    TRY(list_argument(c, &ls));
    TRY(teg_arg_form(c, "indices", TEG_FORM_I32, &indices));
    TRY(teg_arg_any(c, "value", &value));
    if (value->form > TEG_FORM_BOOL || !value->rank || value->dims[0] != indices->n)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter value: expected one item for each of %zu indices, found shape %s",
                indices->n, teg_shape_text(value->rank, value->dims).text);
    for (size_t i = 0; i < indices->n; i++) {
        TRY(check_index(c, indices->i32[i], MOST_ITEMS));
        most = teg_max(most, (size_t)indices->i32[i] + 1);
    }
    TRY(grown_copy(c, ls, most, &out));
    for (size_t i = 0; i < indices->n; i++) {
        struct teg_array *const item = teg_array_new(c->allocator, value->dtype, value->rank - 1, value->dims + 1);
        if (!item)
            OP_FAIL(c, TEG_ERR_MEMORY, "list: expected memory for an item, found none");
        memcpy(item->data, (const char *)value->data + i * item->n_bytes, item->n_bytes);
        set_item(c, out, (size_t)indices->i32[i], item);
    }
    return TEG_OK;
}

const struct teg_eval_row teg_eval_rows_list[] = {
    {"make_list", 6, op_make_list},
    {"list_length", 6, op_list_length},
    {"list_write", 6, op_list_write},
    {"list_read", 6, op_list_read},
    {"list_gather", 6, op_list_gather},
    {"list_scatter", 6, op_list_scatter},
    {NULL, 0, NULL},
};
