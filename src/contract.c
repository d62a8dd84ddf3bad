/* contract.c: names, types and shapes of a function to the meaning of its inputs and outputs, and arrays for a call.
 *
 * Invariant: every input has a role or a default of its own, or there is no contract: a call never guesses a number.
 * Sizes that a function leaves open follow from the call: T where the role says tokens, before + T where it says slots;
 * of enumerated shapes all inputs take the entry that the tokens take. */
#include "contract.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/text.h"

/* ---- roles ---- */

enum number { ANY, WHOLE, REAL };
static const struct {
    const char *word; /* in the name, whatever its case */
    enum number number;
    enum teg_lm_role role;
} words[] = {
    {"update_mask", ANY, TEG_LM_WRITES},
    {"updatemask", ANY, TEG_LM_WRITES},
    {"mask", ANY, TEG_LM_MASK},
    {"current_pos", WHOLE, TEG_LM_POSITION},
    {"currentpos", WHOLE, TEG_LM_POSITION},
    {"past_length", WHOLE, TEG_LM_POSITION},
    {"pos", ANY, TEG_LM_POSITIONS},
    {"sequence_length", WHOLE, TEG_LM_LENGTH},
    {"sequencelength", WHOLE, TEG_LM_LENGTH},
    {"seq_len", WHOLE, TEG_LM_LENGTH},
    {"total_length", WHOLE, TEG_LM_LENGTH},
    {"last_token", WHOLE, TEG_LM_LAST},
    {"token_index", WHOLE, TEG_LM_LAST},
    {"ids", WHOLE, TEG_LM_TOKENS},
    {"token", WHOLE, TEG_LM_TOKENS},
    {"hidden", REAL, TEG_LM_HIDDEN},
    {"embed", REAL, TEG_LM_HIDDEN},
    {"cache", REAL, TEG_LM_CACHE},
    {"past", REAL, TEG_LM_CACHE},
    {"key", REAL, TEG_LM_CACHE},
    {"value", REAL, TEG_LM_CACHE},
};

static bool has_word(const char *name, const char *word)
{
    for (; *name; name++) {
        size_t i = 0;
        while (word[i] && tolower((unsigned char)name[i]) == word[i])
            i++;
        if (!word[i])
            return true;
    }
    return false;
}

static enum teg_lm_role given_role(const struct teg_lm_naming *names, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i].name, name) == 0)
            return names[i].role;
    return TEG_LM_UNKNOWN;
}

/* One element whatever the call. */
static bool is_single(const struct teg_mil_feature *f)
{
    for (uint32_t d = 0; d < f->rank; d++)
        if (f->upper[d] != 1)
            return false;
    return f->n_enumerated == 0;
}

enum teg_lm_role teg_contract_input_role(const struct teg_mil_feature *f, const struct teg_manifest *manifest)
{
    const enum teg_lm_role given = given_role(manifest->inputs, manifest->n_inputs, f->name);
    const bool is_real = teg_form_of(f->dtype) == TEG_FORM_F32;
    if (given != TEG_LM_UNKNOWN || f->kind != TEG_MIL_FEATURE_ARRAY)
        return given;
    enum teg_lm_role role = TEG_LM_UNKNOWN;
    for (size_t i = 0; i < sizeof words / sizeof *words && role == TEG_LM_UNKNOWN; i++)
        if (has_word(f->name, words[i].word) && (words[i].number == ANY || (words[i].number == REAL) == is_real))
            role = words[i].role;
    if (role == TEG_LM_MASK && f->rank <= 2 && !is_real)
        role = TEG_LM_KEEP;
    if (role == TEG_LM_CACHE && f->rank < 3)
        role = TEG_LM_UNKNOWN;
    return role;
}

enum teg_lm_role teg_contract_output_role(const struct teg_mil_feature *f, const struct teg_manifest *manifest,
                                          bool is_only_output)
{
    const enum teg_lm_role given = given_role(manifest->outputs, manifest->n_outputs, f->name);
    if (given != TEG_LM_UNKNOWN)
        return given;
    if (has_word(f->name, "logit"))
        return TEG_LM_LOGITS;
    if (has_word(f->name, "hidden") || has_word(f->name, "embed"))
        return TEG_LM_HIDDEN;
    return is_only_output ? TEG_LM_LOGITS : TEG_LM_IGNORED;
}

/* ---- shapes ---- */

/* The dimension that counts tokens: the one that is not fixed, or not 1; else the last. */
static uint32_t find_tokens_dim(const struct teg_mil_feature *f)
{
    for (uint32_t d = f->rank; d > 0; d--)
        if (f->lower[d - 1] != f->upper[d - 1] || f->upper[d - 1] != 1)
            return d - 1;
    return f->rank ? f->rank - 1 : 0;
}

static size_t entry_tokens(const struct teg_contract *c, size_t entry)
{
    const int64_t n = c->tokens->enumerated[entry][c->tokens_dim];
    return n > 0 ? (size_t)n : 0;
}

size_t teg_contract_fit_up(const struct teg_contract *c, size_t wanted)
{
    size_t best = 0;
    for (size_t i = 0; i < c->tokens->n_enumerated; i++)
        if (entry_tokens(c, i) >= wanted && (best == 0 || entry_tokens(c, i) < best))
            best = entry_tokens(c, i);
    if (c->tokens->n_enumerated)
        return best;
    return wanted <= c->most ? teg_max(wanted, c->least) : 0;
}

size_t teg_contract_fit_down(const struct teg_contract *c, size_t wanted)
{
    size_t best = 0;
    for (size_t i = 0; i < c->tokens->n_enumerated; i++)
        if (entry_tokens(c, i) <= wanted)
            best = teg_max(best, entry_tokens(c, i));
    if (c->tokens->n_enumerated)
        return best;
    return wanted >= c->least ? teg_min(wanted, c->most) : 0;
}

static size_t find_entry(const struct teg_contract *c, size_t n)
{
    size_t entry = 0;
    while (entry + 1 < c->tokens->n_enumerated && entry_tokens(c, entry) != n)
        entry++;
    return entry;
}

/* What a dimension that the function leaves open is for this call. */
static size_t open_dim(const struct teg_contract *c, const struct teg_lm_input *input, uint32_t dim, uint32_t rank,
                       const struct teg_lm_call *call)
{
    const size_t all = call->before + call->n + c->pad;
    switch (input->role) {
    case TEG_LM_MASK:
        return dim + 1 == rank ? all : call->n;
    case TEG_LM_KEEP:
    case TEG_LM_WRITES:
        return all;
    default:
        return call->n;
    }
}

static uint32_t input_dims(const struct teg_contract *c, const struct teg_lm_input *input,
                           const struct teg_lm_call *call, size_t *dims)
{
    const struct teg_mil_feature *const f = input->feature;
    const size_t entry = c->tokens->n_enumerated ? find_entry(c, call->n) : 0;
    for (uint32_t d = 0; d < f->rank; d++) {
        const bool is_fixed = f->lower[d] == f->upper[d];
        if (entry < f->n_enumerated)
            dims[d] = (size_t)f->enumerated[entry][d];
        else if (is_fixed)
            dims[d] = (size_t)f->upper[d];
        else
            dims[d] = teg_max(open_dim(c, input, d, f->rank, call), (size_t)f->lower[d]);
    }
    return f->rank;
}

/* ---- arrays ---- */

static void put(struct teg_array *a, size_t i, double value)
{
    if (a->form == TEG_FORM_F32)
        a->f32[i] = (float)value;
    else if (a->form == TEG_FORM_I32)
        a->i32[i] = (int32_t)value;
    else
        a->b[i] = value != 0;
}

/* Rows of padding see what a token in their place would, so that no row is empty. */
static void put_mask(const struct teg_contract *c, struct teg_array *a, const struct teg_lm_call *call)
{
    const int64_t first = teg_contract_first_slot(c, call->before);
    const size_t n_slots = a->rank ? a->dims[a->rank - 1] : 1;
    const size_t n_rows = a->rank > 1 ? a->dims[a->rank - 2] : 1;
    const bool adds = a->form == TEG_FORM_F32;
    for (size_t i = 0; i < a->n; i++) {
        const size_t slot = i % n_slots, row = i / n_slots % n_rows;
        const int64_t token = (int64_t)slot - first;
        const bool seen = token >= 0 && token <= (int64_t)(call->before + row);
        put(a, i, adds ? (seen ? 0.0 : -HUGE_VAL) : seen);
    }
}

/* The slots are the longest dimension. */
static void put_writes(struct teg_array *a, const struct teg_lm_call *call)
{
    uint32_t slots = 0;
    size_t inner = 1;
    for (uint32_t d = 1; d < a->rank; d++)
        if (a->dims[d] > a->dims[slots])
            slots = d;
    for (uint32_t d = slots + 1; d < a->rank; d++)
        inner *= a->dims[d];
    for (size_t i = 0; i < a->n; i++) {
        const size_t slot = a->rank ? i / inner % a->dims[slots] : 0;
        put(a, i, slot >= call->before && slot < call->before + call->real);
    }
}

static bool keeps(const struct teg_contract *c, const struct teg_lm_call *call, size_t slot)
{
    const int64_t token = (int64_t)slot - teg_contract_first_slot(c, call->before);
    return token >= 0 && token < (int64_t)(call->before + call->real);
}

static void fill(const struct teg_contract *c, const struct teg_lm_input *input, const struct teg_lm_call *call,
                 struct teg_array *a)
{
    if (input->role == TEG_LM_MASK) {
        put_mask(c, a, call);
        return;
    }
    if (input->role == TEG_LM_WRITES) {
        put_writes(a, call);
        return;
    }
    for (size_t i = 0; i < a->n; i++) {
        double value = input->feature->default_value;
        if (input->role == TEG_LM_TOKENS)
            value = i < call->real ? (double)call->ids[i] : 0;
        else if (input->role == TEG_LM_POSITIONS)
            value = (double)(call->before + i);
        else if (input->role == TEG_LM_POSITION)
            value = (double)call->before;
        else if (input->role == TEG_LM_LENGTH)
            value = (double)(call->before + call->real);
        else if (input->role == TEG_LM_LAST)
            value = (double)(call->real - 1);
        else if (input->role == TEG_LM_KEEP)
            value = keeps(c, call, i);
        put(a, i, value);
    }
}

enum teg_status teg_contract_input(const struct teg_contract *c, size_t index, const struct teg_lm_call *call,
                                   const struct teg_allocator *allocator, struct teg_array **array,
                                   struct teg_error *err)
{
    const struct teg_lm_input *const input = &c->inputs[index];
    size_t dims[TEG_MIL_MAX_RANK];
    const uint32_t rank = input_dims(c, input, call, dims);
    struct teg_array *const a = teg_array_new(allocator, input->var->type.dtype, rank, dims);
    if (!a)
        return teg_base_fail_memory(err, "an input of a language model", call->n);
    fill(c, input, call, a);
    *array = a;
    return TEG_OK;
}

/* ---- finding it ---- */

struct finder {
    const struct teg_mil_program *program;
    const struct teg_mil_function *function;
    const struct teg_mil_interface *interface;
    const struct teg_manifest *manifest;
    struct teg_arena *arena;
    struct teg_contract *contract;
    struct teg_error *err;
};

#define NO_CONTRACT(f, ...)                                                                                            \
    do {                                                                                                               \
        char text_[256];                                                                                               \
        (void)snprintf(text_, sizeof text_, __VA_ARGS__);                                                              \
        FAIL((f)->err, TEG_ERR_UNSUPPORTED,                                                                            \
             "cannot run package as a language model: %.100s, function %.60s: %s; 'tegula predict' runs it as "        \
             "it is",                                                                                                  \
             (f)->program->path, (f)->function->name, text_);                                                          \
    } while (0)

static const struct teg_mil_feature *find_feature(const struct teg_mil_feature *features, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(features[i].name, name) == 0)
            return &features[i];
    return NULL;
}

static enum teg_status find_inputs(const struct finder *f)
{
    const struct teg_mil_block *const b = &f->function->block;
    struct teg_contract *const c = f->contract;
    struct teg_lm_input *const inputs = teg_arena_array(f->arena, b->n_inputs, sizeof *inputs);
    if (!inputs)
        return teg_base_fail_memory(f->err, "contract", b->n_inputs * sizeof *inputs);
    for (size_t i = 0; i < b->n_inputs; i++) {
        const struct teg_mil_var *const v = &f->program->vars[b->inputs[i]];
        if (v->type.kind == TEG_MIL_STATE) {
            c->n_states++;
            continue;
        }
        const struct teg_mil_feature *const feature =
            find_feature(f->interface->inputs, f->interface->n_inputs, v->name);
        const bool is_array = feature && feature->kind == TEG_MIL_FEATURE_ARRAY && feature->has_shape;
        const enum teg_lm_role role = is_array ? teg_contract_input_role(feature, f->manifest) : TEG_LM_UNKNOWN;
        if (!is_array || (role == TEG_LM_UNKNOWN && !feature->optional))
            NO_CONTRACT(f,
                        "input '%.60s': expected ids, positions or a mask, found another; name its role in tegula.json",
                        v->name);
        if (role == TEG_LM_HIDDEN)
            NO_CONTRACT(f,
                        "input '%.60s': expected token ids, found activations: this is a part of a model; name all its "
                        "parts in tegula.json",
                        v->name);
        if (role == TEG_LM_TOKENS && c->tokens)
            NO_CONTRACT(f,
                        "inputs '%.60s' and '%.60s': expected token ids once, found twice; name their roles in "
                        "tegula.json",
                        c->tokens->name, v->name);
        if (role == TEG_LM_TOKENS)
            c->tokens = feature;
        inputs[c->n_inputs++] = (struct teg_lm_input){v, feature, role};
    }
    c->inputs = inputs;
    if (!c->tokens)
        NO_CONTRACT(f, "inputs: expected an input for token ids, found none; name it in tegula.json");
    return TEG_OK;
}

/* Positions of one element, where a call may have more tokens, are the first one's. */
static void settle_tokens(struct teg_contract *c, struct teg_lm_input *inputs)
{
    const struct teg_mil_feature *const t = c->tokens;
    c->tokens_dim = find_tokens_dim(t);
    if (t->n_enumerated) {
        for (size_t i = 0; i < t->n_enumerated; i++) {
            c->least = i ? teg_min(c->least, entry_tokens(c, i)) : entry_tokens(c, i);
            c->most = teg_max(c->most, entry_tokens(c, i));
        }
    } else {
        const int64_t low = t->rank ? t->lower[c->tokens_dim] : 1, high = t->rank ? t->upper[c->tokens_dim] : 1;
        c->least = low > 1 ? (size_t)low : 1;
        c->most = high < 0 || high > INT32_MAX ? INT32_MAX : teg_max((size_t)high, c->least);
    }
    for (size_t i = 0; i < c->n_inputs; i++)
        if (inputs[i].role == TEG_LM_POSITIONS && is_single(inputs[i].feature) && c->most > 1)
            inputs[i].role = TEG_LM_POSITION;
}

static void shrink(uint32_t *context, int64_t n)
{
    if (n > 0 && n <= INT32_MAX && (*context == 0 || n < *context))
        *context = (uint32_t)n;
}

static int64_t most_slots(const struct teg_mil_feature *f)
{
    int64_t most = 0;
    for (size_t i = 0; i < f->n_enumerated; i++)
        most = f->enumerated[i][f->rank - 1] > most ? f->enumerated[i][f->rank - 1] : most;
    return f->n_enumerated ? most : f->upper[f->rank - 1];
}

/* What the package has room for; 0: it does not say. Slots: the last dimension of masks; of caches the one before the
 * last, which is the head's width. */
static uint32_t room_of(const struct finder *f)
{
    const struct teg_contract *const c = f->contract;
    const struct teg_mil_block *const b = &f->function->block;
    uint32_t room = 0;
    for (size_t i = 0; i < c->n_inputs; i++)
        if ((c->inputs[i].role == TEG_LM_MASK || c->inputs[i].role == TEG_LM_KEEP) && c->inputs[i].feature->rank)
            shrink(&room, most_slots(c->inputs[i].feature));
    for (size_t i = 0; i < b->n_inputs && room == 0; i++) {
        const struct teg_mil_type *const t = &f->program->vars[b->inputs[i]].type;
        if (t->kind == TEG_MIL_STATE && t->rank >= 3)
            shrink(&room, t->dims[t->rank - 2]);
    }
    for (size_t i = 0; i < c->n_caches; i++) /* the last call's tokens come on top of what fits */
        if (!c->rolls)
            shrink(&room, c->inputs[c->caches[i].input].feature->upper[c->caches[i].slots_dim]);
    if (room > c->pad && c->n_caches)
        room -= (uint32_t)c->pad;
    if (c->n_states == 0 && c->n_caches == 0 && c->most < INT32_MAX)
        shrink(&room, (int64_t)c->most);
    return room;
}

static enum teg_status find_context(const struct finder *f)
{
    const uint32_t room = room_of(f), wanted = f->manifest->context;
    if (wanted && room && wanted > room && !f->contract->rolls) /* what rolls forgets */
        FAIL(f->err, TEG_ERR_ARGUMENT,
             "cannot run package as a language model: %.100s, function %.60s: context in tegula.json: expected at most "
             "the %u tokens that the package has room for, found %u; give a smaller one",
             f->program->path, f->function->name, room, wanted);
    f->contract->context = wanted ? wanted : room;
    return TEG_OK;
}

long teg_contract_number(const char *name)
{
    size_t n = strlen(name);
    while (n && isdigit((unsigned char)name[n - 1]))
        n--;
    return strtol(name + n, NULL, 10);
}

static const char *output_name(const struct finder *f, size_t output)
{
    return f->program->vars[f->function->block.outputs[output]].name;
}

static enum teg_status find_outputs(const struct finder *f)
{
    const struct teg_mil_block *const b = &f->function->block;
    struct teg_contract *const c = f->contract;
    size_t *const logits = teg_arena_array(f->arena, b->n_outputs, sizeof *logits);
    if (!logits)
        return teg_base_fail_memory(f->err, "contract", b->n_outputs * sizeof *logits);
    for (size_t i = 0; i < b->n_outputs; i++) {
        const struct teg_mil_feature *const feature =
            find_feature(f->interface->outputs, f->interface->n_outputs, output_name(f, i));
        const bool is_only = b->n_outputs == 1 + c->n_caches;
        if (!feature || teg_contract_gives_cache(c, i) ||
            teg_contract_output_role(feature, f->manifest, is_only) != TEG_LM_LOGITS)
            continue;
        size_t at = c->n_logits++;
        for (; at > 0 && teg_contract_number(output_name(f, logits[at - 1])) > teg_contract_number(output_name(f, i));
             at--)
            logits[at] = logits[at - 1];
        logits[at] = i;
    }
    c->logits = logits;
    int64_t vocab = 0;
    for (size_t i = 0; i < c->n_logits; i++) {
        const struct teg_mil_type *const t = &f->program->vars[b->outputs[logits[i]]].type;
        const int64_t width = t->kind == TEG_MIL_TENSOR && t->rank >= 1 ? t->dims[t->rank - 1] : -1;
        if (width < 1 || vocab + width > INT32_MAX)
            NO_CONTRACT(f, "output '%.60s': expected logits [1, T, V] with a known V, found another shape",
                        output_name(f, logits[i]));
        vocab += width;
        c->rows = t->rank >= 2 && t->dims[t->rank - 2] == 1 && c->most > 1 ? TEG_LM_LAST_LOGITS : TEG_LM_ALL_LOGITS;
    }
    c->vocab = (uint32_t)vocab;
    return TEG_OK;
}

enum teg_status teg_contract_find(const struct teg_mil_program *program, size_t function,
                                  const struct teg_manifest *manifest, struct teg_arena *arena,
                                  struct teg_contract *contract, struct teg_error *err)
{
    *contract = (struct teg_contract){.function = function};
    const struct finder f = {
        program, &program->functions[function], &program->interfaces[function], manifest, arena, contract, err};
    TRY(find_inputs(&f));
    settle_tokens(contract, (struct teg_lm_input *)contract->inputs);
    const char *about = "", *why;
    TRY(teg_contract_caches(program, function, arena, contract, &about, &why, err));
    if (why)
        NO_CONTRACT(&f, "input '%.60s': %s", about, why);
    TRY(find_context(&f));
    return find_outputs(&f);
}

/* ---- text ---- */

void teg_contract_print(const struct teg_contract *c, const struct teg_mil_program *program, struct teg_buf *out)
{
    const struct teg_mil_function *const f = &program->functions[c->function];
    teg_buf_printf(out, "function   %s\n", f->name);
    if (c->least == c->most)
        teg_buf_printf(out, "tokens     T = %zu a call\n", c->most);
    else
        teg_buf_printf(out, "tokens     T = %zu to %zu a call\n", c->least, c->most);
    for (size_t i = 0; i < c->n_inputs; i++)
        teg_buf_printf(out, "input      %s: %s\n", c->inputs[i].feature->name,
                       c->inputs[i].role == TEG_LM_UNKNOWN ? "its default" : teg_lm_role_name(c->inputs[i].role));
    for (size_t i = 0; i < f->block.n_inputs; i++)
        if (program->vars[f->block.inputs[i]].type.kind == TEG_MIL_STATE)
            teg_buf_printf(out, "state      %s\n", program->vars[f->block.inputs[i]].name);
    for (size_t i = 0; i < c->n_caches; i++)
        teg_buf_printf(out, "output     %s: the next call's %s\n",
                       program->vars[f->block.outputs[c->caches[i].output]].name,
                       c->inputs[c->caches[i].input].feature->name);
    for (size_t i = 0; i < c->n_logits; i++)
        teg_buf_printf(out, "output     %s: logits of %s%s\n", program->vars[f->block.outputs[c->logits[i]]].name,
                       c->rows == TEG_LM_LAST_LOGITS ? "the last token" : "every token",
                       c->n_logits > 1 ? ", a part of the vocabulary" : "");
    if (!c->n_logits)
        teg_buf_puts(out, "output     no logits: for all tokens but the last\n");
}
