/* api.c: tegula.h over the modules. A model is what opening leaves behind: the source with its mapped file, the
 * tokenizer, the graph and the plan, all in one arena and all immutable from then on. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/filemap.h"
#include "base/options.h"
#include "base/text.h"
#include "build/build.h"
#include "cpu/cpu.h"
#include "format/source.h"
#include "lm.h"
#include "model.h"
#include "pack_cache.h"
#include "package.h"
#include "plan/plan.h"
#include "plan/work.h"
#include "run/sampler.h"
#include "run/session.h"
#include "tok/jinja.h"
#include "tok/tok.h"

struct teg_model {
    struct teg_arena arena;      /* graph, plan, hyperparameters */
    struct teg_source *source;   /* of a package: its weights as the graph has them */
    struct teg_program *program; /* a package's; then `source` lies in the arena */
    struct teg_lm *lm;           /* a package that runs op by op; then there is no graph */
    struct teg_tok *tok;         /* NULL: a package without one */
    struct teg_graph *graph;     /* NULL: vocabulary only */
    struct teg_plan *plan;
    struct teg_cpu cpu;
    struct teg_hparams hparams;
    struct teg_model_info info;
    struct teg_run_model run;
    bool emulates; /* fp16 */
};

const struct teg_graph *teg_model_graph(const struct teg_model *model)
{
    return model->plan && !model->plan->gemm ? model->graph : NULL;
}

const char *teg_version(void)
{
#define TEXT2(x) #x
#define TEXT(x) TEXT2(x)
    return TEXT(TEG_VERSION_MAJOR) "." TEXT(TEG_VERSION_MINOR) "." TEXT(TEG_VERSION_PATCH);
}

const char *teg_status_name(enum teg_status status)
{
    static const char *const names[] = {
        [TEG_OK] = "ok",
        [TEG_ERR_ARGUMENT] = "bad argument",
        [TEG_ERR_MEMORY] = "out of memory",
        [TEG_ERR_IO] = "input/output error",
        [TEG_ERR_FORMAT] = "damaged file",
        [TEG_ERR_UNSUPPORTED] = "not supported",
        [TEG_ERR_CONTEXT_FULL] = "context full",
        [TEG_ERR_INTERRUPTED] = "interrupted",
    };
    return (size_t)status < sizeof names / sizeof *names ? names[status] : "unknown status";
}

void teg_text_free(struct teg_text *text)
{
    if (!text)
        return;
    free(text->bytes);
    *text = (struct teg_text){0};
}

/* ---- models ---- */

void teg_model_options_default(struct teg_model_options *options)
{
    *options = (struct teg_model_options){.size = sizeof *options};
}

void teg_model_free(struct teg_model *model)
{
    if (!model)
        return;
    teg_tok_free(model->tok);
    teg_plan_free(model->plan);
    if (!model->program)
        teg_source_free(model->source);
    teg_program_free(model->program);
    struct teg_arena arena = model->arena; /* the model itself lies in it */
    teg_arena_free(&arena);
}

static const char *meta_string(struct teg_model *model, const char *key)
{
    const struct teg_meta *const m = model->program ? NULL : teg_source_meta(model->source, key);
    if (!m || m->type != TEG_META_STRING)
        return "";
    return teg_arena_string(&model->arena, m->string.bytes, m->string.n_bytes);
}

static enum teg_status fill_info(struct teg_model *model, struct teg_error *err)
{
    const struct teg_source *const source = model->source;
    struct teg_model_info *const info = &model->info;
    const bool gguf = source->kind == TEG_SOURCE_GGUF;
    info->format = source->format;
    info->architecture = meta_string(model, gguf ? "general.architecture" : "model_type");
    info->name = meta_string(model, gguf ? "general.name" : "_name_or_path");
    info->mode = "exact";
    if (!info->architecture || !info->name)
        return teg_base_fail_memory(err, "model facts", 64);
    info->vocab_tokens = model->tok ? (int32_t)teg_tok_size(model->tok) : 0;
    for (size_t i = 0; i < source->n_tensors; i++) {
        uint64_t n = 1;
        for (uint32_t d = 0; d < source->tensors[i].rank; d++)
            n *= source->tensors[i].dims[d];
        info->n_parameters += n;
        info->weights_bytes += source->tensors[i].n_bytes;
    }
    return TEG_OK;
}

static void fill_graph_info(struct teg_model *model)
{
    struct teg_model_info *const info = &model->info;
    const struct teg_hparams *const hp = &model->hparams;
    if (model->lm) {
        info->vocab_tokens = (int32_t)model->lm->vocab;
        info->mode = model->emulates ? "emulate-fp16" : "exact";
        info->context_tokens = model->lm->context;
        info->weights_bytes = model->lm->weights_bytes;
        info->n_parameters = model->lm->n_parameters;
    }
    if (!model->graph)
        return;
    info->vocab_tokens = (int32_t)model->plan->vocab;
    info->mode = model->emulates ? "emulate-fp16" : model->plan->gemm ? "fast" : "exact";
    info->weights_bytes += model->plan->packed.n_bytes - model->plan->packed.replaced_bytes;
    info->n_layers = hp->n_layers;
    info->n_heads = hp->n_heads;
    info->n_kv_heads = hp->n_kv_heads;
    info->head_width = hp->head_width;
    info->width = hp->width;
    info->ffn_width = hp->ffn_width;
    info->context_tokens = hp->context;
}

static uint32_t original_context(const struct teg_plan *plan)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->n_rope_tables; i++)
        if (plan->rope_tables[i].long_frequencies)
            n = plan->rope_tables[i].original_context;
    return n;
}

/* Packed source bytes: their pages may go. They lie in a mapped file, page by page. */
static void release_pages(void *ctx, const void *data, size_t n_bytes)
{
    (void)ctx;
    const size_t in_page = (uintptr_t)data % (size_t)sysconf(_SC_PAGESIZE);
    const struct teg_filemap map = {(const uint8_t *)data - in_page, in_page + n_bytes};
    teg_filemap_release(&map, in_page, n_bytes);
}

static bool may_be_fast(const struct teg_model *model, enum teg_mode mode)
{
    return mode == TEG_MODE_FAST || (mode == TEG_MODE_AUTO && teg_qgemm_select(&model->cpu)->isa != TEG_ISA_BASE);
}

/* Automatic: fast where that gains something: some weight is of a type for it, on a CPU with a kernel for it. */
static bool wants_fast(const struct teg_model *model, enum teg_mode mode)
{
    return may_be_fast(model, mode) && (mode == TEG_MODE_FAST || teg_plan_gains(model->graph));
}

/* A package's states are fp16, and what a device keeps. */
static enum teg_kv_type default_kv(const struct teg_model *model, bool fast)
{
    if (fast)
        return model->plan->attend.fast;
    return model->program || model->emulates ? TEG_KV_F16 : TEG_KV_F32;
}

/* Of a step: what its op is, its weight, and the layer that the weights up to there are named for. */
static void place_step(const void *ctx, uint32_t step, char *text, size_t n)
{
    const struct teg_model *const model = ctx;
    const struct teg_graph *const g = model->graph;
    const uint32_t last = model->plan->steps[step].op;
    const char *weight = "";
    long layer = -1;
    for (uint32_t i = 0; i <= last && i < g->n_ops; i++)
        for (uint32_t k = 0; k < g->ops[i].n_inputs; k++) {
            const struct teg_value *const v = &g->values[g->ops[i].inputs[k]];
            const long found = v->kind == TEG_VALUE_CONST && v->name ? teg_lm_layer_in(v->name) : -1;
            layer = found >= 0 ? found : layer;
            if (i == last && v->kind == TEG_VALUE_CONST && v->name)
                weight = v->name;
        }
    const int used = snprintf(text, n, "op %s%s%.120s", teg_op_name(g->ops[last].kind), *weight ? " " : "", weight);
    if (layer >= 0 && used > 0 && (size_t)used < n)
        (void)snprintf(text + used, n - (size_t)used, " (layer %ld)", layer);
}

static enum teg_status open_graph(struct teg_model *model, const char *path, const struct teg_model_options *o,
                                  const struct teg_allocator *allocator, uint64_t total_bytes, struct teg_error *err)
{
    if (!model->program)
        TRY(teg_build(model->source, &model->arena, &model->graph, &model->hparams, err));
    const struct teg_plan_options options = {.fast = wants_fast(model, o->mode),
                                             .rounds_floats = o->mode == TEG_MODE_FAST};
    struct teg_pack_hooks hooks = {
        .release = release_pages, .progress = o->progress, .progress_ctx = o->progress_ctx, .total_bytes = total_bytes};
    struct teg_pack_cache cache;
    TRY(teg_plan_new(model->graph, &model->cpu, &options, &model->arena, &model->plan, err));
    TRY(teg_pack_cache_of(path, o, model->plan, &model->arena, &cache, err));
    hooks.cache = cache.path ? &cache : NULL;
    TRY(teg_plan_pack(model->plan, &model->cpu, allocator, &hooks, err));
    model->run = (struct teg_run_model){.plan = model->plan,
                                        .allocator = allocator,
                                        .cpu = &model->cpu,
                                        .context_tokens = model->hparams.context,
                                        .original_context = original_context(model->plan),
                                        .default_kv = default_kv(model, options.fast),
                                        .emulates_fp16 = model->emulates,
                                        .place = place_step,
                                        .place_ctx = model};
    return TEG_OK;
}

/* A graph where the program is recognised, else a program that is called like a language model. To round as a device
 * does, the program's own ops must run. */
static enum teg_status raise_package(struct teg_model *model, const struct teg_model_options *o,
                                     const struct teg_manifest *manifest, struct teg_raised *raised,
                                     struct teg_error *err)
{
    struct teg_raise_options options;
    enum teg_status status = TEG_ERR_UNSUPPORTED;
    TRY(teg_package_names(model->program->mil, manifest, &model->arena, &options, err));
    if (!manifest->evaluate && o->mode != TEG_MODE_EMULATE_FP16)
        status = teg_raise(model->program->mil, &options, &model->arena, raised, err);
    if (status != TEG_ERR_UNSUPPORTED)
        return status;
    *raised = (struct teg_raised){0};
    TRY(teg_lm_new(model->program, manifest, &model->arena, &model->lm, err));
    raised->contract = model->lm->contract_text;
    raised->context = model->lm->context;
    return TEG_OK;
}

/* The tokenizer is optional: ids need none. */
static enum teg_status open_package(struct teg_model *model, const char *path, const struct teg_model_options *o,
                                    const struct teg_allocator *allocator, struct teg_error *err)
{
    struct teg_manifest manifest = {0};
    struct teg_raised raised = {0};
    TRY(teg_package_manifest(path, &model->arena, &manifest, err));
    const char *const tokenizer = o->tokenizer_path    ? o->tokenizer_path
                                  : manifest.tokenizer ? manifest.tokenizer
                                                       : teg_package_tokenizer(&model->arena, path);
    if (tokenizer || o->vocab_only)
        TRY(teg_package_open_tokenizer(path, tokenizer, allocator, &model->tok, err));
    TRY(teg_package_open(path, &manifest, o, allocator, &model->program, err));
    if (!o->vocab_only)
        TRY(raise_package(model, o, &manifest, &raised, err));
    if (manifest.context)
        raised.context = manifest.context;
    model->graph = raised.graph;
    return teg_package_describe(model->program->mil, &raised, path, &model->arena, &model->source, &model->hparams,
                                err);
}

static enum teg_status open_parts(struct teg_model *model, const char *path, const struct teg_model_options *o,
                                  const struct teg_allocator *allocator, struct teg_error *err)
{
    if (teg_package_is(path)) {
        TRY(open_package(model, path, o, allocator, err));
    } else {
        TRY(teg_source_open(path, !o->vocab_only, allocator, &model->source, err));
        TRY(teg_tok_open(model->source, o->tokenizer_path, allocator, &model->tok, err));
    }
    TRY(fill_info(model, err));
    const uint64_t total_bytes = model->info.weights_bytes;
    if (o->progress && !o->progress(o->progress_ctx, 0, total_bytes))
        FAIL(err, TEG_ERR_INTERRUPTED,
             "interrupted: opening %s: expected to finish, found a request to stop; open it again", path);
    if (!o->vocab_only && !model->lm)
        TRY(open_graph(model, path, o, allocator, total_bytes, err));
    fill_graph_info(model);
    model->run.allocator = allocator;
    model->run.weights_bytes = model->info.weights_bytes;
    if (o->progress)
        (void)o->progress(o->progress_ctx, total_bytes, total_bytes);
    return TEG_OK;
}

enum teg_status teg_model_open(const char *path, const struct teg_model_options *options, struct teg_model **model,
                               struct teg_error *err)
{
    struct teg_model_options o;
    teg_model_options_default(&o);
    TRY(teg_options_read(&o, sizeof o, options, err));
    const struct teg_allocator *const allocator = teg_allocator_or_default(o.allocator);
    struct teg_arena arena;
    teg_arena_init(&arena, allocator);
    struct teg_model *const m = teg_arena_alloc(&arena, sizeof *m);
    if (!m)
        return teg_base_fail_memory(err, "model", sizeof *m);
    m->arena = arena;
    m->emulates = o.mode == TEG_MODE_EMULATE_FP16;
    teg_cpu_detect(&m->cpu);
    const enum teg_status status = open_parts(m, path, &o, allocator, err);
    if (status != TEG_OK)
        teg_model_free(m);
    else
        *model = m;
    return status;
}

const struct teg_model_info *teg_model_info(const struct teg_model *model)
{
    return &model->info;
}

/* ---- looking inside ---- */

size_t teg_model_metadata_count(const struct teg_model *model)
{
    return model->source->n_metas;
}

enum teg_status teg_model_metadata(const struct teg_model *model, size_t index, struct teg_metadata *item)
{
    if (index >= model->source->n_metas)
        return TEG_ERR_ARGUMENT;
    const struct teg_meta *const m = &model->source->metas[index];
    *item = (struct teg_metadata){.key = m->key, .type = m->type_name};
    return TEG_OK;
}

static void put_json_item(struct teg_buf *out, const struct teg_meta *m, size_t i)
{
    switch (m->type) {
    case TEG_META_INT:
    case TEG_META_ARRAY_INT:
        teg_buf_printf(out, "%lld", (long long)(m->type == TEG_META_INT ? m->integer : m->integers[i]));
        break;
    case TEG_META_FLOAT:
    case TEG_META_ARRAY_FLOAT: {
        const double x = m->type == TEG_META_FLOAT ? m->real : m->reals[i];
        /* JSON has no infinities or NaN. */
        if (x - x != 0)
            teg_buf_puts(out, "null");
        else
            teg_buf_printf(out, "%.9g", x);
        break;
    }
    case TEG_META_BOOL:
    case TEG_META_ARRAY_BOOL:
        teg_buf_puts(out, (m->type == TEG_META_BOOL ? m->boolean : m->booleans[i]) ? "true" : "false");
        break;
    case TEG_META_STRING:
        teg_buf_json_string(out, m->string.bytes, m->string.n_bytes);
        break;
    case TEG_META_ARRAY_STRING:
        teg_buf_json_string(out, m->strings[i].bytes, m->strings[i].n_bytes);
        break;
    case TEG_META_JSON:
        teg_buf_append(out, m->string.bytes, m->string.n_bytes);
        break;
    default:
        teg_buf_puts(out, "null");
        break;
    }
}

enum teg_status teg_model_metadata_json(const struct teg_model *model, size_t index, size_t max_items,
                                        struct teg_text *json, struct teg_error *err)
{
    if (index >= model->source->n_metas)
        FAIL(err, TEG_ERR_ARGUMENT,
             "no such metadata: entry: expected less than %zu, found %zu; ask for the count first",
             model->source->n_metas, index);
    const struct teg_meta *const m = &model->source->metas[index];
    const bool is_array = m->type >= TEG_META_ARRAY_INT && m->type <= TEG_META_ARRAY_STRING;
    struct teg_buf out = {0};
    if (!is_array) {
        put_json_item(&out, m, 0);
        return teg_buf_take(&out, json, "metadata", err);
    }
    teg_buf_puts(&out, "[");
    for (size_t i = 0; i < m->n && (max_items == 0 || i < max_items); i++) {
        teg_buf_puts(&out, i ? ", " : "");
        put_json_item(&out, m, i);
    }
    teg_buf_puts(&out, max_items && m->n > max_items ? ", \"…\"]" : "]");
    return teg_buf_take(&out, json, "metadata", err);
}

size_t teg_model_weight_count(const struct teg_model *model)
{
    return model->source->n_tensors;
}

enum teg_status teg_model_weight(const struct teg_model *model, size_t index, struct teg_weight *weight)
{
    if (index >= model->source->n_tensors)
        return TEG_ERR_ARGUMENT;
    const struct teg_tensor *const t = &model->source->tensors[index];
    *weight = (struct teg_weight){.name = t->name,
                                  .dtype = t->encoding ? t->encoding : teg_dtype_info(t->dtype)->name,
                                  .rank = t->rank,
                                  .n_bytes = t->n_bytes,
                                  .file_offset = t->file_offset};
    memcpy(weight->dims, t->dims, sizeof weight->dims);
    return TEG_OK;
}

enum teg_status teg_model_dump(const struct teg_model *model, enum teg_dump what, struct teg_text *text,
                               struct teg_error *err)
{
    if (model->lm)
        FAIL(err, TEG_ERR_UNSUPPORTED,
             "cannot show %s: %s: expected a program that is recognised, found one that runs op by op; see its own ops "
             "with 'tegula inspect --ops'",
             what == TEG_DUMP_OPS ? "ops" : "the plan", model->source->path);
    if (!model->graph)
        FAIL(err, TEG_ERR_ARGUMENT,
             "cannot show ops: model: expected a whole model, found one opened for its vocabulary; "
             "open it with its weights");
    struct teg_buf out = {0};
    if (what == TEG_DUMP_OPS)
        teg_graph_dump(model->graph, &out);
    else
        teg_plan_dump(model->plan, model->graph, &out);
    return teg_buf_take(&out, text, "dump", err);
}

/* ---- tokens and text ---- */

static enum teg_status need_tokenizer(const struct teg_model *model, struct teg_error *err)
{
    if (!model->tok)
        FAIL(
            err, TEG_ERR_UNSUPPORTED,
            "cannot read or write text: %s: tokenizer: expected a tokenizer.json in or beside the package, found none; "
            "give one with --tokenizer, or use token ids",
            model->source->path);
    return TEG_OK;
}

enum teg_status teg_tokenize(const struct teg_model *model, const char *text, size_t n_bytes, unsigned flags,
                             int32_t *ids, size_t capacity, size_t *n_ids, struct teg_error *err)
{
    TRY(need_tokenizer(model, err));
    return teg_tok_encode(model->tok, text, n_bytes, flags, ids, capacity, n_ids, err);
}

enum teg_status teg_detokenize(const struct teg_model *model, const int32_t *ids, size_t n_ids, struct teg_text *text,
                               struct teg_error *err)
{
    TRY(need_tokenizer(model, err));
    struct teg_buf out = {0};
    const enum teg_status status = teg_tok_decode(model->tok, ids, n_ids, &out, err);
    if (status == TEG_OK)
        return teg_buf_take(&out, text, "text", err);
    teg_buf_free(&out);
    return status;
}

bool teg_token_is_end(const struct teg_model *model, int32_t id)
{
    return model->tok && teg_tok_is_end(model->tok, id);
}

int32_t teg_token_bos(const struct teg_model *model)
{
    return model->tok ? teg_tok_bos(model->tok) : -1;
}

enum teg_status teg_stream_new(const struct teg_model *model, const char *const *stops, size_t n_stops,
                               struct teg_stream **stream, struct teg_error *err)
{
    TRY(need_tokenizer(model, err));
    return teg_tok_stream_new(model->tok, stops, n_stops, stream, err);
}

void teg_chat_options_default(struct teg_chat_options *options)
{
    *options = (struct teg_chat_options){.size = sizeof *options};
}

/* The caller's text becomes part of a larger JSON text, so it must be one array and nothing else. */
static enum teg_status check_array(const char *what, const char *json, size_t n_bytes, struct teg_error *err)
{
    json_error_t fault;
    json_t *const value = json_loadb(json, n_bytes, 0, &fault);
    const bool is_array = json_is_array(value);
    json_decref(value);
    if (!value && !fault.text[0]) /* all that jansson says when memory ends */
        return teg_base_fail_memory(err, "chat messages", n_bytes);
    if (!value)
        FAIL_AT(
            err, TEG_ERR_ARGUMENT, (uint64_t)fault.position,
            "cannot render chat: %s, byte %d: expected a JSON array, found: %s; pass [{\"role\": …, \"content\": …}]",
            what, fault.position, fault.text);
    if (!is_array)
        FAIL(err, TEG_ERR_ARGUMENT,
             "cannot render chat: %s: expected a JSON array, found another value; pass [{\"role\": …, \"content\": …}]",
             what);
    return TEG_OK;
}

/* The variables a template sees, as transformers passes them. */
static void put_variables(const struct teg_model *model, const char *messages, size_t n_bytes,
                          const struct teg_chat_options *o, struct teg_buf *out)
{
    const struct {
        const char *name;
        int32_t id;
    } tokens[] = {{"bos_token", teg_tok_bos(model->tok)}, {"eos_token", teg_tok_eos(model->tok)}};
    teg_buf_puts(out, "{\"messages\":");
    teg_buf_append(out, messages, n_bytes);
    teg_buf_printf(out, ",\"add_generation_prompt\":%s,\"tools\":%s,\"documents\":null",
                   o->add_generation_prompt ? "true" : "false", o->tools_json ? o->tools_json : "null");
    for (size_t i = 0; i < 2; i++) {
        if (tokens[i].id < 0)
            continue;
        const struct teg_string text = teg_tok_text(model->tok, tokens[i].id);
        teg_buf_printf(out, ",\"%s\":", tokens[i].name);
        teg_buf_json_string(out, text.bytes, text.n_bytes);
    }
    teg_buf_puts(out, "}");
}

enum teg_status teg_chat_render(const struct teg_model *model, const char *messages_json, size_t n_bytes,
                                const struct teg_chat_options *options, struct teg_text *text, struct teg_error *err)
{
    struct teg_chat_options o;
    teg_chat_options_default(&o);
    TRY(teg_options_read(&o, sizeof o, options, err));
    TRY(need_tokenizer(model, err));
    struct teg_string source = teg_tok_chat_template(model->tok);
    if (o.template_text)
        source = (struct teg_string){o.template_text, strlen(o.template_text)};
    if (!source.bytes)
        FAIL(err, TEG_ERR_UNSUPPORTED,
             "cannot render chat: %s: expected a chat template, found none; pass one, or use "
             "raw prompts",
             model->source->path);
    TRY(check_array("messages", messages_json, n_bytes, err));
    if (o.tools_json)
        TRY(check_array("tools", o.tools_json, strlen(o.tools_json), err));
    struct teg_jinja *jinja = NULL;
    struct teg_buf variables = {0};
    struct teg_text json = {0};
    TRY(teg_jinja_parse(source.bytes, source.n_bytes, &jinja, err));
    put_variables(model, messages_json, n_bytes, &o, &variables);
    enum teg_status status = teg_buf_take(&variables, &json, "chat variables", err);
    if (status == TEG_OK)
        status = teg_jinja_render(jinja, json.bytes, json.n_bytes, o.now_unix, text, err);
    teg_text_free(&json);
    teg_jinja_free(jinja);
    return status;
}

/* ---- sessions and samplers ---- */

static enum teg_status need_whole(const struct teg_model *model, struct teg_error *err)
{
    if (!model->graph && !model->lm)
        FAIL(err, TEG_ERR_ARGUMENT,
             "cannot make session: model: expected a whole model, found one opened for its "
             "vocabulary; open it with its weights");
    return TEG_OK;
}

enum teg_status teg_session_work(const struct teg_model *model, const struct teg_session_options *options,
                                 size_t first_position, size_t n_tokens, struct teg_work *work, struct teg_error *err)
{
    memset(work, 0, sizeof *work);
    TRY(need_whole(model, err));
    if (!model->plan)
        FAIL(err, TEG_ERR_UNSUPPORTED,
             "cannot count: model: expected one that runs by a plan, found a package that runs op by op; see inspect "
             "--ops for what was not recognised");
    const size_t chunk = teg_max(options->chunk_tokens, 1), end = first_position + n_tokens;
    struct teg_plan_work sum = {0};
    for (size_t at = first_position; at < end; at += chunk) {
        const size_t n = teg_min(chunk, end - at);
        struct teg_memory all = {0}, before = {0};
        teg_plan_work(model->plan, at, n, at + n == end, &sum);
        TRY(teg_session_bytes(model, options, at + n, &all, err));
        TRY(teg_session_bytes(model, options, at, &before, err));
        work->kv_bytes += all.kv_bytes + (all.kv_bytes - before.kv_bytes);
    }
    work->int8_macs = sum.int8_macs;
    work->float_macs = sum.float_macs;
    work->attention_macs = sum.attention_macs;
    work->weight_bytes = sum.weight_bytes;
    return TEG_OK;
}

enum teg_status teg_session_bytes(const struct teg_model *model, const struct teg_session_options *options,
                                  size_t n_tokens, struct teg_memory *memory, struct teg_error *err)
{
    TRY(need_whole(model, err));
    if (model->lm)
        return teg_lm_session_bytes(model->lm, options, n_tokens, memory, err);
    return teg_run_session_bytes(&model->run, options, n_tokens, memory, err);
}

enum teg_status teg_session_new(const struct teg_model *model, const struct teg_session_options *options,
                                struct teg_session **session, struct teg_error *err)
{
    TRY(need_whole(model, err));
    if (model->lm)
        return teg_lm_session_new(model->lm, options, session, err);
    return teg_run_session_new(&model->run, options, session, err);
}

enum teg_status teg_sampler_new(const struct teg_model *model, const struct teg_sampler_options *options,
                                struct teg_sampler **sampler, struct teg_error *err)
{
    return teg_run_sampler_new((size_t)model->info.vocab_tokens, options, model->run.allocator, sampler, err);
}
