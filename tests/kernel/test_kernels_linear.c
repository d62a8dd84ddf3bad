/* tests/kernel/test_kernels_linear.c: decode_row and linear_f32: every element type, shapes around the tiles,
 * worst-case data, guard pages, and the same bits however the work is cut. */
#include "kernel_test.h"

/* Offsets of f16 scale fields in a block, -1: none. Random bytes there would be infinities and NaN too often. */
static const int scale_fields[TEG_DTYPE_COUNT][2] = {
    [TEG_DTYPE_F32] = {-1, -1},   [TEG_DTYPE_F16] = {0, -1},    [TEG_DTYPE_BF16] = {-1, -1},
    [TEG_DTYPE_F64] = {-1, -1},   [TEG_DTYPE_I8] = {-1, -1},    [TEG_DTYPE_U8] = {-1, -1},
    [TEG_DTYPE_I16] = {-1, -1},   [TEG_DTYPE_I32] = {-1, -1},   [TEG_DTYPE_I64] = {-1, -1},
    [TEG_DTYPE_Q4_0] = {0, -1},   [TEG_DTYPE_Q4_1] = {0, 2},    [TEG_DTYPE_Q5_0] = {0, -1},
    [TEG_DTYPE_Q5_1] = {0, 2},    [TEG_DTYPE_Q8_0] = {0, -1},   [TEG_DTYPE_Q2_K] = {80, 82},
    [TEG_DTYPE_Q3_K] = {108, -1}, [TEG_DTYPE_Q4_K] = {0, 2},    [TEG_DTYPE_Q5_K] = {0, 2},
    [TEG_DTYPE_Q6_K] = {208, -1}, [TEG_DTYPE_IQ4_NL] = {0, -1}, [TEG_DTYPE_IQ4_XS] = {0, -1},
    [TEG_DTYPE_MXFP4] = {-1, -1},
};

static void fill_bytes(unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)random_u32();
}

/* Random weights of ordinary size. */
static void fill_weights(enum teg_dtype dtype, unsigned char *w, size_t n_elements)
{
    const struct teg_dtype_info *const info = teg_dtype_info(dtype);
    for (size_t i = 0; i < n_elements; i += info->block_elements, w += info->block_bytes) {
        fill_bytes(w, info->block_bytes);
        const float f = random_float();
        const double wide = (double)f;
        const uint16_t b = teg_f32_to_bf16(f);
        if (dtype == TEG_DTYPE_F32)
            memcpy(w, &f, 4);
        else if (dtype == TEG_DTYPE_F64)
            memcpy(w, &wide, 8);
        else if (dtype == TEG_DTYPE_BF16)
            memcpy(w, &b, 2);
        else if (dtype == TEG_DTYPE_MXFP4)
            w[0] = (unsigned char)(120 + random_u32() % 16);
        for (int j = 0; j < 2; j++) {
            const uint16_t h = teg_f32_to_f16(random_float() * (dtype == TEG_DTYPE_F16 ? 1.0f : 0.02f));
            if (scale_fields[dtype][j] >= 0)
                memcpy(w + scale_fields[dtype][j], &h, 2);
        }
    }
}

/* ---- decode_row ---- */

static bool decode_agrees(const struct teg_kernels *k, enum teg_dtype dtype, size_t n, enum edge edge, int fill)
{
    size_t bytes;
    if (!teg_dtype_row_bytes(dtype, n, &bytes))
        return false;
    unsigned char *const src = guarded(bytes, edge);
    float *const found = guarded_floats(n, edge), *const expected = guarded_floats(n, edge);
    if (fill < 0)
        fill_bytes(src, bytes);
    else
        memset(src, fill, bytes);
    k->decode_row(dtype, src, found, n);
    teg_dtype_decode(dtype, src, expected, n);
    const bool same = all_same_bits(found, expected, n);
    release_all();
    return same;
}

static void test_decode(const char *isa, const struct teg_kernels *k)
{
    static const int fills[] = {-1, -1, -1, -1, -1, -1, -1, -1, 0x00, 0xff, 0x80, 0x7f, 0x7c};
    for (int d = 0; d < TEG_DTYPE_COUNT; d++) {
        const enum teg_dtype dtype = (enum teg_dtype)d;
        const size_t block = teg_dtype_info(dtype)->block_elements;
        bool same = true;
        for (size_t i = 0; i < sizeof fills / sizeof fills[0]; i++)
            for (size_t n = 0; n < 40; n = n * 2 + 1)
                for (int edge = 0; edge < 2; edge++)
                    same &= decode_agrees(k, dtype, n * block, (enum edge)edge, fills[i]);
        tap_ok(same, "%s decode_row %s is exact", isa, teg_dtype_info(dtype)->name);
    }
}

/* ---- linear_f32 ---- */

struct problem {
    size_t t, n, k, stride_pad;
    enum teg_dtype dtype;
    float *x, *bias, *residual, *y, *scratch;
    void *w;
    struct teg_linear_args args;
};

static void make_problem(struct problem *p, enum edge edge, size_t misalign)
{
    size_t row_bytes = 0;
    teg_dtype_row_bytes(p->dtype, p->k, &row_bytes);
    const size_t xs = p->k + p->stride_pad, ys = p->n + p->stride_pad;
    /* the last row has no padding behind it */
    p->x = guarded_floats(p->t ? (p->t - 1) * xs + p->k : 0, edge);
    p->y = guarded_floats(p->t ? (p->t - 1) * ys + p->n : 0, edge);
    p->residual = guarded_floats(p->t ? (p->t - 1) * ys + p->n : 0, edge);
    p->bias = guarded_floats(p->n, edge);
    p->w = (char *)guarded(p->n * row_bytes + misalign, edge) + misalign;
    p->scratch = guarded_scratch(teg_linear_scratch_floats(p->k));
    for (size_t t = 0; t < p->t; t++) {
        fill_random(p->x + t * xs, p->k);
        fill_random(p->residual + t * ys, p->n);
    }
    fill_random(p->bias, p->n);
    for (size_t n = 0; n < p->n; n++)
        fill_weights(p->dtype, (unsigned char *)p->w + n * row_bytes, p->k);
    p->args = (struct teg_linear_args){.x = p->x,
                                       .x_stride = xs,
                                       .w = p->w,
                                       .w_dtype = p->dtype,
                                       .w_row_bytes = row_bytes,
                                       .bias = p->bias,
                                       .residual = p->residual,
                                       .y = p->y,
                                       .y_stride = ys,
                                       .n_tokens = p->t,
                                       .k = p->k,
                                       .n0 = 0,
                                       .n1 = p->n,
                                       .scratch = p->scratch};
}

static double check_against_double(const struct problem *p)
{
    struct worst worst = {0};
    const struct teg_linear_args *const a = &p->args;
    float *const w = malloc((p->k + 1) * sizeof *w);
    for (size_t n = 0; n < p->n; n++) {
        teg_dtype_decode(p->dtype, (char *)p->w + n * a->w_row_bytes, w, p->k);
        for (size_t t = 0; t < p->t; t++) {
            double sum = 0, magnitude = 0;
            for (size_t i = 0; i < p->k; i++) {
                const double product = (double)p->x[t * a->x_stride + i] * (double)w[i];
                sum += product;
                magnitude += fabs(product);
            }
            const double bias = a->bias ? (double)a->bias[n] : 0;
            const double residual = a->residual ? (double)p->residual[t * a->y_stride + n] : 0;
            const double bound = (2 * (double)p->k * magnitude + 2 * (magnitude + fabs(bias) + fabs(residual))) * EPS;
            worst_add(&worst, (double)a->y[t * a->y_stride + n], sum + bias + residual, bound + 1e-40);
        }
    }
    free(w);
    return worst.ratio;
}

/* Token by token, and in slices of columns, must give what `whole` holds. */
static bool cuts_agree(const struct teg_kernels *k, const struct problem *p, const float *whole, size_t whole_floats)
{
    bool same = true;
    struct teg_linear_args a = p->args;
    memset(p->y, 0xff, whole_floats * sizeof *p->y);
    for (size_t t = 0; t < p->t;) {
        a.n_tokens = 1 + t % 3 < p->t - t ? 1 + t % 3 : p->t - t;
        a.x = p->x + t * a.x_stride;
        a.y = p->y + t * a.y_stride;
        a.residual = p->args.residual ? p->args.residual + t * a.y_stride : NULL;
        k->linear_f32(&a);
        t += a.n_tokens;
    }
    same &= all_same_bits(p->y, whole, whole_floats);
    a = p->args;
    memset(p->y, 0xff, whole_floats * sizeof *p->y);
    for (size_t n = 0; n < p->n;) {
        a.n0 = n;
        a.n1 = n + 1 + n % 5 < p->n ? n + 1 + n % 5 : p->n;
        k->linear_f32(&a);
        n = a.n1;
    }
    return same && all_same_bits(p->y, whole, whole_floats);
}

/* Returns error / bound; *same tells whether all cuts agree. */
static double run_problem(const struct teg_kernels *k, struct problem p, enum edge edge, size_t misalign, bool *same)
{
    make_problem(&p, edge, misalign);
    if (misalign == 0 && p.k % 2 == 0)
        p.args.bias = NULL;
    if (misalign == 0 && p.n % 2 == 0)
        p.args.residual = NULL;
    k->linear_f32(&p.args);
    const double ratio = check_against_double(&p);
    const size_t n_floats = p.t ? (p.t - 1) * p.args.y_stride + p.n : 0;
    float *const whole = malloc(n_floats * sizeof *whole + 1);
    if (n_floats)
        memcpy(whole, p.y, n_floats * sizeof *whole);
    *same &= cuts_agree(k, &p, whole, n_floats);
    free(whole);
    release_all();
    return ratio;
}

static void test_linear_shapes(const char *isa, const struct teg_kernels *k)
{
    static const size_t shapes[][3] = {
        {0, 5, 32},   {1, 0, 32},    {1, 1, 0},     {1, 1, 1},    {2, 3, 15},    {3, 4, 16},   {4, 5, 17},
        {5, 16, 31},  {7, 17, 64},   {1, 33, 1024}, {4, 6, 1025}, {2, 7, 2048},  {6, 3, 2049}, {13, 15, 127},
        {16, 31, 96}, {64, 16, 256}, {65, 37, 288}, {9, 1, 576},  {33, 65, 512},
    };
    static const enum teg_dtype plain[] = {TEG_DTYPE_F32, TEG_DTYPE_F16, TEG_DTYPE_BF16};
    for (size_t d = 0; d < 3; d++) {
        double ratio = 0;
        bool same = true;
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
            const struct problem p = {.t = shapes[i][0], .n = shapes[i][1], .k = shapes[i][2], .dtype = plain[d]};
            struct problem padded = p;
            padded.stride_pad = 5;
            ratio = fmax(ratio, run_problem(k, p, EDGE_END, 0, &same));
            ratio = fmax(ratio, run_problem(k, p, EDGE_START, 1, &same));
            ratio = fmax(ratio, run_problem(k, padded, EDGE_END, 1, &same));
        }
        tap_ok(ratio <= 1, "%s linear_f32 %s within the bound (%.3f of it)", isa, teg_dtype_info(plain[d])->name,
               ratio);
        tap_ok(same, "%s linear_f32 %s same bits for any cut", isa, teg_dtype_info(plain[d])->name);
    }
}

static void test_linear_dtypes(const char *isa, const struct teg_kernels *k)
{
    static const size_t shapes[][3] = {{1, 9, 1}, {3, 18, 5}, {5, 5, 9}, {17, 35, 2}};
    for (int d = 0; d < TEG_DTYPE_COUNT; d++) {
        const enum teg_dtype dtype = (enum teg_dtype)d;
        double ratio = 0;
        bool same = true;
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
            const struct problem p = {.t = shapes[i][0],
                                      .n = shapes[i][1],
                                      .k = shapes[i][2] * teg_dtype_info(dtype)->block_elements,
                                      .dtype = dtype};
            ratio = fmax(ratio, run_problem(k, p, EDGE_END, 0, &same));
            ratio = fmax(ratio, run_problem(k, p, EDGE_START, 1, &same));
        }
        tap_ok(ratio <= 1 && same, "%s linear_f32 %s (%.3f of the bound)", isa, teg_dtype_info(dtype)->name, ratio);
    }
}

/* A NaN or infinity reaches exactly the outputs whose sum it is in. */
static void test_linear_special(const char *isa, const struct teg_kernels *k)
{
    struct problem p = {.t = 6, .n = 19, .k = 67, .dtype = TEG_DTYPE_F32};
    make_problem(&p, EDGE_END, 0);
    p.x[2 * p.args.x_stride + 66] = NAN;
    p.x[3 * p.args.x_stride + 1] = INFINITY;
    p.x[4 * p.args.x_stride] = 1e38f;
    p.x[5 * p.args.x_stride + 3] = 1e-42f;
    float *const w = p.w;
    w[18 * p.k + 5] = -INFINITY;
    k->linear_f32(&p.args);
    bool right = true;
    for (size_t t = 0; t < p.t; t++) {
        for (size_t n = 0; n < p.n; n++) {
            const float y = p.y[t * p.args.y_stride + n];
            if (t == 2)
                right &= isnan(y);
            else if (t == 3 || n == 18)
                right &= !isfinite(y);
            else
                right &= isfinite(y);
        }
    }
    tap_ok(right, "%s linear_f32 NaN and infinity stay where they belong", isa);
    p.args.residual = p.y; /* in place */
    float expected = p.y[7];
    p.args.n_tokens = 1;
    p.args.bias = NULL;
    struct teg_linear_args alone = p.args;
    float y[19];
    alone.y = y;
    alone.residual = NULL;
    k->linear_f32(&alone);
    expected = y[7] + expected;
    k->linear_f32(&p.args);
    tap_ok(same_bits(p.y[7], expected), "%s linear_f32 residual may be the output", isa);
    release_all();
}

int main(void)
{
    for_each_isa(test_decode);
    for_each_isa(test_linear_shapes);
    for_each_isa(test_linear_dtypes);
    for_each_isa(test_linear_special);
    return tap_done();
}
