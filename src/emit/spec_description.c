/* emit/spec_description.c: the ModelDescription message, as mil/describe.c reads it (its field numbers stand there).
 *
 * A model with one function has the single form, others the list of functions with a default; never both. */
#include "emit/emit_int.h"

/* ---- arrays and images ---- */

static uint64_t array_type(enum teg_mil_dtype dtype)
{
    switch (dtype) {
    case TEG_MIL_FP16:
        return 65552;
    case TEG_MIL_FP64:
        return 65600;
    case TEG_MIL_INT32:
        return 131104;
    case TEG_MIL_INT8:
        return 131080;
    default:
        return 65568; /* fp32 */
    }
}

static void put_shape(struct teg_wire_out *w, const int64_t *dims, uint32_t rank)
{
    teg_wire_out_begin(w, 1); /* packed */
    for (uint32_t d = 0; d < rank; d++)
        teg_wire_out_varint(w, (uint64_t)dims[d]);
    teg_wire_out_end(w);
}

static void put_range(struct teg_wire_out *w, uint32_t field, int64_t lower, int64_t upper)
{
    teg_wire_out_begin(w, field);
    teg_wire_out_uint(w, 1, (uint64_t)lower);
    teg_wire_out_uint(w, 2, (uint64_t)upper); /* -1: unbounded */
    teg_wire_out_end(w);
}

static void put_default(struct teg_wire_out *w, const struct teg_mil_feature *f)
{
    const float real = (float)f->default_value;
    uint32_t bits32;
    uint64_t bits64;
    memcpy(&bits32, &real, sizeof bits32);
    memcpy(&bits64, &f->default_value, sizeof bits64);
    if (f->dtype == TEG_MIL_INT32 || f->dtype == TEG_MIL_INT8)
        teg_wire_out_uint(w, 41, (uint64_t)(int64_t)f->default_value);
    else if (f->dtype == TEG_MIL_FP64 || (double)real != f->default_value)
        teg_wire_out_fixed64(w, 61, bits64);
    else
        teg_wire_out_fixed32(w, 51, bits32);
}

static bool varies(const struct teg_mil_feature *f)
{
    for (uint32_t d = 0; d < f->rank; d++)
        if (f->lower[d] != f->shape[d] || f->upper[d] != f->shape[d])
            return true;
    return false;
}

static void put_array(struct teg_wire_out *w, uint32_t field, const struct teg_mil_feature *f)
{
    teg_wire_out_begin(w, field);
    if (f->has_shape)
        put_shape(w, f->shape, f->rank);
    teg_wire_out_uint(w, 2, array_type(f->dtype));
    if (f->n_enumerated) {
        teg_wire_out_begin(w, 21);
        for (size_t i = 0; i < f->n_enumerated; i++) {
            teg_wire_out_begin(w, 1);
            put_shape(w, f->enumerated[i], f->rank);
            teg_wire_out_end(w);
        }
        teg_wire_out_end(w);
    } else if (f->has_shape && varies(f)) {
        teg_wire_out_begin(w, 31);
        for (uint32_t d = 0; d < f->rank; d++)
            put_range(w, 1, f->lower[d], f->upper[d]);
        teg_wire_out_end(w);
    }
    if (f->has_default)
        put_default(w, f);
    teg_wire_out_end(w);
}

static void put_image(struct teg_wire_out *w, uint32_t field, const struct teg_mil_feature *f)
{
    static const uint32_t colours[] = {
        [TEG_MIL_RGB] = 20, [TEG_MIL_BGR] = 30, [TEG_MIL_GRAY] = 10, [TEG_MIL_GRAY_FP16] = 40};
    teg_wire_out_begin(w, field);
    teg_wire_out_uint(w, 1, (uint64_t)f->width);
    teg_wire_out_uint(w, 2, (uint64_t)f->height);
    teg_wire_out_uint(w, 3, colours[f->colour]);
    if (f->n_enumerated) {
        teg_wire_out_begin(w, 21);
        for (size_t i = 0; i < f->n_enumerated; i++)
            put_range(w, 1, f->enumerated[i][1], f->enumerated[i][0]); /* width, height */
        teg_wire_out_end(w);
    } else if (f->min_width != f->width || f->max_width != f->width || f->min_height != f->height ||
               f->max_height != f->height) {
        teg_wire_out_begin(w, 31);
        put_range(w, 1, f->min_width, f->max_width);
        put_range(w, 2, f->min_height, f->max_height);
        teg_wire_out_end(w);
    }
    teg_wire_out_end(w);
}

/* ---- features ---- */

static void put_empty(struct teg_wire_out *w, uint32_t field)
{
    teg_wire_out_begin(w, field);
    teg_wire_out_end(w);
}

static void put_feature_type(struct teg_wire_out *w, const struct teg_mil_feature *f)
{
    const bool is_dict = f->kind == TEG_MIL_FEATURE_DICT_INT64 || f->kind == TEG_MIL_FEATURE_DICT_STRING;
    teg_wire_out_begin(w, 3);
    if (f->kind == TEG_MIL_FEATURE_ARRAY)
        put_array(w, 5, f);
    else if (f->kind == TEG_MIL_FEATURE_IMAGE)
        put_image(w, 4, f);
    else if (f->kind == TEG_MIL_FEATURE_STATE || is_dict) {
        teg_wire_out_begin(w, is_dict ? 6 : 8);
        if (is_dict)
            put_empty(w, f->kind == TEG_MIL_FEATURE_DICT_INT64 ? 1 : 2);
        else
            put_array(w, 1, f);
        teg_wire_out_end(w);
    } else
        put_empty(w, f->kind == TEG_MIL_FEATURE_INT64    ? 1
                     : f->kind == TEG_MIL_FEATURE_DOUBLE ? 2
                     : f->kind == TEG_MIL_FEATURE_STRING ? 3
                                                         : 7);
    if (f->optional)
        teg_wire_out_uint(w, 1000, 1);
    teg_wire_out_end(w);
}

static void put_features(struct teg_wire_out *w, uint32_t field, const struct teg_mil_feature *features, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        teg_wire_out_begin(w, field);
        teg_wire_out_text(w, 1, features[i].name);
        if (features[i].description && features[i].description[0])
            teg_wire_out_text(w, 2, features[i].description);
        put_feature_type(w, &features[i]);
        teg_wire_out_end(w);
    }
}

/* ---- interfaces and metadata ---- */

struct numbers {
    uint32_t input, output, state, predicted, probabilities;
};

static void put_interface(struct teg_wire_out *w, const struct teg_mil_interface *in, const struct numbers *n)
{
    put_features(w, n->input, in->inputs, in->n_inputs);
    put_features(w, n->output, in->outputs, in->n_outputs);
    if (in->predicted_feature[0])
        teg_wire_out_text(w, n->predicted, in->predicted_feature);
    if (in->predicted_probabilities[0])
        teg_wire_out_text(w, n->probabilities, in->predicted_probabilities);
    put_features(w, n->state, in->states, in->n_states);
}

static void put_metadata(struct teg_wire_out *w, const struct teg_mil_program *p)
{
    const char *const texts[] = {p->description, p->version, p->author, p->license};
    teg_wire_out_begin(w, 100);
    for (uint32_t i = 0; i < 4; i++)
        if (texts[i] && texts[i][0])
            teg_wire_out_text(w, i + 1, texts[i]);
    for (size_t i = 0; i < p->n_user_metadata; i++) {
        teg_wire_out_begin(w, 100);
        teg_wire_out_bytes(w, 1, p->user_metadata[i][0].bytes, p->user_metadata[i][0].n_bytes);
        teg_wire_out_bytes(w, 2, p->user_metadata[i][1].bytes, p->user_metadata[i][1].n_bytes);
        teg_wire_out_end(w);
    }
    teg_wire_out_end(w);
}

void teg_emit_description(struct teg_emitter *e, struct teg_wire_out *w, uint32_t field)
{
    static const struct numbers single = {1, 10, 13, 11, 12}, listed = {2, 3, 6, 4, 5};
    const struct teg_mil_program *const p = e->program;
    const bool is_single = p->n_functions == 1 && (p->spec_version < 9 || !strcmp(p->functions[0].name, "main"));
    teg_wire_out_begin(w, field);
    if (is_single)
        put_interface(w, &p->interfaces[0], &single);
    for (size_t i = 0; i < p->n_functions && !is_single; i++) {
        teg_wire_out_begin(w, 20);
        teg_wire_out_text(w, 1, p->interfaces[i].function);
        put_interface(w, &p->interfaces[i], &listed);
        teg_wire_out_end(w);
    }
    if (!is_single)
        teg_wire_out_text(w, 21, p->default_function);
    put_metadata(w, p);
    teg_wire_out_end(w);
}
