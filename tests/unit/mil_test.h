/* What the tests of src/mil share: protobuf written by hand, the packages of tests/data/mil, checks of messages. */
#ifndef MIL_TEST_H
#define MIL_TEST_H

#include "unit/format_test.h"

#include "base/text.h"
#include "mil/impl.h"

/* ---- protobuf from a line of text: 1:7 a number, 2'text', 3{1:2} a message, 4=00ff bytes, 5#1.5 a float ---- */

static inline void pb_varint(struct bytes *b, uint64_t v)
{
    for (; v >= 128; v >>= 7)
        put_uint(b, (v & 127) | 128, 1);
    put_uint(b, v, 1);
}

static inline void pb_bytes(struct bytes *b, uint64_t number, const void *data, size_t n)
{
    pb_varint(b, number << 3 | 2);
    pb_varint(b, n);
    put(b, data, n);
}

static inline void pb_field(const char **text, struct bytes *out);

static inline struct bytes pb_message(const char **text)
{
    struct bytes b = {0};
    while (**text && **text != '}')
        if (**text == ' ')
            ++*text;
        else
            pb_field(text, &b);
    return b;
}

static inline void pb_field(const char **text, struct bytes *out)
{
    char *end;
    const uint64_t number = strtoull(*text, &end, 10);
    const char kind = *end++;
    struct bytes inner = {0};
    const char *p = end;
    if (kind == ':') {
        pb_varint(out, number << 3);
        pb_varint(out, *p == '-' ? (uint64_t)strtoll(p, &end, 10) : strtoull(p, &end, 10));
        *text = end;
        return;
    }
    if (kind == '#') {
        const float f = strtof(p, &end);
        pb_varint(out, number << 3 | 5);
        put(out, &f, sizeof f);
        *text = end;
        return;
    }
    if (kind == '\'')
        for (; *p != '\''; p++)
            put(&inner, p, 1);
    else if (kind == '{')
        inner = pb_message(&p);
    else if (kind == '=')
        for (char two[3] = ""; p[0] && p[1] && p[0] != ' ' && p[0] != '}'; p += 2)
            put_uint(&inner, strtoull(memcpy(two, p, 2), NULL, 16), 1);
    else
        fail_msg("bad protobuf text at %s", *text);
    pb_bytes(out, number, inner.at ? (const void *)inner.at : "", inner.n);
    bytes_free(&inner);
    *text = p + (kind != '=');
}

static inline struct bytes pb(const char *text)
{
    struct bytes b = pb_message(&text);
    assert_int_equal(*text, 0);
    return b;
}

/* ---- a whole file ---- */

static inline struct bytes read_whole(const char *path)
{
    struct bytes b = {0};
    FILE *const f = fopen(path, "rb");
    assert_non_null(f);
    for (int c; (c = fgetc(f)) != EOF;)
        put_uint(&b, (uint64_t)c, 1);
    fclose(f);
    return b;
}

#define MIL_DATA TEST_DATA "/mil/"
#define MIL_SPEC "/Data/com.apple.CoreML/"

/* ---- packages that may be damaged ---- */

/* cp -R of one of ours into the directory, as "m". */
static inline void copy_package(const struct temp_dir *d, const char *name)
{
    char command[256];
    assert_true(snprintf(command, sizeof command, "rm -rf '%s/m' && cp -R '%s%s' '%s/m' && chmod -R u+w '%s/m'",
                         d->path, MIL_DATA, name, d->path, d->path) < 256);
    assert_int_equal(system(command), 0);
}

static inline void replace_file(const struct temp_dir *d, const char *name, const void *bytes, size_t n)
{
    char path[256];
    assert_true(snprintf(path, sizeof path, "%s/m/%s", d->path, name) < 256);
    (void)remove(path);
    FILE *const f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* Opening d/m fails with this whole message; every "%" in it stands for the directory's path. */
static inline void expect_mil_fails(const struct temp_dir *d, enum teg_status status, const char *message)
{
    char expected[1024] = "", path[128];
    size_t n = 0;
    for (const char *p = message; *p && n + sizeof d->path + 1 < sizeof expected; p++) {
        if (*p == '%')
            n += (size_t)snprintf(expected + n, sizeof expected - n, "%s", d->path);
        else
            expected[n++] = *p;
        expected[n] = '\0';
    }
    struct counting c;
    struct teg_error err = {0};
    struct teg_mil_program *program = NULL;
    temp_path(d, "m", path);
    const enum teg_status found = teg_mil_open(path, counting_init(&c, 0), &program, &err);
    assert_string_equal(err.message, expected);
    assert_int_equal(found, status);
    assert_int_equal(err.status, status);
    assert_null(program);
    assert_int_equal(c.n_live, 0);
}

static inline struct teg_mil_program *open_mil(const char *path)
{
    struct teg_mil_program *program = NULL;
    struct teg_error err = {0};
    if (teg_mil_open(path, NULL, &program, &err) != TEG_OK)
        fail_msg("%s", err.message);
    return program;
}

#endif
