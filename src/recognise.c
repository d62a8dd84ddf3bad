/* recognise.c: what raise makes of a program's function, and why not: for people who wonder why a package runs op by
 * op.
 *
 * The walk is made anew for every question. A program that is only looked at holds nothing of it. */
#include "base/text.h"
#include "contract.h"
#include "package.h"
#include "pass/raise.h"
#include "program.h"

void teg_recognition_free(struct teg_recognition *recognition)
{
    teg_text_free(&recognition->contract);
    teg_text_free(&recognition->composites);
    teg_text_free(&recognition->ops);
    teg_text_free(&recognition->reason);
    teg_text_free(&recognition->call);
    *recognition = (struct teg_recognition){0};
}

static enum teg_status take_texts(struct teg_raise_survey *survey, struct teg_recognition *out, struct teg_error *err)
{
    TRY(teg_buf_take(&survey->contract, &out->contract, "contract", err));
    TRY(teg_buf_take(&survey->composites, &out->composites, "contract", err));
    TRY(teg_buf_take(&survey->ops, &out->ops, "ops", err));
    return teg_buf_take(&survey->reason, &out->reason, "reason", err);
}

/* What tegula.json says; its faults are told by who runs the model. */
static void read_manifest(const struct teg_program *program, size_t index, struct teg_arena *arena,
                          struct teg_manifest *manifest, struct teg_raise_options *options)
{
    const bool is_package = teg_package_is(program->mil->path);
    *manifest = (struct teg_manifest){0};
    if (is_package && teg_package_manifest(program->mil->path, arena, manifest, NULL) != TEG_OK)
        *manifest = (struct teg_manifest){0};
    if (teg_package_names(program->mil, manifest, arena, options, NULL) != TEG_OK)
        *options = (struct teg_raise_options){0};
    options->function = program->mil->functions[index].name;
}

/* A function that is called like a language model though its graph is not known. A classifier of texts has names like
 * one; a language model keeps something, or has logits for each token. */
static enum teg_status find_call(const struct teg_program *program, size_t index, const struct teg_manifest *manifest,
                                 struct teg_arena *arena, struct teg_text *call, struct teg_error *err)
{
    struct teg_contract c;
    struct teg_buf text = {0};
    bool any_logits = false; /* a function that only fills the caches has none */
    for (size_t i = 0; i < program->mil->n_functions; i++)
        any_logits =
            any_logits || (teg_contract_find(program->mil, i, manifest, arena, &c, NULL) == TEG_OK && c.n_logits > 0);
    if (any_logits && teg_contract_find(program->mil, index, manifest, arena, &c, NULL) == TEG_OK &&
        (c.n_states || c.n_caches || (c.n_logits && c.rows == TEG_LM_ALL_LOGITS)))
        teg_contract_print(&c, program->mil, &text);
    return teg_buf_take(&text, call, "contract", err);
}

static enum teg_status recognise(const struct teg_program *program, size_t index, struct teg_arena *arena,
                                 struct teg_recognition *r, struct teg_error *err)
{
    struct teg_manifest manifest;
    struct teg_raise_options options;
    struct teg_raise_survey survey;
    read_manifest(program, index, arena, &manifest, &options);
    TRY(teg_raise_look(program->mil, &options, &survey, err));
    *r = (struct teg_recognition){
        .is_model = survey.is_model, .n_ops = survey.n_ops, .n_understood = survey.n_understood};
    const enum teg_status status = take_texts(&survey, r, err);
    teg_raise_survey_free(&survey);
    return status == TEG_OK && !r->is_model ? find_call(program, index, &manifest, arena, &r->call, err) : status;
}

enum teg_status teg_program_recognise(const struct teg_program *program, const char *function,
                                      struct teg_recognition *recognition, struct teg_error *err)
{
    size_t index;
    struct teg_arena arena;
    struct teg_recognition r = {0};
    TRY(teg_program_need_function(program, function, &index, err));
    teg_arena_init(&arena, program->allocator);
    const enum teg_status status = recognise(program, index, &arena, &r, err);
    teg_arena_free(&arena);
    if (status == TEG_OK)
        *recognition = r;
    else
        teg_recognition_free(&r);
    return status;
}

enum teg_status teg_program_why_not(const struct teg_program *program, const char *function, const char *op,
                                    struct teg_text *text, struct teg_error *err)
{
    size_t index;
    struct teg_arena arena;
    struct teg_buf lines = {0};
    struct teg_manifest manifest;
    struct teg_raise_options options;
    TRY(teg_program_need_function(program, function, &index, err));
    teg_arena_init(&arena, program->allocator);
    read_manifest(program, index, &arena, &manifest, &options);
    const enum teg_status status = teg_raise_why_not(program->mil, &options, op, &lines, err);
    teg_arena_free(&arena);
    if (status == TEG_OK)
        return teg_buf_take(&lines, text, "explanation", err);
    teg_buf_free(&lines);
    return status;
}
