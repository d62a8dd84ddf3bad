/* mil/open.c: opens a package or a compiled model from disk or memory; whatever fails, everything is returned. */
#include "mil/impl.h"

static struct teg_mil_reader reader_of(struct teg_mil_program *program, const char *path, struct teg_span file,
                                       struct teg_error *err)
{
    return (struct teg_mil_reader){.program = program,
                                   .arena = &program->arena,
                                   .err = err,
                                   .path = path,
                                   .base = file.bytes,
                                   .names.arena = &program->arena};
}

static enum teg_status read_package(struct teg_mil_program *program, struct teg_error *err)
{
    struct teg_mlpackage *const package = &program->files->package;
    struct teg_span model = {0};
    TRY(teg_mlpackage_map(package, package->model_path, &model, err));
    struct teg_mil_reader r = reader_of(program, program->path, model, err);
    return teg_mil_read_spec(&r, model);
}

/* Program from model.mil, then what goes in and out of it from coremldata.bin, which is read as a file of its own. */
static enum teg_status read_compiled(struct teg_mil_program *program, struct teg_error *err)
{
    struct teg_mlpackage *const package = &program->files->package;
    struct teg_span text = {0}, data = {0}, description = {0};
    TRY(teg_mlpackage_map(package, package->model_path, &text, err));
    TRY(teg_mlpackage_map(package, "coremldata.bin", &data, err));
    const char *const path = teg_arena_printf(&program->arena, "%s/coremldata.bin", program->path);
    if (!path)
        return teg_base_fail_memory(err, "path of a model", strlen(program->path));
    TRY(teg_mlmodelc_description(data, path, &description, &program->spec_version, err));
    struct teg_mil_reader r = reader_of(program, program->path, text, err);
    TRY(teg_mil_read_text(&r, text));
    const bool is_version = program->spec_version >= TEG_MIL_OLDEST && program->spec_version <= TEG_MIL_NEWEST;
    /* Not every writer puts the version there; the functions' opsets say the least that it can be. */
    for (size_t i = 0; i < program->n_functions && !is_version; i++)
        program->spec_version = (uint32_t)teg_max(i ? program->spec_version : 0, program->functions[i].opset);
    r.path = path;
    r.base = data.bytes;
    return teg_mil_describe(&r, description);
}

static enum teg_status open_program(struct teg_mil_program *program, struct teg_error *err)
{
    struct teg_mlpackage *const package = &program->files->package;
    TRY(teg_mlpackage_open(package, program->path, &program->arena, err));
    program->format = package->kind == TEG_MLMODELC ? "mlmodelc" : "mlpackage";
    return package->kind == TEG_MLMODELC ? read_compiled(program, err) : read_package(program, err);
}

static enum teg_status finish(enum teg_status status, struct teg_mil_program *program, struct teg_mil_program **out)
{
    if (status == TEG_OK)
        *out = program;
    else
        teg_mil_free(program);
    return status;
}

enum teg_status teg_mil_open(const char *path, const struct teg_allocator *allocator, struct teg_mil_program **out,
                             struct teg_error *err)
{
    struct teg_mil_program *program = NULL;
    TRY(teg_mil_program_new(path, "mlpackage", allocator, &program, err));
    return finish(open_program(program, err), program, out);
}

static enum teg_status read_text_alone(struct teg_mil_reader *r, struct teg_span text)
{
    TRY(teg_mil_read_text(r, text));
    return teg_mil_describe_functions(r);
}

struct memory {
    enum teg_status (*read)(struct teg_mil_reader *r, struct teg_span file);
    const char *format;
};

static enum teg_status parse(const struct memory *kind, struct teg_span file, struct teg_span weights, const char *path,
                             const struct teg_allocator *allocator, struct teg_mil_program **out, struct teg_error *err)
{
    struct teg_mil_program *program = NULL;
    TRY(teg_mil_program_new(path, kind->format, allocator, &program, err));
    program->files->in_memory = true;
    program->files->weights = weights;
    struct teg_mil_reader r = reader_of(program, program->path, file, err);
    return finish(kind->read(&r, file), program, out);
}

enum teg_status teg_mil_parse_spec(const uint8_t *bytes, size_t n_bytes, const uint8_t *weights, size_t n_weight_bytes,
                                   const char *path, const struct teg_allocator *allocator,
                                   struct teg_mil_program **program, struct teg_error *err)
{
    static const struct memory kind = {teg_mil_read_spec, "mlpackage"};
    return parse(&kind, (struct teg_span){bytes, n_bytes}, (struct teg_span){weights, n_weight_bytes}, path, allocator,
                 program, err);
}

enum teg_status teg_mil_parse_text(const char *text, size_t n_bytes, const uint8_t *weights, size_t n_weight_bytes,
                                   const char *path, const struct teg_allocator *allocator,
                                   struct teg_mil_program **program, struct teg_error *err)
{
    static const struct memory kind = {read_text_alone, "mlmodelc"};
    return parse(&kind, (struct teg_span){(const uint8_t *)text, n_bytes}, (struct teg_span){weights, n_weight_bytes},
                 path, allocator, program, err);
}
