/* requirements.c: which systems can load a program, and why. A package that is newer than a device's system does not
 * fail there with a reason: it fails to load, or runs on another unit than was meant. So the reasons are listed here,
 * each with the first place that has it.
 *
 * A system is a row by the specification version that came with it. The rules are tables: ops, element types,
 * features. What has no row is as old as the opset of its function. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "program.h"

enum { n_systems = 5, oldest_version = 6 };

static const struct {
    uint32_t spec_version;
    uint32_t of[n_systems]; /* in the order of system_names; 0: none */
    const char *text, *minimum;
} releases[] = {
#define RELEASE(version, ios, mac, tv, watch, vision, text, xcode)                                                     \
    {                                                                                                                  \
        version, {ios, mac, tv, watch, vision}, text, text ", Xcode " xcode                                            \
    }
    RELEASE(6, 15, 12, 15, 8, 0, "iOS 15, macOS 12, tvOS 15, watchOS 8", "13"),
    RELEASE(7, 16, 13, 16, 9, 0, "iOS 16, macOS 13, tvOS 16, watchOS 9", "14"),
    RELEASE(8, 17, 14, 17, 10, 1, "iOS 17, macOS 14, tvOS 17, watchOS 10, visionOS 1", "15"),
    RELEASE(9, 18, 15, 18, 11, 2, "iOS 18, macOS 15, tvOS 18, watchOS 11, visionOS 2", "16"),
    RELEASE(10, 26, 26, 26, 26, 26, "iOS 26, macOS 26, tvOS 26, watchOS 26, visionOS 26", "26"),
#undef RELEASE
};
static const char *const system_names[n_systems] = {"iOS", "macOS", "tvOS", "watchOS", "visionOS"};
enum { n_releases = sizeof releases / sizeof *releases };

static size_t release_of(uint32_t spec_version)
{
    for (size_t i = 0; i < n_releases; i++)
        if (releases[i].spec_version >= spec_version)
            return i;
    return n_releases - 1;
}

static const struct {
    const char *type;
    uint32_t spec_version;
} op_rules[] = {
    {"scaled_dot_product_attention", 9},
    {"slice_update", 9},
    {"constexpr_blockwise_shift_scale", 9},
    {"constexpr_lut_to_sparse", 9},
    {"constexpr_sparse_blockwise_shift_scale", 9},
    {"quantize", 8},
    {"dequantize", 8},
    {"constexpr_affine_dequantize", 7},
    {"constexpr_lut_to_dense", 7},
    {"constexpr_sparse_to_dense", 7},
    {"constexpr_cast", 7},
    {"fill_like", 7},
    {"pixel_unshuffle", 7},
    {"reshape_like", 7},
};

/* ---- collecting ---- */

struct list {
    struct teg_program *program;
    size_t n, capacity;
    bool failed;
    const char *function;
};

/* Once a feature and function: the first place is enough. */
static void add(struct list *l, const char *feature, const char *function, const char *where, uint32_t spec_version)
{
    struct teg_program *const p = l->program;
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(p->requirements[i].feature, feature) == 0 && strcmp(p->requirements[i].function, function) == 0)
            return;
    if (l->n == l->capacity) {
        const size_t capacity = l->capacity ? 2 * l->capacity : 16;
        struct teg_requirement *const moved = teg_arena_array(&p->arena, capacity, sizeof *moved);
        if (!moved) {
            l->failed = true;
            return;
        }
        if (l->n)
            memcpy(moved, p->requirements, l->n * sizeof *moved);
        p->requirements = moved;
        l->capacity = capacity;
    }
    p->requirements[l->n++] = (struct teg_requirement){.feature = feature,
                                                       .function = function,
                                                       .where = where,
                                                       .spec_version = spec_version,
                                                       .systems = releases[release_of(spec_version)].text};
    if (spec_version > p->spec_version)
        p->spec_version = spec_version;
}

static void add_constant(struct list *l, const struct teg_mil_var *v, const char *op)
{
    static const struct {
        enum teg_mil_dtype dtype;
        const char *feature;
    } rules[] = {
        {TEG_MIL_INT4, "int4 weights"},   {TEG_MIL_UINT1, "1-bit weights"}, {TEG_MIL_UINT2, "2-bit weights"},
        {TEG_MIL_UINT3, "3-bit weights"}, {TEG_MIL_UINT4, "4-bit weights"}, {TEG_MIL_UINT6, "6-bit weights"},
    };
    if (v->constant && v->constant->type.kind == TEG_MIL_TENSOR)
        for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
            if (v->constant->type.dtype == rules[i].dtype)
                add(l, rules[i].feature, l->function, *v->name ? v->name : op, 9);
}

static void add_op(struct list *l, const struct teg_mil_op *op)
{
    const struct teg_mil_var *const vars = l->program->mil->vars;
    const char *const where = *op->name ? op->name : op->n_outputs ? vars[op->outputs[0]].name : op->type;
    for (size_t i = 0; i < sizeof op_rules / sizeof *op_rules; i++)
        if (strcmp(op->type, op_rules[i].type) == 0)
            add(l, op_rules[i].type, l->function, where, op_rules[i].spec_version);
    for (size_t a = 0; a < op->n_args; a++)
        for (size_t i = 0; i < op->args[a].n_vars; i++)
            add_constant(l, &vars[op->args[a].vars[i]], where);
}

/* The reader limits how deep blocks nest. */
static void add_block(struct list *l, const struct teg_mil_block *block)
{
    for (size_t i = 0; i < block->n_ops; i++) {
        add_op(l, &block->ops[i]);
        for (size_t b = 0; b < block->ops[i].n_blocks; b++)
            add_block(l, &block->ops[i].blocks[b]);
    }
}

static void add_feature(struct list *l, const struct teg_mil_feature *f, size_t *n_enumerated)
{
    const bool is_array = f->kind == TEG_MIL_FEATURE_ARRAY;
    if (is_array && f->dtype == TEG_MIL_FP16)
        add(l, "float16 inputs or outputs", l->function, f->name, 7);
    if (is_array && f->dtype == TEG_MIL_INT8)
        add(l, "int8 inputs or outputs", l->function, f->name, 10);
    if (f->kind == TEG_MIL_FEATURE_IMAGE && f->colour == TEG_MIL_GRAY_FP16)
        add(l, "float16 grey images", l->function, f->name, 7);
    if (f->n_enumerated && ++*n_enumerated > 1)
        add(l, "several inputs with enumerated shapes", l->function, f->name, 9);
}

static void add_interface(struct list *l, const struct teg_mil_interface *i)
{
    size_t n_enumerated = 0, ignored = 0;
    if (i->n_states)
        add(l, "states", l->function, i->states[0].name, 9);
    for (size_t k = 0; k < i->n_inputs; k++)
        add_feature(l, &i->inputs[k], &n_enumerated);
    for (size_t k = 0; k < i->n_outputs; k++) {
        ignored = 0;
        add_feature(l, &i->outputs[k], &ignored);
    }
}

enum teg_status teg_program_find_requirements(struct teg_program *program, struct teg_error *err)
{
    const struct teg_mil_program *const mil = program->mil;
    struct list l = {.program = program};
    program->spec_version = oldest_version;
    if (mil->n_functions > 1)
        add(&l, "several functions", "", mil->functions[1].name, 9);
    for (size_t f = 0; f < mil->n_functions; f++) {
        l.function = mil->functions[f].name;
        add_interface(&l, &mil->interfaces[f]);
        add_block(&l, &mil->functions[f].block);
    }
    for (size_t f = 0; f < mil->n_functions; f++)
        add(&l, mil->functions[f].opset_name, mil->functions[f].name, "", mil->functions[f].opset);
    add(&l, "specification version", "", "", mil->spec_version);
    program->info.n_requirements = l.n;
    return l.failed ? teg_base_fail_memory(err, "requirements", l.capacity * sizeof *program->requirements) : TEG_OK;
}

/* ---- asking ---- */

enum teg_status teg_program_requirement(const struct teg_program *program, size_t index,
                                        struct teg_requirement *requirement)
{
    if (index >= program->info.n_requirements)
        return TEG_ERR_ARGUMENT;
    *requirement = program->requirements[index];
    return TEG_OK;
}

const char *teg_program_minimum_systems(const struct teg_program *program)
{
    return releases[release_of(program->spec_version)].minimum;
}

bool teg_target_version(const char *target, uint32_t *spec_version)
{
    for (size_t s = 0; s < n_systems; s++) {
        const size_t n = strlen(system_names[s]);
        if (strncasecmp(target, system_names[s], n) != 0)
            continue;
        char *end = NULL;
        const char *const digits = target + n + (target[n] == ' ');
        const unsigned long version = *digits >= '0' && *digits <= '9' ? strtoul(digits, &end, 10) : 0;
        if (!end || (*end != '\0' && *end != '.'))
            return false;
        *spec_version = 0;
        for (size_t i = 0; i < n_releases; i++)
            if (releases[i].of[s] && version >= releases[i].of[s])
                *spec_version = releases[i].spec_version;
        return true;
    }
    return false;
}

enum teg_status teg_program_check_target(const struct teg_program *program, const char *target, struct teg_error *err)
{
    uint32_t spec_version = 0;
    if (!teg_target_version(target, &spec_version))
        FAIL(err, TEG_ERR_ARGUMENT,
             "bad target: '%.40s': expected iOS, macOS, tvOS, watchOS or visionOS and a version, found another; "
             "write iOS18, say",
             target);
    if (spec_version < oldest_version)
        FAIL(err, TEG_ERR_UNSUPPORTED,
             "cannot run on %.40s: %.100s: expected a system that knows ML programs (%s), found an older one; choose "
             "a newer target",
             target, program->mil->path, releases[0].text);
    for (size_t i = 0; i < program->info.n_requirements; i++) {
        const struct teg_requirement *const r = &program->requirements[i];
        if (r->spec_version > spec_version)
            FAIL(err, TEG_ERR_UNSUPPORTED,
                 "cannot run on %.40s: %.60s%s%.80s%s%s%.60s%s: expected %s, found %.40s; choose a newer target or "
                 "export the model for this one",
                 target, r->feature, *r->where ? " at '" : "", r->where, *r->where ? "'" : "",
                 *r->function ? " of function '" : "", r->function, *r->function ? "'" : "", r->systems, target);
    }
    return TEG_OK;
}
