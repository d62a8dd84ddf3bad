/* eval/state.c: the values that outlive a run, by name.
 *
 * Invariant: every state of every function of the program has an array of exactly its declared type; functions that
 * name the same state declare the same type, so one object serves prefill and decode. */
#include <string.h>

#include "eval/frame.h"

struct slot {
    const char *name;
    const struct teg_mil_type *type;
    struct teg_array *array;
};

struct teg_eval_state {
    const struct teg_allocator *allocator;
    size_t n, capacity;
    struct slot slots[];
};

static const struct slot *find_slot(const struct teg_eval_state *state, const char *name)
{
    for (size_t i = 0; i < state->n; i++)
        if (strcmp(state->slots[i].name, name) == 0)
            return &state->slots[i];
    return NULL;
}

static bool is_same_type(const struct teg_mil_type *a, const struct teg_mil_type *b)
{
    bool same = a->dtype == b->dtype && a->rank == b->rank;
    for (int32_t d = 0; same && d < a->rank; d++)
        same = a->dims[d] == b->dims[d];
    return same;
}

static enum teg_status add_slot(struct teg_eval_state *state, const struct teg_mil_var *v, struct teg_error *err)
{
    const struct slot *const other = find_slot(state, v->name);
    if (other && is_same_type(other->type, &v->type))
        return TEG_OK;
    if (other)
        FAIL(err, TEG_ERR_FORMAT, "cannot make state: %.100s: expected one type in all functions, found two", v->name);
    size_t dims[TEG_MIL_MAX_RANK];
    for (int32_t d = 0; d < v->type.rank; d++)
        dims[d] = (size_t)v->type.dims[d]; /* constant: the reader has checked */
    if (v->type.rank < 0 || teg_form_of(v->type.dtype) == TEG_FORM_STRING)
        FAIL(err, TEG_ERR_FORMAT, "cannot make state: %.100s: expected numbers of a known rank", v->name);
    struct teg_array *const array = teg_array_new(state->allocator, v->type.dtype, (uint32_t)v->type.rank, dims);
    if (!array)
        FAIL(err, TEG_ERR_MEMORY, "cannot make state: %.100s: expected memory for it, found none", v->name);
    memset(array->data, 0, array->n_bytes);
    state->slots[state->n++] = (struct slot){v->name, &v->type, array};
    return TEG_OK;
}

enum teg_status teg_eval_state_new(const struct teg_mil_program *program, const struct teg_allocator *allocator,
                                   struct teg_eval_state **state, struct teg_error *err)
{
    const struct teg_allocator *const a = teg_allocator_or_default(allocator);
    size_t capacity = 0;
    for (size_t f = 0; f < program->n_functions; f++)
        capacity += program->functions[f].block.n_inputs;
    const size_t n_bytes = sizeof(struct teg_eval_state) + capacity * sizeof(struct slot);
    struct teg_eval_state *const made = a->alloc(a->ctx, n_bytes, TEG_ALIGN);
    if (!made)
        return teg_base_fail_memory(err, "a state", n_bytes);
    *made = (struct teg_eval_state){.allocator = a, .capacity = capacity};
    for (size_t f = 0; f < program->n_functions; f++) {
        const struct teg_mil_block *const b = &program->functions[f].block;
        for (size_t i = 0; i < b->n_inputs; i++) {
            const struct teg_mil_var *const v = &program->vars[b->inputs[i]];
            const enum teg_status s = v->type.kind == TEG_MIL_STATE ? add_slot(made, v, err) : TEG_OK;
            if (s != TEG_OK) {
                teg_eval_state_free(made);
                return s;
            }
        }
    }
    *state = made;
    return TEG_OK;
}

void teg_eval_state_free(struct teg_eval_state *state)
{
    if (!state)
        return;
    const struct teg_allocator *const a = state->allocator;
    for (size_t i = 0; i < state->n; i++)
        teg_array_drop(a, state->slots[i].array);
    a->free(a->ctx, state, sizeof *state + state->capacity * sizeof(struct slot));
}

const struct teg_array *teg_eval_state_array(const struct teg_eval_state *state, const char *name)
{
    const struct slot *const s = find_slot(state, name);
    return s ? s->array : NULL;
}

enum teg_status teg_eval_state_set(struct teg_eval_state *state, const char *name, struct teg_array *array,
                                   struct teg_error *err)
{
    struct slot *const s = (struct slot *)find_slot(state, name);
    if (!s)
        FAIL(err, TEG_ERR_ARGUMENT,
             "cannot write state: %.100s: expected one of the model's %zu states, found no such "
             "name",
             name, state->n);
    bool fits = array->form == s->array->form && array->rank == s->array->rank;
    for (uint32_t d = 0; fits && d < array->rank; d++)
        fits = array->dims[d] == s->array->dims[d];
    if (!fits)
        FAIL(err, TEG_ERR_ARGUMENT, "cannot write state: %.100s: expected %s of shape %s, found %s of shape %s", name,
             teg_mil_dtype_info(s->type->dtype)->name, teg_shape_text(s->array->rank, s->array->dims).text,
             teg_mil_dtype_info(array->dtype)->name, teg_shape_text(array->rank, array->dims).text);
    struct teg_array *const rounded = teg_array_as(state->allocator, array, s->type->dtype);
    if (!rounded)
        FAIL(err, TEG_ERR_MEMORY, "cannot write state: %.100s: expected memory for its value, found none", name);
    teg_array_drop(state->allocator, s->array);
    s->array = rounded;
    return TEG_OK;
}

size_t teg_eval_state_count(const struct teg_eval_state *state)
{
    return state->n;
}

const char *teg_eval_state_name(const struct teg_eval_state *state, size_t index)
{
    return index < state->n ? state->slots[index].name : NULL;
}

struct teg_array *teg_frame_swap_state(struct teg_eval_state *state, const char *name, struct teg_array *array)
{
    struct slot *const s = (struct slot *)find_slot(state, name);
    struct teg_array *const before = s->array;
    s->array = array;
    return before;
}
