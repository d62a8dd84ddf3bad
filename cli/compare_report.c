/* compare_report.c: what `tegula compare` found, as text and as JSON.
 *
 * Invariant: "differs" means one thing in both: the root mean square of the difference above the tolerance times A's,
 * or another shape. A comparison of layers that had nothing to compare says so; it never reads as "no difference". */
#include <math.h>
#include <string.h>

#include "compare.h"

double compare_relative(double sum_squares, double sum_squares_a)
{
    if (isnan(sum_squares) || isnan(sum_squares_a))
        return NAN;
    return sum_squares == 0 ? 0 : sum_squares_a == 0 ? INFINITY : sqrt(sum_squares / sum_squares_a);
}

static bool is_common(const struct compare_value *v)
{
    return v->n_rows_a && v->n_rows_b;
}

static bool differs(const struct comparison *c, const struct compare_value *v)
{
    return v->shape_differs || !(compare_relative(v->sum_squares, v->sum_squares_a) <= c->tolerance);
}

struct counts {
    size_t common, a_alone, b_alone, differing;
    const struct compare_value *first;
};

static struct counts count_values(const struct comparison *c)
{
    struct counts n = {0};
    for (size_t i = 0; i < c->values->n; i++) {
        const struct compare_value *const v = &c->values->items[i];
        n.common += is_common(v);
        n.a_alone += v->n_rows_b == 0;
        n.b_alone += v->n_rows_a == 0;
        if (!is_common(v) || !differs(c, v))
            continue;
        n.differing++;
        n.first = n.first ? n.first : v;
    }
    return n;
}

/* ---- text ---- */

static void print_values(struct cli_output *out, const struct comparison *c)
{
    enum { MOST_LINES = 400 };
    const struct counts n = count_values(c);
    size_t n_lines = 0;
    (void)cli_output_printf(out, "\nnamed values       %zu in both, %zu in A alone, %zu in B alone\n", n.common,
                            n.a_alone, n.b_alone);
    if (n.common == 0) {
        (void)cli_output_printf(out, "                   no name is known in both: their insides cannot be compared\n");
        return;
    }
    for (size_t i = 0; i < c->values->n && n_lines < MOST_LINES; i++) {
        const struct compare_value *const v = &c->values->items[i];
        if (!is_common(v))
            continue;
        n_lines++;
        (void)cli_output_printf(out, "  ");
        (void)cli_output_name(out, v->name, 40);
        if (v->shape_differs)
            (void)cli_output_printf(out, "  another width\n");
        else
            (void)cli_output_printf(out, "  max abs %-10.3g  relative rms %-10.3g%s\n", v->max_abs,
                                    compare_relative(v->sum_squares, v->sum_squares_a), differs(c, v) ? "differs" : "");
    }
    if (n.common > n_lines)
        (void)cli_output_printf(out, "  … %zu more\n", n.common - n_lines);
    (void)cli_output_printf(out, "first that differs ");
    if (n.first)
        (void)cli_output_name(out, n.first->name, 0);
    (void)cli_output_printf(out, n.first ? " (tolerance %g)\n" : "none (tolerance %g)\n", c->tolerance);
}

int compare_print(const struct comparison *c)
{
    static const char *const letters[] = {"A", "B"};
    const struct compare_logits *const s = &c->logits;
    struct cli_output out;
    (void)cli_output_open(&out, NULL);
    for (int i = 0; i < 2; i++) {
        const struct teg_model_info *const info = teg_model_info(c->models[i]);
        (void)cli_output_printf(&out, "%s                  ", letters[i]);
        (void)cli_output_name(&out, c->paths[i], 0);
        (void)cli_output_printf(&out, " (%s, %s)\n", info->format, info->mode);
    }
    const double n = (double)s->n_values, rows = (double)s->n_rows;
    (void)cli_output_printf(&out, "tokens             %zu\n", c->n_tokens);
    (void)cli_output_printf(
        &out, "logits             max abs %.6g (token %zu, id %d), mean abs %.6g, relative rms %.6g\n", s->max_abs,
        s->max_row, s->max_id, s->sum_abs / n, compare_relative(s->sum_squares, s->sum_squares_a));
    if (s->n_not_finite)
        (void)cli_output_printf(&out, "not finite         %zu logits, left out above\n", s->n_not_finite);
    (void)cli_output_printf(&out, "KL of B from A     mean %.6g, max %.6g\n", s->kl_sum / rows, s->kl_max);
    (void)cli_output_printf(&out, "top-1 agreement    %.2f %% (%zu of %zu)\n", 100 * (double)s->n_same_top / rows,
                            s->n_same_top, s->n_rows);
    if (s->n_scored)
        (void)cli_output_printf(&out, "perplexity         A %.6f, B %.6f (%zu tokens scored)\n",
                                exp(s->nll_a / (double)s->n_scored), exp(s->nll_b / (double)s->n_scored), s->n_scored);
    if (c->values)
        print_values(&out, c);
    return cli_output_close(&out, true);
}

/* ---- JSON ---- */

static json_t *value_json(const struct comparison *c, const struct compare_value *v)
{
    return json_pack("{s:o, s:I, s:o, s:o, s:b}", "name", cli_json_text(v->name, strlen(v->name)), "width",
                     (json_int_t)v->width, "max_abs", cli_json_real(v->max_abs), "relative_rms",
                     cli_json_real(compare_relative(v->sum_squares, v->sum_squares_a)), "differs", differs(c, v));
}

static json_t *values_json(const struct comparison *c)
{
    if (!c->values)
        return json_null();
    const struct counts n = count_values(c);
    json_t *list = json_array();
    for (size_t i = 0; i < c->values->n; i++)
        if (is_common(&c->values->items[i]))
            json_array_append_new(list, value_json(c, &c->values->items[i]));
    return json_pack("{s:I, s:I, s:I, s:f, s:o, s:o}", "in_both", (json_int_t)n.common, "in_a_alone",
                     (json_int_t)n.a_alone, "in_b_alone", (json_int_t)n.b_alone, "tolerance", c->tolerance,
                     "first_that_differs", n.first ? cli_json_text(n.first->name, strlen(n.first->name)) : json_null(),
                     "values", list);
}

static json_t *model_json(const struct comparison *c, int i, double nll)
{
    const struct teg_model_info *const info = teg_model_info(c->models[i]);
    const double mean = c->logits.n_scored ? nll / (double)c->logits.n_scored : NAN;
    return json_pack("{s:o, s:s, s:s, s:o, s:o}", "model", cli_json_text(c->paths[i], strlen(c->paths[i])), "format",
                     info->format, "mode", info->mode, "nll", cli_json_real(mean), "perplexity",
                     cli_json_real(exp(mean)));
}

int compare_json(const struct comparison *c)
{
    const struct compare_logits *const s = &c->logits;
    const double n = (double)s->n_values, rows = (double)s->n_rows;
    json_t *logits = json_pack(
        "{s:o, s:I, s:I, s:o, s:o, s:I}", "max_abs", cli_json_real(s->max_abs), "max_abs_token", (json_int_t)s->max_row,
        "max_abs_id", (json_int_t)s->max_id, "mean_abs", cli_json_real(s->sum_abs / n), "relative_rms",
        cli_json_real(compare_relative(s->sum_squares, s->sum_squares_a)), "not_finite", (json_int_t)s->n_not_finite);
    json_t *kl = json_pack("{s:o, s:o}", "mean", cli_json_real(s->kl_sum / rows), "max", cli_json_real(s->kl_max));
    return cli_json_print(json_pack("{s:o, s:o, s:I, s:o, s:o, s:o, s:I, s:o, s:o}", "a", model_json(c, 0, s->nll_a),
                                    "b", model_json(c, 1, s->nll_b), "tokens", (json_int_t)c->n_tokens, "logits",
                                    logits, "kl", kl, "top1_agreement", cli_json_real((double)s->n_same_top / rows),
                                    "scored_tokens", (json_int_t)s->n_scored, "layers", values_json(c), "seconds",
                                    cli_json_real(c->seconds)));
}
