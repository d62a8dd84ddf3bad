/* base/hash.h: 128 bits that stand for a content.
 *
 * For finding equal weights, for identifiers that a content decides, for saying what a file was. Not against an enemy:
 * whoever relies on equality compares the bytes too. The same bytes give the same hash on every machine and in whatever
 * pieces they come. */
#ifndef TEG_BASE_HASH_H
#define TEG_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

struct teg_hash {
    uint64_t high, low;
};

struct teg_hasher {
    uint64_t lanes[4];
    uint64_t n_bytes;
    uint8_t rest[32]; /* of the last incomplete block */
};

void teg_hasher_init(struct teg_hasher *h);
void teg_hasher_add(struct teg_hasher *h, const void *bytes, size_t n_bytes);
struct teg_hash teg_hasher_end(const struct teg_hasher *h);
struct teg_hash teg_hash_of(const void *bytes, size_t n_bytes);

#endif
