/* plan/pack.c: weights from their file's rows into the panels of the integer kernels, once, while the model opens.
 *
 * All packed weights lie in one block of memory, whose size is known before anything is read. They are packed one after
 * the other, piece by piece, by all threads; after each piece its source bytes are given back, so that a model is never
 * in memory twice. A weight that two steps read is packed once. Steps get their packed weight only when all are done: a
 * plan that failed half-way is as it was. Not taken: packing at first use, which hides the cost in the first token.
 *
 * Where a cache is asked for, the block may come from a file (cache.c) instead. It is taken when its identity is that
 * of this plan (what is packed, how, from which files) and when the first panel of every weight, packed again, is the
 * one in the file: so a program that packs differently, or a model that changed behind its file's back, is noticed
 * although nobody counted up a version. The source is then left unread but for these panels. */
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "plan/cache.h"

#define PANELS_PER_SLICE 4
#define CHECKED_AT_ONCE 32 /* steps whose first panels are compared, between two releases of their source */

#define PIECE_BYTES ((size_t)8 << 20) /* of the source, between two releases: all that is in memory twice */

static bool needs_packing(const struct teg_step *s)
{
    return s->kind == TEG_STEP_LINEAR && s->gemm;
}

/* The first step that packs the same weight, or `i` itself. */
static uint32_t first_user(const struct teg_plan *plan, uint32_t i)
{
    const struct teg_step *const s = &plan->steps[i];
    for (uint32_t j = 0; j < i; j++)
        if (needs_packing(&plan->steps[j]) && plan->steps[j].weight == s->weight &&
            plan->steps[j].encoding == s->encoding)
            return j;
    return i;
}

/* An embedding (or an exact product) still reads the source. */
static bool read_elsewhere(const struct teg_plan *plan, const void *weight)
{
    for (uint32_t i = 0; i < plan->n_steps; i++)
        if (plan->steps[i].weight == weight && !needs_packing(&plan->steps[i]))
            return true;
    return false;
}

static size_t source_bytes(const struct teg_step *s)
{
    return s->encoding ? s->encoding->n_bytes : s->weight_row_bytes * s->out.width;
}

/* Of n columns (rows of the source): for progress and pieces. */
static size_t columns_bytes(const struct teg_step *s, size_t n)
{
    return s->encoding ? (size_t)((double)s->encoding->n_bytes * (double)n / (double)s->out.width)
                       : n * s->weight_row_bytes;
}

/* Gives back the codes of rows begin … end - 1. Scales are small, and stay until the last of them. */
static void release_encoded(const struct teg_encoding *e, size_t begin, size_t end, const struct teg_pack_hooks *hooks)
{
    size_t first = 0;
    for (size_t i = 0; i < e->n_parts; i++) {
        const struct teg_encoding_part *const part = &e->parts[i];
        const size_t from = teg_max(begin, first), to = teg_min(end, first + part->n_rows);
        const uint8_t *bytes;
        if (from < to && part->is_mapped) {
            const size_t n_bytes = teg_encoding_code_bytes(part, e->columns, from - first, to - from, &bytes);
            hooks->release(hooks->release_ctx, bytes, n_bytes);
        }
        first += part->n_rows;
    }
}

static void release(const struct teg_step *s, size_t begin, size_t end, const struct teg_pack_hooks *hooks)
{
    if (!hooks->release)
        return;
    if (s->encoding)
        release_encoded(s->encoding, begin, end, hooks);
    else
        hooks->release(hooks->release_ctx, (const char *)s->weight + begin * s->weight_row_bytes,
                       (end - begin) * s->weight_row_bytes);
}

/* Of the first n columns. */
static size_t packed_bytes(const struct teg_step *s, size_t n)
{
    return s->encoding ? teg_qgemm_form_bytes(&s->form, n, s->k) : teg_qgemm_packed_bytes(s->weight_dtype, n, s->k);
}

static void pack_columns(const struct teg_step *s, size_t n0, size_t n1, void *dst)
{
    if (s->encoding)
        teg_qgemm_pack_form(&s->form, s->encoding, n0, n1, dst);
    else
        teg_qgemm_pack(s->weight_dtype, s->weight, s->weight_row_bytes, n0, n1, s->k, dst);
}

struct pack_sizes {
    size_t *offsets; /* [n_steps], SIZE_MAX: not packed */
    size_t packed, replaced;
};

static enum teg_status measure(const struct teg_plan *plan, struct pack_sizes *sizes, struct teg_error *err)
{
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        const struct teg_step *const s = &plan->steps[i];
        sizes->offsets[i] = SIZE_MAX;
        if (!needs_packing(s))
            continue;
        const uint32_t first = first_user(plan, i);
        sizes->offsets[i] = first < i ? sizes->offsets[first] : sizes->packed;
        if (first < i)
            continue;
        size_t bytes = packed_bytes(s, s->out.width);
        if (!teg_round_up(bytes, TEG_ALIGN, &bytes) || !teg_add(sizes->packed, bytes, &sizes->packed))
            return teg_base_fail_memory(err, "packed weights", SIZE_MAX);
        sizes->replaced += read_elsewhere(plan, s->weight) ? 0 : source_bytes(s);
    }
    return TEG_OK;
}

struct pack_job {
    const struct teg_step *step;
    void *dst;
    size_t begin, end; /* columns of this piece */
};

static void pack_slice(void *ctx, size_t slice, size_t worker)
{
    (void)worker;
    const struct pack_job *const job = ctx;
    const size_t columns = PANELS_PER_SLICE * TEG_QGEMM_COLUMNS, n0 = job->begin + slice * columns;
    pack_columns(job->step, n0, teg_min(n0 + columns, job->end), job->dst);
}

/* One weight, piece by piece. */
static enum teg_status pack_weight(const struct teg_step *s, void *dst, struct teg_pool *pool,
                                   const struct teg_pack_hooks *hooks, size_t *done, struct teg_error *err)
{
    const size_t columns = PANELS_PER_SLICE * TEG_QGEMM_COLUMNS, n = s->out.width;
    const size_t step = teg_max(1, PIECE_BYTES / teg_max(columns_bytes(s, columns), 1)) * columns;
    for (size_t begin = 0; begin < n; begin += step) {
        struct pack_job job = {s, dst, begin, teg_min(begin + step, n)};
        teg_pool_run(pool, pack_slice, &job, (job.end - begin + columns - 1) / columns);
        release(s, begin, job.end, hooks);
        *done += columns_bytes(s, job.end - begin);
        if (hooks->progress && !hooks->progress(hooks->progress_ctx, *done, hooks->total_bytes))
            FAIL(
                err, TEG_ERR_INTERRUPTED,
                "interrupted: packing weights: expected to pack all, found a request to stop after %zu bytes; open the "
                "model again",
                *done);
    }
    return TEG_OK;
}

static enum teg_status pack_all(const struct teg_plan *plan, const struct pack_sizes *sizes, char *memory,
                                struct teg_pool *pool, const struct teg_pack_hooks *hooks, struct teg_error *err)
{
    size_t done = 0;
    for (uint32_t i = 0; i < plan->n_steps; i++)
        if (sizes->offsets[i] != SIZE_MAX && first_user(plan, i) == i)
            TRY(pack_weight(&plan->steps[i], memory + sizes->offsets[i], pool, hooks, &done, err));
    return TEG_OK;
}

/* Huge pages where the system grants them: a decoded token reads all weights once,
 * with a page walk every 4 KiB. */
static void advise_huge(void *memory, size_t n_bytes)
{
#if defined(MADV_HUGEPAGE)
    const size_t huge = (size_t)2 << 20, begin = ((uintptr_t)memory + huge - 1) / huge * huge;
    const size_t end = ((uintptr_t)memory + n_bytes) / huge * huge;
    if (begin < end)
        (void)madvise((void *)begin, end - begin, MADV_HUGEPAGE);
#else
    (void)memory, (void)n_bytes;
#endif
}

/* ---- the cache ---- */

static bool packs_here(const struct teg_plan *plan, const struct pack_sizes *sizes, uint32_t i)
{
    return sizes->offsets[i] != SIZE_MAX && first_user(plan, i) == i;
}

/* What is packed, how, where to, from which files. */
static struct teg_hash identity_of(const struct teg_plan *plan, const struct pack_sizes *sizes, struct teg_hash source)
{
    struct teg_hasher h;
    teg_hasher_init(&h);
    teg_hasher_add(&h, &source, sizeof source);
    teg_hasher_add(&h, plan->gemm->name, strlen(plan->gemm->name));
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        const struct teg_step *const s = &plan->steps[i];
        if (!packs_here(plan, sizes, i))
            continue;
        const bool has_form = s->encoding != NULL;
        const uint64_t facts[] = {i,
                                  s->k,
                                  s->out.width,
                                  sizes->offsets[i],
                                  has_form ? 0 : (uint64_t)s->weight_dtype,
                                  has_form ? (uint64_t)s->form.kind : UINT64_MAX,
                                  has_form && s->form.wide_scales,
                                  has_form ? s->form.block_groups : 0};
        teg_hasher_add(&h, facts, sizeof facts);
    }
    return teg_hasher_end(&h);
}

struct check_job {
    const struct teg_plan *plan;
    const struct pack_sizes *sizes;
    const uint8_t *cached;
    uint8_t *scratch; /* of each worker */
    size_t scratch_bytes;
    uint32_t first, end; /* steps of this round */
    atomic_bool differs;
};

static void check_slice(void *ctx, size_t slice, size_t worker)
{
    struct check_job *const job = ctx;
    const uint32_t i = job->first + (uint32_t)slice;
    const struct teg_step *const s = &job->plan->steps[i];
    if (!packs_here(job->plan, job->sizes, i))
        return;
    const size_t columns = teg_min(TEG_QGEMM_COLUMNS, s->out.width);
    uint8_t *const panel = job->scratch + worker * job->scratch_bytes;
    pack_columns(s, 0, columns, panel);
    if (memcmp(panel, job->cached + job->sizes->offsets[i], packed_bytes(s, columns)) != 0)
        atomic_store(&job->differs, true);
}

/* The first panel of every weight is what packing makes of it now. */
static bool panels_match(const struct teg_plan *plan, const struct pack_sizes *sizes, const uint8_t *cached,
                         struct teg_pool *pool, const struct teg_pack_hooks *hooks)
{
    struct teg_arena arena;
    struct check_job job = {.plan = plan, .sizes = sizes, .cached = cached};
    for (uint32_t i = 0; i < plan->n_steps; i++)
        if (sizes->offsets[i] != SIZE_MAX)
            job.scratch_bytes = teg_max(job.scratch_bytes, packed_bytes(&plan->steps[i], TEG_QGEMM_COLUMNS));
    atomic_init(&job.differs, false);
    teg_arena_init(&arena, NULL);
    job.scratch = teg_arena_array(&arena, teg_pool_threads(pool), job.scratch_bytes);
    bool match = job.scratch != NULL;
    for (; match && job.first < plan->n_steps; job.first = job.end) {
        job.end = (uint32_t)teg_min(job.first + CHECKED_AT_ONCE, plan->n_steps);
        teg_pool_run(pool, check_slice, &job, job.end - job.first);
        match = !atomic_load(&job.differs);
        for (uint32_t i = job.first; i < job.end; i++)
            if (packs_here(plan, sizes, i))
                release(&plan->steps[i], 0, teg_min(TEG_QGEMM_COLUMNS, plan->steps[i].out.width), hooks);
    }
    teg_arena_free(&arena);
    return match;
}

/* True: packed->map has it. */
static bool take_from_cache(const struct teg_plan *plan, const struct pack_sizes *sizes, struct teg_hash identity,
                            struct teg_pool *pool, const struct teg_pack_hooks *hooks, struct teg_packed *packed)
{
    if (!teg_cache_open(hooks->cache, identity, sizes->packed, pool, &packed->map))
        return false;
    packed->memory = teg_cache_bytes(&packed->map);
    if (panels_match(plan, sizes, packed->memory, pool, hooks))
        return true;
    teg_cache_warn(hooks->cache,
                   "expected panels as this program packs them, found others; the weights are packed again");
    teg_filemap_close(&packed->map);
    packed->memory = NULL;
    return false;
}

static bool is_wanted(void *ctx)
{
    const struct teg_pack_hooks *const hooks = ctx;
    return !hooks->progress || hooks->progress(hooks->progress_ctx, hooks->total_bytes, hooks->total_bytes);
}

/* ---- all of it ---- */

static enum teg_status pack_anew(const struct teg_plan *plan, const struct pack_sizes *sizes, struct teg_pool *pool,
                                 const struct teg_pack_hooks *hooks, struct teg_packed *packed, struct teg_error *err)
{
    const struct teg_allocator *const a = packed->allocator;
    void *const memory = a->alloc(a->ctx, sizes->packed, TEG_ALIGN);
    if (!memory)
        return teg_base_fail_memory(err, "packed weights", sizes->packed);
    advise_huge(memory, sizes->packed);
    const enum teg_status status = pack_all(plan, sizes, memory, pool, hooks, err);
    if (status == TEG_OK)
        packed->memory = memory;
    else
        a->free(a->ctx, memory, sizes->packed);
    return status;
}

static enum teg_status pack_or_find(struct teg_plan *plan, const struct pack_sizes *sizes, struct teg_pool *pool,
                                    const struct teg_allocator *allocator, const struct teg_pack_hooks *hooks,
                                    struct teg_error *err)
{
    struct teg_packed packed = {.allocator = allocator, .n_bytes = sizes->packed, .replaced_bytes = sizes->replaced};
    const struct teg_hash identity =
        hooks->cache ? identity_of(plan, sizes, hooks->cache->source) : (struct teg_hash){0};
    if (!hooks->cache || !take_from_cache(plan, sizes, identity, pool, hooks, &packed)) {
        TRY(pack_anew(plan, sizes, pool, hooks, &packed, err));
        if (hooks->cache)
            teg_cache_write(hooks->cache, identity, packed.memory, packed.n_bytes, pool, is_wanted,
                            (void *)(uintptr_t)hooks);
    }
    plan->packed = packed;
    for (uint32_t i = 0; i < plan->n_steps; i++)
        if (sizes->offsets[i] != SIZE_MAX)
            plan->steps[i].weight = (const char *)packed.memory + sizes->offsets[i];
    return TEG_OK;
}

enum teg_status teg_plan_pack(struct teg_plan *plan, const struct teg_cpu *cpu, const struct teg_allocator *allocator,
                              const struct teg_pack_hooks *hooks, struct teg_error *err)
{
    struct teg_arena scratch;
    struct teg_pool *pool = NULL;
    teg_arena_init(&scratch, allocator);
    struct pack_sizes sizes = {.offsets = teg_arena_array(&scratch, plan->n_steps + 1, sizeof *sizes.offsets)};
    enum teg_status status = sizes.offsets ? measure(plan, &sizes, err)
                                           : teg_base_fail_memory(err, "packing", plan->n_steps * sizeof(size_t));
    allocator = teg_allocator_or_default(allocator);
    if (status == TEG_OK && sizes.packed) {
        status = teg_pool_new(teg_min(teg_max(cpu->n_cpus, 1), TEG_POOL_MAX_THREADS), allocator, &pool, err);
        if (status == TEG_OK)
            status = pack_or_find(plan, &sizes, pool, allocator, hooks, err);
    }
    teg_pool_free(pool);
    teg_arena_free(&scratch);
    return status;
}

void teg_plan_free(struct teg_plan *plan)
{
    if (!plan || !plan->packed.memory)
        return;
    const struct teg_packed *const packed = &plan->packed;
    if (packed->map.bytes)
        teg_filemap_close(&plan->packed.map);
    else
        packed->allocator->free(packed->allocator->ctx, (void *)(uintptr_t)packed->memory, packed->n_bytes);
    plan->packed = (struct teg_packed){0};
}
