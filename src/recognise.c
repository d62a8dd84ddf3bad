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

/* A function that is called like a language model though its graph is not known. A classifier of texts has names like
 * one; a language model keeps something, or has logits for each token. */
static enum teg_status find_call(const struct teg_program *program, size_t index, struct teg_text *call,
                                 struct teg_error *err)
{
    struct teg_arena arena;
    struct teg_manifest manifest = {0};
    struct teg_contract c;
    struct teg_buf text = {0};
    teg_arena_init(&arena, program->allocator);
    if (teg_package_is(program->mil->path))
        (void)teg_package_manifest(program->mil->path, &arena, &manifest,
                                   NULL); /* its faults are told by who runs it */
    if (teg_contract_find(program->mil, index, &manifest, &arena, &c, NULL) == TEG_OK &&
        (c.n_states || c.n_caches || (c.n_logits && c.rows == TEG_LM_ALL_LOGITS)))
        teg_contract_print(&c, program->mil, &text);
    teg_arena_free(&arena);
    return teg_buf_take(&text, call, "contract", err);
}

enum teg_status teg_program_recognise(const struct teg_program *program, const char *function,
                                      struct teg_recognition *recognition, struct teg_error *err)
{
    size_t index;
    struct teg_raise_survey survey;
    TRY(teg_program_need_function(program, function, &index, err));
    TRY(teg_raise_look(program->mil, program->mil->functions[index].name, &survey, err));
    struct teg_recognition r = {
        .is_model = survey.is_model, .n_ops = survey.n_ops, .n_understood = survey.n_understood};
    enum teg_status status = take_texts(&survey, &r, err);
    teg_raise_survey_free(&survey);
    if (status == TEG_OK && !r.is_model)
        status = find_call(program, index, &r.call, err);
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
    struct teg_buf lines = {0};
    TRY(teg_program_need_function(program, function, &index, err));
    const enum teg_status status =
        teg_raise_why_not(program->mil, program->mil->functions[index].name, op, &lines, err);
    if (status == TEG_OK)
        return teg_buf_take(&lines, text, "explanation", err);
    teg_buf_free(&lines);
    return status;
}
