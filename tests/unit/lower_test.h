/* What the tests of lowering share: weights of a made program put into memory, so that everything that takes a program
 * can take it; functions of a program run by name; a session's logits to compare with. */
#ifndef LOWER_TEST_H
#define LOWER_TEST_H

#include "eval/eval.h"
#include "pass/lower.h"

/* The greater one. Not fmax: gcc 12 for Arm dies of a loop over that. */
static inline double lower_worse(double worst, double gap)
{
    return gap > worst ? gap : worst;
}

/* Deferred constants get their bytes, in `arena`. */
static inline void lower_fill(struct teg_mil_program *p, struct teg_arena *arena)
{
    struct teg_error err = {0};
    const struct teg_mil_deferred *last = NULL;
    struct teg_span parts[TEG_MIL_DEFERRED_PARTS] = {{0}};
    for (size_t i = 0; i < p->n_vars; i++) {
        struct teg_mil_const *const c = (struct teg_mil_const *)p->vars[i].constant;
        if (!c || !c->deferred || c->bytes)
            continue;
        if (c->deferred != last && c->deferred->make(c->deferred, arena, parts, &err) != TEG_OK)
            fail_msg("%s", err.message);
        last = c->deferred;
        if (parts[c->deferred_part].n_bytes != c->n_bytes)
            fail_msg("%s: part %u has %zu bytes, the constant %zu", p->vars[i].name ? p->vars[i].name : "?",
                     c->deferred_part, parts[c->deferred_part].n_bytes, c->n_bytes);
        c->bytes = parts[c->deferred_part].bytes;
    }
}

struct lowered {
    struct teg_lowered *whole;
    struct teg_mil_program *program;
    struct teg_arena arena;
};

static inline struct lowered lower_well(const struct teg_graph *g, const struct teg_lower_options *o)
{
    struct lowered l = {0};
    struct teg_error err = {0};
    teg_arena_init(&l.arena, NULL);
    if (teg_lower(g, o, NULL, &l.whole, &err) != TEG_OK)
        fail_msg("%s", err.message);
    l.program = teg_lowered_program(l.whole);
    lower_fill(l.program, &l.arena);
    return l;
}

static inline void lowered_free(struct lowered *l)
{
    teg_lowered_free(l->whole);
    teg_arena_free(&l->arena);
}

/* ---- running functions ---- */

enum { LOWER_INPUTS = 64 };

/* Arrays by name: a caller of a package. */
struct lower_values {
    const char *names[LOWER_INPUTS * 4];
    struct teg_array *arrays[LOWER_INPUTS * 4];
    size_t n;
};

static inline void lower_set(struct lower_values *v, const char *name, struct teg_array *array)
{
    for (size_t i = 0; i < v->n; i++)
        if (strcmp(v->names[i], name) == 0) {
            teg_array_drop(teg_allocator_or_default(NULL), v->arrays[i]);
            v->arrays[i] = array;
            return;
        }
    assert_true(v->n < LOWER_INPUTS * 4);
    v->names[v->n] = name; /* the program's, or a literal */
    v->arrays[v->n++] = array;
}

static inline struct teg_array *lower_get(const struct lower_values *v, const char *name)
{
    for (size_t i = 0; i < v->n; i++)
        if (strcmp(v->names[i], name) == 0)
            return v->arrays[i];
    fail_msg("no value %s", name);
    return NULL;
}

static inline bool lower_has(const struct lower_values *v, const char *name)
{
    for (size_t i = 0; i < v->n; i++)
        if (strcmp(v->names[i], name) == 0)
            return true;
    return false;
}

static inline void lower_drop(struct lower_values *v)
{
    for (size_t i = 0; i < v->n; i++)
        teg_array_drop(teg_allocator_or_default(NULL), v->arrays[i]);
    v->n = 0;
}

static inline struct teg_array *lower_ints(uint32_t rank, const size_t *dims, const int32_t *data)
{
    struct teg_array *const a = teg_array_new(teg_allocator_or_default(NULL), TEG_MIL_INT32, rank, dims);
    assert_non_null(a);
    memcpy(a->i32, data, a->n * sizeof *data);
    return a;
}

static inline struct teg_eval *lower_eval(const struct teg_mil_program *p, const char *function, bool emulate)
{
    struct teg_eval *eval = NULL;
    struct teg_error err = {0};
    const struct teg_eval_options o = {.n_threads = 1, .emulate_fp16 = emulate};
    if (teg_eval_new(p, function, &o, &eval, &err) != TEG_OK)
        fail_msg("%s", err.message);
    return eval;
}

/* Takes inputs by name, adds outputs by name. */
static inline void lower_run(const struct teg_mil_program *p, const char *function, const struct teg_eval *eval,
                             struct teg_eval_state *state, struct lower_values *v, struct teg_eval_report *report)
{
    struct teg_array *in[LOWER_INPUTS], *out[LOWER_INPUTS] = {NULL};
    struct teg_error err = {0};
    size_t at = 0;
    while (strcmp(p->functions[at].name, function) != 0)
        at++;
    const struct teg_mil_interface *const face = &p->interfaces[at];
    for (size_t i = 0; i < face->n_inputs; i++)
        in[i] = lower_get(v, face->inputs[i].name);
    if (teg_eval_run(eval, in, state, NULL, out, report, &err) != TEG_OK)
        fail_msg("%s: %s", function, err.message);
    for (size_t i = 0; i < face->n_outputs; i++)
        lower_set(v, face->outputs[i].name, out[i]);
}

#endif
