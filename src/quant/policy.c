/* quant/policy.c: patterns, and the order in which they are asked. */
#include "quant/policy.h"

#include <string.h>

/* The usual two pointers: on a mismatch the last * takes one character more. Never more than n · m steps. */
static bool matches(const char *pattern, const char *text)
{
    const char *star = NULL, *from = text;
    while (*text) {
        if (*pattern == '*') {
            star = pattern++;
            from = text;
        } else if (*pattern == '?' || *pattern == *text) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star + 1;
            text = ++from;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return !*pattern;
}

static const struct teg_quant_pattern *last_match(const struct teg_quant_policy *p, const char *text, bool of_op)
{
    for (size_t i = p->n_patterns; i-- > 0;)
        if (p->patterns[i].of_op == of_op && matches(p->patterns[i].pattern, text))
            return &p->patterns[i];
    return NULL;
}

const struct teg_quant_rule *teg_quant_choose(const struct teg_quant_policy *policy, const struct teg_quant_subject *s,
                                              const char **why)
{
    const struct teg_quant_pattern *pattern = last_match(policy, s->name, false);
    if (!pattern && s->n_elements <= policy->threshold) {
        *why = "not above the threshold";
        return NULL;
    }
    if (!pattern)
        pattern = last_match(policy, s->op, true);
    if (pattern && pattern->skip) {
        *why = "skipped by a pattern";
        return NULL;
    }
    if (pattern)
        return &pattern->rule;
    return s->embedding ? &policy->embedding : s->head ? &policy->head : &policy->weights;
}

void teg_quant_note(struct teg_quant_pattern *patterns, size_t n, const char *name, const char *op)
{
    for (size_t i = 0; i < n; i++)
        patterns[i].used = patterns[i].used || matches(patterns[i].pattern, patterns[i].of_op ? op : name);
}

bool teg_quant_pattern_parse(char *text, struct teg_quant_pattern *pattern)
{
    struct teg_quant_pattern p = {.pattern = text};
    char *const equals = strrchr(text, '=');
    /* "sparse=0.5" has one of its own: the sign that ends the pattern is the last before a word and its flags */
    char *at = equals;
    if (at && at - text >= 7 && memcmp(at - 6, "sparse", 6) == 0) {
        *at = 0;
        char *const before = strrchr(text, '=');
        *at = '=';
        at = before;
    }
    if (!at || at == text)
        return false;
    if (strncmp(text, "op:", 3) == 0) {
        p.of_op = true;
        p.pattern = text + 3;
    }
    p.skip = strcmp(at + 1, "skip") == 0;
    if (at == p.pattern || (!p.skip && !teg_quant_rule_parse(at + 1, &p.rule)))
        return false;
    *at = 0;
    *pattern = p;
    return true;
}

struct teg_quant_rule teg_quant_end_rule(const struct teg_quant_rule *weights)
{
    struct teg_quant_rule rule = *weights;
    if (weights->method != TEG_QUANT_F16 && weights->bits < 8)
        (void)teg_quant_rule_parse("int8", &rule);
    rule.sparsity = 0;
    rule.keep_n = rule.keep_of = 0;
    rule.fit = weights->fit;
    rule.keep = weights->keep;
    return rule;
}
