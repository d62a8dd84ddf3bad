/* convert_model.c: teg_convert: any model that opens, as Core ML packages.
 *
 *   GGUF, safetensors ──build──┐
 *   package ──mil──► raise ────┴─► graph ──lower──► program ──emit──► package
 *
 * A weight is made when the writer reaches it and is gone when it is written, so what is held is the graph's tables and
 * the writer's budget, not the model. A model in parts is lowered and written part by part into one folder, which gets
 * its name when the last part is whole. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/filemap.h"
#include "base/options.h"
#include "build/build.h"
#include "convert_model.h"
#include "dtype/encoding.h"
#include "package.h"
#include "pass/rescale.h"

enum { DEFAULT_CONTEXT = 4096, DEFAULT_CHUNK = 256 };

void teg_convert_options_default(struct teg_convert_options *options)
{
    *options = (struct teg_convert_options){
        .size = sizeof *options, .profile = "portable", .weights = "f16", .target = "iOS18", .n_parts = 1};
}

/* ---- options ---- */

static enum teg_status bad(const struct teg_convert_job *j, const char *option, const char *expected, const char *found)
{
    FAIL(j->err, TEG_ERR_ARGUMENT, "cannot convert: %s: expected %s, found '%.60s'; choose one of them", option,
         expected, found);
}

static enum teg_status choose(const struct teg_convert_job *j, const char *option, const char *text,
                              const char *const *names, size_t n, const char *all, int *value)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(text, names[i]) == 0) {
            *value = (int)i;
            return TEG_OK;
        }
    return bad(j, option, all, text);
}

static enum teg_status read_rules(struct teg_convert_job *j)
{
    const bool fit = j->o.fit_groups;
    TRY(teg_convert_read_rule("convert", "weights", j->o.weights, fit, &j->policy.weights, j->err));
    j->policy.embedding = j->policy.head = teg_quant_end_rule(&j->policy.weights);
    if (j->o.embedding)
        TRY(teg_convert_read_rule("convert", "embedding", j->o.embedding, fit, &j->policy.embedding, j->err));
    if (j->o.head)
        TRY(teg_convert_read_rule("convert", "head", j->o.head, fit, &j->policy.head, j->err));
    return teg_convert_read_patterns("convert", j->o.patterns, j->o.n_patterns, fit, &j->in.arena, &j->policy, j->err);
}

static void rule_of(void *ctx, const char *name, bool embedding, bool head, uint64_t rows, uint64_t columns,
                    struct teg_quant_rule *rule)
{
    const struct teg_convert_job *const j = ctx;
    const char *const op = embedding ? "gather" : head ? "lm_head" : "linear", *why;
    const struct teg_quant_subject subject = {name, op, embedding, head, rows * columns};
    const struct teg_quant_rule *const chosen = teg_quant_choose(&j->policy, &subject, &why);
    teg_quant_note((struct teg_quant_pattern *)j->policy.patterns, j->policy.n_patterns, name, op);
    *rule = chosen ? *chosen : (struct teg_quant_rule){.method = TEG_QUANT_F16, .bits = 16};
}

static const float *importance_of(void *ctx, const char *name, uint64_t columns)
{
    const struct teg_convert_job *const j = ctx;
    size_t n = 0;
    const float *const found = teg_calibration_columns(j->o.calibration, name, &n);
    return n == columns ? found : NULL;
}

/* ---- memory ---- */

void teg_convert_release(const void *data, size_t n_bytes)
{
    const size_t in_page = (uintptr_t)data % (size_t)sysconf(_SC_PAGESIZE);
    const struct teg_filemap map = {(const uint8_t *)data - in_page, in_page + n_bytes};
    teg_filemap_release(&map, in_page, n_bytes);
}

static void release_codes(const struct teg_encoding *e, size_t row, size_t n_rows)
{
    for (size_t i = 0, first = 0; i < e->n_parts; first += e->parts[i++].n_rows) {
        const struct teg_encoding_part *const part = &e->parts[i];
        const size_t from = teg_max(row, first), to = teg_min(row + n_rows, first + part->n_rows);
        const uint8_t *bytes;
        if (from >= to || !part->is_mapped)
            continue;
        const size_t n_bytes = teg_encoding_code_bytes(part, e->columns, from - first, to - from, &bytes);
        teg_convert_release(bytes, n_bytes);
    }
}

/* Only what is known to lie in a mapped file: pages that are nobody's copy would be lost. */
static void release_rows(void *ctx, const struct teg_value *value, uint64_t row, uint64_t n_rows)
{
    const struct teg_convert_job *const j = ctx;
    const struct teg_tensor *const t =
        j->in.source && value->name ? teg_source_tensor(j->in.source, value->name) : NULL;
    const uint8_t *const data = value->data;
    const size_t rows = value->shape.rank == 2 ? (size_t)value->shape.dims[0] : 1;
    if (value->encoding)
        release_codes(value->encoding, (size_t)row, (size_t)n_rows);
    else if (t && data >= t->data && value->n_bytes <= t->n_bytes &&
             (size_t)(data - t->data) <= t->n_bytes - value->n_bytes)
        teg_convert_release(data + value->n_bytes / rows * row, value->n_bytes / rows * (size_t)n_rows);
}

/* ---- sizes ---- */

static enum teg_status read_sizes(struct teg_convert_job *j)
{
    const uint32_t own = j->in.hparams.context;
    struct teg_lower_options *const l = &j->lower;
    l->context = j->o.context_tokens;
    if (!l->context)
        l->context = own && own < DEFAULT_CONTEXT ? own : DEFAULT_CONTEXT;
    if (own && l->context > own)
        FAIL(j->err, TEG_ERR_ARGUMENT,
             "cannot convert: ctx: expected at most %u tokens, for which %.120s was trained, found %u; choose a "
             "smaller context",
             own, j->in.path, l->context);
    l->chunk = j->o.chunk_tokens ? j->o.chunk_tokens : l->context < DEFAULT_CHUNK ? l->context : DEFAULT_CHUNK;
    l->kv_tile = j->o.kv_tile_tokens;
    l->buckets = j->o.buckets;
    l->n_buckets = (uint32_t)j->o.n_buckets;
    l->force = j->o.ignore_rules;
    l->enumerated = j->o.enumerated_shapes;
    return TEG_OK;
}

static enum teg_status read_options(struct teg_convert_job *j)
{
    static const char *const profiles[] = {"portable", "ane"}, *const forms[] = {"two-pass", "online", "split"};
    int profile = 0, form = TEG_SOFTMAX_TWO_PASS;
    uint32_t version = 0;
    TRY(choose(j, "profile", j->o.profile, profiles, 2, "portable or ane", &profile));
    if (j->o.softmax)
        TRY(choose(j, "softmax", j->o.softmax, forms, 3, "two-pass, online or split", &form));
    if (!teg_target_version(j->o.target, &version))
        return bad(j, "target", "iOS18, iOS26, macOS15 or another system and its version", j->o.target);
    if (version < 9)
        FAIL(j->err, TEG_ERR_ARGUMENT,
             "cannot convert: target: expected iOS18, macOS15, watchOS11, tvOS18, visionOS2 or later, found %.40s: the "
             "cache of keys and values is a state (read_state, write_state), and several functions in one package are "
             "of opset CoreML8, too; choose a later one",
             j->o.target);
    if (!j->o.n_parts || j->o.n_parts > TEG_CONVERT_MOST_PARTS)
        FAIL(j->err, TEG_ERR_ARGUMENT, "cannot convert: parts: expected 1 to %d, found %u; choose fewer",
             TEG_CONVERT_MOST_PARTS, j->o.n_parts);
    if (teg_convert_in_parts(j) && profile != TEG_PROFILE_ANE)
        FAIL(j->err, TEG_ERR_ARGUMENT,
             "cannot convert: parts: expected profile ane, found %s, which is one package; leave out --split and "
             "--part-size, or choose --profile ane",
             j->o.profile);
    if (j->o.enumerated_shapes && profile == TEG_PROFILE_ANE)
        FAIL(j->err, TEG_ERR_ARGUMENT,
             "cannot convert: shapes: expected profile portable, found ane, whose functions have one shape each; leave "
             "out --shapes");
    j->lower.profile = (enum teg_profile)profile;
    j->lower.softmax = (enum teg_softmax)form;
    j->lower.spec_version = version;
    j->lower.rule = rule_of;
    j->lower.rule_ctx = j;
    j->lower.importance = j->o.calibration ? importance_of : NULL;
    j->lower.importance_ctx = j;
    j->lower.release = release_rows;
    j->lower.release_ctx = j;
    return read_rules(j);
}

/* ---- input ---- */

static enum teg_status open_package(struct teg_convert_input *in, const struct teg_convert_options *o,
                                    const struct teg_allocator *allocator, struct teg_error *err)
{
    struct teg_model_options options;
    struct teg_manifest manifest = {0};
    struct teg_raised raised = {0};
    struct teg_source *described = NULL;
    teg_model_options_default(&options);
    options.mode = TEG_MODE_EXACT;
    TRY(teg_package_manifest(in->path, &in->arena, &manifest, err));
    in->tokenizer = o->tokenizer_path    ? o->tokenizer_path
                    : manifest.tokenizer ? manifest.tokenizer
                                         : teg_package_tokenizer(&in->arena, in->path);
    if (in->tokenizer)
        TRY(teg_package_open_tokenizer(in->path, in->tokenizer, allocator, &in->tok, err));
    TRY(teg_package_open(in->path, &manifest, &options, allocator, &in->program, err));
    struct teg_raise_options raise;
    TRY(teg_package_names(in->program->mil, &manifest, &in->arena, &raise, err));
    TRY(teg_raise(in->program->mil, &raise, &in->arena, &raised, err));
    in->graph = raised.graph;
    TRY(teg_package_describe(in->program->mil, &raised, in->path, &in->arena, &described, &in->hparams, err));
    return TEG_OK;
}

static enum teg_status open_input(struct teg_convert_input *in, const struct teg_convert_options *o,
                                  const struct teg_allocator *allocator, struct teg_error *err)
{
    struct teg_error ignored;
    if (teg_package_is(in->path))
        return open_package(in, o, allocator, err);
    TRY(teg_source_open(in->path, true, allocator, &in->source, err));
    in->tokenizer = o->tokenizer_path;
    /* One that cannot be read is the user's only where it was asked for: token ids need none. */
    const enum teg_status status = teg_tok_open(in->source, in->tokenizer, allocator, &in->tok, &ignored);
    if (status != TEG_OK && (in->tokenizer || status == TEG_ERR_MEMORY)) {
        if (err)
            *err = ignored;
        return status;
    }
    return teg_build(in->source, &in->arena, &in->graph, &in->hparams, err);
}

static void close_input(struct teg_convert_input *in)
{
    teg_convert_items_free(in);
    teg_tok_free(in->tok);
    teg_program_free(in->program);
    teg_source_free(in->source);
    teg_arena_free(&in->arena);
}

/* ---- one package ---- */

static bool forward_progress(void *ctx, uint64_t done, uint64_t total)
{
    const struct teg_convert_job *const j = ctx;
    return !j->o.progress || j->o.progress(j->o.progress_ctx, j->done + done, j->done + total);
}

static void report_weights(struct teg_convert_job *j, struct teg_lowered *lowered)
{
    for (size_t i = 0; i < teg_lowered_n_weights(lowered); i++) {
        const struct teg_lowered_weight *const w = teg_lowered_weight(lowered, i);
        struct teg_convert_weight out = teg_convert_weight_of(w->name, w->rows, w->columns, &w->report);
        if (!w->made)
            continue;
        if (w->kept_blocks)
            (void)snprintf(out.encoding, sizeof out.encoding, "kept");
        else
            teg_quant_rule_format(&w->rule, out.encoding);
        teg_divergence_add(&j->divergence, &(struct teg_divergence_weight){.rule = &w->rule,
                                                                           .rows = w->rows,
                                                                           .columns = w->columns,
                                                                           .relative_error = w->report.relative_error,
                                                                           .embedding = w->embedding,
                                                                           .head = w->head,
                                                                           .calibrated = w->calibrated});
        j->report.n_weights++;
        j->report.source_bytes += out.source_bytes;
        if (j->o.on_weight)
            j->o.on_weight(j->o.on_weight_ctx, &out);
    }
}

static enum teg_status write_package(struct teg_convert_job *j, struct teg_lowered *lowered, const char *path)
{
    const struct teg_convert_lowered how = {&j->o, &j->lower};
    const bool is_alone = !teg_convert_in_parts(j);
    struct teg_emit_report report = {0};
    const struct teg_emit_options options = {.allocator = j->o.allocator,
                                             .replace = j->o.replace && is_alone,
                                             .memory_budget = j->o.memory_budget_bytes,
                                             .pool = j->pool,
                                             .items = is_alone ? j->in.items : NULL,
                                             .n_items = is_alone ? j->in.n_items : 0,
                                             .progress = forward_progress,
                                             .progress_ctx = j};
    TRY(teg_convert_describe(&j->in, &how, teg_lowered_program(lowered), j->err));
    TRY(teg_emit_package(teg_lowered_program(lowered), path, &options, &report, j->err));
    j->done += report.weights_bytes + report.shared_bytes;
    j->report.weights_bytes += report.weights_bytes;
    j->report.shared_bytes += report.shared_bytes;
    j->report.spec_bytes += report.spec_bytes;
    j->report.n_packages++;
    report_weights(j, lowered);
    return TEG_OK;
}

enum teg_status teg_convert_write(struct teg_convert_job *j, const char *path)
{
    struct teg_lowered *lowered = NULL;
    TRY(teg_lower(j->in.graph, &j->lower, j->o.allocator, &lowered, j->err));
    enum teg_status status = teg_convert_check_patterns("convert", &j->policy, j->err);
    if (status == TEG_OK)
        status = write_package(j, lowered, path);
    teg_lowered_free(lowered);
    return status;
}

/* ---- all ---- */

static enum teg_status prepare(struct teg_convert_job *j, const char *input)
{
    const struct teg_allocator *const allocator = teg_allocator_or_default(j->o.allocator);
    teg_arena_init(&j->in.arena, allocator);
    TRY(read_options(j));
    size_t n = strlen(input);
    while (n > 1 && input[n - 1] == '/')
        n--;
    j->in.path = teg_arena_string(&j->in.arena, input, n);
    if (!j->in.path)
        return teg_base_fail_memory(j->err, "path", n);
    TRY(open_input(&j->in, &j->o, allocator, j->err));
    TRY(teg_rescale(j->in.graph, &j->rescaled, j->err));
    return read_sizes(j);
}

static enum teg_status convert(struct teg_convert_job *j, const char *input)
{
    TRY(teg_convert_check_output("convert", j->output, teg_convert_in_parts(j), j->o.replace, j->err));
    TRY(prepare(j, input));
    TRY(teg_convert_items(&j->in, j->err));
    if (j->o.n_threads != 1)
        TRY(teg_pool_new(j->o.n_threads ? j->o.n_threads : (size_t)sysconf(_SC_NPROCESSORS_ONLN), j->o.allocator,
                         &j->pool, j->err));
    return teg_convert_in_parts(j) ? teg_convert_write_parts(j) : teg_convert_write(j, j->output);
}

enum teg_status teg_convert(const char *input, const char *output, const struct teg_convert_options *options,
                            struct teg_convert_report *report, struct teg_error *err)
{
    struct teg_convert_job j = {.output = output, .err = err};
    teg_convert_options_default(&j.o);
    TRY(teg_options_read(&j.o, sizeof j.o, options, err));
    const enum teg_status status = convert(&j, input);
    teg_pool_free(j.pool);
    close_input(&j.in);
    j.report.predicted_kl = teg_divergence_of(&j.divergence);
    if (status == TEG_OK && report)
        *report = j.report;
    return status;
}

enum teg_status teg_convert_explain(const char *input, const struct teg_convert_options *options, struct teg_text *text,
                                    struct teg_error *err)
{
    struct teg_convert_job j = {.output = "", .err = err};
    struct teg_buf out = {0};
    teg_convert_options_default(&j.o);
    TRY(teg_options_read(&j.o, sizeof j.o, options, err));
    enum teg_status status = prepare(&j, input);
    if (status == TEG_OK) {
        teg_lower_explain(j.in.graph, &j.lower, &out);
        if (j.rescaled)
            teg_buf_puts(&out,
                         "the residual stream is divided by 32: beyond 65504 half floats are infinite, and models "
                         "of this kind go there\n");
        status = teg_buf_take(&out, text, "explanation", err);
    }
    close_input(&j.in);
    return status;
}
