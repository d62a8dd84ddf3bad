/* lm.c: the functions of a program as calls of a language model, and which of them takes the next tokens.
 *
 * A package has one function for any number of tokens, or a pair: `prefill` for a fixed number and one for single
 * tokens. Whole chunks go through the function that takes most; the rest of a prompt through the one that takes
 * fewer, down to single tokens. Only where none is small enough a call is padded, and then its state is not kept
 * (lm_session.c), so padding never is in a cache. Not taken: padding because the causal mask hides it. That the slots
 * are written again before they are seen is a promise that only tegula.json can give ("overwrites"). */
#include "lm.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/text.h"

enum { CONTEXT_OF_ANY = 4096 }; /* of programs without states whose token count has no limit */

/* ---- the model ---- */

static void insert(struct teg_lm *lm, const struct teg_contract *c)
{
    size_t at = lm->n_contracts++;
    for (; at > 0 && lm->contracts[at - 1].most < c->most; at--)
        lm->contracts[at] = lm->contracts[at - 1];
    lm->contracts[at] = *c;
}

static bool is_wanted(const struct teg_lm_functions *names, const char *function)
{
    const bool any = !names->prefill && !names->decode;
    return any || (names->prefill && strcmp(names->prefill, function) == 0) ||
           (names->decode && strcmp(names->decode, function) == 0);
}

static enum teg_status check_names(const struct teg_program *p, const struct teg_lm_functions *names,
                                   struct teg_error *err)
{
    size_t index = 0;
    if (names->prefill)
        TRY(teg_program_need_function(p, names->prefill, &index, err));
    return names->decode ? teg_program_need_function(p, names->decode, &index, err) : TEG_OK;
}

/* Functions that are not called like a language model are left out; the first reason stands where none is left. */
static enum teg_status find_contracts(struct teg_lm *lm, const struct teg_manifest *m, struct teg_arena *arena,
                                      struct teg_error *err)
{
    const struct teg_mil_program *const mil = lm->program->mil;
    struct teg_error first = {0}, *reason = &first;
    const size_t start = teg_program_find_function(lm->program, NULL);
    lm->contracts = teg_arena_array(arena, mil->n_functions, sizeof *lm->contracts);
    if (!lm->contracts)
        return teg_base_fail_memory(err, "contracts", mil->n_functions * sizeof *lm->contracts);
    for (size_t i = 0; i < mil->n_functions; i++) {
        const size_t f = start == SIZE_MAX ? i : (start + i) % mil->n_functions;
        struct teg_contract c;
        if (!is_wanted(&m->functions, mil->functions[f].name))
            continue;
        const enum teg_status status = teg_contract_find(mil, f, m, arena, &c, reason);
        if (status == TEG_OK)
            insert(lm, &c);
        else if (status != TEG_ERR_UNSUPPORTED || m->functions.prefill || m->functions.decode) {
            if (err)
                *err = first;
            return status;
        } else {
            reason = NULL; /* the first one stands */
        }
    }
    if (lm->n_contracts)
        return TEG_OK;
    if (err)
        *err = first;
    return first.status == TEG_OK ? TEG_ERR_UNSUPPORTED : first.status;
}

static bool keeps_any(const struct teg_contract *c)
{
    return c->n_states > 0 || c->n_caches > 0;
}

/* Functions that give no logits have no vocabulary; the others must agree. */
static enum teg_status settle(struct teg_lm *lm, struct teg_error *err)
{
    size_t n_stateful = 0;
    for (size_t i = 0; i < lm->n_contracts; i++) {
        const struct teg_contract *const c = &lm->contracts[i];
        if (c->vocab && lm->vocab && c->vocab != lm->vocab)
            FAIL(err, TEG_ERR_UNSUPPORTED,
                 "cannot run package as a language model: %.100s: logits: expected %u in all functions, found %u in "
                 "'%.60s'; name its functions in tegula.json",
                 lm->program->mil->path, lm->vocab, c->vocab, lm->program->mil->functions[c->function].name);
        lm->vocab = c->vocab ? c->vocab : lm->vocab;
        if (c->context && (!lm->context || c->context < lm->context))
            lm->context = c->context;
        n_stateful += keeps_any(c);
    }
    lm->is_stateless = n_stateful == 0;
    if (lm->is_stateless && !lm->context)
        lm->context = CONTEXT_OF_ANY;
    if (!lm->vocab)
        FAIL(err, TEG_ERR_UNSUPPORTED,
             "cannot run package as a language model: %.100s: outputs: expected logits, found none; name them in "
             "tegula.json",
             lm->program->mil->path);
    if (!lm->context)
        FAIL(err, TEG_ERR_UNSUPPORTED,
             "cannot run package as a language model: %.100s: context: expected states or a mask that say how many "
             "tokens fit, found none; give context in tegula.json",
             lm->program->mil->path);
    return TEG_OK;
}

/* Stateful and stateless functions of one program do not continue each other: the stateful ones are taken. */
static void drop_stateless(struct teg_lm *lm)
{
    size_t n = 0;
    for (size_t i = 0; i < lm->n_contracts; i++)
        if (lm->is_stateless || keeps_any(&lm->contracts[i]))
            lm->contracts[n++] = lm->contracts[i];
    lm->n_contracts = n;
}

/* What one function gives another one takes. */
static enum teg_status check_caches(struct teg_lm *lm, struct teg_error *err)
{
    const struct teg_contract *const first = &lm->contracts[0];
    lm->n_caches = first->n_caches;
    for (size_t i = 1; i < lm->n_contracts; i++) {
        const struct teg_contract *const c = &lm->contracts[i];
        if (c->n_caches != first->n_caches || c->cache_slots != first->cache_slots || c->pad != first->pad ||
            c->grows != first->grows || c->rolls != first->rolls)
            FAIL(err, TEG_ERR_UNSUPPORTED,
                 "cannot run package as a language model: %.100s: caches: expected the same inputs in all functions, "
                 "found others in '%.60s'; name its functions in tegula.json",
                 lm->program->mil->path, lm->program->mil->functions[c->function].name);
    }
    return TEG_OK;
}

enum teg_status teg_lm_new(struct teg_program *program, const struct teg_manifest *manifest, struct teg_arena *arena,
                           struct teg_lm **out, struct teg_error *err)
{
    struct teg_lm *const lm = teg_arena_array(arena, 1, sizeof *lm);
    struct teg_buf text = {0};
    if (!lm)
        return teg_base_fail_memory(err, "language model", sizeof *lm);
    *lm = (struct teg_lm){.program = program,
                          .allocator = program->allocator,
                          .chunk = manifest->chunk,
                          .overwrites = manifest->overwrites,
                          .weights_bytes = program->n_decoded * sizeof(float),
                          .n_parameters = program->n_parameters};
    TRY(check_names(program, &manifest->functions, err));
    TRY(find_contracts(lm, manifest, arena, err));
    TRY(settle(lm, err));
    drop_stateless(lm);
    TRY(check_caches(lm, err));
    teg_buf_puts(&text, "run        op by op, as the program says\n");
    for (size_t i = 0; i < lm->n_contracts; i++)
        teg_contract_print(&lm->contracts[i], program->mil, &text);
    lm->contract_text = text.failed ? NULL : teg_arena_string(arena, text.bytes, text.n_bytes);
    teg_buf_free(&text);
    if (!lm->contract_text)
        return teg_base_fail_memory(err, "contract", 64);
    *out = lm;
    return TEG_OK;
}

/* ---- the next call ---- */

/* Without states every call computes the text from its beginning. */
static bool next_stateless(const struct teg_lm *lm, size_t left, bool all_rows, struct teg_lm_step *step)
{
    step->n = 0;
    for (size_t i = 0; i < lm->n_contracts; i++) {
        const struct teg_contract *const c = &lm->contracts[i];
        const size_t n = teg_contract_fit_up(c, left);
        const bool fits = c->rows == TEG_LM_ALL_LOGITS && c->n_logits;
        const bool last_fits = c->n_logits && c->rows == TEG_LM_LAST_LOGITS && n == left && !all_rows;
        if (n && (fits || last_fits) && (step->n == 0 || n < step->n))
            *step = (struct teg_lm_step){c, n, left, false};
    }
    return step->n > 0;
}

/* Tokens of a call without padding; 0: none. */
static size_t whole_call(const struct teg_contract *c, size_t left, size_t chunk, bool all_rows)
{
    size_t n = teg_contract_fit_down(c, c->least == c->most ? left : teg_min(left, chunk));
    const bool every = c->n_logits && c->rows == TEG_LM_ALL_LOGITS;
    if (all_rows && !every)
        return c->n_logits ? teg_contract_fit_down(c, 1) : 0;
    if (n == left && !c->n_logits)
        n = left > 1 ? teg_contract_fit_down(c, left - 1) : 0;
    return n;
}

bool teg_lm_next(const struct teg_lm *lm, size_t before, size_t left, size_t chunk, bool all_rows,
                 struct teg_lm_step *step)
{
    if (lm->is_stateless)
        return next_stateless(lm, left, all_rows, step);
    struct teg_lm_step whole = {0}, padded = {0};
    for (size_t i = 0; i < lm->n_contracts; i++) {
        const struct teg_contract *const c = &lm->contracts[i];
        const size_t n = whole_call(c, left, chunk, all_rows);
        if (n > whole.n)
            whole = (struct teg_lm_step){c, n, n, true};
        const bool every = c->n_logits && c->rows == TEG_LM_ALL_LOGITS;
        const size_t real = every ? left : all_rows ? 0 : left - 1;
        const size_t up = real ? teg_contract_fit_up(c, real) : 0;
        if (up && (every || lm->overwrites) && before + up <= lm->context && (!padded.n || up < padded.n))
            padded = (struct teg_lm_step){c, up, real, lm->overwrites};
    }
    const bool pads = padded.n && (!whole.n || (lm->overwrites && padded.real > whole.n));
    *step = pads ? padded : whole;
    return step->n > 0;
}

/* ---- a call ---- */

void teg_lm_result_free(const struct teg_lm *lm, struct teg_lm_result *result)
{
    for (size_t i = 0; result->arrays && i < result->n_arrays; i++)
        teg_array_drop(lm->allocator, result->arrays[i]);
    if (result->arrays)
        lm->allocator->free(lm->allocator->ctx, result->arrays, (result->n_arrays + 1) * sizeof *result->arrays);
    result->arrays = NULL;
}

struct teg_array *teg_lm_cache_of(const struct teg_lm_step *step, const struct teg_lm_result *result, size_t index)
{
    return result->arrays[step->contract->caches[index].output];
}

static enum teg_status make_inputs(const struct teg_lm *lm, const struct teg_contract *c,
                                   const struct teg_lm_call *call, struct teg_array *const *caches,
                                   struct teg_array **inputs, struct teg_error *err)
{
    for (size_t i = 0; i < c->n_caches; i++)
        inputs[c->caches[i].input] = teg_array_ref(caches[i]);
    for (size_t i = 0; i < c->n_inputs; i++)
        if (c->inputs[i].role != TEG_LM_CACHE)
            TRY(teg_contract_input(c, i, call, lm->allocator, &inputs[i], err));
    return TEG_OK;
}

enum teg_status teg_lm_call(const struct teg_lm *lm, const struct teg_lm_step *step, const int32_t *ids, size_t before,
                            struct teg_eval_state *state, struct teg_array *const *caches, const volatile bool *stop,
                            const struct teg_eval_watch *watch, struct teg_lm_result *result, struct teg_error *err)
{
    const struct teg_contract *const c = step->contract;
    const struct teg_allocator *const a = lm->allocator;
    const struct teg_lm_call call = {ids, before, step->real, step->n};
    const size_t n_outputs = lm->program->mil->functions[c->function].block.n_outputs;
    const size_t input_bytes = (c->n_inputs + 1) * sizeof(struct teg_array *);
    const struct teg_eval *eval = NULL;
    TRY(teg_program_eval(lm->program, c->function, &eval, err));
    struct teg_array **const inputs = a->alloc(a->ctx, input_bytes, _Alignof(struct teg_array *));
    *result = (struct teg_lm_result){.n_arrays = n_outputs};
    result->arrays = a->alloc(a->ctx, (n_outputs + 1) * sizeof *result->arrays, _Alignof(struct teg_array *));
    enum teg_status status = TEG_OK;
    if (inputs)
        memset(inputs, 0, input_bytes);
    if (result->arrays)
        memset(result->arrays, 0, (n_outputs + 1) * sizeof *result->arrays);
    if (!inputs || !result->arrays)
        status = teg_base_fail_memory(err, "a call of a language model", input_bytes);
    if (status == TEG_OK)
        status = make_inputs(lm, c, &call, caches, inputs, err);
    if (status == TEG_OK)
        status = teg_eval_run_watched(eval, inputs, state, stop, watch, result->arrays, &result->report, err);
    for (size_t i = 0; inputs && i < c->n_inputs; i++)
        teg_array_drop(a, inputs[i]);
    if (inputs)
        a->free(a->ctx, inputs, input_bytes);
    if (status != TEG_OK)
        teg_lm_result_free(lm, result);
    return status;
}

enum teg_status teg_lm_row(const struct teg_lm *lm, const struct teg_lm_step *step, const struct teg_lm_result *result,
                           size_t row, float *logits, struct teg_error *err)
{
    const struct teg_contract *const c = step->contract;
    const struct teg_mil_function *const f = &lm->program->mil->functions[c->function];
    size_t at = 0;
    for (size_t i = 0; i < c->n_logits; i++) {
        const struct teg_array *const a = result->arrays[c->logits[i]];
        const size_t width = a && a->rank ? a->dims[a->rank - 1] : 0;
        const size_t n_rows = width ? a->n / width : 0;
        const size_t wanted = c->rows == TEG_LM_LAST_LOGITS ? 0 : row;
        if (!a || a->form != TEG_FORM_F32 || n_rows != (c->rows == TEG_LM_LAST_LOGITS ? 1 : step->n) ||
            width > lm->vocab - at)
            FAIL(err, TEG_ERR_UNSUPPORTED,
                 "cannot run package as a language model: function %.60s, output '%.60s': expected logits of %zu "
                 "tokens, "
                 "found %zu rows of %zu; correct its role in tegula.json",
                 f->name, lm->program->mil->vars[f->block.outputs[c->logits[i]]].name, step->n, n_rows, width);
        memcpy(logits + at, a->f32 + wanted * width, width * sizeof *logits);
        at += width;
    }
    return TEG_OK;
}

/* ---- places ---- */

long teg_lm_layer_in(const char *name)
{
    static const char *const words[] = {"layers", "layer", "blocks", "block", "blk"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const char *const at = strstr(name, words[i]);
        const char *const digits = at ? at + strlen(words[i]) + 1 : NULL;
        if (at && (digits[-1] == '_' || digits[-1] == '.') && isdigit((unsigned char)*digits))
            return strtol(digits, NULL, 10);
    }
    return -1;
}

void teg_lm_place(const struct teg_lm *lm, const struct teg_contract *contract, const char *op, char *text, size_t n)
{
    const struct teg_mil_program *const mil = lm->program->mil;
    const struct teg_mil_block *const b = &mil->functions[contract->function].block;
    long layer = -1;
    for (size_t i = 0; i < b->n_ops; i++) {
        const struct teg_mil_op *const o = &b->ops[i];
        for (size_t a = 0; a < o->n_args; a++)
            for (size_t k = 0; k < o->args[a].n_vars; k++) {
                const long found = teg_lm_layer_in(mil->vars[o->args[a].vars[k]].name);
                layer = found >= 0 && strncmp(o->type, "constexpr", 9) != 0 ? found : layer;
            }
        const char *const name = *o->name ? o->name : o->n_outputs ? mil->vars[o->outputs[0]].name : o->type;
        if (strcmp(name, op) == 0)
            break;
    }
    if (layer >= 0)
        (void)snprintf(text, n, "op %.120s (layer %ld)", op, layer);
    else
        (void)snprintf(text, n, "op %.120s", op);
}
