/* What the fuzz targets of raise share: MIL text is read, every function of it raised, looked at, and asked why not. A
 * graph that comes out must verify, what is counted must add up, and all memory is given back. */
#ifndef RAISE_FUZZ_H
#define RAISE_FUZZ_H

#include <stdlib.h>

#include "pass/raise.h"

/* A leaf of the text can name more memory than any program here needs. */
enum { MOST_BYTES = 1 << 28 };

static inline void *limited_alloc(void *ctx, size_t size_bytes, size_t align_bytes)
{
    void *p = NULL;
    size_t *const left = ctx;
    if (size_bytes > *left || posix_memalign(&p, align_bytes, size_bytes) != 0)
        return NULL;
    *left -= size_bytes;
    return p;
}

static inline void limited_free(void *ctx, void *p, size_t size_bytes)
{
    *(size_t *)ctx += size_bytes;
    free(p);
}

/* The number of functions that were raised. */
static inline size_t fuzz_raise_text(const char *text, size_t n_bytes)
{
    static const struct teg_string theta[1][2] = {{{"rope_theta", 10}, {"100", 3}}}; /* what text has no place for */
    size_t left = MOST_BYTES, n_raised = 0;
    const struct teg_allocator allocator = {limited_alloc, limited_free, &left};
    struct teg_mil_program *program = NULL;
    struct teg_error err;
    if (teg_mil_parse_text(text, n_bytes, NULL, 0, "fuzz", &allocator, &program, &err) != TEG_OK)
        return 0;
    program->user_metadata = theta;
    program->n_user_metadata = 1;
    for (size_t i = 0; i < program->n_functions; i++) {
        const struct teg_raise_options options = {.function = program->functions[i].name};
        struct teg_arena arena;
        struct teg_raised raised;
        struct teg_buf lines = {0};
        struct teg_raise_survey survey;
        teg_arena_init(&arena, &allocator);
        if (teg_raise(program, &options, &arena, &raised, &err) == TEG_OK) {
            n_raised++;
            if (teg_graph_verify(raised.graph, &err) != TEG_OK)
                abort();
        }
        (void)teg_raise_why_not(program, &options, NULL, &lines, &err);
        teg_buf_free(&lines);
        if (teg_raise_look(program, &options, &survey, &err) == TEG_OK) {
            if (survey.n_understood > survey.n_ops)
                abort();
            teg_raise_survey_free(&survey);
        }
        teg_arena_free(&arena);
    }
    teg_mil_free(program);
    if (left != MOST_BYTES)
        abort();
    return n_raised;
}

#endif
