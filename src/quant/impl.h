/* quant/impl.h: what the files of this folder share. Private to quant/.
 *
 * Encoding has three steps: prepare (finite? which values survive pruning?), encode group by group into one byte a
 * code, pack. A group is always one run of values in row-major order: a block of a row, a row, some rows, the tensor.
 * So an encoder gets a pointer and a length and does not know what grain it works for. */
#ifndef TEG_QUANT_IMPL_H
#define TEG_QUANT_IMPL_H

#include <math.h>

#include "quant/quant.h"

enum { TEG_QUANT_SLICES = 64 }; /* small groups go to threads in so many portions */

/* A weight in the making. */
struct encoding {
    struct teg_quantized q;
    const float *values;     /* [rows, columns] */
    const float *importance; /* [columns], mean 1; NULL: all 1 */
    const uint8_t *kept;     /* [rows · columns]: 0 where pruned; NULL: all kept */
    float tail;              /* weight of |value| in its own error; 0: none. See teg_quant_rule.plain */
    const char *name;
    size_t first_row; /* number of the first row, for messages */
    struct teg_pool *pool;
    size_t n, group_n, n_groups; /* values, values of a group, groups */
    uint8_t *codes;              /* [n], or [n / vector] */
    uint16_t *scales;            /* [n_groups] */
    int16_t *offsets;            /* [n_groups]: integers, or the bits of halves */
    uint16_t *table;             /* [n_groups, 2^bits, vector] */
    struct teg_arena scratch;
};

/* Weight of the squared error of value i: 0 where it is pruned. */
static inline float error_weight(const struct encoding *e, size_t i)
{
    if (e->kept && !e->kept[i])
        return 0;
    const float w = e->importance ? e->importance[i % e->q.columns] : 1;
    return e->tail > 0 ? w * (0.3f + e->tail * fabsf(e->values[i])) : w;
}

static inline float half_round(float x)
{
    return teg_f16_to_f32(teg_f32_to_f16(x));
}

/* fn(ctx, slice, worker) for each slice; workers are below teg_quant_workers. */
void teg_quant_run(struct teg_pool *pool, teg_pool_fn fn, void *ctx, size_t n_slices);
size_t teg_quant_workers(const struct teg_pool *pool, size_t n_slices);

/* n codes of `bits` bits from the lowest bit on; the unpacked form is a byte a code. */
size_t teg_quant_packed_bytes(uint64_t n, uint32_t bits);
void teg_quant_pack(const uint8_t *codes, size_t n, uint32_t bits, uint8_t *packed);
uint32_t teg_quant_unpack(const uint8_t *packed, size_t i, uint32_t bits);

/* Sizes of the parts from rule, groups, sparse and n_kept. */
void teg_quant_size_parts(struct teg_quantized *q);

/* teg_quantize of a matrix whose first row is called `first_row` in messages. */
enum teg_status teg_quantize_from(const struct teg_quant_rule *rule, const float *values, uint64_t first_row,
                                  uint64_t rows, uint64_t columns, const float *importance, const char *name,
                                  struct teg_pool *pool, struct teg_arena *arena, struct teg_quantized *result,
                                  struct teg_quant_report *report, struct teg_error *err);

/* Which values survive: kept [n] is filled. */
enum teg_status teg_quant_prune(struct encoding *e, uint8_t *kept, struct teg_error *err);
enum teg_status teg_quant_linear(struct encoding *e, struct teg_error *err);
enum teg_status teg_quant_palette(struct encoding *e, struct teg_error *err);
enum teg_status teg_quant_vector_palette(struct encoding *e, struct teg_error *err);

/* The k centres with the least weighted squared distance to n points on a line: the optimum, not a local one. Points
 * ascend strictly, weights are positive, k ≤ n, k ≤ 256. centres [k] ascend. `memory` of teg_kmeans_bytes(n, k) bytes,
 * aligned to 8. */
struct teg_kmeans_point {
    double x, weight;
};
size_t teg_kmeans_bytes(size_t n, size_t k);
void teg_kmeans(const struct teg_kmeans_point *points, size_t n, size_t k, double *centres, void *memory);

#endif
