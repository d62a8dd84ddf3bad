/* mil/type.c: element types by name and number, types compared, counted and printed.
 *
 * One table of DataType numbers; names and widths are the X-macro of program.h. */
#include "mil/impl.h"

#include <inttypes.h>

#include "base/check.h"
#include "base/text.h"

static const struct teg_mil_dtype_info infos[] = {
#define X(name, text, bits, class) {text, bits, class},
    TEG_MIL_DTYPES(X)
#undef X
};

const struct teg_mil_dtype_info *teg_mil_dtype_info(enum teg_mil_dtype dtype)
{
    return &infos[dtype];
}

/* DataType of MIL.proto. */
static const uint8_t numbers[TEG_MIL_DTYPE_COUNT] = {
    [TEG_MIL_BOOL] = 1,       [TEG_MIL_STRING] = 2,   [TEG_MIL_FP16] = 10,   [TEG_MIL_FP32] = 11,
    [TEG_MIL_FP64] = 12,      [TEG_MIL_BF16] = 13,    [TEG_MIL_INT8] = 21,   [TEG_MIL_INT16] = 22,
    [TEG_MIL_INT32] = 23,     [TEG_MIL_INT64] = 24,   [TEG_MIL_INT4] = 25,   [TEG_MIL_UINT8] = 31,
    [TEG_MIL_UINT16] = 32,    [TEG_MIL_UINT32] = 33,  [TEG_MIL_UINT64] = 34, [TEG_MIL_UINT4] = 35,
    [TEG_MIL_UINT2] = 36,     [TEG_MIL_UINT1] = 37,   [TEG_MIL_UINT6] = 38,  [TEG_MIL_UINT3] = 39,
    [TEG_MIL_FP8E4M3FN] = 40, [TEG_MIL_FP8E5M2] = 41,
};

bool teg_mil_dtype_by_number(uint64_t number, enum teg_mil_dtype *dtype)
{
    for (int i = 0; i < TEG_MIL_DTYPE_COUNT; i++)
        if (numbers[i] == number) {
            *dtype = (enum teg_mil_dtype)i;
            return true;
        }
    return false;
}

uint32_t teg_mil_dtype_number(enum teg_mil_dtype dtype)
{
    return numbers[dtype];
}

bool teg_mil_dtype_by_name(struct teg_span name, enum teg_mil_dtype *dtype)
{
    for (int i = 0; i < TEG_MIL_DTYPE_COUNT; i++)
        if (strlen(infos[i].name) == name.n_bytes && memcmp(infos[i].name, name.bytes, name.n_bytes) == 0) {
            *dtype = (enum teg_mil_dtype)i;
            return true;
        }
    return false;
}

/* Depth is that of the reader: types nest TEG_MIL_MAX_TYPE_DEPTH deep at most. */
bool teg_mil_same_type(const struct teg_mil_type *a, const struct teg_mil_type *b)
{
    if (a->kind != b->kind)
        return false;
    switch (a->kind) {
    case TEG_MIL_TENSOR:
    case TEG_MIL_STATE:
        return a->dtype == b->dtype && a->rank == b->rank &&
               (a->rank < 0 || memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) == 0);
    case TEG_MIL_LIST: /* a literal has its own length, a declared type may leave it open */
        return teg_mil_same_type(a->element, b->element) &&
               (a->length == b->length || a->length == TEG_MIL_UNKNOWN || b->length == TEG_MIL_UNKNOWN);
    case TEG_MIL_DICT:
        return teg_mil_same_type(a->key, b->key) && teg_mil_same_type(a->element, b->element);
    case TEG_MIL_TUPLE:
        return true;
    }
    return false;
}

bool teg_mil_count(const struct teg_mil_type *type, size_t *n)
{
    size_t count = 1;
    bool is_empty = false;
    if (type->rank < 0)
        return false;
    for (int32_t i = 0; i < type->rank; i++) {
        const int64_t d = type->dims[i];
        if (d < 0 || (uint64_t)d > SIZE_MAX || (d && !teg_mul(count, (size_t)d, &count)))
            return false;
        is_empty = is_empty || !d;
    }
    *n = is_empty ? 0 : count;
    return true;
}

bool teg_mil_bytes(enum teg_mil_dtype dtype, size_t n, size_t *n_bytes)
{
    size_t n_bits;
    if (dtype == TEG_MIL_STRING || !teg_mul(n, infos[dtype].bits, &n_bits) || !teg_round_up(n_bits, 8, &n_bits))
        return false;
    *n_bytes = n_bits / 8;
    return true;
}

static void print_length(struct teg_buf *out, int64_t length)
{
    if (length == TEG_MIL_UNKNOWN)
        teg_buf_puts(out, "?");
    else
        teg_buf_printf(out, "%" PRId64, length);
}

static void print_tensor(struct teg_buf *out, const struct teg_mil_type *type)
{
    if (type->rank == 0 && type->kind == TEG_MIL_TENSOR) {
        teg_buf_puts(out, infos[type->dtype].name);
        return;
    }
    teg_buf_printf(out, "tensor<%s, [", infos[type->dtype].name);
    if (type->rank < 0)
        teg_buf_puts(out, "...");
    for (int32_t i = 0; i < type->rank; i++) {
        teg_buf_puts(out, i ? ", " : "");
        print_length(out, type->dims[i]);
    }
    teg_buf_puts(out, "]>");
}

void teg_mil_print_type(struct teg_buf *out, const struct teg_mil_type *type)
{
    switch (type->kind) {
    case TEG_MIL_TENSOR:
        print_tensor(out, type);
        break;
    case TEG_MIL_STATE:
        teg_buf_puts(out, "state<");
        print_tensor(out, type);
        teg_buf_puts(out, ">");
        break;
    case TEG_MIL_LIST:
        teg_buf_puts(out, "list<");
        teg_mil_print_type(out, type->element);
        teg_buf_puts(out, ", ");
        print_length(out, type->length);
        teg_buf_puts(out, ">");
        break;
    case TEG_MIL_DICT:
        teg_buf_puts(out, "dict<");
        teg_mil_print_type(out, type->key);
        teg_buf_puts(out, ", ");
        teg_mil_print_type(out, type->element);
        teg_buf_puts(out, ">");
        break;
    case TEG_MIL_TUPLE:
        teg_buf_puts(out, "tuple<...>");
        break;
    }
}
