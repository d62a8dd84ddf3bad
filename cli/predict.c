/* predict.c: `tegula predict`: runs a function of an ML program on arrays and images from files.
 *
 * Invariant: with --repeat every run starts from the same inputs and the same state, so what is printed and saved is
 * the result of one prediction, however often it was timed. Nothing is written unless every run succeeded; a state
 * file is replaced whole or not at all. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "array.h"
#include "interrupt.h"
#include "predict.h"
#include "setup.h"

struct predict_args {
    struct cli_texts inputs;
    const char *function, *state, *output, *target;
    int64_t repeat, threads;
    int mode;
    bool json;
};

#define ARG(field) offsetof(struct predict_args, field)

static const struct cli_choice modes[] = {
    {"exact", TEG_PROGRAM_EXACT, NULL},
    {"emulate-fp16", TEG_PROGRAM_EMULATE_FP16, NULL},
    {NULL, 0, NULL},
};

static const struct cli_option option_table[] = {
    {.name = "input",
     .letter = 'i',
     .type = CLI_TEXTS,
     .offset = ARG(inputs),
     .placeholder = "NAME=FILE",
     .help = "an input: an array (.npy) or an image (.png); or FILE.npz alone: every array in it is the input of its "
             "name; repeatable"},
    {.name = "function",
     .type = CLI_TEXT,
     .offset = ARG(function),
     .placeholder = "NAME",
     .help = "the function to run (default: the program's own default)"},
    {.name = "state",
     .type = CLI_TEXT,
     .offset = ARG(state),
     .placeholder = "FILE.npz",
     .help = "the state of a stateful program: read before and written after the prediction; begins with zeros where "
             "the file does not exist"},
    {.name = "output",
     .letter = 'o',
     .type = CLI_TEXT,
     .offset = ARG(output),
     .placeholder = "OUT.npz",
     .help = "write the outputs there (default: a summary of them on standard output)"},
    {.name = "repeat",
     .type = CLI_INTEGER,
     .offset = ARG(repeat),
     .placeholder = "N",
     .initial = "1",
     .min = 1,
     .max = 1000000,
     .help = "run N times and print median, least and most time on standard error"},
    {.name = "mode",
     .type = CLI_CHOICE,
     .offset = ARG(mode),
     .initial = "exact",
     .choices = modes,
     .help = "exact: fp32 between ops; emulate-fp16: every op rounds as declared, the first overflow is reported"},
    {.name = "threads",
     .type = CLI_INTEGER,
     .offset = ARG(threads),
     .placeholder = "N",
     .min = 1,
     .max = 256,
     .help = CLI_THREADS_HELP},
    CLI_TARGET_OPTION(struct predict_args, target),
    {.name = "json", .type = CLI_FLAG, .offset = ARG(json), .help = "print one JSON document"},
};

/* ---- inputs ---- */

static bool ends_with(const char *text, const char *suffix)
{
    const size_t n = strlen(text), m = strlen(suffix);
    return n >= m && strcmp(text + n - m, suffix) == 0;
}

/* A file that is neither an array nor a PNG, named where its first bytes say what it is. */
static int fail_kind(const char *path, const struct cli_bytes *bytes)
{
    static const struct {
        const char *begin, *kind;
    } kinds[] = {{"\xff\xd8\xff", "a JPEG image"},
                 {"GIF8", "a GIF image"},
                 {"RIFF", "a WebP image or a sound"},
                 {"PK\x03\x04", "an archive"}};
    const char *found = "other bytes";
    for (size_t i = 0; i < CLI_COUNT(kinds); i++)
        if (bytes->n > 4 && memcmp(bytes->data, kinds[i].begin, strlen(kinds[i].begin)) == 0)
            found = kinds[i].kind;
    return cli_fail(
        "cannot read input: %s: expected a .npy or .png file, found %s; write it with numpy.save, or convert "
        "the image to PNG",
        path, found);
}

static int read_one(const char *path, const struct cli_bytes *bytes, struct cli_array *array)
{
    if (bytes->n > 4 && memcmp(bytes->data, "\x89PNG", 4) == 0)
        return cli_png_parse(bytes->data, bytes->n, path, array);
    if (ends_with(path, ".npy") || (bytes->n > 6 && memcmp(bytes->data, "\x93NUMPY", 6) == 0))
        return cli_npy_parse(bytes->data, bytes->n, path, array);
    return fail_kind(path, bytes);
}

/* One -i. An '=' that belongs to the path of an .npz is not a name's. */
static int read_input(const char *argument, struct cli_arrays *arrays)
{
    const char *const equals = strchr(argument, '=');
    const bool is_archive = ends_with(argument, ".npz") && (!equals || access(argument, F_OK) == 0);
    const char *const path = is_archive || !equals ? argument : equals + 1;
    if (!is_archive && (!equals || equals == argument || !equals[1]))
        return cli_usage("bad option: --input (-i): expected NAME=FILE.npy, NAME=FILE.png or FILE.npz, found '%s'; see "
                         "'tegula predict --help'",
                         argument);
    struct cli_bytes bytes = {0};
    struct cli_array array = {0};
    int code = cli_input_read(path, "input", &bytes);
    if (code == CLI_DONE && ends_with(path, ".npz") && !is_archive)
        code = cli_usage("bad option: --input (-i): %s: expected one array, found an archive of them; write -i %s",
                         argument, path);
    else if (code == CLI_DONE && is_archive)
        code = cli_npz_parse(bytes.data, bytes.n, path, arrays);
    else if (code == CLI_DONE) {
        code = read_one(path, &bytes, &array);
        if (code == CLI_DONE)
            code = cli_arrays_add(arrays, argument, (size_t)(equals - argument), &array);
    }
    cli_bytes_free(&bytes);
    return code;
}

static void to_value(const struct cli_array *array, struct teg_feature_value *value)
{
    *value = (struct teg_feature_value){.name = array->name,
                                        .kind = TEG_FEATURE_ARRAY,
                                        .element = array->element,
                                        .rank = array->rank,
                                        .data = array->data};
    memcpy(value->dims, array->dims, sizeof(value->dims));
}

/* ---- state ---- */

static int read_state_file(const char *path, struct cli_arrays *arrays)
{
    if (!path || access(path, F_OK) != 0)
        return CLI_DONE;
    struct cli_bytes bytes = {0};
    int code = cli_input_read(path, "state", &bytes);
    if (code == CLI_DONE)
        code = cli_npz_parse(bytes.data, bytes.n, path, arrays);
    cli_bytes_free(&bytes);
    return code;
}

static int new_state(const struct teg_program *program, const struct cli_arrays *values, struct teg_state **state)
{
    struct teg_error err = {0};
    if (teg_state_new(program, state, &err) != TEG_OK)
        return cli_fail_library(&err);
    if (!teg_state_count(*state))
        return cli_fail(
            "cannot use --state: the program: expected one that keeps state, found none; leave --state out");
    for (size_t i = 0; i < values->n; i++) {
        struct teg_feature_value value;
        to_value(&values->data[i], &value);
        if (teg_state_write(*state, &value, &err) != TEG_OK)
            return cli_fail_library(&err);
    }
    return CLI_DONE;
}

static int write_state_file(const char *path, const struct teg_state *state)
{
    static struct cli_output output;
    struct cli_npz_writer npz;
    struct teg_error err = {0};
    int code = cli_output_open(&output, path);
    cli_npz_begin(&npz, &output);
    for (size_t i = 0; code == CLI_DONE && i < teg_state_count(state); i++) {
        struct teg_values *values = NULL;
        if (teg_state_read(state, teg_state_name(state, i), &values, &err) != TEG_OK) {
            code = cli_fail_library(&err);
            break;
        }
        const struct teg_feature_value *const v = teg_values_at(values, 0);
        code = cli_npz_add(&npz, v->name, v->element, 0, v->rank, v->dims, v->data);
        teg_values_free(values);
    }
    if (code == CLI_DONE)
        code = cli_npz_finish(&npz);
    cli_bytes_free(&npz.directory);
    const int closed = cli_output_close(&output, code == CLI_DONE);
    return code != CLI_DONE ? code : closed;
}

/* ---- running ---- */

struct job {
    const struct predict_args *args;
    struct teg_program *program;
    struct cli_arrays inputs, state_values;
    struct teg_feature_value *values;
    struct teg_state *state;
    struct teg_values *outputs;
    double *seconds; /* [repeat] */
};

static int run_once(struct job *job, double *seconds)
{
    struct teg_error err = {0};
    struct teg_predict_options options;
    teg_predict_options_default(&options);
    teg_values_free(job->outputs);
    teg_state_free(job->state);
    job->outputs = NULL;
    job->state = NULL;
    if (job->args->state) {
        const int code = new_state(job->program, &job->state_values, &job->state);
        if (code != CLI_DONE)
            return code;
    }
    options.function = job->args->function;
    options.state = job->state;
    options.stop = cli_interrupt_flag();
    const double start = cli_now();
    if (teg_program_predict(job->program, job->values, job->inputs.n, &options, &job->outputs, &err) != TEG_OK)
        return cli_fail_library(&err);
    *seconds = cli_now() - start;
    return CLI_DONE;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int open_program(const struct predict_args *args, const char *path, struct teg_program **program)
{
    struct teg_error err = {0};
    struct teg_program_options options;
    teg_program_options_default(&options);
    options.mode = (enum teg_program_mode)args->mode;
    options.n_threads = (uint32_t)args->threads;
    options.target = args->target;
    if (teg_program_open(path, &options, program, &err) != TEG_OK ||
        teg_program_prepare(*program, args->function, &err) != TEG_OK)
        return cli_fail_library(&err);
    return CLI_DONE;
}

static int run_all(struct job *job, const char *path)
{
    const struct predict_args *const args = job->args;
    int code = open_program(args, path, &job->program);
    for (size_t i = 0; code == CLI_DONE && i < args->inputs.n; i++)
        code = read_input(args->inputs.data[i], &job->inputs);
    if (code == CLI_DONE)
        code = read_state_file(args->state, &job->state_values);
    job->values = calloc(job->inputs.n + 1, sizeof(*job->values));
    job->seconds = calloc((size_t)args->repeat, sizeof(*job->seconds));
    if (code == CLI_DONE && (!job->values || !job->seconds))
        code = cli_fail_memory();
    for (size_t i = 0; code == CLI_DONE && i < job->inputs.n; i++)
        to_value(&job->inputs.data[i], &job->values[i]);
    for (int64_t i = 0; code == CLI_DONE && i < args->repeat; i++)
        code = run_once(job, &job->seconds[i]);
    if (code == CLI_DONE)
        qsort(job->seconds, (size_t)args->repeat, sizeof(*job->seconds), by_value);
    return code;
}

static int predict(const struct cli_line *line, const void *ptr)
{
    struct job job = {.args = ptr};
    const struct predict_args *const args = ptr;
    int code = run_all(&job, line->operands[0]);
    struct teg_predict_report report = {0};
    if (code == CLI_DONE)
        teg_values_report(job.outputs, &report);
    if (code == CLI_DONE && args->output)
        code = cli_predict_write(job.outputs, args->output);
    if (code == CLI_DONE && args->state)
        code = write_state_file(args->state, job.state);
    struct cli_timing timing = {0};
    if (code == CLI_DONE) {
        const size_t n = (size_t)args->repeat;
        timing = (struct cli_timing){n, (job.seconds[(n - 1) / 2] + job.seconds[n / 2]) / 2, job.seconds[0],
                                     job.seconds[n - 1]};
        if (args->json)
            code = cli_predict_json(job.outputs, &timing, &report);
        else if (!args->output)
            code = cli_predict_print(job.outputs);
    }
    if (code == CLI_DONE && cli_option_given(line, "repeat"))
        fprintf(stderr, "%zu runs: median %.3f ms, min %.3f ms, max %.3f ms\n", timing.n_runs, timing.median * 1e3,
                timing.least * 1e3, timing.most * 1e3);
    if (code == CLI_DONE && report.overflow_op)
        fprintf(stderr, "first fp16 overflow: op %s\n", report.overflow_op);
    teg_values_free(job.outputs);
    teg_state_free(job.state);
    teg_program_free(job.program);
    cli_arrays_free(&job.inputs);
    cli_arrays_free(&job.state_values);
    free(job.values);
    free(job.seconds);
    return code;
}

const struct cli_command cli_command_predict = {
    .name = "predict",
    .operands = "PACKAGE",
    .summary = "run an ML program on arrays and images",
    .details =
        "Runs a function of a Core ML ML program (.mlpackage, .mlmodelc). Inputs are found by name and must have "
        "a shape that the model declares; numbers are converted to its types. Images are PNG files or arrays of "
        "uint8 [H, W, 3] (RGB) or [H, W]. 'tegula inspect PACKAGE' shows names and shapes.",
    .options = option_table,
    .n_options = CLI_COUNT(option_table),
    .min_operands = 1,
    .max_operands = 1,
    .args_bytes = sizeof(struct predict_args),
    .run = predict,
};
