/* What the tests of src/eval share: programs from MIL text, runs, values as text ("2x3: 1 2 3 4 5 6"). */
#ifndef EVAL_TEST_H
#define EVAL_TEST_H

#include "unit/format_test.h"

#include "base/text.h"
#include "eval/eval.h"

struct program {
    struct teg_mil_program *mil;
    struct teg_eval *eval;
    char *text; /* the program points into it */
};

/* A program of one function, main<ios15 … ios18>: `inputs` are its parameters, `outputs` names. */
static inline char *program_text(int ios, const char *inputs, const char *body, const char *outputs)
{
    const size_t n = strlen(inputs) + strlen(body) + strlen(outputs) + 100;
    char *const text = malloc(n);
    assert_non_null(text);
    snprintf(text, n, "program(1.3)\n{\nfunc main<ios%d>(%s) {\n%s} -> (%s);\n}\n", ios, inputs, body, outputs);
    return text;
}

static inline struct teg_mil_program *parse_program(const char *text, struct teg_error *err)
{
    struct teg_mil_program *p = NULL;
    if (teg_mil_parse_text(text, strlen(text), NULL, 0, "t", NULL, &p, err) != TEG_OK)
        fail_msg("%s\n%s", err->message, text);
    return p;
}

static inline enum teg_status load_program(struct program *p, int ios, const char *inputs, const char *body,
                                           const char *outputs, const struct teg_eval_options *options,
                                           struct teg_error *err)
{
    char *const text = program_text(ios, inputs, body, outputs);
    *p = (struct program){parse_program(text, err), NULL, text};
    return teg_eval_new(p->mil, NULL, options, &p->eval, err);
}

static inline struct program load_good(int ios, const char *inputs, const char *body, const char *outputs,
                                       const struct teg_eval_options *options)
{
    struct program p;
    struct teg_error err = {0};
    if (load_program(&p, ios, inputs, body, outputs, options, &err) != TEG_OK)
        fail_msg("%s", err.message);
    return p;
}

static inline void program_free(struct program *p)
{
    teg_eval_free(p->eval);
    teg_mil_free(p->mil);
    free(p->text);
}

static inline struct teg_array *floats(uint32_t rank, const size_t *dims, const float *values)
{
    struct teg_array *const a = teg_array_new(NULL, TEG_MIL_FP32, rank, dims);
    assert_non_null(a);
    if (a->n)
        memcpy(a->f32, values, a->n * sizeof *values);
    return a;
}

static inline struct teg_array *scalar_float(float value)
{
    return floats(0, NULL, &value);
}

static inline void put_value(struct teg_buf *out, const struct teg_array *a)
{
    teg_buf_puts(out, a->form == TEG_FORM_LIST ? "list" : teg_shape_text(a->rank, a->dims).text);
    teg_buf_puts(out, ":");
    for (size_t i = 0; i < a->n; i++)
        if (a->form == TEG_FORM_F32)
            teg_buf_printf(out, " %.6g", (double)a->f32[i]);
        else if (a->form == TEG_FORM_I32)
            teg_buf_printf(out, " %d", a->i32[i]);
        else if (a->form == TEG_FORM_BOOL)
            teg_buf_printf(out, " %s", a->b[i] ? "true" : "false");
        else if (a->form == TEG_FORM_STRING)
            teg_buf_printf(out, " %.*s", (int)a->strings[i].n_bytes, a->strings[i].bytes);
        else
            teg_buf_puts(out, " [");
    for (size_t i = 0; a->form == TEG_FORM_LIST && i < a->n; i++)
        if (a->items[i])
            put_value(out, a->items[i]);
}

/* All outputs as text, "; " between; or the message of the failure. The caller frees it. */
static inline char *run_to_text(const struct program *p, struct teg_array *const *inputs, struct teg_eval_state *state,
                                struct teg_eval_report *report)
{
    struct teg_array *outputs[8];
    struct teg_error err = {0};
    struct teg_buf text = {0};
    const size_t n = teg_mil_find_function(p->mil, p->mil->default_function)->block.n_outputs;
    assert_true(n <= 8);
    if (teg_eval_run(p->eval, inputs, state, NULL, outputs, report, &err) != TEG_OK) {
        teg_buf_puts(&text, err.message);
        return text.bytes;
    }
    for (size_t i = 0; i < n; i++) {
        teg_buf_puts(&text, i ? "; " : "");
        put_value(&text, outputs[i]);
        teg_array_drop(NULL, outputs[i]);
    }
    return text.bytes;
}

static inline void check_run(const struct program *p, struct teg_array *const *inputs, struct teg_eval_state *state,
                             const char *expected)
{
    char *const text = run_to_text(p, inputs, state, NULL);
    assert_string_equal(text, expected);
    free(text);
}

/* One op or a few of constants; its output is y. */
static inline void check_body(int ios, const char *body, const char *outputs, const char *expected)
{
    struct program p;
    struct teg_error err = {0};
    if (load_program(&p, ios, "", body, outputs, NULL, &err) != TEG_OK)
        assert_string_equal(err.message, expected);
    else
        check_run(&p, NULL, NULL, expected);
    program_free(&p);
}

#endif
