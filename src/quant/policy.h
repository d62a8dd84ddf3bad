/* quant/policy.h: which rule a weight gets: by its name, by the op that uses it, by its role, or the general one.
 *
 * The first of these that says something decides: the last name pattern that matches, the last op pattern, the role
 * (embedding, head), the rule for all. A weight of `threshold` elements or fewer is left alone unless a name pattern
 * asks for it. Patterns have * for any characters and ? for one. */
#ifndef TEG_QUANT_POLICY_H
#define TEG_QUANT_POLICY_H

#include "quant/quant.h"

enum { TEG_QUANT_THRESHOLD = 2048 };

struct teg_quant_pattern {
    const char *pattern; /* not copied */
    bool of_op;          /* matches the type of the op ("conv"), else the weight's name */
    bool skip;           /* leave alone; else: */
    struct teg_quant_rule rule;
    const char *text; /* as it was given */
    bool used;        /* see teg_quant_note */
};

struct teg_quant_policy {
    struct teg_quant_rule weights, embedding, head;
    uint64_t threshold;
    const struct teg_quant_pattern *patterns;
    size_t n_patterns;
};

struct teg_quant_subject {
    const char *name, *op; /* op "": not known */
    bool embedding, head;
    uint64_t n_elements;
};

/* NULL: leave alone; *why says why. */
const struct teg_quant_rule *teg_quant_choose(const struct teg_quant_policy *policy,
                                              const struct teg_quant_subject *subject, const char **why);

/* Notes which patterns speak of that weight, whatever is decided. */
void teg_quant_note(struct teg_quant_pattern *patterns, size_t n, const char *name, const char *op);

/* "NAME=RULE", "op:TYPE=RULE", with RULE "skip" to leave alone. `text` is cut in place and must live as long as the
 * pattern. False: no such pattern. */
bool teg_quant_pattern_parse(char *text, struct teg_quant_pattern *pattern);

/* The rule of embedding and head where none is given: these are read by rows and feed everything or everything feeds
 * them, and cost a small share of the time; under 8 bits they lose more than all other weights. */
struct teg_quant_rule teg_quant_end_rule(const struct teg_quant_rule *weights);

#endif
