/* lm_cache.c: keys and values that a program takes as inputs and gives back as outputs, as programs before iOS 18 do.
 *
 * What comes out of a call goes into the next one. Three kinds are told apart by shapes alone:
 *   kept      as many slots out as in, and as many in the mask: the program writes rows P … P + T - 1 of them
 *   growing   the slots are open: P in, P + T out; where none may be empty, the first `pad` are never seen
 *   rolling   as many out as in, and T more in the mask: the oldest T fall out, the newest are last
 * Everything else (only new rows that come out, say) has no one meaning and is refused. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "contract.h"

/* ---- names ---- */

/* "past_key_values.0" and "present_key_values.0": the name without what tells in from out. */
static void bare_name(const char *name, char *out, size_t n_out)
{
    static const char *const words[] = {"past", "present", "previous", "prev",    "updated", "update", "new",
                                        "next", "output",  "input",    "current", "out",     "in"};
    size_t n = 0;
    while (*name && n + 1 < n_out) {
        size_t skip = 0;
        for (size_t i = 0; i < sizeof words / sizeof *words && !skip; i++) {
            size_t k = 0;
            while (words[i][k] && tolower((unsigned char)name[k]) == words[i][k])
                k++;
            skip = words[i][k] ? 0 : k;
        }
        if (!skip && isalnum((unsigned char)*name))
            out[n++] = (char)tolower((unsigned char)*name);
        name += skip ? skip : 1;
    }
    out[n] = '\0';
}

static bool same_name(const char *a, const char *b)
{
    char x[64], y[64];
    bare_name(a, x, sizeof x);
    bare_name(b, y, sizeof y);
    return x[0] && strcmp(x, y) == 0;
}

/* ---- shapes ---- */

static bool is_open(const struct teg_mil_feature *f, uint32_t d)
{
    return f->n_enumerated > 0 || f->lower[d] != f->upper[d];
}

/* An output may leave open what it likes; what it says must be that of the input, but for slots. */
static bool fits(const struct teg_mil_feature *in, const struct teg_mil_type *out, uint32_t slots)
{
    if (out->kind != TEG_MIL_TENSOR || out->rank != (int32_t)in->rank || teg_form_of(out->dtype) != TEG_FORM_F32)
        return false;
    for (uint32_t d = 0; d < in->rank; d++) {
        const bool same = out->dims[d] == TEG_MIL_UNKNOWN || is_open(in, d) || out->dims[d] == in->upper[d];
        if (!same && !(d == slots && is_open(in, d)))
            return false;
    }
    return true;
}

/* Slots of the mask where they are fixed; 0: open, or no mask. */
static int64_t mask_slots(const struct teg_contract *c)
{
    for (size_t i = 0; i < c->n_inputs; i++) {
        const struct teg_mil_feature *const f = c->inputs[i].feature;
        const enum teg_lm_role role = c->inputs[i].role;
        if ((role == TEG_LM_MASK || role == TEG_LM_KEEP) && f->rank && !is_open(f, f->rank - 1))
            return f->upper[f->rank - 1];
    }
    return 0;
}

static bool has_role(const struct teg_contract *c, enum teg_lm_role a, enum teg_lm_role b)
{
    for (size_t i = 0; i < c->n_inputs; i++)
        if (c->inputs[i].role == a || c->inputs[i].role == b)
            return true;
    return false;
}

/* Whether the program can know which slots are whose. Slots that grow from none say it by their number. */
static const char *missing_input(const struct teg_contract *c)
{
    const bool masked = has_role(c, TEG_LM_MASK, TEG_LM_KEEP);
    const bool placed = has_role(c, TEG_LM_POSITION, TEG_LM_POSITIONS);
    if (c->grows && c->pad == 0)
        return NULL;
    if (!c->grows && !c->rolls)
        return placed || has_role(c, TEG_LM_WRITES, TEG_LM_LENGTH)
                   ? NULL
                   : "expected an input that says which slots are written, found none";
    return masked && placed
               ? NULL
               : "expected a mask and positions as inputs, for some slots hold no token, found neither or one";
}

/* The dimension that counts slots: the open one; else that which has the mask's number, or T fewer. SIZE_MAX: none. */
static uint32_t find_slots(const struct teg_contract *c, const struct teg_mil_feature *f, bool *rolls)
{
    const int64_t wanted = mask_slots(c);
    uint32_t open = UINT32_MAX;
    *rolls = false;
    for (uint32_t d = 0; d < f->rank; d++)
        if (is_open(f, d)) {
            if (open != UINT32_MAX)
                return UINT32_MAX;
            open = d;
        }
    if (open != UINT32_MAX)
        return open;
    for (uint32_t d = f->rank; d-- > 1;)
        if (wanted && f->upper[d] == wanted)
            return d;
    for (uint32_t d = f->rank; d-- > 1 && wanted;)
        if (f->upper[d] + (int64_t)c->most == wanted) {
            *rolls = true;
            return d;
        }
    return wanted || f->rank < 3 ? UINT32_MAX : f->rank - 2;
}

/* ---- pairs ---- */

struct pairing {
    const struct teg_mil_program *program;
    const struct teg_mil_block *block;
    struct teg_contract *contract;
    struct teg_lm_cache *caches;
    const char *why;
    const char *about;
};

static bool is_taken(const struct pairing *p, size_t output)
{
    for (size_t i = 0; i < p->contract->n_caches; i++)
        if (p->caches[i].output == output)
            return true;
    return false;
}

static const struct teg_mil_feature *feature_of(const struct pairing *p, size_t cache)
{
    return p->contract->inputs[p->caches[cache].input].feature;
}

/* By name first, then in order. */
static bool pair(struct pairing *p)
{
    struct teg_contract *const c = p->contract;
    for (int by_order = 0; by_order < 2; by_order++)
        for (size_t i = 0; i < c->n_caches; i++) {
            struct teg_lm_cache *const cache = &p->caches[i];
            const struct teg_mil_feature *const f = feature_of(p, i);
            for (size_t o = 0; o < p->block->n_outputs && cache->output == SIZE_MAX; o++) {
                const struct teg_mil_var *const v = &p->program->vars[p->block->outputs[o]];
                if (!is_taken(p, o) && fits(f, &v->type, cache->slots_dim) && (by_order || same_name(f->name, v->name)))
                    cache->output = o;
            }
        }
    for (size_t i = 0; i < c->n_caches; i++)
        if (p->caches[i].output == SIZE_MAX) {
            p->about = feature_of(p, i)->name;
            p->why = "expected an output of its shape that goes into the next call, found none";
            return false;
        }
    return true;
}

static bool settle(struct pairing *p)
{
    struct teg_contract *const c = p->contract;
    for (size_t i = 0; i < c->n_caches; i++) {
        const struct teg_mil_feature *const f = feature_of(p, i);
        struct teg_lm_cache *const cache = &p->caches[i];
        bool rolls;
        const uint32_t d = f->rank >= 3 && !f->n_enumerated ? find_slots(c, f, &rolls) : UINT32_MAX;
        p->about = f->name;
        if (d == UINT32_MAX) {
            p->why = "expected keys or values with as many slots as the mask, or any number, found another shape";
            return false;
        }
        const bool grows = is_open(f, d);
        const size_t pad = grows && f->lower[d] > 0 ? (size_t)f->lower[d] : 0;
        if (i && (rolls != c->rolls || pad != c->pad || grows != c->grows)) {
            p->why = "expected all caches to have slots alike, found others";
            return false;
        }
        cache->slots_dim = d;
        c->rolls = rolls;
        c->grows = grows;
        c->pad = pad;
        c->cache_slots = grows ? 0 : (size_t)f->upper[d];
    }
    p->why = missing_input(c);
    return !p->why;
}

enum teg_status teg_contract_caches(const struct teg_mil_program *program, size_t function, struct teg_arena *arena,
                                    struct teg_contract *c, const char **about, const char **why, struct teg_error *err)
{
    struct teg_lm_cache *const caches = teg_arena_array(arena, c->n_inputs + 1, sizeof *caches);
    struct pairing p = {program, &program->functions[function].block, c, caches, NULL, NULL};
    *why = NULL;
    if (!caches)
        return teg_base_fail_memory(err, "contract", c->n_inputs * sizeof *caches);
    for (size_t i = 0; i < c->n_inputs; i++)
        if (c->inputs[i].role == TEG_LM_CACHE)
            caches[c->n_caches++] = (struct teg_lm_cache){.input = (uint32_t)i, .output = SIZE_MAX};
    c->caches = caches;
    if (c->n_caches && (!settle(&p) || !pair(&p))) {
        *about = p.about;
        *why = p.why;
    }
    return TEG_OK;
}

/* ---- arrays ---- */

bool teg_contract_gives_cache(const struct teg_contract *c, size_t output)
{
    for (size_t i = 0; i < c->n_caches; i++)
        if (c->caches[i].output == output)
            return true;
    return false;
}

struct teg_array *teg_contract_empty_cache(const struct teg_contract *c, size_t index,
                                           const struct teg_allocator *allocator)
{
    const struct teg_lm_cache *const cache = &c->caches[index];
    const struct teg_lm_input *const input = &c->inputs[cache->input];
    size_t dims[TEG_MIL_MAX_RANK];
    for (uint32_t d = 0; d < input->feature->rank; d++)
        dims[d] = d == cache->slots_dim && c->grows ? c->pad : (size_t)input->feature->upper[d];
    struct teg_array *const a = teg_array_new(allocator, input->var->type.dtype, input->feature->rank, dims);
    if (a && a->n)
        memset(a->f32, 0, a->n * sizeof *a->f32);
    return a;
}

uint64_t teg_contract_cache_bytes(const struct teg_contract *c, size_t n_tokens)
{
    uint64_t all = 0;
    for (size_t i = 0; i < c->n_caches; i++) {
        const struct teg_lm_cache *const cache = &c->caches[i];
        const struct teg_mil_feature *const f = c->inputs[cache->input].feature;
        uint64_t n = sizeof(float);
        for (uint32_t d = 0; d < f->rank; d++)
            n *= d == cache->slots_dim && c->grows ? n_tokens + c->pad : (uint64_t)f->upper[d];
        all += n;
    }
    return all;
}

int64_t teg_contract_first_slot(const struct teg_contract *c, size_t before)
{
    if (c->rolls)
        return (int64_t)c->cache_slots - (int64_t)before;
    return (int64_t)c->pad;
}
