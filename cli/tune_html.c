/* tune_html.c: what `tegula tune` found as one page: the choice, a plot over the chunk size for the rate, the time to
 * the first token, memory traffic and scratch, and the table.
 *
 * Invariant: as in bench_html.c: well-formed XML, nothing loaded, nothing scripted. Chunk sizes stand at equal
 * distances in the order of their size, because the list a user gives is what is compared; each number of threads is a
 * line of its own. */
#include <math.h>
#include <stdlib.h>

#include "tune.h"

enum { plot_width = 860, plot_height = 180, margin_left = 90, margin_bottom = 34, margin_top = 12, most_lines = 8 };

static const char *const colours[most_lines] = {"#3b7dd8", "#c2410c", "#15803d", "#7e22ce",
                                                "#b45309", "#0e7490", "#be185d", "#4b5563"};

struct plot {
    const struct tune_result *result;
    size_t chunks[64], threads[64], n_chunks, n_threads; /* that occur, ascending */
};

static void add_once(size_t *list, size_t *n, size_t value)
{
    size_t at = 0;
    while (at < *n && list[at] < value)
        at++;
    if (at < *n && list[at] == value)
        return;
    for (size_t i = (*n)++; i > at; i--)
        list[i] = list[i - 1];
    list[at] = value;
}

static double rate_of(const struct bench_figures *f, const struct bench_row *row)
{
    (void)row;
    return f->median_tps;
}

static double first_token_of(const struct bench_figures *f, const struct bench_row *row)
{
    (void)row;
    return f->median_seconds * 1e3;
}

static double traffic_of(const struct bench_figures *f, const struct bench_row *row)
{
    return f->gb_moved * 1e6 / (double)row->n_tokens;
}

static double scratch_of(const struct bench_figures *f, const struct bench_row *row)
{
    (void)f;
    return (double)row->memory.scratch_bytes / 1e6;
}

typedef double (*figure_fn)(const struct bench_figures *f, const struct bench_row *row);

/* NAN: no such candidate. */
static double value_at(const struct plot *p, size_t chunk, size_t threads, figure_fn figure, bool *chosen)
{
    struct bench_table *const table = p->result->table;
    for (size_t i = 0; i < table->n; i++) {
        struct bench_row *row = &table->rows[i];
        if (row->chunk != chunk || row->threads != threads || row->n_seconds == 0)
            continue;
        const struct bench_figures f = bench_summarize(table, row);
        *chosen = i == p->result->chosen;
        return figure(&f, row);
    }
    return NAN;
}

static double x_of(const struct plot *p, size_t i)
{
    return margin_left + plot_width * ((double)i + 0.5) / (double)p->n_chunks;
}

static void put_line(struct cli_output *output, const struct plot *p, size_t line, double most, figure_fn figure)
{
    const char *const colour = colours[line % most_lines];
    double last_x = 0, last_y = NAN;
    for (size_t i = 0; i < p->n_chunks; i++) {
        bool chosen = false;
        const double value = value_at(p, p->chunks[i], p->threads[line], figure, &chosen);
        if (isnan(value))
            continue;
        const double x = x_of(p, i), y = margin_top + plot_height * (1 - value / most);
        if (!isnan(last_y))
            (void)cli_output_printf(output, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n",
                                    last_x, last_y, x, y, colour);
        (void)cli_output_printf(output, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%d\" fill=\"%s\"/>\n", x, y,
                                chosen ? 6 : 3, colour);
        last_x = x;
        last_y = y;
    }
}

/* The least of 1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6 and 8 times a power of ten that is no less than x. */
static double round_step(double x)
{
    static const double steps[] = {1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10};
    const double power = x > 0 ? pow(10, floor(log10(x))) : 1;
    size_t i = 0;
    while (i + 1 < CLI_COUNT(steps) && steps[i] * power < x)
        i++;
    return steps[i] * power;
}

static void put_plot(struct cli_output *output, const struct plot *p, const char *title, figure_fn figure)
{
    const int width = margin_left + plot_width + 20, height = margin_top + plot_height + margin_bottom;
    double most = 0;
    bool chosen;
    for (size_t t = 0; t < p->n_threads; t++)
        for (size_t i = 0; i < p->n_chunks; i++)
            most = fmax(most, value_at(p, p->chunks[i], p->threads[t], figure, &chosen)); /* NAN is passed over */
    const double step = round_step(most / 4);
    most = 4 * step;
    (void)cli_output_printf(output,
                            "<h2>%s</h2>\n<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" "
                            "viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\">\n",
                            title, width, height, width, height);
    for (int i = 0; i <= 4; i++) {
        const double y = margin_top + plot_height * (1 - i / 4.0);
        (void)cli_output_printf(output,
                                "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" class=\"grid\"/>"
                                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.6g</text>\n",
                                margin_left, margin_left + plot_width, y, y, margin_left - 8, y + 4, step * i);
    }
    for (size_t i = 0; i < p->n_chunks; i++)
        (void)cli_output_printf(output, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%zu</text>\n", x_of(p, i),
                                margin_top + plot_height + 18, p->chunks[i]);
    for (size_t line = 0; line < p->n_threads; line++)
        put_line(output, p, line, most, figure);
    (void)cli_output_printf(output, "</svg>\n");
}

static void put_legend(struct cli_output *output, const struct plot *p)
{
    (void)cli_output_printf(output, "<p>Across: chunk in tokens.");
    for (size_t i = 0; i < p->n_threads; i++)
        (void)cli_output_printf(output, " <span style=\"color: %s\">&#9632;</span> %zu thread%s",
                                colours[i % most_lines], p->threads[i], p->threads[i] == 1 ? "" : "s");
    (void)cli_output_printf(output, ". The large point is the choice.</p>\n");
}

static void put_table(struct cli_output *output, const struct tune_result *r)
{
    static const char *const titles[] = {
        "chunk",          "KV tile",     "threads",        "median tokens/s", "min",        "max",
        "first token ms", "utilization", "moved KB/token", "memory rate",     "scratch MB", ""};
    (void)cli_output_printf(output, "<h2>Candidates</h2>\n<div class=\"wide\"><table>\n<tr>");
    for (size_t i = 0; i < CLI_COUNT(titles); i++)
        (void)cli_output_printf(output, "<th>%s</th>", titles[i]);
    (void)cli_output_printf(output, "</tr>\n");
    for (size_t i = 0; i < r->table->n; i++) {
        struct bench_row *row = &r->table->rows[i];
        const struct bench_figures f = bench_summarize(r->table, row);
        (void)cli_output_printf(output,
                                "<tr><td>%zu</td><td>%d</td><td>%zu</td><td>%.1f</td><td>%.1f</td><td>%.1f</td>"
                                "<td>%.1f</td><td>%.0f %%</td><td>%.0f</td><td>%.0f %%</td><td>%.2f</td><td>%s</td>"
                                "</tr>\n",
                                row->chunk, (int)tune_kv_tile, row->threads, f.median_tps, f.min_tps, f.max_tps,
                                f.median_seconds * 1e3, 100 * f.peak_share, traffic_of(&f, row),
                                100 * f.bandwidth_share, scratch_of(&f, row),
                                i == r->chosen  ? "chosen"
                                : r->dropped[i] ? "far behind"
                                                : "");
    }
    (void)cli_output_printf(output, "</table></div>\n");
}

int tune_print_html(struct cli_output *output, const struct tune_result *r)
{
    struct plot p = {.result = r};
    const struct bench_row *chosen = &r->table->rows[r->chosen];
    for (size_t i = 0; i < r->table->n; i++) {
        add_once(p.chunks, &p.n_chunks, r->table->rows[i].chunk);
        add_once(p.threads, &p.n_threads, r->table->rows[i].threads);
    }
    r->table->reps = r->n_rounds;
    bench_html_head(output, r->table, "tegula tune");
    (void)cli_output_printf(output, "<p><b>Chunk %zu, %zu thread%s</b>: %s.</p>\n", chosen->chunk, chosen->threads,
                            chosen->threads == 1 ? "" : "s", r->reason);
    (void)cli_output_printf(output,
                            "<p>A prompt of %zu tokens. The KV tile is one page of %d tokens in every session: sums "
                            "are cut there, so that no choice on this page can change a result.</p>\n",
                            chosen->n_tokens, (int)tune_kv_tile);
    put_legend(output, &p);
    put_plot(output, &p, "Tokens per second", rate_of);
    put_plot(output, &p, "Milliseconds to the first token", first_token_of);
    put_plot(output, &p, "KB moved for each token: weights once a chunk, keys and values", traffic_of);
    put_plot(output, &p, "MB of scratch", scratch_of);
    put_table(output, r);
    bench_html_machines(output, r->table);
    (void)cli_output_printf(output, "</body>\n</html>\n");
    return output->failure;
}
