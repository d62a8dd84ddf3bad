/* kernel/ref/attend_pages_tmpl.h: rounding to integers, packing of tokens into pages, expansion of pages to operands.
 *
 * Every sum of floats has 16 partial sums, whatever the vector width, so that all instruction sets with FMA write the
 * same page. A component that is not finite makes the scale NaN and the integers zero: the scale carries it on.
 * Parameters: see attend_tmpl.h. */
#include "kernel/attend_layout.h"
#include "kernel/ref/vec_types.h"

#define TOKENS ((size_t)TEG_TILE_TOKENS)
#define LANES 16 /* partial sums */

typedef int16_t vs __attribute__((vector_size(4 * VL)));

static const float scale_floor = 0x1p-100f; /* below it scales and their inverses lose bits */

static inline vf v_float(vi v)
{
    return __builtin_convertvector(v, vf);
}

/* Halves, halves again, down to one; v_sum does the same within a vector. */
static inline float sum_lanes(const float *lanes)
{
    vf s[LANES / VL];
    memcpy(s, lanes, sizeof s);
    for (size_t n = LANES / VL / 2; n > 0; n /= 2)
        for (size_t i = 0; i < n; i++)
            s[i] += s[i + n];
    return v_sum(s[0]);
}

/* Greatest |x|, at least `scale_floor`; NaN where a component is not finite: v_min makes infinity of a NaN. */
static float greatest_of(const float *x, size_t n)
{
    const vf infinity = v_set(INFINITY);
    vf most = v_set(scale_floor);
    for (size_t i = 0; i < n; i += VL)
        most = v_max(v_min(v_abs(v_load_n(x + i, n - i)), infinity), most);
    const float greatest = v_hmax(most);
    return greatest < INFINITY ? greatest : NAN;
}

/* round(x / step · factor) of up to LANES components; zeros behind them. It is less than 2^22: the magic sum rounds to
 * an integer. */
TEG_INLINE void round_lanes(const float *x, size_t n, float step, float factor, int32_t *out)
{
    const vf magic = v_set(0x1.8p23f);
    for (size_t i = 0; i < LANES; i += VL) {
        const vf v = i < n ? v_load_n(x + i, n - i) : v_set(0.0f);
        const vi q = (vi)(v / step * factor + magic) - (vi)magic;
        memcpy(out + i, &q, sizeof q);
    }
}

/* x ~ integer · scale with a norm of `unit` in integers; *factor is what x / greatest was multiplied by. */
static float norm_scale(const float *x, size_t n, float greatest, float unit, float *factor)
{
    vf sums[LANES / VL];
    for (size_t j = 0; j < LANES / VL; j++)
        sums[j] = v_set(0.0f);
    for (size_t i = 0; i < n; i += LANES)
        for (size_t j = 0; j < LANES / VL; j++) {
            const size_t at = i + j * VL;
            const vf v = (at < n ? v_load_n(x + at, n - at) : v_set(0.0f)) / greatest;
            sums[j] = v_fma(v, v, sums[j]);
        }
    const float square = sum_lanes((const float *)sums), norm = square > 1.0f ? sqrtf(square) : 1.0f;
    *factor = unit / norm;
    return greatest * norm / unit;
}

/* The norm of a query row in integers: its product with any key of the type stays below 2^31. */
static float query_unit(enum teg_kv_type type, size_t head_width)
{
    const float root = sqrtf((float)attend_round(head_width, ATTEND_BLOCK));
    const float most = 0x1p31f / (ATTEND_V_MAX * root) - root;
    return type == TEG_KV_I16 || type == TEG_KV_K16V8 || most > ATTEND_UNIT ? ATTEND_UNIT : most;
}

/* A query row to n_padded integers; returns its scale. */
static float round_query(const float *x, size_t n, size_t n_padded, float unit, int16_t *out)
{
    const float greatest = greatest_of(x, n);
    float factor;
    memset(out, 0, n_padded * sizeof *out);
    if (isnan(greatest))
        return NAN;
    const float scale = norm_scale(x, n, greatest, unit, &factor);
    for (size_t c = 0; c < n; c += LANES) {
        int32_t q[LANES];
        round_lanes(x + c, n - c, greatest, factor, q);
        if (c + LANES <= n) {
            for (size_t i = 0; i < LANES; i++)
                out[c + i] = (int16_t)q[i];
        } else {
            for (size_t i = 0; c + i < n; i++)
                out[c + i] = (int16_t)q[i];
        }
    }
    return scale;
}

/* ---- keys and values in 16 bits ---- */

static void append_word_key(const struct attend_layout *l, const float *k, size_t n, char *page, size_t slot)
{
    int16_t *const pairs = (int16_t *)(void *)page;
    const float greatest = greatest_of(k, n);
    const bool bad = isnan(greatest);
    float factor = 0, scale = NAN;
    if (!bad)
        scale = norm_scale(k, n, greatest, ATTEND_UNIT, &factor);
    for (size_t c = 0; c < l->w2; c += LANES) {
        int32_t q[LANES] = {0};
        if (!bad)
            round_lanes(k + c, n - c, greatest, factor, q);
        for (size_t i = 0; i < LANES && c + i < l->w2; i += 2) {
            const int16_t pair[2] = {(int16_t)q[i], (int16_t)q[i + 1]};
            memcpy(pairs + ((c + i) / 2 * TOKENS + slot) * 2, pair, sizeof pair);
        }
    }
    memcpy(page + l->k_scale + slot * sizeof scale, &scale, sizeof scale);
}

static void append_word_value(const struct attend_layout *l, const float *v, size_t n, char *page, size_t slot)
{
    int16_t *const rows = (int16_t *)(void *)(page + l->v) + slot / 2 * l->w16 * 2 + slot % 2;
    const float greatest = greatest_of(v, n);
    const float scale = greatest / ATTEND_V_MAX;
    for (size_t c = 0; c < l->w16; c += LANES) {
        int32_t q[LANES] = {0};
        if (!isnan(greatest) && c < n)
            round_lanes(v + c, n - c, greatest, ATTEND_V_MAX, q);
        for (size_t i = 0; i < LANES; i++)
            rows[(c + i) * 2] = (int16_t)q[i];
    }
    memcpy(page + l->v_scale + slot * sizeof scale, &scale, sizeof scale);
}

/* ---- q8 and q4: blocks of 32 with offset and step in units of the token's scale ---- */

/* Components c … c + 31 (those that exist) as codes 0 … most. Codes stand for offset + step · code. */
static struct kv_block round_block(const float *x, size_t n, float scale, int32_t most, uint8_t *codes)
{
    int32_t q[ATTEND_BLOCK], low = INT32_MAX, high = INT32_MIN;
    const size_t n_here = n < ATTEND_BLOCK ? n : ATTEND_BLOCK;
    round_lanes(x, n, scale, 1.0f, q);
    if (n > LANES)
        round_lanes(x + LANES, n - LANES, scale, 1.0f, q + LANES);
    for (size_t i = 0; i < n_here; i++) {
        low = q[i] < low ? q[i] : low;
        high = q[i] > high ? q[i] : high;
    }
    /* The least step whose codes reach from low to high; the last code may not pass the greatest integer. */
    const int32_t step = high > low ? (high - low + most - 1) / most : 1;
    const int32_t spare = low + step * most - ATTEND_V_MAX;
    const int32_t offset = spare > 0 ? low - spare : low;
    const struct kv_block b = {(int16_t)(offset < -ATTEND_V_MAX ? -ATTEND_V_MAX : offset), (int16_t)step};
    memset(codes, 0, ATTEND_BLOCK);
    for (size_t i = 0; i < n_here; i++) {
        int32_t code = (q[i] - b.offset + step / 2) / step;
        code = code < most ? code : most;
        codes[i] = (uint8_t)(b.offset + step * code > ATTEND_V_MAX ? code - 1 : code);
    }
    return b;
}

TEG_INLINE void append_quantized(const enum teg_kv_type type, const struct teg_kv_append_args *a)
{
    const struct attend_layout l = attend_layout(type, a->head_width);
    const bool q4 = type == TEG_KV_Q4;
    const int32_t most = q4 ? 15 : 255;
    for (size_t t = 0; t < a->n_tokens; t++)
        for (int is_v = 0; is_v < 2; is_v++) {
            const float *const x = is_v ? a->v + t * a->v_stride : a->k + t * a->k_stride;
            const size_t position = a->first_position + t, slot = position % TOKENS;
            char *const page = (char *)a->pages[position / TOKENS] + a->page_offset_bytes;
            const float greatest = greatest_of(x, a->head_width), scale = greatest / ATTEND_V_MAX;
            memcpy(page + (is_v ? l.v_scale : l.k_scale) + slot * sizeof scale, &scale, sizeof scale);
            for (size_t b = 0; b < l.n_blocks; b++) {
                uint8_t codes[ATTEND_BLOCK] = {0}, *const out = (uint8_t *)page + (is_v ? l.v : 0);
                struct kv_block block = {0, 0};
                if (!isnan(greatest))
                    block = round_block(x + b * ATTEND_BLOCK, a->head_width - b * ATTEND_BLOCK, scale, most, codes);
                const size_t at = is_v ? l.v_block + (slot * l.n_blocks + b) * sizeof block
                                       : l.k_block + (b * TOKENS + slot) * sizeof block;
                memcpy(page + at, &block, sizeof block);
                const size_t half = ATTEND_BLOCK / 2;
                if (is_v && !q4)
                    memcpy(out + slot * l.w32 + b * ATTEND_BLOCK, codes, sizeof codes);
                for (size_t i = 0; i < half && is_v && q4; i++)
                    out[(slot * l.n_blocks + b) * half + i] = (uint8_t)(codes[i] | codes[i + half] << 4);
                for (size_t i = 0; i < half && !is_v; i++) {
                    const size_t pair = (b * half + i) * TOKENS + slot;
                    if (q4)
                        out[pair] = (uint8_t)(codes[2 * i] | codes[2 * i + 1] << 4);
                    else
                        memcpy(out + 2 * pair, codes + 2 * i, 2);
                }
            }
        }
}

/* offset + step · code for a vector of code pairs. Modulo 2^16: in slots that nothing was written to, anything stands.
 */
static inline vi integers(vi pairs, vi offsets, vi steps)
{
    typedef uint16_t words __attribute__((vector_size(sizeof(vi))));
    return (vi)((words)pairs * (words)steps + (words)offsets);
}

/* [W32/2][64] pairs of codes to [W32/2][64][2]. */
TEG_INLINE void expand_k(const enum teg_kv_type type, const struct attend_layout *l, const char *page, int16_t *out)
{
    const uint8_t *const codes = (const uint8_t *)page;
    for (size_t b = 0; b < l->n_blocks; b++)
        for (size_t key = 0; key < TOKENS; key += VL) {
            vi block;
            memcpy(&block, page + l->k_block + (b * TOKENS + key) * sizeof(struct kv_block), sizeof block);
            const vi offsets = (block & 0xffff) | (block << 16), high = (block >> 16) & 0xffff;
            const vi steps = high | (high << 16);
            for (size_t i = 0; i < ATTEND_BLOCK / 2; i++) {
                const size_t pair = (b * ATTEND_BLOCK / 2 + i) * TOKENS + key;
                vi q;
                if (type == TEG_KV_Q4) {
                    const vi c = v_codes(codes + pair);
                    q = (c & 15) | (c >> 4) << 16;
                } else {
                    q = v_code_pairs(codes + 2 * pair);
                }
                q = integers(q, offsets, steps);
                memcpy(out + 2 * pair, &q, sizeof q);
            }
        }
}

/* [64][W32] codes to [32][W32][2]. */
TEG_INLINE void expand_v(const enum teg_kv_type type, const struct attend_layout *l, const char *page, int16_t *out)
{
    const uint8_t *const codes = (const uint8_t *)page + l->v;
    const size_t half = ATTEND_BLOCK / 2, row = type == TEG_KV_Q4 ? l->w32 / 2 : l->w32;
    for (size_t t = 0; t < TOKENS; t += 2)
        for (size_t b = 0; b < l->n_blocks; b++) {
            struct kv_block first, second;
            memcpy(&first, page + l->v_block + (t * l->n_blocks + b) * sizeof first, sizeof first);
            memcpy(&second, page + l->v_block + ((t + 1) * l->n_blocks + b) * sizeof second, sizeof second);
            const vi zero = {0};
            const vi offsets = zero + ((first.offset & 0xffff) | (int32_t)((uint32_t)second.offset << 16));
            const vi steps = zero + ((first.step & 0xffff) | (int32_t)((uint32_t)second.step << 16));
            int16_t *const to = out + (t / 2 * l->w32 + b * ATTEND_BLOCK) * 2;
            if (type == TEG_KV_Q4) {
                const uint8_t *const from = codes + t * row + b * half;
                for (size_t i = 0; i < half; i += VL) {
                    const vi c0 = v_codes(from + i), c1 = v_codes(from + row + i);
                    const vi low = integers((c0 & 15) | (c1 & 15) << 16, offsets, steps);
                    const vi high = integers((c0 >> 4) | (c1 >> 4) << 16, offsets, steps);
                    memcpy(to + 2 * i, &low, sizeof low);
                    memcpy(to + 2 * (i + half), &high, sizeof high);
                }
                continue;
            }
            const uint8_t *const from = codes + t * row + b * ATTEND_BLOCK;
            for (size_t i = 0; i < ATTEND_BLOCK; i += VL) {
                const vi q = integers(v_codes(from + i) | v_codes(from + row + i) << 16, offsets, steps);
                memcpy(to + 2 * i, &q, sizeof q);
            }
        }
}
