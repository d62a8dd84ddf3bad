/* kernel/ref/qgemm_base.c: the integer GEMM for what the compiler targets by default. It is the definition that the
 * others are tested against. Products of u8 and s8 fit 16 bits, so bytes are split into even and odd halves of words,
 * multiplied there, and pairs of words are added by shifting. */
#include "kernel/ref/vec_base.h"

#define GEMM_MR 2
#define GEMM_NAME "qgemm_base"
#define GEMM_RECORD teg_qgemm_base
#define GEMM_ISA TEG_ISA_BASE

typedef int16_t v_words __attribute__((vector_size(16)));

/* Both words of each lane, added. */
static inline vi add_words(v_words v)
{
    return ((vi)v << 16 >> 16) + ((vi)v >> 16);
}

static inline vi v_dot(vi s, vi w, vi a)
{
    const v_words even = (v_words)(w & 0x00ff00ff) * ((v_words)a << 8 >> 8);
    const v_words odd = (v_words)((vi)((vh16)w >> 8)) * ((v_words)a >> 8);
    return s + add_words(even) + add_words(odd);
}

#define v_dot7 v_dot

static inline vi v_dot_pair(vi s, vi w, vi a)
{
    return s + (w << 16 >> 16) * (a << 16 >> 16) + (w >> 16) * (a >> 16);
}

static inline vi v_copy(const void *p)
{
    int32_t word;
    memcpy(&word, p, sizeof word);
    return (vi){word, word, word, word};
}

static inline vi v_table(const uint8_t *p)
{
    vi t;
    memcpy(&t, p, sizeof t);
    return t;
}

static inline vi v_lut(vi table, vi index)
{
    return (vi)v_lut16((vb)table, (vb)index);
}

#include "kernel/ref/qgemm_tmpl.h"
