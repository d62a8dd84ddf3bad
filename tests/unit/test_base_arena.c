/* Arena: alignment, zeroing, own blocks for large requests, overflow, the failing allocator, and reuse after free. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/check.h"

/* Counts what is out and fails the n-th allocation. */
struct counting {
    struct teg_allocator allocator;
    size_t n_allocs, n_live, live_bytes, fail_at; /* fail_at counts from 1; 0: never */
};

static void *counting_alloc(void *ctx, size_t size_bytes, size_t align_bytes)
{
    struct counting *const c = ctx;
    if (++c->n_allocs == c->fail_at)
        return NULL;
    void *p = NULL;
    if (posix_memalign(&p, align_bytes, size_bytes) != 0)
        return NULL;
    memset(p, 0xA5, size_bytes); /* what is not cleared shows */
    c->n_live++;
    c->live_bytes += size_bytes;
    return p;
}

static void counting_free(void *ctx, void *ptr, size_t size_bytes)
{
    struct counting *const c = ctx;
    free(ptr);
    c->n_live--;
    c->live_bytes -= size_bytes;
}

static struct counting *counting_init(struct counting *c, size_t fail_at)
{
    *c = (struct counting){.allocator = {counting_alloc, counting_free, c}, .fail_at = fail_at};
    return c;
}

static bool is_zero(const void *p, size_t n_bytes)
{
    const uint8_t *const bytes = p;
    for (size_t i = 0; i < n_bytes; i++)
        if (bytes[i])
            return false;
    return true;
}

static void test_empty_takes_nothing(void **state)
{
    (void)state;
    struct counting c;
    struct teg_arena arena;
    teg_arena_init(&arena, &counting_init(&c, 0)->allocator);
    teg_arena_free(&arena);
    assert_int_equal(c.n_allocs, 0);
}

static void test_aligned_and_zeroed(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4000, 4096, 4097, 16384, 100000, 3 << 20, 7};
    struct counting c;
    struct teg_arena arena;
    teg_arena_init(&arena, &counting_init(&c, 0)->allocator);
    for (size_t round = 0; round < 3; round++) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            uint8_t *const p = teg_arena_alloc(&arena, sizes[i]);
            assert_non_null(p);
            assert_int_equal((uintptr_t)p % TEG_ALIGN, 0);
            assert_true(is_zero(p, sizes[i]));
            memset(p, 0xFF, sizes[i]);
        }
    }
    assert_int_equal(arena.total_bytes, c.live_bytes);
    teg_arena_free(&arena);
    assert_int_equal(c.n_live, 0);
    assert_int_equal(c.live_bytes, 0);
}

/* Blocks handed out earlier stay as they were written. */
static void test_blocks_do_not_overlap(void **state)
{
    (void)state;
    enum { N = 2000 };
    struct teg_arena arena;
    teg_arena_init(&arena, NULL);
    uint8_t **const p = calloc(N, sizeof *p);
    assert_non_null(p);
    for (size_t i = 0; i < N; i++) {
        const size_t n_bytes = i * 37 % 9000;
        p[i] = i % 2 ? teg_arena_alloc(&arena, n_bytes) : teg_arena_array(&arena, n_bytes, 1);
        assert_non_null(p[i]);
        assert_int_equal((uintptr_t)p[i] % 16, 0);
        memset(p[i], (int)(i & 0xFF), n_bytes);
    }
    for (size_t i = 0; i < N; i++)
        for (size_t j = 0; j < i * 37 % 9000; j++)
            assert_int_equal(p[i][j], i & 0xFF);
    free(p);
    teg_arena_free(&arena);
}

static void test_large_request_keeps_current_block(void **state)
{
    (void)state;
    struct counting c;
    struct teg_arena arena;
    teg_arena_init(&arena, &counting_init(&c, 0)->allocator);
    assert_non_null(teg_arena_alloc(&arena, 64));
    assert_non_null(teg_arena_alloc(&arena, 1 << 20));
    assert_non_null(teg_arena_alloc(&arena, 64)); /* from the first block, not a third */
    assert_int_equal(c.n_allocs, 2);
    teg_arena_free(&arena);
}

static void test_overflow_is_null(void **state)
{
    (void)state;
    struct counting c;
    struct teg_arena arena;
    teg_arena_init(&arena, &counting_init(&c, 0)->allocator);
    assert_null(teg_arena_array(&arena, SIZE_MAX / 2, 3));
    assert_null(teg_arena_alloc(&arena, SIZE_MAX));
    assert_null(teg_arena_alloc(&arena, SIZE_MAX - TEG_ALIGN));
    assert_null(teg_arena_string(&arena, "", SIZE_MAX));
    assert_int_equal(c.n_allocs, 0);
    assert_non_null(teg_arena_alloc(&arena, 8)); /* a refusal does no harm */
    teg_arena_free(&arena);
}

static void test_every_allocation_can_fail(void **state)
{
    (void)state;
    for (size_t fail_at = 1; fail_at < 20; fail_at++) {
        struct counting c;
        struct teg_arena arena;
        teg_arena_init(&arena, &counting_init(&c, fail_at)->allocator);
        size_t n_null = 0;
        for (size_t i = 0; i < 40; i++)
            n_null += teg_arena_alloc(&arena, 3000 * i) == NULL;
        assert_int_equal(n_null, c.n_allocs >= fail_at ? 1 : 0);
        teg_arena_free(&arena);
        assert_int_equal(c.n_live, 0);
    }
}

static void test_strings(void **state)
{
    (void)state;
    struct teg_arena arena;
    teg_arena_init(&arena, NULL);
    assert_string_equal(teg_arena_string(&arena, "tile!", 4), "tile");
    assert_string_equal(teg_arena_string(&arena, NULL, 0), "");
    assert_string_equal(teg_arena_printf(&arena, "%d-%s", 7, "x"), "7-x");
    char long_text[5000];
    memset(long_text, 'a', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    assert_string_equal(teg_arena_printf(&arena, "%s", long_text), long_text);
    teg_arena_free(&arena);
}

static void test_strings_without_memory(void **state)
{
    (void)state;
    struct counting c;
    struct teg_arena arena;
    teg_arena_init(&arena, &counting_init(&c, 1)->allocator);
    assert_null(teg_arena_printf(&arena, "%d", 1));
    teg_arena_init(&arena, &counting_init(&c, 1)->allocator);
    assert_null(teg_arena_string(&arena, "x", 1));
    teg_arena_free(&arena);
}

static void test_reuse_after_free(void **state)
{
    (void)state;
    struct counting c;
    struct teg_arena arena;
    teg_arena_init(&arena, &counting_init(&c, 0)->allocator);
    for (int i = 0; i < 3; i++) {
        assert_non_null(teg_arena_alloc(&arena, 100));
        teg_arena_free(&arena);
        assert_int_equal(arena.total_bytes, 0);
        assert_int_equal(c.n_live, 0);
    }
}

static void test_checked_arithmetic(void **state)
{
    (void)state;
    size_t out = 42;
    assert_false(teg_add(SIZE_MAX, 1, &out));
    assert_false(teg_mul(SIZE_MAX / 2 + 1, 2, &out));
    assert_false(teg_round_up(SIZE_MAX, 64, &out));
    assert_int_equal(out, 42); /* untouched on failure */
    assert_true(teg_add(SIZE_MAX - 1, 1, &out) && out == SIZE_MAX);
    assert_true(teg_mul(0, SIZE_MAX, &out) && out == 0);
    assert_true(teg_mul(SIZE_MAX, 1, &out) && out == SIZE_MAX);
    assert_true(teg_round_up(65, 64, &out) && out == 128);
    assert_true(teg_round_up(64, 64, &out) && out == 64);
    assert_true(teg_round_up(0, 64, &out) && out == 0);
    assert_int_equal(teg_min(3, 4), 3);
    assert_int_equal(teg_max(3, 4), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty_takes_nothing),
        cmocka_unit_test(test_aligned_and_zeroed),
        cmocka_unit_test(test_blocks_do_not_overlap),
        cmocka_unit_test(test_large_request_keeps_current_block),
        cmocka_unit_test(test_overflow_is_null),
        cmocka_unit_test(test_every_allocation_can_fail),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_strings_without_memory),
        cmocka_unit_test(test_reuse_after_free),
        cmocka_unit_test(test_checked_arithmetic),
    };
    return cmocka_run_group_tests_name("base arena", tests, NULL, NULL);
}
