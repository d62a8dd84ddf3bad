/* What the fuzz targets of src/mil share: a walk over everything in a program that a later stage relies on. Whatever
 * the bytes were, a program that was read must survive it; a breach aborts. */
#ifndef MIL_FUZZ_H
#define MIL_FUZZ_H

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "mil/impl.h"

static volatile unsigned sink;

static inline void touch(const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sink += ((const uint8_t *)bytes)[i];
}

static inline void must(bool fact)
{
    if (!fact)
        abort();
}

/* ---- memory: never more than a small multiple of the input ---- */

struct meter {
    struct teg_allocator allocator;
    size_t total_bytes;
};

static inline void *meter_alloc(void *ctx, size_t size_bytes, size_t align_bytes)
{
    void *p = NULL;
    ((struct meter *)ctx)->total_bytes += size_bytes;
    return posix_memalign(&p, align_bytes, size_bytes ? size_bytes : 1) == 0 ? p : NULL;
}

static inline void meter_free(void *ctx, void *ptr, size_t size_bytes)
{
    (void)ctx, (void)size_bytes;
    free(ptr);
}

enum { ALWAYS_BYTES = 1 << 17, BYTES_PER_BYTE = 500 };

/* ---- the walk ---- */

static inline void walk_const(const struct teg_mil_const *c, int depth)
{
    size_t n = 0, n_bytes = 0;
    must(depth <= TEG_MIL_MAX_VALUE_DEPTH);
    for (size_t i = 0; i < c->n_items; i++)
        walk_const(&c->items[i], depth + 1);
    if (c->type.kind != TEG_MIL_TENSOR)
        return;
    must(teg_mil_count(&c->type, &n));
    if (c->type.dtype == TEG_MIL_STRING) {
        for (size_t i = 0; i < n; i++)
            touch(c->strings[i].bytes, c->strings[i].n_bytes);
        return;
    }
    must(teg_mil_bytes(c->type.dtype, n, &n_bytes) && n_bytes == c->n_bytes && c->bytes);
    touch(c->bytes, n_bytes);
}

static inline void walk_type(const struct teg_mil_type *t, int depth)
{
    must(depth <= TEG_MIL_MAX_TYPE_DEPTH && t->rank >= -1 && t->rank <= TEG_MIL_MAX_RANK);
    for (int32_t i = 0; i < t->rank; i++)
        must(t->dims[i] >= TEG_MIL_UNKNOWN);
    if (t->kind == TEG_MIL_LIST || t->kind == TEG_MIL_DICT)
        walk_type(t->element, depth + 1);
    if (t->kind == TEG_MIL_DICT)
        walk_type(t->key, depth + 1);
}

static inline void walk_ids(const struct teg_mil_program *p, const teg_mil_var_id *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        must(ids[i] < p->n_vars);
}

static inline void walk_block(const struct teg_mil_program *p, const struct teg_mil_block *b, int depth)
{
    must(depth <= TEG_MIL_MAX_BLOCK_DEPTH);
    walk_ids(p, b->inputs, b->n_inputs);
    walk_ids(p, b->outputs, b->n_outputs);
    for (size_t i = 0; i < b->n_ops; i++) {
        const struct teg_mil_op *const op = &b->ops[i];
        must(op->type[0] && op->name);
        for (size_t a = 0; a < op->n_args; a++) {
            must(!a || strcmp(op->args[a - 1].name, op->args[a].name) < 0);
            must(teg_mil_find_arg(op, op->args[a].name) == &op->args[a]);
            walk_ids(p, op->args[a].vars, op->args[a].n_vars);
        }
        walk_ids(p, op->outputs, op->n_outputs);
        for (size_t o = 0; o < op->n_outputs; o++)
            must(p->vars[op->outputs[o]].op == i && !p->vars[op->outputs[o]].constant);
        for (size_t k = 0; k < op->n_blocks; k++)
            walk_block(p, &op->blocks[k], depth + 1);
    }
}

static inline void walk_features(const struct teg_mil_feature *f, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        must(f[i].name[0] && f[i].description && f[i].rank <= TEG_MIL_MAX_RANK);
        for (uint32_t d = 0; d < f[i].rank; d++)
            must(f[i].shape[d] >= 0 && f[i].lower[d] >= 0 && (f[i].upper[d] == -1 || f[i].upper[d] >= f[i].lower[d]));
    }
}

static inline void walk_program(const struct teg_mil_program *p)
{
    struct teg_buf text = {0};
    for (size_t i = 0; i < p->n_vars; i++) {
        walk_type(&p->vars[i].type, 1);
        if (p->vars[i].constant)
            walk_const(p->vars[i].constant, 1);
    }
    for (size_t i = 0; i < p->n_functions; i++) {
        const struct teg_mil_interface *const in = &p->interfaces[i];
        must(in->function == p->functions[i].name && in->predicted_feature && in->predicted_probabilities);
        must(p->functions[i].opset >= 6 && p->functions[i].opset <= 10);
        must(p->functions[i].block.n_inputs == in->n_inputs + in->n_states);
        walk_block(p, &p->functions[i].block, 0);
        walk_features(in->inputs, in->n_inputs);
        walk_features(in->outputs, in->n_outputs);
        walk_features(in->states, in->n_states);
        teg_mil_dump(p, &p->functions[i], &text);
    }
    must(teg_mil_find_function(p, p->default_function) != NULL);
    for (size_t i = 0; i < p->n_user_metadata; i++)
        touch(p->user_metadata[i][1].bytes, p->user_metadata[i][1].n_bytes);
    teg_buf_free(&text);
}

typedef enum teg_status (*mil_parse)(const struct teg_allocator *allocator, struct teg_mil_program **program,
                                     struct teg_error *err, const uint8_t *bytes, size_t n_bytes);

static inline void fuzz_program(mil_parse parse, const uint8_t *bytes, size_t n_bytes)
{
    struct meter meter = {{meter_alloc, meter_free, &meter}, 0};
    struct teg_mil_program *p = NULL;
    struct teg_error err = {0};
    const enum teg_status status = parse(&meter.allocator, &p, &err, bytes, n_bytes);
    must(meter.total_bytes <= ALWAYS_BYTES + BYTES_PER_BYTE * n_bytes);
    if (status == TEG_OK)
        walk_program(p);
    else
        must(!p && err.status == status && err.message[0]);
    teg_mil_free(p);
}

#endif
