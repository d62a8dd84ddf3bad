/* convert.c: `tegula convert`: a model as a Core ML package, and what that cost.
 *
 * The result on standard output is a line for each weight (or one JSON document); it is printed when the package is
 * whole, so a failure prints no half table. */
#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "interrupt.h"
#include "io.h"

struct convert_args {
    struct cli_model_args model;
    struct cli_encoding_args encoding;
    const char *output, *target;
    int profile, softmax, shapes;
    int64_t ctx, chunk, kv_tile, n_parts, part_bytes, threads, memory;
    struct cli_integers buckets;
    bool explain, force, ignore_rules, json;
};

#define ARG(field) offsetof(struct convert_args, field)

static const struct cli_choice profiles[] = {{"portable", 0, NULL}, {"ane", 1, NULL}, {NULL, 0, NULL}};
static const struct cli_choice softmaxes[] = {
    {"two-pass", 0, NULL}, {"online", 1, NULL}, {"split", 2, NULL}, {NULL, 0, NULL}};
static const struct cli_choice shape_kinds[] = {{"range", 0, NULL}, {"enumerated", 1, NULL}, {NULL, 0, NULL}};

static const struct cli_option option_table[] = {
    {.name = "output",
     .letter = 'o',
     .type = CLI_TEXT,
     .offset = ARG(output),
     .placeholder = "OUT.mlpackage",
     .help = "the package to write; with --split the folder for its parts"},
    {.name = "profile",
     .type = CLI_CHOICE,
     .offset = ARG(profile),
     .initial = "portable",
     .choices = profiles,
     .help = "portable: one function for any device; ane: shapes and ops for the Neural Engine"},
    CLI_ENCODING_OPTIONS(
        struct convert_args, encoding, "f16",
        "f16, int8, int4, uint8, uint4, lut8, lut6, lut4, lut3, lut2, lut1, or keep (the source's own encoding where "
        "Core ML can hold it); RULE/GRAIN[,FLAG] as 'tegula help quantize' explains",
        "another encoding for tensors of that name in the source, or op:gather=, op:linear=, op:lm_head=; * and ? "
        "stand for any characters; may be given several times, the last that matches counts, names before ops",
        "leave tensors of that name (or op:TYPE) in f16; may be given several times"),
    {.name = "ctx",
     .type = CLI_INTEGER,
     .offset = ARG(ctx),
     .placeholder = "N",
     .min = 1,
     .max = INT32_MAX,
     .help = "slots of the KV cache (default: what the model was trained for, at most 4096)"},
    {.name = "chunk",
     .type = CLI_INTEGER,
     .offset = ARG(chunk),
     .placeholder = "N",
     .min = 1,
     .max = 65536,
     .help = "most tokens of a prefill call (default: 256, or --ctx where that is smaller)"},
    {.name = "shapes",
     .type = CLI_CHOICE,
     .offset = ARG(shapes),
     .initial = "range",
     .choices = shape_kinds,
     .help = "portable: calls of any number of tokens up to --chunk, or of 1, 2, 4, ... and --chunk only"},
    {.name = "kv-tile",
     .type = CLI_INTEGER,
     .offset = ARG(kv_tile),
     .placeholder = "N",
     .min = 1,
     .max = INT32_MAX,
     .help = "keys of an attention tile (default: the profile's)"},
    {.name = "softmax",
     .type = CLI_CHOICE,
     .offset = ARG(softmax),
     .initial = "two-pass",
     .choices = softmaxes,
     .help = "how the tiles of a row come together"},
    {.name = "buckets",
     .type = CLI_INTEGERS,
     .offset = ARG(buckets),
     .placeholder = "LIST",
     .min = 1,
     .max = INT32_MAX,
     .help = "ane: further functions for these shorter contexts"},
    {.name = "target",
     .type = CLI_TEXT,
     .offset = ARG(target),
     .placeholder = "SYSTEM",
     .initial = "iOS18",
     .help = "the oldest system that must load the package: iOS18, macOS15, iOS26, ..."},
    {.name = "split",
     .type = CLI_INTEGER,
     .offset = ARG(n_parts),
     .placeholder = "N",
     .initial = "1",
     .min = 1,
     .max = 64,
     .help = "ane: write N packages and a tegula.json that joins them"},
    {.name = "part-size",
     .type = CLI_INTEGER,
     .offset = ARG(part_bytes),
     .placeholder = "BYTES",
     .initial = "0",
     .min = 0,
     .max = INT64_MAX,
     .help = "ane: as many parts as keep the weights of each below BYTES"},
    {.name = "explain",
     .type = CLI_FLAG,
     .offset = ARG(explain),
     .help = "print the choices of the profile and the rules behind them; write nothing"},
    {.name = "ignore-rules",
     .type = CLI_FLAG,
     .offset = ARG(ignore_rules),
     .help = "write it although a rule of the profile is broken"},
    {.name = "force",
     .type = CLI_FLAG,
     .offset = ARG(force),
     .help = "replace an existing package, or folder of parts"},
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
     .help = "print {\"output\", \"packages\", \"weights_bytes\", ..., \"weights\": [...], \"check\"}"},
    CLI_TOKENIZER_OPTION(struct convert_args, model),
    CLI_PROGRESS_OPTION(struct convert_args, model),
};

/* ---- the report ---- */

struct weight_row {
    char *name;
    struct teg_convert_weight w;
};
struct rows {
    struct weight_row *data;
    size_t n, capacity;
    bool failed;
};

static void keep_weight(void *ctx, const struct teg_convert_weight *weight)
{
    struct rows *rows = ctx;
    if (rows->n == rows->capacity) {
        const size_t more = rows->capacity ? 2 * rows->capacity : 256;
        struct weight_row *moved = realloc(rows->data, more * sizeof(*moved));
        if (!moved) {
            rows->failed = true;
            return;
        }
        rows->data = moved;
        rows->capacity = more;
    }
    char *name = strdup(weight->name);
    if (!name) {
        rows->failed = true;
        return;
    }
    rows->data[rows->n++] = (struct weight_row){name, *weight};
}

static void free_rows(struct rows *rows)
{
    for (size_t i = 0; i < rows->n; i++)
        free(rows->data[i].name);
    free(rows->data);
}

static json_t *json_weights(const struct rows *rows)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < rows->n; i++) {
        const struct teg_convert_weight *w = &rows->data[i].w;
        json_t *row =
            json_pack("{s:o, s:[I,I], s:s, s:o, s:o, s:o, s:o, s:o, s:I, s:b}", "name",
                      cli_json_text(rows->data[i].name, strlen(rows->data[i].name)), "shape", (json_int_t)w->rows,
                      (json_int_t)w->columns, "encoding", w->encoding, "source_bytes", cli_json_u64(w->source_bytes),
                      "bytes", cli_json_u64(w->bytes), "bits_per_weight", cli_json_real(w->bits_per_weight),
                      "relative_error", cli_json_real(w->relative_error), "worst_row_error",
                      cli_json_real(w->worst_row_error), "worst_row", (json_int_t)w->worst_row, "exact", w->exact);
        if (!row || json_array_append_new(list, row) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static int print_json(const struct convert_args *args, const struct rows *rows, const struct teg_convert_report *r,
                      const struct cli_check *check, double seconds)
{
    json_t *document =
        json_pack("{s:o, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "output",
                  cli_json_text(args->output, strlen(args->output)), "packages", (int)r->n_packages, "source_bytes",
                  cli_json_u64(r->source_bytes), "weights_bytes", cli_json_u64(r->weights_bytes), "shared_bytes",
                  cli_json_u64(r->shared_bytes), "spec_bytes", cli_json_u64(r->spec_bytes), "predicted_kl",
                  cli_json_real(r->predicted_kl), "seconds", cli_json_real(seconds), "weights", json_weights(rows));
    if (document && check && json_object_set_new(document, "check", cli_check_json(check)) != 0) {
        json_decref(document);
        document = NULL;
    }
    return cli_json_print(document);
}

static int print_table(const struct convert_args *args, const struct rows *rows, const struct teg_convert_report *r,
                       const struct cli_check *check)
{
    char source[32], weights[32], spec[32];
    struct cli_output output;
    (void)cli_output_open(&output, NULL);
    (void)cli_output_printf(&output, "%-40s %-16s %-14s %12s %6s %9s %9s\n", "weight", "shape", "encoding", "bytes",
                            "bits", "error", "worst row");
    for (size_t i = 0; i < rows->n; i++) {
        const struct teg_convert_weight *w = &rows->data[i].w;
        char shape[48];
        snprintf(shape, sizeof(shape), "%llu x %llu", (unsigned long long)w->rows, (unsigned long long)w->columns);
        (void)cli_output_name(&output, rows->data[i].name, 40);
        (void)cli_output_printf(&output, " %-16s %-14s %12llu %6.2f %9.6f %9.6f\n", shape, w->encoding,
                                (unsigned long long)w->bytes, w->bits_per_weight, w->relative_error,
                                w->worst_row_error);
    }
    (void)cli_output_printf(&output, "\n%s: %u package%s, weights %s (source %s), program %s\n", args->output,
                            r->n_packages, r->n_packages == 1 ? "" : "s", cli_bytes_text(r->weights_bytes, weights),
                            cli_bytes_text(r->source_bytes, source), cli_bytes_text(r->spec_bytes, spec));
    cli_predicted_print(&output, r->predicted_kl);
    if (check)
        cli_check_print(&output, check);
    return cli_output_close(&output, true);
}

/* ---- options ---- */

/* "int4" with --group-size 64 is "int4/64". */
static int fill_options(const struct convert_args *args, const char *rule, struct teg_convert_options *o,
                        uint32_t **buckets)
{
    teg_convert_options_default(o);
    *buckets = calloc(args->buckets.n + 1, sizeof(**buckets));
    if (!*buckets)
        return cli_fail_memory();
    for (size_t i = 0; i < args->buckets.n; i++)
        (*buckets)[i] = (uint32_t)args->buckets.data[i];
    o->profile = cli_choice_name(profiles, args->profile);
    o->softmax = cli_choice_name(softmaxes, args->softmax);
    o->weights = rule;
    o->embedding = args->encoding.embedding;
    o->head = args->encoding.head;
    o->fit_groups = args->encoding.fit;
    o->context_tokens = (uint32_t)args->ctx;
    o->chunk_tokens = (uint32_t)args->chunk;
    o->kv_tile_tokens = (uint32_t)args->kv_tile;
    o->buckets = *buckets;
    o->n_buckets = args->buckets.n;
    o->ignore_rules = args->ignore_rules;
    o->target = args->target;
    o->n_parts = (uint32_t)args->n_parts;
    o->part_bytes = (uint64_t)args->part_bytes;
    o->enumerated_shapes = args->shapes != 0;
    o->tokenizer_path = args->model.tokenizer;
    o->replace = args->force;
    o->n_threads = (uint32_t)args->threads;
    o->memory_budget_bytes = (size_t)args->memory;
    return CLI_DONE;
}

/* ---- the command ---- */

static int explain(const char *input, const struct teg_convert_options *o)
{
    struct teg_error err = {0};
    struct teg_text text = {0};
    struct cli_output output;
    if (teg_convert_explain(input, o, &text, &err) != TEG_OK)
        return cli_fail_library(&err);
    (void)cli_output_open(&output, NULL);
    (void)cli_output_write(&output, text.bytes, text.n_bytes);
    teg_text_free(&text);
    return cli_output_close(&output, true);
}

static int write_package(const struct convert_args *args, const char *input, struct teg_convert_options *o)
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
    cli_progress_begin(&progress, (enum cli_progress_when)args->model.progress, "convert", "bytes");
    o->progress = cli_progress_update;
    o->progress_ctx = &progress;
    o->on_weight = keep_weight;
    o->on_weight_ctx = &rows;
    const enum teg_status status = teg_convert(input, args->output, o, &report, &err);
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

static int convert(const struct cli_line *line, const void *ptr)
{
    const struct convert_args *args = ptr;
    struct teg_convert_options o;
    struct teg_calibration *calibration = NULL;
    uint32_t *buckets = NULL;
    char rule[CLI_MOST_RULE];
    if (!args->output && !args->explain)
        return cli_usage("missing option: --output (-o): expected the package to write, found none; give -o "
                         "OUT.mlpackage");
    int code = cli_rule_text(&args->encoding, "", rule);
    if (code == CLI_DONE)
        code = fill_options(args, rule, &o, &buckets);
    char **patterns = code == CLI_DONE ? cli_patterns_make(&args->encoding, &o.n_patterns) : NULL;
    o.patterns = (const char *const *)patterns;
    if (code == CLI_DONE && !patterns)
        code = cli_fail_memory();
    if (code == CLI_DONE && args->encoding.calibrate && !args->explain)
        code = cli_calibrate(line->operands[0], args->encoding.calibrate, &args->model, args->threads, &calibration);
    if (code == CLI_DONE)
        o.calibration = calibration;
    if (code == CLI_DONE)
        code = args->explain ? explain(line->operands[0], &o) : write_package(args, line->operands[0], &o);
    teg_calibration_free(calibration);
    cli_patterns_free(patterns, patterns ? o.n_patterns : 0);
    free(buckets);
    return code;
}

const struct cli_command cli_command_convert = {
    .name = "convert",
    .operands = "MODEL",
    .summary = "write a model as a Core ML package",
    .details =
        "MODEL is a GGUF, a safetensors directory, or a package that is recognised as a language model (to give it "
        "another profile or other sizes; 'tegula quantize' changes the weights of any package and nothing else). The "
        "package appears under its name when it is whole, with its tokenizer in it, so that every command takes it.\n\n"
        "The portable profile is one function: input_ids and position_ids of 1 to --chunk tokens, states for keys and "
        "values, the logits of the last token. The ane profile has functions prepare, prefill and decode of fixed "
        "shapes, which share weights and state. docs/CONVERT.md shows how an app calls both.\n\n"
        "The result is a line for each weight: its encoding, size, and error as |w - w'| / |w|. --check measures what "
        "that does to the model.",
    .options = option_table,
    .n_options = CLI_COUNT(option_table),
    .min_operands = 1,
    .max_operands = 1,
    .args_bytes = sizeof(struct convert_args),
    .run = convert,
};
