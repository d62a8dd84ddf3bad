/* convert.c: values between callers and the evaluator: any element type in, the declared one out; images to planes and
 * back.
 *
 * Numbers keep their value: what does not fit the declared integer type is an error that says where, a fraction is cut
 * off towards zero as Core ML's own conversion does. NaN and infinities are ordinary values of float inputs.
 * Every element goes through a double except where nothing changes: one loop for 12 x 12 pairs of types, and inputs
 * are small beside what is computed from them. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "program.h"

/* ---- reading and writing one element ---- */

static double read_element(enum teg_element element, const void *data, size_t i)
{
    const uint8_t *const p = (const uint8_t *)data + i * teg_element_bytes(element);
    union {
        float f32;
        double f64;
        int8_t i8;
        int16_t i16;
        uint16_t u16;
        int32_t i32;
        uint32_t u32;
        int64_t i64;
        uint64_t u64;
    } v;
    memcpy(&v, p, teg_element_bytes(element));
    switch (element) {
    case TEG_ELEMENT_F16:
        return (double)teg_f16_to_f32(v.u16);
    case TEG_ELEMENT_F32:
        return (double)v.f32;
    case TEG_ELEMENT_F64:
        return v.f64;
    case TEG_ELEMENT_I8:
        return v.i8;
    case TEG_ELEMENT_I16:
        return v.i16;
    case TEG_ELEMENT_U16:
        return v.u16;
    case TEG_ELEMENT_I32:
        return v.i32;
    case TEG_ELEMENT_U32:
        return v.u32;
    case TEG_ELEMENT_I64:
        return (double)v.i64;
    case TEG_ELEMENT_U64:
        return (double)v.u64;
    default: /* bytes: u8, bool */
        return *p;
    }
}

static void write_integer(enum teg_element element, void *to, int32_t x)
{
    const int64_t wide = x;
    const uint64_t bits = element == TEG_ELEMENT_U64 ? (uint64_t)(uint32_t)x : (uint64_t)wide;
    memcpy(to, &bits, teg_element_bytes(element)); /* little-endian: the low bytes; see below */
}

static void write_real(enum teg_element element, void *to, float x)
{
    const double wide = (double)x;
    const uint16_t half = element == TEG_ELEMENT_F16 ? teg_f32_to_f16(x) : 0;
    const void *const from = element == TEG_ELEMENT_F16   ? (const void *)&half
                             : element == TEG_ELEMENT_F64 ? (const void *)&wide
                                                          : (const void *)&x;
    memcpy(to, from, teg_element_bytes(element));
}

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "write_integer takes the low bytes first"
#endif

/* ---- values to arrays ---- */

struct teg_shape_text teg_value_shape_text(const struct teg_feature_value *value)
{
    size_t dims[TEG_MAX_RANK] = {0};
    const uint32_t rank = value->rank < TEG_MAX_RANK ? value->rank : TEG_MAX_RANK;
    for (uint32_t d = 0; d < rank; d++)
        dims[d] = (size_t)value->dims[d];
    return teg_shape_text(rank, dims);
}

static enum teg_status fill_integers(const struct teg_feature_value *value, const char *what,
                                     const struct teg_mil_dtype_info *info, struct teg_array *array,
                                     struct teg_error *err)
{
    const bool is_signed = info->class_ == TEG_MIL_CLASS_INT;
    const int bits = info->bits > 32 ? 32 : (int)info->bits; /* the evaluator's integers have 32 */
    const double low = is_signed ? -ldexp(1, bits - 1) : 0, high = ldexp(1, is_signed ? bits - 1 : bits) - 1;
    if (value->element == TEG_ELEMENT_I32 && is_signed && bits == 32) {
        memcpy(array->i32, value->data, array->n * sizeof *array->i32);
        return TEG_OK;
    }
    for (size_t i = 0; i < array->n; i++) {
        const double x = trunc(read_element(value->element, value->data, i));
        if (!(x >= low && x <= high))
            FAIL(err, TEG_ERR_ARGUMENT,
                 "%s '%.100s': expected numbers from %.0f to %.0f (%s), found %g at element %zu; check how the input "
                 "is made",
                 what, value->name, low, high, info->name, x, i);
        array->i32[i] = (int32_t)(uint32_t)(int64_t)x;
    }
    return TEG_OK;
}

static enum teg_status fill(const struct teg_feature_value *value, const char *what, struct teg_array *array,
                            struct teg_error *err)
{
    if (array->form == TEG_FORM_I32)
        return fill_integers(value, what, teg_mil_dtype_info(array->dtype), array, err);
    if (array->form == TEG_FORM_F32 && value->element == TEG_ELEMENT_F32) {
        memcpy(array->f32, value->data, array->n * sizeof *array->f32);
        return TEG_OK;
    }
    for (size_t i = 0; i < array->n; i++) {
        const double x = read_element(value->element, value->data, i);
        if (array->form == TEG_FORM_BOOL)
            array->b[i] = x != 0;
        else
            array->f32[i] = (float)x;
    }
    return TEG_OK;
}

enum teg_status teg_value_to_array(const struct teg_allocator *allocator, const struct teg_feature_value *value,
                                   const char *what, enum teg_mil_dtype dtype, uint32_t rank, const size_t *dims,
                                   struct teg_array **array, struct teg_error *err)
{
    if (teg_form_of(dtype) == TEG_FORM_STRING || (size_t)value->element >= TEG_ELEMENT_COUNT || !value->data)
        FAIL(err, TEG_ERR_ARGUMENT, "%s '%.100s': expected an array of numbers, found none; pass one", what,
             value->name);
    struct teg_array *const made = teg_array_new(allocator, dtype, rank, dims);
    if (!made)
        FAIL(err, TEG_ERR_MEMORY, "%s '%.100s': expected memory for shape %s, found none", what, value->name,
             teg_shape_text(rank, dims).text);
    const enum teg_status status = fill(value, what, made, err);
    if (status == TEG_OK)
        *array = made;
    else
        teg_array_drop(allocator, made);
    return status;
}

/* ---- images ---- */

static uint8_t to_byte(float x)
{
    return (uint8_t)(x > 0 ? lrintf(x < 255 ? x : 255) : 0); /* NaN is 0 */
}

static void set_pixel(struct teg_array *array, size_t i, float x)
{
    if (array->form == TEG_FORM_F32)
        array->f32[i] = x;
    else
        array->i32[i] = to_byte(x);
}

static float get_pixel(const struct teg_array *array, size_t i)
{
    return array->form == TEG_FORM_F32 ? array->f32[i] : (float)array->i32[i];
}

enum teg_status teg_image_to_array(const struct teg_allocator *allocator, const struct teg_feature_value *value,
                                   const struct teg_mil_feature *feature, const struct teg_mil_type *type,
                                   struct teg_array **array, struct teg_error *err)
{
    const bool is_colour = feature->colour == TEG_MIL_RGB || feature->colour == TEG_MIL_BGR;
    const size_t n_channels = is_colour ? 3 : 1, given = value->rank == 3 ? (size_t)value->dims[2] : 1;
    if (!value->data || (value->rank != 2 && value->rank != 3) || given < n_channels || (!is_colour && given != 1) ||
        given > 4)
        FAIL(err, TEG_ERR_ARGUMENT, "cannot predict: input '%.100s': expected an image of shape %s, found %s; pass %s",
             feature->name, is_colour ? "HxWx3" : "HxW", teg_value_shape_text(value).text,
             value->rank > 3 ? "one image without a batch"
             : is_colour     ? "a colour image"
                             : "a grey image");
    const size_t height = (size_t)value->dims[0], width = (size_t)value->dims[1];
    const size_t dims[4] = {1, n_channels, height, width};
    const uint32_t rank = type->rank == 3 ? 3 : 4;
    if (teg_form_of(type->dtype) != TEG_FORM_F32 && type->dtype != TEG_MIL_UINT8)
        FAIL(err, TEG_ERR_UNSUPPORTED, "cannot predict: input '%.100s': expected an image of floats or uint8, found %s",
             feature->name, teg_mil_dtype_info(type->dtype)->name);
    struct teg_array *const made = teg_array_new(allocator, type->dtype, rank, dims + (4 - rank));
    if (!made)
        return teg_base_fail_memory(err, "an image", n_channels * height * width * sizeof(float));
    for (size_t c = 0; c < n_channels; c++) {
        const size_t from = feature->colour == TEG_MIL_BGR ? 2 - c : c;
        for (size_t i = 0; i < height * width; i++)
            set_pixel(made, c * height * width + i, (float)read_element(value->element, value->data, i * given + from));
    }
    *array = made;
    return TEG_OK;
}

enum teg_status teg_array_to_image(struct teg_values *values, size_t index, const struct teg_array *array,
                                   enum teg_mil_colour colour, struct teg_error *err)
{
    struct teg_feature_value *const out = &values->items[index];
    const bool is_colour = colour == TEG_MIL_RGB || colour == TEG_MIL_BGR, is_float = colour == TEG_MIL_GRAY_FP16;
    const size_t n_channels = is_colour ? 3 : 1;
    const size_t *const dims = array->dims + (array->rank - 3);
    const bool has_pixels = array->form == TEG_FORM_F32 || array->dtype == TEG_MIL_UINT8;
    if (!has_pixels || array->rank < 3 || array->rank > 4 || dims[0] != n_channels ||
        (array->rank == 4 && array->dims[0] != 1))
        FAIL(err, TEG_ERR_UNSUPPORTED,
             "cannot predict: output '%.100s': expected an image of shape 1x%zuxHxW, found %s; export it as an array",
             out->name, n_channels, teg_shape_text(array->rank, array->dims).text);
    const size_t n_pixels = dims[1] * dims[2];
    void *const data = teg_arena_alloc(&values->arena, array->n * (is_float ? sizeof(float) : 1));
    if (!data)
        return teg_base_fail_memory(err, "an image", array->n);
    for (size_t c = 0; c < n_channels; c++) {
        const size_t plane = (colour == TEG_MIL_BGR ? 2 - c : c) * n_pixels;
        for (size_t i = 0; i < n_pixels; i++)
            if (is_float)
                ((float *)data)[i] = get_pixel(array, plane + i);
            else
                ((uint8_t *)data)[i * n_channels + c] = to_byte(get_pixel(array, plane + i));
    }
    out->kind = TEG_FEATURE_IMAGE;
    out->element = is_float ? TEG_ELEMENT_F32 : TEG_ELEMENT_U8;
    out->rank = is_colour ? 3 : 2;
    out->dims[0] = dims[1];
    out->dims[1] = dims[2];
    out->dims[2] = is_colour ? 3 : 0;
    out->data = data;
    return TEG_OK;
}

/* ---- arrays to values ---- */

enum teg_status teg_values_new(const struct teg_allocator *allocator, size_t n, struct teg_values **values,
                               struct teg_error *err)
{
    struct teg_arena arena;
    teg_arena_init(&arena, allocator);
    struct teg_values *const made = teg_arena_alloc(&arena, sizeof *made);
    struct teg_feature_value *const items = teg_arena_array(&arena, n, sizeof *items);
    if (!made || !items) {
        teg_arena_free(&arena);
        return teg_base_fail_memory(err, "outputs", n * sizeof *items);
    }
    *made = (struct teg_values){.items = items, .n = n};
    made->arena = arena;
    *values = made;
    return TEG_OK;
}

enum teg_status teg_array_to_value(struct teg_values *values, size_t index, const struct teg_array *array,
                                   struct teg_error *err)
{
    struct teg_feature_value *const out = &values->items[index];
    size_t n_bytes = 0;
    if (array->form > TEG_FORM_BOOL || !teg_program_element(array->dtype, &out->element) ||
        !teg_mul(array->n, teg_element_bytes(out->element), &n_bytes))
        FAIL(err, TEG_ERR_UNSUPPORTED, "cannot predict: output '%.100s': expected an array of numbers, found %s",
             out->name, array->form == TEG_FORM_LIST ? "a list" : teg_mil_dtype_info(array->dtype)->name);
    uint8_t *const data = teg_arena_alloc(&values->arena, n_bytes);
    if (!data)
        return teg_base_fail_memory(err, "an output", n_bytes);
    const size_t step = teg_element_bytes(out->element);
    if (array->form == TEG_FORM_F32 && out->element == TEG_ELEMENT_F32)
        memcpy(data, array->data, n_bytes);
    else
        for (size_t i = 0; i < array->n; i++) {
            if (array->form == TEG_FORM_F32)
                write_real(out->element, data + i * step, array->f32[i]);
            else
                write_integer(out->element, data + i * step,
                              array->form == TEG_FORM_BOOL ? array->b[i] : array->i32[i]);
        }
    out->kind = TEG_FEATURE_ARRAY;
    out->rank = array->rank ? array->rank : 1; /* scalars go out with shape (1) */
    out->dims[0] = 1;
    for (uint32_t d = 0; d < array->rank; d++)
        out->dims[d] = array->dims[d];
    out->data = data;
    return TEG_OK;
}

size_t teg_values_count(const struct teg_values *values)
{
    return values ? values->n : 0;
}

const struct teg_feature_value *teg_values_at(const struct teg_values *values, size_t index)
{
    return values && index < values->n ? &values->items[index] : NULL;
}

void teg_values_free(struct teg_values *values)
{
    if (!values)
        return;
    struct teg_arena arena = values->arena;
    teg_arena_free(&arena);
}

void teg_values_report(const struct teg_values *values, struct teg_predict_report *report)
{
    *report = values->report;
}
