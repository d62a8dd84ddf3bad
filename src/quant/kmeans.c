/* quant/kmeans.c: k-means on a line, solved exactly.
 *
 * On a line the clusters of an optimum are runs of the sorted points, so the best cost of the first i points in c
 * clusters is
 *
 *     best[c][i] = min over j < i of best[c - 1][j] + cost(j, i)
 *
 * with cost(j, i) the squared error of points j … i - 1 around their mean. With prefix sums W, S (weights, weighted
 * points) and the constant sum of squares left out, cost(j, i) = -(S_i - S_j)² / (W_i - W_j): two loads and a division.
 * The best j never goes down as i grows, nor as c grows, so each layer is filled by divide and conquer between the
 * neighbours' choices: O(k · n · log n), in practice a few evaluations a cell. Where each cell's j is kept (two bytes),
 * the clusters are read back from the end.
 *
 * Sums are doubles, every comparison takes the first of equals: the result is a function of the input. Not taken:
 * Lloyd's iterations (a local optimum that depends on its start), SMAWK (fewer evaluations on paper, more work for
 * each). */
#include <math.h>

#include "quant/impl.h"

struct sums {
    double weight, moment;
};

struct solver {
    const struct sums *sums; /* [n + 1] */
    const double *before;    /* best of one cluster less, [n + 1] */
    double *now;
    const uint16_t *before_choice; /* its choices: lower bounds */
    uint16_t *choice;
};

/* Points are at most 65,536: a choice, which is below n, fits 16 bits. */
size_t teg_kmeans_bytes(size_t n, size_t k)
{
    return (n + 1) * (sizeof(struct sums) + 2 * sizeof(double)) + (n + 1) * k * sizeof(uint16_t);
}

static inline double gain(const struct sums *s, size_t j, size_t i)
{
    const double moment = s[i].moment - s[j].moment;
    return moment * moment / (s[i].weight - s[j].weight);
}

/* Cells first … last, whose choices lie in low … high. Depth: log2 of the cells. */
static void fill(const struct solver *v, size_t first, size_t last, size_t low, size_t high)
{
    const size_t i = first + (last - first) / 2;
    const size_t before = v->before_choice[i - 1]; /* that layer ends a cell earlier */
    const size_t begin = before > low ? before : low, end = high < i - 1 ? high : i - 1;
    double best = INFINITY;
    size_t choice = begin;
    for (size_t j = begin; j <= end; j++) {
        const double cost = v->before[j] - gain(v->sums, j, i);
        if (cost < best) {
            best = cost;
            choice = j;
        }
    }
    v->now[i] = best;
    v->choice[i] = (uint16_t)choice;
    if (i > first)
        fill(v, first, i - 1, low, choice);
    if (i < last)
        fill(v, i + 1, last, choice, high);
}

void teg_kmeans(const struct teg_kmeans_point *points, size_t n, size_t k, double *centres, void *memory)
{
    struct sums *const sums = memory;
    double *before = (double *)(sums + n + 1), *now = before + n + 1;
    uint16_t *const choices = (uint16_t *)(now + n + 1); /* [k, n + 1] */
    sums[0] = (struct sums){0, 0};
    for (size_t i = 0; i < n; i++)
        sums[i + 1] = (struct sums){sums[i].weight + points[i].weight, sums[i].moment + points[i].weight * points[i].x};
    for (size_t i = 1; i <= n; i++) {
        before[i] = -gain(sums, 0, i);
        choices[i] = 0;
    }
    for (size_t c = 1; c < k; c++) {
        /* Cells that matter: at least a point for each cluster before, and for each cluster to come. */
        const size_t first = c + 1 == k ? n : c + 1, last = n - (k - 1 - c);
        const struct solver v = {sums, before, now, choices + (c - 1) * (n + 1), choices + c * (n + 1)};
        fill(&v, first, last, c, last - 1);
        double *const swap = before;
        before = now;
        now = swap;
    }
    for (size_t c = k, end = n; c-- > 0;) {
        const size_t begin = choices[c * (n + 1) + end];
        centres[c] = (sums[end].moment - sums[begin].moment) / (sums[end].weight - sums[begin].weight);
        end = begin;
    }
}
