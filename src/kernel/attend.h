/* kernel/attend.h: KV pages and attention by type of page: the second list of attention kernels.
 *
 * A record fills one KV type: how tokens are packed into a page, and attention of query rows over such pages. Pages of
 * f32, f16 and bf16 go to the slots of kernels.h, which compute in fp32. Pages of i16, q8 and q4 hold integers with
 * scales and are multiplied as 16-bit integers (VPDPWSSD, VPMADDWD), pages of i8 as bytes (VPDPBUSD, SDOT), k16v8 has
 * keys of the former kind and values of the latter: twice the rate of fp32 and more on every x86 of the last ten years,
 * sums of products that are exact, and no overflow by construction.
 * Not taken: fp16 FMA (the same rate where it exists, but sums of 11 bits that need spilling every few products) and
 * bf16 dot products (the same rate on AMD, a quarter of it on Intel before AMX, and 8 bits of precision).
 *
 * Meaning. With x~ for x after its rounding below, one row gives
 *     out = (Σ w~ · v~) / (Σ w),  w = e^(q~ · k~ · scale - greatest)
 * - q row: integers of scale |q| / 32767, so |q~ - q| <= |q| · 2^-16 in each component (|·| is the Euclidean norm);
 * - k token: i16: the same; q8, q4: blocks of 32 in 8 or 4 bits with a 16-bit offset and step (attend_layout.h);
 * - v token: i16: integers of scale max|v| / 4095; q8, q4 as k;
 * - w of one tile of 64 keys: multiplied by the v token's scale, then rounded to 13 bits below the tile's greatest.
 * Worst case, i16: |error| <= Σ_tiles W · 64/16382 · V + Σ w/Σw · V/8190 + 2·r·Σ w/Σw · V, where W is the tile's
 * greatest w over the sum of all w, V the tile's greatest |v|, and r = |scale|·|q||k|·√K·2^-15 (+ 2^-18, the error of
 * 2^x).
 *
 * i8: q and k are turned (attend_layout.h); q row: integers of scale max|q| / 127; k token: the page's reference in
 * floats and integers of scale max|k - reference| / 127; v token, turned: integers of scale 2^(n / 16), n the least
 * that suffices for 127; w times the v token's scale: to 1/255 of the tile's greatest. Worst case, turned: |error| <=
 * Σ_tiles P · 64/510 · 127 + 2·r·Σ w/Σw · V + Σ w/Σw · V/254, where P is the tile's greatest w · scale of v over the
 * sum of all w, and r = |scale| · max|q| / 254 · Σ|k - reference| (+ 2^-13, the error of 2^x). Values beyond 2^46 count
 * as not finite. k16v8: q and k as in i16, v and w as in i8.
 *
 * Rows with FMA agree bit for bit with one another, so which one runs is a question of speed only and may be answered
 * by a measurement. A query, key or value with a component that is not finite makes NaN of every row that sees it.
 * Invariance is as in kernels.h: a row's bits depend on the keys it sees and on nothing else. */
#ifndef TEG_KERNEL_ATTEND_H
#define TEG_KERNEL_ATTEND_H

#include "kernel/kernels.h"
#include "tegula.h"

#define TEG_KV_TYPES 9 /* of enum teg_kv_type, AUTO included */

/* Pages are as in kernels.h: page_offset_bytes leads to the head's page, its layout is the type's own. */
struct teg_attend {
    const char *name; /* "attend_i16_avx512vnni" */
    void (*append)(const struct teg_kv_append_args *args);
    void (*run)(const struct teg_attention_args *args);
    /* The states of n_ranges ranges from args->range on, which run() left at states, states + range_stride, …, join
     * args->state, in order: the state of all ranges before (not read where there are none). With the last range that
     * the rows see, out is written instead; behind it, nothing. The bits are those of run() over all ranges. NULL: the
     * type has no states. */
    void (*join)(const struct teg_attention_args *args, const float *states, size_t n_ranges, size_t range_stride);
};

/* What one instruction set brings: a record for each integer type. */
struct teg_attend_row {
    enum teg_isa isa;
    enum teg_kv_type fast; /* the fastest type that keeps the bounds of fast mode */
    struct teg_attend of[TEG_KV_TYPES];
};

/* How the integer row was chosen. */
enum teg_attend_choice { TEG_ATTEND_ONLY, TEG_ATTEND_KNOWN_CPU, TEG_ATTEND_MEASURED };

struct teg_attend_table {
    struct teg_attend of[TEG_KV_TYPES]; /* every type but AUTO is filled */
    enum teg_isa isa;                   /* of the integer types */
    enum teg_attend_choice choice;
    enum teg_kv_type fast; /* the type for fast mode: the fastest here of those that keep its bounds */
};

/* `kernels` fills the float types; both must be of the same CPU. Takes about a millisecond for each instruction set
 * where the CPU is not known. */
void teg_attend_select(const struct teg_cpu *cpu, const struct teg_kernels *kernels, struct teg_attend_table *table);
/* The row of one instruction set (tests); NULL where this CPU or build cannot run it or has none. */
const struct teg_attend_row *teg_attend_row(const struct teg_cpu *cpu, enum teg_isa isa);

/* Bytes of the page (64 tokens, K and V) of one head; a multiple of 64 for widths that are a multiple of 8. */
size_t teg_kv_page_bytes(enum teg_kv_type type, size_t head_width);
/* True where tokens of a page must be appended in order: one thread appends those of one page. */
bool teg_kv_ordered(enum teg_kv_type type);
const char *teg_kv_type_name(enum teg_kv_type type);
/* Scratch that any type may need, in floats. */
size_t teg_attend_scratch_floats(size_t head_width);
/* What a query row knows of the keys it has seen (sums and what they are relative to), in floats. */
size_t teg_attend_state_floats(size_t head_width);

#endif
