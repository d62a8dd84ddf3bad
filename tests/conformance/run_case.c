/* tests/conformance/run_case.c: one call of a Core ML program, with .npy files in and out.
 *
 *     run_case describe PACKAGE [FUNCTION]          what goes in and comes out, a line each
 *     run_case run PACKAGE FUNCTION DIR [fp16]      DIR/in.NAME.npy and DIR/state.NAME.npy in,
 *                                                   DIR/out.NAME.npy and the states again out
 *
 * It drives the internal interface, so that the evaluator can be judged by recorded cases without the Python package.
 * Arrays are little-endian, C order, of the type that holds the declared one: <f4, <i4 or |b1. Strings and lists go to
 * standard output as "text NAME VALUE" and "pair NAME KEY VALUE". A failure is one line on standard error, status 1. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eval/eval.h"

#define HEADER_BYTES 128

static const char *const letters[] = {"<f4", "<i4", "|b1"};
static const size_t widths[] = {4, 4, 1};

static int fail(const char *message)
{
    fprintf(stderr, "%s\n", message);
    return 1;
}

/* Reads the array of `form` from PREFIX.NAME.npy; NULL where there is no such file or it is not what we write. */
static struct teg_array *read_npy(const char *dir, const char *prefix, const char *name, enum teg_mil_dtype dtype)
{
    char path[4096], header[65536];
    uint8_t start[10];
    snprintf(path, sizeof path, "%s/%s.%s.npy", dir, prefix, name);
    FILE *const f = fopen(path, "rb");
    if (!f)
        return NULL;
    struct teg_array *array = NULL;
    size_t dims[TEG_MIL_MAX_RANK], n_header;
    uint32_t rank = 0;
    const enum teg_form form = teg_form_of(dtype);
    if (fread(start, 1, sizeof start, f) != sizeof start || memcmp(start, "\x93NUMPY\x01", 7) != 0)
        goto done;
    n_header = (size_t)start[8] | (size_t)start[9] << 8;
    if (n_header >= sizeof header || fread(header, 1, n_header, f) != n_header)
        goto done;
    header[n_header] = '\0';
    const char *p = strstr(header, "'shape': (");
    if (!p || form > TEG_FORM_BOOL || !strstr(header, letters[form]) || strstr(header, "True"))
        goto done;
    for (p += strlen("'shape': ("); *p != ')' && rank < TEG_MIL_MAX_RANK;) {
        char *end;
        dims[rank] = (size_t)strtoull(p, &end, 10);
        if (end == p)
            break;
        rank++;
        for (p = end; *p == ',' || *p == ' ';)
            p++;
    }
    array = teg_array_new(NULL, dtype, rank, dims);
    if (array && fread(array->data, widths[form], array->n, f) != array->n) {
        teg_array_drop(NULL, array);
        array = NULL;
    }
done:
    fclose(f);
    return array;
}

static bool write_npy(const char *dir, const char *prefix, const char *name, const struct teg_array *a)
{
    char path[4096], header[HEADER_BYTES + 1];
    snprintf(path, sizeof path, "%s/%s.%s.npy", dir, prefix, name);
    FILE *const f = fopen(path, "wb");
    if (!f)
        return false;
    memcpy(header, "\x93NUMPY\x01\0", 8);
    header[8] = HEADER_BYTES - 10;
    header[9] = 0;
    const int start = 10;
    int at = start + snprintf(header + start, sizeof header - (size_t)start,
                              "{'descr': '%s', 'fortran_order': False, 'shape': (", letters[a->form]);
    for (uint32_t d = 0; d < a->rank; d++)
        at += snprintf(header + at, sizeof header - (size_t)at, "%zu,", a->dims[d]);
    at += snprintf(header + at, sizeof header - (size_t)at, "), }");
    memset(header + at, ' ', (size_t)(HEADER_BYTES - 1 - at));
    header[HEADER_BYTES - 1] = '\n';
    const bool good =
        fwrite(header, 1, HEADER_BYTES, f) == HEADER_BYTES && fwrite(a->data, widths[a->form], a->n, f) == a->n;
    return fclose(f) == 0 && good;
}

/* ---- describe ---- */

static void print_features(const char *what, const struct teg_mil_feature *features, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct teg_mil_feature *const f = &features[i];
        printf("%s\t%s\t%d\t%s\t%d\t%d\t%" PRId64 "\t%" PRId64 "\t%d\t%g\t", what, f->name, (int)f->kind,
               teg_mil_dtype_info(f->dtype)->name, f->optional, (int)f->colour, f->width, f->height, f->has_default,
               f->default_value);
        for (uint32_t d = 0; f->has_shape && d < f->rank; d++)
            printf("%s%" PRId64 ":%" PRId64 ":%" PRId64, d ? "," : "", f->shape[d], f->lower[d], f->upper[d]);
        printf("\t");
        for (size_t k = 0; k < f->n_enumerated; k++)
            for (uint32_t d = 0; d < f->rank; d++)
                printf("%s%" PRId64, d ? "," : k ? ";" : "", f->enumerated[k][d]);
        printf("\n");
    }
}

static int describe(const struct teg_mil_program *p, const struct teg_mil_function *f)
{
    for (size_t i = 0; i < f->block.n_inputs; i++) {
        const struct teg_mil_var *const v = &p->vars[f->block.inputs[i]];
        printf("var\t%s\t%s\t", v->name, teg_mil_dtype_info(v->type.dtype)->name);
        for (int32_t d = 0; d < v->type.rank; d++)
            printf("%s%" PRId64, d ? "," : "", v->type.dims[d]);
        printf("\n");
    }
    for (size_t i = 0; i < p->n_functions; i++)
        if (&p->functions[i] == f) {
            print_features("input", p->interfaces[i].inputs, p->interfaces[i].n_inputs);
            print_features("output", p->interfaces[i].outputs, p->interfaces[i].n_outputs);
            print_features("state", p->interfaces[i].states, p->interfaces[i].n_states);
        }
    return 0;
}

/* ---- run ---- */

static void print_scalar(const struct teg_array *a, size_t i)
{
    if (a->form == TEG_FORM_STRING)
        printf("%.*s", (int)a->strings[i].n_bytes, a->strings[i].bytes);
    else if (a->form == TEG_FORM_F32)
        printf("%.9g", (double)a->f32[i]);
    else
        printf("%d", a->form == TEG_FORM_BOOL ? a->b[i] : a->i32[i]);
}

static bool put_output(const char *dir, const struct teg_mil_var *v, const struct teg_array *a)
{
    if (a->form == TEG_FORM_LIST && a->n == 2 && a->items[0]->n == a->items[1]->n) {
        for (size_t i = 0; i < a->items[0]->n; i++) {
            printf("pair\t%s\t", v->name);
            print_scalar(a->items[0], i);
            printf("\t");
            print_scalar(a->items[1], i);
            printf("\n");
        }
        return true;
    }
    if (a->form == TEG_FORM_STRING || v->type.dtype == TEG_MIL_INT64) {
        printf("text\t%s\t", v->name);
        print_scalar(a, 0);
        printf("\n");
        return true;
    }
    return a->form <= TEG_FORM_BOOL && write_npy(dir, "out", v->name, a);
}

static int finish(const struct teg_mil_program *p, const struct teg_mil_function *f, const char *dir,
                  struct teg_array **outputs, struct teg_eval_state *state)
{
    for (size_t i = 0; i < f->block.n_outputs; i++) {
        if (!put_output(dir, &p->vars[f->block.outputs[i]], outputs[i]))
            return fail("cannot write an output");
        teg_array_drop(NULL, outputs[i]);
    }
    for (size_t i = 0; i < teg_eval_state_count(state); i++)
        write_npy(dir, "state", teg_eval_state_name(state, i),
                  teg_eval_state_array(state, teg_eval_state_name(state, i)));
    return 0;
}

static int run(const struct teg_mil_program *p, const struct teg_mil_function *f, const char *dir, bool emulate)
{
    struct teg_error err = {0};
    struct teg_eval *eval = NULL;
    struct teg_eval_state *state = NULL;
    struct teg_array *inputs[256] = {0}, *outputs[256] = {0};
    size_t n = 0;
    const struct teg_eval_options options = {.emulate_fp16 = emulate, .n_threads = 2};
    if (f->block.n_inputs > 256 || f->block.n_outputs > 256)
        return fail("too many inputs or outputs");
    if (teg_eval_new(p, f->name, &options, &eval, &err) != TEG_OK ||
        teg_eval_state_new(p, NULL, &state, &err) != TEG_OK)
        return fail(err.message);
    for (size_t i = 0; i < f->block.n_inputs; i++) {
        const struct teg_mil_var *const v = &p->vars[f->block.inputs[i]];
        if (v->type.kind != TEG_MIL_STATE) {
            inputs[n++] = read_npy(dir, "in", v->name, v->type.dtype);
            continue;
        }
        struct teg_array *const value = read_npy(dir, "state", v->name, v->type.dtype);
        if (value && teg_eval_state_set(state, v->name, value, &err) != TEG_OK)
            return fail(err.message);
        teg_array_drop(NULL, value);
    }
    struct teg_eval_report report;
    if (teg_eval_run(eval, inputs, state, NULL, outputs, &report, &err) != TEG_OK)
        return fail(err.message);
    const int result = finish(p, f, dir, outputs, state);
    for (size_t i = 0; i < n; i++)
        teg_array_drop(NULL, inputs[i]);
    teg_eval_state_free(state);
    teg_eval_free(eval);
    return result;
}

int main(int argc, char **argv)
{
    struct teg_error err = {0};
    struct teg_mil_program *program = NULL;
    if (argc < 3 || (strcmp(argv[1], "run") == 0 && argc < 5))
        return fail("usage: run_case describe PACKAGE [FUNCTION] | run PACKAGE FUNCTION DIR [fp16]");
    if (teg_mil_open(argv[2], NULL, &program, &err) != TEG_OK)
        return fail(err.message);
    const char *const name = argc > 3 && *argv[3] ? argv[3] : program->default_function;
    const struct teg_mil_function *const f = teg_mil_find_function(program, name);
    const int result = !f ? fail("no such function")
                       : strcmp(argv[1], "run") == 0
                           ? run(program, f, argv[4], argc > 5 && strcmp(argv[5], "fp16") == 0)
                           : describe(program, f);
    teg_mil_free(program);
    return result;
}
