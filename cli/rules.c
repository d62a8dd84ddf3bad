/* rules.c: --rule and --skip as the library's patterns, for the commands that encode weights. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert.h"

char **cli_patterns_make(const struct cli_texts *rules, const struct cli_texts *skips, size_t *n)
{
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
