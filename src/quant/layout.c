/* quant/layout.c: what an encoded weight looks like before there is one: groups, parts, sizes.
 *
 * Invariant: the form depends on the rule and the shape alone, never on the values, so that a file can be laid out
 * first and its weights made later, in any order. For that, a sparse weight keeps a number of values that is known:
 * exactly the share that was asked for, ties broken by position.
 *
 * Core ML's blocks must divide the dimension. A group that does not is an error that names the nearest one that does,
 * or with `fit` becomes that one; it is never left out without a word. */
#include "base/check.h"
#include "quant/impl.h"

/* Bits that each method can have, as a set. */
static const uint32_t linear_bits = 1u << 4 | 1u << 8;
static const uint32_t palette_bits = 1u << 1 | 1u << 2 | 1u << 3 | 1u << 4 | 1u << 6 | 1u << 8;

static uint64_t divisor_below(uint64_t n, uint64_t group)
{
    while (group > 1 && n % group)
        group--;
    return group;
}

static enum teg_status fit_group(const struct teg_quant_rule *rule, uint64_t n, const char *of, const char *name,
                                 uint64_t *group, struct teg_error *err)
{
    const uint64_t most = rule->group < n ? rule->group : n;
    *group = divisor_below(n, most);
    if (*group != rule->group && !rule->fit)
        FAIL(err, TEG_ERR_ARGUMENT,
             "cannot quantize: %s: expected groups of %s that divide %llu, found %u; take %llu, or let it fit", name,
             of, (unsigned long long)n, rule->group, (unsigned long long)*group);
    return TEG_OK;
}

static enum teg_status check_rule(const struct teg_quant_rule *rule, const char *name, struct teg_error *err)
{
    if (rule->method == TEG_QUANT_LINEAR && (rule->bits > 8 || !(linear_bits >> rule->bits & 1)))
        FAIL(err, TEG_ERR_ARGUMENT, "cannot quantize: %s: expected 4 or 8 bits, found %u; or take a palette", name,
             rule->bits);
    if (rule->method == TEG_QUANT_PALETTE && (rule->bits > 8 || !(palette_bits >> rule->bits & 1)))
        FAIL(err, TEG_ERR_ARGUMENT, "cannot quantize: %s: expected a palette of 1, 2, 3, 4, 6 or 8 bits, found %u",
             name, rule->bits);
    if (rule->method != TEG_QUANT_F16 && rule->grain == TEG_QUANT_PER_BLOCK && rule->group == 0)
        FAIL(err, TEG_ERR_ARGUMENT, "cannot quantize: %s: expected a group of 1 or more, found 0", name);
    if (!(rule->sparsity >= 0 && rule->sparsity < 1))
        FAIL(err, TEG_ERR_ARGUMENT, "cannot quantize: %s: expected a sparsity from 0 to below 1, found %g", name,
             (double)rule->sparsity);
    if (rule->keep_of && (rule->keep_n == 0 || rule->keep_n > rule->keep_of || rule->keep_of > 64))
        FAIL(err, TEG_ERR_ARGUMENT,
             "cannot quantize: %s: expected n:m with 1 or more kept of at most 64 values, found %u:%u", name,
             rule->keep_n, rule->keep_of);
    if (rule->keep_of && rule->sparsity > 0)
        FAIL(err, TEG_ERR_ARGUMENT, "cannot quantize: %s: expected a sparsity or n:m, found both; keep one", name);
    return TEG_OK;
}

static enum teg_status check_vector(const struct teg_quant_rule *rule, uint64_t columns, const char *name,
                                    struct teg_error *err)
{
    const uint32_t v = rule->vector;
    if (v > 4 || v == 3)
        FAIL(err, TEG_ERR_ARGUMENT, "cannot quantize: %s: expected palette entries of 1, 2 or 4 values, found %u", name,
             v);
    if (v > 1 && columns % v)
        FAIL(err, TEG_ERR_ARGUMENT,
             "cannot quantize: %s: expected columns that palette entries of %u divide, found %llu; take single values",
             name, v, (unsigned long long)columns);
    if (v > 1 && rule->table != TEG_QUANT_KMEANS)
        FAIL(err, TEG_ERR_ARGUMENT,
             "cannot quantize: %s: expected k-means for palette entries of %u values, found a "
             "uniform or unique table; take single values",
             name, v);
    if (v > 1 && (rule->sparsity > 0 || rule->keep_of))
        FAIL(err, TEG_ERR_UNSUPPORTED,
             "cannot quantize: %s: expected single values where weights are pruned, found "
             "palette entries of %u; keep one of the two",
             name, v);
    return TEG_OK;
}

static enum teg_status choose_groups(struct teg_quantized *q, const char *name, struct teg_error *err)
{
    const struct teg_quant_rule *const rule = &q->rule;
    q->group_rows = rule->grain == TEG_QUANT_PER_TENSOR ? q->rows : 1;
    q->group_columns = q->columns;
    if (rule->grain != TEG_QUANT_PER_BLOCK)
        return TEG_OK;
    return rule->method == TEG_QUANT_LINEAR ? fit_group(rule, q->columns, "columns", name, &q->group_columns, err)
                                            : fit_group(rule, q->rows, "rows", name, &q->group_rows, err);
}

/* Values that survive pruning. */
static uint64_t count_kept(const struct teg_quantized *q)
{
    const struct teg_quant_rule *const rule = &q->rule;
    const uint64_t n = q->rows * q->columns, rest = rule->keep_of ? q->columns % rule->keep_of : 0;
    if (rule->keep_of)
        return q->rows * (q->columns / rule->keep_of * rule->keep_n + (rest < rule->keep_n ? rest : rule->keep_n));
    return n - (uint64_t)((double)rule->sparsity * (double)n);
}

size_t teg_quant_packed_bytes(uint64_t n, uint32_t bits)
{
    return (size_t)(n / 8 * bits + (n % 8 * bits + 7) / 8);
}

void teg_quant_size_parts(struct teg_quantized *q)
{
    const struct teg_quant_rule *const rule = &q->rule;
    const uint64_t n = q->rows * q->columns;
    const uint64_t n_groups = n / (q->group_rows * q->group_columns);
    const bool linear = rule->method == TEG_QUANT_LINEAR, palette = rule->method == TEG_QUANT_PALETTE;
    const bool has_offset = linear && !(rule->symmetric && rule->is_signed);
    size_t sizes[TEG_QUANT_PART_COUNT] = {0};
    sizes[TEG_QUANT_DATA] = teg_quant_packed_bytes(q->n_kept, linear || palette ? rule->bits : 16);
    sizes[TEG_QUANT_SCALE] = linear ? (size_t)n_groups * 2 : 0;
    sizes[TEG_QUANT_OFFSET] = has_offset ? teg_quant_packed_bytes(n_groups, rule->float_offset ? 16 : rule->bits) : 0;
    sizes[TEG_QUANT_LUT] = palette ? (size_t)n_groups * ((size_t)2 << rule->bits) * rule->vector : 0;
    sizes[TEG_QUANT_MASK] = q->sparse ? teg_quant_packed_bytes(n, 1) : 0;
    for (uint32_t i = 0; i < TEG_QUANT_PART_COUNT; i++)
        q->parts[i] = (struct teg_span){NULL, sizes[i]};
}

enum teg_status teg_quant_layout(const struct teg_quant_rule *rule, uint64_t rows, uint64_t columns, const char *name,
                                 struct teg_quantized *layout, struct teg_error *err)
{
    struct teg_quantized q = {.rule = *rule, .rows = rows, .columns = columns};
    size_t n, n_bytes;
    if (!rows || !columns || rows > SIZE_MAX || columns > SIZE_MAX || !teg_mul((size_t)rows, (size_t)columns, &n) ||
        !teg_mul(n, 16, &n_bytes))
        FAIL(err, TEG_ERR_ARGUMENT,
             "cannot quantize: %s: expected a matrix whose size can be addressed, found %llu by %llu", name,
             (unsigned long long)rows, (unsigned long long)columns);
    q.rule.vector = rule->vector ? rule->vector : 1;
    q.rule.float_offset = rule->float_offset && !rule->symmetric;
    TRY(check_rule(rule, name, err));
    if (rule->method == TEG_QUANT_PALETTE)
        TRY(check_vector(&q.rule, columns, name, err));
    TRY(choose_groups(&q, name, err));
    q.sparse = rule->keep_of || rule->sparsity > 0;
    q.n_kept = count_kept(&q) / (rule->method == TEG_QUANT_PALETTE ? q.rule.vector : 1);
    teg_quant_size_parts(&q);
    *layout = q;
    return TEG_OK;
}
