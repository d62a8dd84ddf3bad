/* inspect.c: `tegula inspect`: what is inside a model file.
 *
 * Invariant: sections are printed in one fixed order, whatever the order of the options, and every number that is
 * printed comes from the library. Metadata and weights need only the part of the file before its data. The facts are
 * those of the whole model; where Tegula cannot run it, what the file says of itself is still shown, so that one can
 * see why. */
#include <string.h>

#include "io.h"
#include "predict.h"
#include "setup.h"

struct inspect_args {
    struct cli_model_args model;
    const char *target, *why_not;
    bool metadata, weights, ops, plan, functions, states, json;
};

#define ARG(field) offsetof(struct inspect_args, field)

/* A shape: 8 numbers of at most 20 digits, with separators. */
enum { array_items_max = 8, shape_bytes = 8 * 22 + 1 };

static const struct cli_option option_table[] = {
    {.name = "metadata",
     .type = CLI_FLAG,
     .offset = ARG(metadata),
     .help = "every metadata entry; arrays are cut after 8 items"},
    {.name = "weights", .type = CLI_FLAG, .offset = ARG(weights), .help = "every stored tensor: type, shape, bytes"},
    {.name = "ops", .type = CLI_FLAG, .offset = ARG(ops), .help = "the graph, every op with its shapes"},
    {.name = "plan", .type = CLI_FLAG, .offset = ARG(plan), .help = "the plan, every step with its kernel and buffers"},
    {.name = "json", .type = CLI_FLAG, .offset = ARG(json), .help = "print one JSON document"},
    CLI_MODE_OPTION(struct inspect_args, model),
    CLI_TOKENIZER_OPTION(struct inspect_args, model),
    CLI_PROGRESS_OPTION(struct inspect_args, model),
    {.name = "functions",
     .type = CLI_FLAG,
     .offset = ARG(functions),
     .help = "packages: every function with its inputs, outputs and states"},
    {.name = "states", .type = CLI_FLAG, .offset = ARG(states), .help = "packages: every state: type, shape, bytes"},
    {.name = "why-not",
     .type = CLI_TEXT,
     .offset = ARG(why_not),
     .placeholder = "OP",
     .help = "packages: why an op with OP in its name or type is not raised: which condition failed"},
    CLI_TARGET_OPTION(struct inspect_args, target),
};

/* ---- facts ---- */

struct fact {
    const char *label, *key; /* for people; in JSON */
    const char *text;        /* NULL: the number */
    uint64_t number;
};

enum { n_facts_max = 16 };

static size_t collect_facts(const struct teg_model_info *info, struct fact facts[n_facts_max])
{
    const struct fact all[] = {
        {"format", "format", info->format, 0},
        {"architecture", "architecture", info->architecture, 0},
        {"name", "name", info->name, 0},
        {"mode", "mode", info->mode, 0},
        {"parameters", "n_parameters", NULL, info->n_parameters},
        {"weights, bytes", "weights_bytes", NULL, info->weights_bytes},
        {"vocabulary, tokens", "vocab_tokens", NULL, (uint64_t)info->vocab_tokens},
        {"context, tokens", "context_tokens", NULL, info->context_tokens},
        {"layers", "n_layers", NULL, info->n_layers},
        {"width", "width", NULL, info->width},
        {"FFN width", "ffn_width", NULL, info->ffn_width},
        {"heads", "n_heads", NULL, info->n_heads},
        {"KV heads", "n_kv_heads", NULL, info->n_kv_heads},
        {"head width", "head_width", NULL, info->head_width},
    };
    memcpy(facts, all, sizeof(all));
    return CLI_COUNT(all);
}

/* refusal: why the model cannot run, or "". */
static void print_facts(struct cli_output *output, const struct teg_model *model, const char *refusal)
{
    struct fact facts[n_facts_max];
    const size_t n = collect_facts(teg_model_info(model), facts);
    for (size_t i = 0; i < n; i++) {
        if (*refusal && strcmp(facts[i].key, "mode") == 0)
            continue;
        if (facts[i].text) {
            (void)cli_output_name(output, facts[i].label, 20);
            (void)cli_output_name(output, facts[i].text, 0);
            (void)cli_output_write(output, "\n", 1);
        } else if (facts[i].number > 0) /* 0: unknown, the model was not built */
            (void)cli_output_printf(output, "%-20s%llu\n", facts[i].label, (unsigned long long)facts[i].number);
    }
    (void)cli_output_printf(output, "%-20s%zu\n", "metadata entries", teg_model_metadata_count(model));
    (void)cli_output_printf(output, "%-20s%zu\n", "weights", teg_model_weight_count(model));
    if (*refusal) {
        (void)cli_output_name(output, "runs", 20);
        (void)cli_output_name(output, "no: ", 0);
        (void)cli_output_name(output, refusal, 0);
        (void)cli_output_write(output, "\n", 1);
    }
}

static void json_facts(json_t *document, const struct teg_model *model, const char *refusal)
{
    struct fact facts[n_facts_max];
    const size_t n = collect_facts(teg_model_info(model), facts);
    for (size_t i = 0; i < n; i++)
        json_object_set_new(document, facts[i].key,
                            facts[i].text ? cli_json_text(facts[i].text, strlen(facts[i].text))
                                          : cli_json_u64(facts[i].number));
    json_object_set_new(document, "n_metadata", cli_json_u64(teg_model_metadata_count(model)));
    json_object_set_new(document, "n_weights", cli_json_u64(teg_model_weight_count(model)));
    json_object_set_new(document, "refusal", *refusal ? cli_json_text(refusal, strlen(refusal)) : json_null());
}

/* ---- metadata ---- */

/* Entry `index`; *value belongs to the caller. */
static int get_metadata(const struct teg_model *model, size_t index, struct teg_metadata *item, struct teg_text *value)
{
    struct teg_error err = {0};
    if (teg_model_metadata(model, index, item) != TEG_OK)
        return cli_fail("cannot list metadata: entry %zu: expected it to be there, found none; report this", index);
    if (teg_model_metadata_json(model, index, array_items_max, value, &err) != TEG_OK)
        return cli_fail_library(&err);
    return CLI_DONE;
}

static int print_metadata(struct cli_output *output, const struct teg_model *model)
{
    int code = CLI_DONE;
    for (size_t i = 0; code == CLI_DONE && i < teg_model_metadata_count(model); i++) {
        struct teg_metadata item = {0};
        struct teg_text value = {0};
        code = get_metadata(model, i, &item, &value);
        if (code == CLI_DONE)
            code = cli_output_name(output, item.key, 0);
        if (code == CLI_DONE)
            code = cli_output_printf(output, " (%s) = %s\n", item.type, value.bytes);
        teg_text_free(&value);
    }
    return code;
}

static int json_metadata(json_t *document, const struct teg_model *model)
{
    int code = CLI_DONE;
    json_t *all = json_object();
    for (size_t i = 0; code == CLI_DONE && i < teg_model_metadata_count(model); i++) {
        struct teg_metadata item = {0};
        struct teg_text text = {0};
        code = get_metadata(model, i, &item, &text);
        if (code == CLI_DONE) {
            json_t *value = json_loadb(text.bytes, text.n_bytes, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
            /* An infinite number, say, is no JSON; then the text stands for itself. */
            if (!value)
                value = cli_json_text(text.bytes, text.n_bytes);
            json_t *key = cli_json_text(item.key, strlen(item.key)); /* valid UTF-8, whatever the file says */
            json_object_set_new(all, json_string_value(key),
                                json_pack("{s:s, s:o}", "type", item.type, "value", value));
            json_decref(key);
        }
        teg_text_free(&text);
    }
    json_object_set_new(document, "metadata", all);
    return code;
}

/* ---- weights ---- */

static void shape_text(const struct teg_weight *weight, char text[shape_bytes])
{
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t d = 0; d < weight->rank && d < CLI_COUNT(weight->dims); d++)
        used += (size_t)snprintf(text + used, shape_bytes - used, "%s%llu", d ? ", " : "",
                                 (unsigned long long)weight->dims[d]);
}

static int print_weights(struct cli_output *output, const struct teg_model *model)
{
    uint64_t total = 0;
    for (size_t i = 0; i < teg_model_weight_count(model); i++) {
        struct teg_weight weight;
        char shape[shape_bytes];
        if (teg_model_weight(model, i, &weight) != TEG_OK)
            return cli_fail("cannot list weights: entry %zu: expected it to be there, found none; report this", i);
        shape_text(&weight, shape);
        (void)cli_output_name(output, weight.name, 40);
        (void)cli_output_printf(output, " %-6s [%s] %llu bytes at %llu\n", weight.dtype, shape,
                                (unsigned long long)weight.n_bytes, (unsigned long long)weight.file_offset);
        total += weight.n_bytes;
    }
    return cli_output_printf(output, "%zu weights, %llu bytes\n", teg_model_weight_count(model),
                             (unsigned long long)total);
}

static int json_weights(json_t *document, const struct teg_model *model)
{
    json_t *all = json_array();
    for (size_t i = 0; i < teg_model_weight_count(model); i++) {
        struct teg_weight weight;
        if (teg_model_weight(model, i, &weight) != TEG_OK)
            break;
        json_t *shape = json_array();
        for (uint32_t d = 0; d < weight.rank && d < CLI_COUNT(weight.dims); d++)
            json_array_append_new(shape, cli_json_u64(weight.dims[d]));
        json_array_append_new(all, json_pack("{s:o, s:s, s:o, s:o, s:o}", "name",
                                             cli_json_text(weight.name, strlen(weight.name)), "dtype", weight.dtype,
                                             "shape", shape, "bytes", cli_json_u64(weight.n_bytes), "file_offset",
                                             cli_json_u64(weight.file_offset)));
    }
    json_object_set_new(document, "weights", all);
    return CLI_DONE;
}

/* ---- ops and plan ---- */

static int print_dump(struct cli_output *output, const struct teg_model *model, enum teg_dump what)
{
    struct teg_error err = {0};
    struct teg_text text = {0};
    if (teg_model_dump(model, what, &text, &err) != TEG_OK)
        return cli_fail_library(&err);
    int code = cli_output_write(output, text.bytes, text.n_bytes);
    if (code == CLI_DONE && text.n_bytes > 0 && text.bytes[text.n_bytes - 1] != '\n')
        code = cli_output_write(output, "\n", 1);
    teg_text_free(&text);
    return code;
}

/* An array of lines. */
static int json_dump_lines(json_t *document, const struct teg_model *model, enum teg_dump what, const char *key)
{
    struct teg_error err = {0};
    struct teg_text text = {0};
    if (teg_model_dump(model, what, &text, &err) != TEG_OK)
        return cli_fail_library(&err);
    json_t *lines = json_array();
    for (size_t start = 0; start < text.n_bytes;) {
        const char *end = memchr(text.bytes + start, '\n', text.n_bytes - start);
        const size_t n = end ? (size_t)(end - (text.bytes + start)) : text.n_bytes - start;
        json_array_append_new(lines, cli_json_text(text.bytes + start, n));
        start += n + 1;
    }
    json_object_set_new(document, key, lines);
    teg_text_free(&text);
    return CLI_DONE;
}

static int print_all(const struct inspect_args *args, const struct teg_model *model, const char *refusal)
{
    static struct cli_output output;
    (void)cli_output_open(&output, NULL);
    int code = CLI_DONE;
    if (!args->metadata && !args->weights && !args->ops && !args->plan)
        print_facts(&output, model, refusal);
    if (args->metadata)
        code = print_metadata(&output, model);
    if (code == CLI_DONE && args->weights)
        code = print_weights(&output, model);
    if (code == CLI_DONE && args->ops)
        code = print_dump(&output, model, TEG_DUMP_OPS);
    if (code == CLI_DONE && args->plan)
        code = print_dump(&output, model, TEG_DUMP_PLAN);
    const int closed = cli_output_close(&output, code == CLI_DONE);
    return code != CLI_DONE ? code : closed;
}

static int json_all(const struct inspect_args *args, const struct teg_model *model, const char *refusal)
{
    json_t *document = json_object();
    int code = CLI_DONE;
    json_facts(document, model, refusal);
    if (args->metadata)
        code = json_metadata(document, model);
    if (code == CLI_DONE && args->weights)
        code = json_weights(document, model);
    if (code == CLI_DONE && args->ops)
        code = json_dump_lines(document, model, TEG_DUMP_OPS, "ops");
    if (code == CLI_DONE && args->plan)
        code = json_dump_lines(document, model, TEG_DUMP_PLAN, "plan");
    if (code == CLI_DONE)
        return cli_json_print(document);
    json_decref(document);
    return code;
}

/* `refusal` is filled where the model can be shown but not run. */
static int open_model(const char *path, const struct inspect_args *args, struct teg_model **model,
                      struct teg_error *refusal)
{
    struct teg_error err = {0};
    const bool needs_graph = args->ops || args->plan;
    const bool shows_facts = args->json || (!args->metadata && !args->weights);
    if (!needs_graph && !shows_facts)
        return cli_model_open(path, &args->model, true, model);
    const enum teg_status status = cli_model_try(path, &args->model, false, model, &err);
    if (status == TEG_ERR_UNSUPPORTED && !needs_graph &&
        cli_model_try(path, &args->model, true, model, NULL) == TEG_OK) {
        *refusal = err;
        return CLI_DONE;
    }
    return status == TEG_OK ? CLI_DONE : cli_fail_library(&err);
}

static int inspect_package(const char *path, const struct inspect_args *args)
{
    const struct cli_inspect_program what = {.target = args->target,
                                             .why_not = args->why_not,
                                             .metadata = args->metadata,
                                             .weights = args->weights,
                                             .ops = args->ops,
                                             .functions = args->functions,
                                             .states = args->states,
                                             .json = args->json};
    return cli_inspect_program(path, &what);
}

static int inspect(const struct cli_line *line, const void *ptr)
{
    const struct inspect_args *args = ptr;
    struct teg_model *model = NULL;
    if (cli_is_program(line->operands[0]) && !args->plan) /* a plan is that of a language model, in a package too */
        return inspect_package(line->operands[0], args);
    if (args->functions || args->states || args->target || args->why_not)
        return cli_usage(
            "bad option: --%s: %s: expected a Core ML package without --plan, found another; use --ops or --plan",
            args->functions ? "functions"
            : args->states  ? "states"
            : args->why_not ? "why-not"
                            : "target",
            line->operands[0]);
    struct teg_error refusal = {0};
    int code = open_model(line->operands[0], args, &model, &refusal);
    if (code == CLI_DONE)
        code = (args->json ? json_all : print_all)(args, model, refusal.message);
    teg_model_free(model);
    return code;
}

const struct cli_command cli_command_inspect = {
    .name = "inspect",
    .operands = "FILE",
    .summary = "show what is inside a model",
    .details =
        "Prints the facts of a model: format, architecture, sizes, and why it cannot run where that is so; of a Core "
        "ML package its functions and the oldest "
        "systems that can run it, with the reasons; where it is a language model, its contract: what each input, "
        "output and "
        "state is for. The options add or choose sections: they are printed in the "
        "order metadata, functions, states, weights, ops, plan. With --json the facts are always there, and ops "
        "and plan are arrays of lines.",
    .options = option_table,
    .n_options = CLI_COUNT(option_table),
    .min_operands = 1,
    .max_operands = 1,
    .args_bytes = sizeof(struct inspect_args),
    .run = inspect,
};
