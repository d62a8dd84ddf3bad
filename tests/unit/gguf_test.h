/* Writes GGUF piece by piece, right or wrong, for the tests. */
#ifndef GGUF_TEST_H
#define GGUF_TEST_H

#include "unit/format_test.h"

enum { U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 };
enum { TYPE_F32 = 0, TYPE_Q4_0 = 2, TYPE_Q4_K = 12 };

static inline void put_string(struct bytes *b, const char *text)
{
    put_uint(b, strlen(text), 8);
    put_text(b, text);
}

static inline void put_header(struct bytes *b, uint32_t version, uint64_t n_tensors, uint64_t n_pairs)
{
    put_text(b, "GGUF");
    put_uint(b, version, 4);
    put_uint(b, n_tensors, 8);
    put_uint(b, n_pairs, 8);
}

/* Key and type; the value follows. */
static inline void put_key(struct bytes *b, const char *key, uint32_t type)
{
    put_string(b, key);
    put_uint(b, type, 4);
}

static inline void put_pair(struct bytes *b, const char *key, uint32_t type, uint64_t value, size_t n_bytes)
{
    put_key(b, key, type);
    put_uint(b, value, n_bytes);
}

static inline void put_array(struct bytes *b, const char *key, uint32_t type, uint64_t n)
{
    put_key(b, key, ARRAY);
    put_uint(b, type, 4);
    put_uint(b, n, 8);
}

/* dims in the file's order: contiguous first. */
static inline void put_tensor(struct bytes *b, const char *name, uint32_t rank, const uint64_t *dims, uint32_t type,
                              uint64_t offset)
{
    put_string(b, name);
    put_uint(b, rank, 4);
    for (uint32_t i = 0; i < rank; i++)
        put_uint(b, dims[i], 8);
    put_uint(b, type, 4);
    put_uint(b, offset, 8);
}

static inline void put_padding(struct bytes *b, size_t alignment)
{
    put_zeros(b, (alignment - b->n % alignment) % alignment);
}

/* One F32 tensor of 8 values that takes one alignment unit. */
static inline void put_plain_tensor(struct bytes *b, const char *name, uint64_t offset)
{
    put_tensor(b, name, 1, (uint64_t[]){8}, TYPE_F32, offset);
}

#endif
