/* bench/bench_kernels.c: how fast each kernel is on one core, per instruction set. Not a test: prints, never fails.
 *
 *   bench_kernels [linear_f32|decode_row|attention|rows|gemm [ISA]]
 *
 * Operands are as a model of 1 billion parameters has them. Each figure is the best of several runs, because other
 * programs on the machine only ever slow it down. GMAC/s: billions of multiply-adds; GB/s: bytes of weights or cache.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernel/attend.h"
#include "kernel/peak.h"
#include "kernel/qgemm.h"

/* Time of this thread, so that what other programs take does not count. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Best seconds of one call, over about 0.2 seconds and at least 3 calls. */
#define BEST(seconds, call)                                                                                            \
    do {                                                                                                               \
        const double end_ = now() + 0.2;                                                                               \
        (seconds) = 1e9;                                                                                               \
        for (int i_ = 0; i_ < 3 || now() < end_; i_++) {                                                               \
            const double start_ = now();                                                                               \
            call;                                                                                                      \
            const double took_ = now() - start_;                                                                       \
            (seconds) = took_ < (seconds) ? took_ : (seconds);                                                         \
        }                                                                                                              \
    } while (0)

static void *aligned(size_t bytes)
{
    void *p = NULL;
    if (posix_memalign(&p, 64, bytes + 64) != 0)
        abort();
    memset(p, 0x11, bytes); /* small numbers in every type */
    return p;
}

static float *floats(size_t n)
{
    float *const p = aligned(n * sizeof *p);
    for (size_t i = 0; i < n; i++)
        p[i] = (float)(i * 2654435761u % 1000) * 0.002f - 1.0f;
    return p;
}

static void bench_linear(const char *isa, const struct teg_kernels *kernels, enum teg_dtype dtype, size_t t, size_t n,
                         size_t k)
{
    size_t row_bytes = 0;
    teg_dtype_row_bytes(dtype, k, &row_bytes);
    float *const x = floats(t * k), *const y = floats(t * n), *const scratch = floats(teg_linear_scratch_floats(k));
    void *const w = aligned(n * row_bytes);
    const struct teg_linear_args args = {.x = x,
                                         .x_stride = k,
                                         .w = w,
                                         .w_dtype = dtype,
                                         .w_row_bytes = row_bytes,
                                         .y = y,
                                         .y_stride = n,
                                         .n_tokens = t,
                                         .k = k,
                                         .n1 = n,
                                         .scratch = scratch};
    double seconds;
    BEST(seconds, kernels->linear_f32(&args));
    printf("%-8s linear_f32 %-6s T=%-4zu N=%-5zu K=%-5zu %7.2f GMAC/s %7.2f GB/s\n", isa, teg_dtype_info(dtype)->name,
           t, n, k, (double)(t * n * k) / seconds * 1e-9, (double)(n * row_bytes) / seconds * 1e-9);
    free(x), free(y), free(scratch), free(w);
}

/* Seconds of so many multiply-adds by a peak loop, timed between the runs of a kernel: on a shared machine only their
 * ratio means something. 0: no such instruction. */
static double road_seconds(const struct teg_cpu *cpu, enum teg_road road, double macs)
{
    const struct teg_peak *const peak = teg_peak_select(cpu, road);
    const double start = now();
    if (peak)
        peak->run((size_t)(macs / peak->macs_per_step));
    return peak ? now() - start : 0;
}

static double peak_seconds(const struct teg_cpu *cpu, double macs)
{
    return cpu->has[TEG_ISA_AVX512VNNI] ? road_seconds(cpu, TEG_ROAD_INT8, macs) : 0;
}

/* Reading n bytes once, four streams: what a product of one row can reach. */
static double read_seconds(const void *p, size_t n_bytes)
{
    const uint64_t *const words = p;
    const size_t n = n_bytes / sizeof *words / 4;
    uint64_t sum = 0;
    const double start = now();
    for (size_t i = 0; i < n; i++)
        sum += words[i] + words[n + i] + words[2 * n + i] + words[3 * n + i];
    __asm__ volatile("" ::"r"(sum));
    return now() - start;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

enum { RATIOS = 25 };

static void bench_gemm(const struct teg_cpu *cpu, const struct teg_qgemm *gemm, enum teg_dtype dtype, size_t t,
                       size_t n, size_t k)
{
    size_t row_bytes = 0;
    teg_dtype_row_bytes(dtype, k, &row_bytes);
    const size_t x_bytes = teg_qgemm_row_bytes(k), packed = teg_qgemm_packed_bytes(dtype, n, k);
    float *const x = floats(t * k), *const y = floats(t * n), *const scratch = floats(teg_qgemm_scratch_floats());
    void *const w = aligned(packed), *const q = aligned(t * x_bytes);
    gemm->quantize(x, k, q, x_bytes, 1, t, k);
    const struct teg_qgemm_args args = {.x = q,
                                        .x_stride_bytes = x_bytes,
                                        .terms = 1,
                                        .w = w,
                                        .w_dtype = dtype,
                                        .y = y,
                                        .y_stride = n,
                                        .n_tokens = t,
                                        .k = k,
                                        .n1 = n,
                                        .scratch = scratch};
    const double macs = (double)(t * n * k);
    double ratios[RATIOS], best = 1e9;
    for (int i = 0; i < RATIOS; i++) {
        const double peak = t > 1 ? peak_seconds(cpu, macs / 2) * 2 : read_seconds(w, packed);
        const double start = now();
        gemm->run(&args);
        const double seconds = now() - start;
        ratios[i] = peak / seconds;
        best = seconds < best ? seconds : best;
    }
    qsort(ratios, RATIOS, sizeof *ratios, by_value);
    printf("%-18s %-6s T=%-4zu N=%-5zu K=%-5zu %7.2f GMAC/s %6.2f GB/s", gemm->name, teg_dtype_info(dtype)->name, t, n,
           k, macs / best * 1e-9, (double)packed / best * 1e-9);
    if (ratios[RATIOS - 1] > 0)
        printf("  median %.0f %% of %s", 100 * ratios[RATIOS / 2], t > 1 ? "VPDPBUSD" : "reading the weights");
    printf("\n");
    free(x), free(y), free(scratch), free(w), free(q);
}

static void bench_quantize(const struct teg_qgemm *gemm)
{
    const size_t t = 64, k = 2048;
    float *const x = floats(t * k);
    void *const q = aligned(t * teg_qgemm_row_bytes(k));
    double seconds;
    BEST(seconds, gemm->quantize(x, k, q, teg_qgemm_row_bytes(k), 1, t, k));
    printf("%-18s quantize %7.2f G values/s\n", gemm->name, (double)(t * k) / seconds * 1e-9);
    free(x), free(q);
}

static void bench_gemms(const struct teg_cpu *cpu, const struct teg_qgemm *gemm)
{
    static const enum teg_dtype types[] = {TEG_DTYPE_Q4_0, TEG_DTYPE_Q4_1, TEG_DTYPE_Q4_K,  TEG_DTYPE_Q5_0,
                                           TEG_DTYPE_Q6_K, TEG_DTYPE_Q8_0, TEG_DTYPE_IQ4_XS};
    bench_quantize(gemm);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        bench_gemm(cpu, gemm, types[i], 256, 512, 2048);
        bench_gemm(cpu, gemm, types[i], 1, 8192, 8192);
    }
    bench_gemm(cpu, gemm, TEG_DTYPE_Q4_1, 256, 576, 576);
    bench_gemm(cpu, gemm, TEG_DTYPE_Q4_0, 256, 128, 8192);
    bench_gemm(cpu, gemm, TEG_DTYPE_Q4_0, 8, 2048, 2048);
}

static void bench_decode(const char *isa, const struct teg_kernels *kernels, enum teg_dtype dtype)
{
    const size_t n = 4096;
    size_t row_bytes = 0;
    teg_dtype_row_bytes(dtype, n, &row_bytes);
    void *const w = aligned(row_bytes);
    float *const y = floats(n);
    double seconds;
    BEST(seconds, kernels->decode_row(dtype, w, y, n));
    printf("%-8s decode_row %-6s %7.2f G values/s %7.2f GB/s\n", isa, teg_dtype_info(dtype)->name,
           (double)n / seconds * 1e-9, (double)row_bytes / seconds * 1e-9);
    free(w), free(y);
}

/* The fp32 peak of this core, of 512 bits or of 256. */
static double fma_seconds(const struct teg_cpu *cpu, bool wide, double macs)
{
    struct teg_cpu narrow = *cpu;
    narrow.has[TEG_ISA_AVX512] = wide && cpu->has[TEG_ISA_AVX512];
    return road_seconds(&narrow, TEG_ROAD_FP32, macs);
}

/* Queries behind `past` keys; pages are filled by the record itself. The share is of the fp32 peak of the record's own
 * vectors (512 bits where the instruction set has them). */
static void bench_attention(const struct teg_cpu *cpu, bool wide, const struct teg_attend *record,
                            enum teg_kv_type type, size_t tokens, size_t group, size_t width, size_t past)
{
    const size_t n_keys = past + tokens, n_pages = n_keys / TEG_TILE_TOKENS + 1;
    const size_t page_bytes = teg_kv_page_bytes(type, width);
    void **const pages = malloc(n_pages * sizeof *pages);
    for (size_t i = 0; i < n_pages; i++)
        pages[i] = aligned(page_bytes);
    float *const k = floats(n_keys * width), *const v = floats(n_keys * width + 1);
    const struct teg_kv_append_args append = {.k = k,
                                              .v = v + 1,
                                              .k_stride = width,
                                              .v_stride = width,
                                              .pages = pages,
                                              .n_tokens = n_keys,
                                              .head_width = width};
    const double append_start = now();
    record->append(&append);
    const double append_seconds = now() - append_start;
    float *const q = floats(tokens * group * width), *const out = floats(tokens * group * width);
    float *const scratch = floats(teg_attend_scratch_floats(width));
    const struct teg_attention_args args = {.q = q,
                                            .q_stride = group * width,
                                            .out = out,
                                            .out_stride = group * width,
                                            .pages = (const void *const *)pages,
                                            .first_position = past,
                                            .n_tokens = tokens,
                                            .head_width = width,
                                            .group = group,
                                            .scale = 0.1f,
                                            .scratch = scratch};
    const double macs = 2.0 * (double)(tokens * group * width) * ((double)past + (double)(tokens + 1) / 2);
    double ratios[RATIOS], best = 1e9, best_peak = 1e9;
    for (int i = 0; i < RATIOS; i++) {
        const double peak = fma_seconds(cpu, wide, macs / 4) * 4;
        const double start = now();
        record->run(&args);
        const double seconds = now() - start;
        ratios[i] = peak / seconds;
        best = seconds < best ? seconds : best;
        best_peak = peak < best_peak ? peak : best_peak;
    }
    qsort(ratios, RATIOS, sizeof *ratios, by_value);
    printf("%-22s T=%-3zu group=%zu K=%-3zu past=%-5zu %7.1f GFLOP/s %6.2f GB/s of pages, append %5.0f ns a token",
           record->name, tokens, group, width, past, 2 * macs / best * 1e-9,
           (double)(n_pages * page_bytes) / best * 1e-9, append_seconds / (double)n_keys * 1e9);
    if (ratios[RATIOS - 1] > 0)
        printf("  best %.0f, median %.0f %% of FMA", 100 * best_peak / best, 100 * ratios[RATIOS / 2]);
    printf("\n");
    for (size_t i = 0; i < n_pages; i++)
        free(pages[i]);
    free(pages), free(q), free(out), free(scratch), free(k), free(v);
}

static void bench_attentions(const struct teg_cpu *cpu, enum teg_isa isa, const struct teg_attend *record,
                             enum teg_kv_type type)
{
    static const size_t widths[] = {64, 80, 96, 128, 256};
    const bool wide = isa == TEG_ISA_AVX512 || isa == TEG_ISA_AVX512VNNI;
    if (!record->run)
        return;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        bench_attention(cpu, wide, record, type, 16, 4, widths[i], 8192);
    bench_attention(cpu, wide, record, type, 16, 4, 64, 256);
    bench_attention(cpu, wide, record, type, 21, 3, 64, 2048);
    bench_attention(cpu, wide, record, type, 1, 1, 64, 4096);
    bench_attention(cpu, wide, record, type, 1, 4, 64, 4096);
}

static void bench_rows(const char *isa, const struct teg_kernels *k)
{
    const size_t rows = 64, n = 2048, pairs = 32;
    float *const x = floats(rows * n), *const w = floats(rows * n), *const y = floats(rows * n);
    float *const cosines = floats(rows * pairs), *const sines = floats(rows * pairs);
    for (size_t i = 0; i < rows * pairs; i++)
        cosines[i] = 0.6f, sines[i] = 0.8f; /* a rotation: the rows keep their size from run to run */
    double seconds;
#define REPORT(name, call)                                                                                             \
    BEST(seconds, call);                                                                                               \
    printf("%-8s %-20s %7.2f G values/s\n", isa, name, (double)(rows * n) / seconds * 1e-9)
    REPORT("rms_norm_f32", k->rms_norm_f32(x, n, w, 0, 1e-6f, y, n, rows, n));
    REPORT("rope_half_f32", k->rope_half_f32(x, n, cosines, sines, rows, n / 64, 64, pairs));
    REPORT("rope_interleaved_f32", k->rope_interleaved_f32(x, n, cosines, sines, rows, n / 64, 64, pairs));
    for (size_t i = 0; i < rows * n; i++)
        x[i] = w[i];
    REPORT("silu_mul_f32", k->silu_mul_f32(x, n, w, n, y, n, rows, n));
    REPORT("gelu_mul_f32", k->gelu_mul_f32(x, n, w, n, y, n, rows, n));
    REPORT("add_f32", k->add_f32(x, n, w, n, y, n, rows, n));
    REPORT("softcap_f32", k->softcap_f32(x, n, 30.0f, rows, n));
    void *page[1] = {aligned(2 * 64 * 64 * 4)};
    const struct teg_kv_append_args append = {
        .k = w, .v = w, .k_stride = 64, .v_stride = 64, .pages = page, .n_tokens = 64, .head_width = 64};
#undef REPORT
    BEST(seconds, k->kv_append_f16(&append));
    printf("%-8s %-20s %7.2f G values/s\n", isa, "kv_append_f16", 2 * 64 * 64 / seconds * 1e-9);
    free(page[0]), free(x), free(w), free(y), free(cosines), free(sines);
}

static bool wanted(const char *prefix, const char *slot)
{
    return strncmp(slot, prefix, strlen(prefix)) == 0;
}

static void bench_isa(const char *isa, const struct teg_kernels *k, const char *prefix)
{
    if (wanted(prefix, "linear_f32")) {
        bench_linear(isa, k, TEG_DTYPE_Q4_1, 256, 576, 576);
        bench_linear(isa, k, TEG_DTYPE_Q4_1, 256, 512, 2048);
        bench_linear(isa, k, TEG_DTYPE_Q4_1, 256, 128, 8192);
        bench_linear(isa, k, TEG_DTYPE_F32, 256, 512, 2048);
        bench_linear(isa, k, TEG_DTYPE_Q4_K, 8, 2048, 2048);
        bench_linear(isa, k, TEG_DTYPE_Q4_1, 1, 576, 576);
        bench_linear(isa, k, TEG_DTYPE_Q4_K, 1, 8192, 2048);
        bench_linear(isa, k, TEG_DTYPE_Q6_K, 1, 8192, 2048);
        bench_linear(isa, k, TEG_DTYPE_Q8_0, 1, 8192, 2048);
        bench_linear(isa, k, TEG_DTYPE_F16, 1, 8192, 2048);
        bench_linear(isa, k, TEG_DTYPE_F32, 1, 8192, 2048);
    }
    if (wanted(prefix, "decode_row"))
        for (int d = 0; d < TEG_DTYPE_COUNT; d++)
            bench_decode(isa, k, (enum teg_dtype)d);
    if (wanted(prefix, "rows"))
        bench_rows(isa, k);
}

int main(int argc, char **argv)
{
    struct teg_cpu cpu;
    teg_cpu_detect(&cpu);
    printf("%s\n", cpu.name);
    for (int isa = 0; isa < TEG_ISA_COUNT; isa++) {
        const char *const name = teg_isa_name((enum teg_isa)isa);
        struct teg_kernels kernels;
        if (argc > 2 && strcmp(argv[2], name) != 0)
            continue;
        if (teg_kernels_select_isa(&cpu, (enum teg_isa)isa, &kernels))
            bench_isa(name, &kernels, argc > 1 ? argv[1] : "");
        const char *const prefix = argc > 1 ? argv[1] : "";
        if (wanted(prefix, "attention") && teg_kernels_select_isa(&cpu, (enum teg_isa)isa, &kernels)) {
            const struct teg_attend_row *const row = teg_attend_row(&cpu, (enum teg_isa)isa);
            struct teg_attend_table table;
            teg_attend_select(&cpu, &kernels, &table);
            for (int type = TEG_KV_F32; type <= TEG_KV_BF16; type++)
                bench_attentions(&cpu, (enum teg_isa)isa, &table.of[type], (enum teg_kv_type)type);
            for (int type = TEG_KV_I16; row && type < TEG_KV_TYPES; type++)
                bench_attentions(&cpu, (enum teg_isa)isa, &row->of[type], (enum teg_kv_type)type);
        }
        const struct teg_qgemm *const gemm = teg_qgemm_select_isa(&cpu, (enum teg_isa)isa);
        if (gemm && wanted(argc > 1 ? argv[1] : "", "gemm"))
            bench_gemms(&cpu, gemm);
    }
    return 0;
}
