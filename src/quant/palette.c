/* quant/palette.c: tables of single values: k-means, uniform, unique.
 *
 * Values go through fp16 first, which is what a dense package would hold, so a group has at most 63,488 distinct ones.
 * Their weights are gathered in an array indexed by the half's bits in ascending order: that sorts, merges equals and
 * costs one pass. The centres are the optimum of kmeans.c, rounded to fp16; then each value takes the nearest rounded
 * entry, so rounding cannot move a value to a worse one. Tables ascend; unused entries are 0.
 *
 * One group is encoded by one thread, in memory that is taken before the threads start. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "quant/impl.h"

enum { KEYS = 1 << 16, TABLE = 256 };

/* Memory of one thread. */
struct workspace {
    double *weights;                 /* [KEYS]: of each key; 0 outside of a call */
    uint8_t *entries;                /* [KEYS]: key to table index */
    struct teg_kmeans_point *points; /* [most distinct values] */
    uint16_t *keys;                  /* of the points */
    void *memory;                    /* for kmeans */
};

struct palette_job {
    struct encoding *e;
    struct workspace *workspaces;
    bool *too_many; /* [n_groups]: more unique values than the table holds */
};

/* Bits of a half as a number that ascends with its value; both zeros are one. */
static uint32_t key_of(float x)
{
    const uint32_t h = teg_f32_to_f16(x);
    return h == 0x8000 ? 0x8000 : h & 0x8000 ? 0xffff - h : h | 0x8000;
}

static double value_of(uint32_t key)
{
    return (double)teg_f16_to_f32((uint16_t)(key & 0x8000 ? key & 0x7fff : 0xffff - key));
}

/* The distinct values of a group with their weights; empties the array. */
static size_t gather(const struct encoding *e, struct workspace *w, size_t begin)
{
    uint32_t low = KEYS - 1, high = 0;
    for (size_t i = begin; i < begin + e->group_n; i++) {
        const double weight = (double)error_weight(e, i);
        if (!(weight > 0))
            continue;
        const uint32_t key = key_of(e->values[i]);
        w->weights[key] += weight;
        low = key < low ? key : low;
        high = key > high ? key : high;
    }
    size_t n = 0;
    for (uint32_t key = low; key <= high; key++)
        if (w->weights[key] > 0) {
            w->points[n] = (struct teg_kmeans_point){value_of(key), w->weights[key]};
            w->keys[n++] = (uint16_t)key;
            w->weights[key] = 0;
        }
    return n;
}

static size_t uniform_table(const struct workspace *w, size_t n, size_t entries, double *table)
{
    const double low = w->points[0].x, step = (w->points[n - 1].x - low) / (double)(entries - 1);
    for (size_t k = 0; k < entries; k++)
        table[k] = low + step * (double)k;
    return entries;
}

/* Ascending; returns how many entries are used. */
static size_t make_table(const struct encoding *e, const struct workspace *w, size_t n, double *table)
{
    const size_t entries = (size_t)1 << e->q.rule.bits;
    if (n == 0)
        return 0;
    if (e->q.rule.table == TEG_QUANT_UNIFORM)
        return uniform_table(w, n, entries, table);
    if (n <= entries || e->q.rule.table == TEG_QUANT_UNIQUE) /* too many: an error afterwards */
        for (size_t i = 0; i < n && i < entries; i++)
            table[i] = w->points[i].x;
    else
        teg_kmeans(w->points, n, entries, table, w->memory);
    return n < entries ? n : entries;
}

/* Nearest entry of each key between the group's least and largest; the lower one of two equally near. */
static size_t nearest(const double *table, size_t used, size_t at, double x)
{
    while (at + 1 < used && fabs(table[at + 1] - x) < fabs(table[at] - x))
        at++;
    return at;
}

static void encode_group(void *ctx, size_t group, size_t worker)
{
    const struct palette_job *const job = ctx;
    struct encoding *const e = job->e;
    struct workspace *const w = &job->workspaces[worker];
    const size_t entries = (size_t)1 << e->q.rule.bits, begin = group * e->group_n;
    double table[TABLE] = {0};
    const size_t n = gather(e, w, begin), used = make_table(e, w, n, table);
    job->too_many[group] = e->q.rule.table == TEG_QUANT_UNIQUE && n > entries;
    for (size_t k = 0; k < entries; k++) {
        e->table[group * entries + k] = teg_f32_to_f16((float)table[k]);
        table[k] = (double)teg_f16_to_f32(e->table[group * entries + k]);
    }
    for (size_t i = 0, at = 0; i < n; i++)
        w->entries[w->keys[i]] = (uint8_t)(at = nearest(table, used, at, w->points[i].x));
    for (size_t i = begin; i < begin + e->group_n; i++)
        e->codes[i] = error_weight(e, i) > 0 ? w->entries[key_of(e->values[i])]
                                             : (uint8_t)(used ? nearest(table, used, 0, (double)e->values[i]) : 0);
}

static enum teg_status make_workspaces(struct palette_job *job, struct teg_error *err)
{
    struct encoding *const e = job->e;
    const size_t most = e->group_n < KEYS ? e->group_n : KEYS, entries = (size_t)1 << e->q.rule.bits;
    const size_t n = teg_quant_workers(e->pool, e->n_groups);
    const size_t bytes = e->q.rule.table == TEG_QUANT_KMEANS ? teg_kmeans_bytes(most, entries) : 0;
    job->workspaces = teg_arena_array(&e->scratch, n, sizeof *job->workspaces);
    for (size_t i = 0; job->workspaces && i < n; i++) {
        struct workspace *const w = &job->workspaces[i];
        w->weights = teg_arena_array(&e->scratch, KEYS, sizeof *w->weights);
        w->entries = teg_arena_array(&e->scratch, KEYS, sizeof *w->entries);
        w->points = teg_arena_array(&e->scratch, most, sizeof *w->points);
        w->keys = teg_arena_array(&e->scratch, most, sizeof *w->keys);
        w->memory = teg_arena_alloc(&e->scratch, bytes);
        if (!w->weights || !w->entries || !w->points || !w->keys || !w->memory)
            return teg_base_fail_memory(err, "palettes", bytes);
    }
    job->too_many = teg_arena_array(&e->scratch, e->n_groups, sizeof *job->too_many);
    e->table = teg_arena_array(&e->scratch, e->n_groups * entries, sizeof *e->table);
    if (!job->workspaces || !job->too_many || !e->table)
        return teg_base_fail_memory(err, "palettes", e->n_groups * entries * sizeof *e->table);
    return TEG_OK;
}

enum teg_status teg_quant_palette(struct encoding *e, struct teg_error *err)
{
    struct palette_job job = {.e = e};
    TRY(make_workspaces(&job, err));
    teg_quant_run(e->pool, encode_group, &job, e->n_groups);
    for (size_t g = 0; g < e->n_groups; g++)
        if (job.too_many[g])
            FAIL(err, TEG_ERR_ARGUMENT,
                 "cannot quantize: %s: expected at most %u distinct values in group %zu, found more; leave out "
                 "'unique', or take more bits",
                 e->name, 1u << e->q.rule.bits, g);
    return TEG_OK;
}

/* ---- unique tables ---- */

/* Distinct halves of a group, at most 257. `seen` [KEYS / 8] is empty before and after. */
static size_t count_distinct(const float *values, size_t n, uint8_t *seen)
{
    uint32_t keys[TABLE + 1];
    size_t count = 0;
    for (size_t i = 0; i < n && count <= TABLE; i++) {
        const uint32_t key = key_of(values[i]);
        if (!(seen[key / 8] >> key % 8 & 1)) {
            seen[key / 8] = (uint8_t)(seen[key / 8] | 1u << key % 8);
            keys[count++] = key;
        }
    }
    for (size_t i = 0; i < count; i++)
        seen[keys[i] / 8] = 0;
    return count;
}

enum teg_status teg_quant_unique_bits(const struct teg_quant_rule *rule, const float *values, uint64_t rows,
                                      uint64_t columns, const char *name, uint32_t *bits, struct teg_error *err)
{
    static const uint8_t sizes[] = {1, 2, 3, 4, 6, 8};
    struct teg_quantized q;
    uint8_t seen[KEYS / 8] = {0};
    struct teg_quant_rule widest = *rule;
    size_t most = 0;
    widest.bits = 8;
    TRY(teg_quant_layout(&widest, rows, columns, name, &q, err));
    const size_t group_n = (size_t)(q.group_rows * q.group_columns), n = (size_t)(rows * columns);
    for (size_t i = 0; i < n; i += group_n) {
        const size_t count = count_distinct(values + i, group_n, seen);
        most = count > most ? count : most;
        if (most > TABLE)
            FAIL(err, TEG_ERR_ARGUMENT,
                 "cannot quantize: %s: expected at most 256 distinct values in group %zu, found more; leave out "
                 "'unique'",
                 name, i / group_n);
    }
    for (size_t i = sizeof sizes; i-- > 0;)
        if (most <= (size_t)1 << sizes[i])
            *bits = sizes[i];
    return TEG_OK;
}
