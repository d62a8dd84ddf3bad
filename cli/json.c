/* json.c: results as JSON.
 *
 * Invariant: --json puts exactly one document and a newline on standard output, or nothing and an error. Strings may
 * hold any bytes on the way in and are valid UTF-8 on the way out. Numbers keep 12 significant digits: more than any
 * figure here is good for, and 0.8 stays 0.8. */
#include <math.h>
#include <string.h>

#include "io.h"

static int write_part(const char *data, size_t n_bytes, void *ctx)
{
    return cli_output_write(ctx, data, n_bytes) == CLI_DONE ? 0 : -1;
}

int cli_json_write(struct cli_output *output, json_t *document)
{
    if (!document)
        return cli_fail_memory();
    const int failed = json_dump_callback(document, write_part, output, JSON_REAL_PRECISION(12) | JSON_ENCODE_ANY);
    json_decref(document);
    if (failed)
        return output->failure ? output->failure : cli_fail_memory();
    return cli_output_write(output, "\n", 1);
}

int cli_json_print(json_t *document)
{
    struct cli_output output;
    int code = cli_output_open(&output, NULL);
    if (code == CLI_DONE)
        code = cli_json_write(&output, document);
    const int closed = cli_output_close(&output, true);
    return code != CLI_DONE ? code : closed;
}

/* The length of the UTF-8 character at p, or 0 with the length of the maximal bad sequence in *n_bad. */
static size_t utf8_length(const unsigned char *p, size_t n, size_t *n_bad)
{
    *n_bad = 1;
    if (p[0] < 0x80)
        return 1;
    if (p[0] < 0xc2 || p[0] > 0xf4)
        return 0;
    const size_t length = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    /* The second byte's range excludes overlong forms, surrogates and code points past U+10FFFF. */
    const unsigned char low = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
    const unsigned char high = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;
    for (size_t i = 1; i < length; i++) {
        *n_bad = i;
        if (i >= n || p[i] < (i == 1 ? low : 0x80) || p[i] > (i == 1 ? high : 0xbf))
            return 0;
    }
    return length;
}

json_t *cli_json_text(const char *bytes, size_t n_bytes)
{
    json_t *text = json_stringn(bytes ? bytes : "", n_bytes);
    if (text)
        return text;
    struct cli_bytes clean = {0};
    bool ok = true;
    for (size_t i = 0; ok && i < n_bytes;) {
        size_t n_bad = 0;
        const size_t n = utf8_length((const unsigned char *)bytes + i, n_bytes - i, &n_bad);
        ok = n ? cli_bytes_append(&clean, bytes + i, n) : cli_bytes_append(&clean, "\xef\xbf\xbd", 3);
        i += n ? n : n_bad;
    }
    text = ok ? json_stringn(clean.data ? clean.data : "", clean.n) : NULL;
    cli_bytes_free(&clean);
    return text;
}

json_t *cli_json_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *cli_json_u64(uint64_t value)
{
    return json_integer(value <= INT64_MAX ? (json_int_t)value : INT64_MAX);
}

json_t *cli_json_ids(const int32_t *ids, size_t n)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < n; i++) {
        if (json_array_append_new(array, json_integer(ids[i])) != 0) {
            json_decref(array);
            array = NULL;
        }
    }
    return array;
}
