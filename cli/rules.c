/* rules.c: the options of the commands that encode weights, as the texts that the library reads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert.h"

enum { GRAIN_TENSOR = 1, GRAIN_CHANNEL, GRAIN_BLOCK };

const struct cli_choice cli_grains[] = {
    {"tensor", GRAIN_TENSOR, NULL}, {"channel", GRAIN_CHANNEL, NULL}, {"block", GRAIN_BLOCK, NULL}, {NULL, 0, NULL}};

int cli_rule_text(const struct cli_encoding_args *args, const char *more, char text[CLI_MOST_RULE])
{
    enum { MOST_WORD = 80 };
    const char *const comma = strchr(args->weights, ',');
    const int n = comma ? (int)(comma - args->weights) : (int)strlen(args->weights);
    char grain[32] = "";
    if (memchr(args->weights, '/', (size_t)n) && (args->group_size || args->granularity))
        return cli_usage("bad option: --%s: expected one grain, found another in --weights '%.40s'; keep one",
                         args->group_size ? "group-size" : "granularity", args->weights);
    if (args->group_size && args->granularity && args->granularity != GRAIN_BLOCK)
        return cli_usage("bad option: --group-size: expected it with --granularity block, found '%s'; keep one",
                         cli_choice_name(cli_grains, args->granularity));
    if (strlen(args->weights) > MOST_WORD)
        return cli_usage("bad option: --weights: expected a short rule, found '%.40s...'; see 'tegula help quantize'",
                         args->weights);
    if (args->group_size)
        (void)snprintf(grain, sizeof(grain), "/%lld", (long long)args->group_size);
    else if (args->granularity && args->granularity != GRAIN_BLOCK)
        (void)snprintf(grain, sizeof(grain), "/%s", cli_choice_name(cli_grains, args->granularity));
    (void)snprintf(text, CLI_MOST_RULE, "%.*s%s%s%s", n, args->weights, grain, comma ? comma : "", more);
    return CLI_DONE;
}

char **cli_patterns_make(const struct cli_encoding_args *args, size_t *n)
{
    const struct cli_texts *const rules = &args->rules, *const skips = &args->skips;
    *n = rules->n + skips->n;
    char **patterns = calloc(*n + 1, sizeof(*patterns));
    for (size_t i = 0; patterns && i < *n; i++) {
        const bool skip = i >= rules->n;
        const char *text = skip ? skips->data[i - rules->n] : rules->data[i];
        const size_t n_bytes = strlen(text) + sizeof("=skip");
        patterns[i] = malloc(n_bytes);
        if (!patterns[i]) {
            cli_patterns_free(patterns, i);
            return NULL;
        }
        snprintf(patterns[i], n_bytes, "%s%s", text, skip ? "=skip" : "");
    }
    return patterns;
}

void cli_patterns_free(char **patterns, size_t n)
{
    for (size_t i = 0; patterns && i < n; i++)
        free(patterns[i]);
    free(patterns);
}
