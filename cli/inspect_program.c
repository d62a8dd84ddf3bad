/* inspect_program.c: `tegula inspect` of a Core ML package: facts, functions, states, weights, ops, and the oldest
 * systems that can run it.
 *
 * Invariant: as in inspect.c, sections come in one fixed order, and nothing is computed from weights: a package of any
 * size is shown at once. Whether every op can run here is not asked; a program that cannot run can still be read. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "io.h"
#include "predict.h"

static const char *const kinds[] = {
    [TEG_FEATURE_ARRAY] = "array",
    [TEG_FEATURE_IMAGE] = "image",
    [TEG_FEATURE_STATE] = "state",
    [TEG_FEATURE_INT64] = "int64",
    [TEG_FEATURE_DOUBLE] = "double",
    [TEG_FEATURE_STRING] = "string",
    [TEG_FEATURE_DICT_INT64] = "dictionary of int64",
    [TEG_FEATURE_DICT_STRING] = "dictionary of strings",
    [TEG_FEATURE_OTHER] = "other",
};
static const char *const colours[] = {[TEG_COLOUR_RGB] = "RGB",
                                      [TEG_COLOUR_BGR] = "BGR",
                                      [TEG_COLOUR_GRAY] = "grey",
                                      [TEG_COLOUR_GRAY_F16] = "grey float16"};
static const struct {
    enum teg_feature_role role;
    const char *label, *key;
} roles[] = {
    {TEG_ROLE_INPUT, "input", "inputs"}, {TEG_ROLE_OUTPUT, "output", "outputs"}, {TEG_ROLE_STATE, "state", "states"}};

bool cli_is_program(const char *path)
{
    static const char *const marks[] = {"Manifest.json", "model.mil", "coremldata.bin", "tegula.json"};
    static const char *const endings[] = {".mlpackage", ".mlmodelc", "tegula.json"};
    char name[4096];
    struct stat st;
    for (size_t i = 0; i < CLI_COUNT(marks); i++) {
        const int n = snprintf(name, sizeof(name), "%s/%s", path, marks[i]);
        if (n > 0 && (size_t)n < sizeof(name) && stat(name, &st) == 0)
            return true;
    }
    size_t n = strlen(path);
    while (n > 0 && path[n - 1] == '/')
        n--;
    for (size_t i = 0; i < CLI_COUNT(endings); i++) {
        const size_t k = strlen(endings[i]);
        if (n >= k && strncmp(path + n - k, endings[i], k) == 0)
            return true;
    }
    return false;
}

/* ---- features ---- */

static size_t count_of(const struct teg_function *f, enum teg_feature_role role)
{
    return role == TEG_ROLE_INPUT ? f->n_inputs : role == TEG_ROLE_OUTPUT ? f->n_outputs : f->n_states;
}

static void print_shape(struct cli_output *output, const struct teg_feature *f)
{
    if (!f->has_shape) {
        (void)cli_output_printf(output, " [any]");
        return;
    }
    (void)cli_output_printf(output, " [");
    for (uint32_t d = 0; d < f->rank; d++) {
        (void)cli_output_printf(output, "%s%lld", d ? ", " : "", (long long)f->shape[d]);
        if (f->lower[d] != f->upper[d] && !f->n_enumerated)
            (void)cli_output_printf(output, f->upper[d] < 0 ? " (%lld or more)" : " (%lld to %lld)",
                                    (long long)f->lower[d], (long long)f->upper[d]);
    }
    (void)cli_output_printf(output, "]");
    const uint32_t rank = f->kind == TEG_FEATURE_IMAGE ? 2 : f->rank;
    for (size_t i = 0; i < f->n_enumerated; i++) {
        (void)cli_output_printf(output, i ? ", " : " one of ");
        for (uint32_t d = 0; d < rank; d++)
            (void)cli_output_printf(output, "%s%lld", d ? "x" : "", (long long)f->enumerated[i][d]);
    }
}

static void print_feature(struct cli_output *output, const char *label, const struct teg_feature *f)
{
    const bool has_type = f->kind == TEG_FEATURE_ARRAY || f->kind == TEG_FEATURE_STATE;
    (void)cli_output_printf(output, "  %-8s", label);
    (void)cli_output_name(output, f->name, 24);
    (void)cli_output_printf(output, " %s", has_type ? teg_element_name(f->element) : kinds[f->kind]);
    if (f->kind == TEG_FEATURE_IMAGE)
        (void)cli_output_printf(output, " %s", colours[f->colour]);
    if (has_type || f->kind == TEG_FEATURE_IMAGE)
        print_shape(output, f);
    if (f->optional)
        (void)cli_output_printf(output, " optional, default %g", f->default_value);
    if (*f->description) {
        (void)cli_output_printf(output, "  ");
        (void)cli_output_name(output, f->description, 0);
    }
    (void)cli_output_printf(output, "\n");
}

static void print_functions(struct cli_output *output, const struct teg_program *program)
{
    const struct teg_program_info *const info = teg_program_info(program);
    for (size_t i = 0; i < info->n_functions; i++) {
        struct teg_function f = {0};
        (void)teg_program_function(program, i, &f);
        (void)cli_output_printf(output, "function ");
        (void)cli_output_name(output, f.name, 0);
        (void)cli_output_printf(output, "%s: %s, %zu ops\n",
                                strcmp(f.name, info->default_function) == 0 ? " (default)" : "", f.opset, f.n_ops);
        for (size_t r = 0; r < CLI_COUNT(roles); r++)
            for (size_t k = 0; k < count_of(&f, roles[r].role); k++) {
                struct teg_feature feature;
                if (teg_program_feature(program, i, roles[r].role, k, &feature) == TEG_OK)
                    print_feature(output, roles[r].label, &feature);
            }
    }
}

static json_t *json_dims(const int64_t *dims, uint32_t rank)
{
    json_t *list = json_array();
    for (uint32_t d = 0; d < rank; d++)
        json_array_append_new(list, dims[d] < 0 ? json_null() : json_integer(dims[d]));
    return list;
}

static json_t *json_feature(const struct teg_feature *f)
{
    const bool is_image = f->kind == TEG_FEATURE_IMAGE;
    json_t *item = json_pack("{s:o, s:s, s:b}", "name", cli_json_text(f->name, strlen(f->name)), "kind", kinds[f->kind],
                             "optional", f->optional);
    if (f->kind <= TEG_FEATURE_STATE) {
        json_object_set_new(item, "dtype", json_string(teg_element_name(f->element)));
        json_object_set_new(item, "shape", f->has_shape ? json_dims(f->shape, f->rank) : json_null());
    }
    if (f->kind <= TEG_FEATURE_STATE && f->has_shape) {
        json_object_set_new(item, "lower", json_dims(f->lower, f->rank));
        json_object_set_new(item, "upper", json_dims(f->upper, f->rank));
    }
    if (f->n_enumerated) {
        json_t *list = json_array();
        for (size_t i = 0; i < f->n_enumerated; i++)
            json_array_append_new(list, json_dims(f->enumerated[i], is_image ? 2 : f->rank));
        json_object_set_new(item, "enumerated", list);
    }
    if (is_image)
        json_object_set_new(item, "colour", json_string(colours[f->colour]));
    if (f->has_default)
        json_object_set_new(item, "default", cli_json_real(f->default_value));
    if (*f->description)
        json_object_set_new(item, "description", cli_json_text(f->description, strlen(f->description)));
    return item;
}

static json_t *json_functions(const struct teg_program *program)
{
    json_t *list = json_array();
    for (size_t i = 0; i < teg_program_info(program)->n_functions; i++) {
        struct teg_function f = {0};
        (void)teg_program_function(program, i, &f);
        json_t *item = json_pack("{s:o, s:s, s:i, s:I}", "name", cli_json_text(f.name, strlen(f.name)), "opset",
                                 f.opset, "spec_version", (int)f.spec_version, "n_ops", (json_int_t)f.n_ops);
        for (size_t r = 0; r < CLI_COUNT(roles); r++) {
            json_t *features = json_array();
            for (size_t k = 0; k < count_of(&f, roles[r].role); k++) {
                struct teg_feature feature;
                if (teg_program_feature(program, i, roles[r].role, k, &feature) == TEG_OK)
                    json_array_append_new(features, json_feature(&feature));
            }
            json_object_set_new(item, roles[r].key, features);
        }
        if (*f.predicted_feature)
            json_object_set_new(item, "predicted_feature",
                                cli_json_text(f.predicted_feature, strlen(f.predicted_feature)));
        json_array_append_new(list, item);
    }
    return list;
}

/* ---- states: of all functions, each name once ---- */

/* The i-th state of the program, counted over functions; false behind the last. *seen: an earlier function has it. */
static bool state_at(const struct teg_program *program, size_t index, struct teg_feature *state, bool *seen)
{
    const size_t n_functions = teg_program_info(program)->n_functions;
    for (size_t i = 0; i < n_functions; i++) {
        struct teg_function f = {0};
        (void)teg_program_function(program, i, &f);
        if (index >= f.n_states) {
            index -= f.n_states;
            continue;
        }
        if (teg_program_feature(program, i, TEG_ROLE_STATE, index, state) != TEG_OK)
            return false;
        *seen = false;
        for (size_t other = 0; other < i; other++) {
            struct teg_feature twin;
            for (size_t k = 0; teg_program_feature(program, other, TEG_ROLE_STATE, k, &twin) == TEG_OK; k++)
                *seen = *seen || strcmp(twin.name, state->name) == 0;
        }
        return true;
    }
    return false;
}

static uint64_t state_bytes(const struct teg_feature *f)
{
    uint64_t n = teg_element_bytes(f->element);
    for (uint32_t d = 0; d < f->rank; d++)
        n *= (uint64_t)f->shape[d];
    return n;
}

static void print_states(struct cli_output *output, const struct teg_program *program)
{
    struct teg_feature f;
    bool seen = false;
    uint64_t total = 0;
    size_t n = 0;
    for (size_t i = 0; state_at(program, i, &f, &seen); i++) {
        if (seen)
            continue;
        (void)cli_output_name(output, f.name, 32);
        (void)cli_output_printf(output, " %s", teg_element_name(f.element));
        print_shape(output, &f);
        (void)cli_output_printf(output, " %llu bytes\n", (unsigned long long)state_bytes(&f));
        total += state_bytes(&f);
        n++;
    }
    (void)cli_output_printf(output, "%zu states, %llu bytes\n", n, (unsigned long long)total);
}

static json_t *json_states(const struct teg_program *program)
{
    struct teg_feature f;
    bool seen = false;
    json_t *list = json_array();
    for (size_t i = 0; state_at(program, i, &f, &seen); i++)
        if (!seen)
            json_array_append_new(list, json_pack("{s:o, s:s, s:o, s:o}", "name", cli_json_text(f.name, strlen(f.name)),
                                                  "dtype", teg_element_name(f.element), "shape",
                                                  json_dims(f.shape, f.rank), "bytes", cli_json_u64(state_bytes(&f))));
    return list;
}

/* ---- facts ---- */

static void print_facts(struct cli_output *output, const struct teg_program *program)
{
    const struct teg_program_info *const info = teg_program_info(program);
    const struct {
        const char *label, *text;
    } facts[] = {{"format", info->format},           {"minimum systems", teg_program_minimum_systems(program)},
                 {"description", info->description}, {"author", info->author},
                 {"license", info->license},         {"version", info->version}};
    for (size_t i = 0; i < CLI_COUNT(facts); i++)
        if (*facts[i].text) {
            (void)cli_output_name(output, facts[i].label, 20);
            (void)cli_output_name(output, facts[i].text, 0);
            (void)cli_output_write(output, "\n", 1);
        }
    (void)cli_output_printf(output, "%-20s%u\n%-20s%zu\n%-20s%llu\n", "specification", info->spec_version, "weights",
                            info->n_weights, "weights, bytes", (unsigned long long)info->weights_bytes);
    print_functions(output, program);
    for (size_t i = 0; i < info->n_requirements; i++) {
        struct teg_requirement r = {0};
        (void)teg_program_requirement(program, i, &r);
        if (r.spec_version <= 6)
            continue;
        (void)cli_output_printf(output, "needs %s: ", r.systems);
        (void)cli_output_name(output, r.feature, 0);
        if (*r.function)
            (void)cli_output_printf(output, ", function ");
        (void)cli_output_name(output, r.function, 0);
        if (*r.where)
            (void)cli_output_printf(output, ", at ");
        (void)cli_output_name(output, r.where, 0);
        (void)cli_output_write(output, "\n", 1);
    }
}

static json_t *json_facts(const struct teg_program *program)
{
    const struct teg_program_info *const info = teg_program_info(program);
    json_t *needs = json_array();
    for (size_t i = 0; i < info->n_requirements; i++) {
        struct teg_requirement r = {0};
        (void)teg_program_requirement(program, i, &r);
        json_array_append_new(needs, json_pack("{s:s, s:o, s:o, s:i, s:s}", "feature", r.feature, "function",
                                               cli_json_text(r.function, strlen(r.function)), "where",
                                               cli_json_text(r.where, strlen(r.where)), "spec_version",
                                               (int)r.spec_version, "systems", r.systems));
    }
    return json_pack("{s:s, s:i, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "format", info->format,
                     "spec_version", (int)info->spec_version, "minimum_systems", teg_program_minimum_systems(program),
                     "default_function", cli_json_text(info->default_function, strlen(info->default_function)),
                     "description", cli_json_text(info->description, strlen(info->description)), "author",
                     cli_json_text(info->author, strlen(info->author)), "license",
                     cli_json_text(info->license, strlen(info->license)), "version",
                     cli_json_text(info->version, strlen(info->version)), "n_weights", cli_json_u64(info->n_weights),
                     "weights_bytes", cli_json_u64(info->weights_bytes), "functions", json_functions(program),
                     "requirements", needs);
}

/* ---- metadata, weights, ops ---- */

static void print_metadata(struct cli_output *output, const struct teg_program *program)
{
    const char *key = NULL, *value = NULL;
    for (size_t i = 0; teg_program_metadata(program, i, &key, &value) == TEG_OK; i++) {
        (void)cli_output_name(output, key, 0);
        (void)cli_output_printf(output, " = ");
        (void)cli_output_name(output, value, 0);
        (void)cli_output_write(output, "\n", 1);
    }
}

static json_t *json_metadata(const struct teg_program *program)
{
    const char *key = NULL, *value = NULL;
    json_t *all = json_object();
    for (size_t i = 0; teg_program_metadata(program, i, &key, &value) == TEG_OK; i++) {
        json_t *clean = cli_json_text(key, strlen(key));
        json_object_set_new(all, json_string_value(clean), cli_json_text(value, strlen(value)));
        json_decref(clean);
    }
    return all;
}

static void print_weights(struct cli_output *output, const struct teg_program *program)
{
    struct teg_weight w;
    for (size_t i = 0; teg_program_weight(program, i, &w) == TEG_OK; i++) {
        (void)cli_output_name(output, w.name, 40);
        (void)cli_output_printf(output, " %-6s [", w.dtype);
        for (uint32_t d = 0; d < w.rank && d < CLI_COUNT(w.dims); d++)
            (void)cli_output_printf(output, "%s%llu", d ? ", " : "", (unsigned long long)w.dims[d]);
        (void)cli_output_printf(output, "] %llu bytes at %llu\n", (unsigned long long)w.n_bytes,
                                (unsigned long long)w.file_offset);
    }
    const struct teg_program_info *const info = teg_program_info(program);
    (void)cli_output_printf(output, "%zu weights, %llu bytes\n", info->n_weights,
                            (unsigned long long)info->weights_bytes);
}

static json_t *json_weights(const struct teg_program *program)
{
    struct teg_weight w;
    json_t *all = json_array();
    for (size_t i = 0; teg_program_weight(program, i, &w) == TEG_OK; i++) {
        json_t *shape = json_array();
        for (uint32_t d = 0; d < w.rank && d < CLI_COUNT(w.dims); d++)
            json_array_append_new(shape, cli_json_u64(w.dims[d]));
        json_array_append_new(all, json_pack("{s:o, s:s, s:o, s:o, s:o}", "name", cli_json_text(w.name, strlen(w.name)),
                                             "dtype", w.dtype, "shape", shape, "bytes", cli_json_u64(w.n_bytes),
                                             "file_offset", cli_json_u64(w.file_offset)));
    }
    return all;
}

/* Every function's ops; as lines into `lines` where that is not NULL. */
static int dump_ops(struct cli_output *output, json_t *lines, const struct teg_program *program)
{
    for (size_t i = 0; i < teg_program_info(program)->n_functions; i++) {
        struct teg_function f = {0};
        struct teg_text text = {0};
        struct teg_error err = {0};
        (void)teg_program_function(program, i, &f);
        if (teg_program_dump(program, f.name, &text, &err) != TEG_OK)
            return cli_fail_library(&err);
        if (!lines)
            (void)cli_output_write(output, text.bytes, text.n_bytes);
        for (size_t start = 0; lines && start < text.n_bytes;) {
            const char *const end = memchr(text.bytes + start, '\n', text.n_bytes - start);
            const size_t n = end ? (size_t)(end - (text.bytes + start)) : text.n_bytes - start;
            json_array_append_new(lines, cli_json_text(text.bytes + start, n));
            start += n + 1;
        }
        teg_text_free(&text);
    }
    return CLI_DONE;
}

/* ---- as a language model ---- */

static double percent(const struct teg_recognition *r)
{
    return r->n_ops ? 100.0 * (double)r->n_understood / (double)r->n_ops : 0;
}

/* A function with states or a contract is worth a word; that a classifier is no language model is not. */
static bool worth_telling(const struct teg_function *f, const struct teg_recognition *r)
{
    return r->is_model || r->call.n_bytes > 0 || f->n_states > 0;
}

static int print_models(struct cli_output *output, const struct teg_program *program, bool ops)
{
    const char *whole = NULL; /* a function that is raised: then the others are not needed */
    for (size_t i = 0; i < teg_program_info(program)->n_functions; i++) {
        struct teg_function f = {0};
        struct teg_recognition r = {0};
        struct teg_error err = {0};
        (void)teg_program_function(program, i, &f);
        if (teg_program_recognise(program, f.name, &r, &err) != TEG_OK)
            return cli_fail_library(&err);
        if (ops) {
            (void)cli_output_printf(output, "raised ");
            (void)cli_output_name(output, f.name, 0);
            (void)cli_output_printf(output, ": %zu of %zu ops, %.4g %%%s%s\n", r.n_understood, r.n_ops, percent(&r),
                                    r.is_model ? ": " : "", r.is_model ? r.composites.bytes : "");
            (void)cli_output_write(output, r.ops.bytes, r.ops.n_bytes);
        } else if (r.is_model) {
            (void)cli_output_printf(output, "language model, %.4g %% of %zu ops raised\n", percent(&r), r.n_ops);
            (void)cli_output_write(output, r.contract.bytes, r.contract.n_bytes);
        }
        if (!r.is_model && (ops || worth_telling(&f, &r))) {
            if (whole && r.call.n_bytes) {
                (void)cli_output_printf(output, "not needed, ");
                (void)cli_output_name(output, whole, 0);
                (void)cli_output_printf(output, " takes any number of tokens: ");
            } else
                (void)cli_output_printf(output,
                                        r.call.n_bytes ? "language model, run op by op: " : "no language model: ");
            (void)cli_output_name(output, f.name, 0);
            (void)cli_output_printf(output, ": ");
            (void)cli_output_name(output, r.reason.bytes, 0);
            (void)cli_output_write(output, "\n", 1);
            (void)cli_output_write(output, r.call.bytes, ops ? 0 : r.call.n_bytes);
        }
        whole = whole || !r.is_model ? whole : f.name;
        teg_recognition_free(&r);
    }
    return CLI_DONE;
}

static json_t *json_lines(const struct teg_text *text)
{
    json_t *const lines = json_array();
    for (size_t start = 0; start < text->n_bytes;) {
        const char *const end = memchr(text->bytes + start, '\n', text->n_bytes - start);
        const size_t n = end ? (size_t)(end - (text->bytes + start)) : text->n_bytes - start;
        json_array_append_new(lines, cli_json_text(text->bytes + start, n));
        start += n + 1;
    }
    return lines;
}

static int json_models(json_t *document, const struct teg_program *program, bool ops)
{
    json_t *const list = json_array();
    for (size_t i = 0; i < teg_program_info(program)->n_functions; i++) {
        struct teg_function f = {0};
        struct teg_recognition r = {0};
        struct teg_error err = {0};
        (void)teg_program_function(program, i, &f);
        if (teg_program_recognise(program, f.name, &r, &err) != TEG_OK) {
            json_decref(list);
            return cli_fail_library(&err);
        }
        json_t *const item = json_pack(
            "{s:o, s:b, s:b, s:o, s:o, s:o, s:o}", "function", cli_json_text(f.name, strlen(f.name)), "is_model",
            r.is_model, "runs_op_by_op", r.call.n_bytes > 0, "n_ops", cli_json_u64(r.n_ops), "n_understood",
            cli_json_u64(r.n_understood), "contract", json_lines(r.is_model ? &r.contract : &r.call), "reason",
            r.is_model ? json_null() : cli_json_text(r.reason.bytes, r.reason.n_bytes));
        if (ops)
            json_object_set_new(item, "ops", json_lines(&r.ops));
        json_array_append_new(list, item);
        teg_recognition_free(&r);
    }
    json_object_set_new(document, "language_models", list);
    return CLI_DONE;
}

/* ---- why not ---- */

static int get_why_not(const struct teg_program *program, size_t index, const char *op, struct teg_function *f,
                       struct teg_text *text)
{
    struct teg_error err = {0};
    (void)teg_program_function(program, index, f);
    return teg_program_why_not(program, f->name, op, text, &err) == TEG_OK ? CLI_DONE : cli_fail_library(&err);
}

static int print_why_not(struct cli_output *output, const struct teg_program *program, const char *op)
{
    int code = CLI_DONE;
    for (size_t i = 0; i < teg_program_info(program)->n_functions && code == CLI_DONE; i++) {
        struct teg_function f = {0};
        struct teg_text text = {0};
        code = get_why_not(program, i, op, &f, &text);
        if (code != CLI_DONE)
            break;
        (void)cli_output_printf(output, "function ");
        (void)cli_output_name(output, f.name, 0);
        (void)cli_output_printf(output, text.n_bytes ? "\n"
                                                     : ": every op that has this in its name or type is "
                                                       "understood\n");
        (void)cli_output_write(output, text.bytes, text.n_bytes);
        teg_text_free(&text);
    }
    return code;
}

static int json_why_not(json_t *document, const struct teg_program *program, const char *op)
{
    json_t *const all = json_object();
    int code = CLI_DONE;
    for (size_t i = 0; i < teg_program_info(program)->n_functions && code == CLI_DONE; i++) {
        struct teg_function f = {0};
        struct teg_text text = {0};
        code = get_why_not(program, i, op, &f, &text);
        json_t *const name = cli_json_text(f.name, strlen(f.name));
        json_object_set_new(all, json_string_value(name), json_lines(&text));
        json_decref(name);
        teg_text_free(&text);
    }
    json_object_set_new(document, "why_not", all);
    return code;
}

/* ---- the command ---- */

static int print_all(const struct teg_program *program, const struct cli_inspect_program *what)
{
    static struct cli_output output;
    int code = CLI_DONE;
    (void)cli_output_open(&output, NULL);
    if (!what->metadata && !what->functions && !what->states && !what->weights && !what->ops && !what->why_not) {
        print_facts(&output, program);
        code = print_models(&output, program, false);
    }
    if (what->metadata)
        print_metadata(&output, program);
    if (what->functions)
        print_functions(&output, program);
    if (what->states)
        print_states(&output, program);
    if (what->weights)
        print_weights(&output, program);
    if (code == CLI_DONE && what->ops)
        code = dump_ops(&output, NULL, program);
    if (code == CLI_DONE && what->ops)
        code = print_models(&output, program, true);
    if (code == CLI_DONE && what->why_not)
        code = print_why_not(&output, program, what->why_not);
    const int closed = cli_output_close(&output, code == CLI_DONE);
    return code != CLI_DONE ? code : closed;
}

static int json_all(const struct teg_program *program, const struct cli_inspect_program *what)
{
    json_t *document = json_facts(program);
    int code = json_models(document, program, what->ops);
    if (what->metadata)
        json_object_set_new(document, "metadata", json_metadata(program));
    if (what->states)
        json_object_set_new(document, "states", json_states(program));
    if (what->weights)
        json_object_set_new(document, "weights", json_weights(program));
    if (code == CLI_DONE && what->why_not)
        code = json_why_not(document, program, what->why_not);
    if (code == CLI_DONE && what->ops) {
        json_t *lines = json_array();
        code = dump_ops(NULL, lines, program);
        json_object_set_new(document, "ops", lines);
    }
    if (code == CLI_DONE)
        return cli_json_print(document);
    json_decref(document);
    return code;
}

int cli_inspect_program(const char *path, const struct cli_inspect_program *what)
{
    struct teg_program *program = NULL;
    struct teg_error err = {0};
    struct teg_program_options options;
    teg_program_options_default(&options);
    options.target = what->target;
    if (teg_program_open(path, &options, &program, &err) != TEG_OK)
        return cli_fail_library(&err);
    const int code = what->json ? json_all(program, what) : print_all(program, what);
    teg_program_free(program);
    return code;
}
