/* kernel/qgemm.c: the list of integer GEMM records and the choice among them.
 *
 * The list is in order of rank: the last one that the CPU can run is taken. All records read the same packed weights
 * and the same quantized activations, so the choice can be made, and forced down in tests, without packing again. */
#include "kernel/qgemm_layout.h"
#include "kernel/rows.h"

static const struct teg_qgemm *const records[] = {
    &teg_qgemm_base,
#if defined(__x86_64__)
    &teg_qgemm_avx2,
    &teg_qgemm_avxvnni,
    &teg_qgemm_avx512vnni,
#elif defined(__aarch64__)
    &teg_qgemm_dotprod,
    &teg_qgemm_i8mm,
#endif
};

enum { N_RECORDS = sizeof records / sizeof records[0] };

const struct teg_qgemm *teg_qgemm_select(const struct teg_cpu *cpu)
{
    size_t best = 0;
    for (size_t i = 1; i < N_RECORDS; i++)
        if (cpu->has[records[i]->isa])
            best = i;
    return records[best];
}

const struct teg_qgemm *teg_qgemm_select_isa(const struct teg_cpu *cpu, enum teg_isa isa)
{
    for (size_t i = 0; i < N_RECORDS; i++)
        if (records[i]->isa == isa && cpu->has[isa])
            return records[i];
    return NULL;
}

size_t teg_qgemm_row_bytes(size_t k)
{
    return k / TEG_QGEMM_GROUP * sizeof(struct gemm_group);
}

size_t teg_qgemm_scratch_floats(void)
{
    return (GEMM_MOST_UNITS * sizeof(struct gemm_unit)) / sizeof(float) + 2 * GEMM_ROWS * COLUMNS;
}
