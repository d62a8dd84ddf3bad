/* parts.c: the packages of a tegula.json, wired to one program.
 *
 * The parts stand in the order of the computation. Activations go from each part to the next; parts whose outputs are
 * logits all read the activations of the last part before them that gave some, so a head may come in pieces, whose
 * logits are put side by side. Ids, positions and masks are inputs of the whole. From these rules follow two functions:
 * `decode`, and `prefill` where some part has one for more tokens; a head that takes single tokens only is left out of
 * it, and its logits come from `decode`. A first part that makes activations, masks and tables from ids in a function
 * of its own has that function before all others, and what it makes goes to every part by name. */
#include "parts.h"

#include <string.h>

#include "base/check.h"
#include "contract.h"
#include "mil/join.h"

enum { DECODE, PREFILL, N_WAYS };

struct wiring {
    const char *path;
    const struct teg_manifest *manifest;
    struct teg_mil_program *program; /* with its parts */
    struct teg_arena *arena;         /* of this file's own tables */
    struct teg_error *err;
    struct teg_mil_stage *stages; /* of the function being wired */
    size_t n_stages;
    struct teg_mil_result *results;
    size_t n_results;
    struct teg_mil_wire hidden; /* the last activations; stage TEG_MIL_OUTSIDE: none yet */
    size_t n_tokens;            /* a call of this function has; 0: any number */
    bool is_prepared;           /* stage 0 makes inputs of the others */
};

static enum teg_status no_memory(const struct wiring *w)
{
    return teg_base_fail_memory(w->err, "parts of a model", 64);
}

/* ---- functions of a part ---- */

static const struct teg_mil_feature *data_input(const struct wiring *w, const struct teg_mil_interface *i)
{
    for (size_t k = 0; k < i->n_inputs; k++) {
        const enum teg_lm_role role = teg_contract_input_role(&i->inputs[k], w->manifest);
        if (role == TEG_LM_TOKENS || role == TEG_LM_HIDDEN)
            return &i->inputs[k];
    }
    return NULL;
}

/* The tokens that a function takes in a call: of ids and of activations [1, T, D] or [1, D, 1, T]. 0: several numbers.
 */
static size_t fixed_tokens(const struct wiring *w, const struct teg_mil_interface *i)
{
    const struct teg_mil_feature *const f = data_input(w, i);
    if (!f || !f->rank || f->n_enumerated)
        return 0;
    const uint32_t d = f->rank == 3 ? 1 : f->rank - 1;
    return f->lower[d] == f->upper[d] ? (size_t)f->upper[d] : 0;
}

static bool takes(const struct wiring *w, const struct teg_mil_interface *i, size_t n_tokens)
{
    const size_t fixed = fixed_tokens(w, i);
    return fixed == 0 || n_tokens == 0 || fixed == n_tokens;
}

static enum teg_status named_function(const struct wiring *w, size_t part, int way, size_t *function)
{
    const struct teg_mil_program *const p = w->program->parts[part];
    const struct teg_lm_functions *const own = &w->manifest->parts[part].functions, *const all =
                                                                                        &w->manifest->functions;
    const char *const mine = way == PREFILL ? own->prefill : own->decode;
    const char *const common = way == PREFILL ? all->prefill : all->decode;
    *function = SIZE_MAX;
    for (size_t f = 0; f < p->n_functions; f++)
        if ((mine && strcmp(p->functions[f].name, mine) == 0) ||
            (!mine && common && strcmp(p->functions[f].name, common) == 0))
            *function = f;
    if (mine && *function == SIZE_MAX)
        FAIL(w->err, TEG_ERR_ARGUMENT,
             "cannot join parts: %.100s: parts[%zu].functions: expected a function of %.100s, found '%.60s'; name one "
             "that "
             "it has",
             w->path, part, p->path, mine);
    return TEG_OK;
}

/* By its name, else by the number of tokens: one for decode, more for prefill. SIZE_MAX: the part has none. */
static enum teg_status find_function(const struct wiring *w, size_t part, int way, size_t *function)
{
    const struct teg_mil_program *const p = w->program->parts[part];
    TRY(named_function(w, part, way, function));
    for (size_t f = 0; f < p->n_functions && *function == SIZE_MAX; f++) {
        const size_t n = fixed_tokens(w, &p->interfaces[f]);
        if (way == DECODE ? n == 1 : n > 1)
            *function = f;
    }
    for (size_t f = 0; f < p->n_functions && *function == SIZE_MAX; f++)
        if (fixed_tokens(w, &p->interfaces[f]) == 0)
            *function = f;
    if (way == DECODE && *function == SIZE_MAX)
        *function = 0;
    return TEG_OK;
}

/* ---- wires ---- */

static enum teg_lm_role output_role(const struct wiring *w, const struct teg_mil_interface *i,
                                    const struct teg_mil_feature *f, size_t part)
{
    const enum teg_lm_role role = teg_contract_output_role(f, w->manifest, false);
    if (role != TEG_LM_IGNORED || i->n_outputs > 1)
        return role;
    return part + 1 == w->program->n_parts ? TEG_LM_LOGITS : TEG_LM_HIDDEN;
}

static const struct teg_mil_feature *find_feature(const struct teg_mil_feature *features, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(features[i].name, name) == 0)
            return &features[i];
    return NULL;
}

/* An output of an earlier part that has the name; the nearest. */
static bool find_by_name(const struct wiring *w, const char *name, struct teg_mil_wire *wire)
{
    for (size_t s = w->n_stages; s-- > 0;) {
        const struct teg_mil_program *const p = w->program->parts[w->stages[s].program];
        const struct teg_mil_block *const b = &p->functions[w->stages[s].function].block;
        for (size_t o = 0; o < b->n_outputs; o++)
            if (strcmp(p->vars[b->outputs[o]].name, name) == 0) {
                *wire = (struct teg_mil_wire){.stage = s, .output = o};
                return true;
            }
    }
    return false;
}

static enum teg_status wire_input(const struct wiring *w, size_t part, const struct teg_mil_interface *i,
                                  const char *name, struct teg_mil_wire *wire)
{
    const struct teg_mil_feature *const f = find_feature(i->inputs, i->n_inputs, name);
    const enum teg_lm_role role = f ? teg_contract_input_role(f, w->manifest) : TEG_LM_UNKNOWN;
    *wire = (struct teg_mil_wire){.stage = TEG_MIL_OUTSIDE};
    if (role == TEG_LM_HIDDEN && w->hidden.stage == TEG_MIL_OUTSIDE)
        FAIL(w->err, TEG_ERR_FORMAT,
             "cannot join parts: %.100s: parts[%zu] (%.100s): input '%.60s': expected a part before it that gives "
             "activations, found none; list the parts in the order of the computation",
             w->path, part, w->program->parts[part]->path, name);
    const bool is_made = role == TEG_LM_UNKNOWN || (w->is_prepared && role == TEG_LM_MASK);
    if (role == TEG_LM_HIDDEN)
        *wire = w->hidden;
    else if (is_made)
        (void)find_by_name(w, name, wire);
    return TEG_OK;
}

/* The part's logits, or the activations that the next part reads. */
static void take_outputs(struct wiring *w, size_t part, size_t function)
{
    const struct teg_mil_program *const p = w->program->parts[part];
    const struct teg_mil_interface *const i = &p->interfaces[function];
    const struct teg_mil_block *const b = &p->functions[function].block;
    for (size_t o = 0; o < b->n_outputs; o++) {
        const struct teg_mil_feature *const f = find_feature(i->outputs, i->n_outputs, p->vars[b->outputs[o]].name);
        const enum teg_lm_role role = f ? output_role(w, i, f, part) : TEG_LM_IGNORED;
        if (role == TEG_LM_HIDDEN)
            w->hidden = (struct teg_mil_wire){.stage = w->n_stages - 1, .output = o};
        else if (role == TEG_LM_LOGITS)
            w->results[w->n_results++] = (struct teg_mil_result){w->n_stages - 1, o, NULL};
    }
}

static enum teg_status add_stage(struct wiring *w, size_t part, size_t function)
{
    const struct teg_mil_program *const p = w->program->parts[part];
    const struct teg_mil_block *const b = &p->functions[function].block;
    struct teg_mil_wire *const wires = teg_arena_array(w->arena, b->n_inputs, sizeof *wires);
    if (!wires)
        return no_memory(w);
    for (size_t i = 0, k = 0; i < b->n_inputs; i++)
        if (p->vars[b->inputs[i]].type.kind != TEG_MIL_STATE)
            TRY(wire_input(w, part, &p->interfaces[function], p->vars[b->inputs[i]].name, &wires[k++]));
    w->stages[w->n_stages++] = (struct teg_mil_stage){part, function, wires};
    take_outputs(w, part, function);
    return TEG_OK;
}

/* The function of the first part that takes ids, where the one that computes takes activations; SIZE_MAX: none. */
static size_t find_prepare(const struct wiring *w, size_t function)
{
    const struct teg_mil_program *const p = w->program->parts[0];
    const struct teg_mil_feature *const own = data_input(w, &p->interfaces[function]);
    for (size_t f = 0; f < p->n_functions && own && teg_contract_input_role(own, w->manifest) == TEG_LM_HIDDEN; f++) {
        const struct teg_mil_feature *const ids = data_input(w, &p->interfaces[f]);
        if (ids && teg_contract_input_role(ids, w->manifest) == TEG_LM_TOKENS && p->interfaces[f].n_states == 0)
            return f;
    }
    return SIZE_MAX;
}

/* ---- the two ways ---- */

/* Parts by their order, then the number that an output's name ends with: logits2 before logits10. */
static void sort_results(struct wiring *w, const struct teg_mil_program *program)
{
    for (size_t i = 1; i < w->n_results; i++)
        for (size_t k = i; k > 0; k--) {
            struct teg_mil_result *const a = &w->results[k - 1], *const b = &w->results[k];
            const struct teg_mil_program *const p = program->parts[w->stages[b->stage].program];
            const teg_mil_var_id *const outputs = p->functions[w->stages[b->stage].function].block.outputs;
            if (a->stage != b->stage || teg_contract_number(p->vars[outputs[a->output]].name) <=
                                            teg_contract_number(p->vars[outputs[b->output]].name))
                break;
            const struct teg_mil_result swap = *a;
            *a = *b;
            *b = swap;
        }
}

static enum teg_status name_results(struct wiring *w)
{
    if (w->n_results == 0 && w->hidden.stage != TEG_MIL_OUTSIDE)
        w->results[w->n_results++] = (struct teg_mil_result){w->hidden.stage, w->hidden.output, "hidden_states"};
    else if (w->n_results > 1)
        for (size_t i = 0; i < w->n_results; i++) {
            w->results[i].name = teg_arena_printf(&w->program->arena, "logits%zu", i + 1);
            if (!w->results[i].name)
                return no_memory(w);
        }
    return TEG_OK;
}

static enum teg_status start_way(struct wiring *w)
{
    size_t n_outputs = 1;
    for (size_t part = 0; part < w->program->n_parts; part++)
        for (size_t f = 0; f < w->program->parts[part]->n_functions; f++)
            n_outputs += w->program->parts[part]->functions[f].block.n_outputs;
    w->n_stages = w->n_results = 0;
    w->is_prepared = false;
    w->hidden = (struct teg_mil_wire){.stage = TEG_MIL_OUTSIDE};
    w->stages = teg_arena_array(w->arena, w->program->n_parts + 1, sizeof *w->stages);
    w->results = teg_arena_array(w->arena, n_outputs, sizeof *w->results);
    return w->stages && w->results ? TEG_OK : no_memory(w);
}

/* Every function of the part gives logits. */
static bool is_head(const struct wiring *w, size_t part)
{
    const struct teg_mil_program *const p = w->program->parts[part];
    for (size_t f = 0; f < p->n_functions; f++)
        for (size_t o = 0; o < p->interfaces[f].n_outputs; o++)
            if (output_role(w, &p->interfaces[f], &p->interfaces[f].outputs[o], part) == TEG_LM_HIDDEN)
                return false;
    return true;
}

/* *made false: there is no such way through the parts. */
static enum teg_status wire_way(struct wiring *w, int way, bool *made)
{
    bool is_other = way == DECODE;
    TRY(start_way(w));
    *made = false;
    for (size_t part = 0; part < w->program->n_parts; part++) {
        const struct teg_mil_program *const p = w->program->parts[part];
        size_t function = SIZE_MAX, decode = SIZE_MAX;
        TRY(find_function(w, part, way, &function));
        TRY(find_function(w, part, DECODE, &decode));
        const size_t n = function == SIZE_MAX ? 0 : fixed_tokens(w, &p->interfaces[function]);
        const bool is_in_the_way = function == SIZE_MAX || !takes(w, &p->interfaces[function], w->n_tokens);
        if (is_in_the_way && way == PREFILL && w->hidden.stage != TEG_MIL_OUTSIDE && is_head(w, part))
            continue;
        if (is_in_the_way && way == PREFILL)
            return TEG_OK;
        const size_t prepare = part == 0 && function != SIZE_MAX ? find_prepare(w, function) : SIZE_MAX;
        if (prepare != SIZE_MAX) {
            w->is_prepared = true;
            TRY(add_stage(w, part, prepare));
        }
        w->n_tokens = n ? n : w->n_tokens;
        is_other = is_other || function != decode;
        TRY(add_stage(w, part, function));
    }
    sort_results(w, w->program);
    *made = is_other;
    return name_results(w);
}

/* The entry of an input's enumerated shapes with so many tokens, or the first. */
static size_t entry_of(const struct teg_mil_feature *f, size_t n_tokens)
{
    for (size_t e = 0; e < f->n_enumerated; e++)
        for (uint32_t d = 0; d < f->rank; d++)
            if (f->enumerated[e][d] == (int64_t)n_tokens)
                return e;
    return 0;
}

/* An input of a part that takes several numbers of tokens, before parts that take one: that one. */
static void fix_input(struct teg_mil_feature *f, struct teg_mil_type *type, enum teg_lm_role role, size_t n_tokens)
{
    const size_t entry = entry_of(f, n_tokens);
    for (uint32_t d = 0; d < f->rank && (int32_t)d < type->rank; d++) {
        const bool is_tokens = role != TEG_LM_MASK || d + 2 == f->rank;
        const int64_t n = f->n_enumerated ? f->enumerated[entry][d] : (int64_t)n_tokens;
        if (type->dims[d] != TEG_MIL_UNKNOWN || (!is_tokens && !f->n_enumerated) || n < f->lower[d])
            continue;
        type->dims[d] = n;
        f->shape[d] = f->lower[d] = f->upper[d] = n;
    }
    f->n_enumerated = 0;
}

static void fix_tokens(const struct wiring *w, const char *name, size_t n_tokens)
{
    const struct teg_mil_program *const p = w->program;
    for (size_t f = 0; f < p->n_functions; f++) {
        const struct teg_mil_block *const b = &p->functions[f].block;
        for (size_t i = 0; strcmp(p->functions[f].name, name) == 0 && i < p->interfaces[f].n_inputs; i++) {
            struct teg_mil_feature *const feature = (struct teg_mil_feature *)&p->interfaces[f].inputs[i];
            const enum teg_lm_role role = teg_contract_input_role(feature, w->manifest);
            if (role == TEG_LM_TOKENS || role == TEG_LM_POSITIONS || role == TEG_LM_MASK)
                fix_input(feature, &p->vars[b->inputs[i]].type, role, n_tokens);
        }
    }
}

static enum teg_status wire_all(struct wiring *w)
{
    static const char *const names[] = {[DECODE] = "decode", [PREFILL] = "prefill"};
    struct teg_mil_joint joints[N_WAYS];
    size_t n = 0, n_tokens[N_WAYS] = {0};
    for (int way = DECODE; way < N_WAYS; way++) {
        bool made = false;
        w->n_tokens = 0;
        TRY(wire_way(w, way, &made));
        n_tokens[way] = made ? w->n_tokens : 0;
        if (made)
            joints[n++] = (struct teg_mil_joint){names[way], w->stages, w->n_stages, w->results, w->n_results};
    }
    TRY(teg_mil_join(w->program, joints, n, w->err));
    for (int way = DECODE; way < N_WAYS; way++)
        if (n_tokens[way])
            fix_tokens(w, names[way], n_tokens[way]);
    return TEG_OK;
}

/* ---- opening ---- */

static enum teg_status open_all(const struct teg_manifest *m, const struct teg_allocator *allocator,
                                struct teg_mil_program **parts, struct teg_error *err)
{
    for (size_t i = 0; i < m->n_parts; i++)
        TRY(teg_mil_open(m->parts[i].path, allocator, &parts[i], err));
    return TEG_OK;
}

static enum teg_status open_into(const char *path, const struct teg_manifest *m, const struct teg_allocator *allocator,
                                 struct teg_arena *arena, struct teg_mil_program *program, struct teg_error *err)
{
    struct teg_mil_program **const parts = teg_arena_array(arena, m->n_parts, sizeof(struct teg_mil_program *));
    if (!parts)
        return teg_base_fail_memory(err, "parts of a model", m->n_parts * sizeof(void *));
    enum teg_status status = open_all(m, allocator, parts, err);
    if (status == TEG_OK && !teg_mil_join_parts(program, parts, m->n_parts))
        status = teg_base_fail_memory(err, "parts of a model", m->n_parts * sizeof(void *));
    if (status != TEG_OK) {
        for (size_t i = 0; i < m->n_parts; i++)
            teg_mil_free(parts[i]);
        return status;
    }
    struct wiring w = {.path = path, .manifest = m, .program = program, .arena = arena, .err = err};
    return wire_all(&w);
}

enum teg_status teg_parts_open(const char *path, const struct teg_manifest *manifest,
                               const struct teg_allocator *allocator, struct teg_mil_program **program,
                               struct teg_error *err)
{
    struct teg_mil_program *made = NULL;
    struct teg_arena arena;
    TRY(teg_mil_join_new(path, allocator, &made, err));
    teg_arena_init(&arena, allocator);
    const enum teg_status status = open_into(path, manifest, allocator, &arena, made, err);
    teg_arena_free(&arena);
    if (status == TEG_OK)
        *program = made;
    else
        teg_mil_free(made);
    return status;
}
