/* mil/pipeline.c: a pipeline, models that pass features on by name, as one program.
 *
 *   Pipeline  1 models (Model)   2 names      PipelineClassifier, PipelineRegressor  1 pipeline
 *
 * Every model must be an ML program. Each is read as a program of its own, with the weight files of the package; then
 * they are joined: an input is the nearest output of that name before it, or an input of the pipeline. What goes in and
 * out is the pipeline's own description. Not taken: running the models one by one in predict. Then each thing that
 * looks at a program would have to know of several. */
#include "mil/impl.h"
#include "mil/join.h"

enum { MOST_MODELS = 256 };

struct pipeline {
    struct teg_mil_reader *r;
    struct teg_span content, description;
    struct teg_mil_program **parts;
    size_t n;
};

/* ---- models ---- */

static enum teg_status read_model(struct pipeline *p, struct teg_span message)
{
    struct teg_mil_reader *const r = p->r;
    struct teg_span content = {0};
    const char *const type = teg_mil_model_type(message, &content);
    if (type)
        MIL_FAIL(
            r, TEG_ERR_UNSUPPORTED, content.bytes ? content.bytes : message.bytes,
            "expected a pipeline of ML programs, found %s as model %zu of it; convert that to an ML program (iOS 15 or "
            "later)",
            type, p->n + 1);
    struct teg_mil_program *part = NULL;
    TRY(teg_mil_program_new(r->program->path, r->program->format, r->program->arena.allocator, &part, r->err));
    p->parts[p->n++] = part;
    part->files = r->program->files;
    struct teg_mil_reader own = {.program = part,
                                 .arena = &part->arena,
                                 .err = r->err,
                                 .path = r->path,
                                 .base = r->base,
                                 .names.arena = &part->arena};
    const enum teg_status status = teg_mil_read_spec(&own, message);
    part->files = NULL; /* the pipeline closes them */
    return status;
}

static enum teg_status read_models(struct pipeline *p)
{
    struct teg_wire_iter iter = teg_wire_iter_of(p->content, 1);
    struct teg_wire_field f;
    size_t n = 0;
    while (teg_wire_each(&iter, &f))
        n++;
    if (n < 1 || n > MOST_MODELS)
        MIL_FAIL(p->r, TEG_ERR_FORMAT, p->content.bytes, "expected a pipeline of 1 to %d models, found %zu",
                 MOST_MODELS, n);
    p->parts = teg_arena_array(p->r->arena, n, sizeof(struct teg_mil_program *));
    if (!p->parts)
        return teg_mil_no_memory(p->r, n * sizeof(void *));
    iter = teg_wire_iter_of(p->content, 1);
    while (p->n < n && teg_wire_each(&iter, &f))
        TRY(read_model(p, f.bytes));
    return TEG_OK;
}

/* ---- wires ---- */

static const struct teg_mil_feature *feature_of(const struct teg_mil_feature *features, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(features[i].name, name) == 0)
            return &features[i];
    return NULL;
}

static size_t default_function(const struct teg_mil_program *part)
{
    size_t f = 0;
    while (f + 1 < part->n_functions && strcmp(part->functions[f].name, part->default_function) != 0)
        f++;
    return f;
}

/* The nearest output of that name in the first `n` models. */
static bool find_output(const struct pipeline *p, size_t n, const char *name, struct teg_mil_wire *wire)
{
    for (size_t s = n; s-- > 0;) {
        const struct teg_mil_program *const part = p->parts[s];
        const struct teg_mil_block *const b = &part->functions[default_function(part)].block;
        for (size_t o = 0; o < b->n_outputs; o++)
            if (strcmp(part->vars[b->outputs[o]].name, name) == 0) {
                *wire = (struct teg_mil_wire){.stage = s, .output = o};
                return true;
            }
    }
    return false;
}

/* An image between two models is pixels for a moment: of one kind on both sides, but for the order of the channels. */
static enum teg_status wire_image(const struct pipeline *p, size_t model, const char *name, struct teg_mil_wire *wire)
{
    static const struct teg_mil_feature array = {.kind = TEG_MIL_FEATURE_ARRAY};
    const struct teg_mil_interface *const to = &p->parts[model]->interfaces[default_function(p->parts[model])];
    const struct teg_mil_interface *const from =
        &p->parts[wire->stage]->interfaces[default_function(p->parts[wire->stage])];
    const struct teg_mil_feature *in = feature_of(to->inputs, to->n_inputs, name);
    const struct teg_mil_feature *out = feature_of(from->outputs, from->n_outputs, name);
    in = in ? in : &array;
    out = out ? out : &array;
    const bool is_image = in->kind == TEG_MIL_FEATURE_IMAGE;
    const bool is_colour = in->colour == TEG_MIL_RGB || in->colour == TEG_MIL_BGR;
    const bool from_colour = out->colour == TEG_MIL_RGB || out->colour == TEG_MIL_BGR;
    if (is_image != (out->kind == TEG_MIL_FEATURE_IMAGE) ||
        (is_image && in->colour != out->colour && !(is_colour && from_colour)))
        MIL_FAIL(p->r, TEG_ERR_UNSUPPORTED, p->content.bytes,
                 "expected '%.60s' to be the same kind of image or array for models %zu and %zu of the pipeline, found "
                 "two kinds; save the models as packages of their own",
                 name, wire->stage + 1, model + 1);
    if (is_image && in->colour != TEG_MIL_GRAY_FP16)
        wire->pixels = in->colour == out->colour ? TEG_MIL_PIXELS : TEG_MIL_PIXELS_TURNED;
    return TEG_OK;
}

static enum teg_status wire_model(const struct pipeline *p, size_t model, struct teg_mil_stage *stage)
{
    const struct teg_mil_program *const part = p->parts[model];
    const size_t function = default_function(part);
    const struct teg_mil_block *const b = &part->functions[function].block;
    struct teg_mil_wire *const wires = teg_arena_array(p->r->arena, b->n_inputs, sizeof *wires);
    if (!wires)
        return teg_mil_no_memory(p->r, b->n_inputs * sizeof *wires);
    for (size_t i = 0, k = 0; i < b->n_inputs; i++) {
        const struct teg_mil_var *const v = &part->vars[b->inputs[i]];
        if (v->type.kind == TEG_MIL_STATE)
            continue;
        wires[k] = (struct teg_mil_wire){.stage = TEG_MIL_OUTSIDE};
        if (find_output(p, model, v->name, &wires[k]))
            TRY(wire_image(p, model, v->name, &wires[k]));
        k++;
    }
    *stage = (struct teg_mil_stage){model, function, wires};
    return TEG_OK;
}

/* ---- results ---- */

struct msg_feature {
    struct teg_span name;
};
static const struct teg_wire_row feature_rows[] = {{1, TEG_WIRE_SPAN, offsetof(struct msg_feature, name)}};

/* The outputs that the description names, field 10. */
static enum teg_status find_results(const struct pipeline *p, struct teg_mil_joint *joint)
{
    struct teg_wire_iter iter = teg_wire_iter_of(p->description, 10);
    struct teg_wire_field f;
    size_t n = 0;
    while (teg_wire_each(&iter, &f))
        n++;
    struct teg_mil_result *const results = teg_arena_array(p->r->arena, n, sizeof *results);
    if (!results)
        return teg_mil_no_memory(p->r, n * sizeof *results);
    iter = teg_wire_iter_of(p->description, 10);
    while (joint->n_results < n && teg_wire_each(&iter, &f)) {
        struct msg_feature m = {0};
        struct teg_mil_wire wire = {0};
        const char *name = NULL;
        MIL_READ(p->r, f.bytes, feature_rows, &m, "a FeatureDescription");
        TRY(teg_mil_intern(p->r, m.name, "the name of an output", &name));
        if (!find_output(p, p->n, name, &wire))
            MIL_FAIL(
                p->r, TEG_ERR_FORMAT, m.name.bytes,
                "expected output '%.80s' of the pipeline to be one of its models', found none; export the model again",
                name);
        results[joint->n_results++] = (struct teg_mil_result){wire.stage, wire.output, NULL};
    }
    joint->results = results;
    return TEG_OK;
}

/* The description is compared by names of this reader. */
static enum teg_status intern_names(struct pipeline *p, const teg_mil_var_id *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct teg_mil_var *const v = &p->r->program->vars[ids[i]];
        TRY(teg_mil_intern(p->r, teg_mil_span(v->name), "the name of a feature", &v->name));
    }
    return TEG_OK;
}

static enum teg_status join(struct pipeline *p)
{
    struct teg_mil_stage *const stages = teg_arena_array(p->r->arena, p->n, sizeof *stages);
    struct teg_mil_joint joint = {.name = "main", .stages = stages, .n_stages = p->n};
    if (!stages)
        return teg_mil_no_memory(p->r, p->n * sizeof *stages);
    for (size_t i = 0; i < p->n; i++)
        TRY(wire_model(p, i, &stages[i]));
    TRY(find_results(p, &joint));
    TRY(teg_mil_join(p->r->program, &joint, 1, p->r->err));
    const struct teg_mil_block *const b = &p->r->program->functions[0].block;
    TRY(intern_names(p, b->inputs, b->n_inputs));
    return intern_names(p, b->outputs, b->n_outputs);
}

enum teg_status teg_mil_read_pipeline(struct teg_mil_reader *r, struct teg_span content, struct teg_span description)
{
    struct pipeline p = {.r = r, .content = content, .description = description};
    enum teg_status status = read_models(&p);
    if (status == TEG_OK && !teg_mil_join_parts(r->program, p.parts, p.n))
        status = teg_mil_no_memory(r, p.n * sizeof(void *));
    if (status != TEG_OK) {
        for (size_t i = 0; i < p.n; i++)
            teg_mil_free(p.parts[i]);
        return status;
    }
    TRY(join(&p));
    return teg_mil_describe(r, description);
}
