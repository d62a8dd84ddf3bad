/* kernel/kernels.h: the one list of kernels.
 *
 * Kernels are stateless: no allocation, no threads, one slice of the output, no read outside the operands. The
 * reference row of every slot (kernel/ref/) is the definition and stays forever; an instruction set overrides what it
 * improves (kernel/table.c). Every row is tested against the double-precision meaning of its slot, with the bound that
 * stands beside the slot below; k is the length of the sum, eps = 2^-24.
 *
 * Legend: T tokens, N output columns, K input columns (also head width in attention), H heads, G KV heads.
 *
 * Invariance: one output element has one order of operations per instruction set, whatever T, the slice bounds or the
 * position of a row inside a tile. So results never depend on chunk size or threads.
 *
 * NaN and infinity pass through by the rules of IEEE arithmetic; no kernel turns a NaN into a number. */
#ifndef TEG_KERNEL_KERNELS_H
#define TEG_KERNEL_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "cpu/cpu.h"
#include "dtype/encoding.h"

#define TEG_TILE_TOKENS 64 /* tokens in a KV page; tiles start at absolute multiples of it */

/* Y[T, N] = X[T, K] · W[N, K]^T (+ bias) (+ residual), W in any dtype, decoded row by row. Computes columns n0 … n1-1.
 * Exact: fp32 products and sums of the decoded weights; |error| <= 2·(k + 1)·eps·(Σ|x||w| + |bias| + |residual|). Each
 * output is a sum over `lanes` partial sums in one fixed order. */
struct teg_linear_args {
    const float *x; /* [T, x_stride] */
    size_t x_stride;
    const void *w; /* [N] rows of w_row_bytes */
    enum teg_dtype w_dtype;
    size_t w_row_bytes;
    const struct teg_encoding *w_encoding; /* not NULL: W is this, and w is not read */
    const float *bias;                     /* [N] or NULL */
    const float *residual;                 /* [T, y_stride] or NULL; may be y itself */
    float *y;                              /* [T, y_stride] */
    size_t y_stride;
    size_t n_tokens, k;
    size_t n0, n1;
    float *scratch; /* teg_linear_scratch_floats(k) floats, 64-byte aligned */
};

/* KV tile: 64 tokens of one (layer, KV head). K: [K][64] (transposed: a vector holds one component of neighbouring
 * keys), V: [64][K]; both of the page's element type, K first, V at K·64 elements. */
struct teg_kv_append_args {
    const float *k, *v; /* [T, stride], the head's K components first */
    size_t k_stride, v_stride;
    void *const *pages; /* page table of this (layer, head): tile t at (char *)pages[t] + page_offset_bytes */
    size_t page_offset_bytes;
    size_t first_position; /* absolute position of row 0 */
    size_t n_tokens, head_width;
};

/* Attention of query rows against the cache of one KV head, tile by tile with an online softmax.
 * Row r = token t (0 … n_tokens-1) times the head's group; its absolute position is first_position + t. It sees keys
 * p with max(0, pos - window + 1) <= p <= pos (window 0: all up to pos).
 * score = q·k · scale; with softcap c > 0: c · tanh(score / c); softmax over seen keys (and one extra key of score
 * `sinks[g]`, without a value, where sinks is not NULL); out = Σ softmax · v.
 * |error| <= 4·(k·s + n_keys + 8)·eps·Σ softmax |v|, s = max(1, greatest scale·Σ|q||k| of a seen key).
 * Page memory of keys that a row does not see may hold anything, NaN included. */
struct teg_attention_args {
    const float *q; /* [T, q_stride]; group member g of this KV head at column (g · head_width) */
    size_t q_stride;
    float *out; /* [T, out_stride], same columns as q */
    size_t out_stride;
    const void *const *pages; /* as above */
    size_t page_offset_bytes;
    size_t first_position, n_tokens, head_width, group;
    size_t window;
    float scale, softcap;
    const float *sinks; /* [group] or NULL */
    float *scratch;     /* teg_attention_scratch_floats(head_width) floats, 64-byte aligned */
    /* Not NULL (attend.h, types that have join): only keys of this range are looked at, and instead of out the rows'
     * states are written: [T, state_stride], group members side by side. */
    float *state;
    size_t state_stride, range;
};

/* Keys of a range: sums over one know nothing of those of another, so ranges may be computed apart. */
#define TEG_RANGE_TOKENS 1024

/* Rows per call that the attention scratch is sized for: callers cut T so that n_tokens · group <= this (at least one
 * token is always allowed, for group up to it). */
#define TEG_ATTENTION_ROWS 64

/* slot, argument list. Every slot returns void. */
#define TEG_KERNELS(X)                                                                                                 \
    /* dst[n] = decoded row; exact. */                                                                                 \
    X(decode_row, (enum teg_dtype dtype, const void *src, float *dst, size_t n))                                       \
    X(linear_f32, (const struct teg_linear_args *a))                                                                   \
    /* y = x · rsqrt(mean(x²) + eps) · (w + w_offset), rows of width n; w NULL: 1. |error| <= (n + 4)·eps relative \
     * where no x² overflows. */                                                                                      \
    X(rms_norm_f32, (const float *x, size_t x_stride, const float *w, float w_offset, float eps, float *y,             \
                     size_t y_stride, size_t n_rows, size_t n))                                                        \
    /* y = (x - mean) · rsqrt(mean((x - mean)²) + eps) · w + b; b NULL: 0. */                                       \
    X(layer_norm_f32, (const float *x, size_t x_stride, const float *w, const float *b, float eps, float *y,           \
                       size_t y_stride, size_t n_rows, size_t n))                                                      \
    /* In place on [T, stride], n_heads heads of head_width at columns 0, head_width, …; the first 2·n_pairs        \
     * components turn. Half style: pairs (i, i + n_pairs); interleaved: (2i, 2i+1). cos, sin: [T, n_pairs]. */        \
    X(rope_half_f32, (float *x, size_t stride, const float *cos, const float *sin, size_t n_tokens, size_t n_heads,    \
                      size_t head_width, size_t n_pairs))                                                              \
    X(rope_interleaved_f32, (float *x, size_t stride, const float *cos, const float *sin, size_t n_tokens,             \
                             size_t n_heads, size_t head_width, size_t n_pairs))                                       \
    X(kv_append_f32, (const struct teg_kv_append_args *a))                                                             \
    X(kv_append_f16, (const struct teg_kv_append_args *a))                                                             \
    X(kv_append_bf16, (const struct teg_kv_append_args *a))                                                            \
    X(attention_f32, (const struct teg_attention_args *a))                                                             \
    X(attention_f16, (const struct teg_attention_args *a))                                                             \
    X(attention_bf16, (const struct teg_attention_args *a))                                                            \
    /* y = act(gate) · up, rows of n. silu(x) = x/(1+e^-x); gelu is the tanh form. |error| <= 8 eps relative          \
     * (gelu: to |gate · up|), or 2^-126. up_stride 0: one row of up for all. */                                      \
    X(silu_mul_f32, (const float *gate, size_t gate_stride, const float *up, size_t up_stride, float *y,               \
                     size_t y_stride, size_t n_rows, size_t n))                                                        \
    X(gelu_mul_f32, (const float *gate, size_t gate_stride, const float *up, size_t up_stride, float *y,               \
                     size_t y_stride, size_t n_rows, size_t n))                                                        \
    X(relu_mul_f32, (const float *gate, size_t gate_stride, const float *up, size_t up_stride, float *y,               \
                     size_t y_stride, size_t n_rows, size_t n))                                                        \
    /* The same with x · (1 + erf(x/sqrt 2))/2, to the bound of gelu. */                                              \
    X(gelu_erf_mul_f32, (const float *gate, size_t gate_stride, const float *up, size_t up_stride, float *y,           \
                         size_t y_stride, size_t n_rows, size_t n))                                                    \
    /* y = a + b */                                                                                                    \
    X(add_f32, (const float *a, size_t a_stride, const float *b, size_t b_stride, float *y, size_t y_stride,           \
                size_t n_rows, size_t n))                                                                              \
    /* x = x · scale, in place */                                                                                     \
    X(scale_f32, (float *x, size_t stride, float scale, size_t n_rows, size_t n))                                      \
    /* x = cap · tanh(x / cap), in place. |error| <= 8 eps relative. */                                               \
    X(softcap_f32, (float *x, size_t stride, float cap, size_t n_rows, size_t n))

struct teg_kernels {
#define X(slot, args) void(*slot) args;
    TEG_KERNELS(X)
#undef X
    const char *isa_of_slot[32]; /* name of the instruction set that filled each slot, in list order: for `--plan` */
};

/* Fills every slot with the reference row, then with the best row of each instruction set this CPU has. */
void teg_kernels_select(const struct teg_cpu *cpu, struct teg_kernels *kernels);
/* Only rows of `isa` and what it implies (tests); false where this CPU or build cannot run it. */
bool teg_kernels_select_isa(const struct teg_cpu *cpu, enum teg_isa isa, struct teg_kernels *kernels);

size_t teg_linear_scratch_floats(size_t k);
size_t teg_attention_scratch_floats(size_t head_width);

#endif
