/* Fuzz target: MIL text; every function of a program that reads well is raised, looked at, and asked why not. */
#include "fuzz/raise_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    (void)fuzz_raise_text((const char *)bytes, n_bytes);
    return 0;
}
