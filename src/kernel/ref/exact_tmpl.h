/* kernel/ref/exact_tmpl.h: all kernels of the exact family as one row of slots.
 *
 * Parameters: a vec_*.h included before, and EXACT_ROW, the name of the row to define. The row is the only global
 * symbol that comes out: everything else is static, so that no function compiled for a newer instruction set can be
 * linked in the place of a baseline one. */
#include "kernel/ref/attention_tmpl.h"
#include "kernel/ref/decode_tmpl.h"
#include "kernel/ref/linear_tmpl.h"
#include "kernel/ref/rows_tmpl.h"
#include "kernel/rows.h"

const struct teg_kernels EXACT_ROW = {
    .decode_row = decode_row,
    .linear_f32 = linear_f32,
    .rms_norm_f32 = rms_norm_f32,
    .layer_norm_f32 = layer_norm_f32,
    .rope_half_f32 = rope_half_f32,
    .rope_interleaved_f32 = rope_interleaved_f32,
    .kv_append_f32 = kv_append_f32,
    .kv_append_f16 = kv_append_f16,
    .kv_append_bf16 = kv_append_bf16,
    .attention_f32 = attention_f32,
    .attention_f16 = attention_f16,
    .attention_bf16 = attention_bf16,
    .silu_mul_f32 = silu_mul_f32,
    .gelu_mul_f32 = gelu_mul_f32,
    .relu_mul_f32 = relu_mul_f32,
    .gelu_erf_mul_f32 = gelu_erf_mul_f32,
    .add_f32 = add_f32,
    .scale_f32 = scale_f32,
    .softcap_f32 = softcap_f32,
};
