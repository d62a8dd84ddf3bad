/* input.c: reading prompts, messages and ids.
 *
 * Invariant: what is read is exactly what the source holds (no newline added or removed), at most 1 GiB of it, and a
 * signal ends the wait for a pipe. Text may come from a pipe or a terminal, so nothing here seeks or trusts a size.
 * The alternative, mapping the file, cannot serve pipes and dies with SIGBUS when a file shrinks. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "interrupt.h"
#include "io.h"

static const size_t input_bytes_max = (size_t)1 << 30;

static int fail_input(const char *what, const char *where, const char *found)
{
    return cli_fail("cannot read %s: %s: expected a readable file, found '%s'; check the name and its permissions",
                    what, where, found);
}

static int read_all(int fd, const char *what, const char *where, struct cli_bytes *bytes)
{
    static char block[1 << 16];
    for (;;) {
        const ssize_t n = read(fd, block, sizeof(block));
        if (n == 0)
            return cli_bytes_append(bytes, "", 0) ? CLI_DONE : cli_fail_memory();
        if (n < 0 && errno == EINTR) {
            if (cli_interrupted())
                return cli_interrupt_exit_code();
            continue;
        }
        if (n < 0)
            return fail_input(what, where, strerror(errno));
        if ((size_t)n > input_bytes_max - bytes->n)
            return cli_fail("cannot read %s: %s: expected at most %zu bytes, found more; split the input", what, where,
                            input_bytes_max);
        if (!cli_bytes_append(bytes, block, (size_t)n))
            return cli_fail_memory();
    }
}

int cli_input_read(const char *path, const char *what, struct cli_bytes *bytes)
{
    if (strcmp(path, "-") == 0)
        return read_all(STDIN_FILENO, what, "standard input", bytes);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return cli_interrupted() ? cli_interrupt_exit_code() : fail_input(what, path, strerror(errno));
    struct stat st;
    int code;
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
        code = cli_fail("cannot read %s: %s: expected a file, found a directory; name a file in it", what, path);
    else
        code = read_all(fd, what, path, bytes);
    close(fd);
    return code;
}

int cli_input_line(struct cli_bytes *line, bool *end)
{
    line->n = 0;
    *end = false;
    for (;;) {
        errno = 0;
        const int c = getc(stdin);
        if (c == EOF) {
            if (ferror(stdin)) {
                if (cli_interrupted())
                    return cli_interrupt_exit_code();
                if (errno != EINTR)
                    return fail_input("turn", "standard input", strerror(errno));
                clearerr(stdin);
                continue;
            }
            *end = line->n == 0;
            break;
        }
        if (c == '\n')
            break;
        const char byte = (char)c;
        if (line->n >= input_bytes_max || !cli_bytes_append(line, &byte, 1))
            return cli_fail_memory();
    }
    return cli_bytes_append(line, "", 0) ? CLI_DONE : cli_fail_memory();
}

/* ---- ids ---- */

static int append_id(struct cli_ids *ids, long long value, const char *where)
{
    if (value < 0 || value > INT32_MAX)
        return cli_fail(
            "cannot read token ids: %s: item %zu: expected an id from 0 to %d, found %lld; correct the list", where,
            ids->n, INT32_MAX, value);
    return cli_ids_append(ids, (int32_t)value) ? CLI_DONE : cli_fail_memory();
}

static int parse_json_ids(const char *text, size_t n_bytes, const char *where, struct cli_ids *ids)
{
    json_error_t problem;
    json_t *document = json_loadb(text, n_bytes, 0, &problem);
    if (!document)
        return cli_fail("cannot read token ids: %s at byte %d: expected JSON, found '%s'; correct the list", where,
                        problem.position, problem.text);
    json_t *array = json_is_object(document) ? json_object_get(document, "ids") : document;
    int code = CLI_DONE;
    if (!json_is_array(array))
        code = cli_fail("cannot read token ids: %s: expected a JSON array or an object with \"ids\", found something "
                        "else; give [1, 2, 3]",
                        where);
    for (size_t i = 0; code == CLI_DONE && i < json_array_size(array); i++) {
        const json_t *item = json_array_get(array, i);
        code = json_is_integer(item)
                   ? append_id(ids, json_integer_value(item), where)
                   : cli_fail("cannot read token ids: %s: item %zu: expected a whole number, found something else; "
                              "correct the list",
                              where, i);
    }
    json_decref(document);
    return code;
}

int cli_ids_parse(const char *text, size_t n_bytes, const char *where, struct cli_ids *ids)
{
    static const char separators[] = " \t\r\n\v\f,";
    size_t i = 0;
    while (i < n_bytes && text[i] && strchr(separators, text[i]))
        i++;
    if (i < n_bytes && (text[i] == '[' || text[i] == '{'))
        return parse_json_ids(text, n_bytes, where, ids);
    int code = CLI_DONE;
    while (code == CLI_DONE && i < n_bytes) {
        size_t end = i;
        while (end < n_bytes && (!text[end] || !strchr(separators, text[end])))
            end++;
        char word[24], *rest = word;
        const size_t n = end - i;
        snprintf(word, sizeof(word), "%.*s", n < sizeof(word) ? (int)n : (int)sizeof(word) - 1, text + i);
        errno = 0;
        const long long value = strtoll(word, &rest, 10);
        if (n >= sizeof(word) || rest == word || rest != word + n || errno != 0)
            return cli_fail("cannot read token ids: %s at byte %zu: expected a whole number, found '%s'; separate ids "
                            "by spaces or commas",
                            where, i, word);
        code = append_id(ids, value, where);
        for (i = end; i < n_bytes && text[i] && strchr(separators, text[i]);)
            i++;
    }
    return code;
}

int cli_ids_read(const char *list_or_path, struct cli_ids *ids)
{
    const bool is_list = strspn(list_or_path, "0123456789+-, []\t\n") == strlen(list_or_path) &&
                         strcspn(list_or_path, "0123456789[") < strlen(list_or_path);
    if (is_list)
        return cli_ids_parse(list_or_path, strlen(list_or_path), "--ids", ids);
    struct cli_bytes bytes = {0};
    int code = cli_input_read(list_or_path, "token ids", &bytes);
    if (code == CLI_DONE)
        code = cli_ids_parse(bytes.data, bytes.n, strcmp(list_or_path, "-") ? list_or_path : "standard input", ids);
    cli_bytes_free(&bytes);
    return code;
}
