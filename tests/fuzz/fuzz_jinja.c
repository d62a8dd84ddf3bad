/* tests/fuzz/fuzz_jinja.c: hostile templates and variables.
 *
 * The input is a template, a zero byte, and the JSON of the variables; without a zero byte the variables are empty.
 * What is checked is what the sanitizers see, and that a result is NUL-terminated. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tok/jinja.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const char empty[] = "{}";
    const uint8_t *const zero = n_bytes ? memchr(data, 0, n_bytes) : NULL;
    const size_t n_template = zero ? (size_t)(zero - data) : n_bytes;
    const char *const variables = zero ? (const char *)zero + 1 : empty;
    const size_t n_variables = zero ? n_bytes - n_template - 1 : sizeof empty - 1;
    struct teg_jinja *jinja = NULL;
    struct teg_error err = {0};
    struct teg_text text = {0};
    if (teg_jinja_parse((const char *)data, n_template, &jinja, &err) != TEG_OK)
        return 0;
    if (teg_jinja_render(jinja, variables, n_variables, 1753963810, &text, &err) == TEG_OK &&
        text.bytes[text.n_bytes] != '\0')
        abort();
    free(text.bytes);
    teg_jinja_free(jinja);
    return 0;
}
