/* quantize_package.c: teg_quantize_package: a package again, with its weights in another encoding.
 *
 *   package ──mil──► program ──compress──► program ──emit──► package
 *
 * Weights are read from the mapped file, encoded when the writer reaches them, and gone when they are written. A model
 * in parts is a folder again: each part for itself, everything else in the folder as it is; what is said of weights is
 * said when all of it has its name.
 *
 * Not taken: quantizing the parts joined to one program. Then a part would have to be cut out of it again. */
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/filemap.h"
#include "convert_model.h"
#include "package.h"
#include "pass/compress.h"

void teg_quantize_options_default(struct teg_quantize_options *options)
{
    *options = (struct teg_quantize_options){
        .size = sizeof *options, .weights = "int8", .threshold_elements = TEG_QUANT_THRESHOLD};
}

struct part {
    const char *path, *name; /* name: in a folder of parts */
    struct teg_mil_program *mil;
    struct teg_compressed *compressed; /* in the program's arena */
};

struct job {
    struct teg_quantize_options o;
    struct teg_convert_input in; /* path, tokenizer and items are used; programs are of `parts` */
    struct teg_manifest manifest;
    struct part *parts;
    size_t n_parts;
    bool in_parts;
    struct teg_quant_policy policy;
    const char *output;
    struct teg_pool *pool;
    uint64_t done; /* of all parts, for progress */
    struct teg_convert_report report;
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

/* ---- input ---- */

/* "NAME.mlpackage" of a file directly in the folder of tegula.json; NULL: it is not. */
static const char *name_in_folder(const struct job *j, const char *path)
{
    const char *const slash = strrchr(j->manifest.path, '/');
    const size_t n = slash ? (size_t)(slash - j->manifest.path) + 1 : 0;
    if (strncmp(path, j->manifest.path, n) != 0)
        return NULL;
    const char *const name = strncmp(path + n, "./", 2) == 0 ? path + n + 2 : path + n;
    return strchr(name, '/') ? NULL : name;
}

/* Parts of the manifest; one that serves twice is one. */
static enum teg_status find_parts(struct job *j)
{
    static const char ending[] = ".mlpackage";
    for (size_t i = 0; i < j->manifest.n_parts; i++) {
        const char *const path = j->manifest.parts[i].path, *const name = name_in_folder(j, path);
        const size_t n = name ? strlen(name) : 0, k = sizeof ending - 1;
        if (n <= k || strcmp(name + n - k, ending) != 0)
            FAIL(
                j->err, TEG_ERR_UNSUPPORTED,
                "cannot quantize: %.100s: parts[%zu]: expected a .mlpackage in the same folder, found %.100s; quantize "
                "that part by itself",
                j->manifest.path, i, path);
        size_t same = 0;
        while (same < j->n_parts && strcmp(j->parts[same].name, name) != 0)
            same++;
        if (same == j->n_parts)
            j->parts[j->n_parts++] = (struct part){.path = path, .name = name};
    }
    const char *const tokenizer = j->manifest.tokenizer;
    if (tokenizer && !name_in_folder(j, tokenizer))
        FAIL(j->err, TEG_ERR_UNSUPPORTED,
             "cannot quantize: %.100s: tokenizer: expected a file in the same folder, found %.100s; move it there",
             j->manifest.path, tokenizer);
    return TEG_OK;
}

static enum teg_status find_input(struct job *j, const char *input)
{
    size_t n = strlen(input);
    while (n > 1 && input[n - 1] == '/')
        n--;
    j->in.path = teg_arena_string(&j->in.arena, input, n);
    if (!j->in.path)
        return teg_base_fail_memory(j->err, "path", n);
    if (!teg_package_is(j->in.path))
        FAIL(j->err, TEG_ERR_ARGUMENT,
             "cannot quantize: %.160s: expected a .mlpackage or .mlmodelc, or a folder of parts with a tegula.json, "
             "found another file; 'convert --weights' takes GGUF and safetensors",
             input);
    TRY(teg_package_manifest(j->in.path, &j->in.arena, &j->manifest, j->err));
    j->in_parts = j->manifest.n_parts > 0;
    j->parts = teg_arena_array(&j->in.arena, j->manifest.n_parts + 1, sizeof *j->parts);
    if (!j->parts)
        return teg_base_fail_memory(j->err, "parts", j->manifest.n_parts);
    if (j->in_parts)
        return find_parts(j);
    j->parts[j->n_parts++].path = j->in.path;
    return TEG_OK;
}

static enum teg_status open_input(struct job *j)
{
    for (size_t i = 0; i < j->n_parts; i++)
        TRY(teg_mil_open(j->parts[i].path, j->o.allocator, &j->parts[i].mil, j->err));
    j->in.tokenizer = j->manifest.tokenizer ? j->manifest.tokenizer : teg_package_tokenizer(&j->in.arena, j->in.path);
    return teg_convert_items(&j->in, j->err);
}

/* ---- work ---- */

static const float *importance_of(void *ctx, const char *name, uint64_t columns)
{
    const struct job *const j = ctx;
    size_t n = 0;
    const float *const found = teg_calibration_columns(j->o.calibration, name, &n);
    return n == columns ? found : NULL;
}

static void report_weight(struct job *j, const struct teg_compressed_weight *w, struct teg_divergence *divergence)
{
    struct teg_quantize_weight out = {
        .op = w->op, .embedding = w->embedding, .head = w->head, .calibrated = w->calibrated, .left_alone = w->why};
    out.weight = teg_convert_weight_of(w->name, w->rows, w->columns, &w->report);
    out.weight.exact = w->why || w->report.exact;
    if (!w->why) {
        teg_quant_rule_format(&w->rule, out.weight.encoding);
        teg_divergence_add(divergence, &(struct teg_divergence_weight){.rule = &w->rule,
                                                                       .rows = w->rows,
                                                                       .columns = w->columns,
                                                                       .relative_error = w->report.relative_error,
                                                                       .embedding = w->embedding,
                                                                       .head = w->head,
                                                                       .calibrated = w->calibrated});
        j->report.n_weights++;
        j->report.source_bytes += w->report.source_bytes;
    }
    if (j->o.on_weight)
        j->o.on_weight(j->o.on_weight_ctx, &out);
}

static void report_weights(struct job *j)
{
    struct teg_divergence divergence = {0};
    for (size_t i = 0; i < j->n_parts; i++)
        for (size_t k = 0; k < teg_compressed_count(j->parts[i].compressed); k++)
            report_weight(j, teg_compressed_weight(j->parts[i].compressed, k), &divergence);
    j->report.predicted_kl = teg_divergence_of(&divergence);
}

static bool forward_progress(void *ctx, uint64_t done, uint64_t total)
{
    const struct job *const j = ctx;
    return !j->o.progress || j->o.progress(j->o.progress_ctx, j->done + done, j->done + total);
}

static enum teg_status compress_all(struct job *j)
{
    const struct teg_compress_options how = {&j->policy, j->o.again, j->in_parts,
                                             j->o.calibration ? importance_of : NULL, j};
    size_t n_encoded = 0;
    for (size_t i = 0; i < j->n_parts; i++) {
        const struct part *const part = &j->parts[i];
        TRY(teg_compress(part->mil, &how, &j->parts[i].compressed, j->err));
        for (size_t k = 0; k < teg_compressed_count(part->compressed); k++) {
            const struct teg_compressed_weight *const w = teg_compressed_weight(part->compressed, k);
            teg_quant_note((struct teg_quant_pattern *)j->policy.patterns, j->policy.n_patterns, w->name, w->op);
            n_encoded += !w->why;
        }
    }
    TRY(teg_convert_check_patterns("quantize", &j->policy, j->err));
    if (!n_encoded)
        FAIL(j->err, TEG_ERR_ARGUMENT,
             "cannot quantize: %.160s: expected a dense weight that a rule applies to, found none in %zu parts; encode "
             "anew what is encoded already (--again), or see 'inspect --weights' of a part",
             j->in.path, j->n_parts);
    return TEG_OK;
}

static enum teg_status write_one(struct job *j, const struct part *part, const char *path)
{
    struct teg_emit_report written = {0};
    const struct teg_emit_options options = {.allocator = j->o.allocator,
                                             .replace = j->o.replace && !j->in_parts,
                                             .memory_budget = j->o.memory_budget_bytes,
                                             .pool = j->pool,
                                             .items = j->in_parts ? NULL : j->in.items,
                                             .n_items = j->in_parts ? 0 : j->in.n_items,
                                             .progress = forward_progress,
                                             .progress_ctx = j};
    if (!path)
        return teg_base_fail_memory(j->err, "path", 0);
    TRY(teg_emit_package(part->mil, path, &options, &written, j->err));
    j->done += written.weights_bytes + written.shared_bytes;
    j->report.weights_bytes += written.weights_bytes;
    j->report.shared_bytes += written.shared_bytes;
    j->report.spec_bytes += written.spec_bytes;
    j->report.n_packages++;
    return TEG_OK;
}

/* Files in the folder of tegula.json, that one among them; other folders are none of the model's. */
static enum teg_status copy_files(struct job *j, const struct teg_convert_folder *folder, DIR *dir, const char *from)
{
    struct stat st;
    enum teg_status status = TEG_OK;
    for (const struct dirent *entry; status == TEG_OK && (entry = readdir(dir));) {
        struct teg_filemap map = {0};
        const char *const path = teg_arena_printf(&j->in.arena, "%s/%s", from, entry->d_name);
        if (!path)
            return teg_base_fail_memory(j->err, "path", strlen(entry->d_name));
        if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
            continue;
        TRY(teg_filemap_open(&map, path, "cannot quantize", j->err));
        status = teg_convert_folder_write(folder, entry->d_name, map.bytes, map.n_bytes);
        teg_filemap_close(&map);
    }
    return status;
}

static enum teg_status copy_rest(struct job *j, const struct teg_convert_folder *folder)
{
    const char *const slash = strrchr(j->manifest.path, '/');
    const char *const from =
        slash ? teg_arena_string(&j->in.arena, j->manifest.path, (size_t)(slash - j->manifest.path)) : ".";
    for (size_t i = 0; i < j->in.n_items; i++) /* a tokenizer that lies beside the folder */
        TRY(teg_convert_folder_write(folder, j->in.items[i].name, j->in.items[i].bytes.bytes,
                                     j->in.items[i].bytes.n_bytes));
    DIR *const dir = from ? opendir(from) : NULL;
    if (!dir)
        FAIL(j->err, TEG_ERR_IO, "cannot quantize: %.160s: expected a folder that can be read, found none; check it",
             j->in.path);
    const enum teg_status status = copy_files(j, folder, dir, from);
    (void)closedir(dir);
    return status;
}

static enum teg_status fill_folder(struct job *j, const struct teg_convert_folder *folder)
{
    for (size_t i = 0; i < j->n_parts; i++)
        TRY(write_one(j, &j->parts[i], teg_convert_folder_path(folder, j->parts[i].name)));
    return copy_rest(j, folder);
}

static enum teg_status write_folder(struct job *j)
{
    struct teg_convert_folder folder = {.verb = "quantize", .err = j->err};
    TRY(teg_convert_folder_begin(&folder, j->output, &j->in.arena));
    return teg_convert_folder_end(&folder, fill_folder(j, &folder));
}

static enum teg_status quantize(struct job *j, const char *input)
{
    TRY(read_options(j));
    TRY(find_input(j, input));
    TRY(teg_convert_check_output("quantize", j->output, j->in_parts, j->o.replace, j->err));
    TRY(open_input(j));
    TRY(compress_all(j));
    if (j->o.n_threads != 1)
        TRY(teg_pool_new(j->o.n_threads ? j->o.n_threads : (size_t)sysconf(_SC_NPROCESSORS_ONLN), j->o.allocator,
                         &j->pool, j->err));
    TRY(j->in_parts ? write_folder(j) : write_one(j, &j->parts[0], j->output));
    report_weights(j);
    return TEG_OK;
}

enum teg_status teg_quantize_package(const char *input, const char *output, const struct teg_quantize_options *options,
                                     struct teg_convert_report *report, struct teg_error *err)
{
    struct job j = {.output = output, .err = err};
    teg_quantize_options_default(&j.o);
    TRY(teg_options_read(&j.o, sizeof j.o, options, err));
    teg_arena_init(&j.in.arena, j.o.allocator);
    const enum teg_status status = quantize(&j, input);
    teg_pool_free(j.pool);
    teg_convert_items_free(&j.in);
    for (size_t i = 0; i < j.n_parts; i++)
        teg_mil_free(j.parts[i].mil);
    teg_arena_free(&j.in.arena);
    if (status == TEG_OK && report)
        *report = j.report;
    return status;
}
