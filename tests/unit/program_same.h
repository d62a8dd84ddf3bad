/* Two programs are the same: functions, ops, types, values and interfaces, whatever the numbers of their variables. */
#ifndef PROGRAM_SAME_H
#define PROGRAM_SAME_H

#include "unit/mil_test.h"

struct same {
    const struct teg_mil_program *a, *b;
    teg_mil_var_id *map; /* a's computed variables to b's */
    const char *where;   /* function, for messages */
};

static inline void same_value(const struct same *s, const struct teg_mil_const *a, const struct teg_mil_const *b)
{
    size_t n = 0;
    assert_true(teg_mil_same_type(&a->type, &b->type));
    assert_int_equal(a->n_items, b->n_items);
    for (size_t i = 0; i < a->n_items; i++)
        same_value(s, &a->items[i], &b->items[i]);
    if (a->type.kind != TEG_MIL_TENSOR)
        return;
    assert_true(teg_mil_count(&a->type, &n));
    if (a->type.dtype == TEG_MIL_STRING) {
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(a->strings[i].n_bytes, b->strings[i].n_bytes);
            assert_memory_equal(a->strings[i].bytes, b->strings[i].bytes, a->strings[i].n_bytes);
        }
        return;
    }
    assert_int_equal(a->n_bytes, b->n_bytes);
    if (a->n_bytes)
        assert_memory_equal(a->bytes, b->bytes, a->n_bytes);
}

static inline void same_use(const struct same *s, teg_mil_var_id a, teg_mil_var_id b)
{
    const struct teg_mil_var *const x = &s->a->vars[a], *const y = &s->b->vars[b];
    assert_string_equal(x->name, y->name);
    assert_int_equal(x->constant != NULL, y->constant != NULL);
    if (x->constant)
        same_value(s, x->constant, y->constant);
    else
        assert_int_equal(s->map[a], b);
}

static inline void same_definitions(struct same *s, const teg_mil_var_id *a, size_t n_a, const teg_mil_var_id *b,
                                    size_t n_b)
{
    assert_int_equal(n_a, n_b);
    for (size_t i = 0; i < n_a; i++) {
        assert_string_equal(s->a->vars[a[i]].name, s->b->vars[b[i]].name);
        assert_true(teg_mil_same_type(&s->a->vars[a[i]].type, &s->b->vars[b[i]].type));
        assert_int_equal(s->a->vars[a[i]].op, s->b->vars[b[i]].op);
        s->map[a[i]] = b[i];
    }
}

static inline void same_block(struct same *s, const struct teg_mil_block *a, const struct teg_mil_block *b)
{
    same_definitions(s, a->inputs, a->n_inputs, b->inputs, b->n_inputs);
    assert_int_equal(a->n_ops, b->n_ops);
    for (size_t i = 0; i < a->n_ops; i++) {
        const struct teg_mil_op *const x = &a->ops[i], *const y = &b->ops[i];
        assert_string_equal(x->type, y->type);
        assert_string_equal(x->name, y->name);
        assert_int_equal(x->n_args, y->n_args);
        for (size_t j = 0; j < x->n_args; j++) {
            assert_string_equal(x->args[j].name, y->args[j].name);
            assert_int_equal(x->args[j].n_vars, y->args[j].n_vars);
            for (size_t k = 0; k < x->args[j].n_vars; k++)
                same_use(s, x->args[j].vars[k], y->args[j].vars[k]);
        }
        assert_int_equal(x->n_blocks, y->n_blocks);
        for (size_t j = 0; j < x->n_blocks; j++)
            same_block(s, &x->blocks[j], &y->blocks[j]);
        same_definitions(s, x->outputs, x->n_outputs, y->outputs, y->n_outputs);
    }
    assert_int_equal(a->n_outputs, b->n_outputs);
    for (size_t i = 0; i < a->n_outputs; i++)
        same_use(s, a->outputs[i], b->outputs[i]);
}

static inline void same_features(const struct teg_mil_feature *a, size_t n_a, const struct teg_mil_feature *b,
                                 size_t n_b)
{
    assert_int_equal(n_a, n_b);
    for (size_t i = 0; i < n_a; i++) {
        struct teg_mil_feature x = a[i], y = b[i];
        assert_string_equal(x.name, y.name);
        assert_string_equal(x.description, y.description);
        assert_int_equal(x.n_enumerated, y.n_enumerated);
        for (size_t j = 0; j < x.n_enumerated; j++)
            assert_memory_equal(x.enumerated[j], y.enumerated[j], sizeof x.enumerated[j]);
        assert_int_equal(x.kind, y.kind);
        assert_int_equal(x.optional, y.optional);
        assert_int_equal(x.dtype, y.dtype);
        assert_int_equal(x.has_shape, y.has_shape);
        assert_int_equal(x.rank, y.rank);
        assert_memory_equal(x.shape, y.shape, sizeof x.shape);
        assert_memory_equal(x.lower, y.lower, sizeof x.lower);
        assert_memory_equal(x.upper, y.upper, sizeof x.upper);
        assert_int_equal(x.has_default, y.has_default);
        assert_true(x.default_value == y.default_value);
        assert_int_equal(x.colour, y.colour);
        const int64_t sizes[2][6] = {
            {x.width, x.height, x.min_width, x.max_width, x.min_height, x.max_height},
            {y.width, y.height, y.min_width, y.max_width, y.min_height, y.max_height},
        };
        assert_memory_equal(sizes[0], sizes[1], sizeof sizes[0]);
    }
}

static inline void same_interface(const struct teg_mil_interface *a, const struct teg_mil_interface *b)
{
    assert_string_equal(a->function, b->function);
    assert_string_equal(a->predicted_feature, b->predicted_feature);
    assert_string_equal(a->predicted_probabilities, b->predicted_probabilities);
    same_features(a->inputs, a->n_inputs, b->inputs, b->n_inputs);
    same_features(a->outputs, a->n_outputs, b->outputs, b->n_outputs);
    same_features(a->states, a->n_states, b->states, b->n_states);
}

static inline void assert_same_program(const struct teg_mil_program *a, const struct teg_mil_program *b)
{
    struct same s = {a, b, calloc(a->n_vars + 1, sizeof *s.map), NULL};
    assert_non_null(s.map);
    assert_int_equal(a->spec_version, b->spec_version);
    assert_string_equal(a->default_function, b->default_function);
    const char *const texts[2][4] = {{a->author, a->license, a->version, a->description},
                                     {b->author, b->license, b->version, b->description}};
    for (int i = 0; i < 4; i++)
        assert_string_equal(texts[0][i], texts[1][i]);
    assert_int_equal(a->n_user_metadata, b->n_user_metadata);
    for (size_t i = 0; i < a->n_user_metadata; i++)
        for (int j = 0; j < 2; j++) {
            assert_int_equal(a->user_metadata[i][j].n_bytes, b->user_metadata[i][j].n_bytes);
            assert_memory_equal(a->user_metadata[i][j].bytes, b->user_metadata[i][j].bytes,
                                a->user_metadata[i][j].n_bytes);
        }
    assert_int_equal(a->n_functions, b->n_functions);
    for (size_t i = 0; i < a->n_functions; i++) {
        s.where = a->functions[i].name;
        assert_string_equal(a->functions[i].name, b->functions[i].name);
        assert_int_equal(a->functions[i].opset, b->functions[i].opset);
        same_interface(&a->interfaces[i], &b->interfaces[i]);
        same_block(&s, &a->functions[i].block, &b->functions[i].block);
    }
    free(s.map);
}

#endif
