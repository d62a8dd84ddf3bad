/* kernel/ref/exact_base.c: every slot in plain C, first version. */
#include <math.h>
#include <string.h>

#include "kernel/rows.h"

static void decode_row(enum teg_dtype dtype, const void *src, float *dst, size_t n)
{
    teg_dtype_decode(dtype, src, dst, n);
}

static float dot(const float *a, const float *b, size_t n)
{
    float lanes[8] = {0};
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (size_t j = 0; j < 8; j++)
            lanes[j] += a[i + j] * b[i + j];
    for (size_t j = 0; i < n; i++, j++)
        lanes[j] += a[i] * b[i];
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

static void linear_f32(const struct teg_linear_args *a)
{
    for (size_t n = a->n0; n < a->n1; n++) {
        teg_dtype_decode(a->w_dtype, (const char *)a->w + n * a->w_row_bytes, a->scratch, a->k);
        for (size_t t = 0; t < a->n_tokens; t++) {
            float y = dot(a->x + t * a->x_stride, a->scratch, a->k);
            if (a->bias)
                y += a->bias[n];
            if (a->residual)
                y += a->residual[t * a->y_stride + n];
            a->y[t * a->y_stride + n] = y;
        }
    }
}

static void rms_norm_f32(const float *x, size_t x_stride, const float *w, float w_offset, float eps, float *y,
                         size_t y_stride, size_t n_rows, size_t n)
{
    for (size_t r = 0; r < n_rows; r++, x += x_stride, y += y_stride) {
        double sum = 0;
        for (size_t i = 0; i < n; i++)
            sum += (double)x[i] * x[i];
        const float scale = (float)(1.0 / sqrt(sum / (double)n + (double)eps));
        for (size_t i = 0; i < n; i++)
            y[i] = x[i] * scale * (w ? w[i] + w_offset : 1.0f);
    }
}

static void rope(float *x, size_t stride, const float *cos, const float *sin, size_t n_tokens, size_t n_heads,
                 size_t head_width, size_t n_pairs, size_t step, size_t distance)
{
    for (size_t t = 0; t < n_tokens; t++) {
        for (size_t h = 0; h < n_heads; h++) {
            float *const row = x + t * stride + h * head_width;
            for (size_t i = 0; i < n_pairs; i++) {
                const float c = cos[t * n_pairs + i], s = sin[t * n_pairs + i];
                const float a = row[i * step], b = row[i * step + distance];
                row[i * step] = a * c - b * s;
                row[i * step + distance] = b * c + a * s;
            }
        }
    }
}

static void rope_half_f32(float *x, size_t stride, const float *cos, const float *sin, size_t n_tokens, size_t n_heads,
                          size_t head_width, size_t n_pairs)
{
    rope(x, stride, cos, sin, n_tokens, n_heads, head_width, n_pairs, 1, n_pairs);
}

static void rope_interleaved_f32(float *x, size_t stride, const float *cos, const float *sin, size_t n_tokens,
                                 size_t n_heads, size_t head_width, size_t n_pairs)
{
    rope(x, stride, cos, sin, n_tokens, n_heads, head_width, n_pairs, 2, 1);
}

static void store(enum teg_dtype dtype, void *base, size_t i, float value)
{
    if (dtype == TEG_DTYPE_F32)
        ((float *)base)[i] = value;
    else
        ((uint16_t *)base)[i] = dtype == TEG_DTYPE_F16 ? teg_f32_to_f16(value) : teg_f32_to_bf16(value);
}

static float load(enum teg_dtype dtype, const void *base, size_t i)
{
    if (dtype == TEG_DTYPE_F32)
        return ((const float *)base)[i];
    const uint16_t bits = ((const uint16_t *)base)[i];
    return dtype == TEG_DTYPE_F16 ? teg_f16_to_f32(bits) : teg_bf16_to_f32(bits);
}

static void kv_append(const struct teg_kv_append_args *a, enum teg_dtype dtype)
{
    for (size_t t = 0; t < a->n_tokens; t++) {
        const size_t position = a->first_position + t;
        void *const tile = (char *)a->pages[position / TEG_TILE_TOKENS] + a->page_offset_bytes;
        const size_t slot = position % TEG_TILE_TOKENS, v0 = a->head_width * TEG_TILE_TOKENS;
        for (size_t c = 0; c < a->head_width; c++) {
            store(dtype, tile, c * TEG_TILE_TOKENS + slot, a->k[t * a->k_stride + c]);
            store(dtype, tile, v0 + slot * a->head_width + c, a->v[t * a->v_stride + c]);
        }
    }
}

static void attend_row(const struct teg_attention_args *a, enum teg_dtype dtype, size_t t, size_t g)
{
    const size_t position = a->first_position + t, width = a->head_width;
    const size_t first_key = a->window && position + 1 > a->window ? position + 1 - a->window : 0;
    const float *const q = a->q + t * a->q_stride + g * width;
    float *const out = a->out + t * a->out_stride + g * width;
    float max = a->sinks ? a->sinks[g] : -INFINITY, sum = a->sinks ? 1.0f : 0.0f;
    float *const acc = a->scratch;
    memset(acc, 0, width * sizeof *acc);
    for (size_t p = first_key; p <= position; p++) {
        const void *const tile = (const char *)a->pages[p / TEG_TILE_TOKENS] + a->page_offset_bytes;
        const size_t slot = p % TEG_TILE_TOKENS;
        float score = 0;
        for (size_t c = 0; c < width; c++)
            score += q[c] * load(dtype, tile, c * TEG_TILE_TOKENS + slot);
        score *= a->scale;
        if (a->softcap > 0)
            score = a->softcap * tanhf(score / a->softcap);
        if (score > max) {
            const float rescale = expf(max - score);
            for (size_t c = 0; c < width; c++)
                acc[c] *= rescale;
            sum *= rescale;
            max = score;
        }
        const float weight = expf(score - max);
        sum += weight;
        for (size_t c = 0; c < width; c++)
            acc[c] += weight * load(dtype, tile, width * TEG_TILE_TOKENS + slot * width + c);
    }
    for (size_t c = 0; c < width; c++)
        out[c] = acc[c] / sum;
}

static void attention(const struct teg_attention_args *a, enum teg_dtype dtype)
{
    for (size_t t = 0; t < a->n_tokens; t++)
        for (size_t g = 0; g < a->group; g++)
            attend_row(a, dtype, t, g);
}

static void kv_append_f32(const struct teg_kv_append_args *a)
{
    kv_append(a, TEG_DTYPE_F32);
}
static void kv_append_f16(const struct teg_kv_append_args *a)
{
    kv_append(a, TEG_DTYPE_F16);
}
static void kv_append_bf16(const struct teg_kv_append_args *a)
{
    kv_append(a, TEG_DTYPE_BF16);
}
static void attention_f32(const struct teg_attention_args *a)
{
    attention(a, TEG_DTYPE_F32);
}
static void attention_f16(const struct teg_attention_args *a)
{
    attention(a, TEG_DTYPE_F16);
}
static void attention_bf16(const struct teg_attention_args *a)
{
    attention(a, TEG_DTYPE_BF16);
}

static void silu_mul_f32(const float *gate, size_t gate_stride, const float *up, size_t up_stride, float *y,
                         size_t y_stride, size_t n_rows, size_t n)
{
    for (size_t r = 0; r < n_rows; r++, gate += gate_stride, up += up_stride, y += y_stride)
        for (size_t i = 0; i < n; i++)
            y[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
}

static void gelu_mul_f32(const float *gate, size_t gate_stride, const float *up, size_t up_stride, float *y,
                         size_t y_stride, size_t n_rows, size_t n)
{
    for (size_t r = 0; r < n_rows; r++, gate += gate_stride, up += up_stride, y += y_stride) {
        for (size_t i = 0; i < n; i++) {
            const float g = gate[i];
            y[i] = 0.5f * g * (1.0f + tanhf(0.7978845608f * (g + 0.044715f * g * g * g))) * up[i];
        }
    }
}

static void add_f32(const float *a, size_t a_stride, const float *b, size_t b_stride, float *y, size_t y_stride,
                    size_t n_rows, size_t n)
{
    for (size_t r = 0; r < n_rows; r++, a += a_stride, b += b_stride, y += y_stride)
        for (size_t i = 0; i < n; i++)
            y[i] = a[i] + b[i];
}

static void scale_f32(float *x, size_t stride, float scale, size_t n_rows, size_t n)
{
    for (size_t r = 0; r < n_rows; r++, x += stride)
        for (size_t i = 0; i < n; i++)
            x[i] *= scale;
}

static void softcap_f32(float *x, size_t stride, float cap, size_t n_rows, size_t n)
{
    for (size_t r = 0; r < n_rows; r++, x += stride)
        for (size_t i = 0; i < n; i++)
            x[i] = cap * tanhf(x[i] / cap);
}

const struct teg_kernels teg_kernel_rows_base = {
    .decode_row = decode_row,
    .linear_f32 = linear_f32,
    .rms_norm_f32 = rms_norm_f32,
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
    .add_f32 = add_f32,
    .scale_f32 = scale_f32,
    .softcap_f32 = softcap_f32,
};
