/* What the tests of builders share: a graph from a fake model, and its ops by kind. */
#ifndef BUILD_TEST_H
#define BUILD_TEST_H

#include <math.h>

#include "unit/fake_source.h"
#include "unit/format_test.h"

#include "build/build.h"

struct built {
    struct teg_source *source;
    struct teg_arena arena;
    struct teg_graph *graph;
    struct teg_hparams hp;
    struct teg_error err;
    enum teg_status status;
};

static inline struct built build(struct fake *f)
{
    struct built b = {0};
    teg_arena_init(&b.arena, NULL);
    b.source = fake_source(f, NULL);
    assert_non_null(b.source);
    b.status = teg_build(b.source, &b.arena, &b.graph, &b.hp, &b.err);
    return b;
}

static inline void built_free(struct built *b)
{
    teg_arena_free(&b->arena);
    teg_source_free(b->source);
}

/* The n-th allocation fails, for all n, of which there are fewer than `most`: one error each time, nothing is left. */
static inline void build_every_allocation(struct fake *f, size_t most)
{
    struct teg_source *const source = fake_source(f, NULL);
    enum teg_status status = TEG_ERR_MEMORY;
    for (size_t n = 1; status != TEG_OK; n++) {
        struct counting c;
        struct teg_arena arena;
        struct teg_graph *graph = NULL;
        struct teg_hparams hp;
        struct teg_error err = {0};
        teg_arena_init(&arena, counting_init(&c, n));
        status = teg_build(source, &arena, &graph, &hp, &err);
        if (status != TEG_OK) {
            assert_int_equal(status, TEG_ERR_MEMORY);
            assert_int_equal(err.status, TEG_ERR_MEMORY);
            assert_null(graph);
        }
        teg_arena_free(&arena);
        assert_int_equal(c.n_live, 0);
        assert_true(n < most);
    }
    teg_source_free(source);
}

static inline struct built build_well(struct fake *f)
{
    const struct built b = build(f);
    if (b.status != TEG_OK)
        fail_msg("%s", b.err.message);
    assert_non_null(b.graph);
    return b;
}

static inline const struct teg_op *nth_op(const struct teg_graph *g, enum teg_op_kind kind, uint32_t n)
{
    for (uint32_t i = 0; i < g->n_ops; i++)
        if (g->ops[i].kind == kind && n-- == 0)
            return &g->ops[i];
    fail_msg("no such op in the graph: %s", teg_op_name(kind));
    return NULL;
}

#endif
