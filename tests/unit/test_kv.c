/* KV blocks: who owns which, who copies when, what a failure leaves. Blocks here are one page of bytes, and every byte
 * is a mark of who wrote it. */
#include "unit/format_test.h"

#include "run/kv.h"

#define BLOCK 256
#define TILE 64

static void fill(const struct teg_kv *kv, size_t block, uint8_t mark)
{
    memset(kv->blocks[block], mark, BLOCK);
}

static void holds(const struct teg_kv *kv, size_t block, uint8_t mark)
{
    for (size_t i = 0; i < BLOCK; i++)
        assert_int_equal(((const uint8_t *)kv->blocks[block])[i], mark);
}

static void reserve(struct teg_kv *kv, size_t n_held, size_t n_wanted)
{
    assert_int_equal(teg_kv_reserve(kv, n_held, n_wanted, NULL), TEG_OK);
}

static void test_reserve(void **state)
{
    (void)state;
    struct counting c;
    struct teg_kv kv;
    teg_kv_init(&kv, BLOCK, counting_init(&c, 0));
    assert_int_equal(c.n_allocs, 0); /* nothing before the first token */
    reserve(&kv, 0, 0);
    assert_int_equal(kv.n_blocks, 0);
    reserve(&kv, 0, 1);
    assert_int_equal(kv.n_blocks, 1);
    assert_int_equal((uintptr_t)kv.blocks[0] % TEG_ALIGN, 0);
    fill(&kv, 0, 1);
    void *const first = kv.blocks[0];
    reserve(&kv, 1, TILE);
    assert_int_equal(kv.n_blocks, 1);
    reserve(&kv, TILE, TILE + 1);
    assert_int_equal(kv.n_blocks, 2);
    reserve(&kv, TILE + 1, 40 * TILE); /* the table of blocks moves, the blocks do not */
    assert_int_equal(kv.n_blocks, 40);
    assert_ptr_equal(kv.blocks[0], first);
    holds(&kv, 0, 1);
    reserve(&kv, 2 * TILE, 2 * TILE); /* blocks past what is held go */
    assert_int_equal(kv.n_blocks, 2);
    assert_int_equal(c.n_live, 3);
    teg_kv_free(&kv);
    assert_int_equal(c.n_live, 0);
    reserve(&kv, 0, 1); /* and may be used again */
    teg_kv_free(&kv);
    teg_kv_free(&kv);
    assert_int_equal(c.n_live, 0);
}

static void test_truncate(void **state)
{
    (void)state;
    static const struct {
        size_t n_tokens, n_blocks;
    } rows[] = {{1000, 5}, {5 * TILE, 5}, {4 * TILE + 1, 5}, {4 * TILE, 4}, {TILE + 1, 2}, {TILE, 1}, {1, 1}, {0, 0}};
    struct counting c;
    struct teg_kv kv;
    teg_kv_init(&kv, BLOCK, counting_init(&c, 0));
    reserve(&kv, 0, 5 * TILE);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        teg_kv_truncate(&kv, rows[i].n_tokens);
        assert_int_equal(kv.n_blocks, rows[i].n_blocks);
        assert_int_equal(c.n_live, rows[i].n_blocks + 1);
    }
    teg_kv_free(&kv);
    assert_int_equal(c.n_live, 0);
}

static void test_share(void **state)
{
    (void)state;
    struct counting c;
    struct teg_kv a, b, d;
    teg_kv_init(&a, BLOCK, counting_init(&c, 0));
    teg_kv_init(&b, BLOCK, a.allocator);
    teg_kv_init(&d, BLOCK, a.allocator);
    reserve(&a, 0, 2 * TILE + 10);
    for (size_t i = 0; i < 3; i++)
        fill(&a, i, (uint8_t)(i + 1));
    assert_int_equal(teg_kv_share(&a, &b, NULL), TEG_OK);
    assert_int_equal(teg_kv_share(&b, &d, NULL), TEG_OK);
    assert_int_equal(c.n_live, 3 + 3); /* three blocks, three tables */
    reserve(&b, 2 * TILE + 10, 2 * TILE + 11);
    assert_ptr_equal(b.blocks[0], a.blocks[0]); /* full blocks stay shared, the tail is a copy */
    assert_ptr_equal(b.blocks[1], a.blocks[1]);
    assert_ptr_not_equal(b.blocks[2], a.blocks[2]);
    assert_ptr_equal(d.blocks[2], a.blocks[2]);
    holds(&b, 2, 3);
    fill(&b, 2, 9);
    holds(&a, 2, 3);
    void *const own = b.blocks[2];
    reserve(&b, 2 * TILE + 11, 2 * TILE + 12); /* no second copy */
    assert_ptr_equal(b.blocks[2], own);
    reserve(&a, TILE + 1, TILE + 2); /* a rewind into a shared block, then an append */
    assert_int_equal(a.n_blocks, 2);
    assert_ptr_not_equal(a.blocks[1], b.blocks[1]);
    fill(&a, 1, 8);
    holds(&b, 1, 2);
    holds(&d, 1, 2);
    teg_kv_free(&b);
    holds(&d, 0, 1);
    holds(&d, 1, 2);
    holds(&d, 2, 3);
    void *const tail = d.blocks[2];
    reserve(&d, 2 * TILE + 10, 2 * TILE + 11); /* the last holder writes in place */
    assert_ptr_equal(d.blocks[2], tail);
    teg_kv_free(&a);
    holds(&d, 0, 1);
    teg_kv_free(&d);
    assert_int_equal(c.n_live, 0);
}

/* At a whole number of blocks the next token opens a block: nothing is copied. */
static void test_share_whole(void **state)
{
    (void)state;
    struct counting c;
    struct teg_kv a, b;
    teg_kv_init(&a, BLOCK, counting_init(&c, 0));
    teg_kv_init(&b, BLOCK, a.allocator);
    assert_int_equal(teg_kv_share(&a, &b, NULL), TEG_OK); /* of nothing */
    assert_int_equal(b.n_blocks, 0);
    reserve(&a, 0, TILE);
    assert_int_equal(teg_kv_share(&a, &b, NULL), TEG_OK);
    reserve(&b, TILE, TILE + 1);
    assert_ptr_equal(a.blocks[0], b.blocks[0]);
    reserve(&a, TILE, TILE + 1);
    assert_ptr_not_equal(a.blocks[1], b.blocks[1]);
    reserve(&b, 0, 1); /* rewound to nothing: a new block, the old one is a's */
    assert_ptr_not_equal(a.blocks[0], b.blocks[0]);
    teg_kv_free(&a);
    teg_kv_free(&b);
    assert_int_equal(c.n_live, 0);
}

/* The n-th allocation fails: what was held is as it was, and the same call then works. */
static void test_faults(void **state)
{
    (void)state;
    enum teg_status status = TEG_ERR_MEMORY;
    size_t n = 1;
    for (; status != TEG_OK; n++) {
        struct counting c;
        struct teg_kv a, b;
        struct teg_error err = {0};
        teg_kv_init(&a, BLOCK, counting_init(&c, 0));
        teg_kv_init(&b, BLOCK, a.allocator);
        reserve(&a, 0, 2 * TILE + 10);
        for (size_t i = 0; i < 3; i++)
            fill(&a, i, (uint8_t)(i + 1));
        c.fail_at = c.n_allocs + n;
        status = teg_kv_share(&a, &b, &err);
        if (status != TEG_OK) {
            assert_int_equal(b.n_blocks, 0);
            assert_memory_equal(err.message, "out of memory: KV page table: ", 30);
        } else {
            status = teg_kv_reserve(&b, 2 * TILE + 10, 30 * TILE, &err);
            assert_int_equal(b.n_blocks, status == TEG_OK ? 30 : 3);
            assert_true(status == TEG_OK || strncmp(err.message, "out of memory: KV ", 18) == 0);
            holds(&b, 2, 3);
        }
        for (size_t i = 0; i < 3; i++)
            holds(&a, i, (uint8_t)(i + 1));
        c.fail_at = 0;
        if (!b.n_blocks)
            assert_int_equal(teg_kv_share(&a, &b, NULL), TEG_OK);
        reserve(&b, 2 * TILE + 10, 30 * TILE);
        fill(&b, 2, 7);
        holds(&a, 2, 3);
        teg_kv_free(&b);
        teg_kv_free(&a);
        assert_int_equal(c.n_live, 0);
    }
    assert_int_equal(n, 1 + 1 + 1 + 1 + 27 + 1); /* two tables, a copy, 27 new blocks, none */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reserve), cmocka_unit_test(test_truncate),
                                       cmocka_unit_test(test_share), cmocka_unit_test(test_share_whole),
                                       cmocka_unit_test(test_faults)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
