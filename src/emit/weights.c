/* emit/weights.c: the weight file: MIL blob storage version 2, as format/blob.c reads it.
 *
 *   0    u32 number of blobs   4  u32 version, 2   8  zeros
 *   64-byte records, 64-byte aligned, each followed by its payload:
 *   0    u32 0xDEADBEEF   4  u32 type code   8  u64 payload bytes   16  u64 place of the payload
 *   24   u64 unused bits of the last byte   32  zeros
 *
 * Weights go in the order of their first use. Those that must be made are made a batch at a time, as many at once as
 * the budget allows, and written in the same order whatever the threads do. A payload that is in the file already,
 * byte by byte, is not written again: equal weights of several functions, scales that agree, one bias of zeros. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "emit/emit_int.h"

enum { RECORD_BYTES = 64, LEAST_ELEMENTS = 10 };

bool teg_emit_is_blob(const struct teg_emitter *e, const struct teg_mil_const *value)
{
    size_t n;
    const enum teg_mil_dtype t = value->type.dtype;
    const bool is_wide_int = t == TEG_MIL_INT16 || t == TEG_MIL_UINT16 || t == TEG_MIL_INT32 || t == TEG_MIL_UINT32;
    if (value->type.kind != TEG_MIL_TENSOR || !teg_mil_blob_code(t) || (is_wide_int && e->program->spec_version < 9))
        return false;
    return value->deferred || (teg_mil_count(&value->type, &n) && n >= LEAST_ELEMENTS);
}

/* ---- what is to be written ---- */

/* One making, and which of its parts are wanted. */
struct item {
    const struct teg_mil_deferred *deferred; /* NULL: one constant that is there */
    const struct teg_mil_const *parts[TEG_MIL_DEFERRED_PARTS];
    uint64_t records[TEG_MIL_DEFERRED_PARTS];
    struct item *next_same; /* of the same bucket */
};
struct known { /* a record in the file */
    struct teg_hash hash;
    uint64_t at, n_bytes;
    uint32_t code, padding;
    struct known *next;
};

struct writer {
    struct teg_emitter *e;
    int fd;
    struct item *items;
    size_t n_items;
    uint32_t *item_of; /* [n_vars] index of its item + 1 */
    struct item **by_key;
    struct known **by_hash;
    size_t n_buckets; /* a power of two */
    uint64_t end;     /* of the file */
    uint64_t done, total;
};

static bool is_same_making(const struct teg_mil_deferred *a, const struct teg_mil_deferred *b)
{
    return a->make == b->make && a->ctx == b->ctx && a->key == b->key;
}

static struct item **bucket_of_key(const struct writer *w, const struct teg_mil_deferred *d)
{
    const uint64_t words[2] = {d->key, (uint64_t)(uintptr_t)d->ctx};
    return &w->by_key[teg_hash_of(words, sizeof words).low & (w->n_buckets - 1)];
}

static enum teg_status add_deferred(struct writer *w, teg_mil_var_id id, const struct teg_mil_const *value)
{
    struct item **const bucket = bucket_of_key(w, value->deferred);
    struct item *item = *bucket;
    while (item && !is_same_making(item->deferred, value->deferred))
        item = item->next_same;
    if (!item) {
        item = &w->items[w->n_items++];
        *item = (struct item){.deferred = value->deferred, .next_same = *bucket};
        *bucket = item;
    }
    const struct teg_mil_const **const part = &item->parts[value->deferred_part];
    if (*part && !teg_mil_same_type(&(*part)->type, &value->type))
        EMIT_FAIL(w->e, TEG_ERR_ARGUMENT,
                  "expected one type of each part of a weight, found two for part %u of key %llu", value->deferred_part,
                  (unsigned long long)value->deferred->key);
    if (!*part)
        w->total += value->n_bytes;
    *part = value;
    w->item_of[id] = (uint32_t)(item - w->items) + 1;
    return TEG_OK;
}

static enum teg_status collect(struct writer *w)
{
    const struct teg_mil_program *const p = w->e->program;
    for (size_t f = 0; f < p->n_functions; f++)
        for (size_t i = 0; i < w->e->functions[f].n_places; i++) {
            const teg_mil_var_id id = w->e->functions[f].places[i].var;
            const struct teg_mil_const *const value = p->vars[id].constant;
            if (w->item_of[id] || !teg_emit_is_blob(w->e, value))
                continue;
            if (value->deferred) {
                TRY(add_deferred(w, id, value));
                continue;
            }
            w->items[w->n_items] = (struct item){.parts = {value}};
            w->item_of[id] = (uint32_t)++w->n_items;
            w->total += value->n_bytes;
        }
    return TEG_OK;
}

/* ---- writing ---- */

static enum teg_status write_at(struct writer *w, const void *bytes, size_t n_bytes, uint64_t at)
{
    const uint8_t *p = bytes;
    while (n_bytes) {
        const ssize_t n = pwrite(w->fd, p, teg_min(n_bytes, (size_t)1 << 30), (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            EMIT_FAIL(w->e, TEG_ERR_IO,
                      "expected to write %zu bytes of weights at %llu, found: %s; free space on the "
                      "disk",
                      n_bytes, (unsigned long long)at, n ? strerror(errno) : "nothing written");
        p += n;
        n_bytes -= (size_t)n;
        at += (uint64_t)n;
    }
    return TEG_OK;
}

/* The bytes at that place of the file. */
static bool is_in_file(const struct writer *w, const uint8_t *bytes, size_t n_bytes, uint64_t at)
{
    uint8_t there[16384];
    while (n_bytes) {
        const size_t want = teg_min(n_bytes, sizeof there);
        const ssize_t n = pread(w->fd, there, want, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0 || memcmp(there, bytes, (size_t)n) != 0)
            return false;
        bytes += n;
        n_bytes -= (size_t)n;
        at += (uint64_t)n;
    }
    return true;
}

static void put_word(uint8_t *to, uint64_t v, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++)
        to[i] = (uint8_t)(v >> (8 * i));
}

static enum teg_status append(struct writer *w, struct known *k, const uint8_t *bytes)
{
    uint8_t record[RECORD_BYTES] = {0};
    k->at = (w->end + RECORD_BYTES - 1) & ~(uint64_t)(RECORD_BYTES - 1); /* a gap reads as zeros */
    put_word(record, 0xDEADBEEFu, 4);
    put_word(record + 4, k->code, 4);
    put_word(record + 8, k->n_bytes, 8);
    put_word(record + 16, k->at + RECORD_BYTES, 8);
    put_word(record + 24, k->padding, 8);
    TRY(write_at(w, record, sizeof record, k->at));
    TRY(write_at(w, bytes, (size_t)k->n_bytes, k->at + RECORD_BYTES));
    w->end = k->at + RECORD_BYTES + k->n_bytes;
    put_word(record, k->hash.high, 8);
    put_word(record + 8, k->hash.low, 8);
    teg_hasher_add(&w->e->content, record, 16);
    w->e->report.n_blobs++;
    w->e->report.weights_bytes += k->n_bytes;
    return TEG_OK;
}

static enum teg_status put(struct writer *w, const struct teg_mil_const *value, const uint8_t *bytes, uint64_t *record)
{
    const uint32_t bits = teg_mil_dtype_info(value->type.dtype)->bits;
    size_t n = 0;
    (void)teg_mil_count(&value->type, &n);
    struct known k = {.hash = teg_hash_of(bytes, value->n_bytes),
                      .n_bytes = value->n_bytes,
                      .code = teg_mil_blob_code(value->type.dtype),
                      .padding = bits < 8 ? (uint32_t)(value->n_bytes * 8 - n * bits) : 0};
    struct known **const bucket = &w->by_hash[k.hash.low & (w->n_buckets - 1)];
    for (const struct known *other = *bucket; other; other = other->next)
        if (other->hash.high == k.hash.high && other->hash.low == k.hash.low && other->n_bytes == k.n_bytes &&
            other->code == k.code && other->padding == k.padding &&
            is_in_file(w, bytes, value->n_bytes, other->at + RECORD_BYTES)) {
            *record = other->at;
            w->e->report.shared_bytes += k.n_bytes;
            return TEG_OK;
        }
    struct known *const own = teg_arena_array(&w->e->arena, 1, sizeof *own);
    if (!own)
        return teg_emit_no_memory(w->e, sizeof *own);
    TRY(append(w, &k, bytes));
    *own = k;
    own->next = *bucket;
    *bucket = own;
    *record = k.at;
    return TEG_OK;
}

/* ---- making ---- */

struct made {
    struct teg_arena arena;
    struct teg_span parts[TEG_MIL_DEFERRED_PARTS];
    enum teg_status status;
    struct teg_error error;
};
struct batch {
    const struct item *items;
    struct made *made;
};

static void make_one(void *ctx, size_t slice, size_t worker)
{
    const struct batch *const b = ctx;
    const struct item *const item = &b->items[slice];
    struct made *const m = &b->made[slice];
    (void)worker;
    if (item->deferred)
        m->status = item->deferred->make(item->deferred, &m->arena, m->parts, &m->error);
}

/* Items from `first` whose makings fit into the budget together; at least one. */
static size_t batch_size(const struct writer *w, size_t first, size_t budget)
{
    enum { MOST = 64 };
    size_t n = 0, cost = 0;
    while (first + n < w->n_items && n < MOST) {
        const struct item *const item = &w->items[first + n];
        const size_t more = item->deferred ? item->deferred->cost : 0;
        if (n && (cost > budget || more > budget - cost))
            break;
        cost = more > SIZE_MAX - cost ? SIZE_MAX : cost + more;
        n++;
    }
    return n;
}

static enum teg_status write_item(struct writer *w, struct item *item, const struct made *made)
{
    if (made->status != TEG_OK) {
        if (w->e->err)
            *w->e->err = made->error;
        return made->status;
    }
    for (uint32_t i = 0; i < TEG_MIL_DEFERRED_PARTS; i++) {
        const struct teg_mil_const *const value = item->parts[i];
        if (!value)
            continue;
        const struct teg_span bytes = item->deferred ? made->parts[i] : (struct teg_span){value->bytes, value->n_bytes};
        if (bytes.n_bytes != value->n_bytes || (bytes.n_bytes && !bytes.bytes))
            EMIT_FAIL(w->e, TEG_ERR_ARGUMENT, "expected part %u of a weight to have %zu bytes, found %zu", i,
                      value->n_bytes, bytes.n_bytes);
        TRY(put(w, value, bytes.bytes, &item->records[i]));
        w->done += value->n_bytes;
    }
    if (item->deferred && item->deferred->written)
        item->deferred->written(item->deferred);
    return TEG_OK;
}

static enum teg_status ask(const struct writer *w)
{
    const struct teg_emit_options *const o = w->e->options;
    const bool stops = (o->cancelled && o->cancelled(o->cancelled_ctx)) ||
                       (o->progress && !o->progress(o->progress_ctx, w->done, w->total));
    if (stops)
        EMIT_FAIL(w->e, TEG_ERR_INTERRUPTED, "interrupted at %llu of %llu bytes of weights",
                  (unsigned long long)w->done, (unsigned long long)w->total);
    return TEG_OK;
}

static enum teg_status write_batch(struct writer *w, size_t first, size_t n)
{
    struct made *const made = calloc(n, sizeof *made);
    struct batch batch = {w->items + first, made};
    enum teg_status status = TEG_OK;
    if (!made)
        return teg_emit_no_memory(w->e, n * sizeof *made);
    for (size_t i = 0; i < n; i++)
        teg_arena_init(&made[i].arena, w->e->arena.allocator);
    if (w->e->options->pool && n > 1)
        teg_pool_run(w->e->options->pool, make_one, &batch, n);
    else
        for (size_t i = 0; i < n; i++)
            make_one(&batch, i, 0);
    for (size_t i = 0; i < n && status == TEG_OK; i++) {
        status = write_item(w, &w->items[first + i], &made[i]);
        teg_arena_free(&made[i].arena);
        if (status == TEG_OK)
            status = ask(w);
    }
    for (size_t i = 0; i < n; i++)
        teg_arena_free(&made[i].arena);
    free(made);
    return status;
}

/* ---- all ---- */

static enum teg_status tables(struct writer *w)
{
    const size_t n = w->e->program->n_vars;
    w->n_buckets = 64;
    while (w->n_buckets < n)
        w->n_buckets *= 2;
    w->items = teg_arena_array(&w->e->arena, n, sizeof *w->items);
    w->item_of = teg_arena_array(&w->e->arena, n, sizeof *w->item_of);
    w->by_key = teg_arena_array(&w->e->arena, w->n_buckets, sizeof *w->by_key);
    w->by_hash = teg_arena_array(&w->e->arena, w->n_buckets, sizeof *w->by_hash);
    w->e->records = teg_arena_array(&w->e->arena, n, sizeof *w->e->records);
    if (!w->items || !w->item_of || !w->by_key || !w->by_hash || !w->e->records)
        return teg_emit_no_memory(w->e, n * sizeof *w->items);
    return TEG_OK;
}

enum teg_status teg_emit_weights(struct teg_emitter *e, int fd)
{
    enum { DEFAULT_BUDGET = 256 << 20 };
    const size_t budget = e->options->memory_budget ? e->options->memory_budget : DEFAULT_BUDGET;
    struct writer w = {.e = e, .fd = fd, .end = RECORD_BYTES};
    uint8_t header[RECORD_BYTES] = {0};
    TRY(tables(&w));
    TRY(collect(&w));
    TRY(ask(&w));
    for (size_t i = 0, n; i < w.n_items; i += n) {
        n = batch_size(&w, i, budget);
        TRY(write_batch(&w, i, n));
    }
    put_word(header, e->report.n_blobs, 4);
    put_word(header + 4, 2, 4);
    TRY(write_at(&w, header, sizeof header, 0));
    for (size_t id = 0; id < e->program->n_vars; id++)
        if (w.item_of[id]) {
            const struct teg_mil_const *const value = e->program->vars[id].constant;
            e->records[id] = w.items[w.item_of[id] - 1].records[value->deferred ? value->deferred_part : 0];
        }
    return TEG_OK;
}
