/* calibrate.c: a text through a model, for the commands that weigh errors by it. */
#include "convert.h"

int cli_calibrate(const char *path, const char *text_path, const struct cli_model_args *model_args, int64_t n_threads,
                  struct teg_calibration **calibration)
{
    struct cli_model_args exact = *model_args;
    struct teg_calibrate_options o;
    struct teg_model *model = NULL;
    struct teg_error err = {0};
    struct cli_progress progress;
    struct cli_bytes text = {0};
    struct cli_ids ids = {0};
    exact.mode = TEG_MODE_EXACT;
    teg_calibrate_options_default(&o);
    o.n_threads = (uint32_t)n_threads;
    o.progress = cli_progress_update;
    o.progress_ctx = &progress;
    int code = cli_input_read(text_path, "text", &text);
    if (code == CLI_DONE && text.n == 0)
        code = cli_fail("cannot calibrate: %s: expected a text of a few hundred words, found none; give another",
                        text_path);
    if (code == CLI_DONE)
        code = cli_model_open(path, &exact, false, &model);
    if (code == CLI_DONE)
        code = cli_tokenize_prompt(model, &text, false, &ids);
    if (code == CLI_DONE) {
        cli_progress_begin(&progress, (enum cli_progress_when)model_args->progress, "calibrate", "tokens");
        const enum teg_status status = teg_calibrate(model, ids.data, ids.n, &o, calibration, &err);
        cli_progress_end(&progress);
        code = status == TEG_OK ? CLI_DONE : cli_fail_library(&err);
    }
    teg_model_free(model);
    cli_ids_free(&ids);
    cli_bytes_free(&text);
    return code;
}
