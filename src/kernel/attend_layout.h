/* kernel/attend_layout.h: pages of integers, byte by byte, and what attention expands them to.
 *
 * W2 is the head width rounded up to 2, W4 to 4, W16 to 16, W32 to 32. All parts are multiples of 64 bytes.
 *
 *   i16   k       int16 [W2/2][64][2]     component pairs of a token side by side: one operand of a pair product holds
 *                                         neighbouring keys
 *         v       int16 [32][W16][2]      token pairs side by side: neighbouring outputs
 *         k_scale float [64]              k = integer · scale
 *         v_scale float [64]
 *   i8    k       uint8 [W4/4][64][4]     integer + 128, of the turned key less the page's reference
 *         v       int8 [16][W16][4]       the turned value; token quads i, i + 16, i + 32, i + 48 side by side
 *         k_scale float [64]              as above
 *         v_scale float [64]              the scale's logarithm: v = integer · 2^v_scale
 *         k_first float [W16]             the reference: the turned key of the page's first token, not rounded
 *         A vector of a width that is a multiple of 16 is turned: blocks of the greatest power of two that divides the
 *         width, at most 512, are multiplied by a Hadamard matrix and divided by the block.
 *   k16v8 k, k_scale as i16; v, v_scale as i8
 *   q8    k       uint8 [W32/2][64][2]    codes; integer = offset + step · code, |integer| <= 4095
 *         v       uint8 [64][W32]
 *         k_scale, v_scale as above
 *         k_block struct { int16 offset, step } [W32/32][64]
 *         v_block the same [64][W32/32]
 *   q4    as q8 with two codes a byte: k uint8 [W32/2][64], first component low; v uint8 [64][W32/2], in each block of
 *         32 the first 16 components low and the last 16 high
 *
 * A token writes no byte that another token's append writes: two threads may fill one page; but in i8 pages a token
 * reads what the first one wrote (teg_kv_ordered). */
#ifndef TEG_KERNEL_ATTEND_LAYOUT_H
#define TEG_KERNEL_ATTEND_LAYOUT_H

#include "kernel/attend.h"

#define ATTEND_BLOCK 32
#define ATTEND_UNIT 32767 /* norm of a row of q or of an i16 key, in integers: |q · k| <= 2^30 (Cauchy-Schwarz) */
#define ATTEND_V_MAX 4095 /* greatest |integer| of a value, and of a q8 or q4 key */
#define ATTEND_BYTE 127   /* greatest |integer| of an i8 query, key or value */
#define ATTEND_BYTE_OFFSET 128
#define ATTEND_BYTE_P_MAX 255
#define ATTEND_TURN 512   /* most components that are turned together */
#define ATTEND_P_MAX 8191 /* greatest weight: 64 keys · 8191 · 4095 < 2^31 */

_Static_assert((int64_t)TEG_TILE_TOKENS *ATTEND_P_MAX *ATTEND_V_MAX <= INT32_MAX, "sums over a tile fit");

struct kv_block {
    int16_t offset, step;
};

/* Types whose keys, or values, are multiplied as bytes; the others' are int16, stored or expanded. */
static inline bool attend_byte_keys(enum teg_kv_type type)
{
    return type == TEG_KV_I8;
}

static inline bool attend_byte_values(enum teg_kv_type type)
{
    return type == TEG_KV_I8 || type == TEG_KV_K16V8;
}

/* Where the parts of a page lie, in bytes. */
struct attend_layout {
    size_t w2, w4, w16, w32, n_blocks;
    size_t v, k_scale, v_scale, k_block, v_block, k_first, n_bytes;
};

static inline size_t attend_round(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static inline struct attend_layout attend_layout(enum teg_kv_type type, size_t head_width)
{
    const size_t tokens = TEG_TILE_TOKENS;
    struct attend_layout l = {.w2 = attend_round(head_width, 2),
                              .w4 = attend_round(head_width, 4),
                              .w16 = attend_round(head_width, 16),
                              .w32 = attend_round(head_width, ATTEND_BLOCK)};
    const bool blocks = type == TEG_KV_Q8 || type == TEG_KV_Q4;
    const size_t codes = type == TEG_KV_Q4 ? l.w32 * tokens / 2 : l.w32 * tokens;
    const size_t k_bytes = blocks ? codes : attend_byte_keys(type) ? l.w4 * tokens : l.w2 * tokens * 2;
    const size_t v_bytes = blocks ? codes : attend_byte_values(type) ? l.w16 * tokens : l.w16 * tokens * 2;
    l.n_blocks = l.w32 / ATTEND_BLOCK;
    l.v = k_bytes;
    l.k_scale = l.v + v_bytes;
    l.v_scale = l.k_scale + tokens * sizeof(float);
    l.k_block = l.v_scale + tokens * sizeof(float);
    l.v_block = l.k_block + (blocks ? l.n_blocks * tokens * sizeof(struct kv_block) : 0);
    l.k_first = l.v_block + (l.v_block - l.k_block);
    l.n_bytes = l.k_first + (attend_byte_keys(type) ? l.w16 * sizeof(float) : 0);
    return l;
}

#endif
