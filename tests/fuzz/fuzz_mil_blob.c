/* Fuzz target: a weight file, read at every place where a record may be; and the same bytes as the container of a
 * compiled model's description. */
#include "fuzz/mil_fuzz.h"

static void containers(const uint8_t *bytes, size_t n_bytes)
{
    struct teg_span description = {0};
    uint32_t version = 0;
    struct teg_error err = {0};
    if (teg_mlmodelc_description((struct teg_span){bytes, n_bytes}, "fuzz", &description, &version, &err) == TEG_OK)
        touch(description.bytes, description.n_bytes);
    else
        must(err.message[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    for (uint64_t offset = 0; offset <= n_bytes + 64; offset += 64) {
        struct teg_blob blob = {0};
        struct teg_error err = {0};
        if (teg_blob_read((struct teg_span){bytes, n_bytes}, "fuzz", offset, &blob, &err) != TEG_OK) {
            must(err.message[0]);
            continue;
        }
        const struct teg_blob_type *const type = teg_blob_type(blob.code);
        must(type && blob.padding_bits < 8 && (type->bits < 8 || !blob.padding_bits));
        must(type->bits >= 8 || (blob.data.n_bytes * 8 - blob.padding_bits) % type->bits == 0);
        touch(blob.data.bytes, blob.data.n_bytes);
    }
    containers(bytes, n_bytes);
    return 0;
}
