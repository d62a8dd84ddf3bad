/* mil/make_packed.c: rules of the constexpr ops: the weight that packed parts stand for. Parts and weight must agree in
 * every dimension, because a device does not say what is wrong with them. */
#include "mil/make_int.h"

/* Each dimension of `part` divides that of `whole`. */
static bool divides(struct teg_mil_making *o, const char *part_name, const struct teg_mil_type *whole, int32_t rank)
{
    const struct teg_mil_type *const part = teg_mil_making_type(o, part_name);
    if (!part)
        return true;
    bool ok = part->rank >= rank;
    for (int32_t d = 0; ok && d < rank; d++)
        ok = part->dims[d] > 0 && whole->dims[d] % part->dims[d] == 0;
    return ok || teg_mil_op_fail(o,
                                 "expected '%s' of the weight's rank, each dimension dividing the weight's, found "
                                 "another",
                                 part_name);
}

static bool is_uint(const struct teg_mil_type *t)
{
    return teg_mil_dtype_info(t->dtype)->class_ == TEG_MIL_CLASS_UINT && teg_mil_dtype_info(t->dtype)->bits <= 8;
}

bool teg_mil_rule_blockwise_shift_scale(struct teg_mil_making *o)
{
    const struct teg_mil_type *const data = teg_mil_making_type(o, "data"), *const s = teg_mil_making_type(o, "scale");
    const struct teg_mil_type *const offset = teg_mil_making_type(o, "offset");
    if (s->rank != data->rank)
        return teg_mil_op_fail(o, "expected 'scale' of rank %d, found %d", data->rank, s->rank);
    if (!divides(o, "scale", data, data->rank))
        return false;
    for (int32_t d = 0; offset && d < data->rank; d++)
        if (offset->rank != s->rank || offset->dims[d] != s->dims[d])
            return teg_mil_op_fail(o, "expected 'offset' of the shape of 'scale', found another");
    o->out[0] = *data;
    o->out[0].dtype = s->dtype;
    return true;
}

/* lut [groups of each dimension…, entries, vector] for indices of that rank. */
static bool check_lut(struct teg_mil_making *o, const struct teg_mil_type *indices, enum teg_mil_dtype index_type,
                      int32_t *axis, int64_t *width)
{
    const struct teg_mil_type *const lut = teg_mil_making_type(o, "lut");
    const int64_t entries = (int64_t)1 << teg_mil_dtype_info(index_type)->bits;
    if (lut->rank != indices->rank + 2 || !divides(o, "lut", indices, indices->rank))
        return teg_mil_op_fail(o, "expected 'lut' of rank %d, found %d", indices->rank + 2, lut->rank);
    if (lut->dims[lut->rank - 2] != entries)
        return teg_mil_op_fail(o, "expected tables of %lld entries, found %lld", (long long)entries,
                               (long long)lut->dims[lut->rank - 2]);
    *width = lut->dims[lut->rank - 1];
    if (*width > 1 && !teg_mil_making_arg(o, "vector_axis"))
        return teg_mil_op_fail(o, "expected 'vector_axis' for entries of %lld values, found none", (long long)*width);
    return teg_mil_making_axis(o, "vector_axis", 0, indices->rank ? indices->rank : 1, axis);
}

/* The older form: flat indices and a `shape`. */
static bool shape_arg(struct teg_mil_making *o, enum teg_mil_dtype dtype)
{
    struct teg_mil_known shape;
    if (!teg_mil_known_arg(o, "shape", &shape) || shape.n > TEG_MIL_MAX_RANK)
        return teg_mil_op_fail(o, "expected a constant 'shape', found another value");
    o->out[0] = (struct teg_mil_type){.kind = TEG_MIL_TENSOR, .dtype = dtype, .rank = (int32_t)shape.n};
    for (uint32_t i = 0; i < shape.n; i++)
        o->out[0].dims[i] = shape.at[i];
    return true;
}

static bool check_form(struct teg_mil_making *o)
{
    const bool is_old = o->opset < 9;
    return is_old == (teg_mil_making_arg(o, "shape") != NULL) ||
           teg_mil_op_fail(o, "expected 'shape' up to opset 8 and none after, found the other in opset %u", o->opset);
}

bool teg_mil_rule_lut_to_dense(struct teg_mil_making *o)
{
    const struct teg_mil_type *const indices = teg_mil_making_type(o, "indices");
    const struct teg_mil_type *const lut = teg_mil_making_type(o, "lut");
    int32_t axis;
    int64_t width;
    if (!check_form(o))
        return false;
    if (o->opset < 9)
        return shape_arg(o, lut->dtype);
    if (!is_uint(indices))
        return teg_mil_op_fail(o, "expected 'indices' of uint1 to uint8, found %s",
                               teg_mil_dtype_info(indices->dtype)->name);
    if (!check_lut(o, indices, indices->dtype, &axis, &width))
        return false;
    o->out[0] = *indices;
    o->out[0].dtype = lut->dtype;
    if (width > 1)
        o->out[0].dims[axis] *= width;
    return true;
}

bool teg_mil_rule_sparse_to_dense(struct teg_mil_making *o)
{
    const struct teg_mil_type *const data = teg_mil_making_type(o, "nonzero_data");
    const struct teg_mil_type *const mask = teg_mil_making_type(o, "mask");
    if (!check_form(o))
        return false;
    if (o->opset < 9)
        return shape_arg(o, data->dtype);
    if (data->rank != 1 || mask->dtype != TEG_MIL_UINT1)
        return teg_mil_op_fail(o, "expected a vector of values and a mask of uint1, found others");
    o->out[0] = *mask;
    o->out[0].dtype = data->dtype;
    return true;
}

/* The mask, wider by the entries' width, and the values behind it. */
bool teg_mil_rule_lut_to_sparse(struct teg_mil_making *o)
{
    const struct teg_mil_type *const mask = teg_mil_making_type(o, "indices_mask");
    const struct teg_mil_type *const data = teg_mil_making_type(o, "indices_nonzero_data");
    int32_t axis;
    int64_t width;
    if (mask->dtype != TEG_MIL_UINT1 || data->rank != 1 || !is_uint(data))
        return teg_mil_op_fail(o, "expected a mask of uint1 and a vector of uint1 to uint8, found others");
    if (!check_lut(o, mask, data->dtype, &axis, &width))
        return false;
    o->out[0] = *mask;
    o->out[1] = *data;
    o->out[1].dtype = teg_mil_making_type(o, "lut")->dtype;
    if (width > 1) {
        o->out[0].dims[axis] *= width;
        o->out[1].dims[0] *= width;
    }
    return true;
}

bool teg_mil_rule_sparse_blockwise_shift_scale(struct teg_mil_making *o)
{
    const struct teg_mil_type *const mask = teg_mil_making_type(o, "data_mask");
    const struct teg_mil_type *const data = teg_mil_making_type(o, "nonzero_data");
    const struct teg_mil_type *const s = teg_mil_making_type(o, "scale");
    if (mask->dtype != TEG_MIL_UINT1 || data->rank != 1 || s->rank != mask->rank)
        return teg_mil_op_fail(o, "expected a mask of uint1, a vector of values and a scale of the mask's rank, found "
                                  "others");
    if (!divides(o, "scale", mask, mask->rank))
        return false;
    o->out[0] = *mask;
    o->out[1] = *data;
    o->out[1].dtype = s->dtype;
    return true;
}

bool teg_mil_rule_affine_dequantize(struct teg_mil_making *o)
{
    const struct teg_mil_type *const data = teg_mil_making_type(o, "quantized_data");
    const struct teg_mil_type *const scale = teg_mil_making_type(o, "scale");
    int32_t axis;
    if (data->rank < 1 || !teg_mil_making_axis(o, "axis", 0, data->rank, &axis))
        return teg_mil_op_fail(o, "expected data of rank 1 or more and an axis of it, found others");
    if (scale->rank > 1 || (scale->rank == 1 && scale->dims[0] != data->dims[axis]))
        return teg_mil_op_fail(o, "expected one scale or %lld, found another number", (long long)data->dims[axis]);
    o->out[0] = *data;
    o->out[0].dtype = scale->dtype;
    return true;
}
