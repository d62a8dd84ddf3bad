/* quantize_package.c: teg_quantize_package: a package again, with its weights in another encoding.
 *
 *   package ──mil──► program ──compress──► program ──emit──► package
 *
 * Weights are read from the mapped file, encoded when the writer reaches them, and gone when they are written. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "convert_model.h"
#include "package.h"
#include "pass/compress.h"

void teg_quantize_options_default(struct teg_quantize_options *options)
{
    *options = (struct teg_quantize_options){
        .size = sizeof *options, .weights = "int8", .threshold_elements = TEG_QUANT_THRESHOLD};
}

struct job {
    struct teg_quantize_options o;
    struct teg_convert_input in; /* path, tokenizer and items are used; the program is `mil` */
    struct teg_mil_program *mil;
    struct teg_quant_policy policy;
    struct teg_compressed *compressed; /* in the program's arena */
    const char *output;
    struct teg_pool *pool;
    struct teg_error *err;
};

/* ---- options ---- */

static enum teg_status read_rule(const struct job *j, const char *option, const char *text, struct teg_quant_rule *rule)
{
    return teg_convert_read_rule("quantize", option, text, j->o.fit_groups, rule, j->err);
}

static enum teg_status read_options(struct job *j)
{
    TRY(read_rule(j, "weights", j->o.weights, &j->policy.weights));
    j->policy.embedding = j->policy.head = teg_quant_end_rule(&j->policy.weights);
    if (j->o.embedding)
        TRY(read_rule(j, "embedding", j->o.embedding, &j->policy.embedding));
    if (j->o.head)
        TRY(read_rule(j, "head", j->o.head, &j->policy.head));
    j->policy.threshold = j->o.threshold_elements;
    return teg_convert_read_patterns("quantize", j->o.patterns, j->o.n_patterns, j->o.fit_groups, &j->in.arena,
                                     &j->policy, j->err);
}

/* What can be said before the work. */
static enum teg_status check_output(const struct job *j)
{
    static const char ending[] = ".mlpackage";
    const size_t k = sizeof ending - 1;
    struct stat st;
    size_t n = strlen(j->output);
    while (n > 1 && j->output[n - 1] == '/')
        n--;
    if (n <= k || memcmp(j->output + n - k, ending, k) != 0)
        FAIL(j->err, TEG_ERR_ARGUMENT,
             "cannot quantize: %.160s: expected a name that ends in .mlpackage, found another; choose one", j->output);
    if (lstat(j->output, &st) == 0 && !j->o.replace)
        FAIL(j->err, TEG_ERR_ARGUMENT,
             "cannot quantize: %.160s: expected no file of that name, found one; remove it, or allow replacing "
             "(--force)",
             j->output);
    return TEG_OK;
}

/* ---- work ---- */

static enum teg_status open_input(struct job *j, const char *input)
{
    struct teg_manifest manifest = {0};
    size_t n = strlen(input);
    while (n > 1 && input[n - 1] == '/')
        n--;
    j->in.path = teg_arena_string(&j->in.arena, input, n);
    if (!j->in.path)
        return teg_base_fail_memory(j->err, "path", n);
    if (!teg_package_is(j->in.path))
        FAIL(j->err, TEG_ERR_ARGUMENT,
             "cannot quantize: %.160s: expected a .mlpackage or .mlmodelc, found another file; 'convert --weights' "
             "takes GGUF and safetensors",
             input);
    TRY(teg_mil_open(j->in.path, j->o.allocator, &j->mil, j->err));
    TRY(teg_package_manifest(j->in.path, &j->in.arena, &manifest, j->err));
    j->in.tokenizer = manifest.tokenizer ? manifest.tokenizer : teg_package_tokenizer(&j->in.arena, j->in.path);
    return teg_convert_items(&j->in, j->err);
}

static const float *importance_of(void *ctx, const char *name, uint64_t columns)
{
    const struct job *const j = ctx;
    size_t n = 0;
    const float *const found = teg_calibration_columns(j->o.calibration, name, &n);
    return n == columns ? found : NULL;
}

static void report_weights(const struct job *j, struct teg_convert_report *report)
{
    struct teg_divergence divergence = {0};
    for (size_t i = 0; i < teg_compressed_count(j->compressed); i++) {
        const struct teg_compressed_weight *const w = teg_compressed_weight(j->compressed, i);
        struct teg_quantize_weight out = {
            .op = w->op, .embedding = w->embedding, .head = w->head, .calibrated = w->calibrated, .left_alone = w->why};
        out.weight = (struct teg_convert_weight){.name = w->name,
                                                 .rows = w->rows,
                                                 .columns = w->columns,
                                                 .source_bytes = w->report.source_bytes,
                                                 .bytes = w->report.bytes,
                                                 .bits_per_weight = w->report.bits_per_weight,
                                                 .relative_error = w->report.relative_error,
                                                 .worst_row_error = w->report.worst_row_error,
                                                 .worst_row = w->report.worst_row,
                                                 .exact = w->why || w->report.exact};
        if (!w->why) {
            teg_quant_rule_format(&w->rule, out.weight.encoding);
            teg_divergence_add(&divergence, &(struct teg_divergence_weight){.rule = &w->rule,
                                                                            .rows = w->rows,
                                                                            .columns = w->columns,
                                                                            .relative_error = w->report.relative_error,
                                                                            .embedding = w->embedding,
                                                                            .head = w->head,
                                                                            .calibrated = w->calibrated});
            report->n_weights++;
            report->source_bytes += w->report.source_bytes;
        }
        if (j->o.on_weight)
            j->o.on_weight(j->o.on_weight_ctx, &out);
    }
    report->predicted_kl = teg_divergence_of(&divergence);
}

static enum teg_status quantize(struct job *j, const char *input, struct teg_convert_report *report)
{
    struct teg_emit_report written = {0};
    TRY(check_output(j));
    TRY(read_options(j));
    TRY(open_input(j, input));
    const struct teg_compress_options how = {&j->policy, j->o.again, j->o.calibration ? importance_of : NULL, j};
    TRY(teg_compress(j->mil, &how, &j->compressed, j->err));
    if (j->o.n_threads != 1)
        TRY(teg_pool_new(j->o.n_threads ? j->o.n_threads : (size_t)sysconf(_SC_NPROCESSORS_ONLN), j->o.allocator,
                         &j->pool, j->err));
    const struct teg_emit_options options = {.replace = j->o.replace,
                                             .memory_budget = j->o.memory_budget_bytes,
                                             .pool = j->pool,
                                             .items = j->in.items,
                                             .n_items = j->in.n_items,
                                             .progress = j->o.progress,
                                             .progress_ctx = j->o.progress_ctx};
    TRY(teg_emit_package(j->mil, j->output, &options, &written, j->err));
    *report = (struct teg_convert_report){.weights_bytes = written.weights_bytes,
                                          .shared_bytes = written.shared_bytes,
                                          .spec_bytes = written.spec_bytes,
                                          .n_packages = 1};
    report_weights(j, report);
    return TEG_OK;
}

enum teg_status teg_quantize_package(const char *input, const char *output, const struct teg_quantize_options *options,
                                     struct teg_convert_report *report, struct teg_error *err)
{
    struct job j = {.output = output, .err = err};
    struct teg_convert_report made = {0};
    teg_quantize_options_default(&j.o);
    TRY(teg_options_read(&j.o, sizeof j.o, options, err));
    teg_arena_init(&j.in.arena, j.o.allocator);
    const enum teg_status status = quantize(&j, input, &made);
    teg_pool_free(j.pool);
    teg_convert_items_free(&j.in);
    teg_mil_free(j.mil);
    teg_arena_free(&j.in.arena);
    if (status == TEG_OK && report)
        *report = made;
    return status;
}
