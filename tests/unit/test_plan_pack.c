/* Packing a fast plan: every source byte is released and counted once, a refusal or a failed allocation leaves the plan
 * as it was, exact plans pack nothing. */
#include "unit/format_test.h"

#include "build/build.h"
#include "plan/plan.h"

#define MODEL TEST_DATA "/tiny/llama-mixed.gguf"

struct fixture {
    struct teg_source *source;
    struct teg_graph *graph;
    struct teg_arena arena;
    struct teg_cpu cpu;
    struct teg_plan *plan;
};

static void open_plan(struct fixture *f, bool fast)
{
    struct teg_error err = {0};
    struct teg_hparams hp;
    const struct teg_plan_options options = {.fast = fast};
    teg_arena_init(&f->arena, NULL);
    teg_cpu_detect(&f->cpu);
    if (teg_source_open(MODEL, true, NULL, &f->source, &err) != TEG_OK ||
        teg_build(f->source, &f->arena, &f->graph, &hp, &err) != TEG_OK ||
        teg_plan_new(f->graph, &f->cpu, &options, &f->arena, &f->plan, &err) != TEG_OK)
        fail_msg("%s", err.message);
}

static void close_plan(struct fixture *f)
{
    teg_plan_free(f->plan);
    teg_source_free(f->source);
    teg_arena_free(&f->arena);
}

static void count_bytes(void *ctx, const void *data, size_t n_bytes)
{
    assert_non_null(data);
    *(size_t *)ctx += n_bytes;
}

static bool watch(void *ctx, uint64_t done, uint64_t total)
{
    assert_true(done <= total);
    *(uint64_t *)ctx = done;
    return true;
}

static bool refuse(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx, (void)done, (void)total;
    return false;
}

static bool in_packed(const struct teg_plan *plan, const struct teg_step *s)
{
    const char *const begin = plan->packed.memory, *const at = s->weight;
    return begin && at >= begin && at < begin + plan->packed.n_bytes;
}

static void test_success(void **state)
{
    (void)state;
    struct fixture f;
    size_t released = 0, n_packed = 0;
    uint64_t done = 0;
    open_plan(&f, true);
    const struct teg_pack_hooks hooks = {.release = count_bytes,
                                         .release_ctx = &released,
                                         .progress = watch,
                                         .progress_ctx = &done,
                                         .total_bytes = UINT64_MAX};
    assert_true(teg_plan_gains(f.graph));
    assert_int_equal(teg_plan_pack(f.plan, &f.cpu, NULL, &hooks, NULL), TEG_OK);
    assert_true(released > 0 && released == done && f.plan->packed.replaced_bytes <= released);
    for (uint32_t i = 0; i < f.plan->n_steps; i++) {
        const struct teg_step *const s = &f.plan->steps[i];
        const bool packed = s->kind == TEG_STEP_LINEAR && s->gemm;
        assert_int_equal(in_packed(f.plan, s), packed);
        n_packed += packed;
    }
    assert_true(n_packed > 0);
    close_plan(&f);
}

static void *no_memory(void *ctx, size_t size_bytes, size_t align_bytes)
{
    (void)ctx, (void)size_bytes, (void)align_bytes;
    return NULL;
}

static void no_free(void *ctx, void *ptr, size_t size_bytes)
{
    (void)ctx, (void)ptr, (void)size_bytes;
}

static void test_failures(void **state)
{
    (void)state;
    struct fixture f;
    struct teg_error err = {0};
    const struct teg_allocator empty = {no_memory, no_free, NULL};
    const struct teg_pack_hooks none = {0}, stop = {.progress = refuse};
    open_plan(&f, true);
    assert_int_equal(teg_plan_pack(f.plan, &f.cpu, &empty, &none, &err), TEG_ERR_MEMORY);
    assert_non_null(strstr(err.message, "out of memory: packing: expected"));
    assert_int_equal(teg_plan_pack(f.plan, &f.cpu, NULL, &stop, &err), TEG_ERR_INTERRUPTED);
    assert_non_null(strstr(err.message, "interrupted: packing weights: expected to pack"));
    assert_null(f.plan->packed.memory);
    for (uint32_t i = 0; i < f.plan->n_steps; i++)
        assert_false(in_packed(f.plan, &f.plan->steps[i]));
    assert_int_equal(teg_plan_pack(f.plan, &f.cpu, NULL, &none, &err), TEG_OK);
    close_plan(&f);
}

static void test_exact(void **state)
{
    (void)state;
    struct fixture f;
    const struct teg_pack_hooks none = {0};
    open_plan(&f, false);
    assert_int_equal(teg_plan_pack(f.plan, &f.cpu, NULL, &none, NULL), TEG_OK);
    assert_true(!f.plan->packed.memory && f.plan->packed.n_bytes == 0);
    close_plan(&f);
    teg_plan_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_success), cmocka_unit_test(test_failures),
                                       cmocka_unit_test(test_exact)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
