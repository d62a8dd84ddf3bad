/* run/sampler.c: logits -> one token.
 *
 * Order: bias, penalties, top-k, temperature, top-p, min-p, draw. The same seed and logits give the same token on every
 * machine: candidates are ordered by logit and then by id, probabilities come from an exponential of our own in double
 * precision (the C library's differ in the last bit), and the generator is splitmix64. This file is compiled without
 * contraction to fused operations for the same reason. */
#include "run/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/options.h"

struct candidate {
    float logit;
    int32_t id;
    double p;
};

struct teg_sampler {
    const struct teg_allocator *allocator;
    struct teg_sampler_options options;
    struct teg_logit_bias *biases;
    size_t n_vocab;
    float *logits;                /* [V] adjusted */
    struct candidate *candidates; /* [V] */
    int32_t *recent;              /* ring of the last repeat_last_n tokens */
    uint32_t *counts;             /* [V] how often each is in the ring */
    size_t n_recent, next;
    uint64_t state;
};

void teg_sampler_options_default(struct teg_sampler_options *o)
{
    *o = (struct teg_sampler_options){.size = sizeof *o,
                                      .temperature = 0.8f,
                                      .top_k = 40,
                                      .top_p = 0.95f,
                                      .min_p = 0.05f,
                                      .repeat_penalty = 1,
                                      .repeat_last_n = 64};
}

static void *take(const struct teg_allocator *a, size_t n, size_t item_bytes)
{
    void *const p = a->alloc(a->ctx, n * item_bytes + 1, TEG_ALIGN);
    return p ? memset(p, 0, n * item_bytes + 1) : NULL;
}

static void give(const struct teg_allocator *a, void *p, size_t n, size_t item_bytes)
{
    if (p)
        a->free(a->ctx, p, n * item_bytes + 1);
}

void teg_sampler_free(struct teg_sampler *s)
{
    if (!s)
        return;
    const struct teg_allocator *const a = s->allocator;
    give(a, s->biases, s->options.n_biases, sizeof *s->biases);
    give(a, s->logits, s->n_vocab, sizeof *s->logits);
    give(a, s->candidates, s->n_vocab, sizeof *s->candidates);
    give(a, s->recent, s->options.repeat_last_n, sizeof *s->recent);
    give(a, s->counts, s->n_vocab, sizeof *s->counts);
    give(a, s, 1, sizeof *s);
}

static enum teg_status check(const struct teg_sampler_options *o, size_t n_vocab, struct teg_error *err)
{
    const struct {
        const char *name;
        double value, low, high;
    } ranges[] = {{"temperature", (double)o->temperature, 0, 1000},
                  {"top-p", (double)o->top_p, 0, 1},
                  {"min-p", (double)o->min_p, 0, 1},
                  {"repeat penalty", (double)o->repeat_penalty, 1e-3, 1000},
                  {"frequency penalty", (double)o->frequency_penalty, -1000, 1000},
                  {"presence penalty", (double)o->presence_penalty, -1000, 1000},
                  {"repeat window", (double)o->repeat_last_n, 0, 1 << 24}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (!(ranges[i].value >= ranges[i].low && ranges[i].value <= ranges[i].high))
            FAIL(err, TEG_ERR_ARGUMENT, "cannot sample: %s: expected %g to %g, found %g; choose a value in that range",
                 ranges[i].name, ranges[i].low, ranges[i].high, ranges[i].value);
    for (size_t i = 0; i < o->n_biases; i++)
        if (o->biases[i].id < 0 || (size_t)o->biases[i].id >= n_vocab || isnan(o->biases[i].bias))
            FAIL(err, TEG_ERR_ARGUMENT,
                 "cannot sample: logit bias: expected a token id from 0 to %zu and a number, found "
                 "id %d, bias %g; use this model's ids",
                 n_vocab - 1, o->biases[i].id, (double)o->biases[i].bias);
    return TEG_OK;
}

enum teg_status teg_run_sampler_new(size_t n_vocab, const struct teg_sampler_options *options,
                                    const struct teg_allocator *a, struct teg_sampler **sampler, struct teg_error *err)
{
    struct teg_sampler_options o;
    teg_sampler_options_default(&o);
    TRY(teg_options_read(&o, sizeof o, options, err));
    TRY(check(&o, n_vocab, err));
    struct teg_sampler *const s = take(a, 1, sizeof *s);
    if (!s)
        return teg_base_fail_memory(err, "sampler", sizeof *s);
    s->allocator = a;
    s->options = o;
    s->n_vocab = n_vocab;
    s->state = o.seed;
    s->biases = take(a, o.n_biases, sizeof *s->biases);
    s->logits = take(a, n_vocab, sizeof *s->logits);
    s->candidates = take(a, n_vocab, sizeof *s->candidates);
    s->recent = take(a, o.repeat_last_n, sizeof *s->recent);
    s->counts = take(a, n_vocab, sizeof *s->counts);
    if (!s->biases || !s->logits || !s->candidates || !s->recent || !s->counts) {
        teg_sampler_free(s);
        return teg_base_fail_memory(err, "sampler", n_vocab * sizeof *s->candidates);
    }
    if (o.n_biases)
        memcpy(s->biases, o.biases, o.n_biases * sizeof *s->biases);
    *sampler = s;
    return TEG_OK;
}

void teg_sampler_accept(struct teg_sampler *s, int32_t id)
{
    if (id < 0 || (size_t)id >= s->n_vocab || s->options.repeat_last_n == 0)
        return;
    if (s->n_recent == s->options.repeat_last_n)
        s->counts[s->recent[s->next]]--;
    else
        s->n_recent++;
    s->recent[s->next] = id;
    s->next = (s->next + 1) % s->options.repeat_last_n;
    s->counts[id]++;
}

/* ---- numbers that are the same everywhere ---- */

static double uniform(struct teg_sampler *s)
{
    uint64_t z = s->state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return (double)(z >> 11) * 0x1p-53;
}

/* e^x for x <= 0, relative error about 1e-15: x = n ln 2 + r, a Taylor sum of 14 terms in r (|r| <= 0.35). */
static double exponential(double x)
{
    if (!(x > -700))
        return 0;
    const double n = floor(x * 1.4426950408889634 + 0.5);
    const double r = (x - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10;
    double sum = 1;
    for (int i = 14; i > 0; i--)
        sum = 1 + sum * r / i;
    return ldexp(sum, (int)n);
}

/* ---- choice ---- */

static bool before(float logit_a, int32_t id_a, float logit_b, int32_t id_b)
{
    return logit_a > logit_b || (logit_a == logit_b && id_a < id_b);
}

static int by_rank(const void *a, const void *b)
{
    const struct candidate *const x = a, *const y = b;
    return before(x->logit, x->id, y->logit, y->id) ? -1 : 1;
}

static void adjust(struct teg_sampler *s, const float *logits)
{
    const struct teg_sampler_options *const o = &s->options;
    memcpy(s->logits, logits, s->n_vocab * sizeof *logits);
    for (size_t i = 0; i < o->n_biases; i++)
        s->logits[s->biases[i].id] += s->biases[i].bias;
    if (o->repeat_penalty == 1 && o->frequency_penalty == 0 && o->presence_penalty == 0)
        return;
    for (size_t i = 0; i < s->n_vocab; i++) {
        if (!s->counts[i])
            continue;
        float *const l = &s->logits[i];
        *l = *l > 0 ? *l / o->repeat_penalty : *l * o->repeat_penalty;
        *l -= o->frequency_penalty * (float)s->counts[i] + o->presence_penalty;
    }
}

static int32_t argmax(const float *logits, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (logits[i] > logits[best] || (isnan(logits[best]) && !isnan(logits[i])))
            best = i;
    return (int32_t)best;
}

/* heap[0] is the worst of the kept ones. */
static void sift_down(struct candidate *heap, size_t n, size_t i)
{
    for (;;) {
        size_t worst = i;
        for (size_t child = 2 * i + 1; child <= 2 * i + 2 && child < n; child++)
            if (before(heap[worst].logit, heap[worst].id, heap[child].logit, heap[child].id))
                worst = child;
        if (worst == i)
            return;
        const struct candidate swap = heap[i];
        heap[i] = heap[worst];
        heap[worst] = swap;
        i = worst;
    }
}

/* The k best candidates, best first; NaN and -infinity are never candidates. Returns how many there are. */
static size_t top_k(struct teg_sampler *s, size_t k)
{
    struct candidate *const heap = s->candidates;
    size_t n = 0;
    for (size_t i = 0; i < s->n_vocab; i++) {
        const float l = s->logits[i];
        if (isnan(l) || l == -INFINITY)
            continue;
        if (n < k) {
            heap[n++] = (struct candidate){.logit = l, .id = (int32_t)i};
            if (n == k)
                for (size_t h = n / 2 + 1; h-- > 0;)
                    sift_down(heap, n, h);
        } else if (before(l, (int32_t)i, heap[0].logit, heap[0].id)) {
            heap[0] = (struct candidate){.logit = l, .id = (int32_t)i};
            sift_down(heap, n, 0);
        }
    }
    if (n)
        qsort(heap, n, sizeof *heap, by_rank);
    return n;
}

static int32_t draw(struct teg_sampler *s, size_t n)
{
    struct candidate *const c = s->candidates;
    const struct teg_sampler_options *const o = &s->options;
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        /* An infinite logit is certain; its differences would be NaN. */
        const double x =
            c[i].logit == c[0].logit ? 0 : ((double)c[i].logit - (double)c[0].logit) / (double)o->temperature;
        c[i].p = exponential(x);
        sum += c[i].p;
    }
    size_t kept = 0;
    double mass = 0;
    while (kept < n && (kept == 0 || (mass < (double)o->top_p * sum && c[kept].p >= (double)o->min_p * c[0].p)))
        mass += c[kept++].p;
    double point = uniform(s) * mass;
    for (size_t i = 0; i < kept; i++) {
        point -= c[i].p;
        if (point < 0)
            return c[i].id;
    }
    return c[kept - 1].id;
}

int32_t teg_sampler_pick(struct teg_sampler *s, const float *logits)
{
    const struct teg_sampler_options *const o = &s->options;
    adjust(s, logits);
    int32_t id = argmax(s->logits, s->n_vocab);
    if (o->temperature > 0) {
        const size_t n = top_k(s, o->top_k ? teg_min(o->top_k, s->n_vocab) : s->n_vocab);
        if (n)
            id = draw(s, n);
    }
    teg_sampler_accept(s, id);
    return id;
}
