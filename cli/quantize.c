/* quantize.c: `tegula quantize`: the weights of a package in another encoding, and what that cost.
 *
 * The result on standard output is a line for each weight (or one JSON document), what was left alone among them with
 * the reason; it is printed when the package is whole. */
#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "interrupt.h"
#include "io.h"

struct quantize_args {
    struct cli_model_args model;
    struct cli_encoding_args encoding;
    const char *output, *n_of_m;
    double sparsity;
    int64_t threshold, threads, memory;
    bool force, again, json;
};

#define ARG(field) offsetof(struct quantize_args, field)

static const struct cli_option option_table[] = {
    {.name = "output",
     .letter = 'o',
     .type = CLI_TEXT,
     .offset = ARG(output),
     .placeholder = "OUT.mlpackage",
     .help = "the package to write, or the folder for parts"},
    CLI_ENCODING_OPTIONS(
        struct quantize_args, encoding, "int8",
        "the encoding: int8, int4, uint8, uint4, lut8, lut6, lut4, lut3, lut2, lut1, f16, keep; see below",
        "another encoding for weights of that name, or op:TYPE=RULE for weights of such ops; * and ? stand for any "
        "characters; may be given several times, the last that matches counts, names before ops",
        "leave weights of that name (or op:TYPE) alone; may be given several times"),
    {.name = "sparsity",
     .type = CLI_NUMBER,
     .offset = ARG(sparsity),
     .placeholder = "SHARE",
     .low = 0,
     .high = 0.999,
     .help = "set this share of each weight to zero first and store the rest, for --weights"},
    {.name = "n-m",
     .type = CLI_TEXT,
     .offset = ARG(n_of_m),
     .placeholder = "N:M",
     .help = "of each M neighbouring values keep the N largest, for --weights"},
    {.name = "threshold",
     .type = CLI_INTEGER,
     .offset = ARG(threshold),
     .placeholder = "N",
     .initial = "2048",
     .min = 0,
     .max = INT64_MAX,
     .help = "leave weights of N elements or fewer alone"},
    {.name = "again",
     .type = CLI_FLAG,
     .offset = ARG(again),
     .help = "encode weights anew that are encoded already (f16: decode them); otherwise they are left alone"},
    {.name = "force", .type = CLI_FLAG, .offset = ARG(force), .help = "replace an existing package"},
    {.name = "threads",
     .type = CLI_INTEGER,
     .offset = ARG(threads),
     .placeholder = "N",
     .min = 1,
     .max = 256,
     .help = CLI_THREADS_HELP},
    {.name = "memory",
     .type = CLI_INTEGER,
     .offset = ARG(memory),
     .placeholder = "BYTES",
     .initial = "256M",
     .min = 1,
     .max = INT64_MAX,
     .help = "memory for weights in the making (one weight may exceed it)"},
    {.name = "json",
     .type = CLI_FLAG,
     .offset = ARG(json),
     .help = "print {\"output\", \"weights_bytes\", \"relative_error\", \"weights\": [...], \"left_alone\": [...], "
             "\"check\"}"},
    CLI_TOKENIZER_OPTION(struct quantize_args, model),
    CLI_PROGRESS_OPTION(struct quantize_args, model),
};

/* ---- the report ---- */

struct row {
    char *name, *op;
    struct teg_quantize_weight w;
};
struct rows {
    struct row *data;
    size_t n, capacity;
    bool failed;
};

static void keep_weight(void *ctx, const struct teg_quantize_weight *weight)
{
    struct rows *rows = ctx;
    if (rows->n == rows->capacity) {
        const size_t more = rows->capacity ? 2 * rows->capacity : 256;
        struct row *moved = realloc(rows->data, more * sizeof(*moved));
        if (!moved) {
            rows->failed = true;
            return;
        }
        rows->data = moved;
        rows->capacity = more;
    }
    struct row row = {strdup(weight->weight.name), strdup(weight->op), *weight};
    if (!row.name || !row.op) {
        free(row.name);
        free(row.op);
        rows->failed = true;
        return;
    }
    rows->data[rows->n++] = row;
}

static void free_rows(struct rows *rows)
{
    for (size_t i = 0; i < rows->n; i++) {
        free(rows->data[i].name);
        free(rows->data[i].op);
    }
    free(rows->data);
}

struct totals {
    uint64_t elements, source_bytes, bytes;
    size_t n;
};

static struct totals add_up(const struct rows *rows)
{
    struct totals t = {0};
    for (size_t i = 0; i < rows->n; i++) {
        const struct teg_convert_weight *w = &rows->data[i].w.weight;
        if (rows->data[i].w.left_alone)
            continue;
        t.elements += w->rows * w->columns;
        t.source_bytes += w->source_bytes;
        t.bytes += w->bytes;
        t.n++;
    }
    return t;
}

static bool is_language_model(const struct rows *rows)
{
    for (size_t i = 0; i < rows->n; i++)
        if (rows->data[i].w.embedding && !rows->data[i].w.left_alone)
            return true;
    return false;
}

static const char *role_of(const struct teg_quantize_weight *w)
{
    return w->embedding && w->head ? "embedding and head" : w->embedding ? "embedding" : w->head ? "head" : "weight";
}

static json_t *json_row(const struct row *row)
{
    const struct teg_convert_weight *w = &row->w.weight;
    json_t *name = cli_json_text(row->name, strlen(row->name));
    if (row->w.left_alone)
        return json_pack("{s:o, s:[I,I], s:s, s:s}", "name", name, "shape", (json_int_t)w->rows, (json_int_t)w->columns,
                         "op", row->op, "reason", row->w.left_alone);
    return json_pack("{s:o, s:[I,I], s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:I, s:b, s:b}", "name", name, "shape",
                     (json_int_t)w->rows, (json_int_t)w->columns, "op", row->op, "role", role_of(&row->w), "encoding",
                     w->encoding, "source_bytes", cli_json_u64(w->source_bytes), "bytes", cli_json_u64(w->bytes),
                     "bits_per_weight", cli_json_real(w->bits_per_weight), "relative_error",
                     cli_json_real(w->relative_error), "worst_row_error", cli_json_real(w->worst_row_error),
                     "worst_row", (json_int_t)w->worst_row, "exact", w->exact, "calibrated", row->w.calibrated);
}

static json_t *json_rows(const struct rows *rows, bool left_alone)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < rows->n; i++) {
        if ((rows->data[i].w.left_alone != NULL) != left_alone)
            continue;
        json_t *row = json_row(&rows->data[i]);
        if (!row || json_array_append_new(list, row) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static int print_json(const struct quantize_args *args, const struct rows *rows, const struct teg_convert_report *r,
                      const struct cli_check *check, double seconds)
{
    const struct totals t = add_up(rows);
    json_t *document = json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "output", cli_json_text(args->output, strlen(args->output)),
        "source_bytes", cli_json_u64(t.source_bytes), "bytes", cli_json_u64(t.bytes), "bits_per_weight",
        cli_json_real(t.elements ? (double)t.bytes * 8 / (double)t.elements : 0), "weights_bytes",
        cli_json_u64(r->weights_bytes), "predicted_kl", cli_json_real(r->predicted_kl), "seconds",
        cli_json_real(seconds), "weights", json_rows(rows, false), "left_alone", json_rows(rows, true));
    if (document && check && json_object_set_new(document, "check", cli_check_json(check)) != 0) {
        json_decref(document);
        document = NULL;
    }
    return cli_json_print(document);
}

static void print_row(struct cli_output *output, const struct row *row)
{
    const struct teg_convert_weight *w = &row->w.weight;
    char shape[48];
    snprintf(shape, sizeof(shape), "%llu x %llu", (unsigned long long)w->rows, (unsigned long long)w->columns);
    (void)cli_output_name(output, row->name, 40);
    if (row->w.left_alone)
        (void)cli_output_printf(output, " %-16s left alone: %s\n", shape, row->w.left_alone);
    else
        (void)cli_output_printf(output, " %-16s %-14s %12llu %6.2f %9.6f %9.6f%s\n", shape, w->encoding,
                                (unsigned long long)w->bytes, w->bits_per_weight, w->relative_error, w->worst_row_error,
                                w->exact ? " exact" : "");
}

static int print_table(const struct quantize_args *args, const struct rows *rows, const struct teg_convert_report *r,
                       const struct cli_check *check)
{
    const struct totals t = add_up(rows);
    char source[32], weights[32];
    struct cli_output output;
    (void)cli_output_open(&output, NULL);
    (void)cli_output_printf(&output, "%-40s %-16s %-14s %12s %6s %9s %9s\n", "weight", "shape", "encoding", "bytes",
                            "bits", "error", "worst row");
    for (size_t i = 0; i < rows->n; i++)
        print_row(&output, &rows->data[i]);
    (void)cli_output_printf(&output, "\n%s: %zu weights of %.2f bits, all weights %s (these were %s)\n", args->output,
                            t.n, t.elements ? (double)t.bytes * 8 / (double)t.elements : 0,
                            cli_bytes_text(r->weights_bytes, weights), cli_bytes_text(t.source_bytes, source));
    if (is_language_model(rows))
        cli_predicted_print(&output, r->predicted_kl);
    if (check)
        cli_check_print(&output, check);
    return cli_output_close(&output, true);
}

/* ---- options ---- */

static int rule_text(const struct quantize_args *args, char text[CLI_MOST_RULE])
{
    char sparse[32] = "";
    if (args->n_of_m && strlen(args->n_of_m) > 8)
        return cli_usage("bad option: --n-m: expected two small numbers such as 2:4, found '%.40s'; see 'tegula help "
                         "quantize'",
                         args->n_of_m);
    if (args->sparsity > 0)
        snprintf(sparse, sizeof(sparse), ",sparse=%.4f", args->sparsity);
    if (args->n_of_m)
        snprintf(sparse + strlen(sparse), sizeof(sparse) - strlen(sparse), ",%s", args->n_of_m);
    return cli_rule_text(&args->encoding, sparse, text);
}

/* ---- the command ---- */

static int write_package(const struct quantize_args *args, const char *input, struct teg_quantize_options *o)
{
    struct teg_error err = {0};
    struct teg_convert_report report = {0};
    struct rows rows = {0};
    struct cli_check check = {0};
    struct cli_progress progress;
    const double start = cli_now();
    const bool checks = args->encoding.check || args->encoding.check_file;
    int code = checks ? cli_convert_check_ready(input, &args->model, args->encoding.check_file) : CLI_DONE;
    if (code != CLI_DONE)
        return code;
    cli_progress_begin(&progress, (enum cli_progress_when)args->model.progress, "quantize", "bytes");
    o->progress = cli_progress_update;
    o->progress_ctx = &progress;
    o->on_weight = keep_weight;
    o->on_weight_ctx = &rows;
    const enum teg_status status = teg_quantize_package(input, args->output, o, &report, &err);
    cli_progress_end(&progress);
    if (status != TEG_OK)
        code = cli_fail_library(&err);
    else if (rows.failed)
        code = cli_fail_memory();
    const double seconds = cli_now() - start;
    if (code == CLI_DONE && checks)
        code = cli_convert_check(input, args->output, &args->model, args->encoding.check_file, &check);
    if (code == CLI_DONE)
        code = args->json ? print_json(args, &rows, &report, checks ? &check : NULL, seconds)
                          : print_table(args, &rows, &report, checks ? &check : NULL);
    free_rows(&rows);
    return code;
}

static int quantize(const struct cli_line *line, const void *ptr)
{
    const struct quantize_args *args = ptr;
    struct teg_quantize_options o;
    struct teg_calibration *calibration = NULL;
    char rule[CLI_MOST_RULE];
    if (!args->output)
        return cli_usage("missing option: --output (-o): expected the package to write, found none; give -o "
                         "OUT.mlpackage");
    int code = rule_text(args, rule);
    if (code != CLI_DONE)
        return code;
    teg_quantize_options_default(&o);
    char **patterns = cli_patterns_make(&args->encoding, &o.n_patterns);
    if (!patterns)
        return cli_fail_memory();
    o.weights = rule;
    o.embedding = args->encoding.embedding;
    o.head = args->encoding.head;
    o.patterns = (const char *const *)patterns;
    o.threshold_elements = (uint64_t)args->threshold;
    o.fit_groups = args->encoding.fit;
    o.again = args->again;
    o.replace = args->force;
    o.n_threads = (uint32_t)args->threads;
    o.memory_budget_bytes = (size_t)args->memory;
    if (args->encoding.calibrate)
        code = cli_calibrate(line->operands[0], args->encoding.calibrate, &args->model, args->threads, &calibration);
    o.calibration = calibration;
    if (code == CLI_DONE)
        code = write_package(args, line->operands[0], &o);
    teg_calibration_free(calibration);
    cli_patterns_free(patterns, o.n_patterns);
    return code;
}

const struct cli_command cli_command_quantize = {
    .name = "quantize",
    .operands = "PACKAGE",
    .summary = "write a Core ML package with its weights in another encoding",
    .details =
        "PACKAGE is any ML program, of one function or several; everything but its dense weights stays as it is. A "
        "folder of parts with a tegula.json becomes such a folder, part by part. One for "
        "iOS 16 or 17 gets int8 by channel or tensor, palettes by tensor or pruning, which is what these have; one for "
        "iOS 15 becomes one for iOS 16. Weights are the constants of linear, conv, conv_transpose, matmul and "
        "recurrent layers and "
        "the tables of embeddings; tables that are no weights (RoPE, masks) are left alone.\n\n"
        "A rule is WORD[/GRAIN][,FLAG]... int8, uint8, int4 and uint4 are scale * (q - offset); lut8 to lut1 are "
        "tables of 2 to 256 values. GRAIN is tensor, channel, or the number of columns of a block (int) or of rows "
        "that "
        "share a table (lut); without it int8 has a scale a channel, int4 one for each 32 columns, lut4 and less a "
        "table for each 16 rows, lut6 and lut8 one for the tensor. Flags: sym, asym, float (an offset in fp16, the "
        "most "
        "precise), minmax (scales by the largest value alone), plain (k-means by squared error alone), uniform, "
        "unique, "
        "v2, v4 (entries of 2 or 4 columns), fit, sparse=0.5, 2:4.\n\n"
        "--calibrate is what improves 4 bits and less most: a few hundred words of the kind that the model will see.",
    .options = option_table,
    .n_options = CLI_COUNT(option_table),
    .min_operands = 1,
    .max_operands = 1,
    .args_bytes = sizeof(struct quantize_args),
    .run = quantize,
};
