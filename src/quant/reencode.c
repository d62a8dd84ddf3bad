/* quant/reencode.c: GGUF blocks as Core ML blocks with the same numbers.
 *
 * Every block type is, in groups of 16 or 32 values, scale · code + minimum. Core ML says scale · (code - offset), so
 * without a minimum nothing changes (Q4_0, Q8_0: the same bits), and with one the offset is -minimum / scale in fp16:
 * off by at most one part in 2048 of itself, which is what rounding the values to fp16 would do to them. Scales that
 * are products (K types) are rounded to fp16, to the same effect. Codes that Core ML has no integer type for (five or
 * six bits, tables) become indices into a table of int8, which constexpr_lut_to_dense turns into the data.
 *
 * Codes are found by dividing the decoded values, not by taking the blocks apart again: only dtype/ knows where the
 * codes of a type lie, only scales and minimums are read here.
 *
 * Not taken: palettes of 16 halves for each block: exact as well, at 12 bits a weight. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "quant/impl.h"

enum { MOST_BLOCK = 256, MOST_GROUPS = 16 };

struct group {
    float scale, minimum;
};

static float half_at(const uint8_t *p)
{
    return teg_f16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

/* ---- scales and minimums of a block; layouts: dtype/dtype_decode.c ---- */

static void groups_scale(const uint8_t *b, struct group *g)
{
    g[0] = (struct group){half_at(b), 0};
}

static void groups_scale_min(const uint8_t *b, struct group *g)
{
    g[0] = (struct group){half_at(b), half_at(b + 2)};
}

static void groups_mxfp4(const uint8_t *b, struct group *g)
{
    g[0] = (struct group){(float)ldexp(1, b[0] - 128), 0};
}

static void groups_q2_k(const uint8_t *b, struct group *g)
{
    for (size_t j = 0; j < 16; j++)
        g[j] = (struct group){half_at(b + 80) * (float)(b[j] & 15), -half_at(b + 82) * (float)(b[j] >> 4)};
}

static void groups_q3_k(const uint8_t *b, struct group *g)
{
    const uint8_t *const s = b + 96;
    for (size_t j = 0; j < 16; j++) {
        const int low = j < 8 ? s[j] & 15 : s[j - 8] >> 4;
        g[j] = (struct group){half_at(b + 108) * (float)((low | (s[8 + j % 4] >> (j / 4 * 2) & 3) << 4) - 32), 0};
    }
}

/* Q4_K, Q5_K */
static void groups_six_bits(const uint8_t *b, struct group *g)
{
    const float d = half_at(b), dmin = half_at(b + 2);
    const uint8_t *const s = b + 4;
    for (size_t j = 0; j < 8; j++) {
        const int scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
        const int minimum = j < 4 ? s[j + 4] & 63 : (s[j + 4] >> 4) | (s[j] >> 6) << 4;
        g[j] = (struct group){d * (float)scale, -dmin * (float)minimum};
    }
}

static void groups_q6_k(const uint8_t *b, struct group *g)
{
    for (size_t j = 0; j < 16; j++)
        g[j] = (struct group){half_at(b + 208) * (float)(int8_t)b[192 + j], 0};
}

static void groups_iq4_xs(const uint8_t *b, struct group *g)
{
    const uint32_t high = (uint32_t)b[2] | (uint32_t)b[3] << 8;
    for (size_t j = 0; j < 8; j++) {
        const int low = b[4 + j / 2] >> (j % 2 * 4) & 15;
        g[j] = (struct group){half_at(b) * (float)((low | (int)(high >> (2 * j) & 3) << 4) - 32), 0};
    }
}

/* ---- forms ---- */

static const int8_t iq4_table[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
static const int8_t fp4_table[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}; /* doubled */

static const struct form {
    enum teg_dtype dtype;
    uint32_t group;
    uint32_t bits;
    bool has_minimum;
    int shift;           /* codes are stored less this */
    bool has_table;      /* no integer type for them: table entry c is `table`'s, or c - 2^(bits - 1) */
    const int8_t *table; /* NULL: counts up */
    void (*groups)(const uint8_t *block, struct group *groups);
} forms[] = {
    {TEG_DTYPE_Q4_0, 32, 4, false, 0, false, NULL, groups_scale},
    {TEG_DTYPE_Q4_1, 32, 4, true, 8, false, NULL, groups_scale_min},
    {TEG_DTYPE_Q5_0, 32, 6, false, 0, true, NULL, groups_scale},
    {TEG_DTYPE_Q5_1, 32, 6, true, 16, true, NULL, groups_scale_min},
    {TEG_DTYPE_Q8_0, 32, 8, false, 0, false, NULL, groups_scale},
    {TEG_DTYPE_Q2_K, 16, 4, true, 2, false, NULL, groups_q2_k},
    {TEG_DTYPE_Q3_K, 16, 4, false, 0, false, NULL, groups_q3_k},
    {TEG_DTYPE_Q4_K, 32, 4, true, 8, false, NULL, groups_six_bits},
    {TEG_DTYPE_Q5_K, 32, 6, true, 16, true, NULL, groups_six_bits},
    {TEG_DTYPE_Q6_K, 16, 6, false, 0, true, NULL, groups_q6_k},
    {TEG_DTYPE_IQ4_NL, 32, 4, false, 0, true, iq4_table, groups_scale},
    {TEG_DTYPE_IQ4_XS, 32, 4, false, 0, true, iq4_table, groups_iq4_xs},
    {TEG_DTYPE_MXFP4, 32, 4, false, 0, true, fp4_table, groups_mxfp4},
};

static const struct form *find_form(enum teg_dtype dtype)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (forms[i].dtype == dtype)
            return &forms[i];
    return NULL;
}

bool teg_quant_reencode_layout(enum teg_dtype dtype, uint64_t rows, uint64_t columns, struct teg_quantized *layout)
{
    const struct form *const form = find_form(dtype);
    struct teg_quantized q = {.rows = rows, .columns = columns, .group_rows = 1};
    size_t n, n_bytes;
    if (!form || !rows || !columns || columns % teg_dtype_info(dtype)->block_elements || rows > SIZE_MAX ||
        columns > SIZE_MAX || !teg_mul((size_t)rows, (size_t)columns, &n) || !teg_mul(n, 16, &n_bytes))
        return false;
    q.rule = (struct teg_quant_rule){.method = TEG_QUANT_LINEAR,
                                     .bits = form->bits,
                                     .is_signed = true,
                                     .symmetric = !form->has_minimum,
                                     .float_offset = form->has_minimum,
                                     .grain = TEG_QUANT_PER_BLOCK,
                                     .group = form->group,
                                     .vector = 1};
    q.group_columns = form->group;
    q.n_kept = n;
    teg_quant_size_parts(&q);
    if (form->has_table)
        q.parts[TEG_QUANT_LUT].n_bytes = (size_t)1 << form->bits;
    *layout = q;
    return true;
}

bool teg_quant_reencode_is_exact(enum teg_dtype dtype)
{
    const struct form *const form = find_form(dtype);
    return form && !form->has_minimum && teg_dtype_info(dtype)->block_elements == form->group;
}

/* ---- encoding ---- */

struct reencoding {
    const struct form *form;
    uint8_t *parts[TEG_QUANT_PART_COUNT];
    int16_t code_of[256]; /* value + 128 → code, with a table */
};

static void put_half(uint8_t *out, size_t i, float value)
{
    const uint16_t half = teg_f32_to_f16(value);
    out[2 * i] = (uint8_t)half;
    out[2 * i + 1] = (uint8_t)(half >> 8);
}

static void fill_table(struct reencoding *r)
{
    const struct form *const f = r->form;
    for (int i = 0; i < 256; i++)
        r->code_of[i] = -1;
    for (int c = (1 << f->bits) - 1; f->has_table && c >= 0; c--) {
        const int value = f->table ? f->table[c] : c - (1 << (f->bits - 1));
        r->parts[TEG_QUANT_LUT][c] = (uint8_t)value;
        r->code_of[value + 128] = (int16_t)c;
    }
}

/* The code of the value `c` steps from the offset, or -1: the form has none. */
static int code_of(const struct reencoding *r, float c)
{
    const int half = 1 << (r->form->bits - 1);
    const float stored = c - (float)r->form->shift;
    if (!(stored >= -128 && stored <= 127))
        return -1;
    if (r->form->has_table)
        return r->code_of[(int)stored + 128];
    return stored >= (float)-half && stored < (float)half ? (int)stored & (2 * half - 1) : -1;
}

/* What is stored for a group. One whose steps vanish, alone or beside its minimum, is that minimum, code for code. */
struct stored {
    struct group g; /* scale 0: every value is the minimum */
    float scale, offset;
    int constant; /* the code of all values where g.scale is 0 */
};

static struct stored store(const struct reencoding *r, struct group g)
{
    struct stored s = {g, g.scale, 0, 0};
    const bool vanishes = half_round(g.scale) == 0;
    if (r->form->has_minimum && !vanishes && fabsf(g.minimum / g.scale) < 32768) {
        s.offset = -g.minimum / g.scale - (float)r->form->shift;
    } else if (r->form->has_minimum) { /* minimum · (0 - -1) */
        s.constant = r->form->has_table ? r->code_of[128] : 0;
        s.g.scale = 0;
        s.scale = g.minimum != 0 ? g.minimum : 1;
        s.offset = g.minimum != 0 ? -1 : 0;
    } else if (vanishes) { /* a table without a zero has only scale 0 to say zero with */
        s.constant = r->form->has_table ? r->code_of[128] : 0;
        s.g.scale = 0;
        s.scale = s.constant < 0 ? 0 : 1;
        s.constant = s.constant < 0 ? 0 : s.constant;
    }
    return s;
}

/* A group of values that begins at value i; false: it does not fit. */
static bool put_group(struct reencoding *r, struct group given, const float *values, size_t i)
{
    const struct form *const f = r->form;
    const struct stored s = store(r, given);
    uint8_t codes[32];
    if (!(fabsf(s.scale) < 65504))
        return false;
    for (size_t k = 0; k < f->group; k++) {
        const int code = s.g.scale != 0 ? code_of(r, rintf((values[k] - s.g.minimum) / s.g.scale)) : s.constant;
        if (code < 0)
            return false;
        codes[k] = (uint8_t)code;
    }
    put_half(r->parts[TEG_QUANT_SCALE], i / f->group, s.scale);
    if (f->has_minimum)
        put_half(r->parts[TEG_QUANT_OFFSET], i / f->group, s.offset);
    teg_quant_pack(codes, f->group, f->bits, r->parts[TEG_QUANT_DATA] + i / 8 * f->bits);
    return true;
}

static enum teg_status check_block(const float *values, size_t n, const char *name, uint64_t row, uint64_t column,
                                   struct teg_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(values[i]) < INFINITY))
            FAIL(err, TEG_ERR_FORMAT,
                 "cannot quantize: %s: row %llu, column %llu: expected a finite number, found %g; mend the model", name,
                 (unsigned long long)row, (unsigned long long)(column + i),
                 isnan(values[i]) ? (double)NAN : (double)values[i]); /* the sign of a NaN is the CPU's */
    return TEG_OK;
}

static enum teg_status put_blocks(struct reencoding *r, const uint8_t *block, const struct teg_quantized *q,
                                  const char *name, bool *fits, struct teg_error *err)
{
    const struct teg_dtype_info *const info = teg_dtype_info(r->form->dtype);
    const size_t n = info->block_elements, group = r->form->group;
    float values[MOST_BLOCK];
    struct group groups[MOST_GROUPS];
    for (size_t i = 0; i < q->n_kept; i += n, block += info->block_bytes) {
        teg_dtype_decode(r->form->dtype, block, values, n);
        TRY(check_block(values, n, name, i / q->columns, i % q->columns, err));
        r->form->groups(block, groups);
        for (size_t k = 0; k < n; k += group)
            if (!put_group(r, groups[k / group], values + k, i + k)) {
                *fits = false;
                return TEG_OK;
            }
    }
    *fits = true;
    return TEG_OK;
}

enum teg_status teg_quant_reencode(enum teg_dtype dtype, const void *data, uint64_t rows, uint64_t columns,
                                   const char *name, struct teg_arena *arena, struct teg_quantized *result,
                                   bool *possible, struct teg_error *err)
{
    struct reencoding r = {.form = find_form(dtype)};
    struct teg_quantized q;
    if (!teg_quant_reencode_layout(dtype, rows, columns, &q)) {
        *possible = false;
        return TEG_OK;
    }
    for (uint32_t p = 0; p < TEG_QUANT_PART_COUNT; p++) {
        if (!q.parts[p].n_bytes)
            continue;
        r.parts[p] = teg_arena_alloc(arena, q.parts[p].n_bytes);
        if (!r.parts[p])
            return teg_base_fail_memory(err, "an encoded weight", q.parts[p].n_bytes);
        q.parts[p].bytes = r.parts[p];
    }
    fill_table(&r);
    TRY(put_blocks(&r, data, &q, name, possible, err));
    if (*possible)
        *result = q;
    return TEG_OK;
}
