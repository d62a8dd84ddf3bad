/* predict.c: one prediction: the rules of Core ML on what comes in, the evaluator, and what goes out.
 *
 * Invariant: everything is checked before anything runs, in the words of the model's description, and a state changes
 * only when the whole prediction succeeded. Inputs are found by name, so their order never matters. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/options.h"
#include "base/text.h"
#include "program.h"

struct call {
    const struct teg_mil_program *mil;
    const struct teg_allocator *allocator;
    const struct teg_mil_function *function;
    const struct teg_mil_interface *interface;
    const struct teg_feature_value *inputs;
    size_t n_inputs;
    struct teg_array **arrays;  /* of the function's inputs but states, in its order */
    struct teg_array **results; /* of the block's outputs */
    struct teg_error *err;
};

/* ---- names ---- */

static const struct teg_mil_feature *find_feature(const struct teg_mil_feature *features, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(features[i].name, name) == 0)
            return &features[i];
    return NULL;
}

static const struct teg_feature_value *find_value(const struct call *c, const char *name)
{
    for (size_t i = 0; i < c->n_inputs; i++)
        if (c->inputs[i].name && strcmp(c->inputs[i].name, name) == 0)
            return &c->inputs[i];
    return NULL;
}

struct names_text {
    char text[200];
};

/* "'x', 'mask'" */
static struct names_text list_names(const struct teg_mil_feature *features, size_t n)
{
    struct names_text out = {"none"};
    size_t used = 0;
    for (size_t i = 0; i < n && used < sizeof out.text - 1; i++) {
        const int k = snprintf(out.text + used, sizeof out.text - used, "%s'%.60s'", i ? ", " : "", features[i].name);
        used = k < 0 ? sizeof out.text : used + (size_t)k;
    }
    return out;
}

static enum teg_status check_names(const struct call *c)
{
    const struct teg_mil_interface *const f = c->interface;
    for (size_t i = 0; i < c->n_inputs; i++) {
        const char *const name = c->inputs[i].name ? c->inputs[i].name : "";
        if (find_feature(f->states, f->n_states, name))
            FAIL(c->err, TEG_ERR_ARGUMENT,
                 "cannot predict: input '%.80s': expected an input, found the name of a state; write it into a state "
                 "and pass that",
                 name);
        if (!find_feature(f->inputs, f->n_inputs, name))
            FAIL(c->err, TEG_ERR_ARGUMENT,
                 "cannot predict: input '%.80s': expected one of %s, found a name that function '%.60s' does not "
                 "have; use the model's names",
                 name, list_names(f->inputs, f->n_inputs).text, f->function);
        if (find_value(c, name) != &c->inputs[i])
            FAIL(c->err, TEG_ERR_ARGUMENT, "cannot predict: input '%.80s': expected once, found twice; keep one", name);
    }
    return TEG_OK;
}

/* ---- shapes ---- */

/* "1x64", "1x(1 to 2048)", "1x(1 or more)" */
struct range_text {
    char text[48 * TEG_MAX_RANK];
};

static struct range_text list_ranges(const struct teg_mil_feature *f)
{
    struct range_text out = {""};
    size_t used = 0;
    for (uint32_t d = 0; d < f->rank && used < sizeof out.text - 1; d++) {
        const char *const x = d ? "x" : "";
        const long long low = f->lower[d], high = f->upper[d];
        int n;
        if (low == high)
            n = snprintf(out.text + used, sizeof out.text - used, "%s%lld", x, low);
        else if (high < 0)
            n = snprintf(out.text + used, sizeof out.text - used, "%s(%lld or more)", x, low);
        else
            n = snprintf(out.text + used, sizeof out.text - used, "%s(%lld to %lld)", x, low, high);
        used = n < 0 ? sizeof out.text : used + (size_t)n;
    }
    return out;
}

static bool is_enumerated(const struct teg_mil_feature *f, const int64_t *dims, uint32_t rank, size_t entry)
{
    return memcmp(f->enumerated[entry], dims, rank * sizeof *dims) == 0;
}

static enum teg_status fail_shape(const struct call *c, const struct teg_mil_feature *f,
                                  const struct teg_feature_value *v)
{
    const bool is_image = f->kind == TEG_MIL_FEATURE_IMAGE;
    if (!f->n_enumerated)
        FAIL(c->err, TEG_ERR_ARGUMENT, "cannot predict: input '%.80s': expected %s %s, found %s; %s", f->name,
             is_image ? "an image of height x width" : "shape", list_ranges(f).text, teg_value_shape_text(v).text,
             is_image ? "resize the image" : "reshape the input");
    char shapes[200] = "";
    for (size_t i = 0, used = 0; i < f->n_enumerated && used < sizeof shapes - 1; i++) {
        size_t dims[TEG_MAX_RANK];
        for (uint32_t d = 0; d < f->rank; d++)
            dims[d] = (size_t)f->enumerated[i][d];
        const int n =
            snprintf(shapes + used, sizeof shapes - used, "%s%s", i ? ", " : "", teg_shape_text(f->rank, dims).text);
        used = n < 0 ? sizeof shapes : used + (size_t)n;
    }
    FAIL(c->err, TEG_ERR_ARGUMENT, "cannot predict: input '%.80s': expected one of the shapes %s, found %s; %s",
         f->name, shapes, teg_value_shape_text(v).text, is_image ? "resize the image" : "pad the input");
}

/* Images too, with dims H, W. */
static enum teg_status check_dims(const struct call *c, const struct teg_mil_feature *f,
                                  const struct teg_feature_value *v, const int64_t *dims)
{
    bool fits = true;
    for (uint32_t d = 0; d < f->rank; d++)
        fits = fits && dims[d] >= f->lower[d] && (f->upper[d] < 0 || dims[d] <= f->upper[d]);
    bool is_listed = f->n_enumerated == 0;
    for (size_t i = 0; i < f->n_enumerated; i++)
        is_listed = is_listed || is_enumerated(f, dims, f->rank, i);
    return fits && is_listed ? TEG_OK : fail_shape(c, f, v);
}

static bool read_dims(const struct teg_feature_value *v, int64_t dims[TEG_MAX_RANK])
{
    if (v->rank > TEG_MAX_RANK)
        return false;
    for (uint32_t d = 0; d < v->rank; d++) {
        if (v->dims[d] > INT64_MAX / 2)
            return false;
        dims[d] = (int64_t)v->dims[d];
    }
    return true;
}

/* Since iOS 18 several inputs may have enumerated shapes; then entry i of one belongs to entry i of the others. */
static enum teg_status check_combination(const struct call *c)
{
    const struct teg_mil_interface *const f = c->interface;
    size_t n_enumerated = 0, n_inputs = 0;
    for (size_t i = 0; i < f->n_inputs; i++)
        if (f->inputs[i].kind == TEG_MIL_FEATURE_ARRAY && f->inputs[i].n_enumerated &&
            find_value(c, f->inputs[i].name)) {
            n_enumerated = n_inputs++ ? teg_min(n_enumerated, f->inputs[i].n_enumerated) : f->inputs[i].n_enumerated;
        }
    if (n_inputs < 2)
        return TEG_OK;
    for (size_t entry = 0; entry < n_enumerated; entry++) {
        bool all = true;
        for (size_t i = 0; i < f->n_inputs && all; i++) {
            const struct teg_feature_value *const v = find_value(c, f->inputs[i].name);
            int64_t dims[TEG_MAX_RANK];
            if (v && f->inputs[i].kind == TEG_MIL_FEATURE_ARRAY && f->inputs[i].n_enumerated)
                all = read_dims(v, dims) && is_enumerated(&f->inputs[i], dims, f->inputs[i].rank, entry);
        }
        if (all)
            return TEG_OK;
    }
    FAIL(c->err, TEG_ERR_ARGUMENT,
         "cannot predict: function '%.80s': expected the enumerated shapes of its inputs to have one index, found "
         "shapes of different entries; give all inputs the shapes of one entry",
         f->function);
}

/* ---- inputs ---- */

static enum teg_status array_input(const struct call *c, const struct teg_mil_feature *f, const struct teg_mil_type *t,
                                   const struct teg_feature_value *v, struct teg_array **array)
{
    int64_t dims[TEG_MAX_RANK] = {0};
    size_t sizes[TEG_MAX_RANK];
    uint32_t rank = v->rank;
    if (!read_dims(v, dims))
        FAIL(c->err, TEG_ERR_ARGUMENT, "cannot predict: input '%.80s': expected at most %d sane dimensions, found %u",
             f->name, TEG_MAX_RANK, v->rank);
    const bool is_one = rank == 0 || (rank == 1 && dims[0] == 1);
    if (is_one && t->rank == 0)
        rank = 0;
    else if (is_one && t->rank == 1) {
        rank = 1;
        dims[0] = 1;
    } else if (f->has_shape && rank != f->rank)
        return fail_shape(c, f, v);
    if (f->has_shape && rank == f->rank)
        TRY(check_dims(c, f, v, dims));
    for (uint32_t d = 0; d < rank; d++)
        sizes[d] = (size_t)dims[d];
    return teg_value_to_array(c->allocator, v, "cannot predict: input", t->dtype, rank, sizes, array, c->err);
}

static enum teg_status image_input(const struct call *c, const struct teg_mil_feature *f, const struct teg_mil_type *t,
                                   const struct teg_feature_value *v, struct teg_array **array)
{
    int64_t dims[TEG_MAX_RANK] = {0};
    TRY(teg_image_to_array(c->allocator, v, f, t, array, c->err));
    (void)read_dims(v, dims);
    struct teg_mil_feature plane = *f; /* the rules on H, W as those of an array of rank 2 */
    plane.rank = 2;
    plane.lower[0] = f->min_height;
    plane.upper[0] = f->max_height;
    plane.lower[1] = f->min_width;
    plane.upper[1] = f->max_width;
    return check_dims(c, &plane, v, dims);
}

/* A scalar feature: a value of its own kind, or an array of one element. */
static enum teg_status scalar_input(const struct call *c, const struct teg_mil_feature *f, const struct teg_mil_type *t,
                                    const struct teg_feature_value *v, struct teg_array **array)
{
    struct teg_feature_value number = *v;
    number.rank = 0;
    number.element = v->kind == TEG_FEATURE_INT64 ? TEG_ELEMENT_I64 : TEG_ELEMENT_F64;
    number.data = v->kind == TEG_FEATURE_INT64 ? (const void *)&v->integer : (const void *)&v->real;
    if (v->kind == TEG_FEATURE_INT64 || v->kind == TEG_FEATURE_DOUBLE)
        return array_input(c, f, t, &number, array);
    if (v->kind != TEG_FEATURE_STRING || teg_form_of(t->dtype) != TEG_FORM_STRING)
        FAIL(c->err, TEG_ERR_ARGUMENT, "cannot predict: input '%.80s': expected %s, found %s; pass numbers", f->name,
             f->kind == TEG_MIL_FEATURE_ARRAY ? "an array" : "a number",
             v->kind == TEG_FEATURE_STRING ? "a string" : "another kind of value");
    const size_t one = 1;
    *array = teg_array_new(c->allocator, t->dtype, t->rank > 0 ? 1 : 0, &one);
    if (!*array)
        return teg_base_fail_memory(c->err, "a string input", sizeof **array);
    (*array)->strings[0] = (struct teg_string){v->string, v->string ? strlen(v->string) : 0};
    return TEG_OK;
}

static enum teg_status default_input(const struct call *c, const struct teg_mil_feature *f,
                                     const struct teg_mil_type *t, struct teg_array **array)
{
    if (!f->optional)
        FAIL(c->err, TEG_ERR_ARGUMENT,
             "cannot predict: input '%.80s': expected a value, found none; function '%.60s' takes %s", f->name,
             c->interface->function, list_names(c->interface->inputs, c->interface->n_inputs).text);
    size_t dims[TEG_MAX_RANK] = {0};
    const uint32_t rank = t->rank == 0 ? 0 : f->rank;
    for (uint32_t d = 0; d < rank; d++)
        dims[d] = (size_t)f->shape[d];
    struct teg_array *const made = teg_array_new(c->allocator, t->dtype, rank, dims);
    if (!made)
        return teg_base_fail_memory(c->err, "a default input", sizeof *made);
    const double value = f->has_default ? f->default_value : 0;
    for (size_t i = 0; i < made->n; i++) {
        if (made->form == TEG_FORM_F32)
            made->f32[i] = (float)value;
        else if (made->form == TEG_FORM_I32)
            made->i32[i] = (int32_t)value;
        else if (made->form == TEG_FORM_BOOL)
            made->b[i] = value != 0;
    }
    *array = made;
    return TEG_OK;
}

static enum teg_status one_input(const struct call *c, const struct teg_mil_var *var, struct teg_array **array)
{
    const struct teg_mil_feature *const f = find_feature(c->interface->inputs, c->interface->n_inputs, var->name);
    const struct teg_feature_value *const v = find_value(c, var->name);
    if (!f)
        FAIL(c->err, TEG_ERR_FORMAT,
             "cannot predict: input '%.80s': expected a description of it, found none; export the model again",
             var->name);
    if (!v)
        return default_input(c, f, &var->type, array);
    if (f->kind == TEG_MIL_FEATURE_IMAGE)
        return image_input(c, f, &var->type, v, array);
    if (v->kind != TEG_FEATURE_ARRAY && v->kind != TEG_FEATURE_IMAGE)
        return scalar_input(c, f, &var->type, v, array);
    return array_input(c, f, &var->type, v, array);
}

static enum teg_status gather_inputs(const struct call *c)
{
    TRY(check_names(c));
    const struct teg_mil_block *const b = &c->function->block;
    for (size_t i = 0, k = 0; i < b->n_inputs; i++) {
        const struct teg_mil_var *const var = &c->mil->vars[b->inputs[i]];
        if (var->type.kind != TEG_MIL_STATE)
            TRY(one_input(c, var, &c->arrays[k++]));
    }
    return check_combination(c);
}

/* ---- outputs ---- */

static enum teg_status copy_string(struct teg_values *values, struct teg_string s, const char **out,
                                   struct teg_error *err)
{
    *out = teg_arena_string(&values->arena, s.n_bytes ? s.bytes : "", s.n_bytes);
    return *out ? TEG_OK : teg_base_fail_memory(err, "a string output", s.n_bytes);
}

static enum teg_status fill_dictionary(struct teg_values *values, struct teg_feature_value *out,
                                       const struct teg_array *keys, const struct teg_array *numbers,
                                       struct teg_error *err)
{
    const size_t n = numbers->n;
    if (numbers->form != TEG_FORM_F32 || keys->n != n)
        FAIL(err, TEG_ERR_FORMAT, "cannot predict: output '%.80s': expected %zu probabilities, found %zu", out->name,
             keys->n, n);
    double *const real = teg_arena_array(&values->arena, n, sizeof *real);
    int64_t *const integers = teg_arena_array(&values->arena, n, sizeof *integers);
    const char **const strings = teg_arena_array(&values->arena, n, sizeof *strings);
    if (!real || !integers || !strings)
        return teg_base_fail_memory(err, "a dictionary", n * 3 * sizeof *real);
    for (size_t i = 0; i < n; i++) {
        real[i] = (double)numbers->f32[i];
        if (keys->form == TEG_FORM_STRING)
            TRY(copy_string(values, keys->strings[i], &strings[i], err));
        else
            integers[i] = keys->i32[i];
    }
    out->kind = keys->form == TEG_FORM_STRING ? TEG_FEATURE_DICT_STRING : TEG_FEATURE_DICT_INT64;
    out->n_entries = n;
    out->entry_values = real;
    out->integer_keys = integers;
    out->string_keys = strings;
    return TEG_OK;
}

/* Op classify gives a list of two arrays: keys and values. */
static enum teg_status dictionary_output(const struct call *c, struct teg_values *values, struct teg_feature_value *out,
                                         const struct teg_array *array)
{
    if (array->form != TEG_FORM_LIST || array->n != 2 || !array->items[0] || !array->items[1])
        FAIL(c->err, TEG_ERR_UNSUPPORTED,
             "cannot predict: output '%.80s': expected a dictionary made by op classify, found another value",
             out->name);
    return fill_dictionary(values, out, array->items[0], array->items[1], c->err);
}

/* A scalar of the kind that the description says. */
static enum teg_status scalar_output(const struct call *c, struct teg_values *values, struct teg_feature_value *out,
                                     enum teg_feature_kind kind, const struct teg_array *array)
{
    static const enum teg_form forms[] = {[TEG_FEATURE_INT64] = TEG_FORM_I32,
                                          [TEG_FEATURE_DOUBLE] = TEG_FORM_F32,
                                          [TEG_FEATURE_STRING] = TEG_FORM_STRING};
    if (array->n != 1 || array->form != forms[kind])
        FAIL(c->err, TEG_ERR_FORMAT, "cannot predict: output '%.80s': expected one %s, found another value", out->name,
             kind == TEG_FEATURE_STRING ? "string" : "number");
    out->kind = kind;
    if (kind == TEG_FEATURE_INT64)
        out->integer = array->i32[0];
    else if (kind == TEG_FEATURE_DOUBLE)
        out->real = (double)array->f32[0];
    else
        return copy_string(values, array->strings[0], &out->string, c->err);
    return TEG_OK;
}

static enum teg_status one_output(const struct call *c, struct teg_values *values, size_t index, teg_mil_var_id var,
                                  const struct teg_array *array)
{
    const struct teg_mil_feature *const f = &c->interface->outputs[index];
    const enum teg_feature_kind kind = teg_program_kind(f);
    if (kind == TEG_FEATURE_DICT_INT64 || kind == TEG_FEATURE_DICT_STRING)
        return dictionary_output(c, values, &values->items[index], array);
    if (kind == TEG_FEATURE_INT64 || kind == TEG_FEATURE_DOUBLE || kind == TEG_FEATURE_STRING)
        return scalar_output(c, values, &values->items[index], kind, array);
    if (kind == TEG_FEATURE_IMAGE)
        return teg_array_to_image(values, index, array, f->colour, c->err);
    struct teg_array declared = *array; /* a value that needed no rounding may still carry the type it came from */
    declared.dtype =
        kind == TEG_FEATURE_ARRAY && teg_form_of(f->dtype) == array->form ? f->dtype : c->mil->vars[var].type.dtype;
    return teg_array_to_value(values, index, &declared, c->err);
}

static enum teg_status convert_outputs(const struct call *c, struct teg_values *values)
{
    const struct teg_mil_block *const b = &c->function->block;
    for (size_t i = 0; i < values->n; i++) {
        const char *const name = c->interface->outputs[i].name;
        size_t k = 0;
        while (k < b->n_outputs && strcmp(c->mil->vars[b->outputs[k]].name, name) != 0)
            k++;
        if (k == b->n_outputs)
            FAIL(c->err, TEG_ERR_FORMAT,
                 "cannot predict: output '%.80s': expected the function to make it, found none; export the model "
                 "again",
                 name);
        values->items[i].name = name;
        TRY(one_output(c, values, i, b->outputs[k], c->results[k]));
    }
    return TEG_OK;
}

/* ---- states ---- */

struct teg_state {
    const struct teg_program *program;
    struct teg_eval_state *values;
};

enum teg_status teg_state_new(const struct teg_program *program, struct teg_state **state, struct teg_error *err)
{
    const struct teg_allocator *const a = program->allocator;
    struct teg_state *const made = a->alloc(a->ctx, sizeof *made, _Alignof(struct teg_state));
    if (!made)
        return teg_base_fail_memory(err, "a state", sizeof *made);
    *made = (struct teg_state){.program = program};
    const enum teg_status status = teg_eval_state_new(program->mil, a, &made->values, err);
    if (status == TEG_OK)
        *state = made;
    else
        a->free(a->ctx, made, sizeof *made);
    return status;
}

void teg_state_free(struct teg_state *state)
{
    if (!state)
        return;
    const struct teg_allocator *const a = state->program->allocator;
    teg_eval_state_free(state->values);
    a->free(a->ctx, state, sizeof *state);
}

size_t teg_state_count(const struct teg_state *state)
{
    return teg_eval_state_count(state->values);
}

const char *teg_state_name(const struct teg_state *state, size_t index)
{
    return teg_eval_state_name(state->values, index);
}

static const struct teg_mil_type *state_type(const struct teg_mil_program *mil, const char *name)
{
    for (size_t f = 0; f < mil->n_functions; f++) {
        const struct teg_mil_block *const b = &mil->functions[f].block;
        for (size_t i = 0; i < b->n_inputs; i++) {
            const struct teg_mil_var *const v = &mil->vars[b->inputs[i]];
            if (v->type.kind == TEG_MIL_STATE && strcmp(v->name, name) == 0)
                return &v->type;
        }
    }
    return NULL;
}

static enum teg_status find_state(const struct teg_state *state, const char *name, const char *verb,
                                  const struct teg_array **array, const struct teg_mil_type **type,
                                  struct teg_error *err)
{
    *array = name ? teg_eval_state_array(state->values, name) : NULL;
    *type = name ? state_type(state->program->mil, name) : NULL;
    if (*array && *type)
        return TEG_OK;
    struct names_text names = {"none (the model keeps no state)"};
    for (size_t i = 0, used = 0; i < teg_state_count(state) && used < sizeof names.text - 1; i++) {
        const int n =
            snprintf(names.text + used, sizeof names.text - used, "%s'%.60s'", i ? ", " : "", teg_state_name(state, i));
        used = n < 0 ? sizeof names.text : used + (size_t)n;
    }
    FAIL(err, TEG_ERR_ARGUMENT, "cannot %s state: '%.80s': expected one of %s, found another name", verb,
         name ? name : "", names.text);
}

enum teg_status teg_state_read(const struct teg_state *state, const char *name, struct teg_values **value,
                               struct teg_error *err)
{
    const struct teg_array *array = NULL;
    const struct teg_mil_type *type = NULL;
    struct teg_values *made = NULL;
    TRY(find_state(state, name, "read", &array, &type, err));
    TRY(teg_values_new(state->program->allocator, 1, &made, err));
    struct teg_array declared = *array;
    declared.dtype = type->dtype;
    enum teg_status status = copy_string(made, (struct teg_string){name, strlen(name)}, &made->items[0].name, err);
    if (status == TEG_OK)
        status = teg_array_to_value(made, 0, &declared, err);
    if (status == TEG_OK)
        *value = made;
    else
        teg_values_free(made);
    return status;
}

enum teg_status teg_state_write(struct teg_state *state, const struct teg_feature_value *value, struct teg_error *err)
{
    const struct teg_array *before = NULL;
    const struct teg_mil_type *type = NULL;
    struct teg_array *array = NULL;
    TRY(find_state(state, value->name, "write", &before, &type, err));
    bool fits = value->rank == before->rank || (before->rank == 0 && value->rank == 1 && value->dims[0] == 1);
    for (uint32_t d = 0; fits && d < before->rank; d++)
        fits = value->dims[d] == before->dims[d];
    if (!fits)
        FAIL(err, TEG_ERR_ARGUMENT, "cannot write state: '%.80s': expected shape %s, found %s; reshape the value",
             value->name, teg_shape_text(before->rank, before->dims).text, teg_value_shape_text(value).text);
    const struct teg_allocator *const a = state->program->allocator;
    TRY(teg_value_to_array(a, value, "cannot write state:", type->dtype, before->rank, before->dims, &array, err));
    const enum teg_status status = teg_eval_state_set(state->values, value->name, array, err);
    teg_array_drop(a, array);
    return status;
}

static enum teg_status check_state(const struct teg_program *program, const struct teg_mil_interface *interface,
                                   const struct teg_state *state, struct teg_error *err)
{
    if (!state && interface->n_states)
        FAIL(err, TEG_ERR_ARGUMENT,
             "cannot predict: function '%.60s' keeps state (%s): expected a state to read and change, found none; make "
             "one (teg_state_new, make_state() in Python, --state FILE) and pass it with every call",
             interface->function, list_names(interface->states, interface->n_states).text);
    if (state && state->program != program)
        FAIL(err, TEG_ERR_ARGUMENT,
             "cannot predict: state: expected one made from this model, found that of %.100s; make one for this model",
             state->program->mil->path);
    return TEG_OK;
}

/* ---- a prediction ---- */

void teg_predict_options_default(struct teg_predict_options *options)
{
    *options = (struct teg_predict_options){.size = sizeof *options};
}

/* Asks the caller's check now and then; `stop` is what the run looks at. */
struct poll {
    const struct teg_predict_options *options;
    volatile bool stop;
    double next_seconds;
};

static double now_seconds(void)
{
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void poll_check(void *ctx, const char *name, const struct teg_array *value)
{
    static const double between_seconds = 0.1;
    struct poll *const p = ctx;
    const double now = now_seconds();
    (void)name;
    (void)value;
    if (p->options->stop && *p->options->stop)
        p->stop = true;
    if (p->stop || now < p->next_seconds)
        return;
    p->stop = !p->options->check(p->options->check_ctx);
    p->next_seconds = now + between_seconds;
}

static enum teg_status run(struct call *c, const struct teg_eval *eval, const struct teg_predict_options *o,
                           struct teg_values **outputs)
{
    struct teg_values *values = NULL;
    struct teg_eval_report report = {0};
    TRY(gather_inputs(c));
    TRY(teg_values_new(c->allocator, c->interface->n_outputs, &values, c->err));
    struct poll poll = {.options = o};
    const struct teg_eval_watch watch = {poll_check, &poll};
    enum teg_status status =
        teg_eval_run_watched(eval, c->arrays, o->state ? o->state->values : NULL, o->check ? &poll.stop : o->stop,
                             o->check ? &watch : NULL, c->results, &report, c->err);
    if (status == TEG_OK)
        status = convert_outputs(c, values);
    values->report = (struct teg_predict_report){report.overflow_op, report.peak_bytes, report.n_ops};
    if (status == TEG_OK)
        *outputs = values;
    else
        teg_values_free(values);
    return status;
}

enum teg_status teg_program_predict(struct teg_program *program, const struct teg_feature_value *inputs,
                                    size_t n_inputs, const struct teg_predict_options *options,
                                    struct teg_values **outputs, struct teg_error *err)
{
    struct teg_predict_options o;
    teg_predict_options_default(&o);
    TRY(teg_options_read(&o, sizeof o, options, err));
    size_t index = 0;
    const struct teg_eval *eval = NULL;
    TRY(teg_program_need_function(program, o.function, &index, err));
    const struct teg_mil_function *const f = &program->mil->functions[index];
    TRY(check_state(program, &program->mil->interfaces[index], o.state, err));
    TRY(teg_program_eval(program, index, &eval, err));
    struct teg_arena scratch;
    teg_arena_init(&scratch, program->allocator);
    struct call c = {.mil = program->mil,
                     .allocator = program->allocator,
                     .function = f,
                     .interface = &program->mil->interfaces[index],
                     .inputs = inputs,
                     .n_inputs = n_inputs,
                     .err = err};
    c.arrays = teg_arena_array(&scratch, f->block.n_inputs, sizeof(struct teg_array *));
    c.results = teg_arena_array(&scratch, f->block.n_outputs, sizeof(struct teg_array *));
    enum teg_status status = TEG_OK;
    if (!c.arrays || !c.results)
        status = teg_base_fail_memory(err, "a prediction", f->block.n_inputs * sizeof(struct teg_array *));
    else
        status = run(&c, eval, &o, outputs);
    for (size_t i = 0; c.arrays && i < f->block.n_inputs; i++)
        teg_array_drop(program->allocator, c.arrays[i]);
    for (size_t i = 0; c.results && i < f->block.n_outputs; i++)
        teg_array_drop(program->allocator, c.results[i]);
    teg_arena_free(&scratch);
    return status;
}
