/* tests/kernel/test_kernels_qgemm.c: the integer GEMM: every record x type x shapes around its tiles, worst-case data,
 * guard pages, and the same bits however the work is cut and, where the arithmetic is the same, on every instruction
 * set.
 *
 * The expected value is computed from the file's form of the weights and the quantized activations: exact integer sums
 * of each group, scales as dtype/ decodes them, added in double precision. Packing is checked by itself through it: a
 * code or scale in a wrong place gives a wrong sum. */
#include "kernel/qgemm.h"
#include "kernel/qgemm_layout.h"
#include "kernel_test.h"

/* Offsets of f16 scale fields in a block, -1: none. Random bytes there would be infinities and NaN too often. */
static const int scale_fields[TEG_DTYPE_COUNT][2] = {
    [TEG_DTYPE_Q4_0] = {0, -1},   [TEG_DTYPE_Q4_1] = {0, 2},    [TEG_DTYPE_Q5_0] = {0, -1},
    [TEG_DTYPE_Q5_1] = {0, 2},    [TEG_DTYPE_Q8_0] = {0, -1},   [TEG_DTYPE_Q2_K] = {80, 82},
    [TEG_DTYPE_Q3_K] = {108, -1}, [TEG_DTYPE_Q4_K] = {0, 2},    [TEG_DTYPE_Q5_K] = {0, 2},
    [TEG_DTYPE_Q6_K] = {208, -1}, [TEG_DTYPE_IQ4_NL] = {0, -1}, [TEG_DTYPE_IQ4_XS] = {0, -1},
    [TEG_DTYPE_MXFP4] = {-1, -1},
};

enum fill { FILL_RANDOM, FILL_ZEROS, FILL_ONES, FILL_DENORMAL, FILL_COUNT };

static bool accepted(enum teg_dtype dtype)
{
    return teg_qgemm_accepts(dtype, 256);
}

static void fill_weights(enum teg_dtype dtype, unsigned char *w, size_t n_elements, enum fill fill)
{
    const struct teg_dtype_info *const info = teg_dtype_info(dtype);
    for (size_t i = 0; i < n_elements; i += info->block_elements, w += info->block_bytes) {
        for (size_t b = 0; b < info->block_bytes; b++)
            w[b] = fill == FILL_ZEROS ? 0 : fill == FILL_ONES ? 0xff : (unsigned char)random_u32();
        for (int j = 0; j < 2; j++) {
            const float f = fill == FILL_DENORMAL ? 3e-7f : random_float() * 0.02f;
            const uint16_t h = teg_f32_to_f16(f);
            if (scale_fields[dtype][j] >= 0)
                memcpy(w + scale_fields[dtype][j], &h, 2);
        }
        if (dtype == TEG_DTYPE_MXFP4)
            w[0] = fill == FILL_DENORMAL ? (unsigned char)(random_u32() % 3) : (unsigned char)(120 + random_u32() % 16);
    }
}

enum shape_of_x { X_NORMAL, X_OUTLIER, X_EXTREMES, X_ZERO, X_TINY, X_COUNT };

static void fill_x(float *x, size_t n, enum shape_of_x shape)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = random_float();
        if (shape == X_EXTREMES) /* every u is -128 or 127, signs alike within a group */
            x[i] = i / 32 % 2 ? 1 : i % 64 < 16 ? 1 : -1;
        else if (shape == X_ZERO)
            x[i] = 0;
        else if (shape == X_TINY)
            x[i] *= i % 64 < 32 ? 1e-42f : 1e-30f;
    }
    if (shape == X_OUTLIER && n > 3)
        x[3] = 30000;
}

struct problem {
    size_t t, n, k, pad;
    enum teg_dtype dtype;
    uint32_t terms;
    enum fill fill;
    enum shape_of_x shape;
    bool bias, residual;
    float *x, *y;
    unsigned char *w, *q;
    void *packed;
    size_t w_row_bytes, y_floats;
    struct teg_qgemm_args args;
};

static void make_problem(struct problem *p, const struct teg_qgemm *gemm, enum edge edge)
{
    (void)teg_dtype_row_bytes(p->dtype, p->k, &p->w_row_bytes);
    const size_t row = teg_qgemm_row_bytes(p->k), x_stride = p->k + p->pad, y_stride = p->n + p->pad;
    const size_t q_stride = row * p->terms + 16 * p->pad;
    p->x = guarded_floats(p->t ? (p->t - 1) * x_stride + p->k : 0, edge);
    p->w = guarded(p->n * p->w_row_bytes, edge);
    p->q = guarded(p->t ? (p->t - 1) * q_stride + row * p->terms : 0, edge);
    p->packed = guarded(teg_qgemm_packed_bytes(p->dtype, p->n, p->k), EDGE_END);
    p->y_floats = p->t ? (p->t - 1) * y_stride + p->n : 0;
    p->y = guarded_floats(p->y_floats, edge);
    float *const bias = guarded_floats(p->n, edge), *const residual = guarded_floats(p->y_floats, edge);
    fill_random(bias, p->n);
    fill_random(residual, p->y_floats);
    for (size_t t = 0; t < p->t; t++)
        fill_x(p->x + t * x_stride, p->k, p->shape);
    for (size_t n = 0; n < p->n; n++)
        fill_weights(p->dtype, p->w + n * p->w_row_bytes, p->k, p->fill);
    for (size_t n = 0; n < p->n; n += 32)
        teg_qgemm_pack(p->dtype, p->w, p->w_row_bytes, n, n + 32 < p->n ? n + 32 : p->n, p->k, p->packed);
    gemm->quantize(p->x, x_stride, p->q, q_stride, p->terms, p->t, p->k);
    p->args = (struct teg_qgemm_args){.x = p->q,
                                      .x_stride_bytes = q_stride,
                                      .terms = p->terms,
                                      .w = p->packed,
                                      .w_dtype = p->dtype,
                                      .bias = p->bias ? bias : NULL,
                                      .residual = p->residual ? residual : NULL,
                                      .y = p->y,
                                      .y_stride = y_stride,
                                      .n_tokens = p->t,
                                      .k = p->k,
                                      .n1 = p->n,
                                      .scratch = guarded_scratch(teg_qgemm_scratch_floats())};
}

static double value_of(const struct gemm_group *g, size_t i)
{
    const int z = -(int16_t)(g->pair & 0xffff);
    return (double)g->scale * (double)(g->u[i] - z);
}

/* What codes and minimum of a block may come to apart: |d| · largest factor · largest code, |m| · largest factor. Their
 * sums are added apart, so they count even where they cancel. */
static double parts_of(enum teg_dtype dtype, const unsigned char *block)
{
    static const double factors[TEG_DTYPE_COUNT][2] = {[TEG_DTYPE_Q4_1] = {15, 1},
                                                       [TEG_DTYPE_Q5_1] = {31, 1},
                                                       [TEG_DTYPE_Q2_K] = {45, 15},
                                                       [TEG_DTYPE_Q4_K] = {945, 63},
                                                       [TEG_DTYPE_Q5_K] = {1953, 63}};
    double sum = 0;
    for (int j = 0; j < 2 && factors[dtype][0] > 0; j++) {
        const unsigned char *const p = block + scale_fields[dtype][j];
        sum += fabs((double)teg_f16_to_f32((uint16_t)(p[0] | p[1] << 8))) * factors[dtype][j];
    }
    return sum;
}

/* Largest error over the bound of qgemm.h. */
static double check_sums(const struct problem *p)
{
    struct worst worst = {0};
    const struct teg_qgemm_args *const a = &p->args;
    const struct teg_dtype_info *const info = teg_dtype_info(p->dtype);
    const size_t n_groups = p->k / 32;
    float *const w = malloc(p->k * sizeof *w);
    for (size_t n = 0; n < p->n; n++) {
        teg_dtype_decode(p->dtype, p->w + n * p->w_row_bytes, w, p->k);
        for (size_t t = 0; t < p->t; t++) {
            double sum = 0, magnitude = 0;
            for (size_t term = 0; term < p->terms; term++) {
                const struct gemm_group *const row =
                    (const void *)(p->q + t * a->x_stride_bytes + term * teg_qgemm_row_bytes(p->k));
                for (size_t i = 0; i < p->k; i++) {
                    const double product = value_of(&row[i / 32], i % 32) * (double)w[i];
                    sum += product;
                    magnitude += fabs(product);
                }
                for (size_t g = 0; g < n_groups; g++)
                    magnitude += fabs((double)row[g].sum) *
                                 parts_of(p->dtype, p->w + n * p->w_row_bytes +
                                                        g * 32 / info->block_elements * info->block_bytes);
            }
            if (a->bias)
                sum += (double)a->bias[n], magnitude += fabs((double)a->bias[n]);
            if (a->residual)
                sum += (double)a->residual[t * a->y_stride + n],
                    magnitude += fabs((double)a->residual[t * a->y_stride + n]);
            worst_add(&worst, (double)a->y[t * a->y_stride + n], sum,
                      (6 * (double)n_groups + 8) * EPS * magnitude + 1e-38);
        }
    }
    free(w);
    return worst.ratio;
}

/* Token by token, three by three, and panel by panel must give what is in `whole`. */
static bool cuts_agree(const struct teg_qgemm *gemm, const struct problem *p, const float *whole)
{
    struct teg_qgemm_args a = p->args;
    memset(p->y, 0xff, p->y_floats * sizeof *p->y);
    for (size_t t = 0; t < p->t; t += a.n_tokens) {
        a.n_tokens = 1 + t % 3 < p->t - t ? 1 + t % 3 : p->t - t;
        a.x = p->q + t * a.x_stride_bytes;
        a.y = p->y + t * a.y_stride;
        a.residual = p->args.residual ? p->args.residual + t * a.y_stride : NULL;
        for (a.n0 = 0; a.n0 < p->n; a.n0 = a.n1) {
            a.n1 = a.n0 + 32 < p->n ? a.n0 + 32 : p->n;
            gemm->run(&a);
        }
    }
    bool same = true;
    for (size_t t = 0; t < p->t; t++)
        same &= all_same_bits(p->y + t * a.y_stride, whole + t * a.y_stride, p->n);
    return same;
}

struct verdict {
    double ratio;
    bool cuts, isas;
};

static const struct teg_qgemm *reference_of(const struct teg_qgemm *gemm, const struct teg_cpu *cpu)
{
    /* fused records agree with one another, the base with itself */
    const struct teg_qgemm *const avx2 = teg_qgemm_select_isa(cpu, TEG_ISA_AVX2);
    return gemm->isa == TEG_ISA_BASE ? gemm : avx2 ? avx2 : teg_qgemm_select_isa(cpu, TEG_ISA_BASE);
}

static void run_problem(const struct teg_cpu *cpu, const struct teg_qgemm *gemm, struct problem p, enum edge edge,
                        struct verdict *v)
{
    make_problem(&p, gemm, edge);
    gemm->run(&p.args);
    v->ratio = fmax(v->ratio, check_sums(&p));
    float *const whole = malloc(p.y_floats * sizeof *whole + 1);
    memcpy(whole, p.y, p.y_floats * sizeof *whole);
    v->cuts &= cuts_agree(gemm, &p, whole);
    const struct teg_qgemm *const other = reference_of(gemm, cpu);
    if (other) {
        other->run(&p.args);
        for (size_t t = 0; t < p.t; t++)
            v->isas &= all_same_bits(p.y + t * p.args.y_stride, whole + t * p.args.y_stride, p.n);
    }
    free(whole);
    release_all();
}

static void test_types(const struct teg_cpu *cpu, const struct teg_qgemm *gemm)
{
    static const size_t shapes[][3] = {
        {1, 32, 1}, {1, 1, 2},  {2, 33, 1},  {3, 31, 3},  {4, 64, 2},   {5, 65, 1},
        {6, 96, 5}, {7, 40, 4}, {13, 97, 3}, {64, 32, 1}, {261, 33, 2},
    };
    for (int d = 0; d < TEG_DTYPE_COUNT; d++) {
        const enum teg_dtype dtype = (enum teg_dtype)d;
        struct verdict v = {0, true, true};
        if (!accepted(dtype))
            continue;
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
            for (int fill = 0; fill < FILL_COUNT; fill++)
                for (int shape = 0; shape < X_COUNT; shape++) {
                    if ((fill && shape) || ((fill || shape) && shapes[i][0] > 13))
                        continue;
                    const struct problem p = {.t = shapes[i][0],
                                              .n = shapes[i][1],
                                              .k = shapes[i][2] * teg_dtype_info(dtype)->block_elements,
                                              .pad = i % 2 ? 5 : 0,
                                              .dtype = dtype,
                                              .terms = 1 + (uint32_t)(i % 3 == 2),
                                              .fill = (enum fill)fill,
                                              .shape = (enum shape_of_x)shape,
                                              .bias = i % 2,
                                              .residual = i % 4 > 1};
                    run_problem(cpu, gemm, p, i % 2 ? EDGE_START : EDGE_END, &v);
                }
        const char *const name = teg_dtype_info(dtype)->name;
        tap_ok(v.ratio <= 1, "%s %s within the bound (%.3f of it)", gemm->name, name, v.ratio);
        tap_ok(v.cuts, "%s %s same bits for any cut", gemm->name, name);
        tap_ok(v.isas, "%s %s same bits as other instruction sets", gemm->name, name);
    }
}

/* Quantized rows: the values within half a step, the same bytes on every instruction set, NaN and infinity poison. */
static void test_quantize(const struct teg_cpu *cpu, const struct teg_qgemm *gemm)
{
    const size_t k = 32 * 7;
    bool close = true, same = true, poison = true, rest = true;
    for (int shape = 0; shape < X_COUNT; shape++) {
        float *const x = guarded_floats(k, EDGE_END);
        const size_t bytes = 2 * teg_qgemm_row_bytes(k);
        struct gemm_group *const q = guarded(bytes, EDGE_END), *const other = guarded(bytes, EDGE_START);
        fill_x(x, k, (enum shape_of_x)shape);
        gemm->quantize(x, k, q, bytes, 2, 1, k);
        teg_qgemm_select_isa(cpu, TEG_ISA_BASE)->quantize(x, k, other, bytes, 2, 1, k);
        same &= memcmp(q, other, bytes) == 0;
        for (size_t i = 0; i < k; i++) {
            const double first = value_of(&q[i / 32], i % 32), both = first + value_of(&q[7 + i / 32], i % 32);
            const double step = (double)q[i / 32].scale;
            close &= fabs(first - (double)x[i]) <= fmax(0.5001 * step, 255 * 0x1p-110);
            rest &= fabs(both - (double)x[i]) <= fmax(step / 250, 255 * 0x1p-110);
        }
        x[shape * 7] = shape % 2 ? NAN : -INFINITY;
        gemm->quantize(x, k, q, bytes, 1, 1, k);
        for (size_t g = 0; g < 7; g++)
            poison &= isnan(q[g].scale) && isnan(q[g].sum);
        release_all();
    }
    tap_ok(close, "%s quantize: half a step", gemm->name);
    tap_ok(rest, "%s quantize: a second row holds the rest", gemm->name);
    tap_ok(same, "%s quantize: same bytes as the reference", gemm->name);
    tap_ok(poison, "%s quantize: NaN and infinity make the row NaN", gemm->name);
}

static void test_special(const struct teg_qgemm *gemm)
{
    struct problem p = {.t = 4, .n = 40, .k = 64, .dtype = TEG_DTYPE_Q4_1, .terms = 1, .residual = true};
    make_problem(&p, gemm, EDGE_END);
    p.x[p.k + 5] = NAN;
    p.x[2 * p.k + 40] = INFINITY;
    gemm->quantize(p.x, p.k, p.q, p.args.x_stride_bytes, 1, p.t, p.k);
    gemm->run(&p.args);
    bool right = true;
    for (size_t t = 0; t < p.t; t++)
        for (size_t n = 0; n < p.n; n++)
            right &= isnan(p.y[t * p.args.y_stride + n]) == (t == 1 || t == 2);
    tap_ok(right, "%s NaN and infinity make NaN of their row only", gemm->name);
    float alone[40];
    struct teg_qgemm_args a = p.args;
    a.n_tokens = 1;
    a.residual = NULL;
    a.y = alone;
    gemm->run(&a);
    const float expected = alone[7] + p.y[7];
    p.args.residual = p.y;
    p.args.n_tokens = 1;
    gemm->run(&p.args);
    tap_ok(same_bits(p.y[7], expected), "%s residual may be the output", gemm->name);
    p.args.n_tokens = 0;
    gemm->run(&p.args);
    p.args.n_tokens = 1;
    p.args.n1 = 0;
    gemm->run(&p.args);
    tap_ok(same_bits(p.y[7], expected), "%s no tokens or no columns: nothing", gemm->name);
    release_all();
}

/* act(gate) · up, quantized where it is made, is what the three kernels make one after the other, for any cut. */
static void test_glu(const struct teg_cpu *cpu, const struct teg_qgemm *gemm)
{
    static const size_t tokens[] = {1, 2, 6, 7, 40, 261};
    struct teg_kernels kernels;
    teg_kernels_select(cpu, &kernels);
    bool same = true, cuts = true, poison = true;
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        const size_t t = tokens[i], n = i % 2 ? 160 : 64, k = 96, row = teg_qgemm_row_bytes(n);
        struct problem up = {.t = t, .n = n, .k = k, .dtype = TEG_DTYPE_Q4_1, .terms = 1}, gate = up;
        gate.dtype = TEG_DTYPE_Q8_0;
        make_problem(&up, gemm, EDGE_END);
        make_problem(&gate, gemm, EDGE_START);
        gate.args.x = up.args.x;
        gemm->run(&up.args);
        gemm->run(&gate.args);
        kernels.silu_mul_f32(gate.y, n, up.y, n, gate.y, n, t, n);
        unsigned char *const expected = guarded(t * row, EDGE_END), *const found = guarded(t * row, EDGE_END);
        gemm->quantize(gate.y, n, expected, row, 1, t, n);
        struct teg_qgemm_args a = up.args;
        a.glu = kernels.silu_mul_f32;
        a.gate = gate.packed;
        a.gate_dtype = gate.dtype;
        a.y = NULL;
        a.y_groups = found;
        a.y_groups_stride_bytes = row;
        gemm->run(&a);
        same &= memcmp(expected, found, t * row) == 0;
        memset(found, 0x55, t * row);
        for (a.n0 = 0; a.n0 < n; a.n0 += 32) {
            a.n1 = a.n0 + 32;
            gemm->run(&a);
        }
        cuts &= memcmp(expected, found, t * row) == 0;
        up.x[5] = NAN;
        gemm->quantize(up.x, k, up.q, up.args.x_stride_bytes, 1, 1, k);
        a.n0 = 0;
        a.n1 = n;
        gemm->run(&a);
        for (size_t g = 0; g < n / 32; g++) {
            struct gemm_group group;
            memcpy(&group, found + g * sizeof group, sizeof group);
            poison &= isnan(group.scale) && isnan(group.sum);
        }
        poison &= memcmp(expected + row, found + row, (t - 1) * row) == 0;
        release_all();
    }
    tap_ok(same, "%s glu: the bytes of product, activation and quantization apart", gemm->name);
    tap_ok(cuts, "%s glu: same bytes for any cut", gemm->name);
    tap_ok(poison, "%s glu: NaN stays in its row", gemm->name);
}

/* A block of Q8_0 as its definition says: the scale is the largest value over 127 as f16, codes to nearest. */
static void put_q8_0(unsigned char *block, const float *x)
{
    float largest = 0;
    for (size_t i = 0; i < 32; i++)
        largest = fmaxf(largest, fabsf(x[i]));
    const uint16_t half = teg_f32_to_f16(largest / 127);
    memcpy(block, &half, sizeof half);
    for (size_t i = 0; i < 32; i++) {
        const float d = teg_f16_to_f32(half);
        block[2 + i] = (unsigned char)(d > 0 ? lrintf(fminf(127, fmaxf(-127, x[i] * (1 / d)))) : 0);
    }
}

/* Rows of floats are packed as the Q8_0 that they would be, whatever their type. */
static void test_rounded(const struct teg_qgemm *gemm)
{
    static const enum teg_dtype types[] = {TEG_DTYPE_F32, TEG_DTYPE_F16, TEG_DTYPE_BF16};
    enum { N = 40, K = 96 };
    for (size_t d = 0; d < 3; d++) {
        struct problem p = {.t = 7, .n = N, .k = K, .dtype = TEG_DTYPE_Q8_0, .terms = 1};
        make_problem(&p, gemm, EDGE_END);
        const size_t item = teg_dtype_info(types[d])->block_bytes;
        unsigned char *const rows = guarded(N * K * item, EDGE_END);
        for (size_t i = 0; i < N * K; i++) {
            const float x = (i / K == 3 ? 1e-9f : i % K == 5 ? 40 : 1) * random_float();
            const uint16_t half = teg_f32_to_f16(x);
            uint32_t bits;
            memcpy(&bits, &x, sizeof bits);
            bits >>= 16;
            memcpy(rows + i * item,
                   types[d] == TEG_DTYPE_F32   ? (const void *)&x
                   : types[d] == TEG_DTYPE_F16 ? (const void *)&half
                                               : &bits,
                   item);
        }
        for (size_t n = 0; n < N; n++)
            for (size_t k = 0; k < K; k += 32) {
                float x[32];
                teg_dtype_decode(types[d], rows + (n * K + k) * item, x, 32);
                put_q8_0(p.w + n * p.w_row_bytes + k / 32 * 34, x);
            }
        teg_qgemm_pack(TEG_DTYPE_Q8_0, p.w, p.w_row_bytes, 0, N, K, p.packed);
        const size_t n_bytes = teg_qgemm_packed_bytes(types[d], N, K);
        unsigned char *const packed = guarded(n_bytes, EDGE_END);
        teg_qgemm_pack(types[d], rows, K * item, 0, N, K, packed);
        tap_ok(n_bytes == teg_qgemm_packed_bytes(TEG_DTYPE_Q8_0, N, K) && memcmp(packed, p.packed, n_bytes) == 0,
               "%s %s packed is Q8_0 packed", gemm->name, teg_dtype_info(types[d])->name);
        gemm->run(&p.args);
        float *const expected = malloc(p.y_floats * sizeof *expected);
        memcpy(expected, p.y, p.y_floats * sizeof *expected);
        p.args.w = packed;
        p.args.w_dtype = types[d];
        gemm->run(&p.args);
        tap_ok(all_same_bits(p.y, expected, p.y_floats), "%s %s runs as Q8_0", gemm->name,
               teg_dtype_info(types[d])->name);
        const float damage[2] = {NAN, -INFINITY};
        bool poison = types[d] == TEG_DTYPE_F32;
        for (size_t i = 0; poison && i < 2; i++) {
            memcpy(rows + (5 * K + 40) * item, &damage[i], item);
            teg_qgemm_pack(types[d], rows, K * item, 0, N, K, packed);
            gemm->run(&p.args);
            for (size_t n = 0; n < N; n++)
                poison &= isnan(p.y[n]) == (n == 5);
        }
        if (types[d] == TEG_DTYPE_F32)
            tap_ok(poison, "%s a weight that is not finite makes its column NaN", gemm->name);
        free(expected);
        release_all();
    }
}

static void test_sizes(void)
{
    tap_ok(!teg_qgemm_accepts(TEG_DTYPE_F32, 256) && !teg_qgemm_accepts(TEG_DTYPE_F16, 256),
           "float weights stay floats");
    tap_ok(teg_qgemm_rounds(TEG_DTYPE_BF16, 96) && !teg_qgemm_rounds(TEG_DTYPE_F16, 40) &&
               !teg_qgemm_rounds(TEG_DTYPE_Q4_0, 32),
           "or are rounded, in whole groups");
    tap_ok(teg_qgemm_accepts(TEG_DTYPE_Q4_0, 32) && !teg_qgemm_accepts(TEG_DTYPE_Q4_K, 32) &&
               !teg_qgemm_accepts(TEG_DTYPE_Q4_0, 0),
           "rows are whole blocks");
    for (int d = 0; d < TEG_DTYPE_COUNT; d++) {
        const enum teg_dtype dtype = (enum teg_dtype)d;
        size_t row;
        if (!accepted(dtype) || !teg_dtype_row_bytes(dtype, 2048, &row))
            continue;
        const double ratio = (double)teg_qgemm_packed_bytes(dtype, 64, 2048) / (64.0 * (double)row);
        tap_ok(ratio <= 1.04, "%s packed takes %.3f of the file's bytes", teg_dtype_info(dtype)->name, ratio);
    }
}

int main(void)
{
    struct teg_cpu cpu;
    teg_cpu_detect(&cpu);
    test_sizes();
    for (int isa = 0; isa < TEG_ISA_COUNT; isa++) {
        const struct teg_qgemm *const gemm = teg_qgemm_select_isa(&cpu, (enum teg_isa)isa);
        if (!gemm)
            continue;
        test_quantize(&cpu, gemm);
        test_special(gemm);
        test_glu(&cpu, gemm);
        test_types(&cpu, gemm);
        test_rounded(gemm);
    }
    return tap_done();
}
