/* kernel/ref/rows_tmpl.h: the small kernels, row by row, for the vector type of the file that includes it (parameters:
 * vec_base.h): norms, rotary positions, gated activations, sums, and appending to the cache.
 *
 * A row's last partial vector goes through the same instructions as the others (v_load_n fills it with zeros), so an
 * element's value never depends on where it stands in the row. */
#include "kernel/ref/vec_types.h"

/* Sums of squares: four vectors of partial sums, added in a fixed tree. */
static void rms_norm_f32(const float *x, size_t x_stride, const float *w, float w_offset, float eps, float *y,
                         size_t y_stride, size_t n_rows, size_t n)
{
    for (size_t r = 0; r < n_rows; r++, x += x_stride, y += y_stride) {
        vf s[4] = {{0}};
        for (size_t i = 0, j = 0; i < n; i += VL, j = (j + 1) % 4) {
            const vf v = v_load_n(x + i, n - i);
            s[j] = v_fma(v, v, s[j]);
        }
        const float mean = v_sum((s[0] + s[1]) + (s[2] + s[3])) / (float)n;
        const vf scale = v_set(1.0f / sqrtf(mean + eps));
        for (size_t i = 0; i < n; i += VL) {
            vf v = v_load_n(x + i, n - i) * scale;
            if (w)
                v *= v_load_n(w + i, n - i) + w_offset;
            v_store_n(y + i, v, n - i);
        }
    }
}

/* Sum of a row, or of its squares. */
static inline float row_sum(const float *x, size_t n, bool squares)
{
    vf s[4] = {{0}};
    for (size_t i = 0, j = 0; i < n; i += VL, j = (j + 1) % 4) {
        const vf v = v_load_n(x + i, n - i);
        if (squares)
            s[j] = v_fma(v, v, s[j]);
        else
            s[j] += v;
    }
    return v_sum((s[0] + s[1]) + (s[2] + s[3]));
}

/* The mean is taken off first, in y: the lanes behind a row's end must not count as far from it. */
static void layer_norm_f32(const float *x, size_t x_stride, const float *w, const float *b, float eps, float *y,
                           size_t y_stride, size_t n_rows, size_t n)
{
    for (size_t r = 0; r < n_rows; r++, x += x_stride, y += y_stride) {
        const vf mean = v_set(row_sum(x, n, false) / (float)n);
        for (size_t i = 0; i < n; i += VL)
            v_store_n(y + i, v_load_n(x + i, n - i) - mean, n - i);
        const vf scale = v_set(1.0f / sqrtf(row_sum(y, n, true) / (float)n + eps));
        for (size_t i = 0; i < n; i += VL) {
            vf v = v_load_n(y + i, n - i) * scale * v_load_n(w + i, n - i);
            if (b)
                v += v_load_n(b + i, n - i);
            v_store_n(y + i, v, n - i);
        }
    }
}

static void rope_half_f32(float *x, size_t stride, const float *cos, const float *sin, size_t n_tokens, size_t n_heads,
                          size_t head_width, size_t n_pairs)
{
    for (size_t t = 0; t < n_tokens; t++, x += stride, cos += n_pairs, sin += n_pairs) {
        for (size_t h = 0; h < n_heads; h++) {
            float *const first = x + h * head_width, *const second = first + n_pairs;
            for (size_t i = 0; i < n_pairs; i += VL) {
                const size_t n = n_pairs - i;
                const vf c = v_load_n(cos + i, n), s = v_load_n(sin + i, n);
                const vf a = v_load_n(first + i, n), b = v_load_n(second + i, n);
                v_store_n(first + i, v_fma(a, c, -(b * s)), n);
                v_store_n(second + i, v_fma(b, c, a * s), n);
            }
        }
    }
}

/* Left to the compiler's vectoriser, which knows the best way to part even from odd lanes; an element's place in its
 * head never changes, so neither does its arithmetic. */
static void rope_pairs(float *restrict row, const float *restrict cos, const float *restrict sin, size_t n_pairs)
{
    for (size_t i = 0; i < n_pairs; i++) {
        const float a = row[2 * i], b = row[2 * i + 1];
        row[2 * i] = a * cos[i] - b * sin[i];
        row[2 * i + 1] = b * cos[i] + a * sin[i];
    }
}

static void rope_interleaved_f32(float *x, size_t stride, const float *cos, const float *sin, size_t n_tokens,
                                 size_t n_heads, size_t head_width, size_t n_pairs)
{
    for (size_t t = 0; t < n_tokens; t++, x += stride, cos += n_pairs, sin += n_pairs)
        for (size_t h = 0; h < n_heads; h++)
            rope_pairs(x + h * head_width, cos, sin, n_pairs);
}

/* e = e^-|x| never overflows: sigmoid(x) = 1 / (1 + e) for x >= 0 and e / (1 + e) below. */
static inline vf v_times_sigmoid(vf factor, vf x)
{
    const vf e = v_exp(-v_abs(x));
    const vf numerator = v_select(x < 0.0f, factor * e, factor);
    return numerator / (1.0f + e);
}

static void silu_mul_f32(const float *gate, size_t gate_stride, const float *up, size_t up_stride, float *y,
                         size_t y_stride, size_t n_rows, size_t n)
{
    for (size_t r = 0; r < n_rows; r++, gate += gate_stride, up += up_stride, y += y_stride) {
        for (size_t i = 0; i < n; i += VL) {
            const vf g = v_load_n(gate + i, n - i);
            v_store_n(y + i, v_times_sigmoid(g, g) * v_load_n(up + i, n - i), n - i);
        }
    }
}

/* 1/2 (1 + tanh u) is sigmoid(2u); u = sqrt(2/pi) (g + 0.044715 g^3). */
static void gelu_mul_f32(const float *gate, size_t gate_stride, const float *up, size_t up_stride, float *y,
                         size_t y_stride, size_t n_rows, size_t n)
{
    const float TWICE_SQRT_2_OVER_PI = 1.5957691216057308f;
    for (size_t r = 0; r < n_rows; r++, gate += gate_stride, up += up_stride, y += y_stride) {
        for (size_t i = 0; i < n; i += VL) {
            const vf g = v_load_n(gate + i, n - i);
            const vf u = v_fma(g * g * 0.044715f, g, g) * TWICE_SQRT_2_OVER_PI;
            v_store_n(y + i, v_times_sigmoid(g, u) * v_load_n(up + i, n - i), n - i);
        }
    }
}

/* A NaN stays one. */
static void relu_mul_f32(const float *gate, size_t gate_stride, const float *up, size_t up_stride, float *y,
                         size_t y_stride, size_t n_rows, size_t n)
{
    for (size_t r = 0; r < n_rows; r++, gate += gate_stride, up += up_stride, y += y_stride) {
        for (size_t i = 0; i < n; i += VL) {
            const vf g = v_load_n(gate + i, n - i);
            v_store_n(y + i, v_select(g < 0.0f, v_set(0), g) * v_load_n(up + i, n - i), n - i);
        }
    }
}

/* The normal distribution at x. Its tail at -|x| is e^(-x²/2) times a polynomial of t = 1 / (1 + p |x|/sqrt 2), to
 * 1e-7 (Abramowitz and Stegun 7.1.26). */
static inline vf v_normal(vf x)
{
    const float P_OVER_SQRT_2 = 0.3275911f * 0.70710678f;
    const vf t = 1.0f / (1.0f + v_abs(x) * P_OVER_SQRT_2);
    vf p = v_set(0.5307027145f);
    p = v_fma(p, t, v_set(-0.7265760135f));
    p = v_fma(p, t, v_set(0.7107068705f));
    p = v_fma(p, t, v_set(-0.142248368f));
    p = v_fma(p, t, v_set(0.127414796f));
    const vf tail = p * t * v_exp(x * x * -0.5f);
    return v_select(x < 0.0f, tail, 1.0f - tail);
}

static void gelu_erf_mul_f32(const float *gate, size_t gate_stride, const float *up, size_t up_stride, float *y,
                             size_t y_stride, size_t n_rows, size_t n)
{
    for (size_t r = 0; r < n_rows; r++, gate += gate_stride, up += up_stride, y += y_stride) {
        for (size_t i = 0; i < n; i += VL) {
            const vf g = v_load_n(gate + i, n - i);
            v_store_n(y + i, g * v_normal(g) * v_load_n(up + i, n - i), n - i);
        }
    }
}

static void add_f32(const float *a, size_t a_stride, const float *b, size_t b_stride, float *y, size_t y_stride,
                    size_t n_rows, size_t n)
{
    for (size_t r = 0; r < n_rows; r++, a += a_stride, b += b_stride, y += y_stride)
        for (size_t i = 0; i < n; i += VL)
            v_store_n(y + i, v_load_n(a + i, n - i) + v_load_n(b + i, n - i), n - i);
}

static void scale_f32(float *x, size_t stride, float scale, size_t n_rows, size_t n)
{
    for (size_t r = 0; r < n_rows; r++, x += stride)
        for (size_t i = 0; i < n; i += VL)
            v_store_n(x + i, v_load_n(x + i, n - i) * scale, n - i);
}

static void softcap_f32(float *x, size_t stride, float cap, size_t n_rows, size_t n)
{
    for (size_t r = 0; r < n_rows; r++, x += stride)
        for (size_t i = 0; i < n; i += VL)
            v_store_n(x + i, v_tanh(v_load_n(x + i, n - i) / cap) * cap, n - i);
}

/* n floats to the page's element type. */
TEG_INLINE void convert_to(const enum teg_dtype dtype, void *dst, const float *src, size_t n)
{
    if (dtype == TEG_DTYPE_F32) {
        memcpy(dst, src, n * sizeof *src);
        return;
    }
    uint16_t *const half = dst;
    size_t i = 0;
    for (; i + VL <= n; i += VL) {
        if (dtype == TEG_DTYPE_F16)
            v_store_f16(half + i, v_load(src + i));
        else
            v_store_bf16(half + i, v_load(src + i));
    }
    for (; i < n; i++)
        half[i] = dtype == TEG_DTYPE_F16 ? teg_f32_to_f16(src[i]) : teg_f32_to_bf16(src[i]);
}

/* V rows go in as they are; K is transposed, one token a column of its tile, through a small converted piece. */
TEG_INLINE void kv_append(const struct teg_kv_append_args *a, const enum teg_dtype dtype)
{
    enum { PIECE = 64 };
    const size_t element_bytes = dtype == TEG_DTYPE_F32 ? 4 : 2, width = a->head_width;
    for (size_t t = 0; t < a->n_tokens; t++) {
        const size_t position = a->first_position + t, slot = position % TEG_TILE_TOKENS;
        char *const k_tile = (char *)a->pages[position / TEG_TILE_TOKENS] + a->page_offset_bytes;
        char *const v_tile = k_tile + width * TEG_TILE_TOKENS * element_bytes;
        convert_to(dtype, v_tile + slot * width * element_bytes, a->v + t * a->v_stride, width);
        for (size_t c = 0; c < width; c += PIECE) {
            const size_t n = width - c < PIECE ? width - c : PIECE;
            uint32_t words[PIECE];
            uint16_t halves[PIECE];
            convert_to(dtype, element_bytes == 4 ? (void *)words : (void *)halves, a->k + t * a->k_stride + c, n);
            for (size_t i = 0; i < n; i++) {
                if (element_bytes == 4)
                    ((uint32_t *)(void *)k_tile)[(c + i) * TEG_TILE_TOKENS + slot] = words[i];
                else
                    ((uint16_t *)(void *)k_tile)[(c + i) * TEG_TILE_TOKENS + slot] = halves[i];
            }
        }
    }
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
