/* Fuzz target: two bytes of length, a weight file of that length, MIL text. */
#include "fuzz/mil_fuzz.h"

static enum teg_status parse(const struct teg_allocator *allocator, struct teg_mil_program **program,
                             struct teg_error *err, const uint8_t *bytes, size_t n_bytes)
{
    const size_t n_weights = n_bytes < 2 ? 0 : (size_t)bytes[0] | (size_t)bytes[1] << 8;
    const size_t begin = n_bytes < 2 ? 0 : 2,
                 middle = begin + (n_weights < n_bytes - begin ? n_weights : n_bytes - begin);
    return teg_mil_parse_text((const char *)bytes + middle, n_bytes - middle, middle > begin ? bytes + begin : NULL,
                              middle - begin, "fuzz", allocator, program, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    fuzz_program(parse, bytes, n_bytes);
    return 0;
}
