/* tests/fuzz/replay.c: runs one fuzz target over its corpus in an ordinary build, without libFuzzer.
 *
 * Linked with one fuzz_TOPIC.c. Every file of tests/fuzz/corpus/TOPIC (or of the arguments) is given to the target as
 * it is, cut short, and with bytes changed; each file is one TAP line. What is checked is that the target returns: a
 * crash, a sanitizer's finding or a hang ends the program, and the runner counts that as a failure.
 *
 * Cuts: at every byte for files up to CUTS bytes, else spread over the file with the first bytes in full, because
 * headers are where parsers differ. Changes come from a fixed generator, so a failure repeats. The last input tried is
 * named on stderr when the program dies (the handler only writes).
 */
#include <dirent.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CUTS 1500
#define CHANGES 500
#define LARGEST_BYTES ((size_t)16 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char doing[300]; /* what a dying program was at */

static void say_where(int signal_number)
{
    ssize_t n = write(STDERR_FILENO, doing, strlen(doing));
    (void)n;
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

/* Each input lives in an allocation of exactly its size, so that one byte too far is seen by the sanitizer. */
static void try_input(const uint8_t *bytes, size_t n_bytes)
{
    uint8_t *const copy = malloc(n_bytes ? n_bytes : 1);
    if (!copy)
        return;
    if (n_bytes)
        memcpy(copy, bytes, n_bytes);
    (void)LLVMFuzzerTestOneInput(copy, n_bytes);
    free(copy);
}

static uint64_t next_random(uint64_t *state) /* xorshift64 */
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void try_cuts(const char *name, const uint8_t *bytes, size_t n_bytes)
{
    const size_t step = n_bytes <= CUTS ? 1 : n_bytes / (CUTS / 2);
    for (size_t n = 0; n < n_bytes; n += n < CUTS / 2 ? 1 : step) {
        snprintf(doing, sizeof doing, "# died on %s cut to %zu bytes\n", name, n);
        try_input(bytes, n);
    }
}

/* Overwrites 1 to 4 places; small values, large values and noise, where half of the places are near the start. */
static void try_changes(const char *name, const uint8_t *bytes, size_t n_bytes)
{
    static const uint8_t favourites[] = {0x00, 0x01, 0x7F, 0x80, 0xFF, '"', '{', '['};
    uint64_t state = 0x9E3779B97F4A7C15u ^ n_bytes;
    uint8_t *const copy = malloc(n_bytes ? n_bytes : 1);
    if (!copy || !n_bytes) {
        free(copy);
        return;
    }
    for (size_t i = 0; i < CHANGES; i++) {
        memcpy(copy, bytes, n_bytes);
        for (uint64_t k = 1 + next_random(&state) % 4; k > 0; k--) {
            const size_t range = next_random(&state) % 2 && n_bytes > 256 ? 256 : n_bytes;
            const uint64_t r = next_random(&state);
            copy[next_random(&state) % range] = r % 3 ? favourites[r / 3 % sizeof favourites] : (uint8_t)(r >> 32);
        }
        snprintf(doing, sizeof doing, "# died on %s with change %zu\n", name, i);
        try_input(copy, n_bytes);
    }
    free(copy);
}

static uint8_t *read_all(const char *path, size_t *n_bytes)
{
    FILE *const f = fopen(path, "rb");
    if (!f)
        return NULL;
    uint8_t *bytes = NULL;
    long end = -1;
    if (fseek(f, 0, SEEK_END) == 0 && (end = ftell(f)) >= 0 && (size_t)end <= LARGEST_BYTES &&
        fseek(f, 0, SEEK_SET) == 0)
        bytes = malloc((size_t)end + 1);
    if (bytes)
        *n_bytes = fread(bytes, 1, (size_t)end, f);
    fclose(f);
    return bytes;
}

static int replay(const char *path, int number)
{
    const char *const slash = strrchr(path, '/');
    const char *const name = slash ? slash + 1 : path;
    size_t n_bytes = 0;
    uint8_t *const bytes = read_all(path, &n_bytes);
    if (bytes) {
        snprintf(doing, sizeof doing, "# died on %s\n", name);
        try_input(bytes, n_bytes);
        try_cuts(name, bytes, n_bytes);
        try_changes(name, bytes, n_bytes);
    }
    printf("%s %d - %s: %s\n", bytes ? "ok" : "not ok", number, FUZZ_TOPIC, name);
    fflush(stdout);
    free(bytes);
    return bytes ? 0 : 1;
}

static int compare_names(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

int main(int argc, char **argv)
{
    int n_done = 0, n_failed = 0;
    signal(SIGABRT, say_where);
#if !defined(__SANITIZE_ADDRESS__) /* it reports better by itself */
    signal(SIGSEGV, say_where);
    signal(SIGBUS, say_where);
#endif
    for (int i = 1; i < argc; i++)
        n_failed += replay(argv[i], ++n_done);
    struct dirent **entries = NULL;
    const int n = argc > 1 ? 0 : scandir(FUZZ_CORPUS, &entries, visible, compare_names);
    for (int i = 0; i < n; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", FUZZ_CORPUS, entries[i]->d_name);
        n_failed += replay(path, ++n_done);
        free(entries[i]);
    }
    free(entries);
    try_input(NULL, 0);
    printf("%s %d - %s: the empty input and a corpus\n", n_done ? "ok" : "not ok", n_done + 1, FUZZ_TOPIC);
    printf("1..%d\n", n_done + 1);
    return n_failed || !n_done;
}
