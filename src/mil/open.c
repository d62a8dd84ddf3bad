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

static enum teg_status read_compiled(struct teg_mil_program *program, struct teg_error *err)
{
    FAIL(err, TEG_ERR_UNSUPPORTED, "cannot read ML program: %.200s: expected a .mlpackage, found a compiled model",
         program->path);
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

static enum teg_status parse(bool is_text, struct teg_span file, struct teg_span weights, const char *path,
                             const struct teg_allocator *allocator, struct teg_mil_program **out, struct teg_error *err)
{
    struct teg_mil_program *program = NULL;
    TRY(teg_mil_program_new(path, is_text ? "mlmodelc" : "mlpackage", allocator, &program, err));
    program->files->in_memory = true;
    program->files->weights = weights;
    struct teg_mil_reader r = reader_of(program, program->path, file, err);
    return finish(teg_mil_read_spec(&r, file), program, out);
}

enum teg_status teg_mil_parse_spec(const uint8_t *bytes, size_t n_bytes, const uint8_t *weights, size_t n_weight_bytes,
                                   const char *path, const struct teg_allocator *allocator,
                                   struct teg_mil_program **program, struct teg_error *err)
{
    return parse(false, (struct teg_span){bytes, n_bytes}, (struct teg_span){weights, n_weight_bytes}, path, allocator,
                 program, err);
}
