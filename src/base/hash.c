/* base/hash.c: four lanes of 64 bits over blocks of 32 bytes: add the word, multiply by an odd constant, rotate. Each
 * step is a bijection of the lane for a given word, and of the word for a given lane, so no block loses what came
 * before. The end mixes the lanes with the length until every bit of the result depends on every bit of them.
 *
 * Not taken: a library for it. Weights are hashed as fast as they are read; more is not needed. */
#include "base/hash.h"

#include <string.h>

enum { BLOCK = 32 };
static const uint64_t odd[4] = {0x9e3779b97f4a7c15u, 0xc2b2ae3d27d4eb4fu, 0x165667b19e3779f9u, 0xd6e8feb86659fd93u};

static uint64_t rotate(uint64_t v, unsigned n)
{
    return v << n | v >> (64 - n);
}

static uint64_t word_at(const uint8_t *p)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < 8; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

/* Every bit of the result depends on every bit of v. */
static uint64_t mix(uint64_t v)
{
    v = (v ^ v >> 32) * 0xd6e8feb86659fd93u;
    v = (v ^ v >> 32) * 0xd6e8feb86659fd93u;
    return v ^ v >> 32;
}

static void block(uint64_t lanes[4], const uint8_t *p)
{
    for (unsigned i = 0; i < 4; i++)
        lanes[i] = rotate((lanes[i] ^ word_at(p + 8 * i)) * odd[i], 29) + odd[3 - i];
}

void teg_hasher_init(struct teg_hasher *h)
{
    *h = (struct teg_hasher){.lanes = {odd[3], odd[2], odd[1], odd[0]}};
}

void teg_hasher_add(struct teg_hasher *h, const void *bytes, size_t n_bytes)
{
    const uint8_t *p = bytes;
    const size_t held = (size_t)(h->n_bytes % BLOCK);
    h->n_bytes += n_bytes;
    if (held) {
        const size_t take = n_bytes < BLOCK - held ? n_bytes : BLOCK - held;
        if (take)
            memcpy(h->rest + held, p, take);
        p += take;
        n_bytes -= take;
        if (held + take < BLOCK)
            return;
        block(h->lanes, h->rest);
    }
    for (; n_bytes >= BLOCK; p += BLOCK, n_bytes -= BLOCK)
        block(h->lanes, p);
    if (n_bytes)
        memcpy(h->rest, p, n_bytes);
}

struct teg_hash teg_hasher_end(const struct teg_hasher *h)
{
    uint64_t lanes[4];
    uint8_t last[BLOCK] = {0};
    memcpy(lanes, h->lanes, sizeof lanes);
    memcpy(last, h->rest, (size_t)(h->n_bytes % BLOCK));
    block(lanes, last);
    struct teg_hash hash = {mix(h->n_bytes + odd[0]), mix(h->n_bytes ^ odd[1])};
    for (unsigned i = 0; i < 4; i++) {
        hash.high = mix(hash.high ^ lanes[i]) + rotate(hash.low, 23);
        hash.low = mix(hash.low + rotate(lanes[i], 31)) ^ hash.high;
    }
    return hash;
}

struct teg_hash teg_hash_of(const void *bytes, size_t n_bytes)
{
    struct teg_hasher h;
    teg_hasher_init(&h);
    teg_hasher_add(&h, bytes, n_bytes);
    return teg_hasher_end(&h);
}
