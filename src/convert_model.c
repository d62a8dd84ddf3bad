/* convert_model.c: teg_convert: any model that opens, as Core ML packages.
 *
 *   GGUF, safetensors ──build──┐
 *   package ──mil──► raise ────┴─► graph ──lower──► program ──emit──► package
 *
 * A weight is made when the writer reaches it and is gone when it is written, so what is held is the graph's tables and
 * the writer's budget, not the model. A model in parts is lowered and written part by part into one folder, which gets
 * its name when the last part is whole. */
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/options.h"
#include "build/build.h"
#include "convert_model.h"
#include "package.h"
#include "quant/policy.h"

enum { DEFAULT_CONTEXT = 4096, DEFAULT_CHUNK = 256, MOST_PARTS = 64 };

void teg_convert_options_default(struct teg_convert_options *options)
{
    *options = (struct teg_convert_options){
        .size = sizeof *options, .profile = "portable", .weights = "f16", .target = "iOS18", .n_parts = 1};
}

/* ---- options ---- */

struct job {
    struct teg_convert_options o;
    struct teg_convert_input in;
    struct teg_lower_options lower;
    struct teg_quant_rule rules[3]; /* weights, embedding, head */
    const char *output;
    struct teg_pool *pool;
    uint64_t done, total; /* of all parts, for progress */
    struct teg_convert_report report;
    struct teg_error *err;
};

static enum teg_status bad(const struct job *j, const char *option, const char *expected, const char *found)
{
    FAIL(j->err, TEG_ERR_ARGUMENT, "cannot convert: %s: expected %s, found '%.60s'; choose one of them", option,
         expected, found);
}

static enum teg_status choose(const struct job *j, const char *option, const char *text, const char *const *names,
                              size_t n, const char *all, int *value)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(text, names[i]) == 0) {
            *value = (int)i;
            return TEG_OK;
        }
    return bad(j, option, all, text);
}

static enum teg_status read_rules(struct job *j)
{
    const char *const texts[3] = {j->o.weights, j->o.embedding, j->o.head};
    static const char *const names[3] = {"weights", "embedding", "head"};
    for (size_t i = 0; i < 3; i++) {
        const char *text = texts[i];
        if (!text) {
            j->rules[i] = teg_quant_end_rule(&j->rules[0]);
            continue;
        }
        if (strcmp(text, "keep") == 0) {
            j->lower.keep_blocks = true;
            text = "int8";
        }
        if (!teg_quant_rule_parse(text, &j->rules[i]))
            return bad(j, names[i],
                       "keep, f16, int8, int4, uint8, uint4, lut8, lut6, lut4, lut3, lut2 or lut1, with /tensor, "
                       "/channel or /GROUP after it",
                       text);
        j->rules[i].fit = j->rules[i].fit || j->o.fit_groups;
    }
    return TEG_OK;
}

static void rule_of(void *ctx, const char *name, bool embedding, bool head, uint64_t rows, uint64_t columns,
                    struct teg_quant_rule *rule)
{
    const struct job *const j = ctx;
    (void)name;
    (void)rows;
    (void)columns;
    *rule = j->rules[embedding ? 1 : head ? 2 : 0];
}

static const float *importance_of(void *ctx, const char *name, uint64_t columns)
{
    const struct job *const j = ctx;
    size_t n = 0;
    const float *const found = teg_calibration_columns(j->o.calibration, name, &n);
    return n == columns ? found : NULL;
}

static enum teg_status read_sizes(struct job *j)
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
    return TEG_OK;
}

static enum teg_status read_options(struct job *j)
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
             "cannot convert: target: expected iOS18, macOS15 or later, which have states and several functions, found "
             "%.40s; choose a later one",
             j->o.target);
    if (!j->o.n_parts || j->o.n_parts > MOST_PARTS)
        FAIL(j->err, TEG_ERR_ARGUMENT, "cannot convert: parts: expected 1 to %d, found %u; choose fewer", MOST_PARTS,
             j->o.n_parts);
    j->lower.profile = (enum teg_profile)profile;
    j->lower.softmax = (enum teg_softmax)form;
    j->lower.spec_version = version;
    j->lower.rule = rule_of;
    j->lower.rule_ctx = j;
    j->lower.importance = j->o.calibration ? importance_of : NULL;
    j->lower.importance_ctx = j;
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
    const struct job *const j = ctx;
    return !j->o.progress || j->o.progress(j->o.progress_ctx, j->done + done, j->done + total);
}

static void report_weights(struct job *j, struct teg_lowered *lowered)
{
    for (size_t i = 0; i < teg_lowered_n_weights(lowered); i++) {
        const struct teg_lowered_weight *const w = teg_lowered_weight(lowered, i);
        struct teg_convert_weight out = {.name = w->name,
                                         .rows = w->rows,
                                         .columns = w->columns,
                                         .source_bytes = w->report.source_bytes,
                                         .bytes = w->report.bytes,
                                         .bits_per_weight = w->report.bits_per_weight,
                                         .relative_error = w->report.relative_error,
                                         .worst_row_error = w->report.worst_row_error,
                                         .worst_row = w->report.worst_row,
                                         .exact = w->report.exact};
        if (!w->made)
            continue;
        if (w->kept_blocks)
            (void)snprintf(out.encoding, sizeof out.encoding, "kept");
        else
            teg_quant_rule_format(&w->rule, out.encoding);
        j->report.n_weights++;
        j->report.source_bytes += out.source_bytes;
        if (j->o.on_weight)
            j->o.on_weight(j->o.on_weight_ctx, &out);
    }
}

static enum teg_status write_package(struct job *j, struct teg_lowered *lowered, const char *path)
{
    const struct teg_convert_lowered how = {&j->o, &j->lower};
    const bool is_alone = j->o.n_parts == 1;
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

static enum teg_status lower_and_write(struct job *j, const char *path)
{
    struct teg_lowered *lowered = NULL;
    TRY(teg_lower(j->in.graph, &j->lower, j->o.allocator, &lowered, j->err));
    const enum teg_status status = write_package(j, lowered, path);
    teg_lowered_free(lowered);
    return status;
}

/* ---- parts ---- */

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static enum teg_status io_fail(const struct job *j, const char *doing, const char *path)
{
    FAIL(j->err, TEG_ERR_IO, "cannot convert: expected to %s '%.160s', found: %s; check the folder's permissions",
         doing, path, strerror(errno));
}

static enum teg_status write_small(const struct job *j, const char *path, const void *bytes, size_t n_bytes)
{
    FILE *const f = fopen(path, "wb");
    const bool is_written = f && fwrite(bytes, 1, n_bytes, f) == n_bytes && fflush(f) == 0 && fsync(fileno(f)) == 0;
    const bool is_closed = f && fclose(f) == 0;
    return is_written && is_closed ? TEG_OK : io_fail(j, "write", path);
}

/* tegula.json: docs/FORMATS.md. */
static enum teg_status write_join(const struct job *j, const char *folder, uint32_t n)
{
    struct teg_buf out = {0};
    struct teg_text text = {0};
    const char *const path = teg_arena_printf((struct teg_arena *)&j->in.arena, "%s/tegula.json", folder);
    teg_buf_printf(&out, "{\n  \"format\": 1,\n  \"context\": %u,\n  \"chunk\": %u,\n", j->lower.context,
                   j->lower.chunk);
    if (j->in.n_items)
        teg_buf_printf(&out, "  \"tokenizer\": \"%s\",\n", j->in.items[0].name);
    teg_buf_puts(&out, "  \"parts\": [\n");
    for (uint32_t i = 0; i < n; i++)
        teg_buf_printf(&out,
                       "    {\"path\": \"part-%u.mlpackage\", \"functions\": {\"prefill\": \"prefill\", \"decode\": "
                       "\"decode\"}}%s\n",
                       i + 1, i + 1 < n ? "," : "");
    teg_buf_puts(&out, "  ]\n}\n");
    TRY(teg_buf_take(&out, &text, "tegula.json", j->err));
    const enum teg_status status =
        path ? write_small(j, path, text.bytes, text.n_bytes) : teg_base_fail_memory(j->err, "path", 0);
    teg_text_free(&text);
    return status;
}

static enum teg_status write_parts_into(struct job *j, const char *folder)
{
    uint32_t first[MOST_PARTS], n = 0;
    TRY(teg_lower_parts(j->in.graph, &j->lower, 0, j->o.n_parts, first, MOST_PARTS, &n, j->err));
    const uint32_t n_layers = teg_lower_n_layers(j->in.graph);
    for (uint32_t i = 0; i < n; i++) {
        const char *const path = teg_arena_printf(&j->in.arena, "%s/part-%u.mlpackage", folder, i + 1);
        if (!path)
            return teg_base_fail_memory(j->err, "path", strlen(folder));
        j->lower.first_layer = first[i];
        j->lower.n_layers = (i + 1 < n ? first[i + 1] : n_layers) - first[i];
        TRY(lower_and_write(j, path));
    }
    for (size_t i = 0; i < j->in.n_items; i++) {
        const struct teg_emit_item *const item = &j->in.items[i];
        const char *const path = teg_arena_printf(&j->in.arena, "%s/%s", folder, item->name);
        if (!path)
            return teg_base_fail_memory(j->err, "path", strlen(folder));
        TRY(write_small(j, path, item->bytes.bytes, item->bytes.n_bytes));
    }
    return write_join(j, folder, n);
}

/* A folder that is not there, and stays so until all parts are whole. */
static enum teg_status write_parts(struct job *j)
{
    const char *const hidden = teg_arena_printf(&j->in.arena, "%s.%ld.tmp", j->output, (long)getpid());
    if (!hidden)
        return teg_base_fail_memory(j->err, "path", strlen(j->output));
    if (mkdir(hidden, 0777) != 0)
        return io_fail(j, "make folder", hidden);
    enum teg_status status = write_parts_into(j, hidden);
    if (status == TEG_OK && rename(hidden, j->output) != 0)
        status = io_fail(j, "rename to", j->output);
    if (status != TEG_OK)
        (void)nftw(hidden, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    return status;
}

/* ---- all ---- */

static enum teg_status prepare(struct job *j, const char *input)
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
    return read_sizes(j);
}

/* What can be said before hours of work. */
static enum teg_status check_output(const struct job *j)
{
    static const char ending[] = ".mlpackage";
    size_t n = strlen(j->output);
    struct stat st;
    while (n > 1 && j->output[n - 1] == '/')
        n--;
    const bool is_package =
        n > sizeof ending - 1 && memcmp(j->output + n - (sizeof ending - 1), ending, sizeof ending - 1) == 0;
    if (is_package == (j->o.n_parts > 1))
        FAIL(j->err, TEG_ERR_ARGUMENT, "cannot convert: %.160s: expected %s, found another name; choose one", j->output,
             j->o.n_parts > 1 ? "the name of a folder for the parts, without .mlpackage"
                              : "a name that ends in .mlpackage");
    const bool is_there = lstat(j->output, &st) == 0;
    if (is_there && j->o.n_parts > 1)
        FAIL(j->err, TEG_ERR_ARGUMENT,
             "cannot convert: %.160s: expected no file or folder of that name for the parts, found one; remove it",
             j->output);
    if (is_there && !j->o.replace)
        FAIL(
            j->err, TEG_ERR_ARGUMENT,
            "cannot convert: %.160s: expected no file of that name, found one; remove it, or allow replacing (--force)",
            j->output);
    return TEG_OK;
}

static enum teg_status convert(struct job *j, const char *input)
{
    TRY(check_output(j));
    TRY(prepare(j, input));
    TRY(teg_convert_items(&j->in, j->err));
    if (j->o.n_threads != 1)
        TRY(teg_pool_new(j->o.n_threads ? j->o.n_threads : (size_t)sysconf(_SC_NPROCESSORS_ONLN), j->o.allocator,
                         &j->pool, j->err));
    return j->o.n_parts > 1 ? write_parts(j) : lower_and_write(j, j->output);
}

enum teg_status teg_convert(const char *input, const char *output, const struct teg_convert_options *options,
                            struct teg_convert_report *report, struct teg_error *err)
{
    struct job j = {.output = output, .err = err};
    teg_convert_options_default(&j.o);
    TRY(teg_options_read(&j.o, sizeof j.o, options, err));
    const enum teg_status status = convert(&j, input);
    teg_pool_free(j.pool);
    close_input(&j.in);
    if (status == TEG_OK && report)
        *report = j.report;
    return status;
}

enum teg_status teg_convert_explain(const char *input, const struct teg_convert_options *options, struct teg_text *text,
                                    struct teg_error *err)
{
    struct job j = {.output = "", .err = err};
    struct teg_buf out = {0};
    teg_convert_options_default(&j.o);
    TRY(teg_options_read(&j.o, sizeof j.o, options, err));
    enum teg_status status = prepare(&j, input);
    if (status == TEG_OK) {
        teg_lower_explain(j.in.graph, &j.lower, &out);
        status = teg_buf_take(&out, text, "explanation", err);
    }
    close_input(&j.in);
    return status;
}
