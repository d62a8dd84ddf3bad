/* mil/describe.c: the ModelDescription message: what goes in and out of each function, and who made the model.
 *
 *   ModelDescription     1 input   10 output   13 state   11 predictedFeatureName   12 predictedProbabilitiesName
 *                        20 functions {1 name, 2 input, 3 output, 6 state, 4, 5 predicted…}   21 defaultFunctionName
 *                        100 metadata {1 shortDescription, 2 versionString, 3 author, 4 license, 100 userDefined}
 *   FeatureDescription   1 name   2 shortDescription   3 type
 *   FeatureType          1 int64, 2 double, 3 string, 4 image, 5 multiArray, 6 dictionary, 7 sequence, 8 state;
 *                        1000 isOptional
 *   multiArray           1 shape   2 dataType   21 enumeratedShapes   31 shapeRange   41/51/61 default int/float/double
 *   image                1 width   2 height   3 colorSpace   21 enumeratedSizes   31 imageSizeRange
 *
 * A model has either the single-function form (1, 10, 13) or the list of functions, never both. */
#include "mil/impl.h"

struct msg_count {
    size_t n;
};
static const struct teg_wire_row count_rows[] = {{1, TEG_WIRE_COUNT, offsetof(struct msg_count, n)}};
struct msg_bounds {
    uint64_t lower, upper;
};
static const struct teg_wire_row bounds_rows[] = {
    {1, TEG_WIRE_UINT, offsetof(struct msg_bounds, lower)},
    {2, TEG_WIRE_UINT, offsetof(struct msg_bounds, upper)},
};

/* ---- arrays ---- */

struct msg_array {
    size_t n_shape;
    uint64_t dtype, default_int, default_float, default_double;
    size_t n_default_int, n_default_float, n_default_double;
    struct teg_span enumerated, range;
};
static const struct teg_wire_row array_rows[] = {
    {1, TEG_WIRE_COUNT, offsetof(struct msg_array, n_shape)},
    {2, TEG_WIRE_UINT, offsetof(struct msg_array, dtype)},
    {21, TEG_WIRE_SPAN, offsetof(struct msg_array, enumerated)},
    {31, TEG_WIRE_SPAN, offsetof(struct msg_array, range)},
    {41, TEG_WIRE_UINT, offsetof(struct msg_array, default_int)},
    {41, TEG_WIRE_COUNT, offsetof(struct msg_array, n_default_int)},
    {51, TEG_WIRE_UINT, offsetof(struct msg_array, default_float)},
    {51, TEG_WIRE_COUNT, offsetof(struct msg_array, n_default_float)},
    {61, TEG_WIRE_UINT, offsetof(struct msg_array, default_double)},
    {61, TEG_WIRE_COUNT, offsetof(struct msg_array, n_default_double)},
};

static const struct {
    uint64_t number;
    enum teg_mil_dtype dtype;
} array_types[] = {{65552, TEG_MIL_FP16},
                   {65568, TEG_MIL_FP32},
                   {65600, TEG_MIL_FP64},
                   {131104, TEG_MIL_INT32},
                   {131080, TEG_MIL_INT8}};

/* Field 1 of a message, repeated int64, packed or not, as at most TEG_MIL_MAX_RANK dimensions. */
static enum teg_status read_shape(struct teg_mil_reader *r, struct teg_span message, int64_t *dims, uint32_t *rank)
{
    struct teg_wire_iter iter = teg_wire_iter_of(message, 1);
    struct teg_wire_field f;
    uint32_t n = 0;
    while (teg_wire_each(&iter, &f)) {
        struct teg_cursor c = teg_cursor_of(f.bytes.bytes, f.bytes.n_bytes);
        const bool is_packed = f.type == TEG_WIRE_BYTES;
        uint64_t v = f.value;
        while (!is_packed || teg_cursor_left(&c)) {
            if (is_packed && !teg_wire_varint(&c, &v))
                return teg_mil_wire_fail(r, f.bytes, c.position_bytes, "a shape");
            if (n == TEG_MIL_MAX_RANK || v > INT64_MAX)
                MIL_FAIL(r, TEG_ERR_FORMAT, message.bytes,
                         "expected shapes of at most %d dimensions below 2^63, found another; export the model again",
                         TEG_MIL_MAX_RANK);
            dims[n++] = (int64_t)v;
            if (!is_packed)
                break;
        }
    }
    *rank = n;
    return TEG_OK;
}

static enum teg_status read_enumerated(struct teg_mil_reader *r, struct teg_span message, struct teg_mil_feature *f)
{
    struct msg_count m = {0};
    MIL_READ(r, message, count_rows, &m, "EnumeratedShapes");
    int64_t(*const shapes)[TEG_MIL_MAX_RANK] = teg_arena_array(r->arena, m.n, sizeof *shapes);
    if (!shapes)
        return teg_mil_no_memory(r, m.n * sizeof *shapes);
    struct teg_wire_iter iter = teg_wire_iter_of(message, 1);
    struct teg_wire_field shape;
    for (size_t i = 0; i < m.n && teg_wire_each(&iter, &shape); i++) {
        struct msg_count dims = {0};
        uint32_t rank = 0;
        MIL_READ(r, shape.bytes, count_rows, &dims, "an enumerated shape");
        TRY(read_shape(r, shape.bytes, shapes[i], &rank));
        if (!f->has_shape) { /* the first one is the default */
            f->has_shape = true;
            f->rank = rank;
            memcpy(f->shape, shapes[i], sizeof f->shape);
        }
        if (rank != f->rank)
            MIL_FAIL(r, TEG_ERR_FORMAT, shape.bytes.bytes,
                     "expected enumerated shapes of one rank in '%.60s', found %u and %u; export the model again",
                     f->name, f->rank, rank);
    }
    f->enumerated = (const int64_t(*)[TEG_MIL_MAX_RANK])shapes;
    f->n_enumerated = m.n;
    for (uint32_t d = 0; d < f->rank; d++)
        for (size_t i = 0; i < m.n; i++) {
            f->lower[d] = i && f->lower[d] < shapes[i][d] ? f->lower[d] : shapes[i][d];
            f->upper[d] = i && f->upper[d] > shapes[i][d] ? f->upper[d] : shapes[i][d];
        }
    return TEG_OK;
}

static enum teg_status read_bounds(struct teg_mil_reader *r, struct teg_span message, int64_t *lower, int64_t *upper)
{
    struct msg_bounds m = {0};
    MIL_READ(r, message, bounds_rows, &m, "a SizeRange");
    *lower = (int64_t)m.lower;
    *upper = (int64_t)m.upper < 0 ? -1 : (int64_t)m.upper;
    if (*lower < 0 || (*upper >= 0 && *upper < *lower))
        MIL_FAIL(r, TEG_ERR_FORMAT, message.bytes,
                 "expected a size range from low to high, found %llu to %lld; export the model again",
                 (unsigned long long)m.lower, (long long)*upper);
    return TEG_OK;
}

static enum teg_status read_range(struct teg_mil_reader *r, struct teg_span message, struct teg_mil_feature *f)
{
    struct msg_count m = {0};
    MIL_READ(r, message, count_rows, &m, "a ShapeRange");
    if (m.n > TEG_MIL_MAX_RANK || (f->has_shape && m.n != f->rank))
        MIL_FAIL(r, TEG_ERR_FORMAT, message.bytes,
                 "expected a size range for each dimension of '%.60s', found %zu for rank %u; export the model again",
                 f->name, m.n, f->rank);
    struct teg_wire_iter iter = teg_wire_iter_of(message, 1);
    struct teg_wire_field range;
    for (size_t i = 0; i < m.n && teg_wire_each(&iter, &range); i++)
        TRY(read_bounds(r, range.bytes, &f->lower[i], &f->upper[i]));
    if (!f->has_shape)
        memcpy(f->shape, f->lower, sizeof f->shape);
    f->has_shape = true;
    f->rank = (uint32_t)m.n;
    return TEG_OK;
}

/* -0.0 == 0: the bits matter, so they are copied. */
static void read_default(const struct msg_array *m, struct teg_mil_feature *f)
{
    const uint32_t float_bits = (uint32_t)m->default_float;
    float real;
    memcpy(&real, &float_bits, sizeof real);
    f->has_default = m->n_default_int || m->n_default_float || m->n_default_double;
    if (m->n_default_int)
        f->default_value = (double)(int32_t)(uint32_t)m->default_int;
    else if (m->n_default_float)
        f->default_value = (double)real;
    else
        memcpy(&f->default_value, &m->default_double, sizeof f->default_value);
}

static enum teg_status read_array(struct teg_mil_reader *r, struct teg_span message, struct teg_mil_feature *f)
{
    struct msg_array m = {0};
    MIL_READ(r, message, array_rows, &m, "an ArrayFeatureType");
    bool is_known = false;
    for (size_t i = 0; i < sizeof array_types / sizeof *array_types; i++)
        if (array_types[i].number == m.dtype) {
            f->dtype = array_types[i].dtype;
            is_known = true;
        }
    if (!is_known)
        MIL_FAIL(r, TEG_ERR_UNSUPPORTED, message.bytes,
                 "expected feature '%.60s' to have a known element type, found %llu; update tegula", f->name,
                 (unsigned long long)m.dtype);
    f->kind = TEG_MIL_FEATURE_ARRAY;
    TRY(read_shape(r, message, f->shape, &f->rank));
    f->has_shape = f->rank > 0;
    memcpy(f->lower, f->shape, sizeof f->lower);
    memcpy(f->upper, f->shape, sizeof f->upper);
    read_default(&m, f);
    if (m.enumerated.bytes)
        TRY(read_enumerated(r, m.enumerated, f));
    if (m.range.bytes)
        TRY(read_range(r, m.range, f));
    return TEG_OK;
}

/* ---- images ---- */

struct msg_image {
    uint64_t width, height, colour;
    struct teg_span enumerated, range;
};
static const struct teg_wire_row image_rows[] = {
    {1, TEG_WIRE_UINT, offsetof(struct msg_image, width)},  {2, TEG_WIRE_UINT, offsetof(struct msg_image, height)},
    {3, TEG_WIRE_UINT, offsetof(struct msg_image, colour)}, {21, TEG_WIRE_SPAN, offsetof(struct msg_image, enumerated)},
    {31, TEG_WIRE_SPAN, offsetof(struct msg_image, range)},
};
struct msg_image_range {
    struct teg_span width, height;
};
static const struct teg_wire_row image_range_rows[] = {
    {1, TEG_WIRE_SPAN, offsetof(struct msg_image_range, width)},
    {2, TEG_WIRE_SPAN, offsetof(struct msg_image_range, height)},
};
static const struct {
    uint64_t number;
    enum teg_mil_colour colour;
} colours[] = {{10, TEG_MIL_GRAY}, {20, TEG_MIL_RGB}, {30, TEG_MIL_BGR}, {40, TEG_MIL_GRAY_FP16}};

/* Sizes as shapes [height, width]. */
static enum teg_status read_image_sizes(struct teg_mil_reader *r, struct teg_span message, struct teg_mil_feature *f)
{
    struct msg_count m = {0};
    MIL_READ(r, message, count_rows, &m, "EnumeratedImageSizes");
    int64_t(*const sizes)[TEG_MIL_MAX_RANK] = teg_arena_array(r->arena, m.n, sizeof *sizes);
    if (!sizes)
        return teg_mil_no_memory(r, m.n * sizeof *sizes);
    struct teg_wire_iter iter = teg_wire_iter_of(message, 1);
    struct teg_wire_field size;
    for (size_t i = 0; i < m.n && teg_wire_each(&iter, &size); i++) {
        struct msg_bounds s = {0}; /* the same two numbers: width, height */
        MIL_READ(r, size.bytes, bounds_rows, &s, "an ImageSize");
        const int64_t width = (int64_t)s.lower, height = (int64_t)s.upper;
        sizes[i][0] = height;
        sizes[i][1] = width;
        f->min_width = width < f->min_width ? width : f->min_width;
        f->max_width = width > f->max_width ? width : f->max_width;
        f->min_height = height < f->min_height ? height : f->min_height;
        f->max_height = height > f->max_height ? height : f->max_height;
    }
    f->enumerated = (const int64_t(*)[TEG_MIL_MAX_RANK])sizes;
    f->n_enumerated = m.n;
    return TEG_OK;
}

static enum teg_status read_image(struct teg_mil_reader *r, struct teg_span message, struct teg_mil_feature *f)
{
    struct msg_image m = {0};
    MIL_READ(r, message, image_rows, &m, "an ImageFeatureType");
    bool is_known = false;
    for (size_t i = 0; i < sizeof colours / sizeof *colours; i++)
        if (colours[i].number == m.colour) {
            f->colour = colours[i].colour;
            is_known = true;
        }
    if (!is_known || m.width > INT32_MAX || m.height > INT32_MAX)
        MIL_FAIL(r, TEG_ERR_FORMAT, message.bytes,
                 "expected image '%.60s' with a colour space and a sane size, found colour space %llu and %llu x %llu; "
                 "export the model again",
                 f->name, (unsigned long long)m.colour, (unsigned long long)m.width, (unsigned long long)m.height);
    f->kind = TEG_MIL_FEATURE_IMAGE;
    f->width = f->min_width = f->max_width = (int64_t)m.width;
    f->height = f->min_height = f->max_height = (int64_t)m.height;
    if (m.enumerated.bytes)
        TRY(read_image_sizes(r, m.enumerated, f));
    if (!m.range.bytes)
        return TEG_OK;
    struct msg_image_range range = {0};
    MIL_READ(r, m.range, image_range_rows, &range, "an ImageSizeRange");
    TRY(read_bounds(r, range.width, &f->min_width, &f->max_width));
    return read_bounds(r, range.height, &f->min_height, &f->max_height);
}

/* ---- features ---- */

struct msg_type {
    struct teg_span integer, real, string, image, array, dict, sequence, state;
    uint64_t is_optional;
};
static const struct teg_wire_row type_rows[] = {
    {1, TEG_WIRE_SPAN, offsetof(struct msg_type, integer)},        {2, TEG_WIRE_SPAN, offsetof(struct msg_type, real)},
    {3, TEG_WIRE_SPAN, offsetof(struct msg_type, string)},         {4, TEG_WIRE_SPAN, offsetof(struct msg_type, image)},
    {5, TEG_WIRE_SPAN, offsetof(struct msg_type, array)},          {6, TEG_WIRE_SPAN, offsetof(struct msg_type, dict)},
    {7, TEG_WIRE_SPAN, offsetof(struct msg_type, sequence)},       {8, TEG_WIRE_SPAN, offsetof(struct msg_type, state)},
    {1000, TEG_WIRE_UINT, offsetof(struct msg_type, is_optional)},
};
struct msg_one_of_two {
    struct teg_span first, second;
};
static const struct teg_wire_row one_of_two_rows[] = {
    {1, TEG_WIRE_SPAN, offsetof(struct msg_one_of_two, first)},
    {2, TEG_WIRE_SPAN, offsetof(struct msg_one_of_two, second)},
};

static enum teg_status read_feature_type(struct teg_mil_reader *r, struct teg_span message, struct teg_mil_feature *f)
{
    struct msg_type m = {0};
    struct msg_one_of_two inner = {0};
    MIL_READ(r, message, type_rows, &m, "a FeatureType");
    f->optional = m.is_optional != 0;
    if (m.array.bytes)
        return read_array(r, m.array, f);
    if (m.image.bytes)
        return read_image(r, m.image, f);
    if (m.state.bytes) {
        MIL_READ(r, m.state, one_of_two_rows, &inner, "a StateFeatureType");
        TRY(read_array(r, inner.first, f));
        f->kind = TEG_MIL_FEATURE_STATE;
        return TEG_OK;
    }
    if (m.dict.bytes) {
        MIL_READ(r, m.dict, one_of_two_rows, &inner, "a DictionaryFeatureType");
        f->kind = inner.first.bytes ? TEG_MIL_FEATURE_DICT_INT64 : TEG_MIL_FEATURE_DICT_STRING;
        return TEG_OK;
    }
    f->kind = m.integer.bytes  ? TEG_MIL_FEATURE_INT64
              : m.real.bytes   ? TEG_MIL_FEATURE_DOUBLE
              : m.string.bytes ? TEG_MIL_FEATURE_STRING
                               : TEG_MIL_FEATURE_OTHER;
    return TEG_OK;
}

struct msg_feature {
    struct teg_span name, description, type;
};
static const struct teg_wire_row feature_rows[] = {
    {1, TEG_WIRE_SPAN, offsetof(struct msg_feature, name)},
    {2, TEG_WIRE_SPAN, offsetof(struct msg_feature, description)},
    {3, TEG_WIRE_SPAN, offsetof(struct msg_feature, type)},
};

static enum teg_status copy_text(struct teg_mil_reader *r, struct teg_span text, const char **out)
{
    *out = text.n_bytes ? teg_arena_string(r->arena, (const char *)text.bytes, text.n_bytes) : "";
    return *out ? TEG_OK : teg_mil_no_memory(r, text.n_bytes);
}

static enum teg_status read_features(struct teg_mil_reader *r, struct teg_span message, uint32_t number, size_t n,
                                     const struct teg_mil_feature **out)
{
    struct teg_mil_feature *const features = teg_arena_array(r->arena, n, sizeof *features);
    if (!features)
        return teg_mil_no_memory(r, n * sizeof *features);
    struct teg_wire_iter iter = teg_wire_iter_of(message, number);
    struct teg_wire_field field;
    for (size_t i = 0; i < n && teg_wire_each(&iter, &field); i++) {
        struct msg_feature m = {0};
        MIL_READ(r, field.bytes, feature_rows, &m, "a FeatureDescription");
        TRY(teg_mil_intern(r, m.name, "the name of a feature", &features[i].name));
        TRY(copy_text(r, m.description, &features[i].description));
        TRY(read_feature_type(r, m.type, &features[i]));
    }
    *out = features;
    return TEG_OK;
}

/* ---- interfaces ---- */

/* The same members under different numbers in the two forms. */
struct numbers {
    uint32_t input, output, state;
};
static const struct numbers model_numbers = {1, 10, 13}, function_numbers = {2, 3, 6};

struct msg_interface {
    struct teg_span name;
    size_t n_inputs, n_outputs, n_states;
    struct teg_span predicted, probabilities;
};
static const struct teg_wire_row function_rows[] = {
    {1, TEG_WIRE_SPAN, offsetof(struct msg_interface, name)},
    {2, TEG_WIRE_COUNT, offsetof(struct msg_interface, n_inputs)},
    {3, TEG_WIRE_COUNT, offsetof(struct msg_interface, n_outputs)},
    {6, TEG_WIRE_COUNT, offsetof(struct msg_interface, n_states)},
    {4, TEG_WIRE_SPAN, offsetof(struct msg_interface, predicted)},
    {5, TEG_WIRE_SPAN, offsetof(struct msg_interface, probabilities)},
};

static enum teg_status fill_interface(struct teg_mil_reader *r, struct teg_span message, const struct msg_interface *m,
                                      const struct numbers *numbers, struct teg_mil_interface *interface)
{
    TRY(read_features(r, message, numbers->input, m->n_inputs, &interface->inputs));
    TRY(read_features(r, message, numbers->output, m->n_outputs, &interface->outputs));
    TRY(read_features(r, message, numbers->state, m->n_states, &interface->states));
    interface->n_inputs = m->n_inputs;
    interface->n_outputs = m->n_outputs;
    interface->n_states = m->n_states;
    TRY(copy_text(r, m->predicted, &interface->predicted_feature));
    return copy_text(r, m->probabilities, &interface->predicted_probabilities);
}

/* The place of the function of that name, whose interface nothing has described yet. */
static enum teg_status find_interface(struct teg_mil_reader *r, struct teg_span name, const uint8_t *at,
                                      struct teg_mil_interface **out)
{
    struct teg_mil_program *const p = r->program;
    for (size_t i = 0; i < p->n_functions; i++) {
        const char *const known = p->functions[i].name;
        if (strlen(known) != name.n_bytes || memcmp(known, name.bytes, name.n_bytes) != 0)
            continue;
        if (p->interfaces[i].function)
            MIL_FAIL(r, TEG_ERR_FORMAT, at,
                     "expected one description of function '%.80s', found two; export the model "
                     "again",
                     known);
        p->interfaces[i].function = known;
        *out = &p->interfaces[i];
        return TEG_OK;
    }
    MIL_FAIL(r, TEG_ERR_FORMAT, at,
             "expected a function '%.*s' as the description says, found none; export the model "
             "again",
             MIL_NAME(name));
}

struct msg_description {
    struct msg_interface main;
    size_t n_functions;
    struct teg_span default_function, metadata;
};
static const struct teg_wire_row description_rows[] = {
    {1, TEG_WIRE_COUNT, offsetof(struct msg_description, main.n_inputs)},
    {10, TEG_WIRE_COUNT, offsetof(struct msg_description, main.n_outputs)},
    {13, TEG_WIRE_COUNT, offsetof(struct msg_description, main.n_states)},
    {11, TEG_WIRE_SPAN, offsetof(struct msg_description, main.predicted)},
    {12, TEG_WIRE_SPAN, offsetof(struct msg_description, main.probabilities)},
    {20, TEG_WIRE_COUNT, offsetof(struct msg_description, n_functions)},
    {21, TEG_WIRE_SPAN, offsetof(struct msg_description, default_function)},
    {100, TEG_WIRE_SPAN, offsetof(struct msg_description, metadata)},
};

static enum teg_status read_functions(struct teg_mil_reader *r, struct teg_span message,
                                      const struct msg_description *d)
{
    struct teg_mil_interface *interface = NULL;
    struct teg_wire_iter iter = teg_wire_iter_of(message, 20);
    struct teg_wire_field f;
    while (teg_wire_each(&iter, &f)) {
        struct msg_interface m = {0};
        MIL_READ(r, f.bytes, function_rows, &m, "a FunctionDescription");
        TRY(find_interface(r, m.name, f.bytes.bytes, &interface));
        TRY(fill_interface(r, f.bytes, &m, &function_numbers, interface));
    }
    TRY(copy_text(r, d->default_function, &r->program->default_function));
    if (!teg_mil_find_function(r->program, r->program->default_function))
        MIL_FAIL(r, TEG_ERR_FORMAT, message.bytes,
                 "expected defaultFunctionName to name a function, found '%.80s'; export the model again",
                 r->program->default_function);
    return TEG_OK;
}

static enum teg_status read_single(struct teg_mil_reader *r, struct teg_span message, const struct msg_description *d)
{
    struct teg_mil_program *const p = r->program;
    struct teg_mil_interface *interface = NULL;
    const char *const name = p->n_functions == 1 ? p->functions[0].name : "main";
    TRY(find_interface(r, teg_mil_span(name), message.bytes, &interface));
    p->default_function = interface->function;
    return fill_interface(r, message, &d->main, &model_numbers, interface);
}

/* ---- metadata ---- */

struct msg_metadata {
    struct teg_span description, version, author, license;
    size_t n_user;
};
static const struct teg_wire_row metadata_rows[] = {
    {1, TEG_WIRE_SPAN, offsetof(struct msg_metadata, description)},
    {2, TEG_WIRE_SPAN, offsetof(struct msg_metadata, version)},
    {3, TEG_WIRE_SPAN, offsetof(struct msg_metadata, author)},
    {4, TEG_WIRE_SPAN, offsetof(struct msg_metadata, license)},
    {100, TEG_WIRE_COUNT, offsetof(struct msg_metadata, n_user)},
};

static struct teg_string string_of(struct teg_span text)
{
    return (struct teg_string){text.bytes ? (const char *)text.bytes : "", text.n_bytes};
}

static enum teg_status read_metadata(struct teg_mil_reader *r, struct teg_span message)
{
    struct teg_mil_program *const p = r->program;
    struct msg_metadata m = {0};
    MIL_READ(r, message, metadata_rows, &m, "Metadata");
    TRY(copy_text(r, m.description, &p->description));
    TRY(copy_text(r, m.version, &p->version));
    TRY(copy_text(r, m.author, &p->author));
    TRY(copy_text(r, m.license, &p->license));
    struct teg_string(*const user)[2] = teg_arena_array(r->arena, m.n_user, sizeof *user);
    if (!user)
        return teg_mil_no_memory(r, m.n_user * sizeof *user);
    struct teg_wire_iter iter = teg_wire_iter_of(message, 100);
    struct teg_wire_field f;
    for (size_t i = 0; i < m.n_user && teg_wire_each(&iter, &f); i++) {
        struct msg_one_of_two pair = {0};
        MIL_READ(r, f.bytes, one_of_two_rows, &pair, "user metadata");
        user[i][0] = string_of(pair.first);
        user[i][1] = string_of(pair.second);
    }
    p->user_metadata = (const struct teg_string(*)[2])user;
    p->n_user_metadata = m.n_user;
    return TEG_OK;
}

static bool has_feature(const struct teg_mil_feature *features, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(features[i].name, name) == 0)
            return true;
    return false;
}

/* A pipeline's description need not name the states of its models: those that it leaves out are as they say. */
static enum teg_status add_states(struct teg_mil_reader *r, const struct teg_mil_interface *joined,
                                  struct teg_mil_interface *interface)
{
    const size_t n = interface->n_states, most = n + joined->n_states;
    struct teg_mil_feature *const states = teg_arena_array(r->arena, most, sizeof *states);
    if (!states)
        return teg_mil_no_memory(r, most * sizeof *states);
    for (size_t i = 0; i < n; i++)
        states[i] = interface->states[i];
    for (size_t i = 0; i < joined->n_states; i++) {
        struct teg_mil_feature *const state = &states[interface->n_states];
        if (has_feature(interface->states, n, joined->states[i].name))
            continue;
        *state = joined->states[i];
        TRY(teg_mil_intern(r, teg_mil_span(state->name), "the name of a state", &state->name));
        interface->n_states++;
    }
    interface->states = states;
    return TEG_OK;
}

enum teg_status teg_mil_describe(struct teg_mil_reader *r, struct teg_span message)
{
    struct teg_mil_program *const p = r->program;
    const struct teg_mil_interface *const joined = p->n_parts ? p->interfaces : NULL;
    struct msg_description m = {0};
    MIL_READ(r, message, description_rows, &m, "the ModelDescription");
    p->interfaces = teg_arena_array(r->arena, p->n_functions, sizeof *p->interfaces);
    if (!p->interfaces)
        return teg_mil_no_memory(r, p->n_functions * sizeof *p->interfaces);
    TRY(m.n_functions ? read_functions(r, message, &m) : read_single(r, message, &m));
    for (size_t i = 0; i < p->n_functions; i++)
        if (!p->interfaces[i].function)
            MIL_FAIL(r, TEG_ERR_FORMAT, message.bytes,
                     "expected a description of function '%.80s', found none; export the model again",
                     p->functions[i].name);
    if (joined)
        TRY(add_states(r, joined, p->interfaces));
    if (m.metadata.bytes)
        TRY(read_metadata(r, m.metadata));
    return teg_mil_check(r, message.bytes);
}

/* ---- without a description ---- */

static void feature_of_var(const struct teg_mil_var *var, struct teg_mil_feature *f)
{
    const bool is_string = var->type.dtype == TEG_MIL_STRING;
    *f = (struct teg_mil_feature){.name = var->name, .description = "", .dtype = var->type.dtype};
    f->kind = var->type.kind == TEG_MIL_STATE    ? TEG_MIL_FEATURE_STATE
              : var->type.kind == TEG_MIL_DICT   ? TEG_MIL_FEATURE_DICT_STRING
              : var->type.kind == TEG_MIL_TENSOR ? is_string ? TEG_MIL_FEATURE_STRING : TEG_MIL_FEATURE_ARRAY
                                                 : TEG_MIL_FEATURE_OTHER;
    if (var->type.rank < 0)
        return;
    f->rank = (uint32_t)var->type.rank;
    f->has_shape = f->rank > 0;
    for (uint32_t d = 0; d < f->rank; d++) {
        const bool is_open = var->type.dims[d] == TEG_MIL_UNKNOWN;
        f->shape[d] = f->lower[d] = is_open ? 1 : var->type.dims[d];
        f->upper[d] = is_open ? -1 : var->type.dims[d];
    }
}

static enum teg_status describe_function(struct teg_mil_reader *r, const struct teg_mil_function *function,
                                         struct teg_mil_interface *in)
{
    const struct teg_mil_block *const block = &function->block;
    struct teg_mil_feature *const features =
        teg_arena_array(r->arena, block->n_inputs + block->n_outputs, sizeof *features);
    struct teg_mil_feature *const states = teg_arena_array(r->arena, block->n_inputs, sizeof *states);
    if (!features || !states)
        return teg_mil_no_memory(r, (block->n_inputs + block->n_outputs) * sizeof *features);
    *in = (struct teg_mil_interface){.function = function->name,
                                     .inputs = features,
                                     .outputs = features + block->n_inputs,
                                     .states = states,
                                     .n_outputs = block->n_outputs,
                                     .predicted_feature = "",
                                     .predicted_probabilities = ""};
    for (size_t i = 0; i < block->n_inputs; i++) {
        const struct teg_mil_var *const var = &r->program->vars[block->inputs[i]];
        feature_of_var(var, var->type.kind == TEG_MIL_STATE ? &states[in->n_states++] : &features[in->n_inputs++]);
    }
    for (size_t i = 0; i < block->n_outputs; i++)
        feature_of_var(&r->program->vars[block->outputs[i]], &features[block->n_inputs + i]);
    return TEG_OK;
}

enum teg_status teg_mil_describe_functions(struct teg_mil_reader *r)
{
    struct teg_mil_program *const p = r->program;
    p->interfaces = teg_arena_array(r->arena, p->n_functions, sizeof *p->interfaces);
    if (!p->interfaces)
        return teg_mil_no_memory(r, p->n_functions * sizeof *p->interfaces);
    for (size_t i = 0; i < p->n_functions; i++) {
        TRY(describe_function(r, &p->functions[i], &p->interfaces[i]));
        p->spec_version = (uint32_t)teg_max(p->spec_version, p->functions[i].opset);
    }
    const struct teg_mil_function *const main_function = teg_mil_find_function(p, "main");
    p->default_function = main_function ? main_function->name : p->functions[0].name;
    return teg_mil_check(r, NULL);
}
