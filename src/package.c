/* package.c: a Core ML package seen as what api.c knows: a source and hyperparameters.
 *
 * The source is made here, not read: its tensors are the graph's constants, so that inspecting a package shows weights
 * in the encodings in which they are used. Its metadata are the program's own, and the contract that raising found.
 * Not taken: a tokenizer guessed from the weights' shape. A package without one runs on token ids. */
#include "package.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "parts.h"

#define MANIFEST "tegula.json"

static size_t trimmed(const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    return n;
}

/* Of the folder that it lies in, slash included. */
static size_t folder_bytes(const char *path)
{
    size_t n = trimmed(path);
    while (n && path[n - 1] != '/')
        n--;
    return n;
}

static bool ends_with(const char *path, const char *ending)
{
    const size_t n = path ? trimmed(path) : 0, k = strlen(ending);
    return n > k && memcmp(path + n - k, ending, k) == 0;
}

static bool is_single(const char *path)
{
    return ends_with(path, ".mlpackage") || ends_with(path, ".mlmodelc");
}

/* PATH/tegula.json, or PATH itself where it is that file. NULL: memory. */
static const char *own_manifest(struct teg_arena *arena, const char *path)
{
    struct stat st;
    const bool is_file = stat(path, &st) == 0 && S_ISREG(st.st_mode);
    return is_file ? teg_arena_string(arena, path, strlen(path))
                   : teg_arena_printf(arena, "%.*s/" MANIFEST, (int)trimmed(path), path);
}

bool teg_package_is(const char *path)
{
    char file[4096];
    if (!path || is_single(path))
        return path != NULL;
    if (strcmp(path, MANIFEST) == 0 || ends_with(path, "/" MANIFEST))
        return true;
    const int n = snprintf(file, sizeof file, "%s/" MANIFEST, path);
    return n > 0 && (size_t)n < sizeof file && access(file, F_OK) == 0;
}

bool teg_package_has_parts(const char *path)
{
    return teg_package_is(path) && !is_single(path);
}

enum teg_status teg_package_manifest(const char *path, struct teg_arena *arena, struct teg_manifest *manifest,
                                     struct teg_error *err)
{
    const char *const in = own_manifest(arena, path);
    *manifest = (struct teg_manifest){0};
    if (!in)
        return teg_base_fail_memory(err, "path", strlen(path));
    if (!is_single(path)) {
        TRY(teg_manifest_read(in, arena, manifest, err));
        if (!manifest->n_parts)
            FAIL(err, TEG_ERR_FORMAT,
                 "cannot open model: %.160s: parts: expected the packages that make the model, found none; list them, "
                 "or "
                 "open the package",
                 manifest->path);
        return TEG_OK;
    }
    if (access(in, F_OK) == 0)
        return teg_manifest_read(in, arena, manifest, err);
    const char *const beside = teg_arena_printf(arena, "%.*s" MANIFEST, (int)folder_bytes(path), path);
    if (!beside)
        return teg_base_fail_memory(err, "path", strlen(path));
    if (access(beside, F_OK) != 0)
        return TEG_OK;
    TRY(teg_manifest_read(beside, arena, manifest, err));
    if (manifest->n_parts) /* it describes the folder's model, which this is a part of */
        *manifest = (struct teg_manifest){0};
    return TEG_OK;
}

enum teg_status teg_package_open(const char *path, const struct teg_manifest *manifest,
                                 const struct teg_model_options *o, const struct teg_allocator *allocator,
                                 struct teg_program **program, struct teg_error *err)
{
    struct teg_program_options options;
    struct teg_mil_program *mil = NULL;
    teg_program_options_default(&options);
    options.allocator = allocator;
    options.target = o->target;
    if (o->mode == TEG_MODE_EMULATE_FP16)
        options.mode = TEG_PROGRAM_EMULATE_FP16;
    if (manifest->n_parts)
        TRY(teg_parts_open(path, manifest, allocator, &mil, err));
    else
        TRY(teg_mil_open(path, allocator, &mil, err));
    return teg_program_of(mil, &options, program, err);
}

static bool has_feature(const struct teg_mil_program *p, const char *name, bool is_input)
{
    for (size_t i = 0; i < p->n_functions; i++) {
        const struct teg_mil_interface *const f = &p->interfaces[i];
        const struct teg_mil_feature *const features = is_input ? f->inputs : f->outputs;
        for (size_t k = 0; k < (is_input ? f->n_inputs : f->n_outputs); k++)
            if (strcmp(features[k].name, name) == 0)
                return true;
    }
    return false;
}

static enum teg_status check_names(const struct teg_mil_program *p, const struct teg_manifest *m, struct teg_error *err)
{
    const char *const functions[] = {m->functions.prefill, m->functions.decode};
    for (size_t i = 0; i < 2; i++)
        if (functions[i] && !teg_mil_find_function(p, functions[i]))
            FAIL(
                err, TEG_ERR_FORMAT,
                "cannot open model: %.160s: functions: expected functions of %.100s, found '%.60s'; see tegula inspect",
                m->path, p->path, functions[i]);
    for (size_t i = 0; i < m->n_inputs + m->n_outputs && p->interfaces; i++) {
        const bool is_input = i < m->n_inputs;
        const char *const name = is_input ? m->inputs[i].name : m->outputs[i - m->n_inputs].name;
        if (!has_feature(p, name, is_input))
            FAIL(err, TEG_ERR_FORMAT,
                 "cannot open model: %.160s: contract: expected %s of %.100s, found '%.60s'; see tegula inspect",
                 m->path, is_input ? "inputs" : "outputs", p->path, name);
    }
    return TEG_OK;
}

enum teg_status teg_package_names(const struct teg_mil_program *program, const struct teg_manifest *m,
                                  struct teg_arena *arena, struct teg_raise_options *options, struct teg_error *err)
{
    static const enum teg_raise_role roles[TEG_LM_ROLE_COUNT] = {
        [TEG_LM_TOKENS] = TEG_RAISE_TOKENS,      [TEG_LM_POSITIONS] = TEG_RAISE_POSITIONS,
        [TEG_LM_POSITION] = TEG_RAISE_POSITIONS, [TEG_LM_MASK] = TEG_RAISE_MASK,
        [TEG_LM_KEEP] = TEG_RAISE_KEEP,          [TEG_LM_WRITES] = TEG_RAISE_WRITES,
        [TEG_LM_CACHE] = TEG_RAISE_CACHE,        [TEG_LM_LOGITS] = TEG_RAISE_LOGITS,
        [TEG_LM_IGNORED] = TEG_RAISE_IGNORED,
    };
    const size_t n = m->n_inputs + m->n_outputs;
    *options = (struct teg_raise_options){.function = m->functions.decode};
    if (m->n_parts) /* their names are those of the parts, which are joined by now */
        return TEG_OK;
    TRY(check_names(program, m, err));
    struct teg_raise_name *const names = teg_arena_array(arena, n + 1, sizeof *names);
    if (!names)
        return teg_base_fail_memory(err, "names", n * sizeof *names);
    for (size_t i = 0; i < n; i++) {
        const struct teg_lm_naming *const from = i < m->n_inputs ? &m->inputs[i] : &m->outputs[i - m->n_inputs];
        names[i] = (struct teg_raise_name){from->name, roles[from->role]};
    }
    options->names = names;
    options->n_names = n;
    return TEG_OK;
}

const char *teg_package_tokenizer(struct teg_arena *arena, const char *path)
{
    static const char *const places[] = {"tokenizer.json", "tokenizer.model", "Data/tegula/tokenizer.json",
                                         "Data/tegula/tokenizer.model", "Data/tegula/tokenizer.gguf"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *const in = teg_arena_printf(arena, "%.*s/%s", (int)trimmed(path), path, places[i]);
        if (in && access(in, R_OK) == 0)
            return in;
    }
    for (size_t i = 0; i < 2; i++) {
        const char *const beside = teg_arena_printf(arena, "%.*s%s", (int)folder_bytes(path), path, places[i]);
        if (beside && access(beside, R_OK) == 0)
            return beside;
    }
    return NULL;
}

enum teg_status teg_package_open_tokenizer(const char *path, const char *tokenizer,
                                           const struct teg_allocator *allocator, struct teg_tok **tok,
                                           struct teg_error *err)
{
    if (!tokenizer)
        FAIL(
            err, TEG_ERR_UNSUPPORTED,
            "cannot open vocabulary: %s: expected a tokenizer.json in or beside the package, found none; give one with "
            "--tokenizer",
            path);
    return teg_tok_open_folder(tokenizer, allocator, tok, err);
}

static void add_tensor(struct teg_source *source, const struct teg_value *v)
{
    struct teg_tensor *const t = &source->tensors[source->n_tensors++];
    *t = (struct teg_tensor){
        .name = v->name, .dtype = v->dtype, .rank = v->shape.rank, .data = v->data, .n_bytes = v->n_bytes};
    t->encoding = v->encoding ? v->encoding->name : NULL;
    for (uint32_t d = 0; d < TEG_MAX_RANK; d++)
        t->dims[d] = 1;
    for (uint32_t d = 0; d < v->shape.rank; d++)
        t->dims[d] = (uint64_t)v->shape.dims[d];
}

static void add_text(struct teg_source *source, const char *key, const char *text, size_t n)
{
    source->metas[source->n_metas++] =
        (struct teg_meta){.key = key, .type = TEG_META_STRING, .type_name = "string", .n = 1, .string = {text, n}};
}

static void describe_program(struct teg_source *source, const struct teg_mil_program *program, const char *contract)
{
    const struct {
        const char *key, *text;
    } rows[] = {{"contract", contract},
                {"author", program->author},
                {"license", program->license},
                {"version", program->version},
                {"description", program->description}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].text && rows[i].text[0])
            add_text(source, rows[i].key, rows[i].text, strlen(rows[i].text));
}

/* A factor or learned positions: the embedding is what comes of it. False: another sum. */
static bool move_name(struct teg_graph *g, const struct teg_op *op)
{
    for (uint32_t k = 0; k < op->n_inputs; k++) {
        struct teg_value *const in = &g->values[op->inputs[k]];
        if (!in->name || strcmp(in->name, "embed") != 0)
            continue;
        g->values[op->result].name = in->name;
        in->name = NULL;
        return true;
    }
    return false;
}

/* The names that build/ gives: a package and the model it was made from can be compared layer by layer. The stream
 * after layer l is the last sum before the keys of layer l + 1, or before the head. */
static bool name_layers(struct teg_graph *g, struct teg_arena *arena, uint32_t width)
{
    struct teg_value *last = NULL;
    uint32_t layer = 0;
    bool ok = true, is_embedded = false; /* all that comes before the first layer is done */
    for (uint32_t i = 0; ok && i < g->n_ops; i++) {
        const struct teg_op *const op = &g->ops[i];
        struct teg_value *const in = &g->values[op->inputs[0]];
        const bool is_head = op->kind == TEG_OP_LM_HEAD;
        if (op->kind == TEG_OP_EMBEDDING)
            g->values[op->result].name = "embed";
        if (!is_embedded && (op->kind == TEG_OP_SCALE || op->kind == TEG_OP_ADD))
            is_embedded = !move_name(g, op);
        is_embedded = is_embedded || op->kind == TEG_OP_KV_APPEND;
        if (is_embedded && op->kind == TEG_OP_ADD && teg_value_width(&g->values[op->result]) == width)
            last = &g->values[op->result];
        if (is_head && in->kind == TEG_VALUE_RESULT &&
            (g->ops[in->op].kind == TEG_OP_RMS_NORM || g->ops[in->op].kind == TEG_OP_LAYER_NORM))
            in->name = "final_norm";
        if ((op->kind != TEG_OP_KV_APPEND && !is_head) || !last)
            continue;
        last->name = teg_arena_printf(arena, "layer%02u", layer++);
        ok = last->name != NULL;
        last = NULL;
    }
    return ok;
}

enum teg_status teg_package_describe(const struct teg_mil_program *program, const struct teg_raised *raised,
                                     const char *path, struct teg_arena *arena, struct teg_source **source,
                                     struct teg_hparams *hparams, struct teg_error *err)
{
    enum { MOST_METAS = 8 };
    const struct teg_graph *const graph = raised->graph;
    struct teg_source *const s = teg_arena_alloc(arena, sizeof *s);
    const char *const own_path = s ? teg_arena_string(arena, path, strlen(path)) : NULL;
    if (!own_path)
        return teg_base_fail_memory(err, "package", sizeof *s);
    *s = (struct teg_source){.kind = TEG_SOURCE_SAFETENSORS, .path = own_path};
    s->format = strcmp(program->format, "mlpackage") == 0 ? "Core ML package" : "compiled Core ML model";
    s->metas = teg_arena_array(arena, MOST_METAS, sizeof *s->metas);
    s->tensors = teg_arena_array(arena, graph ? graph->n_values : 1, sizeof *s->tensors);
    if (!s->metas || !s->tensors)
        return teg_base_fail_memory(err, "package tables", graph ? graph->n_values : 1);
    if (graph && !name_layers(raised->graph, arena, raised->width))
        return teg_base_fail_memory(err, "package tables", graph->n_values);
    for (uint32_t i = 0; graph && i < graph->n_values; i++)
        if (graph->values[i].kind == TEG_VALUE_CONST)
            add_tensor(s, &graph->values[i]);
    describe_program(s, program, raised->contract);
    *hparams = (struct teg_hparams){.arch = "package",
                                    .name = "",
                                    .n_layers = raised->n_layers,
                                    .n_heads = raised->n_heads,
                                    .n_kv_heads = raised->n_kv_heads,
                                    .head_width = raised->head_width,
                                    .width = raised->width,
                                    .ffn_width = raised->ffn_width,
                                    .context = raised->context};
    *source = s;
    return TEG_OK;
}
