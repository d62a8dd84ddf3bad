/* kernel/attend.c: which record serves which KV type, and the sizes of pages.
 *
 * Integer rows give the same bits (but for the baseline without FMA), so the choice among them is only about time: by
 * a table where the CPU was measured before, else by running each for a moment. A feature flag would be the wrong
 * guess where wide vectors lower the clock. Which type fast mode stores must not hang on a measurement, because it
 * changes results: it is that of the last row that the CPU can run; rows are measured with it where they have it. */
#include "kernel/attend.h"

#include <time.h>

#include "kernel/attend_layout.h"
#include "kernel/rows.h"
#include "kernel/sizes.h"

static const struct teg_attend_row *const rows[] = {
    &teg_attend_base,
#if defined(__x86_64__)
    &teg_attend_avx2,
    &teg_attend_avxvnni,
    &teg_attend_avx512vnni,
#elif defined(__aarch64__)
    &teg_attend_dotprod,
    &teg_attend_i8mm,
#endif
};

enum { N_ROWS = sizeof rows / sizeof rows[0] };

static const char *const type_names[TEG_KV_TYPES] = {
    [TEG_KV_AUTO] = "auto", [TEG_KV_F32] = "f32", [TEG_KV_F16] = "f16", [TEG_KV_BF16] = "bf16",   [TEG_KV_I16] = "i16",
    [TEG_KV_Q8] = "q8",     [TEG_KV_Q4] = "q4",   [TEG_KV_I8] = "i8",   [TEG_KV_K16V8] = "k16v8",
};

/* CPUs on which the rows were timed by bench_kernels. */
static const struct {
    uint32_t family, model;
    enum teg_isa best;
} known[] = {
    {6, 207, TEG_ISA_AVX512VNNI}, /* Emerald Rapids: VPDPWSSD zmm 2.1 times the products of VFMADDPS */
    {25, 17, TEG_ISA_AVX512VNNI}, /* Zen 4, server: 2.0 times */
};

const char *teg_kv_type_name(enum teg_kv_type type)
{
    return type_names[type];
}

bool teg_kv_ordered(enum teg_kv_type type)
{
    return type == TEG_KV_I8;
}

size_t teg_kv_page_bytes(enum teg_kv_type type, size_t head_width)
{
    const size_t elements = 2 * TEG_TILE_TOKENS * head_width;
    if (type == TEG_KV_F32)
        return elements * sizeof(float);
    return type == TEG_KV_F16 || type == TEG_KV_BF16 ? elements * 2 : attend_layout(type, head_width).n_bytes;
}

size_t teg_attend_scratch_floats(size_t head_width)
{
    const size_t w = attend_round(head_width, ATTEND_BLOCK), n = TEG_ATTENTION_ROWS + 1, tokens = TEG_TILE_TOKENS;
    const size_t slots = n + 15, sums = slots + n * (16 + w), scores = n * (tokens + tokens / 2);
    const size_t queries = n * w / 2, page = tokens * w, turned = n * w; /* page, turned: types have one or the other */
    const size_t integers = 2 * sums + scores + queries + 7 * slots + tokens + w + (page > turned ? page : turned);
    const size_t floats = teg_attention_scratch_floats(head_width);
    return integers > floats ? integers : floats;
}

size_t teg_attend_state_floats(size_t head_width)
{
    return attend_round(head_width, ATTEND_BLOCK) + 32;
}

const struct teg_attend_row *teg_attend_row(const struct teg_cpu *cpu, enum teg_isa isa)
{
    for (size_t i = 0; i < N_ROWS; i++)
        if (rows[i]->isa == isa && cpu->has[isa])
            return rows[i];
    return NULL;
}

/* ---- the choice ---- */

enum { PROBE_WIDTH = 32, PROBE_TILES = 8, PROBE_RUNS = 6 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Best seconds of a block of query rows over a few tiles, all of them the same page. */
static double probe(const struct teg_attend *record)
{
    float q[TEG_ATTENTION_ROWS * PROBE_WIDTH], out[TEG_ATTENTION_ROWS * PROBE_WIDTH];
    float scratch[10 * TEG_ATTENTION_ROWS * PROBE_WIDTH] __attribute__((aligned(64)));
    char page[TEG_TILE_TOKENS * (4 * PROBE_WIDTH + 8)] __attribute__((aligned(64)));
    void *pages[PROBE_TILES];
    for (size_t i = 0; i < sizeof q / sizeof *q; i++)
        q[i] = (float)(i % 29) * 0.07f - 1.0f;
    for (size_t i = 0; i < PROBE_TILES; i++)
        pages[i] = page;
    record->append(&(struct teg_kv_append_args){.k = q,
                                                .v = q,
                                                .k_stride = PROBE_WIDTH,
                                                .v_stride = PROBE_WIDTH,
                                                .pages = pages,
                                                .n_tokens = TEG_TILE_TOKENS,
                                                .head_width = PROBE_WIDTH});
    const struct teg_attention_args args = {.q = q,
                                            .q_stride = PROBE_WIDTH,
                                            .out = out,
                                            .out_stride = PROBE_WIDTH,
                                            .pages = (const void *const *)pages,
                                            .first_position = (PROBE_TILES - 1) * TEG_TILE_TOKENS,
                                            .n_tokens = TEG_ATTENTION_ROWS,
                                            .head_width = PROBE_WIDTH,
                                            .group = 1,
                                            .scale = 0.2f,
                                            .scratch = scratch};
    double best = 1e9;
    for (int i = 0; i < PROBE_RUNS; i++) {
        const double start = now();
        record->run(&args);
        const double took = now() - start;
        best = took < best ? took : best;
    }
    return best;
}

static const struct teg_attend_row *choose(const struct teg_cpu *cpu, enum teg_kv_type *fast,
                                           enum teg_attend_choice *choice)
{
    const struct teg_attend_row *best = rows[0];
    size_t n_better = 0;
    for (size_t i = 1; i < N_ROWS; i++)
        if (cpu->has[rows[i]->isa]) {
            best = rows[i];
            n_better++;
        }
    *choice = TEG_ATTEND_ONLY;
    *fast = best->fast;
    const bool integers = best->of[*fast].run;
    if (n_better < 2)
        return best;
    *choice = TEG_ATTEND_KNOWN_CPU;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].family == cpu->family && known[i].model == cpu->model && cpu->has[known[i].best])
            return teg_attend_row(cpu, known[i].best);
    *choice = TEG_ATTEND_MEASURED;
    double least = 1e9;
    for (size_t i = 1; i < N_ROWS; i++) {
        if (!cpu->has[rows[i]->isa])
            continue;
        const double seconds = probe(&rows[i]->of[integers ? *fast : TEG_KV_I8]);
        if (seconds < least) {
            least = seconds;
            best = rows[i];
        }
    }
    return best;
}

void teg_attend_select(const struct teg_cpu *cpu, const struct teg_kernels *kernels, struct teg_attend_table *table)
{
    const struct teg_attend_row *const row = choose(cpu, &table->fast, &table->choice);
    for (size_t i = 0; i < TEG_KV_TYPES; i++)
        table->of[i] = row->of[i];
    table->of[TEG_KV_F32] = (struct teg_attend){"attention_f32", kernels->kv_append_f32, kernels->attention_f32, NULL};
    table->of[TEG_KV_F16] = (struct teg_attend){"attention_f16", kernels->kv_append_f16, kernels->attention_f16, NULL};
    table->of[TEG_KV_BF16] =
        (struct teg_attend){"attention_bf16", kernels->kv_append_bf16, kernels->attention_bf16, NULL};
    table->isa = row->isa;
}
