/* quant/vector.c: palettes whose entries are 2 or 4 neighbouring values of a row.
 *
 * In more than one dimension the optimum cannot be had; Lloyd's iterations find a local one. To keep it a function of
 * the input alone, the start is the k-means++ rule driven by a fixed sequence (the points drawn with a chance that
 * grows with their distance to what is there), and sums are taken in order. Entries are found on an even sample of the
 * group where it is large; every vector then takes its nearest entry. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "quant/impl.h"

enum { MOST_ENTRIES = 256, WIDEST = 4, SAMPLES_PER_ENTRY = 128, ROUNDS = 25 };

struct centre {
    float x[WIDEST];
};

struct workspace {
    struct centre *points; /* the sample */
    struct centre *weights;
    float *distance; /* to the nearest centre */
    uint8_t *nearest;
};

struct vector_job {
    struct encoding *e;
    struct workspace *workspaces;
    size_t n_samples; /* of a group */
};

/* A step of a fixed sequence (xorshift): 0 … 1. */
static double draw(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (double)(*state >> 11) * 0x1p-53;
}

static float squared(const struct centre *a, const struct centre *b, const struct centre *w, size_t v)
{
    float sum = 0;
    for (size_t l = 0; l < v; l++)
        sum += (a->x[l] - b->x[l]) * (a->x[l] - b->x[l]) * w->x[l];
    return sum;
}

static void load(const struct encoding *e, size_t vector, struct centre *x, struct centre *w)
{
    const size_t v = e->q.rule.vector;
    *x = *w = (struct centre){{0}};
    for (size_t l = 0; l < v; l++) {
        x->x[l] = e->values[vector * v + l];
        w->x[l] = error_weight(e, vector * v + l);
    }
}

static size_t find_nearest(const struct centre *centres, size_t k, const struct centre *x, const struct centre *w,
                           size_t v, float *distance)
{
    size_t best = 0;
    *distance = INFINITY;
    for (size_t c = 0; c < k; c++) {
        const float d = squared(&centres[c], x, w, v);
        if (d < *distance) {
            *distance = d;
            best = c;
        }
    }
    return best;
}

/* The next centre: a sample drawn by its distance to the nearest one. */
static size_t pick(const struct workspace *w, size_t n, uint64_t *state)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)w->distance[i];
    double left = draw(state) * sum;
    for (size_t i = 0; i < n; i++) {
        left -= (double)w->distance[i];
        if (left < 0)
            return i;
    }
    return n - 1;
}

static void seed(const struct workspace *w, size_t n, size_t k, size_t v, struct centre *centres)
{
    uint64_t state = 0x9e3779b97f4a7c15u;
    centres[0] = w->points[n / 2];
    for (size_t i = 0; i < n; i++)
        w->distance[i] = squared(&centres[0], &w->points[i], &w->weights[i], v);
    for (size_t c = 1; c < k; c++) {
        centres[c] = w->points[pick(w, n, &state)];
        for (size_t i = 0; i < n; i++)
            w->distance[i] = fminf(w->distance[i], squared(&centres[c], &w->points[i], &w->weights[i], v));
    }
}

/* One round; false where nothing changed. An entry without samples takes the sample that is served worst. */
static bool improve(const struct workspace *w, size_t n, size_t k, size_t v, struct centre *centres)
{
    double sums[MOST_ENTRIES][WIDEST] = {{0}}, weights[MOST_ENTRIES][WIDEST] = {{0}};
    bool changed = false;
    size_t worst = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t c = find_nearest(centres, k, &w->points[i], &w->weights[i], v, &w->distance[i]);
        changed |= c != w->nearest[i];
        w->nearest[i] = (uint8_t)c;
        worst = w->distance[i] > w->distance[worst] ? i : worst;
        for (size_t l = 0; l < v; l++) {
            sums[c][l] += (double)w->weights[i].x[l] * (double)w->points[i].x[l];
            weights[c][l] += (double)w->weights[i].x[l];
        }
    }
    for (size_t c = 0; c < k; c++)
        for (size_t l = 0; l < v; l++) {
            if (weights[c][l] > 0)
                centres[c].x[l] = (float)(sums[c][l] / weights[c][l]);
            else
                centres[c].x[l] = w->points[worst].x[l];
        }
    return changed;
}

static void encode_group(void *ctx, size_t group, size_t worker)
{
    const struct vector_job *const job = ctx;
    const struct encoding *const e = job->e;
    const struct workspace *const w = &job->workspaces[worker];
    const size_t v = e->q.rule.vector, k = (size_t)1 << e->q.rule.bits, n = e->group_n / v, first = group * n;
    struct centre centres[MOST_ENTRIES];
    for (size_t i = 0; i < job->n_samples; i++)
        load(e, first + i * n / job->n_samples, &w->points[i], &w->weights[i]);
    memset(w->nearest, 0, job->n_samples);
    seed(w, job->n_samples, k, v, centres);
    for (int round = 0; round < ROUNDS; round++)
        if (!improve(w, job->n_samples, k, v, centres) && round)
            break;
    for (size_t c = 0; c < k; c++)
        for (size_t l = 0; l < v; l++) {
            const uint16_t half = teg_f32_to_f16(centres[c].x[l]);
            e->table[(group * k + c) * v + l] = half;
            centres[c].x[l] = teg_f16_to_f32(half);
        }
    for (size_t i = first; i < first + n; i++) {
        struct centre x, weight;
        float distance;
        load(e, i, &x, &weight);
        e->codes[i] = (uint8_t)find_nearest(centres, k, &x, &weight, v, &distance);
    }
}

enum teg_status teg_quant_vector_palette(struct encoding *e, struct teg_error *err)
{
    const size_t v = e->q.rule.vector, k = (size_t)1 << e->q.rule.bits,
                 workers = teg_quant_workers(e->pool, e->n_groups);
    struct vector_job job = {.e = e, .n_samples = teg_min(e->group_n / v, k * SAMPLES_PER_ENTRY)};
    job.workspaces = teg_arena_array(&e->scratch, workers, sizeof *job.workspaces);
    e->table = teg_arena_array(&e->scratch, e->n_groups * k * v, sizeof *e->table);
    bool ok = job.workspaces && e->table;
    for (size_t i = 0; ok && i < workers; i++) {
        struct workspace *const w = &job.workspaces[i];
        w->points = teg_arena_array(&e->scratch, job.n_samples, sizeof *w->points);
        w->weights = teg_arena_array(&e->scratch, job.n_samples, sizeof *w->weights);
        w->distance = teg_arena_array(&e->scratch, job.n_samples, sizeof *w->distance);
        w->nearest = teg_arena_array(&e->scratch, job.n_samples, sizeof *w->nearest);
        ok = w->points && w->weights && w->distance && w->nearest;
    }
    if (!ok)
        return teg_base_fail_memory(err, "palettes", e->n_groups * k * v * sizeof *e->table);
    teg_quant_run(e->pool, encode_group, &job, e->n_groups);
    return TEG_OK;
}
