/* quant/rule.c: rules as words, in and out: "int4/32", "lut4/16,uniform", "uint8/channel,asym".
 *
 * Parsing and formatting share one table of words and one of flags, so that what is printed can be read again. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant/quant.h"

static const struct word {
    const char *word;
    enum teg_quant_method method;
    uint32_t bits;
    bool is_signed;
    enum teg_quant_grain grain;
    uint32_t group;
} words[] = {
    {"f16", TEG_QUANT_F16, 16, true, TEG_QUANT_PER_TENSOR, 0},
    {"int8", TEG_QUANT_LINEAR, 8, true, TEG_QUANT_PER_CHANNEL, 0},
    {"uint8", TEG_QUANT_LINEAR, 8, false, TEG_QUANT_PER_CHANNEL, 0},
    {"int4", TEG_QUANT_LINEAR, 4, true, TEG_QUANT_PER_BLOCK, 32},
    {"uint4", TEG_QUANT_LINEAR, 4, false, TEG_QUANT_PER_BLOCK, 32},
    {"lut8", TEG_QUANT_PALETTE, 8, false, TEG_QUANT_PER_TENSOR, 0},
    {"lut6", TEG_QUANT_PALETTE, 6, false, TEG_QUANT_PER_TENSOR, 0},
    {"lut4", TEG_QUANT_PALETTE, 4, false, TEG_QUANT_PER_BLOCK, 16},
    {"lut3", TEG_QUANT_PALETTE, 3, false, TEG_QUANT_PER_BLOCK, 16},
    {"lut2", TEG_QUANT_PALETTE, 2, false, TEG_QUANT_PER_BLOCK, 16},
    {"lut1", TEG_QUANT_PALETTE, 1, false, TEG_QUANT_PER_BLOCK, 16},
    {"keep", TEG_QUANT_LINEAR, 8, true, TEG_QUANT_PER_CHANNEL, 0}, /* the last: int8 is found first */
};

enum { N_WORDS = sizeof words / sizeof *words, MOST_TEXT = 64 };

struct text {
    const char *p;
    size_t n;
};

static bool is(struct text t, const char *word)
{
    return strlen(word) == t.n && memcmp(t.p, word, t.n) == 0;
}

/* A decimal number from 1 to most, nothing behind it. */
static bool number(struct text t, uint32_t most, uint32_t *out)
{
    uint64_t v = 0;
    for (size_t i = 0; i < t.n; i++) {
        if (t.p[i] < '0' || t.p[i] > '9' || (v = v * 10 + (uint64_t)(t.p[i] - '0')) > most)
            return false;
    }
    if (!t.n || !v)
        return false;
    *out = (uint32_t)v;
    return true;
}

/* Up to the first of `ends`; *rest begins with what ended it. */
static struct text cut(struct text *rest, const char *ends)
{
    struct text t = {rest->p, 0};
    while (t.n < rest->n && !strchr(ends, t.p[t.n]))
        t.n++;
    rest->p += t.n;
    rest->n -= t.n;
    return t;
}

static bool read_word(struct text t, struct teg_quant_rule *rule)
{
    for (size_t i = 0; i < N_WORDS; i++)
        if (is(t, words[i].word)) {
            *rule = (struct teg_quant_rule){.method = words[i].method,
                                            .bits = words[i].bits,
                                            .is_signed = words[i].is_signed,
                                            .symmetric = words[i].method != TEG_QUANT_LINEAR || words[i].bits == 8,
                                            .search = true,
                                            .grain = words[i].grain,
                                            .group = words[i].group,
                                            .vector = 1,
                                            .keep = strcmp(words[i].word, "keep") == 0};
            return true;
        }
    return false;
}

static bool read_grain(struct text t, struct teg_quant_rule *rule)
{
    rule->group = 0;
    if (rule->method == TEG_QUANT_F16 || rule->keep)
        return false;
    if (is(t, "tensor"))
        rule->grain = TEG_QUANT_PER_TENSOR;
    else if (is(t, "channel"))
        rule->grain = TEG_QUANT_PER_CHANNEL;
    else {
        rule->grain = TEG_QUANT_PER_BLOCK;
        return number(t, UINT32_MAX, &rule->group);
    }
    return true;
}

static bool read_sparsity(struct text t, struct teg_quant_rule *rule)
{
    char copy[16], *end = NULL;
    if (t.n == 0 || t.n >= sizeof copy)
        return false;
    memcpy(copy, t.p, t.n);
    copy[t.n] = 0;
    for (size_t i = 0; i < t.n; i++)
        if (!strchr("0123456789.", copy[i]))
            return false;
    rule->sparsity = strtof(copy, &end);
    return *end == 0 && rule->sparsity < 1;
}

static bool read_n_of_m(struct text t, struct teg_quant_rule *rule)
{
    struct text rest = t;
    const struct text n = cut(&rest, ":");
    if (!rest.n)
        return false;
    rest.p++;
    rest.n--;
    return number(n, 64, &rule->keep_n) && number(rest, 64, &rule->keep_of) && rule->keep_n <= rule->keep_of;
}

static bool read_flag(struct text t, struct teg_quant_rule *rule)
{
    static const char *const tables[] = {"kmeans", "uniform", "unique"};
    if (rule->keep)
        return is(t, "fit");
    const bool linear = rule->method == TEG_QUANT_LINEAR, palette = rule->method == TEG_QUANT_PALETTE;
    if (linear && (is(t, "sym") || is(t, "asym") || is(t, "float"))) {
        rule->symmetric = is(t, "sym");
        rule->float_offset = is(t, "float");
        return true;
    }
    if (linear && is(t, "minmax"))
        return rule->search = false, true;
    for (uint32_t i = 0; palette && i < 3; i++)
        if (is(t, tables[i]))
            return rule->table = (enum teg_quant_table)i, true;
    if (palette && is(t, "plain"))
        return rule->plain = true, true;
    if (palette && (is(t, "v2") || is(t, "v4")))
        return rule->vector = (uint32_t)(t.p[1] - '0'), true;
    if (is(t, "fit"))
        return rule->fit = true, true;
    if (t.n > 7 && memcmp(t.p, "sparse=", 7) == 0)
        return read_sparsity((struct text){t.p + 7, t.n - 7}, rule);
    return read_n_of_m(t, rule);
}

bool teg_quant_rule_parse(const char *text, struct teg_quant_rule *rule)
{
    struct teg_quant_rule r;
    struct text rest = {text, strlen(text)};
    if (!read_word(cut(&rest, "/,"), &r))
        return false;
    if (rest.n && *rest.p == '/') {
        rest.p++;
        rest.n--;
        if (!read_grain(cut(&rest, ","), &r))
            return false;
    }
    while (rest.n) {
        rest.p++;
        rest.n--;
        if (!read_flag(cut(&rest, ","), &r))
            return false;
    }
    *rule = r;
    return true;
}

void teg_quant_rule_format(const struct teg_quant_rule *rule, char text[MOST_TEXT])
{
    const bool linear = rule->method == TEG_QUANT_LINEAR, palette = rule->method == TEG_QUANT_PALETTE;
    char grain[12] = "", sparse[24] = "";
    const char *word = "f16", *kind = "";
    for (size_t i = 0; i < N_WORDS; i++)
        if (rule->method == words[i].method && rule->bits == words[i].bits && strcmp(words[i].word, "keep") != 0 &&
            (!linear || rule->is_signed == words[i].is_signed))
            word = words[i].word;
    if (rule->keep) {
        snprintf(text, MOST_TEXT, "keep");
        return;
    }
    if (linear || palette) {
        if (rule->grain == TEG_QUANT_PER_BLOCK)
            snprintf(grain, sizeof grain, "/%u", rule->group);
        else
            snprintf(grain, sizeof grain, "%s", rule->grain == TEG_QUANT_PER_TENSOR ? "/tensor" : "/channel");
    }
    if (linear)
        kind = rule->symmetric      ? (rule->bits == 8 ? "" : ",sym")
               : rule->float_offset ? ",float"
               : rule->bits == 8    ? ",asym"
                                    : "";
    if (palette && rule->plain)
        kind = ",plain";
    if (palette && rule->table != TEG_QUANT_KMEANS)
        kind = rule->table == TEG_QUANT_UNIFORM ? ",uniform" : ",unique";
    if (rule->keep_of)
        snprintf(sparse, sizeof sparse, ",%u:%u", rule->keep_n, rule->keep_of);
    else if (rule->sparsity > 0)
        snprintf(sparse, sizeof sparse, ",sparse=%g", (double)rule->sparsity);
    snprintf(text, MOST_TEXT, "%s%s%s%s%s%s%s", word, grain, kind, linear && !rule->search ? ",minmax" : "",
             palette && rule->vector == 2   ? ",v2"
             : palette && rule->vector == 4 ? ",v4"
                                            : "",
             rule->fit ? ",fit" : "", sparse);
}
