/* Sampler: greedy rules, filters at their edges, penalties, biases, option ranges, frequencies of a long run, and
 * recorded sequences of ids that must be the same on every machine. */
#include <math.h>

#include "unit/format_test.h"

#include "run/sampler.h"

#define V 8

static struct teg_sampler_options plain(float temperature)
{
    struct teg_sampler_options o;
    teg_sampler_options_default(&o);
    o.temperature = temperature;
    o.top_k = 0;
    o.top_p = 1;
    o.min_p = 0;
    return o;
}

static struct teg_sampler *make(const struct teg_sampler_options *o)
{
    struct teg_sampler *s = NULL;
    struct teg_error err = {0};
    if (teg_run_sampler_new(V, o, teg_allocator_or_default(NULL), &s, &err) != TEG_OK)
        fail_msg("%s", err.message);
    return s;
}

static int32_t pick_once(const struct teg_sampler_options *o, const float logits[V])
{
    struct teg_sampler *const s = make(o);
    const int32_t id = teg_sampler_pick(s, logits);
    teg_sampler_free(s);
    return id;
}

/* Which ids come up in many draws, as bits. */
static unsigned seen_in(const struct teg_sampler_options *o, const float logits[V])
{
    struct teg_sampler *const s = make(o);
    unsigned seen = 0;
    for (int i = 0; i < 3000; i++)
        seen |= 1u << teg_sampler_pick(s, logits);
    teg_sampler_free(s);
    return seen;
}

static void test_defaults(void **state)
{
    (void)state;
    struct teg_sampler_options o;
    teg_sampler_options_default(&o);
    assert_int_equal(o.size, sizeof o);
    assert_true(o.temperature == 0.8f && o.top_k == 40 && o.top_p == 0.95f && o.min_p == 0.05f);
    assert_true(o.repeat_penalty == 1 && o.frequency_penalty == 0 && o.presence_penalty == 0);
    assert_true(o.repeat_last_n == 64 && o.seed == 0 && o.n_biases == 0);
    const float logits[V] = {0, 100, 0, 0, 0, 0, 0, 0};
    assert_int_equal(pick_once(NULL, logits), 1);
    teg_sampler_free(NULL);
}

static void test_greedy(void **state)
{
    (void)state;
    static const struct {
        float logits[V];
        int32_t id;
    } rows[] = {
        {{1, 2, 3, 4, 5, 6, 7, 8}, 7},
        {{1, 9, 3, 9, 5, 9, 7, 8}, 1}, /* ties: the lower id */
        {{0, 0, 0, 0, 0, 0, 0, 0}, 0},
        {{NAN, 2, NAN, 4, NAN, 3, NAN, NAN}, 3},
        {{NAN, NAN, -INFINITY, NAN, -5, NAN, NAN, NAN}, 4},
        {{NAN, NAN, -INFINITY, NAN, NAN, NAN, NAN, NAN}, 2},
        {{NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN}, 0}, /* something must be said */
        {{-INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY}, 0},
        {{1, 2, INFINITY, 4, INFINITY, 6, 7, 8}, 2},
        {{-3, -2, -4, -2, -9, -2.5f, -7, -8}, 1},
        {{-0.0f, 0.0f, -1, -1, -1, -1, -1, -1}, 0}, /* equal */
    };
    const struct teg_sampler_options o = plain(0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(pick_once(&o, rows[i].logits), rows[i].id);
}

static void test_certain(void **state)
{
    (void)state;
    struct teg_sampler_options o = plain(1);
    const float inf[V] = {1, INFINITY, 3, NAN, 5, -INFINITY, 7, 8};
    assert_int_equal(seen_in(&o, inf), 1u << 1);
    const float two[V] = {1, INFINITY, 3, NAN, 5, INFINITY, 7, 8};
    assert_int_equal(seen_in(&o, two), 1u << 1 | 1u << 5);
    const float holes[V] = {NAN, 1, -INFINITY, 1, NAN, 1, -INFINITY, NAN};
    assert_int_equal(seen_in(&o, holes), 1u << 1 | 1u << 3 | 1u << 5);
    const float nothing[V] = {NAN, NAN, -INFINITY, NAN, NAN, NAN, NAN, NAN};
    assert_int_equal(pick_once(&o, nothing), 2);
    o.temperature = 1e-40f; /* as good as greedy, without overflow */
    const float near[V] = {1, 2, 3, 4, 5, 6, 7, 7.0001f};
    assert_int_equal(seen_in(&o, near), 1u << 7);
}

static const float ramp[V] = {0, -1, -2, -3, -4, -5, -6, -7}; /* p of the first: 0.632 */

static void test_filters(void **state)
{
    (void)state;
    struct teg_sampler_options o = plain(1);
    assert_int_equal(seen_in(&o, ramp) & 0x3f, 0x3f);
    o.top_k = 1;
    assert_int_equal(seen_in(&o, ramp), 1);
    o.top_k = 3;
    assert_int_equal(seen_in(&o, ramp), 7);
    o.top_k = 1000; /* more than there are */
    assert_int_equal(seen_in(&o, ramp) & 0x3f, 0x3f);
    const float ties[V] = {1, 5, 5, 5, 5, 1, 5, 1};
    o.top_k = 2; /* the lower ids of equals */
    assert_int_equal(seen_in(&o, ties), 1u << 1 | 1u << 2);
    o = plain(1);
    o.top_p = 0; /* at least one */
    assert_int_equal(seen_in(&o, ramp), 1);
    o.top_p = 0.63f; /* 0.632 is enough */
    assert_int_equal(seen_in(&o, ramp), 1);
    o.top_p = 0.64f; /* 0.632 is not: the next joins */
    assert_int_equal(seen_in(&o, ramp), 3);
    o = plain(1);
    o.min_p = 1; /* only equals of the best */
    assert_int_equal(seen_in(&o, ramp), 1);
    assert_int_equal(seen_in(&o, ties), 1u << 1 | 1u << 2 | 1u << 3 | 1u << 4 | 1u << 6);
    o.min_p = 0.3f; /* e^-1 = 0.368 stays, e^-2 = 0.135 goes */
    assert_int_equal(seen_in(&o, ramp), 3);
    o.min_p = 0.4f;
    assert_int_equal(seen_in(&o, ramp), 1);
    o = plain(4); /* the temperature is applied before min-p: e^-0.25, e^-0.5, e^-0.75 */
    o.min_p = 0.5f;
    assert_int_equal(seen_in(&o, ramp), 7);
}

static void test_bias(void **state)
{
    (void)state;
    struct teg_logit_bias biases[] = {{0, -INFINITY}, {5, 4.5f}, {5, 0.75f}};
    struct teg_sampler_options o = plain(0);
    o.biases = biases;
    o.n_biases = 3;
    struct teg_sampler *const s = make(&o);
    biases[1].bias = biases[2].bias = -100;         /* it has its own copy */
    assert_int_equal(teg_sampler_pick(s, ramp), 5); /* -5 + 4.5 + 0.75 beats -1 */
    teg_sampler_free(s);
    o = plain(1);
    o.biases = (struct teg_logit_bias[]){{0, -INFINITY}, {1, -INFINITY}};
    o.n_biases = 2;
    assert_int_equal(seen_in(&o, ramp) & 3, 0);
    const float dead[V] = {1, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY};
    o.biases = (struct teg_logit_bias[]){{3, INFINITY}};
    o.n_biases = 1; /* inf - inf is no number: not a candidate */
    assert_int_equal(pick_once(&o, dead), 0);
}

static void test_penalties(void **state)
{
    (void)state;
    const float logits[V] = {4, 3, -1, -2, -9, -9, -9, -9};
    struct teg_sampler_options o = plain(0);
    o.repeat_penalty = 2;
    struct teg_sampler *s = make(&o);
    assert_int_equal(teg_sampler_pick(s, logits), 0); /* 4; then 2 against 3 */
    assert_int_equal(teg_sampler_pick(s, logits), 1); /* then 1.5 against 2 */
    assert_int_equal(teg_sampler_pick(s, logits), 0);
    teg_sampler_free(s);
    const float negative[V] = {-1, -1.5f, -9, -9, -9, -9, -9, -9};
    s = make(&o);
    teg_sampler_accept(s, 0); /* -1 becomes -2 */
    assert_int_equal(teg_sampler_pick(s, negative), 1);
    teg_sampler_free(s);
    o = plain(0);
    o.frequency_penalty = 0.6f;
    s = make(&o);
    teg_sampler_accept(s, 0); /* once: 3.4; twice: 2.8 against 3 */
    assert_int_equal(teg_sampler_pick(s, logits), 0);
    assert_int_equal(teg_sampler_pick(s, logits), 1);
    teg_sampler_free(s);
    o = plain(0);
    o.presence_penalty = 0.6f;
    s = make(&o);
    for (int i = 0; i < 10; i++) /* once or ten times: 3.4 */
        assert_int_equal(teg_sampler_pick(s, logits), 0);
    teg_sampler_free(s);
    o.presence_penalty = -2; /* a reward */
    s = make(&o);
    teg_sampler_accept(s, 1);
    assert_int_equal(teg_sampler_pick(s, logits), 1);
    teg_sampler_free(s);
}

static void test_recent(void **state)
{
    (void)state;
    const float logits[V] = {4, 3.9f, 3.8f, -9, -9, -9, -9, -9};
    struct teg_sampler_options o = plain(0);
    o.presence_penalty = 1;
    o.repeat_last_n = 2;
    struct teg_sampler *s = make(&o);
    for (int i = 0; i < 9; i++) /* only two are remembered, so three take turns */
        assert_int_equal(teg_sampler_pick(s, logits), i % 3);
    for (int i = 0; i < 5; i++) /* no such token: nobody forgets anything */
        teg_sampler_accept(s, i % 2 ? -1 : V);
    assert_int_equal(teg_sampler_pick(s, logits), 0);
    teg_sampler_free(s);
    o.repeat_last_n = 0;
    s = make(&o);
    for (int i = 0; i < 3; i++)
        assert_int_equal(teg_sampler_pick(s, logits), 0);
    teg_sampler_free(s);
}

/* ---- the same everywhere ---- */

/* Bits, not decimal numbers: nothing here depends on a library. */
static void golden_logits(uint32_t seed, float logits[V])
{
    uint32_t x = seed;
    for (size_t i = 0; i < V; i++) {
        x = x * 1664525u + 1013904223u;
        logits[i] = (float)(x >> 20) * 0x1p-10f - 2;
    }
}

static void draw_golden(const struct teg_sampler_options *o, char out[41])
{
    struct teg_sampler *const s = make(o);
    float logits[V];
    for (uint32_t i = 0; i < 40; i++) {
        golden_logits(i, logits);
        out[i] = (char)('0' + teg_sampler_pick(s, logits));
    }
    out[40] = '\0';
    teg_sampler_free(s);
}

static void test_golden(void **state)
{
    (void)state;
    struct teg_sampler_options o;
    char ids[41], again[41];
    teg_sampler_options_default(&o);
    draw_golden(&o, ids);
    assert_string_equal(ids, "5331336577745676161547751216123373356111");
    o.seed = 1;
    draw_golden(&o, ids);
    assert_string_equal(ids, "3705341177775645161667656235221577657645");
    o.seed = UINT64_MAX;
    o.temperature = 2.5f;
    o.top_k = 0;
    o.top_p = 1;
    o.min_p = 0;
    draw_golden(&o, ids);
    assert_string_equal(ids, "1043727152707014511575747771611220726712");
    o.repeat_penalty = 1.3f;
    o.frequency_penalty = 0.25f;
    o.presence_penalty = 0.5f;
    o.repeat_last_n = 5;
    draw_golden(&o, ids);
    assert_string_equal(ids, "1143725152767543161546756175031020376121");
    draw_golden(&o, again);
    assert_string_equal(ids, again);
}

/* Chi-square with 7 degrees of freedom stays below 24.3 in 999 of 1000 runs; the seed is fixed, so this one does. */
static void test_distribution(void **state)
{
    (void)state;
    static const float temperatures[] = {0.5f, 1, 3};
    for (size_t k = 0; k < 3; k++) {
        struct teg_sampler_options o = plain(temperatures[k]);
        o.seed = 42 + k;
        struct teg_sampler *const s = make(&o);
        const float logits[V] = {0, -0.5f, 1, 0.25f, -1, 0.75f, 0, -0.25f};
        double sum = 0, chi = 0;
        size_t counts[V] = {0};
        const size_t n = 200000;
        for (size_t i = 0; i < n; i++)
            counts[teg_sampler_pick(s, logits)]++;
        for (size_t i = 0; i < V; i++)
            sum += exp((double)logits[i] / (double)temperatures[k]);
        for (size_t i = 0; i < V; i++) {
            const double expected = (double)n * exp((double)logits[i] / (double)temperatures[k]) / sum;
            chi += ((double)counts[i] - expected) * ((double)counts[i] - expected) / expected;
        }
        assert_true(chi < 24.3);
        teg_sampler_free(s);
    }
}

/* ---- refusals ---- */

static void refuses(const struct teg_sampler_options *o, const char *message)
{
    struct counting c;
    struct teg_sampler *s = NULL;
    struct teg_error err = {0};
    assert_int_equal(teg_run_sampler_new(V, o, counting_init(&c, 0), &s, &err), TEG_ERR_ARGUMENT);
    assert_string_equal(err.message, message);
    assert_null(s);
    assert_int_equal(c.n_live, 0);
}

#define RANGE(field, value, text)                                                                                      \
    do {                                                                                                               \
        o = plain(1);                                                                                                  \
        o.field = (value);                                                                                             \
        refuses(&o, "cannot sample: " text "; choose a value in that range");                                          \
    } while (0)

static void test_ranges(void **state)
{
    (void)state;
    struct teg_sampler_options o;
    RANGE(temperature, -0.5f, "temperature: expected 0 to 1000, found -0.5");
    RANGE(temperature, NAN, "temperature: expected 0 to 1000, found nan");
    RANGE(temperature, INFINITY, "temperature: expected 0 to 1000, found inf");
    RANGE(top_p, 1.5f, "top-p: expected 0 to 1, found 1.5");
    RANGE(top_p, -1, "top-p: expected 0 to 1, found -1");
    RANGE(min_p, 2, "min-p: expected 0 to 1, found 2");
    RANGE(min_p, NAN, "min-p: expected 0 to 1, found nan");
    RANGE(repeat_penalty, 0, "repeat penalty: expected 0.001 to 1000, found 0");
    RANGE(frequency_penalty, 1001, "frequency penalty: expected -1000 to 1000, found 1001");
    RANGE(presence_penalty, -1001, "presence penalty: expected -1000 to 1000, found -1001");
    RANGE(repeat_last_n, (1u << 24) + 1, "repeat window: expected 0 to 1.67772e+07, found 1.67772e+07");
    o = plain(1);
    o.n_biases = 1;
    o.biases = (struct teg_logit_bias[]){{V, 1}};
    refuses(&o, "cannot sample: logit bias: expected a token id from 0 to 7 and a number, found id 8, bias 1; use this "
                "model's ids");
    o.biases = (struct teg_logit_bias[]){{-1, 1}};
    refuses(&o, "cannot sample: logit bias: expected a token id from 0 to 7 and a number, found id -1, bias 1; use "
                "this model's ids");
    o.biases = (struct teg_logit_bias[]){{2, NAN}};
    refuses(&o, "cannot sample: logit bias: expected a token id from 0 to 7 and a number, found id 2, bias nan; use "
                "this model's ids");
}

static void test_faults(void **state)
{
    (void)state;
    enum teg_status status = TEG_ERR_MEMORY;
    size_t n = 1;
    for (; status != TEG_OK; n++) {
        struct counting c;
        struct teg_sampler *s = NULL;
        struct teg_error err = {0};
        struct teg_sampler_options o = plain(1);
        o.biases = (struct teg_logit_bias[]){{2, 1}};
        o.n_biases = 1;
        status = teg_run_sampler_new(V, &o, counting_init(&c, n), &s, &err);
        if (status != TEG_OK) {
            assert_int_equal(status, TEG_ERR_MEMORY);
            assert_memory_equal(err.message, "out of memory: sampler: ", 24);
            assert_null(s);
        } else {
            const size_t before = c.n_allocs;
            (void)teg_sampler_pick(s, ramp); /* and no allocation after that */
            assert_int_equal(c.n_allocs, before);
        }
        teg_sampler_free(s);
        assert_int_equal(c.n_live, 0);
    }
    assert_int_equal(n, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults), cmocka_unit_test(test_greedy), cmocka_unit_test(test_certain),
        cmocka_unit_test(test_filters),  cmocka_unit_test(test_bias),   cmocka_unit_test(test_penalties),
        cmocka_unit_test(test_recent),   cmocka_unit_test(test_golden), cmocka_unit_test(test_distribution),
        cmocka_unit_test(test_ranges),   cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
