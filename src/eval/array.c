/* eval/array.c: the evaluator's values: making, sharing, rounding, and decoding of constants.
 *
 * Invariant: data is contiguous, row-major and aligned to TEG_ALIGN; n is the product of dims and never so large that a
 * byte count could wrap. A view (owner set) has its own shape and its owner's data; it holds the owner alive.
 * Not taken: strided views. They would make transposes free and every op's loop three times as long. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "dtype/round.h"
#include "eval/eval.h"

#define MAX_ELEMENTS ((size_t)1 << 40)

static const size_t form_bytes[] = {[TEG_FORM_F32] = sizeof(float),
                                    [TEG_FORM_I32] = sizeof(int32_t),
                                    [TEG_FORM_BOOL] = 1,
                                    [TEG_FORM_STRING] = sizeof(struct teg_string),
                                    [TEG_FORM_LIST] = sizeof(struct teg_array *)};

enum teg_form teg_form_of(enum teg_mil_dtype dtype)
{
    static const enum teg_form of_class[] = {[TEG_MIL_CLASS_BOOL] = TEG_FORM_BOOL,
                                             [TEG_MIL_CLASS_STRING] = TEG_FORM_STRING,
                                             [TEG_MIL_CLASS_FLOAT] = TEG_FORM_F32,
                                             [TEG_MIL_CLASS_INT] = TEG_FORM_I32,
                                             [TEG_MIL_CLASS_UINT] = TEG_FORM_I32};
    return of_class[teg_mil_dtype_info(dtype)->class_];
}

static struct teg_array *array_new(const struct teg_allocator *allocator, enum teg_mil_dtype dtype, enum teg_form form,
                                   uint32_t rank, const size_t *dims)
{
    const struct teg_allocator *const a = teg_allocator_or_default(allocator);
    size_t n = 1, n_bytes;
    for (uint32_t d = 0; d < rank; d++)
        if (!teg_mul(n, dims[d], &n) || n > MAX_ELEMENTS)
            return NULL;
    n_bytes = n * form_bytes[form];
    struct teg_array *const array = a->alloc(a->ctx, sizeof *array, _Alignof(struct teg_array));
    if (!array)
        return NULL;
    *array = (struct teg_array){.dtype = dtype, .form = form, .rank = rank, .n = n, .n_bytes = n_bytes};
    atomic_init(&array->n_refs, 1);
    for (uint32_t d = 0; d < rank; d++)
        array->dims[d] = dims[d];
    array->data = a->alloc(a->ctx, n_bytes ? n_bytes : 1, TEG_ALIGN);
    if (!array->data) {
        a->free(a->ctx, array, sizeof *array);
        return NULL;
    }
    if (form >= TEG_FORM_STRING)
        memset(array->data, 0, n_bytes);
    return array;
}

struct teg_array *teg_array_new(const struct teg_allocator *allocator, enum teg_mil_dtype dtype, uint32_t rank,
                                const size_t *dims)
{
    return array_new(allocator, dtype, teg_form_of(dtype), rank, dims);
}

struct teg_array *teg_array_list_new(const struct teg_allocator *allocator, enum teg_mil_dtype dtype, size_t n)
{
    return array_new(allocator, dtype, TEG_FORM_LIST, 1, &n);
}

struct teg_array *teg_array_ref(struct teg_array *array)
{
    atomic_fetch_add_explicit(&array->n_refs, 1, memory_order_relaxed);
    return array;
}

/* Lists hold tensors and views hold owners, which hold nothing: the loop below and one call deep is all there is. */
void teg_array_drop(const struct teg_allocator *allocator, struct teg_array *array)
{
    const struct teg_allocator *const a = teg_allocator_or_default(allocator);
    while (array && atomic_fetch_sub_explicit(&array->n_refs, 1, memory_order_acq_rel) == 1) {
        struct teg_array *const owner = array->owner;
        if (!owner) {
            if (array->form == TEG_FORM_LIST)
                for (size_t i = 0; i < array->n; i++)
                    teg_array_drop(a, array->items[i]);
            a->free(a->ctx, array->data, array->n_bytes ? array->n_bytes : 1);
        }
        a->free(a->ctx, array, sizeof *array);
        array = owner;
    }
}

struct teg_array *teg_array_as(const struct teg_allocator *allocator, struct teg_array *array, enum teg_mil_dtype dtype)
{
    if (array->form != TEG_FORM_F32 || dtype != TEG_MIL_FP16 || teg_is_f16(array->f32, array->n))
        return teg_array_ref(array);
    struct teg_array *const copy = teg_array_new(allocator, dtype, array->rank, array->dims);
    if (copy)
        teg_round_f16(copy->f32, array->f32, array->n);
    return copy;
}

/* ---- constants ---- */

static uint64_t read_le(const uint8_t *p, size_t n_bytes)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n_bytes; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

/* Element i of a bit stream of `bits`-wide elements, lowest bit first. */
static uint32_t read_bits(const uint8_t *p, size_t i, uint32_t bits)
{
    uint32_t v = 0;
    for (uint32_t b = 0; b < bits; b++) {
        const size_t at = i * bits + b;
        v |= (uint32_t)(p[at / 8] >> (at % 8) & 1) << b;
    }
    return v;
}

/* An 8-bit float of `mantissa` bits; e4m3fn has no infinity and one NaN, e5m2 is IEEE-like. */
static float fp8(uint8_t v, int mantissa, int bias, bool ieee)
{
    const int exponent_bits = 7 - mantissa, all = (1 << exponent_bits) - 1;
    const int e = v >> mantissa & all, m = v & ((1 << mantissa) - 1);
    const float sign = v & 0x80 ? -1.0f : 1.0f;
    if (ieee && e == all)
        return m ? NAN : sign * INFINITY;
    if (!ieee && (v & 0x7f) == 0x7f)
        return NAN;
    const float fraction = (float)m / (float)(1 << mantissa);
    return sign * (e ? ldexpf(1.0f + fraction, e - bias) : ldexpf(fraction, 1 - bias));
}

static float decode_float(enum teg_mil_dtype dtype, const uint8_t *p, size_t i)
{
    union {
        uint32_t u;
        float f;
    } w;
    union {
        uint64_t u;
        double f;
    } d;
    switch (dtype) {
    case TEG_MIL_FP16:
        return teg_f16_to_f32((uint16_t)read_le(p + 2 * i, 2));
    case TEG_MIL_BF16:
        return teg_bf16_to_f32((uint16_t)read_le(p + 2 * i, 2));
    case TEG_MIL_FP64:
        d.u = read_le(p + 8 * i, 8);
        return (float)d.f;
    case TEG_MIL_FP8E4M3FN:
        return fp8(p[i], 3, 7, false);
    case TEG_MIL_FP8E5M2:
        return fp8(p[i], 2, 15, true);
    default:
        w.u = (uint32_t)read_le(p + 4 * i, 4);
        return w.f;
    }
}

/* 64-bit integers are clipped to what an int32 holds: that is what compilers of Core ML do with them; uint32 keeps its
 * bits. */
static int32_t decode_int(const struct teg_mil_dtype_info *info, const uint8_t *p, size_t i)
{
    const bool is_signed = info->class_ == TEG_MIL_CLASS_INT;
    if (info->bits == 64) {
        const uint64_t u = read_le(p + 8 * i, 8);
        if (!is_signed)
            return u > INT32_MAX ? INT32_MAX : (int32_t)u;
        const int64_t v = (int64_t)u;
        return v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : (int32_t)v;
    }
    const uint32_t u =
        info->bits < 8 ? read_bits(p, i, info->bits) : (uint32_t)read_le(p + i * info->bits / 8, info->bits / 8);
    const uint32_t sign = info->bits < 32 && is_signed ? 1u << (info->bits - 1) : 0;
    return (int32_t)((u ^ sign) - sign);
}

static void decode_tensor(const struct teg_mil_const *k, struct teg_array *array)
{
    const struct teg_mil_dtype_info *const info = teg_mil_dtype_info(k->type.dtype);
    if (k->type.dtype == TEG_MIL_FP16 || k->type.dtype == TEG_MIL_FP32) {
        const enum teg_dtype dtype = k->type.dtype == TEG_MIL_FP16 ? TEG_DTYPE_F16 : TEG_DTYPE_F32;
        teg_dtype_decode(dtype, k->bytes, array->f32, array->n);
        return;
    }
    for (size_t i = 0; i < array->n; i++) {
        switch (array->form) {
        case TEG_FORM_F32:
            array->f32[i] = decode_float(k->type.dtype, k->bytes, i);
            break;
        case TEG_FORM_I32:
            array->i32[i] = decode_int(info, k->bytes, i);
            break;
        case TEG_FORM_BOOL:
            array->b[i] = k->bytes[i] != 0;
            break;
        default:
            array->strings[i] = k->strings[i];
        }
    }
}

static enum teg_status decode_list(const struct teg_allocator *allocator, const struct teg_mil_const *k,
                                   const char *name, struct teg_array **out, struct teg_error *err)
{
    /* A list or tuple of scalars of one type is a vector: `classes` of classify, `elem_shape` of make_list. */
    if (!k->n_items)
        FAIL(err, TEG_ERR_UNSUPPORTED, "cannot load program: constant %s: expected a list with items, found none",
             name);
    const size_t dims[1] = {k->n_items};
    struct teg_array *const array = teg_array_new(allocator, k->items[0].type.dtype, 1, dims);
    if (!array)
        return teg_base_fail_memory(err, name, k->n_items * sizeof(struct teg_string));
    for (size_t i = 0; i < k->n_items; i++) {
        const struct teg_mil_const *const item = &k->items[i];
        struct teg_array *one = NULL;
        enum teg_status s = TEG_ERR_UNSUPPORTED;
        if (item->type.kind == TEG_MIL_TENSOR && item->type.rank == 0 && teg_form_of(item->type.dtype) == array->form)
            s = teg_array_from_const(allocator, item, name, &one, err);
        else
            teg_base_fail(err, s, 0, "cannot load program: constant %s: expected a list of scalars of one type", name);
        if (s != TEG_OK) {
            teg_array_drop(allocator, array);
            return s;
        }
        memcpy((char *)array->data + i * form_bytes[array->form], one->data, form_bytes[array->form]);
        teg_array_drop(allocator, one);
    }
    *out = array;
    return TEG_OK;
}

enum teg_status teg_array_from_const(const struct teg_allocator *allocator, const struct teg_mil_const *constant,
                                     const char *name, struct teg_array **array, struct teg_error *err)
{
    const struct teg_mil_type *const t = &constant->type;
    if (t->kind == TEG_MIL_LIST || t->kind == TEG_MIL_TUPLE)
        return decode_list(allocator, constant, name, array, err);
    if (t->kind != TEG_MIL_TENSOR || t->rank < 0)
        FAIL(err, TEG_ERR_UNSUPPORTED,
             "cannot load program: constant %s: expected a tensor or a list, found another "
             "kind of value",
             name);
    const struct teg_mil_dtype_info *const info = teg_mil_dtype_info(t->dtype);
    size_t dims[TEG_MIL_MAX_RANK], n = 1, bits;
    for (int32_t d = 0; d < t->rank; d++) {
        dims[d] = (size_t)t->dims[d];
        if (t->dims[d] < 0 || !teg_mul(n, dims[d], &n))
            FAIL(err, TEG_ERR_FORMAT, "cannot load program: constant %s: expected a known shape", name);
    }
    const bool is_string = info->class_ == TEG_MIL_CLASS_STRING;
    if (!teg_mul(n, info->bits, &bits) ||
        (is_string ? n && !constant->strings : constant->n_bytes < bits / 8 + (bits % 8 != 0)))
        FAIL(err, TEG_ERR_FORMAT, "cannot load program: constant %s: expected %zu elements of %s, found %zu bytes",
             name, n, info->name, constant->n_bytes);
    struct teg_array *const made = teg_array_new(allocator, t->dtype, (uint32_t)t->rank, dims);
    if (!made)
        return teg_base_fail_memory(err, name, n * sizeof(float));
    decode_tensor(constant, made);
    *array = made;
    return TEG_OK;
}
