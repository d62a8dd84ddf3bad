/* convert_rules.c: rules and patterns as the options of convert and quantize write them. */
#include <string.h>

#include "convert_model.h"

enum teg_status teg_convert_read_rule(const char *verb, const char *option, const char *text, bool fit,
                                      struct teg_quant_rule *rule, struct teg_error *err)
{
    if (!teg_quant_rule_parse(text, rule))
        FAIL(err, TEG_ERR_ARGUMENT,
             "cannot %s: %s: expected keep, f16, int8, int4, uint8, uint4, lut8, lut6, lut4, lut3, lut2 or lut1, with "
             "/tensor, /channel or /GROUP and flags after it, found '%.60s'; see 'tegula help quantize'",
             verb, option, text);
    rule->fit = rule->fit || fit;
    return TEG_OK;
}

enum teg_status teg_convert_read_patterns(const char *verb, const char *const *texts, size_t n, bool fit,
                                          struct teg_arena *arena, struct teg_quant_policy *policy,
                                          struct teg_error *err)
{
    struct teg_quant_pattern *const patterns = teg_arena_array(arena, n, sizeof *patterns);
    if (!patterns)
        return teg_base_fail_memory(err, "patterns", n * sizeof *patterns);
    for (size_t i = 0; i < n; i++) {
        char *const text = teg_arena_string(arena, texts[i], strlen(texts[i]));
        if (!text)
            return teg_base_fail_memory(err, "patterns", strlen(texts[i]));
        if (!teg_quant_pattern_parse(text, &patterns[i]))
            FAIL(err, TEG_ERR_ARGUMENT,
                 "cannot %s: pattern %zu: expected NAME=RULE or op:TYPE=RULE, with skip or a rule such as int4/32, "
                 "found '%.60s'; see 'tegula help quantize'",
                 verb, i + 1, texts[i]);
        patterns[i].rule.fit = patterns[i].rule.fit || fit;
        patterns[i].text = texts[i];
    }
    policy->patterns = patterns;
    policy->n_patterns = n;
    return TEG_OK;
}

enum teg_status teg_convert_check_patterns(const char *verb, const struct teg_quant_policy *policy,
                                           struct teg_error *err)
{
    for (size_t i = 0; i < policy->n_patterns; i++)
        if (!policy->patterns[i].used && !policy->patterns[i].skip)
            FAIL(err, TEG_ERR_ARGUMENT,
                 "cannot %s: pattern %zu: expected a weight or op that it matches, found none for '%.60s'; the report "
                 "without it has the names",
                 verb, i + 1, policy->patterns[i].text);
    return TEG_OK;
}

struct teg_convert_weight teg_convert_weight_of(const char *name, uint64_t rows, uint64_t columns,
                                                const struct teg_quant_report *report)
{
    return (struct teg_convert_weight){.name = name,
                                       .rows = rows,
                                       .columns = columns,
                                       .source_bytes = report->source_bytes,
                                       .bytes = report->bytes,
                                       .bits_per_weight = report->bits_per_weight,
                                       .relative_error = report->relative_error,
                                       .worst_row_error = report->worst_row_error,
                                       .worst_row = report->worst_row,
                                       .exact = report->exact};
}
