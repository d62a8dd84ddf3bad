/* tests/kernel/test_kernels_attention.c: kv_append and attention: against the double-precision definition, and the same
 * bits for a row whatever stands beside it: other rows, later keys, NaN in memory that was never written. */
#include "kernel_test.h"

struct kind {
    const char *name;
    enum teg_dtype dtype;
};

static const struct kind kinds[] = {{"f32", TEG_DTYPE_F32}, {"f16", TEG_DTYPE_F16}, {"bf16", TEG_DTYPE_BF16}};

static void append(const struct teg_kernels *k, enum teg_dtype dtype, const struct teg_kv_append_args *a)
{
    if (dtype == TEG_DTYPE_F32)
        k->kv_append_f32(a);
    else if (dtype == TEG_DTYPE_F16)
        k->kv_append_f16(a);
    else
        k->kv_append_bf16(a);
}

static void attend(const struct teg_kernels *k, enum teg_dtype dtype, const struct teg_attention_args *a)
{
    if (dtype == TEG_DTYPE_F32)
        k->attention_f32(a);
    else if (dtype == TEG_DTYPE_F16)
        k->attention_f16(a);
    else
        k->attention_bf16(a);
}

static float rounded(enum teg_dtype dtype, float x)
{
    if (dtype == TEG_DTYPE_F16)
        return teg_f16_to_f32(teg_f32_to_f16(x));
    return dtype == TEG_DTYPE_BF16 ? teg_bf16_to_f32(teg_f32_to_bf16(x)) : x;
}

struct problem {
    enum teg_dtype dtype;
    size_t n_keys, width, group, window;
    bool sinks;
    float scale, softcap;
    /* made by make_problem */
    size_t n_pages, offset;
    float *k, *v; /* [n_keys, width] */
    float *q;     /* [n_keys, group * width]: a query for every position */
    float *sink;  /* [group] */
    void **pages; /* NaN where nothing was appended */
    float *scratch;
};

static size_t element_bytes(enum teg_dtype dtype)
{
    return dtype == TEG_DTYPE_F32 ? 4 : 2;
}

static void make_problem(struct problem *p, enum edge edge)
{
    const size_t tile_bytes = 2 * TEG_TILE_TOKENS * p->width * element_bytes(p->dtype);
    p->n_pages = (p->n_keys + TEG_TILE_TOKENS - 1) / TEG_TILE_TOKENS;
    p->offset = 12;
    p->k = guarded_floats(p->n_keys * p->width, edge);
    p->v = guarded_floats(p->n_keys * p->width, edge);
    p->q = guarded_floats(p->n_keys * p->group * p->width, edge);
    p->sink = guarded_floats(p->group, edge);
    p->pages = guarded(p->n_pages * sizeof *p->pages, edge);
    for (size_t i = 0; i < p->n_pages; i++)
        p->pages[i] = (char *)guarded(tile_bytes, edge) - p->offset;
    p->scratch = guarded_scratch(teg_attention_scratch_floats(p->width));
    fill_random(p->k, p->n_keys * p->width);
    fill_random(p->v, p->n_keys * p->width);
    fill_random(p->q, p->n_keys * p->group * p->width);
    fill_random(p->sink, p->group);
}

static void append_range(const struct teg_kernels *k, const struct problem *p, size_t from, size_t to)
{
    const struct teg_kv_append_args a = {.k = p->k + from * p->width,
                                         .v = p->v + from * p->width,
                                         .k_stride = p->width,
                                         .v_stride = p->width,
                                         .pages = p->pages,
                                         .page_offset_bytes = p->offset,
                                         .first_position = from,
                                         .n_tokens = to - from,
                                         .head_width = p->width};
    append(k, p->dtype, &a);
}

static void attend_range(const struct teg_kernels *k, const struct problem *p, size_t from, size_t to, float *out)
{
    const size_t stride = p->group * p->width;
    const struct teg_attention_args a = {.q = p->q + from * stride,
                                         .q_stride = stride,
                                         .out = out + from * stride,
                                         .out_stride = stride,
                                         .pages = (const void *const *)p->pages,
                                         .page_offset_bytes = p->offset,
                                         .first_position = from,
                                         .n_tokens = to - from,
                                         .head_width = p->width,
                                         .group = p->group,
                                         .window = p->window,
                                         .scale = p->scale,
                                         .softcap = p->softcap,
                                         .sinks = p->sinks ? p->sink : NULL,
                                         .scratch = p->scratch};
    attend(k, p->dtype, &a);
}

/* ---- kv_append ---- */

static float tile_value(const struct problem *p, size_t key, size_t c, bool is_v)
{
    const char *const tile = (const char *)p->pages[key / TEG_TILE_TOKENS] + p->offset;
    const size_t slot = key % TEG_TILE_TOKENS;
    const size_t i = is_v ? TEG_TILE_TOKENS * p->width + slot * p->width + c : c * TEG_TILE_TOKENS + slot;
    float value;
    uint16_t half;
    if (p->dtype == TEG_DTYPE_F32) {
        memcpy(&value, tile + 4 * i, 4);
        return value;
    }
    memcpy(&half, tile + 2 * i, 2);
    return p->dtype == TEG_DTYPE_F16 ? teg_f16_to_f32(half) : teg_bf16_to_f32(half);
}

static void test_append(const char *isa, const struct teg_kernels *k)
{
    static const size_t widths[] = {1, 7, 32, 40, 64, 72, 131, 256};
    for (size_t kind = 0; kind < 3; kind++) {
        bool right = true;
        for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
            struct problem p = {.dtype = kinds[kind].dtype, .n_keys = 150, .width = widths[i], .group = 1};
            make_problem(&p, (enum edge)(i % 2));
            p.k[3] = 1e-6f, p.k[4] = 65519.0f, p.k[5] = -INFINITY, p.v[1] = NAN, p.v[2] = 1e30f;
            append_range(k, &p, 0, 1);
            append_range(k, &p, 1, 63);
            append_range(k, &p, 63, 130);
            append_range(k, &p, 130, 149);
            for (size_t key = 0; key < 149; key++) {
                for (size_t c = 0; c < p.width; c++) {
                    right &= same_bits(tile_value(&p, key, c, false), rounded(p.dtype, p.k[key * p.width + c]));
                    right &= same_bits(tile_value(&p, key, c, true), rounded(p.dtype, p.v[key * p.width + c]));
                }
            }
            for (size_t c = 0; c < p.width; c++) /* untouched */
                right &= isnan(tile_value(&p, 149, c, false)) && isnan(tile_value(&p, 149, c, true));
            release_all();
        }
        tap_ok(right, "%s kv_append_%s", isa, kinds[kind].name);
    }
}

/* ---- attention ---- */

/* The definition, in double. Returns the worst error of the row over its bound. */
static double check_row(const struct problem *p, size_t position, size_t member, const float *out)
{
    const size_t first = p->window && position + 1 > p->window ? position + 1 - p->window : 0;
    const float *const q = p->q + (position * p->group + member) * p->width;
    double *const weight = malloc((p->n_keys + 1) * sizeof *weight);
    double max = p->sinks ? (double)p->sink[member] : -INFINITY, spread = 1;
    for (size_t key = first; key <= position; key++) {
        double score = 0, magnitude = 0;
        for (size_t c = 0; c < p->width; c++) {
            const double product = (double)q[c] * (double)rounded(p->dtype, p->k[key * p->width + c]);
            score += product;
            magnitude += fabs(product);
        }
        score *= (double)p->scale;
        if (p->softcap > 0)
            score = (double)p->softcap * tanh(score / (double)p->softcap);
        weight[key] = score;
        max = fmax(max, score);
        spread = fmax(spread, magnitude * fabs((double)p->scale));
    }
    double sum = p->sinks ? exp((double)p->sink[member] - max) : 0;
    for (size_t key = first; key <= position; key++)
        sum += weight[key] = exp(weight[key] - max);
    struct worst worst = {0};
    for (size_t c = 0; c < p->width; c++) {
        double value = 0, magnitude = 0;
        for (size_t key = first; key <= position; key++) {
            const double v = (double)rounded(p->dtype, p->v[key * p->width + c]);
            value += weight[key] / sum * v;
            magnitude += weight[key] / sum * fabs(v);
        }
        const double n = (double)(p->width) * spread + (double)(position + 1 - first) + 8;
        worst_add(&worst, (double)out[c], value, 4 * n * EPS * magnitude);
    }
    free(weight);
    return worst.ratio;
}

/* Appends and attends in chunks of the given size, as prefill does; memory behind each chunk is still NaN. */
static void run_chunks(const struct teg_kernels *k, const struct problem *p, size_t chunk, float *out)
{
    for (size_t from = 0; from < p->n_keys; from += chunk) {
        const size_t to = from + chunk < p->n_keys ? from + chunk : p->n_keys;
        append_range(k, p, from, to);
        for (size_t t = from; t < to;) { /* as many rows as the scratch has */
            const size_t most = TEG_ATTENTION_ROWS / p->group ? TEG_ATTENTION_ROWS / p->group : 1;
            const size_t end = t + most < to ? t + most : to;
            attend_range(k, p, t, end, out);
            t = end;
        }
    }
}

static void check_problem(const struct teg_kernels *k, struct problem p, enum edge edge, double *ratio, bool *same)
{
    make_problem(&p, edge);
    const size_t n = p.n_keys * p.group * p.width;
    float *const out = guarded_floats(n, edge), *const again = guarded_floats(n, edge);
    run_chunks(k, &p, p.n_keys, out);
    for (size_t t = 0; t<p.n_keys; t += p.n_keys> 100 ? 7 : 1)
        for (size_t g = 0; g < p.group; g++)
            *ratio = fmax(*ratio, check_row(&p, t, g, out + (t * p.group + g) * p.width));
    static const size_t chunks[] = {1, 5, 33, 64};
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        for (size_t page = 0; page < p.n_pages; page++)
            memset((char *)p.pages[page] + p.offset, 0xff, 2 * TEG_TILE_TOKENS * p.width * element_bytes(p.dtype));
        memset(again, 0, n * sizeof *again);
        run_chunks(k, &p, chunks[i], again);
        *same &= all_same_bits(out, again, n);
    }
    release_all();
}

static void test_attention(const char *isa, const struct teg_kernels *k)
{
    static const struct problem problems[] = {
        {.n_keys = 1, .width = 64, .group = 1, .scale = 0.125f},
        {.n_keys = 63, .width = 32, .group = 3, .scale = 0.2f},
        {.n_keys = 64, .width = 40, .group = 2, .scale = 0.15f, .sinks = true},
        {.n_keys = 65, .width = 72, .group = 4, .scale = 0.12f, .softcap = 5},
        {.n_keys = 131, .width = 64, .group = 5, .scale = 0.125f, .window = 64},
        {.n_keys = 200, .width = 80, .group = 1, .scale = 0.1f, .window = 3, .sinks = true},
        {.n_keys = 200, .width = 128, .group = 1, .scale = 0.09f, .window = 65, .softcap = 20},
        {.n_keys = 150, .width = 256, .group = 2, .scale = 0.0625f, .window = 1},
        {.n_keys = 140, .width = 37, .group = 7, .scale = -0.2f},
        {.n_keys = 70, .width = 264, .group = 64, .scale = 0.06f},
        {.n_keys = 321, .width = 64, .group = 3, .scale = 1.0f, .window = 200},
    };
    for (size_t kind = 0; kind < 3; kind++) {
        double ratio = 0;
        bool same = true;
        for (size_t i = 0; i < sizeof problems / sizeof problems[0]; i++) {
            struct problem p = problems[i];
            p.dtype = kinds[kind].dtype;
            double here = 0;
            bool here_same = true;
            check_problem(k, p, (enum edge)(i % 2), &here, &here_same);
            if (here > 1 || !here_same)
                tap_note("problem %zu: %.3f of the bound, %s", i, here, here_same ? "same bits" : "other bits");
            ratio = fmax(ratio, here);
            same &= here_same;
        }
        tap_ok(ratio <= 1, "%s attention_%s within the bound (%.3f of it)", isa, kinds[kind].name, ratio);
        tap_ok(same, "%s attention_%s same bits for any chunk and any memory behind it", isa, kinds[kind].name);
    }
}

/* Keys of later tokens may even be NaN or infinite themselves: earlier rows do not change. */
static void test_later_keys(const char *isa, const struct teg_kernels *k)
{
    for (size_t kind = 0; kind < 3; kind++) {
        struct problem p = {
            .dtype = kinds[kind].dtype, .n_keys = 90, .width = 48, .group = 2, .scale = 0.15f, .window = 20};
        make_problem(&p, EDGE_END);
        const size_t row = p.group * p.width, n = p.n_keys * row;
        float *const out = guarded_floats(n, EDGE_END), *const again = guarded_floats(n, EDGE_END);
        append_range(k, &p, 0, p.n_keys);
        for (size_t t = 0; t < p.n_keys; t += 30)
            attend_range(k, &p, t, t + 30, out);
        for (size_t c = 0; c < p.width; c++) {
            p.k[50 * p.width + c] = NAN;
            p.v[50 * p.width + c] = c % 2 ? NAN : INFINITY;
        }
        append_range(k, &p, 50, 51);
        for (size_t t = 0; t < p.n_keys; t += 30)
            attend_range(k, &p, t, t + 30, again);
        bool right = all_same_bits(out, again, 50 * row) && all_same_bits(out + 70 * row, again + 70 * row, 20 * row);
        for (size_t i = 50 * row; i < 70 * row; i++)
            right &= isnan(again[i]);
        tap_ok(right, "%s attention_%s a NaN key reaches exactly the rows that see it", isa, kinds[kind].name);
        release_all();
    }
}

static void test_extremes(const char *isa, const struct teg_kernels *k)
{
    struct problem p = {.dtype = TEG_DTYPE_F32, .n_keys = 130, .width = 64, .group = 1, .scale = 1.0f};
    make_problem(&p, EDGE_END);
    float *const out = guarded_floats(p.n_keys * p.width, EDGE_END);
    for (size_t i = 0; i < p.n_keys * p.width; i++)
        p.q[i] = i % p.width == 0 ? 1.0f : 0.0f; /* the score is the key's first component */
    for (size_t key = 0; key < p.n_keys; key++)
        p.k[key * p.width] = key == 100 ? 1e4f : key < 70 ? -1e4f : 50.0f;
    append_range(k, &p, 0, p.n_keys);
    for (size_t t = 0; t < p.n_keys; t += 26)
        attend_range(k, &p, t, t + 26, out);
    bool right = all_same_bits(out + 100 * p.width, p.v + 100 * p.width, p.width);
    right &= all_same_bits(out + 129 * p.width, p.v + 100 * p.width, p.width);
    right &= all_same_bits(out + 70 * p.width, p.v + 70 * p.width, p.width);
    tap_ok(right, "%s attention_f32 one dominant key gives its value exactly", isa);

    for (size_t key = 0; key < p.n_keys; key++) /* a whole tile of scores -inf, then ordinary ones */
        p.k[key * p.width] = key < 70 ? -INFINITY : 1.0f;
    for (size_t i = 0; i < p.n_keys * p.width; i++)
        p.q[i] = i % p.width == 0 ? 1.0f : 0.0f;
    append_range(k, &p, 0, p.n_keys);
    attend_range(k, &p, 66, 130, out);
    right = isnan(out[66 * p.width]); /* 0 / 0 */
    right &= all_same_bits(out + 70 * p.width, p.v + 70 * p.width, p.width);
    tap_ok(right, "%s attention_f32 scores of -inf weigh nothing", isa);
    release_all();
}

int main(void)
{
    for_each_isa(test_append);
    for_each_isa(test_attention);
    for_each_isa(test_later_keys);
    for_each_isa(test_extremes);
    return tap_done();
}
