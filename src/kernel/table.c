/* kernel/table.c: which implementation fills which slot.
 *
 * The reference row fills every slot; then each instruction set this CPU has, from the weakest to the strongest,
 * overrides the slots its row holds. Chosen once, at run time, from teg_cpu_detect: a program built for the baseline
 * never meets an illegal instruction. Alternative not taken: function multiversioning (ifunc), which tests cannot
 * force down and which not every linker has. */
#include <string.h>

#include "kernel/rows.h"
#include "kernel/sizes.h"

/* Weakest first. Sets that a build lacks are not listed. */
static const struct {
    enum teg_isa isa;
    const struct teg_kernels *row;
} rows[] = {
    {TEG_ISA_BASE, &teg_kernel_rows_base},
#if defined(__x86_64__)
    {TEG_ISA_AVX2, &teg_kernel_rows_exact_avx2},
    {TEG_ISA_AVX512, &teg_kernel_rows_exact_avx512},
#endif
};

enum { N_ROWS = sizeof rows / sizeof rows[0] };

/* Number of each slot, for isa_of_slot[]. */
enum {
#define X(slot, args) SLOT_##slot,
    TEG_KERNELS(X)
#undef X
        N_SLOTS
};

_Static_assert(N_SLOTS <= sizeof((struct teg_kernels *)0)->isa_of_slot / sizeof(const char *), "isa_of_slot is full");

static void apply(const struct teg_kernels *row, const char *isa, struct teg_kernels *kernels)
{
#define X(slot, args)                                                                                                  \
    if (row->slot) {                                                                                                   \
        kernels->slot = row->slot;                                                                                     \
        kernels->isa_of_slot[SLOT_##slot] = isa;                                                                       \
    }
    TEG_KERNELS(X)
#undef X
}

/* What each set includes of those before it (cpu.h): the AVX-VNNI and AVX-512 branches part after AVX2. */
static bool implies(enum teg_isa isa, enum teg_isa other)
{
    if (other == TEG_ISA_BASE || other == isa)
        return true;
    switch (isa) {
    case TEG_ISA_AVXVNNI:
    case TEG_ISA_AVX512:
        return other == TEG_ISA_AVX2;
    case TEG_ISA_AVX512VNNI:
        return other == TEG_ISA_AVX2 || other == TEG_ISA_AVX512;
    case TEG_ISA_I8MM:
        return other == TEG_ISA_DOTPROD;
    default:
        return false;
    }
}

void teg_kernels_select(const struct teg_cpu *cpu, struct teg_kernels *kernels)
{
    memset(kernels, 0, sizeof *kernels);
    for (size_t i = 0; i < N_ROWS; i++)
        if (cpu->has[rows[i].isa])
            apply(rows[i].row, teg_isa_name(rows[i].isa), kernels);
}

bool teg_kernels_select_isa(const struct teg_cpu *cpu, enum teg_isa isa, struct teg_kernels *kernels)
{
    if (!cpu->has[isa])
        return false;
    memset(kernels, 0, sizeof *kernels);
    for (size_t i = 0; i < N_ROWS; i++)
        if (implies(isa, rows[i].isa))
            apply(rows[i].row, teg_isa_name(rows[i].isa), kernels);
    return true;
}

size_t teg_linear_scratch_floats(size_t k)
{
    return TEG_LINEAR_ROWS * teg_linear_stride(k < 1024 ? 1024 : k);
}

size_t teg_attention_scratch_floats(size_t head_width)
{
    const size_t tiles = 2 * TEG_TILE_TOKENS * head_width, slots = TEG_ATTENTION_ROWS + 16;
    const size_t per_row = TEG_ATTENTION_ROWS * (TEG_TILE_TOKENS + teg_attention_stride(head_width)) + 4 * slots;
    return tiles + per_row;
}
